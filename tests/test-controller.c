/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer half of the controller: what each call promises, on the reference device, the
 * stepped one and the device cuda over the fake driver. Order under many schedules:
 * test-controller-step.c. */
#include "tests/controller-rig.h"
#include "util/log.h"

/* Defined where the device cuda was built. */
#ifdef HC_TEST_CUDA
#include "tests/fake-cuda/rig.h"
#endif

static struct hc_device *open_device(void **state)
{
	const struct backend *backend = *state;
	struct hc_device *device;

	assert_int_equal(backend->open(&device), 0);
	return device;
}

/* The most ordinary engine. */
static struct hc_device *open_engine(void **state, struct engine *e)
{
	struct hc_device *device = open_device(state);
	struct hc_device_info info;
	char error[HC_PLAN_ERROR_BYTES] = "";

	hc_device_info(device, &info);
	assert_int_equal(engine_open(e, device, HC_LAYOUT_PAGE_UNIFIED, false, HC_IO_AUTO, 4096,
				     !info.threads, error),
			 0);
	return device;
}

static void close_engine(struct engine *e, struct hc_device *device)
{
	engine_close(e);
	hc_device_close(device);
}

/* Writes, evicts, loads into other pages, reads. False: there is no such engine. */
static bool round_trip(struct hc_device *device, int layout, bool mla, enum hc_io io,
		       uint64_t staging_bytes)
{
	uint32_t pages[4], host[4], loaded[4];
	char error[HC_PLAN_ERROR_BYTES] = "";
	struct hc_device_info info;
	struct hc_producer producer;
	struct engine e;
	int err;

	hc_device_info(device, &info);
	err = engine_open(&e, device, layout, mla, io, staging_bytes, !info.threads, error);
	if (err) {
		assert_true(mla && (layout == HC_LAYOUT_PAGE_HEAD || layout == -HC_POOL_PAGE_HEAD));
		engine_close(&e);
		return false;
	}
	fill_pages(&e, pages, 4);
	assert_int_equal(engine_write(&e, pages, 4, 1, host), 0);
	ack_is(&e, HC_PLAN_WRITE, 1);
	for (int i = 0; i < 4; i++) {
		assert_true(hc_transfer_host_complete(e.transfer, host[i]));
		assert_true(engine_host_good(&e, host[i]));
	}
	assert_int_equal(engine_load(&e, host, 4, 2, loaded), 0);
	assert_int_equal(hc_transfer_start_loading(e.transfer, e.handle, &producer), 0);
	assert_int_equal(engine_forward(&e, producer, loaded, 4, 0, LAYERS), 0);
	assert_true(engine_reads_good(&e));
	ack_is(&e, HC_PLAN_LOAD, 2);
	engine_close(&e);
	return true;
}

static const int layouts[] = {
	HC_LAYOUT_LAYER_FIRST,  HC_LAYOUT_PAGE_FIRST,       HC_LAYOUT_PAGE_HEAD,
	HC_LAYOUT_PAGE_UNIFIED, -HC_POOL_LAYER_FIRST,       -HC_POOL_PAGE_FIRST,
	-HC_POOL_PAGE_HEAD,     -HC_POOL_PAGE_FIRST_DIRECT, -HC_POOL_PAGE_UNIFIED,
};

/* Goal: device to host and back is the identity, byte for byte, for every pair of layout and io
 * backend, MHA and MLA, with staging of one page, of several, and without. */
static void test_round_trips(void **state)
{
	struct hc_device *device = open_device(state);
	uint32_t n = 0;

	for (size_t l = 0; l < HC_ARRAY_SIZE(layouts); l++) {
		for (int i = 0; i < 2 * 5; i++) {
			static const enum hc_io io[] = {HC_IO_AUTO, HC_IO_AUTO, HC_IO_AUTO,
							HC_IO_DIRECT, HC_IO_KERNEL};
			static const uint64_t staging_bytes[] = {0, 400, 4096, 0, 0};

			n += round_trip(device, layouts[l], i & 1, io[i / 2], staging_bytes[i / 2]);
		}
	}
	assert_int_equal(n, 80);
	hc_device_close(device);
}

/* Goal: a write for which the host has no room changes nothing; tokens that are not whole pages are
 * refused. */
static void test_host_full(void **state)
{
	struct engine e;
	struct hc_device *device = open_engine(state, &e);
	uint32_t pages[PAGES], host[PAGES];
	struct hc_transfer_stats stats;

	assert_int_equal(hc_transfer_device_alloc(e.transfer, TOKENS + 1, pages), -EINVAL);
	assert_int_equal(hc_transfer_device_alloc(e.transfer, (PAGES + 1) * TOKENS, pages),
			 -ENOSPC);
	fill_pages(&e, pages, PAGES);
	assert_int_equal(engine_write(&e, pages, PAGES - 1, 1, host), 0);
	ack_is(&e, HC_PLAN_WRITE, 1);
	assert_int_equal(engine_write(&e, pages, 2, 2, host), -ENOSPC);
	hc_transfer_stats(e.transfer, &stats);
	assert_int_equal(stats.n_queued, 0);
	assert_int_equal(stats.n_leased_pages, 0);
	assert_int_equal(stats.host_free_pages, 1);
	assert_int_equal(engine_write(&e, pages, 1, 3, host), 0);
	ack_is(&e, HC_PLAN_WRITE, 3);
	close_engine(&e, device);
}

