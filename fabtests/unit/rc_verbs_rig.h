/* SPDX-License-Identifier: BSD-2-Clause */
/* Private connections on queue pairs of the fake device (cm_fake.h). */
#ifndef RP_RC_VERBS_RIG_H
#define RP_RC_VERBS_RIG_H

#include <netinet/in.h>

#include "fabtests/unit/cm_fake.h"
#include "rc/rc.h"

/* The owner of a channel, and the callbacks that it got. */
struct rig_end {
	struct rp_channel *c;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	int nconnected, lost, lost_err, received;
	int order; /* position of lost() among all callbacks */
	uint8_t data[256], msg[256];
	size_t data_len, msg_len;
	bool close; /* close the channel in the owner's next callback */
};

/* An operation and its outcome. */
struct rig_op {
	struct rp_channel_op op; /* first: cast */
	struct iovec iov[2];
	void *desc[2];
	int done, err, order;
	struct rig_end *close; /* channel that done() closes */
};

/* A connection request from a peer. */
struct rig_request {
	void *request;
	uint8_t data[256];
	size_t len;
	int gone;
};

extern struct rp_rc *rig;
extern struct rp_rc_attr rig_attr;
extern const struct rp_channel_events rig_events;
extern struct rig_request rig_requests[128];
extern int rig_nrequests, rig_order;
extern uint64_t rig_now;

/* fake.caps and fake.makes decide whether the device has FLUSH. */
void rig_start(void);
void rig_end(void);
void rig_poll(void);
void rig_listen(void);
/* Begin to connect: all calls up to rdma_resolve_addr(). */
void rig_begin(struct rig_end *e);
/* Connect: all steps up to the connected() callback. */
void rig_connect(struct rig_end *e);
/* Accept the connection request of a peer. */
void rig_accept(struct rig_end *e);
/* Make an operation on len unregistered bytes; addr 0x1000, rkey 7. */
struct rp_channel_op *rig_op(struct rig_op *o, enum rp_channel_kind kind,
			     const void *buf, size_t len);
/* Like rig_op(), on registered bytes. */
struct rp_channel_op *rig_op_mr(struct rig_op *o, enum rp_channel_kind kind,
				const void *buf, size_t len,
				const struct rp_rc_mr *mr);
int rig_post(struct rig_end *e, struct rp_channel_op *op);

#endif
