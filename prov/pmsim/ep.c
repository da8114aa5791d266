// SPDX-License-Identifier: BSD-2-Clause
/* Endpoints: open, bind, address, close. */
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>

#include "pmsim/pmsim_int.h"

static struct ps_ep *ep_of(struct fid *fid)
{
	return ps_container_of(fid, struct ps_ep, fid.fid);
}

static void match_init(struct ps_match *q)
{
	TAILQ_INIT(&q->posted);
	TAILQ_INIT(&q->unexpected);
	TAILQ_INIT(&q->claimed);
}

static void msgs_free(struct ps_msgs *list)
{
	struct ps_msg *msg;

	while ((msg = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, msg, link);
		free(msg);
	}
}

static void match_fini(struct ps_match *q)
{
	struct ps_rx *rx;

	while ((rx = TAILQ_FIRST(&q->posted))) {
		TAILQ_REMOVE(&q->posted, rx, link);
		free(rx);
	}
	msgs_free(&q->unexpected);
	msgs_free(&q->claimed);
}

/* Drop messages that arrived for ep and were not received. */
static void forget_arrived(struct ps_ep *ep, struct ps_msgs *list)
{
	struct ps_msg *msg, *next;

	for (msg = TAILQ_FIRST(list); msg; msg = next) {
		next = TAILQ_NEXT(msg, link);
		if (msg->to != ep)
			continue;
		TAILQ_REMOVE(list, msg, link);
		if (ep->connected && msg->rx)
			TAILQ_INSERT_TAIL(&ep->msg.posted, msg->rx, link);
		else
			free(msg->rx);
		free(msg);
	}
}

static void push_canceled(struct ps_ep *ep, struct ps_rx *rx)
{
	const struct fi_cq_err_entry e = {
		.op_context = rx->context,
		.flags = FI_RECV | FI_MSG,
		.err = FI_ECANCELED,
		.prov_errno = FI_ECANCELED,
	};

	if (ep->rx_cq)
		ps_cq_push(ep->rx_cq, &e, FI_ADDR_NOTAVAIL);
}

/*
 * Complete a connected endpoint's operations and receives as canceled, when it
 * is closed, even in a killed process: the program gets its buffers back.
 */
static void cancel_all(struct ps_ep *ep)
{
	struct ps_op *op;
	struct ps_rx *rx;

	while ((op = TAILQ_FIRST(&ep->ops)))
		ps_op_complete(op, FI_ECANCELED, 0);
	TAILQ_FOREACH (rx, &ep->msg.posted, link)
		push_canceled(ep, rx);
	match_fini(&ep->msg);
	match_fini(&ep->tagged);
}

void ps_ep_teardown(struct ps_ep *ep)
{
	struct ps_op *op;

	if (ep->dead)
		return;
	ep->dead = true;
	if (ep->enabled && !ep->connected)
		HASH_DEL(ps_sim.eps, ep);
	ps_wires_drop(ep);
	if (ep->connected)
		ps_conn_end(ep);
	forget_arrived(ep, &ep->dom->machine->arrived);
	forget_arrived(ep, &ep->dom->machine->reads);
	if (ep->connected)
		return;
	while ((op = TAILQ_FIRST(&ep->ops)))
		ps_op_free(op);
	match_fini(&ep->msg);
	match_fini(&ep->tagged);
}

static int ep_close(struct fid *fid)
{
	struct ps_ep *ep = ep_of(fid);

	ps_ep_teardown(ep);
	if (ep->connected)
		cancel_all(ep);
	if (ep->eq)
		ep->eq->refs--;
	if (ep->av)
		ep->av->refs--;
	if (ep->tx_cq)
		ep->tx_cq->refs--;
	if (ep->rx_cq)
		ep->rx_cq->refs--;
	for (int i = 0; i < PS_EV_MAX; i++)
		if (ep->cntr[i])
			ep->cntr[i]->refs--;
	LIST_REMOVE(ep, link);
	ps_breaks_free(ep);
	ep->dom->refs--;
	free(ep);
	return 0;
}

