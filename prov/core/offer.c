// SPDX-License-Identifier: BSD-2-Clause
/* Connections of our own, at the target: what may be written over one. */
#include <assert.h>
#include <errno.h>

#include "core/agent_impl.h"

static void answer(struct rp_agent *a, struct rp_client *c,
		   const struct rp_wire_offer *m)
{
	struct rp_wire_hdr hdr = rp_agent_hdr(a, c, 0);
	uint8_t msg[RP_WIRE_MAX_MSG];
	int len = rp_wire_put_offer(msg, sizeof(msg), &hdr, m);

	assert(len > 0);
	rp_client_send(&a->clients, c, msg, len);
}

/*
 * May the region be made durable by writes over such a connection, and how? As
 * with grants: not where a flush can fail, which everybody must learn of; and
 * what only an adapter has is fenced, not left to delivery. native: the devices
 * of both ends FLUSH.
 */
static enum rp_status judge(const struct rp_region *r, bool native,
			    struct rp_wire_offer *m)
{
	enum rp_method method = r->choice.method;

	if (method == RP_METHOD_NATIVE && !native)
		method = rp_method_by_agent(&r->facts, r->choice).method;
	if (!r->pmem)
		return RP_ST_VOLATILE;
	if (r->failed)
		return RP_ST_REGION_FAILED;
	if (method == RP_METHOD_DELIVERY &&
	    r->facts.placement != RP_PLACE_CPU_USER &&
	    r->facts.placement != RP_PLACE_CPU_KERNEL)
		method = r->facts.fence == RP_YES ? RP_METHOD_FENCE
						  : RP_METHOD_REFUSED;
	if (!rp_method_linked(method) || rp_pmem_blocks(r->pmem))
		return RP_ST_NO_METHOD;
	if (!r->writable)
		return RP_ST_ACCESS;
	m->method = (uint8_t)method;
	m->class = (uint8_t)r->choice.class;
	m->addr = r->addr;
	m->length = r->len;
	return RP_ST_OK;
}

static enum rp_status offer_region(struct rp_client *c,
				   const struct rp_region *r,
				   struct rp_wire_offer *m)
{
	struct rp_xport *x = c->origin.x;
	enum rp_status st = judge(r, c->features & RP_FEATURE_NATIVE, m);
	int ret;

	if (st != RP_ST_OK)
		return st;
	ret = x->ops->offer(x, &c->conn, r, m);
	/* The device FLUSHes, but not this memory. */
	if (ret == -EOPNOTSUPP && m->method == RP_METHOD_NATIVE) {
		st = judge(r, false, m);
		if (st != RP_ST_OK)
			return st;
		ret = x->ops->offer(x, &c->conn, r, m);
	}
	return ret ? RP_ST_OVERLOADED : RP_ST_OK;
}

void rp_agent_connect(struct rp_agent *a, struct rp_client *c, const void *msg,
		      const struct rp_wire_hdr *hdr)
{
	struct rp_wire_offer offer = {0};
	const struct rp_region *r;
	struct rp_wire_connect m;
	enum rp_status st = RP_ST_OK;

	/* An earlier one that comes late brings nothing back. */
	if (rp_wire_get_connect(msg, hdr, &m) || m.id < c->conn_id) {
		a->stats.bad_messages++;
		return;
	}
	/* The answer says that those before are gone. */
	if (m.id > c->conn_id)
		rp_client_unoffer(c);
	c->conn_id = m.id;
	r = rp_regions_find(&a->regions, m.key, &st);
	if (!(c->features & RP_FEATURE_LINK))
		st = RP_ST_UNSUPPORTED;
	else if (hdr->incarnation != a->attr.incarnation)
		st = RP_ST_INCARNATION;
	else if (a->quiescing)
		st = RP_ST_OVERLOADED;
	else if (r)
		st = offer_region(c, r, &offer);
	if (st != RP_ST_OK)
		offer = (struct rp_wire_offer){.status = st};
	offer.id = m.id;
	offer.key = m.key;
	answer(a, c, &offer);
}

/*
 * Nothing that blocks, and nothing that can fail where it is known to all: such
 * regions are not offered. So it is done here and now, in no queue.
 */
static void flush_now(struct rp_agent *a, struct rp_job *job)
{
	struct rp_job_range *g;
	int ret;

	for (size_t i = 0; i < job->n; i++) {
		g = &job->ranges[i];
		if (!g->flush)
			continue;
		ret = rp_pmem_flush(g->region->pmem, g->off, g->len);
		if (ret)
			rp_job_fail(job, RP_ST_FLUSH_FAILED, -ret, i);
		a->stats.flushes++;
		a->stats.flushed_bytes += g->len;
	}
	for (size_t i = 0; i < job->n; i++) {
		g = &job->ranges[i];
		if (!g->flush || (i && g->region == g[-1].region))
			continue;
		rp_pmem_drain(g->region->pmem);
		a->stats.drains++;
	}
}

/* Does it want what may take its time? So does the first store to a page. */
static bool blocks(const struct rp_wire_request *m, const struct rp_job *job)
{
	for (size_t i = 0; m->effect == RP_EFFECT_STORE && i < job->n; i++)
		if (rp_pmem_blocks(job->ranges[i].region->pmem))
			return true;
	return rp_job_blocks(job);
}

/* Carry it out, whole or not at all; job->reply is the answer. */
static void serve(struct rp_agent *a, const struct rp_wire_request *m,
		  struct rp_job *job)
{
	bool work = false;

	if (rp_agent_check(a, m, job, &work) != RP_ST_OK) {
		a->stats.refused++;
		return;
	}
	if (blocks(m, job)) {
		rp_job_fail(job, RP_ST_NO_METHOD, 0, 0);
		a->stats.refused++;
		return;
	}
	a->stats.requests++;
	a->stats.ranges += m->nranges;
	if (rp_agent_store(m, job, &work) && work)
		flush_now(a, job);
	a->stats.effects += m->effect && job->reply.status == RP_ST_OK;
	a->stats.replies++;
}

bool rp_agent_linked(struct rp_agent *a, struct rp_xport *x, const void *conn,
		     const void *msg, size_t len)
{
	struct rp_job *job = a->linked;
	uint8_t out[RP_WIRE_INJECT];
	struct rp_wire_request m;
	struct rp_wire_hdr hdr;
	struct rp_client *c;
	int n;

	if (rp_wire_get_hdr(msg, len, &hdr))
		goto bad;
	/* Whose the connection is was decided when it was offered. */
	c = rp_client_find(&a->clients, x, hdr.session);
	if (!c || !conn || c->conn != conn ||
	    hdr.incarnation != a->attr.incarnation ||
	    rp_wire_get_request(msg, &hdr, &m) ||
	    (m.level != RP_LEVEL_DURABLE && m.effect != RP_EFFECT_STORE) ||
	    (m.effect && m.effect != RP_EFFECT_STORE))
		goto bad;
	rp_client_use(&a->clients, c);
	*job = (struct rp_job){.n = m.nranges};
	serve(a, &m, job);
	n = rp_agent_put_reply(a, c, hdr.token, &job->reply, out);
	if (n)
		x->ops->answer(x, c->conn, out, (size_t)n);
	return true;
bad:
	a->stats.bad_messages++;
	return false;
}
