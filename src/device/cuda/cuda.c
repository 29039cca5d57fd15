/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU through CUDA's driver. See device.h for the contract.
 *
 * The context is the device's primary one, which PyTorch uses too; it is pushed around each call,
 * so the caller's current context is never another afterwards. Own streams do not synchronise with
 * the default stream. Within a call the thread's capture mode is relaxed: an engine that captures a
 * graph in the driver's global mode, as PyTorch does, would otherwise lose its capture to a query
 * of an event by whatever thread. Errors of the driver are named in the log; one that the driver
 * will repeat for ever (an illegal address, a launch that failed, ...) marks the device lost: every
 * later call is -EIO without asking the driver. No lock: the driver has its own. */
#include "device/cuda/driver.h"
#include "device/device.h"
#include "util/clock.h"
#include "util/log.h"

/* Descriptors in one call of the driver; they are on the stack of the caller. */
#define COPIES_MAX 512
/* A registration of 512 GiB or more always fails; far below it, so that pieces stay movable. */
#define REGISTER_MAX_BYTES (64 * HC_GIB)
/* Of kernels.cu. Two blocks have 128 KiB in flight, enough for the link; more would take
 * multiprocessors from the model. Inside device memory the copy is short: more of them. */
#define THREADS         1024
#define LINK_BLOCKS     2
#define RELAYOUT_BLOCKS 32
#define UNITS_PER_BLOCK (THREADS * HC_PAGE_COPY_IN_FLIGHT)

extern const unsigned char hc_cuda_kernels[];

/* Pools of engines: one for each kind of page, a few devices. */
#define BORROWED_MAX 64

struct hc_cuda {
	struct hc_device base;
	struct hc_driver driver;
	CUdevice ordinal;
	CUcontext context;
	CUmodule module;
	CUfunction kernels[HC_PAGE_COPY_KINDS]; /* NULL: none for this GPU */
	int priority_low, priority_high;
	int numa_node;
	bool read_only_registration;
	atomic_bool batch;
	atomic_bool lost;
	pthread_mutex_t borrowed_lock; /* leaf */
	uint32_t n_borrowed;
	void *borrowed[BORROWED_MAX]; /* host memory that the engine itself has pinned */
};

struct cuda_stream {
	struct hc_device_stream base;
	CUstream stream;
};

struct cuda_event {
	struct hc_device_event base;
	CUevent event;
};

static struct hc_cuda *cuda_of(struct hc_device *device)
{
	return (struct hc_cuda *)device;
}

static struct cuda_stream *stream_of(struct hc_device_stream *stream)
{
	return (struct cuda_stream *)stream;
}

static struct cuda_event *event_of(struct hc_device_event *event)
{
	return (struct cuda_event *)event;
}

/* What our caller gets, and whether the device is done for. Everything that is not known to leave
 * the context usable counts as lost. */
static int errno_of(CUresult result, bool *lost_p)
{
	*lost_p = false;
	switch (result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_NOT_READY:
		return -EINPROGRESS;
	case CUDA_ERROR_OUT_OF_MEMORY:
	case CUDA_ERROR_OPERATING_SYSTEM: /* pinning limits */
	case CUDA_ERROR_MAP_FAILED:
		return -ENOMEM;
	case CUDA_ERROR_NOT_SUPPORTED:
		return -ENOTSUP;
	case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
		return -EEXIST;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
	case CUDA_ERROR_NOT_PERMITTED:
	case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
		return -EINVAL;
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
	case CUDA_ERROR_INVALID_PTX:
	case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
	case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
	case CUDA_ERROR_JIT_COMPILATION_DISABLED:
	case CUDA_ERROR_INVALID_IMAGE:
	case CUDA_ERROR_NOT_FOUND:
		return -ENOTSUP;
	case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
	case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
	case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
	case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
	case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
		return -EBUSY;
	default:
		*lost_p = true;
		return -EIO;
	}
}

