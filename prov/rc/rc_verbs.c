// SPDX-License-Identifier: BSD-2-Clause
/* RC queue pairs: memory, posting and completions. */
#include "config.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "rc/rc_flush.h"
#include "rc/rc_verbs.h"

/* Entries of the completion queue; a third of them for receives. */
#define CQ_SIZE	 6144
#define SRQ_SIZE 2048
/* Work requests in one call of the device. */
#define CHAIN 16
/* Injected messages between two that are signaled. */
#define UNSIGNALED 8
/* Longest SEND that may be injected; longest that the device may copy. */
#define INJECT	   256
#define MAX_INLINE 128
/* Longest WRITE, READ and FLUSH of any device. */
#define MAX_LENGTH (1ull << 30)

static unsigned int smaller(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

/* --- memory --- */

static struct ibv_mr *reg_mr(struct rp_verbs_rc *v, void *buf, size_t len,
			     unsigned int access)
{
	int may = 0;

	if (access & (RP_RC_LOCAL | RP_RC_REMOTE_WRITE))
		may |= IBV_ACCESS_LOCAL_WRITE;
	if (access & RP_RC_REMOTE_WRITE)
		may |= IBV_ACCESS_REMOTE_WRITE;
	if (access & RP_RC_REMOTE_READ)
		may |= IBV_ACCESS_REMOTE_READ;
	if (access & RP_RC_REMOTE_FLUSH)
		may |= RP_FLUSH_ACCESS;
	return ibv_reg_mr(v->pd, buf, len, may);
}

static int verbs_reg(struct rp_rc *rc, void *buf, size_t len,
		     unsigned int access, struct rp_rc_mr *out)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);
	struct ibv_mr *mr;

	if (!v->verbs)
		return -ENODEV;
	if ((access & RP_RC_REMOTE_FLUSH) && !v->native)
		return -EOPNOTSUPP;
	mr = reg_mr(v, buf, len, access);
	/* A source of writes may be read-only. */
	if (!mr && errno == EFAULT && access == RP_RC_LOCAL)
		mr = reg_mr(v, buf, len, 0);
	/* Any other reason shows without FLUSH, too. */
	if (!mr)
		return access & RP_RC_REMOTE_FLUSH ? -EOPNOTSUPP : -errno;
	*out = (struct rp_rc_mr){
		.handle = mr,
		.desc = mr,
		.rkey = mr->rkey,
		.remote_addr = (uintptr_t)buf,
	};
	return 0;
}

static void warn(const char *call, int err)
{
	if (err)
		rp_log(RP_LOG_WARN, "private connections: %s: %s", call,
		       strerror(err));
}

static void verbs_dereg(struct rp_rc *rc, struct rp_rc_mr *mr)
{
	(void)rc;
	if (mr->handle)
		warn("ibv_dereg_mr", ibv_dereg_mr(mr->handle));
	*mr = (struct rp_rc_mr){0};
}

