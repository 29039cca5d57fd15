/* SPDX-License-Identifier: Apache-2.0 */
/* hicachefs CACHEDIR MOUNTPOINT: the daemon. Order: options, (fork,) checks, node, mount, serve; at
 * SIGTERM, SIGINT or an unmount from outside: unmount, let go of everything, flush, end. In the
 * background the parent stays until the mount answers, prints what went wrong otherwise, and has
 * the daemon's exit status.
 *
 * Signals are taken by one thread of their own; all others block them. */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <syslog.h>

#include "config.h"
#include "fuse/control.h"
#include "fuse/service.h"
#include "fuse/setup.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/size.h"

enum hc_phase { HC_PHASE_START, HC_PHASE_SERVE, HC_PHASE_STOP };

struct hc_daemon {
	struct hc_control control; /* options, node, fs */
	struct hc_setup setup;
	struct hc_node_config config;
	struct hc_pid_file *pid_file;
	pthread_rwlock_t fs_lock; /* fs for events: the node outlives it */
	struct hc_fs *fs;
	int ready_fd; /* of the parent that waits; -1 */
	pthread_t signals;
	pthread_mutex_t
		life; /* a signal is taken in one phase: what it uses does not go meanwhile */
	enum hc_phase phase;
	bool stop_asked;
	atomic_bool answers; /* the kernel has been served */
	atomic_bool ended;
};

/* --- log --- */

static const int hc_priorities[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG, LOG_DEBUG};

struct hc_sink {
	bool journal;
	bool quiet;
};

static void hc_sink_stderr(void *arg, enum hc_log_level level, const char *component,
			   const char *text)
{
	static const char *const words[] = {"error: ", "warning: ", "", "debug: ", "trace: "};
	const struct hc_sink *sink = arg;
	bool own = !strcmp(component, HC_OPTIONS_LOG);
	char level_text[8] = "";

	if (sink->quiet && level > HC_LOG_WARN)
		return;
	if (sink->journal)
		snprintf(level_text, sizeof(level_text), "<%d>", hc_priorities[level]);
	fprintf(stderr, "%shicachefs: %s%s%s%s\n", level_text, words[level], own ? "" : component,
		own ? "" : ": ", text);
}

static void hc_sink_syslog(void *arg, enum hc_log_level level, const char *component,
			   const char *text)
{
	(void)arg;
	syslog(hc_priorities[level], "%s: %s", component, text);
}

/* --- signals --- */

static void hc_signals_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
}

static void hc_daemon_reread_file(struct hc_daemon *daemon)
{
	struct hc_options *old, *options;

	if (!daemon->control.options->config_file) {
		hc_info(HC_OPTIONS_LOG, "SIGHUP: there is no config file to read again");
		return;
	}
	if (hc_options_reread(daemon->control.options, &options)) {
		hc_warn(HC_OPTIONS_LOG, "SIGHUP: the options stay as they were");
		return;
	}
	hc_setup_tell_changes(daemon->control.options, options);
	hc_log_set_level(options->debug
				 ? HC_LOG_DEBUG
				 : (enum hc_log_level)hc_option(options, HC_OPT_log_level)->number);
	if (!hc_setup_limits(options, daemon->control.node))
		hc_info(HC_OPTIONS_LOG, "SIGHUP: %s was read again", options->config_file);
	pthread_mutex_lock(&daemon->control.lock);
	old = daemon->control.options;
	daemon->control.options = options;
	pthread_mutex_unlock(&daemon->control.lock);
	/* The node's configuration points into the first ones: their paths are those of this run.
	 */
	if (daemon->config.cachedir != old->cachedir)
		hc_options_destroy(old);
}

static void hc_daemon_reread(struct hc_daemon *daemon)
{
	char text[80];

	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
		 (unsigned long long)(hc_clock_now_ns() / HC_NS_PER_US));
	hc_service_notify(text);
	hc_daemon_reread_file(daemon);
	hc_service_notify("READY=1");
}

