// SPDX-License-Identifier: BSD-2-Clause
/* The grants of keys on a session's connection. */
#include <stdlib.h>

#include "core/session_priv.h"

struct rp_grant *rp_grant_search(struct rp_session *s, uint64_t key)
{
	struct rp_grant *g;

	HASH_FIND(hh, s->grants, &key, sizeof(key), g);
	if (g)
		s->last_grant = g;
	return g;
}

void rp_grant_free(struct rp_session *s, struct rp_grant *g)
{
	if (s->last_grant == g)
		s->last_grant = NULL;
	HASH_DEL(s->grants, g);
	free(g);
}

struct rp_grant *rp_grant_get(struct rp_session *s, uint64_t key)
{
	struct rp_grant *g = rp_grant_find(s, key);
	bool oom = false;

	if (g)
		return g;
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->key = key;
	HASH_ADD(hh, s->grants, key, sizeof(g->key), g);
	if (oom) {
		free(g);
		return NULL;
	}
	return g;
}

/* The method of commits without the agent on this connection. */
static enum rp_method method_without_agent(const struct rp_session *s,
					   enum rp_method m)
{
	const uint32_t flags = s->channel->flags;

	if (m != RP_METHOD_DELIVERY && m != RP_METHOD_FENCE &&
	    m != RP_METHOD_NATIVE)
		return RP_METHOD_REFUSED;
	if ((m == RP_METHOD_FENCE && !(flags & RP_CHANNEL_FENCES)) ||
	    (m == RP_METHOD_NATIVE &&
	     !(s->attr.native && flags & RP_CHANNEL_FLUSHES)) ||
	    (s->attr.forced && s->attr.forced != m))
		return RP_METHOD_REFUSED;
	return m;
}

void rp_grant_record(struct rp_session *s, uint64_t key,
		     const struct rp_wire_grant *w)
{
	struct rp_grant *g = rp_grant_get(s, key);

	/* Outstanding writes use the first grant, so keep it. */
	if (!g || g->state == RP_GRANT_GIVEN)
		return;
	g->state = RP_GRANT_GIVEN;
	g->g = *w;
	g->without_agent = method_without_agent(s, (enum rp_method)w->method);
}

void rp_grant_fail(struct rp_session *s, uint64_t key, enum rp_status st,
		   uint32_t detail)
{
	struct rp_grant *g = rp_grant_get(s, key);

	if (!g) {
		s->failure = st;
		s->failure_detail = detail;
		return;
	}
	g->state = RP_GRANT_FAILED;
	g->status = st;
	g->detail = detail;
}

void rp_grants_forget(struct rp_session *s, bool all)
{
	struct rp_grant *g, *tmp;

	HASH_ITER(hh, s->grants, g, tmp)
	if (all || g->state == RP_GRANT_GIVEN)
		rp_grant_free(s, g);
}
