/* SPDX-License-Identifier: Apache-2.0 */
/* What the device cuda does with drivers that are absent, old, poor or broken, and that the checker
 * of order in the fake driver finds what it should. The contract itself: test-device.c. */
#include "tests/device-rig.h"
#include "tests/fake-cuda/rig.h"

#define KIB 1024

/* enum cudaError_enum, as the driver's ABI has it. */
#define OUT_OF_MEMORY   2
#define INVALID_VALUE   1
#define ILLEGAL_ADDRESS 700

static struct hc_device *open_with(const struct fake_cuda_config *config)
{
	struct hc_device *device;

	assert_int_equal(fake_open(config, &device), 0);
	return device;
}

/* Goal: a machine without a driver, without a GPU, or with a driver that is too old is -ENODEV, and
 * leaves nothing behind. */
static void test_no_device(void **state)
{
	struct fake_cuda_config none = {.no_devices = true}, old = {.old_driver = true};
	struct hc_cuda_config absent = {.library = "/nonexistent/libcuda.so.1"};
	struct hc_cuda_config wrong = {.library = fake.path, .ordinal = 3};
	struct hc_device *device;

	assert_int_equal(hc_cuda_open(&absent, &device), -ENODEV);
	assert_int_equal(fake_open(&none, &device), -ENODEV);
	assert_int_equal(fake_open(&old, &device), -ENODEV);
	fake.reset(&(struct fake_cuda_config){.seed = 1});
	assert_int_equal(hc_cuda_open(&wrong, &device), -ENODEV);
	wrong.ordinal = -1;
	assert_int_equal(hc_cuda_open(&wrong, &device), -ENODEV);
	fake_check();
}

/* Goal: a library that is no driver at all is refused. Method: libc. */
static void test_not_a_driver(void **state)
{
	struct hc_cuda_config config = {.library = "libc.so.6"};
	struct hc_device *device;

	assert_int_equal(hc_cuda_open(&config, &device), -ENODEV);
}

/* Goal: what the device tells of itself is what the driver says. */
static void test_info(void **state)
{
	struct hc_device *device = open_with(&(struct fake_cuda_config){.driver_version = 12040});
	struct hc_device_info info;

	hc_device_info(device, &info);
	assert_string_equal(info.name, "fake GPU");
	assert_int_equal(info.driver_version, 12040);
	assert_int_equal(info.free_bytes, 16 * HC_GIB);
	assert_true(info.threads && info.kernels && info.batch_native);
	hc_device_close(device);
	device = open_with(&(struct fake_cuda_config){.no_batch = true});
	hc_device_info(device, &info);
	assert_false(info.batch_native);
	hc_device_close(device);
	fake_check();
}

/* Goal: batches that the driver lacks, or has in name only, are single copies; the second time it
 * is not asked again. Method: count the driver's calls. */
static void test_batch_fallback(void **state)
{
	struct hc_device *device = open_with(&(struct fake_cuda_config){.batch_unsupported = true});
	struct hc_device_stream *stream = new_stream(device);
	struct buffer a = host_buffer(device, 4 * KIB, 1), b = host_buffer(device, 4 * KIB, 2);
	struct hc_device_copy copies[4];
	struct hc_device_info info;
	uint64_t before, between;

	for (uint64_t i = 0; i < 4; i++)
		copies[i] = (struct hc_device_copy){a.addr + i * KIB, b.addr + i * KIB, KIB};
	before = fake.calls(NULL);
	assert_int_equal(hc_device_copy(stream, copies, 4), 0);
	between = fake.calls(NULL);
	assert_int_equal(between - before, 4 + 1 + 4);
	assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
	assert_memory_equal(a.host, b.host, 4 * KIB);
	hc_device_info(device, &info);
	assert_false(info.batch_native);
	before = fake.calls(NULL);
	assert_int_equal(hc_device_copy(stream, copies, 4), 0);
	assert_int_equal(fake.calls(NULL) - before, 4 + 4);
	assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
	host_buffer_free(device, &a);
	host_buffer_free(device, &b);
	hc_device_stream_destroy(stream);
	hc_device_close(device);
	fake_check();
}

