#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kill -9 of a mounted daemon under 4 writers and 4 readers, again and again (HC_CRASH_ROUNDS, 20): after the
# next start every visible page is whole and right, no temporary is shown, nothing unlinked comes back,
# nothing synced is lost.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse

rounds=${HC_CRASH_ROUNDS:-20}
whole=0
round=0
while [ $round -lt "$rounds" ]; do
	round=$((round + 1))
	start_daemon "$tmp/cache" "$tmp/mnt" -o pool_size=128M,keep_pool ||
		fail "round $round: the daemon did not start"
	if [ $round = 1 ]; then
		mkdir "$tmp/mnt/space"
	else
		timeout 60 "$top_builddir/tests/fuse-crash" "$tmp/mnt/space" "$tmp/log" check >"$tmp/out" ||
			fail "round $round: wrong after kill -9"
		whole=$((whole + $(cut -d' ' -f1 "$tmp/out")))
	fi
	: >"$tmp/log"
	timeout 60 "$top_builddir/tests/fuse-crash" "$tmp/mnt/space" "$tmp/log" run $round &
	workers=$!
	# Seeded: another number of writes in each round.
	enough=$((round * 7919 % 150 + 20))
	enough_written()
	{
		[ "$(wc -l <"$tmp/log")" -ge $enough ] || has_ended $workers
	}
	wait_until 30 enough_written || fail "round $round: only $(wc -l <"$tmp/log") lines were written"
	kill_daemon
	wait $workers || fail "round $round: the workers ended with status $?"
done
echo "$rounds rounds, $whole pages seen again"
[ "$whole" -gt "$rounds" ] || fail "hardly a page survived"
start_daemon "$tmp/cache" "$tmp/mnt" -o pool_size=128M || fail "the daemon did not start at the end"
timeout 60 "$top_builddir/tests/fuse-crash" "$tmp/mnt/space" "$tmp/log" check || fail "wrong after kill -9"
stop_daemon || fail "the daemon ended with status $?"
