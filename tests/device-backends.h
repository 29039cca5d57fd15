/* SPDX-License-Identifier: Apache-2.0 */
/* The devices that whole tests run on: the reference, the device cuda over its fake driver, and,
 * named on the command line ("gpu"), the GPU of this machine. */
#ifndef HC_TESTS_DEVICE_BACKENDS_H
#define HC_TESTS_DEVICE_BACKENDS_H

#include "tests/device-rig.h"

/* Defined where the device cuda was built. */
#ifdef HC_TEST_CUDA
#include "tests/fake-cuda/capture.h"
#include "tests/fake-cuda/rig.h"
#endif

#define NO_GPU_TEXT "no GPU can be opened here"

static inline int open_cpu_backend(struct hc_device **device_p)
{
	return hc_cpu_open(&(struct hc_cpu_config){.seed = 1}, device_p);
}

static inline int open_slow_backend(struct hc_device **device_p)
{
	return hc_cpu_open(&(struct hc_cpu_config){.seed = 2, .delay_max_ns = 20 * HC_NS_PER_US},
			   device_p);
}

#ifdef HC_TEST_CUDA
static inline int open_fake_backend(struct hc_device **device_p)
{
	return fake_open(&(struct fake_cuda_config){.seed = 3}, device_p);
}

static inline void fake_backend_capture(struct hc_device_stream *stream, bool on)
{
	capture_stream(fake.path, stream, on);
}

static inline int open_gpu_backend(struct hc_device **device_p)
{
	return hc_cuda_open(&(struct hc_cuda_config){.ordinal = 0}, device_p);
}

static inline void gpu_backend_capture(struct hc_device_stream *stream, bool on)
{
	capture_stream("libcuda.so.1", stream, on);
}
#else
#define gpu_backend_capture NULL
static inline int open_gpu_backend(struct hc_device **device_p)
{
	return -ENOTSUP;
}
#endif

static struct backend test_backends[] = {
	{"cpu", open_cpu_backend, hc_cpu_capture},
#ifdef HC_TEST_CUDA
	{"cuda", open_fake_backend, fake_backend_capture},
#endif
	{"cpu with delays", open_slow_backend, hc_cpu_capture},
};

static struct backend gpu_backend = {"a GPU", open_gpu_backend, gpu_backend_capture};

static inline bool is_gpu(const struct backend *backend)
{
	return backend == &gpu_backend;
}

static inline int check_backend(void **state)
{
#ifdef HC_TEST_CUDA
	const struct backend *backend = *state;

	if (backend && backend->open == open_fake_backend)
		fake_check();
#endif
	return 0;
}

/* Runs each test on the first n_backends, or on the GPU alone. The exit status. */
static inline int run_on_backends(const char *name, const struct CMUnitTest *tests, size_t n_tests,
				  size_t n_backends, int argc, char **argv)
{
	static struct CMUnitTest all[64];
	static char names[HC_ARRAY_SIZE(all)][128];
	bool gpu = argc > 1 && !strcmp(argv[1], "gpu");
	struct hc_device *device;
	size_t n = 0;

	n_backends = gpu ? 1 : hc_min_u64(n_backends, HC_ARRAY_SIZE(test_backends));
	cmocka_set_message_output(CM_OUTPUT_TAP);
	if (gpu && open_gpu_backend(&device)) {
		print_message("1..0 # SKIP " NO_GPU_TEXT "\n");
		return 77;
	}
	if (gpu)
		hc_device_close(device);
#ifdef HC_TEST_CUDA
	if (!gpu)
		fake_load();
#endif
	for (size_t i = 0; i < n_backends * n_tests; i++) {
		struct backend *backend = gpu ? &gpu_backend : &test_backends[i / n_tests];

		hc_assert(n < HC_ARRAY_SIZE(all));
		all[n] = tests[i % n_tests];
		snprintf(names[n], sizeof(names[n]), "%s on %s", all[n].name, backend->name);
		all[n].name = names[n];
		all[n].teardown_func = check_backend;
		all[n++].initial_state = backend;
	}
	return _cmocka_run_group_tests(name, all, n, NULL, NULL);
}

#endif
