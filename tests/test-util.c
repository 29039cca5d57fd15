/* SPDX-License-Identifier: Apache-2.0 */
/* util/: sizes, hex, clock, rng, io. Goal: what users type is read exactly or refused. */
#include "hctest.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "util/clock.h"
#include "util/hex.h"
#include "util/io.h"
#include "util/log.h"
#include "util/rng.h"
#include "util/size.h"
#include "util/sysinfo.h"

static void test_size(void **state)
{
	static const char *const bad[] = {"",    "K",  "-1", "1X",  "1KK", "0x10",
					  "1e9", " 1", "1 ", "1.5", "inf", "1.G"};
	uint64_t v = 7;

	assert_int_equal(hc_size_parse("4096", &v), 0);
	assert_int_equal(v, 4096);
	assert_int_equal(hc_size_parse("64K", &v), 0);
	assert_int_equal(v, 65536);
	assert_int_equal(hc_size_parse("1.5G", &v), 0);
	assert_int_equal(v, 1610612736);
	assert_int_equal(hc_size_parse("2TiB", &v), 0);
	assert_int_equal(v, (uint64_t)2 << 40);
	for (size_t i = 0; i < HC_ARRAY_SIZE(bad); i++)
		assert_int_equal(hc_size_parse(bad[i], &v), -EINVAL);
	assert_int_equal(hc_size_parse("99999999T", &v), -ERANGE);
	assert_int_equal(v, (uint64_t)2 << 40);
}

static void test_percent_duration(void **state)
{
	uint32_t ppm;
	uint64_t s;

	assert_int_equal(hc_percent_parse("2.5%", &ppm), 0);
	assert_int_equal(ppm, 25000);
	assert_int_equal(hc_percent_parse("101%", &ppm), -EINVAL);
	assert_int_equal(hc_percent_parse("10", &ppm), -EINVAL);
	assert_int_equal(hc_duration_parse("7d", &s), 0);
	assert_int_equal(s, 7 * 86400);
	assert_int_equal(hc_duration_parse("500ms", &s), -EINVAL);
	assert_int_equal(hc_duration_parse("", &s), -EINVAL);
}

static void test_hex(void **state)
{
	uint8_t b[3], all[256], back[256];
	char t[7], text[513], want[3];

	assert_int_equal(hc_hex_decode("00ff7a", b, 3), 0);
	hc_hex_encode(b, 3, t);
	assert_string_equal(t, "00ff7a");
	assert_int_equal(hc_hex_decode("00FF7a", b, 3), -EINVAL);
	assert_int_equal(hc_hex_decode("00f", b, 2), -EINVAL);
	for (int i = 0; i < 256; i++) {
		bool digit = (i >= '0' && i <= '9') || (i >= 'a' && i <= 'f');

		all[i] = (uint8_t)i;
		assert_int_equal(hc_hex_digit((char)i) >= 0, digit);
	}
	/* Every length, so every way through; nothing behind the end is touched. */
	for (size_t n = 0; n <= 256; n++) {
		memset(text, '#', sizeof(text));
		hc_hex_encode(all + 256 - n, n, text);
		assert_int_equal(strlen(text), 2 * n);
		if (n < 256)
			assert_int_equal(text[2 * n + 1], '#');
		for (size_t i = 0; i < n; i++) {
			snprintf(want, sizeof(want), "%02x", all[256 - n + i]);
			assert_memory_equal(text + 2 * i, want, 2);
		}
		assert_int_equal(hc_hex_run(text), 2 * n);
		assert_int_equal(hc_hex_decode(text, back, n), 0);
		assert_memory_equal(back, all + 256 - n, n);
	}
}

static void test_clock(void **state)
{
	hc_clock_fake_set_ns(5, 6);
	assert_int_equal(hc_clock_now_ns(), 5);
	assert_int_equal(hc_clock_wall_ns(), 6);
	hc_clock_fake_off();
	assert_true(hc_clock_now_ns() > 5);
}

static void test_rng(void **state)
{
	struct hc_rng a, b;

	hc_rng_seed(&a, 1);
	hc_rng_seed(&b, 1);
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(hc_rng_next(&a), hc_rng_next(&b));
		assert_true(hc_rng_below(&a, 7) < 7);
		hc_rng_below(&b, 7);
	}
}

static void test_replace(void **state)
{
	char dir[] = "/tmp/hctest-util-XXXXXX";
	char *text;
	size_t n;
	int fd;

	assert_non_null(mkdtemp(dir));
	fd = open(dir, O_RDONLY | O_DIRECTORY);
	assert_int_equal(hc_file_replace(fd, "a", "one", 3, 0600), 0);
	assert_int_equal(hc_file_replace(fd, "a", "second", 6, 0600), 0);
	assert_int_equal(hc_file_read(fd, "a", 100, &text, &n), 0);
	assert_string_equal(text, "second");
	free(text);
	assert_int_equal(hc_file_read(fd, "a", 5, &text, &n), -EFBIG);
	assert_int_equal(hc_mkdir_parents(fd, "x/y/z", 0755), 0);
	assert_int_equal(hc_mkdir_parents(fd, "x/y/z", 0755), 0);
	assert_int_equal(unlinkat(fd, "x/y/z", AT_REMOVEDIR), 0);
	unlinkat(fd, "x/y", AT_REMOVEDIR);
	unlinkat(fd, "x", AT_REMOVEDIR);
	unlinkat(fd, "a", 0);
	close(fd);
	assert_int_equal(rmdir(dir), 0);
}

static void test_sysinfo(void **state)
{
	uint64_t total, available, start;
	int tgid;

	assert_int_equal(hc_sysinfo_memory(&total, &available), 0);
	assert_true(available <= total && total > 0);
	assert_true(hc_sysinfo_cpus() > 0);
	assert_int_equal(hc_sysinfo_tgid(getpid(), &tgid, &start), 0);
	assert_int_equal(tgid, getpid());
	assert_true(start > 0);
	assert_int_equal(hc_sysinfo_tgid(0x7ffffff0, &tgid, &start), -ESRCH);
	assert_false(hc_sysinfo_is_killed(getpid()));
}

static void *exit_process(void *arg)
{
	_exit(9);
}

/* A child that has ended and is not waited for yet: killed or not? */
static bool child_is_killed(bool exits)
{
	pthread_t thread;
	bool killed;
	siginfo_t info;
	pid_t pid = fork();

	if (pid == 0) {
		if (exits)
			pthread_create(&thread, NULL, exit_process, NULL);
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	if (!exits)
		assert_int_equal(kill(pid, SIGTERM), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	killed = hc_sysinfo_is_killed(pid);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return killed;
}

/* The exit() of one thread is no kill of the others, though the kernel ends them by SIGKILL. */
static void test_killed(void **state)
{
	assert_true(child_is_killed(false));
	assert_false(child_is_killed(true));
	assert_false(hc_sysinfo_is_killed(0x7ffffff0));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_size),    cmocka_unit_test(test_percent_duration),
	cmocka_unit_test(test_hex),     cmocka_unit_test(test_clock),
	cmocka_unit_test(test_rng),     cmocka_unit_test(test_replace),
	cmocka_unit_test(test_sysinfo), cmocka_unit_test(test_killed),
};

HC_TEST_MAIN(tests)
