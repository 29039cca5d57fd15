/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations on a node, against a model and against the node's own books. Goal: the evictor
 * never leaves a page without its known parent; leased and pinned pages stay; quotas hold; every
 * count is the sum of what it counts. Method: a small pool and a small disk, so that every
 * operation evicts; background threads off, backups awaited before each look at the books.
 * HC_TEST_SEED repeats a run, HC_TEST_STEPS lengthens it. */
#include "hctest.h"

#include <ftw.h>

#include "node/internal.h"
#include "util/io.h"
#include "util/rng.h"

#define PAGE_BYTES ((size_t)16384)
#define N_PAGES    600u
#define N_HELD     8u
#define LOOK_EVERY 200u

struct model_page {
	struct hc_hash hash;
	uint32_t parent; /* UINT32_MAX: root */
	uint32_t depth;
	uint32_t series_i;
	bool published;
	bool expects; /* its parent was there at some moment since and was not removed by us: it
			 must stay */
	unsigned pins;
};

struct world {
	char dir[64];
	struct hc_node *node;
	struct hc_rng rng;
	uint64_t seed;
	uint32_t space[2], series[2];
	struct model_page pages[N_PAGES];
	struct hc_ref held[N_HELD];
	uint32_t held_page[N_HELD];
	uint64_t *node_ids;
	size_t n_node_ids;
};

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}

static uint64_t soon(uint64_t ms)
{
	return hc_clock_now_ns() + ms * HC_NS_PER_MS;
}

static void fill_page(void *data, const struct hc_hash *hash)
{
	for (size_t at = 0; at < PAGE_BYTES; at += sizeof(*hash))
		memcpy((char *)data + at, hash, sizeof(*hash));
}

static bool page_right(const void *data, const struct hc_hash *hash)
{
	for (size_t at = 0; at < PAGE_BYTES; at += sizeof(*hash)) {
		if (memcmp((const char *)data + at, hash, sizeof(*hash)))
			return false;
	}
	return true;
}

static void make_pages(struct world *w)
{
	for (uint32_t i = 0; i < N_PAGES; i++) {
		struct model_page *page = &w->pages[i];
		uint32_t parent = i ? (uint32_t)hc_rng_below(&w->rng, i) : 0;

		*page = (struct model_page){.parent = UINT32_MAX, .series_i = i % 2};
		for (size_t k = 0; k < 4; k++) {
			uint64_t v = hc_rng_next(&w->rng);

			memcpy(page->hash.bytes + 8 * k, &v, 8);
		}
		/* A chain stays in its series; one page in eight begins a new one. */
		if (i > 2 && hc_rng_below(&w->rng, 8)) {
			parent = parent - parent % 2 + i % 2;
			if (parent < i) {
				page->parent = parent;
				page->depth = w->pages[parent].depth + 1;
			}
		}
	}
}

static void world_up(struct world *w)
{
	static const struct hc_owner owner = {0, 0, 0755};
	struct hc_node_config config = {
		.cachedir = w->dir,
		.embedded = true,
		.pool_bytes = 4 * HC_MIB,
		.segment_bytes = 2 * HC_MIB,
		.max_page_bytes = HC_MIB / 8,
		.disk_bytes = 400 * PAGE_BYTES,
		.root = owner,
		.no_evictor = true,
	};

	assert_int_equal(hc_node_open(&config, &w->node), 0);
	for (int i = 0; i < 2; i++) {
		struct hc_registry *registry = hc_node_registry(w->node);
		struct hc_space_info space;
		struct hc_dir_info dir;
		int rc = hc_dir_make(registry, HC_DIR_ROOT, i ? "b" : "a", &owner, &dir);

		assert_true(!rc || rc == -EEXIST);
		assert_int_equal(hc_space_find(registry, i ? "b" : "a", &space), 0);
		w->space[i] = space.id;
		assert_int_equal(
			hc_series_open(registry, space.id, "{64}", NULL, true, &w->series[i]), 0);
	}
}

static struct hc_key key_of(struct world *w, uint32_t i)
{
	return (struct hc_key){w->series[w->pages[i].series_i], w->pages[i].hash};
}

static bool page_there(struct world *w, uint32_t i)
{
	struct hc_key key = key_of(w, i);
	struct hc_page_info info;

	return !hc_node_stat(w->node, &key, false, &info);
}

