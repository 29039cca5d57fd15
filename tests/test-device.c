/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of device.h, on every device that this machine can open. */
#include "tests/device-rig.h"

#include <sys/mman.h>

/* Defined where the device cuda was built. */
#ifdef HC_TEST_CUDA
#include "tests/fake-cuda/capture.h"
#include "tests/fake-cuda/rig.h"
#endif

#define KIB 1024

static struct hc_device *open_device(void **state)
{
	const struct backend *backend = *state;
	struct hc_device *device;

	assert_int_equal(backend->open(&device), 0);
	return device;
}

/* Goal: bytes go to the device and back, in the order of the stream. Method: two generations of the
 * same buffer, the second copied over the first between two reads. */
static void test_round_trip(void **state)
{
	struct hc_device *device = open_device(state);
	struct buffer a = host_buffer(device, 256 * KIB, 1), b = host_buffer(device, 256 * KIB, 2);
	struct buffer out_a = host_buffer(device, 256 * KIB, 3);
	struct buffer out_b = host_buffer(device, 256 * KIB, 4);
	hc_device_addr mem = device_buffer(device, 256 * KIB);
	struct hc_device_stream *stream = new_stream(device);

	assert_int_equal(copy_one(stream, mem, a.addr, a.size_bytes), 0);
	assert_int_equal(copy_one(stream, out_a.addr, mem, a.size_bytes), 0);
	assert_int_equal(copy_one(stream, mem, b.addr, a.size_bytes), 0);
	assert_int_equal(copy_one(stream, out_b.addr, mem, a.size_bytes), 0);
	assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
	assert_memory_equal(out_a.host, a.host, a.size_bytes);
	assert_memory_equal(out_b.host, b.host, a.size_bytes);
	hc_device_stream_destroy(stream);
	hc_device_mem_free(device, mem);
	host_buffer_free(device, &a);
	host_buffer_free(device, &b);
	host_buffer_free(device, &out_a);
	host_buffer_free(device, &out_b);
	hc_device_close(device);
}

/* Goal: a full batch copies each of its pieces; 0 pieces are nothing; more than the limit, or an
 * empty piece, is refused as a whole. Method: 2048 pieces of 48 bytes in reverse order. */
static void test_batch(void **state)
{
	struct hc_device *device = open_device(state);
	const uint64_t piece = 48, n = HC_DEVICE_BATCH_MAX;
	struct buffer a = host_buffer(device, n * piece, 1), b = host_buffer(device, n * piece, 2);
	hc_device_addr mem = device_buffer(device, n * piece);
	struct hc_device_stream *stream = new_stream(device);
	struct hc_device_copy *copies = calloc(n + 1, sizeof(*copies));
	struct hc_device_stats before, after;

	assert_non_null(copies);
	for (uint64_t i = 0; i <= n; i++)
		copies[i] = (struct hc_device_copy){a.addr + i % n * piece,
						    mem + (n - 1 - i % n) * piece, piece};
	hc_device_stats(device, &before);
	assert_int_equal(hc_device_copy(stream, copies, 0), 0);
	assert_int_equal(hc_device_copy(stream, copies, n + 1), -EINVAL);
	copies[7].size_bytes = 0;
	assert_int_equal(hc_device_copy(stream, copies, n), -EINVAL);
	copies[7].size_bytes = piece;
	hc_device_stats(device, &after);
	assert_int_equal(after.n_copies, before.n_copies);
	assert_int_equal(hc_device_copy(stream, copies, n), 0);
	assert_int_equal(copy_one(stream, b.addr, mem, n * piece), 0);
	assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
	for (uint64_t i = 0; i < n; i++)
		assert_memory_equal(b.host + i * piece, a.host + (n - 1 - i) * piece, piece);
	hc_device_stats(device, &after);
	assert_int_equal(after.n_copies - before.n_copies, n + 1);
	assert_int_equal(after.copy_bytes - before.copy_bytes, 2 * n * piece);
	assert_int_equal(after.n_batches - before.n_batches, 2);
	free(copies);
	hc_device_stream_destroy(stream);
	hc_device_mem_free(device, mem);
	host_buffer_free(device, &a);
	host_buffer_free(device, &b);
	hc_device_close(device);
}

/* Goal: an address that the device does not know is refused, and nothing of that call runs. Method:
 * a host pointer, one byte too many at either end, freed memory; the good first piece of a refused
 * batch must not arrive. */
