/* SPDX-License-Identifier: Apache-2.0 */
/* model/pagehash: the bytes of SGLang's page hash, its seeds and event ids. Goal: the published
 * vectors, exactly, and every way to the same hash (one shot, chain, stream in any pieces, 4- and
 * 8-byte arrays) agrees. */
#include "hctest.h"

#include "model/pagehash.h"
#include "util/rng.h"

static void assert_hash(const struct hc_hash *hash, const char *hex)
{
	char text[HC_HASH_TEXT];

	hc_hash_format(hash, text);
	assert_string_equal(text, hex);
}

static const char V1[] = "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72";
static const char V1B[] = "4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6";

/* Behaviours 1 and 5: V1, V1b, V6 with event ids of both signs. */
static void test_plain(void **state)
{
	static const uint32_t first[] = {1, 2, 3, 4}, second[] = {5, 6, 7, 8}, part[] = {9};
	struct hc_hash a, b, c;

	assert_int_equal(hc_pagehash_page(hc_tokens_u32(first, 4), false, NULL, &a), 0);
	assert_hash(&a, V1);
	assert_true(hc_pagehash_event_id(&a) == -3488128144981237669);
	assert_int_equal(hc_pagehash_page(hc_tokens_u32(second, 4), false, &a, &b), 0);
	assert_hash(&b, V1B);
	assert_true(hc_pagehash_event_id(&b) == 5674439469042975057);
	assert_int_equal(hc_pagehash_page(hc_tokens_u32(part, 1), false, &b, &c), 0);
	assert_hash(&c, "0c433401cc95cf18e69ec4db4120530f5a2a260978ba6931bf6eec904adf8a1d");
}

/* V2, V2b. */
static void test_chain_64(void **state)
{
	struct hc_hash hashes[2];
	uint32_t tokens[128];
	size_t n = 0;

	for (uint32_t i = 0; i < 128; i++)
		tokens[i] = i;
	assert_int_equal(hc_pagehash_chain(hc_tokens_u32(tokens, 128), 64, false, NULL, hashes, &n),
			 0);
	assert_int_equal(n, 2);
	assert_hash(&hashes[0], "fea7b32778ecbdd7adee1941e98c89cf96bbc762f5f1beb0be24e36a456fbbc5");
	assert_hash(&hashes[1], "1617a7384eff5e9135098c24794739af884859cdb17c1a61a834e8d6ac997351");
	assert_true(hc_pagehash_event_id(&hashes[0]) == -96911884851298857);
	assert_true(hc_pagehash_event_id(&hashes[1]) == 1591924853584125585);
}

/* Behaviour 3: V4; N tokens give N - 1 units; fewer than 2 make no page. */
static void test_bigram(void **state)
{
	static const uint32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
	struct hc_hash hashes[2];
	size_t n = 0;

	assert_int_equal(hc_pagehash_chain(hc_tokens_u32(tokens, 9), 4, true, NULL, hashes, &n), 0);
	assert_int_equal(n, 2);
	assert_hash(&hashes[0], "f721fe42aac11dcbfd1a17f24cc5765a0d5b6bc264d1c0b6581d775a7344c11f");
	assert_hash(&hashes[1], "c35ad698917936a474f7e55f3a4855eaee20585cd0bf156b1ae3a62666ba7220");
	assert_true(hc_pagehash_event_id(&hashes[0]) == -638950109823820341);
	assert_true(hc_pagehash_event_id(&hashes[1]) == -4369944537645631836);

	assert_int_equal(hc_pagehash_n_pages(9, 4, true), 2);
	assert_int_equal(hc_pagehash_n_pages(8, 4, true), 1);
	assert_int_equal(hc_pagehash_n_pages(5, 4, true), 1);
	assert_int_equal(hc_pagehash_n_pages(1, 1, true), 0);
	assert_int_equal(hc_pagehash_n_pages(0, 1, true), 0);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(
			hc_pagehash_chain(hc_tokens_u32(tokens, i), 1, true, NULL, hashes, &n), 0);
		assert_int_equal(n, 0);
		assert_int_equal(hc_pagehash_page(hc_tokens_u32(tokens, i), true, NULL, hashes),
				 -EINVAL);
	}
}

/* V5. */
static void test_one_token_pages(void **state)
{
	static const uint32_t tokens[] = {1, 2};
	struct hc_hash hashes[2];
	size_t n = 0;

	assert_int_equal(hc_pagehash_chain(hc_tokens_u32(tokens, 2), 1, false, NULL, hashes, &n),
			 0);
	assert_int_equal(n, 2);
	assert_hash(&hashes[0], "67abdd721024f0ff4e0b3f4c2fc13bc5bad42d0b7851d456d88d203d15aaa450");
	assert_hash(&hashes[1], "e95092c4b38d42d1363b9e9b06bc5d6377af1cd06651a9fedac8b36dc9e56114");
}

