// SPDX-License-Identifier: BSD-2-Clause
/* Operations of an initiator: post, and complete once. */
#include <stdlib.h>
#include <string.h>

#include "pmsim/pmsim_int.h"

#define OP_FLAGS                                                               \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE |                      \
	 FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MORE |               \
	 FI_REMOTE_CQ_DATA | PMSIM_FLUSH)

size_t ps_iov_len(const struct iovec *iov, size_t n)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++)
		len += iov[i].iov_len;
	return len;
}

void ps_ep_count(struct ps_ep *ep, enum ps_event event, int err)
{
	if (!ep->cntr[event])
		return;
	if (err)
		ep->cntr[event]->errors++;
	else
		ep->cntr[event]->value++;
}

void ps_op_free(struct ps_op *op)
{
	struct ps_machine *m = op->ep->dom->machine;

	if (op->due)
		TAILQ_REMOVE(&m->due, op, due_link);
	TAILQ_REMOVE(&op->ep->ops, op, link);
	m->unreported -= op->unreported;
	op->ep->nops--;
	m->outstanding--;
	free(op);
}

void ps_op_complete(struct ps_op *op, int err, size_t len)
{
	struct ps_ep *ep = op->ep;
	struct fi_cq_err_entry e = {
		.op_context = op->context,
		.flags = op->flags,
		.len = len,
		.err = err,
		.prov_errno = err,
	};

	if (err)
		PS_TRACE("machine %u: an operation fails: %s",
			 ep->dom->machine->id, fi_strerror(err));
	if (ep->tx_cq && (err || op->want))
		ps_cq_push(ep->tx_cq, &e, FI_ADDR_NOTAVAIL);
	ps_ep_count(ep, op->event, err);
	ps_op_free(op);
}

void ps_op_complete_later(struct ps_op *op, int err)
{
	op->due = true;
	op->err = err;
	TAILQ_INSERT_TAIL(&op->ep->dom->machine->due, op, due_link);
}

void ps_op_fail_unreachable(struct ps_op *op)
{
	if (!op->ep->connected || !ps_sim.cfg.late_errors) {
		ps_op_complete_later(op, FI_ECONNABORTED);
		return;
	}
	op->unreported = true;
	op->err = FI_ECONNABORTED;
	op->ep->dom->machine->unreported++;
}

bool ps_must_refuse(void)
{
	return ps_sim.cfg.refuse_every &&
	       !(++ps_sim.posts % ps_sim.cfg.refuse_every);
}

static size_t rma_len(const struct ps_tx *tx)
{
	size_t len = 0;

	for (size_t i = 0; i < tx->nrma; i++)
		len += tx->rma[i].len;
	return len;
}

static int check_post(const struct ps_ep *ep, const struct ps_tx *tx)
{
	size_t len = ps_iov_len(tx->iov, tx->niov);
	bool no_operand =
		tx->type == PMSIM_ATOMIC && tx->atomic == FI_ATOMIC_READ;

	if (ep->dead)
		return -FI_ESHUTDOWN;
	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	if (tx->flags & ~OP_FLAGS)
		return -FI_EBADFLAGS;
	if (tx->niov > PS_IOV || tx->nrma > PS_IOV || tx->nresult > PS_IOV ||
	    tx->ncompare > PS_IOV || len > PS_MAX_MSG ||
	    ((tx->flags & FI_INJECT) && len > PS_INJECT))
		return -FI_EINVAL;
	if ((tx->flags & PMSIM_FLUSH) && tx->type != PMSIM_READ)
		return -FI_EBADFLAGS;
	if (tx->nrma && !no_operand &&
	    (tx->flags & PMSIM_FLUSH ? len : rma_len(tx) != len))
		return -FI_EINVAL;
	if ((tx->nresult &&
	     rma_len(tx) != ps_iov_len(tx->result, tx->nresult)) ||
	    (tx->ncompare &&
	     rma_len(tx) != ps_iov_len(tx->compare, tx->ncompare)))
		return -FI_EINVAL;
	return 0;
}

static void gather_payload(char *to, const struct iovec *iov, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (iov[i].iov_len)
			memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
}

static struct ps_msg *make_msg(const struct ps_tx *tx)
{
	size_t len = tx->type == PMSIM_READ ? 0 : ps_iov_len(tx->iov, tx->niov);
	struct ps_msg *msg;