static void test_unknown_addresses(void **state)
{
	struct hc_device *device = open_device(state);
	struct buffer a = host_buffer(device, 8 * KIB, 1), b = host_buffer(device, 8 * KIB, 2);
	hc_device_addr mem = device_buffer(device, 8 * KIB), gone = device_buffer(device, 8 * KIB);
	struct hc_device_stream *stream = new_stream(device);
	unsigned char *before = malloc(8 * KIB);
	struct hc_device_copy copies[2] = {{a.addr, b.addr, 4 * KIB}, {a.addr, gone, 4 * KIB}};

	assert_non_null(before);
	hc_device_mem_free(device, gone);
	assert_int_equal(copy_one(stream, mem, (uintptr_t)before, 64), -EFAULT);
	assert_int_equal(copy_one(stream, (uintptr_t)before, mem, 64), -EFAULT);
	assert_int_equal(copy_one(stream, mem, a.addr + 1, 8 * KIB), -EFAULT);
	assert_int_equal(copy_one(stream, mem - 1, a.addr, 16), -EFAULT);
	assert_int_equal(copy_one(stream, mem, a.addr, UINT64_MAX), -EFAULT);
	memcpy(before, b.host, 8 * KIB);
	assert_int_equal(hc_device_copy(stream, copies, 2), -EFAULT);
	assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
	assert_memory_equal(b.host, before, 8 * KIB);
	assert_int_equal(hc_device_health(device), 0);
	free(before);
	hc_device_stream_destroy(stream);
	hc_device_mem_free(device, mem);
	host_buffer_free(device, &a);
	host_buffer_free(device, &b);
	hc_device_close(device);
}

static void *map_memory(size_t size_bytes)
{
	void *host =
		mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(host, MAP_FAILED);
	return host;
}

/* Goal: the caller's memory is registered, found by its alias, used, and given back; what cannot be
 * registered is refused. Method: a mapping of 64 KiB; halves, overlaps, odd addresses. */
static void test_registration(void **state)
{
	struct hc_device *device = open_device(state);
	unsigned char *host = map_memory(64 * KIB);
	hc_device_addr mem = device_buffer(device, 64 * KIB), alias, other;
	struct hc_device_stream *stream = new_stream(device);
	struct hc_device_stats stats;

	assert_int_equal(hc_device_host_register(device, host + 1, 32 * KIB, false, &other),
			 -EINVAL);
	assert_int_equal(hc_device_host_register(device, host, 100, false, &other), -EINVAL);
	assert_int_equal(hc_device_alias(device, host, 1), 0);
	assert_int_equal(hc_device_host_register(device, host, 64 * KIB, false, &alias), 0);
	assert_int_equal(hc_device_host_register(device, host + 32 * KIB, 32 * KIB, false, &other),
			 -EEXIST);
	assert_int_equal(hc_device_alias(device, host, 64 * KIB), alias);
	assert_int_equal(hc_device_alias(device, host + 4096, 60 * KIB), alias + 4096);
	assert_int_equal(hc_device_alias(device, host + 4096, 64 * KIB), 0);
	hc_device_stats(device, &stats);
	assert_int_equal(stats.registered_bytes, 64 * KIB);
	for (int i = 0; i < 64 * KIB; i++)
		host[i] = (unsigned char)(i * 7 >> 3);
	assert_int_equal(copy_one(stream, mem, alias, 64 * KIB), 0);
	assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
	memset(host, 0, 64 * KIB);
	assert_int_equal(copy_one(stream, alias + 32 * KIB, mem + 32 * KIB, 32 * KIB), 0);
	assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
	for (int i = 0; i < 64 * KIB; i++)
		assert_int_equal(host[i], i < 32 * KIB ? 0 : (unsigned char)(i * 7 >> 3));
	hc_device_host_unregister(device, alias);
	hc_device_stats(device, &stats);
	assert_int_equal(stats.registered_bytes, 0);
	assert_int_equal(copy_one(stream, mem, alias, 64), -EFAULT);
	hc_device_stream_destroy(stream);
	hc_device_mem_free(device, mem);
	munmap(host, 64 * KIB);
	hc_device_close(device);
}

/* Goal: memory registered for reading serves as a source and is refused as a destination. Method: a
 * mapping whose right to write is taken away. */
static void test_read_only(void **state)
{
	struct hc_device *device = open_device(state);
	unsigned char *host = map_memory(4 * KIB);
	hc_device_addr mem = device_buffer(device, 4 * KIB), alias;
	struct buffer out = host_buffer(device, 4 * KIB, 1);
	struct hc_device_stream *stream = new_stream(device);
	int err;

	memset(host, 0x5a, 4 * KIB);
	assert_int_equal(mprotect(host, 4 * KIB, PROT_READ), 0);
	err = hc_device_host_register(device, host, 4 * KIB, true, &alias);
	if (!err) {
		assert_int_equal(copy_one(stream, mem, alias, 4 * KIB), 0);
		assert_int_equal(copy_one(stream, alias, mem, 4 * KIB), -EFAULT);
		assert_int_equal(copy_one(stream, out.addr, mem, 4 * KIB), 0);
		assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
		assert_memory_equal(out.host, host, 4 * KIB);
		hc_device_host_unregister(device, alias);
	} else {
		assert_int_equal(err, -ENOTSUP);
	}
	hc_device_stream_destroy(stream);
	hc_device_mem_free(device, mem);
	host_buffer_free(device, &out);
	munmap(host, 4 * KIB);
	hc_device_close(device);
}

