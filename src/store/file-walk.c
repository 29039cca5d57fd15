/* SPDX-License-Identifier: Apache-2.0 */
/* Store "file": what walks whole directories (list, sweep) and the staging files. Blocking; any
 * thread; holds no lock. What is not ours by its name is never touched. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "model/checksum.h"
#include "store/file-internal.h"
#include "util/log.h"

#define HC_LOG "store"

static struct hc_file_disk *hc_file_disk_of(struct hc_store *base, uint16_t disk_i)
{
	struct hc_store_file *store = (struct hc_store_file *)base;

	return disk_i < store->n_disks ? &store->disks[disk_i] : NULL;
}

static int hc_file_opendir(int parent_fd, const char *name, DIR **dir_p)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int rc = dir ? 0 : -errno;

	if (!dir && fd >= 0)
		close(fd);
	if (dir)
		*dir_p = dir;
	return rc;
}

static bool hc_file_is_dots(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* ---- one walk over pages/ for list and sweep ---- */

struct hc_file_walk {
	struct hc_file_disk *disk;
	uint64_t n_foreign;
	char foreign[320]; /* the first one */
	int (*each)(struct hc_file_walk *walk, int shard_fd, const char *shard, const char *name,
		    const struct hc_store_page *page);
	void *arg;
};

static void hc_file_walk_foreign(struct hc_file_walk *walk, const char *shard, const char *name)
{
	if (!walk->n_foreign++)
		snprintf(walk->foreign, sizeof(walk->foreign), "%s%s%s", shard, *shard ? "/" : "",
			 name);
}

static int hc_file_walk_shard(struct hc_file_walk *walk, DIR *dir, const char *shard)
{
	struct dirent *entry;
	int rc = 0;

	while (!rc && (errno = 0, entry = readdir(dir))) {
		struct hc_store_page page = {0};
		char path[160];

		if (hc_file_is_dots(entry->d_name))
			continue;
		/* A page in another shard cannot be found by its name: as foreign as any other
		 * file. */
		if (hc_store_file_parse(entry->d_name, &page.series, &page.hash, &page.sequence) ||
		    strncmp(hc_file_page_path(&page, path), shard, 3))
			hc_file_walk_foreign(walk, shard, entry->d_name);
		else
			rc = walk->each(walk, dirfd(dir), shard, entry->d_name, &page);
	}
	return rc ? rc : -errno;
}

static int hc_file_walk_pages(struct hc_file_walk *walk)
{
	struct dirent *entry;
	DIR *dir, *shard;
	int rc = hc_file_opendir(walk->disk->pages_fd, ".", &dir);

	if (rc)
		return rc;
	while (!rc && (errno = 0, entry = readdir(dir))) {
		if (hc_file_is_dots(entry->d_name))
			continue;
		if (strlen(entry->d_name) != 3 || strspn(entry->d_name, "0123456789abcdef") != 3) {
			hc_file_walk_foreign(walk, "", entry->d_name);
			continue;
		}
		rc = hc_file_opendir(walk->disk->pages_fd, entry->d_name, &shard);
		if (rc == -ENOTDIR || rc == -ELOOP) {
			hc_file_walk_foreign(walk, "", entry->d_name);
			rc = 0;
			continue;
		}
		if (rc == -ENOENT) {
			rc = 0;
			continue;
		}
		if (rc)
			break;
		rc = hc_file_walk_shard(walk, shard, entry->d_name);
		closedir(shard);
	}
	if (!rc)
		rc = -errno;
	closedir(dir);
	if (rc)
		hc_error(HC_LOG, "cannot read %s/pages: %s", walk->disk->dir, strerror(-rc));
	if (walk->n_foreign)
		hc_warn(HC_LOG,
			"%s/pages holds %" PRIu64
			" files that are not ours (%s); they are left alone, "
			"remove them by hand",
			walk->disk->dir, walk->n_foreign, walk->foreign);
	return hc_file_map_error(rc);
}

/* ---- list ---- */

struct hc_file_lister {
	hc_store_each_t each;
	void *arg;
	char name[HC_FILE_NAME_MAX + 1];
};

