// SPDX-License-Identifier: BSD-2-Clause
/* A group of pools, rule by rule: one story each, with members of the rig. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>
#include <xxhash.h>

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
		if (group(w)->phase == GROUP_OPEN) {
			cr_assert_geq(group_count(group(w), MEMBER_CURRENT),
				      rig.k);
			return w;
		}
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

/* The group has ended with a result, and so do all further calls. */
static void ended(unsigned int w, int ret)
{
	for (unsigned int i = 0; i < EVENTS; i++)
		if (group(w)->phase != GROUP_ENDED)
			rig_event(&rig);
	cr_assert_eq(group(w)->phase, GROUP_ENDED);
	cr_assert_eq(group(w)->ret, ret, "%d", group(w)->ret);
	cr_assert_eq(write_cell(w, 0, 99), ret);
	rig_writer_kill(&rig, w);
}

Test(pool_group_rules, a_call_times_out_and_succeeds_when_the_member_is_back)
{
	struct call c;
	unsigned int w;

	start(1, 3, 2);
	w = opened();
	all_current(w);
	group(w)->timeout_ms = 500;
	away(1);
	away(2);
	cr_assert_eq(write_cell(w, 0, 1), -ETIMEDOUT);
	cr_assert_eq(commit(w), -ETIMEDOUT);
	commit_begin(w, &c);
	cr_assert_eq(finish(&c), -ETIMEDOUT);
	cr_assert_eq(group(w)->phase, GROUP_OPEN);
	back(1);
	reach(w, 1, MEMBER_CURRENT);
	keep(w, 0, 1);
	cr_assert_eq(read_cell(w, 0), 1);
	rig_end(&rig);
}

/* Its buffer is in use for as long as the member is not given up. */
Test(pool_group_rules, a_read_ends_when_no_member_has_its_buffer)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		struct call c;
		unsigned int w;

		start(seed, 3, 2);
		w = opened();
		keep(w, 0, 5);
		all_current(w);
		group(w)->timeout_ms = 500;
		rig.members[0].up = false;
		read_begin(w, &c, 0);
		events(1000);
		cr_assert_not(c.done);
		/* The time is up, and the read can start at another one. */
		group(w)->ops.tqh_first->deadline = UINT64_MAX;
		away(0);
		cr_assert_not(finish(&c));
		cr_assert_eq(c.value, 5);
		rig_end(&rig);
	}
}

Test(pool_group_rules, the_last_member_is_kept_when_its_disk_fails)
{
	unsigned int w;

	start(1, 2, 1);
	w = opened();
	all_current(w);
	away(1);
	cr_assert_not(write_cell(w, 0, 7));
	rig.members[0].disk_failed = true;
	cr_assert_eq(commit(w), -EIO);
	cr_assert_eq(group(w)->phase, GROUP_OPEN);
	cr_assert_eq(group(w)->members[0].state, MEMBER_CURRENT);
	rig.members[0].disk_failed = false;
	cr_assert_not(commit(w));
	cr_assert_eq(read_cell(w, 0), 7);
	rig_end(&rig);
}

Test(pool_group_rules, the_last_member_is_not_kept_without_a_completed_write)
{
	unsigned int w;

	start(1, 2, 1);
	w = opened();
	keep(w, 0, 6);
	all_current(w);
	rig.members[0].up = false;
	cr_assert_not(write_cell(w, 0, 7));
	away(1);
	rig.members[0].writes_fail = true;
	back(0);
	ended(w, -EIO);
	rig_end(&rig);
}

Test(pool_group_rules, a_group_ends_without_a_member_that_has_all)
{
	unsigned int w;

	start(1, 2, 1);
	w = opened();
	all_current(w);
	away(0);
	away(1);
	ended(w, -EIO);
	rig_end(&rig);
}

Test(pool_group_rules, a_displaced_writer_ends)
{
	for (unsigned int last = 0; last < 2; last++) {
		unsigned int w;

		start(1, 2, 1);
		w = opened();
		all_current(w);
		keep(w, 0, 5);
		while (!group_is_quiet(group(w)))
			rig_event(&rig);
		if (last)
			away(1);
		rig_writer_new(&rig, completed);
		events(500);
		write_cell(w, 0, 1);
		ended(w, -ESTALE);
		rig_end(&rig);
	}
}

