/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the controller share: an engine in miniature (tensors, a stream, pages filled
 * with a version that can be recognised) and a host pool, over any device. Functions that check
 * return false instead of ending the test, for planted mistakes must be found and survived. */
#ifndef HC_TESTS_CONTROLLER_RIG_H
#define HC_TESTS_CONTROLLER_RIG_H

#include <limits.h>
#include <sys/mman.h>

#include "controller/internal.h"
#include "device/plan.h"
#include "tests/device-rig.h"

enum {
	LAYERS = 3,
	HEADS = 2,
	TOKENS = 2,
	VECTOR = 16,
	PAGES = 12, /* on either side */
	VERSIONS = 64,
	ROW = HEADS * TOKENS * VECTOR, /* K or V of one layer of a page in a tensor */
	OUTS = 48,
};

struct engine {
	struct hc_device *device;
	struct hc_transfer *transfer;
	struct hc_device_stream *stream;
	uint64_t handle;
	struct hc_transfer_config config;
	unsigned char *host;
	uint64_t host_bytes;
	hc_device_addr k[LAYERS], v[LAYERS];
	struct buffer patterns; /* of each version, a page as the tensors have it */
	struct buffer outs;     /* of each read: K and V of one layer */
	struct hc_strides strides;
	uint32_t n_kv;
	/* What is expected. */
	uint32_t device_version[PAGES], host_version[PAGES];
	struct {
		uint32_t version, layer;
	} reads[OUTS];
	uint32_t n_reads, next_version;
};

static inline unsigned char pattern(uint32_t version, uint32_t kv, uint32_t layer, uint32_t i)
{
	return (unsigned char)(version * 31 + kv * 113 + layer * 57 + i * 7 + 1);
}

static inline void engine_patterns(struct engine *e)
{
	for (uint32_t v = 0; v < VERSIONS; v++) {
		for (uint32_t l = 0; l < LAYERS; l++) {
			for (uint32_t i = 0; i < 2 * ROW; i++)
				e->patterns.host[((v * LAYERS + l) * 2 * ROW) + i] =
					pattern(v, i / ROW, l, i % ROW);
		}
	}
}

/* layout < 0: a pool of that layout; mla: one object a page. */
static inline int engine_open(struct engine *e, struct hc_device *device, int layout, bool mla,
			      enum hc_io io, uint64_t staging_bytes, bool no_thread, char *error)
{
	struct hc_transfer_config *c = &e->config;
	struct hc_geometry g = {mla ? 1 : 2,
				LAYERS,
				mla ? 1 : HEADS,
				TOKENS,
				mla ? VECTOR * HEADS / 2 : VECTOR / 2,
				2,
				1,
				mla};
	int err;

	memset(e, 0, sizeof(*e));
	e->device = device;
	e->n_kv = g.n_kv;
	e->host_bytes = hc_align_up(PAGES * hc_geometry_page_bytes(&g), HC_BLOCK_BYTES);
	e->host = mmap(NULL, e->host_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		       0);
	assert_ptr_not_equal(e->host, MAP_FAILED);
	for (int l = 0; l < LAYERS; l++) {
		e->k[l] = device_buffer(device, PAGES * ROW);
		e->v[l] = device_buffer(device, PAGES * ROW);
	}
	e->stream = new_stream(device);
	e->handle = hc_device_stream_handle(e->stream);
	e->patterns = host_buffer(device, VERSIONS * LAYERS * 2 * ROW, 0);
	e->outs = host_buffer(device, OUTS * 2 * ROW, 0);
	engine_patterns(e);
	*c = (struct hc_transfer_config){.device = device,
					 .plan = {.geometry = g,
						  .k = e->k,
						  .v = mla ? NULL : e->v,
						  .device_pages = PAGES,
						  .io = io},
					 .host = e->host,
					 .host_bytes = e->host_bytes,
					 .host_pages = PAGES,
					 .staging_bytes = staging_bytes,
					 .no_thread = no_thread};
	if (layout < 0) {
		c->plan.pool_layout = (enum hc_pool_layout) - layout;
		c->plan.pool_pages = PAGES;
		err = hc_layout_pool_strides(c->plan.pool_layout, &g, PAGES, &e->strides);
	} else {
		c->plan.layout = (enum hc_layout)layout;
		err = hc_layout_strides(c->plan.layout, &g, &e->strides);
	}
	return err ? err : hc_transfer_create(c, &e->transfer, error);
}

static inline void engine_close(struct engine *e)
{
	hc_ignore(hc_device_stream_drain(e->stream, soon()));
	assert_int_equal(hc_transfer_destroy(e->transfer, soon()), 0);
	hc_device_stream_destroy(e->stream);
	for (int l = 0; l < LAYERS; l++) {
		hc_device_mem_free(e->device, e->k[l]);
		hc_device_mem_free(e->device, e->v[l]);
	}
	host_buffer_free(e->device, &e->patterns);
	host_buffer_free(e->device, &e->outs);
	munmap(e->host, e->host_bytes);
}

