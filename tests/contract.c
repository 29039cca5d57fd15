/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the cases of the contract and prints a line of TAP for each; see contract.h.
 * Usage:	contract run PHASE DIR [MOUNT] [-- POINT|NAME...]	PHASE: fresh, again, full,
 *plain contract keep DIR STATE		stores pages by every engine and notes them in a file
 *		contract kept DIR STATE		they are all there, with the bytes and times they
 *had contract fill DIR SECONDS	stores pages as fast as it can: keeps a pool full Exit status: 0, or
 *1 when a case failed. */
#include "tests/contract.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

struct under_test t;

static const char *case_name, *skip_reason;
static char skip_text[256];

/* --- paths --- */

static char *next_path(void)
{
	static char paths[16][PATH_BYTES];
	static unsigned next;

	return paths[next++ % 16];
}

static const char *path_in(const char *dir, const char *format, va_list args)
{
	char *path = next_path();
	int n = snprintf(path, PATH_BYTES, "%s/", dir);

	vsnprintf(path + n, PATH_BYTES - (size_t)n, format, args);
	return path;
}

const char *at(const char *format, ...)
{
	const char *path;
	va_list args;

	va_start(args, format);
	path = path_in(t.dir, format, args);
	va_end(args);
	return path;
}

const char *beside(const char *format, ...)
{
	const char *path;
	va_list args;

	va_start(args, format);
	path = path_in(t.mount, format, args);
	va_end(args);
	return path;
}

const char *hash_of(unsigned key)
{
	char *text = next_path();

	snprintf(text, PATH_BYTES, "%08x%048x%08x", (key + 1) * 2654435761u, 0xc0ffeeu, key);
	return text;
}

