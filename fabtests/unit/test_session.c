/* SPDX-License-Identifier: BSD-2-Clause */
/* Sessions of an initiator: hello, answers true and false, lost and regained.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/log.h"
#include "initiator_rig.h"

static struct rig g;
static struct rp_peer *p;
static struct rig_told c0, c1, c2;

static void start(void)
{
	rig_start(&g, NULL);
	p = rig_peer(&g);
}

static void stop(void)
{
	rig_end(&g);
}

TestSuite(session, .init = start, .fini = stop);

/* A commit under way in an open session of so many credits. */
static struct rig_session under_way(uint16_t credits, uint64_t *token)
{
	struct rig_session s;

	rig_commit(&g, p, &c0, 1, 0, 64);
	s = rig_open(&g, RIG_LIFE, credits);
	*token = rig_requested(&g, &s);
	return s;
}

Test(session, first_commit_says_hello)
{
	struct rig_session s = {
		.cookie = 0x7a46e7,
		.incarnation = RIG_LIFE,
		.credits = 4,
	};
	struct rp_wire_request r;
	struct rp_wire_hello h;
	struct rig_msg *m;

	cr_assert_eq(rp_peer_get(g.in, RIG_PEER), p, "one peer per address");
	rig_commit(&g, p, &c0, 1, 256, 64);
	m = rig_take(&g, RP_MSG_HELLO);
	rig_none(&g);
	cr_assert_eq(m->peer, RIG_PEER);
	h = rig_as_hello(m);
	cr_assert_neq(h.cookie, 0);
	cr_assert_eq(h.key, rig_key(1));
	cr_assert_eq(h.timeout_ms, 5000);
	/* Grants would be of no use to it. */
	cr_assert_eq(h.features,
		     RP_FEATURES & ~(RP_FEATURE_OWN | RP_FEATURE_LINK |
				     RP_FEATURE_PLACED | RP_FEATURE_GATHER |
				     RP_FEATURE_NATIVE));
	cr_assert_eq(h.addr_len, 4);
	cr_assert_arr_eq(h.addr, "here", 4);

	rig_hello_ack(&g, m, &s, RP_ST_OK);
	free(m);
	m = rig_take(&g, RP_MSG_REQUEST);
	cr_assert_eq(m->hdr.session, s.cookie);
	cr_assert_eq(m->hdr.incarnation, RIG_LIFE);
	cr_assert_neq(m->hdr.token, 0);
	r = rig_as_request(m);
	cr_assert_eq(r.nranges, 1);
	cr_assert_eq(r.level, RP_LEVEL_DURABLE);
	cr_assert_eq(r.required, RP_CLASS_POWER);
	cr_assert_eq(r.ranges[0].key, rig_key(1));
	cr_assert_eq(r.ranges[0].addr, 256);
	cr_assert_eq(r.ranges[0].len, 64);
	rig_not_told(&c0);
	cr_assert_eq(rp_initiator_outstanding(g.in), 1);

	rig_ok(&g, &s, m->hdr.token);
	free(m);
	rig_told_once(&c0, RP_ST_OK);
	cr_assert_eq(c0.out.class, RP_CLASS_POWER);
	cr_assert_eq(c0.out.method, RP_METHOD_AGENT_MSYNC);
	cr_assert_eq(rp_initiator_outstanding(g.in), 0);

	/* The session stays: the next one asks at once. */
	rig_commit(&g, p, &c1, 1, 0, 64);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	rig_told_once(&c0, RP_ST_OK);
	cr_assert_eq(rp_initiator_deadline(g.in), UINT64_MAX, "nothing waits");
}

Test(session, hello_refused)
{
	static const enum rp_status refusals[] = {
		RP_ST_BAD_MESSAGE, RP_ST_VERSION,      RP_ST_UNKNOWN_KEY,
		RP_ST_STALE_KEY,   RP_ST_VOLATILE,     RP_ST_UNSUPPORTED,
		RP_ST_NO_METHOD,   (enum rp_status)63,
	};
	struct rig_session s = {.incarnation = RIG_LIFE};
	struct rig_msg *m;

	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		rig_commit(&g, p, &c0, 1, 0, 64);
		rig_commit(&g, p, &c1, 2, 0, 64);
		m = rig_take(&g, RP_MSG_HELLO);
		rig_hello_ack(&g, m, &s, refusals[i]);
		rig_told_once(&c0, refusals[i]);
		rig_told_once(&c1, refusals[i]);
		cr_assert_eq(c0.out.detail, 0);
		/* Said again, it finds nobody. */
		rig_hello_ack(&g, m, &s, refusals[i]);
		free(m);
		rig_told_once(&c0, refusals[i]);
		rig_none(&g);
		cr_assert_eq(rp_initiator_outstanding(g.in), 0);
	}
}

