/* SPDX-License-Identifier: Apache-2.0 */
/* Walks and links. Goal: what one process opens and publishes in one tree gets stamps and depths by
 * which the end of a prompt is evicted before its beginning, whoever comes in between; read-ahead
 * is asked for in windows that double, only behind pages that came in the known order. */
#include "hctest.h"

#include "index/walk.h"
#include "util/clock.h"

#define PAGE_BYTES 1000u

struct rig {
	struct hc_links *links;
	struct hc_walks *walks;
	uint32_t stamp;
	uint64_t now_ns;
	uint32_t stamps[65536]; /* of pages, by number */
	uint32_t depths[65536];
	bool ahead[65536];
};

static uint32_t next_stamp(void *arg)
{
	struct rig *rig = arg;

	return ++rig->stamp;
}

static void setup(struct rig *rig, uint64_t ahead_max)
{
	memset(rig, 0, sizeof(*rig));
	rig->now_ns = 10 * HC_NS_PER_S;
	assert_int_equal(hc_links_create(&rig->links), 0);
	assert_int_equal(hc_walks_create(rig->links, ahead_max, &rig->walks), 0);
}

static void teardown(struct rig *rig)
{
	hc_walks_destroy(rig->walks);
	hc_links_destroy(rig->links);
}

static struct hc_link page_of(uint32_t page)
{
	return (struct hc_link){page, 100000 + page};
}

static struct hc_walk_step open_by(struct rig *rig, const struct hc_walk_who *who, uint32_t page)
{
	struct hc_walk_page p = {
		.page = page_of(page),
		.stamp = rig->stamps[page],
		.depth = rig->depths[page],
		.size_bytes = PAGE_BYTES,
		.ahead = rig->ahead[page],
	};
	struct hc_walk_step step;

	hc_walk_open(rig->walks, who, &p, true, rig->now_ns, next_stamp, rig, &step);
	rig->stamps[page] = step.stamp;
	rig->ahead[page] = false;
	return step;
}

static struct hc_walk_step publish_by(struct rig *rig, const struct hc_walk_who *who, uint32_t page,
				      bool skipped)
{
	struct hc_walk_step step;

	hc_walk_publish(rig->walks, who, rig->now_ns, next_stamp, rig, &step);
	hc_walk_published(rig->walks, &step, page_of(page), skipped);
	rig->stamps[page] = step.stamp;
	rig->depths[page] = step.position;
	return step;
}

static void publish_chain(struct rig *rig, const struct hc_walk_who *who, uint32_t first,
			  uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct hc_walk_step step = publish_by(rig, who, first + i, false);

		assert_int_equal(step.begins, !i);
		assert_int_equal(step.position, i);
	}
	rig->now_ns += 61 * HC_NS_PER_S;
}

/* What is read ahead for a walk carries its stamp. */
static struct hc_link do_ahead(struct rig *rig, const struct hc_walk_step *step, uint32_t n_max)
{
	struct hc_link at = step->ahead_from, next;
	uint64_t bytes = 0;
	bool sure;

	while (bytes + PAGE_BYTES <= step->ahead_bytes && n_max-- &&
	       hc_links_next(rig->links, at, &next, &sure) && sure) {
		at = next;
		bytes += PAGE_BYTES;
		rig->stamps[at.number] = step->stamp;
		rig->ahead[at.number] = true;
	}
	hc_walk_ahead_done(rig->walks, step, at, bytes);
	return at;
}

static const struct hc_walk_who writer = {.opener = 7, .thread = 70, .tree = 1};
static const struct hc_walk_who reader = {.opener = 8, .thread = 80, .tree = 1};

static void test_one_stamp(void **state)
{
	static struct rig rig;
	struct hc_walk_who other_tree = {8, 80, 2}, other = {9, 90, 1};
	struct hc_walk_step step;
	uint32_t stamp;

	setup(&rig, 0);
	publish_chain(&rig, &writer, 0, 10);
	step = open_by(&rig, &reader, 0);
	assert_true(step.begins);
	stamp = step.stamp;
	/* Others, and another tree, in between. */
	assert_true(open_by(&rig, &other, 0).begins);
	assert_true(open_by(&rig, &other_tree, 5).begins);
	/* Exactly half a second is not idle yet; more is. */
	rig.now_ns += HC_NS_PER_S / 2;
	step = open_by(&rig, &reader, 1);
	assert_false(step.begins);
	assert_true(step.follows);
	assert_int_equal(step.stamp, stamp);
	rig.now_ns += HC_NS_PER_S / 2 + 1;
	step = open_by(&rig, &reader, 2);
	assert_true(step.begins);
	assert_true(step.stamp > stamp);
	/* A page that is not the next one goes on with the walk, too. */
	assert_int_equal(open_by(&rig, &reader, 7).stamp, step.stamp);
	/* A page of the walk comes again: the next prompt begins. */
	stamp = open_by(&rig, &reader, 2).stamp;
	assert_true(stamp > step.stamp);
	assert_int_equal(open_by(&rig, &reader, 3).stamp, stamp);
	teardown(&rig);
	hc_walks_destroy(NULL);
	hc_links_destroy(NULL);
}

