// SPDX-License-Identifier: BSD-2-Clause
/* Post on a device's queue pair, by its builders or by ibv_post_send(). */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "core/thread.h"
#include "verbs/post.h"

static int query_qp_state(struct rp_qp *q, struct rp_qp_state *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int ret = ibv_query_qp(
		q->pub.qp, &attr,
		IBV_QP_STATE | IBV_QP_DEST_QPN | IBV_QP_ACCESS_FLAGS |
			IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC,
		&init);

	if (ret)
		return ret;
	*end = (struct rp_qp_state){
		.state = attr.qp_state,
		.dest_qp_num = attr.dest_qp_num,
		.max_rd_atomic = attr.max_rd_atomic,
		.max_dest_rd_atomic = attr.max_dest_rd_atomic,
		.access = attr.qp_access_flags,
	};
	return 0;
}

static int fail_queue(struct rp_qp *q)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	return ibv_modify_qp(q->pub.qp, &attr, IBV_QP_STATE);
}

static int poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return ibv_poll_cq(cq, n, wc);
}

static struct rp_post *post_of(struct rp_qp *q)
{
	return q->post_data;
}

/* --- builders --- */

static void ex_start(struct rp_qp *q)
{
	ibv_wr_start(post_of(q)->ex);
}

/*
 * Exchange wr_id and flags of the next builder with *wr_id and *flags. Callers
 * exchange them again, as the program may be between ibv_wr_start() and
 * ibv_wr_complete().
 */
static struct ibv_qp_ex *swap_builder(struct rp_qp *q, uint64_t *wr_id,
				      unsigned int *flags)
{
	struct ibv_qp_ex *ex = post_of(q)->ex;
	const uint64_t id = ex->wr_id;
	const unsigned int was = ex->wr_flags;

	ex->wr_id = *wr_id;
	ex->wr_flags = *flags;
	*wr_id = id;
	*flags = was;
	return ex;
}

static void ex_read(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		    uint32_t rkey, uint64_t addr, uint32_t len)
{
	struct ibv_qp_ex *ex = swap_builder(q, &wr_id, &flags);
	const struct rp_post *p = post_of(q);

	ibv_wr_rdma_read(ex, rkey, addr);
	ibv_wr_set_sge(ex, p->scratch_mr->lkey, (uintptr_t)p->scratch, len);
	swap_builder(q, &wr_id, &flags);
}

static void ex_write(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		     uint32_t rkey, uint64_t addr, uint32_t lkey,
		     const void *buf, uint32_t len)
{
	struct ibv_qp_ex *ex = swap_builder(q, &wr_id, &flags);

	ibv_wr_rdma_write(ex, rkey, addr);
	ibv_wr_set_sge(ex, lkey, (uintptr_t)buf, len);
	swap_builder(q, &wr_id, &flags);
}

static void ex_flush(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		     uint32_t rkey, uint64_t addr, size_t len, uint8_t type,
		     uint8_t level)
{
	struct ibv_qp_ex *ex = swap_builder(q, &wr_id, &flags);

	rp_flush_build(ex, rkey, addr, len, type, level);
	swap_builder(q, &wr_id, &flags);
}

static void ex_atomic_write(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
			    uint32_t rkey, uint64_t addr, const void *value)
{
	struct ibv_qp_ex *ex = swap_builder(q, &wr_id, &flags);

	ibv_wr_atomic_write(ex, rkey, addr, value);
	swap_builder(q, &wr_id, &flags);
}

/* ibv_wr_complete() posts all or none. */
static int ex_complete(struct rp_qp *q, size_t *posted)
{
	*posted = 0;
	return ibv_wr_complete(post_of(q)->ex);
}

static void ex_abort(struct rp_qp *q)
{
	ibv_wr_abort(post_of(q)->ex);
}

/* --- the side queue pair: ibv_post_send(), ibv_post_recv() --- */

