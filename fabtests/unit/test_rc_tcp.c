// SPDX-License-Identifier: BSD-2-Clause
/* Private connections over TCP whose peer is hostile or fails. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/wire.h"
#include "rc/rc_tcp.h"
#include "unit/rc_rig.h"

#define SECOND	       1000000000ull
#define LARGE	       (8u << 20)
#define PUMP1(n, cond) PUMP(n, n, cond)
/* cond must become true within 20000 polls, long before any deadline. */
#define SOON(n, cond)                                                          \
	do {                                                                   \
		for (int polls_ = 0; !(cond); polls_++) {                      \
			cr_assert_lt(polls_, 20000, "never: " #cond);          \
			rp_rc_poll((n)->rc, 64);                               \
		}                                                              \
	} while (0)

/* --- the other end: a plain socket --- */

static int raw_connect(const struct node *n)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	cr_assert_geq(fd, 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	cr_assert_eq(
		connect(fd, (const struct sockaddr *)&n->at, sizeof(n->at)), 0);
	return fd;
}

static void raw_send(int fd, const void *bytes, size_t len)
{
	cr_assert_eq(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void raw_frame(int fd, enum rp_tcp_type type, uint64_t length,
		      const void *data, size_t len)
{
	const struct tcp_head h = {.type = type, .length = length};
	struct rp_tcp_rma hdr;

	raw_send(fd, &hdr, rp_tcp_put(&hdr, &h));
	if (len)
		raw_send(fd, data, len);
}

static void raw_rma(int fd, enum rp_tcp_type type, const struct rp_rc_mr *mr,
		    uint64_t addr, uint64_t length)
{
	const struct tcp_head h = {
		.type = type, .length = length, .addr = addr, .rkey = mr->rkey};
	struct rp_tcp_rma hdr;

	raw_send(fd, &hdr, rp_tcp_put(&hdr, &h));
}

/* Whether the peer has closed: recv() returns 0. */
static bool raw_ended(int fd)
{
	uint8_t bytes[4096];
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		;
	return !n || (n < 0 && errno != EAGAIN);
}

/* Open a target whose descriptor can be waited for; kick NULL: the default. */
static void sleeper_open(struct node *t, void (*kick)(void *arg))
{
	struct rp_rc_attr attr = rig_attr(t);

	attr.waits = true;
	if (kick)
		attr.kick = kick;
	node_open_with(t, &attr);
}

/* Open a target that has accepted a plain socket. Returns the socket. */
static int raw_pair(struct node *t, struct end *te)
{
	int fd;

	node_open(t);
	node_listen(t);
	t->accept = te;
	fd = raw_connect(t);
	raw_frame(fd, RP_TCP_CONNECT, 5, "hello", 5);
	PUMP1(t, te->c);
	return fd;
}

static void raw_close(struct node *t, struct end *te, int fd)
{
	close(fd);
	rp_channel_close(te->c);
	rp_rc_close(t->rc);
}

/* --- unverified peers --- */

Test(rc_tcp, silent_peers_are_closed_after_five_seconds)
{
	struct node t = {0};
	int fd;

	node_open(&t);
	node_listen(&t);
	fd = raw_connect(&t);
	raw_send(fd, "RP\2 ", 4);
	PUMP1(&t, rp_rc_deadline(t.rc) != UINT64_MAX);
	cr_assert_not(raw_ended(fd));
	cr_assert_leq(rp_rc_deadline(t.rc), rig_now(&t) + 5 * SECOND);
	t.clock_offset += 6 * SECOND;
	PUMP1(&t, raw_ended(fd));
	cr_assert_eq(rp_rc_deadline(t.rc), UINT64_MAX);
	cr_assert_eq(t.requests + t.withdrawn, 0);
	close(fd);
	rp_rc_close(t.rc);
}

Test(rc_tcp, silent_peers_keep_nobody_out)
{
	struct node t = {0}, i = {0};
	struct end te = {0}, ie = {0};
	int fd[100];

	node_open(&t);
	node_open(&i);
	node_listen(&t);
	t.accept = &te;
	for (int j = 0; j < 100; j++) {
		fd[j] = raw_connect(&t);
		rp_rc_poll(t.rc, 64);
	}
	SOON(&t, raw_ended(fd[0]) && raw_ended(fd[35]));
	cr_assert_not(raw_ended(fd[36]));
	cr_assert_eq(node_connect(&i, &t, &ie), 0);
	PUMP(&i, &t, ie.connected);
	for (int j = 0; j < 100; j++)
		close(fd[j]);
	rp_channel_close(ie.c);
	rp_channel_close(te.c);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
}

Test(rc_tcp, malformed_connect_ends_the_connection)
{
	struct rp_tcp_hdr h;
	struct node t = {0};
	int fd;

	node_open(&t);
	node_listen(&t);
	for (int j = 0; j < 7; j++) {
		h = (struct rp_tcp_hdr){
			.magic = htole16(RP_WIRE_MAGIC),
			.version = RP_WIRE_VERSION,
			.type = RP_TCP_CONNECT,
			.length = htole64(0),
		};
		switch (j) {
		case 0:
			h.magic ^= 1;
			break;
		case 1:
			h.type = 0;
			break;
		case 2:
			h.type = RP_TCP_ACCEPT;
			break;
		case 3:
			h.type = RP_TCP_MESSAGE;
			break;
		case 4:
			h.flags = 1;
			break;
		case 5:
			h.version++;
			break;
		default:
			h.length = htole64(257);
		}
		fd = raw_connect(&t);
		raw_send(fd, &h, sizeof(h));
		SOON(&t, raw_ended(fd));
		close(fd);
	}
	cr_assert_eq(t.requests, 0);
	rp_rc_close(t.rc);
}

Test(rc_tcp, a_connect_may_come_byte_by_byte)
{
	struct tcp_head h = {.type = RP_TCP_CONNECT, .length = 3};
	struct node t = {.hold = true};
	struct rp_tcp_rma hdr;
	uint8_t bytes[sizeof(struct rp_tcp_hdr) + 3] = {0};
	int fd;

	node_open(&t);
	node_listen(&t);
	fd = raw_connect(&t);
	memcpy(bytes, &hdr, rp_tcp_put(&hdr, &h));
	memcpy(bytes + sizeof(struct rp_tcp_hdr), "abc", 3);
	for (size_t j = 0; j < sizeof(bytes); j++) {
		cr_assert_eq(t.requests, 0);
		raw_send(fd, bytes + j, 1);
		for (int k = 0; k < 70; k++)
			rp_rc_poll(t.rc, 64);
	}
	PUMP1(&t, t.requests);
	cr_assert_eq(t.last_data_len, 3);
	cr_assert_eq(memcmp(t.last_data, "abc", 3), 0);
	close(fd);
	PUMP1(&t, t.withdrawn);
	rp_rc_close(t.rc);
}

Test(rc_tcp, peer_that_leaves_before_the_reply_is_gone)
{
	struct node t = {.hold = true};
	int fd;

	node_open(&t);
	node_listen(&t);
	fd = raw_connect(&t);
	raw_frame(fd, RP_TCP_CONNECT, 5, "hello", 5);
	PUMP1(&t, t.requests);
	cr_assert_eq(t.withdrawn, 0);
	raw_frame(fd, RP_TCP_MESSAGE, 1, "x", 1);
	SOON(&t, t.withdrawn);
	cr_assert_null(t.request[0]);
	PUMP1(&t, raw_ended(fd));
	close(fd);
	rp_rc_close(t.rc);
}

/* A listener that lacks file descriptors must not be polled in a busy loop. */
Test(rc_tcp, without_descriptors_connections_wait)
{
	struct rlimit few, was;
	struct node t = {0};
	struct end te = {0};
	struct pollfd fd = {.events = POLLIN};
	int raw, spare;

	sleeper_open(&t, NULL);
	node_listen(&t);
	t.accept = &te;
	fd.fd = rp_rc_fd(t.rc);
	raw = raw_connect(&t);
	raw_frame(raw, RP_TCP_CONNECT, 5, "hello", 5);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
	spare = dup(0);
	few = (struct rlimit){.rlim_cur = (rlim_t)spare,
			      .rlim_max = was.rlim_max};
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	PUMP1(&t, rp_rc_deadline(t.rc) != UINT64_MAX);
	cr_assert_eq(poll(&fd, 1, 0), 0, "it would wake for ever");
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
	t.clock_offset += SECOND;
	PUMP1(&t, te.c);
	close(spare);
	raw_close(&t, &te, raw);
}

Test(rc_tcp, without_descriptors_open_fails)
{
	struct rlimit few, was;
	struct rp_rc_attr attr;
	struct node t = {0};
	char why[256];
	int zero = fcntl(0, F_GETFD) < 0 ? open("/dev/null", O_RDONLY) : 0;
	int next = dup(0);

	attr = rig_attr(&t);
	attr.waits = true;
	close(next);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
	for (int left = 0; left < 3; left++) {
		few = (struct rlimit){.rlim_cur = (rlim_t)next + (rlim_t)left,
				      .rlim_max = was.rlim_max};
		cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
		cr_assert_eq(rp_rc_open(&attr, &t.rc, why, sizeof(why)),
			     -EMFILE);
		cr_assert_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
		cr_assert(*why);
		cr_assert_geq(fcntl(0, F_GETFD), 0, "it closed another's");
		cr_assert_eq(dup(0), next, "it left one open");
		close(next);
	}
	if (zero)
		close(zero);
}

static int kicks;

static void count_kick(void *arg)
{
	kicks++;
}

/* A thread already waits, without a timeout, when a deadline appears. */
Test(rc_tcp, new_deadline_kicks_a_sleeper)
{
	struct node t = {0};
	int fd;

	sleeper_open(&t, count_kick);
	node_listen(&t);
	while (rp_rc_trywait(t.rc))
		rp_rc_poll(t.rc, 64);
	cr_assert_eq(rp_rc_deadline(t.rc), UINT64_MAX);
	kicks = 0;
	fd = raw_connect(&t);
	PUMP1(&t, rp_rc_deadline(t.rc) != UINT64_MAX);
	cr_assert_geq(kicks, 1);
	close(fd);
	PUMP1(&t, rp_rc_deadline(t.rc) == UINT64_MAX);
	rp_rc_close(t.rc);
}

static uint64_t sources[2];
static int nsources;

static void keep_source(void *arg, void *request, const void *data, size_t len)
{
	struct node *n = arg;

	sources[nsources++] = rp_rc_request_source(request);
	rp_rc_reject(n->rc, request, NULL, 0);
}

/* A listener on IPv6 accepts IPv4 connections, too. */
Test(rc_tcp, each_ipv4_host_is_one_source)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6};
	struct sockaddr_in from = {.sin_family = AF_INET};
	struct rp_rc_attr attr;
	struct node t = {0};
	uint16_t port;
	int fd[2];

	attr = rig_attr(&t);
	attr.requested = keep_source;
	node_open_with(&t, &attr);
	cr_assert_eq(
		rp_rc_listen(t.rc, (struct sockaddr *)&at, sizeof(at), &port),
		0);
	t.at = (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons(port)};
	t.at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (uint32_t i = 0; i < 2; i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM, 0);
		from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (i << 16));
		cr_assert_eq(
			bind(fd[i], (struct sockaddr *)&from, sizeof(from)), 0);
		cr_assert_eq(
			connect(fd[i], (struct sockaddr *)&t.at, sizeof(t.at)),
			0);
		raw_frame(fd[i], RP_TCP_CONNECT, 5, "hello", 5);
		PUMP1(&t, nsources > (int)i);
		close(fd[i]);
	}
	cr_assert_neq(sources[0], sources[1]);
	rp_rc_close(t.rc);
}

