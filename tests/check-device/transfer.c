/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and writes of the controller by model, layout, io backend and number of tokens. Host pages
 * are neighbours, as the allocator gives them; device pages are in random order, as an engine's are
 * after some time: no runs merge between pages, and the fragment is what the layouts make it. */
#include "tests/check-device/check.h"

#include <limits.h>

#define PAGE_TOKENS   64
#define STAGING_BYTES (32 * HC_MIB)
#define ROUNDS        5
/* What takes longer is not measured five times, nor at four times the size. */
#define LONG_US      (100 * 1000.0)
#define VERY_LONG_US (600 * 1000.0)

const struct check_model check_models[CHECK_MODELS] = {
	{"Llama-3.1-8B", {2, 32, 8, PAGE_TOKENS, 128, 2, 1, false}},
	{"Llama-3.1-70B, TP8", {2, 80, 1, PAGE_TOKENS, 128, 2, 1, false}},
	{"DeepSeek-V3", {1, 61, 1, PAGE_TOKENS, 576, 2, 1, true}},
};

/* The same kinds of fragments in little. */
const struct check_model check_small_models[CHECK_MODELS] = {
	{"MHA, large rows", {2, 2, 4, 64, 128, 2, 1, false}},
	{"MHA, small rows", {2, 6, 1, 16, 64, 2, 1, false}},
	{"MLA", {1, 5, 1, 16, 576, 2, 1, true}},
};

const struct check_layout check_layouts[CHECK_LAYOUTS] = {
	{"page_unified", HC_POOL_PAGE_UNIFIED}, {"layer_first", HC_POOL_LAYER_FIRST},
	{"page_first", HC_POOL_PAGE_FIRST},     {"page_first_direct", HC_POOL_PAGE_FIRST_DIRECT},
	{"page_head", HC_POOL_PAGE_HEAD},
};

const struct check_model *check_model(const struct check *check, int model)
{
	return check->small ? &check_small_models[model] : &check_models[model];
}

uint32_t check_tokens(const struct check *check, int size_i)
{
	static const uint32_t tokens[CHECK_SIZES] = {512, 2048, 8192, 32768};

	return check->small ? 64u * (uint32_t)(size_i + 1) : tokens[size_i];
}

static uint32_t n_pages_of(const struct check *check, int model, int size_i)
{
	return check_tokens(check, size_i) / check_model(check, model)->geometry.n_tokens;
}

bool check_has_meaning(const struct check *check, int model, int layout)
{
	return check_layouts[layout].layout != HC_POOL_PAGE_HEAD ||
	       !check_model(check, model)->geometry.mla;
}

uint64_t check_fragment_bytes(const struct check *check, int model, int layout)
{
	const struct hc_geometry *g = &check_model(check, model)->geometry;
	uint64_t vector = hc_geometry_vector_bytes(g);

	switch (check_layouts[layout].layout) {
	case HC_POOL_PAGE_HEAD:
		return vector;
	case HC_POOL_PAGE_FIRST:
		return g->n_heads * vector;
	default:
		return g->n_tokens * g->n_heads * vector;
	}
}

static void shuffle(uint32_t *pages, uint32_t n)
{
	struct hc_rng rng;

	hc_rng_seed(&rng, n);
	for (uint32_t i = 0; i < n; i++)
		pages[i] = i;
	for (uint32_t i = n - 1; i; i--) {
		uint32_t j = (uint32_t)hc_rng_below(&rng, i + 1), page = pages[i];

		pages[i] = pages[j];
		pages[j] = page;
	}
}

static int open_tensors(struct check_engine *e)
{
	const struct hc_geometry *g = &e->model->geometry;
	int err = 0;

	e->k = hc_zalloc(g->n_layers * sizeof(*e->k));
	e->v = hc_zalloc(g->n_layers * sizeof(*e->v));
	e->device_pages = hc_zalloc(e->n_pages * sizeof(*e->device_pages));
	e->host_pages = hc_zalloc(e->n_pages * sizeof(*e->host_pages));
	if (!e->k || !e->v || !e->device_pages || !e->host_pages)
		return -ENOMEM;
	shuffle(e->device_pages, e->n_pages);
	e->tensor_bytes = e->n_pages * hc_geometry_page_bytes(g) / g->n_layers / g->n_kv;
	for (uint32_t l = 0; l < g->n_layers && !err; l++) {
		err = hc_device_mem_alloc(e->check->device, e->tensor_bytes, &e->k[l]);
		if (!err && g->n_kv == 2)
			err = hc_device_mem_alloc(e->check->device, e->tensor_bytes, &e->v[l]);
	}
	return err;
}

