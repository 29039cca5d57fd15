// SPDX-License-Identifier: Apache-2.0
// A matrix product of 4-byte floats that keeps all multiprocessors busy: c = a x b, n a multiple of 64. Only
// for measuring what transfers cost a model where cuBLAS is not to be had; its own speed is not the point.
#include <stdint.h>

#define TILE  64
#define DEPTH 16

extern "C" __global__ void __launch_bounds__(256) hc_check_product(uint64_t a_at, uint64_t b_at, uint64_t c_at, uint32_t n)
{
	__shared__ float a_tile[DEPTH][TILE + 1], b_tile[DEPTH][TILE];
	const float *a = (const float *)a_at + (uint64_t)blockIdx.y * TILE * n;
	const float *b = (const float *)b_at + blockIdx.x * TILE;
	float *c = (float *)c_at + (uint64_t)blockIdx.y * TILE * n + blockIdx.x * TILE;
	const uint32_t row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
	float sum[4][4] = {};

	for (uint32_t k = 0; k < n; k += DEPTH) {
		for (uint32_t i = threadIdx.x; i < TILE * DEPTH; i += blockDim.x) {
			a_tile[i % DEPTH][i / DEPTH] = a[(uint64_t)(i / DEPTH) * n + k + i % DEPTH];
			b_tile[i / TILE][i % TILE] = b[(uint64_t)(k + i / TILE) * n + i % TILE];
		}
		__syncthreads();
		for (uint32_t d = 0; d < DEPTH; d++)
			for (uint32_t i = 0; i < 4; i++)
				for (uint32_t j = 0; j < 4; j++)
					sum[i][j] += a_tile[d][row + i] * b_tile[d][column + j];
		__syncthreads();
	}
	for (uint32_t i = 0; i < 4; i++)
		for (uint32_t j = 0; j < 4; j++)
			c[(uint64_t)(row + i) * n + column + j] = sum[i][j];
}