static int open_copies(struct rp_verbs_rc *v)
{
	struct rp_verbs_copy *all = malloc(RP_VERBS_COPIES * sizeof(*all));
	int ret;

	if (!all)
		return -ENOMEM;
	ret = verbs_reg(&v->rc, all, RP_VERBS_COPIES * sizeof(*all),
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

/* NULL: none is free. */
static struct rp_verbs_copy *copy_get(struct rp_verbs_rc *v)
{
	struct rp_verbs_copy *copy;

	if (!v->copies && open_copies(v))
		return NULL;
	copy = SLIST_FIRST(&v->free_copies);
	if (copy)
		SLIST_REMOVE_HEAD(&v->free_copies, link);
	return copy;
}

static void copy_put(struct rp_verbs_rc *v, struct rp_verbs_copy *copy)
{
	if (copy)
		SLIST_INSERT_HEAD(&v->free_copies, copy, link);
}

/* --- the device --- */

int rp_verbs_no_wait(struct rp_verbs_rc *v, int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
		return -errno;
	return rp_rc_watch(&v->rc, fd);
}

static int open_queues(struct rp_verbs_rc *v)
{
	struct ibv_device_attr dev;
	struct ibv_srq_init_attr srq = {.attr = {.max_sge = 1}};
	int ret = ibv_query_device(v->verbs, &dev);

	if (ret)
		return -ret;
	if (dev.max_sge < RP_VERBS_SGES)
		return -EOPNOTSUPP;
	v->max_reads = (uint8_t)smaller(RP_VERBS_READS,
					(unsigned int)dev.max_qp_init_rd_atom);
	v->max_served_reads = (uint8_t)smaller(
		RP_VERBS_READS, (unsigned int)dev.max_qp_rd_atom);
	v->pd = ibv_alloc_pd(v->verbs);
	if (!v->pd)
		return -errno;
	if (v->rc.attr.waits) {
		v->wake = ibv_create_comp_channel(v->verbs);
		if (!v->wake)
			return -errno;
		ret = rp_verbs_no_wait(v, v->wake->fd);
		if (ret)
			return ret;
	}
	v->cq = ibv_create_cq(v->verbs,
			      (int)smaller(CQ_SIZE, (unsigned int)dev.max_cqe),
			      NULL, v->wake, 0);
	if (!v->cq)
		return -errno;
	v->cq_size = (unsigned int)v->cq->cqe;
	v->rc.shared = smaller(smaller(SRQ_SIZE, v->cq_size / 3),
			       (unsigned int)dev.max_srq_wr);
	srq.attr.max_wr = v->rc.shared;
	v->srq = ibv_create_srq(v->pd, &srq);
	return v->srq ? 0 : -errno;
}

static void close_device(struct rp_verbs_rc *v)
{
	if (v->srq)
		warn("ibv_destroy_srq", ibv_destroy_srq(v->srq));
	if (v->cq)
		warn("ibv_destroy_cq", ibv_destroy_cq(v->cq));
	if (v->wake)
		warn("ibv_destroy_comp_channel",
		     ibv_destroy_comp_channel(v->wake));
	verbs_dereg(&v->rc, &v->landing_mr);
	verbs_dereg(&v->rc, &v->copies_mr);
	if (v->pd)
		warn("ibv_dealloc_pd", ibv_dealloc_pd(v->pd));
	if (v->verbs)
		ibv_close_device(v->verbs);
	v->srq = NULL;
	v->cq = NULL;
	v->wake = NULL;
	v->pd = NULL;
	v->verbs = NULL;
}

static struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *verbs = NULL;

	errno = ENODEV;
	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name)) {
			verbs = ibv_open_device(list[i]);
			break;
		}
	if (list)
		ibv_free_device_list(list);
	return verbs;
}

int rp_verbs_open_device(struct rp_verbs_rc *v, const char *name)
{
	int ret;

	if (v->verbs)
		return strcmp(ibv_get_device_name(v->verbs->device), name)
			       ? -ENODEV
			       : 0;
	v->verbs = open_named(name);
	if (!v->verbs)
		return -(errno ? errno : EIO);
	ret = open_queues(v);
	if (!ret)
		ret = verbs_reg(&v->rc, &v->landing, sizeof(v->landing),
				RP_RC_LOCAL, &v->landing_mr);
	if (!ret)
		ret = rp_verbs_no_wait(v, v->verbs->async_fd);
	if (ret) {
		close_device(v);
		return ret;
	}
	v->native = rp_flush_supported(v->verbs, v->pd);
	if (v->native)
		v->rc.flags |= RP_CHANNEL_FLUSHES;
	v->max_inline = MAX_INLINE;
	return 0;
}

static int verbs_open(struct rp_rc *rc, char *why, size_t why_size)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);
	const char *name = rc->attr.device;
	int ret = rp_verbs_cm_open(v, why, why_size);

	if (ret)
		return ret;
	rc->flags =
		RP_CHANNEL_ORDERED | RP_CHANNEL_FENCES | RP_CHANNEL_LOCAL_MR;
	rc->inject = INJECT;
	rc->local_mr = true;
	rc->shared = SRQ_SIZE;
	ret = name ? rp_verbs_open_device(v, name) : 0;
	if (!ret)
		return 0;
	snprintf(why, why_size, "RDMA device %s cannot be used: %s", name,
		 strerror(-ret));
	return -ENODATA;
}

