// SPDX-License-Identifier: BSD-2-Clause
/* Operations of a session: accepted, posted piece by piece, ended once. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "core/atomic.h"
#include "core/session_priv.h"

/* Pieces that are posted in one call. */
#define BATCH (RP_CHANNEL_IOV + 2)
/* Bytes of a REQUEST besides its ranges, operands and stored bytes. */
#define REQUEST_FIXED 48

void (*rp_op_moved)(enum rp_op_state from, enum rp_op_state to);

void rp_op_move(struct rp_op *op, enum rp_op_state state)
{
	if (rp_op_moved)
		rp_op_moved(op->priv.state, state);
	op->priv.state = state;
}

/* --- what is asked for --- */

static int check_range(const struct rp_wire_range *g)
{
	if (!g->len || g->addr + g->len < g->addr)
		return -EINVAL;
	return rp_key_is_persistent(g->key) ? 0 : -EKEYREJECTED;
}

static bool sums_to(const struct iovec *iov, size_t n, uint64_t bytes)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		if (iov[i].iov_len > UINT64_MAX - sum)
			return false;
		sum += iov[i].iov_len;
	}
	return sum == bytes;
}

static int check_atomic(const struct rp_op *op)
{
	const struct rp_wire_atomic *a = &op->atomic;
	const bool compares = rp_atomic_has_compare(a->op);
	uint64_t bytes = op->priv.bytes;
	size_t size;

	if (!rp_atomic_valid(a->op, a->datatype, &size))
		return -EOPNOTSUPP;
	if (!op->level || (rp_atomic_has_operand(a->op) && !a->operand) ||
	    (compares && !a->compare) ||
	    bytes > RP_WIRE_MAX_STORE >> compares ||
	    (a->fetch && !sums_to(op->result, op->result_count, bytes)))
		return -EINVAL;
	for (size_t i = 0; i < op->nranges; i++)
		if (op->ranges[i].len % size)
			return -EINVAL;
	return 0;
}

static int check(struct rp_op *op)
{
	const bool few = op->kind == RP_OP_WRITE || op->kind == RP_OP_READ ||
			 op->kind == RP_OP_ATOMIC;
	const struct rp_wire_range then = rp_then_range(op);
	uint64_t bytes = 0;
	int ret;

	if (!op->nranges || (few && op->nranges > RP_CHANNEL_IOV))
		return -EINVAL;
	if (op->kind == RP_OP_QUERY)
		return rp_key_is_persistent(op->ranges[0].key) ? 0
							       : -EKEYREJECTED;
	for (size_t i = 0; i < op->nranges; i++) {
		ret = check_range(&op->ranges[i]);
		if (ret)
			return ret;
		if (few && op->ranges[i].len > UINT64_MAX - bytes)
			return -EINVAL;
		bytes += op->ranges[i].len;
	}
	op->priv.bytes = few ? bytes : 0;
	if (op->kind == RP_OP_ATOMIC)
		return check_atomic(op);
	if (few && (op->iov_count > RP_CHANNEL_IOV ||
		    !sums_to(op->iov, op->iov_count, bytes)))
		return -EINVAL;
	if (op->kind == RP_OP_COMMIT && !op->level)
		return -EINVAL;
	if (!op->effect || op->kind == RP_OP_READ)
		return 0;
	if (op->level != RP_LEVEL_DURABLE)
		return -EINVAL;
	if (op->effect == RP_EFFECT_NOTIFY)
		return 0;
	if (op->effect != RP_EFFECT_THEN || then.addr % then.len)
		return -EINVAL;
	return check_range(&then);
}

/* Does the operation take one of max_commits? */
static bool counts(const struct rp_op *op)
{
	return op->kind == RP_OP_COMMIT || op->kind == RP_OP_ATOMIC ||
	       op->kind == RP_OP_QUERY || op->level == RP_LEVEL_DURABLE;
}

