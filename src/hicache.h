/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of libhicache: a KV cache in this process. C11 and C++; every function can be
 * called from other languages (no macros or inline functions needed). Each has a page in section 3
 * of the manual; concepts and caveats are in hicache(7).
 *
 *	hicache_open -> hicache_space_open -> hicache_series_open
 *	hicache_page_hash -> hicache_exists_prefix -> hicache_acquire -> hicache_release
 *	hicache_reserve -> (fill) -> hicache_publish
 *
 * Pages of an engine's tensors, on a GPU or in ordinary memory (SGLang's transfer engine):
 *
 *	hicache_device_open -> hicache_transfer_open
 *	hicache_transfer_write -> hicache_transfer_poll -> hicache_transfer_publish
 *	hicache_transfer_acquire -> hicache_transfer_load -> hicache_transfer_start_loading
 *		-> hicache_transfer_wait_layer, for each layer -> hicache_transfer_poll
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
 * are held or spaces, series or transfers are open. NULL is accepted. */
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

/* --- devices --- */

struct hicache_device;   /* a GPU, or this machine's CPU */
struct hicache_transfer; /* pages between an engine's tensors and host memory */

struct hicache_device_params {
	size_t size;
	const char *library; /* the driver; NULL: libcuda.so.1 */
	uint32_t flags;      /* HICACHE_DEVICE_* */
};

#define HICACHE_DEVICE_NO_BATCH 0x1u /* one call of the driver for each copy */

struct hicache_device_info {
	size_t size;
	uint64_t free_bytes;       /* device memory; 0: unknown */
	uint64_t registered_bytes; /* host memory that it reaches */
	uint64_t n_errors;         /* calls that failed */
	int32_t health;            /* 0, or -EIO: it is lost */
	int32_t numa_node;         /* nearest; -1: unknown */
	uint32_t driver_version;   /* of cuda, as 13000 */
	uint32_t kernels;          /* 0 or 1: io backend kernel is possible */
	uint32_t batches;          /* 0 or 1: a batch of copies is one call of the driver */
	char kind[16];             /* "cuda", "cpu" */
	char name[64];
};

/* what: "cuda" (device 0), "cuda:N", "cpu", or "auto" (cuda where there is one, else cpu). params
 * may be NULL. -ENODEV: no driver, no GPU, or a driver that is too old; -ENOTSUP: built without. */
HICACHE_API int hicache_device_open(const char *what, const struct hicache_device_params *params,
				    struct hicache_device **device_p);
/* -EBUSY, and nothing happens, while transfers or streams of it are open. NULL is accepted. */
HICACHE_API int hicache_device_close(struct hicache_device *device);
HICACHE_API int hicache_device_get(struct hicache_device *device, struct hicache_device_info *info);
/* Streams for programs that have none; others pass their own (a CUstream as an integer). */
HICACHE_API int hicache_stream_create(struct hicache_device *device, uint64_t *stream_p);
HICACHE_API int hicache_stream_destroy(struct hicache_device *device, uint64_t stream);
/* Waits until all that is on it has run. -ETIMEDOUT, -EIO, -EXDEV. */
HICACHE_API int hicache_stream_sync(struct hicache_device *device, uint64_t stream,
				    uint32_t timeout_ms);

/* --- transfers --- */

enum hicache_io {
	HICACHE_IO_AUTO,   /* by the size of what is contiguous */
	HICACHE_IO_DIRECT, /* copy engines */
	HICACHE_IO_KERNEL  /* kernels on the device */
};

/* The engine allocates device pages: load is given them, evict_device is refused. */
#define HICACHE_TRANSFER_ENGINE_PAGES 0x1u
#define HICACHE_TRANSFER_NO_STAGING   0x2u /* no device memory is taken */

struct hicache_transfer_params {
	size_t size;
	uint64_t device_pages; /* in each tensor */
	/* Addresses of the engine's tensors, one a layer: K, and V but with MLA. Both NULL: they
	 * are allocated. Strides in bytes; 0: tight, [page][token][head][dim]. */
	const uint64_t *k, *v;
	uint64_t page_stride, token_stride, head_stride;
	/* Host memory of the caller's own, instead of the cache's pool: series is NULL then, kvspec
	 * says what a page is, host_layout how the whole buffer lies ("layer_first", "page_first",
	 * "page_first_direct", "page_head", "page_unified"). Begins at a multiple of 4,096. */
	void *host;
	uint64_t host_bytes;
	const char *kvspec;
	const char *host_layout;
	uint32_t host_pages; /* of that; of the cache's pool: held at once, 0: as many as it has */
	uint32_t io;         /* enum hicache_io */
	uint64_t staging_bytes; /* of device memory, for each direction; 0: 32 MiB */
	uint64_t bounce_bytes;  /* of pinned memory, where the pool cannot be registered; 0: 256 MiB
				 */
	uint32_t flags;         /* HICACHE_TRANSFER_* */
};

struct hicache_transfer_info {
	size_t size;
	uint64_t page_bytes;
	uint32_t page_tokens;
	uint32_t n_layers;
	uint32_t device_pages;
	uint32_t host_pages;
	uint32_t device_free_pages;
	uint32_t host_free_pages;
};

/* series: must be declared; or NULL, with params->host. */
HICACHE_API int hicache_transfer_open(struct hicache_device *device, struct hicache_series *series,
				      const struct hicache_transfer_params *params,
				      struct hicache_transfer **transfer_p);
/* Waits for what is in flight; host pages that are held are given back. -ETIMEDOUT: nothing
 * happened. NULL is accepted. */
