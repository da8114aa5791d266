// SPDX-License-Identifier: BSD-2-Clause
/* Private connections over TCP, both ends in this process. */
#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#include "fabtests/unit/rc_rig.h"

#define LARGE (1u << 20)
#define MANY  300

static void register_memory(struct node *n, void *buf, size_t len,
			    struct rp_rc_mr *mr)
{
	int ret = rp_rc_reg(n->rc, buf, len,
			    RP_RC_REMOTE_READ | RP_RC_REMOTE_WRITE, mr);

	cr_assert_eq(ret, 0, "%d", ret);
}

/* --- connecting --- */

Test(rc, both_ends_get_the_data_of_the_other)
{
	char text[64];
	struct pair p;

	pair_open(&p);
	cr_assert_eq(p.t.last_data_len, 5);
	cr_assert_eq(memcmp(p.t.last_data, "hello", 5), 0);
	cr_assert_eq(p.ie.data_len, 7);
	cr_assert_eq(memcmp(p.ie.data, "welcome", 7), 0);
	cr_assert_eq(p.te.connected, 0);
	cr_assert_eq(p.ie.c->flags, RP_CHANNEL_FENCES);
	cr_assert_geq(p.ie.c->inject, 64);
	p.ie.c->ops->peer(p.ie.c, text, sizeof(text));
	cr_assert_eq(strncmp(text, "127.0.0.1:", 10), 0, "%s", text);
	p.te.c->ops->peer(p.te.c, text, sizeof(text));
	cr_assert_eq(strncmp(text, "127.0.0.1:", 10), 0, "%s", text);
	pair_close(&p);
}

Test(rc, a_reject_brings_its_data)
{
	struct node t = {.refuse = true}, i = {0};
	struct end e = {0};

	node_open(&t);
	node_open(&i);
	node_listen(&t);
	cr_assert_eq(node_connect(&i, &t, &e), 0);
	PUMP(&i, &t, e.lost);
	cr_assert_eq(e.err, ECONNREFUSED);
	cr_assert_eq(e.data_len, 7);
	cr_assert_eq(memcmp(e.data, "go away", 7), 0);
	cr_assert_eq(e.connected, 0);
	rp_channel_close(e.c);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
}

Test(rc, a_closed_port_is_a_loss)
{
	struct node t = {0}, i = {0};
	struct end e = {0};

	node_open(&t);
	node_open(&i);
	node_listen(&t);
	rp_rc_close(t.rc);
	cr_assert_eq(node_connect(&i, &t, &e), 0);
	PUMP(&i, &i, e.lost);
	cr_assert_eq(e.err, ECONNREFUSED);
	cr_assert_eq(e.data_len, 0);
	rp_channel_close(e.c);
	rp_rc_close(i.rc);
}

Test(rc, over_ipv6)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6,
				  .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct node t = {0}, i = {0};
	struct end te = {0}, ie = {0};
	struct rp_connector *k;
	uint16_t port;
	int fd = socket(AF_INET6, SOCK_STREAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)))
		cr_skip_test("no ::1 here");
	close(fd);
	node_open(&t);
	node_open(&i);
	t.accept = &te;
	cr_assert_eq(
		rp_rc_listen(t.rc, (struct sockaddr *)&at, sizeof(at), &port),
		0);
	at.sin6_port = htons(port);
	k = rp_rc_connector(i.rc);
	cr_assert_eq(k->ops->connect(k, &at, sizeof(at), "hello", 5,
				     &end_events, &ie, &ie.c),
		     0);
	PUMP(&i, &t, ie.connected);
	rp_channel_close(ie.c);
	PUMP(&i, &t, te.lost);
	rp_channel_close(te.c);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
}

Test(rc, unknown_backend_is_refused)
{
	struct rp_rc_attr attr;
	struct node n = {0};
	char why[256];

	attr = rig_attr(&n);
	attr.backend = (enum rp_rc_backend)99;
	cr_assert_eq(rp_rc_open(&attr, &n.rc, why, sizeof(why)), -FI_ENODATA);
	cr_assert(*why);
}

Test(rc, nonsense_addresses_are_refused)
{
	struct sockaddr sa = {.sa_family = AF_UNIX};
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct rp_connector *k;
	struct node n = {0};
	struct end e = {0};
	uint8_t data[57];
	uint16_t port;

	node_open(&n);
	k = rp_rc_connector(n.rc);
	cr_assert_eq(k->ops->connect(k, &sa, sizeof(sa), "", 0, &end_events, &e,
				     &e.c),
		     -EINVAL);
	cr_assert_eq(k->ops->connect(k, &in, 7, "", 0, &end_events, &e, &e.c),
		     -EINVAL);
	cr_assert_eq(k->ops->connect(k, &in, sizeof(in), data, sizeof(data),
				     &end_events, &e, &e.c),
		     -EINVAL);
	cr_assert_eq(rp_rc_listen(n.rc, &sa, sizeof(sa), &port), -EINVAL);
	rp_rc_close(n.rc);
}

Test(rc, a_busy_port_range_is_walked_and_then_refused)
{
	struct node n[4] = {{0}};
	struct rp_rc_attr attr;
	uint16_t port, seen[2];
	int ret, first = 0;

	/* Find three free ports in a row. */
	for (int base = 20000 + getpid() % 20000; !first; base += 3) {
		struct sockaddr_in sa = {.sin_family = AF_INET};
		int free_ports = 0;

		sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		for (int i = 0; i < 3; i++) {
			int fd = socket(AF_INET, SOCK_STREAM, 0);

			sa.sin_port = htons((uint16_t)(base + i));
			free_ports +=
				!bind(fd, (struct sockaddr *)&sa, sizeof(sa));
			close(fd);
		}
		if (free_ports == 3)
			first = base;
	}
	for (int i = 0; i < 4; i++) {
		attr = rig_attr(&n[i]);
		attr.port_first = (uint16_t)first;
		attr.port_last = (uint16_t)(first + 2);
		node_open_with(&n[i], &attr);
		n[i].at.sin_family = AF_INET;
		n[i].at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		ret = rp_rc_listen(n[i].rc, (struct sockaddr *)&n[i].at,
				   sizeof(n[i].at), &port);
		if (i == 3) {
			cr_assert_eq(ret, -EADDRINUSE, "%d", ret);
			break;
		}
		cr_assert_eq(ret, 0, "%d", ret);
		cr_assert(port >= first && port <= first + 2);
		for (int j = 0; j < i && j < 2; j++)
			cr_assert_neq(port, seen[j]);
		if (i < 2)
			seen[i] = port;
	}
	for (int i = 0; i < 4; i++)
		rp_rc_close(n[i].rc);
}