/* The errno of a driver's result. The place that logs. */
static int check(struct hc_cuda *cuda, CUresult result, const char *what)
{
	bool lost;
	int err = errno_of(result, &lost);

	if (!err || err == -EINPROGRESS)
		return err;
	if (lost && !atomic_exchange(&cuda->lost, true))
		hc_error("cuda",
			 "%s: %s (%d): the device is lost for this process; restart it to use the "
			 "GPU again",
			 what, hc_driver_error_name(&cuda->driver, result), (int)result);
	else if (!lost)
		hc_error("cuda", "%s: %s (%d)", what, hc_driver_error_name(&cuda->driver, result),
			 (int)result);
	return err;
}

/* What the thread's capture mode was before enter. */
static __thread CUstreamCaptureMode outer_mode;

static void pop(struct hc_cuda *cuda)
{
	CUcontext ours;

	/* An error of earlier work, which its own call reports. */
	hc_ignore(cuda->driver.context_pop(&ours));
}

static int enter(struct hc_cuda *cuda)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	int err;

	if (atomic_load_explicit(&cuda->lost, memory_order_relaxed))
		return -EIO;
	err = check(cuda, cuda->driver.context_push(cuda->context), "cuCtxPushCurrent");
	if (err)
		return err;
	err = check(cuda, cuda->driver.capture_mode(&mode), "cuThreadExchangeStreamCaptureMode");
	if (err)
		pop(cuda);
	else
		outer_mode = mode;
	return err;
}

/* To give something back: a push that reports an error of other work is tried once more. */
static int enter_to_release(struct hc_cuda *cuda)
{
	int err = enter(cuda);

	return err && err != -EIO ? enter(cuda) : err;
}

static void leave(struct hc_cuda *cuda)
{
	CUstreamCaptureMode mode = outer_mode;

	/* As with pop. */
	hc_ignore(cuda->driver.capture_mode(&mode));
	pop(cuda);
}

static int cuda_mem_alloc(struct hc_device *device, uint64_t size_bytes, hc_device_addr *addr_p,
			  void **real_p)
{
	struct hc_cuda *cuda = cuda_of(device);
	CUdeviceptr addr;
	int err = enter(cuda);

	if (err)
		return err;
	err = check(cuda, cuda->driver.mem_alloc(&addr, size_bytes), "cuMemAlloc");
	leave(cuda);
	if (err)
		return err;
	*addr_p = addr;
	*real_p = NULL;
	return 0;
}

static void cuda_mem_free(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes)
{
	struct hc_cuda *cuda = cuda_of(device);

	if (enter_to_release(cuda))
		return;
	hc_ignore(check(cuda, cuda->driver.mem_free(addr), "cuMemFree"));
	leave(cuda);
}

/* Is one byte of it memory of our device? */
static bool is_ours(struct hc_cuda *cuda, hc_device_addr addr)
{
	CUmemorytype type = 0;
	int ordinal = -1;

	return cuda->driver.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, addr) ==
		       CUDA_SUCCESS &&
	       cuda->driver.pointer_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
					      addr) == CUDA_SUCCESS &&
	       type == CU_MEMORYTYPE_DEVICE && ordinal == cuda->ordinal;
}

static int cuda_mem_import(struct hc_device *device, hc_device_addr addr, uint64_t size_bytes,
			   void **real_p)
{
	struct hc_cuda *cuda = cuda_of(device);
	bool ours;
	int err = enter(cuda);

	if (err)
		return err;
	ours = is_ours(cuda, addr) && is_ours(cuda, addr + size_bytes - 1);
	leave(cuda);
	if (!ours) {
		hc_error("cuda", "%#llx, %llu bytes: not memory of device %d",
			 (unsigned long long)addr, (unsigned long long)size_bytes, cuda->ordinal);
		return -EXDEV;
	}
	*real_p = NULL;
	return 0;
}

static int cuda_host_alloc(struct hc_device *device, uint64_t size_bytes, void **host_p,
			   hc_device_addr *addr_p)
{
	const unsigned int flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
	struct hc_cuda *cuda = cuda_of(device);
	CUdeviceptr addr;
	void *host;
	int err = enter(cuda);

	if (err)
		return err;
	err = check(cuda, cuda->driver.host_alloc(&host, size_bytes, flags), "cuMemHostAlloc");
	if (!err) {
		err = check(cuda, cuda->driver.host_alias(&addr, host, 0),
			    "cuMemHostGetDevicePointer");
		if (err)
			hc_ignore(cuda->driver.host_free(host));
	}
	leave(cuda);
	if (err)
		return err;
	*host_p = host;
	*addr_p = addr;
	return 0;
}

