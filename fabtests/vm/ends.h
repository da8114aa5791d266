/* SPDX-License-Identifier: BSD-2-Clause */
/* Ends of reliable connections on one RDMA device of the guest. */
#ifndef RP_VM_ENDS_H
#define RP_VM_ENDS_H

#include <infiniband/rpmem.h>
#include <stdbool.h>

/* IBV_QP_EX_WITH_FLUSH of rdma-core 45 and later. */
#define ENDS_WITH_FLUSH (1u << 11)
#define ENDS_OPEN                                                              \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |                    \
	 IBV_ACCESS_REMOTE_READ)
#define ENDS_PERSISTENT RPMEM_ACCESS_FLUSH_PERSISTENT
#define ENDS_FLUSHES	(RPMEM_ACCESS_FLUSH_GLOBAL | ENDS_PERSISTENT)

struct ends_device {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	union ibv_gid gid;
	struct ibv_port_attr port;
	int gid_index;
	/* The device's capabilities: ENDS_FLUSHES, and send_ops_flags. */
	unsigned int flushes;
	uint64_t send_ops;
	uint8_t timeout; /* ACK timeout of queue pairs; 0: 268 ms */
};
struct ends_end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	uint64_t send_ops; /* send_ops_flags of the queue pair */
};

/* Exit with an error line on stderr. */
void __attribute__((noreturn, format(printf, 1, 2)))
ends_die(const char *fmt, ...);
void ends_device(struct ends_device *d, const char *name, int gid_index);
/* Make a queue pair with all operations for which the device has builders. */
void ends_make(struct ends_end *e, const struct ends_device *d, int sends);
/*
 * Connect qp to queue pair `peer` of this machine. access: what the peer may do
 * to this end's memory.
 */
void ends_join(struct ibv_qp *qp, const struct ends_device *d, uint32_t peer,
	       unsigned int access);

#endif