/* Goal: load queues, start_loading starts all that is queued as one, in order, with the smallest
 * priority and every node id; nothing queued is index -1, and waiting for it is nothing. */
static void test_merging(void **state)
{
	struct engine e;
	struct hc_device *device = open_engine(state, &e);
	uint32_t pages[3], host[3], loaded[3];
	struct hc_transfer_stats stats;
	struct hc_producer producer;
	struct hc_ack ack;

	fill_pages(&e, pages, 3);
	assert_int_equal(engine_write(&e, pages, 3, 1, host), 0);
	ack_is(&e, HC_PLAN_WRITE, 1);
	assert_int_equal(hc_transfer_start_loading(e.transfer, e.handle, &producer), 0);
	assert_int_equal(producer.index, -1);
	assert_int_equal(hc_transfer_wait_layer(e.transfer, producer, 0, e.handle), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(hc_transfer_load(e.transfer, &host[i], 1, i == 1 ? -7 : 9,
						  i == 2 ? -1 : 40 + (int)i, false, &loaded[i]),
				 0);
		e.device_version[loaded[i]] = e.host_version[host[i]];
	}
	hc_transfer_stats(e.transfer, &stats);
	assert_int_equal(stats.n_loads, 0);
	assert_int_equal(stats.n_queued, 3);
	assert_int_equal(hc_transfer_start_loading(e.transfer, e.handle, &producer), 0);
	assert_int_equal(engine_forward(&e, producer, loaded, 3, 0, LAYERS), 0);
	assert_true(engine_reads_good(&e));
	assert_int_equal(engine_ack(&e, HC_PLAN_LOAD, &ack), 0);
	assert_int_equal(ack.n_nodes, 3);
	assert_int_equal(ack.nodes[0], 40);
	assert_int_equal(ack.nodes[1], 41);
	assert_int_equal(ack.nodes[2], -1);
	assert_int_equal(ack.priority, -7);
	assert_int_equal(ack.n_pages, 3);
	hc_transfer_stats(e.transfer, &stats);
	assert_int_equal(stats.n_loads, 1);
	assert_int_equal(hc_transfer_poll(e.transfer, HC_PLAN_LOAD, &ack), -EAGAIN);
	close_engine(&e, device);
}

/* Goal: the ring goes 0, 1, 2, 0; a consumer keeps its slot until it waited for the last layer; a
 * late one is stale; a producer that cannot be is refused. */
static void test_ring(void **state)
{
	struct engine e;
	struct hc_device *device = open_engine(state, &e);
	struct hc_producer producers[5], bad = {3, 1};
	uint32_t page, host, loaded[5];
	struct hc_transfer_stats stats;

	fill_pages(&e, &page, 1);
	assert_int_equal(engine_write(&e, &page, 1, 1, &host), 0);
	ack_is(&e, HC_PLAN_WRITE, 1);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(engine_load(&e, &host, 1, i, &loaded[i]), 0);
		assert_int_equal(hc_transfer_start_loading(e.transfer, e.handle, &producers[i]), 0);
		assert_int_equal(producers[i].index, i);
		ack_is(&e, HC_PLAN_LOAD, i);
	}
	assert_int_equal(engine_forward(&e, producers[0], loaded, 1, 0, 1), 0);
	assert_int_equal(engine_load(&e, &host, 1, 3, &loaded[3]), 0);
	assert_int_equal(hc_transfer_start_loading(e.transfer, e.handle, &producers[3]), -EAGAIN);
	assert_int_equal(engine_forward(&e, producers[0], loaded, 1, 1, LAYERS), 0);
	assert_true(engine_reads_good(&e));
	assert_int_equal(hc_transfer_start_loading(e.transfer, e.handle, &producers[3]), 0);
	assert_int_equal(producers[3].index, 0);
	assert_int_equal(hc_transfer_wait_layer(e.transfer, producers[0], 0, e.handle), -ESTALE);
	assert_int_equal(hc_transfer_wait_layer(e.transfer, bad, 0, e.handle), -EINVAL);
	assert_int_equal(hc_transfer_wait_layer(e.transfer, producers[1], LAYERS, e.handle),
			 -EINVAL);
	ack_is(&e, HC_PLAN_LOAD, 3);
	hc_transfer_stats(e.transfer, &stats);
	assert_int_equal(stats.n_stale, 1);
	assert_int_equal(stats.n_ring_full, 1);
	close_engine(&e, device);
}

/* Goal: a load of pages whose write is not finished is put after it by the device; one whose write
 * was not even started is refused. */
