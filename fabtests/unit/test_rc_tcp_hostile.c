// SPDX-License-Identifier: BSD-2-Clause
/* Private connections over TCP whose peer sends what no correct peer sends. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/wire.h"
#include "unit/rc_raw.h"

#define LARGE (8u << 20)

/* --- a hostile initiator --- */

enum {
	SMALL = 64
};

/* Send frames that no correct initiator sends. */
static void send_nonsense(int fd, int which, const struct rp_rc_mr *rw,
			  const struct rp_rc_mr *r, const struct rp_rc_mr *w)
{
	const struct rp_rc_mr none = {.rkey = rw->rkey ^ 1};
	struct rp_tcp_hdr h = {
		.magic = htole16(RP_WIRE_MAGIC),
		.version = RP_WIRE_VERSION,
		.type = RP_TCP_MESSAGE,
		.length = htole64(1),
	};

	switch (which) {
	case 0:
		h.magic = 0;
		break;
	case 1:
		h.type = 0;
		break;
	case 2:
		h.type = RP_TCP_PLACED + 1;
		break;
	case 3:
		h.flags = htole32(1);
		break;
	case 4:
		h.version++;
		break;
	case 5:
		h.length = htole64(RP_WIRE_MAX_MSG + 1);
		break;
	case 6:
		h.length = UINT64_MAX;
		break;
	case 7:
		h.type = RP_TCP_CONNECT;
		break;
	case 8:
		h.type = RP_TCP_DATA;
		break;
	case 9:
		h.type = RP_TCP_PLACED;
		break;
	case 10:
		raw_rma(fd, RP_TCP_WRITE, r, 0, 1);
		return;
	case 11:
		raw_rma(fd, RP_TCP_READ, w, 0, 1);
		return;
	case 12:
		raw_rma(fd, RP_TCP_WRITE, rw, 1, SMALL);
		return;
	case 13:
		raw_rma(fd, RP_TCP_READ, rw, SMALL + 1, 0);
		return;
	case 14:
		raw_rma(fd, RP_TCP_WRITE, rw, UINT64_MAX, 2);
		return;
	case 15:
		raw_rma(fd, RP_TCP_READ, rw, 2, UINT64_MAX);
		return;
	case 16:
		raw_rma(fd, RP_TCP_WRITE, &none, 0, 0);
		return;
	default:
		raw_rma(fd, RP_TCP_READ, &none, 0, 0);
		return;
	}
	raw_send(fd, &h, sizeof(h));
}

Test(rc_tcp, nonsense_of_an_initiator_ends_its_connection)
{
	static uint8_t memory[3 * SMALL];
	struct rp_rc_mr rw, r, w;

	for (int which = 0; which < 18; which++) {
		struct node t = {0};
		struct end te = {0};
		int fd = raw_pair(&t, &te);

		rp_rc_reg(t.rc, memory + SMALL, SMALL,
			  RP_RC_REMOTE_READ | RP_RC_REMOTE_WRITE, &rw);
		rp_rc_reg(t.rc, memory + SMALL, SMALL, RP_RC_REMOTE_READ, &r);
		rp_rc_reg(t.rc, memory + SMALL, SMALL, RP_RC_REMOTE_WRITE, &w);
		send_nonsense(fd, which, &rw, &r, &w);
		PUMP1(&t, te.lost);
		cr_assert_eq(te.messages, 0, "%d", which);
		PUMP1(&t, raw_ended(fd));
		rp_rc_dereg(t.rc, &rw);
		rp_rc_dereg(t.rc, &r);
		rp_rc_dereg(t.rc, &w);
		raw_close(&t, &te, fd);
	}
	for (size_t i = 0; i < sizeof(memory); i++)
		cr_assert_eq(memory[i], 0);
}

static void check_message_order(struct end *e)
{
	uint32_t n;

	memcpy(&n, e->msg, sizeof(n));
	cr_assert_eq((int)n, e->messages - 1);
}

