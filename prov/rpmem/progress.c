// SPDX-License-Identifier: BSD-2-Clause
/* Progress of private connections: by calls on queues, or by a thread. */
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/thread.h"
#include "rpmem/os_services.h"
#include "rpmem/rpmem.h"

/*
 * Make the next call or sleeper make progress. Without a sleeper the flag
 * `kicked` is enough. With one, kick_fd is written before the flag is set,
 * because drain_kick() drains kick_fd only if the flag is set. The first
 * sleeper sets `may_sleep`, for good, before it reads the flag; this function
 * sets the flag before it reads `may_sleep` again: so the sleeper sees the
 * flag, or kick_fd is written here, and may then stay readable until the next
 * kick and wake a sleeper in vain.
 */
void rp_domain_kick(struct rp_dom *dom)
{
	const bool sleeps = atomic_load(&dom->may_sleep);

	if (sleeps)
		eventfd_write(dom->kick_fd, 1);
	atomic_store(&dom->kicked, true);
	if (!sleeps && atomic_load(&dom->may_sleep))
		eventfd_write(dom->kick_fd, 1);
}

static void drain_kick(struct rp_dom *dom)
{
	eventfd_t v;

	if (!atomic_load_explicit(&dom->kicked, memory_order_relaxed))
		return;
	atomic_store(&dom->kicked, false);
	if (atomic_load_explicit(&dom->may_sleep, memory_order_relaxed))
		eventfd_read(dom->kick_fd, &v);
}

static bool is_timer_armed(const struct rp_dom *dom)
{
	return dom->timer_due && dom->timer_due != UINT64_MAX;
}

static uint64_t advance_clock(struct rp_dom *dom, uint64_t t)
{
	if (t > dom->last_now)
		dom->last_now = t;
	return dom->last_now;
}

uint64_t rp_domain_now(struct rp_dom *dom)
{
	return advance_clock(dom, is_timer_armed(dom) ? rp_host_now()
						      : rp_host_tick());
}

/* Drain timer_fd if the timer has expired. */
static void drain_timer(struct rp_dom *dom)
{
	uint64_t v;

	if (!is_timer_armed(dom) ||
	    advance_clock(dom, rp_host_now()) < dom->timer_due)
		return;
	if (read(dom->timer_fd, &v, sizeof(v)) == sizeof(v))
		dom->timer_due = UINT64_MAX;
}

static uint64_t domain_deadline(const struct rp_dom *dom)
{
	const uint64_t due = rp_private_deadline(dom);
	const uint64_t d =
		dom->agent ? rp_agent_deadline(dom->agent) : UINT64_MAX;

	return d < due ? d : due;
}

static void set_timer(struct rp_dom *dom, uint64_t due)
{
	struct itimerspec t = {0};

	due += !due; /* 0 would disarm the timer */
	if (due == dom->timer_due)
		return;
	dom->timer_due = due;
	if (due != UINT64_MAX) {
		t.it_value.tv_sec = (time_t)(due / 1000000000ull);
		t.it_value.tv_nsec = (long)(due % 1000000000ull);
	}
	timerfd_settime(dom->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

void rp_domain_wake_sleepers(struct rp_dom *dom, uint64_t due)
{
	struct rp_rc *rc = dom->rc;

	if (rc && rp_rc_pending(rc))
		rp_domain_kick(dom);
	else if (!dom->timer_due || due < dom->timer_due)
		set_timer(dom, due);
}

bool rp_domain_progress(struct rp_dom *dom)
{
	bool came;

	drain_kick(dom);
	drain_timer(dom);
	came = rp_private_progress(dom);
	if (dom->agent)
		came |= rp_agent_progress(dom->agent);
	if (came && atomic_load_explicit(&dom->may_sleep, memory_order_relaxed))
		rp_domain_wake_sleepers(dom, domain_deadline(dom));
	return came;
}

int rp_domain_trywait(struct rp_dom *dom)
{
	struct rp_rc *rc = dom->rc;
	int ret = 0;

	if (rp_domain_progress(dom))
		return -FI_EAGAIN;
	if (rc)
		ret = rp_rc_trywait(rc);
	if (!ret)
		set_timer(dom, domain_deadline(dom));
	return ret;
}

/* --- the thread --- */

/* Make progress, busy-poll, arm wake-ups. -FI_EAGAIN: do not sleep yet. */
static int thread_trywait(struct rp_dom *dom)
{
	bool came;
	int ret;

	pthread_mutex_lock(&dom->lock);
	came = rp_domain_progress(dom);
	ret = rp_spin(&dom->spin, rp_params.spin_ns, came, rp_host_now())
		      ? -FI_EAGAIN
		      : rp_domain_trywait(dom);
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
		/* Read stop again: its kick may have been drained. */
		if (ret == -FI_EAGAIN || atomic_load(&dom->stop))
			continue;
		if (ret)
			RP_WARN(DOMAIN, "progress thread: %s\n",
				strerror(-ret));
		epoll_wait(dom->wake_fd, &ev, 1, ret ? 100 : -1);
	}
	return NULL;
}

void rp_domain_thread_stop(struct rp_dom *dom)
{
	if (!dom->thread_on)
		return;
	atomic_store(&dom->stop, true);
	rp_domain_kick(dom);
	pthread_join(dom->thread, NULL);
	dom->thread_on = false;
}

int rp_domain_go_live(struct rp_dom *dom)
{
	int ret = 0;

	if (dom->auto_progress && !dom->thread_on) {
		atomic_store(&dom->stop, false);
		ret = -rp_thread_start(&dom->thread, thread_run, dom);
		dom->thread_on = !ret;
	}
	if (!ret)
		atomic_store(&dom->live, true);
	/* Wake sleepers: the timer for the first deadline is not armed yet. */
	rp_domain_kick(dom);
	return ret;
}
