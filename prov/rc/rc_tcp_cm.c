// SPDX-License-Identifier: BSD-2-Clause
/* Private connections over TCP: listen, connect, accept, reject. */
#include "config.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rc/rc_tcp.h"

/* Most half-open sockets without a CONNECT. */
#define MAX_SILENT RP_RC_MAX_HALF_OPEN
/* Delay in ns before accept() is retried after it lacked a descriptor. */
#define ACCEPT_RETRY_NS 100000000ull

/* Tags in the data of cm_fd events; a channel's pointer has no tag. */
#define TAG_HALF_OPEN 1ul
#define TAG_LISTENER  2ul

static int watch_socket(struct tcp_rc *f, int op, int fd, uint32_t events,
			void *what)
{
	struct epoll_event ev = {.events = events, .data.ptr = what};

	return epoll_ctl(f->cm_fd, op, fd, &ev) ? -errno : 0;
}

static struct tcp_half_open *oldest_silent(struct tcp_rc *f)
{
	struct tcp_half_open *q;

	TAILQ_FOREACH (q, &f->half_open, link)
		if (!q->connect_received)
			return q;
	return NULL;
}

/* Set the time when poll_events() is due without an event. */
static void arm_timer(struct tcp_rc *f)
{
	const struct tcp_half_open *q = oldest_silent(f);
	uint64_t due = 0, old;

	if (f->accept_paused)
		due = rp_rc_now(&f->rc) + ACCEPT_RETRY_NS;
	if (q) {
		old = q->born + RP_RC_HALF_OPEN_NS;
		if (!due || old < due)
			due = old;
	}
	rp_rc_set_due(&f->rc, due);
}

/* Disable Nagle's algorithm: a commit is one small frame in each direction. */
static void set_no_delay(int fd)
{
	const int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static int open_socket(int family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	set_no_delay(fd);
	return fd;
}

/* --- frames CONNECT, ACCEPT, REJECT --- */

/* Send a frame; an empty socket buffer has room for all of it. */
static int send_opening(int fd, enum rp_tcp_type type, const void *data,
			size_t len)
{
	const struct tcp_head h = {.type = type, .length = len};
	struct rp_tcp_rma hdr;
	const size_t hdr_len = rp_tcp_put(&hdr, &h);
	struct iovec iov[2] = {{&hdr, hdr_len}, {(void *)data, len}};
	const struct msghdr m = {.msg_iov = iov, .msg_iovlen = len ? 2 : 1};
	ssize_t sent = sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (sent < 0)
		return -errno;
	return (size_t)sent == hdr_len + len ? 0 : -EIO;
}

/*
 * Receive CONNECT, ACCEPT or REJECT, but no later bytes, which are for the
 * channel. 1: complete; 0: not yet; or -errno.
 */
static int read_opening(int fd, struct tcp_opening *in)
{
	size_t want = sizeof(struct rp_tcp_hdr);
	ssize_t got;
	int ret;

	for (;;) {
		ret = rp_tcp_get(in->bytes, in->have, &in->head);
		if (ret > 0)
			want = sizeof(struct rp_tcp_hdr) + in->head.length;
		if (ret < 0 || in->head.type > RP_TCP_REJECT ||
		    (ret && in->head.length > RP_RC_CM_DATA))
			return -EPROTO;
		if (in->have == want)
			return 1;
		got = recv(fd, in->bytes + in->have, want - in->have,
			   MSG_DONTWAIT);
		if (!got)
			return -ECONNRESET;
		if (got < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		in->have += (size_t)got;
	}
}

static const uint8_t *opening_data(const struct tcp_opening *in)
{
	return in->bytes + sizeof(struct rp_tcp_hdr);
}

/* --- listening side --- */

int rp_tcp_listen(struct rp_rc *rc, const union rp_rc_addr *at, size_t len,
		  uint16_t *port)
{
	struct tcp_rc *f = tcp_rc(rc);
	union rp_rc_addr bound = {.sa = {0}};
	socklen_t size = sizeof(bound);
	const int on = 1;
	int fd = open_socket(at->sa.sa_family), ret;

	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, &at->sa, (socklen_t)len) || listen(fd, SOMAXCONN) ||
	    getsockname(fd, &bound.sa, &size))
		ret = -errno;
	else
		ret = watch_socket(f, EPOLL_CTL_ADD, fd, EPOLLIN,
				   (void *)TAG_LISTENER);
	if (ret) {
		close(fd);
		return ret;
	}
	f->listener = fd;
	/* The port has the same offset in both families. */
	*port = ntohs(bound.in.sin_port);
	return 0;
}

