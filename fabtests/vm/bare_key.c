// SPDX-License-Identifier: BSD-2-Clause
/*
 * A client whose secret fi_rpmemd has removed goes on by itself, without the
 * provider: neither commits with its key nor RDMA with the key's rkey, also on
 * the queue pair of a client that has another secret, get to the pool.
 *
 *   bare_key HOST:PORT:POOL SECRET OTHER [DEVICE]
 *
 * Prints TAP. Behind the line "has the key" it waits for a line on standard
 * input: by then the daemon has removed SECRET. DEVICE is for the base verbs.
 */
#include "config.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "core/wire.h"
#include "rc/rc.h"
#include "util/setup_client.h"

#define LIMIT 60000000000ull

/* One connection to the daemon. */
struct conn {
	struct rp_channel *c;
	bool up, lost;
	struct rp_wire_hello_ack ack;
	uint64_t replied; /* token of the last REPLY */
	struct rp_wire_reply reply;
};

struct op {
	struct rp_channel_op op;
	struct iovec iov;
	void *desc[1];
	bool done;
	int err;
};

static struct rp_rc *rc;
static struct rp_rc_mr mr;
static char bytes[64] = "granted";
static int number, failures;

static void say(bool good, const char *what)
{
	failures += !good;
	printf("%s %d - %s\n", good ? "ok" : "not ok", ++number, what);
	fflush(stdout);
}

static uint64_t read_clock(void *arg)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int fill_random(void *arg, void *buf, size_t len)
{
	return getrandom(buf, len, 0) == (ssize_t)len ? 0 : -EIO;
}

static void ignore_kick(void *arg)
{
}

static void take_ack(struct conn *n, const void *data, size_t len)
{
	if (rp_wire_get_hello_ack(data, len, &n->ack))
		memset(&n->ack, 0, sizeof(n->ack));
}

static void on_connected(void *owner, const void *data, size_t len)
{
	struct conn *n = owner;

	n->up = true;
	take_ack(n, data, len);
}

static void on_lost(void *owner, int err, const void *data, size_t len)
{
	struct conn *n = owner;

	n->lost = true;
	if (!n->up)
		take_ack(n, data, len);
}

static void on_message(void *owner, const void *msg, size_t len)
{
	struct conn *n = owner;
	struct rp_wire_hdr h;

	if (!rp_wire_get_hdr(msg, len, &h) && h.type == RP_MSG_REPLY &&
	    !rp_wire_get_reply(msg, &h, &n->reply))
		n->replied = h.token;
}

static const struct rp_channel_events events = {
	.connected = on_connected,
	.lost = on_lost,
	.received = on_message,
};

/* Poll until *flag, or until n is lost. Returns *flag. */
static bool await(const struct conn *n, const bool *flag)
{
	const uint64_t until = read_clock(NULL) + LIMIT;

	while (!*flag && !n->lost && read_clock(NULL) < until)
		rp_rc_poll(rc, 64);
	return *flag;
}

/* Connect to the domain of an export, with a HELLO that shows its key. */
static bool connect_by(struct conn *n, const struct rp_setup_export *x)
{
	struct rp_connector *k = rp_rc_connector(rc);
	struct sockaddr_in to;
	struct rp_wire_hello m = {.key = x->key, .timeout_ms = 30000};
	uint8_t hello[RP_WIRE_CM_DATA];
	int len;

	memset(n, 0, sizeof(*n));
	memcpy(&to, x->fi_name, sizeof(to));
	to.sin_port = htons(rp_key_port(x->key));
	fill_random(NULL, &m.initiator, sizeof(m.initiator));
	len = rp_wire_put_hello(hello, sizeof(hello), &m);
	return len > 0 &&
	       !k->ops->connect(k, &to, sizeof(to), hello, (size_t)len, &events,
				n, &n->c) &&
	       await(n, &n->up);
}

static void close_conn(struct conn *n)
{
	if (n->c)
		rp_channel_close(n->c);
	n->c = NULL;
}

static void on_done(struct rp_channel_op *op, int err)
{
	struct op *o = (struct op *)op;

	o->done = true;
	o->err = err;
}

/*
 * Write `bytes` to the first bytes of a grant, or read them. Closes a
 * connection that is lost: that completes the operation.
 */
static bool transfer(struct conn *n, enum rp_channel_kind kind,
		     const struct rp_wire_grant *g)
{
	struct op o = {
		.op = {.done = on_done,
		       .kind = kind,
		       .delivered = true,
		       .iov_count = 1,
		       .iov = &o.iov,
		       .desc = o.desc,
		       .rkey = g->rkey,
		       .remote_addr = g->remote_addr,
		       .length = sizeof(bytes)},
		.iov = {bytes, sizeof(bytes)},
		.desc = {mr.desc},
	};
	struct rp_channel_op *op = &o.op;

	while (n->c && !rp_channel_post(n->c, &op, 1))
		rp_rc_poll(rc, 64);
	if (!await(n, &o.done))
		close_conn(n);
	return o.done && !o.err;
}

