/* SPDX-License-Identifier: Apache-2.0 */
/* fuse-passthrough DIR OPENS: no open of one name fails with EIO, however it is opened while others
 * have it open, write it anew, rename over it and unlink it; and a read of what opened is one whole
 * body. Four readers (plain, O_DIRECT, by a shared map) share OPENS opens; a writer renames a new
 * body over the name for ever, a second one writes the name in place, with and without reading. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BODY_BYTES ((size_t)64 << 10)
#define N_READERS  4
#define PATH_BYTES 4096

struct shared {
	atomic_long n_opens, n_missing, n_done, n_wrong, n_writes;
	atomic_bool stop;
	pthread_mutex_t lock;
	pthread_cond_t written; /* n_writes grew */
	char error[256];
};

static struct shared *shared;
static char name[PATH_BYTES], temporary[PATH_BYTES + 8];

static void wrong(const char *what, int err)
{
	if (!atomic_fetch_add(&shared->n_wrong, 1))
		snprintf(shared->error, sizeof(shared->error), "%s: %s", what, strerror(err));
}

static void check(const char *what, const char *bytes, ssize_t n)
{
	if (n != (ssize_t)BODY_BYTES)
		wrong(what, n < 0 ? errno : ENODATA);
	else if (memcmp(bytes, bytes + 1, BODY_BYTES - 1) != 0)
		wrong(what, EBADMSG);
}

static bool read_once(int how, char *buf)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC | (how == 1 ? O_DIRECT : 0));
	char *map;

	atomic_fetch_add(&shared->n_opens, 1);
	if (fd < 0) {
		if (errno != ENOENT)
			wrong("open to read", errno);
		atomic_fetch_add(&shared->n_missing, 1);
		return false;
	}
	check(how == 1 ? "read with O_DIRECT" : "read", buf, pread(fd, buf, BODY_BYTES, 0));
	if (how == 2) {
		map = mmap(NULL, BODY_BYTES, PROT_READ, MAP_SHARED, fd, 0);
		if (map == MAP_FAILED && errno != ENODEV)
			wrong("map", errno);
		if (map != MAP_FAILED) {
			check("map", map, (ssize_t)BODY_BYTES);
			munmap(map, BODY_BYTES);
		}
	}
	close(fd);
	return true;
}

static void tell_readers(void)
{
	pthread_mutex_lock(&shared->lock);
	atomic_fetch_add(&shared->n_writes, 1);
	pthread_cond_broadcast(&shared->written);
	pthread_mutex_unlock(&shared->lock);
}

/* Until the next body is written; the caller's time limit is the deadline. */
static void wait_for_body(void)
{
	long seen;

	pthread_mutex_lock(&shared->lock);
	seen = atomic_load(&shared->n_writes);
	while (atomic_load(&shared->n_writes) == seen)
		pthread_cond_wait(&shared->written, &shared->lock);
	pthread_mutex_unlock(&shared->lock);
}

static bool make_shared(void)
{
	pthread_mutexattr_t for_lock;
	pthread_condattr_t for_cond;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return false;
	pthread_mutexattr_init(&for_lock);
	pthread_mutexattr_setpshared(&for_lock, PTHREAD_PROCESS_SHARED);
	pthread_condattr_init(&for_cond);
	pthread_condattr_setpshared(&for_cond, PTHREAD_PROCESS_SHARED);
	return !pthread_mutex_init(&shared->lock, &for_lock) &&
	       !pthread_cond_init(&shared->written, &for_cond);
}

/* Misses are many while the name is unlinked: only opens count. Who misses again and again lets the
 * writers have the processor. The caller has a time limit. */
static void reader(int number, long n)
{
	char *buf = aligned_alloc(4096, BODY_BYTES);
	unsigned n_misses = 0;

	for (long i = 0, n_good = 0; buf && n_good < n; i++) {
		if (read_once((int)((i + number) % 3), buf)) {
			n_good++;
			n_misses = 0;
		} else if (++n_misses % 8 == 0) {
			wait_for_body();
		}
	}
	_exit(!buf);
}

/* ESTALE and EBUSY are answers to a writer whose name is being replaced all the time; EIO is not.
 */
static int open_to_write(const char *path, int flags)
{
	int fd = open(path, flags | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0 && errno != ESTALE && errno != EBUSY && errno != ENOENT)
		wrong("open to write", errno);
	return fd;
}

static void write_once(const char *path, int flags, char byte, char *buf)
{
	int fd = open_to_write(path, flags);

	if (fd < 0)
		return;
	memset(buf, byte, BODY_BYTES);
	if (pwrite(fd, buf, BODY_BYTES, 0) != (ssize_t)BODY_BYTES)
		wrong("write", errno);
	close(fd);
	tell_readers();
}

static void writer(bool in_place)
{
	static const int flags[] = {O_WRONLY | O_TRUNC, O_RDWR | O_TRUNC, O_WRONLY, O_RDWR};
	char *buf = malloc(BODY_BYTES);

	for (unsigned i = 0; buf && !atomic_load(&shared->stop); i++) {
		if (in_place) {
			write_once(name, flags[i % 4], (char)('a' + i % 26), buf);
			if (i % 50 == 49)
				unlink(name);
			continue;
		}
		write_once(temporary, flags[i % 4], (char)('A' + i % 26), buf);
		if (rename(temporary, name) && errno != ENOENT)
			wrong("rename", errno);
	}
	_exit(!buf);
}

int main(int argc, char **argv)
{
	long n = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
	pid_t pids[N_READERS + 2];
	int status, rc = 0;

	if (n < N_READERS) {
		fprintf(stderr, "usage: fuse-passthrough DIR OPENS\n");
		return 2;
	}
	if (!make_shared())
		return 2;
	snprintf(name, sizeof(name), "%.3900s/%064x.bin", argv[1], 0x5eed);
	snprintf(temporary, sizeof(temporary), "%s.tmp", name);
	for (int i = 0; i < N_READERS + 2; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			return 2;
		if (pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (i < N_READERS)
			reader(i, n / N_READERS);
		writer(i == N_READERS);
	}
	for (int i = 0; i < N_READERS + 2; i++) {
		if (i == N_READERS)
			atomic_store(&shared->stop, true);
		if (waitpid(pids[i], &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
			rc = 1;
	}
	printf("%ld opens, %ld of them misses; %ld bodies written; %ld wrong%s%s\n",
	       atomic_load(&shared->n_opens), atomic_load(&shared->n_missing),
	       atomic_load(&shared->n_writes), atomic_load(&shared->n_wrong),
	       *shared->error ? ": " : "", shared->error);
	return rc || atomic_load(&shared->n_wrong) || !atomic_load(&shared->n_writes) ||
	       atomic_load(&shared->n_missing) == atomic_load(&shared->n_opens);
}
