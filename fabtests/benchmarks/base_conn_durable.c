// SPDX-License-Identifier: BSD-2-Clause
/*
 * Times durable writes by hand: over a connected endpoint, over an RDM endpoint
 * of the same base, and a raw TCP echo, one operation at a time, both processes
 * polling. Every round runs every method, so that all methods see the same
 * noise.
 */
#include "config.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rdma/fi_tagged.h>

#include "fabtests/benchmarks/base_conn.h"
#include "fabtests/benchmarks/flush.h"
#include "util/text.h"

#define POOL	    (16u << 20)
#define LARGEST	    (4u << 20)
#define POSTED	    4
#define MESSAGE	    (CONN_HEADER + INLINE_MOST)
#define INLINE_MOST 65536u
#define RANGES	    64u
#define RANGE	    64u /* bytes */
#define MOST_ROUNDS 201
#define TAG_REQUEST 1
#define TAG_REPLY   2

enum transport {
	MSG,
	RDM,
	RAW,
	TRANSPORTS
};

/* A request to the target. */
struct request {
	uint64_t type, off, len, count;
	uint8_t pad[CONN_HEADER - 32];
};
_Static_assert(sizeof(struct request) == CONN_HEADER, "header");
/* Depending on the type, ranges and bytes follow the header. */
enum {
	INLINE,
	FLUSH,
	FLUSH_RANGES,
	INLINE_RANGES,
	INLINE_SHORT
};
#define SHORT_HEADER offsetof(struct request, pad)

struct range {
	uint64_t off, len;
};

struct side {
	struct conn_world *w;
	struct rp_flush cpu;
	struct conn_node n;
	struct fid_ep *ep;
	struct conn_node rdm;
	struct fid_ep *rdm_ep;
	fi_addr_t peer;
	int fd;
	char *slots, *message, *source;
	double *samples;
	size_t inject;
	uint64_t count;
};

#define POST(cq, call)                                                         \
	do {                                                                   \
		ssize_t r_;                                                    \
		while ((r_ = (call)) == -FI_EAGAIN)                            \
			fi_cq_read((cq), NULL, 0);                             \
		MUST(r_);                                                      \
	} while (0)

static char *slot_of(struct side *s, enum transport t, int i)
{
	return s->slots + (size_t)(t * POSTED + i) * MESSAGE;
}

/* RDM endpoint of the same base, for comparison. */
static void rdm_open(struct side *s, bool target)
{
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	struct fi_info *h = fi_allocinfo();
	struct fid_av *fid;
	struct conn_world *w = s->w;

	if (!h)
		MUST(-FI_ENOMEM);
	h->caps = FI_MSG | FI_RMA | FI_TAGGED;
	h->ep_attr->type = FI_EP_RDM;
	h->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	h->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	h->domain_attr->threading = FI_THREAD_SAFE;
	h->addr_format = FI_SOCKADDR_IN;
	h->fabric_attr->prov_name = strdup(w->prov);
	MUST(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, h,
			&s->rdm.info));
	fi_freeinfo(h);
	MUST(fi_fabric(s->rdm.info->fabric_attr, &s->rdm.fabric, NULL));
	MUST(fi_domain(s->rdm.fabric, s->rdm.info, &s->rdm.domain, NULL));
	s->rdm.cq = conn_cq_open(&s->rdm);
	MUST(fi_av_open(s->rdm.domain, &av, &fid, NULL));
	MUST(fi_endpoint(s->rdm.domain, s->rdm.info, &s->rdm_ep, NULL));
	MUST(fi_ep_bind(s->rdm_ep, &fid->fid, 0));
	MUST(fi_ep_bind(s->rdm_ep, &s->rdm.cq->fid,
			FI_TRANSMIT | FI_SELECTIVE_COMPLETION));
	MUST(fi_ep_bind(s->rdm_ep, &s->rdm.cq->fid, FI_RECV));
	MUST(fi_enable(s->rdm_ep));
	for (int i = 0; i < POSTED; i++)
		MUST(fi_trecv(s->rdm_ep, slot_of(s, RDM, i), MESSAGE, NULL,
			      FI_ADDR_UNSPEC, target ? TAG_REQUEST : TAG_REPLY,
			      0, slot_of(s, RDM, i)));
	w->rdm_len[target] = sizeof(w->rdm_name[0]);
	MUST(fi_getname(&s->rdm_ep->fid, w->rdm_name[target],
			&w->rdm_len[target]));
	conn_step(w, target ? 2 : 3);
	conn_await(w, 3);
	if (fi_av_insert(fid, w->rdm_name[!target], 1, &s->peer, 0, NULL) != 1)
		MUST(-FI_EINVAL);
}

