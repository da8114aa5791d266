// SPDX-License-Identifier: BSD-2-Clause
/* Endpoints: reliable datagrams over the base's, and connected ones. */
#include <stdlib.h>
#include <string.h>

#include "rpmem/cm.h"
#include "rpmem/conn.h"

static struct rp_ep *ep_of(struct fid *fid)
{
	return rp_container_of(fid, struct rp_ep, fid.fid);
}

/* The base may still hold contexts of ours: they come home through the CQ. */
static void abandon_slots(struct rp_ep *ep)
{
	struct rp_slot *s, *next;

	for (s = LIST_FIRST(&ep->dom->slots.used); s; s = next) {
		next = LIST_NEXT(s, link);
		if (s->ep != ep)
			continue;
		for (unsigned int i = 0; i < s->nwrites && !s->written; i++)
			rp_write_done(&s->write[i], FI_ECANCELED);
		if (s->kind == RP_SLOT_FENCE)
			rp_fence_done(s->fence, FI_ECANCELED);
		if (s->kind == RP_SLOT_SEND)
			rp_xport_unsend(s);
		if (s->kind == RP_SLOT_WRITE)
			free(s->buf);
		s->kind = RP_SLOT_DEAD;
		s->ep = NULL;
	}
}

static void release_cntrs(struct rp_ep *ep)
{
	for (int i = 0; i < RP_CNTR_KINDS; i++)
		if (ep->cntr[i])
			atomic_fetch_sub(&ep->cntr[i]->refs, 1);
}

static int ep_close(struct fid *fid)
{
	struct rp_ep *ep = ep_of(fid);
	struct rp_dom *dom = ep->dom;
	int ret;

	pthread_mutex_lock(&dom->fabric->cm_lock);
	pthread_mutex_lock(&dom->lock);
	/* Commits end with an error entry while there is a CQ to tell. */
	if (ep->initiator) {
		rp_gather_close(ep);
		rp_initiator_shut(ep->initiator);
	}
	rp_agent_drop_xport(dom->agent, &ep->xport);
	rp_local_abandon(ep);
	if (ep->handle)
		rp_asked_keep(dom->fabric, ep->handle, NULL);
	ep->handle = NULL;
	ret = fi_close(&ep->base->fid);
	if (ret) {
		pthread_mutex_unlock(&dom->lock);
		pthread_mutex_unlock(&dom->fabric->cm_lock);
		return ret;
	}
	ep->dead = true;
	ep->connected = false;
	ep->bare = false;
	if (ep->tx_cq)
		ep->tx_cq->no_trywait |= !dom->msg;
	if (ep->rx_cq)
		ep->rx_cq->no_trywait |= !dom->msg;
	/* Without anything hidden, what is there is left for the program. */
	if (ep->tx_cq && atomic_load(&dom->live))
		rp_cq_drain(ep->tx_cq);
	if (ep->rx_cq && ep->rx_cq != ep->tx_cq && atomic_load(&dom->live))
		rp_cq_drain(ep->rx_cq);
	abandon_slots(ep);
	/* Every write has ended now, one way or the other. */
	if (ep->initiator)
		rp_initiator_delete(ep->initiator);
	ep->initiator = NULL;
	rp_gather_free(ep);
	LIST_REMOVE(ep, link);
	rp_mail_close(ep);
	if (dom->msg)
		LIST_REMOVE(ep, msg_link);
	if (ep->cntr[RP_CNTR_REMOTE_WRITE])
		dom->nremote--;
	pthread_mutex_unlock(&dom->lock);
	pthread_mutex_unlock(&dom->fabric->cm_lock);
	release_cntrs(ep);
	rp_xport_free(ep);
	if (ep->tx_cq)
		atomic_fetch_sub(&ep->tx_cq->refs, 1);
	if (ep->rx_cq)
		atomic_fetch_sub(&ep->rx_cq->refs, 1);
	if (ep->av)
		atomic_fetch_sub(&ep->av->refs, 1);
	if (ep->own_cq)
		fi_close(&ep->own_cq->fid.fid);
	atomic_fetch_sub(&dom->refs, 1);
	free(ep);
	return 0;
}

