/* SPDX-License-Identifier: Apache-2.0 */
/* model/layout: where the bytes of a page lie. Goal: every offset against an index walk over
 * SGLang's dims; conversion between any two orders moves each vector to its place and back. */
#include "hctest.h"

#include "model/layout.h"
#include "util/rng.h"

/* An independent description of a layout: its axes, outermost first, as SGLang writes the dims. */
enum axis { KV, PAGE, LAYER, GROUP, HEAD, TOKEN, END };

struct walk {
	enum axis axes[7];
};

static const struct walk pool_walks[] = {
	/* (2, L, S, H, D) with S = pages x tokens */
	[HC_POOL_LAYER_FIRST] = {{KV, LAYER, PAGE, TOKEN, HEAD, END}},
	/* (2, S, L, H, D) */
	[HC_POOL_PAGE_FIRST] = {{KV, PAGE, TOKEN, LAYER, HEAD, END}},
	/* (2, N, L, P, H, D) */
	[HC_POOL_PAGE_FIRST_DIRECT] = {{KV, PAGE, LAYER, TOKEN, HEAD, END}},
	/* (2, N, H, P, L, D) */
	[HC_POOL_PAGE_HEAD] = {{KV, PAGE, HEAD, TOKEN, LAYER, END}},
	/* (N, G, L, 2, P, Hg, D) */
	[HC_POOL_PAGE_UNIFIED] = {{PAGE, GROUP, LAYER, KV, TOKEN, HEAD, END}},
};

/* The flat page: the same without the page axis. */
static const struct walk page_walks[] = {
	[HC_LAYOUT_LAYER_FIRST] = {{KV, LAYER, TOKEN, HEAD, END}},
	[HC_LAYOUT_PAGE_FIRST] = {{KV, TOKEN, LAYER, HEAD, END}},
	[HC_LAYOUT_PAGE_HEAD] = {{KV, HEAD, TOKEN, LAYER, END}},
	[HC_LAYOUT_PAGE_UNIFIED] = {{GROUP, LAYER, KV, TOKEN, HEAD, END}},
};

static const uint32_t page_sizes[] = {1, 16, 64};

static struct hc_geometry mha(uint32_t n_tokens, uint32_t n_groups)
{
	return (struct hc_geometry){.n_kv = 2,
				    .n_layers = 3,
				    .n_heads = 6,
				    .n_tokens = n_tokens,
				    .head_dim = 4,
				    .element_bytes = 2,
				    .n_groups = n_groups};
}

static struct hc_geometry mla(uint32_t n_tokens)
{
	return (struct hc_geometry){.n_kv = 1,
				    .n_layers = 5,
				    .n_heads = 1,
				    .n_tokens = n_tokens,
				    .head_dim = 9,
				    .element_bytes = 2,
				    .n_groups = 1,
				    .mla = true};
}

/* Walks all indices in memory order and compares each vector's place with the strides. */
static void assert_walk(const struct walk *walk, const struct hc_geometry *g, uint32_t n_pages,
			const struct hc_strides *s)
{
	bool grouped = walk->axes[0] == GROUP || walk->axes[1] == GROUP;
	uint32_t per_group = g->n_heads / g->n_groups;
	uint32_t count[] = {[KV] = g->n_kv,        [PAGE] = n_pages,   [LAYER] = g->n_layers,
			    [GROUP] = g->n_groups, [HEAD] = per_group, [TOKEN] = g->n_tokens};
	uint32_t at[END] = {0};
	uint64_t offset = 0;
	int n_axes = 0, d;

	if (!grouped)
		count[HEAD] = g->n_heads;
	while (walk->axes[n_axes] != END)
		n_axes++;
	do {
		uint32_t head = at[GROUP] * per_group + at[HEAD];

		assert_int_equal(hc_strides_offset(s, at[PAGE], at[KV], at[LAYER], head, at[TOKEN]),
				 offset);
		offset += (uint64_t)g->head_dim * g->element_bytes;
		for (d = n_axes - 1; d >= 0 && ++at[walk->axes[d]] == count[walk->axes[d]]; d--)
			at[walk->axes[d]] = 0;
	} while (d >= 0);
	assert_int_equal(offset, hc_geometry_page_bytes(g) * n_pages);
}

