/* SPDX-License-Identifier: Apache-2.0 */
/* Hints: attributes of pages and directories that say how long pages stay. They are kept as the
 * attributes they are set by; what follows from them is in the entry, so that eviction looks at
 * nothing else. A page's own hint comes before those of the directories above it (the nearest that
 * has one), and these before the space's priority. */
#include "node/internal.h"

#define HC_HINT_LEVELS_MAX 256u /* directories above a page that are asked */

static const char *const hc_hint_names[HC_HINT_N] = {
	[HC_HINT_PINNED] = "hicache.pinned",
	[HC_HINT_PRIORITY] = "hicache.priority",
	[HC_HINT_SESSION] = "hicache.session",
};

static const struct {
	enum hc_hint hint;
	const char *word;
	int value;
} hc_hint_words[] = {
	{HC_HINT_PINNED, "0", 0},
	{HC_HINT_PINNED, "1", 1},
	{HC_HINT_PRIORITY, "low", 0},
	{HC_HINT_PRIORITY, "normal", HC_PRIORITY_SPACE},
	{HC_HINT_PRIORITY, "high", UINT8_MAX},
	{HC_HINT_SESSION, "none", HC_SESSION_NONE},
	{HC_HINT_SESSION, "alive", HC_SESSION_ALIVE},
	{HC_HINT_SESSION, "ended", HC_SESSION_ENDED},
};

const char *hc_hint_name(enum hc_hint hint)
{
	return hc_hint_names[hint];
}

enum hc_hint hc_hint_of(const char *name)
{
	enum hc_hint hint = 0;

	while (hint < HC_HINT_N && strcmp(hc_hint_names[hint], name))
		hint++;
	return hint;
}

int hc_hint_parse(enum hc_hint hint, const char *text, size_t n, int *value_p)
{
	int value = 0;

	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_hint_words); i++) {
		if (hc_hint_words[i].hint == hint && strlen(hc_hint_words[i].word) == n &&
		    !memcmp(hc_hint_words[i].word, text, n)) {
			*value_p = hc_hint_words[i].value;
			return 0;
		}
	}
	if (hint != HC_HINT_PRIORITY || !n || n > 3)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		value = value * 10 + (text[i] - '0');
	}
	if (value > UINT8_MAX)
		return -EINVAL;
	*value_p = value;
	return 0;
}

/* Takes those that are not known yet. */
static void hc_hints_take(const struct hc_attrset *set, int values[HC_HINT_N])
{
	for (enum hc_hint hint = 0; set->n_bytes && hint < HC_HINT_N; hint++) {
		const void *text;
		size_t n;

		if (values[hint] != HC_HINT_NONE)
			continue;
		text = hc_attrset_find(set, hc_hint_names[hint], &n);
		if (text && hc_hint_parse(hint, text, n, &values[hint]))
			values[hint] = HC_HINT_NONE;
	}
}

void hc_hints_find(struct hc_node *node, const struct hc_attrset *own, uint32_t dir,
		   uint8_t space_priority, struct hc_hints *hints_p)
{
	struct hc_attrs *attrs = hc_registry_attrs(node->registry);
	int values[HC_HINT_N] = {HC_HINT_NONE, HC_HINT_NONE, HC_HINT_NONE};
	unsigned level = hc_attrs_count(attrs, HC_ATTRS_DIR) ? HC_HINT_LEVELS_MAX : 0;

	if (own)
		hc_hints_take(own, values);
	while (level-- && dir) {
		struct hc_attrset set;
		struct hc_dir_info info;

		if (hc_attrs_get(attrs, HC_ATTRS_DIR, dir, &set))
			break;
		hc_hints_take(&set, values);
		hc_attrset_fini(&set);
		dir = hc_dir_get(node->registry, dir, &info) ? 0 : info.parent;
	}
	*hints_p = (struct hc_hints){
		.priority = space_priority,
		.session = values[HC_HINT_SESSION] == HC_HINT_NONE
				   ? HC_SESSION_NONE
				   : (uint8_t)values[HC_HINT_SESSION],
		.pinned = values[HC_HINT_PINNED] == 1,
	};
	if (values[HC_HINT_PRIORITY] >= 0 && values[HC_HINT_PRIORITY] <= UINT8_MAX)
		hints_p->priority = (uint8_t)values[HC_HINT_PRIORITY];
}

bool hc_hints_claim(struct hc_node *node, uint64_t sequence, uint32_t dir, uint8_t space_priority,
		    struct hc_hints *hints_p)
{
	struct hc_attrs *attrs = hc_registry_attrs(node->registry);
	struct hc_attrset set = {0};
	bool there = hc_attrs_claim(attrs, HC_ATTRS_PAGE, sequence);

	if (there && hc_attrs_get(attrs, HC_ATTRS_PAGE, sequence, &set))
		set = (struct hc_attrset){0};
	hc_hints_find(node, &set, dir, space_priority, hints_p);
	hc_attrset_fini(&set);
	return there;
}

