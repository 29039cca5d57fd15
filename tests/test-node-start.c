/* SPDX-License-Identifier: Apache-2.0 */
/* A start with many catalogued pages, read by several threads. Goal: what the node knows afterwards
 * is what the rows say, in whatever order they come: parents before and after their children, two
 * bodies of one key, rows that cannot be used, opaque names, several directories and series; and
 * eviction then takes oldest first, leaves first. Method: rows put into the catalog without page
 * files (a start does not look at those), a recency file beside it. */
#include "node-rig.h"

#include "index/rows.h"
#include "node/internal.h"

#define N_CHAINS  1500u
#define CHAIN     16u
#define N_RANKS   300u /* of the first chains there is a second series */
#define N_DIRS    8u
#define DIR_GONE  77777u
#define N_OPAQUE  40u
#define N_BAD     3u
#define EVERY     50u /* so many chains have a page with two bodies */
#define TWO_DEPTH 3u

struct world {
	struct rig *rig;
	uint32_t dirs[N_DIRS];
	uint64_t sequence[2][N_CHAINS][CHAIN]; /* of the body that must win */
	struct hc_recency *recency;
	size_t n_recency;
	uint64_t n_rows; /* that stay in the catalog */
	uint64_t n_pages;
};

static uint64_t put(struct world *w, const void *value, size_t n_bytes)
{
	struct hc_registry *registry = hc_node_registry(w->rig->node);
	uint64_t sequence = hc_registry_next_sequence(registry);

	assert_int_equal(hc_catalog_put(hc_registry_catalog(registry), HC_TABLE_PAGES, sequence,
					value, n_bytes, false, NULL),
			 0);
	return sequence;
}

static uint32_t dir_of(const struct world *w, uint32_t chain)
{
	return chain % N_DIRS == N_DIRS - 1 ? DIR_GONE : w->dirs[chain % N_DIRS];
}

static void put_page(struct world *w, uint32_t rank, uint32_t chain, uint32_t depth)
{
	struct hc_row_page row = {
		.hash = rig_hash(chain, depth),
		.size_bytes = RIG_PAGE_BYTES,
		.checksum = (uint64_t)chain * CHAIN + depth,
		.mtime_ns = 1000,
		.series = w->rig->series[rank],
		.depth = depth,
		.dir = dir_of(w, chain),
		.mode = 0600 + chain % 8,
	};
	uint8_t packed[HC_ROW_BYTES_MAX];

	if (depth)
		row.parent = rig_hash(chain, depth - 1);
	w->sequence[rank][chain][depth] = put(w, packed, hc_row_page_pack(&row, packed));
}

static void put_opaque(struct world *w)
{
	struct hc_row_page row = {.size_bytes = RIG_PAGE_BYTES,
				  .series = w->rig->series[0],
				  .mode = 0644,
				  .flags = 1};
	uint8_t packed[HC_ROW_BYTES_MAX];

	for (uint32_t i = 0; i < N_OPAQUE; i++) {
		row.hash = rig_hash(N_CHAINS + i, 0);
		row.dir = w->dirs[0];
		snprintf(row.name, sizeof(row.name), "some name %u", i);
		w->n_rows++, w->n_pages++;
		put(w, packed, hc_row_page_pack(&row, packed));
	}
}

static void put_bad(struct world *w)
{
	struct hc_row_page row = {.size_bytes = RIG_PAGE_BYTES, .series = 9999, .mode = 0644};
	uint8_t packed[HC_ROW_BYTES_MAX];
	size_t n_bytes;

	row.hash = rig_hash(0, 0);
	n_bytes = hc_row_page_pack(&row, packed);
	put(w, packed, n_bytes);
	put(w, packed, n_bytes - 1);
	memset(packed, 0xee, sizeof(packed));
	put(w, packed, n_bytes);
	w->n_rows += N_BAD;
}

static void put_rows(struct world *w)
{
	/* Bodies that a newer one replaced, before and behind it in other pieces of the table. */
	for (uint32_t chain = 0; chain < N_CHAINS; chain += EVERY)
		put_page(w, 0, chain, TWO_DEPTH);
	put_bad(w);
	/* Depth by depth: a parent is far from its children, and behind them in every other chain.
	 */
	for (uint32_t d = 0; d < CHAIN; d++) {
		for (uint32_t chain = 0; chain < N_CHAINS; chain++) {
			put_page(w, 0, chain, chain % 2 ? CHAIN - 1 - d : d);
			if (chain < N_RANKS)
				put_page(w, 1, chain, d);
		}
	}
	put_opaque(w);
	for (uint32_t chain = 1; chain < N_CHAINS; chain += EVERY)
		put_page(w, 0, chain, TWO_DEPTH);
	w->n_pages += (N_CHAINS + N_RANKS) * CHAIN;
	w->n_rows += (N_CHAINS + N_RANKS) * CHAIN;
}

