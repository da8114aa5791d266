// SPDX-License-Identifier: BSD-2-Clause
/* Private connections over TCP, both ends in this process. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#include "fabtests/unit/rc_rig.h"

#define LARGE (1u << 20)

/* --- connecting --- */

Test(rc, both_ends_get_the_data_of_the_other)
{
	struct pair p;

	pair_open(&p);
	cr_assert_eq(p.t.last_data_len, 5);
	cr_assert_eq(memcmp(p.t.last_data, "hello", 5), 0);
	cr_assert_eq(p.ie.data_len, 7);
	cr_assert_eq(memcmp(p.ie.data, "welcome", 7), 0);
	cr_assert_eq(p.te.connected, 0);
	cr_assert_eq(p.ie.c->flags, RP_CHANNEL_FENCES);
	cr_assert_geq(p.ie.c->inject, 64);
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