Test(session, hello_granted_what_is_no_use)
{
	struct rp_wire_hello_ack ack = {
		.cookie = 1, .credits = 4, .max_ranges = RP_WIRE_MAX_RANGES};
	struct rp_wire_hdr hdr = {0};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rig_msg *m;
	uint64_t start;

	/* A target that does not know its incarnation proves nothing. */
	rig_commit(&g, p, &c0, 1, 0, 64);
	start = g.now;
	while (!c0.times) {
		while ((m = rig_pop(&g))) {
			cr_assert_eq(m->hdr.type, RP_MSG_HELLO);
			hdr.session = rig_as_hello(m).cookie;
			rig_recv(&g, buf,
				 rp_wire_put_hello_ack(buf, sizeof(buf), &hdr,
						       &ack));
			free(m);
		}
		rig_pass(&g, 100 * RIG_MS);
		cr_assert_leq(g.now - start, RIG_TIMEOUT + 100 * RIG_MS);
	}
	rig_told_once(&c0, RP_ST_TIMEOUT);
	while ((m = rig_pop(&g)))
		free(m);

	/* Version 1 has room for full requests. */
	rig_commit(&g, p, &c0, 1, 0, 64);
	m = rig_take(&g, RP_MSG_HELLO);
	hdr.session = rig_as_hello(m).cookie;
	hdr.incarnation = RIG_LIFE;
	ack.max_ranges = RP_WIRE_MAX_RANGES - 1;
	rig_recv(&g, buf, rp_wire_put_hello_ack(buf, sizeof(buf), &hdr, &ack));
	free(m);
	rig_told_once(&c0, RP_ST_UNSUPPORTED);
	cr_assert_eq(c0.out.detail, 0);
}

static unsigned int warnings;

static void log_one(enum rp_log_level level, const char *text)
{
	warnings += level == RP_LOG_WARN;
}

Test(session, other_version)
{
	struct rig_session s;
	uint8_t buf[RP_WIRE_HDR];
	struct rp_wire_hdr hdr = {.type = RP_MSG_PROGRESS};
	const struct rp_wire_hello_ack ack = {
		.cookie = 5, .credits = 1, .max_ranges = RP_WIRE_MAX_RANGES};
	uint8_t big[RP_WIRE_MAX_MSG];
	struct rig_msg *m;
	int len;

	/* At the hello: said by a target that answers in its own version. */
	rig_commit(&g, p, &c0, 1, 0, 64);
	rig_commit(&g, p, &c1, 1, 64, 64);
	m = rig_take(&g, RP_MSG_HELLO);
	hdr.session = rig_as_hello(m).cookie;
	free(m);
	cr_assert_gt(rp_wire_put_empty(buf, sizeof(buf), &hdr), 0);
	buf[2] = 9;
	/* No initiator's message in any version. */
	buf[3] = RP_MSG_BYE;
	rp_initiator_recv(g.in, buf, sizeof(buf));
	rig_not_told(&c0);
	buf[3] = RP_MSG_PROGRESS;
	rp_log_set(log_one);
	rp_initiator_recv(g.in, buf, sizeof(buf));
	rig_told_once(&c0, RP_ST_VERSION);
	rig_told_once(&c1, RP_ST_VERSION);
	cr_assert_eq(c0.out.detail, 9);
	cr_assert_eq(warnings, 1);

	/* A session that it grants is none. */
	rig_commit(&g, p, &c0, 1, 0, 64);
	m = rig_take(&g, RP_MSG_HELLO);
	hdr.session = rig_as_hello(m).cookie;
	free(m);
	hdr.incarnation = RIG_LIFE;
	len = rp_wire_put_hello_ack(big, sizeof(big), &hdr, &ack);
	cr_assert_gt(len, 0);
	big[2] = 9;
	rp_initiator_recv(g.in, big, len);
	rig_told_once(&c0, RP_ST_VERSION);

	/* Replaced by another release later on. */
	rig_commit(&g, p, &c0, 1, 0, 64);
	s = rig_open(&g, RIG_LIFE, 4);
	rig_requested(&g, &s);
	hdr.session = s.hello;
	cr_assert_gt(rp_wire_put_empty(buf, sizeof(buf), &hdr), 0);
	buf[2] = 2;
	rp_initiator_recv(g.in, buf, 24);
	rig_not_told(&c0); /* the length does not match */
	rp_initiator_recv(g.in, buf, sizeof(buf));
	rig_told_once(&c0, RP_ST_VERSION);
}

