/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads docs/protocol.md, for tests that compare it with the code. */
#ifndef RP_TEST_PAGE_H
#define RP_TEST_PAGE_H

#include <regex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#define DOC RP_SRCDIR "/docs/protocol.md"

/*
 * Find the text from a heading to the next heading of its level. The caller
 * frees it.
 */
static inline char *text_below(const char *text, const char *heading)
{
	const char *from = strstr(text, heading), *to;
	char level[8];

	cr_assert_not_null(from, "no \"%s\" in " DOC, heading);
	from += strlen(heading);
	snprintf(level, sizeof(level), "\n%.*s ",
		 (int)strcspn(heading + 1, " "), heading + 1);
	to = strstr(from, level);
	return to ? strndup(from, to - from) : strdup(from);
}

static inline char *chapter_of(const char *heading)
{
	static char text[1 << 17];
	FILE *f = fopen(DOC, "r");
	size_t n;

	cr_assert_not_null(f, DOC);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	cr_assert_lt(n, sizeof(text) - 1);
	text[n] = 0;
	return text_below(text, heading);
}

/*
 * Find the next match of a regular expression at or behind *at. Its groups go
 * to out, unmatched ones as "". Returns false if there is none.
 */
#define GROUPS 4
static inline bool next_match(const char **at, const char *pattern,
			      char out[GROUPS][256])
{
	regmatch_t m[GROUPS + 1];
	bool found;
	regex_t re;

	cr_assert_eq(regcomp(&re, pattern, REG_EXTENDED | REG_NEWLINE), 0);
	found = !regexec(&re, *at, GROUPS + 1, m, 0);
	regfree(&re);
	if (!found)
		return false;
	for (size_t i = 1; i <= GROUPS; i++)
		snprintf(out[i - 1], 256, "%.*s",
			 (int)(m[i].rm_eo - m[i].rm_so),
			 m[i].rm_so < 0 ? "" : *at + m[i].rm_so);
	*at += m[0].rm_eo;
	return true;
}

#endif