static void reap_qps(struct rp_verbs_rc *v)
{
	struct rp_verbs_qp *q;

	while ((q = LIST_FIRST(&v->dead_qps))) {
		LIST_REMOVE(q, link);
		HASH_DEL(v->qps, q);
		v->cq_used -= q->head - q->tail;
		free(q);
	}
}

static void verbs_close(struct rp_rc *rc)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);

	rp_verbs_cm_close(v);
	close_device(v);
	reap_qps(v);
	free(v->copies);
	v->copies = NULL;
}

/* --- queue pairs --- */

void rp_verbs_end_all(struct rp_verbs_rc *v, int err)
{
	struct rp_verbs_qp *q, *next;

	HASH_ITER(hh, v->qps, q, next)
	if (q->channel)
		rp_rc_end(&q->channel->c, err, NULL, 0);
}

struct rp_verbs_qp *rp_verbs_qp_find(struct rp_verbs_rc *v, uint32_t num)
{
	struct rp_verbs_qp *q;

	HASH_FIND(hh, v->qps, &num, sizeof(num), q);
	return q;
}

static struct ibv_qp *create_qp(struct rp_verbs_rc *v)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = v->cq,
		.recv_cq = v->cq,
		.srq = v->srq,
		.cap =
			{
				.max_send_wr = RP_VERBS_DEPTH,
				.max_send_sge = RP_VERBS_SGES,
				.max_inline_data = v->max_inline,
			},
		.qp_type = IBV_QPT_RC,
	};

	return v->native ? rp_flush_create_qp(v->pd, &attr)
			 : ibv_create_qp(v->pd, &attr);
}

/*
 * A device may give the number of a destroyed queue pair again while entries
 * of that one are still in the completion queue.
 */
static struct ibv_qp *create_distinct_qp(struct rp_verbs_rc *v)
{
	struct ibv_qp *qp = create_qp(v), *other;

	if (!qp && v->max_inline) {
		v->max_inline = 0;
		qp = create_qp(v);
		v->max_inline = qp ? 0 : MAX_INLINE;
	}
	if (!qp || !rp_verbs_qp_find(v, qp->qp_num))
		return qp;
	other = create_qp(v);
	ibv_destroy_qp(qp);
	if (other && rp_verbs_qp_find(v, other->qp_num)) {
		ibv_destroy_qp(other);
		errno = EAGAIN;
		other = NULL;
	}
	return other;
}

int rp_verbs_qp_new(struct rp_verbs_channel *c)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(c->c.rc);
	struct rp_verbs_qp *q = calloc(1, sizeof(*q));
	bool oom = false;

	if (!q)
		return -ENOMEM;
	q->ibv = create_distinct_qp(v);
	if (!q->ibv) {
		free(q);
		return -(errno ? errno : EIO);
	}
	q->channel = c;
	q->num = q->ibv->qp_num;
	HASH_ADD(hh, v->qps, num, sizeof(q->num), q);
	if (oom) {
		ibv_destroy_qp(q->ibv);
		free(q);
		return -ENOMEM;
	}
	c->qp = q;
	c->c.base.flags = v->rc.flags;
	return 0;
}

/* A destroyed queue pair uses no memory and causes no new completions. */
void rp_verbs_qp_destroy(struct rp_verbs_channel *c)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(c->c.rc);
	struct rp_verbs_qp *q = c->qp;
	struct rp_verbs_wr *wr;

	if (!q)
		return;
	c->qp = NULL;
	q->channel = NULL;
	warn("ibv_destroy_qp", ibv_destroy_qp(q->ibv));
	v->unsignaled -= q->unsignaled;
	for (unsigned int i = q->tail; i != q->head; i++) {
		wr = &q->ring[i % RP_VERBS_DEPTH];
		copy_put(v, wr->copy);
		if (wr->op)
			rp_rc_complete_op(&v->rc, wr->op, ECANCELED);
	}
	LIST_INSERT_HEAD(&v->dead_qps, q, link);
}

/* --- posting --- */

/* Work requests that go to the device in one call. */
struct chain {
	struct rp_verbs_rc *v;
	struct rp_verbs_qp *qp;
	int n, nops;  /* work requests, operations */
	bool reports; /* one of them has a done(), or memory to be given back */
	bool flushes;
	/* The last delivered WRITE: nothing behind it proves placement. */
	const struct rp_channel_op *unproved;
	struct ibv_send_wr wr[CHAIN];
	struct ibv_sge sge[CHAIN][RP_VERBS_SGES];
};

