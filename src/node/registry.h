/* SPDX-License-Identifier: Apache-2.0 */
/* What a cache directory is, and the names in it: identity, spaces, series, directories, ordinary
 * files. No page bytes, no eviction. Part of the node (the node opens it first and closes it last),
 * but usable alone in tests.
 *
 *   CACHEDIR/.hicachefs       identity: "hicachefs 1\nuuid ...\n"; flock = a daemon or an embedded
 * node lives here CACHEDIR/names            text, append-only, fsynced before first use of an id:
 *                               space <id> <escaped name> [<uid> <gid> <mode> <quota> <max age>
 * <priority>] gone <space id> series <id> <space id> <pattern> [<kvspec text>] next <space id>
 * <series id> CACHEDIR/files/<id>       contents of ordinary files catalog tables DIRS, FILES,
 * SPACES (index/rows.h)
 *
 * Directory 1 is the mount's root. A top-level directory is a space of the same name; files at the
 * root itself belong to the space "." (id 1, always there). Ids are never reused. Changes are
 * journaled before return (survive kill -9). Everything here is in memory after open; look-ups read
 * no disk. Any thread; one lock of its own (class "registry", after the node's, before index
 * shards), never held over I/O except appends to `names`. */
#ifndef HC_NODE_REGISTRY_H
#define HC_NODE_REGISTRY_H

#include "index/catalog.h"
#include "index/owner.h"
#include "model/hash.h"
#include "model/pagename.h"
#include "node/attrs.h"
#include "util/base.h"

#define HC_DIR_ROOT        1u
#define HC_SPACE_ROOT      1u
#define HC_SERIES_MAX      65536u        /* a space */
#define HC_FILE_BYTES_MAX  HC_MIB        /* an ordinary file */
#define HC_FILES_BYTES_MAX (64 * HC_MIB) /* ordinary files of a space */

struct hc_registry;

struct hc_registry_config {
	const char *cachedir;    /* NULL: nothing is stored (memory-only node) */
	const char *catalog_dir; /* NULL: cachedir */
	bool noinit;             /* refuse an empty cachedir (-ENOENT) */
	struct hc_owner root;    /* owner and mode of directory 1 of a fresh cache */
	bool embedded; /* for the message of the next one that finds the directory in use */
	void (*catalog_lost)(void *arg, int error); /* catalog thread */
	void *arg;
};

/* Opens or initialises. Messages name the directory and the remedy. -EBUSY: in use (names the pid
 * and says whether by a daemon or embedded); -ENOENT: empty with noinit, or absent; -ENOTEMPTY: not
 * ours and not empty; -EROFS; -ENOTSUP: no user xattrs; -EPROTO: newer version (never touched).
 * *rebuild_p: the catalog was lost and is fresh now: the caller lists the page files, calls
 * hc_dir_make_path for the directory part of each page's path, puts the rows again, and then calls
 * hc_registry_rebuilt. */
int hc_registry_open(const struct hc_registry_config *config, struct hc_registry **registry_p,
		     bool *rebuild_p) HC_MUST_CHECK;
void hc_registry_close(struct hc_registry *registry);
const uint8_t *hc_registry_uuid(struct hc_registry *registry);
/* NULL for a memory-only node. */
struct hc_catalog *hc_registry_catalog(struct hc_registry *registry);
struct hc_owners *hc_registry_owners(struct hc_registry *registry);
/* Of pages, directories and ordinary files; those of the last two go with them. */
struct hc_attrs *hc_registry_attrs(struct hc_registry *registry);
/* Rows of dirs, files and spaces are put again (after hc_catalog_renew). From here on (and after an
 * open with *rebuild_p) every open says *rebuild_p again, until hc_registry_rebuilt: the caller has
 * put all page rows. */
int hc_registry_put_all(struct hc_registry *registry) HC_MUST_CHECK;
int hc_registry_rebuilt(struct hc_registry *registry) HC_MUST_CHECK;

