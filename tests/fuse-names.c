/* SPDX-License-Identifier: Apache-2.0 */
/* Directories, ordinary files, listings, attributes and what is refused. Run as root: some checks
 * act as other users. Usage: fuse-names MOUNT/SPACE [SCENARIO]; MOUNT/SPACE is empty at the
 * beginning. */
#include <dirent.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "tests/fuse-actors.h"

#define SIZE    (64l << 10)
#define MIB     (1l << 20)
#define WC      (O_WRONLY | O_CREAT)
#define WCT     (WC | O_TRUNC)
#define N_NAMES 10000

static const char *at(const char *name)
{
	static char paths[8][PATH_BYTES];
	static unsigned next;
	char *path = paths[next++ % 8];

	full_path(path, name);
	return path;
}

#define sys(call) err_of(call)

static void put(int who, const char *name, int byte, long size)
{
	long fd;

	check_open(fd, do_open(who, name, WCT));
	check(do_write(who, fd, byte, size, 0), size);
	check(do_close(who, fd), 0);
}

static void directories(void)
{
	struct stat st;

	check(sys(mkdir(at("d"), 0750)), 0);
	check(sys(mkdir(at("d"), 0750)), -EEXIST);
	check(sys(stat(at("d"), &st)), 0);
	check(st.st_mode, S_IFDIR | 0750);
	check(sys(mkdir(at("d/e"), 0755)), 0);
	check(sys(mkdir(at("d/e/f"), 0755)), 0);
	check(sys(mkdir(at("nowhere/e"), 0755)), -ENOENT);
	check(sys(rmdir(at("d/e"))), -ENOTEMPTY);
	put(A, "d/e/f/page-0123456789abcdef.bin", 'p', SIZE);
	check(sys(rmdir(at("d/e/f"))), -ENOTEMPTY);
	check(sys(rename(at("d/e/f"), at("d/g"))), -EXDEV);
	check(do_unlink(B, "d/e/f/page-0123456789abcdef.bin"), 0);
	check(sys(rename(at("d/e/f"), at("d/g"))), 0);
	check(sys(stat(at("d/e/f"), &st)), -ENOENT);
	check(sys(stat(at("d/g"), &st)), 0);
	check(sys(mkdir(at("d/h"), 0755)), 0);
	check(sys(rename(at("d/g"), at("d/h"))), 0);
	check(sys(mkdir(at("d/g"), 0755)), 0);
	put(A, "d/h/note", 'n', 10);
	check(sys(rename(at("d/g"), at("d/h"))), -ENOTEMPTY);
	check(sys(rename(at("d/g"), at("d/h/note"))), -ENOTDIR);
	check(sys(rename(at("d/h/note"), at("d/g"))), -EISDIR);
	check(sys(unlink(at("d/g"))), -EISDIR);
	check(sys(rmdir(at("d/h/note"))), -ENOTDIR);
	check(sys(rmdir(at("d/absent"))), -ENOENT);
	check(do_open(A, "d/g", WC), -EISDIR);
	check(do_unlink(A, "d/h/note"), 0);
	check(sys(rmdir(at("d/h"))), 0);
	check(sys(rmdir(at("d/g"))), 0);
	check(sys(rmdir(at("d/e"))), 0);
	check(sys(rmdir(at("d"))), 0);
	check(sys(stat(at("d"), &st)), -ENOENT);
	check(sys(mkdir(at("d"), 0755)), 0);
	check(sys(rmdir(at("d"))), 0);
}

static void refused(void)
{
	char name[300], target[PATH_BYTES];

	put(A, "note", 'n', 10);
	check(sys(link(at("note"), at("other"))), -EPERM);
	check(sys(symlink("note", at("other"))), -EPERM);
	check(sys(mknod(at("other"), S_IFIFO | 0644, 0)), -EPERM);
	check(sys(mknod(at("other"), S_IFCHR | 0644, makedev(1, 3))), -EPERM);
	check(sys(setxattr(at("note"), "trusted.x", "1", 1, 0)), -EOPNOTSUPP);
	check(sys(getxattr(at("note"), "security.capability", name, sizeof(name))), -EOPNOTSUPP);
	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	check(do_open(A, name, WC), -ENAMETOOLONG);
	check(do_stat(A, name), -ENAMETOOLONG);
	name[255] = '\0';
	put(A, name, 'l', 10);
	check(do_stat(B, name), 0);
	check(do_unlink(B, name), 0);
	full_path(target, "../.hicache");
	check(sys(mkdir(target, 0755)), -EEXIST);
	check(sys(rmdir(target)), -EPERM);
	check(sys(rename(target, at("x"))), -EPERM);
	check(do_open(A, "../.hicache", WC), -EISDIR);
	check(do_open(A, "../.hicache/new", WC), -EACCES);
	check(do_unlink(A, "../.hicache/version"), -EPERM);
	check(do_unlink(A, "note"), 0);
}

