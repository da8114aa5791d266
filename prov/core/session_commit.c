// SPDX-License-Identifier: BSD-2-Clause
/* Make the pieces of an operation: its RDMA, then requests, fences, flushes. */
#include <errno.h>
#include <stdlib.h>

#include "core/session_priv.h"
#include "core/wire_pack.h"

/* Local scatter list for one of several remote ranges. */
struct part {
	struct iovec iov[RP_CHANNEL_IOV];
	void *desc[RP_CHANNEL_IOV];
};

/* Position in the local scatter list. */
struct cursor {
	const struct iovec *iov;
	void *const *desc;
	size_t at;
};

static uint8_t cut_part(struct cursor *c, uint64_t len, struct part *part)
{
	uint8_t n = 0;

	while (len) {
		const struct iovec *v = c->iov;
		size_t left = v->iov_len - c->at;
		size_t take = left < len ? left : (size_t)len;

		if (take) {
			part->iov[n] = (struct iovec){
				(uint8_t *)v->iov_base + c->at, take};
			part->desc[n++] = *c->desc;
		}
		len -= take;
		c->at += take;
		if (c->at == v->iov_len) {
			c->iov++;
			c->desc++;
			c->at = 0;
		}
	}
	return n;
}

static void set_remote(struct rp_piece *p, const struct rp_grant *g,
		       uint64_t addr, uint64_t len)
{
	p->chan.rkey = g->g.rkey;
	p->chan.remote_addr = g->g.remote_addr + (addr - g->g.addr);
	p->chan.length = len;
}

/*
 * The method for a commit of this range: fence, FLUSH or delivery without the
 * agent, or REFUSED: by the agent, which alone executes effects, flushes bytes
 * that its CPU has stored, and reports why a class is not reached. Data posted
 * for the agent asked for no acknowledgment, which delivery rests on.
 */
static enum rp_method range_method(const struct rp_op *op,
				   const struct rp_wire_range *r,
				   const struct rp_grant *g)
{
	const struct rp_session *s = op->priv.session;

	if (op->effect || g->without_agent == RP_METHOD_REFUSED ||
	    (g->without_agent == RP_METHOD_DELIVERY && op->priv.undelivered) ||
	    g->g.class < op->required || rp_range_needs_agent(s, r))
		return RP_METHOD_REFUSED;
	if (g->without_agent == RP_METHOD_NATIVE &&
	    (op->nranges > RP_SESSION_FLUSHES || r->len > RP_SESSION_FLUSH_LEN))
		return RP_METHOD_REFUSED;
	/* Unplaced writes need a fence, or else a request to the agent. */
	if (g->without_agent == RP_METHOD_DELIVERY &&
	    op->kind == RP_OP_COMMIT && rp_range_is_unplaced(s, r) &&
	    !(s->channel->flags & RP_CHANNEL_FENCES))
		return RP_METHOD_REFUSED;
	return g->without_agent;
}

/* Does the write need a delivery-complete acknowledgment? */
static bool needs_delivery(const struct rp_op *op,
			   const struct rp_wire_range *r,
			   const struct rp_grant *g)
{
	return op->kind == RP_OP_WRITE &&
	       ((op->level == RP_LEVEL_VISIBLE && !op->effect &&
		 !op->priv.by_reply) ||
		(op->level == RP_LEVEL_DURABLE &&
		 range_method(op, r, g) == RP_METHOD_DELIVERY));
}

