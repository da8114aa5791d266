// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "group_rig.h"

/* The argument of each callback of a writer. */
struct rig_arg {
	struct rig *r;
	unsigned int writer;
};
static struct rig_arg args[RIG_WRITERS];

/* --- how members execute operations --- */

static bool draw_bool(struct rig *r)
{
	return seeded_below(&r->rnd, 2);
}

static bool changes_bytes(const struct rpmem_pool_op *op)
{
	return op->type == RPMEM_POOL_WRITE || op->type == RPMEM_POOL_ZERO;
}

static void compact(struct rig *r)
{
	unsigned int to = 0;

	for (unsigned int i = 0; i < r->nops; i++) {
		if (!r->ops[i].in_use) {
			free(r->ops[i].bytes);
			continue;
		}
		r->ops[to++] = r->ops[i];
	}
	r->nops = to;
}

/*
 * Copy each 8-byte cell of a write to the member or, unless all is set, leave
 * it out at random.
 */
static void place_write(struct rig *r, struct rig_op *o, bool all)
{
	struct rig_member *m = &r->members[o->member];
	const struct group_leg *leg = o->op->context;
	const struct group_member *to =
		&r->writers[o->writer].g.members[o->member];
	const uint64_t at = o->op->offset;

	/*
	 * The last damaged copy goes to a member without an epoch, because a
	 * member with an epoch may be the next writer's source.
	 */
	if (leg->kind == LEG_COPY && r->damaged_copies && !to->from_itself &&
	    (r->damaged_copies > 1 || to->blank)) {
		r->damaged_copies--;
		o->bytes[seeded_below(&r->rnd, o->op->len)] ^= 1;
	}
	for (uint64_t i = 0; i < o->op->len; i += 8)
		if (all || draw_bool(r))
			memcpy(m->visible + at + i, o->bytes + i,
			       o->op->len - i < 8 ? o->op->len - i : 8);
}

/*
 * The range and bytes of a completed write, as librpmem_pool keeps them in its
 * journal. No operation refers to them.
 */
struct kept {
	struct rig *r;
	unsigned int writer, member;
	uint64_t at, len;
	unsigned char *bytes;
	struct kept *next;
};
static struct kept *journal; /* newest first */

static void journal_add(struct rig *r, struct rig_op *o)
{
	struct kept *e = calloc(1, sizeof(*e));

	cr_assert_not_null(e);
	*e = (struct kept){
		.r = r,
		.writer = o->writer,
		.member = o->member,
		.at = o->op->offset,
		.len = o->op->len,
		.bytes = o->bytes,
		.next = journal,
	};
	o->bytes = NULL;
	journal = e;
}

static void journal_drop(unsigned int writer, unsigned int member, bool commit)
{
	struct kept **p = &journal, *e;

	while ((e = *p)) {
		if (e->writer != writer || e->member != member) {
			p = &e->next;
			continue;
		}
		if (commit)
			memcpy(e->r->members[member].durable + e->at,
			       e->r->members[member].visible + e->at, e->len);
		*p = e->next;
		free(e->bytes);
		free(e);
	}
}

/* Repeat a member's completed writes, the oldest first. */
static void journal_replay(struct kept *e, unsigned int writer,
			   unsigned int member)
{
	if (!e)
		return;
	journal_replay(e->next, writer, member);
	if (e->writer == writer && e->member == member)
		memcpy(e->r->members[member].visible + e->at, e->bytes, e->len);
}

