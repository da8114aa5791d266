// SPDX-License-Identifier: BSD-2-Clause
/* The extension calls of fi_ext_rpmem.h, returned by fi_open_ops(). */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "rpmem/ext.h"
#include "rpmem/os_services.h"
#include "rpmem/rpmem.h"

/* Check the arguments, and post a commit or a write of zeros. */
static ssize_t ext_post(struct fid_ep *fid, const struct fi_rpmem_msg *msg,
			uint64_t flags, enum rp_op_kind kind)
{
	struct rp_ep *ep = rp_container_of(fid, struct rp_ep, fid);
	int class, level;

	if (flags || !msg || !msg->rma_iov || !msg->rma_iov_count)
		return -FI_EINVAL;
	class = rp_class_decode(msg->required, ep->required);
	level = rp_level_decode(msg->level);
	if (class < 0 || level < 0)
		return -FI_EINVAL;
	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	return rp_rma_post_ranges(ep, msg, (enum rp_level)level,
				  (enum rp_class) class, kind);
}

static ssize_t ext_commit(struct fid_ep *fid, const struct fi_rpmem_msg *msg,
			  uint64_t flags)
{
	return ext_post(fid, msg, flags, RP_OP_COMMIT);
}

static ssize_t ext_zero(struct fid_ep *fid, const struct fi_rpmem_msg *msg,
			uint64_t flags)
{
	return ext_post(fid, msg, flags, RP_OP_WRITE);
}

/* --- queries --- */

/* Check a query's arguments. Returns the class to query, or -FI_*. */
static int query_check(const struct rp_ep *ep, uint64_t key,
		       enum fi_rpmem_class required,
		       const struct fi_rpmem_attr *attr)
{
	int class = rp_class_decode(required, ep->required);

	if (!attr || attr->size != sizeof(*attr) || class < 0)
		return -FI_EINVAL;
	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	if (!rp_ep_persistent(ep, key))
		return -FI_EKEYREJECTED;
	return class;
}

static void query_result(enum rp_status status, const struct rp_wire_info *i,
			 const struct rp_session *s, struct fi_rpmem_attr *attr)
{
	char words[RP_WHY_LEN];

	attr->region_class = rp_class_encode(i->class);
	attr->method = (enum fi_rpmem_method)i->method;
	attr->prov_errno = (int)status;
	attr->granularity = i->granularity;
	attr->preferred_size = i->preferred_size;
	attr->preferred_align = i->preferred_align;
	attr->addr = i->grant.addr;
	attr->len = i->grant.length;
	if (attr->why && attr->why_size)
		snprintf(attr->why, attr->why_size, "%.*s%s%s", RP_WHY_LEN - 1,
			 i->why, *i->why ? "; " : "",
			 rp_session_text(s, words, sizeof(words)));
}

/* Did the target reply? Then the query succeeded, even if commits will fail. */
static bool query_replied(enum rp_status status)
{
	return status < RP_ST_WRITE_FAILED;
}

/* An asynchronous query: the `extra` of its task. */
struct query_task {
	struct rp_wire_info info;
	struct rp_session *session;
	struct fi_rpmem_attr *attr;
};

static void query_task_done(struct rp_op *op, const struct rp_outcome *out)
{
	const struct query_task *q =
		rp_container_of(op, struct rp_task, op)->extra;
	struct rp_outcome result = *out;

	if (query_replied(out->status)) {
		query_result(out->status, &q->info, q->session, q->attr);
		result.status = RP_ST_OK;
	}
	rp_task_done(op, &result);
}

static ssize_t ext_query(struct fid_ep *fid, fi_addr_t addr, uint64_t key,
			 enum fi_rpmem_class required,
			 struct fi_rpmem_attr *attr, void *context)
{
	struct rp_ep *ep = rp_container_of(fid, struct rp_ep, fid);
	int class = query_check(ep, key, required, attr);
	struct query_task *q;
	struct rp_task *t;
	ssize_t ret;

	if (class < 0)
		return class;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -FI_ENOMEM;
	q->attr = attr;
	pthread_mutex_lock(&ep->dom->lock);
	ret = rp_task_open(ep, addr, key, 0, &t, &q->session);
	if (ret) {
		free(q);
		goto unlock;
	}
	t->extra = q; /* q is freed with the task */
	t->ranges[0] = (struct rp_wire_range){.key = key};
	t->op.done = query_task_done;
	t->op.kind = RP_OP_QUERY;
	t->op.required = (enum rp_class) class;
	t->op.ranges = t->ranges;
	t->op.nranges = 1;
	t->op.info = &q->info;
	t->kind = RP_CNTR_READ;
	t->flags = FI_RMA | FI_READ;
	t->wants_entry = true;
	t->context = context;
	ret = rp_task_post(t, q->session);
unlock:
	pthread_mutex_unlock(&ep->dom->lock);
	return ret;
}

struct sync_query {
	struct rp_op op;
	bool done;
	struct rp_wire_range range;
	struct rp_session *session;
	struct rp_outcome out;
	struct rp_wire_info info;
};

static void query_done(struct rp_op *op, const struct rp_outcome *out)
{
	struct sync_query *q = rp_container_of(op, struct sync_query, op);

	q->done = true;
	q->out = *out;
}

