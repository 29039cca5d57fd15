/* SPDX-License-Identifier: Apache-2.0 */
/* See checksum.h. */
#include "model/checksum.h"

#include <endian.h>

/* For XXH3_state_t on the stack; its size is that of the installed library's header. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

/* Leaves are folded in groups that fit the stack. */
#define HC_FOLD_GROUP 128

uint64_t hc_checksum_leaf(const void *data, size_t n_bytes)
{
	hc_assert(n_bytes <= HC_LEAF_BYTES);
	return XXH3_64bits(data, n_bytes);
}

uint64_t hc_checksum_fold(const uint64_t *leaves, uint64_t size_bytes)
{
	size_t n = hc_checksum_n_leaves(size_bytes);
	XXH3_state_t state;

	XXH3_INITSTATE(&state); /* or reset_withSeed believes what the stack holds */
	XXH3_64bits_reset_withSeed(&state, size_bytes);
	for (size_t i = 0; i < n; i++) {
		uint64_t le = htole64(leaves[i]);

		XXH3_64bits_update(&state, &le, sizeof(le));
	}
	return XXH3_64bits_digest(&state);
}

uint64_t hc_checksum(const void *data, uint64_t size_bytes)
{
	size_t n = hc_checksum_n_leaves(size_bytes);
	uint64_t group[HC_FOLD_GROUP];
	XXH3_state_t state;
	size_t fill = 0;

	hc_assert(size_bytes <= HC_PAGE_BYTES_MAX);
	XXH3_INITSTATE(&state); /* or reset_withSeed believes what the stack holds */
	XXH3_64bits_reset_withSeed(&state, size_bytes);
	for (size_t i = 0; i < n; i++) {
		uint64_t at = (uint64_t)i * HC_LEAF_BYTES;
		size_t len = (size_t)hc_min_u64(HC_LEAF_BYTES, size_bytes - at);

		group[fill++] = htole64(hc_checksum_leaf((const char *)data + at, len));
		if (fill == HC_FOLD_GROUP || i + 1 == n) {
			XXH3_64bits_update(&state, group, fill * sizeof(group[0]));
			fill = 0;
		}
	}
	return XXH3_64bits_digest(&state);
}
