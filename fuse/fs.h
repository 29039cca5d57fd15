/* SPDX-License-Identifier: Apache-2.0 */
/* The FUSE front end: a node shown as a file system. Names, bodies under construction,
 *notifications; no page is kept here.
 *
 *	hc_fs_create -> hc_node_open(config.event = hc_fs_event, config.event_arg = fs) ->
 *hc_fs_mount -> hc_fs_run
 *	-> hc_fs_unmount -> hc_fs_destroy -> hc_node_close
 *
 * create and mount start no thread (a daemon may fork between them and run). run serves with
 *threads of its own and returns after hc_fs_stop, SIGTERM's way in, or after an unmount from
 *outside. destroy publishes bodies that already have their final name, drops those that have not,
 *and releases every hold on the node.
 *
 * Files below MOUNT/.hicache come from a table of virtual files, so that what they say and do is
 *testable without a mount. */
#ifndef HC_FUSE_FS_H
#define HC_FUSE_FS_H

#include <stdatomic.h>
#include <stdio.h>

#include "node/node.h"

struct hc_fs;

/* Who wrote to a virtual file. */
struct hc_vcaller {
	uint32_t uid;
	uint32_t gid;
	int pid; /* thread id; 0: not of our pid namespace */
};

/* One name below .hicache; tables end with name NULL, are constant and outlive the file system.
 * Either a directory (children not NULL) or a file.
 *
 * list: the directory's children are instances (spaces/<name>): as many directories as it names,
 * each with `children`; the callback of a file gets the name of the nearest instance above it, else
 * NULL. names_p: heap array of heap strings, freed here.
 *
 * read: the file's text of this moment, taken once at open (st_size is 0 before: direct I/O).
 * Return 0 or -errno for the open.
 *
 * write: one call for each line of a write(2), without its newline (a last line without one counts
 * too; at most 64 KiB). What it prints to `answer` is read on the same fd. Its -errno is
 * write(2)'s. With `background` it runs in a thread of its own, one at a time for each fd (-EBUSY
 * meanwhile): write(2) returns at once, reads wait for what is printed (fflush(answer) to hand it
 * on), end of file is its return; then an error is told in the text alone. *cancel_p becomes true
 * when the fd was closed or the mount ends: return soon. */
struct hc_vfile {
	const char *name;
	uint32_t mode; /* permission bits; owner and group are the daemon's */
	const struct hc_vfile *children;
	int (*list)(void *arg, char ***names_p, size_t *n_p);
	int (*read)(void *arg, const char *instance, FILE *out);
	int (*write)(void *arg, const char *instance, const struct hc_vcaller *caller,
		     const char *line, FILE *answer, const atomic_bool *cancel_p);
	bool background;
	bool single; /* a setting: a write of several lines is refused whole */
};

struct hc_fs_options {
	const char *mountpoint;
	const char *mount_options; /* for libfuse and the kernel: "fsname=hicachefs,allow_other,ro";
				      may be NULL */
	uint32_t n_threads;        /* 0: by the number of processors, 16 to 32 */
	uint64_t budget_ns;        /* longest look-up or open; 0: 2 s */
	uint64_t max_page_bytes;   /* above it a body is a scratch file; 0: 64 MiB */
	uint64_t temporary_age_ns; /* temporaries without a writer are reaped; 0: one hour */
	uint64_t timeout_ns;       /* of entries and attributes in the kernel; 0: one hour */
	bool passthrough_writes;   /* of bodies, too: on trial */
	bool passthrough_off;      /* never asked for; else where kernel and disks let us */
	bool debug;                /* libfuse prints each request */
	/* Called once, by a worker, when the kernel has the answer to INIT: the mount answers. */
	void (*serving)(void *arg);
	void *serving_arg;
	const struct hc_vfile *vfiles; /* what is in .hicache; NULL: nothing */
	void *vfiles_arg;
};

/* Copies the options, checks them and that FUSE can be used here. -ENOENT, -ENOTDIR (mount point),
 * -ENODEV, -EACCES
 * (/dev/fuse), -EINVAL; messages say what to do. */
int hc_fs_create(const struct hc_fs_options *options, struct hc_fs **fs_p) HC_MUST_CHECK;
/* For hc_node_config.event, arg is the hc_fs. Before mount and after unmount it does nothing. */
void hc_fs_event(void *arg, const struct hc_event *event);
int hc_fs_mount(struct hc_fs *fs, struct hc_node *node) HC_MUST_CHECK;
/* Serves until hc_fs_stop or the end of the mount. */
int hc_fs_run(struct hc_fs *fs) HC_MUST_CHECK;
/* From any thread or a signal handler; once is enough. */
void hc_fs_stop(struct hc_fs *fs);
void hc_fs_unmount(struct hc_fs *fs);
void hc_fs_destroy(struct hc_fs *fs);

/* Counters only rise; `name value` lines of MOUNT/.hicache/stats after the node's. */
/* clang-format off */
#define HC_FS_COUNTERS(X) \
	X(opens) X(open_misses) X(creates) X(reads) X(read_bytes) X(writes) \
	X(write_bytes) X(renames) X(unlinks) X(published_release) X(published_rename) \
	X(publish_failed) X(unsealed) X(killed_writers) X(second_writers) \
	X(second_writers_busy) X(stale_opens) X(detached_opens) X(stale_nodes) X(eio_replies) X(read_failures) \
	X(parked) X(parked_timeouts) X(temporaries_reaped) X(scratch_files) X(passthrough_opens) \
	X(daemon_opens) X(notified) X(notify_dropped) X(epochs) X(lookups) X(page_lookups) X(page_lookups_absent) \
	X(getxattrs) X(listxattrs) \
	X(setxattrs)
/* clang-format on */

struct hc_fs_stats {
#define HC_FS_COUNTER_FIELD(name) uint64_t name;
	HC_FS_COUNTERS(HC_FS_COUNTER_FIELD)
#undef HC_FS_COUNTER_FIELD
	/* state now */
	uint64_t n_nodes;  /* node ids the kernel knows */
	uint64_t n_bodies; /* under construction */
	uint64_t n_temporaries;
	uint64_t n_handles;
	uint64_t n_backing_ids;
	bool has_epoch; /* what the kernel offers */
	bool has_parallel_dirops;
	bool has_direct_mmap;
	bool has_passthrough; /* in force, on one data directory at least */
	uint32_t proto_minor;
};
void hc_fs_stats(struct hc_fs *fs, struct hc_fs_stats *stats_p);
/* How long requests took, from their arrival to their answer. */
#define HC_FS_TIMINGS(X) X(lookup) X(open) X(create) X(read) X(write) X(flush) X(rename)
enum hc_fs_timing {
#define HC_FS_TIMING_NAME(name) HC_FS_TIMING_##name,
	HC_FS_TIMINGS(HC_FS_TIMING_NAME)
#undef HC_FS_TIMING_NAME
		HC_FS_N_TIMINGS
};
const struct hc_timing *hc_fs_timing(struct hc_fs *fs, enum hc_fs_timing which);
/* Whether passthrough is in force: "on", "off: REASON". */
void hc_fs_passthrough_text(struct hc_fs *fs, char *text, size_t room);

#endif
