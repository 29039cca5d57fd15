/* SPDX-License-Identifier: Apache-2.0 */
/* Store "file": one request against the file system. Runs in a worker thread, holds no lock, keeps
 * no state: what it opens it closes. See file.h and file-internal.h. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "model/checksum.h"
#include "store/file-internal.h"
#include "util/crash.h"
#include "util/io.h"

/* O_NONBLOCK: a FIFO that somebody put there must not stop a worker; regular files do not care. */
#define HC_OPEN_COMMON (O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)

int hc_file_map_error(int error)
{
	switch (error) {
	case 0:
	case -ENOENT:
	case -EBADMSG:
	case -EIO:
	case -ENOSPC:
	case -EROFS:
	case -ENODEV:
	case -ESTALE:
	case -EINVAL:
	case -ECANCELED:
	case -EAGAIN:
		return error;
	/* Of this process or machine, not of the medium. */
	case -EMFILE:
	case -ENFILE:
	case -ENOMEM:
		return -EAGAIN;
	case -EDQUOT:
		return -ENOSPC;
	case -ENOMEDIUM:
		return -ENODEV;
	default:
		return -EIO;
	}
}

/* Whoever writes to a file changes its times; a file in its place has another number. Never 0 or 1.
 */
static uint64_t hc_file_mark(const struct stat *st)
{
	const uint64_t parts[] = {
		st->st_dev,
		st->st_ino,
		(uint64_t)st->st_size,
		(uint64_t)st->st_mtim.tv_sec,
		(uint64_t)st->st_mtim.tv_nsec,
		(uint64_t)st->st_ctim.tv_sec,
		(uint64_t)st->st_ctim.tv_nsec,
	};
	uint64_t mark = hc_checksum_leaf(parts, sizeof(parts));

	return mark > 1 ? mark : 2;
}

/* Opens a page file for reading and checks that it is one, of exactly the size that was asked for.
 */
static int hc_file_open_read(struct hc_file_disk *disk, const struct hc_store_page *page,
			     bool direct, int *fd_p, uint64_t *mark_p)
{
	int flags = O_RDONLY | HC_OPEN_COMMON | (direct ? O_DIRECT : 0);
	hc_autofd int fd = -1;
	char path[160];
	const char *at = hc_file_page_path(page, path);
	struct stat st;

	/* Without O_NOATIME the first read of each page would dirty its inode; it is for owners
	 * only. */
	fd = openat(disk->pages_fd, at, flags | O_NOATIME);
	if (fd < 0 && errno == EPERM)
		fd = openat(disk->pages_fd, at, flags);
	/* What is no regular file refuses O_DIRECT; fstat tells. */
	if (fd < 0 && errno == EINVAL)
		fd = openat(disk->pages_fd, at, flags & ~O_DIRECT);
	if (fd < 0)
		return errno == ELOOP || errno == ENXIO ? -EBADMSG : -errno;
	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != page->size_bytes)
		return -EBADMSG;
	*mark_p = hc_file_mark(&st);
	*fd_p = hc_steal_fd(&fd);
	return 0;
}

/* Reads n bytes (room: rounded up to a block) at a block-aligned offset. A short O_DIRECT read goes
 * on at a block boundary. -EBADMSG where the file ends before. */
static int hc_file_read_exact(int fd, void *buf, size_t n, uint64_t offset)
{
	size_t room = (size_t)hc_align_up(n, HC_BLOCK_BYTES);
	size_t got = 0;

	while (got < n) {
		size_t from = got & ~(size_t)(HC_BLOCK_BYTES - 1);
		ssize_t r = pread(fd, (char *)buf + from, room - from, (off_t)(offset + from));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (from + (size_t)r <= got)
			return -EBADMSG;
		got = from + (size_t)r;
	}
	return 0;
}

static int hc_file_get(struct hc_file_disk *disk, const struct hc_store_request *request)
{
	const struct hc_store_page *page = &request->page;
	hc_autofd int fd = -1;
	uint64_t mark;
	int rc = hc_file_open_read(disk, page, disk->direct, &fd, &mark);

	if (rc)
		return rc;
	rc = hc_file_read_exact(fd, request->data, (size_t)page->size_bytes, 0);
	if (rc)
		return rc;
	if (!(request->flags & HC_STORE_NO_VERIFY) &&
	    hc_checksum(request->data, page->size_bytes) != page->checksum)
		return -EBADMSG;
	return 0;
}