/* V9, V9b, V10, V11: wide pages are told apart page by page. */
static void test_wide(void **state)
{
	static const uint64_t v9[] = {1, 2, 1ull << 32, 4, 5, 6, 7, 8};
	static const uint64_t v10[] = {1, 2, 3, 4, (1ull << 32) + 5, 6, 7, 8, 9};
	static const uint64_t v11[] = {UINT32_MAX, INT64_MAX};
	struct hc_hash hashes[2], hash;
	size_t n = 0;

	assert_int_equal(hc_pagehash_chain(hc_tokens_u64(v9, 8), 4, false, NULL, hashes, &n), 0);
	assert_hash(&hashes[0], "f811c3a3678e598519fa5dc57b063e0a7773f488af002512cf8ae26d9fb2d1e4");
	assert_true(hc_pagehash_event_id(&hashes[0]) == -571460571114874491);
	assert_hash(&hashes[1], "a1042e316aae3cfa31d4979d1042046a983f8fa77978e2799f94a2dc07e2a68d");

	assert_int_equal(hc_pagehash_chain(hc_tokens_u64(v10, 9), 4, true, NULL, hashes, &n), 0);
	assert_int_equal(n, 2);
	assert_hash(&hashes[0], "d0d4edd614dd45af92188197f3e2087f370e25419671260545adb16648bb6fba");
	assert_hash(&hashes[1], "6910084cb1ac9efc635c3f1b69d8db80d8b2257121ff79a189d46283b960b87d");

	assert_int_equal(hc_pagehash_page(hc_tokens_u64(&v11[0], 1), false, NULL, &hash), 0);
	assert_hash(&hash, "ad95131bc0b799c0b1af477fb14fcf26a6a9f76079e48bf090acb7e8367bfd0e");
	assert_int_equal(hc_pagehash_page(hc_tokens_u64(&v11[1], 1), false, NULL, &hash), 0);
	assert_hash(&hash, "dabcf736814b4d5bbc4d2ad596423df000c507308a6c57ce351f33e8d7ecf23a");
}

