/* SPDX-License-Identifier: Apache-2.0 */
/* Names through the mount: first and repeated stat, the look-up storm of a hybrid model, listings,
 * the daemon's memory with a million pages. Baselines of the same run, taking turns: the same calls
 * on the file system below, and the cheapest FUSE round trip there is (a look-up that bare-fuse.c
 * answers with "not there"). The catalog's rows are made without page files: names do not need
 * those.
 *
 *   this process   starts the two daemons and the client, has no fd in any mount; at the end and
 *                  after LIMIT_S it unmounts and removes
 *   client         does all timed calls; a child of it publishes meanwhile
 *
 * usage: bench-names [HICACHEFS]     default: fuse/hicachefs of the build tree */
#include "bare-fuse.h"
#include "bench.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "index/rows.h"
#include "node/node.h"
#include "util/rng.h"

#define N_LISTED   100000u  /* in one directory */
#define N_LARGE    1000000u /* in another */
#define N_STORM    4096u    /* names, half of them absent */
#define N_ROUNDS   8
#define N_FIRST    4000 /* first stats */
#define N_BLOCKS   60
#define BLOCK      200 /* repeated stats */
#define N_LISTINGS 5
#define LIMIT_S    600
#define START_NS   (60 * HC_NS_PER_S)
/* p90 / p10 of the baseline: above it the machine is too busy for a verdict. */
#define SPREAD_MAX 3.0
#define RSS_AIM    ((double)250)

enum { OURS, BELOW, BARE, N_PLACES };

struct bench {
	char dir[256];
	char places[N_PLACES][320];
	pid_t ours, bare, client;
};

static void must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "bench-names: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static struct hc_hash hash_of(uint32_t dir, uint32_t i)
{
	struct hc_hash hash;
	struct hc_rng rng;

	hc_rng_seed(&rng, ((uint64_t)dir << 32) + i + 1);
	for (size_t k = 0; k < sizeof(hash.bytes); k += 8) {
		uint64_t v = hc_rng_next(&rng);

		memcpy(hash.bytes + k, &v, 8);
	}
	return hash;
}

static void name_of(uint32_t dir, uint32_t i, char name[80])
{
	struct hc_hash hash = hash_of(dir, i);

	hc_hex_encode(hash.bytes, HC_HASH_BYTES, name);
	memcpy(name + 2 * (size_t)HC_HASH_BYTES, ".kv", 4);
}

/* --- the pages --- */

static void fill_dir(struct hc_node *node, const char *space_name, uint32_t dir, uint32_t n)
{
	static struct hc_row_page row;
	const struct hc_owner owner = {geteuid(), getegid(), 0755};
	struct hc_registry *registry = hc_node_registry(node);
	uint8_t packed[HC_ROW_BYTES_MAX];
	struct hc_space_info space;
	struct hc_dir_info info;

	row = (struct hc_row_page){.size_bytes = 65536, .mode = 0644};
	must(hc_dir_make(registry, HC_DIR_ROOT, space_name, &owner, &info), "mkdir");
	must(hc_space_find(registry, space_name, &space), "space");
	must(hc_series_open(registry, space.id, "{64}.kv", NULL, true, &row.series), "series");
	row.dir = space.dir;
	for (uint32_t i = 0; i < n; i++) {
		row.hash = hash_of(dir, i);
		row.mtime_ns = hc_clock_wall_ns();
		must(hc_catalog_put(hc_registry_catalog(registry), HC_TABLE_PAGES,
				    hc_registry_next_sequence(registry), packed,
				    hc_row_page_pack(&row, packed), false, NULL),
		     "put");
	}
}

static void fill(const char *cachedir)
{
	const struct hc_node_config config = {
		.cachedir = cachedir,
		.embedded = true,
		.pool_bytes = 128 * HC_MIB,
		.root = {geteuid(), getegid(), 0755},
		.disk_bytes = (uint64_t)1 << 50,
		.index_bytes = 64 * HC_GIB,
		.no_evictor = true,
	};
	struct hc_node *node;

	must(hc_node_open(&config, &node), "open");
	fill_dir(node, "listed", 0, N_LISTED);
	fill_dir(node, "large", 1, N_LARGE);
	hc_node_close(node, NULL);
}

