/* SPDX-License-Identifier: Apache-2.0 */
/* See attrs.h. A chained table that doubles; ids come one after the other and need no seed. */
#include "node/attrs.h"

#include <pthread.h>
#include <stdatomic.h>

#include "util/log.h"

#define HC_ATTRS_LOG     "attrs"
#define HC_ATTRS_LOCKS   64u
#define HC_ATTRS_BUCKETS 256u
#define HC_ATTRS_SHIFT   62 /* kind and id in one key */

struct hc_attrs_item {
	struct hc_attrs_item *next;
	uint64_t key;
	uint16_t n_bytes;
	bool claimed;
	uint8_t bytes[];
};

struct hc_attrs {
	struct hc_catalog *catalog;
	pthread_mutex_t change[HC_ATTRS_LOCKS]; /* by id */
	pthread_mutex_t lock;                   /* all below */
	struct hc_attrs_item **buckets;
	size_t n_buckets;
	size_t n;
	_Atomic uint64_t bytes;
	_Atomic uint64_t counts[HC_ATTRS_N];
	uint64_t n_bad;
};

static uint64_t hc_attrs_key(enum hc_attrs_kind kind, uint64_t id)
{
	return (uint64_t)kind << HC_ATTRS_SHIFT | id;
}

static struct hc_attrs_item **hc_attrs_place(struct hc_attrs *attrs, uint64_t key)
{
	uint64_t mixed = key * 0x9e3779b97f4a7c15u;

	return &attrs->buckets[(mixed >> 32) & (attrs->n_buckets - 1)];
}

int hc_attrs_create(struct hc_attrs **attrs_p)
{
	struct hc_attrs *attrs = hc_zalloc(sizeof(*attrs));

	if (!attrs)
		return -ENOMEM;
	attrs->n_buckets = HC_ATTRS_BUCKETS;
	attrs->buckets = calloc(attrs->n_buckets, sizeof(struct hc_attrs_item *));
	if (!attrs->buckets) {
		free(attrs);
		return -ENOMEM;
	}
	pthread_mutex_init(&attrs->lock, NULL);
	for (size_t i = 0; i < HC_ATTRS_LOCKS; i++)
		pthread_mutex_init(&attrs->change[i], NULL);
	*attrs_p = attrs;
	return 0;
}

void hc_attrs_destroy(struct hc_attrs *attrs)
{
	if (!attrs)
		return;
	for (size_t i = 0; i < attrs->n_buckets; i++) {
		while (attrs->buckets[i]) {
			struct hc_attrs_item *item = attrs->buckets[i];

			attrs->buckets[i] = item->next;
			free(item);
		}
	}
	free(attrs->buckets);
	pthread_mutex_destroy(&attrs->lock);
	for (size_t i = 0; i < HC_ATTRS_LOCKS; i++)
		pthread_mutex_destroy(&attrs->change[i]);
	free(attrs);
}

static struct hc_attrs_item *hc_attrs_find_locked(struct hc_attrs *attrs, uint64_t key)
{
	struct hc_attrs_item *item = *hc_attrs_place(attrs, key);

	while (item && item->key != key)
		item = item->next;
	return item;
}

/* Only a wish: longer chains do no harm. */
static void hc_attrs_grow_locked(struct hc_attrs *attrs)
{
	struct hc_attrs_item **old = attrs->buckets, **new;
	size_t n_old = attrs->n_buckets;

	if (attrs->n < 2 * n_old)
		return;
	new = calloc(4 * n_old, sizeof(struct hc_attrs_item *));
	if (!new)
		return;
	attrs->buckets = new;
	attrs->n_buckets = 4 * n_old;
	for (size_t i = 0; i < n_old; i++) {
		while (old[i]) {
			struct hc_attrs_item *item = old[i];
			struct hc_attrs_item **place = hc_attrs_place(attrs, item->key);

			old[i] = item->next;
			item->next = *place;
			*place = item;
		}
	}
	free(old);
}

static void hc_attrs_account(struct hc_attrs *attrs, const struct hc_attrs_item *item, bool add)
{
	uint64_t bytes = sizeof(*item) + item->n_bytes + 16;

	atomic_fetch_add_explicit(&attrs->bytes, add ? bytes : -bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&attrs->counts[item->key >> HC_ATTRS_SHIFT],
				  add ? 1 : (uint64_t)-1, memory_order_relaxed);
	attrs->n += add ? 1 : (size_t)-1;
}

static struct hc_attrs_item *hc_attrs_item_new(uint64_t key, const void *bytes, size_t n_bytes)
{
	struct hc_attrs_item *item = malloc(sizeof(*item) + n_bytes);

	if (item) {
		item->next = NULL;
		item->key = key;
		item->n_bytes = (uint16_t)n_bytes;
		item->claimed = true;
		memcpy(item->bytes, bytes, n_bytes);
	}
	return item;
}