static void raw_set(int fd)
{
	int one = 1;

	MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
}

static void raw_listen(struct side *s)
{
	struct sockaddr_in sa = {.sin_family = AF_INET};
	socklen_t len = sizeof(sa);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	s->fd = socket(AF_INET, SOCK_STREAM, 0);
	MUST(bind(s->fd, (struct sockaddr *)&sa, sizeof(sa)));
	MUST(listen(s->fd, 1));
	MUST(getsockname(s->fd, (struct sockaddr *)&sa, &len));
	s->w->raw_port = sa.sin_port;
}

static void raw_connect(struct side *s)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET,
		.sin_port = s->w->raw_port,
	};

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	s->fd = socket(AF_INET, SOCK_STREAM, 0);
	MUST(connect(s->fd, (struct sockaddr *)&sa, sizeof(sa)));
	raw_set(s->fd);
}

static void side_open(struct side *s, struct conn_world *w)
{
	char err[RP_ERR_LEN];

	memset(s, 0, sizeof(*s));
	s->w = w;
	s->slots = calloc(TRANSPORTS * POSTED + 1, MESSAGE);
	s->source = malloc(LARGEST);
	s->samples = calloc(4096, sizeof(*s->samples));
	if (!s->slots || !s->source || !s->samples)
		MUST(-FI_ENOMEM);
	s->message = s->slots + TRANSPORTS * POSTED * MESSAGE;
	memset(s->source, 0x5a, LARGEST);
	MUST(rp_flush_open(&s->cpu, err));
	conn_open(&s->n, w->prov, false);
	s->inject = s->n.info->tx_attr->inject_size;
}

static void post_msg(struct side *s)
{
	for (int i = 0; i < POSTED; i++)
		MUST(fi_recv(s->ep, slot_of(s, MSG, i), MESSAGE, NULL, 0,
			     slot_of(s, MSG, i)));
}

static const char *request_copy(struct side *s, const struct range *r,
				const char *bytes)
{
	memcpy(s->w->mem + r->off, bytes, r->len);
	s->cpu.flush(s->w->mem + r->off, r->len);
	return bytes + r->len;
}

/* Store or flush the ranges of a request. Ordinary memory stands for PMem. */
static void request_execute(struct side *s, const char *message)
{
	const struct request *q = (const struct request *)message;
	const struct range *r = (const struct range *)(q + 1);
	const struct range one = {q->off, q->len};
	const char *bytes = (const char *)(r + q->count);

	switch (q->type) {
	case INLINE:
		request_copy(s, &one, (const char *)r);
		break;
	case INLINE_SHORT:
		request_copy(s, &one, message + SHORT_HEADER);
		break;
	case FLUSH:
		s->cpu.flush(s->w->mem + q->off, q->len);
		break;
	case FLUSH_RANGES:
		for (uint64_t i = 0; i < q->count; i++)
			s->cpu.flush(s->w->mem + r[i].off, r[i].len);
		break;
	default:
		for (uint64_t i = 0; i < q->count; i++)
			bytes = request_copy(s, &r[i], bytes);
	}
	s->cpu.drain();
}

