// SPDX-License-Identifier: BSD-2-Clause
/* Small plain writes, coalesced into one REQUEST that stores them. */
#include <errno.h>
#include <stdlib.h>

#include "core/session_priv.h"

/* Longest write that is coalesced. */
#define MAX_COALESCED 128

/* Coalesced writes in one REQUEST; an internal operation of the session. */
struct batch {
	struct rp_op op;
	struct rp_ops writes;
	struct rp_wire_range ranges[RP_WIRE_MAX_RANGES];
	uint8_t bytes[RP_WIRE_MAX_STORE];
};

static void batch_done(struct rp_op *op, const struct rp_outcome *out)
{
	struct batch *b = (struct batch *)op;
	struct rp_session *s = op->priv.session;
	struct rp_outcome each = *out;
	struct rp_op *w;

	each.range = 0;
	while ((w = TAILQ_FIRST(&b->writes))) {
		TAILQ_REMOVE(&b->writes, w, priv.link);
		s->outstanding--;
		rp_op_count_end(w, &each);
		w->done(w, &each);
	}
	free(b);
}

/*
 * May the plain write wait to be coalesced? Only if each commit to the region
 * needs the agent anyway, and not with LOCAL_MR: an RDMA device writes many
 * small ranges faster than the target's CPU stores them.
 */
bool rp_session_may_coalesce(struct rp_session *s, const struct rp_op *op)
{
	if (op->kind != RP_OP_WRITE || op->effect || op->nranges > 1 ||
	    op->priv.bytes > MAX_COALESCED ||
	    op->priv.bytes > s->attr.inline_max ||
	    s->channel->flags & RP_CHANNEL_LOCAL_MR)
		return false;
	return rp_grant_find(s, op->ranges[0].key)->without_agent ==
	       RP_METHOD_REFUSED;
}

/* Does the write fit into the open batch? */
static bool fits_batch(const struct rp_op *batch, const struct rp_op *op)
{
	const uint64_t bytes = batch->priv.bytes + op->priv.bytes;

	return batch->nranges < RP_WIRE_MAX_RANGES &&
	       bytes <= RP_WIRE_MAX_STORE &&
	       RP_WIRE_STORE_LEN(batch->nranges + 1, bytes) <= RP_WIRE_MAX_MSG;
}

static int open_batch(struct rp_session *s)
{
	struct batch *b = malloc(sizeof(*b));

	if (!b)
		return -ENOMEM;
	memset(&b->op, 0, sizeof(b->op));
	TAILQ_INIT(&b->writes);
	b->op.kind = RP_OP_WRITE;
	b->op.done = batch_done;
	b->op.ranges = b->ranges;
	b->op.iov[0].iov_base = b->bytes;
	b->op.iov_count = 1;
	rp_op_init(s, &b->op);
	b->op.priv.internal = true;
	b->op.priv.store = true;
	rp_op_accept(s, &b->op);
	s->batch = &b->op;
	s->k->ops->kick(s->k);
	return 0;
}

int rp_session_coalesce(struct rp_session *s, struct rp_op *op)
{
	struct batch *b;

	if (s->batch && !fits_batch(s->batch, op)) {
		s->batch = NULL;
		rp_session_post_queued(s);
	}
	if (!s->batch && open_batch(s))
		return -ENOMEM;
	b = (struct batch *)s->batch;
	op->priv.store = true;
	rp_write_record(s, op);
	rp_iov_gather(b->bytes + b->op.priv.bytes, op->iov, op->iov_count);
	b->ranges[b->op.nranges++] = op->ranges[0];
	b->op.priv.bytes += op->priv.bytes;
	b->op.iov[0].iov_len = b->op.priv.bytes;
	s->written += op->priv.bytes;
	b->op.priv.written = s->written;
	TAILQ_INSERT_TAIL(&b->writes, op, priv.link);
	s->outstanding++;
	rp_op_count_start(op);
	return 0;
}