static void test_load_after_write(void **state)
{
	struct engine e;
	struct hc_device *device = open_engine(state, &e);
	uint32_t pages[2], host[2], loaded[2];
	struct hc_producer producer;

	fill_pages(&e, pages, 2);
	assert_int_equal(hc_transfer_write(e.transfer, pages, 2, INT_MIN, 1, false, e.handle, host),
			 0);
	for (int i = 0; i < 2; i++)
		e.host_version[host[i]] = e.device_version[pages[i]];
	assert_int_equal(engine_load(&e, host, 2, 2, loaded), -EBUSY);
	assert_int_equal(hc_transfer_start_writing(e.transfer, e.handle), 0);
	assert_int_equal(engine_load(&e, host, 2, 2, loaded), 0);
	assert_int_equal(hc_transfer_start_loading(e.transfer, e.handle, &producer), 0);
	assert_int_equal(engine_forward(&e, producer, loaded, 2, 0, LAYERS), 0);
	assert_true(engine_reads_good(&e));
	ack_is(&e, HC_PLAN_WRITE, 1);
	ack_is(&e, HC_PLAN_LOAD, 2);
	close_engine(&e, device);
}

/* Goal: pages that are not there, or named twice, are refused whole; what a transfer holds is freed
 * when it has finished, not before. */
static void test_eviction(void **state)
{
	struct engine e;
	struct hc_device *device = open_engine(state, &e);
	uint32_t pages[2], host[2], twice[2], none = PAGES - 1, beyond = PAGES;
	struct hc_transfer_stats stats;

	fill_pages(&e, pages, 2);
	twice[0] = twice[1] = pages[0];
	assert_int_equal(hc_transfer_evict_device(e.transfer, &none, 1), -EINVAL);
	assert_int_equal(hc_transfer_evict_device(e.transfer, &beyond, 1), -EINVAL);
	assert_int_equal(hc_transfer_evict_device(e.transfer, twice, 2), -EINVAL);
	assert_int_equal(hc_transfer_evict_device(e.transfer, NULL, 0), 0);
	assert_int_equal(engine_write(&e, &none, 1, 1, host), -EINVAL);
	assert_int_equal(engine_load(&e, &none, 1, 1, host), -EINVAL);
	assert_int_equal(hc_transfer_write(e.transfer, pages, 2, INT_MIN, 1, false, e.handle, host),
			 0);
	assert_int_equal(hc_transfer_evict_device(e.transfer, pages, 2), 0);
	assert_int_equal(hc_transfer_evict_host(e.transfer, host, 1), 0);
	hc_transfer_stats(e.transfer, &stats);
	assert_int_equal(stats.device_free_pages, PAGES - 2);
	assert_int_equal(stats.host_free_pages, PAGES - 2);
	assert_int_equal(hc_transfer_evict_device(e.transfer, pages, 1), -EINVAL);
	assert_int_equal(hc_transfer_start_writing(e.transfer, e.handle), 0);
	ack_is(&e, HC_PLAN_WRITE, 1);
	hc_transfer_stats(e.transfer, &stats);
	assert_int_equal(stats.device_free_pages, PAGES);
	assert_int_equal(stats.host_free_pages, PAGES - 1);
	assert_int_equal(hc_transfer_evict_device(e.transfer, pages, 1), -EINVAL);
	close_engine(&e, device);
}

/* Goal: reset leaves what was written and drops the rest: the queue and its pages, acks, producers.
 */
static void test_reset(void **state)
{
	struct engine e;
	struct hc_device *device = open_engine(state, &e);
	uint32_t pages[2], host[2], loaded[2], more[2];
	struct hc_transfer_stats stats;
	struct hc_producer producer;
	struct hc_ack ack;

	fill_pages(&e, pages, 2);
	for (int round = 0; round < 3; round++) {
		assert_int_equal(engine_write(&e, pages, 2, 1, host), 0);
		assert_int_equal(engine_load(&e, host, 2, 2, loaded), 0);
		assert_int_equal(hc_transfer_start_loading(e.transfer, e.handle, &producer), 0);
		assert_int_equal(producer.index, 0);
		assert_int_equal(engine_load(&e, host, 2, 3, more), 0);
		assert_int_equal(hc_transfer_reset(e.transfer, soon()), 0);
		hc_transfer_stats(e.transfer, &stats);
		assert_int_equal(stats.n_queued + stats.n_in_flight + stats.n_leased_pages, 0);
		assert_int_equal(stats.device_free_pages, PAGES - 4);
		assert_int_equal(stats.host_free_pages, PAGES - 2);
		assert_int_equal(hc_transfer_poll(e.transfer, HC_PLAN_WRITE, &ack), -EAGAIN);
		assert_int_equal(hc_transfer_poll(e.transfer, HC_PLAN_LOAD, &ack), -EAGAIN);
		assert_int_equal(hc_transfer_wait_layer(e.transfer, producer, 0, e.handle),
				 -ESTALE);
		assert_true(engine_host_good(&e, host[1]));
		assert_int_equal(hc_transfer_evict_device(e.transfer, loaded, 2), 0);
		assert_int_equal(hc_transfer_evict_host(e.transfer, host, 2), 0);
	}
	close_engine(&e, device);
}

/* Goal: a stream that is captured is refused before anything happens, and what was queued is
 * started afterwards. */
