/* SPDX-License-Identifier: BSD-2-Clause */
/* Private connections by FI_EP_MSG of libfabric's tcp: what both files know. */
#ifndef RP_RC_FABRIC_H
#define RP_RC_FABRIC_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "rc/rc_priv.h"

struct fabric_rc {
	struct rp_rc rc;
	struct fi_info *info; /* without addresses */
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_pep *pep;
	size_t iov_limit;
	uint64_t landing; /* bytes that a fence reads */
};

struct fabric_channel {
	struct rp_rc_channel c;
	struct fid_ep *ep; /* its context is this channel */
	/* Until then tcp would send messages before its own reply. */
	bool connected;
};

static inline struct fabric_rc *fabric_rc(struct rp_rc *rc)
{
	return rp_rc_container(rc, struct fabric_rc, rc);
}
static inline struct fabric_channel *fabric_channel(struct rp_rc_channel *c)
{
	return rp_rc_container(c, struct fabric_channel, c);
}

/* --- rc_fabric.c --- */

/* Close the endpoint, and read what it had from the queue. */
void rp_fabric_shut(struct rp_rc_channel *c);

/* --- rc_fabric_cm.c --- */

int rp_fabric_listen(struct rp_rc *rc, const union rp_rc_addr *at, size_t len,
		     uint16_t *port);
int rp_fabric_connect(struct rp_rc_channel *c, size_t addr_len,
		      const void *data, size_t len);
int rp_fabric_accept(struct rp_rc_channel *c, void *handle, const void *data,
		     size_t len);
void rp_fabric_reject(struct rp_rc *rc, void *handle, const void *data,
		      size_t len);
int rp_fabric_poll_events(struct rp_rc *rc, int max);

#endif
