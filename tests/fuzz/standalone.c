/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target without libFuzzer: each input of its corpus, then seeded mutations of them,
 *until HC_FUZZ_ITERATIONS (20000) or HC_FUZZ_SECONDS (2) are used up. One thread. Prints TAP.
 *	fuzz-<name>              the corpus in $top_srcdir/tests/fuzz/corpus/<name>
 *	fuzz-<name> FILE...      these inputs only, once each: a crash input again
 * HC_FUZZ_SEED (1) makes other mutations. An input that kills the target, or takes more than 10 s,
 *is written to fuzz-<name>.crash in the working directory and named; then the signal does its work.
 * This is no coverage-guided fuzzer: it keeps targets and corpus alive between runs of `make fuzz`.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>

#include "fuzz.h"

#include "util/base.h"
#include "util/clock.h"
#include "util/rng.h"
#include "util/size.h"

#define HC_FUZZ_INPUTS_MAX 4096        /* files of one corpus */
#define HC_FUZZ_BYTES_MAX  (64 * 1024) /* of one input: the parsers' inputs are short */
#define HC_FUZZ_HANG_S     10

struct hc_input {
	uint8_t *data;
	size_t n;
};

static struct hc_input corpus[HC_FUZZ_INPUTS_MAX];
static size_t n_corpus;
static char crash_path[NAME_MAX + 1];
/* What the target is looking at, for the signal handler. */
static const uint8_t *volatile current_data;
static volatile size_t current_n;

static void hc_fuzz_die(int sig)
{
	static const char text[] = "# the target died or hung: its input is in ";
	int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd >= 0 && write(fd, current_data, current_n) == (ssize_t)current_n &&
	    write(STDOUT_FILENO, text, sizeof(text) - 1) > 0 &&
	    write(STDOUT_FILENO, crash_path, strlen(crash_path)) > 0 &&
	    write(STDOUT_FILENO, "\n", 1) > 0)
		close(fd);
	/* The handler was one-shot; SIGALRM is made a death that the caller sees as a hang. */
	raise(sig);
}

static void hc_fuzz_catch(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM};
	struct sigaction action = {.sa_handler = hc_fuzz_die, .sa_flags = (int)SA_RESETHAND};

	for (size_t i = 0; i < HC_ARRAY_SIZE(signals); i++)
		sigaction(signals[i], &action, NULL);
}

static void hc_fuzz_one(const uint8_t *data, size_t n)
{
	/* A buffer of its own and exact size, so that reading past the end is seen by ASan and
	 * valgrind. */
	uint8_t *copy = malloc(n ? n : 1);

	if (!copy) {
		fprintf(stderr, "fuzz: out of memory\n");
		exit(1);
	}
	memcpy(copy, data, n);
	current_data = copy;
	current_n = n;
	LLVMFuzzerTestOneInput(copy, n);
	free(copy);
}

/* 0, or -errno after a message. */
static int hc_fuzz_read(const char *path, struct hc_input *input_p)
{
	hc_autofile FILE *f = fopen(path, "re");
	uint8_t *data = malloc(HC_FUZZ_BYTES_MAX);
	size_t n;

	if (!f || !data) {
		fprintf(stderr, "fuzz: %s: %m\n", path);
		free(data);
		return -EIO;
	}
	n = fread(data, 1, HC_FUZZ_BYTES_MAX, f);
	if (ferror(f)) {
		fprintf(stderr, "fuzz: %s: %m\n", path);
		free(data);
		return -EIO;
	}
	input_p->data = data;
	input_p->n = n;
	return 0;
}

static int hc_fuzz_read_corpus(const char *dir)
{
	struct dirent **names = NULL;
	int n = scandir(dir, &names, NULL, alphasort);
	int rc = 0;

	if (n < 0) {
		fprintf(stderr, "fuzz: %s: %m; give the target at least one input there\n", dir);
		return -errno;
	}
	for (int i = 0; i < n; i++) {
		char path[PATH_MAX];

		snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
		if (!rc && names[i]->d_name[0] != '.' && n_corpus < HC_FUZZ_INPUTS_MAX)
			rc = hc_fuzz_read(path, &corpus[n_corpus]);
		if (!rc && names[i]->d_name[0] != '.' && n_corpus < HC_FUZZ_INPUTS_MAX)
			n_corpus++;
		free(names[i]);
	}
	free(names);
	if (!rc && !n_corpus) {
		fprintf(stderr, "fuzz: %s is empty; give the target at least one input there\n",
			dir);
		rc = -ENOENT;
	}
	return rc;
}

/* Takes the tail of another input over: parsers meet pieces that fit nearly. */
static size_t hc_fuzz_splice(struct hc_rng *rng, uint8_t *buf, size_t n)
{
	const struct hc_input *other = &corpus[hc_rng_below(rng, n_corpus)];
	size_t keep = hc_rng_below(rng, n + 1);
	size_t from = hc_rng_below(rng, other->n + 1);
	size_t take = other->n - from;

	if (take > HC_FUZZ_BYTES_MAX - keep)
		take = HC_FUZZ_BYTES_MAX - keep;
	memcpy(buf + keep, other->data + from, take);
	return keep + take;
}

