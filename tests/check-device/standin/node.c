/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of the node, which the controller calls only for pools that are shared: check-device
 * brings memory of its own, and no library that the node needs. */
#include <stdlib.h>

#define NEVER(name)      \
	void name(void); \
	void name(void)  \
	{                \
		abort(); \
	}

NEVER(hc_node_abort)
NEVER(hc_node_acquire)
NEVER(hc_node_publish)
NEVER(hc_node_release)
NEVER(hc_node_reserve)
NEVER(hc_node_segment)
