/* SPDX-License-Identifier: Apache-2.0 */
/* Whole reads and writes, and small files. Any thread. EINTR is retried; errors are returned, not
 * logged (the caller knows what the file was). */
#ifndef HC_UTIL_IO_H
#define HC_UTIL_IO_H

#include <sys/types.h>

#include "util/base.h"

/* Reads up to n bytes at offset; *got_p < n only at the end of the file. */
int hc_pread_full(int fd, void *buf, size_t n, off_t offset, size_t *got_p) HC_MUST_CHECK;
int hc_pwrite_full(int fd, const void *buf, size_t n, off_t offset) HC_MUST_CHECK;
/* Reads a small file relative to dirfd wholly into a NUL-terminated heap buffer (*text_p, caller
 * frees). -EFBIG above max_bytes. */
int hc_file_read(int dirfd, const char *path, size_t max_bytes, char **text_p,
		 size_t *n_p) HC_MUST_CHECK;
/* Replaces a small file: temporary beside it, fsync, rename, fsync of the directory. */
int hc_file_replace(int dirfd, const char *path, const void *data, size_t n,
		    int mode) HC_MUST_CHECK;
/* mkdir -p below dirfd; existing directories are success. */
int hc_mkdir_parents(int dirfd, const char *path, int mode) HC_MUST_CHECK;

#endif
