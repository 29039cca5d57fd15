/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of a mount whoever uses it: rights of other users, single calls of 64 MiB, very
 * many open files, longest names, threads that race in one directory, signals and killed clients.
 * Run as root. Usage: fuse-hold MOUNT/SPACE CASE [NAME]; tests/test-mount-hold.sh says with which
 * options of the mount. */
#include <dirent.h>
#include <grp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>

#include "tests/fuse-actors.h"

#define MIB       (1l << 20)
#define WCT       (O_WRONLY | O_CREAT | O_TRUNC)
#define BIG_BYTES (64 * MIB)
#define N_MANY    10000

#define sys(call) err_of(call)

static const char *at(const char *name)
{
	static _Thread_local char paths[8][PATH_BYTES];
	static _Thread_local unsigned next;
	char *path = paths[next++ % 8];

	full_path(path, name);
	return path;
}

static void put(const char *name, int byte, size_t n, mode_t mode)
{
	unsigned char *buf = malloc(n);
	long fd;

	memset(buf, byte, n);
	check_open(fd, sys(open(at(name), WCT, mode)));
	if (fd >= 0) {
		check(sys(write((int)fd, buf, n)), (long)n);
		check(sys(close((int)fd)), 0);
	}
	free(buf);
}

static void get(const char *name, int byte, long n)
{
	long value = -1;

	check(get_file(at(name), &value), n);
	check(value, byte);
}

/* --- rights --- */

static int as_user(unsigned uid, void (*run)(void))
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		if (setgroups(0, NULL) || setgid(uid) || setuid(uid))
			_exit(99);
		n_failed = 0;
		run();
		_exit(n_failed != 0);
	}
	waitpid(pid, &status, 0);
	return status;
}

static void check_owner(const char *name, unsigned uid, unsigned gid, unsigned mode)
{
	struct stat st = {0};

	check(sys(stat(at(name), &st)), 0);
	check(st.st_uid, uid);
	check(st.st_gid, gid);
	check(st.st_mode & 07777, mode);
}

#define PAGE_1234  "sticky/1234aaaaaaaaaaaaaaaaaaaaaaaaaaaa.bin"
#define PAGE_1234B "sticky/1234bbbbbbbbbbbbbbbbbbbbbbbbbbbb.bin"
#define PAGE_65534 "sticky/65534ccccccccccccccccccccccccccc.bin"

static void user_1234_makes(void)
{
	umask(022);
	put(PAGE_1234, '1', 65536, 0644);
	put("sticky/note-1234", 'n', 100, 0644);
	put("sticky/secret-1234", 's', 100, 0600);
	put("open/1234dddddddddddddddddddddddddddd.bin", 'd', 65536, 0644);
	check(sys(mkdir(at("sticky/dir-1234"), 0755)), 0);
	check_owner(PAGE_1234, 1234, 1234, 0644);
	check_owner("sticky/note-1234", 1234, 1234, 0644);
	check_owner("sticky/dir-1234", 1234, 1234, 0755);
	/* a temporary, then renamed: the owner stays */
	put("sticky/1234bbbbbbbbbbbbbbbbbbbbbbbbbbbb.bin.tmp.1.2", 'b', 65536, 0640);
	check(sys(rename(at("sticky/1234bbbbbbbbbbbbbbbbbbbbbbbbbbbb.bin.tmp.1.2"),
			 at(PAGE_1234B))),
	      0);
	check_owner(PAGE_1234B, 1234, 1234, 0640);
}