/* --- requests that are neither accepted nor refused yet --- */

Test(rc, half_open_requests_are_bounded_by_number)
{
	static struct end e[RP_RC_MAX_HALF_OPEN + 3];
	struct node t = {.hold = true}, i = {0};
	int n = RP_RC_MAX_HALF_OPEN + 3, lost = 0;

	node_open(&t);
	node_open(&i);
	node_listen(&t);
	for (int j = 0; j < n; j++) {
		cr_assert_eq(node_connect(&i, &t, &e[j]), 0);
		PUMP(&i, &t, t.requests == j + 1);
	}
	cr_assert_eq(t.withdrawn, 3);
	PUMP(&i, &t, e[0].lost && e[1].lost && e[2].lost);
	for (int j = 0; j < n; j++)
		lost += e[j].lost;
	cr_assert_eq(lost, 3);
	for (int j = 0; j < n; j++)
		rp_channel_close(e[j].c);
	rp_rc_close(t.rc); /* releases the request, too */
	cr_assert_eq(t.withdrawn, n);
	rp_rc_close(i.rc);
}

Test(rc, a_half_open_request_gets_old)
{
	struct node t = {.hold = true}, i = {0};
	struct end e = {0};

	node_open(&t);
	node_open(&i);
	node_listen(&t);
	cr_assert_eq(rp_rc_deadline(t.rc), UINT64_MAX);
	cr_assert_eq(node_connect(&i, &t, &e), 0);
	PUMP(&i, &t, t.requests);
	cr_assert_leq(rp_rc_deadline(t.rc), rig_now(&t) + RP_RC_HALF_OPEN_NS);
	cr_assert_eq(t.withdrawn, 0);
	t.clock_offset = RP_RC_HALF_OPEN_NS;
	PUMP(&i, &t, e.lost);
	cr_assert_eq(t.withdrawn, 1);
	cr_assert_eq(e.err, ECONNREFUSED);
	rp_channel_close(e.c);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
}

Test(rc, request_may_be_accepted_later)
{
	struct node t = {.hold = true}, i = {0};
	struct end ie = {0}, te = {0};

	node_open(&t);
	node_open(&i);
	node_listen(&t);
	cr_assert_eq(node_connect(&i, &t, &ie), 0);
	PUMP(&i, &t, t.requests);
	cr_assert_eq(rp_rc_accept(t.rc, t.request[0], "late", 4, &end_events,
				  &te, &te.c),
		     0);
	PUMP(&i, &t, ie.connected);
	cr_assert_eq(memcmp(ie.data, "late", 4), 0);
	rp_channel_close(ie.c);
	rp_channel_close(te.c);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
}

/* The accepting side may post at any time: it gets no connected(). */
Test(rc, message_posted_at_accept_follows_it)
{
	struct node t = {.hold = true}, i = {0};
	struct end ie = {0}, te = {0};
	struct rp_channel_op *op;
	struct op s;

	node_open(&t);
	node_open(&i);
	node_listen(&t);
	op_init(&s, RP_CHANNEL_SEND, &s, 8);
	op = &s.op;
	cr_assert_eq(node_connect(&i, &t, &ie), 0);
	/* The connecting side may post only after connected(). */
	cr_assert_eq(rp_channel_post(ie.c, &op, 1), 0);
	PUMP(&i, &t, t.requests);
	cr_assert_eq(rp_rc_accept(t.rc, t.request[0], "late", 4, &end_events,
				  &te, &te.c),
		     0);
	while (!rp_channel_post(te.c, &op, 1))
		rp_rc_poll(t.rc, 64);
	PUMP(&i, &t, ie.messages == 1 && s.done);
	cr_assert_eq(ie.connected, 1);
	cr_assert_eq(s.err, 0);
	rp_channel_close(ie.c);
	rp_channel_close(te.c);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
}

/* --- operations --- */

struct order {
	const uint8_t *sink;
	int wrong;
};

static void poll_end(struct end *e)
{
	struct order *o = e->arg;
	uint32_t want, is;

	memcpy(&want, e->msg, sizeof(want));
	memcpy(&is, o->sink, sizeof(is));
	o->wrong += is != want;
	memcpy(&is, o->sink + LARGE - sizeof(is), sizeof(is));
	o->wrong += is != want;
}

Test(rc, a_message_arrives_behind_the_writes_before_it)
{
	uint8_t *source = malloc(LARGE), *sink = calloc(1, LARGE);
	struct order order = {.sink = sink};
	struct op w, s[2];
	struct rp_rc_mr mr;
	struct pair p;

	pair_open(&p);
	register_memory(&p.t, sink, LARGE, &mr);
	p.te.arg = &order;
	p.te.on_message = poll_end;
	for (uint32_t n = 1; n <= 50; n++) {
		for (size_t i = 0; i < LARGE; i += sizeof(n))
			memcpy(source + i, &n, sizeof(n));
		op_init(&w, RP_CHANNEL_WRITE, source, LARGE);
		op_to(&w, &mr, 0);
		op_init(&s[0], RP_CHANNEL_SEND, &n, sizeof(n));
		op_post(p.ie.c, &w);
		op_post(p.ie.c, &s[0]);
		PUMP(&p.i, &p.t,
		     p.te.messages == (int)n && w.done && s[0].done);
		cr_assert_eq(w.err, 0);
		cr_assert_eq(s[0].err, 0);
	}
	cr_assert_eq(order.wrong, 0);
	rp_rc_dereg(p.t.rc, &mr);
	pair_close(&p);
	free(source);
	free(sink);
}

