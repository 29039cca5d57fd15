/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files of 8 MiB through the mount, against bare-fuse.c (direct I/O, reply_buf, the same
 * checksum of what is written) and against the tmpfs in which both keep their memory. One reader
 * and writer; the three take turns file by file, so that a ratio compares neighbours in time.
 * Nothing goes to disk (disk_size=0).
 *
 *   this process   makes tmpfs and directories, starts the two daemons and the client, has no fd
 *                  in any mount; at the end, at a signal and after LIMIT_S it unmounts and removes
 *   client         does all timed I/O
 *
 * Usage: bench-mount [HICACHEFS]     default: fuse/hicachefs of the build tree */
#include "bare-fuse.h"
#include "bench.h"

#include <fcntl.h>
#include <ftw.h>
#include <mntent.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "model/checksum.h"
#include "util/rng.h"

#define AIM          0.9
#define FILE_BYTES   ((size_t)8 << 20)
#define N_FILES      24
#define N_ROUNDS     12
#define N_SAMPLES    (N_FILES * N_ROUNDS)
#define N_THREADS    8 /* of each daemon */
#define TMPFS_OPTION "size=2G,mode=0700"
#define POOL_OPTION  "512M"
#define LIMIT_S      300
#define START_NS     (60 * HC_NS_PER_S)
#define STOP_NS      (30 * HC_NS_PER_S)
#define SPACE        "bench"
/* Where the bare daemon's own figures lie further apart the machine is too busy for a verdict. */
#define SPREAD_MAX 3.0

enum { OURS, BARE, TMPFS, N_TARGETS };

static const char *const names[N_TARGETS] = {"hicachefs", "bare FUSE", "tmpfs"};

struct bench {
	char dir[128];    /* CACHEDIR, mount points, logs */
	char memory[160]; /* the tmpfs */
	bool tmpfs_mounted;
	char mounts[2][160]; /* OURS, BARE */
	pid_t pids[2];
	pid_t client;
	sigset_t signals;
};

/* ---- processes and mounts ---- */

static bool is_mounted(const char *path)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	struct mntent entry;
	char text[8192];
	bool found = false;

	while (mounts && !found && getmntent_r(mounts, &entry, text, sizeof(text)))
		found = !strcmp(entry.mnt_dir, path);
	if (mounts)
		endmntent(mounts);
	return found;
}

/* Waits for a signal of ours. The number, 0: none came. */
static int wait_signal(struct bench *bench, uint64_t wait_ns)
{
	struct timespec t = {(time_t)(wait_ns / HC_NS_PER_S), (long)(wait_ns % HC_NS_PER_S)};
	int number = sigtimedwait(&bench->signals, NULL, &t);

	return number > 0 ? number : 0;
}

/* True: the process has ended (and is reaped). */
static bool wait_end(struct bench *bench, pid_t *pid, uint64_t wait_ns, int *status_p)
{
	uint64_t deadline_ns = hc_clock_now_ns() + wait_ns;

	while (*pid > 0) {
		if (waitpid(*pid, status_p, WNOHANG) == *pid)
			*pid = 0;
		else if (hc_clock_now_ns() >= deadline_ns)
			return false;
		else
			wait_signal(bench, 50 * HC_NS_PER_MS);
	}
	return true;
}

static void unmount(struct bench *bench, const char *path)
{
	pid_t pid;
	int status;

	if (!is_mounted(path))
		return;
	if (!umount2(path, MNT_FORCE) || !umount2(path, MNT_DETACH))
		return;
	/* Without the right to unmount: as libfuse mounted it. */
	pid = fork();
	if (!pid) {
		execlp("fusermount3", "fusermount3", "-u", "-z", path, (char *)NULL);
		_exit(127);
	}
	wait_end(bench, &pid, 10 * HC_NS_PER_S, &status);
}

