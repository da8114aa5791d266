// SPDX-License-Identifier: BSD-2-Clause
/* Deferred completions: when each request is sent, and how each ends. */
#include <assert.h>

#include "core/deferred.h"

#define NS_PER_MS 1000000ull

void rp_deferred_init(struct rp_deferred *d, uint64_t initiator,
		      uint64_t timeout)
{
	*d = (struct rp_deferred){
		.initiator = initiator,
		.timeout = timeout,
		.next_token = 1,
	};
	STAILQ_INIT(&d->ops);
	LIST_INIT(&d->pending);
}

void rp_deferred_put(struct rp_deferred *d, struct rp_deferred_op *op)
{
	op->state = op->kind == RP_DEFERRED_PLAIN ? RP_DEFERRED_DONE
						  : RP_DEFERRED_UNSENT;
	op->outcome = RP_DEFERRED_OK;
	op->status = RP_ST_OK;
	op->pipelined = op->pending = false;
	if (op->state == RP_DEFERRED_UNSENT) {
		d->requests++;
		if (d->state == RP_DEFERRED_CLOSED) {
			op->state = RP_DEFERRED_DONE;
			op->outcome = RP_DEFERRED_LOST;
		}
	}
	STAILQ_INSERT_TAIL(&d->ops, op, link);
}

static void clear_pending(struct rp_deferred_op *op)
{
	LIST_REMOVE(op, pending_link);
	op->pending = false;
}

/* The request is placed in the ring: the agent's reply is due from now on. */
void rp_deferred_mark_placed(struct rp_deferred *d, uint64_t now,
			     struct rp_deferred_op *op)
{
	clear_pending(op);
	d->requests++;
	STAILQ_INSERT_TAIL(&d->ops, op, link);
	if (op->state != RP_DEFERRED_SENT)
		return;
	if (!d->replies_due++)
		d->deadline = now + d->timeout;
	/* The agent may have stopped polling before the write was placed. */
	d->doorbell |= !d->polling;
}

void rp_deferred_undo_pipeline(struct rp_deferred *d, struct rp_deferred_op *op)
{
	clear_pending(op);
	d->produced--;
	if (op->state == RP_DEFERRED_SENT)
		d->outstanding--;
}

void rp_deferred_drop(struct rp_deferred *d, struct rp_deferred_op *op)
{
	clear_pending(op);
	/* The request may have been placed nevertheless: then a reply comes. */
	d->dropped += op->state == RP_DEFERRED_SENT;
}

struct rp_deferred_op *rp_deferred_take(struct rp_deferred *d)
{
	struct rp_deferred_op *op = STAILQ_FIRST(&d->ops);

	if (!op || (op->state != RP_DEFERRED_DONE && !d->failed))
		return NULL;
	STAILQ_REMOVE_HEAD(&d->ops, link);
	d->requests -= op->kind != RP_DEFERRED_PLAIN;
	if (d->failed) {
		op->outcome = RP_DEFERRED_BEHIND_ERR;
	} else if (op->outcome != RP_DEFERRED_OK) {
		d->failed = true;
		rp_deferred_close(d);
	}
	return op;
}

static void op_mark_lost(struct rp_deferred_op *op)
{
	if (op->state == RP_DEFERRED_DONE)
		return;
	op->state = RP_DEFERRED_DONE;
	op->outcome = RP_DEFERRED_LOST;
}

void rp_deferred_close(struct rp_deferred *d)
{
	struct rp_deferred_op *op;

	d->state = RP_DEFERRED_CLOSED;
	d->outstanding = d->replies_due = 0;
	d->doorbell = false;
	STAILQ_FOREACH (op, &d->ops, link)
		op_mark_lost(op);
	LIST_FOREACH (op, &d->pending, pending_link)
		op_mark_lost(op);
}

