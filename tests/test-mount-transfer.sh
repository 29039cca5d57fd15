#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A space goes out of one node's mount and into another's by cp -a, tar and rsync, and is warm there: the engines'
# look-ups and loads hit, bytes are equal, small files and empty directories come along, no temporary stays. A copy
# into a space is a backup from outside, and an interrupted one continues.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
contract=$top_builddir/tests/contract

start_daemon "$tmp/cache-a" "$tmp/a" -o pool_size=256M,max_page_bytes=32M || fail "the first daemon did not start"
start_daemon "$tmp/cache-b" "$tmp/b" -o pool_size=256M,max_page_bytes=32M || fail "the second daemon did not start"
from=$tmp/a/model
mkdir -p "$from/empty/0a"
echo '{"layers": 4}' >"$from/config.json"
timeout 60 "$contract" keep "$from" "$tmp/state" || fail "the engines' pages cannot be stored"

# names DIR: what a copy must keep. Pages show their own time of publishing where nothing sets it.
names()
{
	(cd "$1" && find . \( -type f -o -type d \) -printf '%y %P %m\n' | sort)
}
sums()
{
	(cd "$1" && find . -type f -print0 | sort -z | xargs -0 cksum)
}
names "$from" >"$tmp/names"
sums "$from" >"$tmp/sums"
n_pages=$(grep -c '^f .*[0-9a-f]\{16\}' "$tmp/names")
[ "$n_pages" -ge 60 ] || fail "only $n_pages pages to copy"

stat_b()
{
	sed -n "s/^$1 //p" "$tmp/b/.hicache/stats"
}

# warm NAME DIR: names, bytes, hits of every engine's own look-up and load, nothing left over.
warm()
{
	names "$2" | diff "$tmp/names" - || fail "$1: names differ"
	sums "$2" >"$tmp/got" 2>"$tmp/err" || fail "$1: $(cat "$tmp/err")"
	cmp "$tmp/sums" "$tmp/got" || fail "$1: bytes differ: $(diff "$tmp/sums" "$tmp/got" | head -n 5)"
	timeout 60 "$contract" kept "$2" "$tmp/state" || fail "$1: an engine misses"
	case $2 in
	"$tmp/b"/*) [ "$(stat_b n_pages)" -ge "$n_pages" ] || fail "$1: $(stat_b n_pages) pages, $n_pages were copied" ;;
	esac
	rm -rf "$2" || fail "$1: the copy cannot be removed"
}

# Straight from mount to mount.
timeout 100 cp -a "$from" "$tmp/b/cp" 2>"$tmp/err" || fail "cp -a: $(cat "$tmp/err")"
warm "cp -a" "$tmp/b/cp"

mkdir "$tmp/b/tar"
(cd "$from" && timeout 100 tar -cf - .) | (cd "$tmp/b/tar" && timeout 100 tar -xpf -) 2>"$tmp/err" ||
	fail "tar: $(cat "$tmp/err")"
warm tar "$tmp/b/tar"

# By way of a directory outside: a backup, and the backup put back.
timeout 100 cp -a "$from" "$tmp/outside" 2>"$tmp/err" || fail "cp -a out: $(cat "$tmp/err")"
sums "$tmp/outside" | cmp "$tmp/sums" - || fail "the copy outside differs"
mkdir "$tmp/b/back"
timeout 100 cp -a "$tmp/outside/." "$tmp/b/back" 2>"$tmp/err" || fail "cp -a in: $(cat "$tmp/err")"
# Once more over what is there: pages are replaced, not doubled.
timeout 100 cp -a "$tmp/outside/." "$tmp/b/back" 2>"$tmp/err" || fail "cp -a again: $(cat "$tmp/err")"
warm "cp -a in" "$tmp/b/back"

# rsync writes .NAME.XXXXXX and renames; --inplace writes the name itself. With -X the engines' own xattrs
# come along; what the mount computes is kept out of the comparison: it differs from node to node.
rsync_to_b()
{
	timeout 100 rsync -a --stats --filter='-x user.hicache.*' "$@" "$from/" "$tmp/b/rsync/" >"$tmp/out" 2>&1 ||
		fail "rsync $*: $(cat "$tmp/out")"
}
if command -v rsync >/dev/null 2>&1; then
	page=$(sed -n 's/^f \(.*_form0-model_0_1.bin\) [0-9]*$/\1/p' "$tmp/names" | head -n 1)
	setfattr -n user.vllm.kv_crc32c -v c0ffee "$from/$page" 2>/dev/null || page=
	for options in "" --inplace -X; do
		mkdir "$tmp/b/rsync"
		# A part first, as if it had been interrupted.
		# shellcheck disable=SC2086
		rsync_to_b $options --include='*/' --include='*model_0_1*' --exclude='*'
		# shellcheck disable=SC2086
		rsync_to_b $options
		# What is there already, with its time, is not sent again.
		# shellcheck disable=SC2086
		rsync_to_b $options
		assert_eq "files that a second rsync $options sent" 0 \
			"$(sed -n 's/^Number of regular files transferred: //p' "$tmp/out")"
		[ "$options" != -X ] || [ -z "$page" ] ||
			assert_eq "an engine's xattr" c0ffee \
				"$(getfattr --absolute-names --only-values -n user.vllm.kv_crc32c "$tmp/b/rsync/$page")"
		warm "rsync $options" "$tmp/b/rsync"
	done
	# All of it, computed xattrs too, onto nothing.
	mkdir "$tmp/b/rsync"
	timeout 100 rsync -aX "$from/" "$tmp/b/rsync/" >"$tmp/out" 2>&1 || fail "rsync -aX: $(tail -n 5 "$tmp/out")"
	warm "rsync -aX" "$tmp/b/rsync"
else
	echo "rsync is not installed: that part was not tried"
fi

# A copy into the mount is on disk after a sync, and is there after a restart.
mkdir "$tmp/b/kept"
timeout 100 cp -a "$tmp/outside/." "$tmp/b/kept" || fail "cp -a of the backup"
ctl sync >"$tmp/out" || fail "sync: $(cat "$tmp/out")"
stop_daemon "$tmp/b" || fail "the second daemon ended with status $?"
start_daemon "$tmp/cache-b" "$tmp/b" -o pool_size=256M,max_page_bytes=32M || fail "the second daemon did not start again"
warm "a backup after a restart" "$tmp/b/kept"

for mnt in "$tmp/a" "$tmp/b"; do
	bad=$(awk '$1 ~ /^bad_|^fs_publish_failed$/ && $2 > 0' "$mnt/.hicache/stats")
	[ -z "$bad" ] || fail "$mnt: $bad"
	stop_daemon "$mnt" || fail "a daemon ended with status $?"
done
