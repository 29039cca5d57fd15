/* SPDX-License-Identifier: Apache-2.0 */
/* A command to the daemon through MOUNTPOINT/.hicache/control: one line is written, the answer is
 * read on the same fd up to its end. Its last line is "ok" or "error TEXT". */
#include "tool/tool.h"

#include <fcntl.h>
#include <limits.h>

#include "util/size.h"

/* One line: the status of a cache with thousands of spaces. */
#define HC_ANSWER_LINE_MAX (64 * HC_MIB)

struct hc_answer {
	hc_control_line_t line;
	void *arg;
	char *text; /* what has no newline yet */
	size_t n, room;
	bool ended; /* the last line was seen */
	int status;
};

void hc_control_escape(const char *text, char *escaped)
{
	static const char digits[] = "0123456789ABCDEF";

	for (; *text; text++) {
		uint8_t c = (uint8_t)*text;

		if (c > ' ' && c != '%' && c != 0x7f) {
			*escaped++ = (char)c;
			continue;
		}
		*escaped++ = '%';
		*escaped++ = digits[c >> 4];
		*escaped++ = digits[c & 15];
	}
	*escaped = 0;
}

uint64_t hc_control_u64(const char *text)
{
	uint64_t value;

	return hc_u64_parse(text, &value) ? 0 : value;
}

static int hc_control_open(const char *mount, int *fd_p)
{
	char path[PATH_MAX];
	int fd;

	if ((size_t)snprintf(path, sizeof(path), "%s/.hicache/control", mount) >= sizeof(path)) {
		hc_tool_error("%s: the path is too long", mount);
		return HC_TOOL_FAILED;
	}
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		*fd_p = fd;
		return 0;
	}
	switch (errno) {
	case EACCES:
	case EPERM:
		hc_tool_error("%s: only the user who runs the daemon may command it; try as that "
			      "user, or with sudo",
			      path);
		return HC_TOOL_FAILED;
	case EROFS:
		hc_tool_error("%s is mounted read-only (-o ro): status works, commands do not",
			      mount);
		return HC_TOOL_FAILED;
	case ENOTCONN:
	case ECONNABORTED:
		hc_tool_error(
			"%s: the daemon of this mount has died; mount it again (the next start "
			"takes the dead mount away), or umount -l %s",
			mount, mount);
		return HC_TOOL_NO_MOUNT;
	default:
		hc_tool_error("%s: %m", path);
		return HC_TOOL_FAILED;
	}
}

static void hc_answer_line(struct hc_answer *answer, char *line)
{
	char *rest = strchr(line, ' ');

	if (rest)
		*rest++ = 0;
	else
		rest = line + strlen(line);
	if (!strcmp(line, "ok")) {
		answer->ended = true;
	} else if (!strcmp(line, "error")) {
		answer->ended = true;
		answer->status = HC_TOOL_FAILED;
		hc_tool_error("%s", rest);
	} else if (answer->line) {
		answer->line(answer->arg, line, rest);
	}
}

static int hc_answer_take(struct hc_answer *answer, size_t n_new)
{
	char *line = answer->text, *end;

	answer->n += n_new;
	answer->text[answer->n] = 0;
	while ((end = memchr(line, '\n', answer->n - (size_t)(line - answer->text)))) {
		*end = 0;
		hc_answer_line(answer, line);
		line = end + 1;
	}
	answer->n -= (size_t)(line - answer->text);
	memmove(answer->text, line, answer->n);
	return 0;
}

static int hc_answer_grow(struct hc_answer *answer)
{
	size_t room = answer->room ? 2 * answer->room : 65536;
	char *text;

	if (answer->n + 1 < answer->room)
		return 0;
	text = room <= HC_ANSWER_LINE_MAX ? realloc(answer->text, room) : NULL;
	if (!text) {
		hc_tool_error("the daemon's answer is too long");
		return HC_TOOL_FAILED;
	}
	answer->text = text;
	answer->room = room;
	return 0;
}

static int hc_answer_read(struct hc_answer *answer, int fd)
{
	int status = 0;

	while (!status) {
		ssize_t n;

		status = hc_answer_grow(answer);
		if (status)
			break;
		n = read(fd, answer->text + answer->n, answer->room - 1 - answer->n);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			hc_tool_error("the daemon's answer: %m");
			return HC_TOOL_FAILED;
		}
		if (!n)
			break;
		status = hc_answer_take(answer, (size_t)n);
	}
	if (!status && !answer->ended) {
		hc_tool_error("the daemon stopped before it had answered");
		status = HC_TOOL_FAILED;
	}
	return status ? status : answer->status;
}

int hc_control_run(const char *mount, const char *command, hc_control_line_t line, void *arg)
{
	struct hc_answer answer = {.line = line, .arg = arg};
	hc_autofree char *text = NULL;
	size_t n = strlen(command) + 1;
	hc_autofd int fd = -1;
	int status = hc_control_open(mount, &fd);
	ssize_t done;

	if (status)
		return status;
	text = malloc(n + 1);
	if (!text) {
		hc_tool_error("out of memory");
		return HC_TOOL_FAILED;
	}
	snprintf(text, n + 1, "%s\n", command);
	do {
		done = write(fd, text, n);
	} while (done < 0 && errno == EINTR);
	if (done != (ssize_t)n) {
		hc_tool_error("%s/.hicache/control: %s", mount,
			      done < 0 ? strerror(errno) : "the command was not taken whole");
		return HC_TOOL_FAILED;
	}
	status = hc_answer_read(&answer, fd);
	free(answer.text);
	return status;
}
