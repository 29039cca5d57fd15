/* SPDX-License-Identifier: Apache-2.0 */
/* The table, the bars, and the same as JSON. Ratios are to the speed of one contiguous copy from or
 * to the registered pool, of the same run. */
#include "tests/check-device/check.h"

#define BAR_LOAD_32K 0.95
#define BAR_LOAD_8K  0.90
#define BAR_WRITE    0.95
#define BAR_BOTH     0.88
#define BAR_SLOWDOWN 1.05
/* What the device chooses by itself should be this near to the best. */
#define BAR_CHOICE 0.95

static const char *const io_names[CHECK_IOS] = {"auto", "direct", "kernel"};

static const char *size_name(const struct check *check, int size_i)
{
	static char text[CHECK_SIZES][16];
	uint32_t tokens = check_tokens(check, size_i);

	if (tokens >= 1024)
		snprintf(text[size_i], sizeof(text[size_i]), "%uk", tokens / 1024);
	else
		snprintf(text[size_i], sizeof(text[size_i]), "%u", tokens);
	return text[size_i];
}

static const struct check_row *find_row(const struct check *check, int model, int layout,
					enum hc_io io, int size_i)
{
	for (int i = 0; i < check->n_rows; i++) {
		const struct check_row *r = &check->rows[i];

		if (r->model == model && r->layout == layout && r->io == io && r->size_i == size_i)
			return r;
	}
	return NULL;
}

static double ratio(double rate, double peak)
{
	return peak > 0 ? rate / peak : 0;
}

/* "0.95 0.97 ..." by size, of what was measured. */
static void print_ratios(const struct check *check, int model, int layout, enum hc_io io, bool load)
{
	for (int i = 0; i < CHECK_SIZES; i++) {
		const struct check_row *r = find_row(check, model, layout, io, i);

		if (r)
			printf(" %5.2f", load ? ratio(r->load, check->peak_load)
					      : ratio(r->write, check->peak_write));
		else
			printf("     -");
	}
}

static void print_line(const struct check *check, int model, int layout, enum hc_io io)
{
	const struct check_row *last = NULL;

	for (int i = 0; i < CHECK_SIZES; i++) {
		const struct check_row *r = find_row(check, model, layout, io, i);

		last = r ? r : last;
	}
	if (!last)
		return;
	printf("  %-18s %-7s %-6s", check_layouts[layout].name, io_names[io],
	       hc_plan_way_name(last->load_way));
	print_ratios(check, model, layout, io, true);
	printf("  %-6s", hc_plan_way_name(last->write_way));
	print_ratios(check, model, layout, io, false);
	printf("  %8.0f %8.0f %7.1f %7.1f\n", last->first_us, last->layer_us, last->load_submit_us,
	       last->write_submit_us);
}

static void print_model(const struct check *check, int model)
{
	printf("\n%s: pages of %u tokens, %llu KiB; load and write / peak at tokens\n",
	       check_model(check, model)->name, check_model(check, model)->geometry.n_tokens,
	       (unsigned long long)(hc_geometry_page_bytes(&check_model(check, model)->geometry) /
				    HC_KIB));
	printf("  %-18s %-7s %-6s", "layout", "io", "load");
	for (int i = 0; i < CHECK_SIZES; i++)
		printf(" %5s", size_name(check, i));
	printf("  %-6s", "write");
	for (int i = 0; i < CHECK_SIZES; i++)
		printf(" %5s", size_name(check, i));
	printf("  first us us/layer  load submit write us/layer\n");
	for (int layout = 0; layout < CHECK_LAYOUTS; layout++) {
		for (int io = 0; io < CHECK_IOS; io++)
			print_line(check, model, layout, (enum hc_io)io);
	}
}

/* Prints the bar and its verdict; 1 where it was missed. */
static int bar(const struct check *check, const char *what, double value, double limit,
	       bool at_most)
{
	bool met = at_most ? value <= limit : value >= limit;

	printf("  %-64s %5.2f  %s %.2f  %s\n", what, value, at_most ? "<=" : ">=", limit,
	       check->small ? "(not judged)"
	       : met        ? "ok"
			    : "MISSED");
	return !met && !check->small;
}

/* Fragments of 64 KiB and more: what the device chooses by itself. Below: the best. */
static double best_of(const struct check *check, int model, int layout, int size_i, bool load,
		      const char **io_p)
{
	bool all = check_fragment_bytes(check, model, layout) < HC_PLAN_COPY_BYTES;
	double best = 0;

	*io_p = "not measured";
	for (int io = 0; io < (all ? CHECK_IOS : 1); io++) {
		const struct check_row *r = find_row(check, model, layout, (enum hc_io)io, size_i);
		double rate = !r ? 0 : load ? r->load : r->write;

		if (rate > best) {
			best = rate;
			*io_p = io_names[io];
		}
	}
	return best;
}

