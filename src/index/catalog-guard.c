/* SPDX-License-Identifier: Apache-2.0 */
/* See catalog-internal.h. A mapped file that is truncated under us, or a media error below it, is a
 * SIGBUS in the thread that reads it: this makes an error of it, for that thread while it runs
 * guarded code only.
 *
 * The handler is process-wide and stays. Where somebody replaced it, it is put on top again: the
 * two may then pass a signal to each other, which ends at the second entry. */
#include "index/catalog-internal.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>

#include "util/log.h"

struct hc_guard {
	sigjmp_buf jump;
};

static _Thread_local struct hc_guard *hc_guard_now;
static _Thread_local bool hc_guard_passing;

/* More replacements than this are left alone. */
#define HC_GUARD_PREVIOUS_MAX 16

static pthread_mutex_t hc_guard_lock = PTHREAD_MUTEX_INITIALIZER; /* writers of the two below */
static struct sigaction
	hc_guard_previous[HC_GUARD_PREVIOUS_MAX]; /* an element never changes once counted */
static atomic_int hc_guard_n_previous;

static void hc_guard_die(int number, const siginfo_t *info)
{
	struct sigaction plain = {.sa_handler = SIG_DFL};

	/* An access is repeated on return and ends the process as it would have without us. */
	sigaction(number, &plain, NULL);
	if (info->si_code <= 0)
		raise(number);
}

static void hc_guard_pass_on(int number, siginfo_t *info, void *context)
{
	int n = atomic_load(&hc_guard_n_previous);
	const struct sigaction *previous = n ? &hc_guard_previous[n - 1] : NULL;

	if (!previous || hc_guard_passing) {
		hc_guard_die(number, info);
		return;
	}
	hc_guard_passing = true;
	if (previous->sa_flags & SA_SIGINFO)
		previous->sa_sigaction(number, info, context);
	else if (previous->sa_handler == SIG_DFL || previous->sa_handler == SIG_IGN)
		hc_guard_die(number, info);
	else
		previous->sa_handler(number);
	hc_guard_passing = false;
}

static void hc_guard_handle(int number, siginfo_t *info, void *context)
{
	struct hc_guard *guard = hc_guard_now;

	/* si_code <= 0: sent by a process; _AO: bad memory that nobody reads right now. */
	if (guard && info->si_code > 0 && info->si_code != BUS_MCEERR_AO)
		siglongjmp(guard->jump, 1);
	hc_guard_pass_on(number, info, context);
}

static void hc_guard_install(void)
{
	struct sigaction action = {.sa_sigaction = hc_guard_handle,
				   .sa_flags = SA_SIGINFO | SA_ONSTACK};
	struct sigaction found;
	int n;

	if (sigaction(SIGBUS, NULL, &found) ||
	    ((found.sa_flags & SA_SIGINFO) && found.sa_sigaction == hc_guard_handle))
		return;
	pthread_mutex_lock(&hc_guard_lock);
	n = atomic_load(&hc_guard_n_previous);
	if (n < HC_GUARD_PREVIOUS_MAX) {
		hc_guard_previous[n] = found;
		atomic_store(&hc_guard_n_previous, n + 1);
		sigemptyset(&action.sa_mask);
		if (sigaction(SIGBUS, &action, NULL))
			hc_error("catalog", "cannot handle SIGBUS: %m");
	}
	pthread_mutex_unlock(&hc_guard_lock);
}

void hc_guard_escape(void)
{
	if (hc_guard_now)
		siglongjmp(hc_guard_now->jump, 1);
}

int hc_guard_call(int (*call)(void *arg), void *arg)
{
	struct hc_guard guard;
	int rc;

	hc_guard_install();
	hc_assert(!hc_guard_now);
	if (sigsetjmp(guard.jump, 1)) {
		hc_guard_now = NULL;
		return -EFAULT;
	}
	hc_guard_now = &guard;
	rc = call(arg);
	hc_guard_now = NULL;
	return rc;
}
