/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that speak to a mount, with an end: whoever asks a file system of a daemon that is
 * stopped waits for it, and cannot always be killed. So the command runs in a child (the worker), a
 * second child (the probe) asks the mount once a second for something that needs no disk, and the
 * parent, which never touches the mount, gives up when the probe was not answered for long enough.
 * A command itself may take as long as it likes. The worker gets the signals that the parent is
 * sent, and the parent ends and stops as the worker does. Each process has one thread. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>

#include "tool/watch.h"
#include "util/clock.h"

#define HC_WATCH_TICK_NS  (100 * HC_NS_PER_MS)
#define HC_WATCH_PROBE_MS 1000
/* What a worker has to end in after a signal. */
#define HC_WATCH_END_NS (2 * HC_NS_PER_S)

/* Shared by the three processes. */
struct hc_watch_shared {
	_Atomic int probe_pid; /* 0: no mount is asked yet */
	_Atomic uint64_t n_answers;
	_Atomic bool screen; /* the terminal has another mode */
	char mount[PATH_MAX];
};

struct hc_watch {
	pid_t worker;
	unsigned wait_s;
	uint64_t n_seen, silent_ns, last_ns, end_ns;
	int signal; /* that the worker is to end by */
	bool has_mode;
	struct termios mode;
};

static struct hc_watch_shared *hc_watch_shared;

static const int hc_watch_signals[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP,
				       SIGQUIT, SIGTSTP, SIGWINCH};

/* --- the probe and the worker --- */

static void hc_watch_dies_with(pid_t parent, int by_signal)
{
	prctl(PR_SET_PDEATHSIG, by_signal);
	if (getppid() != parent)
		_exit(1);
}

/* Holds nothing that others wait for: it may hang. */
static void hc_watch_probe(pid_t parent, int ready_fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct statx stx;

	hc_watch_dies_with(parent, SIGKILL);
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	for (;;) {
		/* An error is an answer: the command will meet it, and tell. */
		hc_ignore(statx(AT_FDCWD, hc_watch_shared->mount, AT_STATX_FORCE_SYNC, STATX_MODE,
				&stx));
		atomic_fetch_add(&hc_watch_shared->n_answers, 1);
		if (ready_fd >= 0)
			close(ready_fd);
		ready_fd = -1;
		poll(NULL, 0, HC_WATCH_PROBE_MS);
	}
}

void hc_watch_mount(const char *mount)
{
	struct pollfd ready = {.events = POLLIN};
	pid_t parent = getpid(), probe;
	int fds[2];

	if (!hc_watch_shared || atomic_load(&hc_watch_shared->probe_pid) || pipe2(fds, O_CLOEXEC))
		return;
	snprintf(hc_watch_shared->mount, sizeof(hc_watch_shared->mount), "%s", mount);
	fflush(NULL);
	probe = fork();
	if (!probe) {
		close(fds[0]);
		hc_watch_probe(parent, fds[1]);
	}
	close(fds[1]);
	if (probe > 0) {
		atomic_store(&hc_watch_shared->probe_pid, probe);
		/* Until the first answer the worker can be killed, and holds up no reader of its
		 * output. */
		ready.fd = fds[0];
		while (poll(&ready, 1, -1) < 0 && errno == EINTR)
			;
	}
	close(fds[0]);
}

void hc_watch_screen(bool on)
{
	if (hc_watch_shared)
		atomic_store(&hc_watch_shared->screen, on);
}

/* --- the parent --- */

static void hc_watch_leave_screen(const struct hc_watch *watch)
{
	if (!atomic_load(&hc_watch_shared->screen))
		return;
	fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	if (watch->has_mode)
		tcsetattr(STDIN_FILENO, TCSANOW, &watch->mode);
}

/* Nobody waits for them: they may hang until the daemon goes on, or dies. */
static void hc_watch_abandon(const struct hc_watch *watch)
{
	pid_t probe = atomic_load(&hc_watch_shared->probe_pid);

	if (probe > 0)
		kill(probe, SIGKILL);
	kill(watch->worker, SIGKILL);
	hc_watch_leave_screen(watch);
}

static int hc_watch_end_by(int number)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigset_t set;

	sigaction(number, &action, NULL);
	sigemptyset(&set);
	sigaddset(&set, number);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	raise(number);
	return HC_TOOL_FAILED;
}

