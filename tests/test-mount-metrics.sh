#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# .hicache/metrics: well-formed for a strict reader, whatever spaces are called; it counts what happened,
# and a reader finds no counter that fell.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
requires python3

mnt=$tmp/mnt
chmod 755 "$tmp"
start_daemon "$tmp/cache" "$mnt" -o pool_size=32M -o max_page_bytes=4M -o passthrough=off || fail "the daemon did not start"
metrics=$mnt/.hicache/metrics
# of SAMPLE: its value in the last scrape.
of()
{
	name=$1 awk 'index($0, ENVIRON["name"] " ") == 1 { print $NF }' "$tmp/after"
}
scrape()
{
	cat "$metrics" >"$tmp/after" || fail "reading the metrics"
}
hash_of()
{
	printf '%s' "$1" | sha256sum | cut -c1-64
}

mkdir "$mnt/plain" "$mnt/qu\"ote" "$mnt/back\\slash" "$mnt/umläut" "$mnt/$(printf 'new\nline')" "$mnt/$(printf 'bad\377byte')" "$mnt/a b{c}=d,e"
cat "$metrics" >"$tmp/before" || fail "reading the metrics"
i=0
while [ $i -lt 10 ]; do
	head -c 500000 /dev/urandom >"$mnt/plain/$(hash_of $i).bin"
	i=$((i + 1))
done
cp "$mnt/plain/$(hash_of 0).bin" "$mnt/qu\"ote/$(hash_of 0).bin"
ctl sync >/dev/null || fail "sync"
scrape
assert_eq "pages in memory" 11 "$(of 'hicache_pages{tier="memory"}')"
assert_eq "pages on disk" 11 "$(of 'hicache_pages{tier="disk"}')"
assert_eq "pages of a space in memory" 10 "$(of 'hicache_space_pages{space="plain",tier="memory"}')"
assert_eq "bytes of a space on disk" 5000000 "$(of 'hicache_space_page_bytes{space="plain",tier="disk"}')"
assert_eq "a quote in a name" 1 "$(of 'hicache_space_pages{space="qu\"ote",tier="disk"}')"
[ "$(of hicache_backup_seconds_count)" -ge 1 ] || fail "no backups"
[ "$(of hicache_lookup_seconds_count)" -gt 0 ] || fail "no look-ups"
[ "$(of hicache_write_seconds_count)" -ge 50 ] || fail "writes: $(of hicache_write_seconds_count)"
ctl evict --memory >/dev/null || fail "evict --memory"
cat "$mnt/plain/$(hash_of 3).bin" "$mnt/plain/$(hash_of 4).bin" >/dev/null
cat "$mnt/plain/$(hash_of 4).bin" >/dev/null
scrape
[ "$(of hicache_promotion_seconds_count)" -ge 2 ] || fail "promotions: $(of hicache_promotion_seconds_count)"
[ "$(of 'hicache_space_hits_total{space="plain",tier="disk"}')" -ge 1 ] || fail "hits on disk"
[ "$(of 'hicache_space_hits_total{space="plain",tier="memory"}')" -ge 1 ] || fail "hits in memory"
[ "$(of 'hicache_evictions_total{tier="memory"}')" -ge 11 ] || fail "evictions: $(of 'hicache_evictions_total{tier="memory"}')"
[ "$(of hicache_open_seconds_count)" -ge 3 ] || fail "opens"
rm -r "$mnt/plain"
scrape
[ "$(of 'hicache_removals_total{reason="unlink"}')" -ge 10 ] || fail "unlinks"
sed '/space="plain"/d' "$tmp/before" >"$tmp/earlier"
python3 "$top_srcdir/tests/check-metrics.py" "$tmp/earlier" "$tmp/after" || fail "the metrics are not well-formed"
# Each counter of stats is there.
for name in $(awk '$1 ~ /^fs_(opens|lookups|second_writers|stale_opens|passthrough_opens)$/ { print $1 }' "$mnt/.hicache/stats"); do
	grep -q "^hicache_${name}_total " "$tmp/after" || fail "$name is missing"
done
# The checker finds what is wrong.
for wrong in 's/^# HELP hicache_pages .*//' 's/^hicache_lookup_seconds_count .*/hicache_lookup_seconds_count 1000000/' \
	's/^hicache_fs_opens_total .*/hicache_fs_opens_total -5/' 's/{tier="memory"}/{tier=memory}/'; do
	sed "$wrong" "$tmp/after" >"$tmp/wrong"
	python3 "$top_srcdir/tests/check-metrics.py" "$tmp/earlier" "$tmp/wrong" >/dev/null 2>&1 && fail "the checker accepts $wrong"
done
stop_daemon || fail "the daemon ended with status $?"
