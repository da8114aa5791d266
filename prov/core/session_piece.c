// SPDX-License-Identifier: BSD-2-Clause
/* Pieces of operations: RDMA and messages on the channel, and replies. */
#include <errno.h>
#include <stdlib.h>

#include "core/session_priv.h"

/* Most pieces that one call posts. */
#define MAX_POSTS (RP_CHANNEL_IOV + 2)

int rp_op_copy(struct rp_op *op)
{
	uint8_t *to = malloc(op->priv.bytes);

	if (!to)
		return -ENOMEM;
	op->priv.copy = to;
	op->priv.copy_iov = (struct iovec){to, op->priv.bytes};
	rp_iov_gather(to, op->iov, op->iov_count);
	return 0;
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
	struct rp_piece **b = &s->by_token[p->token % RP_SESSION_TOKEN_BUCKETS];

	while (*b != p)
		b = &(*b)->next_in_bucket;
	*b = p->next_in_bucket;
	s->credits_used--;
	p->op->priv.replies_due--;
	p->reply_due = false;
}

/* Free a piece that has completed. */
static void complete_piece(struct rp_piece *p)
{
	p->op->priv.pending--;
	free_piece(p);
}

void rp_pieces_drop(struct rp_op *op)
{
	struct rp_piece *p;

	while ((p = STAILQ_FIRST(&op->priv.ready))) {
		STAILQ_REMOVE_HEAD(&op->priv.ready, link);
		if (p->token)
			forget_token(p);
		complete_piece(p);
	}
}

static void end_piece(struct rp_piece *p)
{
	struct rp_op *op = p->op;

	complete_piece(p);
	rp_op_end_if_last(op);
}

/* Called by the channel, which has released the piece's buffers. */
static void piece_done(struct rp_channel_op *chan, int err)
{
	struct rp_piece *p = (struct rp_piece *)chan;
	struct rp_op *op = p->op;
	struct rp_session *s = op->priv.session;

	p->sending = false;
	/* A SEND whose reply has come was delivered in spite of err. */
	if (err && (chan->kind != RP_CHANNEL_SEND || p->reply_due)) {
		rp_session_fail(s, RP_ST_LOST, (uint32_t)err);
		op->priv.piece_failed = true;
		if (!p->reply_due)
			complete_piece(p);
		return;
	}
	s->received_any |= chan->kind != RP_CHANNEL_SEND;
	if (p->is_proof)
		rp_session_mark_placed(op);
	if (p->reply_due)
		return;
	end_piece(p);
	if (s->state == RP_SESSION_OPEN) {
		rp_session_post_queued(s);
		rp_session_call_done(s);
	}
}

inline struct rp_piece *rp_piece_new(struct rp_op *op)
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
	p->reply_due = true;
	b = &s->by_token[p->token % RP_SESSION_TOKEN_BUCKETS];
	p->next_in_bucket = *b;
	*b = p;
	s->credits_used++;
	op->priv.replies_due++;
	return p;
}

/* --- posting --- */

static int encode_message(const struct rp_piece *p, void *buf, size_t size)
{
	const struct rp_op *op = p->op;
	struct rp_wire_query q = {.required = op->required};
	struct rp_wire_request m = {
		.nranges = p->n,
		.packed = true,
		.level = op->level == RP_LEVEL_DURABLE ? RP_LEVEL_DURABLE
						       : RP_LEVEL_VISIBLE,
		.required = op->required,
		.ranges = p->n ? &op->ranges[p->first] : NULL,
	};

	if (op->kind == RP_OP_QUERY) {
		q.key = op->ranges[0].key;
		return rp_wire_put_query(buf, size, p->token, &q);
	}
	if (p->effect) {
		m.effect = op->effect;
		m.then = op->then;
		m.data = op->data;
		m.endpoint = op->endpoint;
		m.atomic = op->atomic;
		if (op->zero)
			m.effect = RP_EFFECT_ZERO;
		else if (op->priv.store)
			m.effect = RP_EFFECT_STORE;
		else if (op->kind == RP_OP_ATOMIC)
			m.effect = RP_EFFECT_ATOMIC;
	}
	return rp_wire_put_request(buf, size, p->token, &m);
}

/*
 * Encode the message of a piece: injected out of buf if the channel can, else
 * sent from allocated memory; a store's bytes are sent from the program's
 * buffer if it stays valid and no device needs its desc. 0 or -errno.
 */
