/* SPDX-License-Identifier: Apache-2.0 */
/* Text in aligned columns, as wide as their widest cell. What is printed moves no terminal's
 * cursor: control bytes become '?'. One thread. */
#ifndef HC_TOOL_COLUMNS_H
#define HC_TOOL_COLUMNS_H

#include <stdio.h>

#include "util/base.h"

#define HC_COLUMNS_MAX 12

struct hc_columns;

/* Headers end with NULL; one that begins with '>' is of a column that is aligned to the right. NULL
 * when memory is out, which the others take. */
struct hc_columns *hc_columns_create(const char *const *headers);
void hc_columns_row(struct hc_columns *table, const char *const *cells);
/* Prints and destroys. -ENOMEM: something was lost. */
int hc_columns_end(struct hc_columns *table, bool with_header, FILE *out) HC_MUST_CHECK;
/* Columns of a text on a terminal. */
size_t hc_text_width(const char *text);

#endif
