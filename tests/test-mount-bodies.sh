#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rules of bodies under the mount: who sees what, when, and whose bytes; and the same at full speed.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse

start_daemon "$tmp/cache" "$tmp/mnt" -o pool_size=256M || fail "the daemon did not start"
mkdir "$tmp/mnt/space"
timeout 60 "$top_builddir/tests/fuse-bodies" "$tmp/mnt/space" || fail "fuse-bodies: status $?"

races()
{
	timeout 60 "$top_builddir/tests/fuse-races" "$tmp/mnt/space" "$@" || fail "fuse-races $*: status $?"
}
races one-temp 4 1 1 500
races one-temp 2 2 1 250
races unsealed 4 1 1 500
races own-temp 4 1 40 1000
races own-temp 2 2 1 250
races in-place 4 1 1500 500
races in-place 4 1 1 250
races unlink 4 1 20 500

# Nothing is left behind: no temporary, no body, no handle.
nothing_open()
{
	for _name in fs_n_bodies fs_n_temporaries fs_n_handles; do
		[ "$(awk -v n=$_name '$1 == n { print $2 }' "$tmp/mnt/.hicache/stats")" = 0 ] || return 1
	done
}
wait_until 10 nothing_open || fail "bodies or handles are left: $(grep fs_n_ "$tmp/mnt/.hicache/stats")"
assert_eq "temporaries listed" "" "$(find "$tmp/mnt/space" -name '*tmp*')"
stop_daemon || fail "the daemon ended with status $?"
