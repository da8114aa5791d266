// SPDX-License-Identifier: BSD-2-Clause
/* The calls of fi_ext_rpmem.h, reached through fi_open_ops(). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
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
	bool done;
	enum rp_status status;
	struct rp_wire_info info;
};

static void query_done(void *arg, enum rp_status st,
		       const struct rp_wire_info *info)
{
	struct query *q = arg;

	q->done = true;
	q->status = st;
	if (info)
		q->info = *info;
}

static void say_more(char *why, size_t size, const char *more)
{
	size_t n = strlen(why);

	snprintf(why + n, size - n, "; %s", more);
}

static int ext_query(struct fid_ep *fid, fi_addr_t dest, uint64_t key,
		     enum fi_rpmem_class required, struct fi_rpmem_attr *attr)
{
	struct rp_ep *ep = rp_container_of(fid, struct rp_ep, fid);
	const struct timespec pause = {.tv_nsec = 20000};
	struct rp_dom *dom = ep->dom;
	struct query q = {0};
	enum rp_class class;
	struct rp_peer *p;
	int ret;

	if (!attr || attr->size != sizeof(*attr) ||
	    class_of(ep, required, &class))
		return -FI_EINVAL;
	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	if (!dom->marked)
		return -FI_EKEYREJECTED;
	pthread_mutex_lock(&dom->lock);
	ret = rp_rma_peer(ep, dest, &p);
	if (!ret)
		ret = rp_query_post(p, key, class, query_done, &q);
	if (ret)
		goto unlock;
	/* Core ends every query: by an answer or by the timeout. */
	while (!q.done) {
		rp_domain_progress(dom);
		if (q.done)
			break;
		pthread_mutex_unlock(&dom->lock);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&dom->lock);
	}
	if (q.status >= RP_ST_WRITE_FAILED) {
		ret = -rp_status_errno(q.status);
		goto unlock;
	}
	attr->region_class = (enum fi_rpmem_class)q.info.class;
	attr->method = (enum fi_rpmem_method)q.info.method;
	attr->status = q.status;
	attr->granularity = q.info.granularity;
	attr->preferred_size = q.info.preferred_size;
	attr->preferred_align = q.info.preferred_align;
	attr->addr = q.info.addr;
	attr->len = q.info.length;
	memcpy(attr->why, q.info.why, sizeof(attr->why));
	attr->why[sizeof(attr->why) - 1] = 0;
	if (dom->conns)
		say_more(attr->why, sizeof(attr->why), rp_link_words(p, key));
	else if (!strcasecmp(dom->fabric->base_name, "verbs"))
		say_more(attr->why, sizeof(attr->why),
			 "no FLUSH: FI_OFI_RPMEM_CONNECT is off, and ofi_rxm's "
			 "queue pairs are not reachable");
unlock:
	pthread_mutex_unlock(&dom->lock);
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
	/* What has arrived by now is accepted. */
	rp_domain_progress(dom);
	rp_agent_quiesce(dom->agent);
	while (rp_agent_pending(dom->agent)) {
		pthread_mutex_unlock(&dom->lock);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&dom->lock);
		rp_domain_progress(dom);
		if (timeout >= 0 && rp_host_now() >= end &&
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