static void msg_serve(struct side *s)
{
	struct fi_cq_data_entry done;
	ssize_t n = fi_cq_read(s->n.cq, &done, 1);

	if (n == -FI_EAGAIN)
		return;
	MUST(n);
	if (done.flags & FI_REMOTE_CQ_DATA) { /* sent by put_data() */
		s->cpu.flush(s->w->mem + (done.data & UINT32_MAX),
			     done.data >> 32);
		s->cpu.drain();
		POST(s->n.cq, fi_inject(s->ep, s->message, CONN_REPLY, 0));
		return;
	}
	request_execute(s, done.op_context);
	POST(s->n.cq, fi_inject(s->ep, done.op_context, CONN_REPLY, 0));
	POST(s->n.cq, fi_recv(s->ep, done.op_context, MESSAGE, NULL, 0,
			      done.op_context));
}

static void rdm_serve(struct side *s)
{
	struct fi_cq_data_entry done;
	ssize_t n = fi_cq_read(s->rdm.cq, &done, 1);

	if (n == -FI_EAGAIN)
		return;
	MUST(n);
	request_execute(s, done.op_context);
	POST(s->rdm.cq, fi_tinject(s->rdm_ep, done.op_context, CONN_REPLY,
				   s->peer, TAG_REPLY));
	POST(s->rdm.cq,
	     fi_trecv(s->rdm_ep, done.op_context, MESSAGE, NULL, FI_ADDR_UNSPEC,
		      TAG_REQUEST, 0, done.op_context));
}

static void raw_serve(struct side *s, uint64_t *have)
{
	const uint64_t size = atomic_load(&s->w->count);
	ssize_t n = recv(s->fd, s->w->mem + *have, size - *have, MSG_DONTWAIT);

	if (n <= 0)
		return;
	*have += (uint64_t)n;
	if (*have < size)
		return;
	*have = 0;
	MUST(send(s->fd, s->message, CONN_REPLY, MSG_NOSIGNAL));
}

static void durable_target(struct conn_world *w, int number)
{
	uint64_t have = 0;
	struct side s;
	int driven, fd;

	side_open(&s, w);
	conn_listen(&s.n, w);
	w->base = conn_addr(&s.n, w->mem);
	w->key[MSG] = fi_mr_key(conn_reg(&s.n, w->mem, POOL,
					 FI_REMOTE_READ | FI_REMOTE_WRITE, 7));
	raw_listen(&s);
	conn_step(w, 1);
	s.ep = conn_accept(&s.n, NULL);
	post_msg(&s);
	fd = accept(s.fd, NULL, NULL);
	MUST(fd);
	s.fd = fd;
	raw_set(fd);
	rdm_open(&s, true);
	w->rdm_base = conn_addr(&s.rdm, w->mem);
	w->key[RDM] = fi_mr_key(conn_reg(&s.rdm, w->mem, POOL,
					 FI_REMOTE_READ | FI_REMOTE_WRITE, 8));
	conn_step(w, 4);
	while ((driven = atomic_load(&w->driven)) < TRANSPORTS) {
		if (driven == MSG)
			msg_serve(&s);
		else if (driven == RDM)
			rdm_serve(&s);
		else
			raw_serve(&s, &have);
	}
}

/* Wait for one completion of t's CQ; repost the receive of a reply. */
static void completion_await(struct side *s, enum transport t)
{
	struct fid_cq *cq = t == MSG ? s->n.cq : s->rdm.cq;
	struct fi_cq_data_entry done;
	struct fi_cq_err_entry bad = {0};
	ssize_t n;

	while ((n = fi_cq_read(cq, &done, 1)) == -FI_EAGAIN)
		;
	if (n == -FI_EAVAIL) {
		fi_cq_readerr(cq, &bad, 0);
		MUST(-bad.err);
	}
	MUST(n);
	if (!(done.flags & FI_RECV))
		return;
	if (t == MSG)
		MUST(fi_recv(s->ep, done.op_context, MESSAGE, NULL, 0,
			     done.op_context));
	else
		MUST(fi_trecv(s->rdm_ep, done.op_context, MESSAGE, NULL,
			      FI_ADDR_UNSPEC, TAG_REPLY, 0, done.op_context));
}

