/* SPDX-License-Identifier: Apache-2.0 */
/* Options of hicachefs: what is taken, what is refused and with which message, what wins, and the
 * text forms. */
#include "hctest.h"

#include <unistd.h>

#include "fuse/options.h"
#include "util/log.h"

static char last_message[2048];

static void keep_message(void *arg, enum hc_log_level level, const char *component,
			 const char *text)
{
	(void)arg;
	(void)level;
	snprintf(last_message, sizeof(last_message), "%s: %s", component, text);
}

static int setup(void **state)
{
	struct hc_options *options;

	hc_log_set_sink(keep_message, NULL);
	last_message[0] = 0;
	if (hc_options_create(&options))
		return -1;
	*state = options;
	return 0;
}

static int teardown(void **state)
{
	hc_options_destroy(*state);
	hc_log_set_sink(NULL, NULL);
	return 0;
}

static void assert_says(const char *part)
{
	if (!strstr(last_message, part))
		fail_msg("the message is \"%s\", expected \"%s\" in it", last_message, part);
}

static void assert_refused(struct hc_options *options, const char *list, const char *part)
{
	last_message[0] = 0;
	assert_int_equal(hc_options_set_list(options, list), -EINVAL);
	assert_says(part);
}

static void assert_config_refused(const char *text, const char *part)
{
	struct hc_options *options;

	last_message[0] = 0;
	assert_int_equal(hc_options_create(&options), 0);
	assert_int_equal(hc_config_parse(options, "h.conf", text, strlen(text)), -EINVAL);
	hc_options_destroy(options);
	assert_says(part);
}

/* Defaults are those of the table, and each is a good value. */
static void test_defaults(void **state)
{
	struct hc_options *o = *state;

	assert_true(hc_option(o, HC_OPT_pool_size)->is_percent);
	assert_int_equal(hc_option(o, HC_OPT_pool_size)->ppm, 100000);
	assert_int_equal(hc_option(o, HC_OPT_disk_size)->ppm, 800000);
	assert_int_equal(hc_option(o, HC_OPT_min_free)->ppm, 50000);
	assert_int_equal(hc_option(o, HC_OPT_high)->ppm, 950000);
	assert_int_equal(hc_option(o, HC_OPT_low)->ppm, 900000);
	assert_int_equal(hc_option(o, HC_OPT_dirty)->ppm, 250000);
	assert_int_equal(hc_option(o, HC_OPT_backup)->number, 0);
	assert_int_equal(hc_option(o, HC_OPT_write_budget)->number, 0);
	assert_int_equal(hc_option(o, HC_OPT_max_page_bytes)->number, 64 * HC_MIB);
	assert_int_equal(hc_option(o, HC_OPT_index_memory)->ppm, 10000);
	assert_int_equal(hc_option(o, HC_OPT_budget_ms)->number, 2000);
	assert_int_equal(hc_option(o, HC_OPT_flush_s)->number, 20);
	assert_int_equal(hc_option(o, HC_OPT_root_mode)->number, 0755);
	assert_int_equal(hc_option(o, HC_OPT_verify)->number, 1);
	assert_int_equal(hc_option(o, HC_OPT_keep_pool)->number, 0);
	assert_int_equal(hc_option(o, HC_OPT_threads)->number, 0);
	assert_int_equal(hc_option(o, HC_OPT_log_level)->number, HC_LOG_INFO);
	assert_int_equal(hc_options_check(o), 0);
}

