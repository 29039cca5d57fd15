/* SPDX-License-Identifier: Apache-2.0 */
/* A body under construction: bytes that arrive by writes at any offset before they have a key. In a
 * pool slot when the size is known, else in a staging file of the store; an overflow moves once.
 * Leaves are summed as they fill, so that publish costs little for a sequential writer. Holes read
 * as zeros. One fill may be used by several threads. Each has a lock, held over its own I/O and
 * over calls of the node (order: fill, node): it keeps only the users of this body waiting. Its
 * bytes belong to it until publish or discard. */
#ifndef HC_NODE_FILL_H
#define HC_NODE_FILL_H

#include "node/node.h"

struct hc_fill;

/* size_hint 0: unknown, then the first write, allocate or truncate decides. Never waits for a slot:
 * without one the body is as one of unknown size. -ENOSPC, -EDQUOT. With disk_off a body of unknown
 * size grows in memory of its own (memfd) up to max_page_bytes and moves to a slot at publish. */
int hc_fill_create(struct hc_node *node, uint32_t space, const struct hc_domain *domain,
		   uint64_t size_hint, struct hc_fill **fill_p) HC_MUST_CHECK;
/* Whole or nothing: 0, -ENOSPC, -EDQUOT, -EFBIG above max_page_bytes for slots (staging files may
 * be larger: scratch). */
int hc_fill_write(struct hc_fill *fill, const void *data, size_t n, uint64_t offset) HC_MUST_CHECK;
int hc_fill_read(struct hc_fill *fill, void *buf, size_t n, uint64_t offset,
		 size_t *got_p) HC_MUST_CHECK;
/* A range in memory to answer a read from without a copy, or NULL when it is in a file. Good until
 * the next write. */
const void *hc_fill_peek(struct hc_fill *fill, uint64_t offset, size_t n);
int hc_fill_truncate(struct hc_fill *fill, uint64_t size_bytes) HC_MUST_CHECK;
/* Room for [0, end): a hint of the size and a charge on quota and disk; keep_size false also grows
 * the size. */
int hc_fill_allocate(struct hc_fill *fill, uint64_t end_bytes, bool keep_size) HC_MUST_CHECK;
uint64_t hc_fill_size(struct hc_fill *fill);
/* Whether the bytes lie in a file of the disk (scratch and unknown sizes). */
bool hc_fill_on_disk(struct hc_fill *fill);
/* Blocks used, of 512 bytes, for stat: holes of a file are none. */
uint64_t hc_fill_blocks(struct hc_fill *fill);
int hc_fill_fsync(struct hc_fill *fill) HC_MUST_CHECK;
/* Copies all of another fill, or of a page, in front of writing (copy-up). */
int hc_fill_copy_page(struct hc_fill *fill, const struct hc_ref *page) HC_MUST_CHECK;
int hc_fill_copy(struct hc_fill *fill, struct hc_fill *from) HC_MUST_CHECK;
/* Becomes the page item->key (size and checksum are filled in here). Consumes the fill on success,
 * also when a page of that key was there and is kept (item->replace false). On error it is left as
 * it was (-EINVAL: empty; -EFBIG: scratch; -ENOSPC, -EDQUOT: no slot for a body in memory of its
 * own), or, where the node had taken the bytes, every further call answers -EIO (-EIO,
 * -ENAMETOOLONG, -ENOMEM, -ENOSPC of the disk). */
int hc_fill_publish(struct hc_fill *fill, const struct hc_publish *item) HC_MUST_CHECK;
void hc_fill_discard(struct hc_fill *fill);

/* --- bytes that somebody else writes into the body's file: the kernel, by passthrough --- */
/* The size that a body of unknown size will probably have, for the first write to decide by. */
void hc_fill_expect(struct hc_fill *fill, uint64_t size_bytes);
/* A body that is nowhere yet gets its place: a file where that is wanted and somebody may write
 * past us, else as create with the expected size would. Not a file: backups are held back, a quota
 * that has no expected size to be judged by, a disk that is nearly full. -ENOSPC, -EDQUOT. */
int hc_fill_begin(struct hc_fill *fill, bool as_file) HC_MUST_CHECK;
/* A descriptor of the file, the caller's; -ENODEV when it is in memory. */
int hc_fill_backing(struct hc_fill *fill, uint16_t *disk_p, int *fd_p) HC_MUST_CHECK;
/* Writers that are not seen come and go. Meanwhile size and time are the file's. */
void hc_fill_outside(struct hc_fill *fill, int n);
/* Quota and disk, as the file is now. -EDQUOT, -ENOSPC. */
int hc_fill_look(struct hc_fill *fill) HC_MUST_CHECK;
/* The file's time of change; false while every writer is seen. */
bool hc_fill_mtime(struct hc_fill *fill, uint64_t *mtime_ns_p);
void hc_fill_set_mtime(struct hc_fill *fill, uint64_t mtime_ns);
/* Sums a file that somebody else wrote, so that publish is short. The body may be used meanwhile;
 * when it is written, the rest is left to publish. */
void hc_fill_sum(struct hc_fill *fill);

#endif