Test(rc, fences_and_deliveries_prove_placement)
{
	uint8_t *source = malloc(LARGE), *sink = calloc(1, LARGE);
	struct op w, f;
	struct rp_rc_mr mr;
	struct pair p;

	pair_open(&p);
	register_memory(&p.t, sink, LARGE, &mr);
	for (int n = 1; n <= 20; n++) {
		memset(source, n, LARGE);
		op_init(&w, RP_CHANNEL_WRITE, source, LARGE);
		op_to(&w, &mr, 0);
		op_init(&f, RP_CHANNEL_READ, NULL, 0);
		op_to(&f, &mr, 8);
		f.op.length = 8;
		w.op.delivered = n % 2;
		op_post(p.ie.c, &w);
		if (!w.op.delivered)
			op_post(p.ie.c, &f);
		PUMP(&p.i, &p.t, w.op.delivered ? w.done : f.done);
		cr_assert_eq(sink[0], n);
		cr_assert_eq(sink[LARGE - 1], n);
		PUMP(&p.i, &p.t, w.done);
	}
	rp_rc_dereg(p.t.rc, &mr);
	pair_close(&p);
	free(source);
	free(sink);
}

/* Operations with the largest number of iovecs. */
Test(rc, operations_of_many_pieces)
{
	uint8_t bytes[RP_CHANNEL_IOV][300], back[RP_CHANNEL_IOV][300] = {{0}};
	uint8_t sink[sizeof(bytes)];
	struct iovec from[RP_CHANNEL_IOV], to[RP_CHANNEL_IOV];
	struct op w, s, r, j;
	struct rp_rc_mr mr;
	struct pair p;

	pair_open(&p);
	register_memory(&p.t, sink, sizeof(sink), &mr);
	for (int i = 0; i < RP_CHANNEL_IOV; i++) {
		memset(bytes[i], 'a' + i, sizeof(bytes[i]));
		from[i] = (struct iovec){bytes[i], sizeof(bytes[i])};
		to[i] = (struct iovec){back[i], sizeof(back[i])};
	}
	for (int k = 1; k <= RP_CHANNEL_IOV; k++) {
		const size_t len = (size_t)k * sizeof(bytes[0]);

		memset(sink, 0, sizeof(sink));
		memset(back, 0, sizeof(back));
		op_init(&w, RP_CHANNEL_WRITE, bytes, len);
		op_to(&w, &mr, 0);
		w.op.iov = from;
		s = w;
		s.op.kind = RP_CHANNEL_SEND;
		r = w;
		r.op.kind = RP_CHANNEL_READ;
		r.op.iov = to;
		w.op.iov_count = s.op.iov_count = r.op.iov_count = (uint8_t)k;
		w.op.delivered = k % 2;
		op_post(p.ie.c, &w);
		op_post(p.ie.c, &s);
		op_post(p.ie.c, &r);
		PUMP(&p.i, &p.t,
		     w.done && s.done && r.done && p.te.messages == k);
		cr_assert(!w.err && !s.err && !r.err);
		cr_assert_eq(p.te.len, len);
		cr_assert_eq(memcmp(p.te.msg, bytes, len), 0);
		cr_assert_eq(memcmp(sink, bytes, len), 0);
		cr_assert_eq(memcmp(back, bytes, len), 0);
	}
	for (int i = 0; i < RP_CHANNEL_IOV; i++)
		from[i].iov_len = 8;
	op_init(&j, RP_CHANNEL_SEND, bytes, 0);
	j.op.inject = true;
	j.op.iov = from;
	j.op.iov_count = RP_CHANNEL_IOV;
	op_post(p.ie.c, &j);
	memset(bytes, 0, sizeof(bytes));
	PUMP(&p.i, &p.t, p.te.messages == RP_CHANNEL_IOV + 1);
	cr_assert_eq(p.te.len, 8 * RP_CHANNEL_IOV);
	cr_assert_eq(p.te.msg[0], 'a');
	cr_assert_eq(p.te.msg[63], 'h');
	cr_assert_eq(j.done, 0);
	rp_rc_dereg(p.t.rc, &mr);
	pair_close(&p);
}

static void echo_message(struct end *e)
{
	struct op o;

	if (e->arg) /* rp_rc_poll() in a callback does nothing */
		cr_assert(!rp_rc_poll(((struct node *)e->arg)->rc, 64));

	op_init(&o, RP_CHANNEL_SEND, e->msg, e->len);
	o.op.inject = true;
	op_post(e->c, &o);
}

/* More messages than posted receives are sent in both directions. */
Test(rc, messages_flow_behind_few_receives)
{
	uint8_t bytes[4168];
	struct op s[100];
	struct pair p;

	pair_open(&p);
	memset(bytes, 7, sizeof(bytes));
	for (int i = 0; i < 100; i++) {
		op_init(&s[i], RP_CHANNEL_SEND, bytes,
			i % 3 ? 64 : sizeof(bytes));
		op_post(p.ie.c, &s[i]);
	}
	PUMP(&p.i, &p.t, p.te.messages == 100);
	for (int i = 0; i < 100; i++)
		cr_assert(s[i].done == 1 && !s[i].err);
	p.te.on_message = echo_message;
	p.te.arg = &p.t;
	for (int i = 0; i < 100; i++) {
		op_init(&s[i], RP_CHANNEL_SEND, bytes, 100);
		op_post(p.ie.c, &s[i]);
	}
	PUMP(&p.i, &p.t, p.ie.messages == 100);
	pair_close(&p);
}

