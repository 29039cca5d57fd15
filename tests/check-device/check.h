/* SPDX-License-Identifier: Apache-2.0 */
/* check-device: what transfers reach on the GPU of this machine, as ratios to the speed of one
 * contiguous copy in the same run. One thread, which spins on events: times are exact to a few
 * microseconds. Everything measured ends in struct check; report.c makes a table and a file of it.
 * Bytes are compared elsewhere (test-device-pages). */
#ifndef HC_CHECK_DEVICE_H
#define HC_CHECK_DEVICE_H

#include "controller/transfer.h"
#include "device/cuda/driver.h"
#include "util/clock.h"
#include "util/rng.h"

/* A call that takes longer than this has hung. */
#define CHECK_WAIT_NS (20 * HC_NS_PER_S)

enum {
	CHECK_MODELS = 3,
	CHECK_LAYOUTS = 5,
	CHECK_SIZES = 4,
	CHECK_MEMORIES = 6,
	CHECK_SLOWDOWNS = 5,
	CHECK_IOS = 3,
	CHECK_ROWS = CHECK_MODELS * CHECK_LAYOUTS * CHECK_IOS * CHECK_SIZES,
};

/* One model, layout, io backend and number of tokens. Rates in GB/s; 0: not measured. */
struct check_row {
	int model, layout, size_i;
	enum hc_io io;
	enum hc_plan_way load_way, write_way;
	double load, write;
	double first_us, layer_us; /* until layer 0 was there; all of the load / layers */
	double load_submit_us, write_submit_us; /* of the caller, each layer */
};

struct check_memory {
	const char *name;
	bool there;
	const char *why_not;
	int huge_percent;
	double populate_s, register_s, unregister_s; /* each GiB */
};

struct check_slowdown {
	const char *what;
	bool bar;      /* one of the transfers that a device chooses by itself */
	bool measured; /* the transfer lasted longer than the products */
	double alone_us, beside_us;
};

struct check {
	/* asked for */
	struct hc_cuda_config config;
	const char *cublas; /* NULL: looked for; "none": the kernel of our own */
	const char *product_file, *json_file;
	bool small; /* sizes for a test of this program: no verdict */
	uint64_t deadline_ns;
	/* the machine */
	struct hc_device *device;
	struct hc_device_info info;
	char *pool; /* page memory of the host, full of random bytes */
	uint64_t pool_bytes;
	int pool_huge_percent;
	bool pool_bound; /* to the device's node */
	/* found */
	double peak_load, peak_write, peak_both, pinned_load, pinned_write;
	struct check_row rows[CHECK_ROWS];
	int n_rows, n_left_out;
	double both; /* GB/s of a load and a write at once */
	struct check_slowdown slowdowns[CHECK_SLOWDOWNS];
	int n_slowdowns;
	char product[64];
	struct check_memory memories[CHECK_MEMORIES];
	int n_memories;
	double seconds;
};

struct check_model {
	const char *name;
	struct hc_geometry geometry; /* pages of 64 tokens */
};

extern const struct check_model check_models[CHECK_MODELS], check_small_models[CHECK_MODELS];
extern const struct check_layout {
	const char *name;
	enum hc_pool_layout layout;
} check_layouts[CHECK_LAYOUTS];

const struct check_model *check_model(const struct check *check, int model);
uint32_t check_tokens(const struct check *check, int size_i);
/* The contiguous bytes that a copy between tensors and this layout moves. */
uint64_t check_fragment_bytes(const struct check *check, int model, int layout);
/* False: page_head with MLA. */
bool check_has_meaning(const struct check *check, int model, int layout);

/* memory.c */
int check_pool_open(struct check *check) HC_MUST_CHECK;
void check_pool_close(struct check *check);
int check_peaks(struct check *check) HC_MUST_CHECK;
int check_memories(struct check *check) HC_MUST_CHECK;

/* One engine with tensors for all tokens of the largest size, and a host pool. */
struct check_engine {
	struct check *check;
	const struct check_model *model;
	struct hc_transfer *transfer;
	struct hc_device_stream *stream;
	struct hc_device_event *first;
	uint64_t handle, tensor_bytes;
	uint32_t n_pages;
	hc_device_addr *k, *v;
	uint32_t *device_pages, *host_pages; /* device pages: in random order */
};

/* transfer.c */
int check_engine_open(struct check *check, int model, struct check_engine **engine_p) HC_MUST_CHECK;
void check_engine_close(struct check_engine *engine);
int check_engine_attach(struct check_engine *engine, int layout, enum hc_io io) HC_MUST_CHECK;
int check_engine_detach(struct check_engine *engine) HC_MUST_CHECK;
/* Starts; engine->host_pages of [first, first + n). */
int check_write_start(struct check_engine *engine, uint32_t first, uint32_t n) HC_MUST_CHECK;
int check_load_start(struct check_engine *engine, uint32_t first, uint32_t n,
		     struct hc_producer *producer_p) HC_MUST_CHECK;
/* 0: acknowledged; -EINPROGRESS. */
int check_poll(struct check_engine *engine, enum hc_plan_direction direction) HC_MUST_CHECK;
int check_finish(struct check_engine *engine, enum hc_plan_direction direction) HC_MUST_CHECK;
/* The consumer's wait for the last layer: the ring's slot is given back. */
int check_consume(struct check_engine *engine, struct hc_producer producer) HC_MUST_CHECK;
int check_evict(struct check_engine *engine, uint32_t first, uint32_t n) HC_MUST_CHECK;
int check_transfers(struct check *check) HC_MUST_CHECK;

/* product.c */
int check_slowdowns(struct check *check) HC_MUST_CHECK;

/* report.c; the number of bars that were missed. */
int check_report(struct check *check);
int check_json(const struct check *check) HC_MUST_CHECK;

/* Spins until the event is reached. */
int check_wait(struct hc_device_event *event) HC_MUST_CHECK;
double check_median(double *values, int n);
double check_since_us(uint64_t began_ns);

#endif
