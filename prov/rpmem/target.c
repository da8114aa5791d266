// SPDX-License-Identifier: BSD-2-Clause
/* The agent of a domain, and the provider's rp_agent_host for it. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "rpmem/os_services.h"
#include "rpmem/rpmem.h"

static struct rp_dom *dom_of(struct rp_agent_host *h)
{
	return rp_container_of(h, struct rp_dom, host);
}

static int host_accept(struct rp_agent_host *h, void *request, const void *data,
		       size_t len, const struct rp_channel_events *events,
		       void *owner, struct rp_channel **out)
{
	return rp_rc_accept(dom_of(h)->rc, request, data, len, events, owner,
			    out);
}

static void host_refuse(struct rp_agent_host *h, void *request,
			const void *data, size_t len)
{
	rp_rc_reject(dom_of(h)->rc, request, data, len);
}

static uint64_t host_source(struct rp_agent_host *h, void *request)
{
	return rp_rc_request_source(request);
}

/*
 * Do all connections share one registration of a region? With a device yes: the
 * device chooses the rkey. Over TCP no: each connection has its own random 64
 * bits as rkey, so that no peer can use the rkey of another one.
 */
static bool shares_registration(const struct rp_dom *dom)
{
	return rp_rc_flags(dom->rc) & RP_CHANNEL_LOCAL_MR;
}

static int reg_region(struct rp_mr *mr, bool flushed, struct rp_rc_mr *out)
{
	const struct rp_region *r = &mr->region;
	unsigned int access = flushed ? RP_RC_REMOTE_FLUSH : 0;

	if (mr->access & FI_REMOTE_READ)
		access |= RP_RC_REMOTE_READ;
	if (mr->access & FI_REMOTE_WRITE)
		access |= RP_RC_REMOTE_WRITE;
	return rp_rc_reg(mr->dom->rc, r->base, r->len, access, out);
}

/* Register the region with the device, for native FLUSH if possible. */
static int reg_shared(struct rp_mr *mr)
{
	int ret;

	if (mr->shared_mr.handle)
		return 0;
	if (mr->region.choice.method == RP_METHOD_NATIVE) {
		ret = reg_region(mr, true, &mr->shared_mr);
		mr->allows_flush = !ret;
		if (!ret)
			return 0;
		RP_WARN(MR,
			"the device does not FLUSH this region (%s): the agent "
			"flushes it\n",
			fi_strerror(-ret));
	}
	return reg_region(mr, false, &mr->shared_mr);
}

int rp_target_reg(struct rp_mr *mr)
{
	return shares_registration(mr->dom) ? reg_shared(mr) : 0;
}

void rp_target_dereg(struct rp_mr *mr)
{
	if (mr->shared_mr.handle)
		rp_rc_dereg(mr->dom->rc, &mr->shared_mr);
}

static int grant_shared(struct rp_mr *mr, struct rp_wire_grant *g)
{
	if (g->method == RP_METHOD_NATIVE && !mr->allows_flush)
		return -FI_EOPNOTSUPP;
	g->rkey = mr->shared_mr.rkey;
	g->remote_addr = mr->shared_mr.remote_addr;
	return 0;
}

static int host_grant(struct rp_agent_host *h, struct rp_channel *c,
		      const struct rp_region *r, struct rp_wire_grant *g,
		      void **grant)
{
	struct rp_mr *mr =
		rp_container_of((struct rp_region *)r, struct rp_mr, region);
	struct rp_rc_mr *grant_mr;
	int ret;

	*grant = NULL;
	if (shares_registration(dom_of(h)))
		return grant_shared(mr, g);
	grant_mr = calloc(1, sizeof(*grant_mr));
	if (!grant_mr)
		return -FI_ENOMEM;
	ret = reg_region(mr, g->method == RP_METHOD_NATIVE, grant_mr);
	if (ret) {
		free(grant_mr);
		return ret;
	}
	g->rkey = grant_mr->rkey;
	g->remote_addr = grant_mr->remote_addr;
	*grant = grant_mr;
	return 0;
}

static void host_revoke(struct rp_agent_host *h, void *grant)
{
	if (!grant)
		return;
	rp_rc_dereg(dom_of(h)->rc, grant);
	free(grant);
}

static uint32_t host_flags(struct rp_agent_host *h)
{
	return rp_rc_flags(dom_of(h)->rc);
}