/* With dom->lock: release the lock for a pause. */
static void lock_yield(struct rp_dom *dom, const struct timespec *pause)
{
	pthread_mutex_unlock(&dom->lock);
	nanosleep(pause, NULL);
	pthread_mutex_lock(&dom->lock);
}

/* With dom->lock: post a query and wait for its reply or a lost connection. */
static int query_run(struct rp_ep *ep, fi_addr_t dest, struct sync_query *q)
{
	const struct timespec pause = {.tv_nsec = 20000};
	struct rp_dom *dom = ep->dom;
	int ret;

	for (;;) {
		ret = rp_private_get_session(ep, dest, q->range.key,
					     &q->session);
		if (!ret)
			ret = rp_task_post_op(dom, q->session, &q->op);
		if (ret != -FI_EAGAIN)
			break;
		if (!rp_domain_progress(dom))
			lock_yield(dom, &pause);
	}
	while (!ret && !q->done)
		if (!rp_domain_progress(dom) && !q->done)
			lock_yield(dom, &pause);
	return ret;
}

static int ext_query_sync(struct fid_ep *fid, fi_addr_t addr, uint64_t key,
			  enum fi_rpmem_class required,
			  struct fi_rpmem_attr *attr)
{
	struct rp_ep *ep = rp_container_of(fid, struct rp_ep, fid);
	struct sync_query q = {.range.key = key};
	char words[RP_WHY_LEN];
	int class = query_check(ep, key, required, attr), ret = 0;

	if (class < 0)
		return class;
	q.op.done = query_done;
	q.op.kind = RP_OP_QUERY;
	q.op.required = (enum rp_class) class;
	q.op.ranges = &q.range;
	q.op.nranges = 1;
	q.op.info = &q.info;
	pthread_mutex_lock(&ep->dom->lock);
	/* If the connection was lost unnoticed, query again over a new one. */
	for (int tries = 0; tries < 2 && !ret; tries++) {
		q.done = false;
		ret = query_run(ep, addr, &q);
		if (q.out.status != RP_ST_LOST)
			break;
	}
	if (!ret && !query_replied(q.out.status)) {
		RP_WARN(EP_CTRL, "query of %s: %s: %s\n", q.out.target,
			rp_status_name(q.out.status),
			rp_session_text(q.session, words, sizeof(words)));
		ret = -rp_status_errno(q.out.status);
	}
	/* A session lives until its endpoint closes, also if disconnected. */
	if (!ret)
		query_result(q.out.status, &q.info, q.session, attr);
	pthread_mutex_unlock(&ep->dom->lock);
	return ret;
}

static struct fi_rpmem_ops ep_ops = {
	.size = sizeof(struct fi_rpmem_ops),
	.commit = ext_commit,
	.query = ext_query,
	.query_sync = ext_query_sync,
	.zero = ext_zero,
};

static int ext_drain(struct fid_domain *fid, int timeout)
{
	struct rp_dom *dom = rp_container_of(fid, struct rp_dom, fid);
	const struct timespec pause = {.tv_nsec = 100000}, none = {0};
	const uint64_t wait = timeout < 0 ? 0 : (uint64_t)timeout * 1000000;
	const uint64_t end = rp_host_now() + wait;
	int ret = 0;

	pthread_mutex_lock(&dom->lock);
	/* Accept all requests that have arrived by now. */
	rp_domain_progress(dom);
	if (dom->agent)
		rp_agent_quiesce(dom->agent);
	while (dom->agent && rp_agent_backlog(dom->agent)) {
		lock_yield(dom, rp_domain_progress(dom) ? &none : &pause);
		if (timeout >= 0 && rp_host_now() >= end && dom->agent &&
		    rp_agent_backlog(dom->agent)) {
			ret = -FI_ETIMEDOUT;
			break;
		}
	}
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

static int ext_region(struct fid_mr *fid, struct fi_rpmem_attr *attr)
{
	struct rp_mr *mr = rp_container_of(fid, struct rp_mr, fid);
	const struct rp_region *r = &mr->region;

	if (!attr || attr->size != sizeof(*attr) || !mr->in_agent)
		return -FI_EINVAL;
	pthread_mutex_lock(&mr->dom->lock);
	attr->region_class = rp_class_encode(r->choice.class);
	attr->method = (enum fi_rpmem_method)r->choice.method;
	attr->prov_errno = r->failed ? RP_ST_REGION_FAILED : RP_ST_OK;
	attr->granularity = (uint32_t)rp_pmem_granularity(r->pmem);
	attr->preferred_size = attr->preferred_align = attr->granularity;
	attr->addr = r->addr;
	attr->len = r->len;
	if (attr->why && attr->why_size)
		snprintf(attr->why, attr->why_size, "%s", r->why);
	pthread_mutex_unlock(&mr->dom->lock);
	return 0;
}

static struct fi_rpmem_domain_ops domain_ops = {
	.size = sizeof(struct fi_rpmem_domain_ops),
	.drain = ext_drain,
	.region = ext_region,
};

int rp_ext_ops_open(struct fid *fid, const char *name, uint64_t flags,
		    void **ops, void *context)
{
	const bool ep = fid->fclass == FI_CLASS_EP;

	if (flags)
		return -FI_EBADFLAGS;
	if (strcmp(name, ep ? FI_RPMEM_OPS : FI_RPMEM_DOMAIN_OPS))
		return -FI_ENOSYS;
	*ops = ep ? (void *)&ep_ops : (void *)&domain_ops;
	return 0;
}
