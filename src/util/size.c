/* SPDX-License-Identifier: Apache-2.0 */
/* See size.h. */
#include "util/size.h"

#include <math.h>

/* A plain decimal number, so that "0x10", "1e9", "inf" and leading blanks are refused. */
static int hc_number_parse(const char *text, double *value_p, const char **end_p)
{
	const char *p = text;
	char *end;

	while (*p >= '0' && *p <= '9')
		p++;
	if (p == text)
		return -EINVAL;
	if (*p == '.') {
		const char *dot = p++;

		while (*p >= '0' && *p <= '9')
			p++;
		if (p == dot + 1)
			return -EINVAL;
	}
	*value_p = strtod(text, &end);
	if (end != p)
		return -EINVAL;
	*end_p = p;
	return 0;
}

int hc_u64_parse(const char *text, uint64_t *value_p)
{
	uint64_t v = 0;

	if (!*text)
		return -EINVAL;
	for (const char *p = text; *p; p++) {
		if (*p < '0' || *p > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return -ERANGE;
	}
	*value_p = v;
	return 0;
}

int hc_size_parse(const char *text, uint64_t *bytes_p)
{
	static const char units[] = "KMGT";
	const char *unit, *end;
	double value;
	int shift = 0;
	int rc = hc_number_parse(text, &value, &end);

	if (rc)
		return rc;
	if (*end && (unit = strchr(units, *end))) {
		shift = 10 * (int)(unit - units + 1);
		end++;
		if (!strcmp(end, "iB"))
			end += 2;
	}
	if (*end == 'B' && !end[1])
		end++;
	if (*end)
		return -EINVAL;
	if (!shift && strchr(text, '.'))
		return -EINVAL;
	value = floor(ldexp(value, shift));
	if (value >= 9223372036854775808.0)
		return -ERANGE;
	if (!shift && strspn(text, "0123456789") > 15)
		return -ERANGE;
	*bytes_p = (uint64_t)value;
	return 0;
}

int hc_percent_parse(const char *text, uint32_t *ppm_p)
{
	const char *end;
	double value;
	int rc = hc_number_parse(text, &value, &end);

	if (rc)
		return rc;
	if (strcmp(end, "%") || value > 100.0)
		return -EINVAL;
	*ppm_p = (uint32_t)lround(value * 10000.0);
	return 0;
}

int hc_duration_parse(const char *text, uint64_t *seconds_p)
{
	uint64_t unit = 1, v = 0;
	size_t n = strspn(text, "0123456789");
	char digits[20];
	int rc;

	if (!n || n >= sizeof(digits))
		return n ? -ERANGE : -EINVAL;
	memcpy(digits, text, n);
	digits[n] = 0;
	rc = hc_u64_parse(digits, &v);
	if (rc)
		return rc;
	if (text[n]) {
		switch (text[n]) {
		case 's':
			break;
		case 'm':
			unit = 60;
			break;
		case 'h':
			unit = 3600;
			break;
		case 'd':
			unit = 86400;
			break;
		default:
			return -EINVAL;
		}
		if (text[n + 1])
			return -EINVAL;
	}
	if (__builtin_mul_overflow(v, unit, &v))
		return -ERANGE;
	*seconds_p = v;
	return 0;
}

void hc_size_format(uint64_t bytes, char text[16])
{
	static const char units[] = "KMGTP";
	double value = (double)bytes;
	int unit = -1;

	while (value >= 1024.0 && unit + 1 < (int)sizeof(units) - 1) {
		value /= 1024.0;
		unit++;
	}
	if (unit < 0)
		snprintf(text, 16, "%u", (unsigned)bytes);
	else
		snprintf(text, 16, value < 10.0 ? "%.1f%c" : "%.0f%c", value, units[unit]);
}
