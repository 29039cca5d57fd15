/* SPDX-License-Identifier: Apache-2.0 */
/* hicache.h: the life of pages. Goal: what was published comes back byte for byte, or is a miss;
 * nothing held changes; limits hold. Method: real directories under TMPDIR, the clock replaced. */
#include "hicache-rig.h"

static void test_round_trip(void **state)
{
	struct hicache_hash h[100], other[4];
	struct hicache_page pages[100];
	size_t n;

	rig_open("mem:");
	rig_chain(1, h, 100);
	rig_chain(5000, other, 4);
	assert_int_equal(rig_prefix(rig_series, h, 100), 0);
	rig_expect_miss(rig_series, h);
	rig_publish(h, 80);
	assert_int_equal(rig_prefix(rig_series, h, 100), 80);
	assert_int_equal(rig_prefix(rig_series, other, 4), 0);
	rig_expect(rig_series, h, 80, 0);
	/* What is behind the end is no error: the leading pages count. */
	assert_int_equal(hicache_acquire(rig_series, h, 100, 0, pages, &n), 0);
	assert_int_equal(n, 80);
	assert_int_equal(rig_stat("n_held"), 80);
	assert_int_equal(rig_info(&h[0]).n_held, 1);
	assert_int_equal(hicache_release(rig_hc, pages, n), 0);
	assert_int_equal(rig_stat("n_held"), 0);
	/* Given back is given back. */
	assert_int_equal(hicache_release(rig_hc, pages, n), 0);
	n = 7;
	assert_int_equal(hicache_acquire(rig_series, h, 0, 0, NULL, &n), 0);
	assert_int_equal(n, 0);
	rig_close();
}

static void test_page_info(void **state)
{
	struct hicache_page_info info = {.size = sizeof(info)};
	struct hicache_hash h[3];

	hc_clock_fake_set_ns(HC_NS_PER_S, 1700000000 * HC_NS_PER_S);
	rig_open("mem:");
	rig_chain(1, h, 3);
	rig_publish(h, 3);
	info = rig_info(&h[2]);
	assert_int_equal(info.size, sizeof(info));
	assert_int_equal(info.size_bytes, RIG_PAGE);
	assert_int_equal(info.depth, 2);
	assert_memory_equal(&info.parent, &h[1], sizeof(h[1]));
	assert_int_equal(info.mtime_ns, 1700000000 * HC_NS_PER_S);
	assert_int_equal(info.in_memory, 1);
	assert_int_equal(info.on_disk, 0);
	assert_int_equal(info.n_pins, 0);
	/* A caller that knows fewer members. */
	memset(&info, 0x5a, sizeof(info));
	info.size = offsetof(struct hicache_page_info, mtime_ns);
	assert_int_equal(hicache_page_stat(rig_series, &h[0], &info), 0);
	assert_int_equal(info.size_bytes, RIG_PAGE);
	assert_int_equal(info.depth, 0x5a5a5a5a);
	assert_int_equal(hicache_remove(rig_series, h, 1, NULL), 0);
	assert_int_equal(hicache_page_stat(rig_series, &h[0], &info), -ENOENT);
	rig_close();
}

