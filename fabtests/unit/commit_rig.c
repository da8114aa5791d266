/* SPDX-License-Identifier: BSD-2-Clause */
/* One peer with a session, and commits to it. */
#include <criterion/criterion.h>

#include "commit_rig.h"

struct rig g;
struct rp_peer *p;
struct rig_told c0, c1, c2;
struct rig_session s;

static void start_with(const struct rp_initiator_attr *attr)
{
	struct rig_told t;

	rig_start(&g, attr);
	p = rig_peer(&g);
	rig_commit(&g, p, &t, 1, 0, 1);
	s = rig_open(&g, RIG_LIFE, 1000);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&t, RP_ST_OK);
}

void start(void)
{
	start_with(NULL);
}

void stop(void)
{
	rig_end(&g);
}

void restart(const struct rp_initiator_attr *attr)
{
	stop();
	start_with(attr);
}

void begin(struct rp_write *w, unsigned int slot)
{
	rp_write_begin(p, w, rig_key(1), slot * 64, 64);
}

void commit(struct rig_told *t, unsigned int slot)
{
	rig_commit(&g, p, t, 1, slot * 64, 64);
}

void commit_good(unsigned int slot)
{
	struct rig_told t;

	commit(&t, slot);
	rig_progress(&g);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&t, RP_ST_OK);
}

void commit_poisoned(unsigned int slot)
{
	struct rig_told t;
	unsigned int kicks = g.kicks;

	commit(&t, slot);
	cr_assert_gt(g.kicks, kicks, "nobody would tell");
	rig_none(&g);
	rig_progress(&g);
	rig_told_once(&t, RP_ST_WRITE_FAILED);
	cr_assert_eq(t.out.range, 0);
}
