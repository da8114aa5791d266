// SPDX-License-Identifier: BSD-2-Clause
/*
 * One end of a private connection over TCP, target or initiator, frame by
 * frame.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fault/frame_peer.h"
#include "rc/rc_tcp_frame.h"

#define SEND_MS 2000
#define HDR	sizeof(struct rp_tcp_hdr)

/*
 * An accepted socket whose CONNECT frame is not complete, or not yet accepted
 * or rejected.
 */
struct frame_call {
	LIST_ENTRY(frame_call) link;
	int fd;
	bool requested;
	size_t len;
	uint8_t in[HDR + FRAME_DATA];
};

uint64_t frame_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t wire_get(const uint8_t *p, int n)
{
	uint64_t v = 0;

	while (n-- > 0)
		v = v << 8 | p[n];
	return v;
}

void wire_put(uint8_t *p, int n, uint64_t v)
{
	for (; n > 0; n--, v >>= 8)
		*p++ = (uint8_t)v;
}

void frame_open(struct frame_peer *p, const struct frame_events *events)
{
	memset(p, 0, sizeof(*p));
	LIST_INIT(&p->conns);
	LIST_INIT(&p->calls);
	p->listener = -1;
	p->events = events;
	p->open = true;
}

static void call_free(struct frame_call *call)
{
	LIST_REMOVE(call, link);
	free(call);
}

void frame_close(struct frame_peer *p)
{
	struct frame_call *call;

	while ((call = LIST_FIRST(&p->calls))) {
		close(call->fd);
		call_free(call);
	}
	if (p->listener >= 0)
		close(p->listener);
	p->open = false;
}

static int no_wait(int fd)
{
	if (fd < 0 || fcntl(fd, F_SETFL, O_NONBLOCK))
		MUST(-errno);
	return fd;
}

bool frame_listen(struct frame_peer *p, uint16_t port)
{
	const struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(p->at);
	const int on = 1;
	int fd = no_wait(socket(AF_INET, SOCK_STREAM, 0));

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) ||
	    listen(fd, 128)) {
		close(fd);
		return false;
	}
	MUST(getsockname(fd, (struct sockaddr *)&p->at, &len) ? -errno : 0);
	p->listener = fd;
	return true;
}

void frame_serve(struct frame_peer *p, void *memory, size_t len, uint64_t rkey)
{
	p->memory = memory;
	p->memory_len = len;
	p->rkey = rkey;
}

/* --- connections --- */

static void end_connection(struct frame_conn *c, int err)
{
	if (c->state == FRAME_ENDED)
		return;
	c->state = FRAME_ENDED;
	c->err = err;
}

static void flush_output(struct frame_conn *c)
{
	ssize_t n;

	if (!c->out_len || c->state == FRAME_ENDED)
		return;
	n = send(c->fd, c->out, c->out_len, MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN && errno != EINPROGRESS &&
	    errno != ENOTCONN)
		end_connection(c, errno);
	if (n <= 0)
		return;
	c->out_len -= (size_t)n;
	memmove(c->out, c->out + n, c->out_len);
}

/* Queue a frame for sending. Returns false if the buffer has no room. */
static bool queue_frame(struct frame_conn *c, const struct tcp_head *h,
			const void *data, size_t len)
{
	struct rp_tcp_rma hdr;
	const size_t n = rp_tcp_put(&hdr, h);

	if (c->out_len + n + len > sizeof(c->out))
		return false;
	memcpy(c->out + c->out_len, &hdr, n);
	if (len)
		memcpy(c->out + c->out_len + n, data, len);
	c->out_len += n + len;
	flush_output(c);
	return true;
}

static bool put_data(struct frame_conn *c, enum rp_tcp_type type,
		     const void *data, size_t len)
{
	const struct tcp_head h = {.type = type, .length = len};

	return queue_frame(c, &h, data, len);
}

static struct frame_conn *conn_new(struct frame_peer *p, int fd)
{
	struct frame_conn *c = calloc(1, sizeof(*c));

	if (!c)
		MUST(-FI_ENOMEM);
	c->peer = p;
	c->fd = no_wait(fd);
	LIST_INSERT_HEAD(&p->conns, c, link);
	return c;
}

struct frame_conn *frame_dial(struct frame_peer *p,
			      const struct sockaddr_in *to, const void *data,
			      size_t len)
{
	struct frame_conn *c = conn_new(p, socket(AF_INET, SOCK_STREAM, 0));

	if (connect(c->fd, (const struct sockaddr *)to, sizeof(*to)) &&
	    errno != EINPROGRESS)
		end_connection(c, errno);
	put_data(c, RP_TCP_CONNECT, data, len);
	return c;
}

struct frame_conn *frame_accept(struct frame_peer *p, struct frame_call *call,
				const void *data, size_t len)
{
	struct frame_conn *c = conn_new(p, call->fd);

	call_free(call);
	c->state = FRAME_UP;
	c->was_up = true;
	put_data(c, RP_TCP_ACCEPT, data, len);
	if (c->state == FRAME_UP)
		return c;
	frame_end(c);
	return NULL;
}

