# SPDX-License-Identifier: Apache-2.0
# What every shell test needs. First line of a test after its comment:
#	. "${top_srcdir:-.}/tests/functions.sh"
# A test is run by dash as well as bash, in any directory, and ends by itself: it works in $tmp (made
# here, removed at its end), unmounts exactly the mount points it made and ends exactly the processes
# it started, also when it is interrupted. Exit status 0 passed, 77 skipped, anything else failed.
# No test sleeps: it waits for a condition with wait_until.
set -u
LC_ALL=C
export LC_ALL

: "${top_srcdir:=$(cd "$(dirname "$0")/.." && pwd)}"
: "${top_builddir:=$top_srcdir}"
test_name=$(basename "$0" .sh)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/hc-$test_name-XXXXXX") || exit 99
tmp=$(cd "$tmp" && pwd -P)
hicachefs_bin=${HICACHEFS_BIN:-$top_builddir/fuse/hicachefs}
hicachectl_bin=${HICACHECTL_BIN:-$top_builddir/src/tool/hicachectl}
daemons=		# "pid mountpoint" of each daemon that runs, the latest last
caches=			# cache directories of all daemons: what is left of their pools is freed at the end
cleanup_list=		# functions of cleanup_fn, the latest first
daemon_pid=		# of the latest start_daemon
daemon_mnt=
daemon_log=
daemon_status=

# skip REASON: this machine cannot run the test.
skip()
{
	echo "SKIP: $*"
	exit 77
}

# fail TEXT: what was expected and what came instead.
fail()
{
	echo "FAIL: $*" >&2
	# Told again behind the logs of the daemons: the end of a log is what CI shows.
	echo "FAIL: $*" >"$tmp/.failed"
	exit 1
}

# cleanup_fn FUNCTION: called at the end, whatever the end is, before the daemons are stopped.
cleanup_fn()
{
	cleanup_list="$1 $cleanup_list"
}

# requires COMMAND...: each must be there.
requires()
{
	for _cmd in "$@"; do
		command -v "$_cmd" >/dev/null 2>&1 || skip "$_cmd is not installed"
	done
}

requires_root()
{
	[ "$(id -u)" = 0 ] || skip "needs root"
}

# has_cap BIT: this process has the capability of that number (21 = CAP_SYS_ADMIN).
has_cap()
{
	_caps=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
	[ $((0x$_caps >> $1 & 1)) = 1 ]
}

# The reason begins with "no FUSE" always: CI looks for it.
requires_fuse()
{
	[ -c /dev/fuse ] || skip "no FUSE: /dev/fuse is missing"
	(: <>/dev/fuse) 2>/dev/null || skip "no FUSE: /dev/fuse cannot be opened"
	if [ "$(id -u)" = 0 ]; then
		has_cap 21 || skip "no FUSE: root without CAP_SYS_ADMIN may not mount"
	else
		command -v fusermount3 >/dev/null 2>&1 || skip "no FUSE: fusermount3 is not installed"
	fi
}

# wait_until SECONDS COMMAND...: runs the command until it succeeds; 1 when time is up.
wait_until()
{
	_end=$(($(date +%s) + $1))
	shift
	until "$@"; do
		[ "$(date +%s)" -lt "$_end" ] || return 1
		sleep 0.05
	done
}

# is_mounted DIR: asks the kernel's table, never the file system (which may hang).
is_mounted()
{
	awk -v dir="$1" '$2 == dir { found = 1 } END { exit !found }' /proc/self/mounts
}

# A process whose first thread has ended runs as long as another does: it holds its files.
is_running()
{
	kill -0 "$1" 2>/dev/null || return 1
	! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null || [ "$(ls "/proc/$1/task" 2>/dev/null | wc -l)" -gt 1 ]
}

has_ended()
{
	! is_running "$1"
}

# unmount DIR: exactly this mount point, by force and then lazily.
unmount()
{
	is_mounted "$1" || return 0
	if [ "$(id -u)" = 0 ]; then
		timeout 10 umount -f "$1" 2>/dev/null
		is_mounted "$1" && timeout 10 umount -l "$1"
	else
		timeout 10 fusermount3 -u -z "$1"
	fi
	! is_mounted "$1"
}

# end_process PID SECONDS: TERM, then KILL after that time. For processes of this test only.
end_process()
{
	is_running "$1" || return 0
	kill -TERM "$1" 2>/dev/null
	wait_until "$2" has_ended "$1" || kill -KILL "$1" 2>/dev/null
}

_daemon_ready()
{
	has_ended "$daemon_pid" && return 0
	is_mounted "$daemon_mnt" && timeout 5 stat "$daemon_mnt/.hicache/version" >/dev/null 2>&1
}

# start_daemon CACHEDIR MOUNTPOINT [OPTION...]: in the foreground mode, in the background of the test;
# returns when the mount answers. Sets daemon_pid, daemon_mnt, daemon_log. Returns 1 if it ended by
# itself (daemon_status; the log says why), fails the test if it does neither within 30 s.
start_daemon()
{
	_cachedir=$1
	daemon_mnt=$2
	shift 2
	[ -x "$hicachefs_bin" ] || fail "$hicachefs_bin is not built"
	mkdir -p "$_cachedir" "$daemon_mnt"
	_n=$((${_n:-0} + 1))
	daemon_log=$tmp/daemon-$_n.log
	# Both byte paths: make check-passthrough, check-fallback. What a busy disk cannot deliver in budget_ms is a miss:
	# a test that expects a hit allows for the slowest machine, one that expects a miss names its own. A config
	# file has its own, too.
	case " $* " in
	*" --config "*) _budget_ms= ;;
	*) _budget_ms=${HC_BUDGET_MS:-30000} ;;
	esac
	"$hicachefs_bin" -f ${HC_TEST_PASSTHROUGH:+-o "passthrough=$HC_TEST_PASSTHROUGH"} ${_budget_ms:+-o "budget_ms=$_budget_ms"} "$@" "$_cachedir" "$daemon_mnt" >"$daemon_log" 2>&1 </dev/null &
	daemon_pid=$!
	daemons="$daemons$daemon_pid $daemon_mnt
