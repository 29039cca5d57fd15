#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hicachectl on pages: ls, stat, prefetch, pin, unpin, series, drain, and the tables of names that are long or strange.
# Method: a mount with pages of three sizes in two spaces; what each command says against what the mount does. Without
# passthrough, so that pages are in the pool.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
requires python3

mnt=$tmp/mnt
cache=$tmp/cache
start_daemon "$cache" "$mnt" -o pool_size=64M,max_page_bytes=4M,passthrough=off || fail "the daemon does not start"
long="a space with a name that is longer than any column was made for, and äöü"
mkdir "$mnt/s" "$mnt/s/sub" "$mnt/$long"

name_of()
{
	printf '%064x.bin' "$((0xbeef0 + $1))"
}

stat_of()
{
	sed -n "s/^$1 //p" "$mnt/.hicache/stats"
}

for i in 1 2 3; do
	head -c ${i}00000 /dev/urandom >"$tmp/page-$i"
	cp "$tmp/page-$i" "$mnt/s/$(name_of $i)" || fail "page $i"
done
cp "$tmp/page-1" "$mnt/s/sub/$(name_of 4)" && cp "$tmp/page-1" "$mnt/$long/$(name_of 5)" || fail "page"
echo '{}' >"$mnt/s/config.json"
ctl sync || fail "sync: status $?"

# Columns stay in line, whatever the names.
ctl status >"$tmp/out" || fail "status: $?"
sed -n '/^space /,$p' "$tmp/out" >"$tmp/spaces"
assert_eq "rows of spaces" 4 "$(wc -l <"$tmp/spaces")"
python3 - "$tmp/spaces" <<'END' || fail "the table of spaces is out of line: $(cat "$tmp/spaces")"
import sys
lines = open(sys.argv[1], encoding="utf-8").read().splitlines()
ends = {len(line) for line in lines}
head = lines[0].index("used") + 4
sys.exit(len(ends) != 1 or any(line[head - 1] == " " or line[head] != " " for line in lines))
END

# ls
assert_eq "ls" "$(printf '%s/\n' "$long" s)" "$(ctl ls)"
assert_eq "ls of a space" "$(printf '%s\n' "$(name_of 1)" "$(name_of 2)" "$(name_of 3)" config.json sub/)" "$(ctl ls s)"
assert_eq "ls -r" "$(printf '%s\n' sub/ config.json "$(name_of 3)" "$(name_of 2)" "$(name_of 1)")" "$(ctl ls -r "$mnt/s")"
assert_eq "ls of two, with what they are in" "$(printf '%s\n' "s/sub/$(name_of 4)" "s/$(name_of 1)")" \
	"$(ctl ls s/sub s | grep -e "$(name_of 4)" -e "$(name_of 1)" | sort -r)"
assert_eq "ls -R" 5 "$(ctl ls -R | grep -c '\.bin$')"
assert_eq "control files in ls -R" 0 "$(ctl ls -R | grep -c hicache/)"
assert_eq "control files that are asked for" 1 "$(ctl ls .hicache | grep -cx version)"
assert_eq "ls --sort size" "$(printf '%s\n' "$(name_of 3)" "$(name_of 2)" "$(name_of 1)")" "$(ctl ls --sort size s | head -n 3)"
ctl ls -l s >"$tmp/out" || fail "ls -l: status $?"
head -n 1 "$tmp/out" | grep -Eq '^kind +size +tier +hits +depth +age +pinned +series +name$' || fail "ls -l: $(cat "$tmp/out")"
grep -Eq "^dir .* sub/\$" "$tmp/out" && grep -Eq "^file +3 .* config.json\$" "$tmp/out" || fail "ls -l: $(cat "$tmp/out")"
assert_eq "pages in ls -l" 3 "$(grep -c '^page ' "$tmp/out")"
ctl ls --json s >"$tmp/json" || fail "ls --json: status $?"
python3 - "$tmp/json" <<'END' || fail "ls --json: $(cat "$tmp/json")"
import json, sys
rows = {r["name"]: r for r in json.load(open(sys.argv[1]))}
sys.exit(len(rows) != 5 or rows["config.json"]["kind"] != "file" or rows["sub/"]["kind"] != "dir"
         or sorted(r["size_bytes"] for n, r in rows.items() if n.endswith(".bin")) != [100000, 200000, 300000])
END
expect_error 'nothere: No such file' "$hicachectl_bin" -m "$mnt" ls nothere
expect_error 'ls: --sort colour: name, size, age, hits or depth' "$hicachectl_bin" -m "$mnt" ls --sort colour
expect_error 'ls: --tier tape: memory or disk' "$hicachectl_bin" -m "$mnt" ls --tier tape
expect_error 'not inside' "$hicachectl_bin" -m "$mnt" ls /etc
# A name that would move the cursor does not.
printf x >"$mnt/s/$(printf 'e\033[2Jvil')" || fail "a name with an escape"
[ "$(ctl ls s | grep -c "$(printf '\033')")" = 0 ] || fail "an escape sequence is printed"
rm "$mnt/s/$(printf 'e\033[2Jvil')"

