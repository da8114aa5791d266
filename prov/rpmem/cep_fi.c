// SPDX-License-Identifier: BSD-2-Clause
/* Connected endpoints of libfabric's own: FI_EP_MSG of the base. */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rpmem/cep.h"
#include "rpmem/host.h"
#include "rpmem/rpmem.h"

/* What all may have posted: the queue has room for that. */
#define POSTED 4096

struct rp_cep {
	LIST_ENTRY(rp_cep) link;
	struct fid_ep *ep;
	void *owner;
	bool verbs; /* which acknowledges nothing before it has arrived */
	struct sockaddr_storage to; /* where it is dialed */
};

struct rp_ceps {
	struct rp_dom *dom;
	LIST_HEAD(, rp_cep) all;
	struct fi_info *info; /* of the base's connected endpoints */
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_pep *pep; /* where one listens */
	bool waits;	     /* the queue wakes who sleeps */
	bool verbs;
};

static void close_fid(struct fid *fid)
{
	int ret = fi_close(fid);

	if (ret)
		RP_WARN(DOMAIN, "connections of our own: %s\n",
			fi_strerror(-ret));
}

/* Where it is the same device, address and fabric as the datagrams'. */
static bool fits(const struct rp_dom *dom, const struct fi_info *i)
{
	const struct fi_info *b = dom->base_info;
	const uint64_t caps =
		FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
	uint64_t order = i->tx_attr->msg_order;

	return i->ep_attr->type == FI_EP_MSG && !i->mode &&
	       (i->caps & FI_RMA) && !(~i->caps & FI_RMA & caps) &&
	       (order & (FI_ORDER_RAW | FI_ORDER_RMA_RAW)) &&
	       i->ep_attr->max_order_raw_size >= sizeof(uint64_t) &&
	       i->addr_format == b->addr_format &&
	       (i->addr_format == FI_SOCKADDR_IN ||
		i->addr_format == FI_SOCKADDR_IN6) &&
	       !strcmp(i->domain_attr->name, b->domain_attr->name) &&
	       !strcmp(i->fabric_attr->name, b->fabric_attr->name);
}

static struct fi_info *find_info(const struct rp_dom *dom)
{
	const struct fi_info *b = dom->base_info;
	struct fi_info *hints = fi_allocinfo(), *list = NULL, *i, *found = NULL;

	if (!hints)
		return NULL;
	hints->caps = FI_MSG | FI_RMA;
	hints->addr_format = b->addr_format;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				      FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = b->domain_attr->threading;
	hints->tx_attr->msg_order = FI_ORDER_RAW;
	if (!rp_info_msg(dom->fabric->version, dom->fabric->base_name, hints,
			 &list))
		for (i = list; i && !found; i = i->next)
			if (fits(dom, i))
				found = fi_dupinfo(i);
	fi_freeinfo(list);
	fi_freeinfo(hints);
	return found;
}

static struct rp_ceps *make(struct rp_dom *dom, struct rp_ceps_attr *attr)
{
	struct rp_ceps *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->dom = dom;
	s->info = find_info(dom);
	if (!s->info) {
		free(s);
		return NULL;
	}
	s->verbs = !strcasecmp(dom->fabric->base_name, "verbs");
	*attr = (struct rp_ceps_attr){
		.depth = (unsigned int)s->info->tx_attr->size,
		/* Answers are injected; and a receive is there for each. */
		.asks = s->info->tx_attr->inject_size >= RP_WIRE_INJECT &&
			s->info->rx_attr->size > RP_WIRE_LINKED,
		.native = rp_host_flush_flag(),
		.local = s->info->domain_attr->mr_mode & FI_MR_LOCAL,
		.virtual = s->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR,
	};
	return s;
}

static void destroy(struct rp_ceps *s)
{
	fi_freeinfo(s->info);
	free(s);
}

static int watch(int epfd, struct fid *fid)
{
	int fd, ret = fi_control(fid, FI_GETWAIT, &fd);

	return ret ? ret : rp_wait_watch(epfd, fd);
}

static int open_all(struct rp_ceps *s, const struct sockaddr *at, size_t len,
		    bool waits, int epfd)
{
	struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
	struct fi_cq_attr cq = {
		.size = POSTED,
		.format = FI_CQ_FORMAT_MSG,
		.wait_obj = waits ? FI_WAIT_FD : FI_WAIT_NONE,
	};
	int ret;

	s->waits = waits;
	free(s->info->src_addr);
	s->info->src_addrlen = len;
	s->info->src_addr = malloc(len);
	if (!s->info->src_addr)
		return -FI_ENOMEM;
	memcpy(s->info->src_addr, at, len);
	ret = fi_fabric(s->info->fabric_attr, &s->fabric, NULL);
	if (!ret)
		ret = fi_domain(s->fabric, s->info, &s->domain, NULL);
	if (!ret)
		ret = fi_eq_open(s->fabric, &eq, &s->eq, NULL);
	if (!ret)
		ret = fi_cq_open(s->domain, &cq, &s->cq, NULL);
	if (!ret)
		ret = watch(epfd, &s->eq->fid);
	if (!ret && waits)
		ret = watch(epfd, &s->cq->fid);
	return ret;
}

