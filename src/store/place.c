/* SPDX-License-Identifier: Apache-2.0 */
/* See place.h. */
#include "store/place.h"

#include <math.h>
#include <xxhash.h>

uint16_t hc_disk_pick(const uint64_t *weights, uint16_t n, const struct hc_hash *hash)
{
	uint16_t best_i = n;
	double best = INFINITY;

	for (uint16_t i = 0; i < n; i++) {
		/* Uniform in (0, 1): -log(u) / weight is exponential, and the smallest wins in
		 * proportion to weight. */
		uint64_t h = XXH3_64bits_withSeed(hash->bytes, sizeof(hash->bytes), i);
		double u = ((double)(h >> 11) + 0.5) * 0x1p-53;
		double score = weights[i] ? -log(u) / (double)weights[i] : INFINITY;

		if (score < best) {
			best = score;
			best_i = i;
		}
	}
	return best_i;
}
