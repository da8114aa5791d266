// SPDX-License-Identifier: BSD-2-Clause
/* How programs read a completion queue, sleep on it and ask what went wrong. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "rpmem/conn.h"
#include "rpmem/host.h"

/* Reads that bring the program its own, and look after nothing else. */
#define QUICK_READS 128

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
		rp_cq_unwake(cq);
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
		rp_cq_dispatch(cq, &e, src ? src[i] : FI_ADDR_NOTAVAIL, NULL);
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
static __attribute__((noinline)) ssize_t read_small(struct rp_cq *cq,
						    struct fi_cq_entry *to,
						    size_t count,
						    fi_addr_t *src, bool locked)
{
	struct fi_cq_msg_entry raw[RP_CQ_BATCH];
	ssize_t n;

	if (count > RP_CQ_BATCH)
		count = RP_CQ_BATCH;
	n = read_raw(cq, (char *)raw, count, src, sizeof(raw[0]), locked);
	for (ssize_t i = 0; i < n; i++)
		to[i].op_context = raw[i].op_context;
	return n;
}

/* One of those, which is what most programs read at a time. */
static inline ssize_t read_one_small(struct rp_cq *cq, struct fi_cq_entry *to,
				     bool locked)
{
	struct fi_cq_msg_entry raw;
	ssize_t n = fi_cq_read(cq->base, &raw, 1);

	if (n != 1)
		return n;
	if (rp_is_hidden(raw.op_context))
		return take_out(cq, (char *)&raw, 1, 0, NULL, locked);
	to->op_context = raw.op_context;
	return 1;
}

/* Straight from the base into the program's memory. */
static inline ssize_t read_base(struct rp_cq *cq, void *buf, size_t count,
				fi_addr_t *src, bool locked)
{
	if (cq->size != cq->base_size && count == 1 && !src)
		return read_one_small(cq, buf, locked);
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

/* A kick comes without the lock: it is seen here, or ends what begins here. */
static void be_quick(struct rp_cq *cq)
{
	struct rp_dom *dom = cq->dom;

	cq->quick = QUICK_READS;
	atomic_store(&dom->quick_count, 1);
	if (atomic_load(&dom->kicked))
		atomic_store(&dom->quick_count, RP_NOT_QUICK);
}

/* With the lock: everything that is due, then what is queued. */
static __attribute__((noinline)) ssize_t read_queue(struct rp_cq *cq, void *buf,
						    size_t count,
						    fi_addr_t *src,
						    const struct rp_cq *but)
{
	ssize_t n;

	/* What has just come over a connection is not kept waiting. */
	if (!rp_domain_progress_conns(cq->dom) || STAILQ_EMPTY(&cq->queue) ||
	    ++cq->own_reads > QUICK_READS) {
		cq->own_reads = 0;
		rp_domain_progress_rest(cq->dom, but);
	}
	n = pop(cq, buf, count, src);
	if (cq->ours_seen || cq->fatal || !STAILQ_EMPTY(&cq->queue))
		cq->quick = 0;
	else if (n > 0)
		be_quick(cq);
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
	if (cq->quick > 0 && count && cq->source == !!src &&
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

static __attribute__((noinline)) ssize_t
read_watched(struct rp_cq *cq, void *buf, size_t count, fi_addr_t *src)
{
	bool counted;
	ssize_t n;

	if (atomic_load_explicit(&cq->dom->live, memory_order_relaxed) ||
	    !raw_begin(cq, &counted))
		return read_live(cq, buf, count, src);
	n = read_base(cq, buf, count, src, false);
	raw_end(cq->dom, counted);
	return n;
}

static inline bool watched(const struct rp_cq *cq)
{
	return atomic_load_explicit(&cq->dom->watched, memory_order_relaxed);
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count,
			   fi_addr_t *src)
{
	struct rp_cq *cq = rp_container_of(fid, struct rp_cq, fid);

	return watched(cq) ? read_watched(cq, buf, count, src)
			   : read_base(cq, buf, count, src, false);
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
	return cq_readfrom(fid, buf, count, NULL);
}

/* With the lock, which it gives back: n came of a read of one into cq->raw. */
static __attribute__((noinline)) ssize_t read_on(struct rp_cq *cq, void *buf,
						 ssize_t n)
{
	const struct rp_cq *but;

	cq->ours_seen = false;
	if (cq->quick < 0)
		cq->quick = 0;
	if (n == 1)
		n = take_out(cq, (char *)&cq->raw, 1, 0, NULL, true);
	but = n == -FI_EAGAIN && !cq->ours_seen ? cq : NULL;
	n = read_queue(cq, buf, 1, NULL, but);
	pthread_mutex_unlock(&cq->dom->lock);
	return n;
}

/* The same as cq_read(); most programs read one short entry at a time. */
static ssize_t cq_read_short(struct fid_cq *fid, void *buf, size_t count)
{
	struct rp_cq *cq = rp_container_of(fid, struct rp_cq, fid);
	struct fi_cq_entry *to = buf;
	ssize_t n;

	if (count !=
	    atomic_load_explicit(&cq->dom->quick_count, memory_order_relaxed))
		return cq_readfrom(fid, buf, count, NULL);
	pthread_mutex_lock(&cq->dom->lock);
	if (--cq->quick < 0)
		return read_on(cq, buf, 0);
	n = fi_cq_read(cq->base, &cq->raw, 1);
	if (n != 1 || rp_is_hidden(cq->raw.op_context))
		return read_on(cq, buf, n);
	to->op_context = cq->raw.op_context;
	pthread_mutex_unlock(&cq->dom->lock);
	return 1;
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
			rp_cq_dispatch(cq, NULL, FI_ADDR_NOTAVAIL, buf);
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
			rp_cq_unwake(cq);
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
	atomic_store(&cq->dom->watched, true);
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
	bool came;
	int ret;

	if (cq->epfd < 0)
		return -FI_EINVAL;
	pthread_mutex_lock(&dom->lock);
	/* Until something is hidden the program reads from the base alone. */
	if (atomic_load(&dom->live) || dom->auto_progress)
		rp_domain_progress(dom);
	else
		rp_domain_hush(dom);
	came = cq->came != dom->came;
	cq->came = dom->came;
	if (rp_spin(&cq->spin, rp_params.spin_ns, came, rp_host_now())) {
		cq->quick = 0; /* the next read is counted */
		pthread_mutex_unlock(&dom->lock);
		return -FI_EAGAIN;
	}
	cq->asleep = true;
	cq->quick = 0; /* what reads next sees that it is awake */
	/* What a signal, or an entry read since, has left in it. */
	if (STAILQ_EMPTY(&cq->queue))
		rp_cq_unwake(cq);
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
		ret = rp_conns_trywait(dom->conns, &soon);
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
	rp_cq_wake(cq);
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

struct fi_ops_cq rp_cq_ops = {
	.size = sizeof(struct fi_ops_cq),
	.read = cq_read,
	.readfrom = cq_readfrom,
	.readerr = cq_readerr,
	.sread = cq_sread,
	.sreadfrom = cq_sreadfrom,
	.signal = cq_signal,
	.strerror = cq_strerror,
};

struct fi_ops_cq rp_cq_short_ops = {
	.size = sizeof(struct fi_ops_cq),
	.read = cq_read_short,
	.readfrom = cq_readfrom,
	.readerr = cq_readerr,
	.sread = cq_sread,
	.sreadfrom = cq_sreadfrom,
	.signal = cq_signal,
	.strerror = cq_strerror,
};
