/* SPDX-License-Identifier: BSD-2-Clause */
/* The fakes around an initiator under test. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "initiator_rig.h"
#include "leaks.h"

static struct rig *rig_of(struct rp_xport *x)
{
	return (struct rig *)((char *)x - offsetof(struct rig, x));
}

static uint64_t x_now(struct rp_xport *x)
{
	return rig_of(x)->now;
}

static int x_send(struct rp_xport *x, uint64_t peer, const void *msg,
		  size_t len)
{
	struct rig *g = rig_of(x);
	struct rig_msg *m;

	g->tries++;
	if (g->send_ret && !g->send_good)
		return g->send_ret;
	g->send_good -= g->send_good > 0;
	m = malloc(sizeof(*m) + len);
	if (!m)
		return -ENOMEM;
	m->peer = peer;
	m->len = len;
	memcpy(m->bytes, msg, len);
	cr_assert_eq(rp_wire_get_hdr(msg, len, &m->hdr), 0);
	cr_assert(RP_MSG_TO_TARGET(m->hdr.type));
	STAILQ_INSERT_TAIL(&g->out, m, link);
	g->nout++;
	return 0;
}

static int x_name(struct rp_xport *x, void *addr, size_t *len)
{
	if (rig_of(x)->name_ret)
		return rig_of(x)->name_ret;
	memcpy(addr, "here", 4);
	*len = rig_of(x)->name_len ? rig_of(x)->name_len : 4;
	return 0;
}

static int x_random(struct rp_xport *x, void *buf, size_t len)
{
	struct rig *g = rig_of(x);
	uint64_t v = 0xc00c1e0000000000ull + ++g->cookies;

	if (g->random_ret)
		return g->random_ret;
	cr_assert_eq(len, sizeof(v));
	if (g->random_zero)
		v = 0;
	memcpy(buf, &v, len);
	return 0;
}

static void x_kick(struct rp_xport *x)
{
	rig_of(x)->kicks++;
}

/* The initiator has no use for the others: a call is a crash. */
static const struct rp_xport_ops ops = {
	.now = x_now,
	.send = x_send,
	.name = x_name,
	.random = x_random,
	.kick = x_kick,
};

struct rp_initiator_attr rig_attr(void)
{
	return (struct rp_initiator_attr){
		.timeout_ns = RIG_TIMEOUT,
		.max_commits = 8,
		.ordered = true,
		.store_max = RP_WIRE_MAX_STORE,
	};
}

void rig_start(struct rig *g, const struct rp_initiator_attr *attr)
{
	struct rp_initiator_attr usual = rig_attr();

	*g = (struct rig){.x.ops = &ops, .now = 1000000 * RIG_MS};
	STAILQ_INIT(&g->out);
	cr_assert_eq(rp_initiator_new(attr ? attr : &usual, &g->x, &g->in), 0);
}

void rig_stop(struct rig *g)
{
	struct rig_msg *m;

	if (g->in)
		rp_initiator_delete(g->in);
	while ((m = rig_pop(g)))
		free(m);
}

void rig_end(struct rig *g)
{
	rig_stop(g);
	cr_assert_not(rp_test_leaked());
}

struct rp_peer *rig_peer(struct rig *g)
{
	struct rp_peer *p = rp_peer_get(g->in, RIG_PEER);

	cr_assert(p);
	return p;
}

bool rig_progress(struct rig *g)
{
	bool any = rp_initiator_progress(g->in);

	/* A sleeper that trusts the deadline must not spin. */
	cr_assert_gt(rp_initiator_deadline(g->in), g->now);
	return any;
}

void rig_pass(struct rig *g, uint64_t ns)
{
	g->now += ns;
	rig_progress(g);
}

unsigned int rig_sleep(struct rig *g, uint64_t ns)
{
	uint64_t end = g->now + ns, due;
	unsigned int n = 0;

	for (;; n++) {
		due = rp_initiator_deadline(g->in);
		if (due > end)
			break;
		g->now = due > g->now ? due : g->now;
		rig_progress(g);
	}
	g->now = end;
	return n;
}

