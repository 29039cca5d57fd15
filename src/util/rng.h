/* SPDX-License-Identifier: Apache-2.0 */
/* The only source of randomness. hc_rng: seeded, repeatable, one thread each (tests, replay,
 * sampling). hc_rng_system: unpredictable bytes, any thread. */
#ifndef HC_UTIL_RNG_H
#define HC_UTIL_RNG_H

#include "util/base.h"

struct hc_rng {
	uint64_t s[4];
};

void hc_rng_seed(struct hc_rng *rng, uint64_t seed);
uint64_t hc_rng_next(struct hc_rng *rng);
/* Uniform below n (n > 0). */
uint64_t hc_rng_below(struct hc_rng *rng, uint64_t n);
void hc_rng_system(void *buf, size_t size_bytes);

#endif
