/* SPDX-License-Identifier: Apache-2.0 */
/* See layout.h. */
#include "model/layout.h"

static const char *const layout_names[] = {
	[HC_LAYOUT_UNDECLARED] = "undeclared",     [HC_LAYOUT_LAYER_FIRST] = "layer_first",
	[HC_LAYOUT_PAGE_FIRST] = "page_first",     [HC_LAYOUT_PAGE_HEAD] = "page_head",
	[HC_LAYOUT_PAGE_UNIFIED] = "page_unified",
};

const char *hc_layout_name(enum hc_layout layout)
{
	return (unsigned int)layout < HC_ARRAY_SIZE(layout_names) ? layout_names[layout]
								  : "unknown";
}

int hc_layout_parse(const char *text, enum hc_layout *layout_p)
{
	for (size_t i = 0; i < HC_ARRAY_SIZE(layout_names); i++) {
		if (!strcmp(text, layout_names[i])) {
			*layout_p = (enum hc_layout)i;
			return 0;
		}
	}
	if (strcmp(text, "page_first_direct"))
		return -EINVAL;
	*layout_p = HC_LAYOUT_LAYER_FIRST;
	return 0;
}

int hc_geometry_check(const struct hc_geometry *g)
{
	const uint32_t dims[] = {g->n_kv,     g->n_layers, g->n_heads,
				 g->n_tokens, g->head_dim, g->element_bytes};
	uint64_t size_bytes = 1;

	for (size_t i = 0; i < HC_ARRAY_SIZE(dims); i++) {
		if (!dims[i])
			return -EINVAL;
		if (__builtin_mul_overflow(size_bytes, (uint64_t)dims[i], &size_bytes) ||
		    size_bytes > HC_LAYOUT_PAGE_BYTES_MAX)
			return -ERANGE;
	}
	if (g->n_kv > 2 || !g->n_groups || g->n_heads % g->n_groups)
		return -EINVAL;
	if (g->mla && (g->n_heads != 1 || g->n_kv != 1))
		return -EINVAL;
	return 0;
}

uint64_t hc_geometry_vector_bytes(const struct hc_geometry *g)
{
	return (uint64_t)g->head_dim * g->element_bytes;
}

/* One of K and V, of all layers. */
static uint64_t half_bytes(const struct hc_geometry *g)
{
	return hc_geometry_vector_bytes(g) * g->n_heads * g->n_layers * g->n_tokens;
}

uint64_t hc_geometry_page_bytes(const struct hc_geometry *g)
{
	return half_bytes(g) * g->n_kv;
}

int hc_layout_strides(enum hc_layout layout, const struct hc_geometry *g,
		      struct hc_strides *strides_p)
{
	uint64_t vector = hc_geometry_vector_bytes(g);
	uint64_t token = vector * g->n_heads;
	struct hc_strides s = {
		.page = hc_geometry_page_bytes(g), .kv = half_bytes(g), .head = vector};

	if (hc_geometry_check(g))
		return -EINVAL;
	s.heads_per_group = g->n_heads / g->n_groups;
	switch (layout) {
	case HC_LAYOUT_LAYER_FIRST:
		s.layer = g->n_tokens * token;
		s.token = token;
		break;
	case HC_LAYOUT_PAGE_FIRST:
		s.token = g->n_layers * token;
		s.layer = token;
		break;
	case HC_LAYOUT_PAGE_HEAD:
		if (g->mla)
			return -EINVAL;
		s.head = g->n_tokens * g->n_layers * vector;
		s.token = g->n_layers * vector;
		s.layer = vector;
		break;
	case HC_LAYOUT_PAGE_UNIFIED:
		s.token = s.heads_per_group * vector;
		s.kv = g->n_tokens * s.token;
		s.layer = g->n_kv * s.kv;
		s.group = g->n_layers * s.layer;
		*strides_p = s;
		return 0;
	default:
		return -EINVAL;
	}
	s.group = s.heads_per_group * s.head;
	*strides_p = s;
	return 0;
}