/* RDMA of the operation's bytes, a piece for each remote range. */
static int make_data(struct rp_op *op)
{
	struct rp_session *s = op->priv.session;
	void *none[1] = {NULL};
	struct cursor c = {op->iov, op->desc, 0};

	if (op->kind == RP_OP_WRITE && op->inject && !op->priv.copy &&
	    rp_op_copy(op))
		return -ENOMEM;
	if (op->kind == RP_OP_WRITE)
		rp_write_launch(op);
	if (op->priv.copy) {
		c.iov = &op->priv.copy_iov;
		c.desc = none;
	}
	for (size_t i = 0; i < op->nranges; i++) {
		const struct rp_wire_range *r = &op->ranges[i];
		struct rp_grant *g = rp_grant_find(s, r->key);
		struct rp_piece *p = rp_piece_new(op);
		struct part *part;

		if (!p)
			return -ENOMEM;
		p->chan.kind = op->kind == RP_OP_READ ? RP_CHANNEL_READ
						      : RP_CHANNEL_WRITE;
		op->priv.by_reply |=
			g->g.unreadable &&
			s->channel->flags & RP_CHANNEL_DELIVERS_BY_READ;
		p->chan.delivered = needs_delivery(op, r, g);
		op->priv.undelivered |= !p->chan.delivered;
		p->last_data = i + 1 == op->nranges;
		set_remote(p, g, r->addr, r->len);
		if (op->nranges == 1) {
			p->chan.iov = c.iov;
			p->chan.iov_count =
				op->priv.copy ? 1 : (uint8_t)op->iov_count;
			p->chan.desc = op->priv.copy ? NULL : op->desc;
			return 0;
		}
		part = malloc(sizeof(*part));
		if (!part)
			return -ENOMEM;
		p->msg = part;
		p->chan.iov = part->iov;
		p->chan.desc = part->desc;
		p->chan.iov_count = cut_part(&c, r->len, part);
	}
	return 0;
}

/* --- requests, fences and flushes --- */

static void outcome_lower(struct rp_op *op, enum rp_class class,
			  enum rp_method method)
{
	if (class < op->priv.out.class)
		op->priv.out.class = class;
	op->priv.out.method = method;
}

/* Number of ranges from first on that fit into one REQUEST; at most n. */
static size_t count_fitting(const struct rp_op *op, size_t first, size_t n)
{
	uint8_t scratch[RP_WIRE_MAX_MSG - RP_WIRE_PACKED_AT];
	size_t taken, size = sizeof(scratch);

	if (n <= RP_WIRE_MAX_RANGES)
		return n;
	if (op->effect)
		size -= sizeof(op->then);
	if (n > RP_WIRE_MAX_PACKED)
		n = RP_WIRE_MAX_PACKED;
	rp_wire_pack(scratch, size, &op->ranges[first], n, &taken);
	return taken > RP_WIRE_MAX_RANGES ? taken : RP_WIRE_MAX_RANGES;
}

/* How many ranges from first on go to the agent. */
static size_t count_for_agent(const struct rp_op *op, size_t first)
{
	const struct rp_grant *g = NULL;
	size_t i;

	if (op->effect)
		return op->nranges - first;
	for (i = first; i < op->nranges; i++) {
		const struct rp_wire_range *r = &op->ranges[i];

		if (i - first == RP_WIRE_MAX_PACKED)
			break;
		if (!g || g->key != r->key)
			g = rp_grant_find(op->priv.session, r->key);
		if (range_method(op, r, g) != RP_METHOD_REFUSED)
			break;
	}
	return i - first;
}

static bool has_credit(const struct rp_session *s)
{
	return s->credits_used < s->credits &&
	       s->credits_used < s->attr.max_commits;
}

/* Fence by a read inside the range: one elsewhere may reach other memory. */
static int make_fence(struct rp_op *op, const struct rp_wire_range *r,
		      struct rp_grant *g)
{
	struct rp_piece *p;

	if (g->fenced == op->priv.seq)
		return 0;
	p = rp_piece_new(op);
	if (!p)
		return -ENOMEM;
	p->chan.kind = RP_CHANNEL_READ;
	set_remote(p, g, r->addr,
		   r->len < RP_SESSION_FENCE_LEN ? r->len
						 : RP_SESSION_FENCE_LEN);
	g->fenced = op->priv.seq;
	return 0;
}

static int make_flush(struct rp_op *op, const struct rp_wire_range *r,
		      const struct rp_grant *g)
{
	struct rp_piece *p = rp_piece_new(op);

	if (!p)
		return -ENOMEM;
	p->chan.kind = RP_CHANNEL_FLUSH;
	set_remote(p, g, r->addr, r->len);
	return 0;
}

/* Commit the next range without the agent. */
static int commit_without_agent(struct rp_op *op, const struct rp_wire_range *r,
				struct rp_grant *g, enum rp_method method)
{
	int ret = 0;

	if (method == RP_METHOD_NATIVE)
		ret = make_flush(op, r, g);
	else if (method == RP_METHOD_FENCE ||
		 (op->kind == RP_OP_COMMIT &&
		  rp_range_is_unplaced(op->priv.session, r)))
		ret = make_fence(op, r, g);
	if (ret)
		return ret;
	outcome_lower(op, g->g.class, method);
	op->priv.nsliced++;
	return 0;
}

