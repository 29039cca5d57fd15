/* SPDX-License-Identifier: Apache-2.0 */
/* Where a pool lies. See place.h. Found files are input; a directory that others could write to is
 * refused. */
#include "pool/place.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include "pool/internal.h"
#include "util/hex.h"
#include "util/io.h"
#include "util/log.h"
#include "util/size.h"
#include "util/sysinfo.h"

#define HC_DEFAULT_PERCENT 10
#define HC_DEFAULT_MOST    (64 * HC_GIB)
#define HC_RESERVE_MOST    HC_GIB
#define HC_MOUNTS_MAX      (4 * HC_MIB)
#define HC_POOL_TEXT_MAX   (2 * PATH_MAX)

static struct hc_place_roots hc_roots = {"/run/hicachefs", "/dev/shm", "/proc/self/mounts"};

void hc_pool_place_roots_set(const struct hc_place_roots *roots)
{
	hc_roots = *roots;
}

static void hc_uuid_format(const uint8_t uuid[16], char text[37])
{
	char digits[33];
	size_t n = 0;

	hc_hex_encode(uuid, 16, digits);
	for (size_t i = 0; i < 32; i++) {
		if (i == 8 || i == 12 || i == 16 || i == 20)
			text[n++] = '-';
		text[n++] = digits[i];
	}
	text[n] = 0;
}

static bool hc_uuid_looks_right(const char *text)
{
	for (size_t i = 0; i < 36; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash ? text[i] != '-' : hc_hex_digit(text[i]) < 0)
			return false;
	}
	return true;
}

/* ---- the text file `pool` ---- */

static int hc_pool_text_write(int dirfd, const char *dir, const char *uuid, const char *cachedir,
			      enum hc_pool_kind kind)
{
	hc_autofree char *text = NULL;
	/* The path comes last: it may hold any byte but NUL. */
	int n = asprintf(&text, "uuid %s\nkind %s\ncachedir %s\n", uuid, hc_pool_kind_name(kind),
			 cachedir);
	int rc = n < 0 ? -ENOMEM : hc_file_replace(dirfd, "pool", text, (size_t)n, 0600);

	if (rc)
		hc_error("pool", "cannot write %s/pool: %s", dir, strerror(-rc));
	return rc;
}

/* -ENOENT: no pool; -EBADMSG: not our text. */
static int hc_pool_text_read(int dirfd, char uuid[37], char *cachedir, size_t room)
{
	hc_autofree char *text = NULL;
	char *path, *end;
	size_t n;
	int rc = hc_file_read(dirfd, "pool", HC_POOL_TEXT_MAX, &text, &n);

	if (rc)
		return rc;
	path = strstr(text, "\ncachedir ");
	if (strlen(text) != n || n < 42 || strncmp(text, "uuid ", 5) ||
	    !hc_uuid_looks_right(text + 5) || !path)
		return -EBADMSG;
	path += strlen("\ncachedir ");
	end = text + n - 1;
	if (end < path || *end != '\n' || (size_t)(end - path) >= room)
		return -EBADMSG;
	*end = 0;
	memcpy(uuid, text + 5, 36);
	uuid[36] = 0;
	memcpy(cachedir, path, strlen(path) + 1);
	return 0;
}

/* ---- directories ---- */

/* Opens a directory of ours, or one that the user gave, and refuses what others could tamper with.
 */
static int hc_place_open(const char *dir, int flags, int *fd_p)
{
	hc_autofd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st)) {
		rc = -errno;
		hc_error("pool", "cannot open the pool directory %s: %m", dir);
		return rc;
	}
	if (st.st_uid != geteuid() || st.st_mode & 022) {
		hc_error("pool",
			 "the pool directory %s must belong to this user and be writable by nobody "
			 "else (owner %u, "
			 "mode %04o): chown and chmod 700 it, or set another pool_path",
			 dir, st.st_uid, st.st_mode & 07777);
		return -EPERM;
	}
	*fd_p = hc_steal_fd(&fd);
	return 0;
}