static void request_send(struct side *s, enum transport t, size_t len)
{
	struct iovec iov = {.iov_base = s->message, .iov_len = len};
	const struct fi_msg m = {.msg_iov = &iov, .iov_count = 1};
	const struct fi_msg_tagged tm = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.tag = TAG_REQUEST,
	};

	if (t == MSG && len <= s->inject)
		POST(s->n.cq, fi_inject(s->ep, s->message, len, 0));
	else if (t == MSG)
		POST(s->n.cq, fi_sendmsg(s->ep, &m, 0));
	else if (len <= s->inject)
		POST(s->rdm.cq, fi_tinject(s->rdm_ep, s->message, len, s->peer,
					   TAG_REQUEST));
	else
		POST(s->rdm.cq, fi_tsendmsg(s->rdm_ep, &tm, 0));
}

static struct request *request_fill(struct side *s, uint64_t type, uint64_t off,
				    uint64_t len, uint64_t count)
{
	struct request *q = (struct request *)s->message;

	q->type = type;
	q->off = off;
	q->len = len;
	q->count = count;
	return q;
}

static void write_post(struct side *s, enum transport t, const char *from,
		       uint64_t off, uint64_t len, uint64_t flags)
{
	struct iovec iov = {.iov_base = (void *)from, .iov_len = len};
	struct fi_rma_iov to = {.len = len, .key = s->w->key[t]};
	const struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &to,
		.rma_iov_count = 1,
	};

	to.addr = off + (t == MSG ? s->w->base : s->w->rdm_base);
	if (t == MSG)
		POST(s->n.cq, fi_writemsg(s->ep, &m, flags));
	else
		POST(s->rdm.cq, fi_writemsg(s->rdm_ep, &m, flags));
}

static void put_inline(struct side *s, uint64_t off, uint64_t len)
{
	struct request *q = request_fill(s, INLINE, off, len, 0);
	struct iovec iov[2] = {
		{.iov_base = q, .iov_len = sizeof(*q)},
		{.iov_base = s->source, .iov_len = len},
	};
	const struct fi_msg m = {.msg_iov = iov, .iov_count = 2};

	if (sizeof(*q) + len <= s->inject) {
		memcpy(q + 1, s->source, len);
		request_send(s, MSG, sizeof(*q) + len);
	} else {
		POST(s->n.cq, fi_sendmsg(s->ep, &m, 0));
	}
	completion_await(s, MSG);
}

/* As put_inline(), short enough for fi_inject() with a 64-byte payload. */
static void put_short(struct side *s, uint64_t off, uint64_t len)
{
	struct request *q = request_fill(s, INLINE_SHORT, off, len, 0);

	memcpy((char *)q + SHORT_HEADER, s->source, len);
	request_send(s, MSG, SHORT_HEADER + len);
	completion_await(s, MSG);
}

static void put_request(struct side *s, uint64_t off, uint64_t len)
{
	write_post(s, MSG, s->source, off, len, 0);
	request_fill(s, FLUSH, off, len, 0);
	request_send(s, MSG, CONN_HEADER);
	completion_await(s, MSG);
}

/* The write's remote CQ data names its range to the target's CPU. */
static void put_data(struct side *s, uint64_t off, uint64_t len)
{
	POST(s->n.cq, fi_writedata(s->ep, s->source, len, NULL, off | len << 32,
				   0, s->w->base + off, s->w->key[MSG], NULL));
	completion_await(s, MSG);
}

static void put_delivery(struct side *s, uint64_t off, uint64_t len)
{
	write_post(s, MSG, s->source, off, len,
		   FI_COMPLETION | FI_DELIVERY_COMPLETE);
	completion_await(s, MSG);
}

static void put_commit(struct side *s, uint64_t off, uint64_t len)
{
	write_post(s, MSG, s->source, off, len,
		   FI_COMPLETION | FI_COMMIT_COMPLETE);
	completion_await(s, MSG);
}

static void put_raw(struct side *s, uint64_t off, uint64_t len)
{
	char reply[CONN_REPLY];
	uint64_t sent = 0;
	ssize_t n;

	while (sent < len) {
		n = send(s->fd, s->source + sent, len - sent,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0)
			sent += (uint64_t)n;
		else if (errno != EAGAIN)
			MUST(-errno);
	}
	for (size_t have = 0; have < CONN_REPLY;) {
		n = recv(s->fd, reply, sizeof(reply) - have, MSG_DONTWAIT);
		if (n > 0)
			have += (size_t)n;
		else if (!n || errno != EAGAIN)
			MUST(n ? -errno : -ECONNRESET);
	}
}

