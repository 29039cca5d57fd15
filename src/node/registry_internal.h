/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the registry share. Nobody else includes this.
 *
 * Locks: `change` serialises everything that changes names (held over the append to `names` and the
 * journal of the catalog); `lock` guards what is in memory and is never held over I/O. A change is
 * checked under `change` alone (only its holder writes), made durable, then applied under `lock`
 * held for writing: so an error leaves nothing behind, and readers never wait for a disk.
 * Order: change, ids, lock. Series and spaces are never freed before close, so a pointer found
 * under the lock stays good; their ids are looked up without a lock. */
#ifndef HC_NODE_REGISTRY_INTERNAL_H
#define HC_NODE_REGISTRY_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "index/catalog.h"
#include "index/owner.h"
#include "index/rows.h"
#include "node/registry.h"

#define HC_REGISTRY_COMPONENT "registry"
/* Directories, all together: what an engine makes is a million. */
#define HC_DIRS_MAX (16u << 20)
/* Ordinary files of a space: so that empty ones have a limit too. */
#define HC_FILES_MAX 65536u
/* Series and space ids are 24 bits: 16 Mi over the life of a cache. */
#define HC_REGISTRY_IDS_TOP  4096u
#define HC_REGISTRY_DIRS_TOP (1u << 20)
#define HC_IDMAP_CHUNK       4096u
#define HC_NAMES_BYTES_MAX   HC_GIB
#define HC_NAMES_LINE_BYTES  8192

/* --- id to object: lock-free look-up (registry_table.c) --- */
struct hc_idmap_chunk {
	uint32_t n;
	_Atomic(void *) at[HC_IDMAP_CHUNK];
};

struct hc_idmap {
	uint32_t n_top;
	_Atomic(struct hc_idmap_chunk *) *top;
};

int hc_idmap_init(struct hc_idmap *map, uint32_t n_top) HC_MUST_CHECK;
void hc_idmap_fini(struct hc_idmap *map);
/* Room for an id, so that a later set cannot fail. -ENOSPC: beyond the map. */
int hc_idmap_prepare(struct hc_idmap *map, uint32_t id) HC_MUST_CHECK;
void hc_idmap_set(struct hc_idmap *map, uint32_t id, void *object);
/* Of an id that is set. */
void hc_idmap_replace(struct hc_idmap *map, uint32_t id, void *object);
/* Frees chunks that become empty: only for maps that are read under the lock. */
void hc_idmap_clear(struct hc_idmap *map, uint32_t id);

static inline void *hc_idmap_get(struct hc_idmap *map, uint32_t id)
{
	struct hc_idmap_chunk *chunk;

	if (id / HC_IDMAP_CHUNK >= map->n_top)
		return NULL;
	chunk = atomic_load_explicit(&map->top[id / HC_IDMAP_CHUNK], memory_order_acquire);
	if (!chunk)
		return NULL;
	return atomic_load_explicit(&chunk->at[id % HC_IDMAP_CHUNK], memory_order_acquire);
}

/* --- chained hash table; objects begin with a link. Never fails to add (registry_table.c) --- */
struct hc_link {
	struct hc_link *next;
	uint32_t hash;
	uint32_t id; /* the owner's */
};

struct hc_table_map {
	struct hc_link **buckets;
	uint32_t mask;
	uint32_t n;
};

int hc_map_init(struct hc_table_map *map) HC_MUST_CHECK;
void hc_map_fini(struct hc_table_map *map);
void hc_map_add(struct hc_table_map *map, struct hc_link *link, uint32_t hash);
void hc_map_remove(struct hc_table_map *map, struct hc_link *link);
/* First with that hash at or after `link`; begin with hc_map_first. */
struct hc_link *hc_map_match(struct hc_link *link, uint32_t hash);

static inline struct hc_link *hc_map_first(struct hc_table_map *map, uint32_t hash)
{
	return hc_map_match(map->buckets[hash & map->mask], hash);
}

/* --- what the registry knows --- */
struct hc_series {
	struct hc_link link; /* by (space, pattern); link.id: series id */
	struct hc_space *space;
	struct hc_series *next; /* of the space */
	uint32_t n_digits;
	bool opaque;
	char *kvspec; /* NULL: undeclared */
	char pattern[];
};

