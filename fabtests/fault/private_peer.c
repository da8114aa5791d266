// SPDX-License-Identifier: BSD-2-Clause
/* A bare connected endpoint of tcp that plays either end of the protocol. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fault/private_peer.h"

#define RECVS	16
#define SENDS	16
#define SEND_MS 2000

/* A buffer that the base has; its address is the context. */
struct slot {
	struct private_conn *conn;
	bool busy, recv;
	int err;
	uint8_t bytes[PRIVATE_MAX];
};
struct bufs {
	struct slot recv[RECVS], send[SENDS];
};

uint64_t private_now_ms(void)
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

void private_open(struct private_peer *p, const struct private_events *events)
{
	const struct pair_opts bare = {
		.msg = true, .prov = "tcp", .raw_keys = true};

	memset(p, 0, sizeof(*p));
	side_open(&p->s, &bare);
	p->events = events;
}

void private_close(struct private_peer *p)
{
	side_close(&p->s);
}

bool private_listen(struct private_peer *p, uint16_t port)
{
	struct fi_info *info = fi_dupinfo(p->s.info);
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	size_t len = sizeof(p->at);
	int ret;

	if (!info)
		MUST(-FI_ENOMEM);
	free(info->src_addr);
	info->src_addr = malloc(sizeof(at));
	if (!info->src_addr)
		MUST(-FI_ENOMEM);
	memcpy(info->src_addr, &at, sizeof(at));
	info->src_addrlen = sizeof(at);
	MUST(fi_passive_ep(p->s.fabric, info, &p->s.pep, NULL));
	fi_freeinfo(info);
	MUST(fi_pep_bind(p->s.pep, &p->s.eq->fid, 0));
	ret = fi_listen(p->s.pep);
	if (ret) {
		MUST(fi_close(&p->s.pep->fid));
		p->s.pep = NULL;
		return false;
	}
	MUST(fi_getname(&p->s.pep->fid, &p->at, &len));
	return true;
}

/* --- connections --- */

static void end(struct private_conn *c, int err)
{
	if (c->state == PRIVATE_ENDED)
		return;
	c->state = PRIVATE_ENDED;
	c->err = err;
}

static void post_recv(struct slot *s)
{
	ssize_t ret;

	if (s->conn->state == PRIVATE_ENDED)
		return;
	ret = fi_recv(s->conn->ep, s->bytes, sizeof(s->bytes), NULL, 0, s);
	s->busy = !ret;
	if (ret)
		end(s->conn, (int)-ret);
}

static struct private_conn *conn_new(struct private_peer *p,
				     struct fi_info *info)
{
	struct private_conn *c = calloc(1, sizeof(*c));
	struct bufs *b = calloc(1, sizeof(*b));

	if (!c || !b)
		MUST(-FI_ENOMEM);
	c->peer = p;
	c->bufs = b;
	MUST(fi_endpoint(p->s.domain, info, &c->ep, c));
	MUST(fi_ep_bind(c->ep, &p->s.cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_ep_bind(c->ep, &p->s.eq->fid, 0));
	MUST(fi_enable(c->ep));
	for (int i = 0; i < RECVS; i++) {
		b->recv[i].conn = c;
		b->recv[i].recv = true;
		post_recv(&b->recv[i]);
	}
	for (int i = 0; i < SENDS; i++)
		b->send[i].conn = c;
	return c;
}

struct private_conn *private_dial(struct private_peer *p,
				  const struct sockaddr_in *to,
				  const void *data, size_t len)
{
	struct fi_info *info = fi_dupinfo(p->s.info);
	struct private_conn *c;
	int ret;

	if (!info)
		MUST(-FI_ENOMEM);
	free(info->src_addr);
	info->src_addr = NULL;
	info->src_addrlen = 0;
	c = conn_new(p, info);
	fi_freeinfo(info);
	ret = fi_connect(c->ep, to, data, len);
	if (ret)
		end(c, -ret);
	return c;
}

struct private_conn *private_accept(struct private_peer *p,
				    struct fi_info *info, const void *data,
				    size_t len)
{
	struct private_conn *c = conn_new(p, info);
	int ret = fi_accept(c->ep, data, len);

	fi_freeinfo(info);
	if (!ret)
		return c;
	private_end(c);
	return NULL;
}

void private_reject(struct private_peer *p, struct fi_info *info,
		    const void *data, size_t len)
{
	fi_reject(p->s.pep, info->handle, data, len);
	fi_freeinfo(info);
}

static bool poll_cq(struct private_peer *p);

void private_end(struct private_conn *c)
{
	struct private_peer *p = c->peer;

	end(c, ECANCELED);
	MUST(fi_close(&c->ep->fid));
	/* Its entries are in the queue now, and name its buffers. */
	while (poll_cq(p))
		;
	free(c->bufs);
	free(c);
}

/* --- completions and events --- */

static void slot_done(struct slot *s, int err, size_t len)
{
	struct private_conn *c = s->conn;
	const struct private_events *ev = c->peer->events;

	s->busy = false;
	s->err = err;
	if (!s->recv) {
		c->sending--;
		c->failed += err != 0;
	}
	if (err)
		end(c, err);
	if (!s->recv || err)
		return;
	if (ev && ev->received && c->state != PRIVATE_ENDED)
		ev->received(c, s->bytes, len);
	post_recv(s);
}

static bool poll_cq(struct private_peer *p)
{
	struct fi_cq_err_entry err = {0};
	struct fi_cq_tagged_entry e;
	ssize_t n = fi_cq_read(p->s.cq, &e, 1);

	if (n == -FI_EAVAIL && fi_cq_readerr(p->s.cq, &err, 0) == 1) {
		if (err.op_context)
			slot_done(err.op_context, err.err ? err.err : EIO, 0);
		return true;
	}
	if (n == 1 && e.op_context)
		slot_done(e.op_context, 0, e.len);
	return n == 1;
}

static void keep_data(struct private_conn *c, const void *data, size_t len)
{
	c->data_len = len < sizeof(c->data) ? len : sizeof(c->data);
	memcpy(c->data, data, c->data_len);
}

static bool poll_error(struct private_peer *p)
{
	uint8_t data[PRIVATE_DATA] = {0};
	struct fi_eq_err_entry e = {
		.err_data = data,
		.err_data_size = sizeof(data),
	};
	struct private_conn *c;

	if (fi_eq_readerr(p->s.eq, &e, 0) < 0)
		return false;
	c = e.fid && e.fid->fclass == FI_CLASS_EP ? e.fid->context : NULL;
	if (!c)
		return true;
	if (e.err_data)
		keep_data(c, e.err_data, e.err_data_size);
	end(c, e.err);
	return true;
}

static bool poll_eq(struct private_peer *p)
{
	union {
		struct fi_eq_cm_entry e;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + PRIVATE_DATA];
	} cm;
	struct private_conn *c;
	uint32_t event;
	ssize_t n = fi_eq_read(p->s.eq, &event, &cm, sizeof(cm), 0);
	size_t len;

