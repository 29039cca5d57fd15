/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine gives a cache: kernel, FUSE, huge pages, memory, limits. See doctor.h. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include "tool/doctor.h"
#include "util/size.h"
#include "util/sysinfo.h"

#define HC_KERNEL(major, minor) ((unsigned)(major)*1000 + (unsigned)(minor))
#define HC_CAP_SYS_ADMIN        21

static unsigned hc_kernel_version(const struct hc_doctor *doctor, char release[64])
{
	hc_autofree char *text = hc_doctor_read(doctor, "/proc/sys/kernel/osrelease");
	unsigned major = 0, minor = 0;

	snprintf(release, 64, "%s", text ? text : "?");
	release[strcspn(release, "\n")] = 0;
	return sscanf(release, "%u.%u", &major, &minor) == 2 ? HC_KERNEL(major, minor) : 0;
}

static bool hc_may_pass_through(const struct hc_doctor *doctor, const char **why_p)
{
	hc_autofree char *status = hc_doctor_read(doctor, "/proc/self/status");
	hc_autofree char *map = hc_doctor_read(doctor, "/proc/self/uid_map");
	const char *caps = status ? strstr(status, "\nCapEff:") : NULL;
	unsigned inside, outside, n;

	if (!caps || !(strtoull(caps + 8, NULL, 16) >> HC_CAP_SYS_ADMIN & 1)) {
		*why_p = "it needs CAP_SYS_ADMIN: run the daemon as root";
		return false;
	}
	if (map && sscanf(map, "%u %u %u", &inside, &outside, &n) == 3 &&
	    (inside || outside || n != UINT32_MAX)) {
		*why_p = "it needs the initial user namespace: run the daemon on the host";
		return false;
	}
	return true;
}

static void hc_doctor_kernel(struct hc_doctor *doctor)
{
	char release[64];
	unsigned version = hc_kernel_version(doctor, release);
	const char *why;

	if (version < HC_KERNEL(5, 10))
		hc_doctor_find(doctor, HC_FINDING_FAIL, "kernel", "use Linux 6.1 or later",
			       "Linux %s is too old for this", release);
	else if (version < HC_KERNEL(6, 9))
		hc_doctor_find(doctor, HC_FINDING_WARN, "kernel",
			       "6.9 and later read pages on disk without the daemon (passthrough)",
			       "Linux %s: no passthrough", release);
	else if (!hc_may_pass_through(doctor, &why))
		hc_doctor_find(doctor, HC_FINDING_WARN, "kernel", why,
			       "Linux %s has passthrough, a daemon of this user does not", release);
	else
		hc_doctor_find(doctor, HC_FINDING_OK, "kernel", NULL,
			       "Linux %s: passthrough is possible", release);
	if (version >= HC_KERNEL(5, 10) && version < HC_KERNEL(6, 16))
		hc_doctor_find(doctor, HC_FINDING_OK, "kernel", NULL,
			       "Linux %s: names are invalidated one by one (epochs: 6.16)",
			       release);
}

static void hc_doctor_fuse(struct hc_doctor *doctor)
{
	hc_autofree char *types = hc_doctor_read(doctor, "/proc/filesystems");
	hc_autofd int fd = -1;
	char path[4096];

	snprintf(path, sizeof(path), "%s/dev/fuse", doctor->root);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno == EACCES)
		hc_doctor_find(doctor, HC_FINDING_WARN, "fuse",
			       "run the daemon as root, or chmod 666 /dev/fuse",
			       "/dev/fuse cannot be opened by this user");
	else if (fd < 0)
		hc_doctor_find(doctor, HC_FINDING_FAIL, "fuse",
			       "modprobe fuse; in a container: --device /dev/fuse --cap-add "
			       "SYS_ADMIN",
			       "/dev/fuse: %m");
	else if (types && !strstr(types, "\tfuse\n"))
		hc_doctor_find(doctor, HC_FINDING_FAIL, "fuse", "modprobe fuse",
			       "the kernel has no fuse file system");
	else
		hc_doctor_find(doctor, HC_FINDING_OK, "fuse", NULL, "/dev/fuse can be used");
	if (geteuid() && access("/usr/bin/fusermount3", X_OK) && access("/bin/fusermount3", X_OK))
		hc_doctor_find(doctor, HC_FINDING_FAIL, "fuse", "install fuse3",
			       "fusermount3 is missing: only root can mount");
}

