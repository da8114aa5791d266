// SPDX-License-Identifier: BSD-2-Clause
/* Tasks (operations on persistent regions): memory, completion, counters. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "rpmem/rpmem.h"

/* Tasks are allocated in chunks, and freed with the domain. */
#define TASK_CHUNK 64
struct rp_task_chunk {
	struct rp_task_chunk *next;
	struct rp_task tasks[TASK_CHUNK];
};

/* Registered bounce buffers for short operations of an RDMA device. */
#define BOUNCE_SIZE  16384
#define BOUNCE_COUNT 32
struct rp_bounce_pool {
	struct rp_rc_mr mr;
	uint32_t free; /* bit i: bytes[i] is free */
	char bytes[BOUNCE_COUNT][BOUNCE_SIZE];
};

static int grow_task_pool(struct rp_task_pool *pool)
{
	struct rp_task_chunk *c = malloc(sizeof(*c));

	if (!c)
		return -FI_ENOMEM;
	c->next = pool->chunks;
	pool->chunks = c;
	for (int i = 0; i < TASK_CHUNK; i++) {
		c->tasks[i].next = pool->free;
		pool->free = &c->tasks[i];
	}
	return 0;
}

inline struct rp_task *rp_task_get(struct rp_dom *dom, struct rp_ep *ep)
{
	struct rp_task *t;

	if (!dom->tasks.free && grow_task_pool(&dom->tasks))
		return NULL;
	t = dom->tasks.free;
	dom->tasks.free = t->next;
	/* rp_session_post() sets op.priv; users ranges, user_iov and cqe. */
	memset(&t->op, 0, offsetof(struct rp_op, priv));
	t->op.done = rp_task_done;
	t->op.required = ep->required;
	t->ep = ep;
	t->next = NULL;
	t->context = NULL;
	t->flags = 0;
	t->kind = RP_CNTR_WRITE;
	t->wants_entry = false;
	t->mr.handle = NULL;
	t->bounce = NULL;
	t->user_iov_count = 0;
	t->extra = NULL;
	return t;
}

/* --- memory that the device must have registered --- */

static bool is_in_bounce_pool(const struct rp_bounce_pool *b, const void *at)
{
	return b && (const char *)at >= b->bytes[0] &&
	       (const char *)at < b->bytes[0] + sizeof(b->bytes);
}

static struct rp_bounce_pool *get_bounce_pool(struct rp_dom *dom)
{
	struct rp_bounce_pool *b = dom->tasks.bounce;

	if (b)
		return b;
	b = malloc(sizeof(*b));
	if (!b)
		return NULL;
	b->free = UINT32_MAX;
	if (rp_rc_reg(dom->rc, b->bytes, sizeof(b->bytes), RP_RC_LOCAL,
		      &b->mr)) {
		free(b);
		return NULL;
	}
	dom->tasks.bounce = b;
	return b;
}

static void unmap_memory(struct rp_dom *dom, struct rp_task *t)
{
	struct rp_bounce_pool *b = dom->tasks.bounce;

	if (!t->mr.handle && !t->bounce)
		return;
	if (t->mr.handle)
		rp_rc_dereg(dom->rc, &t->mr);
	if (is_in_bounce_pool(b, t->bounce))
		b->free |= 1u << ((char(*)[BOUNCE_SIZE])t->bounce - b->bytes);
	else
		free(t->bounce);
	t->bounce = NULL;
}

/* Make buf the operation's local memory, instead of op.iov's pieces. */
static void use_bounce(struct rp_task *t, void *buf, size_t len, void *desc)
{
	t->bounce = buf;
	if (t->op.kind == RP_OP_READ) {
		memcpy(t->user_iov, t->op.iov,
		       t->op.iov_count * sizeof(t->user_iov[0]));
		t->user_iov_count = t->op.iov_count;
	}
	if (t->op.kind == RP_OP_WRITE)
		rp_iov_gather(buf, t->op.iov, t->op.iov_count);
	t->op.iov[0] = (struct iovec){.iov_base = buf, .iov_len = len};
	t->op.iov_count = 1;
	t->op.desc[0] = desc;
}

/* Clear user_iov_count: a second copy after a flush would dirty caches. */
void rp_task_copy_back(struct rp_task *t)
{
	rp_iov_scatter(t->user_iov, t->user_iov_count, t->bounce);
	t->user_iov_count = 0;
}

static int map_copied_memory(struct rp_dom *dom, struct rp_task *t, size_t len)
{
	void *buf = malloc(len);
	int ret;

	if (!buf)
		return -FI_ENOMEM;
	ret = rp_rc_reg(dom->rc, buf, len, RP_RC_LOCAL, &t->mr);
	if (ret) {
		free(buf);
		return ret;
	}
	use_bounce(t, buf, len, t->mr.desc);
	return 0;
}

static int map_memory(struct rp_dom *dom, struct rp_task *t)
{
	const size_t len = rp_iov_len(t->op.iov, t->op.iov_count);
	struct rp_bounce_pool *b = get_bounce_pool(dom);
	int i;

	if (!len)
		return 0;
	if (b && b->free && len <= BOUNCE_SIZE) {
		i = __builtin_ctz(b->free);
		b->free &= ~(1u << i);
		use_bounce(t, b->bytes[i], len, b->mr.desc);
		return 0;
	}
	if (t->op.iov_count > 1)
		return map_copied_memory(dom, t, len);
	if (!rp_rc_reg(dom->rc, t->op.iov[0].iov_base, len, RP_RC_LOCAL,
		       &t->mr)) {
		t->op.desc[0] = t->mr.desc;
		return 0;
	}
	/* Some devices cannot register read-only memory: copy it. */
	return map_copied_memory(dom, t, len);
}