static void do_publish(struct world *w)
{
	uint32_t i = (uint32_t)hc_rng_below(&w->rng, N_PAGES);
	struct model_page *page = &w->pages[i];
	struct hc_reserve how = {
		.space = w->space[page->series_i], .size_bytes = PAGE_BYTES, .numa_node = -1};
	struct hc_publish item = {
		.key = key_of(w, i), .depth = page->depth, .size_bytes = PAGE_BYTES};
	struct hc_ref ref;
	size_t got;
	int result;

	/* Engines write a page when its prefix is there: the parent exists, or was published
	 * before. */
	if (page->parent != UINT32_MAX && !w->pages[page->parent].published)
		return;
	how.deadline_ns = soon(hc_rng_below(&w->rng, 2) * 20);
	if (hc_node_reserve(w->node, &how, 1, &ref, &got))
		return;
	if (!hc_rng_below(&w->rng, 16)) {
		hc_node_abort(w->node, &ref, 1);
		return;
	}
	fill_page(ref.data, &page->hash);
	if (page->parent != UINT32_MAX && !page_there(w, page->parent))
		page->expects = page_there(w, i) && page->expects;
	else
		page->expects = true;
	if (page->parent != UINT32_MAX)
		item.parent = w->pages[page->parent].hash;
	item.replace = !hc_rng_below(&w->rng, 4) && !page->pins;
	hc_node_publish(w->node, &ref, &item, 1, &result);
	assert_true(result == 0 || result == -EEXIST);
	page->published = true;
	for (uint32_t k = 0; k < N_PAGES; k++) {
		if (w->pages[k].parent == i && page_there(w, k))
			w->pages[k].expects = true;
	}
}

static void do_acquire(struct world *w)
{
	uint32_t i = (uint32_t)hc_rng_below(&w->rng, N_PAGES), chain[64], n = 0;
	uint32_t slot = (uint32_t)hc_rng_below(&w->rng, N_HELD);
	struct hc_acquire how = {.series = w->series[w->pages[i].series_i],
				 .deadline_ns = soon(5000)};
	struct hc_hash hashes[64];
	struct hc_ref refs[64];
	size_t got = 0;

	for (uint32_t at = i; at != UINT32_MAX && n < 64; at = w->pages[at].parent)
		chain[n++] = at;
	for (uint32_t k = 0; k < n; k++)
		hashes[k] = w->pages[chain[n - 1 - k]].hash;
	hc_ignore(
		hc_node_acquire(w->node, &how, hashes, n, refs, &got)); /* a miss leaves got at 0 */
	for (size_t k = 0; k < got; k++)
		assert_true(page_right(refs[k].data, &hashes[k]));
	/* One of them is kept for a while. */
	if (got && w->held[slot].entry == HC_ENTRY_NONE) {
		w->held[slot] = refs[got - 1];
		w->held_page[slot] = chain[n - got];
		got--;
	}
	hc_node_release(w->node, refs, got);
}

static void do_release(struct world *w)
{
	uint32_t slot = (uint32_t)hc_rng_below(&w->rng, N_HELD);

	if (w->held[slot].entry == HC_ENTRY_NONE)
		return;
	assert_true(page_right(w->held[slot].data, &w->pages[w->held_page[slot]].hash));
	hc_node_release(w->node, &w->held[slot], 1);
}

static void do_remove(struct world *w)
{
	uint32_t i = (uint32_t)hc_rng_below(&w->rng, N_PAGES);
	struct hc_key key = key_of(w, i);

	if (w->pages[i].pins)
		return;
	hc_node_remove(w->node, key.series, &key.hash, 1);
	for (uint32_t k = 0; k < N_PAGES; k++) {
		if (w->pages[k].parent == i)
			w->pages[k].expects = false;
	}
}

static void do_pin(struct world *w)
{
	uint32_t i = (uint32_t)hc_rng_below(&w->rng, N_PAGES), n_pinned = 0;
	struct hc_key key = key_of(w, i);
	bool pin = !w->pages[i].pins;

	for (uint32_t k = 0; k < N_PAGES; k++)
		n_pinned += w->pages[k].pins > 0;
	if (pin && n_pinned >= 10)
		return;
	if (!hc_node_pin(w->node, &key, pin))
		w->pages[i].pins += pin ? 1u : -1u;
	else
		assert_true(pin); /* a pinned page is there */
}

