/* SPDX-License-Identifier: Apache-2.0 */
/* The progress bar. See tool.h. */
#include "tool/tool.h"
#include "util/clock.h"

#define HC_BAR_CELLS 30u
#define HC_BAR_NS    (100 * HC_NS_PER_MS)

void hc_progress_begin(struct hc_progress *progress, const char *what)
{
	*progress = (struct hc_progress){.what = what, .on = isatty(STDERR_FILENO) == 1};
}

void hc_progress_show(struct hc_progress *progress, uint64_t done, uint64_t total)
{
	char bar[HC_BAR_CELLS + 1];
	uint64_t now_ns, n_full;

	if (!progress->on || !total)
		return;
	now_ns = hc_clock_now_ns();
	if (now_ns < progress->next_ns)
		return;
	progress->next_ns = now_ns + HC_BAR_NS;
	done = hc_min_u64(done, total);
	n_full = (uint64_t)((double)done / (double)total * HC_BAR_CELLS);
	memset(bar, '.', HC_BAR_CELLS);
	memset(bar, '#', n_full);
	bar[HC_BAR_CELLS] = 0;
	fprintf(stderr, "\r%s [%s] %3.0f %%  %llu/%llu", progress->what, bar,
		100.0 * (double)done / (double)total, (unsigned long long)done,
		(unsigned long long)total);
	progress->drawn = true;
}

void hc_progress_end(struct hc_progress *progress)
{
	if (progress->drawn)
		fputs("\r\033[K", stderr);
	progress->drawn = false;
}
