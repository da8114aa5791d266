// SPDX-License-Identifier: BSD-2-Clause
/*
 * Queue pairs of our own, connected by librdmacm: a write and what follows it
 * go to the device in one call, and all connections share their receives.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "core/hash.h"
#include "rpmem/cep.h"
#include "rpmem/cep_verbs_flush.h"
#include "rpmem/rpmem.h"

/* Operations of one queue pair; each so often one is told, to make room. */
#define DEPTH 64
#define EACH  8
/* Of all queue pairs, and messages: what the completion queue has room for. */
#define CQ_SIZE	 8192
#define SRQ_SIZE 1024
/* Reads that one queue pair has under way. */
#define READS 16
/* How long to look for the way to an address. */
#define RESOLVE_MS 2000
/* 10 us until a message is sent again that nobody had a receive for. */
#define RNR_TIMER 1
#define BACKLOG	  64

enum role {
	DIALED,
	TAKEN,
	ROLES,
};

/* What is under way on a queue pair; lies in a ring, in order. */
struct wr {
	struct rp_cep *cep;
	void *context;
	unsigned int ends; /* how many that are posted are done with it */
};

struct rp_cep {
	LIST_ENTRY(rp_cep) link; /* of set->dying */
	struct rp_ceps *set;
	struct rdma_cm_id *id; /* NULL: it is closed */
	struct ibv_qp *qp;
	uint32_t num; /* of qp */
	void *owner;
	unsigned int posted; /* and not yet known to be done */
	unsigned int next;   /* in the ring */
	unsigned int untold; /* since the last that will be told */
	uint8_t reads;	     /* that the peer asks for */
	uint8_t show[16];
	uint8_t show_len;
	struct wr ring[DEPTH];
	UT_hash_handle hh; /* of set->all, by num */
};

struct rp_ceps {
	struct rp_dom *dom;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *root; /* bound to our address; listens */
	struct ibv_pd *pd;
	struct ibv_comp_channel *wake; /* NULL: nobody sleeps */
	struct ibv_cq *cq;
	struct ibv_srq *srq[ROLES];
	struct rp_cep *all;
	LIST_HEAD(, rp_cep) dying; /* their entries may still be in the queue */
	unsigned int under_way;	   /* of CQ_SIZE */
	unsigned int cq_size;
	int max_reads, max_read_atomic;
	bool native; /* queue pairs are made for FLUSH */
	/* Found as the queue was armed: read before what is in it. */
	struct ibv_wc kept[16];
	int nkept;
};

static int minus(int ret)
{
	return ret ? -(errno ? errno : EIO) : 0;
}

static struct rp_ceps *make(struct rp_dom *dom, struct rp_ceps_attr *attr)
{
	const uint32_t format = dom->base_info->addr_format;
	struct rp_ceps *s;

	if (format != FI_SOCKADDR_IN && format != FI_SOCKADDR_IN6)
		return NULL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->dom = dom;
	s->native = rp_params.native &&
		    rp_verbs_flushes(dom->base_info->domain_attr->name);
	*attr = (struct rp_ceps_attr){
		.depth = DEPTH,
		.native = s->native,
		.asks = true,
		.local = true,
		.virtual = true,
		.shared = true,
	};
	return s;
}

static void destroy(struct rp_ceps *s)
{
	free(s);
}

static int no_wait(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 ? -errno
			 : minus(fcntl(fd, F_SETFL, flags | O_NONBLOCK));
}

static int open_cm(struct rp_ceps *s, const struct sockaddr *at, int epfd)
{
	int ret;

	s->channel = rdma_create_event_channel();
	if (!s->channel)
		return -errno;
	ret = no_wait(s->channel->fd);
	if (!ret)
		ret = rp_wait_watch(epfd, s->channel->fd);
	if (!ret)
		ret = minus(rdma_create_id(s->channel, &s->root, NULL,
					   RDMA_PS_TCP));
	if (!ret)
		ret = minus(rdma_bind_addr(s->root, (struct sockaddr *)at));
	if (ret)
		return ret;
	/* The address may be of no RDMA device, or of another than the base's.
	 */
	return s->root->verbs && !strcmp(ibv_get_device_name(
						 s->root->verbs->device),
					 s->dom->base_info->domain_attr->name)
		       ? 0
		       : -ENODEV;
}

static int smaller(int a, int b)
{
	return a < b ? a : b;
}

