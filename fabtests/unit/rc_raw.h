/* SPDX-License-Identifier: BSD-2-Clause */
/* A plain socket that is the other end of a private connection over TCP. */
#ifndef RC_RAW_H
#define RC_RAW_H

#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rc/rc_tcp.h"
#include "unit/rc_rig.h"

#define PUMP1(n, cond) PUMP(n, n, cond)
/* cond must become true within 20000 polls, long before any deadline. */
#define SOON(n, cond)                                                          \
	do {                                                                   \
		for (int polls_ = 0; !(cond); polls_++) {                      \
			cr_assert_lt(polls_, 20000, "never: " #cond);          \
			rp_rc_poll((n)->rc, 64);                               \
		}                                                              \
	} while (0)

static inline int raw_connect(const struct node *n)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	cr_assert_geq(fd, 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	cr_assert_eq(
		connect(fd, (const struct sockaddr *)&n->at, sizeof(n->at)), 0);
	return fd;
}

static inline void raw_send(int fd, const void *bytes, size_t len)
{
	cr_assert_eq(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

static inline void raw_frame(int fd, enum rp_tcp_type type, uint64_t length,
			     const void *data, size_t len)
{
	const struct tcp_head h = {.type = type, .length = length};
	struct rp_tcp_rma hdr;

	raw_send(fd, &hdr, rp_tcp_put(&hdr, &h));
	if (len)
		raw_send(fd, data, len);
}

static inline void raw_rma(int fd, enum rp_tcp_type type,
			   const struct rp_rc_mr *mr, uint64_t addr,
			   uint64_t length)
{
	const struct tcp_head h = {
		.type = type, .length = length, .addr = addr, .rkey = mr->rkey};
	struct rp_tcp_rma hdr;

	raw_send(fd, &hdr, rp_tcp_put(&hdr, &h));
}

/* Whether the peer has closed: recv() returns 0. */
static inline bool raw_ended(int fd)
{
	uint8_t bytes[4096];
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		;
	return !n || (n < 0 && errno != EAGAIN);
}

/* Open a target that has accepted a plain socket. Returns the socket. */
static inline int raw_pair(struct node *t, struct end *te)
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

static inline void raw_close(struct node *t, struct end *te, int fd)
{
	close(fd);
	rp_channel_close(te->c);
	rp_rc_close(t->rc);
}

#endif