/*
 * The base learns of the queues when the endpoint is enabled: between the two
 * it would be driven half made by whoever reads the queue, a thread of ours
 * among them (ofi_rxm 1.17 crashes).
 */
static int bind_cq(struct rp_ep *ep, struct rp_cq *cq, uint64_t flags)
{
	if (cq->dom != ep->dom || ep->enabled ||
	    !(flags & (FI_TRANSMIT | FI_RECV)) ||
	    (flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION)))
		return -FI_EINVAL;
	if (((flags & FI_TRANSMIT) && ep->tx_cq) ||
	    ((flags & FI_RECV) && ep->rx_cq))
		return -FI_EINVAL;
	if (flags & FI_TRANSMIT) {
		ep->tx_cq = cq;
		ep->selective = flags & FI_SELECTIVE_COMPLETION;
		atomic_fetch_add(&cq->refs, 1);
	}
	if (flags & FI_RECV) {
		ep->rx_cq = cq;
		ep->rx_selective = flags & FI_SELECTIVE_COMPLETION;
		atomic_fetch_add(&cq->refs, 1);
	}
	return 0;
}

static int bind_base_cqs(struct rp_ep *ep)
{
	uint64_t tx = FI_TRANSMIT, rx = FI_RECV;
	int ret;

	if (ep->selective)
		tx |= FI_SELECTIVE_COMPLETION;
	if (ep->rx_selective)
		rx |= FI_SELECTIVE_COMPLETION;
	ret = fi_ep_bind(ep->base, &ep->tx_cq->base->fid, tx);
	return ret ? ret : fi_ep_bind(ep->base, &ep->rx_cq->base->fid, rx);
}

static const uint64_t cntr_flags[RP_CNTR_KINDS] = {
	[RP_CNTR_SEND] = FI_SEND,
	[RP_CNTR_RECV] = FI_RECV,
	[RP_CNTR_READ] = FI_READ,
	[RP_CNTR_WRITE] = FI_WRITE,
	[RP_CNTR_REMOTE_READ] = FI_REMOTE_READ,
	[RP_CNTR_REMOTE_WRITE] = FI_REMOTE_WRITE,
};

/* Like queues: the base learns of them when the endpoint is enabled. */
static int bind_cntr(struct rp_ep *ep, struct rp_cntr *c, uint64_t flags)
{
	struct rp_dom *dom = ep->dom;
	uint64_t known = 0;
	int ret = 0;

	for (int i = 0; i < RP_CNTR_KINDS; i++) {
		known |= cntr_flags[i];
		if ((flags & cntr_flags[i]) && ep->cntr[i])
			return -FI_EINVAL;
	}
	if (c->dom != dom || ep->enabled || !flags || (flags & ~known))
		return -FI_EINVAL;
	pthread_mutex_lock(&dom->lock);
	if ((flags & FI_REMOTE_WRITE) && (dom->npmem || dom->msg)) {
		/* The base counts a write before it is durable; and mail. */
		RP_WARN(EP_CTRL, "FI_REMOTE_WRITE counters are not offered in "
				 "a domain with persistent regions, or of "
				 "connected endpoints\n");
		ret = -FI_EOPNOTSUPP;
		goto unlock;
	}
	if (flags & FI_REMOTE_WRITE)
		dom->nremote++;
	for (int i = 0; i < RP_CNTR_KINDS; i++) {
		if (!(flags & cntr_flags[i]))
			continue;
		ep->cntr[i] = c;
		atomic_fetch_add(&c->refs, 1);
	}
	atomic_store(&dom->counted, true);
	atomic_store(&dom->watched, true);
unlock:
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

static int bind_base_cntrs(struct rp_ep *ep)
{
	int ret = 0;

	for (int i = 0; i < RP_CNTR_KINDS && !ret; i++)
		if (ep->cntr[i])
			ret = fi_ep_bind(ep->base, &ep->cntr[i]->base->fid,
					 cntr_flags[i]);
	return ret;
}

static bool has_cntr(const struct rp_ep *ep)
{
	for (int i = 0; i < RP_CNTR_KINDS; i++)
		if (ep->cntr[i])
			return true;
	return false;
}

static int ep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct rp_ep *ep = ep_of(fid);
	struct rp_av *av;
	int ret;

	switch (bfid->fclass) {
	case FI_CLASS_CQ:
		return bind_cq(ep, rp_container_of(bfid, struct rp_cq, fid.fid),
			       flags);
	case FI_CLASS_SRX_CTX:
		return fi_ep_bind(ep->base, bfid, flags);
	case FI_CLASS_AV:
		av = rp_container_of(bfid, struct rp_av, fid.fid);
		if (ep->av || av->dom != ep->dom)
			return -FI_EINVAL;
		ret = fi_ep_bind(ep->base, &av->base->fid, flags);
		if (ret)
			return ret;
		ep->av = av;
		atomic_fetch_add(&av->refs, 1);
		rp_ep_straighten(ep);
		return 0;
	case FI_CLASS_EQ:
		ep->eq = rp_container_of(bfid, struct fid_eq, fid);
		/* A layered base reports nothing there (ofi_rxm). */
		return ep->dom->base_fabric != ep->dom->fabric->direct
			       ? 0
			       : fi_ep_bind(ep->base, bfid, flags);
	case FI_CLASS_CNTR:
		return bind_cntr(ep,
				 rp_container_of(bfid, struct rp_cntr, fid.fid),
				 flags);
	default:
		return -FI_ENOSYS;
	}
}