static void cuda_host_free(struct hc_device *device, void *host, hc_device_addr addr,
			   uint64_t size_bytes)
{
	struct hc_cuda *cuda = cuda_of(device);

	if (enter_to_release(cuda))
		return;
	hc_ignore(check(cuda, cuda->driver.host_free(host), "cuMemFreeHost"));
	leave(cuda);
}

/* What somebody else has pinned wholly, and will unpin. */
static int borrow(struct hc_cuda *cuda, void *host, uint64_t size_bytes, CUdeviceptr *addr_p)
{
	uint64_t last = size_bytes - HC_BLOCK_BYTES;
	CUdeviceptr addr, end;
	int err = check(cuda, cuda->driver.host_alias(&addr, host, 0), "cuMemHostGetDevicePointer");

	if (!err)
		err = check(cuda, cuda->driver.host_alias(&end, (char *)host + last, 0),
			    "cuMemHostGetDevicePointer");
	if (!err && end - addr != last)
		err = -EEXIST;
	if (err)
		return err;
	pthread_mutex_lock(&cuda->borrowed_lock);
	if (cuda->n_borrowed < BORROWED_MAX)
		cuda->borrowed[cuda->n_borrowed++] = host;
	else
		err = -ENOMEM;
	pthread_mutex_unlock(&cuda->borrowed_lock);
	if (!err)
		*addr_p = addr;
	return err;
}

static bool give_borrowed_back(struct hc_cuda *cuda, const void *host)
{
	bool found = false;

	pthread_mutex_lock(&cuda->borrowed_lock);
	for (uint32_t i = 0; i < cuda->n_borrowed && !found; i++) {
		found = cuda->borrowed[i] == host;
		if (found)
			cuda->borrowed[i] = cuda->borrowed[--cuda->n_borrowed];
	}
	pthread_mutex_unlock(&cuda->borrowed_lock);
	return found;
}

static int register_locked_pages(struct hc_cuda *cuda, void *host, uint64_t size_bytes,
				 unsigned int flags, CUdeviceptr *addr_p)
{
	CUresult result = cuda->driver.host_register(host, size_bytes, flags);
	CUdeviceptr addr;
	int err;

	if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
		return borrow(cuda, host, size_bytes, addr_p);
	err = check(cuda, result, "cuMemHostRegister");
	if (err)
		return err;
	err = check(cuda, cuda->driver.host_alias(&addr, host, 0), "cuMemHostGetDevicePointer");
	if (err) {
		hc_ignore(cuda->driver.host_unregister(host));
		return err;
	}
	*addr_p = addr;
	return 0;
}

static int cuda_host_register(struct hc_device *device, void *host, uint64_t size_bytes,
			      bool read_only, hc_device_addr *addr_p)
{
	unsigned int flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
	struct hc_cuda *cuda = cuda_of(device);
	CUdeviceptr addr = 0;
	int err;

	if (size_bytes > REGISTER_MAX_BYTES) {
		hc_error("cuda", "cannot register %llu bytes at once: at most %llu, in pieces",
			 (unsigned long long)size_bytes, (unsigned long long)REGISTER_MAX_BYTES);
		return -EINVAL;
	}
	if (read_only && !cuda->read_only_registration) {
		hc_error("cuda", "this device cannot register memory for reading only");
		return -ENOTSUP;
	}
	if (read_only)
		flags |= CU_MEMHOSTREGISTER_READ_ONLY;
	err = enter(cuda);
	if (err)
		return err;
	err = register_locked_pages(cuda, host, size_bytes, flags, &addr);
	leave(cuda);
	if (err) {
		hc_error("cuda",
			 "cannot register %llu bytes of host memory: %s; raise the limit of locked "
			 "memory (ulimit -l) or make the pool smaller",
			 (unsigned long long)size_bytes, strerror(-err));
		return err;
	}
	*addr_p = addr;
	return 0;
}

