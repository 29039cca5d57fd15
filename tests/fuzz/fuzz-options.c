/* SPDX-License-Identifier: Apache-2.0 */
/* Options as users type them: the first byte says whether the rest is a list of -o or a config
 * file. Never a crash; what was accepted prints as a config file that gives the same values. */
#include "fuzz.h"

#include "fuse/options.h"
#include "util/log.h"

static void drop_message(void *arg, enum hc_log_level level, const char *component,
			 const char *text)
{
	(void)arg;
	(void)level;
	(void)component;
	(void)text;
}

/* A path may hold what a config file cannot: newlines, comments, blanks at its ends. */
static bool is_plain(const char *text)
{
	size_t n = strlen(text);

	return n && !strpbrk(text, "\n\r\t #") && n < 4000;
}

static bool can_print(const struct hc_options *options)
{
	for (uint32_t i = 0; i < options->n_disks; i++) {
		if (!is_plain(options->disks[i]))
			return false;
	}
	for (uint32_t i = 0; i < options->n_mount_options; i++) {
		if (!is_plain(options->mount_options[i]))
			return false;
	}
	for (uint32_t i = 0; i < options->n_sections; i++) {
		if (!is_plain(options->sections[i].name))
			return false;
	}
	return is_plain(options->values[HC_OPT_pool_path].text) &&
	       is_plain(options->values[HC_OPT_catalog_dir].text);
}

static void check_same(const struct hc_options *a, const struct hc_options *b)
{
	for (int id = 0; id < HC_OPTION_N; id++) {
		hc_assert(a->values[id].number == b->values[id].number);
		hc_assert(a->values[id].ppm == b->values[id].ppm);
		hc_assert(a->values[id].is_percent == b->values[id].is_percent);
	}
	hc_assert(a->n_sections == b->n_sections);
	for (uint32_t i = 0; i < a->n_sections; i++) {
		hc_assert(!strcmp(a->sections[i].name, b->sections[i].name));
		hc_assert(a->sections[i].what == b->sections[i].what);
		hc_assert(a->sections[i].quota_bytes == b->sections[i].quota_bytes);
		hc_assert(a->sections[i].max_age_s == b->sections[i].max_age_s);
		hc_assert(a->sections[i].priority == b->sections[i].priority);
	}
}

static void check_print(const struct hc_options *options)
{
	struct hc_options *again;
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	if (!out || hc_options_create(&again))
		abort();
	hc_options_print(options, NULL, out);
	fclose(out);
	hc_assert(!hc_config_parse(again, "printed", text, n));
	check_same(options, again);
	hc_options_destroy(again);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hc_options *options;
	int rc;

	if (!size)
		return 0;
	hc_log_set_sink(drop_message, NULL);
	if (hc_options_create(&options))
		return 0;
	options->cachedir = strdup("/cache");
	options->config_file = strdup("/etc/h.conf");
	if (data[0] == '-') {
		char *list = malloc(size);

		if (!list)
			abort();
		memcpy(list, data + 1, size - 1);
		list[size - 1] = 0;
		rc = hc_options_set_list(options, list);
		free(list);
	} else {
		rc = hc_config_parse(options, "h.conf", (const char *)data + 1, size - 1);
	}
	hc_assert(!rc || rc == -EINVAL);
	if (!rc && !hc_options_check(options) && can_print(options))
		check_print(options);
	if (!rc) {
		char *text = NULL;

		hc_assert(!hc_options_mount_string(options, &text));
		free(text);
	}
	hc_options_destroy(options);
	return 0;
}
