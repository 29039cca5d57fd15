/* SPDX-License-Identifier: Apache-2.0 */
/* Memory under churn. Goal: a node whose pages come and go, in memory and on disk, needs no more
 * anonymous memory after many rounds than after the first ones. Method: chains are published into a
 * small pool above a small disk limit, read again, unlinked, so that each page is evicted from both
 * tiers; RssAnon of this process after the warm-up and at the end. */
#include "node-rig.h"

#include "node/internal.h"
#include "util/io.h"

#define ROUND_CHAINS 12u
#define CHAIN        24u
#define WARM_ROUNDS  30u
#define ROUNDS       24u
#define SLACK_BYTES  HC_MIB
#define SLACK_PPM    20000u

static uint64_t rss_anon_bytes(void)
{
	hc_autofree char *text = NULL;
	unsigned long long kib = 0;
	const char *at;
	size_t n;

	assert_int_equal(hc_file_read(AT_FDCWD, "/proc/self/status", 65536, &text, &n), 0);
	at = strstr(text, "\nRssAnon:");
	assert_non_null(at);
	assert_int_equal(sscanf(at, "\nRssAnon: %llu", &kib), 1);
	return kib * HC_KIB;
}

/* Unlinks may lag behind a busy disk: what waits for it is no leak. */
static bool drained(struct hc_node *node)
{
	size_t n;

	pthread_mutex_lock(&node->remove_lock);
	n = node->n_removals;
	pthread_mutex_unlock(&node->remove_lock);
	return !n && !atomic_load(&node->n_io);
}

static void churn(struct rig *rig, uint32_t round)
{
	uint32_t first = round * ROUND_CHAINS;

	for (uint32_t chain = first; chain < first + ROUND_CHAINS; chain++) {
		assert_int_equal(rig_put(rig, chain, 0, CHAIN), CHAIN);
		/* Something old, which is on disk alone or gone. */
		if (chain >= 3)
			rig_get(rig, chain - 3, CHAIN);
		if (chain % 4 == 3) {
			struct hc_hash hash = rig_hash(chain - 1, CHAIN - 1);

			hc_node_remove(rig->node, rig->series[0], &hash, 1);
		}
	}
	rig_quiet(rig);
	rig_wait(drained(rig->node));
}

static void test_flat(void **state)
{
	struct rig *rig = *state;
	struct hc_node_stats stats;
	uint64_t warm_bytes, end_bytes;

	if (getenv("HC_VALGRIND") ||
	    strcmp(getenv("HC_SANITIZE") ? getenv("HC_SANITIZE") : "no", "no"))
		hc_test_skip("the tool keeps what was freed");
	rig->config.disk_bytes = 24 * HC_MIB;
	rig_up(rig);
	for (uint32_t round = 0; round < WARM_ROUNDS; round++)
		churn(rig, round);
	warm_bytes = rss_anon_bytes();
	for (uint32_t round = WARM_ROUNDS; round < WARM_ROUNDS + ROUNDS; round++)
		churn(rig, round);
	end_bytes = rss_anon_bytes();
	stats = rig_stats(rig);
	/* It was churn indeed. */
	assert_true(stats.evicted_memory > 1000);
	assert_true(stats.evicted_disk > 1000);
	print_message("# %llu KiB after the warm-up, %llu KiB after %u more rounds\n",
		      (unsigned long long)warm_bytes / 1024, (unsigned long long)end_bytes / 1024,
		      ROUNDS);
	assert_true(end_bytes <=
		    warm_bytes + hc_max_u64(SLACK_BYTES, warm_bytes / 1000000 * SLACK_PPM));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(test_flat, rig_setup, rig_teardown),
};

HC_TEST_MAIN(tests)