/* Nobody times zeros: the tensors get the pool's random bytes. */
static int fill_tensors(struct check_engine *e)
{
	const struct hc_geometry *g = &e->model->geometry;
	hc_device_addr alias;
	int err = hc_device_host_register(e->check->device, e->check->pool, e->tensor_bytes, false,
					  &alias);

	if (err)
		return err;
	for (uint32_t l = 0; l < g->n_layers * g->n_kv && !err; l++) {
		struct hc_device_copy copy = {
			alias, l < g->n_layers ? e->k[l] : e->v[l - g->n_layers], e->tensor_bytes};

		err = hc_device_copy(e->stream, &copy, 1);
	}
	if (!err)
		err = hc_device_stream_drain(e->stream, hc_clock_now_ns() + CHECK_WAIT_NS);
	hc_device_host_unregister(e->check->device, alias);
	return err;
}

int check_engine_open(struct check *check, int model, struct check_engine **engine_p)
{
	struct check_engine *e = hc_zalloc(sizeof(*e));
	int err;

	if (!e)
		return -ENOMEM;
	e->check = check;
	e->model = check_model(check, model);
	e->n_pages = n_pages_of(check, model, CHECK_SIZES - 1);
	err = hc_device_stream_create(check->device, HC_DEVICE_PRIORITY_LOW, &e->stream);
	if (!err)
		err = hc_device_event_create(check->device, &e->first);
	if (!err)
		err = open_tensors(e);
	if (!err)
		err = fill_tensors(e);
	if (err) {
		check_engine_close(e);
		return err;
	}
	e->handle = hc_device_stream_handle(e->stream);
	*engine_p = e;
	return 0;
}

void check_engine_close(struct check_engine *e)
{
	for (uint32_t l = 0; e->k && l < e->model->geometry.n_layers; l++) {
		if (e->k[l])
			hc_device_mem_free(e->check->device, e->k[l]);
		if (e->v[l])
			hc_device_mem_free(e->check->device, e->v[l]);
	}
	if (e->first)
		hc_device_event_destroy(e->first);
	if (e->stream)
		hc_device_stream_destroy(e->stream);
	free(e->k);
	free(e->v);
	free(e->device_pages);
	free(e->host_pages);
	free(e);
}

int check_engine_attach(struct check_engine *e, int layout, enum hc_io io)
{
	char error[HC_PLAN_ERROR_BYTES] = "";
	struct hc_transfer_config config = {
		.device = e->check->device,
		.plan = {.geometry = e->model->geometry,
			 .pool_layout = check_layouts[layout].layout,
			 .pool_pages = e->n_pages,
			 .k = e->k,
			 .v = e->model->geometry.n_kv == 2 ? e->v : NULL,
			 .device_pages = e->n_pages,
			 .io = io},
		.host = e->check->pool,
		.host_bytes = hc_align_up(e->n_pages * hc_geometry_page_bytes(&e->model->geometry),
					  HC_BLOCK_BYTES),
		.host_pages = e->n_pages,
		.staging_bytes = io == HC_IO_AUTO ? STAGING_BYTES : 0,
		.engine_pages = true,
		.no_thread = true,
	};
	int err;

	if (e->check->small)
		config.staging_bytes = hc_min_u64(config.staging_bytes, HC_MIB);
	err = hc_transfer_create(&config, &e->transfer, error);
	if (err)
		fprintf(stderr, "check-device: %s, %s: %s\n", e->model->name,
			check_layouts[layout].name, error);
	return err;
}

int check_engine_detach(struct check_engine *e)
{
	int err = hc_device_stream_drain(e->stream, hc_clock_now_ns() + CHECK_WAIT_NS);
	int err2 = hc_transfer_destroy(e->transfer, hc_clock_now_ns() + CHECK_WAIT_NS);

	if (!err2)
		e->transfer = NULL;
	return err ? err : err2;
}