/* Behaviour 12, whole pools. */
static void test_pool_offsets(void **state)
{
	struct hc_strides s;

	for (size_t p = 0; p < HC_ARRAY_SIZE(page_sizes); p++) {
		for (int layout = HC_POOL_LAYER_FIRST; layout <= HC_POOL_PAGE_UNIFIED; layout++) {
			struct hc_geometry g = mla(page_sizes[p]);

			for (uint32_t n_groups = 1; n_groups <= 6; n_groups++) {
				struct hc_geometry h = mha(page_sizes[p], n_groups);

				if (h.n_heads % n_groups)
					continue;
				assert_int_equal(hc_layout_pool_strides(layout, &h, 7, &s), 0);
				assert_walk(&pool_walks[layout], &h, 7, &s);
			}
			if (layout == HC_POOL_PAGE_HEAD)
				continue;
			assert_int_equal(hc_layout_pool_strides(layout, &g, 7, &s), 0);
			assert_walk(&pool_walks[layout], &g, 7, &s);
		}
	}
}

/* Behaviour 12, one page in its slot (the flat page of 3.3). */
static void test_page_offsets(void **state)
{
	struct hc_strides s;

	for (size_t p = 0; p < HC_ARRAY_SIZE(page_sizes); p++) {
		for (int layout = HC_LAYOUT_LAYER_FIRST; layout <= HC_LAYOUT_PAGE_UNIFIED;
		     layout++) {
			struct hc_geometry g = mla(page_sizes[p]), h = mha(page_sizes[p], 1),
					   grouped = mha(page_sizes[p], 3);

			assert_int_equal(hc_layout_strides(layout, &h, &s), 0);
			assert_walk(&page_walks[layout], &h, 1, &s);
			assert_int_equal(s.page, hc_geometry_page_bytes(&h));
			assert_int_equal(hc_layout_strides(layout, &grouped, &s), 0);
			assert_walk(&page_walks[layout], &grouped, 1, &s);
			if (layout == HC_LAYOUT_PAGE_HEAD)
				continue;
			assert_int_equal(hc_layout_strides(layout, &g, &s), 0);
			assert_walk(&page_walks[layout], &g, 1, &s);
		}
	}
}

/* The formulas of SGLang's dims written out, at one point each with realistic numbers: L 32, H 8, D
 * 128, fp16, P 64. */
static void test_formulas(void **state)
{
	struct hc_geometry g = {.n_kv = 2,
				.n_layers = 32,
				.n_heads = 8,
				.n_tokens = 64,
				.head_dim = 128,
				.element_bytes = 2,
				.n_groups = 4};
	const uint64_t e = 2, D = 128, H = 8, L = 32, P = 64, N = 10, S = N * P, E = H * D * e,
		       G = 4, Hg = H / G;
	const uint64_t p = 6, o = 17, t = p * P + o, l = 21, h = 5;
	struct hc_strides s;

	assert_int_equal(hc_geometry_page_bytes(&g), 8388608);
	assert_int_equal(hc_layout_pool_strides(HC_POOL_LAYER_FIRST, &g, N, &s), 0);
	assert_int_equal(hc_strides_offset(&s, p, 1, l, h, o),
			 l * S * E + t * E + h * D * e + L * S * E);
	assert_int_equal(hc_layout_pool_strides(HC_POOL_PAGE_FIRST, &g, N, &s), 0);
	assert_int_equal(hc_strides_offset(&s, p, 1, l, h, o),
			 t * L * E + l * E + h * D * e + L * S * E);
	assert_int_equal(hc_layout_pool_strides(HC_POOL_PAGE_FIRST_DIRECT, &g, N, &s), 0);
	assert_int_equal(hc_strides_offset(&s, p, 1, l, h, o),
			 p * L * P * E + l * P * E + o * E + h * D * e + L * S * E);
	assert_int_equal(hc_layout_pool_strides(HC_POOL_PAGE_HEAD, &g, N, &s), 0);
	assert_int_equal(hc_strides_offset(&s, p, 1, l, h, o),
			 p * H * P * L * D * e + h * P * L * D * e + o * L * D * e + l * D * e +
				 L * S * E);
	assert_int_equal(hc_layout_pool_strides(HC_POOL_PAGE_UNIFIED, &g, N, &s), 0);
	assert_int_equal(hc_strides_offset(&s, p, 1, l, h, o),
			 p * 2 * L * P * E + h / Hg * (2 * L * P * Hg * D * e) +
				 l * (2 * P * Hg * D * e) + o * Hg * D * e + h % Hg * D * e +
				 P * Hg * D * e);
}

