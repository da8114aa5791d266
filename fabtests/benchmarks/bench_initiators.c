// SPDX-License-Identifier: BSD-2-Clause
/* Cases of fi_rpmem_bench with many initiators, each with its own connection.
 */
#include "config.h"

#include <errno.h>

#include "fabtests/benchmarks/bench.h"

#define SAMPLE_WRITES 128u /* writes of one sample, over all initiators */

/*
 * All initiators run in this process and are polled in turn: more processes
 * than CPUs would measure the scheduler, not the provider.
 */
static int initiators_open(struct bench *b, enum bench_side side, uint64_t n,
			   char *err)
{
	struct rp_fabric_attr attr = {
		.base = b->cfg->base,
		.bare = side == BENCH_BASE,
	};

	for (uint64_t i = 0; i < n; i++) {
		struct bench_end *e = &b->initiators[side][i];
		int ret;

		if (e->ok)
			continue;
		ret = rp_fabric_open(&attr, &e->f, err);
		if (!ret)
			ret = rp_fabric_reg(&e->f, b->buf, BENCH_BUF,
					    FI_READ | FI_WRITE, 0, &e->mr, err);
		if (!ret)
			ret = rp_fabric_peer(&e->f,
					     b->shared->target[side].name,
					     &e->peer, err);
		if (ret)
			return ret;
		e->key = b->end[side].key;
		e->addr = b->end[side].addr;
		e->ok = true;
	}
	return 0;
}

void bench_initiators_close(struct bench *b)
{
	for (int side = 0; side < BENCH_SIDES; side++) {
		for (int i = 0; i < BENCH_MAX_INITIATORS; i++) {
			if (b->initiators[side][i].mr)
				fi_close(&b->initiators[side][i].mr->fid);
			rp_fabric_close(&b->initiators[side][i].f);
		}
	}
}

/* Each initiator has one write outstanding; *ns is the mean time of a write. */
static int measure_initiators(struct bench *b, const struct bench_line *l,
			      enum bench_side side, uint64_t flags,
			      uint64_t *ns, char *err)
{
	size_t left[BENCH_MAX_INITIATORS], busy = 0;
	struct fi_cq_entry done;
	uint64_t n = l->ranges, start, end;
	int ret;

	if (!n || n > BENCH_MAX_INITIATORS)
		return rp_err(err, -EINVAL, "1 to %d initiators",
			      BENCH_MAX_INITIATORS);
	ret = initiators_open(b, side, n, err);
	start = bench_now();
	end = start + 30000000000ull;
	for (uint64_t i = 0; !ret && i < n; i++) {
		size_t taken = 0;

		left[i] = SAMPLE_WRITES / n;
		ret = bench_post(b, &b->initiators[side][i],
				 i * bench_stride(l->size), l->size,
				 flags | FI_COMPLETION, &taken, err);
		busy++;
	}
	while (!ret && busy) {
		for (uint64_t i = 0; !ret && i < n; i++) {
			struct bench_end *e = &b->initiators[side][i];
			size_t taken = 0;
			ssize_t got;

			if (!left[i])
				continue;
			got = fi_cq_read(e->f.cq, &done, 1);
			if (got == -FI_EAVAIL)
				ret = bench_read_cq(e, 1, err);
			if (got != 1)
				continue;
			if (--left[i] == 0)
				busy--;
			else
				ret = bench_post(b, e,
						 i * bench_stride(l->size),
						 l->size, flags | FI_COMPLETION,
						 &taken, err);
		}
		if (!ret && bench_now() > end)
			ret = rp_err(err, -ETIMEDOUT,
				     "initiators: no completion in 30 s");
	}
	*ns = (bench_now() - start) / (SAMPLE_WRITES / n * n);
	return ret;
}

int bench_run_initiators_base(struct bench *b, const struct bench_line *l,
			      uint64_t *ns, char *err)
{
	return measure_initiators(b, l, BENCH_BASE, FI_DELIVERY_COMPLETE, ns,
				  err);
}

int bench_run_initiators(struct bench *b, const struct bench_line *l,
			 uint64_t *ns, char *err)
{
	return measure_initiators(b, l, BENCH_RPMEM, FI_COMMIT_COMPLETE, ns,
				  err);
}
