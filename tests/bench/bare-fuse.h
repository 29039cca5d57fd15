/* SPDX-License-Identifier: Apache-2.0 */
/* The least that a FUSE daemon can do for files that lie in memory: what bench-mount is compared
 * with. One flat directory, files of at most one slot, direct I/O, replies straight from the arena.
 * Its own process; ends when it is unmounted. */
#ifndef HC_BENCH_BARE_FUSE_H
#define HC_BENCH_BARE_FUSE_H

#include "util/base.h"

#define BARE_FILES_MAX 256u

struct bare_config {
	const char *mountpoint;
	char *arena;         /* n_files slots side by side, populated */
	uint64_t slot_bytes; /* a multiple of 64 KiB */
	uint32_t n_files;    /* <= BARE_FILES_MAX */
	uint32_t n_threads;
};

/* Mounts and serves until somebody unmounts. 0 or -errno, with a message. */
int bare_fuse_run(const struct bare_config *config) HC_MUST_CHECK;

#endif
