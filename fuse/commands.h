/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of `control` share: the call, its words, and the pages that words name. Used by
 * control.c and commands.c alone. */
#ifndef HC_FUSE_COMMANDS_H
#define HC_FUSE_COMMANDS_H

#include "fuse/control.h"

struct hc_command_call {
	struct hc_control *control;
	char *args; /* rest of the line, words to be cut off */
	FILE *answer;
	const atomic_bool *cancel_p;
	uint64_t next_ns; /* of progress */
	char why[512];    /* of an error, when it is not the errno's text */
};

/* NULL: no more. */
char *hc_call_word(struct hc_command_call *call);
void hc_call_progress(struct hc_command_call *call, uint64_t done, uint64_t total);
int hc_call_no_words(struct hc_command_call *call) HC_MUST_CHECK;
/* A word that is a number of seconds from 1 to 86400, else `seconds` as it is. */
int hc_call_seconds(struct hc_command_call *call, const char *command,
		    uint64_t *seconds_p) HC_MUST_CHECK;
/* Writes what is dirty, telling progress. -ETIMEDOUT, -ENOSPC, -EIO; *n_left_p pages are left. */
int hc_call_sync(struct hc_command_call *call, uint64_t deadline_ns,
		 uint64_t *n_left_p) HC_MUST_CHECK;

int hc_command_evict(struct hc_command_call *call) HC_MUST_CHECK;
int hc_command_pin(struct hc_command_call *call) HC_MUST_CHECK;
int hc_command_unpin(struct hc_command_call *call) HC_MUST_CHECK;
int hc_command_prefetch(struct hc_command_call *call) HC_MUST_CHECK;
int hc_command_series(struct hc_command_call *call) HC_MUST_CHECK;
int hc_command_drain(struct hc_command_call *call) HC_MUST_CHECK;

/* Declares a series of a space by its pattern or number; why tells what is wrong. */
int hc_series_declare(struct hc_control *control, const struct hc_space_info *space,
		      const char *series, const char *kvspec, char *why,
		      size_t why_bytes) HC_MUST_CHECK;

/* A line of `prefetch`: queues the page, or all pages of the directory. -ENOENT with *why_p (a
 * constant text); -EAGAIN: the queue was full until the deadline. */
int hc_prefetch_line(struct hc_control *control, char *text, uint64_t deadline_ns,
		     const char **why_p) HC_MUST_CHECK;

/* What a word names: a page, by its path below the mount or its key SERIES-HASH, or a directory. */
enum hc_target_kind { HC_TARGET_PAGE, HC_TARGET_DIR };

struct hc_target {
	enum hc_target_kind kind;
	struct hc_key key;
	uint32_t dir;
};

/* text is changed. -ENOENT and the like with *why_p, a constant text. */
int hc_target_find(struct hc_control *control, char *text, struct hc_target *target_p,
		   const char **why_p) HC_MUST_CHECK;

#endif
