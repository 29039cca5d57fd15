/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of libhicache: a KV cache in this process. C11 and C++; every function can be
 * called from other languages (no macros or inline functions needed). Each has a page in section 3
 * of the manual; concepts and caveats are in hicache(7).
 *
 *	hicache_open -> hicache_space_open -> hicache_series_open
 *	hicache_page_hash -> hicache_exists_prefix -> hicache_acquire -> hicache_release
 *	hicache_reserve -> (fill) -> hicache_publish
 *
 * Errors: 0 or a negative errno; the reason goes to the log (hicache_log_sink_set), once. Outputs
 * come last and are written on success only, unless their page says otherwise. Any thread may call
 * anything with any handle; only a close must be the last call with its handle. Every call that can
 * wait has a timeout in milliseconds; 0 never waits. In a child process after fork(2) every handle
 * of the parent is refused with -ESTALE.
 *
 * Structures that the caller fills or reads begin with `size`, which the caller sets to sizeof: so
 * they can grow. Members left zero have their default. */
#ifndef HICACHE_H
#define HICACHE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HICACHE_API __attribute__((visibility("default")))

struct hicache;        /* an opened cache */
struct hicache_space;  /* a space of it: owner, quota, eviction domain; usually one model */
struct hicache_series; /* the pages of one kind in a space: one kvspec, or one file name pattern */

/* --- the library --- */

/* The release of the library, as "0.1.0". Valid for ever; any thread. */
HICACHE_API const char *hicache_version(void);

enum hicache_log_level {
	HICACHE_LOG_ERROR,
	HICACHE_LOG_WARN,
	HICACHE_LOG_INFO,
	HICACHE_LOG_DEBUG,
	HICACHE_LOG_TRACE
};

/* text: one line without its end, valid during the call. Called one at a time, from any thread; it
 * must not call this library. */
typedef void (*hicache_log_sink_t)(void *arg, int level, const char *component, const char *text);

/* Where the log of this process goes; NULL: standard error. */
HICACHE_API void hicache_log_sink_set(hicache_log_sink_t sink, void *arg);
/* Up to which level (enum hicache_log_level); at first HICACHE_LOG_INFO. -EINVAL. */
HICACHE_API int hicache_log_level_set(int level);

/* --- opening --- */

enum hicache_backup {
	HICACHE_BACKUP_PUBLISH, /* pages are written to disk when they are published */
	HICACHE_BACKUP_REUSE,   /* when they are used for the second time */
	HICACHE_BACKUP_EVICT,   /* when they leave memory */
	HICACHE_BACKUP_OFF      /* never, except by hicache_sync */
};

#define HICACHE_OPEN_NOINIT    0x1u /* an empty directory is refused */
#define HICACHE_OPEN_DISK_OFF  0x2u /* nothing is written to disk; pages that are there are read */
#define HICACHE_OPEN_NO_VERIFY 0x4u /* pages are not checked when they are read */

struct hicache_params {
	size_t size;
	uint64_t pool_bytes;     /* host memory for pages; 0: 1 GiB */
	uint64_t segment_bytes;  /* of the pool's parts; 0: automatic */
	uint64_t max_page_bytes; /* 0: 64 MiB */
	uint64_t disk_bytes;     /* limit of pages on disk; 0: 80 % of what is free */
	uint64_t min_free_bytes; /* stays free on the disk; 0: 5 % */
	uint64_t index_bytes;    /* limit of the index; 0: 1 % of memory */
	uint32_t backup;         /* enum hicache_backup */
	uint32_t flags;          /* HICACHE_OPEN_* */
	uint32_t flush_ms;       /* how long close may write; 0: 20 s */
};

/* where: "dir:PATH" (a directory that only this process uses) or "mem:" (memory only). params may
 * be NULL. -EBUSY: the directory is in use, the log says by whom. */
HICACHE_API int hicache_open(const char *where, const struct hicache_params *params,
			     struct hicache **hc_p);
/* Writes what is not on disk yet (flush_ms), then ends. -EBUSY, and nothing happens, while pages
 * are held or spaces or series are open. NULL is accepted. */
HICACHE_API int hicache_close(struct hicache *hc);

/* --- spaces and series --- */

#define HICACHE_CREATE  0x1u /* make it if it is not there */
#define HICACHE_DECLARE 0x2u /* series: the kvspec holds for pages of unknown layout, too */

#define HICACHE_SET_QUOTA    0x1u
#define HICACHE_SET_MAX_AGE  0x2u
#define HICACHE_SET_PRIORITY 0x4u

struct hicache_space_params {
	size_t size;
	uint64_t quota_bytes; /* 0: none */
	uint64_t max_age_s;   /* older pages are misses; 0: none */
	uint32_t priority;    /* 0 to 255; pages of a higher one stay longer */
	uint32_t set;         /* HICACHE_SET_*: which of the above apply */
	uint32_t mode;        /* permissions of a new space; 0: 0755 */
};

