/* SPDX-License-Identifier: Apache-2.0 */
/* What engines do to the directory of their file backend, call by call, as traced from them.
 * Usage: fuse-engines DIRECTORY [SCENARIO] */
#include <sys/statvfs.h>
#include <sys/uio.h>

#include "tests/fuse-actors.h"

#define PAGE   (2l << 20)
#define ALIGN  4096
#define N_RACE 100

/* Memory for O_DIRECT, all of one byte. */
static unsigned char *page_of(int byte, long size)
{
	unsigned char *buf = aligned_alloc(ALIGN, (size_t)(size + ALIGN - 1) / ALIGN * ALIGN);

	memset(buf, byte, (size_t)size);
	return buf;
}

static const char *in_mount(const char *format, ...)
{
	static char paths[8][PATH_BYTES];
	static unsigned next;
	char *path = paths[next++ % 8];
	int n = snprintf(path, PATH_BYTES, "%s/", mount_dir);
	va_list args;

	va_start(args, format);
	vsnprintf(path + n, PATH_BYTES - (size_t)n, format, args);
	va_end(args);
	return path;
}

static long write_once(int fd, int byte, long size)
{
	unsigned char *buf = page_of(byte, size);
	long rc = err_of(write(fd, buf, (size_t)size));

	free(buf);
	return rc;
}

/* open, fstat, one read of all, close; the byte, or -errno */
static long load(const char *path, int flags, long size)
{
	unsigned char *buf = page_of(0, size);
	int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
	struct stat st;
	long got;

	if (fd < 0) {
		free(buf);
		return -errno;
	}
	got = fstat(fd, &st) ? -errno : st.st_size == size ? 0 : -ERANGE;
	if (!got)
		got = err_of(read(fd, buf, (size_t)size));
	close(fd);
	got = got < 0 ? got : got != size ? -ENODATA : uniform(buf, got);
	free(buf);
	return got;
}

