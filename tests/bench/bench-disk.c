/* SPDX-License-Identifier: Apache-2.0 */
/* Gets and puts of whole pages by store/file, against plain threads that do the same with pread and
 * pwrite (same files, queue depth, memory, checksum), and against io_uring where it is there. The
 * engines take turns, batch by batch, over the same files; figures are medians over the rounds.
 * Nothing of a page is ever in the page cache (O_DIRECT). Usage: bench-disk [DIR]     DIR: where
 * files may lie (default $TMPDIR or /var/tmp) */
#include "bench-disk.h"
#include "bench.h"

#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "model/checksum.h"
#include "util/rng.h"

#define BENCH_AIM     0.9
#define N_ENGINES_MAX 3
#define N_ROUNDS      12
#define BATCH_BYTES   ((size_t)128 << 20)
#define N_JOBS_MAX    (BATCH_BYTES >> 20)

/* ---- one file, without the store ---- */

int bench_open_get(struct bench_disk *disk, const struct hc_store_page *page)
{
	char path[160];
	struct stat st;
	int fd, rc = 0;

	hc_store_file_path(page, path);
	fd = openat(disk->dir_fd, path, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NOATIME);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		rc = -errno;
	else if ((uint64_t)st.st_size != page->size_bytes)
		rc = -EBADMSG;
	if (rc)
		close(fd);
	return rc ? rc : fd;
}