static int open_queues(struct rp_ceps *s, bool waits, int epfd)
{
	struct ibv_context *verbs = s->root->verbs;
	struct ibv_device_attr dev;
	struct ibv_srq_init_attr srq = {.attr = {.max_sge = 1}};
	int ret = ibv_query_device(verbs, &dev);

	if (ret)
		return -ret;
	s->max_reads = smaller(READS, dev.max_qp_init_rd_atom);
	s->max_read_atomic = smaller(READS, dev.max_qp_rd_atom);
	s->pd = ibv_alloc_pd(verbs);
	if (!s->pd)
		return -errno;
	if (waits) {
		s->wake = ibv_create_comp_channel(verbs);
		if (!s->wake)
			return -errno;
		ret = no_wait(s->wake->fd);
		if (!ret)
			ret = rp_wait_watch(epfd, s->wake->fd);
		if (ret)
			return ret;
	}
	s->cq = ibv_create_cq(verbs, smaller(CQ_SIZE, dev.max_cqe), NULL,
			      s->wake, 0);
	if (!s->cq)
		return -errno;
	s->cq_size = (unsigned int)s->cq->cqe;
	srq.attr.max_wr = (uint32_t)smaller(SRQ_SIZE, dev.max_srq_wr);
	for (int i = 0; i < ROLES; i++) {
		s->srq[i] = ibv_create_srq(s->pd, &srq);
		if (!s->srq[i])
			return -errno;
	}
	return 0;
}

static int open_all(struct rp_ceps *s, const struct sockaddr *at, size_t len,
		    bool waits, int epfd)
{
	int ret = open_cm(s, at, epfd);

	return ret ? ret : open_queues(s, waits, epfd);
}

static int listen_at(struct rp_ceps *s, void *to, size_t *len)
{
	struct sockaddr *at = rdma_get_local_addr(s->root);
	size_t size = at->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						: sizeof(struct sockaddr_in);

	if (size > *len || rdma_listen(s->root, BACKLOG))
		return size > *len ? -EINVAL : -errno;
	memcpy(to, at, size);
	*len = size;
	return 0;
}

static void reap(struct rp_ceps *s)
{
	struct rp_cep *cep;

	while ((cep = LIST_FIRST(&s->dying))) {
		LIST_REMOVE(cep, link);
		s->under_way -= cep->posted;
		free(cep);
	}
}

static void say(const char *what, int ret)
{
	if (ret)
		RP_WARN(DOMAIN, "connections of our own: %s: %s\n", what,
			strerror(ret < 0 ? errno : ret));
}

/* In the order of what needs what. */
static void shut(struct rp_ceps *s)
{
	for (int i = 0; i < ROLES; i++)
		if (s->srq[i])
			say("ibv_destroy_srq", ibv_destroy_srq(s->srq[i]));
	if (s->cq)
		say("ibv_destroy_cq", ibv_destroy_cq(s->cq));
	if (s->wake)
		say("ibv_destroy_comp_channel",
		    ibv_destroy_comp_channel(s->wake));
	if (s->pd)
		say("ibv_dealloc_pd", ibv_dealloc_pd(s->pd));
	if (s->root)
		say("rdma_destroy_id", rdma_destroy_id(s->root));
	if (s->channel)
		rdma_destroy_event_channel(s->channel);
	reap(s);
	*s = (struct rp_ceps){.dom = s->dom, .native = s->native};
}

static int reg(struct rp_ceps *s, void *buf, size_t len, uint64_t access,
	       struct rp_cep_mr *mr)
{
	int may = 0;
	struct ibv_mr *m;

	if (access & (FI_READ | FI_RECV | FI_REMOTE_WRITE))
		may |= IBV_ACCESS_LOCAL_WRITE;
	if (access & FI_REMOTE_WRITE)
		may |= IBV_ACCESS_REMOTE_WRITE;
	if (access & FI_REMOTE_READ)
		may |= IBV_ACCESS_REMOTE_READ;
	if (access & RP_CEP_FLUSHED)
		may |= RP_VERBS_ACCESS_FLUSH;
	m = ibv_reg_mr(s->pd, buf, len, may);
	if (!m)
		return -errno;
	mr->handle = m;
	mr->desc = m;
	mr->key = m->rkey;
	return 0;
}

static int dereg(struct rp_cep_mr *mr)
{
	return -ibv_dereg_mr(mr->handle);
}

static struct rp_cep *new_cep(struct rp_ceps *s, void *owner)
{
	struct rp_cep *cep = calloc(1, sizeof(*cep));

	if (cep) {
		cep->set = s;
		cep->owner = owner;
	}
	return cep;
}

