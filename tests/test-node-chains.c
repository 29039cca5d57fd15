/* SPDX-License-Identifier: Apache-2.0 */
/* Chains: what goes to disk and what is evicted first. Pages on disk never lack a known parent
 * there, all series of a chain share a verdict, and the end of a prompt goes before its beginning.
 */
#include "node-rig.h"

#include <pthread.h>

/* pages 0..n-1 of a chain: a prefix is on disk, nothing behind it. Returns its length. */
static uint32_t disk_prefix(struct rig *rig, uint32_t series, uint32_t chain, uint32_t n)
{
	uint32_t length = 0;

	while (length < n && rig_on_disk(rig, series, chain, length))
		length++;
	for (uint32_t i = length; i < n; i++)
		assert_false(rig_on_disk(rig, series, chain, i));
	return length;
}

static void test_dirty_limit_by_chain(void **state)
{
	struct rig *rig = *state;
	struct hc_node_stats s;
	uint32_t first, second;

	rig->config.dirty_ppm = 250000; /* 32 pages of 128 */
	rig_up(rig);
	hc_node_pause_backup(rig->node, true);
	assert_int_equal(rig_put(rig, 1, 0, 20), 20);
	assert_int_equal(rig_put(rig, 2, 0, 20), 20);
	assert_true(rig_stats(rig).dirty_bytes <= 8 * HC_MIB / 4);
	assert_true(rig_stats(rig).dirty_bytes > 8 * HC_MIB / 4 - RIG_PAGE_BYTES);
	/* Room again, yet the descendants of a refused page stay refused. */
	hc_node_pause_backup(rig->node, false);
	rig_quiet(rig);
	assert_int_equal(rig_put(rig, 2, 20, 24), 4);
	assert_int_equal(rig_put(rig, 1, 20, 24), 4);
	rig_quiet(rig);
	first = disk_prefix(rig, rig->series[0], 1, 24);
	second = disk_prefix(rig, rig->series[0], 2, 24);
	assert_int_equal(first, 24);
	assert_in_range(second, 8, 12);
	s = rig_stats(rig);
	assert_int_equal(s.backup_skipped, 24 - second);
	assert_int_equal(s.n_pages_disk, first + second);
}

/* The second rank's pages come when there is room, or when there is none: they share the first's
 * verdict. */
static void test_series_share_a_verdict(void **state)
{
	struct rig *rig = *state;
	uint32_t length;

	rig->config.dirty_ppm = 125000; /* 16 pages */
	rig_up(rig);
	hc_node_pause_backup(rig->node, true);
	assert_int_equal(rig_put(rig, 1, 0, 20), 20);
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(rig_put_one(rig, rig->series[1], 1, i, rig_soon(RIG_WAIT_MS)), 0);
	hc_node_pause_backup(rig->node, false);
	rig_quiet(rig);
	/* New pages of the chain, the other rank first. */
	for (uint32_t i = 20; i < 24; i++)
		assert_int_equal(rig_put_one(rig, rig->series[1], 1, i, rig_soon(RIG_WAIT_MS)), 0);
	assert_int_equal(rig_put(rig, 1, 20, 24), 4);
	rig_quiet(rig);
	length = disk_prefix(rig, rig->series[0], 1, 24);
	assert_in_range(length, 15, 16);
	assert_int_equal(disk_prefix(rig, rig->series[1], 1, 24), length);
}

struct publisher {
	struct rig *rig;
	uint32_t series;
	uint32_t n_chains;
	pthread_barrier_t *barrier;
};

static void *publish_rank(void *arg)
{
	struct publisher *p = arg;

	for (uint32_t chain = 0; chain < p->n_chains; chain++) {
		pthread_barrier_wait(p->barrier);
		for (uint32_t i = 0; i < 2; i++)
			rig_put_one(p->rig, p->series, 100 + chain, i, rig_soon(RIG_WAIT_MS));
	}
	return NULL;
}

/* Two ranks publish the same chains at the same moment, around the dirty limit: still one verdict a
 * chain. */
