// SPDX-License-Identifier: BSD-2-Clause
/*
 * A group of pools under random orders of events: members lose power, are
 * unreachable, lag, or are replaced; writers are killed, or displaced while
 * they go on. No acknowledged write is lost, later writers read what an earlier
 * one has read, and in the end all members hold the same bytes.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "group_rig.h"

#define OPS 8u

static struct rig rig;
static uint64_t seed;

/* Number of the next write, which its cells store; numbers grow. */
static uint64_t next_number;

static struct cell {
	uint64_t acked; /* newest durable value */
	uint64_t newest;
} cells[RIG_CELLS];

/* An operation of a writer. */
struct writer_op {
	struct rpmem_pool_op op;
	struct rpmem_pool_then then;
	bool used;
	unsigned int writer, cell, n;
	uint64_t values[32];
};

/* The operations of a writer, and the cells as it knows them. */
static struct writer_view {
	struct writer_op ops[OPS];
	bool has_read_all; /* it has read all cells after opening the group */
	uint64_t known[RIG_CELLS]; /* value last written or read */
	uint64_t dirty[RIG_CELLS]; /* completed, uncommitted value, or 0 */
	uint64_t covered[OPS][RIG_CELLS]; /* values that each commit covers */
	bool busy[RIG_CELLS];
} writer_views[RIG_WRITERS];
static unsigned int newest_writer; /* writer that opened the group last */
static bool any_opened;

#define CHECK(c, ...)                                                          \
	do {                                                                   \
		if (!(c)) {                                                    \
			char text[256];                                        \
			snprintf(text, sizeof(text), __VA_ARGS__);             \
			cr_assert(false, "RP_SEED=%llu: %s",                   \
				  (unsigned long long)seed, text);             \
		}                                                              \
	} while (0)

/* Check and record that a value was acknowledged to a writer as durable. */
static void record_acknowledged(unsigned int writer, unsigned int cell,
				uint64_t value)
{
	if (any_opened && writer < newest_writer)
		CHECK(writer_views[newest_writer].known[cell] >= value,
		      "cell %u: %llu was acknowledged to writer %u after "
		      "writer "
		      "%u had read %llu",
		      cell, (unsigned long long)value, writer, newest_writer,
		      (unsigned long long)writer_views[newest_writer]
			      .known[cell]);
	if (value > cells[cell].acked)
		cells[cell].acked = value;
}

static void completed(void *arg, struct rpmem_pool_op *op, int ret,
		      const char *error)
{
	struct writer_op *a = op->context;
	struct writer_view *v = &writer_views[a->writer];
	const unsigned int at = (unsigned int)(a - v->ops);

	a->used = false;
	for (unsigned int i = 0; i < a->n; i++)
		v->busy[a->cell + i] = false;
	if (ret) {
		/* Only operations of killed or displaced writers may fail. */
		CHECK(ret == -ECANCELED || ret == -ESTALE || ret == -EIO,
		      "an operation failed with %d: %s", ret, error);
		return;
	}
	if (op->type == RPMEM_POOL_READ) {
		CHECK(!rig_touches(&rig, op->buf, op->len),
		      "a member may still write to the buffer of a read");
		for (unsigned int i = 0; i < a->n; i++)
			CHECK(a->values[i] == v->known[a->cell + i],
			      "cell %u: writer %u read %llu and not %llu",
			      a->cell + i, a->writer,
			      (unsigned long long)a->values[i],
			      (unsigned long long)v->known[a->cell + i]);
		return;
	}
	if (op->type == RPMEM_POOL_WRITE) {
		for (unsigned int i = 0; i < a->n; i++) {
			const unsigned int c = a->cell + i;

			v->known[c] = a->values[i];
			v->dirty[c] = a->values[i];
			if (!(op->flags & RPMEM_POOL_DURABLE))
				continue;
			record_acknowledged(a->writer, c, a->values[i]);
		}
		return;
	}
	for (unsigned int c = 0; c < RIG_CELLS; c++)
		if (v->covered[at][c])
			record_acknowledged(a->writer, c, v->covered[at][c]);
	if (op->then) {
		v->known[a->cell] = a->then.value;
		record_acknowledged(a->writer, a->cell, a->then.value);
	}
}