/* Never reused, from a block that is persisted ahead: 64-bit. */
uint64_t hc_registry_next_sequence(struct hc_registry *registry);
/* FUSE node ids: start at max(last stored + 1, unix seconds << 32); stored once. */
uint64_t hc_registry_next_node_id(struct hc_registry *registry);
/* Sequences seen in page rows, slots or files: later ones are larger. */
void hc_registry_sequence_seen(struct hc_registry *registry, uint64_t sequence);

/* --- spaces --- */
struct hc_space_info {
	uint32_t id;
	uint32_t dir; /* its directory; 1 for "." */
	struct hc_owner owner;
	uint64_t quota_bytes; /* 0: none */
	uint64_t max_age_s;   /* 0: none */
	uint8_t priority;
	uint32_t n_series;
	char name[HC_NAME_BYTES];
};
#define HC_SPACE_SET_QUOTA    0x1u
#define HC_SPACE_SET_MAX_AGE  0x2u
#define HC_SPACE_SET_PRIORITY 0x4u
/* By name ("." or a top-level directory). -ENOENT. */
int hc_space_find(struct hc_registry *registry, const char *name,
		  struct hc_space_info *info_p) HC_MUST_CHECK;
int hc_space_get(struct hc_registry *registry, uint32_t id,
		 struct hc_space_info *info_p) HC_MUST_CHECK;
int hc_space_set(struct hc_registry *registry, uint32_t id, const struct hc_space_info *info,
		 uint32_t what) HC_MUST_CHECK;
/* All spaces: heap array, the caller frees. */
int hc_space_list(struct hc_registry *registry, struct hc_space_info **list_p,
		  size_t *n_p) HC_MUST_CHECK;
/* What the spaces of these names (the config file's sections) have: set at once where they are
 * there, else when their directory is made. Replaces the presets before; a space keeps what an
 * earlier one set. */
struct hc_space_preset {
	char name[HC_NAME_BYTES];
	uint32_t what; /* HC_SPACE_SET_* */
	uint64_t quota_bytes;
	uint64_t max_age_s;
	uint8_t priority;
};
int hc_space_presets(struct hc_registry *registry, const struct hc_space_preset *presets,
		     size_t n) HC_MUST_CHECK;
/* Bytes of pages in the space, kept by the node; add fails with -EDQUOT (changing nothing) when the
 * quota would be exceeded and `force` is false. Lock-free. */
int hc_space_use(struct hc_registry *registry, uint32_t id, int64_t bytes,
		 bool force) HC_MUST_CHECK;
uint64_t hc_space_used(struct hc_registry *registry, uint32_t id);
/* Counters of a space since the start, which only rise; counted by the node beside its own of the
 * same names. */
/* clang-format off */
#define HC_SPACE_COUNTERS(X) \
	X(lookups) \
	X(lookup_hits) \
	X(hits_memory) \
	X(hits_disk) \
	X(misses) \
	X(published) \
	X(published_bytes) \
	X(evicted_memory) \
	X(evicted_memory_bytes) \
	X(evicted_disk) \
	X(evicted_disk_bytes) \
	X(bad_checksum) \
	X(bad_missing) \
	X(bad_adopted) \
	X(backup_failed)
/* clang-format on */

enum hc_space_counter {
#define HC_SPACE_COUNTER_NAME(name) HC_SPACE_COUNT_##name,
	HC_SPACE_COUNTERS(HC_SPACE_COUNTER_NAME)
#undef HC_SPACE_COUNTER_NAME
		HC_SPACE_N_COUNTERS
};
/* For the space of a series; an unknown series counts nothing. Lock-free. */
void hc_space_count(struct hc_registry *registry, uint32_t series, enum hc_space_counter counter,
		    uint64_t n);
void hc_space_counters(struct hc_registry *registry, uint32_t id,
		       uint64_t values[HC_SPACE_N_COUNTERS]);

