#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a shell can do to a mount: odd names, deep and wide trees, odd reads and writes, refused kinds of files, garbage for
# the control file. Goal: right bytes, or an error; the daemon answers afterwards, and ends as it should.
. "${top_srcdir:-.}/tests/functions.sh"
requires_root
requires_fuse
requires python3 tar

cache=$tmp/cache
mnt=$tmp/mnt

mount_cache()
{
	start_daemon "$cache" "$mnt" -o pool_size=64M,disk_size=1G,max_page_bytes=2M ||
		fail "the daemon does not start: $(cat "$daemon_log")"
}

alive()
{
	is_running "$daemon_pid" && timeout 10 stat "$mnt/.hicache/version" >/dev/null || fail "dead after: $1"
}

limited()
{
	timeout 60 "$@"
}

# same_trees ONE OTHER
same_trees()
{
	limited diff -r "$1" "$2" >"$tmp/diff" 2>&1 || fail "$1 and $2 differ: $(head -n 5 "$tmp/diff")"
}
mount_cache

# Names: what is written is there, listed, the same after kill -9, and can be removed.
zeros=$(printf '%064d' 0)
long=$(printf '%0255d' 0 | tr 0 x)
newline='new
line'
mkdir -p "$tmp/names/plain" "$tmp/names/a space" "$tmp/names/%d{64}" "$mnt/names"
for name in "$long" "$newline" 'two words' 'per%cent%s%n' '{hash}' '{64}' 'ünï☃' "$(printf '\377\376')" "'\"\`\$(x)" -rf \
	"$zeros" "$zeros.bin" "$(printf '%0250d' 0)" ... .hidden '*' 'back\slash'; do
	for dir in plain 'a space' '%d{64}'; do
		head -c 5000 /dev/urandom >"$tmp/names/$dir/$name"
	done
done
limited cp -r "$tmp/names/." "$mnt/names/" || fail "odd names cannot be written"
same_trees "$tmp/names" "$mnt/names"
(: >"$mnt/names/${long}x") 2>/dev/null && fail "a name of 256 bytes was taken"
ctl sync >/dev/null || fail "sync: status $?"
kill_daemon
mount_cache
same_trees "$tmp/names" "$mnt/names"
ctl evict --memory >/dev/null || fail "evict --memory: status $?"
same_trees "$tmp/names" "$mnt/names"
limited rm -r "$mnt/names" || fail "odd names cannot be removed"
alive "odd names"

# 200 directories deep.
dir=$mnt/deep
i=0
while [ $i -lt 200 ]; do
	dir=$dir/d$i
	i=$((i + 1))
done
limited mkdir -p "$dir" || fail "200 directories cannot be made"
echo file >"$dir/file" && head -c 10000 /dev/zero >"$dir/$zeros" || fail "no file 200 directories deep"
assert_eq "files found" 2 "$(limited find "$mnt/deep" -type f | wc -l)"
limited rm -r "$mnt/deep" || fail "a deep tree cannot be removed"

# Many in one directory, out and in again, and a listing while they are removed.
python3 - "$mnt/many" <<'END' || fail "2,000 files cannot be written"
import os, sys
os.mkdir(sys.argv[1])
for i in range(2000):
    with open("%s/%064x" % (sys.argv[1], i * 0x9e3779b97f4a7c15), "wb") as f:
        f.write(b"%064d" % i)
END
assert_eq "ls -l" 2001 "$(limited ls -l "$mnt/many" | wc -l)"
assert_eq "find" 2000 "$(limited find "$mnt/many" -type f | wc -l)"
limited cp -a "$mnt/many" "$tmp/many" && limited cp -a "$tmp/many" "$mnt/many2" || fail "cp -a: status $?"
same_trees "$tmp/many" "$mnt/many2"
limited tar cf "$tmp/many.tar" -C "$mnt" many && mkdir "$mnt/tar" && limited tar xf "$tmp/many.tar" -C "$mnt/tar" ||
	fail "tar: status $?"
same_trees "$tmp/many" "$mnt/tar/many"
limited rm -r "$mnt/many2" &
remover=$!
while is_running $remover; do
	limited find "$mnt/many2" -ls >/dev/null 2>&1
done
wait $remover || fail "rm -r under listings: status $?"
[ ! -e "$mnt/many2" ] || fail "rm -r left $(ls "$mnt/many2" | wc -l) files"
limited rm -r "$mnt/tar" "$mnt/many" || fail "rm -r: status $?"
alive "many files"

# Reads and writes.
mkdir "$mnt/io" "$mnt/io2"
cd "$mnt/io" || exit 1
page=$(printf '%064x' 77)
for size in 1 511 4097 65537 1000003; do
	limited dd if=/dev/urandom of="$tmp/src" bs=$size count=$((1 + 1500000 / size % 2000)) iflag=fullblock 2>/dev/null
	limited dd if="$tmp/src" of="$page" bs=$size 2>/dev/null || fail "dd in blocks of $size"
	cmp "$tmp/src" "$page" || fail "dd in blocks of $size"
