/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned memory of the device's own making, through which pages go whose memory could not be
 * registered: one copy by the CPU more. Slots of one page each, in chunks that are made when they
 * are needed and stay. See transfer.h. */
#include "controller/internal.h"
#include "util/log.h"

#define CHUNK_BYTES (32 * HC_MIB)

static uint64_t chunk_bytes(const struct hc_transfer *t)
{
	return hc_max_u64(CHUNK_BYTES, t->slot_bytes);
}

static uint32_t slots_per_chunk(const struct hc_transfer *t)
{
	return (uint32_t)(chunk_bytes(t) / t->slot_bytes);
}

static uint32_t chunks_max(const struct hc_transfer *t)
{
	uint64_t n = t->config.bounce_bytes / chunk_bytes(t);

	return (uint32_t)hc_min_u64(hc_max_u64(n, 1), HC_BOUNCE_CHUNKS_MAX);
}

void hc_bounce_destroy(struct hc_transfer *t)
{
	struct hc_bounce *b = &t->bounce;

	for (uint32_t i = 0; i < b->n_chunks; i++)
		hc_device_host_free(t->device, b->chunks[i].addr);
	free(b->free);
}

/* Without the lock: making pinned memory takes its time. */
static int chunk_make(struct hc_transfer *t, struct hc_bounce_chunk *chunk_p)
{
	int err = hc_device_host_alloc(t->device, chunk_bytes(t), &chunk_p->host, &chunk_p->addr);

	if (err)
		hc_error("controller", "no pinned memory for a bounce buffer of %llu bytes: %s",
			 (unsigned long long)chunk_bytes(t), strerror(-err));
	return err;
}

static int chunk_add_locked(struct hc_transfer *t, struct hc_bounce_chunk chunk)
{
	struct hc_bounce *b = &t->bounce;
	uint32_t n = slots_per_chunk(t);
	uint32_t *slots = realloc(b->free, (b->n_chunks + 1) * n * sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	b->free = slots;
	for (uint32_t i = 0; i < n; i++)
		b->free[b->n_free++] = b->n_chunks * n + n - 1 - i;
	b->chunks[b->n_chunks++] = chunk;
	return 0;
}

static int grow(struct hc_transfer *t)
{
	struct hc_bounce_chunk chunk;
	int err;

	pthread_mutex_unlock(&t->lock);
	err = chunk_make(t, &chunk);
	pthread_mutex_lock(&t->lock);
	if (err)
		return err;
	/* Another thread may have made the last one. */
	err = t->bounce.n_chunks < chunks_max(t) ? chunk_add_locked(t, chunk) : -EAGAIN;
	if (err)
		hc_device_host_free(t->device, chunk.addr);
	return err;
}

int hc_bounce_take(struct hc_transfer *t, uint32_t n, uint32_t *slots)
{
	struct hc_bounce *b = &t->bounce;
	int err = 0;

	if (n > chunks_max(t) * slots_per_chunk(t)) {
		hc_error("controller",
			 "%u pages of memory that is not registered with the device: the bounce "
			 "buffer (%llu bytes) holds %u",
			 n, (unsigned long long)(chunks_max(t) * chunk_bytes(t)),
			 chunks_max(t) * slots_per_chunk(t));
		return -ENOMEM;
	}
	pthread_mutex_lock(&t->lock);
	while (b->n_free < n && !err)
		err = b->n_chunks < chunks_max(t) ? grow(t) : -EAGAIN;
	for (uint32_t i = 0; i < n && !err; i++)
		slots[i] = b->free[--b->n_free];
	pthread_mutex_unlock(&t->lock);
	return err;
}

void hc_bounce_give_locked(struct hc_transfer *t, const uint32_t *slots, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (slots[i] != HC_BOUNCE_NONE)
			t->bounce.free[t->bounce.n_free++] = slots[i];
	}
}

static uint64_t offset_in_chunk(struct hc_transfer *t, uint32_t slot, uint32_t *chunk_p)
{
	*chunk_p = slot / slots_per_chunk(t);
	return slot % slots_per_chunk(t) * t->slot_bytes;
}

hc_device_addr hc_bounce_addr(struct hc_transfer *t, uint32_t slot)
{
	uint32_t chunk;
	uint64_t offset = offset_in_chunk(t, slot, &chunk);

	return t->bounce.chunks[chunk].addr + offset;
}

void *hc_bounce_data(struct hc_transfer *t, uint32_t slot)
{
	uint32_t chunk;
	uint64_t offset = offset_in_chunk(t, slot, &chunk);

	return (char *)t->bounce.chunks[chunk].host + offset;
}
