/* SPDX-License-Identifier: Apache-2.0 */
/* See walk.h. A fixed array of walks, a chained table over them by process and tree, and a list
 * from the last used to the oldest. */
#include "index/walk.h"

#define HC_WALKS_MAX       4096
#define HC_WALKS_OF_ONE    8 /* of one process in one tree */
#define HC_WALK_PAGES_MAX  4096
#define HC_WALK_IDLE_NS    (HC_NS_PER_S / 2)
#define HC_WALK_COMPUTE_NS (60 * HC_NS_PER_S)
#define HC_WALK_NONE       UINT16_MAX
#define HC_WALK_CHAINS     4096 /* power of two */
#define HC_WALK_DEPTH_MAX  ((1u << 24) - 1)

struct hc_walk {
	uint64_t tree;
	uint64_t last_ns;
	uint64_t used; /* counts steps: newest first */
	struct hc_link last;
	uint32_t opener;
	uint32_t thread;
	uint32_t generation;
	uint32_t stamp;
	uint32_t n_pages; /* with this stamp */
	uint32_t depth;   /* of the page that is published next */
	bool published;   /* the last step was a publish */
	bool skipped;     /* verdict on `last` */
	/* read-ahead */
	bool ahead_busy;
	uint32_t n_follow; /* pages in a row that followed */
	struct hc_link tail;
	uint64_t ahead_bytes;  /* between `last` and `tail` */
	uint64_t window_bytes; /* of the last request that found something; 0: none */
	uint16_t chain_next;
	uint16_t newer, older;
};

struct hc_walks {
	struct hc_links *links;
	uint64_t ahead_max_bytes;
	pthread_mutex_t lock; /* all below; leaf */
	uint64_t n_steps;
	uint32_t generation;
	uint32_t n;
	uint16_t newest, oldest;
	uint16_t chains[HC_WALK_CHAINS];
	struct hc_walk walks[HC_WALKS_MAX];
};

static const struct hc_link no_link = {.number = HC_ENTRY_NONE};

static uint16_t *hc_walk_chain(struct hc_walks *walks, uint32_t opener, uint64_t tree)
{
	uint64_t h = (tree ^ (uint64_t)opener << 32 ^ opener) * 0x9e3779b97f4a7c15u;

	h = (h ^ (h >> 29)) * 0xd6e8feb86659fd93u;
	return &walks->chains[(h >> 40) & (HC_WALK_CHAINS - 1)];
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
	uint16_t *at = hc_walk_chain(walks, w->opener, w->tree);

	while (*at != i)
		at = &walks->walks[*at].chain_next;
	*at = w->chain_next;
}

/* Every walk of one process and tree: i from begin until HC_WALK_NONE. */
static uint16_t hc_walk_next_of(struct hc_walks *walks, const struct hc_walk_who *who, uint16_t i)
{
	while (i != HC_WALK_NONE &&
	       (walks->walks[i].opener != who->opener || walks->walks[i].tree != who->tree))
		i = walks->walks[i].chain_next;
	return i;
}

#define hc_walk_each(walks, who, i)                                                           \
	for (uint16_t i = hc_walk_next_of(walks, who,                                         \
					  *hc_walk_chain(walks, (who)->opener, (who)->tree)); \
	     (i) != HC_WALK_NONE; (i) = hc_walk_next_of(walks, who, (walks)->walks[i].chain_next))

/* A place for a new walk, in no list. */
static uint16_t hc_walk_take(struct hc_walks *walks, const struct hc_walk_who *who)
{
	uint16_t oldest = HC_WALK_NONE;
	unsigned n = 0;

	hc_walk_each(walks, who, i)
	{
		n++;
		if (oldest == HC_WALK_NONE || walks->walks[i].used < walks->walks[oldest].used)
			oldest = i;
	}
	if (n < HC_WALKS_OF_ONE) {
		if (walks->n < HC_WALKS_MAX)
			return (uint16_t)walks->n++;
		oldest = walks->oldest;
	}
	hc_walk_list_remove(walks, oldest);
	hc_walk_chain_remove(walks, oldest);
	return oldest;
}

static struct hc_walk *hc_walk_make(struct hc_walks *walks, const struct hc_walk_who *who,
				    uint32_t stamp)
{
	uint16_t i = hc_walk_take(walks, who);
	uint16_t *chain = hc_walk_chain(walks, who->opener, who->tree);

	walks->walks[i] = (struct hc_walk){
		.opener = who->opener,
		.tree = who->tree,
		.stamp = stamp,
		.generation = ++walks->generation,
		.last = no_link,
		.tail = no_link,
		.chain_next = *chain,
	};
	*chain = i;
	hc_walk_list_push(walks, i);
	return &walks->walks[i];
}

