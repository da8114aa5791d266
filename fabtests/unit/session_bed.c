/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A session (initiator side of prov/core) on a fake channel, with a clock that
 * the test sets.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "leaks.h"
#include "session_bed.h"

struct bed bed;
bool bed_allocates;
unsigned int bed_edges[RP_OP_STATES][RP_OP_STATES];

#define TO(state) (1u << RP_OP_##state)
const unsigned int bed_legal[RP_OP_STATES] = {
	[RP_OP_NEW] = TO(QUEUED),
	[RP_OP_QUEUED] =
		TO(DATA) | TO(SLICES) | TO(LAST) | TO(POSTED) | TO(ENDED),
	[RP_OP_DATA] = TO(SLICES) | TO(LAST) | TO(POSTED) | TO(ENDED),
	[RP_OP_SLICES] = TO(REPLIES) | TO(LAST) | TO(POSTED) | TO(ENDED),
	[RP_OP_REPLIES] = TO(LAST) | TO(POSTED) | TO(ENDED),
	[RP_OP_LAST] = TO(POSTED) | TO(ENDED),
	[RP_OP_POSTED] = TO(ENDED),
};

static void note_move(enum rp_op_state from, enum rp_op_state to)
{
	cr_assert(bed_legal[from] & 1u << to, "from %d to %d", from, to);
	bed_edges[from][to]++;
}

/* --- the channel --- */

static size_t gather_bytes(const struct rp_channel_op *op, uint8_t *to)
{
	size_t len = 0;

	for (size_t i = 0; i < op->iov_count; i++) {
		if (to)
			memcpy(to + len, op->iov[i].iov_base,
			       op->iov[i].iov_len);
		len += op->iov[i].iov_len;
	}
	return len;
}

static void decode_message(struct bed_seen *m)
{
	static struct rp_wire_range ranges[RP_WIRE_MAX_PACKED];

	cr_assert_eq(rp_wire_get_hdr(m->bytes, m->len, &m->hdr), 0);
	if (m->hdr.type == RP_MSG_QUERY) {
		cr_assert_eq(rp_wire_get_query(m->bytes, &m->hdr, &m->query),
			     0);
		return;
	}
	m->req.decoded = ranges;
	cr_assert_eq(rp_wire_get_request(m->bytes, &m->hdr, &m->req), 0);
	m->ranges = calloc(m->req.nranges + 1, sizeof(*m->ranges));
	memcpy(m->ranges, ranges, m->req.nranges * sizeof(*m->ranges));
}

static void record_posted(struct rp_channel_op *op)
{
	size_t len = op->kind == RP_CHANNEL_READ ? 0 : gather_bytes(op, NULL);
	struct bed_seen *m;

	bed_allocates = true;
	m = calloc(1, sizeof(*m) + len);
	m->kind = op->kind;
	m->delivered = op->delivered;
	m->injected = op->inject;
	m->has_desc = op->desc && op->desc[0];
	for (size_t i = 0; op->desc && i < op->iov_count; i++)
		m->desc[i] = op->desc[i];
	m->rkey = op->rkey;
	m->remote_addr = op->remote_addr;
	m->length = op->length;
	m->iov_count = op->iov_count;
	m->len = len;
	if (len)
		gather_bytes(op, m->bytes);
	if (op->kind == RP_CHANNEL_SEND) {
		decode_message(m);
		cr_assert(!op->desc);
	} else if (op->kind == RP_CHANNEL_WRITE) {
		cr_assert_eq(len, op->length);
	}
	STAILQ_INSERT_TAIL(&bed.seen, m, link);
	bed_allocates = false;
}

static int post_ops(struct rp_channel *c, struct rp_channel_op *ops[], int n)
{
	int i;

	cr_assert(bed.connected);
	for (i = 0; i < n && bed.room; i++) {
		struct rp_channel_op *op = ops[i];

		bed.room -= bed.room > 0;
		record_posted(op);
		if (op->inject) {
			cr_assert_eq(op->kind, RP_CHANNEL_SEND);
			cr_assert_leq(gather_bytes(op, NULL), bed.inject);
			continue;
		}
		TAILQ_INSERT_TAIL(&bed.posted, op, link);
		bed.nposted++;
	}
	return i;
}

static void finish_oldest(int err)
{
	struct rp_channel_op *op = TAILQ_FIRST(&bed.posted);

	cr_assert(op);
	TAILQ_REMOVE(&bed.posted, op, link);
	bed.nposted--;
	op->done(op, err);
}

static void close_channel(struct rp_channel *c)
{
	cr_assert(bed.connected);
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_CLOSING);
	if (bed.on_close)
		bed.on_close();
	while (!TAILQ_EMPTY(&bed.posted))
		finish_oldest(ECANCELED);
	bed.connected = false;
	bed.ncloses++;
}

