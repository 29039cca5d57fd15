/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of mount.hicachefs, as mount(8) writes it for `mount -t hicachefs` and for lines
 * of fstab. The program is hicachefs under another name. See options.h. */
#include <getopt.h>

#include "fuse/options.h"
#include "util/log.h"

struct hc_helper_line {
	struct hc_option_lists lists;
	bool verbose;
	enum hc_action action;
};

static int hc_helper_type(const char *type)
{
	if (!strcmp(type, "hicachefs") || !strcmp(type, "fuse.hicachefs"))
		return 0;
	hc_error(HC_OPTIONS_LOG, "-t %s: only hicachefs is mounted here", type);
	return -EINVAL;
}

static int hc_helper_option(struct hc_options *options, struct hc_helper_line *line, int c,
			    char *const *argv)
{
	switch (c) {
	case 'f':
		line->action = HC_ACTION_CHECK;
		return 0;
	case 'h':
		line->action = HC_ACTION_HELP;
		return 0;
	case 'V':
		line->action = HC_ACTION_VERSION;
		return 0;
	case 'n': /* there is no mtab of ours */
		return 0;
	case 's':
		options->sloppy = true;
		return 0;
	case 'v':
		line->verbose = true;
		return 0;
	case 'r':
		return hc_option_lists_add(&line->lists, "ro");
	case 'w':
		return hc_option_lists_add(&line->lists, "rw");
	case 'o':
		return hc_option_lists_add(&line->lists, optarg);
	case 't':
		return hc_helper_type(optarg);
	case 'N':
		hc_error(HC_OPTIONS_LOG,
			 "-N %s: the daemon mounts in the namespace where it is started; use "
			 "nsenter -m",
			 optarg);
		return -EINVAL;
	case ':':
		hc_error(HC_OPTIONS_LOG, "%s: a value is missing", argv[optind - 1]);
		return -EINVAL;
	default:
		hc_error(HC_OPTIONS_LOG,
			 "%s: there is no such option; mount.hicachefs CACHEDIR MOUNTPOINT "
			 "[-fnsv] [-o LIST] is how mount(8) calls it",
			 argv[optind - 1]);
		return -EINVAL;
	}
}

int hc_options_parse_helper(int argc, char **argv, struct hc_options **options_p,
			    enum hc_action *action_p)
{
	struct hc_helper_line line = {.action = HC_ACTION_MOUNT};
	struct hc_options *options;
	int rc = hc_options_create(&options), c;

	if (rc)
		return rc;
	optind = 0;
	opterr = 0;
	while (!rc && (c = getopt(argc, argv, ":fhnrsvwVN:o:t:")) != -1)
		rc = hc_helper_option(options, &line, c, argv);
	options->quiet = !line.verbose;
	if (!rc && line.action <= HC_ACTION_CHECK)
		rc = hc_options_set_operands(options, argc - optind, argv + optind);
	if (!rc && line.action <= HC_ACTION_CHECK)
		rc = hc_options_set_lists(options, &line.lists);
	if (!rc && line.action <= HC_ACTION_CHECK)
		rc = hc_options_finish(options);
	if (rc) {
		hc_options_destroy(options);
		return rc;
	}
	*options_p = options;
	*action_p = line.action;
	return 0;
}
