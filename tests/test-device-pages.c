/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: pages go from an engine's tensors to a host pool and back, byte for byte, for every layout
 * of the host, MHA and MLA, page sizes 1, 16 and 64, and io backend; no other byte changes; pairs
 * that have no meaning are refused. Method: random tensors, random pages in random order, against
 * loops written out over the offsets of model/layout.h; the whole pool and all tensors are
 * compared. `test-device-pages gpu` does the same on the GPU of this machine. */
#include "tests/device-backends.h"

#include <limits.h>
#include <sys/mman.h>

#include "controller/internal.h"

enum { DEVICE_PAGES = 7, HOST_PAGES = 8, MOVED = 4, LAYERS_MAX = 3 };

#define STAGING_BYTES (3 * HC_MIB)

struct shape {
	const char *name;
	struct hc_geometry geometry; /* n_tokens: to be filled in */
};

static const struct shape shapes[] = {
	{"MHA", {2, 3, 2, 0, 64, 2, 1, false}},
	{"MHA of 8 heads x 128", {2, 2, 8, 0, 128, 2, 1, false}},
	{"MHA of rows of 7 bytes", {2, 2, 3, 0, 7, 1, 1, false}},
	{"MLA", {1, 3, 1, 0, 576, 2, 1, true}},
	{"MLA of rows of 656 bytes", {1, 2, 1, 0, 656, 1, 1, true}},
};

static const uint32_t page_sizes[] = {1, 16, 64};

static const int layouts[] = {
	HC_LAYOUT_LAYER_FIRST,  HC_LAYOUT_PAGE_FIRST,       HC_LAYOUT_PAGE_HEAD,
	HC_LAYOUT_PAGE_UNIFIED, -HC_POOL_LAYER_FIRST,       -HC_POOL_PAGE_FIRST,
	-HC_POOL_PAGE_HEAD,     -HC_POOL_PAGE_FIRST_DIRECT, -HC_POOL_PAGE_UNIFIED,
};

static const struct {
	enum hc_io io;
	uint64_t staging_bytes;
} backends[] = {
	{HC_IO_AUTO, STAGING_BYTES},
	{HC_IO_AUTO, 0},
	{HC_IO_DIRECT, 0},
	{HC_IO_KERNEL, 0},
};

/* One shape and page size: tensors, and what they hold. */
struct world {
	struct hc_device *device;
	struct hc_device_stream *stream;
	struct hc_geometry g;
	uint64_t tensor_bytes, host_bytes, all_bytes;
	hc_device_addr k[LAYERS_MAX], v[LAYERS_MAX];
	struct buffer up, down; /* all tensors, one after the other */
	unsigned char *host, *host_expect, *tensors_expect;
	struct hc_rng rng;
};

/* One way to move them. */
struct way {
	struct hc_transfer *transfer;
	struct hc_strides strides;
	uint32_t device_pages[MOVED], host_pages[MOVED];
};

static void fill(struct hc_rng *rng, unsigned char *bytes, uint64_t n)
{
	for (uint64_t i = 0; i + 8 <= n; i += 8) {
		uint64_t v = hc_rng_next(rng);

		memcpy(bytes + i, &v, 8);
	}
}

static hc_device_addr tensor(const struct world *w, uint32_t i)
{
	return i < w->g.n_layers ? w->k[i] : w->v[i - w->g.n_layers];
}

