/* SPDX-License-Identifier: Apache-2.0 */
/* Interned (uid, gid, mode): pages have few different owners, so an entry holds a 16-bit number. At
 * most 65,535; number 0 is (0, 0, 0644). Any thread. */
#ifndef HC_INDEX_OWNER_H
#define HC_INDEX_OWNER_H

#include "util/base.h"

struct hc_owner {
	uint32_t uid;
	uint32_t gid;
	uint32_t mode; /* permission bits */
};

struct hc_owners;

int hc_owners_create(struct hc_owners **owners_p) HC_MUST_CHECK;
void hc_owners_destroy(struct hc_owners *owners);
/* -ENOSPC when all numbers are taken. */
int hc_owners_intern(struct hc_owners *owners, const struct hc_owner *owner,
		     uint16_t *number_p) HC_MUST_CHECK;
void hc_owners_get(struct hc_owners *owners, uint16_t number, struct hc_owner *owner_p);

#endif