static void test_capture(void **state)
{
	const struct backend *backend = *state;
	struct hc_device_stream *stream;
	struct hc_transfer_stats stats;
	struct hc_producer producer;
	struct engine e;
	struct hc_device *device = open_engine(state, &e);
	uint32_t page, host, loaded;

	fill_pages(&e, &page, 1);
	assert_int_equal(hc_device_stream_import(device, e.handle, &stream), 0);
	backend->capture(stream, true);
	assert_int_equal(engine_write(&e, &page, 1, 1, &host), -EBUSY);
	hc_transfer_stats(e.transfer, &stats);
	assert_int_equal(stats.host_free_pages, PAGES);
	assert_int_equal(stats.n_queued + stats.n_leased_pages, 0);
	assert_int_equal(hc_transfer_write(e.transfer, &page, 1, 0, 1, false, e.handle, &host), 0);
	e.host_version[host] = e.device_version[page];
	assert_int_equal(hc_transfer_start_writing(e.transfer, e.handle), -EBUSY);
	backend->capture(stream, false);
	assert_int_equal(hc_transfer_start_writing(e.transfer, e.handle), 0);
	ack_is(&e, HC_PLAN_WRITE, 1);
	assert_int_equal(engine_load(&e, &host, 1, 2, &loaded), 0);
	assert_int_equal(hc_transfer_start_loading(e.transfer, e.handle, &producer), 0);
	backend->capture(stream, true);
	assert_int_equal(hc_transfer_wait_layer(e.transfer, producer, 0, e.handle), -EBUSY);
	backend->capture(stream, false);
	assert_int_equal(hc_transfer_wait_layer(e.transfer, producer, 0, e.handle), 0);
	assert_int_equal(hc_transfer_start_loading(e.transfer, 0x1234560, &producer), -EXDEV);
	ack_is(&e, HC_PLAN_LOAD, 2);
	hc_device_stream_destroy(stream);
	close_engine(&e, device);
}

/* Goal: transfers finish, and their leases end, without the caller's doing anything. Method: look
 * at the counters only. */
static void test_progress(void **state)
{
	struct engine e;
	struct hc_device *device = open_engine(state, &e);
	uint64_t deadline_ns = soon();
	struct hc_transfer_stats stats;
	uint32_t pages[3], host[3];

	fill_pages(&e, pages, 3);
	assert_int_equal(engine_write(&e, pages, 3, 1, host), 0);
	assert_int_equal(hc_transfer_evict_device(e.transfer, pages, 3), 0);
	if (e.transfer->has_thread) {
		do {
			hc_transfer_stats(e.transfer, &stats);
		} while (stats.device_free_pages < PAGES && hc_clock_now_ns() < deadline_ns);
		assert_int_equal(stats.device_free_pages, PAGES);
		assert_int_equal(stats.n_in_flight, 0);
	}
	ack_is(&e, HC_PLAN_WRITE, 1);
	close_engine(&e, device);
}

/* Goal: direct copies of a layer_first pool merge neighbours: 2 descriptors a layer for one run of
 * pages, whatever the order they are named in. */
static void test_direct_merges(void **state)
{
	struct hc_device *device = open_device(state);
	uint32_t pages[4], host[4], loaded[4] = {0}, shuffled[4];
	static const uint32_t order[4] = {2, 0, 3, 1};
	char error[HC_PLAN_ERROR_BYTES] = "";
	struct hc_transfer_stats stats;
	struct hc_device_info info;
	struct hc_producer producer;
	struct engine e;
	uint64_t before;

	hc_device_info(device, &info);
	assert_int_equal(engine_open(&e, device, -HC_POOL_LAYER_FIRST, false, HC_IO_DIRECT, 0,
				     !info.threads, error),
			 0);
	fill_pages(&e, pages, 4);
	assert_int_equal(engine_write(&e, pages, 4, 1, host), 0);
	ack_is(&e, HC_PLAN_WRITE, 1);
	hc_transfer_stats(e.transfer, &stats);
	assert_int_equal(stats.n_descriptors, 2 * LAYERS);
	assert_int_equal(stats.n_ways[HC_PLAN_COPY], 1);
	before = stats.n_descriptors;
	assert_int_equal(hc_transfer_device_alloc(e.transfer, 4 * TOKENS, loaded), 0);
	for (int i = 0; i < 4; i++) {
		uint32_t to = loaded[order[i]];

		shuffled[i] = to;
		assert_int_equal(hc_transfer_load(e.transfer, &host[order[i]], 1, 0, i, true, &to),
				 0);
		e.device_version[to] = e.host_version[host[order[i]]];
	}
	assert_int_equal(hc_transfer_start_loading(e.transfer, e.handle, &producer), 0);
	assert_int_equal(engine_forward(&e, producer, shuffled, 4, 0, LAYERS), 0);
	assert_true(engine_reads_good(&e));
	hc_transfer_stats(e.transfer, &stats);
	assert_int_equal(stats.n_descriptors - before, 2 * LAYERS);
	ack_is(&e, HC_PLAN_LOAD, 0);
	engine_close(&e);
	hc_device_close(device);
}

