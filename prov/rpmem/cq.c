// SPDX-License-Identifier: BSD-2-Clause
/* Completion queues: the base's entries less ours, plus those that we make. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rpmem/cm.h"

/* So many times before something else is looked after. */
#define DRAIN_ROUNDS 64

/*
 * Every format is a prefix of the tagged one. So entries are kept as tagged
 * ones and cut to the user's size when they are handed out.
 */
static size_t format_size(enum fi_cq_format f)
{
	switch (f) {
	case FI_CQ_FORMAT_CONTEXT:
		return sizeof(struct fi_cq_entry);
	case FI_CQ_FORMAT_MSG:
		return sizeof(struct fi_cq_msg_entry);
	case FI_CQ_FORMAT_DATA:
		return sizeof(struct fi_cq_data_entry);
	case FI_CQ_FORMAT_TAGGED:
		return sizeof(struct fi_cq_tagged_entry);
	default:
		return 0;
	}
}

/* Wake a program that went to sleep believing that there was nothing. */
void rp_cq_wake(struct rp_cq *cq)
{
	if (cq->ev_fd >= 0 && !cq->ev_set) {
		eventfd_write(cq->ev_fd, 1);
		cq->ev_set = true;
	}
}

void rp_cq_unwake(struct rp_cq *cq)
{
	eventfd_t v;

	if (cq->ev_set) {
		eventfd_read(cq->ev_fd, &v);
		cq->ev_set = false;
	}
}

static struct rp_cqe *cqe_get(struct rp_cq *cq)
{
	struct rp_cqe *q = STAILQ_FIRST(&cq->spare);

	if (q)
		STAILQ_REMOVE_HEAD(&cq->spare, link);
	else
		q = malloc(sizeof(*q));
	if (q)
		q->err = NULL;
	return q;
}

static void enqueue(struct rp_cq *cq, struct rp_cqe *q)
{
	cq->quick = 0;
	STAILQ_INSERT_TAIL(&cq->queue, q, link);
	if (cq->asleep)
		rp_cq_wake(cq);
}

int rp_cq_try_push(struct rp_cq *cq, const struct fi_cq_tagged_entry *e,
		   fi_addr_t src)
{
	struct rp_cqe *q;

	/* Nobody will miss it. */
	if (cq->unread)
		return 0;
	q = cqe_get(cq);
	if (!q)
		return -ENOMEM;
	q->e = *e;
	q->src = src;
	enqueue(cq, q);
	return 0;
}

void rp_cq_push(struct rp_cq *cq, const struct fi_cq_tagged_entry *e,
		fi_addr_t src)
{
	/* A completion that cannot be told: the queue is overrun. */
	if (rp_cq_try_push(cq, e, src))
		cq->fatal = -FI_EOVERRUN;
}

void rp_cq_push_error(struct rp_cq *cq, const struct fi_cq_err_entry *err,
		      const struct rp_outcome *out)
{
	struct rp_cqe *q;

	if (cq->unread)
		return;
	q = cqe_get(cq);
	if (!q) {
		cq->fatal = -FI_EOVERRUN;
		return;
	}
	q->err = malloc(sizeof(*err));
	if (!q->err) {
		cq->fatal = -FI_EOVERRUN;
		STAILQ_INSERT_HEAD(&cq->spare, q, link);
		return;
	}
	*q->err = *err;
	q->ours = out;
	q->out = out ? *out : (struct rp_outcome){0};
	enqueue(cq, q);
}

