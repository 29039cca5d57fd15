/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's fs tier (0.33: C file I/O, with and without O_DIRECT), its ExampleConnector, and llm-d's
 * file system backend, which uses the same tree. */
#include <sys/syscall.h>

#include "tests/contract.h"

enum { DIRECT, BUFFERED };

/* <root>/<model>_<12 hex>_r0/<hhh>/<hh>_g<group>/<hash>.bin */
static const char *final_of(const struct engine *e, unsigned key)
{
	const char *hash = hash_of(key);

	return at("org_model%d_0a1b2c3d4e5f_r0/%.3s/%.2s_g0/%s.bin", e->form, hash, hash + 3, hash);
}

/* Existence is access(2), from a batch in C. */
static bool exists(const struct engine *e, unsigned key)
{
	return access(final_of(e, key), F_OK) == 0;
}

/* config.json and the probe for O_DIRECT; on a failure of the probe it goes on without. */
static void start(const struct engine *e)
{
	const char *config = at("org_model%d_0a1b2c3d4e5f/config.json", e->form);
	const char *probe = at(".o_direct_probe_%d.tmp", getpid());
	void *buf = page_new(UNIT, 1);
	int fd;

	check(make_parents(config, 0777), 0);
	if (access(config, F_OK)) {
		open_or_return(fd, open(config, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
		check(write(fd, "{}\n", 3), 3);
		check(close_of(fd), 0);
	}
	open_or_return(fd, open(probe, O_CREAT | O_WRONLY | O_TRUNC | O_DIRECT, 0644));
	check(write(fd, buf, UNIT), UNIT);
	check(close_of(fd), 0);
	check(unlink(probe), 0);
	free(buf);
}

/* One write; a short count is an error. The suffix is that of the thread, for life. */
static int store(const struct engine *e, unsigned key, unsigned seed)
{
	const char *final = final_of(e, key);
	int direct = e->form == DIRECT ? O_DIRECT : 0, fd, rc;
	char temp[PATH_BYTES + 32];
	unsigned char *buf;
	ssize_t n;

	rc = make_parents(final, 0777);
	if (rc)
		return rc;
	snprintf(temp, sizeof(temp), "%s_%019ld.tmp", final,
		 4611686018427387904l + syscall(SYS_gettid));
	fd = (int)err_of(
		open(temp, O_CREAT | O_EXCL | O_WRONLY | O_TRUNC | O_CLOEXEC | direct, 0644));
	if (fd < 0)
		return (int)note(fd);
	buf = page_new(e->size_bytes, seed);
	n = write(fd, buf, (size_t)e->size_bytes);
	rc = n == e->size_bytes ? 0 : n < 0 ? -errno : -ENOSPC;
	free(buf);
	if (close(fd) && !rc)
		rc = -errno;
	if (!rc)
		rc = (int)err_of(rename(temp, final));
	if (rc)
		unlink(temp);
	return (int)note(rc);
}

/* One read into memory that it owns; no fstat. */
static long load(const struct engine *e, unsigned key)
{
	int fd = (int)err_of(
		open(final_of(e, key), O_RDONLY | O_CLOEXEC | (e->form == DIRECT ? O_DIRECT : 0)));
	unsigned char *buf;
	long rc;

	if (fd < 0)
		return note(fd);
	buf = page_new(e->size_bytes, 0);
	rc = read_whole(fd, buf, e->size_bytes);
	close(fd);
	if (!rc)
		rc = note(page_seed(buf, e->size_bytes, 0));
	free(buf);
	return rc;
}

/* --- llm-d --- */

/* An ofstream of 1 MiB, closed by the end of its scope: after the rename. A hit is touched. */
static int llmd_store(const struct engine *e, unsigned key, unsigned seed)
{
	const struct timespec touch[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
	const char *final = final_of(e, key);
	char temp[PATH_BYTES + 32];
	unsigned char *buf;
	int fd, rc;

	fd = open(final, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		close(fd);
		if (utimensat(AT_FDCWD, final, touch, 0) && errno != ENOENT)
			return -errno;
	}
	rc = make_parents(final, 0777);
	if (rc)
		return rc;
	snprintf(temp, sizeof(temp), "%s_%ld.tmp", final, 7000000 + syscall(SYS_gettid));
	fd = (int)err_of(open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
	if (fd < 0)
		return (int)note(fd);
	buf = page_new(e->size_bytes, seed);
	for (long done = 0; done < e->size_bytes && !rc; done += MIB)
		rc = write_whole(fd, buf + done,
				 e->size_bytes - done < MIB ? e->size_bytes - done : MIB);
	free(buf);
	if (!rc)
		rc = (int)err_of(rename(temp, final));
	if (close(fd) && !rc)
		rc = -errno;
	if (rc)
		unlink(temp);
	return (int)note(rc);
}

/* Size by seeking to the end; then the tail that it needs. */
static long llmd_load(const struct engine *e, unsigned key)
{
	int fd = (int)err_of(open(final_of(e, key), O_RDONLY | O_CLOEXEC));
	long half = e->size_bytes / 2, rc;
	unsigned char *buf;

	if (fd < 0)
		return note(fd);
	buf = page_new(e->size_bytes, 0);
	rc = lseek(fd, 0, SEEK_END) == e->size_bytes ? 0 : note(-ENODATA);
	if (!rc && lseek(fd, half, SEEK_SET) != half)
		rc = -errno;
	if (!rc)
		rc = read_whole(fd, buf, half);
	close(fd);
	if (!rc)
		rc = note(page_seed(buf, half, half));
	free(buf);
	return rc;
}

/* --- ExampleConnector: a folder a prompt, safetensors in place, read by a mapping --- */

static const char *example_path(unsigned key)
{
	return at("%.32s/model.layers.0.self_attn.attn.safetensors", hash_of(key));
}

static bool example_exists(const struct engine *e, unsigned key)
{
	return access(example_path(key), F_OK) == 0;
}

static int example_store(const struct engine *e, unsigned key, unsigned seed)
{
	const char *path = example_path(key);
	int rc = make_parents(path, 0777);

	return rc ? rc : store_file(path, 0, 0666, e->size_bytes, seed);
}

static long example_load(const struct engine *e, unsigned key)
{
	int fd = (int)err_of(open(example_path(key), O_RDONLY | O_CLOEXEC));
	struct stat st;
	void *map;
	long rc;

	if (fd < 0)
		return note(fd);
	if (fstat(fd, &st) || st.st_size != e->size_bytes) {
		close(fd);
		return note(-ENODATA);
	}
	map = mmap(NULL, (size_t)e->size_bytes, PROT_READ, MAP_SHARED, fd, 0);
	rc = map == MAP_FAILED ? -errno : 0;
	close(fd);
	if (rc)
		return rc;
	rc = note(page_seed(map, e->size_bytes, 0));
	munmap(map, (size_t)e->size_bytes);
	return rc;
}

const struct engine vllm_engines[] = {
	{.name = "vllm_fs_o_direct",
	 .size_bytes = 256 * KIB,
	 .store = store,
	 .load = load,
	 .exists = exists,
	 .start = start,
	 .form = DIRECT},
	{.name = "vllm_fs_buffered",
	 .size_bytes = 256 * KIB + 512,
	 .store = store,
	 .load = load,
	 .exists = exists,
	 .start = start,
	 .form = BUFFERED},
	{.name = "llm_d",
	 .size_bytes = 512 * KIB + 128 * KIB,
	 .store = llmd_store,
	 .load = llmd_load,
	 .exists = exists,
	 .form = 2},
	{.name = "vllm_example_connector",
	 .size_bytes = 3 * MIB + 17,
	 .store = example_store,
	 .load = example_load,
	 .exists = example_exists,
	 .needs_map = true,
	 .shares_no_key = true},
	{.name = NULL},
};
