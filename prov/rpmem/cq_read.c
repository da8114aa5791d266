// SPDX-License-Identifier: BSD-2-Clause
/* Read a completion queue, sleep until it has entries, report errors. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "rpmem/os_services.h"
#include "rpmem/rpmem.h"

/* Most consecutive reads that poll only the base's queue. */
#define QUICK_READS 256
/*
 * For HOT_POLLS empty polls after private connections had events, only each
 * HOT_TURN-th poll also polls the base's queue, whose poll is a system call and
 * would delay the expected reply.
 */
#define HOT_POLLS 64
#define HOT_TURN  4
/* Reads in a row filled by private entries, before the base goes first. */
#define MAX_PRIVATE_READS 16
/* Poll interval in ns if no descriptor signals the base's entries. */
#define POLL_INTERVAL_NS 1000000

static struct rp_cq *cq_of(struct fid_cq *fid)
{
	return rp_container_of(fid, struct rp_cq, fid);
}

static inline ssize_t read_base(struct rp_cq *cq, void *buf, size_t count,
				fi_addr_t *src)
{
	return src ? fi_cq_readfrom(cq->base, buf, count, src)
		   : fi_cq_read(cq->base, buf, count);
}

/* Read the base's queue, and remove entries of local_read.c's reads. */
static inline ssize_t read_filtered(struct rp_cq *cq, void *buf, size_t count,
				    fi_addr_t *src)
{
	ssize_t n = read_base(cq, buf, count, src);

	return n > 0 && atomic_load(&cq->max_filtered)
		       ? rp_local_filter_entries(cq, buf, n, src)
		       : n;
}

/* With dom->lock: copy out queued private entries. -FI_EAGAIN: none. */
static ssize_t pop_entries(struct rp_cq *cq, void *buf, size_t count,
			   fi_addr_t *src)
{
	struct rp_cqe *q = STAILQ_FIRST(&cq->queue);
	size_t n = 0;

	cq->parked = atomic_load(&cq->sleepers);
	if (!q)
		return -FI_EAGAIN;
	if (q->failed)
		return -FI_EAVAIL;
	while (n < count && (q = STAILQ_FIRST(&cq->queue)) && !q->failed) {
		memcpy((char *)buf + n * cq->size, &q->e, cq->size);
		if (src)
			src[n] = q->src;
		n++;
		rp_cq_drop_first(cq);
	}
	return (ssize_t)n;
}

/* Make progress and read private entries. *came: connections had events. */
static ssize_t read_private(struct rp_cq *cq, void *buf, size_t count,
			    fi_addr_t *src, bool *came)
{
	ssize_t n;

	pthread_mutex_lock(&cq->dom->lock);
	*came = rp_domain_progress(cq->dom);
	if (*came)
		atomic_store(&cq->had_events, true);
	n = pop_entries(cq, buf, count, src);
	cq->private_reads =
		n > 0 && (size_t)n == count ? cq->private_reads + 1 : 0;
	if (*came)
		cq->hot_polls = HOT_POLLS;
	else if (cq->hot_polls)
		cq->hot_polls--;
	pthread_mutex_unlock(&cq->dom->lock);
	return n;
}

/*
 * Behind an entry of the base let the next QUICK_READS reads poll only the
 * base's queue. In a domain that is live, a private entry and an empty read end
 * that: they store 0 in cq->quick_reads. A concurrent read may overwrite the 0:
 * then the entry is noticed after QUICK_READS reads, or at the first empty one.
 */
static __attribute__((noinline)) ssize_t
read_private_and_base(struct rp_cq *cq, void *buf, size_t count, fi_addr_t *src)
{
	bool came = false, turn = false;
	ssize_t n = -FI_EAGAIN;

	if (!rp_dom_is_live(cq->dom)) {
		rp_cq_set_quick_reads(cq, QUICK_READS);
		return read_filtered(cq, buf, count, src);
	}
	if (atomic_load(&cq->private_reads) >= MAX_PRIVATE_READS) {
		turn = true;
		atomic_store(&cq->private_reads, 0);
		n = read_filtered(cq, buf, count, src);
	}
	if (n == -FI_EAGAIN)
		n = read_private(cq, buf, count, src, &came);
	if (n != -FI_EAGAIN || turn ||
	    atomic_load_explicit(&cq->hot_polls, memory_order_relaxed) %
		    HOT_TURN)
		return n;
	n = read_filtered(cq, buf, count, src);
	if (n > 0 && !came)
		rp_cq_set_quick_reads(cq, QUICK_READS);
	return n;
}

