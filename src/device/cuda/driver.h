/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's entry points, found at run time: dlopen of libcuda.so.1, then cuGetProcAddress for
 * each name with the version whose prototype is used here (a newer driver serves the older
 * prototypes). Nothing is linked, so one binary runs with and without a GPU. The table is also the
 * seam for tests, which open another library. */
#ifndef HC_DEVICE_CUDA_DRIVER_H
#define HC_DEVICE_CUDA_DRIVER_H

#include <cuda.h>
#include <cudaTypedefs.h>

#include "util/base.h"

/* X(member, name, version asked, prototype) */
#define HC_DRIVER_REQUIRED(X)                                                                      \
	X(init, "cuInit", 2000, PFN_cuInit_v2000)                                                  \
	X(driver_version, "cuDriverGetVersion", 2020, PFN_cuDriverGetVersion_v2020)                \
	X(error_name, "cuGetErrorName", 6000, PFN_cuGetErrorName_v6000)                            \
	X(device_count, "cuDeviceGetCount", 2000, PFN_cuDeviceGetCount_v2000)                      \
	X(device_get, "cuDeviceGet", 2000, PFN_cuDeviceGet_v2000)                                  \
	X(device_name, "cuDeviceGetName", 2000, PFN_cuDeviceGetName_v2000)                         \
	X(device_attribute, "cuDeviceGetAttribute", 2000, PFN_cuDeviceGetAttribute_v2000)          \
	X(primary_retain, "cuDevicePrimaryCtxRetain", 7000, PFN_cuDevicePrimaryCtxRetain_v7000)    \
	X(primary_release, "cuDevicePrimaryCtxRelease", 11000,                                     \
	  PFN_cuDevicePrimaryCtxRelease_v11000)                                                    \
	X(context_push, "cuCtxPushCurrent", 4000, PFN_cuCtxPushCurrent_v4000)                      \
	X(context_pop, "cuCtxPopCurrent", 4000, PFN_cuCtxPopCurrent_v4000)                         \
	X(capture_mode, "cuThreadExchangeStreamCaptureMode", 10010,                                \
	  PFN_cuThreadExchangeStreamCaptureMode_v10010)                                            \
	X(priority_range, "cuCtxGetStreamPriorityRange", 5050,                                     \
	  PFN_cuCtxGetStreamPriorityRange_v5050)                                                   \
	X(module_load, "cuModuleLoadData", 2000, PFN_cuModuleLoadData_v2000)                       \
	X(module_unload, "cuModuleUnload", 2000, PFN_cuModuleUnload_v2000)                         \
	X(module_function, "cuModuleGetFunction", 2000, PFN_cuModuleGetFunction_v2000)             \
	X(mem_alloc, "cuMemAlloc", 3020, PFN_cuMemAlloc_v3020)                                     \
	X(mem_free, "cuMemFree", 3020, PFN_cuMemFree_v3020)                                        \
	X(mem_info, "cuMemGetInfo", 3020, PFN_cuMemGetInfo_v3020)                                  \
	X(host_alloc, "cuMemHostAlloc", 2020, PFN_cuMemHostAlloc_v2020)                            \
	X(host_free, "cuMemFreeHost", 2000, PFN_cuMemFreeHost_v2000)                               \
	X(host_alias, "cuMemHostGetDevicePointer", 3020, PFN_cuMemHostGetDevicePointer_v3020)      \
	X(host_register, "cuMemHostRegister", 6050, PFN_cuMemHostRegister_v6050)                   \
	X(host_unregister, "cuMemHostUnregister", 4000, PFN_cuMemHostUnregister_v4000)             \
	X(pointer_attribute, "cuPointerGetAttribute", 4000, PFN_cuPointerGetAttribute_v4000)       \
	X(stream_create, "cuStreamCreateWithPriority", 5050, PFN_cuStreamCreateWithPriority_v5050) \
	X(stream_destroy, "cuStreamDestroy", 4000, PFN_cuStreamDestroy_v4000)                      \
	X(stream_query, "cuStreamQuery", 2000, PFN_cuStreamQuery_v2000)                            \
	X(stream_context, "cuStreamGetCtx", 9020, PFN_cuStreamGetCtx_v9020)                        \
	X(stream_capturing, "cuStreamIsCapturing", 10000, PFN_cuStreamIsCapturing_v10000)          \
	X(stream_wait, "cuStreamWaitEvent", 3020, PFN_cuStreamWaitEvent_v3020)                     \
	X(event_create, "cuEventCreate", 2000, PFN_cuEventCreate_v2000)                            \
	X(event_destroy, "cuEventDestroy", 4000, PFN_cuEventDestroy_v4000)                         \
	X(event_record, "cuEventRecord", 2000, PFN_cuEventRecord_v2000)                            \
	X(event_query, "cuEventQuery", 2000, PFN_cuEventQuery_v2000)                               \
	X(copy, "cuMemcpyAsync", 4000, PFN_cuMemcpyAsync_v4000)                                    \
	X(launch, "cuLaunchKernel", 4000, PFN_cuLaunchKernel_v4000)

/* NULL where the driver does not have them. */
#if CUDA_VERSION >= 12080
#define HC_DRIVER_OPTIONAL(X) \
	X(copy_batch, "cuMemcpyBatchAsync", 12080, PFN_cuMemcpyBatchAsync_v12080)
#else
#define HC_DRIVER_OPTIONAL(X)
#endif

struct hc_driver {
	void *library;
#define HC_DRIVER_MEMBER(member, name, version, type) type member;
	HC_DRIVER_REQUIRED(HC_DRIVER_MEMBER)
	HC_DRIVER_OPTIONAL(HC_DRIVER_MEMBER)
#undef HC_DRIVER_MEMBER
};

/* -ENODEV with the reason in the log: no library, or one without what is required. The library
 * stays open for the life of the process: the driver has threads of its own. */
int hc_driver_open(const char *library, struct hc_driver *driver_p) HC_MUST_CHECK;
const char *hc_driver_error_name(const struct hc_driver *driver, CUresult result);

#endif
