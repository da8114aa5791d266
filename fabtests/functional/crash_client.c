// SPDX-License-Identifier: BSD-2-Clause
/*
 * A client of a pool, run by fi_rpmem_crashtest. In each round it counts up and
 * makes the steps of its argument. With the argument "check" it checks a
 * recovered pool.
 *
 * w: write the count. t: write two words that must be equal. c: commit the
 * pool. a: acknowledge the count in the ledger. W: write the count to the
 * second half of the pool, which is a pool of its own. C: commit the second
 * half.
 */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpmem_pool.h"

#define PAIR 4096 /* offset of the two words */

static struct rpmem_pool *pool, *other;
static uint64_t rounds = 5;

static int fail(const char *what)
{
	printf("%s: %s\n", what, rpmem_pool_error());
	return 9;
}

static int acknowledge(uint64_t n)
{
	FILE *f = fopen(getenv("RPMEM_CRASHTEST_LEDGER"), "a");

	return !f || fprintf(f, "%u\n", (unsigned int)n) < 0 || fclose(f);
}

static int run_step(char step, uint64_t n)
{
	const uint64_t pair[2] = {n, n};

	switch (step) {
	case 'w':
		return rpmem_pool_write(pool, &n, 8, 0, 0);
	case 't':
		return rpmem_pool_write(pool, pair, 16, PAIR, 0);
	case 'c':
		return rpmem_pool_commit(pool);
	case 'W':
		return rpmem_pool_write(other, &n, 8, 0, 0);
	case 'C':
		return rpmem_pool_commit(other);
	default:
		return acknowledge(n);
	}
}

static int count(const char *steps)
{
	for (uint64_t n = 1; n <= rounds; n++)
		for (const char *s = steps; *s; s++)
			if (run_step(*s, n))
				return fail(s);
	return 0;
}

static int check(void)
{
	FILE *f = fopen(getenv("RPMEM_CRASHTEST_LEDGER"), "r");
	unsigned int last = 0;
	uint64_t n, pair[2];

	while (f && fscanf(f, "%u", &last) == 1)
		;
	if (!f || fclose(f))
		return 8;
	if (rpmem_pool_read(pool, &n, 8, 0) ||
	    rpmem_pool_read(pool, pair, 16, PAIR))
		return fail("read");
	printf("%u acknowledged, %u found, pair %u and %u\n", last,
	       (unsigned int)n, (unsigned int)pair[0], (unsigned int)pair[1]);
	return n < last || n > rounds || pair[0] != pair[1];
}

/* Divide the pool in two, and open both halves as pools. */
static int open_halves(const char *where)
{
	struct rpmem_pool_attr a = {
		.size = sizeof(a),
		.exclusive = RPMEM_POOL_EXCLUSIVE,
	};
	int ret = rpmem_pool_open(&pool, where, &a);

	if (!ret)
		ret = rpmem_pool_divide(pool, 2);
	rpmem_pool_close(pool);
	a.parts = 2;
	if (!ret)
		ret = rpmem_pool_open(&pool, where, &a);
	a.part = 1;
	return ret ? ret : rpmem_pool_open(&other, where, &a);
}

int main(int argc, char **argv)
{
	const char *steps = argc > 1 ? argv[1] : "";
	const char *where = getenv("RPMEM_CRASHTEST_POOL");
	const char *r = getenv("CRASH_ROUNDS");
	int ret;

	if (r)
		rounds = (uint64_t)atoi(r);
	if (strchr(steps, 'W') ? open_halves(where)
			       : rpmem_pool_open(&pool, where, NULL))
		return fail("open");
	ret = strcmp(steps, "check") ? count(steps) : check();
	rpmem_pool_close(other);
	rpmem_pool_close(pool);
	return ret;
}
