/* SPDX-License-Identifier: Apache-2.0 */
/* What is mounted here, how its daemons do, and pools without a daemon. See doctor.h. A mount is
 * first touched by a child that may hang: what does not answer is told, and left alone. */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tool/doctor.h"
#include "tool/pools.h"
#include "util/clock.h"
#include "util/io.h"
#include "util/size.h"

#define HC_DOCTOR_ANSWER_MS 5000
#define HC_CONFIG_BYTES_MAX (4 * HC_MIB)
/* Drives are made for one to three writes of all their bytes a day. */
#define HC_DRIVE_WRITES_MAX 3.0

static uint64_t hc_get(const json_t *object, const char *name)
{
	json_int_t value = json_integer_value(json_object_get(object, name));

	return value > 0 ? (uint64_t)value : 0;
}

/* --- does it answer --- */

/* 0, -ENOTCONN and the like, -ETIMEDOUT. */
static int hc_mount_answers(const char *mount)
{
	siginfo_t info = {0};
	struct pollfd end;
	pid_t child = fork();
	int rc;

	if (child < 0)
		return -errno;
	if (!child) {
		struct statfs fs;

		_exit(statfs(mount, &fs) ? errno & 0x7f : 0);
	}
	end = (struct pollfd){.fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN};
	rc = end.fd < 0 ? -errno : poll(&end, 1, HC_DOCTOR_ANSWER_MS) ? 0 : -ETIMEDOUT;
	if (end.fd >= 0)
		close(end.fd);
	if (rc) {
		/* It may not die before its mount does: nobody waits for it. */
		kill(child, SIGKILL);
		return rc;
	}
	if (waitid(P_PID, (id_t)child, &info, WEXITED))
		return -errno;
	return info.si_code == CLD_EXITED ? -info.si_status : -EIO;
}

/* --- a daemon --- */

static void hc_doctor_disks(struct hc_doctor *doctor, const json_t *status)
{
	const json_t *disk = json_object_get(status, "disk"), *one;
	double total_bytes = 0, days = (double)hc_get(status, "uptime_s") / 86400.0, writes;
	uint64_t written = hc_get(json_object_get(status, "counters"), "backed_up_bytes");
	size_t i;

	json_array_foreach(json_object_get(disk, "disks"), i, one)
	{
		const char *dir = json_string_value(json_object_get(one, "dir"));

		total_bytes += (double)hc_get(one, "total_bytes");
		if (json_is_true(json_object_get(one, "out")))
			hc_doctor_find(doctor, HC_FINDING_FAIL, "disk",
				       "look at the kernel's log; replace the disk, then start the "
				       "daemon again",
				       "%s was taken out after %llu errors: its pages are misses",
				       dir, (unsigned long long)hc_get(one, "errors"));
		else if (hc_get(one, "errors"))
			hc_doctor_find(doctor, HC_FINDING_WARN, "disk", "look at the kernel's log",
				       "%s had %llu errors", dir,
				       (unsigned long long)hc_get(one, "errors"));
		hc_doctor_disk(doctor, dir);
	}
	/* An hour at least: a filling cache writes fast, once. */
	if (json_is_true(json_object_get(disk, "off")) || days < 1.0 / 24 || total_bytes < 1)
		return;
	writes = (double)written / total_bytes / days;
	if (writes > HC_DRIVE_WRITES_MAX)
		hc_doctor_find(doctor, HC_FINDING_WARN, "disk",
			       "set write_budget, or backup=reuse: few drives stand that for years",
			       "%.1f drive writes a day since the start", writes);
	else
		hc_doctor_find(doctor, HC_FINDING_OK, "disk", NULL,
			       "%.2f drive writes a day since the start", writes);
}

static void hc_doctor_pool(struct hc_doctor *doctor, const json_t *status)
{
	const json_t *memory = json_object_get(status, "memory");
	const char *kind = json_string_value(json_object_get(memory, "kind"));
	uint64_t size = hc_get(memory, "size_bytes"), huge = hc_get(memory, "huge_bytes"),
		 populated = hc_get(memory, "populated_bytes");
	char text[16], huge_text[16];

	doctor->pool_bytes += size;
	hc_size_format(size, text);
	hc_size_format(huge, huge_text);
	if (populated && huge < populated / 2)
		hc_doctor_find(
			doctor, HC_FINDING_WARN, "pool",
			"reserve huge pages (sysctl vm.nr_hugepages), or start the daemon soon "
			"after boot: they are worth a factor of two",
			"%s (%s), only %s of it on huge pages", text, kind, huge_text);
	else
		hc_doctor_find(doctor, HC_FINDING_OK, "pool", NULL, "%s (%s), %s on huge pages",
			       text, kind, huge_text);
	if (hc_get(memory, "quarantined_slots"))
		hc_doctor_find(doctor, HC_FINDING_WARN, "pool", NULL,
			       "%llu slots are quarantined: a process may still use them",
			       (unsigned long long)hc_get(memory, "quarantined_slots"));
}