static void note_source(void *arg, void *request, const void *data, size_t len)
{
	sources[nsources++] = rp_rc_request_source(request);
}

static void ignore_gone(void *arg, void *request)
{
}

/* Hosts of one IPv6 network are one source, but not those of one link. */
Test(rc_tcp, each_link_local_host_is_one_source)
{
	static const char *const from[] = {"2001:db8::1", "2001:db8::2",
					   "fe80::1", "fe80::2"};
	uint64_t seen[4];
	struct rp_rc_attr attr;
	struct node t = {0};

	attr = rig_attr(&t);
	attr.requested = note_source;
	attr.gone = ignore_gone;
	node_open_with(&t, &attr);
	for (int i = 0; i < 4; i++) {
		struct sockaddr_in6 at = {.sin6_family = AF_INET6};

		inet_pton(AF_INET6, from[i], &at.sin6_addr);
		nsources = 0;
		rp_rc_add_request(t.rc, &at, (struct sockaddr *)&at, NULL, 0);
		seen[i] = sources[0];
		rp_rc_request_gone(t.rc, &at);
	}
	cr_assert_eq(seen[0], seen[1]);
	cr_assert_neq(seen[2], seen[3]);
	cr_assert_neq(seen[0], seen[2]);
	rp_rc_close(t.rc);
}

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

