/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls of a group's writers, one after the other, on members in memory. */
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
};

static inline void completed(void *arg, struct rpmem_pool_op *op, int ret,
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

static inline void start(uint64_t seed, unsigned int n, unsigned int k)
{
	rig_start(&rig, seed, n, k);
}

/* A member becomes unreachable, and its owner has noticed that. */
static inline void away(unsigned int member)
{
	const int owner = rig.members[member].owner;

	rig.members[member].up = false;
	if (owner >= 0)
		member_drop(&rig.writers[owner].g, member, -ETIMEDOUT, "away");
}

static inline void back(unsigned int member)
{
	rig.members[member].up = true;
}

static inline void events(unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		rig_event(&rig);
}

static inline struct group *group(unsigned int w)
{
	return &rig.writers[w].g;
}

/* Run events until the group is open or has ended. */
static inline void settle(unsigned int w)
{
	for (unsigned int i = 0; i < EVENTS; i++) {
		if (group(w)->phase >= GROUP_OPEN)
			return;
		rig_event(&rig);
	}
	cr_assert(false, "writer %u waits in phase %d", w, group(w)->phase);
}

/* Start a writer and run events until it has opened the group. */
static inline unsigned int opened(void)
{
	for (;;) {
		const unsigned int w = rig_writer_new(&rig, completed);

		settle(w);
		if (group(w)->phase == GROUP_OPEN) {
			cr_assert_geq(group_count(group(w), MEMBER_CURRENT),
				      rig.k);
			return w;
		}
		cr_assert_eq(group(w)->ret, -EAGAIN, "%s", group(w)->error);
		rig_writer_kill(&rig, w);
	}
}

/* Run events until a member has this state or a later one. */
static inline void reach_least(unsigned int w, unsigned int member,
			       enum member_state state)
{
	for (unsigned int i = 0;
	     i < EVENTS && group(w)->members[member].state < state; i++)
		rig_event(&rig);
	cr_assert_geq(group(w)->members[member].state, state);
}

/* Run events until a member has exactly this state. */
static inline void reach(unsigned int w, unsigned int member,
			 enum member_state state)
{
	for (unsigned int i = 0; i < EVENTS; i++) {
		if (group(w)->members[member].state == state)
			return;
		rig_event(&rig);
	}
	cr_assert(false, "member %u of writer %u stays in state %d", member, w,
		  group(w)->members[member].state);
}

static inline void all_current(unsigned int w)
{
	for (unsigned int i = 0; i < rig.n; i++)
		reach(w, i, MEMBER_CURRENT);
}

static inline void submit(unsigned int w, struct call *c)
{
	c->op.context = c;
	cr_assert_not(group_submit(group(w), &c->op));
}

static inline int finish(struct call *c)
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
	submit(w, c);
}

static inline int write_cell(unsigned int w, unsigned int cell, uint64_t value)
{
	struct call c;

	write_begin(w, &c, cell, value);
	return finish(&c);
}

static inline void commit_begin(unsigned int w, struct call *c)
{
	*c = (struct call){.op.type = RPMEM_POOL_COMMIT};
	submit(w, c);
}

static inline int commit(unsigned int w)
{
	struct call c;

	commit_begin(w, &c);
	return finish(&c);
}

static inline void keep(unsigned int w, unsigned int cell, uint64_t value)
{
	cr_assert_not(write_cell(w, cell, value));
	cr_assert_not(commit(w));
}

static inline void read_begin(unsigned int w, struct call *c, unsigned int cell)
{
	*c = (struct call){.op.type = RPMEM_POOL_READ};
	c->op.buf = &c->value;
	c->op.offset = cell * 8;
	c->op.len = 8;
	submit(w, c);
}

static inline uint64_t read_cell(unsigned int w, unsigned int cell)
{
	struct call c;

	read_begin(w, &c, cell);
	cr_assert_not(finish(&c));
	return c.value;
}

/* The group must end with this result, and all further calls must return it. */
static inline void ended(unsigned int w, int ret)
{
	for (unsigned int i = 0; i < EVENTS; i++)
		if (group(w)->phase != GROUP_ENDED)
			rig_event(&rig);
	cr_assert_eq(group(w)->phase, GROUP_ENDED);
	cr_assert_eq(group(w)->ret, ret, "%d", group(w)->ret);
	cr_assert_eq(write_cell(w, 0, 99), ret);
	rig_writer_kill(&rig, w);
}

static inline bool opens(unsigned int members)
{
	const unsigned int w = rig_writer_new(&rig, completed);
	bool is;

	for (unsigned int i = 0; i < rig.n; i++)
		rig.members[i].up = members >> i & 1;
	events(3000);
	is = group(w)->phase == GROUP_OPEN;
	rig_writer_kill(&rig, w);
	return is;
}

static inline void founded_from(uint64_t seed, unsigned int n, unsigned int k)
{
	start(seed, n, k);
	keep(opened(), 0, 1);
	all_current(rig.nwriters - 1);
	rig_writer_kill(&rig, rig.nwriters - 1);
}

static inline void founded(unsigned int n, unsigned int k)
{
	founded_from(1, n, k);
}

#endif
