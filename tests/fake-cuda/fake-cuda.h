/* SPDX-License-Identifier: Apache-2.0 */
/* Control of the fake driver: a shared object with the entry points of libcuda.so.1 that the device
 * cuda uses, over the reference device. Streams are threads with random delays; the n-th call can
 * be made to fail; vector clocks tell whether every two accesses to the same bytes, one of them a
 * write, were ordered by streams, events or polls of the host, whatever the timing was.
 *
 * Tests find these functions by dlsym. All threads of the host count as one for the clocks (thread
 * sanitizer looks at those). */
#ifndef HC_TESTS_FAKE_CUDA_H
#define HC_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

struct fake_cuda_config {
	uint64_t seed;
	uint64_t delay_max_ns;
	int driver_version;     /* 0: 13000 */
	bool no_devices;        /* as on a machine without a GPU */
	bool no_batch;          /* the entry point is missing */
	bool batch_unsupported; /* it is there and answers NOT_SUPPORTED */
	bool no_kernels;        /* the module cannot be loaded */
	bool old_driver;        /* some required entry point is missing */
	bool no_registration;   /* registering fails as pinning limits do */
	uint64_t memory_bytes;  /* of the device; 0: 16 GiB */
};

/* Live objects of the driver's callers. */
struct fake_cuda_live {
	uint32_t n_streams, n_events, n_allocations, n_host_allocations, n_registrations;
	uint32_t n_contexts, n_modules, n_pushed;
};

/* Forgets everything; nothing may be live. */
typedef void fake_cuda_reset_t(const struct fake_cuda_config *config);
/* The n-th call from here on (1: the next) answers `result`; sticky: so do all after it. 0: none.
 */
typedef void fake_cuda_fail_nth_t(uint64_t n, int result, bool sticky);
/* Calls since the reset, and the name of the one that was made to fail, or NULL. */
typedef uint64_t fake_cuda_calls_t(const char **failed_p);
typedef void fake_cuda_live_t(struct fake_cuda_live *live_p);
/* Unordered accesses so far; what_p: the first, in words. */
typedef uint32_t fake_cuda_races_t(const char **what_p);
/* The host reads or writes bytes of registered memory. */
typedef void fake_cuda_touch_t(const void *host, uint64_t size_bytes, bool write, const char *what);
/* Begins or ends capture of a stream, by its handle; calls that would have poisoned it since. */
typedef uint32_t fake_cuda_capture_t(uint64_t handle, bool on);
/* A stream of another context. It lives until the reset. */
typedef uint64_t fake_cuda_foreign_t(void);
/* The process that used the driver is gone, and all its objects with it. Only a reset may follow.
 */
typedef void fake_cuda_abandon_t(void);

fake_cuda_reset_t fake_cuda_reset;
fake_cuda_fail_nth_t fake_cuda_fail_nth;
fake_cuda_calls_t fake_cuda_calls;
fake_cuda_live_t fake_cuda_live;
fake_cuda_races_t fake_cuda_races;
fake_cuda_touch_t fake_cuda_touch;
fake_cuda_capture_t fake_cuda_capture;
fake_cuda_foreign_t fake_cuda_foreign;
fake_cuda_abandon_t fake_cuda_abandon;

#endif
