/* SPDX-License-Identifier: Apache-2.0 */
/* See dirlist.h. A stripe's table is open addressing with linear steps and no tombstones (removal
 * shifts back); a directory without pages has no place in it. */
#include "index/dirlist.h"

#include <stdatomic.h>

#define HC_DIR_STRIPES  64
#define HC_DIR_ROOM_MIN 8

struct hc_dir_head {
	uint32_t dir; /* 0: free */
	uint32_t first;
	uint32_t n;
};

struct hc_dir_stripe {
	pthread_mutex_t lock; /* the table, and dir_next and dir_prev of the entries in its lists */
	struct hc_dir_head *heads;
	struct hc_dir_cursor cursors; /* ring of those that stand at an entry */
	uint32_t room;                /* power of two, or 0 */
	uint32_t n;
} __attribute__((aligned(64)));

struct hc_dirlists {
	struct hc_index *index;
	_Atomic uint64_t head_bytes;
	struct hc_dir_stripe stripes[HC_DIR_STRIPES];
};

static uint32_t hc_dir_mix(uint32_t dir)
{
	return (uint32_t)((dir * 0x9e3779b97f4a7c15u) >> 32);
}

static struct hc_dir_stripe *hc_dir_stripe(struct hc_dirlists *lists, uint32_t dir)
{
	return &lists->stripes[hc_dir_mix(dir) >> 26];
}

/* The place of the directory, or the free place where it would go; the table is never full. */
static struct hc_dir_head *hc_dir_place(struct hc_dir_stripe *stripe, uint32_t dir)
{
	uint32_t i = hc_dir_mix(dir) & (stripe->room - 1);

	while (stripe->heads[i].dir && stripe->heads[i].dir != dir)
		i = (i + 1) & (stripe->room - 1);
	return &stripe->heads[i];
}

static struct hc_dir_head *hc_dir_find(struct hc_dir_stripe *stripe, uint32_t dir)
{
	struct hc_dir_head *head = stripe->room ? hc_dir_place(stripe, dir) : NULL;

	return head && head->dir ? head : NULL;
}

static int hc_dir_resize(struct hc_dirlists *lists, struct hc_dir_stripe *stripe, uint32_t room)
{
	struct hc_dir_head *old = stripe->heads;
	uint32_t n_old = stripe->room;
	struct hc_dir_head *heads = calloc(room, sizeof(*heads));

	if (!heads)
		return -ENOMEM;
	stripe->heads = heads;
	stripe->room = room;
	for (uint32_t i = 0; i < n_old; i++) {
		if (old[i].dir)
			*hc_dir_place(stripe, old[i].dir) = old[i];
	}
	free(old);
	atomic_fetch_add(&lists->head_bytes, room * sizeof(*heads));
	atomic_fetch_sub(&lists->head_bytes, n_old * sizeof(*heads));
	return 0;
}

static struct hc_dir_head *hc_dir_make(struct hc_dirlists *lists, struct hc_dir_stripe *stripe,
				       uint32_t dir)
{
	struct hc_dir_head *head = hc_dir_find(stripe, dir);

	if (head)
		return head;
	if ((stripe->n + 1) * 4 > stripe->room * 3) {
		uint32_t room = stripe->room ? stripe->room * 2 : HC_DIR_ROOM_MIN;

		if (hc_dir_resize(lists, stripe, room) && stripe->n + 1 >= stripe->room)
			return NULL;
	}
	head = hc_dir_place(stripe, dir);
	*head = (struct hc_dir_head){.dir = dir, .first = HC_ENTRY_NONE};
	stripe->n++;
	return head;
}

static void hc_dir_drop(struct hc_dirlists *lists, struct hc_dir_stripe *stripe,
			struct hc_dir_head *head)
{
	uint32_t mask = stripe->room - 1;
	uint32_t hole = (uint32_t)(head - stripe->heads);