static void touch_file(const char *path, size_t n_bytes)
{
	hc_autofd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	char data[4096] = {0};

	if (fd < 0 || write(fd, data, n_bytes) != (ssize_t)n_bytes)
		must(-errno, path);
}

/* --- the client --- */

static double since_us(uint64_t begin_ns)
{
	return (double)(hc_clock_now_ns() - begin_ns) / 1e3;
}

static double stat_us(const char *path, bool there)
{
	uint64_t begin_ns = hc_clock_now_ns();
	struct stat st;
	int rc = stat(path, &st);
	double took_us = since_us(begin_ns);

	if (rc ? errno != ENOENT || there : !there)
		must(rc ? -errno : -EEXIST, path);
	return took_us;
}

static double bare_us(const struct bench *b)
{
	static uint32_t n;
	char path[512];

	snprintf(path, sizeof(path), "%s/absent-%u", b->places[BARE], n++);
	return stat_us(path, false);
}

/* aim > 0: at least, < 0: at most its absolute value. */
static void say(const char *what, double *ratios, size_t n, double aim, double *base, bool quiet)
{
	double p50 = bench_percentile(ratios, n, 50), p90 = bench_percentile(ratios, n, 90);
	double spread = bench_percentile(base, n, 90) / bench_percentile(base, n, 10);
	bool good = aim > 0 ? p50 >= aim : p50 <= -aim;

	printf("%-34s %.2f (p90 %.2f), baseline %.1f us, aim %s %.1f: %s\n", what, p50, p90,
	       bench_percentile(base, n, 50), aim > 0 ? ">=" : "<=", aim > 0 ? aim : -aim,
	       !quiet || spread > SPREAD_MAX ? "not judged: the machine is busy"
	       : good                        ? "reached"
					     : "MISSED");
	fflush(stdout);
}

static void first_stats(const struct bench *b, bool quiet)
{
	static double ratios[N_FIRST], base[N_FIRST];
	char path[512], name[80];

	for (uint32_t i = 0; i < N_FIRST; i++) {
		double ours_us;

		name_of(0, N_STORM + i * 7, name);
		snprintf(path, sizeof(path), "%s/listed/%s", b->places[OURS], name);
		base[i] = bare_us(b);
		ours_us = stat_us(path, true);
		ratios[i] = ours_us / base[i];
	}
	say("first stat / bare FUSE round trip", ratios, N_FIRST, -1.3, base, quiet);
}

static double block_us(const char *path, bool there)
{
	uint64_t begin_ns = hc_clock_now_ns();

	for (int i = 0; i < BLOCK; i++)
		stat_us(path, there);
	return since_us(begin_ns);
}

/* Answered inside the kernel, as for the bare daemon's mount: its ratio, with one directory less on
 * the way, tells how much of the difference is FUSE's own. */
static void repeated_stats(const struct bench *b, bool there, bool quiet)
{
	static double ratios[N_BLOCKS], base[N_BLOCKS], floor[N_BLOCKS];
	char ours[512], below[512], bare[512], name[80];

	name_of(there ? 0 : 2, 1, name);
	snprintf(ours, sizeof(ours), "%s/listed/%s", b->places[OURS], name);
	snprintf(below, sizeof(below), "%s/storm/%s", b->places[BELOW], name);
	snprintf(bare, sizeof(bare), "%s/%s", b->places[BARE], name);
	if (there)
		touch_file(bare, 0);
	for (int i = -2; i < N_BLOCKS; i++) {
		double below_us = block_us(below, there), ours_us = block_us(ours, there),
		       bare_us = block_us(bare, there);

		if (i < 0)
			continue;
		base[i] = below_us;
		ratios[i] = below_us / ours_us;
		floor[i] = below_us / bare_us;
	}
	printf("%-34s %.2f (p90 %.2f)\n",
	       there ? "  of the bare FUSE mount, cached" : "  of the bare FUSE mount, absent",
	       bench_percentile(floor, N_BLOCKS, 50), bench_percentile(floor, N_BLOCKS, 90));
	say(there ? "file system below / cached stat" : "file system below / cached absent", ratios,
	    N_BLOCKS, 0.9, base, quiet);
}

