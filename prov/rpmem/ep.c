// SPDX-License-Identifier: BSD-2-Clause
/* Endpoints of the base, with private connections for persistent regions. */
#include <stdlib.h>

#include "rpmem/cm.h"
#include "rpmem/ext.h"

/* msg_order bits that make messages wait for persistent writes or reads. */
#define ORDER_MSG (uint64_t)(FI_ORDER_SAW | FI_ORDER_SAR)
/* msg_order bits that make the base's RMA wait for persistent operations. */
#define ORDER_RMA                                                              \
	(uint64_t)(FI_ORDER_WAW | FI_ORDER_RAW | FI_ORDER_RMA_WAW |            \
		   FI_ORDER_RMA_RAW | FI_ORDER_ATOMIC_WAW |                    \
		   FI_ORDER_ATOMIC_RAW)

int rp_ep_check_order(struct fid_ep *fid, fi_addr_t dest)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);
	struct rp_dom *dom = ep->dom;
	int ret = 0;

	if (!rp_dom_is_live(dom))
		return 0;
	pthread_mutex_lock(&dom->lock);
	if (ep->dests)
		ret = rp_private_check_order(ep, dest);
	if (ret == -FI_EAGAIN)
		rp_domain_progress(dom);
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

void rp_ep_release(struct rp_ep *ep)
{
	for (int i = 0; i < RP_CNTR_KINDS; i++)
		if (ep->cntr[i])
			atomic_fetch_sub(&ep->cntr[i]->refs, 1);
	if (ep->tx_cq)
		atomic_fetch_sub(&ep->tx_cq->refs, 1);
	if (ep->rx_cq)
		atomic_fetch_sub(&ep->rx_cq->refs, 1);
	if (ep->av)
		atomic_fetch_sub(&ep->av->refs, 1);
	atomic_fetch_sub(&ep->dom->refs, 1);
	free(ep);
}

static int ep_close(struct fid *fid)
{
	struct rp_ep *ep = rp_ep_of(fid);
	struct rp_dom *dom = ep->dom;
	int ret;

	pthread_mutex_lock(&dom->lock);
	rp_private_close_ep(ep);
	rp_target_close_peer(ep);
	rp_local_close_ep(ep);
	ret = fi_close(&ep->base->fid);
	if (ret) {
		pthread_mutex_unlock(&dom->lock);
		return ret;
	}
	LIST_REMOVE(ep, link);
	if (ep->tx_cq)
		ep->tx_cq->base_trywait_unsafe |= !dom->is_msg;
	if (ep->rx_cq)
		ep->rx_cq->base_trywait_unsafe |= !dom->is_msg;
	if (ep->cntr[RP_CNTR_REMOTE_WRITE])
		dom->nremote_cntrs--;
	pthread_mutex_unlock(&dom->lock);
	rp_eq_del_fid_pair(&ep->fid_pair);
	rp_ep_release(ep);
	return 0;
}

static int bind_cq(struct rp_ep *ep, struct fid *fid, uint64_t flags)
{
	struct rp_cq *cq = rp_container_of(fid, struct rp_cq, fid.fid);
	int ret;

	if (!rp_fid_is_cq(fid) || cq->dom != ep->dom)
		return -FI_EINVAL;
	ret = fi_ep_bind(ep->base, &cq->base->fid, flags);
	if (ret)
		return ret;
	if (flags & FI_TRANSMIT) {
		ep->tx_cq = cq;
		ep->selective = flags & FI_SELECTIVE_COMPLETION;
		atomic_fetch_add(&cq->refs, 1);
	}
	if (flags & FI_RECV) {
		ep->rx_cq = cq;
		atomic_fetch_add(&cq->refs, 1);
	}
	return 0;
}

static const uint64_t cntr_flags[RP_CNTR_KINDS] = {
	[RP_CNTR_SEND] = FI_SEND,
	[RP_CNTR_RECV] = FI_RECV,
	[RP_CNTR_READ] = FI_READ,
	[RP_CNTR_WRITE] = FI_WRITE,
	[RP_CNTR_REMOTE_READ] = FI_REMOTE_READ,
	[RP_CNTR_REMOTE_WRITE] = FI_REMOTE_WRITE,
};

/* Refuse FI_REMOTE_WRITE counters where the base would miss writes of peers. */
static int bind_remote_cntr(struct rp_dom *dom, bool counts)
{
	int ret = 0;

	if (!counts)
		return 0;
	pthread_mutex_lock(&dom->lock);
	if (dom->npersistent_mrs || dom->is_msg)
		ret = -FI_EOPNOTSUPP;
	else
		dom->nremote_cntrs++;
	pthread_mutex_unlock(&dom->lock);
	if (ret)
		RP_WARN(EP_CTRL, "FI_REMOTE_WRITE counters are not offered in "
				 "a domain with persistent regions, or of "
				 "connected endpoints\n");
	return ret;
}

