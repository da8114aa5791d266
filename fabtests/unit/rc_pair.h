/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two connected queue pairs of the simulated device (rc_device.h), with shims.
 */
#ifndef RP_RC_PAIR_H
#define RP_RC_PAIR_H

#include "rc_device.h"
#include "verbs/post.h"

#define PAIR_CQE 64
#define OPEN                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |                    \
	 IBV_ACCESS_REMOTE_READ)
#define GLOBAL	   RPMEM_ACCESS_FLUSH_GLOBAL
#define PERSISTENT RPMEM_ACCESS_FLUSH_PERSISTENT
#define BUILDERS   (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ)
#define WITH_FLUSH RP_QP_EX_WITH_FLUSH

struct pair_end {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct rpmem_cq *scq;
	struct rpmem_qp *sqp;
};
struct pair {
	struct pair_end a, b; /* pmem is registered at b */
	struct rpmem_mr *mr;
	struct rpmem_mr_desc desc;
	uint32_t rkey;
	struct rp_side_addr sa, sb; /* side addresses of a and b */
	struct ibv_mr *from_mr;
	unsigned int nput;
	uint8_t from[16][DEV_BYTES];
};

struct pair_attr {
	unsigned int ops; /* send_ops_flags of a; 0: a uses ibv_post_send() */
	unsigned int access; /* FLUSH bits of b's queue pair and of pmem */
	unsigned int native; /* FLUSH bits that b's QP was created with */
	bool sides;	     /* connect the side channels */
	int cqe;	     /* entries of a's CQ; 0: PAIR_CQE */
	bool sleeps;	     /* a has a completion channel */
};
void pair_open(struct pair *p, const struct pair_attr *attr);
void pair_close(struct pair *p);
/* Exchange the side addresses. Returns the result of a's rpmem_connect_qp(). */
int pair_connect_sides(struct pair *p);
/* Make the region's descriptor at b and add it at a. */
void pair_import_region(struct pair *p);

/* Flush a range of pmem to persistence. */
int pair_flush(struct pair *p, uint64_t wr_id, size_t off, size_t len);
int pair_write(struct pair *p, uint64_t wr_id, size_t off, size_t len,
	       uint8_t value);
/*
 * Post a write with its flush by one call. Its bytes are in one of 16 buffers,
 * which the 16th such call from now overwrites.
 */
int pair_write_durable(struct pair *p, uint64_t wr_id, size_t off, size_t len,
		       uint8_t value);
int pair_atomic_write(struct pair *p, uint64_t wr_id, size_t off,
		      uint64_t value);
/*
 * Wait for this completion at a; wr_id 0: check that none comes for a moment.
 */
void pair_expect_next(struct pair *p, uint64_t wr_id, enum ibv_wc_status status,
		      int opcode);
const char *pair_method(struct pair *p);

#endif
