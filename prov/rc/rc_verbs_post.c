// SPDX-License-Identifier: BSD-2-Clause
/* RC queue pair backend: post work requests, poll completions. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "rc/rc_verbs.h"

/* Most work requests per ibv_post_send(). */
#define CHAIN_WRS 16
/* Most unsignaled work requests in a row. */
#define MAX_UNSIGNALED 8
/* Longest WRITE, READ and FLUSH, whatever the device allows. */
#define MAX_LENGTH (1ull << 30)

/* --- copies --- */

static int allocate_copies(struct rp_verbs_rc *v)
{
	struct rp_verbs_copy *all = malloc(RP_VERBS_COPIES * sizeof(*all));
	int ret;

	if (!all)
		return -ENOMEM;
	ret = rp_verbs_reg(&v->rc, all, RP_VERBS_COPIES * sizeof(*all),
			   RP_RC_LOCAL, &v->copies_mr);
	if (ret) {
		free(all);
		return ret;
	}
	v->copies = all;
	for (int i = 0; i < RP_VERBS_COPIES; i++)
		SLIST_INSERT_HEAD(&v->free_copies, &all[i], link);
	return 0;
}

/* Get a copy buffer; NULL: none is free. */
static struct rp_verbs_copy *copy_get(struct rp_verbs_rc *v)
{
	struct rp_verbs_copy *copy;

	if (!v->copies && allocate_copies(v))
		return NULL;
	copy = SLIST_FIRST(&v->free_copies);
	if (copy)
		SLIST_REMOVE_HEAD(&v->free_copies, link);
	return copy;
}

void rp_verbs_copy_put(struct rp_verbs_rc *v, struct rp_verbs_copy *copy)
{
	if (copy)
		SLIST_INSERT_HEAD(&v->free_copies, copy, link);
}

/* --- posting --- */

/* A chain of work requests for one post. */
struct chain {
	struct rp_verbs_rc *v;
	struct rp_verbs_qp *qp;
	int n, nops;	       /* number of work requests, of operations */
	bool needs_completion; /* to call a done(), or to free a copy */
	bool has_flush;
	/* Last WRITE with op->delivered, unless a later READ proves it. */
	const struct rp_channel_op *unconfirmed;
	struct ibv_send_wr wr[CHAIN_WRS];
	struct ibv_sge sge[CHAIN_WRS][RP_VERBS_SGES];
};

static bool has_descs(const struct rp_channel_op *op)
{
	for (int i = 0; i < op->iov_count; i++)
		if (op->iov[i].iov_len && (!op->desc || !op->desc[i]))
			return false;
	return !op->inject;
}

static void set_sges(const struct rp_channel_op *op, bool lkeys,
		     struct ibv_send_wr *wr)
{
	for (int i = 0; i < op->iov_count; i++) {
		const struct ibv_mr *mr =
			lkeys && op->desc ? op->desc[i] : NULL;

		wr->sg_list[i] = (struct ibv_sge){
			.addr = (uintptr_t)op->iov[i].iov_base,
			.length = (uint32_t)op->iov[i].iov_len,
			.lkey = mr ? mr->lkey : 0,
		};
	}
	wr->num_sge = op->iov_count;
}

static void set_one_sge(struct ibv_send_wr *wr, const void *at, size_t len,
			const struct rp_rc_mr *mr)
{
	const struct ibv_mr *m = mr->handle;

	wr->sg_list[0] = (struct ibv_sge){
		.addr = (uintptr_t)at,
		.length = (uint32_t)len,
		.lkey = m ? m->lkey : 0,
	};
	wr->num_sge = 1;
}

static bool must_copy(const struct rp_verbs_rc *v,
		      const struct rp_channel_op *op, size_t len)
{
	return (op->kind == RP_CHANNEL_SEND || op->kind == RP_CHANNEL_WRITE) &&
	       len > v->max_inline && !has_descs(op);
}

/* Set the scatter list of wr; copy is NULL or a buffer for the data. */
static void set_scatter(struct rp_verbs_rc *v, const struct rp_channel_op *op,
			struct rp_verbs_copy *copy, struct ibv_send_wr *wr)
{
	const size_t len = rp_rc_op_bytes(op);