uint64_t rig_key(uint32_t n)
{
	const struct rp_key k = {
		.base = n,
		.random = 0x5eed00 + n,
		.persistent = true,
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_MSYNC,
	};

	return rp_key_make(&k);
}

struct rp_wire_range rig_range(uint32_t key, uint64_t addr, uint64_t len)
{
	return (struct rp_wire_range){rig_key(key), addr, len};
}

void rig_done(void *arg, const struct rp_outcome *out)
{
	struct rig_told *t = arg;

	t->times++;
	t->out = *out;
}

void rig_query_done(void *arg, enum rp_status st,
		    const struct rp_wire_info *info)
{
	struct rig_told *t = arg;

	t->times++;
	t->query = st;
	t->has_info = info;
	if (info)
		t->info = *info;
}

void rig_commit_n(struct rig *g, struct rp_peer *p, struct rig_told *t,
		  const struct rp_wire_range *ranges, size_t n)
{
	const struct rp_commit_attr attr = {
		.ranges = ranges,
		.nranges = n,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.done = rig_done,
		.arg = t,
	};

	*t = (struct rig_told){0};
	cr_assert_eq(rp_commit_post(p, &attr), 0);
	cr_assert_eq(t->times, 0, "told from inside the post");
}

void rig_commit(struct rig *g, struct rp_peer *p, struct rig_told *t,
		uint32_t key, uint64_t addr, uint64_t len)
{
	struct rp_wire_range r = rig_range(key, addr, len);

	rig_commit_n(g, p, t, &r, 1);
	/* The caller's ranges are its own again. */
	memset(&r, 0xee, sizeof(r));
}

void rig_query(struct rig *g, struct rp_peer *p, struct rig_told *t,
	       uint32_t key)
{
	*t = (struct rig_told){0};
	cr_assert_eq(rp_query_post(p, rig_key(key), RP_CLASS_POWER,
				   rig_query_done, t),
		     0);
}

struct rig_msg *rig_pop(struct rig *g)
{
	struct rig_msg *m = STAILQ_FIRST(&g->out);

	if (m) {
		STAILQ_REMOVE_HEAD(&g->out, link);
		g->nout--;
	}
	return m;
}

struct rig_msg *rig_take(struct rig *g, uint8_t type)
{
	struct rig_msg *m = rig_pop(g);

	cr_assert(m, "no message of type %u was sent", type);
	cr_assert_eq(m->hdr.type, type, "type %u is not %u", m->hdr.type, type);
	return m;
}

void rig_none(struct rig *g)
{
	cr_assert_eq(g->nout, 0, "a message of type %u was sent",
		     STAILQ_FIRST(&g->out)->hdr.type);
}

struct rp_wire_hello rig_as_hello(const struct rig_msg *m)
{
	struct rp_wire_hello h;

	cr_assert_eq(rp_wire_get_hello(m->bytes, &m->hdr, &h), 0);
	return h;
}

struct rp_wire_request rig_as_request(const struct rig_msg *m)
{
	struct rp_wire_request r;

	cr_assert_eq(rp_wire_get_request(m->bytes, &m->hdr, &r), 0);
	return r;
}

void rig_recv(struct rig *g, const void *msg, int len)
{
	cr_assert_gt(len, 0);
	rp_initiator_recv(g->in, msg, len);
}

void rig_hello_ack(struct rig *g, const struct rig_msg *m,
		   struct rig_session *s, enum rp_status st)
{
	struct rp_wire_hello_ack ack = {.status = st};
	struct rp_wire_hdr hdr = {.incarnation = s->incarnation};
	uint8_t buf[RP_WIRE_MAX_MSG];

