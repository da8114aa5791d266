// SPDX-License-Identifier: BSD-2-Clause
/* A group of pools, rule by rule: one story each, with members of the rig. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "group_rig.h"

#define EVENTS 20000u

static struct rig rig;

/* A call of a writer. */
struct call {
	struct rpmem_pool_op op;
	struct rpmem_pool_then then;
	uint64_t value;
	unsigned int done;
	int ret;
};

static void completed(void *arg, struct rpmem_pool_op *op, int ret,
		      const char *error)
{
	struct call *c = op->context;

	c->done++;
	c->ret = ret;
	cr_assert(!ret == !error, "result %d with the text %s", ret, error);
	if (op->type == RPMEM_POOL_READ)
		cr_assert(!rig_touches(&rig, op->buf, op->len),
			  "a member may still write to the buffer of a read");
}

static void start(uint64_t seed, unsigned int n, unsigned int k)
{
	rig_start(&rig, seed, n, k);
}

/* A member is away, and its owner has noticed. */
static void away(unsigned int member)
{
	const int owner = rig.members[member].owner;

	rig.members[member].up = false;
	if (owner >= 0)
		member_drop(&rig.writers[owner].g, member, -ETIMEDOUT, "away");
}

static void back(unsigned int member)
{
	rig.members[member].up = true;
}

static void events(unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		rig_event(&rig);
}

static struct group *group(unsigned int w)
{
	return &rig.writers[w].g;
}

/* Until the group is open, or has ended. */
static void settle(unsigned int w)
{
	for (unsigned int i = 0; i < EVENTS; i++) {
		if (group(w)->phase >= GROUP_OPEN)
			return;
		rig_event(&rig);
	}
	cr_assert(false, "writer %u waits in phase %d", w, group(w)->phase);
}

/* A writer that has opened the group. */
static unsigned int opened(void)
{
	for (;;) {
		const unsigned int w = rig_writer_new(&rig, completed);

		settle(w);
		if (group(w)->phase == GROUP_OPEN)
			return w;
		cr_assert_eq(group(w)->ret, -EAGAIN, "%s", group(w)->error);
		rig_writer_kill(&rig, w);
	}
}

/* Until a member has a state. */
static void reach(unsigned int w, unsigned int member, enum member_state state)
{
	for (unsigned int i = 0; i < EVENTS; i++) {
		if (group(w)->members[member].state == state)
			return;
		rig_event(&rig);
	}
	cr_assert(false, "member %u of writer %u stays in state %d", member, w,
		  group(w)->members[member].state);
}

static void all_current(unsigned int w)
{
	for (unsigned int i = 0; i < rig.n; i++)
		reach(w, i, MEMBER_CURRENT);
}

static void submit(unsigned int w, struct call *c)
{
	c->op.context = c;
	cr_assert_not(group_submit(group(w), &c->op));
}

static int finish(struct call *c)
{
	for (unsigned int i = 0; i < EVENTS && !c->done; i++)
		rig_event(&rig);
	cr_assert_eq(c->done, 1, "call %d completes %u times", c->op.type,
		     c->done);
	return c->ret;
}

static void write_begin(unsigned int w, struct call *c, unsigned int cell,
			uint64_t value)
{
	*c = (struct call){.value = value};
	c->op = (struct rpmem_pool_op){
		.type = RPMEM_POOL_WRITE,
		.buf = &c->value,
		.offset = cell * 8,
		.len = 8,
	};
	submit(w, c);
}

static int write_cell(unsigned int w, unsigned int cell, uint64_t value)
{
	struct call c;

	write_begin(w, &c, cell, value);
	return finish(&c);
}

static void commit_begin(unsigned int w, struct call *c)
{
	*c = (struct call){.op.type = RPMEM_POOL_COMMIT};
	submit(w, c);
}

static int commit(unsigned int w)
{
	struct call c;

	commit_begin(w, &c);
	return finish(&c);
}

static void keep(unsigned int w, unsigned int cell, uint64_t value)
{
	cr_assert_not(write_cell(w, cell, value));
	cr_assert_not(commit(w));
}

static void read_begin(unsigned int w, struct call *c, unsigned int cell)
{
	*c = (struct call){.op.type = RPMEM_POOL_READ};
	c->op.buf = &c->value;
	c->op.offset = cell * 8;
	c->op.len = 8;
	submit(w, c);
}

static uint64_t read_cell(unsigned int w, unsigned int cell)
{
	struct call c;

	read_begin(w, &c, cell);
	cr_assert_not(finish(&c));
	return c.value;
}

/* --- openings that overlap --- */

/*
 * Two writers choose the same epoch: the first one is stopped before it has
 * promised it, and goes on when the second one has committed in it and died.
 */
