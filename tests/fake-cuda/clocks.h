/* SPDX-License-Identifier: Apache-2.0 */
/* Vector clocks of the fake driver: happens-before between the host, streams and events is known at
 * the moment of enqueuing, so an unordered access is found whether or not it went wrong this time.
 * Not locked; the fake driver does. */
#ifndef HC_TESTS_CLOCKS_H
#define HC_TESTS_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* Slot 0 is the host. */
#define CLOCK_SLOTS 64

struct clock {
	uint64_t at[CLOCK_SLOTS];
};

void clocks_reset(void);
/* A slot for a stream, and its return. Slots are used anew only when all others are used up. */
uint32_t clocks_slot(void);
void clocks_slot_free(uint32_t slot);
/* One more piece of work on a stream, after all that the host has seen. */
void clocks_tick(uint32_t slot, struct clock *stream);
void clocks_join(struct clock *into, const struct clock *from);
/* The host learnt that something is reached. */
void clocks_host_joins(const struct clock *from);
/* An access by the stream's last piece of work. */
void clocks_access(uint32_t slot, const struct clock *stream, const void *at, uint64_t size_bytes,
		   bool write, const char *what);
void clocks_host_access(const void *at, uint64_t size_bytes, bool write, const char *what);
uint32_t clocks_races(const char **what_p);

#endif
