/* SPDX-License-Identifier: BSD-2-Clause */
/* One target as its initiator sees it: silence, what cannot be sent, queries.
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

TestSuite(peer, .init = start, .fini = stop);

/* A commit under way in an open session of so many credits. */
static struct rig_session under_way(uint16_t credits, uint64_t *token)
{
	struct rig_session s;

	rig_commit(&g, p, &c0, 1, 0, 64);
	s = rig_open(&g, RIG_LIFE, credits);
	*token = rig_requested(&g, &s);
	return s;
}

static unsigned int warnings;

static void log_one(enum rp_log_level level, const char *text)
{
	warnings += level == RP_LOG_WARN;
}

Test(peer, silence)
{
	struct rig_session s;
	struct rig_msg *m;
	uint64_t token;
	unsigned int n;

	/* No answer to the hello. */
	rp_log_set(log_one);
	rig_commit(&g, p, &c0, 1, 0, 64);
	rig_sleep(&g, RIG_TIMEOUT - 1);
	rig_not_told(&c0);
	cr_assert_eq(warnings, 0);
	rig_sleep(&g, 1);
	rig_told_once(&c0, RP_ST_TIMEOUT);
	cr_assert_eq(warnings, 1);
	for (n = 0; (m = rig_pop(&g)); n++) {
		cr_assert_eq(m->hdr.type, RP_MSG_HELLO);
		free(m);
	}
	cr_assert_eq(n, 2, "and once again in between");

	/* No answer to the request; a program that sleeps learns of it too. */
	s = under_way(1, &token);
	n = rig_sleep(&g, RIG_TIMEOUT - 1);
	rig_not_told(&c0);
	n += rig_sleep(&g, 1);
	rig_told_once(&c0, RP_ST_TIMEOUT);
	cr_assert_leq(n, 4, "woken %u times", n);
	while ((m = rig_pop(&g)))
		free(m);
	/* What comes now comes too late, and a new session is begun. */
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_TIMEOUT);
	s = under_way(1, &token);
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_OK);
}

Test(peer, signs_of_life)
{
	struct rig_session s;
	uint64_t token;

	s = under_way(4, &token);
	for (int i = 0; i < 10; i++) {
		rig_pass(&g, RIG_TIMEOUT - 1);
		rig_alive(&g, &s);
	}
	rig_not_told(&c0);
	/* Not everything that arrives is one. */
	rig_pass(&g, RIG_TIMEOUT - 1);
	s.hello++;
	rig_alive(&g, &s);
	s.hello--;
	rig_info(&g, &s, token, RP_ST_OK);
	rig_ok(&g, &s, token + 77);
	rig_not_told(&c0);
	rig_pass(&g, 1);
	rig_told_once(&c0, RP_ST_TIMEOUT);
}

/* An answer to one commit is a sign of life for the other. */
Test(peer, answers_are_signs_of_life)
{
	struct rig_session s;
	uint64_t token;

	s = under_way(4, &token);
	rig_commit(&g, p, &c1, 1, 64, 64);
	rig_pass(&g, 4000 * RIG_MS);
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_OK);
	rig_pass(&g, RIG_TIMEOUT - 1);
	rig_not_told(&c1);
	rig_pass(&g, 1);
	rig_told_once(&c1, RP_ST_TIMEOUT);
}

Test(peer, waiting_begins_with_the_commit)
{
	struct rig_session s;
	uint64_t token;

	s = under_way(4, &token);
	rig_ok(&g, &s, token);
	/* An idle peer owes nothing, however long. */
	rig_pass(&g, 100 * RIG_TIMEOUT);
	rig_commit(&g, p, &c1, 1, 0, 64);
	rig_pass(&g, RIG_TIMEOUT - 1);
	rig_not_told(&c1);
	rig_pass(&g, 1);
	rig_told_once(&c1, RP_ST_TIMEOUT);
}

