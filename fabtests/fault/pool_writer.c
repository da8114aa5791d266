// SPDX-License-Identifier: BSD-2-Clause
/*
 * Threads write to a pool through librpmem_pool and read back, while
 * pool_restart.sh kills and restarts the target.
 *
 *   pool_writer WHERE CLASS ROUNDS write    prints "round N" from time to time
 *   pool_writer WHERE CLASS ROUNDS check    compares the whole pool
 *
 * Both commands derive the bytes from RP_SEED alone.
 *
 *   pool_writer WHERE CLASS 0 drop          closes with operations outstanding
 *   pool_writer WHERE CLASS ROUNDS ledger   prints "acked N" after each
 *                                           durable write of record N
 *   pool_writer WHERE CLASS 0 found         checks the records whose numbers
 *                                           are on stdin
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rpmem_pool.h>

#include "fabtests/unit/seeded.h"

#define THREADS 4u
#define PART	(1u << 20) /* bytes of the pool for each thread */
#define LONGEST 20000u
#define BATCH	16u

struct worker {
	struct rpmem_pool *pool;
	unsigned int index;
	unsigned int rounds;
	bool dry; /* only compute the model, post nothing */
	struct seeded random;
	unsigned char *model; /* bytes that the thread's part of the pool
			       * must have */
	int failed;
	pthread_t thread;
};

static int report_wrong(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, rpmem_pool_error());
	return -1;
}

static uint64_t part_start(const struct worker *w)
{
	return (uint64_t)w->index * PART;
}

/* Write random bytes or zeros to the model and to the pool. */
static int write_one(struct worker *w, unsigned int flags)
{
	const size_t len = 1 + seeded_below(&w->random, LONGEST);
	const size_t at = seeded_below(&w->random, PART - len);

	const bool zero = seeded_below(&w->random, 5) == 0;

	for (size_t i = 0; i < len; i++)
		w->model[at + i] =
			zero ? 0 : (unsigned char)seeded_next(&w->random);
	if (w->dry)
		return 0;
	if (zero)
		return rpmem_pool_zero(w->pool, len, part_start(w) + at, flags)
			       ? report_wrong("zero")
			       : 0;
	return rpmem_pool_write(w->pool, w->model + at, len, part_start(w) + at,
				flags)
		       ? report_wrong("write")
		       : 0;
}

static int read_one(struct worker *w)
{
	const size_t len = 1 + seeded_below(&w->random, LONGEST);
	const size_t at = seeded_below(&w->random, PART - len);
	unsigned char got[LONGEST];

	if (w->dry)
		return 0;
	if (rpmem_pool_read(w->pool, got, len, part_start(w) + at))
		return report_wrong("read");
	if (!memcmp(got, w->model + at, len))
		return 0;
	fprintf(stderr, "thread %u: %zu bytes at %zu differ\n", w->index, len,
		at);
	return -1;
}

/* Submit BATCH disjoint writes and a commit, then wait for all. */
static int write_batch(struct worker *w)
{
	struct rpmem_pool_op ops[BATCH + 1] = {0}, *done[BATCH + 1];
	const size_t len = LONGEST / BATCH;
	const size_t at = seeded_below(&w->random, PART - LONGEST);
	unsigned int left = BATCH + 1;
	int n;

	for (unsigned int i = 0; i < BATCH; i++) {
		ops[i].type = RPMEM_POOL_WRITE;
		ops[i].buf = w->model + at + i * len;
		ops[i].len = len;
		ops[i].offset = part_start(w) + at + i * len;
		memset(ops[i].buf, (int)seeded_next(&w->random), len);
	}
	ops[BATCH].type = RPMEM_POOL_COMMIT;
	if (w->dry)
		return 0;
	for (unsigned int i = 0; i <= BATCH; i++)
		if (rpmem_pool_submit(w->pool, &ops[i]))
			return report_wrong("submit");
	while (left) {
		n = rpmem_pool_poll(w->pool, done, BATCH + 1, -1);
		if (n < 0)
			return report_wrong("poll");
		for (int i = 0; i < n; i++)
			if (done[i]->result) {
				fprintf(stderr, "operation: %s\n",
					done[i]->error);
				return -1;
			}
		left -= (unsigned int)n;
	}
	return 0;
}