/* SGLang before mid-2026: straight to the final name. */
static void sglang_in_place(void)
{
	const char *path = in_mount("%s", page_name(1));
	int fd;

	check(access(path, F_OK), -1);
	check_open(fd, open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
	check(write_once(fd, 's', PAGE), PAGE);
	check(close(fd), 0);
	check(load(path, 0, PAGE), 's');
}

/* <final>.tmp.<pid>.<tid>.<uuid>, fallocate for large arrays, one write, rename. */
static void sglang_tmp(void)
{
	const char *path = in_mount("%s", page_name(2));
	char temp[PATH_BYTES + 80];
	struct stat st;
	int fd;

	snprintf(temp, sizeof(temp), "%s.tmp.%d.%d.0f7c3f5be81d4f0ca1c6", path, getpid(), getpid());
	check(stat(path, &st), -1);
	check_open(fd, open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
	check(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 16 << 20), 0);
	check(write_once(fd, 't', 16l << 20), 16l << 20);
	check(close(fd), 0);
	check(rename(temp, path), 0);
	check(stat(path, &st), 0);
	check(st.st_size, 16l << 20);
	check(load(path, 0, 16l << 20), 't');
}

/* 0.5.23: .<32 hex>.tmp, a duplicate of the descriptor, series known only at the rename. */
static void sglang_uuid(void)
{
	for (unsigned i = 0; i < 20; i++) {
		const char *path = in_mount("%s", page_name(10 + i));
		const char *temp = in_mount(".%032x.tmp", 0xabc000u + i);
		struct stat st;
		int fd, copy;

		check_open(fd, open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
		check(fstat(fd, &st), 0);
		check(isatty(fd), 0);
		check_open(copy, dup(fd));
		check(lseek(copy, 0, SEEK_CUR), 0);
		check(write_once(copy, 'u', PAGE), PAGE);
		check(close(copy), 0);
		check(close(fd), 0);
		check(rename(temp, path), 0);
		check(load(path, 0, PAGE), 'u');
		check(access(temp, F_OK), -1);
	}
}

static void make_parents(const char *path)
{
	char copy[PATH_BYTES];
	size_t skip = strlen(mount_dir) + 1;

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *p = copy + skip; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		if (mkdir(copy, 0777) && errno != EEXIST)
			check(-errno, 0);
	}
}

/* vLLM's fs tier: config.json, probe with O_DIRECT, tree by digits, O_EXCL temporary, one write. */
static void vllm(void)
{
	const char *hash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	const char *path =
		in_mount("org_model_0a1b2c3d4e5f_r0/%.3s/%.2s_g0/%s.bin", hash, hash + 3, hash);
	const char *config = in_mount("org_model_0a1b2c3d4e5f/config.json");
	const char *probe = in_mount(".o_direct_probe_17.tmp");
	char temp[PATH_BYTES + 80];
	int fd;

	make_parents(config);
	check_open(fd, open(config, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
	check(write(fd, "{}\n", 3), 3);
	check(close(fd), 0);
	check_open(fd, open(probe, O_CREAT | O_WRONLY | O_TRUNC | O_DIRECT, 0644));
	check(write_once(fd, 0, ALIGN), ALIGN);
	check(close(fd), 0);
	check(unlink(probe), 0);
	check(access(path, F_OK), -1);
	make_parents(path);
	snprintf(temp, sizeof(temp), "%s_4611686018427387904.tmp", path);
	check_open(fd, open(temp, O_CREAT | O_EXCL | O_WRONLY | O_TRUNC | O_DIRECT, 0644));
	check(open(temp, O_CREAT | O_EXCL | O_WRONLY, 0644) < 0 ? -errno : 0, -EEXIST);
	check(write_once(fd, 'v', PAGE), PAGE);
	check(close(fd), 0);
	check(rename(temp, path), 0);
	check(load(path, O_DIRECT, PAGE), 'v');
	check(access(path, F_OK), 0);
}

/* LMCache fs: every process uses the same temporary name, at the same moment. */
static void lmcache_store(const char *final, const char *temp, int byte, int *failed)
{
	int fd = open(temp, O_CREAT | O_WRONLY | O_TRUNC, 0644);

	if (fd < 0 || write_once(fd, byte, PAGE / 4) != PAGE / 4 || close(fd) ||
	    rename(temp, final))
		++*failed;
}

static void lmcache(void)
{
	int failed = 0;
	/* a bus of two bytes in each direction keeps both in step */
	int there[2], back[2];
	char go = 0;
	pid_t pid;

	if (pipe(there) || pipe(back))
		exit(99);
	pid = fork();
	for (unsigned i = 0; i < N_RACE; i++) {
		const char *final = in_mount("m-SEP-x@0x00010000@0@%064x.data", 0x1000u + i);
		const char *temp = in_mount("m-SEP-x@0x00010000@0@%064x.tmp", 0x1000u + i);
		long byte;

		if (pid == 0) {
			if (read(there[0], &go, 1) != 1)
				_exit(99);
			lmcache_store(final, temp, 'b', &failed);
			if (write(back[1], &go, 1) != 1)
				_exit(99);
			continue;
		}
		if (write(there[1], &go, 1) != 1)
			exit(99);
		lmcache_store(final, temp, 'a', &failed);
		byte = load(final, 0, PAGE / 4);
		check(byte == 'a' || byte == 'b', 1);
		if (read(back[0], &go, 1) != 1)
			exit(99);
		byte = load(final, 0, PAGE / 4);
		check(byte == 'a' || byte == 'b', 1);
	}
	if (pid == 0)
		_exit(failed != 0);
	check(failed, 0);
	waitpid(pid, &failed, 0);
	check(failed, 0);
}

/* With relative_tmp_dir the temporary has the final name, in a directory .tmp that is made once. */
static void lmcache_tmp_dir(void)
{
	const char *dir = in_mount(".tmp");
	const char *final = in_mount("m@0x00010000@0@%064x.data", 0x77u);
	const char *temp = in_mount(".tmp/m@0x00010000@0@%064x.data", 0x77u);
	int fd;

	check(mkdir(dir, 0777), 0);
	check_open(fd, open(temp, O_CREAT | O_WRONLY | O_TRUNC, 0644));
	check(write_once(fd, 'l', PAGE), PAGE);
	check(close(fd), 0);
	check(access(final, F_OK), -1);
	check(rename(temp, final), 0);
	check(load(final, 0, PAGE), 'l');
	check(access(dir, F_OK), 0);
}

/* NIXL under SGLang: O_DIRECT, no O_TRUNC, in place, K and V, written in pieces by offset. */
static void nixl(void)
{
	for (int round = 0; round < 2; round++) {
		for (int k = 0; k < 2; k++) {
			const char *path =
				in_mount("5e/%064x_model_0_1_%c", 0x5e5e5eu, k ? 'v' : 'k');
			unsigned char *buf = page_of('A' + round, PAGE);
			int fd;

			make_parents(path);
			check_open(fd, open(path, O_RDWR | O_CREAT | O_DIRECT, 0644));
			for (long at = 0; at < PAGE; at += PAGE / 4)
				check(pwrite(fd, buf + at, PAGE / 4, at), PAGE / 4);
			check(close(fd), 0);
			check(load(path, O_DIRECT, PAGE), 'A' + round);
			free(buf);
			/* opened for reading as for writing */
			check_open(fd, open(path, O_RDWR | O_CREAT | O_DIRECT, 0644));
			buf = page_of(0, PAGE);
			check(pread(fd, buf, PAGE, 0), PAGE);
			check(uniform(buf, PAGE), 'A' + round);
			free(buf);
			check(close(fd), 0);
			check(load(path, 0, PAGE), 'A' + round);
		}
	}
}

/* AIBrix looks at existence and size right after the rename; UCM writes with O_DIRECT and touches.
 */
static void shards(void)
{
	const char *path = in_mount("conn/0a/1b/%032x", 0xa1b2c3u);
	char temp[PATH_BYTES + 8];
	struct stat st;
	int fd;

	make_parents(path);
	snprintf(temp, sizeof(temp), "%s.tmp", path);
	check_open(fd, open(temp, O_CREAT | O_WRONLY | O_DIRECT, 0644));
	check(write_once(fd, 'x', PAGE), PAGE);
	check(close(fd), 0);
	check(rename(temp, path), 0);
	check(stat(path, &st), 0);
	check(st.st_size, PAGE);
	check(utimensat(AT_FDCWD, path, NULL, 0), 0);
	check(load(path, O_DIRECT, PAGE), 'x');
}

/* KVBM: a temporary that is allocated, unlinked, and used for life. */
static void scratch_unlinked(void)
{
	char path[PATH_BYTES];
	unsigned char *buf = page_of('K', PAGE), *back = page_of(0, PAGE);
	int fd;

	snprintf(path, sizeof(path), "%s", in_mount("dynamo-kvbm-disk-cache-XXXXXX"));
	check_open(fd, mkostemp(path, O_CLOEXEC));
	check(fcntl(fd, F_SETFL, O_DIRECT), 0);
	check(fallocate(fd, 0, 0, 256l << 20), 0);
	check(unlink(path), 0);
	for (long at = 0; at < 8; at++)
		check(pwrite(fd, buf, PAGE, at * (32l << 20)), PAGE);
	check(pread(fd, back, PAGE, 3 * (32l << 20)), PAGE);
	check(uniform(back, PAGE), 'K');
	check(pread(fd, back, PAGE, 16l << 20), PAGE);
	check(uniform(back, PAGE), 0);
	check(access(path, F_OK), -1);
	check(close(fd), 0);
	free(buf);
	free(back);
}

/* vLLM SimpleCPUOffload: one large sparse file a worker, vectored I/O, unlinked at the end. */
static void scratch_named(void)
{
	const char *path = in_mount("offload.rank_0");
	unsigned char *buf = page_of('S', PAGE), *back = page_of(0, PAGE);
	struct iovec out[2] = {{buf, PAGE / 2}, {buf + PAGE / 2, PAGE / 2}};
	struct iovec in[2] = {{back, PAGE / 4}, {back + PAGE / 4, PAGE - PAGE / 4}};
	struct stat st;
	int fd, other;

	check_open(fd, open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_DIRECT, 0600));
	check(ftruncate(fd, 1l << 30), 0);
	check(fstat(fd, &st), 0);
	check(st.st_size, 1l << 30);
	check(pwritev(fd, out, 2, 700l << 20), PAGE);
	check(preadv(fd, in, 2, 700l << 20), PAGE);
	check(uniform(back, PAGE), 'S');
	check_open(other, open(path, O_RDWR | O_DIRECT));
	check(pread(other, back, PAGE, 700l << 20), PAGE);
	check(uniform(back, PAGE), 'S');
	check(close(other), 0);
	check(close(fd), 0);
	check_open(fd, open(path, O_RDWR | O_DIRECT));
	check(pread(fd, back, PAGE, 700l << 20), PAGE);
	check(uniform(back, PAGE), 'S');
	check(close(fd), 0);
	check(unlink(path), 0);
	check(stat(path, &st), -1);
	free(buf);
	free(back);
}

/* LMCache GDS without GDS: written, closed, grown, filled through a shared map after the close,
 * renamed. */
static void gds_map(void)
{
	const char *final = in_mount("0a/1b/%064x.kvcache.safetensors", 0x6d5u);
	char temp[PATH_BYTES + 16];
	unsigned char *map;
	int fd;

	make_parents(final);
	snprintf(temp, sizeof(temp), "%s.tmp0badcafe", final);
	check_open(fd, open(temp, O_WRONLY | O_CREAT | O_TRUNC, 0644));
	check(write_once(fd, 'g', ALIGN), ALIGN);
	check(close(fd), 0);
	check_open(fd, open(temp, O_RDWR));
	check(ftruncate(fd, PAGE), 0);
	map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		/* a kernel that has no shared maps of direct I/O says so, clearly */
		check(errno, ENODEV);
		check(close(fd), 0);
		check(unlink(temp), 0);
		return;
	}
	check(close(fd), 0);
	memset(map, 'g', PAGE);
	check(munmap(map, PAGE), 0);
	check(rename(temp, final), 0);
	check(load(final, 0, PAGE), 'g');
	fd = open(final, O_RDONLY);
	map = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	check(map == MAP_FAILED, 0);
	check(uniform(map, PAGE), 'g');
	munmap(map, PAGE);
	map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	check(map == MAP_FAILED, 0);
	check(uniform(map, PAGE), 'g');
	munmap(map, PAGE);
	close(fd);
}

/* Engines take the unit of O_DIRECT and their caps from statvfs. */
static void room(void)
{
	struct statvfs st;

	check(statvfs(mount_dir, &st), 0);
	check((long)st.f_bsize, ALIGN);
	check((long)st.f_frsize, ALIGN);
	check(st.f_blocks > 0, 1);
	check(st.f_bavail <= st.f_blocks, 1);
	check((long)st.f_namemax, 255);
}

static const struct {
	const char *name;
	void (*run)(void);
} scenarios[] = {
	{"sglang_in_place", sglang_in_place},
	{"sglang_tmp", sglang_tmp},
	{"sglang_uuid", sglang_uuid},
	{"vllm", vllm},
	{"lmcache", lmcache},
	{"lmcache_tmp_dir", lmcache_tmp_dir},
	{"nixl", nixl},
	{"shards", shards},
	{"scratch_unlinked", scratch_unlinked},
	{"scratch_named", scratch_named},
	{"gds_map", gds_map},
	{"room", room},
};

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: fuse-engines DIRECTORY [SCENARIO]\n");
		return 2;
	}
	mount_dir = argv[1];
	for (unsigned i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		int before = n_failed;

		if (argc > 2 && strcmp(argv[2], scenarios[i].name) != 0)
			continue;
		scenarios[i].run();
		printf("%s %s\n", n_failed == before ? "ok" : "not ok", scenarios[i].name);
		fflush(stdout);
	}
	return n_failed != 0;
}
