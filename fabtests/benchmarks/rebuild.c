// SPDX-License-Identifier: BSD-2-Clause
/*
 * The rebuild of a member of a group of pools, alone and beside durable writes
 * of 64 bytes, for rebuild.sh:
 *
 *   rebuild GROUP COMMAND [ROUNDS]
 *
 * COMMAND puts an empty pool in the place of the last member. Prints the rate
 * of an idle copy and of one beside writes, the writes a second without a copy
 * and beside it, and the medians of both ratios, which are made in each round.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rpmem_pool.h>

#define PIECE	1048576u
#define SECONDS 3.0 /* length of a measurement without a copy */
#define ROUNDS	16u /* at most */

static struct rpmem_pool *pool;
static struct rpmem_pool_info info = {.size = sizeof(info)};

static void fail(const char *what)
{
	fprintf(stderr, "rebuild: %s: %s\n", what, rpmem_pool_error());
	exit(1);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void pause_ms(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Bytes that are not zero, because zeros are not sent. */
static void fill(void)
{
	static unsigned char bytes[PIECE];

	memset(bytes, 0x5a, sizeof(bytes));
	for (uint64_t at = 0; at < info.length; at += PIECE)
		if (rpmem_pool_write(pool, bytes,
				     info.length - at < PIECE ? info.length - at
							      : PIECE,
				     at, 0))
			fail("write");
	if (rpmem_pool_commit(pool))
		fail("commit");
}

static enum rpmem_pool_state last_state(void)
{
	struct rpmem_pool_member m = {.size = sizeof(m)};

	if (rpmem_pool_member(pool, info.members - 1, &m))
		fail("member");
	return m.state;
}

static void write_one(unsigned int i)
{
	unsigned char bytes[64];

	memset(bytes, (int)i, sizeof(bytes));
	if (rpmem_pool_write(pool, bytes, sizeof(bytes), i % 1024 * 64,
			     RPMEM_POOL_DURABLE))
		fail("durable write");
}

static double writes_per_s(void)
{
	const double start = now_s();
	unsigned int n = 0;

	while (now_s() - start < SECONDS)
		write_one(n++);
	return n / (now_s() - start);
}

/* Replace the last member. Returns bytes a second; *writes: those a second. */
static double copy_rate(const char *command, double *writes)
{
	unsigned int n = 0;
	double start;

	if (system(command))
		fail(command);
	/* An idle group finds out by its next operation. */
	while (last_state() != RPMEM_POOL_COPYING) {
		write_one(n);
		pause_ms();
	}
	start = now_s();
	while (last_state() == RPMEM_POOL_COPYING)
		if (writes)
			write_one(n++);
		else
			pause_ms();
	if (last_state() == RPMEM_POOL_AWAY)
		fail("the new member is lost");
	if (writes)
		*writes = n / (now_s() - start);
	return (double)info.length / (now_s() - start);
}

static void await_current(void)
{
	while (last_state() != RPMEM_POOL_CURRENT)
		pause_ms();
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, unsigned int n)
{
	qsort(v, n, sizeof(*v), compare);
	return v[n / 2];
}

int main(int argc, char **argv)
{
	const unsigned int rounds =
		argc > 3 ? (unsigned int)strtoul(argv[3], NULL, 10) : 3;
	struct rpmem_pool_attr attr = {
		.size = sizeof(attr),
		.exclusive = RPMEM_POOL_EXCLUSIVE,
	};
	double copies[ROUNDS], writes[ROUNDS];

	if (argc < 3 || !rounds || rounds > ROUNDS) {
		fprintf(stderr, "usage: rebuild GROUP COMMAND [ROUNDS]\n");
		return 2;
	}
	if (rpmem_pool_open(&pool, argv[1], &attr) ||
	    rpmem_pool_query(pool, &info))
		fail(argv[1]);
	await_current();
	fill();
	for (unsigned int r = 0; r < rounds; r++) {
		const double before = writes_per_s();
		const double idle = copy_rate(argv[2], NULL);
		double beside, busy, after;

		await_current();
		busy = copy_rate(argv[2], &beside);
		await_current();
		after = writes_per_s();
		copies[r] = busy / idle;
		writes[r] = beside / ((before + after) / 2);
		printf("copy: idle %.1f, beside writes %.1f MB/s; writes: "
		       "%.0f and %.0f, beside the copy %.0f a second\n",
		       idle / 1e6, busy / 1e6, before, after, beside);
		fflush(stdout);
	}
	printf("copy beside writes / idle copy: %.2f\n",
	       median(copies, rounds));
	printf("writes beside the copy / without: %.2f\n",
	       median(writes, rounds));
	rpmem_pool_close(pool);
	return 0;
}
