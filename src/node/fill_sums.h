/* SPDX-License-Identifier: Apache-2.0 */
/* Leaf checksums of a body while its bytes arrive (model/checksum.h): a leaf is summed once it is
 * whole, while it is still in a cache, and forgotten when a part of it is written again. What is
 * not known at the end is read back then. Without memory for the leaves nothing is known: publish
 * costs more, and that is all. No lock: the fill's. */
#ifndef HC_NODE_FILL_SUMS_H
#define HC_NODE_FILL_SUMS_H

#include "util/base.h"

struct hc_fill_sums {
	uint64_t max_bytes; /* nothing is summed beyond */
	uint64_t *leaves;
	uint8_t *known; /* of each leaf */
	size_t room;
	uint64_t end;       /* [0, end) came in order */
	uint64_t n_changes; /* of the bytes: what was read back before one of them is stale */
	char *carry;        /* beginning of a leaf that is in a file, one leaf of room */
	size_t carry_leaf;
	size_t carry_bytes; /* 0: none */
};

void hc_fill_sums_init(struct hc_fill_sums *sums, uint64_t max_bytes);
void hc_fill_sums_fini(struct hc_fill_sums *sums);
void hc_fill_sums_reset(struct hc_fill_sums *sums);
/* After a write. memory: all bytes of the body, or NULL when they are in a file. failed: part of it
 * may be there. */
void hc_fill_sums_write(struct hc_fill_sums *sums, const void *data, size_t n, uint64_t offset,
			const void *memory, bool failed);
/* A whole leaf that was read back when n_changes was such. False: it has changed since. */
bool hc_fill_sums_leaf(struct hc_fill_sums *sums, uint64_t n_changes, uint64_t offset,
		       const void *leaf);
void hc_fill_sums_truncate(struct hc_fill_sums *sums, uint64_t size_bytes);
/* The page's checksum; leaves that are not known come from memory or read (0 or -errno). -ENOMEM.
 */
int hc_fill_sums_fold(struct hc_fill_sums *sums, uint64_t size_bytes, const void *memory,
		      int (*read)(void *arg, void *buf, size_t n, uint64_t offset), void *arg,
		      uint64_t *checksum_p) HC_MUST_CHECK;

#endif
