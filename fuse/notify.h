/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the kernel that names changed behind its back. One thread, a bounded queue that coalesces;
 * nothing ever waits for it: a notify blocks while a CREATE of the same directory is in its
 * handler. What does not fit, and what a stuck thread holds up, is told all at once by a new epoch
 * where the kernel has that, else by expiring the attributes of pages that are gone. Advisory: an
 * old name costs an ESTALE at open, never wrong bytes. */
#ifndef HC_FUSE_NOTIFY_H
#define HC_FUSE_NOTIFY_H

#include "util/base.h"

#define HC_NOTIFY_MAX      8192u /* names waiting; more at once are an epoch's work */
#define HC_NOTIFY_STUCK_NS (200 * HC_NS_PER_MS)

struct hc_fs;
struct hc_notifier;

int hc_notifier_create(struct hc_fs *fs, struct hc_notifier **notifier_p) HC_MUST_CHECK;
int hc_notifier_start(struct hc_notifier *notifier) HC_MUST_CHECK;
/* Ends the thread; after the session's end it cannot be stuck. */
void hc_notifier_stop(struct hc_notifier *notifier);
void hc_notifier_destroy(struct hc_notifier *notifier);

/* From any thread, without locks of ours; only queues. */
void hc_notify_name(struct hc_notifier *notifier, uint32_t dir, const char *name);
void hc_notify_all(struct hc_notifier *notifier);
/* Whether the thread has been inside one notify for too long (then the caller calls
 * hc_notify_unstick). */
bool hc_notify_is_stuck(struct hc_notifier *notifier);
/* An epoch now, from the caller's thread; takes no lock in the kernel. */
void hc_notify_unstick(struct hc_notifier *notifier);

#endif