/* A direction that the program does not use still carries our messages. */
static int bind_own_cq(struct rp_ep *ep, uint64_t flags)
{
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_MSG};
	struct fid_cq *cq;
	int ret;

	if (!ep->own_cq) {
		ret = rp_cq_open(&ep->dom->fid, &attr, &cq, NULL);
		if (ret)
			return ret;
		ep->own_cq = rp_container_of(cq, struct rp_cq, fid);
		ep->own_cq->unread = true;
	}
	/* Nobody wants the program's, and none is made without a flag. */
	return bind_cq(ep, ep->own_cq, flags | FI_SELECTIVE_COMPLETION);
}

/* Where mailboxes are told nobody asks for it; it is no name, then. */
static int name_of(struct rp_ep *ep)
{
	ep->addr_len = sizeof(short);
	if (ep->dom->cards)
		return 0;
	ep->addr_len = sizeof(ep->addr);
	return fi_getname(&ep->base->fid, ep->addr, &ep->addr_len);
}

int rp_ep_enable(struct rp_ep *ep)
{
	int ret;

	if (!ep->av)
		return -FI_ENOAV;
	if (!ep->tx_cq && !ep->rx_cq && !has_cntr(ep))
		return -FI_ENOCQ;
	if (!ep->tx_cq) {
		ret = bind_own_cq(ep, FI_TRANSMIT);
		if (ret)
			return ret;
	}
	if (!ep->rx_cq) {
		ret = bind_own_cq(ep, FI_RECV);
		if (ret)
			return ret;
	}
	pthread_mutex_lock(&ep->dom->lock);
	ret = bind_base_cqs(ep);
	if (!ret)
		ret = bind_base_cntrs(ep);
	if (!ret)
		ret = fi_enable(ep->base);
	if (!ret)
		ret = name_of(ep);
	if (ret)
		goto unlock;
	ep->enabled = true;
	ep->tx_cq->av = ep->av;
	ep->rx_cq->av = ep->av;
	if (ep->dom->npmem)
		ret = rp_xport_activate(ep, true);
	/* A thread asleep does not know the endpoint yet. */
	if (ep->dom->auto_progress)
		rp_domain_kick(ep->dom);
unlock:
	pthread_mutex_unlock(&ep->dom->lock);
	return ret;
}

void rp_ep_straighten(struct rp_ep *ep)
{
	ep->straight = ep->av && !ep->av->to_base && !rp_ep_commits(ep);
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct rp_ep *ep = ep_of(fid);
	uint64_t flags;
	int ret;

	switch (command) {
	case FI_ENABLE:
		return rp_ep_enable(ep);
	case FI_GETOPSFLAG:
		ret = fi_control(&ep->base->fid, command, arg);
		if (!ret && (*(uint64_t *)arg & FI_TRANSMIT))
			*(uint64_t *)arg |= ep->op_flags & FI_COMMIT_COMPLETE;
		return ret;
	case FI_SETOPSFLAG:
		flags = *(uint64_t *)arg;
		if (flags & FI_TRANSMIT)
			flags &= ~FI_COMMIT_COMPLETE;
		ret = fi_control(&ep->base->fid, command, &flags);
		if (!ret && (flags & FI_TRANSMIT))
			ep->op_flags = *(uint64_t *)arg & ~FI_TRANSMIT;
		rp_ep_straighten(ep);
		return ret;
	default:
		return -FI_ENOSYS;
	}
}

