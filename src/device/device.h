/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: what holds an engine's KV pages and copies them. One table of operations, every member
 * mandatory, with three implementations: cuda (a GPU by its driver), cpu (the reference; streams
 * are threads), step (no threads: a seeded scheduler picks which ready stream runs next). The
 * semantics are CUDA's, written down here; tests/test-device.c holds every device to them.
 *
 * Addresses. hc_device_addr is an address as the device sees it: device memory, or the *alias* of
 * host memory that was registered. The host never dereferences one, and an alias need not equal the
 * host's pointer. Every address in a copy must lie in memory that the device knows (allocated,
 * imported or registered), else -EFAULT, and nothing of that call was enqueued.
 *
 * Streams. What is enqueued on one stream runs in that order, one after the other; between streams
 * there is no order but by events. Enqueuing never waits for the work. A stream is the device's own
 * (created: it does not synchronise with any other) or the caller's (imported by its integer
 * handle; 0 is the default stream). Destroying an own stream lets its work finish first.
 *
 * Events. record marks the point reached when all that is on the stream at this call has run. wait
 * makes a stream wait, on the device, for the record that is the latest *at the time of the call*;
 * a later record does not move it. query tells whether the latest record has been reached. An event
 * that was never recorded counts as reached. Once query says so, all bytes that the work before the
 * record wrote are visible to the host, and to every stream that waits.
 *
 * Copies. The copies of one batch have no order among themselves and must not overlap; the batch as
 * a whole has its place in the stream. Descriptors are read before the call returns; the memory
 * they name, and the page pairs of a page copy, belong to the device until an event recorded after
 * them is reached.
 *
 * Errors. -EINVAL (an argument that cannot be), -EFAULT (an address nobody registered), -ENOMEM,
 * -EXDEV (a stream of another context), -EBUSY (the stream is being captured into a graph), -EAGAIN
 * (a queue is full: drain and call again), -ENOTSUP, -EIO (the device is lost: every later call
 * says so too, and nothing on it completes any more). A copy that fails in another way than -EINVAL
 * and -EFAULT may have enqueued a part of itself. The device logs what it decides, once.
 *
 * Threads. Any function from any thread; two threads that enqueue on one stream at once get some
 * order. Destroying what another thread uses is an error of the caller. No function waits but
 * hc_device_stream_drain (to its deadline) and those that create, register or destroy. */
#ifndef HC_DEVICE_DEVICE_H
#define HC_DEVICE_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/page_copy.h"
#include "util/base.h"

typedef uint64_t hc_device_addr;

struct hc_device;

/* Both are the first member of what an implementation keeps. */
struct hc_device_stream {
	struct hc_device *device;
	bool imported;
};

struct hc_device_event {
	struct hc_device *device;
};

/* Descriptors in one call: a driver is known to hang with tens of thousands. */
#define HC_DEVICE_BATCH_MAX 2048
/* Allocations, imports and registrations at once: a pool has 64 segments, an engine two tensors a
 * layer. */
#define HC_DEVICE_RANGES_MAX 4096
/* Calls enqueued and not yet run on one stream; more is a caller that never drains. */
#define HC_DEVICE_STREAM_OPS_MAX 65536

struct hc_device_copy {
	hc_device_addr src, dst;
	uint64_t size_bytes;
};

/* Who moves the bytes of a page copy; the arithmetic is one and the same. */
enum hc_page_copy_kind {
	HC_PAGE_GATHER,   /* from host memory: small grid, what it reads is read once */
	HC_PAGE_SCATTER,  /* to host memory: small grid, what it writes is written once */
	HC_PAGE_RELAYOUT, /* inside device memory */
	HC_PAGE_COPY_KINDS,
};

enum hc_device_priority { HC_DEVICE_PRIORITY_LOW, HC_DEVICE_PRIORITY_HIGH };

struct hc_device_info {
	char name[64];
	bool threads;        /* streams run by themselves; else something must step them */
	bool kernels;        /* page copies are there */
	bool batch_native;   /* a batch is one call of the driver */
	int numa_node;       /* nearest to the device, -1: unknown */
	int driver_version;  /* of cuda, as 13000; else 0 */
	uint64_t free_bytes; /* device memory, 0: unknown */
};

/* What was enqueued since open. Counters only rise. */
struct hc_device_stats {
	uint64_t n_copies, copy_bytes, n_batches;
	uint64_t n_page_copies, page_copy_bytes;
	uint64_t n_records, n_waits, n_errors;
	uint64_t registered_bytes; /* at present */
};