int bench_open_put(struct bench_disk *disk, const struct hc_store_page *page)
{
	char path[160];
	int fd;

	hc_store_file_path(page, path);
	fd = openat(disk->dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

int bench_end_get(int fd, const struct bench_job *job)
{
	close(fd);
	return hc_checksum(job->data, job->page.size_bytes) == job->page.checksum ? 0 : -EBADMSG;
}

int bench_end_put(int fd, const struct bench_job *job)
{
	uint8_t meta[HC_XATTR_PAGE_BYTES];
	int rc;

	hc_xattr_pack(&job->page, meta);
	rc = fsetxattr(fd, HC_XATTR_PAGE, meta, sizeof(meta), 0) ? -errno : 0;
	close(fd);
	return rc;
}

/* ---- the plain engine: threads that wait between batches ---- */

struct plain {
	pthread_mutex_t lock;
	pthread_cond_t go;
	pthread_cond_t done;
	pthread_t threads[BENCH_READERS];
	uint64_t batch; /* under lock, as all below */
	uint32_t n_wanted;
	uint32_t n_busy;
	bool stop;
	bool put;
	struct bench_disk *disk;
	const struct bench_job *jobs;
	size_t n;
	_Atomic size_t next;
	atomic_int error;
};

static int plain_one(struct plain *plain, const struct bench_job *job)
{
	size_t n = (size_t)job->page.size_bytes;
	ssize_t got;
	int fd;

	fd = plain->put ? bench_open_put(plain->disk, &job->page)
			: bench_open_get(plain->disk, &job->page);
	if (fd < 0)
		return fd;
	got = plain->put ? pwrite(fd, job->data, n, 0) : pread(fd, job->data, n, 0);
	if (got == (ssize_t)n)
		return plain->put ? bench_end_put(fd, job) : bench_end_get(fd, job);
	got = got < 0 ? -errno : -EIO;
	close(fd);
	return (int)got;
}

static void *plain_thread(void *arg)
{
	struct plain *plain = arg;
	uint64_t seen = 0;

	pthread_mutex_lock(&plain->lock);
	for (;;) {
		size_t i;

		while (!plain->stop && (plain->batch == seen || !plain->n_wanted)) {
			seen = plain->batch;
			pthread_cond_wait(&plain->go, &plain->lock);
		}
		if (plain->stop)
			break;
		seen = plain->batch;
		plain->n_wanted--;
		pthread_mutex_unlock(&plain->lock);
		while ((i = atomic_fetch_add(&plain->next, 1)) < plain->n) {
			int rc = plain_one(plain, &plain->jobs[i]);

			if (rc)
				atomic_store(&plain->error, rc);
		}
		pthread_mutex_lock(&plain->lock);
		if (!--plain->n_busy)
			pthread_cond_signal(&plain->done);
	}
	pthread_mutex_unlock(&plain->lock);
	return NULL;
}

static int plain_run(struct bench_disk *disk, const struct bench_job *jobs, size_t n, bool put)
{
	struct plain *plain = disk->plain;

	pthread_mutex_lock(&plain->lock);
	plain->disk = disk;
	plain->jobs = jobs;
	plain->n = n;
	plain->put = put;
	plain->n_wanted = plain->n_busy = put ? BENCH_WRITERS : BENCH_READERS;
	atomic_store(&plain->next, 0);
	plain->batch++;
	pthread_cond_broadcast(&plain->go);
	while (plain->n_busy)
		pthread_cond_wait(&plain->done, &plain->lock);
	pthread_mutex_unlock(&plain->lock);
	return atomic_load(&plain->error);
}

static int plain_get(struct bench_disk *disk, const struct bench_job *jobs, size_t n)
{
	return plain_run(disk, jobs, n, false);
}

static int plain_put(struct bench_disk *disk, const struct bench_job *jobs, size_t n)
{
	return plain_run(disk, jobs, n, true);
}

static void plain_start(struct plain *plain)
{
	pthread_mutex_init(&plain->lock, NULL);
	pthread_cond_init(&plain->go, NULL);
	pthread_cond_init(&plain->done, NULL);
	for (int i = 0; i < BENCH_READERS; i++)
		hc_assert(!pthread_create(&plain->threads[i], NULL, plain_thread, plain));
}

static void plain_stop(struct plain *plain)
{
	pthread_mutex_lock(&plain->lock);
	plain->stop = true;
	pthread_cond_broadcast(&plain->go);
	pthread_mutex_unlock(&plain->lock);
	for (int i = 0; i < BENCH_READERS; i++)
		pthread_join(plain->threads[i], NULL);
}

/* ---- the store ---- */

static int store_run(struct bench_disk *disk, const struct bench_job *jobs, size_t n,
		     enum hc_store_op op)
{
	static struct hc_store_request requests[N_JOBS_MAX];
	struct hc_store_request *refs[N_JOBS_MAX], *done[N_JOBS_MAX];
	struct hc_store *store = disk->store;
	struct pollfd fd = {.fd = store->ops->event_fd(store), .events = POLLIN};
	size_t sent = 0, reaped = 0;
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		requests[i] = (struct hc_store_request){
			.op = op, .page = jobs[i].page, .data = jobs[i].data};
		refs[i] = &requests[i];
	}
	while (reaped < n) {
		size_t got;

		sent += store->ops->submit(store, refs + sent, n - sent);
		if (poll(&fd, 1, 60000) != 1)
			return -ETIMEDOUT;
		got = store->ops->reap(store, done, N_JOBS_MAX);
		for (size_t i = 0; i < got; i++)
			rc = done[i]->result ? done[i]->result : rc;
		reaped += got;
	}
	return rc;
}

static int store_get(struct bench_disk *disk, const struct bench_job *jobs, size_t n)
{
	return store_run(disk, jobs, n, HC_STORE_GET);
}

static int store_put(struct bench_disk *disk, const struct bench_job *jobs, size_t n)
{
	return store_run(disk, jobs, n, HC_STORE_PUT);
}

/* ---- rounds ---- */

struct engine {
	const char *name;
	bench_run_t get;
	bench_run_t put;
};

struct bench {
	struct bench_disk disk;
	struct engine engines[N_ENGINES_MAX];
	int n_engines;
	struct bench_job sets[N_ENGINES_MAX][N_JOBS_MAX]; /* files of each set */
	size_t n_jobs;
	size_t page_bytes;
	char *memory;
	uint64_t sequence;
	double rates[N_ENGINES_MAX][N_ROUNDS]; /* MB/s */
	bool quiet;
};

/* New files for a set: other names, the same bytes. */
static void bench_rename(struct bench *bench, int set)
{
	for (size_t i = 0; i < bench->n_jobs; i++)
		bench->sets[set][i].page.sequence = ++bench->sequence;
}

static void bench_unlink(struct bench *bench, int set)
{
	char path[160];

	for (size_t i = 0; i < bench->n_jobs; i++) {
		hc_store_file_path(&bench->sets[set][i].page, path);
		unlinkat(bench->disk.dir_fd, path, 0);
	}
}

static int bench_prepare(struct bench *bench, size_t page_bytes)
{
	struct hc_rng rng;
	char path[160];

	bench->page_bytes = page_bytes;
	bench->n_jobs = BATCH_BYTES / page_bytes;
	hc_rng_seed(&rng, page_bytes);
	for (size_t i = 0; i < bench->n_jobs; i++) {
		uint64_t *data = (uint64_t *)(bench->memory + i * page_bytes);
		struct hc_store_page page = {.size_bytes = page_bytes, .series = 1};

		for (size_t j = 0; j < page_bytes / 8; j++)
			data[j] = hc_rng_next(&rng);
		page.checksum = hc_checksum(data, page_bytes);
		for (int j = 0; j < HC_HASH_BYTES; j++)
			page.hash.bytes[j] = (uint8_t)hc_rng_next(&rng);
		hc_store_file_path(&page, path);
		*strrchr(path, '/') = 0;
		if (mkdirat(bench->disk.dir_fd, path, 0700) && errno != EEXIST)
			return -errno;
		for (int set = 0; set < bench->n_engines; set++)
			bench->sets[set][i] = (struct bench_job){.page = page, .data = data};
	}
	return 0;
}

/* Every engine once, in turning order, each on another set than last time. */
static int bench_round(struct bench *bench, int round, bool put)
{
	int rc = 0;

	for (int k = 0; k < bench->n_engines && !rc; k++) {
		int e = (k + round) % bench->n_engines;
		int set = (e + round / bench->n_engines) % bench->n_engines;
		struct bench_job *jobs = bench->sets[set];
		uint64_t begin_ns;

		if (put) {
			bench_unlink(bench, set);
			bench_rename(bench, set);
			if (syncfs(bench->disk.dir_fd))
				return -errno;
		} else {
			/* What is not read again is found by the checksum. */
			for (size_t i = 0; i < bench->n_jobs; i++)
				memset(jobs[i].data, 0, HC_BLOCK_BYTES);
		}
		begin_ns = hc_clock_now_ns();
		rc = (put ? bench->engines[e].put : bench->engines[e].get)(&bench->disk, jobs,
									   bench->n_jobs);
		if (!rc && put && syncfs(bench->disk.dir_fd))
			rc = -errno;
		bench->rates[e][round] =
			(double)BATCH_BYTES * 1e3 / (double)(hc_clock_now_ns() - begin_ns);
		if (rc)
			fprintf(stderr, "bench-disk: %s %s: %s\n", bench->engines[e].name,
				put ? "put" : "get", strerror(-rc));
	}
	return rc;
}

static void bench_report(struct bench *bench, bool put)
{
	double ratio[N_ENGINES_MAX][N_ROUNDS];

	for (int e = 0; e < bench->n_engines; e++)
		for (int r = 0; r < N_ROUNDS; r++)
			ratio[e][r] = bench->rates[e][r] / bench->rates[1][r];
	for (int e = 0; e < bench->n_engines; e++) {
		double median = bench_percentile(ratio[e], N_ROUNDS, 50);

		printf("%s %zu MiB  %-8s %6.0f MB/s (p10 %.0f, p90 %.0f)", put ? "put" : "get",
		       bench->page_bytes >> 20, bench->engines[e].name,
		       bench_percentile(bench->rates[e], N_ROUNDS, 50),
		       bench_percentile(bench->rates[e], N_ROUNDS, 10),
		       bench_percentile(bench->rates[e], N_ROUNDS, 90));
		if (e != 1)
			printf("  ratio to plain threads %.2f (p10 %.2f, p90 %.2f)", median,
			       bench_percentile(ratio[e], N_ROUNDS, 10),
			       bench_percentile(ratio[e], N_ROUNDS, 90));
		if (!e)
			printf("  aim %.2f %s", BENCH_AIM,
			       !bench->quiet         ? "not judged"
			       : median >= BENCH_AIM ? "reached"
						     : "MISSED");
		printf("\n");
	}
}

static int bench_run(struct bench *bench, size_t page_bytes)
{
	int rc = bench_prepare(bench, page_bytes);

	for (int pass = 0; pass < 2 && !rc; pass++) {
		/* The first round of puts warms up and is written over. */
		for (int r = -1; r < N_ROUNDS && !rc; r++)
			rc = bench_round(bench, r < 0 ? 0 : r, !pass);
		if (!rc)
			bench_report(bench, !pass);
		fflush(stdout);
	}
	for (int set = 0; set < bench->n_engines; set++)
		bench_unlink(bench, set);
	return rc;
}

/* ---- start and stop ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static int bench_open(struct bench *bench, const char *dir, struct plain *plain)
{
	const struct hc_store_file_config config = {.dirs = &dir,
						    .n_dirs = 1,
						    .init_empty = true,
						    .n_readers = BENCH_READERS,
						    .n_writers = BENCH_WRITERS};
	double rate;
	int rc;

	hc_log_set_level(HC_LOG_WARN);
	rc = hc_store_file_open(&config, &bench->disk.store);
	if (rc)
		return rc;
	bench->disk.dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bench->memory = bench_memory(BATCH_BYTES);
	if (bench->disk.dir_fd < 0 || !bench->memory)
		return -ENOMEM;
	plain_start(plain);
	bench->disk.plain = plain;
	bench->engines[bench->n_engines++] = (struct engine){"store", store_get, store_put};
	bench->engines[bench->n_engines++] = (struct engine){"plain", plain_get, plain_put};
	if (bench_uring_works())
		bench->engines[bench->n_engines++] =
			(struct engine){"io_uring", bench_uring_get, bench_uring_put};
	rate = bench_memcpy_rate(bench->memory, BATCH_BYTES);
	bench->quiet = rate >= BENCH_MEMCPY_MIN;
	printf("memory: anonymous, %d %% on huge pages; memcpy %.1f GB/s%s; %d readers, %d "
	       "writers; io_uring %s\n",
	       bench_huge_percent(bench->memory), rate,
	       bench->quiet ? "" : ": too busy or slow a machine for a verdict", BENCH_READERS,
	       BENCH_WRITERS, bench->n_engines == 3 ? "tried" : "not here");
	return 0;
}

int main(int argc, char **argv)
{
	static struct bench bench;
	static struct plain plain;
	const char *tmp = getenv("TMPDIR");
	char dir[4096];
	int rc;

	snprintf(dir, sizeof(dir), "%s/hc-bench-disk-XXXXXX",
		 argc > 1 ? argv[1]
		 : tmp    ? tmp
			  : "/var/tmp");
	if (!mkdtemp(dir)) {
		fprintf(stderr, "bench-disk: cannot make a directory %s: %m; name another one\n",
			dir);
		return 1;
	}
	bench.disk.dir_fd = -1;
	rc = bench_open(&bench, dir, &plain);
	if (!rc)
		rc = bench_run(&bench, (size_t)8 << 20);
	if (!rc)
		rc = bench_run(&bench, (size_t)1 << 20);
	if (bench.disk.plain)
		plain_stop(&plain);
	if (bench.disk.store)
		bench.disk.store->ops->close(bench.disk.store);
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	return rc ? 1 : 0;
}