static int hc_place_mkdir(const char *dir, int mode)
{
	int rc = hc_mkdir_parents(AT_FDCWD, dir, mode);

	if (rc)
		hc_error("pool", "cannot make the pool directory %s: %s", dir, strerror(-rc));
	return rc;
}

/* One mount of /proc/self/mounts. Octal escapes in the path (blanks) are not undone: such mounts
 * are left alone. */
struct hc_mount {
	char path[PATH_MAX];
	char type[64];
	char options[1024];
};

/* Calls back for each mount, the latest last; stops at non-zero and returns it. */
static int hc_mounts_each(int (*each)(void *arg, const struct hc_mount *mount), void *arg)
{
	hc_autofree char *text = NULL;
	char *save = NULL;
	size_t n;
	int rc = hc_file_read(AT_FDCWD, hc_roots.mounts, HC_MOUNTS_MAX, &text, &n);

	if (rc)
		return 0;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		struct hc_mount mount;

		if (sscanf(line, "%*s %4095s %63s %1023s", mount.path, mount.type, mount.options) !=
		    3)
			continue;
		rc = each(arg, &mount);
		if (rc)
			return rc;
	}
	return 0;
}

static bool hc_mount_option(const struct hc_mount *mount, const char *option)
{
	size_t n = strlen(option);

	for (const char *p = mount->options; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (!strncmp(p, option, n) && (!p[n] || p[n] == ','))
			return true;
	return false;
}

struct hc_mount_look {
	const char *path;
	uint64_t page_bytes;
	char found[PATH_MAX];
	bool huge;
};

static int hc_mount_is_hugetlbfs(void *arg, const struct hc_mount *mount)
{
	struct hc_mount_look *look = arg;
	struct statfs fs;

	if (strcmp(mount->type, "hugetlbfs") || hc_mount_option(mount, "ro") ||
	    access(mount->path, W_OK))
		return 0;
	if (statfs(mount->path, &fs) || (uint64_t)fs.f_bsize != look->page_bytes)
		return 0;
	memcpy(look->found, mount->path, strlen(mount->path) + 1);
	return 1;
}

/* The last mount whose path leads to look->path is the one it lies on. */
static int hc_mount_covers(void *arg, const struct hc_mount *mount)
{
	struct hc_mount_look *look = arg;
	size_t n = strlen(mount->path);

	if (n > 1 &&
	    (strncmp(look->path, mount->path, n) || (look->path[n] && look->path[n] != '/')))
		return 0;
	if (n < strlen(look->found))
		return 0;
	memcpy(look->found, mount->path, n + 1);
	look->huge = !strcmp(mount->type, "tmpfs") && hc_mount_option(mount, "huge=always");
	return 0;
}

static enum hc_pool_kind hc_place_kind(const char *dir)
{
	hc_autofree char *real = realpath(dir, NULL);
	struct hc_mount_look look = {.path = real};
	struct statfs fs;

	if (!real || statfs(dir, &fs))
		return HC_POOL_DIR;
	if (fs.f_type == HUGETLBFS_MAGIC)
		return HC_POOL_HUGETLB;
	if (fs.f_type != TMPFS_MAGIC)
		return HC_POOL_DIR;
	(void)hc_mounts_each(hc_mount_covers, &look);
	return look.huge ? HC_POOL_TMPFS_HUGE : HC_POOL_SHM;
}

static bool hc_is_mount_point(const char *dir)
{
	char parent[PATH_MAX + 4];
	struct stat here, above;

	snprintf(parent, sizeof(parent), "%s/..", dir);
	return !stat(dir, &here) && !stat(parent, &above) && here.st_dev != above.st_dev;
}

/* ---- the three places of our own ---- */

struct hc_place_wish {
	char uuid[37];
	const char *cachedir;
	uint64_t size_bytes;
	char run_dir[PATH_MAX];
	char shm_dir[PATH_MAX];
};

/* Segments, rows of the smallest pages (160 bytes in 4 KiB), and huge pages around small files. */
static uint64_t hc_place_mount_bytes(uint64_t size_bytes)
{
	return size_bytes + size_bytes / 16 + 64 * HC_MIB;
}

static int hc_place_mount(const char *dir, uint64_t size_bytes, unsigned long flags)
{
	const unsigned long all = MS_NOSUID | MS_NODEV | MS_NOEXEC | flags;
	char options[128];

	/* noswap: kernel 6.4. Swapped pages would be read back inside an engine's DMA wait. */
	for (int noswap = 1; noswap >= 0; noswap--) {
		snprintf(options, sizeof(options), "huge=always,mode=0700,size=%llu%s",
			 (unsigned long long)hc_place_mount_bytes(size_bytes),
			 noswap ? ",noswap" : "");
		if (!mount("hicachefs", dir, "tmpfs", all, options))
			return 0;
		if (errno != EINVAL)
			break;
	}
	return -errno;
}

/* Our mount is there from an earlier start: it must have room for the size that is asked for this
 * time. */
static int hc_place_mount_fit(const char *dir, uint64_t size_bytes)
{
	char options[64];
	struct statvfs fs;

	if (statvfs(dir, &fs))
		return -errno;
	if ((uint64_t)fs.f_blocks * fs.f_frsize >= hc_place_mount_bytes(size_bytes))
		return 0;
	snprintf(options, sizeof(options), "size=%llu",
		 (unsigned long long)hc_place_mount_bytes(size_bytes));
	if (!mount("hicachefs", dir, "tmpfs", MS_REMOUNT | MS_NOSUID | MS_NODEV | MS_NOEXEC,
		   options))
		return 0;
	return -errno;
}

/* 0; 1: not possible here, try the next place; -errno: logged. */
static int hc_place_try_run(const struct hc_place_wish *wish, struct hc_pool_place *place)
{
	int rc;

	if (geteuid())
		return 1;
	rc = hc_mkdir_parents(AT_FDCWD, hc_roots.run, 0755);
	if (!rc && mkdir(wish->run_dir, 0700) && errno != EEXIST)
		rc = -errno;
	if (rc) {
		hc_info("pool", "%s cannot be made: %s", wish->run_dir, strerror(-rc));
		return 1;
	}
	if (hc_is_mount_point(wish->run_dir)) {
		rc = hc_place_mount_fit(wish->run_dir, wish->size_bytes);
		if (rc)
			hc_error("pool", "the pool's file system %s cannot be enlarged: %s",
				 wish->run_dir, strerror(-rc));
	} else {
		rc = hc_place_mount(wish->run_dir, wish->size_bytes, 0);
		if (rc) {
			hc_info("pool",
				"no huge page file system of our own (%s): the pool goes to %s",
				strerror(-rc), hc_roots.shm);
			rmdir(wish->run_dir);
			return 1;
		}
	}
	if (rc)
		return rc;
	place->mounted_here = true;
	place->kind = HC_POOL_TMPFS_HUGE;
	memcpy(place->dir, wish->run_dir, sizeof(place->dir));
	return 0;
}

static int hc_place_use_shm(const struct hc_place_wish *wish, struct hc_pool_place *place)
{
	if (mkdir(wish->shm_dir, 0700) && errno != EEXIST) {
		int rc = -errno;

		hc_error("pool", "cannot make the pool directory %s: %m; set pool_path",
			 wish->shm_dir);
		return rc;
	}
	place->kind = hc_place_kind(wish->shm_dir);
	memcpy(place->dir, wish->shm_dir, sizeof(place->dir));
	return 0;
}

/* hugetlbfs holds segments only (it has no write): text, lock and table lie in a small directory
 * beside, whose `segments` leads there. */
static int hc_place_link(const char *dir, const char *segments)
{
	char link[PATH_MAX + 16], old[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "%s/segments", dir);
	n = readlink(link, old, sizeof(old) - 1);
	if (n >= 0) {
		old[n] = 0;
		if (!strcmp(old, segments))
			return 0;
		hc_error("pool",
			 "%s leads to %s, not to %s; release that pool with `hicachectl pool free`",
			 link, old, segments);
		return -EBUSY;
	}
	if (symlink(segments, link)) {
		int rc = -errno;

		hc_error("pool", "cannot make %s: %m", link);
		return rc;
	}
	return 0;
}

static int hc_place_use_hugetlb(const struct hc_place_wish *wish, const char *mount,
				struct hc_pool_place *place)
{
	const char *dir = geteuid() ? wish->shm_dir : wish->run_dir;
	char segments[PATH_MAX + 64];
	int rc;

	snprintf(segments, sizeof(segments), "%s/hicachefs-%s", mount, wish->uuid);
	if (mkdir(segments, 0700) && errno != EEXIST) {
		rc = -errno;
		hc_error("pool", "cannot make %s: %m", segments);
		return rc;
	}
	rc = hc_place_mkdir(dir, 0700);
	if (!rc)
		rc = hc_place_link(dir, segments);
	if (rc)
		return rc;
	place->kind = HC_POOL_HUGETLB;
	snprintf(place->dir, sizeof(place->dir), "%s", dir);
	return 0;
}

/* A hugetlbfs mount of the default page size with room: *mount_p is its path. */
static bool hc_place_find_hugetlb(uint64_t size_bytes, char mount_p[PATH_MAX])
{
	struct hc_mount_look look = {0};
	uint64_t n_free;

	hc_sysinfo_hugetlb(&n_free, &look.page_bytes);
	if (!look.page_bytes || n_free * look.page_bytes < size_bytes ||
	    hc_mounts_each(hc_mount_is_hugetlbfs, &look) != 1)
		return false;
	memcpy(mount_p, look.found, PATH_MAX);
	return true;
}

static bool hc_place_has(const char *dir, const char *name)
{
	char path[PATH_MAX + 16];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return !lstat(path, &st);
}

/* What an earlier start chose for this uuid stays the choice. 1: nothing is there. */
static int hc_place_again(const struct hc_place_wish *wish, struct hc_pool_place *place)
{
	const char *const dirs[] = {wish->run_dir, wish->shm_dir};

	for (size_t i = 0; i < HC_ARRAY_SIZE(dirs); i++) {
		if (!hc_place_has(dirs[i], "pool"))
			continue;
		if (hc_place_has(dirs[i], "segments")) {
			place->kind = HC_POOL_HUGETLB;
			snprintf(place->dir, sizeof(place->dir), "%s", dirs[i]);
			return 0;
		}
		return i == 0 ? hc_place_try_run(wish, place) : hc_place_use_shm(wish, place);
	}
	return 1;
}

static int hc_place_choose(const struct hc_place_wish *wish, const char *pool_path,
			   struct hc_pool_place *place)
{
	char mount[PATH_MAX];
	int rc;

	if (pool_path) {
		rc = hc_place_mkdir(pool_path, 0700);
		if (rc)
			return rc;
		place->kind = hc_place_kind(pool_path);
		if (place->kind == HC_POOL_HUGETLB)
			return hc_place_use_hugetlb(wish, pool_path, place);
		snprintf(place->dir, sizeof(place->dir), "%s", pool_path);
		return 0;
	}
	rc = hc_place_again(wish, place);
	if (rc != 1)
		return rc;
	if (hc_place_find_hugetlb(wish->size_bytes, mount))
		return hc_place_use_hugetlb(wish, mount, place);
	rc = hc_place_try_run(wish, place);
	return rc == 1 ? hc_place_use_shm(wish, place) : rc;
}

/* /dev/shm and plain directories have a size of their own. */
static int hc_place_room_check(const struct hc_pool_place *place, uint64_t size_bytes)
{
	uint64_t held_bytes = hc_pool_place_held_bytes(place->dir), free_bytes;
	char want[16], have[16];
	struct statvfs fs;

	if (place->kind == HC_POOL_HUGETLB || statvfs(place->dir, &fs))
		return 0;
	free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (size_bytes <= free_bytes + held_bytes)
		return 0;
	hc_size_format(size_bytes, want);
	hc_size_format(free_bytes + held_bytes, have);
	hc_error("pool",
		 "pool_size %s does not fit into %s, which has room for %s; lower pool_size, or "
		 "set pool_path",
		 want, place->dir, have);
	return -ENOSPC;
}

static int hc_place_claim(const struct hc_pool_place *place, const struct hc_place_wish *wish)
{
	char uuid[37], cachedir[PATH_MAX];
	hc_autofd int fd = -1;
	int rc = hc_place_open(place->dir, 0, &fd);

	if (rc)
		return rc;
	rc = hc_pool_text_read(fd, uuid, cachedir, sizeof(cachedir));
	if (!rc && strcmp(uuid, wish->uuid)) {
		hc_error("pool",
			 "%s holds the pool of another cache (%s); set another pool_path, or "
			 "release it with "
			 "`hicachectl pool free`",
			 place->dir, cachedir);
		return -EBUSY;
	}
	if (!rc && !strcmp(cachedir, wish->cachedir))
		return 0;
	return hc_pool_text_write(fd, place->dir, wish->uuid, wish->cachedir, place->kind);
}

int hc_pool_place_make(const uint8_t uuid[16], const char *cachedir, const char *pool_path,
		       uint64_t size_bytes, struct hc_pool_place *place_p)
{
	struct hc_pool_place place = {0};
	struct hc_place_wish wish = {.cachedir = cachedir, .size_bytes = size_bytes};
	int rc;

	hc_uuid_format(uuid, wish.uuid);
	if (snprintf(wish.run_dir, sizeof(wish.run_dir), "%s/%s", hc_roots.run, wish.uuid) >=
		    PATH_MAX ||
	    snprintf(wish.shm_dir, sizeof(wish.shm_dir), "%s/hicachefs-%s", hc_roots.shm,
		     wish.uuid) >= PATH_MAX ||
	    (pool_path && strlen(pool_path) + 64 >= PATH_MAX) || strlen(cachedir) >= PATH_MAX) {
		hc_error("pool", "pool_path or CACHEDIR is too long");
		return -ENAMETOOLONG;
	}
	rc = hc_place_choose(&wish, pool_path, &place);
	if (!rc)
		rc = hc_place_claim(&place, &wish);
	if (!rc)
		rc = hc_place_room_check(&place, size_bytes);
	if (rc)
		return rc;
	*place_p = place;
	return 0;
}

/* ---- sizes ---- */

/* Memory that this process may still take. */
static int hc_memory_limit(uint64_t *available_bytes_p, uint64_t *room_bytes_p)
{
	uint64_t total_bytes;
	int rc = hc_sysinfo_memory(&total_bytes, available_bytes_p);

	if (rc) {
		hc_error("pool", "cannot read the size of memory: %s; set pool_size",
			 strerror(-rc));
		return rc;
	}
	*room_bytes_p = hc_sysinfo_cgroup_room_bytes();
	return 0;
}

static int hc_default_size(uint64_t held_bytes, uint64_t *size_bytes_p)
{
	uint64_t available_bytes, room_bytes, size_bytes;
	int rc = hc_memory_limit(&available_bytes, &room_bytes);

	if (rc)
		return rc;
	size_bytes = hc_min_u64(available_bytes, room_bytes);
	size_bytes = (size_bytes + held_bytes) / 100 * HC_DEFAULT_PERCENT;
	size_bytes = hc_min_u64(size_bytes, HC_DEFAULT_MOST);
	size_bytes -= size_bytes % HC_SEGMENT_ALIGN;
	*size_bytes_p = hc_max_u64(size_bytes, HC_SEGMENT_ALIGN);
	return 0;
}

int hc_pool_default_size(uint64_t *size_bytes_p)
{
	return hc_default_size(0, size_bytes_p);
}

int hc_pool_default_size_for(const uint8_t uuid[16], const char *pool_path, uint64_t *size_bytes_p)
{
	uint64_t held_bytes = pool_path ? hc_pool_place_held_bytes(pool_path) : 0, size_bytes;
	char text[37], dir[PATH_MAX];
	int rc;

	hc_uuid_format(uuid, text);
	if (snprintf(dir, sizeof(dir), "%s/%s", hc_roots.run, text) < PATH_MAX)
		held_bytes += hc_pool_place_held_bytes(dir);
	if (snprintf(dir, sizeof(dir), "%s/hicachefs-%s", hc_roots.shm, text) < PATH_MAX)
		held_bytes += hc_pool_place_held_bytes(dir);
	rc = hc_default_size(held_bytes, &size_bytes);
	if (rc)
		return rc;
	if (held_bytes / 4 * 3 < size_bytes && size_bytes < held_bytes / 4 * 5)
		size_bytes = held_bytes - held_bytes % HC_SEGMENT_ALIGN;
	*size_bytes_p = size_bytes;
	return 0;
}

static int hc_pool_size_check_hugetlb(uint64_t size_bytes, uint64_t held_bytes)
{
	uint64_t n_free, page_bytes, most;
	char want[16], have[16], least[16];

	hc_sysinfo_hugetlb(&n_free, &page_bytes);
	most = held_bytes + n_free * page_bytes;
	if (size_bytes <= most)
		return 0;
	hc_size_format(size_bytes, want);
	hc_size_format(n_free * page_bytes, have);
	hc_size_format(size_bytes - held_bytes, least);
	hc_error("pool",
		 "pool_size %s needs %s of huge pages, but %s are free; lower pool_size, or raise "
		 "vm.nr_hugepages",
		 want, least, have);
	return -ENOMEM;
}

int hc_pool_size_check(uint64_t size_bytes, uint64_t held_bytes, enum hc_pool_kind kind)
{
	uint64_t available_bytes, room_bytes, limit, reserve;
	char want[16], memory[16], group[16] = "no limit", keep[16], most[16];
	int rc;

	if (size_bytes <= held_bytes)
		return 0;
	if (kind == HC_POOL_HUGETLB)
		return hc_pool_size_check_hugetlb(size_bytes, held_bytes);
	rc = hc_memory_limit(&available_bytes, &room_bytes);
	if (rc)
		return rc;
	limit = hc_min_u64(available_bytes, room_bytes);
	reserve = hc_min_u64(HC_RESERVE_MOST, limit / 10);
	if (size_bytes - held_bytes <= limit - reserve)
		return 0;
	hc_size_format(size_bytes, want);
	hc_size_format(available_bytes, memory);
	if (room_bytes != UINT64_MAX)
		hc_size_format(room_bytes, group);
	hc_size_format(reserve, keep);
	hc_size_format(held_bytes + limit - reserve, most);
	hc_error("pool",
		 "pool_size %s is too large: available memory %s, room in the control group %s, "
		 "kept in reserve %s; set "
		 "pool_size to at most %s, or free memory",
		 want, memory, group, keep, most);
	return -ENOMEM;
}

uint64_t hc_pool_place_held_bytes(const char *dir)
{
	hc_autofd int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	hc_autofd int fd = -1;
	uint64_t held_bytes = 0;
	char name[16];

	if (dirfd < 0 || hc_pool_segments_open(dirfd, &fd))
		return 0;
	for (uint32_t i = 0; i < HC_TABLE_SEGMENTS_MAX; i++) {
		struct stat st;

		hc_segment_file_name(i, name);
		if (!fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode))
			held_bytes += (uint64_t)st.st_blocks * 512;
	}
	return held_bytes;
}

