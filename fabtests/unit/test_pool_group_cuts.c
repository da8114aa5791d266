// SPDX-License-Identifier: BSD-2-Clause
/*
 * A group of pools under one fault at each step of one program. At each step,
 * each minority of the members loses power, is restarted, is replaced by empty
 * pools, or is cut off from the writer; and beside that no second writer
 * starts, or one starts while the first one continues, or while it is stopped.
 * group_history.h says what must hold; a displaced writer must have an error.
 * A run takes a random share of the cases, a smaller one under a sanitizer, and
 * all of them with RP_LONG=1.
 */
#include <errno.h>

#include "group_history.h"

#define LIMIT  20000u /* events until a program must have ended */
#define AWAY   60u    /* events during which a member is restarted */
#define HEALED 300u   /* events of a partition without which nothing goes on */
#define LAST   1000u  /* next_op: no operation follows */
#define CELL   (RIG_CELLS - 1) /* a cell that no program has */

/* Chunks have 8 cells: one write is in two chunks, and some meet others. */
static const struct history_op program[] = {
	{HISTORY_WRITE, 0, 4},	  {HISTORY_COMMIT, 0, 0},
	{HISTORY_DURABLE, 20, 2}, {HISTORY_WRITE, 6, 4},
	{HISTORY_WRITE, 1, 2},	  {HISTORY_READ, 20, 1},
	{HISTORY_STORE, 30, 1},	  {HISTORY_DURABLE, 0, 1},
	{HISTORY_READ, 6, 4},	  {HISTORY_WRITE, 40, 3},
	{HISTORY_WRITE, 60, 1},	  {HISTORY_WRITE, 70, 1},
	{HISTORY_COMMIT, 0, 0},	  {HISTORY_READ, 0, 4},
};
#define STEPS (sizeof(program) / sizeof(*program))

enum fault {
	POWER_CUT,
	RESTARTED,
	REPLACED,
	PARTITIONED,
	FAULTS,
};
enum second {
	ALONE,
	BESIDE,
	WHILE_STOPPED,
	SECONDS,
};

static const char *const fault_names[] = {"power cut", "restarted", "replaced",
					  "partitioned"};
static const char *const second_names[] = {"one writer", "two writers",
					   "a stopped writer and another one"};

static unsigned int next_op[RIG_WRITERS];

/* Submit the next operation of the program; at most 3 are outstanding. */
static void submit_next(unsigned int w)
{
	if (next_op[w] < STEPS && history_writer_busy(w) < 3 &&
	    history_submit(w, &program[next_op[w]]))
		next_op[w]++;
}

static bool has_ended(void)
{
	const unsigned int w = rig.nwriters - 1;

	return next_op[w] == STEPS && !history_writer_busy(w);
}

static void start(uint64_t seed, unsigned int n, unsigned int k)
{
	memset(next_op, 0, sizeof(next_op));
	history_start(seed, n, k);
}

/* Events of the program without a fault, until nothing is outstanding. */
static unsigned int count_events(uint64_t seed, unsigned int n, unsigned int k)
{
	unsigned int events = 0;

	start(seed, n, k);
	while (!has_ended() || !group_is_quiet(&rig.writers[0].g)) {
		history_step(submit_next);
		CHECK(++events < LIMIT, "the program does not end");
	}
	rig_end(&rig);
	return events;
}

static void fail_members(enum fault fault, unsigned int mask)
{
	for (unsigned int i = 0; i < rig.n; i++) {
		const int owner = rig.members[i].owner;

		if (!(mask & 1u << i))
			continue;
		switch (fault) {
		case POWER_CUT:
			rig_cut(&rig, i);
			break;
		case RESTARTED:
			rig.members[i].up = false;
			if (owner >= 0)
				member_drop(&rig.writers[owner].g, i,
					    -ETIMEDOUT, "away");
			break;
		case REPLACED:
			rig_replace(&rig, i);
			break;
		default:
			rig.writers[0].cut_off[i] = true;
		}
	}
}

static void heal(void)
{
	for (unsigned int i = 0; i < rig.n; i++) {
		rig.members[i].up = true;
		rig.writers[0].cut_off[i] = false;
	}
}

/*
 * Whether the writer has to wait for the members that are cut off. The creation
 * of a group needs all members; later, k current ones are enough. No member is
 * cut off from a second writer.
 */
