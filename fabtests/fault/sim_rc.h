/* SPDX-License-Identifier: BSD-2-Clause */
/* Private connections over the simulated fabric: shared by both files. */
#ifndef SIM_RC_H
#define SIM_RC_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "rc/rc_priv.h"

struct sim_rc {
	struct rp_rc rc;
	struct fi_info *info; /* without addresses */
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_pep *pep;
	size_t iov_limit;
	uint64_t flush_flag; /* flag of fi_readmsg(); 0: there is no FLUSH */
	uint64_t landing;    /* buffer that a fence reads into */
};

struct sim_channel {
	struct rp_rc_channel c;
	struct fid_ep *ep; /* its context is this channel */
	/*
	 * False until then: the fabric would send messages before its own
	 * reply.
	 */
	bool connected;
};

static inline struct sim_rc *sim_rc(struct rp_rc *rc)
{
	return rp_rc_container(rc, struct sim_rc, rc);
}
static inline struct sim_channel *sim_channel(struct rp_rc_channel *c)
{
	return rp_rc_container(c, struct sim_channel, c);
}

/* --- sim_rc.c --- */

extern const struct rp_rc_ops sim_rc_ops;
extern struct host_sim rp_host_sim; /* host_sim.c */

/* Close the endpoint, and read its entries from the queue. */
void sim_shut(struct rp_rc_channel *c);

/* --- sim_rc_cm.c --- */

int sim_listen(struct rp_rc *rc, const union rp_rc_addr *at, size_t len,
	       uint16_t *port);
int sim_connect(struct rp_rc_channel *c, size_t addr_len, const void *data,
		size_t len);
int sim_accept(struct rp_rc_channel *c, void *handle, const void *data,
	       size_t len);
void sim_reject(struct rp_rc *rc, void *handle, const void *data, size_t len);
int sim_poll_events(struct rp_rc *rc, int max);

#endif
