/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes of pages, directories and ordinary files: in memory, and in the catalog's
 * table `attrs` (journaled before a change returns). Only objects that have some are here: all
 * others cost nothing. Pages are known by the sequence of their body, so that backup, eviction from
 * memory and promotion change nothing; what is replaced or removed loses them.
 *
 * Any thread. A long lock (64 by id) serialises changes of one object and is held over the journal;
 * a short one guards the table. */
#ifndef HC_NODE_ATTRS_H
#define HC_NODE_ATTRS_H

#include "index/catalog.h"
#include "model/attrset.h"

/* Of all objects, packed, with what keeps them: 4 million of one small attribute. */
#define HC_ATTRS_BYTES_MAX (256 * HC_MIB)

enum hc_attrs_kind { HC_ATTRS_PAGE, HC_ATTRS_DIR, HC_ATTRS_FILE, HC_ATTRS_N };

struct hc_attrs;

/* catalog NULL: in memory only. */
int hc_attrs_create(struct hc_attrs **attrs_p) HC_MUST_CHECK;
void hc_attrs_destroy(struct hc_attrs *attrs);
/* Before anything else; rows that cannot be believed are dropped with a message. */
int hc_attrs_load(struct hc_attrs *attrs, struct hc_catalog *catalog) HC_MUST_CHECK;
/* Puts all rows again, after the catalog was renewed. */
int hc_attrs_put_all(struct hc_attrs *attrs) HC_MUST_CHECK;

/* Objects of a kind that have attributes; lock-free. */
uint64_t hc_attrs_count(struct hc_attrs *attrs, enum hc_attrs_kind kind);
uint64_t hc_attrs_bytes(struct hc_attrs *attrs);
/* A copy (hc_attrset_fini); empty when there are none. -ENOMEM. */
int hc_attrs_get(struct hc_attrs *attrs, enum hc_attrs_kind kind, uint64_t id,
		 struct hc_attrset *set_p) HC_MUST_CHECK;
/* Replaces all of an object; an empty set ends them. force: also above HC_ATTRS_BYTES_MAX. -ENOSPC,
 * -ENOMEM, errors of the catalog: then nothing changed. */
int hc_attrs_put(struct hc_attrs *attrs, enum hc_attrs_kind kind, uint64_t id,
		 const struct hc_attrset *set, bool force) HC_MUST_CHECK;
/* Reads, changes and puts as one. `change` returns 0 or -errno, which ends it unchanged. */
int hc_attrs_change(struct hc_attrs *attrs, enum hc_attrs_kind kind, uint64_t id,
		    int (*change)(void *arg, struct hc_attrset *set), void *arg) HC_MUST_CHECK;
/* The object is gone. Nothing to do for one without attributes: costs a look at a counter. */
void hc_attrs_drop(struct hc_attrs *attrs, enum hc_attrs_kind kind, uint64_t id);

/* At start: an object was found; false: it has no attributes. */
bool hc_attrs_claim(struct hc_attrs *attrs, enum hc_attrs_kind kind, uint64_t id);
/* What no object has any more goes: what keep refuses, or (NULL) what nobody claimed. */
void hc_attrs_sweep(struct hc_attrs *attrs, enum hc_attrs_kind kind,
		    bool (*keep)(void *arg, uint64_t id), void *arg);

#endif
