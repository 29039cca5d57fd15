/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on a disk that may never come back, made aside: fstatvfs and syncfs of a file system that
 * hangs hold up a thread of ours, not their callers. Each kind has a thread of its own for each
 * disk. Callers that come while a call runs are answered by the next one, which began after they
 * came; all of them wait until their own deadline. A thread that hangs at the end is left behind
 * with what it needs. */
#include <fcntl.h>
#include <unistd.h>

#include "store/file-internal.h"
#include "util/clock.h"

/* What the end waits for a call. */
#define HC_ASIDE_CLOSE_NS HC_NS_PER_S

struct hc_file_aside {
	enum hc_file_aside_kind kind;
	int fd; /* own */
	char name[16];
	pthread_mutex_t lock;
	pthread_cond_t more, done;
	/* below: under lock; calls are counted */
	void (*hook)(void *arg, enum hc_file_aside_kind kind);
	void *hook_arg;
	uint64_t n_asked, n_begun, n_ended;
	int result;
	struct statvfs vfs;  /* of the last call that succeeded */
	uint64_t known_ns;   /* when that was, 0: never */
	bool late;           /* somebody has waited for the running call in vain */
	bool closing, ended; /* the end was asked for; the thread has gone */
	bool left;           /* the thread frees */
};

static void hc_file_aside_free(struct hc_file_aside *aside)
{
	if (aside->fd >= 0)
		close(aside->fd);
	pthread_cond_destroy(&aside->more);
	pthread_cond_destroy(&aside->done);
	pthread_mutex_destroy(&aside->lock);
	free(aside);
}

/* Locked; the lock is given back while it runs. */
static void hc_file_aside_call(struct hc_file_aside *aside)
{
	void (*hook)(void *arg, enum hc_file_aside_kind kind) = aside->hook;
	void *hook_arg = aside->hook_arg;
	uint64_t turn = aside->n_asked;
	struct statvfs vfs;
	int rc;

	aside->n_begun = turn;
	pthread_mutex_unlock(&aside->lock);
	if (hook)
		hook(hook_arg, aside->kind);
	rc = aside->kind == HC_FILE_ASIDE_STAT ? fstatvfs(aside->fd, &vfs) : syncfs(aside->fd);
	rc = rc ? -errno : 0;
	pthread_mutex_lock(&aside->lock);
	aside->n_ended = turn;
	aside->result = rc;
	aside->late = false;
	if (!rc && aside->kind == HC_FILE_ASIDE_STAT) {
		aside->vfs = vfs;
		aside->known_ns = hc_clock_now_ns();
	}
	pthread_cond_broadcast(&aside->done);
}

static void *hc_file_aside_main(void *arg)
{
	struct hc_file_aside *aside = arg;
	bool left;

	pthread_setname_np(pthread_self(), aside->name);
	pthread_mutex_lock(&aside->lock);
	while (!aside->closing) {
		if (aside->n_asked == aside->n_begun)
			hc_ignore(hc_cond_wait_until(&aside->more, &aside->lock, UINT64_MAX));
		else
			hc_file_aside_call(aside);
	}
	aside->ended = true;
	left = aside->left;
	pthread_cond_broadcast(&aside->done);
	pthread_mutex_unlock(&aside->lock);
	if (left)
		hc_file_aside_free(aside);
	return NULL;
}

/* Locked. Waits until a call that begins from here on has ended. */
static int hc_file_aside_ask(struct hc_file_aside *aside, uint64_t deadline_ns)
{
	uint64_t turn = ++aside->n_asked;

	pthread_cond_signal(&aside->more);
	while (aside->n_ended < turn) {
		if (hc_cond_wait_until(&aside->done, &aside->lock, deadline_ns) == -ETIMEDOUT &&
		    aside->n_ended < turn)
			return -ETIMEDOUT;
	}
	return aside->result;
}

int hc_file_aside_sync(struct hc_file_aside *aside, uint64_t deadline_ns)
{
	int rc;

	pthread_mutex_lock(&aside->lock);
	rc = hc_file_aside_ask(aside, deadline_ns);
	pthread_mutex_unlock(&aside->lock);
	return rc;
}

int hc_file_aside_stat(struct hc_file_aside *aside, struct statvfs *vfs_p, bool *late_p)
{
	uint64_t now_ns = hc_clock_now_ns(), age_ns;
	int rc = 0;

	pthread_mutex_lock(&aside->lock);
	age_ns = now_ns - aside->known_ns;
	/* Under a clock of tests that stands still nothing is young. */
	if (aside->late)
		rc = -ETIMEDOUT;
	else if (!aside->known_ns || !age_ns || age_ns >= HC_FILE_STAT_AGE_NS)
		rc = hc_file_aside_ask(aside, now_ns + HC_FILE_STAT_WAIT_NS);
	*late_p = aside->late = rc == -ETIMEDOUT;
	if (rc == -ETIMEDOUT && aside->known_ns)
		rc = 0;
	if (!rc)
		*vfs_p = aside->vfs;
	pthread_mutex_unlock(&aside->lock);
	return rc;
}

bool hc_file_aside_late(struct hc_file_aside *aside)
{
	bool late;

	if (!aside)
		return false;
	pthread_mutex_lock(&aside->lock);
	late = aside->late;
	pthread_mutex_unlock(&aside->lock);
	return late;
}

void hc_file_aside_hook(struct hc_file_aside *aside,
			void (*hook)(void *arg, enum hc_file_aside_kind kind), void *arg)
{
	pthread_mutex_lock(&aside->lock);
	aside->hook = hook;
	aside->hook_arg = arg;
	pthread_mutex_unlock(&aside->lock);
}

int hc_file_aside_create(enum hc_file_aside_kind kind, int fd, unsigned disk_i,
			 struct hc_file_aside **aside_p)
{
	struct hc_file_aside *aside = hc_zalloc(sizeof(*aside));
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	if (!aside)
		return -ENOMEM;
	aside->kind = kind;
	snprintf(aside->name, sizeof(aside->name), "hc-%s-%u",
		 kind == HC_FILE_ASIDE_STAT ? "stat" : "sync", disk_i & 0xffffu);
	pthread_mutex_init(&aside->lock, NULL);
	hc_cond_init(&aside->more);
	hc_cond_init(&aside->done);
	aside->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	rc = aside->fd < 0 ? -errno : 0;
	if (!rc) {
		pthread_attr_init(&attr);
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		rc = -pthread_create(&thread, &attr, hc_file_aside_main, aside);
		pthread_attr_destroy(&attr);
	}
	if (rc) {
		hc_file_aside_free(aside);
		return rc;
	}
	*aside_p = aside;
	return 0;
}

void hc_file_aside_destroy(struct hc_file_aside *aside)
{
	uint64_t deadline_ns = hc_clock_now_ns() + HC_ASIDE_CLOSE_NS;
	bool ended;

	if (!aside)
		return;
	pthread_mutex_lock(&aside->lock);
	aside->closing = true;
	pthread_cond_signal(&aside->more);
	while (!aside->ended &&
	       hc_cond_wait_until(&aside->done, &aside->lock, deadline_ns) != -ETIMEDOUT)
		;
	ended = aside->ended;
	aside->left = !ended;
	pthread_mutex_unlock(&aside->lock);
	if (ended)
		hc_file_aside_free(aside);
}
