/* SPDX-License-Identifier: Apache-2.0 */
/* See table.h. */
#include "pool/table.h"

#include "model/checksum.h"

/* Depths are 24 bits wide wherever they are kept. */
#define HC_DEPTH_MAX ((1u << 24) - 1)

#define HC_SLOT_FLAGS_KNOWN (HC_SLOT_FLAG_SUMMED | HC_SLOT_FLAG_OPAQUE | HC_SLOT_FLAG_UNNAMED)

static const uint8_t hc_table_magic[8] = HC_TABLE_MAGIC;

uint64_t hc_table_bytes(uint32_t n_segments, uint64_t segment_bytes)
{
	return HC_TABLE_ROWS_AT + (uint64_t)n_segments * (segment_bytes / HC_BLOCK_BYTES) *
					  sizeof(struct hc_table_row);
}

static uint64_t hc_table_header_sum(const struct hc_table_header *header)
{
	struct hc_table_header copy = *header;

	copy.checksum = 0;
	return hc_checksum(&copy, sizeof(copy));
}

void hc_table_header_fill(struct hc_table_header *header, const uint8_t uuid[16],
			  const uint8_t boot_id[16], uint32_t n_segments, uint64_t segment_bytes)
{
	memset(header, 0, sizeof(*header));
	memcpy(header->magic, hc_table_magic, sizeof(header->magic));
	header->version = HC_TABLE_VERSION;
	header->header_bytes = HC_TABLE_HEADER_BYTES;
	header->descriptor_bytes = sizeof(struct hc_table_segment);
	header->row_bytes = sizeof(struct hc_table_row);
	header->n_segments = n_segments;
	header->slots_per_segment = (uint32_t)(segment_bytes / HC_BLOCK_BYTES);
	header->segment_bytes = segment_bytes;
	header->rows_at = HC_TABLE_ROWS_AT;
	header->table_bytes = hc_table_bytes(n_segments, segment_bytes);
	memcpy(header->uuid, uuid, sizeof(header->uuid));
	memcpy(header->boot_id, boot_id, sizeof(header->boot_id));
	header->checksum = hc_table_header_sum(header);
}

int hc_table_check(const void *image, size_t size_bytes)
{
	struct hc_table_header h;
	uint64_t n_slots;

	if (size_bytes < sizeof(h))
		return -EBADMSG;
	memcpy(&h, image, sizeof(h));
	if (memcmp(h.magic, hc_table_magic, sizeof(h.magic)))
		return -EBADMSG;
	/* Before the checksum: a newer header may be longer, and its sum elsewhere. */
	if (h.version > HC_TABLE_VERSION)
		return -EPROTO;
	if (h.version != HC_TABLE_VERSION || h.checksum != hc_table_header_sum(&h))
		return -EBADMSG;
	if (h.header_bytes != HC_TABLE_HEADER_BYTES ||
	    h.descriptor_bytes != sizeof(struct hc_table_segment) ||
	    h.row_bytes != sizeof(struct hc_table_row) || h.rows_at != HC_TABLE_ROWS_AT)
		return -EBADMSG;
	if (!h.n_segments || h.n_segments > HC_TABLE_SEGMENTS_MAX)
		return -EBADMSG;
	if (!h.segment_bytes || h.segment_bytes % HC_SEGMENT_ALIGN ||
	    h.segment_bytes / HC_BLOCK_BYTES != h.slots_per_segment)
		return -EBADMSG;
	n_slots = (uint64_t)h.n_segments * h.slots_per_segment;
	if (n_slots >= HC_SLOT_NONE ||
	    h.table_bytes != hc_table_bytes(h.n_segments, h.segment_bytes))
		return -EBADMSG;
	/* Longer: killed while it was resized. */
	return h.table_bytes <= size_bytes ? 0 : -EBADMSG;
}

struct hc_table_segment *hc_table_segment(void *image, uint32_t segment)
{
	return (struct hc_table_segment *)((char *)image + HC_TABLE_HEADER_BYTES) + segment;
}

struct hc_table_row *hc_table_row(void *image, uint32_t segment, uint32_t index)
{
	const struct hc_table_header *header = image;
	uint64_t row_i = (uint64_t)segment * header->slots_per_segment + index;

	return (struct hc_table_row *)((char *)image + HC_TABLE_ROWS_AT) + row_i;
}

