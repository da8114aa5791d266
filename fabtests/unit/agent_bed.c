/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An agent with a fake host and fake channels. When the agent sends an OK, the
 * bytes must be on the fake media.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "agent_bed_priv.h"
#include "core/log.h"

/* --- channels --- */

/* When the agent sends an OK, the bytes that it covers must be on media. */
static void check_ok_reply(struct bed_channel *c, const struct bed_msg *m)
{
	struct bed_promise **pp, *p;

	if (m->hdr.type != RP_MSG_REPLY)
		return;
	for (pp = &c->bed->promises; (p = *pp); pp = &p->next)
		if (p->c == c && p->token == m->hdr.token)
			break;
	if (!p)
		return;
	for (size_t i = 0; i < p->n && m->reply.status == RP_ST_OK; i++) {
		const struct bed_region *r = p->at[i].m;
		size_t at = BED_SKEW + p->at[i].off;

		MUST(!r->gone);
		MUST(!memcmp(r->mem + at, r->media + at, p->at[i].len));
		c->bed->checked++;
	}
	*pp = p->next;
	free(p);
}

static void deliver_message(struct bed_channel *c, const void *msg, size_t len)
{
	struct bed_msg *m = calloc(1, sizeof(*m));

	MUST(!rp_wire_get_hdr(msg, len, &m->hdr));
	switch (m->hdr.type) {
	case RP_MSG_REPLY:
		MUST(!rp_wire_get_reply(msg, &m->hdr, &m->reply));
		if (m->reply.result_len)
			memcpy(m->result, m->reply.result, m->reply.result_len);
		m->reply.result = NULL;
		break;
	case RP_MSG_INFO:
		MUST(!rp_wire_get_info(msg, &m->hdr, &m->info));
		break;
	default:
		MUST(m->hdr.type == RP_MSG_PROGRESS);
	}
	*c->last = m;
	c->last = &m->next;
	check_ok_reply(c, m);
}

static int c_post(struct rp_channel *rc, struct rp_channel_op *ops[], int n)
{
	struct bed_channel *c = (struct bed_channel *)rc;
	struct rp_channel_op *op = ops[0];

	MUST(!c->closed && n == 1 && op->kind == RP_CHANNEL_SEND);
	MUST(op->iov_count == 1 && op->iov[0].iov_len == op->length);
	MUST(!op->inject || op->length <= c->c.inject);
	MUST(op->inject || op->done);
	c->posts++;
	if (!c->room)
		return 0;
	c->room -= c->room > 0;
	deliver_message(c, op->iov[0].iov_base, op->iov[0].iov_len);
	if (op->inject)
		return 1;
	TAILQ_INSERT_TAIL(&c->posted_ops, op, link);
	return 1;
}

static void all_done(struct bed_channel *c, int err)
{
	struct rp_channel_op *op;

	while ((op = TAILQ_FIRST(&c->posted_ops))) {
		TAILQ_REMOVE(&c->posted_ops, op, link);
		/*
		 * The message's bytes must still be valid when done() is
		 * called.
		 */
		MUST(((const uint8_t *)op->iov[0].iov_base)[3] >= 64);
		op->done(op, err);
	}
}

void bed_complete_posts(struct bed_channel *c)
{
	all_done(c, 0);
}

static void c_close(struct rp_channel *rc)
{
	struct bed_channel *c = (struct bed_channel *)rc;

	MUST(!c->closed && !c->in_close);
	c->in_close = true;
	all_done(c, ECANCELED);
	c->in_close = false;
	c->closed = true;
	/*
	 * The agent must revoke the grants of a channel only after it has
	 * closed the channel.
	 */
	for (struct bed_grant *k = c->bed->grants; k; k = k->next)
		MUST(k->channel != c || !k->revoked);
}

static const struct rp_channel_ops channel_ops = {
	.post = c_post,
	.close = c_close,
};

/* --- the host --- */

static struct bed *bed_of(struct rp_agent_host *h)
{
	return (struct bed *)h;
}

static int host_accept(struct rp_agent_host *h, void *request, const void *data,
		       size_t len, const struct rp_channel_events *events,
		       void *owner, struct rp_channel **out)
{
	struct bed *g = bed_of(h);
	struct bed_request *r = request;
	struct bed_channel *c;

	MUST(!r->accepted && !r->refused);
	MUST(len <= RP_WIRE_CM_ACK);
	MUST(!rp_wire_get_hello_ack(data, len, &r->ack));
	c = g->accept_ret ? NULL : calloc(1, sizeof(*c));
	if (!c) {
		r->refused = true;
		return g->accept_ret ? g->accept_ret : -ENOMEM;
	}
	c->c = (struct rp_channel){
		.ops = &channel_ops,
		.events = events,
		.owner = owner,
		.flags = g->flags,
		.inject = g->inject,
	};
	c->bed = g;
	c->room = -1;
	c->last = &c->first;
	TAILQ_INIT(&c->posted_ops);
	c->next = g->channels;
	g->channels = c;
	r->accepted = true;
	r->channel = c;
	/* The grant made for the HELLO now belongs to the new channel. */
	for (struct bed_grant *k = g->grants; k; k = k->next)
		if (k->rkey == r->ack.grant.rkey)
			k->channel = c;
	*out = &c->c;
	return 0;
}