static int listen_at(struct rp_ceps *s, void *to, size_t *len)
{
	int ret = fi_passive_ep(s->fabric, s->info, &s->pep, NULL);

	if (!ret)
		ret = fi_pep_bind(s->pep, &s->eq->fid, 0);
	if (!ret)
		ret = fi_listen(s->pep);
	if (!ret)
		ret = fi_getname(&s->pep->fid, to, len);
	if (ret && s->pep) {
		close_fid(&s->pep->fid);
		s->pep = NULL;
	}
	return ret;
}

/* In the order of what needs what. */
static void shut(struct rp_ceps *s)
{
	if (s->pep)
		close_fid(&s->pep->fid);
	if (s->cq)
		close_fid(&s->cq->fid);
	if (s->domain)
		close_fid(&s->domain->fid);
	if (s->eq)
		close_fid(&s->eq->fid);
	if (s->fabric)
		close_fid(&s->fabric->fid);
	s->pep = NULL;
	s->cq = NULL;
	s->domain = NULL;
	s->eq = NULL;
	s->fabric = NULL;
}

static int reg(struct rp_ceps *s, void *buf, size_t len, uint64_t access,
	       struct rp_cep_mr *mr)
{
	struct fid_mr *m;
	uint64_t key = 0;
	int ret = 0;

	/* Who has the flag that FLUSHes needs no right. */
	access &= ~RP_CEP_FLUSHED;
	if (!(s->info->domain_attr->mr_mode & FI_MR_PROV_KEY))
		ret = rp_host_random(&key, s->info->domain_attr->mr_key_size < 8
						   ? 4
						   : sizeof(key));
	if (!ret)
		ret = fi_mr_reg(s->domain, buf, len, access, 0, key, 0, &m,
				NULL);
	if (ret)
		return ret;
	mr->handle = m;
	mr->desc = fi_mr_desc(m);
	mr->key = fi_mr_key(m);
	return 0;
}

static int dereg(struct rp_cep_mr *mr)
{
	struct fid_mr *m = mr->handle;

	return fi_close(&m->fid);
}

static void close_cep(struct rp_cep *cep)
{
	LIST_REMOVE(cep, link);
	if (cep->ep)
		fi_close(&cep->ep->fid);
	free(cep);
}

static int open_cep(struct rp_ceps *s, struct fi_info *info, void *owner,
		    struct rp_cep **out)
{
	struct rp_cep *cep = calloc(1, sizeof(*cep));
	int ret;

	if (!cep)
		return -FI_ENOMEM;
	cep->owner = owner;
	cep->verbs = s->verbs;
	LIST_INSERT_HEAD(&s->all, cep, link);
	ret = fi_endpoint(s->domain, info, &cep->ep, NULL);
	if (!ret)
		ret = fi_ep_bind(cep->ep, &s->eq->fid, 0);
	if (!ret)
		ret = fi_ep_bind(cep->ep, &s->cq->fid,
				 FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
	if (!ret)
		ret = fi_ep_bind(cep->ep, &s->cq->fid, FI_RECV);
	if (!ret)
		ret = fi_enable(cep->ep);
	if (ret)
		close_cep(cep);
	else
		*out = cep;
	return ret;
}

static int dial(struct rp_ceps *s, const struct sockaddr *to, size_t len,
		void *owner, struct rp_cep **cep)
{
	struct fi_info *info;
	int ret = -FI_ENOMEM;

	if (len > sizeof((*cep)->to))
		return -FI_EINVAL;
	info = fi_dupinfo(s->info);
	if (!info)
		return ret;
	free(info->dest_addr);
	info->dest_addr = malloc(len);
	if (info->dest_addr) {
		memcpy(info->dest_addr, to, len);
		info->dest_addrlen = len;
		ret = open_cep(s, info, owner, cep);
	}
	fi_freeinfo(info);
	if (!ret)
		memcpy(&(*cep)->to, to, len);
	return ret;
}

static int connect_cep(struct rp_cep *cep, const void *show, size_t len)
{
	return fi_connect(cep->ep, &cep->to, show, len);
}

static int take(struct rp_ceps *s, void *request, void *owner,
		struct rp_cep **cep)
{
	struct fi_info *info = request;
	int ret = open_cep(s, info, owner, cep);

	fi_freeinfo(info);
	return ret;
}

static int accept_cep(struct rp_cep *cep)
{
	return fi_accept(cep->ep, NULL, 0);
}

static void reject(struct rp_ceps *s, void *request)
{
	struct fi_info *info = request;

	fi_reject(s->pep, info->handle, NULL, 0);
	fi_freeinfo(info);
}

static int post_one(struct rp_cep *cep, const struct rp_cep_op *op)
{
	struct iovec iov = {.iov_base = op->buf, .iov_len = op->len};
	void *desc = op->desc;
	struct fi_rma_iov rma = {
		.addr = op->at, .len = op->len, .key = op->key};
	const struct fi_msg_rma m = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = op->kind != RP_CEP_FLUSH,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = op->context,
	};
	uint64_t flags = op->told ? FI_COMPLETION : 0;