/* One TCP segment contains more messages than there are posted receives. */
Test(rc_tcp, messages_in_pieces_and_in_crowds_are_whole)
{
	enum {
		N = 400
	};
	struct tcp_head h = {.type = RP_TCP_MESSAGE};
	uint8_t *bytes = malloc(N * 200), *at = bytes;
	struct rp_tcp_rma hdr;
	struct node t = {0};
	struct end te = {0};
	int fd = raw_pair(&t, &te);

	te.on_message = check_message_order;
	for (uint32_t i = 0; i < 2 * N; i++) {
		h.length = sizeof(i) + i % 100;
		memcpy(at, &hdr, rp_tcp_put(&hdr, &h));
		at += sizeof(struct rp_tcp_hdr);
		memset(at, 0, h.length);
		memcpy(at, &i, sizeof(i));
		at += h.length;
		if (i + 1 == N)
			raw_send(fd, bytes, (size_t)(at - bytes));
		if (i + 1 == N) {
			at = bytes;
			PUMP1(&t, te.messages == N);
		}
	}
	for (uint8_t *b = bytes; b < at; b += 7) {
		raw_send(fd, b, at - b < 7 ? (size_t)(at - b) : 7);
		rp_rc_poll(t.rc, 64);
	}
	PUMP1(&t, te.messages == 2 * N);
	raw_close(&t, &te, fd);
	free(bytes);
}

/* A peer that requests reads and receives no data loses its connection. */
Test(rc_tcp, unread_responses_end_the_connection)
{
	uint8_t *memory = calloc(1, LARGE);
	struct rp_rc_mr mr;
	struct node t = {0};
	struct end te = {0};
	int fd = raw_pair(&t, &te);

	rp_rc_reg(t.rc, memory, LARGE, RP_RC_REMOTE_READ, &mr);
	for (int i = 0; i < 2000; i++)
		raw_rma(fd, RP_TCP_READ, &mr, 0, LARGE);
	PUMP1(&t, te.lost);
	rp_rc_dereg(t.rc, &mr);
	raw_close(&t, &te, fd);
	free(memory);
}

/* A peer that receives no acknowledgements loses its connection. */
Test(rc_tcp, unread_acknowledgements_end_the_connection)
{
	uint8_t *memory = calloc(1, 8 * LARGE);
	struct tcp_head h = {.type = RP_TCP_WRITE, .acknowledged = true};
	struct rp_tcp_rma hdr;
	struct rp_rc_mr mr;
	struct node t = {0};
	struct end te = {0};
	int fd = raw_pair(&t, &te);

	rp_rc_reg(t.rc, memory, 8 * LARGE,
		  RP_RC_REMOTE_READ | RP_RC_REMOTE_WRITE, &mr);
	raw_rma(fd, RP_TCP_READ, &mr, 0, 8 * LARGE);
	for (int i = 0; i < 1000; i++)
		rp_rc_poll(t.rc, 64);
	h.rkey = mr.rkey;
	for (int i = 0; i < 2000 && !te.lost; i++) {
		send(fd, &hdr, rp_tcp_put(&hdr, &h), MSG_NOSIGNAL);
		rp_rc_poll(t.rc, 64);
	}
	PUMP1(&t, te.lost);
	rp_rc_dereg(t.rc, &mr);
	raw_close(&t, &te, fd);
	free(memory);
}

/* Messages for all flooding threads, filled before these start. */
static uint8_t messages[17 * 4000];

/* Send until the connection breaks. */
static void *send_until_broken(void *arg)
{
	int fd = *(int *)arg;

	while (send(fd, messages, sizeof(messages), MSG_NOSIGNAL) > 0)
		;
	return NULL;
}

Test(rc_tcp, peers_that_flood_leave_receives_to_others)
{
	enum {
		FLOODS = 3
	};
	const struct tcp_head h = {.type = RP_TCP_MESSAGE, .length = 1};
	struct end te[FLOODS + 1] = {0};
	pthread_t thread[FLOODS];
	struct rp_tcp_rma hdr;
	int fd[FLOODS + 1], polls;
	struct node t = {0};

	for (size_t i = 0; i < sizeof(messages); i += 17)
		memcpy(messages + i, &hdr, rp_tcp_put(&hdr, &h));
	fd[0] = raw_pair(&t, te);
	for (int i = 1; i <= FLOODS; i++) {
		fd[i] = raw_connect(&t);
		raw_frame(fd[i], RP_TCP_CONNECT, 5, "hello", 5);
		PUMP1(&t, te[i].c);
	}
	for (int i = 0; i < FLOODS; i++)
		pthread_create(&thread[i], NULL, send_until_broken, &fd[i + 1]);
	PUMP1(&t, te[1].messages > 1000 && te[FLOODS].messages > 1000);
	for (int n = 1; n <= 20; n++) {
		raw_frame(fd[0], RP_TCP_MESSAGE, 1, "x", 1);
		for (polls = 0; te[0].messages < n; polls++) {
			cr_assert_lt(polls, 100, "%d: %d %d %d", n,
				     te[1].messages, te[2].messages,
				     te[3].messages);
			rp_rc_poll(t.rc, 64);
		}
	}
	for (int i = 1; i <= FLOODS; i++) {
		shutdown(fd[i], SHUT_RDWR);
		pthread_join(thread[i - 1], NULL);
		close(fd[i]);
		rp_channel_close(te[i].c);
	}
	raw_close(&t, te, fd[0]);
}