static int bar_of(const struct check *check, int model, int layout, int size_i, bool load,
		  double limit)
{
	char what[128];
	const char *io;
	double rate = best_of(check, model, layout, size_i, load, &io);

	snprintf(what, sizeof(what), "%s, %s, %s at %s (%s)", load ? "load" : "write",
		 check_model(check, model)->name, check_layouts[layout].name,
		 size_name(check, size_i), io);
	return bar(check, what, ratio(rate, load ? check->peak_load : check->peak_write), limit,
		   false);
}

static int print_bars(const struct check *check)
{
	int n_missed = 0;

	printf("\nBars\n");
	for (int i = 0; i < CHECK_MODELS * CHECK_LAYOUTS; i++) {
		int model = i / CHECK_LAYOUTS, layout = i % CHECK_LAYOUTS;

		if (!check_has_meaning(check, model, layout))
			continue;
		n_missed += bar_of(check, model, layout, 3, true, BAR_LOAD_32K);
		n_missed += bar_of(check, model, layout, 2, true, BAR_LOAD_8K);
		n_missed += bar_of(check, model, layout, 3, false, BAR_WRITE);
	}
	n_missed += bar(check, "load and write at once / both peaks",
			ratio(check->both, check->peak_load + check->peak_write), BAR_BOTH, false);
	for (int i = 0; i < check->n_slowdowns; i++) {
		const struct check_slowdown *s = &check->slowdowns[i];
		char what[128];

		snprintf(what, sizeof(what), "product beside a %s", s->what);
		if (s->bar && s->measured)
			n_missed +=
				bar(check, what, s->beside_us / s->alone_us, BAR_SLOWDOWN, true);
	}
	return n_missed;
}

/* Where another mechanism was clearly faster than the one chosen: the limits of plan.h want a look.
 */
static void print_choices(const struct check *check)
{
	int n = 0;

	for (int i = 0; i < check->n_rows; i++) {
		const struct check_row *r = &check->rows[i], *own;

		if (r->io == HC_IO_AUTO)
			continue;
		own = find_row(check, r->model, r->layout, HC_IO_AUTO, r->size_i);
		if (!own || own->load >= BAR_CHOICE * r->load)
			continue;
		printf("%s  %s, %s, %s tokens: %s loads at %.2f of the peak, auto (%s) at %.2f\n",
		       n++ ? "" : "\nNot the best choice\n", check_model(check, r->model)->name,
		       check_layouts[r->layout].name, size_name(check, r->size_i), io_names[r->io],
		       ratio(r->load, check->peak_load), hc_plan_way_name(own->load_way),
		       ratio(own->load, check->peak_load));
	}
}

static void print_memories(const struct check *check)
{
	printf("\nRegistration, each GiB                populate s  register s  unregister s  huge "
	       "pages\n");
	for (int i = 0; i < check->n_memories; i++) {
		const struct check_memory *m = &check->memories[i];

		if (m->there)
			printf("  %-34s %11.3f %11.3f %13.3f %9d %%\n", m->name, m->populate_s,
			       m->register_s, m->unregister_s, m->huge_percent);
		else
			printf("  %-34s not here: %s\n", m->name, m->why_not);
	}
}

static void print_slowdowns(const struct check *check)
{
	printf("\nA matrix product (%s) beside transfers\n", check->product);
	for (int i = 0; i < check->n_slowdowns; i++) {
		const struct check_slowdown *s = &check->slowdowns[i];

		printf("  %-40s %9.1f us alone %9.1f us beside", s->what, s->alone_us,
		       s->beside_us);
		if (s->measured)
			printf("  %.3f times\n", s->beside_us / s->alone_us);
		else
			printf("  the transfer ended first: no figure\n");
	}
}

int check_report(struct check *check)
{
	printf("\nDevice %s, driver %d.%d, node %d; %s copies, kernels %s\n", check->info.name,
	       check->info.driver_version / 1000, check->info.driver_version % 1000 / 10,
	       check->info.numa_node, check->info.batch_native ? "batched" : "single",
	       check->info.kernels ? "there" : "missing");
	printf("Pool of %llu MiB, %d %% on huge pages, %s\n",
	       (unsigned long long)(check->pool_bytes / HC_MIB), check->pool_huge_percent,
	       check->pool_bound ? "bound to the device's node" : "on any node");
	printf("\nOne contiguous copy, GB/s: to the device %.2f, from it %.2f, at once %.2f in "
	       "all; "
	       "memory pinned by the driver: %.2f, %.2f\n",
	       check->peak_load, check->peak_write, check->peak_both, check->pinned_load,
	       check->pinned_write);
	for (int model = 0; model < CHECK_MODELS; model++)
		print_model(check, model);
	printf("\nLoad and write at once, %s, page_unified: %.2f GB/s\n",
	       check_model(check, 0)->name, check->both);
	print_slowdowns(check);
	print_memories(check);
	if (!check->small)
		print_choices(check);
	if (check->n_left_out)
		printf("\n%d measurements were left out: those of a smaller size took too long, or "
		       "time was up\n",
		       check->n_left_out);
	return print_bars(check);
}