static size_t op_length(const struct rp_channel_op *op)
{
	size_t len = 0;

	for (int i = 0; i < op->iov_count; i++)
		len += op->iov[i].iov_len;
	return len;
}

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

static void set_one(struct ibv_send_wr *wr, const void *at, size_t len,
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

static bool copies(const struct rp_verbs_rc *v, const struct rp_channel_op *op,
		   size_t len)
{
	return (op->kind == RP_CHANNEL_SEND || op->kind == RP_CHANNEL_WRITE) &&
	       len > v->max_inline && !has_descs(op);
}

/* The local side of a work request; copy is NULL or has room for it. */
static void set_local(struct rp_verbs_rc *v, const struct rp_channel_op *op,
		      struct rp_verbs_copy *copy, struct ibv_send_wr *wr)
{
	const size_t len = op_length(op);
	size_t at = 0;

	if (op->kind == RP_CHANNEL_FLUSH) {
		set_one(wr, NULL, op->length, &v->landing_mr);
	} else if (op->kind == RP_CHANNEL_READ) {
		set_sges(op, true, wr);
		if (!op->iov_count)
			set_one(wr, &v->landing, op->length, &v->landing_mr);
	} else if (len <= v->max_inline) {
		set_sges(op, false, wr);
		wr->send_flags |= IBV_SEND_INLINE;
	} else if (copy) {
		for (int i = 0; i < op->iov_count; i++) {
			memcpy(copy->bytes + at, op->iov[i].iov_base,
			       op->iov[i].iov_len);
			at += op->iov[i].iov_len;
		}
		set_one(wr, copy->bytes, len, &v->copies_mr);
	} else {
		set_sges(op, true, wr);
	}
}

static const enum ibv_wr_opcode opcodes[] = {
	[RP_CHANNEL_SEND] = IBV_WR_SEND,
	[RP_CHANNEL_WRITE] = IBV_WR_RDMA_WRITE,
	[RP_CHANNEL_READ] = IBV_WR_RDMA_READ,
	[RP_CHANNEL_FLUSH] = (enum ibv_wr_opcode)RP_FLUSH_WR,
};

/* The next work request of the chain, and its place in the ring. */
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

/* -EAGAIN: no room. Else a negative errno: no device can do that. */
static int add_op(struct chain *ch, struct rp_channel_op *op)
{
	const struct rp_verbs_rc *v = ch->v;
	const unsigned int used = ch->qp->head - ch->qp->tail;
	const size_t len = op_length(op);
	/* A READ that proves placement may have to follow. */
	const unsigned int needs = (unsigned int)ch->n + 2;
	struct rp_verbs_copy *copy = NULL;
	struct rp_verbs_wr *r;

	if (needs > CHAIN || used + needs > RP_VERBS_DEPTH ||
	    v->cq_used + needs > v->cq_size)
		return -EAGAIN;
	if (len > MAX_LENGTH ||
	    (op->kind != RP_CHANNEL_SEND && op->length > MAX_LENGTH))
		return -EMSGSIZE;
	if (copies(v, op, len)) {
		if (len > sizeof(copy->bytes))
			return -EMSGSIZE;
		copy = copy_get(ch->v);
		if (!copy)
			return -EAGAIN;
	}
	r = add_wr(ch, op->kind, op->rkey, op->remote_addr);
	r->op = op->inject ? NULL : op;
	r->copy = copy;
	set_local(ch->v, op, copy, &ch->wr[ch->n - 1]);
	ch->reports |= !op->inject || copy;
	ch->flushes |= op->kind == RP_CHANNEL_FLUSH;
	if (op->kind == RP_CHANNEL_READ || op->kind == RP_CHANNEL_FLUSH)
		ch->unproved = NULL;
	else if (op->kind == RP_CHANNEL_WRITE && op->delivered && op->length)
		ch->unproved = op;
	ch->nops++;
	return 0;
}

/*
 * The completion of an RC WRITE says that the remote adapter has the bytes; a
 * READ behind it returns after they are placed.
 */
static void prove(struct chain *ch)
{
	const struct rp_channel_op *op = ch->unproved;
	struct rp_verbs_rc *v = ch->v;

	if (!op)
		return;
	add_wr(ch, RP_CHANNEL_READ, op->rkey, op->remote_addr);
	set_one(&ch->wr[ch->n - 1], &v->landing,
		op->length < sizeof(v->landing) ? op->length
						: sizeof(v->landing),
		&v->landing_mr);
}

/*
 * Only the last of a chain is signaled. An injected message needs no
 * completion: it is signaled now and then, to make room.
 */
static void sign(struct chain *ch)
{
	const unsigned int n = (unsigned int)ch->n;

	if (ch->reports || ch->qp->unsignaled + n >= UNSIGNALED ||
	    ch->v->unsignaled + n >= ch->v->cq_size / 4) {
		ch->wr[ch->n - 1].send_flags |= IBV_SEND_SIGNALED;
		ch->v->unsignaled -= ch->qp->unsignaled;
		ch->qp->unsignaled = 0;
	} else {
		ch->v->unsignaled += n;
		ch->qp->unsignaled += n;
	}
}

/* The first n are the device's now; err: what it said to the rest. */
static void commit_chain(struct chain *ch, int n, int err)
{
	struct rp_verbs_qp *q = ch->qp;
	struct rp_rc_channel *c = &q->channel->c;
	struct rp_verbs_wr *r;

	for (int i = 0; i < ch->n; i++) {
		r = &q->ring[(q->head + (unsigned int)i) % RP_VERBS_DEPTH];
		if (i < n && r->op)
			rp_rc_posted(c, r->op);
		else if (i >= n && r->op)
			rp_rc_failed(c, r->op, err);
		if (i >= n)
			copy_put(ch->v, r->copy);
	}
	q->head += (unsigned int)n;
	ch->v->cq_used += (unsigned int)n;
	if (n < ch->n)
		rp_rc_end(c, err, NULL, 0);
}

static void post_chain(struct chain *ch)
{
	struct ibv_send_wr *bad = ch->wr;
	int ret;

	prove(ch);
	sign(ch);
	/* Only the builders know FLUSH. */
	if (ch->flushes)
		ret = rp_flush_post(ch->qp->ibv, ch->wr);
	else
		ret = ibv_post_send(ch->qp->ibv, ch->wr, &bad);
	commit_chain(ch, ret ? (int)(bad - ch->wr) : ch->n, ret);
}

/* How many were taken; *err: why the next one can never be. */
static int post_some(struct rp_verbs_channel *c, struct rp_channel_op *ops[],
		     int n, int *err)
{
	struct chain ch;

	/* The work requests themselves are not set before they are used. */
	ch.v = rp_verbs_rc_of(c->c.rc);
	ch.qp = c->qp;
	ch.n = ch.nops = 0;
	ch.reports = ch.flushes = false;
	ch.unproved = NULL;
	*err = 0;
	while (ch.nops < n && !*err)
		*err = add_op(&ch, ops[ch.nops]);
	if (ch.n)
		post_chain(&ch);
	return ch.nops;
}

static int verbs_post(struct rp_rc_channel *base, struct rp_channel_op *ops[],
		      int n)
{
	struct rp_verbs_channel *c = rp_verbs_channel_of(base);
	int done = 0, got = 1, err = 0;

	while (c->up && base->state == RP_RC_UP && got && done < n) {
		got = post_some(c, ops + done, n - done, &err);
		done += got;
		if (err && err != -EAGAIN) {
			if (ops[done]->inject)
				rp_rc_end(base, -err, NULL, 0);
			else
				rp_rc_failed(base, ops[done], -err);
			return done + 1;
		}
	}
	return done;
}

static int verbs_post_recv(struct rp_rc *rc, struct rp_rc_channel *c,
			   struct rp_rc_recv *r)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);
	const struct ibv_mr *mr = r->desc;
	struct ibv_sge sge = {
		.addr = (uintptr_t)r->buf,
		.length = RP_WIRE_MAX_MSG,
		.lkey = mr->lkey,
	};
	/* Odd, which the address of a struct rp_verbs_wr is not. */
	struct ibv_recv_wr *bad, wr = {
					 .wr_id = (uintptr_t)r | 1,
					 .sg_list = &sge,
					 .num_sge = 1,
				 };
	int ret;

	(void)c;
	if (v->cq_used >= v->cq_size)
		return -EAGAIN;
	ret = ibv_post_srq_recv(v->srq, &wr, &bad);
	v->cq_used += !ret;
	return -ret;
}

