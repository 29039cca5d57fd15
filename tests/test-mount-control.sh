#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Commands of .hicache/control about pages, and .hicache/prefetch: what they answer, and what they do.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse

mnt=$tmp/mnt
chmod 755 "$tmp"
start_daemon "$tmp/cache" "$mnt" -o pool_size=64M -o max_page_bytes=4M -o passthrough=off || fail "the daemon did not start"

# command LINE: its answer.
command_of()
{
	exec 9<>"$mnt/.hicache/control" || return 1
	printf '%s\n' "$1" >&9
	timeout 60 cat <&9
	exec 9>&-
}
# value NAME: of the last answer.
value()
{
	printf '%s\n' "$answer" | awk -v name="$1" '$1 == name { print $2 }'
}
run()
{
	answer=$(command_of "$1")
	[ "$(printf '%s\n' "$answer" | tail -n 1)" = ok ] || fail "$1: $answer"
}
refused()
{
	answer=$(command_of "$1")
	printf '%s\n' "$answer" | tail -n 1 | grep -q "^error .*$2" || fail "$1: no error that says \"$2\": $answer"
}
stat_of()
{
	awk -v name="$1" '$1 == name { print $2 }' "$mnt/.hicache/stats"
}
hash_of()
{
	printf '%s' "$1" | sha256sum | cut -c1-64
}

mkdir "$mnt/kv" "$mnt/kv/a b"
i=0
while [ $i -lt 20 ]; do
	head -c 1000000 /dev/urandom >"$tmp/$i"
	cp "$tmp/$i" "$mnt/kv/$(hash_of $i).bin"
	i=$((i + 1))
done
cp "$tmp/0" "$mnt/kv/a b/$(hash_of x).bin"
echo config >"$mnt/kv/config.json"

# Pins: what is pinned stays when everything is evicted.
run "sync"
run "pin kv/$(hash_of 3).bin kv/a%20b"
assert_eq "pinned" 2 "$(value pinned)"
run "pin $mnt/kv/$(hash_of 4).bin"
assert_eq "pinned by its path outside" 1 "$(value pinned)"
run "pin kv/$(hash_of 3).bin kv/absent kv/config.json"
assert_eq "pinned twice" 1 "$(value pinned)"
assert_eq "missing" 2 "$(printf '%s\n' "$answer" | grep -c '^missing kv/')"
printf '%s\n' "$answer" | grep -q '^missing kv/config.json: .*ordinary file' || fail "config.json: $answer"
refused "pin" "path or a key"
refused "pin kv/%zz" "%XX"
run "evict memory"
assert_eq "kept in memory" 3 "$(value kept)"
run "evict kv"
assert_eq "kept by evict" 3 "$(value kept)"
assert_eq "what is left" "$(printf '%s.bin\n' "$(hash_of 3)" "$(hash_of 4)" | sort)
a b
config.json" "$(ls "$mnt/kv" | LC_ALL=C sort)"
cmp "$tmp/3" "$mnt/kv/$(hash_of 3).bin" || fail "a pinned page differs"
run "unpin kv"
assert_eq "unpinned" 3 "$(value unpinned)"
run "evict kv"
assert_eq "kept without pins" 0 "$(value kept)"
assert_eq "nothing is left but files" "a b
config.json" "$(ls "$mnt/kv" | LC_ALL=C sort)"

# Prefetch: by path, by directory, by key, by lines in whatever pieces.
i=0
while [ $i -lt 20 ]; do
	cp "$tmp/$i" "$mnt/kv/$(hash_of $i).bin"
	i=$((i + 1))
