/* SPDX-License-Identifier: Apache-2.0 */
/* Cases about names and directories: cached look-ups (point 5), listings (6), room (7), what goes
 * away and what is left over (8), times (9), what is kept (11), owners and modes (14). */
#include <dirent.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <utime.h>

#include "tests/contract.h"

static const char *page_path(const char *what, unsigned i)
{
	return at("%s_%s.bin", hash_of(i), what);
}

static const char *space_name(void)
{
	return strrchr(t.dir, '/') + 1;
}

/* --- point 5 --- */

#define N_ASKED 2000

/* The daemon is asked about a name once, whether it is there or not; a publish is seen at once. */
static void cached_lookups(void)
{
	const char *there = page_path("cached", 1), *absent = page_path("cached", 2);
	long before;

	check(store_file(there, 0, 0644, 64 * KIB, 1), 0);
	unlink(absent);
	check(access(there, F_OK), 0);
	check(access(absent, F_OK), -1);
	before = stat_line("lookups");
	for (int i = 0; i < N_ASKED; i++) {
		check(access(there, F_OK), 0);
		check(access(absent, F_OK), -1);
	}
	/* the stats file itself is looked up, and the kernel may forget under pressure */
	check_true(stat_line("lookups") - before < N_ASKED / 10);
}

static void publisher(int who, void *arg)
{
	for (unsigned i = 0; i < 40; i++) {
		const char *path = page_path((const char *)arg, 1000 + i % 10);
		char temp[PATH_BYTES + 8];
		bool by_rename = i & 1;

		if (who == 0)
			unlink(path);
		meet(2);
		if (who == 1)
			check(access(path, F_OK), -1);
		meet(2);
		if (who == 0) {
			snprintf(temp, sizeof(temp), "%s.tmp", path);
			check(store_file(by_rename ? temp : path, 0, 0644, 64 * KIB, i), 0);
			if (by_rename)
				check(err_of(rename(temp, path)), 0);
		}
		meet(2);
		if (who == 1)
			check(access(path, F_OK), 0);
		meet(2);
	}
}

/* What was absent a moment ago, and cached as that, is there once another process has published. */
static void publish_ends_absence(void)
{
	in_processes(2, publisher, (void *)(uintptr_t) "fresh");
}

/* --- point 6 --- */

static long number_of_env(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? strtol(text, NULL, 10) : otherwise;
}

struct listed {
	long pages, dirs, files, others;
};

struct linux_dirent64 {
	uint64_t d_ino;
	int64_t d_off;
	unsigned short d_reclen;
	unsigned char d_type;
	char d_name[];
};

/* getdents64 as it comes, so that d_type is the file system's own; unlinks what it lists. */
static struct listed list(const char *dir, bool unlinks)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	static char buf[32 * KIB];
	struct listed n = {0};
	long got;

	check_true(fd >= 0);
	while ((got = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0) {
		for (long i = 0; i < got;) {
			const struct linux_dirent64 *d = (const void *)(buf + i);

			i += d->d_reclen;
			if (d->d_type == DT_DIR)
				n.dirs += d->d_name[0] != '.';
			else if (d->d_type != DT_REG)
				n.others++;
			else if (strstr(d->d_name, ".bin"))
				n.pages++;
			else
				n.files++;
			if (unlinks && d->d_type == DT_REG)
				check(unlinkat(fd, d->d_name, 0), 0);
		}
	}
	check(err_of(got), 0);
	close(fd);
	return n;
}

/* d_type of every kind; a flat directory of many names; SGLang's clear: listing and unlinking. */
static void listings(void)
{
	long n_names = number_of_env("HC_CONTRACT_NAMES", 1500);
	char dir[PATH_BYTES];
	struct listed n;

	snprintf(dir, sizeof(dir), "%s", at("listed"));
	check(mkdir(dir, 0755), 0);
	check(mkdir(at("listed/subdir"), 0755), 0);
	check(store_file(at("listed/config.json"), 0, 0644, 64, 1), 0);
	for (long i = 0; i < n_names; i++)
		check(store_file(at("listed/%s.bin", hash_of((unsigned)i)), 0, 0644, 64, 1), 0);
	n = list(dir, false);
	check(n.pages, n_names);
	check(n.dirs, 1);
	check(n.files, 1);
	check(n.others, 0);
	n = list(dir, true);
	check(n.pages, n_names);
	n = list(dir, false);
	check(n.pages + n.files, 0);
	check(n.dirs, 1);
	check(err_of(rmdir(at("listed/subdir"))), 0);
	check(err_of(rmdir(dir)), 0);
}

