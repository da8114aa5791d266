// SPDX-License-Identifier: BSD-2-Clause
/* What drives hidden work: every call on a CQ, or a thread of our own. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "rpmem/cm.h"
#include "rpmem/conn.h"
#include "rpmem/host.h"

/* How often to look where no event tells. */
#define LOOK_NS 1000000
/* And whether a connection that an answer is to come over is still there. */
#define GONE_NS 50000000

void rp_domain_kick(struct rp_dom *dom)
{
	/*
	 * Always written: the flag only saves take_kick() a system call, and a
	 * kick that it hid between its two steps would be lost.
	 */
	eventfd_write(dom->kick_fd, 1);
	atomic_store(&dom->kicked, true);
	atomic_store(&dom->quick_count, RP_NOT_QUICK);
}

static void take_kick(struct rp_dom *dom)
{
	eventfd_t v;

	if (!atomic_load_explicit(&dom->kicked, memory_order_relaxed))
		return;
	atomic_store(&dom->kicked, false);
	eventfd_read(dom->kick_fd, &v);
}

static bool armed(const struct rp_dom *dom)
{
	return dom->timer_due && dom->timer_due != UINT64_MAX;
}

static uint64_t not_before(struct rp_dom *dom, uint64_t t)
{
	if (t > dom->clock)
		dom->clock = t;
	return dom->clock;
}

uint64_t rp_domain_now(struct rp_dom *dom)
{
	return not_before(dom, armed(dom) ? rp_host_now() : rp_host_tick());
}

/* What the timer woke somebody for is due from then on. */
static void take_timer(struct rp_dom *dom)
{
	uint64_t v;

	if (!armed(dom) || not_before(dom, rp_host_now()) < dom->timer_due)
		return;
	if (read(dom->timer_fd, &v, sizeof(v)) == sizeof(v))
		dom->timer_due = UINT64_MAX;
}

void rp_domain_hush(struct rp_dom *dom)
{
	take_kick(dom);
	take_timer(dom);
}

bool rp_domain_progress_conns(struct rp_dom *dom)
{
	bool told = false;
	struct rp_ep *ep;

	if (!dom->conns)
		return false;
	rp_conns_progress(dom->conns);
	LIST_FOREACH (ep, &dom->eps, link)
		if (ep->initiator)
			told |= rp_initiator_tell(ep->initiator);
	return told;
}

void rp_domain_progress_rest(struct rp_dom *dom, const struct rp_cq *but)
{
	struct rp_cq *cq;
	struct rp_ep *ep;

	rp_domain_hush(dom);
	LIST_FOREACH (cq, &dom->cqs, link)
		if (cq != but)
			rp_cq_drain(cq);
	if (dom->msg)
		LIST_FOREACH (ep, &dom->eps, link)
			rp_mail_look(ep);
	rp_agent_progress(dom->agent);
	LIST_FOREACH (ep, &dom->eps, link) {
		rp_gather_send(ep);
		if (ep->initiator)
			rp_initiator_progress(ep->initiator);
		if (ep->recv_due)
			rp_xport_repost(ep);
		if (ep->nrecv)
			rp_xport_look(ep);
	}
}

void rp_domain_progress(struct rp_dom *dom)
{
	rp_domain_progress_conns(dom);
	rp_domain_progress_rest(dom, NULL);
}

void rp_domain_arm(struct rp_dom *dom, bool soon)
{
	uint64_t due = rp_agent_deadline(dom->agent), d, gone = UINT64_MAX;
	const uint64_t now = not_before(dom, rp_host_now());
	struct itimerspec t = {0};
	struct rp_ep *ep;

	LIST_FOREACH (ep, &dom->eps, link) {
		/* A device that writes into a mailbox wakes nobody. */
		soon |= dom->cards && ep->connected &&
			(ep->serving || rp_mail_waits(ep));
		if (!ep->initiator)
			continue;
		d = rp_initiator_deadline(ep->initiator);
		due = d < due ? d : due;
		if (dom->msg && rp_mail_waits(ep))
			gone = now + GONE_NS;
	}
	due = gone < due ? gone : due;
	if (soon && now + LOOK_NS < due)
		due = now + LOOK_NS;
	due += !due; /* zero would switch the timer off */
	if (due == dom->timer_due)
		return;
	dom->timer_due = due;
	if (due != UINT64_MAX) {
		t.it_value.tv_sec = (time_t)(due / 1000000000ull);
		t.it_value.tv_nsec = (long)(due % 1000000000ull);
	}
	timerfd_settime(dom->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

/* May the thread sleep? Everything that could wake it has been looked at. */
static int thread_trywait(struct rp_dom *dom)
{
	struct epoll_event ev;
	struct rp_cq *cq;
	bool soon = false;
	uint64_t before;
	int fd, ret = 0;

	pthread_mutex_lock(&dom->lock);
	before = dom->came;
	rp_domain_progress(dom);
	/* What the program has found itself is no reason. */
	if (rp_spin(&dom->spin, rp_params.spin_ns, dom->came != before,
		    rp_host_now())) {
		pthread_mutex_unlock(&dom->lock);
		return -FI_EAGAIN;
	}
	LIST_FOREACH (cq, &dom->cqs, link) {
		if (fi_control(&cq->base->fid, FI_GETWAIT, &fd))
			continue;
		ev = (struct epoll_event){.events = EPOLLIN, .data.fd = fd};
		/* A closed queue's descriptor has left by itself. */
		if (epoll_ctl(dom->epfd, EPOLL_CTL_ADD, fd, &ev) &&
		    errno != EEXIST) {
			ret = -errno;
			break;
		}
		ret = rp_cq_base_trywait(cq, &soon);
		if (ret)
			break;
	}
	if (!ret)
		ret = rp_conns_trywait(dom->conns, &soon);
	if (!ret)
		rp_domain_arm(dom, soon);
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

static void *thread_run(void *arg)
{
	struct rp_dom *dom = arg;
	struct epoll_event ev;
	int ret;

	while (!atomic_load(&dom->stop)) {
		ret = thread_trywait(dom);
		/* It may have taken the kick that came with the order. */
		if (ret == -FI_EAGAIN || atomic_load(&dom->stop))
			continue;
		if (ret)
			RP_WARN(DOMAIN, "progress thread: %s\n",
				strerror(-ret));
		epoll_wait(dom->epfd, &ev, 1, ret ? 100 : -1);
	}
	return NULL;
}

int rp_domain_thread_start(struct rp_dom *dom)
{
	int ret;

	dom->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (dom->epfd < 0)
		return -errno;
	atomic_store(&dom->stop, false);
	ret = rp_wait_watch(dom->epfd, dom->kick_fd);
	if (!ret)
		ret = rp_wait_watch(dom->epfd, dom->timer_fd);
	if (!ret && dom->conns)
		ret = rp_wait_watch(dom->epfd, dom->conns->epfd);
	if (!ret)
		ret = -pthread_create(&dom->thread, NULL, thread_run, dom);
	if (ret) {
		close(dom->epfd);
		dom->epfd = -1;
		return ret;
	}
	dom->thread_on = true;
	return 0;
}

void rp_domain_thread_stop(struct rp_dom *dom)
{
	if (!dom->thread_on)
		return;
	atomic_store(&dom->stop, true);
	rp_domain_kick(dom);
	pthread_join(dom->thread, NULL);
	close(dom->epfd);
	dom->epfd = -1;
	dom->thread_on = false;
}