Test(peer, unanswered_requests_are_sent_again)
{
	struct rig_session s;
	struct rig_msg *m;
	uint64_t token;

	s = under_way(4, &token);
	rig_commit(&g, p, &c1, 1, 64, 64);
	cr_assert_eq(rig_requested(&g, &s), token + 1);
	rig_pass(&g, 1000 * RIG_MS);
	rig_commit(&g, p, &c2, 1, 128, 64);
	cr_assert_eq(rig_requested(&g, &s), token + 2);
	rig_sleep(&g, 1500 * RIG_MS - 1);
	rig_none(&g);
	rig_sleep(&g, 1);
	free(rig_take(&g, RP_MSG_HELLO));
	cr_assert_eq(rig_requested(&g, &s), token);
	cr_assert_eq(rig_requested(&g, &s), token + 1);
	rig_none(&g);
	rig_sleep(&g, 1000 * RIG_MS);
	/* One hello a while is enough. */
	cr_assert_eq(rig_requested(&g, &s), token + 2);
	rig_none(&g);
	/* Two answers to what was sent twice. */
	rig_ok(&g, &s, token);
	rig_ok(&g, &s, token);
	rig_ok(&g, &s, token + 1);
	rig_ok(&g, &s, token + 2);
	rig_ok(&g, &s, token + 2);
	rig_told_once(&c0, RP_ST_OK);
	rig_told_once(&c1, RP_ST_OK);
	rig_told_once(&c2, RP_ST_OK);
	while ((m = rig_pop(&g)))
		free(m);
}

Test(peer, send_fails)
{
	struct rig_session s;
	struct rig_msg *m;
	uint64_t token;

	/* The hello. Nothing is told from inside the post, but soon. */
	g.send_ret = -EHOSTUNREACH;
	rig_commit(&g, p, &c0, 1, 0, 64);
	cr_assert_gt(g.kicks, 0);
	cr_assert_leq(rp_initiator_deadline(g.in), g.now);
	cr_assert(rig_progress(&g));
	rig_told_once(&c0, RP_ST_SEND_FAILED);
	cr_assert_eq(c0.out.detail, EHOSTUNREACH);
	g.send_ret = 0;

	/* The request, from inside the hello's answer; all end together. */
	rig_commit(&g, p, &c0, 1, 0, 64);
	rig_commit(&g, p, &c1, 1, 64, 64);
	g.send_ret = -ENOTCONN;
	s = rig_open(&g, RIG_LIFE, 4);
	rig_told_once(&c0, RP_ST_SEND_FAILED);
	rig_told_once(&c1, RP_ST_SEND_FAILED);
	g.send_ret = 0;

	/* One in flight, the next one fails. */
	s = under_way(4, &token);
	g.send_ret = -ENOTCONN;
	rig_commit(&g, p, &c1, 1, 64, 64);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_SEND_FAILED);
	rig_told_once(&c1, RP_ST_SEND_FAILED);
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_SEND_FAILED);
	g.send_ret = 0;

	/* Sending again fails. */
	s = under_way(4, &token);
	g.send_ret = -ENOTCONN;
	rig_sleep(&g, RIG_TIMEOUT / 2);
	rig_told_once(&c0, RP_ST_SEND_FAILED);
	g.send_ret = 0;
	s = under_way(4, &token);
	g.send_ret = -ENOTCONN;
	g.send_good = 1; /* the hello that goes with it */
	rig_sleep(&g, RIG_TIMEOUT / 2);
	rig_told_once(&c0, RP_ST_SEND_FAILED);
	while ((m = rig_pop(&g)))
		free(m);
	g.send_ret = 0;

	/* No address, no random numbers. */
	g.name_ret = -EIO;
	rig_commit(&g, p, &c0, 1, 0, 64);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_SEND_FAILED);
	g.name_ret = 0;
	g.random_ret = -EIO;
	rig_commit(&g, p, &c0, 1, 0, 64);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_SEND_FAILED);
	g.random_ret = 0;
	cr_assert_eq(rp_initiator_outstanding(g.in), 0);
	rig_none(&g);
}

/* What the wire has no room for is not sent at all. */
Test(peer, cannot_be_encoded)
{
	const struct rp_wire_range r = rig_range(1, 0, 64);
	const struct rp_commit_attr attr = {
		.ranges = &r,
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = 77,
		.done = rig_done,
		.arg = &c0,
	};

	g.name_len = RP_WIRE_MAX_ADDR + 1;
	rig_commit(&g, p, &c0, 1, 0, 64);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_SEND_FAILED);
	cr_assert_eq(c0.out.detail, EINVAL);
	cr_assert_eq(g.tries, 0);
	g.name_len = 0;
	c0 = (struct rig_told){0};
	cr_assert_eq(rp_commit_post(p, &attr), 0);
	rig_open(&g, RIG_LIFE, 4);
	rig_told_once(&c0, RP_ST_SEND_FAILED);
	cr_assert_eq(c0.out.detail, EINVAL);
	cr_assert_eq(g.tries, 1, "the hello");
}

