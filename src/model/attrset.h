/* SPDX-License-Identifier: Apache-2.0 */
/* A set of extended attributes of one page, file or directory, packed: for each the length of its
 * name (1 byte), the name without "user.", the length of its value (2 bytes, little-endian), the
 * value. Names are there once, in the order in which they were first set; an empty set has no
 * bytes. What is packed is input: check it before anything else. Pure functions. */
#ifndef HC_MODEL_ATTRSET_H
#define HC_MODEL_ATTRSET_H

#include "util/base.h"

/* All of an object, packed: a catalog row. */
#define HC_ATTRSET_BYTES_MAX 4000
/* A name without "user.", with its NUL: the kernel allows 255 in all. */
#define HC_ATTR_NAME_BYTES 251

struct hc_attrset {
	uint8_t *bytes; /* heap; NULL: empty */
	size_t n_bytes;
};

/* 0 or -EBADMSG. */
int hc_attrset_check(const void *in, size_t n_bytes) HC_MUST_CHECK;
/* Takes a copy of checked bytes, or of another set. -ENOMEM. */
int hc_attrset_copy(const void *in, size_t n_bytes, struct hc_attrset *set_p) HC_MUST_CHECK;
void hc_attrset_fini(struct hc_attrset *set);

/* NULL: absent. The value is valid until the set changes. */
const void *hc_attrset_find(const struct hc_attrset *set, const char *name, size_t *n_p);
/* create: -EEXIST when it is there; replace: -ENODATA when it is not. -E2BIG: no set could hold it;
 * -ENOSPC: this one has no room; -ERANGE: the name is empty or too long. */
int hc_attrset_set(struct hc_attrset *set, const char *name, const void *value, size_t n_bytes,
		   bool create, bool replace) HC_MUST_CHECK;
/* -ENODATA. */
int hc_attrset_remove(struct hc_attrset *set, const char *name) HC_MUST_CHECK;
/* The attribute at *at_p (0: the first), which moves on; false at the end. */
bool hc_attrset_next(const struct hc_attrset *set, size_t *at_p, char name[HC_ATTR_NAME_BYTES],
		     const void **value_p, size_t *n_p);

#endif