Test(rc, no_more_is_posted_than_the_depth)
{
	enum {
		N = 2000
	};
	static struct op s[N];
	uint8_t byte = 1, theirs = 2;
	struct rp_rc_mr mr;
	struct pair p;
	int posted = 0;

	pair_open(&p);
	register_memory(&p.t, &theirs, 1, &mr);
	for (; posted < N; posted++) {
		struct rp_channel_op *op = &s[posted].op;

		op_init(&s[posted], RP_CHANNEL_READ, &byte, 1);
		op_to(&s[posted], &mr, 0);
		if (!rp_channel_post(p.ie.c, &op, 1))
			break;
	}
	cr_assert_lt(posted, N);
	PUMP(&p.i, &p.t, s[posted - 1].done);
	op_init(&s[posted], RP_CHANNEL_SEND, &byte, 1);
	op_post(p.ie.c, &s[posted]);
	PUMP(&p.i, &p.t, p.te.messages);
	rp_rc_dereg(p.t.rc, &mr);
	pair_close(&p);
}

/*
 * The limit of posted operations holds even if the network takes all bytes and
 * nobody polls.
 */
Test(rc, no_more_is_posted_than_is_reported)
{
	enum {
		N = 2000
	};
	static struct op s[N];
	uint8_t byte = 1;
	struct pair p;
	int posted = 0, done = 0;

	pair_open(&p);
	for (; posted < N; posted++) {
		struct rp_channel_op *op = &s[posted].op;

		op_init(&s[posted], RP_CHANNEL_SEND, &byte, 1);
		if (!rp_channel_post(p.ie.c, &op, 1))
			break;
		rp_rc_poll(p.t.rc, 64);
	}
	cr_assert_lt(posted, N);
	PUMP(&p.i, &p.t, s[posted - 1].done && p.te.messages == posted);
	for (int i = 0; i < posted; i++)
		done += s[i].done;
	cr_assert_eq(done, posted);
	op_post(p.ie.c, &s[posted]);
	PUMP(&p.i, &p.t, s[posted].done);
	pair_close(&p);
}

Test(rc, unsupported_operation_ends_the_connection)
{
	uint8_t word[16];
	struct op f;
	struct pair p;

	pair_open(&p);
	op_init(&f, RP_CHANNEL_FLUSH, NULL, 0);
	op_post(p.ie.c, &f);
	cr_assert_eq(f.done, 0); /* not inside post */
	PUMP(&p.i, &p.t, p.ie.lost);
	cr_assert_eq(f.done, 1);
	cr_assert_eq(f.err, EOPNOTSUPP);
	/* A lost channel accepts operations, and reports them as failed. */
	op_init(&f, RP_CHANNEL_SEND, word, sizeof(word));
	op_post(p.ie.c, &f);
	PUMP(&p.i, &p.t, f.done);
	cr_assert_eq(f.err, ENOTCONN);
	op_init(&f, RP_CHANNEL_SEND, word, sizeof(word));
	op_post(p.ie.c, &f);
	rp_channel_close(p.ie.c);
	p.ie.c = NULL;
	cr_assert_eq(f.done, 1);
	cr_assert_eq(f.err, ECANCELED);
	cr_assert_eq(p.ie.lost, 1);
	PUMP(&p.i, &p.t, p.te.lost == 1);
	pair_close(&p);
}

Test(rc, a_message_that_is_too_long_ends_the_connection)
{
	static uint8_t bytes[5000];
	struct op s;
	struct pair p;

	pair_open(&p);
	op_init(&s, RP_CHANNEL_SEND, bytes, sizeof(bytes));
	op_post(p.ie.c, &s);
	PUMP(&p.i, &p.t, p.te.lost && p.ie.lost);
	cr_assert_eq(p.te.messages, 0);
	pair_close(&p);
}

/* --- memory --- */

Test(rc, a_wrong_key_ends_the_connection)
{
	static uint8_t sink[64], source[64] = {1};
	struct rp_rc_mr mr, other;
	struct op w;

	for (int how = 0; how < 4; how++) {
		struct pair p;

		pair_open(&p);
		memset(sink, 0, sizeof(sink));
		register_memory(&p.t, sink, sizeof(sink), &mr);
		register_memory(&p.t, sink, sizeof(sink), &other);
		cr_assert_neq(mr.rkey, other.rkey);
		op_init(&w, RP_CHANNEL_WRITE, source, sizeof(source));
		op_to(&w, &mr, how == 1 ? 1 : 0); /* 1: past its end */
		w.op.delivered = true;
		if (how == 0)
			w.op.rkey ^= 1;
		if (how == 2) { /* 2: after deregistration */
			rp_rc_dereg(p.t.rc, &mr);
			cr_assert_null(mr.handle);
		}
		if (how == 3) { /* 3: to a region for reads only */
			rp_rc_dereg(p.t.rc, &mr);
			cr_assert_eq(rp_rc_reg(p.t.rc, sink, sizeof(sink),
					       RP_RC_REMOTE_READ, &mr),
				     0);
			op_to(&w, &mr, 0);
		}
		op_post(p.ie.c, &w);
		PUMP(&p.i, &p.t, p.ie.lost && p.te.lost);
		cr_assert_eq(w.done, 1);
		cr_assert_neq(w.err, 0);
		cr_assert_eq(sink[0], 0);
		cr_assert_eq(p.ie.lost, 1);
		cr_assert_eq(p.te.lost, 1);
		rp_rc_dereg(p.t.rc, &mr);
		rp_rc_dereg(p.t.rc, &other);
		pair_close(&p);
	}
}

