/* SPDX-License-Identifier: Apache-2.0 */
/* SGLang's file backend in its three generations, and its NIXL backend over all queues of NIXL's
 * POSIX plug-in (fds of the caller, and paths). */
#include <stdint.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include "tests/contract.h"

enum { IN_PLACE, TMP_PID, TMP_UUID };

static const char *final_of(const struct engine *e, unsigned key)
{
	return at("%s_form%d-model_0_1.bin", hash_of(key), e->form);
}

static bool stat_exists(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0;
}

static bool exists(const struct engine *e, unsigned key)
{
	return stat_exists(final_of(e, key));
}

/* 0.5.2 and 0.5.3: numpy's tofile on the final name. */
static int store_in_place(const struct engine *e, unsigned key, unsigned seed)
{
	const char *path = final_of(e, key);

	stat_exists(path);
	return store_file(path, 0, 0666, e->size_bytes, seed);
}

/* Mid-2026: room is looked for, arrays of 16 MiB and more are allocated (only ENOSPC matters). */
static int store_tmp_pid(const struct engine *e, unsigned key, unsigned seed)
{
	static atomic_uint serial;
	const char *final = final_of(e, key);
	char temp[PATH_BYTES];
	unsigned char *buf;
	struct statvfs room;
	int fd, rc;

	snprintf(temp, sizeof(temp), "%s.tmp.%d.%ld.%032x", final, getpid(), syscall(SYS_gettid),
		 atomic_fetch_add(&serial, 1) ^ seed << 16);
	stat_exists(final);
	if (statvfs(t.dir, &room))
		return -errno;
	fd = (int)err_of(open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
	if (fd < 0)
		return (int)note(fd);
	buf = page_new(e->size_bytes, seed);
	rc = e->size_bytes >= 16 * MIB && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, e->size_bytes) &&
			     errno == ENOSPC
		     ? -ENOSPC
		     : write_whole(fd, buf, e->size_bytes);
	free(buf);
	if (close(fd) && !rc)
		rc = -errno;
	if (!rc)
		rc = (int)err_of(rename(temp, final));
	if (rc)
		unlink(temp);
	return (int)note(rc);
}

/* 0.5.23, as traced: the temporary's name tells neither hash nor series; the write goes through a
 * duplicate, so two closes; the rename may overtake the kernel's RELEASE. */
