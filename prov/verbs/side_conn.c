// SPDX-License-Identifier: BSD-2-Clause
/* The side connection of a queue pair: open, connect, close. */
#include <errno.h>
#include <stdlib.h>

#include "core/thread.h"
#include "verbs/post.h"
#include "verbs/target.h"

/* Defaults for a queue pair in RTR; one in RTS has its own values. */
#define TIMEOUT	    14 /* ACK timeout: 67 ms */
#define RETRIES	    5
#define MAX_RETRIES 6

#define PSN_MASK 0xffffffu

/* --- both ends --- */

struct ibv_qp *rp_side_new(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t sends,
			   uint32_t recvs)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = sends,
			.max_recv_wr = recvs,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.sq_sig_all = 1,
	};

	return ibv_create_qp(pd, &attr);
}

int rp_side_to_init(struct ibv_qp *qp, const struct rp_route *route,
		    unsigned int access)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = route->port,
		.pkey_index = route->pkey_index,
		.qp_access_flags = access,
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     IBV_QP_ACCESS_FLAGS);
}

int rp_side_to_rts(struct ibv_qp *qp, const struct rp_route *route,
		   uint32_t number)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.ah_attr = route->ah,
		.path_mtu = route->mtu,
		.dest_qp_num = number,
		.rq_psn = route->peer_psn,
		.min_rnr_timer = 1,
	};
	int ret = ibv_modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					IBV_QP_MAX_DEST_RD_ATOMIC |
					IBV_QP_MIN_RNR_TIMER);

	if (ret)
		return ret;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = route->psn,
		.timeout = route->timeout,
		.retry_cnt = route->retries,
		/* Retry without limit: the peer may post receives late. */
		.rnr_retry = 7,
	};
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC);
}

int rp_side_post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t wr_id,
		 const void *msg, size_t len, uint32_t lkey, uint64_t addr,
		 uint32_t rkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)msg, .length = (uint32_t)len, .lkey = lkey};
	struct ibv_send_wr *bad,
		wr = {
			.wr_id = wr_id,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.wr.rdma = {.remote_addr = addr, .rkey = rkey},
		};

	return ibv_post_send(qp, &wr, &bad);
}

int rp_side_recv(struct ibv_qp *qp, uint64_t wr_id, void *msg, size_t len,
		 uint32_t lkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)msg, .length = (uint32_t)len, .lkey = lkey};
	struct ibv_recv_wr *bad;
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};

	return ibv_post_recv(qp, &wr, &bad);
}

/* --- initiator side --- */

static int route_of(struct ibv_qp *qp, const struct rp_side_addr *peer,
		    struct rp_route *route)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int ret = ibv_query_qp(qp, &attr,
			       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				       IBV_QP_DEST_QPN | IBV_QP_PORT |
				       IBV_QP_PKEY_INDEX | IBV_QP_TIMEOUT |
				       IBV_QP_RETRY_CNT,
			       &init);

	if (ret)
		return ret;
	if (attr.qp_state != IBV_QPS_RTR && attr.qp_state != IBV_QPS_RTS)
		return EINVAL;
	if (attr.dest_qp_num != peer->qp_num)
		return EKEYREJECTED;
	*route = (struct rp_route){
		.port = attr.port_num,
		.timeout = TIMEOUT,
		.retries = RETRIES,
		.pkey_index = attr.pkey_index,
		.mtu = attr.path_mtu,
		.ah = attr.ah_attr,
		.peer_psn = peer->psn,
	};
	if (attr.qp_state == IBV_QPS_RTS && attr.timeout) {
		route->timeout = attr.timeout;
		route->retries = attr.retry_cnt < MAX_RETRIES ? attr.retry_cnt
							      : MAX_RETRIES;
	}
	return 0;
}

void rp_side_close(struct rp_post *p)
{
	if (p->side_qp)
		ibv_destroy_qp(p->side_qp);
	if (p->replies_mr)
		ibv_dereg_mr(p->replies_mr);
	if (p->end_mr)
		ibv_dereg_mr(p->end_mr);
	if (p->side_pd)
		ibv_dealloc_pd(p->side_pd);
	if (p->ring_mr)
		ibv_dereg_mr(p->ring_mr);
	free(p->end);
	if (p->target)
		rp_target_delete(p->target);
	if (p->dom)
		rp_pd_put(p->dom);
	p->side_qp = NULL;
	p->replies_mr = p->end_mr = p->ring_mr = NULL;
	p->side_pd = NULL;
	p->end = NULL;
	p->target = NULL;
	p->dom = NULL;
}

/*
 * Register a ring for replies, on x86-64, which makes stores visible in order.
 * A reply in the ring completes no work request, so a program that has a
 * completion channel, and may sleep, gets messages instead.
 */
