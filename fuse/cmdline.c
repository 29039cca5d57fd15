/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of hicachefs, and the options as text: lists, help, what holds. See options.h.
 */
#include "fuse/options.h"

#include <getopt.h>
#include <limits.h>

#include "util/log.h"

/* --- lists --- */

/* Cuts the next item off a list, its escapes undone in place. */
static char *hc_list_next(char **rest_p)
{
	char *item = *rest_p, *from = item, *to = item;

	while (*from && *from != ',') {
		if (*from == '\\' && from[1])
			from++;
		*to++ = *from++;
	}
	*rest_p = *from ? from + 1 : from;
	*to = 0;
	return item;
}

int hc_options_set_list(struct hc_options *options, const char *list)
{
	struct hc_setting_place place = {NULL, 0};
	hc_autofree char *copy = strdup(list);
	char *rest = copy;

	if (!copy)
		return -ENOMEM;
	while (*rest) {
		char *name = hc_list_next(&rest);
		char *value = strchr(name, '=');
		int rc;

		if (!*name)
			continue;
		if (value)
			*value++ = 0;
		/* Where the file is was looked at before. */
		if (!strcmp(name, "config"))
			continue;
		rc = hc_options_set(options, &place, name, value);
		if (rc)
			return rc;
	}
	return 0;
}

/* The value of config= in a list, heap; NULL when there is none. */
static int hc_list_config(const char *list, char **path_p)
{
	hc_autofree char *copy = strdup(list);
	char *rest = copy;

	if (!copy)
		return -ENOMEM;
	while (*rest) {
		char *item = hc_list_next(&rest);

		if (strncmp(item, "config=", 7))
			continue;
		free(*path_p);
		*path_p = strdup(item + 7);
		if (!*path_p)
			return -ENOMEM;
	}
	return 0;
}

/* --- the command line --- */

struct hc_cmdline {
	struct hc_option_lists lists;
	bool discard_pool;
	const char *pid_file;
	enum hc_action action;
};

static const struct option hc_long_options[] = {
	{"config", required_argument, NULL, 'c'},
	{"discard-pool", no_argument, NULL, 'D'},
	{"debug", no_argument, NULL, 'd'},
	{"foreground", no_argument, NULL, 'f'},
	{"help", no_argument, NULL, 'h'},
	{"options", required_argument, NULL, 'o'},
	{"pid-file", required_argument, NULL, 'P'},
	{"version", no_argument, NULL, 'V'},
	{0},
};

static int hc_cmdline_option(struct hc_options *options, struct hc_cmdline *line, int c,
			     char *const *argv)
{
	switch (c) {
	case 'c':
		free(options->config_file);
		options->config_file = strdup(optarg);
		return options->config_file ? 0 : -ENOMEM;
	case 'D':
		line->discard_pool = true;
		return 0;
	case 'd':
		options->debug = true;
		options->foreground = true;
		return 0;
	case 'f':
		options->foreground = true;
		return 0;
	case 'h':
		line->action = HC_ACTION_HELP;
		return 0;
	case 'V':
		line->action = HC_ACTION_VERSION;
		return 0;
	case 'o':
		return hc_option_lists_add(&line->lists, optarg);
	case 'P':
		line->pid_file = optarg;
		return 0;
	case ':':
		hc_error(HC_OPTIONS_LOG,
			 "%s: a value is missing; hicachefs --help shows how to call it",
			 argv[optind - 1]);
		return -EINVAL;
	default:
		hc_error(HC_OPTIONS_LOG, "%s: there is no such option; hicachefs --help lists all",
			 argv[optind - 1]);
		return -EINVAL;
	}
}

int hc_options_set_operands(struct hc_options *options, int n, char *const *operands)
{
	if (n != 2) {
		hc_error(HC_OPTIONS_LOG, "%s: hicachefs [-o name=value[,...]] CACHEDIR MOUNTPOINT",
			 !n       ? "CACHEDIR and MOUNTPOINT are missing"
			 : n == 1 ? "MOUNTPOINT is missing"
				  : "more than CACHEDIR and MOUNTPOINT");
		return -EINVAL;
	}
	if (!*operands[0] || !*operands[1]) {
		hc_error(HC_OPTIONS_LOG, "CACHEDIR and MOUNTPOINT must not be empty");
		return -EINVAL;
	}
	options->cachedir = strdup(operands[0]);
	options->mountpoint = strdup(operands[1]);
	return options->cachedir && options->mountpoint ? 0 : -ENOMEM;
}

