/* SPDX-License-Identifier: Apache-2.0 */
/* Walks: what an engine that only knows files does with one prompt. Its consecutive opens in one
 * tree (a series) share one stamp, and so do the publishes behind them: what is opened and
 * published together is evicted together, the end before the beginning.
 *
 * An opened page goes on with the walk of its process that stood before it, by the links of
 * publishes and of earlier opens (index/links.h), so that prompts opened in turns stay apart; else
 * with the last one of its thread. A walk ends
 *   after 0.5 s idle; but the first publishes behind opens may come up to a minute later, for the
 *     engine computes in between;
 *   at 4,096 pages: its pages get a new stamp from there on, everything else goes on;
 *   when one of its pages is opened again, or a first page (depth 0) that does not follow.
 * Publishes: the page's depth is that of the page before it plus 1.
 *
 * Read-ahead: the second page that is opened as the links say begins it. A step then tells from
 * where and how many bytes are to be read ahead; the window doubles from 2 pages to the limit each
 * time and is dropped at a page that does not follow.
 *
 * At most 4,096 walks, 8 for one process and tree; the one idle for longest makes room. Any thread;
 * one leaf lock. */
#ifndef HC_INDEX_WALK_H
#define HC_INDEX_WALK_H

#include "index/index.h"
#include "index/links.h"

struct hc_walks;

/* links outlives it. ahead_max_bytes: of a window; 0: no read-ahead. */
int hc_walks_create(struct hc_links *links, uint64_t ahead_max_bytes,
		    struct hc_walks **walks_p) HC_MUST_CHECK;
void hc_walks_destroy(struct hc_walks *walks);

struct hc_walk_who {
	uint32_t opener; /* tgid */
	uint32_t thread; /* 0: not known */
	uint64_t tree;   /* series, or space and series */
};

/* One walk for a while. */
struct hc_walk_id {
	uint32_t walk;
	uint32_t generation;
};

struct hc_walk_page {
	struct hc_link page;
	uint32_t stamp; /* before this touch */
	uint32_t depth;
	uint32_t size_bytes;
	bool ahead; /* read ahead, and not opened since */
};

struct hc_walk_step {
	struct hc_walk_id id;
	uint32_t stamp;        /* for the page */
	uint32_t position;     /* of a publish: its depth */
	bool begins;           /* first page of a new walk */
	bool follows;          /* as the links say */
	bool previous_skipped; /* publishes: the verdict on the page published before it */
	/* Opens: read so much ahead behind that page; hc_walk_ahead_done must follow. */
	uint64_t ahead_bytes;
	struct hc_link ahead_from;
};

/* new_stamp is called where a stamp is wanted. want_ahead: read-ahead may be asked for. */
void hc_walk_open(struct hc_walks *walks, const struct hc_walk_who *who,
		  const struct hc_walk_page *page, bool want_ahead, uint64_t now_ns,
		  uint32_t (*new_stamp)(void *arg), void *arg, struct hc_walk_step *step_p);
/* bytes of pages behind ahead_from were looked at, up to tail; 0: no page follows, or none could be
 * read. */
void hc_walk_ahead_done(struct hc_walks *walks, const struct hc_walk_step *step,
			struct hc_link tail, uint64_t bytes);
/* A page is about to be published. */
void hc_walk_publish(struct hc_walks *walks, const struct hc_walk_who *who, uint64_t now_ns,
		     uint32_t (*new_stamp)(void *arg), void *arg, struct hc_walk_step *step_p);
/* It was; skipped: the verdict on its backup. */
void hc_walk_published(struct hc_walks *walks, const struct hc_walk_step *step, struct hc_link page,
		       bool skipped);
void hc_walks_rebase(struct hc_walks *walks, uint32_t by);

#endif