static void world_open(struct world *w, struct hc_device *device, const struct shape *shape,
		       uint32_t page_tokens)
{
	memset(w, 0, sizeof(*w));
	w->device = device;
	w->g = shape->geometry;
	w->g.n_tokens = page_tokens;
	w->stream = new_stream(device);
	hc_rng_seed(&w->rng, page_tokens);
	w->tensor_bytes = DEVICE_PAGES * hc_geometry_page_bytes(&w->g) / w->g.n_layers / w->g.n_kv;
	w->all_bytes = w->tensor_bytes * w->g.n_layers * w->g.n_kv;
	w->host_bytes = hc_align_up(HOST_PAGES * hc_geometry_page_bytes(&w->g), HC_BLOCK_BYTES);
	for (uint32_t l = 0; l < w->g.n_layers; l++) {
		w->k[l] = device_buffer(device, w->tensor_bytes);
		if (w->g.n_kv == 2)
			w->v[l] = device_buffer(device, w->tensor_bytes);
	}
	w->up = host_buffer(device, w->all_bytes, 0);
	w->down = host_buffer(device, w->all_bytes, 0);
	w->host = mmap(NULL, w->host_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		       0);
	assert_ptr_not_equal(w->host, MAP_FAILED);
	w->host_expect = malloc(w->host_bytes);
	w->tensors_expect = malloc(w->all_bytes);
	assert_non_null(w->host_expect);
	assert_non_null(w->tensors_expect);
}

static void world_close(struct world *w)
{
	for (uint32_t i = 0; i < w->g.n_layers * w->g.n_kv; i++)
		hc_device_mem_free(w->device, tensor(w, i));
	host_buffer_free(w->device, &w->up);
	host_buffer_free(w->device, &w->down);
	hc_device_stream_destroy(w->stream);
	munmap(w->host, w->host_bytes);
	free(w->host_expect);
	free(w->tensors_expect);
}

static int way_open(struct world *w, struct way *way, int layout, size_t backend, char *error)
{
	struct hc_device_info info;
	struct hc_transfer_config config = {
		.device = w->device,
		.plan = {.geometry = w->g,
			 .k = w->k,
			 .v = w->g.n_kv == 2 ? w->v : NULL,
			 .device_pages = DEVICE_PAGES,
			 .io = backends[backend].io},
		.host = w->host,
		.host_bytes = w->host_bytes,
		.host_pages = HOST_PAGES,
		.staging_bytes = backends[backend].staging_bytes,
		.engine_pages = true,
	};
	int err;

	hc_device_info(w->device, &info);
	config.no_thread = !info.threads;
	if (layout < 0) {
		config.plan.pool_layout = (enum hc_pool_layout) - layout;
		config.plan.pool_pages = HOST_PAGES;
		err = hc_layout_pool_strides(config.plan.pool_layout, &w->g, HOST_PAGES,
					     &way->strides);
	} else {
		config.plan.layout = (enum hc_layout)layout;
		err = hc_layout_strides(config.plan.layout, &w->g, &way->strides);
	}
	hc_ignore(err); /* the transfer refuses it, too */
	return hc_transfer_create(&config, &way->transfer, error);
}

static void shuffle(struct hc_rng *rng, uint32_t *pages, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		pages[i] = i;
	for (uint32_t i = n - 1; i; i--) {
		uint32_t j = (uint32_t)hc_rng_below(rng, i + 1), page = pages[i];

		pages[i] = pages[j];
		pages[j] = page;
	}
}

/* MOVED free host pages, wherever. */
static void scatter_host_pages(struct world *w, struct way *way)
{
	uint32_t pages[HOST_PAGES];

	assert_int_equal(hc_slots_alloc(way->transfer->host_slots,
					(uint64_t)HOST_PAGES * w->g.n_tokens, pages),
			 0);
	shuffle(&w->rng, pages, HOST_PAGES);
	assert_int_equal(hc_slots_free(way->transfer->host_slots, pages, MOVED), 0);
}

/* Each vector of the moved pages by itself. */
static void expect(struct world *w, const struct way *way, bool load)
{
	const struct hc_geometry *g = &w->g;
	uint64_t vector = hc_geometry_vector_bytes(g);

	for (uint32_t i = 0; i < MOVED * g->n_kv * g->n_layers * g->n_heads * g->n_tokens; i++) {
		uint32_t t = i % g->n_tokens, h = i / g->n_tokens % g->n_heads;
		uint32_t l = i / g->n_tokens / g->n_heads % g->n_layers;
		uint32_t kv = i / g->n_tokens / g->n_heads / g->n_layers % g->n_kv;
		uint32_t p = i / g->n_tokens / g->n_heads / g->n_layers / g->n_kv;
		uint64_t host = hc_strides_offset(&way->strides, way->host_pages[p], kv, l, h, t);
		uint64_t device = (kv * g->n_layers + l) * w->tensor_bytes +
				  (((uint64_t)way->device_pages[p] * g->n_tokens + t) * g->n_heads +
				   h) * vector;

		if (load)
			memcpy(w->tensors_expect + device, w->host_expect + host, vector);
		else
			memcpy(w->host_expect + host, w->tensors_expect + device, vector);
	}
}

