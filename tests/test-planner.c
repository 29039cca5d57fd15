/* SPDX-License-Identifier: Apache-2.0 */
/* The planner: every layout, both directions, every mechanism, byte for byte against loops written
 * out over the offsets of model/layout.h; what is merged, chosen and refused. */
#include "device/plan.h"
#include "tests/hctest.h"
#include "util/rng.h"

enum { HOST_PAGES = 7, DEVICE_PAGES = 6, N_PAIRS = 4 };

/* Both sides in ordinary memory: the planner only computes addresses. */
struct world {
	struct hc_plan_config config;
	struct hc_strides host_strides; /* of the whole host side */
	uint64_t page_bytes, tensor_bytes, host_bytes;
	unsigned char *host, *host_expect;
	unsigned char *tensors, *tensors_expect; /* K of all layers, V of all layers */
	hc_device_addr k[8], v[8];
	struct hc_plan_page pages[N_PAIRS];
	struct hc_plan *plan;
};

static const struct hc_geometry geometries[] = {
	{2, 3, 4, 8, 16, 2, 1, false}, {2, 3, 4, 8, 16, 2, 2, false}, {2, 2, 4, 1, 8, 2, 4, false},
	{2, 1, 3, 5, 8, 2, 1, false},  {1, 4, 1, 8, 24, 2, 1, true},  {1, 4, 2, 4, 16, 1, 1, false},
	{2, 3, 1, 4, 7, 1, 1, false},
};

static void fill(unsigned char *bytes, uint64_t n, uint64_t seed)
{
	struct hc_rng rng;

	hc_rng_seed(&rng, seed);
	for (uint64_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)hc_rng_next(&rng);
}

static unsigned char *new_bytes(uint64_t n, uint64_t seed)
{
	unsigned char *bytes = aligned_alloc(4096, hc_align_up(n, 4096));

	assert_non_null(bytes);
	fill(bytes, n, seed);
	return bytes;
}

static unsigned char *same_bytes(const unsigned char *from, uint64_t n)
{
	unsigned char *bytes = aligned_alloc(4096, hc_align_up(n, 4096));

	assert_non_null(bytes);
	memcpy(bytes, from, n);
	return bytes;
}

/* layout < 0: the pool layout -layout. wide: rows of the tensors have gaps. */
static int make_world(struct world *w, const struct hc_geometry *g, int layout, bool wide,
		      enum hc_io io)
{
	uint64_t vector = hc_geometry_vector_bytes(g);
	static const uint32_t host_pages[N_PAIRS] = {5, 2, 3, 0},
			      device_pages[N_PAIRS] = {1, 4, 5, 2};
	char error[HC_PLAN_ERROR_BYTES] = "";
	int err;

	memset(w, 0, sizeof(*w));
	w->config = (struct hc_plan_config){.geometry = *g,
					    .device_pages = DEVICE_PAGES,
					    .k = w->k,
					    .v = g->n_kv == 2 ? w->v : NULL,
					    .io = io,
					    .kernels = true};
	if (wide) {
		w->config.head_stride = vector + 32;
		w->config.token_stride = g->n_heads * (vector + 32) + 64;
		w->config.page_stride = g->n_tokens * w->config.token_stride + 128;
	}
	w->page_bytes = hc_geometry_page_bytes(g);
	w->tensor_bytes = hc_align_up(
		DEVICE_PAGES * (wide ? w->config.page_stride : g->n_tokens * g->n_heads * vector),
		256);
	w->tensors = new_bytes(2 * w->tensor_bytes * g->n_layers, 1);
	/* V of a layer below its K, layers in falling order: strides of either sign. */
	for (uint32_t l = 0; l < g->n_layers; l++) {
		uint64_t at = (g->n_layers - 1 - l) * 2 * w->tensor_bytes;

		w->v[l] = (uintptr_t)w->tensors + at;
		w->k[l] = w->v[l] + w->tensor_bytes;
	}
	if (layout < 0) {
		w->config.pool_layout = (enum hc_pool_layout) - layout;
		w->config.pool_pages = HOST_PAGES;
		err = hc_layout_pool_strides(w->config.pool_layout, g, HOST_PAGES,
					     &w->host_strides);
	} else {
		w->config.layout = (enum hc_layout)layout;
		err = hc_layout_strides(w->config.layout, g, &w->host_strides);
	}
	w->host_bytes = HOST_PAGES * w->page_bytes;
	w->host = new_bytes(w->host_bytes, 2);
	if (!err)
		err = hc_plan_create(&w->config, &w->plan, error);
	for (int i = 0; i < N_PAIRS && !err; i++)
		w->pages[i] = (struct hc_plan_page){
			(uintptr_t)w->host + host_pages[i] * w->host_strides.page, device_pages[i]};
	w->host_expect = same_bytes(w->host, w->host_bytes);
	w->tensors_expect = same_bytes(w->tensors, 2 * w->tensor_bytes * g->n_layers);
	return err;
}