/* Puts `item` (NULL: nothing) in place of what is there; that is the caller's. */
static struct hc_attrs_item *hc_attrs_swap(struct hc_attrs *attrs, uint64_t key,
					   struct hc_attrs_item *item)
{
	struct hc_attrs_item **place, *old;

	pthread_mutex_lock(&attrs->lock);
	place = hc_attrs_place(attrs, key);
	while (*place && (*place)->key != key)
		place = &(*place)->next;
	old = *place;
	if (old) {
		*place = old->next;
		hc_attrs_account(attrs, old, false);
	}
	if (item) {
		place = hc_attrs_place(attrs, key);
		item->next = *place;
		*place = item;
		hc_attrs_account(attrs, item, true);
		hc_attrs_grow_locked(attrs);
	}
	pthread_mutex_unlock(&attrs->lock);
	return old;
}

/* --- the catalog --- */

static int hc_attrs_load_row(void *arg, uint64_t key, const void *value, size_t n_bytes)
{
	struct hc_attrs *attrs = arg;
	struct hc_attrs_item *item;

	if (key >> HC_ATTRS_SHIFT >= HC_ATTRS_N || !n_bytes || hc_attrset_check(value, n_bytes)) {
		attrs->n_bad++;
		return 0;
	}
	item = hc_attrs_item_new(key, value, n_bytes);
	if (!item)
		return -ENOMEM;
	item->claimed = false;
	free(hc_attrs_swap(attrs, key, item));
	return 0;
}

int hc_attrs_load(struct hc_attrs *attrs, struct hc_catalog *catalog)
{
	int rc;

	attrs->catalog = catalog;
	if (!catalog)
		return 0;
	rc = hc_catalog_load(catalog, HC_TABLE_ATTRS, hc_attrs_load_row, attrs);
	if (attrs->n_bad)
		hc_warn(HC_ATTRS_LOG, "%llu rows of attributes could not be used",
			(unsigned long long)attrs->n_bad);
	return rc;
}

static int hc_attrs_store(struct hc_attrs *attrs, uint64_t key, const void *bytes, size_t n_bytes,
			  bool now)
{
	uint64_t ticket;
	int rc;

	if (!attrs->catalog)
		return 0;
	rc = n_bytes ? hc_catalog_put(attrs->catalog, HC_TABLE_ATTRS, key, bytes, n_bytes, now,
				      &ticket)
		     : hc_catalog_del(attrs->catalog, HC_TABLE_ATTRS, key, now, &ticket);
	return rc;
}

/* The keys of a kind (HC_ATTRS_N: all), unclaimed ones only or all. */
static int hc_attrs_keys(struct hc_attrs *attrs, enum hc_attrs_kind kind, bool unclaimed,
			 uint64_t **keys_p, size_t *n_p)
{
	uint64_t *keys;
	size_t n = 0;

	pthread_mutex_lock(&attrs->lock);
	keys = calloc(attrs->n + 1, sizeof(*keys));
	for (size_t i = 0; keys && i < attrs->n_buckets; i++) {
		for (struct hc_attrs_item *item = attrs->buckets[i]; item; item = item->next) {
			if ((kind == HC_ATTRS_N || item->key >> HC_ATTRS_SHIFT == kind) &&
			    !(unclaimed && item->claimed))
				keys[n++] = item->key;
		}
	}
	pthread_mutex_unlock(&attrs->lock);
	if (!keys)
		return -ENOMEM;
	*keys_p = keys;
	*n_p = n;
	return 0;
}

static pthread_mutex_t *hc_attrs_change_lock(struct hc_attrs *attrs, uint64_t key)
{
	return &attrs->change[key % HC_ATTRS_LOCKS];
}

int hc_attrs_put_all(struct hc_attrs *attrs)
{
	uint64_t *keys;
	size_t n;
	int rc = hc_attrs_keys(attrs, HC_ATTRS_N, false, &keys, &n);

	if (rc)
		return rc;
	for (size_t i = 0; i < n && !rc; i++) {
		enum hc_attrs_kind kind = (enum hc_attrs_kind)(keys[i] >> HC_ATTRS_SHIFT);
		pthread_mutex_t *change = hc_attrs_change_lock(attrs, keys[i]);
		struct hc_attrset set;

		pthread_mutex_lock(change);
		rc = hc_attrs_get(attrs, kind, keys[i] & (((uint64_t)1 << HC_ATTRS_SHIFT) - 1),
				  &set);
		if (!rc && set.n_bytes)
			rc = hc_attrs_store(attrs, keys[i], set.bytes, set.n_bytes, false);
		pthread_mutex_unlock(change);
		if (!rc)
			hc_attrset_fini(&set);
	}
	free(keys);
	return rc;
}