static int bind_cntr(struct rp_ep *ep, struct fid *fid, uint64_t flags)
{
	struct rp_cntr *c = rp_container_of(fid, struct rp_cntr, fid.fid);
	bool remote = flags & FI_REMOTE_WRITE;
	int ret;

	if (!rp_fid_is_cntr(fid) || c->dom != ep->dom ||
	    (remote && ep->cntr[RP_CNTR_REMOTE_WRITE]))
		return -FI_EINVAL;
	ret = bind_remote_cntr(ep->dom, remote);
	if (ret)
		return ret;
	ret = fi_ep_bind(ep->base, &c->base->fid, flags);
	if (ret) {
		pthread_mutex_lock(&ep->dom->lock);
		ep->dom->nremote_cntrs -= remote;
		pthread_mutex_unlock(&ep->dom->lock);
		return ret;
	}
	for (int i = 0; i < RP_CNTR_KINDS; i++) {
		if (!(flags & cntr_flags[i]) || ep->cntr[i])
			continue;
		ep->cntr[i] = c;
		atomic_fetch_add(&c->refs, 1);
	}
	return 0;
}

static int bind_av(struct rp_ep *ep, struct fid *fid, uint64_t flags)
{
	struct rp_av *av = rp_container_of(fid, struct rp_av, fid.fid);
	int ret;

	if (ep->av || av->dom != ep->dom)
		return -FI_EINVAL;
	ret = fi_ep_bind(ep->base, &av->base->fid, flags);
	if (ret)
		return ret;
	ep->av = av;
	atomic_fetch_add(&av->refs, 1);
	return 0;
}

static int ep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct rp_ep *ep = rp_ep_of(fid);

	switch (bfid->fclass) {
	case FI_CLASS_CQ:
		return bind_cq(ep, bfid, flags);
	case FI_CLASS_CNTR:
		return bind_cntr(ep, bfid, flags);
	case FI_CLASS_AV:
		return bind_av(ep, bfid, flags);
	case FI_CLASS_SRX_CTX:
		return fi_ep_bind(ep->base, &rp_ep_of(bfid)->base->fid, flags);
	case FI_CLASS_EQ:
		/* RDM endpoints have no events: bind no event queue. */
		return ep->dom->is_msg ? fi_ep_bind(ep->base, bfid, flags) : 0;
	default:
		return -FI_ENOSYS;
	}
}

static int enable_ep(struct rp_ep *ep)
{
	int ret;

	if (!ep->dom->is_msg && !ep->av)
		return -FI_ENOAV;
	ret = fi_enable(ep->base);
	if (!ret)
		ep->enabled = true;
	return ret;
}

static void set_forward_below(struct rp_ep *ep)
{
	if ((ep->op_flags & FI_COMMIT_COMPLETE) || (ep->msg_order & ORDER_RMA))
		ep->forward_below = 0;
	else
		ep->forward_below =
			ep->dom->makes_keys ? RP_KEY_MARK : UINT64_MAX;
}

static int set_op_flags(struct rp_ep *ep, const uint64_t *arg)
{
	uint64_t flags = *arg & ~FI_COMMIT_COMPLETE;
	int ret = *arg & FI_RECV ? rp_ep_check_msg_flags(*arg) : 0;

	if (!ret)
		ret = fi_control(&ep->base->fid, FI_SETOPSFLAG, &flags);
	if (!ret && (flags & FI_TRANSMIT))
		ep->op_flags = *arg & ~FI_TRANSMIT;
	set_forward_below(ep);
	return ret;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct rp_ep *ep = rp_ep_of(fid);
	int ret;

	switch (command) {
	case FI_ENABLE:
		return enable_ep(ep);
	case FI_GETOPSFLAG:
		ret = fi_control(&ep->base->fid, command, arg);
		if (!ret && (*(uint64_t *)arg & FI_TRANSMIT))
			*(uint64_t *)arg |= ep->op_flags & FI_COMMIT_COMPLETE;
		return ret;
	case FI_SETOPSFLAG:
		return set_op_flags(ep, arg);
	default:
		return -FI_ENOSYS;
	}
}

static struct fi_ops ep_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = ep_close,
	.bind = ep_bind,
	.control = ep_control,
	.ops_open = rp_ext_ops_open,
};

static ssize_t ep_cancel(fid_t fid, void *context)
{
	return fi_cancel(rp_fid_base(fid), context);
}

static int ep_getopt(fid_t fid, int level, int optname, void *optval,
		     size_t *optlen)
{
	return fi_getopt(rp_fid_base(fid), level, optname, optval, optlen);
}