/*
 * Make pieces that commit all ranges. An operation with an effect leaves its
 * last ranges to make_last(), whose request carries the effect.
 */
static int make_slices(struct rp_op *op)
{
	struct rp_session *s = op->priv.session;
	struct rp_grant *g;
	enum rp_method m;
	size_t n, run;
	int ret;

	while (op->priv.nsliced < op->nranges) {
		const struct rp_wire_range *r = &op->ranges[op->priv.nsliced];

		g = rp_grant_find(s, r->key);
		m = range_method(op, r, g);
		if (m != RP_METHOD_REFUSED) {
			ret = commit_without_agent(op, r, g, m);
			if (ret)
				return ret;
			continue;
		}
		run = count_for_agent(op, op->priv.nsliced);
		n = count_fitting(op, op->priv.nsliced, run);
		if (op->effect && n == run)
			return 0;
		if (!has_credit(s))
			return -EAGAIN;
		if (!rp_piece_request(op, op->priv.nsliced, n))
			return -ENOMEM;
		op->priv.nsliced += n;
	}
	return 0;
}

static int make_last(struct rp_op *op)
{
	const bool bare =
		op->kind == RP_OP_COMMIT && op->level == RP_LEVEL_VISIBLE;
	struct rp_piece *p;
	size_t n = op->nranges - op->priv.nsliced;

	if (op->priv.nsliced > op->nranges)
		return 0;
	if (!has_credit(op->priv.session))
		return -EAGAIN;
	/* Any reply proves placement, so no range is needed. */
	p = rp_piece_request(op, op->priv.nsliced, bare ? 0 : n);
	if (!p)
		return -ENOMEM;
	p->effect = true;
	op->priv.nsliced = op->nranges + 1;
	return 0;
}

static enum rp_op_state first_state(const struct rp_op *op)
{
	if (op->kind == RP_OP_READ ||
	    (op->kind == RP_OP_WRITE && !op->priv.store))
		return RP_OP_DATA;
	if (op->kind == RP_OP_COMMIT && op->level == RP_LEVEL_DURABLE)
		return RP_OP_SLICES;
	return RP_OP_LAST;
}

int rp_commit_make_pieces(struct rp_op *op)
{
	int ret;

	for (;;) {
		switch (op->priv.state) {
		case RP_OP_QUEUED:
			rp_op_set_state(op, first_state(op));
			ret = op->priv.state == RP_OP_DATA ? make_data(op) : 0;
			if (ret)
				return ret;
			break;
		case RP_OP_DATA:
			if (op->kind == RP_OP_READ ||
			    (op->level != RP_LEVEL_DURABLE && !op->effect &&
			     !(op->level && op->priv.by_reply)))
				return 0;
			rp_op_set_state(op, op->level == RP_LEVEL_DURABLE
						    ? RP_OP_SLICES
						    : RP_OP_LAST);
			break;
		case RP_OP_SLICES:
			ret = make_slices(op);
			if (ret || op->priv.nsliced == op->nranges)
				return ret;
			rp_op_set_state(op, op->priv.replies_due ? RP_OP_REPLIES
								 : RP_OP_LAST);
			break;
		case RP_OP_REPLIES:
			if (op->priv.replies_due)
				return -EAGAIN;
			rp_op_set_state(op, RP_OP_LAST);
			break;
		default:
			return make_last(op);
		}
	}
}

void rp_commit_handle_reply(struct rp_piece *p, const struct rp_wire_reply *m)
{
	struct rp_op *op = p->op;

	if (m->status != RP_ST_OK) {
		/* The ordered store counts as the range after the last. */
		size_t n = p->n + (p->effect && rp_op_has_then(op));

		rp_op_fail(op, m->status, m->detail,
			   p->first + (m->range < n ? m->range : 0));
		return;
	}
	/* Too low a level or class in the reply is a failure. */
	if (m->level < op->level ||
	    (op->level == RP_LEVEL_DURABLE && m->class < op->required)) {
		rp_op_fail(op, RP_ST_CLASS, m->class, p->first);
		return;
	}
	if (op->level != RP_LEVEL_DURABLE)
		return;
	outcome_lower(op, m->class, m->method);
	rp_ranges_mark_flushed(op, p->first, p->n, m->class);
}