static void child_begin(struct bench *bench, const char *log)
{
	int fd = log ? open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;

	sigprocmask(SIG_UNBLOCK, &bench->signals, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (fd >= 0) {
		dup2(fd, STDERR_FILENO);
		close(fd);
	}
}

/* bench->dir/name, or bench->memory/name */
static void path_of(const char *dir, const char *name, char path[256])
{
	snprintf(path, 256, "%s/%s", dir, name);
}

static void start_ours(struct bench *bench, const char *program)
{
	char options[512], log[256], cachedir[256];

	path_of(bench->dir, "hicachefs.log", log);
	path_of(bench->dir, "cache", cachedir);
	snprintf(options, sizeof(options), "disk_size=0,pool_size=%s,pool_path=%s/pool,threads=%d",
		 POOL_OPTION, bench->memory, N_THREADS);
	bench->pids[OURS] = fork();
	if (bench->pids[OURS])
		return;
	child_begin(bench, log);
	execl(program, program, "-f", "-o", options, cachedir, bench->mounts[OURS], (char *)NULL);
	fprintf(stderr, "%s: %m\n", program);
	_exit(127);
}

/* The arena is made as a pool's segment is: a file of the same tmpfs, allocated, then populated. */
static int arena_make(struct bench *bench, size_t size_bytes, char **arena_p)
{
	char path[256];
	int fd, rc = 0;
	void *at;

	path_of(bench->memory, "arena", path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)size_bytes) || fallocate(fd, 0, 0, (off_t)size_bytes))
		return -errno;
	at = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	madvise(at, size_bytes, MADV_HUGEPAGE);
	if (madvise(at, size_bytes, MADV_POPULATE_WRITE))
		rc = -errno;
	close(fd);
	*arena_p = at;
	return rc;
}

static void start_bare(struct bench *bench)
{
	struct bare_config config = {.mountpoint = bench->mounts[BARE],
				     .slot_bytes = FILE_BYTES,
				     .n_files = N_FILES + 1,
				     .n_threads = N_THREADS};
	char log[256];
	int rc;

	path_of(bench->dir, "bare.log", log);
	bench->pids[BARE] = fork();
	if (bench->pids[BARE])
		return;
	child_begin(bench, log);
	rc = arena_make(bench, (N_FILES + 1) * FILE_BYTES, &config.arena);
	if (rc)
		fprintf(stderr, "bare-fuse: arena: %s\n", strerror(-rc));
	else
		rc = bare_fuse_run(&config);
	_exit(rc ? 1 : 0);
}

static void show_log(struct bench *bench, const char *name)
{
	char path[256], line[512];
	FILE *f;

	path_of(bench->dir, name, path);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		fprintf(stderr, "    %s", line);
	if (f)
		fclose(f);
}

static int wait_mounted(struct bench *bench, int target, const char *log)
{
	uint64_t deadline_ns = hc_clock_now_ns() + START_NS;
	int status, number;

	while (!is_mounted(bench->mounts[target])) {
		if (wait_end(bench, &bench->pids[target], 0, &status) ||
		    hc_clock_now_ns() >= deadline_ns) {
			fprintf(stderr, "bench-mount: %s does not start:\n", names[target]);
			show_log(bench, log);
			return -EIO;
		}
		number = wait_signal(bench, 20 * HC_NS_PER_MS);
		if (number && number != SIGCHLD)
			return -EINTR;
	}
	return 0;
}

/* Of a process's mappings of files below dir: how much lies on huge pages, in percent. */
static int huge_percent(pid_t pid, const char *dir)
{
	unsigned long long rss_kib = 0, huge_kib = 0, v;
	char path[64], line[4096];
	unsigned long from, to;
	bool here = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = strstr(line, dir) && !strstr(line, "/slots");
		if (here && sscanf(line, "Rss: %llu", &v) == 1)
			rss_kib += v;
		if (here && sscanf(line, "ShmemPmdMapped: %llu", &v) == 1)
			huge_kib += v;
	}
	if (f)
		fclose(f);
	return rss_kib ? (int)(huge_kib * 100 / rss_kib) : 0;
}

/* ---- the client ---- */

struct client {
	char dirs[N_TARGETS][192];
	char *data; /* what is written */
	char *buf;  /* what is read */
	uint64_t sums[N_FILES];
	double rates[2][N_TARGETS][N_SAMPLES]; /* GB/s; [0] write, [1] read */
	uint64_t cpu_ns[2][2];                 /* of the daemons */
};

static void file_path(const struct client *client, int target, int i, const char *suffix,
		      char path[320])
{
	/* A page's name: 64 hex digits; its temporary says which page it will be. */
	snprintf(path, 320, "%s/%08x%056x%s", client->dirs[target], (unsigned)i * 2654435761u + 1u,
		 i, suffix);
}

