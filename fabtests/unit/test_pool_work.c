/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A handle of a pool writes and commits, with several operations outstanding,
 * while the target executes the posts at any time and dies at any step: what
 * completed is there.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "pool_target.h"

#define OPS	    40u
#define OUTSTANDING 6u
#define NEVER	    UINT32_MAX
/*
 * Seconds of a test until it has failed. One limit for all: criterion 2.4 leaks
 * 48 bytes when the limit of a test that has ended passes during another test.
 */
#define LIMIT 300

/* An operation of the program. A write writes its number to its cells. */
struct op {
	struct rpmem_pool_op op;
	uint64_t bytes[CELLS];
	unsigned int at, n;
	bool completed;
	struct rpmem_pool_then then;  /* of half of the commits: its number */
	uint64_t oldest_valid[CELLS]; /* a read's: the oldest write that it may
					 find */
};

struct world {
	struct seeded random;
	bool lossy;    /* deaths are power cuts */
	bool buffered; /* writes are, but for durable ones */
	struct pool_target *t;
	struct op ops[OPS + 4]; /* number 0 is the content of a new pool */
	unsigned int next, outstanding, deaths;
	uint64_t committed[CELLS]; /* the oldest write that a cut may leave */
};

static bool is_write(const struct rpmem_pool_op *op)
{
	return op->type == RPMEM_POOL_WRITE || op->type == RPMEM_POOL_ZERO;
}

static bool covers_cell(const struct op *o, unsigned int cell)
{
	return is_write(&o->op) && cell - o->at < o->n;
}

/* A write that has failed is completed when its pieces are. */
static bool has_failed(const struct world *w, const struct op *o)
{
	const struct work *work;

	LIST_FOREACH (work, &w->t->pool.all, all)
		if (work->op == &o->op && work->failed)
			return true;
	return o->op.result != 0;
}

/* The newest write to the cell that began before an operation. */
static uint64_t newest_write(const struct world *w, unsigned int cell,
			     unsigned int before, bool completed)
{
	for (unsigned int i = before - 1; i > 0; i--)
		if (covers_cell(&w->ops[i], cell) &&
		    !has_failed(w, &w->ops[i]) &&
		    (w->ops[i].completed || !completed))
			return i;
	return 0;
}

static void check(struct world *w, bool ok, const char *what, unsigned int cell)
{
	cr_assert(ok, "%s, cell %u, operation %u of RP_SEED=%" PRIu64, what,
		  cell, w->next, w->random.seed);
}

/* A write to a range while another one is outstanding there has no order. */
static bool overlaps_write(const struct world *w, const struct op *o)
{
	for (unsigned int i = 1; i < w->next; i++)
		for (unsigned int c = o->at; c < o->at + o->n; c++)
			if (!w->ops[i].completed && covers_cell(&w->ops[i], c))
				return true;
	return false;
}

static void submit_op(struct world *w)
{
	struct op *o = &w->ops[w->next];
	const uint64_t kind = seeded_below(&w->random, 20);

	o->n = 1 + (unsigned int)seeded_below(&w->random, 4);
	o->at = (unsigned int)seeded_below(&w->random, CELLS - o->n);
	o->op = (struct rpmem_pool_op){
		.type = w->next > OPS || kind < 4	   ? RPMEM_POOL_COMMIT
			: kind < 7			   ? RPMEM_POOL_READ
			: seeded_below(&w->random, 4) == 0 ? RPMEM_POOL_ZERO
							   : RPMEM_POOL_WRITE,
		.flags = kind > 16 ? RPMEM_POOL_DURABLE : 0,
		.buf = o->bytes,
		.len = 8u * o->n,
		.offset = 8u * o->at,
		.context = o,
	};
	if (!is_write(&o->op))
		o->op.flags = 0;
	else if (w->buffered && overlaps_write(w, o))
		return;
	else if (w->buffered && !o->op.flags)
		o->op.flags = RPMEM_POOL_BUFFERED;
	/* No write reaches the last cell. */
	if (o->op.type == RPMEM_POOL_COMMIT && seeded_below(&w->random, 2)) {
		o->then.offset = 8u * (CELLS - 1);
		o->then.value = w->next;
		o->op.then = &o->then;
	}
	for (unsigned int i = 0; i < o->n; i++) {
		o->bytes[i] = w->next;
		o->oldest_valid[i] = newest_write(w, o->at + i, w->next, true);
	}
	cr_assert_eq(rpmem_pool_submit(&w->t->pool, &o->op), 0);
	w->next++;
	w->outstanding++;
}

