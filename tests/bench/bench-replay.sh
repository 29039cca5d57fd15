#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Block hit ratios of a public trace at four capacities, through a node with real pages that are read back and compared.
# The figures are those of LRU that evicts leaves first; they are exact, so this fails when one is off by more than
# 0.0005. usage: bench-replay.sh [PAGE-BYTES]; HICACHE_TRACES names the folder of the traces.
set -u
: "${top_srcdir:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${top_builddir:=$top_srcdir}"
ctl=${HICACHECTL_BIN:-$top_builddir/src/tool/hicachectl}
traces=${HICACHE_TRACES:-$top_srcdir/../shared/traces}
trace=$traces/mooncake-conversation.jsonl.xz
[ -x "$ctl" ] || {
	echo "bench-replay: $ctl is not built: make first" >&2
	exit 1
}
[ -r "$trace" ] || {
	echo "not measured: $trace is missing (HICACHE_TRACES names the folder of the traces)"
	exit 0
}

# field NAME <JSON
field()
{
	sed -n "s/^ *\"$1\": \"\\{0,1\\}\\([^\",]*\\)\"\\{0,1\\},\\{0,1\\}\$/\\1/p"
}

bad=0
echo "mooncake-conversation, pages of ${1:-4096} bytes"
echo "capacity      pages  block_hit_ratio  expected   wrong pages  seconds"
for capacity in 1:0.0544 5:0.2022 10:0.2882 25:0.3683; do
	percent=${capacity%%:*}
	want=${capacity##*:}
	begin=$(date +%s)
	out=$("$ctl" replay --capacity-percent "$percent" --page-bytes "${1:-4096}" --json "$trace") || {
		echo "bench-replay: replay at $percent % failed" >&2
		exit 1
	}
	got=$(printf '%s\n' "$out" | field block_hit_ratio)
	wrong=$(printf '%s\n' "$out" | field different)
	printf '%6s %%  %9s  %15s  %8s  %12s  %7s\n' "$percent" "$(printf '%s\n' "$out" | field capacity_pages)" \
		"$got" "$want" "$wrong" "$(($(date +%s) - begin))"
	[ "$wrong" = 0 ] &&
		awk -v got="$got" -v want="$want" 'BEGIN { d = got - want; exit !(got != "" && d <= 0.0005 && d >= -0.0005) }' || {
		echo "bench-replay: $percent %: expected $want +- 0.0005 and no wrong page" >&2
		bad=1
	}
done
exit $bad