/* Goal: what is queued is never more than one start takes: a load beyond is -EAGAIN, takes nothing,
 * and is welcome after the start. Method: one page, loaded again and again into itself. */
static void test_batch_limit(void **state)
{
	struct engine e;
	struct hc_device *device = open_engine(state, &e);
	uint32_t page, host, n = 0;
	struct hc_producer producer;
	struct hc_ack ack;

	fill_pages(&e, &page, 1);
	assert_int_equal(engine_write(&e, &page, 1, 1, &host), 0);
	ack_is(&e, HC_PLAN_WRITE, 1);
	while (hc_transfer_load(e.transfer, &host, 1, 0, n, true, &page) == 0)
		n++;
	assert_int_equal(n, HC_TRANSFER_QUEUE_MAX);
	assert_int_equal(hc_transfer_load(e.transfer, &host, 1, 0, n, true, &page), -EAGAIN);
	assert_int_equal(hc_transfer_start_loading(e.transfer, e.handle, &producer), 0);
	assert_int_equal(hc_transfer_load(e.transfer, &host, 1, 0, n, true, &page), 0);
	assert_int_equal(engine_ack(&e, HC_PLAN_LOAD, &ack), 0);
	assert_int_equal(ack.n_nodes, n);
	assert_int_equal(ack.nodes[n - 1], n - 1);
	close_engine(&e, device);
}

/* One load on the device that runs only when it is told to. early[l]: times that a consumer of
 * layer l was through before layer l + 1 was there. */
static void one_layered_load(struct engine *e, uint64_t seed, uint32_t early[LAYERS])
{
	struct hc_device_event *through[LAYERS];
	uint32_t page, host, loaded;
	bool reached[LAYERS] = {false};
	struct hc_producer producer;
	struct hc_op *op;

	fill_pages(e, &page, 1);
	assert_int_equal(engine_write(e, &page, 1, 1, &host), 0);
	ack_is(e, HC_PLAN_WRITE, 1);
	hc_step_reseed(e->device, seed);
	assert_int_equal(engine_load(e, &host, 1, 2, &loaded), 0);
	assert_int_equal(hc_transfer_start_loading(e->transfer, e->handle, &producer), 0);
	op = &e->transfer->lines[HC_PLAN_LOAD].ops[producer.index];
	for (uint32_t l = 0; l < LAYERS; l++) {
		through[l] = new_event(e->device);
		assert_int_equal(engine_forward(e, producer, &loaded, 1, l, l + 1), 0);
		assert_int_equal(hc_device_event_record(through[l], e->stream), 0);
	}
	do {
		for (uint32_t l = 0; l < LAYERS; l++) {
			if (reached[l] || hc_device_event_query(through[l]))
				continue;
			reached[l] = true;
			assert_int_equal(hc_device_event_query(op->layers[l]), 0);
			early[l] += l + 1 < LAYERS && hc_device_event_query(op->layers[l + 1]);
		}
	} while (hc_step_run(e->device, 1));
	assert_true(reached[LAYERS - 1]);
	assert_true(engine_reads_good(e));
	ack_is(e, HC_PLAN_LOAD, 2);
	for (uint32_t l = 0; l < LAYERS; l++)
		hc_device_event_destroy(through[l]);
	assert_int_equal(hc_transfer_evict_device(e->transfer, &page, 1), 0);
	assert_int_equal(hc_transfer_evict_device(e->transfer, &loaded, 1), 0);
	assert_int_equal(hc_transfer_evict_host(e->transfer, &host, 1), 0);
}

/* Goal: wait_layer waits for that layer's bytes, and for no later layer; the caller does not wait.
 * Method: the device is stepped by hand, one piece of work at a time, in many orders. */
static void test_layers(void **state)
{
	struct hc_step_config config = {.seed = 1};
	char error[HC_PLAN_ERROR_BYTES] = "";
	uint32_t early[LAYERS] = {0};
	struct hc_device *device;
	struct engine e;

	assert_int_equal(hc_step_open(&config, &device), 0);
	assert_int_equal(engine_open(&e, device, HC_LAYOUT_PAGE_UNIFIED, false, HC_IO_DIRECT, 0,
				     true, error),
			 0);
	for (uint64_t seed = 1; seed <= 200; seed++)
		one_layered_load(&e, seed, early);
	for (uint32_t l = 0; l + 1 < LAYERS; l++)
		assert_true(early[l] > 0);
	close_engine(&e, device);
}

struct worker {
	struct engine *e;
	pthread_t thread;
	uint32_t page;
	bool good;
};

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	w->good = true;
	for (int i = 0; i < 40 && w->good; i++) {
		uint32_t host;
		int err;

		do {
			err = hc_transfer_write(w->e->transfer, &w->page, 1, INT_MIN, -1, true,
						w->e->handle, &host);
		} while (err == -EAGAIN || err == -ENOSPC);
		w->good = !err && !hc_transfer_evict_host(w->e->transfer, &host, 1);
	}
	return NULL;
}