static void host_refuse(struct rp_agent_host *h, void *request,
			const void *data, size_t len)
{
	struct bed_request *r = request;

	MUST(!r->accepted && !r->refused);
	MUST(len <= RP_WIRE_CM_ACK);
	MUST(!rp_wire_get_hello_ack(data, len, &r->ack));
	MUST(r->ack.status != RP_ST_OK);
	r->refused = true;
}

static int host_grant(struct rp_agent_host *h, struct rp_channel *c,
		      const struct rp_region *r, struct rp_wire_grant *g,
		      void **grant)
{
	static uint64_t rkeys = 0x77000;
	struct bed *b = bed_of(h);
	struct bed_grant *k;

	MUST(g->addr == r->addr && g->length == r->len);
	if (g->method == RP_METHOD_NATIVE && b->no_native)
		return -EOPNOTSUPP;
	if (b->grant_ret)
		return b->grant_ret;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	k->channel = (struct bed_channel *)c;
	k->region = r;
	g->rkey = k->rkey = ++rkeys;
	g->remote_addr = (uintptr_t)r->base;
	k->next = b->grants;
	b->grants = k;
	*grant = k;
	return 0;
}

static void host_revoke(struct rp_agent_host *h, void *grant)
{
	struct bed_grant *k = grant;

	MUST(!k->revoked && (!k->channel || k->channel->closed));
	k->revoked = true;
}

static uint32_t host_flags(struct rp_agent_host *h)
{
	return bed_of(h)->flags;
}

static unsigned int all_posts(const struct bed *g)
{
	unsigned int n = 0;

	for (struct bed_channel *c = g->channels; c; c = c->next)
		n += c->posts;
	return n;
}

static int host_facts(struct rp_agent_host *h, struct rp_region *r,
		      struct rp_facts *facts, char *why)
{
	return bed_of(h)->facts(r, facts, why);
}

static int host_notify(struct rp_agent_host *h, struct rp_channel *c,
		       uint16_t port, uint16_t endpoint, uint64_t data,
		       void *buf, size_t len)
{
	struct bed *g = bed_of(h);

	if (g->notify_ret)
		return g->notify_ret;
	g->notified++;
	g->posts_before = all_posts(g);
	g->notified_by = c;
	g->notified_port = port;
	g->notified_endpoint = endpoint;
	g->notified_data = data;
	g->notified_buf = buf;
	g->notified_len = len;
	return 0;
}

static uint64_t h_source(struct rp_agent_host *h, void *request)
{
	return bed_of(h)->source;
}

static uint64_t host_now(struct rp_agent_host *h)
{
	return bed_of(h)->now;
}

static void host_kick(struct rp_agent_host *h)
{
	atomic_fetch_add(&bed_of(h)->kicks, 1);
}

static unsigned int *warnings;

static void count_warnings(enum rp_log_level level, const char *text)
{
	MUST(*text);
	*warnings += level == RP_LOG_WARN;
}

static const struct rp_agent_host_ops host_ops = {
	.accept = host_accept,
	.refuse = host_refuse,
	.source = h_source,
	.grant = host_grant,
	.revoke = host_revoke,
	.flags = host_flags,
	.notify = host_notify,
	.facts = host_facts,
	.now = host_now,
	.kick = host_kick,
};

void bed_init(struct bed *g, const struct rp_agent_attr *attr)
{
	const struct rp_agent_attr simple = {
		.incarnation = BED_INCARNATION,
		.no_worker = true,
	};

	memset(g, 0, sizeof(*g));
	g->host.ops = &host_ops;
	g->now = 1000000 * BED_MS;
	g->inject = BED_INJECT;
	warnings = &g->warnings;
	rp_log_set(count_warnings);
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->changed, NULL);
	cr_assert_eq(rp_agent_new(attr ? attr : &simple, &g->host, &g->a), 0);
}

void bed_fini(struct bed *g)
{
	struct bed_promise *p;
	struct bed_channel *c;
	struct bed_grant *k;
	struct bed_msg *m;

	rp_agent_delete(g->a);
	while ((c = g->channels)) {
		cr_assert(c->closed, "a channel was left open");
		while ((m = c->first)) {
			c->first = m->next;
			free(m);
		}
		g->channels = c->next;
		free(c);
	}
	while ((k = g->grants)) {
		cr_assert(k->revoked, "a grant was left");
		g->grants = k->next;
		free(k);
	}
	while ((p = g->promises)) {
		g->promises = p->next;
		free(p);
	}
}