static void read_completed(struct world *w, const struct op *o)
{
	for (unsigned int i = 0; i < o->n; i++) {
		const unsigned int cell = o->at + i;
		const uint64_t v = o->bytes[i];

		check(w, v >= o->oldest_valid[i], "a read finds an old write",
		      cell);
		check(w, !v || (v < w->next && covers_cell(&w->ops[v], cell)),
		      "a read finds what nobody wrote", cell);
	}
}

static void raise_floor(struct world *w, unsigned int cell, uint64_t to)
{
	if (w->committed[cell] < to)
		w->committed[cell] = to;
}

static void check_completed(struct world *w, struct op *o)
{
	const unsigned int number = (unsigned int)(o - w->ops);

	o->completed = true;
	w->outstanding--;
	if (o->op.result)
		check(w, o->op.result == -EIO && o->op.error, "its error", 0);
	else if (o->op.type == RPMEM_POOL_READ)
		read_completed(w, o);
	else if (o->op.type == RPMEM_POOL_COMMIT) {
		if (o->op.then)
			check(w, w->t->media[CELLS - 1] > 0,
			      "a store is not durable", CELLS - 1);
		for (unsigned int c = 0; c < CELLS; c++)
			raise_floor(w, c, newest_write(w, c, number, false));
	} else if (o->op.flags & RPMEM_POOL_DURABLE)
		for (unsigned int i = 0; i < o->n; i++)
			raise_floor(w, o->at + i, number);
}

static void poll_pool(struct world *w)
{
	struct rpmem_pool_op *done[4];
	int n = rpmem_pool_poll(&w->t->pool, done, 4, 0);

	for (int i = 0; i < n; i++)
		check_completed(w, done[i]->context);
	for (unsigned int c = 0; c < CELLS; c++)
		check(w, w->t->media[c] >= w->committed[c],
		      "a committed write is not durable", c);
}

/* A store says that everything before its commit is durable. */
static void check_store(struct world *w)
{
	const unsigned int at = (unsigned int)w->t->media[CELLS - 1];

	for (unsigned int c = 0; at && c + 1 < CELLS; c++)
		check(w, w->t->media[c] >= newest_write(w, c, at, false),
		      "a store is durable before a write that its commit "
		      "covers",
		      c);
}

static void kill_target(struct world *w)
{
	/* Some targets stay alive: only the connection is lost. */
	if (!w->lossy && (w->random.seed + w->deaths) % 2)
		pool_target_disconnects(w->t);
	else
		pool_target_dies(w->t, w->lossy);
	w->deaths++;
}

/* One step; faults: the disk may fail as well. */
static void run_step(struct world *w, bool faults)
{
	switch (seeded_below(&w->random, 12)) {
	case 0:
	case 1:
		if (w->next <= OPS && w->outstanding < OUTSTANDING)
			submit_op(w);
		break;
	case 2:
	case 3:
	case 4:
		pool_target_step(w->t, STEP_EXECUTE);
		break;
	case 5:
	case 6:
	case 7:
		pool_target_step(w->t, STEP_COMPLETE);
		break;
	case 8:
		pool_target_step(w->t, STEP_EVICT);
		break;
	case 9:
		if (faults && !seeded_below(&w->random, 4))
			pool_target_step(w->t, STEP_FAIL_DISK);
		break;
	case 10:
		pool_target_returns(w->t);
		break;
	default:
		poll_pool(w);
	}
	check_store(w);
}

/* All that is outstanding completes when nothing fails any more. */
static void finish_all(struct world *w)
{
	for (unsigned int i = 0; w->outstanding; i++) {
		check(w, i < 100000, "an operation never completes", 0);
		run_step(w, false);
	}
}

/*
 * Run the program of a seed. The target dies before step first, and again that
 * many steps later. Returns how many steps it takes.
 */