/* Goal: threads share a transfer. Method: three write and evict, one polls. */
static void test_threads(void **state)
{
	struct engine e;
	struct hc_device *device = open_engine(state, &e);
	struct worker workers[3];
	uint32_t pages[3];
	struct hc_ack ack;
	uint64_t n_nodes = 0, deadline_ns = soon();

	fill_pages(&e, pages, 3);
	for (int i = 0; i < 3 && e.transfer->has_thread; i++) {
		workers[i] = (struct worker){.e = &e, .page = pages[i]};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]),
				 0);
	}
	while (e.transfer->has_thread && n_nodes < 120 && hc_clock_now_ns() < deadline_ns) {
		if (!hc_transfer_poll(e.transfer, HC_PLAN_WRITE, &ack)) {
			assert_int_equal(ack.status, 0);
			n_nodes += ack.n_nodes;
		}
	}
	assert_true(!e.transfer->has_thread || n_nodes == 120);
	for (int i = 0; i < 3 && e.transfer->has_thread; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_true(workers[i].good);
	}
	close_engine(&e, device);
}

/* Goal: what cannot be is refused before anything is copied, with a reason. */
static void test_refusals(void **state)
{
	struct hc_device *device = open_device(state);
	char error[HC_PLAN_ERROR_BYTES] = "";
	struct hc_device_stats before, after;
	struct engine e;

	hc_device_stats(device, &before);
	assert_int_equal(
		engine_open(&e, device, HC_LAYOUT_PAGE_HEAD, true, HC_IO_AUTO, 0, true, error),
		-EINVAL);
	engine_close(&e);
	assert_int_equal(
		engine_open(&e, device, HC_LAYOUT_UNDECLARED, false, HC_IO_AUTO, 0, true, error),
		-EINVAL);
	engine_close(&e);
	assert_int_equal(
		engine_open(&e, device, HC_LAYOUT_PAGE_UNIFIED, false, HC_IO_AUTO, 0, true, error),
		0);
	assert_int_equal(hc_transfer_destroy(e.transfer, soon()), 0);
	e.config.host_pages = 1 << 20;
	assert_int_equal(hc_transfer_create(&e.config, &e.transfer, error), -EINVAL);
	assert_non_null(strstr(error, "does not hold"));
	e.transfer = NULL;
	engine_close(&e);
	hc_device_stats(device, &after);
	assert_int_equal(after.n_copies, before.n_copies);
	hc_device_close(device);
}

/* Goal: slots are whole pages, and every wrong free is found and changes nothing. Method: random
 * allocations against a list of what is taken. */
static void test_slots(void **state)
{
	struct hc_slots *slots;
	uint32_t taken[40], n = 0, pages[8], twice[2];
	struct hc_rng rng;

	assert_int_equal(hc_slots_create(0, 4, &slots), -EINVAL);
	assert_int_equal(hc_slots_create(40, 4, &slots), 0);
	hc_rng_seed(&rng, 7);
	assert_int_equal(hc_slots_free(slots, pages, 0), 0);
	for (int i = 0; i < 3000; i++) {
		uint32_t want = 1 + (uint32_t)hc_rng_below(&rng, 8);

		if (hc_rng_below(&rng, 2) && n >= want) {
			assert_int_equal(hc_slots_free(slots, taken + n - want, want), 0);
			assert_int_equal(hc_slots_free(slots, taken + n - 1, 1), -EINVAL);
			n -= want;
		} else if (hc_slots_alloc(slots, want * 4, pages) == 0) {
			for (uint32_t k = 0; k < want; k++) {
				assert_true(pages[k] < 40);
				for (uint32_t m = 0; m < n; m++)
					assert_int_not_equal(taken[m], pages[k]);
				taken[n++] = pages[k];
			}
		} else {
			assert_true(n + want > 40);
		}
		assert_int_equal(hc_slots_n_free(slots), 40 - n);
	}
	while (n)
		assert_int_equal(hc_slots_free(slots, &taken[--n], 1), 0);
	assert_int_equal(hc_slots_alloc(slots, 6, pages), -EINVAL);
	assert_int_equal(hc_slots_alloc(slots, 0, pages), -EINVAL);
	assert_int_equal(hc_slots_alloc(slots, 41 * 4, pages), -ENOSPC);
	assert_int_equal(hc_slots_alloc(slots, 8 * 4, pages), 0);
	for (int i = 1; i < 8; i++)
		assert_int_equal(pages[i], pages[0] + i);
	twice[0] = twice[1] = pages[3];
	assert_int_equal(hc_slots_free(slots, twice, 2), -EINVAL);
	assert_true(hc_slots_taken(slots, pages[3]));
	hc_slots_destroy(slots);
}

static int open_cpu(struct hc_device **device_p)
{
	return hc_cpu_open(&(struct hc_cpu_config){.seed = 1}, device_p);
}

static int open_cpu_slow(struct hc_device **device_p)
{
	return hc_cpu_open(&(struct hc_cpu_config){.seed = 2, .delay_max_ns = 50 * HC_NS_PER_US},
			   device_p);
}

static int open_step(struct hc_device **device_p)
{
	return hc_step_open(&(struct hc_step_config){.seed = 3, .steps_max = 2}, device_p);
}