static void hc_daemon_stop(struct hc_daemon *daemon, int number)
{
	if (daemon->phase == HC_PHASE_STOP) {
		hc_info(HC_OPTIONS_LOG, "stopping already; what is not on disk is being written");
		return;
	}
	/* A start may take long, and may be cut off anywhere. */
	if (daemon->phase == HC_PHASE_START && daemon->stop_asked) {
		hc_warn(HC_OPTIONS_LOG, "the start is broken off");
		_exit(HC_EXIT_FAILED);
	}
	hc_info(HC_OPTIONS_LOG, "%s: stopping", number == SIGINT ? "SIGINT" : "SIGTERM");
	daemon->stop_asked = true;
	if (daemon->phase == HC_PHASE_SERVE)
		hc_fs_stop(daemon->control.fs);
}

/* A node that answers no question is not told to be alive. */
static void hc_daemon_beat(struct hc_daemon *daemon)
{
	struct hc_node_stats stats;

	/* Not before READY=1. */
	if (!atomic_load(&daemon->answers))
		return;
	if (daemon->phase == HC_PHASE_SERVE)
		hc_node_stats(daemon->control.node, &stats);
	hc_service_notify("WATCHDOG=1");
}

static void *hc_signals_main(void *arg)
{
	struct hc_daemon *daemon = arg;
	uint64_t beat_ns = hc_service_watchdog_ns() / 3;
	struct timespec beat = {.tv_sec = (time_t)(beat_ns / HC_NS_PER_S),
				.tv_nsec = (long)(beat_ns % HC_NS_PER_S)};
	sigset_t set;

	pthread_setname_np(pthread_self(), "hc-signals");
	hc_signals_set(&set);
	for (;;) {
		int number = beat_ns ? sigtimedwait(&set, NULL, &beat) : sigwaitinfo(&set, NULL);

		if (atomic_load(&daemon->ended))
			break;
		pthread_mutex_lock(&daemon->life);
		if (number < 0 && errno == EAGAIN)
			hc_daemon_beat(daemon);
		else if (number < 0)
			;
		else if (number != SIGHUP)
			hc_daemon_stop(daemon, number);
		else if (daemon->phase == HC_PHASE_SERVE)
			hc_daemon_reread(daemon);
		pthread_mutex_unlock(&daemon->life);
	}
	return NULL;
}

static int hc_signals_start(struct hc_daemon *daemon)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigset_t set;
	int rc;

	hc_signals_set(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	rc = -pthread_create(&daemon->signals, NULL, hc_signals_main, daemon);
	if (rc)
		hc_error(HC_OPTIONS_LOG, "no thread for signals: %s", strerror(-rc));
	return rc;
}

static void hc_signals_end(struct hc_daemon *daemon)
{
	atomic_store(&daemon->ended, true);
	pthread_kill(daemon->signals, SIGTERM);
	pthread_join(daemon->signals, NULL);
}

/* --- serve --- */

static void hc_daemon_event(void *arg, const struct hc_event *event)
{
	struct hc_daemon *daemon = arg;

	pthread_rwlock_rdlock(&daemon->fs_lock);
	if (daemon->fs)
		hc_fs_event(daemon->fs, event);
	pthread_rwlock_unlock(&daemon->fs_lock);
}

static void hc_daemon_serving(void *arg)
{
	struct hc_daemon *daemon = arg;
	char text[2 * PATH_MAX + 64];

	snprintf(text, sizeof(text), "READY=1\nMAINPID=%d\nSTATUS=%s serves %s", (int)getpid(),
		 daemon->control.options->cachedir, daemon->control.options->mountpoint);
	hc_service_notify(text);
	atomic_store(&daemon->answers, true);
}

