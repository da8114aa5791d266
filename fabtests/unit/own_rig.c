// SPDX-License-Identifier: BSD-2-Clause
/* An initiator that may be granted rights, and a base that takes reads. */
#include <errno.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "core/own.h"
#include "own_rig.h"

struct rig g;
struct rp_peer *p;
struct rig_session s;
struct rig_told c0, c1;
struct rp_write w0, w1;

struct rig_read reads[8];
unsigned int nreads;
int fence_ret;

static int x_fence(struct rp_xport *x, uint64_t peer, uint64_t base_key,
		   uint64_t addr, size_t len, struct rp_fence *f)
{
	if (fence_ret)
		return fence_ret;
	cr_assert_lt(nreads, 8);
	reads[nreads].peer = peer;
	reads[nreads].key = base_key;
	reads[nreads].addr = addr;
	reads[nreads].len = len;
	reads[nreads++].f = f;
	return 0;
}

enum rp_method forced;
enum rp_path path = RP_PATH_DMA;
const struct rp_cost *cost;

void start(bool own)
{
	static struct rp_xport_ops ops;
	struct rp_initiator_attr attr = rig_attr();

	attr.own = own;
	attr.forced = forced;
	attr.path = path;
	attr.cost = cost;
	rig_start(&g, &attr);
	ops = *g.x.ops;
	ops.fence = x_fence;
	g.x.ops = &ops;
	p = rig_peer(&g);
	nreads = 0;
	fence_ret = 0;
}

struct rp_commit_attr commit_of(struct rig_told *t,
				const struct rp_wire_range *r, size_t n,
				enum rp_class required)
{
	*t = (struct rig_told){0};
	return (struct rp_commit_attr){
		.ranges = r,
		.nranges = n,
		.level = RP_LEVEL_DURABLE,
		.required = required,
		.done = rig_done,
		.arg = t,
	};
}

void confirm(uint32_t n, enum rp_method m, enum rp_class class)
{
	const struct rp_wire_reply r = {
		.level = RP_LEVEL_DURABLE,
		.class = class,
		.method = RP_METHOD_AGENT_CLWB,
		.credits = 8,
		.grant = m,
		.addr = m ? 4096 : 0,
		.length = m ? 4096 : 0,
	};
	struct rp_wire_range range = rig_range(n, 4096, 64);
	const struct rp_commit_attr attr = commit_of(&c0, &range, 1, class);

	cr_assert_eq(rp_commit_post(p, &attr), 0);
	if (!s.cookie)
		s = rig_open(&g, RIG_LIFE, 8);
	rig_reply(&g, &s, rig_requested(&g, &s), &r);
	rig_told_once(&c0, RP_ST_OK);
}

bool asks(uint32_t n, uint64_t addr, uint64_t len)
{
	unsigned int before = nreads;
	bool asked;

	rig_commit(&g, p, &c1, n, addr, len);
	asked = g.nout;
	if (asked) {
		cr_assert_eq(nreads, before);
		rig_ok(&g, &s, rig_requested(&g, &s));
	} else {
		while (before < nreads)
			rp_fence_done(reads[before++].f, 0);
		rig_progress(&g);
	}
	rig_told_once(&c1, RP_ST_OK);
	return asked;
}

void fenced(uint32_t n)
{
	s.cookie = 0;
	start(true);
	confirm(n, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(!asks(n, 4096, 64));
	nreads = 0;
}
