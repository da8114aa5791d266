// SPDX-License-Identifier: BSD-2-Clause
/*
 * An initiator's session with a hostile target and network. Each accepted
 * operation ends once, after its buffers are released, and never inside of
 * rp_session_post().
 */
#include <errno.h>
#include <netinet/in.h>

#include "core/atomic.h"
#include "core/log.h"
#include "core/session.h"
#include "core/wire.h"
#include "fuzz.h"

#define MS     1000000ull
#define ADDR   0x10000ull
#define REMOTE 0x200000ull
#define LEN    (1ull << 20)
#define TOKENS 16
#define RANGES 400

/*
 * One operation and its memory. It is freed when the operation ends, so that
 * ASan reports any later use.
 */
struct rec {
	struct rp_op op;
	struct rp_wire_range r[RANGES];
	struct iovec result;
	struct rp_wire_info info;
	uint8_t bytes[64], old[64], operand[64];
	uint8_t data[];
};

static struct {
	struct rp_connector k;
	struct rp_session *s;
	struct rp_channel chan;
	struct rp_wire_hello hello;
	TAILQ_HEAD(, rp_channel_op) posted;
	uint64_t now, tokens[TOKENS];
	unsigned int accepted, ended, sent;
	enum rp_method method;
	enum rp_class class;
	uint32_t flags;
	bool open, connected, lost, full, posting;
} t;

/* --- the channel --- */

static size_t gather_bytes(const struct rp_channel_op *op, uint8_t *to)
{
	size_t len = 0;

	for (size_t i = 0; i < op->iov_count; i++) {
		if (op->iov[i].iov_len)
			memcpy(to + len, op->iov[i].iov_base,
			       op->iov[i].iov_len);
		len += op->iov[i].iov_len;
	}
	return len;
}

static void scatter_bytes(const struct rp_channel_op *op)
{
	for (size_t i = 0; i < op->iov_count; i++)
		memset(op->iov[i].iov_base, 0x77, op->iov[i].iov_len);
}

/* The session must send only messages that a correct target accepts. */
static void check_posted(const struct rp_channel_op *op)
{
	static struct rp_wire_range ranges[RP_WIRE_MAX_PACKED];
	static uint8_t bytes[1 << 16];
	struct rp_wire_request m = {.decoded = ranges};
	struct rp_wire_query q;
	struct rp_wire_hdr hdr;
	size_t len = gather_bytes(op, bytes);
	uint8_t *msg;

	MUST(len <= RP_WIRE_MAX_MSG);
	msg = fuzz_exact(bytes, len);
	MUST(!rp_wire_get_hdr(msg, len, &hdr));
	if (hdr.type == RP_MSG_QUERY)
		MUST(!rp_wire_get_query(msg, &hdr, &q));
	else
		MUST(!rp_wire_get_request(msg, &hdr, &m));
	t.tokens[t.sent++ % TOKENS] = hdr.token;
	free(msg);
}

static int post_ops(struct rp_channel *c, struct rp_channel_op *ops[], int n)
{
	MUST(t.open);
	if (t.full)
		return 0;
	for (int i = 0; i < n; i++) {
		struct rp_channel_op *op = ops[i];

		if (op->kind == RP_CHANNEL_SEND)
			check_posted(op);
		else
			MUST(op->length && op->length <= LEN);
		if (op->kind == RP_CHANNEL_FLUSH)
			MUST(c->flags & RP_CHANNEL_FLUSHES);
		if (op->inject)
			continue;
		TAILQ_INSERT_TAIL(&t.posted, op, link);
	}
	return n;
}

static void finish_ops(int err)
{
	static uint8_t bytes[1 << 20];
	struct rp_channel_op *op = TAILQ_FIRST(&t.posted);

	TAILQ_REMOVE(&t.posted, op, link);
	if (op->kind == RP_CHANNEL_READ)
		scatter_bytes(op);
	else if (op->kind != RP_CHANNEL_FLUSH)
		gather_bytes(op, bytes);
	op->done(op, err);
}

static void close_channel(struct rp_channel *c)
{
	MUST(t.open);
	while (!TAILQ_EMPTY(&t.posted))
		finish_ops(ECANCELED);
	t.open = t.connected = t.lost = false;
}

