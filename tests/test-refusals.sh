#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What hicachefs must refuse, each with a message that names the thing and says what to do, with the documented exit
# status, and leaving nothing mounted. Method: starts it in each bad situation, in the foreground; in a mount namespace
# of its own where the machine itself must look bad.
. "${top_srcdir:-.}/tests/functions.sh"

mkdir "$tmp/cache" "$tmp/mnt"
cache=$tmp/cache
mnt=$tmp/mnt

# refused STATUS PATTERN ARGUMENT...
refused()
{
	_want=$1
	_says=$2
	shift 2
	expect_error "$_says" "$hicachefs_bin" -f "$@"
	assert_eq "exit status of: $*" "$_want" "$_rc"
	! is_mounted "$mnt" || fail "$*: refused, but something is mounted"
}

# Options and config file: status 2, before anything is touched.
refused 2 'there is no option "pool_sise"; did you mean "pool_size"\?' -o pool_sise=1G "$cache" "$mnt"
refused 2 'pool_size wants a size such as 64G' -o pool_size=big "$cache" "$mnt"
refused 2 'listen is not built in this version' -o listen=/run/x "$cache" "$mnt"
refused 2 'passthrough wants one of auto.off' -o passthrough=on "$cache" "$mnt"
refused 2 'store is not built in this version' -o store=s3 "$cache" "$mnt"
refused 2 'low \(90%\) is above high \(50%\)' -o high=50% "$cache" "$mnt"
refused 2 'MOUNTPOINT is missing' "$cache"
# shellcheck disable=SC2046
refused 2 'more than 64 times -o; join them' $(printf -- '-o ro %.0s' $(seq 65)) "$cache" "$mnt"
printf 'pool_size = 64M\n\nkeep_poool = yes\n' >"$tmp/bad.conf"
refused 2 "$tmp/bad.conf:3: keep_poool = yes: there is no option" --config "$tmp/bad.conf" "$cache" "$mnt"
refused 2 'nothere.conf: the config file cannot be read: No such file' --config "$tmp/nothere.conf" "$cache" "$mnt"
assert_eq "the cache directory after refused options" "" "$(ls -A "$cache")"

# Paths.
refused 1 'cache directory .*/nothere: No such file or directory; make it first' "$tmp/nothere" "$mnt"
: >"$tmp/file"
refused 1 'cache directory .*/file is not a directory' "$tmp/file" "$mnt"
refused 1 'CACHEDIR and MOUNTPOINT are both' "$cache" "$cache"
mkdir "$mnt/inner" "$cache/inner"
refused 1 'lies inside the mount point .*: the mount would hide it; choose another mount point' "$mnt/inner" "$mnt"
refused 1 'mount point .* lies inside the cache directory' "$cache" "$cache/inner"
refused 1 'data directory .* lies inside the mount point' -o "disk=$mnt/inner" "$cache" "$mnt"
rmdir "$mnt/inner" "$cache/inner"
refused 1 'nothere: No such file or directory; make the directory first' "$cache" "$tmp/nothere"
refused 1 'is not a directory' "$cache" "$tmp/file"
assert_eq "the cache directory after refused paths" "" "$(ls -A "$cache")"

requires_fuse

# The machine.
refused 1 'noinit' -o noinit "$cache" "$mnt"
assert_eq "the empty cache directory with noinit" "" "$(ls -A "$cache")"
refused 1 'pool_size.*(memory|available)' -o pool_size=1000T "$cache" "$mnt"
assert_eq "the empty cache directory with too large a pool" "" "$(ls -A "$cache")"
refused 1 'pool_size 1K is too small: .*give at least 2M' -o pool_size=1K "$cache" "$mnt"
refused 1 'pool_size 0.0001% is too small, that is .*give at least 2M' -o pool_size=0.0001% "$cache" "$mnt"
assert_eq "the empty cache directory with too small a pool" "" "$(ls -A "$cache")"
mkdir "$tmp/foreign"
: >"$tmp/foreign/thesis.tex"
refused 1 'not empty|foreign|not ours|no cache' "$tmp/foreign" "$mnt"
assert_eq "the foreign directory" thesis.tex "$(ls -A "$tmp/foreign")"