Test(rc, registrations_that_are_not_offered)
{
	static uint8_t bytes[64];
	struct rp_rc_mr mr;
	struct node n = {0};

	node_open(&n);
	cr_assert_eq(rp_rc_reg(n.rc, bytes, sizeof(bytes),
			       RP_RC_REMOTE_WRITE | RP_RC_REMOTE_FLUSH, &mr),
		     -EOPNOTSUPP);
	cr_assert_null(mr.handle);
	cr_assert_eq(rp_rc_reg(n.rc, bytes, sizeof(bytes), RP_RC_LOCAL, &mr),
		     0);
	rp_rc_dereg(n.rc, &mr);
	rp_rc_close(n.rc);
}

/* --- loss and close --- */

struct load {
	struct op w[8], s[8], f;
};

static void load_post(struct load *l, struct rp_channel *c, void *buf,
		      const struct rp_rc_mr *mr)
{
	for (int i = 0; i < 8; i++) {
		op_init(&l->w[i], RP_CHANNEL_WRITE, buf, LARGE);
		op_to(&l->w[i], mr, 0);
		l->w[i].op.delivered = i % 2;
		op_init(&l->s[i], RP_CHANNEL_SEND, buf, 1000);
		op_post(c, &l->w[i]);
		op_post(c, &l->s[i]);
	}
	op_init(&l->f, RP_CHANNEL_READ, NULL, 0);
	op_to(&l->f, mr, 0);
	l->f.op.length = 1;
	op_post(c, &l->f);
}

static void load_check(const struct load *l, int done)
{
	for (int i = 0; i < 8; i++) {
		cr_assert_eq(l->w[i].done, done);
		cr_assert_eq(l->s[i].done, done);
	}
	cr_assert_eq(l->f.done, done);
}

static void *map_memory(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(p, MAP_FAILED);
	return p;
}

Test(rc, close_completes_each_once_and_releases_the_buffers)
{
	uint8_t *sink = calloc(1, LARGE);
	struct rp_rc_mr mr;
	struct load l;
	struct pair p;

	for (int n = 0; n < 10; n++) {
		uint8_t *source = map_memory(LARGE);

		pair_open(&p);
		register_memory(&p.t, sink, LARGE, &mr);
		load_post(&l, p.ie.c, source, &mr);
		for (int i = 0; i < n; i++) {
			rp_rc_poll(p.i.rc, 64);
			rp_rc_poll(p.t.rc, 64);
		}
		rp_channel_close(p.ie.c);
		p.ie.c = NULL;
		load_check(&l, 1);
		cr_assert_eq(p.ie.lost, 0);
		cr_assert_eq(mprotect(source, LARGE, PROT_NONE), 0);
		PUMP(&p.i, &p.t, p.te.lost);
		load_check(&l, 1);
		munmap(source, LARGE);
		rp_rc_dereg(p.t.rc, &mr);
		pair_close(&p);
	}
	free(sink);
}

/* Reads of adjacent pieces, each into a buffer of its own. */
struct reads {
	struct op r[64];
	int n;
};

static void reads_post(struct reads *l, int n, struct rp_channel *c,
		       uint8_t *buf, size_t len, const struct rp_rc_mr *mr)
{
	l->n = n;
	for (int k = 0; k < n; k++) {
		op_init(&l->r[k], RP_CHANNEL_READ, buf + (size_t)k * len, len);
		op_to(&l->r[k], mr, (uint64_t)k * len);
		op_post(c, &l->r[k]);
	}
}

static void reads_ended(const struct reads *l)
{
	for (int k = 0; k < l->n; k++)
		cr_assert_eq(l->r[k].done, 1, "%d of %d", k, l->n);
}

/*
 * In libfabric 1.17, fi_close() of a tcp endpoint frees the memory of a read
 * twice if its response is arriving. Later operations of any connection then
 * share that memory.
 */
Test(rc, close_among_responses_of_reads_spoils_no_other_connection)
{
	enum {
		FEW = 8,
		ALL = 64,
		PIECE = LARGE / ALL
	};
	uint8_t *source = map_memory((size_t)FEW * LARGE),
		*sink = map_memory((size_t)FEW * LARGE);
	struct node t = {0}, i = {0};
	struct end te, ie;
	struct rp_rc_mr mr;
	struct reads l;

	for (size_t k = 0; k < LARGE; k++)
		source[k] = (uint8_t)(k / PIECE + 1);
	node_open(&t);
	node_open(&i);
	node_listen(&t);
	register_memory(&t, source, (size_t)FEW * LARGE, &mr);
	for (int n = 0; n < 10; n++) {
		te = ie = (struct end){0};
		t.accept = &te;
		t.accepted = 0;
		cr_assert_eq(node_connect(&i, &t, &ie), 0);
		PUMP(&i, &t, ie.connected && te.c);
		reads_post(&l, n < 9 ? FEW : ALL, ie.c, sink,
			   n < 9 ? LARGE : PIECE, &mr);
		for (int k = 0; k < n && n < 9; k++) {
			rp_rc_poll(t.rc, 64);
			rp_rc_poll(i.rc, 64);
		}
		/* The last connection is closed after all responses. */
		if (n == 9)
			PUMP(&i, &t, l.r[ALL - 1].done);
		rp_channel_close(ie.c);
		reads_ended(&l);
		PUMP(&i, &t, te.lost);
		rp_channel_close(te.c);
		reads_ended(&l);
	}
	for (int k = 0; k < ALL; k++)
		cr_assert_eq(l.r[k].err, 0, "%d", k);
	cr_assert_eq(memcmp(sink, source, LARGE), 0);
	rp_rc_dereg(t.rc, &mr);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
	munmap(source, (size_t)FEW * LARGE);
	munmap(sink, (size_t)FEW * LARGE);
}