static void user_65534_tries(void)
{
	const struct timespec times[2] = {{1000, 0}, {2000, 0}};
	long value;

	umask(022);
	/* others' names of a sticky directory */
	check(sys(unlink(at(PAGE_1234))), -EPERM);
	check(sys(unlink(at("sticky/note-1234"))), -EPERM);
	check(sys(rmdir(at("sticky/dir-1234"))), -EPERM);
	check(sys(rename(at(PAGE_1234), at("sticky/mine"))), -EPERM);
	check(sys(rename(at("sticky/note-1234"), at("sticky/mine"))), -EPERM);
	check(sys(rename(at("sticky/dir-1234"), at("sticky/mine"))), -EPERM);
	put(PAGE_65534, 'c', 65536, 0644);
	put("sticky/65534.tmp", 't', 65536, 0644);
	check(sys(rename(at(PAGE_65534), at(PAGE_1234))), -EPERM);
	check(sys(rename(at("sticky/65534.tmp"), at(PAGE_1234))), -EPERM);
	check(sys(rename(at("sticky/65534.tmp"), at("sticky/note-1234"))), -EPERM);
	check(sys(unlink(at("sticky/65534.tmp"))), 0);
	/* of nobody's who is asked */
	check(sys(chmod(at(PAGE_1234), 0666)), -EPERM);
	check(sys(chmod(at("sticky/note-1234"), 0666)), -EPERM);
	check(sys(chown(at(PAGE_1234), 65534, 65534)), -EPERM);
	check(sys(chown(at("sticky/note-1234"), 65534, 65534)), -EPERM);
	check(sys(chown(at(PAGE_65534), 1234, (gid_t)-1)), -EPERM);
	check(sys(utimensat(AT_FDCWD, at(PAGE_1234), times, 0)), -EPERM);
	/* contents */
	get(PAGE_1234, '1', 65536);
	get("sticky/note-1234", 'n', 100);
	check(get_file(at("sticky/secret-1234"), &value), -EACCES);
	check(get_file(at(PAGE_1234B), &value), -EACCES);
	check(sys(open(at(PAGE_1234), O_WRONLY)), -EACCES);
	check(sys(open(at(PAGE_1234), WCT, 0644)), -EACCES);
	check(sys(open(at("sticky/note-1234"), O_RDWR)), -EACCES);
	check(sys(truncate(at("sticky/note-1234"), 0)), -EACCES);
	check(sys(access(at(PAGE_1234), W_OK)), -EACCES);
	check(sys(access(at(PAGE_1234), R_OK)), 0);
	/* a directory that all may write: its names are everybody's */
	check(sys(rename(at("open/1234dddddddddddddddddddddddddddd.bin"),
			 at("open/1234eeeeeeeeeeeeeeeeeeeeeeeeeeee.bin"))),
	      0);
	check_owner("open/1234eeeeeeeeeeeeeeeeeeeeeeeeeeee.bin", 1234, 1234, 0644);
	check(sys(unlink(at("open/1234eeeeeeeeeeeeeeeeeeeeeeeeeeee.bin"))), 0);
	/* one that is not ours */
	check(sys(open(at("closed/new"), WCT, 0644)), -EACCES);
	check(sys(open(at("closed/65534fffffffffffffffffffffffffff.bin"), WCT, 0644)), -EACCES);
	check(sys(mkdir(at("closed/new"), 0755)), -EACCES);
	check(sys(unlink(at("closed/note"))), -EACCES);
	check(sys(rename(at("closed/note"), at("open/note"))), -EACCES);
	check(sys(rename(at(PAGE_65534), at("closed/65534fffffffffffffffffffffffffff.bin"))),
	      -EACCES);
	get("closed/note", 'r', 100);
	check(sys(open(at("hidden/note"), O_RDONLY)), -EACCES);
	check(sys(access(at("hidden/note"), F_OK)), -EACCES);
	/* setgid: the group is the directory's, a directory is setgid, too */
	put("group/note", 'g', 100, 0644);
	put("group/65534abababababababababababababab.bin", 'g', 65536, 0644);
	put("group/65534abcabcabcabcabcabcabcabcabca.bin.tmp1f", 'h', 65536, 0644);
	check(sys(rename(at("group/65534abcabcabcabcabcabcabcabcabca.bin.tmp1f"),
			 at("group/65534abcabcabcabcabcabcabcabcabca.bin"))),
	      0);
	check(sys(mkdir(at("group/sub"), 0755)), 0);
	check_owner("group/note", 65534, 4321, 0644);
	check_owner("group/65534abababababababababababababab.bin", 65534, 4321, 0644);
	check_owner("group/65534abcabcabcabcabcabcabcabcabca.bin", 65534, 4321, 0644);
	check_owner("group/sub", 65534, 4321, 02755);
}

