/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting on a real queue pair. */
#ifndef RP_POST_H
#define RP_POST_H

#include "rc/rc_flush.h"
#include "verbs/target.h"

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
