/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of bodies under the mount, one scenario after the other: who sees what, when, and whose
 * bytes. Usage: fuse-bodies DIRECTORY [SCENARIO] */
#include "tests/fuse-actors.h"

#include <pthread.h>

#define SIZE   (64l << 10)
#define WC     (O_WRONLY | O_CREAT)
#define WCT    (WC | O_TRUNC)
#define N_TRYS 300

static void put(int who, const char *name, int byte)
{
	long fd;

	check_open(fd, do_open(who, name, WCT));
	check(do_write(who, fd, byte, SIZE, 0), SIZE);
	check(do_close(who, fd), 0);
}

static void check_get(int line, int who, const char *name, int byte)
{
	check_at(line, "get", do_get(who, name), SIZE);
	check_at(line, "byte", last_value, byte);
}
#define GET(who, name, byte) check_get(__LINE__, who, name, byte)

/* A page's name is invisible until its last writer has closed it; then it is there at once, for
 * everybody. */
static void in_place(void)
{
	const char *p = page_name(100), *q = page_name(101);
	long f, g;

	check(do_stat(B, p), -ENOENT);
	check_open(f, do_open(A, p, WCT));
	check(do_stat(A, p), -ENOENT);
	check(do_write(A, f, 'a', SIZE, 0), SIZE);
	check(do_fstat(A, f), 0);
	check_value(SIZE);
	check(do_stat(B, p), -ENOENT);
	check(do_open(B, p, O_RDONLY), -ENOENT);
	check(do_unlink(B, p), -ENOENT);
	check(do_rename(A, p, q), -ENOENT);
	check_open(g, do_open(B, p, WCT));
	check(do_write(B, g, 'b', SIZE, 0), SIZE);
	check(do_fstat(A, f), 0);
	check_value(SIZE);
	check(do_close(A, f), 0);
	GET(C, p, 'a');
	check(do_write(B, g, 'B', SIZE, 0), SIZE);
	GET(C, p, 'a');
	check(do_close(B, g), 0);
	GET(C, p, 'B');
	GET(A, p, 'B');
}

/* Who writes a published page gets a body of its own; who reads keeps what it opened. */
static void second_writer(void)
{
	const char *p = page_name(110);
	long f, g, h;

	put(A, p, 'a');
	check_open(h, do_open(C, p, O_RDONLY));
	check_open(f, do_open(B, p, WCT));
	check(do_fstat(B, f), 0);
	check_value(0);
	check(do_fstat(C, h), 0);
	check_value(SIZE);
	check(do_write(B, f, 'b', SIZE, 0), SIZE);
	check(do_read(C, h, SIZE, 0), SIZE);
	check_value('a');
	GET(A, p, 'a');
	check(do_close(B, f), 0);
	GET(A, p, 'b');
	check(do_read(C, h, SIZE, 0), SIZE);
	check_value('a');
	check(do_close(C, h), 0);
	/* without O_CREAT, with and without O_TRUNC */
	check_open(f, do_open(A, p, O_WRONLY | O_TRUNC));
	check(do_write(A, f, 'c', SIZE, 0), SIZE);
	check(do_close(A, f), 0);
	GET(B, p, 'c');
	check_open(g, do_open(B, p, O_RDWR));
	check(do_fstat(B, g), 0);
	check_value(SIZE);
	check(do_read(B, g, SIZE, 0), SIZE);
	check_value('c');
	check(do_write(B, g, 'd', SIZE / 2, SIZE / 2), SIZE / 2);
	check(do_read(B, g, SIZE / 2, 0), SIZE / 2);
	check_value('c');
	check(do_read(B, g, SIZE, SIZE / 2), SIZE / 2);
	check_value('d');
	GET(C, p, 'c');
	check(do_close(B, g), 0);
	check(do_get(C, p), SIZE);
	check_value(-1);
}

