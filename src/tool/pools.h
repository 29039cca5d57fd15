/* SPDX-License-Identifier: Apache-2.0 */
/* Pools in memory that hicachectl finds, with or without a daemon. One thread. */
#ifndef HC_TOOL_POOLS_H
#define HC_TOOL_POOLS_H

#include <stdio.h>

#include "pool/place.h"
#include "tool/tool.h"

#define HC_POOLS_MAX 64u

/* pool_path: a place to look at besides the usual ones, or NULL. Heap array. Errors are printed. */
int hc_pools_list(const char *pool_path, struct hc_pool_found **found_p, size_t *n_p) HC_MUST_CHECK;
/* One line. */
void hc_pool_describe(const struct hc_pool_found *pool, FILE *out);

#endif
