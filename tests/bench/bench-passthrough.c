/* SPDX-License-Identifier: Apache-2.0 */
/* What passthrough costs: pages of a mount that are opened by the kernel against the very files in
 * which they lie, and against the same pages of a mount without passthrough; bodies written by
 * passthrough against plain files beside them; the open alone. All take turns file by file.
 * bench-passthrough.sh starts the mounts and this; alone it needs them.
 *
 * Usage: bench-passthrough CTL CACHEDIR AUTO-SPACE OFF-SPACE WRITES-SPACE PLAIN-DIR
 *	CACHEDIR	of the mount in which AUTO-SPACE is */
#include "bench.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_FILES    16
#define N_ROUNDS   9
#define N_SAMPLES  (N_FILES * N_ROUNDS)
#define N_OPENS    200 /* of one file in one turn */
#define BYTES_MAX  ((size_t)8 << 20)
#define SPREAD_MAX 2.5 /* p90 / p10 of the baseline: above it the machine is busy */

enum { PASSED, FILES, FALLBACK, N_READS };
enum { WRITTEN, PLAIN, N_WRITES };

static const char *const read_names[N_READS] = {"passthrough", "the same file", "fallback"};
static const char *const write_names[N_WRITES] = {"passthrough", "a plain file"};

struct bench {
	const char *ctl, *cachedir;
	const char *read_dirs[N_READS]; /* [FILES] is looked up */
	const char *write_dirs[N_WRITES];
	char *buf;
	bool quiet;
	char files[N_FILES][512]; /* of the size at hand */
};

static void name_of(size_t bytes, unsigned i, char name[80])
{
	snprintf(name, 80, "%08x%056x", (i + 1) * 2654435761u + (uint32_t)bytes, i);
}

