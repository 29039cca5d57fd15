/* SPDX-License-Identifier: Apache-2.0 */
/* See service.h. */
#include "fuse/service.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "fuse/options.h"
#include "util/io.h"
#include "util/log.h"
#include "util/size.h"

/* --- pid file --- */

#define HC_PID_FILE_TRIES 100

struct hc_pid_file {
	int fd; /* locked */
	char *path;
};

/* The number in the file; 0: it is empty. -EINVAL: this is no pid file. */
static int hc_pid_file_read(int fd, uint64_t *pid_p)
{
	char text[32];
	size_t n;
	int rc = hc_pread_full(fd, text, sizeof(text) - 1, 0, &n);

	if (rc)
		return rc;
	while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
		n--;
	text[n] = 0;
	*pid_p = 0;
	return n && hc_u64_parse(text, pid_p) ? -EINVAL : 0;
}

static int hc_pid_file_refuse(const char *path, int rc, const char *why)
{
	hc_error(HC_OPTIONS_LOG, "pid file %s: %s", path, why);
	return rc;
}

static int hc_pid_file_take(int fd, const char *path)
{
	struct stat st;
	uint64_t pid;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return hc_pid_file_refuse(path, -EINVAL, "this is not a regular file");
	if (hc_pid_file_read(fd, &pid))
		return hc_pid_file_refuse(path, -EINVAL,
					  "there is something else in this file than a process "
					  "number; name another one");
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		hc_error(HC_OPTIONS_LOG,
			 "pid file %s: its daemon, process %llu, is running; stop it, or name "
			 "another file",
			 path, (unsigned long long)pid);
		return -EBUSY;
	}
	/* Its owner was just ending. */
	if (fstat(fd, &st) || !st.st_nlink)
		return -EAGAIN;
	if (pid)
		hc_info(HC_OPTIONS_LOG, "pid file %s: process %llu has left it, taken over", path,
			(unsigned long long)pid);
	return 0;
}

static int hc_pid_file_write(int fd, const char *path)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	int rc = ftruncate(fd, 0) ? -errno : hc_pwrite_full(fd, text, (size_t)n, 0);

	return rc ? hc_pid_file_refuse(path, rc, strerror(-rc)) : 0;
}

static int hc_pid_file_open(const char *path, int *fd_p)
{
	hc_autofd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
	int rc;

	if (fd < 0) {
		rc = -errno;
		return hc_pid_file_refuse(path, rc,
					  rc == -ELOOP ? "this is a symbolic link" : strerror(-rc));
	}
	rc = hc_pid_file_take(fd, path);
	if (!rc)
		rc = hc_pid_file_write(fd, path);
	if (!rc)
		*fd_p = hc_steal_fd(&fd);
	return rc;
}

int hc_pid_file_create(const char *path, struct hc_pid_file **file_p)
{
	struct hc_pid_file *file = hc_zalloc(sizeof(*file));
	int rc = -EAGAIN;

	if (!file)
		return -ENOMEM;
	file->path = strdup(path);
	if (!file->path)
		rc = -ENOMEM;
	for (int i = 0; rc == -EAGAIN && i < HC_PID_FILE_TRIES; i++)
		rc = hc_pid_file_open(path, &file->fd);
	if (rc) {
		if (rc == -EAGAIN)
			hc_pid_file_refuse(path, rc, "it comes and goes; name another file");
		free(file->path);
		free(file);
		return rc;
	}
	*file_p = file;
	return 0;
}

void hc_pid_file_destroy(struct hc_pid_file *file)
{
	if (!file)
		return;
	/* While it is locked: the next daemon's file is not ours. */
	if (unlink(file->path) && errno != ENOENT)
		hc_warn(HC_OPTIONS_LOG, "pid file %s cannot be removed: %m", file->path);
	close(file->fd);
	free(file->path);
	free(file);
}

/* --- supervisor --- */

void hc_service_forget(void)
{
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

/* A supervisor that is not there is told of once. */
static void hc_service_failed(const char *path)
{
	static atomic_bool told;
	bool first = !atomic_exchange(&told, true);

	hc_log(first ? HC_LOG_WARN : HC_LOG_DEBUG, HC_OPTIONS_LOG, "NOTIFY_SOCKET %s: %m", path);
}

void hc_service_notify(const char *message)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	hc_autofd int fd = -1;
	size_t n;

	if (!path || (*path != '/' && *path != '@') || !path[1])
		return;
	n = strlen(path);
	if (n >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		hc_service_failed(path);
		return;
	}
	memcpy(address.sun_path, path, n);
	/* An abstract name begins with a NUL and has none at its end. */
	if (*path == '@')
		address.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, message, strlen(message), MSG_NOSIGNAL | MSG_DONTWAIT,
			     (struct sockaddr *)&address,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		hc_service_failed(path);
}

uint64_t hc_service_watchdog_ns(void)
{
	const char *text = getenv("WATCHDOG_USEC"), *pid_text = getenv("WATCHDOG_PID");
	uint64_t usec, pid;

	if (!text || hc_u64_parse(text, &usec) || usec > UINT64_MAX / HC_NS_PER_US)
		return 0;
	if (pid_text && (hc_u64_parse(pid_text, &pid) || pid != (uint64_t)getpid()))
		return 0;
	return usec * HC_NS_PER_US;
}

bool hc_service_has_journal(void)
{
	const char *text = getenv("JOURNAL_STREAM");
	char ours[64];
	struct stat st;

	if (!text || fstat(STDERR_FILENO, &st))
		return false;
	snprintf(ours, sizeof(ours), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	return !strcmp(text, ours);
}