static int write_one(const struct client *client, const char *temporary, const char *path)
{
	int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	size_t done = 0;

	if (fd < 0)
		return -errno;
	while (done < FILE_BYTES) {
		ssize_t n = write(fd, client->data + done, FILE_BYTES - done);

		if (n <= 0) {
			n = n ? -errno : -EIO;
			close(fd);
			return (int)n;
		}
		done += (size_t)n;
	}
	if (close(fd) || rename(temporary, path))
		return -errno;
	return 0;
}

static int read_one(const struct client *client, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t done = 0;

	if (fd < 0)
		return -errno;
	while (done < FILE_BYTES) {
		ssize_t n = read(fd, client->buf + done, FILE_BYTES - done);

		if (n <= 0) {
			n = n ? -errno : -ENODATA;
			close(fd);
			return (int)n;
		}
		done += (size_t)n;
	}
	close(fd);
	return 0;
}

/* One file of one target; sample < 0: warming up. */
static int run_one(struct client *client, int target, int i, bool reads, int sample)
{
	char path[320], temporary[320];
	uint64_t begin_ns, took_ns;
	int rc;

	file_path(client, target, i, "", path);
	file_path(client, target, i, ".tmp", temporary);
	if (reads)
		memset(client->buf, 0, FILE_BYTES);
	else if (unlink(path) && errno != ENOENT)
		return -errno;
	begin_ns = hc_clock_now_ns();
	rc = reads ? read_one(client, path) : write_one(client, temporary, path);
	took_ns = hc_clock_now_ns() - begin_ns;
	if (!rc && reads && hc_checksum(client->buf, FILE_BYTES) != client->sums[i])
		rc = -EBADMSG;
	if (rc)
		fprintf(stderr, "bench-mount: %s of %s: %s\n", reads ? "read" : "write", path,
			strerror(-rc));
	else if (sample >= 0)
		client->rates[reads][target][sample] = (double)FILE_BYTES / (double)(took_ns + 1);
	return rc;
}

static uint64_t cpu_ns(pid_t pid)
{
	struct timespec t = {0};
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
		return 0;
	return (uint64_t)t.tv_sec * HC_NS_PER_S + (uint64_t)t.tv_nsec;
}

static int run_round(const struct bench *bench, struct client *client, int round, bool reads)
{
	uint64_t before_ns[2] = {cpu_ns(bench->pids[OURS]), cpu_ns(bench->pids[BARE])};
	int rc = 0;

	for (int i = 0; i < N_FILES && !rc; i++) {
		if (!reads) {
			/* Other bytes in each file and round. */
			for (size_t at = 0; at < FILE_BYTES; at += HC_LEAF_BYTES)
				*(int *)(void *)(client->data + at) = (round + 1) * N_FILES + i;
			client->sums[i] = hc_checksum(client->data, FILE_BYTES);
		}
		for (int k = 0; k < N_TARGETS && !rc; k++)
			rc = run_one(client, (k + i + round + 1) % N_TARGETS, i, reads,
				     round < 0 ? -1 : round * N_FILES + i);
	}
	for (int t = 0; t < 2 && round >= 0; t++)
		client->cpu_ns[reads][t] += cpu_ns(bench->pids[t]) - before_ns[t];
	return rc;
}

static void report_cpu(const struct client *client, bool reads)
{
	double gb = (double)FILE_BYTES * N_SAMPLES / 1e9;
	double ours = (double)client->cpu_ns[reads][OURS] / 1e6 / gb;
	double bare = (double)client->cpu_ns[reads][BARE] / 1e6 / gb;

	printf("%-5s 8 MiB  CPU of the daemons: hicachefs %.0f ms/GB, bare FUSE %.0f ms/GB\n",
	       reads ? "read" : "write", ours, bare);
}

static const char *verdict(double median, double spread, bool quiet)
{
	if (!quiet || spread > SPREAD_MAX)
		return "not judged: the machine is busy";
	return median >= AIM ? "reached" : "MISSED";
}

