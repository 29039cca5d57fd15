/* SPDX-License-Identifier: Apache-2.0 */
/* See setup.h. */
#include "fuse/setup.h"

#include <limits.h>
#include <mntent.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#include "pool/place.h"
#include "store/fault.h"
#include "util/log.h"
#include "util/size.h"
#include "util/sysinfo.h"

#define HC_POOLS_MAX  64u
#define HC_PPM        1000000u
#define HC_POOL_LEAST (2 * HC_MIB)

static uint64_t hc_part(uint64_t bytes, uint32_t ppm)
{
	return (uint64_t)((__uint128_t)bytes * ppm / HC_PPM);
}

/* --- directories --- */

static bool hc_is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	if (!strcmp(dir, "/"))
		return true;
	return !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
}

/* Asks the kernel's table: touching a file system that hangs would hang, too. */
static bool hc_is_mounted_on(const char *mountpoint)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	struct mntent entry;
	char text[8192];
	bool ours = false;

	if (!mounts)
		return false;
	while (getmntent_r(mounts, &entry, text, sizeof(text))) {
		if (!strcmp(entry.mnt_dir, mountpoint))
			ours = !strcmp(entry.mnt_type, "fuse.hicachefs");
	}
	endmntent(mounts);
	return ours;
}

/* Without the right to unmount: by the helper that mounted. */
static int hc_unmount_dead(const char *mountpoint)
{
	char *const argv[] = {"fusermount3", "-u", "-z", "-q", "--", (char *)mountpoint, NULL};
	int rc, wstatus;
	pid_t child;

	if (!umount2(mountpoint, MNT_DETACH))
		return 0;
	rc = -errno;
	if (rc != -EPERM || posix_spawnp(&child, argv[0], NULL, NULL, argv, environ))
		return rc;
	while (waitpid(child, &wstatus, 0) < 0) {
		if (errno != EINTR)
			return rc;
	}
	return WIFEXITED(wstatus) && !WEXITSTATUS(wstatus) ? 0 : rc;
}

/* A mount that a daemon left when it died is taken away: a restart after a crash needs nobody's
 * help. */
static int hc_check_not_mounted(const char *mountpoint)
{
	struct statfs fs;
	int rc;

	if (!hc_is_mounted_on(mountpoint))
		return 0;
	/* Attributes may be in the kernel still, this is not. */
	if (!statfs(mountpoint, &fs) || errno != ENOTCONN) {
		hc_error(HC_OPTIONS_LOG, "a hicachefs is mounted on %s already; umount %s first",
			 mountpoint, mountpoint);
		return -EBUSY;
	}
	rc = hc_unmount_dead(mountpoint);
	if (rc) {
		hc_error(HC_OPTIONS_LOG,
			 "the mount of a daemon that died is left on %s: %s; umount -l %s, by root "
			 "or its owner, takes it away",
			 mountpoint, strerror(-rc), mountpoint);
		return -EBUSY;
	}
	hc_warn(HC_OPTIONS_LOG, "a daemon that died had left its mount on %s: taken away",
		mountpoint);
	return hc_check_not_mounted(mountpoint);
}

/* A cache on a cache waits for itself, or for another daemon at each page. Asks the kernel's table:
 * the mount that shows the directory is the one with the longest path, of equal ones the last. */
static int hc_check_no_cache(const char *what, const char *dir)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	char real[PATH_MAX], text[8192], where[PATH_MAX] = "";
	struct mntent entry;
	bool ours = false;

	while (mounts && realpath(dir, real) && getmntent_r(mounts, &entry, text, sizeof(text))) {
		if (!hc_is_below(real, entry.mnt_dir) || strlen(entry.mnt_dir) < strlen(where))
			continue;
		ours = !strcmp(entry.mnt_type, "fuse.hicachefs");
		snprintf(where, sizeof(where), "%s", entry.mnt_dir);
	}
	if (mounts)
		endmntent(mounts);
	if (!ours)
		return 0;
	hc_error(HC_OPTIONS_LOG,
		 "%s %s lies in a mount of hicachefs (%s): a cache cannot be kept in a cache; "
		 "choose a directory of a disk",
		 what, real, where);
	return -EINVAL;
}

static int hc_check_outside(const char *what, const char *dir, const char *mountpoint)
{
	char real[PATH_MAX];

	if (!realpath(dir, real))
		return 0;
	if (!hc_is_below(real, mountpoint))
		return hc_check_no_cache(what, real);
	hc_error(HC_OPTIONS_LOG,
		 "%s %s lies inside the mount point %s: the mount would hide it; choose another "
		 "mount point",
		 what, real, mountpoint);
	return -EINVAL;
}