/* After the target has closed its end, no byte is placed. */
Test(rc, close_of_the_target_stops_placement)
{
	uint8_t *sink = map_memory(LARGE), *source = map_memory(LARGE);
	struct rp_rc_mr mr;
	struct load l;
	struct pair p;

	pair_open(&p);
	register_memory(&p.t, sink, LARGE, &mr);
	load_post(&l, p.ie.c, source, &mr);
	for (int i = 0; i < 3; i++) {
		rp_rc_poll(p.i.rc, 64);
		rp_rc_poll(p.t.rc, 64);
	}
	rp_channel_close(p.te.c);
	p.te.c = NULL;
	rp_rc_dereg(p.t.rc, &mr);
	cr_assert_eq(mprotect(sink, LARGE, PROT_NONE), 0);
	PUMP(&p.i, &p.t, p.ie.lost);
	load_check(&l, 1);
	cr_assert_eq(p.ie.lost, 1);
	pair_close(&p);
	munmap(sink, LARGE);
	munmap(source, LARGE);
}

/* A target in another process, until it is killed. */
static pid_t target_start(struct node *t, uint8_t *sink, struct rp_rc_mr *mr)
{
	int fds[2];
	pid_t pid;

	cr_assert_eq(pipe(fds), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		static struct end te;
		struct node n = {.accept = &te};

		node_open(&n);
		node_listen(&n);
		register_memory(&n, sink, LARGE, mr);
		if (write(fds[1], &n.at, sizeof(n.at)) < 0 ||
		    write(fds[1], mr, sizeof(*mr)) < 0)
			_exit(1);
		for (;;)
			rp_rc_poll(n.rc, 64);
	}
	cr_assert_eq(read(fds[0], &t->at, sizeof(t->at)), sizeof(t->at));
	cr_assert_eq(read(fds[0], mr, sizeof(*mr)), sizeof(*mr));
	close(fds[0]);
	close(fds[1]);
	return pid;
}

