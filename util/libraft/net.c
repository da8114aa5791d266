// SPDX-License-Identifier: BSD-2-Clause
/*
 * Connections by the program's transport or libraft's own TCP: each server
 * connects to each peer that it has a message for, and reads from peers
 * connected to it.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "libraft/backend.h"

#define WAITING_MOST 64u
#define READ_BYTES   (64ul * 1024)

static void free_stream(uv_handle_t *h)
{
	raft_free(h);
}

static void set_nodelay(uv_stream_t *stream)
{
	if (stream->type == UV_TCP)
		uv_tcp_nodelay((uv_tcp_t *)stream, 1);
}

static void finish(struct peer *p, struct frame *f, int status)
{
	if (f->req)
		backend_later(p->b, &(struct later){.send = f->req,
						    .status = status});
	free(f);
}

static void drop_waiting(struct peer *p, unsigned int keep)
{
	struct frame *f;

	while (p->nwaiting > keep && (f = TAILQ_FIRST(&p->waiting))) {
		TAILQ_REMOVE(&p->waiting, f, link);
		p->nwaiting--;
		finish(p, f, RAFT_NOCONNECTION);
	}
}

static void out_closed(uv_handle_t *h)
{
	struct peer *p = h->data;

	free_stream(h);
	p->b->busy--;
	backend_idle(p->b);
}

static void out_down(struct peer *p)
{
	if (p->out == OUT_UP)
		uv_close((uv_handle_t *)p->stream, out_closed);
	p->stream = NULL;
	p->out = OUT_DOWN;
	drop_waiting(p, 0);
}

static void frame_write_done(uv_write_t *w, int status)
{
	struct frame *f = (struct frame *)w;
	struct peer *p = f->peer;

	if (f->req)
		f->req->cb(f->req, status ? RAFT_IOERR : 0);
	free(f);
	if (status && status != UV_ECANCELED && p->stream)
		out_down(p);
}

/* uv_write() costs a system call more than uv_try_write(). */
static void write_frame(struct peer *p, struct frame *f)
{
	uv_buf_t buf = uv_buf_init((char *)f->bytes, (unsigned int)f->len);
	const int n = uv_try_write(p->stream, &buf, 1);

	if (n == (int)f->len) {
		finish(p, f, 0);
		return;
	}
	if (n > 0)
		buf = uv_buf_init(buf.base + n, (unsigned int)(f->len - n));
	/* A second write to a connection that was reset raises SIGPIPE. */
	if ((n < 0 && n != UV_EAGAIN) ||
	    uv_write(&f->write, p->stream, &buf, 1, frame_write_done)) {
		finish(p, f, RAFT_IOERR);
		out_down(p);
	}
}

static void alloc_out(uv_handle_t *h, size_t size, uv_buf_t *buf)
{
	static char bytes[64];

	(void)h;
	(void)size;
	*buf = uv_buf_init(bytes, sizeof(bytes));
}

/* Outgoing connections receive nothing but their end. */
static void read_out(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct peer *p = stream->data;

	(void)buf;
	if (n < 0 && p->stream == stream)
		out_down(p);
}

static void say_hello(struct peer *p)
{
	const struct backend *b = p->b;
	const char *where = b->attr.no_rings ? "" : b->at;
	const struct wire_head h = {.len = (uint32_t)strlen(where),
				    .type = WIRE_HELLO,
				    .seq = b->boot,
				    .kept = *where ? b->ring_id : 0};
	struct frame *f = calloc(1, sizeof(*f) + WIRE_HEAD + h.len);

	if (!f) {
		out_down(p);
		return;
	}
	f->peer = p;
	f->len = WIRE_HEAD + h.len;
	wire_head_put(f->bytes, &h);
	memcpy(f->bytes + WIRE_HEAD, where, h.len);
	write_frame(p, f);
}

static void peer_connect_done(struct raft_uv_connect *req, uv_stream_t *stream,
			      int status)
{
	struct peer *p = req->data;
	struct backend *b = p->b;
	struct frame *f;

	free(p->dialed);
	p->dialed = NULL;
	p->out = OUT_DOWN;
	if (status || b->closing) {
		if (!status)
			uv_close((uv_handle_t *)stream, free_stream);
		drop_waiting(p, 0);
		b->busy--;
		backend_idle(b);
		return;
	}
	p->out = OUT_UP; /* and busy until the connection is closed */
	p->stream = stream;
	stream->data = p;
	uv_read_start(stream, alloc_out, read_out);
	set_nodelay(stream);
	say_hello(p);
	while (p->out == OUT_UP && (f = TAILQ_FIRST(&p->waiting))) {
		TAILQ_REMOVE(&p->waiting, f, link);
		p->nwaiting--;
		write_frame(p, f);
	}
}

struct peer *net_peer(struct backend *b, raft_id id, const char *address)
{
	struct peer *p;
	char *copy;

	TAILQ_FOREACH (p, &b->peers, link)
		if (p->id == id)
			break;
	if (p && strcmp(p->address, address) == 0)
		return p;
	copy = strdup(address);
	if (!p && copy) {
		p = calloc(1, sizeof(*p));
		if (!p) {
			free(copy);
			return NULL;
		}
		p->b = b;
		p->id = id;
		TAILQ_INIT(&p->waiting);
		TAILQ_INIT(&p->ring.deferred);
		TAILQ_INSERT_TAIL(&b->peers, p, link);
	}
	if (!copy)
		return NULL;
	free(p->address);
	p->address = copy;
	return p;
}