static unsigned int run_program(uint64_t seed, unsigned int first,
				unsigned int again)
{
	struct world *w = calloc(1, sizeof(*w));
	const bool faults = seed % 4 == 3;
	unsigned int n = 0;

	w->random = (struct seeded){.seed = seed, .state = seed};
	w->lossy = seeded_below(&w->random, 4);
	w->buffered = seed % 2;
	w->t = pool_target_start(&w->random);
	w->t->unordered = w->buffered;
	w->next = 1;
	for (; w->next <= OPS || w->outstanding; n++) {
		if (n == first || n == first + again)
			kill_target(w);
		run_step(w, faults);
		check(w, n < 100000, "an operation never completes", 0);
	}
	/* A commit that failed before may have been this one's as well. */
	do {
		submit_op(w);
		finish_all(w);
	} while (w->ops[w->next - 1].op.result && w->next < OPS + 4);
	check(w, !w->ops[w->next - 1].op.result, "the last commit fails", 0);
	kill_target(w);
	for (unsigned int c = 0; c < CELLS; c++)
		check(w, w->t->media[c] >= newest_write(w, c, w->next, false),
		      "the last commit leaves a write out", c);
	pool_target_end(w->t);
	free(w);
	return n;
}

Test(pool_work, every_step_may_be_the_targets_last, .timeout = LIMIT)
{
	const struct seeded start = seeded_start();
	const char *sanitizer = getenv("RP_SANITIZE");
	unsigned int programs = sanitizer && *sanitizer ? 32 : 128, cuts = 0;

	for (uint64_t seed = start.seed; programs--; seed++) {
		const unsigned int steps = run_program(seed, NEVER, 0);

		for (unsigned int k = 0; k < steps; k++, cuts++)
			run_program(seed, k, 1 + k * 7 % 50);
	}
	cr_log_info("%u cuts\n", cuts);
}

static void submit_and_poll(struct pool_target *t, struct rpmem_pool_op *op)
{
	struct rpmem_pool_op *done;

	cr_assert_eq(rpmem_pool_submit(&t->pool, op), 0);
	/* A buffered write needs nothing of the target. */
	if (op->flags != RPMEM_POOL_BUFFERED)
		while (pool_target_step(t, STEP_EXECUTE))
			;
	/* The newest post completes first. */
	if (op->type == RPMEM_POOL_COMMIT)
		cr_assert(pool_target_complete(t, t->nposts - 1));
	cr_assert_eq(rpmem_pool_poll(&t->pool, &done, 1, 0), 1);
	cr_assert_eq(op->result, 0);
}

/*
 * The connection is lost after a commit has completed, but before a buffered
 * write that the commit covers has completed. The library must not repeat that
 * write over the commit's store, which is newer.
 */
Test(pool_work, a_store_stays_when_an_older_write_is_lost)
{
	struct seeded random = {.seed = 1, .state = 1};
	struct pool_target *t = pool_target_start(&random);
	uint64_t old = 1;
	const struct rpmem_pool_then then = {.offset = 8, .value = 2};
	struct rpmem_pool_op write = {
		.type = RPMEM_POOL_WRITE,
		.flags = RPMEM_POOL_BUFFERED,
		.buf = &old,
		.len = 8,
		.offset = 8,
	};
	struct rpmem_pool_op commit = {
		.type = RPMEM_POOL_COMMIT,
		.then = &then,
	};
	struct rpmem_pool_op *done;

	submit_and_poll(t, &write);
	submit_and_poll(t, &commit);
	cr_assert_eq(t->media[1], 2);
	pool_target_dies(t, false);
	for (unsigned int i = 0; i < 20; i++) {
		pool_target_step(t, STEP_COMPLETE);
		cr_assert_eq(rpmem_pool_poll(&t->pool, &done, 1, 0), 0);
		pool_target_returns(t);
		pool_target_step(t, STEP_EXECUTE);
	}
	cr_assert_eq(t->pool.state, LINK_UP);
	cr_assert_eq(t->mem[1], 2, "a completed store is overwritten");
	pool_target_end(t);
}

