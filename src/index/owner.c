/* SPDX-License-Identifier: Apache-2.0 */
/* See owner.h. Owners are kept for the life of the node: there are few, and a number must never
 * change its meaning. The array never moves, so that a look-up by number takes no lock: whoever
 * holds a number got it from somebody who saw its owner written. */
#include "index/owner.h"

#include <pthread.h>
#include <stdatomic.h>

#include "util/log.h"

#define HC_OWNERS_MAX      65535
#define HC_OWNERS_ROOM_MIN 16

struct hc_owners {
	struct hc_owner
		*owners;    /* room for all there can be; the kernel gives pages as they are used */
	_Atomic uint32_t n; /* written under lock */
	pthread_mutex_t lock; /* all below, and additions */
	uint32_t room;
	uint16_t *table; /* number + 1, 0: free; 2 * room places, so at most half full */
	bool full_told;
};

static uint32_t hc_owner_mix(const struct hc_owner *owner)
{
	uint64_t h = owner->uid * 0x9e3779b97f4a7c15u;

	h = (h ^ (h >> 32) ^ owner->gid) * 0xd6e8feb86659fd93u;
	h = (h ^ (h >> 32) ^ owner->mode) * 0xd6e8feb86659fd93u;
	return (uint32_t)(h >> 32);
}

static uint16_t *hc_owners_place(struct hc_owners *owners, const struct hc_owner *owner)
{
	uint32_t mask = 2 * owners->room - 1;

	for (uint32_t i = hc_owner_mix(owner) & mask;; i = (i + 1) & mask) {
		uint16_t v = owners->table[i];
		const struct hc_owner *o = v ? &owners->owners[v - 1] : NULL;

		if (!o || (o->uid == owner->uid && o->gid == owner->gid && o->mode == owner->mode))
			return &owners->table[i];
	}
}

static int hc_owners_grow(struct hc_owners *owners)
{
	uint32_t room = owners->room ? owners->room * 2 : HC_OWNERS_ROOM_MIN;
	uint16_t *table = calloc(2 * room, sizeof(*table));

	if (!table)
		return -ENOMEM;
	free(owners->table);
	owners->table = table;
	owners->room = room;
	for (uint32_t i = 0; i < owners->n; i++)
		*hc_owners_place(owners, &owners->owners[i]) = (uint16_t)(i + 1);
	return 0;
}

static int hc_owners_intern_locked(struct hc_owners *owners, const struct hc_owner *owner,
				   uint16_t *number_p)
{
	uint16_t *place = owners->room ? hc_owners_place(owners, owner) : NULL;
	int rc;

	if (place && *place) {
		*number_p = (uint16_t)(*place - 1);
		return 0;
	}
	if (owners->n == HC_OWNERS_MAX) {
		if (!owners->full_told)
			hc_error("index",
				 "more than %d different owners and modes of pages; use fewer",
				 HC_OWNERS_MAX);
		owners->full_told = true;
		return -ENOSPC;
	}
	if (owners->n == owners->room) {
		rc = hc_owners_grow(owners);
		if (rc)
			return rc;
		place = hc_owners_place(owners, owner);
	}
	owners->owners[owners->n] = *owner;
	*place = (uint16_t)(owners->n + 1);
	*number_p = (uint16_t)atomic_fetch_add(&owners->n, 1);
	return 0;
}

int hc_owners_intern(struct hc_owners *owners, const struct hc_owner *owner, uint16_t *number_p)
{
	int rc;

	pthread_mutex_lock(&owners->lock);
	rc = hc_owners_intern_locked(owners, owner, number_p);
	pthread_mutex_unlock(&owners->lock);
	return rc;
}

void hc_owners_get(struct hc_owners *owners, uint16_t number, struct hc_owner *owner_p)
{
	hc_assert(number < atomic_load_explicit(&owners->n, memory_order_relaxed));
	*owner_p = owners->owners[number];
}

int hc_owners_create(struct hc_owners **owners_p)
{
	static const struct hc_owner root = {0, 0, 0644};
	struct hc_owners *owners = hc_zalloc(sizeof(*owners));
	uint16_t number;
	int rc;

	if (!owners)
		return -ENOMEM;
	pthread_mutex_init(&owners->lock, NULL);
	owners->owners = calloc(HC_OWNERS_MAX, sizeof(*owners->owners));
	rc = !owners->owners ? -ENOMEM : hc_owners_intern(owners, &root, &number);
	if (rc) {
		hc_owners_destroy(owners);
		return rc;
	}
	*owners_p = owners;
	return 0;
}

void hc_owners_destroy(struct hc_owners *owners)
{
	if (!owners)
		return;
	pthread_mutex_destroy(&owners->lock);
	free(owners->owners);
	free(owners->table);
	free(owners);
}