static void close_cep(struct rp_cep *cep)
{
	struct rp_ceps *s = cep->set;

	if (cep->qp) {
		HASH_DEL(s->all, cep);
		rdma_disconnect(cep->id); /* it need not be connected */
		rdma_destroy_qp(cep->id);
	}
	if (cep->id) {
		cep->id->context = NULL;
		say("rdma_destroy_id", rdma_destroy_id(cep->id));
	}
	cep->qp = NULL;
	cep->id = NULL;
	LIST_INSERT_HEAD(&s->dying, cep, link);
}

static int make_qp(struct rp_cep *cep, enum role role)
{
	struct rp_ceps *s = cep->set;
	struct ibv_qp_init_attr attr = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.srq = s->srq[role],
		.cap =
			{
				.max_send_wr = DEPTH,
				.max_send_sge = 1,
				.max_inline_data = RP_WIRE_INJECT,
			},
		.qp_type = IBV_QPT_RC,
	};
	bool oom = false;

	/* The address may lead to another device than all this is of. */
	if (cep->id->verbs != s->root->verbs)
		return -ENODEV;
	if (s->native ? rp_verbs_make_qp(cep->id, s->pd, &attr)
		      : rdma_create_qp(cep->id, s->pd, &attr))
		return -errno;
	cep->qp = cep->id->qp;
	cep->num = cep->qp->qp_num;
	HASH_ADD(hh, s->all, num, sizeof(cep->num), cep);
	if (oom) {
		rdma_destroy_qp(cep->id);
		cep->qp = NULL;
		return -ENOMEM;
	}
	return 0;
}

static int dial(struct rp_ceps *s, const struct sockaddr *to, size_t len,
		void *owner, struct rp_cep **out)
{
	struct rp_cep *cep = new_cep(s, owner);
	struct sockaddr_storage from, there;
	struct sockaddr *at = rdma_get_local_addr(s->root);
	int ret;

	if (!cep || len > sizeof(there)) {
		free(cep);
		return cep ? -EINVAL : -ENOMEM;
	}
	memcpy(&there, to, len);
	memcpy(&from, at, len);
	/* In the same place for both families: any. */
	((struct sockaddr_in *)&from)->sin_port = 0;
	ret = minus(rdma_create_id(s->channel, &cep->id, cep, RDMA_PS_TCP));
	if (!ret)
		ret = minus(rdma_resolve_addr(cep->id, (struct sockaddr *)&from,
					      (struct sockaddr *)&there,
					      RESOLVE_MS));
	if (ret)
		close_cep(cep);
	else
		*out = cep;
	return ret;
}

/* The rest follows as events tell how far it has come. */
static int connect_cep(struct rp_cep *cep, const void *show, size_t len)
{
	if (len > sizeof(cep->show))
		return -EINVAL;
	memcpy(cep->show, show, len);
	cep->show_len = (uint8_t)len;
	return 0;
}

static int go_on(struct rp_cep *cep, enum rdma_cm_event_type event)
{
	struct rdma_conn_param p = {
		.private_data = cep->show,
		.private_data_len = cep->show_len,
		.initiator_depth = (uint8_t)cep->set->max_reads,
		.responder_resources = 1,
		.retry_count = 7,
		.rnr_retry_count = 7, /* for ever: see RNR_TIMER */
	};
	int ret;

	if (event == RDMA_CM_EVENT_ADDR_RESOLVED)
		return minus(rdma_resolve_route(cep->id, RESOLVE_MS));
	ret = make_qp(cep, DIALED);
	return ret ? ret : minus(rdma_connect(cep->id, &p));
}

static int take(struct rp_ceps *s, void *request, void *owner,
		struct rp_cep **out)
{
	struct rdma_cm_id *id = request;
	struct rp_cep *cep = new_cep(s, owner);
	int ret;

	if (!cep) {
		rdma_destroy_id(id);
		return -ENOMEM;
	}
	cep->reads = (uint8_t)(uintptr_t)id->context;
	cep->id = id;
	id->context = cep;
	ret = make_qp(cep, TAKEN);
	if (ret)
		close_cep(cep);
	else
		*out = cep;
	return ret;
}

static int accept_cep(struct rp_cep *cep)
{
	struct rdma_conn_param p = {
		.responder_resources =
			(uint8_t)smaller(cep->reads, cep->set->max_read_atomic),
		.initiator_depth = 1,
		.rnr_retry_count = 7,
	};

	int ret = minus(rdma_accept(cep->id, &p));

	return ret || !cep->set->native ? ret : rp_verbs_allow(cep->qp);
}