/* Goal: an event that was never recorded is reached, a drained one too; a stream passes a wait for
 * an unrecorded event. */
static void test_events(void **state)
{
	struct hc_device *device = open_device(state);
	struct hc_device_stream *stream = new_stream(device);
	struct hc_device_event *event = new_event(device), *other = new_event(device);

	assert_int_equal(hc_device_event_query(event), 0);
	assert_int_equal(hc_device_stream_wait(stream, other), 0);
	assert_int_equal(hc_device_event_record(event, stream), 0);
	assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
	assert_int_equal(hc_device_event_query(event), 0);
	hc_device_event_destroy(event);
	hc_device_event_destroy(other);
	hc_device_stream_destroy(stream);
	hc_device_close(device);
}

/* Goal: events order streams. Method: a block of bytes is handed round by three streams, each
 * adding its own copy; every hop waits for the one before; the host polls the last event. */
static void test_order_between_streams(void **state)
{
	enum { N_STREAMS = 3, ROUNDS = 40 };
	struct hc_device *device = open_device(state);
	struct buffer in = host_buffer(device, 16 * KIB, 5), out = host_buffer(device, 16 * KIB, 6);
	struct hc_device_stream *streams[N_STREAMS];
	struct hc_device_event *events[ROUNDS];
	hc_device_addr mem[ROUNDS];

	for (int i = 0; i < N_STREAMS; i++)
		streams[i] = new_stream(device);
	for (int i = 0; i < ROUNDS; i++) {
		mem[i] = device_buffer(device, 16 * KIB);
		events[i] = new_event(device);
		if (i)
			assert_int_equal(
				hc_device_stream_wait(streams[i % N_STREAMS], events[i - 1]), 0);
		assert_int_equal(copy_one(streams[i % N_STREAMS], mem[i], i ? mem[i - 1] : in.addr,
					  16 * KIB),
				 0);
		assert_int_equal(hc_device_event_record(events[i], streams[i % N_STREAMS]), 0);
	}
	assert_int_equal(
		copy_one(streams[(ROUNDS - 1) % N_STREAMS], out.addr, mem[ROUNDS - 1], 16 * KIB),
		0);
	for (int i = 0; i < N_STREAMS; i++)
		assert_int_equal(hc_device_stream_drain(streams[i], soon()), 0);
	assert_memory_equal(out.host, in.host, 16 * KIB);
	for (int i = 0; i < ROUNDS; i++) {
		assert_int_equal(hc_device_event_query(events[i]), 0);
		hc_device_event_destroy(events[i]);
		hc_device_mem_free(device, mem[i]);
	}
	for (int i = 0; i < N_STREAMS; i++)
		hc_device_stream_destroy(streams[i]);
	host_buffer_free(device, &in);
	host_buffer_free(device, &out);
	hc_device_close(device);
}

/* Goal: a wait is for the record that was the latest at the call. Method: the event is recorded a
 * second time by a stream that itself waits for the first waiter; if the wait moved, neither would
 * ever run. The event is destroyed while all that is still queued. */
static void test_wait_binds_at_call(void **state)
{
	struct hc_device *device = open_device(state);
	struct hc_device_stream *a = new_stream(device), *b = new_stream(device);
	struct hc_device_stream *c = new_stream(device);
	struct hc_device_event *event = new_event(device), *passed = new_event(device);

	for (int i = 0; i < 20; i++) {
		assert_int_equal(hc_device_event_record(event, a), 0);
		assert_int_equal(hc_device_stream_wait(b, event), 0);
		assert_int_equal(hc_device_event_record(passed, b), 0);
		assert_int_equal(hc_device_stream_wait(c, passed), 0);
		assert_int_equal(hc_device_event_record(event, c), 0);
	}
	hc_device_event_destroy(event);
	assert_int_equal(hc_device_stream_drain(b, soon()), 0);
	assert_int_equal(hc_device_stream_drain(c, soon()), 0);
	assert_int_equal(hc_device_event_query(passed), 0);
	hc_device_event_destroy(passed);
	hc_device_stream_destroy(a);
	hc_device_stream_destroy(b);
	hc_device_stream_destroy(c);
	hc_device_close(device);
}

/* Goal: an imported stream is the very same one, also by the handle of the import; the default
 * stream can be imported. Method: alternate work through both. */