void rp_cq_dispatch(struct rp_cq *cq, const struct fi_cq_tagged_entry *e,
		    fi_addr_t src, const struct fi_cq_err_entry *err)
{
	void *context = err ? err->op_context : e->op_context;
	struct rp_slot *s = context;

	if (!rp_is_hidden(context)) {
		if (err)
			rp_cq_push_error(cq, err, NULL);
		else
			rp_cq_push(cq, e, src);
		return;
	}
	/* There may be more to do, and more of them. */
	cq->quick = 0;
	cq->ours_seen = true;
	switch (s->kind) {
	case RP_SLOT_WRITE:
		rp_rma_completed(s, e, err);
		break;
	case RP_SLOT_READ:
		rp_local_completed(s, err);
		break;
	case RP_SLOT_FENCE:
		rp_fence_completed(s, err ? err->err : 0);
		break;
	case RP_SLOT_SEND:
	case RP_SLOT_RECV:
		rp_xport_completed(s, e ? e->len : 0, err ? err->err : 0);
		break;
	case RP_SLOT_MAIL:
		rp_mail_sent(s, err ? err->err : 0);
		break;
	case RP_SLOT_MAIL_FENCE:
		rp_mail_fenced(s, err ? err->err : 0);
		break;
	case RP_SLOT_DEAD:
		rp_slot_put(&cq->dom->slots, s);
		break;
	case RP_SLOT_COMMIT:
	case RP_SLOT_LINKED:
	case RP_SLOT_FREE:
		RP_WARN(CQ, "the base completed a context twice\n");
		break;
	}
}

static void drain_error(struct rp_cq *cq)
{
	struct fi_cq_err_entry err = {0};

	/* err_data of the base would not outlive the next read: not kept. */
	if (fi_cq_readerr(cq->base, &err, 0) != 1)
		return;
	err.err_data = NULL;
	err.err_data_size = 0;
	rp_cq_dispatch(cq, NULL, FI_ADDR_NOTAVAIL, &err);
}

/* False: there may be more. */
static bool drain(struct rp_cq *cq, bool all)
{
	struct fi_cq_tagged_entry raw[RP_CQ_BATCH], e = {0};
	fi_addr_t src[RP_CQ_BATCH];
	int rounds = DRAIN_ROUNDS;
	ssize_t n;

	if (cq->fatal)
		return true;
	/* Who sends faster than we read may not keep us from all else. */
	do {
		n = cq->source ? fi_cq_readfrom(cq->base, raw, RP_CQ_BATCH, src)
			       : fi_cq_read(cq->base, raw, RP_CQ_BATCH);
		if (n == -FI_EAVAIL) {
			drain_error(cq);
			n = RP_CQ_BATCH;
			continue;
		}
		if (n < 0 && n != -FI_EAGAIN)
			cq->fatal = (int)n;
		cq->dom->came += n > 0;
		for (ssize_t i = 0; i < n; i++) {
			fi_addr_t from = FI_ADDR_NOTAVAIL;

			memcpy(&e, (char *)raw + i * cq->base_size,
			       cq->base_size);
			if (cq->source)
				from = cq->av ? rp_av_to_user(cq->av, src[i])
					      : src[i];
			rp_cq_dispatch(cq, &e, from, NULL);
		}
	} while ((n == RP_CQ_BATCH || (all && n > 0)) && --rounds);
	return rounds;
}

void rp_cq_drain(struct rp_cq *cq)
{
	drain(cq, false);
}

/* A short read may have stopped at an error, so only nothing is the end. */
bool rp_cq_drain_all(struct rp_cq *cq)
{
	return drain(cq, true);
}

static void free_queue(struct rp_cq *cq)
{
	struct rp_cqe *q;

	while ((q = STAILQ_FIRST(&cq->queue))) {
		STAILQ_REMOVE_HEAD(&cq->queue, link);
		free(q->err);
		free(q);
	}
	while ((q = STAILQ_FIRST(&cq->spare))) {
		STAILQ_REMOVE_HEAD(&cq->spare, link);
		free(q);
	}
}