/* Nothing written, nothing published; a new name closed empty is an ordinary file, and becomes a
 * page when written. */
static void no_write(void)
{
	const char *p = page_name(120), *q = page_name(121);
	long f;

	put(A, p, 'a');
	check_open(f, do_open(B, p, WCT));
	check(do_close(B, f), 0);
	GET(C, p, 'a');
	check_open(f, do_open(A, q, WCT));
	check(do_close(A, f), 0);
	check(do_stat(B, q), 0);
	check_value(0);
	put(B, q, 'q');
	GET(A, q, 'q');
	check(do_unlink(C, q), 0);
	check(do_stat(A, q), -ENOENT);
}

static void exclusive(void)
{
	const char *p = page_name(130), *q = page_name(131);
	long f;

	put(A, p, 'a');
	check(do_open(B, p, WC | O_EXCL), -EEXIST);
	check_open(f, do_open(A, q, WC | O_EXCL));
	check(do_open(B, q, WC | O_EXCL), -EEXIST);
	check(do_write(A, f, 'e', SIZE, 0), SIZE);
	check(do_close(A, f), 0);
	check(do_open(B, q, WC | O_EXCL), -EEXIST);
	GET(B, q, 'e');
}

/* RELEASE comes after close has returned: a look-up waits for it. A descriptor that lives on costs
 * the wait once. */
static void parked(void)
{
	long f, g;
	double start;

	for (unsigned i = 0; i < N_TRYS; i++) {
		const char *p = page_name(1000 + i);

		put(A, p, 'p');
		check(do_stat(B, p), 0);
	}
	const char *p = page_name(140);

	check_open(f, do_open(A, p, WCT));
	check(do_write(A, f, 'd', SIZE, 0), SIZE);
	check_open(g, do_dup(A, f));
	check(do_close(A, g), 0);
	start = now_s();
	check(do_stat(B, p), -ENOENT);
	check(now_s() - start > 1.0, 0);
	check(do_write(A, f, 'D', SIZE, 0), SIZE);
	check(do_close(A, f), 0);
	GET(B, p, 'D');
}

#define N_THREADS 8

static void *wait_for_ever(void *arg)
{
	for (;;)
		pause();
	return NULL;
}

/* A process of several threads writes and ends, by exit or by a signal, and never closes: the last
 * of its threads to go does, whichever that is. */
static void write_and_end(const char *name, bool exits)
{
	char path[PATH_BYTES], buf[100] = {0};
	pthread_t thread;
	pid_t pid;

	full_path(path, name);
	pid = fork();
	if (!pid) {
		int fd = open(path, WCT, 0644);

		for (int i = 0; i < N_THREADS; i++)
			pthread_create(&thread, NULL, wait_for_ever, NULL);
		if (write(fd, buf, sizeof(buf)) != (ssize_t)sizeof(buf) || exits)
			_exit(0);
		kill(getpid(), SIGKILL);
	}
	waitpid(pid, NULL, 0);
}

/* Half a page is never published because its writer died. */
static void killed(void)
{
	const char *p = page_name(150), *q = page_name(151), *r = page_name(152);
	long f;

	check_open(f, do_open(C, p, WCT));
	check(do_write(C, f, 'k', SIZE / 2, 0), SIZE / 2);
	end_actor(C, SIGKILL);
	start_actor(C);
	for (int i = 0; i < 20; i++) {
		check(do_stat(A, p), -ENOENT);
		poll(NULL, 0, 5);
	}
	put(B, p, 'n');
	GET(A, p, 'n');
	write_and_end(r, false);
	check(do_stat(A, r), -ENOENT);
	/* one that ends by exit without a close has said what it wanted */
	write_and_end(q, true);
	check(do_stat(A, q), 0);
	check_value(100);
}