	if (op->kind == RP_CHANNEL_FLUSH) {
		set_one_sge(wr, NULL, op->length, &v->fence_scratch_mr);
	} else if (op->kind == RP_CHANNEL_READ) {
		set_sges(op, true, wr);
		if (!op->iov_count)
			set_one_sge(wr, &v->fence_scratch, op->length,
				    &v->fence_scratch_mr);
	} else if (len <= v->max_inline) {
		set_sges(op, false, wr);
		wr->send_flags |= IBV_SEND_INLINE;
	} else if (copy) {
		rp_iov_gather(copy->bytes, op->iov, op->iov_count);
		set_one_sge(wr, copy->bytes, len, &v->copies_mr);
	} else {
		set_sges(op, true, wr);
	}
}

static const enum ibv_wr_opcode opcodes[] = {
	[RP_CHANNEL_SEND] = IBV_WR_SEND,
	[RP_CHANNEL_WRITE] = IBV_WR_RDMA_WRITE,
	[RP_CHANNEL_READ] = IBV_WR_RDMA_READ,
	[RP_CHANNEL_FLUSH] = (enum ibv_wr_opcode)RP_FLUSH_OPCODE,
};

/* Append a work request to the chain. Returns its ring entry. */
static struct rp_verbs_wr *add_wr(struct chain *ch, enum rp_channel_kind kind,
				  uint64_t rkey, uint64_t remote_addr)
{
	const unsigned int at = ch->qp->head + (unsigned int)ch->n;
	struct rp_verbs_wr *r = &ch->qp->ring[at % RP_VERBS_DEPTH];
	struct ibv_send_wr *wr = &ch->wr[ch->n];

	*r = (struct rp_verbs_wr){.qp = ch->qp};
	*wr = (struct ibv_send_wr){
		.wr_id = (uintptr_t)r,
		.sg_list = ch->sge[ch->n],
		.opcode = opcodes[kind],
		.wr.rdma = {.remote_addr = remote_addr, .rkey = (uint32_t)rkey},
	};
	if (ch->n)
		ch->wr[ch->n - 1].next = wr;
	ch->n++;
	return r;
}

/* Append an operation. -EAGAIN: no room; other errors: invalid. */
static int add_op(struct chain *ch, struct rp_channel_op *op)
{
	const struct rp_verbs_rc *v = ch->v;
	const unsigned int used = ch->qp->head - ch->qp->tail;
	const size_t len = rp_rc_op_bytes(op);
	/* Room for op and a READ that proves placement. */
	const unsigned int needs = (unsigned int)ch->n + 2;
	struct rp_verbs_copy *copy = NULL;
	struct rp_verbs_wr *r;

	if (needs > CHAIN_WRS || used + needs > RP_VERBS_DEPTH ||
	    v->cq_used + needs > v->cq_room)
		return -EAGAIN;
	if (len > MAX_LENGTH ||
	    (op->kind != RP_CHANNEL_SEND && op->length > MAX_LENGTH))
		return -EMSGSIZE;
	if (must_copy(v, op, len)) {
		if (len > sizeof(copy->bytes))
			return -EMSGSIZE;
		copy = copy_get(ch->v);
		if (!copy)
			return -EAGAIN;
	}
	r = add_wr(ch, op->kind, op->rkey, op->remote_addr);
	r->op = op->inject ? NULL : op;
	r->copy = copy;
	set_scatter(ch->v, op, copy, &ch->wr[ch->n - 1]);
	ch->needs_completion |= !op->inject || copy;
	ch->has_flush |= op->kind == RP_CHANNEL_FLUSH;
	if (op->kind == RP_CHANNEL_READ || op->kind == RP_CHANNEL_FLUSH)
		ch->unconfirmed = NULL;
	else if (op->kind == RP_CHANNEL_WRITE && op->delivered && op->length)
		ch->unconfirmed = op;
	ch->nops++;
	return 0;
}

/*
 * Append a READ after an unconfirmed WRITE. The completion of an RC WRITE only
 * proves that the remote NIC has the bytes; a later READ completes after their
 * placement.
 */
static void prove_placement(struct chain *ch)
{
	const struct rp_channel_op *op = ch->unconfirmed;
	struct rp_verbs_rc *v = ch->v;

	if (!op)
		return;
	add_wr(ch, RP_CHANNEL_READ, op->rkey, op->remote_addr);
	set_one_sge(&ch->wr[ch->n - 1], &v->fence_scratch,
		    op->length < sizeof(v->fence_scratch)
			    ? op->length
			    : sizeof(v->fence_scratch),
		    &v->fence_scratch_mr);
}

