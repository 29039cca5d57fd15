/* SPDX-License-Identifier: Apache-2.0 */
/* Names and metadata of page files: see file.h. Pure functions.
 *
 *   user.h   0        32         40     48      51      52        53      56
 *            | parent | checksum | size | depth | flags | version | spare | */
#include <endian.h>
#include <inttypes.h>

#include "model/checksum.h"
#include "store/file-internal.h"

#define HC_XATTR_VERSION 1
#define HC_XATTR_FLAGS   (HC_STORE_PAGE_OPAQUE | HC_STORE_PAGE_UNNAMED)
#define HC_DEPTH_MAX     0xffffffu
#define HC_AT_CHECKSUM   32
#define HC_AT_SIZE       40
#define HC_AT_DEPTH      48
#define HC_AT_FLAGS      51
#define HC_AT_VERSION    52
#define HC_AT_SPARE      53

_Static_assert(HC_AT_SPARE + 3 == HC_XATTR_PAGE_BYTES, "user.h lies on disk");

void hc_xattr_pack(const struct hc_store_page *page, uint8_t out[HC_XATTR_PAGE_BYTES])
{
	uint64_t checksum = htole64(page->checksum);
	uint64_t size = htole64(page->size_bytes);
	uint32_t depth = htole32(page->depth < HC_DEPTH_MAX ? page->depth : HC_DEPTH_MAX);

	memset(out, 0, HC_XATTR_PAGE_BYTES);
	memcpy(out, page->parent.bytes, HC_HASH_BYTES);
	memcpy(out + HC_AT_CHECKSUM, &checksum, 8);
	memcpy(out + HC_AT_SIZE, &size, 8);
	memcpy(out + HC_AT_DEPTH, &depth, 3);
	out[HC_AT_FLAGS] = (uint8_t)(page->flags & HC_XATTR_FLAGS);
	out[HC_AT_VERSION] = HC_XATTR_VERSION;
}

int hc_xattr_unpack(const void *bytes, size_t n, struct hc_store_page *page_p)
{
	const uint8_t *in = bytes;
	uint64_t checksum, size;
	uint32_t depth = 0;

	if (n > HC_AT_VERSION && in[HC_AT_VERSION] > HC_XATTR_VERSION)
		return -EPROTO;
	if (n != HC_XATTR_PAGE_BYTES || in[HC_AT_VERSION] != HC_XATTR_VERSION)
		return -EBADMSG;
	memcpy(&checksum, in + HC_AT_CHECKSUM, 8);
	memcpy(&size, in + HC_AT_SIZE, 8);
	memcpy(&depth, in + HC_AT_DEPTH, 3);
	size = le64toh(size);
	if (!size || size > HC_PAGE_BYTES_MAX)
		return -EBADMSG;
	if (in[HC_AT_FLAGS] & ~HC_XATTR_FLAGS || in[HC_AT_SPARE] || in[HC_AT_SPARE + 1] ||
	    in[HC_AT_SPARE + 2])
		return -EBADMSG;
	memcpy(page_p->parent.bytes, in, HC_HASH_BYTES);
	page_p->checksum = le64toh(checksum);
	page_p->size_bytes = size;
	page_p->depth = le32toh(depth);
	page_p->flags = in[HC_AT_FLAGS];
	return 0;
}

bool hc_file_parse_number(const char *text, uint64_t max, uint64_t *value_p, const char **end_p)
{
	const char *at = text;
	uint64_t value = 0;

	for (; *at >= '0' && *at <= '9'; at++) {
		uint64_t digit = (uint64_t)(*at - '0');

		if (value > (max - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	if (at == text || (*text == '0' && at != text + 1))
		return false;
	*value_p = value;
	*end_p = at;
	return true;
}

int hc_store_file_parse(const char *name, uint32_t *series_p, struct hc_hash *hash_p,
			uint64_t *sequence_p)
{
	uint64_t series, sequence;
	struct hc_hash hash;
	const char *at;

	if (!hc_file_parse_number(name, UINT32_MAX, &series, &at) || *at++ != '-')
		return -EINVAL;
	if (strnlen(at, HC_HASH_DIGITS + 1) <= HC_HASH_DIGITS ||
	    hc_hex_decode(at, hash.bytes, HC_HASH_BYTES))
		return -EINVAL;
	at += HC_HASH_DIGITS;
	if (*at++ != '-' || !hc_file_parse_number(at, UINT64_MAX, &sequence, &at) || *at)
		return -EINVAL;
	*series_p = (uint32_t)series;
	*hash_p = hash;
	*sequence_p = sequence;
	return 0;
}

const char *hc_file_page_path(const struct hc_store_page *page, char path[160])
{
	hc_store_file_path(page, path);
	return path + strlen("pages/");
}

void hc_store_file_path(const struct hc_store_page *page, char path[160])
{
	char hex[HC_HASH_TEXT];

	hc_hash_format(&page->hash, hex);
	snprintf(path, 160, "pages/%.3s/%" PRIu32 "-%s-%" PRIu64, hex, page->series, hex,
		 page->sequence);
}
