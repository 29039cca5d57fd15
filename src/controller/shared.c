/* SPDX-License-Identifier: Apache-2.0 */
/* Host pages that are slots of a node's pool: what the numbers of hc_transfer_write and
 * hc_transfer_acquire stand for. See transfer.h. The node is called without the transfer's lock:
 * what is given back is noted under the lock and leaves with hc_transfer_unlock. */
#include "controller/internal.h"
#include "util/log.h"

/* Refs that go back at once. */
#define RETURN_BATCH 64

static void shared_free(struct hc_transfer *t)
{
	struct hc_shared *s = t->shared;

	if (!s)
		return;
	for (uint32_t i = 0; i < s->n_segments; i++) {
		if (s->segments[i].host)
			hc_pins_put(s->pins, s->segments[i].host);
	}
	pthread_mutex_destroy(&s->pin_lock);
	pthread_cond_destroy(&s->given);
	free(s->segments);
	free(s->held);
	free(s->returning);
	free(s);
	t->shared = NULL;
}

int hc_shared_create(struct hc_transfer *t)
{
	const struct hc_transfer_config *c = &t->config;
	struct hc_shared *s = hc_zalloc(sizeof(*s));

	if (!s)
		return -ENOMEM;
	t->shared = s;
	s->node = c->node;
	s->pins = c->pins;
	pthread_mutex_init(&s->pin_lock, NULL);
	hc_cond_init(&s->given);
	s->held = hc_zalloc(c->host_pages * sizeof(*s->held));
	s->returning = hc_zalloc(c->host_pages * sizeof(*s->returning));
	if (!s->held || !s->returning) {
		shared_free(t);
		return -ENOMEM;
	}
	return 0;
}

static void give_back(struct hc_shared *s, struct hc_held *held, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (held[i].kind == HC_HELD_LEASE)
			hc_node_release(s->node, &held[i].ref, 1);
		else if (held[i].kind == HC_HELD_RESERVATION)
			hc_node_abort(s->node, &held[i].ref, 1);
	}
}

void hc_shared_destroy(struct hc_transfer *t)
{
	struct hc_shared *s = t->shared;

	if (!s)
		return;
	for (uint32_t i = 0; i < t->config.host_pages; i++)
		give_back(s, &s->held[i], 1);
	shared_free(t);
}

void hc_transfer_flush_locked(struct hc_transfer *t)
{
	struct hc_shared *s = t->shared;

	while (s && s->n_returning) {
		struct hc_held held[RETURN_BATCH];
		uint32_t numbers[RETURN_BATCH], n = 0;

		while (s->n_returning && n < RETURN_BATCH) {
			numbers[n] = s->returning[--s->n_returning];
			held[n] = s->held[numbers[n]];
			s->held[numbers[n++]] = (struct hc_held){0};
		}
		s->n_giving += n;
		pthread_mutex_unlock(&t->lock);
		give_back(s, held, n);
		pthread_mutex_lock(&t->lock);
		s->n_giving -= n;
		if (!s->n_giving)
			pthread_cond_broadcast(&s->given);
		for (uint32_t i = 0; i < n; i++)
			t->host_pages[numbers[i]] = (struct hc_side_page){0};
		hc_ignore(hc_slots_free(t->host_slots, numbers, n));
	}
}

int hc_transfer_returned_locked(struct hc_transfer *t, uint64_t deadline_ns)
{
	struct hc_shared *s = t->shared;

	hc_transfer_flush_locked(t);
	while (s && s->n_giving) {
		if (hc_cond_wait_until(&s->given, &t->lock, deadline_ns) == -ETIMEDOUT)
			return -ETIMEDOUT;
	}
	return 0;
}

void hc_transfer_unlock(struct hc_transfer *t)
{
	hc_transfer_flush_locked(t);
	pthread_mutex_unlock(&t->lock);
}