/* Do the bytes of this write travel inside a REQUEST? */
static bool stores(struct rp_session *s, const struct rp_op *op)
{
	const uint64_t bytes = op->priv.bytes;

	if (op->kind != RP_OP_WRITE || op->effect ||
	    bytes + op->nranges * sizeof(struct rp_wire_range) + REQUEST_FIXED >
		    RP_WIRE_MAX_MSG)
		return false;
	/* No device knows a copy. */
	if (op->inject && s->channel->flags & RP_CHANNEL_LOCAL_MR)
		return true;
	if (op->level != RP_LEVEL_DURABLE || bytes > s->attr.inline_max)
		return false;
	for (size_t i = 0; i < op->nranges; i++) {
		const struct rp_grant *g = rp_grant_find(s, op->ranges[i].key);

		if (g->alone != RP_METHOD_REFUSED &&
		    g->g.class >= op->required)
			return false;
	}
	return true;
}

/* What can be told of an operation without asking the target. */
static enum rp_status verdict(struct rp_session *s, const struct rp_op *op,
			      uint64_t *range)
{
	const struct rp_wire_range then = rp_then_range(op);
	const struct rp_grant *g = NULL;

	if (op->kind == RP_OP_QUERY)
		return RP_ST_OK;
	for (size_t i = 0; i < op->nranges + rp_op_then(op); i++) {
		const struct rp_wire_range *r =
			i < op->nranges ? &op->ranges[i] : &then;

		*range = i;
		if (!g || g->key != r->key)
			g = rp_grant_find(s, r->key);
		if (!rp_range_inside(r->addr, r->len, g->g.addr, g->g.length))
			return RP_ST_RANGE;
		if (!g->g.writable && (rp_op_writes(op) || i == op->nranges))
			return RP_ST_ACCESS;
	}
	if (op->kind == RP_OP_COMMIT && rp_commit_poisoned(s, op, range))
		return RP_ST_WRITE_FAILED;
	return RP_ST_OK;
}

static int copy_bytes(struct rp_op *op)
{
	uint8_t *to = malloc(op->priv.bytes);

	if (!to)
		return -ENOMEM;
	op->priv.copy = to;
	op->priv.copied = (struct iovec){to, op->priv.bytes};
	for (size_t i = 0; i < op->iov_count; i++) {
		memcpy(to, op->iov[i].iov_base, op->iov[i].iov_len);
		to += op->iov[i].iov_len;
	}
	return 0;
}

static int copy_operands(struct rp_op *op)
{
	const bool compares = rp_atomic_has_compare(op->atomic.op);
	const uint64_t bytes = op->priv.bytes;
	uint8_t *to;

	if (!rp_atomic_has_operand(op->atomic.op))
		return 0;
	to = malloc(bytes << compares);
	if (!to)
		return -ENOMEM;
	op->priv.copy = to;
	memcpy(to, op->atomic.operand, bytes);
	op->atomic.operand = to;
	if (!compares)
		return 0;
	memcpy(to + bytes, op->atomic.compare, bytes);
	op->atomic.compare = to + bytes;
	return 0;
}

/* --- the life of an operation --- */

void rp_op_fail(struct rp_op *op, enum rp_status st, uint32_t detail,
		uint64_t range)
{
	if (op->priv.out.status != RP_ST_OK)
		return;
	op->priv.out.status = st;
	op->priv.out.detail = detail;
	op->priv.out.range = range;
}

static void init(struct rp_session *s, struct rp_op *op)
{
	memset(&op->priv, 0, offsetof(typeof(op->priv), piece));
	op->priv.piece[0].used = op->priv.piece[1].used = false;
	op->priv.session = s;
	STAILQ_INIT(&op->priv.ready);
	op->priv.out.required = op->required;
	/* The weakest answer lowers it. */
	if (op->level == RP_LEVEL_DURABLE)
		op->priv.out.class = RP_CLASS_POWER;
}

void rp_op_accept(struct rp_session *s, struct rp_op *op)
{
	if (TAILQ_EMPTY(&s->ops)) {
		s->heard = true;
		s->idle = false;
	}
	op->priv.seq = s->next_seq++;
	rp_op_move(op, RP_OP_QUEUED);
	TAILQ_INSERT_TAIL(&s->ops, op, priv.link);
	if (!s->head)
		s->head = op;
	s->nqueued++;
	s->ncommits += counts(op);
	s->nstores += op->priv.store || op->kind == RP_OP_ATOMIC ||
		      rp_op_then(op);
	s->outstanding += !op->priv.internal;
	if (counts(op))
		s->last_proof = op->priv.seq;
}

