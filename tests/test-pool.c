/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the pool in memory: states of a slot, runs against a model, classes and re-cutting,
 * NUMA, threads. What a restart finds is in test-pool-adopt.c. */
#include "hctest.h"

#include <inttypes.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "pool/internal.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/rng.h"

#define SEGMENT_BYTES (2 * HC_MIB)
#define RUNS_MAX      64

static const struct hc_domain domain_a = {1000, 1000, 0700};
static const struct hc_domain domain_b = {1001, 1000, 0700};

static struct hc_pool *open_pool(uint32_t n_segments, uint64_t segment_bytes)
{
	struct hc_pool_config config = {
		.size_bytes = n_segments * segment_bytes,
		.segment_bytes = segment_bytes,
		.slot_bytes_max = 64 * HC_KIB,
		.uuid = {7},
	};
	struct hc_pool *pool;
	uint64_t seen = 0;
	struct hc_pool_stats stats;

	assert_int_equal(hc_pool_open(&config, &pool), 0);
	do {
		uint64_t next =
			hc_pool_populate_wait(pool, seen, hc_clock_now_ns() + 30 * HC_NS_PER_S);

		hc_pool_stats(pool, &stats);
		assert_true(next != seen || stats.populated_bytes == stats.size_bytes);
		seen = next;
	} while (stats.populated_bytes != stats.size_bytes);
	/* One more progress says that populate ended. */
	hc_pool_populate_wait(pool, seen, hc_clock_now_ns() + 30 * HC_NS_PER_S);
	return pool;
}

static int reserve(struct hc_pool *pool, const struct hc_domain *domain, uint64_t slot_bytes,
		   uint32_t n, struct hc_run *runs, uint32_t *n_runs_p, uint32_t *n_p)
{
	return hc_pool_reserve(pool, domain, slot_bytes, n, -1, HC_SLOT_FILLING, runs, RUNS_MAX,
			       n_runs_p, n_p);
}

static hc_slot_id reserve_one(struct hc_pool *pool, const struct hc_domain *domain,
			      uint64_t slot_bytes)
{
	uint32_t n_runs, n;
	struct hc_run run;

	assert_int_equal(hc_pool_reserve(pool, domain, slot_bytes, 1, -1, HC_SLOT_FILLING, &run, 1,
					 &n_runs, &n),
			 0);
	assert_int_equal(n, 1);
	assert_int_equal(n_runs, 1);
	assert_int_equal(run.n, 1);
	return hc_pool_slot(pool, run.segment, run.first);
}

static void free_runs(struct hc_pool *pool, const struct hc_run *runs, uint32_t n_runs)
{
	for (uint32_t r = 0; r < n_runs; r++)
		for (uint32_t i = 0; i < runs[r].n; i++)
			hc_pool_free(pool, hc_pool_slot(pool, runs[r].segment, runs[r].first + i));
}

/* Goal: each state is reached by its verb, and free bumps the generation. */
static void test_states(void **state)
{
	struct hc_pool *pool = open_pool(1, SEGMENT_BYTES);
	struct hc_slot_page page = {.sequence = 1, .size_bytes = 5000};
	hc_slot_id slot = reserve_one(pool, &domain_a, 8192);
	uint32_t generation = hc_pool_generation(pool, slot), segment, index, n_runs, n;
	struct hc_run run;

	assert_int_equal(hc_pool_state(pool, slot), HC_SLOT_FILLING);
	assert_int_equal(hc_pool_slot_size(pool, slot), 8192);
	hc_pool_locate(pool, slot, &segment, &index);
	assert_int_equal(hc_pool_slot(pool, segment, index), slot);
	memset(hc_pool_data(pool, slot), 0x5a, 8192);
	hc_pool_publish(pool, slot, &page);
	assert_int_equal(hc_pool_state(pool, slot), HC_SLOT_READY);
	hc_pool_set_checksum(pool, slot, 99);
	hc_pool_doom(pool, slot);
	assert_int_equal(hc_pool_state(pool, slot), HC_SLOT_DOOMED);
	hc_pool_quarantine(pool, slot);
	assert_int_equal(hc_pool_state(pool, slot), HC_SLOT_QUARANTINED);
	assert_int_equal(hc_pool_generation(pool, slot), generation);
	hc_pool_free(pool, slot);
	assert_int_equal(hc_pool_state(pool, slot), HC_SLOT_FREE);
	assert_int_equal(hc_pool_generation(pool, slot), generation + 1);

	assert_int_equal(hc_pool_reserve(pool, &domain_a, 8192, 1, -1, HC_SLOT_LOADING, &run, 1,
					 &n_runs, &n),
			 0);
	slot = hc_pool_slot(pool, run.segment, run.first);
	assert_int_equal(hc_pool_state(pool, slot), HC_SLOT_LOADING);
	hc_pool_publish(pool, slot, &page);
	assert_int_equal(hc_pool_state(pool, slot), HC_SLOT_READY);
	hc_pool_free(pool, slot);
	hc_pool_close(pool, false);
}

