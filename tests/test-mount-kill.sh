#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kill -9 of a mounted daemon under 4 writers and 4 readers. Goal: after each next start every visible page is whole and
# right, no temporary is visible, nothing unlinked comes back, nothing fsynced is lost, directories made are there.
# Method: tests/fuse-kill.c, which kills after a seeded number of operations. Every fourth round the pool is dropped,
# so that only the disk can answer; in the last part the pool is too small for all pages; at the end the page files are
# moved away, so that only adopted slots can answer. With passthrough=writes no page is ever in the pool: there the
# catalog is taken away at the end, so that only the page files can answer.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse

rounds=${HC_KILL_ROUNDS:-10}
crash=$top_builddir/tests/fuse-kill
cache=$tmp/cache
mnt=$tmp/mnt
pool=32M

mount_cache()
{
	start_daemon "$cache" "$mnt" -o "pool_size=$pool,disk_size=1G,log_level=warn,max_page_bytes=1M" ||
		fail "round $round: the daemon does not start: $(cat "$daemon_log")"
}

# check_cache kept|lossy|dropped|moved|rebuilt
check_cache()
{
	timeout 60 "$crash" check "$mnt" "$tmp/state" "$1" >"$tmp/out" 2>&1 ||
		fail "round $round, pool $1: status $?: $(cat "$tmp/out")"
}

stat_of()
{
	sed -n "s/^$1 //p" "$mnt/.hicache/stats"
}

is_rebuilt()
{
	[ "$(stat_of rebuilding)" = 0 ]
}

round=0
adopted=0
found=0
mount_cache
in_files=
[ "${HC_TEST_PASSTHROUGH-}" = writes ] && [ "$(stat_of fs_has_passthrough)" = 1 ] && in_files=yes
timeout 20 "$crash" make "$mnt" "$tmp/state" || fail "the spaces cannot be made"
while [ "$round" -lt "$rounds" ]; do
	round=$((round + 1))
	seed=$((round * 7907 % 1009))
	timeout 90 "$crash" work "$mnt" "$tmp/state" "$seed" "$((20 + seed % 150))" "$daemon_pid" 2>"$tmp/out" ||
		fail "round $round: work: status $?: $(cat "$tmp/out" "$mnt/.hicache/stats" 2>&1)"
	kill_daemon "$mnt"
	how=kept
	if [ $((round % 4)) = 0 ]; then
		how=dropped
		"$hicachectl_bin" pool free "$cache" >"$tmp/out" 2>&1 || fail "pool free: $(cat "$tmp/out")"
	elif [ "$round" -ge $((rounds * 3 / 5)) ]; then
		how=lossy
	fi
	[ "$round" = $((rounds * 3 / 5)) ] && pool=16M
	mount_cache
	check_cache $how
	adopted=$((adopted + $(stat_of adopted)))
	found=$((found + $(stat_of n_pages_disk)))
done
if [ "$in_files" ]; then
	assert_eq "pages that the kernel wrote, found in the pool in $rounds rounds" 0 "$adopted"
	[ "$found" -gt 0 ] || fail "no page file was found in $rounds rounds"
else
	[ "$adopted" -gt 0 ] || fail "no page was adopted in $rounds rounds"
fi

stop_daemon || fail "the daemon ended with status $?"
summary=$(tail -n 1 "$tmp/out")

# Only memory can answer: the page files are moved away before the next start. Or only they can: no catalog.
rm -rf "$cache" "$tmp/state"
pool=64M
mount_cache
timeout 20 "$crash" make "$mnt" "$tmp/state" || fail "the spaces cannot be made"
timeout 90 "$crash" work "$mnt" "$tmp/state" 5 400 "$daemon_pid" 2>"$tmp/out" || fail "work: $(cat "$tmp/out")"
kill_daemon "$mnt"
[ "$(find "$cache/pages" -type f | wc -l)" -gt 0 ] || fail "nothing was on disk yet"
if [ "$in_files" ]; then
	catalog=$(find "$cache" -name '*.mdb')
	[ -n "$catalog" ] || fail "no catalog to take away: $(find "$cache" -maxdepth 2)"
	rm $catalog
	how=rebuilt
	counter=rebuilt
else
	mv "$cache/pages" "$tmp/pages"
	mkdir "$cache/pages"
	how=moved
	counter=adopted
fi
mount_cache
wait_until 60 is_rebuilt || fail "the catalog is not rebuilt: $(cat "$daemon_log")"
check_cache $how
kept=$(stat_of $counter)
got=$(sed 's/ .*//' "$tmp/out")
if [ "$in_files" ]; then
	# Of a page that was being replaced there may be two files: both are counted.
	[ "$got" -gt 0 ] && [ "$kept" -ge "$got" ] || fail "$kept page files were rebuilt, $got pages can be read"
else
	[ "$kept" -gt 0 ] && [ "$got" -ge "$kept" ] || fail "$kept pages were adopted, $got can be read"
fi
stop_daemon || fail "the daemon ended with status $?"
echo "$rounds rounds, $adopted pages adopted, $found found on disk; $summary"