static int hc_daemon_create_fs(struct hc_daemon *daemon)
{
	const struct hc_options *options = daemon->control.options;
	hc_autofree char *mount_options = NULL;
	struct hc_fs_options fs = {
		.mountpoint = options->mountpoint,
		.n_threads = (uint32_t)hc_option(options, HC_OPT_threads)->number,
		.budget_ns = hc_option(options, HC_OPT_budget_ms)->number * HC_NS_PER_MS,
		.max_page_bytes = hc_option(options, HC_OPT_max_page_bytes)->number,
		.passthrough_off = hc_option(options, HC_OPT_passthrough)->number == 1,
		.passthrough_writes = hc_option(options, HC_OPT_passthrough)->number == 2,
		.debug = options->debug,
		.serving = hc_daemon_serving,
		.serving_arg = daemon,
		.vfiles = hc_control_files,
		.vfiles_arg = &daemon->control,
	};
	int rc = hc_options_mount_string(options, &mount_options);

	if (rc)
		return rc;
	fs.mount_options = mount_options;
	return hc_fs_create(&fs, &daemon->control.fs);
}

static int hc_daemon_open_node(struct hc_daemon *daemon)
{
	int rc = hc_setup_node(daemon->control.options, &daemon->setup, &daemon->config);

	if (rc)
		return rc;
	daemon->config.event = hc_daemon_event;
	daemon->config.event_arg = daemon;
	rc = hc_node_open(&daemon->config, &daemon->control.node);
	if (rc)
		return rc;
	daemon->control.index_bytes = daemon->setup.index_bytes;
	return hc_setup_limits(daemon->control.options, daemon->control.node);
}

static void hc_daemon_tell(const struct hc_daemon *daemon)
{
	char pool[16], disk[16], memory[16], used[16];
	struct hc_node_stats s;

	hc_node_stats(daemon->control.node, &s);
	hc_size_format(s.pool.size_bytes, pool);
	hc_size_format(s.disk_limit_bytes, disk);
	hc_size_format(s.memory_bytes, memory);
	hc_size_format(s.disk_used_bytes, used);
	hc_info(HC_OPTIONS_LOG, "%s on %s: pool of %s (%s), %llu pages (%s) in memory",
		daemon->control.options->cachedir, daemon->control.options->mountpoint, pool,
		hc_pool_kind_name(s.pool.kind), (unsigned long long)s.n_pages_memory, memory);
	if (daemon->config.disk_off)
		hc_info(HC_OPTIONS_LOG, "memory only: nothing goes to disk");
	else
		hc_info(HC_OPTIONS_LOG, "disk limit %s, %llu pages (%s) on disk%s", disk,
			(unsigned long long)s.n_pages_disk, used,
			s.rebuilding ? ", rebuilding the catalog" : "");
}

/* The mount is there: who waits may look, and the terminal is let go. */
static int hc_daemon_detach(struct hc_daemon *daemon)
{
	int null_fd;

	if (daemon->ready_fd < 0)
		return 0;
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd < 0) {
		hc_error(HC_OPTIONS_LOG, "/dev/null: %m");
		return -EIO;
	}
	openlog("hicachefs", LOG_PID, LOG_DAEMON);
	hc_log_set_sink(hc_sink_syslog, NULL);
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		dup2(null_fd, fd);
	if (null_fd > STDERR_FILENO)
		close(null_fd);
	if (write(daemon->ready_fd, "m", 1) != 1)
		hc_debug(HC_OPTIONS_LOG, "who started the daemon is gone");
	close(daemon->ready_fd);
	daemon->ready_fd = -1;
	return 0;
}

static void hc_daemon_phase(struct hc_daemon *daemon, enum hc_phase phase)
{
	pthread_mutex_lock(&daemon->life);
	daemon->phase = phase;
	/* A signal came while the start was going on. */
	if (phase == HC_PHASE_SERVE && daemon->stop_asked)
		hc_fs_stop(daemon->control.fs);
	pthread_mutex_unlock(&daemon->life);
}