static void do_stat(struct world *w)
{
	struct hc_key key = key_of(w, (uint32_t)hc_rng_below(&w->rng, N_PAGES));
	struct hc_page_info before, info;

	if (hc_node_stat(w->node, &key, false, &before) || hc_node_stat(w->node, &key, true, &info))
		return;
	assert_true(info.node_id);
	if (before.node_id) {
		assert_int_equal(info.node_id, before.node_id);
		return;
	}
	for (size_t i = 0; i < w->n_node_ids; i++)
		assert_int_not_equal(w->node_ids[i], info.node_id);
	w->node_ids = realloc(w->node_ids, (w->n_node_ids + 1) * sizeof(uint64_t));
	w->node_ids[w->n_node_ids++] = info.node_id;
}

static void do_rare(struct world *w)
{
	struct hc_space_info info = {.quota_bytes = (20 + hc_rng_below(&w->rng, 200)) * PAGE_BYTES};
	struct hc_evict_result result;
	struct hc_verify_result verify;
	uint64_t left;

	switch (hc_rng_below(&w->rng, 5)) {
	case 0:
		/* Never below what is used: a lowered quota is reached by later evictions. */
		if (info.quota_bytes > hc_space_used(hc_node_registry(w->node), w->space[1]))
			assert_int_equal(hc_space_set(hc_node_registry(w->node), w->space[1], &info,
						      HC_SPACE_SET_QUOTA),
					 0);
		break;
	case 1:
		assert_int_equal(hc_node_evict(w->node, NULL, 0, true, soon(5000), &result), 0);
		break;
	case 2:
		hc_ignore(hc_node_sync(w->node, soon(5000), &left)); /* a full disk leaves some */
		break;
	case 3:
		assert_int_equal(hc_node_verify(w->node, NULL, NULL, &verify), 0);
		assert_int_equal(verify.n_bad, 0);
		break;
	default:
		hc_node_maintain(w->node, 5);
	}
}

struct books {
	struct world *w;
	uint64_t n, n_memory, n_disk, memory_bytes, disk_bytes, space_bytes[2];
};

static int book_entry(void *arg, struct hc_entry *entry)
{
	struct books *books = arg;
	int i = entry->series == books->w->series[1];

	books->n++;
	books->n_memory += entry->slot != HC_ENTRY_NO_SLOT;
	books->memory_bytes += entry->slot != HC_ENTRY_NO_SLOT ? entry->size_bytes : 0;
	books->n_disk += entry->disk != HC_ENTRY_NO_DISK;
	books->disk_bytes += entry->disk != HC_ENTRY_NO_DISK ? entry->size_bytes : 0;
	books->space_bytes[i] += entry->size_bytes;
	return 0;
}

static void check_page(struct world *w, uint32_t i, uint32_t *mem, uint32_t *disk)
{
	struct hc_key key = key_of(w, i);
	struct hc_page_info info, parent;
	bool there = !hc_node_stat(w->node, &key, false, &info), parent_there;
	struct model_page *page = &w->pages[i];

	if (page->pins)
		assert_true(there);
	if (!there || page->parent == UINT32_MAX)
		return;
	mem[page->parent] += info.in_memory;
	disk[page->parent] += info.on_disk;
	key = key_of(w, page->parent);
	parent_there = !hc_node_stat(w->node, &key, false, &parent);
	if (page->expects)
		assert_true(parent_there);
	if (parent_there && info.on_disk && page->expects)
		assert_true(parent.on_disk);
}