	if (n == -FI_EAVAIL)
		return poll_error(p);
	if (n < (ssize_t)sizeof(cm.e))
		return false;
	len = (size_t)n - sizeof(cm.e);
	if (event == FI_CONNREQ) {
		if (p->events && p->events->requested)
			p->events->requested(p, cm.e.info, cm.e.data, len);
		else
			private_reject(p, cm.e.info, NULL, 0);
		return true;
	}
	c = cm.e.fid->context;
	if (event == FI_SHUTDOWN) {
		end(c, ECONNRESET);
	} else if (c->state == PRIVATE_CONNECTING) {
		c->state = PRIVATE_UP;
		c->was_up = true;
		keep_data(c, cm.e.data, len);
	}
	return true;
}

bool private_poll(struct private_peer *p)
{
	bool any = poll_cq(p);

	return poll_eq(p) || any;
}

void private_poll_for(struct private_peer *p, unsigned int ms)
{
	const uint64_t until = private_now_ms() + ms;

	do
		private_poll(p);
	while (private_now_ms() < until);
}

enum private_state private_wait(struct private_conn *c, unsigned int ms)
{
	const uint64_t until = private_now_ms() + ms;

	while (c->state == PRIVATE_CONNECTING && private_now_ms() < until)
		private_poll(c->peer);
	return c->state;
}

bool private_wait_end(struct private_conn *c, unsigned int ms)
{
	const uint64_t until = private_now_ms() + ms;

	while (c->state != PRIVATE_ENDED && private_now_ms() < until)
		private_poll(c->peer);
	return c->state == PRIVATE_ENDED;
}

/* --- operations --- */

static struct slot *free_slot(struct private_conn *c)
{
	const uint64_t until = private_now_ms() + SEND_MS;
	struct bufs *b = c->bufs;

	while (c->state != PRIVATE_ENDED && private_now_ms() < until) {
		for (int i = 0; i < SENDS; i++)
			if (!b->send[i].busy)
				return &b->send[i];
		private_poll(c->peer);
	}
	return NULL;
}

enum kind {
	SEND,
	WRITE,
	READ,
};

/* NULL: the connection has ended, or takes nothing. */
static struct slot *post(struct private_conn *c, enum kind kind,
			 const void *buf, size_t len, uint64_t addr,
			 uint64_t rkey)
{
	const uint64_t until = private_now_ms() + SEND_MS;
	struct slot *s = free_slot(c);
	ssize_t ret = -FI_EAGAIN;

	if (!s || len > sizeof(s->bytes))
		return NULL;
	if (buf)
		memcpy(s->bytes, buf, len);
	while (c->state != PRIVATE_ENDED && ret == -FI_EAGAIN &&
	       private_now_ms() < until) {
		if (kind == SEND)
			ret = fi_send(c->ep, s->bytes, len, NULL, 0, s);
		else if (kind == WRITE)
			ret = fi_write(c->ep, s->bytes, len, NULL, 0, addr,
				       rkey, s);
		else
			ret = fi_read(c->ep, s->bytes, len, NULL, 0, addr, rkey,
				      s);
		if (ret == -FI_EAGAIN)
			private_poll(c->peer);
	}
	if (ret)
		return NULL;
	s->busy = true;
	c->sending++;
	return s;
}

bool private_send(struct private_conn *c, const void *msg, size_t len)
{
	bool sent = post(c, SEND, msg, len, 0, 0);

	private_poll(c->peer);
	return sent;
}

static int finish(struct private_conn *c, struct slot *s)
{
	const uint64_t until = private_now_ms() + SEND_MS;

	if (!s)
		return c->state == PRIVATE_ENDED ? ENOTCONN : ETIMEDOUT;
	while (s->busy && private_now_ms() < until) {
		private_poll(c->peer);
		/* What an ended connection had is reported when it is closed.
		 */
		if (c->state == PRIVATE_ENDED)
			return s->busy || s->err ? ENOTCONN : 0;
	}
	return s->busy ? ETIMEDOUT : s->err;
}

int private_write(struct private_conn *c, const void *buf, size_t len,
		  uint64_t addr, uint64_t rkey)
{
	return finish(c, post(c, WRITE, buf, len, addr, rkey));
}

int private_read(struct private_conn *c, void *buf, size_t len, uint64_t addr,
		 uint64_t rkey)
{
	struct slot *s = post(c, READ, NULL, len, addr, rkey);
	int err = finish(c, s);

	if (!err)
		memcpy(buf, s->bytes, len);
	return err;
}