#ifdef HC_TEST_CUDA
static int open_fake(struct hc_device **device_p)
{
	struct fake_cuda_config config = {.seed = 5, .delay_max_ns = 50 * HC_NS_PER_US};

	return fake_open(&config, device_p);
}

static int open_fake_single(struct hc_device **device_p)
{
	return fake_open(&(struct fake_cuda_config){.seed = 6, .no_batch = true}, device_p);
}

static void fake_capture(struct hc_device_stream *stream, bool on)
{
	assert_int_equal(fake.capture(hc_device_stream_handle(stream), on), 0);
}

static int teardown_fake(void **state)
{
	const struct backend *backend = *state;

	if (backend && backend->capture == fake_capture)
		fake_check();
	return 0;
}

static void quiet(void *arg, enum hc_log_level level, const char *component, const char *text)
{
}

/* Goal: a host pool that cannot be registered is refused with its size and the reason, and leaves
 * nothing. */
static void test_no_registration(void **state)
{
	struct fake_cuda_config config = {.no_registration = true};
	char error[HC_PLAN_ERROR_BYTES] = "";
	struct hc_device *device;
	struct engine e;

	assert_int_equal(fake_open(&config, &device), 0);
	assert_int_equal(
		engine_open(&e, device, HC_LAYOUT_PAGE_UNIFIED, false, HC_IO_AUTO, 0, true, error),
		-ENOMEM);
	assert_non_null(strstr(error, "8192 bytes cannot be registered"));
	engine_close(&e);
	hc_device_close(device);
	fake_check();
}

/* Goal: without device memory for staging, or kernels, transfers are made by what is there. */
static void test_poor_device(void **state)
{
	struct fake_cuda_config little = {.memory_bytes = 2 * LAYERS * PAGES * ROW + 1000};
	struct fake_cuda_config none = {.no_kernels = true};
	struct hc_device *device;

	assert_int_equal(fake_open(&little, &device), 0);
	assert_true(round_trip(device, HC_LAYOUT_PAGE_FIRST, false, HC_IO_AUTO, 4096));
	hc_device_close(device);
	fake_check();
	assert_int_equal(fake_open(&none, &device), 0);
	assert_true(round_trip(device, HC_LAYOUT_PAGE_HEAD, false, HC_IO_AUTO, 4096));
	hc_device_close(device);
	fake_check();
}

/* A write and a load that may fail at any point. True: everything went well. */
static bool one_life(struct engine *e)
{
	uint32_t pages[2], host[2], loaded[2];
	struct hc_producer producer;
	bool good = true;
	int err;

	assert_int_equal(hc_transfer_device_alloc(e->transfer, 2 * TOKENS, pages), 0);
	good &= engine_fill(e, pages[0]) == 0;
	good &= engine_fill(e, pages[1]) == 0;
	err = engine_write(e, pages, 2, 1, host);
	good &= err == 0;
	if (!err && engine_load(e, host, 2, 2, loaded) == 0) {
		err = hc_transfer_start_loading(e->transfer, e->handle, &producer);
		if (!err)
			err = engine_forward(e, producer, loaded, 2, 0, LAYERS);
		good &= err == 0;
	} else {
		good = false;
	}
	return good;
}

/* After a failure: to the end of what is under way, acks that tell, no lease left. */
static void check_after(struct engine *e, bool *all_good_p)
{
	struct hc_transfer_stats stats;
	uint64_t deadline_ns = soon();
	struct hc_ack ack;

	hc_ignore(hc_transfer_start_writing(e->transfer, e->handle));
	do {
		for (int d = 0; d < 2; d++) {
			while (hc_transfer_poll(e->transfer, (enum hc_plan_direction)d, &ack) == 0)
				*all_good_p = *all_good_p && ack.status == 0;
		}
		hc_transfer_stats(e->transfer, &stats);
	} while (stats.n_in_flight && hc_clock_now_ns() < deadline_ns);
	assert_int_equal(stats.n_in_flight, 0);
	assert_int_equal(hc_transfer_reset(e->transfer, soon()), 0);
	hc_transfer_stats(e->transfer, &stats);
	assert_int_equal(stats.n_leased_pages, 0);
}

/* One run with the n-th call failing; false: there were fewer calls. */
static bool fail_one(uint64_t n, int result, enum hc_io io, uint64_t *n_failed_p)
{
	struct fake_cuda_config config = {.seed = n, .delay_max_ns = 20 * HC_NS_PER_US};
	char error[HC_PLAN_ERROR_BYTES] = "";
	struct hc_device *device;
	const char *failed;
	struct engine e;
	bool good, acked = true;

	assert_int_equal(fake_open(&config, &device), 0);
	assert_int_equal(
		engine_open(&e, device, HC_LAYOUT_PAGE_FIRST, false, io, 1024, true, error), 0);
	fake.fail_nth(n, result, false);
	good = one_life(&e);
	fake.calls(&failed);
	fake.fail_nth(0, 0, false);
	check_after(&e, &acked);
	/* Bytes that came without an error are right. */
	if (good && acked)
		assert_true(engine_reads_good(&e));
	if (failed && (!good || !acked))
		(*n_failed_p)++;
	engine_close(&e);
	hc_device_close(device);
	if (!fake_idle())
		print_message("# after %s\n", failed);
	fake_check();
	return failed != NULL;
}

