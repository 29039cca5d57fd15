/* SPDX-License-Identifier: Apache-2.0 */
/* See metrics.h. */
#include "tool/metrics.h"

#include <math.h>

static const char hc_bucket_word[] = "_bucket{";

/* Takes the label le="..." out of the labels, in place. */
static bool hc_labels_take_le(char *labels, double *le_p)
{
	char *le = labels, *value, *end;

	for (; (le = strstr(le, "le=\"")); le++) {
		if (le == labels || le[-1] == ',')
			break;
	}
	if (!le)
		return false;
	value = le + 4;
	end = strchr(value, '"');
	if (!end)
		return false;
	*end = 0;
	*le_p = !strcmp(value, "+Inf") ? INFINITY : strtod(value, NULL);
	end++;
	if (*end == ',')
		end++;
	else if (le > labels)
		le--; /* the comma before it */
	memmove(le, end, strlen(end) + 1);
	return true;
}

static struct hc_histogram *hc_metrics_get(struct hc_metrics *metrics, const char *name)
{
	struct hc_histogram *found = (struct hc_histogram *)hc_metrics_find(metrics, name);

	if (found || metrics->n == HC_HISTOGRAMS_MAX)
		return found;
	found = &metrics->list[metrics->n++];
	found->n_buckets = 0;
	snprintf(found->name, sizeof(found->name), "%s", name);
	return found;
}

/* NAME_bucket{LABELS,le="X"} COUNT */
static void hc_metrics_line(struct hc_metrics *metrics, char *line)
{
	char *bucket = strstr(line, hc_bucket_word), *labels, *end;
	char name[sizeof(metrics->list->name)];
	struct hc_histogram *histogram;
	double le;

	if (*line == '#' || !bucket)
		return;
	labels = bucket + strlen(hc_bucket_word);
	end = strrchr(labels, '}');
	if (!end)
		return;
	*end = 0;
	*bucket = 0;
	if (!hc_labels_take_le(labels, &le))
		return;
	snprintf(name, sizeof(name), "%s%s%s%s", line, *labels ? "{" : "", labels,
		 *labels ? "}" : "");
	histogram = hc_metrics_get(metrics, name);
	if (!histogram || histogram->n_buckets == HC_HISTOGRAM_BUCKETS_MAX)
		return;
	if (histogram->n_buckets && !(le > histogram->le[histogram->n_buckets - 1]))
		return;
	histogram->le[histogram->n_buckets] = le;
	histogram->n[histogram->n_buckets++] = strtod(end + 1, NULL);
}

void hc_metrics_parse(const char *text, struct hc_metrics *metrics)
{
	char line[1024];

	metrics->n = 0;
	while (*text) {
		size_t n = strcspn(text, "\n");

		if (n < sizeof(line)) {
			memcpy(line, text, n);
			line[n] = 0;
			hc_metrics_line(metrics, line);
		}
		text += n + (text[n] == '\n');
	}
}

const struct hc_histogram *hc_metrics_find(const struct hc_metrics *metrics, const char *name)
{
	for (size_t i = 0; i < metrics->n; i++) {
		if (!strcmp(metrics->list[i].name, name))
			return &metrics->list[i];
	}
	return NULL;
}

/* Observations up to bucket i. One that has fewer than before is of a daemon that was started anew.
 */
static double hc_histogram_upto(const struct hc_histogram *now, const struct hc_histogram *before,
				size_t i)
{
	if (!before || i >= before->n_buckets || before->le[i] != now->le[i] ||
	    before->n[i] > now->n[i])
		return now->n[i];
	return now->n[i] - before->n[i];
}

double hc_histogram_count(const struct hc_histogram *now, const struct hc_histogram *before)
{
	return now->n_buckets ? hc_histogram_upto(now, before, now->n_buckets - 1) : 0;
}

double hc_histogram_quantile(const struct hc_histogram *now, const struct hc_histogram *before,
			     double q)
{
	double wanted = q * hc_histogram_count(now, before), below = 0, low = 0;

	if (!(hc_histogram_count(now, before) > 0))
		return 0;
	for (size_t i = 0; i < now->n_buckets; i++) {
		double upto = hc_histogram_upto(now, before, i);

		if (upto >= wanted && upto > below) {
			if (isinf(now->le[i]))
				return low;
			return low + (now->le[i] - low) * (wanted - below) / (upto - below);
		}
		below = upto;
		low = isinf(now->le[i]) ? low : now->le[i];
	}
	return low;
}