"
	caches="$caches$_cachedir
"
	wait_until "${HC_START_SECONDS:-30}" _daemon_ready || {
		cat "$daemon_log" >&2
		fail "the daemon on $daemon_mnt does not answer"
	}
	is_running "$daemon_pid" && return 0
	wait "$daemon_pid"
	daemon_status=$?
	_forget_daemon "$daemon_pid"
	return 1
}

_forget_daemon()
{
	daemons=$(printf '%s' "$daemons" | awk -v pid="$1" '$1 != pid')
	[ -z "$daemons" ] || daemons="$daemons
"
}

# _pick_daemon [MOUNTPOINT]: sets _pid and _mnt to the daemon of that mount point, else the latest.
_pick_daemon()
{
	_line=$(printf '%s' "$daemons" | awk -v mnt="${1-}" 'mnt == "" || $2 == mnt { l = $0 } END { print l }')
	_pid=${_line%% *}
	_mnt=${_line#* }
	[ -n "$_pid" ] || fail "no daemon runs${1:+ on $1}"
}

# No engine ever sees an EIO, or a read that ends before the page does: the daemon counts them. A test
# that means an EIO (a sync of a dead disk) sets HC_EIO_EXPECTED.
_no_read_failed()
{
	[ -z "${HC_EIO_EXPECTED-}" ] && is_running "$_pid" && is_mounted "$_mnt" || return 0
	_bad=$(timeout 5 awk '$1 ~ /^fs_(eio_replies|read_failures)$/ && $2 > 0' "$_mnt/.hicache/stats" 2>/dev/null)
	[ -z "$_bad" ] || fail "the daemon on $_mnt answered with errors: $_bad"
}

# stop_daemon [MOUNTPOINT]: SIGTERM, waits up to 60 s, returns its exit status; fails the test if it
# does not end or leaves its mount point mounted.
stop_daemon()
{
	_pick_daemon "$@"
	_no_read_failed
	kill -TERM "$_pid" 2>/dev/null
	wait_until "${HC_STOP_SECONDS:-60}" has_ended "$_pid" || fail "the daemon on $_mnt does not stop"
	_forget_daemon "$_pid"
	is_mounted "$_mnt" && { unmount "$_mnt"; fail "the daemon left $_mnt mounted"; }
	wait "$_pid"
}

# kill_daemon [MOUNTPOINT]: SIGKILL, and the dead mount point is taken away.
kill_daemon()
{
	_pick_daemon "$@"
	_no_read_failed
	kill -KILL "$_pid" 2>/dev/null
	wait "$_pid" 2>/dev/null
	_forget_daemon "$_pid"
	unmount "$_mnt" || fail "cannot unmount $_mnt"
}

# ctl ARGUMENT...: hicachectl on the latest daemon's mount point.
ctl()
{
	timeout "${HC_CTL_SECONDS:-60}" "$hicachectl_bin" -m "$daemon_mnt" "$@"
}

# assert_eq WHAT EXPECTED GOT
assert_eq()
{
	[ "$2" = "$3" ] || fail "$1: expected \"$2\", got \"$3\""
}

# expect_error PATTERN COMMAND...: the command ends by itself within 90 s, with an error (not by a
# signal), and what it prints matches the extended regular expression.
expect_error()
{
	_pattern=$1
	shift
	_out=$(timeout -k 5 "${HC_ERROR_SECONDS:-90}" "$@" 2>&1 </dev/null)
	_rc=$?
	[ "$_rc" != 0 ] || fail "$*: succeeded, expected an error that says \"$_pattern\": $_out"
	[ "$_rc" -lt 124 ] || fail "$*: ended with status $_rc (time limit or signal): $_out"
	printf '%s\n' "$_out" | grep -Eq -e "$_pattern" || fail "$*: the message does not say \"$_pattern\": $_out"
}

_at_exit()
{
	_status=$?
	trap '' INT TERM HUP
	trap - EXIT
	set +e
	for _fn in $cleanup_list; do
		"$_fn"
	done
	printf '%s' "$daemons" | while read -r _pid _mnt; do
		unmount "$_mnt"
		end_process "$_pid" "${HC_END_SECONDS:-5}"
	done
	printf '%s' "$caches" | sort -u | while read -r _cachedir; do
		[ ! -d "$_cachedir" ] || [ ! -x "$hicachectl_bin" ] || timeout 20 "$hicachectl_bin" pool free "$_cachedir" >/dev/null
	done
	if [ "$_status" != 0 ] && [ "$_status" != 77 ]; then
		for _log in "$tmp"/daemon-*.log; do
			[ -s "$_log" ] && { echo "--- $_log (end)"; tail -n 40 "$_log"; }
		done
		[ ! -f "$tmp/.failed" ] || cat "$tmp/.failed"
	fi
	cd /
	# A mount point that could not be unmounted is never walked into.
	if grep -qF " $tmp/" /proc/self/mounts; then
		echo "still mounted below $tmp, left alone" >&2
	else
		rm -rf "$tmp"
	fi
	exit "$_status"
}
trap _at_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