static void execute(struct rig *r, unsigned int i)
{
	struct rig_op *o = &r->ops[i];
	struct rig_member *m = &r->members[o->member];
	const struct rpmem_pool_then *then = o->op->then;

	o->executed = true;
	o->op->result = 0;
	o->op->error = NULL;
	if (m->ended) {
		o->op->result = -EIO;
		o->op->error = "the pool has ended";
		return;
	}
	if (o->op->type == RPMEM_POOL_READ && m->reads_fail) {
		o->op->result = -EIO;
		o->op->error = "a read has failed";
		return;
	}
	if (o->op->type == RPMEM_POOL_READ) {
		memcpy(o->op->buf, m->visible + o->op->offset, o->op->len);
		return;
	}
	if (changes_bytes(o->op) && m->writes_fail) {
		o->op->result = -EIO;
		o->op->error = "a write has failed";
		return;
	}
	if (changes_bytes(o->op)) {
		place_write(r, o, true);
		if (o->op->flags & RPMEM_POOL_DURABLE)
			memcpy(m->durable + o->op->offset,
			       m->visible + o->op->offset, o->op->len);
		/*
		 * Keep durable writes, too: a repeated write follows older
		 * writes to the same bytes, which would otherwise replace it.
		 */
		journal_add(r, o);
		return;
	}
	/* A commit covers the writes that this writer submitted before it. */
	for (unsigned int j = 0; j < i; j++)
		if (r->ops[j].in_use && !r->ops[j].executed &&
		    r->ops[j].writer == o->writer &&
		    r->ops[j].member == o->member &&
		    changes_bytes(r->ops[j].op))
			execute(r, j);
	if (m->disk_failed) {
		o->op->result = -EIO;
		o->op->error = "the disk has failed";
		return;
	}
	journal_drop(o->writer, o->member, true);
	if (then) {
		memcpy(m->visible + then->offset, &then->value, 8);
		memcpy(m->durable + then->offset, &then->value, 8);
	}
}

/*
 * Close a member's handle: each outstanding write is executed in part, at
 * random.
 */
static void drop_handle(struct rig *r, unsigned int writer, unsigned int member,
			bool keep_ops, int ret)
{
	for (unsigned int i = 0; i < r->nops; i++) {
		struct rig_op *o = &r->ops[i];

		if (!o->in_use || o->writer != writer || o->member != member)
			continue;
		if (!o->executed && changes_bytes(o->op))
			place_write(r, o, false);
		if (!keep_ops) {
			o->in_use = false;
		} else if (!o->executed) {
			o->executed = true;
			o->op->result = ret;
			o->op->error = "displaced";
		}
	}
	journal_drop(writer, member, false);
	if (r->members[member].owner == (int)writer)
		r->members[member].owner = -1;
}

/* --- what a group calls --- */

/* Has this writer an unexecuted write to this offset of the member? */
static bool is_pending(struct rig *r, unsigned int writer, unsigned int member,
		       uint64_t at)
{
	for (unsigned int i = 0; i < r->nops; i++)
		if (r->ops[i].in_use && !r->ops[i].executed &&
		    r->ops[i].writer == writer && r->ops[i].member == member &&
		    changes_bytes(r->ops[i].op) && r->ops[i].op->offset == at)
			return true;
	for (const struct kept *e = journal; e; e = e->next)
		if (e->writer == writer && e->member == member && e->at == at)
			return true;
	return false;
}

/* Check that the bytes which must be durable before this operation are. */
static void check_durable_before(struct rig *r, unsigned int writer,
				 unsigned int member,
				 const struct rpmem_pool_op *op)
{
	const struct group_leg *leg = op->context;
	const struct group *g = &r->writers[writer].g;
	const unsigned char *durable = r->members[member].durable;
	struct group_super super;
	struct group_state is;

	for (unsigned int s = 0; s < 2 && changes_bytes(op); s++) {
		if (op->offset == GROUP_SLOT_AT(s))
			cr_assert(!is_pending(r, writer, member,
					      GROUP_NUMBER_AT(s)),
				  "an epoch before its number");
		/* The number in use is the store of a commit. */
		if (op->offset == GROUP_NUMBER_AT(s))
			cr_assert(group_area_decode(durable, &super, &is) ||
					  !is.epoch || is.slot != s,
				  "a number before its data");
	}
	if (leg->kind != LEG_WRITE)
		return;
	for (uint64_t c = (op->offset - GROUP_AREA) / g->super.chunk;
	     c <= (op->offset + op->len - 1 - GROUP_AREA) / g->super.chunk; c++)
		cr_assert(durable[GROUP_BITS_AT + c / 8] & 1u << c % 8,
			  "a write before its bit");
}

