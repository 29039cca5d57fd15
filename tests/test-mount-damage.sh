#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Damage behind the daemon's back, of pages that are not in memory: a miss that is counted, never wrong bytes; and of what
# it keeps beside them: the catalog, the slot table, foreign files. A clear error or a cache that goes on.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse

cache=$tmp/cache
mnt=$tmp/mnt

mount_cache()
{
	start_daemon "$cache" "$mnt" -o pool_size=64M,disk_size=1G,max_page_bytes=2M "$@"
}

hash_of()
{
	printf '%064x' "$((0xabc00 + $1))"
}

# page NUMBER: the path in the mount.
page()
{
	echo "$mnt/sp/$(hash_of "$1").bin"
}

# file_of NUMBER: its file in CACHEDIR.
file_of()
{
	find "$cache/pages" -name "*-$(hash_of "$1")-*"
}

stat_of()
{
	sed -n "s/^$1 //p" "$mnt/.hicache/stats"
}

# fill FIRST LAST: pages with bytes of their own, on disk, kept in $tmp/right.
fill()
{
	mkdir -p "$tmp/right" "$mnt/sp"
	_i=$1
	while [ "$_i" -le "$2" ]; do
		head -c $((70000 + _i)) /dev/urandom >"$tmp/right/$_i"
		cp "$tmp/right/$_i" "$(page "$_i")" || fail "page $_i cannot be written"
		_i=$((_i + 1))
	done
	ctl sync >"$tmp/out" 2>&1 || fail "sync: $(cat "$tmp/out")"
}

# missing NUMBER WHAT: open answers ENOENT.
missing()
{
	cat "$(page "$1")" >"$tmp/got" 2>"$tmp/err" && fail "$2: it was read"
	[ ! -s "$tmp/got" ] || fail "$2: bytes came"
	grep -q 'No such file' "$tmp/err" || fail "$2: $(cat "$tmp/err")"
	[ ! -e "$(page "$1")" ] || fail "$2: the name is still there"
}

right()
{
	cmp "$tmp/right/$1" "$(page "$1")" || fail "page $1 is wrong or gone: $2"
}

mount_cache || fail "the daemon does not start"
fill 1 12

# Flipped, cut, longer, gone.
ctl evict --memory >/dev/null || fail "evict --memory: status $?"
printf '\377\000\377' | dd of="$(file_of 1)" bs=1 seek=65536 conv=notrunc 2>/dev/null
truncate -s 4096 "$(file_of 2)"
head -c 4096 /dev/urandom >>"$(file_of 3)"
rm "$(file_of 4)"
: >"$(file_of 5)"
missing 1 "a flipped byte"
missing 2 "a truncated file"
missing 3 "a longer file"
missing 4 "a deleted file"
missing 5 "an empty file"
for i in 6 7 8; do
	right $i "its neighbours were damaged"
done
bad=$(($(stat_of bad_checksum) + $(stat_of bad_size) + $(stat_of bad_missing)))
[ "$bad" = 5 ] || fail "5 pages were damaged, $bad are counted: $(grep bad_ "$mnt/.hicache/stats")"
[ "$(stat_of bad_checksum)" -ge 1 ] && [ "$(stat_of bad_missing)" = 1 ] || fail "counted wrong: $(grep bad_ "$mnt/.hicache/stats")"
# They can be stored again.
cp "$tmp/right/1" "$(page 1)" && right 1 "stored again"

# Found by verify alone.
ctl evict --memory >/dev/null || fail "evict --memory: status $?"
printf '\377\000\377' | dd of="$(file_of 6)" bs=1 seek=100 conv=notrunc 2>/dev/null
ctl verify >"$tmp/out"
assert_eq "status of verify" 4 $?
grep -q '^1 page was bad' "$tmp/out" || fail "verify: $(cat "$tmp/out")"
missing 6 "found by verify"

# Foreign files are left alone by the daemon; files of ours without a row go with gc.
foreign=$(dirname "$(file_of 7)")/README
echo mine >"$foreign"
stray=$(file_of 7 | sed "s/$(hash_of 7)/$(hash_of 99)/")
cp "$(file_of 7)" "$stray"
ctl gc >"$tmp/out" || fail "gc: status $?"
[ -e "$(file_of 7)" ] && [ -e "$(file_of 8)" ] || fail "gc removed a page: $(cat "$tmp/out")"
assert_eq "the foreign file" mine "$(cat "$foreign")"
[ ! -e "$stray" ] || fail "gc left $stray: $(cat "$tmp/out")"
right 7 "after gc"

# A file that cannot be removed.
if chattr +i "$(file_of 8)" 2>/dev/null; then
	stuck=$(file_of 8)
	rm "$(page 8)" || fail "unlink of a page whose file cannot be removed"
	[ ! -e "$(page 8)" ] || fail "it is still shown"
	fill 8 8
	right 8 "stored beside the file that cannot be removed"
	chattr -i "$stuck"
