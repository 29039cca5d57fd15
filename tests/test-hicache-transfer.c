/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer half of hicache.h, through the shared library: host pages are slots of the cache's
 * pool, or the caller's own memory. On the CPU and, where the device cuda was built, on the fake
 * driver. What each call of the controller promises: test-controller.c; what becomes of it when the
 * driver fails: test-hicache-transfer-faults.c. */
#include "tests/transfer-rig.h"

/* Goal: pages of the cache reach the device and come back as other pages, byte for byte, without a
 * copy by the host; names appear at publish, not before; everything is given back. */
static void test_round_trip(void **state)
{
	const struct way *way = *state;
	struct hicache_hash from[N], to[N];
	struct hicache_page pages[N];
	uint32_t device_pages[N], host[N];
	int results[N];
	size_t got;

	engine_open(way);
	rig_chain(1, from, N);
	rig_chain(1000, to, N);
	rig_publish(from, N);
	load_chain(from, device_pages);
	assert_int_equal(hicache_transfer_write(transfer, device_pages, N, HICACHE_PRIORITY_DEFAULT,
						9, 0, stream, host),
			 0);
	assert_int_equal(rig_prefix(rig_series, to, N), 0);
	ack_expect(HICACHE_WRITES, 9, N);
	assert_int_equal(hicache_transfer_publish(transfer, host, to, N, NULL, results), 0);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(results[i], 0);
	assert_int_equal(rig_prefix(rig_series, to, N), N);
	assert_int_equal(hicache_acquire(rig_series, to, N, RIG_TIMEOUT, pages, &got), 0);
	assert_int_equal(got, N);
	for (size_t i = 0; i < N; i++)
		assert_true(page_good(&pages[i], &from[i], 0));
	assert_int_equal(hicache_release(rig_hc, pages, N), 0);
	assert_int_equal(hicache_transfer_evict_device(transfer, device_pages, N), 0);
	assert_int_equal(number("n_leased_pages"), 0);
	assert_int_equal(number("device_free_pages"), 4 * N);
	assert_int_equal(number("bounced_pages"), way->no_registration ? 2 * N : 0);
	assert_true(number(way->no_registration ? "unregistered_segments"
						: "registered_segments") >= 1);
	assert_int_equal(number("loads") + number("writes"), 2);
	assert_int_equal(number("way_copy") + number("way_staged") + number("way_kernel"), 2);
	assert_int_equal(rig_stat("n_held"), 0);
	engine_close();
}

/* Goal: what is held shows in the cache, keeps it open, and is given back by evict_host, by close,
 * and by a publish of a page that was there. */
static void test_held(void **state)
{
	struct hicache_hash from[N], to[N];
	uint32_t device_pages[N], host[N], more[N];
	uint64_t free_pages, used;
	int results[N];
	size_t got = 99;

	engine_open(*state);
	rig_chain(1, from, N);
	rig_chain(1000, to, N);
	assert_int_equal(hicache_transfer_acquire(transfer, from, N, 0, host, &got), -ENOENT);
	assert_int_equal(got, 99);
	rig_publish(from, N - 1);
	used = rig_stat("pool_used_bytes");
	free_pages = number("host_free_pages");
	assert_int_equal(hicache_transfer_acquire(transfer, from, N, RIG_TIMEOUT, host, &got), 0);
	assert_int_equal(got, N - 1);
	assert_int_equal(rig_stat("n_held"), N - 1);
	assert_int_equal(number("host_free_pages"), free_pages - (N - 1));
	assert_int_equal(hicache_transfer_publish(transfer, host, to, 1, NULL, results), -EINVAL);
	assert_int_equal(hicache_transfer_evict_host(transfer, host, N - 1), 0);
	assert_int_equal(rig_stat("n_held"), 0);
	assert_int_equal(hicache_transfer_evict_host(transfer, host, 1), -EINVAL);

	/* Written, not published; and published where a page is. */
	assert_int_equal(hicache_transfer_device_alloc(transfer, N, device_pages), 0);
	assert_int_equal(hicache_transfer_write(transfer, device_pages, 2, 1, 1, HICACHE_QUEUE_ONLY,
						stream, host),
			 0);
	assert_int_equal(hicache_transfer_publish(transfer, host, to, 2, NULL, results), -EBUSY);
	assert_int_equal(hicache_transfer_start_writing(transfer, stream), 0);
	ack_expect(HICACHE_WRITES, 1, 2);
	assert_true(rig_stat("pool_used_bytes") == used + 2 * RIG_PAGE);
	assert_int_equal(hicache_transfer_publish(transfer, host, from, 2, NULL, results), 0);
	assert_int_equal(results[0], -EEXIST);
	assert_int_equal(results[1], -EEXIST);
	assert_int_equal(rig_stat("pool_used_bytes"), used);
	assert_int_equal(hicache_transfer_write(transfer, device_pages, 2, 1, 2, 0, stream, host),
			 0);
	ack_expect(HICACHE_WRITES, 2, 2);
	assert_int_equal(hicache_transfer_acquire(transfer, from, 2, RIG_TIMEOUT, more, &got), 0);
	assert_int_equal(hicache_close(rig_hc), -EBUSY);
	assert_error("transfers are open");
	assert_int_equal(hicache_transfer_close(transfer, RIG_TIMEOUT), 0);
	assert_int_equal(rig_stat("n_held"), 0);
	assert_int_equal(rig_stat("pool_used_bytes"), used);
	/* As engine_close, without the transfer. */
	assert_int_equal(hicache_device_close(device), -EBUSY);
	transfer = NULL;
	engine_close();
}

