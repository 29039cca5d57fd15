/* SPDX-License-Identifier: Apache-2.0 */
/* The options of hicachefs: one table of names, kinds, defaults and help texts, filled from the
 * command line
 * (`-o name=value[,...]`) and from a config file (config.c). Guarantees: what is wrong is refused
 * by name, with what is allowed; the command line wins over the file, the file over the defaults;
 * each value knows where it came from. Looks at no file but the config file, and asks nothing of
 * the machine: sizes of "10%" are worked out by main. One thread at a time. */
#ifndef HC_FUSE_OPTIONS_H
#define HC_FUSE_OPTIONS_H

#include "util/base.h"

/* Of log lines about the command line: the program's name. */
#define HC_OPTIONS_LOG "hicachefs"

/* Exit statuses of hicachefs. */
#define HC_EXIT_FAILED    1 /* could not start, or the mount failed */
#define HC_EXIT_USAGE     2 /* options or config file */
#define HC_EXIT_NOT_SAVED 3 /* stopped, but not all pages could be written */

enum hc_option_kind {
	HC_KIND_SIZE,    /* number: bytes */
	HC_KIND_SHARE,   /* number: bytes; or is_percent and ppm */
	HC_KIND_PERCENT, /* ppm */
	HC_KIND_BOOL,    /* number: 0 or 1 */
	HC_KIND_PATH,    /* text; absolute after parsing, but for a word such as "auto" */
	HC_KIND_PATHS,   /* the list `disks` */
	HC_KIND_CHOICE,  /* number: which word of `allowed` */
	HC_KIND_MODE,    /* number: permission bits */
	HC_KIND_COUNT,   /* number, within min and max; "auto" is 0 where min is 0 */
	HC_KIND_TIME,    /* number: seconds */
	HC_KIND_NUMA,    /* number: HC_NUMA_AUTO, HC_NUMA_OFF or a node */
	HC_KIND_ABSENT,  /* refused: not built in this version */
};

#define HC_NUMA_AUTO ((uint64_t)1 << 32)
#define HC_NUMA_OFF  ((uint64_t)2 << 32)

/* X(id, kind, min, max, allowed, default, live, help). allowed: the words of a choice; else what a
 * value looks like. min, max: bounds of number or ppm. live: SIGHUP takes it over. */
