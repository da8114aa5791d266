// SPDX-License-Identifier: BSD-2-Clause
/* Messages between client and server: doorbells and replies. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_tagged.h>

#include "librpc/port.h"
#include "util/bytes.h"

/* A message buffer, which is the context of its operation. */
struct rpc_buf {
	struct fi_context2 context;
	struct rpc_buf *next;
	unsigned char *bytes;
	bool receives;
};

static int post_receive(struct rpc_port *p, struct rpc_buf *b)
{
	/* A message does not contain its length: clear the old one. */
	memset(b->bytes, 0, RPC_MSG_HEADER);
	return (int)fi_trecv(p->f.ep, b->bytes, RPC_MSG_BYTES,
			     rp_fabric_desc(p->mr), FI_ADDR_UNSPEC, 0, ~0ull,
			     b);
}

static int prepare(struct rpc_port *p, unsigned int n, char *err)
{
	int ret = 0;

	p->size = (size_t)2 * n * RPC_MSG_BYTES;
	p->memory = calloc(2ul * n, RPC_MSG_BYTES);
	p->all = calloc(2ul * n, sizeof(*p->all));
	if (!p->memory || !p->all)
		return rp_err(err, -ENOMEM, "out of memory");
	ret = rp_fabric_reg(&p->f, p->memory, p->size,
			    FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0, &p->mr,
			    err);
	for (unsigned int i = 0; i < 2 * n && !ret; i++) {
		struct rpc_buf *b = &p->all[i];

		b->bytes = p->memory + (size_t)i * RPC_MSG_BYTES;
		b->receives = i < n;
		if (b->receives) {
			ret = post_receive(p, b);
			if (ret)
				rp_err(err, 0, "posting a receive: %s",
				       fi_strerror(-ret));
		} else {
			b->next = p->free;
			p->free = b;
		}
	}
	return ret;
}

int rpc_port_open(struct rpc_port *p, const struct rp_fabric_attr *attr,
		  unsigned int n, char *err)
{
	struct rp_fabric_attr a = *attr;
	int ret;

	memset(p, 0, sizeof(*p));
	pthread_mutex_init(&p->lock, NULL);
	a.bare = a.tagged = a.wait_fd = true;
	/* The base sockets has that descriptor with automatic progress only. */
	a.automatic = a.base && !strcmp(a.base, "sockets");
	/* ofi_rxm allocates 16 KiB for each queue entry, in several buffers. */
	a.queue_size = a.cq_size = n;
	ret = rp_fabric_open(&a, &p->f, err);
	if (ret)
		goto close;
	ret = fi_control(&p->f.cq->fid, FI_GETWAIT, &p->fd);
	p->name_len = sizeof(p->name);
	if (!ret)
		ret = fi_getname(&p->f.ep->fid, p->name, &p->name_len);
	if (ret)
		rp_err(err, ret, "endpoint for messages: %s",
		       fi_strerror(-ret));
	else
		ret = prepare(p, n, err);
close:
	if (ret)
		rpc_port_close(p);
	return ret;
}

void rpc_port_close(struct rpc_port *p)
{
	if (p->f.ep)
		fi_close(&p->f.ep->fid);
	p->f.ep = NULL;
	if (p->mr)
		fi_close(&p->mr->fid);
	rp_fabric_close(&p->f);
	free(p->memory);
	free(p->all);
	pthread_mutex_destroy(&p->lock);
	memset(p, 0, sizeof(*p));
}

static void give_back(struct rpc_port *p, struct rpc_buf *b)
{
	pthread_mutex_lock(&p->lock);
	b->next = p->free;
	p->free = b;
	pthread_mutex_unlock(&p->lock);
}

static size_t encode(const struct rpc_msg *m, unsigned char *to)
{
	const bool follows =
		m->bytes && m->result.len <= RPC_MSG_BYTES - RPC_MSG_HEADER;

	rp_put32(to, m->type);
	rp_put32(to + 4, m->slot);
	rp_put64(to + 8, m->token);
	rp_put64(to + 16, m->result.sequence);
	rp_put64(to + 24, m->result.hash);
	rp_put32(to + 32, m->result.len);
	rp_put32(to + 36, follows);
	rp_put64(to + 40, 0);
	if (follows)
		memcpy(to + RPC_MSG_HEADER, m->bytes, m->result.len);
	return RPC_MSG_HEADER + (follows ? m->result.len : 0);
}

static bool decode(const unsigned char *from, struct rpc_msg *m)
{
	*m = (struct rpc_msg){
		.type = rp_get32(from),
		.slot = rp_get32(from + 4),
		.token = rp_get64(from + 8),
		.result.sequence = rp_get64(from + 16),
		.result.hash = rp_get64(from + 24),
		.result.len = rp_get32(from + 32),
		.has_bytes = rp_get32(from + 36) == 1,
		.bytes = from + RPC_MSG_HEADER,
	};
	return !m->has_bytes || m->result.len <= RPC_MSG_BYTES - RPC_MSG_HEADER;
}

int rpc_port_send(struct rpc_port *p, fi_addr_t to, const struct rpc_msg *m)
{
	struct rpc_buf *b;
	int ret;

	pthread_mutex_lock(&p->lock);
	b = p->free;
	if (b)
		p->free = b->next;
	pthread_mutex_unlock(&p->lock);
	if (!b)
		return -EAGAIN;
	ret = (int)fi_tsend(p->f.ep, b->bytes, encode(m, b->bytes),
			    rp_fabric_desc(p->mr), to, 0, b);
	if (ret)
		give_back(p, b);
	return ret == -FI_EAGAIN ? -EAGAIN : ret;
}

static void handle_completion(struct rpc_port *p, struct rpc_buf *b,
			      bool failed, rpc_port_fn fn, void *arg)
{
	struct rpc_msg m;

	if (!b->receives) {
		give_back(p, b);
		return;
	}
	if (!failed && decode(b->bytes, &m))
		fn(arg, &m);
	post_receive(p, b);
}

int rpc_port_poll(struct rpc_port *p, rpc_port_fn fn, void *arg, int ms)
{
	struct fi_cq_err_entry bad;
	struct fi_cq_entry done[16];
	ssize_t n;

	n = ms ? fi_cq_sread(p->f.cq, done, 16, NULL, ms)
	       : fi_cq_read(p->f.cq, done, 16);
	for (ssize_t i = 0; i < n; i++)
		handle_completion(p, done[i].op_context, false, fn, arg);
	if (n == -FI_EAVAIL && !rp_fabric_cq_error(&p->f, &bad, NULL) &&
	    bad.op_context)
		handle_completion(p, bad.op_context, true, fn, arg);
	return n >= 0 || n == -FI_EAGAIN || n == -FI_EAVAIL || n == -FI_EINTR
		       ? 0
		       : (int)n;
}