/*
 * A socket that accepts all bytes, like one whose reader is at least as fast as
 * this end; -1: none. `taken` counts the bytes.
 */
static int endless_fd = -1;
static size_t taken_bytes;

ssize_t __real_send(int fd, const void *buf, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags)
{
	if (fd != endless_fd)
		return __real_send(fd, buf, len, flags);
	taken_bytes += len;
	return (ssize_t)len;
}

ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	size_t len = 0;

	if (fd != endless_fd)
		return __real_sendmsg(fd, m, flags);
	for (size_t i = 0; i < m->msg_iovlen; i++)
		len += m->msg_iov[i].iov_len;
	taken_bytes += len;
	return (ssize_t)len;
}

/* A poll sends a bounded number of bytes, even to a very fast reader. */
Test(rc_tcp, no_poll_sends_without_end)
{
	const size_t huge = 1ul << 30;
	void *memory = mmap(NULL, huge, PROT_READ,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct rp_rc_mr mr;
	struct node t = {0};
	struct end te = {0};
	int fd = raw_pair(&t, &te);
	size_t before;

	rp_rc_reg(t.rc, memory, huge, RP_RC_REMOTE_READ, &mr);
	endless_fd = rp_container_of(te.c, struct tcp_channel, c.base)->fd;
	raw_rma(fd, RP_TCP_READ, &mr, 0, huge);
	while (taken_bytes < huge) {
		before = taken_bytes;
		rp_rc_poll(t.rc, 64);
		cr_assert_lt(taken_bytes - before, 64u << 20);
	}
	endless_fd = -1;
	rp_rc_dereg(t.rc, &mr);
	raw_close(&t, &te, fd);
	munmap(memory, huge);
}

/* --- a hostile target --- */

struct server {
	int listener, fd;
	struct node i;
	struct end ie;
};

static void server_open(struct server *s)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	struct node to = {0};

	memset(s, 0, sizeof(*s));
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	s->listener = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_eq(bind(s->listener, (struct sockaddr *)&at, len), 0);
	cr_assert_eq(listen(s->listener, 1), 0);
	cr_assert_eq(getsockname(s->listener, (struct sockaddr *)&at, &len), 0);
	to.at = at;
	node_open(&s->i);
	cr_assert_eq(node_connect(&s->i, &to, &s->ie), 0);
	s->fd = accept(s->listener, NULL, NULL);
	cr_assert_geq(s->fd, 0);
	for (int n = 0; n < 100; n++)
		rp_rc_poll(s->i.rc, 64);
}

static void server_accept(struct server *s)
{
	raw_frame(s->fd, RP_TCP_ACCEPT, 7, "welcome", 7);
	PUMP1(&s->i, s->ie.connected);
}

static void server_close(struct server *s)
{
	close(s->fd);
	close(s->listener);
	rp_channel_close(s->ie.c);
	rp_rc_close(s->i.rc);
}

Test(rc_tcp, malformed_reply_ends_the_attempt)
{
	static const enum rp_tcp_type wrong[] = {RP_TCP_CONNECT, RP_TCP_MESSAGE,
						 RP_TCP_DATA, RP_TCP_PLACED};
	struct server s;

	for (int j = 0; j < 4; j++) {
		server_open(&s);
		raw_frame(s.fd, wrong[j], 3, "abc", 3);
		PUMP1(&s.i, s.ie.lost);
		cr_assert_eq(s.ie.err, EPROTO);
		cr_assert_eq(s.ie.connected + s.ie.messages, 0);
		server_close(&s);
	}
	server_open(&s);
	raw_send(s.fd, "HTTP/1.1 400 Bad Request\r\n", 26);
	PUMP1(&s.i, s.ie.lost);
	cr_assert_eq(s.ie.err, EPROTO);
	server_close(&s);
	server_open(&s);
	close(s.fd);
	s.fd = -1;
	PUMP1(&s.i, s.ie.lost);
	cr_assert_eq(s.ie.err, ECONNRESET);
	server_close(&s);
}