static bool needs_mapping(const struct rp_dom *dom, const struct rp_task *t)
{
	return (t->op.kind == RP_OP_READ ||
		(t->op.kind == RP_OP_WRITE && !t->op.inject)) &&
	       dom->tasks.need_mr;
}

/* --- posting and ending --- */

void rp_task_put(struct rp_dom *dom, struct rp_task *t)
{
	unmap_memory(dom, t);
	free(t->extra);
	t->next = dom->tasks.free;
	dom->tasks.free = t;
}

int rp_task_open(struct rp_ep *ep, fi_addr_t dest, uint64_t key, uint64_t flags,
		 struct rp_task **t, struct rp_session **s)
{
	int ret;

	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	if (ep->dom->is_msg && !ep->connected)
		return -FI_ENOTCONN;
	ret = rp_private_get_session(ep, dest, key, s);
	if (!ret && (flags & FI_FENCE) &&
	    (rp_session_outstanding(*s) || rp_session_has_unplaced(*s)))
		ret = -FI_EAGAIN;
	if (!ret && !(*t = rp_task_get(ep->dom, ep)))
		ret = -FI_EAGAIN;
	if (ret == -FI_EAGAIN)
		rp_domain_progress(ep->dom);
	return ret;
}

inline int rp_task_post_op(struct rp_dom *dom, struct rp_session *s,
			   struct rp_op *op)
{
	int ret;

	atomic_store_explicit(&dom->posting, true, memory_order_relaxed);
	ret = rp_session_post(s, op);
	atomic_store_explicit(&dom->posting, false, memory_order_relaxed);
	if (atomic_load_explicit(&dom->may_sleep, memory_order_relaxed))
		rp_domain_wake_sleepers(dom, rp_session_deadline(s));
	return ret;
}

ssize_t rp_task_post(struct rp_task *t, struct rp_session *s)
{
	struct rp_dom *dom = t->ep->dom;
	int ret = 0;

	/* Copy only when connected: otherwise the post is refused. */
	if (needs_mapping(dom, t) && rp_session_state(s) == RP_SESSION_OPEN)
		ret = map_memory(dom, t);
	if (!ret)
		ret = rp_task_post_op(dom, s, &t->op);
	if (!ret)
		return 0;
	rp_task_put(dom, t);
	if (ret == -FI_EAGAIN)
		rp_domain_progress(dom);
	return ret == -ENOTSUP ? -FI_EOPNOTSUPP : ret;
}

static void describe_failure(const struct rp_outcome *out, char *buf)
{
	char what[80] = "", range[40] = "";

	if (out->status == RP_ST_CLASS)
		snprintf(what, sizeof(what),
			 ", the region reaches %s, %s is required",
			 rp_class_name(out->detail),
			 rp_class_name(out->required));
	if (out->status == RP_ST_INDETERMINATE)
		snprintf(what, sizeof(what), ", %s",
			 rp_status_name(out->detail));
	if (out->range)
		snprintf(range, sizeof(range), ", range %llu",
			 (unsigned long long)out->range);
	*buf = 0;
	if (out->target)
		snprintf(buf, RP_DETAIL_LEN, RP_DETAIL_START "%s%s%s)",
			 out->target, what, range);
}

static void fill_entry(struct rp_task *t, const struct rp_outcome *out)
{
	struct rp_cqe *q = &t->cqe;

	q->src = FI_ADDR_NOTAVAIL;
	q->failed = out->status != RP_ST_OK;
	if (q->failed) {
		describe_failure(out, q->detail);
		q->err = (struct fi_cq_err_entry){
			.op_context = t->context,
			.flags = t->flags,
			.err = rp_status_errno(out->status),
			.prov_errno = (int)out->status,
			.data = out->range,
		};
	} else {
		q->e = (struct fi_cq_tagged_entry){
			.op_context = t->context,
			.flags = t->flags,
		};
	}
}

void rp_task_done(struct rp_op *op, const struct rp_outcome *out)
{
	struct rp_task *t = rp_container_of(op, struct rp_task, op);
	const bool failed = out->status != RP_ST_OK;
	struct rp_ep *ep = t->ep;

	if (!failed)
		rp_task_copy_back(t);
	unmap_memory(ep->dom, t);
	rp_cntr_count(ep, (enum rp_cntr_kind)t->kind, failed);
	if (ep->tx_cq && (failed || t->wants_entry)) {
		fill_entry(t, out);
		rp_cq_push_task(ep->tx_cq, t);
	} else {
		rp_task_put(ep->dom, t);
	}
}

void rp_task_pool_fini(struct rp_dom *dom)
{
	struct rp_task_chunk *c;

	if (dom->tasks.bounce) {
		rp_rc_dereg(dom->rc, &dom->tasks.bounce->mr);
		free(dom->tasks.bounce);
	}
	while ((c = dom->tasks.chunks)) {
		dom->tasks.chunks = c->next;
		free(c);
	}
	dom->tasks = (struct rp_task_pool){0};
}
