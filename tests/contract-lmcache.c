/* SPDX-License-Identifier: Apache-2.0 */
/* LMCache: fs_native (with and without relative_tmp_dir and O_DIRECT), fs, the fs connector of a
 * process, local_disk, nixl_store_dynamic, and the GDS backend without GDS. */
#include "tests/contract.h"

enum {
	NATIVE,         /* one temporary name for all processes */
	NATIVE_TMP_DIR, /* the final name in a directory .tmp; O_DIRECT */
	PYTHON_DIRECT,  /* O_DIRECT without O_TRUNC, one write */
	CONNECTOR,      /* a header of 28 bytes, two writes */
	DISK,           /* in place */
	DISK_DIRECT,    /* in place, O_DIRECT without O_TRUNC */
	NIXL_DYNAMIC,   /* *.tmp.<32 hex> */
	GDS,            /* *.tmp<8 hex>, filled through a mapping */
};

static const char *final_of(const struct engine *e, unsigned key)
{
	const char *hash = hash_of(key);

	switch (e->form) {
	case CONNECTOR:
		return at("org-model@1@0@%.16s@bfloat16.data", hash);
	case DISK:
		return at("org-model@1@0@%.16s@half.pt", hash);
	case DISK_DIRECT:
		return at("org-model@1@1@%.16s@half.pt", hash);
	case NIXL_DYNAMIC:
		return at("%.2s/%.2s/org--model_00010000_0_%s.bin", hash, hash + 2, hash);
	case GDS:
		return at("%.2s/%.2s/org-model%%401%%400%%40%.16s.kvcache.safetensors", hash,
			  hash + 2, hash);
	default:
		return at("org-SEP-model%d@0x00010000@0@%s.data", e->form, hash);
	}
}

static const char *temp_of(const struct engine *e, const char *final, unsigned key)
{
	static char temp[PATH_BYTES + 64];

	switch (e->form) {
	case NATIVE_TMP_DIR:
		snprintf(temp, sizeof(temp), "%s/.tmp/%s", t.dir, strrchr(final, '/') + 1);
		break;
	case NIXL_DYNAMIC:
		snprintf(temp, sizeof(temp), "%s.tmp.%016x%016x", final, (unsigned)getpid(), key);
		break;
	case GDS:
		snprintf(temp, sizeof(temp), "%s.tmp%08x", final, (unsigned)getpid() ^ key << 16);
		break;
	default:
		snprintf(temp, sizeof(temp), "%.*s.tmp", (int)(strlen(final) - strlen(".data")),
			 final);
	}
	return temp;
}

static void start(const struct engine *e)
{
	if (e->form == NATIVE_TMP_DIR && mkdir(at(".tmp"), 0777) && errno != EEXIST)
		failed("%s: .tmp: %s", e->name, strerror(errno));
}

static bool exists(const struct engine *e, unsigned key)
{
	struct stat st;

	return stat(final_of(e, key), &st) == 0;
}

static int store(const struct engine *e, unsigned key, unsigned seed)
{
	static const int flags[] = {
		[NATIVE] = O_TRUNC,         [NATIVE_TMP_DIR] = O_TRUNC | O_DIRECT,
		[PYTHON_DIRECT] = O_DIRECT, [CONNECTOR] = O_TRUNC,
		[NIXL_DYNAMIC] = O_TRUNC,
	};
	const char *final = final_of(e, key), *temp = temp_of(e, final, key);
	long head = e->form == CONNECTOR ? 28 : 0;
	unsigned char *buf;
	struct stat st;
	int fd, rc;

	stat(final, &st);
	rc = make_parents(final, 0777);
	if (rc)
		return rc;
	fd = (int)err_of(open(temp, O_CREAT | O_WRONLY | O_CLOEXEC | flags[e->form], 0644));
	if (fd < 0)
		return (int)note(fd);
	buf = page_new(e->size_bytes, seed);
	rc = head ? write_whole(fd, buf, head) : 0;
	if (!rc)
		rc = write_whole(fd, buf + head, e->size_bytes - head);
	free(buf);
	if (close(fd) && !rc)
		rc = -errno;
	if (!rc)
		rc = (int)err_of(rename(temp, final));
	else
		unlink(temp);
	return (int)note(rc);
}

static int store_in_place(const struct engine *e, unsigned key, unsigned seed)
{
	int flags = e->form == DISK_DIRECT ? O_DIRECT : O_TRUNC, fd, rc;
	unsigned char *buf;

	fd = (int)err_of(open(final_of(e, key), O_CREAT | O_WRONLY | O_CLOEXEC | flags, 0644));
	if (fd < 0)
		return (int)note(fd);
	buf = page_new(e->size_bytes, seed);
	rc = write_whole(fd, buf, e->size_bytes);
	free(buf);
	if (close(fd) && !rc)
		rc = -errno;
	return (int)note(rc);
}

