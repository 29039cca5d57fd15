#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Options that change what a mount does, each seen by its effect: where things lie, how much stays in memory, when pages
# are written, how old they may be, what a damaged pool means. Parsing and refusals are in test-options, test-refusals.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse

mnt=$tmp/mnt
cache=$tmp/cache

stat_of()
{
	sed -n "s/^$1 //p" "$mnt/.hicache/stats"
}

# page NUMBER [BYTES]: a page of the space s; its copy is $tmp/page-NUMBER. Hashes differ from their first digit on.
page()
{
	_name=$(printf '%x%062x' $((1 + $1 % 14)) "$1")0.bin
	head -c "${2:-100000}" /dev/urandom >"$tmp/page-$1"
	cp "$tmp/page-$1" "$mnt/s/$_name" || fail "page $1 cannot be written"
}

same()
{
	cmp "$mnt/s/$(printf '%x%062x' $((1 + $1 % 14)) "$1")0.bin" "$tmp/page-$1" || fail "page $1 differs"
}

pages_on_disk()
{
	[ "$(stat_of n_pages_disk)" = "$1" ]
}

start()
{
	start_daemon "$cache" "$mnt" -o "pool_size=64M,max_page_bytes=4M,$1" || fail "the daemon did not start with $1"
}

stop()
{
	stop_daemon || fail "the daemon ended with status $?"
}

# Where things lie.
mkdir "$tmp/pool" "$tmp/catalog" "$tmp/d1" "$tmp/d2" "$cache"
start "pool_path=$tmp/pool,catalog_dir=$tmp/catalog,disk=$tmp/d1,disk=$tmp/d2,root_mode=0711,threads=3,log_level=debug,numa=off"
mkdir "$mnt/s"
for i in $(seq 1 40); do
	page "$i"
done
ctl sync || fail "sync: status $?"
for dir in "$tmp/d1" "$tmp/d2"; do
	[ "$(find "$dir/pages" -type f | wc -l)" -gt 0 ] || fail "no page in $dir"
done
assert_eq "page files" 40 "$(find "$tmp/d1/pages" "$tmp/d2/pages" -type f | wc -l)"
[ -s "$tmp/catalog/catalog.mdb" ] || fail "no catalog in catalog_dir"
[ ! -e "$cache/catalog.mdb" ] && [ ! -e "$cache/pages" ] || fail "CACHEDIR holds what has another place"
[ "$(du -s "$tmp/pool" | cut -f1)" -ge 65536 ] || fail "the pool is not in pool_path: $(du -s "$tmp/pool")"
assert_eq "root_mode" 711 "$(stat -c %a "$mnt")"
grep -q 'debug' "$daemon_log" || fail "log_level=debug shows nothing"
stop
[ "$(du -s "$tmp/pool" | cut -f1)" -lt 1024 ] || fail "a clean stop left the pool: $(du -s "$tmp/pool")"
expect_error "catalog|$tmp/d1|data director" "$hicachefs_bin" -f -o "pool_size=64M,noinit,disk=$tmp/nothere" "$cache" "$mnt"
start "catalog_dir=$tmp/catalog,disk=$tmp/d1,disk=$tmp/d2"
for i in $(seq 1 40); do
	same "$i"
done
stop

# When pages are written. Pages whose size was not known at their creation are built on disk: no backup counts them.
cache=$tmp/cache-off
start backup=off
mkdir "$mnt/s"
for i in 1 2 3 4 5; do
	page $i
done
! grep -q '^n_dirty [1-9]' "$mnt/.hicache/stats" || fail "backup=off: a page waits to be written"
assert_eq "pages" 5 "$(stat_of n_pages)"
assert_eq "backups with backup=off" 0 "$(stat_of backed_up)"
# What a program asks for is done all the same.
for i in 1 2 3 4 5; do
	sync "$mnt/s/$(printf '%x%062x' $((1 + i)) $i)0.bin" || fail "fsync with backup=off"