/* ---- pools that are left ---- */

static bool hc_pool_live(int dirfd)
{
	hc_autofd int fd = openat(dirfd, "lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	return fd >= 0 && hc_pool_lock_held(fd);
}

static bool hc_pool_found_read(const char *dir, struct hc_pool_found *found)
{
	hc_autofd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || hc_pool_text_read(fd, found->uuid, found->cachedir, sizeof(found->cachedir)))
		return false;
	if (snprintf(found->dir, sizeof(found->dir), "%s", dir) >= (int)sizeof(found->dir))
		return false;
	found->size_bytes = hc_pool_place_held_bytes(dir);
	found->live = hc_pool_live(fd);
	return true;
}

static void hc_pool_find_below(const char *root, const char *prefix, struct hc_pool_found *found,
			       size_t max, size_t *n_p)
{
	DIR *d = opendir(root);
	char dir[PATH_MAX];
	struct dirent *e;

	if (!d)
		return;
	while (*n_p < max && (e = readdir(d))) {
		if (strncmp(e->d_name, prefix, strlen(prefix)) ||
		    strlen(e->d_name) != strlen(prefix) + 36)
			continue;
		if (snprintf(dir, sizeof(dir), "%s/%s", root, e->d_name) < (int)sizeof(dir) &&
		    hc_pool_found_read(dir, &found[*n_p]))
			(*n_p)++;
	}
	closedir(d);
}