/* A daemon works in "/": what it opens later must not depend on where it was started. */
static int hc_make_absolute(char **path_p)
{
	char cwd[PATH_MAX], *text;
	size_t n;

	if (!*path_p || **path_p == '/')
		return 0;
	if (!getcwd(cwd, sizeof(cwd))) {
		int rc = -errno;

		hc_error(HC_OPTIONS_LOG,
			 "%s: the current directory is not known: %m; give an absolute path",
			 *path_p);
		return rc;
	}
	n = strlen(cwd) + strlen(*path_p) + 2;
	text = malloc(n);
	if (!text)
		return -ENOMEM;
	snprintf(text, n, "%s/%s", cwd, *path_p);
	free(*path_p);
	*path_p = text;
	return 0;
}

static int hc_options_absolute(struct hc_options *options)
{
	int rc = hc_make_absolute(&options->config_file);

	if (!rc)
		rc = hc_make_absolute(&options->cachedir);
	if (!rc)
		rc = hc_make_absolute(&options->mountpoint);
	for (uint32_t i = 0; !rc && i < options->n_disks; i++)
		rc = hc_make_absolute(&options->disks[i]);
	for (int id = 0; !rc && id < HC_OPTION_N; id++) {
		struct hc_option_value *value = &options->values[id];

		if (hc_option_descs[id].kind == HC_KIND_PATH && value->origin != HC_FROM_DEFAULT &&
		    strcmp(value->text, id == HC_OPT_pid_file ? "none" : "auto"))
			rc = hc_make_absolute(&value->text);
	}
	return rc;
}

int hc_option_lists_add(struct hc_option_lists *lists, const char *text)
{
	if (lists->n == HC_LISTS_MAX) {
		hc_error(HC_OPTIONS_LOG, "more than %d times -o; join them with commas",
			 HC_LISTS_MAX);
		return -EINVAL;
	}
	lists->texts[lists->n++] = text;
	return 0;
}

int hc_options_set_lists(struct hc_options *options, const struct hc_option_lists *lists)
{
	int rc = 0;

	/* What the lists say wins over the file, so the file is read first. */
	for (unsigned i = 0; !rc && i < lists->n; i++)
		rc = hc_list_config(lists->texts[i], &options->config_file);
	if (!rc)
		rc = hc_make_absolute(&options->config_file);
	if (!rc && options->config_file)
		rc = hc_config_load(options, options->config_file);
	for (unsigned i = 0; !rc && i < lists->n; i++)
		rc = hc_options_set_list(options, lists->texts[i]);
	return rc;
}

int hc_options_finish(struct hc_options *options)
{
	int rc = hc_options_check(options);

	return rc ? rc : hc_options_absolute(options);
}

static int hc_cmdline_apply(struct hc_options *options, const struct hc_cmdline *line)
{
	struct hc_setting_place place = {NULL, 0};
	int rc = hc_options_set_lists(options, &line->lists);

	if (!rc && line->discard_pool)
		rc = hc_options_set(options, &place, "discard_pool", NULL);
	if (!rc && line->pid_file)
		rc = hc_options_set(options, &place, "pid_file", line->pid_file);
	return rc ? rc : hc_options_finish(options);
}

int hc_options_parse(int argc, char **argv, struct hc_options **options_p, enum hc_action *action_p)
{
	struct hc_cmdline line = {.action = HC_ACTION_MOUNT};
	struct hc_options *options;
	int rc = hc_options_create(&options), c;

	if (rc)
		return rc;
	optind = 0;
	opterr = 0;
	while (!rc && line.action == HC_ACTION_MOUNT &&
	       (c = getopt_long(argc, argv, ":c:o:fdhV", hc_long_options, NULL)) != -1)
		rc = hc_cmdline_option(options, &line, c, argv);
	if (!rc && line.action == HC_ACTION_MOUNT)
		rc = hc_options_set_operands(options, argc - optind, argv + optind);
	if (!rc && line.action == HC_ACTION_MOUNT)
		rc = hc_cmdline_apply(options, &line);
	if (rc) {
		hc_options_destroy(options);
		return rc;
	}
	*options_p = options;
	*action_p = line.action;
	return 0;
}