static int ep_ops_open(struct fid *fid, const char *name, uint64_t flags,
		       void **ops, void *context)
{
	if (flags)
		return -FI_EBADFLAGS;
	if (strcmp(name, FI_RPMEM_OPS_1))
		return -FI_ENOSYS;
	*ops = &rp_ext_ops;
	return 0;
}

static struct fi_ops ep_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = ep_close,
	.bind = ep_bind,
	.control = ep_control,
	.ops_open = ep_ops_open,
};

static ssize_t ep_cancel(fid_t fid, void *context)
{
	return fi_cancel(&ep_of(fid)->base->fid, context);
}

static int ep_getopt(fid_t fid, int level, int optname, void *optval,
		     size_t *optlen)
{
	int ret = fi_getopt(&ep_of(fid)->base->fid, level, optname, optval,
			    optlen);

	return ret || !ep_of(fid)->dom->cards
		       ? ret
		       : rp_cm_opt(level, optname, optval);
}

static int ep_setopt(fid_t fid, int level, int optname, const void *optval,
		     size_t optlen)
{
	return fi_setopt(&ep_of(fid)->base->fid, level, optname, optval,
			 optlen);
}

static int no_ctx_tx(struct fid_ep *sep, int index, struct fi_tx_attr *attr,
		     struct fid_ep **tx_ep, void *context)
{
	return -FI_ENOSYS;
}

static int no_ctx_rx(struct fid_ep *sep, int index, struct fi_rx_attr *attr,
		     struct fid_ep **rx_ep, void *context)
{
	return -FI_ENOSYS;
}

static ssize_t no_size_left(struct fid_ep *fid)
{
	return -FI_ENOSYS;
}

static struct fi_ops_ep ep_ops = {
	.size = sizeof(struct fi_ops_ep),
	.cancel = ep_cancel,
	.getopt = ep_getopt,
	.setopt = ep_setopt,
	.tx_ctx = no_ctx_tx,
	.rx_ctx = no_ctx_rx,
	.rx_size_left = no_size_left,
	.tx_size_left = no_size_left,
};

static int cm_setname(fid_t fid, void *addr, size_t addrlen)
{
	return fi_setname(&ep_of(fid)->base->fid, addr, addrlen);
}

static int cm_getname(fid_t fid, void *addr, size_t *addrlen)
{
	return fi_getname(&ep_of(fid)->base->fid, addr, addrlen);
}

static int cm_getpeer(struct fid_ep *fid, void *addr, size_t *addrlen)
{
	return -FI_ENOSYS;
}

static int cm_connect(struct fid_ep *fid, const void *addr, const void *param,
		      size_t paramlen)
{
	return -FI_ENOSYS;
}

static int cm_listen(struct fid_pep *pep)
{
	return -FI_ENOSYS;
}

static int cm_accept(struct fid_ep *fid, const void *param, size_t paramlen)
{
	return -FI_ENOSYS;
}

static int cm_reject(struct fid_pep *pep, fid_t handle, const void *param,
		     size_t paramlen)
{
	return -FI_ENOSYS;
}

static int cm_shutdown(struct fid_ep *fid, uint64_t flags)
{
	return -FI_ENOSYS;
}

static int cm_join(struct fid_ep *fid, const void *addr, uint64_t flags,
		   struct fid_mc **mc, void *context)
{
	return -FI_ENOSYS;
}

