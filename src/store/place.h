/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several data directories takes a chain: weighted rendezvous hashing. Pure function.
 * The caller chooses what it passes (the root of a chain and the number of its 64 MiB unit), so
 * that what belongs together lies together. Rows carry the disk id: an answer that changes with the
 * weights moves nothing. */
#ifndef HC_STORE_PLACE_H
#define HC_STORE_PLACE_H

#include "model/hash.h"

/* A disk of 0..n-1, in proportion to weights[] (0: never; out or full disks). n when all weights
 * are 0. Where one weight changes, only hashes from or to that disk move. */
uint16_t hc_disk_pick(const uint64_t *weights, uint16_t n, const struct hc_hash *hash);

#endif