/* Reads until it has all; no fstat. Optionally a small read first, as a hint. */
static long load(const struct engine *e, unsigned key)
{
	bool direct =
		e->form == NATIVE_TMP_DIR || e->form == PYTHON_DIRECT || e->form == DISK_DIRECT;
	int fd =
		(int)err_of(open(final_of(e, key), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0)));
	long head = e->form == NATIVE ? 4096 : e->form == CONNECTOR ? 28 : 0, rc = 0;
	unsigned char *buf;

	if (fd < 0)
		return note(fd);
	buf = page_new(e->size_bytes, 0);
	if (head)
		rc = read_whole(fd, buf, head);
	if (!rc)
		rc = read_whole(fd, buf + head, e->size_bytes - head);
	close(fd);
	if (!rc)
		rc = note(page_seed(buf, e->size_bytes, 0));
	free(buf);
	return rc;
}

/* --- GDS without GDS: written, closed, grown, filled through a shared mapping after the close ---
 */

static int gds_fill(const struct engine *e, const char *temp, const unsigned char *buf)
{
	int fd = (int)err_of(open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)), rc;
	unsigned char *map;

	if (fd < 0)
		return (int)note(fd);
	rc = write_whole(fd, buf, UNIT);
	if (close(fd) && !rc)
		rc = -errno;
	if (rc)
		return rc;
	fd = (int)err_of(open(temp, O_RDWR | O_CLOEXEC));
	if (fd < 0)
		return (int)note(fd);
	if (ftruncate(fd, e->size_bytes)) {
		rc = -errno;
		close(fd);
		return rc;
	}
	map = mmap(NULL, (size_t)e->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	rc = map == MAP_FAILED ? -errno : 0;
	if (close(fd) && !rc)
		rc = -errno;
	if (map == MAP_FAILED)
		return rc;
	memcpy(map, buf, (size_t)e->size_bytes);
	munmap(map, (size_t)e->size_bytes);
	return rc;
}

static int gds_store(const struct engine *e, unsigned key, unsigned seed)
{
	const char *final = final_of(e, key), *temp = temp_of(e, final, key);
	unsigned char *buf;
	char meta[PATH_BYTES];
	int rc = make_parents(final, 0777);

	if (rc)
		return rc;
	buf = page_new(e->size_bytes, seed);
	rc = gds_fill(e, temp, buf);
	free(buf);
	if (!rc)
		rc = (int)err_of(rename(temp, final));
	if (rc) {
		unlink(temp);
		return (int)note(rc);
	}
	snprintf(meta, sizeof(meta), "%s.metadata", final);
	return store_file(meta, 0, 0644, UNIT, seed);
}

static long gds_load(const struct engine *e, unsigned key)
{
	const char *final = final_of(e, key);
	char meta[PATH_BYTES];
	struct stat st;
	long rc;
	void *map;
	int fd;

	snprintf(meta, sizeof(meta), "%s.metadata", final);
	rc = load_file(meta, O_NOATIME, UNIT);
	if (rc < 0)
		return rc;
	fd = (int)err_of(open(final, O_RDONLY | O_CLOEXEC));
	if (fd < 0)
		return note(fd);
	if (fstat(fd, &st) || st.st_size != e->size_bytes) {
		close(fd);
		return note(-ENODATA);
	}
	map = mmap(NULL, (size_t)e->size_bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	rc = map == MAP_FAILED ? -errno : 0;
	close(fd);
	if (rc)
		return rc;
	rc = note(page_seed(map, e->size_bytes, 0));
	munmap(map, (size_t)e->size_bytes);
	return rc;
}

#define BY_RENAME(title, f, bytes)                                                   \
	{                                                                            \
		.name = title, .size_bytes = (bytes), .store = store, .load = load,  \
		.exists = exists, .start = start, .form = (f), .races_on_ext4 = true \
	}
#define IN_PLACE(title, f, bytes)                                                            \
	{                                                                                    \
		.name = title, .size_bytes = (bytes), .store = store_in_place, .load = load, \
		.exists = exists, .form = (f), .races_on_ext4 = true                         \
	}

const struct engine lmcache_engines[] = {
	BY_RENAME("lmcache_fs_native", NATIVE, 128 * KIB),
	BY_RENAME("lmcache_fs_native_tmp_dir_o_direct", NATIVE_TMP_DIR, 256 * KIB),
	BY_RENAME("lmcache_fs_o_direct", PYTHON_DIRECT, 256 * KIB),
	BY_RENAME("lmcache_fs_connector", CONNECTOR, 256 * KIB + 28),
	IN_PLACE("lmcache_local_disk", DISK, 256 * KIB + 100),
	IN_PLACE("lmcache_local_disk_o_direct", DISK_DIRECT, 256 * KIB),
	BY_RENAME("lmcache_nixl_dynamic", NIXL_DYNAMIC, 256 * KIB),
	{.name = "lmcache_gds",
	 .size_bytes = 512 * KIB,
	 .store = gds_store,
	 .load = gds_load,
	 .exists = exists,
	 .form = GDS,
	 .needs_map = true,
	 .races_on_ext4 = true},
	{.name = NULL},
};
