/* SPDX-License-Identifier: Apache-2.0 */
/* Store "file": a data directory is recognised or initialised, and refused with a message where it
 * cannot be used. Called by the thread that opens and closes the store; hc_file_shard_make by
 * workers too. */
#include <fcntl.h>
#include <dirent.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "store/file-internal.h"
#include "util/io.h"
#include "util/log.h"
#include "util/rng.h"

#define HC_LOG          "store"
#define HC_IDENTITY     ".hicachefs-disk"
#define HC_IDENTITY_NEW ".hicachefs-disk.new"
#define HC_IDENTITY_MAX 4096
#define HC_CACHEDIR     ".hicachefs"
#define HC_VERSION_LINE "version "
#define HC_UUID_LINE    "uuid "

/* What may lie in a directory that is not a data directory yet: nothing, a fresh ext4's lost+found,
 * or the first steps of an initialisation that was cut off. */
static bool hc_file_name_harmless(const char *name)
{
	static const char *const harmless[] = {".", "..", "lost+found", "staging", HC_IDENTITY_NEW};

	for (size_t i = 0; i < HC_ARRAY_SIZE(harmless); i++)
		if (!strcmp(name, harmless[i]))
			return true;
	return false;
}

/* 0: may be initialised. -EEXIST: something else lies there, its name in other[]. A cache directory
 * (it has its own identity beside ours) is ours whatever else it holds. */
static int hc_file_dir_free(int dir_fd, char other[256])
{
	struct dirent *entry;
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	bool pages = false;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	other[0] = 0;
	while ((entry = readdir(dir))) {
		if (!strcmp(entry->d_name, "pages"))
			pages = true;
		if (!hc_file_name_harmless(entry->d_name))
			snprintf(other, 256, "%s", entry->d_name);
	}
	closedir(dir);
	/* Pages without their identity are somebody's data that lost a file: not ours to take over.
	 */
	if (pages)
		snprintf(other, 256, "pages");
	if (other[0] && (pages || faccessat(dir_fd, HC_CACHEDIR, F_OK, 0)))
		rc = -EEXIST;
	return rc;
}

/* Text: "version N\nuuid 32HEX\n"; lines of later versions of the format are not looked at. */
static int hc_file_identity_parse(struct hc_file_disk *disk, const char *text)
{
	const char *end, *line;
	uint64_t version;

	if (strncmp(text, HC_VERSION_LINE, strlen(HC_VERSION_LINE)) ||
	    !hc_file_parse_number(text + strlen(HC_VERSION_LINE), UINT32_MAX, &version, &end) ||
	    *end != '\n' || !version) {
		hc_error(HC_LOG,
			 "%s/%s is damaged; restore it (two lines: version 1, uuid and 32 hex "
			 "digits)",
			 disk->dir, HC_IDENTITY);
		return -EBADMSG;
	}
	if (version > HC_FILE_VERSION) {
		hc_error(HC_LOG,
			 "%s was made by a newer hicachefs (version %llu, known up to %d): use "
			 "that one",
			 disk->dir, (unsigned long long)version, HC_FILE_VERSION);
		return -EPROTO;
	}
	line = end + 1;
	if (strncmp(line, HC_UUID_LINE, strlen(HC_UUID_LINE)) ||
	    strlen(line) < strlen(HC_UUID_LINE) + 2 * sizeof(disk->uuid) ||
	    hc_hex_decode(line + strlen(HC_UUID_LINE), disk->uuid, sizeof(disk->uuid)) ||
	    line[strlen(HC_UUID_LINE) + 2 * sizeof(disk->uuid)] != '\n') {
		hc_error(HC_LOG,
			 "%s/%s has no valid uuid line; restore it (uuid and 32 hex digits)",
			 disk->dir, HC_IDENTITY);
		return -EBADMSG;
	}
	return 0;
}

static int hc_file_identity_write(struct hc_file_disk *disk)
{
	char text[128], hex[2 * sizeof(disk->uuid) + 1];
	int rc;

	hc_rng_system(disk->uuid, sizeof(disk->uuid));
	hc_hex_encode(disk->uuid, sizeof(disk->uuid), hex);
	snprintf(text, sizeof(text), HC_VERSION_LINE "%d\n" HC_UUID_LINE "%s\n", HC_FILE_VERSION,
		 hex);
	rc = hc_file_replace(disk->dir_fd, HC_IDENTITY, text, strlen(text), 0644);
	if (rc)
		hc_error(HC_LOG, "cannot write %s/%s: %s", disk->dir, HC_IDENTITY, strerror(-rc));
	else
		hc_info(HC_LOG, "%s was empty and is a data directory now (uuid %s)", disk->dir,
			hex);
	return rc;
}