static int cq_close(struct fid *fid)
{
	struct rp_cq *cq = rp_container_of(fid, struct rp_cq, fid.fid);
	struct rp_dom *dom = cq->dom;
	int ret;

	if (atomic_load(&cq->refs))
		return -FI_EBUSY;
	pthread_mutex_lock(&dom->lock);
	/* Contexts of closed endpoints come home before the queue goes. */
	rp_cq_drain(cq);
	ret = fi_close(&cq->base->fid);
	if (!ret)
		LIST_REMOVE(cq, link);
	pthread_mutex_unlock(&dom->lock);
	if (ret)
		return ret;
	rp_poll_forget(dom, fid);
	free_queue(cq);
	if (cq->epfd >= 0)
		close(cq->epfd);
	if (cq->ev_fd >= 0)
		close(cq->ev_fd);
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

static struct fi_ops cq_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = cq_close,
	.bind = rp_no_bind,
	.control = cq_control,
	.ops_open = rp_no_ops_open,
};

bool rp_cq_is_ours(const struct fid *fid)
{
	return fid->fclass == FI_CLASS_CQ && fid->ops == &cq_fid_ops;
}

int rp_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
	       struct fid_cq **out, void *context)
{
	struct rp_dom *dom = rp_container_of(domain, struct rp_dom, fid);
	struct fi_cq_attr a = {0};
	bool want_wait;
	struct rp_cq *cq;
	int fd, ret;

	if (attr)
		a = *attr;
	if (a.wait_obj == FI_WAIT_SET) {
		RP_INFO(CQ, "wait sets are not offered\n");
		return -FI_ENOSYS;
	}
	if (a.format == FI_CQ_FORMAT_UNSPEC)
		a.format = FI_CQ_FORMAT_CONTEXT;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -FI_ENOMEM;
	cq->dom = dom;
	cq->epfd = -1;
	cq->ev_fd = -1;
	cq->format = a.format;
	cq->size = format_size(a.format);
	cq->wait_obj = a.wait_obj == FI_WAIT_UNSPEC ? FI_WAIT_FD : a.wait_obj;
	cq->source = dom->base_info->caps & FI_SOURCE;
	STAILQ_INIT(&cq->queue);
	STAILQ_INIT(&cq->spare);
	if (!cq->size) {
		free(cq);
		return -FI_EINVAL;
	}
	/* The length of a control message must be known. */
	if (a.format == FI_CQ_FORMAT_CONTEXT)
		a.format = FI_CQ_FORMAT_MSG;
	cq->base_size = format_size(a.format);
	want_wait = cq->wait_obj != FI_WAIT_NONE;
	a.wait_obj =
		want_wait || dom->auto_progress ? FI_WAIT_FD : FI_WAIT_NONE;
	a.wait_cond = FI_CQ_COND_NONE;
	if (a.size)
		a.size += 256; /* ours come through it as well */
	ret = fi_cq_open(dom->base, &a, &cq->base, context);
	if (ret) {
		free(cq);
		return ret;
	}
	if (want_wait) {
		/* To sleep on: the base, our queue, our timer, our worker. */
		ret = fi_control(&cq->base->fid, FI_GETWAIT, &fd);
		if (!ret)
			ret = rp_wait_open(dom, fd, &cq->ev_fd, &cq->epfd);
		if (ret)
			goto close;
	}
	cq->fid.fid.fclass = FI_CLASS_CQ;
	cq->fid.fid.context = context;
	cq->fid.fid.ops = &cq_fid_ops;
	cq->fid.ops = cq->size != cq->base_size && !cq->source
			      ? &rp_cq_short_ops
			      : &rp_cq_ops;
	pthread_mutex_lock(&dom->lock);
	LIST_INSERT_HEAD(&dom->cqs, cq, link);
	pthread_mutex_unlock(&dom->lock);
	atomic_fetch_add(&dom->refs, 1);
	if (dom->auto_progress)
		rp_domain_kick(dom);
	*out = &cq->fid;
	return 0;
close:
	if (cq->epfd >= 0)
		close(cq->epfd);
	if (cq->ev_fd >= 0)
		close(cq->ev_fd);
	fi_close(&cq->base->fid);
	free(cq);
	return ret;
}
