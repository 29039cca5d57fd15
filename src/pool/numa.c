/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's NUMA nodes, and binding memory to one. Stateless; any thread. */
#include "pool/internal.h"

#include <numa.h>
#include <numaif.h>

int hc_numa_bind(void *arg, void *addr, size_t size_bytes, int node)
{
	unsigned long mask[16] = {0};
	const unsigned long bits = 8 * sizeof(mask[0]);

	if (node < 0 || (unsigned long)node >= bits * HC_ARRAY_SIZE(mask))
		return -EINVAL;
	mask[(unsigned long)node / bits] |= 1ul << ((unsigned long)node % bits);
	/* Preferred, not bound: a node without free memory must not call for the OOM killer. */
	if (mbind(addr, size_bytes, MPOL_PREFERRED, mask, bits * HC_ARRAY_SIZE(mask) + 1, 0))
		return -errno;
	return 0;
}

void hc_numa_detect(struct hc_numa *numa_p)
{
	struct hc_numa numa = {0};
	struct bitmask *mems;

	if (numa_available() >= 0) {
		mems = numa_get_mems_allowed();
		for (int i = 0; i <= numa_max_node() && numa.n < (int)HC_ARRAY_SIZE(numa.node); i++)
			if (numa_bitmask_isbitset(mems, (unsigned)i))
				numa.node[numa.n++] = i;
		numa_bitmask_free(mems);
	}
	/* On one node there is nothing to choose. */
	if (numa.n < 2)
		numa.n = 0;
	*numa_p = numa;
}
