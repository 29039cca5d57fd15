/* SPDX-License-Identifier: Apache-2.0 */
/* Store "fault": wraps another store and makes it fail on command: delays, hangs, EIO, ENOSPC,
 * short reads, flipped bits, per operation, by seed and rate or by "the n-th". For tests and
 * benches; it owns the inner store.
 *
 * FLIP and SHORT act as a medium does. GET: the bytes in data are damaged, the result is -EBADMSG
 * (a flip under HC_STORE_NO_VERIFY: 0). PUT: what is stored is damaged, the result is the inner
 * store's; the caller's buffer is never touched. VERIFY, OPEN: -EBADMSG. Other operations move no
 * bytes: no effect. A request that is held (HANG, DELAY) has not reached the inner store; close
 * gives it -ECANCELED. */
#ifndef HC_STORE_FAULT_H
#define HC_STORE_FAULT_H

#include "store/store.h"

enum hc_fault_kind {
	HC_FAULT_NONE,
	HC_FAULT_ERROR,
	HC_FAULT_DELAY,
	HC_FAULT_HANG,
	HC_FAULT_FLIP,
	HC_FAULT_SHORT
};

struct hc_fault_rule {
	enum hc_store_op op;
	enum hc_fault_kind kind;
	int error;         /* ERROR: -EIO, -ENOSPC, ... */
	uint64_t delay_ns; /* DELAY */
	uint32_t rate_ppm; /* of requests of this op, by the seed; 1000000 = all */
	uint64_t nth;      /* if not 0: exactly the n-th request of this op from now */
};

int hc_store_fault_open(struct hc_store *inner, uint64_t seed,
			struct hc_store **store_p) HC_MUST_CHECK;
/* One rule per op; NONE takes it away and releases hung requests of that op to the inner store. Any
 * thread. */
void hc_store_fault_set(struct hc_store *store, const struct hc_fault_rule *rule);
/* Tests and benches of a whole daemon: with HICACHE_STORE_DELAY_MS in the environment every read
 * takes so much longer, with HICACHE_STORE_HANG=read or =write none ends; without either, or
 * without memory, `inner` is returned. */
struct hc_store *hc_store_fault_env(void *arg, struct hc_store *inner);
uint64_t hc_store_fault_hung(struct hc_store *store);

#endif