	msg = ps_msg_new(tx->type, len + ps_iov_len(tx->compare, tx->ncompare));
	if (!msg)
		return NULL;
	/* Copy now: a program must not change the payload before completion. */
	if (tx->type != PMSIM_READ)
		gather_payload(msg->payload, tx->iov, tx->niov);
	gather_payload(msg->payload + len, tx->compare, tx->ncompare);
	msg->compare = len;
	msg->flags = tx->flags;
	msg->data = tx->data;
	msg->tag = tx->tag;
	msg->datatype = tx->datatype;
	msg->atomic = tx->atomic;
	msg->fetch = tx->nresult;
	msg->nrma = tx->nrma;
	if (tx->nrma)
		memcpy(msg->rma, tx->rma, tx->nrma * sizeof(*tx->rma));
	return msg;
}

static struct ps_op *make_op(struct ps_ep *ep, const struct ps_tx *tx,
			     bool wants_reply)
{
	const struct iovec *to = tx->type == PMSIM_READ ? tx->iov : tx->result;
	size_t n = tx->type == PMSIM_READ ? tx->niov : tx->nresult;
	struct ps_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->ep = ep;
	op->event = tx->event;
	op->want = !ep->tx_selective || (tx->flags & FI_COMPLETION);
	op->context = tx->context;
	op->flags = tx->cq_flags;
	op->nresult = n;
	if (n)
		memcpy(op->result, to, n * sizeof(*to));
	TAILQ_INSERT_TAIL(&ep->ops, op, link);
	ep->nops++;
	ep->dom->machine->outstanding++;
	return op;
}

/* Find the wire to dest. *wire NULL: none; the completion reports that. */
static int find_wire(struct ps_ep *ep, fi_addr_t dest, struct ps_wire **wire)
{
	uint32_t number;
	int ret;

	if (ep->connected) {
		if (!ep->conn_wire)
			return -FI_ENOTCONN;
		*wire = ep->conn_wire->cut ? NULL : ep->conn_wire;
		return ps_must_refuse() ? -FI_EAGAIN : 0;
	}
	number = ps_av_number(ep->av, dest);
	if (!number)
		return -FI_EINVAL;
	if (ps_is_broken(ep, dest))
		return -FI_ENOTCONN;
	if (ps_must_refuse())
		return -FI_EAGAIN;
	ret = ps_wire_get(ep, number, wire);
	if (!ret && !*wire && ps_sim.cfg.reports_breaks) {
		ps_record_break(ep, number);
		return -FI_ENOTCONN;
	}
	return ret;
}

ssize_t ps_tx_post(struct ps_ep *ep, const struct ps_tx *tx)
{
	/* Operations without reply complete in any case, as over tcp. */
	bool wants_reply =
		!tx->silent &&
		(tx->type == PMSIM_READ || tx->type == PMSIM_ATOMIC ||
		 ((tx->flags & FI_DELIVERY_COMPLETE) && !ps_sim.cfg.no_acks));
	struct ps_op *op = NULL;
	struct ps_wire *wire;
	struct ps_msg *msg;
	int ret = check_post(ep, tx);

	if (!ret && ep->nops >= PS_QUEUE_SIZE)
		ret = -FI_EAGAIN;
	if (!ret)
		ret = find_wire(ep, tx->dest, &wire);
	if (ret)
		return ret;
	ep->dom->machine->doorbells += !(tx->flags & FI_MORE);
	msg = make_msg(tx);
	if (!msg)
		return -FI_ENOMEM;
	if (!tx->silent) {
		op = make_op(ep, tx, wants_reply);
		if (!op) {
			free(msg);
			return -FI_ENOMEM;
		}
	}
	if (wire) {
		if (wants_reply) {
			msg->op = op;
			op->qp = wire->qp;
		}
		ps_wire_post(wire, msg);
	} else {
		/* Without such an endpoint act as if the connection breaks. */
		PS_TRACE("machine %u: %s to nobody", ep->dom->machine->id,
			 ps_type_name(tx->type));
		free(msg);
		if (wants_reply)
			ps_op_fail_unreachable(op);
	}
	if (tx->silent)
		ps_ep_count(ep, tx->event, 0);
	else if (!wants_reply && (tx->flags & FI_INJECT))
		ps_op_complete(op, 0, 0);
	else if (!wants_reply)
		ps_op_complete_later(op, 0);
	return 0;
}
