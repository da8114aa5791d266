// SPDX-License-Identifier: BSD-2-Clause
/* Counters: the base's, less what is hidden, plus what only we can count. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rpmem/rpmem.h"

/*
 * How a value is made, and why it never runs ahead of the truth.
 *
 *	value = base - hidden + told + moved
 *
 * `hidden` are completions of the base that are not the user's: control
 * messages, and writes whose end for the user is the end of their commit. They
 * all have an entry in a completion queue, and are counted when we take it out.
 * `told` are ends that the base does not know. `moved` is what fi_cntr_set()
 * did.
 *
 * The base writes the entry of a success before it counts it (ofi_rxm, sockets:
 * read in their sources), so whatever the counter held when it was read has its
 * entry in the queue by then. We read the counter first and empty the queues
 * afterwards: by the time of the subtraction every hidden completion in the
 * value has been seen. Seen too early, one that the counter did not hold yet
 * makes the value late, never early; it is read again until nothing came in
 * between, and what was told once is the floor, so it does not go back.
 * Subtracting was racy only in the other order.
 *
 * Failures are counted before their entry is written. ofi_rxm does both under
 * the lock that emptying its queue takes, so the order there is no matter. The
 * thread of sockets may be between the two, with nothing to wait for: it is
 * given a moment, which is no proof, and only failures of ours need it.
 *
 * An entry must not be on its way through somebody who began to read the base's
 * queue directly, before there was hidden traffic: dom->raw counts those.
 */

/* How long a wait sleeps before it looks after our own affairs. */
#define LIVE_MS 1
/* Before there are any, whether there are now. */
#define IDLE_MS 20
/* For the thread of sockets, from counting a failure to writing its entry. */
#define SETTLE_US 500
/* Looks at a counter that changes all the time. */
#define TRIES 4

static struct rp_cntr *cntr_of(struct fid_cntr *fid)
{
	return rp_container_of(fid, struct rp_cntr, fid);
}

static bool live(const struct rp_cntr *c)
{
	return atomic_load_explicit(&c->dom->live, memory_order_acquire);
}

static uint64_t base_value(struct rp_cntr *c, bool errors)
{
	return errors ? fi_cntr_readerr(c->base) : fi_cntr_read(c->base);
}

static bool drain_all(struct rp_dom *dom)
{
	struct rp_cq *cq;
	bool all = true;

	LIST_FOREACH (cq, &dom->cqs, link)
		all &= rp_cq_drain_all(cq);
	return all;
}

/* With the lock, which is let go while somebody is in the base's queue. */
static void wait_for_raw(struct rp_dom *dom)
{
	while (atomic_load(&dom->raw)) {
		pthread_mutex_unlock(&dom->lock);
		sched_yield();
		pthread_mutex_lock(&dom->lock);
	}
}

/* With the lock: what the user may know by now. */
static uint64_t value(struct rp_cntr *c, bool errors)
{
	struct rp_tally *t = errors ? &c->err : &c->ok;
	uint64_t base = 0, told = 0, seen, v;
	int i;

	wait_for_raw(c->dom);
	for (i = 0; i < TRIES; i++) {
		seen = t->hidden;
		told = t->told;
		base = base_value(c, errors);
		if (errors && c->sticky && base != c->base_err) {
			usleep(SETTLE_US);
			c->base_err = base;
		}
		/* Hidden ones that are still in there would be told. */
		if (!drain_all(c->dom))
			return atomic_load(&t->last);
		if (t->hidden == seen)
			break;
	}
	v = base - t->hidden + told + t->moved;
	/* A difference of both signs: late is less than what was told. */
	if ((int64_t)(v - atomic_load(&t->last)) > 0)
		atomic_store(&t->last, v);
	return atomic_load(&t->last);
}

static uint64_t value_locked(struct rp_cntr *c, bool errors)
{
	uint64_t v;

	pthread_mutex_lock(&c->dom->lock);
	rp_domain_progress(c->dom);
	v = value(c, errors);
	pthread_mutex_unlock(&c->dom->lock);
	return v;
}

static uint64_t read_any(struct rp_cntr *c, bool errors)
{
	struct rp_tally *t = errors ? &c->err : &c->ok;
	uint64_t v;

	if (!live(c)) {
		v = base_value(c, errors);
		/* Hidden traffic starts after `live`, so there is none in v. */
		if (!live(c)) {
			atomic_store(&t->last, v);
			return v;
		}
	}
	return value_locked(c, errors);
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	return read_any(cntr_of(fid), false);
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	struct rp_cntr *c = cntr_of(fid);
	uint64_t v = read_any(c, true);

	atomic_store(&c->err_read, v);
	return v;
}

