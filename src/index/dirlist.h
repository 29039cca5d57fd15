/* SPDX-License-Identifier: Apache-2.0 */
/* The directory lists of the index: which pages a directory shows. Doubly linked through the
 * entries by number, so that a page costs nothing extra; heads in striped tables, a lock each
 * (below the shard locks, leaf). The entry's shard is locked in add and remove. Used by index.c
 * alone. */
#ifndef HC_INDEX_DIRLIST_H
#define HC_INDEX_DIRLIST_H

#include "index/index.h"

struct hc_dirlists;

int hc_dirlists_create(struct hc_index *index, struct hc_dirlists **lists_p) HC_MUST_CHECK;
void hc_dirlists_destroy(struct hc_dirlists *lists);
int hc_dirlists_add(struct hc_dirlists *lists, struct hc_entry *entry, uint32_t dir) HC_MUST_CHECK;
/* n entries in their order; nobody else can have found them yet. */
int hc_dirlists_add_many(struct hc_dirlists *lists, struct hc_entry *const *entries, size_t n,
			 uint32_t dir) HC_MUST_CHECK;
void hc_dirlists_remove(struct hc_dirlists *lists, struct hc_entry *entry);
uint64_t hc_dirlists_count(struct hc_dirlists *lists, uint32_t dir);
int hc_dirlists_snapshot(struct hc_dirlists *lists, uint32_t dir, struct hc_dir_item **items_p,
			 size_t *n_p) HC_MUST_CHECK;
void hc_dirlists_begin(struct hc_dirlists *lists, struct hc_dir_cursor *cursor, uint32_t dir);
size_t hc_dirlists_read(struct hc_dirlists *lists, struct hc_dir_cursor *cursor,
			struct hc_dir_item *items, size_t n);
void hc_dirlists_end(struct hc_dirlists *lists, struct hc_dir_cursor *cursor);
uint64_t hc_dirlists_bytes(struct hc_dirlists *lists);

#endif