static bool hc_walk_live(const struct hc_walk *w, uint64_t now_ns)
{
	return now_ns <= w->last_ns + HC_WALK_IDLE_NS;
}

static bool hc_walk_newer(const struct hc_walk *a, const struct hc_walk *b)
{
	return !b || a->used > b->used;
}

/* One step further: everything that open and publish have in common. */
static void hc_walk_step(struct hc_walks *walks, const struct hc_walk_who *who, struct hc_walk *w,
			 uint64_t now_ns, uint32_t (*new_stamp)(void *arg), void *arg,
			 struct hc_walk_step *step_p)
{
	uint16_t i = (uint16_t)(w - walks->walks);

	if (walks->newest != i) {
		hc_walk_list_remove(walks, i);
		hc_walk_list_push(walks, i);
	}
	if (w->n_pages == HC_WALK_PAGES_MAX) {
		w->stamp = new_stamp(arg);
		w->n_pages = 0;
	}
	w->n_pages++;
	w->used = ++walks->n_steps;
	w->thread = who->thread;
	w->last_ns = now_ns;
	step_p->id = (struct hc_walk_id){i, w->generation};
	step_p->stamp = w->stamp;
}

static void hc_walk_ahead_drop(struct hc_walk *w)
{
	w->n_follow = 0;
	w->window_bytes = 0;
	w->ahead_bytes = 0;
	w->tail = no_link;
}

/* Asks for the next window when less than half of the last one is left. */
static void hc_walk_ahead(struct hc_walks *walks, struct hc_walk *w,
			  const struct hc_walk_page *page, struct hc_walk_step *step_p)
{
	uint64_t window =
		hc_min_u64(walks->ahead_max_bytes,
			   w->window_bytes ? 2 * w->window_bytes : 2 * (uint64_t)page->size_bytes);

	if (w->ahead_busy || w->ahead_bytes > w->window_bytes / 2 || window <= w->ahead_bytes)
		return;
	w->ahead_busy = true;
	step_p->ahead_bytes = window - w->ahead_bytes;
	step_p->ahead_from = w->ahead_bytes ? w->tail : page->page;
}

/* An order that is seen twice is taken for one. A page that was passed over (threads open in turns)
 * does not speak against what was published. */
static void hc_walk_learn(struct hc_walks *walks, const struct hc_walk *w,
			  const struct hc_walk_page *page)
{
	struct hc_link next;
	bool sure;

	if (page->depth == w->depth || !hc_links_next(walks->links, w->last, &next, &sure) || !sure)
		hc_links_seen(walks->links, w->last, page->page);
}

struct hc_walk_found {
	struct hc_walk *walk; /* NULL: a new one */
	bool follows, sure;
};

/* The walk that the page goes on with. */
static struct hc_walk_found hc_walk_of_open(struct hc_walks *walks, const struct hc_walk_who *who,
					    const struct hc_walk_page *page, uint64_t now_ns)
{
	struct hc_walk *newest = NULL, *own = NULL, *ahead = NULL;
	struct hc_link next;
	bool again = false, sure;

	hc_walk_each(walks, who, i)
	{
		struct hc_walk *w = &walks->walks[i];

		if (!hc_walk_live(w, now_ns))
			continue;
		/* Stamps are never shared: it was read ahead for this walk, or was in it. */
		if (page->stamp == w->stamp && page->ahead)
			ahead = w;
		else if (page->stamp == w->stamp)
			again = true;
		if (!(page->stamp == w->stamp && !page->ahead) &&
		    hc_links_next(walks->links, w->last, &next, &sure) &&
		    hc_link_equal(next, page->page))
			return (struct hc_walk_found){w, true, sure};
		if (hc_walk_newer(w, newest))
			newest = w;
		if (who->thread && w->thread == who->thread && hc_walk_newer(w, own))
			own = w;
	}
	if (ahead)
		return (struct hc_walk_found){ahead, true, true};
	if (own)
		newest = own;
	if (newest)
		hc_walk_learn(walks, newest, page);
	if (again || !page->depth)
		newest = NULL;
	return (struct hc_walk_found){newest, false, false};
}