static int cntr_add(struct fid_cntr *fid, uint64_t value)
{
	return fi_cntr_add(cntr_of(fid)->base, value);
}

static int cntr_adderr(struct fid_cntr *fid, uint64_t value)
{
	return fi_cntr_adderr(cntr_of(fid)->base, value);
}

/* The base's waiters look again; their counter does not know of our events. */
static void rouse(struct rp_cntr *c)
{
	fi_cntr_add(c->base, 0);
	if (c->ev_fd >= 0)
		eventfd_write(c->ev_fd, 1);
}

static int set_any(struct rp_cntr *c, bool errors, uint64_t v)
{
	struct rp_tally *t = errors ? &c->err : &c->ok;
	int ret = 0;

	pthread_mutex_lock(&c->dom->lock);
	if (live(c)) {
		t->moved += v - value(c, errors);
	} else {
		ret = errors ? fi_cntr_seterr(c->base, v)
			     : fi_cntr_set(c->base, v);
	}
	if (!ret)
		atomic_store(&t->last, v);
	pthread_mutex_unlock(&c->dom->lock);
	if (!ret)
		rouse(c);
	return ret;
}

static int cntr_set(struct fid_cntr *fid, uint64_t value)
{
	return set_any(cntr_of(fid), false, value);
}

static int cntr_seterr(struct fid_cntr *fid, uint64_t value)
{
	return set_any(cntr_of(fid), true, value);
}

/*
 * One sleep in the base, which wakes for its own events. Returns 0 or
 * -FI_ETIMEDOUT: look again; -FI_EAVAIL: the base saw an error.
 */
static int nap(struct rp_cntr *c, uint64_t threshold, int64_t end)
{
	int64_t ms = live(c) ? LIVE_MS : IDLE_MS, left = end - rp_wait_now();
	uint64_t t = threshold;

	if (end >= 0 && left < ms)
		ms = left < 0 ? 0 : left;
	if (live(c))
		t = fi_cntr_read(c->base) + 1; /* anything new */
	return fi_cntr_wait(c->base, t, (int)ms);
}

/*
 * How many errors there were when a wait began. Reading the number drives the
 * base, and an error that comes with that is one that the program waits for.
 */
static uint64_t errors_before(struct rp_cntr *c)
{
	uint64_t last = atomic_load(&c->err.last), v;
	bool fresh;

	/* sockets remembers an error until the program asks how many. */
	if (c->sticky)
		return atomic_load(&c->err_read);
	fresh = fi_cntr_wait(c->base, UINT64_MAX, 0) == -FI_EAVAIL;
	pthread_mutex_lock(&c->dom->lock);
	v = live(c) ? value(c, true) : base_value(c, true);
	pthread_mutex_unlock(&c->dom->lock);
	return fresh && v > last ? v - 1 : v;
}

static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct rp_cntr *c = cntr_of(fid);
	int64_t end = timeout < 0 ? -1 : rp_wait_now() + timeout, begun;
	uint64_t errors;
	int ret;

	errors = errors_before(c);
	for (;;) {
		if (c->sticky && read_any(c, true) != errors)
			return -FI_EAVAIL;
		if (read_any(c, false) >= threshold)
			return 0;
		if (read_any(c, true) != errors)
			return -FI_EAVAIL;
		if (end >= 0 && rp_wait_now() >= end)
			return -FI_ETIMEDOUT;
		begun = rp_wait_now();
		ret = nap(c, threshold, end);
		/* sockets comes back at once after an error that it knows. */
		if (ret && rp_wait_now() == begun)
			usleep(LIVE_MS * 1000);
		/* sockets: ETIMEDOUT of either sign. */
		if (ret < 0 && ret != -FI_ETIMEDOUT && ret != -FI_EAVAIL)
			return ret;
	}
}

static struct fi_ops_cntr cntr_ops = {
	.size = sizeof(struct fi_ops_cntr),
	.read = cntr_read,
	.readerr = cntr_readerr,
	.add = cntr_add,
	.set = cntr_set,
	.wait = cntr_wait,
	.adderr = cntr_adderr,
	.seterr = cntr_seterr,
};