void hc_table_row_clear(struct hc_table_row *row)
{
	__atomic_fetch_add(&row->generation, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&row->state, HC_SLOT_FREE, __ATOMIC_RELEASE);
}

uint64_t hc_table_segment_sum(const struct hc_table_segment *d)
{
	uint64_t words[4] = {d->n_slots, d->slot_bytes, (uint64_t)d->uid << 32 | d->gid, d->mode};

	return hc_checksum(words, sizeof(words));
}

bool hc_table_segment_known(const struct hc_table_segment *d)
{
	return d->check == hc_table_segment_sum(d);
}

bool hc_table_segment_valid(const struct hc_table_header *header, const struct hc_table_segment *d)
{
	if (d->state != HC_TABLE_SEGMENT_CUT || !hc_table_segment_known(d))
		return false;
	if (!d->slot_bytes || d->slot_bytes % HC_BLOCK_BYTES ||
	    d->slot_bytes > header->segment_bytes)
		return false;
	return d->n_slots == header->segment_bytes / d->slot_bytes;
}

/* The fields that publish writes, without holes. */
struct hc_row_summed {
	uint64_t sequence;
	uint64_t size_bytes;
	uint64_t mtime_ns;
	uint8_t hash[HC_HASH_BYTES];
	uint8_t parent[HC_HASH_BYTES];
	uint32_t space;
	uint32_t series;
	uint32_t depth;
	uint32_t uid;
	uint32_t gid;
	uint32_t mode;
	uint32_t flags;
	uint32_t slot;
};
_Static_assert(sizeof(struct hc_row_summed) == 120, "no padding: it is summed whole");

static uint64_t hc_table_row_sum(const struct hc_table_row *row, uint32_t flags, hc_slot_id slot)
{
	struct hc_row_summed s = {
		.sequence = row->sequence,
		.size_bytes = row->size_bytes,
		.mtime_ns = row->mtime_ns,
		.space = row->space,
		.series = row->series,
		.depth = row->depth,
		.uid = row->uid,
		.gid = row->gid,
		.mode = row->mode,
		.flags = flags & ~HC_SLOT_FLAG_SUMMED,
		.slot = slot,
	};

	memcpy(s.hash, row->hash, sizeof(s.hash));
	memcpy(s.parent, row->parent, sizeof(s.parent));
	return hc_checksum_leaf(&s, sizeof(s));
}

bool hc_table_row_valid(const struct hc_table_segment *d, const struct hc_table_row *row,
			hc_slot_id slot)
{
	if (row->state != HC_SLOT_READY || row->flags & ~HC_SLOT_FLAGS_KNOWN)
		return false;
	if (row->size_bytes > d->slot_bytes || row->depth > HC_DEPTH_MAX)
		return false;
	return row->check == hc_table_row_sum(row, row->flags, slot);
}

void hc_table_row_fill(struct hc_table_row *row, hc_slot_id slot, const struct hc_slot_page *page)
{
	row->sequence = page->sequence;
	row->size_bytes = page->size_bytes;
	row->checksum = page->checksum;
	row->mtime_ns = page->mtime_ns;
	memcpy(row->hash, page->hash.bytes, sizeof(row->hash));
	memcpy(row->parent, page->parent.bytes, sizeof(row->parent));
	row->space = page->space;
	row->series = page->series;
	row->depth = page->depth;
	row->uid = page->uid;
	row->gid = page->gid;
	row->mode = page->mode;
	__atomic_store_n(&row->flags, page->flags, __ATOMIC_RELAXED);
	row->check = hc_table_row_sum(row, page->flags, slot);
}

void hc_table_row_page(const struct hc_table_row *row, struct hc_slot_page *page_p)
{
	struct hc_slot_page page = {
		.sequence = row->sequence,
		.size_bytes = row->size_bytes,
		.checksum = row->checksum,
		.mtime_ns = row->mtime_ns,
		.space = row->space,
		.series = row->series,
		.depth = row->depth,
		.uid = row->uid,
		.gid = row->gid,
		.mode = row->mode,
		.flags = row->flags,
	};

	memcpy(page.hash.bytes, row->hash, sizeof(row->hash));
	memcpy(page.parent.bytes, row->parent, sizeof(row->parent));
	*page_p = page;
}
