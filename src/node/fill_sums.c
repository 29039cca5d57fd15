/* SPDX-License-Identifier: Apache-2.0 */
/* See fill_sums.h. */
#include "node/fill_sums.h"

#include "model/checksum.h"

void hc_fill_sums_init(struct hc_fill_sums *sums, uint64_t max_bytes)
{
	memset(sums, 0, sizeof(*sums));
	sums->max_bytes = hc_min_u64(max_bytes, HC_PAGE_BYTES_MAX);
}

void hc_fill_sums_fini(struct hc_fill_sums *sums)
{
	free(sums->leaves);
	free(sums->known);
	free(sums->carry);
	hc_fill_sums_init(sums, sums->max_bytes);
}

void hc_fill_sums_reset(struct hc_fill_sums *sums)
{
	sums->n_changes++;
	if (sums->room)
		memset(sums->known, 0, sums->room);
	sums->end = 0;
	sums->carry_bytes = 0;
}

/* Room for the leaves of [0, end). */
static bool make_room(struct hc_fill_sums *sums, uint64_t end)
{
	size_t n = hc_checksum_n_leaves(end), room = sums->room ? sums->room : 16;
	uint64_t *leaves;
	uint8_t *known;

	if (n <= sums->room)
		return true;
	while (room < n)
		room *= 2;
	leaves = realloc(sums->leaves, room * sizeof(*leaves));
	if (!leaves)
		return false;
	sums->leaves = leaves;
	known = realloc(sums->known, room);
	if (!known)
		return false;
	sums->known = known;
	memset(known + sums->room, 0, room - sums->room);
	sums->room = room;
	return true;
}

static void set(struct hc_fill_sums *sums, size_t leaf_i, const void *data)
{
	sums->leaves[leaf_i] = hc_checksum_leaf(data, HC_LEAF_BYTES);
	sums->known[leaf_i] = 1;
}

/* The next part of a leaf in a file. */
static void add_carry(struct hc_fill_sums *sums, size_t leaf_i, size_t at, const void *data,
		      size_t n)
{
	if (!at && !sums->carry)
		sums->carry = malloc(HC_LEAF_BYTES);
	if (!sums->carry)
		return;
	if (at && (sums->carry_leaf != leaf_i || sums->carry_bytes != at))
		return;
	memcpy(sums->carry + at, data, n);
	sums->carry_leaf = leaf_i;
	sums->carry_bytes = at + n;
	if (sums->carry_bytes == HC_LEAF_BYTES) {
		set(sums, leaf_i, sums->carry);
		sums->carry_bytes = 0;
	}
}

/* A write inside one leaf. */
static void write_leaf(struct hc_fill_sums *sums, size_t leaf_i, size_t at, const void *data,
		       size_t n, const char *memory, bool in_order)
{
	sums->known[leaf_i] = 0;
	if (n == HC_LEAF_BYTES)
		set(sums, leaf_i, data);
	else if (in_order && memory && at + n == HC_LEAF_BYTES)
		set(sums, leaf_i, memory + leaf_i * HC_LEAF_BYTES);
	else if (in_order && !memory)
		add_carry(sums, leaf_i, at, data, n);
	if ((!in_order || n == HC_LEAF_BYTES) && sums->carry_bytes && sums->carry_leaf == leaf_i)
		sums->carry_bytes = 0;
}

void hc_fill_sums_write(struct hc_fill_sums *sums, const void *data, size_t n, uint64_t offset,
			const void *memory, bool failed)
{
	bool in_order = offset == sums->end && !failed;
	const char *from = data;

	sums->n_changes++;
	/* Too long for a page, or no memory: every leaf that is not known is read back. */
	if (offset + n > sums->max_bytes || !make_room(sums, offset + n)) {
		hc_fill_sums_reset(sums);
		return;
	}
	if (in_order)
		sums->end = offset + n;
	else if (failed)
		sums->end = hc_min_u64(sums->end, offset);
	while (n) {
		size_t leaf_i = (size_t)(offset / HC_LEAF_BYTES);
		size_t at = (size_t)(offset % HC_LEAF_BYTES);
		size_t part = (size_t)hc_min_u64(n, HC_LEAF_BYTES - at);

		if (failed) {
			sums->known[leaf_i] = 0;
			sums->carry_bytes = 0;
		} else {
			write_leaf(sums, leaf_i, at, from, part, memory, in_order);
		}
		from += part;
		offset += part;
		n -= part;
	}
}

bool hc_fill_sums_leaf(struct hc_fill_sums *sums, uint64_t n_changes, uint64_t offset,
		       const void *leaf)
{
	if (sums->n_changes != n_changes)
		return false;
	if (offset + HC_LEAF_BYTES <= sums->max_bytes && make_room(sums, offset + HC_LEAF_BYTES))
		set(sums, (size_t)(offset / HC_LEAF_BYTES), leaf);
	return true;
}

void hc_fill_sums_truncate(struct hc_fill_sums *sums, uint64_t size_bytes)
{
	sums->n_changes++;
	for (size_t i = (size_t)(size_bytes / HC_LEAF_BYTES); i < sums->room; i++)
		sums->known[i] = 0;
	sums->end = hc_min_u64(sums->end, size_bytes);
	if ((uint64_t)sums->carry_leaf * HC_LEAF_BYTES + sums->carry_bytes > size_bytes)
		sums->carry_bytes = 0;
}

static int sum_leaf(struct hc_fill_sums *sums, size_t leaf_i, size_t n, const char *memory,
		    int (*read)(void *, void *, size_t, uint64_t), void *arg, char *buf)
{
	uint64_t offset = (uint64_t)leaf_i * HC_LEAF_BYTES;
	const char *data = buf;
	int err = 0;

	if (memory)
		data = memory + offset;
	else if (sums->carry_bytes == n && sums->carry_leaf == leaf_i)
		data = sums->carry;
	else
		err = read(arg, buf, n, offset);
	if (!err)
		sums->leaves[leaf_i] = hc_checksum_leaf(data, n);
	return err;
}

int hc_fill_sums_fold(struct hc_fill_sums *sums, uint64_t size_bytes, const void *memory,
		      int (*read)(void *arg, void *buf, size_t n, uint64_t offset), void *arg,
		      uint64_t *checksum_p)
{
	hc_autofree char *buf = memory ? NULL : malloc(HC_LEAF_BYTES);
	size_t n_leaves = hc_checksum_n_leaves(size_bytes);
	int err = (!memory && !buf) || !make_room(sums, size_bytes) ? -ENOMEM : 0;

	for (size_t i = 0; i < n_leaves && !err; i++) {
		size_t n =
			(size_t)hc_min_u64(HC_LEAF_BYTES, size_bytes - (uint64_t)i * HC_LEAF_BYTES);

		/* Only whole leaves are known. */
		if (n < HC_LEAF_BYTES || !sums->known[i])
			err = sum_leaf(sums, i, n, memory, read, arg, buf);
	}
	if (!err)
		*checksum_p = hc_checksum_fold(sums->leaves, size_bytes);
	return err;
}