/* What the command line said, over a fresh reading of the file. */
static int hc_options_overlay(struct hc_options *options, const struct hc_options *old)
{
	struct hc_setting_place place = {NULL, 0};
	int rc = 0;

	for (int id = 0; !rc && id < HC_OPTION_N; id++) {
		if (old->values[id].origin == HC_FROM_COMMAND_LINE &&
		    hc_option_descs[id].kind != HC_KIND_PATHS)
			rc = hc_options_set(options, &place, hc_option_descs[id].name,
					    old->values[id].text);
	}
	for (uint32_t i = 0;
	     !rc && old->values[HC_OPT_disk].origin == HC_FROM_COMMAND_LINE && i < old->n_disks;
	     i++)
		rc = hc_options_set(options, &place, "disk", old->disks[i]);
	for (uint32_t i = 0; !rc && i < old->n_mount_options; i++) {
		if (old->mount_origins[i] == HC_FROM_COMMAND_LINE) {
			hc_autofree char *text = strdup(old->mount_options[i]);
			char *value = text ? strchr(text, '=') : NULL;

			if (value)
				*value++ = 0;
			rc = text ? hc_options_set(options, &place, text, value) : -ENOMEM;
		}
	}
	return rc;
}

int hc_options_reread(const struct hc_options *old, struct hc_options **options_p)
{
	struct hc_options *options;
	int rc = hc_options_create(&options);

	if (rc)
		return rc;
	options->foreground = old->foreground;
	options->debug = old->debug;
	options->sloppy = old->sloppy;
	options->quiet = old->quiet;
	options->cachedir = strdup(old->cachedir);
	options->mountpoint = strdup(old->mountpoint);
	options->config_file = old->config_file ? strdup(old->config_file) : NULL;
	if (!options->cachedir || !options->mountpoint ||
	    (old->config_file && !options->config_file))
		rc = -ENOMEM;
	if (!rc && options->config_file)
		rc = hc_config_load(options, options->config_file);
	if (!rc)
		rc = hc_options_overlay(options, old);
	if (!rc)
		rc = hc_options_check(options);
	if (!rc)
		rc = hc_options_absolute(options);
	if (rc) {
		hc_options_destroy(options);
		return rc;
	}
	*options_p = options;
	return 0;
}

/* --- as text --- */

static void hc_print_escaped(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == ',' || *text == '\\')
			putc('\\', out);
		putc(*text, out);
	}
}

int hc_options_mount_string(const struct hc_options *options, char **text_p)
{
	const char *fsname = options->cachedir;
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return -ENOMEM;
	for (uint32_t i = 0; i < options->n_mount_options; i++) {
		if (!strncmp(options->mount_options[i], "fsname=", 7))
			fsname = options->mount_options[i] + 7;
	}
	fputs("fsname=", out);
	hc_print_escaped(out, fsname);
	for (uint32_t i = 0; i < options->n_mount_options; i++) {
		const char *option = options->mount_options[i];

		/* The front end adds default_permissions, and the subtype. */
		if (!strcmp(option, "default_permissions") || !strncmp(option, "fsname=", 7))
			continue;
		putc(',', out);
		hc_print_escaped(out, option);
	}
	if (fclose(out)) {
		free(text);
		return -ENOMEM;
	}
	*text_p = text;
	return 0;
}

void hc_size_exact(uint64_t bytes, char text[24])
{
	static const char units[] = "KMGT";
	int unit = -1;

	while (bytes && !(bytes & 1023) && unit < 3) {
		bytes >>= 10;
		unit++;
	}
	snprintf(text, 24, "%llu", (unsigned long long)bytes);
	if (unit >= 0) {
		size_t n = strlen(text);

		text[n] = units[unit];
		text[n + 1] = 0;
	}
}

static void hc_print_origin(FILE *out, const struct hc_options *options,
			    const struct hc_option_value *value, const char *preset)
{
	if (value->origin == HC_FROM_COMMAND_LINE)
		fputs("command line", out);
	else if (value->origin == HC_FROM_FILE)
		fprintf(out, "%s:%u", options->config_file ? options->config_file : "config file",
			value->line);
	else
		fputs("default", out);
	if (preset)
		fprintf(out, ", %s", preset);
	putc('\n', out);
}