/* A quick read's slow path: filter entries of local_read.c, or end them. */
static __attribute__((noinline)) ssize_t
end_quick_reads(struct rp_cq *cq, void *buf, ssize_t n, fi_addr_t *src)
{
	if (n > 0)
		return rp_local_filter_entries(cq, buf, n, src);
	if (rp_dom_is_live(cq->dom))
		rp_cq_set_quick_reads(cq, 0);
	return n;
}

static inline ssize_t read_queue(struct rp_cq *cq, void *buf, size_t count,
				 fi_addr_t *src)
{
	int quick =
		atomic_load_explicit(&cq->quick_reads, memory_order_relaxed);
	struct rp_cq *volatile cq_kept;
	void *volatile buf_kept;
	ssize_t n;

	if (__builtin_expect(--quick < 0, 0))
		return read_private_and_base(cq, buf, count, src);
	rp_cq_set_quick_reads(cq, quick);
	/* volatile: kept on the stack, so that no register must be saved. */
	cq_kept = cq;
	buf_kept = buf;
	n = read_base(cq, buf, count, src);
	cq = cq_kept;
	if (__builtin_expect(n > atomic_load_explicit(&cq->max_filtered,
						      memory_order_acquire),
			     1))
		return n;
	return end_quick_reads(cq, buf_kept, n, src);
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
	return read_queue(cq_of(fid), buf, count, NULL);
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count,
			   fi_addr_t *src)
{
	return read_queue(cq_of(fid), buf, count, src);
}

/* The text goes to the program's buffer; without one to cq->last_detail. */
static void return_error(struct rp_cq *cq, const struct rp_cqe *q,
			 struct fi_cq_err_entry *buf)
{
	const size_t size = buf->err_data ? buf->err_data_size : 0;
	void *data = size ? buf->err_data : cq->last_detail;

	strcpy(cq->last_detail, q->detail);
	if (size)
		snprintf(data, size, "%s", q->detail);
	/* Older programs' *buf ends here; newer ones have set src_addr. */
	memcpy(buf, &q->err,
	       offsetof(struct fi_cq_err_entry, err_data_size) +
		       sizeof(q->err.err_data_size));
	buf->err_data = data;
	/* 0: a *buf that is used again must not offer last_detail. */
	buf->err_data_size = size ? strlen(data) + 1 : 0;
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf,
			  uint64_t flags)
{
	struct rp_cq *cq = cq_of(fid);
	struct rp_cqe *q;
	ssize_t ret;

	if (!rp_dom_is_live(cq->dom))
		return fi_cq_readerr(cq->base, buf, flags);
	pthread_mutex_lock(&cq->dom->lock);
	q = STAILQ_FIRST(&cq->queue);
	if (q && q->failed) {
		atomic_store(&cq->last_err_private, true);
		return_error(cq, q, buf);
		rp_cq_drop_first(cq);
		pthread_mutex_unlock(&cq->dom->lock);
		return 1;
	}
	pthread_mutex_unlock(&cq->dom->lock);
	ret = fi_cq_readerr(cq->base, buf, flags);
	if (ret != 1)
		return ret;
	atomic_store(&cq->last_err_private, false);
	return atomic_load(&cq->max_filtered) ? rp_local_filter_error(cq, buf)
					      : 1;
}

int rp_cq_has_private(struct rp_cq *cq)
{
	bool ready;

	if (!rp_dom_is_live(cq->dom))
		return 0;
	pthread_mutex_lock(&cq->dom->lock);
	rp_domain_progress(cq->dom);
	ready = !STAILQ_EMPTY(&cq->queue);
	pthread_mutex_unlock(&cq->dom->lock);
	return ready;
}

/* --- sleeping --- */

/*
 * A timer limits the sleep where fi_trywait() is unsafe: there fi_trywait()
 * reads freed memory, as ofi_rxm 1.17 queues keep wait entries of closed
 * endpoints.
 */
