/* SPDX-License-Identifier: Apache-2.0 */
/* Cases that every engine goes through by its own calls: publish and replace (point 3), two
 * processes that store one key at once while a third reads it (point 3), eviction (point 13), and
 * the temporary that is filled through a mapping (point 15). */
#include "tests/contract.h"

#define N_KEYS 3

/* A store that may have no room where others fill the pool. */
static bool stored(const struct engine *e, unsigned key, unsigned seed)
{
	int rc = e->store(e, key, seed);

	if (rc == -ENODEV && e->needs_map) {
		skip_case("no writable shared mappings of this file here (ENODEV)");
		check(e->exists(e, key), false);
		return false;
	}
	if (rc == -ENOSPC && t.phase == FULL)
		return false;
	if (rc)
		failed("%s: store of key %u: %s", e->name, key, strerror(-rc));
	return !rc;
}

static void load_one(const struct engine *e, unsigned key, unsigned seed)
{
	long got = e->load(e, key);

	if (got == -ENODEV && e->needs_map)
		skip_case("no shared mappings of pages here (ENODEV)");
	else
		check_page(got, seed);
}

/* Absent, stored, there, whole; replaced, whole. */
static void publish(const struct engine *e)
{
	unsigned n_keys = e->size_bytes > 8 * MIB ? 1 : N_KEYS;

	for (unsigned key = 100; key < 100 + n_keys; key++) {
		if (t.phase == FRESH || t.phase == PLAIN)
			check(e->exists(e, key), false);
		if (!stored(e, key, key))
			continue;
		if (t.phase != FULL)
			check(e->exists(e, key), true);
		load_one(e, key, key);
		if (stored(e, key, key + 1000))
			load_one(e, key, key + 1000);
	}
}

struct race {
	const struct engine *e;
	unsigned rounds;
};

static unsigned race_key(unsigned round)
{
	return round & 1 ? 300 + round : 200;
}

/* Two store, the third reads all the time; then all see one whole page of this round. */
static void race_process(int who, void *arg)
{
	const struct race *race = arg;
	const struct engine *e = race->e;
	bool told = false;
	long got;

	for (unsigned round = 0; round < race->rounds; round++) {
		unsigned key = race_key(round), seed = 2 * round + 1;

		meet(3);
		if (who < 2) {
			stored(e, key, seed + (unsigned)who);
		} else {
			for (int i = 0; i < 4; i++) {
				got = e->load(e, key);
				/* note() counts what is wrong in it; a miss is right before the
				 * first */
				if (got < 0 && got != -ENODEV)
					check(got, -ENOENT);
				if (key == 200 && round > 0 && t.phase != FULL)
					check_true(got != -ENOENT);
			}
		}
		meet(3);
		got = e->load(e, key);
		if (got == -ENODEV || (t.phase == FULL && got == -ENOENT))
			continue;
		if ((got != seed && got != seed + 1) && !told) {
			failed("%s: round %u: page %ld, expected %u or %u", e->name, round, got,
			       seed, seed + 1);
			told = true;
		}
	}
}

static void two_processes(const struct engine *e)
{
	struct race race = {e, 10};

	if (t.phase == PLAIN && e->races_on_ext4) {
		skip_case("on other file systems this engine's processes disturb each other");
		return;
	}
	/* the case the contract names: all processes use one temporary name */
	if (!strcmp(e->name, "lmcache_fs_native"))
		race.rounds = 100;
	else if (e->size_bytes > 8 * MIB)
		race.rounds = 2;
	in_processes(3, race_process, &race);
}

/* What is evicted is absent, cleanly, and can be stored again. */
static void evicted(const struct engine *e)
{
	if (!stored(e, 500, 5))
		return;
	drop_memory();
	load_one(e, 500, 5);
	evict_space();
	check(e->load(e, 500), -ENOENT);
	check(e->exists(e, 500), false);
	if (stored(e, 500, 6))
		load_one(e, 500, 6);
}

/* Renamed at once after munmap: whole, or refused with nothing published. */
static void mapped_temporary(void)
{
	const struct engine *e = lmcache_engines;

	while (strcmp(e->name, "lmcache_gds") != 0)
		e++;
	for (unsigned key = 600; key < 620; key++) {
		if (!stored(e, key, key))
			return;
		load_one(e, key, key);
	}
}

const struct contract_case engine_cases[] = {
	{3, "publish", NULL, publish, EVERYWHERE, false},
	{3, "two_processes", NULL, two_processes, EVERYWHERE, true},
	{13, "evicted_is_absent", NULL, evicted, IN(FRESH), false},
	{15, "mapped_temporary", mapped_temporary, NULL, EVERYWHERE, false},
	{.name = NULL},
};
