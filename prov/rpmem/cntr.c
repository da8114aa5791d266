// SPDX-License-Identifier: BSD-2-Clause
/* Counters of the base, to which persistent operations are added. */
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "rpmem/rpmem.h"

/* Longest sleep in the base's fi_cntr_wait() while the domain is live. */
#define LIVE_SLEEP_MS 1
/* Longest sleep in the base's fi_cntr_wait() before the domain is live. */
#define IDLE_SLEEP_MS 20

static struct rp_cntr *cntr_of(struct fid_cntr *fid)
{
	return rp_container_of(fid, struct rp_cntr, fid);
}

static void make_progress(struct rp_cntr *c)
{
	if (!rp_dom_is_live(c->dom))
		return;
	pthread_mutex_lock(&c->dom->lock);
	rp_domain_progress(c->dom);
	pthread_mutex_unlock(&c->dom->lock);
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	make_progress(cntr_of(fid));
	return fi_cntr_read(cntr_of(fid)->base);
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	make_progress(cntr_of(fid));
	return fi_cntr_readerr(cntr_of(fid)->base);
}

static int cntr_add(struct fid_cntr *fid, uint64_t value)
{
	return fi_cntr_add(cntr_of(fid)->base, value);
}

static int cntr_adderr(struct fid_cntr *fid, uint64_t value)
{
	return fi_cntr_adderr(cntr_of(fid)->base, value);
}

static int cntr_set(struct fid_cntr *fid, uint64_t value)
{
	return fi_cntr_set(cntr_of(fid)->base, value);
}

static int cntr_seterr(struct fid_cntr *fid, uint64_t value)
{
	return fi_cntr_seterr(cntr_of(fid)->base, value);
}

/* With sockets fi_cntr_readerr() would clear an error not reported yet. */
static uint64_t read_errors(struct rp_cntr *c)
{
	return c->readerr_clears ? atomic_load(&c->errors)
				 : fi_cntr_readerr(c->base);
}

/*
 * Wait in the base in slices: without a thread, private connections do not wake
 * the base. Compare error counts, as errors may come between slices.
 */
static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct rp_cntr *c = cntr_of(fid);
	int64_t end = timeout < 0 ? -1 : rp_wait_now() + timeout, ms;
	uint64_t errors = read_errors(c); /* before the first fi_cntr_wait() */
	int ret = fi_cntr_wait(c->base, threshold,
			       c->dom->auto_progress ? timeout : 0);

	/* sockets returns ETIMEDOUT with either sign. */
	if (c->dom->auto_progress || (ret != -FI_ETIMEDOUT && ret <= 0))
		return ret;
	for (;;) {
		make_progress(c);
		if (read_errors(c) != errors)
			return -FI_EAVAIL;
		ms = rp_dom_is_live(c->dom) ? LIVE_SLEEP_MS : IDLE_SLEEP_MS;
		if (end >= 0 && end - rp_wait_now() < ms)
			ms = end - rp_wait_now();
		ret = fi_cntr_wait(c->base, threshold, ms > 0 ? (int)ms : 0);
		if (ret != -FI_ETIMEDOUT && ret <= 0)
			return ret;
		if (end >= 0 && rp_wait_now() >= end)
			return -FI_ETIMEDOUT;
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

void rp_cntr_count(struct rp_ep *ep, enum rp_cntr_kind kind, bool failed)
{
	struct rp_cntr *c = ep->cntr[kind];

	if (!c)
		return;
	if (failed) {
		atomic_fetch_add(&c->errors, 1);
		fi_cntr_adderr(c->base, 1);
	} else {
		fi_cntr_add(c->base, 1);
	}
}

int rp_cntr_trywait(struct rp_cntr *c)
{
	struct fid *base = &c->base->fid;
	struct rp_dom *dom = c->dom;
	int ret = 0;

	if (rp_dom_is_live(dom)) {
		pthread_mutex_lock(&dom->lock);
		ret = rp_domain_trywait(dom);
		pthread_mutex_unlock(&dom->lock);
	}
	return ret ? ret : fi_trywait(dom->base_fabric, &base, 1);
}

static void close_fds(struct rp_cntr *c)
{
	if (c->epfd >= 0)
		close(c->epfd);
	if (c->ev_fd >= 0)
		close(c->ev_fd);
}

static int cntr_close(struct fid *fid)
{
	struct rp_cntr *c = rp_container_of(fid, struct rp_cntr, fid.fid);
	int ret;

	if (atomic_load(&c->refs))
		return -FI_EBUSY;
	rp_poll_remove_member(fid);
	ret = fi_close(&c->base->fid);
	if (ret)
		return ret;
	close_fds(c);
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

struct fi_ops rp_cntr_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = cntr_close,
	.bind = rp_no_bind,
	.control = cntr_control,
	.ops_open = rp_no_ops_open,
};

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
	c->readerr_clears = !strcasecmp(dom->fabric->base_name, "sockets");
	ret = fi_cntr_open(dom->base, &a, &c->base, context);
	if (ret)
		goto free;
	/* One descriptor signals the base's counter and private events. */
	if (a.wait_obj == FI_WAIT_FD &&
	    !fi_control(&c->base->fid, FI_GETWAIT, &fd)) {
		ret = rp_wait_open(dom, fd, &c->ev_fd, &c->epfd);
		if (ret)
			goto close;
	}
	c->fid.fid.fclass = FI_CLASS_CNTR;
	c->fid.fid.context = context;
	c->fid.fid.ops = &rp_cntr_fid_ops;
	c->fid.ops = &cntr_ops;
	atomic_fetch_add(&dom->refs, 1);
	*out = &c->fid;
	return 0;
close:
	close_fds(c);
	fi_close(&c->base->fid);
free:
	free(c);
	return ret;
}
