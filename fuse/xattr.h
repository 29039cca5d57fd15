/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes that are computed: user.hicache.* of pages and directories, as readable text. Nothing
 * is kept here. */
#ifndef HC_FUSE_XATTR_H
#define HC_FUSE_XATTR_H

#include "fuse/internal.h"
#include "model/kvspec.h"

#define HC_XATTR_PREFIX "hicache."
/* A series' pattern or specification is the longest. */
#define HC_XATTR_VALUE_BYTES (HC_PATTERN_BYTES + HC_KVSPEC_TEXT_BYTES)

/* The i-th name (without user.hicache.) that a listing of a page shows where it has a value; NULL
 * at the end. Those of directories, and hints, are answered by name only: what a copy sets again
 * must not turn what was computed into a wish. */
const char *hc_xattr_listed(size_t i);
/* -ENODATA: there is none of that name, or not for this. */
int hc_xattr_compute(struct hc_fs *fs, const struct hc_fview *view, const char *name,
		     char value[HC_XATTR_VALUE_BYTES]) HC_MUST_CHECK;

#endif