/* --- series --- */
struct hc_series_info {
	uint32_t id;
	uint32_t space;
	bool opaque;
	bool declared; /* kvspec is known */
	uint32_t n_digits;
	char pattern[HC_PATTERN_BYTES];
	char kvspec[HC_KVSPEC_TEXT_BYTES]; /* "" when undeclared */
};
/* Finds or (intern) makes the series of a pattern in a space. -ENOENT; -ENOSPC: 65,536 series (the
 * caller falls back to the space's opaque series); -EEXIST: pattern known with another kvspec
 * (kvspec != NULL). */
int hc_series_open(struct hc_registry *registry, uint32_t space, const char *pattern,
		   const char *kvspec, bool intern, uint32_t *id_p) HC_MUST_CHECK;
int hc_series_get(struct hc_registry *registry, uint32_t id,
		  struct hc_series_info *info_p) HC_MUST_CHECK;
/* Space of a series, 0 for an unknown id; lock-free, hot. */
uint32_t hc_series_space(struct hc_registry *registry, uint32_t id);
/* max_age of the space of a series (0: none); lock-free, hot. */
uint64_t hc_series_max_age(struct hc_registry *registry, uint32_t id);
/* Series ids of a space: heap array. */
int hc_series_list(struct hc_registry *registry, uint32_t space, uint32_t **ids_p,
		   size_t *n_p) HC_MUST_CHECK;

/* --- directories --- */
struct hc_dir_info {
	uint32_t id;
	uint32_t parent; /* 0 for the root */
	uint32_t space;
	uint32_t n_dirs;
	uint32_t n_files;
	struct hc_owner owner;
	uint64_t mtime_ns;
	char name[HC_NAME_BYTES];
};
int hc_dir_get(struct hc_registry *registry, uint32_t id, struct hc_dir_info *info_p) HC_MUST_CHECK;
int hc_dir_find(struct hc_registry *registry, uint32_t parent, const char *name,
		struct hc_dir_info *info_p) HC_MUST_CHECK;
/* -EEXIST (also when an ordinary file has the name), -ENAMETOOLONG, -ENOENT (parent gone), -EINVAL
 * (".hicache" at the root, ".", ".."), -ENOSPC (16 Mi directories). */
int hc_dir_make(struct hc_registry *registry, uint32_t parent, const char *name,
		const struct hc_owner *owner, struct hc_dir_info *info_p) HC_MUST_CHECK;
/* -ENOTEMPTY when it has directories or files; the caller has checked pages and bodies (n_others).
 */
int hc_dir_remove(struct hc_registry *registry, uint32_t parent, const char *name,
		  uint64_t n_others) HC_MUST_CHECK;
/* Only an empty directory (-EXDEV else); an empty target directory is replaced. A top-level one is
 * renamed as a space only while the space has no series (-EXDEV else). */
int hc_dir_rename(struct hc_registry *registry, uint32_t parent, const char *name,
		  uint32_t new_parent, const char *new_name, uint64_t n_others) HC_MUST_CHECK;
#define HC_DIR_SET_MODE  0x1u
#define HC_DIR_SET_UID   0x2u
#define HC_DIR_SET_GID   0x4u
#define HC_DIR_SET_MTIME 0x8u
int hc_dir_set(struct hc_registry *registry, uint32_t id, const struct hc_dir_info *info,
	       uint32_t what) HC_MUST_CHECK;
/* Sub-directories and ordinary files at one moment: heap arrays. */
int hc_dir_list(struct hc_registry *registry, uint32_t id, struct hc_dir_info **dirs_p,
		size_t *n_dirs_p) HC_MUST_CHECK;
/* Path relative to its space ("" for the space itself) and the space. -ENOENT, -ENAMETOOLONG. */
int hc_dir_path(struct hc_registry *registry, uint32_t id, char path[HC_PATH_BYTES],
		uint32_t *space_p) HC_MUST_CHECK;
/* The directory of a path relative to a space, made where missing with the space's owner (rebuild,
 * library series). */
