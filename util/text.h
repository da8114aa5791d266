/* SPDX-License-Identifier: BSD-2-Clause */
/* Text for people: errors, sizes, rates. */
#ifndef RP_UTIL_TEXT_H
#define RP_UTIL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Most bytes of an error text: the cause, the object, the remedy. */
#define RP_ERR_LEN 512

/* Write an error text to err (RP_ERR_LEN bytes or NULL); returns ret. */
int rp_err(char *err, int ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Parse "4096", "64K", "10M", "1.5G", "1T", with or without "iB": powers of
 * 1024. Returns 0, or -EINVAL and the reason in err.
 */
int rp_size_parse(const char *s, uint64_t *size, char *err);

/* Parse a decimal integer in [min, max]. Returns 0, or -EINVAL and err. */
int rp_number_parse(const char *s, uint64_t min, uint64_t max, uint64_t *n,
		    char *err);

/* Whether c is printable ASCII, so harmless on a terminal. */
static inline bool rp_char_printable(char c)
{
	return c >= 0x20 && c < 0x7f;
}

/*
 * Whether `where` names a group of pools, "HOST:POOL,HOST:POOL,...". A comma
 * without a colon behind it is part of a pool's name.
 */
static inline bool rp_names_group(const char *where)
{
	const char *comma = strchr(where, ',');

	return comma && strchr(comma, ':');
}

/* Replace unprintable characters of text from outside by `by`. */
void rp_text_clean(char *s, char by);
/* Replace all bytes that are not ASCII by `by`: in JSON, text has to be UTF-8.
 */
void rp_text_to_ascii(char *s, char by);

#define RP_SIZE_LEN 32
/* Format a size: "12 B", "1.5 KiB", "10 GiB", with at most one decimal. */
const char *rp_size_format(uint64_t size, char buf[RP_SIZE_LEN]);

#endif