static int ep_setopt(fid_t fid, int level, int optname, const void *optval,
		     size_t optlen)
{
	int class;

	if (level != FI_OPT_ENDPOINT || optname != FI_OPT_RPMEM_CLASS ||
	    fid->fclass != FI_CLASS_EP)
		return fi_setopt(rp_fid_base(fid), level, optname, optval,
				 optlen);
	if (!optval || optlen != sizeof(enum fi_rpmem_class))
		return -FI_EINVAL;
	class = rp_class_decode(*(const enum fi_rpmem_class *)optval,
				rp_params.required);
	if (class < 0)
		return class;
	rp_ep_of(fid)->required = (enum rp_class) class;
	return 0;
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

/* Passive endpoints use this table, too: calls with a fid_t work for both. */
struct fi_ops_ep rp_ep_ops = {
	.size = sizeof(struct fi_ops_ep),
	.cancel = ep_cancel,
	.getopt = ep_getopt,
	.setopt = ep_setopt,
	.tx_ctx = no_ctx_tx,
	.rx_ctx = no_ctx_rx,
	.rx_size_left = no_size_left,
	.tx_size_left = no_size_left,
};

/* Free a converted fi_info, but not its handle, which the program owns. */
static void free_base_info(struct fi_info *b)
{
	if (b)
		b->handle = NULL;
	fi_freeinfo(b);
}

/* Make the fi_info to open the base's endpoint: the program's, converted. */
static struct fi_info *base_ep_info(struct rp_dom *dom,
				    const struct fi_info *info)
{
	const struct fi_info *of = dom->base_info;
	struct fi_info *b =
		rp_info_to_base(info, dom->is_msg ? FI_EP_MSG : FI_EP_RDM,
				of->fabric_attr->prov_name);

	if (!b)
		return NULL;
	b->domain_attr->mr_mode = of->domain_attr->mr_mode;
	b->domain_attr->mr_key_size = of->domain_attr->mr_key_size;
	b->domain_attr->data_progress = of->domain_attr->data_progress;
	b->domain_attr->threading = of->domain_attr->threading;
	b->ep_attr->mem_tag_format = of->ep_attr->mem_tag_format;
	b->domain_attr->domain = dom->base;
	b->handle = rp_pep_to_base(info->handle);
	return b;
}

static void set_ops(struct rp_ep *ep)
{
	ep->fid.fid.ops = &ep_fid_ops;
	ep->fid.ops = &rp_ep_ops;
	ep->fid.cm = &rp_cm_ops;
	ep->fid.msg = &rp_msg_ops;
	/* The base verbs has no tagged calls. */
	ep->fid.tagged = ep->base->tagged ? &rp_tagged_ops : NULL;
	ep->fid.rma = &rp_rma_ops;
	ep->fid.atomic = ep->base->atomic ? &rp_atomic_ops : NULL;
}

int rp_ep_open(struct fid_domain *domain, struct fi_info *info,
	       struct fid_ep **out, void *context)
{
	struct rp_dom *dom = rp_container_of(domain, struct rp_dom, fid);
	enum fi_ep_type type = dom->is_msg ? FI_EP_MSG : FI_EP_RDM;
	struct fi_info *b;
	struct rp_ep *ep;
	int ret;

	if (info->ep_attr && info->ep_attr->type != type &&
	    info->ep_attr->type != FI_EP_UNSPEC)
		return -FI_EINVAL;
	if (info->rx_attr && rp_ep_check_msg_flags(info->rx_attr->op_flags))
		return -FI_EOPNOTSUPP;
	ep = calloc(1, sizeof(*ep));
	b = base_ep_info(dom, info);
	if (!ep || !b) {
		free(ep);
		free_base_info(b);
		return -FI_ENOMEM;
	}
	ep->dom = dom;
	if (info->tx_attr) {
		ep->op_flags = info->tx_attr->op_flags;
		ep->msg_order = info->tx_attr->msg_order;
		ep->orders_messages = ep->msg_order & ORDER_MSG;
	}
	set_forward_below(ep);
	ep->mark =
		dom->makes_keys ? RP_KEY_MARK >> RP_KEY_MARK_SHIFT : UINT64_MAX;
	ep->inject_size = dom->base_info->tx_attr->inject_size;
	/* Longer bytes would need RDMA, and their copy a desc. */
	if (dom->base_info->domain_attr->mr_mode & FI_MR_LOCAL &&
	    ep->inject_size > RP_WIRE_MAX_STORE)
		ep->inject_size = RP_WIRE_MAX_STORE;
	ep->required = rp_params.required;
	if (rp_params.commit_writes && ep->dom->makes_keys)
		ep->implicit_flags = FI_COMMIT_COMPLETE;
	ret = fi_endpoint(dom->base, b, &ep->base, context);
	free_base_info(b);
	if (ret) {
		free(ep);
		return ret;
	}
	ep->fid.fid.fclass = FI_CLASS_EP;
	ep->fid.fid.context = context;
	set_ops(ep);
	if (dom->is_msg)
		rp_eq_add_fid_pair(&ep->fid_pair, &ep->base->fid, &ep->fid.fid);
	pthread_mutex_lock(&dom->lock);
	LIST_INSERT_HEAD(&dom->eps, ep, link);
	pthread_mutex_unlock(&dom->lock);
	atomic_fetch_add(&dom->refs, 1);
	*out = &ep->fid;
	return 0;
}
