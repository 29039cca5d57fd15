/* SPDX-License-Identifier: Apache-2.0 */
/* Order, on the stepped device: a workload that dirties and reuses pages of both sides, with three
 * loads and two writes under way, in 20,000 different schedules; and ten planted mistakes, each of
 * which must be found. Built with the controller's own files compiled for mistakes. */
#include "tests/controller-rig.h"
#include "util/log.h"

enum hc_mutant hc_mutant;

#define CHECK(x)                            \
	do {                                \
		if (!(x)) {                 \
			note(__LINE__, #x); \
			return false;       \
		}                           \
	} while (0)

/* With a mistake planted it is what was hoped for. */
static void note(int line, const char *what)
{
	if (hc_mutant == HC_MUTANT_NONE)
		print_message("# line %d: %s\n", line, what);
}

struct round {
	struct engine *e;
	uint64_t seed;
	uint32_t pages[2][2]; /* filled by the engine, written to host */
	uint32_t host[2][2];
	uint32_t loaded[3][2];
	struct hc_producer producers[3];
	uint32_t late[4]; /* host pages of the last writes */
	bool evicted;     /* host[1] */
	uint32_t n_in_flight;
};

/* The host pages of a write that was acked, unless they were evicted since. */
static bool written_good(struct round *r, int64_t write)
{
	const uint32_t *host = write < 2 ? r->host[write] : &r->late[write - 2];

	for (int i = 0; i < (write < 2 ? 2 : 1) && !(write == 1 && r->evicted); i++) {
		CHECK(hc_transfer_host_complete(r->e->transfer, host[i]));
		CHECK(engine_host_good(r->e, host[i]));
	}
	return true;
}

/* Acks come in the order of the starts, and what a good write covers is there. */
static bool take_acks(struct round *r, enum hc_plan_direction direction, int64_t *next_p)
{
	struct hc_ack ack;

	while (hc_transfer_poll(r->e->transfer, direction, &ack) == 0) {
		CHECK(ack.status == 0 && ack.n_nodes == 1 && ack.nodes[0] == *next_p);
		if (direction == HC_PLAN_WRITE)
			CHECK(written_good(r, *next_p));
		(*next_p)++;
	}
	return true;
}

/* Two writes; their device pages are evicted at once. */
static bool begin_writes(struct round *r)
{
	for (int w = 0; w < 2; w++) {
		CHECK(hc_transfer_device_alloc(r->e->transfer, 2 * TOKENS, r->pages[w]) == 0);
		for (int i = 0; i < 2; i++)
			CHECK(engine_fill(r->e, r->pages[w][i]) == 0);
		CHECK(engine_write(r->e, r->pages[w], 2, w, r->host[w]) == 0);
		for (int i = 0; i < 2; i++)
			CHECK(!hc_transfer_host_complete(r->e->transfer, r->host[w][i]) ||
			      engine_host_good(r->e, r->host[w][i]));
		CHECK(hc_transfer_evict_device(r->e->transfer, r->pages[w], 2) == 0);
	}
	return true;
}

static bool was_written(const struct round *r, uint32_t page)
{
	return page == r->pages[0][0] || page == r->pages[0][1] || page == r->pages[1][0] ||
	       page == r->pages[1][1];
}

/* What was evicted and is free again gets other contents from the engine: the pages of the writes
 * if they are free so soon, and n others. */
static bool dirty_free_pages(struct round *r, int n)
{
	uint32_t pages[PAGES], n_pages = 0;

	while (n_pages < PAGES &&
	       hc_transfer_device_alloc(r->e->transfer, TOKENS, &pages[n_pages]) == 0)
		n_pages++;
	for (uint32_t i = 0; i < n_pages; i++) {
		if (was_written(r, pages[i]))
			CHECK(engine_fill(r->e, pages[i]) == 0);
	}
	for (uint32_t i = 0; i < n_pages; i++) {
		if (!was_written(r, pages[i]) && n-- > 0)
			CHECK(engine_fill(r->e, pages[i]) == 0);
	}
	CHECK(!n_pages || hc_transfer_evict_device(r->e->transfer, pages, n_pages) == 0);
	return true;
}

/* Three loads of pages that are still being written; the second time round the first pages go to
 * the third load. */
static bool begin_loads(struct round *r)
{
	struct hc_transfer_stats stats;

	for (int l = 0; l < 3; l++) {
		CHECK(engine_load(r->e, r->host[l % 2], 2, l, r->loaded[l]) == 0);
		CHECK(hc_transfer_start_loading(r->e->transfer, r->e->handle, &r->producers[l]) ==
		      0);
		CHECK(r->producers[l].index >= 0);
	}
	hc_transfer_stats(r->e->transfer, &stats);
	r->n_in_flight = stats.n_in_flight;
	return true;
}

/* The first consumer stops half way: its slot must not be given to a fourth load. */
static bool half_a_forward(struct round *r)
{
	struct hc_producer fourth;
	uint32_t page = 0;

	CHECK(engine_forward(r->e, r->producers[0], r->loaded[0], 2, 0, 1) == 0);
	CHECK(engine_load(r->e, r->host[0], 1, 3, &page) == 0);
	/* Now and then the load has finished, and only its consumer has not. */
	hc_step_run(r->e->device, r->seed % 4 ? r->seed % 50 : UINT64_MAX);
	CHECK(hc_transfer_start_loading(r->e->transfer, r->e->handle, &fourth) == -EAGAIN);
	CHECK(engine_forward(r->e, r->producers[0], r->loaded[0], 2, 1, LAYERS) == 0);
	CHECK(engine_forward(r->e, r->producers[1], r->loaded[1], 2, 0, LAYERS) == 0);
	CHECK(engine_forward(r->e, r->producers[2], r->loaded[2], 2, 0, LAYERS) == 0);
	/* Its pages are read by what is on the engine's stream only: others may have them after it.
	 */
	CHECK(hc_transfer_evict_device(r->e->transfer, r->loaded[0], 2) == 0);
	CHECK(hc_transfer_evict_host(r->e->transfer, r->host[1], 2) == 0);
	r->evicted = true;
	return true;
}

/* The fourth load gets the first slot once its consumer is through; the old producer is stale; a
 * third write takes host pages that were evicted while they were read. */
static bool second_half(struct round *r)
{
	struct hc_producer fourth;
	uint32_t pages[4], n = 0;
	int err;

	while ((err = hc_transfer_start_loading(r->e->transfer, r->e->handle, &fourth)) == -EAGAIN)
		CHECK(hc_step_run(r->e->device, 3));
	CHECK(err == 0 && fourth.index == r->producers[0].index);
	CHECK(hc_transfer_wait_layer(r->e->transfer, r->producers[0], LAYERS - 1, r->e->handle) ==
	      -ESTALE);
	while (n < 4 && hc_transfer_device_alloc(r->e->transfer, TOKENS, &pages[n]) == 0)
		CHECK(engine_fill(r->e, pages[n++]) == 0);
	for (uint32_t i = 0; i < n; i++) {
		err = engine_write(r->e, &pages[i], 1, 2 + i, &r->late[i]);
		CHECK(err == 0 || err == -ENOSPC);
	}
	return true;
}

static bool finish(struct round *r, int64_t *writes_p, int64_t *loads_p)
{
	struct hc_transfer_stats stats;

	CHECK(engine_reads_good(r->e));
	CHECK(hc_device_stream_drain(r->e->transfer->lines[0].stream, soon()) == 0);
	CHECK(hc_device_stream_drain(r->e->transfer->lines[1].stream, soon()) == 0);
	CHECK(take_acks(r, HC_PLAN_WRITE, writes_p));
	CHECK(take_acks(r, HC_PLAN_LOAD, loads_p));
	CHECK(*loads_p == 4 && *writes_p >= 2);
	hc_transfer_stats(r->e->transfer, &stats);
	CHECK(stats.n_in_flight == 0 && stats.n_leased_pages == 0);
	return true;
}

static bool run_round(struct round *r)
{
	int64_t writes = 0, loads = 0;

	CHECK(begin_writes(r));
	CHECK(dirty_free_pages(r, (int)(r->seed % 3)));
	CHECK(begin_loads(r));
	CHECK(take_acks(r, HC_PLAN_WRITE, &writes));
	CHECK(half_a_forward(r));
	CHECK(dirty_free_pages(r, 4));
	CHECK(take_acks(r, HC_PLAN_LOAD, &loads));
	CHECK(second_half(r));
	return finish(r, &writes, &loads);
}

/* Everything free again, for the next round. */
static void clean_round(struct engine *e)
{
	hc_ignore(hc_device_stream_drain(e->stream, soon()));
	assert_int_equal(hc_transfer_reset(e->transfer, soon()), 0);
	for (uint32_t page = 0; page < PAGES; page++) {
		if (hc_slots_taken(e->transfer->device_slots, page))
			assert_int_equal(hc_transfer_evict_device(e->transfer, &page, 1), 0);
		if (hc_slots_taken(e->transfer->host_slots, page))
			assert_int_equal(hc_transfer_evict_host(e->transfer, &page, 1), 0);
	}
	e->n_reads = 0;
}

static const struct {
	int layout;
	bool mla;
	enum hc_io io;
	uint64_t staging_bytes;
} worlds[] = {
	{HC_LAYOUT_PAGE_UNIFIED, false, HC_IO_KERNEL, 0},
	{HC_LAYOUT_PAGE_UNIFIED, false, HC_IO_DIRECT, 0},
	{HC_LAYOUT_PAGE_UNIFIED, false, HC_IO_AUTO, 1024},
	{-HC_POOL_LAYER_FIRST, false, HC_IO_DIRECT, 0},
	{HC_LAYOUT_PAGE_HEAD, false, HC_IO_AUTO, 4096},
	{HC_LAYOUT_PAGE_FIRST, true, HC_IO_KERNEL, 0},
	{-HC_POOL_PAGE_FIRST, false, HC_IO_AUTO, 1024},
	{HC_LAYOUT_LAYER_FIRST, true, HC_IO_AUTO, 1024},
};

static struct hc_device *open_world(struct engine *e, size_t world)
{
	struct hc_step_config config = {.seed = 1, .steps_max = 1};
	char error[HC_PLAN_ERROR_BYTES] = "";
	struct hc_device *device;

	assert_int_equal(hc_step_open(&config, &device), 0);
	assert_int_equal(engine_open(e, device, worlds[world].layout, worlds[world].mla,
				     worlds[world].io, worlds[world].staging_bytes, true, error),
			 0);
	return device;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

#define SCHEDULES 20000

/* Goal: in every schedule each reader gets the bytes it should, acks come in order and tell the
 * truth, and nothing stays leased. Method: 20,000 distinct schedules with at least three loads and
 * two writes under way at once, over eight layouts and mechanisms. */
static void test_schedules(void **state)
{
	uint64_t *schedules = calloc(2 * SCHEDULES, sizeof(*schedules));
	uint64_t began_ns = hc_clock_now_ns(), seed = 0;
	uint32_t n = 0, n_distinct = 0;

	assert_non_null(schedules);
	for (size_t world = 0; world < HC_ARRAY_SIZE(worlds); world++) {
		struct engine e;
		struct hc_device *device = open_world(&e, world);
		uint32_t until =
			(uint32_t)((world + 1) * (SCHEDULES + 400) / HC_ARRAY_SIZE(worlds));

		while (n < until) {
			struct round r = {.e = &e};

			r.seed = ++seed;
			hc_step_reseed(device, seed);
			if (!run_round(&r))
				fail_msg("world %zu, seed %llu", world, (unsigned long long)seed);
			if (r.n_in_flight >= 5)
				schedules[n++] = hc_step_schedule(device);
			clean_round(&e);
			assert_true(seed < 4 * SCHEDULES);
		}
		engine_close(&e);
		hc_device_close(device);
	}
	qsort(schedules, n, sizeof(*schedules), by_value);
	for (uint32_t i = 0; i < n; i++)
		n_distinct += !i || schedules[i] != schedules[i - 1];
	print_message("# %u distinct schedules of %llu rounds in %.1f s\n", n_distinct,
		      (unsigned long long)seed,
		      (double)(hc_clock_now_ns() - began_ns) / HC_NS_PER_S);
	assert_true(n_distinct >= SCHEDULES);
	free(schedules);
}

static void quiet(void *arg, enum hc_log_level level, const char *component, const char *text)
{
}

/* Rounds until the mistake showed; 0: it did not. */
static uint32_t find_mutant(enum hc_mutant mutant, uint32_t n_rounds)
{
	for (uint32_t i = 0; i < n_rounds; i++) {
		struct engine e;
		struct hc_device *device = open_world(&e, i % HC_ARRAY_SIZE(worlds));
		struct round r = {.e = &e, .seed = i / HC_ARRAY_SIZE(worlds)};
		bool good;

		hc_step_reseed(device, 1000000 + i);
		hc_mutant = mutant;
		good = run_round(&r);
		hc_mutant = HC_MUTANT_NONE;
		engine_close(&e);
		hc_device_close(device);
		if (!good)
			return i + 1;
	}
	return 0;
}

/* Goal: each planted mistake of order is found by the same workload. Method: one at a time; without
 * any nothing is found. */
static void test_mutants(void **state)
{
	static const char *const names[HC_MUTANTS] = {
		[HC_MUTANT_NO_START] = "no wait for the caller's stream",
		[HC_MUTANT_ACK_AT_START] = "ack at the start event",
		[HC_MUTANT_LAYER_EARLY] = "layer event before its copies",
		[HC_MUTANT_CONSUMER] = "slot reused before its consumer",
		[HC_MUTANT_LEASE] = "lease dropped early",
		[HC_MUTANT_RING] = "slot reused before its load has finished",
		[HC_MUTANT_PAIRS] = "page pairs rewritten early",
		[HC_MUTANT_UNORDERED] = "load and write of one page unordered",
		[HC_MUTANT_STALE] = "generations not compared",
		[HC_MUTANT_COMPLETE_EARLY] = "host page complete at submission",
	};

	hc_log_set_sink(quiet, NULL);
	for (int m = HC_MUTANT_NONE + 1; m < HC_MUTANTS; m++) {
		uint32_t n = find_mutant((enum hc_mutant)m, 2000);

		print_message("# %s: found in round %u\n", names[m], n);
		assert_true(n > 0);
	}
	hc_log_set_sink(NULL, NULL);
	assert_int_equal(find_mutant(HC_MUTANT_NONE, 100), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_schedules),
		cmocka_unit_test(test_mutants),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
