/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests of prov/rc: two domains with private connections in one process. */
#ifndef RC_RIG_H
#define RC_RIG_H

#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <rdma/fabric.h>

#include <criterion/criterion.h>

#include "rc/rc.h"

/* One end of a connection: counts of its callbacks, and the last message. */
struct end {
	struct rp_channel *c;
	int connected, lost, err, messages;
	size_t len, data_len; /* lengths of last message and private data */
	uint8_t msg[8192], data[512];
	void (*on_message)(struct end *e);
	void (*on_lost)(struct end *e);
	void *arg;
};

/* One domain with its private connections. */
struct node {
	struct rp_rc *rc;
	struct sockaddr_in at; /* address of the listener */
	uint64_t clock_offset; /* ns added to the domain's clock */
	bool hold;	       /* keep connection requests in .request */
	bool refuse;
	struct end *accept; /* ends for the next connection requests */
	int accepted, requests, withdrawn;
	void *request[128];
	uint8_t last_data[512];
	size_t last_data_len;
};

struct op {
	struct rp_channel_op op;
	struct iovec iov;
	int done, err;
};

static inline uint64_t rig_now(void *arg)
{
	const struct node *n = arg;
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec +
	       n->clock_offset;
}

static inline int rig_random(void *arg, void *buf, size_t len)
{
	return getrandom(buf, len, 0) == (ssize_t)len ? 0 : -EIO;
}

static inline void rig_kick(void *arg)
{
}

static inline void end_connected(void *owner, const void *data, size_t len)
{
	struct end *e = owner;

	e->connected++;
	e->data_len = len;
	memcpy(e->data, data, len);
}

static inline void end_lost(void *owner, int err, const void *data, size_t len)
{
	struct end *e = owner;

	e->lost++;
	e->err = err;
	e->data_len = len;
	if (len)
		memcpy(e->data, data, len);
	if (e->on_lost)
		e->on_lost(e);
}

static inline void end_received(void *owner, const void *msg, size_t len)
{
	struct end *e = owner;

	e->messages++;
	e->len = len;
	cr_assert_leq(len, sizeof(e->msg));
	memcpy(e->msg, msg, len);
	if (e->on_message)
		e->on_message(e);
}

static const struct rp_channel_events end_events = {
	.connected = end_connected,
	.lost = end_lost,
	.received = end_received,
};

static inline void rig_requested(void *arg, void *request, const void *data,
				 size_t len)
{
	struct node *n = arg;
	struct end *e;
	int ret;

	n->last_data_len = len;
	memcpy(n->last_data, data, len < 512 ? len : 512);
	if (n->hold) {
		n->request[n->requests++ % 128] = request;
	} else if (n->refuse) {
		n->requests++;
		rp_rc_reject(n->rc, request, "go away", 7);
	} else {
		n->requests++;
		e = &n->accept[n->accepted++];
		ret = rp_rc_accept(n->rc, request, "welcome", 7, &end_events, e,
				   &e->c);
		cr_assert_eq(ret, 0, "%d", ret);
	}
}

static inline void rig_gone(void *arg, void *request)
{
	struct node *n = arg;

	n->withdrawn++;
	for (int i = 0; i < 128; i++)
		if (n->request[i] == request)
			n->request[i] = NULL;
}

static inline struct rp_rc_attr rig_attr(struct node *n)
{
	return (struct rp_rc_attr){
		.backend = RP_RC_TCP,
		.now = rig_now,
		.random = rig_random,
		.kick = rig_kick,
		.requested = rig_requested,
		.gone = rig_gone,
		.arg = n,
	};
}

static inline void node_open_with(struct node *n, const struct rp_rc_attr *attr)
{
	char why[256];
	int ret = rp_rc_open(attr, &n->rc, why, sizeof(why));

	cr_assert_eq(ret, 0, "%d: %s", ret, why);
}

static inline void node_open(struct node *n)
{
	const struct rp_rc_attr attr = rig_attr(n);

	node_open_with(n, &attr);
}

static inline void node_listen(struct node *n)
{
	uint16_t port;
	int ret;

	n->at = (struct sockaddr_in){.sin_family = AF_INET};
	n->at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ret = rp_rc_listen(n->rc, (struct sockaddr *)&n->at, sizeof(n->at),
			   &port);
	cr_assert_eq(ret, 0, "%d", ret);
	n->at.sin_port = htons(port);
}

static inline int node_connect(struct node *n, const struct node *to,
			       struct end *e)
{
	struct rp_connector *k = rp_rc_connector(n->rc);

	return k->ops->connect(k, &to->at, sizeof(to->at), "hello", 5,
			       &end_events, e, &e->c);
}

/* Poll both domains until the condition holds. */
#define PUMP(a, b, cond)                                                       \
	do {                                                                   \
		const uint64_t begun = rig_now(a);                             \
                                                                               \
		while (!(cond)) {                                              \
			rp_rc_poll((a)->rc, 64);                               \
			rp_rc_poll((b)->rc, 64);                               \
			cr_assert_lt(rig_now(a) - begun, 60000000000ull,       \
				     "never: " #cond);                         \
		}                                                              \
	} while (0)

static inline void op_done(struct rp_channel_op *op, int err)
{
	struct op *o = (struct op *)op;

	o->done++;
	o->err = err;
}

static inline void op_init(struct op *o, enum rp_channel_kind kind, void *buf,
			   size_t len)
{
	*o = (struct op){
		.op = {.done = op_done, .kind = kind, .iov_count = !!len},
		.iov = {buf, len},
	};
	o->op.iov = &o->iov;
	o->op.length = len;
}

static inline void op_to(struct op *o, const struct rp_rc_mr *mr, uint64_t off)
{
	o->op.rkey = mr->rkey;
	o->op.remote_addr = mr->remote_addr + off;
}

static inline void op_post(struct rp_channel *c, struct op *o)
{
	struct rp_channel_op *op = &o->op;

	cr_assert_eq(rp_channel_post(c, &op, 1), 1);
}

/* A target and an initiator that are connected. */
struct pair {
	struct node t, i;
	struct end te, ie;
};

static inline void pair_open(struct pair *p)
{
	memset(p, 0, sizeof(*p));
	node_open(&p->t);
	node_open(&p->i);
	node_listen(&p->t);
	p->t.accept = &p->te;
	cr_assert_eq(node_connect(&p->i, &p->t, &p->ie), 0);
	PUMP(&p->i, &p->t, p->ie.connected && p->te.c);
}

static inline void pair_close(struct pair *p)
{
	if (p->ie.c)
		rp_channel_close(p->ie.c);
	if (p->te.c)
		rp_channel_close(p->te.c);
	rp_rc_close(p->i.rc);
	rp_rc_close(p->t.rc);
}

static inline void register_memory(struct node *n, void *buf, size_t len,
				   struct rp_rc_mr *mr)
{
	int ret = rp_rc_reg(n->rc, buf, len,
			    RP_RC_REMOTE_READ | RP_RC_REMOTE_WRITE, mr);

	cr_assert_eq(ret, 0, "%d", ret);
}

static inline void echo_message(struct end *e)
{
	struct op o;

	if (e->arg) /* rp_rc_poll() in a callback does nothing */
		cr_assert(!rp_rc_poll(((struct node *)e->arg)->rc, 64));

	op_init(&o, RP_CHANNEL_SEND, e->msg, e->len);
	o.op.inject = true;
	op_post(e->c, &o);
}

/* More messages than posted receives are sent in both directions. */

#endif
