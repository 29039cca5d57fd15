/* SPDX-License-Identifier: Apache-2.0 */
/* Of the tests of transfers through the shared library: a small cache, a device, a transfer between
 * them. Linked with the library as programs are; the helpers of the house lie beside it. */
#ifndef HC_TESTS_TRANSFER_RIG_H
#define HC_TESTS_TRANSFER_RIG_H

#include <poll.h>
#include <sys/mman.h>

#include "hicache-rig.h"
#ifdef HC_TEST_CUDA
#include "tests/fake-cuda/rig.h"
#endif

enum { N = 8, LAYERS = 2, TOKENS = 16 };
#define POOL (4 * HC_MIB)

/* One of the ways to run: a device, and what of it is missing. */
struct way {
	const char *name, *device;
	bool no_registration; /* of the fake driver */
	bool no_kernels, no_batch;
	uint32_t io;
};

static struct hicache_device *device;
static struct hicache_transfer *transfer;
static uint64_t stream;

/* As rig_open, and small: hundreds are opened here. */
static inline void cache_open(void)
{
	struct hicache_params params = {.size = sizeof(params),
					.pool_bytes = POOL,
					.segment_bytes = POOL,
					.max_page_bytes = RIG_PAGE};

	assert_int_equal(hicache_open("mem:", &params, &rig_hc), 0);
	assert_int_equal(hicache_space_open(rig_hc, "m", HICACHE_CREATE, NULL, &rig_space), 0);
	assert_int_equal(
		hicache_series_open(rig_space, RIG_SPEC, NULL, HICACHE_CREATE, &rig_series), 0);
}

static inline void way_reset(const struct way *way)
{
#ifdef HC_TEST_CUDA
	struct fake_cuda_config config = {.seed = 3,
					  .delay_max_ns = 20 * HC_NS_PER_US,
					  .no_registration = way->no_registration,
					  .no_kernels = way->no_kernels,
					  .no_batch = way->no_batch};

	fake_load();
	fake.reset(&config);
#endif
	(void)way;
}

static inline int device_open(const char *what, uint32_t flags)
{
	struct hicache_device_params params = {.size = sizeof(params), .flags = flags};

#ifdef HC_TEST_CUDA
	params.library = fake.path;
#endif
	return hicache_device_open(what, &params, &device);
}

static inline struct hicache_transfer_params params_of(const struct way *way)
{
	return (struct hicache_transfer_params){
		.size = sizeof(struct hicache_transfer_params),
		.device_pages = 4 * N,
		.io = way->io,
		.staging_bytes = 16 * RIG_PAGE,
	};
}

static inline void transfer_open(const struct way *way)
{
	struct hicache_transfer_params params = params_of(way);

	way_reset(way);
	assert_int_equal(device_open(way->device, 0), 0);
	assert_int_equal(hicache_stream_create(device, &stream), 0);
	assert_int_equal(hicache_transfer_open(device, rig_series, &params, &transfer), 0);
}

static inline void engine_open(const struct way *way)
{
	cache_open();
	transfer_open(way);
}

static inline void device_close(void)
{
	assert_int_equal(hicache_transfer_close(transfer, RIG_TIMEOUT), 0);
	assert_int_equal(hicache_stream_destroy(device, stream), 0);
	assert_int_equal(hicache_device_close(device), 0);
	device = NULL;
	transfer = NULL;
#ifdef HC_TEST_CUDA
	fake_check();
#endif
}

static inline void engine_close(void)
{
	device_close();
	rig_close();
}

static inline int pick(void *arg, const char *name, uint64_t value)
{
	struct {
		const char *name;
		uint64_t value;
		bool found;
	} *wanted = arg;

	if (strcmp(name, wanted->name))
		return 0;
	wanted->value = value;
	wanted->found = true;
	return 1;
}

static inline uint64_t number(const char *name)
{
	struct {
		const char *name;
		uint64_t value;
		bool found;
	} wanted = {.name = name};

	assert_int_equal(hicache_transfer_stats_each(transfer, pick, &wanted), 1);
	assert_true(wanted.found);
	return wanted.value;
}