static void hc_doctor_counters(struct hc_doctor *doctor, const json_t *status)
{
	static const struct {
		const char *name, *text, *remedy;
	} counters[] = {
		{"bad_checksum", "damaged pages were found", "hicachectl verify; look at the disk"},
		{"disk_errors", "errors of disks", "look at the kernel's log"},
		{"catalog_lost", "times the catalog was lost, and rebuilt", "look at the disk"},
		{"fs_second_writers_busy", "second writers from other pid namespaces got EBUSY",
		 "run the engines that share a space in the host's pid namespace (--pid host), or "
		 "let one of them write"},
		{"backup_failed", "pages could not be written to disk", "look at the daemon's log"},
		{"no_space_memory", "pages found no room in memory",
		 "raise pool_size, or let fewer engines hold pages"},
		{"fs_notify_dropped", "notices to the kernel were dropped", NULL},
	};
	const json_t *object = json_object_get(status, "counters");
	bool all_well = true;

	for (size_t i = 0; i < HC_ARRAY_SIZE(counters); i++) {
		uint64_t n = hc_get(object, counters[i].name);

		if (!n)
			continue;
		all_well = false;
		hc_doctor_find(doctor, HC_FINDING_WARN, "counters", counters[i].remedy,
			       "%llu %s (%s)", (unsigned long long)n, counters[i].text,
			       counters[i].name);
	}
	if (all_well)
		hc_doctor_find(doctor, HC_FINDING_OK, "counters", NULL,
			       "no damage, no errors, no full tier since the start");
}

/* Of the daemon, not of this shell. */
static void hc_doctor_process(struct hc_doctor *doctor, const json_t *status)
{
	hc_autofree char *text = NULL, *limits = NULL;
	char path[64];
	const char *line;
	unsigned long long n_files;
	uint64_t pid = hc_get(status, "pid");

	snprintf(path, sizeof(path), "/proc/%llu/oom_score_adj", (unsigned long long)pid);
	text = hc_doctor_read(doctor, path);
	if (text && strtol(text, NULL, 10) > -500)
		hc_doctor_find(doctor, HC_FINDING_WARN, "daemon",
			       "OOMScoreAdjust=-900, as in the unit hicachefs@.service",
			       "process %llu may be killed when memory is short: all engines would "
			       "lose the mount",
			       (unsigned long long)pid);
	snprintf(path, sizeof(path), "/proc/%llu/limits", (unsigned long long)pid);
	limits = hc_doctor_read(doctor, path);
	line = limits ? strstr(limits, "Max open files") : NULL;
	if (line && sscanf(line + 14, "%llu", &n_files) == 1 && n_files < 65536)
		hc_doctor_find(doctor, HC_FINDING_WARN, "daemon",
			       "LimitNOFILE=1048576, as in the unit hicachefs@.service",
			       "process %llu may have %llu open files only",
			       (unsigned long long)pid, n_files);
}

struct hc_undeclared {
	uint64_t n, n_all;
};

static void hc_undeclared_count(void *arg, const char *space, uint64_t id, const char *pattern,
				const char *kvspec)
{
	struct hc_undeclared *undeclared = arg;

	(void)space;
	(void)id;
	(void)pattern;
	undeclared->n_all++;
	undeclared->n += !strcmp(kvspec, "undeclared");
}

static void hc_doctor_series(struct hc_doctor *doctor, const char *mount)
{
	struct hc_undeclared undeclared = {0};

	if (hc_series_walk(mount, NULL, hc_undeclared_count, &undeclared))
		return;
	hc_doctor_find(doctor, HC_FINDING_OK, "series",
		       undeclared.n
			       ? "hicachectl series set: only where the library is to use pages "
				 "that came through the mount"
			       : NULL,
		       "%llu series, %llu of them undeclared", (unsigned long long)undeclared.n_all,
		       (unsigned long long)undeclared.n);
}

