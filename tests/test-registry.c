/* SPDX-License-Identifier: Apache-2.0 */
/* node/registry.h: identity, kills, damage, threads. Goal: a directory that is not ours is refused
 * with the remedy and left as it was; what was answered survives a kill; ids are never used twice.
 * Method: real directories under TMPDIR, children that kill themselves, the log caught. */
#include "registry-test.h"

/* --- identity --- */

static void test_fresh_and_again(void **state)
{
	struct hc_registry_config config = {.cachedir = dir_path, .noinit = true};
	struct hc_registry *registry = open_dir();
	struct hc_dir_info info;
	uint8_t uuid[16];
	bool rebuild;

	memcpy(uuid, hc_registry_uuid(registry), 16);
	assert_int_equal(hc_dir_get(registry, HC_DIR_ROOT, &info), 0);
	assert_int_equal(info.owner.uid, 10);
	assert_int_equal(info.owner.mode, 0751);
	hc_registry_close(registry);
	assert_int_equal(hc_registry_open(&config, &registry, &rebuild), 0);
	assert_false(rebuild);
	assert_memory_equal(uuid, hc_registry_uuid(registry), 16);
	/* The root's owner is of the first start. */
	assert_int_equal(hc_dir_get(registry, HC_DIR_ROOT, &info), 0);
	assert_int_equal(info.owner.uid, 10);
	hc_registry_close(registry);
}

static void refuse(int err, const char *word, const char *remedy)
{
	struct hc_registry *registry;
	bool rebuild;

	last_error[0] = 0;
	assert_int_equal(try_open(&registry, &rebuild), err);
	if (!strstr(last_error, dir_path) || !strstr(last_error, word) ||
	    !strstr(last_error, remedy))
		fail_msg("message: %s", last_error);
}

static void test_absent_and_noinit(void **state)
{
	struct hc_registry_config config = {.cachedir = dir_path, .noinit = true};
	struct hc_registry *registry;
	bool rebuild;

	assert_int_equal(hc_registry_open(&config, &registry, &rebuild), -ENOENT);
	assert_non_null(strstr(last_error, "noinit"));
	assert_int_equal(count_files(), 0);
	config.cachedir = "/nonexistent/cache";
	assert_int_equal(hc_registry_open(&config, &registry, &rebuild), -ENOENT);
	assert_non_null(strstr(last_error, "/nonexistent/cache does not exist"));
	assert_non_null(strstr(last_error, "mkdir"));
}

static void test_foreign(void **state)
{
	hc_autofree char *text = NULL;

	put_file("precious", "data");
	refuse(-ENOTEMPTY, "is not empty", "name an empty directory");
	assert_int_equal(count_files(), 1);
	put_file(".hicachefs", "something else\n");
	refuse(-ENOTEMPTY, "something else", "name an empty directory");
	put_file(".hicachefs", "hicachefs 1\nuuid 12\n");
	refuse(-ENOTEMPTY, "damaged", "name an empty directory");
	/* An initialisation that was interrupted, but there is more. */
	put_file(".hicachefs", "");
	refuse(-ENOTEMPTY, "other files", "name an empty directory");
	text = get_file("precious");
	assert_string_equal(text, "data");
	assert_int_equal(count_files(), 2);
}

static void test_newer(void **state)
{
	static const char newer[] = "hicachefs 2\nwhatever\n";
	hc_autofree char *text = NULL;

	put_file(".hicachefs", newer);
	refuse(-EPROTO, "newer", "use that version");
	text = get_file(".hicachefs");
	assert_string_equal(text, newer);
	assert_int_equal(count_files(), 1);
}

static void test_interrupted_init(void **state)
{
	char path[128];

	put_file(".hicachefs", "");
	put_file("names", "space 1 .\nspace 2 half\n");
	snprintf(path, sizeof(path), "%s/lost+found", dir_path);
	assert_int_equal(mkdir(path, 0700), 0);
	hc_registry_close(open_dir());
	hc_registry_close(open_dir());
}

static void test_in_use(void **state)
{
	struct hc_registry_config config = {.cachedir = dir_path, .embedded = true};
	struct hc_registry *registry = open_dir();
	char pid[32];
	bool rebuild;

	snprintf(pid, sizeof(pid), "pid %d", (int)getpid());
	refuse(-EBUSY, pid, "unmount it");
	hc_registry_close(registry);
	assert_int_equal(hc_registry_open(&config, &registry, &rebuild), 0);
	refuse(-EBUSY, pid, "wait until it has ended");
	hc_registry_close(registry);
	hc_registry_close(open_dir());
}

