/* SPDX-License-Identifier: Apache-2.0 */
/* hicachectl doctor: findings, each with a level, what it is about, what was seen and what to
 * change. Nothing is changed here, and nothing waits for a mount that does not answer. One thread.
 */
#ifndef HC_TOOL_DOCTOR_H
#define HC_TOOL_DOCTOR_H

#include "tool/page.h"

enum hc_finding { HC_FINDING_OK, HC_FINDING_WARN, HC_FINDING_FAIL, HC_FINDING_N };

struct hc_doctor {
	const char *root; /* in front of /proc and /sys: another machine's, for tests */
	json_t *findings;
	unsigned n[HC_FINDING_N];
	uint64_t pool_bytes; /* of all daemons that answer */
};

/* remedy: what to change, NULL where there is nothing. */
void hc_doctor_find(struct hc_doctor *doctor, enum hc_finding level, const char *about,
		    const char *remedy, const char *format, ...) HC_PRINTF(5, 6);
/* A small file below /proc or /sys: heap, or NULL. */
char *hc_doctor_read(const struct hc_doctor *doctor, const char *path);
/* The number after `name` at the start of a line; false when there is none. */
bool hc_doctor_number(const char *text, const char *name, uint64_t *value_p);

/* Kernel, FUSE, memory, limits of this shell. */
void hc_doctor_machine(struct hc_doctor *doctor);
/* A cache's directory, with or without a daemon. */
void hc_doctor_cachedir(struct hc_doctor *doctor, const char *dir);
/* A data directory: file system, features, room. */
void hc_doctor_disk(struct hc_doctor *doctor, const char *dir);
/* Mounts, their daemons, and pools that have none. mount_arg NULL: all. */
void hc_doctor_mounts(struct hc_doctor *doctor, const char *mount_arg);

#endif
