// SPDX-License-Identifier: BSD-2-Clause
/* A protection domain's agent at the target, and its thread. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/log.h"
#include "verbs/target_priv.h"

#define NS_PER_MS 1000000ull

/* Polls between reads of the clock and of events; yields to lock waiters. */
#define POLLS  16
#define YIELDS 100

static pthread_mutex_t doms_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, rp_pd) doms = LIST_HEAD_INITIALIZER(doms);

void rp_pd_wake(const struct rp_pd *dom)
{
	/* eventfd_write() fails only if a wake-up is pending. */
	eventfd_write(dom->kick, 1);
}

/* With dom->lock: get and acknowledge completion events. */
static void collect_events(struct rp_pd *dom)
{
	struct rp_target *s;
	struct ibv_cq *cq;
	void *of;

	while (!ibv_get_cq_event(dom->channel, &cq, &of)) {
		s = of;
		ibv_ack_cq_events(cq, 1);
		rp_target_unpark(s);
	}
}

static bool poll_peers(struct rp_pd *dom)
{
	struct rp_target *s;
	bool came = false;

	LIST_FOREACH (s, &dom->polled, polled) {
		came |= rp_target_poll_cq(s);
		if (s->polling)
			came |= rp_target_poll_ring(s);
	}
	return came;
}

/* Polling has found requests: send POLLING to each peer that has a ring. */
static void announce_polling(struct rp_pd *dom)
{
	struct rp_target *s;

	LIST_FOREACH (s, &dom->polled, polled)
		if (s->up && s->ring_mr && !s->polling)
			s->polling = rp_target_signal(s, RP_MSG_POLLING);
}

void rp_pd_fail_if_weakened(struct rp_pd *dom, struct rp_qp *q)
{
	uint64_t n = q ? q->since : UINT64_MAX;
	int ret;

	if (!rp_agent_next_weakened(dom->agent, &n))
		return;
	ret = q->ops->fail(q);
	if (!ret)
		q->since = UINT64_MAX;
	else
		dom->weakenings = UINT64_MAX;
	if (!ret || ret != q->fail_err)
		rp_log(RP_LOG_WARN,
		       "queue pair %u %s%s: a region has weakened, and the "
		       "peer may not know; connect the queue pair again",
		       q->pub.qp->qp_num, ret ? "cannot be failed: " : "fails",
		       ret ? strerror(ret) : "");
	q->fail_err = ret;
}

/* Fail queue pairs without INFO; the others get it, as their buffers allow. */
static void announce_weakenings(struct rp_pd *dom)
{
	uint64_t last = UINT64_MAX;
	struct rp_target *s;
	struct rp_qp *q;

	rp_agent_next_weakened(dom->agent, &last);
	if (dom->weakenings == last)
		return;
	dom->weakenings = last;
	LIST_FOREACH (q, &dom->watched, watch_link)
		rp_pd_fail_if_weakened(dom, q);
	LIST_FOREACH (s, &dom->targets, link)
		rp_target_send_weakenings(s);
}

/* Send IDLE, after which peers ring the doorbell. False: no send buffer. */
static bool announce_idle(struct rp_target *s)
{
	if (s->up && s->polling && !rp_target_signal(s, RP_MSG_IDLE))
		return false;
	s->polling = false;
	return true;
}

/* Arm all completion queues. True: work was found, do not sleep. */
static bool park_all(struct rp_pd *dom)
{
	struct rp_target *s, *next;
	bool came = false;

	LIST_FOREACH_SAFE(s, &dom->polled, polled, next)
	{
		if (came || !announce_idle(s))
			continue;
		rp_target_park(s);
		came = ibv_req_notify_cq(s->cq, 0);
		if (came)
			rp_target_disconnect(s);
		came |= rp_target_poll_cq(s);
	}
	return came;
}

static bool keep_polling(struct rp_pd *dom, bool came, unsigned int polls)
{
	/* Skip the clock, which may cost more than a poll. */
	if (!came && dom->spin.until && polls % POLLS)
		return true;
	return rp_spin(&dom->spin, dom->spin_ns, came,
		       rp_clock_ns(CLOCK_MONOTONIC));
}

static int wait_ms(const struct rp_pd *dom)
{
	const uint64_t due = rp_agent_deadline(dom->agent), t = rp_target_now();
	/* Weakenings that could not be announced are tried again. */
	const uint64_t most = dom->weakenings == UINT64_MAX ? 400 : 60000;
	const uint64_t ms = due > t ? (due - t) / NS_PER_MS + 1 : 0;

	/* A peer that takes no IDLE is polled, as it expects that. */
	if (!LIST_EMPTY(&dom->polled))
		return 1;
	if (due == UINT64_MAX && dom->weakenings != UINT64_MAX)
		return -1;
	return (int)(ms < most ? ms : most);
}

static void wait_for_event(struct rp_pd *dom)
{
	struct pollfd fds[] = {
		{.fd = dom->channel->fd, .events = POLLIN},
		{.fd = dom->kick, .events = POLLIN},
	};
	const int ms = wait_ms(dom);
	eventfd_t kicks;

	pthread_mutex_unlock(&dom->lock);
	poll(fds, 2, ms);
	eventfd_read(dom->kick, &kicks);
	pthread_mutex_lock(&dom->lock);
}

/* Yield to waiters, because relocking a mutex at once starves them. */
static void yield_lock(struct rp_pd *dom)
{
	for (int i = 0; i < YIELDS && atomic_load(&dom->lock_waiters); i++)
		sched_yield();
}

