#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What users of a shared cache rely on, seen through the mount: pages that are open stay readable whatever is evicted
# or unlinked; a read of a whole page is never short and its size is known before; clearing one space leaves others
# alone; each space has counters, which only rise; a disk that another writer fills keeps min_free and is no failure
# of the cache; names are looked up without reading directories.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse

mnt=$tmp/mnt
start_daemon "$tmp/cache" "$mnt" -o pool_size=128M,max_page_bytes=8M || fail "the daemon did not start"

# name NUMBER: of a page. page SPACE NUMBER BYTES: makes one, its copy is $tmp/pages/NUMBER.
name()
{
	printf '%064x.bin' "$((0x7a0000 + $1))"
}
mkdir "$tmp/pages"
page()
{
	head -c "$3" /dev/urandom >"$tmp/pages/$2"
	cp "$tmp/pages/$2" "$mnt/$1/$(name "$2")" || fail "page $2 of $1 cannot be written"
}

# stat_of NAME [SPACE]
stat_of()
{
	sed -n "s/^$1 //p" "$mnt/.hicache/${2:+spaces/$2/}stats"
}

# whole SPACE NUMBER BYTES: a stat, then one read of the whole page; then one that asks for more.
whole()
{
	_path=$mnt/$1/$(name "$2")
	assert_eq "size of page $2 before the first read" "$3" "$(stat -c %s "$_path")"
	for _flag in "" iflag=direct; do
		# shellcheck disable=SC2086
		dd if="$_path" of="$tmp/got" bs="$3" count=1 $_flag 2>"$tmp/dd" || fail "page $2: $(cat "$tmp/dd")"
		grep -qx '1+0 records in' "$tmp/dd" || fail "a short read of page $2: $(cat "$tmp/dd")"
		cmp "$tmp/got" "$tmp/pages/$2" || fail "page $2 differs"
	done
	dd if="$_path" of="$tmp/got" bs=$(($3 + 4096)) count=1 2>"$tmp/dd" || fail "page $2: $(cat "$tmp/dd")"
	cmp "$tmp/got" "$tmp/pages/$2" || fail "page $2 differs when more is asked for"
}

# A read of a whole page is whole: odd sizes, above the largest request, from memory, from disk, after a restart.
mkdir "$mnt/whole"
sizes='1 4095 4096 4097 65537 1048575 1048576 1048577 3000001 8388608'
all_whole()
{
	_i=1
	for _size in $sizes; do
		whole whole $_i "$_size"
		_i=$((_i + 1))
	done
}
i=1
for size in $sizes; do
	page whole $i "$size"
	i=$((i + 1))
done
all_whole
ctl evict --memory >"$tmp/out" || fail "evict --memory: $(cat "$tmp/out")"
assert_eq "pages in memory" 0 "$(stat_of n_pages_memory)"
all_whole
stop_daemon || fail "the daemon ended with status $?"
start_daemon "$tmp/cache" "$mnt" -o pool_size=128M,max_page_bytes=8M || fail "the daemon did not start again"
all_whole

# Clearing one space leaves the others alone.
mkdir "$mnt/a" "$mnt/b"
for i in 21 22 23; do
	page a $i 100000
	page b $i 100000
done
echo '{}' >"$mnt/a/config.json"
ctl evict a >"$tmp/out" || fail "evict a: $(cat "$tmp/out")"
grep -q '^evicted 3 pages' "$tmp/out" || fail "evict a: $(cat "$tmp/out")"
assert_eq "names in the cleared space" config.json "$(ls "$mnt/a")"
for i in 21 22 23; do
	whole b $i 100000
