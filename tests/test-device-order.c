/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the rules of order between an engine's stream and those of transfers hold when streams
 * really are late. Method: a burden, copies of bytes that nobody looks at, is put on a stream
 * before the work that must not be overtaken; then bytes tell which version was read. No result
 * depends on how late a stream is. Many schedules, and planted mistakes: test-controller-step.c.
 * `test-device-order gpu` uses the streams of the GPU of this machine, with burdens of
 * milliseconds.
 */
#include "tests/device-backends.h"

#include "tests/controller-rig.h"

enum { ENGINE, LOADS, WRITES, STREAMS };

struct world {
	struct hc_device *device;
	struct engine e;
	hc_device_addr from, to[STREAMS];
	uint64_t burden_bytes;
	int n_burdens;
};

static void world_open(void **state, struct world *w, enum hc_io io)
{
	const struct backend *backend = *state;
	bool large = is_gpu(backend) && !getenv("HC_CHECK_DEVICE_SMALL");
	char error[HC_PLAN_ERROR_BYTES] = "";

	assert_int_equal(backend->open(&w->device), 0);
	w->burden_bytes = large ? 256 * HC_MIB : 64 * HC_KIB;
	w->n_burdens = large ? 32 : 8;
	w->from = device_buffer(w->device, w->burden_bytes);
	for (int i = 0; i < STREAMS; i++)
		w->to[i] = device_buffer(w->device, w->burden_bytes);
	assert_int_equal(engine_open(&w->e, w->device, HC_LAYOUT_PAGE_UNIFIED, false, io, 4096,
				     false, error),
			 0);
}

static void world_close(struct world *w)
{
	engine_close(&w->e);
	hc_device_mem_free(w->device, w->from);
	for (int i = 0; i < STREAMS; i++)
		hc_device_mem_free(w->device, w->to[i]);
	hc_device_close(w->device);
}

static void burden(struct world *w, int which, int n)
{
	struct hc_device_stream *streams[STREAMS] = {
		[ENGINE] = w->e.stream,
		[LOADS] = w->e.transfer->lines[HC_PLAN_LOAD].stream,
		[WRITES] = w->e.transfer->lines[HC_PLAN_WRITE].stream,
	};

	for (int i = 0; i < n; i++)
		assert_int_equal(copy_one(streams[which], w->to[which], w->from, w->burden_bytes),
				 0);
}

static struct hc_producer start_load(struct engine *e, const uint32_t *host, uint32_t n,
				     int64_t node, uint32_t *pages)
{
	struct hc_producer producer;

	assert_int_equal(engine_load(e, host, n, node, pages), 0);
	assert_int_equal(hc_transfer_start_loading(e->transfer, e->handle, &producer), 0);
	return producer;
}

/* R1: a load touches its pages after all that was on the caller's stream before it, such as a round
 * of the model that still reads them. All other pages are taken, so it gets the very same. */
static void test_load_after_caller(void **state)
{
	uint32_t pages[PAGES], host[4], loaded[4];
	struct hc_producer producer;
	struct world w;

	world_open(state, &w, HC_IO_AUTO);
	fill_pages(&w.e, pages, PAGES);
	assert_int_equal(engine_write(&w.e, pages, 4, 1, host), 0);
	ack_is(&w.e, HC_PLAN_WRITE, 1);
	for (int i = 0; i < 4; i++)
		assert_int_equal(engine_fill(&w.e, pages[i]), 0);
	burden(&w, ENGINE, w.n_burdens);
	for (uint32_t l = 0; l < LAYERS; l++) {
		for (int i = 0; i < 4; i++)
			assert_int_equal(engine_read(&w.e, pages[i], l), 0);
	}
	assert_int_equal(hc_transfer_evict_device(w.e.transfer, pages, 4), 0);
	producer = start_load(&w.e, host, 4, 2, loaded);
	for (int i = 0; i < 4; i++)
		assert_true(loaded[i] == pages[0] || loaded[i] == pages[1] ||
			    loaded[i] == pages[2] || loaded[i] == pages[3]);
	assert_int_equal(engine_forward(&w.e, producer, loaded, 4, 0, LAYERS), 0);
	assert_true(engine_reads_good(&w.e));
	ack_is(&w.e, HC_PLAN_LOAD, 2);
	world_close(&w);
}