/* Not to be mistaken for no cookie. */
Test(peer, random_zero)
{
	struct rig_session s;

	g.random_zero = true;
	rig_commit(&g, p, &c0, 1, 0, 64);
	s = rig_open(&g, RIG_LIFE, 4);
	cr_assert_neq(s.hello, 0);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
}

/* The pace of an earlier session's hello is not that of the next one's. */
Test(peer, next_hello_is_not_late)
{
	struct rig_session s;
	uint64_t token;

	s = under_way(4, &token);
	rig_ok(&g, &s, token);
	rig_refuse(&g, &s, 0, RP_ST_NO_SESSION);
	g.send_ret = -EAGAIN;
	rig_commit(&g, p, &c0, 1, 0, 64);
	g.send_ret = 0;
	rig_sleep(&g, RIG_MS);
	s = rig_open(&g, RIG_LIFE, 4);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
}

Test(peer, send_later)
{
	struct rig_session s;
	uint64_t token;
	unsigned int n;

	/* The hello. */
	g.send_ret = -EAGAIN;
	rig_commit(&g, p, &c0, 1, 0, 64);
	n = rig_sleep(&g, 100 * RIG_MS);
	cr_assert(n >= 50 && n <= 101, "%u", n);
	g.send_ret = 0;
	rig_sleep(&g, 2 * RIG_MS);
	/* Some of the requests: the rest follows in order. */
	rig_commit(&g, p, &c1, 1, 64, 64);
	rig_commit(&g, p, &c2, 1, 128, 64);
	g.send_ret = -EAGAIN;
	g.send_good = 1;
	s = rig_open(&g, RIG_LIFE, 8);
	token = rig_requested(&g, &s);
	rig_none(&g);
	rig_sleep(&g, 3 * RIG_MS);
	rig_none(&g);
	g.send_ret = 0;
	rig_sleep(&g, 2 * RIG_MS);
	cr_assert_eq(rig_requested(&g, &s), token + 1);
	cr_assert_eq(rig_requested(&g, &s), token + 2);
	rig_none(&g);

	/* What is sent again: it may not be possible for long. */
	g.send_ret = -EAGAIN;
	n = rig_sleep(&g, RIG_TIMEOUT / 2 + 100 * RIG_MS);
	cr_assert(n <= 110, "%u", n);
	rig_ok(&g, &s, token);
	rig_ok(&g, &s, token + 1);
	rig_told_once(&c0, RP_ST_OK);
	rig_told_once(&c1, RP_ST_OK);
	/* Never: then it ends. */
	rig_sleep(&g, RIG_TIMEOUT);
	rig_told_once(&c2, RP_ST_TIMEOUT);
	rig_none(&g);
	cr_assert_eq(rp_initiator_deadline(g.in), UINT64_MAX);
}

Test(peer, one_slow_peer_does_not_hold_the_others)
{
	struct rp_peer *other = rp_peer_get(g.in, RIG_PEER + 1);
	struct rig_session s;
	uint64_t token;

	s = under_way(4, &token);
	rig_commit(&g, other, &c1, 1, 0, 64);
	free(rig_take(&g, RP_MSG_HELLO));
	/* The other never answers; this one lives on. */
	for (int i = 0; i < 6; i++) {
		rig_sleep(&g, 1000 * RIG_MS);
		rig_alive(&g, &s);
	}
	rig_told_once(&c1, RP_ST_TIMEOUT);
	rig_not_told(&c0);
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_OK);
}

Test(peer, forget)
{
	struct rp_peer *other = rp_peer_get(g.in, RIG_PEER + 1);
	struct rig_session s;
	static struct rig_told q;
	struct rp_write w;
	uint64_t token;

	rp_peer_forget(g.in, 4711); /* nobody */
	rp_write_begin(p, &w, rig_key(9), 0, 64);
	s = under_way(1, &token);
	rig_commit(&g, p, &c1, 1, 64, 64); /* queued */
	rig_query(&g, p, &q, 1);
	rig_commit(&g, other, &c2, 1, 64, 64);
	rp_peer_forget(g.in, RIG_PEER);
	rig_told_once(&c0, RP_ST_CANCELED);
	rig_told_once(&c1, RP_ST_CANCELED);
	cr_assert_eq(q.times, 1);
	cr_assert_eq(q.query, RP_ST_CANCELED);
	cr_assert_not(q.has_info);
	rig_not_told(&c2);
	cr_assert_eq(rp_initiator_outstanding(g.in), 1);
	/* Late words find nobody. */
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_CANCELED);

	/* The address again is a new peer; of the old write, see test_poison. */
	p = rig_peer(&g);
	free(rig_take(&g, RP_MSG_HELLO)); /* of the other */
	s = under_way(4, &token);
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_OK);
	rp_write_done(&w, 0);
	rig_progress(&g);
}

