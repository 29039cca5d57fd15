/* SPDX-License-Identifier: Apache-2.0 */
/* Small parts of the node: eventcounts, queues, counts of children without a parent. See
 * internal.h. */
#include "node/internal.h"

void hc_wait_init(struct hc_wait *wait)
{
	pthread_mutex_init(&wait->lock, NULL);
	hc_cond_init(&wait->cond);
	wait->count = 0;
}

void hc_wait_destroy(struct hc_wait *wait)
{
	pthread_mutex_destroy(&wait->lock);
	pthread_cond_destroy(&wait->cond);
}

uint64_t hc_wait_seen(struct hc_wait *wait)
{
	uint64_t seen;

	pthread_mutex_lock(&wait->lock);
	seen = wait->count;
	pthread_mutex_unlock(&wait->lock);
	return seen;
}

bool hc_wait_for(struct hc_wait *wait, uint64_t seen, uint64_t deadline_ns)
{
	bool moved;

	pthread_mutex_lock(&wait->lock);
	while (wait->count == seen && hc_clock_now_ns() < deadline_ns) {
		if (hc_cond_wait_until(&wait->cond, &wait->lock, deadline_ns) == -ETIMEDOUT)
			break;
	}
	moved = wait->count != seen;
	pthread_mutex_unlock(&wait->lock);
	return moved;
}

void hc_wait_wake(struct hc_wait *wait)
{
	pthread_mutex_lock(&wait->lock);
	wait->count++;
	pthread_cond_broadcast(&wait->cond);
	pthread_mutex_unlock(&wait->lock);
}

int hc_queue_push(struct hc_queue *queue, struct hc_backup_item item)
{
	if (queue->n == queue->room) {
		size_t room = queue->room ? 2 * queue->room : 256;
		struct hc_backup_item *items = malloc(room * sizeof(*items));

		if (!items)
			return -ENOMEM;
		for (size_t i = 0; i < queue->n; i++)
			items[i] = queue->items[(queue->head + i) % queue->room];
		free(queue->items);
		queue->items = items;
		queue->head = 0;
		queue->room = room;
	}
	queue->items[(queue->head + queue->n++) % queue->room] = item;
	return 0;
}

bool hc_queue_pop(struct hc_queue *queue, struct hc_backup_item *item_p)
{
	if (!queue->n)
		return false;
	*item_p = queue->items[queue->head];
	queue->head = (queue->head + 1) % queue->room;
	queue->n--;
	return true;
}

/* Few parents are ever absent: a plain chained table per shard does. */
#define HC_GHOST_BUCKETS 64u

struct hc_ghost {
	struct hc_key key;
	uint32_t mem, disk;
	struct hc_ghost *next;
};

struct hc_ghosts {
	struct hc_ghost *buckets[HC_GHOST_BUCKETS];
};

struct hc_ghosts *hc_ghosts_create(void)
{
	return hc_zalloc(sizeof(struct hc_ghosts));
}

void hc_ghosts_destroy(struct hc_ghosts *ghosts)
{
	if (!ghosts)
		return;
	for (size_t i = 0; i < HC_GHOST_BUCKETS; i++) {
		while (ghosts->buckets[i]) {
			struct hc_ghost *ghost = ghosts->buckets[i];

			ghosts->buckets[i] = ghost->next;
			free(ghost);
		}
	}
	free(ghosts);
}

static struct hc_ghost **hc_ghosts_find(struct hc_ghosts *ghosts, const struct hc_key *key)
{
	struct hc_ghost **p = &ghosts->buckets[key->hash.bytes[7] % HC_GHOST_BUCKETS];

	while (*p && !hc_key_equal(&(*p)->key, key))
		p = &(*p)->next;
	return p;
}

int hc_ghosts_add(struct hc_ghosts *ghosts, const struct hc_key *key, int mem, int disk)
{
	struct hc_ghost **p = hc_ghosts_find(ghosts, key);
	struct hc_ghost *ghost = *p;

	if (!ghost) {
		if (mem <= 0 && disk <= 0)
			return 0;
		ghost = hc_zalloc(sizeof(*ghost));
		if (!ghost)
			return -ENOMEM;
		ghost->key = *key;
		*p = ghost;
	}
	/* A count that fell short (out of memory) must not wrap. */
	ghost->mem = mem < 0 && ghost->mem < (uint32_t)-mem ? 0 : ghost->mem + (uint32_t)mem;
	ghost->disk = disk < 0 && ghost->disk < (uint32_t)-disk ? 0 : ghost->disk + (uint32_t)disk;
	if (!ghost->mem && !ghost->disk) {
		*p = ghost->next;
		free(ghost);
	}
	return 0;
}

void hc_ghosts_take(struct hc_ghosts *ghosts, const struct hc_key *key, uint32_t *mem_p,
		    uint32_t *disk_p)
{
	struct hc_ghost **p = hc_ghosts_find(ghosts, key);
	struct hc_ghost *ghost = *p;

	*mem_p = ghost ? ghost->mem : 0;
	*disk_p = ghost ? ghost->disk : 0;
	if (ghost) {
		*p = ghost->next;
		free(ghost);
	}
}