	s->hello = hdr.session = rig_as_hello(m).cookie;
	if (st == RP_ST_OK) {
		ack.cookie = s->cookie;
		ack.credits = s->credits;
		ack.max_ranges = RP_WIRE_MAX_RANGES;
		ack.features = rig_as_hello(m).features & ~s->without;
	}
	rig_recv(g, buf, rp_wire_put_hello_ack(buf, sizeof(buf), &hdr, &ack));
}

struct rig_session rig_open(struct rig *g, uint64_t incarnation,
			    uint16_t credits)
{
	struct rig_msg *m = rig_take(g, RP_MSG_HELLO);
	struct rig_session s = {
		.cookie = incarnation ^ ++g->cookies << 48,
		.incarnation = incarnation,
		.credits = credits,
	};

	rig_hello_ack(g, m, &s, RP_ST_OK);
	free(m);
	return s;
}

static struct rp_wire_hdr hdr_of(const struct rig_session *s, uint8_t type,
				 uint64_t token)
{
	return (struct rp_wire_hdr){
		.type = type,
		.session = s->hello,
		.token = token,
		.incarnation = s->incarnation,
	};
}

void rig_reply(struct rig *g, const struct rig_session *s, uint64_t token,
	       const struct rp_wire_reply *m)
{
	struct rp_wire_hdr hdr = hdr_of(s, RP_MSG_REPLY, token);
	uint8_t buf[RP_WIRE_MAX_MSG];

	rig_recv(g, buf, rp_wire_put_reply(buf, sizeof(buf), &hdr, m));
}

void rig_ok(struct rig *g, const struct rig_session *s, uint64_t token)
{
	const struct rp_wire_reply m = {
		.level = RP_LEVEL_DURABLE,
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_MSYNC,
		.credits = s->credits,
	};

	rig_reply(g, s, token, &m);
}

void rig_refuse(struct rig *g, const struct rig_session *s, uint64_t token,
		enum rp_status st)
{
	const struct rp_wire_reply m = {.status = st, .credits = s->credits};

	rig_reply(g, s, token, &m);
}

void rig_info(struct rig *g, const struct rig_session *s, uint64_t token,
	      enum rp_status st)
{
	const struct rp_wire_info m = {
		.status = st,
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_MSYNC,
		.granularity = 4096,
		.length = 1 << 20,
		.why = "because",
	};
	struct rp_wire_hdr hdr = hdr_of(s, RP_MSG_INFO, token);
	uint8_t buf[RP_WIRE_MAX_MSG];

	rig_recv(g, buf, rp_wire_put_info(buf, sizeof(buf), &hdr, &m));
}

void rig_alive(struct rig *g, const struct rig_session *s)
{
	struct rp_wire_hdr hdr = hdr_of(s, RP_MSG_PROGRESS, 1);
	uint8_t buf[RP_WIRE_HDR];

	rig_recv(g, buf, rp_wire_put_empty(buf, sizeof(buf), &hdr));
}

uint64_t rig_requested(struct rig *g, const struct rig_session *s)
{
	struct rig_msg *m = rig_take(g, RP_MSG_REQUEST);
	uint64_t token = m->hdr.token;

	cr_assert_eq(m->hdr.session, s->cookie);
	cr_assert_eq(m->hdr.incarnation, s->incarnation);
	free(m);
	return token;
}

void rig_told_once(const struct rig_told *t, enum rp_status st)
{
	cr_assert_eq(t->times, 1, "told %u times", t->times);
	cr_assert_eq(t->out.status, st, "%s is not %s",
		     rp_status_name(t->out.status), rp_status_name(st));
	if (st == RP_ST_WRITE_FAILED || st == RP_ST_TIMEOUT ||
	    st == RP_ST_CANCELED)
		cr_assert_eq(t->out.detail, 0, "there is nothing to add");
}

void rig_not_told(const struct rig_told *t)
{
	cr_assert_eq(t->times, 0, "told %u times: %s", t->times,
		     rp_status_name(t->out.status));
}