static void test_ranks_at_once(void **state)
{
	struct rig *rig = *state;
	pthread_barrier_t barrier;
	struct publisher ranks[2];
	pthread_t threads[2];
	uint32_t n_chains = 16, n_admitted = 0;

	rig->config.dirty_ppm = 250000; /* 32 of 64 pages */
	rig_up(rig);
	hc_node_pause_backup(rig->node, true);
	pthread_barrier_init(&barrier, NULL, 2);
	for (size_t i = 0; i < 2; i++) {
		ranks[i] = (struct publisher){rig, rig->series[i], n_chains, &barrier};
		assert_int_equal(pthread_create(&threads[i], NULL, publish_rank, &ranks[i]), 0);
	}
	for (size_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);
	hc_node_pause_backup(rig->node, false);
	rig_quiet(rig);
	for (uint32_t chain = 0; chain < n_chains; chain++) {
		uint32_t length = disk_prefix(rig, rig->series[0], 100 + chain, 2);

		assert_int_equal(disk_prefix(rig, rig->series[1], 100 + chain, 2), length);
		n_admitted += length;
	}
	assert_in_range(n_admitted, 14, 20);
}

static void test_mode_reuse(void **state)
{
	struct rig *rig = *state;

	rig->config.backup = HC_BACKUP_REUSE;
	rig_up(rig);
	assert_int_equal(rig_put(rig, 1, 0, 6), 6);
	assert_int_equal(rig_put(rig, 2, 0, 6), 6);
	assert_int_equal(rig_get(rig, 1, 4), 4);
	assert_int_equal(rig_stats(rig).n_dirty + rig_stats(rig).n_pages_disk, 0);
	assert_int_equal(rig_get(rig, 1, 4), 4);
	rig_quiet(rig);
	assert_int_equal(disk_prefix(rig, rig->series[0], 1, 6), 4);
	assert_int_equal(disk_prefix(rig, rig->series[0], 2, 6), 0);
}

/* Over the day's budget publish becomes reuse; another day gives a new one. */
static void test_write_budget(void **state)
{
	struct rig *rig = *state;
	uint64_t mono_ns = hc_clock_now_ns(), wall_ns = hc_clock_wall_ns();

	rig->config.write_budget_bytes = 4 * RIG_PAGE_BYTES;
	rig_up(rig);
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(rig_put(rig, i, 0, 1), 1);
		rig_quiet(rig);
	}
	assert_int_equal(rig_stats(rig).n_pages_disk, 4);
	assert_int_equal(rig_stats(rig).backup_budget_held, 4);
	assert_int_equal(rig_get(rig, 7, 1), 1);
	assert_false(rig_on_disk(rig, rig->series[0], 7, 0));
	assert_int_equal(rig_get(rig, 7, 1), 1);
	rig_quiet(rig);
	assert_true(rig_on_disk(rig, rig->series[0], 7, 0));
	assert_false(rig_on_disk(rig, rig->series[0], 6, 0));
	hc_clock_fake_set_ns(mono_ns, wall_ns + 24 * 3600 * HC_NS_PER_S);
	assert_int_equal(rig_put(rig, 9, 0, 1), 1);
	hc_clock_fake_off();
	rig_quiet(rig);
	assert_true(rig_on_disk(rig, rig->series[0], 9, 0));
}

/* Written when memory is wanted, as many as are wanted. */
static void test_mode_evict(void **state)
{
	struct rig *rig = *state;
	struct hc_node_stats s;

	rig->config.backup = HC_BACKUP_EVICT;
	rig_up(rig);
	assert_int_equal(rig_put(rig, 1, 0, 100), 100);
	assert_int_equal(rig_stats(rig).n_dirty + rig_stats(rig).n_pages_disk, 0);
	assert_int_equal(rig_put(rig, 2, 0, 60), 60);
	rig_quiet(rig);
	s = rig_stats(rig);
	assert_int_equal(s.n_pages, 160);
	assert_true(s.n_pages_disk >= 160 - 128);
	/* Not all: the end of the second chain is warm. */
	assert_false(rig_on_disk(rig, rig->series[0], 2, 59));
	assert_int_equal(rig_get(rig, 1, 100), 100);
	assert_int_equal(rig_get(rig, 2, 60), 60);
}