/* Nothing of the operation is left to post. */
static void leave_queue(struct rp_op *op)
{
	struct rp_session *s = op->priv.session;

	if (s->head == op)
		s->head = TAILQ_NEXT(op, priv.link);
	s->nqueued--;
}

/* Is a store outstanding whose bytes the commit covers? */
static bool awaits_stores(const struct rp_op *op)
{
	const struct rp_session *s = op->priv.session;
	const struct rp_op *o;

	if (op->kind != RP_OP_COMMIT)
		return false;
	LIST_FOREACH (o, &s->stores, priv.of_stores) {
		if (o->priv.seq >= op->priv.seq || !rp_op_writes(o))
			continue;
		for (size_t i = 0; i < o->nranges; i++)
			for (size_t j = 0; j < op->nranges; j++)
				if (rp_wire_overlap(&o->ranges[i],
						    &op->ranges[j]))
					return true;
	}
	return false;
}

static void free_piece(struct rp_piece *p)
{
	free(p->msg);
	p->msg = NULL;
	p->used = false;
	if (p->heap)
		free(p);
}

static void forget_token(struct rp_piece *p)
{
	struct rp_session *s = p->op->priv.session;
	struct rp_piece **b = &s->by_token[p->token % RP_SESSION_TOKENS];

	while (*b != p)
		b = &(*b)->same;
	*b = p->same;
	s->used--;
	p->op->priv.unanswered--;
	p->unanswered = false;
}

/* Nothing of the piece is under way any more. */
static void release(struct rp_piece *p)
{
	p->op->priv.pending--;
	free_piece(p);
}

/* Pieces that were not posted never will be. */
static void drop_ready(struct rp_op *op)
{
	struct rp_piece *p;

	while ((p = STAILQ_FIRST(&op->priv.ready))) {
		STAILQ_REMOVE_HEAD(&op->priv.ready, link);
		if (p->token)
			forget_token(p);
		release(p);
	}
}

void rp_op_end(struct rp_op *op)
{
	struct rp_session *s = op->priv.session;
	const bool failed = op->priv.out.status != RP_ST_OK;
	/* RDMA that was posted is poisoned when its placement is not proved. */
	const bool poisons = failed && (op->priv.store || rp_op_then(op) ||
					op->kind == RP_OP_ATOMIC ||
					op->priv.state == RP_OP_QUEUED);

	if (op->priv.state != RP_OP_POSTED) {
		drop_ready(op);
		leave_queue(op);
	}
	rp_op_move(op, RP_OP_ENDED);
	s->ncommits -= counts(op);
	s->nstores -= op->priv.store || op->kind == RP_OP_ATOMIC ||
		      rp_op_then(op);
	if (op->priv.listed) {
		LIST_REMOVE(op, priv.of_stores);
		s->nthens -= rp_op_then(op);
	}
	if (poisons)
		rp_op_poison(op);
	TAILQ_REMOVE(&s->ops, op, priv.link);
	TAILQ_INSERT_TAIL(&s->ended, op, priv.link);
}

/* Everything was posted, and the target has answered all of it. */
static void end_if_complete(struct rp_op *op)
{
	if (op->priv.state == RP_OP_POSTED && !op->priv.pending &&
	    !awaits_stores(op))
		rp_op_end(op);
}

/* A store has ended: commits behind it may have waited for that. */
static void end_commits(struct rp_session *s)
{
	struct rp_op *op, *next;

	for (op = TAILQ_FIRST(&s->ops); op && op != s->head; op = next) {
		next = TAILQ_NEXT(op, priv.link);
		if (op->kind == RP_OP_COMMIT)
			end_if_complete(op);
	}
}

static void piece_ended(struct rp_piece *p)
{
	struct rp_op *op = p->op;
	struct rp_session *s = op->priv.session;
	const bool store = op->priv.listed && rp_op_writes(op);

	release(p);
	end_if_complete(op);
	if (store && op->priv.state == RP_OP_ENDED)
		end_commits(s);
}

