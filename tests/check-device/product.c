/* SPDX-License-Identifier: Apache-2.0 */
/* What transfers cost a matrix product that runs beside them: cuBLAS in bfloat16 where the library
 * can be opened, else the kernel of product.cu. Products are timed alone, then while a transfer is
 * under way that lasts longer than they do. */
#include "tests/check-device/check.h"

#include <dlfcn.h>

#define ROUNDS 5
/* Products run for this part of the transfer they are measured beside. */
#define SHARE        0.5
#define PRODUCTS_MAX 4000
/* cudaDataType_t, cublasComputeType_t and cublasGemmAlgo_t of the library's ABI. */
#define R_16BF       14
#define COMPUTE_32F  68
#define GEMM_DEFAULT (-1)

typedef int cublas_create_t(void **handle);
typedef int cublas_destroy_t(void *handle);
typedef int cublas_set_stream_t(void *handle, CUstream stream);
typedef int cublas_gemm_t(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
			  const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
			  const void *beta, void *c, int c_type, int ldc, int compute, int algo);

struct product {
	struct check *check;
	struct hc_driver driver;
	CUdevice ordinal;
	CUcontext context;
	CUmodule module;
	CUfunction kernel;
	void *cublas;
	cublas_gemm_t *gemm;
	cublas_destroy_t *destroy;
	struct hc_device_stream *stream;
	struct hc_device_event *done;
	hc_device_addr a, b, c;
	uint32_t n;
	uint64_t bytes; /* of each matrix */
};

static int refuse(const char *what, int result)
{
	fprintf(stderr, "check-device: %s: error %d\n", what, result);
	return -EIO;
}

/* Names without a path are found as the engines' own are. */
static void *open_cublas(const struct check *check)
{
	static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11",
					    "/usr/local/cuda/lib64/libcublas.so"};
	void *library = NULL;

	if (check->cublas)
		return strcmp(check->cublas, "none") ? dlopen(check->cublas, RTLD_NOW) : NULL;
	for (size_t i = 0; i < HC_ARRAY_SIZE(names) && !library; i++)
		library = dlopen(names[i], RTLD_NOW);
	return library;
}

static int open_library(struct product *p)
{
	void *library = open_cublas(p->check);
	cublas_create_t *create;
	cublas_set_stream_t *set_stream;
	int result;

	if (!library)
		return -ENOENT;
	create = (cublas_create_t *)dlsym(library, "cublasCreate_v2");
	set_stream = (cublas_set_stream_t *)dlsym(library, "cublasSetStream_v2");
	p->destroy = (cublas_destroy_t *)dlsym(library, "cublasDestroy_v2");
	p->gemm = (cublas_gemm_t *)dlsym(library, "cublasGemmEx");
	if (!create || !set_stream || !p->destroy || !p->gemm)
		return -ENOENT;
	result = create(&p->cublas);
	if (!result)
		result = set_stream(p->cublas,
				    (CUstream)(uintptr_t)hc_device_stream_handle(p->stream));
	return result ? refuse("cuBLAS", result) : 0;
}

static int open_kernel(struct product *p)
{
	hc_autofile FILE *file =
		p->check->product_file ? fopen(p->check->product_file, "rbe") : NULL;
	static char image[4 << 20];
	CUresult result;

	if (!file || !fread(image, 1, sizeof(image), file)) {
		fprintf(stderr,
			"check-device: no cuBLAS here, and no kernel in its place (--product=%s)\n",
			p->check->product_file ? p->check->product_file : "");
		return -ENOENT;
	}
	result = p->driver.module_load(&p->module, image);
	if (result)
		return refuse("cuModuleLoadData of the product", (int)result);
	result = p->driver.module_function(&p->kernel, p->module, "hc_check_product");
	return result ? refuse("cuModuleGetFunction of the product", (int)result) : 0;
}

/* Numbers around 1 of either sign, as bfloat16; pairs of them are floats of the same size. */
static int fill_matrices(struct product *p)
{
	hc_device_addr alias;
	struct hc_rng rng;
	void *host;
	int err = hc_device_host_alloc(p->check->device, p->bytes, &host, &alias);

	if (err)
		return err;
	hc_rng_seed(&rng, 7);
	for (uint64_t i = 0; i < p->bytes / 8; i++)
		((uint64_t *)host)[i] =
			(hc_rng_next(&rng) & 0x807f807f807f807f) | 0x3f003f003f003f00;
	err = hc_device_copy(p->stream, &(struct hc_device_copy){alias, p->a, p->bytes}, 1);
	if (!err)
		err = hc_device_copy(p->stream, &(struct hc_device_copy){alias, p->b, p->bytes}, 1);
	if (!err)
		err = hc_device_stream_drain(p->stream, hc_clock_now_ns() + CHECK_WAIT_NS);
	hc_device_host_free(p->check->device, alias);
	return err;
}