static void user_1234_ends(void)
{
	check(sys(chmod(at(PAGE_1234), 0600)), 0);
	check_owner(PAGE_1234, 1234, 1234, 0600);
	check(sys(rename(at("sticky/note-1234"), at("sticky/note"))), 0);
	check(sys(unlink(at("sticky/note"))), 0);
	check(sys(unlink(at(PAGE_1234))), 0);
	check(sys(rmdir(at("sticky/dir-1234"))), 0);
}

static void make_dir(const char *name, unsigned mode, gid_t gid)
{
	check(sys(mkdir(at(name), 0755)), 0);
	check(sys(chown(at(name), 0, gid)), 0);
	check(sys(chmod(at(name), mode)), 0);
}

static void rights(void)
{
	make_dir("sticky", 01777, 0);
	make_dir("open", 0777, 0);
	make_dir("closed", 0755, 0);
	make_dir("hidden", 0700, 0);
	make_dir("group", 02777, 4321);
	put("closed/note", 'r', 100, 0644);
	put("hidden/note", 'h', 100, 0644);
	check(as_user(1234, user_1234_makes), 0);
	check(as_user(65534, user_65534_tries), 0);
	check(as_user(1234, user_1234_ends), 0);
	/* root may */
	get("sticky/secret-1234", 's', 100);
	check(sys(rename(at(PAGE_65534), at(PAGE_1234B))), 0);
	check_owner(PAGE_1234B, 65534, 65534, 0644);
	get(PAGE_1234B, 'c', 65536);
	check(sys(unlink(at(PAGE_1234B))), 0);
}

/* --- sizes and numbers --- */

static void fill_words(uint64_t *words, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		words[i] = seed + i * 0x9e3779b97f4a7c15u;
}

static bool words_are(const uint64_t *words, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		if (words[i] != seed + i * 0x9e3779b97f4a7c15u)
			return false;
	return true;
}

/* One call each way. */
static void big_one(const char *name, size_t n, bool unlinked, uint64_t *buf)
{
	struct stat st = {0};
	long fd;

	fill_words(buf, n / 8, n);
	check_open(fd, sys(open(at(name), O_RDWR | O_CREAT | O_TRUNC, 0644)));
	if (fd < 0)
		return;
	if (unlinked)
		check(sys(unlink(at(name))), 0);
	check(sys(pwrite((int)fd, buf, n, 0)), (long)n);
	memset(buf, 0, n);
	check(sys(pread((int)fd, buf, n, 0)), (long)n);
	check(words_are(buf, n / 8, n), true);
	check(sys(close((int)fd)), 0);
	if (unlinked)
		return;
	check(sys(stat(at(name), &st)), 0);
	check(st.st_size, (long)n);
	check_open(fd, sys(open(at(name), O_RDONLY)));
	memset(buf, 0, n);
	check(sys(pread((int)fd, buf, n, 0)), (long)n);
	check(words_are(buf, n / 8, n), true);
	/* one byte more is asked for than there is */
	check(sys(pread((int)fd, buf, n, 8)), (long)n - 8);
	check(words_are(buf + 1, n / 8 - 2, n + 2 * 0x9e3779b97f4a7c15u), true);
	check(sys(close((int)fd)), 0);
	check(sys(unlink(at(name))), 0);
}

static void big(void)
{
	uint64_t *buf = malloc(BIG_BYTES + MIB);
	char tmp[PATH_BYTES];

	big_one(page_name(1), BIG_BYTES, false, buf);
	snprintf(tmp, sizeof(tmp), "%s.tmp.4.5", page_name(2));
	big_one(tmp, BIG_BYTES, false, buf);
	big_one("scratch", BIG_BYTES + MIB, false, buf);
	big_one("unlinked", BIG_BYTES, true, buf);
	free(buf);
}