/* Goal: a pool that is full of what is held refuses a write and changes nothing; room comes with
 * evict_host. */
static void test_pool_full(void **state)
{
	struct hicache_transfer_params params = params_of(*state);
	struct hicache_transfer_info info = {.size = sizeof(info)};
	uint32_t device_pages[4], host[4], more[4];

	way_reset(*state);
	cache_open();
	assert_int_equal(device_open(((const struct way *)*state)->device, 0), 0);
	assert_int_equal(hicache_stream_create(device, &stream), 0);
	params.host_pages = 4;
	assert_int_equal(hicache_transfer_open(device, rig_series, &params, &transfer), 0);
	assert_int_equal(hicache_transfer_get(transfer, &info), 0);
	assert_int_equal(info.host_pages, 4);
	assert_int_equal(info.page_bytes, RIG_PAGE);
	assert_int_equal(info.n_layers, LAYERS);
	assert_int_equal(info.page_tokens, TOKENS);
	assert_int_equal(hicache_transfer_device_alloc(transfer, 4, device_pages), 0);
	assert_int_equal(hicache_transfer_write(transfer, device_pages, 3, 0, 1, 0, stream, host),
			 0);
	assert_int_equal(hicache_transfer_write(transfer, device_pages, 2, 0, 2, 0, stream, more),
			 -ENOSPC);
	ack_expect(HICACHE_WRITES, 1, 3);
	assert_int_equal(number("writes"), 1);
	assert_int_equal(number("n_leased_pages"), 0);
	assert_int_equal(number("host_free_pages"), 1);
	assert_int_equal(hicache_transfer_evict_host(transfer, host, 1), 0);
	assert_int_equal(hicache_transfer_write(transfer, device_pages, 2, 0, 2, 0, stream, more),
			 0);
	ack_expect(HICACHE_WRITES, 2, 2);
	engine_close();
}

/* Goal: a quota of the space, and memory that is full of leases, are -EDQUOT and -ENOSPC. */
static void test_no_room(void **state)
{
	struct hicache_space_params limit = {
		.size = sizeof(limit), .quota_bytes = 3 * RIG_PAGE, .set = HICACHE_SET_QUOTA};
	uint32_t device_pages[N], host[N];

	engine_open(*state);
	assert_int_equal(hicache_space_set(rig_space, &limit), 0);
	assert_int_equal(hicache_transfer_device_alloc(transfer, N, device_pages), 0);
	assert_true(hicache_transfer_write(transfer, device_pages, N, 0, 1, 0, stream, host) < 0);
	assert_int_equal(hicache_transfer_write(transfer, device_pages, 3, 0, 1, 0, stream, host),
			 0);
	ack_expect(HICACHE_WRITES, 1, 3);
	assert_int_equal(hicache_transfer_write(transfer, device_pages, 1, 0, 2, 0, stream, host),
			 -EDQUOT);
	engine_close();
}

/* Goal: a load of pages whose write has been started and not finished gets the written bytes, or is
 * refused (-EBUSY) where the CPU would have to wait; a page that a load reads is not published
 * under it. */
