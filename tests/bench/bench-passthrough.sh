#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What passthrough costs, and what it gains: see bench-passthrough.c. Files lie below $TMPDIR, else /var/tmp: on a disk,
# not on tmpfs. Says "not run" where this kernel has no passthrough.
: "${TMPDIR:=/var/tmp}"
export TMPDIR
. "${top_srcdir:-.}/tests/functions.sh"
[ -c /dev/fuse ] && [ "$(id -u)" = 0 ] || {
	echo "not run: needs root and /dev/fuse"
	exit 0
}

# mount_one NAME: on $tmp/NAME, with passthrough=NAME
mount_one()
{
	start_daemon "$tmp/cache-$1" "$tmp/$1" -o "pool_size=1G,dirty=100%,disk_size=20G,min_free=0,passthrough=$1" ||
		fail "the daemon did not start"
	mkdir "$tmp/$1/s"
}

counter()
{
	sed -n "s/^$2 //p" "$tmp/$1/.hicache/stats"
}

mkdir "$tmp/plain"
# shellcheck disable=SC2034 # of functions.sh: each mount here says it itself
HC_TEST_PASSTHROUGH=
mount_one auto
[ "$(counter auto fs_has_passthrough)" = 1 ] || {
	echo "not run: $(grep -h 'passthrough' "$daemon_log")"
	exit 0
}
mount_one off
mount_one writes
"$top_builddir/tests/bench/bench-passthrough" "$hicachectl_bin" "$tmp/cache-auto" "$tmp/auto/s" "$tmp/off/s" \
	"$tmp/writes/s" "$tmp/plain" || fail "bench-passthrough: status $?"
# No byte may have gone another way than the one that is named.
assert_eq "reads by the daemon with passthrough" 0 "$(counter auto fs_reads)"
assert_eq "writes by the daemon with passthrough=writes" 0 "$(counter writes fs_writes)"
assert_eq "passthrough opens with passthrough=off" 0 "$(counter off fs_passthrough_opens)"
