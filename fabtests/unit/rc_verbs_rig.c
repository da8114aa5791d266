// SPDX-License-Identifier: BSD-2-Clause
/*
 * Private connections on the fake device (cm_fake.h), whose owners record their
 * callbacks.
 */
#include "config.h"

#include <malloc.h>
#include <string.h>

#include <criterion/criterion.h>

#include "fabtests/unit/rc_verbs_rig.h"

struct rp_rc *rig;
struct rig_request rig_requests[128];
int rig_nrequests, rig_order;
uint64_t rig_now;

static const struct sockaddr_in here = {
	.sin_family = AF_INET,
	.sin_addr.s_addr = 0x0100007f,
};

static uint64_t now(void *arg)
{
	return rig_now += 1000000;
}

static int fill_random(void *arg, void *buf, size_t len)
{
	memset(buf, 1, len);
	return 0;
}

static void count_kick(void *arg)
{
}

static void on_request(void *arg, void *request, const void *data, size_t len)
{
	struct rig_request *r = &rig_requests[rig_nrequests++];

	*r = (struct rig_request){.request = request, .len = len};
	memcpy(r->data, data, len);
}

static void on_request_gone(void *arg, void *request)
{
	for (int i = 0; i < rig_nrequests; i++)
		rig_requests[i].gone += rig_requests[i].request == request;
}

struct rp_rc_attr rig_attr = {
	.backend = RP_RC_VERBS,
	.device = FAKE_DEVICE,
	.waits = true,
	.now = now,
	.random = fill_random,
	.kick = count_kick,
	.requested = on_request,
	.gone = on_request_gone,
};

static void maybe_close(struct rig_end *e)
{
	struct rp_channel *c = e->c;

	if (!e->close)
		return;
	e->c = NULL;
	e->close = false;
	rp_channel_close(c);
}

static void on_connected(void *owner, const void *data, size_t len)
{
	struct rig_end *e = owner;

	e->nconnected++;
	memcpy(e->data, data, len);
	e->data_len = len;
	maybe_close(e);
}

static void on_lost(void *owner, int err, const void *data, size_t len)
{
	struct rig_end *e = owner;

	e->lost++;
	e->lost_err = err;
	e->order = ++rig_order;
	if (len)
		memcpy(e->data, data, len);
	e->data_len = len;
	maybe_close(e);
}

static void on_message(void *owner, const void *msg, size_t len)
{
	struct rig_end *e = owner;

	cr_assert_eq(e->lost, 0);
	e->received++;
	memcpy(e->msg, msg, len);
	e->msg_len = len;
	maybe_close(e);
}

const struct rp_channel_events rig_events = {
	.connected = on_connected,
	.lost = on_lost,
	.received = on_message,
};

static void on_done(struct rp_channel_op *op, int err)
{
	struct rig_op *o = (struct rig_op *)op;

	o->done++;
	o->err = err;
	o->order = ++rig_order;
	if (o->close) {
		o->close->close = true;
		maybe_close(o->close);
	}
}

void rig_start(void)
{
	char why[128];

	/* Overwrite freed memory, so that a use after free is noticed. */
	mallopt(M_PERTURB, 0x5a);
	rig_nrequests = rig_order = 0;
	cr_assert_eq(rp_rc_open(&rig_attr, &rig, why, sizeof(why)), 0, "%s",
		     why);
}

void rig_end(void)
{
	rp_rc_close(rig);
	fake_end();
}

void rig_poll(void)
{
	for (int i = 0; i < 8; i++)
		while (rp_rc_poll(rig, 64))
			;
}

void rig_listen(void)
{
	uint16_t port;

	cr_assert_eq(rp_rc_listen(rig, (const struct sockaddr *)&here,
				  sizeof(here), &port),
		     0);
	cr_assert_eq(port, 4711);
}

void rig_begin(struct rig_end *e)
{
	struct rp_connector *k = rp_rc_connector(rig);

	*e = (struct rig_end){0};
	cr_assert_eq(k->ops->connect(k, &here, sizeof(here), "hello", 5,
				     &rig_events, e, &e->c),
		     0);
	e->id = fake.id;
}

void rig_connect(struct rig_end *e)
{
	rig_begin(e);
	fake_event(e->id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
	fake_event(e->id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
	fake_padded(e->id, RDMA_CM_EVENT_CONNECT_RESPONSE, "ack", 3, 196);
	rig_poll();
	cr_assert_eq(e->nconnected, 1);
	e->qp = fake.qp;
}

void rig_accept(struct rig_end *e)
{
	const int n = rig_nrequests;

	*e = (struct rig_end){.id = fake_peer()};
	fake_padded(e->id, RDMA_CM_EVENT_CONNECT_REQUEST, "hello", 5, 56);
	rig_poll();
	cr_assert_eq(rig_nrequests, n + 1);
	cr_assert_eq(rp_rc_accept(rig, rig_requests[n].request, "ack", 3,
				  &rig_events, e, &e->c),
		     0);
	e->qp = fake.qp;
	fake_event(e->id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
	rig_poll();
}

struct rp_channel_op *rig_op(struct rig_op *o, enum rp_channel_kind kind,
			     const void *buf, size_t len)
{
	*o = (struct rig_op){
		.op = {.done = on_done,
		       .kind = kind,
		       .iov_count = buf != NULL,
		       .iov = o->iov,
		       .rkey = 7,
		       .remote_addr = 0x1000,
		       .length = len},
		.iov = {{(void *)buf, len}},
	};
	return &o->op;
}

struct rp_channel_op *rig_op_mr(struct rig_op *o, enum rp_channel_kind kind,
				const void *buf, size_t len,
				const struct rp_rc_mr *mr)
{
	rig_op(o, kind, buf, len);
	o->desc[0] = mr->desc;
	o->op.desc = o->desc;
	return &o->op;
}

int rig_post(struct rig_end *e, struct rp_channel_op *op)
{
	return rp_channel_post(e->c, &op, 1);
}