Test(peer, forget_writes_of_every_end)
{
	struct rp_write w[3];

	for (int i = 0; i < 3; i++)
		rp_write_begin(p, &w[i], rig_key(1), i * 64, 64);
	rp_peer_forget(g.in, RIG_PEER);
	rp_write_done(&w[1], EIO);
	rp_write_done(&w[0], 0);
	rp_write_undo(&w[2]);
}

Test(peer, delete)
{
	struct rp_peer *other = rp_peer_get(g.in, RIG_PEER + 1);
	struct rig_session s;
	static struct rig_told q;
	struct rig_msg *m;
	uint64_t token;

	s = under_way(1, &token);
	rig_commit(&g, p, &c1, 1, 64, 64);
	rig_query(&g, p, &q, 1);
	rig_commit(&g, other, &c2, 1, 64, 64);
	free(rig_take(&g, RP_MSG_HELLO));
	rp_initiator_delete(g.in);
	g.in = NULL;
	rig_told_once(&c0, RP_ST_CANCELED);
	rig_told_once(&c1, RP_ST_CANCELED);
	rig_told_once(&c2, RP_ST_CANCELED);
	cr_assert_eq(q.times, 1);
	cr_assert_eq(q.query, RP_ST_CANCELED);
	/* Goodbye to the one that knows us. */
	m = rig_take(&g, RP_MSG_BYE);
	cr_assert_eq(m->peer, RIG_PEER);
	cr_assert_eq(m->hdr.session, s.cookie);
	cr_assert_eq(m->hdr.incarnation, RIG_LIFE);
	free(m);
	rig_none(&g);
}

/* The user is told, and writes may still end, before it is deleted. */
Test(peer, shut)
{
	struct rig_session s;
	struct rp_write w;
	uint64_t token;

	rp_write_begin(p, &w, rig_key(1), 0, 64);
	s = under_way(1, &token);
	rp_initiator_shut(g.in);
	rig_told_once(&c0, RP_ST_CANCELED);
	free(rig_take(&g, RP_MSG_BYE));
	rig_none(&g);
	cr_assert_eq(rp_initiator_outstanding(g.in), 0);
	rp_write_done(&w, 0);
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_CANCELED);
	rp_initiator_delete(g.in);
	g.in = NULL;
	rig_none(&g);
}

Test(peer, query)
{
	static struct rig_told q, q2;
	const struct rp_wire_info info = {.why = "because"};
	struct rp_wire_query asked;
	struct rp_wire_hdr hdr;
	uint8_t buf[RP_WIRE_MAX_MSG];
	int len;
	struct rig_session s;
	struct rig_msg *m;
	uint64_t token;

	cr_assert_eq(rp_query_post(p, 4711, RP_CLASS_POWER, rig_query_done, &q),
		     -EKEYREJECTED);
	rig_query(&g, p, &q, 3);
	s = rig_open(&g, RIG_LIFE, 1);
	m = rig_take(&g, RP_MSG_QUERY);
	cr_assert_eq(m->hdr.session, s.cookie);
	cr_assert_eq(m->hdr.incarnation, RIG_LIFE);
	cr_assert_eq(rp_wire_get_query(m->bytes, &m->hdr, &asked), 0);
	cr_assert_eq(asked.key, rig_key(3));
	cr_assert_eq(asked.required, RP_CLASS_POWER);
	token = m->hdr.token;
	free(m);
	/* A reply is no answer to a query, nor is another's. */
	rig_ok(&g, &s, token);
	rig_refuse(&g, &s, token, RP_ST_RANGE);
	rig_info(&g, &s, token + 1, RP_ST_OK);
	/* Nor is what makes no sense. */
	hdr = (struct rp_wire_hdr){
		.session = s.hello, .token = token, .incarnation = RIG_LIFE};
	len = rp_wire_put_info(buf, sizeof(buf), &hdr, &info);
	cr_assert_gt(len, 0);
	buf[36] = RP_CLASS_POWER + 1;
	rig_recv(&g, buf, len);
	cr_assert_eq(q.times, 0);
	/* Credits are for queries as well. */
	rig_query(&g, p, &q2, 4);
	rig_none(&g);
	rig_info(&g, &s, token, RP_ST_OK);
	cr_assert_eq(q.times, 1);
	cr_assert_eq(q.query, RP_ST_OK);
	cr_assert(q.has_info);
	cr_assert_eq(q.info.length, 1 << 20);
	cr_assert_str_eq(q.info.why, "because");
	rig_info(&g, &s, token, RP_ST_OK);
	cr_assert_eq(q.times, 1);

	/* Refused, with an explanation. */
	m = rig_take(&g, RP_MSG_QUERY);
	rig_info(&g, &s, m->hdr.token, RP_ST_STALE_KEY);
	free(m);
	cr_assert_eq(q2.times, 1);
	cr_assert_eq(q2.query, RP_ST_STALE_KEY);
	cr_assert(q2.has_info);
	cr_assert_eq(rp_initiator_outstanding(g.in), 0);
	cr_assert_eq(rp_initiator_deadline(g.in), UINT64_MAX);
}

