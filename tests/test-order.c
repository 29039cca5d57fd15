/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction order and owners. Goal: the order gives exactly the leaf that least recently used order
 * demands, though touches only write the entry; owners are interned once. Method: comparison with
 * the plain definition on random trees. */
#include "hctest.h"

#include <pthread.h>

#include "index/order.h"
#include "index/owner.h"
#include "util/rng.h"

static void test_key(void **state)
{
	struct hc_entry base = {.stamp = 100, .depth = 10, .priority = 5};
	struct hc_entry e = base;

	e.stamp = 101;
	assert_true(hc_order_key(&e) > hc_order_key(&base));
	e = base;
	e.depth = 11;
	assert_true(hc_order_key(&e) < hc_order_key(&base));
	e.stamp = 101;
	assert_true(hc_order_key(&e) > hc_order_key(&base));
	e = base;
	e.priority = 4;
	e.stamp = UINT32_MAX;
	assert_true(hc_order_key(&e) < hc_order_key(&base));
	e = base;
	e.flags = HC_ENTRY_ORPHAN;
	e.priority = 255;
	e.stamp = UINT32_MAX;
	e.depth = 0;
	assert_true(hc_order_key(&e) < hc_order_key(&base));
	base = (struct hc_entry){.depth = (1u << 24) - 1};
	assert_true(hc_order_key(&e) < hc_order_key(&base));
	/* Depths that the key cannot tell apart still go before the shallow ones. */
	e = base;
	e.depth = 1000;
	assert_true(hc_order_key(&base) < hc_order_key(&e));
}

/* Records come out sorted; peek is the next pop; memory follows the count both ways. */
static void test_heap(void **state)
{
	struct hc_order_record record = {0}, next = {0};
	struct hc_order *order;
	struct hc_rng rng;
	uint64_t n = 0, sum = 0;

	hc_rng_seed(&rng, 3);
	assert_int_equal(hc_order_create(&order), 0);
	assert_false(hc_order_pop(order, &record));
	assert_false(hc_order_peek(order, &record));
	for (int lap = 0; lap < 4; lap++) {
		uint64_t last = 0;

		for (uint32_t i = 0; i < 5000; i++) {
			record = (struct hc_order_record){hc_rng_below(&rng, 3000), i, i * 3};
			assert_int_equal(hc_order_push(order, &record), 0);
			sum += record.key * (i + 1);
			n++;
		}
		assert_int_equal(hc_order_count(order), n);
		while (n > (lap == 3 ? 0 : 40u)) {
			assert_true(hc_order_peek(order, &next));
			assert_true(hc_order_pop(order, &record));
			assert_memory_equal(&next, &record, sizeof(record));
			assert_true(record.key >= last);
			assert_int_equal(record.tag, record.number * 3);
			last = record.key;
			sum -= record.key * (record.number + 1);
			n--;
		}
	}
	assert_false(hc_order_pop(order, &record));
	assert_int_equal(sum, 0);
	hc_order_destroy(order);
	hc_order_destroy(NULL);
}

/* The property. A forest of pages; batches touch a path from the root, make missing pages on it, or
 * a resident prefix only; the victim must be the leaf that the plain definition picks: no resident
 * child, oldest stamp, then deepest. */
#define N_PAGES 600

struct tree {
	struct hc_entry pages[N_PAGES]; /* the parent of page i is page (i - 1) / 2 or so */
	uint32_t parents[N_PAGES];      /* N_PAGES: root */
	bool resident[N_PAGES];
	uint32_t n_children[N_PAGES];
	struct hc_order *order;
	uint32_t stamp;
	size_t n_resident;
	size_t n_refiled;
};

static void tree_push(struct tree *t, uint32_t i)
{
	const struct hc_order_record record = {hc_order_key(&t->pages[i]), i, 0};

	assert_int_equal(hc_order_push(t->order, &record), 0);
}

static void tree_touch_path(struct tree *t, uint32_t leaf, bool make)
{
	uint32_t path[N_PAGES], n = 0, stamp = ++t->stamp;

	for (uint32_t i = leaf; i != N_PAGES; i = t->parents[i])
		path[n++] = i;
	/* Root first, as a prompt is read. */
	while (n--) {
		uint32_t i = path[n];

		if (!t->resident[i]) {
			if (!make)
				return;
			t->resident[i] = true;
			t->n_resident++;
			if (t->parents[i] != N_PAGES)
				t->n_children[t->parents[i]]++;
			t->pages[i].stamp = stamp;
			tree_push(t, i);
		}
		/* A touch is this store and nothing else. */
		t->pages[i].stamp = stamp;
	}
}

static uint32_t tree_victim_plain(const struct tree *t)
{
	uint32_t best = N_PAGES;

	for (uint32_t i = 0; i < N_PAGES; i++) {
		const struct hc_entry *a = &t->pages[i],
				      *b = best < N_PAGES ? &t->pages[best] : NULL;

		if (!t->resident[i] || t->n_children[i])
			continue;
		if (!b || a->stamp < b->stamp || (a->stamp == b->stamp && a->depth > b->depth))
			best = i;
	}
	return best;
}