static void reject(struct rp_ceps *s, void *request)
{
	struct rdma_cm_id *id = request;

	rdma_reject(id, NULL, 0);
	rdma_destroy_id(id);
}

/* Both ends: who has no receive left is asked again soon. */
static void established(struct rp_cep *cep)
{
	struct ibv_qp_attr attr = {.min_rnr_timer = RNR_TIMER};

	/* What it was is slow, and no more than that. */
	ibv_modify_qp(cep->qp, &attr, IBV_QP_MIN_RNR_TIMER);
}

static enum ibv_wr_opcode opcode(enum rp_cep_kind kind)
{
	return kind == RP_CEP_WRITE   ? IBV_WR_RDMA_WRITE
	       : kind == RP_CEP_READ  ? IBV_WR_RDMA_READ
	       : kind == RP_CEP_FLUSH ? (enum ibv_wr_opcode)RP_VERBS_WR_FLUSH
				      : IBV_WR_SEND;
}

static void fill(struct rp_cep *cep, const struct rp_cep_op *op, bool told,
		 struct wr *wr, struct ibv_send_wr *to, struct ibv_sge *sge)
{
	const struct ibv_mr *mr = op->desc;

	cep->untold++;
	*wr = (struct wr){.cep = cep, .context = op->context};
	*sge = (struct ibv_sge){
		.addr = (uintptr_t)op->buf,
		.length = (uint32_t)op->len,
		.lkey = mr && !op->copied ? mr->lkey : 0,
	};
	*to = (struct ibv_send_wr){
		.wr_id = (uintptr_t)wr,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = opcode(op->kind),
		.wr.rdma = {.remote_addr = op->at, .rkey = (uint32_t)op->key},
	};
	if (op->copied)
		to->send_flags |= IBV_SEND_INLINE;
	if (!told)
		return;
	to->send_flags |= IBV_SEND_SIGNALED;
	wr->ends = cep->untold;
	cep->untold = 0;
}

#define MAX_POST 4

static int post(struct rp_cep *cep, const struct rp_cep_op *ops, int n)
{
	const unsigned int untold = cep->untold, next = cep->next;
	struct rp_ceps *s = cep->set;
	struct ibv_send_wr wrs[MAX_POST], *bad;
	struct ibv_sge sges[MAX_POST];
	bool flushes = false;
	int ret, done = n;

	if (!cep->qp || n > MAX_POST)
		return -FI_ENOTCONN;
	/* Every one may come back, if only to say that it failed. */
	if (cep->posted + (unsigned int)n > DEPTH ||
	    s->under_way + (unsigned int)n > s->cq_size)
		return -FI_EAGAIN;
	for (int i = 0; i < n; i++) {
		bool told = ops[i].told || cep->untold >= EACH - 1;

		fill(cep, &ops[i], told, &cep->ring[cep->next], &wrs[i],
		     &sges[i]);
		cep->next = (cep->next + 1) % DEPTH;
		flushes |= ops[i].kind == RP_CEP_FLUSH;
		if (i)
			wrs[i - 1].next = &wrs[i];
	}
	/* There is no other way to ask for a FLUSH. */
	bad = wrs;
	ret = flushes ? rp_verbs_post(cep->qp, wrs)
		      : ibv_post_send(cep->qp, wrs, &bad);
	if (ret)
		done = (int)(bad - wrs);
	cep->posted += (unsigned int)done;
	s->under_way += (unsigned int)done;
	if (done)
		return done; /* if not all, the caller gives it up */
	cep->untold = untold;
	cep->next = next;
	return ret == ENOMEM ? -FI_EAGAIN : -ret;
}

/* Contexts of receives are odd, as conn.h has it; a struct wr is not. */
static int post_recv(struct rp_ceps *s, struct rp_cep *cep, bool served,
		     void *buf, size_t len, void *desc, void *context)
{
	const struct ibv_mr *mr = desc;
	struct ibv_sge sge = {(uintptr_t)buf, (uint32_t)len, mr->lkey};
	struct ibv_recv_wr wr = {
		.wr_id = (uintptr_t)context, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;
	int ret = ibv_post_srq_recv(s->srq[served ? TAKEN : DIALED], &wr, &bad);

	s->under_way += !ret;
	return -ret;
}

static struct rp_cep *find(const struct rp_ceps *s, uint32_t num)
{
	struct rp_cep *cep;

	HASH_FIND(hh, s->all, &num, sizeof(num), cep);
	return cep;
}

/* How errors of the device are called in C. */
static int errno_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return 0;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_LOC_PROT_ERR:
		return EACCES;
	case IBV_WC_RETRY_EXC_ERR:
		return ETIMEDOUT;
	case IBV_WC_WR_FLUSH_ERR:
		return ECANCELED;
	default:
		return EIO;
	}
}

