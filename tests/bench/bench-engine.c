/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of SGLang's file backend on several directories in turns: set (stat, create in place,
 * write in one call, close), exists (stat), get (open, read in one call, close), page after page of
 * a chain, by one process or by four with a chain each. bench-engine.sh starts it; alone it needs
 * directories.
 *
 * A directory is named NAME=DIR; @NAME=DIR is the space of a mounted cache, which forgets what is
 * in memory by `CTL -m DIR/.. evict --memory`; others by posix_fadvise. The one called ext4 is also
 * read raw, by 8 threads with O_DIRECT, for the most that the disk gives.
 *
 * Usage: bench-engine CTL PAGE-BYTES PROCESSES PAGES ROUNDS NAME=DIR... */
#include "bench.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TARGETS_MAX 8
#define ROUNDS_MAX  32
#define PROCS_MAX   8
#define RAW_DEPTH   8
#define N_LOOKS     20000 /* of exists in one job, after the first */
/* Where a directory's own figures lie further apart the machine is too busy for a verdict. */
#define SPREAD_MAX 2.5

enum phase { SET, EXISTS_FIRST, EXISTS_LATER, WARM_GET, COLD_GET, N_PHASES };

static const char *const phase_names[N_PHASES] = {"set", "first exists", "later exists", "warm get",
						  "cold get"};

struct target {
	char name[32];
	const char *dir;
	bool mounted; /* a cache */
	bool raw;     /* O_DIRECT reads of ext4's files */
	double rates[N_PHASES][ROUNDS_MAX];
};

struct bench {
	const char *ctl;
	size_t page_bytes;
	unsigned n_procs, n_pages, n_rounds;
	struct target targets[TARGETS_MAX];
	unsigned n_targets;
	char *buf; /* of each process; written and read */
};

struct job {
	const struct bench *bench;
	const struct target *target;
	enum phase phase;
	unsigned round, proc;
};

static void path_of(const struct job *job, unsigned i, char path[512])
{
	snprintf(path, 512, "%s/%08x%04x%04x%048x_model_0_1.bin", job->target->dir,
		 (i + 1) * 2654435761u, job->round, job->proc, i);
}

static uint64_t mark_of(const struct job *job, unsigned i)
{
	return ((uint64_t)job->round << 40 | (uint64_t)job->proc << 32 | i) + 1;
}

static int set_one(const struct job *job, unsigned i)
{
	uint64_t mark = mark_of(job, i);
	struct stat st;
	char path[512];
	ssize_t n;
	int fd;

	path_of(job, i, path);
	if (!stat(path, &st))
		return -EEXIST;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	memcpy(job->bench->buf, &mark, sizeof(mark));
	n = write(fd, job->bench->buf, job->bench->page_bytes);
	if (close(fd) || n != (ssize_t)job->bench->page_bytes)
		return -EIO;
	return 0;
}