static void report(struct client *client, bool reads, bool quiet)
{
	static double ratios[N_TARGETS][N_SAMPLES];
	double p10[N_TARGETS], p50[N_TARGETS], p90[N_TARGETS];

	for (int t = 0; t < N_TARGETS; t++)
		for (int s = 0; s < N_SAMPLES; s++)
			ratios[t][s] = client->rates[reads][OURS][s] / client->rates[reads][t][s];
	for (int t = 0; t < N_TARGETS; t++) {
		p10[t] = bench_percentile(client->rates[reads][t], N_SAMPLES, 10);
		p50[t] = bench_percentile(client->rates[reads][t], N_SAMPLES, 50);
		p90[t] = bench_percentile(client->rates[reads][t], N_SAMPLES, 90);
	}
	for (int t = 0; t < N_TARGETS; t++) {
		double median = bench_percentile(ratios[t], N_SAMPLES, 50);

		printf("%-5s 8 MiB  %-9s %5.2f GB/s (p10 %.2f, p90 %.2f)", reads ? "read" : "write",
		       names[t], p50[t], p10[t], p90[t]);
		if (t != OURS)
			printf("  hicachefs / %s %.2f (of the p90s %.2f)", names[t], median,
			       p90[OURS] / p90[t]);
		if (t == BARE)
			printf("  aim %.2f %s", AIM, verdict(median, p90[t] / p10[t], quiet));
		printf("\n");
	}
	report_cpu(client, reads);
}

static int client_run(struct bench *bench)
{
	static struct client client;
	struct hc_rng rng;
	bool quiet;
	double rate;
	int rc = 0;

	snprintf(client.dirs[OURS], sizeof(client.dirs[OURS]), "%s/" SPACE, bench->mounts[OURS]);
	snprintf(client.dirs[BARE], sizeof(client.dirs[BARE]), "%s", bench->mounts[BARE]);
	snprintf(client.dirs[TMPFS], sizeof(client.dirs[TMPFS]), "%s/files", bench->memory);
	client.data = bench_memory(2 * FILE_BYTES);
	if (!client.data)
		return -ENOMEM;
	client.buf = client.data + FILE_BYTES;
	rate = bench_memcpy_rate(client.data, 2 * FILE_BYTES);
	quiet = rate >= BENCH_MEMCPY_MIN;
	hc_rng_seed(&rng, 8);
	for (size_t i = 0; i < FILE_BYTES; i += 8)
		*(uint64_t *)(void *)(client.data + i) = hc_rng_next(&rng);
	if (mkdir(client.dirs[OURS], 0755) || mkdir(client.dirs[TMPFS], 0755)) {
		fprintf(stderr, "bench-mount: no directory for the files: %m\n");
		return -errno;
	}
	printf("memory: %s, pool %d %%, bare arena %d %%, client's buffers %d %% on huge pages; "
	       "memcpy %.1f GB/s%s; %d threads a daemon; disk_size=0\n",
	       bench->tmpfs_mounted ? "a tmpfs of its own" : "/dev/shm",
	       huge_percent(bench->pids[OURS], bench->memory),
	       huge_percent(bench->pids[BARE], bench->memory), bench_huge_percent(client.data),
	       rate, quiet ? "" : ": too busy or slow a machine for a verdict", N_THREADS);
	for (int round = -1; round < N_ROUNDS && !rc; round++) {
		rc = run_round(bench, &client, round, false);
		if (!rc)
			rc = run_round(bench, &client, round, true);
	}
	for (int reads = 0; reads < 2 && !rc; reads++)
		report(&client, reads, quiet);
	return rc;
}

/* ---- start and stop ---- */