static int bind_cq(struct ps_ep *ep, struct ps_cq *cq, uint64_t flags)
{
	if (cq->dom != ep->dom || !(flags & (FI_TRANSMIT | FI_RECV)) ||
	    (flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION)) ||
	    ((flags & FI_TRANSMIT) && ep->tx_cq) ||
	    ((flags & FI_RECV) && ep->rx_cq))
		return -FI_EINVAL;
	if (flags & FI_TRANSMIT) {
		ep->tx_cq = cq;
		ep->tx_selective = flags & FI_SELECTIVE_COMPLETION;
		cq->refs++;
	}
	if (flags & FI_RECV) {
		ep->rx_cq = cq;
		ep->rx_selective = flags & FI_SELECTIVE_COMPLETION;
		cq->refs++;
	}
	return 0;
}

static int bind_cntr(struct ps_ep *ep, struct ps_cntr *c, uint64_t flags)
{
	static const uint64_t bits[PS_EV_MAX] = {
		[PS_EV_SEND] = FI_SEND,
		[PS_EV_RECV] = FI_RECV,
		[PS_EV_READ] = FI_READ,
		[PS_EV_WRITE] = FI_WRITE,
		[PS_EV_REMOTE_READ] = FI_REMOTE_READ,
		[PS_EV_REMOTE_WRITE] = FI_REMOTE_WRITE,
	};
	uint64_t known = 0;

	for (int i = 0; i < PS_EV_MAX; i++)
		known |= bits[i];
	if (!flags || (flags & ~known) || c->dom != ep->dom)
		return -FI_EINVAL;
	for (int i = 0; i < PS_EV_MAX; i++) {
		if (!(flags & bits[i]) || ep->cntr[i] == c)
			continue;
		if (ep->cntr[i])
			return -FI_EINVAL;
		ep->cntr[i] = c;
		c->refs++;
	}
	return 0;
}

static int ep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct ps_ep *ep = ep_of(fid);
	struct ps_av *av;

	if (ep->enabled)
		return -FI_EOPBADSTATE;
	switch (bfid->fclass) {
	case FI_CLASS_CQ:
		return bind_cq(ep, ps_container_of(bfid, struct ps_cq, fid.fid),
			       flags);
	case FI_CLASS_CNTR:
		return bind_cntr(ep,
				 ps_container_of(bfid, struct ps_cntr, fid.fid),
				 flags);
	case FI_CLASS_AV:
		av = ps_container_of(bfid, struct ps_av, fid.fid);
		if (ep->av || av->dom != ep->dom)
			return -FI_EINVAL;
		ep->av = av;
		av->refs++;
		return 0;
	case FI_CLASS_EQ:
		if (!ep->connected)
			return 0;
		if (ep->eq)
			return -FI_EINVAL;
		ep->eq = ps_container_of(bfid, struct ps_eq, fid.fid);
		ep->eq->refs++;
		return 0;
	default:
		return -FI_EINVAL;
	}
}

static struct ps_ep *find_endpoint(uint32_t number)
{
	struct ps_ep *ep;

	HASH_FIND(hh, ps_sim.eps, &number, sizeof(number), ep);
	return ep;
}

static int ep_enable(struct ps_ep *ep)
{
	if (ep->dead)
		return -FI_ESHUTDOWN;
	if (ep->enabled)
		return -FI_EOPBADSTATE;
	if (!ep->av && !ep->connected)
		return -FI_ENOAV;
	if (!ep->tx_cq && !ep->rx_cq)
		return -FI_ENOCQ;
	if (ep->connected) {
		ep->enabled = ep->eq;
		return ep->eq ? 0 : -FI_ENOEQ;
	}
	if (find_endpoint(ep->addr.number))
		return -FI_EADDRINUSE;
	HASH_ADD(hh, ps_sim.eps, addr.number, sizeof(ep->addr.number), ep);
	ep->enabled = true;
	return 0;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct ps_ep *ep = ep_of(fid);
	uint64_t *flags = arg;

	switch (command) {
	case FI_ENABLE:
		return ep_enable(ep);
	case FI_GETOPSFLAG:
		if (*flags & FI_TRANSMIT)
			*flags = ep->tx_flags;
		else if (*flags & FI_RECV)
			*flags = ep->rx_flags;
		else
			return -FI_EINVAL;
		return 0;
	case FI_SETOPSFLAG:
		if (*flags & FI_TRANSMIT)
			ep->tx_flags = *flags & ~FI_TRANSMIT;
		else if (*flags & FI_RECV)
			ep->rx_flags = *flags & ~FI_RECV;
		else
			return -FI_EINVAL;
		return 0;
	default:
		return -FI_ENOSYS;
	}
}