static void *run_thread(void *arg)
{
	struct rp_pd *dom = arg;
	bool came, paid;

	pthread_mutex_lock(&dom->lock);
	for (unsigned int polls = 0; !dom->stop; polls++) {
		if (!(polls % POLLS))
			collect_events(dom);
		paid = dom->spin.until;
		dom->has_message = false;
		came = poll_peers(dom);
		/* Before rp_agent_progress() flushes weakened regions. */
		do
			announce_weakenings(dom);
		while (rp_agent_progress(dom->agent));
		if (dom->has_message && paid)
			announce_polling(dom);
		if (keep_polling(dom, came, polls) || park_all(dom)) {
			pthread_mutex_unlock(&dom->lock);
			yield_lock(dom);
			pthread_mutex_lock(&dom->lock);
		} else {
			wait_for_event(dom);
			polls = UINT_MAX; /* next poll reads the events */
		}
	}
	pthread_mutex_unlock(&dom->lock);
	return NULL;
}

int rp_pd_start(struct rp_pd *dom)
{
	int ret;

	if (dom->runs)
		return 0;
	ret = rp_thread_start(&dom->thread, run_thread, dom);
	dom->runs = !ret;
	return ret;
}

/* --- domains: open, close --- */

static int channel_open(struct rp_pd *dom)
{
	int flags;

	dom->kick = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (dom->kick < 0)
		return errno;
	dom->channel = ibv_create_comp_channel(dom->pd->context);
	if (!dom->channel)
		return errno;
	flags = fcntl(dom->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(dom->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return errno;
	return 0;
}

/* Free a domain, even one that could not be opened. */
static void dom_delete(struct rp_pd *dom)
{
	rp_pd_lock(dom);
	dom->stop = true;
	pthread_mutex_unlock(&dom->lock);
	if (dom->runs) {
		rp_pd_wake(dom);
		pthread_join(dom->thread, NULL);
	}
	if (dom->agent)
		rp_agent_delete(dom->agent);
	if (dom->kick >= 0)
		close(dom->kick);
	if (dom->channel)
		ibv_destroy_comp_channel(dom->channel);
	pthread_mutex_destroy(&dom->lock);
	free(dom);
}

static int dom_new(struct ibv_pd *pd, struct rp_pd **out)
{
	struct rp_agent_attr attr = {
		/* Programs' queue pairs limit the sessions. */
		.max_sessions = UINT32_MAX,
		.messages_only = true,
	};
	struct rp_pd *dom = calloc(1, sizeof(*dom));
	int ret = 0;

	if (!dom)
		return ENOMEM;
	pthread_mutex_init(&dom->lock, NULL);
	dom->pd = pd;
	dom->kick = -1;
	dom->spin_ns = rp_shim_spin();
	dom->host.ops = &rp_target_host_ops;
	while (!ret && !attr.incarnation)
		ret = -rp_random(&attr.incarnation, sizeof(attr.incarnation));
	ret = ret ?: -rp_agent_new(&attr, &dom->host, &dom->agent)
			     ?: channel_open(dom);
	if (ret)
		dom_delete(dom);
	else
		*out = dom;
	return ret;
}

int rp_pd_get(struct ibv_pd *pd, struct rp_pd **out)
{
	struct rp_pd *dom;
	int ret = 0;

	pthread_mutex_lock(&doms_lock);
	LIST_FOREACH (dom, &doms, link)
		if (dom->pd == pd)
			break;
	if (!dom) {
		ret = dom_new(pd, &dom);
		if (!ret)
			LIST_INSERT_HEAD(&doms, dom, link);
	}
	if (!ret) {
		dom->refs++;
		*out = dom;
	}
	pthread_mutex_unlock(&doms_lock);
	return ret;
}

void rp_pd_put(struct rp_pd *dom)
{
	bool last;

	pthread_mutex_lock(&doms_lock);
	last = !--dom->refs;
	if (last)
		LIST_REMOVE(dom, link);
	pthread_mutex_unlock(&doms_lock);
	if (last)
		dom_delete(dom);
}

int rp_pd_add(struct rp_pd *dom, struct rp_region *r)
{
	int ret;

	rp_pd_lock(dom);
	ret = r->key ? rp_agent_region_add(dom->agent, r)
		     : rp_agent_region_add_new_key(dom->agent, r, 0, rp_random);
	pthread_mutex_unlock(&dom->lock);
	/* The thread may sleep without a deadline, as nothing was watched. */
	rp_pd_wake(dom);
	return -ret;
}

int rp_pd_facts(struct rp_pd *dom, const struct rp_region *r, struct rp_qp *q,
		struct rp_facts *facts)
{
	int ret = 0;

	rp_pd_lock(dom);
	*facts = r->facts;
	if (q && !q->watched_by) {
		ret = rp_pd_start(dom) ?: rp_pd_get(dom->pd, &q->watched_by);
		if (!ret)
			LIST_INSERT_HEAD(&dom->watched, q, watch_link);
	}
	if (q && !ret && q->since == UINT64_MAX)
		rp_agent_next_weakened(dom->agent, &q->since);
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

void rp_pd_unwatch(struct rp_qp *q)
{
	if (!q->watched_by)
		return;
	rp_pd_lock(q->watched_by);
	LIST_REMOVE(q, watch_link);
	pthread_mutex_unlock(&q->watched_by->lock);
	rp_pd_put(q->watched_by);
}

void rp_pd_del(struct rp_pd *dom, struct rp_region *r)
{
	rp_pd_lock(dom);
	rp_agent_region_del(dom->agent, r);
	pthread_mutex_unlock(&dom->lock);
}
