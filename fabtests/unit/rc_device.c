// SPDX-License-Identifier: BSD-2-Clause
/* A simulated libibverbs: its objects, and the posting of requests. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "landing.h"
#include "rc_device_priv.h"

struct dev dev;
struct dev_qp *dev_qps[DEV_MAX];
struct dev_mr *dev_mrs[DEV_MAX];
pthread_mutex_t dev_lock;

static struct ibv_device device = {.name = "mock0"};
static struct verbs_context vctx;
static struct ibv_pd the_pd = {.context = &vctx.context};
static uint32_t next_number;

static struct dev_cq *cqs[DEV_MAX];

/* Count dev.fail_creation down. Returns true for the call that must fail. */
static bool call_fails(void)
{
	if (!dev.fail_creation || --dev.fail_creation)
		return false;
	errno = ENOMEM;
	return true;
}

static int slot_of(void *const *list)
{
	for (int i = 0; i < DEV_MAX; i++)
		if (!list[i])
			return i;
	cr_assert_fail("too many objects");
	return -1;
}

/* --- completions --- */

void dev_complete(struct dev_cq *cq, const struct ibv_wc *wc)
{
	const uint64_t one = 1;

	cr_assert_lt(cq->n, DEV_MAX);
	cr_assert_lt(cq->n, cq->base.cqe, "a completion queue is full");
	cq->wc[cq->n++] = *wc;
	if (!cq->armed || !cq->base.channel)
		return;
	cq->armed = false;
	cq->event = true;
	cr_assert_eq(write(cq->base.channel->fd, &one, sizeof(one)), 8);
}

static int poll_cq(struct ibv_cq *base, int n, struct ibv_wc *wc)
{
	struct dev_cq *cq = (struct dev_cq *)base;
	int got;

	pthread_mutex_lock(&dev_lock);
	got = cq->n < n ? cq->n : n;
	memcpy(wc, cq->wc, (size_t)got * sizeof(*wc));
	cq->n -= got;
	memmove(cq->wc, cq->wc + got, (size_t)cq->n * sizeof(*wc));
	pthread_mutex_unlock(&dev_lock);
	return got;
}

static int req_notify(struct ibv_cq *base, int solicited)
{
	void (*first)(void);

	pthread_mutex_lock(&dev_lock);
	first = dev.at_notify;
	dev.at_notify = NULL;
	pthread_mutex_unlock(&dev_lock);
	if (first)
		first();
	pthread_mutex_lock(&dev_lock);
	((struct dev_cq *)base)->armed = true;
	dev.notifies++;
	pthread_mutex_unlock(&dev_lock);
	return 0;
}

void dev_call_at_notify(void (*first)(void))
{
	pthread_mutex_lock(&dev_lock);
	dev.at_notify = first;
	pthread_mutex_unlock(&dev_lock);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *owner,
			     struct ibv_comp_channel *w, int vector)
{
	struct dev_cq *cq;

	if (call_fails())
		return NULL;
	cq = calloc(1, sizeof(*cq));
	cq->base.context = c;
	cq->base.cqe = cqe;
	cq->base.cq_context = owner;
	cq->base.channel = w;
	pthread_mutex_lock(&dev_lock);
	cqs[slot_of((void *const *)cqs)] = cq;
	dev.open++;
	pthread_mutex_unlock(&dev_lock);
	return &cq->base;
}

int ibv_destroy_cq(struct ibv_cq *q)
{
	pthread_mutex_lock(&dev_lock);
	for (int i = 0; i < DEV_MAX; i++)
		if (cqs[i] == (struct dev_cq *)q)
			cqs[i] = NULL;
	dev.open--;
	pthread_mutex_unlock(&dev_lock);
	free(q);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct ibv_comp_channel *w;

	if (call_fails())
		return NULL;
	w = calloc(1, sizeof(*w));
	w->context = c;
	w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	dev.open++;
	return w;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *w)
{
	dev.open--;
	close(w->fd);
	free(w);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *w, struct ibv_cq **q,
		     void **owner)
{
	uint64_t one;
	int ret = -1;

	if (read(w->fd, &one, sizeof(one)) < 0)
		return -1;
	pthread_mutex_lock(&dev_lock);
	for (int i = 0; i < DEV_MAX && ret; i++) {
		if (!cqs[i] || !cqs[i]->event || cqs[i]->base.channel != w)
			continue;
		cqs[i]->event = false;
		*q = &cqs[i]->base;
		*owner = cqs[i]->base.cq_context;
		ret = 0;
	}
	pthread_mutex_unlock(&dev_lock);
	return ret;
}