/* Ordinary files: seen at once, shared by their writers, rewritable. */
static void ordinary(void)
{
	unsigned char *map;
	struct stat st;
	long f, g;
	int fd;

	check_open(f, do_open(A, "config.json", WC | O_EXCL));
	check(do_stat(B, "config.json"), 0);
	check(do_write(A, f, 'a', 100, 0), 100);
	check(do_stat(B, "config.json"), 0);
	check_value(100);
	check(do_get(B, "config.json"), 100);
	check_value('a');
	check_open(g, do_open(B, "config.json", O_RDWR));
	check(do_write(B, g, 'b', 100, 100), 100);
	check(do_fstat(A, f), 0);
	check_value(200);
	check(do_write(A, f, 'b', 100, 0), 100);
	check(do_read(B, g, 300, 0), 200);
	check_value('b');
	check(do_truncate(A, f, 50), 0);
	check(do_stat(C, "config.json"), 0);
	check_value(50);
	check(do_fsync(A, f), 0);
	check(do_close(A, f), 0);
	check(do_close(B, g), 0);
	check(do_open(B, "config.json", WC | O_EXCL), -EEXIST);
	/* appends meet at the end, whoever makes them */
	check_open(f, do_open(A, "log", WC | O_APPEND));
	check_open(g, do_open(B, "log", WC | O_APPEND));
	for (int i = 0; i < 50; i++) {
		check(do_write(A, f, 'l', 10, 0), 10);
		check(do_write(B, g, 'l', 10, 0), 10);
	}
	check(do_close(A, f), 0);
	check(do_close(B, g), 0);
	check(do_get(C, "log"), 1000);
	check_value('l');
	check(do_rename(A, "log", "config.json"), 0);
	check(do_get(C, "config.json"), 1000);
	check_value('l');
	check(do_stat(C, "log"), -ENOENT);
	fd = open(at("config.json"), O_RDONLY);
	map = mmap(NULL, 1000, PROT_READ, MAP_SHARED, fd, 0);
	check(map == MAP_FAILED, 0);
	if (map != MAP_FAILED) {
		check(uniform(map, 1000), 'l');
		munmap(map, 1000);
	}
	/* unlinked while it is read */
	check(do_unlink(B, "config.json"), 0);
	check(sys(fstat(fd, &st)), 0);
	check(st.st_size, 1000);
	close(fd);
	check(do_stat(B, "config.json"), -ENOENT);
}

/* An ordinary name above 1 MiB is a page; what shrinks again is a file again. */
static void outgrown(void)
{
	long f, g;

	check_open(f, do_open(A, "weights", WCT));
	check(do_write(A, f, 'w', MIB, 0), MIB);
	check_open(g, do_open(B, "weights", O_RDONLY));
	check(do_write(A, f, 'w', MIB, MIB), MIB);
	check(do_stat(C, "weights"), 0);
	check_value(2 * MIB);
	check(do_read(B, g, 2 * MIB, 0), 2 * MIB);
	check_value('w');
	check(do_close(A, f), 0);
	check(do_read(B, g, 2 * MIB, 0), 2 * MIB);
	check_value('w');
	check(do_close(B, g), 0);
	check(do_get(C, "weights"), 2 * MIB);
	check_value('w');
	put(B, "weights", 'v', 3 * MIB);
	check(do_get(C, "weights"), 3 * MIB);
	check_value('v');
	put(C, "weights", 's', 10);
	check(do_get(A, "weights"), 10);
	check_value('s');
	check(do_unlink(A, "weights"), 0);
	check(do_stat(B, "weights"), -ENOENT);
	check_open(f, do_open(A, "shrinks", WCT));
	check(do_write(A, f, 'x', 2 * MIB, 0), 2 * MIB);
	check(do_truncate(A, f, 100), 0);
	check(do_close(A, f), 0);
	check(do_get(B, "shrinks"), 100);
	check_value('x');
	/* unlinked while it is written, it grows on */
	check_open(f, do_open(A, "shrinks", O_RDWR));
	check(do_unlink(B, "shrinks"), 0);
	check(do_write(A, f, 'x', 2 * MIB, 0), 2 * MIB);
	check(do_read(A, f, 3 * MIB, 0), 2 * MIB);
	check_value('x');
	check(do_close(A, f), 0);
	check(do_stat(B, "shrinks"), -ENOENT);
}

