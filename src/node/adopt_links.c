/* SPDX-License-Identifier: Apache-2.0 */
/* Which page was published after which, as far as the catalog's rows tell: they come in the order
 * of publishing, so a page is taken to follow the last one of its series that was one less deep, or
 * its parent where that is known. Within a piece of the table its thread sees to it; where a chain
 * goes on in the next piece, a seam keeps its ends until all pieces are in. */
#include "node/adopt.h"

void hc_tails_clear(struct hc_adopt_tails *tails)
{
	*tails = (struct hc_adopt_tails){.next = 0};
	for (uint32_t i = 0; i < HC_ADOPT_TAILS; i++)
		tails->tails[i].page.number = HC_ENTRY_NONE;
}

static struct hc_adopt_tail *hc_tails_find(struct hc_adopt_tails *tails, uint32_t series,
					   uint32_t depth, const struct hc_hash *parent)
{
	for (uint32_t i = 1; i <= HC_ADOPT_TAILS; i++) {
		struct hc_adopt_tail *t = &tails->tails[(tails->next - i) % HC_ADOPT_TAILS];

		if (t->page.number != HC_ENTRY_NONE && t->series == series &&
		    t->depth + 1 == depth &&
		    (hc_hash_is_zero(parent) || hc_hash_equal(parent, &t->hash)))
			return t;
	}
	return NULL;
}

bool hc_tails_add(struct hc_node *node, struct hc_adopt_tails *tails, const struct hc_entry *entry)
{
	struct hc_adopt_tail *tail = NULL;
	bool found;

	if (entry->depth)
		tail = hc_tails_find(tails, entry->series, entry->depth, &entry->parent);
	found = tail;
	if (found)
		hc_links_set(node->links, tail->page, hc_entry_link(entry));
	else
		tail = &tails->tails[tails->next++ % HC_ADOPT_TAILS];
	*tail = (struct hc_adopt_tail){hc_entry_link(entry), entry->hash, entry->series,
				       entry->depth};
	return found || !entry->depth;
}

void hc_seam_head(struct hc_adopt_seam *seam, const struct hc_entry *entry)
{
	if (seam->n_heads < HC_ADOPT_TAILS)
		seam->heads[seam->n_heads++] = (struct hc_adopt_tail){
			hc_entry_link(entry), entry->parent, entry->series, entry->depth};
}

static int hc_seam_compare(const void *a, const void *b)
{
	const struct hc_adopt_seam *x = *(struct hc_adopt_seam *const *)a;
	const struct hc_adopt_seam *y = *(struct hc_adopt_seam *const *)b;

	return x->first < y->first ? -1 : x->first > y->first;
}

int hc_seams_add(struct hc_adopt_seams *seams, struct hc_adopt_seam *seam)
{
	int rc = 0;

	pthread_mutex_lock(&seams->lock);
	if (seams->n == seams->room) {
		size_t room = seams->room ? seams->room * 2 : 64;
		struct hc_adopt_seam **items = realloc(seams->items, room * sizeof(*items));

		rc = items ? 0 : -ENOMEM;
		if (items) {
			seams->items = items;
			seams->room = room;
		}
	}
	if (!rc)
		seams->items[seams->n++] = seam;
	pthread_mutex_unlock(&seams->lock);
	return rc;
}

void hc_seams_link(struct hc_node *node, struct hc_adopt_seams *seams)
{
	struct hc_adopt_tails open;

	hc_tails_clear(&open);
	if (seams->n)
		qsort(seams->items, seams->n, sizeof(seams->items[0]), hc_seam_compare);
	for (size_t i = 0; i < seams->n; i++) {
		struct hc_adopt_seam *seam = seams->items[i];

		for (uint32_t k = 0; k < seam->n_heads; k++) {
			const struct hc_adopt_tail *head = &seam->heads[k];
			struct hc_adopt_tail *tail =
				hc_tails_find(&open, head->series, head->depth, &head->hash);

			if (!tail)
				continue;
			hc_links_set(node->links, tail->page, head->page);
			tail->page.number = HC_ENTRY_NONE;
		}
		for (uint32_t k = 0; k < HC_ADOPT_TAILS; k++) {
			const struct hc_adopt_tail *tail =
				&seam->tails.tails[(seam->tails.next + k) % HC_ADOPT_TAILS];

			if (tail->page.number != HC_ENTRY_NONE)
				open.tails[open.next++ % HC_ADOPT_TAILS] = *tail;
		}
	}
}

void hc_seams_free(struct hc_adopt_seams *seams)
{
	for (size_t i = 0; i < seams->n; i++)
		free(seams->items[i]);
	free(seams->items);
}
