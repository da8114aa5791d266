// SPDX-License-Identifier: BSD-2-Clause
/* Reads into local persistent memory that complete when they are durable. */
#include <stdlib.h>
#include <string.h>

#include "rpmem/rpmem.h"

/* --- flushing --- */

static void complete_read(void *arg, enum rp_status st, uint32_t detail)
{
	struct rp_task *t = arg;
	struct rp_local_read *l = t->extra;
	const struct rp_outcome out = {
		.status = st,
		.detail = detail,
		.required = t->op.required,
	};

	if (l->flushing)
		LIST_REMOVE(l, link);
	rp_task_done(&t->op, &out);
}

/* Flush the bytes that were read; find their region again: it may be closed. */
static void flush_read(struct rp_task *t)
{
	struct rp_local_read *l = t->extra;
	struct rp_dom *dom = t->ep->dom;
	struct rp_local at[RP_CHANNEL_IOV];
	const char *why;

	for (size_t i = 0; i < l->niov; i++) {
		const char *buf = l->iov[i].iov_base;

		at[i].region = rp_mr_find_local(dom, buf, l->iov[i].iov_len,
						t->op.required, &why);
		if (!at[i].region) {
			complete_read(t, RP_ST_STALE_KEY, 0);
			return;
		}
		at[i].off = (uint64_t)(buf - (char *)at[i].region->base);
		at[i].len = l->iov[i].iov_len;
	}
	l->task = t;
	l->flushing = true;
	LIST_INSERT_HEAD(&t->ep->flushing, l, link);
	if (rp_agent_local_flush(dom->agent, at, l->niov, complete_read, t))
		complete_read(t, RP_ST_NO_MEMORY, 0);
}

static void read_done(struct rp_op *op, const struct rp_outcome *out)
{
	struct rp_task *t = rp_container_of(op, struct rp_task, op);

	if (out->status != RP_ST_OK) {
		rp_task_done(op, out);
		return;
	}
	rp_task_copy_back(t);
	flush_read(t);
}

/* --- reads posted on the base: remove their entries from its queue --- */

static struct rp_local_read *find_read(struct rp_cq *cq, const void *context)
{
	struct rp_local_read *l;

	LIST_FOREACH (l, &cq->local_reads, link)
		if (&l->context == context)
			return l;
	return NULL;
}

ssize_t rp_local_filter_entries(struct rp_cq *cq, void *buf, ssize_t n,
				fi_addr_t *src)
{
	struct rp_local_read *l;
	char *e = buf;
	ssize_t kept = 0;

	pthread_mutex_lock(&cq->dom->lock);
	for (ssize_t i = 0; i < n; i++, e += cq->size) {
		l = find_read(cq, *(void **)e);
		if (l) {
			LIST_REMOVE(l, link);
			if (l->closed)
				rp_task_put(cq->dom, l->task);
			else
				flush_read(l->task);
			/* If this thread stops here, a sleeper must go on. */
			rp_domain_kick(cq->dom);
			continue;
		}
		memmove((char *)buf + (size_t)kept * cq->size, e, cq->size);
		if (src)
			src[kept] = src[i];
		kept++;
	}
	pthread_mutex_unlock(&cq->dom->lock);
	return kept ? kept : -FI_EAGAIN;
}

ssize_t rp_local_filter_error(struct rp_cq *cq, struct fi_cq_err_entry *e)
{
	struct rp_local_read *l;
	ssize_t ret = 1;

	pthread_mutex_lock(&cq->dom->lock);
	l = find_read(cq, e->op_context);
	if (l) {
		LIST_REMOVE(l, link);
		ret = l->closed ? -FI_EAGAIN : 1;
		e->op_context = l->task->context;
		rp_task_put(cq->dom, l->task);
	}
	pthread_mutex_unlock(&cq->dom->lock);
	return ret;
}

/* With dom->lock: post the read on the base, with l as context. */
static ssize_t post_base_read(struct rp_ep *ep, const struct fi_msg_rma *msg,
			      uint64_t flags, struct rp_local_read *l)
{
	struct fi_msg_rma m = *msg;
	struct rp_task *t;
	ssize_t ret;

	if (!ep->tx_cq || ep->cntr[RP_CNTR_READ]) {
		RP_WARN(EP_DATA, "FI_COMMIT_COMPLETE on a read of memory that "
				 "is not persistent needs a completion queue, "
				 "and no FI_READ counter\n");
		free(l);
		return -FI_EOPNOTSUPP;
	}
	t = rp_task_get(ep->dom, ep);
	if (!t) {
		free(l);
		return -FI_EAGAIN;
	}
	t->extra = l;
	t->context = msg->context;
	t->wants_entry = rp_ep_wants_cqe(ep, flags);
	t->kind = RP_CNTR_READ;
	t->flags = FI_RMA | FI_READ;
	l->task = t;
	m.context = &l->context;
	LIST_INSERT_HEAD(&ep->tx_cq->local_reads, l, link);
	atomic_store(&ep->tx_cq->max_filtered, SSIZE_MAX);
	ret = fi_readmsg(ep->base, &m, flags | FI_COMPLETION);
	if (ret) {
		LIST_REMOVE(l, link);
		rp_task_put(ep->dom, t);
	}
	return ret;
}

/* --- endpoints that are closed --- */

void rp_local_close_ep(struct rp_ep *ep)
{
	struct rp_local_read *l;

	while ((l = LIST_FIRST(&ep->flushing))) {
		rp_agent_local_drop(ep->dom->agent, l->task);
		complete_read(l->task, RP_ST_CANCELED, 0);
	}
	if (!ep->tx_cq)
		return;
	LIST_FOREACH (l, &ep->tx_cq->local_reads, link)
		l->closed |= l->task->ep == ep;
}

/* --- posting --- */

/* With dom->lock: is each buffer in a persistent region? Fills l->iov. */
static int check_buffers(struct rp_ep *ep, const struct fi_msg_rma *msg,
			 struct rp_local_read *l)
{
	const char *why;

	for (size_t i = 0; i < msg->iov_count; i++) {
		const struct iovec *v = &msg->msg_iov[i];

		if (!v->iov_len)
			continue;
		if (!rp_mr_find_local(ep->dom, v->iov_base, v->iov_len,
				      ep->required, &why)) {
			RP_WARN(EP_DATA,
				"FI_COMMIT_COMPLETE on a read: its buffer at "
				"%p, %zu bytes, %s\n",
				v->iov_base, v->iov_len, why);
			return -FI_EINVAL;
		}
		l->iov[l->niov++] = *v;
	}
	return l->niov ? 0 : -FI_EINVAL;
}

ssize_t rp_local_post_read(struct rp_ep *ep, const struct fi_msg_rma *msg,
			   uint64_t flags, bool persistent)
{
	struct rp_local_read *l;
	ssize_t ret;

	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	if (msg->iov_count > RP_CHANNEL_IOV)
		return -FI_EINVAL;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -FI_ENOMEM;
	flags &= ~FI_COMMIT_COMPLETE;
	pthread_mutex_lock(&ep->dom->lock);
	ret = check_buffers(ep, msg, l);
	if (ret)
		free(l);
	else if (persistent)
		ret = rp_rma_read(ep, msg, flags, read_done, l);
	else
		ret = post_base_read(ep, msg, flags, l);
	pthread_mutex_unlock(&ep->dom->lock);
	return ret;
}