/* A disk that takes nothing costs the pages, never the cache. */
static void test_mode_evict_full_disk(void **state)
{
	struct rig *rig = *state;

	rig->config.backup = HC_BACKUP_EVICT;
	rig_faulty(rig);
	rig_up(rig);
	rig_fault(rig, HC_STORE_PUT, HC_FAULT_ERROR, -ENOSPC);
	for (uint32_t chain = 0; chain < 20; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 16), 16);
	assert_int_equal(rig_get(rig, 19, 16), 16);
	assert_int_equal(rig_stats(rig).n_pages_disk, 0);
	assert_true(rig_stats(rig).backup_failed > 0);
}

static void test_mode_off(void **state)
{
	struct rig *rig = *state;

	rig->config.backup = HC_BACKUP_OFF;
	rig_up(rig);
	assert_int_equal(rig_put(rig, 1, 0, 10), 10);
	assert_int_equal(rig_get(rig, 1, 10), 10);
	assert_int_equal(rig_get(rig, 1, 10), 10);
	assert_int_equal(rig_stats(rig).n_dirty, 0);
	assert_int_equal(rig_count_files(rig->dir), 0);
	/* Asked for, it is written all the same. */
	rig_flush(rig);
	assert_int_equal(rig_stats(rig).n_pages_disk, 10);
}

/* A page without its parent is of no use: it goes before anything older. When the parent comes back
 * it is ordinary. */
static void test_orphans_first(void **state)
{
	struct rig *rig = *state;
	struct hc_hash root = rig_hash(2, 0);
	struct hc_page_info info;

	rig->config.disk_off = true;
	rig->config.no_evictor = true;
	rig_up(rig);
	assert_int_equal(rig_put(rig, 1, 0, 40), 40);
	assert_int_equal(rig_put(rig, 2, 0, 40), 40);
	assert_int_equal(hc_node_remove(rig->node, rig->series[0], &root, 1), 1);
	hc_node_maintain(rig->node, 0);
	assert_true(rig_info(rig, rig->series[0], 2, 1, &info));
	assert_true(info.flags & HC_ENTRY_ORPHAN);
	assert_int_equal(rig_put(rig, 2, 0, 1), 1);
	hc_node_maintain(rig->node, 0);
	assert_true(rig_info(rig, rig->series[0], 2, 1, &info));
	assert_false(info.flags & HC_ENTRY_ORPHAN);
	assert_int_equal(hc_node_remove(rig->node, rig->series[0], &root, 1), 1);
	hc_node_maintain(rig->node, 0);
	/* 79 are there, and room for 128. All that is behind the lost page goes from its end,
	 * before older pages. */
	assert_int_equal(rig_put(rig, 3, 0, 49), 49);
	assert_int_equal(rig_stats(rig).evicted_memory, 0);
	assert_int_equal(rig_put(rig, 3, 49, 59), 10);
	assert_int_equal(rig_stats(rig).evicted_orphans, 10);
	assert_int_equal(rig_exists(rig, 1, 40, false), 40);
	assert_int_equal(rig_exists(rig, 3, 59, false), 59);
	for (uint32_t i = 1; i < 40; i++)
		assert_int_equal(rig_there(rig, 2, i), i < 30);
}

/* An engine that only opens files, root first, one by one: the prompt's end goes before its
 * beginning. */