static void free_twice(struct hc_pool *pool, hc_slot_id slot)
{
	hc_pool_free(pool, slot);
	hc_pool_free(pool, slot);
}

static void publish_free(struct hc_pool *pool, hc_slot_id slot)
{
	struct hc_slot_page page = {.sequence = 1, .size_bytes = 1};

	hc_pool_free(pool, slot);
	hc_pool_publish(pool, slot, &page);
}

static void publish_twice(struct hc_pool *pool, hc_slot_id slot)
{
	struct hc_slot_page page = {.sequence = 1, .size_bytes = 1};

	hc_pool_publish(pool, slot, &page);
	hc_pool_publish(pool, slot, &page);
}

static void publish_too_long(struct hc_pool *pool, hc_slot_id slot)
{
	struct hc_slot_page page = {.sequence = 1, .size_bytes = 4097};

	hc_pool_publish(pool, slot, &page);
}

static void doom_filling(struct hc_pool *pool, hc_slot_id slot)
{
	hc_pool_doom(pool, slot);
}

static void quarantine_free(struct hc_pool *pool, hc_slot_id slot)
{
	hc_pool_free(pool, slot);
	hc_pool_quarantine(pool, slot);
}

/* Goal: programmer errors end the process. Method: each in a child with a pool of its own (mappings
 * do not outlive a fork). */
static void test_programmer_errors(void **state)
{
	void (*const errors[])(struct hc_pool *, hc_slot_id) = {free_twice,    publish_free,
								publish_twice, publish_too_long,
								doom_filling,  quarantine_free};

	for (size_t i = 0; i < HC_ARRAY_SIZE(errors); i++) {
		pid_t pid = fork();
		int status;

		assert_true(pid >= 0);
		if (!pid) {
			struct hc_pool *pool = open_pool(1, SEGMENT_BYTES);

			assert_non_null(freopen("/dev/null", "w", stderr));
			errors[i](pool, reserve_one(pool, &domain_a, 4096));
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGABRT);
	}
}

/* Goal: what a reserve may ask for. */
static void test_reserve_limits(void **state)
{
	struct hc_pool *pool = open_pool(2, SEGMENT_BYTES);
	struct hc_run runs[RUNS_MAX];
	uint32_t n_runs, n;

	assert_int_equal(reserve(pool, &domain_a, SEGMENT_BYTES + 4096, 1, runs, &n_runs, &n),
			 -EFBIG);
	assert_int_equal(n, 0);
	assert_int_equal(reserve(pool, &domain_a, SEGMENT_BYTES, 2, runs, &n_runs, &n), 0);
	assert_int_equal(n_runs, 2);
	free_runs(pool, runs, n_runs);
	assert_int_equal(reserve(pool, &domain_a, 4096, 2000, runs, &n_runs, &n), -ENOSPC);
	assert_int_equal(n, 1024);
	assert_int_equal(n_runs, 2);
	free_runs(pool, runs, n_runs);
	/* Runs are a limit of the caller. */
	assert_int_equal(hc_pool_reserve(pool, &domain_a, 4096, 1024, -1, HC_SLOT_FILLING, runs, 1,
					 &n_runs, &n),
			 -ENOSPC);
	assert_int_equal(n_runs, 1);
	assert_int_equal(n, 512);
	free_runs(pool, runs, n_runs);
	assert_int_equal(hc_pool_slot_bytes(1), 4096);
	assert_int_equal(hc_pool_slot_bytes(4096), 4096);
	assert_int_equal(hc_pool_slot_bytes(4097), 8192);
	hc_pool_close(pool, false);
}

