/* SPDX-License-Identifier: Apache-2.0 */
/* Whose a CACHEDIR is: the file .hicachefs, its lock, and every refusal.
 *
 *   hicachefs 1
 *   uuid <32 hex digits>
 *   pid <10 columns> daemon|embedded|none     rewritten in place by whoever holds the lock
 *
 * The file is made empty, locked, and gets its lines last: an empty one is an initialisation that
 * was interrupted, in which nothing can have been stored, and is begun anew. A directory that is
 * not ours, or of a newer version, is never written to. One thread. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "node/registry_internal.h"
#include "util/io.h"
#include "util/log.h"
#include "util/rng.h"
#include "util/size.h"

#define HC_IDENTITY         ".hicachefs"
#define HC_IDENTITY_VERSION 1
#define HC_IDENTITY_BYTES   256
#define HC_IDENTITY_PROBE   "user.hicachefs"

static const char first_names[] = "space 1 . 0 0 755 0 0 0\n";

/* What an interrupted initialisation may have left. */
static bool is_leftover(const char *name)
{
	return !strcmp(name, HC_IDENTITY) || !strcmp(name, "names") || !strcmp(name, "files") ||
	       !strncmp(name, "names.", 6) || !strncmp(name, "catalog.", 8) ||
	       !strncmp(name, "journal.", 8) || !strncmp(name, "recency", 7);
}

/* Whether nothing but (leftover: our own first files and) lost+found is there. */
static int check_empty(int dir_fd, bool leftover, bool *empty_p)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	bool empty = true;

	if (!dir) {
		int err = -errno;

		if (fd >= 0)
			close(fd);
		return err;
	}
	while (empty && (entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, "lost+found") ||
		    (leftover && is_leftover(name)))
			continue;
		empty = false;
	}
	closedir(dir);
	*empty_p = empty;
	return 0;
}

static int refuse_write(const char *path, int err)
{
	if (err == -EROFS)
		hc_error(HC_REGISTRY_COMPONENT,
			 "%s is on a read-only file system: remount it read-write or name another "
			 "directory",
			 path);
	else if (err == -EACCES || err == -EPERM)
		hc_error(HC_REGISTRY_COMPONENT,
			 "%s may not be written by user %u: run as its owner, change its owner, or "
			 "name "
			 "another directory",
			 path, (unsigned)geteuid());
	else
		hc_error(HC_REGISTRY_COMPONENT, "%s: cannot write " HC_IDENTITY ": %s", path,
			 strerror(-err));
	return err;
}

static int refuse_foreign(const char *path, const char *why)
{
	hc_error(HC_REGISTRY_COMPONENT,
		 "%s is not a cache directory (%s): name an empty directory or the directory of an "
		 "existing cache",
		 path, why);
	return -ENOTEMPTY;
}

static int refuse_busy(const char *path, int fd)
{
	char text[HC_IDENTITY_BYTES] = "";
	char kind[16] = "hicachefs";
	const char *line;
	size_t n = 0;
	int pid = 0;

	if (hc_pread_full(fd, text, sizeof(text) - 1, 0, &n))
		n = 0;
	text[n] = 0;
	line = strstr(text, "\npid ");
	if (line && sscanf(line, "\npid %d %15s", &pid, kind) == 2 && pid > 0)
		hc_error(HC_REGISTRY_COMPONENT,
			 "%s is in use by %s (pid %d): %s, or name another directory", path,
			 !strcmp(kind, "daemon") ? "a hicachefs daemon"
						 : "a process that embeds the cache",
			 pid,
			 !strcmp(kind, "daemon") ? "unmount it, or use its mount or socket"
						 : "wait until it has ended");
	else
		hc_error(
			HC_REGISTRY_COMPONENT,
			"%s is in use by another process: wait until it has ended, or name another "
			"directory",
			path);
	return -EBUSY;
}