	for (uint32_t i = (hole + 1) & mask; stripe->heads[i].dir; i = (i + 1) & mask) {
		uint32_t home = hc_dir_mix(stripe->heads[i].dir) & mask;

		/* May move only if its home does not lie behind the hole. */
		if (((i - home) & mask) >= ((i - hole) & mask)) {
			stripe->heads[hole] = stripe->heads[i];
			hole = i;
		}
	}
	stripe->heads[hole].dir = 0;
	stripe->n--;
	/* When memory is out the table just stays larger. */
	if (stripe->room > HC_DIR_ROOM_MIN && stripe->n * 8 < stripe->room &&
	    hc_dir_resize(lists, stripe, stripe->room / 2))
		return;
}

int hc_dirlists_add_many(struct hc_dirlists *lists, struct hc_entry *const *entries, size_t n,
			 uint32_t dir)
{
	struct hc_dir_stripe *stripe = hc_dir_stripe(lists, dir);
	struct hc_dir_head *head;

	pthread_mutex_lock(&stripe->lock);
	head = hc_dir_make(lists, stripe, dir);
	for (size_t i = 0; head && i < n; i++) {
		struct hc_entry *entry = entries[i];

		entry->dir = dir;
		entry->dir_prev = HC_ENTRY_NONE;
		entry->dir_next = head->first;
		if (head->first != HC_ENTRY_NONE)
			hc_index_entry(lists->index, head->first)->dir_prev = entry->number;
		head->first = entry->number;
		head->n++;
	}
	pthread_mutex_unlock(&stripe->lock);
	return head ? 0 : -ENOMEM;
}

int hc_dirlists_add(struct hc_dirlists *lists, struct hc_entry *entry, uint32_t dir)
{
	return hc_dirlists_add_many(lists, &entry, 1, dir);
}

static void hc_dir_cursor_unlink(struct hc_dir_cursor *cursor)
{
	if (!cursor->next)
		return;
	cursor->next->prev = cursor->prev;
	cursor->prev->next = cursor->next;
	cursor->next = NULL;
	cursor->prev = NULL;
}

/* The entry goes: who stands there goes on to the next. */
static void hc_dir_cursors_pass(struct hc_dir_stripe *stripe, const struct hc_entry *entry)
{
	for (struct hc_dir_cursor *c = stripe->cursors.next, *next; c != &stripe->cursors;
	     c = next) {
		next = c->next;
		if (c->at != entry->number)
			continue;
		c->at = entry->dir_next;
		if (c->at == HC_ENTRY_NONE)
			hc_dir_cursor_unlink(c);
	}
}

void hc_dirlists_begin(struct hc_dirlists *lists, struct hc_dir_cursor *cursor, uint32_t dir)
{
	struct hc_dir_stripe *stripe = hc_dir_stripe(lists, dir);
	struct hc_dir_head *head;

	*cursor = (struct hc_dir_cursor){.dir = dir, .at = HC_ENTRY_NONE};
	pthread_mutex_lock(&stripe->lock);
	head = hc_dir_find(stripe, dir);
	if (head) {
		cursor->at = head->first;
		cursor->prev = &stripe->cursors;
		cursor->next = stripe->cursors.next;
		cursor->next->prev = cursor;
		stripe->cursors.next = cursor;
	}
	pthread_mutex_unlock(&stripe->lock);
}

size_t hc_dirlists_read(struct hc_dirlists *lists, struct hc_dir_cursor *cursor,
			struct hc_dir_item *items, size_t n)
{
	struct hc_dir_stripe *stripe = hc_dir_stripe(lists, cursor->dir);
	size_t n_read = 0;

	pthread_mutex_lock(&stripe->lock);
	while (n_read < n && cursor->at != HC_ENTRY_NONE) {
		const struct hc_entry *entry = hc_index_entry(lists->index, cursor->at);

		/* Its name is wanted next. */
		__builtin_prefetch(&entry->hash);
		items[n_read].number = cursor->at;
		items[n_read++].sequence = entry->sequence;
		cursor->at = entry->dir_next;
	}
	if (cursor->at == HC_ENTRY_NONE)
		hc_dir_cursor_unlink(cursor);
	pthread_mutex_unlock(&stripe->lock);
	return n_read;
}