static void many(void)
{
	const struct rlimit limit = {N_MANY + 100, N_MANY + 100};
	int *fds = malloc(N_MANY * sizeof(*fds));
	char name[PATH_BYTES];
	uint64_t words[64];

	check(sys(setrlimit(RLIMIT_NOFILE, &limit)), 0);
	check(sys(mkdir(at("many"), 0755)), 0);
	for (unsigned i = 0; i < N_MANY && !n_failed; i++) {
		snprintf(name, sizeof(name), "many/%032x.bin", i * 2654435761u + 1);
		fill_words(words, 64, i);
		check_open(fds[i], (int)sys(open(at(name), WCT, 0644)));
		check(sys(write(fds[i], words, sizeof(words))), sizeof(words));
		check(sys(close(fds[i])), 0);
		check_open(fds[i], (int)sys(open(at(name), O_RDONLY)));
	}
	for (unsigned i = 0; i < N_MANY && !n_failed; i++) {
		struct stat st = {0};

		memset(words, 0, sizeof(words));
		check(sys(pread(fds[i], words, sizeof(words), 0)), sizeof(words));
		check(words_are(words, 64, i), true);
		check(sys(fstat(fds[i], &st)), 0);
		check(st.st_size, sizeof(words));
	}
	for (unsigned i = 0; i < N_MANY && !n_failed; i++)
		check(sys(close(fds[i])), 0);
	free(fds);
}

static void long_one(const char *tail)
{
	char name[300], other[300];
	struct stat st = {0};
	size_t n = strlen(tail);

	memset(name, 'x', sizeof(name));
	memcpy(name + 255 - n, tail, n + 1);
	memcpy(other, name, sizeof(other));
	other[0] = 'y';
	put(name, 'l', 65536, 0644);
	get(name, 'l', 65536);
	check(sys(rename(at(name), at(other))), 0);
	get(other, 'l', 65536);
	check(sys(stat(at(name), &st)), -ENOENT);
	/* one more */
	memset(name, 'x', sizeof(name));
	memcpy(name + 256 - n, tail, n + 1);
	check(sys(open(at(name), WCT, 0644)), -ENAMETOOLONG);
	check(sys(stat(at(name), &st)), -ENAMETOOLONG);
	check(sys(unlink(at(name))), -ENAMETOOLONG);
	check(sys(mkdir(at(name), 0755)), -ENAMETOOLONG);
	check(sys(rename(at(other), at(name))), -ENAMETOOLONG);
	get(other, 'l', 65536);
	check(sys(unlink(at(other))), 0);
}

static void long_names(void)
{
	char name[300];

	long_one("-0123456789abcdef0123456789abcdef.bin");
	long_one("-0123456789abcdef0123456789abcdef.bin.tmp.1.2");
	long_one(".json");
	memset(name, 'd', sizeof(name));
	name[255] = '\0';
	check(sys(mkdir(at(name), 0755)), 0);
	check(sys(rmdir(at(name))), 0);
}

/* --- races in one directory --- */

#define N_THREADS  8
#define N_NAMES    48
#define N_ROUNDS   400
#define PAGE_WORDS 2048u

static atomic_uint n_reads, n_misses, n_bad;

static void bad(const char *what, const char *name, long got)
{
	atomic_fetch_add(&n_bad, 1);
	fprintf(stderr, "%s %s: %ld (%s)\n", what, name, got, got < 0 ? strerror((int)-got) : "");
}

/* The last eight are ordinary files. */
static void race_name(char name[PATH_BYTES], unsigned i)
{
	if (i >= N_NAMES - 8)
		snprintf(name, PATH_BYTES, "race/file-%u.json", i);
	else
		snprintf(name, PATH_BYTES, "race/%08x%024x.bin", i, i * 77);
}

static void race_put(unsigned thread, unsigned i, uint64_t version)
{
	bool in_place = i < N_NAMES - 8 && version % 2;
	char name[PATH_BYTES], tmp[PATH_BYTES];
	uint64_t *words = malloc(PAGE_WORDS * 8);
	long rc;
	int fd;

	race_name(name, i);
	snprintf(tmp, sizeof(tmp), "%.300s.tmp.%u.1", name, thread);
	fill_words(words, PAGE_WORDS, (uint64_t)i << 32 | version);
	fd = open(at(in_place ? name : tmp), WCT, 0644);
	if (fd < 0) {
		bad("create", name, -errno);
	} else {
		rc = sys(write(fd, words, PAGE_WORDS * 8));
		if (rc != (long)PAGE_WORDS * 8)
			bad("write", name, rc);
		if (close(fd))
			bad("close", name, -errno);
		rc = in_place ? 0 : sys(rename(at(tmp), at(name)));
		if (rc)
			bad("rename", name, rc);
	}
	free(words);
}

