/* SPDX-License-Identifier: Apache-2.0 */
/* The log and hc_panic. See log.h. */
#include "util/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

#define HC_LOG_LINE_MAX 1024

static const char *const hc_log_words[] = {"error", "warn", "info", "debug", "trace"};

static atomic_int hc_log_level_now = HC_LOG_INFO;
static pthread_mutex_t hc_log_lock = PTHREAD_MUTEX_INITIALIZER;
static hc_log_sink_t hc_log_sink; /* under hc_log_lock */
static void *hc_log_sink_arg;     /* under hc_log_lock */

void hc_log_set_sink(hc_log_sink_t sink, void *arg)
{
	pthread_mutex_lock(&hc_log_lock);
	hc_log_sink = sink;
	hc_log_sink_arg = arg;
	pthread_mutex_unlock(&hc_log_lock);
}

void hc_log_set_level(enum hc_log_level level)
{
	atomic_store_explicit(&hc_log_level_now, level, memory_order_relaxed);
}

enum hc_log_level hc_log_get_level(void)
{
	return atomic_load_explicit(&hc_log_level_now, memory_order_relaxed);
}

int hc_log_level_parse(const char *word, enum hc_log_level *level_p)
{
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_log_words); i++) {
		if (!strcmp(word, hc_log_words[i])) {
			*level_p = (enum hc_log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

void hc_log(enum hc_log_level level, const char *component, const char *format, ...)
{
	char text[HC_LOG_LINE_MAX];
	int err = errno;
	va_list args;

	if (level > hc_log_get_level())
		return;
	va_start(args, format);
	errno = err;
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	pthread_mutex_lock(&hc_log_lock);
	if (hc_log_sink)
		hc_log_sink(hc_log_sink_arg, level, component, text);
	else
		fprintf(stderr, "%s: %s: %s\n", component, hc_log_words[level], text);
	pthread_mutex_unlock(&hc_log_lock);
	errno = err;
}

void hc_panic(const char *file, int line, const char *what)
{
	fprintf(stderr, "hicache: assertion failed at %s:%d: %s\n", file, line, what);
	abort();
}
