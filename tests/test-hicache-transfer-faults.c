/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers of the cache's pages when the driver is absent, old, poor, broken or busy. Through the
 * shared library, on the fake driver. */
#include "tests/transfer-rig.h"

/* Goal: no driver, no GPU, an old driver: -ENODEV by name, and the CPU where any device will do. */
static void test_no_device(void **state)
{
	struct fake_cuda_config none = {.no_devices = true}, old = {.old_driver = true};
	struct hicache_device_params absent = {.size = sizeof(absent),
					       .library = "/nonexistent/libcuda.so.1"};
	struct hicache_device_info info = {.size = sizeof(info)};

	(void)state;
	fake_load();
	for (int i = 0; i < 3; i++) {
		struct hicache_device_params params = absent;

		if (i)
			params.library = fake.path;
		fake.reset(i == 1 ? &none : &old);
		assert_int_equal(hicache_device_open("cuda:0", &params, &device), -ENODEV);
		assert_error("cuda:0");
		assert_int_equal(hicache_device_open("auto", &params, &device), 0);
		assert_int_equal(hicache_device_get(device, &info), 0);
		assert_string_equal(info.kind, "cpu");
		assert_int_equal(hicache_device_close(device), 0);
	}
	device = NULL;
	fake_check();
}

/* Goal: a stream that is being captured is -EBUSY, before anything was taken. */
static void test_capture(void **state)
{
	uint32_t page, host;
	int64_t producer;

	engine_open(*state);
	assert_int_equal(hicache_transfer_device_alloc(transfer, 1, &page), 0);
	assert_int_equal(fake.capture(stream, true), 0);
	assert_int_equal(hicache_transfer_write(transfer, &page, 1, 0, 0, 0, stream, &host),
			 -EBUSY);
	assert_int_equal(number("n_queued"), 0);
	assert_int_equal(number("host_free_pages"), POOL / RIG_PAGE);
	assert_int_equal(fake.capture(stream, false), 0);
	assert_int_equal(hicache_transfer_write(transfer, &page, 1, 0, 3, 0, stream, &host), 0);
	ack_expect(HICACHE_WRITES, 3, 1);
	assert_int_equal(
		hicache_transfer_load(transfer, &host, 1, 0, 4, HICACHE_GIVEN_PAGES, &page), 0);
	assert_int_equal(fake.capture(stream, true), 0);
	assert_int_equal(hicache_transfer_start_loading(transfer, stream, &producer), -EBUSY);
	assert_int_equal(fake.capture(stream, false), 0);
	assert_int_equal(hicache_transfer_start_loading(transfer, stream, &producer), 0);
	assert_int_equal(forward(producer), 0);
	ack_expect(HICACHE_LOADS, 4, 1);
	engine_close();
}

/* A load of `from` and a write of it to `to`, each step of which may fail. True: all went well. */
static bool one_life(const struct hicache_hash *from, const struct hicache_hash *to)
{
	uint32_t host[N], written[N], device_pages[N];
	struct hicache_ack ack;
	int results[N];
	int64_t producer;
	size_t got;
	int rc;

	assert_int_equal(hicache_transfer_acquire(transfer, from, N, RIG_TIMEOUT, host, &got), 0);
	rc = hicache_transfer_load(transfer, host, N, 0, 1, 0, device_pages);
	if (!rc)
		rc = hicache_transfer_start_loading(transfer, stream, &producer);
	if (!rc && producer >= 0)
		rc = forward(producer);
	if (rc || ack_take(HICACHE_LOADS, &ack) || ack.status)
		return false;
	rc = hicache_transfer_write(transfer, device_pages, N, 0, 2, 0, stream, written);
	if (rc || ack_take(HICACHE_WRITES, &ack) || ack.status)
		return false;
	assert_int_equal(hicache_transfer_publish(transfer, written, to, N, NULL, results), 0);
	return true;
}

