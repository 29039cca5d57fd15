/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the public face share: the handles behind hicache.h. Not installed.
 * A handle does not change after it was made, but for the counters, which are atomic. */
#ifndef HICACHE_INTERNAL_H
#define HICACHE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "hicache.h"
#include "model/kvspec.h"
#include "node/node.h"
#include "util/clock.h"
#include "util/log.h"

#define HC_PUBLIC "hicache"

#define HC_PUBLISH_PARAMS_BYTES_MIN offsetof(struct hicache_publish_params, parents)

struct hicache {
	struct hc_node *node;
	struct hc_registry *registry;
	uint32_t slots_per_segment;
	int pid; /* of the process that opened it */
	_Atomic uint64_t n_leased;
	_Atomic uint64_t n_reserved;
	_Atomic uint64_t n_handles; /* spaces, series and transfers */
};

struct hicache_space {
	struct hicache *hc;
	uint32_t id;
	uint32_t dir;
	struct hc_owner owner;
	char name[HC_NAME_BYTES];
};

struct hicache_series {
	struct hicache *hc;
	uint32_t id;
	uint32_t space;
	uint32_t page_tokens; /* 0: not declared */
	uint32_t n_digits;
	uint64_t page_bytes; /* 0: not declared */
	bool nested;         /* its pattern has directories */
	struct hc_owner owner;
	char fingerprint[HC_KVSPEC_FINGERPRINT];
	char *kvspec;
	char pattern[];
};

_Static_assert(sizeof(struct hicache_hash) == sizeof(struct hc_hash),
	       "arrays of them are the same");

static inline const struct hc_hash *hc_public_hashes(const struct hicache_hash *hashes)
{
	return (const struct hc_hash *)hashes;
}

/* A handle that came over a fork: the threads and the lock of the cache are the parent's. */
static inline bool hc_public_foreign(const struct hicache *hc)
{
	return hc->pid != (int)getpid();
}

static inline struct hc_key hc_public_key(const struct hicache_series *series,
					  const struct hicache_hash *hash)
{
	return (struct hc_key){series->id, *hc_public_hashes(hash)};
}

static inline uint64_t hc_public_deadline(uint32_t timeout_ms)
{
	return hc_clock_now_ns() + timeout_ms * HC_NS_PER_MS;
}

/* Copies a structure that begins with its size into ours of `bytes`; a shorter one, of an older
 * header, is filled with zeros. -EINVAL: shorter than `min_bytes`; -E2BIG: a newer one that asks
 * for what we do not know. */
int hc_public_params(const char *what, const void *given, size_t min_bytes, void *own,
		     size_t bytes) HC_MUST_CHECK;
/* The other way: fills as much of the caller's structure as it has; its size stays. */
int hc_public_fill(const char *what, void *given, const void *own, size_t bytes) HC_MUST_CHECK;

/* Whether a name of the series can hold the hash: all digits beyond its own are 0, and the path
 * reads back as it. */
int hc_public_nameable(const struct hicache_series *series, const struct hc_hash *hash);
void hc_public_publish_item(const struct hicache_series *series, const struct hicache_hash *hashes,
			    size_t i, const struct hicache_publish_params *params,
			    uint64_t size_bytes, struct hc_publish *item);

/* -EINVAL, told by name, where a pointer that a call must have is NULL. */
int hc_public_need(const char *call, const char *name, const void *p) HC_MUST_CHECK;
/* The result of a call; that memory was missing is told by its name, whoever asked for it. */
int hc_public_result(const char *call, int rc) HC_MUST_CHECK;

struct hc_device;
struct hc_pins;

struct hicache_device {
	struct hc_device *device;
	struct hc_pins *pins;
	int pid;
	_Atomic uint64_t n_transfers;
	pthread_mutex_t lock; /* the list of streams made here */
	struct hc_public_stream *streams;
};

static inline bool hc_public_device_foreign(const struct hicache_device *device)
{
	return device->pid != (int)getpid();
}

#endif