# in_namespace SCRIPT: runs it as root in a mount namespace of its own.
in_namespace()
{
	unshare -m --propagation private sh -ec "$1" 2>&1
}

if [ "$(id -u)" = 0 ] && in_namespace 'mount -t ramfs none /mnt' >/dev/null; then
	# said PATTERN SCRIPT: the script's command fails and says so.
	said()
	{
		_out=$(in_namespace "$2" </dev/null) && fail "$2: succeeded, expected an error that says $1"
		printf '%s\n' "$_out" | grep -Eq -e "$1" || fail "$2: the message does not say \"$1\": $_out"
	}
	run="timeout 30 '$hicachefs_bin' -f -o pool_size=64M"
	said '/dev/fuse is missing.*modprobe fuse' "mount -t ramfs none /dev; $run '$cache' '$mnt'"
	mkdir "$tmp/plain" "$tmp/ro"
	said 'xattr' "mount -t ramfs none '$tmp/plain'; $run '$tmp/plain' '$mnt'"
	said '[Rr]ead-only' "mount --bind '$tmp/ro' '$tmp/ro'; mount -o remount,ro,bind '$tmp/ro'; $run '$tmp/ro' '$mnt'"
else
	echo "note: no mount namespaces here: /dev/fuse, xattrs and read-only directories were not tried"
fi

# A control group below the test's own, with less room than the pool wants (cgroup v1, or v2 with memory delegated).
for group in "/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)" \
	"/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)"; do
	[ -w "$group/cgroup.procs" ] && mkdir "$group/hc-test-$$" 2>/dev/null || continue
	group=$group/hc-test-$$
	remove_group() { rmdir "$group" 2>/dev/null; }
	cleanup_fn remove_group
	for limit in memory.limit_in_bytes memory.max; do
		[ -w "$group/$limit" ] && echo 268435456 >"$group/$limit" 2>/dev/null || continue
		expect_error 'pool_size.*control group' sh -c \
			"echo \$\$ >'$group/cgroup.procs' && exec '$hicachefs_bin' -f -o pool_size=2G '$cache' '$mnt'"
		tried_group=yes
	done
	remove_group
done
[ "${tried_group-}" ] || echo "note: no control group can be made here: its limit was not tried"

# Two daemons on one cache, and two on one mount point.
mkdir "$tmp/mnt2" "$tmp/cache2"
start_daemon "$cache" "$mnt" -o pool_size=64M || fail "the first daemon does not start: $(cat "$daemon_log")"
expect_error "in use.*$daemon_pid" "$hicachefs_bin" -f -o pool_size=64M "$cache" "$tmp/mnt2"
assert_eq "exit status of the second daemon" 1 "$_rc"
! is_mounted "$tmp/mnt2" || fail "the second daemon mounted"
expect_error "a hicachefs is mounted on $mnt already; umount $mnt first" \
	"$hicachefs_bin" -f -o pool_size=64M "$tmp/cache2" "$mnt"
# In the background the message and the status come from the command that was typed.
expect_error "in use" "$hicachefs_bin" -o pool_size=64M "$cache" "$tmp/mnt2"
assert_eq "exit status in the background" 1 "$_rc"
test -e "$mnt/.hicache/version" || fail "the first daemon suffered"
# A cache in a cache, its own or another's, by whatever name.
mkdir "$mnt/sp" "$mnt/sp/inner"
ln -s "$mnt/sp/inner" "$tmp/link"
for dir in "$mnt" "$mnt/sp/inner" "$tmp/link"; do
	expect_error "cache directory $mnt.* lies in a mount of hicachefs \\($mnt\\): a cache cannot be kept in a cache" \
		"$hicachefs_bin" -f -o pool_size=64M "$dir" "$tmp/mnt2"
done
expect_error "data directory $mnt/sp/inner lies in a mount of hicachefs" "$hicachefs_bin" -f -o "pool_size=64M,disk=$mnt/sp/inner" "$tmp/cache2" "$tmp/mnt2"
assert_eq "the cache directory in a cache" "" "$(ls -A "$mnt/sp/inner")"
stop_daemon || fail "the first daemon's exit status is $?"