Test(pool_group_rules, a_slow_member_is_brought_up_to_date_later)
{
	unsigned int w;

	start(1, 3, 2);
	w = opened();
	all_current(w);
	rig.members[2].up = false;
	for (unsigned int i = 0; i <= GROUP_BACKLOG / 8; i++) {
		cr_assert_eq(group(w)->members[2].state, MEMBER_CURRENT);
		cr_assert_not(write_cell(w, i % RIG_CELLS, i));
	}
	events(1);
	cr_assert_eq(group(w)->members[2].state, MEMBER_AWAY);
	rig_end(&rig);
}

/* --- how many members an opening needs --- */

static bool opens(unsigned int members)
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

Test(pool_group_rules, an_opening_needs_enough_members)
{
	static const struct {
		unsigned int n, k, few, enough;
	} cases[] = {
		{3, 2, 0x1, 0x5},
		{5, 2, 0x7, 0xf},
		{5, 4, 0x7, 0xf},
		{2, 1, 0x2, 0x3},
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		start(1, cases[i].n, cases[i].k);
		cr_assert_not(opens((1u << (rig.n - 1)) - 1),
			      "some members create a group");
		cr_assert(opens((1u << rig.n) - 1));
		cr_assert_not(opens(cases[i].few));
		cr_assert(opens(cases[i].enough));
		rig_end(&rig);
	}
}

/* A member of a new group knows that nothing was committed without it. */
Test(pool_group_rules, a_founder_without_an_epoch_counts)
{
	unsigned int w;

	start(1, 3, 2);
	w = rig_writer_new(&rig, completed);
	reach(w, 2, MEMBER_PROMISED);
	rig.members[2].up = false;
	settle(w);
	cr_assert_neq(group(w)->members[2].state, MEMBER_CURRENT);
	rig_writer_kill(&rig, w);
	cr_assert(opens(0x6));
	rig_end(&rig);
}

/* --- the area --- */

static void founded(unsigned int n, unsigned int k)
{
	start(1, n, k);
	keep(opened(), 0, 1);
	all_current(rig.nwriters - 1);
	rig_writer_kill(&rig, rig.nwriters - 1);
}

static void refused(int ret)
{
	const unsigned int w = rig_writer_new(&rig, completed);

	ended(w, ret);
}

Test(pool_group_rules, other_numbers_of_members_and_copies_are_refused)
{
	founded(3, 2);
	rig.k = 1;
	refused(-EINVAL);
	rig.k = 2;
	rig.n = 2;
	refused(-EINVAL);
	rig.n = 3;
	cr_assert_eq(read_cell(opened(), 0), 1);
	rig_end(&rig);
}

static void area_set(unsigned int member, const unsigned char *area)
{
	memcpy(rig.members[member].visible, area, GROUP_AREA);
	memcpy(rig.members[member].durable, area, GROUP_AREA);
}

Test(pool_group_rules, members_of_two_groups_are_refused)
{
	static unsigned char area[GROUP_AREA];

	founded(3, 2);
	memcpy(area, rig.members[1].visible, GROUP_AREA);
	rig_end(&rig);
	start(2, 3, 2);
	cr_assert(opens(0x7));
	area_set(1, area);
	back(0);
	refused(-EINVAL);
	rig_end(&rig);
}

Test(pool_group_rules, other_bytes_are_refused)
{
	static const unsigned int at[] = {0, GROUP_SUPER, GROUP_AREA - 1};

	for (unsigned int i = 0; i < 3; i++) {
		start(1, 3, 2);
		rig.members[1].visible[at[i]] = 1;
		refused(-EBADMSG);
		cr_assert_eq(rig.members[1].visible[at[i]], 1);
		rig_end(&rig);
	}
}

Test(pool_group_rules, a_member_that_is_too_short_is_not_one)
{
	unsigned int w;

	start(1, 3, 2);
	rig.members[1].length = GROUP_AREA + 7;
	w = rig_writer_new(&rig, completed);
	events(500);
	cr_assert_eq(group(w)->members[1].ret, -ENOSPC);
	rig_writer_kill(&rig, w);
	/* The shortest one decides, in whole cells. */
	rig.members[1].length = RIG_LENGTH - 70;
	w = opened();
	cr_assert_eq(group(w)->super.length, RIG_BYTES - 72);
	keep(w, 0, 1);
	all_current(w);
	for (unsigned int i = 0; i < 2; i++) {
		away(2);
		if (i)
			rig_replace(&rig, 2);
		rig.members[2].length = RIG_LENGTH - 80;
		back(2);
		events(500);
		cr_assert_neq(group(w)->members[2].state, MEMBER_CURRENT);
		rig.members[2].length = RIG_LENGTH;
		reach(w, 2, MEMBER_CURRENT);
	}
	rig_end(&rig);
}