/* R2: the model reads a layer after it came, though the load is late. */
static void test_layers(void **state)
{
	uint32_t pages[4], host[4], loaded[4];
	struct hc_producer producer;
	struct world w;

	world_open(state, &w, HC_IO_AUTO);
	fill_pages(&w.e, pages, 4);
	assert_int_equal(engine_write(&w.e, pages, 4, 1, host), 0);
	ack_is(&w.e, HC_PLAN_WRITE, 1);
	burden(&w, LOADS, w.n_burdens);
	producer = start_load(&w.e, host, 4, 2, loaded);
	assert_int_equal(engine_forward(&w.e, producer, loaded, 4, 0, LAYERS), 0);
	assert_true(engine_reads_good(&w.e));
	ack_is(&w.e, HC_PLAN_LOAD, 2);
	world_close(&w);
}

/* On a GPU alone: what the tests above would say if nobody waited, the bytes of before. Only told,
 * for nothing promises it. */
static void test_control(void **state)
{
	uint32_t pages[4], host[4], loaded[4];
	struct world w;

	world_open(state, &w, HC_IO_AUTO);
	fill_pages(&w.e, pages, 4);
	assert_int_equal(engine_write(&w.e, pages, 4, 1, host), 0);
	ack_is(&w.e, HC_PLAN_WRITE, 1);
	burden(&w, LOADS, w.n_burdens);
	start_load(&w.e, host, 4, 2, loaded);
	for (int i = 0; i < 4; i++)
		assert_int_equal(engine_read(&w.e, loaded[i], LAYERS - 1), 0);
	print_message("# control: reading without a wait gets %s bytes\n",
		      engine_reads_good(&w.e) ? "the new" : "old");
	ack_is(&w.e, HC_PLAN_LOAD, 2);
	world_close(&w);
}

/* R3: a write copies what the caller's stream wrote before it, though that is late. */
static void test_write_after_caller(void **state)
{
	uint32_t pages[4], host[4];
	struct world w;

	world_open(state, &w, HC_IO_AUTO);
	burden(&w, ENGINE, w.n_burdens);
	fill_pages(&w.e, pages, 4);
	assert_int_equal(engine_write(&w.e, pages, 4, 1, host), 0);
	ack_is(&w.e, HC_PLAN_WRITE, 1);
	for (int i = 0; i < 4; i++)
		assert_true(engine_host_good(&w.e, host[i]));
	world_close(&w);
}

/* R4: pages that are evicted during a late write are handed out again after it, so what the engine
 * then fills them with is not what is written. */
static void test_leases(void **state)
{
	uint32_t pages[PAGES], host[6], again[6];
	uint64_t deadline_ns = soon();
	struct world w;
	int err;

	world_open(state, &w, HC_IO_AUTO);
	fill_pages(&w.e, pages, PAGES);
	burden(&w, WRITES, w.n_burdens);
	assert_int_equal(engine_write(&w.e, pages, 6, 1, host), 0);
	assert_int_equal(hc_transfer_evict_device(w.e.transfer, pages, 6), 0);
	while ((err = hc_transfer_device_alloc(w.e.transfer, 6 * TOKENS, again)) == -ENOSPC &&
	       hc_clock_now_ns() < deadline_ns)
		continue;
	assert_int_equal(err, 0);
	for (int i = 0; i < 6; i++)
		assert_int_equal(engine_fill(&w.e, again[i]), 0);
	assert_int_equal(hc_device_stream_drain(w.e.stream, soon()), 0);
	ack_is(&w.e, HC_PLAN_WRITE, 1);
	for (int i = 0; i < 6; i++)
		assert_true(engine_host_good(&w.e, host[i]));
	world_close(&w);
}

