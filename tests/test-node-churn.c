/* SPDX-License-Identifier: Apache-2.0 */
/* Memory under churn. Goal: a node whose pages come and go, in memory and on disk, needs no more
 * anonymous memory after many rounds than after the first ones. Method: chains are published into a
 * small pool above a small disk limit, read again, unlinked, so that each page is evicted from both
 * tiers; bytes allocated after each window of rounds. A leak grows in every window; queues
 * that a busy disk makes longer than ever before (they keep their room) do so in some. */
#include "node-rig.h"

#include <malloc.h>

#include "node/internal.h"

#define ROUND_CHAINS 12u
#define CHAIN        24u
#define WARM_ROUNDS  12u
#define WINDOW       12u
#define WINDOWS      6u
#define SLACK_BYTES  (256 * HC_KIB) /* 76 bytes for each page of a window */

/* What is allocated, not what the allocator keeps: that moves by more than a leak. */
static uint64_t bytes_in_use(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
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
	uint64_t bytes, before_bytes;
	uint32_t round = 0, window = 0;

	if (getenv("HC_VALGRIND") ||
	    strcmp(getenv("HC_SANITIZE") ? getenv("HC_SANITIZE") : "no", "no"))
		hc_test_skip("the tool keeps what was freed");
	rig->config.disk_bytes = 24 * HC_MIB;
	rig_up(rig);
	while (round < WARM_ROUNDS)
		churn(rig, round++);
	bytes = bytes_in_use();
	do {
		before_bytes = bytes;
		for (uint32_t i = 0; i < WINDOW; i++)
			churn(rig, round++);
		bytes = bytes_in_use();
		print_message("# window %u: %llu KiB, then %llu KiB\n", window,
			      (unsigned long long)before_bytes / 1024,
			      (unsigned long long)bytes / 1024);
	} while (bytes > before_bytes + SLACK_BYTES && ++window < WINDOWS);
	stats = rig_stats(rig);
	/* It was churn indeed. */
	assert_true(stats.evicted_memory > 1000);
	assert_true(stats.evicted_disk > 1000);
	assert_true(window < WINDOWS);
	/* No get waited in vain. */
	assert_int_equal(stats.misses_deadline, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(test_flat, rig_setup, rig_teardown),
};

HC_TEST_MAIN(tests)
