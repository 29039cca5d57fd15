# SPDX-License-Identifier: Apache-2.0
"""The check: each step is a process of its own; they share nothing but the directory of pages.

On a mount the damaged page must be missed and counted. In a plain directory nobody notices it: there
the damage must change the logits, which proves that the comparison can fail.
"""
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types

from prompt import FIRST_QUESTION, SECOND_QUESTION, SYSTEM

STEP_TIMEOUT_S = 300
MIN_PAGES = 8           # the shared prompt has more whole pages than that
REFERENCE = "reference-logits"     # the file beside it, .json, says what they belong to


def describe(question, answer):
    lines = [
        f"  question     {question}",
        f"  answer       {answer.text}",
        f"  prompt       {answer.n_tokens} tokens; {answer.hit_pages} pages came out of the cache, "
        f"{answer.stored_pages} went into it",
        f"  first token  after {answer.first_token_ms:.0f} ms "
        f"({answer.load_ms:.0f} ms of them reading and unpacking pages)",
    ]
    if answer.unstored_pages:
        lines.append(f"  not stored   {answer.unstored_pages} pages: is the cache full?")
    return "\n".join(lines)


class Steps:
    """Runs the steps and collects the verdicts."""

    def __init__(self, args, folder):
        self.args, self.folder, self.n_bad = args, pathlib.Path(folder), 0

    def ask(self, title, question, *more):
        """Asks in a new process; returns (logits, answer)."""
        print(f"\n{title}", flush=True)
        logits = self.folder / "logits"
        logits.unlink(missing_ok=True)
        args = self.args
        command = [sys.executable, os.path.join(os.path.dirname(__file__), "demo.py"), "ask",
                   args.parent, "--json", "-q", question, "-n", str(args.tokens),
                   "--logits", str(logits), *more]
        command += ["--model", args.model] if args.model else []
        command += ["--generated"] if args.generated else []
        try:
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=STEP_TIMEOUT_S)
        except subprocess.CalledProcessError as error:
            print(f"demo: this process ended with status {error.returncode}", file=sys.stderr)
            sys.exit(2)
        except subprocess.TimeoutExpired:
            print(f"demo: no answer within {STEP_TIMEOUT_S} s", file=sys.stderr)
            sys.exit(2)
        answer = types.SimpleNamespace(**json.loads(done.stdout))
        print(describe(question, answer), flush=True)
        return logits.read_bytes(), answer

    def verdict(self, good, text):
        print(("  ok    " if good else "  FAIL  ") + text, flush=True)
        self.n_bad += not good

    def end(self, good_text):
        if self.n_bad:
            print(f"\ndemo: {self.n_bad} of the checks above failed", file=sys.stderr)
            return 1
        print(f"\n{good_text}")
        return 0


class Mount:
    """What the check does behind the back of the engine: control, stats, damage on disk."""

    def __init__(self, args):
        self.mount, self.tool = pathlib.Path(args.parent), args.hicachectl
        self.cachedir = pathlib.Path(args.cachedir)

    def evict_memory(self):
        command = [self.tool, "-m", str(self.mount), "evict", "--memory"]
        try:
            subprocess.run(command, check=True, timeout=STEP_TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"demo: {' '.join(command)}: {error}", file=sys.stderr)
            sys.exit(2)

    def bad_pages(self):
        """The number of pages found bad, of .hicache/stats."""
        path = self.mount / ".hicache" / "stats"
        stats = dict(line.split(None, 1) for line in path.read_text().splitlines() if " " in line)
        if BAD_COUNTER not in stats:
            print(f"demo: {path} has no counter {BAD_COUNTER}", file=sys.stderr)
            sys.exit(2)
        return int(stats[BAD_COUNTER])

    def page_file(self, digest):
        """pages/<12 bits of the hash>/<series id>-<hash>-<sequence>; the newest if there are two."""
        found = sorted((self.cachedir / "pages" / digest[:3]).glob(f"*-{digest}-*"),
                       key=lambda path: path.stat().st_mtime_ns)
        if not found:
            print(f"demo: {self.cachedir}: no page file with the hash {digest}; was it backed up?",
                  file=sys.stderr)
            sys.exit(2)
        return found[-1]


BAD_COUNTER = "bad_checksum"


def flip_high_bit(path):
    """The top bit of the exponent of one fp16 number in the middle: wrong by a factor of 2^16."""
    with open(path, "r+b") as file:
        at = file.seek(0, os.SEEK_END) // 4 * 2 + 1
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x40]))
        file.flush()
        os.fsync(file.fileno())