	if (op->delivered && !cep->verbs)
		flags |= FI_DELIVERY_COMPLETE;
	switch (op->kind) {
	case RP_CEP_WRITE:
		return (int)fi_writemsg(cep->ep, &m, flags);
	case RP_CEP_READ:
		return (int)fi_readmsg(cep->ep, &m, flags);
	case RP_CEP_FLUSH:
		return (int)fi_readmsg(cep->ep, &m,
				       flags | rp_host_flush_flag());
	case RP_CEP_SEND:
		break;
	}
	if (op->copied)
		return (int)fi_inject(cep->ep, op->buf, op->len,
				      FI_ADDR_UNSPEC);
	return (int)fi_sendmsg(cep->ep,
			       &(struct fi_msg){.msg_iov = &iov,
						.desc = &desc,
						.iov_count = 1,
						.context = op->context},
			       flags);
}

static int post(struct rp_cep *cep, const struct rp_cep_op *ops, int n)
{
	int ret = 0, i = 0;

	while (i < n && !(ret = post_one(cep, &ops[i])))
		i++;
	return i ? i : ret;
}

static int post_recv(struct rp_ceps *s, struct rp_cep *cep, bool served,
		     void *buf, size_t len, void *desc, void *context)
{
	return (int)fi_recv(cep->ep, buf, len, desc, FI_ADDR_UNSPEC, context);
}

static int poll_cq(struct rp_ceps *s, struct rp_cep_done *done, int n)
{
	struct fi_cq_msg_entry e[16];
	struct fi_cq_err_entry err;
	ssize_t got = fi_cq_read(s->cq, e, n < 16 ? (size_t)n : 16);

	if (got == -FI_EAVAIL) {
		memset(&err, 0, sizeof(err));
		if (fi_cq_readerr(s->cq, &err, 0) != 1)
			return -FI_EOTHER;
		done[0] = (struct rp_cep_done){
			.context = err.op_context,
			.read = err.flags & FI_READ,
			.err = err.err ? err.err : FI_EIO,
		};
		return 1;
	}
	if (got < 0)
		return got == -FI_EAGAIN ? 0 : (int)got;
	for (ssize_t i = 0; i < got; i++)
		done[i] = (struct rp_cep_done){
			.context = e[i].op_context,
			.read = e[i].flags & FI_READ,
			.len = e[i].len,
		};
	return (int)got;
}

/* One that has been closed since may still have something to say. */
static void name_cep(const struct rp_ceps *s, const struct fid *fid,
		     struct rp_cep_event *e)
{
	struct rp_cep *cep;

	LIST_FOREACH (cep, &s->all, link)
		if (cep->ep && &cep->ep->fid == fid)
			break;
	e->cep = cep;
	e->owner = cep ? cep->owner : NULL;
}

static bool read_event(struct rp_ceps *s, struct rp_cep_event *e)
{
	union {
		struct fi_eq_cm_entry e;
		char room[sizeof(struct fi_eq_cm_entry) + 512];
	} buf;
	struct fi_eq_err_entry err = {0};
	uint32_t event;
	ssize_t n = fi_eq_read(s->eq, &event, &buf, sizeof(buf), 0);

	*e = (struct rp_cep_event){.what = RP_CEP_OVER};
	if (n == -FI_EAVAIL) {
		if (fi_eq_readerr(s->eq, &err, 0) < 0)
			return false;
		name_cep(s, err.fid, e);
		return true;
	}
	if (n < (ssize_t)sizeof(buf.e))
		return false;
	if (event == FI_CONNREQ) {
		e->what = RP_CEP_REQUESTED;
		e->request = buf.e.info;
		e->shown_len = (size_t)n - sizeof(buf.e);
		if (e->shown_len > sizeof(e->shown))
			e->shown_len = sizeof(e->shown);
		memcpy(e->shown, buf.e.data, e->shown_len);
		return true;
	}
	name_cep(s, buf.e.fid, e);
	if (event == FI_CONNECTED)
		e->what = RP_CEP_CONNECTED;
	else if (event != FI_SHUTDOWN)
		e->cep = NULL; /* nothing that concerns it */
	return true;
}

static int trywait(struct rp_ceps *s)
{
	struct fid *fids[2] = {&s->eq->fid, &s->cq->fid};

	return fi_trywait(s->fabric, fids, s->waits ? 2 : 1);
}

const struct rp_cep_ops rp_cep_fi = {
	.make = make,
	.destroy = destroy,
	.open = open_all,
	.listen = listen_at,
	.shut = shut,
	.reg = reg,
	.dereg = dereg,
	.dial = dial,
	.connect = connect_cep,
	.take = take,
	.accept = accept_cep,
	.reject = reject,
	.close = close_cep,
	.post = post,
	.recv = post_recv,
	.poll = poll_cq,
	.event = read_event,
	.trywait = trywait,
};