struct hc_device_ops {
	const char *name;
	void (*close)(struct hc_device *device);
	int (*health)(struct hc_device *device);
	void (*info)(struct hc_device *device, struct hc_device_info *info_p);
	/* Memory; real_p is where the host finds the bytes, NULL where it cannot. */
	int (*mem_alloc)(struct hc_device *device, uint64_t size_bytes, hc_device_addr *addr_p,
			 void **real_p);
	void (*mem_free)(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes);
	int (*mem_import)(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes,
			  void **real_p);
	int (*host_alloc)(struct hc_device *device, uint64_t size_bytes, void **host_p,
			  hc_device_addr *addr_p);
	void (*host_free)(struct hc_device *device, void *host, hc_device_addr addr,
			  uint64_t size_bytes);
	int (*host_register)(struct hc_device *device, void *host, uint64_t size_bytes,
			     bool read_only, hc_device_addr *addr_p);
	void (*host_unregister)(struct hc_device *device, void *host, hc_device_addr addr,
				uint64_t size_bytes);
	int (*stream_create)(struct hc_device *device, enum hc_device_priority priority,
			     struct hc_device_stream **stream_p);
	int (*stream_import)(struct hc_device *device, uint64_t handle,
			     struct hc_device_stream **stream_p);
	void (*stream_destroy)(struct hc_device_stream *stream);
	uint64_t (*stream_handle)(struct hc_device_stream *stream);
	int (*stream_check)(struct hc_device_stream *stream);
	int (*stream_drain)(struct hc_device_stream *stream, uint64_t deadline_ns);
	int (*stream_wait)(struct hc_device_stream *stream, struct hc_device_event *event);
	int (*event_create)(struct hc_device *device, struct hc_device_event **event_p);
	void (*event_destroy)(struct hc_device_event *event);
	int (*event_record)(struct hc_device_event *event, struct hc_device_stream *stream);
	int (*event_query)(struct hc_device_event *event);
	int (*copy)(struct hc_device_stream *stream, const struct hc_device_copy *copies, size_t n);
	int (*page_copy)(struct hc_device_stream *stream, enum hc_page_copy_kind kind,
			 const struct hc_page_copy *copy);
};

void hc_device_close(struct hc_device *device);
const char *hc_device_name(const struct hc_device *device);
/* 0, or -EIO once the device is lost. */
int hc_device_health(struct hc_device *device) HC_MUST_CHECK;
void hc_device_info(struct hc_device *device, struct hc_device_info *info_p);
void hc_device_stats(struct hc_device *device, struct hc_device_stats *stats_p);

/* Device memory. */
int hc_device_mem_alloc(struct hc_device *device, uint64_t size_bytes,
			hc_device_addr *addr_p) HC_MUST_CHECK;
void hc_device_mem_free(struct hc_device *device, hc_device_addr addr);
/* Somebody else's device memory (an engine's tensor): known from here on, never freed. Importing
 * what is known already is counted; forget undoes one import. -EXDEV where the device can tell that
 * it is not its memory. */
int hc_device_mem_import(struct hc_device *device, hc_device_addr addr,
			 uint64_t size_bytes) HC_MUST_CHECK;
void hc_device_mem_forget(struct hc_device *device, hc_device_addr addr);
/* Pinned host memory of the device's making, for small things: staging, page pairs. */
int hc_device_host_alloc(struct hc_device *device, uint64_t size_bytes, void **host_p,
			 hc_device_addr *addr_p) HC_MUST_CHECK;
void hc_device_host_free(struct hc_device *device, hc_device_addr addr);
/* Makes the caller's memory reachable for the device. It must stay mapped, and must not be punched
 * or truncated, until it is unregistered; drain first. read_only: the mapping cannot be written
 * and copies into it are -EFAULT. What somebody else in the process
 * has registered with the same driver is used as it is, and not unregistered. Errors: -ENOMEM
 * (pinning limits), -EEXIST (overlaps what is registered), -ENOTSUP (read-only registration). */
int hc_device_host_register(struct hc_device *device, void *host, uint64_t size_bytes,
			    bool read_only, hc_device_addr *addr_p) HC_MUST_CHECK;
void hc_device_host_unregister(struct hc_device *device, hc_device_addr addr);
/* The alias of a host address, 0 where [host, host + size) is not wholly in one registration. */
hc_device_addr hc_device_alias(struct hc_device *device, const void *host, uint64_t size_bytes);
/* Where the host finds the bytes of a known range, NULL where it cannot. */
void *hc_device_real(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes);

int hc_device_stream_create(struct hc_device *device, enum hc_device_priority priority,
			    struct hc_device_stream **stream_p) HC_MUST_CHECK;