/* A negative token seen as unsigned, an empty page, bad arguments: refused, outputs untouched. */
static void test_bad_input(void **state)
{
	uint64_t tokens[] = {1, 1ull << 63, 3};
	struct hc_hash hash = {{7}}, hashes[4];
	struct hc_pagehash *hasher = NULL;
	size_t n = 99;

	assert_int_equal(hc_pagehash_page(hc_tokens_u64(tokens, 3), false, NULL, &hash), -ERANGE);
	assert_int_equal(hc_pagehash_page(hc_tokens_u64(tokens, 3), true, NULL, &hash), -ERANGE);
	assert_int_equal(hc_pagehash_page(hc_tokens_u64(tokens, 0), false, NULL, &hash), -EINVAL);
	assert_int_equal(hc_pagehash_page((struct hc_tokens){tokens, 3, 2}, false, NULL, &hash),
			 -EINVAL);
	assert_int_equal(hash.bytes[0], 7);
	assert_int_equal(hc_pagehash_chain(hc_tokens_u64(tokens, 3), 1, false, NULL, hashes, &n),
			 -ERANGE);
	assert_int_equal(hc_pagehash_chain(hc_tokens_u64(tokens, 3), 0, false, NULL, hashes, &n),
			 -EINVAL);
	assert_int_equal(n, 99);
	assert_int_equal(hc_pagehash_create(0, false, NULL, &hasher), -EINVAL);
	assert_int_equal(hc_pagehash_create(HC_PAGE_TOKENS_MAX + 1, false, NULL, &hasher), -EINVAL);
	assert_null(hasher);

	/* A stream that refuses a piece goes on as if it had not been offered. */
	assert_int_equal(hc_pagehash_create(2, false, NULL, &hasher), 0);
	assert_int_equal(hc_pagehash_feed(hasher, hc_tokens_u64(tokens, 2), hashes, &n), -ERANGE);
	assert_int_equal(n, 99);
	tokens[1] = 2;
	assert_int_equal(hc_pagehash_feed(hasher, hc_tokens_u64(tokens, 2), hashes, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(hc_pagehash_page(hc_tokens_u64(tokens, 2), false, NULL, &hash), 0);
	assert_true(hc_hash_equal(&hash, &hashes[0]));
	hc_pagehash_destroy(hasher);
	hc_pagehash_destroy(NULL);
}

/* Behaviour 2. */
static void test_prior(void **state)
{
	static const uint32_t tokens[] = {5, 6, 7, 8};
	static const char *const bad[] = {
		"00",
		"cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b7",
		"cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b722",
		"gf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72",
		" f97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72",
	};
	struct hc_hash prior, hash;
	bool present = true;

	assert_int_equal(hc_pagehash_prior_parse("", &prior, &present), 0);
	assert_false(present);
	present = true;
	assert_int_equal(hc_pagehash_prior_parse(NULL, &prior, &present), 0);
	assert_false(present);
	for (size_t i = 0; i < HC_ARRAY_SIZE(bad); i++)
		assert_int_equal(hc_pagehash_prior_parse(bad[i], &prior, &present), -EINVAL);
	assert_false(present);
	assert_int_equal(hc_pagehash_prior_parse(V1, &prior, &present), 0);
	assert_true(present);
	assert_int_equal(hc_pagehash_page(hc_tokens_u32(tokens, 4), false, &prior, &hash), 0);
	assert_hash(&hash, V1B);
}

/* Behaviours 4 and 5: V7, V8, V12. */
static void test_namespace(void **state)
{
	static const uint32_t tokens[] = {1, 2, 3, 4};
	const struct hc_namespace lora = {.extra_key = "lora-a", .extra_key_bytes = 6};
	const struct hc_namespace tenant = {.salt = "tenant-a", .salt_bytes = 8};
	const struct hc_namespace empty = {.salt = "", .salt_bytes = 0};
	const struct hc_namespace empty_key = {.extra_key = "", .extra_key_bytes = 0};
	const struct hc_namespace none = {NULL, 0, NULL, 0};
	const struct hc_hash *root;
	struct hc_hash room, other, page;

	root = hc_pagehash_root(NULL, &lora, &room);
	assert_ptr_equal(root, &room);
	assert_hash(root, "407c773a7c02b33bd4a62af6bf5fc77997c2c8067811ecf2b39e3839c3f4284b");
	assert_int_equal(hc_pagehash_page(hc_tokens_u32(tokens, 4), false, root, &page), 0);
	assert_hash(&page, "e4f68dc4af99b6de199d5a048add282da40aa4ef97942ce9eca321bccada9376");

	root = hc_pagehash_root(NULL, &tenant, &room);
	assert_hash(root, "9d303df3761a7561353e2ae7459eb4ab12a08abb37951b696aa4f0c059c7caaa");
	assert_int_equal(hc_pagehash_page(hc_tokens_u32(tokens, 4), false, root, &page), 0);
	assert_hash(&page, "2fd053693d7ef6aeb2f9315a5ca100dfe4b99434c563241ee3243a9163846222");

	assert_null(hc_pagehash_root(NULL, NULL, &room));
	assert_null(hc_pagehash_root(NULL, &none, &room));
	assert_non_null(hc_pagehash_root(NULL, &empty, &room));
	assert_non_null(hc_pagehash_root(NULL, &empty_key, &other));
	assert_false(hc_hash_equal(&room, &other));
	/* A prior has its namespace in it already. */
	assert_ptr_equal(hc_pagehash_root(&page, &lora, &room), &page);

	assert_int_equal(hc_pagehash_page(hc_tokens_u32(tokens, 4), false, NULL, &page), 0);
	assert_true(hc_pagehash_event_id_namespaced(&page, &lora) == 1295546075628349527);
	assert_true(hc_pagehash_event_id_namespaced(&page, NULL) == -3488128144981237669);
	assert_true(hc_pagehash_event_id_namespaced(&page, &none) == -3488128144981237669);
}

/* Feeds in random pieces of random width; returns how many hashes came. */
static size_t stream_all(struct hc_rng *rng, const uint64_t *wide, size_t n_tokens,
			 struct hc_pagehash *hasher, struct hc_hash *hashes)
{
	size_t total = 0;

	for (size_t i = 0; i < n_tokens;) {
		size_t n = hc_min_u64(hc_rng_below(rng, 40), n_tokens - i), got = 0;
		size_t promised = hc_pagehash_feed_n_pages(hasher, n);
		bool narrow = hc_rng_below(rng, 2);
		uint32_t copy[40];

		for (size_t k = 0; k < n; k++) {
			copy[k] = (uint32_t)wide[i + k];
			narrow = narrow && wide[i + k] <= UINT32_MAX;
		}
		assert_int_equal(hc_pagehash_feed(hasher,
						  narrow ? hc_tokens_u32(copy, n)
							 : hc_tokens_u64(&wide[i], n),
						  &hashes[total], &got),
				 0);
		assert_int_equal(got, promised);
		total += got;
		i += n;
	}
	return total;
}

/* Behaviours 1 and 6: stream, chain and page by page are the same, whatever the pieces; the tail
 * makes no hash. */
static void test_streaming(void **state)
{
	struct hc_rng rng;

	hc_rng_seed(&rng, 20);
	for (int round = 0; round < 400; round++) {
		uint32_t page_tokens = (uint32_t)hc_rng_below(&rng, 70) + 1;
		size_t n_tokens = hc_rng_below(&rng, 500), n = 0, n_pages;
		bool bigram = hc_rng_below(&rng, 2), has_prior = hc_rng_below(&rng, 2);
		struct hc_hash chained[500], streamed[501], prior = {{(uint8_t)round}};
		struct hc_pagehash *hasher;
		uint64_t tokens[500];

		for (size_t i = 0; i < n_tokens; i++)
			tokens[i] = hc_rng_next(&rng) >> (hc_rng_below(&rng, 60) ? 33 : 1);
		n_pages = hc_pagehash_n_pages(n_tokens, page_tokens, bigram);
		assert_int_equal(hc_pagehash_chain(hc_tokens_u64(tokens, n_tokens), page_tokens,
						   bigram, has_prior ? &prior : NULL, chained, &n),
				 0);
		assert_int_equal(n, n_pages);
		assert_int_equal(
			hc_pagehash_create(page_tokens, bigram, has_prior ? &prior : NULL, &hasher),
			0);
		assert_int_equal(stream_all(&rng, tokens, n_tokens, hasher, streamed), n_pages);
		assert_int_equal(hc_pagehash_tail(hasher), n_tokens - n_pages * page_tokens);
		hc_pagehash_destroy(hasher);
		for (size_t i = 0; i < n_pages; i++) {
			const struct hc_hash *before = i           ? &chained[i - 1]
						       : has_prior ? &prior
								   : NULL;
			struct hc_hash one;

			assert_true(hc_hash_equal(&chained[i], &streamed[i]));
			assert_int_equal(
				hc_pagehash_page(hc_tokens_u64(&tokens[i * page_tokens],
							       (size_t)page_tokens + bigram),
						 bigram, before, &one),
				0);
			assert_true(hc_hash_equal(&chained[i], &one));
		}
	}
}

/* The definition again, byte by byte, against pages longer than the conversion chunks; ids at odd
 * addresses. */
static void test_against_definition(void **state)
{
	struct hc_rng rng;

	hc_rng_seed(&rng, 21);
	for (int round = 0; round < 200; round++) {
		size_t n = hc_rng_below(&rng, 600) + 2, used = 0;
		bool bigram = round & 1, wide = round & 2;
		uint64_t tokens[602];
		uint8_t *bytes = malloc(1 + 16 * n), *odd = malloc(8 * n + 1);
		struct hc_hash expected, got;

		for (size_t i = 0; i < n; i++)
			tokens[i] = hc_rng_next(&rng) >> 32;
		if (wide)
			tokens[hc_rng_below(&rng, n)] |= 1ull << (32 + hc_rng_below(&rng, 31));
		if (wide)
			bytes[used++] = 0xff;
		for (size_t i = 0; i + bigram < n; i++) {
			for (size_t e = 0; e <= bigram; e++) {
				for (unsigned int b = 0; b < (wide ? 8 : 4); b++)
					bytes[used++] = (uint8_t)(tokens[i + e] >> 8 * b);
			}
		}
		hc_sha256(bytes, used, &expected);
		memcpy(odd + 1, tokens, 8 * n);
		assert_int_equal(
			hc_pagehash_page((struct hc_tokens){odd + 1, n, 8}, bigram, NULL, &got), 0);
		assert_true(hc_hash_equal(&expected, &got));
		free(bytes);
		free(odd);
	}
}

static void test_hash_text(void **state)
{
	struct hc_hash hash, zero = {{0}};
	char text[HC_HASH_TEXT];

	assert_true(hc_hash_is_zero(&zero));
	assert_int_equal(hc_hash_parse(V1, &hash), 0);
	assert_false(hc_hash_is_zero(&hash));
	hc_hash_format(&hash, text);
	assert_string_equal(text, V1);
	assert_true(hc_hash_compare(&zero, &hash) < 0);
	text[63] = 'A';
	assert_int_equal(hc_hash_parse(text, &hash), -EINVAL);
	assert_int_equal(hc_hash_parse("", &hash), -EINVAL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_plain),     cmocka_unit_test(test_chain_64),
	cmocka_unit_test(test_bigram),    cmocka_unit_test(test_one_token_pages),
	cmocka_unit_test(test_wide),      cmocka_unit_test(test_bad_input),
	cmocka_unit_test(test_prior),     cmocka_unit_test(test_namespace),
	cmocka_unit_test(test_streaming), cmocka_unit_test(test_against_definition),
	cmocka_unit_test(test_hash_text),
};

HC_TEST_MAIN(tests)
