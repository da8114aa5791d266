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
 * what only an adapter has is fenced, not left to delivery.
 */
static enum rp_status judge(const struct rp_region *r, struct rp_wire_offer *m)
{
	enum rp_method method = r->choice.method;

	if (!r->pmem)
		return RP_ST_VOLATILE;
	if (r->failed)
		return RP_ST_REGION_FAILED;
	if (method == RP_METHOD_DELIVERY &&
	    r->facts.placement != RP_PLACE_CPU_USER &&
	    r->facts.placement != RP_PLACE_CPU_KERNEL)
		method = r->facts.fence == RP_YES ? RP_METHOD_FENCE
						  : RP_METHOD_REFUSED;
	if ((method != RP_METHOD_DELIVERY && method != RP_METHOD_FENCE) ||
	    rp_pmem_blocks(r->pmem))
		return RP_ST_NO_METHOD;
	if (!r->writable)
		return RP_ST_ACCESS;
	m->method = (uint8_t)method;
	m->class = (uint8_t)r->choice.class;
	m->addr = r->addr;
	m->length = r->len;
	return RP_ST_OK;
}

void rp_agent_connect(struct rp_agent *a, struct rp_client *c, const void *msg,
		      const struct rp_wire_hdr *hdr)
{
	struct rp_xport *x = c->origin.x;
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
		st = judge(r, &offer);
	if (st == RP_ST_OK && x->ops->offer(x, &c->conn, r, &offer))
		st = RP_ST_OVERLOADED;
	if (st != RP_ST_OK)
		offer = (struct rp_wire_offer){.status = st};
	offer.id = m.id;
	offer.key = m.key;
	answer(a, c, &offer);
}