static const struct rp_channel_ops channel_ops = {
	.post = post_ops,
	.close = close_channel,
};

/* --- the connector --- */

static int connect_to(struct rp_connector *k, const void *addr, size_t len,
		      const void *data, size_t data_len,
		      const struct rp_channel_events *events, void *owner,
		      struct rp_channel **out)
{
	const struct sockaddr_in *in = addr;

	cr_assert(!bed.connected);
	cr_assert_leq(data_len, RP_WIRE_CM_DATA);
	cr_assert_eq(rp_wire_get_hello(data, data_len, &bed.hello), 0);
	if (bed.connect_ret)
		return bed.connect_ret;
	cr_assert_eq(len, sizeof(*in));
	cr_assert_eq(in->sin_port, htons(7));
	bed.nconnects++;
	bed.connected = true;
	bed.chan = (struct rp_channel){
		.ops = &channel_ops,
		.events = events,
		.owner = owner,
		.flags = bed.flags,
		.inject = bed.inject,
	};
	*out = &bed.chan;
	return 0;
}

static uint64_t connector_now(struct rp_connector *k)
{
	return bed.now;
}

static int random_bytes(struct rp_connector *k, void *buf, size_t len)
{
	memset(buf, bed.random_zero ? 0 : 0x5a, len);
	return bed.random_ret;
}

static void connector_kick(struct rp_connector *k)
{
	bed.nkicks++;
}

static const struct rp_connector_ops connector_ops = {
	.connect = connect_to,
	.now = connector_now,
	.random = random_bytes,
	.kick = connector_kick,
};

/* --- start and stop --- */

struct rp_session_attr bed_attr(void)
{
	return (struct rp_session_attr){
		.timeout_ns = BED_TIMEOUT,
		.max_commits = 8,
		.inline_max = RP_WIRE_MAX_STORE,
	};
}

void bed_start(const struct rp_session_attr *attr)
{
	const struct rp_session_attr usual = bed_attr();
	const struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(7),
	};

	memset(&bed, 0, sizeof(bed));
	bed.k.ops = &connector_ops;
	bed.now = 1000 * BED_MS;
	bed.flags = RP_CHANNEL_FENCES;
	bed.inject = 128;
	bed.room = -1;
	bed.credits = 64;
	bed.method = RP_METHOD_AGENT_CLWB;
	bed.class = RP_CLASS_POWER;
	bed.length = BED_LEN;
	STAILQ_INIT(&bed.seen);
	TAILQ_INIT(&bed.posted);
	rp_op_on_state = note_move;
	cr_assert_eq(rp_session_new(&bed.k, attr ? attr : &usual, &to,
				    sizeof(to), &bed.s),
		     0);
}

void bed_stop(void)
{
	if (bed.s)
		rp_session_delete(bed.s);
	bed.s = NULL;
	while (bed_see())
		;
	cr_assert(!bed.connected);
	cr_assert_eq(bed.nposted, 0);
	cr_assert_eq(rp_test_leaked(), 0);
}

/*
 * Check that all counters and lists of a session without operations are empty.
 */
static void check_empty(void)
{
	const struct rp_session *s = bed.s;

	if (!TAILQ_EMPTY(&s->ops))
		return;
	cr_assert(!s->post_head && !s->batch && !s->fence);
	cr_assert_eq(s->nqueued, 0);
	cr_assert_eq(s->ncommits, 0);
	cr_assert_eq(s->nstores, 0);
	cr_assert_eq(s->nthens, 0);
	cr_assert_eq(s->credits_used, 0);
	cr_assert(LIST_EMPTY(&s->stores));
	cr_assert_eq(s->outstanding, 0);
}

bool bed_progress(void)
{
	bool any = rp_session_progress(bed.s);

	check_empty();
	if (bed.room)
		cr_assert_gt(rp_session_deadline(bed.s), bed.now);
	return any;
}

void bed_advance_clock(uint64_t ns)
{
	bed.now += ns;
	bed_progress();
}

uint64_t bed_key(uint32_t n)
{
	const struct rp_key k = {
		.class = bed.class,
		.method = bed.method,
		.port = 7,
		.random = n,
	};

	return rp_key_make(&k);
}

struct rp_wire_range bed_range(uint32_t key, uint64_t off, uint64_t len)
{
	return (struct rp_wire_range){bed_key(key), BED_ADDR + off, len};
}

struct rp_wire_grant bed_grant(uint64_t key)
{
	return (struct rp_wire_grant){
		.rkey = key ^ 0xff,
		.remote_addr = BED_REMOTE,
		.addr = BED_ADDR,
		.length = bed.length,
		.class = (uint8_t)bed.class,
		.method = (uint8_t)bed.method,
		.writable = !bed.read_only,
		.unreadable = bed.unreadable,
	};
}

