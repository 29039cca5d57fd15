/* SPDX-License-Identifier: Apache-2.0 */
/* See clocks.h. An access is forgotten once the host has seen it, for everything that is enqueued
 * afterwards is after what the host has seen. */
#include "tests/fake-cuda/clocks.h"

#include "util/base.h"

struct access {
	uintptr_t from, to;
	uint64_t time;
	const char *what;
	uint32_t slot;
	bool write;
};

static struct clock host;
static struct access *accesses;
static size_t n_accesses, room;
static uint32_t n_races, next_slot;
static bool used[CLOCK_SLOTS];
static char first_race[256];

void clocks_reset(void)
{
	memset(&host, 0, sizeof(host));
	memset(used, 0, sizeof(used));
	free(accesses);
	accesses = NULL;
	n_accesses = room = n_races = 0;
	next_slot = 0;
	used[0] = true;
	first_race[0] = 0;
}

uint32_t clocks_slot(void)
{
	for (uint32_t i = 0; i < CLOCK_SLOTS; i++) {
		next_slot = (next_slot + 1) % CLOCK_SLOTS;
		if (!used[next_slot]) {
			used[next_slot] = true;
			return next_slot;
		}
	}
	hc_assert(!"too many streams for the clocks");
	return 0;
}

void clocks_slot_free(uint32_t slot)
{
	used[slot] = false;
}

void clocks_join(struct clock *into, const struct clock *from)
{
	for (int i = 0; i < CLOCK_SLOTS; i++)
		into->at[i] = hc_max_u64(into->at[i], from->at[i]);
}

void clocks_tick(uint32_t slot, struct clock *stream)
{
	clocks_join(stream, &host);
	stream->at[slot] = hc_max_u64(stream->at[slot], host.at[slot]) + 1;
}

void clocks_host_joins(const struct clock *from)
{
	size_t n = 0;

	clocks_join(&host, from);
	for (size_t i = 0; i < n_accesses; i++) {
		if (accesses[i].slot && accesses[i].time > host.at[accesses[i].slot])
			accesses[n++] = accesses[i];
	}
	n_accesses = n;
}

static void note_race(const struct access *now, const struct access *before)
{
	if (!n_races++)
		snprintf(first_race, sizeof(first_race),
			 "%s (%s, clock %u) is not ordered after %s (%s, clock %u)", now->what,
			 now->write ? "write" : "read", now->slot, before->what,
			 before->write ? "write" : "read", before->slot);
}

/* Runs of one piece of work that lie one after the other, on either of its sides, are one access.
 */
static bool extend(const struct access *now)
{
	for (size_t i = n_accesses; i && i + 2 > n_accesses; i--) {
		struct access *a = &accesses[i - 1];

		if (a->to == now->from && a->slot == now->slot && a->time == now->time &&
		    a->write == now->write) {
			a->to = now->to;
			return true;
		}
	}
	return false;
}

static void note(const struct access *now, const struct clock *clock)
{
	for (size_t i = 0; i < n_accesses; i++) {
		const struct access *a = &accesses[i];

		if (a->from < now->to && now->from < a->to && (a->write || now->write) &&
		    a->time > clock->at[a->slot])
			note_race(now, a);
	}
	if (now->slot && extend(now))
		return;
	if (n_accesses == room) {
		struct access *more;

		room = room ? 2 * room : 1024;
		more = realloc(accesses, room * sizeof(*accesses));
		hc_assert(more);
		accesses = more;
	}
	accesses[n_accesses++] = *now;
}

void clocks_access(uint32_t slot, const struct clock *stream, const void *at, uint64_t size_bytes,
		   bool write, const char *what)
{
	struct access now = {
		(uintptr_t)at, (uintptr_t)at + size_bytes, stream->at[slot], what, slot, write};

	note(&now, stream);
}

/* What the host does is before all that is enqueued later; only the past can race with it. */
void clocks_host_access(const void *at, uint64_t size_bytes, bool write, const char *what)
{
	struct access now = {(uintptr_t)at, (uintptr_t)at + size_bytes, 0, what, 0, write};

	note(&now, &host);
	n_accesses--;
}

uint32_t clocks_races(const char **what_p)
{
	if (what_p)
		*what_p = n_races ? first_race : NULL;
	return n_races;
}