Test(session, forged_answers)
{
	const struct rp_wire_reply ok = {
		.level = RP_LEVEL_DURABLE,
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_DELIVERY,
	};
	struct rp_peer *other = rp_peer_get(g.in, RIG_PEER + 1);
	struct rig_session s, so, bad;
	struct rp_wire_hdr hdr;
	uint8_t buf[RP_WIRE_MAX_MSG];
	uint64_t token, token_o;
	int len;

	s = under_way(4, &token);
	rig_commit(&g, other, &c1, 1, 0, 64);
	so = rig_open(&g, RIG_LIFE2, 4);
	token_o = rig_requested(&g, &so);

	/* Of nobody, of no session, of another peer's. */
	bad = s;
	bad.hello ^= 1;
	rig_ok(&g, &bad, token);
	bad.hello = 0;
	rig_ok(&g, &bad, token);
	bad.hello = s.cookie; /* what the wire shows of requests */
	rig_ok(&g, &bad, token);
	rig_ok(&g, &so, token);
	rig_ok(&g, &s, token_o);
	/* Of a request that is not there. */
	rig_ok(&g, &s, token + 1000);
	rig_ok(&g, &s, 0);
	/* Of another kind. */
	rig_info(&g, &s, token, RP_ST_OK);
	rig_alive(&g, &s);
	hdr = (struct rp_wire_hdr){.type = RP_MSG_BYE, .session = s.hello};
	len = rp_wire_put_empty(buf, sizeof(buf), &hdr);
	rig_recv(&g, buf, len);
	/* Of every wrong length, and with every bit of the header wrong. */
	hdr = (struct rp_wire_hdr){
		.session = s.hello,
		.token = token,
		.incarnation = s.incarnation,
	};
	len = rp_wire_put_reply(buf, sizeof(buf), &hdr, &ok);
	for (int i = 0; i < len; i++)
		rp_initiator_recv(g.in, buf, i);
	for (int bit = 0; bit < 24 * 8; bit++) {
		/* Another version is believed: it knows the cookie. */
		if (bit / 8 == 2)
			continue;
		buf[bit / 8] ^= 1 << bit % 8;
		rp_initiator_recv(g.in, buf, len);
		buf[bit / 8] ^= 1 << bit % 8;
	}
	/* With fields out of range. */
	buf[36] = 3;
	rp_initiator_recv(g.in, buf, len);
	buf[36] = RP_LEVEL_DURABLE;
	buf[37] = RP_CLASS_POWER + 1;
	rp_initiator_recv(g.in, buf, len);
	buf[37] = RP_CLASS_POWER;
	rig_not_told(&c0);
	rig_not_told(&c1);

	rp_initiator_recv(g.in, buf, len);
	rig_told_once(&c0, RP_ST_OK);
	/* The true one again, and a refusal behind it. */
	rp_initiator_recv(g.in, buf, len);
	rig_refuse(&g, &s, token, RP_ST_FLUSH_FAILED);
	rig_told_once(&c0, RP_ST_OK);
	rig_not_told(&c1);
	rig_ok(&g, &so, token_o);
	rig_told_once(&c1, RP_ST_OK);
}