/* Metadata of an open file. size_bytes is set in any case. */
static int hc_file_read_meta(int fd, struct hc_store_page *page, char name[HC_FILE_NAME_MAX + 1])
{
	uint8_t meta[HC_XATTR_PAGE_BYTES + 64];
	struct stat st;
	ssize_t n;
	int rc;

	if (fstat(fd, &st))
		return -errno;
	page->size_bytes = (uint64_t)st.st_size;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	n = fgetxattr(fd, HC_XATTR_PAGE, meta, sizeof(meta));
	if (n < 0)
		return errno == ENODATA || errno == ERANGE ? -EBADMSG : -errno;
	rc = hc_xattr_unpack(meta, (size_t)n, page);
	if (!rc && page->size_bytes != (uint64_t)st.st_size)
		rc = -EBADMSG;
	page->size_bytes = (uint64_t)st.st_size;
	if (rc || !(page->flags & HC_STORE_PAGE_OPAQUE))
		return rc;
	n = fgetxattr(fd, HC_XATTR_NAME, name, HC_FILE_NAME_MAX);
	if (n < 0)
		return errno == ENODATA || errno == ERANGE ? -EBADMSG : -errno;
	if (!n || memchr(name, 0, (size_t)n))
		return -EBADMSG;
	name[n] = 0;
	page->name = name;
	return 0;
}

