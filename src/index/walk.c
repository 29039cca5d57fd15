/* SPDX-License-Identifier: Apache-2.0 */
/* See walk.h. A fixed array of walks, a chained table over them, and a list from the last used to
 * the oldest. */
#include "index/walk.h"

#define HC_WALKS_MAX      4096
#define HC_WALK_PAGES_MAX 4096
#define HC_WALK_IDLE_NS   (HC_NS_PER_S / 2)
#define HC_WALK_NONE      UINT16_MAX
#define HC_WALK_CHAINS    4096 /* power of two */

struct hc_walk {
	uint64_t tree;
	uint64_t last_ns;
	struct hc_hash last;
	uint32_t opener;
	uint32_t stamp;
	uint32_t n_pages;
	uint8_t kind;
	bool skipped; /* verdict on `last` */
	uint16_t chain_next;
	uint16_t newer, older;
};

struct hc_walks {
	pthread_mutex_t lock; /* all below; leaf */
	uint32_t n;
	uint16_t newest, oldest;
	uint16_t chains[HC_WALK_CHAINS];
	struct hc_walk walks[HC_WALKS_MAX];
};

static uint16_t *hc_walk_chain(struct hc_walks *walks, uint8_t kind, uint32_t opener, uint64_t tree)
{
	uint64_t h = (tree ^ (uint64_t)opener << 32 ^ opener ^ kind) * 0x9e3779b97f4a7c15u;

	h = (h ^ (h >> 29)) * 0xd6e8feb86659fd93u;
	return &walks->chains[(h >> 40) & (HC_WALK_CHAINS - 1)];
}

static uint16_t hc_walk_find(struct hc_walks *walks, uint8_t kind, uint32_t opener, uint64_t tree)
{
	uint16_t i = *hc_walk_chain(walks, kind, opener, tree);

	while (i != HC_WALK_NONE) {
		const struct hc_walk *w = &walks->walks[i];

		if (w->kind == kind && w->opener == opener && w->tree == tree)
			break;
		i = w->chain_next;
	}
	return i;
}

static void hc_walk_list_remove(struct hc_walks *walks, uint16_t i)
{
	struct hc_walk *w = &walks->walks[i];

	if (w->newer != HC_WALK_NONE)
		walks->walks[w->newer].older = w->older;
	else
		walks->newest = w->older;
	if (w->older != HC_WALK_NONE)
		walks->walks[w->older].newer = w->newer;
	else
		walks->oldest = w->newer;
}

static void hc_walk_list_push(struct hc_walks *walks, uint16_t i)
{
	struct hc_walk *w = &walks->walks[i];

	w->newer = HC_WALK_NONE;
	w->older = walks->newest;
	if (walks->newest != HC_WALK_NONE)
		walks->walks[walks->newest].newer = i;
	else
		walks->oldest = i;
	walks->newest = i;
}

static void hc_walk_chain_remove(struct hc_walks *walks, uint16_t i)
{
	struct hc_walk *w = &walks->walks[i];
	uint16_t *at = hc_walk_chain(walks, w->kind, w->opener, w->tree);

	while (*at != i)
		at = &walks->walks[*at].chain_next;
	*at = w->chain_next;
}

/* A place for a new walk, in no list. */
static uint16_t hc_walk_take(struct hc_walks *walks)
{
	uint16_t i;

	if (walks->n < HC_WALKS_MAX)
		return (uint16_t)walks->n++;
	i = walks->oldest;
	hc_walk_list_remove(walks, i);
	hc_walk_chain_remove(walks, i);
	return i;
}

static uint16_t hc_walk_make(struct hc_walks *walks, uint8_t kind, uint32_t opener, uint64_t tree)
{
	uint16_t *chain = hc_walk_chain(walks, kind, opener, tree);
	uint16_t i = hc_walk_take(walks);

	walks->walks[i] = (struct hc_walk){
		.kind = kind,
		.opener = opener,
		.tree = tree,
		.chain_next = *chain,
	};
	*chain = i;
	hc_walk_list_push(walks, i);
	return i;
}

void hc_walk_next(struct hc_walks *walks, enum hc_walk_kind kind, uint32_t opener, uint64_t tree,
		  const struct hc_hash *hash, uint32_t page_stamp, uint64_t now_ns,
		  uint32_t (*new_stamp)(void *arg), void *arg, struct hc_walk_step *step_p)
{
	struct hc_walk_step step = {0};
	struct hc_walk *w;
	uint16_t i;

	pthread_mutex_lock(&walks->lock);
	i = hc_walk_find(walks, (uint8_t)kind, opener, tree);
	if (i == HC_WALK_NONE) {
		i = hc_walk_make(walks, (uint8_t)kind, opener, tree);
	} else if (walks->newest != i) {
		hc_walk_list_remove(walks, i);
		hc_walk_list_push(walks, i);
	}
	w = &walks->walks[i];
	step.begins = !w->n_pages || w->n_pages >= HC_WALK_PAGES_MAX || page_stamp == w->stamp ||
		      now_ns > w->last_ns + HC_WALK_IDLE_NS;
	if (step.begins) {
		w->stamp = new_stamp(arg);
		w->n_pages = 0;
	} else {
		step.previous = w->last;
		step.previous_skipped = w->skipped;
	}
	step.stamp = w->stamp;
	step.position = w->n_pages++;
	w->last = *hash;
	w->last_ns = now_ns;
	w->skipped = false;
	pthread_mutex_unlock(&walks->lock);
	*step_p = step;
}

void hc_walk_verdict(struct hc_walks *walks, uint32_t opener, uint64_t tree, bool skipped)
{
	uint16_t i;

	pthread_mutex_lock(&walks->lock);
	i = hc_walk_find(walks, HC_WALK_PUBLISH, opener, tree);
	if (i != HC_WALK_NONE)
		walks->walks[i].skipped = skipped;
	pthread_mutex_unlock(&walks->lock);
}

void hc_walks_rebase(struct hc_walks *walks, uint32_t by)
{
	pthread_mutex_lock(&walks->lock);
	for (uint32_t i = 0; i < walks->n; i++)
		walks->walks[i].stamp -= walks->walks[i].stamp < by ? walks->walks[i].stamp : by;
	pthread_mutex_unlock(&walks->lock);
}

int hc_walks_create(struct hc_walks **walks_p)
{
	struct hc_walks *walks = hc_zalloc(sizeof(*walks));

	if (!walks)
		return -ENOMEM;
	pthread_mutex_init(&walks->lock, NULL);
	walks->newest = HC_WALK_NONE;
	walks->oldest = HC_WALK_NONE;
	for (size_t i = 0; i < HC_WALK_CHAINS; i++)
		walks->chains[i] = HC_WALK_NONE;
	*walks_p = walks;
	return 0;
}

void hc_walks_destroy(struct hc_walks *walks)
{
	if (!walks)
		return;
	pthread_mutex_destroy(&walks->lock);
	free(walks);
}
