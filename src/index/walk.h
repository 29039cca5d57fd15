/* SPDX-License-Identifier: Apache-2.0 */
/* Walks: consecutive opens (or publishes) of one directory tree by one process share one stamp, and
 * their position is the depth where the parent is unknown. A walk ends after 0.5 s idle, at 4,096
 * pages, or when one of its pages is opened again. At most 4,096 walks; the oldest idle one makes
 * room. Any thread; one leaf lock. */
#ifndef HC_INDEX_WALK_H
#define HC_INDEX_WALK_H

#include "index/index.h"

struct hc_walks;

enum hc_walk_kind { HC_WALK_OPEN, HC_WALK_PUBLISH };

int hc_walks_create(struct hc_walks **walks_p) HC_MUST_CHECK;
void hc_walks_destroy(struct hc_walks *walks);

struct hc_walk_step {
	uint32_t stamp;          /* for the page */
	uint32_t position;       /* 0-based place in the walk */
	bool begins;             /* first page of a new walk */
	struct hc_hash previous; /* page before it in the walk; zero at the beginning */
	bool previous_skipped; /* verdict noted for the page before it (publish walks: admission by
				  chain) */
};

/* One more page of opener (tgid) in `tree` (space and series, or directory). page_stamp: the page's
 * stamp before this touch (a page that already carries the walk's stamp ends the walk). new_stamp
 * is called when a new walk begins. */
void hc_walk_next(struct hc_walks *walks, enum hc_walk_kind kind, uint32_t opener, uint64_t tree,
		  const struct hc_hash *hash, uint32_t page_stamp, uint64_t now_ns,
		  uint32_t (*new_stamp)(void *arg), void *arg, struct hc_walk_step *step_p);
/* Notes the admission verdict of the page that the publish walk stands at. */
void hc_walk_verdict(struct hc_walks *walks, uint32_t opener, uint64_t tree, bool skipped);
void hc_walks_rebase(struct hc_walks *walks, uint32_t by);

#endif