/* --- JSON --- */

static void put_text(FILE *f, const char *text)
{
	fputc('"', f);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', f);
		if ((unsigned char)*text >= ' ')
			fputc(*text, f);
	}
	fputc('"', f);
}

static void put_rows(FILE *f, const struct check *check)
{
	fprintf(f, "  \"transfers\": [");
	for (int i = 0; i < check->n_rows; i++) {
		const struct check_row *r = &check->rows[i];

		fprintf(f, "%s\n    {\"model\": ", i ? "," : "");
		put_text(f, check_model(check, r->model)->name);
		fprintf(f,
			", \"layout\": \"%s\", \"io\": \"%s\", \"tokens\": %u, "
			"\"fragment_bytes\": %llu, \"load_way\": \"%s\", \"write_way\": \"%s\", ",
			check_layouts[r->layout].name, io_names[r->io],
			check_tokens(check, r->size_i),
			(unsigned long long)check_fragment_bytes(check, r->model, r->layout),
			hc_plan_way_name(r->load_way), hc_plan_way_name(r->write_way));
		fprintf(f,
			"\"load_gb_s\": %.3f, \"load_ratio\": %.4f, \"write_gb_s\": %.3f, "
			"\"write_ratio\": %.4f, \"first_layer_us\": %.1f, \"layer_us\": %.1f, "
			"\"load_submit_us_per_layer\": %.2f, \"write_submit_us_per_layer\": %.2f}",
			r->load, ratio(r->load, check->peak_load), r->write,
			ratio(r->write, check->peak_write), r->first_us, r->layer_us,
			r->load_submit_us, r->write_submit_us);
	}
	fprintf(f, "\n  ],\n");
}

static void put_slowdowns(FILE *f, const struct check *check)
{
	fprintf(f, "  \"product\": ");
	put_text(f, check->product);
	fprintf(f, ",\n  \"slowdowns\": [");
	for (int i = 0; i < check->n_slowdowns; i++) {
		const struct check_slowdown *s = &check->slowdowns[i];

		fprintf(f, "%s\n    {\"beside\": ", i ? "," : "");
		put_text(f, s->what);
		fprintf(f, ", \"measured\": %s, \"alone_us\": %.2f, \"beside_us\": %.2f}",
			s->measured ? "true" : "false", s->alone_us, s->beside_us);
	}
	fprintf(f, "\n  ],\n");
}

static void put_memories(FILE *f, const struct check *check)
{
	fprintf(f, "  \"registration\": [");
	for (int i = 0; i < check->n_memories; i++) {
		const struct check_memory *m = &check->memories[i];

		fprintf(f, "%s\n    {\"memory\": ", i ? "," : "");
		put_text(f, m->name);
		fprintf(f,
			", \"there\": %s, \"huge_percent\": %d, \"populate_s_per_gib\": %.4f, "
			"\"register_s_per_gib\": %.4f, \"unregister_s_per_gib\": %.4f}",
			m->there ? "true" : "false", m->huge_percent, m->populate_s, m->register_s,
			m->unregister_s);
	}
	fprintf(f, "\n  ]\n");
}

int check_json(const struct check *check)
{
	FILE *f = fopen(check->json_file, "we");
	bool bad;

	if (!f) {
		fprintf(stderr, "check-device: %s: %m\n", check->json_file);
		return -errno;
	}
	fprintf(f, "{\n  \"device\": ");
	put_text(f, check->info.name);
	fprintf(f,
		",\n  \"driver\": %d, \"numa_node\": %d, \"batch\": %s, \"kernels\": %s,\n"
		"  \"when\": %llu, \"seconds\": %.1f, \"small\": %s, \"left_out\": %d,\n",
		check->info.driver_version, check->info.numa_node,
		check->info.batch_native ? "true" : "false", check->info.kernels ? "true" : "false",
		(unsigned long long)(hc_clock_wall_ns() / HC_NS_PER_S), check->seconds,
		check->small ? "true" : "false", check->n_left_out);
	fprintf(f,
		"  \"pool_bytes\": %llu, \"pool_huge_percent\": %d, \"pool_bound\": %s,\n"
		"  \"peak_gb_s\": {\"load\": %.3f, \"write\": %.3f, \"both\": %.3f, "
		"\"pinned_load\": %.3f, \"pinned_write\": %.3f},\n  \"both_gb_s\": %.3f,\n",
		(unsigned long long)check->pool_bytes, check->pool_huge_percent,
		check->pool_bound ? "true" : "false", check->peak_load, check->peak_write,
		check->peak_both, check->pinned_load, check->pinned_write, check->both);
	put_rows(f, check);
	put_slowdowns(f, check);
	put_memories(f, check);
	fprintf(f, "}\n");
	bad = ferror(f) != 0;
	bad |= fclose(f) != 0;
	if (bad)
		fprintf(stderr, "check-device: %s: not written\n", check->json_file);
	return bad ? -EIO : 0;
}