void frame_reject(struct frame_peer *p, struct frame_call *call,
		  const void *data, size_t len)
{
	struct frame_conn *c = conn_new(p, call->fd);

	call_free(call);
	put_data(c, RP_TCP_REJECT, data, len);
	frame_end(c);
}

void frame_end(struct frame_conn *c)
{
	LIST_REMOVE(c, link);
	close(c->fd);
	free(c);
}

void frame_shut(struct frame_conn *c)
{
	shutdown(c->fd, SHUT_RDWR);
}

/* --- frames received --- */

static void take_open(struct frame_conn *c, const struct tcp_head *h,
		      const uint8_t *data, size_t len)
{
	if (len > sizeof(c->data)) {
		end_connection(c, EMSGSIZE);
		return;
	}
	c->data_len = len;
	memcpy(c->data, data, len);
	if (h->type == RP_TCP_REJECT) {
		end_connection(c, ECONNREFUSED);
	} else if (h->type == RP_TCP_ACCEPT) {
		c->state = FRAME_UP;
		c->was_up = true;
	} else {
		end_connection(c, EPROTO);
	}
}

static void execute_rma(struct frame_conn *c, const struct tcp_head *h,
			const uint8_t *data)
{
	const struct frame_peer *p = c->peer;
	const struct tcp_head placed = {.type = RP_TCP_PLACED, .length = 1};

	if (h->rkey != p->rkey || h->addr > p->memory_len ||
	    h->length > p->memory_len - h->addr) {
		end_connection(c, EACCES);
		return;
	}
	if (h->type == RP_TCP_READ) {
		put_data(c, RP_TCP_DATA, p->memory + h->addr, h->length);
		return;
	}
	memcpy(p->memory + h->addr, data, h->length);
	if (h->acknowledged)
		queue_frame(c, &placed, NULL, 0);
}

/* Handle a complete frame, whose data next_frame() has copied. */
static void handle_frame(struct frame_conn *c, const struct tcp_head *h,
			 const uint8_t *data, size_t len)
{
	const struct frame_events *ev = c->peer->events;

	if (c->state == FRAME_CONNECTING) {
		take_open(c, h, data, len);
		return;
	}
	switch (h->type) {
	case RP_TCP_MESSAGE:
		if (ev && ev->received)
			ev->received(c, data, len);
		break;
	case RP_TCP_WRITE:
	case RP_TCP_READ:
		execute_rma(c, h, data);
		break;
	case RP_TCP_PLACED:
		c->placed += (unsigned int)h->length;
		break;
	case RP_TCP_DATA:
		if (!c->sink || len != c->sink_len) {
			end_connection(c, EPROTO);
			return;
		}
		memcpy(c->sink, data, len);
		c->sink = NULL;
		break;
	default:
		end_connection(c, EPROTO);
	}
}

/* Handle the next frame of the input. Returns false if it is incomplete. */
static bool next_frame(struct frame_conn *c)
{
	static uint8_t copies[4][FRAME_MAX];
	static unsigned int depth;
	struct tcp_head h;
	size_t hdr, len;
	uint8_t *data;
	int ret = rp_tcp_get(c->in, c->in_len, &h);

	if (ret <= 0) {
		if (ret)
			end_connection(c, EPROTO);
		return false;
	}
	hdr = rp_tcp_head_len(h.type);
	len = h.type == RP_TCP_READ || h.type == RP_TCP_PLACED ? 0 : h.length;
	if (len > FRAME_MAX) {
		end_connection(c, EMSGSIZE);
		return false;
	}
	if (c->in_len < hdr + len || depth == 4)
		return false;
	/*
	 * Copy the data, because a callback may send: sending polls, and a poll
	 * moves the input.
	 */
	data = copies[depth++];
	memcpy(data, c->in + hdr, len);
	c->in_len -= hdr + len;
	memmove(c->in, c->in + hdr + len, c->in_len);
	handle_frame(c, &h, data, len);
	depth--;
	return true;
}

static bool poll_conn(struct frame_conn *c)
{
	bool any = false;
	ssize_t n;

	flush_output(c);
	while (c->state != FRAME_ENDED && next_frame(c))
		any = true;
	if (c->state == FRAME_ENDED || c->in_len == sizeof(c->in))
		return any;
	n = recv(c->fd, c->in + c->in_len, sizeof(c->in) - c->in_len,
		 MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == ENOTCONN))
		return any;
	if (n <= 0) {
		end_connection(c, n ? errno : ECONNRESET);
		return true;
	}
	c->in_len += (size_t)n;
	while (c->state != FRAME_ENDED && next_frame(c))
		;
	return true;
}

