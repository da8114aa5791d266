/* SPDX-License-Identifier: BSD-2-Clause */
/* Native FLUSH of a queue pair, with or without support in libibverbs. */
#ifndef RP_RC_NATIVE_FLUSH_H
#define RP_RC_NATIVE_FLUSH_H

#include <stdbool.h>

#include <infiniband/verbs.h>

/* Constants that the headers of rdma-core 44 lack. */
#define RP_FLUSH_OPCODE 14 /* ibv_wr_opcode of FLUSH, for rp_flush_post() */
/* IBV_ACCESS_FLUSH_GLOBAL and _PERSISTENT, of regions and queue pairs. */
#define RP_FLUSH_ACCESS (1 << 8 | 1 << 9)

#define RP_QP_EX_WITH_FLUSH (1u << 11) /* IBV_QP_EX_WITH_FLUSH */

/*
 * Offset of wr_flush in struct ibv_qp_ex since rdma-core 45; 44 has private
 * data there. A library that made a queue pair with FLUSH is 45 or later.
 */
#define RP_WR_FLUSH_OFFSET 352
typedef void (*rp_wr_flush_fn)(struct ibv_qp_ex *qp, uint32_t rkey,
			       uint64_t remote_addr, size_t len, uint8_t type,
			       uint8_t level);
/* Call ibv_wr_flush() of ex. */
void rp_flush_build(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
		    size_t len, uint8_t type, uint8_t level);

/* Do the library and the device have the ibv_wr_*() builders in send_ops? */
bool rp_builders_supported(struct ibv_pd *pd, uint64_t send_ops);
/* Do device and library have FLUSH to visibility and to persistence? */
bool rp_flush_supported(struct ibv_context *verbs, struct ibv_pd *pd);
/* ibv_create_qp() of a queue pair for rp_flush_post(). NULL and errno. */
struct ibv_qp *rp_flush_create_qp(struct ibv_pd *pd,
				  const struct ibv_qp_init_attr *attr);
/*
 * Post a chain like ibv_post_send(), but all or none; EINVAL: inline data. A
 * FLUSH has one scatter entry with the length to flush; its address and lkey
 * are unused.
 */
int rp_flush_post(struct ibv_qp *qp, const struct ibv_send_wr *wr);

#endif