/*
 * Watch the listener again, after accept() failed for lack of descriptors: one
 * may be free now. The caller calls arm_timer() next.
 */
static void resume_accept(struct tcp_rc *f)
{
	if (!f->accept_paused)
		return;
	f->accept_paused = false;
	watch_socket(f, EPOLL_CTL_MOD, f->listener, EPOLLIN,
		     (void *)TAG_LISTENER);
}

static void half_open_free(struct tcp_rc *f, struct tcp_half_open *q)
{
	TAILQ_REMOVE(&f->half_open, q, link);
	f->nsilent -= !q->connect_received;
	free(q);
}

static void half_open_close(struct tcp_rc *f, struct tcp_half_open *q)
{
	epoll_ctl(f->cm_fd, EPOLL_CTL_DEL, q->fd, NULL);
	rp_tcp_close(q->fd);
	half_open_free(f, q);
	resume_accept(f);
	arm_timer(f);
}

void rp_tcp_close_half_open(struct tcp_rc *f)
{
	while (!TAILQ_EMPTY(&f->half_open))
		half_open_close(f, TAILQ_FIRST(&f->half_open));
}

static void expire_silent(struct tcp_rc *f)
{
	const uint64_t t = rp_rc_now(&f->rc);
	struct tcp_half_open *q;

	while ((q = oldest_silent(f)) && t - q->born >= RP_RC_HALF_OPEN_NS)
		half_open_close(f, q);
}

/*
 * Ignore the listener's events until arm_timer()'s deadline: accept() lacks a
 * descriptor or memory, and epoll would report the backlog again at once.
 */
static void pause_accept(struct tcp_rc *f)
{
	f->accept_paused = !watch_socket(f, EPOLL_CTL_MOD, f->listener, 0,
					 (void *)TAG_LISTENER);
	arm_timer(f);
}

static void accept_one(struct tcp_rc *f)
{
	struct tcp_half_open *q = calloc(1, sizeof(*q));
	socklen_t len = sizeof(q->peer);

	if (!q) {
		pause_accept(f);
		return;
	}
	q->fd = accept4(f->listener, &q->peer.sa, &len,
			SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (q->fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
		    errno == ENOMEM)
			pause_accept(f);
		free(q);
		return;
	}
	set_no_delay(q->fd);
	q->born = rp_rc_now(&f->rc);
	if (f->nsilent >= MAX_SILENT)
		half_open_close(f, oldest_silent(f));
	if (watch_socket(f, EPOLL_CTL_ADD, q->fd, EPOLLIN,
			 (char *)q + TAG_HALF_OPEN)) {
		close(q->fd);
		free(q);
		return;
	}
	TAILQ_INSERT_TAIL(&f->half_open, q, link);
	f->nsilent++;
	arm_timer(f);
}

static void half_open_event(struct tcp_rc *f, struct tcp_half_open *q)
{
	int ret = q->connect_received ? -EPROTO : read_opening(q->fd, &q->in);

	if (!ret)
		return;
	if (ret > 0 && q->in.head.type == RP_TCP_CONNECT) {
		q->connect_received = true;
		f->nsilent--;
		arm_timer(f);
		rp_rc_add_request(&f->rc, q, &q->peer.sa, opening_data(&q->in),
				  q->in.head.length);
		return;
	}
	/* Error, or input or hang-up before ACCEPT or REJECT was sent. */
	if (q->connect_received)
		rp_rc_request_gone(&f->rc, q);
	half_open_close(f, q);
}

int rp_tcp_accept(struct rp_rc_channel *c, void *handle, const void *data,
		  size_t len)
{
	struct tcp_channel *t = tcp_channel(c);
	struct tcp_rc *f = tcp_rc(c->rc);
	struct tcp_half_open *q = handle;
	int ret;

	STAILQ_INIT(&t->queue);
	t->fd = q->fd;
	c->peer = q->peer;
	epoll_ctl(f->cm_fd, EPOLL_CTL_DEL, t->fd, NULL);
	half_open_free(f, q);
	ret = rp_rc_pool_grow(c->rc);
	if (!ret)
		ret = send_opening(t->fd, RP_TCP_ACCEPT, data, len);
	return ret ? ret : rp_tcp_open_channel(t);
}