void bed_accept_as(const struct rp_wire_hello_ack *ack)
{
	uint8_t buf[256];
	int len = rp_wire_put_hello_ack(buf, sizeof(buf), ack);

	cr_assert_gt(len, 0);
	bed.chan.events->connected(bed.chan.owner, buf, (size_t)len);
}

void bed_accept(void)
{
	const struct rp_wire_hello_ack ack = {
		.incarnation = 1,
		.credits = bed.credits,
		.grant = bed_grant(bed.hello.key),
	};

	bed_accept_as(&ack);
}

void bed_refuse(enum rp_status st, uint32_t detail)
{
	const struct rp_wire_hello_ack ack = {.status = st, .detail = detail};
	uint8_t buf[256];
	int len = rp_wire_put_hello_ack(buf, sizeof(buf), &ack);

	cr_assert_gt(len, 0);
	bed.chan.events->lost(bed.chan.owner, ECONNREFUSED, buf, (size_t)len);
}

void bed_lose_connection(int err)
{
	bed.chan.events->lost(bed.chan.owner, err, NULL, 0);
}

void bed_open(uint32_t key)
{
	static struct report t;

	cr_assert_eq(bed_post_result(op_read(&t, key, 0, 8)), -EAGAIN);
	cr_assert_eq(bed.hello.key, bed_key(key));
	bed_accept();
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_OPEN);
	bed.replies = true;
}

void bed_open_alone(enum rp_method m, unsigned int max_commits)
{
	struct rp_session_attr attr = bed_attr();

	bed_stop();
	attr.native = true;
	if (max_commits)
		attr.max_commits = max_commits;
	bed_start(&attr);
	bed.method = m;
	bed.flags |= RP_CHANNEL_FLUSHES;
	bed_open(1);
}

/* --- what was posted --- */

const struct bed_seen *bed_see(void)
{
	struct bed_seen *m = bed.last;

	if (m) {
		free(m->ranges);
		free(m);
	}
	bed.last = m = STAILQ_FIRST(&bed.seen);
	if (m)
		STAILQ_REMOVE_HEAD(&bed.seen, link);
	return m;
}

const struct bed_seen *bed_see_kind(enum rp_channel_kind kind)
{
	const struct bed_seen *m = bed_see();

	cr_assert(m, "nothing was posted");
	cr_assert_eq(m->kind, kind);
	return m;
}

const struct bed_seen *bed_see_request(enum rp_effect effect)
{
	const struct bed_seen *m = bed_see_kind(RP_CHANNEL_SEND);

	cr_assert_eq(m->hdr.type, RP_MSG_REQUEST);
	cr_assert_eq(m->req.effect, effect);
	return m;
}

void bed_see_nothing(void)
{
	const struct bed_seen *m = STAILQ_FIRST(&bed.seen);

	cr_assert(!m, "kind %d was posted", m ? (int)m->kind : 0);
}

void bed_done(unsigned int n)
{
	while (n--)
		finish_oldest(0);
}

void bed_done_all(void)
{
	while (!TAILQ_EMPTY(&bed.posted))
		finish_oldest(0);
}

void bed_fail(int err)
{
	finish_oldest(err);
}

void bed_receive(const void *msg, size_t len)
{
	bed.chan.events->received(bed.chan.owner, msg, len);
}

void bed_reply_as(uint64_t token, const struct rp_wire_reply *m)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	int len = rp_wire_put_reply(buf, sizeof(buf), token, m);

	cr_assert_gt(len, 0);
	bed_receive(buf, (size_t)len);
}

void bed_reply(uint64_t token, enum rp_status st)
{
	struct rp_wire_reply m = {
		.status = st,
		.level = RP_LEVEL_DURABLE,
		.class = (uint8_t)bed.class,
		.method = RP_METHOD_AGENT_CLWB,
	};

	if (st)
		m = (struct rp_wire_reply){.status = st};
	bed_reply_as(token, &m);
}

void bed_ok(void)
{
	cr_assert(bed.last && bed.last->hdr.token);
	bed_reply(bed.last->hdr.token, RP_ST_OK);
}

void bed_info(uint64_t token, enum rp_status st, uint64_t key)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_info m = {.status = st};
	int len;

	if (!st)
		m.grant = bed_grant(key);
	len = rp_wire_put_info(buf, sizeof(buf), token, &m);
	cr_assert_gt(len, 0);
	bed_receive(buf, (size_t)len);
}

/* --- operations --- */