def damage_on_mount(steps, mount, plain, warm):
    """Memory copies away, one page file damaged: the next run misses that page and says so."""
    page_i = warm.hit_pages * 3 // 4
    mount.evict_memory()
    path = mount.page_file(warm.pages[page_i])
    before = mount.bad_pages()
    flip_high_bit(path)
    print(f"\nEvicted all pages from memory and flipped one bit of page {page_i} on disk:\n  {path}")
    logits, answer = steps.ask("Process 4: the same question", SECOND_QUESTION)
    after = mount.bad_pages()
    steps.verdict(answer.hit_pages <= page_i, f"the damaged page was a miss: {answer.hit_pages} pages "
                                              f"were reused, {answer.stored_pages} stored anew")
    steps.verdict(after > before, f".hicache/stats: {BAD_COUNTER} rose from {before} to {after}")
    steps.verdict(logits == plain, "logits without the cache and after the damage are bit-equal")
    steps.verdict(answer.text == warm.text, "the answer is the same")


def damage_in_directory(steps, plain, warm):
    """A plain directory gives out the damaged page: the logits must differ."""
    path = pathlib.Path(warm.directory, warm.pages[warm.hit_pages // 2] + ".kv")
    flip_high_bit(path)
    print(f"\nFlipped one bit of a page in this plain directory:\n  {path}")
    logits, _ = steps.ask("Process 4: the same question", SECOND_QUESTION)
    flip_high_bit(path)     # as it was
    steps.verdict(logits != plain, "nobody noticed: the logits are wrong (a mount would miss the page)")


class Reference:
    """The second question's answer without the cache, kept from run to run: it takes longest."""

    def __init__(self, args, directory):
        self.logits = pathlib.Path(args.state, REFERENCE) if args.state else None
        prompt = hashlib.sha256(f"{SYSTEM}\n{SECOND_QUESTION}".encode()).hexdigest()
        self.key = {"directory": os.path.basename(directory), "prompt": prompt, "tokens": args.tokens}

    def load(self):
        """(logits, answer), or None when there is none of this model, prompt and length."""
        try:
            kept = json.loads(self.logits.with_suffix(".json").read_text())
            if kept.pop("key") == self.key:
                return self.logits.read_bytes(), types.SimpleNamespace(**kept)
        except (AttributeError, OSError, ValueError, KeyError):
            pass
        return None

    def store(self, logits, answer):
        if self.logits:
            self.logits.write_bytes(logits)
            self.logits.with_suffix(".json").write_text(json.dumps(dict(vars(answer), key=self.key)))


def without_cache(steps, reference):
    kept = reference.load()
    if kept:
        print(f"\nProcess 2: {SECOND_QUESTION} without the cache: not run again, answer and times are an "
              f"earlier run's\n"
              f"  answer       {kept[1].text}\n"
              f"  first token  after {kept[1].first_token_ms:.0f} ms, then", flush=True)
        return kept
    asked = steps.ask("Process 2: another question after the same system prompt, without the cache",
                      SECOND_QUESTION, "--no-cache")
    reference.store(*asked)
    return asked


def check(args):
    mount = Mount(args) if args.cachedir else None
    with tempfile.TemporaryDirectory(prefix="hicache-demo-") as folder:
        steps = Steps(args, folder)
        _, first = steps.ask("Process 1: a question after a long system prompt; its pages are stored",
                             FIRST_QUESTION)
        reference = Reference(args, first.directory)
        measured = " (measured by an earlier run)" if reference.load() else ""
        plain, cold = without_cache(steps, reference)
        reused, warm = steps.ask("Process 3: the same question, with the cache", SECOND_QUESTION)
        print()
        if not args.generated and not args.model:
            steps.verdict("Paris" in first.text, "the first answer is Paris")
            steps.verdict("Otto" in warm.text, "the second one, out of the cached pages, is Otto")
        steps.verdict(warm.hit_pages >= MIN_PAGES,
                      f"{warm.hit_pages} pages = {64 * warm.hit_pages} tokens were reused")
        steps.verdict(reused == plain, "logits with and without the cache are bit-equal")
        steps.verdict(warm.text == cold.text, "the answers are the same")
        print(f"  time to the first token: {cold.first_token_ms:.0f} ms without{measured}, "
              f"{warm.first_token_ms:.0f} ms with the cache "
              f"= {cold.first_token_ms / warm.first_token_ms:.1f} times as fast")
        if steps.n_bad == 0 and mount:
            damage_on_mount(steps, mount, plain, warm)
        elif steps.n_bad == 0:
            damage_in_directory(steps, plain, warm)
    return steps.end("The demo's checks are all well.")


def again(args):
    try:
        plain = pathlib.Path(args.state, REFERENCE).read_bytes()
    except OSError as error:
        print(f"demo: {error}: run check with this --state first", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="hicache-demo-") as folder:
        steps = Steps(args, folder)
        logits, warm = steps.ask("One more process, after the restart", SECOND_QUESTION)
        steps.verdict(warm.hit_pages == len(warm.pages),
                      f"still warm: {warm.hit_pages} of {len(warm.pages)} pages were reused")
        steps.verdict(logits == plain, "logits are bit-equal to those without a cache")
    return steps.end("The cache outlived the restart.")