/*
 * Signal the last work request of a chain. Injected messages need no
 * completion, but some are signaled to free entries of ring and CQ.
 */
static void signal_last(struct chain *ch)
{
	const unsigned int n = (unsigned int)ch->n;

	if (ch->needs_completion || ch->qp->unsignaled + n >= MAX_UNSIGNALED ||
	    ch->v->unsignaled + n >= ch->v->cq_room / 4) {
		ch->wr[ch->n - 1].send_flags |= IBV_SEND_SIGNALED;
		ch->v->unsignaled -= ch->qp->unsignaled;
		ch->qp->unsignaled = 0;
	} else {
		ch->v->unsignaled += n;
		ch->qp->unsignaled += n;
	}
}

/*
 * Account for a posted chain. The device has accepted n work requests; err: why
 * it refused the next one. Returns the number of operations handled: posted
 * ones and the refused one.
 */
static int record_posted_chain(struct chain *ch, int n, int err)
{
	struct rp_verbs_qp *q = ch->qp;
	struct rp_rc_channel *c = &q->channel->c;
	struct rp_verbs_wr *r;

	for (int i = 0; i < ch->n; i++) {
		r = &q->ring[(q->head + (unsigned int)i) % RP_VERBS_DEPTH];
		if (i < n && r->op)
			rp_rc_add_posted(c, r->op);
		else if (i == n && r->op)
			rp_rc_fail_op(c, r->op, err);
		if (i >= n)
			rp_verbs_copy_put(ch->v, r->copy);
	}
	q->head += (unsigned int)n;
	ch->v->cq_used += (unsigned int)n;
	if (n == ch->n)
		return ch->nops;
	rp_rc_end_channel(c, err, NULL, 0);
	return n < ch->nops ? n + 1 : ch->nops;
}

static int post_chain(struct chain *ch)
{
	struct ibv_send_wr *bad = ch->wr;
	int ret;

	prove_placement(ch);
	signal_last(ch);
	/* ibv_post_send() cannot post FLUSH, builders can. */
	if (ch->has_flush)
		ret = rp_flush_post(ch->qp->ibv, ch->wr);
	else
		ret = ibv_post_send(ch->qp->ibv, ch->wr, &bad);
	return record_posted_chain(ch, ret ? (int)(bad - ch->wr) : ch->n, ret);
}

/* Post operations. Returns how many were accepted; the last may have failed. */
static int post_some(struct rp_verbs_channel *c, struct rp_channel_op *ops[],
		     int n)
{
	struct chain ch;
	int ret = 0;

	/* add_wr() initializes ch.wr. */
	ch.v = rp_verbs_rc_of(c->c.rc);
	ch.qp = c->qp;
	ch.n = ch.nops = 0;
	ch.needs_completion = ch.has_flush = false;
	ch.unconfirmed = NULL;
	while (ch.nops < n && !ret)
		ret = add_op(&ch, ops[ch.nops]);
	if (ch.n)
		return post_chain(&ch);
	if (!ret || ret == -EAGAIN)
		return 0;
	if (ops[0]->inject)
		rp_rc_end_channel(&c->c, -ret, NULL, 0);
	else
		rp_rc_fail_op(&c->c, ops[0], -ret);
	return 1;
}

int rp_verbs_post(struct rp_channel *base, struct rp_channel_op *ops[], int n)
{
	struct rp_verbs_channel *c =
		rp_verbs_channel_of((struct rp_rc_channel *)base);
	int done = 0, got = 1;

	while (c->c.state == RP_RC_UP && got && done < n) {
		got = post_some(c, ops + done, n - done);
		done += got;
	}
	return done;
}

int rp_verbs_post_recv(struct rp_rc *rc, struct rp_rc_recv *r)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);
	const struct ibv_mr *mr = r->desc;
	struct ibv_sge sge = {
		.addr = (uintptr_t)r->buf,
		.length = RP_WIRE_MAX_MSG,
		.lkey = mr->lkey,
	};
	/* wr_id is odd, unlike that of a send (rp_verbs_wr's address). */
	struct ibv_recv_wr *bad, wr = {
					 .wr_id = (uintptr_t)r | 1,
					 .sg_list = &sge,
					 .num_sge = 1,
				 };

	return -ibv_post_srq_recv(v->srq, &wr, &bad);
}

