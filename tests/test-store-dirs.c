/* SPDX-License-Identifier: Apache-2.0 */
/* store/file and its data directories: which are taken, which are refused and with what message, a
 * full disk, and what a kill -9 leaves. This program calls itself as the child that is killed:
 * test-store-dirs crash DIR OP. */
#include "store-rig.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "util/log.h"

struct messages {
	char text[4096];
};

static void note_message(void *arg, enum hc_log_level level, const char *component,
			 const char *text)
{
	struct messages *messages = arg;
	size_t n = strlen(messages->text);

	snprintf(messages->text + n, sizeof(messages->text) - n, "%s\n", text);
}

static int open_dir(const char *dir, bool init_empty, struct hc_store **store_p)
{
	struct hc_store_file_config config = {.dirs = &dir, .n_dirs = 1, .init_empty = init_empty};

	return hc_store_file_open(&config, store_p);
}

/* Opens, and demands the error and words of the message. */
static void refused(const char *dir, bool init_empty, int error, const char *word,
		    const char *remedy)
{
	struct messages messages = {0};
	struct hc_store *store = NULL;
	int rc;

	hc_log_set_sink(note_message, &messages);
	rc = open_dir(dir, init_empty, &store);
	hc_log_set_sink(NULL, NULL);
	assert_int_equal(rc, error);
	assert_null(store);
	assert_non_null(strstr(messages.text, dir));
	if (!strstr(messages.text, word) || !strstr(messages.text, remedy))
		fail_msg("message lacks \"%s\" or \"%s\": %s", word, remedy, messages.text);
}

static void accepted(const char *dir)
{
	struct hc_store *store = NULL;

	assert_int_equal(open_dir(dir, true, &store), 0);
	store->ops->close(store);
}

static void put_file(const char *dir, const char *name, const char *text)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int setup(void **state)
{
	char *dir = rig_zalloc(256);

	rig_make_root(dir, 256, NULL);
	*state = dir;
	return 0;
}

static int teardown(void **state)
{
	hc_log_set_sink(NULL, NULL);
	rig_rm(*state);
	free(*state);
	return 0;
}