#define HC_OPTIONS(X)                                                                              \
	X(pool_size, SHARE, 1, INT64_MAX, "SIZE|PERCENT", "10%", false,                            \
	  "memory for pages; PERCENT is of what is available; at most 64G by default")             \
	X(pool_path, PATH, 0, 0, "auto|DIR", "auto", false,                                        \
	  "where the pool lies; auto: huge pages, else a tmpfs of its own, else /dev/shm")         \
	X(keep_pool, BOOL, 0, 1, "yes|no", "no", false,                                            \
	  "a stop leaves the pool in memory for the next start")                                   \
	X(disk, PATHS, 0, 0, "DIR", "CACHEDIR", false,                                             \
	  "data directory; repeat it for several disks")                                           \
	X(disk_size, SHARE, 0, INT64_MAX, "SIZE|PERCENT", "80%", true,                             \
	  "bytes of pages on disk; PERCENT is of what is free; 0: memory only")                    \
	X(min_free, SHARE, 0, INT64_MAX, "SIZE|PERCENT", "5%", true,                               \
	  "what each disk keeps free for others")                                                  \
	X(high, PERCENT, 10000, 1000000, "PERCENT", "95%", true,                                   \
	  "eviction begins when a tier is this full")                                              \
	X(low, PERCENT, 10000, 1000000, "PERCENT", "90%", true,                                    \
	  "eviction ends when a tier is this full")                                                \
	X(dirty, PERCENT, 0, 1000000, "PERCENT", "25%", true,                                      \
	  "above this part of the pool not yet on disk, new chains are not backed up")             \
	X(backup, CHOICE, 0, 0, "publish|reuse|evict|off", "publish", true,                        \
	  "when a page goes to disk")                                                              \
	X(write_budget, SIZE, 0, INT64_MAX, "SIZE", "0", false,                                    \
	  "bytes a day to disk; 0: no limit")                                                      \
	X(max_page_bytes, SIZE, 4096, (int64_t)1 << 40, "SIZE", "64M", false, "the largest page")  \
	X(index_memory, SHARE, 1, INT64_MAX, "SIZE|PERCENT", "1%", false,                          \
	  "memory for the index; PERCENT is of the machine's memory")                              \
	X(budget_ms, COUNT, 1, 600000, "MILLISECONDS", "2000", false,                              \
	  "the longest a look-up or open may take before it is a miss")                            \
	X(read_ahead, SIZE, 0, (int64_t)1 << 40, "SIZE", "64M", false,                             \
	  "the most that is read ahead of an engine that opens page after page; 0: nothing")       \
	X(flush_s, TIME, 0, 86400, "SECONDS", "20", false,                                         \
	  "how long a stop may write what is not on disk")                                         \
	X(catalog_dir, PATH, 0, 0, "DIR", "CACHEDIR", false, "where the catalog lies")             \
	X(noinit, BOOL, 0, 1, "yes|no", "no", false,                                               \
	  "refuse an empty CACHEDIR instead of initialising it")                                   \
	X(root_mode, MODE, 0, 07777, "OCTAL", "0755", false,                                       \
	  "permission bits of a fresh cache's root directory")                                     \
	X(numa, NUMA, 0, 1023, "auto|off|interleave|NODE", "auto", false,                          \
	  "memory nodes of the pool; auto and interleave: all in turn, where there are several")   \
	X(verify, BOOL, 0, 1, "on|off", "on", false,                                               \
	  "compare checksums when pages come from disk or an old pool")                            \
	X(passthrough, CHOICE, 0, 0, "auto|off|writes", "auto", false,                             \
	  "pages on disk are read without a copy, where the kernel lets us; writes: written, too") \
	X(threads, COUNT, 0, 64, "auto|N", "auto", false, "threads that serve the mount")          \
	X(log_level, CHOICE, 0, 0, "error|warn|info|debug|trace", "info", true, "what is logged")  \
	X(pid_file, PATH, 0, 0, "none|FILE", "none", false,                                        \
	  "file with the daemon's process number, locked while it runs")                           \
	X(discard_pool, BOOL, 0, 1, "yes|no", "no", false,                                         \
	  "drop a pool in memory that this version cannot read, instead of refusing")              \
	X(listen, ABSENT, 0, 0, "", "", false, "")                                                 \
	X(store, ABSENT, 0, 0, "", "", false, "")

enum hc_option {
#define HC_OPTION_ID(id, ...) HC_OPT_##id,
	HC_OPTIONS(HC_OPTION_ID)
#undef HC_OPTION_ID
		HC_OPTION_N
};

struct hc_option_desc {
	const char *name;
	enum hc_option_kind kind;
	int64_t min, max;
	const char *allowed;
	const char *preset; /* the default, as text */
	bool live;
	const char *help;
};
extern const struct hc_option_desc hc_option_descs[HC_OPTION_N];

enum hc_origin { HC_FROM_DEFAULT, HC_FROM_FILE, HC_FROM_COMMAND_LINE };

struct hc_option_value {
	enum hc_origin origin;
	uint32_t line; /* of the config file */
	bool is_percent;
	uint32_t ppm;
	uint64_t number;
	char *text;
};

/* One [space NAME] of the config file. */
struct hc_space_section {
	char name[256];
	uint32_t line;
	uint32_t what; /* HC_SECTION_* that are given */
	uint64_t quota_bytes;
	uint64_t max_age_s;
	uint8_t priority;
};
#define HC_SECTION_QUOTA    0x1u /* the bits of HC_SPACE_SET_* */
#define HC_SECTION_MAX_AGE  0x2u
#define HC_SECTION_PRIORITY 0x4u

/* Limits against absurd input. */
#define HC_DISKS_MAX          64u
#define HC_MOUNT_OPTIONS_MAX  32u
#define HC_SPACE_SECTIONS_MAX 4096u

