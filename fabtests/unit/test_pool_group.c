// SPDX-License-Identifier: BSD-2-Clause
/*
 * A group of pools under random orders of events: members lose power, are
 * unreachable, lag, or are replaced; writers are killed, or displaced while
 * they go on. group_history.h says what must hold.
 */
#include <errno.h>

#include "group_history.h"

static void submit_random_op(unsigned int w)
{
	const unsigned int kind = (unsigned int)seeded_below(&rig.rnd, 30);
	struct history_op op = {.kind = HISTORY_WRITE};

	/* Two of three events submit nothing. */
	if (kind >= 10)
		return;
	op.n = 1 + (unsigned int)seeded_below(
			   &rig.rnd, seeded_below(&rig.rnd, 3) ? 2 : 20);
	op.cell = (unsigned int)seeded_below(&rig.rnd, RIG_CELLS - op.n);
	if (!kind)
		op.kind = HISTORY_DURABLE;
	else if (kind == 9)
		op.kind = HISTORY_STORE;
	else if (kind >= 7)
		op.kind = HISTORY_COMMIT;
	else if (kind >= 5)
		op.kind = HISTORY_READ;
	if (kind >= 7)
		op.n = kind == 9;
	history_submit(w, &op);
}

static bool are_members_current(unsigned int w)
{
	return rig.writers[w].alive && history_writer_reads(w) &&
	       group_count(&rig.writers[w].g, MEMBER_CURRENT) == rig.n;
}

static void inject_random_event(void)
{
	const unsigned int m = (unsigned int)seeded_below(&rig.rnd, rig.n);
	const unsigned int last = rig.nwriters - 1;

	switch (seeded_below(&rig.rnd, 13)) {
	case 0: /* one member loses power */
	case 1:
		rig_cut(&rig, m);
		break;
	case 2: /* all members lose power */
		for (unsigned int i = 0; i < rig.n; i++)
			rig_cut(&rig, i);
		break;
	case 3: /* a member is unreachable for a while */
	case 4:
		rig.members[m].up = false;
		break;
	case 5:
	case 6:
		for (unsigned int i = 0; i < rig.n; i++)
			rig.members[i].up = true;
		break;
	case 7: /* its writer drops the member */
		if (rig.members[m].owner >= 0)
			member_drop(&rig.writers[rig.members[m].owner].g, m,
				    -ETIMEDOUT, "away");
		break;
	case 8: /* the writer is killed, and a new one starts */
		if (rig.nwriters < RIG_WRITERS && rig.writers[last].alive) {
			history_writer_kill(last);
			history_writer_new();
		}
		break;
	case 9: /* a new writer displaces one that goes on */
		if (rig.nwriters < RIG_WRITERS)
			history_writer_new();
		break;
	case 10: /* a member's disk is replaced */
		if (are_members_current(last))
			rig_replace(&rig, m);
		break;
	case 11: /* the bitmap of an idle group is cleared */
		if (rig.writers[last].alive)
			group_clear_all(&rig.writers[last].g);
		break;
	case 12: /* a copy to a new member arrives damaged */
		rig.damaged_copies = 1;
		break;
	}
}

static void run_seed(uint64_t s, unsigned int n, unsigned int k)
{
	const unsigned int steps = 3000;

	snprintf(history_run, sizeof(history_run), "RP_SEED=%llu",
		 (unsigned long long)s);
	history_start(s, n, k);
	for (unsigned int i = 0; i < steps; i++) {
		history_step(submit_random_op);
		if (!seeded_below(&rig.rnd, 60))
			inject_random_event();
	}
	history_finish();
	rig_end(&rig);
}

static void run_seeds(unsigned int n, unsigned int k)
{
	struct seeded s = seeded_start();
	const unsigned int count = getenv("RP_SEED") ? 1 : 60;

	for (unsigned int i = 0; i < count; i++)
		run_seed(s.seed + i, n, k);
}

Test(pool_group, two_of_three_lose_nothing)
{
	run_seeds(3, 2);
}

Test(pool_group, three_of_five_lose_nothing)
{
	run_seeds(5, 3);
}

Test(pool_group, two_of_five_lose_nothing)
{
	run_seeds(5, 2);
}
