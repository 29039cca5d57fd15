/* SPDX-License-Identifier: Apache-2.0 */
/* Acquire and release of resident pages through hicache.h, in batches of 256, one and two threads:
 * aims are 1 us a page, and the same for small and large pages (no byte of a page is touched).
 * Pages of 64 KiB and of 8 MiB take turns round by round, so that their ratio is of one run; where
 * memory is short the large ones are smaller, which is printed. */
#include "bench.h"

#include <pthread.h>
#include <sched.h>

#include "hicache.h"
#include "util/sysinfo.h"

#define AIM_NS      1000.0
#define AIM_RATIO   1.2
#define N_PAGES     256
#define N_ROUNDS    25
#define N_BATCHES   40
#define N_THREADS   2
#define SMALL_BYTES (64 * HC_KIB)
#define LARGE_BYTES (8 * HC_MIB)
#define TIMEOUT_MS  60000u

struct bench {
	struct hicache *hc;
	struct hicache_space *space;
	struct hicache_series *series;
	struct hicache_hash hashes[N_THREADS][N_PAGES]; /* a chain for each thread */
	uint64_t page_bytes;
};

static int die(const char *what, int rc)
{
	fprintf(stderr, "bench-acquire: %s: %s\n", what, strerror(-rc));
	return rc ? rc : -EIO;
}

static int publish_chain(struct bench *bench, struct hicache_hash *hashes, uint32_t seed)
{
	struct hicache_hash_params params = {
		.size = sizeof(params), .page_tokens = 1, .token_bytes = 4};
	struct hicache_page pages[N_PAGES];
	struct hicache_publish_params at = {.size = sizeof(at)};
	int results[N_PAGES], rc;
	uint32_t tokens[N_PAGES];
	size_t n;

	for (uint32_t i = 0; i < N_PAGES; i++)
		tokens[i] = seed + i;
	rc = hicache_page_hash(&params, tokens, N_PAGES, hashes, N_PAGES, &n);
	for (size_t done = 0; !rc && done < N_PAGES; done += n) {
		rc = hicache_reserve(bench->series, bench->page_bytes, -1, N_PAGES - done,
				     TIMEOUT_MS, pages, &n);
		if (rc)
			break;
		for (size_t i = 0; i < n; i++)
			memset(pages[i].data, (int)i, 4096);
		at.parent = done ? &hashes[done - 1] : NULL;
		at.depth = (uint32_t)done;
		rc = hicache_publish(bench->series, pages, hashes + done, n, &at, results);
		for (size_t i = 0; !rc && i < n; i++)
			rc = results[i];
	}
	return rc;
}

static int open_one(struct bench *bench, uint64_t page_bytes)
{
	struct hicache_params params = {
		.size = sizeof(params),
		/* Below the mark at which pages have to go. */
		.pool_bytes = hc_align_up(N_THREADS * N_PAGES * page_bytes * 5 / 4 + 16 * HC_MIB,
					  2 * HC_MIB),
		.max_page_bytes = page_bytes,
	};
	int rc;

	bench->page_bytes = page_bytes;
	rc = hicache_open("mem:", &params, &bench->hc);
	if (!rc)
		rc = hicache_space_open(bench->hc, "bench", HICACHE_CREATE, NULL, &bench->space);
	if (!rc)
		rc = hicache_series_open(bench->space, NULL, "{64}", HICACHE_CREATE,
					 &bench->series);
	for (uint32_t t = 0; !rc && t < N_THREADS; t++)
		rc = publish_chain(bench, bench->hashes[t], t * 1000000);
	return rc;
}

/* Until then the pool's own thread takes part of the machine. */
static int wait_populated(struct bench *bench)
{
	uint64_t deadline_ns = hc_clock_now_ns() + TIMEOUT_MS * HC_NS_PER_MS;
	uint64_t there = 0, wanted = 1;
	int rc = 0;

	while (!rc && there < wanted) {
		rc = hicache_stats_get(bench->hc, "pool_bytes", &wanted);
		if (!rc)
			rc = hicache_stats_get(bench->hc, "pool_populated_bytes", &there);
		if (!rc && there < wanted && hc_clock_now_ns() > deadline_ns)
			rc = -ETIMEDOUT;
		sched_yield();
	}
	return rc;
}

static void close_one(struct bench *bench)
{
	hicache_series_close(bench->series);
	hicache_space_close(bench->space);
	if (hicache_close(bench->hc))
		fprintf(stderr, "bench-acquire: the cache is not closed\n");
}

