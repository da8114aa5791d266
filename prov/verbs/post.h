/* SPDX-License-Identifier: BSD-2-Clause */
/* What posting on a real queue pair needs. */
#ifndef RP_POST_H
#define RP_POST_H

#include "verbs/shim.h"

struct rp_post_read {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};
struct rp_post {
	struct ibv_qp_ex *ex; /* NULL: there are no builders */
	struct ibv_mr *scratch_mr;
	uint8_t scratch[RP_FENCE_MAX];
	/* Of a batch without builders. */
	struct rp_post_read *reads;
	size_t nreads, room;
	int err;
};

#endif