static uint32_t tree_victim_order(struct tree *t)
{
	struct hc_order_record record;

	while (hc_order_pop(t->order, &record)) {
		if (record.key == hc_order_key(&t->pages[record.number]))
			return record.number;
		assert_true(record.key < hc_order_key(&t->pages[record.number]));
		tree_push(t, record.number);
		t->n_refiled++;
	}
	return N_PAGES;
}

static void tree_evict(struct tree *t)
{
	uint32_t plain = tree_victim_plain(t), i = tree_victim_order(t);

	assert_int_equal(i, plain);
	if (i == N_PAGES)
		return;
	assert_int_equal(t->n_children[i], 0);
	t->resident[i] = false;
	t->n_resident--;
	if (t->parents[i] != N_PAGES)
		t->n_children[t->parents[i]]--;
}

static void tree_rebase(struct tree *t, uint32_t by)
{
	t->stamp -= by;
	for (uint32_t i = 0; i < N_PAGES; i++)
		t->pages[i].stamp -= t->pages[i].stamp < by ? t->pages[i].stamp : by;
	hc_order_rebase(t->order, by);
}

static void test_lru_leaf(void **state)
{
	struct tree *t = hc_zalloc(sizeof(*t));

	for (uint64_t seed = 0; seed < 8; seed++) {
		struct hc_rng rng;

		memset(t, 0, sizeof(*t));
		hc_rng_seed(&rng, seed);
		assert_int_equal(hc_order_create(&t->order), 0);
		for (uint32_t i = 0; i < N_PAGES; i++) {
			/* Long chains with branches: mostly the page before. */
			if (i % 100 == 0)
				t->parents[i] = N_PAGES;
			else
				t->parents[i] = hc_rng_below(&rng, 4)
							? i - 1
							: i / 100 * 100 + (uint32_t)hc_rng_below(
										  &rng, i % 100);
			t->pages[i].depth =
				t->parents[i] == N_PAGES ? 0 : t->pages[t->parents[i]].depth + 1;
		}
		for (int step = 0; step < 1500; step++) {
			tree_touch_path(t, (uint32_t)hc_rng_below(&rng, N_PAGES),
					hc_rng_below(&rng, 3) > 0);
			while (t->n_resident > 200)
				tree_evict(t);
			/* By less than the oldest, so that no order is lost. */
			if (step == 700) {
				uint32_t oldest = UINT32_MAX;

				for (uint32_t i = 0; i < N_PAGES; i++) {
					if (t->resident[i] && t->pages[i].stamp < oldest)
						oldest = t->pages[i].stamp;
				}
				tree_rebase(t, oldest);
			}
		}
		assert_true(t->n_refiled > 100);
		while (t->n_resident)
			tree_evict(t);
		tree_evict(t);
		hc_order_destroy(t->order);
	}
	free(t);
}

/* Where a rebase makes old stamps one, the deepest goes first, whatever the stamps were. */
static void test_rebase_merges(void **state)
{
	struct hc_order_record record;
	struct hc_order *order;
	struct hc_rng rng;
	uint64_t last = 0;

	hc_rng_seed(&rng, 9);
	assert_int_equal(hc_order_create(&order), 0);
	for (uint32_t i = 0; i < 3000; i++) {
		struct hc_entry e = {.stamp = (uint32_t)hc_rng_below(&rng, 2000),
				     .depth = (uint32_t)hc_rng_below(&rng, 1000),
				     .priority = (uint32_t)hc_rng_below(&rng, 2),
				     .flags = hc_rng_below(&rng, 50) ? 0 : HC_ENTRY_ORPHAN};

		record = (struct hc_order_record){hc_order_key(&e), i, 0};
		assert_int_equal(hc_order_push(order, &record), 0);
	}
	hc_order_rebase(order, 1500);
	for (uint32_t i = 0; i < 3000; i++) {
		assert_true(hc_order_pop(order, &record));
		assert_true(record.key >= last);
		assert_true((record.key >> 21 & UINT32_MAX) < 500);
		last = record.key;
	}
	hc_order_destroy(order);
}

/* Orphans, then ended sessions whatever their priority; a living session stays within its priority
 * alone. Younger ones everywhere before older ones of a group, so that age does not explain it. */
static void test_hints(void **state)
{
	static const struct hc_entry groups[] = {
		{.flags = HC_ENTRY_ORPHAN, .priority = 9, .session = HC_SESSION_ALIVE},
		{.session = HC_SESSION_ENDED},
		{.session = HC_SESSION_ENDED, .priority = 255},
		{.session = HC_SESSION_NONE},
		{.session = HC_SESSION_ALIVE},
		{.session = HC_SESSION_NONE, .priority = 1},
		{.session = HC_SESSION_ALIVE, .priority = 255},
	};

	for (size_t i = 0; i + 1 < HC_ARRAY_SIZE(groups); i++) {
		struct hc_entry first = groups[i], then = groups[i + 1];

		first.stamp = UINT32_MAX;
		then.stamp = 0;
		then.depth = (1u << 24) - 1;
		assert_true(hc_order_key(&first) < hc_order_key(&then));
	}
}