static void test_values(void **state)
{
	struct hc_options *o = *state;

	assert_int_equal(hc_options_set_list(
				 o,
				 "pool_size=1.5G,keep_pool,disk=/a,disk=/b\\,c,backup=evict,numa=1,"
				 "root_mode=1777,threads=8,flush_s=2m,verify=off,disk_size=0"),
			 0);
	assert_int_equal(hc_option(o, HC_OPT_pool_size)->number, 3 * HC_GIB / 2);
	assert_false(hc_option(o, HC_OPT_pool_size)->is_percent);
	assert_int_equal(hc_option(o, HC_OPT_pool_size)->origin, HC_FROM_COMMAND_LINE);
	assert_int_equal(hc_option(o, HC_OPT_keep_pool)->number, 1);
	assert_int_equal(o->n_disks, 2);
	assert_string_equal(o->disks[1], "/b,c");
	assert_int_equal(hc_option(o, HC_OPT_backup)->number, 2);
	assert_int_equal(hc_option(o, HC_OPT_numa)->number, 1);
	assert_int_equal(hc_option(o, HC_OPT_root_mode)->number, 01777);
	assert_int_equal(hc_option(o, HC_OPT_threads)->number, 8);
	assert_int_equal(hc_option(o, HC_OPT_flush_s)->number, 120);
	assert_int_equal(hc_option(o, HC_OPT_verify)->number, 0);
	assert_false(hc_option(o, HC_OPT_disk_size)->is_percent);
	assert_int_equal(hc_option(o, HC_OPT_disk_size)->number, 0);
	/* The last one on the command line holds. */
	assert_int_equal(hc_options_set_list(o, "pool_size=1T,pool_size=2K"), 0);
	assert_int_equal(hc_option(o, HC_OPT_pool_size)->number, 2048);
}

/* Each refusal names the option and what is allowed, and leaves the value alone. */
static void test_refusals(void **state)
{
	struct hc_options *o = *state;

	assert_refused(o, "pool_sise=1G",
		       "there is no option \"pool_sise\"; did you mean \"pool_size\"?");
	assert_refused(
		o, "quta=3",
		"\"quota\" is set for each space: in the config file below a line [space NAME]");
	assert_refused(o, "frobnicate",
		       "there is no option \"frobnicate\"; hicachefs --help lists all");
	assert_refused(o, "pool_size=lots",
		       "-o pool_size=lots: pool_size wants a size such as 64G");
	assert_refused(o, "pool_size=-1", "pool_size wants a size");
	assert_refused(o, "pool_size=0", "above 0");
	assert_refused(o, "pool_size=101%", "a percentage");
	assert_refused(o, "pool_size", "a value is missing");
	assert_refused(o, "pool_size=", "pool_size wants");
	assert_refused(o, "high=95", "high wants a percentage from 1% to 100%");
	assert_refused(o, "high=0%", "high wants a percentage from 1% to 100%");
	assert_refused(o, "backup=sometimes", "one of publish|reuse|evict|off");
	assert_refused(o, "backup=", "one of publish|reuse|evict|off");
	assert_refused(o, "log_level=loud", "one of error|warn|info|debug|trace");
	assert_refused(o, "keep_pool=maybe", "keep_pool wants yes or no");
	assert_refused(o, "root_mode=0999", "octal");
	assert_refused(o, "root_mode=77777", "octal");
	assert_refused(o, "budget_ms=0", "a number from 1 to 600000");
	assert_refused(o, "threads=65", "auto or a number from 1 to 64");
	assert_refused(o, "max_page_bytes=1K", "a size from 4K to 1T");
	assert_refused(o, "flush_s=2d", "seconds");
	assert_refused(o, "numa=far", "auto, interleave, off or the number of a node");
	assert_refused(o, "disk=", "disk wants a path");
	assert_refused(o, "listen=/run/h", "listen is not built in this version");
	assert_refused(o, "passthrough=on", "one of auto|off|writes");
	assert_refused(o, "store=s3", "store is not built in this version");
	assert_refused(o, "ro=perhaps", "ro takes no value");
	assert_refused(o, "fsname", "a value is missing");
	assert_int_equal(hc_option(o, HC_OPT_pool_size)->origin, HC_FROM_DEFAULT);
	assert_int_equal(hc_option(o, HC_OPT_pool_size)->ppm, 100000);
	assert_int_equal(o->n_disks, 0);
}

static void test_contradictions(void **state)
{
	struct hc_options *o = *state;

	assert_int_equal(hc_options_set_list(o, "low=80%,high=70%"), 0);
	assert_int_equal(hc_options_check(o), -EINVAL);
	assert_says("low (80%) is above high (70%)");
	assert_int_equal(hc_options_set_list(o, "high=100%,low=100%"), 0);
	assert_int_equal(hc_options_check(o), 0);
	assert_int_equal(hc_options_set_list(o, "disk_size=64M"), 0);
	assert_int_equal(hc_options_check(o), -EINVAL);
	assert_says("disk_size (64M) leaves no room beside one page of max_page_bytes (64M)");
	assert_int_equal(hc_options_set_list(o, "max_page_bytes=1M"), 0);
	assert_int_equal(hc_options_check(o), 0);
	assert_int_equal(hc_options_set_list(o, "disk_size=0,allow_other,allow_root"), 0);
	assert_int_equal(hc_options_check(o), -EINVAL);
	assert_says("exclude each other");
}