static void free_world(struct world *w)
{
	hc_plan_destroy(w->plan);
	free(w->host);
	free(w->host_expect);
	free(w->tensors);
	free(w->tensors_expect);
}

/* What must come out, vector by vector. */
static void expect(struct world *w, enum hc_plan_direction direction)
{
	const struct hc_geometry *g = &w->config.geometry;
	uint64_t vector = hc_geometry_vector_bytes(g);
	uint64_t head_stride = w->config.head_stride ? w->config.head_stride : vector;
	uint64_t token_stride =
		w->config.token_stride ? w->config.token_stride : g->n_heads * vector;
	uint64_t page_stride =
		w->config.page_stride ? w->config.page_stride : g->n_tokens * token_stride;

	for (int p = 0; p < N_PAIRS; p++) {
		uint64_t page = w->pages[p].host - (uintptr_t)w->host;

		for (uint32_t i = 0; i < g->n_kv * g->n_layers * g->n_heads * g->n_tokens; i++) {
			uint32_t kv = i % g->n_kv, l = i / g->n_kv % g->n_layers;
			uint32_t h = i / g->n_kv / g->n_layers % g->n_heads;
			uint32_t t = i / g->n_kv / g->n_layers / g->n_heads;
			uint64_t host = page + hc_strides_offset(&w->host_strides, 0, kv, l, h, t);
			uint64_t device = (kv ? w->v[l] : w->k[l]) - (uintptr_t)w->tensors +
					  w->pages[p].device * page_stride + t * token_stride +
					  h * head_stride;

			if (direction == HC_PLAN_LOAD)
				memcpy(w->tensors_expect + device, w->host + host, vector);
			else
				memcpy(w->host_expect + host, w->tensors + device, vector);
		}
	}
}

static void check(struct world *w)
{
	assert_memory_equal(w->host, w->host_expect, w->host_bytes);
	assert_memory_equal(w->tensors, w->tensors_expect,
			    2 * w->tensor_bytes * w->config.geometry.n_layers);
}

static void run_copies(const struct hc_device_copy *copies, size_t n)
{
	for (size_t i = 0; i < n; i++)
		memcpy((void *)(uintptr_t)copies[i].dst, (void *)(uintptr_t)copies[i].src,
		       copies[i].size_bytes);
}

static void by_copies(struct world *w, enum hc_plan_direction direction, size_t batch)
{
	struct hc_device_copy copies[64];

	for (uint32_t l = 0; l < w->config.geometry.n_layers; l++) {
		uint64_t cursor = 0, total = 0;
		size_t n;

		while ((n = hc_plan_copies(w->plan, direction, l, w->pages, N_PAIRS, &cursor,
					   copies, batch))) {
			assert_true(n <= batch);
			run_copies(copies, n);
			total += n;
		}
		assert_true(total >= hc_plan_count(w->plan, l, w->pages, N_PAIRS));
	}
}

static void run_page_copy(struct world *w, enum hc_plan_direction direction, uint32_t layer,
			  bool staged, const uint64_t *host)
{
	struct hc_page_pair pairs[N_PAIRS] __attribute__((aligned(16)));
	struct hc_page_copy copy;
	uint32_t n_units;

	hc_plan_page_copy(w->plan, direction, layer, staged, &copy);
	copy.pairs = (uintptr_t)pairs;
	copy.n_pages = N_PAIRS;
	for (int i = 0; i < N_PAIRS; i++) {
		uint64_t device = hc_plan_device_offset(w->plan, w->pages[i].device);

		pairs[i] = direction == HC_PLAN_LOAD ? (struct hc_page_pair){host[i], device}
						     : (struct hc_page_pair){device, host[i]};
	}
	assert_int_equal(hc_page_copy_check(&copy), 0);
	n_units = hc_page_copy_units_per_page(&copy) * copy.n_pages;
	/* In uneven pieces, as blocks of a grid do. */
	for (uint32_t at = 0; at < n_units; at += 5)
		hc_page_copy_run(&copy, at, (uint32_t)hc_min_u64(5, n_units - at));
}

