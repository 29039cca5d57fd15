/* SPDX-License-Identifier: Apache-2.0 */
/* The index arithmetic of copies between two orders of a page's bytes, for pages that lie anywhere:
 * compiled by the C compiler and by nvcc, so that kernel and twin cannot differ. Pure functions.
 *
 * A page copy moves, for each pair of pages, count[0] x ... x count[4] runs of run_bytes. Run
 * (i0..i4) of pair p lies at
 *
 *	src + pairs[p].src + i0 * src_stride[0] + ... + i4 * src_stride[4]
 *
 * and likewise at the destination; i0 is innermost. Strides are signed, for K and V may be any two
 * buffers. Everything is a multiple of HC_PAGE_COPY_UNIT: the width of one access. A *unit* is one
 * such access; units are numbered over the whole copy, in 32 bits. */
#ifndef HC_DEVICE_PAGE_COPY_H
#define HC_DEVICE_PAGE_COPY_H

#include <stdint.h>

#ifdef __CUDACC__
#define HC_PAGE_COPY_FN static __host__ __device__ __forceinline__
#else
#define HC_PAGE_COPY_FN static inline
#endif

#define HC_PAGE_COPY_UNIT 16
#define HC_PAGE_COPY_DIMS 5
/* Units that one thread of a kernel loads before it stores the first. */
#define HC_PAGE_COPY_IN_FLIGHT 4

/* Read by the device when the copy runs. */
struct hc_page_pair {
	uint64_t src, dst;
};

/* Passed by value to the kernels: fixed layout. */
struct hc_page_copy {
	uint64_t src, dst;
	uint64_t pairs; /* address of struct hc_page_pair[n_pages] */
	int64_t src_stride[HC_PAGE_COPY_DIMS];
	int64_t dst_stride[HC_PAGE_COPY_DIMS];
	uint32_t count[HC_PAGE_COPY_DIMS]; /* 1 where there is no such loop */
	uint32_t run_bytes;
	uint32_t n_pages;
	uint32_t reserved;
};

/* Where a unit is: which pair, and how far from its page on either side. */
struct hc_page_copy_at {
	uint32_t page_i;
	int64_t src, dst;
};

HC_PAGE_COPY_FN uint32_t hc_page_copy_units_per_page(const struct hc_page_copy *c)
{
	uint32_t n = c->run_bytes / HC_PAGE_COPY_UNIT;

	for (int i = 0; i < HC_PAGE_COPY_DIMS; i++)
		n *= c->count[i];
	return n;
}

HC_PAGE_COPY_FN struct hc_page_copy_at hc_page_copy_find(const struct hc_page_copy *c,
							 uint32_t unit)
{
	const uint32_t units_per_run = c->run_bytes / HC_PAGE_COPY_UNIT;
	uint32_t left = unit / units_per_run;
	struct hc_page_copy_at at;

	at.src = (int64_t)(unit - left * units_per_run) * HC_PAGE_COPY_UNIT;
	at.dst = at.src;
	for (int i = 0; i < HC_PAGE_COPY_DIMS; i++) {
		uint32_t outer, inner;

		if (c->count[i] == 1)
			continue;
		outer = left / c->count[i];
		inner = left - outer * c->count[i];
		at.src += (int64_t)inner * c->src_stride[i];
		at.dst += (int64_t)inner * c->dst_stride[i];
		left = outer;
	}
	at.page_i = left;
	return at;
}

/* The i-th unit of a thread in one lap of a grid: neighbours in a block take neighbouring units.
 * Past the end of the copy there is nothing to do; a lap whose first unit is past it ends the
 * thread. */
HC_PAGE_COPY_FN uint64_t hc_page_copy_unit(uint64_t lap, uint32_t n_blocks, uint32_t block,
					   uint32_t n_threads, uint32_t thread, uint32_t i)
{
	return ((lap * n_blocks + block) * HC_PAGE_COPY_IN_FLIGHT + i) * n_threads + thread;
}

#ifndef __CUDACC__
#include "util/base.h"

/* -EINVAL: a zero count, sizes or strides that are no multiple of the unit, more than 2^32 units.
 */
int hc_page_copy_check(const struct hc_page_copy *copy) HC_MUST_CHECK;
/* The kernels' twins: units [first, first + n) of a checked copy whose addresses are the host's. */
void hc_page_copy_run(const struct hc_page_copy *copy, uint32_t first, uint32_t n);
#endif

#endif