static int open_context(struct product *p)
{
	const struct hc_cuda_config *c = &p->check->config;
	int err = hc_driver_open(c->library ? c->library : "libcuda.so.1", &p->driver);

	if (err)
		return err;
	if (p->driver.device_get(&p->ordinal, c->ordinal) ||
	    p->driver.primary_retain(&p->context, p->ordinal))
		return -EIO;
	return 0;
}

static int enter(struct product *p)
{
	CUresult result = p->driver.context_push(p->context);

	return result ? refuse("cuCtxPushCurrent", (int)result) : 0;
}

static void leave(struct product *p)
{
	CUcontext ours;

	hc_ignore(p->driver.context_pop(&ours));
}

static int product_open(struct check *check, struct product *p)
{
	int err;

	*p = (struct product){.check = check, .n = check->small ? 64 : 4096};
	p->bytes = (uint64_t)p->n * p->n * 4;
	err = open_context(p);
	if (!err)
		err = hc_device_stream_create(check->device, HC_DEVICE_PRIORITY_LOW, &p->stream);
	if (!err)
		err = hc_device_event_create(check->device, &p->done);
	if (!err)
		err = hc_device_mem_alloc(check->device, p->bytes, &p->a);
	if (!err)
		err = hc_device_mem_alloc(check->device, p->bytes, &p->b);
	if (!err)
		err = hc_device_mem_alloc(check->device, p->bytes, &p->c);
	if (!err)
		err = fill_matrices(p);
	if (!err)
		err = enter(p);
	if (err)
		return err;
	err = open_library(p);
	if (err == -ENOENT)
		err = open_kernel(p);
	leave(p);
	snprintf(check->product, sizeof(check->product), "%s, %u x %u",
		 p->cublas ? "cuBLAS in bfloat16" : "own kernel in float", p->n, p->n);
	return err;
}

static void product_close(struct product *p)
{
	if (p->context && !enter(p)) {
		if (p->cublas)
			p->destroy(p->cublas);
		if (p->module)
			hc_ignore(p->driver.module_unload(p->module));
		leave(p);
	}
	if (p->context)
		hc_ignore(p->driver.primary_release(p->ordinal));
	if (p->a)
		hc_device_mem_free(p->check->device, p->a);
	if (p->b)
		hc_device_mem_free(p->check->device, p->b);
	if (p->c)
		hc_device_mem_free(p->check->device, p->c);
	if (p->done)
		hc_device_event_destroy(p->done);
	if (p->stream)
		hc_device_stream_destroy(p->stream);
}

static int one_product(struct product *p)
{
	static const float one = 1, zero = 0;
	CUstream stream = (CUstream)(uintptr_t)hc_device_stream_handle(p->stream);
	void *args[] = {&p->a, &p->b, &p->c, &p->n};
	int n = (int)p->n;

	if (p->gemm)
		return p->gemm(p->cublas, 0, 0, n, n, n, &one, (void *)(uintptr_t)p->a, R_16BF, n,
			       (void *)(uintptr_t)p->b, R_16BF, n, &zero, (void *)(uintptr_t)p->c,
			       R_16BF, n, COMPUTE_32F, GEMM_DEFAULT);
	return (int)p->driver.launch(p->kernel, p->n / 64, p->n / 64, 1, 256, 1, 1, 0, stream, args,
				     NULL);
}

/* Enqueued only; p->done is reached at their end. */
static int start_products(struct product *p, int n)
{
	int err = enter(p), result = 0;

	if (err)
		return err;
	for (int i = 0; i < n && !result; i++)
		result = one_product(p);
	leave(p);
	return result ? refuse("matrix product", result)
		      : hc_device_event_record(p->done, p->stream);
}

static int time_products(struct product *p, int n, double *us_p)
{
	uint64_t began_ns = hc_clock_now_ns();
	int err = start_products(p, n);

	if (!err)
		err = check_wait(p->done);
	*us_p = check_since_us(began_ns);
	return err;
}

/* The transfers that products run beside. */
struct beside {
	const char *what;
	int model, layout;
	enum hc_io io;
	enum hc_plan_direction direction;
	bool bar;
};