static void test_walk_of_opens(void **state)
{
	struct rig *rig = *state;
	size_t left = 0;

	rig->config.disk_off = true;
	rig->config.no_evictor = true;
	rig_up(rig);
	for (uint32_t i = 0; i < 100; i++) {
		struct hc_reserve how = {
			.space = rig->space,
			.size_bytes = RIG_PAGE_BYTES,
			.numa_node = -1,
			.domain = rig->domain,
			.deadline_ns = rig_soon(RIG_WAIT_MS), /* memory may still be populated */
		};
		struct hc_publish item = {
			.key = {rig->series[0], rig_hash(1, i)},
			.unnamed = true,
			.size_bytes = RIG_PAGE_BYTES,
			.opener = 7,
			.tree = 1,
		};
		struct hc_ref ref;
		size_t got;
		int rc;

		assert_int_equal(hc_node_reserve(rig->node, &how, 1, &ref, &got), 0);
		rig_fill(ref.data, RIG_PAGE_BYTES, &item.key.hash, rig->series[0]);
		hc_node_publish(rig->node, &ref, &item, 1, &rc);
		assert_int_equal(rc, 0);
	}
	for (uint32_t i = 0; i < 100; i++) {
		struct hc_acquire how = {
			.series = rig->series[0],
			.opener = 8,
			.tree = 1,
			.deadline_ns = rig_soon(RIG_WAIT_MS),
		};
		struct hc_hash hash = rig_hash(1, i);
		struct hc_ref ref;
		size_t got;

		assert_int_equal(hc_node_acquire(rig->node, &how, &hash, 1, &ref, &got), 0);
		assert_true(rig_right(ref.data, RIG_PAGE_BYTES, &hash, rig->series[0]));
		hc_node_release(rig->node, &ref, 1);
	}
	/* 28 more than fit. */
	assert_int_equal(rig_put(rig, 2, 0, 56), 56);
	for (uint32_t i = 0; i < 100; i++) {
		if (rig_there(rig, 1, i)) {
			assert_int_equal(left, i);
			left++;
		}
	}
	assert_in_range(left, 60, 99);
}

struct quota_taker {
	struct rig *rig;
	uint32_t chain;
	uint64_t most;
};

static void *take_quota(void *arg)
{
	struct quota_taker *t = arg;

	for (uint32_t i = 0; i < 60; i++) {
		struct hc_reserve how = {.space = t->rig->space,
					 .size_bytes = RIG_PAGE_BYTES,
					 .numa_node = -1,
					 .domain = t->rig->domain};
		struct hc_ref refs[4];
		size_t got = 0;

		if (i % 3)
			rig_put_one(t->rig, t->rig->series[0], t->chain + i / 8, i % 8,
				    rig_soon(20));
		else if (!hc_node_reserve(t->rig->node, &how, 4, refs, &got))
			hc_node_abort(t->rig->node, refs, got);
		t->most = hc_max_u64(t->most,
				     hc_space_used(hc_node_registry(t->rig->node), t->rig->space));
	}
	return NULL;
}

static void test_quota_of_many(void **state)
{
	struct rig *rig = *state;
	struct hc_space_info info = {.quota_bytes = 20 * RIG_PAGE_BYTES};
	struct quota_taker takers[4];
	pthread_t threads[4];

	rig_up(rig);
	assert_int_equal(
		hc_space_set(hc_node_registry(rig->node), rig->space, &info, HC_SPACE_SET_QUOTA),
		0);
	for (uint32_t i = 0; i < 4; i++) {
		takers[i] = (struct quota_taker){.rig = rig, .chain = i * 1000};
		assert_int_equal(pthread_create(&threads[i], NULL, take_quota, &takers[i]), 0);
	}
	for (size_t i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_true(takers[i].most <= info.quota_bytes);
	}
	rig_quiet(rig);
	/* Nothing leaked: what is used is what is there. */
	assert_int_equal(hc_space_used(hc_node_registry(rig->node), rig->space),
			 rig_stats(rig).n_pages * RIG_PAGE_BYTES);
}

/* What can never fit evicts nothing. */
static void test_batch_above_quota(void **state)
{
	struct rig *rig = *state;
	struct hc_space_info info = {.quota_bytes = 10 * RIG_PAGE_BYTES};
	struct hc_reserve how = {.size_bytes = RIG_PAGE_BYTES, .numa_node = -1};
	struct hc_ref refs[64];
	size_t got;

	rig->config.disk_off = true;
	rig_up(rig);
	how.space = rig->space;
	assert_int_equal(
		hc_space_set(hc_node_registry(rig->node), rig->space, &info, HC_SPACE_SET_QUOTA),
		0);
	assert_int_equal(rig_put(rig, 1, 0, 8), 8);
	assert_int_equal(hc_node_reserve(rig->node, &how, 64, refs, &got), 0);
	assert_in_range(got, 4, 8);
	assert_int_equal(rig_stats(rig).evicted_quota, got - 2);
	hc_node_abort(rig->node, refs, got);
	how.size_bytes = 11 * RIG_PAGE_BYTES;
	assert_int_equal(hc_node_reserve(rig->node, &how, 1, refs, &got), -EDQUOT);
	assert_int_equal(rig_stats(rig).n_pages, 8 - (rig_stats(rig).evicted_quota));
}

