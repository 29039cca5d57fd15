/* SPDX-License-Identifier: Apache-2.0 */
/* Cases about bytes: direct and asynchronous I/O (point 1), whole pages (2), who publishes what and
 * when (3), rename (4), mappings and xattrs (12), errors (13). */
#include <sys/xattr.h>

#include "tests/contract.h"

static const char *page_path(const char *what, unsigned i)
{
	return at("%s_%s.bin", hash_of(i), what);
}

/* O_DIRECT at create, at open, by fcntl; small and unaligned writes do as well. */
static void direct_io(void)
{
	const char *path = page_path("direct", 1);
	char temp[PATH_BYTES + 8];
	unsigned char *buf = page_new(MIB + 100, 7), *back = page_new(MIB + 100, 0);
	int fd;

	snprintf(temp, sizeof(temp), "%s.tmp", path);
	open_or_return(fd, open(temp, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0644));
	/* 100 bytes, then the rest from an address that is not aligned, at an odd offset */
	check(pwrite(fd, buf, 100, 0), 100);
	check(pwrite(fd, buf + 100, MIB, 100), MIB);
	check(pread(fd, back + 1, 333, 777), 333);
	check(memcmp(back + 1, buf + 777, 333), 0);
	check(close_of(fd), 0);
	check(err_of(rename(temp, path)), 0);
	check_page(load_file(path, O_DIRECT, MIB + 100), 7);
	check_page(load_file(path, 0, MIB + 100), 7);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && t.phase != FULL)
		failed("open: %s", strerror(errno));
	if (fd >= 0) {
		check(fcntl(fd, F_SETFL, O_DIRECT), 0);
		check(read_whole(fd, back, MIB + 100), 0);
		check(page_seed(back, MIB + 100, 0), 7);
		close(fd);
	}
	free(buf);
	free(back);
}

static void ring_pages(enum ring_kind kind, const char *what)
{
	unsigned char *buf = page_new(16 * MIB, 11), *back = page_new(16 * MIB, 0);
	const char *path = page_path(what, 2);
	char temp[PATH_BYTES + 8];
	int fd, rc;

	snprintf(temp, sizeof(temp), "%s.tmp", path);
	open_or_return(fd, open(temp, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0644));
	rc = ring_io(kind, fd, true, buf, 16 * MIB, 256 * KIB);
	if (rc == -ENOSYS) {
		skip_case("this kernel has no %s", what);
		close(fd);
		unlink(temp);
		goto out;
	}
	check(rc, 0);
	check(ring_io(kind, fd, false, back, 16 * MIB, 512 * KIB), 0);
	check(page_seed(back, 16 * MIB, 0), 11);
	check(close_of(fd), 0);
	check(err_of(rename(temp, path)), 0);
	fd = (int)note(err_of(open(path, O_RDONLY | O_DIRECT | O_CLOEXEC)));
	if (fd < 0) {
		check_page(fd, 0);
		goto out;
	}
	memset(back, 0, 16 * MIB);
	check(ring_io(kind, fd, false, back, 16 * MIB, 256 * KIB), 0);
	check(page_seed(back, 16 * MIB, 0), 11);
	close(fd);
out:
	free(buf);
	free(back);
}

static void libaio(void)
{
	ring_pages(RING_AIO, "libaio");
}

static void uring(void)
{
	ring_pages(RING_URING, "io_uring");
}

