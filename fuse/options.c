/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options and their values. See options.h; the command line is in cmdline.c. */
#include "fuse/options.h"

#include <limits.h>

#include "util/log.h"
#include "util/size.h"

#define HC_OPTION_DESC(id, kind, min, max, allowed, preset, live, help) \
	[HC_OPT_##id] = {#id, HC_KIND_##kind, min, max, allowed, preset, live, help},
const struct hc_option_desc hc_option_descs[HC_OPTION_N] = {HC_OPTIONS(HC_OPTION_DESC)};

/* libfuse's and the kernel's; those of mount(8) and fstab are taken and dropped. */
static const struct {
	const char *name;
	bool has_value;
	bool dropped;
} hc_mount_names[] = {
	{"allow_other"},
	{"allow_root"},
	{"auto_unmount"},
	{"default_permissions"},
	{"fsname", true},
	{"ro"},
	{"rw"},
	{"dev"},
	{"nodev"},
	{"suid"},
	{"nosuid"},
	{"exec"},
	{"noexec"},
	{"atime"},
	{"noatime"},
	{"diratime"},
	{"nodiratime"},
	{"relatime"},
	{"norelatime"},
	{"sync"},
	{"async"},
	{"dirsync"},
	{"defaults", .dropped = true},
	{"auto", .dropped = true},
	{"noauto", .dropped = true},
	{"user", .dropped = true}, /* also user=NAME, from mount(8) */
	{"nouser", .dropped = true},
	{"users", .dropped = true},
	{"owner", .dropped = true},
	{"noowner", .dropped = true},
	{"group", .dropped = true},
	{"nogroup", .dropped = true},
	{"nofail", .dropped = true},
	{"_netdev", .dropped = true},
	{"_rnetdev", .dropped = true},
	{"silent", .dropped = true},
	{"loud", .dropped = true},
	{"strictatime", .dropped = true},
	{"nostrictatime", .dropped = true},
	{"lazytime", .dropped = true},
	{"nolazytime", .dropped = true},
};

/* --- messages --- */

static void hc_where(const struct hc_setting_place *place, const char *name, const char *value,
		     char *text, size_t room)
{
	if (place->file)
		snprintf(text, room, "%s:%u: %s%s%s", place->file, place->line, name,
			 value ? " = " : "", value ? value : "");
	else
		snprintf(text, room, "-o %s%s%s", name, value ? "=" : "", value ? value : "");
}

static unsigned hc_distance(const char *a, const char *b)
{
	unsigned row[33], n = (unsigned)strlen(b);

	if (strlen(a) > 32 || n > 32)
		return UINT_MAX;
	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 1; a[i - 1]; i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (unsigned j = 1; j <= n; j++) {
			unsigned best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[n];
}

/* The option that was probably meant, or NULL. */
static const char *hc_option_near(const char *name)
{
	const char *near = NULL;
	unsigned best = 3;

	for (size_t i = 0; i < HC_OPTION_N + HC_ARRAY_SIZE(hc_mount_names); i++) {
		const char *candidate = i < HC_OPTION_N ? hc_option_descs[i].name
							: hc_mount_names[i - HC_OPTION_N].name;
		unsigned distance = hc_distance(name, candidate);

		if (distance < best && distance < strlen(candidate)) {
			best = distance;
			near = candidate;
		}
	}
	return near;
}

/* What a section of a space sets, and was probably meant, or NULL. */
static const char *hc_section_near(const char *name)
{
	static const char *const names[] = {"quota", "max_age", "priority"};

	for (size_t i = 0; i < HC_ARRAY_SIZE(names); i++)
		if (hc_distance(name, names[i]) < 3)
			return names[i];
	return NULL;
}

static int hc_refuse_unknown(const struct hc_setting_place *place, const char *name,
			     const char *value)
{
	const char *near = hc_option_near(name), *section = hc_section_near(name);
	char where[512];

	hc_where(place, name, value, where, sizeof(where));
	if (section && (!near || hc_distance(name, section) <= hc_distance(name, near)))
		hc_error(HC_OPTIONS_LOG,
			 "%s: there is no option \"%s\"; \"%s\" is set for each space: in the "
			 "config file below a line [space NAME]; hicachefs --help lists all",
			 where, name, section);
	else if (near)
		hc_error(HC_OPTIONS_LOG,
			 "%s: there is no option \"%s\"; did you mean \"%s\"? hicachefs --help "
			 "lists all",
			 where, name, near);
	else
		hc_error(HC_OPTIONS_LOG,
			 "%s: there is no option \"%s\"; hicachefs --help lists all", where, name);
	return -EINVAL;
}

/* --- values --- */

static int hc_bool_parse(const char *text, uint64_t *number_p)
{
	static const char *const words[] = {"no", "yes", "off", "on", "false", "true", "0", "1"};

	for (size_t i = 0; i < HC_ARRAY_SIZE(words); i++) {
		if (!strcmp(text, words[i])) {
			*number_p = i & 1;
			return 0;
		}
	}
	return -EINVAL;
}

static int hc_choice_parse(const char *allowed, const char *text, uint64_t *number_p)
{
	size_t n = strlen(text);
	uint64_t i = 0;

	for (const char *word = allowed; word; i++) {
		const char *bar = strchr(word, '|');
		size_t n_word = bar ? (size_t)(bar - word) : strlen(word);

		if (n && n == n_word && !memcmp(word, text, n)) {
			*number_p = i;
			return 0;
		}
		word = bar ? bar + 1 : NULL;
	}
	return -EINVAL;
}

static int hc_mode_parse(const char *text, uint64_t *number_p)
{
	size_t n = strlen(text);
	uint64_t mode = 0;

	if (!n || n > 5 || strspn(text, "01234567") != n)
		return -EINVAL;
	while (*text)
		mode = mode * 8 + (uint64_t)(*text++ - '0');
	*number_p = mode;
	return 0;
}

static int hc_numa_parse(const char *text, uint64_t *number_p)
{
	if (!strcmp(text, "auto") || !strcmp(text, "interleave"))
		*number_p = HC_NUMA_AUTO;
	else if (!strcmp(text, "off"))
		*number_p = HC_NUMA_OFF;
	else
		return hc_u64_parse(text, number_p);
	return 0;
}

static int hc_value_number(const struct hc_option_desc *desc, const char *text,
			   struct hc_option_value *value)
{
	switch (desc->kind) {
	case HC_KIND_SHARE:
		value->is_percent = strchr(text, '%') != NULL;
		if (value->is_percent)
			return hc_percent_parse(text, &value->ppm);
		return hc_size_parse(text, &value->number);
	case HC_KIND_SIZE:
		return hc_size_parse(text, &value->number);
	case HC_KIND_PERCENT:
		value->is_percent = true;
		return hc_percent_parse(text, &value->ppm);
	case HC_KIND_BOOL:
		return hc_bool_parse(text, &value->number);
	case HC_KIND_CHOICE:
		return hc_choice_parse(desc->allowed, text, &value->number);
	case HC_KIND_MODE:
		return hc_mode_parse(text, &value->number);
	case HC_KIND_COUNT:
		if (!desc->min && !strcmp(text, "auto"))
			return 0;
		return hc_u64_parse(text, &value->number);
	case HC_KIND_TIME:
		return hc_duration_parse(text, &value->number);
	case HC_KIND_NUMA:
		return hc_numa_parse(text, &value->number);
	default:
		return *text ? 0 : -EINVAL;
	}
}

static bool hc_value_in_bounds(const struct hc_option_desc *desc,
			       const struct hc_option_value *value)
{
	uint64_t number = value->is_percent ? value->ppm : value->number;

	switch (desc->kind) {
	case HC_KIND_NUMA:
		return number >= HC_NUMA_AUTO || number <= (uint64_t)desc->max;
	case HC_KIND_SIZE:
	case HC_KIND_SHARE:
	case HC_KIND_PERCENT:
	case HC_KIND_MODE:
	case HC_KIND_COUNT:
	case HC_KIND_TIME:
		return number >= (uint64_t)desc->min && number <= (uint64_t)desc->max;
	default:
		return true;
	}
}

/* What a good value looks like. */
static void hc_value_wanted(const struct hc_option_desc *desc, char *text, size_t room)
{
	char min[24], max[24];

	hc_size_exact((uint64_t)desc->min, min);
	hc_size_exact((uint64_t)desc->max, max);
	switch (desc->kind) {
	case HC_KIND_SHARE:
		snprintf(text, room,
			 "a size such as 64G (K, M, G and T are powers of 1024) or a percentage "
			 "such as 10%%%s",
			 desc->min ? ", above 0" : "");
		break;
	case HC_KIND_SIZE:
		if (desc->max == INT64_MAX)
			snprintf(text, room,
				 "a size such as 64G (K, M, G and T are powers of 1024)");
		else
			snprintf(text, room, "a size from %s to %s", min, max);
		break;
	case HC_KIND_PERCENT:
		snprintf(text, room, "a percentage from %u%% to %u%%",
			 (unsigned)(desc->min / 10000), (unsigned)(desc->max / 10000));
		break;
	case HC_KIND_BOOL:
		snprintf(text, room, "yes or no");
		break;
	case HC_KIND_CHOICE:
		snprintf(text, room, "one of %s", desc->allowed);
		break;
	case HC_KIND_MODE:
		snprintf(text, room, "octal permission bits such as 0755");
		break;
	case HC_KIND_COUNT:
		snprintf(text, room, "%sa number from %lld to %lld", desc->min ? "" : "auto or ",
			 desc->min ? (long long)desc->min : 1LL, (long long)desc->max);
		break;
	case HC_KIND_TIME:
		snprintf(text, room, "seconds, or a time such as 90s, 15m or 2h, up to %lld s",
			 (long long)desc->max);
		break;
	case HC_KIND_NUMA:
		snprintf(text, room, "auto, interleave, off or the number of a node");
		break;
	default:
		snprintf(text, room, "a path");
		break;
	}
}

static int hc_value_parse(const struct hc_setting_place *place, const struct hc_option_desc *desc,
			  const char *text, struct hc_option_value *value)
{
	int rc = hc_value_number(desc, text, value);
	char where[512], wanted[256];

	if (!rc && hc_value_in_bounds(desc, value))
		return 0;
	hc_where(place, desc->name, text, where, sizeof(where));
	hc_value_wanted(desc, wanted, sizeof(wanted));
	hc_error(HC_OPTIONS_LOG, "%s: %s wants %s", where, desc->name, wanted);
	return -EINVAL;
}

/* --- settings --- */

static enum hc_origin hc_place_origin(const struct hc_setting_place *place)
{
	return place->file ? HC_FROM_FILE : HC_FROM_COMMAND_LINE;
}

static int hc_disk_add(struct hc_options *options, const struct hc_setting_place *place,
		       const char *path)
{
	struct hc_option_value *value = &options->values[HC_OPT_disk];
	enum hc_origin origin = hc_place_origin(place);
	char *copy;

	if (value->origin > origin)
		return 0;
	/* The disks of the command line stand for those of the file, they do not join them. */
	if (value->origin < origin) {
		while (options->n_disks)
			free(options->disks[--options->n_disks]);
	}
	if (options->n_disks == HC_DISKS_MAX) {
		hc_error(HC_OPTIONS_LOG, "disk %s: more than %u data directories", path,
			 HC_DISKS_MAX);
		return -EINVAL;
	}
	copy = strdup(path);
	if (!copy)
		return -ENOMEM;
	options->disks[options->n_disks++] = copy;
	value->origin = origin;
	value->line = place->line;
	return 0;
}

static int hc_set_known(struct hc_options *options, const struct hc_setting_place *place,
			enum hc_option id, const char *text)
{
	const struct hc_option_desc *desc = &hc_option_descs[id];
	struct hc_option_value *old = &options->values[id];
	struct hc_option_value value = {.origin = hc_place_origin(place), .line = place->line};
	char where[512];
	int rc;

	hc_where(place, desc->name, text, where, sizeof(where));
	if (desc->kind == HC_KIND_ABSENT) {
		hc_error(HC_OPTIONS_LOG, "%s: %s is not built in this version; leave it out", where,
			 desc->name);
		return -EINVAL;
	}
	if (!text && desc->kind == HC_KIND_BOOL)
		text = "yes";
	if (!text) {
		char wanted[256];

		hc_value_wanted(desc, wanted, sizeof(wanted));
		hc_error(HC_OPTIONS_LOG, "%s: a value is missing; %s wants %s", where, desc->name,
			 wanted);
		return -EINVAL;
	}
	rc = hc_value_parse(place, desc, text, &value);
	if (rc)
		return rc;
	if (place->file && old->origin == HC_FROM_FILE && id != HC_OPT_disk) {
		hc_error(HC_OPTIONS_LOG, "%s: %s stands in line %u already; remove one of the two",
			 where, desc->name, old->line);
		return -EINVAL;
	}
	if (desc->kind == HC_KIND_PATHS)
		return hc_disk_add(options, place, text);
	value.text = strdup(text);
	if (!value.text)
		return -ENOMEM;
	free(old->text);
	*old = value;
	return 0;
}

static int hc_mount_option_add(struct hc_options *options, const struct hc_setting_place *place,
			       const char *name, const char *value)
{
	size_t n = strlen(name) + (value ? strlen(value) : 0) + 2;
	char *text;

	if (options->n_mount_options == HC_MOUNT_OPTIONS_MAX) {
		hc_error(HC_OPTIONS_LOG, "%s: more than %u mount options", name,
			 HC_MOUNT_OPTIONS_MAX);
		return -EINVAL;
	}
	text = malloc(n);
	if (!text)
		return -ENOMEM;
	snprintf(text, n, "%s%s%s", name, value ? "=" : "", value ? value : "");
	options->mount_origins[options->n_mount_options] = hc_place_origin(place);
	options->mount_options[options->n_mount_options++] = text;
	return 0;
}

/* -ENOENT: not one of them. */
static int hc_set_mount_option(struct hc_options *options, const struct hc_setting_place *place,
			       const char *name, const char *value)
{
	char where[512];
	uint64_t on = 1;

	if (!strncmp(name, "x-", 2) || !strncmp(name, "X-", 2) || !strcmp(name, "comment"))
		return 0;
	if (!strcmp(name, "remount")) {
		hc_error(HC_OPTIONS_LOG,
			 "remount: a mount is not changed in place; limits change with the config "
			 "file and SIGHUP (systemctl reload), anything else with umount and mount");
		return -EINVAL;
	}
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_mount_names); i++) {
		if (strcmp(name, hc_mount_names[i].name))
			continue;
		if (hc_mount_names[i].dropped)
			return 0;
		hc_where(place, name, value, where, sizeof(where));
		if (hc_mount_names[i].has_value && (!value || !*value)) {
			hc_error(HC_OPTIONS_LOG, "%s: a value is missing", where);
			return -EINVAL;
		}
		if (!hc_mount_names[i].has_value && value && hc_bool_parse(value, &on)) {
			hc_error(HC_OPTIONS_LOG, "%s: %s takes no value", where, name);
			return -EINVAL;
		}
		if (!on)
			return 0;
		return hc_mount_option_add(options, place, name,
					   hc_mount_names[i].has_value ? value : NULL);
	}
	return -ENOENT;
}

