/* SPDX-License-Identifier: Apache-2.0 */
/* Sets and gets at full speed by several processes and threads: no set may fail, no get may be
 *torn, short or missing. Usage: fuse-races DIRECTORY KIND PROCESSES THREADS NAMES ROUNDS
 *
 *	one-temp   all use one temporary name and one final name
 *	unsealed   the same, renamed before it is closed
 *	own-temp   a temporary of its own each, sets and gets of NAMES pages
 *	in-place   open, write, close, get of NAMES pages
 *	unlink     own-temp, with every fourth round an unlink: gets may miss, nothing else may fail
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/fuse-actors.h"

#define SIZE        (64l << 10)
#define MAX_THREADS 16

static struct shared {
	atomic_long rounds, missing, stale, torn, short_reads, failed_sets, failed_stats,
		last_errno;
} * shared;

static const char *kind;
static int n_names, n_rounds;

/* The test's own little generator: a seed for each thread, so a run can be repeated. */
static unsigned next_random(unsigned *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void note(long rc, long byte)
{
	if (rc == -ENOENT)
		atomic_fetch_add(&shared->missing, 1);
	else if (rc == -ESTALE)
		atomic_fetch_add(&shared->stale, 1);
	else if (rc != SIZE)
		atomic_fetch_add(&shared->short_reads, 1);
	else if (byte < 0)
		atomic_fetch_add(&shared->torn, 1);
	if (rc < 0 && rc != -ENOENT)
		atomic_store(&shared->last_errno, -rc);
}

static bool set(const char *temp, const char *final, unsigned char *buf)
{
	int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	bool ok = fd >= 0 && write(fd, buf, SIZE) == SIZE;
	bool unsealed = !strcmp(kind, "unsealed");

	if (ok && unsealed && rename(temp, final))
		ok = false;
	if (fd >= 0 && close(fd))
		ok = false;
	if (ok && !unsealed && strcmp(temp, final) != 0 && rename(temp, final))
		ok = false;
	if (!ok) {
		atomic_fetch_add(&shared->failed_sets, 1);
		atomic_store(&shared->last_errno, errno);
	}
	return ok;
}

static void *worker(void *arg)
{
	char temp[PATH_BYTES + 32], final[PATH_BYTES];
	unsigned char *buf = malloc(SIZE);
	int id = (int)(long)arg;
	unsigned random = (unsigned)id * 7919u + 1;
	bool own = !strcmp(kind, "own-temp"),
	     one = !strcmp(kind, "one-temp") || !strcmp(kind, "unsealed"),
	     unlinks = !strcmp(kind, "unlink"), drop = unlinks || !strcmp(kind, "evict");
	struct stat st;
	long byte = 0, rc;

	for (int i = 0; i < n_rounds; i++) {
		unsigned name = next_random(&random) % (unsigned)n_names;

		atomic_fetch_add(&shared->rounds, 1);
		full_path(final, page_name(5000 + name));
		if (one)
			full_path(temp, "0123456789abcdef0123456789abcdef.tmp");
		else if (own || drop)
			snprintf(temp, sizeof(temp), "%s.tmp.%d.%d", final, getpid(), id);
		else
			snprintf(temp, sizeof(temp), "%s", final);
		if (unlinks && i % 4 == 3) {
			if (unlink(final) && errno != ENOENT)
				atomic_fetch_add(&shared->failed_sets, 1);
			continue;
		}
		if ((!own && !drop) || next_random(&random) % 2) {
			memset(buf, 1 + (id * 61 + i) % 250, SIZE);
			if (!set(temp, final, buf) || own || drop)
				continue;
		} else if (!drop && next_random(&random) % 4 == 0) {
			if (stat(final, &st) || st.st_size != SIZE || access(final, R_OK))
				atomic_fetch_add(&shared->failed_stats, 1);
			continue;
		}
		rc = get_file(final, &byte);
		note(rc, byte);
	}
	free(buf);
	return NULL;
}

static void fill(void)
{
	unsigned char *buf = malloc(SIZE);
	char final[PATH_BYTES];

	memset(buf, 1, SIZE);
	for (int i = 0; i < n_names; i++) {
		full_path(final, page_name(5000 + (unsigned)i));
		set(final, final, buf);
	}
	free(buf);
}

static void run_threads(int first, int n)
{
	pthread_t threads[MAX_THREADS];

	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, worker, (void *)(long)(first + i)))
			_exit(99);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	int n_processes, n_threads, status, failed = 0;
	long bad;

	if (argc != 7) {
		fprintf(stderr,
			"usage: fuse-races DIRECTORY KIND PROCESSES THREADS NAMES ROUNDS\n");
		return 2;
	}
	mount_dir = argv[1];
	kind = argv[2];
	n_processes = (int)strtol(argv[3], NULL, 10);
	n_threads = (int)strtol(argv[4], NULL, 10);
	n_names = (int)strtol(argv[5], NULL, 10);
	n_rounds = (int)strtol(argv[6], NULL, 10);
	if (n_processes < 1 || n_processes > MAX_THREADS || n_threads < 1 ||
	    n_threads > MAX_THREADS || n_names < 1)
		return 2;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (!strcmp(kind, "own-temp"))
		fill();
	for (int i = 0; i < n_processes; i++) {
		if (fork() == 0) {
			run_threads(i * n_threads, n_threads);
			_exit(0);
		}
	}
	while (wait(&status) > 0)
		failed |= status != 0;
	printf("%s, %d x %d: %ld rounds: missing %ld, stale %ld, torn %ld, short %ld, failed sets "
	       "%ld, "
	       "failed stats %ld (errno %ld)\n",
	       kind, n_processes, n_threads, (long)shared->rounds, (long)shared->missing,
	       (long)shared->stale, (long)shared->torn, (long)shared->short_reads,
	       (long)shared->failed_sets, (long)shared->failed_stats, (long)shared->last_errno);
	bad = shared->stale + shared->torn + shared->short_reads + shared->failed_stats +
	      shared->failed_sets;
	if (strcmp(kind, "unlink") != 0 && strcmp(kind, "evict") != 0)
		bad += shared->missing;
	return failed || bad || shared->rounds != (long)n_processes * n_threads * n_rounds;
}