/* 0 with *empty_p (initialisation was interrupted) or the uuid. */
static int read_identity(const char *path, int fd, uint8_t uuid[16], bool *empty_p)
{
	char text[HC_IDENTITY_BYTES];
	unsigned version = 0;
	int at = 0, err;
	size_t n = 0;

	err = hc_pread_full(fd, text, sizeof(text) - 1, 0, &n);
	if (err) {
		hc_error(HC_REGISTRY_COMPONENT, "%s: cannot read " HC_IDENTITY ": %s", path,
			 strerror(-err));
		return err;
	}
	text[n] = 0;
	*empty_p = !n;
	if (!n)
		return 0;
	if (sscanf(text, "hicachefs %9u%n", &version, &at) != 1 || text[at] != '\n' || !version)
		return refuse_foreign(path, HC_IDENTITY " is something else");
	if (version > HC_IDENTITY_VERSION) {
		hc_error(
			HC_REGISTRY_COMPONENT,
			"%s was made by a newer hicachefs (format %u, this one knows %d): use that "
			"version or name another directory; nothing was changed",
			path, version, HC_IDENTITY_VERSION);
		return -EPROTO;
	}
	if (strncmp(text + at, "\nuuid ", 6) || hc_hex_decode(text + at + 6, uuid, 16) ||
	    text[at + 38] != '\n')
		return refuse_foreign(path, HC_IDENTITY " is damaged");
	return 0;
}

static void note_owner(struct hc_registry *registry, int pid, const char *kind)
{
	char head[80], line[80], hex[33];
	int at, n;

	hc_hex_encode(registry->uuid, 16, hex);
	at = snprintf(head, sizeof(head), "hicachefs %d\nuuid %s\n", HC_IDENTITY_VERSION, hex);
	n = snprintf(line, sizeof(line), "pid %10d %-8s\n", pid, kind);
	/* Only the message of a refusal reads it. */
	if (hc_pwrite_full(registry->lock_fd, line, (size_t)n, at))
		hc_debug(HC_REGISTRY_COMPONENT, "%s: cannot note the process", registry->path);
}

static int probe_xattr(const char *path, int fd)
{
	int err = 0;

	if (fsetxattr(fd, HC_IDENTITY_PROBE, "1", 1, 0))
		err = -errno;
	else if (fremovexattr(fd, HC_IDENTITY_PROBE))
		err = -errno;
	if (!err)
		return 0;
	if (err != -EOPNOTSUPP && err != -ENOSPC)
		return refuse_write(path, err);
	hc_error(HC_REGISTRY_COMPONENT,
		 "%s: its file system keeps no user xattrs: use ext4, xfs or btrfs (or tmpfs of "
		 "Linux "
		 "6.6 or later)",
		 path);
	return -ENOTSUP;
}

/* A new, empty identity in an empty directory. -EEXIST: somebody else was faster. */
static int begin(int dir_fd, const char *path, bool noinit, int *fd_p)
{
	bool empty = false;
	int err = check_empty(dir_fd, false, &empty);
	int fd;

	if (err) {
		hc_error(HC_REGISTRY_COMPONENT, "%s cannot be listed: %s", path, strerror(-err));
		return err;
	}
	if (!empty)
		return refuse_foreign(path, "it has no " HC_IDENTITY " and is not empty");
	if (noinit) {
		hc_error(HC_REGISTRY_COMPONENT,
			 "%s is empty and noinit is set: mount the disk that holds the cache, or "
			 "leave "
			 "noinit out once to initialise it",
			 path);
		return -ENOENT;
	}
	fd = openat(dir_fd, HC_IDENTITY, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 && errno == EEXIST)
		return -EEXIST;
	if (fd < 0)
		return refuse_write(path, -errno);
	*fd_p = fd;
	return 0;
}

