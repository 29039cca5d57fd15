/* SPDX-License-Identifier: Apache-2.0 */
/* What comes from a data directory: the xattr user.h, the name of a page file, the identity's
 * numbers. Any bytes are read exactly or refused; a refusal leaves the output alone; what is
 * accepted is what packing gives back. And the attributes of a page as a catalog row has them: what
 * passes the check can be read and changed. Input: first byte modulo 3: 0 an xattr, 1 a file name,
 * 2 a row of attributes. */
#include "fuzz.h"

#include "model/attrset.h"
#include "model/checksum.h"
#include "store/file-internal.h"

static void check_xattr(const uint8_t *data, size_t size)
{
	struct hc_store_page page, before;
	uint8_t back[HC_XATTR_PAGE_BYTES];
	uint8_t *exact = malloc(size ? size : 1);
	int rc;

	if (!exact)
		return;
	/* A copy of the exact size: a read beyond it is found. */
	memcpy(exact, data, size);
	memset(&page, 0x5a, sizeof(page));
	before = page;
	rc = hc_xattr_unpack(exact, size, &page);
	hc_assert(rc == 0 || rc == -EBADMSG || rc == -EPROTO);
	if (rc) {
		hc_assert(!memcmp(&page, &before, sizeof(page)));
	} else {
		hc_assert(size == HC_XATTR_PAGE_BYTES);
		hc_assert(page.size_bytes && page.size_bytes <= HC_PAGE_BYTES_MAX);
		hc_assert(page.depth <= 0xffffff);
		hc_xattr_pack(&page, back);
		hc_assert(!memcmp(back, exact, sizeof(back)));
	}
	free(exact);
}

static void check_name(const uint8_t *data, size_t size)
{
	struct hc_store_page page = {.series = 42, .sequence = 42};
	char *name = malloc(size + 1);
	char path[160];

	if (!name)
		return;
	memcpy(name, data, size);
	name[size] = 0;
	if (hc_store_file_parse(name, &page.series, &page.hash, &page.sequence)) {
		hc_assert(page.series == 42 && page.sequence == 42 && hc_hash_is_zero(&page.hash));
	} else {
		/* One name for one page: else a file could not be found, or be found twice. */
		hc_assert(!strcmp(hc_file_page_path(&page, path) + strlen("fff/"), name));
	}
	free(name);
}

static void check_attrs(const uint8_t *data, size_t size)
{
	struct hc_attrset set;
	char name[HC_ATTR_NAME_BYTES];
	size_t at = 0, n, n_attrs = 0;
	const void *value;

	if (hc_attrset_check(data, size) || hc_attrset_copy(data, size, &set))
		return;
	while (hc_attrset_next(&set, &at, name, &value, &n)) {
		const void *found = hc_attrset_find(&set, name, &n);

		hc_assert(found == value);
		n_attrs++;
	}
	hc_assert(at == size);
	for (; n_attrs; n_attrs--) {
		at = 0;
		hc_assert(hc_attrset_next(&set, &at, name, &value, &n));
		hc_assert(!hc_attrset_set(&set, name, "", 0, false, true));
		hc_assert(!hc_attrset_check(set.bytes, set.n_bytes));
		hc_assert(!hc_attrset_remove(&set, name));
	}
	hc_assert(!set.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] % 3 == 2)
		check_attrs(data + 1, size - 1);
	else if (data[0] % 3)
		check_name(data + 1, size - 1);
	else
		check_xattr(data + 1, size - 1);
	return 0;
}