/* 77: this machine does not let us; else the error of opening on a mount of our own. */
static int open_on_mount(const char *type, unsigned long flags, bool bind)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		struct hc_registry *registry;
		bool rebuild;
		int err;

		if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount(bind ? dir_path : "none", dir_path, type, bind ? MS_BIND : 0, NULL) ||
		    (bind && mount("none", dir_path, NULL, MS_BIND | MS_REMOUNT | flags, NULL)))
			_exit(77);
		last_error[0] = 0;
		err = try_open(&registry, &rebuild);
		_exit(strstr(last_error, dir_path) &&
				      strstr(last_error, bind ? "remount" : "use ext4")
			      ? -err
			      : 78);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_read_only(void **state)
{
	int err = open_on_mount(NULL, MS_RDONLY, true);

	if (err == 77)
		hc_test_skip("mounting in a namespace of its own needs root");
	assert_int_equal(err, EROFS);
	/* Also of one that is a cache. */
	hc_registry_close(open_dir());
	assert_int_equal(open_on_mount(NULL, MS_RDONLY, true), EROFS);
}

static void test_no_xattr(void **state)
{
	int err = open_on_mount("ramfs", 0, false);

	if (err == 77)
		hc_test_skip("mounting in a namespace of its own needs root");
	assert_int_equal(err, ENOTSUP);
	assert_int_equal(count_files(), 0);
}

/* --- kills, damage --- */

static uint64_t *shared;

static void work_and_die(void)
{
	struct hc_registry *registry = open_dir();
	struct hc_file_info file;
	struct hc_space_info space;
	uint64_t replaced, id;
	uint32_t s = mkdir_at(registry, 1, "s"), d, series;

	d = mkdir_at(registry, s, "d");
	mkdir_at(registry, d, "was");
	assert_int_equal(hc_dir_remove(registry, d, "was", 0), 0);
	assert_int_equal(hc_space_find(registry, "s", &space), 0);
	assert_int_equal(hc_series_open(registry, space.id, "{64}.bin", KVSPEC, true, &series), 0);
	space.quota_bytes = 12345;
	assert_int_equal(hc_space_set(registry, space.id, &space, HC_SPACE_SET_QUOTA), 0);
	assert_int_equal(hc_file_make(registry, d, "f", &user_owner, &file, &replaced), 0);
	write_file(registry, &file, "kept");
	assert_int_equal(hc_file_make(registry, d, "g", &user_owner, &file, &replaced), 0);
	write_file(registry, &file, "gone");
	assert_int_equal(hc_file_remove(registry, d, "g", &id), 0);
	for (int i = 0; i < 100000; i++)
		shared[0] = hc_registry_next_sequence(registry);
	for (int i = 0; i < 100000; i++)
		shared[1] = hc_registry_next_node_id(registry);
	shared[2] = d;
	shared[3] = series;
	shared[4] = file.id;
	shared[5] = mkdir_at(registry, d, "last");
	assert_int_equal(hc_dir_remove(registry, d, "last", 0), 0);
}

static void test_kill(void **state)
{
	struct hc_registry *registry;
	struct hc_space_info space;
	struct hc_file_info file;
	struct hc_dir_info info;
	uint64_t replaced;
	char path[128];

	in_killed_child(work_and_die);
	registry = open_dir();
	assert_true(hc_registry_next_sequence(registry) > shared[0]);
	assert_true(hc_registry_next_node_id(registry) > shared[1]);
	assert_int_equal(hc_space_find(registry, "s", &space), 0);
	assert_int_equal(space.quota_bytes, 12345);
	assert_int_equal(hc_dir_find(registry, space.dir, "d", &info), 0);
	assert_int_equal(info.id, shared[2]);
	assert_int_equal(info.owner.uid, user_owner.uid);
	assert_int_equal(hc_dir_find(registry, info.id, "was", &info), -ENOENT);
	assert_int_equal(hc_series_space(registry, (uint32_t)shared[3]), space.id);
	check_file(registry, (uint32_t)shared[2], "f", "kept");
	assert_int_equal(hc_file_find(registry, (uint32_t)shared[2], "g", &file), -ENOENT);
	/* Its contents were left behind by the kill, and swept. */
	snprintf(path, sizeof(path), "%s/files/%d", dir_path, (int)shared[4]);
	assert_int_equal(access(path, F_OK), -1);
	assert_true(mkdir_at(registry, 1, "t") > shared[5]);
	assert_int_equal(hc_file_make(registry, 1, "h", &user_owner, &file, &replaced), 0);
	assert_true(file.id > shared[4]);
	/* What others have seen is skipped as well. */
	hc_registry_sequence_seen(registry, 1ull << 40);
	hc_registry_sequence_seen(registry, 5);
	assert_int_equal(hc_registry_next_sequence(registry), (1ull << 40) + 1);
	hc_registry_close(registry);
	registry = open_dir();
	/* A clean end skips nothing. */
	assert_int_equal(hc_registry_next_sequence(registry), (1ull << 40) + 2);
	hc_registry_close(registry);
}