/* A stream of the caller's; it must outlive what is made here, and stays the caller's. -EXDEV. */
int hc_device_stream_import(struct hc_device *device, uint64_t handle,
			    struct hc_device_stream **stream_p) HC_MUST_CHECK;
void hc_device_stream_destroy(struct hc_device_stream *stream);
/* What hc_device_stream_import takes. */
uint64_t hc_device_stream_handle(struct hc_device_stream *stream);
/* 0; -EBUSY while the stream is captured into a graph: record and wait would poison the capture. */
int hc_device_stream_check(struct hc_device_stream *stream) HC_MUST_CHECK;
/* Waits until all that is on the stream has run. -ETIMEDOUT, -EIO. */
int hc_device_stream_drain(struct hc_device_stream *stream, uint64_t deadline_ns) HC_MUST_CHECK;
int hc_device_stream_wait(struct hc_device_stream *stream,
			  struct hc_device_event *event) HC_MUST_CHECK;

int hc_device_event_create(struct hc_device *device,
			   struct hc_device_event **event_p) HC_MUST_CHECK;
/* May have been recorded, and be waited for, by work that has not run yet. */
void hc_device_event_destroy(struct hc_device_event *event);
int hc_device_event_record(struct hc_device_event *event,
			   struct hc_device_stream *stream) HC_MUST_CHECK;
/* 0: reached; -EINPROGRESS; -EIO. */
int hc_device_event_query(struct hc_device_event *event) HC_MUST_CHECK;

/* 0 copies is nothing; more than HC_DEVICE_BATCH_MAX, or one of 0 bytes, is -EINVAL. */
int hc_device_copy(struct hc_device_stream *stream, const struct hc_device_copy *copies,
		   size_t n) HC_MUST_CHECK;
/* See page_copy.h. The pairs must lie in host memory that the device knows and must not change
 * until the copy has run. Every index is checked here, on the host. -ENOTSUP without kernels. */
int hc_device_page_copy(struct hc_device_stream *stream, enum hc_page_copy_kind kind,
			const struct hc_page_copy *copy) HC_MUST_CHECK;

/* --- for implementations --- */
struct hc_device_range {
	hc_device_addr addr;
	uint64_t size_bytes;
	void *real; /* NULL: the host cannot reach it */
	uint32_t n_refs;
	uint8_t kind;
	bool read_only;
};

struct hc_device {
	const struct hc_device_ops *ops;
	pthread_rwlock_t ranges_lock; /* leaf: the ranges, sorted by address */
	struct hc_device_range *ranges;
	uint32_t n_ranges, n_ranges_room;
	_Atomic uint64_t n_copies, copy_bytes, n_batches, n_page_copies, page_copy_bytes;
	_Atomic uint64_t n_records, n_waits, n_errors, registered_bytes;
};

void hc_device_init(struct hc_device *device, const struct hc_device_ops *ops);
void hc_device_fini(struct hc_device *device);

/* --- the devices --- */
struct hc_cpu_config {
	uint64_t seed;
	uint64_t delay_max_ns; /* tests: before each call that a stream runs, up to so long */
};
int hc_cpu_open(const struct hc_cpu_config *config, struct hc_device **device_p) HC_MUST_CHECK;
/* Tests: as if the caller had begun to capture the stream into a graph. */
void hc_cpu_capture(struct hc_device_stream *stream, bool on);

struct hc_step_config {
	uint64_t seed;
	uint32_t steps_max; /* run at each call of the device: 0 to so many; 0: only hc_step_run */
};
int hc_step_open(const struct hc_step_config *config, struct hc_device **device_p) HC_MUST_CHECK;
/* Runs up to n pieces of work, each of a random stream that is ready. Returns how many there were.
 */
uint64_t hc_step_run(struct hc_device *device, uint64_t n);
/* A new schedule begins, as of a device opened with this seed. */
void hc_step_reseed(struct hc_device *device, uint64_t seed);
/* A hash of which stream ran at each step so far: equal schedules have equal hashes. */
uint64_t hc_step_schedule(struct hc_device *device);

struct hc_cuda_config {
	int ordinal;
	const char *library; /* NULL: libcuda.so.1 */
	bool no_batch;       /* one driver call for each copy, whatever the driver can do */
};
/* -ENODEV: no driver, no device, or a driver that is too old (the log says which); -ENOTSUP: built
 * without CUDA. */
int hc_cuda_open(const struct hc_cuda_config *config, struct hc_device **device_p) HC_MUST_CHECK;

#endif
