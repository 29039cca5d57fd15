/* SPDX-License-Identifier: Apache-2.0 */
/* The only source of time. Tests replace it and move it by hand. Any thread. */
#ifndef HC_UTIL_CLOCK_H
#define HC_UTIL_CLOCK_H

#include <pthread.h>
#include <time.h>

#include "util/base.h"

/* Monotonic, for deadlines and durations. */
uint64_t hc_clock_now_ns(void);
/* Wall clock since 1970, for what is stored and shown. */
uint64_t hc_clock_wall_ns(void);

/* Test clock: from the first call on both clocks stand at what was set last. */
void hc_clock_fake_set_ns(uint64_t mono_ns, uint64_t wall_ns);
void hc_clock_fake_off(void);

/* Condition variable on the monotonic clock. */
void hc_cond_init(pthread_cond_t *cond);
/* Returns 0 when signalled (or spuriously), -ETIMEDOUT at deadline_ns of hc_clock_now_ns
 * (UINT64_MAX: never; only for idle workers). Under the fake clock it waits at most 1 ms of real
 * time. */
int hc_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);

#endif
