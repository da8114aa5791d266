/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting on a real queue pair. */
#ifndef RP_POST_H
#define RP_POST_H

#include "verbs/target.h"

/* IBV_QP_EX_WITH_FLUSH of rdma-core 45 and later. */
#define RP_QP_EX_WITH_FLUSH (1u << 11)

/*
 * Offset of wr_flush in struct ibv_qp_ex of rdma-core 45 and later. A queue
 * pair made with FLUSH proves that the library in use is that late.
 */
#define RP_WR_FLUSH_AT 352
typedef void (*rp_wr_flush_fn)(struct ibv_qp_ex *qp, uint32_t rkey,
			       uint64_t remote_addr, size_t len, uint8_t type,
			       uint8_t level);

struct rp_post_wr {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};
struct rp_post {
	struct ibv_qp_ex *ex; /* NULL: no builders */
	struct ibv_mr *scratch_mr;
	uint8_t scratch[RP_FENCE_MAX];
	/* Work requests of a batch without builders. */
	struct rp_post_wr *wrs;
	size_t nwrs, room;
	int err;
	/* The side connection, once its address was requested; or NULL. */
	struct ibv_qp *side_qp;
	struct rp_side_end *end;
	struct ibv_mr *ring_mr; /* of requests, read by the queue pair */
	/* The peer can write the ring of replies and nothing else. */
	struct ibv_pd *side_pd;
	struct ibv_mr *end_mr, *replies_mr;
	struct rp_dom *dom; /* NULL: peers flush nothing here */
	struct rp_target *target;
	uint32_t psn;
	bool joined;
};
/* Called when the queue pair's completion queue is polled no more. */
void rp_side_close(struct rp_post *p);
/* Move to the error state: its receives complete, which wakes sleepers. */
void rp_side_fail(struct rp_post *p);

#endif
