/* SPDX-License-Identifier: Apache-2.0 */
/* See hicache.h. */
#include "hicache.h"

#include "config.h"

const char *hicache_version(void)
{
	return PACKAGE_VERSION;
}
