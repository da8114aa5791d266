// SPDX-License-Identifier: BSD-2-Clause
/* Connection management calls (fi_ops_cm), forwarded to the base. */
#include "rpmem/cm.h"

/* The end of an endpoint's connection also ends its private connections. */
void rp_cm_set_connected(struct rp_ep *ep, bool connected, uint32_t error)
{
	pthread_mutex_lock(&ep->dom->lock);
	if (ep->connected && !connected) {
		rp_private_remove_dest(ep, FI_ADDR_UNSPEC, error);
		rp_target_close_peer(ep);
	}
	ep->connected = connected;
	pthread_mutex_unlock(&ep->dom->lock);
}

/* NULL: fid is not an endpoint (the program cast another object). */
static struct rp_ep *active_ep(struct fid_ep *fid)
{
	return fid->fid.fclass == FI_CLASS_EP ? rp_ep_of(&fid->fid) : NULL;
}

static struct fid_pep *passive_base(struct fid_pep *fid)
{
	return fid->fid.fclass == FI_CLASS_PEP
		       ? rp_container_of(fid, struct rp_pep, fid)->base
		       : NULL;
}

static int cm_setname(fid_t fid, void *addr, size_t addrlen)
{
	return fi_setname(rp_fid_base(fid), addr, addrlen);
}

static int cm_getname(fid_t fid, void *addr, size_t *addrlen)
{
	return fi_getname(rp_fid_base(fid), addr, addrlen);
}

static int cm_getpeer(struct fid_ep *fid, void *addr, size_t *addrlen)
{
	struct rp_ep *ep = active_ep(fid);

	return ep ? fi_getpeer(ep->base, addr, addrlen) : -FI_ENOSYS;
}

static int cm_connect(struct fid_ep *fid, const void *addr, const void *param,
		      size_t paramlen)
{
	struct rp_ep *ep = active_ep(fid);
	int ret = ep ? fi_connect(ep->base, addr, param, paramlen) : -FI_ENOSYS;

	if (!ret)
		ep->enabled = true;
	return ret;
}

static int cm_accept(struct fid_ep *fid, const void *param, size_t paramlen)
{
	struct rp_ep *ep = active_ep(fid);
	size_t len = sizeof(ep->cm_peer);
	int ret = ep ? fi_accept(ep->base, param, paramlen) : -FI_ENOSYS;

	if (ret)
		return ret;
	ep->enabled = true;
	if (fi_getpeer(ep->base, &ep->cm_peer, &len))
		ep->cm_peer.sa.sa_family = AF_UNSPEC;
	return 0;
}

static int cm_shutdown(struct fid_ep *fid, uint64_t flags)
{
	struct rp_ep *ep = active_ep(fid);

	if (!ep)
		return -FI_ENOSYS;
	rp_cm_set_connected(ep, false, 0);
	return fi_shutdown(ep->base, flags);
}

static int cm_listen(struct fid_pep *fid)
{
	struct fid_pep *base = passive_base(fid);

	return base ? fi_listen(base) : -FI_ENOSYS;
}

static int cm_reject(struct fid_pep *fid, fid_t handle, const void *param,
		     size_t paramlen)
{
	struct fid_pep *base = passive_base(fid);

	return base ? fi_reject(base, handle, param, paramlen) : -FI_ENOSYS;
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
};