Test(pool_group_rules, the_bitmap_has_a_bit_for_each_chunk)
{
	unsigned int w;

	start(1, 2, 1);
	for (unsigned int i = 0; i < 2; i++)
		rig.members[i].length =
			1000 * (uint64_t)GROUP_BITS * GROUP_CHUNK;
	w = rig_writer_new(&rig, completed);
	while (group(w)->phase < GROUP_PROMISING)
		rig_event(&rig);
	cr_assert_lt(group(w)->super.length / group(w)->super.chunk,
		     GROUP_BITS);
	rig_end(&rig);
}

static unsigned char area[GROUP_AREA];
static const struct group_super good = {
	.n = 3, .k = 2, .id = {1, 2}, .length = 800, .chunk = 64};

static int decode(const struct group_super *s, struct group_super *found,
		  struct group_state *state)
{
	memset(area, 0, sizeof(area));
	group_super_encode(s, area);
	return group_area_decode(area, found, state);
}

Test(pool_group_rules, a_superblock_of_any_size_is_safe)
{
	static const uint64_t sizes[] = {
		0,
		1,
		7,
		8,
		12,
		64,
		800,
		GROUP_BITS * 64ull,
		INT64_MAX,
		1ull << 63,
		UINT64_MAX - 7,
		UINT64_MAX,
		1ull << 62,
		4096,
		UINT32_MAX,
	};
	const unsigned int count = sizeof(sizes) / sizeof(*sizes);
	struct group_super s = good, found;
	struct group_state state;
	unsigned int taken = 0;

	cr_assert_not(decode(&s, &found, &state));
	for (unsigned int i = 0; i < count; i++)
		for (unsigned int j = 0; j < count; j++) {
			s.length = sizes[i];
			s.chunk = sizes[j];
			if (decode(&s, &found, &state))
				continue;
			taken++;
			cr_assert(found.chunk >= 8 && !(found.chunk % 8) &&
				  !(found.length % 8));
			/* No sum of a chunk, the length and the area wraps. */
			cr_assert(found.length <= INT64_MAX &&
				  found.chunk <= INT64_MAX);
			cr_assert(found.length / found.chunk < GROUP_BITS);
		}
	cr_assert(taken);
	for (unsigned int i = 0; i < count; i++)
		for (unsigned int j = 0; j < count; j++) {
			s = good;
			s.n = (uint32_t)sizes[i];
			s.k = (uint32_t)sizes[j];
			if (!decode(&s, &found, &state))
				cr_assert(found.n >= 2 &&
					  found.n <= GROUP_MEMBERS && found.k &&
					  found.k <= found.n);
		}
}

Test(pool_group_rules, a_torn_area_is_told_from_another_one)
{
	struct group_super found;
	struct group_state state;
	unsigned char whole[GROUP_SUPER];

	group_super_encode(&good, whole);
	for (unsigned int i = 0; i < GROUP_SUPER; i += 8) {
		/* The first 8 bytes are there, and some of the rest. */
		decode(&good, &found, &state);
		memset(area + 8 + i, 0, i + 8 < GROUP_SUPER ? 8 : 0);
		cr_assert_eq(group_area_decode(area, &found, &state),
			     i + 8 < GROUP_SUPER && whole[8 + i] ? -ENODATA : 0,
			     "%u", i);
	}
	decode(&good, &found, &state);
	area[40] ^= 1;
	cr_assert_eq(group_area_decode(area, &found, &state), -ENODATA);
	area[GROUP_PROMISE_AT] = 1;
	cr_assert_eq(group_area_decode(area, &found, &state), -EBADMSG);
	decode(&good, &found, &state);
	area[0] = 'X';
	cr_assert_eq(group_area_decode(area, &found, &state), -EBADMSG);
	decode(&good, &found, &state);
	area[8]++;
	memcpy(area + 72, &(uint64_t){htole64(XXH64(area, 72, 0))}, 8);
	cr_assert_eq(group_area_decode(area, &found, &state), -ENODATA);
	area[GROUP_PROMISE_AT] = 1;
	cr_assert_eq(group_area_decode(area, &found, &state), -EBADMSG);
}

