/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that the daemon carries out: what it answers, added up; and lists of paths, sent in as
 * many commands as they need. One thread. */
#ifndef HC_TOOL_OPS_H
#define HC_TOOL_OPS_H

#include <limits.h>

#include "tool/tool.h"

struct hc_op {
	struct hc_progress progress;
	uint64_t n_done; /* checked, removed, evicted, pinned, loaded */
	uint64_t bytes;
	uint64_t n_bad;
	uint64_t n_left;
	uint64_t n_kept;
	uint64_t n_missing; /* names that show nothing; each was told */
	uint64_t n_resident;
	uint64_t n_failed;
	uint64_t n_bodies;
	uint64_t n_held;
};

/* One command; an exit status. */
int hc_op_run(const char *mount, const char *command, const char *what,
	      struct hc_op *op) HC_MUST_CHECK;
/* "" or "s". */
const char *hc_plural(uint64_t n);

/* --- path.c --- */
/* Path inside the mount, "" for the mount itself; or an exit status with a message. */
int hc_path_inside(const char *mount, const char *path, char inside[PATH_MAX]) HC_MUST_CHECK;

/* A verb and paths or keys for it. */
struct hc_words {
	const char *mount;
	const char *verb;
	const char *what; /* of the bar */
	struct hc_op *op;
	char *command;
	size_t used;
};
int hc_words_begin(struct hc_words *words, const char *mount, const char *verb, const char *what,
		   struct hc_op *op) HC_MUST_CHECK;
int hc_words_add(struct hc_words *words, const char *path) HC_MUST_CHECK;
/* Sends what is left, and frees. status: of what came before; nothing is sent when it is not 0. */
int hc_words_end(struct hc_words *words, int status) HC_MUST_CHECK;

#endif