static void test_config(void **state)
{
	static const char text[] = "# the cache of node 7\n"
				   "pool_size = 64G   # huge pages\n"
				   "\tkeep_pool\r\n"
				   "disk = /nvme0/with#hash\n"
				   "disk=/nvme1\n"
				   "allow_other = yes\n"
				   "ro = no\n"
				   "\n"
				   "[space qwen3 32b]\n"
				   "quota = 200G\n"
				   "max_age = 7d\n"
				   "[ space . ]\n"
				   "priority = 3";
	struct hc_options *o = *state;

	assert_int_equal(hc_config_parse(o, "h.conf", text, sizeof(text) - 1), 0);
	assert_int_equal(hc_option(o, HC_OPT_pool_size)->number, 64 * HC_GIB);
	assert_int_equal(hc_option(o, HC_OPT_pool_size)->origin, HC_FROM_FILE);
	assert_int_equal(hc_option(o, HC_OPT_pool_size)->line, 2);
	assert_int_equal(hc_option(o, HC_OPT_keep_pool)->number, 1);
	assert_int_equal(o->n_disks, 2);
	assert_string_equal(o->disks[0], "/nvme0/with#hash");
	assert_int_equal(o->n_mount_options, 1);
	assert_string_equal(o->mount_options[0], "allow_other");
	assert_int_equal(o->n_sections, 2);
	assert_string_equal(o->sections[0].name, "qwen3 32b");
	assert_int_equal(o->sections[0].what, HC_SECTION_QUOTA | HC_SECTION_MAX_AGE);
	assert_int_equal(o->sections[0].quota_bytes, 200 * HC_GIB);
	assert_int_equal(o->sections[0].max_age_s, 7 * 86400);
	assert_string_equal(o->sections[1].name, ".");
	assert_int_equal(o->sections[1].priority, 3);
	/* The command line wins; its disks stand for the file's. */
	assert_int_equal(hc_options_set_list(o, "pool_size=1G,disk=/other"), 0);
	assert_int_equal(hc_option(o, HC_OPT_pool_size)->number, HC_GIB);
	assert_int_equal(o->n_disks, 1);
	assert_string_equal(o->disks[0], "/other");
}

static void test_config_refusals(void **state)
{
	(void)state;
	assert_config_refused("pool_size = 1G\npol_size = 2G\n",
			      "h.conf:2: pol_size = 2G: there is no option");
	assert_config_refused("pool_size = 1G\n\npool_size = 2G\n", "stands in line 1 already");
	assert_config_refused("\n\nhigh = 120%\n",
			      "h.conf:3: high = 120%: high wants a percentage");
	assert_config_refused("listen = /run/x\n",
			      "h.conf:1: listen = /run/x: listen is not built");
	assert_config_refused("= 4\n", "a name is missing");
	assert_config_refused("[space a\n", "\"]\" is missing");
	assert_config_refused("[room a]\n", "a section is [space NAME]");
	assert_config_refused("[space]\n", "a section is [space NAME]");
	assert_config_refused("[space a/b]\n",
			      "h.conf:1: [space a/b]: a space is a top-level directory");
	assert_config_refused("[space .hicache]\n", "a space is a top-level directory");
	assert_config_refused("[space a]\nquota = 1G\n[space a]\n",
			      "h.conf:3: [space a]: this space has a section in line 1");
	assert_config_refused("[space a]\nquota = much\n", "h.conf:2: quota: quota wants a size");
	assert_config_refused("[space a]\nmax_age = 1y\n", "max_age wants a time");
	assert_config_refused("[space a]\npriority = 256\n",
			      "priority wants a number from 0 to 255");
	assert_config_refused("[space a]\npool_size = 1G\n",
			      "a space has no setting \"pool_size\"");
	assert_config_refused("[space a]\nquota\n", "a value is missing");
}