Test(pool_group_rules, the_whole_slot_of_the_newest_epoch_counts)
{
	struct group_super found;
	struct group_state state;

	for (unsigned int newer = 0; newer < 2; newer++) {
		decode(&good, &found, &state);
		group_slot_encode(&good, 5, area + GROUP_SLOT_AT(!newer));
		group_slot_encode(&good, 6, area + GROUP_SLOT_AT(newer));
		area[GROUP_NUMBER_AT(newer)] = 9;
		cr_assert_not(group_area_decode(area, &found, &state));
		cr_assert_eq(state.epoch, 6);
		cr_assert_eq(state.number, 9);
		cr_assert_eq(state.slot, newer);
		area[GROUP_SLOT_AT(newer)]++;
		cr_assert_not(group_area_decode(area, &found, &state));
		cr_assert_eq(state.epoch, 5);
	}
	/* There is no epoch behind the last one. */
	group_slot_encode(&good, UINT64_MAX, area + GROUP_SLOT_AT(0));
	cr_assert_eq(group_area_decode(area, &found, &state), -EBADMSG);
	decode(&good, &found, &state);
	memset(area + GROUP_PROMISE_AT, 0xff, 8);
	cr_assert_eq(group_area_decode(area, &found, &state), -EBADMSG);
}

/* Members of any bytes: the group opens, or ends, and touches no other. */
Test(pool_group_rules, hostile_members_do_no_harm)
{
	for (uint64_t seed = 0; seed < 60; seed++) {
		unsigned int w;

		founded(3, 2);
		rig.rnd = (struct seeded){seed, seed};
		for (unsigned int i = 0; i < 3; i++) {
			struct group_super s = good;

			memcpy(area, rig.members[i].visible, GROUP_AREA);
			s.length = 8 * seeded_below(&rig.rnd, RIG_CELLS + 1);
			s.chunk = 8 * (1 + seeded_below(&rig.rnd, 64));
			if (seed % 2)
				group_super_encode(&s, area);
			for (unsigned int b = 0; b < seed % 4; b++)
				area[GROUP_SUPER +
				     seeded_below(&rig.rnd,
						  GROUP_AREA - GROUP_SUPER)] ^=
					(unsigned char)seeded_next(&rig.rnd);
			area_set(i, area);
		}
		w = rig_writer_new(&rig, completed);
		settle(w);
		rig_end(&rig);
	}
}

/* --- what a later writer finds --- */

Test(pool_group_rules, a_write_completes_where_it_has_arrived)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		struct call c;
		unsigned int w;

		start(seed, 2, 2);
		w = opened();
		keep(w, 0, 1);
		away(1);
		back(1);
		reach(w, 1, MEMBER_ADOPTING);
		write_begin(w, &c, 0, 2);
		cr_assert_not(finish(&c));
		cr_assert_eq(rig.members[1].visible[GROUP_AREA], 2);
		rig_end(&rig);
	}
}

Test(pool_group_rules, a_member_that_is_away_does_not_count)
{
	struct call c;
	unsigned int w;

	start(1, 3, 2);
	w = opened();
	all_current(w);
	cr_assert_not(write_cell(w, 0, 1));
	events(100);
	rig.members[0].up = rig.members[1].up = false;
	commit_begin(w, &c);
	events(100);
	away(2);
	back(0);
	events(300);
	cr_assert_not(c.done);
	back(1);
	cr_assert_not(finish(&c));
	rig_end(&rig);
}

Test(pool_group_rules, bits_stay_while_a_member_is_away)
{
	unsigned int w;

	founded(3, 2);
	w = opened();
	all_current(w);
	while (!group_is_quiet(group(w)))
		rig_event(&rig);
	group_clear_all(group(w));
	events(100);
	away(2);
	keep(w, 0, 2);
	rig_writer_kill(&rig, w);
	w = opened();
	group_clear_all(group(w));
	back(2);
	reach(w, 2, MEMBER_CURRENT);
	cr_assert_eq(rig.members[2].visible[GROUP_AREA], 2);
	rig_end(&rig);
}