Test(pool_group_rules, one_epoch_has_one_writer)
{
	for (uint64_t seed = 0; seed < 32; seed++) {
		unsigned int a, b;

		start(seed, 3, 2);
		a = opened();
		keep(a, 0, 1);
		all_current(a);
		rig_writer_kill(&rig, a);
		away(2);
		a = rig_writer_new(&rig, completed);
		for (unsigned int i = 0; group(a)->phase == GROUP_LOOKING; i++)
			cr_assert(rig_event(&rig) || i < EVENTS);
		rig.writers[a].paused = true;
		back(2);
		rig.members[0].up = false;
		b = opened();
		for (unsigned int i = 0; i < 8; i++)
			keep(b, 1, 10 + i);
		reach(b, 1, MEMBER_CURRENT);
		reach(b, 2, MEMBER_CURRENT);
		rig_writer_kill(&rig, b);
		rig.writers[a].paused = false;
		back(0);
		/* The member that B has left promised is there at once, or not.
		 */
		rig.members[2].up = seed % 2;
		settle(a);
		away(2);
		if (group(a)->phase == GROUP_ENDED) {
			rig_writer_kill(&rig, a);
			a = opened();
		}
		cr_assert_eq(read_cell(a, 1), 17);
		keep(a, 2, 20);
		rig_writer_kill(&rig, a);
		back(2);
		away(0);
		b = opened();
		cr_assert_eq(read_cell(b, 1), 17);
		cr_assert_eq(read_cell(b, 2), 20, "seed %llu: a commit is lost",
			     (unsigned long long)seed);
		rig_end(&rig);
	}
}

/* The same at the creation of a group: it gets one identity. */
Test(pool_group_rules, a_group_is_created_once)
{
	for (uint64_t seed = 0; seed < 256; seed++) {
		unsigned int a, b;

		start(seed, 3, 2);
		away(1);
		a = rig_writer_new(&rig, completed);
		reach(a, 0, MEMBER_SEEN);
		reach(a, 2, MEMBER_SEEN);
		rig.writers[a].paused = true;
		back(1);
		b = rig_writer_new(&rig, completed);
		for (unsigned int i = 0; group(b)->phase == GROUP_LOOKING; i++)
			cr_assert(rig_event(&rig) || i < EVENTS);
		events((unsigned int)seed % 16);
		rig_writer_kill(&rig, b);
		rig.writers[a].paused = false;
		events((unsigned int)seed / 2);
		rig_writer_kill(&rig, a);
		for (unsigned int i = 0; i < 3; i++)
			rig_cut(&rig, i);
		keep(opened(), 0, 1);
		rig_end(&rig);
	}
}

/* --- members that are replaced --- */

/* A member that the creator of the group itself has replaced knows nothing. */
Test(pool_group_rules, a_replaced_member_does_not_know_the_newest_commit)
{
	for (unsigned int late = 0; late < 2; late++) {
		unsigned int w;

		start(late, 3, 2);
		w = opened();
		keep(w, 0, 1);
		all_current(w);
		if (late) {
			rig_writer_kill(&rig, w);
			w = opened();
			all_current(w);
		}
		away(0);
		keep(w, 0, 2);
		rig_replace(&rig, 2);
		rig.members[1].up = false;
		reach(w, 2, MEMBER_COPYING);
		rig_writer_kill(&rig, w);
		back(0);
		w = rig_writer_new(&rig, completed);
		events(2000);
		cr_assert(group(w)->phase < GROUP_OPEN,
			  "a group is opened without its newest commit");
		back(1);
		settle(w);
		cr_assert_eq(read_cell(w, 0), 2);
		rig_end(&rig);
	}
}

/* --- operations --- */

/*
 * A durable write is complete by the commits of a current member and of one
 * that adopts the epoch, while no member has reported the write itself: a read
 * behind it waits for a member that has reported it.
 */
Test(pool_group_rules, a_read_follows_a_write_that_is_durable_by_an_adoption)
{
	struct call first, c, r;
	unsigned int w;

	start(1, 3, 2);
	w = opened();
	keep(w, 0, 1);
	all_current(w);
	for (unsigned int i = 0; i < EVENTS && !group_is_quiet(group(w)); i++)
		rig_event(&rig);
	group_clear_all(group(w));
	away(2);
	keep(w, 0, 2);
	/* The chunk is copied from member 1, which has all writes to it. */
	rig.members[0].up = false;
	write_begin(w, &first, 2, 9);
	back(2);
	reach(w, 2, MEMBER_COPYING);
	rig.held = GROUP_AREA + 41 * 8;
	c = (struct call){.value = 3};
	c.op = (struct rpmem_pool_op){
		.type = RPMEM_POOL_WRITE,
		.flags = RPMEM_POOL_DURABLE,
		.buf = &c.value,
		.offset = 41 * 8,
		.len = 8,
	};
	submit(w, &c);
	cr_assert_not(finish(&c));
	read_begin(w, &r, 41);
	events(200);
	cr_assert_not(r.done);
	rig.held = 0;
	cr_assert_not(finish(&r));
	cr_assert_eq(r.value, 3);
	rig_end(&rig);
}