static void hc_print_option(const struct hc_options *options, int id, uint64_t actual, FILE *out)
{
	const struct hc_option_desc *desc = &hc_option_descs[id];
	const struct hc_option_value *value = &options->values[id];
	char size[24], shown[4096];

	if (desc->kind == HC_KIND_ABSENT)
		return;
	if (desc->kind == HC_KIND_PATHS) {
		for (uint32_t i = 0; i < (options->n_disks ? options->n_disks : 1); i++) {
			fprintf(out, "%s = %s  # ", desc->name,
				options->n_disks ? options->disks[i] : options->cachedir);
			hc_print_origin(out, options, value, NULL);
		}
		return;
	}
	snprintf(shown, sizeof(shown), "%s", value->text);
	if (desc->kind == HC_KIND_PATH && value->origin == HC_FROM_DEFAULT &&
	    strcmp(value->text, "auto") && strcmp(value->text, "none"))
		snprintf(shown, sizeof(shown), "%s", options->cachedir);
	if (actual && desc->kind == HC_KIND_COUNT) {
		snprintf(shown, sizeof(shown), "%llu", (unsigned long long)actual);
	} else if (actual) {
		hc_size_exact(actual, size);
		snprintf(shown, sizeof(shown), "%s", size);
	}
	fprintf(out, "%s = %s  # ", desc->name, shown);
	hc_print_origin(out, options, value,
			actual && strcmp(shown, value->text) ? value->text : NULL);
}

void hc_options_print(const struct hc_options *options, const uint64_t actual[HC_OPTION_N],
		      FILE *out)
{
	for (int id = 0; id < HC_OPTION_N; id++)
		hc_print_option(options, id, actual ? actual[id] : 0, out);
	for (uint32_t i = 0; i < options->n_mount_options; i++) {
		const char *text = options->mount_options[i], *value = strchr(text, '=');

		fprintf(out, "%.*s = %s  # %s\n", (int)(value ? value - text : (long)strlen(text)),
			text, value ? value + 1 : "yes",
			options->mount_origins[i] == HC_FROM_FILE ? options->config_file
								  : "command line");
	}
	for (uint32_t i = 0; i < options->n_sections; i++) {
		const struct hc_space_section *section = &options->sections[i];
		char size[24];

		fprintf(out, "[space %s]  # %s:%u\n", section->name, options->config_file,
			section->line);
		hc_size_exact(section->quota_bytes, size);
		if (section->what & HC_SECTION_QUOTA)
			fprintf(out, "quota = %s\n", size);
		if (section->what & HC_SECTION_MAX_AGE)
			fprintf(out, "max_age = %llus\n", (unsigned long long)section->max_age_s);
		if (section->what & HC_SECTION_PRIORITY)
			fprintf(out, "priority = %u\n", section->priority);
	}
}

void hc_options_help(FILE *out)
{
	fputs("usage: hicachefs [options] CACHEDIR MOUNTPOINT\n"
	      "Mounts the KV cache that lives in CACHEDIR on MOUNTPOINT.\n\n"
	      "  -f, --foreground          stay in the foreground, log to standard error\n"
	      "  -d, --debug               as -f, and print each request\n"
	      "  -o, --options NAME=VALUE[,...]\n"
	      "                            options, see below; may be repeated\n"
	      "  -c, --config FILE         read options from FILE too (also -o config=FILE)\n"
	      "      --discard-pool        drop a pool in memory that this version cannot read\n"
	      "      --pid-file FILE       as -o pid_file=FILE\n"
	      "  -h, --help                this text\n"
	      "  -V, --version             the version\n\n"
	      "Options of -o and of the config file; K, M, G and T are powers of 1024:\n",
	      out);
	for (int id = 0; id < HC_OPTION_N; id++) {
		const struct hc_option_desc *desc = &hc_option_descs[id];

		if (desc->kind == HC_KIND_ABSENT)
			continue;
		fprintf(out, "  %s=%s  (%s)\n        %s\n", desc->name, desc->allowed, desc->preset,
			desc->help);
	}
	fputs("  allow_other, allow_root, auto_unmount, fsname=NAME, ro, nodev, nosuid, noexec, "
	      "noatime, ...\n"
	      "        FUSE's own; default_permissions always holds\n\n"
	      "SIGTERM: clean stop, writes what is not on disk. SIGHUP: reads limits from the "
	      "config file again.\n"
	      "Exit status: 0 done, 1 failed, 2 wrong options, 3 stopped but not all pages could "
	      "be written.\n",
	      out);
}