int hc_layout_pool_strides(enum hc_pool_layout layout, const struct hc_geometry *g,
			   uint64_t n_pages, struct hc_strides *strides_p)
{
	static const enum hc_layout page_layouts[] = {
		[HC_POOL_LAYER_FIRST] = HC_LAYOUT_LAYER_FIRST,
		[HC_POOL_PAGE_FIRST] = HC_LAYOUT_PAGE_FIRST,
		[HC_POOL_PAGE_FIRST_DIRECT] = HC_LAYOUT_LAYER_FIRST,
		[HC_POOL_PAGE_HEAD] = HC_LAYOUT_PAGE_HEAD,
		[HC_POOL_PAGE_UNIFIED] = HC_LAYOUT_PAGE_UNIFIED,
	};
	struct hc_strides s;
	uint64_t half;

	if ((unsigned int)layout >= HC_ARRAY_SIZE(page_layouts) || !page_layouts[layout] ||
	    !n_pages)
		return -EINVAL;
	if (hc_layout_strides(page_layouts[layout], g, &s))
		return -EINVAL;
	half = half_bytes(g);
	if (n_pages > INT64_MAX / s.page)
		return -ERANGE;
	if (layout != HC_POOL_PAGE_UNIFIED) {
		/* The buffer is one half of K and one of V. */
		s.page = half;
		s.kv = half * n_pages;
	}
	if (layout == HC_POOL_LAYER_FIRST) {
		s.page = half / g->n_layers;
		s.layer = s.page * n_pages;
	}
	*strides_p = s;
	return 0;
}

int hc_layout_extents(enum hc_pool_layout layout, const struct hc_geometry *g, uint64_t n_pages,
		      uint64_t page_i, uint32_t n_splits, struct hc_extent *extents,
		      size_t n_extents_max, size_t *n_extents_p)
{
	uint32_t n_kv = layout == HC_POOL_PAGE_UNIFIED ? 1 : g->n_kv;
	uint64_t n_parts = layout == HC_POOL_LAYER_FIRST ? g->n_layers : n_splits;
	struct hc_strides s;
	uint64_t part, step;
	int err = hc_layout_pool_strides(layout, g, n_pages, &s);

	if (err)
		return err;
	if (page_i >= n_pages || !n_splits || g->n_heads % n_splits ||
	    (n_splits > 1 && layout != HC_POOL_PAGE_HEAD))
		return -EINVAL;
	part = hc_geometry_page_bytes(g) / n_kv / n_parts;
	step = layout == HC_POOL_LAYER_FIRST ? s.layer : part;
	if (extents && n_parts * n_kv > n_extents_max)
		return -ENOSPC;
	for (uint64_t i = 0; extents && i < n_parts; i++) {
		for (uint64_t kv = 0; kv < n_kv; kv++)
			*extents++ =
				(struct hc_extent){page_i * s.page + i * step + kv * s.kv, part};
	}
	*n_extents_p = n_parts * n_kv;
	return 0;
}

struct dim {
	uint64_t count, src, dst;
};

static void remove_dim(struct dim *dims, uint32_t *n_p, uint32_t i)
{
	(*n_p)--;
	memmove(&dims[i], &dims[i + 1], (*n_p - i) * sizeof(*dims));
}

/* Grows the run while a dimension continues it on both sides. */
static uint64_t grow_run(struct dim *dims, uint32_t *n_p, uint64_t run_bytes)
{
	for (uint32_t i = 0; i < *n_p;) {
		if (dims[i].src != run_bytes || dims[i].dst != run_bytes) {
			i++;
			continue;
		}
		run_bytes *= dims[i].count;
		remove_dim(dims, n_p, i);
		i = 0;
	}
	return run_bytes;
}

/* Joins two loops where the outer continues the inner on both sides. True if it did. */
static bool join_dims(struct dim *dims, uint32_t *n_p)
{
	for (uint32_t i = 0; i < *n_p; i++) {
		for (uint32_t k = 0; k < *n_p; k++) {
			if (i == k || dims[k].src != dims[i].src * dims[i].count ||
			    dims[k].dst != dims[i].dst * dims[i].count)
				continue;
			dims[i].count *= dims[k].count;
			remove_dim(dims, n_p, k);
			return true;
		}
	}
	return false;
}