/* The forward pass fills a page, on the engine's stream. */
static inline int engine_fill(struct engine *e, uint32_t page)
{
	struct hc_device_copy copies[2 * LAYERS];
	uint32_t version = ++e->next_version % VERSIONS;
	size_t n = 0;

	for (uint32_t l = 0; l < LAYERS; l++) {
		hc_device_addr from = e->patterns.addr + (version * LAYERS + l) * 2 * ROW;

		copies[n++] = (struct hc_device_copy){from, e->k[l] + page * ROW, ROW};
		if (e->n_kv == 2)
			copies[n++] =
				(struct hc_device_copy){from + ROW, e->v[l] + page * ROW, ROW};
	}
	e->device_version[page] = version;
	return hc_device_copy(e->stream, copies, n);
}

/* Attention reads one layer of a page, on the engine's stream. */
static inline int engine_read(struct engine *e, uint32_t page, uint32_t layer)
{
	uint32_t i = e->n_reads;
	hc_device_addr to = e->outs.addr + i * 2 * ROW;
	struct hc_device_copy copies[] = {{e->k[layer] + page * ROW, to, ROW},
					  {e->v[layer] + page * ROW, to + ROW, ROW}};

	if (i == OUTS)
		return 0;
	e->reads[i].version = e->device_version[page];
	e->reads[i].layer = layer;
	e->n_reads++;
	return hc_device_copy(e->stream, copies, e->n_kv);
}

/* All reads so far, once the engine's stream has run dry. */
static inline bool engine_reads_good(struct engine *e)
{
	bool good = hc_device_stream_drain(e->stream, soon()) == 0;

	for (uint32_t i = 0; i < e->n_reads; i++) {
		for (uint32_t b = 0; b < e->n_kv * ROW; b++)
			good = good && e->outs.host[i * 2 * ROW + b] ==
					       pattern(e->reads[i].version, b / ROW,
						       e->reads[i].layer, b % ROW);
	}
	e->n_reads = 0;
	return good;
}

/* The bytes of a host page are those of the version it was written from. */
static inline bool engine_host_good(struct engine *e, uint32_t page)
{
	const struct hc_geometry *g = &e->config.plan.geometry;
	uint64_t vector = hc_geometry_vector_bytes(g);
	bool good = true;

	for (uint32_t i = 0; i < e->n_kv * LAYERS * g->n_heads * TOKENS; i++) {
		uint32_t kv = i % e->n_kv, l = i / e->n_kv % LAYERS;
		uint32_t h = i / e->n_kv / LAYERS % g->n_heads;
		uint32_t t = i / e->n_kv / LAYERS / g->n_heads;
		const unsigned char *at =
			e->host + hc_strides_offset(&e->strides, page, kv, l, h, t);

		for (uint32_t b = 0; b < vector; b++)
			good = good &&
			       at[b] == pattern(e->host_version[page], kv, l,
						(uint32_t)((t * g->n_heads + h) * vector) + b);
	}
	return good;
}

static inline int engine_write(struct engine *e, const uint32_t *pages, uint32_t n, int64_t node,
			       uint32_t *host)
{
	int err = hc_transfer_write(e->transfer, pages, n, INT_MIN, node, true, e->handle, host);

	for (uint32_t i = 0; i < n && !err; i++)
		e->host_version[host[i]] = e->device_version[pages[i]];
	return err;
}

static inline int engine_load(struct engine *e, const uint32_t *host, uint32_t n, int64_t node,
			      uint32_t *pages)
{
	int err = hc_transfer_load(e->transfer, host, n, INT_MIN, node, false, pages);

	for (uint32_t i = 0; i < n && !err; i++)
		e->device_version[pages[i]] = e->host_version[host[i]];
	return err;
}

/* Waits for each layer and reads it. */
static inline int engine_forward(struct engine *e, struct hc_producer producer,
				 const uint32_t *pages, uint32_t n, uint32_t first, uint32_t end)
{
	int err = 0;

	for (uint32_t l = first; l < end && !err; l++) {
		err = hc_transfer_wait_layer(e->transfer, producer, l, e->handle);
		for (uint32_t i = 0; i < n && !err; i++)
			err = engine_read(e, pages[i], l);
	}
	return err;
}

/* Polls until an ack or the deadline. */
static inline int engine_ack(struct engine *e, enum hc_plan_direction direction, struct hc_ack *ack)
{
	uint64_t deadline_ns = soon();
	int err;

	while ((err = hc_transfer_poll(e->transfer, direction, ack)) == -EAGAIN &&
	       hc_clock_now_ns() < deadline_ns)
		hc_ignore(
			hc_device_stream_drain(e->transfer->lines[direction].stream, deadline_ns));
	return err;
}

static inline void fill_pages(struct engine *e, uint32_t *pages, uint32_t n)
{
	assert_int_equal(hc_transfer_device_alloc(e->transfer, n * TOKENS, pages), 0);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(engine_fill(e, pages[i]), 0);
}

static inline void ack_is(struct engine *e, enum hc_plan_direction direction, int64_t node)
{
	struct hc_ack ack;

	assert_int_equal(engine_ack(e, direction, &ack), 0);
	assert_int_equal(ack.status, 0);
	assert_int_equal(ack.nodes[0], node);
}

#endif
