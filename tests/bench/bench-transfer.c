/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and writes of the controller on the reference device, against memcpy of the same bytes in
 * turns: 16 pages of 8 MiB (Llama-3.1-8B, 64 tokens) in layouts that coalesce; aim: >= 0.8 of
 * memcpy. Then what planning and submission of 128 pages cost the caller, on the stepped device,
 * where nothing runs meanwhile. */
#include "bench.h"

#include "controller/transfer.h"

#define AIM      0.8
#define N_PAGES  16
#define N_ROUNDS 7
#define N_LAYERS 32

static const struct hc_geometry llama = {2, N_LAYERS, 8, 64, 128, 2, 1, false};
/* 70B at TP8, 16 tokens: 64 runs of 4 KiB a page. */
static const struct hc_geometry small = {2, N_LAYERS, 1, 16, 128, 2, 1, false};

struct world {
	struct hc_device *device;
	struct hc_transfer *transfer;
	struct hc_device_stream *stream;
	uint64_t handle, tensor_bytes, host_bytes;
	uint32_t n_pages;
	char *host;
	hc_device_addr k[N_LAYERS], v[N_LAYERS];
	uint32_t device_pages[256], host_pages[256];
};

static int world_open(struct world *w, const struct hc_geometry *g, int layout, uint32_t n_pages,
		      enum hc_io io)
{
	char error[HC_PLAN_ERROR_BYTES] = "";
	struct hc_transfer_config config = {
		.device = w->device,
		.plan = {.geometry = *g, .k = w->k, .v = w->v, .device_pages = n_pages, .io = io},
		.host_pages = n_pages,
		.no_thread = true};
	int err = hc_device_stream_create(w->device, HC_DEVICE_PRIORITY_LOW, &w->stream);

	w->n_pages = n_pages;
	w->tensor_bytes = n_pages * hc_geometry_page_bytes(g) / 2 / N_LAYERS;
	w->host_bytes = n_pages * hc_geometry_page_bytes(g);
	w->host = bench_memory(w->host_bytes);
	for (int l = 0; l < N_LAYERS && !err; l++) {
		err = hc_device_mem_alloc(w->device, w->tensor_bytes, &w->k[l]);
		if (!err)
			err = hc_device_mem_alloc(w->device, w->tensor_bytes, &w->v[l]);
		if (!err) {
			memset(hc_device_real(w->device, w->k[l], 1), l, w->tensor_bytes);
			memset(hc_device_real(w->device, w->v[l], 1), ~l, w->tensor_bytes);
		}
	}
	config.host = w->host;
	config.host_bytes = w->host_bytes;
	if (layout < 0) {
		config.plan.pool_layout = (enum hc_pool_layout) - layout;
		config.plan.pool_pages = n_pages;
	} else {
		config.plan.layout = (enum hc_layout)layout;
	}
	if (err || !w->host)
		return err ? err : -ENOMEM;
	w->handle = hc_device_stream_handle(w->stream);
	err = hc_transfer_create(&config, &w->transfer, error);
	if (err)
		fprintf(stderr, "%s\n", error);
	if (!err)
		err = hc_transfer_device_alloc(w->transfer, (uint64_t)n_pages * g->n_tokens,
					       w->device_pages);
	return err;
}

static void world_close(struct world *w)
{
	hc_ignore(hc_transfer_destroy(w->transfer, hc_clock_now_ns() + 60 * HC_NS_PER_S));
	for (int l = 0; l < N_LAYERS; l++) {
		hc_device_mem_free(w->device, w->k[l]);
		hc_device_mem_free(w->device, w->v[l]);
	}
	hc_device_stream_destroy(w->stream);
	munmap(w->host, w->host_bytes);
	hc_device_close(w->device);
}

/* Sleeps between polls as an engine does its own work: one that spins takes half of a core that has
 * two threads. */
static int finish(struct world *w, enum hc_plan_direction direction)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t never;
	struct hc_ack ack;
	int err;

	hc_cond_init(&never);
	pthread_mutex_lock(&lock);
	while ((err = hc_transfer_poll(w->transfer, direction, &ack)) == -EAGAIN)
		hc_ignore(hc_cond_wait_until(&never, &lock, hc_clock_now_ns() + 50 * HC_NS_PER_US));
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&never);
	return err ? err : ack.status;
}

static int write_all(struct world *w)
{
	int err = hc_transfer_write(w->transfer, w->device_pages, w->n_pages, 0, -1, true,
				    w->handle, w->host_pages);

	return err ? err : finish(w, HC_PLAN_WRITE);
}

static int load_all(struct world *w)
{
	struct hc_producer producer;
	int err = hc_transfer_load(w->transfer, w->host_pages, w->n_pages, 0, -1, true,
				   w->device_pages);

	if (!err)
		err = hc_transfer_start_loading(w->transfer, w->handle, &producer);
	return err ? err : finish(w, HC_PLAN_LOAD);
}

