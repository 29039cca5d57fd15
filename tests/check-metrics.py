#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks Prometheus text strictly: check-metrics.py EARLIER LATER. Every sample belongs to a family with
HELP and TYPE before it, families are whole and there once, no sample is there twice, counters end with
_total and never fall from EARLIER to LATER, histograms are cumulative and their +Inf is their _count."""
import re
import sys

SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(,|$)')


def die(text):
    sys.exit("check-metrics: " + text)


def labels_of(text, line):
    labels, at = [], 0
    while text and at < len(text):
        match = LABEL.match(text, at)
        if not match:
            die("bad labels: " + line)
        labels.append((match.group(1), match.group(2)))
        at = match.end()
    if len({name for name, _ in labels}) != len(labels):
        die("a label twice: " + line)
    return tuple(sorted(labels))


def read(path):
    with open(path, encoding="utf-8", newline="\n") as file:
        text = file.read()
    if not text.endswith("\n"):
        die("the last line has no end")
    types, helps, samples, done, family = {}, set(), {}, set(), None
    for line in text[:-1].split("\n"):
        if line.startswith("# "):
            word, name, rest = line[2:].split(" ", 2)
            if word == "HELP":
                if name in helps or not rest:
                    die("HELP twice or empty: " + line)
                helps.add(name)
                done.add(family)
                family = name
            elif word == "TYPE":
                if name != family or name in types or rest not in ("counter", "gauge", "histogram"):
                    die("TYPE out of place: " + line)
                types[name] = rest
            else:
                die("neither HELP nor TYPE: " + line)
            continue
        match = SAMPLE.match(line)
        if not match:
            die("no sample: " + line)
        name = match.group(1)
        base = re.sub(r'_(bucket|sum|count)$', '', name) if types.get(family) == "histogram" else name
        if base != family or base not in types or base in done:
            die("a sample outside its family: " + line)
        key = (name, labels_of(match.group(3), line))
        if key in samples:
            die("a sample twice: " + line)
        samples[key] = float(match.group(4))
    return types, samples


def check_histograms(types, samples):
    for name in (name for name in types if types[name] == "histogram"):
        groups = {}
        for (sample, labels), value in samples.items():
            if sample == name + "_bucket":
                le = [v for n, v in labels if n == "le"]
                rest = tuple(x for x in labels if x[0] != "le")
                if len(le) != 1:
                    die(name + ": a bucket without le")
                groups.setdefault(rest, []).append((float(le[0]), value))
        if not groups:
            die(name + ": no buckets")
        for rest, buckets in groups.items():
            buckets.sort()
            if any(a[1] > b[1] for a, b in zip(buckets, buckets[1:])):
                die(name + ": not cumulative")
            if buckets[-1][0] != float("inf") or (name + "_sum", rest) not in samples:
                die(name + ": no +Inf or no _sum")
            if samples.get((name + "_count", rest)) != buckets[-1][1]:
                die(name + ": +Inf is not _count")


def main():
    (types, before), (types2, after) = read(sys.argv[1]), read(sys.argv[2])
    for types_, samples in ((types, before), (types2, after)):
        check_histograms(types_, samples)
        for name, kind in types_.items():
            if (kind == "counter") != name.endswith("_total"):
                die(name + ": counters, and only they, end with _total")
    for key, value in before.items():
        base = re.sub(r'_(bucket|sum|count)$', '', key[0])
        if types.get(key[0]) == "counter" or types.get(base) == "histogram":
            if after.get(key, -1) < value:
                die("%s %s fell from %s to %s" % (*key, value, after.get(key)))
    print(len(types2), "families,", len(after), "samples")


main()