static void hc_doctor_passthrough(struct hc_doctor *doctor, const char *mount)
{
	static const char mark[] = "# passthrough in force: ";
	hc_autofree char *config = NULL;
	char path[PATH_MAX], *line;
	size_t n;

	snprintf(path, sizeof(path), "%s/.hicache/config", mount);
	if (hc_file_read(AT_FDCWD, path, HC_CONFIG_BYTES_MAX, &config, &n))
		return;
	line = strstr(config, mark);
	if (!line)
		return;
	line += strlen(mark);
	line[strcspn(line, "\n")] = 0;
	/* Where it was not wanted, or cannot be, there is nothing to mend. */
	if (strncmp(line, "off: ", 5) || strstr(line, "passthrough=off") ||
	    strstr(line, "disk_size=0"))
		hc_doctor_find(doctor, HC_FINDING_OK, "passthrough", NULL, "%s: %s", mount, line);
	else
		hc_doctor_find(
			doctor, HC_FINDING_WARN, "passthrough",
			"mend that, and every read of a page on disk is spared a copy through "
			"the daemon",
			"%s: %s", mount, line);
}

static void hc_doctor_daemon(struct hc_doctor *doctor, const char *mount)
{
	hc_autofree char *text = NULL;
	json_t *status;
	char path[PATH_MAX];
	size_t n;
	int rc;

	snprintf(path, sizeof(path), "%s/.hicache/status", mount);
	rc = hc_file_read(AT_FDCWD, path, 64 * HC_MIB, &text, &n);
	status = rc ? NULL : json_loads(text, 0, NULL);
	if (!status) {
		hc_doctor_find(doctor, rc == -EACCES ? HC_FINDING_WARN : HC_FINDING_FAIL, "mount",
			       rc == -EACCES ? "run doctor as the user who runs the daemon" : NULL,
			       "%s: %s", path, rc ? strerror(-rc) : "this is not JSON");
		return;
	}
	hc_doctor_find(doctor, HC_FINDING_OK, "mount", NULL, "%s answers; its cache is %s", mount,
		       json_string_value(json_object_get(status, "cachedir")));
	if (json_is_true(json_object_get(status, "rebuilding")))
		hc_doctor_find(doctor, HC_FINDING_WARN, "daemon", "wait: pages come back meanwhile",
			       "the catalog is being rebuilt from the page files");
	hc_doctor_pool(doctor, status);
	hc_doctor_disks(doctor, status);
	hc_doctor_passthrough(doctor, mount);
	hc_doctor_process(doctor, status);
	hc_doctor_counters(doctor, status);
	hc_doctor_series(doctor, mount);
	json_decref(status);
}

/* --- mounts --- */

static void hc_doctor_mount(struct hc_doctor *doctor, const char *mount)
{
	int rc = hc_mount_answers(mount);
	char remedy[PATH_MAX + 64];

	snprintf(remedy, sizeof(remedy),
		 "mount it again: the next start takes the dead mount away; or umount -l %s",
		 mount);
	if (rc == -ENOTCONN || rc == -ECONNABORTED)
		hc_doctor_find(doctor, HC_FINDING_FAIL, "mount", remedy,
			       "%s: the daemon of this mount has died", mount);
	else if (rc == -EACCES)
		hc_doctor_find(doctor, HC_FINDING_WARN, "mount",
			       "run doctor as its user, or mount it with allow_other",
			       "%s is another user's", mount);
	else if (rc == -ETIMEDOUT)
		hc_doctor_find(
			doctor, HC_FINDING_FAIL, "mount",
			"look at the daemon's log and at its disks; if it is stuck, end it and "
			"mount again",
			"%s does not answer within %d s", mount, HC_DOCTOR_ANSWER_MS / 1000);
	else if (rc)
		hc_doctor_find(doctor, HC_FINDING_FAIL, "mount", NULL, "%s: %s", mount,
			       strerror(-rc));
	else
		hc_doctor_daemon(doctor, mount);
}