static int prepare(struct bench *bench)
{
	const char *tmp = getenv("TMPDIR");
	char path[256];

	snprintf(bench->dir, sizeof(bench->dir), "%.90s/hc-bench-mount-XXXXXX",
		 tmp ? tmp : "/var/tmp");
	if (!mkdtemp(bench->dir)) {
		fprintf(stderr, "bench-mount: cannot make a directory %s: %m; set TMPDIR\n",
			bench->dir);
		bench->dir[0] = 0;
		return -errno;
	}
	for (int t = 0; t < 2; t++) {
		snprintf(bench->mounts[t], sizeof(bench->mounts[t]), "%s/%s", bench->dir,
			 t == OURS ? "mount" : "bare");
		if (mkdir(bench->mounts[t], 0700))
			return -errno;
	}
	path_of(bench->dir, "cache", path);
	snprintf(bench->memory, sizeof(bench->memory), "%s/memory", bench->dir);
	if (mkdir(path, 0700) || mkdir(bench->memory, 0700))
		return -errno;
	/* Huge pages where they can be had. */
	bench->tmpfs_mounted =
		!mount("bench-mount", bench->memory, "tmpfs", 0, TMPFS_OPTION ",huge=always") ||
		!mount("bench-mount", bench->memory, "tmpfs", 0, TMPFS_OPTION);
	if (!bench->tmpfs_mounted) {
		snprintf(bench->memory, sizeof(bench->memory), "/dev/shm/hc-bench-mount-%d",
			 (int)getpid());
		if (mkdir(bench->memory, 0700))
			return -errno;
	}
	path_of(bench->memory, "pool", path);
	return mkdir(path, 0700) ? -errno : 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void end(struct bench *bench)
{
	int status;

	if (bench->client > 0) {
		kill(bench->client, SIGKILL);
		if (!wait_end(bench, &bench->client, HC_NS_PER_S, &status))
			/* It hangs in a mount: that goes first. */
			fprintf(stderr, "bench-mount: the client hangs\n");
	}
	if (bench->pids[OURS] > 0)
		kill(bench->pids[OURS], SIGTERM);
	wait_end(bench, &bench->pids[OURS], STOP_NS, &status);
	for (int t = 0; t < 2; t++) {
		if (bench->mounts[t][0])
			unmount(bench, bench->mounts[t]);
		if (!wait_end(bench, &bench->pids[t], 5 * HC_NS_PER_S, &status)) {
			kill(bench->pids[t], SIGKILL);
			wait_end(bench, &bench->pids[t], HC_NS_PER_S, &status);
		}
	}
	wait_end(bench, &bench->client, HC_NS_PER_S, &status);
	if (bench->tmpfs_mounted && umount2(bench->memory, 0))
		umount2(bench->memory, MNT_DETACH);
	else if (!bench->tmpfs_mounted && bench->memory[0])
		nftw(bench->memory, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	if (bench->dir[0])
		nftw(bench->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static int watch_client(struct bench *bench)
{
	uint64_t deadline_ns = hc_clock_now_ns() + LIMIT_S * HC_NS_PER_S;
	int status = 0, number;

	while (!wait_end(bench, &bench->client, 0, &status)) {
		number = wait_signal(bench, HC_NS_PER_S);
		if (number && number != SIGCHLD)
			return -EINTR;
		if (hc_clock_now_ns() >= deadline_ns) {
			fprintf(stderr, "bench-mount: not done after %d s\n", LIMIT_S);
			return -ETIMEDOUT;
		}
	}
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	show_log(bench, "hicachefs.log");
	return -EIO;
}

static int run(struct bench *bench, const char *program)
{
	int rc = prepare(bench);

	if (rc) {
		fprintf(stderr, "bench-mount: cannot prepare: %s\n", strerror(-rc));
		return rc;
	}
	start_ours(bench, program);
	rc = wait_mounted(bench, OURS, "hicachefs.log");
	if (!rc) {
		start_bare(bench);
		rc = wait_mounted(bench, BARE, "bare.log");
	}
	if (rc)
		return rc;
	fflush(stdout);
	bench->client = fork();
	if (!bench->client) {
		child_begin(bench, NULL);
		rc = client_run(bench);
		fflush(stdout);
		_exit(rc ? 1 : 0);
	}
	return watch_client(bench);
}

int main(int argc, char **argv)
{
	static struct bench bench;
	const char *build = getenv("top_builddir");
	char program[4096];
	int rc;

	snprintf(program, sizeof(program), "%s%s",
		 argc > 1 ? argv[1]
		 : build  ? build
			  : ".",
		 argc > 1 ? "" : "/fuse/hicachefs");
	if (access("/dev/fuse", R_OK | W_OK)) {
		printf("not run: /dev/fuse: %m\n");
		return 0;
	}
	if (access(program, X_OK)) {
		fprintf(stderr, "bench-mount: %s: %m; build it first (make), or name it\n",
			program);
		return 1;
	}
	sigemptyset(&bench.signals);
	sigaddset(&bench.signals, SIGCHLD);
	sigaddset(&bench.signals, SIGINT);
	sigaddset(&bench.signals, SIGTERM);
	sigaddset(&bench.signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &bench.signals, NULL);
	rc = run(&bench, program);
	end(&bench);
	return rc ? 1 : 0;
}
