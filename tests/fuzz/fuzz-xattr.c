/* SPDX-License-Identifier: Apache-2.0 */
/* What comes from a data directory: the xattr user.h, the name of a page file, the identity's
 * numbers. Any bytes are read exactly or refused; a refusal leaves the output alone; what is
 * accepted is what packing gives back. Input: first byte even: an xattr; odd: a file name. */
#include "fuzz.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] & 1)
		check_name(data + 1, size - 1);
	else
		check_xattr(data + 1, size - 1);
	return 0;
}