static void test_max_age_keeps_pins(void **state)
{
	struct rig *rig = *state;
	struct hc_space_info info = {.max_age_s = 100};
	uint64_t mono_ns = hc_clock_now_ns(), wall_ns = hc_clock_wall_ns();
	struct hc_key key;

	rig->config.no_evictor = true;
	rig_up(rig);
	key = (struct hc_key){rig->series[0], rig_hash(1, 0)};
	assert_int_equal(
		hc_space_set(hc_node_registry(rig->node), rig->space, &info, HC_SPACE_SET_MAX_AGE),
		0);
	hc_clock_fake_set_ns(mono_ns, wall_ns);
	assert_int_equal(rig_put(rig, 1, 0, 1), 1);
	assert_int_equal(rig_put(rig, 2, 0, 1), 1);
	assert_int_equal(hc_node_pin(rig->node, &key, true), 0);
	hc_clock_fake_set_ns(mono_ns, wall_ns + 101 * HC_NS_PER_S);
	assert_int_equal(rig_put(rig, 3, 0, 1), 1);
	hc_node_maintain(rig->node, 0);
	assert_int_equal(rig_stats(rig).expired, 1);
	assert_int_equal(rig_stats(rig).n_pages, 2);
	assert_true(rig_there(rig, 3, 0));
	hc_clock_fake_off();
}

static void test_pins_end(void **state)
{
	struct rig *rig = *state;
	struct hc_key key;
	int n = 0;

	rig->config.disk_off = true;
	rig_up(rig);
	key = (struct hc_key){rig->series[0], rig_hash(1, 0)};
	assert_int_equal(rig_put(rig, 1, 0, 1), 1);
	while (n < 5000 && !hc_node_pin(rig->node, &key, true))
		n++;
	assert_int_equal(n, HC_ENTRY_PINS_MAX);
	for (uint32_t chain = 2; chain < 14; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 16), 16);
	assert_true(rig_there(rig, 1, 0));
	while (n)
		assert_int_equal((n--, hc_node_pin(rig->node, &key, false)), 0);
	assert_int_equal(hc_node_pin(rig->node, &key, false), -ERANGE);
	for (uint32_t chain = 20; chain < 32; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 16), 16);
	assert_false(rig_there(rig, 1, 0));
}

static void test_recency_survives(void **state)
{
	struct rig *rig = *state;

	rig->config.no_evictor = true;
	rig_up(rig);
	for (uint32_t chain = 1; chain <= 4; chain++) {
		assert_int_equal(rig_put(rig, chain, 0, 8), 8);
		rig_flush(rig);
	}
	/* Order of use: 3, 1, 4, 2. */
	assert_int_equal(rig_get(rig, 3, 8), 8);
	assert_int_equal(rig_get(rig, 1, 8), 8);
	assert_int_equal(rig_exists(rig, 4, 8, true), 8);
	assert_int_equal(rig_get(rig, 2, 8), 8);
	rig_down(rig);
	rig->config.disk_bytes = 20 * RIG_PAGE_BYTES;
	rig->config.high_ppm = rig->config.low_ppm = 1000000;
	rig_up(rig);
	hc_node_maintain(rig->node, 0);
	assert_int_equal(rig_stats(rig).n_pages, 20);
	assert_int_equal(rig_exists(rig, 3, 8, false), 0);
	assert_int_equal(rig_exists(rig, 1, 8, false), 4);
	assert_int_equal(rig_exists(rig, 4, 8, false), 8);
	assert_int_equal(rig_exists(rig, 2, 8, false), 8);
}