/* --- completions --- */

static int errno_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS: /* of a receive of no message */
		return EPROTO;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_LOC_PROT_ERR:
		return EACCES;
	case IBV_WC_REM_INV_REQ_ERR:
		return EOPNOTSUPP;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return ETIMEDOUT;
	case IBV_WC_WR_FLUSH_ERR:
		return ENOTCONN;
	default:
		return EIO;
	}
}

static void complete_recv(struct rp_verbs_rc *v, const struct ibv_wc *wc)
{
	struct rp_rc_recv *r =
		(struct rp_rc_recv *)(uintptr_t)(wc->wr_id & ~(uint64_t)1);
	struct rp_verbs_qp *q = rp_verbs_qp_find(v, wc->qp_num);
	struct rp_verbs_channel *c = q ? q->channel : NULL;

	/* RDMA WRITE with immediate data leaves the buffer as it was. */
	if (c && !wc->status && wc->opcode == IBV_WC_RECV) {
		rp_rc_complete_recv(&v->rc, &c->c, r, wc->byte_len);
		return;
	}
	rp_rc_recv_repost(&v->rc, r);
	if (c)
		rp_rc_end_channel(&c->c, errno_of(wc->status), NULL, 0);
}

/* wr has completed, and so have all work requests posted before it. */
static void complete_sends(struct rp_verbs_rc *v, struct rp_verbs_wr *wr)
{
	struct rp_verbs_qp *q = wr->qp;
	struct rp_verbs_wr *r;

	do {
		r = &q->ring[q->tail++ % RP_VERBS_DEPTH];
		v->cq_used--;
		rp_verbs_copy_put(v, r->copy);
		if (r->op)
			rp_rc_complete_op(&v->rc, r->op, 0);
	} while (r != wr);
}

static void complete_wc(struct rp_verbs_rc *v, const struct ibv_wc *wc)
{
	struct rp_verbs_wr *wr = (struct rp_verbs_wr *)(uintptr_t)wc->wr_id;

	if (wc->wr_id & 1)
		complete_recv(v, wc);
	else if (wr->qp->channel && !wc->status)
		complete_sends(v, wr);
	/* End the channel: shut() fails all its operations. */
	else if (wr->qp->channel)
		rp_rc_end_channel(&wr->qp->channel->c, errno_of(wc->status),
				  NULL, 0);
}

static int read_cq(struct rp_verbs_rc *v, struct ibv_wc wc[RP_VERBS_WCS])
{
	const int n = v->nwcs_after_arm;

	if (!n)
		return ibv_poll_cq(v->cq, RP_VERBS_WCS, wc);
	memcpy(wc, v->wcs_after_arm, (size_t)n * sizeof(*wc));
	v->nwcs_after_arm = 0;
	return n;
}

int rp_verbs_poll(struct rp_rc *rc, int max)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);
	struct ibv_wc wc[RP_VERBS_WCS];
	int n, total = 0;

	if (!v->cq)
		return 0;
	do {
		n = read_cq(v, wc);
		for (int i = 0; i < n; i++)
			complete_wc(v, &wc[i]);
		total += n > 0 ? n : 0;
	} while (n > 0 && total < max);
	if (!n)
		rp_verbs_free_dead_qps(v);
	if (n < 0)
		rp_verbs_end_all(v, EIO);
	return total;
}

int rp_verbs_trywait(struct rp_rc *rc)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);
	struct pollfd fds[2] = {
		{.fd = v->events->fd, .events = POLLIN},
		{.fd = v->verbs ? v->verbs->async_fd : -1, .events = POLLIN},
	};
	struct ibv_cq *cq;
	void *context;

	if (poll(fds, 2, 0) > 0)
		return -EAGAIN;
	if (!v->wake)
		return 0;
	while (!ibv_get_cq_event(v->wake, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	if (ibv_req_notify_cq(v->cq, 0))
		return -EAGAIN;
	/* Poll once more: entries from before arming cause no event. */
	if (!v->nwcs_after_arm)
		v->nwcs_after_arm =
			ibv_poll_cq(v->cq, RP_VERBS_WCS, v->wcs_after_arm);
	if (v->nwcs_after_arm < 0)
		v->nwcs_after_arm = 0;
	return v->nwcs_after_arm ? -EAGAIN : 0;
}
