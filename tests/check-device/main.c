/* SPDX-License-Identifier: Apache-2.0 */
/* check-device [--driver=FILE] [--ordinal=N] [--cublas=FILE|none] [--product=FILE] [--json=FILE]
 *              [--seconds=N] [--no-batch] [--small]
 * Exit status: 0 all bars met, 1 a call failed, 2 usage, 3 a bar was missed, 77 no GPU here. */
#include "tests/check-device/check.h"

#include <sys/sysinfo.h>

/* The whole of check-device has four minutes; the contract, pages and order take one of them. */
#define SECONDS 150

static const char *value_of(const char *arg, const char *option)
{
	size_t n = strlen(option);

	return !strncmp(arg, option, n) && arg[n] == '=' ? arg + n + 1 : NULL;
}

static bool take_number(const char *text, int max, int *value_p)
{
	char *end;
	long v = strtol(text, &end, 10);

	if (*end || end == text || v < 0 || v > max)
		return false;
	*value_p = (int)v;
	return true;
}

static bool take_options(struct check *check, int argc, char **argv)
{
	int seconds = SECONDS;

	for (int i = 1; i < argc; i++) {
		const char *v;
		bool good = true;

		if ((v = value_of(argv[i], "--driver")))
			check->config.library = v;
		else if ((v = value_of(argv[i], "--cublas")))
			check->cublas = v;
		else if ((v = value_of(argv[i], "--product")))
			check->product_file = v;
		else if ((v = value_of(argv[i], "--json")))
			check->json_file = v;
		else if ((v = value_of(argv[i], "--ordinal")))
			good = take_number(v, 1023, &check->config.ordinal);
		else if ((v = value_of(argv[i], "--seconds")))
			good = take_number(v, 86400, &seconds);
		else if (!strcmp(argv[i], "--no-batch"))
			check->config.no_batch = true;
		else if (!strcmp(argv[i], "--small"))
			check->small = true;
		else
			good = false;
		if (!good) {
			fprintf(stderr, "check-device: %s: not an option, or not a value for it\n",
				argv[i]);
			return false;
		}
	}
	check->deadline_ns = hc_clock_now_ns() + (uint64_t)seconds * HC_NS_PER_S;
	return true;
}

static uint64_t pool_bytes(const struct check *check)
{
	uint64_t bytes = check->small ? 4 * HC_MIB : HC_GIB;

	for (int model = 0; model < CHECK_MODELS; model++) {
		const struct hc_geometry *g = &check_model(check, model)->geometry;
		uint64_t n_pages = check_tokens(check, CHECK_SIZES - 1) / g->n_tokens;

		bytes = hc_max_u64(bytes, n_pages * hc_geometry_page_bytes(g));
	}
	return hc_align_up(bytes, 2 * HC_MIB);
}

/* The pool, as much for the kinds of memory, and room for everything else. */
static bool has_room(const struct check *check)
{
	uint64_t need_host = check->pool_bytes + 2 * HC_GIB,
		 need_device = check->pool_bytes + HC_GIB;
	struct sysinfo info;

	if (check->small || sysinfo(&info))
		return true;
	if ((uint64_t)info.totalram * info.mem_unit < need_host) {
		fprintf(stderr, "check-device: %llu MiB of memory are needed\n",
			(unsigned long long)(need_host / HC_MIB));
		return false;
	}
	if (check->info.free_bytes && check->info.free_bytes < need_device) {
		fprintf(stderr,
			"check-device: %llu MiB of device memory are needed, %llu are free: end "
			"what else uses the GPU\n",
			(unsigned long long)(need_device / HC_MIB),
			(unsigned long long)(check->info.free_bytes / HC_MIB));
		return false;
	}
	return true;
}

static int run(struct check *check)
{
	static const struct {
		const char *name;
		int (*run)(struct check *check);
	} stages[] = {
		{"peaks", check_peaks},
		{"transfers", check_transfers},
		{"products", check_slowdowns},
		{"registration", check_memories},
	};
	uint64_t began_ns = hc_clock_now_ns();
	int err = check_pool_open(check);

	for (size_t i = 0; i < HC_ARRAY_SIZE(stages) && !err; i++) {
		uint64_t stage_ns = hc_clock_now_ns();

		err = stages[i].run(check);
		printf("check-device: %s: %.1f s\n", stages[i].name,
		       check_since_us(stage_ns) / 1e6);
		if (err)
			fprintf(stderr, "check-device: %s: %s\n", stages[i].name, strerror(-err));
		fflush(stdout);
	}
	check_pool_close(check);
	check->seconds = check_since_us(began_ns) / 1e6;
	return err;
}

int main(int argc, char **argv)
{
	static struct check check;
	int n_missed = 0, err;

	if (!take_options(&check, argc, argv))
		return 2;
	err = hc_cuda_open(&check.config, &check.device);
	if (err == -ENODEV || err == -ENOTSUP) {
		printf("SKIP: no GPU can be opened here\n");
		return 77;
	}
	if (err) {
		fprintf(stderr, "check-device: the GPU cannot be opened: %s\n", strerror(-err));
		return 1;
	}
	hc_device_info(check.device, &check.info);
	check.pool_bytes = pool_bytes(&check);
	err = has_room(&check) ? run(&check) : -ENOMEM;
	/* What was found before a failure is worth having. */
	if (check.peak_load > 0)
		n_missed = check_report(&check);
	if (check.json_file && check_json(&check))
		err = err ? err : -EIO;
	hc_device_close(check.device);
	printf("\ncheck-device: %.1f s%s\n", check.seconds,
	       err        ? ", FAILED"
	       : n_missed ? ", slower than the bars"
			  : "");
	return err ? 1 : n_missed ? 3 : 0;
}
