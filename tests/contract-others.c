/* SPDX-License-Identifier: Apache-2.0 */
/* AIBrix's shared file system connector and UCM's Posix store (its AIO engine and the plain one).
 */
#include <sys/time.h>
#include <utime.h>

#include "tests/contract.h"

enum { AIBRIX, UCM_AIO, UCM_SYNC };

static const char *final_of(const struct engine *e, unsigned key)
{
	const char *hash = hash_of(key);

	return e->form == AIBRIX ? at("conn/%.2s/%.2s/%s", hash, hash + 2, hash)
				 : at("ucm%d/%.2s/%.32s", e->form, hash, hash);
}

/* AIBrix: the size must be right as well. */
static bool aibrix_exists(const struct engine *e, unsigned key)
{
	struct stat st;

	return stat(final_of(e, key), &st) == 0 && st.st_size == e->size_bytes;
}

/* One temporary name for all; existence and size are looked at right after the rename. */
static int aibrix_store(const struct engine *e, unsigned key, unsigned seed)
{
	const char *final = final_of(e, key);
	char temp[PATH_BYTES + 8];
	struct stat st;
	int rc = make_parents(final, 0777);

	if (rc)
		return rc;
	snprintf(temp, sizeof(temp), "%s.tmp", final);
	rc = store_file(temp, 0, 0666, e->size_bytes, seed);
	if (!rc)
		rc = (int)note(err_of(rename(temp, final)));
	if (!rc && (stat(final, &st) || st.st_size != e->size_bytes) && t.phase != FULL)
		rc = (int)note(-ENODATA);
	return rc;
}

static long aibrix_load(const struct engine *e, unsigned key)
{
	return load_file(final_of(e, key), 0, e->size_bytes);
}

/* UCM: look-up by access, every hit touched; its directories give others no x. */
static bool ucm_exists(const struct engine *e, unsigned key)
{
	const char *path = final_of(e, key);

	if (access(path, R_OK | W_OK))
		return false;
	return utime(path, NULL) == 0 || errno == ENOENT;
}

static int ucm_io(const struct engine *e, int fd, bool is_write, void *buf)
{
	int rc = -ENOSYS;

	if (e->form == UCM_AIO)
		rc = ring_io(RING_AIO, fd, is_write, buf, e->size_bytes, 64 * KIB);
	if (rc == -ENOSYS)
		rc = is_write ? (int)err_of(pwrite(fd, buf, (size_t)e->size_bytes, 0))
			      : (int)err_of(pread(fd, buf, (size_t)e->size_bytes, 0));
	else
		return rc;
	return rc < 0 ? (int)note(rc) : rc == e->size_bytes ? 0 : (int)note(-ENODATA);
}

static int ucm_store(const struct engine *e, unsigned key, unsigned seed)
{
	const char *final = final_of(e, key);
	char temp[PATH_BYTES + 8];
	unsigned char *buf;
	int fd, rc = make_parents(final, 0750);

	if (rc)
		return rc;
	snprintf(temp, sizeof(temp), "%s.tmp", final);
	fd = (int)err_of(open(
		temp, O_CREAT | O_WRONLY | O_CLOEXEC | (e->form == UCM_AIO ? O_DIRECT : 0), 0644));
	if (fd < 0)
		return (int)note(fd);
	buf = page_new(e->size_bytes, seed);
	rc = ucm_io(e, fd, true, buf);
	free(buf);
	if (close(fd) && !rc)
		rc = -errno;
	if (!rc)
		rc = (int)note(err_of(rename(temp, final)));
	else
		unlink(temp);
	return rc;
}

static long ucm_load(const struct engine *e, unsigned key)
{
	int fd = (int)err_of(
		open(final_of(e, key), O_RDONLY | O_CLOEXEC | (e->form == UCM_AIO ? O_DIRECT : 0)));
	unsigned char *buf;
	long rc;

	if (fd < 0)
		return note(fd);
	buf = page_new(e->size_bytes, 0);
	rc = ucm_io(e, fd, false, buf);
	close(fd);
	if (!rc)
		rc = note(page_seed(buf, e->size_bytes, 0));
	free(buf);
	return rc;
}

const struct engine other_engines[] = {
	{.name = "aibrix_shfs",
	 .size_bytes = 256 * KIB + 4096,
	 .store = aibrix_store,
	 .load = aibrix_load,
	 .exists = aibrix_exists,
	 .form = AIBRIX,
	 .races_on_ext4 = true},
	{.name = "ucm_posix_aio",
	 .size_bytes = 256 * KIB,
	 .store = ucm_store,
	 .load = ucm_load,
	 .exists = ucm_exists,
	 .form = UCM_AIO,
	 .races_on_ext4 = true},
	{.name = "ucm_posix_sync",
	 .size_bytes = 256 * KIB,
	 .store = ucm_store,
	 .load = ucm_load,
	 .exists = ucm_exists,
	 .form = UCM_SYNC,
	 .races_on_ext4 = true},
	{.name = NULL},
};
