#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The daemon as a service: what it tells its supervisor, and when; what SIGHUP and `control` change while it runs; the
# unit. Method: a datagram socket in systemd's place, by path and by abstract name; systemd-analyze where it is there.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
requires python3

mnt=$tmp/mnt
cache=$tmp/cache
conf=$tmp/hicachefs.conf

# supervisor ADDRESS FILE: writes each message to the file, its lines joined by "|"; ends at STOPPING=1. At READY=1 the
# mount must answer: what its version file says follows.
supervisor()
{
	rm -f "$2" "$tmp/bound"
	python3 -c '
import os, socket, subprocess, sys
address, out, bound, version = sys.argv[1:]
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("\0" + address[1:] if address[0] == "@" else address)
s.settimeout(120)
open(bound, "w").close()
with open(out, "w") as f:
    while True:
        text = s.recv(65536).decode()
        f.write(text.replace("\n", "|") + "\n")
        if text.startswith("READY=1\n"):
            f.write("answer " + subprocess.run(["cat", version], capture_output=True, timeout=20).stdout.decode())
        f.flush()
        if text.startswith("STOPPING=1"):
            break
' "$1" "$2" "$tmp/bound" "$mnt/.hicache/version" &
	supervisor_pid=$!
	wait_until 20 test -e "$tmp/bound" || fail "no socket at $1"
}
end_supervisor()
{
	[ -z "${supervisor_pid-}" ] || end_process "$supervisor_pid" 2
}
cleanup_fn end_supervisor

says()
{
	grep -q "$1" "$tmp/messages"
}

config_says()
{
	grep -q "^$1" "$mnt/.hicache/config"
}

printf 'pool_size = 64M\nmax_page_bytes = 4M\nhigh = 90%%\nlow = 80%%\n' >"$conf"
for address in "$tmp/notify" "@hc-test-$$"; do
	supervisor "$address" "$tmp/messages"
	NOTIFY_SOCKET=$address
	WATCHDOG_USEC=300000
	export NOTIFY_SOCKET WATCHDOG_USEC
	start_daemon "$cache" "$mnt" --config "$conf" || fail "the daemon does not start"
	unset NOTIFY_SOCKET WATCHDOG_USEC
	wait_until 20 says '^answer hicachefs ' || fail "READY=1 is not said when the mount answers: $(cat "$tmp/messages")"
	assert_eq "the first message" "READY=1|MAINPID=$daemon_pid|STATUS=$cache serves $mnt" "$(head -n 1 "$tmp/messages")"
	wait_until 20 says '^WATCHDOG=1' || fail "no WATCHDOG=1: $(cat "$tmp/messages")"
	kill -HUP "$daemon_pid"
	wait_until 20 says '^READY=1$' || fail "no READY=1 after SIGHUP: $(cat "$tmp/messages")"
	says '^RELOADING=1|MONOTONIC_USEC=[0-9]' || fail "no RELOADING=1: $(cat "$tmp/messages")"
	stop_daemon || fail "the daemon ended with status $?"
	wait "$supervisor_pid" || fail "the supervisor: $(cat "$tmp/messages")"
	assert_eq "the last message" 1 "$(tail -n 1 "$tmp/messages" | grep -c '^STOPPING=1|STATUS=stopping')"
done

# Nobody listens; another process is watched; the background has no supervisor: none of it is in the way.
NOTIFY_SOCKET=$tmp/nobody WATCHDOG_USEC=1000 WATCHDOG_PID=1
export NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID
start_daemon "$cache" "$mnt" --config "$conf" || fail "the daemon does not start without its supervisor"
unset NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID
grep -q "NOTIFY_SOCKET $tmp/nobody: No such file" "$daemon_log" || fail "a socket that is not there: $(cat "$daemon_log")"
assert_eq "messages to a socket that is not there" 1 "$(grep -c NOTIFY_SOCKET "$daemon_log")"

# SIGHUP: each limit, and by name what only a new start takes over.
cat >"$conf" <<END
pool_size = 128M
max_page_bytes = 4M
high = 70%
low = 60%
dirty = 11%
backup = reuse
disk_size = 2G
min_free = 1M
log_level = debug
budget_ms = 900
flush_s = 7
write_budget = 1T
keep_pool
[space s]
quota = 3M
max_age = 2h
priority = 9
END
kill -HUP "$daemon_pid"
wait_until 20 config_says 'high = 70%' || fail "SIGHUP: $(cat "$daemon_log")"
for line in 'low = 60%' 'dirty = 11%' 'backup = reuse' 'disk_size = 2G' 'min_free = 1M' 'log_level = debug' 'quota = 3M' 'max_age = 7200s' 'priority = 9'; do
	config_says "$line" || fail "after SIGHUP: no $line: $(cat "$mnt/.hicache/config")"
