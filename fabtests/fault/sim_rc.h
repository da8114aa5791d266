/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Private connections over the simulated fabric pmsim, for host_sim.c:
 * declarations of sim_rc.c and sim_rc_cm.c.
 */
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

/* Receives posted to the fabric for each channel. */
#define SIM_RECVS 2

/*
 * A receive buffer posted to the fabric for one channel. Its message is copied
 * into a receive of all channels (struct rp_rc_recv), which has the same
 * length.
 */
struct sim_recv {
	TAILQ_ENTRY(sim_recv) link;
	struct sim_channel *channel;
	size_t len; /* length of its message, while that waits */
	uint8_t buf[RP_WIRE_MAX_MSG];
};

struct sim_rc {
	struct rp_rc rc;
	struct rp_rc_recvs pool; /* free receives */
	TAILQ_HEAD(, sim_recv)
	waiting;	      /* messages that wait for a receive
			       * in pool */
	struct fi_info *info; /* attributes without addresses */
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_pep *pep;
	size_t iov_limit;
	uint64_t flush_flag; /* flag of fi_readmsg(); 0: no FLUSH */
	uint64_t landing;    /* buffer for a fence's read */
};

struct sim_channel {
	struct rp_rc_channel c;
	struct fid_ep *ep; /* its context is &c */
	/*
	 * Set by FI_CONNECTED. Nothing is posted before, because the fabric
	 * would deliver messages before its own reply to the connection
	 * request.
	 */
	bool connected;
	struct sim_recv *recvs; /* an array of SIM_RECVS receives */
	unsigned int nrecvs;	/* receives now posted to the fabric */
};

static inline struct sim_rc *sim_rc(struct rp_rc *rc)
{
	return rp_container_of(rc, struct sim_rc, rc);
}
static inline struct sim_channel *sim_channel(struct rp_rc_channel *c)
{
	return rp_container_of(c, struct sim_channel, c);
}

/* --- functions of sim_rc.c --- */

extern const struct rp_rc_ops sim_rc_ops;
extern struct host_sim rp_host_sim; /* defined in host_sim.c */

/* Post the receives of an enabled endpoint to the fabric. */
int sim_recvs_open(struct sim_channel *fc);
/* Close the endpoint, and read its remaining completions. */
void sim_shut(struct rp_rc_channel *c);

/* --- functions of sim_rc_cm.c --- */

int sim_listen(struct rp_rc *rc, const union rp_rc_addr *at, size_t len,
	       uint16_t *port);
int sim_connect(struct rp_rc_channel *c, size_t addr_len, const void *data,
		size_t len);
int sim_accept(struct rp_rc_channel *c, void *handle, const void *data,
	       size_t len);
void sim_reject(struct rp_rc *rc, void *handle, const void *data, size_t len);
int sim_poll_events(struct rp_rc *rc, int max);

#endif