/* The channel has let go of the buffers. */
static void piece_done(struct rp_channel_op *chan, int err)
{
	struct rp_piece *p = (struct rp_piece *)chan;
	struct rp_op *op = p->op;
	struct rp_session *s = op->priv.session;

	p->sending = false;
	if (err) {
		rp_session_doom(s, RP_ST_LOST, (uint32_t)err);
		return;
	}
	s->heard |= chan->kind != RP_CHANNEL_SEND;
	if ((chan->kind == RP_CHANNEL_WRITE && chan->delivered) ||
	    (chan->kind == RP_CHANNEL_READ &&
	     s->channel->flags & RP_CHANNEL_FENCES) ||
	    chan->kind == RP_CHANNEL_FLUSH)
		rp_session_placed(s, op->priv.seq);
	if (p->unanswered)
		return;
	piece_ended(p);
	if (s->state == RP_SESSION_OPEN) {
		rp_session_pump(s);
		rp_session_deliver(s);
	}
}

struct rp_piece *rp_piece_new(struct rp_op *op)
{
	struct rp_piece *p = op->priv.piece;
	bool heap = false;

	if (p->used)
		p++;
	if (p->used) {
		p = malloc(sizeof(*p));
		if (!p)
			return NULL;
		heap = true;
	}
	memset(p, 0, sizeof(*p));
	p->used = true;
	p->heap = heap;
	p->op = op;
	p->chan.done = piece_done;
	op->priv.pending++;
	STAILQ_INSERT_TAIL(&op->priv.ready, p, link);
	return p;
}

struct rp_piece *rp_piece_request(struct rp_op *op, size_t first, size_t n)
{
	struct rp_session *s = op->priv.session;
	struct rp_piece *p = rp_piece_new(op);
	struct rp_piece **b;

	if (!p)
		return NULL;
	p->chan.kind = RP_CHANNEL_SEND;
	p->first = first;
	p->n = n;
	p->token = s->next_token++;
	p->unanswered = true;
	b = &s->by_token[p->token % RP_SESSION_TOKENS];
	p->same = *b;
	*b = p;
	s->used++;
	op->priv.unanswered++;
	return p;
}

/* --- posting --- */

static int encode(const struct rp_piece *p, void *buf, size_t size)
{
	const struct rp_op *op = p->op;
	struct rp_wire_query q = {
		.key = op->ranges[0].key,
		.required = op->required,
	};
	struct rp_wire_request m = {
		.nranges = p->n,
		.packed = true,
		.level = op->level == RP_LEVEL_DURABLE ? RP_LEVEL_DURABLE
						       : RP_LEVEL_VISIBLE,
		.required = op->required,
		.ranges = &op->ranges[p->first],
	};

	if (op->kind == RP_OP_QUERY)
		return rp_wire_put_query(buf, size, p->token, &q);
	if (p->effect) {
		m.effect = op->effect;
		m.then = op->then;
		m.data = op->data;
		m.atomic = op->atomic;
		if (op->priv.store)
			m.effect = RP_EFFECT_STORE;
		else if (op->kind == RP_OP_ATOMIC)
			m.effect = RP_EFFECT_ATOMIC;
	}
	return rp_wire_put_request(buf, size, p->token, &m);
}

/* The local bytes of a write. */
static size_t source(const struct rp_op *op, const struct iovec **iov)
{
	*iov = op->priv.copy ? &op->priv.copied : op->iov;
	return op->priv.copy ? 1 : op->iov_count;
}

