#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Containers: the daemon is on the host, a container sees one space through a bind mount below a directory that it has as
# rslave. Goal: pages go both ways, also from another pid namespace; nothing outside the space is seen; after a restart of
# the daemon, and after its death, the container sees the new mount without being started again; a plain bind mount of
# the space does not (that is why). Method: mount and pid namespaces of this test in the place of host and container.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
requires unshare nsenter

# The "host": mounts of this test are seen by nobody else.
if [ -z "${HC_OWN_NAMESPACE-}" ]; then
	unshare -m -p --fork --propagation private true 2>/dev/null || skip "no mount and pid namespaces here"
	HC_OWN_NAMESPACE=1
	export HC_OWN_NAMESPACE
	unshare -m --propagation private sh "$0"
	exit
fi

mnt=$tmp/mnt
cache=$tmp/cache
share=$tmp/srv		# the host's; below it, kv is the space
inside=$tmp/container	# the same in the container
mkdir "$share" "$share/kv" "$inside" "$tmp/plain"
mount --bind "$share" "$share" && mount --make-shared "$share" || fail "mount --make-shared"

start()
{
	start_daemon "$cache" "$mnt" -o pool_size=64M,max_page_bytes=4M,allow_other || fail "the daemon does not start"
}

# What a unit with BindsTo=hicachefs@NAME.service does after each start.
bind_space()
{
	mount --bind "$mnt/space-a" "$share/kv" || fail "bind of the space"
}

unbind_space()
{
	umount -l "$share/kv" || fail "umount of the bind"
}

start
mkdir "$mnt/space-a" "$mnt/space-b"
echo secret >"$mnt/space-b/config.json"
bind_space
mount --bind "$mnt/space-a" "$tmp/plain" || fail "bind"

# The "container": its bind mount of the share is a slave of the host's.
unshare -m -p --fork --propagation slave sh -c ': >"$0"; exec tail -f /dev/null' "$tmp/ready" &
unshare_pid=$!
end_container()
{
	umount -l "$share/kv" 2>/dev/null
	umount -l "$tmp/plain" 2>/dev/null
	umount -l "$share" 2>/dev/null
	[ -z "${container_pid-}" ] || kill -KILL "$container_pid" 2>/dev/null
	end_process "$unshare_pid" 2
}
cleanup_fn end_container
wait_until 20 test -e "$tmp/ready" || fail "no container"
container_pid=$(cat "/proc/$unshare_pid/task/$unshare_pid/children")
container_pid=${container_pid% }
[ -n "$container_pid" ] || fail "no process in the container"

container()
{
	timeout 30 nsenter -t "$container_pid" -m -p -- "$@"
}
container mount --rbind "$share" "$inside" || fail "the container's bind mount"
container mount --make-rslave "$inside" || fail "rslave"

name_of()
{
	printf '%064x' "$((0xabc000 + $1))"
}

# page NUMBER: written in the container, read on the host and in the container.
page()
{
	head -c 300000 /dev/urandom >"$tmp/page-$1"
	container cp "$tmp/page-$1" "$inside/kv/$(name_of "$1")" || fail "page $1 cannot be written in the container"
	cmp "$tmp/page-$1" "$mnt/space-a/$(name_of "$1")" || fail "page $1 differs on the host"
	same "$1"
}

same()
{
	container cmp "$tmp/page-$1" "$inside/kv/$(name_of "$1")" || fail "page $1 differs in the container"
}

page 1
assert_eq "listed in the container" "$(name_of 1)" "$(container ls -A "$inside/kv")"
[ ! -e "$inside/kv/.hicache" ] || fail "control files in the container"
# Written over, by a temporary and by a rename, from a process whose pid the daemon cannot see.
head -c 300000 /dev/urandom >"$tmp/page-1"
container sh -c 'cp "$1" "$2.tmp" && mv "$2.tmp" "$2"' - "$tmp/page-1" "$inside/kv/$(name_of 1)" || fail "replacing a page in the container"
same 1

container "$hicachectl_bin" doctor >"$tmp/out"
grep -q "^ok  *mount  *$inside/kv shows the space space-a, and follows the host" "$tmp/out" || fail "doctor in the container: $(cat "$tmp/out")"

# A stop and a start.
unbind_space
stop_daemon || fail "the daemon ended with status $?"
start
bind_space
same 1
page 2

# A daemon that dies. The dead mount is below the container's feet until the new one is there.
daemon_was=$daemon_pid
kill -KILL "$daemon_was"
wait "$daemon_was" 2>/dev/null
_forget_daemon "$daemon_was"
container ls "$inside/kv" >/dev/null 2>&1 && fail "the space of a dead daemon can be listed"
start
grep -q "taken away" "$daemon_log" || fail "dead mount: $(cat "$daemon_log")"
unbind_space
bind_space
same 1
same 2
page 3
container "$hicachectl_bin" doctor >"$tmp/out" && fail "doctor in the container finds no dead mount: $(cat "$tmp/out")"
grep -q "^fail  *mount  *$tmp/plain shows the space space-a of a daemon that is gone" "$tmp/out" || fail "doctor in the container: $(cat "$tmp/out")"
# A bind mount without propagation shows the first daemon's mount for ever.
ls "$tmp/plain" >/dev/null 2>&1 && fail "a plain bind mount of the space survived: the manual need not ask for rslave"

unbind_space
umount -l "$tmp/plain"
stop_daemon || fail "the daemon ended with status $?"
