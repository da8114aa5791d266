// SPDX-License-Identifier: BSD-2-Clause
/* Completion queues of the base, each with a queue of private entries. */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "rpmem/rpmem.h"

/*
 * Bytes of a completion entry. Every format is a prefix of the tagged one, so
 * private entries are stored as tagged ones and truncated when read.
 */
static size_t format_size(enum fi_cq_format f)
{
	static const size_t sizes[] = {
		[FI_CQ_FORMAT_CONTEXT] = sizeof(struct fi_cq_entry),
		[FI_CQ_FORMAT_MSG] = sizeof(struct fi_cq_msg_entry),
		[FI_CQ_FORMAT_DATA] = sizeof(struct fi_cq_data_entry),
		[FI_CQ_FORMAT_TAGGED] = sizeof(struct fi_cq_tagged_entry),
	};

	return f < sizeof(sizes) / sizeof(sizes[0]) ? sizes[f] : 0;
}

void rp_cq_wake(struct rp_cq *cq)
{
	if (cq->ev_fd >= 0 && !cq->ev_set) {
		eventfd_write(cq->ev_fd, 1);
		cq->ev_set = true;
	}
}

void rp_cq_drain_event(struct rp_cq *cq)
{
	eventfd_t v;

	/* Keep the event of fi_cq_signal() for a sleeper. */
	if (cq->ev_set &&
	    !(atomic_load(&cq->signaled) && atomic_load(&cq->sleepers))) {
		eventfd_read(cq->ev_fd, &v);
		cq->ev_set = false;
	}
}

static void enqueue_entry(struct rp_cq *cq, struct rp_cqe *q)
{
	STAILQ_INSERT_TAIL(&cq->queue, q, link);
	rp_cq_set_quick_reads(cq, 0);
	if (cq->parked)
		rp_cq_wake(cq);
}

void rp_cq_push_task(struct rp_cq *cq, struct rp_task *t)
{
	t->cqe.task = t;
	enqueue_entry(cq, &t->cqe);
}

int rp_cq_push(struct rp_cq *cq, const struct fi_cq_tagged_entry *e,
	       fi_addr_t src)
{
	struct rp_cqe *q = malloc(sizeof(*q));

	if (!q)
		return -FI_ENOMEM;
	q->task = NULL;
	q->failed = false;
	q->e = *e;
	q->src = src;
	enqueue_entry(cq, q);
	return 0;
}

void rp_cq_drop_first(struct rp_cq *cq)
{
	struct rp_cqe *q = STAILQ_FIRST(&cq->queue);

	STAILQ_REMOVE_HEAD(&cq->queue, link);
	if (STAILQ_EMPTY(&cq->queue))
		rp_cq_drain_event(cq);
	if (q->task)
		rp_task_put(cq->dom, q->task);
	else
		free(q);
}

static void close_fds(struct rp_cq *cq)
{
	if (cq->epfd >= 0)
		close(cq->epfd);
	if (cq->ev_fd >= 0)
		close(cq->ev_fd);
	if (cq->poll_timer_fd >= 0)
		close(cq->poll_timer_fd);
}

/* With dom->lock; the base's queue is closed: free local_read.c's reads. */
static void free_local_reads(struct rp_cq *cq)
{
	struct rp_local_read *l;

	while ((l = LIST_FIRST(&cq->local_reads))) {
		LIST_REMOVE(l, link);
		rp_task_put(cq->dom, l->task);
	}
}

static int cq_close(struct fid *fid)
{
	struct rp_cq *cq = rp_container_of(fid, struct rp_cq, fid.fid);
	struct rp_dom *dom = cq->dom;
	int ret;

	if (atomic_load(&cq->refs))
		return -FI_EBUSY;
	rp_poll_remove_member(fid);
	ret = fi_close(&cq->base->fid);
	if (ret)
		return ret;
	pthread_mutex_lock(&dom->lock);
	LIST_REMOVE(cq, link);
	free_local_reads(cq);
	while (!STAILQ_EMPTY(&cq->queue))
		rp_cq_drop_first(cq);
	pthread_mutex_unlock(&dom->lock);
	close_fds(cq);
	atomic_fetch_sub(&dom->refs, 1);
	free(cq);
	return 0;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	struct rp_cq *cq = rp_container_of(fid, struct rp_cq, fid.fid);

	switch (command) {
	case FI_GETWAIT:
		if (cq->wait_obj != FI_WAIT_FD)
			return -FI_ENODATA;
		*(int *)arg = cq->epfd;
		return 0;
	case FI_GETWAITOBJ:
		*(enum fi_wait_obj *)arg = cq->wait_obj;
		return 0;
	default:
		return -FI_ENOSYS;
	}
}

struct fi_ops rp_cq_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = cq_close,
	.bind = rp_no_bind,
	.control = cq_control,
	.ops_open = rp_no_ops_open,
};

/* Open the base's queue, with a wait descriptor if the program may sleep. */
static int open_base(struct rp_cq *cq, struct fi_cq_attr *a, void *context)
{
	int fd, ret;

	a->wait_obj = cq->wait_obj == FI_WAIT_NONE ? FI_WAIT_NONE : FI_WAIT_FD;
	a->wait_cond = FI_CQ_COND_NONE;
	ret = fi_cq_open(cq->dom->base, a, &cq->base, context);
	if (ret || a->wait_obj == FI_WAIT_NONE)
		return ret;
	ret = fi_control(&cq->base->fid, FI_GETWAIT, &fd);
	if (!ret)
		ret = rp_wait_open(cq->dom, fd, &cq->ev_fd, &cq->epfd);
	if (!ret) {
		cq->poll_timer_fd = timerfd_create(CLOCK_MONOTONIC,
						   TFD_NONBLOCK | TFD_CLOEXEC);
		ret = cq->poll_timer_fd < 0
			      ? -errno
			      : rp_wait_watch(cq->epfd, cq->poll_timer_fd);
	}
	if (ret)
		fi_close(&cq->base->fid);
	return ret;
}

int rp_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
	       struct fid_cq **out, void *context)
{
	struct rp_dom *dom = rp_container_of(domain, struct rp_dom, fid);
	struct fi_cq_attr a = {0};
	struct rp_cq *cq;
	int ret;

	if (attr)
		a = *attr;
	if (a.wait_obj == FI_WAIT_SET) {
		RP_INFO(CQ, "wait sets are not offered\n");
		return -FI_ENOSYS;
	}
	if (a.format == FI_CQ_FORMAT_UNSPEC)
		a.format = FI_CQ_FORMAT_CONTEXT;
	if (!format_size(a.format))
		return -FI_EINVAL;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -FI_ENOMEM;
	cq->dom = dom;
	cq->epfd = -1;
	cq->ev_fd = -1;
	cq->poll_timer_fd = -1;
	cq->size = format_size(a.format);
	cq->wait_obj = a.wait_obj == FI_WAIT_UNSPEC ? FI_WAIT_FD : a.wait_obj;
	STAILQ_INIT(&cq->queue);
	ret = open_base(cq, &a, context);
	if (ret) {
		close_fds(cq);
		free(cq);
		return ret;
	}
	cq->fid.fid.fclass = FI_CLASS_CQ;
	cq->fid.fid.context = context;
	cq->fid.fid.ops = &rp_cq_fid_ops;
	cq->fid.ops = &rp_cq_ops;
	pthread_mutex_lock(&dom->lock);
	LIST_INSERT_HEAD(&dom->cqs, cq, link);
	pthread_mutex_unlock(&dom->lock);
	atomic_fetch_add(&dom->refs, 1);
	*out = &cq->fid;
	return 0;
}