static void put_rdm_delivery(struct side *s, uint64_t off, uint64_t len)
{
	write_post(s, RDM, s->source, off, len,
		   FI_COMPLETION | FI_DELIVERY_COMPLETE);
	completion_await(s, RDM);
}

static void put_rdm_request(struct side *s, uint64_t off, uint64_t len)
{
	write_post(s, RDM, s->source, off, len, 0);
	request_fill(s, FLUSH, off, len, 0);
	request_send(s, RDM, CONN_HEADER);
	completion_await(s, RDM);
}

struct method {
	const char *name;
	enum transport t;
	uint64_t most; /* maximum bytes; 0: no limit */
	void (*put)(struct side *s, uint64_t off, uint64_t len);
	bool ranges; /* true: its ranges are at offset_of() in the target */
};

static const struct method durable[] = {
	{"a: bytes in the SEND, clwb, reply", MSG, INLINE_MOST, put_inline,
	 false},
	{"a2: the same, header of 32 B, injected", MSG, 64, put_short, false},
	{"b: write, SEND, clwb, reply", MSG, 0, put_request, false},
	{"c: write, FI_DELIVERY_COMPLETE", MSG, 0, put_delivery, false},
	{"d: write, FI_COMMIT_COMPLETE", MSG, 0, put_commit, false},
	{"e: raw TCP, 64 B back", RAW, 0, put_raw, false},
	{"g: fi_writedata(), clwb, reply", MSG, 0, put_data, false},
	{"f1: RDM write, FI_DELIVERY_COMPLETE", RDM, 0, put_rdm_delivery,
	 false},
	{"f2: RDM write, tagged request, clwb, ack", RDM, 0, put_rdm_request,
	 false},
};
#define DURABLE	  9
#define REFERENCE 5 /* index of method e */

static uint64_t offset_of(uint64_t i)
{
	return i % RANGES * 4096 + (i * RANGE & 4095);
}

static void ranges_fill(struct side *s)
{
	struct range *r = (struct range *)(s->message + CONN_HEADER);

	for (uint64_t i = 0; i < RANGES; i++) {
		r[i].off = offset_of(i);
		r[i].len = RANGE;
	}
}

static void ranges_request(struct side *s, enum transport t)
{
	request_fill(s, FLUSH_RANGES, 0, 0, RANGES);
	ranges_fill(s);
	request_send(s, t, CONN_HEADER + RANGES * sizeof(struct range));
}

static void ranges_write(struct side *s, enum transport t, uint64_t flags)
{
	for (uint64_t i = 0; i < RANGES; i++)
		write_post(s, t, s->source + i * RANGE, offset_of(i), RANGE,
			   flags);
}

static void scatter_plain(struct side *s, uint64_t off, uint64_t len)
{
	ranges_write(s, MSG, 0);
	ranges_request(s, MSG);
	completion_await(s, MSG);
}

static void scatter_more(struct side *s, uint64_t off, uint64_t len)
{
	ranges_write(s, MSG, FI_MORE);
	ranges_request(s, MSG);
	completion_await(s, MSG);
}

static void scatter_inject(struct side *s, uint64_t off, uint64_t len)
{
	for (uint64_t i = 0; i < RANGES; i++)
		POST(s->n.cq,
		     fi_inject_write(s->ep, s->source + i * RANGE, RANGE, 0,
				     s->w->base + offset_of(i),
				     s->w->key[MSG]));
	ranges_request(s, MSG);
	completion_await(s, MSG);
}