static int hc_file_list_one(struct hc_file_walk *walk, int shard_fd, const char *shard,
			    const char *name, const struct hc_store_page *named)
{
	hc_autofd int fd = openat(shard_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct hc_file_lister *lister = walk->arg;
	struct hc_store_page page = *named;
	char path[4096 + 160];
	int status;

	if (fd < 0 && errno == ENOENT)
		return 0;
	status = fd < 0 ? (errno == ELOOP || errno == ENXIO ? -EBADMSG : -errno)
			: hc_file_read_meta(fd, &page, lister->name);
	if (status && status != -EPROTO)
		status = hc_file_map_error(status);
	snprintf(path, sizeof(path), "%s/pages/%s/%s", walk->disk->dir, shard, name);
	lister->each(lister->arg, walk->disk->disk_i, &page, status, path);
	return 0;
}

int hc_file_list_pages(struct hc_store *store, uint16_t disk_i, hc_store_each_t each, void *arg)
{
	struct hc_file_lister lister = {.each = each, .arg = arg};
	struct hc_file_walk walk = {
		.disk = hc_file_disk_of(store, disk_i), .each = hc_file_list_one, .arg = &lister};

	if (!walk.disk)
		return -EINVAL;
	if (atomic_load(&walk.disk->out))
		return -ENODEV;
	return hc_file_walk_pages(&walk);
}

/* ---- staging ---- */

/* Of a disk that is going: as of one that is out already. Not at its opening, where it is refused.
 */
static int hc_file_staging_failed(struct hc_file_disk *disk, int error)
{
	if (!disk->asides[HC_FILE_ASIDE_STAT])
		return error;
	error = hc_file_map_error(error);
	if (error == -EIO || error == -EROFS || error == -ENODEV)
		hc_file_disk_judge(disk, error);
	return atomic_load(&disk->out) ? -ENODEV : error;
}

int hc_file_staging_create(struct hc_store *store, uint16_t disk_i, int *fd_p, char *name,
			   size_t room)
{
	struct hc_file_disk *disk = hc_file_disk_of(store, disk_i);

	if (!disk || room < 64)
		return -EINVAL;
	/* A create on a disk that does not answer would hang the caller. */
	if (atomic_load(&disk->out) || hc_file_aside_late(disk->asides[HC_FILE_ASIDE_STAT]))
		return -ENODEV;
	for (;;) {
		uint64_t number = atomic_fetch_add(&disk->staging_next, 1);
		int fd;

		snprintf(name, room, "%" PRIu64, number);
		fd = openat(disk->staging_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd >= 0) {
			*fd_p = fd;
			return 0;
		}
		if (errno != EEXIST)
			break;
	}
	return hc_file_staging_failed(disk, -errno);
}

int hc_file_staging_remove(struct hc_store *store, uint16_t disk_i, const char *name)
{
	struct hc_file_disk *disk = hc_file_disk_of(store, disk_i);
	uint64_t number;
	const char *end;

	if (!disk || !hc_file_parse_number(name, UINT64_MAX, &number, &end) || *end)
		return -EINVAL;
	return unlinkat(disk->staging_fd, name, 0) ? hc_file_map_error(-errno) : 0;
}

/* ---- sweep ---- */

struct hc_file_sweeper {
	bool (*keep)(void *arg, uint32_t series, const struct hc_hash *hash, uint64_t sequence);
	void *arg;
	uint64_t n_removed;
	uint64_t bytes_removed;
	uint64_t n_failed;
};

static void hc_file_sweep_unlink(struct hc_file_disk *disk, struct hc_file_sweeper *sweeper,
				 int dir_fd, const char *what, const char *name)
{
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return;
	if (unlinkat(dir_fd, name, 0)) {
		if (errno != ENOENT && !sweeper->n_failed++)
			hc_warn(HC_LOG,
				"cannot remove %s/%s/%s: %m; it takes room until it is removed by "
				"hand",
				disk->dir, what, name);
		return;
	}
	sweeper->n_removed++;
	sweeper->bytes_removed += (uint64_t)st.st_blocks * 512;
}

static int hc_file_sweep_page(struct hc_file_walk *walk, int shard_fd, const char *shard,
			      const char *name, const struct hc_store_page *page)
{
	struct hc_file_sweeper *sweeper = walk->arg;
	char what[16];

	if (sweeper->keep(sweeper->arg, page->series, &page->hash, page->sequence))
		return 0;
	snprintf(what, sizeof(what), "pages/%s", shard);
	hc_file_sweep_unlink(walk->disk, sweeper, shard_fd, what, name);
	return 0;
}

/* staging: what was there before this open. quarantine: every page file. */
static int hc_file_sweep_flat(struct hc_file_disk *disk, struct hc_file_sweeper *sweeper,
			      int dir_fd, const char *what)
{
	struct dirent *entry;
	DIR *dir;
	int rc = hc_file_opendir(dir_fd, ".", &dir);

	if (rc)
		return rc;
	while ((errno = 0, entry = readdir(dir))) {
		struct hc_store_page page;
		uint64_t number;
		const char *end;
		bool ours;

		if (dir_fd == disk->staging_fd)
			ours = hc_file_parse_number(entry->d_name, UINT64_MAX, &number, &end) &&
			       !*end && number < disk->staging_first;
		else
			ours = !hc_store_file_parse(entry->d_name, &page.series, &page.hash,
						    &page.sequence);
		if (ours)
			hc_file_sweep_unlink(disk, sweeper, dir_fd, what, entry->d_name);
	}
	rc = -errno;
	closedir(dir);
	return rc;
}

int hc_file_sweep(struct hc_store *store, uint16_t disk_i,
		  bool (*keep)(void *arg, uint32_t series, const struct hc_hash *hash,
			       uint64_t sequence),
		  void *arg, bool quarantine, uint64_t *n_removed_p, uint64_t *bytes_removed_p)
{
	struct hc_file_sweeper sweeper = {.keep = keep, .arg = arg};
	struct hc_file_walk walk = {.disk = hc_file_disk_of(store, disk_i),
				    .each = hc_file_sweep_page,
				    .arg = &sweeper};
	int rc;

	if (!walk.disk)
		return -EINVAL;
	if (atomic_load(&walk.disk->out))
		return -ENODEV;
	rc = hc_file_sweep_flat(walk.disk, &sweeper, walk.disk->staging_fd, "staging");
	if (!rc && quarantine)
		rc = hc_file_sweep_flat(walk.disk, &sweeper, walk.disk->quarantine_fd,
					"quarantine");
	if (!rc && keep)
		rc = hc_file_walk_pages(&walk);
	if (rc)
		return hc_file_map_error(rc);
	*n_removed_p = sweeper.n_removed;
	*bytes_removed_p = sweeper.bytes_removed;
	return 0;
}