static int submit(void *arg, unsigned int member, struct rpmem_pool_op *op)
{
	const struct rig_arg *a = arg;
	struct rig_writer *w = &a->r->writers[a->writer];
	struct rig_op *o;

	cr_assert(w->open[member], "an operation of a closed member");
	if (!w->displaced[member])
		check_durable_before(a->r, a->writer, member, op);
	a->r->submitted++;
	if (a->r->refused & 1u << op->type) {
		op->error = "refused";
		return -ENOMEM;
	}
	if (a->r->nops == RIG_OPS)
		compact(a->r);
	cr_assert_lt(a->r->nops, RIG_OPS);
	o = &a->r->ops[a->r->nops++];
	*o = (struct rig_op){
		.writer = a->writer,
		.member = member,
		.op = op,
		.in_use = true,
	};
	if (changes_bytes(op)) {
		cr_assert_leq(op->offset + op->len, RIG_LENGTH);
		cr_assert_leq(op->offset + op->len,
			      a->r->members[member].length);
		o->bytes = calloc(1, op->len);
		cr_assert_not_null(o->bytes);
		if (op->type == RPMEM_POOL_WRITE)
			memcpy(o->bytes, op->buf, op->len);
	}
	if (w->displaced[member]) {
		o->executed = true;
		op->result = -ESTALE;
		op->error = "displaced";
	}
	return 0;
}

static void reopen(void *arg, unsigned int member)
{
	const struct rig_arg *a = arg;

	a->r->writers[a->writer].wants_open[member] = true;
}

static bool has_ended(void *arg, unsigned int member)
{
	const struct rig_arg *a = arg;

	return a->r->writers[a->writer].displaced[member] ||
	       a->r->members[member].ended;
}

static bool reachable(void *arg, unsigned int member)
{
	const struct rig_arg *a = arg;
	const struct rig_writer *w = &a->r->writers[a->writer];

	cr_assert(w->open[member], "reachable() of a closed member");
	return a->r->members[member].up && !w->cut_off[member];
}

/* --- events --- */

/* Close a member that is open, or open it. */
static void open_member(struct rig *r, unsigned int writer, unsigned int member)
{
	struct rig_writer *w = &r->writers[writer];
	struct rig_member *m = &r->members[member];
	bool displaced = w->displaced[member];

	if (w->open[member]) {
		drop_handle(r, writer, member, false, 0);
		w->open[member] = false;
		group_closed(&w->g, member);
		return;
	}
	w->wants_open[member] = false;
	if (!m->up || m->disk_failed || w->cut_off[member]) {
		group_opened(&w->g, member, -ECONNREFUSED, 0, "away");
		return;
	}
	/*
	 * No other writer comes between look and take, because fi_rpmemd
	 * compares the owner.
	 */
	if (!w->opens_unseen && group_look(&w->g, member, m->visible))
		return;
	/*
	 * A writer takes each member once; afterwards it displaces nobody. An
	 * opening that has not chosen its epoch could take members from a later
	 * one and be the newer writer; here the later writer is the newer one.
	 */
	if (m->owner >= 0 && m->owner != (int)writer &&
	    (w->g.members[member].opened_once ||
	     (w->g.phase == GROUP_LOOKING && !w->g.given &&
	      m->owner > (int)writer))) {
		group_opened(&w->g, member, -EBUSY, 0, "busy");
		return;
	}
	if (displaced && draw_bool(r)) {
		group_opened(&w->g, member, -EBUSY, 0, "busy");
		return;
	}
	if (m->owner >= 0 && m->owner != (int)writer) {
		const unsigned int was = (unsigned int)m->owner;

		drop_handle(r, was, member, true, -ESTALE);
		r->writers[was].displaced[member] = true;
	}
	m->owner = (int)writer;
	m->ended = false;
	w->open[member] = true;
	w->displaced[member] = false;
	group_opened(&w->g, member, 0, m->length, NULL);
}

static void deliver(struct rig *r, unsigned int i)
{
	const struct rig_op o = r->ops[i];

	r->ops[i].in_use = false;
	group_done(&r->writers[o.writer].g, o.member, o.op);
}

/*
 * Is this member fast now? The fast ones change, so that the others lag behind.
 */
static bool is_fast(struct rig *r, unsigned int member)
{
	return (r->now / 64 + member) % r->n || !seeded_below(&r->rnd, 8);
}