int hc_dir_make_path(struct hc_registry *registry, uint32_t space, const char *path,
		     uint32_t *id_p) HC_MUST_CHECK;

/* --- names of pages --- */
struct hc_name {
	enum hc_name_kind kind;
	bool has_target; /* TEMPORARY whose target is told by its name: key is the target's */
	bool known;      /* key.series is valid (PAGE, OPAQUE, or target) */
	struct hc_key key;
};
/* What `name` in directory `dir` is. intern: make the series when it is new (at publish). */
int hc_name_resolve(struct hc_registry *registry, uint32_t dir, const char *name, bool intern,
		    struct hc_name *name_p) HC_MUST_CHECK;
/* As a page whatever its size says: ORDINARY names become the opaque key of the path. */
int hc_name_resolve_page(struct hc_registry *registry, uint32_t dir, const char *name, bool intern,
			 struct hc_key *key_p, bool *opaque_p) HC_MUST_CHECK;
/* Last component of a (not opaque) page's path, and its directory made or found; -EINVAL for opaque
 * series. */
int hc_name_of_page(struct hc_registry *registry, const struct hc_key *key,
		    char name[HC_NAME_BYTES]) HC_MUST_CHECK;
/* The name alone, of a page that is in a directory: that its path reads back was checked when it
 * was put there. */
int hc_name_of_listed(struct hc_registry *registry, const struct hc_key *key,
		      char name[HC_NAME_BYTES]) HC_MUST_CHECK;
int hc_name_dir_of_page(struct hc_registry *registry, const struct hc_key *key,
			uint32_t *dir_p) HC_MUST_CHECK;

/* --- ordinary files --- */
struct hc_file_info {
	uint64_t id;
	uint32_t dir;
	struct hc_owner owner;
	uint64_t size_bytes;
	uint64_t mtime_ns;
	uint64_t node_id;
	char name[HC_NAME_BYTES];
};
int hc_file_find(struct hc_registry *registry, uint32_t dir, const char *name,
		 struct hc_file_info *info_p) HC_MUST_CHECK;
int hc_file_get(struct hc_registry *registry, uint64_t id,
		struct hc_file_info *info_p) HC_MUST_CHECK;
/* -EEXIST (directory of that name), -EDQUOT above 64 MiB in the space. Replaces a file of that
 * name; *replaced_p its id or 0 (contents stay until hc_file_forget). */
int hc_file_make(struct hc_registry *registry, uint32_t dir, const char *name,
		 const struct hc_owner *owner, struct hc_file_info *info_p,
		 uint64_t *replaced_p) HC_MUST_CHECK;
/* Contents: an fd of CACHEDIR/files/<id>, opened O_RDWR|O_CREAT; the caller closes it. */
int hc_file_open(struct hc_registry *registry, uint64_t id, int *fd_p) HC_MUST_CHECK;
/* Size and times after writes; size growth is charged to the space (-EDQUOT, -EFBIG above
 * HC_FILE_BYTES_MAX unless the file is scratch, see fuse). */
int hc_file_set(struct hc_registry *registry, const struct hc_file_info *info, bool size,
		uint32_t what) HC_MUST_CHECK;
/* Takes the name; contents stay readable by open fds. *id_p: of the removed. */
int hc_file_remove(struct hc_registry *registry, uint32_t dir, const char *name,
		   uint64_t *id_p) HC_MUST_CHECK;
int hc_file_rename(struct hc_registry *registry, uint64_t id, uint32_t new_dir,
		   const char *new_name, uint64_t *replaced_p) HC_MUST_CHECK;
/* Removes the contents of an unnamed file. */
void hc_file_forget(struct hc_registry *registry, uint64_t id);
int hc_file_list(struct hc_registry *registry, uint32_t dir, struct hc_file_info **files_p,
		 size_t *n_p) HC_MUST_CHECK;
uint64_t hc_files_used(struct hc_registry *registry, uint32_t space);

#endif