int hc_options_set(struct hc_options *options, const struct hc_setting_place *place,
		   const char *name, const char *value)
{
	int rc;

	for (int id = 0; id < HC_OPTION_N; id++) {
		if (!strcmp(name, hc_option_descs[id].name))
			return hc_set_known(options, place, (enum hc_option)id, value);
	}
	rc = hc_set_mount_option(options, place, name, value);
	if (rc == -ENOENT && options->sloppy && !place->file) {
		hc_warn(HC_OPTIONS_LOG, "-o %s: there is no such option, ignored (-s)", name);
		return 0;
	}
	return rc == -ENOENT ? hc_refuse_unknown(place, name, value) : rc;
}

int hc_section_set(struct hc_space_section *section, const char *name, const char *value, char *why,
		   size_t room)
{
	uint64_t number;

	if (!strcmp(name, "quota")) {
		if (hc_size_parse(value, &section->quota_bytes)) {
			snprintf(why, room, "quota wants a size such as 200G, or 0 for none");
			return -EINVAL;
		}
		section->what |= HC_SECTION_QUOTA;
	} else if (!strcmp(name, "max_age")) {
		if (hc_duration_parse(value, &section->max_age_s)) {
			snprintf(why, room,
				 "max_age wants a time such as 90s, 12h or 7d, or 0 for none");
			return -EINVAL;
		}
		section->what |= HC_SECTION_MAX_AGE;
	} else if (!strcmp(name, "priority")) {
		if (hc_u64_parse(value, &number) || number > UINT8_MAX) {
			snprintf(why, room,
				 "priority wants a number from 0 to 255; what is higher stays "
				 "longer");
			return -EINVAL;
		}
		section->priority = (uint8_t)number;
		section->what |= HC_SECTION_PRIORITY;
	} else {
		snprintf(why, room,
			 "a space has no setting \"%s\"; it has quota, max_age and priority", name);
		return -EINVAL;
	}
	return 0;
}

