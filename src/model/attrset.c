/* SPDX-License-Identifier: Apache-2.0 */
/* See attrset.h. */
#include "model/attrset.h"

#define HC_ATTR_HEAD_BYTES 3u /* the two lengths */

struct hc_attr {
	const uint8_t *name;
	const uint8_t *value;
	size_t name_n, value_n, all_n;
};

/* The attribute that begins at `at`; false: it does not fit into what is there. */
static bool hc_attr_at(const uint8_t *bytes, size_t n_bytes, size_t at, struct hc_attr *attr_p)
{
	size_t name_n, value_n;

	if (n_bytes - at < HC_ATTR_HEAD_BYTES)
		return false;
	name_n = bytes[at];
	if (n_bytes - at < HC_ATTR_HEAD_BYTES + name_n)
		return false;
	value_n = bytes[at + 1 + name_n] | (size_t)bytes[at + 2 + name_n] << 8;
	if (n_bytes - at - HC_ATTR_HEAD_BYTES - name_n < value_n)
		return false;
	*attr_p = (struct hc_attr){
		.name = bytes + at + 1,
		.value = bytes + at + HC_ATTR_HEAD_BYTES + name_n,
		.name_n = name_n,
		.value_n = value_n,
		.all_n = HC_ATTR_HEAD_BYTES + name_n + value_n,
	};
	return true;
}

static bool hc_attr_find(const struct hc_attrset *set, const char *name, size_t name_n,
			 struct hc_attr *attr_p)
{
	for (size_t at = 0; at < set->n_bytes; at += attr_p->all_n) {
		if (!hc_attr_at(set->bytes, set->n_bytes, at, attr_p))
			return false;
		if (attr_p->name_n == name_n && !memcmp(attr_p->name, name, name_n))
			return true;
	}
	return false;
}

int hc_attrset_check(const void *in, size_t n_bytes)
{
	struct hc_attrset set = {.bytes = (uint8_t *)in, .n_bytes = n_bytes};
	struct hc_attr attr, first;

	if (n_bytes > HC_ATTRSET_BYTES_MAX)
		return -EBADMSG;
	for (size_t at = 0; at < n_bytes; at += attr.all_n) {
		if (!hc_attr_at(set.bytes, n_bytes, at, &attr) || !attr.name_n ||
		    attr.name_n >= HC_ATTR_NAME_BYTES || memchr(attr.name, 0, attr.name_n))
			return -EBADMSG;
		/* One that comes twice is found at its first place. */
		if (!hc_attr_find(&set, (const char *)attr.name, attr.name_n, &first) ||
		    first.name != attr.name)
			return -EBADMSG;
	}
	return 0;
}

int hc_attrset_copy(const void *in, size_t n_bytes, struct hc_attrset *set_p)
{
	uint8_t *bytes = NULL;

	if (n_bytes) {
		bytes = malloc(n_bytes);
		if (!bytes)
			return -ENOMEM;
		memcpy(bytes, in, n_bytes);
	}
	*set_p = (struct hc_attrset){bytes, n_bytes};
	return 0;
}

void hc_attrset_fini(struct hc_attrset *set)
{
	free(set->bytes);
	*set = (struct hc_attrset){0};
}

const void *hc_attrset_find(const struct hc_attrset *set, const char *name, size_t *n_p)
{
	struct hc_attr attr;

	if (!hc_attr_find(set, name, strlen(name), &attr))
		return NULL;
	*n_p = attr.value_n;
	return attr.value;
}

static void hc_attr_cut(struct hc_attrset *set, const struct hc_attr *attr)
{
	size_t at = (size_t)(attr->name - 1 - set->bytes);

	memmove(set->bytes + at, set->bytes + at + attr->all_n, set->n_bytes - at - attr->all_n);
	set->n_bytes -= attr->all_n;
}

int hc_attrset_set(struct hc_attrset *set, const char *name, const void *value, size_t n_bytes,
		   bool create, bool replace)
{
	size_t name_n = strlen(name), all_n = HC_ATTR_HEAD_BYTES + name_n + n_bytes, room;
	struct hc_attr old = {0};
	bool there = hc_attr_find(set, name, name_n, &old);
	uint8_t *bytes, *p;

	if (!name_n || name_n >= HC_ATTR_NAME_BYTES)
		return -ERANGE;
	if (create && there)
		return -EEXIST;
	if (replace && !there)
		return -ENODATA;
	if (all_n > HC_ATTRSET_BYTES_MAX)
		return -E2BIG;
	room = set->n_bytes - (there ? old.all_n : 0) + all_n;
	if (room > HC_ATTRSET_BYTES_MAX)
		return -ENOSPC;
	bytes = malloc(room);
	if (!bytes)
		return -ENOMEM;
	if (there)
		hc_attr_cut(set, &old);
	if (set->n_bytes)
		memcpy(bytes, set->bytes, set->n_bytes);
	p = bytes + set->n_bytes;
	*p++ = (uint8_t)name_n;
	memcpy(p, name, name_n);
	p += name_n;
	*p++ = (uint8_t)n_bytes;
	*p++ = (uint8_t)(n_bytes >> 8);
	if (n_bytes)
		memcpy(p, value, n_bytes);
	free(set->bytes);
	*set = (struct hc_attrset){bytes, room};
	return 0;
}

int hc_attrset_remove(struct hc_attrset *set, const char *name)
{
	struct hc_attr attr;

	if (!hc_attr_find(set, name, strlen(name), &attr))
		return -ENODATA;
	hc_attr_cut(set, &attr);
	if (!set->n_bytes)
		hc_attrset_fini(set);
	return 0;
}

bool hc_attrset_next(const struct hc_attrset *set, size_t *at_p, char name[HC_ATTR_NAME_BYTES],
		     const void **value_p, size_t *n_p)
{
	struct hc_attr attr;

	if (*at_p >= set->n_bytes || !hc_attr_at(set->bytes, set->n_bytes, *at_p, &attr) ||
	    attr.name_n >= HC_ATTR_NAME_BYTES)
		return false;
	memcpy(name, attr.name, attr.name_n);
	name[attr.name_n] = 0;
	*value_p = attr.value;
	*n_p = attr.value_n;
	*at_p += attr.all_n;
	return true;
}