/* Goal: somebody's directory is refused and left as it was. */
static void test_foreign_dir(void **state)
{
	char *dir = *state, path[512];

	put_file(dir, "thesis.tex", "x");
	snprintf(path, sizeof(path), "%s/staging", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	refused(dir, true, -EEXIST, "thesis.tex", "empty directory");
	assert_int_equal(rig_count_entries(dir), 2);
	snprintf(path, sizeof(path), "%s/thesis.tex", dir);
	assert_int_equal(unlink(path), 0);
	accepted(dir);
}

/* Goal: a fresh file system, a half-made data directory and a cache directory are taken. */
static void test_taken_dirs(void **state)
{
	char *dir = *state, path[512];

	snprintf(path, sizeof(path), "%s/lost+found", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	put_file(dir, ".hicachefs-disk.new", "vers");
	accepted(dir);
	rig_rm(dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	put_file(dir, ".hicachefs", "identity of a cache directory");
	put_file(dir, "names", "");
	accepted(dir);
	accepted(dir);
}

/* Goal: pages whose identity file is gone are not taken over with a new uuid. */
static void test_lost_identity(void **state)
{
	char *dir = *state, path[512];

	accepted(dir);
	snprintf(path, sizeof(path), "%s/.hicachefs-disk", dir);
	assert_int_equal(unlink(path), 0);
	refused(dir, true, -EEXIST, "pages", "empty");
	put_file(dir, ".hicachefs", "x");
	refused(dir, true, -EEXIST, "pages", "empty");
}

static void test_noinit(void **state)
{
	char *dir = *state;

	refused(dir, false, -ENOENT, "noinit", "mount the disk");
	assert_int_equal(rig_count_entries(dir), 0);
	accepted(dir);
	struct hc_store *store;
	assert_int_equal(open_dir(dir, false, &store), 0);
	store->ops->close(store);
}

static void test_missing_dir(void **state)
{
	char *dir = *state;

	assert_int_equal(rmdir(dir), 0);
	refused(dir, true, -ENOENT, "No such file", "create it");
	put_file("/", dir + 1, "a file");
	refused(dir, true, -ENOTDIR, "Not a directory", "");
}

static void test_identity(void **state)
{
	char *dir = *state;

	accepted(dir);
	put_file(dir, ".hicachefs-disk",
		 "version 2\nuuid 00112233445566778899aabbccddeeff\nmore 1\n");
	refused(dir, true, -EPROTO, "newer", "use that one");
	put_file(dir, ".hicachefs-disk",
		 "version 1\nuuid 00112233445566778899aabbccddeeff\nmore 1\n");
	accepted(dir);
	static const char *const bad[] = {"",
					  "rubbish",
					  "version\n",
					  "version 0\nuuid 00112233445566778899aabbccddeeff\n",
					  "version 1\n",
					  "version 1\nuuid 00\n",
					  "version 1\nuuid 00112233445566778899aabbccddeeffaa\n",
					  "version 1\nuuid 00112233445566778899AABBCCDDEEFF\n"};
	for (size_t i = 0; i < HC_ARRAY_SIZE(bad); i++) {
		put_file(dir, ".hicachefs-disk", bad[i]);
		refused(dir, true, -EBADMSG, ".hicachefs-disk", "restore it");
	}
}

/* Goal: one store at a time, and each directory once. */
static void test_in_use(void **state)
{
	char *dir = *state;
	const char *twice[] = {dir, dir};
	struct hc_store_file_config config = {.dirs = twice, .n_dirs = 2, .init_empty = true};
	struct hc_store *store, *second = NULL;

	assert_int_equal(open_dir(dir, true, &store), 0);
	refused(dir, true, -EBUSY, "in use", "one cache at a time");
	store->ops->close(store);
	assert_int_equal(hc_store_file_open(&config, &second), -EINVAL);
	config.n_dirs = 0;
	assert_int_equal(hc_store_file_open(&config, &second), -EINVAL);
	assert_null(second);
	accepted(dir);
}

/* ---- file systems: in a child with a mount namespace of its own ---- */

static bool private_mounts(void)
{
	return !unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

/* Runs fn(dir) in a child. Skips where it exits 77. */
static void in_child(const char *dir, int (*fn)(const char *dir))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		_exit(private_mounts() ? fn(dir) : 77);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		hc_test_skip("mounting in a namespace of its own needs root");
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* What refused() asks, for a child: 0 or the number of the check that failed. */
static int child_refused(const char *dir, int error, const char *word)
{
	static struct messages messages;
	struct hc_store *store;
	int rc;

	hc_log_set_sink(note_message, &messages);
	rc = open_dir(dir, true, &store);
	if (rc != error)
		return 2;
	return strstr(messages.text, dir) && strstr(messages.text, word) ? 0 : 3;
}

static int child_no_xattr(const char *dir)
{
	if (mount("ramfs", dir, "ramfs", 0, NULL))
		return 77;
	/* Later kernels may give ramfs xattrs: then there is nothing to refuse. */
	return child_refused(dir, -ENOTSUP, "no user xattrs") ?: (rig_count_entries(dir) ? 4 : 0);
}

static void test_no_xattr(void **state)
{
	in_child(*state, child_no_xattr);
}

static int child_read_only(const char *dir)
{
	if (mount(dir, dir, NULL, MS_BIND, NULL) ||
	    mount(NULL, dir, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL))
		return 77;
	return child_refused(dir, -EROFS, "read-only");
}

static void test_read_only(void **state)
{
	in_child(*state, child_read_only);
	accepted(*state);
	in_child(*state, child_read_only);
}

static int child_full(const char *dir)
{
	struct hc_store_request put = {.op = HC_STORE_PUT}, *done, *one = &put;
	struct hc_store_disk_info *info = rig_alloc(sizeof(*info));
	struct rig rig = {.n_disks = 1};
	struct rig_list *list;

	if (mount("tmpfs", dir, "tmpfs", 0, "size=4m"))
		return 77;
	snprintf(rig.dirs[0], sizeof(rig.dirs[0]), "%s", dir);
	if (open_dir(dir, true, &rig.store))
		return 77;
	put.data = rig_alloc(RIG_ROOM);
	/* Does not fit, again and again; then smaller ones still do, until the disk is full. */
	for (uint64_t i = 0; i < 12; i++) {
		int want = i < 6 ? -ENOSPC : 0;

		put.page = rig_page(put.data, i, i < 6 ? 8 << 20 : 65536);
		if (rig.store->ops->submit(rig.store, &one, 1) != 1)
			return 4;
		done = rig_wait(rig.store, RIG_WAIT_MS);
		if (!done || done->result != want)
			return 5;
	}
	if (rig.store->ops->disk_info(rig.store, 0, info) || info->out || info->n_errors)
		return 6;
	list = rig_list(&rig);
	if (list->n != 6)
		return 7;
	for (size_t i = 0; i < list->n; i++)
		if (list->at[i].status)
			return 8;
	rig.store->ops->close(rig.store);
	free(put.data);
	free(list);
	free(info);
	return 0;
}

/* Goal: a full disk is a failed put that leaves nothing, no matter how often; the disk stays in. */
static void test_full_disk(void **state)
{
	in_child(*state, child_full);
}

/* ---- kill -9 ---- */

#define CRASH_PAGES 6
#define CRASH_BYTES (300001)

/* The child: puts or adopts pages one after the other, and tells each that is done on standard
 * output. */
static int crash_child(const char *dir, const char *op)
{
	struct hc_store *store;
	void *data = rig_alloc(RIG_ROOM);
	uint64_t n = strcmp(op, "long") ? CRASH_PAGES : 2000;

	if (!data || open_dir(dir, true, &store))
		return 2;
	for (uint64_t i = 0; i < n; i++) {
		struct hc_store_request request = {.op = HC_STORE_PUT, .data = data},
					*one = &request, *done;
		char name[64];
		uint8_t number = (uint8_t)i;
		int fd;

		request.page = rig_page(data, i, strcmp(op, "long") ? CRASH_BYTES : 4 << 20);
		if (!strcmp(op, "adopt")) {
			if (store->ops->staging_create(store, 0, &fd, name, sizeof(name)) ||
			    write(fd, data, CRASH_BYTES) != CRASH_BYTES || close(fd))
				return 3;
			request.op = HC_STORE_ADOPT;
			request.staging = name;
		}
		if (store->ops->submit(store, &one, 1) != 1)
			return 4;
		done = rig_wait(store, RIG_WAIT_MS);
		if (!done || done->result || write(STDOUT_FILENO, &number, 1) != 1)
			return 5;
	}
	store->ops->close(store);
	free(data);
	return 0;
}

/* Runs the child with a crash point, or kills it after kill_after pages; n_told_p: pages it called
 * done. */
static void crash_run(const char *dir, const char *op, const char *at, int kill_after,
		      uint64_t *n_told_p)
{
	uint64_t n = 0;
	int pipes[2], status;
	uint8_t number;
	pid_t pid;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (at)
			setenv("HICACHE_CRASH_AT", at, 1);
		dup2(pipes[1], STDOUT_FILENO);
		execl("/proc/self/exe", "test-store-dirs", "crash", dir, op, (char *)NULL);
		_exit(9);
	}
	close(pipes[1]);
	while (read(pipes[0], &number, 1) == 1) {
		assert_int_equal(number, n & 0xff);
		n++;
		if (kill_after && n == (uint64_t)kill_after)
			kill(pid, SIGKILL);
	}
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	*n_told_p = n;
}

static bool keep_good(void *arg, uint32_t series, const struct hc_hash *hash, uint64_t sequence)
{
	const struct rig_listed *one = rig_find(arg, sequence);

	return one && !one->status;
}

/* After a crash: what list calls good is whole and right, every page told done is there, the rest
 * is -EBADMSG and is swept. How many good and how many partial ones. */
static void crash_check(const char *dir, uint64_t size_bytes, uint64_t n_told, size_t *n_good_p,
			size_t *n_partial_p)
{
	struct rig rig = {.n_disks = 1};
	struct rig_list *list;
	uint64_t n, bytes;
	char path[512];

	snprintf(rig.dirs[0], sizeof(rig.dirs[0]), "%s", dir);
	rig.data = rig_alloc(RIG_ROOM);
	assert_int_equal(rig_try_open(&rig), 0);
	list = rig_list(&rig);
	*n_good_p = *n_partial_p = 0;
	for (size_t i = 0; i < list->n; i++) {
		const struct rig_listed *one = &list->at[i];

		if (one->status) {
			assert_int_equal(one->status, -EBADMSG);
			++*n_partial_p;
			continue;
		}
		++*n_good_p;
		assert_int_equal(one->page.size_bytes, size_bytes);
		assert_int_equal(rig_op(&rig, HC_STORE_GET, &one->page, 0, 0), 0);
		assert_true(rig_same(rig.data, one->page.sequence - 1, size_bytes));
	}
	for (uint64_t i = 0; i < n_told; i++) {
		assert_non_null(rig_find(list, i + 1));
		assert_int_equal(rig_find(list, i + 1)->status, 0);
	}
	assert_int_equal(rig.store->ops->sweep(rig.store, 0, keep_good, list, true, &n, &bytes), 0);
	free(list);
	list = rig_list(&rig);
	assert_int_equal(list->n, *n_good_p);
	free(list);
	snprintf(path, sizeof(path), "%s/staging", dir);
	assert_int_equal(rig_count_entries(path), 0);
	rig_close(&rig);
	free(rig.data);
}

/* Goal: kill -9 at each point of a put or adopt leaves either nothing good or the whole page. */
static void test_crash_points(void **state)
{
	static const struct {
		const char *op, *at;
		size_t n_good, n_partial, n_told;
	} cases[] = {
		{"put", "store-put-data:1", 0, 1, 0},  {"put", "store-put-data:4", 3, 1, 3},
		{"put", "store-put-xattr:1", 1, 0, 0}, {"put", "store-put-xattr:6", 6, 0, 5},
		{"adopt", "store-adopt:1", 0, 0, 0},   {"adopt", "store-adopt:2", 1, 0, 0},
		{"adopt", "store-adopt:7", 3, 0, 3},
	};

	for (size_t i = 0; i < HC_ARRAY_SIZE(cases); i++) {
		size_t n_good, n_partial;
		uint64_t n_told;

		crash_run(*state, cases[i].op, cases[i].at, 0, &n_told);
		assert_int_equal(n_told, cases[i].n_told);
		crash_check(*state, CRASH_BYTES, n_told, &n_good, &n_partial);
		assert_int_equal(n_good, cases[i].n_good);
		assert_int_equal(n_partial, cases[i].n_partial);
		rig_rm(*state);
		assert_int_equal(mkdir(*state, 0700), 0);
	}
}

/* Goal: the same at moments nobody chose. */
static void test_crash_anywhere(void **state)
{
	for (int round = 1; round <= 8; round++) {
		size_t n_good, n_partial;
		uint64_t n_told;

		crash_run(*state, "long", NULL, round, &n_told);
		crash_check(*state, 4 << 20, n_told, &n_good, &n_partial);
		assert_true(n_good >= n_told);
		rig_rm(*state);
		assert_int_equal(mkdir(*state, 0700), 0);
	}
}

#define DIR_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		DIR_TEST(test_foreign_dir),   DIR_TEST(test_taken_dirs),
		DIR_TEST(test_lost_identity), DIR_TEST(test_noinit),
		DIR_TEST(test_missing_dir),   DIR_TEST(test_identity),
		DIR_TEST(test_in_use),        DIR_TEST(test_no_xattr),
		DIR_TEST(test_read_only),     DIR_TEST(test_full_disk),
		DIR_TEST(test_crash_points),  DIR_TEST(test_crash_anywhere),
	};

	if (argc == 4 && !strcmp(argv[1], "crash"))
		return crash_child(argv[2], argv[3]);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