void hc_dirlists_end(struct hc_dirlists *lists, struct hc_dir_cursor *cursor)
{
	struct hc_dir_stripe *stripe = hc_dir_stripe(lists, cursor->dir);

	pthread_mutex_lock(&stripe->lock);
	hc_dir_cursor_unlink(cursor);
	cursor->at = HC_ENTRY_NONE;
	pthread_mutex_unlock(&stripe->lock);
}

void hc_dirlists_remove(struct hc_dirlists *lists, struct hc_entry *entry)
{
	struct hc_dir_stripe *stripe = hc_dir_stripe(lists, entry->dir);
	struct hc_dir_head *head;

	pthread_mutex_lock(&stripe->lock);
	head = hc_dir_find(stripe, entry->dir);
	hc_assert(head);
	hc_dir_cursors_pass(stripe, entry);
	if (entry->dir_prev != HC_ENTRY_NONE)
		hc_index_entry(lists->index, entry->dir_prev)->dir_next = entry->dir_next;
	else
		head->first = entry->dir_next;
	if (entry->dir_next != HC_ENTRY_NONE)
		hc_index_entry(lists->index, entry->dir_next)->dir_prev = entry->dir_prev;
	if (!--head->n)
		hc_dir_drop(lists, stripe, head);
	entry->dir = 0;
	entry->dir_next = HC_ENTRY_NONE;
	entry->dir_prev = HC_ENTRY_NONE;
	pthread_mutex_unlock(&stripe->lock);
}

uint64_t hc_dirlists_count(struct hc_dirlists *lists, uint32_t dir)
{
	struct hc_dir_stripe *stripe = hc_dir_stripe(lists, dir);
	struct hc_dir_head *head;
	uint64_t n;

	pthread_mutex_lock(&stripe->lock);
	head = hc_dir_find(stripe, dir);
	n = head ? head->n : 0;
	pthread_mutex_unlock(&stripe->lock);
	return n;
}

int hc_dirlists_snapshot(struct hc_dirlists *lists, uint32_t dir, struct hc_dir_item **items_p,
			 size_t *n_p)
{
	struct hc_dir_stripe *stripe = hc_dir_stripe(lists, dir);
	struct hc_dir_item *items;
	struct hc_dir_head *head;
	size_t n = 0;

	pthread_mutex_lock(&stripe->lock);
	head = hc_dir_find(stripe, dir);
	items = malloc((head ? head->n : 1) * sizeof(*items));
	if (items && head) {
		for (uint32_t i = head->first; i != HC_ENTRY_NONE;) {
			const struct hc_entry *entry = hc_index_entry(lists->index, i);

			items[n].number = i;
			items[n++].sequence = entry->sequence;
			i = entry->dir_next;
		}
		hc_assert(n == head->n);
	}
	pthread_mutex_unlock(&stripe->lock);
	if (!items)
		return -ENOMEM;
	*items_p = items;
	*n_p = n;
	return 0;
}

uint64_t hc_dirlists_bytes(struct hc_dirlists *lists)
{
	return sizeof(*lists) + atomic_load(&lists->head_bytes);
}

int hc_dirlists_create(struct hc_index *index, struct hc_dirlists **lists_p)
{
	struct hc_dirlists *lists = aligned_alloc(64, sizeof(*lists));

	if (!lists)
		return -ENOMEM;
	memset(lists, 0, sizeof(*lists));
	lists->index = index;
	for (size_t i = 0; i < HC_DIR_STRIPES; i++) {
		struct hc_dir_stripe *stripe = &lists->stripes[i];

		pthread_mutex_init(&stripe->lock, NULL);
		stripe->cursors.next = &stripe->cursors;
		stripe->cursors.prev = &stripe->cursors;
	}
	*lists_p = lists;
	return 0;
}

void hc_dirlists_destroy(struct hc_dirlists *lists)
{
	if (!lists)
		return;
	for (size_t i = 0; i < HC_DIR_STRIPES; i++) {
		pthread_mutex_destroy(&lists->stripes[i].lock);
		free(lists->stripes[i].heads);
	}
	free(lists);
}
