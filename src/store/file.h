/* SPDX-License-Identifier: Apache-2.0 */
/* Store "file": one file per page on one or more data directories, O_DIRECT, xattr metadata.
 *
 *   DATADIR/.hicachefs-disk           uuid, version (text)
 *   DATADIR/pages/<3 hex>/<series>-<64 hex>-<sequence>   page bytes; xattr user.h (56 bytes),
 * opaque: user.n (name) DATADIR/staging/<n>               bodies under construction
 *   DATADIR/quarantine/<file name>    damaged files
 *
 * Threads: per disk one group of readers, one of writers (bounded depth) and one reaper (unlink,
 * rename), so that a hung unlink or write does not slow reads. */
#ifndef HC_STORE_FILE_H
#define HC_STORE_FILE_H

#include "store/store.h"

#define HC_XATTR_PAGE       "user.h"
#define HC_XATTR_NAME       "user.n"
#define HC_XATTR_PAGE_BYTES 56

struct hc_store_file_config {
	const char *const *dirs; /* data directories, absolute */
	uint16_t n_dirs;
	bool init_empty; /* initialise an empty data directory (message); false: refuse with -ENOENT
			    (noinit) */
	uint32_t n_readers; /* per disk; 0: 8 */
	uint32_t n_writers; /* per disk; 0: 4 */
	uint32_t queue_max; /* requests accepted per disk and group; 0: 256 */
};

/* Refuses with a message: a directory that is not ours and not empty, a read-only one, one without
 * user xattrs
 * (-ENOTSUP), a version newer than ours (-EPROTO). O_DIRECT that is not supported (tmpfs) falls
 * back to buffered with one log line. */
int hc_store_file_open(const struct hc_store_file_config *config,
		       struct hc_store **store_p) HC_MUST_CHECK;

/* xattr codec: parent 32, checksum 8, size 8, depth 3, flags 1, version 1, spare 3; little-endian.
 */
void hc_xattr_pack(const struct hc_store_page *page, uint8_t out[HC_XATTR_PAGE_BYTES]);
/* -EBADMSG wrong length or impossible fields, -EPROTO newer version. Fills parent, checksum, size,
 * depth, flags. */
int hc_xattr_unpack(const void *bytes, size_t n, struct hc_store_page *page_p) HC_MUST_CHECK;
/* "<series>-<64 hex>-<sequence>". -EINVAL for a foreign name. */
int hc_store_file_parse(const char *name, uint32_t *series_p, struct hc_hash *hash_p,
			uint64_t *sequence_p) HC_MUST_CHECK;
void hc_store_file_path(const struct hc_store_page *page, char path[160]);

#endif
