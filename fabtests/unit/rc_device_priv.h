/* SPDX-License-Identifier: BSD-2-Clause */
/* Objects of the simulated verbs device (rc_device.h). */
#ifndef RP_RC_DEVICE_PRIV_H
#define RP_RC_DEVICE_PRIV_H

#include <stddef.h>

#include "rc_device.h"

struct dev_cq {
	struct ibv_cq base; /* first: cast */
	struct ibv_wc wc[DEV_MAX];
	int n;
	bool armed, event;
};
struct dev_mr {
	struct ibv_mr base; /* first: cast */
	unsigned int access;
};
struct dev_wr {
	enum ibv_wc_opcode opcode; /* as reported by its completion */
	uint64_t wr_id;
	unsigned int flags;
	uint32_t rkey, lkey;
	uint64_t addr, len;
	uint8_t *local;
	uint8_t type, level, value[8];
};
struct dev_recv {
	uint64_t wr_id;
	uint8_t *buf;
	uint32_t len, lkey;
};
typedef void (*dev_flush_fn)(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr,
			     size_t len, uint8_t type, uint8_t level);
struct dev_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex ex; /* begins with struct ibv_qp */
		/*
		 * So long that the struct has wr_flush of rdma-core 45 or
		 * later.
		 */
		struct {
			uint8_t before[352];
			dev_flush_fn flush;
		} late;
	};
	struct ibv_qp_attr attr;
	bool sig_all;
	unsigned int ops; /* send_ops_flags; 0: no builders */
	struct dev_wr batch[DEV_MAX], queue[DEV_MAX], late_wrs[DEV_MAX];
	unsigned int nbatch, nqueue, nlate_wrs;
	struct dev_recv recvs[DEV_MAX];
	unsigned int nrecvs;
};
extern struct dev_qp *dev_qps[DEV_MAX];
extern struct dev_mr *dev_mrs[DEV_MAX];
extern pthread_mutex_t dev_lock;

static inline struct dev_qp *dev_of(struct ibv_qp *qp)
{
	return (struct dev_qp *)qp;
}

void dev_complete(struct dev_cq *cq, const struct ibv_wc *wc);
void dev_write_back(size_t line);
/* Execute all requests that can be executed. */
void dev_progress(void);
void dev_builders(struct dev_qp *q);
void dev_posts(struct ibv_context_ops *ops);

#endif