/* Goal: a GPU that no kernel suits opens all the same; page copies are -ENOTSUP, others work. */
static void test_no_kernels(void **state)
{
	struct hc_device *device = open_with(&(struct fake_cuda_config){.no_kernels = true});
	struct hc_device_stream *stream = new_stream(device);
	struct buffer a = host_buffer(device, KIB, 1), pairs = host_buffer(device, 16, 2);
	hc_device_addr mem = device_buffer(device, KIB);
	struct hc_page_copy copy = {.src = a.addr,
				    .dst = mem,
				    .pairs = pairs.addr,
				    .count = {1, 1, 1, 1, 1},
				    .run_bytes = 64,
				    .n_pages = 1};

	memset(pairs.host, 0, 16);
	assert_int_equal(hc_device_page_copy(stream, HC_PAGE_GATHER, &copy), -ENOTSUP);
	assert_int_equal(copy_one(stream, mem, a.addr, KIB), 0);
	assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
	assert_int_equal(hc_device_health(device), 0);
	host_buffer_free(device, &a);
	host_buffer_free(device, &pairs);
	hc_device_mem_free(device, mem);
	hc_device_stream_destroy(stream);
	hc_device_close(device);
	fake_check();
}

/* Goal: no device memory, and no registration, are -ENOMEM and harm nothing. */
static void test_no_memory(void **state)
{
	struct fake_cuda_config config = {.memory_bytes = 64 * KIB, .no_registration = true};
	struct hc_device *device = open_with(&config);
	static _Alignas(4096) unsigned char host[4096];
	hc_device_addr a, b;

	assert_int_equal(hc_device_mem_alloc(device, 48 * KIB, &a), 0);
	assert_int_equal(hc_device_mem_alloc(device, 48 * KIB, &b), -ENOMEM);
	assert_int_equal(hc_device_host_register(device, host, sizeof(host), false, &b), -ENOMEM);
	assert_int_equal(hc_device_health(device), 0);
	hc_device_mem_free(device, a);
	hc_device_close(device);
	fake_check();
}

/* Goal: host memory that the engine has pinned is used as it is, and stays pinned; a piece that
 * reaches beyond it is refused. Method: another device on the same driver is the engine. */
static void test_pinned_by_engine(void **state)
{
	struct hc_device *engine = open_with(&(struct fake_cuda_config){.seed = 1});
	struct hc_device *device = open_with(&(struct fake_cuda_config){.seed = 1});
	struct hc_device_stream *stream = new_stream(device);
	static _Alignas(4096) unsigned char host[8 * 4096];
	hc_device_addr mem = device_buffer(device, 4 * 4096), pinned, alias, other;
	struct fake_cuda_live live;

	assert_int_equal(hc_device_host_register(engine, host, 4 * 4096, false, &pinned), 0);
	assert_int_not_equal(hc_device_host_register(device, host, 8 * 4096, false, &other), 0);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(hc_device_host_register(device, host, 4 * 4096, false, &alias), 0);
		assert_true(alias == pinned);
		memset(host, 7 + round, 4 * 4096);
		assert_int_equal(copy_one(stream, mem, alias, 4 * 4096), 0);
		assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
		memset(host, 0, 4 * 4096);
		assert_int_equal(copy_one(stream, alias, mem, 4 * 4096), 0);
		assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
		assert_int_equal(host[4 * 4096 - 1], 7 + round);
		hc_device_host_unregister(device, alias);
		fake.live(&live);
		assert_int_equal(live.n_registrations, 1);
	}
	hc_device_host_unregister(engine, pinned);
	hc_device_mem_free(device, mem);
	hc_device_stream_destroy(stream);
	hc_device_close(device);
	hc_device_close(engine);
	fake_check();
}

/* Goal: a stream of another context is refused by name; one that was never made, too. */
static void test_foreign_stream(void **state)
{
	struct hc_device *device = open_with(&(struct fake_cuda_config){.seed = 1});
	struct hc_device_stream *stream;

	assert_int_equal(hc_device_stream_import(device, fake.foreign(), &stream), -EXDEV);
	assert_int_equal(hc_device_stream_import(device, 0x12345670, &stream), -EXDEV);
	assert_int_equal(hc_device_health(device), 0);
	hc_device_close(device);
	fake_check();
}

