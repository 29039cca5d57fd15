/* SPDX-License-Identifier: Apache-2.0 */
/* See crash.h. */
#include "util/crash.h"

#include <pthread.h>
#include <signal.h>

atomic_int hc_crash_armed = -1;

static pthread_once_t hc_crash_once = PTHREAD_ONCE_INIT;
static char hc_crash_name[64];
static atomic_long hc_crash_left;

static void hc_crash_read(void)
{
	const char *text = secure_getenv("HICACHE_CRASH_AT");
	const char *colon = text ? strrchr(text, ':') : NULL;

	if (!colon || (size_t)(colon - text) >= sizeof(hc_crash_name)) {
		atomic_store(&hc_crash_armed, 0);
		return;
	}
	memcpy(hc_crash_name, text, (size_t)(colon - text));
	atomic_store(&hc_crash_left, strtol(colon + 1, NULL, 10));
	atomic_store(&hc_crash_armed, 1);
}

void hc_crash_pass(const char *name)
{
	pthread_once(&hc_crash_once, hc_crash_read);
	if (atomic_load(&hc_crash_armed) != 1 || strcmp(name, hc_crash_name))
		return;
	if (atomic_fetch_sub(&hc_crash_left, 1) == 1)
		kill(getpid(), SIGKILL);
}