static int get_one(const struct job *job, unsigned i, int flags, char *buf)
{
	uint64_t mark = mark_of(job, i);
	size_t done = 0;
	char path[512];
	ssize_t n = 1;
	int fd;

	path_of(job, i, path);
	fd = open(path, O_RDONLY | O_CLOEXEC | flags);
	if (fd < 0)
		return -errno;
	while (done < job->bench->page_bytes && n > 0) {
		n = read(fd, buf + done, job->bench->page_bytes - done);
		done += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	return done == job->bench->page_bytes && !memcmp(buf, &mark, sizeof(mark)) ? 0 : -EBADMSG;
}

static int exists_one(const struct job *job, unsigned i)
{
	struct stat st;
	char path[512];

	path_of(job, i, path);
	return stat(path, &st) ? -errno : 0;
}

struct raw_thread {
	const struct job *job;
	unsigned first, step;
	char *buf;
	pthread_t thread;
	int rc;
};

static void *raw_main(void *arg)
{
	struct raw_thread *t = arg;

	for (unsigned i = t->first; i < t->job->bench->n_pages && !t->rc; i += t->step)
		t->rc = get_one(t->job, i, O_DIRECT, t->buf);
	return NULL;
}

/* Several processes share the depth. */
static int raw_get(const struct job *job)
{
	unsigned n = RAW_DEPTH / job->bench->n_procs;
	struct raw_thread threads[RAW_DEPTH] = {0};
	int rc = 0;

	for (unsigned k = 0; k < n; k++) {
		threads[k] = (struct raw_thread){
			.job = job,
			.first = k,
			.step = n,
			.buf = job->bench->buf + (size_t)k * job->bench->page_bytes,
		};
		if (pthread_create(&threads[k].thread, NULL, raw_main, &threads[k]))
			return -EAGAIN;
	}
	for (unsigned k = 0; k < n; k++) {
		pthread_join(threads[k].thread, NULL);
		rc = rc ? rc : threads[k].rc;
	}
	return rc;
}

/* A stat takes a microsecond: enough of them to be measured. */
static unsigned job_repeats(const struct job *job)
{
	return job->phase == EXISTS_LATER ? N_LOOKS / job->bench->n_pages + 1 : 1;
}

static int run_job(const struct job *job)
{
	int rc = 0;

	if (job->target->raw)
		return raw_get(job);
	for (unsigned i = 0; i < job->bench->n_pages * job_repeats(job) && !rc; i++) {
		if (job->phase == SET)
			rc = set_one(job, i);
		else if (job->phase == EXISTS_FIRST || job->phase == EXISTS_LATER)
			rc = exists_one(job, i % job->bench->n_pages);
		else
			rc = get_one(job, i, 0, job->bench->buf);
	}
	if (rc)
		fprintf(stderr, "bench-engine: %s on %s: %s\n", phase_names[job->phase],
			job->target->name, strerror(-rc));
	return rc;
}

/* All processes begin at once; pages a second, 0: one failed. */
static double run_procs(struct job job)
{
	int start[2], ready[2], status;
	pid_t pids[PROCS_MAX];
	uint64_t begin_ns;
	bool bad = false;
	char c;

	if (pipe(start) || pipe(ready))
		return 0;
	for (unsigned p = 0; p < job.bench->n_procs; p++) {
		pids[p] = fork();
		if (pids[p])
			continue;
		job.proc = p;
		close(start[1]);
		/* The buffer is this process's own before the clock runs. */
		for (size_t at = 0; at < RAW_DEPTH * job.bench->page_bytes; at += 4096)
			job.bench->buf[at] = (char)p;
		if (write(ready[1], "r", 1) != 1 || read(start[0], &c, 1) != 0)
			_exit(1);
		_exit(run_job(&job) ? 1 : 0);
	}
	for (unsigned p = 0; p < job.bench->n_procs; p++)
		bad |= read(ready[0], &c, 1) != 1;
	begin_ns = hc_clock_now_ns();
	close(start[1]);
	for (unsigned p = 0; p < job.bench->n_procs; p++)
		bad |= pids[p] < 0 || waitpid(pids[p], &status, 0) != pids[p] || status;
	begin_ns = hc_clock_now_ns() - begin_ns;
	close(start[0]);
	close(ready[0]);
	close(ready[1]);
	return bad ? 0
		   : (double)job.bench->n_procs * job.bench->n_pages * job_repeats(&job) * 1e9 /
			       (double)(begin_ns + 1);
}

/* What was written is on disk, and no memory holds it. */
static int cool(const struct bench *bench, const struct target *target, unsigned round)
{
	struct job job = {.bench = bench, .target = target, .round = round};
	char text[1024];

	if (target->raw)
		return 0;
	if (target->mounted) {
		snprintf(text, sizeof(text), "%s -m %s/.. evict --memory >/dev/null 2>&1",
			 bench->ctl, target->dir);
		return system(text) ? -EIO : 0;
	}
	for (job.proc = 0; job.proc < bench->n_procs; job.proc++) {
		for (unsigned i = 0; i < bench->n_pages; i++) {
			int fd;

			path_of(&job, i, text);
			fd = open(text, O_RDONLY | O_CLOEXEC);
			if (fd < 0 || fsync(fd))
				return -errno;
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			close(fd);
		}
	}
	return 0;
}

static int clear(const struct bench *bench, const struct target *target, unsigned round)
{
	struct job job = {.bench = bench, .target = target, .round = round};
	char path[512];

	for (job.proc = 0; job.proc < bench->n_procs && !target->raw; job.proc++) {
		for (unsigned i = 0; i < bench->n_pages; i++) {
			path_of(&job, i, path);
			if (unlink(path))
				return -errno;
		}
	}
	return 0;
}

static int run_phase(struct bench *bench, enum phase phase, unsigned round)
{
	for (unsigned k = 0; k < bench->n_targets; k++) {
		struct target *target = &bench->targets[(k + round) % bench->n_targets];
		struct job job = {bench, target, phase, round, 0};
		double rate;

		if (target->raw && phase != COLD_GET)
			continue;
		rate = run_procs(job);
		if (rate <= 0)
			return -EIO;
		target->rates[phase][round] = rate;
	}
	return 0;
}

static int run_round(struct bench *bench, unsigned round)
{
	int rc = run_phase(bench, SET, round);

	if (!rc)
		rc = run_phase(bench, EXISTS_FIRST, round);
	if (!rc)
		rc = run_phase(bench, EXISTS_LATER, round);
	if (!rc)
		rc = run_phase(bench, WARM_GET, round);
	for (unsigned t = 0; t < bench->n_targets && !rc; t++)
		rc = cool(bench, &bench->targets[t], round);
	if (!rc)
		rc = run_phase(bench, COLD_GET, round);
	for (unsigned t = 0; t < bench->n_targets && !rc; t++)
		rc = clear(bench, &bench->targets[t], round);
	return rc;
}

/* ---- report ---- */

static struct target *find(struct bench *bench, const char *name)
{
	for (unsigned t = 0; t < bench->n_targets; t++) {
		if (!strcmp(bench->targets[t].name, name))
			return &bench->targets[t];
	}
	return NULL;
}

/* Median of the rounds' ratios. */
static double ratio(const struct bench *bench, const struct target *a, const struct target *b,
		    enum phase phase)
{
	double ratios[ROUNDS_MAX];

	for (unsigned r = 0; r < bench->n_rounds; r++)
		ratios[r] = a->rates[phase][r] / b->rates[phase][r];
	return bench_percentile(ratios, bench->n_rounds, 50);
}

static double spread(const struct bench *bench, const struct target *t, enum phase phase)
{
	double rates[ROUNDS_MAX];
	double low;

	memcpy(rates, t->rates[phase], sizeof(rates));
	low = bench_percentile(rates, bench->n_rounds, 10);
	return bench_percentile(rates, bench->n_rounds, 90) / low;
}

static const char *verdict(double got, double bar, bool quiet)
{
	return !quiet ? "not judged: the machine is busy" : got >= bar ? "reached" : "MISSED";
}

static void report_aim(struct bench *bench, struct target *t, enum phase phase, bool quiet)
{
	struct target *ext4 = find(bench, "ext4"), *raw = find(bench, "raw"),
		      *none = find(bench, "no-ahead");
	bool calm = quiet && ext4 && spread(bench, ext4, phase) <= SPREAD_MAX;
	double got;

	if (phase == COLD_GET && none && t != none)
		printf("  / no-ahead %.2f", ratio(bench, t, none, phase));
	if (!ext4 || t == ext4)
		return;
	got = ratio(bench, t, ext4, phase);
	printf("  / ext4 %.2f", got);
	if (phase == EXISTS_LATER && t->mounted)
		printf(" aim 0.90 %s", verdict(got, 0.9, calm));
	if (phase != COLD_GET || !raw || t == raw)
		return;
	printf("  / raw %.2f", ratio(bench, t, raw, phase));
	if (t->mounted) {
		double best = ratio(bench, raw, ext4, phase);

		best = best < 1.5 ? best : 1.5;

		printf("  / min(1.5 ext4, raw) %.2f aim 0.90 %s", got / best,
		       verdict(got / best, 0.9, calm));
	}
}

static void report(struct bench *bench, bool quiet)
{
	for (enum phase phase = SET; phase < N_PHASES; phase++) {
		for (unsigned t = 0; t < bench->n_targets; t++) {
			struct target *target = &bench->targets[t];
			double rates[ROUNDS_MAX], p50, unit = (double)bench->page_bytes / 1e9;
			bool looks = phase == EXISTS_FIRST || phase == EXISTS_LATER;

			if (target->raw && phase != COLD_GET)
				continue;
			memcpy(rates, target->rates[phase], sizeof(rates));
			p50 = bench_percentile(rates, bench->n_rounds, 50);
			unit = looks ? 1e-3 : unit;
			printf("%-12s %-11s %7.2f %s (p10 %.2f, p90 %.2f)", phase_names[phase],
			       target->name, p50 * unit, looks ? "k/s" : "GB/s",
			       bench_percentile(rates, bench->n_rounds, 10) * unit,
			       bench_percentile(rates, bench->n_rounds, 90) * unit);
			report_aim(bench, target, phase, quiet);
			printf("\n");
		}
	}
}

static int add_target(struct bench *bench, char *text)
{
	struct target *t = &bench->targets[bench->n_targets++];
	char *equals = strchr(text, '=');

	if (!equals || bench->n_targets >= TARGETS_MAX - 1)
		return -EINVAL;
	*equals = 0;
	t->mounted = *text == '@';
	snprintf(t->name, sizeof(t->name), "%s", text + t->mounted);
	t->dir = equals + 1;
	if (strcmp(t->name, "ext4") == 0) {
		bench->targets[bench->n_targets] = (struct target){.raw = true, .dir = t->dir};
		snprintf(bench->targets[bench->n_targets++].name, sizeof(t->name), "raw");
	}
	return 0;
}

/* More runs than this bench and its daemons. */
static bool is_loaded(unsigned n_procs)
{
	long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	double load;

	return getloadavg(&load, 1) == 1 && load > (double)n_cpus + n_procs + 2;
}

int main(int argc, char **argv)
{
	static struct bench bench;
	bool quiet;
	double rate;
	int rc = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 1) {
		printf("run by bench-engine.sh\n");
		return 0;
	}
	if (argc < 7)
		rc = -EINVAL;
	for (int i = 6; i < argc && !rc; i++)
		rc = add_target(&bench, argv[i]);
	if (!rc) {
		bench.ctl = argv[1];
		bench.page_bytes = strtoull(argv[2], NULL, 10);
		bench.n_procs = (unsigned)strtoul(argv[3], NULL, 10);
		bench.n_pages = (unsigned)strtoul(argv[4], NULL, 10);
		bench.n_rounds = (unsigned)strtoul(argv[5], NULL, 10);
	}
	if (rc || !bench.n_procs || bench.n_procs > PROCS_MAX || bench.n_rounds > ROUNDS_MAX ||
	    !bench.n_rounds || bench.page_bytes < 4096 || !bench.n_pages) {
		fprintf(stderr, "usage: bench-engine CTL PAGE-BYTES PROCESSES PAGES ROUNDS "
				"[@]NAME=DIR...\n");
		return 2;
	}
	bench.buf = bench_memory(RAW_DEPTH * bench.page_bytes);
	if (!bench.buf)
		return 1;
	rate = bench_memcpy_rate(bench.buf, RAW_DEPTH * bench.page_bytes);
	quiet = rate >= BENCH_MEMCPY_MIN && !is_loaded(bench.n_procs);
	printf("--- pages of %.1f MiB, %u process%s, chains of %u; memcpy %.1f GB/s%s\n",
	       (double)bench.page_bytes / (double)HC_MIB, bench.n_procs,
	       bench.n_procs > 1 ? "es" : "", bench.n_pages, rate,
	       quiet ? "" : ": too busy or slow a machine for a verdict");
	for (unsigned round = 0; round < bench.n_rounds && !rc; round++)
		rc = run_round(&bench, round);
	if (rc)
		fprintf(stderr, "bench-engine: %s\n", strerror(-rc));
	else
		report(&bench, quiet);
	return rc ? 1 : 0;
}
