/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program of libpmemobj whose pool set may have a replica on another host.
 * usage: obj_replica create|run|check|flush SET
 *
 * "run" runs transactions in several threads until it is killed, and prints the
 * thread and its number of transactions behind each; "check" prints what the
 * pool has of them.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libpmemobj.h>

#define CELLS	2048u
#define THREADS 4u /* each uses a lane of its own */

/* Transaction n writes n * 3 to cell n % CELLS, and to an object of its own. */
struct part {
	uint64_t n;
	uint64_t cells[CELLS];
	PMEMoid newest;
};

struct root {
	struct part parts[THREADS];
};

static PMEMobjpool *pool;

static int give_up(const char *what)
{
	printf("%s: %s\n", what, pmemobj_errormsg());
	return 1;
}

/* Run the next transaction. It also frees the object of the previous one. */
static int step(struct part *r)
{
	volatile int ret = 0;

	TX_BEGIN(pool)
	{
		const uint64_t n = r->n + 1;

		pmemobj_tx_add_range_direct(&r->n, sizeof(r->n));
		pmemobj_tx_add_range_direct(&r->cells[n % CELLS],
					    sizeof(uint64_t));
		pmemobj_tx_add_range_direct(&r->newest, sizeof(r->newest));
		if (r->n)
			pmemobj_tx_free(r->newest);
		r->newest = pmemobj_tx_alloc(64 + n % 1000, 1);
		*(uint64_t *)pmemobj_direct(r->newest) = n * 3;
		r->cells[n % CELLS] = n * 3;
		r->n = n;
	}
	TX_ONABORT
	{
		ret = -1;
	}
	TX_END
	return ret;
}

static int check(const struct part *r)
{
	for (uint64_t c = 0; c < CELLS; c++) {
		const uint64_t newest = r->n - (r->n - c) % CELLS;
		const uint64_t want = c > r->n || !newest ? 0 : newest * 3;

		if (r->cells[c] != want) {
			printf("cell %llu has %llu, not %llu, behind %llu\n",
			       (unsigned long long)c,
			       (unsigned long long)r->cells[c],
			       (unsigned long long)want,
			       (unsigned long long)r->n);
			return 1;
		}
	}
	if (r->n && *(uint64_t *)pmemobj_direct(r->newest) != r->n * 3) {
		printf("the newest object has another number\n");
		return 1;
	}
	return 0;
}

static int check_all(const struct root *r)
{
	for (unsigned int t = 0; t < THREADS; t++) {
		if (check(&r->parts[t]))
			return 1;
		printf("%u %llu\n", t, (unsigned long long)r->parts[t].n);
	}
	return 0;
}

static void *run(void *part)
{
	const struct root *r = pmemobj_direct(pmemobj_root(pool, sizeof(*r)));
	struct part *p = part;

	while (!step(p)) {
		printf("%u %llu\n", (unsigned int)(p - r->parts),
		       (unsigned long long)p->n);
		fflush(stdout);
	}
	return (void *)"transaction";
}

static int run_all(struct root *r)
{
	pthread_t threads[THREADS];
	void *failed = NULL;

	for (unsigned int t = 0; t < THREADS; t++)
		if (pthread_create(&threads[t], NULL, run, &r->parts[t]))
			return give_up("thread");
	for (unsigned int t = 0; t < THREADS; t++)
		pthread_join(threads[t], &failed);
	return give_up(failed);
}

/* Flush and persist ranges of many sizes, without transactions. */
static int flush_many(struct part *r)
{
	for (unsigned int i = 1; i < CELLS; i *= 2) {
		for (unsigned int c = 0; c < i; c++)
			r->cells[c] = r->cells[c];
		pmemobj_flush(pool, r->cells, i * sizeof(uint64_t));
		pmemobj_drain(pool);
		pmemobj_persist(pool, r->cells, i * sizeof(uint64_t));
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 2 ? argv[1] : "";
	struct root *r;
	int ret = 0;

	if (argc != 3)
		return 2;
	pool = strcmp(verb, "create")
		       ? pmemobj_open(argv[2], "replica")
		       : pmemobj_create(argv[2], "replica", 0, 0600);
	if (!pool)
		return give_up(verb);
	r = pmemobj_direct(pmemobj_root(pool, sizeof(*r)));
	if (!r)
		return give_up("root");
	if (!strcmp(verb, "run"))
		ret = run_all(r);
	else if (!strcmp(verb, "check"))
		ret = check_all(r);
	else if (!strcmp(verb, "flush"))
		ret = flush_many(&r->parts[0]);
	pmemobj_close(pool);
	return ret;
}