struct hc_options {
	struct hc_option_value values[HC_OPTION_N];
	char *disks[HC_DISKS_MAX];
	uint32_t n_disks;
	/* libfuse's and the kernel's own: "name" or "name=value" */
	char *mount_options[HC_MOUNT_OPTIONS_MAX];
	enum hc_origin mount_origins[HC_MOUNT_OPTIONS_MAX];
	uint32_t n_mount_options;
	struct hc_space_section *sections;
	uint32_t n_sections;
	char *config_file; /* absolute; NULL: none */
	char *cachedir;    /* absolute */
	char *mountpoint;  /* absolute */
	bool foreground;
	bool debug;
	bool sloppy; /* names on the command line that nobody knows are ignored */
	bool quiet;  /* before the mount answers, only what is wrong is said */
};

enum hc_action {
	HC_ACTION_MOUNT,
	HC_ACTION_CHECK, /* all but the mount */
	HC_ACTION_HELP,
	HC_ACTION_VERSION,
};

int hc_options_create(struct hc_options **options_p) HC_MUST_CHECK;
void hc_options_destroy(struct hc_options *options);

/* Where a setting comes from: for messages, and for what holds. file NULL: the command line. */
struct hc_setting_place {
	const char *file;
	uint32_t line;
};
/* One setting; value NULL: only the name was given. -EINVAL with a message; -ENOMEM. */
int hc_options_set(struct hc_options *options, const struct hc_setting_place *place,
		   const char *name, const char *value) HC_MUST_CHECK;
/* quota, max_age, priority of a section. Values as in the file; also for `.hicache/spaces`. -EINVAL
 * and a message in `why`. */
int hc_section_set(struct hc_space_section *section, const char *name, const char *value, char *why,
		   size_t room) HC_MUST_CHECK;
/* "a=1,b,c=x\,y": each of them. */
int hc_options_set_list(struct hc_options *options, const char *list) HC_MUST_CHECK;
/* The whole command line, its config file included; checks that values go together. -EINVAL with a
 * message. */
int hc_options_parse(int argc, char **argv, struct hc_options **options_p,
		     enum hc_action *action_p) HC_MUST_CHECK;
/* The same as mount(8) calls mount.hicachefs: SPEC DIR [-sfnvrw] [-N NAMESPACE] [-t TYPE] [-o
 * LIST]. */
int hc_options_parse_helper(int argc, char **argv, struct hc_options **options_p,
			    enum hc_action *action_p) HC_MUST_CHECK;
#define HC_LISTS_MAX 64
/* Parts of both, for the two parsers: CACHEDIR and MOUNTPOINT; then the config file, then the lists
 * of -o. */
int hc_options_set_operands(struct hc_options *options, int n, char *const *operands) HC_MUST_CHECK;
struct hc_option_lists {
	const char *texts[HC_LISTS_MAX];
	unsigned n;
};
/* One more -o. -EINVAL with a message when there are too many. */
int hc_option_lists_add(struct hc_option_lists *lists, const char *text) HC_MUST_CHECK;
int hc_options_set_lists(struct hc_options *options,
			 const struct hc_option_lists *lists) HC_MUST_CHECK;
/* Checks that values go together, and makes paths absolute. */
int hc_options_finish(struct hc_options *options) HC_MUST_CHECK;
/* The config file again (SIGHUP), under the same command line. */
int hc_options_reread(const struct hc_options *old, struct hc_options **options_p) HC_MUST_CHECK;
/* Values that contradict each other: -EINVAL with a message. */
int hc_options_check(const struct hc_options *options) HC_MUST_CHECK;

/* config.c: a file, or the text of one (name is for messages). */
int hc_config_load(struct hc_options *options, const char *path) HC_MUST_CHECK;
int hc_config_parse(struct hc_options *options, const char *name, const char *text,
		    size_t n) HC_MUST_CHECK;

/* The mount options as one string for libfuse, fsname included.
 * Heap. */
int hc_options_mount_string(const struct hc_options *options, char **text_p) HC_MUST_CHECK;
/* Every option in the config file's syntax, with its origin as a comment; actual (may be NULL):
 * bytes or counts that hold now, by option, 0 = as set. */
void hc_options_print(const struct hc_options *options, const uint64_t actual[HC_OPTION_N],
		      FILE *out);
void hc_options_help(FILE *out);
/* Bytes with the largest unit that loses nothing. */
void hc_size_exact(uint64_t bytes, char text[24]);

static inline const struct hc_option_value *hc_option(const struct hc_options *options,
						      enum hc_option id)
{
	return &options->values[id];
}

#endif