/* After whatever happened nothing hangs, and the cache has every page back. */
static void close_after_failure(void)
{
	assert_int_equal(hicache_transfer_reset(transfer, RIG_TIMEOUT), 0);
	assert_int_equal(number("n_leased_pages"), 0);
	assert_int_equal(number("n_in_flight"), 0);
	assert_int_equal(hicache_transfer_close(transfer, RIG_TIMEOUT), 0);
	transfer = NULL;
	assert_int_equal(rig_stat("n_held"), 0);
}

/* In a cache that has `from`. */
static bool fail_one(const struct way *way, uint64_t n, int result, bool sticky, bool *told_p)
{
	struct hicache_hash from[N], to[N];
	const char *failed;
	bool good;

	transfer_open(way);
	rig_chain(1, from, N);
	rig_chain(1000, to, N);
	fake.fail_nth(n, result, sticky);
	good = one_life(from, to);
	fake.calls(&failed);
	if (!sticky || !failed)
		fake.fail_nth(0, 0, false);
	close_after_failure();
	if (sticky && failed) {
		/* What is lost does no more work. */
		fake.abandon();
		assert_int_equal(hicache_stream_destroy(device, stream), 0);
		assert_int_equal(hicache_device_close(device), 0);
		device = NULL;
		fake.abandon();
	} else {
		device_close();
	}
	*told_p = failed && !good;
	if (good)
		rig_expect_as(to, from, N);
	assert_int_equal(hicache_remove(rig_series, to, N, NULL), 0);
	assert_int_equal(rig_stat("n_pages"), N);
	assert_int_equal(rig_stat("pool_used_bytes"), N * RIG_PAGE);
	return failed != NULL;
}

/* Goal: whichever call of the driver fails once during a load and a write of pages of the cache,
 * somebody is told, every page goes back to the cache, nothing hangs and no wrong page is
 * published. */
static void test_each_call_fails(void **state)
{
	struct hicache_hash from[N];
	uint64_t n, n_told = 0;
	bool told;

	cache_open();
	rig_chain(1, from, N);
	rig_publish(from, N);
	for (n = 1; fail_one(*state, n, n % 2 ? 2 : 1, false, &told); n++)
		n_told += told;
	print_message("# %llu calls, %llu failures told\n", (unsigned long long)n - 1,
		      (unsigned long long)n_told);
	assert_true(n_told > 10);
	rig_close();
}

/* Goal: a device that is lost ends everything with an error; pages of the cache that it may still
 * have written into are kept until the transfer is closed. */
static void test_device_lost(void **state)
{
	struct hicache_hash from[N];
	uint64_t n, n_told = 0;
	bool told;

	cache_open();
	rig_chain(1, from, N);
	rig_publish(from, N);
	/* The last call of all may be one that nothing hangs on. */
	for (n = 1; fail_one(*state, n, 700, true, &told); n += 3)
		n_told += told;
	assert_true(n_told > 10);
	rig_close();
}
static const struct way ways[] = {
	{.name = "cuda", .device = "cuda"},
	{.name = "cuda, direct, no batches",
	 .device = "cuda",
	 .no_batch = true,
	 .io = HICACHE_IO_DIRECT},
	{.name = "cuda, kernel", .device = "cuda", .io = HICACHE_IO_KERNEL},
	{.name = "cuda, no registration", .device = "cuda", .no_registration = true},
};

static const struct CMUnitTest each[] = {
	cmocka_unit_test(test_capture),
	cmocka_unit_test(test_each_call_fails),
	cmocka_unit_test(test_device_lost),
};

static const struct CMUnitTest once[] = {
	cmocka_unit_test(test_no_device),
};

int main(void)
{
	return transfer_rig_run("hicache-transfer-faults", ways, HC_ARRAY_SIZE(ways), each,
				HC_ARRAY_SIZE(each), once, HC_ARRAY_SIZE(once));
}
