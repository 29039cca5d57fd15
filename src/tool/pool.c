/* SPDX-License-Identifier: Apache-2.0 */
/* hicachectl pool free, and the pools that status shows without a daemon. */
#include "tool/pools.h"

#include <getopt.h>
#include <limits.h>

#include "util/size.h"

int hc_pools_list(const char *pool_path, struct hc_pool_found **found_p, size_t *n_p)
{
	struct hc_pool_found *found = calloc(HC_POOLS_MAX, sizeof(*found));
	int rc = found ? hc_pool_find(pool_path, found, HC_POOLS_MAX, n_p) : -ENOMEM;

	if (rc) {
		hc_tool_error("the pools in memory cannot be listed: %s", strerror(-rc));
		free(found);
		return rc;
	}
	*found_p = found;
	return 0;
}

void hc_pool_describe(const struct hc_pool_found *pool, FILE *out)
{
	char size[16];

	hc_size_format(pool->size_bytes, size);
	fprintf(out, "  %s  %s, of the cache %s%s\n", pool->dir, size, pool->cachedir,
		pool->live ? ", in use by a daemon" : "");
}

static bool hc_pool_is_meant(const struct hc_pool_found *pool, const char *dir)
{
	char real[PATH_MAX], real_cache[PATH_MAX];

	if (!strcmp(pool->dir, dir) || !strcmp(pool->cachedir, dir))
		return true;
	if (!realpath(dir, real))
		return false;
	if (!strcmp(pool->dir, real) || !strcmp(pool->cachedir, real))
		return true;
	return realpath(pool->cachedir, real_cache) && !strcmp(real_cache, real);
}

static int hc_pool_free_one(const struct hc_pool_found *pool)
{
	char size[16];
	int rc;

	hc_size_format(pool->size_bytes, size);
	rc = pool->live ? -EBUSY : hc_pool_place_free(pool->dir);
	if (rc == -EBUSY) {
		hc_tool_error("%s: a daemon works with this pool (cache %s); stop it first",
			      pool->dir, pool->cachedir);
		return HC_TOOL_FAILED;
	}
	if (rc) {
		hc_tool_error("%s: the pool cannot be removed: %s", pool->dir, strerror(-rc));
		return HC_TOOL_FAILED;
	}
	printf("freed %s: %s of the cache %s\n", pool->dir, size, pool->cachedir);
	return 0;
}

/* Of a cache directory or a pool directory. */
static int hc_pool_free_of(const char *dir)
{
	struct hc_pool_found *found;
	size_t n;
	int status = -1;

	/* A pool_path of the daemon's is found by its name alone. */
	for (int pass = 0; pass < 2 && status < 0; pass++) {
		if (hc_pools_list(pass ? dir : NULL, &found, &n))
			return HC_TOOL_FAILED;
		for (size_t i = 0; i < n; i++) {
			if (hc_pool_is_meant(&found[i], dir))
				status = hc_pool_free_one(&found[i]);
		}
		free(found);
	}
	if (status >= 0)
		return status;
	if (access(dir, F_OK)) {
		hc_tool_error("%s: %m", dir);
		return HC_TOOL_FAILED;
	}
	printf("%s: there is no pool of this cache, nothing to free\n", dir);
	return 0;
}

/* The only one that no daemon uses. */
static int hc_pool_free_only(void)
{
	struct hc_pool_found *found, *idle = NULL;
	size_t n, n_idle = 0;
	int status = HC_TOOL_FAILED;

	if (hc_pools_list(NULL, &found, &n))
		return HC_TOOL_FAILED;
	for (size_t i = 0; i < n; i++) {
		if (!found[i].live) {
			idle = &found[i];
			n_idle++;
		}
	}
	if (n_idle == 1) {
		status = hc_pool_free_one(idle);
	} else if (!n_idle) {
		puts("there is no pool without a daemon, nothing to free");
		status = 0;
	} else {
		hc_tool_error("there are several pools without a daemon; name the directory of one "
			      "of them:");
		for (size_t i = 0; i < n; i++) {
			if (!found[i].live)
				hc_pool_describe(&found[i], stderr);
		}
	}
	free(found);
	return status;
}

int hc_tool_pool(const struct hc_tool *tool, int argc, char **argv)
{
	static const struct option none[] = {{0}};
	int c;

	(void)tool;
	if (argc < 2 || strcmp(argv[1], "free"))
		return hc_tool_usage("pool: pool free [DIR] is what there is");
	argv++;
	argc--;
	optind = 0;
	c = getopt_long(argc, argv, ":", none, NULL);
	if (c != -1)
		return hc_tool_bad_option(c, argv);
	if (argc - optind > 1)
		return hc_tool_usage("pool free: more than one directory");
	return argc - optind ? hc_pool_free_of(argv[optind]) : hc_pool_free_only();
}