static int store_tmp_uuid(const struct engine *e, unsigned key, unsigned seed)
{
	static atomic_uint serial;
	const char *final = final_of(e, key);
	const char *temp = at(".%08x%08x%08x%08x.tmp", (unsigned)getpid(), seed, key,
			      atomic_fetch_add(&serial, 1));
	unsigned char *buf;
	struct stat st;
	int fd, copy, rc;

	stat_exists(final);
	fd = (int)err_of(open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
	if (fd < 0)
		return (int)note(fd);
	rc = fstat(fd, &st) ? -errno : isatty(fd) ? -ENOTTY : 0;
	copy = dup(fd);
	if (!rc && (copy < 0 || lseek(copy, 0, SEEK_CUR) != 0))
		rc = -errno;
	buf = page_new(e->size_bytes, seed);
	if (!rc && e->size_bytes >= 16 * MIB &&
	    fallocate(copy, FALLOC_FL_KEEP_SIZE, 0, e->size_bytes) && errno == ENOSPC)
		rc = -ENOSPC;
	if (!rc)
		rc = write_whole(copy, buf, e->size_bytes);
	free(buf);
	if (copy >= 0 && close(copy) && !rc)
		rc = -errno;
	if (close(fd) && !rc)
		rc = -errno;
	if (!rc)
		rc = (int)err_of(rename(temp, final));
	if (rc)
		unlink(temp);
	return (int)note(rc);
}

static long load(const struct engine *e, unsigned key)
{
	return load_file(final_of(e, key), 0, e->size_bytes);
}

/* --- the NIXL backend: K and V apart, in place, without O_TRUNC and without a rename --- */

static const char *nixl_path(const struct engine *e, unsigned key, char part)
{
	const char *hash = hash_of(key);

	return at("%.2s/%s_form%d-model_0_1_%c", hash, hash, e->form, part);
}

/* It makes all of its 256 buckets at its start, and never again. */
static void nixl_start(const struct engine *e)
{
	for (unsigned i = 0; i < 256; i++)
		if (mkdir(at("%02x", i), 0755) && errno != EEXIST)
			failed("%s: bucket %02x: %s", e->name, i, strerror(errno));
}

static int nixl_write(const struct engine *e, int fd, void *buf)
{
	int rc = ring_io((enum ring_kind)(e->form % 10), fd, true, buf, e->size_bytes, 64 * KIB);

	/* where a queue is missing NIXL takes another */
	return rc == -ENOSYS ? ring_io(RING_THREADS, fd, true, buf, e->size_bytes, 256 * KIB) : rc;
}

/* rw:PATH opens what is there: somebody makes the file before. */
static int nixl_open(const struct engine *e, const char *path)
{
	int fd;

	if (e->form < 10)
		return (int)err_of(open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0644));
	fd = (int)err_of(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	if (fd < 0 || close(fd))
		return fd < 0 ? fd : -errno;
	return (int)err_of(open(path, O_RDWR | O_CLOEXEC));
}

static int nixl_store(const struct engine *e, unsigned key, unsigned seed)
{
	unsigned char *buf = page_new(e->size_bytes, seed);
	int rc = 0, fd;

	for (int part = 0; part < 2 && !rc; part++) {
		fd = nixl_open(e, nixl_path(e, key, "kv"[part]));
		if (fd < 0) {
			rc = (int)note(fd);
			break;
		}
		rc = nixl_write(e, fd, buf);
		if (close(fd) && !rc)
			rc = -errno;
	}
	free(buf);
	return rc;
}

static bool nixl_exists(const struct engine *e, unsigned key)
{
	return stat_exists(nixl_path(e, key, 'k')) && stat_exists(nixl_path(e, key, 'v'));
}

/* Both halves must be of one store; a page that is half gone is a miss. */
static long nixl_load(const struct engine *e, unsigned key)
{
	unsigned char *buf = page_new(e->size_bytes, 0);
	long rc = 0;

	for (int part = 0; part < 2 && rc >= 0; part++) {
		/* opened for writing also to read, where the page is known to be there */
		int flags = e->form < 10 && part == 0 ? O_RDONLY | O_DIRECT : O_RDONLY;
		int fd = (int)err_of(open(nixl_path(e, key, "kv"[part]), flags | O_CLOEXEC));

		if (fd < 0) {
			rc = note(fd);
			break;
		}
		rc = ring_io((enum ring_kind)(e->form % 10), fd, false, buf, e->size_bytes,
			     32 * KIB);
		if (rc == -ENOSYS)
			rc = ring_io(RING_THREADS, fd, false, buf, e->size_bytes, 32 * KIB);
		close(fd);
		if (!rc)
			rc = note(page_seed(buf, e->size_bytes, 0));
	}
	free(buf);
	return rc;
}

#define FILE_FORM(title, store_fn, f, bytes)                                             \
	{                                                                                \
		.name = title, .size_bytes = (bytes), .store = (store_fn), .load = load, \
		.exists = exists, .form = (f)                                            \
	}
#define NIXL_FORM(title, f, alone)                                                                 \
	{                                                                                          \
		.name = title, .size_bytes = 256 * KIB, .store = nixl_store, .load = nixl_load,    \
		.exists = nixl_exists, .start = nixl_start, .form = (f), .shares_no_key = (alone), \
		.races_on_ext4 = true                                                              \
	}

const struct engine sglang_engines[] = {
	{.name = "sglang_file_0.5.2",
	 .size_bytes = 256 * KIB,
	 .store = store_in_place,
	 .load = load,
	 .exists = exists,
	 .form = IN_PLACE,
	 .races_on_ext4 = true},
	FILE_FORM("sglang_file_tmp_pid", store_tmp_pid, TMP_PID, 256 * KIB),
	FILE_FORM("sglang_file_tmp_pid_16m", store_tmp_pid, TMP_PID + 10, 16 * MIB),
	FILE_FORM("sglang_file_0.5.23", store_tmp_uuid, TMP_UUID, 256 * KIB),
	FILE_FORM("sglang_file_0.5.23_16m", store_tmp_uuid, TMP_UUID + 10, 16 * MIB),
	NIXL_FORM("sglang_nixl_libaio", RING_AIO, false),
	NIXL_FORM("sglang_nixl_uring", RING_URING, false),
	NIXL_FORM("sglang_nixl_posix_aio", RING_THREADS, false),
	NIXL_FORM("nixl_by_path", 10 + RING_URING, true),
	{.name = NULL},
};
