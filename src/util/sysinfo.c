/* SPDX-License-Identifier: Apache-2.0 */
/* See sysinfo.h. */
#include "util/sysinfo.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>

#include "util/io.h"

#define HC_PROC_FILE_MAX (1u << 20)

/* The number behind "name" at the start of a line. */
static int hc_line_number(const char *text, const char *name, uint64_t *value_p)
{
	size_t n = strlen(name);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		if (*line == '\n')
			line++;
		if (!strncmp(line, name, n))
			return sscanf(line + n, " %" SCNu64, value_p) == 1 ? 0 : -EINVAL;
	}
	return -ENOENT;
}

int hc_sysinfo_memory(uint64_t *total_bytes_p, uint64_t *available_bytes_p)
{
	hc_autofree char *text = NULL;
	uint64_t total_kib, available_kib;
	size_t n;
	int rc = hc_file_read(AT_FDCWD, "/proc/meminfo", HC_PROC_FILE_MAX, &text, &n);

	if (!rc)
		rc = hc_line_number(text, "MemTotal:", &total_kib);
	if (!rc)
		rc = hc_line_number(text, "MemAvailable:", &available_kib);
	if (rc)
		return rc;
	*total_bytes_p = total_kib * 1024;
	*available_bytes_p = available_kib * 1024;
	return 0;
}

static uint64_t hc_cgroup_number(const char *dir, const char *file)
{
	hc_autofree char *text = NULL;
	char path[PATH_MAX];
	uint64_t value;
	size_t n;

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return UINT64_MAX;
	if (hc_file_read(AT_FDCWD, path, 4096, &text, &n))
		return UINT64_MAX;
	/* "max" and v1's huge default both mean no limit. */
	if (sscanf(text, "%" SCNu64, &value) != 1 || value > (uint64_t)1 << 60)
		return UINT64_MAX;
	return value;
}

static uint64_t hc_cgroup_reclaimable(const char *dir)
{
	hc_autofree char *text = NULL;
	char path[PATH_MAX];
	uint64_t active = 0, inactive = 0;
	size_t n;

	if (snprintf(path, sizeof(path), "%s/memory.stat", dir) >= (int)sizeof(path))
		return 0;
	if (hc_file_read(AT_FDCWD, path, HC_PROC_FILE_MAX, &text, &n))
		return 0;
	if (hc_line_number(text, "active_file ", &active))
		active = 0;
	if (hc_line_number(text, "inactive_file ", &inactive))
		inactive = 0;
	return active + inactive;
}

static uint64_t hc_cgroup_dir_room(const char *dir, const char *limit, const char *usage)
{
	uint64_t limit_bytes = hc_cgroup_number(dir, limit);
	uint64_t used_bytes, reclaimable;

	if (limit_bytes == UINT64_MAX)
		return UINT64_MAX;
	used_bytes = hc_cgroup_number(dir, usage);
	if (used_bytes == UINT64_MAX)
		used_bytes = 0;
	reclaimable = hc_cgroup_reclaimable(dir);
	used_bytes -= hc_min_u64(used_bytes, reclaimable);
	return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0;
}

/* Walks from the process's group up to the root of one hierarchy: each ancestor limits too. */
static uint64_t hc_cgroup_path_room(const char *root, const char *group, bool v2)
{
	char dir[PATH_MAX];
	uint64_t room = UINT64_MAX;

	if (snprintf(dir, sizeof(dir), "%s%s", root, group) >= (int)sizeof(dir))
		return room;
	for (;;) {
		char *slash;

		if (v2) {
			room = hc_min_u64(room,
					  hc_cgroup_dir_room(dir, "memory.max", "memory.current"));
			room = hc_min_u64(room,
					  hc_cgroup_dir_room(dir, "memory.high", "memory.current"));
		} else {
			room = hc_min_u64(room, hc_cgroup_dir_room(dir, "memory.limit_in_bytes",
								   "memory.usage_in_bytes"));
		}
		if (strlen(dir) <= strlen(root))
			return room;
		slash = strrchr(dir, '/');
		if (!slash)
			return room;
		*slash = 0;
	}
}

