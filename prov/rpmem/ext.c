// SPDX-License-Identifier: BSD-2-Clause
/* The calls of fi_ext_rpmem.h, found by fi_open_ops(). */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "rpmem/host.h"
#include "rpmem/rpmem.h"

static int class_of(const struct rp_ep *ep, enum fi_rpmem_class c,
		    enum rp_class *out)
{
	switch (c) {
	case FI_RPMEM_CLASS_DEFAULT:
		*out = ep->required;
		return 0;
	case FI_RPMEM_CLASS_NONE:
	case FI_RPMEM_CLASS_PROCESS:
	case FI_RPMEM_CLASS_POWER:
		*out = (enum rp_class)c;
		return 0;
	}
	return -FI_EINVAL;
}

static ssize_t ext_commit(struct fid_ep *fid, const struct fi_rma_iov *ranges,
			  size_t count, fi_addr_t dest,
			  enum fi_rpmem_level level,
			  enum fi_rpmem_class required,
			  const struct fi_rpmem_then *then, void *context)
{
	struct rp_ep *ep = rp_container_of(fid, struct rp_ep, fid);
	enum rp_class class;

	if (!ranges || !count || class_of(ep, required, &class) ||
	    (level != FI_RPMEM_VISIBLE && level != FI_RPMEM_DURABLE))
		return -FI_EINVAL;
	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	return rp_rma_commit(ep, ranges, count, dest, (enum rp_level)level,
			     class, then, true, context);
}

struct query {
	struct rp_op op; /* first, so that op->done finds the query */
	bool done;
	struct rp_wire_range range;
	struct rp_outcome out;
	struct rp_wire_info info;
};

static void query_done(struct rp_op *op, const struct rp_outcome *out)
{
	struct query *q = rp_container_of(op, struct query, op);

	q->done = true;
	q->out = *out;
}

/* With the lock: release it for others meanwhile. */
static void lock_yield(struct rp_dom *dom, const struct timespec *pause)
{
	pthread_mutex_unlock(&dom->lock);
	nanosleep(pause, NULL);
	pthread_mutex_lock(&dom->lock);
}

/* With the lock: a query ends by its reply, or with its connection. */
static int query_run(struct rp_ep *ep, fi_addr_t dest, struct query *q,
		     char *words)
{
	const struct timespec pause = {.tv_nsec = 20000};
	struct rp_dom *dom = ep->dom;
	struct rp_session *s;
	int ret;

	for (;;) {
		ret = rp_private_session(ep, dest, q->range.key, &s);
		if (!ret)
			ret = rp_private_post(dom, s, &q->op);
		if (ret != -FI_EAGAIN)
			break;
		if (!rp_domain_progress(dom))
			lock_yield(dom, &pause);
	}
	while (!ret && !q->done)
		if (!rp_domain_progress(dom) && !q->done)
			lock_yield(dom, &pause);
	/* The session outlives its connection; the endpoint ends it. */
	if (!ret)
		rp_session_words(s, words, RP_WHY_LEN);
	return ret;
}

static void query_result(const struct query *q, const char *words,
			 struct fi_rpmem_attr *attr)
{
	const struct rp_wire_info *i = &q->info;
	size_t n;

	attr->region_class = (enum fi_rpmem_class)i->class;
	attr->method = (enum fi_rpmem_method)i->method;
	attr->status = q->out.status;
	attr->granularity = i->granularity;
	attr->preferred_size = i->preferred_size;
	attr->preferred_align = i->preferred_align;
	attr->addr = i->grant.addr;
	attr->len = i->grant.length;
	memcpy(attr->why, i->why, sizeof(attr->why));
	attr->why[sizeof(attr->why) - 1] = 0;
	n = strlen(attr->why);
	snprintf(attr->why + n, sizeof(attr->why) - n, "%s%s", n ? "; " : "",
		 words);
}

static int ext_query(struct fid_ep *fid, fi_addr_t dest, uint64_t key,
		     enum fi_rpmem_class required, struct fi_rpmem_attr *attr)
{
	struct rp_ep *ep = rp_container_of(fid, struct rp_ep, fid);
	struct query q = {.range.key = key};
	char words[RP_WHY_LEN] = "";
	int ret = 0;

	if (!attr || attr->size != sizeof(*attr) ||
	    class_of(ep, required, &q.op.required))
		return -FI_EINVAL;
	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	if (!ep->dom->marked || !rp_key_is_persistent(key))
		return -FI_EKEYREJECTED;
	q.op.done = query_done;
	q.op.kind = RP_OP_QUERY;
	q.op.ranges = &q.range;
	q.op.nranges = 1;
	q.op.info = &q.info;
	pthread_mutex_lock(&ep->dom->lock);
	/* If the connection was lost unnoticed, query again over a new one. */
	for (int tries = 0; tries < 2 && !ret; tries++) {
		q.done = false;
		ret = query_run(ep, dest, &q, words);
		if (q.out.status != RP_ST_LOST)
			break;
	}
	pthread_mutex_unlock(&ep->dom->lock);
	if (!ret && q.out.status >= RP_ST_WRITE_FAILED) {
		RP_WARN(EP_CTRL, "query: %s: %s\n",
			rp_status_name(q.out.status), words);
		return -rp_status_errno(q.out.status);
	}
	if (!ret)
		query_result(&q, words, attr);
	return ret;
}

struct fi_rpmem_ops rp_ext_ops = {
	.size = sizeof(struct fi_rpmem_ops),
	.commit = ext_commit,
	.query = ext_query,
};

static int ext_drain(struct fid_domain *fid, int timeout)
{
	struct rp_dom *dom = rp_container_of(fid, struct rp_dom, fid);
	const struct timespec pause = {.tv_nsec = 100000};
	const uint64_t wait = timeout < 0 ? 0 : (uint64_t)timeout * 1000000;
	const uint64_t end = rp_host_now() + wait;
	int ret = 0;

	pthread_mutex_lock(&dom->lock);
	/* Everything that has arrived by now is accepted. */
	rp_domain_progress(dom);
	if (dom->agent)
		rp_agent_quiesce(dom->agent);
	while (dom->agent && rp_agent_pending(dom->agent)) {
		if (rp_domain_progress(dom))
			continue;
		lock_yield(dom, &pause);
		if (timeout >= 0 && rp_host_now() >= end && dom->agent &&
		    rp_agent_pending(dom->agent)) {
			ret = -FI_ETIMEDOUT;
			break;
		}
	}
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

struct fi_rpmem_domain_ops rp_ext_domain_ops = {
	.size = sizeof(struct fi_rpmem_domain_ops),
	.drain = ext_drain,
};
