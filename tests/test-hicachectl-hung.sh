#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hicachectl with a daemon that does not answer: every command that asks the mount ends by itself, with a message, also
# when the daemon stops answering in the middle, holds up nobody who reads its output, and ends by the signal it is sent.
# What takes long in a daemon that answers is waited for. Method: stops the daemon (SIGSTOP) and lets it go on.
. "${top_srcdir:-.}/tests/functions.sh"
requires_fuse

mnt=$tmp/mnt
cache=$tmp/cache
go_on() { kill -CONT "$daemon_pid" 2>/dev/null; }
cleanup_fn go_on
start_daemon "$cache" "$mnt" -o pool_size=64M || fail "the daemon does not start: $(cat "$daemon_log")"
mkdir "$mnt/sp"
name=$(printf '%064x' 1).bin
head -c 100000 /dev/urandom >"$mnt/sp/$name"

kill -STOP "$daemon_pid"
silent="$mnt: the daemon does not answer \(waited 1 s\).*kill -CONT.*umount -f $mnt"
# All at once: each waits for itself.
n=0
while read -r command; do
	n=$((n + 1))
	(
		# shellcheck disable=SC2086
		timeout -k 5 90 "$hicachectl_bin" -m "$mnt" -w 1 $command >"$tmp/out-$n" 2>&1 </dev/null
		echo "$?" >"$tmp/status-$n"
	) &
done <<END
status
status --json
ls
ls -lR
stat $mnt/sp/$name
series
series sp
series set sp 1 x
top -b -n 1
sync
verify
gc
evict
evict --memory $mnt/sp/$name
pin $mnt/sp
unpin sp
prefetch $mnt/sp/$name
log-level
drain --timeout 1
drain --end
END
all_ended() { [ "$(cat "$tmp"/status-* 2>/dev/null | wc -l)" = "$n" ]; }
wait_until 120 all_ended || fail "commands that do not end: $(head "$tmp"/out-*)"
for i in $(seq "$n"); do
	assert_eq "exit status of command $i ($(cat "$tmp/out-$i"))" 1 "$(cat "$tmp/status-$i")"
	grep -Eq "$silent" "$tmp/out-$i" || fail "command $i says: $(cat "$tmp/out-$i")"
done
expect_error "$silent" env HICACHE_MOUNT="$mnt" "$hicachectl_bin" --wait=1s status
# Doctor looks with children of its own.
timeout 60 "$hicachectl_bin" doctor >"$tmp/doctor" 2>&1
grep -q "$mnt" "$tmp/doctor" || fail "doctor: $(cat "$tmp/doctor")"
# A signal ends it before the time is up.
"$hicachectl_bin" -m "$mnt" -w 600 sync >"$tmp/out" 2>&1 &
pid=$!
has_worker() { [ -n "$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)" ]; }
wait_until 20 has_worker || fail "no worker: $(cat "$tmp/out")"
kill -TERM $pid
wait_until 60 has_ended $pid || fail "SIGTERM does not end it"
wait $pid
assert_eq "exit status after SIGTERM" 143 $?

# It goes on: so do they.
go_on
ctl status >"$tmp/out" || fail "status after SIGCONT: $(cat "$tmp/out")"
assert_eq "log level" warn "$(ctl log-level warn)"

# In the middle.
"$hicachectl_bin" -m "$mnt" -w 1 top -b -d 0.1 >"$tmp/top" 2>"$tmp/top-err" &
pid=$!
shows() { grep -q 'hicachefs on' "$tmp/top"; }
wait_until 30 shows || fail "top shows nothing: $(cat "$tmp/top-err")"
kill -STOP "$daemon_pid"
wait_until 60 has_ended $pid || fail "top does not end"
wait $pid
assert_eq "exit status of top" 1 $?
grep -Eq "$silent" "$tmp/top-err" || fail "top: $(cat "$tmp/top-err")"
go_on
ctl status >"$tmp/out" || fail "status after the second SIGCONT: $(cat "$tmp/out")"
expect_error 'wait 0: seconds from 1 to 3600' "$hicachectl_bin" -w 0 status
assert_eq "exit status of a bad --wait" 2 "$_rc"
stop_daemon || fail "the daemon's exit status is $?"