void rp_tcp_reject(struct rp_rc *rc, void *handle, const void *data, size_t len)
{
	struct tcp_half_open *q = handle;

	send_opening(q->fd, RP_TCP_REJECT, data, len);
	half_open_close(tcp_rc(rc), q);
}

/* --- connecting side --- */

int rp_tcp_connect(struct rp_rc_channel *c, size_t addr_len, const void *data,
		   size_t len)
{
	struct tcp_channel *t = tcp_channel(c);
	struct tcp_opening *o = calloc(1, sizeof(*o));
	int ret;

	STAILQ_INIT(&t->queue);
	t->fd = open_socket(c->peer.sa.sa_family);
	if (t->fd < 0 || !o) {
		free(o);
		return t->fd < 0 ? t->fd : -ENOMEM;
	}
	t->opening = o;
	/* Keep the CONNECT's data until the socket is connected. */
	o->have = len;
	memcpy(o->bytes, data, len);
	if (connect(t->fd, &c->peer.sa, (socklen_t)addr_len) &&
	    errno != EINPROGRESS)
		t->connect_err = errno;
	ret = watch_socket(tcp_rc(c->rc), EPOLL_CTL_ADD, t->fd,
			   EPOLLIN | EPOLLOUT, t);
	return ret ? ret : rp_rc_pool_grow(c->rc);
}

/* connect() has completed: send CONNECT. 0 or -errno. */
static int send_connect(struct tcp_channel *t)
{
	struct tcp_opening *o = t->opening;
	socklen_t len = sizeof(int);
	int err = t->connect_err, ret;

	if (!err && getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &err, &len))
		err = errno;
	ret = -err ?: send_opening(t->fd, RP_TCP_CONNECT, o->bytes, o->have)
			   ?: watch_socket(tcp_rc(t->c.rc), EPOLL_CTL_MOD,
					   t->fd, EPOLLIN, t);
	t->connect_sent = true;
	memset(o, 0, sizeof(*o));
	return ret;
}

/* Handle the target's ACCEPT or REJECT. 0 or -errno. */
static int take_connect_reply(struct tcp_channel *t)
{
	struct tcp_opening *o = t->opening;
	int ret;

	if (o->head.type == RP_TCP_REJECT)
		rp_rc_end_channel(&t->c, ECONNREFUSED, opening_data(o),
				  o->head.length);
	if (o->head.type != RP_TCP_ACCEPT)
		return -EPROTO;
	epoll_ctl(tcp_rc(t->c.rc)->cm_fd, EPOLL_CTL_DEL, t->fd, NULL);
	ret = rp_tcp_open_channel(t);
	if (ret)
		return ret;
	t->opening = NULL;
	rp_rc_set_connected(&t->c, opening_data(o), o->head.length);
	free(o);
	return 0;
}

static void channel_event(struct tcp_channel *t)
{
	int ret;

	if (t->c.state != RP_RC_CONNECTING)
		return;
	ret = t->connect_sent ? read_opening(t->fd, t->opening)
			      : send_connect(t);
	if (ret > 0)
		ret = take_connect_reply(t);
	if (ret)
		rp_rc_end_channel(&t->c, -ret, NULL, 0);
}

int rp_tcp_poll_events(struct rp_rc *rc, int max)
{
	struct tcp_rc *f = tcp_rc(rc);
	struct epoll_event ev;
	uintptr_t what;
	int n = 0;

	if (f->rc.due && rp_rc_now(&f->rc) >= f->rc.due) {
		resume_accept(f);
		expire_silent(f);
		arm_timer(f);
	}
	/* One event per call: a callback may close the next one's channel. */
	while (n < max && epoll_wait(f->cm_fd, &ev, 1, 0) == 1) {
		what = (uintptr_t)ev.data.ptr;
		n++;
		if (what == TAG_LISTENER)
			accept_one(f);
		else if (what & TAG_HALF_OPEN)
			half_open_event(
				f,
				(struct tcp_half_open *)(what - TAG_HALF_OPEN));
		else
			channel_event(ev.data.ptr);
	}
	return n;
}