static void by_kernel(struct world *w, enum hc_plan_direction direction)
{
	uint64_t host[N_PAIRS];

	for (int i = 0; i < N_PAIRS; i++)
		host[i] = w->pages[i].host;
	for (uint32_t l = 0; l < w->config.geometry.n_layers; l++)
		run_page_copy(w, direction, l, false, host);
}

static void staged_write(struct world *w)
{
	unsigned char *staging = new_bytes(N_PAIRS * w->page_bytes, 3);
	struct hc_device_copy copies[2 * N_PAIRS];
	uint64_t host[N_PAIRS];
	size_t n = 0;

	for (uint64_t i = 0; i < N_PAIRS; i++)
		host[i] = (uintptr_t)staging + i * w->page_bytes;
	for (uint32_t l = 0; l < w->config.geometry.n_layers; l++)
		run_page_copy(w, HC_PLAN_WRITE, l, true, host);
	for (int i = 0; i < N_PAIRS; i++)
		hc_plan_stage_copies(w->plan, HC_PLAN_WRITE, w->pages[i].host, host[i], copies, &n);
	run_copies(copies, n);
	free(staging);
}

/* Slices of `group` layers. */
static void staged_load(struct world *w, uint32_t group)
{
	const struct hc_geometry *g = &w->config.geometry;

	for (uint32_t first = 0; first < g->n_layers; first += group) {
		uint32_t n = (uint32_t)hc_min_u64(group, g->n_layers - first);
		uint64_t offset = hc_plan_slice_offset(w->plan, first);
		uint64_t bytes = hc_plan_slice_bytes(w->plan, n), host[N_PAIRS];
		unsigned char *staging = new_bytes(N_PAIRS * bytes, 3);

		for (uint64_t i = 0; i < N_PAIRS; i++) {
			memcpy(staging + i * bytes,
			       (const unsigned char *)(uintptr_t)w->pages[i].host + offset, bytes);
			host[i] = (uintptr_t)staging + i * bytes - offset;
		}
		for (uint32_t l = first; l < first + n; l++)
			run_page_copy(w, HC_PLAN_LOAD, l, true, host);
		free(staging);
	}
}

/* What can be staged is known here once more: pages that are whole; layers outermost. */
static bool can_slice(const struct world *w, int layout)
{
	const struct hc_geometry *g = &w->config.geometry;

	if (layout == HC_LAYOUT_PAGE_UNIFIED || layout == -HC_POOL_PAGE_UNIFIED)
		return g->n_groups == 1;
	return g->n_kv == 1 &&
	       (layout == HC_LAYOUT_LAYER_FIRST || layout == -HC_POOL_PAGE_FIRST_DIRECT);
}

static const int layouts[] = {
	HC_LAYOUT_LAYER_FIRST,  HC_LAYOUT_PAGE_FIRST,       HC_LAYOUT_PAGE_HEAD,
	HC_LAYOUT_PAGE_UNIFIED, -HC_POOL_LAYER_FIRST,       -HC_POOL_PAGE_FIRST,
	-HC_POOL_PAGE_HEAD,     -HC_POOL_PAGE_FIRST_DIRECT, -HC_POOL_PAGE_UNIFIED,
};

enum way { BY_COPIES, BY_FEW_COPIES, BY_KERNEL, BY_STAGING, WAYS };

/* False: this combination has no meaning, or the mechanism does not suit it. */
static bool one(const struct hc_geometry *g, int layout, bool wide,
		enum hc_plan_direction direction, enum way way)
{
	struct world w;
	bool kernel = hc_geometry_vector_bytes(g) % 16 == 0;
	bool ran = true;

