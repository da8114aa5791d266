// SPDX-License-Identifier: BSD-2-Clause
/* Connections of our own at the initiator: when they are asked for, what goes
 * over them, and what their end means. */
#include <errno.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "link_rig.h"

static struct rig_told c1, c2;
static struct rp_linked l0, l1;

TestSuite(link, .init = set_up);

Test(link, nobody_is_asked_who_has_none)
{
	start_with(false);
	rig_none(&g);
	rig_end(&g);
}

Test(link, write_and_fence)
{
	struct rp_link_way way;

	linked();
	cr_assert(may(1, BASE + 100, 5, &way));
	cr_assert_eq(way.conn, &conn);
	cr_assert_eq(way.there, THERE);
	cr_assert_eq(way.at, AT + 100);
	/* Inside the range, however short. */
	cr_assert_eq(way.fence_at, AT + 100);
	cr_assert_eq(way.fence_len, 5);
	cr_assert(may(1, BASE, LEN, &way));
	cr_assert_eq(way.fence_len, 8);
	/* And inside the region. */
	cr_assert(!may(1, BASE + 1, LEN, &way));
	cr_assert(!may(1, BASE - 1, 8, &way));
	cr_assert(!may(2, BASE, 8, &way));
	asked();

	posted(&c1, &l0, BASE, 64);
	rp_linked_written(&l0, 0);
	rig_progress(&g);
	rig_not_told(&c1);
	rp_linked_fenced(&l0, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	cr_assert_eq(c1.out.method, RP_METHOD_FENCE);
	/* Whatever comes first. */
	posted(&c1, &l0, BASE, 64);
	rp_linked_fenced(&l0, 0);
	rig_progress(&g);
	rig_not_told(&c1);
	rp_linked_written(&l0, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
	cr_assert_eq(conn.hung_up, 1);
}

/* Small writes that went inside their requests for ever would keep it idle. */
Test(link, nothing_is_stored_inline_meanwhile)
{
	struct rp_wire_connect c;

	start_with(false);
	cr_assert(may_store());
	rig_end(&g);

	start_with(true);
	cr_assert(!may_store());
	c = asked();
	offer(&c, RP_ST_OK, RIG_LIFE);
	cr_assert(!may_store());
	rp_link_up(p);
	cr_assert(!may_store());
	/* It failed: until there is another. */
	rp_link_broken(p);
	cr_assert(may_store());
	rig_end(&g);

	start_with(true);
	c = asked();
	offer(&c, RP_ST_NO_METHOD, RIG_LIFE);
	cr_assert(may_store());
	rig_end(&g);
}

/* What goes by another route is waited for, and for the agent behind it. */
Test(link, two_routes)
{
	struct rp_link_way way;
	struct rp_write w;

	linked();
	rp_write_begin(p, &w, key_of(1), BASE + 4096, 64);
	cr_assert(!may(1, BASE, 64, &way));
	rp_write_done(&w, 0);
	cr_assert(!may(1, BASE, 64, &way));
	/* Asked before the write, the agent has said nothing of it. */
	commit(&c1, 1, BASE, 64);
	rp_write_begin(p, &w, key_of(1), BASE + 4096, 64);
	rp_write_done(&w, 0);
	rig_progress(&g);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	cr_assert(!may(1, BASE, 64, &way));
	commit_answered(&c1, 1);
	cr_assert(may(1, BASE, 64, &way));
	/* The other way round: an operation that meets it waits. */
	posted(&c1, &l0, BASE + 128, 64);
	cr_assert(rp_peer_store_overlaps(p, key_of(1), BASE + 191, 1));
	cr_assert(!rp_peer_store_overlaps(p, key_of(1), BASE + 192, 1));
	/* And a commit of its bytes covers it. */
	commit(&c2, 1, BASE + 128, 8);
	rig_progress(&g);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_progress(&g);
	rig_not_told(&c2);
	rp_linked_written(&l0, 0);
	rp_linked_fenced(&l0, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rig_told_once(&c2, RP_ST_OK);
	/* What failed may still come there, whatever else is answered for. */
	rp_write_begin(p, &w, key_of(1), BASE + 4096, 64);
	rp_write_done(&w, EIO);
	commit_answered(&c1, 1);
	cr_assert(may(1, BASE, 64, &way));
	cr_assert(!may(1, BASE + 4096 + 63, 1, &way));
	rig_end(&g);
}

/* The end: all fails, is in doubt, and nothing of what was granted is left. */
Test(link, its_end_is_final)
{
	struct rp_wire_connect first, c;
	struct rp_link_way way;
	struct rp_write w;

	start_with(true);
	first = asked();
	offer(&first, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	posted(&c1, &l0, BASE, 64);
	posted(&c2, &l1, BASE + 64, 64);
	rp_linked_written(&l0, 0);
	rp_link_broken(p);
	cr_assert_eq(conn.hung_up, 1);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rig_told_once(&c2, RP_ST_WRITE_FAILED);
	cr_assert(!may(1, BASE + 4096, 64, &way));
	/* What comes back of it now means nothing. */
	rp_linked_fenced(&l0, 0);
	rp_linked_fenced(&l1, EIO);
	/* The next is asked for at once, and is another one. */
	c = asked();
	cr_assert_gt(c.id, first.id);
	/* Written again: but what was under way may still come over it. */
	rp_write_begin(p, &w, key_of(1), BASE, 128);
	rp_write_done(&w, 0);
	commit(&c1, 1, BASE, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rig_none(&g);
	/* An offer of the one that is gone, or of another life, says nothing.
	 */
	offer(&first, RP_ST_OK, RIG_LIFE);
	offer(&c, RP_ST_OK, RIG_LIFE2);
	cr_assert_eq(conn.dials, 1);
	offer(&c, RP_ST_OK, RIG_LIFE);
	cr_assert_eq(conn.dials, 2);
	rp_link_up(p);
	/* Now it is known to be gone. What was written before may be undone. */
	commit(&c1, 1, BASE, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	cr_assert(!may(1, BASE, 64, &way));
	rp_write_begin(p, &w, key_of(1), BASE, 128);
	rp_write_done(&w, 0);
	commit_answered(&c1, 1);
	cr_assert(may(1, BASE, 64, &way));
	rig_end(&g);
}

/* A grant of the old connection is none on the new one. */
Test(link, grants_end_with_it)
{
	struct rp_wire_connect c;
	struct rp_link_way way;

	linked();
	commit_answered(&c0, 2);
	c = asked();
	cr_assert_eq(c.key, key_of(2));
	offer(&c, RP_ST_OK, RIG_LIFE);
	cr_assert(may(2, BASE, 64, &way));
	rp_link_broken(p);
	rig_pass(&g, 1000 * RIG_MS);
	rig_none(&g);
	commit_answered(&c0, 1);
	c = asked();
	cr_assert_eq(c.key, key_of(1));
	offer(&c, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	cr_assert(may(1, BASE, 64, &way));
	cr_assert(!may(2, BASE, 64, &way));
	asked();
	rig_end(&g);
}

Test(link, a_refusal_is_remembered)
{
	struct rp_wire_connect c;
	struct rp_link_way way;

	linked();
	commit_answered(&c0, 2);
	c = asked();
	offer(&c, RP_ST_NO_METHOD, RIG_LIFE);
	cr_assert(!may(2, BASE, 64, &way));
	commit_answered(&c0, 2);
	rig_none(&g);
	cr_assert(may(1, BASE, 64, &way));
	rig_end(&g);
}

/* Silence, and the end of the session. */
Test(link, silence_ends_it)
{
	linked();
	posted(&c1, &l0, BASE, 64);
	rig_pass(&g, RIG_TIMEOUT - RIG_MS);
	rig_not_told(&c1);
	rig_pass(&g, 2 * RIG_MS);
	cr_assert_eq(c1.times, 1);
	cr_assert_neq(c1.out.status, RP_ST_OK);
	cr_assert_eq(conn.hung_up, 1);
	rp_linked_written(&l0, 0);
	rp_linked_fenced(&l0, 0);
	rig_progress(&g);
	cr_assert_eq(c1.times, 1);
	rig_stop(&g);
}

/* With the address goes whoever could say that it is gone. */
Test(link, removed_in_doubt)
{
	struct rp_write w;

	linked();
	posted(&c1, &l0, BASE, 64);
	rp_peer_forget(g.in, RIG_PEER);
	rig_told_once(&c1, RP_ST_CANCELED);
	cr_assert_eq(conn.hung_up, 1);
	while (g.nout)
		free(rig_pop(&g));
	p = rig_peer(&g);
	rp_write_begin(p, &w, key_of(1), BASE, 64);
	rp_write_done(&w, 0);
	commit(&c1, 1, BASE, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rig_end(&g);
}

/* Where a CPU places what is acknowledged, that says as much as the agent. */
Test(link, placed_when_acknowledged)
{
	struct rp_link_way way;
	struct rp_write w;

	without = 0;
	linked();
	rp_write_begin(p, &w, key_of(1), BASE + 4096, 64);
	cr_assert(may(1, BASE, 64, &way));
	cr_assert(!may(1, BASE + 4096 + 63, 1, &way));
	rp_write_done(&w, 0);
	cr_assert(may(1, BASE + 4096 + 63, 1, &way));
	/* One that failed may still come. */
	rp_write_begin(p, &w, key_of(1), BASE + 4096, 64);
	rp_write_done(&w, EIO);
	cr_assert(!may(1, BASE + 4096 + 63, 1, &way));
	rig_end(&g);
}

/* A base that takes nothing now is asked again soon, not at once. */
Test(link, blocked)
{
	linked();
	posted(&c1, &l0, BASE, 64);
	g.send_ret = -EAGAIN;
	rp_link_broken(p);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	commit(&c2, 1, BASE + 4096, 64);
	rig_progress(&g);
	g.send_ret = 0;
	rig_pass(&g, 2 * RIG_MS);
	asked();
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_progress(&g);
	rig_told_once(&c2, RP_ST_OK);
	rig_end(&g);
}
