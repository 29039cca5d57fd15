/* SPDX-License-Identifier: Apache-2.0 */
/* A histogram of durations: fixed bounds from 5 us to 10 s, relaxed atomics. To add one is two
 * additions; a reader may see one that is half added. Any thread. */
#ifndef HC_UTIL_TIMING_H
#define HC_UTIL_TIMING_H

#include <stdatomic.h>

#include "util/base.h"

#define HC_TIMING_BOUNDS 20u

/* Upper bounds in nanoseconds; what is longer is in the last bucket. */
static const uint64_t hc_timing_bounds_ns[HC_TIMING_BOUNDS] = {
	5000,      10000,     25000,      50000,      100000,     250000,      500000,
	1000000,   2500000,   5000000,    10000000,   25000000,   50000000,    100000000,
	250000000, 500000000, 1000000000, 2500000000, 5000000000, 10000000000,
};

struct hc_timing {
	_Atomic uint64_t buckets[HC_TIMING_BOUNDS + 1];
	_Atomic uint64_t sum_ns;
};

static inline void hc_timing_add(struct hc_timing *timing, uint64_t ns)
{
	unsigned low = 0, high = HC_TIMING_BOUNDS;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (ns <= hc_timing_bounds_ns[middle])
			high = middle;
		else
			low = middle + 1;
	}
	atomic_fetch_add_explicit(&timing->buckets[low], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&timing->sum_ns, ns, memory_order_relaxed);
}

#endif