struct hicache_space_info {
	size_t size;
	uint64_t quota_bytes;
	uint64_t used_bytes; /* of pages and reservations, in any tier */
	uint64_t max_age_s;
	uint32_t priority;
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	uint32_t n_series;
};

/* name: one directory name, or "." for the root's own space. params may be NULL. */
HICACHE_API int hicache_space_open(struct hicache *hc, const char *name, uint32_t flags,
				   const struct hicache_space_params *params,
				   struct hicache_space **space_p);
HICACHE_API int hicache_space_close(struct hicache_space *space);
/* Changes what params->set says. */
HICACHE_API int hicache_space_set(struct hicache_space *space,
				  const struct hicache_space_params *params);
HICACHE_API int hicache_space_get(struct hicache_space *space, struct hicache_space_info *info);
/* Removes every page of the space from every tier, except held and pinned ones. */
HICACHE_API int hicache_space_clear(struct hicache_space *space, uint32_t timeout_ms,
				    uint64_t *n_removed_p, uint64_t *n_kept_p);

struct hicache_series_info {
	size_t size;
	uint64_t page_bytes;     /* 0: not declared */
	uint32_t page_tokens;    /* 0: not declared */
	uint32_t hash_digits;    /* hex digits of a hash that its names hold */
	const char *pattern;     /* strings live as long as the handle */
	const char *kvspec;      /* canonical text; "" where not declared */
	const char *fingerprint; /* of the kvspec, 16 digits; "" where not declared */
};

/* By kvspec text ("model=... layers=..."), by file name pattern ("x/{64}.bin"), or both; NULL for
 * the one that is not given. Of a kvspec alone the pattern is "s-<fingerprint>/{64}.kv". */
HICACHE_API int hicache_series_open(struct hicache_space *space, const char *kvspec,
				    const char *pattern, uint32_t flags,
				    struct hicache_series **series_p);
HICACHE_API int hicache_series_close(struct hicache_series *series);
HICACHE_API int hicache_series_get(struct hicache_series *series, struct hicache_series_info *info);
/* Bytes of one page; 0 where not declared. */
HICACHE_API uint64_t hicache_series_page_bytes(const struct hicache_series *series);

/* --- names of pages --- */

struct hicache_hash {
	uint8_t bytes[32];
};

#define HICACHE_HASH_BIGRAM 0x1u /* each neighbouring pair of tokens is one unit */

struct hicache_hash_params {
	size_t size;
	uint32_t page_tokens;
	uint32_t token_bytes;             /* of one token id: 4 or 8 */
	uint32_t flags;                   /* HICACHE_HASH_* */
	const struct hicache_hash *prior; /* of the page before; NULL: none */
	/* What separates tenants and adapters of equal tokens; NULL: absent. Not looked at with
	 * prior. */
	const void *extra_key;
	size_t extra_key_bytes;
	const void *salt;
	size_t salt_bytes;
};

/* How many whole pages n_tokens tokens make. */
HICACHE_API size_t hicache_page_count(size_t n_tokens, uint32_t page_tokens, uint32_t flags);
/* Hashes of all whole pages, in order, each chained to the one before. -ENOSPC: more than room. */
HICACHE_API int hicache_page_hash(const struct hicache_hash_params *params, const void *tokens,
				  size_t n_tokens, struct hicache_hash *hashes, size_t room,
				  size_t *n_hashes_p);
/* 64 lower-case hex digits and a NUL. */
HICACHE_API void hicache_hash_format(const struct hicache_hash *hash, char text[65]);
HICACHE_API int hicache_hash_parse(const char *text, struct hicache_hash *hash_p);

/* --- what is there --- */

#define HICACHE_TOUCH 0x1u /* the pages that are there count as used */

/* How many leading hashes have a page in every one of the series (at most 64, of one cache). */
HICACHE_API int hicache_exists_prefix(struct hicache_series *const *series, size_t n_series,
				      const struct hicache_hash *hashes, size_t n, uint32_t flags,
				      size_t *n_p);

struct hicache_page_info {
	size_t size;
	uint64_t size_bytes;
	uint64_t mtime_ns; /* of the publish, since 1970 */
	uint64_t checksum;
	struct hicache_hash parent; /* all zero: none, or unknown */
	uint32_t depth;
	uint32_t hits;
	uint32_t n_held;
	uint32_t n_pins;
	uint32_t in_memory; /* 0 or 1 */
	uint32_t on_disk;   /* 0 or 1 */
};

/* -ENOENT. */
HICACHE_API int hicache_page_stat(struct hicache_series *series, const struct hicache_hash *hash,
				  struct hicache_page_info *info);