done
for name in pool_size budget_ms flush_s write_budget keep_pool; do
	grep -q "warning: $name: the change holds from the next start on" "$daemon_log" || fail "$name: not named: $(cat "$daemon_log")"
done
mkdir "$mnt/s"
assert_eq "quota after SIGHUP" 3M "$(cat "$mnt/.hicache/spaces/s/quota")"
ctl status >"$tmp/out" && ctl log-level >"$tmp/out" || fail "control: status $?"
grep -q 'debug: control: command "log_level"' "$daemon_log" || fail "log_level debug shows nothing"
for i in 1 2 3; do
	head -c 1000000 /dev/zero >"$mnt/s/$(printf '%064x' $i)" || fail "page $i"
done
printf 'nonsense\n' >>"$conf"
kill -HUP "$daemon_pid"
wait_until 20 grep -q 'SIGHUP: the options stay as they were' "$daemon_log" || fail "a bad file at SIGHUP: $(cat "$daemon_log")"
config_says 'high = 70%' || fail "a bad file changed something"
rm "$conf"
kill -HUP "$daemon_pid"
wait_until 20 grep -q "$conf: the config file cannot be read" "$daemon_log" || fail "no file at SIGHUP: $(cat "$daemon_log")"
is_running "$daemon_pid" || fail "the daemon ended at SIGHUP"

# The level of the log, through control.
ctl log-level error >"$tmp/out" || fail "log-level: status $?"
config_says 'log_level = error' || fail "log-level: $(grep log_level "$mnt/.hicache/config")"
assert_eq "log-level without a word" error "$(ctl log-level)"
expect_error 'loud: .*error\|warn\|info\|debug\|trace' "$hicachectl_bin" -m "$mnt" log-level loud
stop_daemon || fail "the daemon ended with status $?"

# Where standard error is the journal, lines carry their level; elsewhere, and with another's stream, they do not.
: >"$tmp/journal"
for stream in "$(stat -c %d:%i "$tmp/journal")" 1:1; do
	JOURNAL_STREAM=$stream timeout 60 "$hicachefs_bin" -f "$tmp/nothere" "$mnt" 2>"$tmp/journal" && fail "no error for a cache that is not there"
	case $stream in
	1:1) want='hicachefs: error: cache directory' ;;
	*) want='<3>hicachefs: error: cache directory' ;;
	esac
	assert_eq "lines of the journal $stream" 1 "$(grep -c "^$want" "$tmp/journal")"
done

# The unit.
unit=$top_builddir/contrib/systemd/hicachefs@.service
[ -e "$unit" ] || { echo "note: configured without systemd units"; exit 0; }
for word in Type=notify keep_pool noinit RequiresMountsFor= LimitNOFILE= LimitMEMLOCK= OOMScoreAdjust= ExecReload=; do
	grep -q "^[A-Z].*$word\|^$word" "$unit" || fail "the unit has no $word"
done
# It does not kill a stop that writes for the default flush_s.
stop_s=$(sed -n 's/^TimeoutStopSec=//p' "$unit")
flush_s=$("$hicachefs_bin" --help | sed -n 's/^  flush_s=.*(\([0-9]*\))$/\1/p')
[ "$stop_s" -ge $((2 * flush_s)) ] || fail "TimeoutStopSec=$stop_s, flush_s=$flush_s"
# The options of its command line are ones of this program.
exec_line=$(sed -n 's/^ExecStart=[^ ]* //p' "$unit" | sed "s|/etc/hicachefs/%i.conf|$tmp/unit.conf|; s|/var/lib/hicachefs/%i|$tmp/nothere|; s|/mnt/hicachefs/%i|$mnt|")
: >"$tmp/unit.conf"
# shellcheck disable=SC2086
expect_error "cache directory $tmp/nothere: No such file" "$hicachefs_bin" $exec_line
command -v systemd-analyze >/dev/null 2>&1 || { echo "note: systemd-analyze is not installed: the unit was not verified"; exit 0; }
mkdir "$tmp/units"
sed "s|^ExecStart=[^ ]*|ExecStart=$(realpath "$hicachefs_bin")|" "$unit" >"$tmp/units/hicachefs@.service"
timeout 60 systemd-analyze verify --man=no "$tmp/units/hicachefs@test.service" >"$tmp/out" 2>&1 || fail "systemd-analyze: $(cat "$tmp/out")"
! grep -i hicachefs "$tmp/out" || fail "systemd-analyze complains"
