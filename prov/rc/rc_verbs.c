// SPDX-License-Identifier: BSD-2-Clause
/* RC queue pair backend: open the device, memory, completion queue, SRQ. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "rc/rc_verbs.h"

/* Entries of the completion queue; a third is for receives. */
#define CQ_SIZE	 6144
#define SRQ_SIZE 2048
/* Longest injected SEND; most bytes of an inline send. */
#define INJECT	   256
#define MAX_INLINE 128

static unsigned int min_uint(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

/* --- memory --- */

static struct ibv_mr *reg_mr(struct rp_verbs_rc *v, void *buf, size_t len,
			     unsigned int access)
{
	int may = 0;

	if (access & (RP_RC_LOCAL | RP_RC_REMOTE_WRITE))
		may |= IBV_ACCESS_LOCAL_WRITE;
	if (access & RP_RC_REMOTE_WRITE)
		may |= IBV_ACCESS_REMOTE_WRITE;
	if (access & RP_RC_REMOTE_READ)
		may |= IBV_ACCESS_REMOTE_READ;
	if (access & RP_RC_REMOTE_FLUSH)
		may |= RP_FLUSH_ACCESS;
	return ibv_reg_mr(v->pd, buf, len, may);
}

int rp_verbs_reg(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
		 struct rp_rc_mr *out)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);
	struct ibv_mr *mr;

	if (!v->verbs)
		return -ENODEV;
	if ((access & RP_RC_REMOTE_FLUSH) && !v->native)
		return -EOPNOTSUPP;
	mr = reg_mr(v, buf, len, access);
	/* EFAULT: perhaps read-only memory, from which a WRITE can send. */
	if (!mr && errno == EFAULT && access == RP_RC_LOCAL)
		mr = reg_mr(v, buf, len, 0);
	/* EOPNOTSUPP makes the caller try again without FLUSH. */
	if (!mr)
		return access & RP_RC_REMOTE_FLUSH ? -EOPNOTSUPP : -errno;
	*out = (struct rp_rc_mr){
		.handle = mr,
		.desc = mr,
		.rkey = mr->rkey,
		.remote_addr = (uintptr_t)buf,
	};
	return 0;
}

static void warn_failed(const char *call, int err)
{
	if (err)
		rp_log(RP_LOG_WARN, "private connections: %s: %s", call,
		       strerror(err));
}

static void verbs_dereg(struct rp_rc *rc, struct rp_rc_mr *mr)
{
	(void)rc;
	if (mr->handle)
		warn_failed("ibv_dereg_mr", ibv_dereg_mr(mr->handle));
	*mr = (struct rp_rc_mr){0};
}

/* --- the device --- */

int rp_verbs_watch_fd(struct rp_verbs_rc *v, int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
		return -errno;
	return rp_rc_watch_fd(&v->rc, fd);
}

static int open_queues(struct rp_verbs_rc *v)
{
	struct ibv_device_attr dev;
	struct ibv_srq_init_attr srq = {.attr = {.max_sge = 1}};
	int ret = ibv_query_device(v->verbs, &dev);

	if (ret)
		return -ret;
	if (dev.max_sge < RP_VERBS_SGES)
		return -EOPNOTSUPP;
	v->max_reads = (uint8_t)min_uint(RP_VERBS_READS,
					 (unsigned int)dev.max_qp_init_rd_atom);
	v->max_served_reads = (uint8_t)min_uint(
		RP_VERBS_READS, (unsigned int)dev.max_qp_rd_atom);
	v->pd = ibv_alloc_pd(v->verbs);
	if (!v->pd)
		return -errno;
	if (v->rc.attr.waits) {
		v->wake = ibv_create_comp_channel(v->verbs);
		if (!v->wake)
			return -errno;
		ret = rp_verbs_watch_fd(v, v->wake->fd);
		if (ret)
			return ret;
	}
	v->cq = ibv_create_cq(v->verbs,
			      (int)min_uint(CQ_SIZE, (unsigned int)dev.max_cqe),
			      NULL, v->wake, 0);
	if (!v->cq)
		return -errno;
	v->rc.shared =
		min_uint(min_uint(SRQ_SIZE, (unsigned int)v->cq->cqe / 3),
			 (unsigned int)dev.max_srq_wr);
	v->cq_room = (unsigned int)v->cq->cqe - v->rc.shared;
	srq.attr.max_wr = v->rc.shared;
	v->srq = ibv_create_srq(v->pd, &srq);
	return v->srq ? 0 : -errno;
}