bool rp_deferred_expire(struct rp_deferred *d, uint64_t now)
{
	if ((d->state != RP_DEFERRED_HELLO && !d->replies_due) ||
	    now < d->deadline)
		return false;
	rp_deferred_close(d);
	return true;
}

/* --- sending --- */

static size_t put_hello(struct rp_deferred *d, uint64_t key, void *buf)
{
	const struct rp_wire_hello m = {
		.key = key,
		.initiator = d->initiator,
		.timeout_ms = (uint32_t)(d->timeout / NS_PER_MS),
	};
	int len = rp_wire_put_hello(buf, RP_DEFERRED_MAX_MSG, &m);

	assert(len > 0);
	d->state = RP_DEFERRED_HELLO;
	return (size_t)len;
}

static size_t put_request(struct rp_deferred *d, struct rp_deferred_op *op,
			  void *buf, size_t room)
{
	const struct rp_wire_range range = {op->key, op->addr, op->len};
	struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = (uint8_t)op->required,
		.ranges = &range,
	};
	int len;

	if (op->kind != RP_DEFERRED_FLUSH) {
		m.effect = RP_EFFECT_STORE;
		m.bytes = op->kind == RP_DEFERRED_STORE ? op->value : op->bytes;
	}
	len = rp_wire_put_request(buf, room, d->next_token, &m);
	assert(len > 0);
	op->token = d->next_token++;
	op->state = RP_DEFERRED_SENT;
	return (size_t)len;
}

/* The first unsent request, unless it has to wait. */
static struct rp_deferred_op *next_unsent(struct rp_deferred *d)
{
	struct rp_deferred_op *op;

	STAILQ_FOREACH (op, &d->ops, link)
		if (op->state == RP_DEFERRED_UNSENT)
			break;
	if (!op || op->kind == RP_DEFERRED_FLUSH)
		return op;
	/* The agent stores on receipt: earlier flushes must have completed. */
	return op == STAILQ_FIRST(&d->ops) ? op : NULL;
}

size_t rp_deferred_next_message(struct rp_deferred *d, uint64_t now, void *buf,
				struct rp_deferred_op **out)
{
	struct rp_deferred_op *op;

	if (!d->requests || d->state == RP_DEFERRED_HELLO ||
	    d->state == RP_DEFERRED_CLOSED)
		return 0;
	op = next_unsent(d);
	if (!op)
		return 0;
	if (d->state == RP_DEFERRED_NEW) {
		*out = NULL;
		d->deadline = now + d->timeout;
		return put_hello(d, op->key, buf);
	}
	if (d->outstanding >= d->credits)
		return 0;
	d->outstanding++;
	if (!d->replies_due++)
		d->deadline = now + d->timeout;
	*out = op;
	return put_request(d, op, buf, RP_DEFERRED_MAX_MSG);
}

size_t rp_deferred_pipeline(struct rp_deferred *d, struct rp_deferred_op *op,
			    void *buf)
{
	if (d->state != RP_DEFERRED_OPEN || !d->polling ||
	    d->outstanding >= d->credits)
		return 0;
	d->outstanding++;
	op->outcome = RP_DEFERRED_OK;
	op->status = RP_ST_OK;
	op->pipelined = op->pending = true;
	op->index = d->produced++;
	LIST_INSERT_HEAD(&d->pending, op, pending_link);
	return put_request(d, op, buf, RP_DEFERRED_MAX_RING_MSG);
}

/* --- receiving --- */

/* The agent refused HELLO: fail everything with its status. */
static void refuse_all(struct rp_deferred *d, enum rp_status st)
{
	struct rp_deferred_op *op;

	STAILQ_FOREACH (op, &d->ops, link)
		if (op->state != RP_DEFERRED_DONE) {
			op->state = RP_DEFERRED_DONE;
			op->outcome = RP_DEFERRED_REFUSED;
			op->status = st;
		}
	rp_deferred_close(d);
}