static void hc_file_log_unwritable(struct hc_file_disk *disk, const char *name, int rc)
{
	if (rc == -EROFS)
		hc_error(HC_LOG, "%s is on a read-only file system; mount it read-write",
			 disk->dir);
	else
		hc_error(HC_LOG, "cannot create %s/%s: %s; this user must be able to write there",
			 disk->dir, name, strerror(-rc));
}

/* Makes and opens one of our directories. */
static int hc_file_dir_need(struct hc_file_disk *disk, const char *name, int *fd_p)
{
	int fd, rc;

	if (mkdirat(disk->dir_fd, name, 0700) && errno != EEXIST) {
		rc = -errno;
		hc_file_log_unwritable(disk, name, rc);
		return rc;
	}
	fd = openat(disk->dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		rc = -errno;
		hc_error(HC_LOG, "cannot open %s/%s: %s", disk->dir, name, strerror(-rc));
		return rc;
	}
	*fd_p = fd;
	return 0;
}

/* Finds the highest number in staging/: all up to it are leftovers. */
static int hc_file_staging_scan(struct hc_file_disk *disk)
{
	int fd = openat(disk->staging_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	uint64_t next = 1, number;
	struct dirent *entry;
	const char *end;

	if (!dir) {
		int rc = -errno;

		if (fd >= 0)
			close(fd);
		return rc;
	}
	while ((entry = readdir(dir)))
		if (hc_file_parse_number(entry->d_name, UINT64_MAX / 2, &number, &end) && !*end &&
		    number >= next)
			next = number + 1;
	closedir(dir);
	disk->staging_first = next;
	/* Nobody knows what an earlier run left. */
	atomic_store(&disk->n_shards_made, 1);
	atomic_store(&disk->staging_next, next);
	return 0;
}

/* A real write with O_DIRECT: some file systems accept the flag and refuse the write. */
static bool hc_file_direct_works(int staging_fd, const char *name)
{
	hc_autofd int fd = openat(staging_fd, name, O_WRONLY | O_DIRECT | O_CLOEXEC);
	hc_autofree void *block = fd < 0 ? NULL : aligned_alloc(HC_BLOCK_BYTES, HC_BLOCK_BYTES);

	if (!block)
		return false;
	memset(block, 0, HC_BLOCK_BYTES);
	/* A full disk is no answer about O_DIRECT. */
	return !hc_pwrite_full(fd, block, HC_BLOCK_BYTES, 0) || errno == ENOSPC || errno == EDQUOT;
}

/* Tries what pages need, on a file in staging/. */
static int hc_file_probe(struct hc_file_disk *disk)
{
	static const struct hc_store_page page = {.size_bytes = 1};
	uint8_t meta[HC_XATTR_PAGE_BYTES];
	char name[64];
	int fd, rc = hc_file_staging_create(&disk->store->store, disk->disk_i, &fd, name,
					    sizeof(name));

	if (rc) {
		hc_file_log_unwritable(disk, "staging/...", rc);
		return rc;
	}
	hc_xattr_pack(&page, meta);
	if (fsetxattr(fd, HC_XATTR_PAGE, meta, sizeof(meta), 0)) {
		rc = errno == EOPNOTSUPP || errno == EPERM ? -ENOTSUP : -errno;
		if (rc == -ENOTSUP)
			hc_error(HC_LOG,
				 "the file system of %s has no user xattrs; use ext4 or xfs, "
				 "or mount it with user_xattr",
				 disk->dir);
		else
			hc_error(HC_LOG, "cannot set an xattr in %s/staging: %s", disk->dir,
				 strerror(-rc));
	}
	close(fd);
	if (!rc) {
		disk->direct = hc_file_direct_works(disk->staging_fd, name);
		if (!disk->direct)
			hc_info(HC_LOG,
				"%s: no O_DIRECT on this file system: reads and writes go through "
				"the page cache",
				disk->dir);
	}
	unlinkat(disk->staging_fd, name, 0);
	return rc;
}

/* One store at a time: two would remove each other's files. */
static int hc_file_lock(struct hc_file_disk *disk)
{
	for (uint16_t i = 0; i < disk->disk_i; i++) {
		if (memcmp(disk->store->disks[i].uuid, disk->uuid, sizeof(disk->uuid)))
			continue;
		hc_error(HC_LOG,
			 "%s and %s are the same data directory, or copies of one; name each once",
			 disk->store->disks[i].dir, disk->dir);
		return -EINVAL;
	}
	disk->identity_fd = openat(disk->dir_fd, HC_IDENTITY, O_RDONLY | O_CLOEXEC);
	if (disk->identity_fd < 0)
		return -errno;
	if (!flock(disk->identity_fd, LOCK_EX | LOCK_NB))
		return 0;
	if (errno == EWOULDBLOCK) {
		hc_error(HC_LOG,
			 "%s is in use by another process; one cache at a time can use a data "
			 "directory",
			 disk->dir);
		return -EBUSY;
	}
	hc_error(HC_LOG, "cannot lock %s/%s: %m", disk->dir, HC_IDENTITY);
	return -errno;
}

/* *fresh_p: an empty directory that is to be initialised. */
static int hc_file_recognise(struct hc_file_disk *disk, bool init_empty, bool *fresh_p)
{
	hc_autofree char *text = NULL;
	char other[256];
	size_t n;
	int rc = hc_file_read(disk->dir_fd, HC_IDENTITY, HC_IDENTITY_MAX, &text, &n);

	*fresh_p = rc == -ENOENT;
	if (!rc)
		return hc_file_identity_parse(disk, text);
	if (rc != -ENOENT) {
		hc_error(HC_LOG, "cannot read %s/%s: %s", disk->dir, HC_IDENTITY, strerror(-rc));
		return rc;
	}
	rc = hc_file_dir_free(disk->dir_fd, other);
	if (rc == -EEXIST)
		hc_error(HC_LOG,
			 "%s is not a data directory (no %s) and not empty: it holds %s; "
			 "name an empty directory",
			 disk->dir, HC_IDENTITY, other);
	else if (rc)
		hc_error(HC_LOG, "cannot read the directory %s: %s", disk->dir, strerror(-rc));
	if (!rc && !init_empty) {
		hc_error(HC_LOG,
			 "%s is empty and noinit is set; mount the disk that belongs there, "
			 "or start once without noinit",
			 disk->dir);
		rc = -ENOENT;
	}
	return rc;
}

int hc_file_disk_open(struct hc_file_disk *disk, const char *dir, bool init_empty)
{
	bool fresh;
	int rc;

	disk->dir = strdup(dir);
	if (!disk->dir)
		return -ENOMEM;
	disk->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (disk->dir_fd < 0) {
		rc = -errno;
		hc_error(HC_LOG, "cannot open the data directory %s: %s%s", dir, strerror(-rc),
			 rc == -ENOENT ? "; create it first" : "");
		return rc;
	}
	rc = hc_file_recognise(disk, init_empty, &fresh);
	if (!rc && !fresh)
		rc = hc_file_lock(disk);
	if (!rc)
		rc = hc_file_dir_need(disk, "staging", &disk->staging_fd);
	if (!rc)
		rc = hc_file_staging_scan(disk);
	if (!rc)
		rc = hc_file_probe(disk);
	/* A directory that cannot be used is left as it was found. */
	if (rc && fresh && disk->staging_fd >= 0)
		unlinkat(disk->dir_fd, "staging", AT_REMOVEDIR);
	if (!rc && fresh) {
		rc = hc_file_identity_write(disk);
		if (!rc)
			rc = hc_file_lock(disk);
	}
	if (!rc)
		rc = hc_file_dir_need(disk, "pages", &disk->pages_fd);
	if (!rc)
		rc = hc_file_dir_need(disk, "quarantine", &disk->quarantine_fd);
	if (!rc && fresh && fsync(disk->dir_fd))
		rc = -errno;
	return rc;
}

void hc_file_disk_close(struct hc_file_disk *disk)
{
	int *const fds[] = {&disk->pages_fd, &disk->staging_fd, &disk->quarantine_fd,
			    &disk->identity_fd, &disk->dir_fd};

	/* A forked child has the file open, too: closing alone would leave it locked. */
	if (disk->identity_fd >= 0)
		hc_ignore(flock(disk->identity_fd, LOCK_UN));
	for (size_t i = 0; i < HC_ARRAY_SIZE(fds); i++)
		if (*fds[i] >= 0)
			close(*fds[i]);
	free(disk->dir);
}

int hc_file_shard_make(struct hc_file_disk *disk, const struct hc_store_page *page)
{
	char path[160], shard[4] = {0};

	memcpy(shard, hc_file_page_path(page, path), 3);
	if (mkdirat(disk->pages_fd, shard, 0700))
		return errno == EEXIST ? 0 : -errno;
	atomic_fetch_add(&disk->n_shards_made, 1);
	return 0;
}
