/* SPDX-License-Identifier: Apache-2.0 */
/* A set of (directory, name) to invalidate, in the order of arrival; a name that waits already is
 * not queued again. */
#include "fuse/notify.h"

#include <pthread.h>

#include "fuse/internal.h"
#include "util/clock.h"
#include "util/log.h"

#define HC_NOTIFY_BUCKETS  (HC_NOTIFY_MAX * 2)
#define HC_FUSE_CODE_EPOCH 8

struct hc_notice {
	struct hc_notice *next_bucket;
	struct hc_notice *next;
	uint64_t hash;
	uint32_t dir;
	char name[];
};

struct hc_notifier {
	struct hc_fs *fs;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* leaf; what follows */
	pthread_cond_t wake;
	struct hc_notice *buckets[HC_NOTIFY_BUCKETS];
	struct hc_notice *first, **last;
	uint32_t n_waiting;
	bool all;
	bool stopping;
	uint64_t busy_since_ns; /* inside a notify; 0: not */
};

int hc_notifier_create(struct hc_fs *fs, struct hc_notifier **notifier_p)
{
	struct hc_notifier *n = hc_zalloc(sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->fs = fs;
	n->last = &n->first;
	pthread_mutex_init(&n->lock, NULL);
	hc_cond_init(&n->wake);
	*notifier_p = n;
	return 0;
}

/* Locked. */
static struct hc_notice *pop(struct hc_notifier *n)
{
	struct hc_notice *notice = n->first, **place;

	if (!notice)
		return NULL;
	n->first = notice->next;
	if (!n->first)
		n->last = &n->first;
	place = &n->buckets[notice->hash % HC_NOTIFY_BUCKETS];
	while (*place != notice)
		place = &(*place)->next_bucket;
	*place = notice->next_bucket;
	n->n_waiting--;
	return notice;
}

static void drop_all(struct hc_notifier *n)
{
	struct hc_notice *notice;

	while ((notice = pop(n)))
		free(notice);
}

void hc_notifier_destroy(struct hc_notifier *n)
{
	if (!n)
		return;
	drop_all(n);
	pthread_mutex_destroy(&n->lock);
	pthread_cond_destroy(&n->wake);
	free(n);
}

/* Takes no lock in the kernel and expires every entry that it has cached. */
static bool send_epoch(struct hc_fs *fs)
{
	struct {
		uint32_t length;
		int32_t code;
		uint64_t unique;
	} header = {16, HC_FUSE_CODE_EPOCH, 0};

	if (!fs->kernel.has_epoch || !atomic_load(&fs->mounted))
		return false;
	if (write(fuse_session_fd(fs->session), &header, sizeof(header)) != sizeof(header))
		return false;
	hc_fs_count(fs, epochs);
	return true;
}

/* Where there are no epochs: attributes of pages that are gone expire, so the next stat asks. */
static void expire_gone(struct hc_fs *fs)
{
	struct hc_fview views[64];
	struct hc_page_info info;
	uint64_t cursor = 0;
	size_t n;

	while ((n = hc_tree_pages(fs->tree, &cursor, views, HC_ARRAY_SIZE(views)))) {
		for (size_t i = 0; i < n && atomic_load(&fs->mounted); i++)
			if (hc_view_stat(fs, &views[i], &info))
				fuse_lowlevel_notify_inval_inode(fs->session, views[i].ino, -1, 0);
	}
}

static void tell(struct hc_notifier *n, const struct hc_notice *notice, bool all)
{
	struct hc_fs *fs = n->fs;

	if (!atomic_load(&fs->mounted))
		return;
	if (all) {
		if (!send_epoch(fs))
			expire_gone(fs);
		return;
	}
	/* -ENOENT: the kernel has it not cached. */
	fuse_lowlevel_notify_inval_entry(fs->session, notice->dir, notice->name,
					 strlen(notice->name));
	hc_fs_count(fs, notified);
}

static void *notifier_main(void *arg)
{
	struct hc_notifier *n = arg;

	pthread_setname_np(pthread_self(), "hc-notify");
	pthread_mutex_lock(&n->lock);
	while (!n->stopping) {
		bool all = n->all;
		struct hc_notice *notice = NULL;

		if (all)
			drop_all(n);
		else
			notice = pop(n);
		n->all = false;
		if (!all && !notice) {
			(void)hc_cond_wait_until(&n->wake, &n->lock, UINT64_MAX);
			continue;
		}
		n->busy_since_ns = hc_clock_now_ns();
		pthread_mutex_unlock(&n->lock);
		tell(n, notice, all);
		free(notice);
		pthread_mutex_lock(&n->lock);
		n->busy_since_ns = 0;
	}
	pthread_mutex_unlock(&n->lock);
	return NULL;
}

int hc_notifier_start(struct hc_notifier *n)
{
	int err = -pthread_create(&n->thread, NULL, notifier_main, n);

	if (err)
		hc_error("fuse", "cannot start the notifier thread: %s", strerror(-err));
	n->started = !err;
	return err;
}

void hc_notifier_stop(struct hc_notifier *n)
{
	if (!n->started)
		return;
	pthread_mutex_lock(&n->lock);
	n->stopping = true;
	pthread_cond_broadcast(&n->wake);
	pthread_mutex_unlock(&n->lock);
	pthread_join(n->thread, NULL);
	n->started = false;
}

void hc_notify_name(struct hc_notifier *n, uint32_t dir, const char *name)
{
	uint64_t hash = hc_bname_hash(dir, name);
	struct hc_notice **bucket = &n->buckets[hash % HC_NOTIFY_BUCKETS], *notice;
	size_t length = strlen(name) + 1;

	pthread_mutex_lock(&n->lock);
	notice = *bucket;
	while (notice &&
	       (notice->hash != hash || notice->dir != dir || strcmp(notice->name, name) != 0))
		notice = notice->next_bucket;
	if (!notice && !n->all) {
		notice = n->n_waiting < HC_NOTIFY_MAX ? malloc(sizeof(*notice) + length) : NULL;
		if (notice) {
			notice->hash = hash;
			notice->dir = dir;
			memcpy(notice->name, name, length);
			notice->next_bucket = *bucket;
			*bucket = notice;
			notice->next = NULL;
			*n->last = notice;
			n->last = &notice->next;
			n->n_waiting++;
		} else {
			n->all = true;
			hc_fs_count(n->fs, notify_dropped);
		}
		pthread_cond_signal(&n->wake);
	}
	pthread_mutex_unlock(&n->lock);
}

void hc_notify_all(struct hc_notifier *n)
{
	pthread_mutex_lock(&n->lock);
	n->all = true;
	pthread_cond_signal(&n->wake);
	pthread_mutex_unlock(&n->lock);
}

bool hc_notify_is_stuck(struct hc_notifier *n)
{
	bool stuck;

	pthread_mutex_lock(&n->lock);
	stuck = n->busy_since_ns && hc_clock_now_ns() - n->busy_since_ns > HC_NOTIFY_STUCK_NS;
	pthread_mutex_unlock(&n->lock);
	return stuck;
}

void hc_notify_unstick(struct hc_notifier *n)
{
	if (!send_epoch(n->fs))
		return;
	pthread_mutex_lock(&n->lock);
	drop_all(n);
	pthread_mutex_unlock(&n->lock);
}