/* --- pages in memory --- */

/* A held page: a lease (hicache_acquire: read only) or a reservation (hicache_reserve: to be
 * filled). All zero: nothing is held. May be copied, but is given back once. */
struct hicache_page {
	void *data;
	uint64_t size_bytes;
	uint64_t lease[3]; /* the library's own */
};

/* Neighbouring pages in memory: page_i + k lies at data + k * stride_bytes. */
struct hicache_run {
	void *data;
	uint64_t stride_bytes;
	size_t page_i;
	size_t n_pages;
	uint32_t segment;
};

/* Leading pages, in memory and checked by the timeout; the rest goes on in the background. -ENOENT:
 * the first one is a miss. pages has room for n; *n_p of them are held until hicache_release. */
HICACHE_API int hicache_acquire(struct hicache_series *series, const struct hicache_hash *hashes,
				size_t n, uint32_t timeout_ms, struct hicache_page *pages,
				size_t *n_p);
/* Zeroes what it gives back. -EINVAL: a reservation is among them (the leases are given back). */
HICACHE_API int hicache_release(struct hicache *hc, struct hicache_page *pages, size_t n);
/* Up to n pages to be filled, at least one. page_bytes 0: that of the series; numa_node -1: any.
 * -ENOSPC: no room by the timeout; -EDQUOT: above the quota; -EFBIG. */
HICACHE_API int hicache_reserve(struct hicache_series *series, uint64_t page_bytes, int numa_node,
				size_t n, uint32_t timeout_ms, struct hicache_page *pages,
				size_t *n_p);

struct hicache_publish_params {
	size_t size;
	const struct hicache_hash *parent; /* of the first page; NULL: it begins a prompt */
	uint32_t depth;                    /* of the first page: how many are before it */
	/* Not one chain: n parents (all zero: none) and n depths; NULL: page i follows page i - 1.
	 */
	const struct hicache_hash *parents;
	const uint32_t *depths;
	const uint64_t *sizes_bytes; /* of the pages, at most what was reserved; NULL: just that */
};

/* Gives reserved and filled pages their names. Consumes every reservation; results[i] is 0, -EEXIST
 * (a page of that name was there and stays) or why the page was dropped. -EINVAL: nothing was
 * consumed. params may be NULL: one chain that begins a prompt. */
HICACHE_API int hicache_publish(struct hicache_series *series, struct hicache_page *pages,
				const struct hicache_hash *hashes, size_t n,
				const struct hicache_publish_params *params, int *results);
/* Gives reservations back. -EINVAL: a lease is among them (the reservations are given back). */
HICACHE_API int hicache_abort(struct hicache *hc, struct hicache_page *pages, size_t n);
/* How the pages lie together. -ENOSPC: more than room runs; runs NULL: only counts. */
HICACHE_API int hicache_page_runs(struct hicache *hc, const struct hicache_page *pages, size_t n,
				  struct hicache_run *runs, size_t room, size_t *n_runs_p);

/* --- keeping and removing --- */

/* Takes the names; held pages stay readable until they are released. *n_p: how many were there. */
HICACHE_API int hicache_remove(struct hicache_series *series, const struct hicache_hash *hashes,
			       size_t n, size_t *n_p);
/* A pinned page is not evicted. Counted; *n_p: how many were there. */
HICACHE_API int hicache_pin(struct hicache_series *series, const struct hicache_hash *hashes,
			    size_t n, size_t *n_p);
HICACHE_API int hicache_unpin(struct hicache_series *series, const struct hicache_hash *hashes,
			      size_t n, size_t *n_p);
/* Everything is on disk and in the catalog. *n_left_p, also on an error: pages that are not. */
HICACHE_API int hicache_sync(struct hicache *hc, uint32_t timeout_ms, uint64_t *n_left_p);
/* These pages, with the pages before them. */
HICACHE_API int hicache_sync_pages(struct hicache_series *series, const struct hicache_hash *hashes,
				   size_t n, uint32_t timeout_ms);
/* Writes what is not on disk, then drops the memory copies of pages that nobody holds. */
HICACHE_API int hicache_drop_memory(struct hicache *hc, uint32_t timeout_ms, uint64_t *n_dropped_p,
				    uint64_t *n_kept_p);

/* --- numbers --- */

/* Return non-zero to stop. */
typedef int (*hicache_stat_each_t)(void *arg, const char *name, uint64_t value);
/* Every counter and gauge, in a fixed order. What `each` returned to stop, or 0. */
HICACHE_API int hicache_stats_each(struct hicache *hc, hicache_stat_each_t each, void *arg);
/* One of them. -ENOENT. */
HICACHE_API int hicache_stats_get(struct hicache *hc, const char *name, uint64_t *value_p);

#ifdef __cplusplus
}
#endif

#endif
