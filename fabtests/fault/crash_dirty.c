// SPDX-License-Identifier: BSD-2-Clause
/*
 * librpmem_pool over the provider on the simulated fabric. Connections a, b and
 * c share a pool, as clients of nbdkit's plugin do: each writes, and a commit
 * of one covers all. The target's power is cut before each step of a run, and a
 * second time some steps later, while the library mostly repeats the writes in
 * its journal.
 *
 * usage: crash_dirty [METHOD PROGRAM]
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_pool.h"
#include "libpool/group_open.h"
#include "libpool/pool.h"

#define LENGTH	4096u
#define CELL	64u /* bytes; a write stores its number in the first 8 */
#define CELLS	4u
#define OPS	24u
#define JOURNAL 4096u
#define NEVER	UINT_MAX
/* Random seeds: each is an order of messages, tried with all cuts. */
#define ORDERS	    3u
#define ORDERS_LONG 30u

/*
 * a, b, c: the connection of this name writes to its own cell; A, B, C: the
 * same with RPMEM_POOL_BUFFERED; d: a durable write to cell d; z, Z: zeros over
 * the number in cell a; r: a read of all cells; f: a commit; w: wait until all
 * operations have completed.
 */
static const char *const programs[] = {"abwf",	   "ABf",    "awfBf",
				       "awzBwfbf", "daCwrf", "AbwfwZcrwf"};
#define PROGRAMS (sizeof(programs) / sizeof(*programs))

struct op {
	struct rpmem_pool_op op;
	unsigned int cell;
	uint64_t value;		  /* number of a write, or of zeros */
	uint64_t floor[CELLS];	  /* newest completed write of each cell when a
				   * read or commit was submitted */
	char bytes[CELLS * CELL]; /* of a write, or a read */
};

static struct world {
	struct rpmem_pool pool;
	const char *next; /* steps of the program still to do */
	struct op ops[OPS];
	unsigned int nops, ended;
	uint64_t submitted[CELLS], completed[CELLS], committed[CELLS];
	uint32_t zeros; /* bits of the numbers in cell a that are of zeros */
	unsigned int steps, cuts[2]; /* steps before which power is cut */
	bool connects;		     /* the library has called
				      * pool_reconnect() */
} w;

/* --- functions of the library that need a daemon --- */

void pool_reconnect(struct rpmem_pool *p)
{
	w.connects = true;
}

void pool_release(struct offer *o)
{
}

void pool_lease_wake(const struct rpmem_pool *p)
{
}

int pool_group_run(struct rpmem_pool *p, struct rpmem_pool_op *op)
{
	return -EINVAL;
}

int pool_group_submit(struct rpmem_pool *p, struct rpmem_pool_op *op)
{
	return -EINVAL;
}

int pool_group_poll(struct rpmem_pool *p, struct rpmem_pool_op **done,
		    unsigned int n, int timeout_ms)
{
	return -EINVAL;
}

/*
 * Finish a reconnection as the library's connect.c does: the restarted daemon
 * exports the pool with a new key.
 */
static void reconnect(void)
{
	struct rpmem_pool *p = &w.pool;

	w.connects = false;
	p->next = p->now;
	p->next.ex.key = pw.key;
	pthread_mutex_lock(&p->lock);
	work_connected(p);
	pthread_mutex_unlock(&p->lock);
}

static void open_pool(void)
{
	struct rpmem_pool *p = &w.pool;
	const struct node *n = &pw.node[0];

	p->f = (struct rp_fabric){
		.info = (struct fi_info *)(uintptr_t)nodes_info(),
		.domain = n->domain,
		.av = n->av,
		.cq = n->cq,
		.ep = n->ep,
	};
	MUST(fi_rpmem_ops_get(n->ep, &p->f.ops));
	p->required = FI_RPMEM_CLASS_POWER;
	p->timeout_ms = 3600u * 1000;
	p->now.ex.len = LENGTH;
	p->now.ex.key = pw.key;
	p->now.peer = n->peer;
	work_init(p);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->thread_done, NULL);
	pthread_cond_init(&p->async_done, NULL);
	MUST(rp_journal_init(&p->journal, JOURNAL));
}

