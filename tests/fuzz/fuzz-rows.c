/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the catalog as they may lie on a damaged disk: read or refused; a refused row leaves the
 * output alone, and a row that is read has exactly the bytes that packing it gives. The first byte
 * picks the kind of row. */
#include "fuzz.h"

#include "index/rows.h"

static uint8_t packed[HC_ROW_BYTES_MAX];

static void check(int rc, size_t n_packed, const uint8_t *data, size_t size)
{
	if (rc)
		hc_assert(rc == -EBADMSG || rc == -EPROTO);
	else
		hc_assert(n_packed == size && !memcmp(packed, data, size));
}

static void check_page(const uint8_t *data, size_t size)
{
	static struct hc_row_page row;
	int rc;

	memset(&row, 0x5a, sizeof(row));
	rc = hc_row_page_unpack(data, size, &row);
	check(rc, rc ? 0 : hc_row_page_pack(&row, packed), data, size);
	hc_assert(!rc || row.name[0] == 0x5a);
}

static void check_dir(const uint8_t *data, size_t size)
{
	struct hc_row_dir row;
	int rc;

	memset(&row, 0x5a, sizeof(row));
	rc = hc_row_dir_unpack(data, size, &row);
	check(rc, rc ? 0 : hc_row_dir_pack(&row, packed), data, size);
	hc_assert(!rc || row.parent == 0x5a5a5a5a);
	hc_assert(rc || !strchr(row.name, '/'));
}

static void check_file(const uint8_t *data, size_t size)
{
	struct hc_row_file row;
	int rc;

	memset(&row, 0x5a, sizeof(row));
	rc = hc_row_file_unpack(data, size, &row);
	check(rc, rc ? 0 : hc_row_file_pack(&row, packed), data, size);
	hc_assert(!rc || row.dir == 0x5a5a5a5a);
	hc_assert(rc || (row.name[0] && !strchr(row.name, '/') && strcmp(row.name, "..")));
}

static void check_space(const uint8_t *data, size_t size)
{
	struct hc_row_space row;
	int rc;

	memset(&row, 0x5a, sizeof(row));
	rc = hc_row_space_unpack(data, size, &row);
	check(rc, rc ? 0 : hc_row_space_pack(&row, packed), data, size);
	hc_assert(!rc || row.gid == 0x5a5a5a5a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	switch (data[0] % 4) {
	case 0:
		check_page(data + 1, size - 1);
		break;
	case 1:
		check_dir(data + 1, size - 1);
		break;
	case 2:
		check_file(data + 1, size - 1);
		break;
	default:
		check_space(data + 1, size - 1);
	}
	return 0;
}
