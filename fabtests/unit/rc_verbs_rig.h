/* SPDX-License-Identifier: BSD-2-Clause */
/* Private connections by queue pairs, over a device that the test plays. */
#ifndef RP_RC_VERBS_RIG_H
#define RP_RC_VERBS_RIG_H

#include <netinet/in.h>

#include "fabtests/unit/cm_fake.h"
#include "rc/rc.h"

/* The owner of a channel; order counts all callbacks of the rig. */
struct rig_end {
	struct rp_channel *c;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	int up, lost, lost_err, received;
	int order; /* of lost() */
	uint8_t data[256], msg[256];
	size_t data_len, msg_len;
	bool close; /* in the next callback */
};

/* An operation and what became of it. */
struct rig_op {
	struct rp_channel_op op; /* first */
	struct iovec iov[2];
	void *desc[2];
	int done, err, order;
	struct rig_end *close; /* in done() */
};

/* Somebody who connects to the rig. */
struct rig_request {
	void *request;
	uint8_t data[256];
	size_t len;
	int gone;
};

extern struct rp_rc *rig;
extern struct rp_rc_attr rig_attr;
extern const struct rp_channel_events rig_events;
extern struct rig_request rig_asked[128];
extern int rig_nasked, rig_order;
extern uint64_t rig_now;

/* Without or with FLUSH: what fake.caps and fake.makes say. */
void rig_start(void);
void rig_end(void);
void rig_poll(void);
void rig_listen(void);
/* rdma_resolve_addr() was called. */
void rig_begin(struct rig_end *e);
/* All steps, up to connected(). */
void rig_connect(struct rig_end *e);
/* A peer's request, accepted. */
void rig_accept(struct rig_end *e);
/* Of len bytes at buf, unregistered; remote: 0x1000, key 7. */
struct rp_channel_op *rig_op(struct rig_op *o, enum rp_channel_kind kind,
			     const void *buf, size_t len);
/* The same, registered. */
struct rp_channel_op *rig_op_mr(struct rig_op *o, enum rp_channel_kind kind,
				const void *buf, size_t len,
				const struct rp_rc_mr *mr);
int rig_post(struct rig_end *e, struct rp_channel_op *op);

#endif