static int base_trywait(struct rp_cq *cq)
{
	const struct itimerspec t = {.it_value.tv_nsec = POLL_INTERVAL_NS};
	struct fid *fid = &cq->base->fid;

	if (!cq->base_trywait_unsafe)
		return fi_trywait(cq->dom->base_fabric, &fid, 1);
	return timerfd_settime(cq->poll_timer_fd, 0, &t, NULL) ? -errno : 0;
}

/* With dom->lock. 0: may sleep; -FI_EAGAIN: do not sleep yet. */
static int prepare_sleep(struct rp_cq *cq)
{
	struct rp_dom *dom = cq->dom;
	bool came = atomic_exchange(&cq->had_events, false);

	came |= rp_dom_is_live(dom) && rp_domain_progress(dom);
	if (rp_spin(&cq->spin, rp_params.spin_ns, came, rp_host_now()))
		return -FI_EAGAIN;
	/* From now on each new private entry writes the eventfd ev_fd. */
	cq->parked = true;
	if (!STAILQ_EMPTY(&cq->queue))
		return -FI_EAGAIN;
	rp_cq_drain_event(cq);
	return rp_dom_is_live(dom) ? rp_domain_trywait(dom) : 0;
}

int rp_cq_trywait(struct rp_cq *cq)
{
	int ret;

	if (cq->epfd < 0)
		return -FI_EINVAL;
	pthread_mutex_lock(&cq->dom->lock);
	ret = prepare_sleep(cq);
	if (!ret && !STAILQ_EMPTY(&cq->queue))
		ret = -FI_EAGAIN;
	pthread_mutex_unlock(&cq->dom->lock);
	return ret ? ret : base_trywait(cq);
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count,
			    fi_addr_t *src, const void *cond, int timeout)
{
	struct rp_cq *cq = cq_of(fid);
	int64_t end = timeout < 0 ? -1 : rp_wait_now() + timeout, left = -1;
	struct epoll_event ev;
	bool signaled;
	ssize_t n;
	int ret;

	if (cq->epfd < 0)
		return -FI_EINVAL;
	for (;;) {
		n = read_queue(cq, buf, count, src);
		if (n > 0)
			atomic_store(&cq->had_events, true);
		if (n != -FI_EAGAIN)
			return n;
		if (atomic_exchange(&cq->signaled, false))
			return -FI_EAGAIN;
		if (end >= 0) {
			left = end - rp_wait_now();
			if (left <= 0)
				return -FI_EAGAIN;
		}
		atomic_fetch_add(&cq->sleepers, 1);
		ret = rp_cq_trywait(cq);
		/* prepare_sleep() may have drained fi_cq_signal()'s event. */
		signaled = !ret && atomic_exchange(&cq->signaled, false);
		if (!ret && !signaled &&
		    epoll_wait(cq->epfd, &ev, 1, (int)left) < 0)
			ret = -errno;
		atomic_fetch_sub(&cq->sleepers, 1);
		if (signaled || (ret && ret != -FI_EAGAIN))
			return signaled ? -FI_EAGAIN : ret;
	}
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count,
			const void *cond, int timeout)
{
	return cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

static int cq_signal(struct fid_cq *fid)
{
	struct rp_cq *cq = cq_of(fid);

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
	struct rp_cq *cq = cq_of(fid);
	static __thread char text[440];
	const char *detail = err_data;
	bool ours;

	pthread_mutex_lock(&cq->dom->lock);
	ours = atomic_load(&cq->last_err_private);
	/* err_data of the base may be no pointer. */
	if (!ours || !detail ||
	    strncmp(detail, RP_DETAIL_START, sizeof(RP_DETAIL_START) - 1))
		detail = cq->last_detail;
	snprintf(text, sizeof(text), "%s%s%s: %s", rp_status_name(prov_errno),
		 *detail ? " " : "", detail, rp_status_remedy(prov_errno));
	pthread_mutex_unlock(&cq->dom->lock);
	if (!ours)
		return fi_cq_strerror(cq->base, prov_errno, err_data, buf, len);
	if (!buf || !len)
		return text;
	snprintf(buf, len, "%s", text);
	return buf;
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