static int run_ctl(const struct bench *bench, const char *space, const char *what,
		   const char *option)
{
	char mount[512];
	int status = -1;
	pid_t pid;

	snprintf(mount, sizeof(mount), "%s/..", space);
	pid = fork();
	if (!pid) {
		int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

		dup2(fd, STDOUT_FILENO);
		execl(bench->ctl, bench->ctl, "-m", mount, what, option, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status) {
		fprintf(stderr, "bench-passthrough: hicachectl %s: status %d\n", what, status);
		return -EIO;
	}
	return 0;
}

static int write_file(const struct bench *bench, const char *dir, size_t bytes, unsigned i)
{
	char name[80], path[512], temporary[512];
	size_t done = 0;
	int fd;

	name_of(bytes, i, name);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	snprintf(temporary, sizeof(temporary), "%s/%s.tmp", dir, name);
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	while (done < bytes) {
		ssize_t n = write(fd, bench->buf + done, bytes - done);

		if (n <= 0) {
			close(fd);
			return -EIO;
		}
		done += (size_t)n;
	}
	return close(fd) || rename(temporary, path) ? -errno : 0;
}

static int read_file(const char *path, char *buf, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t done = 0;
	ssize_t n = 1;

	if (fd < 0)
		return -errno;
	while (done < bytes && n > 0) {
		n = read(fd, buf + done, bytes - done);
		done += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	return done == bytes ? 0 : -ENODATA;
}

static void read_path(const struct bench *bench, int target, size_t bytes, unsigned i,
		      char path[512])
{
	char name[80];

	name_of(bytes, i, name);
	if (target == FILES)
		memcpy(path, bench->files[i], 512);
	else
		snprintf(path, 512, "%s/%s", bench->read_dirs[target], name);
}

/* The file of CACHEDIR in which a page lies: pages/DIR/SERIES-HASH-SEQUENCE. */
static int find_file(struct bench *bench, size_t bytes, unsigned i)
{
	char name[80], pattern[512];
	glob_t found;
	int rc = -ENOENT;

	name_of(bytes, i, name);
	snprintf(pattern, sizeof(pattern), "%s/pages/*/*-%s-*", bench->cachedir, name);
	if (!glob(pattern, 0, NULL, &found) && found.gl_pathc == 1) {
		snprintf(bench->files[i], sizeof(bench->files[i]), "%s", found.gl_pathv[0]);
		rc = 0;
	}
	globfree(&found);
	return rc;
}

/* Pages of one size in both mounts: on disk alone in the one, in memory in the other. */
static int prepare(struct bench *bench, size_t bytes)
{
	int rc = 0;

	for (unsigned i = 0; i < N_FILES && !rc; i++) {
		memcpy(bench->buf, &i, sizeof(i));
		rc = write_file(bench, bench->read_dirs[PASSED], bytes, i);
		if (!rc)
			rc = write_file(bench, bench->read_dirs[FALLBACK], bytes, i);
	}
	if (!rc)
		rc = run_ctl(bench, bench->read_dirs[FALLBACK], "sync", NULL);
	if (!rc)
		rc = run_ctl(bench, bench->read_dirs[PASSED], "evict", "--memory");
	for (unsigned i = 0; i < N_FILES && !rc; i++)
		rc = find_file(bench, bytes, i);
	if (rc)
		fprintf(stderr, "bench-passthrough: cannot make pages of %zu bytes: %s\n", bytes,
			strerror(-rc));
	return rc;
}

static void report(const char *what, size_t bytes, const char *const *names, int ours, int base,
		   double (*rates)[N_SAMPLES], double aim, bool quiet)
{
	static double ratios[N_SAMPLES], sorted[N_SAMPLES];
	double ratio, spread;

	for (int s = 0; s < N_SAMPLES; s++)
		ratios[s] = rates[ours][s] / rates[base][s];
	ratio = bench_percentile(ratios, N_SAMPLES, 50);
	memcpy(sorted, rates[base], sizeof(sorted));
	spread = bench_percentile(sorted, N_SAMPLES, 90) / bench_percentile(sorted, N_SAMPLES, 10);
	printf("%-16s %zu MiB  %s / %s %.2f (%.2f GB/s)  aim %.2f %s\n", what, bytes >> 20,
	       names[ours], names[base], ratio, bench_percentile(sorted, N_SAMPLES, 50) * ratio,
	       aim,
	       !quiet || spread > SPREAD_MAX ? "not judged: the machine is busy"
	       : ratio >= aim                ? "reached"
					     : "MISSED");
}

static int read_all(const struct bench *bench, size_t bytes, double aim_file, double aim_fallback)
{
	static double rates[N_READS][N_SAMPLES];

	for (int round = -1; round < N_ROUNDS; round++) {
		for (unsigned i = 0; i < N_FILES * N_READS; i++) {
			int target = (int)(i + (unsigned)(round + 1)) % N_READS, rc;
			uint64_t begin_ns;
			char path[512];

			read_path(bench, target, bytes, i / N_READS, path);
			begin_ns = hc_clock_now_ns();
			rc = read_file(path, bench->buf, bytes);
			if (rc) {
				fprintf(stderr, "bench-passthrough: %s: %s\n", path, strerror(-rc));
				return rc;
			}
			if (round >= 0)
				rates[target][round * N_FILES + (int)(i / N_READS)] =
					(double)bytes / (double)(hc_clock_now_ns() - begin_ns + 1);
		}
	}
	report("read", bytes, read_names, PASSED, FILES, rates, aim_file, bench->quiet);
	if (aim_fallback > 0)
		report("read", bytes, read_names, PASSED, FALLBACK, rates, aim_fallback,
		       bench->quiet);
	return 0;
}

/* Half of the files each; a byte a turn in both pipes. */
static void reader(const struct bench *bench, int target, size_t bytes, unsigned first)
{
	char path[512];
	int rc = 0;

	for (unsigned i = first; i < N_FILES && !rc; i += 2) {
		read_path(bench, target, bytes, i, path);
		rc = read_file(path, bench->buf, bytes);
	}
	_exit(rc ? 1 : 0);
}

/* GB/s of two processes together, 0: one failed. */
static double two_readers(const struct bench *bench, int target, size_t bytes)
{
	uint64_t begin_ns = hc_clock_now_ns();
	bool bad = false;
	pid_t pids[2];
	int status;

	for (unsigned k = 0; k < 2; k++) {
		pids[k] = fork();
		if (!pids[k])
			reader(bench, target, bytes, k);
	}
	for (unsigned k = 0; k < 2; k++)
		bad |= waitpid(pids[k], &status, 0) != pids[k] || status;
	return bad ? 0 : (double)(bytes * N_FILES) / (double)(hc_clock_now_ns() - begin_ns + 1);
}

static int read_by_two(const struct bench *bench, size_t bytes, double aim)
{
	static double rates[N_READS][N_SAMPLES];

	for (int s = 0; s < N_SAMPLES; s++) {
		for (int k = 0; k < 2; k++) {
			int target = (s + k) % 2 ? PASSED : FILES;

			rates[target][s] = two_readers(bench, target, bytes);
			if (rates[target][s] == 0) {
				fprintf(stderr, "bench-passthrough: a reader failed\n");
				return -EIO;
			}
		}
	}
	report("read by two", bytes, read_names, PASSED, FILES, rates, aim, bench->quiet);
	return 0;
}

static int open_alone(const struct bench *bench, size_t bytes)
{
	static double us[N_READS][N_FILES];

	for (unsigned i = 0; i < N_FILES; i++) {
		for (int target = 0; target < N_READS; target++) {
			uint64_t begin_ns = hc_clock_now_ns();
			char path[512];

			read_path(bench, target, bytes, i, path);
			for (int k = 0; k < N_OPENS; k++) {
				int fd = open(path, O_RDONLY | O_CLOEXEC);

				if (fd < 0)
					return -errno;
				close(fd);
			}
			us[target][i] = (double)(hc_clock_now_ns() - begin_ns) / N_OPENS / 1e3;
		}
	}
	for (int target = 0; target < N_READS; target++)
		printf("%s%s %.1f us", target ? ", " : "open and close    ", read_names[target],
		       bench_percentile(us[target], N_FILES, 50));
	printf("\n");
	return 0;
}

static int write_all(const struct bench *bench, size_t bytes, double aim)
{
	static double rates[N_WRITES][N_SAMPLES];

	for (int round = -1; round < N_ROUNDS; round++) {
		for (unsigned i = 0; i < N_FILES * N_WRITES; i++) {
			int target = (int)(i + (unsigned)(round + 1)) % N_WRITES, rc;
			char name[80], path[512];
			uint64_t begin_ns;

			name_of(bytes, i / N_WRITES, name);
			snprintf(path, sizeof(path), "%s/%s", bench->write_dirs[target], name);
			if (unlink(path) && errno != ENOENT)
				return -errno;
			begin_ns = hc_clock_now_ns();
			rc = write_file(bench, bench->write_dirs[target], bytes, i / N_WRITES);
			if (rc) {
				fprintf(stderr, "bench-passthrough: %s: %s\n", path, strerror(-rc));
				return rc;
			}
			if (round >= 0)
				rates[target][round * N_FILES + (int)(i / N_WRITES)] =
					(double)bytes / (double)(hc_clock_now_ns() - begin_ns + 1);
		}
	}
	report("create to rename", bytes, write_names, WRITTEN, PLAIN, rates, aim, bench->quiet);
	return 0;
}

int main(int argc, char **argv)
{
	static struct bench bench;
	double rate;
	int rc;

	if (argc != 7) {
		fprintf(stderr, "usage: bench-passthrough CTL CACHEDIR AUTO-SPACE OFF-SPACE "
				"WRITES-SPACE PLAIN-DIR\n");
		return 2;
	}
	bench = (struct bench){
		.ctl = argv[1],
		.cachedir = argv[2],
		.read_dirs = {[PASSED] = argv[3], [FALLBACK] = argv[4]},
		.write_dirs = {[WRITTEN] = argv[5], [PLAIN] = argv[6]},
		.buf = bench_memory(2 * BYTES_MAX),
	};
	if (!bench.buf)
		return 1;
	rate = bench_memcpy_rate(bench.buf, 2 * BYTES_MAX);
	bench.quiet = rate >= BENCH_MEMCPY_MIN;
	printf("memcpy %.1f GB/s%s\n", rate,
	       bench.quiet ? "" : ": too busy or slow a machine for a verdict");
	rc = prepare(&bench, BYTES_MAX);
	if (!rc)
		rc = read_all(&bench, BYTES_MAX, 0.8, 2);
	if (!rc)
		rc = read_by_two(&bench, BYTES_MAX, 0.9);
	if (!rc)
		rc = prepare(&bench, (size_t)1 << 20);
	if (!rc)
		rc = read_all(&bench, (size_t)1 << 20, 0.4, 0);
	if (!rc)
		rc = open_alone(&bench, (size_t)1 << 20);
	if (!rc)
		rc = write_all(&bench, BYTES_MAX, 0.75);
	if (!rc)
		rc = write_all(&bench, (size_t)1 << 20, 0.45);
	return rc ? 1 : 0;
}