/* Goal: the shortest run that is long enough is taken, else the longest. Method: holes of 3, 8 and
 * 5 slots. */
static void test_best_fit(void **state)
{
	struct hc_pool *pool = open_pool(1, SEGMENT_BYTES);
	struct hc_run all, runs[RUNS_MAX];
	uint32_t n_runs, n;

	assert_int_equal(hc_pool_reserve(pool, &domain_a, 4096, 512, -1, HC_SLOT_FILLING, &all, 1,
					 &n_runs, &n),
			 0);
	free_runs(pool, (struct hc_run[]){{0, 10, 3}, {0, 60, 8}, {0, 500, 5}}, 3);
	assert_int_equal(reserve(pool, &domain_a, 4096, 4, runs, &n_runs, &n), 0);
	assert_int_equal(n_runs, 1);
	assert_int_equal(runs[0].first, 500);
	free_runs(pool, runs, n_runs);
	/* A hole across two words of the bitmap. */
	assert_int_equal(reserve(pool, &domain_a, 4096, 6, runs, &n_runs, &n), 0);
	assert_int_equal(n_runs, 1);
	assert_int_equal(runs[0].first, 60);
	free_runs(pool, runs, n_runs);
	assert_int_equal(reserve(pool, &domain_a, 4096, 11, runs, &n_runs, &n), 0);
	assert_int_equal(n_runs, 2);
	assert_int_equal(runs[0].n, 8);
	assert_int_equal(runs[1].first, 10);
	hc_pool_close(pool, false);
}

#define MODEL_SEGMENTS 4
#define MODEL_SLOTS    (SEGMENT_BYTES / 4096)
#define MODEL_HOLDS    4096

/* Which hold owns each 4 KiB of the pool; 0: nobody. */
struct model {
	struct hc_pool *pool;
	uint16_t owner[MODEL_SEGMENTS][MODEL_SLOTS];
	struct hc_run hold[MODEL_HOLDS];
	uint64_t slot_bytes[MODEL_HOLDS];
	struct hc_domain domain[MODEL_HOLDS];
	uint32_t n_holds;
	uint64_t used_bytes;
};

/* The longest free run of the class in segments that are cut, by brute force; n_free_p: all free
 * slots of it. */
static uint32_t model_longest(struct model *m, const struct hc_domain *domain, uint64_t slot_bytes,
			      uint32_t *n_free_p)
{
	uint32_t longest = 0;

	*n_free_p = 0;
	for (uint32_t s = 0; s < MODEL_SEGMENTS; s++) {
		struct hc_pool_segment_info info;
		uint32_t n = 0;

		hc_pool_segment_info(m->pool, s, &info);
		if (!info.cut || info.slot_bytes != slot_bytes ||
		    memcmp(&info.domain, domain, sizeof(*domain)))
			continue;
		for (uint32_t i = 0; i < info.n_slots; i++) {
			if (m->owner[s][i * slot_bytes / 4096]) {
				n = 0;
				continue;
			}
			n++;
			(*n_free_p)++;
			longest = n > longest ? n : longest;
		}
	}
	return longest;
}

static void model_mark(struct model *m, const struct hc_run *run, uint64_t slot_bytes,
		       uint16_t from, uint16_t to)
{
	uint64_t first = run->first * slot_bytes / 4096, n = run->n * slot_bytes / 4096;

	assert_true(first + n <= MODEL_SLOTS);
	for (uint64_t i = first; i < first + n; i++) {
		assert_int_equal(m->owner[run->segment][i], from);
		m->owner[run->segment][i] = to;
	}
}

