// SPDX-License-Identifier: BSD-2-Clause
/* Wires: messages in flight, and breaks of connections. */
#include <stdlib.h>
#include <string.h>

#include "pmsim/pmsim_int.h"

/*
 * A connection is two wires, one per direction. When it breaks, the next
 * connection uses the same wires with new queue pair numbers. A message keeps
 * its number, so that no message of an old connection causes a reply.
 */

void ps_record_break(struct ps_ep *ep, uint32_t number)
{
	struct ps_break *l;

	if (!ps_sim.cfg.reports_breaks)
		return;
	HASH_FIND(hh, ep->breaks, &number, sizeof(number), l);
	if (!l) {
		l = calloc(1, sizeof(*l));
		if (!l)
			abort(); /* out of memory: abort the test */
		l->number = number;
		HASH_ADD(hh, ep->breaks, number, sizeof(l->number), l);
	}
	l->at = ++ps_sim.clock;
}

bool ps_is_broken(const struct ps_ep *ep, fi_addr_t addr)
{
	uint32_t number = ps_av_number(ep->av, addr);
	struct ps_break *l;

	HASH_FIND(hh, ep->breaks, &number, sizeof(number), l);
	return l && l->at > ps_av_insert_time(ep->av, addr);
}

void ps_breaks_free(struct ps_ep *ep)
{
	struct ps_break *l, *next;

	HASH_ITER(hh, ep->breaks, l, next)
	{
		HASH_DEL(ep->breaks, l);
		free(l);
	}
}

struct ps_msg *ps_msg_new(enum pmsim_msg_type type, size_t len)
{
	struct ps_msg *msg = malloc(sizeof(*msg) + len);

	if (!msg)
		return NULL;
	memset(msg, 0, sizeof(*msg));
	msg->type = type;
	msg->len = len;
	return msg;
}

struct ps_wire *ps_wire_find(unsigned int id)
{
	return id < ps_sim.nwires ? ps_sim.wires[id] : NULL;
}

static struct ps_wire *wire_new(struct ps_ep *from, struct ps_ep *to)
{
	struct ps_wire *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->src = from->dom->machine->id;
	w->from = from;
	w->to = to;
	w->qp = ++ps_sim.last_qp;
	TAILQ_INIT(&w->flight);
	return w;
}

int ps_wire_pair(struct ps_ep *from, struct ps_ep *to, struct ps_wire **wire)
{
	struct ps_wire **grown, *forward, *back;

	grown = realloc(ps_sim.wires, (ps_sim.nwires + 2) * sizeof(*grown));
	if (!grown)
		return -FI_ENOMEM;
	ps_sim.wires = grown;
	forward = wire_new(from, to);
	back = wire_new(to, from);
	if (!forward || !back) {
		free(forward);
		free(back);
		return -FI_ENOMEM;
	}
	forward->back = back;
	back->back = forward;
	forward->id = ps_sim.nwires++;
	ps_sim.wires[forward->id] = forward;
	back->id = ps_sim.nwires++;
	ps_sim.wires[back->id] = back;
	forward->connected = back->connected = from->connected;
	*wire = forward;
	return 0;
}

static int connect_pair(struct ps_ep *from, struct ps_ep *to,
			struct ps_wire **wire)
{
	int ret = ps_wire_pair(from, to, wire);

	if (ret)
		return ret;
	LIST_INSERT_HEAD(&from->wires, *wire, link);
	if (from != to)
		LIST_INSERT_HEAD(&to->wires, (*wire)->back, link);
	return 0;
}

int ps_wire_get(struct ps_ep *from, uint32_t number, struct ps_wire **wire)
{
	struct ps_wire *w;
	struct ps_ep *to;

	LIST_FOREACH (w, &from->wires, link) {
		if (w->to->addr.number == number) {
			*wire = w;
			return 0;
		}
	}
	HASH_FIND(hh, ps_sim.eps, &number, sizeof(number), to);
	*wire = NULL;
	return to ? connect_pair(from, to, wire) : 0;
}

void ps_wire_post(struct ps_wire *w, struct ps_msg *msg)
{
	msg->wire = w->id;
	msg->qp = w->qp;
	msg->from = w->from->addr.number;
	msg->to = w->to;
	TAILQ_INSERT_TAIL(&w->flight, msg, link);
	w->n++;
	ps_sim.count[msg->type]++;
	PS_TRACE("wire %u: %s of %zu bytes from machine %u to %u", w->id,
		 ps_type_name(msg->type), msg->len, w->from->dom->machine->id,
		 w->to->dom->machine->id);
}

void ps_reply(const struct ps_msg *request, enum pmsim_msg_type type, int err,
	      const void *payload, size_t len)
{
	struct ps_wire *w = ps_wire_find(request->wire);
	struct ps_msg *msg;

	if (!request->op || !w || w->cut || w->qp != request->qp)
		return;
	msg = ps_msg_new(type, len);
	if (!msg)
		abort(); /* out of memory: abort the test */
	msg->op = request->op;
	msg->err = err;
	if (len)
		memcpy(msg->payload, payload, len);
	ps_wire_post(w->back, msg);
}

