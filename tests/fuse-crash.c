/* SPDX-License-Identifier: Apache-2.0 */
/* Writers and readers whose daemon is going to be killed, and the check of what is there after the
 *next start. Usage: fuse-crash DIRECTORY LOG run ROUND	4 writers and 4 readers until the mount
 *dies; exit status 0
 *	  fuse-crash DIRECTORY LOG check	everything visible is whole and right, nothing
 *synced is lost, nothing unlinked came back, no temporary is shown LOG: a line "S name" before a
 *name may be relied on (after fsync), "U name" after an unlink has answered, "W name" before an
 *unlink is asked for. */
#include <dirent.h>

#include "tests/fuse-actors.h"

#define N_WRITERS 4
#define N_READERS 4
#define N_KEPT    16
#define BYTES_MAX (64l << 10)

static int log_fd;

static void say(char what, const char *name)
{
	char line[PATH_BYTES];
	int n = snprintf(line, sizeof(line), "%c %s\n", what, name);

	if (write(log_fd, line, (size_t)n) != n)
		_exit(99);
}

/* Size and bytes of a page follow from its name. */
static unsigned mix(const char *name)
{
	unsigned h = 2166136261u;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 16777619u;
	return h ^ h >> 15;
}

static long size_of(const char *name)
{
	/* one size of slots: it is not re-cutting that is tried here */
	return BYTES_MAX - (long)(mix(name) % 4096);
}

static int byte_of(const char *name)
{
	return 1 + (int)(mix(name) >> 8) % 250;
}

static void name_of(char out[PATH_BYTES], unsigned round, unsigned writer, unsigned i)
{
	snprintf(out, PATH_BYTES, "%08x%08x%048x_r%u.bin", i * 2654435761u + writer, round, i,
		 writer);
}

static bool is_dead(void)
{
	return errno == ENOTCONN || errno == ECONNABORTED || errno == EIO || errno == ENOENT ||
	       errno == ENODEV || errno == EINTR;
}

/* False: the daemon is gone. */
static bool store(const char *name, bool in_place, bool sync)
{
	char temp[PATH_BYTES + 32], path[PATH_BYTES];
	long size = size_of(name);
	unsigned char *buf = malloc((size_t)size);
	bool ok;
	int fd;

	memset(buf, byte_of(name), (size_t)size);
	full_path(path, name);
	snprintf(temp, sizeof(temp), "%s%s", path, in_place ? "" : ".tmp");
	fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	ok = fd >= 0 && write(fd, buf, (size_t)size) == size;
	if (fd >= 0 && close(fd))
		ok = false;
	if (ok && !in_place && rename(temp, path))
		ok = false;
	free(buf);
	if (!ok || !sync)
		return ok;
	fd = open(path, O_RDONLY);
	ok = fd >= 0 && fsync(fd) == 0;
	if (ok)
		say('S', name);
	if (fd >= 0)
		close(fd);
	return ok;
}

static void writer(unsigned round, unsigned id)
{
	char name[PATH_BYTES], path[PATH_BYTES];

	for (unsigned i = 0;; i++) {
		name_of(name, round, id, i);
		if (!store(name, i % 3 == 0, i % 7 == 0))
			break;
		if (i < N_KEPT || i % 2)
			continue;
		name_of(name, round, id, i - N_KEPT);
		full_path(path, name);
		say('W', name);
		if (unlink(path)) {
			if (errno == ENOENT)
				continue;
			break;
		}
		say('U', name);
	}
	_exit(is_dead() ? 0 : 1);
}

/* A page that can be opened is whole. */
static bool is_right(const char *name, long *rc_p)
{
	char path[PATH_BYTES];
	long value = 0;

	full_path(path, name);
	*rc_p = get_file(path, &value);
	return *rc_p == size_of(name) && value == byte_of(name);
}

static void reader(unsigned round, unsigned id)
{
	char name[PATH_BYTES];
	unsigned random = round * 31 + id;
	long rc;

	for (unsigned n_missing = 0; n_missing < 200000;) {
		random = random * 1664525u + 1013904223u;
		name_of(name, round, random >> 8 & (N_WRITERS - 1), (random >> 12) % 200);
		if (is_right(name, &rc))
			continue;
		if (rc == -ENOENT) {
			/* the writers want the processors, too */
			if (++n_missing % 8 == 0)
				poll(NULL, 0, 1);
			continue;
		}
		errno = rc < 0 ? (int)-rc : 0;
		_exit(rc < 0 && is_dead() ? 0 : 2);
	}
	_exit(0);
}

static int run(unsigned round)
{
	int status, failed = 0;

	for (unsigned i = 0; i < N_WRITERS; i++)
		if (fork() == 0)
			writer(round, i);
	for (unsigned i = 0; i < N_READERS; i++)
		if (fork() == 0)
			reader(round, i);
	while (wait(&status) > 0)
		failed |= status;
	if (failed)
		fprintf(stderr, "a writer or reader saw what it should not: status %#x\n",
			(unsigned)failed);
	return failed != 0;
}

/* The last word of the log on a name: 'S', 'W' or 'U', or 0. */
static char last_word(char *log, const char *name)
{
	char word = 0, *at = log;

	while ((at = strstr(at, name))) {
		word = at[-2];
		at++;
	}
	return word;
}

static char *read_log(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	char *text;

	if (fd < 0 || fstat(fd, &st))
		exit(99);
	text = calloc(1, (size_t)st.st_size + 1);
	if (read(fd, text, (size_t)st.st_size) != st.st_size)
		exit(99);
	close(fd);
	return text;
}

static int check_mount(const char *log_path)
{
	char *log = read_log(log_path), *line, *next;
	char path[PATH_BYTES];
	long n = 0, n_synced = 0, rc;
	struct dirent *e;
	DIR *d = opendir(mount_dir);

	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		n++;
		if (strstr(e->d_name, ".tmp")) {
			fprintf(stderr, "a temporary is shown: %s\n", e->d_name);
			n_failed++;
		} else if (!is_right(e->d_name, &rc) && rc != -ENOENT) {
			fprintf(stderr, "%s: not as it was: %ld\n", e->d_name, rc);
			n_failed++;
		} else if (last_word(log, e->d_name) == 'U') {
			fprintf(stderr, "%s was unlinked and is back\n", e->d_name);
			n_failed++;
		}
	}
	if (d)
		closedir(d);
	for (line = log; (next = strchr(line, '\n')); line = next + 1) {
		*next = '\0';
		if (*line != 'S' || last_word(next + 1, line + 2))
			continue;
		n_synced++;
		if (!is_right(line + 2, &rc)) {
			fprintf(stderr, "%s was synced and is not there: %ld\n", line + 2, rc);
			n_failed++;
		}
	}
	/* the next round begins empty */
	d = opendir(mount_dir);
	while (d && (e = readdir(d))) {
		full_path(path, e->d_name);
		if (e->d_name[0] != '.')
			unlink(path);
	}
	if (d)
		closedir(d);
	printf("%ld pages whole, %ld of them synced\n", n, n_synced);
	free(log);
	return n_failed != 0;
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: fuse-crash DIRECTORY LOG run ROUND | check\n");
		return 2;
	}
	mount_dir = argv[1];
	log_fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND, 0644);
	if (log_fd < 0)
		return 99;
	if (!strcmp(argv[3], "check"))
		return check_mount(argv[2]);
	return run(argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 0);
}