# stat, by path and by key.
ctl stat "s/$(name_of 2)" >"$tmp/out" || fail "stat: status $?"
grep -q "^  size  *200000 (195K)\$" "$tmp/out" || fail "stat: $(cat "$tmp/out")"
series=$(ctl series s | awk '$1 == "s" && $3 == "{64}.bin" { print $2 }')
[ -n "$series" ] || fail "series: $(ctl series s)"
key=$series-$(name_of 2 | cut -c1-64)
ctl stat --json "$key" >"$tmp/json" || fail "stat of a key: status $?"
python3 - "$tmp/json" "$mnt/s/$(name_of 2)" <<'END' || fail "stat --json: $(cat "$tmp/json")"
import json, sys
one, = json.load(open(sys.argv[1]))
sys.exit(one["path"] != sys.argv[2] or one["size_bytes"] != 200000 or one["mode"] != "0644" or "hicache" not in one)
END
# What only the cache knows of a page: in ls, as filters, in stat.
ctl evict --memory "s/$(name_of 3)" >"$tmp/out" || fail "evict --memory: $(cat "$tmp/out")"
ctl pin "s/$(name_of 1)" >"$tmp/out" || fail "pin: $(cat "$tmp/out")"
cmp "$tmp/page-1" "$mnt/s/$(name_of 1)" || fail "page 1"
ctl ls -l s >"$tmp/out" || fail "ls -l: status $?"
grep -Eq "^page +98K +memory\+disk +[1-9][0-9]* +[0-9]+ +.* +yes +$series +$(name_of 1)\$" "$tmp/out" || fail "ls -l of a pinned page: $(cat "$tmp/out")"
grep -Eq "^page +293K +disk +.* - +$series +$(name_of 3)\$" "$tmp/out" || fail "ls -l of a page on disk: $(cat "$tmp/out")"
assert_eq "ls --tier memory" "$(printf '%s\n' "$(name_of 1)" "$(name_of 2)")" "$(ctl ls --tier memory s)"
assert_eq "ls --tier disk" 3 "$(ctl ls --tier disk s | wc -l)"
assert_eq "ls --series" "$(printf '%s\n' "$(name_of 1)" "$(name_of 2)" "$(name_of 3)")" "$(ctl ls --series "$series" s)"
assert_eq "ls of another series" "" "$(ctl ls --series 9999 s)"
assert_eq "ls --sort hits" "$(name_of 1)" "$(ctl ls --sort hits --tier memory s | head -n 1)"
ctl stat --json "$key" "s/$(name_of 1)" s >"$tmp/json" || fail "stat: status $?"
python3 - "$tmp/json" "$key" <<'END' || fail "stat --json: $(cat "$tmp/json")"
import json, sys
two, one, space = json.load(open(sys.argv[1]))
sys.exit(two["hicache"]["key"] != sys.argv[2] or two["hicache"]["tier"] != "memory+disk" or two["hicache"]["pinned"] != "0"
         or one["hicache"]["pinned"] != "1" or two["kind"] != "page" or space["kind"] != "dir" or space["hicache"]["pages"] != "4")
END
ctl unpin s >"$tmp/out" || fail "unpin"
expect_error 'there is no such series' "$hicachectl_bin" -m "$mnt" stat "999-$(name_of 2 | cut -c1-64)"
expect_error 's/nothere: No such file' "$hicachectl_bin" -m "$mnt" stat s/nothere
expect_error 'stat: a path or a key is wanted' "$hicachectl_bin" -m "$mnt" stat

# prefetch: by path, key, directory, and from standard input.
ctl evict --memory >"$tmp/out" || fail "evict --memory: $(cat "$tmp/out")"
assert_eq "pages in memory after evict --memory" 0 "$(stat_of n_pages_memory)"
assert_eq "prefetch" "loaded 2 pages, 0 in memory already" "$(ctl prefetch "s/$(name_of 1)" "$key")"
assert_eq "pages in memory" 2 "$(stat_of n_pages_memory)"
assert_eq "prefetch --stdin" "loaded 2 pages, 1 in memory already" \
	"$(printf '%s\n' "s/$(name_of 2)" "" "$mnt/s/sub" "$long/$(name_of 5)" | ctl prefetch --stdin)"
assert_eq "prefetch of everything" "loaded 1 page, 0 in memory already" "$(ctl prefetch "$mnt")"
for i in 1 2 3; do
	cmp "$tmp/page-$i" "$mnt/s/$(name_of $i)" || fail "page $i after prefetch"
