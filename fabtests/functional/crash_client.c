// SPDX-License-Identifier: BSD-2-Clause
/*
 * A client of a pool that fi_rpmem_crashtest tests: it counts, and acknowledges
 * each count after its commit ("commit") or before its commit ("early"), or
 * writes two words that must be equal after their one commit ("torn"); "check"
 * reads a recovered pool.
 */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpmem_pool.h"

#define ROUNDS 5
#define PAIR   4096 /* offset of the two words */

static struct rpmem_pool *pool;

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

static int count(const char *order)
{
	const int early = !strcmp(order, "early");
	const int torn = !strcmp(order, "torn");

	for (uint64_t n = 1; n <= ROUNDS; n++) {
		const uint64_t pair[2] = {n, n};

		if (rpmem_pool_write(pool, &n, 8, 0, 0) ||
		    (torn && rpmem_pool_write(pool, pair, 16, PAIR, 0)))
			return fail("write");
		if (early && acknowledge(n))
			return 8;
		if (rpmem_pool_commit(pool))
			return fail("commit");
		if (!early && acknowledge(n))
			return 8;
	}
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
	return n < last || n > ROUNDS || pair[0] != pair[1];
}

int main(int argc, char **argv)
{
	const char *order = argc > 1 ? argv[1] : "";
	int ret;

	if (rpmem_pool_open(&pool, getenv("RPMEM_CRASHTEST_POOL"), NULL))
		return fail("open");
	ret = strcmp(order, "check") ? count(order) : check();
	rpmem_pool_close(pool);
	return ret;
}