static int hc_check_cachedir(const char *cachedir, char real[PATH_MAX])
{
	struct stat st;

	if (!realpath(cachedir, real)) {
		int rc = -errno;

		hc_error(HC_OPTIONS_LOG, "cache directory %s: %m%s", cachedir,
			 rc == -ENOENT
				 ? "; make it first (mkdir -p), or mount the disk that holds it"
				 : "");
		return rc;
	}
	if (stat(real, &st) || !S_ISDIR(st.st_mode)) {
		hc_error(HC_OPTIONS_LOG, "cache directory %s is not a directory", cachedir);
		return -ENOTDIR;
	}
	return hc_check_no_cache("cache directory", real);
}

int hc_setup_check(const struct hc_options *options)
{
	char cachedir[PATH_MAX], mountpoint[PATH_MAX];
	int rc = hc_check_not_mounted(options->mountpoint);

	if (!rc)
		rc = hc_check_cachedir(options->cachedir, cachedir);
	if (rc)
		return rc;
	/* What is wrong with the mount point itself, the front end tells. */
	if (!realpath(options->mountpoint, mountpoint))
		return 0;
	rc = hc_check_not_mounted(mountpoint);
	if (!rc && !strcmp(cachedir, mountpoint)) {
		hc_error(HC_OPTIONS_LOG,
			 "CACHEDIR and MOUNTPOINT are both %s: the mount would hide the cache; "
			 "choose another "
			 "mount point",
			 cachedir);
		rc = -EINVAL;
	}
	if (!rc)
		rc = hc_check_outside("cache directory", cachedir, mountpoint);
	if (!rc && hc_is_below(mountpoint, cachedir)) {
		hc_error(HC_OPTIONS_LOG,
			 "mount point %s lies inside the cache directory %s; choose another mount "
			 "point",
			 mountpoint, cachedir);
		rc = -EINVAL;
	}
	for (uint32_t i = 0; !rc && i < options->n_disks; i++)
		rc = hc_check_outside("data directory", options->disks[i], mountpoint);
	if (!rc && hc_option(options, HC_OPT_catalog_dir)->origin)
		rc = hc_check_outside("catalog directory",
				      hc_option(options, HC_OPT_catalog_dir)->text, mountpoint);
	if (!rc && hc_option(options, HC_OPT_pool_path)->origin)
		rc = hc_check_outside("pool directory", hc_option(options, HC_OPT_pool_path)->text,
				      mountpoint);
	return rc;
}

/* --- sizes --- */

/* What a pool that is left of this cache holds already: it is not available, and it is ours. */
static uint64_t hc_pool_left_bytes(const struct hc_options *options, const char *pool_path)
{
	struct hc_pool_found *found = calloc(HC_POOLS_MAX, sizeof(*found));
	char real[PATH_MAX];
	uint64_t bytes = 0;
	size_t n = 0;

	if (found && realpath(options->cachedir, real) &&
	    !hc_pool_find(pool_path, found, HC_POOLS_MAX, &n)) {
		for (size_t i = 0; i < n; i++) {
			if (!strcmp(found[i].cachedir, real) ||
			    !strcmp(found[i].cachedir, options->cachedir))
				bytes += found[i].size_bytes;
		}
	}
	free(found);
	return bytes;
}

/* A huge page is the least that a file system hands out. */
static int hc_pool_too_small(const struct hc_option_value *size, uint64_t bytes)
{
	char text[16];

	if (bytes >= HC_POOL_LEAST)
		return 0;
	hc_size_format(bytes, text);
	hc_error(HC_OPTIONS_LOG,
		 "pool_size %s is too small%s%s: a pool is made of segments of 2M and more; give "
		 "at least 2M (K, M, G and T are powers of 1024)",
		 size->text, size->is_percent ? ", that is " : "", size->is_percent ? text : "");
	return -EINVAL;
}