static const struct rp_channel_ops channel_ops = {post_ops, close_channel};

static int connect_to(struct rp_connector *k, const void *addr, size_t len,
		      const void *data, size_t data_len,
		      const struct rp_channel_events *events, void *owner,
		      struct rp_channel **out)
{
	MUST(!t.open);
	MUST(!rp_wire_get_hello(data, data_len, &t.hello));
	t.open = true;
	t.chan = (struct rp_channel){
		.ops = &channel_ops,
		.events = events,
		.owner = owner,
		.flags = t.flags,
		.inject = 128,
	};
	*out = &t.chan;
	return 0;
}

static uint64_t connector_now(struct rp_connector *k)
{
	return t.now;
}

static int random_bytes(struct rp_connector *k, void *buf, size_t len)
{
	memset(buf, 0x5a, len);
	return 0;
}

static void connector_kick(struct rp_connector *k)
{
}

static const struct rp_connector_ops connector_ops = {
	connect_to, connector_now, random_bytes, connector_kick};

/* --- messages of the target --- */

static struct rp_wire_grant make_grant(struct fuzz_in *f, uint8_t how)
{
	struct rp_wire_grant g = {
		.rkey = 77,
		.remote_addr = REMOTE,
		.addr = ADDR,
		.length = LEN,
		.class = (uint8_t)t.class,
		.method = (uint8_t)t.method,
		.writable = !(how & 1),
	};

	/*
	 * A grant with a weaker class than the key's, or with another method.
	 */
	if (how & 2)
		g.class = fuzz_u8(f) % 3;
	if (how & 4)
		g.method = fuzz_u8(f) % RP_METHOD_MAX;
	if (how & 8)
		g.length = 1 + fuzz_u16(f);
	return g;
}

static void accept_hello(struct fuzz_in *f, uint8_t how)
{
	struct rp_wire_hello_ack m = {
		.status = how & 0x40 ? fuzz_u8(f) % 64 : RP_ST_OK,
		.incarnation = 1,
		.credits = 1 + (how >> 4 & 3),
		.features = RP_FEATURE_NATIVE,
		.grant = make_grant(f, how),
	};
	uint8_t buf[RP_WIRE_CM_ACK];
	uint8_t *data;
	int len;

	if (m.status)
		m = (struct rp_wire_hello_ack){.status = m.status};
	len = rp_wire_put_hello_ack(buf, sizeof(buf), &m);
	if (len < 0)
		return;
	if (how & 0x80)
		buf[fuzz_u8(f) % len] ^= fuzz_u8(f);
	data = fuzz_exact(buf, (size_t)len);
	if (m.status && fuzz_u8(f) & 1) {
		t.lost = true;
		t.chan.events->lost(t.chan.owner, ECONNREFUSED, data,
				    (size_t)len);
	} else {
		t.connected = true;
		t.chan.events->connected(t.chan.owner, data, (size_t)len);
	}
	free(data);
}

static void receive_message(const void *msg, size_t len)
{
	uint8_t *copy = fuzz_exact(msg, len);

	t.chan.events->received(t.chan.owner, copy, len);
	free(copy);
}

static void send_reply(struct fuzz_in *f, uint64_t token, uint8_t how)
{
	uint8_t buf[RP_WIRE_MAX_MSG], values[64] = {0};
	struct rp_wire_reply m = {
		.level = RP_LEVEL_DURABLE,
		.class = (uint8_t)t.class,
		.method = RP_METHOD_AGENT_CLWB,
		.credits = 4,
	};
	int len;

	if (how & 0x10)
		m = (struct rp_wire_reply){
			.status = fuzz_u8(f) % 64,
			.detail = 1,
			.range = fuzz_u16(f) % (RP_WIRE_MAX_PACKED + 1),
			.credits = fuzz_u16(f) % 16,
		};
	else if (how & 0x20)
		m.class = fuzz_u8(f) % 3;
	if (how & 0x40)
		m.level = fuzz_u8(f) % 4;
	if (how & 0x80) {
		m.result = values;
		m.result_len = fuzz_u8(f) % sizeof(values);
	}
	len = rp_wire_put_reply(buf, sizeof(buf), token, &m);
	if (len > 0)
		receive_message(buf, (size_t)len);
}