static int make_message(struct rp_piece *p, uint8_t *buf, size_t size)
{
	struct rp_op *op = p->op;
	const uint32_t flags = op->priv.session->channel->flags;
	const size_t extra = op->priv.store && !op->zero ? op->priv.bytes : 0;
	const struct iovec *iov = op->priv.copy ? &op->priv.copy_iov : op->iov;
	const size_t n = op->priv.copy ? 1 : op->iov_count;
	int len = encode_message(p, buf, size);
	bool apart;

	if (len < 0)
		return len;
	p->chan.iov = p->iov;
	p->chan.iov_count = 1;
	p->chan.inject = len + extra <= op->priv.session->channel->inject;
	apart = extra && !p->chan.inject && !(flags & RP_CHANNEL_LOCAL_MR) &&
		n == 1 && (!op->inject || op->priv.copy);
	if (apart) {
		p->iov[1] = iov[0];
		p->chan.iov_count = 2;
	} else if (extra) {
		rp_iov_gather(buf + len, iov, n);
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

static void add_to_stores(struct rp_op *op)
{
	struct rp_session *s = op->priv.session;

	op->priv.in_stores = true;
	LIST_INSERT_HEAD(&s->stores, op, priv.stores_link);
	s->nthens += rp_op_has_then(op);
}

/* The channel has accepted the piece, and may already have completed it. */
static void mark_posted(struct rp_piece *p)
{
	struct rp_op *op = p->op;

	STAILQ_REMOVE_HEAD(&op->priv.ready, link);
	p->posted = true;
	op->priv.effect_sent |= p->effect;
	p->sending = !p->chan.inject;
	p->is_proof = (p->chan.kind == RP_CHANNEL_WRITE && p->chan.delivered &&
		       p->last_data) ||
		      (p->chan.kind == RP_CHANNEL_READ &&
		       op->priv.session->channel->flags & RP_CHANNEL_FENCES) ||
		      p->chan.kind == RP_CHANNEL_FLUSH;
	if (p->is_proof || (p->token && op->kind != RP_OP_QUERY))
		op->priv.session->last_proof = op->priv.seq;
	if (p->effect && !op->priv.in_stores &&
	    (rp_op_writes(op) || rp_op_has_then(op)))
		add_to_stores(op);
}

bool rp_pieces_post(struct rp_op *op)
{
	struct rp_session *s = op->priv.session;
	struct rp_channel_op *ops[MAX_POSTS];
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_piece *p;
	int n, taken, ret;

	while (!STAILQ_EMPTY(&op->priv.ready)) {
		bool message = false;

		n = 0;
		STAILQ_FOREACH (p, &op->priv.ready, link) {
			if (n == MAX_POSTS || (p->token && message))
				break;
			if (p->token && !p->msg) {
				ret = make_message(p, buf, sizeof(buf));
				if (ret) {
					rp_op_fail(op,
						   ret == -ENOMEM
							   ? RP_ST_NO_MEMORY
							   : RP_ST_UNSUPPORTED,
						   (uint32_t)-ret, 0);
					op->priv.unposted = true;
					return false;
				}
			}
			message |= p->token != 0;
			ops[n++] = &p->chan;
		}
		taken = rp_channel_post(s->channel, ops, n);
		for (int i = 0; i < taken; i++)
			mark_posted((struct rp_piece *)ops[i]);
		if (taken < n) {
			s->channel_full = true;
			return false;
		}
	}
	return true;
}

/* --- replies --- */

static struct rp_piece *find_token(const struct rp_session *s, uint64_t token)
{
	struct rp_piece *p = s->by_token[token % RP_SESSION_TOKEN_BUCKETS];

	while (p && p->token != token)
		p = p->next_in_bucket;
	return p;
}

/* Copy an atomic's fetched values. False: the reply has another length. */
static bool copy_fetched(struct rp_op *op, const struct rp_wire_reply *m)
{
	if (m->status != RP_ST_OK)
		return true;
	if (op->kind != RP_OP_ATOMIC || !op->atomic.fetch)
		return !m->result_len;
	if (m->result_len != op->priv.bytes)
		return false;
	rp_iov_scatter(op->result, op->result_count, m->result);
	return true;
}

/*
 * A wrong key ends the connection: the target closes it after this reply, so
 * stop posting now.
 */
static void check_refusal(struct rp_session *s, uint32_t status)
{
	if (status == RP_ST_STALE_KEY)
		rp_session_fail(s, RP_ST_LOST, 0);
}

static int take_reply(struct rp_session *s, struct rp_piece *p, const void *msg,
		      const struct rp_wire_hdr *hdr)
{
	struct rp_op *op = p->op;
	struct rp_wire_reply m;

	if (op->kind == RP_OP_QUERY || rp_wire_get_reply(msg, hdr, &m) ||
	    !copy_fetched(op, &m))
		return -EBADMSG;
	if (m.credits)
		s->credits = m.credits;
	rp_session_mark_placed(op);
	rp_commit_handle_reply(p, &m);
	check_refusal(s, m.status);
	return 0;
}

static int take_info(struct rp_session *s, struct rp_piece *p, const void *msg,
		     const struct rp_wire_hdr *hdr)
{
	struct rp_op *op = p->op;
	struct rp_wire_info m;

	if (op->kind != RP_OP_QUERY || rp_wire_get_info(msg, hdr, &m))
		return -EBADMSG;
	if (m.grant.length)
		rp_grant_record(s, op->ranges[0].key, &m.grant);
	if (op->info)
		*op->info = m;
	if (m.status != RP_ST_OK)
		rp_op_fail(op, m.status, 0, 0);
	op->priv.out.class = m.class;
	op->priv.out.method = m.method;
	check_refusal(s, m.status);
	return 0;
}

int rp_session_handle_reply(struct rp_session *s, const void *msg,
			    const struct rp_wire_hdr *hdr)
{
	struct rp_piece *p = find_token(s, hdr->token);
	int ret;

	/* A request that is not posted has no reply. */
	if (!p || !p->posted)
		return -EBADMSG;
	ret = hdr->type == RP_MSG_REPLY ? take_reply(s, p, msg, hdr)
					: take_info(s, p, msg, hdr);
	if (ret)
		return ret;
	forget_token(p);
	if (!p->sending)
		end_piece(p);
	rp_session_post_queued(s);
	rp_session_call_done(s);
	return 0;
}

void rp_requests_drop(struct rp_session *s)
{
	struct rp_piece *p;

	for (size_t i = 0; i < RP_SESSION_TOKEN_BUCKETS; i++) {
		while ((p = s->by_token[i])) {
			forget_token(p);
			complete_piece(p);
		}
	}
}
