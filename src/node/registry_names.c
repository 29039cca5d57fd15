/* SPDX-License-Identifier: Apache-2.0 */
/* CACHEDIR/names: which id is which space and series. Append-only while open; a line is durable
 * before its id is used. What is read is input: a line without its end (torn append) is cut off, a
 * damaged one is skipped with a message and costs its pages, and ids go on behind whatever it may
 * have said.
 *
 *   space <id> <name> [<uid> <gid> <octal mode> <quota bytes> <max age s> <priority>]
 *   gone <space id>                 the space's directory was removed; its series are gone with it
 *   series <id> <space id> <pattern> [<kvspec text>]
 *   next <space id> <series id>     smallest ids that are free
 *
 * A later line of the same id changes what an earlier one said (a rename, an owner, a declaration).
 * Where most lines are of the past, the file is written anew at open. */
#include <fcntl.h>
#include <sys/stat.h>

#include "model/kvspec.h"
#include "node/registry_internal.h"
#include "util/crash.h"
#include "util/io.h"
#include "util/log.h"

/* Lines of the past that are kept without a thought. */
#define HC_NAMES_SLACK 4096u

static bool must_escape(unsigned char c)
{
	return c <= ' ' || c == 0x7f || c == '{' || c == '}';
}

/* out: 5 bytes for each of name, and a NUL. */
static void escape(const char *name, char *out)
{
	for (; *name; name++) {
		unsigned char c = (unsigned char)*name;

		if (!must_escape(c)) {
			*out++ = *name;
			continue;
		}
		memcpy(out, "{x", 2);
		hc_hex_encode(&c, 1, out + 2);
		out[4] = '}';
		out += 5;
	}
	*out = 0;
}

static int unescape(const char *text, char name[HC_NAME_BYTES])
{
	size_t n = 0;

	while (*text) {
		uint8_t c = (uint8_t)*text++;

		if (c == '{') {
			if (text[0] != 'x' || hc_hex_decode(text + 1, &c, 1) || text[3] != '}' ||
			    !must_escape(c) || !c)
				return -EBADMSG;
			text += 4;
		}
		if (n + 1 >= HC_NAME_BYTES || c == '/')
			return -EBADMSG;
		name[n++] = (char)c;
	}
	name[n] = 0;
	return n && strcmp(name, "..") ? 0 : -EBADMSG;
}

static int append(struct hc_registry *registry, const char *line, size_t n)
{
	int err;

	if (registry->names_fd < 0)
		return 0;
	if (registry->names_broken)
		return -EIO;
	err = hc_pwrite_full(registry->names_fd, line, n, (off_t)registry->names_bytes);
	hc_crash_point("registry-names");
	if (!err && fdatasync(registry->names_fd))
		err = -errno;
	if (!err) {
		registry->names_bytes += n;
		return 0;
	}
	hc_error(HC_REGISTRY_COMPONENT,
		 "%s/names: cannot be written: %s: no new spaces and series until it can",
		 registry->path, strerror(-err));
	/* Half a line must not stand before the next one. */
	if (ftruncate(registry->names_fd, (off_t)registry->names_bytes))
		registry->names_broken = true;
	return err;
}

static int space_line(const struct hc_space *space, const char *name, const struct hc_owner *owner,
		      char *line, size_t room)
{
	char escaped[5 * HC_NAME_BYTES];

	escape(name, escaped);
	return snprintf(line, room, "space %u %s %u %u %o %llu %llu %u\n", space->id, escaped,
			owner->uid, owner->gid, owner->mode,
			(unsigned long long)atomic_load(&space->quota_bytes),
			(unsigned long long)atomic_load(&space->max_age_s), space->priority);
}

static int series_line(uint32_t id, uint32_t space, const char *pattern, const char *kvspec,
		       char *line, size_t room)
{
	return snprintf(line, room, "series %u %u %s%s%s\n", id, space, pattern, kvspec ? " " : "",
			kvspec ? kvspec : "");
}

int hc_names_put_space(struct hc_registry *registry, const struct hc_space *space, const char *name,
		       const struct hc_owner *owner)
{
	char line[HC_NAMES_LINE_BYTES];
	int n = space_line(space, name, owner, line, sizeof(line));

	return append(registry, line, (size_t)n);
}

int hc_names_put_gone(struct hc_registry *registry, uint32_t space)
{
	char line[32];
	int n = snprintf(line, sizeof(line), "gone %u\n", space);

	return append(registry, line, (size_t)n);
}