/* --- the object --- */

static int hc_options_preset(struct hc_options *options)
{
	for (int id = 0; id < HC_OPTION_N; id++) {
		const struct hc_option_desc *desc = &hc_option_descs[id];
		struct hc_option_value *value = &options->values[id];

		if (desc->kind == HC_KIND_ABSENT)
			continue;
		if (desc->kind != HC_KIND_PATH && desc->kind != HC_KIND_PATHS &&
		    hc_value_number(desc, desc->preset, value))
			hc_assert(!"the default of an option is good");
		value->text = strdup(desc->preset);
		if (!value->text)
			return -ENOMEM;
	}
	return 0;
}

int hc_options_create(struct hc_options **options_p)
{
	struct hc_options *options = hc_zalloc(sizeof(*options));

	if (!options)
		return -ENOMEM;
	if (hc_options_preset(options)) {
		hc_options_destroy(options);
		return -ENOMEM;
	}
	*options_p = options;
	return 0;
}

void hc_options_destroy(struct hc_options *options)
{
	if (!options)
		return;
	for (int id = 0; id < HC_OPTION_N; id++)
		free(options->values[id].text);
	while (options->n_disks)
		free(options->disks[--options->n_disks]);
	while (options->n_mount_options)
		free(options->mount_options[--options->n_mount_options]);
	free(options->sections);
	free(options->config_file);
	free(options->cachedir);
	free(options->mountpoint);
	free(options);
}