void ibv_ack_cq_events(struct ibv_cq *q, unsigned int n)
{
}

/* --- memory --- */

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *p, void *addr, size_t len, int access)
{
	const unsigned int flushes = RP_SHIM_FLUSHES & (unsigned int)access;
	struct dev_mr *mr;
	int i;

	if (call_fails())
		return NULL;
	/*
	 * Refuse FLUSH rights without the capability, as the kernel does, and
	 * persistence for memory other than pmem, as rxe does.
	 */
	if (((flushes & RPMEM_ACCESS_FLUSH_GLOBAL) &&
	     !(dev.caps & DEV_GLOBAL)) ||
	    ((flushes & RPMEM_ACCESS_FLUSH_PERSISTENT) &&
	     (!(dev.caps & DEV_PERSISTENT) ||
	      dev.facts.memory != RP_MEM_DAX_SYNC))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	mr->base = (struct ibv_mr){
		.context = p->context, .pd = p, .addr = addr, .length = len};
	mr->access = (unsigned int)access;
	/* Tell the thread sanitizer that peers write without a lock. */
	if ((access & IBV_ACCESS_REMOTE_WRITE) && addr != dev.pmem)
		peers_write_here(addr, len);
	pthread_mutex_lock(&dev_lock);
	i = slot_of((void *const *)dev_mrs);
	dev_mrs[i] = mr;
	mr->base.lkey = ++next_number;
	mr->base.rkey = 0x7000 + (uint32_t)i; /* rkeys are reused */
	dev.reg_access = mr->access;
	dev.open++;
	pthread_mutex_unlock(&dev_lock);
	return &mr->base;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *p, void *addr, size_t len,
				uint64_t iova, unsigned int access)
{
	return ibv_reg_mr(p, addr, len, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	if (dev.dereg_err && mr->addr == dev.pmem)
		return dev.dereg_err;
	pthread_mutex_lock(&dev_lock);
	for (int i = 0; i < DEV_MAX; i++)
		if (dev_mrs[i] == (struct dev_mr *)mr)
			dev_mrs[i] = NULL;
	dev.open--;
	pthread_mutex_unlock(&dev_lock);
	free(mr);
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct ibv_pd *pd;

	if (call_fails())
		return NULL;
	pd = calloc(1, sizeof(*pd));
	pd->context = c;
	dev.open++;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	for (int i = 0; i < DEV_MAX; i++)
		cr_assert((!dev_mrs[i] || dev_mrs[i]->base.pd != pd) &&
				  (!dev_qps[i] || dev_qps[i]->qp.pd != pd),
			  "it is in use");
	dev.open--;
	free(pd);
	return 0;
}

/* --- queue pairs --- */

static struct ibv_qp *make_qp(struct ibv_pd *pd, enum ibv_qp_type type,
			      struct ibv_cq *send_cq, struct ibv_cq *recv_cq,
			      bool sig_all, unsigned int ops)
{
	struct dev_qp *q;

	if (call_fails())
		return NULL;
	q = calloc(1, sizeof(*q));
	q->qp = (struct ibv_qp){.context = &vctx.context,
				.pd = pd,
				.send_cq = send_cq,
				.recv_cq = recv_cq,
				.qp_type = type};
	q->sig_all = sig_all;
	q->ops = ops;
	dev_builders(q);
	pthread_mutex_lock(&dev_lock);
	q->qp.qp_num = ++next_number;
	dev_qps[slot_of((void *const *)dev_qps)] = q;
	dev.open++;
	pthread_mutex_unlock(&dev_lock);
	return &q->qp;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *p, struct ibv_qp_init_attr *a)
{
	return make_qp(p, a->qp_type, a->send_cq, a->recv_cq, a->sq_sig_all, 0);
}

static struct ibv_qp *create_qp_ex(struct ibv_context *c,
				   struct ibv_qp_init_attr_ex *a)
{
	if (a->send_ops_flags & ~(uint64_t)dev.makes) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return make_qp(&the_pd, a->qp_type, a->send_cq, a->recv_cq,
		       a->sq_sig_all, (unsigned int)a->send_ops_flags);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	pthread_mutex_lock(&dev_lock);
	for (int i = 0; i < DEV_MAX; i++)
		if (dev_qps[i] && &dev_qps[i]->qp == qp) {
			free(dev_qps[i]);
			dev_qps[i] = NULL;
		}
	dev.open--;
	pthread_mutex_unlock(&dev_lock);
	return 0;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct dev_qp *q = dev_of(qp);

	return q->ops ? &q->ex : NULL;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct dev_qp *q = dev_of(qp);

	pthread_mutex_lock(&dev_lock);
	if (qp->qp_num == dev.stuck_qp && a->qp_state == IBV_QPS_ERR) {
		pthread_mutex_unlock(&dev_lock);
		return EIO;
	}
	if (mask & IBV_QP_STATE)
		q->attr.qp_state = qp->state = a->qp_state;
	/* RESET drops all work requests without completions. */
	if ((mask & IBV_QP_STATE) && a->qp_state == IBV_QPS_RESET)
		q->nqueue = q->nrecvs = 0;
	if (mask & IBV_QP_ACCESS_FLAGS)
		q->attr.qp_access_flags = a->qp_access_flags;
	if (mask & IBV_QP_DEST_QPN)
		q->attr.dest_qp_num = a->dest_qp_num;
	if (mask & IBV_QP_AV)
		q->attr.ah_attr = a->ah_attr;
	if (mask & IBV_QP_PORT)
		q->attr.port_num = a->port_num;
	if (mask & IBV_QP_RQ_PSN)
		q->attr.rq_psn = a->rq_psn;
	if (mask & IBV_QP_SQ_PSN)
		q->attr.sq_psn = a->sq_psn;
	if (mask & IBV_QP_TIMEOUT)
		q->attr.timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		q->attr.retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		q->attr.max_rd_atomic = a->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		q->attr.max_dest_rd_atomic = a->max_dest_rd_atomic;
	dev_progress();
	pthread_mutex_unlock(&dev_lock);
	return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask,
		 struct ibv_qp_init_attr *init)
{
	const struct dev_qp *q = dev_of(qp);

	pthread_mutex_lock(&dev_lock);
	*a = q->attr;
	*init = (struct ibv_qp_init_attr){.sq_sig_all = q->sig_all};
	pthread_mutex_unlock(&dev_lock);
	return 0;
}

/* --- the device --- */

const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

static int query_device_ex(struct ibv_context *c,
			   const struct ibv_query_device_ex_input *in,
			   struct ibv_device_attr_ex *a, size_t len)
{
	memset(a, 0, len);
	a->device_cap_flags_ex = dev.caps;
	return 0;
}

void dev_start(void)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&dev_lock, &a);
	memset(&dev, 0, sizeof(dev));
	next_number = 0x100;
	/* The default: ADR, with an adapter that writes into the cache. */
	dev.makes = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
	dev.facts = (struct rp_facts){
		.memory = RP_MEM_DAX_SYNC,
		.placement = RP_PLACE_DMA_CACHE,
		.domain = RP_DOMAIN_MEMCTRL,
		.fence = RP_YES,
		.fs_trusted = RP_YES,
	};
	vctx.sz = sizeof(vctx);
	vctx.create_qp_ex = create_qp_ex;
	vctx.query_device_ex = query_device_ex;
	vctx.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	vctx.context.device = &device;
	vctx.context.ops.poll_cq = poll_cq;
	vctx.context.ops.req_notify_cq = req_notify;
	dev_posts(&vctx.context.ops);
}

