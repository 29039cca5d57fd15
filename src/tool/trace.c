/* SPDX-License-Identifier: Apache-2.0 */
/* See trace.h. */
#include "tool/trace.h"

#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tool/tool.h"

extern char **environ;

static int hc_trace_room(struct hc_trace *trace, size_t n_ids)
{
	if (trace->n_requests == trace->requests_room) {
		size_t room = trace->requests_room ? 2 * trace->requests_room : 1024;
		void *p = realloc(trace->requests, room * sizeof(*trace->requests));

		if (!p)
			return -ENOMEM;
		trace->requests = p;
		trace->requests_room = room;
	}
	if (trace->n_ids + n_ids > trace->ids_room) {
		size_t room = 2 * (trace->n_ids + n_ids) + 1024;
		void *p = realloc(trace->ids, room * sizeof(*trace->ids));

		if (!p)
			return -ENOMEM;
		trace->ids = p;
		trace->ids_room = room;
	}
	return 0;
}

static int hc_trace_object(struct hc_trace *trace, const json_t *root, char *why, size_t room)
{
	const json_t *length = json_object_get(root, "input_length"),
		     *ids = json_object_get(root, "hash_ids");
	uint64_t n;

	if (!json_is_integer(length) || json_integer_value(length) < 0) {
		snprintf(why, room, "input_length is missing, or not a number of tokens");
		return -EINVAL;
	}
	if (!json_is_array(ids)) {
		snprintf(why, room, "hash_ids is missing, or not an array");
		return -EINVAL;
	}
	n = (uint64_t)json_integer_value(length) / HC_TRACE_BLOCK_TOKENS;
	if (n > json_array_size(ids) || n > HC_TRACE_BLOCKS_MAX) {
		snprintf(why, room, "%llu full blocks of %u tokens, but %zu hash_ids",
			 (unsigned long long)n, HC_TRACE_BLOCK_TOKENS, json_array_size(ids));
		return -EINVAL;
	}
	if (hc_trace_room(trace, n) || trace->n_ids + n > HC_TRACE_IDS_MAX)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++) {
		const json_t *id = json_array_get(ids, i);

		if (!json_is_integer(id) || json_integer_value(id) < 0) {
			snprintf(why, room, "hash_ids[%llu] is not a number from 0 to 2^63 - 1",
				 (unsigned long long)i);
			return -EINVAL;
		}
		trace->ids[trace->n_ids + i] = (uint64_t)json_integer_value(id);
	}
	trace->requests[trace->n_requests++] = (struct hc_trace_request){trace->n_ids, (uint32_t)n};
	trace->n_ids += n;
	return 0;
}

int hc_trace_line(struct hc_trace *trace, const char *line, char *why, size_t room)
{
	json_error_t error;
	json_t *root = json_loads(line, 0, &error);
	int rc;

	if (!root) {
		snprintf(why, room, "this is not JSON: %s", error.text);
		return -EINVAL;
	}
	rc = hc_trace_object(trace, root, why, room);
	json_decref(root);
	return rc;
}

