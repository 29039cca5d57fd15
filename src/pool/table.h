/* SPDX-License-Identifier: Apache-2.0 */
/* The slot table: what is in which slot, in a file of the daemon beside the segments, so that a
 * restart can take the pool over. Private to pool/.
 *
 *   0        header, 4 KiB
 *   4 KiB    segment descriptors, HC_TABLE_SEGMENTS_MAX of them whatever the pool's size
 *   rows_at  rows: segment_bytes / 4096 of them a segment, sparse; rows[slot] is that of a slot
 *
 * Fixed-width integers of this machine's byte order (the file never leaves it). Row and descriptor
 * are written first and their state last, with release order: a process killed at any point leaves
 * no half-written row that says READY and no half-written descriptor that says CUT. All that is
 * read from a found file is input: the checks here decide what is believed. They are pure and take
 * any bytes. */
#ifndef HC_POOL_TABLE_H
#define HC_POOL_TABLE_H

#include "pool/pool.h"

#define HC_TABLE_MAGIC        "HCSLOTS"
#define HC_TABLE_VERSION      1u
#define HC_TABLE_HEADER_BYTES 4096u
/* 4 TiB of segments of 1 GiB; more would only grow the descriptor area. */
#define HC_TABLE_SEGMENTS_MAX 4096u
#define HC_SEGMENT_ALIGN      (2 * HC_MIB)

struct hc_table_header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes;
	uint32_t descriptor_bytes;
	uint32_t row_bytes;
	uint32_t n_segments;
	uint32_t slots_per_segment;
	uint64_t segment_bytes;
	uint64_t rows_at;
	uint64_t table_bytes;
	uint8_t uuid[16];
	/* Contents of memory do not outlive the kernel that held them. */
	uint8_t boot_id[16];
	/* Of this structure with checksum 0. */
	uint64_t checksum;
};
_Static_assert(sizeof(struct hc_table_header) == 96, "header of the slot table, version 1");

enum hc_table_segment_state {
	HC_TABLE_SEGMENT_ABSENT, /* never usable: its file is made anew */
	HC_TABLE_SEGMENT_UNCUT,  /* populated; the domain is that of the last use */
	HC_TABLE_SEGMENT_CUT,
};

struct hc_table_segment {
	uint32_t state;
	uint32_t n_slots;
	uint64_t slot_bytes;
	uint32_t uid;
	uint32_t gid;
	uint32_t mode;
	int32_t numa_node;
	/* Of the four fields from n_slots to mode. Wrong in an UNCUT one: the last user is unknown.
	 */
	uint64_t check;
	uint8_t spare[24];
};
_Static_assert(sizeof(struct hc_table_segment) == 64, "segment descriptor, version 1");

struct hc_table_row {
	uint32_t state; /* enum hc_slot_state, stored last */
	uint32_t generation;
	uint32_t pins; /* holds of clients; rebuilt by adoption */
	uint32_t flags;
	uint64_t sequence;
	uint64_t size_bytes;
	uint64_t checksum;
	uint64_t mtime_ns;
	uint8_t hash[HC_HASH_BYTES];
	uint8_t parent[HC_HASH_BYTES];
	uint32_t space;
	uint32_t series;
	uint32_t depth;
	uint32_t uid;
	uint32_t gid;
	uint32_t mode;
	/* Of everything that publish writes but the checksum and HC_SLOT_FLAG_SUMMED, which may
	 * come later. */
	uint64_t check;
	uint8_t spare[16];
};
_Static_assert(sizeof(struct hc_table_row) == 160, "row of the slot table, version 1");

#define HC_TABLE_ROWS_AT \
	(HC_TABLE_HEADER_BYTES + (uint64_t)HC_TABLE_SEGMENTS_MAX * sizeof(struct hc_table_segment))

/* Bytes of the (sparse) file of a pool of this shape. */
uint64_t hc_table_bytes(uint32_t n_segments, uint64_t segment_bytes);
void hc_table_header_fill(struct hc_table_header *header, const uint8_t uuid[16],
			  const uint8_t boot_id[16], uint32_t n_segments, uint64_t segment_bytes);

/* Is this a table that this version can read, whole, with a shape that is possible? -EPROTO: a
 * newer version; -EBADMSG: not a table, damaged or truncated. Looks at the header only; does not
 * log. */
int hc_table_check(const void *image, size_t size_bytes) HC_MUST_CHECK;

/* The following take an image that hc_table_check accepted. */
struct hc_table_segment *hc_table_segment(void *image, uint32_t segment);
struct hc_table_row *hc_table_row(void *image, uint32_t segment, uint32_t index);
/* A CUT descriptor whose every field can be believed. */
bool hc_table_segment_valid(const struct hc_table_header *header,
			    const struct hc_table_segment *descriptor);
/* The last user of the segment is known. */
bool hc_table_segment_known(const struct hc_table_segment *descriptor);
uint64_t hc_table_segment_sum(const struct hc_table_segment *descriptor);
/* A READY row of a valid descriptor whose every field can be believed. */
bool hc_table_row_valid(const struct hc_table_segment *descriptor, const struct hc_table_row *row,
			hc_slot_id slot);
/* FREE, of the next generation. */
void hc_table_row_clear(struct hc_table_row *row);
/* Everything but state, generation and pins. */
void hc_table_row_fill(struct hc_table_row *row, hc_slot_id slot, const struct hc_slot_page *page);
void hc_table_row_page(const struct hc_table_row *row, struct hc_slot_page *page_p);

#endif
