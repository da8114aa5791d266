/* SPDX-License-Identifier: BSD-2-Clause */
/* Ends of reliable connections on one device of the guest. */
#ifndef RP_VM_ENDS_H
#define RP_VM_ENDS_H

#include <infiniband/rpmem.h>
#include <stdbool.h>

#define ENDS_OPEN                                                              \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |                    \
	 IBV_ACCESS_REMOTE_READ)
#define ENDS_PERSISTENT IBV_RPMEM_ACCESS_FLUSH_PERSISTENT
#define ENDS_FLUSHES	(IBV_RPMEM_ACCESS_FLUSH_GLOBAL | ENDS_PERSISTENT)

struct ends_device {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	union ibv_gid gid;
	struct ibv_port_attr port;
	int gid_index;
	/* What it does by itself: ENDS_FLUSHES, send_ops_flags. */
	unsigned int flushes;
	uint64_t send_ops;
	uint8_t timeout; /* of queue pairs, as verbs has it; 0: 268 ms */
};
struct ends_end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	uint64_t send_ops; /* what it was made with */
};

/* Whatever fails ends the program, with a line on stderr. */
void __attribute__((noreturn, format(printf, 1, 2)))
ends_die(const char *fmt, ...);
void ends_device(struct ends_device *d, const char *name, int gid_index);
/* A queue pair with all that the device has builders for. */
void ends_make(struct ends_end *e, const struct ends_device *d, int sends);
/* Connect it to that one of this machine, who may do this to its memory. */
void ends_join(struct ibv_qp *qp, const struct ends_device *d, uint32_t peer,
	       unsigned int access);

#endif
