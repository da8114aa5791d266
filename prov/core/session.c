// SPDX-License-Identifier: BSD-2-Clause
/* The connection of a session: connect on first use, time out, end. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/log.h"
#include "core/session_priv.h"

#define NS_PER_MS 1000000ull
/* Most slack, thirty years, so that a sum of times does not wrap. */
#define MAX_SLACK_NS 1e18

static const struct rp_channel_events session_events;

static uint64_t session_now(const struct rp_session *s)
{
	return s->k->ops->now(s->k);
}

/* Write the target's address and port: ADDRESS:PORT, or [ADDRESS]:PORT. */
static void name_target(struct rp_session *s)
{
	char host[64], port[6];

	if (getnameinfo((struct sockaddr *)&s->addr, (socklen_t)s->addr_len,
			host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		strcpy(s->target, "unknown address");
	else
		snprintf(s->target, sizeof(s->target),
			 s->addr.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
			 host, port);
}

int rp_session_new(struct rp_connector *k, const struct rp_session_attr *attr,
		   const void *addr, size_t len, struct rp_session **out)
{
	struct rp_session *s;
	int ret;

	if (!len || len > sizeof(s->addr) || !attr->max_commits)
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->k = k;
	s->attr = *attr;
	memcpy(&s->addr, addr, len);
	s->addr_len = len;
	name_target(s);
	s->next_token = s->next_seq = 1;
	TAILQ_INIT(&s->ops);
	TAILQ_INIT(&s->ended);
	rp_ranges_init(&s->unplaced, 4ul * RP_SESSION_RANGES);
	rp_ranges_init(&s->poison, RP_SESSION_RANGES);
	rp_ranges_init(&s->by_agent, RP_SESSION_RANGES);
	ret = k->ops->random(k, &s->initiator, sizeof(s->initiator));
	if (ret) {
		free(s);
		return ret;
	}
	s->initiator |= !s->initiator;
	rp_stats_open();
	*out = s;
	return 0;
}

void rp_session_set_endpoint(struct rp_session *s, uint16_t port, bool ordered)
{
	s->port = port;
	s->ordered = ordered;
}

/* --- grants --- */

/* A QUERY that the session sends for itself. */
struct query {
	struct rp_op op;
	struct rp_wire_range range;
};

static void query_done(struct rp_op *op, const struct rp_outcome *out)
{
	struct query *a = (struct query *)op;
	struct rp_session *s = op->priv.session;
	struct rp_grant *g = rp_grant_find(s, a->range.key);

	if (g && g->state == RP_GRANT_QUERIED)
		rp_grant_fail(s, a->range.key,
			      out->status ? out->status : RP_ST_BAD_MESSAGE,
			      out->detail);
	free(a);
}

static int query_send(struct rp_session *s, uint64_t key)
{
	struct rp_grant *g;
	struct query *a;

	if (HASH_COUNT(s->grants) >= RP_SESSION_GRANTS)
		return -ENOMEM;
	a = calloc(1, sizeof(*a));
	g = a ? rp_grant_get(s, key) : NULL;
	if (!g) {
		free(a);
		return -ENOMEM;
	}
	g->state = RP_GRANT_QUERIED;
	a->range.key = key;
	a->op.kind = RP_OP_QUERY;
	a->op.done = query_done;
	a->op.ranges = &a->range;
	a->op.nranges = 1;
	rp_op_accept_internal(s, &a->op);
	return -EAGAIN;
}

/* Do what rp_session_ready() does, for one key. */
static int key_ready(struct rp_session *s, uint64_t key, bool query,
		     uint32_t *detail)
{
	struct rp_grant *g = rp_grant_find(s, key);
	enum rp_status st;

	if (g && g->state == RP_GRANT_GIVEN)
		return 0;
	if (g && g->state == RP_GRANT_FAILED) {
		st = g->status;
		*detail = g->detail;
		rp_grant_free(s, g);
		return (int)st;
	}
	if (s->state != RP_SESSION_OPEN)
		return -EAGAIN;
	if (query)
		return 0;
	return g ? -EAGAIN : query_send(s, key);
}

/* Are all keys ready? A refusal comes before -EAGAIN, -EAGAIN before 0. */
static int keys_ready(struct rp_session *s, const struct rp_op *op,
		      uint64_t *range, uint32_t *detail)
{
	const struct rp_wire_range then = rp_ordered_store_range(op);
	uint64_t before = 0;
	int ret = 0;

	for (size_t i = 0; i < op->nranges + rp_op_has_then(op); i++) {
		uint64_t key = i < op->nranges ? op->ranges[i].key : then.key;
		int one = key == before
				  ? 0
				  : key_ready(s, key, op->kind == RP_OP_QUERY,
					      detail);

		before = key;
		if (one > 0 || one == -ENOMEM) {
			*range = i;
			return one;
		}
		if (one)
			ret = one;
	}
	return ret;
}

/* --- connecting --- */

/* Is the status about the key alone, so that other keys may be good? */
static bool is_about_key(enum rp_status st)
{
	return st == RP_ST_STALE_KEY || st == RP_ST_UNKNOWN_KEY ||
	       st == RP_ST_VOLATILE;
}

/* Keep the status: the next operation (with the key) completes with it. */
static void keep_failure(struct rp_session *s, enum rp_status st,
			 uint32_t detail)
{
	if (is_about_key(st)) {
		rp_grant_fail(s, s->hello_key, st, detail);
		return;
	}
	s->failure = st;
	s->failure_detail = detail;
}

static int begin_connect(struct rp_session *s, uint64_t key)
{
	const struct rp_wire_hello m = {
		.key = key,
		.initiator = s->initiator,
		.timeout_ms =
			s->attr.timeout_ns / NS_PER_MS < UINT32_MAX
				? (uint32_t)(s->attr.timeout_ns / NS_PER_MS)
				: UINT32_MAX,
		.features = s->attr.native ? RP_FEATURE_NATIVE : 0,
		.port = s->port,
	};
	uint8_t buf[RP_WIRE_CM_DATA];
	int len = rp_wire_put_hello(buf, sizeof(buf), &m);
	int ret;

	assert(len > 0);
	ret = s->k->ops->connect(s->k, &s->addr, s->addr_len, buf, (size_t)len,
				 &session_events, s, &s->channel);
	if (ret)
		return ret;
	s->channel->flags |= RP_CHANNEL_ABORTS;
	s->hello_key = key;
	s->state = RP_SESSION_CONNECTING;
	s->received_any = true;
	return 0;
}

int rp_session_ready(struct rp_session *s, const struct rp_op *op,
		     uint64_t *range, uint32_t *detail)
{
	enum rp_status st = s->failure;
	int ret;

	if (st) {
		*detail = s->failure_detail;
		s->failure = RP_ST_OK;
		return (int)st;
	}
	if (s->end_due || s->state == RP_SESSION_CLOSING)
		return -EAGAIN;
	ret = keys_ready(s, op, range, detail);
	if (s->state != RP_SESSION_IDLE || ret != -EAGAIN)
		return ret;
	ret = begin_connect(s, op->ranges[0].key);
	if (!ret)
		return -EAGAIN;
	rp_log(RP_LOG_INFO, "cannot connect to %s: %s", s->target,
	       strerror(-ret));
	*detail = (uint32_t)-ret;
	return ret == -ENOMEM ? RP_ST_NO_MEMORY : RP_ST_LOST;
}

static void end_for_bad_message(struct rp_session *s, int ret)
{
	rp_log(RP_LOG_WARN,
	       ret == -EPROTONOSUPPORT
		       ? "a target speaks another version of the protocol: "
			 "install the same ofi_rpmem on both sides"
		       : "a target sent an invalid message: its connection is "
			 "closed");
	rp_session_fail(
		s, ret == -EPROTONOSUPPORT ? RP_ST_VERSION : RP_ST_BAD_MESSAGE,
		0);
}

static void channel_connected(void *owner, const void *data, size_t len)
{
	struct rp_session *s = owner;
	struct rp_wire_hello_ack m;
	int ret;

	if (s->state != RP_SESSION_CONNECTING || s->end_due)
		return;
	ret = rp_wire_get_hello_ack(data, len, &m);
	if (ret) {
		end_for_bad_message(s, ret);
		return;
	}
	if (m.status != RP_ST_OK) {
		rp_session_fail(s, (enum rp_status)m.status, m.detail);
		return;
	}
	rp_grant_record(s, s->hello_key, &m.grant);
	if (!rp_grant_find(s, s->hello_key)) {
		rp_session_fail(s, RP_ST_NO_MEMORY, 0);
		return;
	}
	s->credits = m.credits;
	s->state = RP_SESSION_OPEN;
	rp_stats_add(&rp_stats->connected, 1);
	rp_stats_add(&rp_stats->connections, 1);
	rp_stats_add(&rp_stats->reconnections, s->was_open);
	s->was_open = true;
	s->may_arrive = false; /* the target has closed the earlier one */
	s->received_any = true;
	s->idle = false;
}

static void channel_lost(void *owner, int err, const void *data, size_t len)
{
	struct rp_session *s = owner;
	struct rp_wire_hello_ack m;

	if (s->state == RP_SESSION_CONNECTING && len && !s->end_due) {
		int ret = rp_wire_get_hello_ack(data, len, &m);

		if (ret)
			end_for_bad_message(s, ret);
		else if (m.status != RP_ST_OK)
			rp_session_fail(s, (enum rp_status)m.status, m.detail);
	}
	rp_session_fail(s, RP_ST_LOST, (uint32_t)err);
}

static void channel_received(void *owner, const void *msg, size_t len)
{
	struct rp_session *s = owner;
	struct rp_wire_hdr hdr;
	int ret;

	if (s->state != RP_SESSION_OPEN || s->end_due)
		return;
	ret = rp_wire_get_hdr(msg, len, &hdr);
	if (!ret) {
		s->received_any = true;
		if (hdr.type == RP_MSG_REPLY || hdr.type == RP_MSG_INFO)
			ret = rp_session_handle_reply(s, msg, &hdr);
		else if (hdr.type != RP_MSG_PROGRESS)
			ret = -EBADMSG;
	}
	if (ret)
		end_for_bad_message(s, ret);
}

static const struct rp_channel_events session_events = {
	.connected = channel_connected,
	.lost = channel_lost,
	.received = channel_received,
};

/* --- the end of a connection --- */

/* remembers: if connecting failed, the next operation completes with st. */
static void connection_end(struct rp_session *s, enum rp_status st,
			   uint32_t detail, bool remembers)
{
	const bool connecting = s->state == RP_SESSION_CONNECTING;

	if (s->state == RP_SESSION_IDLE || s->state == RP_SESSION_CLOSING)
		return;
	rp_log(RP_LOG_INFO, "the connection to %s ends: %s", s->target,
	       rp_status_name(st));
	rp_stats_add(&rp_stats->connected,
		     -(uint64_t)(s->state == RP_SESSION_OPEN));
	s->state = RP_SESSION_CLOSING;
	s->end_due = false;
	s->batch = NULL;
	s->may_arrive |= !TAILQ_EMPTY(&s->ops) || s->unplaced.n;
	s->lost_writes |= s->unplaced.n || s->nstores;
	/* Closed on purpose: completed writes must still arrive. */
	if (st == RP_ST_CANCELED && !detail)
		s->channel->flags &= ~(uint32_t)RP_CHANNEL_ABORTS;
	rp_channel_close(s->channel);
	s->channel = NULL;
	rp_session_drop(s, st, detail);
	rp_session_poison_unplaced(s);
	rp_grants_forget(s, !remembers);
	s->state = RP_SESSION_IDLE;
	if (connecting && remembers)
		keep_failure(s, st, detail);
	rp_session_call_done(s);
}

void rp_session_disconnect(struct rp_session *s, enum rp_status st,
			   uint32_t detail)
{
	if (s->state != RP_SESSION_IDLE) {
		connection_end(s, st, detail, false);
		return;
	}
	rp_grants_forget(s, true);
	s->failure = RP_ST_OK;
	rp_session_call_done(s);
}

void rp_session_delete(struct rp_session *s)
{
	rp_session_disconnect(s, RP_ST_CANCELED, 0);
	rp_ranges_fini(&s->unplaced);
	rp_ranges_fini(&s->poison);
	rp_ranges_fini(&s->by_agent);
	free(s);
}

/* --- progress --- */

/* Deadline of the target's next message; UINT64_MAX: none is due. */
static uint64_t deadline_of(const struct rp_session *s, uint64_t alive_at)
{
	double slack = 0;

	if (s->state == RP_SESSION_IDLE ||
	    (s->state == RP_SESSION_OPEN && TAILQ_EMPTY(&s->ops)))
		return UINT64_MAX;
	/* Replies follow the written bytes, which a slow network delays. */
	if (s->attr.slow_rate)
		slack = (double)(s->written - s->proved) * 1e9 /
			(double)s->attr.slow_rate;
	if (slack > MAX_SLACK_NS)
		slack = MAX_SLACK_NS;
	return alive_at + s->attr.timeout_ns + (uint64_t)slack;
}

/* Nothing is outstanding: close the connection after attr.idle_ns. */
static void close_if_idle(struct rp_session *s, uint64_t t)
{
	if (!s->idle) {
		s->idle = true;
		s->idle_at = t;
	}
	if (!s->attr.idle_ns || t < s->idle_at + s->attr.idle_ns)
		return;
	/* First prove placement: a close would poison unplaced writes. */
	if (s->unplaced.n)
		rp_session_fence(s);
	else
		connection_end(s, RP_ST_CANCELED, 0, false);
}

bool rp_session_progress(struct rp_session *s)
{
	bool any = s->end_due;
	uint64_t t;

	if (s->end_due)
		connection_end(s, s->end_status, s->end_detail, true);
	if (s->state == RP_SESSION_IDLE || s->state == RP_SESSION_CLOSING)
		return rp_session_call_done(s) || any;
	t = session_now(s);
	if (s->received_any)
		s->alive_at = t;
	s->received_any = false;
	if (t >= deadline_of(s, s->alive_at)) {
		connection_end(s, RP_ST_TIMEOUT, 0, true);
		return true;
	}
	s->batch = NULL;
	rp_session_post_queued(s);
	any |= rp_session_call_done(s);
	if (s->state == RP_SESSION_OPEN && TAILQ_EMPTY(&s->ops))
		close_if_idle(s, t);
	return any;
}

uint64_t rp_session_deadline(const struct rp_session *s)
{
	uint64_t due, retry;

	if (s->end_due || s->batch || !TAILQ_EMPTY(&s->ended))
		return 0;
	due = deadline_of(s, s->received_any ? session_now(s) : s->alive_at);
	/* The channel reports no event when it has room again. */
	if (s->channel_full && s->post_head) {
		retry = session_now(s) + NS_PER_MS;
		due = retry < due ? retry : due;
	}
	if (s->state != RP_SESSION_OPEN || !TAILQ_EMPTY(&s->ops) ||
	    !s->attr.idle_ns)
		return due;
	return s->idle ? s->idle_at + s->attr.idle_ns : 0;
}

/* --- queries --- */

bool rp_session_has_unplaced(struct rp_session *s)
{
	if (s->batch) {
		s->batch = NULL;
		rp_session_post_queued(s);
	}
	if (s->unplaced.n && s->last_proof < s->last_write)
		rp_session_fence(s);
	return s->unplaced.n || s->nstores;
}

bool rp_session_lost_writes(struct rp_session *s)
{
	const bool lost = s->lost_writes;

	s->lost_writes = false;
	return lost;
}

bool rp_session_may_arrive(const struct rp_session *s)
{
	return s->may_arrive;
}

unsigned int rp_session_outstanding(const struct rp_session *s)
{
	return s->outstanding;
}

enum rp_session_state rp_session_state(const struct rp_session *s)
{
	return s->state;
}

const char *rp_session_text(const struct rp_session *s, char *buf, size_t size)
{
	static const char *const states[] = {
		[RP_SESSION_IDLE] = "no private connection now",
		[RP_SESSION_CONNECTING] =
			"the private connection is being made",
		[RP_SESSION_OPEN] = "a private connection",
		[RP_SESSION_CLOSING] = "the private connection is being closed",
	};

	if (s->state == RP_SESSION_OPEN)
		snprintf(
			buf, size, "%s: %u of %u credits in use%s%s",
			states[s->state], s->credits_used, s->credits,
			s->channel->flags & RP_CHANNEL_FENCES ? ", fences" : "",
			s->attr.native && s->channel->flags & RP_CHANNEL_FLUSHES
				? ", FLUSH"
				: "");
	else
		snprintf(buf, size, "%s", states[s->state]);
	return buf;
}