/* Four ranges in each fi_writemsg(), which is the base's limit. */
static void scatter_vector(struct side *s, uint64_t off, uint64_t len)
{
	struct fi_rma_iov to[4];
	struct iovec iov = {.iov_len = 4 * RANGE};
	const struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.rma_iov = to,
		.rma_iov_count = 4,
	};

	for (uint64_t i = 0; i < RANGES; i += 4) {
		iov.iov_base = s->source + i * RANGE;
		for (uint64_t k = 0; k < 4; k++) {
			to[k].addr = s->w->base + offset_of(i + k);
			to[k].len = RANGE;
			to[k].key = s->w->key[MSG];
		}
		POST(s->n.cq, fi_writemsg(s->ep, &m, 0));
	}
	ranges_request(s, MSG);
	completion_await(s, MSG);
}

static void scatter_delivery(struct side *s, enum transport t, uint64_t more,
			     bool before)
{
	ranges_write(s, t, FI_COMPLETION | FI_DELIVERY_COMPLETE | more);
	for (unsigned int i = 0; before && i < RANGES; i++)
		completion_await(s, t);
	ranges_request(s, t);
	for (unsigned int i = 0; !before && i < RANGES; i++)
		completion_await(s, t);
	completion_await(s, t);
}

static void scatter_acked(struct side *s, uint64_t off, uint64_t len)
{
	scatter_delivery(s, MSG, 0, false);
}

static void scatter_acked_more(struct side *s, uint64_t off, uint64_t len)
{
	scatter_delivery(s, MSG, FI_MORE, false);
}

static void scatter_acked_before(struct side *s, uint64_t off, uint64_t len)
{
	scatter_delivery(s, MSG, 0, true);
}

static void scatter_rdm(struct side *s, uint64_t off, uint64_t len)
{
	scatter_delivery(s, RDM, 0, true);
}

static void scatter_coalesced(struct side *s, uint64_t off, uint64_t len)
{
	char *bytes = s->message + CONN_HEADER + RANGES * sizeof(struct range);

	request_fill(s, INLINE_RANGES, 0, 0, RANGES);
	ranges_fill(s);
	for (uint64_t i = 0; i < RANGES; i++)
		memcpy(bytes + i * RANGE, s->source + i * RANGE, RANGE);
	request_send(s, MSG,
		     CONN_HEADER + RANGES * (sizeof(struct range) + RANGE));
	completion_await(s, MSG);
}

static const struct method scattered[] = {
	{"a: 64 writes, SEND", MSG, 0, scatter_plain, true},
	{"a with FI_MORE", MSG, 0, scatter_more, true},
	{"a by fi_inject_write()", MSG, 0, scatter_inject, true},
	{"a by 16 fi_writemsg() of 4 ranges", MSG, 0, scatter_vector, true},
	{"b: FI_DELIVERY_COMPLETE each, SEND", MSG, 0, scatter_acked, true},
	{"b with FI_MORE", MSG, 0, scatter_acked_more, true},
	{"b, SEND after the last ack", MSG, 0, scatter_acked_before, true},
	{"c: one SEND with all", MSG, 0, scatter_coalesced, true},
	{"RDM, FI_DELIVERY_COMPLETE each, acks, tagged", RDM, 0, scatter_rdm,
	 true},
};
#define SCATTERED 9

/* Verify that the target's memory has the bytes of the last operation. */
static void verify_target_memory(struct side *s, const struct method *m,
				 uint64_t off, uint64_t size)
{
	if (m->t == RAW)
		return;
	for (uint64_t i = 0; m->ranges && i < RANGES; i++)
		if (memcmp(s->w->mem + offset_of(i), s->source + i * RANGE,
			   RANGE))
			MUST(-FI_EIO);
	if (!m->ranges && memcmp(s->w->mem + off, s->source, size))
		MUST(-FI_EIO);
}

static double time_block(struct side *s, const struct method *m, uint64_t size,
			 int ops)
{
	uint64_t off = 0;
	double begun;

	atomic_store(&s->w->count, size);
	atomic_store(&s->w->driven, m->t);
	for (int i = -8; i < ops; i++) {
		memcpy(s->source, &s->count, sizeof(s->count));
		s->count++;
		off = s->count * 4096 % (POOL - LARGEST + 1);
		begun = conn_now();
		m->put(s, off, size);
		if (i >= 0)
			s->samples[i] = conn_now() - begun;
	}
	verify_target_memory(s, m, off, size);
	return conn_median(s->samples, ops);
}