int hc_pool_find(const char *pool_path, struct hc_pool_found *found, size_t max, size_t *n_p)
{
	size_t n = 0;

	hc_pool_find_below(hc_roots.run, "", found, max, &n);
	hc_pool_find_below(hc_roots.shm, "hicachefs-", found, max, &n);
	if (pool_path && n < max && hc_pool_found_read(pool_path, &found[n]))
		n++;
	*n_p = n;
	return 0;
}

/* Takes everything of a pool out of the directory. */
static void hc_place_empty(const char *dir, int dirfd)
{
	static const char *const names[] = {"slots", "slots.new", "segments",
					    "pool",  "pool.new",  "lock"};
	char target[PATH_MAX];
	hc_autofd int segments_fd = -1;
	ssize_t n = readlinkat(dirfd, "segments", target, sizeof(target) - 1);

	if (!hc_pool_segments_open(dirfd, &segments_fd))
		hc_segment_files_remove(segments_fd, 0);
	if (n > 0) {
		target[n] = 0;
		rmdir(target);
	}
	for (size_t i = 0; i < HC_ARRAY_SIZE(names); i++)
		if (unlinkat(dirfd, names[i], 0) && errno != ENOENT)
			hc_warn("pool", "cannot remove %s/%s: %m", dir, names[i]);
}

