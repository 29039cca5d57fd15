#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Extended attributes: engines' own are kept through rename, backup, eviction, restart and kill -9; what
# is computed is readable and cannot be set; copies carry them out and in; ls -l asks for none; hints
# have their effect on eviction.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
command -v setfattr >/dev/null && command -v getfattr >/dev/null || skip "setfattr and getfattr are not installed"

mnt=$tmp/mnt
chmod 755 "$tmp"
start()
{
	start_daemon "$tmp/cache" "$mnt" -o pool_size=64M -o max_page_bytes=4M -o allow_other -o keep_pool || fail "the daemon did not start"
}
start

hash_of()
{
	printf '%s' "$1" | sha256sum | cut -c1-64
}
# attr NAME FILE: its value, or nothing.
attr()
{
	getfattr --only-values --absolute-names -n "$1" "$2" 2>/dev/null
}
# refused PATTERN COMMAND...
refused()
{
	_want=$1
	shift
	"$@" >"$tmp/err" 2>&1 && fail "$*: succeeded"
	grep -Eqi "$_want" "$tmp/err" || fail "$*: $(cat "$tmp/err")"
}
stat_of()
{
	awk -v name="$1" '$1 == name { print $2 }' "$mnt/.hicache/stats"
}

mkdir -p "$mnt/kv/sub"
head -c 300000 /dev/urandom >"$tmp/page"
page=$mnt/kv/$(hash_of 1).bin
tmpname=$mnt/kv/$(hash_of 1).tmp.1.2
cp "$tmp/page" "$tmpname"
setfattr -n user.vllm.kv_crc32c -v 0x0102ff "$tmpname" || fail "an attribute of a temporary"
setfattr -n user.empty "$tmpname" || fail "an empty value"
assert_eq "of the temporary" 2 "$(getfattr --absolute-names "$tmpname" | grep -c '^user\.[ve]')"
mv "$tmpname" "$page"
echo plain >"$mnt/kv/config.json"
setfattr -n user.note -v "of a file" "$mnt/kv/config.json" || fail "an attribute of a file"
setfattr -n user.note -v "of a directory" "$mnt/kv/sub" || fail "an attribute of a directory"
check_kept()
{
	assert_eq "$1: crc" "0x0102ff" "$(getfattr --absolute-names --only-values -n user.vllm.kv_crc32c -e hex "$page" | od -An -tx1 | tr -d ' \n' | sed 's/^/0x/')"
	getfattr --absolute-names -n user.empty "$page" >/dev/null || fail "$1: the empty one"
	assert_eq "$1: file" "of a file" "$(attr user.note "$mnt/kv/config.json")"
	assert_eq "$1: directory" "of a directory" "$(attr user.note "$mnt/kv/sub")"
	cmp "$tmp/page" "$page" || fail "$1: the page differs"
}
# Writing is no use of a page, a read is one.
assert_eq "hits of a page that was only written" 0 "$(attr user.hicache.hits "$page")"
assert_eq "counted hits of it" 0 $(($(stat_of hits_memory) + $(stat_of hits_disk)))
check_kept "after rename"
assert_eq "hits after a read" 1 "$(attr user.hicache.hits "$page")"
assert_eq "counted hits after a read" 1 $(($(stat_of hits_memory) + $(stat_of hits_disk)))
ctl sync >/dev/null && ctl evict --memory >/dev/null || fail "evict"
assert_eq "tier after evict" disk "$(attr user.hicache.tier "$page")"
check_kept "on disk"
sync "$page"
kill_daemon
start
check_kept "after kill -9"
stop_daemon || fail "the daemon ended with status $?"
start
check_kept "after a clean stop"