static void model_reserve(struct model *m, struct hc_rng *rng)
{
	static const uint64_t sizes[] = {4096, 12288, 65536};
	const struct hc_domain *domain = hc_rng_below(rng, 4) ? &domain_a : &domain_b;
	uint64_t slot_bytes = sizes[hc_rng_below(rng, HC_ARRAY_SIZE(sizes))];
	uint32_t want = 1 + (uint32_t)hc_rng_below(rng, 60), n_free, n_runs, n, sum = 0;
	uint32_t longest = model_longest(m, domain, slot_bytes, &n_free);
	uint64_t class_free = hc_pool_class_free(m->pool, domain, slot_bytes);
	struct hc_run runs[RUNS_MAX];
	int rc = reserve(m->pool, domain, slot_bytes, want, runs, &n_runs, &n);

	if (n_runs < RUNS_MAX)
		assert_int_equal(n, hc_min_u64(want, class_free));
	assert_int_equal(rc, n == want ? 0 : -ENOSPC);
	if (longest >= want)
		assert_int_equal(n_runs, 1);
	else if (n_free >= want)
		assert_int_equal(runs[0].n, longest);
	for (uint32_t r = 0; r < n_runs; r++) {
		assert_true(m->n_holds < MODEL_HOLDS);
		sum += runs[r].n;
		model_mark(m, &runs[r], slot_bytes, 0, (uint16_t)(m->n_holds + 1));
		m->hold[m->n_holds] = runs[r];
		m->slot_bytes[m->n_holds] = slot_bytes;
		m->domain[m->n_holds++] = *domain;
		m->used_bytes += runs[r].n * slot_bytes;
		for (uint32_t i = 0; i < runs[r].n; i++) {
			hc_slot_id slot = hc_pool_slot(m->pool, runs[r].segment, runs[r].first + i);

			assert_int_equal((uintptr_t)hc_pool_data(m->pool, slot) % 4096, 0);
			assert_int_equal(hc_pool_slot_size(m->pool, slot), slot_bytes);
			assert_int_equal(hc_pool_state(m->pool, slot), HC_SLOT_FILLING);
		}
	}
	assert_int_equal(sum, n);
}

static void model_free(struct model *m, struct hc_rng *rng)
{
	uint32_t h = (uint32_t)hc_rng_below(rng, m->n_holds), last = m->n_holds - 1;

	model_mark(m, &m->hold[h], m->slot_bytes[h], (uint16_t)(h + 1), 0);
	free_runs(m->pool, &m->hold[h], 1);
	m->used_bytes -= m->hold[h].n * m->slot_bytes[h];
	if (h != last) {
		model_mark(m, &m->hold[last], m->slot_bytes[last], (uint16_t)(last + 1),
			   (uint16_t)(h + 1));
		m->hold[h] = m->hold[last];
		m->slot_bytes[h] = m->slot_bytes[last];
		m->domain[h] = m->domain[last];
	}
	m->n_holds--;
}

/* Goal: random reserves and frees of several classes never overlap, are aligned, get all that the
 * class has, and get one run where one is long enough. */
static void test_model(void **state)
{
	struct model *m = hc_zalloc(sizeof(*m));
	struct hc_pool_stats stats;
	struct hc_rng rng;

	m->pool = open_pool(MODEL_SEGMENTS, SEGMENT_BYTES);
	hc_rng_seed(&rng, 42);
	for (int step = 0; step < 30000; step++) {
		/* The share of reserves swings, so that the pool fills and empties. */
		if (!m->n_holds || hc_rng_below(&rng, 100) < (step / 1000 % 2 ? 60u : 40u))
			model_reserve(m, &rng);
		else
			model_free(m, &rng);
		if (step % 100 == 0 && hc_rng_below(&rng, 3) == 0) {
			uint32_t segment = (uint32_t)hc_rng_below(&rng, MODEL_SEGMENTS);

			if (!hc_pool_drain(m->pool, segment))
				hc_pool_undrain(m->pool, segment);
		}
		hc_pool_stats(m->pool, &stats);
		assert_int_equal(stats.used_bytes, m->used_bytes);
	}
	while (m->n_holds)
		model_free(m, &rng);
	hc_pool_stats(m->pool, &stats);
	assert_int_equal(stats.used_bytes, 0);
	assert_int_equal(stats.n_slots_used, 0);
	assert_true(stats.n_recuts > 0);
	hc_pool_close(m->pool, false);
	free(m);
}

