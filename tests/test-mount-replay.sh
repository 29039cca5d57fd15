#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The beginning of a public request trace through the mount, in an engine's order of calls: what stays in a full pool is
# what evicting least recently used leaves first would keep. All of the trace: tests/bench/bench-mount-replay.sh.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
requires xz

traces=${HICACHE_TRACES:-$top_srcdir/../shared/traces}
trace=$traces/mooncake-conversation.jsonl.xz
[ -f "$trace" ] || skip "no traces: $trace is missing (HICACHE_TRACES names their folder)"
page=65536

# replay PAGES REQUESTS PROCESSES
replay()
{
	start_daemon "$tmp/cache" "$tmp/mnt" -o \
		"pool_size=$(($1 * page)),max_page_bytes=$page,disk_size=0,high=100%,low=100%" || fail "the daemon did not start"
	mkdir "$tmp/mnt/s"
	timeout "${HC_REPLAY_SECONDS:-240}" "$top_builddir/tests/fuse-replay" "$trace" "$tmp/mnt/s" "$1" $page "$2" "$3" ||
		fail "fuse-replay $*: status $?; $(grep -E 'evicted|no_space|n_pages' "$tmp/mnt/.hicache/stats" | tr '\n' ' ')"
	stop_daemon || fail "the daemon ended with status $?"
	rm -rf "$tmp/cache"
}

if [ "${HC_REPLAY_ALL-}" ]; then
	replay 8704 0 0
	replay 17408 0 0
	replay 8704 0 16
else
	# About 5 % of the unique blocks of this part.
	replay 512 "${HC_REPLAY_REQUESTS:-600}" 0
	replay 512 "${HC_REPLAY_REQUESTS:-600}" 8
fi