static void hc_doctor_options(struct hc_doctor *doctor, const char *mount)
{
	hc_autofree char *text = hc_doctor_read(doctor, "/proc/self/mounts");
	hc_autofree char *wanted = NULL;
	const char *line;
	char options[512];

	if (!text || asprintf(&wanted, " %s fuse.hicachefs ", mount) < 0)
		return;
	line = strstr(text, wanted);
	if (!line || sscanf(line + strlen(wanted), "%511s", options) != 1)
		return;
	if (strstr(options, "allow_other"))
		hc_doctor_find(doctor, HC_FINDING_OK, "mount", NULL,
			       "%s: engines of all users may "
			       "come in (allow_other)",
			       mount);
	else
		hc_doctor_find(doctor, HC_FINDING_WARN, "mount",
			       "mount it with -o allow_other, if engines run as other users",
			       "%s is for its own user alone", mount);
	if (!strncmp(options, "ro,", 3))
		hc_doctor_find(doctor, HC_FINDING_WARN, "mount", "mount it without -o ro",
			       "%s is read-only: nothing new is cached", mount);
}

/* A bind mount of one space, as containers have it. Fields as in hc_mounts_parse. */
static void hc_doctor_bind(struct hc_doctor *doctor, char *line)
{
	char *dash = strstr(line, " - "), *fields[6], *rest = line;
	int rc;

	if (!dash || strncmp(dash + 3, "fuse.hicachefs ", 15))
		return;
	*dash = 0;
	for (size_t i = 0; i < HC_ARRAY_SIZE(fields); i++) {
		fields[i] = strsep(&rest, " ");
		if (!fields[i])
			return;
	}
	if (!strcmp(fields[3], "/"))
		return;
	hc_unescape_octal(fields[3]);
	hc_unescape_octal(fields[4]);
	rc = hc_mount_answers(fields[4]);
	if (rc == -ENOTCONN || rc == -ECONNABORTED)
		hc_doctor_find(doctor, HC_FINDING_FAIL, "mount",
			       "bind the space again on the host, below a directory that this "
			       "container has as rslave; see hicachefs(1), CONTAINERS",
			       "%s shows the space %s of a daemon that is gone", fields[4],
			       fields[3] + 1);
	else if (!rest || (!strstr(rest, "master:") && !strstr(rest, "shared:")))
		hc_doctor_find(doctor, HC_FINDING_WARN, "mount",
			       "give the container the directory above as rslave: else it keeps a "
			       "dead mount when the daemon is started anew; see hicachefs(1), "
			       "CONTAINERS",
			       "%s shows the space %s, and takes no mounts from the host",
			       fields[4], fields[3] + 1);
	else
		hc_doctor_find(doctor, HC_FINDING_OK, "mount", NULL,
			       "%s shows the space %s, and follows the host's mounts", fields[4],
			       fields[3] + 1);
}

static void hc_doctor_binds(struct hc_doctor *doctor)
{
	hc_autofree char *text = hc_doctor_read(doctor, "/proc/self/mountinfo");
	char *rest = text, *line;

	while (rest && (line = strsep(&rest, "\n")))
		hc_doctor_bind(doctor, line);
}

static void hc_doctor_left_pools(struct hc_doctor *doctor)
{
	struct hc_pool_found *found;
	size_t n;

	if (hc_pools_list(NULL, &found, &n))
		return;
	for (size_t i = 0; i < n; i++) {
		char size[16], remedy[sizeof(found->cachedir) + 128];

		if (found[i].live)
			continue;
		hc_size_format(found[i].size_bytes, size);
		snprintf(remedy, sizeof(remedy),
			 "start its daemon, which takes it over, or: hicachectl pool free %s",
			 found[i].cachedir);
		hc_doctor_find(doctor, HC_FINDING_WARN, "pool", remedy,
			       "%s of the cache %s are in memory without a daemon", size,
			       found[i].cachedir);
	}
	free(found);
}

void hc_doctor_mounts(struct hc_doctor *doctor, const char *mount_arg)
{
	char **mounts;
	size_t n;

	if (hc_mounts_list(&mounts, &n))
		return;
	for (size_t i = 0; i < n; i++) {
		if (mount_arg && strcmp(mounts[i], mount_arg))
			continue;
		hc_doctor_options(doctor, mounts[i]);
		hc_doctor_mount(doctor, mounts[i]);
	}
	if (!n)
		hc_doctor_find(doctor, HC_FINDING_OK, "mount", NULL, "no hicachefs is mounted");
	hc_mounts_free(mounts, n);
	hc_doctor_binds(doctor);
	hc_doctor_left_pools(doctor);
}
