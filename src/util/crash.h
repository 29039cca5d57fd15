/* SPDX-License-Identifier: Apache-2.0 */
/* Crash points for tests: HICACHE_CRASH_AT="name:n" kills the process with SIGKILL when the point
 * of that name is passed for the n-th time. Any thread. Costs one relaxed load when unset. */
#ifndef HC_UTIL_CRASH_H
#define HC_UTIL_CRASH_H

#include <stdatomic.h>

#include "util/base.h"

extern atomic_int hc_crash_armed; /* -1 not read yet, 0 off, 1 armed */

void hc_crash_pass(const char *name);

#define hc_crash_point(name)                                                                  \
	do {                                                                                  \
		if (hc_unlikely(atomic_load_explicit(&hc_crash_armed, memory_order_relaxed))) \
			hc_crash_pass(name);                                                  \
	} while (0)

#endif