static bool receive_ack(struct rp_deferred *d, const void *msg, size_t len)
{
	struct rp_wire_hello_ack m;

	if (d->state != RP_DEFERRED_HELLO ||
	    rp_wire_get_hello_ack(msg, len, &m))
		return false;
	if (m.status != RP_ST_OK) {
		refuse_all(d, (enum rp_status)m.status);
		return true;
	}
	d->state = RP_DEFERRED_OPEN;
	d->credits = m.credits < RP_DEFERRED_MAX ? m.credits : RP_DEFERRED_MAX;
	return true;
}

static bool awaits_reply(const struct rp_deferred_op *op, uint64_t token)
{
	return op->state == RP_DEFERRED_SENT && op->token == token;
}

static struct rp_deferred_op *find_op(struct rp_deferred *d, uint64_t token)
{
	struct rp_deferred_op *op;

	STAILQ_FOREACH (op, &d->ops, link)
		if (awaits_reply(op, token))
			return op;
	LIST_FOREACH (op, &d->pending, pending_link)
		if (awaits_reply(op, token))
			return op;
	return NULL;
}

/* Is it the reply to a dropped operation, which find_op() does not find? */
static bool was_dropped(struct rp_deferred *d, uint64_t token)
{
	if (!d->dropped || !token || token >= d->next_token)
		return false;
	d->dropped--;
	d->outstanding--;
	return true;
}

static bool receive_reply(struct rp_deferred *d, const void *msg,
			  const struct rp_wire_hdr *hdr)
{
	struct rp_wire_reply m;
	struct rp_deferred_op *op;

	if (rp_wire_get_reply(msg, hdr, &m))
		return false;
	op = find_op(d, hdr->token);
	if (!op)
		return was_dropped(d, hdr->token);
	if (m.status == RP_ST_OK &&
	    (m.level < RP_LEVEL_DURABLE || m.class < (uint8_t)op->required))
		m.status = RP_ST_CLASS;
	d->outstanding--;
	d->replies_due -= !op->pending;
	/* The agent takes requests in order: all up to this one are taken. */
	if (op->pipelined &&
	    op->index + 1 - d->consumed <= d->produced - d->consumed)
		d->consumed = op->index + 1;
	op->state = RP_DEFERRED_DONE;
	op->outcome =
		m.status == RP_ST_OK ? RP_DEFERRED_OK : RP_DEFERRED_REFUSED;
	op->status = m.status;
	return true;
}

/* After IDLE the agent reads the ring only when a DOORBELL comes. */
static void receive_signal(struct rp_deferred *d, bool polling)
{
	struct rp_deferred_op *op;

	d->polling = polling;
	if (polling)
		return;
	STAILQ_FOREACH (op, &d->ops, link)
		d->doorbell |= op->pipelined && op->state == RP_DEFERRED_SENT;
}

static bool receive_message(struct rp_deferred *d, const void *msg, size_t len)
{
	struct rp_wire_hdr hdr;

	if (rp_wire_get_hdr(msg, len, &hdr))
		return false;
	switch (hdr.type) {
	case RP_MSG_HELLO_ACK:
		return receive_ack(d, msg, len);
	case RP_MSG_REPLY:
		return d->state == RP_DEFERRED_OPEN &&
		       receive_reply(d, msg, &hdr);
	case RP_MSG_POLLING:
	case RP_MSG_IDLE:
		receive_signal(d, hdr.type == RP_MSG_POLLING);
		return true;
	default:
		return hdr.type == RP_MSG_PROGRESS &&
		       d->state == RP_DEFERRED_OPEN;
	}
}

bool rp_deferred_receive(struct rp_deferred *d, uint64_t now, const void *msg,
			 size_t len)
{
	if (d->state == RP_DEFERRED_CLOSED)
		return true;
	if (!receive_message(d, msg, len)) {
		rp_deferred_close(d);
		return false;
	}
	d->deadline = now + d->timeout;
	return true;
}
