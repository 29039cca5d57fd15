/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in where liburing was not found. */
#include "bench-disk.h"

const bench_run_t bench_uring_get = NULL;
const bench_run_t bench_uring_put = NULL;

bool bench_uring_works(void)
{
	return false;
}