static void replies_open(struct rp_post *p, const struct ibv_cq *cq)
{
#if defined(__x86_64__)
	struct rp_side_end *k = p->end;

	if (!cq->channel)
		p->replies_mr = ibv_reg_mr(
			p->side_pd, k->ring_in, sizeof(k->ring_in),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	k->has_reply_ring = p->replies_mr;
#endif
}

static int initiator_open(struct rp_post *p, struct ibv_pd *pd,
			  struct ibv_cq *cq)
{
	struct rp_side_end *k = calloc(1, sizeof(*k));

	if (!k)
		return ENOMEM;
	p->end = k;
	p->ring_mr = ibv_reg_mr(pd, k->ring_out, sizeof(k->ring_out),
				IBV_ACCESS_LOCAL_WRITE);
	if (p->ring_mr)
		p->side_pd = ibv_alloc_pd(pd->context);
	if (p->side_pd)
		p->end_mr = ibv_reg_mr(p->side_pd, k, sizeof(*k),
				       IBV_ACCESS_LOCAL_WRITE);
	if (p->end_mr) {
		k->ring_lkey = p->ring_mr->lkey;
		replies_open(p, cq);
		/* With the program's CQ replies wake the program. */
		p->side_qp = rp_side_new(p->side_pd, cq, RP_SIDE_SENDS,
					 RP_SIDE_RECVS);
	}
	return p->side_qp ? 0 : errno ?: EIO;
}

/* Open this end's initiator and, if the peer may flush, this end's target. */
static int side_open(struct rp_qp *q)
{
	struct rp_post *p = q->post_data;
	struct ibv_pd *pd = q->pub.qp->pd;
	int ret;

	ret = -rp_random(&p->psn, sizeof(p->psn));
	if (ret)
		return ret;
	p->psn &= PSN_MASK;
	if (q->access & RPMEM_ACCESS_FLUSH_PERSISTENT) {
		ret = rp_pd_get(pd, &p->dom)
			      ?: rp_target_new(p->dom, q, &p->target);
	}
	if (!ret)
		ret = initiator_open(p, pd, q->cq->base);
	if (ret)
		rp_side_close(p);
	return ret;
}

void rp_side_fail(struct rp_post *p)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (p->side_qp)
		ibv_modify_qp(p->side_qp, &attr, IBV_QP_STATE);
}

RP_PUBLIC int rpmem_export_qp(struct rpmem_qp *qp, struct rpmem_qp_desc *addr)
{
	struct rp_qp *q = rp_qp_of(qp);
	struct rp_post *p = q->post_data;
	struct rp_side_addr side = {.qp_num = qp->qp->qp_num};
	int ret = 0;

	pthread_mutex_lock(&q->lock);
	if (!p->side_qp)
		ret = side_open(q);
	if (!ret) {
		side.psn = p->psn;
		side.initiator = p->side_qp->qp_num;
		if (p->replies_mr) {
			side.replies = (uintptr_t)p->end->ring_in;
			side.replies_rkey = p->replies_mr->rkey;
		}
		if (p->target)
			rp_target_export(p->target, &side);
		ret = -rp_side_addr_put(addr->bytes, &side);
	}
	pthread_mutex_unlock(&q->lock);
	return ret;
}

static int side_connect(struct rp_qp *q, const struct rp_route *route,
			const struct rp_side_addr *peer)
{
	struct rp_post *p = q->post_data;
	uint64_t initiator;
	int ret = -rp_random(&initiator, sizeof(initiator));

	if (!ret)
		ret = rp_side_to_init(p->side_qp, route,
				      p->replies_mr ? IBV_ACCESS_REMOTE_WRITE
						    : 0);
	if (!ret && q->has_write_builder) {
		p->end->ring_addr = peer->ring;
		p->end->ring_rkey = peer->ring_rkey;
	}
	if (!ret)
		ret = rp_defer_begin(q, p->end, initiator, p->side_qp->qp_num,
				     rp_shim_timeout());
	if (ret)
		return ret;
	ret = rp_side_to_rts(p->side_qp, route, peer->target);
	if (!ret)
		return 0;
	pthread_mutex_lock(&q->cq->lock);
	rp_defer_end(q);
	pthread_mutex_unlock(&q->cq->lock);
	return ret;
}

RP_PUBLIC int rpmem_connect_qp(struct rpmem_qp *qp,
			       const struct rpmem_qp_desc *peer)
{
	struct rp_qp *q = rp_qp_of(qp);
	struct rp_post *p = q->post_data;
	struct rp_route route;
	struct rp_side_addr side;
	int ret = -rp_side_addr_get(peer->bytes, &side);

	if (ret)
		return ret;
	pthread_mutex_lock(&q->lock);
	if (!p->side_qp)
		ret = EINVAL;
	else if (p->connect_tried)
		ret = EISCONN;
	else
		ret = route_of(qp->qp, &side, &route);
	if (ret)
		goto unlock;
	route.psn = p->psn;
	/* A failed attempt cannot be repeated, either. */
	p->connect_tried = true;
	if (p->target && side.initiator) {
		ret = rp_target_connect(p->target, &route, &side);
		if (!ret)
			q->dom = p->dom;
	}
	if (!ret && side.target)
		ret = side_connect(q, &route, &side);
unlock:
	pthread_mutex_unlock(&q->lock);
	return ret;
}