/*
 * A commit with a store is lost, which poisons its word, and the target lives.
 * The replay leaves the word out, because a newer write of it is durable: the
 * commit, which is posted again, must not cover the word for an older write.
 */
Test(pool_work, a_lost_store_does_not_fail_the_commit_of_its_word)
{
	struct seeded random = {.seed = 1, .state = 1};
	struct pool_target *t = pool_target_start(&random);
	uint64_t old[3] = {1, 1, 1}, newer = 2;
	const struct rpmem_pool_then then = {.offset = 8, .value = 3};
	struct rpmem_pool_op ops[] = {
		{.type = RPMEM_POOL_WRITE, .buf = old, .len = sizeof(old)},
		{
			.type = RPMEM_POOL_WRITE,
			.flags = RPMEM_POOL_DURABLE,
			.buf = &newer,
			.len = 8,
			.offset = 8,
		},
		{.type = RPMEM_POOL_COMMIT, .then = &then},
	};
	struct rpmem_pool_op *done[1];
	int n = 0;

	for (unsigned int i = 0; i < 3; i++) {
		cr_assert_eq(rpmem_pool_submit(&t->pool, &ops[i]), 0);
		cr_assert(pool_target_step(t, STEP_EXECUTE));
		if (i == 2)
			pool_target_disconnects(t);
		cr_assert(pool_target_complete(t, 0));
		cr_assert_eq(rpmem_pool_poll(&t->pool, done, 1, 0), i < 2);
	}
	for (unsigned int i = 0; i < 100 && !n; i++) {
		pool_target_returns(t);
		pool_target_step(t, STEP_EXECUTE);
		pool_target_step(t, STEP_COMPLETE);
		n = rpmem_pool_poll(&t->pool, done, 1, 0);
	}
	cr_assert_eq(n, 1, "the commit never completes");
	cr_assert_eq(ops[2].result, 0);
	cr_assert_eq(t->media[1], 3);
	pool_target_end(t);
}

/* Time passes: deadlines are nearer. */
static void pass_ms(struct pool_target *t, uint64_t ms)
{
	struct work *w;

	LIST_FOREACH (w, &t->pool.all, all)
		w->deadline -= ms;
}

/* The connection is lost, and the client knows it. */
static int lose(struct pool_target *t, struct rpmem_pool_op **done)
{
	int n = 0;

	pool_target_dies(t, false);
	while (!n && t->pool.state != LINK_CONNECTING) {
		pool_target_step(t, STEP_COMPLETE);
		n = rpmem_pool_poll(&t->pool, done, 1, 0);
	}
	return n;
}

/*
 * The connection is lost again whenever the write has been posted: the timeout
 * counts from the first loss, not from the newest one.
 */
Test(pool_work, an_operation_ends_in_time_on_a_connection_that_flaps)
{
	struct seeded random = {.seed = 1, .state = 1};
	struct pool_target *t = pool_target_start(&random);
	const uint64_t timeout = 3600u * 1000;
	uint64_t value = 1;
	struct rpmem_pool_op *done, op = {
					    .type = RPMEM_POOL_WRITE,
					    .flags = RPMEM_POOL_DURABLE,
					    .buf = &value,
					    .len = 8,
				    };

	t->pool.timeout_ms = timeout;
	cr_assert_eq(rpmem_pool_submit(&t->pool, &op), 0);
	pass_ms(t, 2 * timeout);
	cr_assert_eq(lose(t, &done), 0, "a slow target is not an absent one");
	for (unsigned int i = 0; i < 3; i++) {
		pass_ms(t, timeout / 4);
		pool_target_returns(t);
		while (t->pool.state == LINK_REPLAYING) {
			cr_assert(pool_target_step(t, STEP_EXECUTE));
			cr_assert(pool_target_step(t, STEP_COMPLETE));
			cr_assert_eq(rpmem_pool_poll(&t->pool, &done, 1, 0), 0);
		}
		cr_assert_eq(t->pool.state, LINK_UP);
		cr_assert_eq(lose(t, &done), 0);
	}
	pass_ms(t, timeout / 4);
	cr_assert_eq(rpmem_pool_poll(&t->pool, &done, 1, 0), 1,
		     "a write waits longer than the timeout");
	cr_assert_eq(op.result, -ETIMEDOUT);
	pool_target_end(t);
}

