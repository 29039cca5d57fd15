/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines with a level and a component, to a sink that the user of the process may set.
 * The place that decides an errno logs it, once. Text: lower case, no full stop, no "key=value".
 * Any thread. The sink is called under the log's own lock (a leaf: it may not log). */
#ifndef HC_UTIL_LOG_H
#define HC_UTIL_LOG_H

#include "util/base.h"

enum hc_log_level { HC_LOG_ERROR, HC_LOG_WARN, HC_LOG_INFO, HC_LOG_DEBUG, HC_LOG_TRACE };

typedef void (*hc_log_sink_t)(void *arg, enum hc_log_level level, const char *component,
			      const char *text);

/* NULL restores the default sink: "component: level: text" on standard error. */
void hc_log_set_sink(hc_log_sink_t sink, void *arg);
void hc_log_set_level(enum hc_log_level level);
enum hc_log_level hc_log_get_level(void);
/* -EINVAL for an unknown word. */
int hc_log_level_parse(const char *word, enum hc_log_level *level_p) HC_MUST_CHECK;

/* Keeps errno; `%m` in the format works. Lines over 1 KiB are cut. */
void hc_log(enum hc_log_level level, const char *component, const char *format, ...)
	HC_PRINTF(3, 4);

#define hc_error(c, ...) hc_log(HC_LOG_ERROR, c, __VA_ARGS__)
#define hc_warn(c, ...)  hc_log(HC_LOG_WARN, c, __VA_ARGS__)
#define hc_info(c, ...)  hc_log(HC_LOG_INFO, c, __VA_ARGS__)
#define hc_debug(c, ...)                                             \
	do {                                                         \
		if (hc_unlikely(hc_log_get_level() >= HC_LOG_DEBUG)) \
			hc_log(HC_LOG_DEBUG, c, __VA_ARGS__);        \
	} while (0)

#endif