int check_write_start(struct check_engine *e, uint32_t first, uint32_t n)
{
	return hc_transfer_write(e->transfer, e->device_pages + first, n, INT_MIN, -1, true,
				 e->handle, e->host_pages + first);
}

int check_load_start(struct check_engine *e, uint32_t first, uint32_t n,
		     struct hc_producer *producer_p)
{
	int err = hc_transfer_load(e->transfer, e->host_pages + first, n, INT_MIN, -1, true,
				   e->device_pages + first);

	return err ? err : hc_transfer_start_loading(e->transfer, e->handle, producer_p);
}

int check_poll(struct check_engine *e, enum hc_plan_direction direction)
{
	struct hc_ack ack;
	int err = hc_transfer_poll(e->transfer, direction, &ack);

	return err == -EAGAIN ? -EINPROGRESS : err ? err : ack.status;
}

int check_finish(struct check_engine *e, enum hc_plan_direction direction)
{
	uint64_t deadline_ns = hc_clock_now_ns() + CHECK_WAIT_NS;
	int err;

	while ((err = check_poll(e, direction)) == -EINPROGRESS) {
		if (hc_clock_now_ns() > deadline_ns)
			return -ETIMEDOUT;
	}
	return err;
}

int check_consume(struct check_engine *e, struct hc_producer producer)
{
	return hc_transfer_wait_layer(e->transfer, producer, e->model->geometry.n_layers - 1,
				      e->handle);
}

int check_evict(struct check_engine *e, uint32_t first, uint32_t n)
{
	return hc_transfer_evict_host(e->transfer, e->host_pages + first, n);
}

struct times {
	double total_us, submit_us, first_us;
};

static int one_write(struct check_engine *e, uint32_t n, struct times *t)
{
	uint64_t began_ns = hc_clock_now_ns();
	int err = check_write_start(e, 0, n);

	t->submit_us = check_since_us(began_ns);
	if (!err)
		err = check_finish(e, HC_PLAN_WRITE);
	t->total_us = check_since_us(began_ns);
	return err;
}

static int one_load(struct check_engine *e, uint32_t n, struct times *t)
{
	struct hc_producer producer = {.index = -1};
	uint64_t began_ns = hc_clock_now_ns();
	int err = check_load_start(e, 0, n, &producer);

	t->submit_us = check_since_us(began_ns);
	if (!err)
		err = hc_transfer_wait_layer(e->transfer, producer, 0, e->handle);
	if (!err)
		err = hc_device_event_record(e->first, e->stream);
	if (!err)
		err = check_wait(e->first);
	t->first_us = check_since_us(began_ns);
	if (!err)
		err = check_consume(e, producer);
	if (!err)
		err = check_finish(e, HC_PLAN_LOAD);
	t->total_us = check_since_us(began_ns);
	return err;
}

static int rounds_for(const struct check_engine *e, double total_us)
{
	return total_us >= VERY_LONG_US ? 1
	       : total_us >= LONG_US    ? 3
	       : e->check->small        ? 2
					: ROUNDS;
}

/* The median of each figure. */
static int repeat(struct check_engine *e, enum hc_plan_direction direction, uint32_t n,
		  struct times *median)
{
	double total[ROUNDS], submit[ROUNDS], first[ROUNDS];
	int rounds = 0, err = 0;

	while (!err) {
		struct times t = {0, 0, 0};

		if (direction == HC_PLAN_WRITE)
			err = one_write(e, n, &t);
		else
			err = one_load(e, n, &t);
		total[rounds] = t.total_us;
		submit[rounds] = t.submit_us;
		first[rounds++] = t.first_us;
		if (rounds >= rounds_for(e, t.total_us))
			break;
		/* The last write stays, for the loads. */
		if (!err && direction == HC_PLAN_WRITE)
			err = check_evict(e, 0, n);
	}
	if (err)
		return err;
	*median = (struct times){check_median(total, rounds), check_median(submit, rounds),
				 check_median(first, rounds)};
	return 0;
}

static enum hc_plan_way way_since(struct check_engine *e, const uint64_t *before)
{
	struct hc_transfer_stats stats;

	hc_transfer_stats(e->transfer, &stats);
	for (int i = 0; i < HC_PLAN_WAYS; i++) {
		if (stats.n_ways[i] != before[i])
			return (enum hc_plan_way)i;
	}
	return HC_PLAN_COPY;
}

