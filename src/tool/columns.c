/* SPDX-License-Identifier: Apache-2.0 */
/* See columns.h. */
#include "tool/columns.h"

struct hc_columns {
	size_t n_columns;
	bool right[HC_COLUMNS_MAX];
	size_t width[HC_COLUMNS_MAX];
	char **cells; /* rows one after the other, the headers first */
	size_t n_cells, room;
	bool lost;
};

size_t hc_text_width(const char *text)
{
	size_t n = 0;

	/* Bytes that begin a character of UTF-8. */
	for (; *text; text++)
		n += ((uint8_t)*text & 0xc0) != 0x80;
	return n;
}

static bool hc_columns_grow(struct hc_columns *table)
{
	size_t room = table->room ? 2 * table->room : 256;
	char **cells;

	if (table->n_cells < table->room)
		return true;
	cells = realloc(table->cells, room * sizeof(*cells));
	if (!cells)
		return false;
	table->cells = cells;
	table->room = room;
	return true;
}

static void hc_columns_add(struct hc_columns *table, const char *text)
{
	size_t column_i = table->n_cells % table->n_columns, width;
	char *copy = NULL;

	if (!table->lost && hc_columns_grow(table))
		copy = strdup(text ? text : "");
	if (!copy) {
		table->lost = true;
		return;
	}
	for (char *p = copy; *p; p++)
		*p = (uint8_t)*p < ' ' || *p == 0x7f ? '?' : *p;
	width = hc_text_width(copy);
	if (width > table->width[column_i])
		table->width[column_i] = width;
	table->cells[table->n_cells++] = copy;
}

struct hc_columns *hc_columns_create(const char *const *headers)
{
	struct hc_columns *table = hc_zalloc(sizeof(*table));

	if (!table)
		return NULL;
	while (headers[table->n_columns]) {
		hc_assert(table->n_columns < HC_COLUMNS_MAX);
		table->right[table->n_columns] = *headers[table->n_columns] == '>';
		table->n_columns++;
	}
	for (size_t i = 0; i < table->n_columns; i++)
		hc_columns_add(table, headers[i] + table->right[i]);
	return table;
}

void hc_columns_row(struct hc_columns *table, const char *const *cells)
{
	for (size_t i = 0; table && i < table->n_columns; i++)
		hc_columns_add(table, cells[i]);
}

static void hc_columns_print_row(const struct hc_columns *table, char *const *cells, FILE *out)
{
	for (size_t i = 0; i < table->n_columns; i++) {
		int pad = (int)(table->width[i] - hc_text_width(cells[i]));

		if (table->right[i])
			fprintf(out, "%*s", pad, "");
		fputs(cells[i], out);
		/* No blanks at the end of a line. */
		if (i + 1 == table->n_columns)
			break;
		fprintf(out, "%*s", table->right[i] ? 2 : pad + 2, "");
	}
	putc('\n', out);
}

int hc_columns_end(struct hc_columns *table, bool with_header, FILE *out)
{
	bool lost = !table || table->lost;

	if (!table)
		return -ENOMEM;
	for (size_t i = with_header ? 0 : table->n_columns; i + table->n_columns <= table->n_cells;
	     i += table->n_columns)
		hc_columns_print_row(table, table->cells + i, out);
	while (table->n_cells)
		free(table->cells[--table->n_cells]);
	free(table->cells);
	free(table);
	return lost ? -ENOMEM : 0;
}
