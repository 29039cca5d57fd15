#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Goal: the helpers in tests/functions.sh clean up whatever happens, and fail when they should. Method: a
# made-up daemon that mounts a tmpfs, and small tests that use it and pass, fail, skip, or are ended.
. "${top_srcdir:-.}/tests/functions.sh"

requires_root
has_cap 21 || skip "root without CAP_SYS_ADMIN may not mount"

cat >"$tmp/daemon" <<'END'
#!/bin/sh
# -f [OPTION...] CACHEDIR MOUNTPOINT; the options say how it misbehaves.
mode=
while [ $# -gt 2 ]; do
	case $1 in die | mute | stubborn) mode=$1 ;; esac
	shift
done
[ "$mode" = die ] && { echo "daemon: no such luck" >&2; exit 3; }
mnt=$2
mount -t tmpfs -o size=64k hctest "$mnt" || exit 1
[ "$mode" = mute ] || { mkdir "$mnt/.hicache" && echo 1 >"$mnt/.hicache/version"; }
trap '[ "$mode" = stubborn ] || { umount "$mnt"; kill $child; exit 7; }' TERM
tail --pid=$$ -f /dev/null & child=$!
while :; do wait $child && break; done
END
chmod +x "$tmp/daemon"

# try STATUS SCRIPT-TEXT [SECONDS]: runs it as a test; nothing may be left. Its output is in $tmp/out.
try()
{
	printf '. "%s/tests/functions.sh"\nhicachefs_bin=%s/daemon\n%s\n' "$top_srcdir" "$tmp" "$2" >"$tmp/inner.sh"
	_before=$(ls "$tmp/tmpdir" | wc -l)
	TMPDIR=$tmp/tmpdir HC_START_SECONDS=2 HC_STOP_SECONDS=1 HC_END_SECONDS=1 timeout -k 30 "${3:-20}" sh "$tmp/inner.sh" \
		>"$tmp/out" 2>&1
	_rc=$?
	assert_eq "status ($(cat "$tmp/out")) of: $2" "$1" "$_rc"
	assert_eq "folders left by: $2" "$_before" "$(ls "$tmp/tmpdir" | wc -l)"
	grep -F " $tmp/tmpdir/" /proc/self/mounts && fail "left mounted by: $2"
	_pid=$(sed -n 's/^pid //p' "$tmp/out")
	for _p in $_pid; do
		is_running "$_p" && fail "left running by: $2"
	done
	return 0
}
mkdir "$tmp/tmpdir"
start='start_daemon $tmp/c $tmp/m || fail "start"; echo pid $daemon_pid
[ "$(cat "$tmp/m/.hicache/version")" = 1 ] || fail "not mounted"'

try 0 'true'
try 77 'requires no-such-command'
grep -q '^SKIP: no-such-command is not installed' "$tmp/out" || fail "no reason given: $(cat "$tmp/out")"
try 1 'fail "as it should"'
try 1 'assert_eq thing a b'
try 1 'wait_until 1 false || fail "time is up"'
try 0 'expect_error "bad [a-z]+" sh -c "echo bad thing >&2; exit 2"'
try 1 'expect_error "bad" true'
try 1 'expect_error "bad" sh -c "echo good; exit 1"'
try 1 'expect_error "bad" sh -c "echo bad; kill -9 \$\$"'

try 0 "$start; stop_daemon; assert_eq status 7 \$?"
try 0 "$start; kill_daemon; $start"
try 0 "$start"
try 1 "$start; fail 'with a daemon'"
try 77 "$start; skip 'with a daemon'"
try 124 "$start; tail --pid=\$\$ -f /dev/null" 2
try 0 "$start; cleanup_fn bye; bye() { touch '$tmp/bye'; }"
[ -e "$tmp/bye" ] || fail "cleanup_fn was not called"
try 0 'start_daemon $tmp/c $tmp/m -o die && exit 1; assert_eq status 3 "$daemon_status"; grep -q luck "$daemon_log"'
try 1 'start_daemon $tmp/c $tmp/m -o mute'
try 1 "start_daemon \$tmp/c \$tmp/m -o stubborn; stop_daemon"
grep -q 'does not stop' "$tmp/out" || fail "a daemon that does not stop: $(cat "$tmp/out")"
try 0 'start_daemon $tmp/c $tmp/m1; start_daemon $tmp/d $tmp/m2; stop_daemon $tmp/m1
is_mounted $tmp/m1 && exit 1; is_mounted $tmp/m2 || exit 1; stop_daemon; is_mounted $tmp/m2 && exit 1; exit 0'
