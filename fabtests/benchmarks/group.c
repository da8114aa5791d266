// SPDX-License-Identifier: BSD-2-Clause
/*
 * Times durable writes of 64 bytes to a group of pools and to a single pool, in
 * turns:
 *
 *   group POOL GROUP [ROUNDS]
 *
 * POOL is HOST:PORT:NAME, GROUP is PLACE,PLACE,...;k=N. Prints the ratios, and
 * the medians of all rounds in microseconds for one write: with one and with 64
 * writes outstanding.
 *
 *   group --one PLACE OUTSTANDING ROUNDS
 *
 * Runs ROUNDS rounds of 200 writes to one place, for group_cost.sh, which
 * counts their instructions.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rpmem_pool.h>

#define BYTES 64u
#define EACH  200u /* writes of one round */
#define OUT   64u

static unsigned char bytes[BYTES];

static void fail(const char *what)
{
	fprintf(stderr, "group: %s: %s\n", what, rpmem_pool_error());
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* EACH durable writes, up to `out` of them outstanding. */
static double round_us(struct rpmem_pool *pool, unsigned int out)
{
	static struct rpmem_pool_op ops[EACH];
	struct rpmem_pool_op *done[OUT];
	const double start = now_us();
	unsigned int begun = 0, ended = 0;
	int n;

	while (ended < EACH) {
		for (; begun < EACH && begun - ended < out; begun++) {
			ops[begun] = (struct rpmem_pool_op){
				.type = RPMEM_POOL_WRITE,
				.flags = RPMEM_POOL_DURABLE,
				.buf = bytes,
				.len = BYTES,
				.offset = 4096 + begun * BYTES,
			};
			if (rpmem_pool_submit(pool, &ops[begun]))
				fail("submit");
		}
		n = rpmem_pool_poll(pool, done, OUT, -1);
		for (int i = 0; i < n; i++)
			if (done[i]->result)
				fail("write");
		if (n < 0)
			fail("poll");
		ended += (unsigned int)n;
	}
	return (now_us() - start) / EACH;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Open a pool of any class, by the method that reaches it; print both. */
static struct rpmem_pool *open_pool(const char *where)
{
	static const char *const names[] = {"power", "process", "none"};
	struct rpmem_pool_info info = {.size = sizeof(info)};
	struct rpmem_pool_attr attr = {
		.size = sizeof(attr),
		.exclusive = RPMEM_POOL_EXCLUSIVE,
	};
	struct rpmem_pool *pool;
	int ret;

	while ((ret = rpmem_pool_open(&pool, where, &attr)) == -EOPNOTSUPP &&
	       attr.required < RPMEM_POOL_NONE)
		attr.required++;
	if (ret || rpmem_pool_query(pool, &info))
		fail(where);
	printf("%s: class %s by %s\n", where, names[info.reached], info.method);
	return pool;
}

static int run_one_pool(char **argv)
{
	const unsigned int out = (unsigned int)strtoul(argv[3], NULL, 10);
	const unsigned int rounds = (unsigned int)strtoul(argv[4], NULL, 10);
	struct rpmem_pool *pool;

	if (!out || out > OUT)
		return 2;
	pool = open_pool(argv[2]);
	for (unsigned int r = 0; r < rounds; r++)
		round_us(pool, out);
	rpmem_pool_close(pool);
	return 0;
}

int main(int argc, char **argv)
{
	static const unsigned int out[] = {1, OUT};
	const unsigned int rounds =
		argc > 3 ? (unsigned int)strtoul(argv[3], NULL, 10) : 21;
	struct rpmem_pool *pools[2];
	double *us[2];

	if (argc == 5 && !strcmp(argv[1], "--one"))
		return run_one_pool(argv);
	if (argc < 3 || !rounds) {
		fprintf(stderr, "usage: group POOL GROUP [ROUNDS]\n");
		return 2;
	}
	for (unsigned int p = 0; p < 2; p++) {
		us[p] = calloc(rounds, sizeof(*us[p]));
		if (!us[p])
			return 1;
		pools[p] = open_pool(argv[1 + p]);
	}
	for (unsigned int o = 0; o < 2; o++) {
		for (unsigned int r = 0; r < rounds; r++)
			for (unsigned int p = 0; p < 2; p++)
				us[p][r] = round_us(pools[p], out[o]);
		for (unsigned int p = 0; p < 2; p++)
			qsort(us[p], rounds, sizeof(*us[p]), compare);
		printf("%2u outstanding: pool %.1f us, group %.1f us, ratio "
		       "%.2f\n",
		       out[o], us[0][rounds / 2], us[1][rounds / 2],
		       us[1][rounds / 2] / us[0][rounds / 2]);
	}
	for (unsigned int p = 0; p < 2; p++) {
		rpmem_pool_close(pools[p]);
		free(us[p]);
	}
	return 0;
}
