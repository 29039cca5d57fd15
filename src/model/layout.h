/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a page's bytes, as strides; and copies between any two orders. Pure functions.
 *
 * A page holds n_kv x n_layers x n_heads x n_tokens vectors of head_dim elements. Where vector (kv,
 * layer, head, token) lies is affine in all of its indices, with the head index cut in (group, head
 * in group):
 *
 *	layer_first	[kv][layer][token][head][dim]; SGLang's page_first_direct, per page
 *	page_first	[kv][token][layer][head][dim]
 *	page_head	[kv][head][token][layer][dim]; not for MLA
 *	page_unified	[group][layer][kv][token][head][dim]; with one group the house's own order
 *
 * MLA: one kv, one head; page_unified and layer_first are then the same bytes. */
#ifndef HC_MODEL_LAYOUT_H
#define HC_MODEL_LAYOUT_H

#include "util/base.h"

/* The numbers lie in catalogs: never renumber. Undeclared: bytes of unknown order, never converted,
 * never guessed. */
enum hc_layout {
	HC_LAYOUT_UNDECLARED = 0,
	HC_LAYOUT_LAYER_FIRST = 1,
	HC_LAYOUT_PAGE_FIRST = 2,
	HC_LAYOUT_PAGE_HEAD = 3,
	HC_LAYOUT_PAGE_UNIFIED = 4,
};

/* SGLang's pools: where page and token slots of a whole imported buffer lie. */
enum hc_pool_layout {
	HC_POOL_LAYER_FIRST = 1,
	HC_POOL_PAGE_FIRST = 2,
	HC_POOL_PAGE_FIRST_DIRECT = 3,
	HC_POOL_PAGE_HEAD = 4,
	HC_POOL_PAGE_UNIFIED = 5,
};

/* A page may not be larger than this, whatever its dimensions say. */
#define HC_LAYOUT_PAGE_BYTES_MAX ((uint64_t)1 << 40)

struct hc_geometry {
	uint32_t n_kv; /* 2: K and V; 1: MLA, or one object of a pair */
	uint32_t n_layers;
	uint32_t n_heads;  /* of this rank */
	uint32_t n_tokens; /* of the page */
	uint32_t head_dim; /* elements; MLA: latent and rotary part together */
	uint32_t element_bytes;
	uint32_t n_groups; /* head groups of page_unified; divides n_heads */
	bool mla;
};

/* Bytes between neighbours; head_dim elements are always contiguous. */
struct hc_strides {
	uint64_t page, kv, layer, group, head, token;
	uint32_t heads_per_group;
};

/* "layer_first", ... ; "undeclared". */
const char *hc_layout_name(enum hc_layout layout);
/* Also takes "page_first_direct" for layer_first. -EINVAL for another word. */
int hc_layout_parse(const char *text, enum hc_layout *layout_p) HC_MUST_CHECK;

/* -EINVAL: a zero dimension, groups that do not divide heads, MLA with more than one head or kv;
 * -ERANGE: too large. */
int hc_geometry_check(const struct hc_geometry *geometry) HC_MUST_CHECK;
/* Bytes of one page; of a checked geometry. */
uint64_t hc_geometry_page_bytes(const struct hc_geometry *geometry);
uint64_t hc_geometry_vector_bytes(const struct hc_geometry *geometry);

/* Strides of one page inside its slot (.page = page bytes: slots without padding). -EINVAL: bad
 * geometry, undeclared or unknown layout, page_head with MLA. */
int hc_layout_strides(enum hc_layout layout, const struct hc_geometry *geometry,
		      struct hc_strides *strides_p) HC_MUST_CHECK;
/* Strides of a whole buffer of n_pages pages. Errors as above. */
int hc_layout_pool_strides(enum hc_pool_layout layout, const struct hc_geometry *geometry,
			   uint64_t n_pages, struct hc_strides *strides_p) HC_MUST_CHECK;

static inline uint64_t hc_strides_offset(const struct hc_strides *s, uint64_t page_i, uint32_t kv_i,
					 uint32_t layer_i, uint32_t head_i, uint32_t token_i)
{
	return page_i * s->page + kv_i * s->kv + layer_i * s->layer +
	       head_i / s->heads_per_group * s->group + head_i % s->heads_per_group * s->head +
	       token_i * s->token;
}

/* A contiguous piece of a buffer. */
struct hc_extent {
	uint64_t offset, size_bytes;
};

/* The pieces of one page in a whole buffer, in the order of SGLang's zero-copy descriptors: layer
 * by layer K, V (layer_first), else K, V, else the page alone (page_unified, MLA). n_splits above
 * 1: page_head alone, the heads of K and V in that many equal parts, part by part K, V. With
 * extents NULL only counts. -EINVAL: as hc_layout_pool_strides, page_i beyond the buffer, a split
 * that there is not; -ENOSPC: more than n_extents_max. */
int hc_layout_extents(enum hc_pool_layout layout, const struct hc_geometry *geometry,
		      uint64_t n_pages, uint64_t page_i, uint32_t n_splits,
		      struct hc_extent *extents, size_t n_extents_max,
		      size_t *n_extents_p) HC_MUST_CHECK;

/* A copy between two orders: nested loops over runs of run_bytes that are contiguous on both sides,
 * innermost loop first, neighbours merged as far as both sides allow. */
#define HC_COPY_DIMS_MAX 6
struct hc_copy_plan {
	uint64_t run_bytes;
	uint64_t n_runs;
	uint32_t n_dims;
	uint64_t count[HC_COPY_DIMS_MAX];
	uint64_t src_stride[HC_COPY_DIMS_MAX];
	uint64_t dst_stride[HC_COPY_DIMS_MAX];
};

/* For one page of the geometry. Strides as the functions above made them for it. */
int hc_copy_plan_make(const struct hc_geometry *geometry, const struct hc_strides *src,
		      const struct hc_strides *dst, struct hc_copy_plan *plan_p) HC_MUST_CHECK;
/* src and dst must not overlap. */
void hc_copy_plan_run(const struct hc_copy_plan *plan, const void *src, void *dst);
/* Both together, for one page in its slot. */
int hc_layout_convert(const struct hc_geometry *geometry, enum hc_layout from, const void *src,
		      enum hc_layout to, void *dst) HC_MUST_CHECK;

#endif
