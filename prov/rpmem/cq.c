// SPDX-License-Identifier: BSD-2-Clause
/* Completion queues: the base's entries less ours, plus those that we make. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rpmem/rpmem.h"

#define DRAIN_MAX 16
/* So many times before something else is looked after. */
#define DRAIN_ROUNDS 64
/* Reads that bring the program its own, and look after nothing else. */
#define QUICK_READS 32

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
static void wake(struct rp_cq *cq)
{
	if (cq->ev_fd >= 0 && !cq->ev_set) {
		eventfd_write(cq->ev_fd, 1);
		cq->ev_set = true;
	}
}

static void unwake(struct rp_cq *cq)
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
		wake(cq);
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

static void dispatch(struct rp_cq *cq, const struct fi_cq_tagged_entry *e,
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
	case RP_SLOT_DEAD:
		rp_slot_put(&cq->dom->slots, s);
		break;
	case RP_SLOT_COMMIT:
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
	dispatch(cq, NULL, FI_ADDR_NOTAVAIL, &err);
}

/* False: there may be more. */
static bool drain(struct rp_cq *cq, bool all)
{
	struct fi_cq_tagged_entry raw[DRAIN_MAX], e = {0};
	fi_addr_t src[DRAIN_MAX];
	int rounds = DRAIN_ROUNDS;
	ssize_t n;

	if (cq->fatal)
		return true;
	/* Who sends faster than we read may not keep us from all else. */
	do {
		n = cq->source ? fi_cq_readfrom(cq->base, raw, DRAIN_MAX, src)
			       : fi_cq_read(cq->base, raw, DRAIN_MAX);
		if (n == -FI_EAVAIL) {
			drain_error(cq);
			n = DRAIN_MAX;
			continue;
		}
		if (n < 0 && n != -FI_EAGAIN)
			cq->fatal = (int)n;
		for (ssize_t i = 0; i < n; i++) {
			fi_addr_t from = FI_ADDR_NOTAVAIL;

			memcpy(&e, (char *)raw + i * cq->base_size,
			       cq->base_size);
			if (cq->source)
				from = cq->av ? rp_av_to_user(cq->av, src[i])
					      : src[i];
			dispatch(cq, &e, from, NULL);
		}
	} while ((n == DRAIN_MAX || (all && n > 0)) && --rounds);
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

/* Hand out what is queued. 0: nothing; -FI_EAVAIL: an error comes first. */
static ssize_t pop(struct rp_cq *cq, void *buf, size_t count, fi_addr_t *src)
{
	struct rp_cqe *q = STAILQ_FIRST(&cq->queue);
	size_t n = 0;

	if (q && q->err)
		return -FI_EAVAIL;
	while (n < count && (q = STAILQ_FIRST(&cq->queue))) {
		if (q->err)
			break;
		memcpy((char *)buf + n * cq->size, &q->e, cq->size);
		if (src)
			src[n] = q->src;
		n++;
		STAILQ_REMOVE_HEAD(&cq->queue, link);
		STAILQ_INSERT_HEAD(&cq->spare, q, link);
	}
	cq->asleep = false;
	if (STAILQ_EMPTY(&cq->queue))
		unwake(cq);
	return (ssize_t)n;
}

/*
 * The first of ours at i: what came before it is the program's at once, and all
 * from there on is queued, in order. Returns how many are left. Without the
 * lock (before anything hidden is under way) another thread may have started
 * hidden traffic while this one was already inside the base's read.
 */
static __attribute__((noinline)) ssize_t
take_out(struct rp_cq *cq, const char *raw, ssize_t n, ssize_t i,
	 const fi_addr_t *src, bool locked)
{
	struct fi_cq_tagged_entry e = {0};
	ssize_t kept = i;

	if (!locked)
		pthread_mutex_lock(&cq->dom->lock);
	for (; i < n; i++) {
		memcpy(&e, raw + i * cq->base_size, cq->base_size);
		dispatch(cq, &e, src ? src[i] : FI_ADDR_NOTAVAIL, NULL);
	}
	if (!locked)
		pthread_mutex_unlock(&cq->dom->lock);
	return kept ? kept : -FI_EAGAIN;
}

static inline ssize_t read_raw(struct rp_cq *cq, char *raw, size_t count,
			       fi_addr_t *src, size_t size, bool locked)
{
	const char *entry = raw;
	ssize_t n;

	n = src ? fi_cq_readfrom(cq->base, raw, count, src)
		: fi_cq_read(cq->base, raw, count);
	if (src && cq->av)
		for (ssize_t i = 0; i < n; i++)
			src[i] = rp_av_to_user(cq->av, src[i]);
	for (ssize_t i = 0; i < n; i++, entry += size)
		if (rp_is_hidden(*(void *const *)entry))
			return take_out(cq, raw, n, i, src, locked);
	return n;
}

/* The program has no room for what we must know of each. */
static ssize_t read_small(struct rp_cq *cq, struct fi_cq_entry *to,
			  size_t count, fi_addr_t *src, bool locked)
{
	struct fi_cq_msg_entry raw[DRAIN_MAX];
	ssize_t n;

	if (count > DRAIN_MAX)
		count = DRAIN_MAX;
	n = read_raw(cq, (char *)raw, count, src, sizeof(raw[0]), locked);
	for (ssize_t i = 0; i < n; i++)
		to[i].op_context = raw[i].op_context;
	return n;
}

/* Straight from the base into the program's memory. */
static inline ssize_t read_base(struct rp_cq *cq, void *buf, size_t count,
				fi_addr_t *src, bool locked)
{
	if (cq->size != cq->base_size)
		return read_small(cq, buf, count, src, locked);
	return read_raw(cq, buf, count, src, cq->size, locked);
}

/*
 * May the base's queue be read without the lock? Where a thread of ours reads
 * too, the lock keeps completions in order even before the first hidden one.
 * Who counts must know that none of ours is on its way through such a reader.
 */
static bool raw_begin(struct rp_cq *cq, bool *counted)
{
	struct rp_dom *dom = cq->dom;

	*counted = atomic_load_explicit(&dom->counted, memory_order_relaxed);
	if (*counted)
		atomic_fetch_add(&dom->raw, 1);
	if (!atomic_load(&dom->live) && !dom->auto_progress &&
	    !atomic_load_explicit(&cq->polled, memory_order_relaxed))
		return true;
	if (*counted)
		atomic_fetch_sub(&dom->raw, 1);
	return false;
}

static void raw_end(struct rp_dom *dom, bool counted)
{
	if (counted)
		atomic_fetch_sub(&dom->raw, 1);
}

/* With the lock: everything that is due, then what is queued. */
static __attribute__((noinline)) ssize_t read_queue(struct rp_cq *cq, void *buf,
						    size_t count,
						    fi_addr_t *src,
						    const struct rp_cq *but)
{
	ssize_t n;

	rp_domain_progress_but(cq->dom, but);
	n = pop(cq, buf, count, src);
	if (cq->ours_seen || cq->fatal || !STAILQ_EMPTY(&cq->queue))
		cq->quick = 0;
	else if (n > 0)
		cq->quick = QUICK_READS;
	/* A read of no entries only asks whether there are any. */
	if (!n && (count || STAILQ_EMPTY(&cq->queue)))
		n = cq->fatal ? cq->fatal : -FI_EAGAIN;
	return n;
}

/*
 * After the program has found entries of its own, and none was ours, nothing
 * else is looked after as long as it goes on like that, for so many reads.
 */
static ssize_t read_live(struct rp_cq *cq, void *buf, size_t count,
			 fi_addr_t *src)
{
	struct rp_dom *dom = cq->dom;
	const struct rp_cq *but = NULL;
	ssize_t n;

	pthread_mutex_lock(&dom->lock);
	cq->ours_seen = false;
	if (cq->quick && count && cq->source == !!src &&
	    !atomic_load_explicit(&dom->kicked, memory_order_relaxed)) {
		cq->quick--;
		n = read_base(cq, buf, count, src, true);
		if (n > 0) {
			cq->asleep = false;
			goto unlock;
		}
		/* Just now there was nothing in it. */
		but = n == -FI_EAGAIN && !cq->ours_seen ? cq : NULL;
	}
	n = read_queue(cq, buf, count, src, but);
unlock:
	pthread_mutex_unlock(&dom->lock);
	return n;
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count,
			   fi_addr_t *src)
{
	struct rp_cq *cq = rp_container_of(fid, struct rp_cq, fid);
	bool counted;
	ssize_t n;

	if (atomic_load_explicit(&cq->dom->live, memory_order_relaxed) ||
	    !raw_begin(cq, &counted))
		return read_live(cq, buf, count, src);
	n = read_base(cq, buf, count, src, false);
	raw_end(cq->dom, counted);
	return n;
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
	return cq_readfrom(fid, buf, count, NULL);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf,
			  uint64_t flags)
{
	struct rp_cq *cq = rp_container_of(fid, struct rp_cq, fid);
	struct rp_cqe *q;
	ssize_t ret = -FI_EAGAIN;
	bool counted;

	if (raw_begin(cq, &counted)) {
		ret = fi_cq_readerr(cq->base, buf, flags);
		if (ret == 1 && rp_is_hidden(buf->op_context)) {
			pthread_mutex_lock(&cq->dom->lock);
			dispatch(cq, NULL, FI_ADDR_NOTAVAIL, buf);
			pthread_mutex_unlock(&cq->dom->lock);
			ret = -FI_EAGAIN;
		}
		raw_end(cq->dom, counted);
		return ret;
	}
	pthread_mutex_lock(&cq->dom->lock);
	rp_cq_drain(cq);
	q = STAILQ_FIRST(&cq->queue);
	if (q && q->err) {
		/* Fields of later API versions stay the caller's. */
		q->err->err_data = buf->err_data;
		q->err->err_data_size = 0;
		memcpy(buf, q->err, sizeof(*buf));
		cq->last_err_ours = q->ours;
		cq->last_out = q->out;
		free(q->err);
		STAILQ_REMOVE_HEAD(&cq->queue, link);
		STAILQ_INSERT_HEAD(&cq->spare, q, link);
		if (STAILQ_EMPTY(&cq->queue))
			unwake(cq);
		ret = 1;
	}
	pthread_mutex_unlock(&cq->dom->lock);
	return ret;
}

int rp_cq_base_trywait(struct rp_cq *cq, bool *soon)
{
	struct fid *fid = &cq->base->fid;

	if (!atomic_load(&cq->refs))
		return 0;
	if (cq->no_trywait) {
		*soon = true;
		return 0;
	}
	return fi_trywait(cq->dom->base_fabric, &fid, 1);
}

int rp_cq_ready(struct rp_cq *cq)
{
	int ret;

	/* sockets does not say whether there is something without reading. */
	atomic_store(&cq->polled, true);
	pthread_mutex_lock(&cq->dom->lock);
	rp_domain_progress(cq->dom);
	ret = STAILQ_EMPTY(&cq->queue) ? cq->fatal : 1;
	pthread_mutex_unlock(&cq->dom->lock);
	return ret;
}

int rp_cq_trywait(struct rp_cq *cq)
{
	struct rp_dom *dom = cq->dom;
	bool soon = false;
	struct rp_ep *ep;
	int ret;

	if (cq->epfd < 0)
		return -FI_EINVAL;
	pthread_mutex_lock(&dom->lock);
	/* Until something is hidden the program reads from the base alone. */
	if (atomic_load(&dom->live) || dom->auto_progress)
		rp_domain_progress(dom);
	else
		rp_domain_hush(dom);
	cq->asleep = true;
	/* What a signal, or an entry read since, has left in it. */
	if (STAILQ_EMPTY(&cq->queue))
		unwake(cq);
	ret = STAILQ_EMPTY(&cq->queue) && !cq->fatal ? 0 : -FI_EAGAIN;
	if (!ret)
		ret = rp_cq_base_trywait(cq, &soon);
	/* An answer may arrive on the other queue of the endpoint. */
	LIST_FOREACH (ep, &dom->eps, link) {
		struct rp_cq *o = ep->tx_cq == cq   ? ep->rx_cq
				  : ep->rx_cq == cq ? ep->tx_cq
						    : NULL;

		if (!ret && o && o != cq && o->epfd >= 0)
			ret = rp_cq_base_trywait(o, &soon);
	}
	if (!ret)
		rp_domain_arm(dom, soon);
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count,
			    fi_addr_t *src, const void *cond, int timeout)
{
	struct rp_cq *cq = rp_container_of(fid, struct rp_cq, fid);
	int64_t end = timeout < 0 ? -1 : rp_wait_now() + timeout, left = -1;
	struct epoll_event ev;
	ssize_t n;
	int ret;

	if (cq->epfd < 0)
		return -FI_EINVAL;
	for (;;) {
		n = cq_readfrom(fid, buf, count, src);
		if (n != -FI_EAGAIN)
			return n;
		if (atomic_exchange(&cq->signaled, false))
			return -FI_EAGAIN;
		if (end >= 0) {
			left = end - rp_wait_now();
			if (left <= 0)
				return -FI_EAGAIN;
		}
		ret = rp_cq_trywait(cq);
		if (ret == -FI_EAGAIN)
			continue;
		if (ret)
			return ret;
		/* The wake of an earlier signal may just have been undone. */
		if (atomic_exchange(&cq->signaled, false))
			return -FI_EAGAIN;
		if (epoll_wait(cq->epfd, &ev, 1, (int)left) < 0)
			return -errno;
	}
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count,
			const void *cond, int timeout)
{
	return cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

static int cq_signal(struct fid_cq *fid)
{
	struct rp_cq *cq = rp_container_of(fid, struct rp_cq, fid);

	if (cq->epfd < 0)
		return -FI_EINVAL;
	atomic_store(&cq->signaled, true);
	pthread_mutex_lock(&cq->dom->lock);
	wake(cq);
	pthread_mutex_unlock(&cq->dom->lock);
	return 0;
}

static const char *cq_strerror(struct fid_cq *fid, int prov_errno,
			       const void *err_data, char *buf, size_t len)
{
	struct rp_cq *cq = rp_container_of(fid, struct rp_cq, fid);
	static __thread char own[360];
	struct rp_outcome out;
	char what[100] = "", range[40] = "";
	bool ours;

	pthread_mutex_lock(&cq->dom->lock);
	ours = cq->last_err_ours;
	out = cq->last_out;
	pthread_mutex_unlock(&cq->dom->lock);
	if (!ours)
		return fi_cq_strerror(cq->base, prov_errno, err_data, buf, len);
	if (prov_errno == RP_ST_CLASS && out.status == RP_ST_CLASS)
		snprintf(what, sizeof(what),
			 " (the region reaches %s, %s is required)",
			 rp_class_name(out.detail),
			 rp_class_name(out.required));
	if (prov_errno == RP_ST_UNSURE && out.status == RP_ST_UNSURE)
		snprintf(what, sizeof(what), " (%s)",
			 rp_status_name(out.detail));
	if (out.range)
		snprintf(range, sizeof(range), " (range %llu)",
			 (unsigned long long)out.range);
	snprintf(own, sizeof(own), "%s%s%s: %s", rp_status_name(prov_errno),
		 what, range, rp_status_remedy(prov_errno));
	if (buf && len) {
		snprintf(buf, len, "%s", own);
		return buf;
	}
	return own;
}

static struct fi_ops_cq cq_ops = {
	.size = sizeof(struct fi_ops_cq),
	.read = cq_read,
	.readfrom = cq_readfrom,
	.readerr = cq_readerr,
	.sread = cq_sread,
	.sreadfrom = cq_sreadfrom,
	.signal = cq_signal,
	.strerror = cq_strerror,
};

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
	cq->fid.ops = &cq_ops;
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