/* What is appended is sorted in before the next look, whatever is pushed, popped or rebased
 * between.
 */
static void test_append(void **state)
{
	struct hc_order_record records[700], record;
	struct hc_order *order;
	struct hc_rng rng;
	uint64_t sum = 0;
	size_t n = 0;

	hc_rng_seed(&rng, 4);
	assert_int_equal(hc_order_create(&order), 0);
	assert_int_equal(hc_order_append(order, records, 0), 0);
	assert_false(hc_order_peek(order, &record));
	for (uint32_t round = 0; round < 30; round++) {
		size_t n_now = (size_t)hc_rng_below(&rng, HC_ARRAY_SIZE(records) + 1);
		uint64_t last = 0;

		for (size_t i = 0; i < n_now; i++) {
			records[i] =
				(struct hc_order_record){hc_rng_below(&rng, 10000), (uint32_t)i, 0};
			sum += records[i].key;
		}
		assert_int_equal(hc_order_append(order, records, n_now), 0);
		record = (struct hc_order_record){hc_rng_below(&rng, 10000), 0, 0};
		sum += record.key;
		assert_int_equal(hc_order_push(order, &record), 0);
		n += n_now + 1;
		if (round % 3 == 0)
			hc_order_rebase(order, 0);
		if (round % 2)
			assert_true(hc_order_peek(order, &record));
		assert_int_equal(hc_order_count(order), n);
		for (size_t i = n / 3; i < n; i++) {
			assert_true(hc_order_pop(order, &record));
			assert_true(record.key >= last);
			last = record.key;
			sum -= record.key;
		}
		n = n / 3;
	}
	while (hc_order_pop(order, &record)) {
		sum -= record.key;
		n--;
	}
	assert_int_equal(n, 0);
	assert_int_equal(sum, 0);
	hc_order_destroy(order);
}

/* Threads push and pop; nothing is lost or doubled. */
struct pusher {
	struct hc_order *order;
	uint32_t first;
	uint64_t sum;
};

static void *pusher_main(void *arg)
{
	struct pusher *p = arg;
	struct hc_order_record record;

	for (uint32_t i = 0; i < 5000; i++) {
		record = (struct hc_order_record){(i * 7919u) % 5000, p->first + i, 0};
		if (hc_order_push(p->order, &record))
			return NULL;
		if (i % 2 && hc_order_pop(p->order, &record))
			p->sum += record.number;
	}
	return NULL;
}

static void test_order_threads(void **state)
{
	struct hc_order_record record;
	struct pusher pushers[4];
	pthread_t threads[4];
	uint64_t sum = 0;
	struct hc_order *order;

	assert_int_equal(hc_order_create(&order), 0);
	for (uint32_t i = 0; i < 4; i++) {
		pushers[i] = (struct pusher){order, i * 5000, 0};
		assert_int_equal(pthread_create(&threads[i], NULL, pusher_main, &pushers[i]), 0);
	}
	for (uint32_t i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		sum += pushers[i].sum;
	}
	assert_int_equal(hc_order_count(order), 10000);
	while (hc_order_pop(order, &record))
		sum += record.number;
	assert_int_equal(sum, (uint64_t)20000 * 19999 / 2);
	hc_order_destroy(order);
}

/* Owners */

static void test_owners(void **state)
{
	struct hc_owner owner = {0, 0, 0644}, back;
	struct hc_owners *owners;
	uint16_t number;

	assert_int_equal(hc_owners_create(&owners), 0);
	assert_int_equal(hc_owners_intern(owners, &owner, &number), 0);
	assert_int_equal(number, 0);
	for (uint32_t lap = 0; lap < 2; lap++) {
		for (uint32_t i = 1; i < 65535; i++) {
			owner = (struct hc_owner){i % 300, i / 300, i % 2 ? 0600 : 0640};
			assert_int_equal(hc_owners_intern(owners, &owner, &number), 0);
			assert_int_equal(number, i);
		}
	}
	for (uint32_t i = 1; i < 65535; i += 97) {
		hc_owners_get(owners, (uint16_t)i, &back);
		assert_int_equal(back.uid, i % 300);
		assert_int_equal(back.gid, i / 300);
		assert_int_equal(back.mode, i % 2 ? 0600 : 0640);
	}
	owner = (struct hc_owner){12345678, 1, 0600};
	number = 77;
	assert_int_equal(hc_owners_intern(owners, &owner, &number), -ENOSPC);
	assert_int_equal(hc_owners_intern(owners, &owner, &number), -ENOSPC);
	assert_int_equal(number, 77);
	owner = (struct hc_owner){0, 0, 0644};
	assert_int_equal(hc_owners_intern(owners, &owner, &number), 0);
	assert_int_equal(number, 0);
	hc_owners_destroy(owners);
	hc_owners_destroy(NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_key),           cmocka_unit_test(test_heap),
	cmocka_unit_test(test_lru_leaf),      cmocka_unit_test(test_rebase_merges),
	cmocka_unit_test(test_order_threads), cmocka_unit_test(test_owners),
	cmocka_unit_test(test_hints),         cmocka_unit_test(test_append),
};

HC_TEST_MAIN(tests)
