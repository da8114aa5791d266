/* SPDX-License-Identifier: BSD-2-Clause */
/* Native FLUSH of a queue pair, with or without support in libibverbs. */
#ifndef RP_RC_FLUSH_H
#define RP_RC_FLUSH_H

#include <stdbool.h>

#include <infiniband/verbs.h>

/* Names that rdma-core 44 lacks. */
#define RP_FLUSH_WR 14 /* ibv_wr_opcode, in chains for rp_flush_post() */
/* Access of regions and queue pairs: FLUSH to visibility and persistence. */
#define RP_FLUSH_ACCESS (1 << 8 | 1 << 9)

#define RP_QP_EX_WITH_FLUSH (1u << 11) /* of send_ops_flags */

/*
 * Offset of wr_flush in struct ibv_qp_ex since rdma-core 45; 44 has private
 * data there. A library that made a queue pair WITH_FLUSH is 45 or later.
 */
#define RP_WR_FLUSH_AT 352
typedef void (*rp_wr_flush_fn)(struct ibv_qp_ex *qp, uint32_t rkey,
			       uint64_t remote_addr, size_t len, uint8_t type,
			       uint8_t level);
/* ibv_wr_flush() */
void rp_flush_build(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
		    size_t len, uint8_t type, uint8_t level);

/* Do the library in use and the device have these builders? */
bool rp_builders_supported(struct ibv_pd *pd, uint64_t send_ops);
/* Do the device and the library have both kinds of FLUSH? */
bool rp_flush_supported(struct ibv_context *verbs, struct ibv_pd *pd);
/* As ibv_create_qp(), for rp_flush_post(). NULL and errno. */
struct ibv_qp *rp_flush_create_qp(struct ibv_pd *pd,
				  const struct ibv_qp_init_attr *attr);
/*
 * As ibv_post_send(), all or none; EINVAL: inline data. The only scatter entry
 * of a FLUSH has the length to flush; its address and lkey are unused.
 */
int rp_flush_post(struct ibv_qp *qp, const struct ibv_send_wr *wr);

#endif