static const struct beside besides[CHECK_SLOWDOWNS] = {
	{"load, 8B, page_unified, auto", 0, 0, HC_IO_AUTO, HC_PLAN_LOAD, true},
	{"write, 8B, page_unified, auto", 0, 0, HC_IO_AUTO, HC_PLAN_WRITE, true},
	{"load, 70B TP8, page_unified, auto", 1, 0, HC_IO_AUTO, HC_PLAN_LOAD, true},
	{"write, 70B TP8, page_unified, auto", 1, 0, HC_IO_AUTO, HC_PLAN_WRITE, true},
	{"load, 70B TP8, page_first, kernel", 1, 2, HC_IO_KERNEL, HC_PLAN_LOAD, false},
};

static int start_transfer(struct check_engine *e, enum hc_plan_direction direction)
{
	struct hc_producer producer = {.index = -1};
	int err;

	if (direction == HC_PLAN_WRITE)
		return check_write_start(e, 0, e->n_pages);
	err = check_load_start(e, 0, e->n_pages, &producer);
	return err ? err : check_consume(e, producer);
}

/* *longer_p: the transfer was still under way when the products were done. */
static int time_beside(struct product *p, struct check_engine *e, const struct beside *b, int n,
		       double *us_p, bool *longer_p)
{
	int err = start_transfer(e, b->direction);

	if (!err)
		err = time_products(p, n, us_p);
	*longer_p = false;
	if (!err) {
		err = check_poll(e, b->direction);
		*longer_p = err == -EINPROGRESS;
		if (*longer_p)
			err = check_finish(e, b->direction);
	}
	if (!err && b->direction == HC_PLAN_WRITE)
		err = check_evict(e, 0, e->n_pages);
	return err;
}

/* How many products fill SHARE of the time between the end of submission and that of the transfer.
 */
static int count_products(struct product *p, struct check_engine *e, const struct beside *b,
			  int *n_p)
{
	uint64_t began_ns;
	double us = 0, product_us, n;
	int err = time_products(p, 4, &us);

	if (!err)
		err = time_products(p, 16, &us);
	product_us = us / 16;
	if (!err)
		err = start_transfer(e, b->direction);
	began_ns = hc_clock_now_ns();
	if (!err)
		err = check_finish(e, b->direction);
	n = check_since_us(began_ns) * SHARE / product_us;
	if (!err && b->direction == HC_PLAN_WRITE)
		err = check_evict(e, 0, e->n_pages);
	*n_p = n < 1 ? 1 : n > PRODUCTS_MAX ? PRODUCTS_MAX : (int)n;
	return err;
}

static int slowdown_of(struct product *p, struct check_engine *e, const struct beside *b,
		       struct check_slowdown *s)
{
	double alone[ROUNDS], beside[ROUNDS];
	int n = 1, n_longer = 0;
	int err = count_products(p, e, b, &n);

	for (int i = 0; i < ROUNDS && !err; i++) {
		bool longer = false;

		err = time_products(p, n, &alone[i]);
		if (!err)
			err = time_beside(p, e, b, n, &beside[i], &longer);
		n_longer += longer;
	}
	if (err)
		return err;
	s->measured = n_longer == ROUNDS;
	s->alone_us = check_median(alone, ROUNDS) / n;
	s->beside_us = check_median(beside, ROUNDS) / n;
	return 0;
}

static int one_slowdown(struct check *check, struct product *p, const struct beside *b)
{
	struct check_slowdown *s = &check->slowdowns[check->n_slowdowns];
	struct check_engine *e;
	int err = check_engine_open(check, b->model, &e), err2;

	if (err)
		return err;
	err = check_engine_attach(e, b->layout, b->io);
	if (err) {
		check_engine_close(e);
		return err;
	}
	/* What is loaded was written first. */
	if (b->direction == HC_PLAN_LOAD) {
		err = check_write_start(e, 0, e->n_pages);
		if (!err)
			err = check_finish(e, HC_PLAN_WRITE);
	}
	*s = (struct check_slowdown){.what = b->what, .bar = b->bar};
	if (!err)
		err = slowdown_of(p, e, b, s);
	check->n_slowdowns += !err;
	err2 = check_engine_detach(e);
	check_engine_close(e);
	return err ? err : err2;
}

int check_slowdowns(struct check *check)
{
	struct product p;
	int err = product_open(check, &p);

	for (int i = 0; i < CHECK_SLOWDOWNS && !err; i++) {
		if (besides[i].io == HC_IO_KERNEL && !check->info.kernels)
			continue;
		if (hc_clock_now_ns() > check->deadline_ns) {
			check->n_left_out++;
			continue;
		}
		err = one_slowdown(check, &p, &besides[i]);
	}
	product_close(&p);
	return err;
}