#define DROPPED	 16u
#define DROP_LEN (3u << 20) /* long enough for several posts */

/*
 * Submit long writes and reads, and poll once. The caller then closes the pool
 * while they are outstanding.
 */
static int close_with_work(struct rpmem_pool *pool, struct rpmem_pool_op *ops,
			   char *bytes)
{
	struct rpmem_pool_op *done;

	for (unsigned int i = 0; i < DROPPED; i++) {
		ops[i] = (struct rpmem_pool_op){
			.type = i % 2 ? RPMEM_POOL_READ : RPMEM_POOL_WRITE,
			.buf = bytes + (size_t)i * DROP_LEN,
			.len = DROP_LEN,
			.offset = (uint64_t)i * DROP_LEN,
		};
		if (rpmem_pool_submit(pool, &ops[i]))
			return report_wrong("submit");
	}
	return rpmem_pool_poll(pool, &done, 1, 0) < 0 ? report_wrong("poll")
						      : 0;
}

/* The records of the command ledger; up to IN_FLIGHT are outstanding. */
#define RECORD	  64u
#define STRIDE	  4096u /* one page each, so that no flush covers two */
#define IN_FLIGHT 32u

/* The value of every byte of record n. */
static unsigned char record_byte(uint64_t n)
{
	return (unsigned char)(1 + n % 255);
}

static int write_ledger(struct rpmem_pool *pool, unsigned int rounds)
{
	unsigned char bytes[IN_FLIGHT][RECORD];
	struct rpmem_pool_op ops[IN_FLIGHT] = {0}, *done[IN_FLIGHT];
	unsigned int next = 1, left = 0;
	int n;

	for (unsigned int i = 0; i < IN_FLIGHT; i++)
		ops[i] = (struct rpmem_pool_op){
			.type = RPMEM_POOL_WRITE,
			.flags = RPMEM_POOL_DURABLE,
			.buf = bytes[i],
			.len = RECORD,
		};
	for (unsigned int i = 0; i < IN_FLIGHT && i < rounds; i++, left++) {
		memset(ops[i].buf, record_byte(next), RECORD);
		ops[i].offset = (uint64_t)next++ * STRIDE;
		if (rpmem_pool_submit(pool, &ops[i]))
			return report_wrong("submit");
	}
	while (left) {
		n = rpmem_pool_poll(pool, done, IN_FLIGHT, -1);
		if (n < 0)
			return report_wrong("poll");
		for (int i = 0; i < n; i++, left--) {
			if (done[i]->result) {
				fprintf(stderr, "write: %s\n", done[i]->error);
				return -1;
			}
			printf("acked %llu\n",
			       (unsigned long long)done[i]->offset / STRIDE);
			fflush(stdout);
			if (next > rounds)
				continue;
			memset(done[i]->buf, record_byte(next), RECORD);
			done[i]->offset = (uint64_t)next++ * STRIDE;
			if (rpmem_pool_submit(pool, done[i]))
				return report_wrong("submit");
			left++;
		}
	}
	return 0;
}

/* Check the records whose "acked N" lines are on stdin. */
static int check_numbers(struct rpmem_pool *pool)
{
	unsigned char got[RECORD];
	unsigned int n, count = 0;

	while (scanf("acked %u\n", &n) == 1) {
		if (rpmem_pool_read(pool, got, RECORD, (uint64_t)n * STRIDE))
			return report_wrong("read");
		for (unsigned int i = 0; i < RECORD; i++)
			if (got[i] != record_byte(n)) {
				fprintf(stderr, "record %u is lost\n", n);
				return -1;
			}
		count++;
	}
	printf("%u records\n", count);
	return count ? 0 : -1;
}