	if (make_world(&w, g, layout, wide, HC_IO_AUTO)) {
		assert_true(g->mla &&
			    (layout == HC_LAYOUT_PAGE_HEAD || layout == -HC_POOL_PAGE_HEAD));
		free_world(&w);
		return false;
	}
	expect(&w, direction);
	if (way == BY_COPIES)
		by_copies(&w, direction, 64);
	else if (way == BY_FEW_COPIES)
		by_copies(&w, direction, 3);
	else if (!kernel)
		ran = false;
	else if (way == BY_KERNEL)
		by_kernel(&w, direction);
	else if (direction == HC_PLAN_WRITE && layout != -HC_POOL_LAYER_FIRST)
		staged_write(&w);
	else if (direction == HC_PLAN_LOAD && can_slice(&w, layout))
		staged_load(&w, 2);
	else
		ran = false;
	if (ran)
		check(&w);
	free_world(&w);
	return ran;
}

/* Goal: every byte of every combination goes where the layouts say, and no other byte changes.
 * Method: 7 geometries (MHA, groups, MLA, one object of a pair, rows of 7 bytes) x 9 layouts x
 * tight and wide tensors x 2 directions x 4 ways. */
static void test_bytes(void **state)
{
	uint32_t n_ran = 0;

	for (size_t g = 0; g < HC_ARRAY_SIZE(geometries); g++) {
		for (size_t l = 0; l < HC_ARRAY_SIZE(layouts); l++) {
			for (int i = 0; i < 2 * 2 * WAYS; i++)
				n_ran += one(&geometries[g], layouts[l], i & 1,
					     i & 2 ? HC_PLAN_WRITE : HC_PLAN_LOAD,
					     (enum way)(i / 4));
		}
	}
	print_message("# %u combinations\n", n_ran);
	assert_true(n_ran > 600);
}

/* Goal: the stated fragments of real models. Method: Llama-3.1-8B and 70B at TP8, DeepSeek-V3. */
static void test_fragments(void **state)
{
	static const struct {
		struct hc_geometry g;
		int layout;
		uint64_t n, bytes;
	} cases[] = {
		{{2, 4, 8, 64, 128, 2, 1, false}, HC_LAYOUT_PAGE_UNIFIED, 2, 131072},
		{{2, 4, 8, 64, 128, 2, 1, false}, HC_LAYOUT_PAGE_FIRST, 128, 2048},
		{{2, 4, 8, 64, 128, 2, 1, false}, HC_LAYOUT_PAGE_HEAD, 1024, 256},
		{{2, 4, 1, 64, 128, 2, 1, false}, HC_LAYOUT_LAYER_FIRST, 2, 16384},
		{{2, 4, 1, 16, 128, 2, 1, false}, HC_LAYOUT_PAGE_HEAD, 32, 256},
		{{1, 4, 1, 64, 576, 2, 1, true}, HC_LAYOUT_PAGE_UNIFIED, 1, 73728},
		{{1, 4, 1, 64, 576, 2, 1, true}, HC_LAYOUT_PAGE_FIRST, 64, 1152},
	};

	for (size_t i = 0; i < HC_ARRAY_SIZE(cases); i++) {
		struct hc_device_copy copies[1024];
		uint64_t cursor = 0;
		struct world w;

		assert_int_equal(make_world(&w, &cases[i].g, cases[i].layout, false, HC_IO_AUTO),
				 0);
		assert_int_equal(hc_plan_count(w.plan, 1, w.pages, 1), cases[i].n);
		assert_int_equal(
			hc_plan_copies(w.plan, HC_PLAN_LOAD, 1, w.pages, 1, &cursor, copies, 1024),
			cases[i].n);
		assert_int_equal(copies[0].size_bytes, cases[i].bytes);
		free_world(&w);
	}
}

/* Goal: pages that are neighbours on both sides are one descriptor; layer_first pools are sorted so
 * that they are, others keep their order. */
static void test_merging(void **state)
{
	const struct hc_geometry g = {2, 3, 4, 8, 16, 2, 1, false};
	const uint32_t order[4] = {3, 1, 2, 6};
	struct world w;

	assert_int_equal(make_world(&w, &g, -HC_POOL_LAYER_FIRST, false, HC_IO_DIRECT), 0);
	for (int i = 0; i < 4; i++)
		w.pages[i] = (struct hc_plan_page){
			(uintptr_t)w.host + hc_plan_pool_offset(w.plan, order[i]), order[i] - 1};
	assert_int_equal(hc_plan_count(w.plan, 0, w.pages, 4), 2 * 3);
	hc_plan_sort(w.plan, w.pages, 4);
	assert_int_equal(w.pages[0].device, 0);
	assert_int_equal(w.pages[3].device, 5);
	assert_int_equal(hc_plan_count(w.plan, 0, w.pages, 4), 2 * 2);
	expect(&w, HC_PLAN_WRITE);
	by_copies(&w, HC_PLAN_WRITE, 64);
	check(&w);
	free_world(&w);
	assert_int_equal(make_world(&w, &g, -HC_POOL_PAGE_FIRST_DIRECT, false, HC_IO_DIRECT), 0);
	w.pages[0].host += w.page_bytes;
	w.pages[1].device = 3;
	hc_plan_sort(w.plan, w.pages, 4);
	assert_int_equal(w.pages[1].device, 3);
	free_world(&w);
}