static void publish(const struct bench *b, uint32_t dir, uint32_t i)
{
	char path[512], temporary[520], name[80];

	name_of(dir, i, name);
	snprintf(path, sizeof(path), "%s/listed/%s", b->places[OURS], name);
	snprintf(temporary, sizeof(temporary), "%s.tmp", path);
	touch_file(temporary, 4096);
	if (rename(temporary, path))
		must(-errno, path);
}

/* Seldom: only so that the daemon is never idle. Then it would read pages back to verify them, and
 * these have no files. */
static pid_t keep_awake(const struct bench *b)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t i = 0;; i++) {
		publish(b, 4, i);
		poll(NULL, 0, 100);
	}
}

static pid_t publisher(const struct bench *b)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t i = 0; i < 200000; i++) {
		publish(b, 3, i % 20000);
		sched_yield();
	}
	_exit(0);
}

/* Every other name is there; one more from round to round. */
static double storm_round(const char *dir, const uint32_t *order, uint32_t n_published)
{
	uint64_t begin_ns = hc_clock_now_ns();
	char path[512], name[80];

	for (uint32_t k = 0; k < N_STORM; k++) {
		uint32_t i = order[k];

		name_of(i % 2 ? 2 : 0, i, name);
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		stat_us(path, !(i % 2) || i / 2 < n_published);
	}
	return since_us(begin_ns);
}

static void storm(const struct bench *b, bool quiet)
{
	static uint32_t order[N_STORM];
	double ratios[N_ROUNDS], base[N_ROUNDS], first[1], first_base[1] = {0};
	char ours[400], below[400], path[512], name[80];
	pid_t pid = publisher(b);
	struct hc_rng rng;

	hc_rng_seed(&rng, 77);
	snprintf(ours, sizeof(ours), "%s/listed", b->places[OURS]);
	snprintf(below, sizeof(below), "%s/storm", b->places[BELOW]);
	for (uint32_t i = 0; i < N_STORM; i++)
		order[i] = i;
	for (uint32_t round = 0; round < N_ROUNDS; round++) {
		double ours_us, below_us;

		for (uint32_t i = N_STORM - 1; i > 0; i--) {
			uint32_t k = (uint32_t)hc_rng_below(&rng, i + 1), v = order[i];

			order[i] = order[k];
			order[k] = v;
		}
		if (!round) {
			for (uint32_t i = 0; i < N_STORM; i++)
				first_base[0] += bare_us(b);
		}
		ours_us = storm_round(ours, order, round);
		below_us = storm_round(below, order, round);
		if (!round)
			first[0] = ours_us / first_base[0];
		base[round] = below_us;
		ratios[round] = below_us / ours_us;
		/* What was asked for in vain is there from the next round on. */
		publish(b, 2, 2 * round + 1);
		name_of(2, 2 * round + 1, name);
		snprintf(path, sizeof(path), "%s/%s", below, name);
		touch_file(path, 0);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	say("storm, round 1 / bare round trips", first, 1, -1.3, first_base, quiet);
	say("file system below / storm, 2 to 8", ratios + 1, N_ROUNDS - 1, 0.9, base + 1, quiet);
}

/* Reads a directory, with a stat of each entry or without. */
static double list_us(const char *path, bool with_stat, uint32_t n_at_least)
{
	uint64_t begin_ns = hc_clock_now_ns();
	DIR *dir = opendir(path);
	struct dirent *e;
	struct stat st;
	uint32_t n = 0;
	double took_us;

	while (dir && (e = readdir(dir))) {
		n++;
		if (with_stat && fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			must(-errno, e->d_name);
	}
	took_us = since_us(begin_ns);
	if (!dir || n < n_at_least)
		must(-ENOENT, path);
	closedir(dir);
	return took_us;
}

static void listings(const struct bench *b, bool with_stat, bool quiet)
{
	double ratios[N_LISTINGS], base[N_LISTINGS];
	char ours[400], below[400];

	snprintf(ours, sizeof(ours), "%s/listed", b->places[OURS]);
	snprintf(below, sizeof(below), "%s/listed", b->places[BELOW]);
	for (int i = 0; i < N_LISTINGS; i++) {
		base[i] = list_us(below, with_stat, N_LISTED);
		ratios[i] = list_us(ours, with_stat, N_LISTED) / base[i];
	}
	say(with_stat ? "ls -l of 100,000 / file system below"
		      : "names of 100,000 / file system below",
	    ratios, N_LISTINGS, with_stat ? -3.5 : -1.0, base, quiet);
}

static void first_entry(const struct bench *b)
{
	double took_us[N_LISTINGS];
	char path[400];

	snprintf(path, sizeof(path), "%s/large", b->places[OURS]);
	for (int i = 0; i < N_LISTINGS; i++) {
		uint64_t begin_ns = hc_clock_now_ns();
		DIR *dir = opendir(path);

		if (!dir || !readdir(dir))
			must(-errno, path);
		took_us[i] = since_us(begin_ns);
		closedir(dir);
	}
	printf("%-34s %.1f ms (aim 20)\n", "first entry of 1,000,000",
	       bench_percentile(took_us, N_LISTINGS, 50) / 1e3);
}

static void rss(const struct bench *b)
{
	char path[64], line[256];
	unsigned long long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)b->ours);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f) && sscanf(line, "RssAnon: %llu", &kib) != 1)
		;
	if (f)
		fclose(f);
	printf("%-34s %.0f MB of anonymous memory with %u pages (aim %.0f a million)\n",
	       "the daemon", (double)kib * 1024 / 1e6, N_LISTED + N_LARGE, RSS_AIM);
	fflush(stdout);
}

