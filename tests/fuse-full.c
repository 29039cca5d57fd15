/* SPDX-License-Identifier: Apache-2.0 */
/* A pool that is full of pages that are held: ENOSPC, at the rename at the latest; room again when
 * they are let go. Usage: fuse-full DIRECTORY PAGE_BYTES N_FIT: about N_FIT pages fit (at least
 * half of that do, at most that many) */
#include "tests/fuse-actors.h"

#define N_MAX 4096

static long put(unsigned i, long size)
{
	unsigned char *buf = malloc((size_t)size);
	char path[PATH_BYTES], temp[PATH_BYTES + 8];
	long rc;
	int fd;

	memset(buf, (int)(i % 250) + 1, (size_t)size);
	full_path(path, page_name(i));
	snprintf(temp, sizeof(temp), "%s.tmp", path);
	fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	rc = fd < 0 ? -errno : err_of(write(fd, buf, (size_t)size));
	if (fd >= 0 && close(fd))
		rc = -errno;
	if (rc == size && rename(temp, path))
		rc = -errno;
	if (rc < 0)
		unlink(temp);
	free(buf);
	return rc;
}

static int hold(unsigned i)
{
	char path[PATH_BYTES];

	full_path(path, page_name(i));
	return (int)err_of(open(path, O_RDONLY));
}

int main(int argc, char **argv)
{
	static int held[N_MAX];
	unsigned n_held = 0;
	long size, n_fit, rc = 0, value;
	unsigned char *buf;
	char path[PATH_BYTES];

	if (argc != 4)
		return 2;
	mount_dir = argv[1];
	size = strtol(argv[2], NULL, 10);
	n_fit = strtol(argv[3], NULL, 10);
	buf = malloc((size_t)size);
	for (unsigned i = 0; i < N_MAX; i++) {
		int fd;

		rc = put(i, size);
		if (rc != size)
			break;
		fd = hold(i);
		/* published without room is a page that is not there; that is a miss, not an error
		 */
		if (fd < 0) {
			rc = fd;
			break;
		}
		held[n_held++] = fd;
	}
	printf("%u pages held, then: %s\n", n_held, rc < 0 ? strerror((int)-rc) : "a short write");
	check(rc, -ENOSPC);
	check(n_held >= (unsigned long)n_fit / 2 && n_held <= (unsigned long)n_fit, 1);
	/* what is held is whole */
	for (unsigned i = 0; i < n_held; i++) {
		check(pread(held[i], buf, (size_t)size, 0), size);
		check(uniform(buf, size), (long)(i % 250) + 1);
		close(held[i]);
	}
	/* and makes room now; RELEASEs are on their way */
	for (int i = 0; i < 100 && (rc = put(N_MAX, size)) == -ENOSPC; i++)
		poll(NULL, 0, 20);
	check(rc, size);
	full_path(path, page_name(N_MAX));
	check(get_file(path, &value), size);
	free(buf);
	return n_failed != 0;
}