static int side_send(struct rp_qp *q, uint64_t wr_id, const void *msg,
		     size_t len)
{
	const struct rp_post *p = post_of(q);

	return rp_side_post(p->side_qp, IBV_WR_SEND, wr_id, msg, len,
			    p->end_mr->lkey, 0, 0);
}

static int side_recv(struct rp_qp *q, uint64_t wr_id, void *msg)
{
	const struct rp_post *p = post_of(q);

	return rp_side_recv(p->side_qp, wr_id, msg, RP_SIDE_RECV_LEN,
			    p->end_mr->lkey);
}

static uint64_t read_coarse_clock(const struct rp_qp *q)
{
	/* Coarse clock: cheap, and deadlines are far longer than its tick. */
	return rp_clock_ns(CLOCK_MONOTONIC_COARSE);
}

#define COMMON_OPS                                                             \
	.query = query_qp_state, .fail = fail_queue, .poll = poll,             \
	.side_send = side_send, .side_recv = side_recv,                        \
	.now = read_coarse_clock

const struct rp_qp_ops rp_qp_ops_ex = {
	COMMON_OPS,
	.start = ex_start,
	.read = ex_read,
	.write = ex_write,
	.flush = ex_flush,
	.atomic_write = ex_atomic_write,
	.complete = ex_complete,
	.abort = ex_abort,
};

/* --- ibv_post_send(): no FLUSH --- */

static void start_chain(struct rp_qp *q)
{
	post_of(q)->nwrs = 0;
	post_of(q)->err = 0;
}

static void add_wr(struct rp_post *p, enum ibv_wr_opcode opcode, uint64_t wr_id,
		   unsigned int flags, uint32_t rkey, uint64_t addr,
		   struct ibv_sge sge)
{
	void *wrs = rp_array_grow(p->wrs, p->nwrs, &p->room, sizeof(*p->wrs));

	if (!wrs) {
		p->err = ENOMEM;
		return;
	}
	p->wrs = wrs;
	p->wrs[p->nwrs++] = (struct rp_post_wr){
		.sge = sge,
		.wr = {.wr_id = wr_id,
		       .num_sge = 1,
		       .opcode = opcode,
		       .send_flags = flags,
		       .wr.rdma = {.remote_addr = addr, .rkey = rkey}},
	};
}

static void send_read(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		      uint32_t rkey, uint64_t addr, uint32_t len)
{
	struct rp_post *p = post_of(q);
	const struct ibv_sge sge = {(uintptr_t)p->scratch, len,
				    p->scratch_mr->lkey};

	add_wr(p, IBV_WR_RDMA_READ, wr_id, flags, rkey, addr, sge);
}

static void send_write(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		       uint32_t rkey, uint64_t addr, uint32_t lkey,
		       const void *buf, uint32_t len)
{
	const struct ibv_sge sge = {(uintptr_t)buf, len, lkey};

	add_wr(post_of(q), IBV_WR_RDMA_WRITE, wr_id, flags, rkey, addr, sge);
}

static int send_complete(struct rp_qp *q, size_t *posted)
{
	struct rp_post *p = post_of(q);
	struct ibv_send_wr *bad = NULL;
	int ret;

	*posted = 0;
	if (p->err)
		return p->err;
	if (!p->nwrs)
		return 0;
	/* Link the requests last, because the array may have moved. */
	for (size_t i = 0; i < p->nwrs; i++) {
		p->wrs[i].wr.sg_list = &p->wrs[i].sge;
		p->wrs[i].wr.next = i + 1 < p->nwrs ? &p->wrs[i + 1].wr : NULL;
	}
	ret = ibv_post_send(q->pub.qp, &p->wrs[0].wr, &bad);
	if (!ret)
		return 0;
	/* The device has accepted all requests before bad. */
	while (*posted < p->nwrs && &p->wrs[*posted].wr != bad)
		(*posted)++;
	return ret;
}

const struct rp_qp_ops rp_qp_ops_send = {
	COMMON_OPS,	     .start = start_chain,	.read = send_read,
	.write = send_write, .complete = send_complete, .abort = start_chain,
};
