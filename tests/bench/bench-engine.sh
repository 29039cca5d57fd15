#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The calls of SGLang's file backend on two mounts (passthrough=auto and off), on the file system below them and on tmpfs;
# then, with every read from disk 5 ms slower, on a mount with and one without read-ahead. Files lie below $TMPDIR, else
# /var/tmp: on a disk, not on tmpfs. usage: bench-engine.sh [ROUNDS]
: "${TMPDIR:=/var/tmp}"
export TMPDIR
. "${top_srcdir:-.}/tests/functions.sh"
[ -c /dev/fuse ] && [ "$(id -u)" = 0 ] || {
	echo "not run: needs root and /dev/fuse"
	exit 0
}
rounds=${1:-5}
bench=$top_builddir/tests/bench/bench-engine

# mount_one NAME OPTIONS: on $tmp/NAME
mount_one()
{
	start_daemon "$tmp/cache-$1" "$tmp/$1" -o "pool_size=3G,dirty=100%,disk_size=20G,min_free=0,$2" ||
		fail "the daemon did not start"
	mkdir "$tmp/$1/s"
	grep -h 'passthrough' "$daemon_log" | sed "s/^hicachefs: /$1: /"
}

unmount_tmpfs()
{
	umount "$tmp/tmpfs" 2>/dev/null
}

mkdir "$tmp/ext4" "$tmp/tmpfs"
mount -t tmpfs -o size=2G bench-engine "$tmp/tmpfs" && cleanup_fn unmount_tmpfs
mount_one auto passthrough=auto
mount_one off passthrough=off
for procs in 1 4; do
	for size in 1048576 4718592 8388608; do
		pages=$((134217728 / size / (1 + procs / 4)))
		"$bench" "$hicachectl_bin" $size $procs $pages "$rounds" "@auto=$tmp/auto/s" "@off=$tmp/off/s" \
			"ext4=$tmp/ext4" "tmpfs=$tmp/tmpfs" || fail "bench-engine: status $?"
	done
done
stop_daemon "$tmp/auto"
stop_daemon "$tmp/off"

HICACHE_STORE_DELAY_MS=5
export HICACHE_STORE_DELAY_MS
mount_one ahead passthrough=auto
mount_one no-ahead passthrough=auto,read_ahead=0
mount_one ahead-off passthrough=off
echo "every read of a page 5 ms slower; aim of ahead / no-ahead: 4"
for size in 1048576 4718592 8388608; do
	"$bench" "$hicachectl_bin" $size 1 $((134217728 / size)) "$rounds" "@ahead=$tmp/ahead/s" \
		"@no-ahead=$tmp/no-ahead/s" "@ahead-off=$tmp/ahead-off/s" || fail "bench-engine: status $?"
done | grep -E '^---|cold'