static unsigned int plans_without_memory;
int __real_rp_journal_plan(struct rp_journal *j, struct rp_journal_piece **out,
			   size_t *count);
int __wrap_rp_journal_plan(struct rp_journal *j, struct rp_journal_piece **out,
			   size_t *count);
int __wrap_rp_journal_plan(struct rp_journal *j, struct rp_journal_piece **out,
			   size_t *count)
{
	if (!plans_without_memory)
		return __real_rp_journal_plan(j, out, count);
	plans_without_memory--;
	return -ENOMEM;
}

/* A program that lacks a thread and memory for a while keeps its writes. */
Test(pool_work, a_reconnection_is_tried_again_without_resources)
{
	struct seeded random = {.seed = 1, .state = 1};
	struct pool_target *t = pool_target_start(&random);
	uint64_t value = 1;
	struct rpmem_pool_op *done[1], write = {
					       .type = RPMEM_POOL_WRITE,
					       .buf = &value,
					       .len = 8,
				       };

	cr_assert_eq(rpmem_pool_submit(&t->pool, &write), 0);
	pool_target_step(t, STEP_EXECUTE);
	pool_target_step(t, STEP_COMPLETE);
	cr_assert_eq(rpmem_pool_poll(&t->pool, done, 1, 0), 1);
	t->mem[0] = 0;
	work_lost(&t->pool, "lost");
	t->no_thread = true;
	plans_without_memory = 2;
	for (unsigned int i = 0; i < 20; i++) {
		cr_assert_eq(rpmem_pool_poll(&t->pool, done, 1, 0), 0);
		pool_target_returns(t);
		pool_target_step(t, STEP_EXECUTE);
		pool_target_step(t, STEP_COMPLETE);
	}
	cr_assert_eq(plans_without_memory, 0);
	cr_assert_eq(t->pool.state, LINK_UP);
	cr_assert_eq(t->mem[0], 1, "a kept write is lost");
	pool_target_end(t);
}

/* The post of a store is refused, and that of the next commit is lost. */
Test(pool_work, a_commit_behind_a_refused_store_is_posted_again)
{
	struct seeded random = {.seed = 1, .state = 1};
	struct pool_target *t = pool_target_start(&random);
	uint64_t value = 1;
	const struct rpmem_pool_then then = {.offset = 8, .value = 2};
	struct rpmem_pool_op ops[] = {
		{.type = RPMEM_POOL_COMMIT, .then = &then},
		{.type = RPMEM_POOL_WRITE, .buf = &value, .len = 8},
		{.type = RPMEM_POOL_COMMIT},
	};
	struct rpmem_pool_op *done[3];
	int n = 0;

	/* All of them wait for the connection, and are posted together. */
	work_lost(&t->pool, "lost");
	for (unsigned int i = 0; i < 3; i++)
		cr_assert_eq(rpmem_pool_submit(&t->pool, &ops[i]), 0);
	rpmem_pool_poll(&t->pool, done, 3, 0);
	t->refuse_store = true;
	pool_target_returns(t);
	cr_assert(!t->refuse_store);
	pool_target_dies(t, false);
	for (unsigned int i = 0; i < 200 && n < 3; i++) {
		pool_target_step(t, STEP_EXECUTE);
		pool_target_step(t, STEP_COMPLETE);
		pool_target_returns(t);
		n += rpmem_pool_poll(&t->pool, done, 3, 0);
	}
	cr_assert_eq(n, 3, "an operation never completes");
	pool_target_end(t);
}

static void submit_ok(struct pool_target *t, struct rpmem_pool_op *op)
{
	cr_assert_eq(rpmem_pool_submit(&t->pool, op), 0);
}

static void *poll_forever(void *pool)
{
	struct rpmem_pool_op *done[1];

	cr_assert_eq(rpmem_pool_poll(pool, done, 1, -1), 1);
	return NULL;
}