static bool hc_mount_option_given(const struct hc_options *options, const char *name)
{
	size_t n = strlen(name);

	for (uint32_t i = 0; i < options->n_mount_options; i++) {
		const char *text = options->mount_options[i];

		if (!strncmp(text, name, n) && (!text[n] || text[n] == '='))
			return true;
	}
	return false;
}

int hc_options_check(const struct hc_options *options)
{
	const struct hc_option_value *high = hc_option(options, HC_OPT_high);
	const struct hc_option_value *low = hc_option(options, HC_OPT_low);
	const struct hc_option_value *disk = hc_option(options, HC_OPT_disk_size);
	const struct hc_option_value *page = hc_option(options, HC_OPT_max_page_bytes);

	if (low->ppm > high->ppm) {
		hc_error(HC_OPTIONS_LOG,
			 "low (%s) is above high (%s): eviction would never end; low must be the "
			 "smaller one",
			 low->text, high->text);
		return -EINVAL;
	}
	if (!disk->is_percent && disk->number && disk->number <= page->number) {
		hc_error(HC_OPTIONS_LOG,
			 "disk_size (%s) leaves no room beside one page of max_page_bytes (%s): "
			 "give more, 0 for "
			 "memory only, or a smaller max_page_bytes",
			 disk->text, page->text);
		return -EINVAL;
	}
	if (hc_mount_option_given(options, "allow_other") &&
	    hc_mount_option_given(options, "allow_root")) {
		hc_error(
			HC_OPTIONS_LOG,
			"allow_other and allow_root exclude each other; allow_other includes root");
		return -EINVAL;
	}
	return 0;
}