static void *run_thread(void *arg)
{
	struct worker *w = arg;

	for (unsigned int i = 0; i < w->rounds && !w->failed; i++) {
		switch (seeded_below(&w->random, 10)) {
		case 0:
			w->failed = write_one(w, RPMEM_POOL_DURABLE);
			break;
		case 1:
			if (!w->dry && rpmem_pool_commit(w->pool))
				w->failed = report_wrong("commit");
			break;
		case 2:
		case 3:
			w->failed = read_one(w);
			break;
		case 4:
			/*
			 * Only thread 0, because a poll returns operations of
			 * all threads.
			 */
			if (w->index == 0)
				w->failed = write_batch(w);
			break;
		default:
			w->failed = write_one(w, 0);
		}
		if (!w->dry && w->index == 0 && i % 50 == 49) {
			printf("round %u\n", i + 1);
			fflush(stdout);
		}
	}
	return NULL;
}

static int compare_with_model(struct rpmem_pool *pool,
			      const unsigned char *model)
{
	unsigned char *got = malloc(THREADS * PART);
	int ret = 0;

	if (!got || rpmem_pool_read(pool, got, THREADS * PART, 0))
		ret = report_wrong("read");
	for (size_t i = 0; !ret && i < THREADS * PART; i++)
		if (got[i] != model[i]) {
			fprintf(stderr, "byte %zu differs\n", i);
			ret = -1;
		}
	free(got);
	return ret;
}

int main(int argc, char **argv)
{
	struct seeded random = seeded_start();
	struct rpmem_pool_attr attr = {.size = sizeof(attr), .timeout = 300};
	struct rpmem_pool_info info = {.size = sizeof(info)};
	struct worker w[THREADS];
	unsigned char *model = calloc(THREADS, PART);
	struct rpmem_pool *pool;
	bool dry;
	int failed = 0;

	if (argc != 5 || !model)
		return 2;
	dry = !strcmp(argv[4], "check");
	if (!strcmp(argv[2], "process"))
		attr.required = RPMEM_POOL_PROCESS;
	if (!strcmp(argv[2], "none"))
		attr.required = RPMEM_POOL_NONE;
	if (rpmem_pool_open(&pool, argv[1], &attr))
		return -report_wrong("open");
	if (!strcmp(argv[4], "drop")) {
		static struct rpmem_pool_op ops[DROPPED];
		char *bytes = calloc(DROPPED, DROP_LEN);

		failed = bytes ? close_with_work(pool, ops, bytes) : -1;
		rpmem_pool_close(pool);
		free(bytes);
		free(model);
		return -failed;
	}
	if (!strcmp(argv[4], "ledger") || !strcmp(argv[4], "found")) {
		failed = *argv[4] == 'l'
				 ? write_ledger(pool,
						(unsigned int)atoi(argv[3]))
				 : check_numbers(pool);
		rpmem_pool_close(pool);
		free(model);
		return -failed;
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){
			.pool = pool,
			.index = i,
			.rounds = (unsigned int)atoi(argv[3]),
			.dry = dry,
			.random = random,
			.model = model + (size_t)i * PART,
		};
		w[i].random.state += i;
		if (pthread_create(&w[i].thread, NULL, run_thread, &w[i]))
			return 2;
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		failed |= w[i].failed;
	}
	if (!failed && !dry && rpmem_pool_commit(pool))
		failed = report_wrong("last commit");
	if (!failed)
		failed = compare_with_model(pool, model);
	if (!rpmem_pool_query(pool, &info) && !dry) {
		printf("%llu reconnects, %llu bytes kept\n",
		       (unsigned long long)info.reconnects,
		       (unsigned long long)info.kept);
		/* After a commit of everything the journal must be empty. */
		if (!failed && info.kept) {
			fprintf(stderr, "bytes are kept without need\n");
			failed = -1;
		}
	}
	rpmem_pool_close(pool);
	free(model);
	return failed ? 1 : 0;
}