/* --- point 7 --- */

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	return fd >= 0 && close(fd) == 0 && ok;
}

/* The unit of O_DIRECT is 4096 for LMCache; blocks are the quota of this directory. */
static void room_of_directory(void)
{
	const char *quota = beside(".hicache/spaces/%s/quota", space_name());
	struct statvfs before, st;

	check(statvfs(t.dir, &st), 0);
	check(st.f_bsize, UNIT);
	check(st.f_frsize, UNIT);
	check(st.f_namemax, 255);
	check_true(st.f_blocks > 0 && st.f_bavail <= st.f_blocks);
	if (!t.mount)
		return;
	check_true(write_text(quota, "4G\n"));
	/* what others take back meanwhile is not counted against it */
	for (unsigned i = 0; i < 10; i++) {
		unlink(page_path("room", 3));
		check(statvfs(t.dir, &before), 0);
		check(before.f_blocks, (4l << 30) / UNIT);
		check(store_file(page_path("room", 3), 0, 0644, 8 * MIB, 1), 0);
		check(statvfs(t.dir, &st), 0);
		if (before.f_bavail - st.f_bavail == 8 * MIB / UNIT)
			break;
	}
	check((long)(before.f_bavail - st.f_bavail), 8 * MIB / UNIT);
	unlink(page_path("room", 3));
	check_true(write_text(quota, "0\n"));
}

/* --- point 8 --- */

/* Open, mapped or just stored: the name goes; empty shards can go, others say why they cannot. */
static void unlink_and_rmdir(void)
{
	const char *path = at("shard/1b/%s.bin", hash_of(4));
	int fd;

	check(make_parents(path, 0755), 0);
	check(store_file(path, 0, 0644, MIB, 1), 0);
	check(err_of(rmdir(at("shard/1b"))), -ENOTEMPTY);
	open_or_return(fd, open(path, O_RDONLY | O_CLOEXEC));
	check(err_of(unlink(path)), 0);
	check(err_of(unlink(path)), -ENOENT);
	check(err_of(rmdir(at("shard/1b"))), 0);
	check(err_of(rmdir(at("shard"))), 0);
	check(close_of(fd), 0);
}

/* A crash's leftovers, one of each kind of name. */
#define N_LEFT 5

static const char *leftover(unsigned i)
{
	const char *hash = hash_of(5);

	switch (i) {
	case 0:
		return at("%s_4611686018427387904.tmp", hash);
	case 1:
		return at("%s.tmp.7.8.0123abcd", hash);
	case 2:
		return at("%s.tmp0badcafe", hash);
	case 3:
		return at(".%.32s.tmp", hash);
	default:
		return at(".tmp/%s.data", hash);
	}
}

static void leave(int who, void *arg)
{
	for (unsigned i = 0; i < N_LEFT; i++)
		check(store_file(leftover(i), O_EXCL, 0644, MIB, 1), 0);
}

static unsigned n_left(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < N_LEFT; i++)
		n += access(leftover(i), F_OK) == 0;
	return n;
}

/* In the way of the same thread (vLLM: EEXIST), no page, no part of the usage; reaped by gc when
 * their process is gone. */
static void leftovers(void)
{
	time_t end = time(NULL) + 40;
	struct statvfs before, st;
	char answer[4096];
	long n_pages;

	mkdir(at(".tmp"), 0777);
	check_true(command("sync", answer, sizeof(answer)));
	n_pages = stat_line("n_pages");
	check(statvfs(t.dir, &before), 0);
	in_processes(1, leave, NULL);
	check(n_left(), N_LEFT);
	for (unsigned i = 0; i < N_LEFT; i++)
		check(store_file(leftover(i), O_EXCL, 0644, MIB, 1), -EEXIST);
	check(stat_line("n_pages"), n_pages);
	check(statvfs(t.dir, &st), 0);
	check((long)(before.f_bavail - st.f_bavail), 0);
	do {
		if (!command("gc", answer, sizeof(answer)))
			failed("gc: %s", answer);
	} while (n_left() && time(NULL) < end);
	check(n_left(), 0);
	check(access(at(".tmp"), F_OK), 0);
}