/* One temporary name, two writers: each renames its own; the last rename wins whole. */
static void temporaries(void)
{
	const char *p = page_name(160);
	char t[PATH_BYTES], u[PATH_BYTES];
	long f, g;

	snprintf(t, sizeof(t), "%s.tmp", p);
	snprintf(u, sizeof(u), "%s.tmp2e7a11", p);
	check_open(f, do_open(A, t, WCT));
	check(do_write(A, f, 'a', SIZE, 0), SIZE);
	check(do_stat(A, t), 0);
	check_value(SIZE);
	check(do_stat(B, t), 0);
	check_open(g, do_open(B, t, WCT));
	check(do_stat(B, t), 0);
	check_value(0);
	check(do_stat(A, t), 0);
	check_value(SIZE);
	check(do_write(B, g, 'b', SIZE, 0), SIZE);
	check(do_close(A, f), 0);
	check(do_close(B, g), 0);
	check(do_stat(C, p), -ENOENT);
	check(do_rename(A, t, p), 0);
	GET(C, p, 'a');
	GET(B, p, 'a');
	check(do_rename(B, t, p), 0);
	GET(A, p, 'b');
	GET(C, p, 'b');
	check(do_stat(C, t), -ENOENT);
	check(do_rename(C, t, p), -ENOENT);
	/* the same process writes on without O_TRUNC; another gets a copy of its own */
	check_open(f, do_open(A, u, WCT));
	check(do_write(A, f, 'x', SIZE, 0), SIZE);
	check(do_close(A, f), 0);
	check(do_open(B, u, WC | O_EXCL), -EEXIST);
	check_open(f, do_open(A, u, O_RDWR));
	check(do_write(A, f, 'y', SIZE / 2, SIZE / 2), SIZE / 2);
	check(do_close(A, f), 0);
	check_open(g, do_open(B, u, WC));
	check(do_write(B, g, 'z', SIZE, 0), SIZE);
	check(do_close(B, g), 0);
	check(do_rename(A, u, p), 0);
	check(do_get(C, p), SIZE);
	check_value(-1);
	check(do_rename(B, u, p), 0);
	GET(C, p, 'z');
}

/* Renamed while it is written: everybody sees what is there, also what comes later; the last close
 * seals it. */
static void unsealed(void)
{
	const char *p = page_name(170);
	char t[PATH_BYTES];
	long f, g;

	snprintf(t, sizeof(t), "%s.tmp.17.18", p);
	check_open(f, do_open(A, t, WCT));
	check(do_write(A, f, 'a', SIZE, 0), SIZE);
	check(do_rename(A, t, p), 0);
	GET(B, p, 'a');
	check_open(g, do_open(B, p, O_RDONLY));
	check(do_write(A, f, 'b', SIZE, 0), SIZE);
	GET(C, p, 'b');
	check(do_read(B, g, SIZE, 0), SIZE);
	check_value('b');
	check(do_close(A, f), 0);
	check(do_stat(C, p), 0);
	check_value(SIZE);
	check(do_read(B, g, SIZE, 0), SIZE);
	check_value('b');
	check(do_close(B, g), 0);
	GET(C, p, 'b');
	/* close and rename at once: the RELEASE comes late, nobody notices */
	for (unsigned i = 0; i < N_TRYS; i++) {
		put(A, t, i & 1 ? 'o' : 'e');
		check(do_rename(A, t, p), 0);
		GET(B, p, i & 1 ? 'o' : 'e');
	}
	/* a duplicate outlives the rename */
	check_open(f, do_open(A, t, WCT));
	check_open(g, do_dup(A, f));
	check(do_write(A, f, 'd', SIZE, 0), SIZE);
	check(do_close(A, f), 0);
	check(do_rename(A, t, p), 0);
	GET(B, p, 'd');
	check(do_close(A, g), 0);
	GET(C, p, 'd');
}

static long stat_of(const char *name)
{
	char path[PATH_BYTES], line[256];
	long value = -1;
	FILE *file;

	snprintf(path, sizeof(path), "%s/../.hicache/stats", mount_dir);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ' ')
			value = strtol(line + strlen(name), NULL, 10);
	if (file)
		fclose(file);
	return value;
}