static void test_config_binary(void **state)
{
	struct hc_options *o = *state;

	assert_int_equal(hc_config_parse(o, "h.conf", "a\0b", 3), -EINVAL);
	assert_says("NUL");
	assert_int_equal(hc_config_load(o, "/nonexistent/h.conf"), -EINVAL);
	assert_says("/nonexistent/h.conf: the config file cannot be read: No such file");
}

static void test_mount_string(void **state)
{
	hc_autofree char *text = NULL, *again = NULL;
	struct hc_options *o = *state;

	assert_non_null(o->cachedir = strdup("/var/a,b\\c"));
	assert_int_equal(hc_options_set_list(o, "defaults,_netdev,x-systemd.automount,nofail,allow_"
						"other,default_permissions"),
			 0);
	assert_int_equal(hc_options_mount_string(o, &text), 0);
	assert_string_equal(text, "fsname=/var/a\\,b\\\\c,allow_other");
	assert_int_equal(hc_options_set_list(o, "fsname=kv,noatime"), 0);
	assert_int_equal(hc_options_mount_string(o, &again), 0);
	assert_string_equal(again, "fsname=kv,allow_other,noatime");
}

static struct hc_options *parse(int *rc_p, enum hc_action *action_p, int argc,
				const char *const *args)
{
	struct hc_options *options = NULL;
	char *argv[16] = {NULL};

	for (int i = 0; i < argc; i++)
		assert_non_null(argv[i] = strdup(args[i]));
	*rc_p = hc_options_parse(argc, argv, &options, action_p);
	for (int i = 0; i < argc; i++)
		free(argv[i]);
	return *rc_p ? NULL : options;
}

#define PARSE(rc, action, ...)                                                              \
	parse(rc, action, (int)HC_ARRAY_SIZE(((const char *[]){"hicachefs", __VA_ARGS__})), \
	      (const char *[]){"hicachefs", __VA_ARGS__})

/* Options may stand anywhere, as mount(8) calls it; paths become absolute. */
static void test_command_line(void **state)
{
	enum hc_action action;
	struct hc_options *o;
	char cwd[1024], want[1200];
	int rc;

	(void)state;
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	o = PARSE(&rc, &action, "cache", "/mnt", "-o", "rw,pool_size=1G", "-f", "-okeep_pool",
		  "--discard-pool");
	assert_int_equal(rc, 0);
	assert_int_equal(action, HC_ACTION_MOUNT);
	snprintf(want, sizeof(want), "%s/cache", cwd);
	assert_string_equal(o->cachedir, want);
	assert_string_equal(o->mountpoint, "/mnt");
	assert_true(o->foreground);
	assert_false(o->debug);
	assert_int_equal(hc_option(o, HC_OPT_keep_pool)->number, 1);
	assert_int_equal(hc_option(o, HC_OPT_discard_pool)->number, 1);
	hc_options_destroy(o);
	o = PARSE(&rc, &action, "--help");
	assert_int_equal(action, HC_ACTION_HELP);
	hc_options_destroy(o);
	o = PARSE(&rc, &action, "-V", "ignored");
	assert_int_equal(action, HC_ACTION_VERSION);
	hc_options_destroy(o);
	assert_null(PARSE(&rc, &action, "cache"));
	assert_int_equal(rc, -EINVAL);
	assert_says("MOUNTPOINT is missing");
	assert_null(PARSE(&rc, &action, "-f"));
	assert_says("CACHEDIR and MOUNTPOINT are missing");
	assert_null(PARSE(&rc, &action, "a", "b", "c"));
	assert_says("more than CACHEDIR and MOUNTPOINT");
	assert_null(PARSE(&rc, &action, "a", ""));
	assert_says("must not be empty");
	assert_null(PARSE(&rc, &action, "--frob", "a", "b"));
	assert_says("--frob: there is no such option");
	assert_null(PARSE(&rc, &action, "-c", "/none/h.conf", "a", "b"));
	assert_says("/none/h.conf");
	assert_null(PARSE(&rc, &action, "a", "b", "-o"));
	assert_says("-o: a value is missing");
}