done
expect_error 's/nothere: there is no such page' "$hicachectl_bin" -m "$mnt" prefetch s/nothere
expect_error 'a path or a key is wanted, or --stdin' "$hicachectl_bin" -m "$mnt" prefetch
printf 'a\000b\n' | ctl prefetch --stdin 2>"$tmp/out" && fail "a NUL byte"
grep -q 'has a NUL byte' "$tmp/out" || fail "a NUL byte: $(cat "$tmp/out")"

# Pins.
assert_eq "pin" "pinned 1 page" "$(ctl pin "s/$(name_of 1)")"
assert_eq "pin of a directory" "pinned 1 page" "$(ctl pin s/sub)"
ctl evict >"$tmp/out" || fail "evict: $(cat "$tmp/out")"
grep -q '^kept 2 pages' "$tmp/out" || fail "evict of pinned pages: $(cat "$tmp/out")"
assert_eq "pages left" 2 "$(stat_of n_pages)"
cmp "$tmp/page-1" "$mnt/s/$(name_of 1)" || fail "a pinned page"
assert_eq "unpin of everything" "unpinned 2 pages" "$(ctl unpin "$mnt")"
expect_error 'ordinary file' "$hicachectl_bin" -m "$mnt" pin s/config.json
ctl evict >"$tmp/out" || fail "evict"
assert_eq "pages after unpin" 0 "$(stat_of n_pages)"

# series
spec="model=example/tiny attention=mha layers=2 kv_heads=2 head_dim=64 dtype=fp16 page_tokens=4 layout=page_unified"
assert_eq "an undeclared series" undeclared "$(ctl series s | awk -v id="$series" '$2 == id { print $4 }')"
# shellcheck disable=SC2086
ctl series set s "$series" $spec || fail "series set: status $?"
ctl series s | grep -q "model=example/tiny .*layout=page_unified" || fail "series: $(ctl series s)"
ctl series --json >"$tmp/json" || fail "series --json: status $?"
python3 - "$tmp/json" "$series" <<'END' || fail "series --json: $(cat "$tmp/json")"
import json, sys
rows = json.load(open(sys.argv[1]))
one, = [r for r in rows if r["id"] == int(sys.argv[2])]
sys.exit(one["space"] != "s" or "model=example/tiny" not in one["kvspec"] or not any(r["kvspec"] is None for r in rows))
END
expect_error 'declared already, as something else' "$hicachectl_bin" -m "$mnt" series set s "$series" "$(echo "$spec" | sed 's/layers=2/layers=3/')"
expect_error 'there is no such space' "$hicachectl_bin" -m "$mnt" series nothere
expect_error 'SPACE SERIES KVSPEC are wanted' "$hicachectl_bin" -m "$mnt" series set s
expect_error 'layers' "$hicachectl_bin" -m "$mnt" series set s "$series" model=x layers=many

# drain: what is there is written; new pages are refused until its end.
cp "$tmp/page-1" "$mnt/s/$(name_of 6)" || fail "page 6"
ctl drain --timeout 30 >"$tmp/out" 2>&1 || fail "drain: $(cat "$tmp/out")"
grep -q '^drained: everything is on disk' "$tmp/out" || fail "drain: $(cat "$tmp/out")"
assert_eq "pages not on disk after drain" 0 "$(stat_of n_dirty)"
cp "$tmp/page-1" "$mnt/s/$(name_of 7)" 2>/dev/null && [ -e "$mnt/s/$(name_of 7)" ] && fail "a new page while draining"
assert_eq "draining in stats" 1 "$(stat_of draining)"
grep -qx 'hicache_draining 1' "$mnt/.hicache/metrics" || fail "draining in metrics"
ctl status >"$tmp/out" || fail "status: $(cat "$tmp/out")"
grep -qx 'draining: new pages are refused; hicachectl drain --end' "$tmp/out" || fail "status: $(cat "$tmp/out")"
ctl drain --end || fail "drain --end: status $?"
assert_eq "draining in stats after its end" 0 "$(stat_of draining)"
ctl status >"$tmp/out" || fail "status: $(cat "$tmp/out")"
grep -q draining "$tmp/out" && fail "status after the end: $(cat "$tmp/out")"
absent=$(stat_of fs_page_lookups_absent)
cat "$mnt/s/$(name_of 999999)" 2>/dev/null && fail "a page that is not there was read"
assert_eq "absent page names" $((absent + 1)) "$(stat_of fs_page_lookups_absent)"
cp "$tmp/page-1" "$mnt/s/$(name_of 7)" || fail "a new page after drain --end"
cmp "$tmp/page-1" "$mnt/s/$(name_of 7)" || fail "page 7"
expect_error 'drain: --timeout never' "$hicachectl_bin" -m "$mnt" drain --timeout never
stop_daemon || fail "the daemon ended with status $?"