void hc_walk_open(struct hc_walks *walks, const struct hc_walk_who *who,
		  const struct hc_walk_page *page, bool want_ahead, uint64_t now_ns,
		  uint32_t (*new_stamp)(void *arg), void *arg, struct hc_walk_step *step_p)
{
	struct hc_walk_step step = {0};
	struct hc_walk_found found;
	struct hc_walk *w;

	pthread_mutex_lock(&walks->lock);
	found = hc_walk_of_open(walks, who, page, now_ns);
	w = found.walk;
	step.begins = !w;
	step.follows = found.follows;
	if (!w)
		w = hc_walk_make(walks, who, new_stamp(arg));
	if (found.follows && !found.sure)
		hc_links_seen(walks->links, w->last, page->page);
	hc_walk_step(walks, who, w, now_ns, new_stamp, arg, &step);
	step.position = page->depth;
	if (found.follows && found.sure) {
		w->n_follow++;
		w->ahead_bytes -= hc_min_u64(w->ahead_bytes, page->size_bytes);
	} else {
		hc_walk_ahead_drop(w);
	}
	w->last = page->page;
	w->depth = page->depth + 1;
	w->published = false;
	if (w->n_follow && want_ahead)
		hc_walk_ahead(walks, w, page, &step);
	pthread_mutex_unlock(&walks->lock);
	*step_p = step;
}

void hc_walk_ahead_done(struct hc_walks *walks, const struct hc_walk_step *step,
			struct hc_link tail, uint64_t bytes)
{
	struct hc_walk *w = &walks->walks[step->id.walk];

	pthread_mutex_lock(&walks->lock);
	if (w->generation == step->id.generation) {
		w->ahead_busy = false;
		/* A page that did not follow may have come in between. */
		if (bytes && w->n_follow) {
			w->window_bytes = w->ahead_bytes + bytes;
			w->ahead_bytes += bytes;
			w->tail = tail;
		}
	}
	pthread_mutex_unlock(&walks->lock);
}

/* The walk that a publish goes on with; NULL: a new one. *sure_p: its last page is the one before,
 * no guess. */
static struct hc_walk *hc_walk_of_publish(struct hc_walks *walks, const struct hc_walk_who *who,
					  uint64_t now_ns, bool *sure_p)
{
	struct hc_walk *newest = NULL, *own = NULL, *publishing = NULL, *opened = NULL;

	hc_walk_each(walks, who, i)
	{
		struct hc_walk *w = &walks->walks[i];

		if (!hc_walk_live(w, now_ns)) {
			if (!w->published && now_ns <= w->last_ns + HC_WALK_COMPUTE_NS &&
			    hc_walk_newer(w, opened))
				opened = w;
			continue;
		}
		if (hc_walk_newer(w, newest))
			newest = w;
		if (who->thread && w->thread == who->thread && hc_walk_newer(w, own))
			own = w;
		if (w->published && hc_walk_newer(w, publishing))
			publishing = w;
	}
	*sure_p = own || publishing;
	return own ? own : publishing ? publishing : newest ? newest : opened;
}

void hc_walk_publish(struct hc_walks *walks, const struct hc_walk_who *who, uint64_t now_ns,
		     uint32_t (*new_stamp)(void *arg), void *arg, struct hc_walk_step *step_p)
{
	struct hc_walk_step step = {0};
	struct hc_walk *w;

	pthread_mutex_lock(&walks->lock);
	w = hc_walk_of_publish(walks, who, now_ns, &step.follows);
	step.begins = !w;
	if (!w)
		w = hc_walk_make(walks, who, new_stamp(arg));
	step.previous_skipped = w->published && w->skipped;
	hc_walk_step(walks, who, w, now_ns, new_stamp, arg, &step);
	step.position = (uint32_t)hc_min_u64(w->depth++, HC_WALK_DEPTH_MAX);
	w->published = true;
	w->skipped = false;
	pthread_mutex_unlock(&walks->lock);
	*step_p = step;
}

void hc_walk_published(struct hc_walks *walks, const struct hc_walk_step *step, struct hc_link page,
		       bool skipped)
{
	struct hc_walk *w = &walks->walks[step->id.walk];

	pthread_mutex_lock(&walks->lock);
	if (w->generation == step->id.generation) {
		if (step->follows)
			hc_links_set(walks->links, w->last, page);
		else
			hc_links_seen(walks->links, w->last, page);
		w->last = page;
		w->skipped = skipped;
	}
	pthread_mutex_unlock(&walks->lock);
}

void hc_walks_rebase(struct hc_walks *walks, uint32_t by)
{
	pthread_mutex_lock(&walks->lock);
	for (uint32_t i = 0; i < walks->n; i++)
		walks->walks[i].stamp -= walks->walks[i].stamp < by ? walks->walks[i].stamp : by;
	pthread_mutex_unlock(&walks->lock);
}

int hc_walks_create(struct hc_links *links, uint64_t ahead_max_bytes, struct hc_walks **walks_p)
{
	struct hc_walks *walks = hc_zalloc(sizeof(*walks));

	if (!walks)
		return -ENOMEM;
	pthread_mutex_init(&walks->lock, NULL);
	walks->links = links;
	walks->ahead_max_bytes = ahead_max_bytes;
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
