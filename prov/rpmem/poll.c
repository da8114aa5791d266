// SPDX-License-Identifier: BSD-2-Clause
/* fi_poll(): which queues and counters of a set have something to read. */
#include <stdlib.h>

#include "rpmem/poll.h"

static struct rp_poll *poll_of(struct fid_poll *fid)
{
	return rp_container_of(fid, struct rp_poll, fid);
}

static bool is_pollable(const struct rp_dom *dom, struct fid *fid)
{
	if (rp_fid_is_cq(fid))
		return rp_fid_to_cq(fid)->dom == dom;
	return rp_fid_is_cntr(fid) &&
	       rp_container_of(fid, struct rp_cntr, fid.fid)->dom == dom;
}

static int add_member(struct rp_poll *p, struct fid *fid)
{
	struct rp_poll_member *m = calloc(1, sizeof(*m));
	struct fi_poll_attr attr = {0};
	int ret = 0;

	if (!m)
		return -FI_ENOMEM;
	m->fid = fid;
	if (fid->fclass == FI_CLASS_CQ)
		ret = fi_poll_open(p->dom->base, &attr, &m->base);
	if (ret) {
		free(m);
		return ret;
	}
	LIST_INSERT_HEAD(&p->members, m, link);
	if (m->base)
		ret = fi_poll_add(m->base, &rp_fid_to_cq(fid)->base->fid, 0);
	if (ret)
		rp_poll_member_free(m);
	return ret;
}

static int poll_add(struct fid_poll *fid, struct fid *event, uint64_t flags)
{
	struct rp_poll *p = poll_of(fid);
	int ret = 0;

	if (!is_pollable(p->dom, event))
		return -FI_EINVAL;
	pthread_mutex_lock(&rp_poll_lock);
	if (!rp_poll_member_find(p, event))
		ret = add_member(p, event);
	pthread_mutex_unlock(&rp_poll_lock);
	return ret;
}

static int poll_del(struct fid_poll *fid, struct fid *event, uint64_t flags)
{
	struct rp_poll_member *m;

	pthread_mutex_lock(&rp_poll_lock);
	m = rp_poll_member_find(poll_of(fid), event);
	if (m)
		rp_poll_member_free(m);
	pthread_mutex_unlock(&rp_poll_lock);
	return 0;
}

/* Poll a member. 1: something to read; 0: nothing; or -errno. */
static int member_poll(struct rp_poll_member *m)
{
	struct fid_cntr *c = rp_container_of(m->fid, struct fid_cntr, fid);
	uint64_t ok, err;
	void *context;
	bool news;

	if (m->base && rp_cq_has_private(rp_fid_to_cq(m->fid)))
		return 1;
	if (m->base)
		return fi_poll(m->base, &context, 1);
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
	struct rp_poll_member *m;

	pthread_mutex_lock(&rp_poll_lock);
	LIST_FOREACH (m, &p->members, link) {
		/* Members that do not fit are reported by the next call. */
		if (n == count)
			break;
		ret = member_poll(m);
		if (ret > 0)
			context[n++] = m->fid->context;
		else if (ret < 0)
			err = ret;
	}
	pthread_mutex_unlock(&rp_poll_lock);
	return n ? n : err;
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
	struct rp_poll_member *m;

	pthread_mutex_lock(&rp_poll_lock);
	while ((m = LIST_FIRST(&p->members)))
		rp_poll_member_free(m);
	LIST_REMOVE(p, link);
	pthread_mutex_unlock(&rp_poll_lock);
	atomic_fetch_sub(&p->dom->refs, 1);
	free(p);
	return 0;
}

static struct fi_ops poll_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = poll_close,
	RP_NO_FID_OPS,
};

int rp_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		 struct fid_poll **out)
{
	struct rp_dom *dom = rp_container_of(domain, struct rp_dom, fid);
	struct rp_poll *p;

	/* No flag is supported: the bases refuse even FI_AFFINITY. */
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
	rp_poll_register(p);
	atomic_fetch_add(&dom->refs, 1);
	*out = &p->fid;
	return 0;
}