void hc_shared_return_locked(struct hc_transfer *t, uint32_t page)
{
	struct hc_shared *s = t->shared;

	/* Nobody may name it until its slot is the node's again. */
	t->host_pages[page] = (struct hc_side_page){.evicted = true};
	s->returning[s->n_returning++] = page;
}

/* Numbers that nobody else may name yet. */
static int numbers_take(struct hc_transfer *t, uint32_t *pages, size_t n)
{
	int err;

	pthread_mutex_lock(&t->lock);
	err = hc_slots_alloc(t->host_slots, n * t->config.plan.geometry.n_tokens, pages);
	for (size_t i = 0; i < n && !err; i++)
		t->host_pages[pages[i]] = (struct hc_side_page){.evicted = true};
	pthread_mutex_unlock(&t->lock);
	return err;
}

static void numbers_give(struct hc_transfer *t, const uint32_t *pages, size_t n)
{
	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < n; i++)
		hc_shared_return_locked(t, pages[i]);
	hc_transfer_unlock(t);
}

static struct hc_shared_segment *segment_find(struct hc_shared *s, void *host)
{
	for (uint32_t i = 0; i < s->n_segments; i++) {
		if (s->segments[i].host == host)
			return &s->segments[i];
	}
	return NULL;
}

/* The first page of a segment registers it. An address of 0: that failed. */
static int segment_add(struct hc_transfer *t, void *host, uint64_t size_bytes)
{
	struct hc_shared *s = t->shared;
	struct hc_shared_segment *segments =
		realloc(s->segments, (s->n_segments + 1) * sizeof(*segments));
	hc_device_addr addr = 0;
	int err;

	if (!segments)
		return -ENOMEM;
	s->segments = segments;
	err = hc_pins_get(s->pins, host, size_bytes, &addr);
	if (err == -ENOSPC)
		return -ENOMEM;
	if (err)
		hc_warn("controller",
			"a segment of the pool (%llu bytes) is not registered with the device: "
			"%s; its pages go through a bounce buffer",
			(unsigned long long)size_bytes, strerror(-err));
	segments[s->n_segments++] = (struct hc_shared_segment){host, addr};
	pthread_mutex_lock(&t->lock);
	if (err)
		t->stats.n_unregistered_segments++;
	else
		t->stats.n_registered_segments++;
	pthread_mutex_unlock(&t->lock);
	return 0;
}

static int find_address(struct hc_transfer *t, struct hc_held *held)
{
	struct hc_shared *s = t->shared;
	struct hc_shared_segment *segment;
	uint64_t size_bytes;
	void *host = hc_node_segment(s->node, &held->ref, &size_bytes);
	int err = 0;

	pthread_mutex_lock(&s->pin_lock);
	if (!segment_find(s, host))
		err = segment_add(t, host, size_bytes);
	segment = segment_find(s, host);
	held->addr = segment && segment->addr
			     ? segment->addr + (uint64_t)((char *)held->ref.data - (char *)host)
			     : 0;
	pthread_mutex_unlock(&s->pin_lock);
	return err;
}

/* The refs are the transfer's from here on, whatever the result. */
static int take_over(struct hc_transfer *t, const struct hc_ref *refs, size_t n,
		     enum hc_held_kind kind, const uint32_t *pages)
{
	int err = 0;

	for (size_t i = 0; i < n; i++) {
		struct hc_held *held = &t->shared->held[pages[i]];

		*held = (struct hc_held){.ref = refs[i], .kind = kind};
		if (!err)
			err = find_address(t, held);
	}
	return err;
}

int hc_shared_reserve(struct hc_transfer *t, size_t n, uint32_t *pages)
{
	hc_autofree struct hc_ref *refs = malloc(n * sizeof(*refs));
	size_t got = 0;
	int err;

	if (!refs)
		return -ENOMEM;
	err = numbers_take(t, pages, n);
	if (err)
		return err;
	err = hc_node_reserve(t->shared->node, &t->config.reserve, n, refs, &got);
	if (!err && got < n) {
		hc_node_abort(t->shared->node, refs, got);
		err = -ENOSPC;
	}
	if (!err)
		err = take_over(t, refs, n, HC_HELD_RESERVATION, pages);
	if (err)
		numbers_give(t, pages, n);
	return err;
}