void dev_end(void)
{
	cr_assert_eq(dev.open, 0, "%d objects are left", dev.open);
	pthread_mutex_destroy(&dev_lock);
}

struct ibv_pd *dev_pd(void)
{
	return &the_pd;
}

struct ibv_qp *dev_qp(struct ibv_cq *cq, unsigned int ops)
{
	struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_RC,
					.send_cq = cq,
					.recv_cq = cq,
					.send_ops_flags = ops};
	struct ibv_qp_init_attr plain = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq};

	return ops ? create_qp_ex(&vctx.context, &a)
		   : ibv_create_qp(&the_pd, &plain);
}

void dev_join(struct ibv_qp *qp, uint32_t peer, unsigned int access)
{
	struct ibv_qp_attr *a = &dev_of(qp)->attr;

	*a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.dest_qp_num = peer,
		.qp_access_flags = access,
		.max_rd_atomic = 1,
		.max_dest_rd_atomic = 1,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.timeout = 16,
		.retry_cnt = 5,
		.ah_attr = {.dlid = 77},
	};
	qp->state = IBV_QPS_RTS;
}

/* --- functions of core that the test replaces --- */

int __wrap_rp_caps_find(struct rp_caps_cfg cfg, const void *addr, size_t len,
			struct rp_facts *facts, char why[RP_WHY_LEN],
			struct rp_sources *src, struct rp_nic *nic);