void net_send(struct peer *p, struct frame *f)
{
	struct backend *b = p->b;

	f->peer = p;
	if (p->out == OUT_UP) {
		write_frame(p, f);
		return;
	}
	drop_waiting(p, WAITING_MOST - 1);
	TAILQ_INSERT_TAIL(&p->waiting, f, link);
	p->nwaiting++;
	if (p->out == OUT_CONNECTING)
		return;
	p->out = OUT_CONNECTING;
	p->connect.data = p;
	b->busy++;
	/* A transport may use the address until the callback. */
	p->dialed = strdup(p->address);
	if (p->dialed &&
	    !b->transport->connect(b->transport, &p->connect, p->id, p->dialed,
				   peer_connect_done))
		return;
	free(p->dialed);
	p->dialed = NULL;
	b->busy--;
	p->out = OUT_DOWN;
	drop_waiting(p, 0);
}

static void incoming_closed(uv_handle_t *h)
{
	struct incoming *in = h->data;
	struct backend *b = in->peer->b;

	free_stream(h);
	free(in->buf);
	free(in);
	b->busy--;
	backend_idle(b);
}

static void incoming_close(struct incoming *in)
{
	if (uv_is_closing((uv_handle_t *)in->stream))
		return;
	TAILQ_REMOVE(&in->peer->b->incoming, in, link);
	uv_close((uv_handle_t *)in->stream, incoming_closed);
}

/* Give a buffer for the rest of the frame, or for a part of the next one. */
static void incoming_alloc(uv_handle_t *h, size_t size, uv_buf_t *buf)
{
	struct incoming *in = h->data;
	struct wire_head head = {0};
	size_t want = READ_BYTES;
	unsigned char *bytes = in->buf;

	(void)size;
	if (in->len >= WIRE_HEAD && !wire_head_get(&head, in->buf) &&
	    head.len + WIRE_HEAD > in->len + want)
		want = head.len + WIRE_HEAD - in->len;
	if (in->len + want > in->room)
		bytes = realloc(in->buf, in->len + want);
	if (!bytes) {
		*buf = uv_buf_init(NULL, 0);
		return;
	}
	if (bytes != in->buf || in->len + want > in->room)
		in->room = in->len + want;
	in->buf = bytes;
	*buf = uv_buf_init((char *)bytes + in->len, (unsigned int)want);
}

static void hello(struct incoming *in, const struct wire_head *h,
		  const unsigned char *message)
{
	struct peer *p = in->peer;

	if (h->seq != p->boot)
		p->covers = p->seen = p->seen_lsn = p->kept = p->kept_lsn = 0;
	p->boot = h->seq;
	ring_hello(p, h, message);
}

static void incoming_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct incoming *in = stream->data;
	struct wire_head h;
	size_t at = 0;
	int ret = n < 0;

	(void)buf;
	in->len += n > 0 ? (size_t)n : 0;
	while (!ret && in->len - at >= WIRE_HEAD) {
		ret = wire_head_get(&h, in->buf + at);
		if (ret || in->len - at < WIRE_HEAD + h.len)
			break;
		at += WIRE_HEAD;
		if (h.type == WIRE_HELLO)
			hello(in, &h, in->buf + at);
		else
			backend_received(in->peer, &h, in->buf + at);
		at += h.len;
		if (uv_is_closing((uv_handle_t *)stream))
			return;
	}
	in->len -= at;
	if (at && in->len)
		memmove(in->buf, in->buf + at, in->len);
	if (ret)
		incoming_close(in);
}

/* Accept a peer's connection; older ones are closed and not read any more. */
static void incoming_accept(struct raft_uv_transport *t, raft_id id,
			    const char *address, uv_stream_t *stream)
{
	struct backend *b = t->data; /* NULL: this raft_io is closed */
	struct peer *p = b && !b->closing ? net_peer(b, id, address) : NULL;
	struct incoming *in = p ? calloc(1, sizeof(*in)) : NULL;
	struct incoming *old, *next;

	if (!in) {
		uv_close((uv_handle_t *)stream, free_stream);
		return;
	}
	for (old = TAILQ_FIRST(&b->incoming); old; old = next) {
		next = TAILQ_NEXT(old, link);
		if (old->peer == p)
			incoming_close(old);
	}
	in->peer = p;
	in->stream = stream;
	stream->data = in;
	b->busy++;
	TAILQ_INSERT_TAIL(&b->incoming, in, link);
	set_nodelay(stream);
	if (uv_read_start(stream, incoming_alloc, incoming_read))
		incoming_close(in);
}

int net_listen(struct backend *b)
{
	return net_address(b,
			   b->transport->listen(b->transport, incoming_accept));
}

int net_address(struct backend *b, int ret)
{
	if (ret)
		snprintf(b->store.errmsg, RAFT_ERRMSG_BUF_SIZE,
			 "no connections are accepted at the server's address: "
			 "%s; give HOST:PORT, numbers of this machine, of a "
			 "port that is free",
			 raft_strerror(ret));
	return ret;
}

static void transport_closed(struct raft_uv_transport *t)
{
	struct backend *b = t->data;

	b->busy--;
	backend_idle(b);
}

void net_close(struct backend *b)
{
	struct incoming *in;
	struct peer *p;

	while ((in = TAILQ_FIRST(&b->incoming)))
		incoming_close(in);
	TAILQ_FOREACH (p, &b->peers, link)
		if (p->out != OUT_CONNECTING)
			out_down(p);
	if (!b->transport_inited)
		return;
	b->busy++;
	b->transport->close(b->transport, transport_closed);
}
