// SPDX-License-Identifier: BSD-2-Clause
/* The error text of each thread, and texts that a pool keeps. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libpool/pool.h"

static __thread char sentence[RP_ERR_LEN];

const char *rpmem_pool_error(void)
{
	return sentence;
}

char *pool_error_buf(void)
{
	return sentence;
}

int pool_error(int ret, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(sentence, sizeof(sentence), fmt, ap);
	va_end(ap);
	return ret;
}

const char *pool_text(struct rpmem_pool *p, const char *s)
{
	struct text *t;

	for (t = p->texts; t; t = t->next)
		if (!strcmp(t->s, s))
			return t->s;
	t = malloc(sizeof(*t) + strlen(s) + 1);
	if (!t)
		return "out of memory";
	strcpy(t->s, s);
	t->next = p->texts;
	p->texts = t;
	return t->s;
}

void pool_texts_free(struct rpmem_pool *p)
{
	struct text *t;

	while ((t = p->texts)) {
		p->texts = t->next;
		free(t);
	}
}