/* Commit the first bytes of an export, by its key. Returns the status. */
static uint32_t commit(struct conn *n, const struct rp_setup_export *x)
{
	const struct rp_wire_range range = {x->key, x->addr, sizeof(bytes)};
	const struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_NONE,
		.ranges = &range,
	};
	static uint64_t token;
	uint8_t msg[256];
	const int len = rp_wire_put_request(msg, sizeof(msg), ++token, &m);
	struct op o = {
		.op = {.done = on_done,
		       .kind = RP_CHANNEL_SEND,
		       .iov_count = 1,
		       .iov = &o.iov},
		.iov = {msg, (size_t)len},
	};
	const uint64_t until = read_clock(NULL) + LIMIT;
	struct rp_channel_op *op = &o.op;

	while (!rp_channel_post(n->c, &op, 1))
		rp_rc_poll(rc, 64);
	while (n->replied != token && !n->lost && read_clock(NULL) < until)
		rp_rc_poll(rc, 64);
	if (!o.done)
		close_conn(n);
	return n->replied == token ? n->reply.status : RP_ST_LOST;
}

/* Is the pool untouched, and served to the other secret's key? */
static bool is_served(struct conn *n, const struct rp_setup_export *other)
{
	close_conn(n);
	memset(bytes, 0, sizeof(bytes));
	return connect_by(n, other) &&
	       transfer(n, RP_CHANNEL_READ, &n->ack.grant) &&
	       !strcmp(bytes, "granted");
}

static void test(const struct rp_setup_export *x,
		 const struct rp_setup_export *other)
{
	struct conn first, n;
	struct rp_wire_grant g;

	say(connect_by(&first, x) &&
		    transfer(&first, RP_CHANNEL_WRITE, &first.ack.grant) &&
		    transfer(&first, RP_CHANNEL_READ, &first.ack.grant) &&
		    !commit(&first, x),
	    "a write, a read and a commit with the key");
	g = first.ack.grant;
	puts("has the key");
	fflush(stdout);
	getchar();
	strcpy(bytes, "revoked");
	say(!transfer(&first, RP_CHANNEL_WRITE, &g),
	    "no write on the connection of before");
	close_conn(&first);
	say(!connect_by(&n, x) && n.ack.status == RP_ST_STALE_KEY,
	    "the key makes no connection");
	say(is_served(&n, other) && commit(&n, x) == RP_ST_STALE_KEY,
	    "another client's connection: no commit with the key");
	is_served(&n, other);
	strcpy(bytes, "revoked");
	say(n.up && !transfer(&n, RP_CHANNEL_WRITE, &g),
	    "another client's connection: no write with the rkey");
	is_served(&n, other);
	memset(bytes, 0, sizeof(bytes));
	say(n.up && !transfer(&n, RP_CHANNEL_READ, &g) && !*bytes,
	    "another client's connection: no read with the rkey");
	say(is_served(&n, other),
	    "the other key is served, and no byte changed");
	close_conn(&n);
}

static bool fetch(const char *where, const char *secret_file,
		  struct rp_setup_export *x)
{
	struct rp_setup_target t = {.port = 0};
	struct rp_secret secret;
	char err[RP_ERR_LEN];
	int used;

	if (rp_secret_load(secret_file, &secret, err))
		goto failed;
	t.secret = &secret;
	used = rp_setup_parse_target(where, &t, err);
	if (used >= 0 && !rp_setup_fetch_export(&t, where + used + 1, x, err))
		return true;
failed:
	fprintf(stderr, "%s\n", err);
	return false;
}

int main(int argc, char **argv)
{
	static struct rp_setup_export x, other;
	struct rp_rc_attr attr = {
		.now = read_clock,
		.random = fill_random,
		.kick = ignore_kick,
	};
	char why[256];

	if (argc < 4 || !fetch(argv[1], argv[2], &x) ||
	    !fetch(argv[1], argv[3], &other))
		return 2;
	attr.backend = argc > 4 ? RP_RC_VERBS : RP_RC_TCP;
	attr.device = argv[4];
	if (rp_rc_open(&attr, &rc, why, sizeof(why)) ||
	    rp_rc_reg(rc, bytes, sizeof(bytes), RP_RC_LOCAL, &mr)) {
		fprintf(stderr, "%s\n", why);
		return 2;
	}
	test(&x, &other);
	rp_rc_dereg(rc, &mr);
	rp_rc_close(rc);
	printf("1..%d\n", number);
	return failures != 0;
}