static void hc_doctor_huge(struct hc_doctor *doctor, const char *meminfo)
{
	hc_autofree char *shmem =
		hc_doctor_read(doctor, "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
	uint64_t total = 0, free_pages = 0, size_kib = 0;

	hc_doctor_number(meminfo, "HugePages_Total:", &total);
	hc_doctor_number(meminfo, "HugePages_Free:", &free_pages);
	hc_doctor_number(meminfo, "Hugepagesize:", &size_kib);
	if (total) {
		hc_doctor_find(doctor, HC_FINDING_OK, "huge pages", NULL,
			       "%llu of %llu pages of %llu KiB are free",
			       (unsigned long long)free_pages, (unsigned long long)total,
			       (unsigned long long)size_kib);
		return;
	}
	if (!shmem)
		hc_doctor_find(
			doctor, HC_FINDING_WARN, "huge pages",
			"sysctl vm.nr_hugepages=N reserves some (2 MiB each), or use a kernel "
			"with transparent huge pages",
			"none are reserved, and shared memory gets none");
	else if (strstr(shmem, "[deny]"))
		hc_doctor_find(doctor, HC_FINDING_WARN, "huge pages",
			       "echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled, or "
			       "reserve some: sysctl vm.nr_hugepages=N",
			       "none are reserved, and shmem_enabled is deny");
	else if (geteuid() && strstr(shmem, "[never]"))
		hc_doctor_find(
			doctor, HC_FINDING_WARN, "huge pages",
			"echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled, or run "
			"the daemon as root, which mounts a tmpfs of its own",
			"none are reserved, and shmem_enabled is never");
	else
		hc_doctor_find(doctor, HC_FINDING_OK, "huge pages", NULL,
			       "none are reserved; transparent ones can be had");
}

static void hc_doctor_memory(struct hc_doctor *doctor)
{
	hc_autofree char *meminfo = hc_doctor_read(doctor, "/proc/meminfo");
	uint64_t total_kib = 0, available_kib = 0, swap_kib = 0, room;
	char total[16], available[16], limit[16], pool[16];

	if (!meminfo || !hc_doctor_number(meminfo, "MemTotal:", &total_kib) ||
	    !hc_doctor_number(meminfo, "MemAvailable:", &available_kib))
		return;
	room = hc_sysinfo_cgroup_room_bytes();
	hc_size_format(total_kib * 1024, total);
	hc_size_format(available_kib * 1024, available);
	hc_size_format(room, limit);
	if (available_kib < total_kib / 20)
		hc_doctor_find(doctor, HC_FINDING_WARN, "memory",
			       "make the pool smaller (pool_size), or end something else",
			       "%s of %s are available: the kernel may kill something", available,
			       total);
	else
		hc_doctor_find(doctor, HC_FINDING_OK, "memory", NULL, "%s of %s are available",
			       available, total);
	hc_size_format(doctor->pool_bytes, pool);
	if (doctor->pool_bytes / 1024 > total_kib / 4 * 3)
		hc_doctor_find(doctor, HC_FINDING_WARN, "memory",
			       "set pool_size lower: engines need memory of their own",
			       "pools hold %s of %s", pool, total);
	if (room != UINT64_MAX && room < available_kib * 1024)
		hc_doctor_find(
			doctor, HC_FINDING_WARN, "memory",
			"raise the limit of the control group, or run the daemon outside of it",
			"this control group has room for %s only", limit);
	if (hc_doctor_number(meminfo, "SwapTotal:", &swap_kib) && swap_kib && geteuid())
		hc_doctor_find(doctor, HC_FINDING_WARN, "memory",
			       "swapoff, or run the daemon as root: its own tmpfs is not swapped",
			       "a pool in /dev/shm may be swapped out");
	hc_doctor_huge(doctor, meminfo);
}

static void hc_doctor_limits(struct hc_doctor *doctor)
{
	struct rlimit files, locked;
	char text[16];

	if (getrlimit(RLIMIT_NOFILE, &files) || getrlimit(RLIMIT_MEMLOCK, &locked))
		return;
	if (files.rlim_max < 65536)
		hc_doctor_find(doctor, HC_FINDING_WARN, "limits",
			       "LimitNOFILE=1048576 in the unit, or ulimit -Hn",
			       "a process may have %llu open files: each open page needs one with "
			       "passthrough",
			       (unsigned long long)files.rlim_max);
	else
		hc_doctor_find(doctor, HC_FINDING_OK, "limits", NULL,
			       "a process may have %llu open files",
			       (unsigned long long)files.rlim_max);
	hc_size_format(locked.rlim_max, text);
	if (locked.rlim_max != RLIM_INFINITY && geteuid())
		hc_doctor_find(doctor, HC_FINDING_OK, "limits",
			       "engines that register the pool with a GPU may want "
			       "LimitMEMLOCK=infinity",
			       "a process may lock %s of memory", text);
}

void hc_doctor_machine(struct hc_doctor *doctor)
{
	hc_doctor_kernel(doctor);
	hc_doctor_fuse(doctor);
	hc_doctor_memory(doctor);
	hc_doctor_limits(doctor);
}