/* Goal: a draining segment hands out nothing, and serves any class once its last slot is freed. */
static void test_drain(void **state)
{
	struct hc_pool *pool = open_pool(1, SEGMENT_BYTES);
	struct hc_pool_segment_info info;
	struct hc_run runs[RUNS_MAX];
	hc_slot_id slot;
	uint32_t n_runs, n;

	assert_int_equal(hc_pool_drain(pool, 0), -EINVAL);
	slot = reserve_one(pool, &domain_a, 4096);
	assert_int_equal(reserve(pool, &domain_a, 8192, 1, runs, &n_runs, &n), -ENOSPC);
	assert_int_equal(hc_pool_drain(pool, 0), 0);
	assert_int_equal(hc_pool_drain(pool, 0), -EALREADY);
	assert_int_equal(reserve(pool, &domain_a, 4096, 1, runs, &n_runs, &n), -ENOSPC);
	assert_int_equal(hc_pool_class_free(pool, &domain_a, 4096), 0);
	hc_pool_undrain(pool, 0);
	assert_int_equal(hc_pool_class_free(pool, &domain_a, 4096), 511);
	assert_int_equal(hc_pool_drain(pool, 0), 0);
	hc_pool_segment_info(pool, 0, &info);
	assert_true(info.cut && info.draining && info.usable);
	assert_int_equal(info.n_free, 511);
	hc_pool_free(pool, slot);
	hc_pool_segment_info(pool, 0, &info);
	assert_false(info.cut);
	assert_false(info.draining);
	assert_int_equal(hc_pool_class_free(pool, &domain_a, 65536), 32);
	assert_int_equal(reserve(pool, &domain_a, 65536, 32, runs, &n_runs, &n), 0);
	assert_int_equal(n_runs, 1);
	hc_pool_close(pool, false);
}

/* Goal: two page sizes in turn can each fill the pool. */
static void test_two_sizes_fill(void **state)
{
	struct hc_pool *pool = open_pool(4, SEGMENT_BYTES);
	const uint64_t sizes[] = {8192, 65536};
	struct hc_run runs[RUNS_MAX];
	struct hc_pool_stats stats;
	uint32_t n_runs, n;

	for (int turn = 0; turn < 6; turn++) {
		uint64_t slot_bytes = sizes[turn % 2];
		uint32_t want = (uint32_t)(4 * SEGMENT_BYTES / slot_bytes);

		assert_int_equal(hc_pool_class_free(pool, &domain_a, slot_bytes), want);
		assert_int_equal(reserve(pool, &domain_a, slot_bytes, want, runs, &n_runs, &n), 0);
		assert_int_equal(n_runs, 4);
		hc_pool_stats(pool, &stats);
		assert_int_equal(stats.used_bytes, stats.size_bytes);
		free_runs(pool, runs, n_runs);
	}
	assert_int_equal(stats.n_recuts, 20);
	hc_pool_close(pool, false);
}

/* Goal: bytes of one domain never reach another; within a domain nothing is zeroed in vain. */
static void test_domain_zeroed(void **state)
{
	struct hc_pool *pool = open_pool(1, SEGMENT_BYTES);
	static const uint8_t zero[4096];
	struct hc_run run;
	uint32_t n_runs, n;
	hc_slot_id slot;

	assert_int_equal(hc_pool_reserve(pool, &domain_a, 4096, 512, -1, HC_SLOT_FILLING, &run, 1,
					 &n_runs, &n),
			 0);
	memset(hc_pool_data(pool, hc_pool_slot(pool, 0, 0)), 0xaa, SEGMENT_BYTES);
	free_runs(pool, &run, 1);
	slot = reserve_one(pool, &domain_a, 8192);
	assert_int_equal(*(uint8_t *)hc_pool_data(pool, slot), 0xaa);
	hc_pool_free(pool, slot);
	assert_int_equal(hc_pool_reserve(pool, &domain_b, 4096, 512, -1, HC_SLOT_FILLING, &run, 1,
					 &n_runs, &n),
			 0);
	for (uint32_t i = 0; i < 512; i++)
		assert_memory_equal(hc_pool_data(pool, hc_pool_slot(pool, 0, i)), zero,
				    sizeof(zero));
	hc_pool_close(pool, false);
}

struct bind_call {
	void *addr;
	size_t size_bytes;
	int node;
};

struct bind_log {
	struct bind_call calls[8];
	uint32_t n;
};

static int bind_record(void *arg, void *addr, size_t size_bytes, int node)
{
	struct bind_log *log = arg;

	assert_true(log->n < HC_ARRAY_SIZE(log->calls));
	log->calls[log->n++] = (struct bind_call){addr, size_bytes, node};
	return 0;
}

/* Goal: segments are bound to the nodes in turn, whole and before they are used, and a preferred
 * node is served. */