/* The child of test_crash_point, by exec: the point is read from the environment once a process. */
static int crash_child(const char *path)
{
	struct hc_registry *registry;
	struct hc_dir_info info;
	bool rebuild;
	uint32_t id;

	snprintf(dir_path, sizeof(dir_path), "%s", path);
	if (try_open(&registry, &rebuild))
		return 1;
	if (hc_dir_make(registry, 1, "s", &user_owner, &info))
		return 2;
	for (int i = 0; i < 8; i++) {
		char pattern[32];

		snprintf(pattern, sizeof(pattern), "p%d_{64}", i);
		if (hc_series_open(registry, info.space, pattern, NULL, true, &id))
			return 3;
	}
	hc_registry_close(registry);
	return 0;
}

static void run_crash_child(const char *point)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		setenv("HICACHE_CRASH_AT", point, 1);
		execl("/proc/self/exe", "test-registry", "--crash", dir_path, NULL);
		_exit(9);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
}

static void test_crash_point(void **state)
{
	/* Whatever the kill left, the next start has each name at most once, and goes on. */
	for (int n = 1; n <= 5; n++) {
		struct hc_registry *registry;
		struct hc_space_info *spaces;
		struct hc_dir_info info;
		char point[32];
		size_t n_spaces;

		snprintf(point, sizeof(point), "registry-names:%d", n);
		run_crash_child(point);
		registry = open_dir();
		assert_int_equal(hc_space_list(registry, &spaces, &n_spaces), 0);
		assert_true(n_spaces <= 2);
		free(spaces);
		if (!hc_dir_find(registry, 1, "s", &info))
			assert_int_equal(hc_dir_remove(registry, 1, "s", 0), 0);
		hc_registry_close(registry);
	}
}

static void append_names(const char *text)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/names", dir_path);
	fd = open(path, O_WRONLY | O_APPEND);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void test_names_damaged(void **state)
{
	struct hc_registry *registry = open_dir();
	struct hc_registry *none;
	uint32_t a, b;
	bool rebuild;

	assert_int_equal(hc_series_open(registry, 1, "a_{64}", NULL, true, &a), 0);
	hc_registry_close(registry);
	/* A line in the middle is skipped, and its number is not used again. */
	append_names("series 2 1 broken\nseries x\n\nseries 99999999999 1 b_{64}\nspace 5 ..\n"
		     "series 3 77 c_{64}\nfoo\nseries 1 1 other_{64}\ngone 1\nseries 8 1 a_{64}\n");
	registry = open_dir();
	assert_int_equal(hc_series_open(registry, 1, "a_{64}", NULL, false, &b), 0);
	assert_int_equal(a, b);
	assert_int_equal(hc_series_open(registry, 1, "b_{64}", NULL, true, &b), 0);
	assert_true(b > 8);
	hc_registry_close(registry);
	/* Half a line at the end is cut off. */
	append_names("series 100 1 d_{6");
	registry = open_dir();
	assert_int_equal(hc_series_open(registry, 1, "e_{64}", NULL, true, &a), 0);
	hc_registry_close(registry);
	registry = open_dir();
	assert_int_equal(hc_series_open(registry, 1, "e_{64}", NULL, false, &b), 0);
	assert_int_equal(a, b);
	hc_registry_close(registry);
	remove_file("names");
	last_error[0] = 0;
	assert_int_equal(try_open(&none, &rebuild), -ENOENT);
	assert_non_null(strstr(last_error, "restore it"));
	put_file("names", "garbage\n");
	assert_int_equal(try_open(&none, &rebuild), -EBADMSG);
}