struct turn {
	pthread_t thread;
	struct bench *bench;
	int chain;
	double ns; /* a page */
	int rc;
};

static void *run_turn(void *arg)
{
	struct turn *turn = arg;
	struct bench *bench = turn->bench;
	struct hicache_page pages[N_PAGES];
	uint64_t begin_ns = hc_clock_now_ns();
	size_t n = 0;

	for (int b = 0; b < N_BATCHES && !turn->rc; b++) {
		turn->rc = hicache_acquire(bench->series, bench->hashes[turn->chain], N_PAGES, 0,
					   pages, &n);
		if (!turn->rc)
			turn->rc = hicache_release(bench->hc, pages, n);
		if (!turn->rc && n != N_PAGES)
			turn->rc = -EIO;
	}
	turn->ns = (double)(hc_clock_now_ns() - begin_ns) / (N_BATCHES * N_PAGES);
	return NULL;
}

/* ns a page of each thread, the mean of them. */
static int run_round(struct bench *bench, int n_threads, double *ns_p)
{
	struct turn turns[N_THREADS] = {0};
	double sum = 0;

	for (int t = 0; t < n_threads; t++)
		turns[t] = (struct turn){.bench = bench, .chain = t};
	for (int t = 1; t < n_threads; t++) {
		int rc = pthread_create(&turns[t].thread, NULL, run_turn, &turns[t]);

		if (rc)
			exit(1);
	}
	run_turn(&turns[0]);
	for (int t = 1; t < n_threads; t++)
		pthread_join(turns[t].thread, NULL);
	for (int t = 0; t < n_threads; t++) {
		if (turns[t].rc)
			return turns[t].rc;
		sum += turns[t].ns;
	}
	*ns_p = sum / n_threads;
	return 0;
}

static void show(const char *what, struct bench *bench, int n_threads, double *ns)
{
	printf("%s pages of %llu KiB, %d thread%s: %.0f ns a page (p10 %.0f, p90 %.0f; aim <= "
	       "%.0f)\n",
	       what, (unsigned long long)(bench->page_bytes / HC_KIB), n_threads,
	       n_threads > 1 ? "s" : "", bench_percentile(ns, N_ROUNDS, 50),
	       bench_percentile(ns, N_ROUNDS, 10), bench_percentile(ns, N_ROUNDS, 90), AIM_NS);
}

static int compare(struct bench *small, struct bench *large, int n_threads)
{
	double a[N_ROUNDS], b[N_ROUNDS], ratio[N_ROUNDS];
	int rc = 0;

	for (int r = 0; r < N_ROUNDS && !rc; r++) {
		rc = run_round(small, n_threads, &a[r]);
		if (!rc)
			rc = run_round(large, n_threads, &b[r]);
		ratio[r] = rc ? 0 : b[r] / a[r];
	}
	if (rc)
		return die("acquire", rc);
	show("small", small, n_threads, a);
	show("large", large, n_threads, b);
	printf("  ratio large to small %.2f (aim <= %.1f)\n", bench_percentile(ratio, N_ROUNDS, 50),
	       AIM_RATIO);
	return 0;
}

int main(void)
{
	static struct bench small, large;
	uint64_t total, available = 0, large_bytes = LARGE_BYTES;
	int rc;

	hicache_log_level_set(HICACHE_LOG_WARN);
	if (hc_sysinfo_memory(&total, &available))
		available = HC_GIB;
	available = hc_min_u64(available, hc_sysinfo_cgroup_room_bytes());
	/* Half of what is there is for others. */
	while (large_bytes > SMALL_BYTES && N_THREADS * N_PAGES * large_bytes > available / 2)
		large_bytes /= 2;
	if (large_bytes < LARGE_BYTES)
		printf("large pages are of %llu KiB: %llu MiB of memory are available\n",
		       (unsigned long long)(large_bytes / HC_KIB),
		       (unsigned long long)(available / HC_MIB));
	rc = open_one(&small, SMALL_BYTES);
	if (!rc)
		rc = open_one(&large, large_bytes);
	if (!rc)
		rc = wait_populated(&large);
	if (rc)
		return die("open", rc) != 0;
	printf("acquire + release of resident pages, batches of %d\n", N_PAGES);
	for (int n = 1; n <= N_THREADS && !rc; n++)
		rc = compare(&small, &large, n);
	close_one(&small);
	close_one(&large);
	return rc != 0;
}