Test(rc, a_killed_peer_is_lost_once)
{
	uint8_t *buf = calloc(1, LARGE);
	struct node t = {0}, i = {0};
	struct end e = {0};
	struct rp_rc_mr mr;
	struct load l;
	pid_t pid = target_start(&t, buf, &mr);

	node_open(&i);
	cr_assert_eq(node_connect(&i, &t, &e), 0);
	PUMP(&i, &i, e.connected);
	kill(pid, SIGSTOP);
	load_post(&l, e.c, buf, &mr);
	cr_assert_eq(e.lost, 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	PUMP(&i, &i, e.lost);
	load_check(&l, 1);
	cr_assert_eq(e.lost, 1);
	rp_channel_close(e.c);
	cr_assert_eq(e.lost, 1);
	rp_rc_close(i.rc);
	free(buf);
}

/* --- callbacks that close --- */

struct ring {
	struct node *n;
	struct end *e;
	int count;
};

static void close_all(struct end *e)
{
	struct ring *r = e->arg;

	for (int i = 0; i < r->count; i++)
		if (r->e[i].c) {
			rp_channel_close(r->e[i].c);
			r->e[i].c = NULL;
		}
}

static void ring_open(struct node *t, struct node *i, struct end *te,
		      struct end *ie, int count)
{
	node_open(t);
	node_open(i);
	node_listen(t);
	t->accept = te;
	for (int j = 0; j < count; j++) {
		cr_assert_eq(node_connect(i, t, &ie[j]), 0);
		PUMP(i, t, ie[j].connected && te[j].c);
	}
}

static void ring_close(struct node *t, struct node *i, struct end *te,
		       struct end *ie, int count)
{
	for (int j = 0; j < count; j++) {
		if (te[j].c)
			rp_channel_close(te[j].c);
		if (ie[j].c)
			rp_channel_close(ie[j].c);
	}
	rp_rc_close(i->rc);
	rp_rc_close(t->rc);
}

/* All channels have messages, and the first callback closes every channel. */
Test(rc, a_callback_may_close_all_channels)
{
	enum {
		N = 16
	};
	static struct end te[N], ie[N];
	static struct op s[N];
	uint8_t bytes[2000] = {0};
	struct node t = {0}, i = {0};
	struct ring r = {&t, te, N};
	int messages = 0;

	ring_open(&t, &i, te, ie, N);
	for (int j = 0; j < N; j++) {
		te[j].arg = &r;
		te[j].on_message = close_all;
		op_init(&s[j], RP_CHANNEL_SEND, bytes, sizeof(bytes));
		op_post(ie[j].c, &s[j]);
	}
	for (int j = 0; j < N; j++)
		PUMP(&i, &t, ie[j].lost);
	for (int j = 0; j < N; j++) {
		messages += te[j].messages;
		cr_assert_eq(s[j].done, 1);
		cr_assert_eq(te[j].lost, 0);
	}
	cr_assert_eq(messages, 1);
	ring_close(&t, &i, te, ie, N);
}

static void close_op(struct rp_channel_op *op, int err)
{
	struct op *o = (struct op *)op;

	op_done(op, err);
	if (o->iov.iov_base)
		close_all(o->iov.iov_base);
}

Test(rc, done_and_lost_may_close_all_channels)
{
	enum {
		N = 16
	};
	static struct end te[N], ie[N];
	static struct op s[N];
	struct node t = {0}, i = {0};
	struct ring r = {&i, ie, N};
	int lost = 0;

	ring_open(&t, &i, te, ie, N);
	for (int j = 0; j < N; j++) {
		ie[j].arg = &r;
		op_init(&s[j], RP_CHANNEL_READ, NULL, 0);
		s[j].op.length = 8; /* the key is unknown */
		s[j].op.done = close_op;
		s[j].iov.iov_base = j == 7 ? &ie[j] : NULL;
		op_post(ie[j].c, &s[j]);
	}
	PUMP(&i, &t, s[7].done);
	for (int j = 0; j < N; j++) {
		cr_assert_eq(s[j].done, 1);
		cr_assert_null(ie[j].c);
	}
	ring_close(&t, &i, te, ie, N);

	memset(te, 0, sizeof(te));
	memset(ie, 0, sizeof(ie));
	t = i = (struct node){0};
	ring_open(&t, &i, te, ie, N);
	for (int j = 0; j < N; j++) {
		ie[j].arg = &r;
		ie[j].on_lost = close_all;
	}
	for (int j = 0; j < N; j++) {
		rp_channel_close(te[j].c);
		te[j].c = NULL;
	}
	PUMP(&i, &t, !ie[0].c);
	for (int j = 0; j < N; j++) {
		lost += ie[j].lost;
		cr_assert_null(ie[j].c);
	}
	cr_assert_geq(lost, 1);
	ring_close(&t, &i, te, ie, N);
}

/* done() of the operation that broke the channel comes before lost(). */
Test(rc, a_channel_closed_by_done_is_not_lost)
{
	struct ring r;
	struct pair p;
	struct op f;

	pair_open(&p);
	r = (struct ring){&p.i, &p.ie, 1};
	p.ie.arg = &r;
	op_init(&f, RP_CHANNEL_FLUSH, NULL, 0);
	f.op.done = close_op;
	f.iov.iov_base = &p.ie;
	op_post(p.ie.c, &f);
	PUMP(&p.i, &p.t, f.done);
	cr_assert_null(p.ie.c);
	PUMP(&p.i, &p.t, p.te.lost);
	cr_assert_eq(f.done, 1);
	cr_assert_eq(p.ie.lost, 0);
	pair_close(&p);
}

/* close() of one channel polls the others, and their callbacks close them. */
Test(rc, channels_are_closed_with_messages_at_hand)
{
	enum {
		N = 8
	};
	static struct end te[N], ie[N];
	static struct op s[N];
	uint8_t bytes[2000] = {0};
	struct node t = {0}, i = {0};

	ring_open(&t, &i, te, ie, N);
	for (int j = 0; j < N; j++) {
		op_init(&s[j], RP_CHANNEL_SEND, bytes, sizeof(bytes));
		op_post(ie[j].c, &s[j]);
	}
	PUMP(&i, &i, s[N - 1].done);
	for (int j = 0; j < N - 1; j++) {
		rp_channel_close(te[j].c);
		te[j].c = NULL;
	}
	PUMP(&i, &t, te[N - 1].messages);
	for (int j = 0; j < N - 1; j++)
		cr_assert_eq(te[j].messages, 0);
	ring_close(&t, &i, te, ie, N);
}

static void connect_again(struct end *e)
{
	struct pair *p = e->arg;

	rp_channel_close(e->c);
	e->c = NULL;
	p->t.accept = &p->te;
	p->t.accepted = 0;
	cr_assert_eq(node_connect(&p->i, &p->t, e), 0);
}

Test(rc, lost_may_connect_again)
{
	struct pair p;

	pair_open(&p);
	p.ie.arg = &p;
	p.ie.on_lost = connect_again;
	for (int n = 1; n <= 5; n++) {
		rp_channel_close(p.te.c);
		p.te.c = NULL;
		PUMP(&p.i, &p.t, p.ie.connected == n + 1 && p.te.c);
		cr_assert_eq(p.ie.lost, n);
	}
	p.ie.on_lost = NULL;
	pair_close(&p);
}

/* --- sleeping --- */

static void sleep_until_some(struct node *n)
{
	struct pollfd fd = {.fd = rp_rc_fd(n->rc), .events = POLLIN};

	if (!rp_rc_trywait(n->rc))
		cr_assert_eq(poll(&fd, 1, 30000), 1);
	rp_rc_poll(n->rc, 64);
}

/* Each step at one end wakes the other end through its descriptor. */
Test(rc, the_descriptor_wakes)
{
	uint8_t *sink = calloc(1, LARGE), *source = calloc(1, LARGE);
	struct node t = {0}, i = {0};
	struct rp_rc_attr attr;
	struct end ie = {0};
	struct end te = {0};
	struct rp_rc_mr mr;
	struct op s, w;
	pid_t pid;
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		attr = rig_attr(&t);
		attr.waits = true;
		node_open_with(&t, &attr);
		node_listen(&t);
		t.accept = &te;
		te.on_message = echo_message;
		register_memory(&t, sink, LARGE, &mr);
		if (write(fds[1], &t.at, sizeof(t.at)) < 0 ||
		    write(fds[1], &mr, sizeof(mr)) < 0)
			_exit(1);
		while (!te.lost)
			sleep_until_some(&t);
		rp_channel_close(te.c);
		rp_rc_dereg(t.rc, &mr);
		rp_rc_close(t.rc);
		_exit(0);
	}
	cr_assert_eq(read(fds[0], &t.at, sizeof(t.at)), sizeof(t.at));
	cr_assert_eq(read(fds[0], &mr, sizeof(mr)), sizeof(mr));
	attr = rig_attr(&i);
	attr.waits = true;
	node_open_with(&i, &attr);
	cr_assert_eq(node_connect(&i, &t, &ie), 0);
	while (!ie.connected)
		sleep_until_some(&i);
	for (int n = 1; n <= 200; n++) {
		op_init(&w, RP_CHANNEL_WRITE, source, n % 20 ? 8 : LARGE);
		op_to(&w, &mr, 0);
		w.op.delivered = n % 2;
		op_init(&s, RP_CHANNEL_SEND, source, 100);
		op_post(ie.c, &w);
		op_post(ie.c, &s);
		while (ie.messages < n || !w.done || !s.done)
			sleep_until_some(&i);
	}
	rp_channel_close(ie.c);
	rp_rc_close(i.rc);
	waitpid(pid, &fds[0], 0);
	cr_assert_eq(fds[0], 0);
	free(sink);
	free(source);
}

/* A now() that stands still between ticks: polls must not wait for it. */
static uint64_t stands_still(void *arg)
{
	return 1;
}