Test(session, forged_hello_ack)
{
	struct rig_session s = {
		.cookie = 5, .incarnation = RIG_LIFE, .credits = 1};
	const struct rp_wire_hello_ack ack = {
		.cookie = 5, .credits = 1, .max_ranges = RP_WIRE_MAX_RANGES};
	const struct rp_wire_hdr hdr = {.incarnation = RIG_LIFE};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rig_msg *m;
	uint64_t token;
	int len;

	rig_commit(&g, p, &c0, 1, 0, 64);
	m = rig_take(&g, RP_MSG_HELLO);
	/* The cookie is at 32 of the body. */
	m->bytes[32] ^= 1;
	rig_hello_ack(&g, m, &s, RP_ST_OK);
	rig_none(&g);
	m->bytes[32] ^= 1;
	/* One that makes no sense, and an answer before there is a session. */
	len = rp_wire_put_hello_ack(buf, sizeof(buf), &hdr, &ack);
	cr_assert_gt(len, 0);
	memcpy(buf + 8, m->bytes + 32, 8);
	buf[len - 1] = 1;
	rp_initiator_recv(g.in, buf, len);
	s.hello = rig_as_hello(m).cookie;
	rig_refuse(&g, &s, 0, RP_ST_NO_SESSION);
	rig_none(&g);
	rig_not_told(&c0);
	rig_hello_ack(&g, m, &s, RP_ST_OK);
	token = rig_requested(&g, &s);
	/* Said twice (the hello was sent twice): nothing happens again. */
	rig_hello_ack(&g, m, &s, RP_ST_OK);
	rig_none(&g);
	free(m);
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_OK);
}

Test(session, answers_before_they_are_due)
{
	struct rig_session s;
	uint64_t token;

	/* One credit: the second request is queued, so not asked yet. */
	s = under_way(1, &token);
	rig_commit(&g, p, &c1, 1, 64, 64);
	rig_none(&g);
	rig_ok(&g, &s, token + 1);
	rig_not_told(&c1);
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_OK);
	rig_not_told(&c1);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
}

/* The same behind a session that was lost, or a target too busy. */
Test(session, answers_before_they_are_due_again)
{
	struct rig_session s;
	uint64_t token;

	s = under_way(2, &token);
	rig_commit(&g, p, &c1, 1, 64, 64);
	rig_requested(&g, &s);
	rig_refuse(&g, &s, token, RP_ST_NO_SESSION);
	s = rig_open(&g, RIG_LIFE, 1);
	cr_assert_eq(rig_requested(&g, &s), token);
	rig_none(&g);
	rig_ok(&g, &s, token + 1);
	rig_not_told(&c1);
	rig_refuse(&g, &s, token, RP_ST_OVERLOADED);
	rig_ok(&g, &s, token);
	rig_not_told(&c0);
	rig_sleep(&g, 2 * RIG_MS);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
}

/* An answer to the hello, however late, is a sign of life. */
Test(session, late_hello_ack)
{
	struct rig_msg *m;

	rig_commit(&g, p, &c0, 1, 0, 64);
	rig_pass(&g, RIG_TIMEOUT - RIG_MS);
	free(rig_take(&g, RP_MSG_HELLO));
	rig_open(&g, RIG_LIFE, 4);
	rig_sleep(&g, RIG_TIMEOUT - 1);
	rig_not_told(&c0);
	rig_sleep(&g, 1);
	rig_told_once(&c0, RP_ST_TIMEOUT);
	while ((m = rig_pop(&g)))
		free(m);
}

/* Asked again who it is, it names another session, or another life. */
Test(session, another_of_the_same_life_or_cookie)
{
	struct rig_session s, other;
	struct rig_msg *m;
	uint64_t token;

	for (int i = 0; i < 2; i++) {
		s = under_way(1, &token);
		rig_sleep(&g, RIG_TIMEOUT / 2);
		m = rig_take(&g, RP_MSG_HELLO);
		rig_requested(&g, &s);
		other = s;
		if (i)
			other.incarnation = RIG_LIFE2;
		else
			other.cookie++;
		rig_hello_ack(&g, m, &other, RP_ST_OK);
		free(m);
		cr_assert_eq(rig_requested(&g, &other), token);
		rig_ok(&g, &other, token);
		rig_told_once(&c0, RP_ST_OK);
		rig_refuse(&g, &other, 0, RP_ST_NO_SESSION);
		rig_none(&g);
	}
}

Test(session, wrong_incarnation)
{
	struct rig_session s;
	uint64_t token;

	s = under_way(4, &token);
	s.incarnation = RIG_LIFE2;
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_INCARNATION);
}