static void test_load_of_written(void **state)
{
	const struct way *way = *state;
	struct hicache_hash from[N], to[N];
	uint32_t first[N], second[N], host[N];
	int results[N], rc;
	int64_t producer;

	engine_open(way);
	rig_chain(1, from, N);
	rig_chain(1000, to, N);
	rig_publish(from, N);
	load_chain(from, first);
	assert_int_equal(hicache_transfer_write(transfer, first, N, HICACHE_PRIORITY_DEFAULT, 1,
						HICACHE_QUEUE_ONLY, stream, host),
			 0);
	assert_int_equal(hicache_transfer_load(transfer, host, N, 0, 2, 0, second), -EBUSY);
	assert_int_equal(hicache_transfer_start_writing(transfer, stream), 0);
	rc = hicache_transfer_load(transfer, host, N, 0, 2, 0, second);
	if (rc == -EBUSY) {
		assert_true(way->no_registration);
		ack_expect(HICACHE_WRITES, 1, N);
		rc = hicache_transfer_load(transfer, host, N, 0, 2, 0, second);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(hicache_transfer_publish(transfer, host, to, N, NULL, results), -EBUSY);
	assert_int_equal(hicache_transfer_start_loading(transfer, stream, &producer), 0);
	assert_int_equal(forward(producer), 0);
	ack_expect(HICACHE_LOADS, 2, N);
	assert_int_equal(hicache_transfer_evict_host(transfer, host, N), 0);
	assert_int_equal(hicache_transfer_write(transfer, second, N, 0, 3, 0, stream, host), 0);
	if (!way->no_registration)
		ack_expect(HICACHE_WRITES, 1, N);
	ack_expect(HICACHE_WRITES, 3, N);
	assert_int_equal(hicache_transfer_publish(transfer, host, to, N, NULL, results), 0);
	for (size_t i = 0; i < N; i++) {
		struct hicache_page page;
		size_t got;

		assert_int_equal(hicache_acquire(rig_series, &to[i], 1, RIG_TIMEOUT, &page, &got),
				 0);
		assert_true(page_good(&page, &from[i], 0));
		assert_int_equal(hicache_release(rig_hc, &page, 1), 0);
	}
	engine_close();
}

/* Goal: reset drops what is queued and its pages, and leaves what was acquired. */
static void test_reset(void **state)
{
	struct hicache_ack ack = {.size = sizeof(ack)};
	struct hicache_hash from[N];
	uint32_t device_pages[N], host[N], written[2];
	int64_t producer;
	size_t got;

	engine_open(*state);
	rig_chain(1, from, N);
	rig_publish(from, N);
	for (int round = 0; round < 3; round++) {
		assert_int_equal(
			hicache_transfer_acquire(transfer, from, N, RIG_TIMEOUT, host, &got), 0);
		assert_int_equal(hicache_transfer_load(transfer, host, N, 0, 1, 0, device_pages),
				 0);
		assert_int_equal(hicache_transfer_start_loading(transfer, stream, &producer), 0);
		assert_int_equal(hicache_transfer_write(transfer, device_pages, 2, 0, 1,
							HICACHE_QUEUE_ONLY, stream, written),
				 0);
		assert_int_equal(hicache_transfer_reset(transfer, RIG_TIMEOUT), 0);
		assert_int_equal(number("n_queued") + number("n_in_flight"), 0);
		assert_int_equal(number("n_leased_pages"), 0);
		assert_int_equal(rig_stat("n_held"), N);
		assert_int_equal(hicache_transfer_wait_layer(transfer, producer, 0, stream),
				 -ESTALE);
		assert_int_equal(hicache_transfer_poll(transfer, HICACHE_LOADS, &ack), -EAGAIN);
		assert_int_equal(hicache_transfer_start_loading(transfer, stream, &producer), 0);
		assert_int_equal(producer, -1);
		assert_int_equal(forward(producer), 0);
		assert_int_equal(hicache_transfer_evict_host(transfer, host, N), 0);
		assert_int_equal(hicache_transfer_evict_device(transfer, device_pages, N), 0);
	}
	assert_int_equal(rig_stat("n_held"), 0);
	engine_close();
}

/* Goal: hashes that no name of the series can hold are dropped with their result. */
static void test_unnameable(void **state)
{
	struct hicache_series *series;
	struct hicache_transfer_params params = params_of(*state);
	uint32_t device_pages[2], host[2];
	struct hicache_hash hashes[2];
	int results[2] = {1, 1};

	way_reset(*state);
	cache_open();
	assert_int_equal(
		hicache_series_open(rig_space, RIG_SPEC, "x-{16}.bin", HICACHE_CREATE, &series), 0);
	assert_int_equal(device_open(((const struct way *)*state)->device, 0), 0);
	assert_int_equal(hicache_stream_create(device, &stream), 0);
	assert_int_equal(hicache_transfer_open(device, series, &params, &transfer), 0);
	/* The transfer does not need the handle. */
	assert_int_equal(hicache_series_close(series), 0);
	rig_chain(1, hashes, 2);
	memset(hashes[1].bytes + 8, 0, 24);
	assert_int_equal(hicache_transfer_device_alloc(transfer, 2, device_pages), 0);
	assert_int_equal(hicache_transfer_write(transfer, device_pages, 2, 0, 1, 0, stream, host),
			 0);
	ack_expect(HICACHE_WRITES, 1, 2);
	assert_int_equal(hicache_transfer_publish(transfer, host, hashes, 2, NULL, results), 0);
	assert_int_equal(results[0], -EINVAL);
	assert_int_equal(results[1], 0);
	assert_int_equal(number("n_leased_pages"), 0);
	assert_int_equal(rig_stat("n_pages"), 1);
	engine_close();
}

#define ROW          ((uint64_t)TOKENS * 2 * 16 * 2)
#define TENSOR_BYTES (LAYERS * N * 2 * ROW)

/* Device pages 5, 2, 3 to host memory and from there to 0, 7, 1. */
static void imported_trip(const uint8_t *tensors, const struct hicache_transfer_params *params)
{
	uint32_t pages[3] = {5, 2, 3}, other[3] = {0, 7, 1}, host[3];
	struct hicache_hash hash = {{0}};
	int64_t producer;
	size_t got;
	int result;

	assert_int_equal(hicache_transfer_open(device, NULL, params, &transfer), 0);
	assert_int_equal(hicache_transfer_write(transfer, pages, 3, 0, 1, 0, stream, host), 0);
	ack_expect(HICACHE_WRITES, 1, 3);
	assert_int_equal(hicache_transfer_load(transfer, host, 3, 0, 2, HICACHE_GIVEN_PAGES, other),
			 0);
	assert_int_equal(hicache_transfer_start_loading(transfer, stream, &producer), 0);
	assert_int_equal(forward(producer), 0);
	assert_int_equal(hicache_stream_sync(device, stream, RIG_TIMEOUT), 0);
	ack_expect(HICACHE_LOADS, 2, 3);
	for (uint32_t l = 0; l < LAYERS; l++) {
		for (int p = 0; p < 3; p++)
			assert_memory_equal(tensors + (l * N + pages[p]) * 2 * ROW,
					    tensors + (l * N + (uint64_t)other[p]) * 2 * ROW,
					    2 * ROW);
	}
	assert_int_equal(hicache_transfer_evict_device(transfer, pages, 1), -EINVAL);
	assert_int_equal(hicache_transfer_acquire(transfer, &hash, 1, 0, host, &got), -EINVAL);
	assert_int_equal(hicache_transfer_publish(transfer, host, &hash, 1, NULL, &result),
			 -EINVAL);
	assert_error("the caller's");
	assert_int_equal(hicache_transfer_close(transfer, RIG_TIMEOUT), 0);
}

/* What is one byte too small, or has pages that lie in each other, is refused before it is touched.
 */
static void refuse_imported(struct hicache_transfer_params params)
{
	struct hicache_transfer *none;

	params.host_bytes = TENSOR_BYTES - 1;
	assert_int_equal(hicache_transfer_open(device, NULL, &params, &none), -EINVAL);
	params.host_bytes = TENSOR_BYTES;
	params.page_stride = ROW / 2;
	assert_int_equal(hicache_transfer_open(device, NULL, &params, &none), -EINVAL);
}

/* [page][head][token][K, V][dim]: strides that leave room for another tensor between rows. */
static void interleaved_trip(const uint8_t *tensors, struct hicache_transfer_params params)
{
	uint64_t k[LAYERS], v[LAYERS];

	for (uint32_t l = 0; l < LAYERS; l++) {
		k[l] = (uintptr_t)tensors + l * N * 2 * ROW;
		v[l] = k[l] + 32;
	}
	params.k = k;
	params.v = v;
	params.token_stride = 2 * 32;
	params.head_stride = TOKENS * params.token_stride;
	imported_trip(tensors, &params);
	/* One token nearer, and the last of a head is the first of the next. */
	params.head_stride -= params.token_stride;
	assert_int_equal(hicache_transfer_open(device, NULL, &params, &transfer), -EINVAL);
	assert_error("overlap");
}

/* Goal: an engine's tensors are imported by pointer and strides, K and V interleaved in one tensor
 * of pages; its own host buffer in each of SGLang's layouts takes pages and gives them back. On the
 * CPU, where tensors are ordinary memory. */
static void test_imported(void **state)
{
	static const char *const layouts[] = {"layer_first", "page_first", "page_first_direct",
					      "page_head", "page_unified"};
	uint8_t *tensors = malloc(TENSOR_BYTES);
	void *memory =
		mmap(NULL, TENSOR_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t k[LAYERS], v[LAYERS];

	(void)state;
	assert_non_null(tensors);
	assert_ptr_not_equal(memory, MAP_FAILED);
	assert_int_equal(device_open("cpu", 0), 0);
	assert_int_equal(hicache_stream_create(device, &stream), 0);
	for (uint32_t l = 0; l < LAYERS; l++) {
		k[l] = (uintptr_t)tensors + l * N * 2 * ROW;
		v[l] = k[l] + ROW;
	}
	for (size_t i = 0; i < HC_ARRAY_SIZE(layouts); i++) {
		struct hicache_transfer_params params = {
			.size = sizeof(params),
			.device_pages = N,
			.k = k,
			.v = v,
			.page_stride = 2 * ROW,
			.host = memory,
			.host_bytes = TENSOR_BYTES,
			.host_pages = N,
			.kvspec = RIG_SPEC,
			.host_layout = layouts[i],
			.flags = HICACHE_TRANSFER_ENGINE_PAGES,
		};

		for (uint64_t b = 0; b < TENSOR_BYTES; b++)
			tensors[b] = (uint8_t)(b * 7 + b / ROW * 3 + i);
		imported_trip(tensors, &params);
		/* The other way round: tokens of K and V in turns, heads further apart than tokens.
		 */
		interleaved_trip(tensors, params);
		refuse_imported(params);
	}
	assert_int_equal(hicache_stream_destroy(device, stream), 0);
	assert_int_equal(hicache_device_close(device), 0);
	munmap(memory, TENSOR_BYTES);
	free(tensors);
}

/* Goal: devices and streams that are none are refused by name. */
static void test_device_refusals(void **state)
{
	const struct way *way = *state;
	struct hicache_device_info info = {.size = sizeof(info)}, bad = {0};
	struct hicache_device *other;

	engine_open(way);
	assert_int_equal(hicache_device_open("gpu", NULL, &other), -EINVAL);
	assert_error("'gpu'");
	assert_int_equal(hicache_device_open("cuda:", NULL, &other), -EINVAL);
	assert_int_equal(hicache_device_open("cuda:1x", NULL, &other), -EINVAL);
	assert_int_equal(hicache_device_open("cuda:99999", NULL, &other), -EINVAL);
	assert_int_equal(hicache_device_open(NULL, NULL, &other), -EINVAL);
	assert_int_equal(device_open("cpu", 0x80), -EINVAL);
	assert_error("flags");
	assert_int_equal(hicache_device_get(device, &bad), -EINVAL);
	assert_int_equal(hicache_device_get(device, &info), 0);
	assert_string_equal(info.kind, way->device);
	assert_int_equal(info.health, 0);
	assert_int_equal(hicache_stream_destroy(device, 0x1230), -EINVAL);
	assert_int_equal(hicache_stream_sync(device, 0x1230, 0), -EXDEV);
	assert_int_equal(hicache_stream_sync(device, stream, RIG_TIMEOUT), 0);
	engine_close();
}

static void open_refused(struct hicache_series *series, struct hicache_transfer_params params,
			 int rc, const char *words)
{
	struct hicache_transfer *other;

	assert_int_equal(hicache_transfer_open(device, series, &params, &other), rc);
	assert_error(words);
}

/* Goal: every bad parameter of an open is refused by name, and leaves nothing. */
static void test_open_refusals(void **state)
{
	struct hicache_transfer_params bad = params_of(*state);
	struct hicache_series *undeclared;
	uint32_t odd;

	engine_open(*state);
	bad.size = 8;
	open_refused(rig_series, bad, -EINVAL, "sizeof");
	bad.size = sizeof(bad);
	bad.flags = 0x100;
	open_refused(rig_series, bad, -EINVAL, "flags 0x100");
	bad.flags = 0;
	bad.io = 9;
	open_refused(rig_series, bad, -EINVAL, "io 9");
	bad.io = 0;
	bad.page_stride = 4096;
	open_refused(rig_series, bad, -EINVAL, "strides");
	bad.page_stride = 0;
	bad.device_pages = 0;
	open_refused(rig_series, bad, -EINVAL, "0 device pages");
	bad.device_pages = 1ull << 40;
	open_refused(rig_series, bad, -EINVAL, "1099511627776 device pages");
	bad.device_pages = 4;
	bad.host_pages = UINT32_MAX;
	open_refused(rig_series, bad, -EINVAL, "the pool of 4194304 bytes has 1024");
	bad.host_pages = 0;
	open_refused(NULL, bad, -EINVAL, "a series, or host memory");
	bad.host = (void *)(uintptr_t)4096;
	open_refused(rig_series, bad, -EINVAL, "a series, or host memory");
	bad.kvspec = "layers=2";
	open_refused(NULL, bad, -EINVAL, "kvspec");
	bad.kvspec = "model=m attention=mha layers=99999 kv_heads=2 head_dim=16 dtype=fp16 "
		     "page_tokens=16 layout=page_unified tp=0/1 pp=0/1";
	open_refused(NULL, bad, -ERANGE, "kvspec: layers=99999 is not");
	bad.kvspec = RIG_SPEC;
	bad.host_layout = "upside_down";
	open_refused(NULL, bad, -EINVAL, "'upside_down'");
	bad.host_layout = "page_first";
	open_refused(NULL, bad, -EINVAL, "0 pages");
	bad.host_pages = 100;
	bad.host_bytes = 4096;
	open_refused(NULL, bad, -EINVAL, "does not hold");
	bad.host = &odd;
	open_refused(NULL, bad, -EINVAL, "multiple of 4096");
	assert_int_equal(
		hicache_series_open(rig_space, NULL, "u/{64}.x", HICACHE_CREATE, &undeclared), 0);
	open_refused(undeclared, params_of(*state), -ENODATA, "not declared");
	assert_int_equal(hicache_series_close(undeclared), 0);
	engine_close();
}

/* Goal: pages, streams, layers and producers that are none are refused, and nothing is taken. */
static void test_refusals(void **state)
{
	struct hicache_ack ack = {0};
	uint32_t page = 0, twice[2], host[2];
	int64_t producer;
	uint64_t addr;

	engine_open(*state);
	assert_int_equal(hicache_transfer_tensor(transfer, LAYERS, 0, &addr), -EINVAL);
	assert_int_equal(hicache_transfer_device_alloc(transfer, 0, &page), -EINVAL);
	assert_int_equal(hicache_transfer_device_alloc(transfer, 4 * N + 1, &page), -ENOSPC);
	assert_int_equal(hicache_transfer_write(transfer, &page, 1, 0, 0, 0, stream, &page),
			 -EINVAL);
	assert_int_equal(hicache_transfer_device_alloc(transfer, 1, &page), 0);
	assert_int_equal(hicache_transfer_write(transfer, &page, 1, 0, 0, 0x10, stream, &page),
			 -EINVAL);
	assert_int_equal(hicache_transfer_write(transfer, &page, 1, 0, 0, 0, 0x1230, &page),
			 -EXDEV);
	twice[0] = twice[1] = page;
	assert_int_equal(hicache_transfer_write(transfer, twice, 2, 0, 0, 0, stream, host),
			 -EINVAL);
	assert_int_equal(hicache_transfer_write(transfer, NULL, 1, 0, 0, 0, stream, host), -EINVAL);
	assert_int_equal(hicache_transfer_write(transfer, &page, 1, 0, 0, 0, stream, NULL),
			 -EINVAL);
	assert_int_equal(hicache_transfer_load(transfer, &page, 1, 0, 0, 0, &page), -EINVAL);
	assert_int_equal(hicache_transfer_start_loading(transfer, 0x1230, &producer), -EXDEV);
	assert_int_equal(hicache_transfer_wait_layer(transfer, 5, 0, stream), -EINVAL);
	assert_int_equal(hicache_transfer_wait_layer(transfer, -2, 0, stream), -EINVAL);
	assert_int_equal(hicache_transfer_poll(transfer, 2, &ack), -EINVAL);
	assert_int_equal(hicache_transfer_host_complete(transfer, UINT32_MAX), -EINVAL);
	assert_int_equal(number("host_free_pages"), POOL / RIG_PAGE);
	assert_int_equal(number("n_leased_pages"), 0);
	assert_int_equal(rig_stat("n_held"), 0);
	engine_close();
}

/* Goal: closing nothing is nothing, on every handle. */
/* Goal: a pointer that a call must have and is NULL is -EINVAL with its name, in every call. */
static void test_missing_pointers(void **state)
{
	static const struct way cpu = {.name = "cpu", .device = "cpu"};
	struct hicache_transfer_params params = params_of(&cpu);
	struct hicache_hash hash = {{0}};
	uint32_t page = 0;
	int64_t producer;
	uint64_t value;
	size_t got;
	int result;

#define MISSING(call, name)                      \
	do {                                     \
		rig_error[0] = 0;                \
		assert_int_equal(call, -EINVAL); \
		assert_error(name " is NULL");   \
	} while (0)
	(void)state;
	MISSING(hicache_device_open("cpu", NULL, NULL), "device_p");
	MISSING(hicache_device_get(NULL, NULL), "the device");
	MISSING(hicache_stream_create(NULL, &value), "the device");
	MISSING(hicache_stream_destroy(NULL, 1), "the device");
	MISSING(hicache_stream_sync(NULL, 1, 0), "the device");
	MISSING(hicache_transfer_open(NULL, NULL, &params, &transfer), "the device");
	MISSING(hicache_transfer_get(NULL, NULL), "the transfer");
	MISSING(hicache_transfer_tensor(NULL, 0, 0, &value), "the transfer");
	MISSING(hicache_transfer_device_alloc(NULL, 1, &page), "the transfer");
	MISSING(hicache_transfer_write(NULL, &page, 1, 0, 0, 0, 0, &page), "the transfer");
	MISSING(hicache_transfer_start_writing(NULL, 0), "the transfer");
	MISSING(hicache_transfer_load(NULL, &page, 1, 0, 0, 0, &page), "the transfer");
	MISSING(hicache_transfer_start_loading(NULL, 0, &producer), "the transfer");
	MISSING(hicache_transfer_wait_layer(NULL, 0, 0, 0), "the transfer");
	MISSING(hicache_transfer_poll(NULL, HICACHE_LOADS, NULL), "the transfer");
	MISSING(hicache_transfer_host_complete(NULL, 0), "the transfer");
	MISSING(hicache_transfer_evict_device(NULL, &page, 1), "the transfer");
	MISSING(hicache_transfer_evict_host(NULL, &page, 1), "the transfer");
	MISSING(hicache_transfer_reset(NULL, 0), "the transfer");
	MISSING(hicache_transfer_acquire(NULL, &hash, 1, 0, &page, &got), "the transfer");
	MISSING(hicache_transfer_publish(NULL, &page, &hash, 1, NULL, &result), "the transfer");
	MISSING(hicache_transfer_stats_each(NULL, pick, NULL), "the transfer");
	engine_open(&cpu);
	MISSING(hicache_device_get(device, NULL), "the info");
	MISSING(hicache_stream_create(device, NULL), "stream_p");
	MISSING(hicache_transfer_open(device, rig_series, &params, NULL), "transfer_p");
	MISSING(hicache_transfer_get(transfer, NULL), "the info");
	MISSING(hicache_transfer_tensor(transfer, 0, 0, NULL), "addr_p");
	MISSING(hicache_transfer_device_alloc(transfer, 1, NULL), "an array");
	MISSING(hicache_transfer_start_loading(transfer, stream, NULL), "producer_p");
	MISSING(hicache_transfer_poll(transfer, HICACHE_LOADS, NULL), "the ack");
	MISSING(hicache_transfer_evict_device(transfer, NULL, 1), "device_pages");
	MISSING(hicache_transfer_evict_host(transfer, NULL, 1), "host_pages");
	MISSING(hicache_transfer_acquire(transfer, NULL, 1, 0, &page, &got), "an array");
	MISSING(hicache_transfer_acquire(transfer, &hash, 1, 0, &page, NULL), "an array");
	MISSING(hicache_transfer_publish(transfer, &page, &hash, 1, NULL, NULL), "an array");
	MISSING(hicache_transfer_stats_each(transfer, NULL, NULL), "the callback");
#undef MISSING
	engine_close();
}

/* Goal: what is used by something that is open cannot be closed before it, and says so; a write
 * that is under way ends all the same. */
static void test_closing_order(void **state)
{
	struct hicache_hash hash[1];
	uint32_t page, host;
	int result = 1;

	engine_open(*state);
	rig_chain(1, hash, 1);
	assert_int_equal(hicache_transfer_device_alloc(transfer, 1, &page), 0);
	assert_int_equal(hicache_transfer_write(transfer, &page, 1, 0, 3, 0, stream, &host), 0);
	assert_int_equal(hicache_device_close(device), -EBUSY);
	assert_error("transfers or streams of it are open");
	assert_int_equal(hicache_series_close(rig_series), 0);
	assert_int_equal(hicache_space_close(rig_space), 0);
	assert_int_equal(hicache_close(rig_hc), -EBUSY);
	rig_error[0] = 0;
	/* The stream that a write waits for is its owner's; the write still ends. */
	assert_int_equal(hicache_stream_destroy(device, stream), 0);
	ack_expect(HICACHE_WRITES, 3, 1);
	assert_int_equal(hicache_transfer_write(transfer, &page, 1, 0, 0, 0, stream, &host),
			 -EXDEV);
	assert_int_equal(hicache_transfer_publish(transfer, &host, hash, 1, NULL, &result), 0);
	assert_int_equal(result, 0);
	assert_int_equal(hicache_device_close(device), -EBUSY);
	assert_int_equal(hicache_transfer_close(transfer, RIG_TIMEOUT), 0);
	assert_int_equal(hicache_device_close(device), 0);
	assert_int_equal(hicache_close(rig_hc), 0);
	transfer = NULL;
	device = NULL;
#ifdef HC_TEST_CUDA
	fake_check();
#endif
}

static void test_closed(void **state)
{
	(void)state;
	assert_int_equal(hicache_transfer_close(NULL, 0), 0);
	assert_int_equal(hicache_device_close(NULL), 0);
}

/* Goal: handles that came over a fork are refused. */
static void test_fork(void **state)
{
	struct hicache_transfer_info info = {.size = sizeof(info)};
	struct hicache_ack ack = {.size = sizeof(ack)};
	struct hicache_hash from[N], to[N];
	uint32_t pages[N], host[N];
	int results[N], status;
	int64_t producer;
	pid_t pid;

	engine_open(*state);
	rig_chain(1, from, N);
	rig_chain(1000, to, N);
	rig_publish(from, N);
	load_chain(from, pages);
	assert_int_equal(hicache_transfer_write(transfer, pages, N, 0, 3, 0, stream, host), 0);
	/* Under way in the parent, whose threads end it. */
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		uint32_t page = 0;
		bool good =
			hicache_transfer_get(transfer, &info) == -ESTALE &&
			hicache_transfer_write(transfer, pages, N, 0, 0, 0, stream, host) ==
				-ESTALE &&
			hicache_transfer_load(transfer, host, N, 0, 0, 0, pages) == -ESTALE &&
			hicache_transfer_start_loading(transfer, stream, &producer) == -ESTALE &&
			hicache_transfer_wait_layer(transfer, 0, 0, stream) == -ESTALE &&
			hicache_transfer_poll(transfer, HICACHE_WRITES, &ack) == -ESTALE &&
			hicache_transfer_reset(transfer, 0) == -ESTALE &&
			hicache_transfer_publish(transfer, host, to, N, NULL, results) == -ESTALE &&
			hicache_stream_destroy(device, stream) == -ESTALE &&
			hicache_transfer_evict_host(transfer, &page, 1) == -ESTALE &&
			hicache_transfer_close(transfer, 0) == -ESTALE &&
			hicache_device_close(device) == -ESTALE;

		_exit(good ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	ack_expect(HICACHE_WRITES, 3, N);
	assert_int_equal(hicache_transfer_publish(transfer, host, to, N, NULL, results), 0);
	rig_expect_as(to, from, N);
	engine_close();
}

/* Goal: two transfers of one device share the registration of the pool's segments. */
static void test_two_transfers(void **state)
{
	struct hicache_transfer_params params = params_of(*state);
	struct hicache_transfer *both[2];
	struct hicache_hash from[N];
	uint32_t device_pages[N];

	engine_open(*state);
	both[0] = transfer;
	assert_int_equal(hicache_transfer_open(device, rig_series, &params, &both[1]), 0);
	rig_chain(1, from, N);
	rig_publish(from, N);
	for (int i = 0; i < 2; i++) {
		transfer = both[i];
		load_chain(from, device_pages);
		assert_int_equal(number("registered_segments"), 1);
	}
	assert_int_equal(hicache_transfer_close(both[0], RIG_TIMEOUT), 0);
	assert_int_equal(hicache_transfer_evict_device(transfer, device_pages, N), 0);
	load_chain(from, device_pages);
	assert_int_equal(hicache_transfer_evict_device(transfer, device_pages, N), 0);
	engine_close();
}

struct worker {
	pthread_t thread;
	uint32_t page, number;
	bool good;
};

static int write_one(uint32_t page, uint32_t *host)
{
	int rc;

	do {
		rc = hicache_transfer_write(transfer, &page, 1, HICACHE_PRIORITY_DEFAULT,
					    HICACHE_NO_NODE, 0, stream, host);
	} while (rc == -EAGAIN || rc == -ENOSPC);
	while (!rc && hicache_transfer_host_complete(transfer, *host) == 0)
		ppoll(NULL, 0, &(struct timespec){.tv_nsec = 50000}, NULL);
	return rc;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct hicache_hash hashes[20];
	int64_t producer;

	rig_chain(10000 * (w->number + 1), hashes, 20);
	w->good = true;
	for (int i = 0; i < 20 && w->good; i++) {
		uint32_t host, held;
		int result = 1, rc;
		size_t got;

		w->good =
			!write_one(w->page, &host) &&
			!hicache_transfer_publish(transfer, &host, &hashes[i], 1, NULL, &result) &&
			!result &&
			!hicache_transfer_acquire(transfer, &hashes[i], 1, RIG_TIMEOUT, &held,
						  &got) &&
			!hicache_transfer_load(transfer, &held, 1, 0, w->number,
					       HICACHE_GIVEN_PAGES, &w->page);
		/* Another thread may have started it. */
		do {
			rc = hicache_transfer_start_loading(transfer, stream, &producer);
		} while (rc == -EAGAIN);
		if (!rc && producer >= 0)
			rc = forward(producer);
		/* Stale: three others were quicker, so the load has ended. */
		w->good = w->good && (!rc || rc == -ESTALE) &&
			  !hicache_transfer_evict_host(transfer, &held, 1);
	}
	return NULL;
}

/* Goal: threads write, publish, acquire and load at once; all that was held goes back. */
static void test_threads(void **state)
{
	struct hicache_hash from[N];
	uint32_t device_pages[N];
	struct worker workers[3];
	struct hicache_ack ack = {.size = sizeof(ack)};

	engine_open(*state);
	rig_chain(1, from, N);
	rig_publish(from, N);
	load_chain(from, device_pages);
	for (uint32_t i = 0; i < 3; i++) {
		workers[i] = (struct worker){.page = device_pages[i], .number = i};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]),
				 0);
	}
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
		assert_true(workers[i].good);
	}
	assert_int_equal(hicache_transfer_reset(transfer, RIG_TIMEOUT), 0);
	assert_int_equal(hicache_transfer_poll(transfer, HICACHE_WRITES, &ack), -EAGAIN);
	assert_int_equal(number("failed"), 0);
	assert_int_equal(number("n_leased_pages"), 0);
	assert_int_equal(number("writes"), 60);
	assert_int_equal(rig_stat("n_pages"), N + 60);
	assert_int_equal(rig_stat("n_held"), 0);
	for (uint32_t i = 0; i < 3; i++) {
		struct hicache_hash hashes[20];

		rig_chain(10000 * (i + 1), hashes, 20);
		for (int k = 0; k < 20; k++)
			rig_expect_as(&hashes[k], &from[i], 1);
	}
	engine_close();
}