static void test_import_stream(void **state)
{
	struct hc_device *device = open_device(state);
	struct buffer a = host_buffer(device, 4 * KIB, 1), b = host_buffer(device, 4 * KIB, 2);
	struct buffer out = host_buffer(device, 4 * KIB, 3);
	hc_device_addr mem = device_buffer(device, 4 * KIB);
	struct hc_device_stream *own = new_stream(device), *same, *again, *legacy;

	assert_int_equal(hc_device_stream_import(device, hc_device_stream_handle(own), &same), 0);
	assert_true(same->imported);
	assert_int_equal(hc_device_stream_handle(same), hc_device_stream_handle(own));
	assert_int_equal(hc_device_stream_import(device, hc_device_stream_handle(same), &again), 0);
	assert_int_equal(hc_device_stream_check(same), 0);
	assert_int_equal(copy_one(own, mem, a.addr, 4 * KIB), 0);
	assert_int_equal(copy_one(same, mem, b.addr, 4 * KIB), 0);
	assert_int_equal(copy_one(again, out.addr, mem, 4 * KIB), 0);
	hc_device_stream_destroy(again);
	assert_int_equal(hc_device_stream_drain(same, soon()), 0);
	hc_device_stream_destroy(same);
	assert_memory_equal(out.host, b.host, 4 * KIB);
	hc_device_stream_destroy(own);
	assert_int_equal(hc_device_stream_import(device, 0, &legacy), 0);
	assert_int_equal(copy_one(legacy, mem, a.addr, 4 * KIB), 0);
	assert_int_equal(hc_device_stream_drain(legacy, soon()), 0);
	hc_device_stream_destroy(legacy);
	hc_device_mem_free(device, mem);
	host_buffer_free(device, &a);
	host_buffer_free(device, &b);
	host_buffer_free(device, &out);
	hc_device_close(device);
}

/* Goal: a stream that is captured is refused by check, record and wait, and works again afterwards;
 * the rest of the device goes on meanwhile, and the capture comes through. */
static void test_capture(void **state)
{
	const struct backend *backend = *state;
	struct hc_device *device;
	struct hc_device_stream *own, *other, *stream;
	struct hc_device_event *event;

	device = open_device(state);
	own = new_stream(device);
	other = new_stream(device);
	event = new_event(device);
	assert_int_equal(hc_device_stream_import(device, hc_device_stream_handle(own), &stream), 0);
	backend->capture(stream, true);
	assert_int_equal(hc_device_stream_check(stream), -EBUSY);
	assert_int_equal(hc_device_event_record(event, stream), -EBUSY);
	assert_int_equal(hc_device_stream_wait(stream, event), -EBUSY);
	assert_int_equal(hc_device_event_record(event, other), 0);
	assert_int_equal(hc_device_stream_drain(other, soon()), 0);
	assert_int_equal(hc_device_event_query(event), 0);
	hc_device_mem_free(device, device_buffer(device, 4 * KIB));
	backend->capture(stream, false);
	assert_int_equal(hc_device_stream_check(stream), 0);
	assert_int_equal(hc_device_event_record(event, stream), 0);
	assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
	hc_device_event_destroy(event);
	hc_device_stream_destroy(stream);
	hc_device_stream_destroy(other);
	hc_device_stream_destroy(own);
	hc_device_close(device);
}

/* Goal: memory of others is known while it is imported. Method: a range of an allocation of a
 * second kind: plain memory on devices that have no own, an allocation of the device that it was
 * taken out of elsewhere. */
static void test_import_memory(void **state)
{
	const struct backend *backend = *state;
	struct hc_device *device = open_device(state);
	struct buffer a = host_buffer(device, 4 * KIB, 1), out = host_buffer(device, 4 * KIB, 2);
	struct hc_device_stream *stream = new_stream(device);
	struct hc_device *other;
	hc_device_addr mem;

	/* A second device of the same kind is the engine. */
	assert_int_equal(backend->open(&other), 0);
	mem = !strcmp(hc_device_name(device), "cuda") ? device_buffer(other, 4 * KIB)
						      : (uintptr_t)map_memory(4 * KIB);
	assert_int_equal(hc_device_mem_import(device, 0, 4 * KIB), -EINVAL);
	assert_int_equal(copy_one(stream, mem, a.addr, 4 * KIB), -EFAULT);
	assert_int_equal(hc_device_mem_import(device, mem, 4 * KIB), 0);
	assert_int_equal(hc_device_mem_import(device, mem, 4 * KIB), 0);
	assert_int_equal(hc_device_mem_import(device, mem + 64, 4 * KIB - 64), -EEXIST);
	hc_device_mem_forget(device, mem);
	assert_int_equal(copy_one(stream, mem, a.addr, 4 * KIB), 0);
	assert_int_equal(copy_one(stream, out.addr, mem, 4 * KIB), 0);
	assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
	assert_memory_equal(a.host, out.host, 4 * KIB);
	hc_device_mem_forget(device, mem);
	assert_int_equal(copy_one(stream, mem, a.addr, 4 * KIB), -EFAULT);
	hc_device_stream_destroy(stream);
	host_buffer_free(device, &a);
	host_buffer_free(device, &out);
	if (!strcmp(hc_device_name(device), "cuda"))
		hc_device_mem_free(other, mem);
	else
		munmap((void *)(uintptr_t)mem, 4 * KIB);
	hc_device_close(device);
	hc_device_close(other);
}

/* A page copy of 3 pages whose runs are (token 4) x (kv 2, backwards at the destination). */
struct pages {
	struct hc_page_copy copy;
	struct buffer pairs;
};

#define RUN   96
#define PAGES 3