static void close_pool(void)
{
	work_fini(&w.pool);
	rp_journal_fini(&w.pool.journal);
	pool_texts_free(&w.pool);
}

/* --- the connections --- */

static uint64_t number_at(const unsigned char *bytes, unsigned int cell)
{
	uint64_t value;

	memcpy(&value, bytes + cell * CELL, sizeof(value));
	return value;
}

/*
 * Whether a cell may have this number, if write `least` or a later submitted
 * one has left it. Zeros leave the number 0, as the new pool had it.
 */
static bool may_have(unsigned int cell, uint64_t value, uint64_t least)
{
	const uint32_t zeros = cell ? 1 : w.zeros | 1;

	if (value)
		return value >= least && value <= w.submitted[cell];
	for (uint64_t n = least; n <= w.submitted[cell]; n++)
		if (zeros >> n & 1)
			return true;
	return false;
}

/* Check that each cell has write least[i] or a later submitted one. */
static void check_cells(const char *what, const unsigned char *bytes,
			const uint64_t *least)
{
	for (unsigned int i = 0; i < CELLS; i++) {
		const uint64_t value = number_at(bytes, i);

		if (!may_have(i, value, least[i]))
			WRONG("%s: cell %u has write %d, not %d to %d", what, i,
			      (int)value, (int)least[i], (int)w.submitted[i]);
	}
}

static void end_op(struct op *o)
{
	w.ended++;
	if (o->op.result)
		WRONG("an operation fails: %s", o->op.error);
	switch (o->op.type) {
	case RPMEM_POOL_WRITE:
	case RPMEM_POOL_ZERO:
		w.completed[o->cell] = o->value;
		if (o->op.flags & RPMEM_POOL_DURABLE)
			w.committed[o->cell] = o->value;
		break;
	case RPMEM_POOL_READ:
		/*
		 * Without placed_acks the adapter acknowledges received bytes,
		 * and without fence its reads may pass writes: a read proves
		 * nothing.
		 */
		if (!pw.cell->placed_acks && !pw.cell->truth.fence)
			break;
		check_cells("a read", (unsigned char *)o->bytes, o->floor);
		break;
	default:
		for (unsigned int i = 0; i < CELLS; i++)
			if (w.committed[i] < o->floor[i])
				w.committed[i] = o->floor[i];
	}
}

static bool may_submit(void)
{
	return *w.next && (*w.next != 'w' || w.ended == w.nops);
}

static void submit_write(struct op *o, char step)
{
	const bool zero = step == 'z' || step == 'Z';

	o->op.type = zero ? RPMEM_POOL_ZERO : RPMEM_POOL_WRITE;
	o->op.flags = step == 'd'  ? RPMEM_POOL_DURABLE
		      : step < 'a' ? RPMEM_POOL_BUFFERED
				   : 0;
	if (!zero)
		o->cell = (unsigned int)(step - (step < 'a' ? 'A' : 'a'));
	o->value = ++w.submitted[o->cell];
	if (zero)
		w.zeros |= 1u << o->value;
	memcpy(o->bytes, &o->value, sizeof(o->value));
	o->op.offset = o->cell * CELL;
	o->op.len = sizeof(o->value);
}

static void submit_next(void)
{
	const char step = *w.next++;
	struct op *o = &w.ops[w.nops];

	if (step == 'w')
		return;
	w.nops++;
	o->op.buf = o->bytes;
	memcpy(o->floor, w.completed, sizeof(o->floor));
	if (step == 'f') {
		o->op.type = RPMEM_POOL_COMMIT;
	} else if (step == 'r') {
		o->op.type = RPMEM_POOL_READ;
		o->op.len = sizeof(o->bytes);
	} else {
		submit_write(o, step);
	}
	pmsim->use_machine(0);
	MUST(rpmem_pool_submit(&w.pool, &o->op));
}

static void poll_pool(void)
{
	struct rpmem_pool_op *done[OPS];
	int n;

	pmsim->use_machine(0);
	pmsim->report_failures(0);
	for (int look = 0; look < 2;) {
		pw.now += 2 * POOL_MS;
		n = rpmem_pool_poll(&w.pool, done, OPS, 0);
		for (int i = 0; i < n; i++)
			end_op((struct op *)done[i]);
		if (w.connects)
			reconnect();
		else if (!n)
			look++;
	}
	pw.ignored[0] = pmsim->events(0);
}