static struct fi_ops_cm cm_ops = {
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

/* The handle is the program's. */
static void free_base_info(struct fi_info *b)
{
	if (b)
		b->handle = NULL;
	fi_freeinfo(b);
}

/* The base's description of its endpoint, with what the program changed. */
static struct fi_info *base_ep_info(struct rp_dom *dom,
				    const struct fi_info *info)
{
	struct fi_info *b =
		dom->msg ? rp_info_msg_to_base(info, dom->fabric->base_name)
			 : rp_info_to_base(info);

	if (!b)
		return NULL;
	if (!dom->msg)
		rp_info_for_rxm(b, dom->fabric->base_name);
	free(b->fabric_attr->prov_name);
	b->fabric_attr->prov_name =
		strdup(dom->base_info->fabric_attr->prov_name);
	b->domain_attr->mr_mode = dom->base_info->domain_attr->mr_mode;
	b->domain_attr->mr_key_size = dom->base_info->domain_attr->mr_key_size;
	b->domain_attr->data_progress =
		dom->base_info->domain_attr->data_progress;
	b->domain_attr->threading = dom->base_info->domain_attr->threading;
	b->ep_attr->mem_tag_format = dom->base_info->ep_attr->mem_tag_format;
	b->domain_attr->domain = dom->base;
	if (!b->fabric_attr->prov_name) {
		free_base_info(b);
		return NULL;
	}
	return b;
}

static enum fi_ep_type ep_type(const struct rp_dom *dom)
{
	return dom->msg ? FI_EP_MSG : FI_EP_RDM;
}

int rp_ep_open(struct fid_domain *domain, struct fi_info *info,
	       struct fid_ep **out, void *context)
{
	struct rp_dom *dom = rp_container_of(domain, struct rp_dom, fid);
	struct fi_info *b;
	struct rp_ep *ep;
	int ret;

	if (info->ep_attr && info->ep_attr->type != ep_type(dom) &&
	    info->ep_attr->type != FI_EP_UNSPEC)
		return -FI_EINVAL;
	ep = calloc(1, sizeof(*ep));
	b = base_ep_info(dom, info);
	if (!ep || !b) {
		free(ep);
		free_base_info(b);
		return -FI_ENOMEM;
	}
	ep->dom = dom;
	ep->handle = dom->cards ? info->handle : NULL;
	ep->op_flags = info->tx_attr ? info->tx_attr->op_flags : 0;
	ep->keeps_waw = info->tx_attr && (info->tx_attr->msg_order &
					  (FI_ORDER_WAW | FI_ORDER_RMA_WAW));
	ep->keeps_order =
		(info->caps & FI_FENCE) ||
		(info->tx_attr && (info->tx_attr->msg_order & RP_ORDER_ACROSS));
	/* A store in a mailbox waits there until somebody looks. */
	ep->keeps_waw |= dom->msg && ep->keeps_order;
	ep->inject_size = dom->base_info->tx_attr->inject_size;
	ep->required = rp_params.required;
	if (rp_params.commit_writes && ep->dom->marked)
		ep->unasked = FI_COMMIT_COMPLETE;
	ep->xport.ops = dom->msg ? &rp_mail_ops : &rp_xport_ops;
	ret = fi_endpoint(dom->base, b, &ep->base, context);
	free_base_info(b);
	if (ret) {
		free(ep);
		return ret;
	}
	ep->fid.fid.fclass = FI_CLASS_EP;
	ep->fid.fid.context = context;
	ep->fid.fid.ops = &ep_fid_ops;
	ep->fid.ops = &ep_ops;
	ep->fid.cm = dom->msg ? &rp_cm_ops : &cm_ops;
	ep->fid.msg = &rp_msg_ops;
	/* verbs has none, and no functions for them. */
	ep->fid.tagged = ep->base->tagged ? &rp_tagged_ops : NULL;
	ep->fid.rma = dom->marked ? &rp_rma_ops : &rp_rma_raw_ops;
	ep->fid.atomic = ep->base->atomic ? &rp_atomic_ops : NULL;
	pthread_mutex_lock(&dom->fabric->cm_lock);
	pthread_mutex_lock(&dom->lock);
	LIST_INSERT_HEAD(&dom->eps, ep, link);
	if (dom->msg) {
		LIST_INSERT_HEAD(&dom->fabric->msg_eps, ep, msg_link);
		ep->av = &rp_cm_av;
		atomic_fetch_add(&rp_cm_av.refs, 1);
		rp_ep_straighten(ep);
	}
	pthread_mutex_unlock(&dom->lock);
	pthread_mutex_unlock(&dom->fabric->cm_lock);
	atomic_fetch_add(&dom->refs, 1);
	*out = &ep->fid;
	return 0;
}
