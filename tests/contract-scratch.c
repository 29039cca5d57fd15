/* SPDX-License-Identifier: Apache-2.0 */
/* Files that engines allocate, write in place and read back through one descriptor for life (point
 * 10): never in the pool, never a page. */
#include <sys/uio.h>

#include "tests/contract.h"

struct seen {
	long n_pages, memory_bytes;
};

static struct seen look(void)
{
	struct seen s = {0, 0};

	if (t.mount) {
		s.n_pages = stat_line("n_pages");
		s.memory_bytes = stat_line("memory_bytes");
	}
	return s;
}

static void check_unseen(struct seen before)
{
	if (t.phase == FULL)
		return;
	check(look().n_pages, before.n_pages);
	check(look().memory_bytes, before.memory_bytes);
}

/* KVBM: mkostemp, O_DIRECT by fcntl, allocated whole, unlinked while open, random I/O. */
static void kvbm(void)
{
	unsigned char *buf = page_new(MIB, 1), *back = page_new(MIB, 0);
	struct seen before = look();
	char path[PATH_BYTES];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s", at("dynamo-kvbm-disk-cache-XXXXXX"));
	open_or_return(fd, mkostemp(path, O_CLOEXEC));
	check(fcntl(fd, F_SETFL, O_DIRECT), 0);
	check(err_of(fallocate(fd, 0, 0, 256 * MIB)), 0);
	check(err_of(unlink(path)), 0);
	check(fstat(fd, &st), 0);
	check(st.st_size, 256 * MIB);
	for (long i = 0; i < 32; i++) {
		page_fill(buf, MIB, 100 + (unsigned)i);
		check(pwrite(fd, buf, MIB, (i * 37 % 256) * MIB), MIB);
	}
	for (long i = 31; i >= 0; i--) {
		check(pread(fd, back, MIB, (i * 37 % 256) * MIB), MIB);
		check(page_seed(back, MIB, 0), 100 + i);
	}
	check(pread(fd, back, MIB, 255 * MIB), MIB);
	for (long i = 0; i < MIB; i++)
		if (back[i])
			failed("a hole is not zero at %ld", i), i = MIB;
	check_unseen(before);
	check(access(path, F_OK), -1);
	check(close_of(fd), 0);
	free(buf);
	free(back);
}

/* vLLM SimpleCPUOffload: the whole capacity, sparse; one iovec a tensor; unlinked at the end. */
static void simple_cpu_offload(void)
{
	const char *path = at("offload.rank_0");
	const long capacity = 300l << 30;
	unsigned char *buf = page_new(MIB, 200), *back = page_new(MIB, 0);
	struct iovec out[3] = {
		{buf, 4096}, {buf + 4096, MIB / 2}, {buf + 4096 + MIB / 2, MIB / 2 - 4096}};
	struct iovec in[2] = {{back, MIB / 4}, {back + MIB / 4, MIB - MIB / 4}};
	struct seen before = look();
	struct stat st;
	int fd, other;

	if (unlink(path))
		check(-errno, -ENOENT);
	open_or_return(fd, open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_DIRECT | O_CLOEXEC,
				0600));
	check(err_of(ftruncate(fd, capacity)), 0);
	check(fstat(fd, &st), 0);
	check(st.st_size, capacity);
	for (long i = 0; i < 8; i++) {
		page_fill(buf, MIB, 200 + (unsigned)i);
		check(err_of(pwritev(fd, out, 3, i * (capacity / 8))), MIB);
	}
	for (long i = 0; i < 8; i++) {
		check(err_of(preadv(fd, in, 2, i * (capacity / 8))), MIB);
		check(page_seed(back, MIB, 0), 200 + i);
	}
	/* a second worker of the same rank is refused; a reader sees what was written */
	check(open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600) < 0 ? -errno : 0, -EEXIST);
	open_or_return(other, open(path, O_RDONLY | O_DIRECT | O_CLOEXEC));
	check(pread(other, back, MIB, capacity / 8 * 7), MIB);
	check(page_seed(back, MIB, 0), 207);
	check(close_of(other), 0);
	check_unseen(before);
	check(close_of(fd), 0);
	check(stat(path, &st), 0);
	check(st.st_size, capacity);
	check(err_of(unlink(path)), 0);
	check(access(path, F_OK), -1);
	free(buf);
	free(back);
}

/* NIXL's static pools: obj_<i>_<4 hex>.bin, open for life, libaio at random offsets. */
static void nixl_pool(void)
{
	const long size = 96 * MIB;
	unsigned char *buf = page_new(4 * MIB, 300), *back = page_new(4 * MIB, 0);
	int fds[2];

	for (int i = 0; i < 2; i++) {
		const char *path = at("obj_%d_a1b%d.bin", i, i);

		unlink(path);
		open_or_return(fds[i], open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0644));
		check(err_of(ftruncate(fds[i], size)), 0);
	}
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 2; i++) {
			check(ring_io(RING_AIO, fds[i], true, buf, 4 * MIB, 256 * KIB), 0);
			check(pwrite(fds[i], buf, 4 * MIB, 64 * MIB), 4 * MIB);
			check(ring_io(RING_AIO, fds[i], false, back, 4 * MIB, MIB), 0);
			check(page_seed(back, 4 * MIB, 0), 300);
			check(pread(fds[i], back, 4 * MIB, 64 * MIB), 4 * MIB);
			check(page_seed(back, 4 * MIB, 0), 300);
		}
	}
	for (int i = 0; i < 2; i++) {
		check(close_of(fds[i]), 0);
		check(err_of(unlink(at("obj_%d_a1b%d.bin", i, i))), 0);
	}
	free(buf);
	free(back);
}

/* fallocate with and without KEEP_SIZE, ftruncate both ways, pwrite in any order: then a page. */
static void sizes_in_place(void)
{
	const char *path = at("%s_sizes.bin", hash_of(11));
	char temp[PATH_BYTES + 8];
	unsigned char *buf = page_new(MIB, 400);
	struct stat st;
	int fd;

	snprintf(temp, sizeof(temp), "%s.tmp", path);
	open_or_return(fd, open(temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
	check(err_of(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, MIB)), 0);
	check(fstat(fd, &st), 0);
	check(st.st_size, 0);
	check(err_of(fallocate(fd, 0, 0, MIB / 2)), 0);
	check(fstat(fd, &st), 0);
	check(st.st_size, MIB / 2);
	check(err_of(ftruncate(fd, 3 * MIB)), 0);
	for (long i = 15; i >= 0; i--)
		check(pwrite(fd, buf + i * (MIB / 16), MIB / 16, i * (MIB / 16)), MIB / 16);
	check(err_of(ftruncate(fd, MIB)), 0);
	check(fstat(fd, &st), 0);
	check(st.st_size, MIB);
	check(close_of(fd), 0);
	check(err_of(rename(temp, path)), 0);
	check_page(load_file(path, 0, MIB), 400);
	free(buf);
}

const struct contract_case scratch_cases[] = {
	{10, "kvbm_unlinked_scratch", kvbm, NULL, NOT_FULL, false},
	{10, "vllm_simple_cpu_offload", simple_cpu_offload, NULL, NOT_FULL, false},
	{10, "nixl_static_pool", nixl_pool, NULL, NOT_FULL, false},
	{10, "sizes_in_place", sizes_in_place, NULL, EVERYWHERE, false},
	{.name = NULL},
};