/* False: nobody need hear of it. */
static bool tell(struct rp_ceps *s, const struct ibv_wc *wc,
		 struct rp_cep_done *d)
{
	struct wr *wr = (struct wr *)(uintptr_t)wc->wr_id;
	struct rp_cep *cep;

	*d = (struct rp_cep_done){.err = errno_of(wc->status)};
	if (wc->wr_id & 1) {
		s->under_way--;
		cep = find(s, wc->qp_num);
		d->context = wr;
		d->owner = cep ? cep->owner : NULL;
		d->len = d->err ? 0 : wc->byte_len;
		return true;
	}
	cep = wr->cep;
	d->context = wr->context;
	d->owner = cep->qp ? cep->owner : NULL;
	d->read = !d->err && (wc->opcode == IBV_WC_RDMA_READ ||
			      (int)wc->opcode == RP_VERBS_WC_FLUSH);
	/* After the first error all come back, each for itself. */
	if (d->err)
		wr->ends = 1;
	cep->posted -= wr->ends;
	s->under_way -= wr->ends;
	return d->context || d->err;
}

static int poll_cq(struct rp_ceps *s, struct rp_cep_done *done, int n)
{
	struct ibv_wc own[16], *wc = own;
	int got = s->nkept, told = 0;

	if (got) {
		wc = s->kept;
		s->nkept = 0;
	} else {
		got = ibv_poll_cq(s->cq, smaller(n, 16), own);
	}
	if (got < 0)
		return -FI_EIO;
	if (!got)
		reap(s);
	for (int i = 0; i < got; i++)
		told += tell(s, &wc[i], &done[told]);
	/* 0 would say that there is nothing. */
	if (got && !told)
		return poll_cq(s, done, n);
	return told;
}

static void turn(struct rp_ceps *s, struct rp_cep *cep,
		 enum rdma_cm_event_type event, struct rp_cep_event *e)
{
	e->cep = cep;
	e->owner = cep->owner;
	e->what = RP_CEP_OVER;
	switch (event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (!go_on(cep, event))
			e->cep = NULL;
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		established(cep);
		e->what = RP_CEP_CONNECTED;
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		e->cep = NULL;
		break;
	default:
		RP_INFO(EP_CTRL, "a connection of our own: %s\n",
			rdma_event_str(event));
	}
}

static bool read_event(struct rp_ceps *s, struct rp_cep_event *e)
{
	struct rdma_cm_event *ev;
	enum rdma_cm_event_type event;
	struct rdma_cm_id *id;

	*e = (struct rp_cep_event){.what = RP_CEP_OVER};
	if (rdma_get_cm_event(s->channel, &ev))
		return false;
	event = ev->event;
	id = ev->id;
	if (event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		e->what = RP_CEP_REQUESTED;
		e->request = id;
		e->shown_len = ev->param.conn.private_data_len;
		if (e->shown_len > sizeof(e->shown))
			e->shown_len = sizeof(e->shown);
		if (e->shown_len)
			memcpy(e->shown, ev->param.conn.private_data,
			       e->shown_len);
		/* Kept where it is found again, until it is taken. */
		id->context = (void *)(uintptr_t)ev->param.conn.initiator_depth;
	}
	/* Whoever closes an id waits until its events are given back. */
	rdma_ack_cm_event(ev);
	if (event != RDMA_CM_EVENT_CONNECT_REQUEST && id != s->root &&
	    id->context)
		turn(s, id->context, event, e);
	return true;
}

static int trywait(struct rp_ceps *s)
{
	struct ibv_cq *cq;
	void *context;

	if (!s->wake)
		return 0;
	while (!ibv_get_cq_event(s->wake, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	if (ibv_req_notify_cq(s->cq, 0))
		return -FI_EAGAIN;
	/* What came before wakes nobody. */
	if (!s->nkept)
		s->nkept = ibv_poll_cq(s->cq, 16, s->kept);
	if (s->nkept < 0)
		s->nkept = 0;
	return s->nkept ? -FI_EAGAIN : 0;
}

const struct rp_cep_ops rp_cep_verbs = {
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
