/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of devices share: the devices to run on, and small helpers. A test that gets a
 * `struct backend` as its state runs on each of them. */
#ifndef HC_TESTS_DEVICE_RIG_H
#define HC_TESTS_DEVICE_RIG_H

#include "device/device.h"
#include "tests/hctest.h"
#include "util/clock.h"
#include "util/rng.h"

#define SOON_NS (30 * HC_NS_PER_S)

struct backend {
	const char *name;
	/* -ENODEV: not on this machine. */
	int (*open)(struct hc_device **device_p);
	/* Marks a stream as captured; NULL: not on this device. */
	void (*capture)(struct hc_device_stream *stream, bool on);
};

static inline uint64_t soon(void)
{
	return hc_clock_now_ns() + SOON_NS;
}

struct buffer {
	unsigned char *host;
	hc_device_addr addr;
	uint64_t size_bytes;
};

static inline struct buffer host_buffer(struct hc_device *device, uint64_t size_bytes,
					unsigned int seed)
{
	struct buffer b = {.size_bytes = size_bytes};
	struct hc_rng rng;
	void *host;

	assert_int_equal(hc_device_host_alloc(device, size_bytes, &host, &b.addr), 0);
	b.host = host;
	hc_rng_seed(&rng, seed);
	for (uint64_t i = 0; i < size_bytes; i++)
		b.host[i] = (unsigned char)hc_rng_next(&rng);
	return b;
}

static inline void host_buffer_free(struct hc_device *device, struct buffer *b)
{
	hc_device_host_free(device, b->addr);
	b->host = NULL;
}

static inline hc_device_addr device_buffer(struct hc_device *device, uint64_t size_bytes)
{
	hc_device_addr addr;

	assert_int_equal(hc_device_mem_alloc(device, size_bytes, &addr), 0);
	return addr;
}

static inline struct hc_device_stream *new_stream(struct hc_device *device)
{
	struct hc_device_stream *stream;

	assert_int_equal(hc_device_stream_create(device, HC_DEVICE_PRIORITY_HIGH, &stream), 0);
	return stream;
}

static inline struct hc_device_event *new_event(struct hc_device *device)
{
	struct hc_device_event *event;

	assert_int_equal(hc_device_event_create(device, &event), 0);
	return event;
}

static inline int copy_one(struct hc_device_stream *stream, hc_device_addr dst, hc_device_addr src,
			   uint64_t size_bytes)
{
	struct hc_device_copy copy = {src, dst, size_bytes};

	return hc_device_copy(stream, &copy, 1);
}

#endif