/* Whether the worker has ended; it is reaped then. */
static bool hc_watch_reap(struct hc_watch *watch, int *status_p)
{
	int wstatus;

	while (waitpid(watch->worker, &wstatus, WNOHANG | WUNTRACED) > 0) {
		if (WIFSTOPPED(wstatus)) {
			/* As one job: stopped together, going on together. */
			raise(SIGSTOP);
			kill(watch->worker, SIGCONT);
			continue;
		}
		*status_p = WIFEXITED(wstatus) ? WEXITSTATUS(wstatus)
					       : hc_watch_end_by(WTERMSIG(wstatus));
		return true;
	}
	return false;
}

static void hc_watch_signal(struct hc_watch *watch, const siginfo_t *info)
{
	if (info->si_signo == SIGCHLD)
		return;
	/* What the terminal sends, the worker has got itself. */
	if (info->si_code <= 0)
		kill(watch->worker, info->si_signo);
	if (info->si_signo == SIGTSTP || info->si_signo == SIGWINCH || watch->signal)
		return;
	watch->signal = info->si_signo;
	watch->end_ns = hc_clock_now_ns() + HC_WATCH_END_NS;
}

/* Counts its own ticks: a job that was stopped for a while has not been silent. */
static bool hc_watch_is_silent(struct hc_watch *watch)
{
	uint64_t now_ns = hc_clock_now_ns();
	uint64_t n = atomic_load(&hc_watch_shared->n_answers);

	if (!atomic_load(&hc_watch_shared->probe_pid) || n != watch->n_seen)
		watch->silent_ns = 0;
	else
		watch->silent_ns += hc_min_u64(now_ns - watch->last_ns, 2 * HC_WATCH_TICK_NS);
	watch->n_seen = n;
	watch->last_ns = now_ns;
	return watch->silent_ns >= (watch->wait_s * HC_NS_PER_S) + HC_WATCH_PROBE_MS * HC_NS_PER_MS;
}

static int hc_watch_wait(struct hc_watch *watch, const sigset_t *set)
{
	const struct timespec tick = {.tv_nsec = HC_WATCH_TICK_NS};
	siginfo_t info;
	int status;

	watch->last_ns = hc_clock_now_ns();
	for (;;) {
		if (sigtimedwait(set, &info, &tick) > 0)
			hc_watch_signal(watch, &info);
		if (hc_watch_reap(watch, &status))
			return status;
		if (watch->signal && hc_clock_now_ns() >= watch->end_ns) {
			hc_watch_abandon(watch);
			return hc_watch_end_by(watch->signal);
		}
		if (!hc_watch_is_silent(watch))
			continue;
		hc_watch_abandon(watch);
		hc_tool_error("%s: the daemon does not answer (waited %u s); where it is stopped "
			      "(state T in ps), kill -CONT lets it go on, else its log tells what "
			      "it waits for; umount -f %s takes the mount away from everybody",
			      hc_watch_shared->mount, watch->wait_s, hc_watch_shared->mount);
		return HC_TOOL_FAILED;
	}
}

int hc_watch_run(unsigned wait_s, hc_watch_command_t run, const struct hc_tool *tool, int argc,
		 char **argv)
{
	struct hc_watch watch = {.wait_s = wait_s};
	pid_t parent = getpid();
	sigset_t set, before;
	int status;

	hc_watch_shared = mmap(NULL, sizeof(*hc_watch_shared), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (hc_watch_shared == MAP_FAILED) {
		hc_watch_shared = NULL;
		hc_tool_error("out of memory");
		return HC_TOOL_FAILED;
	}
	watch.has_mode = !tcgetattr(STDIN_FILENO, &watch.mode);
	sigemptyset(&set);
	for (size_t i = 0; i < HC_ARRAY_SIZE(hc_watch_signals); i++)
		sigaddset(&set, hc_watch_signals[i]);
	sigprocmask(SIG_BLOCK, &set, &before);
	watch.worker = fork();
	if (watch.worker < 0) {
		hc_tool_error("no process can be started: %m");
		status = HC_TOOL_FAILED;
	} else if (!watch.worker) {
		hc_watch_dies_with(parent, SIGTERM);
		sigprocmask(SIG_SETMASK, &before, NULL);
		status = run(tool, argc, argv);
		exit(hc_tool_flush(status));
	} else {
		status = hc_watch_wait(&watch, &set);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	munmap(hc_watch_shared, sizeof(*hc_watch_shared));
	hc_watch_shared = NULL;
	return status;
}
