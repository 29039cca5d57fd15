/* SPDX-License-Identifier: Apache-2.0 */
/* See io.h. */
#include "util/io.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

int hc_pread_full(int fd, void *buf, size_t n, off_t offset, size_t *got_p)
{
	size_t got = 0;

	while (got < n) {
		ssize_t r = pread(fd, (char *)buf + got, n - got, offset + (off_t)got);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (!r)
			break;
		got += (size_t)r;
	}
	*got_p = got;
	return 0;
}

int hc_pwrite_full(int fd, const void *buf, size_t n, off_t offset)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = pwrite(fd, (const char *)buf + done, n - done, offset + (off_t)done);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (!r)
			return -EIO;
		done += (size_t)r;
	}
	return 0;
}

int hc_file_read(int dirfd, const char *path, size_t max_bytes, char **text_p, size_t *n_p)
{
	hc_autofd int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	hc_autofree char *text = NULL;
	size_t room = 4096, n = 0;

	if (fd < 0)
		return -errno;
	for (;;) {
		char *more = realloc(text, room + 1);
		size_t got;
		int rc;

		if (!more)
			return -ENOMEM;
		text = more;
		rc = hc_pread_full(fd, text + n, room - n, (off_t)n, &got);
		if (rc)
			return rc;
		n += got;
		if (n > max_bytes)
			return -EFBIG;
		if (n < room)
			break;
		room *= 2;
	}
	text[n] = 0;
	*text_p = hc_steal(&text);
	*n_p = n;
	return 0;
}

int hc_file_replace(int dirfd, const char *path, const void *data, size_t n, int mode)
{
	hc_autofd int fd = -1;
	hc_autofd int dir = -1;
	char temp[PATH_MAX], parent[PATH_MAX];
	char *slash;
	int rc;

	if (snprintf(temp, sizeof(temp), "%s.new", path) >= (int)sizeof(temp))
		return -ENAMETOOLONG;
	snprintf(parent, sizeof(parent), "%s", path);
	slash = strrchr(parent, '/');
	if (slash)
		slash[slash == parent] = 0;
	dir = openat(dirfd, slash ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	rc = hc_pwrite_full(fd, data, n, 0);
	if (!rc && fsync(fd))
		rc = -errno;
	if (!rc && renameat(dirfd, temp, dirfd, path))
		rc = -errno;
	if (rc) {
		unlinkat(dirfd, temp, 0);
		return rc;
	}
	return fsync(dir) ? -errno : 0;
}

int hc_mkdir_parents(int dirfd, const char *path, int mode)
{
	char part[PATH_MAX];

	if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part))
		return -ENAMETOOLONG;
	for (char *p = part + 1;; p++) {
		char c = *p;

		if (c && c != '/')
			continue;
		*p = 0;
		if (mkdirat(dirfd, part, (mode_t)mode) && errno != EEXIST)
			return -errno;
		*p = c;
		if (!c)
			return 0;
	}
}
