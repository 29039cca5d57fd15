/* SPDX-License-Identifier: Apache-2.0 */
/* Real and fake clocks. See clock.h. */
#include "util/clock.h"

#include <stdatomic.h>

static atomic_bool hc_clock_fake;
static _Atomic uint64_t hc_clock_fake_mono_ns;
static _Atomic uint64_t hc_clock_fake_wall_ns;

static uint64_t hc_clock_read(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * HC_NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t hc_clock_now_ns(void)
{
	if (hc_unlikely(atomic_load_explicit(&hc_clock_fake, memory_order_relaxed)))
		return atomic_load(&hc_clock_fake_mono_ns);
	return hc_clock_read(CLOCK_MONOTONIC);
}

uint64_t hc_clock_wall_ns(void)
{
	if (hc_unlikely(atomic_load_explicit(&hc_clock_fake, memory_order_relaxed)))
		return atomic_load(&hc_clock_fake_wall_ns);
	return hc_clock_read(CLOCK_REALTIME);
}

void hc_clock_fake_set_ns(uint64_t mono_ns, uint64_t wall_ns)
{
	atomic_store(&hc_clock_fake_mono_ns, mono_ns);
	atomic_store(&hc_clock_fake_wall_ns, wall_ns);
	atomic_store(&hc_clock_fake, true);
}

void hc_clock_fake_off(void)
{
	atomic_store(&hc_clock_fake, false);
}

void hc_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

int hc_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
	struct timespec t;

	if (atomic_load_explicit(&hc_clock_fake, memory_order_relaxed)) {
		uint64_t until_ns = hc_clock_read(CLOCK_MONOTONIC) + HC_NS_PER_MS;

		if (hc_clock_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
		t.tv_sec = (time_t)(until_ns / HC_NS_PER_S);
		t.tv_nsec = (long)(until_ns % HC_NS_PER_S);
		pthread_cond_timedwait(cond, lock, &t);
		return 0;
	}
	if (deadline_ns == UINT64_MAX) {
		pthread_cond_wait(cond, lock);
		return 0;
	}
	t.tv_sec = (time_t)(deadline_ns / HC_NS_PER_S);
	t.tv_nsec = (long)(deadline_ns % HC_NS_PER_S);
	return pthread_cond_timedwait(cond, lock, &t) == ETIMEDOUT ? -ETIMEDOUT : 0;
}