static struct fi_ops ep_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = ep_close,
	.bind = ep_bind,
	.control = ep_control,
	.ops_open = ps_no_ops_open,
};

static bool cancel(struct ps_match *q, void *context)
{
	struct fi_cq_err_entry e = {
		.op_context = context,
		.err = FI_ECANCELED,
		.prov_errno = FI_ECANCELED,
	};
	struct ps_rx *rx;

	TAILQ_FOREACH (rx, &q->posted, link) {
		if (rx->context != context)
			continue;
		TAILQ_REMOVE(&q->posted, rx, link);
		rx->ep->nrx--;
		e.flags = FI_RECV | (q == &rx->ep->tagged ? FI_TAGGED : FI_MSG);
		if (rx->ep->rx_cq)
			ps_cq_push(rx->ep->rx_cq, &e, FI_ADDR_NOTAVAIL);
		ps_ep_count(rx->ep, PS_EV_RECV, FI_ECANCELED);
		free(rx);
		return true;
	}
	return false;
}

/* Cancel a posted receive; sent messages cannot be canceled. */
static ssize_t ep_cancel(fid_t fid, void *context)
{
	struct ps_ep *ep = ep_of(fid);

	if (!cancel(&ep->msg, context))
		cancel(&ep->tagged, context);
	return 0;
}

static int ep_getopt(fid_t fid, int level, int optname, void *optval,
		     size_t *optlen)
{
	if (level != FI_OPT_ENDPOINT || optname != FI_OPT_CM_DATA_SIZE ||
	    !ep_of(fid)->connected)
		return -FI_ENOPROTOOPT;
	if (*optlen < sizeof(size_t))
		return -FI_ETOOSMALL;
	*optlen = sizeof(size_t);
	*(size_t *)optval = PS_CM_DATA;
	return 0;
}