static void fill(uint8_t *page, size_t size_bytes, uint64_t seed)
{
	struct hc_rng rng;

	hc_rng_seed(&rng, seed);
	for (size_t i = 0; i < size_bytes; i++)
		page[i] = (uint8_t)hc_rng_next(&rng);
}

static void assert_same_vectors(const struct hc_geometry *g, const struct hc_strides *a,
				const uint8_t *a_page, const struct hc_strides *b,
				const uint8_t *b_page)
{
	for (uint32_t kv = 0; kv < g->n_kv; kv++)
		for (uint32_t layer = 0; layer < g->n_layers; layer++)
			for (uint32_t head = 0; head < g->n_heads; head++)
				for (uint32_t token = 0; token < g->n_tokens; token++)
					assert_memory_equal(
						a_page + hc_strides_offset(a, 0, kv, layer, head,
									   token),
						b_page + hc_strides_offset(b, 0, kv, layer, head,
									   token),
						hc_geometry_vector_bytes(g));
}

static void assert_conversion(const struct hc_geometry *g, enum hc_layout from, enum hc_layout to)
{
	size_t size_bytes = hc_geometry_page_bytes(g);
	/* Of exact size, so that the sanitizer sees a byte too far. */
	uint8_t *a = malloc(size_bytes), *b = malloc(size_bytes), *back = malloc(size_bytes);
	struct hc_strides a_strides, b_strides;

	fill(a, size_bytes, from * 10 + to);
	memset(b, 0, size_bytes);
	assert_int_equal(hc_layout_convert(g, from, a, to, b), 0);
	assert_int_equal(hc_layout_strides(from, g, &a_strides), 0);
	assert_int_equal(hc_layout_strides(to, g, &b_strides), 0);
	assert_same_vectors(g, &a_strides, a, &b_strides, b);
	assert_int_equal(hc_layout_convert(g, to, b, from, back), 0);
	assert_memory_equal(a, back, size_bytes);
	free(a);
	free(b);
	free(back);
}

/* Behaviour 13. */
static void test_conversions(void **state)
{
	for (size_t p = 0; p < HC_ARRAY_SIZE(page_sizes); p++) {
		for (int from = HC_LAYOUT_LAYER_FIRST; from <= HC_LAYOUT_PAGE_UNIFIED; from++) {
			for (int to = HC_LAYOUT_LAYER_FIRST; to <= HC_LAYOUT_PAGE_UNIFIED; to++) {
				struct hc_geometry one = mha(page_sizes[p], 1),
						   three = mha(page_sizes[p], 3);
				struct hc_geometry latent = mla(page_sizes[p]),
						   half = mha(page_sizes[p], 2);

				half.n_kv = 1;
				assert_conversion(&one, from, to);
				assert_conversion(&three, from, to);
				assert_conversion(&half, from, to);
				if (from != HC_LAYOUT_PAGE_HEAD && to != HC_LAYOUT_PAGE_HEAD)
					assert_conversion(&latent, from, to);
			}
		}
	}
}

/* Behaviour 13: layer_first and page_first_direct are one order per page; with one token
 * layer_first and page_first coincide; MLA's page_unified is layer_first. */
static void test_equal_orders(void **state)
{
	struct hc_geometry g = mha(16, 1), single = mha(1, 1), latent = mla(16);
	size_t size_bytes = hc_geometry_page_bytes(&g);
	uint8_t *a = malloc(size_bytes), *b = malloc(size_bytes);
	enum hc_layout layout;

	assert_int_equal(hc_layout_parse("page_first_direct", &layout), 0);
	assert_int_equal(layout, HC_LAYOUT_LAYER_FIRST);
	fill(a, size_bytes, 1);
	assert_int_equal(hc_layout_convert(&g, HC_LAYOUT_LAYER_FIRST, a, HC_LAYOUT_PAGE_FIRST, b),
			 0);
	assert_memory_not_equal(a, b, size_bytes);
	size_bytes = hc_geometry_page_bytes(&single);
	assert_int_equal(
		hc_layout_convert(&single, HC_LAYOUT_LAYER_FIRST, a, HC_LAYOUT_PAGE_FIRST, b), 0);
	assert_memory_equal(a, b, size_bytes);
	size_bytes = hc_geometry_page_bytes(&latent);
	assert_int_equal(
		hc_layout_convert(&latent, HC_LAYOUT_LAYER_FIRST, a, HC_LAYOUT_PAGE_UNIFIED, b), 0);
	assert_memory_equal(a, b, size_bytes);
	free(a);
	free(b);
}

