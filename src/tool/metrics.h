/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms of .hicache/metrics (Prometheus text): what was observed between two readings. */
#ifndef HC_TOOL_METRICS_H
#define HC_TOOL_METRICS_H

#include "util/base.h"

#define HC_HISTOGRAM_BUCKETS_MAX 64
#define HC_HISTOGRAMS_MAX        64

struct hc_histogram {
	char name[96]; /* with its labels but `le` */
	size_t n_buckets;
	double le[HC_HISTOGRAM_BUCKETS_MAX]; /* rising; the last may be infinite */
	double n[HC_HISTOGRAM_BUCKETS_MAX];  /* observations up to le */
};

struct hc_metrics {
	size_t n;
	struct hc_histogram list[HC_HISTOGRAMS_MAX];
};

/* Lines that are no bucket are passed over, as are buckets beyond the limits. */
void hc_metrics_parse(const char *text, struct hc_metrics *metrics);
const struct hc_histogram *hc_metrics_find(const struct hc_metrics *metrics, const char *name);
/* Observations since `before` (NULL: ever). */
double hc_histogram_count(const struct hc_histogram *now, const struct hc_histogram *before);
/* The value below which the part q (0 to 1) of them lies, between two bounds in proportion; the
 * last finite bound for what is above it. 0 without observations. */
double hc_histogram_quantile(const struct hc_histogram *now, const struct hc_histogram *before,
			     double q);

#endif