Test(peer, query_ends_in_every_way)
{
	struct rp_initiator_attr attr = rig_attr();
	struct rig_session s;
	static struct rig_told q, q2;
	struct rig_msg *m;
	unsigned int kicks;

	/* Send failure, from inside the post. A commit waits too. */
	g.send_ret = -EAGAIN;
	rig_commit(&g, p, &c0, 1, 0, 64);
	g.send_ret = -EIO;
	kicks = g.kicks;
	rig_query(&g, p, &q, 1);
	cr_assert_eq(q.times, 1);
	cr_assert_eq(q.query, RP_ST_SEND_FAILED);
	cr_assert_not(q.has_info);
	/* The commit is told from progress, so somebody must call it. */
	rig_not_told(&c0);
	cr_assert_gt(g.kicks, kicks);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_SEND_FAILED);
	g.send_ret = 0;

	/* Silence. */
	rig_query(&g, p, &q, 1);
	rig_sleep(&g, RIG_TIMEOUT - 1);
	cr_assert_eq(q.times, 0);
	rig_sleep(&g, 1);
	cr_assert_eq(q.times, 1);
	cr_assert_eq(q.query, RP_ST_TIMEOUT);
	cr_assert_not(q.has_info);
	while ((m = rig_pop(&g)))
		free(m);

	/* The session goes, in flight and queued; then overload. */
	rig_query(&g, p, &q, 1);
	rig_query(&g, p, &q2, 2);
	s = rig_open(&g, RIG_LIFE, 1);
	m = rig_take(&g, RP_MSG_QUERY);
	rig_info(&g, &s, m->hdr.token, RP_ST_NO_SESSION);
	free(m);
	s = rig_open(&g, RIG_LIFE2, 2);
	m = rig_take(&g, RP_MSG_QUERY);
	rig_info(&g, &s, m->hdr.token, RP_ST_OVERLOADED);
	free(m);
	m = rig_take(&g, RP_MSG_QUERY);
	rig_info(&g, &s, m->hdr.token, RP_ST_OK);
	free(m);
	cr_assert_eq(q.times, 0);
	cr_assert_eq(q2.times, 1);
	rig_sleep(&g, 2 * RIG_MS);
	m = rig_take(&g, RP_MSG_QUERY);
	rig_info(&g, &s, m->hdr.token, RP_ST_OK);
	free(m);
	cr_assert_eq(q.times, 1);
	cr_assert_eq(q.query, RP_ST_OK);

	/* No more than the limit, queries and commits together. */
	rig_stop(&g);
	attr.max_commits = 2;
	rig_start(&g, &attr);
	p = rig_peer(&g);
	rig_commit(&g, p, &c0, 1, 0, 64);
	rig_query(&g, p, &q, 1);
	cr_assert_eq(rp_query_post(p, rig_key(1), RP_CLASS_NONE, rig_query_done,
				   &q2),
		     -EAGAIN);
	cr_assert_eq(rp_initiator_outstanding(g.in), 2);
}