/* One page out of an imported pool into a slot of the house's order, and back into another page of
 * it. */
static void test_pool_to_slot(void **state)
{
	const uint32_t n_pages = 4;

	for (int layout = HC_POOL_LAYER_FIRST; layout <= HC_POOL_PAGE_UNIFIED; layout++) {
		struct hc_geometry g = mha(16, 2);
		size_t page_bytes = hc_geometry_page_bytes(&g);
		uint8_t *pool = malloc(page_bytes * n_pages), *slot = malloc(page_bytes),
			*copy = malloc(page_bytes);
		struct hc_strides outer, inner;
		struct hc_copy_plan in, out;

		fill(pool, page_bytes * n_pages, layout);
		assert_int_equal(hc_layout_pool_strides(layout, &g, n_pages, &outer), 0);
		assert_int_equal(hc_layout_strides(HC_LAYOUT_PAGE_UNIFIED, &g, &inner), 0);
		assert_int_equal(hc_copy_plan_make(&g, &outer, &inner, &in), 0);
		assert_int_equal(hc_copy_plan_make(&g, &inner, &outer, &out), 0);
		hc_copy_plan_run(&in, pool + 2 * outer.page, slot);
		assert_same_vectors(&g, &outer, pool + 2 * outer.page, &inner, slot);
		hc_copy_plan_run(&out, slot, pool + 3 * outer.page);
		hc_copy_plan_run(&in, pool + 3 * outer.page, copy);
		assert_memory_equal(slot, copy, page_bytes);
		free(pool);
		free(slot);
		free(copy);
	}
}

/* Head groups of two sides that differ. */
static void test_regroup(void **state)
{
	static const uint32_t groups[] = {1, 2, 3, 6};

	for (size_t i = 0; i < HC_ARRAY_SIZE(groups); i++) {
		for (size_t k = 0; k < HC_ARRAY_SIZE(groups); k++) {
			struct hc_geometry a = mha(4, groups[i]), b = mha(4, groups[k]);
			size_t size_bytes = hc_geometry_page_bytes(&a);
			uint8_t *from = malloc(size_bytes), *to = malloc(size_bytes);
			bool nest = !(groups[i] % groups[k]) || !(groups[k] % groups[i]);
			struct hc_strides src, dst;
			struct hc_copy_plan plan;

			assert_int_equal(hc_layout_strides(HC_LAYOUT_PAGE_UNIFIED, &a, &src), 0);
			assert_int_equal(hc_layout_strides(HC_LAYOUT_PAGE_UNIFIED, &b, &dst), 0);
			assert_int_equal(hc_copy_plan_make(&a, &src, &dst, &plan),
					 nest ? 0 : -EINVAL);
			if (nest) {
				fill(from, size_bytes, i);
				hc_copy_plan_run(&plan, from, to);
				assert_same_vectors(&a, &src, from, &dst, to);
			}
			free(from);
			free(to);
		}
	}
}

/* Neighbours are merged: equal orders are one memcpy, and what can be a long run is one. */
static void test_merging(void **state)
{
	struct hc_geometry g = mha(16, 1);
	uint64_t vector = hc_geometry_vector_bytes(&g);
	struct hc_strides a, b;
	struct hc_copy_plan plan;

	for (int layout = HC_LAYOUT_LAYER_FIRST; layout <= HC_LAYOUT_PAGE_UNIFIED; layout++) {
		assert_int_equal(hc_layout_strides(layout, &g, &a), 0);
		assert_int_equal(hc_copy_plan_make(&g, &a, &a, &plan), 0);
		assert_int_equal(plan.n_runs, 1);
		assert_int_equal(plan.run_bytes, hc_geometry_page_bytes(&g));
	}
	/* [kv][layer] against [layer][kv]: whole layers of K or V. */
	assert_int_equal(hc_layout_strides(HC_LAYOUT_LAYER_FIRST, &g, &a), 0);
	assert_int_equal(hc_layout_strides(HC_LAYOUT_PAGE_UNIFIED, &g, &b), 0);
	assert_int_equal(hc_copy_plan_make(&g, &a, &b, &plan), 0);
	assert_int_equal(plan.run_bytes, 16 * 6 * vector);
	assert_int_equal(plan.n_runs, 2 * 3);
	/* [layer][token] against [token][layer]: all heads of a token. */
	assert_int_equal(hc_layout_strides(HC_LAYOUT_PAGE_FIRST, &g, &b), 0);
	assert_int_equal(hc_copy_plan_make(&g, &a, &b, &plan), 0);
	assert_int_equal(plan.run_bytes, 6 * vector);
	assert_int_equal(hc_layout_strides(HC_LAYOUT_PAGE_HEAD, &g, &b), 0);
	assert_int_equal(hc_copy_plan_make(&g, &a, &b, &plan), 0);
	assert_int_equal(plan.run_bytes, vector);
	/* A pool's layer_first page: each layer of K or V is one run on both sides. */
	assert_int_equal(hc_layout_pool_strides(HC_POOL_LAYER_FIRST, &g, 9, &b), 0);
	assert_int_equal(hc_copy_plan_make(&g, &b, &a, &plan), 0);
	assert_int_equal(plan.run_bytes, 16 * 6 * vector);
	assert_int_equal(plan.n_runs, 2 * 3);
	/* V follows K as one more layer would: a single loop. */
	assert_int_equal(plan.n_dims, 1);
}