Test(session, credits)
{
	struct rp_initiator_attr attr = rig_attr();
	static struct rig_told t[20];
	uint64_t token[20];
	struct rig_session s;

	rig_stop(&g);
	attr.max_commits = 20;
	rig_start(&g, &attr);
	p = rig_peer(&g);
	for (int i = 0; i < 20; i++)
		rig_commit(&g, p, &t[i], 1, i * 64, 64);
	s = rig_open(&g, RIG_LIFE, 3);
	cr_assert_eq(g.nout, 3);
	for (int i = 0; i < 3; i++)
		token[i] = rig_requested(&g, &s);
	/* One answer, one request; more when more are granted. */
	rig_ok(&g, &s, token[1]);
	cr_assert_eq(g.nout, 1);
	token[3] = rig_requested(&g, &s);
	s.credits = 5;
	rig_refuse(&g, &s, token[0], RP_ST_RANGE);
	cr_assert_eq(g.nout, 3);
	for (int i = 4; i < 7; i++)
		token[i] = rig_requested(&g, &s);
	/* Fewer: nothing is sent until enough are back. */
	s.credits = 1;
	for (int i = 2; i < 6; i++) {
		rig_ok(&g, &s, token[i]);
		rig_none(&g);
	}
	/* No word about credits changes nothing. */
	s.credits = 0;
	rig_ok(&g, &s, token[6]);
	for (int i = 7; i < 20; i++) {
		cr_assert_eq(g.nout, 1);
		token[i] = rig_requested(&g, &s);
		rig_ok(&g, &s, token[i]);
	}
	for (int i = 0; i < 20; i++)
		rig_told_once(&t[i], i ? RP_ST_OK : RP_ST_RANGE);
}

/*
 * A target that has restarted knows no session and so cannot answer: it is
 * asked again who it is, before it counts as dead.
 */
Test(session, restarted_target_is_found_out)
{
	struct rig_session s, s2;
	struct rig_msg *m;
	uint64_t token;

	s = under_way(1, &token);
	rig_sleep(&g, RIG_TIMEOUT / 2);
	m = rig_take(&g, RP_MSG_HELLO);
	cr_assert_eq(rig_as_hello(m).cookie, s.hello, "the same session");
	cr_assert_eq(rig_requested(&g, &s), token, "lost, perhaps");
	rig_none(&g);
	s2 = s;
	s2.cookie++;
	s2.incarnation = RIG_LIFE2;
	rig_hello_ack(&g, m, &s2, RP_ST_OK);
	free(m);
	/* What was asked is asked again, of the new life. */
	cr_assert_eq(rig_requested(&g, &s2), token);
	rig_none(&g);
	/* The old one's last word proves nothing for the new one. */
	rig_refuse(&g, &s2, token, RP_ST_STALE_KEY);
	rig_told_once(&c0, RP_ST_PEER_RESTARTED);

	/* A commit posted to the new life has only its key wrong. */
	rig_commit(&g, p, &c1, 1, 0, 64);
	rig_refuse(&g, &s2, rig_requested(&g, &s2), RP_ST_STALE_KEY);
	rig_told_once(&c1, RP_ST_STALE_KEY);
}

Test(session, living_target_is_left_alone)
{
	struct rig_session s;
	struct rig_msg *m;
	uint64_t token;

	/* It knows the session; silent about the request it stays. */
	s = under_way(4, &token);
	rig_sleep(&g, RIG_TIMEOUT / 2);
	m = rig_take(&g, RP_MSG_HELLO);
	rig_requested(&g, &s);
	rig_hello_ack(&g, m, &s, RP_ST_OK);
	free(m);
	rig_none(&g);
	rig_sleep(&g, RIG_TIMEOUT / 2);
	rig_told_once(&c0, RP_ST_TIMEOUT);
}

