/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs of catalog values: fields behind a version byte, small numbers in few bytes, then optional
 * text (rows.c has the format). What is read is input: every field is checked, -EBADMSG for
 * impossible ones, -EPROTO for a newer version. What is packed must be possible (permission bits in
 * mode, 24 bits of depth, sizes of pages below 4 GiB, names that are one component): anything else
 * is a programmer's error. Pure functions. */
#ifndef HC_INDEX_ROWS_H
#define HC_INDEX_ROWS_H

#include "model/hash.h"
#include "util/base.h"

#define HC_ROW_BYTES_MAX  4096
#define HC_NAME_BYTES_MAX 255
#define HC_PATH_BYTES_MAX 3072

struct hc_row_page {
	struct hc_hash hash;
	struct hc_hash parent;
	uint64_t size_bytes;
	uint64_t checksum;
	uint64_t mtime_ns;
	uint64_t file;   /* 0: the page's own file (by series, hash, sequence) */
	uint64_t offset; /* of run files; 0 */
	uint32_t series;
	uint32_t depth;
	uint32_t dir;
	uint32_t uid;
	uint32_t gid;
	uint16_t mode;
	uint16_t disk;
	uint16_t flags;                   /* HC_ROW_PAGE_* */
	char name[HC_PATH_BYTES_MAX + 1]; /* opaque pages: path relative to the space; else empty */
};
#define HC_ROW_PAGE_OPAQUE  0x1u
#define HC_ROW_PAGE_UNNAMED 0x2u

struct hc_row_dir {
	uint64_t mtime_ns;
	uint32_t parent;
	uint32_t uid;
	uint32_t gid;
	uint16_t mode;
	char name[HC_NAME_BYTES_MAX + 1];
};

/* Ordinary file; contents in CACHEDIR/files/<id>. */
struct hc_row_file {
	uint64_t size_bytes;
	uint64_t mtime_ns;
	uint32_t dir;
	uint32_t uid;
	uint32_t gid;
	uint16_t mode;
	char name[HC_NAME_BYTES_MAX + 1];
};

struct hc_row_space {
	uint64_t quota_bytes; /* 0: none */
	uint64_t max_age_s;   /* 0: none */
	uint32_t uid;
	uint32_t gid;
	uint16_t mode;
	uint8_t priority;
};

/* Return the packed length; out has HC_ROW_BYTES_MAX bytes. */
size_t hc_row_page_pack(const struct hc_row_page *row, void *out);
size_t hc_row_dir_pack(const struct hc_row_dir *row, void *out);
size_t hc_row_file_pack(const struct hc_row_file *row, void *out);
size_t hc_row_space_pack(const struct hc_row_space *row, void *out);
/* Behind the end of name, row_p stays as it was. */
int hc_row_page_unpack(const void *in, size_t n_bytes, struct hc_row_page *row_p) HC_MUST_CHECK;
/* Where hash and parent (NULL: none) of a packed page row lie, for who wants to know before it is
 * unpacked; says nothing of the rest. */
int hc_row_page_peek(const void *in, size_t n_bytes, const struct hc_hash **hash_p,
		     const struct hc_hash **parent_p) HC_MUST_CHECK;
int hc_row_dir_unpack(const void *in, size_t n_bytes, struct hc_row_dir *row_p) HC_MUST_CHECK;
int hc_row_file_unpack(const void *in, size_t n_bytes, struct hc_row_file *row_p) HC_MUST_CHECK;
int hc_row_space_unpack(const void *in, size_t n_bytes, struct hc_row_space *row_p) HC_MUST_CHECK;

#endif
