// SPDX-License-Identifier: BSD-2-Clause
/* Poll sets: which of several queues and counters have something new. */
#include <stdlib.h>

#include "rpmem/rpmem.h"

/*
 * One object of a set. ofi_rxm lets a queue be closed that is in one, and so do
 * we: it leaves its sets then.
 */
struct member {
	LIST_ENTRY(member) link;
	struct fid *fid;
	/* Of a counter: what the last look saw; each set has its own. */
	uint64_t ok, err;
};

struct rp_poll {
	struct fid_poll fid;
	struct rp_dom *dom;
	LIST_HEAD(, member) members;
	LIST_ENTRY(rp_poll) link;
};

static struct rp_poll *poll_of(struct fid_poll *fid)
{
	return rp_container_of(fid, struct rp_poll, fid);
}

static bool is_ours(const struct rp_dom *dom, struct fid *fid)
{
	if (rp_cq_is_ours(fid))
		return rp_container_of(fid, struct rp_cq, fid.fid)->dom == dom;
	return rp_cntr_is_ours(fid) &&
	       rp_container_of(fid, struct rp_cntr, fid.fid)->dom == dom;
}

static struct member *find(struct rp_poll *p, const struct fid *fid)
{
	struct member *m;

	LIST_FOREACH (m, &p->members, link)
		if (m->fid == fid)
			return m;
	return NULL;
}

static int poll_add(struct fid_poll *fid, struct fid *event, uint64_t flags)
{
	struct rp_poll *p = poll_of(fid);
	struct member *m;

	if (!is_ours(p->dom, event))
		return -FI_EINVAL;
	pthread_mutex_lock(&p->dom->poll_lock);
	m = find(p, event) ? NULL : calloc(1, sizeof(*m));
	if (m) {
		m->fid = event;
		LIST_INSERT_HEAD(&p->members, m, link);
	}
	m = find(p, event);
	pthread_mutex_unlock(&p->dom->poll_lock);
	return m ? 0 : -FI_ENOMEM;
}

static void forget(struct member *m)
{
	LIST_REMOVE(m, link);
	free(m);
}

static int poll_del(struct fid_poll *fid, struct fid *event, uint64_t flags)
{
	struct rp_poll *p = poll_of(fid);
	struct member *m;

	pthread_mutex_lock(&p->dom->poll_lock);
	m = find(p, event);
	if (m)
		forget(m);
	pthread_mutex_unlock(&p->dom->poll_lock);
	return 0;
}

/* 1: something to read, 0: nothing, or what the object is broken with. */
static int look(struct member *m)
{
	struct fid_cntr *c;
	uint64_t ok, err;
	bool news;

	if (m->fid->fclass == FI_CLASS_CQ)
		return rp_cq_ready(
			rp_container_of(m->fid, struct rp_cq, fid.fid));
	c = rp_container_of(m->fid, struct fid_cntr, fid);
	ok = fi_cntr_read(c);
	err = fi_cntr_readerr(c);
	news = ok != m->ok || err != m->err;
	m->ok = ok;
	m->err = err;
	return news;
}

static int poll_run(struct fid_poll *fid, void **context, int count)
{
	struct rp_poll *p = poll_of(fid);
	int n = 0, err = 0, ret;
	struct member *m;

	pthread_mutex_lock(&p->dom->poll_lock);
	LIST_FOREACH (m, &p->members, link) {
		/* What finds no room is new at the next look too. */
		if (n == count)
			break;
		ret = look(m);
		if (ret > 0)
			context[n++] = m->fid->context;
		else if (ret < 0)
			err = ret;
	}
	pthread_mutex_unlock(&p->dom->poll_lock);
	return n ? n : err;
}

void rp_poll_forget(struct rp_dom *dom, const struct fid *fid)
{
	struct rp_poll *p;
	struct member *m;

	pthread_mutex_lock(&dom->poll_lock);
	LIST_FOREACH (p, &dom->polls, link) {
		m = find(p, fid);
		if (m)
			forget(m);
	}
	pthread_mutex_unlock(&dom->poll_lock);
}

static struct fi_ops_poll poll_ops = {
	.size = sizeof(struct fi_ops_poll),
	.poll = poll_run,
	.poll_add = poll_add,
	.poll_del = poll_del,
};

static int poll_close(struct fid *fid)
{
	struct rp_poll *p = rp_container_of(fid, struct rp_poll, fid.fid);
	struct member *m;

	pthread_mutex_lock(&p->dom->poll_lock);
	while ((m = LIST_FIRST(&p->members)))
		forget(m);
	LIST_REMOVE(p, link);
	pthread_mutex_unlock(&p->dom->poll_lock);
	atomic_fetch_sub(&p->dom->refs, 1);
	free(p);
	return 0;
}

static struct fi_ops poll_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = poll_close,
	.bind = rp_no_bind,
	.control = rp_no_control,
	.ops_open = rp_no_ops_open,
};

int rp_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		 struct fid_poll **out)
{
	struct rp_dom *dom = rp_container_of(domain, struct rp_dom, fid);
	struct rp_poll *p;

	/* FI_AFFINITY among them, as in the bases. */
	if (attr && attr->flags)
		return -FI_EINVAL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -FI_ENOMEM;
	p->dom = dom;
	LIST_INIT(&p->members);
	p->fid.fid.fclass = FI_CLASS_POLL;
	p->fid.fid.ops = &poll_fid_ops;
	p->fid.ops = &poll_ops;
	pthread_mutex_lock(&dom->poll_lock);
	LIST_INSERT_HEAD(&dom->polls, p, link);
	pthread_mutex_unlock(&dom->poll_lock);
	atomic_fetch_add(&dom->refs, 1);
	*out = &p->fid;
	return 0;
}
