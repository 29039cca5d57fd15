/* SPDX-License-Identifier: Apache-2.0 */
/* The config file: lines `name = value`, sections `[space NAME]`, comments from `#` at the start of
 * a line or after a blank. Every message names file and line. See options.h. */
#include "fuse/options.h"

#include <fcntl.h>

#include "util/io.h"
#include "util/log.h"

#define HC_CONFIG_BYTES_MAX HC_MIB

struct hc_config_parser {
	struct hc_options *options;
	struct hc_setting_place place;
	bool in_section; /* the last of options->sections */
};

static bool hc_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Takes blanks off both ends, in place. */
static char *hc_trim(char *text)
{
	size_t n;

	while (hc_is_blank(*text))
		text++;
	n = strlen(text);
	while (n && hc_is_blank(text[n - 1]))
		n--;
	text[n] = 0;
	return text;
}

static void hc_cut_comment(char *line)
{
	for (char *p = line; *p; p++) {
		if (*p == '#' && (p == line || hc_is_blank(p[-1]))) {
			*p = 0;
			return;
		}
	}
}

static int hc_config_refuse(const struct hc_config_parser *parser, const char *line,
			    const char *why)
{
	hc_error(HC_OPTIONS_LOG, "%s:%u: %s: %s", parser->place.file, parser->place.line, line,
		 why);
	return -EINVAL;
}

static int hc_section_begin(struct hc_config_parser *parser, const char *line, const char *name)
{
	struct hc_options *options = parser->options;
	struct hc_space_section *sections;
	char why[64];

	if (!*name || strlen(name) >= sizeof(sections->name) || strchr(name, '/') ||
	    !strcmp(name, "..") || !strcmp(name, ".hicache"))
		return hc_config_refuse(parser, line,
					"a space is a top-level directory of the mount: a name "
					"without \"/\", or \".\" for "
					"the files at the root");
	for (uint32_t i = 0; i < options->n_sections; i++) {
		if (strcmp(options->sections[i].name, name))
			continue;
		snprintf(why, sizeof(why), "this space has a section in line %u already",
			 options->sections[i].line);
		return hc_config_refuse(parser, line, why);
	}
	if (options->n_sections == HC_SPACE_SECTIONS_MAX)
		return hc_config_refuse(parser, line, "too many sections");
	sections = realloc(options->sections, (options->n_sections + 1) * sizeof(*sections));
	if (!sections)
		return -ENOMEM;
	options->sections = sections;
	sections += options->n_sections++;
	memset(sections, 0, sizeof(*sections));
	memcpy(sections->name, name, strlen(name) + 1);
	sections->line = parser->place.line;
	parser->in_section = true;
	return 0;
}

static int hc_config_header(struct hc_config_parser *parser, char *line)
{
	size_t n = strlen(line);
	char copy[320];

	snprintf(copy, sizeof(copy), "%s", line);
	if (line[n - 1] != ']')
		return hc_config_refuse(parser, copy, "\"]\" is missing at the end of the line");
	line[n - 1] = 0;
	line = hc_trim(line + 1);
	if (strncmp(line, "space", 5) || !hc_is_blank(line[5]))
		return hc_config_refuse(parser, copy, "a section is [space NAME]");
	return hc_section_begin(parser, copy, hc_trim(line + 5));
}

static int hc_config_line(struct hc_config_parser *parser, char *line)
{
	char *value, *name, why[128];
	int rc;

	hc_cut_comment(line);
	name = hc_trim(line);
	if (!*name)
		return 0;
	if (*name == '[')
		return hc_config_header(parser, name);
	value = strchr(name, '=');
	if (value) {
		*value = 0;
		value = hc_trim(value + 1);
		name = hc_trim(name);
	}
	if (!*name)
		return hc_config_refuse(parser, "=", "a name is missing; lines are name = value");
	if (!parser->in_section)
		return hc_options_set(parser->options, &parser->place, name, value);
	if (!value)
		return hc_config_refuse(parser, name, "a value is missing; lines are name = value");
	rc = hc_section_set(&parser->options->sections[parser->options->n_sections - 1], name,
			    value, why, sizeof(why));
	return rc ? hc_config_refuse(parser, name, why) : 0;
}

int hc_config_parse(struct hc_options *options, const char *name, const char *text, size_t n)
{
	struct hc_config_parser parser = {.options = options, .place = {name, 0}};
	hc_autofree char *copy = NULL;
	char *line, *next;

	if (memchr(text, 0, n)) {
		hc_error(HC_OPTIONS_LOG, "%s: this is not a text file: it has a NUL byte", name);
		return -EINVAL;
	}
	copy = malloc(n + 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, n);
	copy[n] = 0;
	for (line = copy; line; line = next) {
		int rc;

		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		parser.place.line++;
		rc = hc_config_line(&parser, line);
		if (rc)
			return rc;
	}
	return 0;
}

int hc_config_load(struct hc_options *options, const char *path)
{
	hc_autofree char *text = NULL;
	size_t n;
	int rc = hc_file_read(AT_FDCWD, path, HC_CONFIG_BYTES_MAX, &text, &n);

	if (rc) {
		hc_error(HC_OPTIONS_LOG, "%s: the config file cannot be read: %s", path,
			 strerror(-rc));
		return rc == -ENOMEM ? rc : -EINVAL;
	}
	return hc_config_parse(options, path, text, n);
}
