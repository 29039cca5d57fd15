/* SPDX-License-Identifier: Apache-2.0 */
/* Content checksum of a page: XXH3-64 (seed = page length) over the little-endian XXH3-64 of each
 * 64 KiB leaf, so that it can be computed in parts, in parallel, and while bytes arrive. It detects
 * damage; it never names a page. Pure functions. */
#ifndef HC_MODEL_CHECKSUM_H
#define HC_MODEL_CHECKSUM_H

#include "util/base.h"

#define HC_LEAF_BYTES ((size_t)65536)
/* Longest page that can be summed: bounds the leaf array. */
#define HC_PAGE_BYTES_MAX ((uint64_t)1 << 30)

static inline size_t hc_checksum_n_leaves(uint64_t size_bytes)
{
	return (size_t)((size_bytes + HC_LEAF_BYTES - 1) / HC_LEAF_BYTES);
}

/* n_bytes <= HC_LEAF_BYTES; only the last leaf of a page may be shorter. */
uint64_t hc_checksum_leaf(const void *data, size_t n_bytes);
/* leaves: n_leaves(size_bytes) values in host order. */
uint64_t hc_checksum_fold(const uint64_t *leaves, uint64_t size_bytes);
/* The whole page at once. size_bytes <= HC_PAGE_BYTES_MAX. */
uint64_t hc_checksum(const void *data, uint64_t size_bytes);

#endif