static void close_device(struct rp_verbs_rc *v)
{
	if (v->srq)
		warn_failed("ibv_destroy_srq", ibv_destroy_srq(v->srq));
	if (v->cq)
		warn_failed("ibv_destroy_cq", ibv_destroy_cq(v->cq));
	if (v->wake)
		warn_failed("ibv_destroy_comp_channel",
			    ibv_destroy_comp_channel(v->wake));
	verbs_dereg(&v->rc, &v->fence_scratch_mr);
	verbs_dereg(&v->rc, &v->copies_mr);
	if (v->pd)
		warn_failed("ibv_dealloc_pd", ibv_dealloc_pd(v->pd));
	if (v->verbs)
		ibv_close_device(v->verbs);
	v->srq = NULL;
	v->cq = NULL;
	v->wake = NULL;
	v->pd = NULL;
	v->verbs = NULL;
}

static struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *verbs = NULL;

	errno = ENODEV;
	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name)) {
			verbs = ibv_open_device(list[i]);
			break;
		}
	if (list)
		ibv_free_device_list(list);
	return verbs;
}

int rp_verbs_open_device(struct rp_verbs_rc *v, const char *name)
{
	int ret;

	if (v->verbs)
		return strcmp(ibv_get_device_name(v->verbs->device), name)
			       ? -ENODEV
			       : 0;
	v->verbs = open_named(name);
	if (!v->verbs)
		return -(errno ? errno : EIO);
	ret = open_queues(v);
	if (!ret)
		ret = rp_verbs_reg(&v->rc, &v->fence_scratch,
				   sizeof(v->fence_scratch), RP_RC_LOCAL,
				   &v->fence_scratch_mr);
	if (!ret)
		ret = rp_verbs_watch_fd(v, v->verbs->async_fd);
	if (ret) {
		close_device(v);
		return ret;
	}
	v->native = rp_flush_supported(v->verbs, v->pd);
	if (v->native)
		v->rc.flags |= RP_CHANNEL_FLUSHES;
	/* rp_flush_post() refuses inline data. */
	v->max_inline = v->native ? 0 : MAX_INLINE;
	return 0;
}

static int verbs_open(struct rp_rc *rc, char *why, size_t why_size)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);
	const char *name = rc->attr.device;
	int ret = rp_verbs_cm_open(v, why, why_size);

	if (ret)
		return ret;
	rc->flags = RP_CHANNEL_FENCES | RP_CHANNEL_LOCAL_MR |
		    RP_CHANNEL_DELIVERS_BY_READ;
	rc->inject = INJECT;
	rc->local_mr = true;
	rc->shared = SRQ_SIZE;
	ret = name ? rp_verbs_open_device(v, name) : 0;
	if (!ret)
		return 0;
	snprintf(why, why_size, "RDMA device %s cannot be used: %s", name,
		 strerror(-ret));
	return -ENODATA;
}

void rp_verbs_free_dead_qps(struct rp_verbs_rc *v)
{
	struct rp_verbs_qp *q;

	while ((q = LIST_FIRST(&v->dead_qps))) {
		LIST_REMOVE(q, link);
		HASH_DEL(v->qps, q);
		v->cq_used -= q->head - q->tail;
		free(q);
	}
}

static void verbs_close(struct rp_rc *rc)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(rc);

	rp_verbs_cm_close(v);
	close_device(v);
	rp_verbs_free_dead_qps(v);
	free(v->copies);
	v->copies = NULL;
}

/* --- queue pairs --- */

void rp_verbs_end_all(struct rp_verbs_rc *v, int err)
{
	struct rp_verbs_qp *q, *next;

	HASH_ITER(hh, v->qps, q, next)
	if (q->channel)
		rp_rc_end_channel(&q->channel->c, err, NULL, 0);
}