/* --- completions --- */

static int errno_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return 0;
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

static void received(struct rp_verbs_rc *v, const struct ibv_wc *wc)
{
	struct rp_rc_recv *r =
		(struct rp_rc_recv *)(uintptr_t)(wc->wr_id & ~(uint64_t)1);
	struct rp_verbs_qp *q = rp_verbs_qp_find(v, wc->qp_num);
	struct rp_verbs_channel *c = q ? q->channel : NULL;

	v->cq_used--;
	if (c && !wc->status) {
		rp_rc_complete_recv(&v->rc, &c->c, r, wc->byte_len);
		return;
	}
	rp_rc_recv_failed(&v->rc, r);
	if (c)
		rp_rc_end(&c->c, errno_of(wc->status), NULL, 0);
}

/* In order: what completes ends all that was posted before it. */
static void sent(struct rp_verbs_rc *v, struct rp_verbs_wr *wr)
{
	struct rp_verbs_qp *q = wr->qp;
	struct rp_verbs_wr *r;

	do {
		r = &q->ring[q->tail++ % RP_VERBS_DEPTH];
		v->cq_used--;
		copy_put(v, r->copy);
		if (r->op)
			rp_rc_complete_op(&v->rc, r->op, 0);
	} while (r != wr);
}

static void completed(struct rp_verbs_rc *v, const struct ibv_wc *wc)
{
	struct rp_verbs_wr *wr = (struct rp_verbs_wr *)(uintptr_t)wc->wr_id;

	if (wc->wr_id & 1)
		received(v, wc);
	else if (wr->qp->channel && !wc->status)
		sent(v, wr);
	/* All operations of the queue pair fail when it is shut. */
	else if (wr->qp->channel)
		rp_rc_end(&wr->qp->channel->c, errno_of(wc->status), NULL, 0);
}

