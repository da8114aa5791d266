// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <string.h>

#include "group_history.h"

char history_run[128];
struct rig rig;

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

/* The operations of a writer, and the values of cells that it knows. */
static struct writer_view {
	struct writer_op ops[HISTORY_OPS];
	bool has_read_all; /* it has read all cells after opening the group */
	int ret;	   /* error with which its group has ended */
	uint64_t known[RIG_CELLS]; /* value last written or read */
	uint64_t dirty[RIG_CELLS]; /* completed, uncommitted value, or 0 */
	uint64_t covered[HISTORY_OPS]
			[RIG_CELLS]; /* values that each commit covers */
	bool busy[RIG_CELLS];
} writer_views[RIG_WRITERS];
static unsigned int newest_writer; /* writer that opened the group last */
static bool any_opened;

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

static void writer_op_done(void *arg, struct rpmem_pool_op *op, int ret,
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

/* Is no operation of the writer outstanding on these cells? */
static bool are_free(const struct writer_view *v, const struct history_op *op)
{
	for (unsigned int i = 0; i < op->n; i++)
		if (v->busy[op->cell + i])
			return false;
	return true;
}

/* Make the commit of an operation, with a store if it has a cell. */
static void fill_commit(struct writer_view *v, struct writer_op *a)
{
	a->op.type = RPMEM_POOL_COMMIT;
	memcpy(v->covered[a - v->ops], v->dirty, sizeof(v->dirty));
	if (!a->n)
		return;
	a->op.then = &a->then;
	a->then.offset = a->cell * 8;
	a->then.value = ++next_number;
	cells[a->cell].newest = next_number;
}

static void fill_range(struct writer_op *a, enum history_kind kind)
{
	a->op.type = kind == HISTORY_READ ? RPMEM_POOL_READ : RPMEM_POOL_WRITE;
	a->op.flags = kind == HISTORY_DURABLE ? RPMEM_POOL_DURABLE : 0;
	a->op.offset = a->cell * 8;
	a->op.len = a->n * 8;
	for (unsigned int i = 0; i < a->n && kind != HISTORY_READ; i++) {
		a->values[i] = ++next_number;
		cells[a->cell + i].newest = next_number;
	}
}

bool history_submit(unsigned int writer, const struct history_op *op)
{
	struct writer_view *v = &writer_views[writer];
	struct writer_op *a = NULL;

	for (unsigned int i = 0; i < HISTORY_OPS && !a; i++)
		if (!v->ops[i].used)
			a = &v->ops[i];
	if (!a || !are_free(v, op))
		return false;
	*a = (struct writer_op){
		.writer = writer,
		.cell = op->cell,
		.n = op->kind == HISTORY_COMMIT ? 0 : op->n,
		.op = {.context = a, .buf = a->values},
		.used = true,
	};
	for (unsigned int i = 0; i < a->n; i++)
		v->busy[a->cell + i] = true;
	if (op->kind >= HISTORY_COMMIT)
		fill_commit(v, a);
	else
		fill_range(a, op->kind);
	CHECK(!group_submit(&rig.writers[writer].g, &a->op), "submit");
	return true;
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
		writer_op_done(arg, op, ret, error);
		return;
	}
	if (ret)
		return;
	for (unsigned int c = 0; c < RIG_CELLS; c++) {
		const uint64_t value = first_values[w][c];

		/*
		 * A displaced writer may still read the older value of its
		 * handle.
		 */
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

unsigned int history_writer_new(void)
{
	const unsigned int w = rig_writer_new(&rig, first_read);

	memset(&writer_views[w], 0, sizeof(writer_views[w]));
	return w;
}

static bool is_group_ended(unsigned int w)
{
	return rig.writers[w].g.phase == GROUP_ENDED;
}

void history_writer_kill(unsigned int w)
{
	rig_writer_kill(&rig, w);
	for (unsigned int i = 0; i < HISTORY_OPS; i++)
		writer_views[w].ops[i].used = false;
}

bool history_writer_reads(unsigned int w)
{
	return writer_views[w].has_read_all;
}

unsigned int history_writer_busy(unsigned int w)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < HISTORY_OPS; i++)
		n += writer_views[w].ops[i].used;
	return n;
}

int history_writer_ret(unsigned int w)
{
	return writer_views[w].ret;
}

void history_start(uint64_t seed, unsigned int n, unsigned int k)
{
	rig_start(&rig, seed, n, k);
	rig.only_writers_change = true;
	memset(cells, 0, sizeof(cells));
	next_number = 0;
	any_opened = false;
	newest_writer = 0;
	history_writer_new();
}

void history_step(void (*submit)(unsigned int w))
{
	rig_event(&rig);
	for (unsigned int w = 0; w < rig.nwriters; w++) {
		struct rig_writer *r = &rig.writers[w];

		if (!r->alive)
			continue;
		if (!r->opened && r->g.phase == GROUP_OPEN)
			start_first_read(w);
		if (writer_views[w].has_read_all && !r->paused)
			submit(w);
		if (!is_group_ended(w))
			continue;
		CHECK(r->g.ret == -ESTALE || r->g.ret == -EAGAIN ||
			      r->g.ret == -EIO || w + 1 < rig.nwriters,
		      "writer %u ended with %d: %s", w, r->g.ret, r->g.error);
		writer_views[w].ret = r->g.ret;
		history_writer_kill(w);
		if (w == rig.nwriters - 1 && w + 1 < RIG_WRITERS)
			history_writer_new();
	}
}

/*
 * Bring all members up, let the last writer read all cells, and check that all
 * members hold the same bytes.
 */
void history_finish(void)
{
	unsigned int w, rounds = 0;

	for (unsigned int i = 0; i < rig.n; i++)
		rig.members[i].up = true;
	for (unsigned int i = 0; i < rig.nwriters; i++)
		if (rig.writers[i].alive)
			history_writer_kill(i);
	if (rig.nwriters == RIG_WRITERS)
		return;
	w = history_writer_new();
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
