/* SPDX-License-Identifier: BSD-2-Clause */
/* Initiators of agent_bed.h: their messages, and the agent's replies. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <criterion/criterion.h>

#include "agent_bed_priv.h"

struct rp_wire_hello bed_hello(uint64_t key)
{
	static uint64_t initiators = 0xabc000;

	return (struct rp_wire_hello){
		.key = key,
		.initiator = ++initiators,
		.timeout_ms = 3000,
		.port = BED_PORT,
	};
}

struct bed_request *bed_connect_request(struct bed *g,
					const struct rp_wire_hello *m)
{
	struct bed_request *r = calloc(1, sizeof(*r));
	uint8_t buf[RP_WIRE_CM_DATA] = {0};

	r->bed = g;
	cr_assert_gt(rp_wire_put_hello(buf, sizeof(buf), m), 0);
	/* Pad the private data with zeros, as RDMA CM does. */
	rp_agent_conn_request(g->a, r, buf, sizeof(buf));
	return r;
}

void bed_refused(const struct bed_request *r, enum rp_status st)
{
	cr_assert(r->refused, "not refused");
	cr_assert_eq(r->ack.status, st, "\"%s\", not \"%s\"",
		     rp_status_name(r->ack.status), rp_status_name(st));
}

struct bed_peer bed_accepted(const struct bed_request *r)
{
	cr_assert(r->accepted, "not accepted: %s",
		  rp_status_name(r->ack.status));
	cr_assert_eq(r->ack.incarnation, BED_INCARNATION);
	return (struct bed_peer){
		.g = r->bed,
		.c = r->channel,
		.ack = r->ack,
		.token = 100,
	};
}

struct bed_peer bed_connect(struct bed *g, const struct bed_region *m)
{
	const struct rp_wire_hello hello = bed_hello(m->r.key);
	struct bed_request *r = bed_connect_request(g, &hello);
	struct bed_peer p = bed_accepted(r);

	free(r);
	return p;
}

struct bed_peer bed_connect_all(struct bed *g, struct bed_region *const m[],
				size_t n)
{
	struct bed_peer p = bed_connect(g, m[0]);

	for (size_t i = 1; i < n; i++)
		cr_assert_eq(bed_query(&p, m[i]->r.key, RP_CLASS_NONE).status,
			     RP_ST_OK);
	return p;
}

void bed_recv(struct bed_peer *p, const void *msg, int len)
{
	/*
	 * Receive a copy on the heap, so that the sanitizer detects reads past
	 * its end.
	 */
	uint8_t *copy = malloc(len > 0 ? len : 1);

	cr_assert_geq(len, 0, "could not encode: %d", len);
	memcpy(copy, msg, len);
	cr_assert_not(p->c->closed, "nothing comes over a closed channel");
	p->c->c.events->received(p->c->c.owner, copy, len);
	free(copy);
}

struct rp_wire_info bed_query(struct bed_peer *p, uint64_t key,
			      enum rp_class required)
{
	const struct rp_wire_query m = {.key = key, .required = required};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct bed_msg got;

	bed_recv(p, buf, rp_wire_put_query(buf, sizeof(buf), ++p->token, &m));
	cr_assert(bed_take(p, &got), "no INFO");
	cr_assert_eq(got.hdr.type, RP_MSG_INFO);
	cr_assert_eq(got.hdr.token, p->token);
	if (!p->c->slow)
		bed_complete_posts(p->c);
	return got.info;
}

void bed_lose(struct bed_peer *p)
{
	p->c->c.events->lost(p->c->c.owner, ECONNRESET, NULL, 0);
}

uint64_t bed_send(struct bed_peer *p, const struct rp_wire_request *m)
{
	uint8_t buf[RP_WIRE_MAX_MSG];

	bed_recv(p, buf, rp_wire_put_request(buf, sizeof(buf), ++p->token, m));
	return p->token;
}

uint64_t bed_request(struct bed_peer *p, enum rp_level level,
		     enum rp_class required, size_t n,
		     const struct rp_wire_range *ranges)
{
	const struct rp_wire_request m = {
		.nranges = n,
		.level = level,
		.required = required,
		.ranges = ranges,
	};

	return bed_send(p, &m);
}

uint64_t bed_commit_all(struct bed_peer *p, enum rp_class required, size_t n,
			const struct bed_at *at)
{
	struct rp_wire_range ranges[RP_WIRE_MAX_RANGES];
	struct bed_promise *o = calloc(1, sizeof(*o));

	o->c = p->c;
	o->token = p->token + 1;
	for (size_t i = 0; i < n; i++) {
		bed_store(at[i].m, at[i].off, at[i].len);
		ranges[i] = (struct rp_wire_range){at[i].m->r.key, at[i].off,
						   at[i].len};
		/*
		 * No promise for commits by method delivery, which bring
		 * nothing to media.
		 */
		if (at[i].m->r.facts.memory != RP_MEM_TMPFS &&
		    (at[i].m->r.facts.memory != RP_MEM_FILE ||
		     required == RP_CLASS_POWER))
			o->at[o->n++] = at[i];
	}
	o->next = p->g->promises;
	p->g->promises = o;
	return bed_request(p, RP_LEVEL_DURABLE, required, n, ranges);
}