done
all_whole
assert_eq "bytes used by the cleared space" 0 "$(stat_of used_bytes a)"
assert_eq "bytes used by the other" 300000 "$(stat_of used_bytes b)"
for counter in lookups lookup_hits hits_memory hits_disk misses published published_bytes evicted_memory; do
	sum=0
	# The whole last: reading the spaces' files counts nothing.
	for space in "$mnt/.hicache/spaces"/*; do
		sum=$((sum + $(stat_of $counter "$(basename "$space")")))
	done
	assert_eq "$counter of all spaces" "$(stat_of $counter)" $sum
done
rm -r "$mnt/a" && mkdir "$mnt/a" || fail "a space cannot be removed and made again"
assert_eq "names in the space made again" "" "$(ls -A "$mnt/a")"
whole b 21 100000

# Counters per space: what one engine does is not the other's, and the spaces add up to the whole.
assert_eq "published in a" 0 "$(stat_of published a)"
assert_eq "published in b" 3 "$(stat_of published b)"
assert_eq "bytes published in b" 300000 "$(stat_of published_bytes b)"
hits=$(($(stat_of hits_memory b) + $(stat_of hits_disk b)))
[ $hits -ge 9 ] || fail "hits of b: $hits"
assert_eq "hits of a" 0 "$(stat_of hits_memory a)"
file=$(find "$tmp/cache/pages" -name "*$(name 22 | cut -c1-64)*")
ctl evict --memory >"$tmp/out" || fail "evict --memory: $(cat "$tmp/out")"
[ -n "$file" ] || file=$(find "$tmp/cache/pages" -name "*$(name 22 | cut -c1-64)*")
printf '\377\000\377' | dd of="$file" bs=1 seek=777 conv=notrunc 2>"$tmp/dd" || fail "cannot damage: $(cat "$tmp/dd")"
cat "$mnt/b/$(name 22)" >"$tmp/got" 2>/dev/null && fail "a damaged page was read"
assert_eq "damaged pages of b" 1 "$(stat_of bad_checksum b)"
assert_eq "damaged pages of a" 0 "$(stat_of bad_checksum a)"
# Counters only rise, whatever goes on. State (n_, _used, ...) may fall.
echo "nothing before 0" >"$tmp/before"
timeout 60 "$top_builddir/tests/fuse-races" "$mnt/a" evict 2 1 400 400 &
races=$!
rounds=0
while is_running $races || [ $rounds -lt 3 ]; do
	{
		sed 's/^/whole /' "$mnt/.hicache/stats"
		sed 's/^/a /' "$mnt/.hicache/spaces/a/stats"
	} >"$tmp/after"
	awk 'FNR == NR { old[$1 " " $2] = $3; next }
		$2 ~ /^(lookup|acquire|hits_|miss|publish|replaced|removed|evicted_|expired|recut_|backed_|backup_|promote|bad_|quarantined$|adopt|rebuilt|scrubbed|disk_errors|disks_out|no_|catalog_lost)/ {
			n++
			if (($1 " " $2) in old && $3 < old[$1 " " $2])
				print $1, $2, "fell from", old[$1 " " $2], "to", $3
		}
		END { if (n < 40) print "only", n + 0, "counters" }' "$tmp/before" "$tmp/after" >"$tmp/fallen"
	[ ! -s "$tmp/fallen" ] || fail "counters: $(cat "$tmp/fallen")"
	mv "$tmp/after" "$tmp/before"
	rounds=$((rounds + 1))
done
wait $races || fail "races under the counters: status $?"
[ $rounds -ge 3 ] || fail "the counters were read $rounds times only"

# A page that is open stays readable to its end: three times the pool goes through, and its name is taken.
page b 31 3000000
page b 32 3000000
exec 3<"$mnt/b/$(name 31)" 4<"$mnt/b/$(name 32)"
dd bs=1000 count=1 of="$tmp/got3" <&3 2>/dev/null
rm "$mnt/b/$(name 32)" || fail "an open page cannot be unlinked"
timeout 100 "$top_builddir/tests/fuse-races" "$mnt/a" evict 2 1 4000 2500 || fail "races beside open pages: status $?"
ctl evict >"$tmp/out" || fail "evict: $(cat "$tmp/out")"
grep -q '^kept' "$tmp/out" || fail "evict with open pages kept none: $(cat "$tmp/out")"
[ -e "$mnt/b/$(name 31)" ] || fail "an open page was evicted"
[ ! -e "$mnt/b/$(name 32)" ] || fail "an unlinked page is shown"
cat <&3 >>"$tmp/got3" || fail "an open page cannot be read on"
cmp "$tmp/got3" "$tmp/pages/31" || fail "an open page differs"
cat <&4 >"$tmp/got4" || fail "an open, unlinked page cannot be read"
cmp "$tmp/got4" "$tmp/pages/32" || fail "an open, unlinked page differs"
exec 3<&- 4<&-
ctl evict >"$tmp/out" || fail "evict: $(cat "$tmp/out")"
[ ! -e "$mnt/b/$(name 31)" ] || fail "a closed page is kept"

# Sharded directories, a few thousand names: look-ups read no directory of the disk.
mkdir "$mnt/shards"
for i in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do
	mkdir "$mnt/shards/$i"
	for j in $(seq 100 199); do
		echo "$i $j" >"$mnt/shards/$i/$i$j$(name 0 | cut -c5-64).bin"
	done
done
ctl sync || fail "sync: status $?"
if command -v strace >/dev/null 2>&1; then
	strace -f -q -e trace=getdents64 -o "$tmp/trace" -p "$daemon_pid" &
	tracer=$!
	traced() { grep -q '^TracerPid:[[:space:]]*[1-9]' "/proc/$daemon_pid/status"; }
	if wait_until 10 traced; then
		for i in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do
			(cd "$mnt/shards/$i" && stat -- *"$(name 0 | cut -c5-64).bin") >"$tmp/out" || fail "stat in $i"
			assert_eq "names found in $i" 100 "$(grep -c 'Size: ' "$tmp/out")"
			[ ! -e "$mnt/shards/$i/${i}777$(name 0 | cut -c5-64).bin" ] || fail "an absent page is there"
		done
		kill -TERM $tracer
		wait $tracer
		assert_eq "directories read by the daemon" 0 "$(grep -c 'getdents64(' "$tmp/trace")"
	else
		kill -TERM $tracer 2>/dev/null
		echo "note: strace may not follow the daemon: its directory reads were not counted"
	fi
else
	echo "note: strace is not installed: directory reads were not counted"
fi
stop_daemon || fail "the daemon ended with status $?"

# A disk that somebody else fills: our pages make room down to min_free, and what cannot be written is a failed
# backup; pages are still taken, and none has wrong bytes.
disk=$tmp/disk
mkdir "$disk"
unmount_disk()
{
	umount "$disk" 2>/dev/null
}
cleanup_fn unmount_disk
if command -v mkfs.ext4 >/dev/null 2>&1 && truncate -s 96M "$tmp/image" && mkfs.ext4 -q -m 0 "$tmp/image" &&
	mount -o loop "$tmp/image" "$disk" 2>/dev/null; then
	rmdir "$disk/lost+found"
elif ! mount -t tmpfs -o size=96M hicache-test "$disk"; then
	echo "note: no file system can be mounted here: min_free was not tried"
	exit 0
fi
# The data directory is below the file system's root: the other writer's file is beside it.
mkdir "$disk/data"
if ! start_daemon "$tmp/cache2" "$mnt" -o pool_size=64M,max_page_bytes=4M,min_free=32M,disk="$disk/data"; then
	grep -q xattr "$daemon_log" || fail "the daemon did not start: $(cat "$daemon_log")"
	echo "note: no user xattrs on a file system of our own: min_free was not tried"
	exit 0
fi
free_mib()
{
	echo $(($(stat -f -c '%a * %S / 1048576' "$disk")))
}
# room MIB: this much is free, give or take one page that was on its way.
room()
{
	[ "$(free_mib)" -ge "$(($1 - 2))" ]
}
mkdir "$mnt/s"
for i in $(seq 101 180); do
	page s "$i" 1000000
done
ctl sync >"$tmp/out" 2>&1
# A busy disk may take longer than the sync: then there is room because nothing was written yet.
twenty_pages()
{
	[ "$(stat_of n_pages_disk)" -ge 20 ]
}
wait_until 60 twenty_pages || fail "only $(stat_of n_pages_disk) pages on disk; sync: $(cat "$tmp/out"); $(
	grep -E 'backed|backup|evicted|no_space|n_dirty|disk_errors' "$mnt/.hicache/stats" | tr '\n' ' ')"
wait_until 20 room 32 || fail "free after 80 MB of pages: $(free_mib) MiB, min_free is 32"
before=$(stat_of n_pages_disk)
# The other writer takes 30 MiB; we give them back out of our own.
dd if=/dev/zero of="$disk/other" bs=1M count=30 conv=fsync 2>"$tmp/dd" || fail "the other writer: $(cat "$tmp/dd")"
for i in $(seq 201 230); do
	page s "$i" 1000000
done
ctl sync >"$tmp/out" 2>&1
wait_until 30 room 32 || fail "free with another writer: $(free_mib) MiB, min_free is 32"
[ "$(stat_of n_pages_disk)" -lt "$before" ] || fail "pages on disk: $(stat_of n_pages_disk), before $before"
# It takes all there is: nothing of ours can be written, and nothing breaks.
dd if=/dev/zero of="$disk/other2" bs=1M 2>"$tmp/dd" && fail "the disk could not be filled"
for i in $(seq 301 330); do
	page s "$i" 1000000
	cmp "$mnt/s/$(name "$i")" "$tmp/pages/$i" || fail "page $i on a full disk"
done
n=0
for i in $(seq 101 180) $(seq 201 230) $(seq 301 330); do
	cat "$mnt/s/$(name "$i")" >"$tmp/got" 2>/dev/null || continue
	cmp "$tmp/got" "$tmp/pages/$i" || fail "page $i differs"
	n=$((n + 1))
done
[ $n -ge 30 ] || fail "only $n pages are left on a full disk"
# It goes away: pages are written again.
rm "$disk/other" "$disk/other2"
for i in $(seq 401 405); do
	page s "$i" 1000000
done
sync "$mnt/s/$(name 405)" || fail "fsync after the disk has room again"
stop_daemon || fail "the daemon ended with status $?"