static int hc_file_verify(struct hc_file_disk *disk, const struct hc_store_request *request,
			  const struct hc_file_scratch *scratch)
{
	const struct hc_store_page *page = &request->page;
	hc_autofd int fd = -1;
	uint64_t mark;
	int rc = hc_file_open_read(disk, page, disk->direct, &fd, &mark);
	size_t leaf_i = 0;

	if (rc)
		return rc;
	for (uint64_t at = 0; at < page->size_bytes; at += HC_FILE_PART_BYTES) {
		size_t n = (size_t)hc_min_u64(HC_FILE_PART_BYTES, page->size_bytes - at);

		rc = hc_file_read_exact(fd, scratch->part, n, at);
		if (rc)
			return rc;
		for (size_t i = 0; i < n; i += HC_LEAF_BYTES)
			scratch->leaves[leaf_i++] =
				hc_checksum_leaf((const char *)scratch->part + i,
						 (size_t)hc_min_u64(HC_LEAF_BYTES, n - i));
	}
	return hc_checksum_fold(scratch->leaves, page->size_bytes) == page->checksum ? 0 : -EBADMSG;
}

/* Leaf by leaf through the page cache, where the reader will want the bytes: a mapping would be
 * quicker, but a medium that fails, or a file that somebody cuts, would kill the daemon. */
static int hc_file_sum_cached(int fd, const struct hc_store_page *page)
{
	size_t n_leaves = hc_checksum_n_leaves(page->size_bytes), got;
	hc_autofree uint64_t *leaves = malloc(n_leaves * sizeof(*leaves));
	hc_autofree char *leaf = malloc(HC_LEAF_BYTES);
	int rc;

	if (!leaves || !leaf)
		return -ENOMEM;
	hc_ignore(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
	hc_ignore(posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED));
	for (size_t i = 0; i < n_leaves; i++) {
		uint64_t at = (uint64_t)i * HC_LEAF_BYTES;
		size_t n = (size_t)hc_min_u64(HC_LEAF_BYTES, page->size_bytes - at);

		rc = hc_pread_full(fd, leaf, n, (off_t)at, &got);
		if (rc)
			return rc;
		if (got < n)
			return -EBADMSG;
		leaves[i] = hc_checksum_leaf(leaf, n);
	}
	return hc_checksum_fold(leaves, page->size_bytes) == page->checksum ? 0 : -EBADMSG;
}

static int hc_file_open(struct hc_file_disk *disk, struct hc_store_request *request)
{
	hc_autofd int fd = -1;
	uint64_t mark, after;
	struct stat st;
	int rc = hc_file_open_read(disk, &request->page, false, &fd, &mark);

	if (!rc && !(request->flags & HC_STORE_NO_VERIFY) && mark != request->mark) {
		rc = hc_file_sum_cached(fd, &request->page);
		/* Changed while it was read: the next open looks again. */
		after = !rc && !fstat(fd, &st) ? hc_file_mark(&st) : mark;
		if (after != mark)
			mark = 0;
	} else if (!rc && request->flags & HC_STORE_AHEAD) {
		hc_ignore(posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED));
	}
	if (rc)
		return rc;
	request->mark = mark;
	request->fd = hc_steal_fd(&fd);
	return 0;
}

int hc_file_open_cached(struct hc_store *base, uint16_t disk_i, const struct hc_store_page *page,
			int *fd_p, uint64_t *mark_p)
{
	struct hc_store_file *store = (struct hc_store_file *)base;

	if (disk_i >= store->n_disks)
		return -EINVAL;
	if (atomic_load(&store->disks[disk_i].out))
		return -ENODEV;
	return hc_file_map_error(
		hc_file_open_read(&store->disks[disk_i], page, false, fd_p, mark_p));
}

void hc_file_drop_cache(struct hc_store *base, uint16_t disk_i, const struct hc_store_page *page)
{
	hc_autofd int fd = -1;
	uint64_t mark;

	if (hc_file_open_cached(base, disk_i, page, &fd, &mark))
		return;
	/* What is not written yet stays in the page cache. */
	hc_ignore(fdatasync(fd));
	hc_ignore(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
}

static int hc_file_set_meta(int fd, const struct hc_store_page *page)
{
	uint8_t meta[HC_XATTR_PAGE_BYTES];

	hc_xattr_pack(page, meta);
	if (fsetxattr(fd, HC_XATTR_PAGE, meta, sizeof(meta), 0))
		return -errno;
	if (page->flags & HC_STORE_PAGE_OPAQUE &&
	    fsetxattr(fd, HC_XATTR_NAME, page->name, strlen(page->name), 0))
		return -errno;
	return 0;
}

/* fsync of the shard directory of a page, and of pages/ where that has new ones. */
static int hc_file_sync_shard(struct hc_file_disk *disk, const struct hc_store_page *page)
{
	uint64_t synced = atomic_load(&disk->n_shards_synced);
	uint64_t made = atomic_load(&disk->n_shards_made);
	char path[160];
	char shard[4] = {0};
	hc_autofd int fd = -1;

	if (synced < made) {
		if (fsync(disk->pages_fd))
			return -errno;
		while (synced < made &&
		       !atomic_compare_exchange_weak(&disk->n_shards_synced, &synced, made))
			;
	}
	memcpy(shard, hc_file_page_path(page, path), 3);
	fd = openat(disk->pages_fd, shard, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd))
		return -errno;
	return 0;
}