static void assert_extents(enum hc_pool_layout layout, const struct hc_geometry *g,
			   uint32_t n_splits, const struct hc_extent *expected, size_t n_expected)
{
	struct hc_extent got[64];
	size_t n = 0;

	assert_int_equal(hc_layout_extents(layout, g, 10, 6, n_splits, NULL, 0, &n), 0);
	assert_int_equal(n, n_expected);
	assert_int_equal(hc_layout_extents(layout, g, 10, 6, n_splits, got, n - 1, &n), -ENOSPC);
	assert_int_equal(hc_layout_extents(layout, g, 10, 6, n_splits, got, HC_ARRAY_SIZE(got), &n),
			 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(got[i].offset, expected[i].offset);
		assert_int_equal(got[i].size_bytes, expected[i].size_bytes);
	}
}

/* Behaviour 14: descriptors of page 6 (slots from 96) of 10, from the formulas of the zero-copy
 * calls. */
static void test_extents(void **state)
{
	const uint64_t P = 16, L = 3, H = 6, D = 4, e = 2, E = H * D * e, S = 10 * P, t0 = 6 * P,
		       C = 18;
	struct hc_geometry g = mha(16, 1), latent = mla(16);
	struct hc_extent expected[64];
	size_t n = 0;

	for (uint64_t l = 0; l < L; l++) {
		expected[2 * l] = (struct hc_extent){l * S * E + t0 * E, P * E};
		expected[2 * l + 1] = (struct hc_extent){l * S * E + t0 * E + L * S * E, P * E};
	}
	assert_extents(HC_POOL_LAYER_FIRST, &g, 1, expected, 2 * L);
	expected[0] = (struct hc_extent){t0 * L * E, L * P * E};
	expected[1] = (struct hc_extent){t0 * L * E + L * S * E, L * P * E};
	assert_extents(HC_POOL_PAGE_FIRST, &g, 1, expected, 2);
	assert_extents(HC_POOL_PAGE_FIRST_DIRECT, &g, 1, expected, 2);
	assert_extents(HC_POOL_PAGE_HEAD, &g, 1, expected, 2);
	for (uint64_t i = 0; i < 3; i++) {
		uint64_t offset = t0 * L * E + 2 * i * (P * L * D * e);

		expected[2 * i] = (struct hc_extent){offset, L * P * E / 3};
		expected[2 * i + 1] = (struct hc_extent){offset + L * S * E, L * P * E / 3};
	}
	assert_extents(HC_POOL_PAGE_HEAD, &g, 3, expected, 6);
	expected[0] = (struct hc_extent){6 * 2 * L * P * E, 2 * L * P * E};
	assert_extents(HC_POOL_PAGE_UNIFIED, &g, 1, expected, 1);

	expected[0] = (struct hc_extent){t0 * 5 * C, 5 * P * C};
	assert_extents(HC_POOL_PAGE_FIRST, &latent, 1, expected, 1);
	assert_extents(HC_POOL_PAGE_FIRST_DIRECT, &latent, 1, expected, 1);
	assert_extents(HC_POOL_PAGE_UNIFIED, &latent, 1, expected, 1);
	for (uint64_t l = 0; l < 5; l++)
		expected[l] = (struct hc_extent){l * S * C + t0 * C, P * C};
	assert_extents(HC_POOL_LAYER_FIRST, &latent, 1, expected, 5);

	assert_int_equal(hc_layout_extents(HC_POOL_PAGE_HEAD, &g, 10, 10, 1, NULL, 0, &n), -EINVAL);
	assert_int_equal(hc_layout_extents(HC_POOL_PAGE_HEAD, &g, 10, 0, 4, NULL, 0, &n), -EINVAL);
	assert_int_equal(hc_layout_extents(HC_POOL_PAGE_HEAD, &g, 10, 0, 0, NULL, 0, &n), -EINVAL);
	assert_int_equal(hc_layout_extents(HC_POOL_PAGE_FIRST, &g, 10, 0, 2, NULL, 0, &n), -EINVAL);
	assert_int_equal(hc_layout_extents(HC_POOL_PAGE_HEAD, &latent, 10, 0, 1, NULL, 0, &n),
			 -EINVAL);
}