/* Opened while it was written, sealed, replaced, and only then read, by the kernel and by the
 * daemon. */
static void replaced_unread(void)
{
	static const int flags[] = {O_RDONLY, O_RDONLY | O_DIRECT};
	const char *p = page_name(171);
	char t[PATH_BYTES];
	long f, g, n;
	double deadline_s = now_s() + 60;

	snprintf(t, sizeof(t), "%s.tmp.17.18", p);
	for (unsigned i = 0; i < 4; i++) {
		n = stat_of("fs_published_release");
		check_open(f, do_open(A, t, WCT));
		check(do_write(A, f, 'a', SIZE, 0), SIZE);
		check(do_rename(A, t, p), 0);
		check_open(g, do_open(B, p, flags[i % 2]));
		check(do_close(A, f), 0);
		/* The RELEASE comes when it will. */
		while (stat_of("fs_published_release") == n && now_s() < deadline_s)
			;
		check(stat_of("fs_published_release"), n + 1);
		put(C, t, 'b');
		check(do_rename(C, t, p), 0);
		GET(A, p, 'b');
		check(do_fstat(B, g), 0);
		check_value(SIZE);
		check(do_read(B, g, SIZE, 0), SIZE);
		check_value('a');
		check(do_close(B, g), 0);
	}
	check(do_unlink(A, p), 0);
}

/* Names that go from under readers. */
static void lost_names(void)
{
	const char *p = page_name(180);
	char t[PATH_BYTES];
	long f, g;

	snprintf(t, sizeof(t), "%s.tmp", p);
	put(A, p, 'a');
	check_open(f, do_open(B, p, O_RDONLY));
	put(A, t, 'b');
	check(do_rename(A, t, p), 0);
	check(do_read(B, f, SIZE, 0), SIZE);
	check_value('a');
	check(do_fstat(B, f), 0);
	check_value(SIZE);
	check_open(g, do_open(C, p, O_RDONLY));
	check(do_unlink(A, p), 0);
	check(do_read(C, g, SIZE, 0), SIZE);
	check_value('b');
	check(do_fstat(C, g), 0);
	check(do_stat(C, p), -ENOENT);
	check(do_access(B, p), -ENOENT);
	check(do_close(C, g), 0);
	check(do_close(B, f), 0);
	check(do_unlink(B, p), -ENOENT);
	put(B, p, 'c');
	GET(A, p, 'c');
	/* a body whose name goes while it is written */
	check_open(f, do_open(A, t, WCT));
	check(do_write(A, f, 't', SIZE, 0), SIZE);
	check(do_unlink(A, t), 0);
	check(do_write(A, f, 't', SIZE, SIZE), SIZE);
	check(do_fstat(A, f), 0);
	check_value(2 * SIZE);
	check(do_close(A, f), 0);
	check(do_stat(A, t), -ENOENT);
}

/* What a name is, is decided anew at a rename. */
static void renames(void)
{
	const char *p = page_name(190), *q = page_name(191), *r = page_name(192);

	put(A, "x", 'x');
	GET(B, "x", 'x');
	check(do_rename(A, "x", p), 0);
	check(do_stat(B, "x"), -ENOENT);
	GET(B, p, 'x');
	check(do_rename(B, p, q), 0);
	check(do_stat(A, p), -ENOENT);
	GET(A, q, 'x');
	put(C, r, 'r');
	check(do_rename_flags(C, r, q, RENAME_NOREPLACE), -EEXIST);
	check(do_rename_flags(C, r, q, RENAME_EXCHANGE), -EINVAL);
	GET(A, q, 'x');
	check(do_rename(C, r, q), 0);
	GET(A, q, 'r');
	check(do_rename(C, q, "y.tmp"), 0);
	GET(C, "y.tmp", 'r');
	check(do_rename(C, "y.tmp", "y"), 0);
	GET(A, "y", 'r');
	check(do_rename(A, "y", "z"), 0);
	GET(B, "z", 'r');
	check(do_unlink(B, "z"), 0);
	check(do_stat(A, "z"), -ENOENT);
	check(do_rename(A, p, q), -ENOENT);
}

