/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For tests of groups of pools: writers of group_rig.h make calls, one after
 * the other.
 */
#ifndef RP_TEST_GROUP_CALLS_H
#define RP_TEST_GROUP_CALLS_H

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "group_rig.h"

#define EVENTS 20000u

static struct rig rig;

/* One library call of a writer, and its result. */
struct call {
	struct rpmem_pool_op op;
	struct rpmem_pool_then then;
	uint64_t value;
	unsigned int done;
	int ret;
	const char *error;
};

static inline void call_completed(void *arg, struct rpmem_pool_op *op, int ret,
				  const char *error)
{
	struct call *c = op->context;

	c->done++;
	c->ret = ret;
	c->error = error;
	cr_assert(!ret == !error, "result %d with the text %s", ret, error);
	if (op->type == RPMEM_POOL_READ)
		cr_assert(!rig_touches(&rig, op->buf, op->len),
			  "a member may still write to the buffer of a read");
}

static inline void start_members(uint64_t seed, unsigned int n, unsigned int k)
{
	rig_start(&rig, seed, n, k);
}

/* Make a member unreachable, and let its owner notice that. */
static inline void lose_member(unsigned int member)
{
	const int owner = rig.members[member].owner;

	rig.members[member].up = false;
	if (owner >= 0)
		member_drop(&rig.writers[owner].g, member, -ETIMEDOUT, "away");
}

static inline void return_member(unsigned int member)
{
	rig.members[member].up = true;
}

static inline void run_events(unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		rig_event(&rig);
}

static inline struct group *group_of(unsigned int w)
{
	return &rig.writers[w].g;
}

/* Run events until the group is open or has ended. */
static inline void await_group_open(unsigned int w)
{
	for (unsigned int i = 0; i < EVENTS; i++) {
		if (group_of(w)->phase >= GROUP_OPEN)
			return;
		rig_event(&rig);
	}
	cr_assert(false, "writer %u waits in phase %d", w, group_of(w)->phase);
}

/* Start a writer and run events until it has opened the group. */
static inline unsigned int open_writer(void)
{
	for (;;) {
		const unsigned int w = rig_writer_new(&rig, call_completed);

		await_group_open(w);
		if (group_of(w)->phase == GROUP_OPEN) {
			cr_assert_geq(group_count(group_of(w), MEMBER_CURRENT),
				      rig.k);
			return w;
		}
		cr_assert_eq(group_of(w)->ret, -EAGAIN, "%s",
			     group_of(w)->error);
		rig_writer_kill(&rig, w);
	}
}

/* Run events until a member has this state or a later one. */
static inline void await_state_at_least(unsigned int w, unsigned int member,
					enum member_state state)
{
	for (unsigned int i = 0;
	     i < EVENTS && group_of(w)->members[member].state < state; i++)
		rig_event(&rig);
	cr_assert_geq(group_of(w)->members[member].state, state);
}

/* Run events until a member has exactly this state. */
static inline void await_state(unsigned int w, unsigned int member,
			       enum member_state state)
{
	for (unsigned int i = 0; i < EVENTS; i++) {
		if (group_of(w)->members[member].state == state)
			return;
		rig_event(&rig);
	}
	cr_assert(false, "member %u of writer %u stays in state %d", member, w,
		  group_of(w)->members[member].state);
}

static inline void await_all_current(unsigned int w)
{
	for (unsigned int i = 0; i < rig.n; i++)
		await_state(w, i, MEMBER_CURRENT);
}

static inline void clear_bitmap(unsigned int w)
{
	for (unsigned int i = 0; i < 2; i++) {
		for (unsigned int e = 0; e < EVENTS; e++)
			if (!group_is_quiet(group_of(w)))
				rig_event(&rig);
		cr_assert(group_is_quiet(group_of(w)));
		group_clear_all(group_of(w));
	}
	run_events(500);
	rig_writer_kill(&rig, w);
}

static inline void submit_call(unsigned int w, struct call *c)
{
	c->op.context = c;
	cr_assert_not(group_submit(group_of(w), &c->op));
}

static inline int finish_call(struct call *c)
{
	for (unsigned int i = 0; i < EVENTS && !c->done; i++)
		rig_event(&rig);
	cr_assert_eq(c->done, 1, "call %d completes %u times", c->op.type,
		     c->done);
	return c->ret;
}

static inline void write_begin(unsigned int w, struct call *c,
			       unsigned int cell, uint64_t value)
{
	*c = (struct call){.value = value};
	c->op = (struct rpmem_pool_op){
		.type = RPMEM_POOL_WRITE,
		.buf = &c->value,
		.offset = cell * 8,
		.len = 8,
	};
	submit_call(w, c);
}

static inline int write_cell(unsigned int w, unsigned int cell, uint64_t value)
{
	struct call c;

	write_begin(w, &c, cell, value);
	return finish_call(&c);
}

static inline void commit_begin(unsigned int w, struct call *c)
{
	*c = (struct call){.op.type = RPMEM_POOL_COMMIT};
	submit_call(w, c);
}

static inline int commit_call(unsigned int w)
{
	struct call c;

	commit_begin(w, &c);
	return finish_call(&c);
}

static inline void write_and_commit(unsigned int w, unsigned int cell,
				    uint64_t value)
{
	cr_assert_not(write_cell(w, cell, value));
	cr_assert_not(commit_call(w));
}

static inline void read_begin(unsigned int w, struct call *c, unsigned int cell)
{
	*c = (struct call){.op.type = RPMEM_POOL_READ};
	c->op.buf = &c->value;
	c->op.offset = cell * 8;
	c->op.len = 8;
	submit_call(w, c);
}

static inline uint64_t read_cell(unsigned int w, unsigned int cell)
{
	struct call c;

	read_begin(w, &c, cell);
	cr_assert_not(finish_call(&c));
	return c.value;
}

/*
 * Check that the group ends with this result, and that all further calls return
 * it.
 */
static inline void expect_group_ended(unsigned int w, int ret)
{
	for (unsigned int i = 0; i < EVENTS; i++)
		if (group_of(w)->phase != GROUP_ENDED)
			rig_event(&rig);
	cr_assert_eq(group_of(w)->phase, GROUP_ENDED);
	cr_assert_eq(group_of(w)->ret, ret, "%d", group_of(w)->ret);
	cr_assert_eq(write_cell(w, 0, 99), ret);
	rig_writer_kill(&rig, w);
}

static inline bool group_opens_with(unsigned int members)
{
	const unsigned int w = rig_writer_new(&rig, call_completed);
	bool is;

	for (unsigned int i = 0; i < rig.n; i++)
		rig.members[i].up = members >> i & 1;
	run_events(3000);
	is = group_of(w)->phase == GROUP_OPEN;
	rig_writer_kill(&rig, w);
	return is;
}

static inline void create_group_seeded(uint64_t seed, unsigned int n,
				       unsigned int k)
{
	start_members(seed, n, k);
	write_and_commit(open_writer(), 0, 1);
	await_all_current(rig.nwriters - 1);
	rig_writer_kill(&rig, rig.nwriters - 1);
}

static inline void create_group(unsigned int n, unsigned int k)
{
	create_group_seeded(1, n, k);
}

#endif