Test(rc, messages_are_found_between_ticks_of_the_clock)
{
	struct node t = {0}, i = {0};
	struct end te = {0}, ie = {0};
	struct rp_rc_attr attr = rig_attr(&t);
	struct op s;

	attr.now_exact = attr.now;
	attr.now = stands_still;
	node_open_with(&t, &attr);
	node_open(&i);
	node_listen(&t);
	t.accept = &te;
	cr_assert_eq(node_connect(&i, &t, &ie), 0);
	PUMP(&i, &t, ie.connected);
	for (int n = 0; n < 4096; n++)
		rp_rc_poll(t.rc, 64);
	op_init(&s, RP_CHANNEL_SEND, ie.msg, 100);
	op_post(ie.c, &s);
	PUMP(&i, &t, te.messages);
	rp_channel_close(te.c);
	rp_channel_close(ie.c);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
}

/* Connections wake the descriptor; packets do so only after trywait(). */
Test(rc, packets_wake_only_after_trywait)
{
	struct node t = {0}, i = {0};
	struct end te = {0}, ie = {0};
	struct rp_rc_attr attr = rig_attr(&t);
	struct pollfd fd = {.events = POLLIN};
	struct op s;

	attr.waits = true;
	node_open_with(&t, &attr);
	node_open(&i);
	node_listen(&t);
	t.accept = &te;
	fd.fd = rp_rc_fd(t.rc);
	cr_assert_eq(node_connect(&i, &t, &ie), 0);
	cr_assert_eq(poll(&fd, 1, 30000), 1);
	PUMP(&i, &t, ie.connected);
	op_init(&s, RP_CHANNEL_SEND, ie.msg, 100);
	op_post(ie.c, &s);
	PUMP(&i, &i, s.done);
	cr_assert_eq(poll(&fd, 1, 100), 0);
	while (rp_rc_trywait(t.rc))
		rp_rc_poll(t.rc, 64);
	cr_assert_eq(poll(&fd, 1, 30000), 1);
	PUMP(&i, &t, te.messages);
	rp_channel_close(te.c);
	rp_channel_close(ie.c);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
}

/* A descriptor that is always readable would cause a busy loop. */
Test(rc, an_idle_descriptor_sleeps)
{
	struct node t = {0}, i = {0};
	struct end te = {0}, ie = {0};
	struct node *const n[2] = {&t, &i};
	struct rp_rc_attr attr;

	for (int j = 0; j < 2; j++) {
		attr = rig_attr(n[j]);
		attr.waits = true;
		node_open_with(n[j], &attr);
	}
	node_listen(&t);
	t.accept = &te;
	cr_assert_eq(node_connect(&i, &t, &ie), 0);
	PUMP(&i, &t, ie.connected);
	for (int j = 0; j < 2; j++) {
		struct pollfd fd = {.fd = rp_rc_fd(n[j]->rc), .events = POLLIN};
		int polls = 0;

		while (rp_rc_trywait(n[j]->rc) || poll(&fd, 1, 0)) {
			rp_rc_poll(n[j]->rc, 64);
			cr_assert_lt(++polls, 100);
		}
		cr_assert_eq(poll(&fd, 1, 100), 0);
	}
	rp_channel_close(ie.c);
	rp_channel_close(te.c);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
}

/* --- many connections --- */

Test(rc, memory_of_300_connections, .timeout = 120)
{
	static struct end te[MANY], ie[MANY];
	struct node t = {.accept = te}, i = {0};
	uint8_t bytes[4168] = {0};
	size_t before, after;
	struct op s;
	pid_t pid;
	int status, fds[2];

	/* The initiators' memory, in another process, is not counted. */
	cr_assert_eq(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (read(fds[0], &t.at, sizeof(t.at)) != sizeof(t.at))
			_exit(1);
		node_open(&i);
		/*
		 * Pause now and then: a slow target rejects requests beyond its
		 * half-open limit.
		 */
		for (int j = 0; j < MANY; j++) {
			const bool pause = j % 32 == 0;

			cr_assert_eq(node_connect(&i, &t, &ie[j]), 0);
			PUMP(&i, &i, !pause || ie[j].connected);
		}
		for (int j = 0; j < MANY; j++)
			PUMP(&i, &i, ie[j].connected);
		for (int j = 0; j < MANY; j++) {
			op_init(&s, RP_CHANNEL_SEND, bytes, sizeof(bytes));
			op_post(ie[j].c, &s);
			PUMP(&i, &i, s.done);
		}
		/*
		 * Poll all connections, because the target may have accepted
		 * them in another order.
		 */
		for (bool some = false; !some;) {
			rp_rc_poll(i.rc, 64);
			for (int j = 0; j < MANY; j++)
				some |= ie[j].messages || ie[j].lost;
		}
		_exit(0);
	}
	node_open(&t);
	node_listen(&t);
	before = mallinfo2().uordblks + mallinfo2().hblkhd;
	cr_assert_eq(write(fds[1], &t.at, sizeof(t.at)), sizeof(t.at));
	for (int j = 0; j < MANY; j++)
		PUMP(&t, &t, te[j].messages == 1);
	after = mallinfo2().uordblks + mallinfo2().hblkhd;
	fprintf(stderr, "%zu bytes of heap for each of %d connections\n",
		(after - before) / MANY, MANY);
	/* A tcp receive of libfabric 2.x: 16 KiB, FI_TCP_MAX_RX_SIZE. */
	cr_assert_leq((after - before) / MANY, 32 * 1024);
	op_init(&s, RP_CHANNEL_SEND, bytes, 8);
	s.op.inject = true;
	op_post(te[MANY - 1].c, &s);
	waitpid(pid, &status, 0);
	for (int j = 0; j < MANY; j++) {
		PUMP(&t, &t, te[j].lost == 1);
		rp_channel_close(te[j].c);
	}
	rp_rc_close(t.rc);
}

Test(rc, without_waits_no_descriptor)
{
	struct node n = {0};

	node_open(&n);
	cr_assert_eq(rp_rc_fd(n.rc), -1);
	cr_assert(!rp_rc_busy(n.rc));
	node_listen(&n);
	cr_assert(rp_rc_busy(n.rc));
	rp_rc_close(n.rc);
}
