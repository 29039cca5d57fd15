/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads on one small node with a small disk: publish, acquire, release, remove, evict, sync,
 * verify, gc at once, with the background threads on. Whoever reads a page checks all its bytes.
 * Each thread has a seeded generator and a number of steps; what interleaves is up to the machine,
 * what must hold is not. Also run under TSan and ASan. */
#include "node-rig.h"

#include <pthread.h>

#define WORKERS  4
#define CHAINS   24u
#define DEPTHS   12u
#define KEPT_MAX 8

struct worker {
	struct rig *rig;
	struct hc_rng rng;
	uint32_t n_steps;
	uint64_t n_read, n_put, n_wrong;
	struct hc_ref kept[KEPT_MAX];
	struct hc_hash kept_hash[KEPT_MAX];
	uint32_t kept_series[KEPT_MAX];
	size_t n_kept;
};

static uint32_t some(struct worker *w, uint32_t n)
{
	return (uint32_t)hc_rng_below(&w->rng, n);
}

static void publish_some(struct worker *w)
{
	struct rig *rig = w->rig;
	uint32_t series = rig->series[some(w, RIG_SERIES_MAX)], chain = some(w, CHAINS),
		 n = 1 + some(w, 4);
	uint32_t first = some(w, DEPTHS - n + 1);
	struct hc_reserve how = {.space = rig->space,
				 .size_bytes = RIG_PAGE_BYTES,
				 .numa_node = -1,
				 .domain = rig->domain};
	struct hc_publish items[4] = {0};
	struct hc_ref refs[4];
	int results[4];
	size_t got;

	how.deadline_ns = some(w, 2) ? rig_soon(50) : 0;
	if (hc_node_reserve(rig->node, &how, n, refs, &got))
		return;
	if (!some(w, 8)) {
		hc_node_abort(rig->node, refs, got);
		return;
	}
	for (uint32_t i = 0; i < got; i++) {
		items[i].key = (struct hc_key){series, rig_hash(chain, first + i)};
		items[i].depth = first + i;
		items[i].size_bytes = RIG_PAGE_BYTES;
		items[i].replace = !some(w, 4);
		if (first + i)
			items[i].parent = rig_hash(chain, first + i - 1);
		rig_fill(refs[i].data, RIG_PAGE_BYTES, &items[i].key.hash, series);
	}
	hc_node_publish(rig->node, refs, items, got, results);
	for (size_t i = 0; i < got; i++) {
		w->n_put += !results[i];
		w->n_wrong += results[i] && results[i] != -EEXIST;
	}
}

static void check_kept(struct worker *w, size_t i)
{
	if (!rig_right(w->kept[i].data, RIG_PAGE_BYTES, &w->kept_hash[i], w->kept_series[i]))
		w->n_wrong++;
	hc_node_release(w->rig->node, &w->kept[i], 1);
	w->n_kept--;
	w->kept[i] = w->kept[w->n_kept];
	w->kept_hash[i] = w->kept_hash[w->n_kept];
	w->kept_series[i] = w->kept_series[w->n_kept];
}

static void acquire_some(struct worker *w)
{
	struct rig *rig = w->rig;
	uint32_t chain = some(w, CHAINS), n = 1 + some(w, DEPTHS);
	struct hc_acquire how = {.series = rig->series[some(w, RIG_SERIES_MAX)],
				 .deadline_ns = rig_soon(some(w, 200))};
	struct hc_hash hashes[DEPTHS];
	struct hc_ref refs[DEPTHS];
	size_t got;

	for (uint32_t i = 0; i < n; i++)
		hashes[i] = rig_hash(chain, i);
	if (hc_node_acquire(rig->node, &how, hashes, n, refs, &got))
		return;
	for (size_t i = 0; i < got; i++) {
		if (!rig_right(refs[i].data, RIG_PAGE_BYTES, &hashes[i], how.series))
			w->n_wrong++;
	}
	w->n_read += got;
	/* Some are held over other steps, and looked at again. */
	while (got && w->n_kept < KEPT_MAX && !some(w, 3)) {
		got--;
		w->kept[w->n_kept] = refs[got];
		w->kept_hash[w->n_kept] = hashes[got];
		w->kept_series[w->n_kept++] = how.series;
	}
	hc_node_release(rig->node, refs, got);
}