struct hc_space {
	uint32_t id;
	uint32_t dir;
	_Atomic uint64_t quota_bytes;
	_Atomic uint64_t used_bytes;
	_Atomic uint64_t counters[HC_SPACE_N_COUNTERS];
	atomic_bool gone;
	uint8_t priority;
	_Atomic uint64_t max_age_s;
	uint64_t files_bytes;
	uint32_t n_files;
	uint32_t n_series; /* without the opaque one */
	struct hc_series *series;
	struct hc_series *last_series;
	struct hc_series *opaque;
	struct hc_owner owner; /* as `names` has it; its directory's is the one that holds */
	char *name;
};

/* About 100 bytes and the name: a million of them is 130 MB. */
struct hc_dir {
	struct hc_link link; /* by (parent, name); link.id: directory id */
	struct hc_dir *parent;
	struct hc_dir *child;
	struct hc_dir *next;
	struct hc_dir *prev;
	struct hc_file *files;
	uint64_t mtime_ns;
	uint32_t space;
	uint32_t uid;
	uint32_t gid;
	uint32_t n_dirs;
	uint32_t n_files;
	uint16_t mode;
	uint8_t name_n;
	char name[];
};

struct hc_file {
	struct hc_link link; /* by (directory, name), while named */
	struct hc_link by_id;
	uint64_t id;
	uint64_t node_id;
	uint64_t size_bytes;
	uint64_t mtime_ns;
	struct hc_space *space; /* charged */
	struct hc_dir *dir;     /* NULL: its name is taken */
	struct hc_file *next;
	struct hc_file *prev;
	struct hc_owner owner;
	int memfd; /* contents without a CACHEDIR; -1 */
	char name[HC_NAME_BYTES];
};

struct hc_counter {
	_Atomic uint64_t next;
	_Atomic uint64_t limit; /* persisted: smaller ones may be handed out */
	uint64_t block;
	uint64_t meta_key;
};

struct hc_registry {
	/* fixed after open */
	int dir_fd;  /* -1: memory only */
	int lock_fd; /* .hicachefs, locked */
	int files_fd;
	bool fresh;
	bool rebuild; /* the page rows are not whole */
	char *path;   /* of CACHEDIR, for messages */
	uint8_t uuid[16];
	uint64_t seed;
	struct hc_catalog *catalog;
	struct hc_owners *owners;
	struct hc_attrs *attrs;
	struct hc_counter sequences, node_ids, dir_ids, file_ids;
	pthread_mutex_t ids; /* extends counters */

	pthread_mutex_t change;
	/* under change */
	int names_fd;
	bool names_broken;
	uint64_t names_bytes;
	uint32_t next_space;
	uint32_t next_series;
	struct hc_space_preset *presets;
	size_t n_presets;

	pthread_rwlock_t lock;
	/* written under change and lock, read under one of them */
	struct hc_idmap spaces; /* and without a lock */
	struct hc_idmap series; /* and without a lock */
	struct hc_idmap dirs;
	struct hc_table_map dir_names, file_names, file_ids_map, series_names;
	uint32_t n_dirs;
	struct hc_dir *root;
};

static inline struct hc_space *hc_space_at(struct hc_registry *registry, uint32_t id)
{
	return hc_idmap_get(&registry->spaces, id);
}

static inline struct hc_dir *hc_dir_at(struct hc_registry *registry, uint32_t id)
{
	return hc_idmap_get(&registry->dirs, id);
}

static inline void hc_registry_read(struct hc_registry *registry)
{
	pthread_rwlock_rdlock(&registry->lock);
}

static inline void hc_registry_write(struct hc_registry *registry)
{
	pthread_rwlock_wrlock(&registry->lock);
}

static inline void hc_registry_done(struct hc_registry *registry)
{
	pthread_rwlock_unlock(&registry->lock);
}

uint32_t hc_registry_hash(struct hc_registry *registry, uint64_t parent, const char *name,
			  size_t n);

/* registry_identity.c: opens CACHEDIR, locks it, reads or begins the identity (registry->fresh). */
int hc_identity_open(struct hc_registry *registry,
		     const struct hc_registry_config *config) HC_MUST_CHECK;
/* The last step of initialising: from here on it is a cache. */
int hc_identity_commit(struct hc_registry *registry, bool embedded) HC_MUST_CHECK;
void hc_identity_close(struct hc_registry *registry);