static void op_done(struct rp_op *op, const struct rp_outcome *out)
{
	struct report *t = (struct report *)op;

	t->times++;
	t->outstanding = false;
	t->out = *out;
	if (t->then)
		t->then(t);
}

static struct rp_op *op_new(struct report *t, enum rp_op_kind kind)
{
	void (*then)(struct report *) = t->then;

	cr_assert(!t->outstanding);
	memset(&t->op, 0xa5, sizeof(t->op)); /* fill with garbage: the caller
						sets each field */
	memset(&t->op, 0, offsetof(struct rp_op, priv));
	t->times = 0;
	t->then = then;
	t->op.kind = kind;
	t->op.done = op_done;
	t->op.ranges = &t->range;
	t->op.nranges = 1;
	t->op.required = bed.class;
	return &t->op;
}

static struct rp_op *op_local(struct report *t, enum rp_op_kind kind,
			      uint32_t key, uint64_t off, size_t len)
{
	struct rp_op *op = op_new(t, kind);

	t->range = bed_range(key, off, len);
	op->iov[0] = (struct iovec){t->buf, len};
	op->iov_count = 1;
	return op;
}

struct rp_op *op_write(struct report *t, uint32_t key, uint64_t off, size_t len,
		       enum rp_level level)
{
	struct rp_op *op = op_local(t, RP_OP_WRITE, key, off, len);

	op->level = level;
	return op;
}

struct rp_op *op_read(struct report *t, uint32_t key, uint64_t off, size_t len)
{
	return op_local(t, RP_OP_READ, key, off, len);
}

struct rp_op *op_commit(struct report *t, const struct rp_wire_range *r,
			size_t n)
{
	struct rp_op *op = op_new(t, RP_OP_COMMIT);

	op->ranges = r;
	op->nranges = n;
	op->level = RP_LEVEL_DURABLE;
	return op;
}

struct rp_op *op_commit_one(struct report *t, uint32_t key, uint64_t off,
			    uint64_t len)
{
	t->range = bed_range(key, off, len);
	return op_commit(t, &t->range, 1);
}

struct rp_op *op_then(struct report *t, uint32_t key, uint64_t off,
		      uint64_t len, uint64_t then_off)
{
	struct rp_op *op = op_commit_one(t, key, off, len);

	op->effect = RP_EFFECT_THEN;
	op->then = (struct rp_wire_then){
		.key = bed_key(key),
		.addr = BED_ADDR + then_off,
		.value = 42,
	};
	return op;
}

struct rp_op *op_atomic(struct report *t, uint32_t key, uint64_t off)
{
	struct rp_op *op = op_new(t, RP_OP_ATOMIC);

	t->range = bed_range(key, off, 8);
	op->level = RP_LEVEL_VISIBLE;
	op->atomic.op = RP_ATOMIC_SUM;
	op->atomic.datatype = RP_ATOMIC_UINT64;
	op->atomic.operand = t->buf;
	return op;
}

struct rp_op *op_query(struct report *t, uint32_t key)
{
	struct rp_op *op = op_new(t, RP_OP_QUERY);

	t->range = bed_range(key, 0, 0);
	op->info = &t->info;
	return op;
}

/* Reply to the QUERYs that the session has sent for itself. */
static bool reply_to_queries(void)
{
	struct bed_seen *m, *next;
	bool any = false;

	for (m = STAILQ_FIRST(&bed.seen); m; m = next) {
		next = STAILQ_NEXT(m, link);
		if (m->kind != RP_CHANNEL_SEND || m->hdr.type != RP_MSG_QUERY)
			continue;
		STAILQ_REMOVE(&bed.seen, m, bed_seen, link);
		bed_info(m->hdr.token, RP_ST_OK, m->query.key);
		free(m);
		any = true;
	}
	return any;
}

int bed_post_result(struct rp_op *op)
{
	struct report *t = (struct report *)op;
	int ret = rp_session_post(bed.s, op);

	t->outstanding = !ret;
	cr_assert_eq(t->times, 0, "done() from inside post");
	return ret;
}

void bed_post(struct rp_op *op)
{
	int ret = bed_post_result(op);

	if (ret == -EAGAIN && bed.replies && reply_to_queries())
		ret = bed_post_result(op);
	cr_assert_eq(ret, 0, "post says %d", ret);
}

void expect_pending(const struct report *t)
{
	cr_assert_eq(t->times, 0);
}

void expect_status_at(int line, const struct report *t, enum rp_status st)
{
	if (!t->times)
		bed_progress();
	cr_assert_eq(t->times, 1, "line %d: ended %u times", line, t->times);
	cr_assert_eq(t->out.status, st, "line %d: %s (%u)", line,
		     rp_status_name(t->out.status), t->out.detail);
}