done
assert_eq "pages on disk after fsync" 5 "$(stat_of n_pages_disk)"
stop
cache=$tmp/cache-evict
start backup=evict
mkdir "$mnt/s"
page 1
page 2
page 3
assert_eq "backups with backup=evict" 0 "$(stat_of backed_up)"
ctl evict --memory >"$tmp/out" || fail "evict --memory: $(cat "$tmp/out")"
assert_eq "pages on disk after they left memory" 3 "$(stat_of n_pages_disk)"
same 1
same 3
stop
cache=$tmp/cache-reuse
start backup=reuse
mkdir "$mnt/s"
page 1
page 2
page 3
assert_eq "backups with backup=reuse" 0 "$(stat_of backed_up)"
for i in 1 2 3 1 2 3; do
	same $i
done
wait_until 20 pages_on_disk 3 || fail "backup=reuse: $(stat_of n_pages_disk) pages on disk after two reads of 3"
stop

# How much stays.
cache=$tmp/cache-marks
start disk_size=0,high=50%,low=30%
mkdir "$mnt/s"
for i in $(seq 1 50); do
	page "$i" 1000000
done
below_high()
{
	[ "$(stat_of memory_bytes)" -le 33554432 ]
}
wait_until 20 below_high || fail "memory above high: $(stat_of memory_bytes) bytes"
[ "$(stat_of memory_bytes)" -ge 18000000 ] || fail "memory far below low: $(stat_of memory_bytes) bytes"
same 50
assert_eq "page files with disk_size=0" 0 "$(find "$cache" -path '*/pages/*' -type f | wc -l)"
stop
cache=$tmp/cache-disk
start disk_size=20M,high=100%,low=90%
mkdir "$mnt/s"
for i in $(seq 1 40); do
	page "$i" 1000000
done
ctl sync >"$tmp/out" 2>&1
[ "$(stat_of disk_used_bytes)" -le 20971520 ] || fail "disk above disk_size: $(stat_of disk_used_bytes) bytes"
[ "$(stat_of disk_used_bytes)" -ge 10000000 ] || fail "disk hardly used: $(stat_of disk_used_bytes) bytes"
same 40
# How old they may be.
page 41
echo 1s >"$mnt/.hicache/spaces/s/max_age" || fail "max_age"
no_page()
{
	[ -z "$(ls "$mnt/s")" ]
}
wait_until 20 no_page || fail "expired pages are shown: $(ls "$mnt/s")"
stop

# Unverified reads give what the disk has.
cache=$tmp/cache-verify
start verify=off
mkdir "$mnt/s"
page 1
ctl evict --memory >"$tmp/out" || fail "evict --memory: $(cat "$tmp/out")"
printf '\377\000\377' | dd of="$(find "$cache/pages" -type f)" bs=1 seek=777 conv=notrunc 2>"$tmp/dd" || fail "dd"
cmp "$mnt/s/$(printf '%x%062x' 2 1)0.bin" "$tmp/page-1" >"$tmp/out" && fail "the page is not damaged"
grep -q 'differ' "$tmp/out" || fail "verify=off gives no bytes: $(cat "$tmp/out")"
stop

# A slot table that cannot be read: refused, until the pool may be dropped; CACHEDIR stays as it is.
cache=$tmp/cache-discard
start "pool_path=$tmp/pool,keep_pool"
mkdir "$mnt/s"
page 1
page 2
ctl sync || fail "sync: status $?"
stop
table=$tmp/pool/slots
[ -s "$table" ] || fail "no slot table: $(find "$tmp/pool")"
printf 'garbage!garbage!' | dd of="$table" bs=1 conv=notrunc 2>"$tmp/dd" || fail "dd"
expect_error 'discard.pool' "$hicachefs_bin" -f -o "pool_size=64M,pool_path=$tmp/pool" "$cache" "$mnt"
! is_mounted "$mnt" || fail "refused, but mounted"
start "pool_path=$tmp/pool,discard_pool"
same 1
same 2
stop

# Read only.
start ro
same 1
(: >"$mnt/s/new") 2>"$tmp/err" && fail "a file was made on a read-only mount"
grep -q 'Read-only' "$tmp/err" || fail "read-only: $(cat "$tmp/err")"
rm "$mnt/s/$(printf '%x%062x' 2 1)0.bin" 2>"$tmp/err" && fail "a page was removed on a read-only mount"
stop
