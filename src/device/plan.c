/* SPDX-License-Identifier: Apache-2.0 */
/* See plan.h. In each layer the host side is the source of the stored loops and the device side
 * their destination, whichever way the bytes go. */
#include "device/plan.h"

struct layer_plan {
	hc_device_addr base;     /* of K */
	struct hc_copy_plan run; /* host memory <-> tensors */
	struct hc_copy_plan stage;
	uint64_t host_offset;  /* of the layer in its page */
	uint64_t stage_offset; /* the same in the order of staging */
};

struct hc_plan {
	struct hc_geometry geometry;
	struct hc_strides host;  /* pool: of the whole buffer */
	struct hc_strides stage; /* of a page by itself */
	uint64_t page_bytes;
	uint64_t page_stride; /* of the tensors */
	enum hc_io io;
	bool kernel;     /* page copies are possible */
	bool sorts;      /* a layer_first pool */
	bool whole;      /* a page, or its half, is contiguous in host memory */
	bool sliced;     /* layers are outermost, and the page is one piece */
	bool two_pieces; /* K and V of a page lie apart in host memory */
	struct layer_plan layers[];
};

static const char *const way_names[] = {"copy", "staged", "kernel"};

const char *hc_plan_way_name(enum hc_plan_way way)
{
	return (unsigned int)way < HC_ARRAY_SIZE(way_names) ? way_names[way] : "unknown";
}