static void cuda_host_unregister(struct hc_device *device, void *host, hc_device_addr addr,
				 uint64_t size_bytes)
{
	struct hc_cuda *cuda = cuda_of(device);

	if (give_borrowed_back(cuda, host) || enter_to_release(cuda))
		return;
	hc_ignore(check(cuda, cuda->driver.host_unregister(host), "cuMemHostUnregister"));
	leave(cuda);
}

static int cuda_stream_create(struct hc_device *device, enum hc_device_priority priority,
			      struct hc_device_stream **stream_p)
{
	struct hc_cuda *cuda = cuda_of(device);
	struct cuda_stream *stream = hc_zalloc(sizeof(*stream));
	int err = stream ? enter(cuda) : -ENOMEM;

	if (err) {
		free(stream);
		return err;
	}
	stream->base.device = device;
	err = check(cuda,
		    cuda->driver.stream_create(&stream->stream, CU_STREAM_NON_BLOCKING,
					       priority == HC_DEVICE_PRIORITY_HIGH
						       ? cuda->priority_high
						       : cuda->priority_low),
		    "cuStreamCreateWithPriority");
	leave(cuda);
	if (err) {
		free(stream);
		return err;
	}
	*stream_p = &stream->base;
	return 0;
}

/* Of the primary context or not. Handles 0, 1 and 2 are the default streams of the one that is
 * current. */
static int check_context(struct hc_cuda *cuda, CUstream stream)
{
	CUcontext theirs;
	CUresult result = cuda->driver.stream_context(stream, &theirs);
	bool lost;
	int err = errno_of(result, &lost);

	if (lost)
		return check(cuda, result, "cuStreamGetCtx");
	if (err || theirs != cuda->context) {
		hc_error("cuda",
			 "stream %p is not one of the primary context of device %d: pass the "
			 "stream of the engine's own device",
			 (void *)stream, cuda->ordinal);
		return -EXDEV;
	}
	return 0;
}

static int cuda_stream_import(struct hc_device *device, uint64_t handle,
			      struct hc_device_stream **stream_p)
{
	struct hc_cuda *cuda = cuda_of(device);
	struct cuda_stream *stream = hc_zalloc(sizeof(*stream));
	int err = stream ? enter(cuda) : -ENOMEM;

	if (err) {
		free(stream);
		return err;
	}
	stream->base = (struct hc_device_stream){device, true};
	stream->stream = (CUstream)(uintptr_t)handle;
	err = check_context(cuda, stream->stream);
	leave(cuda);
	if (err) {
		free(stream);
		return err;
	}
	*stream_p = &stream->base;
	return 0;
}

static void cuda_stream_destroy(struct hc_device_stream *base)
{
	struct hc_cuda *cuda = cuda_of(base->device);
	struct cuda_stream *stream = stream_of(base);

	if (!base->imported && !enter_to_release(cuda)) {
		hc_ignore(check(cuda, cuda->driver.stream_destroy(stream->stream),
				"cuStreamDestroy"));
		leave(cuda);
	}
	free(stream);
}

static uint64_t cuda_stream_handle(struct hc_device_stream *stream)
{
	return (uintptr_t)stream_of(stream)->stream;
}

/* Own streams are never captured. */
static int check_capture(struct hc_cuda *cuda, struct hc_device_stream *stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	int err;

	if (!stream->imported)
		return 0;
	err = check(cuda, cuda->driver.stream_capturing(stream_of(stream)->stream, &status),
		    "cuStreamIsCapturing");
	return err ? err : status == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : -EBUSY;
}

static int cuda_stream_check(struct hc_device_stream *stream)
{
	struct hc_cuda *cuda = cuda_of(stream->device);
	int err = enter(cuda);

	if (err)
		return err;
	err = check_capture(cuda, stream);
	leave(cuda);
	return err;
}

static int stream_query(struct hc_device_stream *stream)
{
	struct hc_cuda *cuda = cuda_of(stream->device);
	int err = enter(cuda);

	if (err)
		return err;
	err = check(cuda, cuda->driver.stream_query(stream_of(stream)->stream), "cuStreamQuery");
	leave(cuda);
	return err;
}