HICACHE_API int hicache_transfer_close(struct hicache_transfer *transfer, uint32_t timeout_ms);
HICACHE_API int hicache_transfer_get(struct hicache_transfer *transfer,
				     struct hicache_transfer_info *info);
/* The address of a layer's tensor; kv: 0 K, 1 V. */
HICACHE_API int hicache_transfer_tensor(struct hicache_transfer *transfer, uint32_t layer,
					uint32_t kv, uint64_t *addr_p);

/* Default of a priority: in the order of the calls, oldest first. */
#define HICACHE_PRIORITY_DEFAULT (-2147483647 - 1)
#define HICACHE_NO_NODE          (-1)
#define HICACHE_QUEUE_ONLY       0x1u /* write: hicache_transfer_start_writing starts it */
#define HICACHE_GIVEN_PAGES      0x2u /* load: device_pages are the caller's, and an input */

/* n free pages of the tensors. -ENOSPC: nothing was taken. */
HICACHE_API int hicache_transfer_device_alloc(struct hicache_transfer *transfer, size_t n,
					      uint32_t *device_pages);
/* Device to host: takes n host pages, writes them after all that is on the stream: it must be the
 * one that filled the device pages. -ENOSPC: no room, nothing happened: evict and call again. */
HICACHE_API int hicache_transfer_write(struct hicache_transfer *transfer,
				       const uint32_t *device_pages, size_t n, int32_t priority,
				       int64_t node, uint32_t flags, uint64_t stream,
				       uint32_t *host_pages);
HICACHE_API int hicache_transfer_start_writing(struct hicache_transfer *transfer, uint64_t stream);
/* Host to device, queued: takes n device pages unless they are given. */
HICACHE_API int hicache_transfer_load(struct hicache_transfer *transfer, const uint32_t *host_pages,
				      size_t n, int32_t priority, int64_t node, uint32_t flags,
				      uint32_t *device_pages);
/* Starts all that is queued as one, after all that is on the stream. *producer_p: for
 * hicache_transfer_wait_layer; -1: nothing was queued. -EAGAIN: three loads are under way. */
HICACHE_API int hicache_transfer_start_loading(struct hicache_transfer *transfer, uint64_t stream,
					       int64_t *producer_p);
/* The stream waits, on the device, until this layer is loaded. producer -1: nothing to wait for.
 * -ESTALE: that load is long over. */
HICACHE_API int hicache_transfer_wait_layer(struct hicache_transfer *transfer, int64_t producer,
					    uint32_t layer, uint64_t stream);

enum hicache_direction { HICACHE_LOADS, HICACHE_WRITES };

struct hicache_ack {
	size_t size;
	uint64_t n_pages;
	uint64_t size_bytes;
	const int64_t *nodes; /* of each call that was merged, in order; until the next poll */
	uint32_t n_nodes;
	int32_t status;   /* 0, or why it failed */
	int32_t priority; /* the smallest */
};

/* The next that ended, in the order of the starts; never waits. -EAGAIN: none. */
HICACHE_API int hicache_transfer_poll(struct hicache_transfer *transfer, uint32_t direction,
				      struct hicache_ack *ack);
/* 1: all of its bytes are there; 0; -EINVAL. */
HICACHE_API int hicache_transfer_host_complete(struct hicache_transfer *transfer,
					       uint32_t host_page);
/* Give pages back; those of a transfer under way when it has ended. -EINVAL: one is not taken, or
 * named twice; nothing happened. */
HICACHE_API int hicache_transfer_evict_device(struct hicache_transfer *transfer,
					      const uint32_t *device_pages, size_t n);
HICACHE_API int hicache_transfer_evict_host(struct hicache_transfer *transfer,
					    const uint32_t *host_pages, size_t n);
/* Drops what is queued and all acks, after what is under way has ended. Pages that were written or
 * acquired stay taken. -ETIMEDOUT. */
HICACHE_API int hicache_transfer_reset(struct hicache_transfer *transfer, uint32_t timeout_ms);

/* As hicache_acquire: leading pages of the cache, as host pages that can be loaded until they are
 * evicted. *n_p of them are held. */
HICACHE_API int hicache_transfer_acquire(struct hicache_transfer *transfer,
					 const struct hicache_hash *hashes, size_t n,
					 uint32_t timeout_ms, uint32_t *host_pages, size_t *n_p);
/* As hicache_publish, of host pages whose write has ended: nothing is copied, and their numbers are
 * free again. -EBUSY: one is not written yet, or in use; nothing happened. */
HICACHE_API int hicache_transfer_publish(struct hicache_transfer *transfer,
					 const uint32_t *host_pages,
					 const struct hicache_hash *hashes, size_t n,
					 const struct hicache_publish_params *params, int *results);

/* --- numbers --- */

/* Return non-zero to stop. */
typedef int (*hicache_stat_each_t)(void *arg, const char *name, uint64_t value);
/* Every counter and gauge, in a fixed order. What `each` returned to stop, or 0. */
HICACHE_API int hicache_stats_each(struct hicache *hc, hicache_stat_each_t each, void *arg);
/* One of them. -ENOENT. */
HICACHE_API int hicache_stats_get(struct hicache *hc, const char *name, uint64_t *value_p);

/* The same of one transfer. */
HICACHE_API int hicache_transfer_stats_each(struct hicache_transfer *transfer,
					    hicache_stat_each_t each, void *arg);

#ifdef __cplusplus
}
#endif

#endif
