/* SPDX-License-Identifier: BSD-2-Clause */
/* Data of a queue pair for posting on a device (struct rp_qp.post_data). */
#ifndef RP_POST_H
#define RP_POST_H

#include "rc/rc_native_flush.h"
#include "verbs/target.h"

struct rp_post_wr {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};
struct rp_post {
	struct ibv_qp_ex *ex; /* NULL: no builders */
	struct ibv_mr *scratch_mr;
	uint8_t scratch[RP_FENCE_MAX_LEN];
	/* Work requests of the batch for ibv_post_send(). */
	struct rp_post_wr *wrs;
	size_t nwrs, room;
	int err;
	/* The side queue pair, made by rpmem_export_qp(); or NULL. */
	struct ibv_qp *side_qp;
	struct rp_side_end *end;
	struct ibv_mr *ring_mr; /* registers ring_out */
	/* Protection domain of the side QP: no other memory is exposed. */
	struct ibv_pd *side_pd;
	struct ibv_mr *end_mr, *replies_mr;
	struct rp_pd *dom; /* NULL: not a target of flushes */
	struct rp_target *target;
	uint32_t psn;
	bool connect_tried; /* rpmem_connect_qp() was called */
};
/* Destroy the side connection, after rp_defer_end(): polls ignore it then. */
void rp_side_close(struct rp_post *p);
/* Move the side queue pair to the error state, which wakes sleepers. */
void rp_side_fail(struct rp_post *p);

#endif