static bool waits_for_members(enum second second, unsigned int mask)
{
	const struct group *g = &rig.writers[0].g;
	unsigned int current = 0;

	for (unsigned int i = 0; i < rig.n; i++)
		current += !(mask & 1u << i) &&
			   g->members[i].state == MEMBER_CURRENT;
	return second == ALONE && (g->phase != GROUP_OPEN || current < rig.k);
}

/* Run the last writer's program to its end. */
static void run_program(enum fault fault, bool waits)
{
	for (unsigned int i = 0; !has_ended(); i++) {
		if ((fault == RESTARTED && i == AWAY) ||
		    (fault == PARTITIONED && waits && i == HEALED))
			heal();
		history_step(submit_next);
		CHECK(i < LIMIT, "the program does not end");
	}
	heal();
}

/* Submit one more write of the first writer. */
static void submit_last(unsigned int w)
{
	static const struct history_op op = {HISTORY_DURABLE, CELL, 1};

	if (!w && next_op[0] < LAST && history_submit(0, &op))
		next_op[0] = LAST;
}

/*
 * The first writer must get an error once it has opened the group: -EIO if it
 * has lost all of its current members at once. Otherwise it tries to open the
 * group until its caller gives up.
 */
static void expect_displaced(void)
{
	struct rig_writer *w = &rig.writers[0];
	bool opened = false;
	int ret;

	w->paused = false;
	for (unsigned int i = 0; w->alive && (opened || i < 500); i++) {
		opened |= w->g.phase == GROUP_OPEN;
		history_step(submit_last);
		CHECK(i < LIMIT, "the first writer is told nothing");
	}
	ret = history_writer_ret(0);
	CHECK(!opened || ret == -ESTALE || ret == -EIO,
	      "the first writer is told %d", ret);
}

static void run_case(unsigned int step, enum fault fault, unsigned int mask,
		     enum second second)
{
	bool waits;

	for (unsigned int i = 0; i < step; i++)
		history_step(submit_next);
	waits = waits_for_members(second, mask);
	if (second != ALONE)
		history_writer_new();
	rig.writers[0].paused = second == WHILE_STOPPED;
	fail_members(fault, mask);
	run_program(fault, waits);
	if (second != ALONE)
		expect_displaced();
	history_finish();
	rig_end(&rig);
}

/* Whether the group promises to survive the loss of these members. */
static bool is_minority(enum fault fault, unsigned int mask, unsigned int n,
			unsigned int k)
{
	const unsigned int lost = (unsigned int)__builtin_popcount(mask);

	/* With k members replaced, all that had a commit may be gone. */
	return lost <= (n - 1) / 2 && (fault != REPLACED || lost < k);
}

/* Each case, or one of `share`. */
static void run_cases(unsigned int n, unsigned int k, unsigned int share)
{
	struct seeded s = seeded_start();
	const uint64_t seed = s.seed;
	const unsigned int all = 1u << n;
	const unsigned int events = count_events(seed, n, k);
	const char *sanitizer = getenv("RP_SANITIZE");
	unsigned int run = 0;

	if (seeded_all())
		share = 1;
	else if (sanitizer && *sanitizer)
		share *= 3;
	for (unsigned int c = 0; c < (events + 1) * all * FAULTS * SECONDS;
	     c++) {
		const unsigned int mask = c % all;
		const enum fault fault = c / all % FAULTS;
		const enum second second = c / all / FAULTS % SECONDS;
		const unsigned int step = c / all / FAULTS / SECONDS;

		if (!mask || !is_minority(fault, mask, n, k) ||
		    seeded_below(&s, share))
			continue;
		snprintf(history_run, sizeof(history_run),
			 "RP_SEED=%llu, %u of %u, step %u, %s, members %#x, %s",
			 (unsigned long long)seed, k, n, step,
			 fault_names[fault], mask, second_names[second]);
		start(seed, n, k);
		run_case(step, fault, mask, second);
		run++;
	}
	printf("%u of %u: %u steps, %u cases\n", k, n, events, run);
	cr_assert_gt(run, 0);
}

Test(pool_group_cuts, two_of_three_survive_a_fault_at_each_step)
{
	run_cases(3, 2, 24);
}

Test(pool_group_cuts, three_of_three_survive_a_fault_at_each_step)
{
	run_cases(3, 3, 24);
}

Test(pool_group_cuts, three_of_five_survive_a_fault_at_each_step)
{
	run_cases(5, 3, 160);
}

Test(pool_group_cuts, two_of_five_survive_a_fault_at_each_step)
{
	run_cases(5, 2, 160);
}