static void submit_random_op(unsigned int writer)
{
	struct writer_view *v = &writer_views[writer];
	struct writer_op *a = NULL;
	unsigned int kind = (unsigned int)seeded_below(&rig.rnd, 10);

	for (unsigned int i = 0; i < OPS && !a; i++)
		if (!v->ops[i].used)
			a = &v->ops[i];
	if (!a)
		return;
	*a = (struct writer_op){.writer = writer};
	a->op.context = a;
	a->n = 1 + (unsigned int)seeded_below(
			   &rig.rnd, seeded_below(&rig.rnd, 3) ? 2 : 20);
	a->cell = (unsigned int)seeded_below(&rig.rnd, RIG_CELLS - a->n);
	a->op.buf = a->values;
	if (kind >= 7) {
		a->op.type = RPMEM_POOL_COMMIT;
		a->n = 0;
		memcpy(v->covered[a - v->ops], v->dirty, sizeof(v->dirty));
		if (kind == 9 && !v->busy[a->cell]) {
			a->n = 1;
			a->op.then = &a->then;
			a->then.offset = a->cell * 8;
			a->then.value = ++next_number;
			cells[a->cell].newest = next_number;
			v->busy[a->cell] = true;
		}
	} else {
		a->op.type = kind < 5 ? RPMEM_POOL_WRITE : RPMEM_POOL_READ;
		a->op.offset = a->cell * 8;
		a->op.len = a->n * 8;
		for (unsigned int i = 0; i < a->n; i++)
			if (v->busy[a->cell + i])
				return;
		for (unsigned int i = 0; i < a->n; i++) {
			v->busy[a->cell + i] = true;
			if (kind >= 5)
				continue;
			a->values[i] = ++next_number;
			cells[a->cell + i].newest = next_number;
		}
		if (!kind)
			a->op.flags = RPMEM_POOL_DURABLE;
	}
	a->used = true;
	CHECK(!group_submit(&rig.writers[writer].g, &a->op), "submit");
}

/* --- what a writer reads after opening the group --- */

static struct writer_op first_reads[RIG_WRITERS];
static uint64_t first_values[RIG_WRITERS][RIG_CELLS];

static void first_read(void *arg, struct rpmem_pool_op *op, int ret,
		       const char *error)
{
	struct writer_op *a = op->context;
	const unsigned int w = a->writer;
	struct writer_view *v = &writer_views[w];

	if (op != &first_reads[w].op) {
		completed(arg, op, ret, error);
		return;
	}
	if (ret)
		return;
	for (unsigned int c = 0; c < RIG_CELLS; c++) {
		const uint64_t value = first_values[w][c];

		/* A displaced writer may read the older value that it has. */
		CHECK(value >= cells[c].acked || w < newest_writer,
		      "cell %u: writer %u reads %llu, and %llu was "
		      "acknowledged",
		      c, w, (unsigned long long)value,
		      (unsigned long long)cells[c].acked);
		CHECK(value <= cells[c].newest, "cell %u: nobody wrote %llu", c,
		      (unsigned long long)value);
		v->known[c] = value;
		if (!any_opened || w >= newest_writer)
			cells[c].acked = value;
	}
	v->has_read_all = true;
	if (!any_opened || w > newest_writer)
		newest_writer = w;
	any_opened = true;
}

static void start_first_read(unsigned int w)
{
	rig.writers[w].opened = true;
	first_reads[w] = (struct writer_op){
		.writer = w,
		.op = {.type = RPMEM_POOL_READ,
		       .buf = first_values[w],
		       .len = RIG_BYTES,
		       .context = &first_reads[w]},
	};
	CHECK(!group_submit(&rig.writers[w].g, &first_reads[w].op), "submit");
}