int hc_names_put_series(struct hc_registry *registry, uint32_t id, uint32_t space,
			const char *pattern, const char *kvspec)
{
	char line[HC_NAMES_LINE_BYTES];
	int n = series_line(id, space, pattern, kvspec, line, sizeof(line));

	hc_assert(n > 0 && (size_t)n < sizeof(line));
	return append(registry, line, (size_t)n);
}

static void note_space_id(struct hc_registry *registry, uint32_t id)
{
	if (id >= registry->next_space)
		registry->next_space = id + 1;
}

static void note_series_id(struct hc_registry *registry, uint32_t id)
{
	if (id >= registry->next_series)
		registry->next_series = id + 1;
}

/* A decimal id below the map's end, followed by a blank or the end; moves *text_p behind it. */
static int take_id(char **text_p, uint32_t *id_p)
{
	unsigned long long value;
	char *end;

	if (**text_p < '1' || **text_p > '9')
		return -EBADMSG;
	errno = 0;
	value = strtoull(*text_p, &end, 10);
	if (errno || value >= (uint64_t)HC_REGISTRY_IDS_TOP * HC_IDMAP_CHUNK ||
	    (*end && *end != ' '))
		return -EBADMSG;
	*text_p = *end ? end + 1 : end;
	*id_p = (uint32_t)value;
	return 0;
}

static int read_space(struct hc_registry *registry, char *text)
{
	unsigned long long quota = 0, max_age = 0;
	unsigned uid = 0, gid = 0, mode = 0755, priority = 0;
	char name[HC_NAME_BYTES];
	struct hc_space *space;
	char *rest, *copy;
	uint32_t id;
	int err = take_id(&text, &id), n, end = 0;

	if (err)
		return err;
	rest = strchr(text, ' ');
	if (rest)
		*rest++ = 0;
	err = unescape(text, name);
	n = rest ? sscanf(rest, "%u %u %o %llu %llu %u%n", &uid, &gid, &mode, &quota, &max_age,
			  &priority, &end)
		 : 6;
	if (err || n != 6 || (rest && rest[end]) || mode > 07777 || priority > UINT8_MAX ||
	    (id == HC_SPACE_ROOT) != !strcmp(name, "."))
		return -EBADMSG;
	note_space_id(registry, id);
	space = hc_space_at(registry, id);
	if (!space) {
		err = hc_space_new(registry, id, name, &space);
		if (err)
			return err;
		hc_space_add(registry, space);
	} else if (strcmp(space->name, name)) {
		copy = strdup(name);
		if (!copy)
			return -ENOMEM;
		free(space->name);
		space->name = copy;
	}
	atomic_store(&space->quota_bytes, quota);
	space->max_age_s = max_age;
	space->priority = (uint8_t)priority;
	space->owner = (struct hc_owner){.uid = uid, .gid = gid, .mode = mode};
	return 0;
}

static int read_gone(struct hc_registry *registry, char *text)
{
	struct hc_space *space;
	uint32_t id;

	if (take_id(&text, &id) || *text || id == HC_SPACE_ROOT)
		return -EBADMSG;
	note_space_id(registry, id);
	space = hc_space_at(registry, id);
	if (space)
		atomic_store(&space->gone, true);
	return 0;
}

static int read_series(struct hc_registry *registry, char *text)
{
	struct hc_series *series;
	struct hc_space *space;
	uint32_t id, space_id;
	char *kvspec, *copy;
	int err;

	if (take_id(&text, &id) || take_id(&text, &space_id))
		return -EBADMSG;
	note_series_id(registry, id);
	space = hc_space_at(registry, space_id);
	kvspec = strchr(text, ' ');
	if (kvspec)
		*kvspec++ = 0;
	if (!space || strlen(text) >= HC_PATTERN_BYTES ||
	    (kvspec && strlen(kvspec) >= HC_KVSPEC_TEXT_BYTES))
		return -EBADMSG;
	series = hc_idmap_get(&registry->series, id);
	if (series) {
		if (series->space != space || strcmp(series->pattern, text) || !kvspec)
			return -EBADMSG;
		copy = strdup(kvspec);
		if (!copy)
			return -ENOMEM;
		free(series->kvspec);
		series->kvspec = copy;
		return 0;
	}
	if (hc_series_find(registry, space, text))
		return -EBADMSG;
	err = hc_series_new(registry, space, id, text, kvspec, &series);
	if (err)
		return err == -ENOMEM ? err : -EBADMSG;
	hc_series_add_locked(registry, series);
	return 0;
}

static int read_next(struct hc_registry *registry, char *text)
{
	uint32_t space, series;

	if (take_id(&text, &space) || take_id(&text, &series) || *text)
		return -EBADMSG;
	note_space_id(registry, space - 1);
	note_series_id(registry, series - 1);
	return 0;
}