static bool poll_call(struct frame_peer *p, struct frame_call *call)
{
	struct tcp_head h;
	ssize_t n;

	if (call->requested)
		return false;
	n = recv(call->fd, call->in + call->len, sizeof(call->in) - call->len,
		 MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return false;
	call->len += n > 0 ? (size_t)n : 0;
	if (n <= 0 || rp_tcp_get(call->in, call->len, &h) < 0) {
		close(call->fd);
		call_free(call);
	} else if (rp_tcp_get(call->in, call->len, &h) > 0 &&
		   call->len >= HDR + h.length) {
		call->requested = true;
		if (p->events && p->events->requested)
			p->events->requested(p, call, call->in + HDR, h.length);
		else
			frame_reject(p, call, NULL, 0);
	}
	return true;
}

static bool poll_listener(struct frame_peer *p)
{
	int fd = p->listener < 0 ? -1 : accept(p->listener, NULL, NULL);
	struct frame_call *call;

	if (fd < 0)
		return false;
	call = calloc(1, sizeof(*call));
	if (!call)
		MUST(-FI_ENOMEM);
	call->fd = no_wait(fd);
	LIST_INSERT_HEAD(&p->calls, call, link);
	return true;
}

bool frame_poll(struct frame_peer *p)
{
	struct frame_conn *c, *next_c;
	struct frame_call *call, *next_call;
	bool any = poll_listener(p);

	for (call = LIST_FIRST(&p->calls); call; call = next_call) {
		next_call = LIST_NEXT(call, link);
		any |= poll_call(p, call);
	}
	for (c = LIST_FIRST(&p->conns); c; c = next_c) {
		next_c = LIST_NEXT(c, link);
		any |= poll_conn(c);
	}
	return any;
}

void frame_poll_for(struct frame_peer *p, unsigned int ms)
{
	const uint64_t until = frame_now_ms() + ms;

	do
		frame_poll(p);
	while (frame_now_ms() < until);
}

enum frame_state frame_wait(struct frame_conn *c, unsigned int ms)
{
	const uint64_t until = frame_now_ms() + ms;

	while (c->state == FRAME_CONNECTING && frame_now_ms() < until)
		frame_poll(c->peer);
	return c->state;
}

bool frame_wait_end(struct frame_conn *c, unsigned int ms)
{
	const uint64_t until = frame_now_ms() + ms;

	while (c->state != FRAME_ENDED && frame_now_ms() < until)
		frame_poll(c->peer);
	return c->state == FRAME_ENDED;
}

/* --- operations --- */

bool frame_push(struct frame_conn *c, const void *msg, size_t len)
{
	return c->state == FRAME_UP && put_data(c, RP_TCP_MESSAGE, msg, len);
}

/* Queue the frame. While the buffer has no room, polls for up to SEND_MS. */
static bool send_frame(struct frame_conn *c, const struct tcp_head *h,
		       const void *data, size_t len)
{
	const uint64_t until = frame_now_ms() + SEND_MS;

	while (c->state != FRAME_ENDED && frame_now_ms() < until) {
		if (queue_frame(c, h, data, len))
			return true;
		frame_poll(c->peer);
	}
	return false;
}

bool frame_send(struct frame_conn *c, const void *msg, size_t len)
{
	const struct tcp_head h = {.type = RP_TCP_MESSAGE, .length = len};
	struct frame_peer *p = c->peer;
	bool sent = send_frame(c, &h, msg, len);

	frame_poll(p);
	return sent;
}

static int poll_until_count(struct frame_conn *c, const unsigned int *count,
			    unsigned int enough, uint8_t **sink)
{
	const uint64_t until = frame_now_ms() + SEND_MS;

	while (count ? *count < enough : *sink != NULL) {
		if (c->state == FRAME_ENDED)
			return ENOTCONN;
		if (frame_now_ms() >= until)
			return ETIMEDOUT;
		frame_poll(c->peer);
	}
	return 0;
}

int frame_write(struct frame_conn *c, const void *buf, size_t len,
		uint64_t addr, uint64_t rkey)
{
	const struct tcp_head h = {.type = RP_TCP_WRITE,
				   .acknowledged = true,
				   .length = len,
				   .addr = addr,
				   .rkey = rkey};
	const unsigned int before = c->placed;

	if (!send_frame(c, &h, buf, len))
		return c->state == FRAME_ENDED ? ENOTCONN : ETIMEDOUT;
	return poll_until_count(c, &c->placed, before + 1, NULL);
}

int frame_read(struct frame_conn *c, void *buf, size_t len, uint64_t addr,
	       uint64_t rkey)
{
	const struct tcp_head h = {
		.type = RP_TCP_READ, .length = len, .addr = addr, .rkey = rkey};
	int err;

	c->sink = buf;
	c->sink_len = len;
	if (!send_frame(c, &h, NULL, 0))
		return c->state == FRAME_ENDED ? ENOTCONN : ETIMEDOUT;
	err = poll_until_count(c, NULL, 0, &c->sink);
	c->sink = NULL;
	return err;
}
