/* SPDX-License-Identifier: Apache-2.0 */
/* Page copies on the host: the check that a device relies on, and the twin of the kernels. */
#include "device/page_copy.h"

_Static_assert(sizeof(struct hc_page_pair) == 16, "read by kernels");
_Static_assert(sizeof(struct hc_page_copy) == 136, "passed to kernels");

/* The way from the first to the last of a loop fits, with room for the sum over all loops. */
static bool reach_fits(uint32_t count, int64_t stride)
{
	int64_t reach;

	return !__builtin_mul_overflow((int64_t)count - 1, stride, &reach) &&
	       reach > INT64_MIN / 16 && reach < INT64_MAX / 16;
}

int hc_page_copy_check(const struct hc_page_copy *c)
{
	uint64_t units = c->run_bytes / HC_PAGE_COPY_UNIT;

	if (!c->run_bytes || !c->n_pages || !c->pairs || c->run_bytes % HC_PAGE_COPY_UNIT ||
	    (c->src | c->dst | c->pairs) % HC_PAGE_COPY_UNIT)
		return -EINVAL;
	for (int i = 0; i < HC_PAGE_COPY_DIMS; i++) {
		if (!c->count[i] || c->src_stride[i] % HC_PAGE_COPY_UNIT ||
		    c->dst_stride[i] % HC_PAGE_COPY_UNIT ||
		    !reach_fits(c->count[i], c->src_stride[i]) ||
		    !reach_fits(c->count[i], c->dst_stride[i]))
			return -EINVAL;
		if (__builtin_mul_overflow(units, (uint64_t)c->count[i], &units))
			return -EINVAL;
	}
	if (__builtin_mul_overflow(units, (uint64_t)c->n_pages, &units) || units > UINT32_MAX)
		return -EINVAL;
	return 0;
}

void hc_page_copy_run(const struct hc_page_copy *c, uint32_t first, uint32_t n)
{
	const struct hc_page_pair *pairs = (const void *)(uintptr_t)c->pairs;
	uint32_t units_per_run = c->run_bytes / HC_PAGE_COPY_UNIT;

	while (n) {
		struct hc_page_copy_at at = hc_page_copy_find(c, first);
		uint64_t src = c->src + pairs[at.page_i].src + (uint64_t)at.src;
		uint64_t dst = c->dst + pairs[at.page_i].dst + (uint64_t)at.dst;
		uint32_t step = units_per_run - first % units_per_run;

		if (step > n)
			step = n;
		memcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src,
		       (size_t)step * HC_PAGE_COPY_UNIT);
		first += step;
		n -= step;
	}
}