int hc_io_parse(const char *text, enum hc_io *io_p)
{
	static const char *const names[] = {"auto", "direct", "kernel"};

	for (size_t i = 0; i < HC_ARRAY_SIZE(names); i++) {
		if (!strcmp(text, names[i])) {
			*io_p = (enum hc_io)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int refuse(char *error, int err, const char *text)
{
	snprintf(error, HC_PLAN_ERROR_BYTES, "%s", text);
	return err;
}

/* The order inside one page that corresponds to a pool's. */
static enum hc_layout page_layout(const struct hc_plan_config *config)
{
	switch (config->pool_layout) {
	case HC_POOL_LAYER_FIRST:
	case HC_POOL_PAGE_FIRST_DIRECT:
		return HC_LAYOUT_LAYER_FIRST;
	case HC_POOL_PAGE_FIRST:
		return HC_LAYOUT_PAGE_FIRST;
	case HC_POOL_PAGE_HEAD:
		return HC_LAYOUT_PAGE_HEAD;
	case HC_POOL_PAGE_UNIFIED:
		return HC_LAYOUT_PAGE_UNIFIED;
	}
	return config->layout;
}

static int check_config(const struct hc_plan_config *config, char *error)
{
	const struct hc_geometry *g = &config->geometry;
	enum hc_layout layout = page_layout(config);

	if (hc_geometry_check(g))
		return refuse(error, -EINVAL, "the geometry is not one of a page");
	if (config->pool_layout && !config->pool_pages)
		return refuse(error, -EINVAL, "a pool of no pages");
	if (layout == HC_LAYOUT_UNDECLARED)
		return refuse(error, -EINVAL,
			      "the layout of the host's pages is undeclared: declare the series");
	if (layout < HC_LAYOUT_LAYER_FIRST || layout > HC_LAYOUT_PAGE_UNIFIED)
		return refuse(error, -EINVAL, "unknown layout of the host's pages");
	if (layout == HC_LAYOUT_PAGE_HEAD && g->mla)
		return refuse(error, -EINVAL,
			      "page_head has no meaning with MLA, which has one head: use "
			      "page_first or page_unified");
	if (!config->k || !config->device_pages)
		return refuse(error, -EINVAL, "no tensors on the device");
	if (!config->v != (g->n_kv == 1))
		return refuse(error, -EINVAL,
			      "tensors for K and V are needed with two of them in a page, and for "
			      "K alone with one");
	if ((unsigned int)config->io > HC_IO_KERNEL)
		return refuse(error, -EINVAL, "unknown io backend: auto, direct or kernel");
	return 0;
}

/* The tensors of one layer, as strides of a page. */
static struct hc_strides device_strides(const struct hc_plan_config *config, uint32_t layer)
{
	const struct hc_geometry *g = &config->geometry;
	uint64_t vector = hc_geometry_vector_bytes(g);
	struct hc_strides s = {
		.kv = config->v ? config->v[layer] - config->k[layer] : 0,
		.head = config->head_stride ? config->head_stride : vector,
		.token = config->token_stride ? config->token_stride : g->n_heads * vector,
		.heads_per_group = g->n_heads,
	};

	return s;
}

static uint64_t device_page_stride(const struct hc_plan_config *config)
{
	uint64_t token = device_strides(config, 0).token;

	return config->page_stride ? config->page_stride : config->geometry.n_tokens * token;
}

/* Pages, tokens and heads lie apart, in whatever order: each stride passes over all that is within.
 */
static bool rows_apart(const struct hc_plan_config *config, const struct hc_strides *s)
{
	const struct hc_geometry *g = &config->geometry;
	uint64_t strides[3] = {device_page_stride(config), s->token, s->head};
	uint64_t counts[3] = {config->device_pages, g->n_tokens, g->n_heads};
	uint64_t extent = hc_geometry_vector_bytes(g);
	bool done[3] = {counts[0] < 2, counts[1] < 2, counts[2] < 2};

	for (int n = 0; n < 3; n++) {
		int least = -1;

		for (int i = 0; i < 3; i++)
			if (!done[i] && (least < 0 || strides[i] < strides[least]))
				least = i;
		if (least < 0)
			break;
		if (strides[least] < extent)
			return false;
		done[least] = true;
		extent += strides[least] * (counts[least] - 1);
	}
	return true;
}

/* The furthest byte of a tensor must be one that addresses can name, and rows must not overlap. */
static int check_tensors(const struct hc_plan_config *config, char *error)
{
	const struct hc_geometry *g = &config->geometry;
	struct hc_strides s = device_strides(config, 0);
	uint64_t vector = hc_geometry_vector_bytes(g), end;

	if (s.head < vector || s.token < vector)
		return refuse(error, -EINVAL, "a stride of the tensors is shorter than one vector");
	if (__builtin_mul_overflow(device_page_stride(config), config->device_pages, &end) ||
	    end > INT64_MAX / 2 || s.head > INT64_MAX / 2 / g->n_heads ||
	    s.token > INT64_MAX / 2 / g->n_tokens)
		return refuse(error, -EINVAL, "the strides of the tensors are beyond all memory");
	if (!rows_apart(config, &s))
		return refuse(error, -EINVAL, "rows of the tensors overlap by their strides");
	for (uint32_t layer = 0; layer < g->n_layers; layer++) {
		if (!config->k[layer] || (config->v && !config->v[layer]))
			return refuse(error, -EINVAL, "a layer has no tensor");
	}
	return 0;
}

/* Can 16-byte accesses do it? */
static bool suits_kernels(const struct hc_copy_plan *run, hc_device_addr base)
{
	uint64_t all = run->run_bytes | base;
	uint32_t n_loops = run->n_dims;

	for (uint32_t i = 0; i < run->n_dims; i++)
		all |= run->src_stride[i] | run->dst_stride[i];
	return all % HC_PAGE_COPY_UNIT == 0 && n_loops <= HC_PAGE_COPY_DIMS &&
	       run->run_bytes <= UINT32_MAX;
}

static int plan_layer(struct hc_plan *plan, const struct hc_plan_config *config, uint32_t i)
{
	struct hc_geometry one = config->geometry;
	struct hc_strides device = device_strides(config, i);
	struct layer_plan *layer = &plan->layers[i];
	int err;

	one.n_layers = 1;
	layer->base = config->k[i];
	layer->host_offset = i * plan->host.layer;
	layer->stage_offset = i * plan->stage.layer;
	err = hc_copy_plan_make(&one, &plan->host, &device, &layer->run);
	if (!err)
		err = hc_copy_plan_make(&one, &plan->stage, &device, &layer->stage);
	if (!err && (!suits_kernels(&layer->run, layer->base | layer->host_offset) ||
		     !suits_kernels(&layer->stage, layer->base | layer->stage_offset) ||
		     plan->page_stride % HC_PAGE_COPY_UNIT))
		plan->kernel = false;
	return err;
}

static int make_strides(struct hc_plan *plan, const struct hc_plan_config *config)
{
	const struct hc_geometry *g = &config->geometry;
	enum hc_layout layout = page_layout(config);
	int err = hc_layout_strides(layout, g, &plan->stage);

	if (err)
		return err;
	plan->host = plan->stage;
	if (config->pool_layout)
		err = hc_layout_pool_strides(config->pool_layout, g, config->pool_pages,
					     &plan->host);
	if (err)
		return err;
	plan->sorts = config->pool_layout == HC_POOL_LAYER_FIRST;
	plan->whole = !plan->sorts;
	plan->two_pieces = g->n_kv == 2 && plan->host.kv != plan->stage.kv;
	plan->sliced = plan->whole && !plan->two_pieces &&
		       ((layout == HC_LAYOUT_PAGE_UNIFIED && g->n_groups == 1) ||
			(layout == HC_LAYOUT_LAYER_FIRST && g->n_kv == 1));
	return 0;
}

int hc_plan_create(const struct hc_plan_config *config, struct hc_plan **plan_p,
		   char error[HC_PLAN_ERROR_BYTES])
{
	const struct hc_geometry *g = &config->geometry;
	struct hc_plan *plan;
	int err = check_config(config, error);

	if (!err)
		err = check_tensors(config, error);
	if (err)
		return err;
	plan = hc_zalloc(sizeof(*plan) + g->n_layers * sizeof(plan->layers[0]));
	if (!plan)
		return refuse(error, -ENOMEM, "no memory for the plan");
	plan->geometry = *g;
	plan->page_bytes = hc_geometry_page_bytes(g);
	plan->page_stride = device_page_stride(config);
	plan->io = config->io;
	plan->kernel = config->kernels;
	err = make_strides(plan, config);
	for (uint32_t i = 0; i < g->n_layers && !err; i++)
		err = plan_layer(plan, config, i);
	if (err) {
		refuse(error, err, "the layouts of the two sides cannot be planned together");
	} else if (plan->io == HC_IO_KERNEL && !config->kernels) {
		err = refuse(error, -ENOTSUP, "io backend kernel: this device has no kernels");
	} else if (plan->io == HC_IO_KERNEL && !plan->kernel) {
		snprintf(
			error, HC_PLAN_ERROR_BYTES,
			"io backend kernel: accesses of %d bytes do not divide runs of %llu bytes, "
			"the strides or the addresses of the tensors: use direct",
			HC_PAGE_COPY_UNIT, (unsigned long long)plan->layers[0].run.run_bytes);
		err = -EINVAL;
	}
	if (err) {
		free(plan);
		return err;
	}
	*plan_p = plan;
	return 0;
}

void hc_plan_destroy(struct hc_plan *plan)
{
	free(plan);
}

uint64_t hc_plan_page_bytes(const struct hc_plan *plan)
{
	return plan->page_bytes;
}

uint64_t hc_plan_pool_offset(const struct hc_plan *plan, uint64_t page_i)
{
	return page_i * plan->host.page;
}

uint64_t hc_plan_device_offset(const struct hc_plan *plan, uint32_t device_page)
{
	return device_page * plan->page_stride;
}

static int by_host(const void *a, const void *b)
{
	const struct hc_plan_page *x = a, *y = b;

	return (x->host > y->host) - (x->host < y->host);
}

void hc_plan_sort(const struct hc_plan *plan, struct hc_plan_page *pages, size_t n)
{
	if (plan->sorts && n)
		qsort(pages, n, sizeof(*pages), by_host);
}

static void run_offsets(const struct hc_copy_plan *run, uint64_t run_i, uint64_t *host_p,
			uint64_t *device_p)
{
	for (uint32_t i = 0; i < run->n_dims; i++) {
		uint64_t at = run_i % run->count[i];

		run_i /= run->count[i];
		*host_p += at * run->src_stride[i];
		*device_p += at * run->dst_stride[i];
	}
}

/* Makes the copy one of `copies`, or longer the last of them. */
static void append(struct hc_device_copy *copies, size_t *n_p, struct hc_device_copy copy)
{
	struct hc_device_copy *last = *n_p ? &copies[*n_p - 1] : NULL;

	if (last && last->src + last->size_bytes == copy.src &&
	    last->dst + last->size_bytes == copy.dst)
		last->size_bytes += copy.size_bytes;
	else
		copies[(*n_p)++] = copy;
}

/* The cursor-th run of a layer, pages innermost. */
static struct hc_device_copy run_at(const struct hc_plan *plan, enum hc_plan_direction direction,
				    const struct layer_plan *layer,
				    const struct hc_plan_page *pages, size_t n, uint64_t cursor)
{
	const struct hc_plan_page *page = &pages[cursor % n];
	uint64_t host = page->host + layer->host_offset;
	uint64_t device = layer->base + page->device * plan->page_stride;

	run_offsets(&layer->run, cursor / n, &host, &device);
	if (direction == HC_PLAN_LOAD)
		return (struct hc_device_copy){host, device, layer->run.run_bytes};
	return (struct hc_device_copy){device, host, layer->run.run_bytes};
}

size_t hc_plan_copies(const struct hc_plan *plan, enum hc_plan_direction direction,
		      uint32_t layer_i, const struct hc_plan_page *pages, size_t n,
		      uint64_t *cursor_p, struct hc_device_copy *copies, size_t n_max)
{
	const struct layer_plan *layer = &plan->layers[layer_i];
	uint64_t end = layer->run.n_runs * n;
	size_t n_copies = 0;

	for (; *cursor_p < end; (*cursor_p)++) {
		struct hc_device_copy copy = run_at(plan, direction, layer, pages, n, *cursor_p);
		struct hc_device_copy *last = n_copies ? &copies[n_copies - 1] : NULL;

		if (n_copies == n_max && (last->src + last->size_bytes != copy.src ||
					  last->dst + last->size_bytes != copy.dst))
			break;
		append(copies, &n_copies, copy);
	}
	return n_copies;
}

uint64_t hc_plan_count(const struct hc_plan *plan, uint32_t layer, const struct hc_plan_page *pages,
		       size_t n)
{
	struct hc_device_copy copies[64];
	uint64_t cursor = 0, total = 0;
	size_t got;

	while ((got = hc_plan_copies(plan, HC_PLAN_LOAD, layer, pages, n, &cursor, copies,
				     HC_ARRAY_SIZE(copies))))
		total += got;
	return total;
}

enum hc_plan_way hc_plan_choose(const struct hc_plan *plan, enum hc_plan_direction direction,
				const struct hc_plan_page *pages, size_t n, uint64_t staging_bytes)
{
	const struct layer_plan *layer = &plan->layers[0];
	uint64_t bytes = layer->run.run_bytes * layer->run.n_runs * n;
	bool staged;

	if (plan->io == HC_IO_DIRECT || (!plan->kernel && plan->io == HC_IO_AUTO))
		return HC_PLAN_COPY;
	if (plan->io == HC_IO_KERNEL)
		return HC_PLAN_KERNEL;
	if (layer->run.run_bytes >= HC_PLAN_COPY_BYTES ||
	    bytes / hc_plan_count(plan, 0, pages, n) >= HC_PLAN_COPY_BYTES)
		return HC_PLAN_COPY;
	if (direction == HC_PLAN_WRITE)
		staged = plan->whole && staging_bytes >= plan->page_bytes;
	else
		staged = plan->sliced &&
			 staging_bytes >= hc_plan_slice_bytes(plan, hc_plan_slice_layers(plan));
	return staged ? HC_PLAN_STAGED : HC_PLAN_KERNEL;
}

void hc_plan_page_copy(const struct hc_plan *plan, enum hc_plan_direction direction,
		       uint32_t layer_i, bool staged, struct hc_page_copy *copy_p)
{
	const struct layer_plan *layer = &plan->layers[layer_i];
	const struct hc_copy_plan *run = staged ? &layer->stage : &layer->run;
	uint64_t host = staged ? layer->stage_offset : layer->host_offset;
	bool load = direction == HC_PLAN_LOAD;

	*copy_p = (struct hc_page_copy){
		.src = load ? host : layer->base,
		.dst = load ? layer->base : host,
		.count = {1, 1, 1, 1, 1},
		.run_bytes = (uint32_t)run->run_bytes,
	};
	for (uint32_t i = 0; i < run->n_dims; i++) {
		copy_p->count[i] = (uint32_t)run->count[i];
		copy_p->src_stride[i] = (int64_t)(load ? run->src_stride[i] : run->dst_stride[i]);
		copy_p->dst_stride[i] = (int64_t)(load ? run->dst_stride[i] : run->src_stride[i]);
	}
}

uint32_t hc_plan_slice_layers(const struct hc_plan *plan)
{
	uint64_t layer_bytes = plan->page_bytes / plan->geometry.n_layers;
	uint64_t n = (HC_PLAN_SLICE_BYTES + layer_bytes - 1) / layer_bytes;

	return (uint32_t)hc_min_u64(n, plan->geometry.n_layers);
}

uint64_t hc_plan_slice_offset(const struct hc_plan *plan, uint32_t first)
{
	return first * plan->stage.layer;
}

uint64_t hc_plan_slice_bytes(const struct hc_plan *plan, uint32_t n_layers)
{
	return plan->page_bytes / plan->geometry.n_layers * n_layers;
}

void hc_plan_stage_copies(const struct hc_plan *plan, enum hc_plan_direction direction,
			  hc_device_addr host, hc_device_addr staging,
			  struct hc_device_copy *copies, size_t *n_p)
{
	uint32_t n_pieces = plan->two_pieces ? 2 : 1;
	uint64_t piece_bytes = plan->page_bytes / n_pieces;

	for (uint32_t i = 0; i < n_pieces; i++) {
		hc_device_addr there = host + i * plan->host.kv, here = staging + i * piece_bytes;

		append(copies, n_p,
		       direction == HC_PLAN_LOAD
			       ? (struct hc_device_copy){there, here, piece_bytes}
			       : (struct hc_device_copy){here, there, piece_bytes});
	}
}