static void race_get(unsigned i)
{
	uint64_t *words = malloc(PAGE_WORDS * 8 + 8);
	char name[PATH_BYTES];
	struct stat st;
	long rc;
	int fd;

	race_name(name, i);
	fd = open(at(name), O_RDONLY);
	if (fd < 0) {
		if (errno != ENOENT)
			bad("open", name, -errno);
		atomic_fetch_add(&n_misses, 1);
	} else {
		if (fstat(fd, &st) || st.st_size != PAGE_WORDS * 8)
			bad("size", name, st.st_size);
		rc = sys(read(fd, words, PAGE_WORDS * 8 + 8));
		if (rc != (long)PAGE_WORDS * 8)
			bad("read", name, rc);
		else if (words[0] >> 32 != i || !words_are(words, PAGE_WORDS, words[0]))
			bad("bytes", name, 0);
		close(fd);
		atomic_fetch_add(&n_reads, 1);
	}
	free(words);
}

static void race_list(void)
{
	unsigned char seen[N_NAMES] = {0};
	DIR *dir = opendir(at("race"));
	char name[PATH_BYTES];
	struct dirent *e;
	unsigned i;

	if (!dir) {
		bad("opendir", "race", -errno);
		return;
	}
	errno = 0;
	while ((e = readdir(dir))) {
		if (e->d_name[0] == '.' || strstr(e->d_name, ".tmp"))
			continue;
		snprintf(name, sizeof(name), "race/%.255s", e->d_name);
		for (i = 0; i < N_NAMES; i++) {
			char want[PATH_BYTES];

			race_name(want, i);
			if (!strcmp(want, name))
				break;
		}
		if (i == N_NAMES)
			bad("listed", name, 0);
		else if (seen[i]++)
			bad("listed twice", name, seen[i]);
		errno = 0;
	}
	if (errno)
		bad("readdir", "race", -errno);
	closedir(dir);
}

static void *race_thread(void *arg)
{
	unsigned thread = (unsigned)(uintptr_t)arg;
	unsigned random = thread * 2654435761u + 12345;
	char name[PATH_BYTES];
	struct stat st;

	for (unsigned round = 1; round <= N_ROUNDS; round++) {
		unsigned i;

		random = random * 1664525u + 1013904223u;
		i = (random >> 8) % N_NAMES;
		race_name(name, i);
		switch ((random >> 24) % 8) {
		case 0:
		case 1:
		case 2:
			race_put(thread, i, round * N_THREADS + thread);
			break;
		case 3:
			if (unlink(at(name)) && errno != ENOENT)
				bad("unlink", name, -errno);
			break;
		case 4:
			race_list();
			break;
		case 5:
			if (stat(at(name), &st) ? errno != ENOENT : st.st_size != PAGE_WORDS * 8)
				bad("stat", name, -errno);
			break;
		default:
			race_get(i);
		}
	}
	return NULL;
}

static void races(void)
{
	pthread_t threads[N_THREADS];

	check(sys(mkdir(at("race"), 0755)), 0);
	for (uintptr_t i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, race_thread, (void *)i);
	for (unsigned i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%u reads, %u misses\n", atomic_load(&n_reads), atomic_load(&n_misses));
	check(atomic_load(&n_bad), 0);
	check(atomic_load(&n_reads) > 20, 1);
}

/* --- signals --- */

static volatile sig_atomic_t n_alarms;

static void on_alarm(int number)
{
	(void)number;
	n_alarms = n_alarms + 1;
}

/* `page` is on a disk whose reads never end: a signal ends the wait, or the budget of the mount
 * does; never a byte of it. */
static void interrupted(const char *page)
{
	const struct itimerval often = {{0, 100000}, {0, 100000}}, off = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = on_alarm};
	double begun = now_s();
	long value, rc;

	check(sys(sigaction(SIGALRM, &action, NULL)), 0);
	check(sys(setitimer(ITIMER_REAL, &often, NULL)), 0);
	rc = get_file(at(page), &value);
	check(sys(setitimer(ITIMER_REAL, &off, NULL)), 0);
	printf("open under alarms: %ld after %.2f s, %d alarms\n", rc, now_s() - begun,
	       (int)n_alarms);
	check(rc == -EINTR || rc == -ENOENT, 1);
	check(n_alarms > 0, 1);
}