static const struct way ways[] = {
	{.name = "cpu", .device = "cpu"},
	{.name = "cpu, direct", .device = "cpu", .io = HICACHE_IO_DIRECT},
#ifdef HC_TEST_CUDA
	{.name = "cuda", .device = "cuda"},
	{.name = "cuda, direct, no batches",
	 .device = "cuda",
	 .no_batch = true,
	 .io = HICACHE_IO_DIRECT},
	{.name = "cuda, kernel", .device = "cuda", .io = HICACHE_IO_KERNEL},
	{.name = "cuda, no kernels", .device = "cuda", .no_kernels = true},
	{.name = "cuda, no registration", .device = "cuda", .no_registration = true},
#endif
};

static const struct CMUnitTest each[] = {
	cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_held),
	cmocka_unit_test(test_pool_full),       cmocka_unit_test(test_no_room),
	cmocka_unit_test(test_load_of_written), cmocka_unit_test(test_reset),
	cmocka_unit_test(test_unnameable),      cmocka_unit_test(test_device_refusals),
	cmocka_unit_test(test_open_refusals),   cmocka_unit_test(test_threads),
	cmocka_unit_test(test_refusals),        cmocka_unit_test(test_fork),
	cmocka_unit_test(test_two_transfers),   cmocka_unit_test(test_closing_order),
};

static const struct CMUnitTest once[] = {
	cmocka_unit_test(test_imported),
	cmocka_unit_test(test_closed),
	cmocka_unit_test(test_missing_pointers),
};

/* Two transfers share what is registered. */
static bool leave(CMUnitTestFunction test, const struct way *way)
{
	return test == test_two_transfers && way->no_registration;
}

int main(void)
{
	return transfer_rig_run_but("hicache-transfer", ways, HC_ARRAY_SIZE(ways), each,
				    HC_ARRAY_SIZE(each), once, HC_ARRAY_SIZE(once), leave);
}