uint64_t hc_sysinfo_cgroup_room_bytes(void)
{
	hc_autofree char *text = NULL;
	uint64_t room = UINT64_MAX;
	char *save = NULL;
	size_t n;

	if (hc_file_read(AT_FDCWD, "/proc/self/cgroup", HC_PROC_FILE_MAX, &text, &n))
		return room;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!group)
			continue;
		*group++ = 0;
		controllers++;
		if (!*controllers)
			room = hc_min_u64(room, hc_cgroup_path_room("/sys/fs/cgroup", group, true));
		else if (strstr(controllers, "memory"))
			room = hc_min_u64(
				room, hc_cgroup_path_room("/sys/fs/cgroup/memory", group, false));
	}
	return room;
}

void hc_sysinfo_hugetlb(uint64_t *free_pages_p, uint64_t *page_bytes_p)
{
	hc_autofree char *text = NULL;
	uint64_t kib;
	size_t n;

	*free_pages_p = 0;
	*page_bytes_p = 0;
	if (hc_file_read(AT_FDCWD, "/proc/meminfo", HC_PROC_FILE_MAX, &text, &n))
		return;
	if (hc_line_number(text, "HugePages_Free:", free_pages_p) ||
	    hc_line_number(text, "Hugepagesize:", &kib)) {
		*free_pages_p = 0;
		return;
	}
	*page_bytes_p = kib * 1024;
}

int hc_sysinfo_cpus(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n > 0 ? (int)n : 1;
}

/* Text of /proc/TID/stat behind the command name, which may hold blanks and parentheses. */
static int hc_proc_stat(int tid, char *buf, size_t room, const char **rest_p)
{
	char path[64];
	size_t got;
	int rc;

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	hc_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -ESRCH;
	rc = hc_pread_full(fd, buf, room - 1, 0, &got);
	if (rc)
		return -ESRCH;
	buf[got] = 0;
	*rest_p = strrchr(buf, ')');
	return *rest_p ? 0 : -ESRCH;
}

int hc_sysinfo_tgid(int tid, int *tgid_p, uint64_t *start_ticks_p)
{
	hc_autofree char *text = NULL;
	char path[64], buf[1024];
	const char *rest;
	uint64_t tgid, start;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	if (hc_file_read(AT_FDCWD, path, HC_PROC_FILE_MAX, &text, &n) ||
	    hc_line_number(text, "Tgid:", &tgid))
		return -ESRCH;
	if (hc_proc_stat((int)tgid, buf, sizeof(buf), &rest))
		return -ESRCH;
	if (sscanf(rest,
		   ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
		   "%" SCNu64,
		   &start) != 1)
		return -ESRCH;
	*tgid_p = (int)tgid;
	*start_ticks_p = start;
	return 0;
}

/* Linux' flags of a task: it exits; a signal made it. The others of a process that calls exit() are
 * sent SIGKILL by the kernel. */
#define HC_TASK_EXITING  0x4u
#define HC_TASK_SIGNALED 0x400u

/* The exit code in stat is 0 for who may not see it. exe is a link that is refused to the same, and
 * only to them. */
static bool hc_exit_code_shows(int tid)
{
	char path[64], target[8];

	snprintf(path, sizeof(path), "/proc/%d/exe", tid);
	return readlink(path, target, sizeof(target)) >= 0 || errno == ENOENT;
}

bool hc_sysinfo_is_killed(int tid)
{
	char buf[1024];
	uint32_t flags, code = 0;
	const char *rest, *last;

	if (hc_proc_stat(tid, buf, sizeof(buf), &rest))
		return false;
	if (sscanf(rest, ") %*c %*d %*d %*d %*d %*d %" SCNu32, &flags) != 1 ||
	    !(flags & HC_TASK_EXITING))
		return false;
	/* Field 52, the last: as wait() has it, the signal in the lower 7 bits. */
	last = strrchr(rest, ' ');
	if (!last || sscanf(last, "%" SCNu32, &code) != 1)
		code = 0;
	if (code & 0x7f)
		return true;
	return flags & HC_TASK_SIGNALED && !hc_exit_code_shows(tid);
}