void ps_wire_deliver(struct ps_wire *w, unsigned int n)
{
	struct ps_machine *m = w->to->dom->machine;

	while (n-- && w->n) {
		struct ps_msg *msg = TAILQ_FIRST(&w->flight);

		TAILQ_REMOVE(&w->flight, msg, link);
		w->n--;
		PS_TRACE("wire %u: %s arrives", w->id, ps_type_name(msg->type));
		ps_arrive(m, msg);
	}
	ps_placed_acks(m);
}

static void lose_flight(struct ps_wire *w)
{
	struct ps_msg *msg;

	while ((msg = TAILQ_FIRST(&w->flight))) {
		PS_TRACE("wire %u: %s is lost", w->id, ps_type_name(msg->type));
		TAILQ_REMOVE(&w->flight, msg, link);
		free(msg);
	}
	w->n = 0;
}

bool ps_msg_is_unreceived(const struct ps_wire *w, const struct ps_msg *msg)
{
	return msg->wire == w->id && msg->qp == w->qp && !msg->placed &&
	       !msg->rx;
}

/* Drop all but `late` arrived messages. Returns the rest of `late`. */
static unsigned int lose_arrived(struct ps_wire *w, unsigned int late)
{
	struct ps_msgs *list = &w->to->dom->machine->arrived;
	struct ps_msg *msg, *next;

	for (msg = TAILQ_FIRST(list); msg; msg = next) {
		next = TAILQ_NEXT(msg, link);
		if (!ps_msg_is_unreceived(w, msg))
			continue;
		if (late) {
			late--;
			continue;
		}
		PS_TRACE("wire %u: %s that had arrived is lost", w->id,
			 ps_type_name(msg->type));
		if (msg->type >= PMSIM_ACK)
			msg->op->has_reply = false;
		TAILQ_REMOVE(list, msg, link);
		free(msg);
	}
	return late;
}

/* Fail operations that wait for a reply on a broken connection. */
static void fail_ops(struct ps_ep *ep, unsigned int qp)
{
	struct ps_op *op, *next;

	for (op = TAILQ_FIRST(&ep->ops); op; op = next) {
		next = TAILQ_NEXT(op, link);
		if (op->qp != qp || op->due || op->has_reply || op->unreported)
			continue;
		if (!ps_sim.cfg.late_errors) {
			ps_op_complete(op, FI_ECONNABORTED, 0);
			continue;
		}
		op->unreported = true;
		op->err = FI_ECONNABORTED;
		ep->dom->machine->unreported++;
	}
}

void ps_wire_break(struct ps_wire *w, unsigned int late)
{
	unsigned int old = w->qp, old_back = w->back->qp;

	PS_TRACE("wire %u: breaks, %u late", w->id, late);
	late = lose_arrived(w, late);
	ps_wire_deliver(w, late);
	ps_nic_place_all(w->from->dom->machine);
	ps_nic_place_all(w->to->dom->machine);
	lose_flight(w);
	lose_flight(w->back);
	w->qp = ++ps_sim.last_qp;
	w->back->qp = ++ps_sim.last_qp;
	ps_record_break(w->from, w->to->addr.number);
	ps_record_break(w->to, w->from->addr.number);
	fail_ops(w->from, old);
	fail_ops(w->to, old_back);
}

static void lose_replies(struct ps_wire *w)
{
	struct ps_msg *msg, *next;

	for (msg = TAILQ_FIRST(&w->flight); msg; msg = next) {
		next = TAILQ_NEXT(msg, link);
		if (msg->type < PMSIM_ACK)
			continue;
		PS_TRACE("wire %u: %s is lost", w->id, ps_type_name(msg->type));
		TAILQ_REMOVE(&w->flight, msg, link);
		w->n--;
		free(msg);
	}
}

void ps_wire_cut(struct ps_wire *w)
{
	PS_TRACE("wire %u: is cut", w->id);
	w->cut = w->back->cut = true;
	lose_replies(w);
	lose_replies(w->back);
	fail_ops(w->from, w->qp);
	fail_ops(w->to, w->back->qp);
}

static void wire_free(struct ps_wire *w)
{
	ps_sim.wires[w->id] = NULL;
	lose_flight(w);
	free(w);
}

void ps_wire_end(struct ps_wire *w)
{
	struct ps_wire *back = w->back;

	lose_flight(back);
	w->from = NULL;
	if (back->from)
		return;
	wire_free(w);
	wire_free(back);
}

void ps_wires_drop(struct ps_ep *ep)
{
	struct ps_wire *w, *back;

	while ((w = LIST_FIRST(&ep->wires))) {
		back = w->back;
		LIST_REMOVE(w, link);
		if (back->from != ep)
			LIST_REMOVE(back, link);
		ps_record_break(back->from, ep->addr.number);
		fail_ops(back->from, back->qp);
		wire_free(w);
		wire_free(back);
	}
}

void ps_wires_reset(void)
{
	free(ps_sim.wires);
	ps_sim.wires = NULL;
	ps_sim.nwires = 0;
	ps_sim.last_qp = 0;
}
