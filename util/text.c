// SPDX-License-Identifier: BSD-2-Clause
/* Text for people: errors, sizes, rates. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/text.h"

int rp_err(char *err, int ret, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return ret;
	va_start(ap, fmt);
	vsnprintf(err, RP_ERR_LEN, fmt, ap);
	va_end(ap);
	return ret;
}

void rp_text_clean(char *s, char by)
{
	for (; *s; s++)
		if (!rp_char_printable(*s))
			*s = by;
}

void rp_text_to_ascii(char *s, char by)
{
	for (; *s; s++)
		if ((unsigned char)*s >= 0x80)
			*s = by;
}

int rp_number_parse(const char *s, uint64_t min, uint64_t max, uint64_t *n,
		    char *err)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(s, &end, 10);
	if (!isdigit((unsigned char)s[0]) || *end || errno || v < min ||
	    v > max)
		return rp_err(err, -EINVAL,
			      "'%s' is not a number from %llu to %llu", s,
			      (unsigned long long)min, (unsigned long long)max);
	*n = v;
	return 0;
}

int rp_size_parse(const char *s, uint64_t *size, char *err)
{
	static const char units[] = "KMGTPE";
	const char *unit;
	unsigned int shift = 0;
	unsigned long long whole;
	double part = 0;
	char *end;

	errno = 0;
	whole = strtoull(s, &end, 10);
	if (!isdigit((unsigned char)s[0]) || errno)
		goto bad;
	if (*end == '.') {
		/* The fraction is a double; the integer part stays exact. */
		char *dot = end;

		for (end++; isdigit((unsigned char)*end); end++)
			;
		part = strtod(dot, NULL);
	}
	if (*end) {
		unit = strchr(units, toupper((unsigned char)*end));
		if (unit) {
			shift = 10 * (unsigned int)(unit - units + 1);
			end++;
			if (*end == 'i')
				end++;
		}
		if (*end == 'B' || *end == 'b')
			end++;
	}
	if (*end || (part && !shift) || (shift && whole >> (64 - shift)))
		goto bad;
	*size = (whole << shift) + (uint64_t)ldexp(part, (int)shift);
	return 0;
bad:
	return rp_err(err, -EINVAL,
		      "'%s' is not a size; give bytes, or K, M, G, T as in "
		      "64K, 10M, 1.5G",
		      s);
}

const char *rp_size_format(uint64_t size, char buf[RP_SIZE_LEN])
{
	static const char *const units[] = {"B",   "KiB", "MiB", "GiB",
					    "TiB", "PiB", "EiB"};
	double v = (double)size;
	unsigned int i = 0;

	/* Choose the next unit early: 1023.95 would be printed as 1024.0. */
	while (v >= 1023.95 && i < 6) {
		v /= 1024;
		i++;
	}
	if (v == floor(v))
		snprintf(buf, RP_SIZE_LEN, "%.0f %s", v, units[i]);
	else
		snprintf(buf, RP_SIZE_LEN, "%.1f %s", v, units[i]);
	return buf;
}