static double rate(uint64_t bytes, uint64_t began_ns)
{
	return (double)bytes / (double)(hc_clock_now_ns() - began_ns + 1);
}

/* The tensors' bytes into the host's memory, tensor by tensor. */
static double copy_plain(struct world *w)
{
	uint64_t began_ns = hc_clock_now_ns();

	for (int l = 0; l < N_LAYERS; l++) {
		memcpy(w->host + 2 * l * w->tensor_bytes, hc_device_real(w->device, w->k[l], 1),
		       w->tensor_bytes);
		memcpy(w->host + (2 * l + 1) * w->tensor_bytes,
		       hc_device_real(w->device, w->v[l], 1), w->tensor_bytes);
	}
	return rate(w->host_bytes, began_ns);
}

static double best(const double *rates)
{
	double b = 0;

	for (int i = 0; i < N_ROUNDS; i++)
		b = rates[i] > b ? rates[i] : b;
	return b;
}

/* On a busy machine rounds differ more than layouts do. */
static const char *verdict(double *plain, double *writes, double *loads)
{
	double rate = best(plain);

	if (rate < BENCH_MEMCPY_MIN || bench_percentile(plain, N_ROUNDS, 50) < 0.8 * rate)
		return "not judged: memcpy is slow or uneven";
	return best(writes) >= AIM * rate && best(loads) >= AIM * rate ? "reached" : "missed";
}

static int one_layout(const char *name, int layout)
{
	double plain[N_ROUNDS], writes[N_ROUNDS], loads[N_ROUNDS];
	struct world w = {.n_pages = 0};
	int err = hc_cpu_open(&(struct hc_cpu_config){.seed = 1}, &w.device);

	if (!err)
		err = world_open(&w, &llama, layout, N_PAGES, HC_IO_AUTO);
	for (int i = 0; i < N_ROUNDS && !err; i++) {
		uint64_t began_ns;

		plain[i] = copy_plain(&w);
		began_ns = hc_clock_now_ns();
		err = write_all(&w);
		writes[i] = rate(w.host_bytes, began_ns);
		began_ns = hc_clock_now_ns();
		if (!err)
			err = load_all(&w);
		loads[i] = rate(w.host_bytes, began_ns);
		if (!err)
			err = hc_transfer_evict_host(w.transfer, w.host_pages, w.n_pages);
	}
	if (err)
		return err;
	printf("%-24s memcpy %5.2f GB/s  write %5.2f (%.2f)  load %5.2f (%.2f)  aim %.2f  %s\n",
	       name, best(plain), best(writes), best(writes) / best(plain), best(loads),
	       best(loads) / best(plain), AIM, verdict(plain, writes, loads));
	world_close(&w);
	return 0;
}

static int submission(const char *name, enum hc_io io)
{
	struct world w = {.n_pages = 0};
	double fastest_us = 1e9;
	int err = hc_step_open(&(struct hc_step_config){.seed = 1}, &w.device);

	if (!err)
		err = world_open(&w, &small, HC_LAYOUT_PAGE_UNIFIED, 128, io);
	if (!err)
		err = hc_transfer_write(w.transfer, w.device_pages, 128, 0, -1, true, w.handle,
					w.host_pages);
	hc_step_run(w.device, UINT64_MAX);
	if (!err)
		err = finish(&w, HC_PLAN_WRITE);
	for (int i = 0; i < N_ROUNDS && !err; i++) {
		struct hc_producer producer;
		uint64_t began_ns;

		err = hc_transfer_load(w.transfer, w.host_pages, 128, 0, -1, true, w.device_pages);
		began_ns = hc_clock_now_ns();
		if (!err)
			err = hc_transfer_start_loading(w.transfer, w.handle, &producer);
		if ((double)(hc_clock_now_ns() - began_ns) / 1000 < fastest_us)
			fastest_us = (double)(hc_clock_now_ns() - began_ns) / 1000;
		hc_step_run(w.device, UINT64_MAX);
		if (!err)
			err = finish(&w, HC_PLAN_LOAD);
	}
	if (err)
		return err;
	printf("submission, %-12s %6.2f us a page (128 pages, %u layers, runs of 4 KiB)\n", name,
	       fastest_us / 128, (unsigned)N_LAYERS);
	world_close(&w);
	return 0;
}

int main(void)
{
	int err = one_layout("page_unified slots", HC_LAYOUT_PAGE_UNIFIED);

	if (!err)
		err = one_layout("layer_first pool", -HC_POOL_LAYER_FIRST);
	if (!err)
		err = one_layout("page_first_direct pool", -HC_POOL_PAGE_FIRST_DIRECT);
	if (!err)
		err = submission("direct", HC_IO_DIRECT);
	if (!err)
		err = submission("kernel", HC_IO_KERNEL);
	if (err)
		fprintf(stderr, "bench-transfer: %s\n", strerror(-err));
	return err != 0;
}