static void send_info(struct fuzz_in *f, uint64_t token, uint8_t how)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_info m = {
		.class = (uint8_t)t.class,
		.method = (uint8_t)t.method,
		.grant = make_grant(f, how >> 4),
		.why = "ext4",
	};
	int len;

	if (how >> 4 == 15)
		m = (struct rp_wire_info){.status = 1 + fuzz_u8(f) % 63};
	len = rp_wire_put_info(buf, sizeof(buf), token, &m);
	if (len > 0)
		receive_message(buf, (size_t)len);
}

static void send_raw(struct fuzz_in *f)
{
	size_t len = fuzz_u16(f) % (RP_WIRE_MAX_MSG + 2);
	uint8_t *msg = malloc(len + 1);

	MUST(msg);
	fuzz_bytes(f, msg, len);
	receive_message(msg, len);
	free(msg);
}

/* --- calls of the program --- */

static void op_done(struct rp_op *op, const struct rp_outcome *out)
{
	struct rec *r = (struct rec *)op;

	MUST(!t.posting);
	t.ended++;
	if (out->status == RP_ST_OK && op->level == RP_LEVEL_DURABLE &&
	    op->kind != RP_OP_QUERY)
		MUST(out->class >= op->required);
	free(r);
}

static uint64_t key_of(uint8_t n)
{
	const struct rp_key k = {
		.class = t.class,
		.method = t.method,
		.port = 7,
		.random = n & 3,
	};

	return rp_key_make(&k);
}

static void submit_op(struct rec *r)
{
	int ret;

	t.posting = true;
	ret = rp_session_post(t.s, &r->op);
	t.posting = false;
	if (ret)
		free(r);
	else
		t.accepted++;
}

static struct rec *rec_new(struct fuzz_in *f, enum rp_op_kind kind, size_t n,
			   size_t len)
{
	struct rec *r = calloc(1, sizeof(*r) + n * len);
	uint8_t how = fuzz_u8(f);

	MUST(r);
	r->op.done = op_done;
	r->op.kind = kind;
	r->op.level = how & 3;
	if (r->op.level > RP_LEVEL_DURABLE)
		r->op.level = RP_LEVEL_DURABLE;
	r->op.required = (how >> 2 & 3) % 3;
	r->op.inject = how & 0x10 && kind == RP_OP_WRITE;
	r->op.ranges = r->r;
	r->op.nranges = n;
	for (size_t i = 0; i < n; i++)
		r->r[i] = (struct rp_wire_range){
			key_of(how & 0x20 ? (uint8_t)i : how >> 6),
			ADDR + 64ull * (fuzz_u8(f) & 0x3f), len};
	return r;
}

static void post_rma(struct fuzz_in *f, enum rp_op_kind kind)
{
	size_t n = 1 + (fuzz_u8(f) & 1), len = 1 + fuzz_u16(f) % 5000;
	struct rec *r = rec_new(f, kind, n, len);

	r->op.iov[0] = (struct iovec){r->data, n * len};
	r->op.iov_count = 1;
	submit_op(r);
}

static void post_commit(struct fuzz_in *f)
{
	uint8_t how = fuzz_u8(f);
	struct rec *r =
		rec_new(f, RP_OP_COMMIT, how & 0x80 ? RANGES : how & 7, 64);

	r->op.effect = (how >> 3 & 3) % 3;
	r->op.then = (struct rp_wire_then){key_of(how >> 5), ADDR + 8, 42};
	submit_op(r);
}

static void post_atomic(struct fuzz_in *f)
{
	struct rec *r = rec_new(f, RP_OP_ATOMIC, 1, 8);

	r->op.atomic = (struct rp_wire_atomic){
		.op = fuzz_u8(f) % 20,
		.datatype = fuzz_u8(f) % 12,
		.fetch = true,
	};
	if (rp_atomic_has_operand(r->op.atomic.op))
		r->op.atomic.operand = r->operand;
	if (rp_atomic_has_compare(r->op.atomic.op))
		r->op.atomic.compare = r->operand;
	r->result = (struct iovec){r->old, 8};
	r->op.result = &r->result;
	r->op.result_count = 1;
	submit_op(r);
}