static struct pages make_pages(struct hc_device *device, hc_device_addr src, hc_device_addr dst)
{
	static const uint64_t src_page[PAGES] = {2, 0, 5}, dst_page[PAGES] = {1, 6, 3};
	struct pages p = {.pairs = host_buffer(device, PAGES * sizeof(struct hc_page_pair), 0)};
	struct hc_page_pair *pairs = (void *)p.pairs.host;

	for (int i = 0; i < PAGES; i++)
		pairs[i] = (struct hc_page_pair){src_page[i] * 1024, dst_page[i] * 2048};
	p.copy = (struct hc_page_copy){
		.src = src,
		.dst = dst + 1024,
		.pairs = p.pairs.addr,
		.src_stride = {128, 512},
		.dst_stride = {96, -1024},
		.count = {4, 2, 1, 1, 1},
		.run_bytes = RUN,
		.n_pages = PAGES,
	};
	return p;
}

/* The same by six nested loops of its own. */
static void naive_pages(unsigned char *dst, const unsigned char *src)
{
	static const int src_page[PAGES] = {2, 0, 5}, dst_page[PAGES] = {1, 6, 3};

	for (int p = 0; p < PAGES; p++) {
		for (int kv = 0; kv < 2; kv++) {
			for (int t = 0; t < 4; t++) {
				for (int b = 0; b < RUN; b++)
					dst[dst_page[p] * 2048 + 1024 - kv * 1024 + t * 96 + b] =
						src[src_page[p] * 1024 + kv * 512 + t * 128 + b];
			}
		}
	}
}

/* Goal: page copies of every kind move exactly the bytes they name. Method: against loops written
 * out; the destination is full of other bytes before, and the rest of it must keep them. */
static void test_page_copy(void **state)
{
	struct hc_device *device = open_device(state);
	struct hc_device_stream *stream = new_stream(device);
	struct hc_device_info info;

	hc_device_info(device, &info);
	for (int kind = 0; kind < HC_PAGE_COPY_KINDS && info.kernels; kind++) {
		struct buffer src = host_buffer(device, 8 * KIB, 1);
		struct buffer dst = host_buffer(device, 16 * KIB, 2);
		hc_device_addr dev_src = device_buffer(device, 8 * KIB);
		hc_device_addr dev_dst = device_buffer(device, 16 * KIB);
		bool from_host = kind == HC_PAGE_GATHER, to_host = kind == HC_PAGE_SCATTER;
		struct pages p = make_pages(device, from_host ? src.addr : dev_src,
					    to_host ? dst.addr : dev_dst);
		unsigned char *expect = malloc(16 * KIB);

		assert_non_null(expect);
		memcpy(expect, dst.host, 16 * KIB);
		naive_pages(expect, src.host);
		assert_int_equal(copy_one(stream, dev_src, src.addr, 8 * KIB), 0);
		assert_int_equal(copy_one(stream, dev_dst, dst.addr, 16 * KIB), 0);
		assert_int_equal(hc_device_page_copy(stream, (enum hc_page_copy_kind)kind, &p.copy),
				 0);
		if (!to_host)
			assert_int_equal(copy_one(stream, dst.addr, dev_dst, 16 * KIB), 0);
		assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
		assert_memory_equal(dst.host, expect, 16 * KIB);
		free(expect);
		hc_device_mem_free(device, dev_src);
		hc_device_mem_free(device, dev_dst);
		host_buffer_free(device, &p.pairs);
		host_buffer_free(device, &src);
		host_buffer_free(device, &dst);
	}
	hc_device_stream_destroy(stream);
	hc_device_close(device);
}

/* Goal: K and V may be two allocations far apart; one page copy serves both, and one whose far end
 * leaves either is refused. */
static void test_page_copy_two_buffers(void **state)
{
	struct hc_device *device = open_device(state);
	struct hc_device_stream *stream = new_stream(device);
	struct buffer src = host_buffer(device, 8 * KIB, 1), k = host_buffer(device, 8 * KIB, 2);
	struct buffer v = host_buffer(device, 8 * KIB, 3);
	hc_device_addr dev_k = device_buffer(device, 8 * KIB),
		       gap = device_buffer(device, 64 * KIB);
	hc_device_addr dev_v = device_buffer(device, 8 * KIB);
	struct pages p = make_pages(device, src.addr, dev_k);
	struct hc_page_pair *pairs = (void *)p.pairs.host;

	hc_device_mem_free(device, gap);
	p.copy.dst = dev_k;
	p.copy.dst_stride[1] = (int64_t)(dev_v - dev_k);
	p.copy.n_pages = 1;
	pairs[0] = (struct hc_page_pair){1024, 4096};
	assert_int_equal(hc_device_page_copy(stream, HC_PAGE_GATHER, &p.copy), 0);
	assert_int_equal(copy_one(stream, k.addr, dev_k, 8 * KIB), 0);
	assert_int_equal(copy_one(stream, v.addr, dev_v, 8 * KIB), 0);
	assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
	for (int t = 0; t < 4; t++) {
		assert_memory_equal(k.host + 4096 + t * 96, src.host + 1024 + t * 128, RUN);
		assert_memory_equal(v.host + 4096 + t * 96, src.host + 1536 + t * 128, RUN);
	}
	pairs[0].dst = 8 * KIB - 3 * 96;
	assert_int_equal(hc_device_page_copy(stream, HC_PAGE_GATHER, &p.copy), -EFAULT);
	hc_device_stream_destroy(stream);
	hc_device_mem_free(device, dev_k);
	hc_device_mem_free(device, dev_v);
	host_buffer_free(device, &p.pairs);
	host_buffer_free(device, &src);
	host_buffer_free(device, &k);
	host_buffer_free(device, &v);
	hc_device_close(device);
}

