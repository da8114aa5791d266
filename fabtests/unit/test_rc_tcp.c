// SPDX-License-Identifier: BSD-2-Clause
/* Private connections over TCP whose peer is silent, fails or leaves. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/wire.h"
#include "unit/rc_raw.h"

#define SECOND 1000000000ull
#define LARGE  (8u << 20)

/* Open a target whose descriptor can be waited for; kick NULL: the default. */
static void sleeper_open(struct node *t, void (*kick)(void *arg))
{
	struct rp_rc_attr attr = rig_attr(t);

	attr.waits = true;
	if (kick)
		attr.kick = kick;
	node_open_with(t, &attr);
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

/*
 * Hosts of one IPv6 network are one source, and so are all of a link: each may
 * choose any identifier, so that a guesser would have as many sources.
 */
Test(rc_tcp, each_ipv6_network_is_one_source)
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
	cr_assert_eq(seen[2], seen[3]);
	cr_assert_neq(seen[0], seen[2]);
	rp_rc_close(t.rc);
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