void hc_shared_drop(struct hc_transfer *t, const uint32_t *pages, size_t n)
{
	numbers_give(t, pages, n);
}

/* Pages of another size are of another kvspec: misses, as is what follows them. */
static size_t right_size(struct hc_transfer *t, struct hc_ref *refs, size_t got)
{
	for (size_t i = 0; i < got; i++) {
		if (refs[i].size_bytes != hc_plan_page_bytes(t->plan)) {
			hc_node_release(t->shared->node, refs + i, got - i);
			return i;
		}
	}
	return got;
}

static int acquire(struct hc_transfer *t, const struct hc_acquire *how,
		   const struct hc_hash *hashes, size_t n, struct hc_ref *refs, size_t *got_p)
{
	int err = hc_node_acquire(t->shared->node, how, hashes, n, refs, got_p);

	if (!err)
		*got_p = right_size(t, refs, *got_p);
	return err ? err : *got_p ? 0 : -ENOENT;
}

int hc_transfer_acquire(struct hc_transfer *t, const struct hc_acquire *how,
			const struct hc_hash *hashes, size_t n, uint32_t *pages, size_t *n_p)
{
	hc_autofree struct hc_ref *refs = NULL;
	size_t got = 0;
	int err;

	if (!t->shared || !n || n > HC_TRANSFER_PAGES_MAX)
		return -EINVAL;
	refs = malloc(n * sizeof(*refs));
	if (!refs)
		return -ENOMEM;
	err = numbers_take(t, pages, n);
	if (err)
		return err;
	err = acquire(t, how, hashes, n, refs, &got);
	if (!err)
		err = take_over(t, refs, got, HC_HELD_LEASE, pages);
	if (err)
		got = 0;
	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < got; i++)
		t->host_pages[pages[i]] = (struct hc_side_page){.complete = true};
	for (size_t i = got; i < n; i++)
		hc_shared_return_locked(t, pages[i]);
	hc_transfer_unlock(t);
	if (!err)
		*n_p = got;
	return err;
}

/* All of them, or none and why. */
static int take_written_locked(struct hc_transfer *t, const uint32_t *pages, size_t n,
			       struct hc_ref *refs)
{
	size_t i;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		struct hc_side_page *page =
			pages[i] < t->config.host_pages ? &t->host_pages[pages[i]] : NULL;

		if (!page || !hc_slots_taken(t->host_slots, pages[i]) || page->evicted ||
		    t->shared->held[pages[i]].kind != HC_HELD_RESERVATION) {
			hc_error("controller", "host page %u is none that was written", pages[i]);
			err = -EINVAL;
		} else if (!page->complete || page->n_leases) {
			err = -EBUSY;
		} else {
			page->evicted = true;
			refs[i] = t->shared->held[pages[i]].ref;
		}
	}
	for (size_t k = 0; err && k + 1 < i; k++)
		t->host_pages[pages[k]].evicted = false;
	for (size_t k = 0; !err && k < n; k++)
		t->shared->held[pages[k]] = (struct hc_held){0};
	return err;
}

int hc_transfer_publish(struct hc_transfer *t, const uint32_t *pages,
			const struct hc_publish *items, size_t n, int *results)
{
	hc_autofree struct hc_ref *refs = NULL;
	int err;

	if (!t->shared || !n || n > HC_TRANSFER_PAGES_MAX)
		return -EINVAL;
	refs = malloc(n * sizeof(*refs));
	if (!refs)
		return -ENOMEM;
	pthread_mutex_lock(&t->lock);
	err = take_written_locked(t, pages, n, refs);
	pthread_mutex_unlock(&t->lock);
	if (err)
		return err;
	hc_node_publish(t->shared->node, refs, items, n, results);
	numbers_give(t, pages, n);
	return 0;
}