/* Goal: a page copy that cannot be is refused before anything runs. Method: each field bent in
 * turn; afterwards the device is well. */
static void test_page_copy_refusals(void **state)
{
	struct hc_device *device = open_device(state);
	struct hc_device_stream *stream = new_stream(device);
	struct buffer src = host_buffer(device, 8 * KIB, 1);
	hc_device_addr dst = device_buffer(device, 16 * KIB);
	struct pages p = make_pages(device, src.addr, dst);
	struct hc_page_pair *pairs = (void *)p.pairs.host;
	struct hc_page_copy bent;

#define REFUSED(err, ...)                                                                  \
	do {                                                                               \
		bent = p.copy;                                                             \
		__VA_ARGS__;                                                               \
		assert_int_equal(hc_device_page_copy(stream, HC_PAGE_GATHER, &bent), err); \
	} while (0)
	REFUSED(-EINVAL, bent.run_bytes = 0);
	REFUSED(-EINVAL, bent.run_bytes = 100);
	REFUSED(-EINVAL, bent.n_pages = 0);
	REFUSED(-EINVAL, bent.pairs = 0);
	REFUSED(-EINVAL, bent.src += 8);
	REFUSED(-EINVAL, bent.dst += 4);
	REFUSED(-EINVAL, bent.src_stride[0] = 120);
	REFUSED(-EINVAL, bent.count[2] = 0);
	REFUSED(-EINVAL, bent.count[2] = 1u << 30);
	REFUSED(-EINVAL, (bent.count[2] = 3, bent.src_stride[2] = INT64_MAX / 2 & ~15ll));
	REFUSED(-EFAULT, bent.pairs = (uintptr_t)pairs & ~15ull);
	REFUSED(-EFAULT, bent.n_pages = 100000);
	pairs[2].src = 8 * KIB;
	REFUSED(-EFAULT, (void)0);
	pairs[2].src = 8;
	REFUSED(-EINVAL, (void)0);
	pairs[2].src = 0;
	pairs[1].dst = UINT64_MAX & ~15ull;
	REFUSED(-EFAULT, (void)0);
	assert_int_equal(hc_device_health(device), 0);
	assert_int_equal(hc_device_stream_drain(stream, soon()), 0);
	hc_device_stream_destroy(stream);
	hc_device_mem_free(device, dst);
	host_buffer_free(device, &p.pairs);
	host_buffer_free(device, &src);
	hc_device_close(device);
}

struct worker {
	struct hc_device *device;
	pthread_t thread;
	unsigned int seed;
	bool good;
};

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct buffer a = host_buffer(w->device, 4 * KIB, w->seed);
	struct buffer out = host_buffer(w->device, 4 * KIB, w->seed + 100);
	hc_device_addr mem = device_buffer(w->device, 4 * KIB);
	struct hc_device_stream *stream = new_stream(w->device);
	struct hc_device_event *event = new_event(w->device);

	w->good = true;
	for (int i = 0; i < 50 && w->good; i++) {
		a.host[i] ^= 0xff;
		w->good = !copy_one(stream, mem, a.addr, 4 * KIB) &&
			  !copy_one(stream, out.addr, mem, 4 * KIB) &&
			  !hc_device_event_record(event, stream) &&
			  !hc_device_stream_drain(stream, soon()) &&
			  !hc_device_event_query(event) && !memcmp(a.host, out.host, 4 * KIB);
	}
	hc_device_event_destroy(event);
	hc_device_stream_destroy(stream);
	hc_device_mem_free(w->device, mem);
	host_buffer_free(w->device, &a);
	host_buffer_free(w->device, &out);
	return NULL;
}

/* Goal: threads share a device. Method: four of them, each with memory, stream and event of its
 * own.
 */
static void test_threads(void **state)
{
	struct hc_device *device = open_device(state);
	struct worker workers[4];

	for (unsigned int i = 0; i < 4; i++) {
		workers[i] = (struct worker){.device = device, .seed = i};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]),
				 0);
	}
	for (unsigned int i = 0; i < 4; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_true(workers[i].good);
	}
	hc_device_close(device);
}

static int open_cpu(struct hc_device **device_p)
{
	return hc_cpu_open(&(struct hc_cpu_config){.seed = 1}, device_p);
}

