// SPDX-License-Identifier: BSD-2-Clause
/* Names and connections of endpoints: forwarded to the base. */
#include "rpmem/cm.h"

/* A private connection ends with the endpoint's connection. */
void rp_cm_set_connected(struct rp_ep *ep, bool connected)
{
	pthread_mutex_lock(&ep->dom->lock);
	if (ep->connected && !connected) {
		rp_private_forget(ep, FI_ADDR_UNSPEC);
		rp_target_end_peer(ep);
	}
	ep->connected = connected;
	pthread_mutex_unlock(&ep->dom->lock);
}

static int cm_setname(fid_t fid, void *addr, size_t addrlen)
{
	return fi_setname(&rp_ep_of(fid)->base->fid, addr, addrlen);
}

static int cm_getname(fid_t fid, void *addr, size_t *addrlen)
{
	return fi_getname(&rp_ep_of(fid)->base->fid, addr, addrlen);
}

static int cm_getpeer(struct fid_ep *fid, void *addr, size_t *addrlen)
{
	return fi_getpeer(rp_ep_of(&fid->fid)->base, addr, addrlen);
}

static int cm_connect(struct fid_ep *fid, const void *addr, const void *param,
		      size_t paramlen)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);
	int ret = fi_connect(ep->base, addr, param, paramlen);

	if (!ret)
		ep->enabled = true;
	return ret;
}

static int cm_accept(struct fid_ep *fid, const void *param, size_t paramlen)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);
	size_t len = sizeof(ep->accepted);
	int ret = fi_accept(ep->base, param, paramlen);

	if (ret)
		return ret;
	ep->enabled = true;
	if (fi_getpeer(ep->base, &ep->accepted, &len))
		ep->accepted.ss_family = AF_UNSPEC;
	return 0;
}

static int cm_shutdown(struct fid_ep *fid, uint64_t flags)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);

	rp_cm_set_connected(ep, false);
	return fi_shutdown(ep->base, flags);
}

/* Listen and reject exist for passive endpoints only. */
static int cm_listen(struct fid_pep *pep)
{
	return -FI_ENOSYS;
}

static int cm_reject(struct fid_pep *pep, fid_t handle, const void *param,
		     size_t paramlen)
{
	return -FI_ENOSYS;
}

static int cm_join(struct fid_ep *fid, const void *addr, uint64_t flags,
		   struct fid_mc **mc, void *context)
{
	return -FI_ENOSYS;
}

struct fi_ops_cm rp_cm_ops = {
	.size = sizeof(struct fi_ops_cm),
	.setname = cm_setname,
	.getname = cm_getname,
	.getpeer = cm_getpeer,
	.connect = cm_connect,
	.listen = cm_listen,
	.accept = cm_accept,
	.reject = cm_reject,
	.shutdown = cm_shutdown,
	.join = cm_join,
};