static int read_line(struct hc_registry *registry, char *line)
{
	if (!strncmp(line, "space ", 6))
		return read_space(registry, line + 6);
	if (!strncmp(line, "series ", 7))
		return read_series(registry, line + 7);
	if (!strncmp(line, "gone ", 5))
		return read_gone(registry, line + 5);
	if (!strncmp(line, "next ", 5))
		return read_next(registry, line + 5);
	return -EBADMSG;
}

static int read_text(struct hc_registry *registry, char *text, size_t n, uint32_t *n_lines_p)
{
	uint32_t n_lines = 0, n_bad = 0;
	char *line = text, *end;

	while ((end = memchr(line, '\n', n - (size_t)(line - text)))) {
		int err = memchr(line, 0, (size_t)(end - line)) ? -EBADMSG : 0;

		*end = 0;
		n_lines++;
		if (!err)
			err = read_line(registry, line);
		if (err == -ENOMEM)
			return err;
		if (err && !n_bad++)
			hc_warn(HC_REGISTRY_COMPONENT,
				"%s/names: line %u is damaged: pages of its series are misses",
				registry->path, n_lines);
		line = end + 1;
	}
	registry->names_bytes = (uint64_t)(line - text);
	registry->next_space += n_bad;
	registry->next_series += n_bad;
	if (n_bad > 1)
		hc_warn(HC_REGISTRY_COMPONENT, "%s/names: %u lines are damaged", registry->path,
			n_bad);
	if (registry->names_bytes < n)
		hc_warn(HC_REGISTRY_COMPONENT, "%s/names: half a line at the end is cut off",
			registry->path);
	/* Damaged lines stay for whoever wants to look. */
	*n_lines_p = n_bad ? 0 : n_lines;
	return 0;
}

/* Only what is live. */
static int write_live(struct hc_registry *registry, FILE *out, uint32_t *n_p)
{
	char line[HC_NAMES_LINE_BYTES];
	uint32_t n = 1;

	if (fprintf(out, "next %u %u\n", registry->next_space, registry->next_series) < 0)
		return -EIO;
	for (uint32_t id = 1; id < registry->next_space; id++) {
		struct hc_space *space = hc_space_at(registry, id);

		if (!space || atomic_load(&space->gone))
			continue;
		n++;
		space_line(space, space->name, &space->owner, line, sizeof(line));
		if (fputs(line, out) < 0)
			return -EIO;
		for (struct hc_series *series = space->series; series; series = series->next) {
			n++;
			series_line(series->link.id, id, series->pattern, series->kvspec, line,
				    sizeof(line));
			if (fputs(line, out) < 0)
				return -EIO;
		}
	}
	*n_p = n;
	return 0;
}

static int compact(struct hc_registry *registry, uint32_t n_lines)
{
	char *text = NULL;
	size_t n = 0;
	uint32_t n_live = 0;
	FILE *out = open_memstream(&text, &n);
	int err;

	if (!out)
		return -ENOMEM;
	err = write_live(registry, out, &n_live);
	if (fclose(out))
		err = -ENOMEM;
	if (!err && n_lines > 2 * n_live + HC_NAMES_SLACK) {
		err = hc_file_replace(registry->dir_fd, "names", text, n, 0600);
		if (!err)
			registry->names_bytes = n;
	}
	free(text);
	return err;
}

static int open_names(struct hc_registry *registry)
{
	registry->names_fd = openat(registry->dir_fd, "names", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (registry->names_fd < 0)
		return -errno;
	return ftruncate(registry->names_fd, (off_t)registry->names_bytes) ? -errno : 0;
}

int hc_names_load(struct hc_registry *registry)
{
	hc_autofree char *text = NULL;
	uint32_t n_lines = 0;
	size_t n = 0;
	int err = hc_file_read(registry->dir_fd, "names", HC_NAMES_BYTES_MAX, &text, &n);

	registry->next_space = HC_SPACE_ROOT + 1;
	registry->next_series = 1;
	if (!err)
		err = read_text(registry, text, n, &n_lines);
	if (!err && n_lines > HC_NAMES_SLACK)
		err = compact(registry, n_lines);
	if (!err)
		err = open_names(registry);
	if (!err && !hc_space_at(registry, HC_SPACE_ROOT))
		err = -EBADMSG;
	if (err)
		hc_error(
			HC_REGISTRY_COMPONENT,
			"%s/names cannot be used: %s: without it nobody knows which page is which: "
			"restore it, or empty the directory to begin anew",
			registry->path, strerror(-err));
	return err;
}
