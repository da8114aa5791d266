// SPDX-License-Identifier: BSD-2-Clause
/* Many clients of the example rpc_server at the same time, for rpc.sh. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <rpmem_rpc.h>

#define CALLS 4u

static const char *where;
static struct rpmem_rpc *clients[RPMEM_RPC_CLIENTS];
static int failures;

static void report(const char *what)
{
	fprintf(stderr, "rpc_many: %s: %s\n", what, rpmem_rpc_error());
	__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
}

/*
 * Run one client. The server must keep its sum, 1 + 2 + ..., apart from those
 * of the other clients.
 */
static void *run(void *arg)
{
	struct rpmem_rpc **c = arg;
	const uint64_t step = (uint64_t)(c - clients) + 1;
	struct rpmem_rpc_op ops[CALLS] = {{0}}, *done[CALLS];
	uint64_t numbers[CALLS], sums[CALLS];
	unsigned int got = 0;
	int n;

	for (unsigned int i = 0; i < CALLS; i++) {
		numbers[i] = step * i;
		ops[i] = (struct rpmem_rpc_op){
			.buf = &numbers[i],
			.len = sizeof(numbers[i]),
			.reply = &sums[i],
			.reply_max = sizeof(sums[i]),
		};
		if (rpmem_rpc_submit(*c, &ops[i])) {
			report("submit");
			return NULL;
		}
	}
	while (got < CALLS) {
		n = rpmem_rpc_poll(*c, done, CALLS, 60000);
		if (n <= 0) {
			report("poll");
			return NULL;
		}
		got += (unsigned int)n;
	}
	for (unsigned int i = 0; i < CALLS; i++)
		if (ops[i].result || sums[i] != step * i * (i + 1) / 2) {
			fprintf(stderr,
				"rpc_many: client %u: sum %u is wrong\n",
				(unsigned int)step, i);
			__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
			return NULL;
		}
	return NULL;
}

int main(int argc, char **argv)
{
	const unsigned int n = argc == 3 ? (unsigned int)atoi(argv[2]) : 0;
	pthread_t threads[RPMEM_RPC_CLIENTS];
	struct rpmem_rpc *more;
	int ret;

	if (!n || n > RPMEM_RPC_CLIENTS)
		return 2;
	where = argv[1];
	for (unsigned int i = 0; i < n; i++)
		if (rpmem_rpc_connect(&clients[i], where, NULL)) {
			report("connect");
			return 1;
		}
	ret = rpmem_rpc_connect(&more, where, NULL);
	if (n == RPMEM_RPC_CLIENTS && ret != -EBUSY) {
		fprintf(stderr, "rpc_many: one more client: %d\n", ret);
		return 1;
	}
	for (unsigned int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, run, &clients[i]))
			return 1;
	for (unsigned int i = 0; i < n; i++) {
		pthread_join(threads[i], NULL);
		rpmem_rpc_close(clients[i], 0);
	}
	return failures != 0;
}