/* R5: three loads are under way; a fourth waits for a consumer, and a late consumer is told. */
static void test_ring(void **state)
{
	uint32_t pages[2], host[2], loaded[5][2];
	struct hc_producer producers[4];
	struct world w;

	world_open(state, &w, HC_IO_AUTO);
	fill_pages(&w.e, pages, 2);
	assert_int_equal(engine_write(&w.e, pages, 2, 1, host), 0);
	ack_is(&w.e, HC_PLAN_WRITE, 1);
	for (int i = 0; i < 3; i++) {
		burden(&w, LOADS, w.n_burdens / 2);
		producers[i] = start_load(&w.e, host, 2, i, loaded[i]);
		assert_int_equal(producers[i].index, i);
		assert_int_equal(engine_forward(&w.e, producers[i], loaded[i], 2, 0, 1), 0);
	}
	assert_int_equal(engine_load(&w.e, host, 2, 3, loaded[3]), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(hc_transfer_start_loading(w.e.transfer, w.e.handle, &producers[3]),
				 -EAGAIN);
		ack_is(&w.e, HC_PLAN_LOAD, i);
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(engine_forward(&w.e, producers[i], loaded[i], 2, 1, LAYERS), 0);
	assert_true(engine_reads_good(&w.e));
	assert_int_equal(hc_transfer_start_loading(w.e.transfer, w.e.handle, &producers[3]), 0);
	assert_int_equal(producers[3].index, 0);
	assert_int_equal(hc_transfer_wait_layer(w.e.transfer, producers[0], 0, w.e.handle),
			 -ESTALE);
	assert_int_equal(engine_forward(&w.e, producers[3], loaded[3], 2, 0, LAYERS), 0);
	assert_true(engine_reads_good(&w.e));
	ack_is(&w.e, HC_PLAN_LOAD, 3);
	world_close(&w);
}

/* R6: each transfer has its own page pairs while it runs. Method: kernels, all of them late. */
static void test_pairs(void **state)
{
	struct hc_producer producers[3];
	uint32_t pages[6], host[6], loaded[3][2];
	struct world w;

	world_open(state, &w, HC_IO_KERNEL);
	fill_pages(&w.e, pages, 6);
	burden(&w, WRITES, w.n_burdens);
	for (int i = 0; i < 3; i++)
		assert_int_equal(engine_write(&w.e, pages + 2 * i, 2, i, host + 2 * i), 0);
	burden(&w, LOADS, w.n_burdens);
	for (int i = 0; i < 3; i++)
		producers[i] = start_load(&w.e, host + 2 * i, 2, i, loaded[i]);
	for (int i = 0; i < 3; i++)
		assert_int_equal(engine_forward(&w.e, producers[i], loaded[i], 2, 0, LAYERS), 0);
	assert_true(engine_reads_good(&w.e));
	for (int i = 0; i < 3; i++) {
		ack_is(&w.e, HC_PLAN_WRITE, i);
		ack_is(&w.e, HC_PLAN_LOAD, i);
		assert_true(engine_host_good(&w.e, host[2 * i]));
		assert_true(engine_host_good(&w.e, host[2 * i + 1]));
	}
	world_close(&w);
}

/* R7: a stream that is captured into a graph is refused and its capture comes through, while what
 * is in flight goes on and is acknowledged; afterwards the same calls work. */
static void test_capture(void **state)
{
	const struct backend *backend = *state;
	struct hc_producer producer;
	uint32_t pages[4], host[4], loaded[4], other;
	struct world w;

	world_open(state, &w, HC_IO_AUTO);
	fill_pages(&w.e, pages, 4);
	burden(&w, WRITES, w.n_burdens);
	assert_int_equal(engine_write(&w.e, pages, 4, 1, host), 0);
	assert_int_equal(engine_load(&w.e, host, 4, 2, loaded), 0);
	assert_int_equal(hc_device_stream_drain(w.e.stream, soon()), 0);
	backend->capture(w.e.stream, true);
	assert_int_equal(hc_transfer_start_loading(w.e.transfer, w.e.handle, &producer), -EBUSY);
	assert_int_equal(engine_write(&w.e, pages, 1, 3, &other), -EBUSY);
	ack_is(&w.e, HC_PLAN_WRITE, 1);
	backend->capture(w.e.stream, false);
	assert_int_equal(hc_transfer_start_loading(w.e.transfer, w.e.handle, &producer), 0);
	backend->capture(w.e.stream, true);
	assert_int_equal(hc_transfer_wait_layer(w.e.transfer, producer, 0, w.e.handle), -EBUSY);
	ack_is(&w.e, HC_PLAN_LOAD, 2);
	backend->capture(w.e.stream, false);
	assert_int_equal(engine_forward(&w.e, producer, loaded, 4, 0, LAYERS), 0);
	assert_true(engine_reads_good(&w.e));
	world_close(&w);
}

/* R8: once a page counts as complete its bytes are there for the processor. Nobody polls acks. */
static void test_visible(void **state)
{
	uint64_t deadline_ns = soon();
	uint32_t pages[4], host[4];
	struct world w;

	world_open(state, &w, HC_IO_AUTO);
	fill_pages(&w.e, pages, 4);
	burden(&w, WRITES, w.n_burdens);
	assert_int_equal(engine_write(&w.e, pages, 4, 1, host), 0);
	for (int i = 0; i < 4; i++) {
		while (!hc_transfer_host_complete(w.e.transfer, host[i]) &&
		       hc_clock_now_ns() < deadline_ns)
			continue;
		assert_true(hc_transfer_host_complete(w.e.transfer, host[i]));
		assert_true(engine_host_good(&w.e, host[i]));
	}
	ack_is(&w.e, HC_PLAN_WRITE, 1);
	world_close(&w);
}

/* R9: transfers finish and leases end without a tick of the engine's scheduler. Method: only the
 * counters are looked at, and acks taken after all is over. */
static void test_progress(void **state)
{
	uint64_t deadline_ns = soon();
	uint32_t pages[4], host[4], loaded[4];
	struct hc_transfer_stats stats;
	struct world w;

	world_open(state, &w, HC_IO_AUTO);
	fill_pages(&w.e, pages, 4);
	burden(&w, WRITES, w.n_burdens);
	assert_int_equal(engine_write(&w.e, pages, 4, 1, host), 0);
	start_load(&w.e, host, 4, 2, loaded);
	assert_int_equal(hc_transfer_evict_device(w.e.transfer, pages, 4), 0);
	assert_int_equal(hc_transfer_evict_device(w.e.transfer, loaded, 4), 0);
	assert_int_equal(hc_transfer_evict_host(w.e.transfer, host, 4), 0);
	do {
		hc_transfer_stats(w.e.transfer, &stats);
	} while ((stats.n_in_flight || stats.n_leased_pages) && hc_clock_now_ns() < deadline_ns);
	assert_int_equal(stats.n_in_flight + stats.n_leased_pages, 0);
	assert_int_equal(stats.device_free_pages, PAGES);
	assert_int_equal(stats.host_free_pages, PAGES);
	ack_is(&w.e, HC_PLAN_WRITE, 1);
	ack_is(&w.e, HC_PLAN_LOAD, 2);
	world_close(&w);
}

/* A load of pages whose write is still under way gets what is written, and a write of pages that a
 * load is still filling writes what is loaded. */
static void test_same_pages(void **state)
{
	uint32_t pages[4], host[4], loaded[4], host2[4];
	struct hc_producer producer;
	struct world w;

	world_open(state, &w, HC_IO_AUTO);
	fill_pages(&w.e, pages, 4);
	burden(&w, WRITES, w.n_burdens);
	assert_int_equal(engine_write(&w.e, pages, 4, 1, host), 0);
	producer = start_load(&w.e, host, 4, 2, loaded);
	assert_int_equal(engine_write(&w.e, loaded, 4, 3, host2), 0);
	assert_int_equal(engine_forward(&w.e, producer, loaded, 4, 0, LAYERS), 0);
	assert_true(engine_reads_good(&w.e));
	ack_is(&w.e, HC_PLAN_WRITE, 1);
	ack_is(&w.e, HC_PLAN_LOAD, 2);
	ack_is(&w.e, HC_PLAN_WRITE, 3);
	for (int i = 0; i < 4; i++)
		assert_true(engine_host_good(&w.e, host[i]) && engine_host_good(&w.e, host2[i]));
	world_close(&w);
}

/* Everything at once: random burdens, writes, loads into pages that were just evicted. */
static void test_rounds(void **state)
{
	struct hc_rng rng;
	struct world w;

	hc_rng_seed(&rng, 1);
	world_open(state, &w, HC_IO_AUTO);
	for (int round = 0; round < 40; round++) {
		uint32_t n = 1 + (uint32_t)hc_rng_below(&rng, 3), pages[3], host[3], loaded[3];
		struct hc_producer producer;

		for (int i = 0; i < STREAMS; i++)
			burden(&w, i, (int)hc_rng_below(&rng, (uint64_t)w.n_burdens / 4));
		fill_pages(&w.e, pages, n);
		assert_int_equal(engine_write(&w.e, pages, n, round, host), 0);
		producer = start_load(&w.e, host, n, round, loaded);
		assert_int_equal(engine_forward(&w.e, producer, loaded, n, 0, LAYERS), 0);
		assert_int_equal(hc_transfer_evict_device(w.e.transfer, pages, n), 0);
		assert_int_equal(hc_transfer_evict_device(w.e.transfer, loaded, n), 0);
		ack_is(&w.e, HC_PLAN_WRITE, round);
		for (uint32_t i = 0; i < n; i++)
			assert_true(engine_host_good(&w.e, host[i]));
		ack_is(&w.e, HC_PLAN_LOAD, round);
		assert_true(engine_reads_good(&w.e));
		assert_int_equal(hc_transfer_evict_host(w.e.transfer, host, n), 0);
	}
	world_close(&w);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_load_after_caller),
		cmocka_unit_test(test_layers),
		cmocka_unit_test(test_write_after_caller),
		cmocka_unit_test(test_leases),
		cmocka_unit_test(test_ring),
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_capture),
		cmocka_unit_test(test_visible),
		cmocka_unit_test(test_progress),
		cmocka_unit_test(test_same_pages),
		cmocka_unit_test(test_rounds),
		cmocka_unit_test(test_control),
	};
	bool gpu = argc > 1 && !strcmp(argv[1], "gpu");

	return run_on_backends("order", tests, HC_ARRAY_SIZE(tests) - !gpu, 3, argc, argv);
}
