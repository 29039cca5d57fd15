/* SPDX-License-Identifier: Apache-2.0 */
/* See driver.h. */
#include "device/cuda/driver.h"

#include <dlfcn.h>

#include "util/log.h"

struct resolver {
	PFN_cuGetProcAddress_v11030 v11;
	PFN_cuGetProcAddress_v12000 v12;
};

static void *resolve(const struct resolver *resolver, const char *name, int version)
{
	CUdriverProcAddressQueryResult found;
	void *entry = NULL;
	CUresult result;

	if (resolver->v12)
		result = resolver->v12(name, &entry, version, 0, &found);
	else
		result = resolver->v11(name, &entry, version, 0);
	return result == CUDA_SUCCESS ? entry : NULL;
}

int hc_driver_open(const char *library, struct hc_driver *driver_p)
{
	struct hc_driver driver = {.library = dlopen(library, RTLD_NOW | RTLD_LOCAL)};
	struct resolver resolver;

	if (!driver.library) {
		hc_info("cuda", "no driver: %s", dlerror());
		return -ENODEV;
	}
	resolver.v12 = (PFN_cuGetProcAddress_v12000)dlsym(driver.library, "cuGetProcAddress_v2");
	resolver.v11 = (PFN_cuGetProcAddress_v11030)dlsym(driver.library, "cuGetProcAddress");
	if (!resolver.v12 && !resolver.v11) {
		hc_error("cuda", "the driver in %s is too old: 11.4 or later is needed", library);
		dlclose(driver.library);
		return -ENODEV;
	}
#define RESOLVE(member, name, version, type) \
	driver.member = (type)resolve(&resolver, name, version);
#define REQUIRE(member, name, version, type)                                                     \
	if (!driver.member) {                                                                    \
		hc_error("cuda", "the driver in %s has no %s of version %d: update it", library, \
			 name, version);                                                         \
		dlclose(driver.library);                                                         \
		return -ENODEV;                                                                  \
	}
	HC_DRIVER_REQUIRED(RESOLVE)
	HC_DRIVER_OPTIONAL(RESOLVE)
	HC_DRIVER_REQUIRED(REQUIRE)
#undef RESOLVE
#undef REQUIRE
	*driver_p = driver;
	return 0;
}

const char *hc_driver_error_name(const struct hc_driver *driver, CUresult result)
{
	const char *name = NULL;

	if (driver->error_name(result, &name) != CUDA_SUCCESS || !name)
		return "unknown error";
	return name;
}