static int by_sequence(const void *a, const void *b)
{
	const struct hc_recency *x = a, *y = b;

	return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/* All pages of a chain were used at once, chain by chain. */
static void put_recency(struct world *w)
{
	struct hc_registry *registry = hc_node_registry(w->rig->node);

	w->recency = calloc((N_CHAINS + N_RANKS) * CHAIN, sizeof(*w->recency));
	assert_non_null(w->recency);
	for (uint32_t rank = 0; rank < 2; rank++) {
		for (uint32_t chain = 0; chain < (rank ? N_RANKS : N_CHAINS); chain++) {
			for (uint32_t d = 0; d < CHAIN; d++)
				w->recency[w->n_recency++] = (struct hc_recency){
					w->sequence[rank][chain][d], chain + 1, chain % 7};
		}
	}
	qsort(w->recency, w->n_recency, sizeof(*w->recency), by_sequence);
	assert_int_equal(
		hc_catalog_recency_store(hc_registry_catalog(registry), w->recency, w->n_recency),
		0);
	free(w->recency);
}

static void make_dirs(struct world *w)
{
	struct hc_registry *registry = hc_node_registry(w->rig->node);
	struct hc_owner owner = {0, 0, 0755};
	struct hc_space_info space;
	struct hc_dir_info dir;
	char name[16];

	assert_int_equal(hc_space_get(registry, w->rig->space, &space), 0);
	for (uint32_t i = 0; i < N_DIRS; i++) {
		snprintf(name, sizeof(name), "d%u", i);
		assert_int_equal(hc_dir_make(registry, space.dir, name, &owner, &dir), 0);
		w->dirs[i] = dir.id;
	}
}

static void check_pages(const struct world *w)
{
	struct hc_page_info info;

	for (uint32_t rank = 0; rank < 2; rank++) {
		for (uint32_t chain = 0; chain < (rank ? N_RANKS : N_CHAINS); chain++) {
			uint32_t dir = dir_of(w, chain);

			for (uint32_t d = 0; d < CHAIN; d++) {
				assert_true(
					rig_info(w->rig, w->rig->series[rank], chain, d, &info));
				assert_int_equal(info.sequence, w->sequence[rank][chain][d]);
				assert_int_equal(info.depth, d);
				assert_int_equal(info.checksum, chain * CHAIN + d);
				assert_int_equal(info.size_bytes, RIG_PAGE_BYTES);
				assert_int_equal(info.owner.mode, 0600 + chain % 8);
				assert_int_equal(info.dir, dir == DIR_GONE ? 0 : dir);
				assert_int_equal(info.stamp, chain + 1);
				assert_int_equal(info.hits, chain % 7);
				assert_true(info.on_disk && !info.in_memory);
			}
		}
	}
}

static void check_lists(const struct world *w)
{
	uint64_t n_listed = 0, n_hidden = 0;

	for (uint32_t i = 0; i < N_DIRS; i++) {
		struct hc_dir_item *items;
		size_t n;

		assert_int_equal(hc_node_dir_pages(w->rig->node, w->dirs[i], &items, &n), 0);
		assert_int_equal(n, hc_node_dir_n_pages(w->rig->node, w->dirs[i]));
		n_listed += n;
		free(items);
	}
	for (uint32_t chain = N_DIRS - 1; chain < N_CHAINS; chain += N_DIRS)
		n_hidden += chain < N_RANKS ? 2 * CHAIN : CHAIN;
	assert_int_equal(n_listed, w->n_pages - n_hidden);
}

static void check_opaque(const struct world *w)
{
	for (uint32_t i = 0; i < N_OPAQUE; i++) {
		struct hc_page_info info;
		char name[HC_NAME_BYTES], want[32];
		uint64_t node_id;

		assert_true(rig_info(w->rig, w->rig->series[0], N_CHAINS + i, 0, &info));
		snprintf(want, sizeof(want), "some name %u", i);
		assert_int_equal(
			hc_node_page_name(w->rig->node, info.entry, info.sequence, name, &node_id),
			0);
		assert_int_equal(node_id, info.node_id);
		assert_string_equal(name, want);
	}
}

/* Few chains at one time, published in order: each page is known to follow its parent, also where a
 * piece of the table ends between them. */
#define N_LINKED 400u
#define LINKED   40u

static void put_linked(struct world *w, bool parents)
{
	struct hc_row_page row = {
		.size_bytes = RIG_PAGE_BYTES, .series = w->rig->series[0], .mode = 0644};
	uint8_t packed[HC_ROW_BYTES_MAX];
	uint32_t first = parents ? N_LINKED : 0; /* others in each round */

	for (uint32_t chain = 0; chain < N_LINKED; chain += 8) {
		for (uint32_t d = 0; d < LINKED; d++) {
			for (uint32_t c = chain; c < chain + (parents ? 8 : 1); c++) {
				row.hash = rig_hash(first + c, d);
				row.parent = d && parents ? rig_hash(first + c, d - 1)
							  : (struct hc_hash){{0}};
				row.depth = d;
				put(w, packed, hc_row_page_pack(&row, packed));
			}
		}
	}
}

static void check_linked(struct rig *rig, bool parents)
{
	for (uint32_t chain = 0; chain < N_LINKED; chain += parents ? 1 : 8) {
		struct hc_page_info info, before = {0};

		for (uint32_t d = 0; d < LINKED; d++) {
			struct hc_link next;
			bool sure;

			assert_true(rig_info(rig, rig->series[0], chain + (parents ? N_LINKED : 0),
					     d, &info));
			if (d) {
				assert_true(hc_links_next(
					rig->node->links,
					(struct hc_link){before.entry, (uint32_t)before.sequence},
					&next, &sure));
				assert_true(sure);
				assert_int_equal(next.number, info.entry);
			}
			before = info;
		}
	}
}

static void test_order_is_known(void **state)
{
	struct rig *rig = *state;
	struct world w = {.rig = rig};

	rig->config.no_evictor = true;
	rig->config.disk_bytes = 1024 * 1024 * HC_MIB;
	for (int parents = 0; parents < 2; parents++) {
		rig_up(rig);
		put_linked(&w, parents);
		rig_down(rig);
		rig_up(rig);
		check_linked(rig, parents);
		rig_down(rig);
	}
}

/* Chains below one are gone, those above it whole, it has a prefix. */
static void check_evicted(const struct world *w)
{
	uint32_t cut = UINT32_MAX, n_gone = 0;

	for (uint32_t chain = N_CHAINS; chain-- > 0;) {
		uint32_t there = 0;

		for (uint32_t d = 0; d < CHAIN; d++) {
			bool is = rig_there(w->rig, chain, d);

			assert_true(!is || there == d);
			there += is;
		}
		if (there < CHAIN && cut == UINT32_MAX)
			cut = chain;
		assert_true(chain == cut || there == (cut == UINT32_MAX ? CHAIN : 0));
		n_gone += CHAIN - there;
	}
	assert_true(n_gone > 0 && cut > 0 && cut < N_CHAINS);
}

static void test_many_rows(void **state)
{
	static struct world w;
	struct rig *rig = *state;
	struct hc_registry *registry;
	uint64_t used_bytes;

	w = (struct world){.rig = rig};
	rig->config.no_evictor = true;
	rig->config.disk_bytes = 1024 * 1024 * HC_MIB;
	rig->config.index_bytes = 1024 * HC_MIB;
	rig_up(rig);
	make_dirs(&w);
	put_rows(&w);
	put_recency(&w);
	rig->node->opened = false; /* its close leaves the recency file alone */
	rig_down(rig);

	rig_up(rig);
	registry = hc_node_registry(rig->node);
	used_bytes = w.n_pages * RIG_PAGE_BYTES;
	assert_int_equal(rig_stats(rig).n_pages, w.n_pages);
	assert_int_equal(rig_stats(rig).n_pages_disk, w.n_pages);
	assert_int_equal(rig_stats(rig).disk_used_bytes, used_bytes);
	assert_int_equal(hc_space_used(registry, rig->space), used_bytes);
	check_pages(&w);
	check_lists(&w);
	check_opaque(&w);
	/* The rows of bodies that lost are gone. */
	assert_int_equal(hc_catalog_sync(rig->node->catalog, 0, rig_soon(RIG_WAIT_MS)), 0);
	assert_int_equal(hc_catalog_n_rows(rig->node->catalog, HC_TABLE_PAGES), w.n_rows);

	assert_true(hc_evict_space(rig->node, rig->space, used_bytes / 2));
	assert_true(hc_space_used(registry, rig->space) <= used_bytes - used_bytes / 2);
	assert_true(hc_space_used(registry, rig->space) >
		    used_bytes - used_bytes / 2 - RIG_PAGE_BYTES);
	check_evicted(&w);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(test_many_rows, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(test_order_is_known, rig_setup, rig_teardown),
};

HC_TEST_MAIN(tests)
