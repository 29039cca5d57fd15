/* SPDX-License-Identifier: Apache-2.0 */
/* How tests open the fake driver: the shared object that `make check` built, by its path. */
#ifndef HC_TESTS_FAKE_CUDA_RIG_H
#define HC_TESTS_FAKE_CUDA_RIG_H

#include <dlfcn.h>

#include "device/device.h"
#include "tests/fake-cuda/fake-cuda.h"
#include "tests/hctest.h"

struct fake {
	char path[4096];
	fake_cuda_reset_t *reset;
	fake_cuda_fail_nth_t *fail_nth;
	fake_cuda_calls_t *calls;
	fake_cuda_live_t *live;
	fake_cuda_races_t *races;
	fake_cuda_touch_t *touch;
	fake_cuda_capture_t *capture;
	fake_cuda_foreign_t *foreign;
	fake_cuda_abandon_t *abandon;
};

static struct fake fake;

static inline void fake_load(void)
{
	const char *top = getenv("top_builddir");
	void *library;

	if (fake.reset)
		return;
	snprintf(fake.path, sizeof(fake.path), "%s/tests/fake-cuda/.libs/fake-cuda.so",
		 top ? top : ".");
	library = dlopen(fake.path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "the fake driver cannot be opened: %s\n", dlerror());
		abort();
	}
#define FAKE_FUNCTION(name)                                                             \
	do {                                                                            \
		fake.name = (fake_cuda_##name##_t *)dlsym(library, "fake_cuda_" #name); \
		hc_assert(fake.name);                                                   \
	} while (0)
	FAKE_FUNCTION(reset);
	FAKE_FUNCTION(fail_nth);
	FAKE_FUNCTION(calls);
	FAKE_FUNCTION(live);
	FAKE_FUNCTION(races);
	FAKE_FUNCTION(touch);
	FAKE_FUNCTION(capture);
	FAKE_FUNCTION(foreign);
	FAKE_FUNCTION(abandon);
#undef FAKE_FUNCTION
}

static inline bool fake_idle(void)
{
	static const struct fake_cuda_live nothing;
	struct fake_cuda_live live;

	fake.live(&live);
	return !memcmp(&live, &nothing, sizeof(live));
}

/* Nothing of the driver's is left, and no access was unordered. */
static inline void fake_check(void)
{
	struct fake_cuda_live live;
	const char *race;

	fake.live(&live);
	if (!fake_idle())
		print_message("# left: %u streams, %u events, %u allocations, %u pinned, %u "
			      "registered, %u contexts, %u modules, %u pushed\n",
			      live.n_streams, live.n_events, live.n_allocations,
			      live.n_host_allocations, live.n_registrations, live.n_contexts,
			      live.n_modules, live.n_pushed);
	assert_true(fake_idle());
	if (fake.races(&race))
		print_message("# unordered: %s\n", race);
	assert_int_equal(fake.races(NULL), 0);
}

static inline int fake_open(const struct fake_cuda_config *config, struct hc_device **device_p)
{
	struct hc_cuda_config cuda = {.library = fake.path};

	fake_load();
	/* A second device on the same driver shares its state. */
	if (fake_idle())
		fake.reset(config);
	return hc_cuda_open(&cuda, device_p);
}

#endif