/* Goal: whole pages in neighbouring slots are one staged copy; K and V that a pool keeps apart are
 * two. */
static void test_stage_copies(void **state)
{
	const struct hc_geometry g = {2, 3, 4, 8, 16, 2, 1, false};
	struct hc_device_copy copies[8];
	struct world w;
	size_t n = 0;

	assert_int_equal(make_world(&w, &g, HC_LAYOUT_PAGE_HEAD, false, HC_IO_AUTO), 0);
	for (uint64_t i = 0; i < 3; i++)
		hc_plan_stage_copies(w.plan, HC_PLAN_WRITE, 4096 + i * w.page_bytes,
				     1u << 20 | i * w.page_bytes, copies, &n);
	assert_int_equal(n, 1);
	assert_int_equal(copies[0].size_bytes, 3 * w.page_bytes);
	assert_int_equal(copies[0].dst, 4096);
	free_world(&w);
	n = 0;
	assert_int_equal(make_world(&w, &g, -HC_POOL_PAGE_FIRST, false, HC_IO_AUTO), 0);
	hc_plan_stage_copies(w.plan, HC_PLAN_LOAD, 4096, 1 << 20, copies, &n);
	assert_int_equal(n, 2);
	assert_int_equal(copies[1].src, 4096 + HOST_PAGES * w.page_bytes / 2);
	assert_int_equal(copies[1].dst, (1 << 20) + w.page_bytes / 2);
	free_world(&w);
}

static enum hc_plan_way chosen(const struct hc_geometry *g, int layout, enum hc_io io,
			       enum hc_plan_direction direction, uint64_t staging_bytes)
{
	struct world w;
	enum hc_plan_way way;

	assert_int_equal(make_world(&w, g, layout, false, io), 0);
	way = hc_plan_choose(w.plan, direction, w.pages, N_PAIRS, staging_bytes);
	free_world(&w);
	return way;
}

/* Goal: the mechanism goes by the size of the runs, by what can be staged, and by what is forced.
 */
static void test_choice(void **state)
{
	const struct hc_geometry big = {2, 2, 8, 64, 128, 2, 1, false};
	const struct hc_geometry small = {2, 2, 1, 16, 128, 2, 1, false};
	const struct hc_geometry odd = {2, 2, 1, 5, 7, 1, 1, false};
	const uint64_t room = 1 << 22;

	assert_int_equal(chosen(&big, HC_LAYOUT_PAGE_UNIFIED, HC_IO_AUTO, HC_PLAN_LOAD, room),
			 HC_PLAN_COPY);
	assert_int_equal(chosen(&big, HC_LAYOUT_PAGE_FIRST, HC_IO_AUTO, HC_PLAN_LOAD, room),
			 HC_PLAN_KERNEL);
	assert_int_equal(chosen(&big, HC_LAYOUT_PAGE_FIRST, HC_IO_AUTO, HC_PLAN_WRITE, room),
			 HC_PLAN_STAGED);
	assert_int_equal(chosen(&small, HC_LAYOUT_PAGE_UNIFIED, HC_IO_AUTO, HC_PLAN_LOAD, room),
			 HC_PLAN_STAGED);
	assert_int_equal(chosen(&small, HC_LAYOUT_PAGE_UNIFIED, HC_IO_AUTO, HC_PLAN_LOAD, 0),
			 HC_PLAN_KERNEL);
	assert_int_equal(chosen(&small, -HC_POOL_LAYER_FIRST, HC_IO_AUTO, HC_PLAN_WRITE, room),
			 HC_PLAN_KERNEL);
	assert_int_equal(chosen(&small, HC_LAYOUT_PAGE_HEAD, HC_IO_DIRECT, HC_PLAN_LOAD, room),
			 HC_PLAN_COPY);
	assert_int_equal(chosen(&big, HC_LAYOUT_PAGE_UNIFIED, HC_IO_KERNEL, HC_PLAN_LOAD, room),
			 HC_PLAN_KERNEL);
	assert_int_equal(chosen(&odd, HC_LAYOUT_PAGE_UNIFIED, HC_IO_AUTO, HC_PLAN_LOAD, room),
			 HC_PLAN_COPY);
}