static int measure(struct check_engine *e, struct check_row *row, uint32_t n, double *longest_us_p)
{
	const struct hc_geometry *g = &e->model->geometry;
	double bytes = (double)n * (double)hc_geometry_page_bytes(g);
	struct hc_transfer_stats before;
	struct times t;
	int err;

	hc_transfer_stats(e->transfer, &before);
	err = repeat(e, HC_PLAN_WRITE, n, &t);
	if (err)
		return err;
	row->write_way = way_since(e, before.n_ways);
	row->write = bytes / 1000 / t.total_us;
	row->write_submit_us = t.submit_us / g->n_layers;
	*longest_us_p = t.total_us;
	hc_transfer_stats(e->transfer, &before);
	err = repeat(e, HC_PLAN_LOAD, n, &t);
	if (err)
		return err;
	row->load_way = way_since(e, before.n_ways);
	row->load = bytes / 1000 / t.total_us;
	row->load_submit_us = t.submit_us / g->n_layers;
	row->first_us = t.first_us;
	row->layer_us = t.total_us / g->n_layers;
	if (t.total_us > *longest_us_p)
		*longest_us_p = t.total_us;
	return check_evict(e, 0, n);
}

static int one_backend(struct check_engine *e, int model, int layout, enum hc_io io)
{
	struct check *check = e->check;
	int err = check_engine_attach(e, layout, io), err2;
	double longest_us = 0;

	if (err)
		return err;
	for (int i = 0; i < CHECK_SIZES && !err; i++) {
		struct check_row *row = &check->rows[check->n_rows];

		if (longest_us >= VERY_LONG_US || hc_clock_now_ns() > check->deadline_ns) {
			check->n_left_out++;
			continue;
		}
		*row = (struct check_row){.model = model, .layout = layout, .size_i = i, .io = io};
		err = measure(e, row, n_pages_of(check, model, i), &longest_us);
		check->n_rows += !err;
	}
	if (err)
		fprintf(stderr, "check-device: %s, %s, io %d: %s\n", e->model->name,
			check_layouts[layout].name, io, strerror(-err));
	err2 = check_engine_detach(e);
	return err ? err : err2;
}

/* Half of the pages are loaded while the other half is written. */
static int both_at_once(struct check_engine *e)
{
	uint32_t half = e->n_pages / 2;
	double rates[ROUNDS];
	uint64_t bytes = 2 * half * hc_geometry_page_bytes(&e->model->geometry);
	int err = check_engine_attach(e, 0, HC_IO_AUTO), err2;

	if (err)
		return err;
	err = check_write_start(e, 0, half);
	if (!err)
		err = check_finish(e, HC_PLAN_WRITE);
	for (int i = 0; i < ROUNDS && !err; i++) {
		struct hc_producer producer = {.index = -1};
		uint64_t began_ns = hc_clock_now_ns();

		err = check_load_start(e, 0, half, &producer);
		if (!err)
			err = check_write_start(e, half, half);
		if (!err)
			err = check_consume(e, producer);
		if (!err)
			err = check_finish(e, HC_PLAN_LOAD);
		if (!err)
			err = check_finish(e, HC_PLAN_WRITE);
		rates[i] = (double)bytes / 1000 / check_since_us(began_ns);
		if (!err)
			err = check_evict(e, half, half);
	}
	if (!err)
		e->check->both = check_median(rates, ROUNDS);
	err2 = check_engine_detach(e);
	return err ? err : err2;
}

int check_transfers(struct check *check)
{
	static const enum hc_io ios[CHECK_IOS] = {HC_IO_AUTO, HC_IO_DIRECT, HC_IO_KERNEL};
	int err = 0;

	for (int model = 0; model < CHECK_MODELS && !err; model++) {
		struct check_engine *e;

		err = check_engine_open(check, model, &e);
		if (err)
			break;
		for (int i = 0; i < CHECK_LAYOUTS * CHECK_IOS && !err; i++) {
			enum hc_io io = ios[i % CHECK_IOS];

			if (check_has_meaning(check, model, i / CHECK_IOS) &&
			    (io != HC_IO_KERNEL || check->info.kernels))
				err = one_backend(e, model, i / CHECK_IOS, io);
		}
		if (!err && model == 0)
			err = both_at_once(e);
		check_engine_close(e);
	}
	return err;
}