/* A failed start takes nothing away, recency neither. */
static void test_recency_survives_failed_start(void **state)
{
	struct rig *rig = *state;
	struct hc_node *node;

	rig->config.no_evictor = true;
	rig_up(rig);
	for (uint32_t chain = 1; chain <= 2; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 8), 8);
	rig_flush(rig);
	assert_int_equal(rig_get(rig, 1, 8), 8);
	rig_down(rig);
	rig->config.pool_bytes = (uint64_t)1 << 60;
	assert_true(hc_node_open(&rig->config, &node) < 0);
	rig->config.pool_bytes = 8 * HC_MIB;
	rig->config.disk_bytes = 8 * RIG_PAGE_BYTES;
	rig->config.high_ppm = rig->config.low_ppm = 1000000;
	rig_up(rig);
	hc_node_maintain(rig->node, 0);
	assert_int_equal(rig_exists(rig, 1, 8, false), 8);
	assert_int_equal(rig_exists(rig, 2, 8, false), 0);
}

static void test_priority(void **state)
{
	struct rig *rig = *state;
	struct hc_space_info info = {.priority = 1};

	rig->config.disk_off = true;
	rig->config.no_evictor = true;
	rig_up(rig);
	assert_int_equal(
		hc_space_set(hc_node_registry(rig->node), rig->space, &info, HC_SPACE_SET_PRIORITY),
		0);
	assert_int_equal(rig_put(rig, 1, 0, 40), 40);
	info.priority = 0;
	assert_int_equal(
		hc_space_set(hc_node_registry(rig->node), rig->space, &info, HC_SPACE_SET_PRIORITY),
		0);
	for (uint32_t chain = 2; chain < 10; chain++)
		assert_int_equal(rig_put(rig, chain, 0, 20), 20);
	/* The oldest of all, but of a higher priority. */
	assert_int_equal(rig_get(rig, 1, 40), 40);
	assert_int_equal(rig_exists(rig, 2, 20, false), 0);
}

/* A page whose disk copy was evicted while memory has it is backed up again on demand: the unlink
 * of its old file must not take the new one, nor the row. */
static void test_backup_after_disk_eviction(void **state)
{
	struct rig *rig = *state;
	struct hc_node_limits limits;

	rig->config.disk_bytes = 100 * RIG_PAGE_BYTES;
	rig_faulty(rig);
	rig_up(rig);
	assert_int_equal(rig_put(rig, 1, 0, 10), 10);
	rig_flush(rig);
	rig_fault(rig, HC_STORE_REMOVE, HC_FAULT_HANG, 0);
	hc_node_limits_get(rig->node, &limits);
	limits.disk_bytes = RIG_PAGE_BYTES / 2;
	hc_node_limits_set(rig->node, &limits);
	rig_wait(!rig_stats(rig).n_pages_disk);
	assert_int_equal(rig_stats(rig).n_pages_memory, 10);
	limits.disk_bytes = 100 * RIG_PAGE_BYTES;
	hc_node_limits_set(rig->node, &limits);
	{
		uint64_t left;

		/* Not written while the unlinks hang. */
		assert_int_equal(hc_node_sync(rig->node, rig_soon(50), &left), -ETIMEDOUT);
		assert_int_equal(left, 10);
	}
	rig_fault(rig, HC_STORE_REMOVE, HC_FAULT_NONE, 0);
	rig_flush(rig);
	assert_int_equal(rig_count_files(rig->dir), 10);
	rig_drop_memory(rig);
	assert_int_equal(rig_get(rig, 1, 10), 10);
	rig_down(rig);
	rig_up(rig);
	assert_int_equal(rig_get(rig, 1, 10), 10);
}

static const struct CMUnitTest tests[] = {
	rig_test(test_dirty_limit_by_chain),
	rig_test(test_series_share_a_verdict),
	rig_test(test_ranks_at_once),
	rig_test(test_mode_reuse),
	rig_test(test_write_budget),
	rig_test(test_mode_evict),
	rig_test(test_mode_evict_full_disk),
	rig_test(test_mode_off),
	rig_test(test_orphans_first),
	rig_test(test_walk_of_opens),
	rig_test(test_quota_of_many),
	rig_test(test_batch_above_quota),
	rig_test(test_max_age_keeps_pins),
	rig_test(test_pins_end),
	rig_test(test_recency_survives),
	rig_test(test_recency_survives_failed_start),
	rig_test(test_priority),
	rig_test(test_backup_after_disk_eviction),
};

HC_TEST_MAIN(tests)