static bool is_unreported(const struct rig *r, const struct rig_op *o)
{
	return r->unreported_at && o->executed && changes_bytes(o->op) &&
	       o->op->offset == r->unreported_at;
}

/* Is this a commit behind a write whose error has not been reported? */
static bool is_behind_failure(const struct rig *r, const struct rig_op *commit)
{
	if (!r->members[commit->member].writes_fail ||
	    commit->op->type != RPMEM_POOL_COMMIT)
		return false;
	for (const struct rig_op *o = r->ops; o < commit; o++)
		if (o->in_use && o->executed && o->op->result &&
		    o->writer == commit->writer && o->member == commit->member)
			return true;
	return false;
}

/* Can this operation be executed, or its result be reported? */
static bool may_advance(const struct rig *r, const struct rig_op *o)
{
	const struct rig_writer *w = &r->writers[o->writer];

	return o->in_use && !w->paused && !w->cut_off[o->member] &&
	       !r->members[o->member].hangs &&
	       (o->executed || r->members[o->member].up) &&
	       !is_unreported(r, o) && !is_behind_failure(r, o);
}

/*
 * Check that no step has lowered the newest commit that a member claims
 * durably.
 */
static void check_claimed_commits(struct rig *r)
{
	for (unsigned int i = 0; i < r->n; i++) {
		struct rig_member *m = &r->members[i];
		struct group_super super = {0};
		struct group_state is;

		if (group_area_decode(m->durable, &super, &is))
			continue;
		cr_assert(is.epoch > m->epoch || (is.epoch == m->epoch &&
						  is.number >= m->number),
			  "member %u had epoch %llu, number %llu, and has "
			  "%llu, %llu",
			  i, (unsigned long long)m->epoch,
			  (unsigned long long)m->number,
			  (unsigned long long)is.epoch,
			  (unsigned long long)is.number);
		m->epoch = is.epoch;
		m->number = is.number;
	}
}

bool rig_event(struct rig *r)
{
	unsigned int can[RIG_OPS + RIG_WRITERS * GROUP_MEMBERS], n = 0, pick;

	if (r->only_writers_change)
		check_claimed_commits(r);
	r->now++;
	for (unsigned int i = 0; i < r->nops; i++)
		if (may_advance(r, &r->ops[i]) && is_fast(r, r->ops[i].member))
			can[n++] = i;
	for (unsigned int w = 0; w < r->nwriters; w++)
		for (unsigned int m = 0; m < r->n; m++)
			if (r->writers[w].alive && !r->writers[w].paused &&
			    r->writers[w].wants_open[m] &&
			    (r->writers[w].open[m] || !r->hold_opens) &&
			    !seeded_below(&r->rnd, 4))
				can[n++] = RIG_OPS + w * GROUP_MEMBERS + m;
	if (n) {
		pick = can[seeded_below(&r->rnd, n)];
		if (pick >= RIG_OPS)
			open_member(r, (pick - RIG_OPS) / GROUP_MEMBERS,
				    (pick - RIG_OPS) % GROUP_MEMBERS);
		else if (!r->ops[pick].executed)
			execute(r, pick);
		else
			deliver(r, pick);
	}
	if (r->nops > RIG_OPS / 2)
		compact(r);
	for (unsigned int w = 0; w < r->nwriters; w++)
		if (r->writers[w].alive && !r->writers[w].paused)
			group_run(&r->writers[w].g, r->now);
	return n;
}

unsigned int rig_round(struct rig *r)
{
	const unsigned int nops = r->nops;
	unsigned int durable = 0;

	check_claimed_commits(r);
	r->now++;
	for (unsigned int i = 0; i < nops; i++) {
		if (!r->ops[i].in_use)
			continue;
		if (r->ops[i].op->type == RPMEM_POOL_COMMIT ||
		    r->ops[i].op->flags & RPMEM_POOL_DURABLE)
			durable |= 1u << r->ops[i].member;
		if (!r->ops[i].executed)
			execute(r, i);
		deliver(r, i);
	}
	for (unsigned int w = 0; w < r->nwriters; w++)
		for (unsigned int m = 0; m < r->n; m++)
			if (r->writers[w].alive &&
			    r->writers[w].wants_open[m]) {
				open_member(r, w, m);
				if (r->writers[w].open[m])
					durable |= 1u << m;
			}
	compact(r);
	for (unsigned int w = 0; w < r->nwriters; w++)
		if (r->writers[w].alive)
			group_run(&r->writers[w].g, r->now);
	return durable;
}

