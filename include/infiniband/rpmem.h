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

/*
 * Arguments of the calls below. Each has the value of the constant of rdma-core
 * 45 and later with IBV_ instead of RPMEM_, such as IBV_FLUSH_PERSISTENT;
 * rdma-core 44 has none.
 */
enum rpmem_flush_type {
	RPMEM_FLUSH_GLOBAL = 1, /* any reader at the target sees the bytes */
	RPMEM_FLUSH_PERSISTENT = 2, /* they survive the failures of the class */
};
enum rpmem_flush_level {
	RPMEM_FLUSH_RANGE = 0, /* the given range */
	RPMEM_FLUSH_MR = 1,    /* the whole region */
};
/*
 * Access flags for rpmem_reg_mr(), in addition to IBV_ACCESS_*, and for struct
 * rpmem_qp_attr.
 */
enum rpmem_access {
	RPMEM_ACCESS_FLUSH_GLOBAL = 1 << 8,
	RPMEM_ACCESS_FLUSH_PERSISTENT = 1 << 9,
};
/* Opcodes of completions. */
enum rpmem_wc_opcode {
	RPMEM_WC_FLUSH = 8,
	RPMEM_WC_ATOMIC_WRITE = 9,
};

/*
 * Memory that peers write to, with its facts. access is that of ibv_reg_mr(),
 * with the FLUSH bits even if the device has none. NULL and errno: EINVAL for
 * PERSISTENT on volatile memory, as a device reports; EOPNOTSUPP if this
 * library has no method that makes the memory durable; others as ibv_reg_mr().
 * The log says why.
 */
struct rpmem_mr {
	struct ibv_mr *mr;
};
struct rpmem_mr *rpmem_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			      int access);
/* Before this call, tell the peers to stop using the region's descriptor. */
int rpmem_dereg_mr(struct rpmem_mr *mr);

/*
 * A completion queue of queue pairs with flushes: rpmem_poll_cq() replaces
 * ibv_poll_cq(). Each outstanding flush uses one of its entries.
 */
struct rpmem_cq;
struct rpmem_cq *rpmem_attach_cq(struct ibv_cq *cq);
/* Returns EBUSY while a queue pair is attached. */
int rpmem_detach_cq(struct rpmem_cq *cq);
int rpmem_poll_cq(struct rpmem_cq *cq, int num_entries, struct ibv_wc *wc);

struct rpmem_qp_attr {
	/* as for ibv_create_qp_ex(); 0: made by ibv_create_qp() */
	uint64_t send_ops_flags;
	/* Flushes allowed to the peer: RPMEM_ACCESS_FLUSH_*. */
	unsigned int access;
};
/*
 * A reliable connection. wr_id and wr_flags as in struct ibv_qp_ex. The program
 * adds init_access to qp_access_flags when it moves the queue pair to INIT.
 */
struct rpmem_qp {
	struct ibv_qp *qp;
	uint64_t wr_id;
	unsigned int wr_flags;
	unsigned int init_access;
};
/*
 * Create a queue pair with builders, and with FLUSH where the device has it.
 * attr is that of ibv_create_qp_ex() with pd, cap and recv_cq; the library sets
 * type, send_cq and the builders that it needs itself. access: flushes allowed
 * to the peer, RPMEM_ACCESS_FLUSH_*.
 */
struct rpmem_qp *rpmem_create_qp(struct rpmem_cq *send_cq,
				 const struct ibv_qp_init_attr_ex *attr,
				 unsigned int access);
/* Detach the queue pair and destroy it. */
int rpmem_destroy_qp(struct rpmem_qp *qp);
/* Adopt a queue pair that the program has made. */
struct rpmem_qp *rpmem_attach_qp(struct ibv_qp *qp, struct rpmem_cq *send_cq,
				 const struct rpmem_qp_attr *attr);
/* Detach the queue pair, before a reset, a reconnect or the destruction. */
int rpmem_detach_qp(struct rpmem_qp *qp);

/*
 * If flushes need the peer's agent, a second connection is set up along the
 * path of the queue pair. Each end gives its descriptor to the other end. It
 * calls rpmem_connect_qp() with the other end's descriptor when the queue pair
 * itself is connected, and before it exports regions. EKEYREJECTED: the
 * descriptor is of another queue pair; ENOSPC: the completion queue is too
 * short; others as those of ibv_create_qp() and ibv_modify_qp().
 */
struct rpmem_qp_desc {
	uint8_t bytes[64];
};
int rpmem_export_qp(struct rpmem_qp *qp, struct rpmem_qp_desc *desc);
int rpmem_connect_qp(struct rpmem_qp *qp, const struct rpmem_qp_desc *peer);

/* One region, for the peer of one queue pair. */
struct rpmem_mr_desc {
	uint8_t bytes[64];
};
int rpmem_export_mr(struct rpmem_mr *mr, struct rpmem_qp *qp,
		    struct rpmem_mr_desc *desc);

/* A region of the peer. Methods have their names in docs/guarantees.md. */
struct rpmem_region {
	uint32_t rkey;
	uint64_t remote_addr, length;
	/* method of such a flush, or "refused" */
	const char *persistent, *global;
	const char *survives; /* class of a persistent flush */
};
/*
 * Allow flushes of the peer's region, or forbid them again. region may be NULL.
 */
int rpmem_import_mr(struct rpmem_qp *qp, const struct rpmem_mr_desc *desc,
		    struct rpmem_region *region);
int rpmem_forget_mr(struct rpmem_qp *qp, uint32_t rkey);

/*
 * These are like the ibv_wr_*() calls with these names (ibv_wr_start(3)).
 * Between rpmem_wr_start() and rpmem_wr_complete() the builders of the queue
 * pair itself may be used, too. If a call cannot be posted, rpmem_wr_complete()
 * returns its errno, and nothing was posted.
 */
void rpmem_wr_start(struct rpmem_qp *qp);
void rpmem_wr_flush(struct rpmem_qp *qp, uint32_t rkey, uint64_t remote_addr,
		    size_t len, uint8_t type, uint8_t level);
/*
 * Write `from` to remote_addr and flush that range, with one completion: the
 * flush's, until which the bytes must not change. A short write and its flush
 * are one message if the target's agent polls. Later work requests may be
 * executed before the flush. Takes two entries of each queue; EOPNOTSUPP if the
 * queue pair has no writes.
 */
void rpmem_wr_write_flush(struct rpmem_qp *qp, uint32_t rkey,
			  uint64_t remote_addr, const struct ibv_sge *from,
			  uint8_t type);
void rpmem_wr_atomic_write(struct rpmem_qp *qp, uint32_t rkey,
			   uint64_t remote_addr, const void *atomic_wr);
int rpmem_wr_complete(struct rpmem_qp *qp);
void rpmem_wr_abort(struct rpmem_qp *qp);

#ifdef __cplusplus
}
#endif

#endif
