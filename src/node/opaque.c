/* SPDX-License-Identifier: Apache-2.0 */
/* Names of opaque pages (names without a hash), by entry number. Few pages are opaque, so they do
 * not cost every entry a pointer. One leaf lock. */
#include "node/internal.h"

#define HC_OPAQUE_BUCKETS 4096u

struct hc_opaque {
	struct hc_opaque *next;
	uint32_t number;
	char path[];
};

struct hc_opaques {
	pthread_mutex_t lock;
	struct hc_opaque *buckets[HC_OPAQUE_BUCKETS];
};

int hc_opaques_create(struct hc_opaques **opaques_p)
{
	struct hc_opaques *opaques = hc_zalloc(sizeof(*opaques));

	if (!opaques)
		return -ENOMEM;
	pthread_mutex_init(&opaques->lock, NULL);
	*opaques_p = opaques;
	return 0;
}

void hc_opaques_destroy(struct hc_opaques *opaques)
{
	if (!opaques)
		return;
	for (size_t i = 0; i < HC_OPAQUE_BUCKETS; i++) {
		while (opaques->buckets[i]) {
			struct hc_opaque *item = opaques->buckets[i];

			opaques->buckets[i] = item->next;
			free(item);
		}
	}
	pthread_mutex_destroy(&opaques->lock);
	free(opaques);
}

static struct hc_opaque **hc_opaque_find(struct hc_opaques *opaques, uint32_t number)
{
	struct hc_opaque **p = &opaques->buckets[number % HC_OPAQUE_BUCKETS];

	while (*p && (*p)->number != number)
		p = &(*p)->next;
	return p;
}

void hc_opaque_drop(struct hc_node *node, uint32_t number)
{
	struct hc_opaque **p, *item;

	pthread_mutex_lock(&node->opaques->lock);
	p = hc_opaque_find(node->opaques, number);
	item = *p;
	if (item)
		*p = item->next;
	pthread_mutex_unlock(&node->opaques->lock);
	free(item);
}

int hc_opaque_set(struct hc_node *node, uint32_t number, const char *path)
{
	size_t n = strlen(path) + 1;
	struct hc_opaque *item = malloc(sizeof(*item) + n);

	if (!item)
		return -ENOMEM;
	item->number = number;
	memcpy(item->path, path, n);
	hc_opaque_drop(node, number);
	pthread_mutex_lock(&node->opaques->lock);
	item->next = node->opaques->buckets[number % HC_OPAQUE_BUCKETS];
	node->opaques->buckets[number % HC_OPAQUE_BUCKETS] = item;
	pthread_mutex_unlock(&node->opaques->lock);
	return 0;
}

bool hc_opaque_get(struct hc_node *node, uint32_t number, char path[HC_PATH_BYTES])
{
	struct hc_opaque *item;

	pthread_mutex_lock(&node->opaques->lock);
	item = *hc_opaque_find(node->opaques, number);
	if (item)
		snprintf(path, HC_PATH_BYTES, "%s", item->path);
	pthread_mutex_unlock(&node->opaques->lock);
	return item;
}