static unsigned int start_writer(void)
{
	const unsigned int w = rig_writer_new(&rig, first_read);

	memset(&writer_views[w], 0, sizeof(writer_views[w]));
	return w;
}

static bool is_group_ended(unsigned int w)
{
	return rig.writers[w].g.phase == GROUP_ENDED;
}

static void kill_writer(unsigned int w)
{
	rig_writer_kill(&rig, w);
	for (unsigned int i = 0; i < OPS; i++)
		writer_views[w].ops[i].used = false;
}

/* --- a random run --- */

static bool are_members_current(unsigned int w)
{
	return rig.writers[w].alive && writer_views[w].has_read_all &&
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
			kill_writer(last);
			start_writer();
		}
		break;
	case 9: /* a new writer displaces one that goes on */
		if (rig.nwriters < RIG_WRITERS)
			start_writer();
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

static void run_step(void)
{
	rig_event(&rig);
	for (unsigned int w = 0; w < rig.nwriters; w++) {
		struct rig_writer *r = &rig.writers[w];

		if (!r->alive)
			continue;
		if (!r->opened && r->g.phase == GROUP_OPEN)
			start_first_read(w);
		if (writer_views[w].has_read_all && !seeded_below(&rig.rnd, 3))
			submit_random_op(w);
		if (!is_group_ended(w))
			continue;
		CHECK(r->g.ret == -ESTALE || r->g.ret == -EAGAIN ||
			      r->g.ret == -EIO || w + 1 < rig.nwriters,
		      "writer %u ended with %d: %s", w, r->g.ret, r->g.error);
		kill_writer(w);
		if (w == rig.nwriters - 1 && w + 1 < RIG_WRITERS)
			start_writer();
	}
}

/* With all members up, the last writer reads all; members become equal. */
static void finish_run(void)
{
	unsigned int w, rounds = 0;

	for (unsigned int i = 0; i < rig.n; i++)
		rig.members[i].up = true;
	for (unsigned int i = 0; i < rig.nwriters; i++)
		if (rig.writers[i].alive)
			kill_writer(i);
	if (rig.nwriters == RIG_WRITERS)
		return;
	w = start_writer();
	while (!writer_views[w].has_read_all ||
	       group_count(&rig.writers[w].g, MEMBER_CURRENT) < rig.n) {
		rig_event(&rig);
		if (!rig.writers[w].opened &&
		    rig.writers[w].g.phase == GROUP_OPEN)
			start_first_read(w);
		CHECK(!is_group_ended(w), "the last writer ended: %s",
		      rig.writers[w].g.error);
		CHECK(rounds++ < 100000, "the last writer does not open");
	}
	for (unsigned int i = 0; i < 2; i++) {
		while (!group_is_quiet(&rig.writers[w].g)) {
			rig_event(&rig);
			CHECK(rounds++ < 200000, "it does not end");
		}
		group_clear_all(&rig.writers[w].g);
	}
	for (unsigned int i = 1; i < rig.n; i++) {
		CHECK(!memcmp(rig.members[0].visible + GROUP_AREA,
			      rig.members[i].visible + GROUP_AREA, RIG_BYTES),
		      "members 0 and %u differ", i);
		CHECK(!memcmp(rig.members[0].durable + GROUP_AREA,
			      rig.members[i].durable + GROUP_AREA, RIG_BYTES),
		      "members 0 and %u differ durably", i);
	}
}

static void run_seed(uint64_t s, unsigned int n, unsigned int k)
{
	const unsigned int steps = 3000;

	seed = s;
	rig_start(&rig, s, n, k);
	rig.only_writers_change = true;
	memset(cells, 0, sizeof(cells));
	next_number = 0;
	any_opened = false;
	newest_writer = 0;
	start_writer();
	for (unsigned int i = 0; i < steps; i++) {
		run_step();
		if (!seeded_below(&rig.rnd, 60))
			inject_random_event();
	}
	finish_run();
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