static void client(const struct bench *b)
{
	size_t bytes = (size_t)64 << 20;
	void *copy = bench_memory(bytes);
	double rate = copy ? bench_memcpy_rate(copy, bytes) : 0;
	bool quiet = rate >= BENCH_MEMCPY_MIN;
	pid_t awake = keep_awake(b);
	char path[512], name[80];

	munmap(copy, bytes);
	printf("%u and %u pages in two directories, memcpy %.1f GB/s\n", N_LISTED, N_LARGE, rate);
	snprintf(path, sizeof(path), "%s/storm", b->places[BELOW]);
	must(mkdir(path, 0755) ? -errno : 0, path);
	snprintf(path, sizeof(path), "%s/listed", b->places[BELOW]);
	must(mkdir(path, 0755) ? -errno : 0, path);
	for (uint32_t i = 0; i < N_LISTED; i++) {
		name_of(0, i, name);
		snprintf(path, sizeof(path), "%s/listed/%s", b->places[BELOW], name);
		touch_file(path, 0);
	}
	for (uint32_t i = 0; i < N_STORM; i++) {
		name_of(0, i, name);
		snprintf(path, sizeof(path), "%s/storm/%s", b->places[BELOW], name);
		if (!(i % 2) || i == 1)
			touch_file(path, 0);
	}
	rss(b);
	first_entry(b);
	first_stats(b, quiet);
	repeated_stats(b, true, quiet);
	repeated_stats(b, false, quiet);
	listings(b, false, quiet);
	listings(b, true, quiet);
	storm(b, quiet);
	rss(b);
	kill(awake, SIGKILL);
	waitpid(awake, NULL, 0);
}

/* --- start and stop --- */

static bool answers(const char *path)
{
	struct stat root, parent;
	char above[400];

	snprintf(above, sizeof(above), "%s/..", path);
	return !stat(path, &root) && !stat(above, &parent) && root.st_dev != parent.st_dev;
}

static void wait_mounted(const char *path, pid_t pid)
{
	uint64_t deadline_ns = hc_clock_now_ns() + START_NS;

	while (!answers(path)) {
		if (waitpid(pid, NULL, WNOHANG) == pid || hc_clock_now_ns() > deadline_ns) {
			fprintf(stderr, "bench-names: no daemon on %s\n", path);
			exit(1);
		}
		sched_yield();
	}
}

