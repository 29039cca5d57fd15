/* SPDX-License-Identifier: Apache-2.0 */
/* The files below MOUNT/.hicache: version, config, stats, status, control, spaces/NAME/.... What
 * they say is text for people and scripts; `control` takes commands, one a line, and its answer
 * ends with the line "ok" or "error TEXT". Any thread once node and fs are set. */
#ifndef HC_FUSE_CONTROL_H
#define HC_FUSE_CONTROL_H

#include <pthread.h>
#include <stdatomic.h>

#include "fuse/fs.h"
#include "fuse/options.h"
#include "fuse/prefetch.h"

struct hc_control {
	pthread_mutex_t lock; /* options: SIGHUP replaces them */
	struct hc_options *options;
	struct hc_node *node;
	struct hc_fs *fs;
	struct hc_prefetcher *prefetcher; /* from serving to its end */
	atomic_ullong n_bad_lines;        /* of `prefetch`: names that show no page */
	uint64_t start_ns;                /* of hc_clock_now_ns */
	uint64_t index_bytes;             /* what index_memory came to */
};

/* For hc_fs_options.vfiles; vfiles_arg is the struct hc_control. */
extern const struct hc_vfile hc_control_files[];

/* One command, as written to `control`. 0 or -errno; the answer tells it, too. */
int hc_control_command(struct hc_control *control, const char *line, FILE *answer,
		       const atomic_bool *cancel_p) HC_MUST_CHECK;
/* The status as one JSON object in one line. */
int hc_control_status(struct hc_control *control, FILE *out) HC_MUST_CHECK;
void hc_control_stats(struct hc_control *control, FILE *out);
/* Everything as Prometheus text (metrics.c). */
int hc_control_metrics(struct hc_control *control, FILE *out) HC_MUST_CHECK;

/* Name of the root's space below spaces/: "." cannot be one. */
#define HC_CONTROL_ROOT_SPACE "@root"

#endif