/* A thread that polls a pool which has ended hinders no other thread. */
Test(pool_work, poll_of_an_ended_pool_lets_others_in, .timeout = LIMIT)
{
	struct seeded random = {.seed = 1, .state = 1};
	struct pool_target *t = pool_target_start(&random);
	struct rpmem_pool_op op = {.type = RPMEM_POOL_COMMIT};
	pthread_t poller;

	t->pool.state = LINK_ENDED;
	t->pool.now.ret = -ESTALE;
	t->pool.reason = "another client took the pool";
	cr_assert_eq(pthread_create(&poller, NULL, poll_forever, &t->pool), 0);
	for (bool polling = false; !polling;) {
		pthread_mutex_lock(&t->pool.lock);
		polling = t->pool.polling;
		pthread_mutex_unlock(&t->pool.lock);
	}
	cr_assert_eq(rpmem_pool_commit(&t->pool), -ESTALE);
	submit_ok(t, &op);
	pthread_join(poller, NULL);
	cr_assert_eq(op.result, -ESTALE);
	pool_target_end(t);
}

/* Let all that was submitted complete; returns the commits that were posted. */
static unsigned int commits_until_done(struct pool_target *t, unsigned int left)
{
	struct rpmem_pool_op *done[4];
	unsigned int step = 0;

	while (left) {
		cr_assert_lt(step++, 1000, "an operation never completes");
		pool_target_step(t, STEP_EXECUTE);
		pool_target_step(t, STEP_COMPLETE);
		left -= (unsigned int)rpmem_pool_poll(&t->pool, done, 4, 0);
	}
	cr_assert_eq(t->nposts, 0);
	return t->ncommits;
}

/* rpmem_pool(3): several commits at one time become one or two at the target */
Test(pool_work, commits_at_one_time_become_one_at_the_target)
{
	struct seeded random = {.seed = 1, .state = 1};
	struct pool_target *t = pool_target_start(&random);
	uint64_t value = 1;
	struct rpmem_pool_op commits[8], write = {
						 .type = RPMEM_POOL_WRITE,
						 .buf = &value,
						 .len = 8,
					 };

	submit_ok(t, &write);
	for (unsigned int i = 0; i < 8; i++) {
		commits[i] = (struct rpmem_pool_op){.type = RPMEM_POOL_COMMIT};
		submit_ok(t, &commits[i]);
	}
	cr_assert_eq(commits_until_done(t, 9), 1);
	cr_assert_eq(t->media[0], 1);
	pool_target_end(t);
}

/* Two commits are outstanding; all later ones wait, and become the third. */
Test(pool_work, commits_behind_outstanding_ones_become_one_at_the_target)
{
	struct seeded random = {.seed = 1, .state = 1};
	struct pool_target *t = pool_target_start(&random);
	uint64_t value = 1;
	struct rpmem_pool_op commits[8], writes[4];

	for (unsigned int i = 0; i < 8; i++) {
		writes[i % 4] = (struct rpmem_pool_op){
			.type = RPMEM_POOL_WRITE,
			.buf = &value,
			.len = 8,
			.offset = 8u * i,
		};
		commits[i] = (struct rpmem_pool_op){.type = RPMEM_POOL_COMMIT};
		if (i < 4)
			submit_ok(t, &writes[i]);
		submit_ok(t, &commits[i]);
	}
	cr_assert_eq(commits_until_done(t, 12), 3);
	pool_target_end(t);
}

Test(pool_work, no_commit_is_posted_that_nobody_waits_for)
{
	struct seeded random = {.seed = 1, .state = 1};
	struct pool_target *t = pool_target_start(&random);
	uint64_t value = 1;
	struct rpmem_pool_op writes[3];

	for (unsigned int i = 0; i < 3; i++) {
		writes[i] = (struct rpmem_pool_op){
			.type = RPMEM_POOL_WRITE,
			.buf = &value,
			.len = 8,
			.offset = 8u * i,
		};
		submit_ok(t, &writes[i]);
	}
	cr_assert_eq(commits_until_done(t, 3), 0);
	pool_target_end(t);
}

/*
 * Run a long operation; it must be posted in pieces of this many cells, or of
 * any number (0).
 */
