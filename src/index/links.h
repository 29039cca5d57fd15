/* SPDX-License-Identifier: Apache-2.0 */
/* Which page follows which: for each entry the number of the page that was published, or opened,
 * after it. A guess for the order of read-ahead and of walks, never for what exists: whoever
 * follows a link compares the sequence of what it finds.
 *
 * A link is *sure* or not: one that was published is sure; one that was only seen becomes sure when
 * it is seen again, and a sure one that misses is kept once. Any thread, no lock: a link is one
 * word. */
#ifndef HC_INDEX_LINKS_H
#define HC_INDEX_LINKS_H

#include "util/base.h"

struct hc_links;

/* An entry and the body it had: the low bits of its sequence. */
struct hc_link {
	uint32_t number; /* HC_ENTRY_NONE: none */
	uint32_t tag;
};

int hc_links_create(struct hc_links **links_p) HC_MUST_CHECK;
void hc_links_destroy(struct hc_links *links);

/* The page after `from`; false: none is known. */
bool hc_links_next(struct hc_links *links, struct hc_link from, struct hc_link *next_p,
		   bool *sure_p);
/* Published one after the other. Without memory there is no link. */
void hc_links_set(struct hc_links *links, struct hc_link from, struct hc_link to);
/* Opened one after the other. */
void hc_links_seen(struct hc_links *links, struct hc_link from, struct hc_link to);
/* The same body, as far as a link can tell. */
bool hc_link_equal(struct hc_link a, struct hc_link b);
uint64_t hc_links_bytes(struct hc_links *links);

#endif
