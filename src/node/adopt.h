/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a start's adoption share: adopt.c, adopt_rows.c. Not for others. */
#ifndef HC_NODE_ADOPT_H
#define HC_NODE_ADOPT_H

#include "node/internal.h"

struct hc_adopt {
	struct hc_node *node;
	/* As it was stored; set before the rows are read. */
	struct hc_recency *recency; /* by sequence */
	size_t n_recency;
	uint64_t recency_last; /* highest sequence in it */
	uint32_t stamp_last;
	/* Of one thread. */
	uint64_t n_bad;
	uint32_t space_last; /* priority cache */
	uint8_t priority_last;
	uint32_t dir_last; /* known to be there */
};

/* A catalog row that is not the first of its key: seldom, and read again when all others are in. */
struct hc_adopt_later {
	uint64_t sequence;
	uint8_t *value; /* heap */
	size_t n_bytes;
};
struct hc_adopt_laters {
	pthread_mutex_t lock; /* all below, while the rows are read */
	struct hc_adopt_later *items;
	size_t n, room;
};

/* Chains that are being published at one time. */
#define HC_ADOPT_TAILS 32u

/* The last page of a chain, as far as rows were read. */
struct hc_adopt_tail {
	struct hc_link page; /* number HC_ENTRY_NONE: none */
	struct hc_hash hash; /* of a seam's head: the parent, zero: not known */
	uint32_t series;
	uint32_t depth;
};
struct hc_adopt_tails {
	struct hc_adopt_tail tails[HC_ADOPT_TAILS]; /* a ring */
	uint32_t next;
};

/* What a piece of the table has in common with those before and after it. */
struct hc_adopt_seam {
	uint64_t first; /* sequence */
	uint32_t n_heads;
	struct hc_adopt_tail heads[HC_ADOPT_TAILS]; /* pages that follow one of an earlier piece */
	struct hc_adopt_tails tails;
};
struct hc_adopt_seams {
	pthread_mutex_t lock; /* all below, while the rows are read */
	struct hc_adopt_seam **items;
	size_t n, room;
};

/* adopt_links.c */
void hc_tails_clear(struct hc_adopt_tails *tails);
/* False: what it follows was not seen. */
bool hc_tails_add(struct hc_node *node, struct hc_adopt_tails *tails, const struct hc_entry *entry);
void hc_seam_head(struct hc_adopt_seam *seam, const struct hc_entry *entry);
/* Takes the seam over, from any thread; -ENOMEM: it does not. */
int hc_seams_add(struct hc_adopt_seams *seams, struct hc_adopt_seam *seam) HC_MUST_CHECK;
/* When all are there. */
void hc_seams_link(struct hc_node *node, struct hc_adopt_seams *seams);
void hc_seams_free(struct hc_adopt_seams *seams);

/* Stamp and hits of a page on disk. recency: of its sequence, else NULL or of another. */
void hc_adopt_stamp(const struct hc_adopt *adopt, const struct hc_recency *recency,
		    struct hc_entry *entry);
/* The recency of a sequence, else of the next one there is, else NULL. */
const struct hc_recency *hc_adopt_recency_find(const struct hc_adopt *adopt, uint64_t sequence);
/* The catalog's page rows become entries on disk, on several threads; nothing else of the node
 * runs. -EBADMSG: the catalog is damaged, what could be read is there. */
int hc_adopt_rows(struct hc_adopt *adopt, struct hc_adopt_laters *laters) HC_MUST_CHECK;

#endif
