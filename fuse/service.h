/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon as a service of the node: a pid file that is locked as long as the daemon lives, and
 * the messages of systemd's notify socket (sd_notify(3)), which are datagrams of a few words.
 * Messages that cannot be delivered are dropped: nothing waits for a supervisor. */
#ifndef HC_FUSE_SERVICE_H
#define HC_FUSE_SERVICE_H

#include "util/base.h"

struct hc_pid_file;

/* A file without a living owner is taken over. -EBUSY: its daemon runs. Messages name the file. */
int hc_pid_file_create(const char *path, struct hc_pid_file **file_p) HC_MUST_CHECK;
/* Removes the file. */
void hc_pid_file_destroy(struct hc_pid_file *file);

/* "READY=1" and the like to $NOTIFY_SOCKET; nothing where there is none. Any thread. */
void hc_service_notify(const char *message);
/* A daemon in the background is not the process that the supervisor started. Before any thread. */
void hc_service_forget(void);
/* How often the supervisor wants to hear of this process; 0: never. */
uint64_t hc_service_watchdog_ns(void);
/* Whether standard error is the journal, which takes "<4>" before a line for its level. */
bool hc_service_has_journal(void);

#endif