static int open_identity(int dir_fd, const char *path, bool noinit, int *fd_p)
{
	for (int i = 0; i < 3; i++) {
		int err, fd = openat(dir_fd, HC_IDENTITY, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

		if (fd >= 0) {
			*fd_p = fd;
			return 0;
		}
		if (errno == ELOOP || errno == EISDIR)
			return refuse_foreign(path, HC_IDENTITY " is not a file");
		if (errno != ENOENT)
			return refuse_write(path, -errno);
		err = begin(dir_fd, path, noinit, fd_p);
		if (err != -EEXIST)
			return err;
	}
	return refuse_busy(path, -1);
}

static int prepare_fresh(struct hc_registry *registry)
{
	bool empty = false;
	int err = check_empty(registry->dir_fd, true, &empty);

	if (err)
		return refuse_write(registry->path, err);
	if (!empty)
		return refuse_foreign(registry->path,
				      HC_IDENTITY " is empty and other files are there");
	hc_rng_system(registry->uuid, sizeof(registry->uuid));
	err = hc_file_replace(registry->dir_fd, "names", first_names, sizeof(first_names) - 1,
			      0600);
	return err ? refuse_write(registry->path, err) : 0;
}

static int open_locked(struct hc_registry *registry, const struct hc_registry_config *config)
{
	const char *path = registry->path;
	int err;

	/* Before the lock: a newer version may lock otherwise. Then again: it may have been
	 * initialised meanwhile. */
	err = read_identity(path, registry->lock_fd, registry->uuid, &registry->fresh);
	if (err)
		return err;
	if (flock(registry->lock_fd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK ? refuse_busy(path, registry->lock_fd)
					    : refuse_write(path, -errno);
	err = read_identity(path, registry->lock_fd, registry->uuid, &registry->fresh);
	if (err)
		return err;
	err = probe_xattr(path, registry->lock_fd);
	if (err) {
		if (registry->fresh)
			unlinkat(registry->dir_fd, HC_IDENTITY, 0);
		return err;
	}
	if (registry->fresh)
		err = prepare_fresh(registry);
	else
		note_owner(registry, (int)getpid(), config->embedded ? "embedded" : "daemon");
	if (err)
		return err;
	if (mkdirat(registry->dir_fd, "files", 0700) && errno != EEXIST)
		return refuse_write(path, -errno);
	registry->files_fd =
		openat(registry->dir_fd, "files", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return registry->files_fd < 0 ? refuse_write(path, -errno) : 0;
}

int hc_identity_open(struct hc_registry *registry, const struct hc_registry_config *config)
{
	int err;

	registry->path = strdup(config->cachedir);
	if (!registry->path)
		return -ENOMEM;
	registry->dir_fd = open(config->cachedir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (registry->dir_fd < 0) {
		err = -errno;
		if (err == -ENOENT)
			hc_error(HC_REGISTRY_COMPONENT,
				 "%s does not exist: make it (mkdir) on the disk that is to hold "
				 "the "
				 "cache",
				 registry->path);
		else
			hc_error(HC_REGISTRY_COMPONENT, "%s cannot be opened as a directory: %s",
				 registry->path, strerror(-err));
		return err;
	}
	err = open_identity(registry->dir_fd, registry->path, config->noinit, &registry->lock_fd);
	if (err)
		return err;
	err = open_locked(registry, config);
	if (!err && registry->fresh)
		hc_info(HC_REGISTRY_COMPONENT, "%s is empty: initialising a cache there",
			registry->path);
	return err;
}

int hc_identity_commit(struct hc_registry *registry, bool embedded)
{
	char text[HC_IDENTITY_BYTES], hex[33];
	int n, err;

	hc_hex_encode(registry->uuid, 16, hex);
	n = snprintf(text, sizeof(text), "hicachefs %d\nuuid %s\n", HC_IDENTITY_VERSION, hex);
	err = hc_pwrite_full(registry->lock_fd, text, (size_t)n, 0);
	if (!err && (fsync(registry->lock_fd) || fsync(registry->dir_fd)))
		err = -errno;
	if (err)
		return refuse_write(registry->path, err);
	registry->fresh = false;
	note_owner(registry, (int)getpid(), embedded ? "embedded" : "daemon");
	return 0;
}

void hc_identity_close(struct hc_registry *registry)
{
	if (registry->lock_fd >= 0) {
		if (registry->names_fd >= 0 && !registry->fresh)
			note_owner(registry, 0, "none");
		/* A child that was forked meanwhile has the file open, too: closing alone would
		 * leave it locked. */
		hc_ignore(flock(registry->lock_fd, LOCK_UN));
		close(registry->lock_fd);
	}
	if (registry->files_fd >= 0)
		close(registry->files_fd);
	if (registry->dir_fd >= 0)
		close(registry->dir_fd);
	free(registry->presets);
	free(registry->path);
}
