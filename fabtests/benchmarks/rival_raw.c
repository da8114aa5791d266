// SPDX-License-Identifier: BSD-2-Clause
/* TCP without libfabric: the target echoes the bytes; both sides poll. */
#include "config.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/benchmarks/rival.h"

#define CHUNK 65536u

struct rival_end {
	int listener, fd; /* -1: none */
	size_t at, have;  /* target: in buf, not echoed yet */
	char buf[CHUNK];
};

static void raw_close(struct rival_end *e)
{
	if (e->fd >= 0)
		close(e->fd);
	if (e->listener >= 0)
		close(e->listener);
	free(e);
}

static struct rival_end *end_new(void)
{
	struct rival_end *e = calloc(1, sizeof(*e));

	if (e)
		e->listener = e->fd = -1;
	return e;
}

static int raw_serve(const struct rival_cfg *cfg, struct rival_page *page,
		     struct rival_end **end, char *err)
{
	struct sockaddr_in sa = {.sin_family = AF_INET};
	socklen_t len = sizeof(sa);
	struct rival_end *e = end_new();
	int ret;

	if (!e)
		return rp_err(err, -ENOMEM, "out of memory");
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	e->listener =
		socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (e->listener < 0 ||
	    bind(e->listener, (struct sockaddr *)&sa, sizeof(sa)) ||
	    listen(e->listener, 1) ||
	    getsockname(e->listener, (struct sockaddr *)&sa, &len)) {
		ret = rp_err(err, -errno, "listening: %s", strerror(errno));
		raw_close(e);
		return ret;
	}
	memcpy(page->target, &sa, sizeof(sa));
	page->target_len = sizeof(sa);
	*end = e;
	return 0;
}

static int no_delay(int fd)
{
	int one = 1;

	return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static int raw_poll(struct rival_end *e, char *err)
{
	ssize_t n;

	if (e->fd < 0) {
		e->fd = accept4(e->listener, NULL, NULL,
				SOCK_CLOEXEC | SOCK_NONBLOCK);
		return e->fd >= 0 ? no_delay(e->fd) : 0;
	}
	if (!e->have) {
		n = recv(e->fd, e->buf, CHUNK, MSG_DONTWAIT);
		if (n <= 0)
			return 0; /* nothing yet, or the initiator has gone */
		e->have = (size_t)n;
	}
	n = send(e->fd, e->buf + e->at, e->have - e->at,
		 MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n > 0)
		e->at += (size_t)n;
	if (e->at == e->have)
		e->at = e->have = 0;
	return 0;
}

static int raw_open(const struct rival_cfg *cfg, struct rival_page *page,
		    struct rival_end **end, char *err)
{
	struct rival_end *e = end_new();
	int ret;

	if (!e)
		return rp_err(err, -ENOMEM, "out of memory");
	e->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (e->fd < 0 ||
	    connect(e->fd, (struct sockaddr *)page->target,
		    (socklen_t)page->target_len) ||
	    no_delay(e->fd)) {
		ret = rp_err(err, -errno, "connecting: %s", strerror(errno));
		raw_close(e);
		return ret;
	}
	*end = e;
	return 0;
}

static int raw_put(struct rival_end *e, const void *buf, uint64_t off,
		   uint64_t size, char *err)
{
	uint64_t sent = 0, back = 0;
	ssize_t n;

	while (back < size) {
		if (sent < size) {
			n = send(e->fd, (const char *)buf + sent, size - sent,
				 MSG_DONTWAIT | MSG_NOSIGNAL);
			if (n > 0)
				sent += (uint64_t)n;
			else if (errno != EAGAIN)
				return rp_err(err, -errno, "send: %s",
					      strerror(errno));
		}
		n = recv(e->fd, e->buf, CHUNK, MSG_DONTWAIT);
		if (n == 0)
			return rp_err(err, -ECONNRESET, "the target has gone");
		if (n > 0)
			back += (uint64_t)n;
		else if (errno != EAGAIN)
			return rp_err(err, -errno, "recv: %s", strerror(errno));
	}
	return 0;
}

const struct rival rival_raw = {
	.name = "raw_echo",
	.title = "raw TCP echo, nothing durable",
	.max = 4u << 20,
	.serve = raw_serve,
	.poll = raw_poll,
	.open = raw_open,
	.put = raw_put,
	.close = raw_close,
};