/* The forward pass writes all tensors; nobody waits for it. */
static void fill_tensors(struct world *w)
{
	fill(&w->rng, w->up.host, w->all_bytes);
	memcpy(w->tensors_expect, w->up.host, w->all_bytes);
	for (uint32_t i = 0; i < w->g.n_layers * w->g.n_kv; i++)
		assert_int_equal(copy_one(w->stream, tensor(w, i), w->up.addr + i * w->tensor_bytes,
					  w->tensor_bytes),
				 0);
}

static void ack(struct way *way, enum hc_plan_direction direction)
{
	uint64_t deadline_ns = soon();
	struct hc_ack a;
	int err;

	while ((err = hc_transfer_poll(way->transfer, direction, &a)) == -EAGAIN &&
	       hc_clock_now_ns() < deadline_ns)
		hc_ignore(hc_device_stream_drain(way->transfer->lines[direction].stream,
						 deadline_ns));
	assert_int_equal(err, 0);
	assert_int_equal(a.status, 0);
	assert_int_equal(a.n_pages, MOVED);
}

/* The library's own comparison goes byte by byte. */
static void check_bytes(const void *a, const void *b, uint64_t n)
{
	if (memcmp(a, b, n))
		assert_memory_equal(a, b, n);
}

static void check_write(struct world *w, struct way *way)
{
	fill(&w->rng, w->host, w->host_bytes);
	memcpy(w->host_expect, w->host, w->host_bytes);
	fill_tensors(w);
	shuffle(&w->rng, way->device_pages, MOVED);
	scatter_host_pages(w, way);
	assert_int_equal(hc_transfer_write(way->transfer, way->device_pages, MOVED, INT_MIN, -1,
					   true, hc_device_stream_handle(w->stream),
					   way->host_pages),
			 0);
	ack(way, HC_PLAN_WRITE);
	expect(w, way, false);
	check_bytes(w->host, w->host_expect, w->host_bytes);
}

/* Into other pages; each layer is read as soon as it may be. */
static void check_load(struct world *w, struct way *way)
{
	struct hc_producer producer;
	uint32_t pages[DEVICE_PAGES];

	fill_tensors(w);
	shuffle(&w->rng, pages, DEVICE_PAGES);
	memcpy(way->device_pages, pages, sizeof(way->device_pages));
	assert_int_equal(hc_transfer_load(way->transfer, way->host_pages, MOVED, INT_MIN, -1, true,
					  way->device_pages),
			 0);
	assert_int_equal(hc_transfer_start_loading(way->transfer,
						   hc_device_stream_handle(w->stream), &producer),
			 0);
	for (uint32_t l = 0; l < w->g.n_layers; l++) {
		assert_int_equal(hc_transfer_wait_layer(way->transfer, producer, l,
							hc_device_stream_handle(w->stream)),
				 0);
		for (uint32_t kv = 0; kv < w->g.n_kv; kv++) {
			uint32_t i = kv * w->g.n_layers + l;

			assert_int_equal(copy_one(w->stream, w->down.addr + i * w->tensor_bytes,
						  tensor(w, i), w->tensor_bytes),
					 0);
		}
	}
	assert_int_equal(hc_device_stream_drain(w->stream, soon()), 0);
	expect(w, way, true);
	check_bytes(w->down.host, w->tensors_expect, w->all_bytes);
	ack(way, HC_PLAN_LOAD);
}

/* What has no meaning: page_head with MLA. Kernels move 16 bytes at once: a row that these do not
 * divide is refused, unless whole runs of them are so divided. */