/* Goal: what has no meaning is refused before anything is copied, by a text that names it. */
static void test_refusals(void **state)
{
	static const hc_device_addr k[] = {4096, 8192}, v[] = {1 << 20, 2 << 20},
				    hole[] = {4096, 0};
	const struct hc_plan_config good = {.geometry = {2, 2, 2, 4, 16, 2, 1, false},
					    .layout = HC_LAYOUT_PAGE_UNIFIED,
					    .k = k,
					    .v = v,
					    .device_pages = 4,
					    .kernels = true};
	char error[HC_PLAN_ERROR_BYTES];
	struct hc_plan_config c;
	struct hc_plan *plan;

#define REFUSED(err, word, ...)                                          \
	do {                                                             \
		c = good;                                                \
		__VA_ARGS__;                                             \
		assert_int_equal(hc_plan_create(&c, &plan, error), err); \
		if (!strstr(error, word))                                \
			fail_msg("no \"%s\" in \"%s\"", word, error);    \
	} while (0)
	REFUSED(-EINVAL, "geometry", c.geometry.n_layers = 0);
	REFUSED(-EINVAL, "undeclared", c.layout = HC_LAYOUT_UNDECLARED);
	REFUSED(-EINVAL, "unknown layout", c.layout = (enum hc_layout)9);
	REFUSED(-EINVAL, "undeclared",
		(c.layout = 0, c.pool_layout = (enum hc_pool_layout)9, c.pool_pages = 1));
	REFUSED(-EINVAL, "no pages", c.pool_layout = HC_POOL_LAYER_FIRST);
	REFUSED(-EINVAL, "page_head has no meaning",
		(c.geometry = (struct hc_geometry){1, 2, 1, 4, 64, 2, 1, true},
		 c.layout = HC_LAYOUT_PAGE_HEAD, c.v = NULL));
	REFUSED(-EINVAL, "tensors for K and V", c.v = NULL);
	REFUSED(-EINVAL, "tensors for K and V", c.geometry.n_kv = 1);
	REFUSED(-EINVAL, "no tensors", c.k = NULL);
	REFUSED(-EINVAL, "no tensors", c.device_pages = 0);
	REFUSED(-EINVAL, "has no tensor", c.k = hole);
	REFUSED(-EINVAL, "shorter", c.token_stride = 16);
	REFUSED(-EINVAL, "shorter", c.head_stride = 8);
	REFUSED(-EINVAL, "beyond all memory", c.page_stride = UINT64_MAX / 2);
	REFUSED(-EINVAL, "io backend", c.io = (enum hc_io)7);
	REFUSED(-EINVAL, "do not divide",
		(c.io = HC_IO_KERNEL, c.geometry.n_tokens = 5, c.geometry.head_dim = 7));
	REFUSED(-EINVAL, "do not divide", (c.io = HC_IO_KERNEL, c.token_stride = 72));
	REFUSED(-ENOTSUP, "no kernels", (c.io = HC_IO_KERNEL, c.kernels = false));
	c = good;
	assert_int_equal(hc_plan_create(&c, &plan, error), 0);
	hc_plan_destroy(plan);
}

/* Goal: what SGLang refuses and has a meaning is done: direct with every layout. */
static void test_direct_everywhere(void **state)
{
	const struct hc_geometry g = {2, 3, 4, 8, 16, 2, 2, false};

	for (size_t i = 0; i < HC_ARRAY_SIZE(layouts); i++) {
		struct world w;

		assert_int_equal(make_world(&w, &g, layouts[i], false, HC_IO_DIRECT), 0);
		assert_int_equal(hc_plan_choose(w.plan, HC_PLAN_LOAD, w.pages, N_PAIRS, 1 << 30),
				 HC_PLAN_COPY);
		expect(&w, HC_PLAN_LOAD);
		by_copies(&w, HC_PLAN_LOAD, 64);
		check(&w);
		free_world(&w);
	}
}