/* LMCache's salts may have 128 bytes; in-process keys may be short and begin with a minus. */
static void names_to_255_bytes(void)
{
	static const char *const keys[] = {"m@1@0@-7f3a9b21@half", "m@1@0@1f@bfloat16",
					   "m@1@0@-8000000000000000@half"};
	char name[256];
	int n = snprintf(name, sizeof(name), "org-SEP-m@0x00010000@0@%s@", hash_of(6));

	memset(name + n, 's', sizeof(name) - (size_t)n);
	memcpy(name + 250, ".data", 6);
	check(store_file(at("%s", name), 0, 0644, MIB, 80), 0);
	check_page(load_file(at("%s", name), 0, MIB), 80);
	name[254] = 'b';
	check(store_file(at("%sx", name), 0, 0644, 64, 1), -ENAMETOOLONG);
	for (unsigned i = 0; i < 3; i++) {
		check(store_file(at("%s.pt", keys[i]), 0, 0644, 3000, 81 + i), 0);
		check_page(load_file(at("%s.pt", keys[i]), 0, 3000), 81 + i);
		check(unlink(at("%s.pt", keys[i])), 0);
	}
}

/* --- point 9 --- */

static void touches(void)
{
	const struct timespec atime_only[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
	const struct timespec old[2] = {{1000000000, 0}, {0, UTIME_OMIT}};
	const char *path = page_path("touched", 7);
	struct stat made, st;
	char byte;
	int fd;

	check(store_file(path, 0, 0644, MIB, 1), 0);
	check(stat(path, &made), 0);
	check(err_of(utimensat(AT_FDCWD, path, old, 0)), 0);
	/* llm-d, then UCM, then a read */
	check(err_of(utimensat(AT_FDCWD, path, atime_only, 0)), 0);
	check(stat(path, &st), 0);
	check_true(st.st_atim.tv_sec >= made.st_mtim.tv_sec);
	check(st.st_mtim.tv_sec, made.st_mtim.tv_sec);
	check(st.st_mtim.tv_nsec, made.st_mtim.tv_nsec);
	check(err_of(utime(path, NULL)), 0);
	open_or_return(fd, open(path, O_RDONLY | O_CLOEXEC));
	check(read(fd, &byte, 1), 1);
	check(close_of(fd), 0);
	check(stat(path, &st), 0);
	check_true(st.st_atim.tv_sec >= made.st_mtim.tv_sec);
	check_page(load_file(path, 0, MIB), 1);
}

/* --- point 11 --- */

/* Directories made once stay while they are empty, whatever is evicted or collected. */
static void empty_directories_stay(void)
{
	char answer[4096], page[PATH_BYTES];

	snprintf(page, sizeof(page), "%s", at("shards/1c/%s.bin", hash_of(8)));
	for (unsigned i = 0; i < 64; i++) {
		mkdir(at("shards"), 0755);
		if (mkdir(at("shards/%02x", i), 0755))
			check(-errno, -EEXIST);
	}
	mkdir(at("shards/.tmp"), 0755);
	check(store_file(page, 0, 0644, MIB, 1), 0);
	check_page(load_file(page, 0, MIB), 1);
	evict_space();
	check_true(command("gc", answer, sizeof(answer)));
	/* the kernel learns of an eviction a moment later; an open() is told at once */
	check(load_file(page, 0, MIB), -ENOENT);
	for (unsigned i = 0; i < 64; i++)
		check(access(at("shards/%02x", i), F_OK), 0);
	check(access(at("shards/.tmp"), F_OK), 0);
	check(store_file(page, 0, 0644, MIB, 2), 0);
	check_page(load_file(page, 0, MIB), 2);
}

/* config.json, probes: written, rewritten in place, appended to, never evicted. */
static void small_files_stay(void)
{
	const char *path = at("model/config.json");
	char answer[4096], text[64];
	int fd;

	check(make_parents(path, 0755), 0);
	check(store_file(path, 0, 0644, 500, 1), 0);
	check(store_file(path, 0, 0644, 300, 2), 0);
	open_or_return(fd, open(path, O_WRONLY | O_APPEND | O_CLOEXEC));
	check(write(fd, "{}\n", 3), 3);
	check(close_of(fd), 0);
	if (t.mount) {
		evict_space();
		check_true(command("gc", answer, sizeof(answer)));
	}
	open_or_return(fd, open(path, O_RDONLY | O_CLOEXEC));
	check(pread(fd, text, sizeof(text), 300), 3);
	check(memcmp(text, "{}\n", 3), 0);
	check(close_of(fd), 0);
}

/* --- point 14 --- */

static void modes(void)
{
	static const mode_t asked[] = {0644, 0600, 0444, 0755};
	mode_t mask = umask(0);
	struct stat st;

	for (unsigned i = 0; i < 4; i++) {
		const char *path = page_path("mode", 100 + i);
		const char *file = at("mode%u.json", i);
		int fd;

		unlink(path);
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, asked[i]);
		check_true(fd >= 0);
		check(write(fd, path, 40), 40);
		check(close_of(fd), 0);
		check(stat(path, &st), 0);
		check(st.st_mode & 07777, asked[i]);
		check(err_of(chmod(path, 0640)), 0);
		check(stat(path, &st), 0);
		check(st.st_mode & 07777, 0640);
		unlink(file);
		check(store_file(file, 0, asked[i], 64, 1), 0);
		check(stat(file, &st), 0);
		check(st.st_mode & 07777, asked[i]);
		check(unlink(file), 0);
	}
	umask(022);
	unlink(page_path("mode", 110));
	check(store_file(page_path("mode", 110), 0, 0666, MIB, 1), 0);
	check(stat(page_path("mode", 110), &st), 0);
	check(st.st_mode & 07777, 0644);
	umask(mask);
}