/* registry_ids.c */
void hc_counter_start(struct hc_counter *counter, uint64_t next, uint64_t block, uint64_t meta_key);
uint64_t hc_counter_next(struct hc_registry *registry, struct hc_counter *counter);
/* At a clean end: nothing is skipped. */
void hc_counter_stop(struct hc_registry *registry, struct hc_counter *counter);
int hc_counter_put(struct hc_registry *registry, struct hc_counter *counter,
		   bool now) HC_MUST_CHECK;

/* registry_names.c: the text file. Appends are durable at return; change lock held. */
int hc_names_load(struct hc_registry *registry) HC_MUST_CHECK;
int hc_names_put_space(struct hc_registry *registry, const struct hc_space *space, const char *name,
		       const struct hc_owner *owner) HC_MUST_CHECK;
int hc_names_put_gone(struct hc_registry *registry, uint32_t space) HC_MUST_CHECK;
int hc_names_put_series(struct hc_registry *registry, uint32_t id, uint32_t space,
			const char *pattern, const char *kvspec) HC_MUST_CHECK;

/* registry_spaces.c: objects; change lock held, or at open. */
int hc_space_new(struct hc_registry *registry, uint32_t id, const char *name,
		 struct hc_space **space_p) HC_MUST_CHECK;
/* Under change: a new space takes what its name has preset. */
void hc_space_preset_apply(struct hc_registry *registry, struct hc_space *space);
void hc_space_add(struct hc_registry *registry, struct hc_space *space);
void hc_space_free(struct hc_space *space);
int hc_space_put(struct hc_registry *registry, const struct hc_space *space,
		 const struct hc_owner *owner, bool now) HC_MUST_CHECK;
int hc_series_new(struct hc_registry *registry, struct hc_space *space, uint32_t id,
		  const char *pattern, const char *kvspec,
		  struct hc_series **series_p) HC_MUST_CHECK;
/* lock held for writing */
void hc_series_add_locked(struct hc_registry *registry, struct hc_series *series);
/* lock or change held */
struct hc_series *hc_series_find(struct hc_registry *registry, const struct hc_space *space,
				 const char *pattern);

/* registry_dirs.c */
int hc_dir_new(struct hc_registry *registry, uint32_t id, const char *name,
	       struct hc_dir **dir_p) HC_MUST_CHECK;
void hc_dir_link_locked(struct hc_registry *registry, struct hc_dir *dir, struct hc_dir *parent);
void hc_dir_unlink_locked(struct hc_registry *registry, struct hc_dir *dir);
struct hc_dir *hc_dir_child(struct hc_registry *registry, const struct hc_dir *parent,
			    const char *name);
int hc_dir_put(struct hc_registry *registry, const struct hc_dir *dir, bool now) HC_MUST_CHECK;
/* 0, or why a name cannot be used in that directory. */
int hc_dir_check_name(struct hc_registry *registry, const struct hc_dir *parent,
		      const char *name) HC_MUST_CHECK;
int hc_dir_path_of(const struct hc_dir *dir, char path[HC_PATH_BYTES]) HC_MUST_CHECK;
int hc_dir_make_under_change(struct hc_registry *registry, struct hc_dir *parent, const char *name,
			     const struct hc_owner *owner, struct hc_dir **dir_p) HC_MUST_CHECK;

/* registry_files.c */
struct hc_file *hc_file_named(struct hc_registry *registry, const struct hc_dir *dir,
			      const char *name);
int hc_file_load_row(struct hc_registry *registry, uint64_t id,
		     const struct hc_row_file *row) HC_MUST_CHECK;
int hc_file_put(struct hc_registry *registry, const struct hc_file *file, bool now) HC_MUST_CHECK;
void hc_file_free(struct hc_file *file);
/* Contents without a row are removed. */
void hc_files_sweep(struct hc_registry *registry);

/* registry_load.c: everything from the catalog. -EBADMSG: damaged. */
int hc_registry_load(struct hc_registry *registry, const struct hc_owner *root) HC_MUST_CHECK;
/* The row that makes every start rebuild until the page rows are whole again. */
int hc_registry_mark_rebuild(struct hc_registry *registry, bool rebuild) HC_MUST_CHECK;
/* Drops directories and files, keeps spaces and series. */
void hc_registry_reset(struct hc_registry *registry);

#endif
