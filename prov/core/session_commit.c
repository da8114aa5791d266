// SPDX-License-Identifier: BSD-2-Clause
/* What an operation posts: RDMA of its bytes, then slices of its ranges. */
#include <errno.h>
#include <stdlib.h>

#include "core/session_priv.h"
#include "core/wire_pack.h"

/* The local part of one of several remote ranges. */
struct part {
	struct iovec iov[RP_CHANNEL_IOV];
	void *desc[RP_CHANNEL_IOV];
};

/* Where the walk through the local scatter list is. */
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

static int copy_injected(struct rp_op *op)
{
	return op->kind == RP_OP_WRITE && op->inject && !op->priv.copy
		       ? rp_op_copy(op)
		       : 0;
}

/* RDMA of the operation's bytes, a piece for each remote range. */
static int make_data(struct rp_op *op)
{
	struct rp_session *s = op->priv.session;
	void *none[1] = {NULL};
	struct cursor c = {op->iov, op->desc, 0};

	if (copy_injected(op))
		return -ENOMEM;
	if (op->priv.copy) {
		c.iov = &op->priv.copied;
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
		p->chan.delivered = op->kind == RP_OP_WRITE &&
				    (op->level == RP_LEVEL_VISIBLE ||
				     (op->level == RP_LEVEL_DURABLE &&
				      rp_commit_delivers(op, g)));
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