static void test_words(void **state)
{
	enum hc_io io;

	assert_int_equal(hc_io_parse("kernel", &io), 0);
	assert_int_equal(io, HC_IO_KERNEL);
	assert_int_equal(hc_io_parse("direct", &io), 0);
	assert_int_equal(io, HC_IO_DIRECT);
	assert_int_equal(hc_io_parse("kernel_ascend", &io), -EINVAL);
	assert_string_equal(hc_plan_way_name(HC_PLAN_STAGED), "staged");
}

/* As the kernels do it, thread by thread; counts how often each unit is moved. */
static void run_as_grid(const struct hc_page_copy *c, uint32_t n_blocks, uint32_t n_threads,
			uint8_t *n_moved)
{
	const struct hc_page_pair *pairs = (const void *)(uintptr_t)c->pairs;
	uint32_t n_units = hc_page_copy_units_per_page(c) * c->n_pages;

	for (uint32_t k = 0; k < n_blocks * n_threads; k++) {
		uint32_t block = k / n_threads, thread = k % n_threads;

		for (uint64_t lap = 0;
		     hc_page_copy_unit(lap, n_blocks, block, n_threads, thread, 0) < n_units;
		     lap++) {
			for (uint32_t i = 0; i < HC_PAGE_COPY_IN_FLIGHT; i++) {
				uint64_t unit = hc_page_copy_unit(lap, n_blocks, block, n_threads,
								  thread, i);
				struct hc_page_copy_at at;

				if (unit >= n_units)
					continue;
				at = hc_page_copy_find(c, (uint32_t)unit);
				memcpy((void *)(uintptr_t)(c->dst + pairs[at.page_i].dst +
							   (uint64_t)at.dst),
				       (const void *)(uintptr_t)(c->src + pairs[at.page_i].src +
								 (uint64_t)at.src),
				       HC_PAGE_COPY_UNIT);
				n_moved[unit]++;
			}
		}
	}
}

/* Goal: whatever the grid, the threads of a kernel together move each unit once, to where its twin
 * moves it. Method: the kernels' own arithmetic, for grids and copies that do not divide. */
static void test_grid(void **state)
{
	static const struct {
		uint32_t n_blocks, n_threads;
	} grids[] = {{1, 1}, {1, 32}, {2, 1024}, {3, 96}, {32, 64}};
	unsigned char *src = new_bytes(8192, 1), *twin = new_bytes(16384, 2);
	unsigned char *grid = same_bytes(twin, 16384);
	struct hc_page_pair pairs[5] __attribute__((aligned(16)));

	for (uint64_t p = 0; p < 5; p++)
		pairs[p] = (struct hc_page_pair){p * 1536, (4 - p) * 3072};
	for (uint32_t n_pages = 1; n_pages <= 5; n_pages++) {
		for (size_t g = 0; g < HC_ARRAY_SIZE(grids); g++) {
			struct hc_page_copy copy = {.pairs = (uintptr_t)pairs,
						    .src = (uintptr_t)src,
						    .dst = (uintptr_t)twin,
						    .src_stride = {64, 192, 768},
						    .dst_stride = {48, 320, 1280},
						    .count = {3, 4, 2, 1, 1},
						    .run_bytes = 48,
						    .n_pages = n_pages};
			uint32_t n_units = hc_page_copy_units_per_page(&copy) * n_pages;
			uint8_t n_moved[5 * 72] = {0};

			assert_int_equal(hc_page_copy_check(&copy), 0);
			assert_in_range(n_units, 1, sizeof(n_moved));
			fill(src, 8192, g);
			hc_page_copy_run(&copy, 0, n_units);
			copy.dst = (uintptr_t)grid;
			run_as_grid(&copy, grids[g].n_blocks, grids[g].n_threads, n_moved);
			assert_memory_equal(grid, twin, 16384);
			for (uint32_t i = 0; i < n_units; i++)
				assert_int_equal(n_moved[i], 1);
		}
	}
	free(src);
	free(twin);
	free(grid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_fragments),
		cmocka_unit_test(test_merging),
		cmocka_unit_test(test_stage_copies),
		cmocka_unit_test(test_choice),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_direct_everywhere),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_grid),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