static void post_query(struct fuzz_in *f)
{
	struct rec *r = rec_new(f, RP_OP_QUERY, 1, 64);

	r->op.level = 0;
	r->op.info = &r->info;
	submit_op(r);
}

/* --- steps of a run --- */

static void lose_connection(void)
{
	t.lost = true;
	t.chan.events->lost(t.chan.owner, ECONNRESET, NULL, 0);
}

/* One step of the target during a connection. */
static void target_step(struct fuzz_in *f, uint8_t op)
{
	uint64_t token = t.tokens[fuzz_u8(f) % TOKENS];
	uint8_t buf[64];
	int len;

	switch (op & 15) {
	case 0:
		send_reply(f, token, op);
		break;
	case 1:
		send_info(f, token, op);
		break;
	case 2:
		len = rp_wire_put_signal(buf, sizeof(buf),
					 op & 0x10 ? RP_MSG_DOORBELL
						   : RP_MSG_PROGRESS);
		receive_message(buf, (size_t)len);
		break;
	case 3:
		send_raw(f);
		break;
	case 4:
		lose_connection();
		break;
	default:
		if (!TAILQ_EMPTY(&t.posted))
			finish_ops(op & 0x80 ? EIO : 0);
		break;
	}
}

static void program_step(struct fuzz_in *f, uint8_t op)
{
	switch (op & 15) {
	case 6:
		post_rma(f, RP_OP_WRITE);
		break;
	case 7:
		post_rma(f, RP_OP_READ);
		break;
	case 8:
		post_commit(f);
		break;
	case 9:
		post_atomic(f);
		break;
	case 10:
		post_query(f);
		break;
	case 11:
		t.now += (op >> 4) * 100 * MS;
		break;
	case 12:
		t.full = op & 0x10;
		break;
	case 13:
		if (op & 0x80)
			rp_session_disconnect(t.s, RP_ST_CANCELED, 0);
		else
			rp_session_has_unplaced(t.s);
		break;
	default:
		rp_session_progress(t.s);
		break;
	}
}

static void one_step(struct fuzz_in *f)
{
	uint8_t op = fuzz_u8(f);

	if ((op & 15) > 5)
		program_step(f, op);
	else if (t.connected && !t.lost)
		target_step(f, op);
	else if (t.open && !t.lost && (op & 15) == 4)
		lose_connection();
	else if (t.open && !t.lost)
		accept_hello(f, fuzz_u8(f));
	else
		rp_session_progress(t.s);
}

static void drop_log_line(enum rp_log_level level, const char *text)
{
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	const struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = 7};
	const uint8_t how = fuzz_u8(&in), more = fuzz_u8(&in);
	const struct rp_session_attr attr = {
		.timeout_ns = 5000 * MS,
		.max_commits = 1 + (more >> 4),
		.inline_max = more & 1 ? 0 : RP_WIRE_MAX_STORE,
		.idle_ns = more & 2 ? 2000 * MS : 0,
		.slow_rate = more & 4 ? 1 << 20 : 0,
		.native = more & 8,
	};

	rp_log_set(drop_log_line);
	memset(&t, 0, sizeof(t));
	t.k.ops = &connector_ops;
	t.now = 1000 * MS;
	TAILQ_INIT(&t.posted);
	t.method = 1 + (how & 7) % (RP_METHOD_MAX - 1);
	t.class = (how >> 3 & 3) % 3;
	t.flags = (how & 0x20 ? RP_CHANNEL_FENCES : 0) |
		  (how & 0x40 ? RP_CHANNEL_FLUSHES : 0);
	MUST(!rp_session_new(&t.k, &attr, &to, sizeof(to), &t.s));
	for (int i = 0; i < 500 && in.left; i++)
		one_step(&in);
	rp_session_delete(t.s);
	MUST(!t.open && TAILQ_EMPTY(&t.posted) && t.accepted == t.ended);
	return 0;
}