static bool is_done(void)
{
	return !*w.next && w.ended == w.nops;
}

/* --- power --- */

static void recover(const unsigned char *left)
{
	check_cells("a cut", left, w.committed);
}

static uint64_t state(void)
{
	uint64_t h = 0;

	for (unsigned int i = 0; i < CELLS; i++)
		h = pool_mix_hash(h ^ (w.committed[i] << 8 | w.submitted[i]));
	return h;
}

/*
 * Choose what a cut leaves in a word: *mode is 0 for the oldest value, 1 for
 * the newest one, and otherwise a random state.
 */
static uint64_t pick(void *ctx, uint64_t below)
{
	uint64_t *mode = ctx;

	if (*mode < 2)
		return *mode ? below - 1 : 0;
	*mode = pool_mix_hash(*mode) | 2;
	return *mode % below;
}

/*
 * Called before each step: cut the target's power in the steps w.cuts, restart
 * the target, and check what the cut has left.
 */
static void cut(void)
{
	const unsigned int step = w.steps++;
	struct node *target = &pw.node[POOL_TARGET];
	uint8_t name[NODE_NAME];
	uint64_t mode;

	if (step != w.cuts[0] && step != w.cuts[1])
		return;
	mode = choose(&choices, 6);
	node_name(target, name);
	model_cut(pw.model, pick, &mode);
	pmsim->kill(POOL_TARGET);
	node_close(target);
	node_open(target, POOL_TARGET, name);
	node_register(target, pw.mem, LENGTH);
	pw.key = fi_mr_key(target->mr);
	pw.ignored[POOL_TARGET] = 0;
	check_cells("a restart", pw.mem, w.committed);
}

/* --- runs --- */

/* Run a program with cuts before two steps. Returns the number of its steps. */
static unsigned int run_program(const struct pool_cell *cell, const char *steps,
				unsigned int first, unsigned int second)
{
	static const struct pool_program program = {
		.length = LENGTH,
		.ring_at = (uint64_t)2 * CELL,
		.modes = 10,
		.state = state,
		.recover = recover,
		.may_submit = may_submit,
		.submit = submit_next,
		.poll = poll_pool,
		.is_done = is_done,
		.step = cut,
	};

	w = (struct world){.next = steps, .cuts = {first, second}};
	pool_start(cell, &program);
	pw.high = CELLS * CELL;
	open_pool();
	pool_run();
	close_pool();
	return w.steps;
}

/* Cut the power before each step. Returns whether nothing was wrong. */
static bool try_cuts(const struct pool_cell *cell, const char *program,
		     unsigned int orders)
{
	const unsigned long before = pw.cuts;
	unsigned int runs = 0, steps = 1, k = 0;

	for (unsigned int seed = 0; seed < orders; seed++)
		for (k = 0; k <= steps; k++, runs++) {
			const unsigned int at = k ? k - 1 : NEVER;
			const unsigned int again = at + 1 + k * 7 % 23;

			choices_random(&choices, seed);
			/* The first run, without a cut, counts the steps. */
			steps = run_program(cell, program, at,
					    k ? again : NEVER);
			if (*pw.why) {
				printf("not ok: %s %s, order %u, cuts at %d "
				       "and %d: %s\n",
				       cell->method, program, seed, (int)at,
				       (int)again, pw.why);
				return false;
			}
		}
	printf("# %s %s: %u runs, %lu recoveries\n", cell->method, program,
	       runs, pw.cuts - before);
	return true;
}

int main(int argc, char **argv)
{
	const unsigned int orders = pool_setup(ORDERS, ORDERS_LONG);
	unsigned int tried = 0, failed = 0;

	for (unsigned int c = 0; c < POOL_CELLS; c++)
		for (unsigned int i = 0; i < PROGRAMS; i++) {
			if (argc > 2 &&
			    (strcmp(argv[1], pool_cells[c].method) ||
			     strcmp(argv[2], programs[i])))
				continue;
			tried++;
			failed +=
				!try_cuts(&pool_cells[c], programs[i], orders);
		}
	return pool_end(tried, failed);
}