static int hc_daemon_serve(struct hc_daemon *daemon)
{
	int rc = hc_fs_mount(daemon->control.fs, daemon->control.node);

	if (rc)
		return rc;
	hc_daemon_tell(daemon);
	rc = hc_daemon_detach(daemon);
	if (!rc)
		rc = hc_prefetcher_create(daemon->control.node, &daemon->control.prefetcher);
	hc_daemon_phase(daemon, HC_PHASE_SERVE);
	if (!rc)
		rc = hc_fs_run(daemon->control.fs);
	hc_service_notify("STOPPING=1\nSTATUS=stopping; what is not on disk is being written");
	hc_daemon_phase(daemon, HC_PHASE_STOP);
	hc_fs_unmount(daemon->control.fs);
	return rc;
}

static void hc_daemon_end_fs(struct hc_daemon *daemon)
{
	struct hc_fs *fs = daemon->control.fs;

	pthread_rwlock_wrlock(&daemon->fs_lock);
	daemon->fs = NULL;
	pthread_rwlock_unlock(&daemon->fs_lock);
	hc_fs_destroy(fs);
	daemon->control.fs = NULL;
}

static int hc_daemon_pid_file(struct hc_daemon *daemon)
{
	const char *path = hc_option(daemon->control.options, HC_OPT_pid_file)->text;

	return strcmp(path, "none") ? hc_pid_file_create(path, &daemon->pid_file) : 0;
}

static int hc_daemon_run(struct hc_daemon *daemon)
{
	uint64_t n_lost = 0;
	int rc = hc_setup_check(daemon->control.options);

	if (!rc)
		rc = hc_daemon_pid_file(daemon);
	if (!rc)
		rc = hc_daemon_create_fs(daemon);
	if (rc)
		return HC_EXIT_FAILED;
	daemon->fs = daemon->control.fs;
	rc = hc_daemon_open_node(daemon);
	if (!rc)
		rc = hc_daemon_serve(daemon);
	hc_daemon_phase(daemon, HC_PHASE_STOP);
	hc_daemon_end_fs(daemon);
	hc_prefetcher_destroy(daemon->control.prefetcher);
	if (daemon->control.node)
		hc_node_close(daemon->control.node, &n_lost);
	if (n_lost)
		hc_warn(HC_OPTIONS_LOG, "stopped, but %llu pages could not be written to disk",
			(unsigned long long)n_lost);
	else if (!rc)
		hc_info(HC_OPTIONS_LOG, "stopped");
	return rc ? HC_EXIT_FAILED : n_lost ? HC_EXIT_NOT_SAVED : 0;
}

static void hc_raise_fd_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		hc_debug(HC_OPTIONS_LOG, "the limit of open files stays: %m");
}

/* Consumes options. */
static int hc_daemon_main(struct hc_options *options, int ready_fd)
{
	struct hc_daemon daemon = {
		.control = {.lock = PTHREAD_MUTEX_INITIALIZER,
			    .options = options,
			    .start_ns = hc_clock_now_ns()},
		.fs_lock = PTHREAD_RWLOCK_INITIALIZER,
		.life = PTHREAD_MUTEX_INITIALIZER,
		.ready_fd = ready_fd,
	};
	int status = HC_EXIT_FAILED;

	hc_raise_fd_limit();
	if (!hc_signals_start(&daemon)) {
		status = hc_daemon_run(&daemon);
		hc_signals_end(&daemon);
	}
	hc_pid_file_destroy(daemon.pid_file);
	if (daemon.control.options != options)
		hc_options_destroy(daemon.control.options);
	hc_options_destroy(options);
	return status;
}

/* --- background --- */

static int hc_child_status(pid_t child)
{
	int wstatus;

	while (waitpid(child, &wstatus, 0) < 0) {
		if (errno != EINTR)
			return HC_EXIT_FAILED;
	}
	if (WIFEXITED(wstatus))
		return WEXITSTATUS(wstatus) ? WEXITSTATUS(wstatus) : HC_EXIT_FAILED;
	hc_error(HC_OPTIONS_LOG, "the daemon died of signal %d before it served",
		 WTERMSIG(wstatus));
	return HC_EXIT_FAILED;
}