struct count {
	long names, files, wrong;
};

/* Every entry once; types told without a stat. */
static struct count list(const char *dir, bool unlinking)
{
	struct count c = {0};
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.' && (!e->d_name[1] || e->d_name[1] == '.'))
			continue;
		c.names++;
		c.files += e->d_type == DT_REG;
		c.wrong += e->d_type != DT_REG && e->d_type != DT_DIR;
		if (unlinking && unlinkat(dirfd(d), e->d_name, 0))
			c.wrong++;
	}
	if (d)
		closedir(d);
	return c;
}

static void many(void)
{
	char name[PATH_BYTES];
	struct stat st;
	struct count c;
	int fd;

	check(sys(mkdir(at("many"), 0755)), 0);
	for (unsigned i = 0; i < N_NAMES; i++) {
		snprintf(name, sizeof(name), "%s/%s", at("many"), page_name(i));
		fd = open(name, WCT, 0644);
		if (fd < 0 || write(fd, name, 100) != 100 || close(fd)) {
			check(-errno, 0);
			break;
		}
	}
	/* the last RELEASE may be on its way */
	check(sys(stat(name, &st)), 0);
	c = list(at("many"), false);
	check(c.names, N_NAMES);
	check(c.files, N_NAMES);
	check(c.wrong, 0);
	check(sys(rmdir(at("many"))), -ENOTEMPTY);
	c = list(at("many"), true);
	check(c.names, N_NAMES);
	check(c.wrong, 0);
	c = list(at("many"), false);
	check(c.names, 0);
	check(sys(rmdir(at("many"))), 0);
}

/* Positions are good for as long as the directory is open, also those of names that are pieces
 * apart; names that go meanwhile change no other's; from the beginning again it is the present. */
#define N_PLACED 3000

static char placed[N_PLACED + 3][80];
static long places[N_PLACED + 3];

static long place_all(DIR *d)
{
	struct dirent *e;
	long n = 0;

	for (;;) {
		places[n] = telldir(d);
		e = readdir(d);
		if (!e || n == N_PLACED + 2)
			return n;
		snprintf(placed[n++], sizeof(placed[0]), "%s", e->d_name);
	}
}

static bool is_at(DIR *d, long i)
{
	struct dirent *e;

	seekdir(d, places[i]);
	e = readdir(d);
	return e && !strcmp(e->d_name, placed[i]);
}

static void positions(void)
{
	char name[PATH_BYTES];
	struct stat st;
	DIR *d;
	long n;

	check(sys(mkdir(at("placed"), 0755)), 0);
	for (unsigned i = 0; i < N_PLACED; i++) {
		int fd;

		snprintf(name, sizeof(name), "%s/%s", at("placed"), page_name(i));
		fd = open(name, WCT, 0644);
		if (fd < 0 || write(fd, name, 100) != 100 || close(fd)) {
			check(-errno, 0);
			break;
		}
	}
	check(sys(stat(name, &st)), 0);
	d = opendir(at("placed"));
	check(d != NULL, 1);
	/* A jump ahead of everything that was read is a position, too. */
	n = place_all(d);
	check(n, N_PLACED + 2);
	for (long i = 0; i < n; i += 7)
		check(is_at(d, (i * 1009) % n), 1);
	/* Every third name goes; those that stay are where they were. */
	for (long i = 2; i < n; i += 3)
		check(sys(unlinkat(dirfd(d), placed[i], 0)), 0);
	for (long i = 0; i < n; i += 3)
		check(is_at(d, (n - 1 - i) / 3 * 3), 1);
	rewinddir(d);
	check(place_all(d), n - N_PLACED / 3);
	closedir(d);
	check(list(at("placed"), true).wrong, 0);
	check(sys(rmdir(at("placed"))), 0);
}