int __wrap_rp_caps_find(struct rp_caps_cfg cfg, const void *addr, size_t len,
			struct rp_facts *facts, char why[RP_WHY_LEN],
			struct rp_sources *src, struct rp_nic *nic)
{
	if (dev.source)
		free(rp_watch_read(RP_SOURCE_LINE, dev.source, 0));
	pthread_mutex_lock(&dev_lock);
	*facts = dev.facts;
	pthread_mutex_unlock(&dev_lock);
	if (addr != dev.pmem)
		facts->memory = RP_MEM_ANON;
	strcpy(why, "the test says so");
	return 0;
}

void dev_set_domain(enum rp_domain domain)
{
	pthread_mutex_lock(&dev_lock);
	dev.facts.domain = domain;
	pthread_mutex_unlock(&dev_lock);
}

static void each_line(const void *addr, size_t len, bool *which)
{
	const size_t off = (size_t)((const uint8_t *)addr - dev.pmem);

	cr_assert(off < DEV_BYTES && len <= DEV_BYTES - off);
	for (size_t l = off / DEV_LINE; l * DEV_LINE < off + len; l++)
		which[l] = true;
}

static void do_flush(void *ctx, const void *addr, size_t len)
{
	pthread_mutex_lock(&dev_lock);
	if (dev.at_flush)
		dev.at_flush();
	if (!dev.idle_agent)
		each_line(addr, len, dev.flushed);
	pthread_mutex_unlock(&dev_lock);
}

static void do_drain(void *ctx)
{
	pthread_mutex_lock(&dev_lock);
	for (size_t l = 0; l < DEV_BYTES / DEV_LINE; l++)
		if (dev.flushed[l])
			dev_write_back(l);
	memset(dev.flushed, 0, sizeof(dev.flushed));
	dev.drains++;
	pthread_mutex_unlock(&dev_lock);
}

static void do_copy(void *ctx, void *to, const void *from, size_t len)
{
	pthread_mutex_lock(&dev_lock);
	memcpy(to, from, len);
	each_line(to, len, dev.dirty);
	pthread_mutex_unlock(&dev_lock);
}

static void do_stream(void *ctx, void *to, const void *from, size_t len)
{
	do_copy(ctx, to, from, len);
	do_flush(ctx, to, len);
}

int __real_rp_pmem_new(void *addr, size_t len, enum rp_method method,
		       const struct rp_file_id *file,
		       const struct rp_pmem_ops *ops, struct rp_pmem **out);
int __wrap_rp_pmem_new(void *addr, size_t len, enum rp_method method,
		       const struct rp_file_id *file,
		       const struct rp_pmem_ops *ops, struct rp_pmem **out);
int __wrap_rp_pmem_new(void *addr, size_t len, enum rp_method method,
		       const struct rp_file_id *file,
		       const struct rp_pmem_ops *ops, struct rp_pmem **out)
{
	static const struct rp_pmem_ops ours = {.flush = do_flush,
						.drain = do_drain,
						.copy = do_copy,
						.stream = do_stream};

	if (call_fails())
		return -ENOMEM;
	return __real_rp_pmem_new(addr, len, method, file, &ours, out);
}