static int read_cq(struct rp_verbs_rc *v, struct ibv_wc wc[RP_VERBS_WCS])
{
	const int n = v->nkept;

	if (!n)
		return ibv_poll_cq(v->cq, RP_VERBS_WCS, wc);
	memcpy(wc, v->kept, (size_t)n * sizeof(*wc));
	v->nkept = 0;
	return n;
}

static int verbs_poll(struct rp_rc *rc, int max)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);
	struct ibv_wc wc[RP_VERBS_WCS];
	int n, total = 0;

	if (!v->cq)
		return 0;
	do {
		n = read_cq(v, wc);
		for (int i = 0; i < n; i++)
			completed(v, &wc[i]);
		total += n > 0 ? n : 0;
	} while (n > 0 && total < max);
	if (!n)
		reap_qps(v);
	if (n < 0)
		rp_verbs_end_all(v, EIO);
	return total;
}

static int verbs_trywait(struct rp_rc *rc)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);
	struct ibv_cq *cq;
	void *context;

	if (!v->wake)
		return 0;
	while (!ibv_get_cq_event(v->wake, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	if (ibv_req_notify_cq(v->cq, 0))
		return -EAGAIN;
	/* Entries from before wake nobody. */
	if (!v->nkept)
		v->nkept = ibv_poll_cq(v->cq, RP_VERBS_WCS, v->kept);
	if (v->nkept < 0)
		v->nkept = 0;
	return v->nkept ? -EAGAIN : 0;
}

const struct rp_rc_ops rp_rc_verbs = {
	.rc_size = sizeof(struct rp_verbs_rc),
	.channel_size = sizeof(struct rp_verbs_channel),
	.open = verbs_open,
	.close = verbs_close,
	.listen = rp_verbs_listen,
	.connect = rp_verbs_connect,
	.accept = rp_verbs_accept,
	.reject = rp_verbs_reject,
	.post = verbs_post,
	.shut = rp_verbs_shut,
	.post_recv = verbs_post_recv,
	.reg = verbs_reg,
	.dereg = verbs_dereg,
	.poll = verbs_poll,
	.poll_events = rp_verbs_poll_events,
	.trywait = verbs_trywait,
};