static int hc_file_fill(int fd, const struct hc_store_request *request, bool direct)
{
	const struct hc_store_page *page = &request->page;
	uint64_t n = direct ? hc_align_up(page->size_bytes, HC_BLOCK_BYTES) : page->size_bytes;
	int rc = hc_pwrite_full(fd, request->data, (size_t)n, 0);

	if (rc)
		return rc;
	hc_crash_point("store-put-data");
	if (n != page->size_bytes && ftruncate(fd, (off_t)page->size_bytes))
		return -errno;
	rc = hc_file_set_meta(fd, page);
	if (rc)
		return rc;
	hc_crash_point("store-put-xattr");
	/* fsync, not fdatasync: ext4's fdatasync does not wait for a transaction that holds the
	 * xattr alone. */
	if (request->flags & HC_STORE_DURABLE && fsync(fd))
		return -errno;
	return 0;
}

static int hc_file_put(struct hc_file_disk *disk, const struct hc_store_request *request)
{
	int flags = O_WRONLY | O_CREAT | O_TRUNC | HC_OPEN_COMMON | (disk->direct ? O_DIRECT : 0);
	char path[160];
	const char *at = hc_file_page_path(&request->page, path);
	hc_autofd int fd = openat(disk->pages_fd, at, flags, 0600);
	int rc;

	if (fd < 0 && errno == ENOENT) {
		rc = hc_file_shard_make(disk, &request->page);
		if (rc)
			return rc;
		fd = openat(disk->pages_fd, at, flags, 0600);
	}
	if (fd < 0)
		return -errno;
	rc = hc_file_fill(fd, request, disk->direct);
	if (!rc && request->flags & HC_STORE_DURABLE)
		rc = hc_file_sync_shard(disk, &request->page);
	/* What is left of it would only take room until the next sweep. */
	if (rc)
		unlinkat(disk->pages_fd, at, 0);
	return rc;
}

static int hc_file_adopt(struct hc_file_disk *disk, struct hc_store_request *request)
{
	const struct hc_store_page *page = &request->page;
	hc_autofd int fd = openat(disk->staging_fd, request->staging, O_RDWR | HC_OPEN_COMMON);
	char path[160];
	const char *at = hc_file_page_path(page, path);
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != page->size_bytes)
		return -EBADMSG;
	rc = hc_file_set_meta(fd, page);
	if (rc)
		return rc;
	if (request->flags & HC_STORE_DURABLE && fsync(fd))
		return -errno;
	hc_crash_point("store-adopt");
	rc = renameat(disk->staging_fd, request->staging, disk->pages_fd, at) ? -errno : 0;
	if (rc == -ENOENT) {
		rc = hc_file_shard_make(disk, page);
		if (!rc && renameat(disk->staging_fd, request->staging, disk->pages_fd, at))
			rc = -errno;
	}
	if (rc)
		return rc;
	request->mark = fstat(fd, &st) ? 0 : hc_file_mark(&st);
	hc_crash_point("store-adopt");
	return request->flags & HC_STORE_DURABLE ? hc_file_sync_shard(disk, page) : 0;
}

static int hc_file_remove(struct hc_file_disk *disk, const struct hc_store_request *request)
{
	char path[160];

	if (unlinkat(disk->pages_fd, hc_file_page_path(&request->page, path), 0))
		return errno == ENOENT ? 0 : -errno;
	return request->flags & HC_STORE_DURABLE ? hc_file_sync_shard(disk, &request->page) : 0;
}

static int hc_file_quarantine(struct hc_file_disk *disk, const struct hc_store_request *request)
{
	char path[160];
	const char *at = hc_file_page_path(&request->page, path);

	if (renameat(disk->pages_fd, at, disk->quarantine_fd, at + strlen("fff/")))
		return errno == ENOENT ? 0 : -errno;
	return 0;
}

int hc_file_run(struct hc_file_disk *disk, struct hc_store_request *request,
		const struct hc_file_scratch *scratch, int *medium_p)
{
	struct hc_store_file *store = disk->store;
	int rc = store->hook ? store->hook(store->hook_arg, request) : 0;

	if (!rc) {
		switch (request->op) {
		case HC_STORE_GET:
			rc = hc_file_get(disk, request);
			break;
		case HC_STORE_PUT:
			rc = hc_file_put(disk, request);
			break;
		case HC_STORE_ADOPT:
			rc = hc_file_adopt(disk, request);
			break;
		case HC_STORE_VERIFY:
			rc = hc_file_verify(disk, request, scratch);
			break;
		case HC_STORE_REMOVE:
			rc = hc_file_remove(disk, request);
			break;
		case HC_STORE_QUARANTINE:
			rc = hc_file_quarantine(disk, request);
			break;
		case HC_STORE_OPEN:
			rc = hc_file_open(disk, request);
			break;
		}
	}
	*medium_p = rc;
	return hc_file_map_error(rc);
}