/* --- objects --- */

uint64_t hc_attrs_count(struct hc_attrs *attrs, enum hc_attrs_kind kind)
{
	return atomic_load_explicit(&attrs->counts[kind], memory_order_relaxed);
}

uint64_t hc_attrs_bytes(struct hc_attrs *attrs)
{
	return atomic_load_explicit(&attrs->bytes, memory_order_relaxed);
}

int hc_attrs_get(struct hc_attrs *attrs, enum hc_attrs_kind kind, uint64_t id,
		 struct hc_attrset *set_p)
{
	struct hc_attrs_item *item;
	int rc = 0;

	*set_p = (struct hc_attrset){0};
	if (!hc_attrs_count(attrs, kind))
		return 0;
	pthread_mutex_lock(&attrs->lock);
	item = hc_attrs_find_locked(attrs, hc_attrs_key(kind, id));
	if (item)
		rc = hc_attrset_copy(item->bytes, item->n_bytes, set_p);
	pthread_mutex_unlock(&attrs->lock);
	return rc;
}

/* Change lock held. */
static int hc_attrs_put_held(struct hc_attrs *attrs, uint64_t key, const struct hc_attrset *set,
			     bool force)
{
	struct hc_attrs_item *item = NULL;
	int rc;

	hc_assert(set->n_bytes <= HC_ATTRSET_BYTES_MAX);
	if (set->n_bytes) {
		if (!force && hc_attrs_bytes(attrs) > HC_ATTRS_BYTES_MAX)
			return -ENOSPC;
		item = hc_attrs_item_new(key, set->bytes, set->n_bytes);
		if (!item)
			return -ENOMEM;
	}
	rc = hc_attrs_store(attrs, key, set->bytes, set->n_bytes, true);
	if (rc) {
		free(item);
		return rc;
	}
	free(hc_attrs_swap(attrs, key, item));
	return 0;
}

int hc_attrs_put(struct hc_attrs *attrs, enum hc_attrs_kind kind, uint64_t id,
		 const struct hc_attrset *set, bool force)
{
	uint64_t key = hc_attrs_key(kind, id);
	int rc;

	pthread_mutex_lock(hc_attrs_change_lock(attrs, key));
	rc = hc_attrs_put_held(attrs, key, set, force);
	pthread_mutex_unlock(hc_attrs_change_lock(attrs, key));
	return rc;
}

int hc_attrs_change(struct hc_attrs *attrs, enum hc_attrs_kind kind, uint64_t id,
		    int (*change)(void *arg, struct hc_attrset *set), void *arg)
{
	uint64_t key = hc_attrs_key(kind, id);
	struct hc_attrset set;
	int rc;

	pthread_mutex_lock(hc_attrs_change_lock(attrs, key));
	rc = hc_attrs_get(attrs, kind, id, &set);
	if (!rc) {
		rc = change(arg, &set);
		if (!rc)
			rc = hc_attrs_put_held(attrs, key, &set, false);
		hc_attrset_fini(&set);
	}
	pthread_mutex_unlock(hc_attrs_change_lock(attrs, key));
	return rc;
}

void hc_attrs_drop(struct hc_attrs *attrs, enum hc_attrs_kind kind, uint64_t id)
{
	uint64_t key = hc_attrs_key(kind, id);
	struct hc_attrs_item *item;

	if (!hc_attrs_count(attrs, kind))
		return;
	item = hc_attrs_swap(attrs, key, NULL);
	if (item && hc_attrs_store(attrs, key, NULL, 0, true))
		hc_debug(HC_ATTRS_LOG,
			 "a row of attributes outlives its page until the next start");
	free(item);
}

bool hc_attrs_claim(struct hc_attrs *attrs, enum hc_attrs_kind kind, uint64_t id)
{
	struct hc_attrs_item *item;

	if (!hc_attrs_count(attrs, kind))
		return false;
	pthread_mutex_lock(&attrs->lock);
	item = hc_attrs_find_locked(attrs, hc_attrs_key(kind, id));
	if (item)
		item->claimed = true;
	pthread_mutex_unlock(&attrs->lock);
	return item;
}

void hc_attrs_sweep(struct hc_attrs *attrs, enum hc_attrs_kind kind,
		    bool (*keep)(void *arg, uint64_t id), void *arg)
{
	uint64_t *keys;
	size_t n;

	if (!hc_attrs_count(attrs, kind) || hc_attrs_keys(attrs, kind, true, &keys, &n))
		return;
	for (size_t i = 0; i < n; i++) {
		uint64_t id = keys[i] & (((uint64_t)1 << HC_ATTRS_SHIFT) - 1);

		if (!keep || !keep(arg, id))
			hc_attrs_drop(attrs, kind, id);
	}
	free(keys);
}
