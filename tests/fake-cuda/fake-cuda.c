/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's entry points over the reference device. See fake-cuda.h. */
#include "tests/fake-cuda/fake-cuda.h"

#include <cuda.h>
#include <pthread.h>

#include "device/device.h"
#include "tests/fake-cuda/clocks.h"

#define EXPORT __attribute__((visibility("default")))

#define CONTEXTS_MAX    8
#define ALLOCATIONS_MAX 4096
#define PAIRS_MAX       256
#define FATBIN_MAGIC    0xba55ed50u

struct CUstream_st {
	struct CUstream_st *next;
	struct hc_device_stream *stream;
	CUcontext context;
	struct clock clock;
	uint32_t slot, n_poisoned;
	bool capturing;
};

struct CUevent_st {
	struct CUevent_st *next;
	struct hc_device_event *event;
	struct clock clock; /* of the latest record */
};

struct CUctx_st {
	int number;
};

struct CUfunc_st {
	enum hc_page_copy_kind kind;
};

struct CUmod_st {
	int n;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_cuda_config config;
static struct hc_device *device;
static struct CUstream_st *streams, *legacy, *foreign;
static struct CUevent_st *events;
static struct CUctx_st primary, other_context;
static struct CUmod_st module;
static struct CUfunc_st functions[HC_PAGE_COPY_KINDS + 1]; /* the last: a matrix product */
static struct fake_cuda_live live;
static uint64_t n_calls, fail_at;
static CUresult fail_with, stuck;
static bool fail_sticky;
static const char *failed;

static struct {
	CUdeviceptr addr;
	uint64_t size_bytes;
} allocations[ALLOCATIONS_MAX];

/* What the page pairs at an address were at the last launch. */
static struct {
	const void *pairs;
	uint64_t hash;
} seen[PAIRS_MAX];

static __thread CUcontext current[CONTEXTS_MAX];
static __thread int n_current;
static __thread CUstreamCaptureMode capture_mode; /* 0: global, as the driver's */

/* Locks; the lock is kept on success only. */
static CUresult begin(const char *name)
{
	CUresult result;

	pthread_mutex_lock(&lock);
	n_calls++;
	if (fail_at && n_calls == fail_at) {
		failed = name;
		stuck = fail_sticky ? fail_with : CUDA_SUCCESS;
		result = fail_with;
	} else {
		result = stuck;
	}
	if (result)
		pthread_mutex_unlock(&lock);
	return result;
}

/* Calls that give something back do so also when they report an error of earlier work. */
static CUresult begin_anyway(const char *name)
{
	CUresult result = begin(name);

	if (result)
		pthread_mutex_lock(&lock);
	return result;
}

static CUresult end(CUresult result)
{
	pthread_mutex_unlock(&lock);
	return result;
}

static CUresult of_errno(int err)
{
	switch (err) {
	case 0:
		return CUDA_SUCCESS;
	case -EINPROGRESS:
		return CUDA_ERROR_NOT_READY;
	case -ENOMEM:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case -EEXIST:
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	case -EIO:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static struct CUstream_st *find_stream(CUstream stream)
{
	struct CUstream_st *s = streams;

	if ((uintptr_t)stream <= 2)
		return legacy;
	while (s && s != stream)
		s = s->next;
	return s;
}

static struct CUstream_st *make_stream(CUcontext context)
{
	struct CUstream_st *s = hc_zalloc(sizeof(*s));

	hc_assert(s && !hc_device_stream_create(device, HC_DEVICE_PRIORITY_LOW, &s->stream));
	s->context = context;
	s->slot = clocks_slot();
	s->next = streams;
	streams = s;
	return s;
}

static void drop_stream(struct CUstream_st *s)
{
	struct CUstream_st **link;

	for (link = &streams; *link != s; link = &(*link)->next)
		continue;
	*link = s->next;
	hc_device_stream_destroy(s->stream);
	clocks_slot_free(s->slot);
	free(s);
}

static void drop_event(struct CUevent_st *event)
{
	struct CUevent_st **link;

	for (link = &events; *link != event; link = &(*link)->next)
		continue;
	*link = event->next;
	hc_device_event_destroy(event->event);
	free(event);
}

/* --- control --- */

EXPORT void fake_cuda_abandon(void)
{
	pthread_mutex_lock(&lock);
	while (events)
		drop_event(events);
	while (streams)
		drop_stream(streams);
	memset(&live, 0, sizeof(live));
	stuck = CUDA_SUCCESS;
	pthread_mutex_unlock(&lock);
}

EXPORT void fake_cuda_reset(const struct fake_cuda_config *to)
{
	static const struct fake_cuda_live nothing;

	pthread_mutex_lock(&lock);
	hc_assert(!memcmp(&live, &nothing, sizeof(live)));
	if (device) {
		while (streams)
			drop_stream(streams);
		hc_device_close(device);
	}
	config = *to;
	hc_assert(!hc_cpu_open(
		&(struct hc_cpu_config){.seed = to->seed, .delay_max_ns = to->delay_max_ns},
		&device));
	clocks_reset();
	memset(allocations, 0, sizeof(allocations));
	memset(seen, 0, sizeof(seen));
	legacy = make_stream(&primary);
	foreign = make_stream(&other_context);
	n_calls = fail_at = 0;
	stuck = CUDA_SUCCESS;
	failed = NULL;
	pthread_mutex_unlock(&lock);
}

EXPORT void fake_cuda_fail_nth(uint64_t n, int result, bool sticky)
{
	pthread_mutex_lock(&lock);
	fail_at = n ? n_calls + n : 0;
	fail_with = (CUresult)result;
	fail_sticky = sticky;
	failed = NULL;
	pthread_mutex_unlock(&lock);
}

EXPORT uint64_t fake_cuda_calls(const char **failed_p)
{
	uint64_t n;

	pthread_mutex_lock(&lock);
	n = n_calls;
	if (failed_p)
		*failed_p = failed;
	pthread_mutex_unlock(&lock);
	return n;
}

EXPORT void fake_cuda_live(struct fake_cuda_live *live_p)
{
	pthread_mutex_lock(&lock);
	*live_p = live;
	pthread_mutex_unlock(&lock);
}

EXPORT uint32_t fake_cuda_races(const char **what_p)
{
	uint32_t n;

	pthread_mutex_lock(&lock);
	n = clocks_races(what_p);
	pthread_mutex_unlock(&lock);
	return n;
}

EXPORT void fake_cuda_touch(const void *host, uint64_t size_bytes, bool write, const char *what)
{
	pthread_mutex_lock(&lock);
	clocks_host_access(host, size_bytes, write, what);
	pthread_mutex_unlock(&lock);
}

EXPORT uint32_t fake_cuda_capture(uint64_t handle, bool on)
{
	struct CUstream_st *s;
	uint32_t n;

	pthread_mutex_lock(&lock);
	s = find_stream((CUstream)(uintptr_t)handle);
	hc_assert(s);
	s->capturing = on;
	n = s->n_poisoned;
	pthread_mutex_unlock(&lock);
	return n;
}

EXPORT uint64_t fake_cuda_foreign(void)
{
	return (uintptr_t)foreign;
}

/* --- the driver --- */

static CUresult fake_init(unsigned int flags)
{
	CUresult result;

	/* Opened by a program that knows nothing of our controls. */
	if (!device)
		fake_cuda_reset(&(struct fake_cuda_config){
			.seed = 1, .no_devices = getenv("FAKE_CUDA_NO_DEVICES") != NULL});
	result = begin("cuInit");
	return result ? result : end(CUDA_SUCCESS);
}

static CUresult fake_driver_version(int *version)
{
	CUresult result = begin("cuDriverGetVersion");

	if (result)
		return result;
	*version = config.driver_version ? config.driver_version : 13000;
	return end(CUDA_SUCCESS);
}

static CUresult fake_error_name(CUresult error, const char **name)
{
	*name = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
						    : "an error of the fake driver";
	return CUDA_SUCCESS;
}

static CUresult fake_device_count(int *n)
{
	CUresult result = begin("cuDeviceGetCount");

	if (result)
		return result;
	*n = !config.no_devices;
	return end(CUDA_SUCCESS);
}

static CUresult fake_device_get(CUdevice *d, int ordinal)
{
	CUresult result = begin("cuDeviceGet");

	if (result)
		return result;
	*d = ordinal;
	return end(CUDA_SUCCESS);
}

static CUresult fake_device_name(char *name, int room, CUdevice d)
{
	CUresult result = begin("cuDeviceGetName");

	if (result)
		return result;
	snprintf(name, (size_t)room, "fake GPU");
	return end(CUDA_SUCCESS);
}

static CUresult fake_device_attribute(int *value, CUdevice_attribute which, CUdevice d)
{
	CUresult result = begin("cuDeviceGetAttribute");

	if (result)
		return result;
	*value = which == CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
	return end(CUDA_SUCCESS);
}

static CUresult fake_primary_retain(CUcontext *context, CUdevice d)
{
	CUresult result = begin("cuDevicePrimaryCtxRetain");

	if (result)
		return result;
	live.n_contexts++;
	*context = &primary;
	return end(CUDA_SUCCESS);
}

static CUresult fake_primary_release(CUdevice d)
{
	CUresult result = begin_anyway("cuDevicePrimaryCtxRelease");

	live.n_contexts--;
	return end(result);
}

static CUresult fake_push(CUcontext context)
{
	CUresult result = begin("cuCtxPushCurrent");

	if (result)
		return result;
	hc_assert(n_current < CONTEXTS_MAX);
	current[n_current++] = context;
	live.n_pushed++;
	return end(CUDA_SUCCESS);
}

static CUresult fake_pop(CUcontext *context)
{
	CUresult result = begin_anyway("cuCtxPopCurrent");

	hc_assert(n_current);
	*context = current[--n_current];
	live.n_pushed--;
	return end(result);
}

static bool is_current(void)
{
	return n_current && current[n_current - 1] == &primary;
}

/* Most calls: counted, and refused without our context. */
static CUresult begin_in_context(const char *name)
{
	CUresult result = begin(name);

	if (!result && !is_current())
		return end(CUDA_ERROR_INVALID_CONTEXT);
	return result;
}

/* What the driver forbids while any thread captures in global mode, but to a thread that is
 * relaxed: the capture is lost. */
static CUresult begin_unsafe(const char *name)
{
	CUresult result = begin_in_context(name);
	bool lost = false;

	for (struct CUstream_st *s = streams;
	     s && !result && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED; s = s->next) {
		s->n_poisoned += s->capturing;
		lost = lost || s->capturing;
	}
	return lost ? end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : result;
}

static CUresult fake_capture_mode(CUstreamCaptureMode *mode)
{
	CUresult result = begin_anyway("cuThreadExchangeStreamCaptureMode");
	CUstreamCaptureMode before = capture_mode;

	/* Like other calls that report an error of earlier work, it does what it says. */
	capture_mode = *mode;
	*mode = before;
	return end(result);
}

static CUresult fake_priority_range(int *least, int *greatest)
{
	CUresult result = begin_in_context("cuCtxGetStreamPriorityRange");

	if (result)
		return result;
	*least = 0;
	*greatest = -5;
	return end(CUDA_SUCCESS);
}

static CUresult fake_module_load(CUmodule *m, const void *image)
{
	CUresult result = begin_unsafe("cuModuleLoadData");
	uint32_t magic;

	if (result)
		return result;
	memcpy(&magic, image, sizeof(magic));
	if (config.no_kernels)
		return end(CUDA_ERROR_NO_BINARY_FOR_GPU);
	if (magic != FATBIN_MAGIC)
		return end(CUDA_ERROR_INVALID_IMAGE);
	live.n_modules++;
	*m = &module;
	return end(CUDA_SUCCESS);
}

static CUresult fake_module_unload(CUmodule m)
{
	CUresult result = begin_anyway("cuModuleUnload");

	live.n_modules--;
	return end(result);
}

static CUresult fake_module_function(CUfunction *function, CUmodule m, const char *name)
{
	static const char *const names[] = {"hc_page_gather", "hc_page_scatter", "hc_page_relayout",
					    "hc_check_product"};
	CUresult result = begin_in_context("cuModuleGetFunction");

	if (result)
		return result;
	for (size_t i = 0; i < HC_ARRAY_SIZE(names); i++) {
		if (!strcmp(name, names[i])) {
			functions[i].kind = (enum hc_page_copy_kind)i;
			*function = &functions[i];
			return end(CUDA_SUCCESS);
		}
	}
	return end(CUDA_ERROR_NOT_FOUND);
}

static uint64_t allocated_bytes(void)
{
	uint64_t n = 0;

	for (int i = 0; i < ALLOCATIONS_MAX; i++)
		n += allocations[i].size_bytes;
	return n;
}

static uint64_t memory_bytes(void)
{
	return config.memory_bytes ? config.memory_bytes : 16 * HC_GIB;
}

static CUresult fake_mem_alloc(CUdeviceptr *addr, size_t size_bytes)
{
	CUresult result = begin_unsafe("cuMemAlloc");
	int i = 0, err;

	if (result)
		return result;
	if (allocated_bytes() + size_bytes > memory_bytes())
		return end(CUDA_ERROR_OUT_OF_MEMORY);
	while (i < ALLOCATIONS_MAX && allocations[i].addr)
		i++;
	hc_assert(i < ALLOCATIONS_MAX);
	err = hc_device_mem_alloc(device, size_bytes, (hc_device_addr *)&allocations[i].addr);
	if (err)
		return end(of_errno(err));
	/* What was never written is recognised as such. */
	memset(hc_device_real(device, allocations[i].addr, size_bytes), 0xdb, size_bytes);
	allocations[i].size_bytes = size_bytes;
	*addr = allocations[i].addr;
	live.n_allocations++;
	return end(CUDA_SUCCESS);
}

static CUresult fake_mem_free(CUdeviceptr addr)
{
	CUresult result = begin_anyway("cuMemFree");

	for (int i = 0; i < ALLOCATIONS_MAX; i++) {
		if (allocations[i].addr != addr)
			continue;
		clocks_host_access(hc_device_real(device, addr, 1), allocations[i].size_bytes, true,
				   "free of device memory");
		hc_device_mem_free(device, addr);
		allocations[i].addr = allocations[i].size_bytes = 0;
		live.n_allocations--;
		return end(result);
	}
	return end(CUDA_ERROR_INVALID_VALUE);
}

static CUresult fake_mem_info(size_t *free_bytes, size_t *total_bytes)
{
	CUresult result = begin_in_context("cuMemGetInfo");

	if (result)
		return result;
	*total_bytes = memory_bytes();
	*free_bytes = memory_bytes() - allocated_bytes();
	return end(CUDA_SUCCESS);
}

static CUresult fake_host_alloc(void **host, size_t size_bytes, unsigned int flags)
{
	CUresult result = begin_unsafe("cuMemHostAlloc");
	hc_device_addr alias;
	int err;

	if (result)
		return result;
	err = hc_device_host_alloc(device, size_bytes, host, &alias);
	live.n_host_allocations += !err;
	return end(of_errno(err));
}

static CUresult fake_host_free(void *host)
{
	CUresult result = begin_anyway("cuMemFreeHost");
	hc_device_addr alias = hc_device_alias(device, host, 1);

	hc_assert(alias);
	/* The size is not ours to know: its first bytes stand for it. */
	clocks_host_access(host, 64, true, "free of pinned memory");
	hc_device_host_free(device, alias);
	live.n_host_allocations--;
	return end(result);
}

static CUresult fake_host_alias(CUdeviceptr *addr, void *host, unsigned int flags)
{
	CUresult result = begin_in_context("cuMemHostGetDevicePointer");
	hc_device_addr alias;

	if (result)
		return result;
	alias = hc_device_alias(device, host, 1);
	if (!alias)
		return end(CUDA_ERROR_INVALID_VALUE);
	*addr = alias;
	return end(CUDA_SUCCESS);
}

static CUresult fake_host_register(void *host, size_t size_bytes, unsigned int flags)
{
	CUresult result = begin_unsafe("cuMemHostRegister");
	hc_device_addr alias;
	int err;

	if (result)
		return result;
	if (config.no_registration)
		return end(CUDA_ERROR_OUT_OF_MEMORY);
	err = hc_device_host_register(device, host, size_bytes,
				      (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0, &alias);
	live.n_registrations += !err;
	return end(of_errno(err));
}

static CUresult fake_host_unregister(void *host)
{
	CUresult result = begin_anyway("cuMemHostUnregister");
	hc_device_addr alias = hc_device_alias(device, host, 1);

	if (!alias)
		return end(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	clocks_host_access(host, HC_BLOCK_BYTES, true, "unregistering of host memory");
	hc_device_host_unregister(device, alias);
	live.n_registrations--;
	return end(result);
}

static CUresult fake_pointer_attribute(void *data, CUpointer_attribute which, CUdeviceptr addr)
{
	CUresult result = begin_in_context("cuPointerGetAttribute");

	if (result)
		return result;
	for (int i = 0; i < ALLOCATIONS_MAX; i++) {
		if (addr - allocations[i].addr >= allocations[i].size_bytes)
			continue;
		if (which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
			*(CUmemorytype *)data = CU_MEMORYTYPE_DEVICE;
		else
			*(int *)data = 0;
		return end(CUDA_SUCCESS);
	}
	return end(CUDA_ERROR_INVALID_VALUE);
}

static CUresult fake_stream_create(CUstream *stream, unsigned int flags, int priority)
{
	CUresult result = begin_in_context("cuStreamCreateWithPriority");

	if (result)
		return result;
	hc_assert(flags == CU_STREAM_NON_BLOCKING);
	*stream = make_stream(&primary);
	live.n_streams++;
	return end(CUDA_SUCCESS);
}

static CUresult fake_stream_destroy(CUstream stream)
{
	CUresult result = begin_anyway("cuStreamDestroy");
	struct CUstream_st *s = find_stream(stream);

	hc_assert(s && s != legacy);
	drop_stream(s);
	live.n_streams--;
	return end(result);
}

static CUresult fake_stream_query(CUstream stream)
{
	CUresult result = begin_unsafe("cuStreamQuery");
	struct CUstream_st *s;
	int err;

	if (result)
		return result;
	s = find_stream(stream);
	if (!s)
		return end(CUDA_ERROR_INVALID_HANDLE);
	err = hc_device_stream_drain(s->stream, 0);
	if (!err)
		clocks_host_joins(&s->clock);
	return end(err == -ETIMEDOUT ? CUDA_ERROR_NOT_READY : of_errno(err));
}

static CUresult fake_stream_context(CUstream stream, CUcontext *context)
{
	CUresult result = begin_in_context("cuStreamGetCtx");
	struct CUstream_st *s;

	if (result)
		return result;
	s = find_stream(stream);
	if (!s)
		return end(CUDA_ERROR_INVALID_HANDLE);
	*context = s->context;
	return end(CUDA_SUCCESS);
}

static CUresult fake_stream_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
	CUresult result = begin_in_context("cuStreamIsCapturing");
	struct CUstream_st *s;

	if (result)
		return result;
	s = find_stream(stream);
	if (!s)
		return end(CUDA_ERROR_INVALID_HANDLE);
	*status = s->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	return end(CUDA_SUCCESS);
}

static CUresult fake_begin_capture(CUstream stream, CUstreamCaptureMode mode)
{
	CUresult result = begin_in_context("cuStreamBeginCapture");
	struct CUstream_st *s;

	if (result)
		return result;
	s = find_stream(stream);
	if (!s || s == legacy || s->capturing)
		return end(CUDA_ERROR_INVALID_VALUE);
	s->capturing = true;
	s->n_poisoned = 0;
	return end(CUDA_SUCCESS);
}

/* No graph comes of a capture that was poisoned. */
static CUresult fake_end_capture(CUstream stream, CUgraph *graph)
{
	CUresult result = begin_in_context("cuStreamEndCapture");
	struct CUstream_st *s;

	if (result)
		return result;
	s = find_stream(stream);
	if (!s || !s->capturing)
		return end(CUDA_ERROR_INVALID_VALUE);
	s->capturing = false;
	*graph = s->n_poisoned ? NULL : (CUgraph)(void *)s;
	return end(s->n_poisoned ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
}

static CUresult fake_graph_destroy(CUgraph graph)
{
	CUresult result = begin("cuGraphDestroy");

	return result ? result : end(CUDA_SUCCESS);
}

/* The stream, ready for one more piece of work; or the reason why not, unlocked. */
static CUresult begin_work(const char *name, CUstream stream, struct CUstream_st **s_p)
{
	CUresult result = begin_in_context(name);
	struct CUstream_st *s;

	if (result)
		return result;
	s = find_stream(stream);
	if (!s)
		return end(CUDA_ERROR_INVALID_HANDLE);
	if (s->capturing) {
		s->n_poisoned++;
		return end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	clocks_tick(s->slot, &s->clock);
	*s_p = s;
	return CUDA_SUCCESS;
}

static CUresult fake_stream_wait(CUstream stream, CUevent event, unsigned int flags)
{
	struct CUstream_st *s;
	CUresult result = begin_work("cuStreamWaitEvent", stream, &s);

	if (result)
		return result;
	clocks_join(&s->clock, &event->clock);
	return end(of_errno(hc_device_stream_wait(s->stream, event->event)));
}

static CUresult fake_event_create(CUevent *event, unsigned int flags)
{
	CUresult result = begin_in_context("cuEventCreate");
	struct CUevent_st *e;

	if (result)
		return result;
	e = hc_zalloc(sizeof(*e));
	hc_assert(e && !hc_device_event_create(device, &e->event));
	e->next = events;
	events = e;
	live.n_events++;
	*event = e;
	return end(CUDA_SUCCESS);
}

static CUresult fake_event_destroy(CUevent event)
{
	CUresult result = begin_anyway("cuEventDestroy");

	drop_event(event);
	live.n_events--;
	return end(result);
}

static CUresult fake_event_record(CUevent event, CUstream stream)
{
	struct CUstream_st *s;
	CUresult result = begin_work("cuEventRecord", stream, &s);

	if (result)
		return result;
	event->clock = s->clock;
	return end(of_errno(hc_device_event_record(event->event, s->stream)));
}

static CUresult fake_event_query(CUevent event)
{
	CUresult result = begin_unsafe("cuEventQuery");
	int err;

	if (result)
		return result;
	err = hc_device_event_query(event->event);
	if (!err)
		clocks_host_joins(&event->clock);
	return end(of_errno(err));
}

static void note_copy(struct CUstream_st *s, CUdeviceptr dst, CUdeviceptr src, size_t size_bytes)
{
	clocks_access(s->slot, &s->clock, hc_device_real(device, src, size_bytes), size_bytes,
		      false, "copy");
	clocks_access(s->slot, &s->clock, hc_device_real(device, dst, size_bytes), size_bytes, true,
		      "copy");
}

static CUresult fake_copy(CUdeviceptr dst, CUdeviceptr src, size_t size_bytes, CUstream stream)
{
	struct hc_device_copy copy = {src, dst, size_bytes};
	struct CUstream_st *s;
	CUresult result = begin_work("cuMemcpyAsync", stream, &s);
	int err;

	if (result)
		return result;
	err = hc_device_copy(s->stream, &copy, 1);
	if (!err)
		note_copy(s, dst, src, size_bytes);
	return end(of_errno(err));
}

static CUresult fake_copy_batch(CUdeviceptr *dst, CUdeviceptr *src, size_t *size_bytes, size_t n,
				CUmemcpyAttributes *attributes, size_t *first, size_t n_attributes,
				size_t *failed_at, CUstream stream)
{
	struct hc_device_copy copies[HC_DEVICE_BATCH_MAX];
	struct CUstream_st *s;
	CUresult result = begin_work("cuMemcpyBatchAsync", stream, &s);
	int err;

	if (result)
		return result;
	if (config.batch_unsupported)
		return end(CUDA_ERROR_NOT_SUPPORTED);
	if (s == legacy || n > HC_DEVICE_BATCH_MAX || n_attributes != 1 || first[0] != 0 ||
	    attributes->srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)
		return end(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < n; i++)
		copies[i] = (struct hc_device_copy){src[i], dst[i], size_bytes[i]};
	err = hc_device_copy(s->stream, copies, n);
	for (size_t i = 0; i < n && !err; i++)
		note_copy(s, dst[i], src[i], size_bytes[i]);
	return end(of_errno(err));
}

/* Page pairs that are not what they were were written by the host since, after work that reads them
 * only if the host saw that end. */
static void note_pairs(struct CUstream_st *s, const struct hc_page_copy *c)
{
	uint64_t size_bytes = c->n_pages * sizeof(struct hc_page_pair), hash = size_bytes;
	const unsigned char *pairs = hc_device_real(device, c->pairs, size_bytes);
	int i = 0;

	for (uint64_t b = 0; b < size_bytes; b++)
		hash = (hash ^ pairs[b]) * 0x100000001b3u;
	while (i < PAIRS_MAX - 1 && seen[i].pairs && seen[i].pairs != pairs)
		i++;
	if (seen[i].pairs == pairs && seen[i].hash != hash)
		clocks_host_access(pairs, size_bytes, true, "rewriting of page pairs");
	seen[i].pairs = pairs;
	seen[i].hash = hash;
	clocks_access(s->slot, &s->clock, pairs, size_bytes, false, "page pairs");
}

static void note_pages(struct CUstream_st *s, const struct hc_page_copy *c)
{
	uint64_t n = (uint64_t)hc_page_copy_units_per_page(c) * c->n_pages;
	const struct hc_page_pair *pairs =
		hc_device_real(device, c->pairs, c->n_pages * sizeof(*pairs));

	note_pairs(s, c);
	for (uint64_t unit = 0; unit < n; unit += c->run_bytes / HC_PAGE_COPY_UNIT) {
		struct hc_page_copy_at at = hc_page_copy_find(c, (uint32_t)unit);
		CUdeviceptr src = c->src + pairs[at.page_i].src + (uint64_t)at.src;
		CUdeviceptr dst = c->dst + pairs[at.page_i].dst + (uint64_t)at.dst;

		note_copy(s, dst, src, c->run_bytes);
	}
}

static CUresult fake_launch(CUfunction function, unsigned int grid_x, unsigned int grid_y,
			    unsigned int grid_z, unsigned int block_x, unsigned int block_y,
			    unsigned int block_z, unsigned int shared_bytes, CUstream stream,
			    void **args, void **extra)
{
	const struct hc_page_copy *copy = args[0];
	struct CUstream_st *s;
	CUresult result;
	int err;

	/* Of a product only what it reads and writes, and that it takes its time. */
	if (function->kind == HC_PAGE_COPY_KINDS)
		return fake_copy(*(CUdeviceptr *)args[2], *(CUdeviceptr *)args[0],
				 *(uint32_t *)args[3] * sizeof(float), stream);
	result = begin_work("cuLaunchKernel", stream, &s);
	if (result)
		return result;
	if (!grid_x || grid_y != 1 || grid_z != 1 || block_x != 1024 || block_y != 1 ||
	    block_z != 1)
		return end(CUDA_ERROR_INVALID_VALUE);
	err = hc_device_page_copy(s->stream, function->kind, copy);
	if (!err)
		note_pages(s, copy);
	return end(err == -EFAULT ? CUDA_ERROR_ILLEGAL_ADDRESS : of_errno(err));
}

static const struct {
	const char *name;
	void *entry;
} entries[] = {
	{"cuInit", fake_init},
	{"cuDriverGetVersion", fake_driver_version},
	{"cuGetErrorName", fake_error_name},
	{"cuDeviceGetCount", fake_device_count},
	{"cuDeviceGet", fake_device_get},
	{"cuDeviceGetName", fake_device_name},
	{"cuDeviceGetAttribute", fake_device_attribute},
	{"cuDevicePrimaryCtxRetain", fake_primary_retain},
	{"cuDevicePrimaryCtxRelease", fake_primary_release},
	{"cuCtxPushCurrent", fake_push},
	{"cuCtxPopCurrent", fake_pop},
	{"cuCtxGetStreamPriorityRange", fake_priority_range},
	{"cuThreadExchangeStreamCaptureMode", fake_capture_mode},
	{"cuStreamBeginCapture", fake_begin_capture},
	{"cuStreamEndCapture", fake_end_capture},
	{"cuGraphDestroy", fake_graph_destroy},
	{"cuModuleLoadData", fake_module_load},
	{"cuModuleUnload", fake_module_unload},
	{"cuModuleGetFunction", fake_module_function},
	{"cuMemAlloc", fake_mem_alloc},
	{"cuMemFree", fake_mem_free},
	{"cuMemGetInfo", fake_mem_info},
	{"cuMemHostAlloc", fake_host_alloc},
	{"cuMemFreeHost", fake_host_free},
	{"cuMemHostGetDevicePointer", fake_host_alias},
	{"cuMemHostRegister", fake_host_register},
	{"cuMemHostUnregister", fake_host_unregister},
	{"cuPointerGetAttribute", fake_pointer_attribute},
	{"cuStreamCreateWithPriority", fake_stream_create},
	{"cuStreamDestroy", fake_stream_destroy},
	{"cuStreamQuery", fake_stream_query},
	{"cuStreamGetCtx", fake_stream_context},
	{"cuStreamIsCapturing", fake_stream_capturing},
	{"cuStreamWaitEvent", fake_stream_wait},
	{"cuEventCreate", fake_event_create},
	{"cuEventDestroy", fake_event_destroy},
	{"cuEventRecord", fake_event_record},
	{"cuEventQuery", fake_event_query},
	{"cuMemcpyAsync", fake_copy},
	{"cuLaunchKernel", fake_launch},
	{"cuMemcpyBatchAsync", fake_copy_batch},
};

/* cuGetProcAddress_v2; cuda.h renames it. */
EXPORT CUresult cuGetProcAddress(const char *name, void **entry, int version, cuuint64_t flags,
				 CUdriverProcAddressQueryResult *found)
{
	*entry = NULL;
	*found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	if ((config.no_batch && !strcmp(name, "cuMemcpyBatchAsync")) ||
	    (config.old_driver && !strcmp(name, "cuStreamIsCapturing")))
		return CUDA_SUCCESS;
	for (size_t i = 0; i < HC_ARRAY_SIZE(entries); i++) {
		if (!strcmp(entries[i].name, name)) {
			*entry = entries[i].entry;
			*found = CU_GET_PROC_ADDRESS_SUCCESS;
		}
	}
	return CUDA_SUCCESS;
}