/* Does the endpoint's peer have this port? *at_host: and this IP address? */
static bool has_peer(const struct rp_ep *ep, const struct sockaddr *host,
		     uint16_t port, bool *at_host)
{
	union rp_rc_addr sa;
	size_t len = sizeof(sa);

	if (fi_getpeer(ep->base, &sa, &len) || sa.in.sin_port != htons(port))
		return false;
	*at_host = rp_addr_equals(&sa, host, port);
	return true;
}

/*
 * Find the endpoint that receives a write with remote CQ data: the write names
 * its port, `endpoint` (0: any). All endpoints that a listener accepted have
 * one port, so the initiator's port must match, too. The initiator's address
 * only decides among matches: an initiator with several may have used another
 * one for the private connection.
 */
static struct rp_ep *find_receiver(struct rp_dom *dom,
				   const struct sockaddr *host, uint16_t port,
				   uint16_t endpoint)
{
	struct rp_ep *ep, *found = NULL;
	bool at_host = false;

	LIST_FOREACH (ep, &dom->eps, link) {
		if (!ep->enabled || !ep->rx_cq)
			continue;
		if (dom->is_msg || !ep->port)
			ep->port = rp_private_local_port(ep);
		if (endpoint &&
		    (ep->port != endpoint ||
		     (dom->is_msg && !has_peer(ep, host, port, &at_host))))
			continue;
		found = ep;
		if (at_host)
			break;
	}
	return found;
}

static bool is_peer(struct rp_channel *c, uint16_t port, void *arg)
{
	return rp_addr_equals(arg, rp_rc_peer(c), port);
}

void rp_target_close_peer(struct rp_ep *ep)
{
	if (ep->dom->agent && ep->cm_peer.sa.sa_family != AF_UNSPEC)
		rp_agent_close_peer(ep->dom->agent, is_peer, &ep->cm_peer);
	/* Forget the peer: another one may reuse its port. */
	ep->cm_peer.sa.sa_family = AF_UNSPEC;
}

/*
 * Report remote CQ data by an entry like the base's (libfabric 1.17): ofi_rxm
 * sets neither buffer nor length, sockets does.
 */
static int host_notify(struct rp_agent_host *h, struct rp_channel *c,
		       uint16_t port, uint16_t endpoint, uint64_t data,
		       void *buf, size_t len)
{
	struct rp_dom *dom = dom_of(h);
	struct rp_ep *ep = find_receiver(dom, rp_rc_peer(c), port, endpoint);
	fi_addr_t src = FI_ADDR_NOTAVAIL;
	struct fi_cq_tagged_entry e = {
		.flags = FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
		.data = data,
	};

	if (!ep)
		return -FI_ENOSYS;
	if (!strcasecmp(dom->fabric->base_name, "sockets")) {
		e.flags |= FI_RMA;
		e.buf = buf;
		e.len = len;
	}
	if (ep->av && (dom->base_info->caps & FI_SOURCE))
		src = rp_av_find(ep->av, rp_rc_peer(c), port);
	return rp_cq_push(ep->rx_cq, &e, src);
}

static int host_facts(struct rp_agent_host *h, struct rp_region *r,
		      struct rp_facts *facts, char *why)
{
	return rp_mr_find_facts(rp_container_of(r, struct rp_mr, region), facts,
				why);
}

static uint64_t host_now(struct rp_agent_host *h)
{
	return rp_domain_now(dom_of(h));
}

static void host_kick(struct rp_agent_host *h)
{
	rp_domain_kick(dom_of(h));
}

static const struct rp_agent_host_ops host_ops = {
	.accept = host_accept,
	.refuse = host_refuse,
	.source = host_source,
	.grant = host_grant,
	.revoke = host_revoke,
	.flags = host_flags,
	.notify = host_notify,
	.facts = host_facts,
	.now = host_now,
	.kick = host_kick,
};

int rp_target_open(struct rp_dom *dom, uint16_t *port, char *why)
{
	const struct rp_agent_attr attr = {
		.incarnation = dom->incarnation,
		.credits = (unsigned int)rp_params.credits,
		.max_sessions = (unsigned int)rp_params.max_sessions,
		.no_worker = !rp_host_has_threads(),
	};
	int ret;

	if (!dom->agent) {
		dom->host.ops = &host_ops;
		ret = rp_agent_new(&attr, &dom->host, &dom->agent);
		if (ret) {
			snprintf(why, RP_WHY_LEN, "the agent: %s",
				 fi_strerror(-ret));
			return ret;
		}
	}
	return rp_private_listen(dom, port, why);
}

void rp_target_close(struct rp_dom *dom)
{
	if (dom->agent)
		rp_agent_delete(dom->agent);
	dom->agent = NULL;
}
