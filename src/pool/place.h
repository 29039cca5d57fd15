/* SPDX-License-Identifier: Apache-2.0 */
/* Where a daemon's pool lies, and how large it may be. Called by one thread at start, and by
 * hicachectl.
 *
 * A pool is a directory PLACE that holds `pool` (text: uuid, CACHEDIR, kind), `lock` (flock held by
 * the daemon), `slots` and `seg-NNNN`. Places searched for existing pools: /run/hicachefs/<uuid>,
 * /dev/shm/hicachefs-<uuid>, the mount of hugetlbfs, and an explicit pool_path. */
#ifndef HC_POOL_PLACE_H
#define HC_POOL_PLACE_H

#include "pool/pool.h"

struct hc_pool_place {
	char dir[4096];
	enum hc_pool_kind kind;
	bool mounted_here; /* we mounted a tmpfs for it; removal unmounts */
};

/* Chooses and makes the place: pool_path if given (any directory), else hugetlbfs when enough pages
 * are reserved, else our own tmpfs mount (root: huge=always, explicit size, noswap where known,
 * mode 0700), else /dev/shm. An existing place of the same uuid is found again. -errno with a
 * message. */
int hc_pool_place_make(const uint8_t uuid[16], const char *cachedir, const char *pool_path,
		       uint64_t size_bytes, struct hc_pool_place *place_p) HC_MUST_CHECK;

/* Default size: 10 % of available memory, at most 64 GiB, whole 2 MiB. */
int hc_pool_default_size(uint64_t *size_bytes_p) HC_MUST_CHECK;
/* The default for a cache that may have left a pool: what that pool holds counts as available, and
 * a difference of less than a quarter keeps its size, so that a restart on a busier or calmer
 * machine drops nothing. */
int hc_pool_default_size_for(const uint8_t uuid[16], const char *pool_path,
			     uint64_t *size_bytes_p) HC_MUST_CHECK;
/* Checks size - held (bytes that an adopted pool already holds) against min(cgroup room, available
 * memory) minus a reserve (the smaller of 1 GiB and 10 %), hugetlb against free huge pages. -ENOMEM
 * with a message that names the figures and pool_size. */
int hc_pool_size_check(uint64_t size_bytes, uint64_t held_bytes,
		       enum hc_pool_kind kind) HC_MUST_CHECK;

/* Pools on this machine without or with a daemon, for status, doctor and `pool free`. */
struct hc_pool_found {
	char dir[4096];
	char cachedir[4096];
	char uuid[37];
	uint64_t size_bytes;
	bool live; /* a daemon holds the lock */
};
int hc_pool_find(const char *pool_path, struct hc_pool_found *found, size_t max,
		 size_t *n_p) HC_MUST_CHECK;
/* Removes segment files, table and place; -EBUSY when a daemon lives there. */
int hc_pool_place_free(const char *dir) HC_MUST_CHECK;
/* Bytes an existing pool in the place holds (segment files), 0 if none. */
uint64_t hc_pool_place_held_bytes(const char *dir);

#endif