/* The next ack of the direction, by the deadline. */
static inline int ack_take(uint32_t direction, struct hicache_ack *ack)
{
	uint64_t deadline_ns = hc_clock_now_ns() + RIG_TIMEOUT * HC_NS_PER_MS;
	int rc;

	*ack = (struct hicache_ack){.size = sizeof(*ack)};
	while ((rc = hicache_transfer_poll(transfer, direction, ack)) == -EAGAIN &&
	       hc_clock_now_ns() < deadline_ns)
		ppoll(NULL, 0, &(struct timespec){.tv_nsec = 50000}, NULL);
	return rc;
}

static inline void ack_expect(uint32_t direction, int64_t node, size_t n)
{
	struct hicache_ack ack;

	assert_int_equal(ack_take(direction, &ack), 0);
	assert_int_equal(ack.status, 0);
	assert_int_equal(ack.n_nodes, 1);
	assert_int_equal(ack.nodes[0], node);
	assert_int_equal(ack.n_pages, n);
	assert_int_equal(ack.size_bytes, n * RIG_PAGE);
}

static inline int forward(int64_t producer)
{
	int rc = 0;

	for (uint32_t layer = 0; layer < LAYERS && !rc; layer++)
		rc = hicache_transfer_wait_layer(transfer, producer, layer, stream);
	return rc;
}

/* Pages of the cache into device pages. */
static inline void load_chain(const struct hicache_hash *hashes, uint32_t *device_pages)
{
	uint32_t host[N];
	int64_t producer;
	size_t got;

	assert_int_equal(hicache_transfer_acquire(transfer, hashes, N, RIG_TIMEOUT, host, &got), 0);
	assert_int_equal(got, N);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(hicache_transfer_host_complete(transfer, host[i]), 1);
	assert_int_equal(hicache_transfer_load(transfer, host, N, HICACHE_PRIORITY_DEFAULT, 7, 0,
					       device_pages),
			 0);
	assert_int_equal(hicache_transfer_start_loading(transfer, stream, &producer), 0);
	assert_int_equal(forward(producer), 0);
	/* Held until the load has ended, whatever is evicted. */
	assert_int_equal(hicache_transfer_evict_host(transfer, host, N), 0);
	ack_expect(HICACHE_LOADS, 7, N);
}

/* The cache has the bytes of `from` under the names of `to`. */
static inline void rig_expect_as(const struct hicache_hash *to, const struct hicache_hash *from,
				 size_t n)
{
	struct hicache_page pages[N];
	size_t got;

	assert_int_equal(hicache_acquire(rig_series, to, n, RIG_TIMEOUT, pages, &got), 0);
	assert_int_equal(got, n);
	for (size_t i = 0; i < n; i++)
		assert_true(page_good(&pages[i], &from[i], 0));
	assert_int_equal(hicache_release(rig_hc, pages, n), 0);
}

/* Runs `each` on every way, as "test on way" with the way as its state, but for what `leave`
 * refuses; then `once`. */
#define RIG_TESTS_MAX 128

static inline int
transfer_rig_run_but(const char *group, const struct way *ways, size_t n_ways,
		     const struct CMUnitTest *each, size_t n_each, const struct CMUnitTest *once,
		     size_t n_once, bool (*leave)(CMUnitTestFunction test, const struct way *way))
{
	static struct CMUnitTest all[RIG_TESTS_MAX];
	static char names[RIG_TESTS_MAX][96];
	size_t n = 0;

	hc_assert(n_ways * n_each + n_once <= RIG_TESTS_MAX);
	for (size_t i = 0; i < n_ways * n_each; i++) {
		const struct way *way = &ways[i / n_each];

		if (leave && leave(each[i % n_each].test_func, way))
			continue;
		all[n] = each[i % n_each];
		snprintf(names[n], sizeof(names[n]), "%s on %s", all[n].name, way->name);
		all[n].name = names[n];
		all[n++].initial_state = (void *)(uintptr_t)way;
	}
	for (size_t i = 0; i < n_once; i++)
		all[n++] = once[i];
	cmocka_set_message_output(CM_OUTPUT_TAP);
	hicache_log_sink_set(rig_log, NULL);
	return _cmocka_run_group_tests(group, all, n, NULL, NULL);
}

static inline int transfer_rig_run(const char *group, const struct way *ways, size_t n_ways,
				   const struct CMUnitTest *each, size_t n_each,
				   const struct CMUnitTest *once, size_t n_once)
{
	return transfer_rig_run_but(group, ways, n_ways, each, n_each, once, n_once, NULL);
}

#endif
