/* SPDX-License-Identifier: BSD-2-Clause */
/* Private connections by queue pairs, on a fake device. */
#ifndef RP_RC_VERBS_RIG_H
#define RP_RC_VERBS_RIG_H

#include <netinet/in.h>

#include "fabtests/unit/cm_fake.h"
#include "rc/rc.h"

/* A channel's owner. order: its place among all callbacks of the rig. */
struct rig_end {
	struct rp_channel *c;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	int up, lost, lost_err, received;
	int order; /* of the lost() callback */
	uint8_t data[256], msg[256];
	size_t data_len, msg_len;
	bool close; /* close the channel in the next callback */
};

/* An operation and its outcome. */
struct rig_op {
	struct rp_channel_op op; /* first: cast */
	struct iovec iov[2];
	void *desc[2];
	int done, err, order;
	struct rig_end *close; /* close this channel in done() */
};

/* A connection request of a peer. */
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

/* fake.caps and fake.makes say whether there is FLUSH. */
void rig_start(void);
void rig_end(void);
void rig_poll(void);
void rig_listen(void);
/* Connect, up to rdma_resolve_addr(). */
void rig_begin(struct rig_end *e);
/* Connect, with all steps up to connected(). */
void rig_connect(struct rig_end *e);
/* Accept the connection request of a peer. */
void rig_accept(struct rig_end *e);
/* An operation on len unregistered bytes at buf; remote_addr 0x1000, rkey 7. */
struct rp_channel_op *rig_op(struct rig_op *o, enum rp_channel_kind kind,
			     const void *buf, size_t len);
/* The same on registered bytes. */
struct rp_channel_op *rig_op_mr(struct rig_op *o, enum rp_channel_kind kind,
				const void *buf, size_t len,
				const struct rp_rc_mr *mr);
int rig_post(struct rig_end *e, struct rp_channel_op *op);

#endif
