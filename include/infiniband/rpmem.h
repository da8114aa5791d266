/* SPDX-License-Identifier: BSD-2-Clause */
/* Flush remote persistent memory over a queue pair of the program. */
#ifndef INFINIBAND_RPMEM_H
#define INFINIBAND_RPMEM_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values of rdma-core 45 and later, under names that 44 lacks. */
enum {
	IBV_RPMEM_FLUSH_GLOBAL = 1,
	IBV_RPMEM_FLUSH_PERSISTENT = 2,
};
enum {
	IBV_RPMEM_FLUSH_RANGE = 0,
	IBV_RPMEM_FLUSH_MR = 1,
};
enum {
	IBV_RPMEM_ACCESS_FLUSH_GLOBAL = 1 << 8,
	IBV_RPMEM_ACCESS_FLUSH_PERSISTENT = 1 << 9,
};
enum {
	IBV_RPMEM_WC_FLUSH = 8,
	IBV_RPMEM_WC_ATOMIC_WRITE = 9,
};
enum {
	IBV_RPMEM_QP_EX_WITH_FLUSH = 1 << 11,
};

/*
 * Memory that peers write to, with its facts. access is that of ibv_reg_mr(),
 * with the FLUSH bits even if the device has none. NULL and errno: EINVAL for
 * PERSISTENT on volatile memory, as a device reports; EOPNOTSUPP if this
 * library has no method that makes the memory durable; others as ibv_reg_mr().
 * The log says why.
 */
struct ibv_rpmem_mr {
	struct ibv_mr *mr;
};
struct ibv_rpmem_mr *ibv_rpmem_reg_mr(struct ibv_pd *pd, void *addr,
				      size_t length, int access);
/* First notify the peers: they must not use its descriptor any more. */
int ibv_rpmem_dereg_mr(struct ibv_rpmem_mr *mr);

/*
 * A completion queue of queue pairs with flushes: ibv_rpmem_poll_cq() replaces
 * ibv_poll_cq(). Each outstanding flush uses one of its entries.
 */
struct ibv_rpmem_cq;
struct ibv_rpmem_cq *ibv_rpmem_attach_cq(struct ibv_cq *cq);
/* EBUSY while a queue pair is attached. */
int ibv_rpmem_detach_cq(struct ibv_rpmem_cq *cq);
int ibv_rpmem_poll_cq(struct ibv_rpmem_cq *cq, int num_entries,
		      struct ibv_wc *wc);

struct ibv_rpmem_qp_attr {
	/* as given to ibv_create_qp_ex(); 0: made by ibv_create_qp() */
	uint64_t send_ops_flags;
	/* Flushes allowed to the peer: IBV_RPMEM_ACCESS_FLUSH_*. */
	unsigned int access;
};
/* A reliable connection. wr_id and wr_flags as in struct ibv_qp_ex. */
struct ibv_rpmem_qp {
	struct ibv_qp *qp;
	uint64_t wr_id;
	unsigned int wr_flags;
};
struct ibv_rpmem_qp *ibv_rpmem_attach_qp(struct ibv_qp *qp,
					 struct ibv_rpmem_cq *send_cq,
					 const struct ibv_rpmem_qp_attr *attr);
/* Call it before the queue pair is reset, reconnected or destroyed. */
int ibv_rpmem_detach_qp(struct ibv_rpmem_qp *qp);

/*
 * If flushes need the peer's agent, a second connection exists beside the queue
 * pair, along the same path. Each end gives its address to the other end and
 * connects to the address of that end, when the queue pair itself is connected,
 * and before it makes descriptors for it. EKEYREJECTED: the address is of
 * another queue pair; ENOSPC: the completion queue is too short; others as
 * those of ibv_create_qp() and ibv_modify_qp().
 */
struct ibv_rpmem_addr {
	uint8_t bytes[64];
};
int ibv_rpmem_get_addr(struct ibv_rpmem_qp *qp, struct ibv_rpmem_addr *addr);
int ibv_rpmem_connect(struct ibv_rpmem_qp *qp,
		      const struct ibv_rpmem_addr *peer);

/* Facts of one region for the peer of one queue pair. */
struct ibv_rpmem_desc {
	uint8_t bytes[64];
};
int ibv_rpmem_get_desc(struct ibv_rpmem_mr *mr, struct ibv_rpmem_qp *qp,
		       struct ibv_rpmem_desc *desc);

/* Allow flushes of the peer's region, or end that. */
int ibv_rpmem_add_region(struct ibv_rpmem_qp *qp,
			 const struct ibv_rpmem_desc *desc);
int ibv_rpmem_del_region(struct ibv_rpmem_qp *qp, uint32_t rkey);
/* Methods of flushes of the region, in the words of guarantees.md. */
struct ibv_rpmem_region_attr {
	const char *persistent, *global; /* "refused": no method */
	const char *survives;		 /* class of a persistent flush */
};
int ibv_rpmem_query_region(struct ibv_rpmem_qp *qp, uint32_t rkey,
			   struct ibv_rpmem_region_attr *attr);

/*
 * Like the calls of struct ibv_qp_ex with these names. Between start and
 * complete the builders of the queue pair itself may be used, too. If a call
 * cannot be posted, complete returns its errno, and nothing was posted.
 */
void ibv_rpmem_wr_start(struct ibv_rpmem_qp *qp);
void ibv_rpmem_wr_flush(struct ibv_rpmem_qp *qp, uint32_t rkey,
			uint64_t remote_addr, size_t len, uint8_t type,
			uint8_t level);
/*
 * A write of `from` to remote_addr and a flush of that range, with the flush's
 * completion only: a target whose agent polls gets few bytes in one message.
 * The bytes are read until the completion. Later work requests may be executed
 * before it. Takes two entries of each queue; EOPNOTSUPP if the queue pair has
 * no writes.
 */
void ibv_rpmem_wr_write_flush(struct ibv_rpmem_qp *qp, uint32_t rkey,
			      uint64_t remote_addr, const struct ibv_sge *from,
			      uint8_t type);
void ibv_rpmem_wr_atomic_write(struct ibv_rpmem_qp *qp, uint32_t rkey,
			       uint64_t remote_addr, const void *atomic_wr);
int ibv_rpmem_wr_complete(struct ibv_rpmem_qp *qp);
void ibv_rpmem_wr_abort(struct ibv_rpmem_qp *qp);

#ifdef __cplusplus
}
#endif

#endif