/* Behaviour 15, and sizes that are none. */
static void test_refused(void **state)
{
	struct hc_geometry g = mha(16, 1), latent = mla(16), bad;
	struct hc_strides s = {.page = 77};
	enum hc_layout layout = HC_LAYOUT_PAGE_HEAD;
	uint8_t byte;

	assert_int_equal(hc_layout_strides(HC_LAYOUT_PAGE_HEAD, &latent, &s), -EINVAL);
	assert_int_equal(hc_layout_pool_strides(HC_POOL_PAGE_HEAD, &latent, 4, &s), -EINVAL);
	assert_int_equal(hc_layout_strides(HC_LAYOUT_UNDECLARED, &g, &s), -EINVAL);
	assert_int_equal(hc_layout_strides((enum hc_layout)5, &g, &s), -EINVAL);
	assert_int_equal(hc_layout_pool_strides((enum hc_pool_layout)0, &g, 4, &s), -EINVAL);
	assert_int_equal(hc_layout_pool_strides((enum hc_pool_layout)6, &g, 4, &s), -EINVAL);
	assert_int_equal(hc_layout_pool_strides(HC_POOL_PAGE_FIRST, &g, 0, &s), -EINVAL);
	assert_int_equal(hc_layout_pool_strides(HC_POOL_PAGE_FIRST, &g, UINT64_MAX, &s), -ERANGE);
	assert_int_equal(
		hc_layout_convert(&g, HC_LAYOUT_UNDECLARED, &byte, HC_LAYOUT_PAGE_FIRST, &byte),
		-EINVAL);
	assert_int_equal(
		hc_layout_convert(&g, HC_LAYOUT_PAGE_FIRST, &byte, HC_LAYOUT_UNDECLARED, &byte),
		-EINVAL);
	assert_int_equal(hc_layout_parse("page_last", &layout), -EINVAL);
	assert_int_equal(hc_layout_parse("", &layout), -EINVAL);
	assert_int_equal(layout, HC_LAYOUT_PAGE_HEAD);
	assert_int_equal(s.page, 77);

	bad = g;
	bad.n_groups = 4;
	assert_int_equal(hc_geometry_check(&bad), -EINVAL);
	bad = g;
	bad.n_layers = 0;
	assert_int_equal(hc_geometry_check(&bad), -EINVAL);
	bad = g;
	bad.n_kv = 3;
	assert_int_equal(hc_geometry_check(&bad), -EINVAL);
	bad = latent;
	bad.n_kv = 2;
	assert_int_equal(hc_geometry_check(&bad), -EINVAL);
	bad = g;
	bad.n_layers = bad.n_tokens = UINT32_MAX;
	assert_int_equal(hc_geometry_check(&bad), -ERANGE);
	for (int i = HC_LAYOUT_UNDECLARED; i <= HC_LAYOUT_PAGE_UNIFIED; i++) {
		assert_int_equal(hc_layout_parse(hc_layout_name(i), &layout), 0);
		assert_int_equal(layout, i);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_pool_offsets), cmocka_unit_test(test_page_offsets),
	cmocka_unit_test(test_formulas),     cmocka_unit_test(test_conversions),
	cmocka_unit_test(test_equal_orders), cmocka_unit_test(test_pool_to_slot),
	cmocka_unit_test(test_extents),      cmocka_unit_test(test_regroup),
	cmocka_unit_test(test_merging),      cmocka_unit_test(test_refused),
};

HC_TEST_MAIN(tests)