/* The driver's own wait has no deadline. */
static int cuda_stream_drain(struct hc_device_stream *stream, uint64_t deadline_ns)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t never;
	int err;

	hc_cond_init(&never);
	pthread_mutex_lock(&lock);
	while ((err = stream_query(stream)) == -EINPROGRESS) {
		if (hc_clock_now_ns() >= deadline_ns) {
			err = -ETIMEDOUT;
			break;
		}
		hc_ignore(hc_cond_wait_until(&never, &lock, hc_clock_now_ns() + 20 * HC_NS_PER_US));
	}
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&never);
	return err;
}

static int cuda_stream_wait(struct hc_device_stream *stream, struct hc_device_event *event)
{
	struct hc_cuda *cuda = cuda_of(stream->device);
	int err = enter(cuda);

	if (err)
		return err;
	err = check_capture(cuda, stream);
	if (!err)
		err = check(cuda,
			    cuda->driver.stream_wait(stream_of(stream)->stream,
						     event_of(event)->event, 0),
			    "cuStreamWaitEvent");
	leave(cuda);
	return err;
}

static int cuda_event_create(struct hc_device *device, struct hc_device_event **event_p)
{
	struct hc_cuda *cuda = cuda_of(device);
	struct cuda_event *event = hc_zalloc(sizeof(*event));
	int err = event ? enter(cuda) : -ENOMEM;

	if (err) {
		free(event);
		return err;
	}
	event->base.device = device;
	err = check(cuda, cuda->driver.event_create(&event->event, CU_EVENT_DISABLE_TIMING),
		    "cuEventCreate");
	leave(cuda);
	if (err) {
		free(event);
		return err;
	}
	*event_p = &event->base;
	return 0;
}

static void cuda_event_destroy(struct hc_device_event *event)
{
	struct hc_cuda *cuda = cuda_of(event->device);

	if (!enter_to_release(cuda)) {
		hc_ignore(check(cuda, cuda->driver.event_destroy(event_of(event)->event),
				"cuEventDestroy"));
		leave(cuda);
	}
	free(event_of(event));
}

static int cuda_event_record(struct hc_device_event *event, struct hc_device_stream *stream)
{
	struct hc_cuda *cuda = cuda_of(stream->device);
	int err = enter(cuda);

	if (err)
		return err;
	err = check_capture(cuda, stream);
	if (!err)
		err = check(cuda,
			    cuda->driver.event_record(event_of(event)->event,
						      stream_of(stream)->stream),
			    "cuEventRecord");
	leave(cuda);
	return err;
}

static int cuda_event_query(struct hc_device_event *event)
{
	struct hc_cuda *cuda = cuda_of(event->device);
	int err = enter(cuda);

	if (err)
		return err;
	err = check(cuda, cuda->driver.event_query(event_of(event)->event), "cuEventQuery");
	leave(cuda);
	return err;
}

static int copy_each(struct hc_cuda *cuda, CUstream stream, const struct hc_device_copy *copies,
		     size_t n)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i++)
		err = check(cuda,
			    cuda->driver.copy(copies[i].dst, copies[i].src, copies[i].size_bytes,
					      stream),
			    "cuMemcpyAsync");
	return err;
}

#if CUDA_VERSION >= 12080
/* CUDA_ERROR_NOT_SUPPORTED is the answer of a driver that has the entry point and no more. */
static CUresult copy_batch(struct hc_cuda *cuda, CUstream stream,
			   const struct hc_device_copy *copies, size_t n)
{
	/* In the order of the stream: what an earlier copy wrote may be the source. */
	CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	CUdeviceptr dst[COPIES_MAX], src[COPIES_MAX];
	size_t size_bytes[COPIES_MAX], first = 0, failed;

	for (size_t i = 0; i < n; i++) {
		dst[i] = copies[i].dst;
		src[i] = copies[i].src;
		size_bytes[i] = copies[i].size_bytes;
	}
	return cuda->driver.copy_batch(dst, src, size_bytes, n, &attributes, &first, 1, &failed,
				       stream);
}
#else
static CUresult copy_batch(struct hc_cuda *cuda, CUstream stream,
			   const struct hc_device_copy *copies, size_t n)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}
#endif