# What is computed.
assert_eq "hash" "$(hash_of 1)" "$(attr user.hicache.hash "$page")"
assert_eq "size" 300000 "$(attr user.hicache.size "$page")"
assert_eq "layout" undeclared "$(attr user.hicache.layout "$page")"
assert_eq "pinned" 0 "$(attr user.hicache.pinned "$page")"
attr user.hicache.tier "$page" | grep -Eqx 'memory|disk|memory\+disk' || fail "tier: $(attr user.hicache.tier "$page")"
for name in hash key depth size checksum series layout tier hits stamp age; do
	getfattr -d --absolute-names "$page" | grep -q "^user.hicache.$name=\"" || fail "getfattr -d does not show $name as text: $(getfattr -d "$page" 2>&1)"
done
assert_eq "pages of the space" 1 "$(attr user.hicache.pages "$mnt/kv")"
assert_eq "bytes of the space" 300000 "$(attr user.hicache.bytes "$mnt/kv")"
echo 10M >"$mnt/.hicache/spaces/kv/quota"
assert_eq "quota of the space" 10485760 "$(attr user.hicache.quota "$mnt/kv")"
echo 0 >"$mnt/.hicache/spaces/kv/quota"
refused "not permitted" setfattr -n user.hicache.tier -v memory "$page"
refused "not permitted" setfattr -x user.hicache.hash "$page"
refused "not permitted" setfattr -n user.hicache.pages -v 1 "$mnt/kv"
refused "not supported" setfattr -n trusted.x -v 1 "$page"
refused "not supported" setfattr -n security.x -v 1 "$page"
refused "no such attr" getfattr -n user.absent "$page"
refused "no such attr" setfattr -x user.absent "$page"
refused "not supported" setfattr -n user.x -v 1 "$mnt/.hicache/version"
big=$(head -c 3000 /dev/zero | tr '\0' x)
setfattr -n user.big -v "$big" "$page" || fail "3,000 bytes"
refused "no space|too long|too big" setfattr -n user.more -v "$big" "$page"
assert_eq "as it was" "$big" "$(attr user.big "$page")"
setfattr -x user.big "$page" || fail "removing"
[ -z "$(attr user.big "$page")" ] || fail "a removed one is there"
if command -v setpriv >/dev/null; then
	chmod 644 "$page"
	nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
	refused "denied" $nobody setfattr -n user.theirs -v 1 "$page"
	chmod 666 "$page"
	$nobody setfattr -n user.theirs -v 1 "$page" || fail "who may write may set"
	refused "not permitted" $nobody setfattr -n user.hicache.pinned -v 1 "$page"
	assert_eq "others read it" 1 "$($nobody getfattr --only-values --absolute-names -n user.theirs "$page")"
fi

# They go with what they are of.
other=$mnt/kv/$(hash_of 2).bin
cp "$tmp/page" "$other"
setfattr -n user.a -v 1 "$other"
rm "$other"
cp "$tmp/page" "$other"
[ -z "$(attr user.a "$other")" ] || fail "a new page has the old one's attributes"
setfattr -n user.a -v 2 "$other"
cp "$tmp/page" "$mnt/kv/new.tmp"
mv "$mnt/kv/new.tmp" "$other"
[ -z "$(attr user.a "$other")" ] || fail "a page that was replaced left its attributes"
setfattr -n user.a -v 3 "$other"
dd if="$tmp/page" of="$other" bs=300000 conv=notrunc 2>/dev/null
assert_eq "written in place" 3 "$(attr user.a "$other")"
mv "$other" "$mnt/kv/$(hash_of 3).bin"
other=$mnt/kv/$(hash_of 3).bin
assert_eq "renamed" 3 "$(attr user.a "$other")"
rmdir "$mnt/kv/sub" && mkdir "$mnt/kv/sub"
[ -z "$(attr user.note "$mnt/kv/sub")" ] || fail "a new directory has the old one's attributes"
setfattr -n user.note -v "of a directory" "$mnt/kv/sub"

