/* SPDX-License-Identifier: Apache-2.0 */
/* Capture of a stream into a graph as an engine does it: in the driver's global mode, by the
 * driver's own calls, of a real driver or of the fake one. */
#ifndef HC_TESTS_FAKE_CUDA_CAPTURE_H
#define HC_TESTS_FAKE_CUDA_CAPTURE_H

#include <dlfcn.h>

#include "device/device.h"
#include "tests/hctest.h"

/* CUresult, CUcontext, CUstream and CUgraph, as the driver's ABI has them. */
struct capture_calls {
	int (*retain)(void **context, int device);
	int (*release)(int device);
	int (*push)(void *context);
	int (*pop)(void **context);
	int (*begin)(void *stream, int mode);
	int (*end)(void *stream, void **graph);
	int (*destroy)(void *graph);
};

static inline struct capture_calls capture_find(const char *library)
{
	int (*find)(const char *name, void **entry, int version, uint64_t flags, void *found);
	void *driver = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	struct capture_calls calls;
	int found;

	assert_non_null(driver);
	find = (__typeof__(find))dlsym(driver, "cuGetProcAddress_v2");
	assert_non_null(find);
#define CAPTURE_CALL(member, name, version)                                  \
	do {                                                                 \
		void *entry = NULL;                                          \
		assert_int_equal(find(name, &entry, version, 0, &found), 0); \
		assert_non_null(entry);                                      \
		calls.member = (__typeof__(calls.member))entry;              \
	} while (0)
	CAPTURE_CALL(retain, "cuDevicePrimaryCtxRetain", 7000);
	CAPTURE_CALL(release, "cuDevicePrimaryCtxRelease", 11000);
	CAPTURE_CALL(push, "cuCtxPushCurrent", 4000);
	CAPTURE_CALL(pop, "cuCtxPopCurrent", 4000);
	CAPTURE_CALL(begin, "cuStreamBeginCapture", 10010);
	CAPTURE_CALL(end, "cuStreamEndCapture", 10000);
	CAPTURE_CALL(destroy, "cuGraphDestroy", 10000);
#undef CAPTURE_CALL
	return calls;
}

/* The end says whether the capture came through: a graph, and no error. */
static inline void capture_stream(const char *library, struct hc_device_stream *stream, bool on)
{
	struct capture_calls calls = capture_find(library);
	void *handle = (void *)(uintptr_t)hc_device_stream_handle(stream);
	void *context, *graph = NULL;

	assert_int_equal(calls.retain(&context, 0), 0);
	assert_int_equal(calls.push(context), 0);
	if (on) {
		assert_int_equal(calls.begin(handle, 0), 0);
	} else {
		assert_int_equal(calls.end(handle, &graph), 0);
		assert_non_null(graph);
		assert_int_equal(calls.destroy(graph), 0);
	}
	assert_int_equal(calls.pop(&context), 0);
	assert_int_equal(calls.release(0), 0);
}

#endif