/* The size is right before anybody has read a byte, and a whole page comes in one call. */
static void whole(void)
{
	static const long sizes[] = {1,       4095,          4096,    4097,
				     1 << 20, (1 << 20) + 1, 3 << 20, (8 << 20) + 17};
	long f;

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const char *p = page_name(200 + i);

		check_open(f, do_open(A, p, WCT));
		check(do_write(A, f, 's', sizes[i], 0), sizes[i]);
		check(do_close(A, f), 0);
		check(do_stat(B, p), 0);
		check_value(sizes[i]);
		check(do_get(C, p), sizes[i]);
		check_value('s');
		check_open(f, do_open(B, p, O_RDONLY));
		check(do_read(B, f, sizes[i] + 100, 0), sizes[i]);
		check(do_read(B, f, 100, sizes[i] - 1), 1);
		check(do_read(B, f, 100, sizes[i]), 0);
		check(do_close(B, f), 0);
	}
}

/* Size by ftruncate and fallocate, holes, writes in any order. */
static void sparse(void)
{
	const char *p = page_name(220);
	char t[PATH_BYTES];
	long f;

	snprintf(t, sizeof(t), "%s.tmp", p);
	check_open(f, do_open(A, t, O_RDWR | O_CREAT | O_TRUNC));
	check(do_allocate(A, f, FALLOC_FL_KEEP_SIZE, 4 * SIZE), 0);
	check(do_fstat(A, f), 0);
	check_value(0);
	check(do_allocate(A, f, 0, 2 * SIZE), 0);
	check(do_fstat(A, f), 0);
	check_value(2 * SIZE);
	check(do_truncate(A, f, 4 * SIZE), 0);
	check(do_write(A, f, 'w', SIZE, 3 * SIZE), SIZE);
	check(do_fstat(A, f), 0);
	check_value(4 * SIZE);
	check(do_write(A, f, 'w', SIZE, 0), SIZE);
	check(do_fsync(A, f), 0);
	check(do_close(A, f), 0);
	check(do_rename(A, t, p), 0);
	check_open(f, do_open(B, p, O_RDONLY));
	check(do_read(B, f, SIZE, 0), SIZE);
	check_value('w');
	check(do_read(B, f, 2 * SIZE, SIZE), 2 * SIZE);
	check_value(0);
	check(do_read(B, f, 2 * SIZE, 3 * SIZE), SIZE);
	check_value('w');
	check(do_fsync(B, f), 0);
	check(do_close(B, f), 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} scenarios[] = {
	{"in_place", in_place},
	{"second_writer", second_writer},
	{"no_write", no_write},
	{"exclusive", exclusive},
	{"parked", parked},
	{"killed", killed},
	{"temporaries", temporaries},
	{"unsealed", unsealed},
	{"replaced_unread", replaced_unread},
	{"lost_names", lost_names},
	{"renames", renames},
	{"whole", whole},
	{"sparse", sparse},
};

int main(int argc, char **argv)
{
	int status = 0, before;

	if (argc < 2) {
		fprintf(stderr, "usage: fuse-bodies DIRECTORY [SCENARIO]\n");
		return 2;
	}
	actors_start(argv[1]);
	for (unsigned i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		if (argc > 2 && strcmp(argv[2], scenarios[i].name) != 0)
			continue;
		before = n_failed;
		scenarios[i].run();
		printf("%s %s\n", n_failed == before ? "ok" : "not ok", scenarios[i].name);
		fflush(stdout);
	}
	status = actors_end();
	return status;
}
