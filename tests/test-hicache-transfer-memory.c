/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers when memory is out. Goal: whichever allocation of the calling thread fails, in
 * whichever call, the call says -ENOMEM (or the ack does, of what was started), nothing stays held,
 * and the same call made again moves the right bytes. Method: the library is linked in whole, its
 * allocations go through here; each call is made with its first allocation failing, then its
 * second, until it has no more. Other threads' allocations never fail. */
#include "tests/transfer-rig.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);

/* The allocation of this thread that fails, counted down; 0: none. */
static _Thread_local uint32_t fail_in;
static uint32_t n_failed;

static bool fail_this(void)
{
	if (!fail_in || --fail_in)
		return false;
	n_failed++;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return fail_this() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fail_this() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
	return fail_this() ? NULL : __real_realloc(old, size);
}

/* Makes the call with its 1st, 2nd, ... allocation failing, until it needs fewer. Each failure is
 * either told, or the call does without that memory; `undo` takes back what it did then. */
#define EACH_FAILS(rc, call, undo)                                                               \
	do {                                                                                     \
		for (uint32_t nth_ = 1;; nth_++) {                                               \
			uint32_t before_ = n_failed;                                             \
                                                                                                 \
			rig_error[0] = 0;                                                        \
			fail_in = nth_;                                                          \
			(rc) = (call);                                                           \
			fail_in = 0;                                                             \
			if (n_failed == before_)                                                 \
				break;                                                           \
			if (!(rc)) {                                                             \
				undo;                                                            \
				continue;                                                        \
			}                                                                        \
			if ((rc) != -ENOMEM)                                                     \
				fail_msg("%s, allocation %u: %s", #call, nth_, strerror(-(rc))); \
			assert_error("memory");                                                  \
		}                                                                                \
		if (rc)                                                                          \
			fail_msg("%s, again: %s", #call, strerror(-(rc)));                       \
	} while (0)

static void nothing_held(void)
{
	assert_int_equal(number("n_leased_pages"), 0);
	assert_int_equal(number("n_in_flight"), 0);
	assert_int_equal(number("n_queued"), 0);
}

static void open_all(const struct way *way)
{
	struct hicache_transfer_params params = params_of(way);
	int rc;

	way_reset(way);
	EACH_FAILS(rc, device_open(way->device, 0),
		   assert_int_equal(hicache_device_close(device), 0));
	EACH_FAILS(rc, hicache_stream_create(device, &stream),
		   assert_int_equal(hicache_stream_destroy(device, stream), 0));
	EACH_FAILS(rc, hicache_transfer_open(device, rig_series, &params, &transfer),
		   assert_int_equal(hicache_transfer_close(transfer, RIG_TIMEOUT), 0));
}

/* An ack of what an allocation failed for. */
static bool ack_failed(uint32_t direction)
{
	struct hicache_ack ack;

	assert_int_equal(ack_take(direction, &ack), 0);
	assert_true(!ack.status || ack.status == -ENOMEM);
	assert_int_equal(ack.n_pages, N);
	return ack.status;
}

/* Starts what is queued with its nth allocation failing: the queue stays, or an ack says -ENOMEM,
 * and then the load is queued again. True: nothing failed. */
static bool start_once(uint32_t nth, const uint32_t *host, uint32_t *device_pages)
{
	uint32_t before = n_failed;
	int64_t producer = -2;
	bool whole;
	int rc;

	fail_in = nth;
	rc = hicache_transfer_start_loading(transfer, stream, &producer);
	fail_in = 0;
	whole = n_failed == before;
	if (rc == -ENOMEM) {
		assert_int_equal(number("n_queued"), 1);
		return false;
	}
	if (rc) {
		assert_int_equal(rc, -EIO);
		assert_true(ack_failed(HICACHE_LOADS));
		assert_int_equal(hicache_transfer_load(transfer, host, N, 0, 1, HICACHE_GIVEN_PAGES,
						       device_pages),
				 0);
		return false;
	}
	assert_true(producer >= 0);
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		EACH_FAILS(rc, hicache_transfer_wait_layer(transfer, producer, layer, stream), );
	assert_false(ack_failed(HICACHE_LOADS));
	if (!whole)
		assert_int_equal(hicache_transfer_load(transfer, host, N, 0, 1, HICACHE_GIVEN_PAGES,
						       device_pages),
				 0);
	return whole;
}

static void load_all(const struct hicache_hash *from, uint32_t *device_pages)
{
	uint32_t host[N], free_pages = (uint32_t)number("device_free_pages"), nth = 1;
	size_t got;
	int rc;

	EACH_FAILS(rc, hicache_transfer_acquire(transfer, from, N, RIG_TIMEOUT, host, &got),
		   assert_int_equal(hicache_transfer_evict_host(transfer, host, got), 0));
	assert_int_equal(got, N);
	EACH_FAILS(rc, hicache_transfer_load(transfer, host, N, 0, 1, 0, device_pages),
		   fail_msg("loaded without memory"));
	assert_int_equal(number("device_free_pages"), free_pages - N);
	assert_int_equal(number("n_queued"), 1);
	while (!start_once(nth, host, device_pages))
		nth++;
	assert_true(nth > 1);
	nothing_held();
	assert_int_equal(hicache_transfer_evict_host(transfer, host, N), 0);
}

/* A write with its nth allocation failing. False: nothing failed. */
static bool write_once(uint32_t nth, const uint32_t *device_pages, uint32_t *host)
{
	uint32_t before = n_failed;
	int rc;

	rig_error[0] = 0;
	fail_in = nth;
	rc = hicache_transfer_write(transfer, device_pages, N, 0, 1, 0, stream, host);
	fail_in = 0;
	if (rc) {
		assert_int_equal(rc, -ENOMEM);
		assert_error("memory");
	} else {
		bool failed = ack_failed(HICACHE_WRITES);

		for (uint32_t i = 0; i < N; i++)
			assert_int_equal(hicache_transfer_host_complete(transfer, host[i]),
					 !failed);
		if (n_failed == before)
			return false;
		assert_int_equal(hicache_transfer_evict_host(transfer, host, N), 0);
	}
	nothing_held();
	assert_int_equal(number("host_free_pages"), POOL / RIG_PAGE);
	return true;
}

static void write_all(const uint32_t *device_pages, const struct hicache_hash *to)
{
	uint32_t host[N], nth = 1;
	int results[N], rc;

	while (write_once(nth, device_pages, host))
		nth++;
	assert_true(nth > 1);
	EACH_FAILS(rc, hicache_transfer_publish(transfer, host, to, N, NULL, results), {
		/* One page's memory was missing: that one is gone, the cache has the others. */
		for (uint32_t i = 0; i < N; i++)
			assert_true(!results[i] || results[i] == -ENOMEM);
		assert_int_equal(hicache_remove(rig_series, to, N, NULL), 0);
		assert_int_equal(
			hicache_transfer_write(transfer, device_pages, N, 0, 1, 0, stream, host),
			0);
		assert_false(ack_failed(HICACHE_WRITES));
	});
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(results[i], 0);
}

static void test_each_allocation_fails(void **state)
{
	struct hicache_hash from[N], to[N];
	uint32_t device_pages[N];

	cache_open();
	rig_chain(1, from, N);
	rig_chain(1000, to, N);
	rig_publish(from, N);
	n_failed = 0;
	open_all(*state);
	load_all(from, device_pages);
	write_all(device_pages, to);
	nothing_held();
	assert_int_equal(hicache_transfer_evict_device(transfer, device_pages, N), 0);
	assert_int_equal(number("device_free_pages"), 4 * N);
	device_close();
	assert_int_equal(rig_stat("n_held"), 0);
	rig_expect_as(to, from, N);
	assert_int_equal(rig_stat("pool_used_bytes"), 2 * N * RIG_PAGE);
	rig_close();
	print_message("# %u allocations failed\n", n_failed);
	assert_true(n_failed > 100);
}

static const struct way ways[] = {
	{.name = "cpu", .device = "cpu"},
	{.name = "cpu, direct", .device = "cpu", .io = HICACHE_IO_DIRECT},
#ifdef HC_TEST_CUDA
	{.name = "cuda", .device = "cuda"},
	{.name = "cuda, kernel", .device = "cuda", .io = HICACHE_IO_KERNEL},
	{.name = "cuda, no registration", .device = "cuda", .no_registration = true},
#endif
};

int main(void)
{
	static const struct CMUnitTest each[] = {cmocka_unit_test(test_each_allocation_fails)};

	return transfer_rig_run("hicache-transfer-memory", ways, HC_ARRAY_SIZE(ways), each,
				HC_ARRAY_SIZE(each), NULL, 0);
}