static void check(struct world *w)
{
	static uint32_t mem[N_PAGES], disk[N_PAGES];
	struct books books = {.w = w};
	struct hc_node_stats stats;

	assert_int_equal(hc_backup_quiet(w->node, soon(20000)), 0);
	while (atomic_load(&w->node->n_io)) /* removals end, too */
		sched_yield();
	hc_index_each(w->node->index, book_entry, &books);
	hc_node_stats(w->node, &stats);
	assert_int_equal(books.n, stats.n_pages);
	assert_int_equal(books.n_disk, stats.n_pages_disk);
	assert_int_equal(books.disk_bytes, stats.disk_used_bytes);
	assert_true(books.n_memory <= stats.n_pages_memory); /* held unnamed ones count there */
	assert_true(stats.n_pages_memory <= books.n_memory + N_HELD);
	assert_true(stats.disk_used_bytes <= 400 * PAGE_BYTES);
	for (int i = 0; i < 2; i++) {
		struct hc_space_info space;

		assert_int_equal(hc_space_get(hc_node_registry(w->node), w->space[i], &space), 0);
		assert_int_equal(hc_space_used(hc_node_registry(w->node), w->space[i]),
				 books.space_bytes[i]);
		if (space.quota_bytes)
			assert_true(books.space_bytes[i] <= space.quota_bytes);
	}
	memset(mem, 0, sizeof(mem));
	memset(disk, 0, sizeof(disk));
	for (uint32_t i = 0; i < N_PAGES; i++)
		check_page(w, i, mem, disk);
	for (uint32_t i = 0; i < N_PAGES; i++) {
		struct hc_key key = key_of(w, i);
		struct hc_shard *shard = hc_node_shard(w->node, &key.hash);
		struct hc_entry *entry;

		hc_shard_lock(shard);
		entry = hc_shard_find(shard, &key);
		if (entry) {
			/* Unnamed but held children are still in memory. */
			assert_true(entry->n_children_mem >= mem[i] &&
				    entry->n_children_mem <= mem[i] + N_HELD);
			assert_int_equal(entry->n_children_disk, disk[i]);
		}
		hc_shard_unlock(shard);
	}
	for (uint32_t i = 0; i < N_HELD; i++) {
		if (w->held[i].entry != HC_ENTRY_NONE)
			assert_true(page_right(w->held[i].data, &w->pages[w->held_page[i]].hash));
	}
}

static void run(struct world *w, uint32_t n_steps)
{
	hc_rng_seed(&w->rng, w->seed);
	make_pages(w);
	for (uint32_t i = 0; i < N_HELD; i++)
		w->held[i].entry = HC_ENTRY_NONE;
	world_up(w);
	for (uint32_t step = 0; step < n_steps; step++) {
		uint64_t dice = hc_rng_below(&w->rng, 1000);

		if (dice < 500)
			do_publish(w);
		else if (dice < 750)
			do_acquire(w);
		else if (dice < 880)
			do_release(w);
		else if (dice < 920)
			do_remove(w);
		else if (dice < 960)
			do_pin(w);
		else if (dice < 995)
			do_stat(w);
		else
			do_rare(w);
		if (step % LOOK_EVERY == LOOK_EVERY - 1)
			check(w);
	}
	for (uint32_t i = 0; i < N_HELD; i++)
		hc_node_release(w->node, &w->held[i], 1);
	check(w);
	/* What is on disk comes back, with the same bytes. */
	hc_node_close(w->node, NULL);
	world_up(w);
	for (uint32_t i = 0; i < N_PAGES; i++)
		w->pages[i].pins = 0;
	check(w);
	for (int i = 0; i < 200; i++) {
		do_acquire(w);
		do_release(w);
	}
	for (uint32_t i = 0; i < N_HELD; i++)
		hc_node_release(w->node, &w->held[i], 1);
	hc_node_close(w->node, NULL);
}

static void test_random(void **state)
{
	const char *seed = getenv("HC_TEST_SEED"), *steps = getenv("HC_TEST_STEPS");

	hc_log_set_level(HC_LOG_ERROR);
	for (uint64_t i = 0; i < (seed ? 1 : 4); i++) {
		struct world *w = hc_zalloc(sizeof(*w));

		w->seed = seed ? strtoull(seed, NULL, 10) : i + 1;
		print_message("seed %llu\n", (unsigned long long)w->seed);
		snprintf(w->dir, sizeof(w->dir), "%s/hctest-random-XXXXXX",
			 getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp");
		assert_non_null(mkdtemp(w->dir));
		run(w, steps ? (uint32_t)strtoul(steps, NULL, 10) : 3000);
		nftw(w->dir, remove_one, 32, FTW_DEPTH | FTW_PHYS);
		free(w->node_ids);
		free(w);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_random),
};

HC_TEST_MAIN(tests)
