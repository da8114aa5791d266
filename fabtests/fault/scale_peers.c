// SPDX-License-Identifier: BSD-2-Clause
/*
 * The memory that one more peer costs at the target and at itself, beyond what
 * it costs on the base alone.
 */
#include "config.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault/scale.h"

#define FEW   16
#define LIMIT 16384 /* bytes that one more peer may cost */
#define BYTES 4096

enum {
	HEAP,
	RSS,
	SIZES
};

struct world {
	struct card card;
	struct scale_pool pool;
	const char *prov;
	unsigned int max;
	atomic_bool ready, stop;
	atomic_uint requested; /* number of the measurement that the target
				* must make */
	atomic_uint measured;
	/* Sizes in bytes: [few, many peers][target, initiator][heap, RSS]. */
	size_t size[2][2][SIZES];
};

static void measure_memory(size_t *size)
{
	struct mallinfo2 m = mallinfo2();

	size[HEAP] = m.uordblks + m.hblkhd;
	size[RSS] = scale_rss(getpid());
}

static void run_target(void *shared, unsigned int number)
{
	struct fi_cq_tagged_entry e;
	struct world *w = shared;
	struct pair_opts o = {.sleeps = true, .prov = w->prov};
	struct side s;
	unsigned int n;

	side_open(&s, &o);
	memset(w->pool.map, 1, w->pool.len);
	if (!w->prov) {
		scale_export(&s, &w->pool, &w->card);
	} else {
		s.pool = w->pool.map;
		MUST(fi_mr_reg(s.domain, w->pool.map, w->pool.len,
			       FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0,
			       &s.pool_mr, NULL));
		side_card(&s, &w->card);
	}
	atomic_store(&w->ready, true);
	while (!atomic_load(&w->stop)) {
		fi_cq_sread(s.cq, &e, 1, NULL, 20);
		n = atomic_load(&w->requested);
		if (n == atomic_load(&w->measured))
			continue;
		measure_memory(w->size[n - 1][0]);
		atomic_store(&w->measured, n);
	}
}

/*
 * Write by a new endpoint: durably over ofi_rpmem, with delivery-complete on
 * the base.
 */
static void join_endpoint(struct world *w, struct side *s, struct fid_ep *ep)
{
	struct fi_rma_iov at = {w->card.pool_addr, 64, w->card.pool_key};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	char out[64] = "";
	struct iovec iov = {out, sizeof(out)};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &at,
		.rma_iov_count = 1,
	};

	for (int i = 0; i < 20; i++) {
		POST(s, fi_writemsg(ep, &msg,
				    FI_COMPLETION |
					    (w->prov ? FI_DELIVERY_COMPLETE
						     : FI_COMMIT_COMPLETE)));
		if (!side_wait(s, &e, &err))
			MUST(-err.err);
	}
}

static void run_initiator(void *shared, unsigned int number)
{
	struct world *w = shared;
	struct pair_opts o = {.sleeps = true, .prov = w->prov};
	struct fid_ep *ep;
	struct side s;

	while (!atomic_load(&w->ready))
		scale_sleep_ms(10);
	side_open(&s, &o);
	side_insert(&s, &w->card);
	join_endpoint(w, &s, s.ep);
	for (unsigned int n = 1; n <= w->max; n++) {
		unsigned int many = n == w->max;

		if (n == FEW || many) {
			measure_memory(w->size[many][1]);
			atomic_store(&w->requested, many + 1);
			while (atomic_load(&w->measured) != many + 1)
				scale_sleep_ms(1);
		}
		if (many)
			break;
		MUST(fi_endpoint(s.domain, s.info, &ep, NULL));
		MUST(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV));
		MUST(fi_ep_bind(ep, &s.av->fid, 0));
		MUST(fi_enable(ep));
		join_endpoint(w, &s, ep);
	}
}

/*
 * Measure the memory that one more peer costs at each end, over prov (NULL:
 * ofi_rpmem).
 */
static void per_peer(const char *prov, unsigned int max, double cost[2][SIZES])
{
	struct world *w = scale_shared(sizeof(*w));
	pid_t t, i;

	w->prov = prov;
	w->max = max;
	w->pool.len = BYTES;
	w->pool.map = scale_shared(BYTES);
	t = scale_fork(run_target, w, 0);
	i = scale_fork(run_initiator, w, 0);
	tap_ok(scale_join(i), "%s: %u endpoints have met the target",
	       prov ? prov : "tcp;ofi_rpmem", max);
	scale_kill(t);
	for (int end = 0; end < 2; end++)
		for (int k = 0; k < SIZES; k++)
			cost[end][k] = ((double)w->size[1][end][k] -
					(double)w->size[0][end][k]) /
				       (max - FEW);
}

void scale_peers(unsigned int max)
{
	static const char *const name[] = {"target", "initiator"};
	double base[2][SIZES], ours[2][SIZES], more[2] = {0, 0};

	if (max <= FEW)
		MUST(-EINVAL);
	/*
	 * With its default buffers of 16 KiB an endpoint of ofi_rxm takes 100
	 * MB of memory.
	 */
	setenv("FI_OFI_RXM_BUFFER_SIZE", "1024", 1);
	setenv("FI_OFI_RXM_MSG_RX_SIZE", "16", 1);
	per_peer("tcp", max, base);
	per_peer(NULL, max, ours);
	for (int end = 0; end < 2; end++) {
		for (int k = 0; k < SIZES; k++) {
			double d = ours[end][k] - base[end][k];

			more[end] = d > more[end] ? d : more[end];
		}
		printf("# %s: heap %.0f over the base's %.0f, memory %.0f over "
		       "%.0f\n",
		       name[end], ours[end][HEAP] - base[end][HEAP],
		       base[end][HEAP], ours[end][RSS] - base[end][RSS],
		       base[end][RSS]);
	}
	printf("# bytes_per_peer %.0f\n", more[0] + more[1]);
	tap_ok(more[0] + more[1] <= LIMIT,
	       "a peer costs %.0f bytes at the target and %.0f at itself more "
	       "than on the base, of %d",
	       more[0], more[1], LIMIT);
}
