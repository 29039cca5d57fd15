/* SPDX-License-Identifier: Apache-2.0 */
/* A process that dies while its device writes. Goal: the next one that opens the cache finds
 * nothing held, no page of other bytes under any name, and the whole pool to use. Method: a child
 * writes page after page under new names and tells how far it is; it is killed after the 1st, 5th,
 * ... start, the cache is opened again and every name is read. */
#include <signal.h>
#include <sys/wait.h>

#include "tests/transfer-rig.h"

enum { BATCHES = 64, KILL_STEP = 4, KILLS = 10 };

/* Says after each start that one is under way. */
static void write_batches(int said, const struct hicache_hash *from, const struct hicache_hash *to)
{
	static const struct way cpu = {.name = "cpu", .device = "cpu"};
	uint32_t pages[N], host[N];
	uint64_t n_left;
	int results[N];

	rig_open(rig_where);
	transfer_open(&cpu);
	rig_publish(from, N);
	load_chain(from, pages);
	for (uint32_t i = 0; i < BATCHES; i++) {
		assert_int_equal(hicache_transfer_write(transfer, pages, N,
							HICACHE_PRIORITY_DEFAULT, i, 0, stream,
							host),
				 0);
		assert_int_equal(write(said, "w", 1), 1);
		ack_expect(HICACHE_WRITES, i, N);
		assert_int_equal(
			hicache_transfer_publish(transfer, host, to + i * N, N, NULL, results), 0);
		assert_int_equal(hicache_sync(rig_hc, RIG_TIMEOUT, &n_left), 0);
	}
}

/* Kills a child behind its n-th start. */
static void kill_writer(uint32_t n, const struct hicache_hash *from, const struct hicache_hash *to)
{
	int said[2], status;
	char byte;
	pid_t pid;

	assert_int_equal(pipe(said), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		/* What fails here ends the child: its pipe closes. */
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		close(said[0]);
		write_batches(said[1], from, to);
		for (;;)
			pause();
	}
	close(said[1]);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(read(said[0], &byte, 1), 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(said[0]);
}

static uint32_t check_names(const struct hicache_hash *from, const struct hicache_hash *to)
{
	uint32_t n_found = 0;

	for (uint32_t i = 0; i < BATCHES * N; i++) {
		struct hicache_page page;
		size_t got = 0;
		int rc = hicache_acquire(rig_series, &to[i], 1, RIG_TIMEOUT, &page, &got);

		assert_true(rc == -ENOENT || (!rc && got == 1));
		if (rc)
			continue;
		n_found++;
		assert_true(page_good(&page, &from[i % N], 0));
		assert_int_equal(hicache_release(rig_hc, &page, 1), 0);
	}
	return n_found;
}

static void test_killed(void **state)
{
	static struct hicache_hash from[N], to[BATCHES * N];

	(void)state;
	rig_chain(1, from, N);
	rig_chain(1000, to, BATCHES * N);
	for (uint32_t i = 0; i < KILLS; i++) {
		uint32_t n = 1 + i * KILL_STEP, n_found;

		kill_writer(n, from, to);
		rig_open(rig_where);
		assert_int_equal(rig_stat("n_held"), 0);
		n_found = check_names(from, to);
		/* At least what was on disk before the start that it was killed behind. */
		assert_in_range(n_found, (n - 1) * N, BATCHES * N);
		assert_int_equal(hicache_remove(rig_series, to, BATCHES * N, NULL), 0);
		assert_int_equal(hicache_remove(rig_series, from, N, NULL), 0);
		assert_int_equal(rig_stat("n_pages"), 0);
		assert_int_equal(rig_stat("pool_used_bytes"), 0);
		rig_close();
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(test_killed, rig_begin, rig_end),
};

HC_TEST_MAIN(tests)