static bool must_refuse(const struct hc_geometry *g, int layout, size_t backend)
{
	if (g->mla && (layout == HC_LAYOUT_PAGE_HEAD || layout == -HC_POOL_PAGE_HEAD))
		return true;
	return backends[backend].io == HC_IO_KERNEL &&
	       g->n_tokens * g->n_heads * hc_geometry_vector_bytes(g) % 16;
}

static bool may_refuse(const struct hc_geometry *g, size_t backend)
{
	return backends[backend].io == HC_IO_KERNEL && hc_geometry_vector_bytes(g) % 16;
}

static bool one(struct world *w, int layout, size_t backend, uint64_t n_ways[static HC_PLAN_WAYS])
{
	char error[HC_PLAN_ERROR_BYTES] = "";
	struct hc_transfer_stats stats;
	struct way way;

	int err = way_open(w, &way, layout, backend, error);

	if (err) {
		if (!must_refuse(&w->g, layout, backend) && !may_refuse(&w->g, backend))
			fail_msg("layout %d, io %d: %s", layout, backends[backend].io, error);
		assert_int_equal(err, -EINVAL);
		assert_true(strlen(error) > 0);
		return false;
	}
	assert_false(must_refuse(&w->g, layout, backend));
	check_write(w, &way);
	check_load(w, &way);
	hc_transfer_stats(way.transfer, &stats);
	for (int i = 0; i < HC_PLAN_WAYS; i++)
		n_ways[i] += stats.n_ways[i];
	if (backends[backend].io == HC_IO_DIRECT)
		assert_int_equal(stats.n_ways[HC_PLAN_COPY], 2);
	if (backends[backend].io == HC_IO_KERNEL)
		assert_int_equal(stats.n_ways[HC_PLAN_KERNEL], 2);
	assert_int_equal(stats.n_leased_pages + stats.n_failed, 0);
	assert_int_equal(hc_transfer_destroy(way.transfer, soon()), 0);
	return true;
}

static void test_pages(void **state)
{
	const struct backend *backend = *state;
	uint64_t n_ways[HC_PLAN_WAYS] = {0};
	const char *sanitize = getenv("HC_SANITIZE");
	/* Every byte costs a hundred times as much under the thread sanitizer. */
	uint32_t n_sizes = sanitize && strstr(sanitize, "thread") ? 2 : 3;
	uint32_t n_ran = 0, n_refused = 0;
	struct hc_device *device;

	assert_int_equal(backend->open(&device), 0);
	for (size_t i = 0; i < HC_ARRAY_SIZE(shapes) * n_sizes; i++) {
		struct world w;

		world_open(&w, device, &shapes[i / n_sizes], page_sizes[i % n_sizes]);
		for (size_t k = 0; k < HC_ARRAY_SIZE(layouts) * HC_ARRAY_SIZE(backends); k++) {
			if (one(&w, layouts[k / HC_ARRAY_SIZE(backends)],
				k % HC_ARRAY_SIZE(backends), n_ways))
				n_ran++;
			else
				n_refused++;
		}
		world_close(&w);
	}
	hc_device_close(device);
	print_message("# %u combinations, %u refused; transfers: %llu copy, %llu staged, %llu "
		      "kernel\n",
		      n_ran, n_refused, (unsigned long long)n_ways[HC_PLAN_COPY],
		      (unsigned long long)n_ways[HC_PLAN_STAGED],
		      (unsigned long long)n_ways[HC_PLAN_KERNEL]);
	/* Of each page size: 2 MLA shapes x 2 layouts x 4, some of the rows of 7 bytes by kernels.
	 */
	assert_in_range(n_refused, n_sizes * 2 * 2 * 4 + 9, n_sizes * (2 * 2 * 4 + 9));
	assert_int_equal(n_ran + n_refused, n_sizes * 5 * 9 * 4);
	for (int i = 0; i < HC_PLAN_WAYS; i++)
		assert_true(n_ways[i] >= 30);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_pages)};

	return run_on_backends("pages", tests, HC_ARRAY_SIZE(tests), 2, argc, argv);
}
