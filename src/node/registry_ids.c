/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that are never used twice: a block is persisted (journaled) before its first number is
 * handed out, so a kill skips numbers and repeats none. Handing out is lock-free inside a block. */
#include <endian.h>

#include "node/registry_internal.h"
#include "util/log.h"

void hc_counter_start(struct hc_counter *counter, uint64_t next, uint64_t block, uint64_t meta_key)
{
	atomic_store(&counter->next, next);
	atomic_store(&counter->limit, next);
	counter->block = block;
	counter->meta_key = meta_key;
}

static int counter_store(struct hc_registry *registry, const struct hc_counter *counter,
			 uint64_t value, bool now)
{
	uint64_t le = htole64(value);
	uint64_t ticket;

	if (!registry->catalog)
		return 0;
	return hc_catalog_put(registry->catalog, HC_TABLE_META, counter->meta_key, &le, sizeof(le),
			      now, &ticket);
}

static void counter_extend(struct hc_registry *registry, struct hc_counter *counter)
{
	uint64_t limit;
	int err = 0;

	pthread_mutex_lock(&registry->ids);
	/* Another thread may have been here. */
	if (atomic_load(&counter->next) > atomic_load(&counter->limit)) {
		limit = atomic_load(&counter->next) + counter->block;
		err = counter_store(registry, counter, limit, true);
		/* Numbers that rows, slots and files bear are skipped at the next start in any
		 * case. */
		atomic_store(&counter->limit, limit);
	}
	pthread_mutex_unlock(&registry->ids);
	if (err)
		hc_error(HC_REGISTRY_COMPONENT, "%s: cannot persist a block of numbers: %s",
			 registry->path, strerror(-err));
}

uint64_t hc_counter_next(struct hc_registry *registry, struct hc_counter *counter)
{
	uint64_t value = atomic_fetch_add(&counter->next, 1);

	while (hc_unlikely(value >= atomic_load(&counter->limit)))
		counter_extend(registry, counter);
	return value;
}

int hc_counter_put(struct hc_registry *registry, struct hc_counter *counter, bool now)
{
	int err;

	pthread_mutex_lock(&registry->ids);
	err = counter_store(registry, counter, atomic_load(&counter->limit), now);
	pthread_mutex_unlock(&registry->ids);
	return err;
}

void hc_counter_stop(struct hc_registry *registry, struct hc_counter *counter)
{
	/* A failure only skips the rest of the block. */
	if (counter_store(registry, counter, atomic_load(&counter->next), true))
		hc_debug(HC_REGISTRY_COMPONENT, "a block of numbers is skipped");
}

uint64_t hc_registry_next_sequence(struct hc_registry *registry)
{
	return hc_counter_next(registry, &registry->sequences);
}

uint64_t hc_registry_next_node_id(struct hc_registry *registry)
{
	return hc_counter_next(registry, &registry->node_ids);
}

void hc_registry_sequence_seen(struct hc_registry *registry, uint64_t sequence)
{
	uint64_t next = atomic_load(&registry->sequences.next);

	while (next <= sequence && sequence < UINT64_MAX &&
	       !atomic_compare_exchange_weak(&registry->sequences.next, &next, sequence + 1))
		;
}
