#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The whole daemon under churn: its anonymous memory, descriptors and threads stay as they are. Method: for
# CHURN_SECONDS (600) pages are written in each engine's way, read, listed, given attributes, unlinked and
# evicted from memory and disk, in directories that come and go; a sample each second. The first third warms up; the
# medians of the second and the last third are compared: memory +2 % (or 1 MiB, for queues that a busy disk makes longer
# than before keep their room), descriptors and threads not more.
# Not part of make check: make check-churn. The node alone is judged there by what it allocates (test-node-churn).
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
requires python3

mnt=$tmp/mnt
start_daemon "$tmp/cache" "$mnt" -o pool_size=64M,max_page_bytes=4M,disk_size=256M || fail "the daemon does not start"
python3 - "$mnt" "$daemon_pid" "${CHURN_SECONDS:-600}" <<'P' || fail "the daemon is not steady"
import os, random, statistics, sys, threading, time
mnt, pid, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
end = time.monotonic() + seconds
errors = []

def name(rng):
    return "%064x.bin" % rng.getrandbits(256)

def write(path, data, way):
    if way == 0:
        with open(path, "wb") as f:
            f.write(data)
        return
    tmp = path + (".tmp.%d.1" % os.getpid() if way == 1 else ".tmp")
    with open(tmp, "wb") as f:
        f.write(data)
    os.rename(tmp, path)

def one_round(rng, d, body):
    os.makedirs(d, exist_ok=True)
    names = [name(rng) for _ in range(50)]
    for n in names:
        write(os.path.join(d, n), body[:rng.choice((4096, 65536, 300000))], rng.randrange(3))
    for n in os.listdir(d):
        p = os.path.join(d, n)
        try:
            os.stat(p)
            with open(p, "rb") as f:
                f.read()
            if rng.random() < 0.2:
                os.setxattr(p, "user.note", b"x" * 30)
        except FileNotFoundError:
            pass
    for _ in range(50):
        try:
            os.stat(os.path.join(d, name(rng)))
        except FileNotFoundError:
            pass
    with open(os.path.join(d, "config.json"), "w") as f:
        f.write("{}")
    if rng.random() < 0.5:
        for n in os.listdir(d):
            try:
                os.unlink(os.path.join(d, n))
            except FileNotFoundError:
                pass
        try:
            os.rmdir(d)
        except OSError:
            pass

def work(k):
    rng = random.Random(k)
    body = rng.randbytes(300000)
    try:
        while time.monotonic() < end:
            one_round(rng, "%s/space%d/dir%d" % (mnt, k, rng.randrange(5)), body)
    except Exception as e:
        errors.append(repr(e))

def sample():
    status = dict(l.split(":", 1) for l in open("/proc/%d/status" % pid))
    return (int(status["RssAnon"].split()[0]), len(os.listdir("/proc/%d/fd" % pid)), int(status["Threads"]))

workers = [threading.Thread(target=work, args=(k,)) for k in range(3)]
for w in workers:
    w.start()
samples = []
while time.monotonic() < end and not errors:
    samples.append(sample())
    time.sleep(1)
for w in workers:
    w.join()
if errors:
    sys.exit("a worker failed: " + errors[0])
print("RssAnon KiB, in twelfths of the time:", *(s[0] for s in samples[::max(1, len(samples) // 12)]))
third = len(samples) // 3
middle, last = samples[third:2 * third], samples[2 * third:]
bad = []
for i, (what, slack) in enumerate((("RssAnon KiB", 1.02), ("descriptors", 1.0), ("threads", 1.0))):
    a, b = statistics.median(s[i] for s in middle), statistics.median(s[i] for s in last)
    print("%s: %d in the second third, %d in the last" % (what, a, b))
    # Descriptors come and go with what is open at the moment.
    if b > a + max(a * (slack - 1), (1024, 4, 0)[i]):
        bad.append(what)
if bad:
    sys.exit("grew: " + ", ".join(bad))
P
stop_daemon || fail "the daemon's exit status is $?"
