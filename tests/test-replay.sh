#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hicachectl replay: hit counts of traces small enough to count by hand, what is refused, and the block hit ratios of a
# public trace against the reference figures of plain LRU. HC_REPLAY_ALL=1 replays all four capacities.
. "${top_srcdir:-.}/tests/functions.sh"

[ -x "$hicachectl_bin" ] || fail "$hicachectl_bin is not built"

# replay ARGUMENT...
replay()
{
	timeout "${HC_REPLAY_SECONDS:-240}" "$hicachectl_bin" replay "$@"
}

# field NAME <JSON
field()
{
	sed -n "s/^ *\"$1\": \"\\{0,1\\}\\([^\",]*\\)\"\\{0,1\\},\\{0,1\\}\$/\\1/p"
}

# Three full blocks each; the fourth id of the first line is of a block that is not full.
cat >"$tmp/t.jsonl" <<END
{"timestamp": 0, "input_length": 1600, "output_length": 5, "hash_ids": [1, 2, 3, 99]}
{"timestamp": 1, "input_length": 1536, "output_length": 5, "hash_ids": [1, 2, 4]}

{"timestamp": 2, "input_length": 1536, "output_length": 5, "hash_ids": [1, 2, 3]}
{"timestamp": 3, "input_length": 100, "output_length": 5, "hash_ids": [7]}
END
# Everything fits: 2 + 3 hits of 9 blocks, 4 unique.
replay --json "$tmp/t.jsonl" >"$tmp/out" || fail "a small trace: status $?"
assert_eq requests 4 "$(field requests <"$tmp/out")"
assert_eq blocks 9 "$(field blocks <"$tmp/out")"
assert_eq "unique blocks" 4 "$(field unique_blocks <"$tmp/out")"
assert_eq capacity 4 "$(field capacity_pages <"$tmp/out")"
assert_eq hits 5 "$(field hits <"$tmp/out")"
assert_eq evicted 0 "$(field evicted <"$tmp/out")"
assert_eq different 0 "$(field different <"$tmp/out")"
# Three pages: 4 takes the place of 3, the oldest leaf; then 3 that of 4: 2 + 2 hits, 2 evicted.
replay --capacity-pages 3 --page-bytes 5000 --json "$tmp/t.jsonl" >"$tmp/out" || fail "three pages: status $?"
assert_eq "hits of three pages" 4 "$(field hits <"$tmp/out")"
assert_eq "evicted of three pages" 2 "$(field evicted <"$tmp/out")"
# One page: only ever the root block.
replay --capacity-pages 1 --json "$tmp/t.jsonl" >"$tmp/out" || fail "one page: status $?"
assert_eq "hits of one page" 2 "$(field hits <"$tmp/out")"
# 50 % of 4 blocks.
replay --capacity-percent 50 "$tmp/t.jsonl" >"$tmp/out" || fail "50 percent: status $?"
grep -q '^capacity  *2 pages of 4096 bytes (50.0 % of the unique blocks)' "$tmp/out" || fail "table: $(cat "$tmp/out")"
grep -q '^block_hit_ratio  0.4444$' "$tmp/out" || fail "ratio of two pages: $(cat "$tmp/out")"

# A bar on a terminal, and only there.
replay "$tmp/t.jsonl" >"$tmp/out" 2>"$tmp/err" || fail "without a terminal: status $?"
assert_eq "standard error without a terminal" "" "$(cat "$tmp/err")"
if command -v script >/dev/null 2>&1; then
	timeout 60 script -qec "'$hicachectl_bin' replay '$tmp/t.jsonl'" /dev/null >"$tmp/out" 2>&1 </dev/null ||
		fail "on a terminal: $(cat "$tmp/out")"
	grep -q '\[[#.]*\]  *[0-9]* %' "$tmp/out" || fail "no bar on a terminal: $(cat "$tmp/out")"
	grep -q '^block_hit_ratio' "$tmp/out" || fail "the answer on a terminal: $(cat "$tmp/out")"
fi