Test(session, session_lost)
{
	struct rig_session s, s2;
	uint64_t token;

	/* One request in flight, one queued. */
	s = under_way(1, &token);
	rig_commit(&g, p, &c1, 1, 64, 64);
	rig_refuse(&g, &s, token, RP_ST_NO_SESSION);
	rig_not_told(&c0);
	s2 = rig_open(&g, RIG_LIFE, 4);
	cr_assert_neq(s2.hello, s.hello, "old answers are worth nothing");
	cr_assert_eq(rig_requested(&g, &s2), token, "in order");
	cr_assert_eq(rig_requested(&g, &s2), token + 1);
	rig_ok(&g, &s, token);
	rig_not_told(&c0);
	rig_ok(&g, &s2, token);
	rig_told_once(&c0, RP_ST_OK);
	/* The target may also say so without being asked. */
	rig_refuse(&g, &s2, 0, RP_ST_NO_SESSION);
	rig_not_told(&c1);
	s = rig_open(&g, RIG_LIFE, 4);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	/* And when nothing waits: the next commit says hello at once. */
	rig_refuse(&g, &s, 0, RP_ST_NO_SESSION);
	rig_none(&g);
	s = under_way(4, &token);
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_OK);
}

Test(session, restarted_target_says_no_session)
{
	struct rig_session s;
	uint64_t token;

	s = under_way(4, &token);
	rig_refuse(&g, &s, token, RP_ST_NO_SESSION);
	s = rig_open(&g, RIG_LIFE2, 4);
	rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_UNKNOWN_KEY);
	rig_told_once(&c0, RP_ST_PEER_RESTARTED);
	/* Not known to be another life: the key is all that is wrong. */
	rig_commit(&g, p, &c0, 1, 0, 64);
	rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_UNKNOWN_KEY);
	rig_told_once(&c0, RP_ST_UNKNOWN_KEY);
	rig_commit(&g, p, &c0, 1, 0, 64);
	rig_requested(&g, &s);
	rig_refuse(&g, &s, 0, RP_ST_NO_SESSION);
	s = rig_open(&g, RIG_LIFE, 4);
	rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_UNKNOWN_KEY);
	rig_told_once(&c0, RP_ST_PEER_RESTARTED);
	/* A commit with the new key: all of it is of one life. */
	rig_commit(&g, p, &c0, 2, 0, 64);
	rig_requested(&g, &s);
	rig_refuse(&g, &s, 0, RP_ST_NO_SESSION);
	s = rig_open(&g, RIG_LIFE2, 4);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
}

/* Asked again who it is, the target has no room for us any more. */
Test(session, overloaded_since)
{
	struct rig_session s;
	struct rig_msg *m;
	uint64_t token;

	s = under_way(1, &token);
	rig_sleep(&g, RIG_TIMEOUT / 2);
	m = rig_take(&g, RP_MSG_HELLO);
	rig_requested(&g, &s);
	rig_hello_ack(&g, m, &s, RP_ST_OVERLOADED);
	free(m);
	rig_none(&g);
	rig_sleep(&g, 2 * RIG_MS);
	s = rig_open(&g, RIG_LIFE, 1);
	cr_assert_eq(rig_requested(&g, &s), token);
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_OK);
}

/* Posted in one life, sent in the next only: its writes went to the first. */
Test(session, restarted_before_the_request_is_sent)
{
	struct rig_session s;
	uint64_t token;

	s = under_way(1, &token);
	rig_commit(&g, p, &c1, 1, 0, 64);
	rig_none(&g);
	rig_refuse(&g, &s, token, RP_ST_NO_SESSION);
	s = rig_open(&g, RIG_LIFE2, 1);
	rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_UNKNOWN_KEY);
	rig_told_once(&c0, RP_ST_PEER_RESTARTED);
	rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_UNKNOWN_KEY);
	rig_told_once(&c1, RP_ST_PEER_RESTARTED);
}

/* A target that forgets every session at once does not keep us for ever. */
Test(session, session_lost_again_and_again)
{
	struct rig_session s;
	unsigned int n = 0;

	rig_commit(&g, p, &c0, 1, 0, 64);
	rig_commit(&g, p, &c1, 1, 64, 64);
	while (!c0.times) {
		cr_assert_lt(n++, 100);
		s = rig_open(&g, RIG_LIFE, 4);
		rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_NO_SESSION);
		/* The session is gone; this is an answer to nothing. */
		rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_NO_SESSION);
	}
	rig_told_once(&c0, RP_ST_NO_SESSION);
	rig_told_once(&c1, RP_ST_NO_SESSION);
	cr_assert_eq(c0.out.detail, 0);
	cr_assert_eq(n, 16);
	rig_none(&g);
}