static pid_t child_begin(void)
{
	pid_t pid = fork();

	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGTERM);
	must(pid < 0 ? -errno : 0, "fork");
	return pid;
}

static void start(struct bench *b, const char *program)
{
	char cache[320];
	int status;
	pid_t pid;

	snprintf(cache, sizeof(cache), "%s/cache", b->dir);
	must(mkdir(cache, 0700) ? -errno : 0, cache);
	pid = child_begin();
	if (!pid) {
		fill(cache);
		exit(0);
	}
	waitpid(pid, &status, 0);
	must(status ? -EIO : 0, "the catalog is not filled");
	b->ours = child_begin();
	if (!b->ours) {
		execl(program, program, "-f", "-o",
		      "pool_size=256M,disk_size=1000T,log_level=error", cache, b->places[OURS],
		      (char *)NULL);
		fprintf(stderr, "bench-names: %s: %m\n", program);
		_exit(127);
	}
	wait_mounted(b->places[OURS], b->ours);
	b->bare = child_begin();
	if (!b->bare) {
		static char arena[HC_MIB];
		const struct bare_config config = {.mountpoint = b->places[BARE],
						   .arena = arena,
						   .slot_bytes = HC_MIB,
						   .n_files = 1,
						   .n_threads = 2};

		_exit(bare_fuse_run(&config) ? 1 : 0);
	}
	wait_mounted(b->places[BARE], b->bare);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static struct bench bench;

/* Also when something failed: exactly what was started and mounted here. */
static void end(void)
{
	pid_t *pids[] = {&bench.client, &bench.ours, &bench.bare};
	static pid_t self;

	if (!self) {
		self = getpid();
		return;
	}
	if (getpid() != self)
		return;
	if (bench.client > 0)
		kill(bench.client, SIGKILL);
	if (bench.ours > 0)
		kill(bench.ours, SIGTERM);
	umount2(bench.places[BARE], MNT_DETACH);
	for (size_t i = 0; i < HC_ARRAY_SIZE(pids); i++) {
		if (*pids[i] > 0)
			waitpid(*pids[i], NULL, 0);
	}
	umount2(bench.places[OURS], MNT_DETACH);
	nftw(bench.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static void on_alarm(int number)
{
	(void)number;
	if (bench.client > 0)
		kill(bench.client, SIGKILL);
}

int main(int argc, char **argv)
{
	static const char *const names[N_PLACES] = {"mount", "below", "bare"};
	const struct sigaction alarmed = {.sa_handler = on_alarm};
	const char *tmp = getenv("TMPDIR"), *build = getenv("top_builddir");
	char program[PATH_MAX];
	int status = 0;

	snprintf(program, sizeof(program), "%s%s",
		 argc > 1 ? argv[1]
		 : build  ? build
			  : ".",
		 argc > 1 ? "" : "/fuse/hicachefs");
	if (access("/dev/fuse", R_OK | W_OK) || geteuid()) {
		printf("not run: needs root and /dev/fuse\n");
		return 0;
	}
	must(access(program, X_OK) ? -errno : 0, program);
	snprintf(bench.dir, sizeof(bench.dir), "%.90s/hc-bench-names-XXXXXX",
		 tmp ? tmp : "/var/tmp");
	must(mkdtemp(bench.dir) ? 0 : -errno, bench.dir);
	for (int i = 0; i < N_PLACES; i++) {
		snprintf(bench.places[i], sizeof(bench.places[i]), "%s/%s", bench.dir, names[i]);
		must(mkdir(bench.places[i], 0755) ? -errno : 0, bench.places[i]);
	}
	hc_log_set_level(HC_LOG_WARN);
	sigaction(SIGALRM, &alarmed, NULL);
	end();
	atexit(end);
	start(&bench, program);
	bench.client = child_begin();
	if (!bench.client) {
		client(&bench);
		fflush(stdout);
		_exit(0);
	}
	alarm(LIMIT_S);
	while (waitpid(bench.client, &status, 0) < 0 && errno == EINTR)
		;
	bench.client = 0;
	return status ? 1 : 0;
}