#define OTHER_UID 65534

/* An engine of another user: its files are its own; what it may not, the kernel refuses. */
static void other_user(int who, void *arg)
{
	const char *mine = at("users/%s_theirs.bin", hash_of(9));
	const char *roots = (const char *)arg;
	struct stat st;

	if (setgid(OTHER_UID) || setuid(OTHER_UID)) {
		failed("setuid: %s", strerror(errno));
		return;
	}
	check(store_file(mine, 0, 0600, MIB, 90 + (unsigned)who), 0);
	check(stat(mine, &st), 0);
	check(st.st_uid, OTHER_UID);
	check(st.st_gid, OTHER_UID);
	check_page(load_file(mine, 0, MIB), 90 + (unsigned)who);
	check(open(roots, O_RDONLY) < 0 ? -errno : 0, -EACCES);
	check(open(roots, O_WRONLY | O_TRUNC) < 0 ? -errno : 0, -EACCES);
	check(store_file(at("roots.json"), 0, 0644, 64, 1), -EACCES);
}

static void owners(void)
{
	char roots[PATH_BYTES];

	if (geteuid() != 0) {
		skip_case("needs root");
		return;
	}
	snprintf(roots, sizeof(roots), "%s", page_path("roots", 10));
	unlink(roots);
	check(store_file(roots, 0, 0600, MIB, 1), 0);
	mkdir(at("users"), 0777);
	check(err_of(chmod(at("users"), 01777)), 0);
	check(err_of(chmod(t.dir, 0755)), 0);
	in_processes(1, other_user, roots);
	check(err_of(unlink(at("users/%s_theirs.bin", hash_of(9)))), 0);
}

const struct contract_case name_cases[] = {
	{5, "cached_lookups", cached_lookups, NULL, OURS, false},
	{5, "publish_ends_absence", publish_ends_absence, NULL, NOT_FULL, false},
	{6, "listings", listings, NULL, NOT_FULL, false},
	{7, "room_of_directory", room_of_directory, NULL, NOT_FULL, false},
	{8, "unlink_and_rmdir", unlink_and_rmdir, NULL, NOT_FULL, false},
	{8, "leftovers_are_reaped", leftovers, NULL, OURS, false},
	{8, "names_to_255_bytes", names_to_255_bytes, NULL, NOT_FULL, false},
	{9, "touches", touches, NULL, NOT_FULL, false},
	{11, "empty_directories_stay", empty_directories_stay, NULL, OURS, false},
	{11, "small_files_stay", small_files_stay, NULL, NOT_FULL, false},
	{14, "modes_as_asked", modes, NULL, NOT_FULL, false},
	{14, "owners", owners, NULL, NOT_FULL, false},
	{.name = NULL},
};