bool rig_touches(const struct rig *r, const void *buf, uint64_t len)
{
	const uintptr_t at = (uintptr_t)buf;

	for (unsigned int i = 0; i < r->nops; i++) {
		const struct rpmem_pool_op *op = r->ops[i].op;

		if (r->ops[i].in_use && !r->ops[i].executed &&
		    op->type == RPMEM_POOL_READ &&
		    (uintptr_t)op->buf < at + len &&
		    at < (uintptr_t)op->buf + op->len)
			return true;
	}
	return false;
}

void rig_cut(struct rig *r, unsigned int member)
{
	struct rig_member *m = &r->members[member];

	for (unsigned int i = 0; i < RIG_LENGTH; i += 8) {
		if (draw_bool(r))
			memcpy(m->visible + i, m->durable + i, 8);
		memcpy(m->durable + i, m->visible + i, 8);
	}
	if (m->owner >= 0)
		journal_replay(journal, (unsigned int)m->owner, member);
}

void rig_replace(struct rig *r, unsigned int member)
{
	struct rig_member *m = &r->members[member];

	/* The owner's handle would find another pool in the member's place. */
	if (m->owner >= 0) {
		const unsigned int owner = (unsigned int)m->owner;

		drop_handle(r, owner, member, true, -ETIMEDOUT);
		r->writers[owner].wants_open[member] = true;
		member_drop(&r->writers[owner].g, member, -ETIMEDOUT, "gone");
	}
	memset(m->visible, 0, RIG_LENGTH);
	memset(m->durable, 0, RIG_LENGTH);
	m->epoch = m->number = 0;
}

unsigned int rig_writer_new(struct rig *r,
			    void (*completed)(void *, struct rpmem_pool_op *,
					      int, const char *))
{
	const unsigned int writer = r->nwriters++;
	const uint64_t id[2] = {seeded_next(&r->rnd), seeded_next(&r->rnd)};
	struct group_io io = {
		.submit = submit,
		.reopen = reopen,
		.has_ended = has_ended,
		.reachable = reachable,
		.arg = &args[writer],
	};
	struct rig_writer *w = &r->writers[writer];

	cr_assert_lt(writer, RIG_WRITERS);
	args[writer] = (struct rig_arg){r, writer};
	*w = (struct rig_writer){.used = true, .alive = true};
	cr_assert_not(group_init(&w->g, r->n, r->k, &io, id));
	w->g.timeout_ms = UINT64_MAX / 2;
	w->g.completed = completed;
	return writer;
}

void rig_writer_kill(struct rig *r, unsigned int writer)
{
	struct rig_writer *w = &r->writers[writer];

	w->alive = false;
	for (unsigned int i = 0; i < r->n; i++)
		drop_handle(r, writer, i, false, 0);
	group_fini(&w->g);
}

void rig_start(struct rig *r, uint64_t seed, unsigned int n, unsigned int k)
{
	memset(r, 0, sizeof(*r));
	r->rnd = (struct seeded){seed, seed};
	r->n = n;
	r->k = k;
	for (unsigned int i = 0; i < n; i++) {
		struct rig_member *m = &r->members[i];

		m->up = true;
		m->owner = -1;
		m->length = RIG_LENGTH;
		/* Members of a new group have random bytes behind the area. */
		for (unsigned int b = GROUP_AREA; b < RIG_LENGTH; b++)
			m->visible[b] = m->durable[b] =
				i ? (unsigned char)seeded_next(&r->rnd) : 0;
	}
}

void rig_end(struct rig *r)
{
	for (unsigned int i = 0; i < r->nwriters; i++)
		if (r->writers[i].alive)
			rig_writer_kill(r, i);
	for (unsigned int i = 0; i < r->nops; i++)
		free(r->ops[i].bytes);
	r->nops = 0;
}