static void test_numa(void **state)
{
	struct bind_log log = {0};
	struct hc_pool_config config = {
		.size_bytes = 4 * SEGMENT_BYTES,
		.segment_bytes = SEGMENT_BYTES,
		.numa = {.n = 2, .node = {3, 5}, .bind = bind_record, .arg = &log},
	};
	struct hc_pool_segment_info info;
	struct hc_pool *pool;
	struct hc_run run;
	uint64_t seen = 0;
	uint32_t n_runs, n;

	assert_int_equal(hc_pool_open(&config, &pool), 0);
	for (uint64_t next; (next = hc_pool_populate_wait(
				     pool, seen, hc_clock_now_ns() + 30 * HC_NS_PER_S)) != seen;)
		seen = next;
	assert_int_equal(log.n, 4);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(log.calls[i].node, i % 2 ? 5 : 3);
		assert_int_equal(log.calls[i].size_bytes, SEGMENT_BYTES);
		hc_pool_segment_info(pool, i, &info);
		assert_int_equal(info.numa_node, i % 2 ? 5 : 3);
	}
	for (int turn = 0; turn < 2; turn++) {
		int node = turn ? 3 : 5;

		assert_int_equal(hc_pool_reserve(pool, &domain_a, 4096, 512, node, HC_SLOT_FILLING,
						 &run, 1, &n_runs, &n),
				 0);
		hc_pool_segment_info(pool, run.segment, &info);
		assert_int_equal(info.numa_node, node);
		assert_ptr_equal(hc_pool_data(pool, hc_pool_slot(pool, run.segment, 0)),
				 log.calls[run.segment].addr);
	}
	hc_pool_close(pool, false);
}

struct worker {
	struct hc_pool *pool;
	const struct hc_domain *domain;
	uint64_t slot_bytes;
	uint64_t seed;
	uint64_t n_got;
};

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct hc_slot_page page = {.sequence = w->seed, .size_bytes = w->slot_bytes};
	struct hc_run runs[RUNS_MAX];
	struct hc_rng rng;

	hc_rng_seed(&rng, w->seed);
	for (int step = 0; step < 2000; step++) {
		uint32_t n_runs, n;
		int rc = reserve(w->pool, w->domain, w->slot_bytes,
				 1 + (uint32_t)hc_rng_below(&rng, 40), runs, &n_runs, &n);

		hc_assert(rc == 0 || rc == -EAGAIN || rc == -ENOSPC);
		for (uint32_t r = 0; r < n_runs; r++)
			for (uint32_t i = 0; i < runs[r].n; i++) {
				hc_slot_id slot =
					hc_pool_slot(w->pool, runs[r].segment, runs[r].first + i);
				uint64_t *data = hc_pool_data(w->pool, slot);

				/* A slot of two holders would be a race here. */
				*data = w->seed << 32 | slot;
				hc_pool_publish(w->pool, slot, &page);
				hc_assert(*data == (w->seed << 32 | slot));
				hc_pool_doom(w->pool, slot);
			}
		free_runs(w->pool, runs, n_runs);
		w->n_got += n;
	}
	return NULL;
}

/* Goal: threads of several classes share the pool, re-cutting it all the time, without a race (see
 * check-tsan). */
static void test_threads(void **state)
{
	struct hc_pool *pool = open_pool(3, SEGMENT_BYTES);
	struct worker workers[4] = {
		{pool, &domain_a, 4096, 1, 0},
		{pool, &domain_a, 4096, 2, 0},
		{pool, &domain_a, 65536, 3, 0},
		{pool, &domain_b, 65536, 4, 0},
	};
	struct hc_pool_stats stats;
	pthread_t threads[4];
	uint64_t n_got = 0;

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, worker_main, &workers[i]), 0);
	for (int i = 0; i < 200; i++) {
		for (uint32_t s = 0; s < 3; s++)
			if (!hc_pool_drain(pool, s))
				hc_pool_undrain(pool, s);
		hc_pool_stats(pool, &stats);
	}
	/* Who gets how much is the scheduler's affair: three segments cannot serve all at once. */
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		n_got += workers[i].n_got;
	}
	assert_true(n_got > 0);
	hc_pool_stats(pool, &stats);
	assert_int_equal(stats.n_slots_used, 0);
	hc_pool_close(pool, false);
}