static void gather(uint8_t *to, const struct rp_op *op)
{
	const struct iovec *iov;
	size_t n = source(op, &iov);

	for (size_t i = 0; i < n; i++) {
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
}

/*
 * The message of a piece: injected out of buf where the channel can, else sent
 * from memory of its own; the bytes of a store from the program's, which stay
 * valid, where no device has to know them. 0 or -errno.
 */
static int make_message(struct rp_piece *p, uint8_t *buf, size_t size)
{
	struct rp_op *op = p->op;
	const uint32_t flags = op->priv.session->channel->flags;
	const size_t extra = op->priv.store ? op->priv.bytes : 0;
	const struct iovec *iov;
	int len = encode(p, buf, size);
	bool apart;

	if (len < 0)
		return len;
	p->chan.iov = p->iov;
	p->chan.iov_count = 1;
	p->chan.inject = len + extra <= op->priv.session->channel->inject;
	apart = extra && !p->chan.inject && !(flags & RP_CHANNEL_LOCAL_MR) &&
		source(op, &iov) == 1 && (!op->inject || op->priv.copy);
	if (apart) {
		p->iov[1] = iov[0];
		p->chan.iov_count = 2;
	} else if (extra) {
		gather(buf + len, op);
		len += (int)extra;
	}
	p->iov[0] = (struct iovec){buf, (size_t)len};
	if (p->chan.inject)
		return 0;
	p->msg = malloc((size_t)len);
	if (!p->msg)
		return -ENOMEM;
	memcpy(p->msg, buf, (size_t)len);
	p->iov[0].iov_base = p->msg;
	return 0;
}

static void list_store(struct rp_op *op)
{
	struct rp_session *s = op->priv.session;

	op->priv.listed = true;
	LIST_INSERT_HEAD(&s->stores, op, priv.of_stores);
	s->nthens += rp_op_then(op);
}

/* The channel has the piece. It may be gone when this returns. */
static void posted(struct rp_piece *p)
{
	struct rp_op *op = p->op;

	STAILQ_REMOVE_HEAD(&op->priv.ready, link);
	p->posted = true;
	p->sending = !p->chan.inject;
	if (p->effect && !op->priv.listed &&
	    (rp_op_writes(op) || rp_op_then(op)))
		list_store(op);
}

/* False: the channel has no room, or the operation has failed. */
static bool post_ready(struct rp_op *op)
{
	struct rp_session *s = op->priv.session;
	struct rp_channel_op *ops[BATCH];
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_piece *p;
	int n, taken, ret;

	while (!STAILQ_EMPTY(&op->priv.ready)) {
		bool message = false;

		n = 0;
		STAILQ_FOREACH (p, &op->priv.ready, link) {
			if (n == BATCH || (p->token && message))
				break;
			if (p->token && !p->msg) {
				ret = make_message(p, buf, sizeof(buf));
				if (ret) {
					rp_op_fail(op,
						   ret == -ENOMEM
							   ? RP_ST_NO_MEMORY
							   : RP_ST_UNSUPPORTED,
						   (uint32_t)-ret, 0);
					return false;
				}
			}
			message |= p->token != 0;
			ops[n++] = &p->chan;
		}
		taken = rp_channel_post(s->channel, ops, n);
		for (int i = 0; i < taken; i++)
			posted((struct rp_piece *)ops[i]);
		if (taken < n) {
			s->blocked = true;
			return false;
		}
	}
	return true;
}

/* An operation that has failed posts nothing more. */
static bool give_up(struct rp_op *op)
{
	if (op->priv.out.status == RP_ST_OK)
		return false;
	drop_ready(op);
	leave_queue(op);
	rp_op_move(op, RP_OP_POSTED);
	end_if_complete(op);
	return true;
}

/* Post what the operation has left to post. False: it has to wait. */
static bool launch(struct rp_op *op)
{
	int ret;

	for (;;) {
		if (give_up(op))
			return true;
		if (op->priv.state == RP_OP_QUEUED && rp_op_conflicts(op))
			return false;
		ret = rp_commit_make(op);
		if (ret == -ENOMEM)
			rp_op_fail(op, RP_ST_NO_MEMORY, 0, 0);
		if (!post_ready(op) && op->priv.out.status == RP_ST_OK)
			return false;
		if (op->priv.out.status != RP_ST_OK)
			continue;
		if (ret)
			return false;
		leave_queue(op);
		rp_op_move(op, RP_OP_POSTED);
		end_if_complete(op);
		return true;
	}
}

void rp_session_pump(struct rp_session *s)
{
	s->blocked = false;
	while (s->state == RP_SESSION_OPEN && !s->doomed && s->head)
		if (!launch(s->head))
			return;
}