done
cp "$tmp/0" "$mnt/kv/a b/$(hash_of x).bin"
run "sync"
run "evict memory"
assert_eq "evicted from memory" 21 "$(value evicted)"
assert_eq "pages in memory" 0 "$(stat_of n_pages_memory)"
run "prefetch kv/$(hash_of 0).bin kv/a%20b kv/absent"
assert_eq "loaded" 2 "$(value loaded)"
assert_eq "pages in memory after two" 2 "$(stat_of n_pages_memory)"
run "prefetch kv/$(hash_of 0).bin"
assert_eq "resident" 1 "$(value resident)"
series=$(awk 'NR == 1 { print $1 }' "$mnt/.hicache/spaces/kv/series")
run "prefetch $series-$(hash_of 1)"
assert_eq "loaded by key" 1 "$(value loaded)"
{
	printf 'kv/%s.bin\nkv/ab' "$(hash_of 2)"
	printf 'sent\nkv/%s.bin\nkv/a b/%s.b' "$(hash_of 3)" "$(hash_of x)"
	printf 'in\n%s-%s' "$series" "$(hash_of 4)"
} | dd bs=50 of="$mnt/.hicache/prefetch" conv=notrunc 2>"$tmp/dd" || fail "prefetch by lines: $(cat "$tmp/dd")"
prefetched()
{
	grep -qx "queued 0" "$mnt/.hicache/prefetch" && [ "$(stat_of n_pages_memory)" = "$1" ]
}
wait_until 20 prefetched 6 || fail "prefetched by lines: $(cat "$mnt/.hicache/prefetch")"
assert_eq "bad lines" "bad_lines 1" "$(grep bad_lines "$mnt/.hicache/prefetch")"
exec 9<>"$mnt/.hicache/prefetch"
printf 'kv/nothing\nkv\n' >&9 || fail "lines for prefetch"
answer=$(timeout 60 cat <&9 2>&1) || fail "reading the answer: status $?, $answer"
exec 9>&-
assert_eq "what is answered" "missing kv/nothing: there is no such page or directory" "$answer"
wait_until 20 prefetched 21 || fail "a directory: $(cat "$mnt/.hicache/prefetch")"
[ "$(stat_of prefetched)" = 21 ] || fail "counted: $(stat_of prefetched)"
cmp "$tmp/7" "$mnt/kv/$(hash_of 7).bin" || fail "a prefetched page differs"
refused "prefetch" "path or a key"

# A series is declared once.
spec="model=org/m attention=mha layers=2 kv_heads=2 head_dim=64 dtype=fp16 page_tokens=64 layout=page_unified"
refused "series set kv $series model=x" "."
refused "series set nospace $series $spec" "no such space"
refused "series set kv 4000 $spec" "no such series"
refused "series" "series set SPACE SERIES KVSPEC"
run "series set kv $series $spec"
grep -q "^$series .* model=org/m .*layers=2" "$mnt/.hicache/spaces/kv/series" || fail "series: $(cat "$mnt/.hicache/spaces/kv/series")"
run "series set kv $series $spec"
refused "series set kv $series $(echo "$spec" | sed s/fp16/bf16/)" "declared already"
(echo "$series $spec" >"$mnt/.hicache/spaces/kv/series") || fail "the same declaration through the file"
(echo "$series $(echo "$spec" | sed s/layers=2/layers=3/)" >"$mnt/.hicache/spaces/kv/series") 2>/dev/null && fail "another declaration was taken"

# Draining: what is there can be read, nothing new comes, all is on disk.
cp "$tmp/0" "$mnt/kv/$(hash_of 50).bin"
exec 8>"$mnt/kv/$(hash_of 51).tmp"
echo begun >&8
refused "drain 1" "1 files are still being written"
assert_eq "bodies" 1 "$(value bodies)"
cp "$tmp/1" "$mnt/kv/$(hash_of 52).bin" 2>"$tmp/err" && fail "a new page was taken while draining"
grep -qi "no space" "$tmp/err" || fail "draining: $(cat "$tmp/err")"
echo more >&8 || fail "what was begun cannot be written while draining"
cmp "$tmp/0" "$mnt/kv/$(hash_of 50).bin" || fail "a page cannot be read while draining"
exec 8>&-
rm "$mnt/kv/$(hash_of 51).tmp"
run "drain"
assert_eq "left" 0 "$(value left)"
assert_eq "dirty" 0 "$(stat_of n_dirty)"
refused "drain soon" "seconds"
run "drain end"
cp "$tmp/1" "$mnt/kv/$(hash_of 52).bin" || fail "no new page after the drain"
stop_daemon || fail "the daemon ended with status $?"
