/* SPDX-License-Identifier: BSD-2-Clause */
/* What posting on a real queue pair needs. */
#ifndef RP_POST_H
#define RP_POST_H

#include "verbs/target.h"

/*
 * Where struct ibv_qp_ex has wr_flush in rdma-core 45 and later. That the one
 * in use is so late is known from the device having made a queue pair for it.
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
	struct ibv_qp_ex *ex; /* NULL: there are no builders */
	struct ibv_mr *scratch_mr;
	uint8_t scratch[RP_FENCE_MAX];
	/* Of a batch without builders. */
	struct rp_post_wr *wrs;
	size_t nwrs, room;
	int err;
	/* The side connection, since its address was taken; side_qp NULL: not
	 * yet. */
	struct ibv_qp *side_qp;
	struct rp_side_end *end;
	struct ibv_mr *ring_mr; /* of requests, which the queue pair writes */
	/* Its peer can write into the ring of replies and nowhere else. */
	struct ibv_pd *side_pd;
	struct ibv_mr *end_mr, *replies_mr;
	struct rp_dom *dom; /* NULL: peers flush nothing here */
	struct rp_target *target;
	uint32_t psn;
	bool joined;
};
/* When nothing of the queue pair's can be polled any more. */
void rp_side_close(struct rp_post *p);
/* What it listens for comes as errors, and wakes who sleeps. */
void rp_side_fail(struct rp_post *p);

#endif
