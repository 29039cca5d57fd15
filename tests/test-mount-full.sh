#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A cache that is full: eviction under creates and look-ups of one directory never deadlocks, held pages
# are ENOSPC, a full disk is a failed backup and no failure of the cache.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse

# Memory only, 64 MiB: 190 MiB of pages are set and read by four processes, all in one directory.
start_daemon "$tmp/cache1" "$tmp/mnt1" -o pool_size=64M,disk_size=0 || fail "the daemon did not start"
mkdir "$tmp/mnt1/space"
timeout 100 "$top_builddir/tests/fuse-races" "$tmp/mnt1/space" evict 4 1 4000 1500 ||
	fail "races in a full pool: status $?"
stats=$tmp/mnt1/.hicache/stats
[ "$(awk '$1 == "evicted_memory" { print $2 }' "$stats")" -gt 100 ] || fail "nothing was evicted"

# The same while everything is thrown out again and again from outside.
timeout 100 "$top_builddir/tests/fuse-races" "$tmp/mnt1/space" evict 2 2 200 500 &
races=$!
while is_running $races; do
	ctl evict >"$tmp/evict" || fail "evict: $(cat "$tmp/evict")"
done
wait $races || fail "races under evictions: status $?"

# Names that were evicted are gone, also those that the kernel had.
for i in 1 2 3 4 5; do
	echo $i >"$tmp/mnt1/space/0123456789abcde$i.bin"
	stat "$tmp/mnt1/space/0123456789abcde$i.bin" >"$tmp/stat" || fail "page $i is not there"
done
ctl evict >"$tmp/evict" || fail "evict: $(cat "$tmp/evict")"
all_gone()
{
	for i in 1 2 3 4 5; do
		[ ! -e "$tmp/mnt1/space/0123456789abcde$i.bin" ] || return 1
	done
}
wait_until 5 all_gone || fail "evicted names are still shown"
cat "$tmp/mnt1/space/0123456789abcde1.bin" 2>"$tmp/err" && fail "an evicted page was read"
grep -q 'No such file' "$tmp/err" || fail "an evicted page: $(cat "$tmp/err")"

timeout 60 "$top_builddir/tests/fuse-full" "$tmp/mnt1/space" 1048576 64 || fail "fuse-full: status $?"
stop_daemon || fail "the daemon ended with status $?"

# A disk of 48 MiB: pages go on being cached, a scratch file that cannot fit is told so at once.
mkdir "$tmp/disk"
unmount_disk()
{
	umount "$tmp/disk" 2>/dev/null
}
cleanup_fn unmount_disk
mount -t tmpfs -o size=48M hicache-test "$tmp/disk" || skip "cannot mount a tmpfs"
if start_daemon "$tmp/cache2" "$tmp/mnt2" -o pool_size=64M,disk="$tmp/disk"; then
	mkdir "$tmp/mnt2/space"
	timeout 100 "$top_builddir/tests/fuse-races" "$tmp/mnt2/space" evict 2 1 4000 2000 ||
		fail "races on a full disk: status $?"
	expect_error 'No space' fallocate -l 1G "$tmp/mnt2/space/scratch"
	rm -f "$tmp/mnt2/space/scratch"
	timeout 100 "$top_builddir/tests/fuse-races" "$tmp/mnt2/space" in-place 2 1 20 50 ||
		fail "races after the refusal: status $?"
	# 3: it stopped as it should, and says that the disk had no room for all that was in memory.
	stop_daemon || [ $? = 3 ] || fail "the daemon ended with status $?"
else
	grep -q xattr "$daemon_log" || fail "the daemon did not start: $(cat "$daemon_log")"
	echo "tmpfs has no user xattrs here: the full disk was not tried"
fi
