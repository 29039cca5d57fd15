#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hicachectl top: rates while something happens, plain text where there is no terminal, and on one a screen that is put
# back at the end, by a key, by a signal and at an error. Method: script(1) for the terminal.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
requires python3

mnt=$tmp/mnt
start_daemon "$tmp/cache" "$mnt" -o pool_size=64M,max_page_bytes=4M,passthrough=off || fail "the daemon does not start"
mkdir "$mnt/s"
page=$mnt/s/$(printf '%064x' 1)
head -c 100000 /dev/urandom >"$page"

# Plain: three blocks, one after the other; reads that go on show in one of them.
reader()
{
	while [ ! -e "$tmp/enough" ]; do
		dd if="$page" of=/dev/null bs=128K iflag=direct 2>/dev/null
	done
}
reader &
reader_pid=$!
end_reader()
{
	: >"$tmp/enough"
}
cleanup_fn end_reader
ctl top -n 3 -d 0.5 >"$tmp/out" || fail "top: status $?"
end_reader
wait "$reader_pid"
assert_eq "blocks" 3 "$(grep -c "^hicachefs on $mnt, process $daemon_pid" "$tmp/out")"
python3 - "$tmp/out" <<'END' || fail "top shows no reads: $(cat "$tmp/out")"
import re, sys
text = open(sys.argv[1]).read()
reads = [float(x) for x in re.findall(r"^reads +([0-9.]+)/s", text, re.M)]
sys.exit(len(reads) != 3 or not any(r > 0 for r in reads) or "\033" in text or "memory" not in text)
END
# Whatever has a histogram, with its quantiles in order.
python3 - "$tmp/out" <<'END' || fail "top shows no latencies: $(cat "$tmp/out")"
import re, sys
unit = {"us": 1e-6, "ms": 1e-3, "s": 1}
rows = re.findall(r"^(\w+_seconds)\S* +([0-9.]+) +([0-9.]+) (us|ms|s) +([0-9.]+) (us|ms|s) +([0-9.]+) (us|ms|s)$",
                  open(sys.argv[1]).read(), re.M)
names = {r[0] for r in rows}
bad = [r for r in rows if not float(r[2]) * unit[r[3]] <= float(r[4]) * unit[r[5]] * 1.001 <= float(r[6]) * unit[r[7]] * 1.002]
sys.exit(not {"open_seconds"} <= names or bool(bad))
END
expect_error 'top: -d soon: seconds' "$hicachectl_bin" -m "$mnt" top -d soon
expect_error 'top: -n 0: a number' "$hicachectl_bin" -m "$mnt" top -n 0
expect_error 'takes no argument' "$hicachectl_bin" -m "$mnt" top now
expect_error 'no hicachefs is mounted there' "$hicachectl_bin" -m "$tmp" top

# A terminal: what ends it, and that the screen, the cursor and the mode are put back.
cat >"$tmp/terminal.py" <<'END'
import os, pty, select, signal, sys, termios, time
how, tool, mnt = sys.argv[1:4]
# Of another terminal: this one's mode is changed as soon as the child runs.
before = termios.tcgetattr(pty.openpty()[0])
pid, fd = pty.fork()
if pid == 0:
    os.execv(tool, [tool, "-m", mnt, "top", "-d", "0.2"] + (["-n", "2"] if how == "n" else []))
out = b""
end = time.time() + 40
sent = False
while time.time() < end:
    if select.select([fd], [], [], 0.05)[0]:
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        out += data
    if not sent and out.count(b"look-ups") >= 2:
        sent = True
        if how == "q":
            os.write(fd, b"q")
        elif how == "c":
            os.write(fd, b"\x03")
        elif how != "n":
            os.kill(pid, getattr(signal, "SIG" + how))
try:
    after = termios.tcgetattr(fd)
except termios.error:
    after = before
_, status = os.waitpid(pid, 0)
good = out.startswith(b"\033[?1049h\033[?25l") and b"\033[?25h\033[?1049l" in out
good = good and after[3] == before[3]
want = -getattr(signal, "SIG" + how) if how in ("TERM", "HUP") else 0
got = os.waitstatus_to_exitcode(status)
if not good or got != want:
    sys.exit("%s: status %d, wanted %d; %r" % (how, got, want, out[-300:]))
END
for how in q c n TERM HUP; do
	timeout 60 python3 "$tmp/terminal.py" "$how" "$hicachectl_bin" "$mnt" || fail "top on a terminal, ended by $how"
done

# The mount goes away while it is watched.
ctl top -d 0.2 >"$tmp/out" 2>"$tmp/err" &
top_pid=$!
wait_until 20 grep -q '^look-ups' "$tmp/out" || fail "top does not begin"
stop_daemon || fail "the daemon ended with status $?"
wait "$top_pid" && fail "top ends well although its mount is gone"
[ -s "$tmp/err" ] || fail "top says nothing about its mount"
