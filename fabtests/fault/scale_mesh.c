// SPDX-License-Identifier: BSD-2-Clause
/*
 * Processes with several endpoints each ("nodes"): every endpoint commits to
 * every other. The work of one commit must not grow with their number.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fault/scale.h"

#define MAX_EPS 128
#define ROUNDS	3
#define WINDOW	32
#define SLOT	64

/* Shared by all nodes. Each writes its cards before the first barrier. */
struct world {
	unsigned int nodes, eps, all;
	struct card card[MAX_EPS];
	atomic_uint met[ROUNDS + 3];
	_Atomic double took[ROUNDS];
	atomic_ulong cpu; /* CPU time of all nodes in the last round, ns */
	atomic_uint failed, wrong;
};

struct node {
	struct side s;
	struct world *w;
	struct scale_pool pool;
	struct fid_ep *ep[MAX_EPS];
	fi_addr_t peer[MAX_EPS];
	unsigned int number, outstanding;
	char out[WINDOW][SLOT];
};

static void poll_once(struct node *n, int timeout)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};
	/*
	 * To wait, call fi_cq_sread(): fi_cq_read() of ofi_rxm reads connection
	 * events only in every 128th call.
	 */
	ssize_t got = timeout ? fi_cq_sread(n->s.cq, &e, 1, NULL, timeout)
			      : fi_cq_read(n->s.cq, &e, 1);

	if (got == -FI_EAVAIL && fi_cq_readerr(n->s.cq, &err, 0) == 1) {
		printf("# node %u: status %d\n", n->number, err.prov_errno);
		atomic_fetch_add(&n->w->failed, 1);
		got = 1;
	}
	if (got == 1)
		n->outstanding--;
}

/*
 * A barrier of all nodes. Polls meanwhile, because other nodes need this node's
 * progress.
 */
static void meet_others(struct node *n, unsigned int at)
{
	atomic_fetch_add(&n->w->met[at], 1);
	while (atomic_load(&n->w->met[at]) < n->w->nodes)
		poll_once(n, 5);
}

static void open_all(struct node *n)
{
	const struct pair_opts o = {.sleeps = true};
	struct world *w = n->w;

	side_open(&n->s, &o);
	n->pool.len = (size_t)w->all * w->eps * SLOT;
	n->pool.map = scale_shared(n->pool.len);
	for (unsigned int i = 0; i < w->eps; i++) {
		struct card *c = &w->card[n->number * w->eps + i];

		n->ep[i] = n->s.ep;
		if (!i) {
			scale_export(&n->s, &n->pool, c);
			continue;
		}
		MUST(fi_endpoint(n->s.domain, n->s.info, &n->ep[i], NULL));
		MUST(fi_ep_bind(n->ep[i], &n->s.cq->fid,
				FI_TRANSMIT | FI_RECV));
		MUST(fi_ep_bind(n->ep[i], &n->s.av->fid, 0));
		MUST(fi_enable(n->ep[i]));
		*c = c[-(int)i];
		c->len = sizeof(c->name);
		MUST(fi_getname(&n->ep[i]->fid, c->name, &c->len));
	}
	meet_others(n, 0);
	for (unsigned int i = 0; i < w->all; i++)
		if (fi_av_insert(n->s.av, w->card[i].name, 1, &n->peer[i], 0,
				 NULL) != 1)
			MUST(-FI_EADDRNOTAVAIL);
}

static void fill_bytes(char *bytes, unsigned int from, unsigned int to,
		       int round)
{
	for (unsigned int i = 0; i < SLOT; i++)
		bytes[i] =
			(char)(from * 7 + to * 13 + i + (unsigned)round * 31);
}

static void send_one(struct node *n, unsigned int mine, unsigned int to,
		     int round, char *out)
{
	struct world *w = n->w;
	unsigned int from = n->number * w->eps + mine;
	const struct card *c = &w->card[to];
	struct fi_rma_iov at = {
		.addr = c->pool_addr +
			((uint64_t)from * w->eps + to % w->eps) * SLOT,
		.len = SLOT,
		.key = c->pool_key,
	};
	struct iovec iov = {out, SLOT};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = n->peer[to],
		.rma_iov = &at,
		.rma_iov_count = 1,
	};
	ssize_t ret;

	fill_bytes(out, from, to, round);
	while ((ret = fi_writemsg(n->ep[mine], &msg,
				  FI_COMMIT_COMPLETE | FI_COMPLETION)) ==
	       -FI_EAGAIN)
		poll_once(n, 0);
	MUST(ret);
	n->outstanding++;
}