/* Goal: an error that the driver repeats for ever loses the device: every later call is -EIO
 * without the driver being asked, and everything can still be given back. */
static void test_lost(void **state)
{
	struct hc_device *device = open_with(&(struct fake_cuda_config){.seed = 1});
	struct hc_device_stream *stream = new_stream(device), *other;
	struct hc_device_event *event = new_event(device);
	struct buffer a = host_buffer(device, KIB, 1);
	hc_device_addr mem = device_buffer(device, KIB), addr;
	uint64_t n;

	fake.fail_nth(3, ILLEGAL_ADDRESS, false);
	assert_int_equal(copy_one(stream, mem, a.addr, KIB), -EIO);
	n = fake.calls(NULL);
	assert_int_equal(hc_device_health(device), -EIO);
	assert_int_equal(copy_one(stream, mem, a.addr, KIB), -EIO);
	assert_int_equal(hc_device_event_record(event, stream), -EIO);
	assert_int_equal(hc_device_event_query(event), -EIO);
	assert_int_equal(hc_device_stream_wait(stream, event), -EIO);
	assert_int_equal(hc_device_stream_drain(stream, soon()), -EIO);
	assert_int_equal(hc_device_stream_create(device, HC_DEVICE_PRIORITY_LOW, &other), -EIO);
	assert_int_equal(hc_device_mem_alloc(device, KIB, &addr), -EIO);
	assert_int_equal(fake.calls(NULL), n);
	/* A real driver frees what is left when the process ends. */
	host_buffer_free(device, &a);
	hc_device_mem_free(device, mem);
	hc_device_event_destroy(event);
	hc_device_stream_destroy(stream);
	hc_device_close(device);
	fake.abandon();
	fake_check();
}

static int one_life(void)
{
	struct hc_cuda_config cuda = {.library = fake.path};
	struct hc_device_stream *stream = NULL;
	struct hc_device_event *event = NULL;
	hc_device_addr mem = 0, alias = 0;
	struct hc_device *device;
	void *host;
	int err = hc_cuda_open(&cuda, &device);

	if (err)
		return err;
	err = hc_device_stream_create(device, HC_DEVICE_PRIORITY_HIGH, &stream);
	if (!err)
		err = hc_device_event_create(device, &event);
	if (!err)
		err = hc_device_mem_alloc(device, KIB, &mem);
	if (!err)
		err = hc_device_host_alloc(device, KIB, &host, &alias);
	if (!err)
		memset(host, 7, KIB);
	if (!err)
		err = copy_one(stream, mem, alias, KIB);
	if (!err)
		err = hc_device_event_record(event, stream);
	/* A drain that failed says nothing of the work: memory is given back after one that did
	 * not. */
	for (int i = 0; i < 2 && stream && hc_device_stream_drain(stream, soon()); i++)
		err = err ? err : -EIO;
	hc_device_host_free(device, alias);
	hc_device_mem_free(device, mem);
	hc_device_event_destroy(event);
	hc_device_stream_destroy(stream);
	hc_device_close(device);
	return err;
}

/* Goal: whichever call of the driver fails once, the one who made it gets an error (or the driver
 * was only asked for something that can do without), nothing leaks, and the next life is whole. */
static void test_each_call_fails(void **state)
{
	uint64_t n_failed = 0;

	fake.reset(&(struct fake_cuda_config){.seed = 1});
	for (uint64_t n = 1;; n++) {
		const char *failed;
		int err;

		fake.fail_nth(n, n % 2 ? OUT_OF_MEMORY : INVALID_VALUE, false);
		err = one_life();
		fake.calls(&failed);
		fake.fail_nth(0, 0, false);
		if (!failed) {
			assert_int_equal(err, 0);
			break;
		}
		n_failed += err != 0;
		fake_check();
		assert_int_equal(one_life(), 0);
	}
	assert_true(n_failed >= 20);
}

