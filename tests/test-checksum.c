/* SPDX-License-Identifier: Apache-2.0 */
/* Page checksums: the definition, parts against the whole, and that a sum depends on nothing but
 * the bytes. */
#include "hctest.h"

#include <endian.h>
#include <xxhash.h>

#include "model/checksum.h"

#define BYTES_MAX ((size_t)9 << 20)

static uint8_t *bytes_make(size_t n)
{
	uint8_t *bytes = malloc(n);
	uint64_t x = 1;

	assert_non_null(bytes);
	for (size_t i = 0; i < n; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		bytes[i] = (uint8_t)(x >> 56);
	}
	return bytes;
}

/* XXH3-64, seed = length, over the little-endian XXH3-64 of each leaf: in one go. */
static uint64_t plain(const uint8_t *bytes, size_t n)
{
	size_t n_leaves = hc_checksum_n_leaves(n);
	uint64_t *leaves = malloc((n_leaves + 1) * sizeof(*leaves)), sum;

	assert_non_null(leaves);
	for (size_t i = 0; i < n_leaves; i++) {
		size_t at = i * HC_LEAF_BYTES;

		leaves[i] = htole64(XXH3_64bits(bytes + at, hc_min_u64(HC_LEAF_BYTES, n - at)));
	}
	sum = XXH3_64bits_withSeed(leaves, n_leaves * sizeof(*leaves), n);
	free(leaves);
	return sum;
}

static void test_definition(void **state)
{
	static const size_t sizes[] = {0,     1,       4096,    65535,         65536,
				       65537, 1 << 20, 8 << 20, (8 << 20) + 1, BYTES_MAX};
	uint8_t *bytes = bytes_make(BYTES_MAX);

	(void)state;
	for (size_t s = 0; s < HC_ARRAY_SIZE(sizes); s++) {
		size_t n = sizes[s], n_leaves = hc_checksum_n_leaves(n);
		uint64_t *leaves = calloc(n_leaves + 1, sizeof(*leaves));

		assert_non_null(leaves);
		for (size_t i = 0; i < n_leaves; i++)
			leaves[i] =
				hc_checksum_leaf(bytes + i * HC_LEAF_BYTES,
						 hc_min_u64(HC_LEAF_BYTES, n - i * HC_LEAF_BYTES));
		assert_int_equal(hc_checksum(bytes, n), plain(bytes, n));
		assert_int_equal(hc_checksum_fold(leaves, n), plain(bytes, n));
		free(leaves);
	}
	free(bytes);
}

/* Writes 64 bytes, N bytes below the caller's frame, and nothing between. */
#define DIRTY(n)                                                \
	static __attribute__((noinline)) void dirty_##n(void)   \
	{                                                       \
		char gap[n];                                    \
                                                                \
		for (int i = 0; i < 64; i++)                    \
			((volatile char *)gap)[i] = (char)0xa5; \
	}
/* clang-format off */
DIRTY(64) DIRTY(128) DIRTY(192) DIRTY(256) DIRTY(320) DIRTY(384) DIRTY(448) DIRTY(512)
DIRTY(576) DIRTY(640) DIRTY(704) DIRTY(768) DIRTY(832) DIRTY(896) DIRTY(960) DIRTY(1024)
DIRTY(1088) DIRTY(1152) DIRTY(1216) DIRTY(1280) DIRTY(1344) DIRTY(1408) DIRTY(1472) DIRTY(1536)
DIRTY(1600) DIRTY(1664) DIRTY(1728) DIRTY(1792) DIRTY(1856) DIRTY(1920) DIRTY(1984) DIRTY(2048)

static void (*const dirty[])(void) = {
	dirty_64, dirty_128, dirty_192, dirty_256, dirty_320, dirty_384, dirty_448, dirty_512,
	dirty_576, dirty_640, dirty_704, dirty_768, dirty_832, dirty_896, dirty_960, dirty_1024,
	dirty_1088, dirty_1152, dirty_1216, dirty_1280, dirty_1344, dirty_1408, dirty_1472, dirty_1536,
	dirty_1600, dirty_1664, dirty_1728, dirty_1792, dirty_1856, dirty_1920, dirty_1984, dirty_2048,
};
/* clang-format on */

/* XXH3's state keeps a secret made from the seed: what an earlier call left of it on the stack, and
 * others have written over, must not be believed. */
static void test_dirty_stack(void **state)
{
	const size_t n = 8 << 20;
	uint8_t *bytes = bytes_make(n);
	size_t n_leaves = hc_checksum_n_leaves(n);
	uint64_t *leaves = calloc(n_leaves, sizeof(*leaves)), want = plain(bytes, n);

	(void)state;
	assert_non_null(leaves);
	for (size_t i = 0; i < n_leaves; i++)
		leaves[i] = hc_checksum_leaf(bytes + i * HC_LEAF_BYTES, HC_LEAF_BYTES);
	for (size_t i = 0; i < HC_ARRAY_SIZE(dirty); i++) {
		uint64_t sum = hc_checksum(bytes, n), folded;

		dirty[i]();
		assert_int_equal(hc_checksum(bytes, n), sum);
		assert_int_equal(sum, want);
		folded = hc_checksum_fold(leaves, n);
		dirty[i]();
		assert_int_equal(hc_checksum_fold(leaves, n), folded);
		assert_int_equal(folded, want);
	}
	free(leaves);
	free(bytes);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_definition),
	cmocka_unit_test(test_dirty_stack),
};

HC_TEST_MAIN(tests)