static void admin_some(struct worker *w)
{
	struct rig *rig = w->rig;
	uint32_t series = rig->series[some(w, RIG_SERIES_MAX)];
	struct hc_hash hash = rig_hash(some(w, CHAINS), some(w, DEPTHS));
	struct hc_key key = {series, hash};
	struct hc_verify_result verified;
	struct hc_evict_result evicted;
	struct hc_page_info info = {0};
	uint64_t n, bytes;

	switch (some(w, 9)) {
	case 0:
		hc_node_remove(rig->node, series, &hash, 1);
		break;
	case 1:
		hc_ignore(hc_node_evict(rig->node, some(w, 4) ? &key : NULL, 1, some(w, 2),
					rig_soon(20), &evicted));
		break;
	case 2:
		hc_ignore(hc_node_sync(rig->node, rig_soon(20), &n));
		break;
	case 3:
		if (!hc_node_stat(rig->node, &key, true, &info))
			hc_ignore(hc_node_sync_page(rig->node, info.entry, info.sequence,
						    rig_soon(50)));
		break;
	case 4:
		if (!hc_node_verify(rig->node, NULL, NULL, &verified) && verified.n_bad)
			w->n_wrong++;
		break;
	case 5:
		hc_ignore(hc_node_gc(rig->node, &n, &bytes));
		break;
	case 6:
		/* Replaced or removed in between, the pin goes with its body. */
		if (!hc_node_pin(rig->node, &key, true))
			hc_ignore(hc_node_pin(rig->node, &key, false));
		break;
	case 7:
		if (!hc_node_stat(rig->node, &key, false, &info)) {
			info.owner = (struct hc_owner){some(w, 3), 0, 0640};
			hc_ignore(hc_node_set(rig->node, info.entry, info.sequence, &info,
					      HC_DIR_SET_UID));
			hc_node_touch(rig->node, info.entry, info.sequence, some(w, 3), 1);
		}
		break;
	default:
		hc_node_maintain(rig->node, 2);
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (uint32_t i = 0; i < w->n_steps; i++) {
		uint32_t what = some(w, 16);

		if (what < 6)
			publish_some(w);
		else if (what < 13)
			acquire_some(w);
		else if (what < 15)
			admin_some(w);
		else if (w->n_kept)
			check_kept(w, some(w, (uint32_t)w->n_kept));
	}
	while (w->n_kept)
		check_kept(w, 0);
	return NULL;
}

static void run_workers(struct rig *rig, uint64_t seed, uint32_t n_steps)
{
	struct worker workers[WORKERS] = {0};
	pthread_t threads[WORKERS];
	uint64_t n_read = 0, n_put = 0;

	for (size_t i = 0; i < WORKERS; i++) {
		workers[i].rig = rig;
		workers[i].n_steps = n_steps;
		hc_rng_seed(&workers[i].rng, seed * WORKERS + i);
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (size_t i = 0; i < WORKERS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(workers[i].n_wrong, 0);
		n_read += workers[i].n_read;
		n_put += workers[i].n_put;
	}
	assert_true(n_read > 0);
	assert_true(n_put > 0);
}

/* What is known of every page at rest: right bytes, its parent on disk where it is, sums that
 * agree. */
static void check_rest(struct rig *rig)
{
	struct hc_node_stats s;
	uint64_t n_pages = 0, n_disk = 0, n_memory = 0;

	rig_quiet(rig);
	s = rig_stats(rig);
	assert_int_equal(s.n_refs, 0);
	assert_int_equal(s.bad_checksum + s.bad_missing + s.bad_size + s.bad_scrub + s.bad_adopted,
			 0);
	for (size_t k = 0; k < RIG_SERIES_MAX; k++) {
		for (uint32_t chain = 0; chain < CHAINS; chain++) {
			for (uint32_t depth = 0; depth < DEPTHS; depth++) {
				struct hc_page_info info, parent;

				if (!rig_info(rig, rig->series[k], chain, depth, &info))
					continue;
				n_pages++;
				n_disk += info.on_disk;
				n_memory += info.in_memory;
				assert_false(info.flags & (HC_ENTRY_WRITING | HC_ENTRY_LOADING |
							   HC_ENTRY_DIRTY));
				if (depth && info.on_disk &&
				    rig_info(rig, rig->series[k], chain, depth - 1, &parent))
					assert_true(parent.on_disk ||
						    parent.sequence > info.sequence);
			}
		}
	}
	s = rig_stats(rig);
	assert_int_equal(s.n_pages, n_pages);
	assert_int_equal(s.n_pages_memory, n_memory);
	assert_int_equal(s.n_pages_disk, n_disk);
	assert_int_equal(s.memory_bytes, n_memory * RIG_PAGE_BYTES);
	assert_int_equal(s.disk_used_bytes, n_disk * RIG_PAGE_BYTES);
	assert_int_equal(s.pool.used_bytes, n_memory * RIG_PAGE_BYTES);
	assert_int_equal(hc_space_used(hc_node_registry(rig->node), rig->space),
			 n_pages * RIG_PAGE_BYTES);
}

static uint32_t steps(uint32_t fallback)
{
	const char *text = getenv("HC_TEST_STEPS");

	return text ? (uint32_t)strtoul(text, NULL, 10) : fallback;
}

static void test_threads(void **state)
{
	struct rig *rig = *state;

	rig->config.pool_bytes = 6 * HC_MIB;
	rig->config.disk_bytes = 10 * HC_MIB;
	rig->config.dirty_ppm = 300000;
	for (uint64_t seed = 1; seed <= 2; seed++) {
		rig_up(rig);
		run_workers(rig, seed, steps(400));
		check_rest(rig);
		rig_down(rig);
	}
	/* All of it is right after a restart, too. */
	rig_up(rig);
	for (uint32_t chain = 0; chain < CHAINS; chain++)
		rig_get(rig, chain, DEPTHS);
	check_rest(rig);
}

static void test_threads_backup_evict(void **state)
{
	struct rig *rig = *state;

	rig->config.pool_bytes = 6 * HC_MIB;
	rig->config.disk_bytes = 10 * HC_MIB;
	rig->config.backup = HC_BACKUP_EVICT;
	rig_up(rig);
	run_workers(rig, 11, steps(300));
	check_rest(rig);
}

/* Now and then the disk refuses, tears or is slow. */
static void test_threads_faults(void **state)
{
	static const struct hc_fault_rule rules[] = {
		{.op = HC_STORE_PUT, .kind = HC_FAULT_ERROR, .error = -ENOSPC, .rate_ppm = 50000},
		{.op = HC_STORE_GET, .kind = HC_FAULT_FLIP, .rate_ppm = 50000},
		{.op = HC_STORE_REMOVE,
		 .kind = HC_FAULT_DELAY,
		 .delay_ns = 3 * HC_NS_PER_MS,
		 .rate_ppm = 300000},
	};
	struct rig *rig = *state;
	struct hc_node_stats s;

	rig->config.pool_bytes = 6 * HC_MIB;
	rig->config.disk_bytes = 10 * HC_MIB;
	rig_faulty(rig);
	rig_up(rig);
	for (size_t i = 0; i < HC_ARRAY_SIZE(rules); i++)
		hc_store_fault_set(rig->fault, &rules[i]);
	run_workers(rig, 21, steps(300));
	rig_quiet(rig);
	s = rig_stats(rig);
	assert_int_equal(s.n_refs, 0);
	assert_int_equal(s.pool.used_bytes, s.n_pages_memory * RIG_PAGE_BYTES);
	assert_int_equal(hc_space_used(hc_node_registry(rig->node), rig->space),
			 s.n_pages * RIG_PAGE_BYTES);
}

static const struct CMUnitTest tests[] = {
	rig_test(test_threads),
	rig_test(test_threads_backup_evict),
	rig_test(test_threads_faults),
};

HC_TEST_MAIN(tests)