/* Goal: whichever driver call fails once during a write and a load, somebody is told, no lease is
 * left, nothing hangs, and no access was unordered. */
static void test_each_call_fails(void **state)
{
	static const enum hc_io ways[] = {HC_IO_AUTO, HC_IO_DIRECT, HC_IO_KERNEL};
	uint64_t n_failed = 0, n = 0;

	hc_log_set_sink(quiet, NULL);
	for (size_t i = 0; i < HC_ARRAY_SIZE(ways); i++) {
		for (n = 1; fail_one(n, n % 2 ? 2 : 1, ways[i], &n_failed); n++)
			continue;
		print_message("# %llu calls, %llu failures told so far\n", (unsigned long long)n,
			      (unsigned long long)n_failed);
	}
	hc_log_set_sink(NULL, NULL);
	assert_true(n_failed > 100);
}

/* Goal: a device that is lost ends every transfer with -EIO and frees all leases; the transfer can
 * be destroyed. */
static void test_device_lost(void **state)
{
	struct fake_cuda_config config = {.seed = 1, .delay_max_ns = 20 * HC_NS_PER_US};
	char error[HC_PLAN_ERROR_BYTES] = "";

	hc_log_set_sink(quiet, NULL);
	for (uint64_t n = 1; n < 110; n += 7) {
		struct hc_transfer_stats stats;
		struct hc_device *device;
		struct engine e;
		bool acked = true;

		assert_int_equal(fake_open(&config, &device), 0);
		assert_int_equal(engine_open(&e, device, HC_LAYOUT_PAGE_FIRST, false, HC_IO_DIRECT,
					     0, true, error),
				 0);
		fake.fail_nth(n, 700, true);
		one_life(&e);
		assert_int_equal(hc_device_health(device), -EIO);
		check_after(&e, &acked);
		hc_transfer_stats(e.transfer, &stats);
		assert_int_equal(stats.n_leased_pages, 0);
		/* What is lost does no more work: here it must be ended before memory goes. */
		fake.abandon();
		engine_close(&e);
		hc_device_close(device);
		fake.abandon();
	}
	hc_log_set_sink(NULL, NULL);
}
#endif

static struct backend backends[] = {
	{"cpu", open_cpu, hc_cpu_capture},
	{"cpu with delays", open_cpu_slow, hc_cpu_capture},
	{"step", open_step, NULL},
#ifdef HC_TEST_CUDA
	{"cuda with delays", open_fake, fake_capture},
	{"cuda without batches", open_fake_single, fake_capture},
#endif
};

static const struct CMUnitTest each[] = {
	cmocka_unit_test(test_round_trips),
	cmocka_unit_test(test_host_full),
	cmocka_unit_test(test_merging),
	cmocka_unit_test(test_ring),
	cmocka_unit_test(test_load_after_write),
	cmocka_unit_test(test_eviction),
	cmocka_unit_test(test_reset),
	cmocka_unit_test(test_capture),
	cmocka_unit_test(test_progress),
	cmocka_unit_test(test_direct_merges),
	cmocka_unit_test(test_threads),
	cmocka_unit_test(test_batch_limit),
	cmocka_unit_test(test_refusals),
};

static struct CMUnitTest all[HC_ARRAY_SIZE(backends) * HC_ARRAY_SIZE(each) + 6];
static char names[HC_ARRAY_SIZE(all)][96];

int main(void)
{
	size_t n = 0;

	cmocka_set_message_output(CM_OUTPUT_TAP);
#ifdef HC_TEST_CUDA
	fake_load();
#endif
	for (size_t i = 0; i < HC_ARRAY_SIZE(backends) * HC_ARRAY_SIZE(each); i++) {
		struct backend *backend = &backends[i / HC_ARRAY_SIZE(each)];

		all[n] = each[i % HC_ARRAY_SIZE(each)];
		if (all[n].test_func == test_capture && !backend->capture)
			continue;
		snprintf(names[n], sizeof(names[n]), "%s on %s", all[n].name, backend->name);
		all[n].name = names[n];
		all[n].initial_state = backend;
#ifdef HC_TEST_CUDA
		all[n].teardown_func = teardown_fake;
#endif
		n++;
	}
	all[n++] = (struct CMUnitTest)cmocka_unit_test(test_slots);
	all[n++] = (struct CMUnitTest)cmocka_unit_test(test_layers);
#ifdef HC_TEST_CUDA
	all[n++] = (struct CMUnitTest)cmocka_unit_test(test_no_registration);
	all[n++] = (struct CMUnitTest)cmocka_unit_test(test_poor_device);
	all[n++] = (struct CMUnitTest)cmocka_unit_test(test_each_call_fails);
	all[n++] = (struct CMUnitTest)cmocka_unit_test(test_device_lost);
#endif
	return _cmocka_run_group_tests("controller", all, n, NULL, NULL);
}