/* --- memory that is deregistered --- */

Test(rc_tcp, closed_region_gets_no_byte_of_an_outstanding_write)
{
	uint8_t *memory = calloc(1, LARGE), *bytes = malloc(LARGE);
	struct rp_rc_mr mr;
	struct node t = {0};
	struct end te = {0};
	int fd = raw_pair(&t, &te);

	memset(bytes, 1, LARGE);
	rp_rc_reg(t.rc, memory, LARGE, RP_RC_REMOTE_WRITE, &mr);
	raw_rma(fd, RP_TCP_WRITE, &mr, 0, LARGE);
	raw_send(fd, bytes, 40000);
	PUMP1(&t, memory[39999]);
	raw_send(fd, bytes, 40000);
	rp_rc_dereg(t.rc, &mr);
	PUMP1(&t, te.lost);
	/* No byte was placed, not even one that had arrived before. */
	cr_assert_eq(memory[40000], 0);
	raw_close(&t, &te, fd);
	free(memory);
	free(bytes);
}

Test(rc_tcp, a_region_that_is_closed_is_read_by_nobody)
{
	static uint8_t bytes[1 << 20];
	uint8_t *memory = calloc(1, LARGE);
	struct rp_rc_mr mr, other;
	struct node t = {0};
	struct end te = {0};
	int fd = raw_pair(&t, &te);
	ssize_t n;

	rp_rc_reg(t.rc, memory, LARGE, RP_RC_REMOTE_READ, &mr);
	rp_rc_reg(t.rc, memory, LARGE, RP_RC_REMOTE_READ, &other);
	for (int i = 0; i < 10; i++)
		raw_rma(fd, RP_TCP_READ, &mr, 0, LARGE);
	/* The message behind the reads arrived, so they were received. */
	raw_frame(fd, RP_TCP_MESSAGE, 1, "x", 1);
	PUMP1(&t, te.messages);
	rp_rc_dereg(t.rc, &other);
	for (int i = 0; i < 100; i++)
		rp_rc_poll(t.rc, 64);
	cr_assert_eq(te.lost, 0, "no read uses that region");
	rp_rc_dereg(t.rc, &mr);
	memset(memory, 1, LARGE);
	PUMP1(&t, te.lost);
	while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		cr_assert_null(memchr(bytes, 1, (size_t)n));
	raw_close(&t, &te, fd);
	free(memory);
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

/* --- several processes, several threads --- */

/* The peer notices the close even if a child inherited the socket. */
Test(rc_tcp, a_child_keeps_no_connection_alive)
{
	struct node t = {0};
	struct end te = {0};
	int fd = raw_pair(&t, &te), hold[2];
	pid_t child;
	char byte;

	cr_assert_eq(pipe(hold), 0);
	child = fork();
	if (!child) {
		close(fd);
		close(hold[1]);
		_exit(read(hold[0], &byte, 1) != 0);
	}
	rp_channel_close(te.c);
	while (recv(fd, &byte, 1, 0) > 0)
		;
	close(hold[1]);
	waitpid(child, NULL, 0);
	close(fd);
	rp_rc_close(t.rc);
}

/* A closed socket is not polled, even if a child inherited it. */
Test(rc_tcp, a_closed_channel_has_no_events_in_spite_of_a_child)
{
	struct pollfd wakes = {.events = POLLIN};
	struct node t = {0};
	struct end te = {0};
	int fd, hold[2];
	pid_t child;
	char byte;

	sleeper_open(&t, NULL);
	node_listen(&t);
	t.accept = &te;
	wakes.fd = rp_rc_fd(t.rc);
	fd = raw_connect(&t);
	raw_frame(fd, RP_TCP_CONNECT, 5, "hello", 5);
	PUMP1(&t, te.c);
	cr_assert_eq(pipe(hold), 0);
	child = fork();
	if (!child) {
		close(hold[1]);
		_exit(read(hold[0], &byte, 1) != 0);
	}
	rp_channel_close(te.c);
	send(fd, "xxxxxxxxxxxxxxxxxxxx", 20, MSG_NOSIGNAL);
	for (int i = 0; i < 1000; i++)
		rp_rc_poll(t.rc, 64);
	while (rp_rc_trywait(t.rc))
		rp_rc_poll(t.rc, 64);
	/* If it were polled, the descriptor would stay readable. */
	cr_assert_eq(poll(&wakes, 1, 100), 0);
	cr_assert_eq(te.lost + te.messages, 0);
	close(hold[1]);
	waitpid(child, NULL, 0);
	close(fd);
	rp_rc_close(t.rc);
}

/* A thread waits already when another posts more than fits the socket. */
Test(rc_tcp, a_socket_with_room_again_wakes_a_sleeper)
{
	uint8_t *bytes = calloc(1, LARGE);
	struct node t = {0}, i = {0};
	struct end te = {0}, ie = {0};
	struct pollfd fd = {.events = POLLIN};
	struct rp_rc_mr mr;
	struct op w[4];

	sleeper_open(&i, NULL);
	node_open(&t);
	node_listen(&t);
	t.accept = &te;
	rp_rc_reg(t.rc, bytes, LARGE, RP_RC_REMOTE_WRITE, &mr);
	cr_assert_eq(node_connect(&i, &t, &ie), 0);
	PUMP(&i, &t, ie.connected);
	while (rp_rc_trywait(i.rc))
		rp_rc_poll(i.rc, 64);
	for (int j = 0; j < 4; j++) {
		op_init(&w[j], RP_CHANNEL_WRITE, bytes, LARGE);
		op_to(&w[j], &mr, 0);
		op_post(ie.c, &w[j]);
	}
	fd.fd = rp_rc_fd(i.rc);
	while (!w[3].done) {
		for (int k = 0; k < 4; k++)
			rp_rc_poll(t.rc, 64);
		cr_assert_eq(poll(&fd, 1, 30000), 1);
		rp_rc_poll(i.rc, 64);
	}
	/* When all is sent, room in the socket does not wake. */
	while (rp_rc_trywait(i.rc))
		rp_rc_poll(i.rc, 64);
	cr_assert_eq(poll(&fd, 1, 100), 0);
	rp_rc_dereg(t.rc, &mr);
	rp_channel_close(ie.c);
	rp_channel_close(te.c);
	rp_rc_close(i.rc);
	rp_rc_close(t.rc);
	free(bytes);
}
