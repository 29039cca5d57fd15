/* SPDX-License-Identifier: Apache-2.0 */
/* A slot table that a restart finds: any bytes are refused, or read without leaving the image, and
 * what is believed has possible values. The input is a table image whose sparse rows are cut short:
 * a header, then descriptors, then rows, one after the other, each laid where the table has it.
 * Sums are put right when the first byte says so, so that mutations get past them. */
#include "fuzz.h"

#include "model/checksum.h"
#include "pool/table.h"

#define SEGMENTS_MOST 2
#define SEGMENT_BYTES (2 * HC_MIB)

enum { FIX_HEADER = 1, FIX_SEGMENTS = 2, FIX_ROWS = 4 };

/* Bytes as they come, zero after the end. */
struct input {
	const uint8_t *data;
	size_t size;
};

static void take(struct input *in, void *to, size_t n)
{
	size_t got = n < in->size ? n : in->size;

	memset(to, 0, n);
	memcpy(to, in->data, got);
	in->data += got;
	in->size -= got;
}

static void check_row(const struct hc_table_header *header, void *image, uint32_t segment,
		      uint32_t index)
{
	const struct hc_table_segment *d = hc_table_segment(image, segment);
	struct hc_table_row *row = hc_table_row(image, segment, index);
	hc_slot_id slot = segment * header->slots_per_segment + index;
	struct hc_slot_page page, again;
	struct hc_table_row copy;

	if (!hc_table_row_valid(d, row, slot))
		return;
	hc_assert(row->state == HC_SLOT_READY && row->size_bytes <= d->slot_bytes);
	hc_assert(!hc_table_row_valid(d, row, slot + 1));
	hc_table_row_page(row, &page);
	copy = *row;
	hc_table_row_fill(&copy, slot, &page);
	hc_assert(hc_table_row_valid(d, &copy, slot));
	hc_table_row_page(&copy, &again);
	hc_assert(!memcmp(&page.hash, &again.hash, sizeof(page.hash)) &&
		  page.sequence == again.sequence && page.size_bytes == again.size_bytes &&
		  page.flags == again.flags);
	hc_table_row_clear(&copy);
	hc_assert(copy.state == HC_SLOT_FREE && copy.generation == row->generation + 1);
}

static void check_segment(struct hc_table_header *header, void *image, uint32_t segment)
{
	const struct hc_table_segment *d = hc_table_segment(image, segment);

	if (!hc_table_segment_valid(header, d))
		return;
	hc_assert(hc_table_segment_known(d));
	hc_assert(d->n_slots && d->n_slots <= header->slots_per_segment);
	hc_assert(d->n_slots * d->slot_bytes <= header->segment_bytes);
	for (uint32_t i = 0; i < d->n_slots && i < 64; i++)
		check_row(header, image, segment, i);
}

/* Rows get a sum that is right, as publish would write it. */
static void fix_rows(void *image, uint32_t segment)
{
	for (uint32_t i = 0; i < 64; i++) {
		struct hc_table_row *row = hc_table_row(image, segment, i);
		struct hc_slot_page page;

		hc_table_row_page(row, &page);
		hc_table_row_fill(row, segment * (uint32_t)(SEGMENT_BYTES / HC_BLOCK_BYTES) + i,
				  &page);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	uint64_t image_bytes = hc_table_bytes(SEGMENTS_MOST, SEGMENT_BYTES);
	struct hc_table_header *header;
	uint8_t fix;
	char *image;
	int rc;

	/* First as it is: nothing beyond the input may be read. */
	rc = hc_table_check(data, size);
	hc_assert(rc == -EBADMSG || rc == -EPROTO || size >= sizeof(*header));
	take(&in, &fix, 1);
	image = calloc(1, image_bytes);
	if (!image)
		return 0;
	header = (struct hc_table_header *)image;
	take(&in, image, sizeof(*header));
	if (fix & FIX_HEADER)
		hc_table_header_fill(header, header->uuid, header->boot_id,
				     1 + header->n_segments % SEGMENTS_MOST, SEGMENT_BYTES);
	for (uint32_t s = 0; s < SEGMENTS_MOST; s++) {
		struct hc_table_segment *d = hc_table_segment(image, s);

		take(&in, d, sizeof(*d));
		if (fix & FIX_SEGMENTS)
			d->check = hc_table_segment_sum(d);
	}
	rc = hc_table_check(image, image_bytes);
	hc_assert(rc == 0 || rc == -EBADMSG || rc == -EPROTO);
	hc_assert(rc == 0 || !(fix & FIX_HEADER));
	/* An image that is accepted has all of its rows. */
	if (!rc)
		hc_assert(hc_table_bytes(header->n_segments, header->segment_bytes) <= image_bytes);
	for (uint32_t s = 0; !rc && s < header->n_segments; s++) {
		for (uint32_t i = 0; in.size && i < 4; i++)
			take(&in, hc_table_row(image, s, i), sizeof(struct hc_table_row));
		if (fix & FIX_ROWS)
			fix_rows(image, s);
		check_segment(header, image, s);
	}
	free(image);
	return 0;
}