static size_t hc_fuzz_insert(struct hc_rng *rng, uint8_t *buf, size_t n)
{
	size_t at = hc_rng_below(rng, n + 1);
	size_t count = 1 + hc_rng_below(rng, hc_rng_below(rng, 16) ? 4 : 512);
	uint8_t value = (uint8_t)hc_rng_next(rng);

	if (count > HC_FUZZ_BYTES_MAX - n)
		return n;
	memmove(buf + at + count, buf + at, n - at);
	/* A repeated byte of the input as often as a new one: digits beside digits. */
	if (n && hc_rng_below(rng, 2))
		value = buf[at ? at - 1 : count];
	memset(buf + at, value, count);
	return n + count;
}

static size_t hc_fuzz_mutate(struct hc_rng *rng, uint8_t *buf, size_t n)
{
	static const uint8_t special[] = {0,   0xff, 0x7f, 0x80, '/', '.',
					  '%', '-',  '=',  '\n', ' ', '9'};
	size_t at = n ? hc_rng_below(rng, n) : 0;
	size_t count;

	switch (hc_rng_below(rng, n ? 7 : 2)) {
	case 0:
		return hc_fuzz_insert(rng, buf, n);
	case 1:
		return hc_fuzz_splice(rng, buf, n);
	case 2:
		buf[at] ^= (uint8_t)(1 << hc_rng_below(rng, 8));
		return n;
	case 3:
		buf[at] = special[hc_rng_below(rng, sizeof(special))];
		return n;
	case 4:
		buf[at] = (uint8_t)(buf[at] + 1 - 2 * hc_rng_below(rng, 2));
		return n;
	case 5:
		count = 1 + hc_rng_below(rng, n - at);
		memmove(buf + at, buf + at + count, n - at - count);
		return n - count;
	default:
		return at;
	}
}

static uint64_t hc_fuzz_setting(const char *name, uint64_t value)
{
	const char *text = getenv(name);

	if (text && hc_u64_parse(text, &value)) {
		fprintf(stderr, "fuzz: %s: \"%s\" is not a number\n", name, text);
		exit(1);
	}
	return value;
}

static void hc_fuzz_mutations(uint64_t seed, uint64_t n_max, uint64_t seconds)
{
	uint64_t end_ns = hc_clock_now_ns() + seconds * HC_NS_PER_S;
	static uint8_t buf[HC_FUZZ_BYTES_MAX];
	struct hc_rng rng;
	uint64_t i;

	hc_rng_seed(&rng, seed);
	for (i = 0; i < n_max && hc_clock_now_ns() < end_ns; i++) {
		const struct hc_input *from = &corpus[hc_rng_below(&rng, n_corpus)];
		size_t n = from->n;

		memcpy(buf, from->data, n);
		for (uint64_t k = 1 + hc_rng_below(&rng, 6); k; k--)
			n = hc_fuzz_mutate(&rng, buf, n);
		if (!(i & 255))
			alarm(HC_FUZZ_HANG_S);
		hc_fuzz_one(buf, n);
	}
	alarm(0);
	printf("ok 2 - %llu mutations with seed %llu\n", (unsigned long long)i,
	       (unsigned long long)seed);
}

static int hc_fuzz_files(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		struct hc_input input;

		if (hc_fuzz_read(argv[i], &input))
			return 1;
		alarm(HC_FUZZ_HANG_S);
		hc_fuzz_one(input.data, input.n);
		free(input.data);
		printf("%s: ok\n", argv[i]);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *srcdir = getenv("top_srcdir");
	const char *name = strstr(program_invocation_short_name, "fuzz-");
	uint64_t seed = hc_fuzz_setting("HC_FUZZ_SEED", 1);
	uint64_t n_max = hc_fuzz_setting("HC_FUZZ_ITERATIONS", 20000);
	uint64_t seconds = hc_fuzz_setting("HC_FUZZ_SECONDS", 2);
	char dir[PATH_MAX];

	if (!name) {
		fprintf(stderr, "fuzz: a target is called fuzz-<name>\n");
		return 1;
	}
	snprintf(crash_path, sizeof(crash_path), "%s.crash", name);
	hc_fuzz_catch();
	if (argc > 1)
		return hc_fuzz_files(argc, argv);
	snprintf(dir, sizeof(dir), "%s/tests/fuzz/corpus/%s", srcdir ? srcdir : ".", name + 5);
	printf("1..2\n");
	fflush(stdout);
	if (hc_fuzz_read_corpus(dir)) {
		printf("Bail out! no corpus\n");
		return 1;
	}
	for (size_t i = 0; i < n_corpus; i++) {
		alarm(HC_FUZZ_HANG_S);
		hc_fuzz_one(corpus[i].data, corpus[i].n);
	}
	printf("ok 1 - %zu inputs of the corpus\n", n_corpus);
	fflush(stdout);
	hc_fuzz_mutations(seed, n_max, seconds);
	for (size_t i = 0; i < n_corpus; i++)
		free(corpus[i].data);
	return 0;
}