/* The unordered pair of accesses of each kind, without and with what orders them. */
static uint32_t races_of(int what, bool ordered)
{
	struct fake_cuda_config config = {.seed = 9, .delay_max_ns = 50 * HC_NS_PER_US};
	struct hc_device *device = open_with(&config);
	struct hc_device_stream *a = new_stream(device), *b = new_stream(device);
	struct hc_device_event *event = new_event(device);
	struct buffer host = host_buffer(device, KIB, 1);
	hc_device_addr mem = device_buffer(device, KIB), mem2 = device_buffer(device, KIB);
	uint32_t n;

	assert_int_equal(copy_one(a, mem, host.addr, KIB), 0);
	assert_int_equal(hc_device_event_record(event, a), 0);
	switch (what) {
	case 0: /* another stream reads what was written */
		if (ordered)
			assert_int_equal(hc_device_stream_wait(b, event), 0);
		assert_int_equal(copy_one(b, mem2, mem, KIB), 0);
		break;
	case 1: /* the host rewrites the source */
		while (ordered && hc_device_event_query(event))
			continue;
		fake.touch(host.host, KIB, true, "rewriting");
		break;
	case 2: /* the host reads the source: no conflict either way */
		fake.touch(host.host, KIB, false, "reading");
		break;
	default: /* the wait is for a record before the copy */
		assert_int_equal(copy_one(a, mem2, mem, KIB), 0);
		if (ordered)
			assert_int_equal(hc_device_event_record(event, a), 0);
		assert_int_equal(hc_device_stream_wait(b, event), 0);
		assert_int_equal(copy_one(b, mem, mem2, KIB), 0);
	}
	assert_int_equal(hc_device_stream_drain(a, soon()), 0);
	assert_int_equal(hc_device_stream_drain(b, soon()), 0);
	n = fake.races(NULL);
	host_buffer_free(device, &host);
	hc_device_mem_free(device, mem);
	hc_device_mem_free(device, mem2);
	hc_device_event_destroy(event);
	hc_device_stream_destroy(a);
	hc_device_stream_destroy(b);
	hc_device_close(device);
	return n;
}

/* Goal: the checker finds every unordered pair and no other, each time. */
static void test_checker(void **state)
{
	for (int i = 0; i < 10; i++) {
		for (int what = 0; what < 4; what++) {
			assert_int_equal(races_of(what, true), 0);
			/* These race indeed, which the thread sanitizer sees, too. */
			if (!IS_TSAN || what == 2)
				assert_int_equal(races_of(what, false) > 0, what != 2);
		}
	}
}

/* Goal: page pairs that are rewritten while a copy may still read them are found, a second copy of
 * the same pairs is none. */
static void test_checker_pairs(void **state)
{
	for (int rewritten = 0; rewritten < 2; rewritten++) {
		struct hc_device *device = open_with(&(struct fake_cuda_config){.seed = 2});
		struct hc_device_stream *stream = new_stream(device);
		struct buffer a = host_buffer(device, KIB, 1);
		struct buffer pairs = host_buffer(device, 16, 2);
		hc_device_addr mem = device_buffer(device, KIB);
		struct hc_page_copy copy = {.src = a.addr,
					    .dst = mem,
					    .pairs = pairs.addr,
					    .count = {1, 1, 1, 1, 1},
					    .run_bytes = 64,
					    .n_pages = 1};

		memset(pairs.host, 0, 16);
		assert_int_equal(hc_device_page_copy(stream, HC_PAGE_GATHER, &copy), 0);
		if (rewritten)
			((struct hc_page_pair *)(void *)pairs.host)->src = 128;
		assert_int_equal(hc_device_page_copy(stream, HC_PAGE_GATHER, &copy), 0);
		assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
		assert_int_equal(fake.races(NULL) > 0, rewritten);
		host_buffer_free(device, &a);
		host_buffer_free(device, &pairs);
		hc_device_mem_free(device, mem);
		hc_device_stream_destroy(stream);
		hc_device_close(device);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_device),
		cmocka_unit_test(test_not_a_driver),
		cmocka_unit_test(test_info),
		cmocka_unit_test(test_batch_fallback),
		cmocka_unit_test(test_no_kernels),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_foreign_stream),
		cmocka_unit_test(test_pinned_by_engine),
		cmocka_unit_test(test_checker),
		cmocka_unit_test(test_checker_pairs),
		cmocka_unit_test(test_each_call_fails),
		cmocka_unit_test(test_lost),
	};

	fake_load();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