done
echo more >>"$page" && echo more >>"$tmp/src" && cmp "$tmp/src" "$page" || fail "an append to a page"
printf one >conf && printf two >>conf
assert_eq "appended" onetwo "$(cat conf)"
truncate -s 100 conf && assert_eq "size of a truncated file" 100 "$(stat -c %s conf)"
dd if="$tmp/src" of="sparse-$page" bs=4096 seek=100 count=1 conv=notrunc 2>/dev/null
assert_eq "size of a sparse page" 413696 "$(stat -c %s "sparse-$page")"
assert_eq "its hole" 0 "$(head -c 409600 "sparse-$page" | tr -d '\0' | wc -c)"
i=0
while [ $i -lt 50 ]; do
	mv "$page" "q$page" && mv "q$page" ../io2/ && mv "../io2/q$page" "$page" || fail "rename $i"
	i=$((i + 1))
done
cmp "$tmp/src" "$page" || fail "50 renames changed it"
for refused in "ln $page hard" "ln -s x soft" "mkfifo fifo" "mknod node c 1 3"; do
	$refused 2>/dev/null && fail "$refused: was not refused"
done
chmod 640 "$page" conf && chown 1:2 "$page" conf && touch "$page" conf || fail "chmod, chown, touch"
touch -d '2001-02-03 00:00:00Z' "$page" conf || fail "touch -d"
for name in "$page" conf; do
	assert_eq "attributes of $name" "640 1 2 981158400" "$(stat -c '%a %u %g %Y' "$name")"
done
python3 - "$page" conf <<'END' || fail "mmap"
import errno, mmap, sys
for name in sys.argv[1:]:
    with open(name, "rb") as f:
        try:
            m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        except OSError as e:
            assert e.errno == errno.ENODEV and name != "conf", (name, e)
        else:
            assert m[:] == open(name, "rb").read(), name
            m.close()
END
assert_eq "statfs" 4096 "$(stat -f -c %S .)"
cd "$tmp" || exit 1
alive "reads and writes"

# The control file.
control=$mnt/.hicache/control
head -c 200000 /dev/urandom >"$tmp/garbage"
(cat "$tmp/garbage" >"$control") 2>/dev/null && fail "garbage was taken as a command"
(printf 'evict %0100000d\n' 1 >"$control") 2>/dev/null && fail "a line of 100,000 bytes was taken"
# Lines are lines however they are cut into writes; what follows a refused one is taken.
limited python3 - "$control" >"$tmp/out" 2>&1 <<'END' || fail "lines in pieces: $(tail -n 3 "$tmp/out")"
import errno, os, sys
def ask(*pieces, read=True):
    fd, answer, errors = os.open(sys.argv[1], os.O_RDWR), b"", []
    for piece in pieces:
        try:
            assert os.write(fd, piece) == len(piece)
            errors.append(0)
        except OSError as e:
            errors.append(e.errno)
    while read:
        part = os.read(fd, 4096)
        if not part:
            break
        answer += part
    os.close(fd)
    return answer, errors
status = ask(b"status\n")[0]
assert len(status) > 100, status
for pieces in (b"sta", b"tus\n"), (b"s", b"t", b"atus", b"\n"), (b"status",), (b"\n\nstat", b"us"):
    answer, errors = ask(*pieces)
    assert len(answer) > 100 and not any(errors), (pieces, answer, errors)
answer, errors = ask(b"gc\n", b"gc\n")
assert answer.count(b"removed") == 2 or errno.EBUSY in errors, (errors, answer)
answer, errors = ask(b"evict ", b"0" * 9000, b"0" * 9000, b"0", b"\n", b"status\n")
assert errors == [0, 0, errno.E2BIG, errno.E2BIG, errno.E2BIG, 0] and len(answer) > 100, (errors, answer)
answer, errors = ask(b"x" * 20000 + b"\nstatus\n", read=False)
assert errors == [errno.E2BIG], errors
END
(printf '\0\n' >"$control") 2>/dev/null
(printf 'verify' >"$control") 2>/dev/null
alive "garbage commands"
limited python3 - "$control" >"$tmp/out" 2>&1 <<'END' || fail "commands at the same time: $(tail -n 3 "$tmp/out")"
import os, sys, threading
commands = [b"status", b"sync", b"verify", b"evict --memory", b"gc", b"frob %00", b"evict nothere"]
wrong = []
def one(i):
    for k in range(3):
        fd = os.open(sys.argv[1], os.O_RDWR)
        answer = b""
        try:
            os.write(fd, commands[(i + k) % len(commands)] + b"\n")
        except OSError:
            pass # it says no at once
        while True:
            part = os.read(fd, (1, 7, 100000)[i % 3])
            if not part:
                break
            answer += part
        os.close(fd)
        if not answer:
            wrong.append(commands[(i + k) % len(commands)])
    fd = os.open(sys.argv[1], os.O_RDWR) # asks and does not wait
    os.write(fd, b"verify\n")
    os.close(fd)
threads = [threading.Thread(target=one, args=(i,)) for i in range(100)]
for t in threads:
    t.start()
for t in threads:
    t.join()
if wrong:
    sys.exit("no answer to %s" % wrong[:5])
END
for refused in "touch $mnt/.hicache/new" "rm $mnt/.hicache/stats" "mv $mnt/.hicache $mnt/x" "rmdir $mnt/.hicache" \
	"mkdir $mnt/.hicache/spaces/new" "mv $mnt/io/conf $mnt/.hicache/conf"; do
	$refused 2>/dev/null && fail "$refused: was not refused"
done
alive "commands at the same time"
stop_daemon || fail "the daemon ended with status $?"