/* Only those in a row count. */
Test(session, session_lost_now_and_then)
{
	struct rig_session s;

	rig_commit(&g, p, &c0, 1, 0, 64);
	for (int i = 0; i < 40; i++) {
		s = rig_open(&g, RIG_LIFE, 4);
		rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_NO_SESSION);
		s = rig_open(&g, RIG_LIFE, 4);
		rig_commit(&g, p, &c1, 1, 0, 64);
		rig_requested(&g, &s);
		rig_ok(&g, &s, rig_requested(&g, &s));
		rig_told_once(&c1, RP_ST_OK);
		rig_not_told(&c0);
		rig_refuse(&g, &s, 0, RP_ST_NO_SESSION);
	}
}

Test(session, overloaded_at_hello)
{
	struct rig_session s = {.incarnation = RIG_LIFE};
	uint64_t start = g.now;
	struct rig_msg *m;
	unsigned int n = 0;

	rig_commit(&g, p, &c0, 1, 0, 64);
	for (int i = 0; i < 3; i++) {
		m = rig_take(&g, RP_MSG_HELLO);
		rig_hello_ack(&g, m, &s, RP_ST_OVERLOADED);
		free(m);
		rig_none(&g);
		cr_assert_eq(rig_sleep(&g, 2 * RIG_MS), 1);
	}
	s = rig_open(&g, RIG_LIFE, 4);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);

	/* For too long: it ends, and says why. */
	rp_peer_forget(g.in, RIG_PEER);
	p = rig_peer(&g);
	start = g.now;
	rig_commit(&g, p, &c0, 1, 0, 64);
	while (!c0.times) {
		m = rig_take(&g, RP_MSG_HELLO);
		rig_hello_ack(&g, m, &s, RP_ST_OVERLOADED);
		free(m);
		n += rig_sleep(&g, 2 * RIG_MS);
		cr_assert_leq(g.now - start, RIG_TIMEOUT + 2 * RIG_MS);
	}
	rig_told_once(&c0, RP_ST_OVERLOADED);
	cr_assert_leq(n, 2501);
	cr_assert_geq(g.now - start, RIG_TIMEOUT);
}

Test(session, overloaded_request)
{
	struct rig_session s;
	uint64_t token, start;
	struct rig_msg *m;

	s = under_way(4, &token);
	rig_commit(&g, p, &c1, 1, 64, 64);
	cr_assert_eq(rig_requested(&g, &s), token + 1);
	rig_refuse(&g, &s, token, RP_ST_OVERLOADED);
	/* Left alone for a while, then asked again, in the same session. */
	rig_commit(&g, p, &c2, 1, 128, 64);
	rig_none(&g);
	rig_progress(&g);
	rig_none(&g);
	rig_sleep(&g, 2 * RIG_MS);
	cr_assert_eq(rig_requested(&g, &s), token);
	cr_assert_eq(rig_requested(&g, &s), token + 2);
	rig_ok(&g, &s, token);
	rig_ok(&g, &s, token + 1);
	rig_ok(&g, &s, token + 2);
	rig_told_once(&c0, RP_ST_OK);
	rig_told_once(&c1, RP_ST_OK);
	rig_told_once(&c2, RP_ST_OK);

	/* For too long: it ends, and says why. */
	start = g.now;
	rig_commit(&g, p, &c0, 1, 0, 64);
	while (!c0.times) {
		m = rig_take(&g, RP_MSG_REQUEST);
		rig_refuse(&g, &s, m->hdr.token, RP_ST_OVERLOADED);
		free(m);
		rig_sleep(&g, 2 * RIG_MS);
		cr_assert_leq(g.now - start, RIG_TIMEOUT + 2 * RIG_MS);
	}
	rig_told_once(&c0, RP_ST_OVERLOADED);
	cr_assert_geq(g.now - start, RIG_TIMEOUT);

	/* Overloaded once, then silent: that is another ending. */
	s = under_way(4, &token);
	rig_refuse(&g, &s, token, RP_ST_OVERLOADED);
	rig_sleep(&g, 2 * RIG_MS);
	cr_assert_eq(rig_requested(&g, &s), token);
	rig_alive(&g, &s);
	rig_sleep(&g, RIG_TIMEOUT);
	rig_told_once(&c0, RP_ST_TIMEOUT);
}