static int hc_setup_pool(const struct hc_options *options, struct hc_node_config *config)
{
	const struct hc_option_value *size = hc_option(options, HC_OPT_pool_size);
	const struct hc_option_value *path = hc_option(options, HC_OPT_pool_path);
	uint64_t total, available;
	int rc;

	config->pool_path = strcmp(path->text, "auto") ? path->text : NULL;
	config->keep_pool = hc_option(options, HC_OPT_keep_pool)->number != 0;
	config->discard_pool = hc_option(options, HC_OPT_discard_pool)->number != 0;
	if (size->origin == HC_FROM_DEFAULT)
		return 0;
	config->pool_bytes = size->number;
	rc = hc_sysinfo_memory(&total, &available);
	if (!size->is_percent && hc_pool_too_small(size, size->number))
		return -EINVAL;
	if (!size->is_percent) {
		/* More than the machine has, of whatever kind: before the cache is touched. */
		if (rc || size->number <= total)
			return 0;
		return hc_pool_size_check(size->number, 0, HC_POOL_MEMFD);
	}
	if (rc) {
		hc_error(HC_OPTIONS_LOG,
			 "the available memory is not known: %s; give pool_size as a size",
			 strerror(-rc));
		return rc;
	}
	available = hc_min_u64(available, hc_sysinfo_cgroup_room_bytes());
	available += hc_pool_left_bytes(options, config->pool_path);
	config->pool_bytes = hc_part(available, size->ppm);
	return hc_pool_too_small(size, config->pool_bytes);
}

static int hc_setup_numa(const struct hc_options *options, struct hc_setup *setup,
			 struct hc_node_config *config)
{
	uint64_t node = hc_option(options, HC_OPT_numa)->number;
	char path[64];

	if (node == HC_NUMA_OFF)
		return 0;
	config->numa = &setup->numa;
	if (node == HC_NUMA_AUTO) {
		hc_numa_detect(&setup->numa);
		return 0;
	}
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u", (unsigned)node);
	if (access(path, F_OK)) {
		hc_error(HC_OPTIONS_LOG, "numa %u: this machine has no such memory node",
			 (unsigned)node);
		return -EINVAL;
	}
	setup->numa.n = 1;
	setup->numa.node[0] = (int)node;
	return 0;
}

static int hc_setup_index(const struct hc_options *options, struct hc_setup *setup)
{
	const struct hc_option_value *index = hc_option(options, HC_OPT_index_memory);
	uint64_t total, available;
	int rc;

	setup->index_bytes = index->number;
	if (!index->is_percent)
		return 0;
	rc = hc_sysinfo_memory(&total, &available);
	if (!rc)
		setup->index_bytes =
			hc_part(hc_min_u64(total, hc_sysinfo_cgroup_room_bytes()), index->ppm);
	return index->origin == HC_FROM_DEFAULT ? 0 : rc;
}

int hc_setup_node(const struct hc_options *options, struct hc_setup *setup,
		  struct hc_node_config *config)
{
	const struct hc_option_value *catalog = hc_option(options, HC_OPT_catalog_dir);
	const struct hc_option_value *disk = hc_option(options, HC_OPT_disk_size);
	const struct hc_option_value *min_free = hc_option(options, HC_OPT_min_free);
	int rc;

	*config = (struct hc_node_config){
		.cachedir = options->cachedir,
		.catalog_dir = catalog->origin ? catalog->text : NULL,
		.disks = (const char *const *)options->disks,
		.n_disks = (uint16_t)options->n_disks,
		.noinit = hc_option(options, HC_OPT_noinit)->number != 0,
		.root = {geteuid(), getegid(),
			 (uint32_t)hc_option(options, HC_OPT_root_mode)->number},
		.disk_off = !disk->is_percent && !disk->number,
		.disk_bytes = disk->is_percent ? 0 : disk->number,
		.min_free_bytes = min_free->is_percent ? 0 : min_free->number,
		.min_free_ppm = min_free->is_percent ? min_free->ppm : 0,
		.high_ppm = hc_option(options, HC_OPT_high)->ppm,
		.low_ppm = hc_option(options, HC_OPT_low)->ppm,
		.dirty_ppm = hc_option(options, HC_OPT_dirty)->ppm,
		.backup = (enum hc_backup_mode)hc_option(options, HC_OPT_backup)->number,
		.write_budget_bytes = hc_option(options, HC_OPT_write_budget)->number,
		.max_page_bytes = hc_option(options, HC_OPT_max_page_bytes)->number,
		.budget_ns = hc_option(options, HC_OPT_budget_ms)->number * HC_NS_PER_MS,
		.flush_ns = hc_option(options, HC_OPT_flush_s)->number * HC_NS_PER_S,
		.no_verify = !hc_option(options, HC_OPT_verify)->number,
		.ahead_bytes = hc_option(options, HC_OPT_read_ahead)->number,
		.no_ahead = !hc_option(options, HC_OPT_read_ahead)->number,
		.wrap_store = hc_store_fault_env,
	};
	rc = hc_setup_pool(options, config);
	if (!rc)
		rc = hc_setup_numa(options, setup, config);
	if (!rc)
		rc = hc_setup_index(options, setup);
	config->index_bytes = setup->index_bytes;
	return rc;
}