static void attributes(void)
{
	const struct timespec times[2] = {{1000, 0}, {2000, 500}};
	const char *p = page_name(77);
	struct stat st;
	pid_t pid;
	int status;

	umask(027);
	check(sys(close(open(at("note"), WC, 0666))), 0);
	umask(022);
	check(sys(stat(at("note"), &st)), 0);
	check(st.st_mode, S_IFREG | 0640);
	put(A, p, 'a', SIZE);
	check(sys(stat(at(p), &st)), 0);
	check(st.st_mode, S_IFREG | 0644);
	check(st.st_nlink, 1);
	check(st.st_blocks, SIZE / 512);
	check(st.st_blksize, 4096);
	check(sys(utimensat(AT_FDCWD, at(p), times, 0)), 0);
	check(sys(chmod(at(p), 04600)), 0);
	check(sys(chown(at(p), 1234, 4321)), 0);
	check(sys(stat(at(p), &st)), 0);
	check(st.st_mode, S_IFREG | 0600);
	check(st.st_uid, 1234);
	check(st.st_gid, 4321);
	check(st.st_mtim.tv_sec, 2000);
	check(st.st_mtim.tv_nsec, 500);
	/* a touch renews its place, not its time of publish */
	check(sys(utimensat(AT_FDCWD, at(p), NULL, 0)), 0);
	check(sys(truncate(at(p), SIZE)), 0);
	check(sys(truncate(at(p), 10)), -EPERM);
	check(do_get(B, p), SIZE);
	/* others act as themselves */
	check(sys(mkdir(at("theirs"), 0755)), 0);
	check(sys(chown(at("theirs"), 1234, 4321)), 0);
	check(sys(chmod(at("theirs"), 02755)), 0);
	pid = fork();
	if (!pid) {
		if (setgid(1234) || setuid(1234))
			_exit(99);
		check(open(at(p), O_RDONLY) < 0, 0);
		check(sys(open(at("new-here"), WC, 0644)), -EACCES);
		check(sys(mkdir(at("theirs/sub"), 0700)), 0);
		check(open(at("theirs/mine"), WC, 0644) < 0, 0);
		check(sys(unlink(at("note"))), -EACCES);
		_exit(n_failed != 0);
	}
	waitpid(pid, &status, 0);
	check(status, 0);
	check(sys(stat(at("theirs/mine"), &st)), 0);
	check(st.st_uid, 1234);
	check(st.st_gid, 4321);
	check(sys(stat(at("theirs/sub"), &st)), 0);
	check(st.st_mode, S_IFDIR | 02700);
	check(sys(unlink(at("theirs/mine"))), 0);
	check(sys(rmdir(at("theirs/sub"))), 0);
	check(sys(rmdir(at("theirs"))), 0);
	check(do_unlink(B, p), 0);
	check(do_unlink(B, "note"), 0);
}

/* A name that was looked up in vain is there as soon as somebody has made it, in whatever way. */
static void negatives(void)
{
	char t[PATH_BYTES];
	long f;

	for (unsigned i = 0; i < 100; i++) {
		const char *p = page_name(300 + i), *q = page_name(500 + i);

		check(do_access(B, p), -ENOENT);
		check(do_access(B, p), -ENOENT);
		put(A, p, 'a', SIZE);
		check(do_get(B, p), SIZE);
		check(do_access(C, q), -ENOENT);
		snprintf(t, sizeof(t), "%s.tmp", q);
		check_open(f, do_open(A, t, WCT));
		check(do_write(A, f, 'b', SIZE, 0), SIZE);
		check(do_close(A, f), 0);
		check(do_rename(A, t, q), 0);
		check(do_get(C, q), SIZE);
		check(do_unlink(C, q), 0);
		check(do_access(B, q), -ENOENT);
		check(do_unlink(C, p), 0);
	}
	check(do_access(B, "late"), -ENOENT);
	check(sys(mkdir(at("late"), 0755)), 0);
	check(do_access(B, "late"), 0);
	check(sys(rmdir(at("late"))), 0);
	check(do_access(B, "late"), -ENOENT);
}

static const struct {
	const char *name;
	void (*run)(void);
} scenarios[] = {
	{"directories", directories}, {"refused", refused},     {"ordinary", ordinary},
	{"outgrown", outgrown},       {"many", many},           {"attributes", attributes},
	{"positions", positions},     {"negatives", negatives},
};

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: fuse-names DIRECTORY [SCENARIO]\n");
		return 2;
	}
	umask(022);
	actors_start(argv[1]);
	for (unsigned i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		int before = n_failed;

		if (argc > 2 && strcmp(argv[2], scenarios[i].name) != 0)
			continue;
		scenarios[i].run();
		printf("%s %s\n", n_failed == before ? "ok" : "not ok", scenarios[i].name);
		fflush(stdout);
	}
	return actors_end();
}