static void test_length(void **state)
{
	static struct rig rig;

	setup(&rig, 0);
	for (uint32_t i = 0; i < 3 * 4096; i++) {
		struct hc_walk_step step = publish_by(&rig, &writer, i, false);

		/* A new stamp, but the depth goes on. */
		assert_int_equal(step.stamp, i / 4096 + 1);
		assert_int_equal(step.position, i);
	}
	rig.now_ns += 61 * HC_NS_PER_S;
	for (uint32_t i = 0; i < 3 * 4096; i++)
		assert_int_equal(open_by(&rig, &reader, i).stamp, i / 4096 + 4);
	teardown(&rig);
}

/* Two prompts by one process, page by page in turns: a stamp each. */
static void test_turns(void **state)
{
	static struct rig rig;
	struct hc_walk_who other_thread = {8, 81, 1};
	uint32_t stamp_a, stamp_b;

	setup(&rig, 0);
	publish_chain(&rig, &writer, 0, 50);
	publish_chain(&rig, &writer, 100, 50);
	stamp_a = open_by(&rig, &reader, 0).stamp;
	stamp_b = open_by(&rig, &other_thread, 100).stamp;
	assert_int_not_equal(stamp_a, stamp_b);
	for (uint32_t i = 1; i < 50; i++) {
		/* Threads of a pool: any of them. */
		assert_int_equal(open_by(&rig, i % 2 ? &reader : &other_thread, i).stamp, stamp_a);
		assert_int_equal(open_by(&rig, i % 3 ? &reader : &other_thread, 100 + i).stamp,
				 stamp_b);
	}
	teardown(&rig);
}

/* A request: what is there is opened, the rest is published behind it. */
static void test_suffix(void **state)
{
	static struct rig rig;
	struct hc_walk_step step;
	uint32_t stamp;

	setup(&rig, 0);
	publish_chain(&rig, &writer, 0, 5);
	stamp = open_by(&rig, &reader, 0).stamp;
	for (uint32_t i = 1; i < 5; i++)
		open_by(&rig, &reader, i);
	for (uint32_t i = 5; i < 9; i++) {
		step = publish_by(&rig, &reader, i, false);
		assert_int_equal(step.stamp, stamp);
		assert_int_equal(step.position, i);
	}
	/* The next prompt of the same thread, without a pause. */
	publish_by(&rig, &writer, 200, false);
	rig.depths[200] = 0;
	step = open_by(&rig, &reader, 200);
	assert_true(step.begins);
	assert_int_equal(publish_by(&rig, &reader, 201, false).position, 1);
	/* And the first one again, now from end to end as one chain. */
	rig.now_ns += HC_NS_PER_S;
	step = open_by(&rig, &reader, 0);
	for (uint32_t i = 1; i < 9; i++)
		assert_true(open_by(&rig, &reader, i).follows);
	teardown(&rig);
}

/* The engine computes between reading and writing: up to a minute. */
static void test_compute(void **state)
{
	static struct rig rig;
	struct hc_walk_who backup = {8, 88, 1};
	struct hc_walk_step step;
	uint32_t stamp;

	setup(&rig, 0);
	publish_chain(&rig, &writer, 0, 5);
	for (uint32_t i = 0; i < 5; i++)
		stamp = open_by(&rig, &reader, i).stamp;
	rig.now_ns += 60 * HC_NS_PER_S;
	step = publish_by(&rig, &backup, 5, false);
	assert_int_equal(step.stamp, stamp);
	assert_int_equal(step.position, 5);
	assert_int_equal(publish_by(&rig, &backup, 6, false).position, 6);
	/* Once: a later publish is a chain of its own. */
	rig.now_ns += HC_NS_PER_S;
	step = publish_by(&rig, &backup, 20, false);
	assert_true(step.begins);
	assert_int_equal(step.position, 0);
	/* A guess is no order before it is seen. */
	rig.now_ns += HC_NS_PER_S;
	for (uint32_t i = 0; i < 7; i++)
		step = open_by(&rig, &reader, i);
	assert_true(step.follows);
	/* More than a minute. */
	rig.now_ns += 60 * HC_NS_PER_S + 1;
	assert_true(publish_by(&rig, &backup, 30, false).begins);
	teardown(&rig);
}