/* --- limits --- */

/* A percentage is of what is free and what the cache holds. */
static uint64_t hc_disk_part(struct hc_node *node, uint32_t ppm)
{
	struct hc_store_disk_info *info = malloc(sizeof(*info));
	struct hc_node_stats stats;
	uint64_t bytes;

	hc_node_stats(node, &stats);
	bytes = stats.disk_used_bytes;
	for (uint16_t i = 0; info && i < hc_node_n_disks(node); i++) {
		if (!hc_node_disk_info(node, i, info) && !info->out)
			bytes += info->free_bytes;
	}
	free(info);
	return hc_part(bytes, ppm);
}

static int hc_setup_spaces(const struct hc_options *options, struct hc_node *node)
{
	struct hc_space_preset *presets = calloc(options->n_sections + 1, sizeof(*presets));
	struct hc_space_info info;
	int rc;

	if (!presets)
		return -ENOMEM;
	for (uint32_t i = 0; i < options->n_sections; i++) {
		const struct hc_space_section *section = &options->sections[i];

		memcpy(presets[i].name, section->name, sizeof(presets[i].name));
		presets[i].what = section->what;
		presets[i].quota_bytes = section->quota_bytes;
		presets[i].max_age_s = section->max_age_s;
		presets[i].priority = section->priority;
	}
	rc = hc_space_presets(hc_node_registry(node), presets, options->n_sections);
	if (rc)
		hc_error(HC_OPTIONS_LOG, "the settings of spaces cannot be stored: %s",
			 strerror(-rc));
	for (uint32_t i = 0; !rc && i < options->n_sections; i++) {
		if (!hc_space_find(hc_node_registry(node), presets[i].name, &info))
			hc_node_space_changed(node, info.id);
	}
	free(presets);
	return rc;
}

int hc_setup_limits(const struct hc_options *options, struct hc_node *node)
{
	const struct hc_option_value *disk = hc_option(options, HC_OPT_disk_size);
	const struct hc_option_value *min_free = hc_option(options, HC_OPT_min_free);
	struct hc_node_limits limits;

	hc_node_limits_get(node, &limits);
	limits.min_free_bytes = min_free->is_percent ? 0 : min_free->number;
	limits.min_free_ppm = min_free->is_percent ? min_free->ppm : 0;
	limits.high_ppm = hc_option(options, HC_OPT_high)->ppm;
	limits.low_ppm = hc_option(options, HC_OPT_low)->ppm;
	limits.dirty_ppm = hc_option(options, HC_OPT_dirty)->ppm;
	limits.backup = (enum hc_backup_mode)hc_option(options, HC_OPT_backup)->number;
	if (disk->is_percent)
		limits.disk_bytes = hc_disk_part(node, disk->ppm);
	else if (disk->number)
		limits.disk_bytes = disk->number;
	hc_node_limits_set(node, &limits);
	return hc_setup_spaces(options, node);
}

void hc_setup_tell_changes(const struct hc_options *before, const struct hc_options *after)
{
	bool disk_off_before = !hc_option(before, HC_OPT_disk_size)->is_percent &&
			       !hc_option(before, HC_OPT_disk_size)->number;
	bool disk_off_after = !hc_option(after, HC_OPT_disk_size)->is_percent &&
			      !hc_option(after, HC_OPT_disk_size)->number;
	bool disks_differ = before->n_disks != after->n_disks;

	for (uint32_t i = 0; !disks_differ && i < before->n_disks; i++)
		disks_differ = strcmp(before->disks[i], after->disks[i]) != 0;
	for (int id = 0; id < HC_OPTION_N; id++) {
		const struct hc_option_desc *desc = &hc_option_descs[id];
		const struct hc_option_value *old = hc_option(before, (enum hc_option)id);
		const struct hc_option_value *new = hc_option(after, (enum hc_option)id);
		bool differ;

		if (desc->kind == HC_KIND_ABSENT)
			continue;
		differ = desc->kind == HC_KIND_PATHS ? disks_differ
						     : strcmp(old->text, new->text) != 0;
		if (id == HC_OPT_disk_size && disk_off_before != disk_off_after)
			hc_warn(HC_OPTIONS_LOG, "disk_size: with a disk or without one is decided "
						"at the next start");
		else if (differ && desc->live)
			hc_info(HC_OPTIONS_LOG, "%s is %s", desc->name, new->text);
		else if (differ)
			hc_warn(HC_OPTIONS_LOG, "%s: the change holds from the next start on",
				desc->name);
	}
}