static bool hc_place_is_ours(const char *dir)
{
	size_t run = strlen(hc_roots.run), shm = strlen(hc_roots.shm);

	return (!strncmp(dir, hc_roots.run, run) && dir[run] == '/') ||
	       (!strncmp(dir, hc_roots.shm, shm) && !strncmp(dir + shm, "/hicachefs-", 11));
}

int hc_pool_place_free(const char *dir)
{
	char uuid[37], cachedir[PATH_MAX];
	int fd = -1, lock_fd = -1;
	int rc = hc_place_open(dir, 0, &fd);

	if (rc)
		return rc;
	rc = hc_pool_text_read(fd, uuid, cachedir, sizeof(cachedir));
	if (rc) {
		hc_error("pool", "%s is not the directory of a pool", dir);
		close(fd);
		return rc == -ENOENT ? -ENOENT : -EBADMSG;
	}
	rc = hc_pool_lock_take(fd, &lock_fd);
	if (rc) {
		hc_error("pool", "the pool in %s %s", dir,
			 rc == -EBUSY ? "is in use by a running daemon; stop it first"
				      : "cannot be locked");
		close(fd);
		return rc;
	}
	hc_place_empty(dir, fd);
	close(lock_fd);
	close(fd);
	if (!hc_place_is_ours(dir))
		return 0;
	/* Lazily where somebody still looks into it; the memory is free already. */
	if (hc_is_mount_point(dir) && umount2(dir, 0) && umount2(dir, MNT_DETACH))
		hc_warn("pool", "cannot unmount %s: %m", dir);
	if (rmdir(dir) && errno != ENOENT)
		hc_warn("pool", "cannot remove %s: %m", dir);
	return 0;
}
