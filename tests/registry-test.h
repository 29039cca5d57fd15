/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the registry share: a directory of their own, the last error caught, children
 * that are killed. */
#ifndef HC_REGISTRY_TEST_H
#define HC_REGISTRY_TEST_H

#include "hctest.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "node/registry.h"
#include "util/clock.h"
#include "util/io.h"
#include "util/log.h"
#include "util/rng.h"

#define DIGITS "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define KVSPEC "model=m layers=2 kv_heads=1 head_dim=8 dtype=fp16 page_tokens=16"

static char dir_path[64];
static char last_error[1024];
static const struct hc_owner root_owner = {10, 20, 0751};
static const struct hc_owner user_owner = {1000, 1001, 0700};

static inline void catch (void *arg, enum hc_log_level level, const char *component,
			  const char *text)
{
	if (level == HC_LOG_ERROR)
		snprintf(last_error, sizeof(last_error), "%s", text);
}

static inline int setup(void **state)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir_path, sizeof(dir_path), "%.40s/hc-registry-XXXXXX", tmp ? tmp : "/tmp");
	last_error[0] = 0;
	hc_log_set_sink(catch, NULL);
	return mkdtemp(dir_path) ? 0 : -1;
}

static inline int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}

static inline int teardown(void **state)
{
	hc_log_set_sink(NULL, NULL);
	return nftw(dir_path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static inline int try_open(struct hc_registry **registry_p, bool *rebuild_p)
{
	struct hc_registry_config config = {.cachedir = dir_path, .root = root_owner};

	return hc_registry_open(&config, registry_p, rebuild_p);
}

static inline struct hc_registry *open_dir(void)
{
	struct hc_registry *registry = NULL;
	bool rebuild = true;

	assert_int_equal(try_open(&registry, &rebuild), 0);
	assert_false(rebuild);
	return registry;
}

static inline struct hc_registry *open_memory(void)
{
	struct hc_registry_config config = {.root = root_owner};
	struct hc_registry *registry = NULL;
	bool rebuild;

	assert_int_equal(hc_registry_open(&config, &registry, &rebuild), 0);
	return registry;
}

static inline void put_file(const char *name, const char *text)
{
	hc_autofd int fd = open(dir_path, O_RDONLY | O_DIRECTORY);

	assert_int_equal(hc_file_replace(fd, name, text, strlen(text), 0600), 0);
}

static inline char *get_file(const char *name)
{
	hc_autofd int fd = open(dir_path, O_RDONLY | O_DIRECTORY);
	char *text = NULL;
	size_t n;

	assert_int_equal(hc_file_read(fd, name, HC_MIB, &text, &n), 0);
	return text;
}

static inline void remove_file(const char *name)
{
	hc_autofd int fd = open(dir_path, O_RDONLY | O_DIRECTORY);

	assert_int_equal(unlinkat(fd, name, 0), 0);
}

static inline int count_files(void)
{
	DIR *dir = opendir(dir_path);
	int n = -2;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static inline uint32_t mkdir_at(struct hc_registry *registry, uint32_t parent, const char *name)
{
	struct hc_dir_info info;

	assert_int_equal(hc_dir_make(registry, parent, name, &user_owner, &info), 0);
	return info.id;
}

/* Runs in a child that ends by SIGKILL. */
static inline void in_killed_child(void (*what)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		what();
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
}

static inline void write_file(struct hc_registry *registry, struct hc_file_info *info,
			      const char *text)
{
	int fd;

	assert_int_equal(hc_file_open(registry, info->id, &fd), 0);
	assert_int_equal(hc_pwrite_full(fd, text, strlen(text), 0), 0);
	close(fd);
	info->size_bytes = strlen(text);
	info->mtime_ns = 5;
	assert_int_equal(hc_file_set(registry, info, true, HC_DIR_SET_MTIME), 0);
}

static inline void check_file(struct hc_registry *registry, uint32_t dir, const char *name,
			      const char *text)
{
	struct hc_file_info info;
	char got[64] = "";
	size_t n;
	int fd;

	assert_int_equal(hc_file_find(registry, dir, name, &info), 0);
	assert_int_equal(info.size_bytes, strlen(text));
	assert_int_equal(hc_file_open(registry, info.id, &fd), 0);
	assert_int_equal(hc_pread_full(fd, got, sizeof(got) - 1, 0, &n), 0);
	assert_string_equal(got, text);
	close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
