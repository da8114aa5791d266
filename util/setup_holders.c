// SPDX-License-Identifier: BSD-2-Clause
/* The clients that keep a pool open at the server of the setup protocol. */
#include "config.h"

#include "core/list.h"
#include "util/setup_conn.h"

/* Whether client h has bytes open that the request would open, too. */
static bool holds_bytes(const struct conn *h,
			const struct rp_setup_request *req, unsigned int i)
{
	return h->pool == i && (!h->part || !req->part || h->part == req->part);
}

const struct conn *rp_setup_find_holder(struct rp_setup_server *s,
					const struct rp_setup_request *req,
					unsigned int i)
{
	struct conn *h, *next;

	TAILQ_FOREACH_SAFE(h, &s->holders, link, next)
	{
		if (!holds_bytes(h, req, i) || h->owner == req->owner ||
		    h->observes || req->observe ||
		    (!h->exclusive && !req->exclusive))
			continue;
		if (!rp_setup_has_closed(h->fd))
			return h;
		rp_setup_drop_conn(s, h);
	}
	return NULL;
}

void rp_setup_hold(struct rp_setup_server *s, struct conn *c,
		   const struct rp_setup_request *req, unsigned int i,
		   unsigned int rights)
{
	struct conn *h, *next;

	/* The client reconnects: drop the connection that it has lost. */
	TAILQ_FOREACH_SAFE(h, &s->holders, link, next)
	{
		if (h->pool != i || h->owner != req->owner)
			continue;
		/* rp_setup_drop_conn() then calls no release(). */
		h->exclusive = false;
		rp_setup_drop_conn(s, h);
	}
	TAILQ_REMOVE(&s->conns, c, link);
	s->nconns--;
	TAILQ_INSERT_TAIL(&s->holders, c, link);
	c->holds = true;
	c->exclusive = req->exclusive;
	c->pool = i;
	c->part = req->part;
	c->rights = rights;
	c->owner = req->owner;
	rp_setup_keep_alive(c->fd);
}

unsigned int rp_setup_count_holders(struct rp_setup_server *s, uint64_t owner,
				    unsigned int i)
{
	struct conn *h, *next;
	unsigned int n = 0;

	TAILQ_FOREACH_SAFE(h, &s->holders, link, next)
	{
		if (h->pool != i || h->owner == owner)
			continue;
		if (rp_setup_has_closed(h->fd))
			rp_setup_drop_conn(s, h);
		else
			n++;
	}
	return n;
}

void rp_setup_drop_holders(struct rp_setup_server *s,
			   const struct rp_setup_request *req, unsigned int i)
{
	struct conn *h, *next;

	TAILQ_FOREACH_SAFE(h, &s->holders, link, next)
	{
		if (holds_bytes(h, req, i))
			rp_setup_drop_conn(s, h);
	}
}