/* One write, one read, up to 64 MiB; the size is right before the first read. */
static void one_call(void)
{
	static const long sizes[] = {8,       4095,         4096,     4097,     MIB - 1, MIB,
				     MIB + 1, 8 * MIB + 17, 16 * MIB, 36 * MIB, 64 * MIB};
	unsigned n = sizeof(sizes) / sizeof(sizes[0]);

	/* the pool of that phase takes pages up to 16 MiB */
	if (t.phase == FULL)
		n -= 2;
	for (unsigned i = 0; i < n; i++) {
		const char *path = page_path("whole", i);
		unsigned char *buf = page_new(sizes[i], 20 + i);
		char temp[PATH_BYTES + 8];
		int fd;

		snprintf(temp, sizeof(temp), "%s.tmp", path);
		open_or_return(fd, open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
		check(write(fd, buf, (size_t)sizes[i]), sizes[i]);
		check(close_of(fd), 0);
		check(err_of(rename(temp, path)), 0);
		free(buf);
		check_page(load_file(path, 0, sizes[i]), 20 + i);
		check_page(load_file(path, O_DIRECT, sizes[i]), 20 + i);
	}
}

/* What is open stays readable: evicted, replaced, unlinked. */
static void open_pins(void)
{
	const char *path = page_path("pinned", 3);
	unsigned char *back = page_new(4 * MIB, 0);
	char temp[PATH_BYTES + 8];
	int fds[3];

	snprintf(temp, sizeof(temp), "%s.tmp", path);
	for (unsigned i = 0; i < 3; i++) {
		check(store_file(temp, 0, 0644, 4 * MIB, 30 + i), 0);
		check(err_of(rename(temp, path)), 0);
		open_or_return(fds[i], open(path, O_RDONLY | O_CLOEXEC));
	}
	if (t.mount) {
		evict_space();
	}
	unlink(path);
	check(access(path, F_OK), -1);
	for (unsigned i = 0; i < 3; i++) {
		check(read_whole(fds[i], back, 4 * MIB), 0);
		check(page_seed(back, 4 * MIB, 0), 30 + i);
		check(pread(fds[i], back, 4096, 4 * MIB - 8), 8);
		check(close_of(fds[i]), 0);
	}
	free(back);
}

/* --- point 3 --- */

#define N_OVERTAKE 60

/* The name that a rename gave is read at once by another process, while the RELEASE is on its way.
 */
static void overtake_process(int who, void *arg)
{
	const struct engine *e = arg;

	for (unsigned i = 0; i < N_OVERTAKE; i++) {
		if (who == 0) {
			int rc = e->store(e, 700 + i % 7, i);

			if (rc && !(rc == -ENOSPC && t.phase == FULL))
				failed("store: %s", strerror(-rc));
		}
		meet(2);
		if (who == 1)
			check_page(e->load(e, 700 + i % 7), i);
		meet(2);
	}
}

static void rename_overtakes_release(void)
{
	const struct engine *e = sglang_engines;

	while (strcmp(e->name, "sglang_file_0.5.23") != 0)
		e++;
	in_processes(2, overtake_process, (void *)(uintptr_t)e);
}

/* A name that is written in place is absent until its writer has closed it, then whole for all. */
static void in_place_process(int who, void *arg)
{
	unsigned char *buf = page_new(MIB, 40);
	const char *path;
	int fd = -1;

	for (unsigned i = 0; i < 20; i++) {
		path = page_path((const char *)arg, 1000 + i);
		if (who == 0) {
			unlink(path);
			fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
			check_true(fd >= 0);
			check(write(fd, buf, MIB / 2), MIB / 2);
		}
		meet(2);
		if (who == 1) {
			check(access(path, F_OK), -1);
			check(open(path, O_RDONLY) < 0 ? -errno : 0, -ENOENT);
		}
		meet(2);
		if (who == 0) {
			check(write(fd, buf + MIB / 2, MIB / 2), MIB / 2);
			check(close_of(fd), 0);
		}
		meet(2);
		check_page(load_file(path, 0, MIB), 40);
		meet(2);
	}
	free(buf);
}

static void in_place_appears_whole(void)
{
	in_processes(2, in_place_process, (void *)(uintptr_t) "inplace");
}

/* --- point 4 --- */

/* A reader sees the old page or the new one; the size is right at once. */
static void replace_process(int who, void *arg)
{
	const char *path = page_path((const char *)arg, 4);
	unsigned char *buf = page_new(2 * MIB, 0);
	char temp[PATH_BYTES + 32];
	struct stat st;

	snprintf(temp, sizeof(temp), "%s.tmp.%d", path, getpid());
	for (unsigned i = 0; i < 40; i++) {
		long size = i & 1 ? MIB : 2 * MIB, got;
		int fd;

		if (who == 0) {
			if (store_file(temp, 0, 0644, size, (unsigned)size) == -ENOSPC)
				continue;
			check(err_of(rename(temp, path)), 0);
			if (stat(path, &st))
				check_page(-errno, 0);
			else
				check(st.st_size, size);
			continue;
		}
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		check(fstat(fd, &st), 0);
		got = read(fd, buf, 2 * MIB);
		check(got, st.st_size);
		check(page_seed(buf, got, 0), got);
		close(fd);
	}
	free(buf);
}

static void rename_replaces(void)
{
	in_processes(2, replace_process, (void *)(uintptr_t) "replaced");
}

/* vLLM's checksum xattr: set on the temporary, there after the rename; not left by an older page.
 */
static void rename_keeps_xattrs(void)
{
	const char *path = page_path("xattr", 5);
	const char *name = "user.vllm.kv_crc32c";
	char temp[PATH_BYTES + 8], value[64], list[1024];
	long n;

	snprintf(temp, sizeof(temp), "%s.tmp", path);
	check(store_file(temp, 0, 0644, MIB, 50), 0);
	if (setxattr(temp, name, "c0ffee", 6, 0)) {
		if (errno == EOPNOTSUPP && t.phase == PLAIN)
			skip_case("this file system has no user xattrs");
		else
			failed("setxattr: %s", strerror(errno));
		return;
	}
	check(err_of(rename(temp, path)), 0);
	check(err_of(getxattr(path, name, value, sizeof(value))), 6);
	check(memcmp(value, "c0ffee", 6), 0);
	n = listxattr(path, list, sizeof(list));
	check_true(n > 0 && memmem(list, (size_t)n, name, strlen(name) + 1));
	check_page(load_file(path, 0, MIB), 50);
	check(store_file(temp, 0, 0644, MIB, 51), 0);
	check(err_of(rename(temp, path)), 0);
	check(err_of(getxattr(path, name, value, sizeof(value))), -ENODATA);
	check_page(load_file(path, 0, MIB), 51);
}

/* --- point 12 --- */

static void user_xattrs(void)
{
	static const char *const others[] = {"trusted.x", "security.x", "system.x"};
	const char *path = page_path("xattrs", 6), *file = at("small.json");
	char value[64];

	check(store_file(path, 0, 0644, MIB, 60), 0);
	check(store_file(file, 0, 0644, 64, 61), 0);
	for (unsigned i = 0; i < 3; i++)
		check(err_of(setxattr(path, others[i], "x", 1, 0)), -EOPNOTSUPP);
	check(err_of(setxattr(path, "user.engine", "abc", 3, 0)), 0);
	check(err_of(setxattr(path, "user.engine", "abcd", 4, XATTR_CREATE)), -EEXIST);
	check(err_of(getxattr(path, "user.engine", value, sizeof(value))), 3);
	check(err_of(removexattr(path, "user.engine")), 0);
	check(err_of(getxattr(path, "user.engine", value, sizeof(value))), -ENODATA);
	unlink(file);
}

/* Ordinary files can be mapped always; pages too, or ENODEV tells that they cannot. */
static void shared_map(void)
{
	const char *paths[2] = {at("tokenizer.json"), page_path("map", 7)};
	long sizes[2] = {40000, MIB};

	for (unsigned i = 0; i < 2; i++) {
		void *map;
		int fd;

		check(store_file(paths[i], 0, 0644, sizes[i], 70 + i), 0);
		open_or_return(fd, open(paths[i], O_RDONLY | O_CLOEXEC));
		map = mmap(NULL, (size_t)sizes[i], PROT_READ, MAP_SHARED, fd, 0);
		if (map == MAP_FAILED) {
			check(i == 1 ? -errno : -errno - 1000, -ENODEV);
			skip_case("no shared mappings of pages here (ENODEV)");
		} else {
			check(page_seed(map, sizes[i], 0), 70 + i);
			munmap(map, (size_t)sizes[i]);
		}
		close(fd);
	}
	unlink(paths[0]);
}

/* --- point 13 --- */

/* No room is said at fallocate, not by EIO; what can never fit takes no page with it. */
static void no_space_early(void)
{
	const char *path = page_path("huge", 8), *other = page_path("huge", 9);
	char temp[PATH_BYTES + 8];
	struct stat st;
	long rc;
	int fd;

	check(store_file(other, 0, 0644, MIB, 9), 0);
	check_page(load_file(other, 0, MIB), 9);
	snprintf(temp, sizeof(temp), "%s.tmp", path);
	open_or_return(fd, open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
	rc = err_of(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1l << 42));
	check_true(rc == -ENOSPC || rc == -EFBIG);
	check(fstat(fd, &st), 0);
	check(st.st_size, 0);
	check(write(fd, "0123456789abcdef", 16), 16);
	check(close_of(fd), 0);
	check(unlink(temp), 0);
	if (t.mount)
		drop_memory();
	check_page(load_file(other, 0, MIB), 9);
}

const struct contract_case byte_cases[] = {
	{1, "o_direct_unaligned", direct_io, NULL, MOUNTED, false},
	{1, "libaio", libaio, NULL, EVERYWHERE, false},
	{1, "io_uring", uring, NULL, EVERYWHERE, false},
	{2, "one_call_to_64_mib", one_call, NULL, MOUNTED, false},
	{2, "open_pins", open_pins, NULL, NOT_FULL, false},
	{3, "rename_overtakes_release", rename_overtakes_release, NULL, EVERYWHERE, false},
	{3, "in_place_appears_whole", in_place_appears_whole, NULL, OURS, false},
	{4, "rename_replaces", rename_replaces, NULL, EVERYWHERE, false},
	{4, "rename_keeps_xattrs", rename_keeps_xattrs, NULL, NOT_FULL, false},
	{12, "xattrs_user_only", user_xattrs, NULL, OURS, false},
	{12, "shared_read_map", shared_map, NULL, NOT_FULL, false},
	{13, "no_space_early", no_space_early, NULL, EVERYWHERE, false},
	{.name = NULL},
};
