/* SPDX-License-Identifier: Apache-2.0 */
/* See doctor.h: the command, how findings are shown, and the directory of a cache. */
#include "tool/doctor.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "tool/pools.h"
#include "util/io.h"
#include "util/size.h"

#define HC_DOCTOR_BYTES_MAX HC_MIB

static const char *const hc_finding_words[HC_FINDING_N] = {"ok", "warn", "fail"};

void hc_doctor_find(struct hc_doctor *doctor, enum hc_finding level, const char *about,
		    const char *remedy, const char *format, ...)
{
	json_t *one = json_object();
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	json_object_set_new(one, "level", json_string(hc_finding_words[level]));
	json_object_set_new(one, "about", json_string(about));
	json_object_set_new(one, "found", hc_json_text(text));
	json_object_set_new(one, "change", remedy ? hc_json_text(remedy) : json_null());
	json_array_append_new(doctor->findings, one);
	doctor->n[level]++;
}

char *hc_doctor_read(const struct hc_doctor *doctor, const char *path)
{
	char full[PATH_MAX], *text;
	size_t n;

	snprintf(full, sizeof(full), "%s%s", doctor->root, path);
	return hc_file_read(AT_FDCWD, full, HC_DOCTOR_BYTES_MAX, &text, &n) ? NULL : text;
}

bool hc_doctor_number(const char *text, const char *name, uint64_t *value_p)
{
	size_t n = strlen(name);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		char *end;

		line += *line == '\n';
		if (strncmp(line, name, n))
			continue;
		*value_p = strtoull(line + n, &end, 10);
		return end != line + n;
	}
	return false;
}

/* --- a directory --- */

static void hc_doctor_kind(struct hc_doctor *doctor, const char *dir)
{
	static const struct {
		unsigned long magic;
		const char *name;
		enum hc_finding level;
	} kinds[] = {
		{0xEF53, "ext4", HC_FINDING_OK},        {0x58465342, "xfs", HC_FINDING_OK},
		{0x9123683E, "btrfs", HC_FINDING_WARN}, {0x794C7630, "overlayfs", HC_FINDING_WARN},
		{0x01021994, "tmpfs", HC_FINDING_WARN}, {0x6969, "nfs", HC_FINDING_FAIL},
		{0xFF534D42, "cifs", HC_FINDING_FAIL},  {0x65735546, "fuse", HC_FINDING_FAIL},
	};
	struct statfs fs;

	if (statfs(dir, &fs))
		return;
	for (size_t i = 0; i < HC_ARRAY_SIZE(kinds); i++) {
		if ((unsigned long)fs.f_type != kinds[i].magic)
			continue;
		hc_doctor_find(doctor, kinds[i].level, "disk",
			       kinds[i].level ? "use ext4 or xfs on a local disk" : NULL,
			       "%s is on %s", dir, kinds[i].name);
		return;
	}
	hc_doctor_find(doctor, HC_FINDING_WARN, "disk", "use ext4 or xfs on a local disk",
		       "%s is on a file system that is not known here (%#lx)", dir,
		       (unsigned long)fs.f_type);
}

/* What page files need, tried with a file that has no name. */
static void hc_doctor_features(struct hc_doctor *doctor, const char *dir)
{
	hc_autofd int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char path[64];
	int flags;

	if (fd < 0 && (errno == EROFS || errno == EACCES)) {
		hc_doctor_find(doctor, errno == EROFS ? HC_FINDING_FAIL : HC_FINDING_WARN, "disk",
			       errno == EROFS ? "mount it read-write"
					      : "run doctor as the user who runs the daemon",
			       "%s cannot be written: %m", dir);
		return;
	}
	if (fd < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (fsetxattr(fd, "user.h", "1", 1, 0))
		hc_doctor_find(
			doctor, HC_FINDING_FAIL, "disk",
			"use a file system with user xattrs (ext4, xfs), without nouser_xattr",
			"%s takes no user xattrs: %m", dir);
	else
		hc_doctor_find(doctor, HC_FINDING_OK, "disk", NULL, "%s takes user xattrs", dir);
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT))
		hc_doctor_find(doctor, HC_FINDING_FAIL, "disk",
			       "use a file system with O_DIRECT (ext4, xfs)",
			       "%s takes no O_DIRECT: %m", dir);
}