static void test_verdicts(void **state)
{
	static struct rig rig;

	setup(&rig, 0);
	assert_false(publish_by(&rig, &writer, 1, true).previous_skipped);
	assert_true(publish_by(&rig, &writer, 2, false).previous_skipped);
	assert_false(publish_by(&rig, &writer, 3, true).previous_skipped);
	/* Another tree has its own, and so has another process. */
	assert_false(publish_by(&rig, &reader, 50, false).previous_skipped);
	rig.now_ns += HC_NS_PER_S;
	assert_false(publish_by(&rig, &writer, 4, false).previous_skipped);
	teardown(&rig);
}

/* More walks than there is room for: the oldest idle ones end, the others go on. */
static void test_room(void **state)
{
	static struct rig rig;
	struct hc_walk_who who = {.thread = 1};

	setup(&rig, 0);
	for (uint32_t i = 0; i < 20000; i++)
		rig.depths[i] = 1;
	for (uint32_t i = 0; i < 4096; i++) {
		who.opener = i;
		assert_true(open_by(&rig, &who, i).begins);
	}
	for (uint32_t i = 0; i < 100; i++) {
		who.opener = i;
		assert_false(open_by(&rig, &who, 4096 + i).begins);
	}
	for (uint32_t i = 0; i < 3000; i++) {
		who.opener = 10000 + i;
		assert_true(open_by(&rig, &who, 5000 + i).begins);
	}
	for (uint32_t i = 0; i < 100; i++) {
		who.opener = i;
		assert_false(open_by(&rig, &who, 9000 + i).begins);
	}
	for (uint32_t i = 4095; i >= 3100; i--) {
		who.opener = i;
		assert_false(open_by(&rig, &who, 10000 + i).begins);
	}
	for (uint32_t i = 100; i < 3100; i++) {
		who.opener = i;
		assert_true(open_by(&rig, &who, 15000 + i).begins);
	}
	/* One process has 8 in a tree. */
	who.opener = 77777;
	for (uint32_t i = 0; i < 10; i++) {
		rig.depths[19000 + i] = 0;
		assert_true(open_by(&rig, &who, 19000 + i).begins);
	}
	teardown(&rig);
}

static void test_rebase(void **state)
{
	static struct rig rig;
	struct hc_walk_step step;

	setup(&rig, 0);
	rig.stamp = 1000;
	publish_chain(&rig, &writer, 0, 3);
	assert_int_equal(open_by(&rig, &reader, 0).stamp, 1002);
	rig.stamp -= 900;
	hc_walks_rebase(rig.walks, 900);
	assert_int_equal(open_by(&rig, &reader, 1).stamp, 102);
	/* The rebased stamp is what its pages carry by now. */
	rig.stamps[0] = 102;
	step = open_by(&rig, &reader, 0);
	assert_true(step.begins);
	teardown(&rig);
}

/* 2 pages, then doubling to the limit, asked for when half is left; exactly to the end. */
static void test_ahead_windows(void **state)
{
	static struct rig rig;
	struct hc_walk_step step;
	struct hc_link tail = {0};
	uint64_t last = 0, n_asked = 0;

	setup(&rig, 16 * PAGE_BYTES);
	publish_chain(&rig, &writer, 0, 200);
	step = open_by(&rig, &reader, 0);
	assert_int_equal(step.ahead_bytes, 0);
	step = open_by(&rig, &reader, 1);
	assert_int_equal(step.ahead_bytes, 2 * PAGE_BYTES);
	assert_int_equal(step.ahead_from.number, 1);
	/* Not asked again while it is being done. */
	assert_int_equal(open_by(&rig, &reader, 2).ahead_bytes, 0);
	rig.stamps[2] = 0;
	tail = do_ahead(&rig, &step, UINT32_MAX);
	assert_int_equal(tail.number, 3);
	for (uint32_t i = 3; i < 200; i++) {
		step = open_by(&rig, &reader, i);
		if (!step.ahead_bytes)
			continue;
		n_asked++;
		assert_true(step.ahead_bytes <= 16 * PAGE_BYTES);
		last = step.ahead_bytes;
		tail = do_ahead(&rig, &step, UINT32_MAX);
		/* Never further than the limit. */
		assert_in_range(tail.number, i, i + 16);
	}
	assert_int_equal(tail.number, 199);
	assert_true(last <= 16 * PAGE_BYTES);
	/* In batches: about one request for 8 pages, and again at the end of the chain. */
	assert_in_range(n_asked, 20, 40);
	teardown(&rig);
}