/* Replies of the target that match neither operation. */
static void wrong_reply(struct server *s, int which)
{
	uint8_t bytes[SMALL] = {1};

	switch (which) {
	case 0: /* reply to the second operation first */
		raw_frame(s->fd, RP_TCP_DATA, SMALL, bytes, SMALL);
		break;
	case 1:
		raw_frame(s->fd, RP_TCP_PLACED, 2, NULL, 0);
		break;
	case 2:
		raw_frame(s->fd, RP_TCP_PLACED, UINT64_MAX, NULL, 0);
		break;
	case 3:
		raw_frame(s->fd, RP_TCP_PLACED, 1, NULL, 0);
		raw_frame(s->fd, RP_TCP_DATA, SMALL - 1, bytes, SMALL - 1);
		break;
	case 4:
		raw_frame(s->fd, RP_TCP_PLACED, 1, NULL, 0);
		raw_frame(s->fd, RP_TCP_DATA, SMALL, bytes, SMALL);
		raw_frame(s->fd, RP_TCP_DATA, SMALL, bytes, SMALL);
		break;
	default:
		raw_frame(s->fd, RP_TCP_REJECT, 0, NULL, 0);
	}
}

Test(rc_tcp, wrong_replies_end_the_connection)
{
	for (int which = 0; which < 6; which++) {
		uint8_t from[SMALL] = {0}, to[SMALL] = {0};
		struct server s;
		struct op w, r;

		server_open(&s);
		server_accept(&s);
		op_init(&w, RP_CHANNEL_WRITE, from, SMALL);
		w.op.delivered = true;
		op_init(&r, RP_CHANNEL_READ, to, SMALL);
		op_post(s.ie.c, &w);
		op_post(s.ie.c, &r);
		wrong_reply(&s, which);
		PUMP1(&s.i, s.ie.lost);
		cr_assert_eq(w.done, 1);
		cr_assert_eq(r.done, 1);
		cr_assert_eq(!w.err, which && which < 5, "%d", which);
		cr_assert_eq(!r.err, which == 4, "%d", which);
		server_close(&s);
	}
}

/* A reply to a frame that was not sent yet must not free the frame. */
Test(rc_tcp, replies_before_the_request_end_the_connection)
{
	uint8_t bytes[200] = {0}, to[SMALL];
	const struct tcp_channel *t;
	struct server s;
	struct op m, r;

	server_open(&s);
	server_accept(&s);
	t = (const struct tcp_channel *)s.ie.c;
	while (t->nqueued < 10) {
		op_init(&m, RP_CHANNEL_SEND, bytes, sizeof(bytes));
		m.op.inject = true;
		op_post(s.ie.c, &m);
	}
	op_init(&r, RP_CHANNEL_READ, to, SMALL);
	op_post(s.ie.c, &r);
	raw_frame(s.fd, RP_TCP_DATA, SMALL, bytes, SMALL);
	PUMP1(&s.i, s.ie.lost || r.done);
	cr_assert_eq(r.done, 1);
	cr_assert_neq(r.err, 0);
	server_close(&s);
}

/*
 * A closed connection sends its unsent bytes later, or, if it was to abort,
 * never, even if a child inherited the socket.
 */
Test(rc_tcp, an_aborted_connection_sends_nothing_more)
{
	for (uint32_t flag = 0; flag <= RP_CHANNEL_ABORTS;
	     flag += RP_CHANNEL_ABORTS) {
		uint8_t *bytes = calloc(1, LARGE);
		struct server s;
		struct op w;
		ssize_t n;
		int child;

		server_open(&s);
		server_accept(&s);
		op_init(&w, RP_CHANNEL_WRITE, bytes, LARGE);
		op_post(s.ie.c, &w);
		child = dup(((struct tcp_channel *)s.ie.c)->fd);
		s.ie.c->flags |= flag;
		rp_channel_close(s.ie.c);
		cr_assert_eq(w.done, 1);
		while ((n = recv(s.fd, bytes, LARGE, 0)) > 0)
			;
		cr_assert_eq(n, flag ? -1 : 0);
		cr_assert(!flag || errno == ECONNRESET);
		close(child);
		close(s.fd);
		close(s.listener);
		rp_rc_close(s.i.rc);
		free(bytes);
	}
}