# Copies, out and in.
scratch=$tmp/out
mkdir "$scratch"
touch "$scratch/probe"
if setfattr -n user.probe -v 1 "$scratch/probe" 2>/dev/null; then
	rm "$scratch/probe"
	copied()
	{
		assert_eq "$1: attribute of the page" 3 "$(attr user.a "$2/$(hash_of 3).bin")"
		assert_eq "$1: attribute of the file" "of a file" "$(attr user.note "$2/config.json")"
		assert_eq "$1: attribute of the directory" "of a directory" "$(attr user.note "$2/sub")"
		cmp "$tmp/page" "$2/$(hash_of 3).bin" || fail "$1: the page differs"
	}
	cp -a "$mnt/kv" "$scratch/cp" || fail "cp -a out"
	copied "cp -a out" "$scratch/cp"
	cp -a "$scratch/cp" "$mnt/cp" || fail "cp -a in"
	copied "cp -a in" "$mnt/cp"
	cp -r --preserve=xattr "$scratch/cp" "$mnt/cp2" || fail "cp --preserve=xattr in"
	copied "cp --preserve=xattr in" "$mnt/cp2"
	# Also where every byte goes through the daemon, and where it begins there.
	stop_daemon || fail "the daemon ended with status $?"
	start_daemon "$tmp/cache" "$mnt" -o pool_size=64M,max_page_bytes=4M,allow_other,keep_pool,passthrough=off || fail "the daemon did not start with passthrough=off"
	cp -a "$mnt/kv" "$scratch/cp-off" || fail "cp -a out with passthrough=off"
	copied "cp -a out with passthrough=off" "$scratch/cp-off"
	cp -a "$scratch/cp-off" "$mnt/cp-off" || fail "cp -a in with passthrough=off"
	copied "cp -a in with passthrough=off" "$mnt/cp-off"
	cp -a "$mnt/kv" "$mnt/cp-inside" || fail "cp -a inside with passthrough=off"
	copied "cp -a inside with passthrough=off" "$mnt/cp-inside"
	stop_daemon || fail "the daemon ended with status $?"
	start
	copied "cp -a in with passthrough=off, after a restart" "$mnt/cp-off"
	if command -v rsync >/dev/null; then
		rsync -aX "$mnt/kv/" "$scratch/rsync/" || fail "rsync -aX out"
		copied "rsync -aX out" "$scratch/rsync"
		rsync -aX "$scratch/rsync/" "$mnt/rsync/" || fail "rsync -aX in"
		copied "rsync -aX in" "$mnt/rsync"
		rsync -aX --filter='-x user.hicache.*' "$scratch/rsync/" "$mnt/rsync/" || fail "rsync -aX in again"
	fi
	tar --xattrs --xattrs-include='user.*' -C "$mnt/kv" -cf "$scratch/tar" . || fail "tar out"
	mkdir "$mnt/tar"
	tar --xattrs --xattrs-include='user.*' -C "$mnt/tar" -xf "$scratch/tar" 2>"$tmp/err" || fail "tar in: $(cat "$tmp/err")"
	copied "tar in" "$mnt/tar"
	rm -rf "$mnt/cp" "$mnt/cp2" "$mnt/rsync" "$mnt/tar"
else
	echo "$tmp takes no user attributes: copies are not tried"
fi

# A listing costs no request a file.
mkdir "$mnt/many"
i=0
while [ $i -lt 200 ]; do
	head -c 5000 "$tmp/page" >"$mnt/many/$(hash_of many$i).bin"
	i=$((i + 1))
done
before=$(stat_of fs_getxattrs)
lists=$(stat_of fs_listxattrs)
ls -l "$mnt/many" >/dev/null
after=$(stat_of fs_getxattrs)
echo "ls -l of 200 pages: $((after - before)) GETXATTR, $(($(stat_of fs_listxattrs) - lists)) LISTXATTR"
[ $((after - before)) -le 10 ] || fail "ls -l of 200 pages asks $((after - before)) times for attributes"
before=$(stat_of fs_getxattrs)
i=0
while [ $i -lt 20 ]; do
	cat "$mnt/many/$(hash_of many$i).bin"
	i=$((i + 1))
done >/dev/null
assert_eq "requests for attributes of 20 reads" "$before" "$(stat_of fs_getxattrs)"
# Nor does a write, where the kernel lets the file system answer for set-id bits.
before=$(stat_of fs_getxattrs)
i=0
while [ $i -lt 30 ]; do
	echo line
	i=$((i + 1))