static int no_setopt(fid_t fid, int level, int optname, const void *optval,
		     size_t optlen)
{
	return -FI_ENOPROTOOPT;
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

static ssize_t rx_size_left(struct fid_ep *fid)
{
	return PS_QUEUE_SIZE - (ssize_t)ps_ep_of(fid)->nrx;
}

static ssize_t tx_size_left(struct fid_ep *fid)
{
	return PS_QUEUE_SIZE - (ssize_t)ps_ep_of(fid)->nops;
}

static struct fi_ops_ep ep_ops = {
	.size = sizeof(struct fi_ops_ep),
	.cancel = ep_cancel,
	.getopt = ep_getopt,
	.setopt = no_setopt,
	.tx_ctx = no_ctx_tx,
	.rx_ctx = no_ctx_rx,
	.rx_size_left = rx_size_left,
	.tx_size_left = tx_size_left,
};

/* Set the address: a restarted program takes that of its predecessor. */
static int cm_setname(fid_t fid, void *addr, size_t addrlen)
{
	struct ps_ep *ep = ep_of(fid);

	if (ep->enabled)
		return -FI_EOPBADSTATE;
	if (addrlen != sizeof(ep->addr) || !ps_addr_valid(addr))
		return -FI_EINVAL;
	memcpy(&ep->addr, addr, sizeof(ep->addr));
	return 0;
}

static int cm_getname(fid_t fid, void *addr, size_t *addrlen)
{
	size_t room = *addrlen;

	*addrlen = sizeof(struct ps_addr);
	memcpy(addr, &ep_of(fid)->addr, room < *addrlen ? room : *addrlen);
	return room < *addrlen ? -FI_ETOOSMALL : 0;
}

static int no_listen(struct fid_pep *pep)
{
	return -FI_ENOSYS;
}

static int no_reject(struct fid_pep *pep, fid_t handle, const void *param,
		     size_t paramlen)
{
	return -FI_ENOSYS;
}

static int no_join(struct fid_ep *fid, const void *addr, uint64_t flags,
		   struct fid_mc **mc, void *context)
{
	return -FI_ENOSYS;
}

static struct fi_ops_cm cm_ops = {
	.size = sizeof(struct fi_ops_cm),
	.setname = cm_setname,
	.getname = cm_getname,
	.getpeer = ps_getpeer,
	.connect = ps_connect,
	.listen = no_listen,
	.accept = ps_accept,
	.reject = no_reject,
	.shutdown = ps_shutdown,
	.join = no_join,
};

/*
 * Set ep->addr: the requested address, else the next free one. Connected
 * endpoints of one machine differ only in the port.
 */
static int set_address(struct ps_ep *ep, const struct fi_info *info)
{
	uint32_t number;

	/* An accepted endpoint has its listener's address, not a unique one. */
	if (ep->connected && info->handle) {
		ep->accepts = info->handle;
		ps_conn_set_name(ep);
		return 0;
	}
	if (info->src_addr && !ep->connected) {
		if (info->src_addrlen != sizeof(ep->addr) ||
		    !ps_addr_valid(info->src_addr))
			return -FI_EINVAL;
		memcpy(&ep->addr, info->src_addr, sizeof(ep->addr));
		return 0;
	}
	do {
		number = ++ps_sim.last_number;
	} while (!(uint16_t)number ||
		 (!ep->connected && find_endpoint(number)));
	if (!ep->connected) {
		ps_addr_make(number, &ep->addr);
		return 0;
	}
	ps_addr_make(UINT32_MAX - ep->dom->machine->id, &ep->addr);
	ep->addr.port = htons((uint16_t)number);
	return 0;
}

int ps_ep_open(struct fid_domain *domain, struct fi_info *info,
	       struct fid_ep **out, void *context)
{
	struct ps_dom *dom = ps_container_of(domain, struct ps_dom, fid);
	struct ps_ep *ep;
	enum fi_ep_type type = info->ep_attr ? info->ep_attr->type : 0;
	int ret;

	if (type != FI_EP_RDM && type != FI_EP_UNSPEC &&
	    !(type == FI_EP_MSG && ps_sim.cfg.offers_msg))
		return -FI_EINVAL;
	if (dom->dead)
		return -FI_ESHUTDOWN;
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return -FI_ENOMEM;
	ep->connected = type == FI_EP_MSG;
	ep->dom = dom;
	ret = set_address(ep, info);
	if (ret) {
		free(ep);
		return ret;
	}
	dom->refs++;
	ep->directed = info->caps & FI_DIRECTED_RECV;
	ep->tx_flags = info->tx_attr ? info->tx_attr->op_flags : 0;
	ep->rx_flags = info->rx_attr ? info->rx_attr->op_flags : 0;
	TAILQ_INIT(&ep->ops);
	LIST_INIT(&ep->wires);
	match_init(&ep->msg);
	match_init(&ep->tagged);
	LIST_INSERT_HEAD(&dom->eps, ep, link);
	ep->fid.fid.fclass = FI_CLASS_EP;
	ep->fid.fid.context = context;
	ep->fid.fid.ops = &ep_fid_ops;
	ep->fid.ops = &ep_ops;
	ep->fid.cm = &cm_ops;
	ep->fid.msg = &ps_msg_ops;
	ep->fid.tagged = &ps_tagged_ops;
	ep->fid.rma = &ps_rma_ops;
	ep->fid.atomic = &ps_atomic_ops;
	*out = &ep->fid;
	return 0;
}