static void test_names_compacted(void **state)
{
	struct hc_registry *registry = open_dir();
	struct hc_space_info info;
	uint32_t series, last = 0, again;
	struct stat before, after;
	char path[128];

	snprintf(path, sizeof(path), "%s/names", dir_path);
	mkdir_at(registry, 1, "keep {me}");
	assert_int_equal(hc_space_find(registry, "keep {me}", &info), 0);
	assert_int_equal(hc_series_open(registry, info.id, "k_{64}", KVSPEC, true, &series), 0);
	hc_registry_close(registry);
	for (int i = 100; i < 6000; i++) {
		char lines[64];

		snprintf(lines, sizeof(lines), "space %d old%d\ngone %d\n", i, i, i);
		append_names(lines);
	}
	assert_int_equal(stat(path, &before), 0);
	for (int i = 0; i < 2; i++) {
		registry = open_dir();
		assert_int_equal(stat(path, &after), 0);
		assert_true(after.st_size < before.st_size / 10);
		assert_int_equal(hc_space_find(registry, "keep {me}", &info), 0);
		assert_int_equal(info.owner.uid, user_owner.uid);
		assert_int_equal(hc_series_open(registry, info.id, "k_{64}", KVSPEC, false, &again),
				 0);
		assert_int_equal(again, series);
		mkdir_at(registry, 1, i ? "new1" : "new0");
		assert_int_equal(hc_space_find(registry, i ? "new1" : "new0", &info), 0);
		assert_true(info.id >= 6000 && info.id > last);
		last = info.id;
		hc_registry_close(registry);
	}
}

static void lose_catalog(bool truncated)
{
	remove_file("journal.0");
	remove_file("journal.1");
	if (truncated)
		put_file("catalog.mdb", "rubbish");
	else
		remove_file("catalog.mdb");
}

static void test_catalog_lost(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct hc_registry *registry = NULL;
		struct hc_space_info space;
		struct hc_dir_info info;
		struct hc_key key = {0};
		uint32_t id, series;
		bool rebuild;

		assert_int_equal(try_open(&registry, &rebuild), 0);
		if (!i) {
			mkdir_at(registry, 1, "s");
			assert_int_equal(hc_space_find(registry, "s", &space), 0);
			space.quota_bytes = 99;
			assert_int_equal(
				hc_space_set(registry, space.id, &space, HC_SPACE_SET_QUOTA), 0);
			info.owner.mode = 0711;
			assert_int_equal(hc_dir_set(registry, space.dir, &info, HC_DIR_SET_MODE),
					 0);
		}
		assert_int_equal(hc_space_find(registry, "s", &space), 0);
		assert_int_equal(
			hc_series_open(registry, space.id, "d/{2}/{64}", NULL, true, &series), 0);
		hc_registry_close(registry);
		lose_catalog(i);
		assert_int_equal(try_open(&registry, &rebuild), 0);
		assert_true(rebuild);
		/* The space is there with its owner and limits; the directories of pages are made
		 * again. */
		assert_int_equal(hc_space_find(registry, "s", &space), 0);
		assert_int_equal(space.quota_bytes, 99);
		assert_int_equal(space.owner.uid, user_owner.uid);
		assert_int_equal(space.owner.mode, 0711);
		/* Until it is said to be done, another start rebuilds again. */
		hc_registry_close(registry);
		assert_int_equal(try_open(&registry, &rebuild), 0);
		assert_true(rebuild);
		key.series = series;
		assert_int_equal(hc_name_dir_of_page(registry, &key, &id), 0);
		assert_int_equal(hc_registry_rebuilt(registry), 0);
		assert_int_equal(hc_dir_get(registry, id, &info), 0);
		assert_string_equal(info.name, "00");
		hc_registry_close(registry);
		registry = open_dir();
		assert_int_equal(hc_dir_get(registry, id, &info), 0);
		hc_registry_close(registry);
	}
}

/* --- many threads, many directories --- */

#define N_THREADS 4
#define N_ROUNDS  300

static struct hc_registry *busy;
static atomic_int n_done, n_wrong;

/* From any thread: the test fails when they have ended. (An assertion leaves the main thread only,
 * and an abort is what a run with failing allocations takes for a crash.) */
static void need(bool right)
{
	if (!right)
		atomic_fetch_add(&n_wrong, 1);
}