/* Sequential writes: the smallest stride of the destination innermost. */
static void sort_dims(struct dim *dims, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		for (uint32_t k = i; k > 0 && dims[k].dst < dims[k - 1].dst; k--) {
			struct dim d = dims[k];

			dims[k] = dims[k - 1];
			dims[k - 1] = d;
		}
	}
}

/* Head groups of the two sides may differ if one size divides the other: the head index is cut at
 * both. */
static uint32_t head_dims(const struct hc_geometry *g, const struct hc_strides *src,
			  const struct hc_strides *dst, struct dim dims[3])
{
	uint32_t large = (uint32_t)hc_max_u64(src->heads_per_group, dst->heads_per_group);
	uint32_t small = (uint32_t)hc_min_u64(src->heads_per_group, dst->heads_per_group);
	uint32_t ratio;

	if (!small || large % small || g->n_heads % large)
		return 0;
	ratio = large / small;
	dims[0] = (struct dim){small, src->head, dst->head};
	dims[1] =
		(struct dim){ratio, src->heads_per_group == small ? src->group : small * src->head,
			     dst->heads_per_group == small ? dst->group : small * dst->head};
	dims[2] = (struct dim){g->n_heads / large,
			       src->heads_per_group == large ? src->group : ratio * src->group,
			       dst->heads_per_group == large ? dst->group : ratio * dst->group};
	return 3;
}

int hc_copy_plan_make(const struct hc_geometry *g, const struct hc_strides *src,
		      const struct hc_strides *dst, struct hc_copy_plan *plan_p)
{
	struct dim dims[HC_COPY_DIMS_MAX] = {
		{g->n_tokens, src->token, dst->token},
		{g->n_layers, src->layer, dst->layer},
		{g->n_kv, src->kv, dst->kv},
	};
	struct hc_copy_plan plan = {.n_runs = 1};
	uint32_t n = 3;

	if (hc_geometry_check(g) || !head_dims(g, src, dst, &dims[3]))
		return -EINVAL;
	n += 3;
	for (uint32_t i = 0; i < n;) {
		if (dims[i].count == 1)
			remove_dim(dims, &n, i);
		else
			i++;
	}
	plan.run_bytes = grow_run(dims, &n, hc_geometry_vector_bytes(g));
	while (join_dims(dims, &n))
		continue;
	sort_dims(dims, n);
	plan.n_dims = n;
	for (uint32_t i = 0; i < n; i++) {
		plan.count[i] = dims[i].count;
		plan.src_stride[i] = dims[i].src;
		plan.dst_stride[i] = dims[i].dst;
		plan.n_runs *= dims[i].count;
	}
	*plan_p = plan;
	return 0;
}

void hc_copy_plan_run(const struct hc_copy_plan *plan, const void *src, void *dst)
{
	uint64_t at[HC_COPY_DIMS_MAX] = {0};
	uint64_t inner = plan->n_dims ? plan->count[0] : 1;
	const char *from = src;
	char *to = dst;

	for (;;) {
		uint32_t d = 1;

		for (uint64_t i = 0; i < inner; i++)
			memcpy(to + i * plan->dst_stride[0], from + i * plan->src_stride[0],
			       plan->run_bytes);
		while (d < plan->n_dims && ++at[d] == plan->count[d]) {
			from -= (plan->count[d] - 1) * plan->src_stride[d];
			to -= (plan->count[d] - 1) * plan->dst_stride[d];
			at[d++] = 0;
		}
		if (d >= plan->n_dims)
			return;
		from += plan->src_stride[d];
		to += plan->dst_stride[d];
	}
}

int hc_layout_convert(const struct hc_geometry *g, enum hc_layout from, const void *src,
		      enum hc_layout to, void *dst)
{
	struct hc_strides src_strides, dst_strides;
	struct hc_copy_plan plan;
	int err = hc_layout_strides(from, g, &src_strides);

	if (!err)
		err = hc_layout_strides(to, g, &dst_strides);
	if (!err)
		err = hc_copy_plan_make(g, &src_strides, &dst_strides, &plan);
	if (!err)
		hc_copy_plan_run(&plan, src, dst);
	return err;
}
