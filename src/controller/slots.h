/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages of an engine's pool are taken: device slots, and host slots of a pool of its own.
 * Always whole pages; counted in tokens where SGLang does. Freeing what is not taken, twice, or out
 * of range is found, refused and changes nothing. Not locked; the owner does. */
#ifndef HC_CONTROLLER_SLOTS_H
#define HC_CONTROLLER_SLOTS_H

#include "util/base.h"

struct hc_slots;

int hc_slots_create(uint32_t n_pages, uint32_t page_tokens,
		    struct hc_slots **slots_p) HC_MUST_CHECK;
void hc_slots_destroy(struct hc_slots *slots);
uint32_t hc_slots_n_free(const struct hc_slots *slots);
/* pages: n_tokens / page_tokens of them, in rising order where that many neighbours are free.
 * -EINVAL: not whole pages; -ENOSPC: not that many free. Nothing changes on error. */
int hc_slots_alloc(struct hc_slots *slots, uint64_t n_tokens, uint32_t *pages) HC_MUST_CHECK;
/* -EINVAL: a page is not taken, or named twice; nothing is freed then. */
int hc_slots_free(struct hc_slots *slots, const uint32_t *pages, size_t n) HC_MUST_CHECK;
bool hc_slots_taken(const struct hc_slots *slots, uint32_t page);

#endif