static void hc_doctor_space(struct hc_doctor *doctor, const char *dir)
{
	char free_text[16], total[16];
	struct statvfs vfs;
	uint64_t free_bytes, total_bytes;

	if (statvfs(dir, &vfs))
		return;
	free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	total_bytes = (uint64_t)vfs.f_blocks * vfs.f_frsize;
	hc_size_format(free_bytes, free_text);
	hc_size_format(total_bytes, total);
	if (vfs.f_flag & ST_RDONLY)
		hc_doctor_find(doctor, HC_FINDING_FAIL, "disk", "mount it read-write",
			       "%s is on a file system that is mounted read-only", dir);
	if (free_bytes < total_bytes / 20)
		hc_doctor_find(
			doctor, HC_FINDING_WARN, "disk",
			"make room, or set min_free lower: with less than 5 % free nothing is "
			"written to this disk by default",
			"%s has %s of %s free", dir, free_text, total);
	else
		hc_doctor_find(doctor, HC_FINDING_OK, "disk", NULL, "%s has %s of %s free", dir,
			       free_text, total);
}

void hc_doctor_disk(struct hc_doctor *doctor, const char *dir)
{
	hc_doctor_kind(doctor, dir);
	hc_doctor_features(doctor, dir);
	hc_doctor_space(doctor, dir);
}

void hc_doctor_cachedir(struct hc_doctor *doctor, const char *dir)
{
	char path[PATH_MAX], real[PATH_MAX];
	struct stat st;

	if (!realpath(dir, real) || stat(real, &st) || !S_ISDIR(st.st_mode)) {
		hc_doctor_find(doctor, HC_FINDING_FAIL, "cache",
			       "make it (mkdir -p), or mount the disk that holds it",
			       "CACHEDIR %s: %s", dir, errno ? strerror(errno) : "no directory");
		return;
	}
	snprintf(path, sizeof(path), "%s/.hicachefs", real);
	if (stat(path, &st))
		hc_doctor_find(doctor, HC_FINDING_WARN, "cache",
			       "the first start initialises it, unless noinit is set",
			       "%s is no cache yet: there is no .hicachefs in it", real);
	else
		hc_doctor_find(doctor, HC_FINDING_OK, "cache", NULL, "%s is a cache", real);
	hc_doctor_disk(doctor, real);
}

/* --- show --- */

static void hc_doctor_print(const struct hc_doctor *doctor)
{
	const json_t *one;
	size_t i;

	json_array_foreach(doctor->findings, i, one)
	{
		const char *remedy = json_string_value(json_object_get(one, "change"));

		printf("%-4s  %-11s %s\n", json_string_value(json_object_get(one, "level")),
		       json_string_value(json_object_get(one, "about")),
		       json_string_value(json_object_get(one, "found")));
		if (remedy)
			printf("%-18s%s\n", "", remedy);
	}
	printf("%u ok, %u to look at, %u to change\n", doctor->n[HC_FINDING_OK],
	       doctor->n[HC_FINDING_WARN], doctor->n[HC_FINDING_FAIL]);
}

int hc_tool_doctor(const struct hc_tool *tool, int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
	const char *root = getenv("HICACHE_DOCTOR_ROOT");
	struct hc_doctor doctor = {.root = root ? root : ""};
	bool as_json = false;
	int c;

	while ((c = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (c != 'j')
			return hc_tool_bad_option(c, argv);
		as_json = true;
	}
	if (argc - optind > 1)
		return hc_tool_usage("doctor: %s: one CACHEDIR at most", argv[optind + 1]);
	doctor.findings = json_array();
	hc_doctor_mounts(&doctor, tool->mount_arg);
	hc_doctor_machine(&doctor);
	if (optind < argc)
		hc_doctor_cachedir(&doctor, argv[optind]);
	if (as_json)
		hc_json_print(doctor.findings);
	else
		hc_doctor_print(&doctor);
	json_decref(doctor.findings);
	return doctor.n[HC_FINDING_FAIL] ? HC_TOOL_FAILED : 0;
}
