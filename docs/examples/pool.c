// SPDX-License-Identifier: BSD-2-Clause
/*
 * Writes to a pool of fi_rpmemd on another machine:
 *
 *   cc -o pool pool.c -lrpmem_pool
 *   ./pool HOST:PORT:POOL
 */
#include <stdio.h>
#include <string.h>
#include <rpmem_pool.h>

int main(int argc, char **argv)
{
	const char text[] = "durable\n";
	struct rpmem_pool *pool;

	if (rpmem_pool_open(&pool, argc > 1 ? argv[1] : "localhost:pool",
			    NULL) ||
	    rpmem_pool_write(pool, text, strlen(text), 0, 0) ||
	    rpmem_pool_commit(pool)) {
		fprintf(stderr, "pool: %s\n", rpmem_pool_error());
		return 1;
	}
	puts("survives a power cut at the target");
	rpmem_pool_close(pool);
	return 0;
}