static void test_ahead_mismatch(void **state)
{
	static struct rig rig;
	struct hc_walk_step step;

	setup(&rig, 16 * PAGE_BYTES);
	publish_chain(&rig, &writer, 0, 100);
	open_by(&rig, &reader, 0);
	for (uint32_t i = 1; i < 20; i++) {
		step = open_by(&rig, &reader, i);
		if (step.ahead_bytes)
			do_ahead(&rig, &step, UINT32_MAX);
	}
	/* Read ahead, but not the next: still what was foreseen. */
	assert_true(rig.ahead[22]);
	assert_true(open_by(&rig, &reader, 22).follows);
	/* Somewhere else: dropped, and begun anew with 2 pages. */
	step = open_by(&rig, &reader, 90);
	assert_false(step.follows);
	assert_int_equal(step.ahead_bytes, 0);
	step = open_by(&rig, &reader, 91);
	assert_int_equal(step.ahead_bytes, 2 * PAGE_BYTES);
	/* A page that does not follow comes while it is being done: nothing is kept of it. */
	open_by(&rig, &reader, 40);
	hc_walk_ahead_done(rig.walks, &step, page_of(93), 2 * PAGE_BYTES);
	step = open_by(&rig, &reader, 41);
	assert_int_equal(step.ahead_bytes, 2 * PAGE_BYTES);
	assert_int_equal(step.ahead_from.number, 41);
	teardown(&rig);
}

static void test_ahead_off(void **state)
{
	static struct rig rig;

	setup(&rig, 0);
	publish_chain(&rig, &writer, 0, 100);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(open_by(&rig, &reader, i).ahead_bytes, 0);
	teardown(&rig);
}

/* An order that nobody published is known once it was seen twice, and survives one miss. */
static void test_learn(void **state)
{
	static struct rig rig;
	struct hc_link next;
	bool sure;

	setup(&rig, 0);
	for (uint32_t i = 0; i < 5; i++) {
		publish_by(&rig, &writer, i, false);
		rig.depths[i] = i;
		rig.now_ns += 61 * HC_NS_PER_S;
	}
	rig.depths[10] = 3;
	for (unsigned round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 5; i++)
			open_by(&rig, &reader, i);
		assert_true(hc_links_next(rig.links, page_of(2), &next, &sure));
		assert_int_equal(next.number, 3);
		assert_int_equal(sure, round > 0);
		rig.now_ns += HC_NS_PER_S;
	}
	for (unsigned miss = 0; miss < 3; miss++) {
		open_by(&rig, &reader, 2);
		open_by(&rig, &reader, 10);
		rig.now_ns += HC_NS_PER_S;
		assert_true(hc_links_next(rig.links, page_of(2), &next, &sure));
		/* seen, kept; replaced; sure again */
		assert_int_equal(next.number, miss ? 10 : 3);
		assert_int_equal(sure, miss == 2);
	}
	teardown(&rig);
}

/* A link of a body that had the same number is none. */
static void test_link_reused(void **state)
{
	struct hc_link a = {5, 1000}, b = {6, 1001}, reused = {5, 2000}, next;
	struct hc_links *links;
	bool sure;

	assert_int_equal(hc_links_create(&links), 0);
	assert_false(hc_links_next(links, a, &next, &sure));
	hc_links_set(links, a, b);
	assert_true(hc_links_next(links, a, &next, &sure));
	assert_true(hc_link_equal(next, b));
	assert_true(sure);
	assert_false(hc_links_next(links, reused, &next, &sure));
	assert_false(hc_link_equal(next, (struct hc_link){6, 2001}));
	hc_links_set(links, (struct hc_link){HC_ENTRY_NONE, 0}, b);
	hc_links_set(links, a, (struct hc_link){HC_ENTRY_NONE, 0});
	assert_true(hc_links_next(links, a, &next, &sure));
	assert_false(hc_links_next(links, (struct hc_link){HC_ENTRY_NONE - 1, 0}, &next, &sure));
	hc_links_set(links, (struct hc_link){HC_ENTRY_NONE - 1, 9}, b);
	assert_true(hc_links_next(links, (struct hc_link){HC_ENTRY_NONE - 1, 9}, &next, &sure));
	assert_true(hc_links_bytes(links) > 0);
	hc_links_destroy(links);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_one_stamp),     cmocka_unit_test(test_length),
	cmocka_unit_test(test_turns),         cmocka_unit_test(test_suffix),
	cmocka_unit_test(test_compute),       cmocka_unit_test(test_verdicts),
	cmocka_unit_test(test_room),          cmocka_unit_test(test_rebase),
	cmocka_unit_test(test_ahead_windows), cmocka_unit_test(test_ahead_mismatch),
	cmocka_unit_test(test_ahead_off),     cmocka_unit_test(test_learn),
	cmocka_unit_test(test_link_reused),
};

HC_TEST_MAIN(tests)