/* A chunk that only the member itself knows to differ stays marked there. */
Test(pool_group_rules, a_member_keeps_its_bits_until_it_has_copied)
{
	const unsigned int at = GROUP_AREA + 40 * 8;

	for (uint64_t seed = 0; seed < 24; seed++) {
		struct call c;
		unsigned int w;

		start(seed, 3, 2);
		w = opened();
		keep(w, 40, 1);
		all_current(w);
		while (!group_is_quiet(group(w)))
			rig_event(&rig);
		group_clear_all(group(w));
		while (!group_is_quiet(group(w)))
			rig_event(&rig);
		events(100);
		rig.members[0].up = rig.members[1].up = false;
		write_begin(w, &c, 40, 77);
		events(100);
		rig_writer_kill(&rig, w);
		back(0);
		back(1);
		rig.members[2].up = false;
		w = opened();
		back(2);
		reach(w, 2, MEMBER_COPYING);
		rig.members[0].up = rig.members[1].up = false;
		write_begin(w, &c, 0, 3);
		events(100);
		rig_writer_kill(&rig, w);
		back(0);
		back(1);
		w = opened();
		all_current(w);
		cr_assert_eq(rig.members[2].visible[at],
			     rig.members[0].visible[at], "seed %llu",
			     (unsigned long long)seed);
		rig_end(&rig);
	}
}

Test(pool_group_rules, an_epoch_is_promised_once)
{
	uint64_t epoch;
	unsigned int w;

	founded(3, 2);
	w = rig_writer_new(&rig, completed);
	reach(w, 0, MEMBER_PROMISED);
	epoch = group(w)->epoch;
	rig_writer_kill(&rig, w);
	w = opened();
	cr_assert_gt(group(w)->epoch, epoch);
	rig_end(&rig);
}

Test(pool_group_rules, a_writer_ends_when_a_newer_one_was_there)
{
	unsigned int a, b;

	founded(3, 2);
	a = opened();
	all_current(a);
	away(1);
	rig.writers[a].paused = true;
	back(1);
	rig.members[0].up = false;
	b = opened();
	rig_writer_kill(&rig, b);
	rig.writers[a].paused = false;
	ended(a, -ESTALE);
	rig_end(&rig);
}

/* A newer one has one of three members, and keeps it. */
Test(pool_group_rules, a_member_that_was_taken_ends_its_writer)
{
	unsigned int a, b;

	founded(3, 2);
	a = opened();
	all_current(a);
	rig.members[1].up = rig.members[2].up = false;
	b = rig_writer_new(&rig, completed);
	reach(b, 0, MEMBER_SEEN);
	rig.writers[b].paused = true;
	back(1);
	back(2);
	cr_assert_leq(write_cell(a, 0, 1), 0);
	ended(a, -ESTALE);
	rig_end(&rig);
}

/* One event; no member's epoch and number have become less. */
static void event_up(struct group_state was[GROUP_MEMBERS])
{
	rig_event(&rig);
	for (unsigned int i = 0; i < rig.n; i++) {
		struct group_super s;
		struct group_state now;

		if (group_area_decode(rig.members[i].visible, &s, &now))
			continue;
		cr_assert(now.epoch > was[i].epoch ||
				  (now.epoch == was[i].epoch &&
				   now.number >= was[i].number),
			  "member %u: epoch %llu number %llu after %llu, %llu",
			  i, (unsigned long long)now.epoch,
			  (unsigned long long)now.number,
			  (unsigned long long)was[i].epoch,
			  (unsigned long long)was[i].number);
		was[i] = now;
	}
}

Test(pool_group_rules, epoch_and_number_of_a_member_only_grow)
{
	for (uint64_t seed = 0; seed < 8; seed++) {
		struct group_state was[GROUP_MEMBERS] = {{0}};
		static struct call c[40];

		start(seed, 3, 2);
		for (unsigned int round = 0; round < 3; round++) {
			const unsigned int w = rig_writer_new(&rig, completed);

			while (group_count(group(w), MEMBER_CURRENT) < 3) {
				event_up(was);
				cr_assert_neq(group(w)->phase, GROUP_ENDED);
			}
			for (unsigned int i = 0; i < 40; i += 2) {
				write_begin(w, &c[i], i, i + 1);
				commit_begin(w, &c[i + 1]);
				for (unsigned int j = 0; j < 4; j++)
					event_up(was);
			}
			for (unsigned int i = 0; i < 500; i++)
				event_up(was);
			away(2);
			back(2);
			for (unsigned int i = 0; i < 500; i++)
				event_up(was);
			rig_writer_kill(&rig, w);
		}
		rig_end(&rig);
	}
}