# What is wrong is named.
expect_error '--capacity-pages 0: a number of pages' "$hicachectl_bin" replay --capacity-pages 0 "$tmp/t.jsonl"
assert_eq "status of wrong usage" 2 "$_rc"
expect_error '--capacity-percent 101' "$hicachectl_bin" replay --capacity-percent 101 "$tmp/t.jsonl"
expect_error 'exclude each other' "$hicachectl_bin" replay --capacity-percent 1 --capacity-pages 1 "$tmp/t.jsonl"
expect_error '--page-bytes 1' "$hicachectl_bin" replay --page-bytes 1 "$tmp/t.jsonl"
expect_error 'a trace FILE is missing' "$hicachectl_bin" replay
expect_error 'no page at all' "$hicachectl_bin" replay --capacity-percent 1 "$tmp/t.jsonl"
expect_error "$tmp/none.jsonl: No such file" "$hicachectl_bin" replay "$tmp/none.jsonl"
assert_eq "status of a failure" 1 "$_rc"
bad_line()
{
	{ head -n 1 "$tmp/t.jsonl"; echo "$1"; } >"$tmp/bad.jsonl"
	expect_error "$tmp/bad.jsonl:2: $2" "$hicachectl_bin" replay "$tmp/bad.jsonl"
}
bad_line '{"input_length": 512, "hash_ids": [1' 'this is not JSON'
bad_line '{"hash_ids": [1]}' 'input_length is missing'
bad_line '{"input_length": 512}' 'hash_ids is missing'
bad_line '{"input_length": 5120, "hash_ids": [1]}' '10 full blocks of 512 tokens, but 1 hash_ids'
bad_line '{"input_length": 512, "hash_ids": [-1]}' 'hash_ids\[0\] is not a number'
bad_line '{"input_length": 512, "hash_ids": ["a"]}' 'hash_ids\[0\] is not a number'
bad_line "$(printf '%s' '{"input_length": 512, "hash_ids": [1]} x')" 'this is not JSON'
# What has no end, or no lines.
expect_error '/dev/zero: this is no trace: a file or a pipe is wanted' "$hicachectl_bin" replay /dev/zero
expect_error "$tmp: this is no trace" "$hicachectl_bin" replay "$tmp"
expect_error '/dev/stdin:1: the line is longer than 32 MiB' \
	sh -c "head -c 40000000 /dev/zero | tr '\\0' 1 | '$hicachectl_bin' replay /dev/stdin"
{ head -n 1 "$tmp/t.jsonl"; printf 'a\000b\n'; } >"$tmp/nul.jsonl"
expect_error "$tmp/nul.jsonl:2: this is no text: there is a NUL byte" "$hicachectl_bin" replay "$tmp/nul.jsonl"
# A pipe is a file like another.
assert_eq "hits of a pipe" 5 "$(replay --json /dev/stdin <"$tmp/t.jsonl" | field hits)"
: >"$tmp/empty.jsonl"
expect_error 'no request has a full block' "$hicachectl_bin" replay "$tmp/empty.jsonl"

if command -v xz >/dev/null 2>&1; then
	xz -k "$tmp/t.jsonl"
	replay --json "$tmp/t.jsonl.xz" >"$tmp/out" || fail "an xz file: status $?"
	assert_eq "hits of an xz file" 5 "$(field hits <"$tmp/out")"
	echo nonsense >"$tmp/bad.jsonl.xz"
	expect_error 'bad.jsonl.xz: xz could not unpack it' "$hicachectl_bin" replay "$tmp/bad.jsonl.xz"
fi

# The reference figures, to within 0.0005.
traces=${HICACHE_TRACES:-$top_srcdir/../shared/traces}
trace=$traces/mooncake-conversation.jsonl.xz
[ -r "$trace" ] || skip "no trace: mooncake-conversation.jsonl.xz is not in $traces (HICACHE_TRACES names the folder)"
requires xz
capacities='1:1708:0.0544 10:17089:0.2882'
[ -z "${HC_REPLAY_ALL-}" ] || capacities="$capacities 5:8544:0.2022 25:42724:0.3683"
for capacity in $capacities; do
	percent=${capacity%%:*}
	want=${capacity##*:}
	pages=${capacity#*:}
	pages=${pages%:*}
	replay --capacity-percent "$percent" --json "$trace" >"$tmp/out" || fail "$percent %: status $?"
	assert_eq "pages at $percent %" "$pages" "$(field capacity_pages <"$tmp/out")"
	assert_eq "wrong pages at $percent %" 0 "$(field different <"$tmp/out")"
	got=$(field block_hit_ratio <"$tmp/out")
	awk -v got="$got" -v want="$want" 'BEGIN { d = got - want; exit !(d <= 0.0005 && d >= -0.0005) }' ||
		fail "block hit ratio at $percent %: expected $want, got $got"
	echo "$percent %: $got"
done