uint64_t bed_commit(struct bed_peer *p, struct bed_region *m, uint64_t off,
		    uint64_t len)
{
	const struct bed_at at = {m, off, len};

	return bed_commit_all(p, m->r.choice.class, 1, &at);
}

static struct rp_wire_request
one_range(const struct bed_at *at, struct rp_wire_range *r, enum rp_effect e)
{
	*r = (struct rp_wire_range){at->m->r.key, at->off, at->len};
	return (struct rp_wire_request){
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = at->m->r.choice.class,
		.effect = e,
		.ranges = r,
	};
}

uint64_t bed_ordered_store(struct bed_peer *p, struct bed_at at,
			   struct bed_region *m, uint64_t addr, uint64_t value)
{
	struct rp_wire_range r;
	struct rp_wire_request q = one_range(&at, &r, RP_EFFECT_THEN);

	q.then = (struct rp_wire_then){m->r.key, addr, value};
	bed_store(at.m, at.off, at.len);
	if (at.m->r.facts.memory != RP_MEM_TMPFS)
		p->g->must_be_durable[0] = at;
	return bed_send(p, &q);
}

uint64_t bed_notify(struct bed_peer *p, struct bed_at at, uint64_t data)
{
	struct rp_wire_range r;
	struct rp_wire_request q = one_range(&at, &r, RP_EFFECT_NOTIFY);

	q.endpoint = BED_ENDPOINT;
	q.data = data;
	return bed_send(p, &q);
}

uint64_t bed_inline(struct bed_peer *p, enum rp_level level, struct bed_at at,
		    uint8_t fill)
{
	struct rp_wire_range r;
	struct rp_wire_request q = one_range(&at, &r, RP_EFFECT_STORE);
	uint8_t bytes[RP_WIRE_MAX_STORE];

	memset(bytes, fill, sizeof(bytes));
	q.level = level;
	q.bytes = bytes;
	return bed_send(p, &q);
}

uint64_t bed_atomic(struct bed_peer *p, enum rp_level level, struct bed_at at,
		    enum rp_atomic_op op, const uint64_t *operand,
		    const uint64_t *compare, bool fetch)
{
	struct rp_wire_range r;
	struct rp_wire_request q = one_range(&at, &r, RP_EFFECT_ATOMIC);

	q.level = level;
	q.atomic = (struct rp_wire_atomic){
		.op = op,
		.datatype = RP_ATOMIC_UINT64,
		.fetch = fetch,
		.operand = operand,
		.compare = compare,
	};
	return bed_send(p, &q);
}

void bed_run(struct bed *g)
{
	while (rp_agent_progress(g->a))
		;
	for (struct bed_channel *c = g->channels; c; c = c->next)
		if (!c->slow)
			bed_complete_posts(c);
}

void bed_run_worker(struct bed *g)
{
	const struct timespec ms = {.tv_nsec = 1000000};

	for (int i = 0; rp_agent_backlog(g->a); i++) {
		cr_assert_lt(i, 10000, "the worker never finishes");
		bed_run(g);
		if (rp_agent_backlog(g->a))
			nanosleep(&ms, NULL);
	}
}

bool bed_take(struct bed_peer *p, struct bed_msg *m)
{
	struct bed_msg *f = p->c->first;

	if (!f)
		return false;
	p->c->first = f->next;
	if (!f->next)
		p->c->last = &p->c->first;
	*m = *f;
	if (m->hdr.type == RP_MSG_REPLY && m->reply.result_len)
		m->reply.result = m->result;
	free(f);
	return true;
}

struct rp_wire_reply bed_expect(struct bed_peer *p, uint64_t token,
				enum rp_status st)
{
	struct bed_msg m;

	cr_assert(bed_take(p, &m), "no reply to %llu",
		  (unsigned long long)token);
	cr_assert_eq(m.hdr.type, RP_MSG_REPLY);
	cr_assert_eq(m.hdr.token, token, "reply to %llu, not to %llu",
		     (unsigned long long)m.hdr.token,
		     (unsigned long long)token);
	cr_assert_eq(m.reply.status, st, "\"%s\", not \"%s\"",
		     rp_status_name(m.reply.status), rp_status_name(st));
	m.reply.result = NULL;
	return m.reply;
}

void bed_expect_nothing(struct bed_peer *p)
{
	struct bed_msg m;

	cr_assert(!bed_take(p, &m), "message of type %d", m.hdr.type);
}

struct rp_agent_stats bed_stats(struct bed *g)
{
	return g->a->stats;
}
