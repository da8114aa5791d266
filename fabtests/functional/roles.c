// SPDX-License-Identifier: BSD-2-Clause
/*
 * An endpoint that was only an initiator becomes a target: it can receive long
 * requests, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "functional/pair.h"

#define RANGES 100

static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool commit_writes(struct side *s, const struct card *peer, size_t n)
{
	struct fi_rma_iov v[RANGES];

	for (size_t i = 0; i < n; i++)
		v[i] = (struct fi_rma_iov){peer->pool_addr + 64 * i, 8,
					   peer->pool_key};
	POST(s, commit_post(s->ep, v, n, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, v));
	return side_wait(s, &e, &err);
}

static void run_target_then_initiator(struct side *s, const struct card *peer)
{
	struct card theirs;
	double start;

	side_insert(s, peer);
	POST(s, fi_recv(s->ep, &theirs, sizeof(theirs), NULL, FI_ADDR_UNSPEC,
			NULL));
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
	for (int i = 0; i < 20; i++) {
		start = now();
		if (!commit_writes(s, &theirs, RANGES))
			MUST(-err.err);
		/*
		 * A request that was truncated would be sent again only after
		 * 10 s.
		 */
		if (now() - start > 5)
			MUST(-FI_ETIMEDOUT);
	}
	pair_barrier(s);
}

static void run_initiator_then_target(struct side *s, const struct card *peer)
{
	struct card mine;

	tap_ok(commit_writes(s, peer, 1), "it commits");
	side_memory(s);
	side_card(s, &mine);
	POST(s, fi_send(s->ep, &mine, sizeof(mine), NULL, s->peer, NULL));
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
	pair_barrier(s);
	tap_ok(commit_writes(s, peer, RANGES),
	       "it serves at once, and still commits");
}

int main(void)
{
	const struct pair_opts plain = {0};
	const struct pair_opts sockets = {.prov = "sockets;ofi_rpmem"};

	setbuf(stdout, NULL);
	setenv("FI_OFI_RPMEM_TIMEOUT", "20000", 1);
	pair_run(&plain, &plain, run_target_then_initiator,
		 run_initiator_then_target);
	pair_run(&sockets, &sockets, run_target_then_initiator,
		 run_initiator_then_target);
	return tap_done();
}