static int open_cpu_slow(struct hc_device **device_p)
{
	return hc_cpu_open(&(struct hc_cpu_config){.seed = 2, .delay_max_ns = 200 * HC_NS_PER_US},
			   device_p);
}

static int open_step(struct hc_device **device_p)
{
	return hc_step_open(&(struct hc_step_config){.seed = 3, .steps_max = 2}, device_p);
}

#ifdef HC_TEST_CUDA
static int open_fake(struct hc_device **device_p)
{
	return fake_open(&(struct fake_cuda_config){.seed = 4}, device_p);
}

static int open_fake_slow(struct hc_device **device_p)
{
	struct fake_cuda_config config = {.seed = 5, .delay_max_ns = 200 * HC_NS_PER_US};

	return fake_open(&config, device_p);
}

static int open_fake_single(struct hc_device **device_p)
{
	return fake_open(&(struct fake_cuda_config){.seed = 6, .no_batch = true}, device_p);
}

static int open_fake_unsupported(struct hc_device **device_p)
{
	return fake_open(&(struct fake_cuda_config){.seed = 7, .batch_unsupported = true},
			 device_p);
}

static void fake_capture(struct hc_device_stream *stream, bool on)
{
	capture_stream(fake.path, stream, on);
}

static int teardown_fake(void **state)
{
	const struct backend *backend = *state;

	if (backend->capture == fake_capture)
		fake_check();
	return 0;
}

static int open_gpu(struct hc_device **device_p)
{
	return hc_cuda_open(&(struct hc_cuda_config){.ordinal = 0}, device_p);
}

static void gpu_capture(struct hc_device_stream *stream, bool on)
{
	capture_stream("libcuda.so.1", stream, on);
}

static struct backend gpu = {"a GPU", open_gpu, gpu_capture};
#endif

static struct backend backends[] = {
	{"cpu", open_cpu, hc_cpu_capture},
	{"cpu with delays", open_cpu_slow, hc_cpu_capture},
	{"step", open_step, NULL},
#ifdef HC_TEST_CUDA
	{"cuda", open_fake, fake_capture},
	{"cuda with delays", open_fake_slow, fake_capture},
	{"cuda without batches", open_fake_single, fake_capture},
	{"cuda with batches unsupported", open_fake_unsupported, fake_capture},
#endif
};

/* Goal: on the stepped device nothing runs by itself, and a stream that waits is not picked. */
static void test_step_by_hand(void **state)
{
	struct hc_step_config config = {.seed = 1};
	struct hc_device *device;
	struct hc_device_stream *a, *b;
	struct hc_device_event *first, *second;

	assert_int_equal(hc_step_open(&config, &device), 0);
	a = new_stream(device);
	b = new_stream(device);
	first = new_event(device);
	second = new_event(device);
	assert_int_equal(hc_device_event_record(first, a), 0);
	assert_int_equal(hc_device_stream_wait(b, first), 0);
	assert_int_equal(hc_device_event_record(second, b), 0);
	assert_int_equal(hc_device_event_query(first), -EINPROGRESS);
	assert_int_equal(hc_step_run(device, 1), 1);
	assert_int_equal(hc_device_event_query(first), 0);
	assert_int_equal(hc_device_event_query(second), -EINPROGRESS);
	assert_int_equal(hc_device_event_record(first, a), 0);
	assert_int_equal(hc_device_event_query(first), -EINPROGRESS);
	assert_int_equal(hc_step_run(device, 100), 3);
	assert_int_equal(hc_device_event_query(first), 0);
	assert_int_equal(hc_device_event_query(second), 0);
	hc_device_event_destroy(first);
	hc_device_event_destroy(second);
	hc_device_stream_destroy(a);
	hc_device_stream_destroy(b);
	hc_device_close(device);
}

static uint64_t one_schedule(uint64_t seed)
{
	struct hc_step_config config = {.seed = seed, .steps_max = 3};
	struct hc_device_stream *streams[3];
	struct hc_device_event *event;
	struct hc_device *device;
	uint64_t schedule;

	assert_int_equal(hc_step_open(&config, &device), 0);
	event = new_event(device);
	for (int i = 0; i < 3; i++)
		streams[i] = new_stream(device);
	for (int i = 0; i < 30; i++)
		assert_int_equal(hc_device_event_record(event, streams[i % 3]), 0);
	assert_int_equal(hc_step_run(device, UINT64_MAX) <= 30, 1);
	schedule = hc_step_schedule(device);
	for (int i = 0; i < 3; i++)
		hc_device_stream_destroy(streams[i]);
	hc_device_event_destroy(event);
	hc_device_close(device);
	return schedule;
}

/* Goal: equal seeds give equal schedules, others mostly others. */
static void test_step_repeats(void **state)
{
	uint32_t n_different = 0;

	for (uint64_t seed = 0; seed < 100; seed++) {
		uint64_t schedule = one_schedule(seed);

		assert_int_equal(schedule, one_schedule(seed));
		n_different += schedule != one_schedule(seed + 1000);
	}
	assert_true(n_different > 95);
}