static int count_rounds(void)
{
	const char *text = getenv("CONN_ROUNDS");
	int n = text ? atoi(text) : 61;

	return n < 1 ? 1 : n > MOST_ROUNDS ? MOST_ROUNDS : n;
}

static void methods_run(struct side *s, const struct method *methods, int n,
			int reference, uint64_t size, int ops)
{
	static double us[16][MOST_ROUNDS];
	double ratio[MOST_ROUNDS], sorted[MOST_ROUNDS];
	const int r = count_rounds();
	double quiet;
	char text[RP_SIZE_LEN];

	for (int i = 0; i < r; i++)
		for (int k = 0; k < n; k++) {
			const int m = (i + k) % n;

			if (!methods[m].most || size <= methods[m].most)
				us[m][i] =
					time_block(s, &methods[m], size, ops);
		}
	memcpy(sorted, us[reference], sizeof(sorted));
	quiet = conn_percentile(sorted, r, 10);
	for (int m = 0; m < n; m++) {
		if (methods[m].most && size > methods[m].most)
			continue;
		for (int i = 0; i < r; i++)
			ratio[i] = us[m][i] / us[reference][i];
		memcpy(sorted, us[m], sizeof(sorted));
		printf("%-7s %-42s %9.1f us %9.1f us  %5.2f",
		       rp_size_format(size, text), methods[m].name,
		       conn_median(sorted, r), conn_percentile(sorted, r, 10),
		       conn_median(ratio, r));
		printf(" (%.2f to %.2f)  %5.2f\n",
		       conn_percentile(ratio, r, 25),
		       conn_percentile(ratio, r, 75),
		       conn_percentile(sorted, r, 10) / quiet);
	}
	fflush(stdout);
}

static int sizes_n;
static uint64_t sizes[16] = {8,	    64,	    512,     4096,   16384,
			     65536, 262144, 1 << 20, LARGEST};

static void initiator_open(struct side *s, struct conn_world *w)
{
	side_open(s, w);
	conn_await(w, 1);
	s->ep = conn_connect(&s->n, NULL, w);
	post_msg(s);
	raw_connect(s);
	conn_await(w, 2);
	rdm_open(s, false);
	conn_await(w, 4);
}

static void durable_initiator(struct conn_world *w, int number)
{
	struct side s;

	initiator_open(&s, w);
	for (int i = 0; i < sizes_n; i++)
		methods_run(&s, durable, DURABLE, REFERENCE, sizes[i],
			    sizes[i] <= 65536	 ? 100
			    : sizes[i] <= 262144 ? 30
						 : 10);
	atomic_store(&w->driven, TRANSPORTS);
}

static void scattered_initiator(struct conn_world *w, int number)
{
	struct side s;

	initiator_open(&s, w);
	methods_run(&s, scattered, SCATTERED, 0, RANGE, 50);
	atomic_store(&w->driven, TRANSPORTS);
}

int conn_durable(const char *prov, int argc, char **argv)
{
	char err[RP_ERR_LEN];

	sizes_n = argc > 0 ? argc : 9;
	for (int i = 0; i < argc && i < 16; i++)
		if (rp_size_parse(argv[i], &sizes[i], err) || !sizes[i] ||
		    sizes[i] > LARGEST || i == 15) {
			fprintf(stderr, "a size is 1 to %u bytes\n", LARGEST);
			return 2;
		}
	printf("%s, %d rounds: median and lowest decile of their p50; ratio to "
	       "e: "
	       "median of the rounds (quartiles), of the lowest deciles\n",
	       prov, count_rounds());
	return conn_run(prov, POOL, durable_target, durable_initiator, 1);
}

int conn_scattered(const char *prov, int argc, char **argv)
{
	printf("%s, %d rounds: median and lowest decile of their p50; ratio to "
	       "a: "
	       "median of the rounds (quartiles), of the lowest deciles\n",
	       prov, count_rounds());
	return conn_run(prov, POOL, durable_target, scattered_initiator, 1);
}