static void run_pieces(struct pool_target *t, struct rpmem_pool_op *op,
		       unsigned int cells)
{
	struct rpmem_pool_op *done;
	unsigned int posted = 0;
	int n = 0;

	cr_assert_eq(rpmem_pool_submit(&t->pool, op), 0);
	while (!n) {
		for (unsigned int i = t->executed; i < t->nposts; i++) {
			/* A full journal is committed. */
			if (t->posts[i].what == T_COMMIT)
				continue;
			cr_assert(!cells || t->posts[i].n == cells);
			posted += 8 * t->posts[i].n;
		}
		while (pool_target_step(t, STEP_EXECUTE))
			;
		while (pool_target_step(t, STEP_COMPLETE))
			;
		n = rpmem_pool_poll(&t->pool, &done, 1, 0);
	}
	cr_assert_eq(op->result, 0);
	cr_assert_eq(posted, op->len);
}

/* Writes and reads have a choice each, here one that has been made. */
Test(pool_work, long_operations_are_posted_in_pieces_of_the_chosen_size)
{
	struct seeded random = {.seed = 1, .state = 1};
	struct pool_target *t = pool_target_start(&random);
	uint64_t cells[8] = {1, 1, 1, 1, 1, 1, 1, 1};
	struct rpmem_pool_op op = {
		.type = RPMEM_POOL_WRITE,
		.flags = RPMEM_POOL_DURABLE,
		.buf = cells,
		.len = sizeof(cells),
	};

	t->pool.pieces[0] = (struct piece_choice){.trial = 2, .chosen = 16};
	t->pool.pieces[1] = (struct piece_choice){.trial = 2, .chosen = 8};
	run_pieces(t, &op, 2);
	op.type = RPMEM_POOL_READ;
	op.flags = 0;
	run_pieces(t, &op, 1);
	pool_target_end(t);
}

/*
 * The flush of a write's first piece fails. The caller may write there again
 * when the write has failed: no piece may arrive behind that.
 */
Test(pool_work, a_write_fails_when_none_of_its_pieces_is_outstanding)
{
	struct seeded random = {.seed = 1, .state = 1};
	struct pool_target *t = pool_target_start(&random);
	uint64_t cells[8] = {1, 1, 1, 1, 1, 1, 1, 1};
	struct rpmem_pool_op *done, op = {
					    .type = RPMEM_POOL_WRITE,
					    .flags = RPMEM_POOL_DURABLE,
					    .buf = cells,
					    .len = sizeof(cells),
				    };

	t->pool.pieces[0] = (struct piece_choice){.trial = 2, .chosen = 16};
	cr_assert_eq(rpmem_pool_submit(&t->pool, &op), 0);
	cr_assert_eq(t->nposts, 4);
	cr_assert(pool_target_step(t, STEP_FAIL_DISK));
	while (t->nposts) {
		cr_assert(pool_target_complete(t, 0));
		cr_assert_eq(rpmem_pool_poll(&t->pool, &done, 1, 0),
			     t->nposts ? 0 : 1, "%u pieces are outstanding",
			     t->nposts);
		pool_target_step(t, STEP_EXECUTE);
	}
	cr_assert_eq(op.result, -EIO);
	pool_target_end(t);
}

/* A trial sees the bytes of each piece, and the end of each turn. */
Test(pool_work, long_operations_try_sizes_of_pieces)
{
	struct seeded random = {.seed = 1, .state = 1};
	struct pool_target *t = pool_target_start(&random);
	uint64_t cells[8] = {1, 1, 1, 1, 1, 1, 1, 1};
	struct rpmem_pool_op op = {
		.type = RPMEM_POOL_WRITE,
		.buf = cells,
		.len = sizeof(cells),
	};

	if (PIECE_TURN > sizeof(cells))
		cr_skip_test("one turn is longer than this pool");
	for (unsigned int dir = 0; dir < 2; dir++) {
		const struct piece_choice *c = &t->pool.pieces[dir];

		op.type = dir ? RPMEM_POOL_READ : RPMEM_POOL_WRITE;
		for (unsigned int i = 0; i < 4; i++)
			run_pieces(t, &op, 0);
		cr_assert_gt(c->ended, 0, "no turn has ended");
		cr_assert_eq(c->out, 0);
		cr_assert_gt(c->other, 0);
	}
	pool_target_end(t);
}