/* Goal: work on device memory that was freed too early is a lost device, never wrong bytes: every
 * later call says so, and nothing hangs. */
static void test_lost(void **state)
{
	struct hc_step_config config = {.seed = 1};
	struct hc_device_stream *stream;
	struct hc_device_event *event;
	struct hc_device *device;
	struct buffer src;
	struct pages p;
	hc_device_addr dst;

	assert_int_equal(hc_step_open(&config, &device), 0);
	src = host_buffer(device, 8 * KIB, 1);
	dst = device_buffer(device, 16 * KIB);
	p = make_pages(device, src.addr, dst);
	stream = new_stream(device);
	event = new_event(device);
	assert_int_equal(hc_device_page_copy(stream, HC_PAGE_GATHER, &p.copy), 0);
	assert_int_equal(hc_device_event_record(event, stream), 0);
	hc_device_mem_free(device, dst);
	assert_int_equal(hc_device_stream_drain(stream, soon()), -EIO);
	assert_int_equal(hc_device_health(device), -EIO);
	assert_int_equal(hc_device_event_query(event), -EIO);
	assert_int_equal(hc_device_event_record(event, stream), -EIO);
	assert_int_equal(copy_one(stream, src.addr, src.addr + 4096, 64), -EIO);
	hc_device_event_destroy(event);
	hc_device_stream_destroy(stream);
	host_buffer_free(device, &p.pairs);
	host_buffer_free(device, &src);
	hc_device_close(device);
}

/* Goal: a handle that is no stream of the device is refused by name. */
static void test_foreign_stream(void **state)
{
	struct hc_device *device, *other;
	struct hc_device_stream *theirs, *stream;

	assert_int_equal(open_cpu(&device), 0);
	assert_int_equal(open_step(&other), 0);
	theirs = new_stream(other);
	assert_int_equal(hc_device_stream_import(device, hc_device_stream_handle(theirs), &stream),
			 -EXDEV);
	theirs->device = other;
	hc_device_stream_destroy(theirs);
	hc_device_close(other);
	hc_device_close(device);
}

static const struct CMUnitTest contract[] = {
	cmocka_unit_test(test_round_trip),
	cmocka_unit_test(test_batch),
	cmocka_unit_test(test_unknown_addresses),
	cmocka_unit_test(test_registration),
	cmocka_unit_test(test_read_only),
	cmocka_unit_test(test_events),
	cmocka_unit_test(test_order_between_streams),
	cmocka_unit_test(test_wait_binds_at_call),
	cmocka_unit_test(test_import_stream),
	cmocka_unit_test(test_capture),
	cmocka_unit_test(test_import_memory),
	cmocka_unit_test(test_page_copy),
	cmocka_unit_test(test_page_copy_two_buffers),
	cmocka_unit_test(test_page_copy_refusals),
	cmocka_unit_test(test_threads),
};

static const struct CMUnitTest others[] = {
	cmocka_unit_test(test_step_by_hand),
	cmocka_unit_test(test_step_repeats),
	cmocka_unit_test(test_lost),
	cmocka_unit_test(test_foreign_stream),
};

static struct CMUnitTest
	all[HC_ARRAY_SIZE(backends) * HC_ARRAY_SIZE(contract) + HC_ARRAY_SIZE(others)];
static char names[HC_ARRAY_SIZE(all)][96];

static size_t add_contract(size_t n, struct backend *backend)
{
	for (size_t i = 0; i < HC_ARRAY_SIZE(contract); i++) {
		if (contract[i].test_func == test_capture && !backend->capture)
			continue;
		all[n] = contract[i];
		snprintf(names[n], sizeof(names[n]), "%s on %s", contract[i].name, backend->name);
		all[n].name = names[n];
#ifdef HC_TEST_CUDA
		all[n].teardown_func = teardown_fake;
#endif
		all[n++].initial_state = backend;
	}
	return n;
}

/* `test-device gpu` is for a machine that has one. */
int main(int argc, char **argv)
{
	size_t n = 0;

	cmocka_set_message_output(CM_OUTPUT_TAP);
#ifdef HC_TEST_CUDA
	if (argc > 1 && !strcmp(argv[1], "gpu")) {
		struct hc_device *device;

		if (open_gpu(&device)) {
			print_message("1..0 # SKIP no GPU can be opened here\n");
			return 77;
		}
		hc_device_close(device);
		n = add_contract(0, &gpu);
		return _cmocka_run_group_tests("device", all, n, NULL, NULL);
	}
	fake_load();
#endif
	for (size_t b = 0; b < HC_ARRAY_SIZE(backends); b++)
		n = add_contract(n, &backends[b]);
	for (size_t i = 0; i < HC_ARRAY_SIZE(others); i++)
		all[n++] = others[i];
	return _cmocka_run_group_tests("device", all, n, NULL, NULL);
}