done >"$mnt/many/log.txt"
after=$(stat_of fs_getxattrs)
echo "30 writes of an ordinary file: $((after - before)) GETXATTR"
[ $((after - before)) -le 5 ] || fail "30 writes ask $((after - before)) times for attributes"
rm -r "$mnt/many" "$mnt/kv"

# Hints: what they do to eviction from memory. Each round: old pages, then newer ones, then so many that
# half must go. Without hints the old ones go first.
n_in_memory()
{
	_n=0
	for _f in "$1"/*.bin; do
		case $(attr user.hicache.tier "$_f") in *memory*) _n=$((_n + 1)) ;; esac
	done
	echo "$_n"
}
# fill DIRECTORY COUNT: pages of 1 MB.
fill()
{
	mkdir -p "$1"
	_i=0
	while [ $_i -lt "$2" ]; do
		head -c 1000000 /dev/zero | tr '\0' "$(printf '\\%03o' $((65 + _i % 26)))" >"$1/$(hash_of "$1$_i").bin"
		_i=$((_i + 1))
	done
}
# round NAME: pages in memory of old (10) and young (10) after others came.
round()
{
	ctl evict >/dev/null
	fill "$mnt/old" 10
	fill "$mnt/young" 10
	ctl sync >/dev/null || fail "$1: sync"
	assert_eq "$1: old at first" 10 "$(n_in_memory "$mnt/old")"
	"$@" || fail "$1: setting the hint"
	fill "$mnt/others" 48
	ctl sync >/dev/null
	old=$(n_in_memory "$mnt/old")
	young=$(n_in_memory "$mnt/young")
	echo "$1: $old of 10 old and $young of 10 young pages are in memory"
	setfattr -x user.hicache.session "$mnt/young" 2>/dev/null
	setfattr -x user.hicache.session "$mnt/old" 2>/dev/null
	setfattr -x user.hicache.priority "$mnt/old" 2>/dev/null
	rm -r "$mnt/others"
}
stop_daemon
rm -rf "$tmp/cache"
start_daemon "$tmp/cache" "$mnt" -o pool_size=64M -o max_page_bytes=4M -o passthrough=off || fail "the daemon did not start"
no_hint() { :; }
ended() { setfattr -n user.hicache.session -v ended "$mnt/young"; }
alive() { setfattr -n user.hicache.session -v alive "$mnt/old"; }
priority() { setfattr -n user.hicache.priority -v high "$mnt/old"; }
pinned() { for _f in "$mnt"/old/*.bin; do setfattr -n user.hicache.pinned -v 1 "$_f" || return 1; done; }
round no_hint
[ "$old" -lt "$young" ] || fail "without a hint the old pages do not go first"
round ended
[ "$young" -lt "$old" ] || fail "pages of an ended session do not go first"
round alive
[ "$young" -lt "$old" ] || fail "pages of a living session do not stay"
round priority
[ "$young" -lt "$old" ] || fail "pages of a high priority do not stay"
round pinned
assert_eq "pinned pages" 10 "$old"
ctl evict >/dev/null
assert_eq "pinned pages after evict" 10 "$(ls "$mnt/old" | wc -l)"
ctl sync >/dev/null
kill_daemon
start_daemon "$tmp/cache" "$mnt" -o pool_size=64M -o max_page_bytes=4M || fail "the daemon did not start again"
ctl evict >/dev/null
assert_eq "pinned pages after a restart" 10 "$(ls "$mnt/old" | wc -l)"
assert_eq "shown" 1 "$(attr user.hicache.pinned "$mnt/old/$(hash_of "$mnt/old0").bin")"
for f in "$mnt"/old/*.bin; do
	setfattr -x user.hicache.pinned "$f" || fail "ending a pin"
done
ctl evict >/dev/null
assert_eq "without pins" 0 "$(ls "$mnt/old" | wc -l)"
stop_daemon || fail "the daemon ended with status $?"