/* CPU time of this process in ns: it does not depend on the machine's load. */
static unsigned long cpu_time_used(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (unsigned long)t.tv_sec * 1000000000ul +
	       (unsigned long)t.tv_nsec;
}

static void run_node(void *shared, unsigned int number)
{
	struct world *w = shared;
	struct node *n = calloc(1, sizeof(*n));
	unsigned int slot = 0;
	char want[SLOT];
	unsigned long cpu = 0;
	double start;

	if (!n)
		MUST(-ENOMEM);
	n->w = w;
	n->number = number;
	open_all(n);
	for (int r = 0; r < ROUNDS; r++) {
		meet_others(n, 1 + r);
		start = scale_now();
		cpu = cpu_time_used();
		for (unsigned int i = 0; i < w->all; i++)
			for (unsigned int k = 0; k < w->eps; k++) {
				/*
				 * Each node starts at another peer, so that not
				 * all commit to one peer at once.
				 */
				unsigned int to =
					(i + number * w->eps) % w->all;

				if (to == number * w->eps + k)
					continue;
				while (n->outstanding >= WINDOW)
					poll_once(n, 100);
				slot = (slot + 1) % WINDOW;
				if (!slot)
					while (n->outstanding)
						poll_once(n, 100);
				send_one(n, k, to, r, n->out[slot]);
			}
		while (n->outstanding)
			poll_once(n, 100);
		meet_others(n, 2 + r);
		cpu = cpu_time_used() - cpu;
		if (!number)
			w->took[r] = scale_now() - start;
	}
	atomic_fetch_add(&w->cpu, cpu);
	for (unsigned int from = 0; from < w->all; from++)
		for (unsigned int k = 0; k < w->eps; k++) {
			unsigned int to = number * w->eps + k;

			fill_bytes(want, from, to, ROUNDS - 1);
			if (from != to &&
			    memcmp(n->pool.map +
					   ((size_t)from * w->eps + k) * SLOT,
				   want, SLOT))
				atomic_fetch_add(&w->wrong, 1);
		}
	meet_others(n, ROUNDS + 2);
}

/*
 * Run the mesh. Returns the microseconds of CPU time for one commit, in the
 * last round, when all are connected.
 */
static double measure_mesh(unsigned int nodes, unsigned int eps)
{
	struct world *w = scale_shared(sizeof(*w));
	unsigned int commits;
	bool well = true;
	pid_t pids[MAX_EPS];
	double us;

	w->nodes = nodes;
	w->eps = eps;
	w->all = nodes * eps;
	commits = w->all * (w->all - 1);
	for (unsigned int i = 0; i < nodes; i++)
		pids[i] = scale_fork(run_node, w, i);
	for (unsigned int i = 0; i < nodes; i++)
		well &= scale_join(pids[i]);
	us = (double)w->cpu * 1e-3 / commits;
	printf("# %u endpoints: %u commits; first %.3f s, then %.3f s and %.3f "
	       "s, %.0f us of work for one\n",
	       w->all, commits, w->took[0], w->took[1], w->took[2], us);
	tap_ok(well && !w->failed && !w->wrong,
	       "%u endpoints in %u processes: %u commits failed, %u slots "
	       "wrong",
	       w->all, nodes, w->failed, w->wrong);
	return us;
}

void scale_mesh(unsigned int nodes, unsigned int eps)
{
	double few, many;

	if (nodes * eps > MAX_EPS || eps < 4)
		MUST(-EINVAL);
	/*
	 * With its default buffers of 16 KiB an endpoint of ofi_rxm takes 100
	 * MB of memory.
	 */
	setenv("FI_OFI_RXM_BUFFER_SIZE", "1024", 1);
	few = measure_mesh(nodes, eps / 4);
	many = measure_mesh(nodes, eps);
	tap_ok(many < 8 * few,
	       "four times the endpoints: a commit is %.1f times the work",
	       many / few);
}