else
	echo "no chattr +i here: the undeletable file was not tried"
fi

# The catalog is cut under the running daemon: it serves and stores, and a restart finds everything.
catalog=$(find "$cache" -name 'data.mdb' | head -n 1)
[ -n "$catalog" ] || catalog=$(find "$cache" -maxdepth 2 -name '*.mdb' | head -n 1)
[ -n "$catalog" ] || fail "no catalog found: $(ls -R "$cache" | head -n 30)"
truncate -s 4096 "$catalog"
fill 20 24
for i in 1 7 9 10 11 12 20 24; do
	right $i "the catalog was cut"
done
ctl evict --memory >/dev/null || fail "evict --memory: status $?"
right 9 "out of memory, the catalog was cut"
stop_daemon || [ $? = 3 ] || fail "the daemon ended with status $? after its catalog was cut"

found_again()
{
	[ "$(stat_of rebuilding)" = 0 ] && for i in 1 7 9 10 11 12 20 24; do
		[ -e "$(page "$i")" ] || return 1
	done
}

# all_right WHAT
all_right()
{
	wait_until 20 found_again || fail "$1: not all pages are found again: $(ls "$mnt/sp")"
	for i in 1 7 9 10 11 12 20 24; do
		right $i "$1"
	done
	assert_eq "$1: the foreign file" mine "$(cat "$foreign")"
}
mount_cache || fail "does not start after its catalog was cut: $(cat "$daemon_log")"
all_right "a cut catalog"
stop_daemon || fail "the daemon ended with status $?"

# No catalog, and a catalog of garbage.
rm -f "$catalog" "$(dirname "$catalog")/lock.mdb"
mount_cache || fail "does not start without a catalog: $(cat "$daemon_log")"
all_right "no catalog"
stop_daemon || fail "the daemon ended with status $?"
head -c 1000000 /dev/urandom >"$catalog"
mount_cache || fail "does not start with a catalog of garbage: $(cat "$daemon_log")"
all_right "a catalog of garbage"
kill_daemon

# After kill -9 the pool is there. A slot table that cannot be believed is refused with the remedy, and CACHEDIR stays as
# it is; with --discard-pool the pages come from disk.
uuid=$(grep -o '[0-9a-f-]\{32,36\}' "$cache/.hicachefs" | head -n 1)
find_slots()
{
	_dashed=$(echo "$uuid" | tr -d - | sed 's/^\(.\{8\}\)\(.\{4\}\)\(.\{4\}\)\(.\{4\}\)/\1-\2-\3-\4-/')
	for slots in "/run/hicachefs/$_dashed/slots" "/dev/shm/hicachefs-$_dashed/slots"; do
		[ ! -e "$slots" ] || return 0
	done
	fail "no slot table of the cache $uuid is left after kill -9"
}

# cache_sum DIRECTORY
cache_sum()
{
	(cd "$cache" && find "$1" -type f -exec sha256sum {} + | sort)
}

# refused PATTERN WHAT DIRECTORY: nothing below it is changed.
refused()
{
	before=$(cache_sum "$3")
	expect_error "$1" "$hicachefs_bin" -f -o pool_size=64M,disk_size=1G,max_page_bytes=2M "$cache" "$mnt"
	[ "$before" = "$(cache_sum "$3")" ] || fail "$2: CACHEDIR was changed"
}
find_slots
printf '\377' | dd of="$slots" bs=1 seek=8 conv=notrunc 2>/dev/null
refused 'newer version.*--discard-pool' "a newer slot table" pages
head -c 4096 /dev/urandom | dd of="$slots" conv=notrunc 2>/dev/null
refused 'damaged.*--discard-pool' "a slot table of garbage" pages
mount_cache --discard-pool || fail "does not start with --discard-pool: $(cat "$daemon_log")"
all_right "a pool that was dropped"
assert_eq "adopted out of a dropped pool" 0 "$(stat_of adopted)"

# Rows of garbage behind a good header: dropped one by one.
kill_daemon
find_slots
head -c 200000 /dev/urandom | dd of="$slots" bs=4096 seek=16 conv=notrunc 2>/dev/null
mount_cache || fail "does not start with rows of garbage: $(cat "$daemon_log")"
all_right "rows of garbage"
stop_daemon || fail "the daemon ended with status $?"

# A cache of a newer version is not touched.
cp "$cache/.hicachefs" "$tmp/identity"
sed -i '1s/^hicachefs [0-9]*/hicachefs 99/' "$cache/.hicachefs"
refused 'newer hicachefs' "a newer cache" .
cp "$tmp/identity" "$cache/.hicachefs"
mount_cache || fail "the last start: $(cat "$daemon_log")"
all_right "the last start"
stop_daemon || fail "the daemon ended with status $?"