static int copy_some(struct hc_cuda *cuda, CUstream stream, const struct hc_device_copy *copies,
		     size_t n)
{
	CUresult result;

	/* A batch on a default stream is refused by the driver; one alone gains nothing. */
	if (n == 1 || (uintptr_t)stream <= 2 || !atomic_load(&cuda->batch))
		return copy_each(cuda, stream, copies, n);
	result = copy_batch(cuda, stream, copies, n);
	if (result != CUDA_ERROR_NOT_SUPPORTED && result != CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER)
		return check(cuda, result, "cuMemcpyBatchAsync");
	if (atomic_exchange(&cuda->batch, false))
		hc_info("cuda", "no batched copies here: copies go one by one");
	return copy_each(cuda, stream, copies, n);
}

static int cuda_copy(struct hc_device_stream *stream, const struct hc_device_copy *copies, size_t n)
{
	struct hc_cuda *cuda = cuda_of(stream->device);
	int err = enter(cuda);

	if (err)
		return err;
	for (size_t i = 0; i < n && !err; i += COPIES_MAX)
		err = copy_some(cuda, stream_of(stream)->stream, copies + i,
				hc_min_u64(n - i, COPIES_MAX));
	leave(cuda);
	return err;
}

static int cuda_page_copy(struct hc_device_stream *stream, enum hc_page_copy_kind kind,
			  const struct hc_page_copy *copy)
{
	struct hc_cuda *cuda = cuda_of(stream->device);
	uint64_t units = (uint64_t)hc_page_copy_units_per_page(copy) * copy->n_pages;
	uint64_t n_blocks = hc_min_u64((units + UNITS_PER_BLOCK - 1) / UNITS_PER_BLOCK,
				       kind == HC_PAGE_RELAYOUT ? RELAYOUT_BLOCKS : LINK_BLOCKS);
	void *args[] = {(void *)(uintptr_t)copy};
	int err;

	if (!cuda->kernels[kind])
		return -ENOTSUP;
	err = enter(cuda);
	if (err)
		return err;
	err = check(cuda,
		    cuda->driver.launch(cuda->kernels[kind], (unsigned int)n_blocks, 1, 1, THREADS,
					1, 1, 0, stream_of(stream)->stream, args, NULL),
		    "cuLaunchKernel");
	leave(cuda);
	return err;
}

static int cuda_health(struct hc_device *device)
{
	return atomic_load(&cuda_of(device)->lost) ? -EIO : 0;
}

static void cuda_info(struct hc_device *device, struct hc_device_info *info_p)
{
	struct hc_cuda *cuda = cuda_of(device);
	size_t free_bytes = 0, total_bytes;

	info_p->threads = true;
	info_p->kernels = cuda->kernels[0] != NULL;
	info_p->batch_native = atomic_load(&cuda->batch);
	info_p->numa_node = cuda->numa_node;
	if (enter(cuda))
		return;
	hc_ignore(cuda->driver.device_name(info_p->name, sizeof(info_p->name), cuda->ordinal));
	hc_ignore(cuda->driver.driver_version(&info_p->driver_version));
	if (cuda->driver.mem_info(&free_bytes, &total_bytes) == CUDA_SUCCESS)
		info_p->free_bytes = free_bytes;
	leave(cuda);
}

static void cuda_close(struct hc_device *device)
{
	struct hc_cuda *cuda = cuda_of(device);

	if (cuda->module && !enter_to_release(cuda)) {
		hc_ignore(check(cuda, cuda->driver.module_unload(cuda->module), "cuModuleUnload"));
		leave(cuda);
	}
	if (cuda->context)
		hc_ignore(cuda->driver.primary_release(cuda->ordinal));
	hc_device_fini(device);
	pthread_mutex_destroy(&cuda->borrowed_lock);
	free(cuda);
}

