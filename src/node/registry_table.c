/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of the registry: see registry_internal.h. Adding never fails: a table that cannot grow has
 * longer chains. */
#include "node/registry_internal.h"

#define HC_MAP_FIRST 64u

int hc_idmap_init(struct hc_idmap *map, uint32_t n_top)
{
	map->top = calloc(n_top, sizeof(*map->top));
	if (!map->top)
		return -ENOMEM;
	map->n_top = n_top;
	return 0;
}

void hc_idmap_fini(struct hc_idmap *map)
{
	for (uint32_t i = 0; map->top && i < map->n_top; i++)
		free(atomic_load_explicit(&map->top[i], memory_order_relaxed));
	free(map->top);
	map->top = NULL;
	map->n_top = 0;
}

int hc_idmap_prepare(struct hc_idmap *map, uint32_t id)
{
	struct hc_idmap_chunk *chunk;

	if (id / HC_IDMAP_CHUNK >= map->n_top)
		return -ENOSPC;
	if (atomic_load_explicit(&map->top[id / HC_IDMAP_CHUNK], memory_order_relaxed))
		return 0;
	chunk = hc_zalloc(sizeof(*chunk));
	if (!chunk)
		return -ENOMEM;
	atomic_store_explicit(&map->top[id / HC_IDMAP_CHUNK], chunk, memory_order_release);
	return 0;
}

void hc_idmap_set(struct hc_idmap *map, uint32_t id, void *object)
{
	struct hc_idmap_chunk *chunk;

	hc_assert(id / HC_IDMAP_CHUNK < map->n_top);
	chunk = atomic_load_explicit(&map->top[id / HC_IDMAP_CHUNK], memory_order_relaxed);
	hc_assert(chunk);
	chunk->n++;
	atomic_store_explicit(&chunk->at[id % HC_IDMAP_CHUNK], object, memory_order_release);
}

void hc_idmap_replace(struct hc_idmap *map, uint32_t id, void *object)
{
	struct hc_idmap_chunk *chunk =
		atomic_load_explicit(&map->top[id / HC_IDMAP_CHUNK], memory_order_relaxed);

	atomic_store_explicit(&chunk->at[id % HC_IDMAP_CHUNK], object, memory_order_release);
}

void hc_idmap_clear(struct hc_idmap *map, uint32_t id)
{
	struct hc_idmap_chunk *chunk =
		atomic_load_explicit(&map->top[id / HC_IDMAP_CHUNK], memory_order_relaxed);

	atomic_store_explicit(&chunk->at[id % HC_IDMAP_CHUNK], NULL, memory_order_release);
	if (--chunk->n)
		return;
	atomic_store_explicit(&map->top[id / HC_IDMAP_CHUNK], NULL, memory_order_release);
	free(chunk);
}

int hc_map_init(struct hc_table_map *map)
{
	map->buckets = calloc(HC_MAP_FIRST, sizeof(*map->buckets));
	if (!map->buckets)
		return -ENOMEM;
	map->mask = HC_MAP_FIRST - 1;
	map->n = 0;
	return 0;
}

void hc_map_fini(struct hc_table_map *map)
{
	free(map->buckets);
	map->buckets = NULL;
}

static void map_grow(struct hc_table_map *map)
{
	uint32_t n = (map->mask + 1) * 2;
	struct hc_link **buckets = n ? calloc(n, sizeof(*buckets)) : NULL;

	if (!buckets)
		return;
	for (uint32_t i = 0; i <= map->mask; i++) {
		struct hc_link *link = map->buckets[i];

		while (link) {
			struct hc_link *next = link->next;

			link->next = buckets[link->hash & (n - 1)];
			buckets[link->hash & (n - 1)] = link;
			link = next;
		}
	}
	free(map->buckets);
	map->buckets = buckets;
	map->mask = n - 1;
}

void hc_map_add(struct hc_table_map *map, struct hc_link *link, uint32_t hash)
{
	if (map->n > map->mask)
		map_grow(map);
	link->hash = hash;
	link->next = map->buckets[hash & map->mask];
	map->buckets[hash & map->mask] = link;
	map->n++;
}

void hc_map_remove(struct hc_table_map *map, struct hc_link *link)
{
	struct hc_link **at = &map->buckets[link->hash & map->mask];

	while (*at != link) {
		hc_assert(*at);
		at = &(*at)->next;
	}
	*at = link->next;
	link->next = NULL;
	map->n--;
}

struct hc_link *hc_map_match(struct hc_link *link, uint32_t hash)
{
	while (link && link->hash != hash)
		link = link->next;
	return link;
}
