// SPDX-License-Identifier: Apache-2.0
// The page copies of page_copy.h on a GPU. One thread moves some units of 16 bytes at a time: all its
// loads are issued before its first store, for it is the bytes in flight that fill the link. What lies in
// host memory is touched once: it is kept out of L1. Indices are checked by the host before the launch.
#include "device/page_copy.h"

#define IN_FLIGHT HC_PAGE_COPY_IN_FLIGHT
#define THREADS   1024

struct plain {
	static __device__ __forceinline__ uint4 load(uint64_t at)
	{
		uint4 v;

		asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
			     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
			     : "l"(at)
			     : "memory");
		return v;
	}
	static __device__ __forceinline__ void store(uint64_t at, uint4 v)
	{
		asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z),
			     "r"(v.w)
			     : "memory");
	}
};

// All threads of a warp mostly read the same pair: worth a line of L1.
static __device__ __forceinline__ hc_page_pair load_pair(uint64_t at)
{
	hc_page_pair pair;

	asm volatile("ld.global.nc.v2.u64 {%0, %1}, [%2];" : "=l"(pair.src), "=l"(pair.dst) : "l"(at));
	return pair;
}

struct from_host : plain {
	static __device__ __forceinline__ uint4 load(uint64_t at)
	{
		uint4 v;

		asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
			     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
			     : "l"(at));
		return v;
	}
};

struct to_host : plain {
	static __device__ __forceinline__ void store(uint64_t at, uint4 v)
	{
		asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x),
			     "r"(v.y), "r"(v.z), "r"(v.w)
			     : "memory");
	}
};

template <typename access> static __device__ __forceinline__ void page_copy(const hc_page_copy &c)
{
	const uint32_t n_units = hc_page_copy_units_per_page(&c) * c.n_pages;
	const uint32_t n_blocks = gridDim.x, block = blockIdx.x, n_threads = blockDim.x, thread = threadIdx.x;

	for (uint64_t lap = 0; hc_page_copy_unit(lap, n_blocks, block, n_threads, thread, 0) < n_units; lap++) {
		uint4 v[IN_FLIGHT];
		uint64_t to[IN_FLIGHT];

#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++) {
			const uint64_t unit = hc_page_copy_unit(lap, n_blocks, block, n_threads, thread, i);

			to[i] = 0;
			if (unit < n_units) {
				const hc_page_copy_at at = hc_page_copy_find(&c, (uint32_t)unit);
				const hc_page_pair pair = load_pair(c.pairs + at.page_i * sizeof(hc_page_pair));

				v[i] = access::load(c.src + pair.src + (uint64_t)at.src);
				to[i] = c.dst + pair.dst + (uint64_t)at.dst;
			}
		}
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++) {
			if (to[i])
				access::store(to[i], v[i]);
		}
	}
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hc_page_gather(const __grid_constant__ hc_page_copy c)
{
	page_copy<from_host>(c);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hc_page_scatter(const __grid_constant__ hc_page_copy c)
{
	page_copy<to_host>(c);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hc_page_relayout(const __grid_constant__ hc_page_copy c)
{
	page_copy<plain>(c);
}