static const struct hc_device_ops cuda_ops = {
	.name = "cuda",
	.close = cuda_close,
	.health = cuda_health,
	.info = cuda_info,
	.mem_alloc = cuda_mem_alloc,
	.mem_free = cuda_mem_free,
	.mem_import = cuda_mem_import,
	.host_alloc = cuda_host_alloc,
	.host_free = cuda_host_free,
	.host_register = cuda_host_register,
	.host_unregister = cuda_host_unregister,
	.stream_create = cuda_stream_create,
	.stream_import = cuda_stream_import,
	.stream_destroy = cuda_stream_destroy,
	.stream_handle = cuda_stream_handle,
	.stream_check = cuda_stream_check,
	.stream_drain = cuda_stream_drain,
	.stream_wait = cuda_stream_wait,
	.event_create = cuda_event_create,
	.event_destroy = cuda_event_destroy,
	.event_record = cuda_event_record,
	.event_query = cuda_event_query,
	.copy = cuda_copy,
	.page_copy = cuda_page_copy,
};

/* The driver, and the context that everybody in this process shares. */
static int open_context(struct hc_cuda *cuda, const struct hc_cuda_config *config)
{
	int n = 0;
	int err = hc_driver_open(config->library ? config->library : "libcuda.so.1", &cuda->driver);

	if (err)
		return err;
	if (cuda->driver.init(0) != CUDA_SUCCESS || cuda->driver.device_count(&n) != CUDA_SUCCESS ||
	    !n) {
		hc_info("cuda", "the driver is there, but no device");
		return -ENODEV;
	}
	if (config->ordinal < 0 || config->ordinal >= n ||
	    cuda->driver.device_get(&cuda->ordinal, config->ordinal) != CUDA_SUCCESS) {
		hc_error("cuda", "there is no device %d: 0 to %d are there", config->ordinal,
			 n - 1);
		return -ENODEV;
	}
	return check(cuda, cuda->driver.primary_retain(&cuda->context, cuda->ordinal),
		     "cuDevicePrimaryCtxRetain");
}

static int attribute(struct hc_cuda *cuda, CUdevice_attribute which, int otherwise)
{
	int value;

	if (cuda->driver.device_attribute(&value, which, cuda->ordinal) != CUDA_SUCCESS)
		return otherwise;
	return value;
}

/* A GPU that none of our machine code suits still has its copy engines. */
static int load_kernels(struct hc_cuda *cuda)
{
	static const char *const names[HC_PAGE_COPY_KINDS] = {
		[HC_PAGE_GATHER] = "hc_page_gather",
		[HC_PAGE_SCATTER] = "hc_page_scatter",
		[HC_PAGE_RELAYOUT] = "hc_page_relayout",
	};
	CUfunction kernels[HC_PAGE_COPY_KINDS];
	int err = check(cuda, cuda->driver.module_load(&cuda->module, hc_cuda_kernels),
			"cuModuleLoadData");

	for (int i = 0; i < HC_PAGE_COPY_KINDS && !err; i++)
		err = check(cuda, cuda->driver.module_function(&kernels[i], cuda->module, names[i]),
			    "cuModuleGetFunction");
	if (!err)
		memcpy(cuda->kernels, kernels, sizeof(kernels));
	if (!err || atomic_load(&cuda->lost))
		return err;
	hc_warn("cuda", "no kernels for this device: only its copy engines are used");
	return 0;
}

int hc_cuda_open(const struct hc_cuda_config *config, struct hc_device **device_p)
{
	struct hc_cuda *cuda = hc_zalloc(sizeof(*cuda));
	int err;

	if (!cuda)
		return -ENOMEM;
	hc_device_init(&cuda->base, &cuda_ops);
	pthread_mutex_init(&cuda->borrowed_lock, NULL);
	err = open_context(cuda, config);
	if (!err)
		err = enter(cuda);
	if (err)
		goto err_close;
#if CUDA_VERSION >= 12080
	cuda->batch = !config->no_batch && cuda->driver.copy_batch;
#endif
	cuda->read_only_registration =
		attribute(cuda, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0) != 0;
#if CUDA_VERSION >= 12020
	cuda->numa_node = attribute(cuda, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1);
#else
	cuda->numa_node = -1;
#endif
	if (cuda->driver.priority_range(&cuda->priority_low, &cuda->priority_high) != CUDA_SUCCESS)
		cuda->priority_low = cuda->priority_high = 0;
	err = load_kernels(cuda);
	leave(cuda);
	if (err)
		goto err_close;
	*device_p = &cuda->base;
	return 0;
err_close:
	cuda_close(&cuda->base);
	return err;
}
