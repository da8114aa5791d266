// SPDX-License-Identifier: BSD-2-Clause
/* One message that wants an answer, from queueing to its end; and queries. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/initiator.h"
#include "core/wire_pack.h"

/* Tokens count up, so their low bits are as good as any hash. */
static struct rp_req **bucket(struct rp_initiator *in, uint64_t token)
{
	return &in->by_token[token % RP_INITIATOR_TOKENS];
}

struct rp_req *rp_req_find(struct rp_initiator *in, uint64_t token)
{
	struct rp_req *r = *bucket(in, token);

	while (r && r->token != token)
		r = r->same;
	return r;
}

struct rp_req *rp_req_new(struct rp_peer *p, struct rp_commit *c)
{
	struct rp_initiator *in = p->in;
	struct rp_req *r = calloc(1, sizeof(*r));
	struct rp_req **b;

	if (!r)
		return NULL;
	r->peer = p;
	r->commit = c;
	r->type = c ? RP_MSG_REQUEST : RP_MSG_QUERY;
	r->token = in->next_token++;
	b = bucket(in, r->token);
	r->same = *b;
	*b = r;
	if (c)
		TAILQ_INSERT_TAIL(&c->reqs, r, of_commit);
	r->state = RP_REQ_QUEUED;
	TAILQ_INSERT_TAIL(&p->queue, r, link);
	return r;
}

void rp_req_free(struct rp_req *r)
{
	struct rp_peer *p = r->peer;
	struct rp_req **b;

	if (r->commit)
		TAILQ_REMOVE(&r->commit->reqs, r, of_commit);
	if (r->seq)
		TAILQ_REMOVE(&p->effects, r, of_effects);
	TAILQ_REMOVE(r->state == RP_REQ_SENT ? &p->sent : &p->queue, r, link);
	for (b = bucket(p->in, r->token); *b != r; b = &(*b)->same)
		;
	*b = r->same;
	free(r);
}

void rp_req_orphan(struct rp_req *r)
{
	if (r->state == RP_REQ_QUEUED) {
		rp_req_free(r);
		return;
	}
	TAILQ_REMOVE(&r->commit->reqs, r, of_commit);
	r->commit = NULL;
}

/* Its number in this session; it keeps it for as long as that lasts. */
static void number(struct rp_req *r)
{
	struct rp_peer *p = r->peer;

	if (!r->effect || r->seq)
		return;
	r->seq = p->next_effect++;
	TAILQ_INSERT_TAIL(&p->effects, r, of_effects);
}

size_t rp_peer_slice(const struct rp_peer *p, const struct rp_wire_range *r,
		     size_t n)
{
	uint8_t scratch[RP_WIRE_MAX_MSG - RP_WIRE_PACKS];
	size_t taken;

	if (n > RP_WIRE_MAX_RANGES && p->state == RP_SESSION_OPEN &&
	    p->features & RP_FEATURE_PACKED) {
		rp_wire_pack(scratch, sizeof(scratch), r,
			     n < RP_WIRE_MAX_PACKED ? n : RP_WIRE_MAX_PACKED,
			     &taken);
		if (taken > RP_WIRE_MAX_RANGES)
			return taken;
	}
	return n < RP_WIRE_MAX_RANGES ? n : RP_WIRE_MAX_RANGES;
}

static int put_request(struct rp_req *r, const struct rp_wire_hdr *hdr,
		       void *buf, size_t size)
{
	const struct rp_commit *c = r->commit;
	struct rp_wire_request m;

	m.nranges = r->n;
	m.packed = r->peer->features & RP_FEATURE_PACKED;
	m.level = c->level;
	m.required = c->required;
	m.effect = r->effect ? c->effect : RP_EFFECT_NONE;
	m.seq = r->seq;
	m.then = c->then;
	m.data = c->data;
	m.bytes = c->bytes;
	memcpy(m.ranges, &c->ranges[r->first], r->n * sizeof(*m.ranges));
	return rp_wire_put_request(buf, size, hdr, &m);
}

int rp_req_send(struct rp_req *r, uint64_t t)
{
	struct rp_peer *p = r->peer;
	struct rp_initiator *in = p->in;
	struct rp_wire_hdr hdr = {
		.session = p->their_cookie,
		.token = r->token,
		.incarnation = p->incarnation,
	};
	uint8_t local[RP_WIRE_MAX_MSG], *buf = NULL;
	int ret;

	/* Bytes are not copied again where they can be sent from at once. */
	if (r->effect && r->commit->effect == RP_EFFECT_STORE &&
	    in->x->ops->room)
		buf = in->x->ops->room(in->x);
	if (!buf)
		buf = local;
	if (r->type == RP_MSG_QUERY) {
		struct rp_wire_query m = {.key = r->key,
					  .required = r->required};

		ret = rp_wire_put_query(buf, sizeof(local), &hdr, &m);
	} else {
		number(r);
		ret = put_request(r, &hdr, buf, sizeof(local));
	}
	if (ret < 0)
		return ret;
	ret = in->x->ops->send(in->x, p->addr, buf, ret);
	if (ret)
		return ret;
	r->sent_at = t;
	r->copies += r->effect;
	if (r->commit && !r->commit->incarnation)
		r->commit->incarnation = p->incarnation;
	return 0;
}

void rp_query_end(struct rp_req *r, enum rp_status st,
		  const struct rp_wire_info *info)
{
	struct rp_peer *p = r->peer;
	rp_query_fn done = r->query_done;
	void *arg = r->query_arg;

	rp_req_free(r);
	p->in->outstanding--;
	rp_peer_unwait(p);
	done(arg, st, info);
}

int rp_query_post(struct rp_peer *p, uint64_t key, enum rp_class required,
		  rp_query_fn done, void *arg)
{
	struct rp_req *r;
	struct rp_key k;

	if (rp_key_parse(key, &k))
		return -EKEYREJECTED;
	if (p->in->outstanding >= p->in->attr.max_commits)
		return -EAGAIN;
	r = rp_req_new(p, NULL);
	if (!r)
		return -ENOMEM;
	r->key = key;
	r->required = required;
	r->query_done = done;
	r->query_arg = arg;
	p->in->outstanding++;
	p->query_seq = p->next_seq;
	rp_peer_wait(p);
	rp_peer_send(p);
	/* Commits that ended here are told from progress only. */
	if (!TAILQ_EMPTY(&p->in->done))
		p->in->x->ops->kick(p->in->x);
	return 0;
}