void rp_cntr_hide(struct rp_ep *ep, enum rp_cntr_kind kind, bool failed)
{
	struct rp_cntr *c = ep->cntr[kind];

	/*
	 * What a dying endpoint cancels has an entry and is not counted: its
	 * counters are bound no more.
	 */
	if (!c || (failed && ep->dead))
		return;
	if (failed)
		c->err.hidden++;
	else
		c->ok.hidden++;
}

void rp_cntr_tell(struct rp_ep *ep, enum rp_cntr_kind kind, bool failed)
{
	struct rp_cntr *c = ep->cntr[kind];

	if (!c)
		return;
	if (failed)
		c->err.told++;
	else
		c->ok.told++;
	rouse(c);
}

int rp_cntr_trywait(struct rp_cntr *c)
{
	struct fid *base = &c->base->fid;
	struct rp_dom *dom = c->dom;
	uint64_t ok = atomic_load(&c->ok.last), err = atomic_load(&c->err.last);
	eventfd_t v;
	int ret;

	if (c->ev_fd >= 0)
		eventfd_read(c->ev_fd, &v);
	if (!live(c))
		return fi_trywait(dom->base_fabric, &base, 1);
	pthread_mutex_lock(&dom->lock);
	rp_domain_progress(dom);
	ret = value(c, false) != ok || value(c, true) != err ? -FI_EAGAIN : 0;
	if (!ret)
		ret = fi_trywait(dom->base_fabric, &base, 1);
	/* What comes on queues that nobody watches here. */
	if (!ret)
		rp_domain_arm(dom, true);
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

static int cntr_close(struct fid *fid)
{
	struct rp_cntr *c = rp_container_of(fid, struct rp_cntr, fid.fid);
	int ret;

	if (atomic_load(&c->refs))
		return -FI_EBUSY;
	ret = fi_close(&c->base->fid);
	if (ret)
		return ret;
	rp_poll_forget(c->dom, fid);
	if (c->epfd >= 0)
		close(c->epfd);
	if (c->ev_fd >= 0)
		close(c->ev_fd);
	atomic_fetch_sub(&c->dom->refs, 1);
	free(c);
	return 0;
}

static int cntr_control(struct fid *fid, int command, void *arg)
{
	struct rp_cntr *c = rp_container_of(fid, struct rp_cntr, fid.fid);

	if (command != FI_GETWAIT || c->epfd < 0)
		return fi_control(&c->base->fid, command, arg);
	*(int *)arg = c->epfd;
	return 0;
}

static struct fi_ops cntr_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = cntr_close,
	.bind = rp_no_bind,
	.control = cntr_control,
	.ops_open = rp_no_ops_open,
};

bool rp_cntr_is_ours(const struct fid *fid)
{
	return fid->fclass == FI_CLASS_CNTR && fid->ops == &cntr_fid_ops;
}

int rp_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		 struct fid_cntr **out, void *context)
{
	struct rp_dom *dom = rp_container_of(domain, struct rp_dom, fid);
	struct fi_cntr_attr a = {.wait_obj = FI_WAIT_UNSPEC};
	struct rp_cntr *c;
	int fd, ret;

	if (attr)
		a = *attr;
	if (a.wait_obj == FI_WAIT_SET) {
		RP_INFO(CNTR, "wait sets are not offered\n");
		return -FI_ENOSYS;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return -FI_ENOMEM;
	c->dom = dom;
	c->epfd = -1;
	c->ev_fd = -1;
	c->sticky = !strcasecmp(dom->fabric->base_name, "sockets");
	ret = fi_cntr_open(dom->base, &a, &c->base, context);
	if (ret)
		goto free;
	/* Where the base has a descriptor to sleep on: it, and what is ours. */
	if (a.wait_obj == FI_WAIT_FD &&
	    !fi_control(&c->base->fid, FI_GETWAIT, &fd)) {
		ret = rp_wait_open(dom, fd, &c->ev_fd, &c->epfd);
		if (ret)
			goto close;
	}
	c->fid.fid.fclass = FI_CLASS_CNTR;
	c->fid.fid.context = context;
	c->fid.fid.ops = &cntr_fid_ops;
	c->fid.ops = &cntr_ops;
	atomic_fetch_add(&dom->refs, 1);
	*out = &c->fid;
	return 0;
close:
	if (c->epfd >= 0)
		close(c->epfd);
	if (c->ev_fd >= 0)
		close(c->ev_fd);
	fi_close(&c->base->fid);
free:
	free(c);
	return ret;
}