/* Goal: the figures of reserve and free are shown (diagnostics, never pass or fail). */
static void test_speed(void **state)
{
	struct hc_pool *pool = open_pool(16, 16 * HC_MIB);
	struct hc_slot_page page = {.sequence = 1, .size_bytes = 65536};
	uint64_t publish_ns = 0, start_ns, all_ns;
	struct hc_run runs[RUNS_MAX];
	uint32_t n_runs, n;

	start_ns = hc_clock_now_ns();
	for (int i = 0; i < 2000; i++) {
		assert_int_equal(reserve(pool, &domain_a, 65536, 256, runs, &n_runs, &n), 0);
		free_runs(pool, runs, n_runs);
	}
	all_ns = hc_clock_now_ns() - start_ns;
	for (int i = 0; i < 2000; i++) {
		assert_int_equal(reserve(pool, &domain_a, 65536, 256, runs, &n_runs, &n), 0);
		start_ns = hc_clock_now_ns();
		for (uint32_t k = 0; k < 256; k++)
			hc_pool_publish(pool,
					hc_pool_slot(pool, runs[0].segment, runs[0].first + k),
					&page);
		publish_ns += hc_clock_now_ns() - start_ns;
		free_runs(pool, runs, n_runs);
	}
	print_message("reserve and free of a run of 256: %" PRIu64
		      " ns; publish of a slot: %" PRIu64 " ns\n",
		      all_ns / 2000, publish_ns / 2000 / 256);
	hc_pool_close(pool, false);
}

/* What another process does with the descriptor of a segment: reads what is there, cannot write
 * through a read-only one, writes through its own mapping. 0, or the step that went wrong. */
static int other_process(int fd, const char *text)
{
	char path[64];
	int read_only;
	char *bytes;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	read_only = open(path, O_RDONLY | O_CLOEXEC);
	if (read_only < 0)
		return 1;
	bytes = mmap(NULL, SEGMENT_BYTES, PROT_READ, MAP_SHARED, read_only, 0);
	if (bytes == MAP_FAILED || strcmp(bytes, text))
		return 2;
	if (!mprotect(bytes, SEGMENT_BYTES, PROT_READ | PROT_WRITE) || errno != EACCES)
		return 3;
	if (mmap(NULL, SEGMENT_BYTES, PROT_WRITE, MAP_SHARED, read_only, 0) != MAP_FAILED)
		return 4;
	bytes = mmap(NULL, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (bytes == MAP_FAILED)
		return 5;
	snprintf(bytes, 64, "written by the other");
	return 0;
}

/* Goal: a segment is shared by its descriptor, and read only by a read-only one. Method: a memfd
 * pool; a child maps it anew, for the parent's mapping does not come over a fork. */
static void test_descriptor(void **state)
{
	struct hc_pool *pool = open_pool(1, SEGMENT_BYTES);
	hc_slot_id slot = reserve_one(pool, &domain_a, 4096);
	char *data = hc_pool_data(pool, slot);
	int *verdict = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t size_bytes;
	int status;
	pid_t pid;

	assert_ptr_not_equal(verdict, MAP_FAILED);
	*verdict = -1;
	assert_ptr_equal(hc_pool_segment_data(pool, slot, &size_bytes), data);
	assert_int_equal(size_bytes, SEGMENT_BYTES);
	snprintf(data, 64, "written by the owner");
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		*verdict = other_process(pool->segments[0].fd, "written by the owner");
		/* A sanitizer would take the parent's threads for leaks at an exit. */
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(*verdict, 0);
	munmap(verdict, 4096);
	assert_string_equal(data, "written by the other");
	hc_pool_free(pool, slot);
	hc_pool_close(pool, false);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_states),         cmocka_unit_test(test_programmer_errors),
	cmocka_unit_test(test_reserve_limits), cmocka_unit_test(test_best_fit),
	cmocka_unit_test(test_model),          cmocka_unit_test(test_drain),
	cmocka_unit_test(test_two_sizes_fill), cmocka_unit_test(test_domain_zeroed),
	cmocka_unit_test(test_numa),           cmocka_unit_test(test_threads),
	cmocka_unit_test(test_descriptor),     cmocka_unit_test(test_speed),
};

HC_TEST_MAIN(tests)