struct rp_verbs_qp *rp_verbs_qp_find(struct rp_verbs_rc *v, uint32_t num)
{
	struct rp_verbs_qp *q;

	HASH_FIND(hh, v->qps, &num, sizeof(num), q);
	return q;
}

static struct ibv_qp *create_qp(struct rp_verbs_rc *v)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = v->cq,
		.recv_cq = v->cq,
		.srq = v->srq,
		.cap =
			{
				.max_send_wr = RP_VERBS_DEPTH,
				.max_send_sge = RP_VERBS_SGES,
				.max_inline_data = v->max_inline,
			},
		.qp_type = IBV_QPT_RC,
	};

	return v->native ? rp_flush_create_qp(v->pd, &attr)
			 : ibv_create_qp(v->pd, &attr);
}

/*
 * Create a queue pair with an unused number: a device may reuse the number of a
 * destroyed queue pair that still has entries in the completion queue.
 */
static struct ibv_qp *create_distinct_qp(struct rp_verbs_rc *v)
{
	struct ibv_qp *qp = create_qp(v), *other;

	if (!qp && v->max_inline) {
		v->max_inline = 0;
		qp = create_qp(v);
		v->max_inline = qp ? 0 : MAX_INLINE;
	}
	if (!qp || !rp_verbs_qp_find(v, qp->qp_num))
		return qp;
	other = create_qp(v);
	ibv_destroy_qp(qp);
	if (other && rp_verbs_qp_find(v, other->qp_num)) {
		ibv_destroy_qp(other);
		errno = EAGAIN;
		other = NULL;
	}
	return other;
}

int rp_verbs_qp_new(struct rp_verbs_channel *c)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(c->c.rc);
	struct rp_verbs_qp *q = calloc(1, sizeof(*q));
	bool oom = false;

	if (!q)
		return -ENOMEM;
	q->ibv = create_distinct_qp(v);
	if (!q->ibv) {
		free(q);
		return -(errno ? errno : EIO);
	}
	q->channel = c;
	q->num = q->ibv->qp_num;
	HASH_ADD(hh, v->qps, num, sizeof(q->num), q);
	if (oom) {
		ibv_destroy_qp(q->ibv);
		free(q);
		return -ENOMEM;
	}
	c->qp = q;
	c->c.base.flags = v->rc.flags;
	return 0;
}

/* Destroy the queue pair: then it uses no memory and adds no completions. */
void rp_verbs_qp_destroy(struct rp_verbs_channel *c)
{
	struct rp_verbs_rc *v = rp_verbs_rc_of(c->c.rc);
	struct rp_verbs_qp *q = c->qp;
	struct rp_verbs_wr *wr;

	if (!q)
		return;
	c->qp = NULL;
	q->channel = NULL;
	warn_failed("ibv_destroy_qp", ibv_destroy_qp(q->ibv));
	v->unsignaled -= q->unsignaled;
	for (unsigned int i = q->tail; i != q->head; i++) {
		wr = &q->ring[i % RP_VERBS_DEPTH];
		rp_verbs_copy_put(v, wr->copy);
		if (wr->op)
			rp_rc_complete_op(&v->rc, wr->op, ECANCELED);
	}
	LIST_INSERT_HEAD(&v->dead_qps, q, link);
}

const struct rp_rc_ops rp_rc_verbs = {
	.rc_size = sizeof(struct rp_verbs_rc),
	.channel_size = sizeof(struct rp_verbs_channel),
	.open = verbs_open,
	.close = verbs_close,
	.listen = rp_verbs_listen,
	.connect = rp_verbs_connect,
	.accept = rp_verbs_accept,
	.reject = rp_verbs_reject,
	.post = rp_verbs_post,
	.shut = rp_verbs_shut,
	.post_recv = rp_verbs_post_recv,
	.reg = rp_verbs_reg,
	.dereg = verbs_dereg,
	.poll = rp_verbs_poll,
	.poll_events = rp_verbs_poll_events,
	.trywait = rp_verbs_trywait,
};
