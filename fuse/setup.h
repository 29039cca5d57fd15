/* SPDX-License-Identifier: Apache-2.0 */
/* From options to a node: sizes of "10%" on this machine, checks of directories, limits that SIGHUP
 * changes. Used by main alone, one thread at a time. */
#ifndef HC_FUSE_SETUP_H
#define HC_FUSE_SETUP_H

#include "fuse/options.h"
#include "node/node.h"

/* What the node's configuration points to. */
struct hc_setup {
	struct hc_numa numa;
	uint64_t index_bytes;
};

/* CACHEDIR is there, MOUNTPOINT is free, and none lies inside the other. -errno with a message. */
int hc_setup_check(const struct hc_options *options) HC_MUST_CHECK;
/* Fills config; options and setup must outlive the node. */
int hc_setup_node(const struct hc_options *options, struct hc_setup *setup,
		  struct hc_node_config *config) HC_MUST_CHECK;
/* Limits and spaces, after the start and at SIGHUP. */
int hc_setup_limits(const struct hc_options *options, struct hc_node *node) HC_MUST_CHECK;
/* Says which options changed that only a new start takes over. */
void hc_setup_tell_changes(const struct hc_options *before, const struct hc_options *after);

#endif
