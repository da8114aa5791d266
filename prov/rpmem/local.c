// SPDX-License-Identifier: BSD-2-Clause
/* Reads into local persistent memory that complete when it is durable. */
#include <stdlib.h>
#include <string.h>

#include "rpmem/rpmem.h"

/* The task's `extra`: where the bytes go, until they are flushed. */
struct rp_local_read {
	LIST_ENTRY(rp_local_read) link; /* of ep->flushing */
	struct rp_task *task;		/* NULL: not flushing */
	size_t niov;
	struct iovec iov[RP_CHANNEL_IOV];
};

static struct rp_local_read *local_of(struct rp_task *t)
{
	return t->extra;
}

static void end(struct rp_task *t, enum rp_status st, uint32_t detail)
{
	const struct rp_outcome out = {
		.status = st,
		.detail = detail,
		.required = t->op.required,
	};

	if (local_of(t)->task)
		LIST_REMOVE(local_of(t), link);
	rp_task_done(&t->op, &out);
}

static void flushed(void *arg, enum rp_status st, uint32_t detail)
{
	end(arg, st, detail);
}

/*
 * The bytes are here: flush them. The region is looked for again, because the
 * program may have closed it since.
 */
static void flush(struct rp_task *t)
{
	struct rp_local_read *l = local_of(t);
	struct rp_dom *dom = t->ep->dom;
	struct rp_local at[RP_CHANNEL_IOV];
	const char *why;

	for (size_t i = 0; i < l->niov; i++) {
		const char *buf = l->iov[i].iov_base;

		at[i].region = rp_mr_holding(dom, buf, l->iov[i].iov_len,
					     t->op.required, &why);
		if (!at[i].region) {
			end(t, RP_ST_STALE_KEY, 0);
			return;
		}
		at[i].off = (uint64_t)(buf - (char *)at[i].region->base);
		at[i].len = l->iov[i].iov_len;
	}
	l->task = t;
	LIST_INSERT_HEAD(&t->ep->flushing, l, link);
	if (rp_agent_local_flush(dom->agent, at, l->niov, flushed, t))
		end(t, RP_ST_NO_MEMORY, 0);
}

static void read_done(struct rp_op *op, const struct rp_outcome *out)
{
	struct rp_task *t = rp_container_of(op, struct rp_task, op);

	if (out->status != RP_ST_OK) {
		rp_task_done(op, out);
		return;
	}
	rp_task_copy_back(t);
	flush(t);
}

void rp_local_close_ep(struct rp_ep *ep)
{
	struct rp_local_read *l;

	while ((l = LIST_FIRST(&ep->flushing))) {
		rp_agent_local_drop(ep->dom->agent, l->task);
		end(l->task, RP_ST_CANCELED, 0);
	}
}

/* With the lock. */
static int check(struct rp_ep *ep, const struct fi_msg_rma *msg,
		 struct rp_local_read *l)
{
	const char *why;

	for (size_t i = 0; i < msg->iov_count; i++) {
		const struct iovec *v = &msg->msg_iov[i];

		if (!v->iov_len)
			continue;
		if (!rp_mr_holding(ep->dom, v->iov_base, v->iov_len,
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

ssize_t rp_local_read(struct rp_ep *ep, const struct fi_msg_rma *msg,
		      uint64_t flags)
{
	struct rp_local_read *l;
	ssize_t ret;

	if (msg->iov_count > RP_CHANNEL_IOV ||
	    msg->rma_iov_count > RP_CHANNEL_IOV)
		return -FI_EINVAL;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -FI_ENOMEM;
	pthread_mutex_lock(&ep->dom->lock);
	ret = check(ep, msg, l);
	if (ret)
		free(l);
	else
		ret = rp_rma_read(ep, msg, flags & ~FI_COMMIT_COMPLETE,
				  read_done, l);
	pthread_mutex_unlock(&ep->dom->lock);
	return ret;
}