/* A prompt counts only as far as its worst rank. */
static void test_prefix_of_ranks(void **state)
{
	static const char spec[] = "model=org/m attention=mha layers=2 kv_heads=2 head_dim=16 "
				   "dtype=fp16 page_tokens=16 layout=page_unified tp=%d/4 pp=0/1";
	struct hicache_series *ranks[4];
	struct hicache_hash h[20];
	char text[256];
	size_t n;

	rig_open("mem:");
	rig_chain(1, h, 20);
	for (int r = 0; r < 4; r++) {
		snprintf(text, sizeof(text), spec, r);
		assert_int_equal(
			hicache_series_open(rig_space, text, NULL, HICACHE_CREATE, &ranks[r]), 0);
		rig_publish_into(ranks[r], h, 10 + (size_t)r, (uint8_t)r, 0);
	}
	assert_int_equal(hicache_exists_prefix(ranks, 4, h, 20, HICACHE_TOUCH, &n), 0);
	assert_int_equal(n, 10);
	assert_int_equal(hicache_exists_prefix(ranks + 2, 2, h, 20, 0, &n), 0);
	assert_int_equal(n, 12);
	/* A hole in one rank. */
	assert_int_equal(hicache_remove(ranks[3], h + 4, 1, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(hicache_exists_prefix(ranks, 4, h, 20, 0, &n), 0);
	assert_int_equal(n, 4);
	assert_int_equal(hicache_exists_prefix(ranks, 3, h, 20, 0, &n), 0);
	assert_int_equal(n, 10);
	for (int r = 0; r < 4; r++) {
		rig_expect(ranks[r], h, 4, (uint8_t)r);
		assert_int_equal(hicache_series_close(ranks[r]), 0);
	}
	assert_int_equal(hicache_exists_prefix(&rig_series, 0, h, 20, 0, &n), -EINVAL);
	assert_error("1 to 64");
	assert_int_equal(hicache_exists_prefix(&rig_series, 1, h, 20, 8, &n), -EINVAL);
	rig_close();
}

static void test_first_stays(void **state)
{
	struct hicache_hash h[4], doubled[2];
	struct hicache_page pages[2];
	int results[2];
	size_t n;

	rig_open("mem:");
	rig_chain(1, h, 4);
	rig_publish_into(rig_series, h, 4, 0, 0);
	rig_publish_into(rig_series, h, 4, 77, -EEXIST);
	rig_expect(rig_series, h, 4, 0);
	assert_int_equal(rig_stat("publish_existing"), 4);
	/* Twice in one batch. */
	rig_chain(900, doubled, 1);
	doubled[1] = doubled[0];
	assert_int_equal(hicache_reserve(rig_series, 0, -1, 2, RIG_TIMEOUT, pages, &n), 0);
	assert_int_equal(n, 2);
	page_fill(&pages[0], &doubled[0], 1);
	page_fill(&pages[1], &doubled[0], 2);
	assert_int_equal(hicache_publish(rig_series, pages, doubled, 2, NULL, results), 0);
	assert_int_equal(results[0], 0);
	assert_int_equal(results[1], -EEXIST);
	rig_expect(rig_series, doubled, 1, 1);
	rig_close();
}

static void test_removed_while_held(void **state)
{
	struct hicache_hash h[2];
	struct hicache_page pages[2];
	size_t n;

	rig_open(rig_where);
	rig_chain(1, h, 2);
	rig_publish(h, 2);
	assert_int_equal(hicache_acquire(rig_series, h, 2, RIG_TIMEOUT, pages, &n), 0);
	assert_int_equal(hicache_remove(rig_series, h, 2, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(rig_prefix(rig_series, h, 2), 0);
	rig_expect_miss(rig_series, h);
	/* The name is free for new bytes; the lease still shows the old ones. */
	rig_publish_into(rig_series, h, 2, 9, 0);
	for (size_t i = 0; i < 2; i++)
		assert_true(page_good(&pages[i], &h[i], 0));
	rig_expect(rig_series, h, 2, 9);
	assert_int_equal(hicache_release(rig_hc, pages, 2), 0);
	rig_expect(rig_series, h, 2, 9);
	assert_int_equal(hicache_remove(rig_series, h, 2, NULL), 0);
	assert_int_equal(hicache_remove(rig_series, h, 2, &n), 0);
	assert_int_equal(n, 0);
	rig_close();
	/* What was removed does not come back. */
	rig_open(rig_where);
	assert_int_equal(rig_prefix(rig_series, h, 2), 0);
	rig_close();
}

static uint64_t used_bytes(void)
{
	struct hicache_space_info info = {.size = sizeof(info)};

	assert_int_equal(hicache_space_get(rig_space, &info), 0);
	return info.used_bytes;
}

static void test_quota(void **state)
{
	struct hicache_space_params params = {
		.size = sizeof(params), .quota_bytes = 4 * RIG_PAGE, .set = HICACHE_SET_QUOTA};
	struct hicache_page held[4], more[8];
	struct hicache_hash h[4], g[4];
	size_t n;

	rig_open("mem:");
	rig_chain(1, h, 4);
	rig_chain(100, g, 4);
	assert_int_equal(hicache_space_set(rig_space, &params), 0);
	rig_publish(h, 4);
	assert_int_equal(used_bytes(), 4 * RIG_PAGE);
	assert_int_equal(hicache_acquire(rig_series, h, 4, 0, held, &n), 0);
	assert_int_equal(n, 4);
	/* Held pages cannot make room. */
	assert_int_equal(hicache_reserve(rig_series, 0, -1, 1, 0, more, &n), -EDQUOT);
	assert_int_equal(hicache_reserve(rig_series, 0, -1, 1, 30, more, &n), -EDQUOT);
	assert_true(rig_stat("no_quota") >= 2);
	assert_int_equal(hicache_release(rig_hc, held, 4), 0);
	/* Now they do: the space never holds more than its quota. */
	rig_publish_into(rig_series, g, 2, 3, 0);
	assert_int_equal(used_bytes(), 4 * RIG_PAGE);
	rig_expect(rig_series, g, 2, 3);
	assert_int_equal(rig_stat("evicted_quota"), 2);
	/* A leaf goes before its parent. */
	assert_int_equal(rig_prefix(rig_series, h, 4), 2);
	/* Reservations are charged, and given back. */
	assert_int_equal(hicache_remove(rig_series, h, 4, NULL), 0);
	assert_int_equal(hicache_remove(rig_series, g, 4, NULL), 0);
	assert_int_equal(used_bytes(), 0);
	assert_int_equal(hicache_reserve(rig_series, 0, -1, 8, 0, more, &n), 0);
	assert_int_equal(n, 4);
	assert_int_equal(used_bytes(), 4 * RIG_PAGE);
	assert_int_equal(hicache_abort(rig_hc, more, n), 0);
	assert_int_equal(used_bytes(), 0);
	rig_close();
}

static void test_max_age(void **state)
{
	struct hicache_space_params params = {
		.size = sizeof(params), .max_age_s = 60, .set = HICACHE_SET_MAX_AGE};
	uint64_t now = 1000 * HC_NS_PER_S, wall = 1700000000 * HC_NS_PER_S;
	struct hicache_hash h[2];

	hc_clock_fake_set_ns(now, wall);
	rig_open("mem:");
	rig_chain(1, h, 2);
	assert_int_equal(hicache_space_set(rig_space, &params), 0);
	rig_publish(h, 1);
	hc_clock_fake_set_ns(now + 40 * HC_NS_PER_S, wall + 40 * HC_NS_PER_S);
	rig_publish_into(rig_series, h + 1, 1, 0, 0);
	assert_int_equal(rig_prefix(rig_series, h, 2), 2);
	rig_expect(rig_series, h, 2, 0);
	hc_clock_fake_set_ns(now + 61 * HC_NS_PER_S, wall + 61 * HC_NS_PER_S);
	assert_int_equal(rig_prefix(rig_series, h, 2), 0);
	rig_expect_miss(rig_series, h);
	rig_expect(rig_series, h + 1, 1, 0);
	hc_clock_fake_set_ns(now + 101 * HC_NS_PER_S, wall + 101 * HC_NS_PER_S);
	rig_expect_miss(rig_series, h + 1);
	rig_close();
}

/* Full of held pages: nobody waits beyond the timeout, and room that comes free is found. */
static void test_deadline_of_reserve(void **state)
{
	size_t n_pages = 0, n;
	struct hicache_page *pages = calloc(RIG_POOL / RIG_PAGE + 1, sizeof(*pages)), one;
	uint64_t before_ns;

	assert_non_null(pages);
	rig_open("mem:");
	while (!hicache_reserve(rig_series, 0, -1, 256, 200, pages + n_pages, &n))
		n_pages += n;
	assert_int_equal(n_pages, RIG_POOL / RIG_PAGE);
	before_ns = hc_clock_now_ns();
	assert_int_equal(hicache_reserve(rig_series, 0, -1, 1, 0, &one, &n), -ENOSPC);
	assert_int_equal(hicache_reserve(rig_series, 0, -1, 1, 100, &one, &n), -ENOSPC);
	assert_in_range(hc_clock_now_ns() - before_ns, 100 * HC_NS_PER_MS, 5 * HC_NS_PER_S);
	assert_int_equal(hicache_abort(rig_hc, pages + n_pages - 1, 1), 0);
	assert_int_equal(hicache_reserve(rig_series, 0, -1, 1, 0, &one, &n), 0);
	assert_int_equal(hicache_abort(rig_hc, &one, 1), 0);
	assert_int_equal(hicache_abort(rig_hc, pages, n_pages), 0);
	rig_close();
	free(pages);
}

static void test_survives_reopen(void **state)
{
	struct hicache_page page;
	struct hicache_hash h[64];
	uint64_t n_left = 1, dropped, kept;
	size_t n;

	rig_open(rig_where);
	rig_chain(1, h, 64);
	rig_publish(h, 64);
	assert_int_equal(hicache_sync(rig_hc, RIG_TIMEOUT, &n_left), 0);
	assert_int_equal(n_left, 0);
	assert_int_equal(rig_info(&h[63]).on_disk, 1);
	rig_close();
	rig_open(rig_where);
	assert_int_equal(rig_prefix(rig_series, h, 64), 64);
	assert_int_equal(rig_info(&h[5]).in_memory, 0);
	assert_int_equal(rig_info(&h[5]).depth, 5);
	rig_expect(rig_series, h, 64, 0);
	assert_true(rig_stat("promoted") >= 64);
	/* Held pages stay in memory when the others go. */
	assert_int_equal(hicache_acquire(rig_series, h, 1, 0, &page, &n), 0);
	assert_int_equal(hicache_drop_memory(rig_hc, RIG_TIMEOUT, &dropped, &kept), 0);
	assert_int_equal(dropped, 63);
	assert_int_equal(kept, 1);
	assert_true(page_good(&page, &h[0], 0));
	assert_int_equal(hicache_release(rig_hc, &page, 1), 0);
	rig_expect(rig_series, h, 64, 0);
	rig_close();
}

/* Timeout 0 on a page that is on disk: no wait, and the page is on its way. */
static void test_acquire_without_waiting(void **state)
{
	uint64_t deadline_ns;
	struct hicache_page page;
	struct hicache_hash h[1];
	size_t n;
	int rc;

	rig_open(rig_where);
	rig_chain(1, h, 1);
	rig_publish(h, 1);
	assert_int_equal(hicache_drop_memory(rig_hc, RIG_TIMEOUT, NULL, NULL), 0);
	assert_int_equal(rig_info(h).in_memory, 0);
	deadline_ns = hc_clock_now_ns() + RIG_TIMEOUT * HC_NS_PER_MS;
	rc = hicache_acquire(rig_series, h, 1, 0, &page, &n);
	while (rc == -ENOENT && hc_clock_now_ns() < deadline_ns)
		rc = hicache_acquire(rig_series, h, 1, 0, &page, &n);
	assert_int_equal(rc, 0);
	assert_true(page_good(&page, h, 0));
	assert_int_equal(hicache_release(rig_hc, &page, 1), 0);
	rig_close();
}

static int count_pages(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	return type == FTW_F && strstr(path, "/pages/") ? 1 : 0;
}

static void test_disk_off(void **state)
{
	struct hicache_hash h[8], g[8];
	uint64_t n_left = 9;

	rig_open(rig_where);
	rig_chain(1, h, 8);
	rig_chain(100, g, 8);
	rig_publish(h, 8);
	rig_close();
	/* What is there is read, nothing new is written. */
	rig_open_with(rig_where, HICACHE_OPEN_DISK_OFF);
	rig_expect(rig_series, h, 8, 0);
	rig_publish(g, 8);
	assert_int_equal(hicache_sync(rig_hc, RIG_TIMEOUT, &n_left), 0);
	assert_int_equal(n_left, 0);
	assert_int_equal(rig_info(g).on_disk, 0);
	assert_int_equal(rig_stat("backed_up"), 0);
	rig_close();
	rig_open(rig_where);
	rig_expect(rig_series, h, 8, 0);
	assert_int_equal(rig_prefix(rig_series, g, 8), 0);
	assert_int_equal(hicache_space_clear(rig_space, RIG_TIMEOUT, NULL, NULL), 0);
	rig_close();
	rig_open_with(rig_where, HICACHE_OPEN_DISK_OFF);
	rig_publish(g, 8);
	rig_close();
	assert_int_equal(nftw(rig_dir, count_pages, 16, FTW_PHYS), 0);
}

static void test_sync_pages(void **state)
{
	struct hicache_params params = {.size = sizeof(params),
					.pool_bytes = RIG_POOL,
					.max_page_bytes = HC_MIB,
					.min_free_bytes = 1,
					.backup = HICACHE_BACKUP_OFF};
	struct hicache_hash h[8], absent;

	assert_int_equal(hicache_open(rig_where, &params, &rig_hc), 0);
	assert_int_equal(hicache_space_open(rig_hc, "m", HICACHE_CREATE, NULL, &rig_space), 0);
	assert_int_equal(
		hicache_series_open(rig_space, RIG_SPEC, NULL, HICACHE_CREATE, &rig_series), 0);
	rig_chain(1, h, 8);
	rig_chain(700, &absent, 1);
	rig_publish(h, 8);
	assert_int_equal(rig_info(&h[3]).on_disk, 0);
	assert_int_equal(hicache_sync_pages(rig_series, &h[3], 1, RIG_TIMEOUT), 0);
	/* With the pages before it, and no other. */
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(rig_info(&h[i]).on_disk, i <= 3);
	assert_int_equal(hicache_sync_pages(rig_series, &absent, 1, RIG_TIMEOUT), -ENOENT);
	rig_close();
}

static void test_pins(void **state)
{
	struct hicache_hash h[4];
	uint64_t removed, kept;
	size_t n;

	rig_open("mem:");
	rig_chain(1, h, 4);
	rig_publish(h, 3);
	assert_int_equal(hicache_pin(rig_series, h, 2, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(hicache_pin(rig_series, h + 3, 1, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(rig_info(&h[1]).n_pins, 1);
	assert_int_equal(hicache_space_clear(rig_space, RIG_TIMEOUT, &removed, &kept), 0);
	assert_int_equal(removed, 1);
	assert_int_equal(kept, 2);
	assert_int_equal(rig_prefix(rig_series, h, 4), 2);
	assert_int_equal(hicache_unpin(rig_series, h, 4, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(hicache_unpin(rig_series, h, 1, &n), -ERANGE);
	assert_error("pin");
	assert_int_equal(hicache_space_clear(rig_space, RIG_TIMEOUT, &removed, NULL), 0);
	assert_int_equal(removed, 2);
	rig_close();
}

/* Neighbours in memory come as runs that cover all pages, each page at its place. */
static void test_runs(void **state)
{
	struct hicache_page pages[200];
	struct hicache_run runs[200];
	size_t n, n_runs, again, at = 0;

	rig_open("mem:");
	assert_int_equal(hicache_reserve(rig_series, 0, -1, 200, RIG_TIMEOUT, pages, &n), 0);
	assert_int_equal(n, 200);
	assert_int_equal(hicache_page_runs(rig_hc, pages, n, NULL, 0, &n_runs), 0);
	assert_int_equal(hicache_page_runs(rig_hc, pages, n, runs, 200, &again), 0);
	assert_int_equal(n_runs, again);
	assert_true(n_runs <= 4);
	for (size_t r = 0; r < n_runs; r++) {
		assert_int_equal(runs[r].page_i, at);
		assert_true(runs[r].stride_bytes >= RIG_PAGE);
		for (size_t k = 0; k < runs[r].n_pages; k++)
			assert_ptr_equal(pages[at + k].data,
					 (char *)runs[r].data + k * runs[r].stride_bytes);
		at += runs[r].n_pages;
	}
	assert_int_equal(at, n);
	if (n_runs > 1)
		assert_int_equal(hicache_page_runs(rig_hc, pages, n, runs, n_runs - 1, &again),
				 -ENOSPC);
	/* Every second one: no two are neighbours. */
	for (size_t i = 1; i < n; i += 2)
		assert_int_equal(hicache_abort(rig_hc, &pages[i], 1), 0);
	assert_int_equal(hicache_page_runs(rig_hc, pages, n, runs, 200, &again), -EINVAL);
	for (size_t i = 0; i < n; i += 2)
		pages[i / 2] = pages[i];
	assert_int_equal(hicache_page_runs(rig_hc, pages, n / 2, runs, 200, &again), 0);
	assert_int_equal(again, n / 2);
	assert_int_equal(hicache_abort(rig_hc, pages, n / 2), 0);
	rig_close();
}

#define RACE_CHAINS 4
#define RACE_PAGES  24

struct race {
	pthread_t thread;
	uint64_t seed;
	uint64_t n_bad;
	uint64_t n_read;
};

static struct hicache_hash race_hashes[RACE_CHAINS][RACE_PAGES];

static void race_publish(const struct hicache_hash *h, size_t n, struct race *race)
{
	struct hicache_page pages[RACE_PAGES];
	int results[RACE_PAGES];
	size_t got;

	if (hicache_reserve(rig_series, 0, -1, n, 1000, pages, &got))
		return;
	for (size_t i = 0; i < got; i++)
		page_fill(&pages[i], &h[i], 0);
	if (hicache_publish(rig_series, pages, h, got, NULL, results))
		race->n_bad++;
	for (size_t i = 0; i < got; i++)
		race->n_bad += results[i] && results[i] != -EEXIST;
}

static void race_read(const struct hicache_hash *h, size_t n, struct race *race)
{
	struct hicache_page pages[RACE_PAGES];
	struct hicache_run runs[RACE_PAGES];
	size_t got = 0, n_runs;

	if (hicache_acquire(rig_series, h, n, 1000, pages, &got))
		return;
	race->n_bad += hicache_page_runs(rig_hc, pages, got, runs, RACE_PAGES, &n_runs) != 0;
	for (size_t i = 0; i < got; i++)
		race->n_bad += !page_good(&pages[i], &h[i], 0);
	race->n_read += got;
	race->n_bad += hicache_release(rig_hc, pages, got) != 0;
}

static void *race_run(void *arg)
{
	struct race *race = arg;
	struct hc_rng rng;
	size_t n;

	hc_rng_seed(&rng, race->seed);
	for (int i = 0; i < 400; i++) {
		const struct hicache_hash *h = race_hashes[hc_rng_below(&rng, RACE_CHAINS)];
		uint64_t what = hc_rng_below(&rng, 10);

		n = 1 + hc_rng_below(&rng, RACE_PAGES);
		if (what < 4)
			race_publish(h, n, race);
		else if (what < 8)
			race_read(h, n, race);
		else if (what == 8)
			race->n_bad += hicache_remove(rig_series, h + n - 1, 1, NULL) != 0;
		else
			(void)rig_prefix(rig_series, h, n);
		if (i % 100 == 50 && hicache_drop_memory(rig_hc, 100, NULL, NULL))
			race->n_bad++;
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct race races[4] = {{.seed = 11}, {.seed = 12}, {.seed = 13}, {.seed = 14}};
	uint64_t n_read = 0;

	rig_open(rig_where);
	for (uint32_t c = 0; c < RACE_CHAINS; c++)
		rig_chain(c * 1000, race_hashes[c], RACE_PAGES);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&races[i].thread, NULL, race_run, &races[i]), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(races[i].thread, NULL);
		assert_int_equal(races[i].n_bad, 0);
		n_read += races[i].n_read;
	}
	assert_true(n_read > 0);
	assert_int_equal(rig_stat("n_held"), 0);
	rig_close();
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_begin, rig_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ONE(test_round_trip),
		ONE(test_page_info),
		ONE(test_prefix_of_ranks),
		ONE(test_first_stays),
		ONE(test_removed_while_held),
		ONE(test_quota),
		ONE(test_max_age),
		ONE(test_deadline_of_reserve),
		ONE(test_survives_reopen),
		ONE(test_acquire_without_waiting),
		ONE(test_disk_off),
		ONE(test_sync_pages),
		ONE(test_pins),
		ONE(test_runs),
		ONE(test_threads),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