static void *change_names(void *arg)
{
	uintptr_t self = (uintptr_t)arg;

	for (int i = 0; i < N_ROUNDS; i++) {
		struct hc_dir_info info;
		struct hc_file_info file;
		struct hc_name name;
		char text[128];
		uint64_t replaced, id;
		uint32_t top;

		/* Two threads want the same name. */
		snprintf(text, sizeof(text), "d%zu_%d", (size_t)self / 2, i);
		if (hc_dir_find(busy, 1, "s", &info))
			continue;
		top = info.id;
		if (hc_dir_make(busy, top, text, &user_owner, &info) == 0 && i % 3 == 0)
			need(hc_dir_remove(busy, top, text, 0) == 0);
		snprintf(text, sizeof(text), DIGITS "_%zu_%d", (size_t)self, i % 50);
		need(hc_name_resolve(busy, top, text, true, &name) == 0 && name.known);
		snprintf(text, sizeof(text), "f%zu", (size_t)self);
		replaced = 0;
		need(hc_file_make(busy, top, text, &user_owner, &file, &replaced) == 0);
		if (replaced)
			hc_file_forget(busy, replaced);
		if (i % 5 == 0 && !hc_file_remove(busy, top, text, &id))
			hc_file_forget(busy, id);
	}
	atomic_fetch_add(&n_done, 1);
	return NULL;
}

static void *look_up(void *arg)
{
	while (atomic_load(&n_done) < N_THREADS) {
		struct hc_dir_info info, *list = NULL;
		struct hc_file_info file;
		struct hc_space_info space;
		struct hc_name name;
		size_t n;

		if (hc_dir_find(busy, 1, "s", &info) || hc_space_find(busy, "s", &space)) {
			need(false);
			continue;
		}
		if (hc_dir_find(busy, info.id, "d0_7", &info) == 0)
			need(info.parent == space.dir);
		if (hc_name_resolve(busy, space.dir, DIGITS "_1_7", false, &name) == 0)
			need(!name.known || hc_series_space(busy, name.key.series) == space.id);
		else
			need(false);
		if (hc_file_find(busy, space.dir, "f1", &file) == 0)
			need(file.dir == space.dir);
		need(hc_dir_list(busy, space.dir, &list, &n) == 0);
		free(list);
		need(hc_space_use(busy, space.id, 7, false) == 0);
		need(hc_space_use(busy, space.id, -7, false) == 0);
	}
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[2 * N_THREADS];

	busy = open_dir();
	mkdir_at(busy, 1, "s");
	atomic_store(&n_done, 0);
	atomic_store(&n_wrong, 0);
	for (uintptr_t i = 0; i < N_THREADS; i++) {
		assert_int_equal(pthread_create(&threads[2 * i], NULL, change_names, (void *)i), 0);
		assert_int_equal(pthread_create(&threads[2 * i + 1], NULL, look_up, NULL), 0);
	}
	for (int i = 0; i < 2 * N_THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&n_wrong), 0);
	hc_registry_close(busy);
	busy = open_dir();
	assert_int_equal(hc_space_used(busy, 2), 0);
	hc_registry_close(busy);
}

/* vLLM's tree: 4096 x 16 here. */
static void test_many_dirs(void **state)
{
	struct hc_registry *registry = open_dir();
	struct hc_dir_info info;
	uint32_t top = mkdir_at(registry, 1, "s"), some = 0;
	char name[8];

	for (int i = 0; i < 1024; i++) {
		uint32_t up;

		snprintf(name, sizeof(name), "%03x", i);
		up = mkdir_at(registry, top, name);
		for (int j = 0; j < 16; j++) {
			snprintf(name, sizeof(name), "%02x_g0", j);
			some = mkdir_at(registry, up, name);
		}
	}
	hc_registry_close(registry);
	registry = open_dir();
	assert_int_equal(hc_dir_get(registry, top, &info), 0);
	assert_int_equal(info.n_dirs, 1024);
	assert_int_equal(hc_dir_get(registry, some, &info), 0);
	assert_string_equal(info.name, "0f_g0");
	assert_int_equal(hc_dir_get(registry, info.parent, &info), 0);
	assert_string_equal(info.name, "3ff");
	assert_int_equal(info.n_dirs, 16);
	hc_registry_close(registry);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_fresh_and_again),
		TEST(test_absent_and_noinit),
		TEST(test_foreign),
		TEST(test_newer),
		TEST(test_interrupted_init),
		TEST(test_in_use),
		TEST(test_read_only),
		TEST(test_no_xattr),
		TEST(test_kill),
		TEST(test_crash_point),
		TEST(test_names_damaged),
		TEST(test_names_compacted),
		TEST(test_catalog_lost),
		TEST(test_threads),
		TEST(test_many_dirs),
	};

	if (argc == 3 && !strcmp(argv[1], "--crash"))
		return crash_child(argv[2]);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