static int hc_u64_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int hc_trace_count(struct hc_trace *trace)
{
	hc_autofree uint64_t *sorted = malloc((trace->n_ids + 1) * sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	if (trace->n_ids)
		memcpy(sorted, trace->ids, trace->n_ids * sizeof(*sorted));
	qsort(sorted, trace->n_ids, sizeof(*sorted), hc_u64_compare);
	trace->n_unique = 0;
	for (size_t i = 0; i < trace->n_ids; i++)
		trace->n_unique += !i || sorted[i] != sorted[i - 1];
	return 0;
}

/* The file, or what xz makes of it; *pid_p 0 without xz. */
static FILE *hc_trace_open(const char *path, pid_t *pid_p)
{
	const char *args[] = {"xz", "-dc", "--", path, NULL};
	size_t n = strlen(path);
	posix_spawn_file_actions_t actions;
	int pipe_fds[2], rc;
	struct stat st;
	FILE *in;

	*pid_p = 0;
	if (!stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode)) {
		hc_tool_error("%s: this is no trace: a file or a pipe is wanted", path);
		return NULL;
	}
	if (n < 3 || strcmp(path + n - 3, ".xz")) {
		in = fopen(path, "re");
		if (!in)
			hc_tool_error("%s: %m", path);
		return in;
	}
	if (access(path, R_OK) || pipe2(pipe_fds, O_CLOEXEC)) {
		hc_tool_error("%s: %m", path);
		return NULL;
	}
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
	rc = posix_spawnp(pid_p, "xz", &actions, NULL, (char **)args, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(pipe_fds[1]);
	if (rc) {
		hc_tool_error(
			"%s: xz cannot be started: %s; install xz-utils, or unpack the file first",
			path, strerror(rc));
		close(pipe_fds[0]);
		return NULL;
	}
	return fdopen(pipe_fds[0], "r");
}

/* Up to the newline; false at the end, with *rc_p, and when the line is too long. */
static bool hc_trace_next(FILE *in, char *line, size_t *n_p, int *rc_p)
{
	size_t n = 0;
	int c;

	while ((c = getc_unlocked(in)) != EOF && c != '\n') {
		if (n == HC_TRACE_LINE_BYTES_MAX) {
			*rc_p = -EFBIG;
			return false;
		}
		line[n++] = (char)c;
	}
	line[n] = 0;
	*n_p = n;
	return n || c == '\n';
}

static int hc_trace_one(struct hc_trace *trace, const char *line, size_t n, uint64_t *n_empty_p,
			char *why, size_t room)
{
	size_t before = trace->n_ids;
	int rc = 0;

	if (memchr(line, 0, n)) {
		snprintf(why, room, "this is no text: there is a NUL byte");
		return -EINVAL;
	}
	if (line[strspn(line, " \t\r")])
		rc = hc_trace_line(trace, line, why, room);
	if (!rc && trace->n_ids == before && ++*n_empty_p > HC_TRACE_EMPTY_MAX) {
		snprintf(why, room, "more than %u lines have no full block", HC_TRACE_EMPTY_MAX);
		rc = -EINVAL;
	}
	return rc;
}

static int hc_trace_lines(struct hc_trace *trace, const char *path, FILE *in)
{
	hc_autofree char *line = malloc(HC_TRACE_LINE_BYTES_MAX + 1);
	char why[256] = "out of memory";
	unsigned long long line_i = 0;
	uint64_t n_empty = 0;
	int rc = line ? 0 : -ENOMEM;
	size_t n;

	while (!rc && hc_trace_next(in, line, &n, &rc)) {
		line_i++;
		rc = hc_trace_one(trace, line, n, &n_empty, why, sizeof(why));
	}
	if (rc == -EFBIG) {
		line_i++;
		snprintf(why, sizeof(why),
			 "the line is longer than %u MiB; is this a trace, one JSON object a line?",
			 HC_TRACE_LINE_BYTES_MAX >> 20);
	}
	if (rc)
		hc_tool_error("%s:%llu: %s", path, line_i, why);
	else if (ferror(in))
		hc_tool_error("%s: %m", path);
	return rc ? rc : ferror(in) ? -EIO : 0;
}

int hc_trace_read(const char *path, struct hc_trace *trace_p)
{
	struct hc_trace trace = {0};
	int rc, wstatus = 0;
	pid_t pid;
	FILE *in = hc_trace_open(path, &pid);

	if (!in)
		return -EIO;
	rc = hc_trace_lines(&trace, path, in);
	fclose(in);
	if (pid && (waitpid(pid, &wstatus, 0) != pid || wstatus) && !rc) {
		hc_tool_error("%s: xz could not unpack it", path);
		rc = -EIO;
	}
	if (!rc && !trace.n_ids) {
		hc_tool_error("%s: no request has a full block of %u tokens", path,
			      HC_TRACE_BLOCK_TOKENS);
		rc = -EINVAL;
	}
	if (!rc)
		rc = hc_trace_count(&trace);
	if (rc)
		hc_trace_free(&trace);
	else
		*trace_p = trace;
	return rc;
}

void hc_trace_free(struct hc_trace *trace)
{
	free(trace->ids);
	free(trace->requests);
}