/* The named entry of a body, its shard locked; NULL: gone, unlocked. */
static struct hc_entry *hc_hints_lock(struct hc_node *node, uint32_t number, uint64_t sequence,
				      struct hc_shard **shard_p)
{
	struct hc_shard *shard = hc_index_entry_shard(node->index, number);
	struct hc_entry *entry = shard ? hc_index_entry(node->index, number) : NULL;

	if (!entry)
		return NULL;
	hc_shard_lock(shard);
	if (entry->sequence == sequence && entry->flags & HC_ENTRY_NAMED) {
		*shard_p = shard;
		return entry;
	}
	hc_shard_unlock(shard);
	return NULL;
}

/* Brings an entry in line with the attributes of its page and of the directories above. */
static int hc_hints_apply(struct hc_node *node, uint32_t number, uint64_t sequence)
{
	struct hc_shard *shard;
	struct hc_entry *entry = hc_hints_lock(node, number, sequence, &shard);
	struct hc_after after = {0};
	struct hc_attrset set;
	struct hc_hints hints;
	uint32_t series, dir;
	uint64_t key;
	int rc;

	if (!entry)
		return -ESTALE;
	series = entry->series;
	dir = entry->dir;
	hc_shard_unlock(shard);
	rc = hc_attrs_get(hc_registry_attrs(node->registry), HC_ATTRS_PAGE, sequence, &set);
	if (rc)
		return rc;
	hc_hints_find(node, &set, dir,
		      hc_node_space_priority(node, hc_series_space(node->registry, series)),
		      &hints);
	entry = hc_hints_lock(node, number, sequence, &shard);
	if (entry) {
		key = hc_order_key(entry);
		hc_hints_give(entry, &hints);
		entry->attrs = set.n_bytes != 0;
		/* The key fell: the old record would come too late, so a second one is filed. */
		if (hc_order_key(entry) < key) {
			entry->flags &= (uint16_t) ~(HC_ENTRY_IN_MEM | HC_ENTRY_IN_SPACE);
			hc_entry_push_mem(node, entry);
			hc_entry_push_space(node, entry);
		}
		/* It may have been parked as pinned. */
		hc_entry_settle(node, shard, entry, &after);
		hc_shard_unlock(shard);
		hc_after_run(node, &after);
	}
	hc_attrset_fini(&set);
	return entry ? 0 : -ESTALE;
}

int hc_node_attrs_change(struct hc_node *node, uint32_t number, uint64_t sequence,
			 int (*change)(void *arg, struct hc_attrset *set), void *arg)
{
	struct hc_attrs *attrs = hc_registry_attrs(node->registry);
	struct hc_shard *shard;
	int rc;

	if (!hc_hints_lock(node, number, sequence, &shard))
		return -ESTALE;
	hc_shard_unlock(shard);
	rc = hc_attrs_change(attrs, HC_ATTRS_PAGE, sequence, change, arg);
	if (rc)
		return rc;
	rc = hc_hints_apply(node, number, sequence);
	/* Removed in between: nobody else drops them. */
	if (rc == -ESTALE)
		hc_attrs_drop(attrs, HC_ATTRS_PAGE, sequence);
	return rc;
}

struct hc_hint_change {
	enum hc_hint hint;
	int value;
};

static int hc_hint_change(void *arg, struct hc_attrset *set)
{
	const struct hc_hint_change *change = arg;
	const char *word = NULL, *name = hc_hint_names[change->hint];
	char number[8];

	if (change->value == HC_HINT_NONE) {
		int rc = hc_attrset_remove(set, name);

		return rc == -ENODATA ? 0 : rc;
	}
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_hint_words); i++)
		if (hc_hint_words[i].hint == change->hint &&
		    hc_hint_words[i].value == change->value)
			word = hc_hint_words[i].word;
	if (!word) {
		snprintf(number, sizeof(number), "%d", change->value);
		word = number;
	}
	return hc_attrset_set(set, name, word, strlen(word), false, false);
}

int hc_node_hint_page(struct hc_node *node, const struct hc_key *key, enum hc_hint hint, int value)
{
	struct hc_hint_change change = {hint, value};
	struct hc_page_info info;
	int rc = hc_node_stat(node, key, false, &info);

	if (!rc)
		rc = hc_node_attrs_change(node, info.entry, info.sequence, hc_hint_change, &change);
	return rc == -ESTALE ? -ENOENT : rc;
}

int hc_node_hints_below(struct hc_node *node, uint32_t dir)
{
	struct hc_page_info *pages = NULL;
	size_t n = 0;
	int rc = hc_node_pages_below(node, dir, &pages, &n);

	for (size_t i = 0; !rc && i < n; i++) {
		rc = hc_hints_apply(node, pages[i].entry, pages[i].sequence);
		if (rc == -ESTALE)
			rc = 0;
	}
	free(pages);
	return rc;
}
