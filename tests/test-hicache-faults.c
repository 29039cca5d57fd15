/* SPDX-License-Identifier: Apache-2.0 */
/* hicache.h when memory is out or a disk fails. Goal: every call fails cleanly: what was held is
 * given back, every handle can be closed, pages that are read are right. Method: one life of a
 * cache in which every step may fail, made for contrib/run-faults; without a failing allocation
 * every step must succeed. */
#include "hicache-rig.h"

#define LIFE_PAGES 100

struct life {
	struct hicache_hash hashes[LIFE_PAGES];
	struct hicache_page pages[LIFE_PAGES];
	int results[LIFE_PAGES];
	size_t n_read;
};

static int life_open(void)
{
	struct hicache_params params = {.size = sizeof(params),
					.pool_bytes = RIG_POOL,
					.max_page_bytes = HC_MIB,
					.min_free_bytes = 1};
	int rc = hicache_open(rig_where, &params, &rig_hc);

	if (!rc)
		rc = hicache_space_open(rig_hc, "m", HICACHE_CREATE, NULL, &rig_space);
	if (!rc)
		rc = hicache_series_open(rig_space, RIG_SPEC, NULL, HICACHE_CREATE, &rig_series);
	return rc;
}

static int life_write(struct life *life)
{
	size_t got = 0;
	int rc = hicache_reserve(rig_series, 0, -1, LIFE_PAGES, RIG_TIMEOUT, life->pages, &got);

	if (rc)
		return rc;
	for (size_t i = 0; i < got; i++)
		page_fill(&life->pages[i], &life->hashes[i], 0);
	rc = hicache_publish(rig_series, life->pages, life->hashes, got, NULL, life->results);
	if (rc)
		assert_int_equal(hicache_abort(rig_hc, life->pages, got), 0);
	for (size_t i = 0; i < got && !rc; i++)
		rc = life->results[i] == -EEXIST ? 0 : life->results[i];
	return rc ? rc : got == LIFE_PAGES ? 0 : -ENOSPC;
}

static int life_read(struct life *life)
{
	size_t got = 0;
	int rc = hicache_acquire(rig_series, life->hashes, LIFE_PAGES, RIG_TIMEOUT, life->pages,
				 &got);

	if (rc)
		return rc;
	for (size_t i = 0; i < got; i++)
		assert_true(page_good(&life->pages[i], &life->hashes[i], 0));
	life->n_read += got;
	assert_int_equal(hicache_release(rig_hc, life->pages, got), 0);
	return got == LIFE_PAGES ? 0 : -ENOENT;
}

static int note(int first, const char *what, int rc)
{
	if (rc)
		print_message("# %s: %s\n", what, strerror(-rc));
	return first ? first : rc;
}

static int life_run(struct life *life)
{
	uint64_t n_left;
	int rc = note(0, "open", life_open());

	if (!rc) {
		rc = note(rc, "write", life_write(life));
		rc = note(rc, "read", life_read(life));
		rc = note(rc, "write again", life_write(life));
		rc = note(rc, "sync", hicache_sync(rig_hc, RIG_TIMEOUT, &n_left));
		rc = note(rc, "drop", hicache_drop_memory(rig_hc, RIG_TIMEOUT, NULL, NULL));
		rc = note(rc, "read from disk", life_read(life));
	}
	rig_close();
	return rc;
}

static void test_life(void **state)
{
	struct life *life = calloc(1, sizeof(*life));
	uint32_t tokens[LIFE_PAGES] = {0};
	struct hicache_hash_params params = {
		.size = sizeof(params), .page_tokens = 1, .token_bytes = 4};
	const char *fail_at = getenv("HC_FAIL_ALLOC");
	bool whole = !fail_at || !strcmp(fail_at, "0");
	size_t n;
	int rc;

	assert_non_null(life);
	assert_int_equal(
		hicache_page_hash(&params, tokens, LIFE_PAGES, life->hashes, LIFE_PAGES, &n), 0);
	for (int run = 0; run < 2; run++) {
		rc = life_run(life);
		if (whole)
			assert_int_equal(rc, 0);
	}
	if (whole)
		assert_int_equal(life->n_read, 4 * LIFE_PAGES);
	free(life);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_life, rig_begin, rig_end),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