int make_parents(const char *path, mode_t mode)
{
	char copy[PATH_BYTES];

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *p = copy + strlen(t.dir) + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		if (mkdir(copy, mode) && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* --- bytes: each word is of the seed and of its place --- */

static uint64_t word_of(unsigned seed, long word_i)
{
	return ((uint64_t)seed << 32 | (uint32_t)word_i) ^ 0x5a5aa5a500000000u;
}

void page_fill(void *buf, long size_bytes, unsigned seed)
{
	unsigned char *to = buf;
	uint64_t word;

	for (long i = 0; i < size_bytes; i += (long)sizeof(word)) {
		word = word_of(seed, i / (long)sizeof(word));
		memcpy(to + i, &word,
		       size_bytes - i < (long)sizeof(word) ? (size_t)(size_bytes - i)
							   : sizeof(word));
	}
}

unsigned char *page_new(long size_bytes, unsigned seed)
{
	unsigned char *buf = aligned_alloc(UNIT, (size_t)(size_bytes + UNIT) / UNIT * UNIT);

	if (!buf)
		exit(99);
	page_fill(buf, size_bytes, seed);
	return buf;
}

long page_seed(const void *buf, long size_bytes, long offset)
{
	const unsigned char *from = buf;
	uint64_t word, want;
	unsigned seed;
	size_t n = sizeof(word);

	if (size_bytes < (long)n)
		return -EINVAL;
	memcpy(&word, from, n);
	seed = (unsigned)((word ^ 0x5a5aa5a500000000u) >> 32);
	for (long i = 0; i < size_bytes; i += (long)n) {
		want = word_of(seed, (offset + i) / (long)n);
		if (size_bytes - i < (long)n)
			n = (size_t)(size_bytes - i);
		if (memcmp(from + i, &want, n) != 0)
			return -EILSEQ;
	}
	return seed;
}

/* --- calls --- */

long err_of(long rc)
{
	return rc < 0 ? -errno : rc;
}

int close_of(int fd)
{
	return close(fd) ? -errno : 0;
}

int write_whole(int fd, const void *buf, long size_bytes)
{
	const char *from = buf;
	long rc;

	for (long done = 0; done < size_bytes; done += rc) {
		rc = err_of(write(fd, from + done, (size_t)(size_bytes - done)));
		if (rc < 0)
			return (int)note(rc);
		if (rc == 0)
			return -ENOSPC;
	}
	return 0;
}

long note(long rc)
{
	atomic_fetch_add(&t.counts->loads, 1);
	if (rc == -EIO)
		atomic_fetch_add(&t.counts->eio, 1);
	else if (rc == -ENODATA)
		atomic_fetch_add(&t.counts->short_reads, 1);
	else if (rc == -EILSEQ)
		atomic_fetch_add(&t.counts->torn, 1);
	else if (rc == -ENOENT)
		atomic_fetch_add(&t.counts->misses, 1);
	return rc;
}

int read_whole(int fd, void *buf, long size_bytes)
{
	long rc = err_of(read(fd, buf, (size_t)size_bytes));

	if (rc >= 0)
		rc = rc == size_bytes ? 0 : -ENODATA;
	return (int)note(rc);
}

long load_file(const char *path, int flags, long size_bytes)
{
	unsigned char *buf;
	int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
	struct stat st;
	long rc;

	if (fd < 0)
		return note(-errno);
	rc = fstat(fd, &st) ? -errno : st.st_size == size_bytes ? 0 : -ENODATA;
	if (rc) {
		close(fd);
		return note(rc);
	}
	buf = page_new(size_bytes, 0);
	rc = read_whole(fd, buf, size_bytes);
	close(fd);
	if (!rc)
		rc = note(page_seed(buf, size_bytes, 0));
	free(buf);
	return rc;
}

int store_file(const char *path, int flags, mode_t mode, long size_bytes, unsigned seed)
{
	unsigned char *buf;
	int fd = (int)err_of(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | flags, mode));
	int rc, closed;

	if (fd < 0)
		return (int)note(fd);
	buf = page_new(size_bytes, seed);
	rc = write_whole(fd, buf, size_bytes);
	closed = close_of(fd);
	free(buf);
	return rc ? rc : (int)note(closed);
}

/* --- the mount --- */

long stat_line(const char *name)
{
	FILE *in = fopen(beside(".hicache/stats"), "re");
	char line[256], key[128];
	long value, found = -1;

	if (!in)
		return -1;
	while (fgets(line, sizeof(line), in))
		if (sscanf(line, "%127s %ld", key, &value) == 2 && !strcmp(key, name))
			found = value;
	fclose(in);
	return found;
}

/* Writes one command, reads until the answer ends: "ok" or "error ..." on a line. */
bool command(const char *line, char *answer, size_t answer_bytes)
{
	int fd = open(beside(".hicache/control"), O_RDWR | O_CLOEXEC);
	char text[128];
	size_t n = 0;
	ssize_t got;

	snprintf(answer, answer_bytes, "%s", fd < 0 ? strerror(errno) : "no answer");
	if (fd < 0)
		return false;
	snprintf(text, sizeof(text), "%s\n", line);
	if (write(fd, text, strlen(text)) == (ssize_t)strlen(text)) {
		/* a ring that is taken down interrupts the calls of its thread, with no signal */
		while (n + 1 < answer_bytes &&
		       ((got = read(fd, answer + n, answer_bytes - n - 1)) > 0 ||
			(got < 0 && errno == EINTR))) {
			n += got > 0 ? (size_t)got : 0;
			answer[n] = '\0';
		}
	}
	close(fd);
	return n > 0 && !strstr(answer, "error");
}

static void command_on_space(const char *verb)
{
	char line[256], answer[4096];

	snprintf(line, sizeof(line), "%s %s", verb, strrchr(t.dir, '/') + 1);
	if (!command(line, answer, sizeof(answer)))
		failed("%s: %s", line, answer);
}

void evict_space(void)
{
	command_on_space("evict");
}

void drop_memory(void)
{
	command_on_space("evict memory");
}

/* --- processes --- */

void meet(int n)
{
	unsigned mine = atomic_fetch_add(&t.counts->step, 1) / (unsigned)n;
	time_t end = time(NULL) + 60;

	while (atomic_load(&t.counts->step) / (unsigned)n == mine) {
		if (time(NULL) > end) {
			fprintf(stderr, "# the other processes do not come\n");
			_exit(98);
		}
		sched_yield();
	}
}

int in_processes(int n, void (*fn)(int i, void *arg), void *arg)
{
	pid_t pids[MAX_PROCESSES];
	int status, n_bad = 0;

	atomic_store(&t.counts->step, 0);
	fflush(NULL);
	for (int i = 0; i < n; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			exit(99);
		if (!pids[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			t.n_failed = 0;
			fn(i, arg);
			fflush(NULL);
			_exit(t.n_failed != 0);
		}
	}
	for (int i = 0; i < n; i++)
		if (waitpid(pids[i], &status, 0) != pids[i] || status != 0)
			n_bad++;
	if (n_bad)
		t.n_failed++;
	return n_bad;
}

/* --- checks --- */

void fail_at(const char *file, int line, const char *format, ...)
{
	va_list args;

	t.n_failed++;
	fprintf(stderr, "# %s: %s:%d: ", case_name ? case_name : "", file, line);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

void check_at(const char *file, int line, const char *what, long got, long want)
{
	if (got != want)
		fail_at(file, line, "%s: got %ld (%s), expected %ld (%s)", what, got,
			got < 0 ? strerror((int)-got) : "", want,
			want < 0 ? strerror((int)-want) : "");
}

void check_page_at(const char *file, int line, long got, unsigned seed)
{
	if (got == -ENOENT && t.phase == FULL)
		return;
	check_at(file, line, "page", got, (long)seed);
}

void skip_case(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(skip_text, sizeof(skip_text), format, args);
	va_end(args);
	skip_reason = skip_text;
}

/* --- the runner --- */

static const struct contract_case *const case_lists[] = {engine_cases, byte_cases, name_cases,
							 scratch_cases};
static const struct engine *const engine_lists[] = {sglang_engines, vllm_engines, lmcache_engines,
						    other_engines};
#define N_ENGINE_LISTS (sizeof(engine_lists) / sizeof(engine_lists[0]))

struct runner {
	const char *phase;
	char **wanted;
	int n_run, n_bad;
};

static bool is_wanted(const struct runner *r, const struct contract_case *c, const struct engine *e)
{
	char point[16];

	snprintf(point, sizeof(point), "%d", c->point);
	if (!*r->wanted)
		return true;
	for (char **w = r->wanted; *w; w++)
		if (!strcmp(*w, point) || !strcmp(*w, c->name) || (e && !strcmp(*w, e->name)))
			return true;
	return false;
}

/* No numbers: the script counts. */
static void run_case(struct runner *r, const struct contract_case *c, const struct engine *e)
{
	char name[128];
	bool ok;

	if (!is_wanted(r, c, e))
		return;
	snprintf(name, sizeof(name), "%s%s%s", c->name, e ? " " : "", e ? e->name : "");
	case_name = name;
	skip_reason = NULL;
	t.n_failed = 0;
	if (e)
		c->run_engine(e);
	else
		c->run();
	ok = t.n_failed == 0;
	if (skip_reason && ok)
		printf("ok # SKIP point %02d %s (%s): %s\n", c->point, name, r->phase, skip_reason);
	else
		printf("%s - point %02d %s (%s)\n", ok ? "ok" : "not ok", c->point, name, r->phase);
	fflush(stdout);
	r->n_run++;
	r->n_bad += !ok;
}

static void run_list(struct runner *r, const struct contract_case *list, int point)
{
	for (const struct contract_case *c = list; c->name; c++) {
		if (c->point != point || !(c->phases & IN(t.phase)))
			continue;
		if (c->run) {
			run_case(r, c, NULL);
			continue;
		}
		for (unsigned l = 0; l < N_ENGINE_LISTS; l++)
			for (const struct engine *e = engine_lists[l]; e->name; e++)
				if (!c->one_key || !e->shares_no_key)
					run_case(r, c, e);
	}
}

static int run_cases(const char *phase, char **wanted)
{
	struct runner r = {phase, wanted, 0, 0};
	const struct counts *n = t.counts;
	bool ok;

	for (unsigned l = 0; l < N_ENGINE_LISTS; l++)
		for (const struct engine *e = engine_lists[l]; e->name; e++)
			if (e->start)
				e->start(e);
	if (t.n_failed)
		printf("not ok - point 00 start (%s)\n", phase);
	r.n_bad += t.n_failed != 0;
	for (int point = 1; point <= 15; point++)
		for (unsigned l = 0; l < sizeof(case_lists) / sizeof(case_lists[0]); l++)
			run_list(&r, case_lists[l], point);
	ok = !n->eio && !n->short_reads && !n->torn;
	printf("%s - point 13 no_eio_no_short_read (%s): %ld loads, %ld EIO, %ld short, %ld torn, "
	       "%ld misses\n",
	       ok ? "ok" : "not ok", phase, n->loads, n->eio, n->short_reads, n->torn, n->misses);
	return r.n_run == 0 || r.n_bad != 0 || !ok;
}

/* --- what outlives a daemon --- */

#define N_KEPT   3
#define KEPT_KEY 9000u

static int keep(const char *state)
{
	FILE *out = fopen(state, "we");
	int rc;

	if (!out)
		return 1;
	for (unsigned l = 0; l < N_ENGINE_LISTS; l++) {
		for (const struct engine *e = engine_lists[l]; e->name; e++) {
			if (e->start)
				e->start(e);
			for (unsigned i = 0; i < N_KEPT; i++) {
				rc = e->store(e, KEPT_KEY + i, 1000 + i);
				if (rc == -ENODEV && e->needs_map)
					continue;
				if (rc)
					failed("%s: store: %s", e->name, strerror(-rc));
				fprintf(out, "%s %u %u\n", e->name, KEPT_KEY + i, 1000 + i);
			}
		}
	}
	return fclose(out) || t.n_failed;
}

static const struct engine *engine_of(const char *name)
{
	for (unsigned l = 0; l < N_ENGINE_LISTS; l++)
		for (const struct engine *e = engine_lists[l]; e->name; e++)
			if (!strcmp(e->name, name))
				return e;
	return NULL;
}

static int kept(const char *state)
{
	FILE *in = fopen(state, "re");
	char name[128];
	unsigned key, seed, n = 0;

	if (!in)
		return 1;
	while (fscanf(in, "%127s %u %u", name, &key, &seed) == 3) {
		const struct engine *e = engine_of(name);
		long got;

		n++;
		if (!e || !e->exists(e, key)) {
			failed("%s: key %u is not there", name, key);
			continue;
		}
		got = e->load(e, key);
		if (got != (long)seed)
			failed("%s: key %u: got %ld, expected %u", name, key, got, seed);
	}
	fclose(in);
	if (!n)
		failed("%s names no page", state);
	return t.n_failed != 0;
}

static int fill(long seconds)
{
	const struct engine *e = &sglang_engines[0];
	time_t end = time(NULL) + seconds;
	unsigned key = 1000000;
	int rc;

	while (time(NULL) < end) {
		rc = e->store(e, key++, 5);
		if (rc && rc != -ENOSPC) {
			failed("fill: %s", strerror(-rc));
			return 1;
		}
	}
	return 0;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: contract run fresh|again|full|plain DIR [MOUNT] [-- POINT|NAME...]\n"
		"       contract keep|kept DIR STATE\n"
		"       contract fill DIR SECONDS\n");
	return 2;
}

static int run_main(int argc, char **argv)
{
	static const char *const phases[] = {"fresh", "again", "full", "plain"};
	int phase_i = 0, i = 4;

	while (phase_i < 4 && strcmp(argv[2], phases[phase_i]) != 0)
		phase_i++;
	if (phase_i == 4 || argc < 4)
		return usage();
	t.phase = (enum phase)phase_i;
	t.dir = argv[3];
	if (i < argc && strcmp(argv[i], "--") != 0)
		t.mount = argv[i++];
	if (i < argc && !strcmp(argv[i], "--"))
		i++;
	if (i < argc && (t.phase != PLAIN) && !t.mount)
		return usage();
	return run_cases(phases[phase_i], argv + i);
}

int main(int argc, char **argv)
{
	t.counts = mmap(NULL, sizeof(*t.counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (t.counts == MAP_FAILED)
		return 99;
	if (argc < 4)
		return usage();
	if (!strcmp(argv[1], "run"))
		return run_main(argc, argv);
	t.dir = argv[2];
	t.phase = FRESH;
	if (!strcmp(argv[1], "keep"))
		return keep(argv[3]);
	if (!strcmp(argv[1], "kept"))
		return kept(argv[3]);
	if (!strcmp(argv[1], "fill"))
		return fill(strtol(argv[3], NULL, 10));
	return usage();
}