/* Clients that are killed wherever they are: their parent waits for a byte that says that they are
 * at work, then kills. */
static void work_write(unsigned i, int fd)
{
	static unsigned char buf[MIB];
	int out = open(at(page_name(5000 + i)), WCT, 0644);

	for (;;)
		if (pwrite(out, buf, sizeof(buf), 0) != (ssize_t)sizeof(buf) ||
		    write(fd, "w", 1) < 0)
			_exit(1);
}

static void work_read(unsigned i, int fd)
{
	static unsigned char buf[4 * MIB];
	int in = open(at("kill-read-0123456789abcdef.bin"), O_RDONLY);

	(void)i;
	for (;;)
		if (pread(in, buf, sizeof(buf), 0) != (ssize_t)sizeof(buf) || write(fd, "r", 1) < 0)
			_exit(1);
}

static void work_rename(unsigned i, int fd)
{
	char name[PATH_BYTES], tmp[PATH_BYTES];
	unsigned char buf[4096];

	snprintf(name, sizeof(name), "kill-%u-0123456789abcdef.bin", i);
	snprintf(tmp, sizeof(tmp), "%.300s.tmp.%u.1", name, i);
	memset(buf, 'm', sizeof(buf));
	for (;;) {
		int out = open(at(tmp), WCT, 0644);

		if (out < 0 || write(out, buf, sizeof(buf)) != (ssize_t)sizeof(buf) || close(out) ||
		    rename(at(tmp), at(name)) || write(fd, "m", 1) < 0)
			_exit(1);
	}
}

static void killed(void)
{
	void (*const works[])(unsigned, int) = {work_write, work_read, work_rename};
	char name[PATH_BYTES];
	struct stat st;

	put("kill-read-0123456789abcdef.bin", 'k', 4 * MIB, 0644);
	for (unsigned i = 0; i < 60; i++) {
		int ends[2], status = 0;
		char byte[3];
		pid_t pid;

		check(sys(pipe(ends)), 0);
		pid = fork();
		if (!pid) {
			close(ends[0]);
			works[i % 3](i, ends[1]);
		}
		close(ends[1]);
		for (unsigned k = 0; k <= i % 4; k++)
			check(sys(read(ends[0], byte, 1)), 1);
		/* somewhere in the next one */
		poll(NULL, 0, (int)(i % 5) / 2);
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		close(ends[0]);
		check(WIFSIGNALED(status), 1);
		if (i % 3 == 0)
			check(sys(stat(at(page_name(5000 + i)), &st)), -ENOENT);
		if (i % 3 == 2) {
			snprintf(name, sizeof(name), "kill-%u-0123456789abcdef.bin", i);
			get(name, 'm', 4096);
		}
	}
	get("kill-read-0123456789abcdef.bin", 'k', 4 * MIB);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"rights", rights},    {"big", big},     {"many", many},
	{"names", long_names}, {"races", races}, {"killed", killed},
};

int main(int argc, char **argv)
{
	bool found = false;

	if (argc < 3) {
		fprintf(stderr, "usage: fuse-hold DIRECTORY CASE [NAME]\n");
		return 2;
	}
	umask(0);
	mount_dir = argv[1];
	if (argc > 3 && !strcmp(argv[2], "interrupted")) {
		interrupted(argv[3]);
		found = true;
	}
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(argv[2], cases[i].name) != 0)
			continue;
		found = true;
		cases[i].run();
	}
	printf("%s %s\n", n_failed || !found ? "not ok" : "ok", argv[2]);
	return n_failed || !found;
}
