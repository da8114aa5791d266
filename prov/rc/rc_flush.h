/* SPDX-License-Identifier: BSD-2-Clause */
/* Native FLUSH of a queue pair, with a libibverbs that has it and one without.
 */
#ifndef RP_RC_FLUSH_H
#define RP_RC_FLUSH_H

#include <stdbool.h>

#include <infiniband/verbs.h>

/* Names that the headers of rdma-core 44 lack. */
#define RP_FLUSH_WR 14 /* ibv_wr_opcode, in chains for rp_flush_post() */
/* Access of regions and queue pairs: FLUSH to visibility and persistence. */
#define RP_FLUSH_ACCESS (1 << 8 | 1 << 9)

/* Both kinds of FLUSH in the device, and queue pairs for it in the library? */
bool rp_flush_supported(struct ibv_context *verbs, struct ibv_pd *pd);
/* As ibv_create_qp(), and rp_flush_post() can be called. NULL and errno. */
struct ibv_qp *rp_flush_create_qp(struct ibv_pd *pd,
				  const struct ibv_qp_init_attr *attr);
/*
 * As ibv_post_send(), all or none; EINVAL: inline data. The length of a FLUSH
 * at the peer is that of its only scatter entry, whose address and lkey are
 * unused.
 */
int rp_flush_post(struct ibv_qp *qp, const struct ibv_send_wr *wr);

#endif