/* The file is read wherever it is named, and read again on demand; the command line still wins. */
static void test_reread(void **state)
{
	char path[] = "/tmp/hc-options-XXXXXX", list[64];
	int fd = mkstemp(path), rc;
	struct hc_options *o, *again;
	enum hc_action action;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "disk_size = 1G\nhigh=80%\nlow=70%\n", 32), 32);
	snprintf(list, sizeof(list), "high=85%%,disk=/d,config=%s", path);
	o = PARSE(&rc, &action, "-o", list, "a", "b");
	assert_int_equal(rc, 0);
	assert_int_equal(hc_option(o, HC_OPT_disk_size)->number, HC_GIB);
	assert_int_equal(hc_option(o, HC_OPT_high)->ppm, 850000);
	assert_int_equal(pwrite(fd, "disk_size = 2G\nhigh=99%\nlow=60%\n", 32, 0), 32);
	assert_int_equal(hc_options_reread(o, &again), 0);
	assert_int_equal(hc_option(again, HC_OPT_disk_size)->number, 2 * HC_GIB);
	assert_int_equal(hc_option(again, HC_OPT_high)->ppm, 850000);
	assert_int_equal(hc_option(again, HC_OPT_low)->ppm, 600000);
	assert_int_equal(again->n_disks, 1);
	assert_string_equal(again->cachedir, o->cachedir);
	hc_options_destroy(again);
	assert_int_equal(pwrite(fd, "disk_size = XX\nhigh=99%\nlow=60%\n", 32, 0), 32);
	assert_int_equal(hc_options_reread(o, &again), -EINVAL);
	hc_options_destroy(o);
	close(fd);
	unlink(path);
}

/* What `.hicache/config` shows is a config file: read back, it gives the same values. */
static void test_print(void **state)
{
	static const char config[] =
		"backup=reuse\n[space a b]\nquota=1536M\nmax_age=90m\npriority=9\n";
	uint64_t actual[HC_OPTION_N] = {[HC_OPT_pool_size] = 3 * HC_GIB / 2, [HC_OPT_threads] = 5};
	struct hc_options *o = *state, *again;
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	assert_non_null(out);
	assert_non_null(o->cachedir = strdup("/cache"));
	assert_non_null(o->config_file = strdup("/etc/h.conf"));
	assert_int_equal(hc_config_parse(o, "/etc/h.conf", config, sizeof(config) - 1), 0);
	assert_int_equal(hc_options_set_list(o, "allow_other,high=99%,disk=/x,disk=/y"), 0);
	hc_options_print(o, actual, out);
	assert_int_equal(fclose(out), 0);
	assert_non_null(strstr(text, "pool_size = 1536M  # default, 10%\n"));
	assert_non_null(strstr(text, "threads = 5  # default, auto\n"));
	assert_non_null(strstr(text, "backup = reuse  # /etc/h.conf:1\n"));
	assert_non_null(strstr(text, "high = 99%  # command line\n"));
	assert_non_null(strstr(text, "disk = /y  # command line\n"));
	assert_non_null(strstr(
		text,
		"[space a b]  # /etc/h.conf:2\nquota = 1536M\nmax_age = 5400s\npriority = 9\n"));
	assert_int_equal(hc_options_create(&again), 0);
	assert_int_equal(hc_config_parse(again, "printed", text, n), 0);
	for (int id = 0; id < HC_OPTION_N; id++) {
		const struct hc_option_value *a = hc_option(o, (enum hc_option)id),
					     *b = hc_option(again, (enum hc_option)id);

		if (id == HC_OPT_pool_size || id == HC_OPT_threads)
			continue;
		assert_int_equal(a->number, b->number);
		assert_int_equal(a->ppm, b->ppm);
	}
	assert_int_equal(again->n_sections, 1);
	assert_int_equal(again->sections[0].max_age_s, 5400);
	hc_options_destroy(again);
	free(text);
}

static void test_size_exact(void **state)
{
	char text[24];

	(void)state;
	hc_size_exact(0, text);
	assert_string_equal(text, "0");
	hc_size_exact(1023, text);
	assert_string_equal(text, "1023");
	hc_size_exact(1536 * HC_MIB, text);
	assert_string_equal(text, "1536M");
	hc_size_exact(5000 * HC_GIB * 1024, text);
	assert_string_equal(text, "5000T");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_defaults),       T(test_values),       T(test_refusals),
		T(test_contradictions), T(test_config),       T(test_config_refusals),
		T(test_config_binary),  T(test_mount_string), T(test_command_line),
		T(test_reread),         T(test_print),        T(test_size_exact),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