/* The parent: until the mount answers, or the daemon has ended (its messages are on the same
 * terminal). */
static int hc_parent_main(pid_t child, int ready_fd, const char *mountpoint)
{
	char byte, path[PATH_MAX];
	struct stat st;
	ssize_t n;

	do {
		n = read(ready_fd, &byte, 1);
	} while (n < 0 && errno == EINTR);
	if (n != 1)
		return hc_child_status(child);
	snprintf(path, sizeof(path), "%s/.hicache/version", mountpoint);
	/* The kernel holds this back until the daemon serves; it fails when the daemon ends. */
	if (!stat(path, &st))
		return 0;
	hc_error(HC_OPTIONS_LOG, "%s: %m; see the system's log for why the daemon stopped", path);
	return HC_EXIT_FAILED;
}

static int hc_background(struct hc_options *options)
{
	int fds[2], status;
	pid_t child;

	if (pipe2(fds, O_CLOEXEC)) {
		hc_error(HC_OPTIONS_LOG, "no pipe: %m");
		hc_options_destroy(options);
		return HC_EXIT_FAILED;
	}
	child = fork();
	if (child < 0) {
		hc_error(HC_OPTIONS_LOG,
			 "no process for the background: %m; -f stays in the foreground");
		hc_options_destroy(options);
		return HC_EXIT_FAILED;
	}
	if (!child) {
		close(fds[0]);
		hc_service_forget();
		setsid();
		if (chdir("/"))
			hc_debug(HC_OPTIONS_LOG, "/: %m");
		return hc_daemon_main(options, fds[1]);
	}
	close(fds[1]);
	status = hc_parent_main(child, fds[0], options->mountpoint);
	close(fds[0]);
	hc_options_destroy(options);
	return status;
}

/* mount(8)'s, of a helper. */
#define HC_MOUNT_EXIT_USAGE  1
#define HC_MOUNT_EXIT_FAILED 32

static int hc_main_status(bool helper, int status)
{
	if (!helper || !status)
		return status;
	return status == HC_EXIT_USAGE ? HC_MOUNT_EXIT_USAGE : HC_MOUNT_EXIT_FAILED;
}

static int hc_main_action(struct hc_options *options, enum hc_action action)
{
	int status = 0;

	if (action == HC_ACTION_HELP)
		hc_options_help(stdout);
	else if (action == HC_ACTION_VERSION)
		printf("hicachefs %s\n", PACKAGE_VERSION);
	else if (hc_setup_check(options))
		status = HC_EXIT_FAILED;
	hc_options_destroy(options);
	return fflush(stdout) ? HC_EXIT_FAILED : status;
}

int main(int argc, char **argv)
{
	const char *slash = argc ? strrchr(argv[0], '/') : NULL;
	bool helper = argc && !strncmp(slash ? slash + 1 : argv[0], "mount.", 6);
	struct hc_sink sink = {.journal = hc_service_has_journal()};
	struct hc_options *options;
	enum hc_action action;

	hc_log_set_sink(hc_sink_stderr, &sink);
	if (helper ? hc_options_parse_helper(argc, argv, &options, &action)
		   : hc_options_parse(argc, argv, &options, &action))
		return hc_main_status(helper, HC_EXIT_USAGE);
	if (action != HC_ACTION_MOUNT)
		return hc_main_status(helper, hc_main_action(options, action));
	sink.quiet = options->quiet;
	hc_log_set_level(options->debug
				 ? HC_LOG_DEBUG
				 : (enum hc_log_level)hc_option(options, HC_OPT_log_level)->number);
	return hc_main_status(helper, options->foreground ? hc_daemon_main(options, -1)
							  : hc_background(options));
}
