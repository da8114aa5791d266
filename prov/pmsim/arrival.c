// SPDX-License-Identifier: BSD-2-Clause
/* Arrival of messages: handled by the NIC, or left for the program. */
#include <stdlib.h>
#include <string.h>

#include "pmsim/pmsim_int.h"

void ps_write_memory(struct ps_machine *m, const struct ps_msg *msg, bool nic,
		     void *to, const void *from, size_t len)
{
	if (!len)
		return;
	if (!m->model || !model_owns(m->model, to))
		memcpy(to, from, len);
	else if (nic)
		model_dma_write(m->model, msg->qp, to, from, len);
	else
		model_store(m->model, m->place, to, from, len);
}

static void scatter_payload(struct ps_machine *m, const struct ps_msg *msg,
			    bool nic, const struct iovec *iov, size_t n)
{
	size_t done = 0;

	for (size_t i = 0; i < n && done < msg->len; i++) {
		size_t len = msg->len - done;

		if (len > iov[i].iov_len)
			len = iov[i].iov_len;
		ps_write_memory(m, msg, nic, iov[i].iov_base,
				msg->payload + done, len);
		done += len;
	}
}

/* --- acknowledgements --- */

/* Acknowledge a request that the NIC executed: now, or after placement. */
static void nic_ack(struct ps_machine *m, struct ps_msg *msg)
{
	struct ps_msg *later;

	if (!msg->op)
		return;
	if (!ps_sim.cfg.placed_acks) {
		ps_reply(msg, PMSIM_ACK, 0, NULL, 0);
	} else {
		later = ps_msg_new(PMSIM_ACK, 0);
		if (!later)
			abort(); /* out of memory: abort the test */
		later->wire = msg->wire;
		later->qp = msg->qp;
		later->op = msg->op;
		TAILQ_INSERT_TAIL(&m->unplaced, later, link);
	}
	msg->op = NULL;
}

void ps_placed_acks(struct ps_machine *m)
{
	struct ps_msg *msg;

	if (TAILQ_EMPTY(&m->unplaced) || model_dma_pending(m->model))
		return;
	while ((msg = TAILQ_FIRST(&m->unplaced))) {
		TAILQ_REMOVE(&m->unplaced, msg, link);
		ps_reply(msg, PMSIM_ACK, 0, NULL, 0);
		free(msg);
	}
}

/* Place everything that the NIC has accepted. */
void ps_nic_place_all(struct ps_machine *m)
{
	while (m->model && model_dma_ready(m->model))
		model_dma_step(m->model, 0);
}

/* --- receives --- */

static struct ps_match *match_queue(struct ps_msg *msg)
{
	return msg->type == PMSIM_TSEND ? &msg->to->tagged : &msg->to->msg;
}

bool ps_rx_matches(const struct ps_rx *rx, const struct ps_msg *msg)
{
	return (!rx->source || rx->source == msg->from) &&
	       (msg->type == PMSIM_SEND ||
		!((rx->tag ^ msg->tag) & ~rx->ignore));
}

static bool match_receive(struct ps_msg *msg)
{
	struct ps_match *q = match_queue(msg);
	struct ps_rx *rx;

	TAILQ_FOREACH (rx, &q->posted, link) {
		if (!ps_rx_matches(rx, msg))
			continue;
		TAILQ_REMOVE(&q->posted, rx, link);
		msg->rx = rx;
		return true;
	}
	TAILQ_INSERT_TAIL(&q->unexpected, msg, link);
	return false;
}

void ps_rx_take(struct ps_rx *rx, struct ps_msg *msg)
{
	msg->rx = rx;
	TAILQ_INSERT_TAIL(&rx->ep->dom->machine->arrived, msg, link);
}

void ps_rx_post(struct ps_match *q, struct ps_rx *rx)
{
	struct ps_msg *msg;

	rx->ep->nrx++;
	TAILQ_FOREACH (msg, &q->unexpected, link) {
		if (!ps_rx_matches(rx, msg))
			continue;
		TAILQ_REMOVE(&q->unexpected, msg, link);
		ps_rx_take(rx, msg);
		return;
	}
	TAILQ_INSERT_TAIL(&q->posted, rx, link);
}

/* Deliver the message to the program. */
static void deliver_receive(struct ps_machine *m, struct ps_msg *msg)
{
	struct ps_rx *rx = msg->rx;
	struct ps_ep *ep = rx->ep;
	bool tagged = msg->type == PMSIM_TSEND;
	struct fi_cq_err_entry e = {
		.op_context = rx->context,
		.flags = FI_RECV | (tagged ? FI_TAGGED : FI_MSG) |
			 (msg->flags & FI_REMOTE_CQ_DATA),
		.len = msg->len < rx->len ? msg->len : rx->len,
		.data = msg->data,
		.tag = msg->tag,
	};

	if (!msg->placed)
		scatter_payload(m, msg, false, rx->iov, rx->niov);
	ps_reply(msg, PMSIM_ACK, 0, NULL, 0);
	if (msg->len > rx->len) {
		e.olen = msg->len - rx->len;
		e.err = FI_ETRUNC;
		e.prov_errno = FI_ETRUNC;
	}
	if (ep->rx_cq &&
	    (e.err || !ep->rx_selective || (rx->flags & FI_COMPLETION)))
		ps_cq_push(ep->rx_cq, &e, ps_av_find(ep->av, msg->from));
	ps_ep_count(ep, PS_EV_RECV, e.err);
	ep->nrx--;
	free(rx);
}

/* --- remote memory --- */

static void refuse_request(const struct ps_msg *msg, int err)
{
	PS_TRACE("machine %u refuses a %s: %s", msg->to->dom->machine->id,
		 ps_type_name(msg->type), fi_strerror(err));
	ps_reply(msg, PMSIM_ERROR, err, NULL, 0);
}

static int find_ranges(const struct ps_msg *msg, uint64_t access,
		       char *where[PS_IOV])
{
	int err = 0;

	for (size_t i = 0; i < msg->nrma && !err; i++)
		err = ps_mr_find(msg->to->dom, &msg->rma[i], access, &where[i]);
	return err;
}

static bool do_write(struct ps_machine *m, struct ps_msg *msg, bool nic)
{
	const char *from = msg->payload;
	char *where[PS_IOV];
	int err = find_ranges(msg, FI_REMOTE_WRITE, where);

	if (err) {
		refuse_request(msg, err);
		return false;
	}
	for (size_t i = 0; i < msg->nrma; i++) {
		ps_write_memory(m, msg, nic, where[i], from, msg->rma[i].len);
		from += msg->rma[i].len;
	}
	ps_ep_count(msg->to, PS_EV_REMOTE_WRITE, 0);
	return true;
}

void ps_read_memory(struct ps_machine *m, const struct ps_msg *msg, bool nic,
		    const void *from, void *to, size_t len)
{
	if (!len)
		return;
	if (nic && model_owns(m->model, from) && msg->numbered)
		model_dma_read_at(m->model, msg->completion, from, to, len);
	else if (nic && model_owns(m->model, from))
		model_dma_read(m->model, msg->qp, from, to, len);
	else
		memcpy(to, from, len);
}

/* FLUSH a range to persistence, by the NIC or (clwb, sfence) the CPU. */
static bool flush_range(struct ps_machine *m, const struct ps_msg *msg,
			bool nic, const void *at, size_t len)
{
	if (!m->model || !model_owns(m->model, at))
		return false;
	if (nic)
		return model_dma_flush(m->model, msg->qp, MODEL_PERSISTENT, at,
				       len);
	model_clwb(m->model, at, len);
	model_sfence(m->model);
	return true;
}

static void do_flush(struct ps_machine *m, struct ps_msg *msg, bool nic)
{
	char *where[PS_IOV];
	int err = find_ranges(msg, FI_REMOTE_WRITE, where);

	for (size_t i = 0; i < msg->nrma && !err; i++)
		if (!flush_range(m, msg, nic, where[i], msg->rma[i].len))
			err = FI_EACCES;
	if (err)
		refuse_request(msg, err);
	else
		ps_reply(msg, PMSIM_RESPONSE, 0, NULL, 0);
}

static void do_read(struct ps_machine *m, struct ps_msg *msg, bool nic)
{
	char *where[PS_IOV], *buf, *to;
	size_t len = 0;
	int err = find_ranges(msg, FI_REMOTE_READ, where);

	if (msg->flags & PMSIM_FLUSH) {
		do_flush(m, msg, nic);
		return;
	}
	if (err) {
		refuse_request(msg, err);
		return;
	}
	for (size_t i = 0; i < msg->nrma; i++)
		len += msg->rma[i].len;
	buf = malloc(len + 1);
	if (!buf)
		abort(); /* out of memory: abort the test */
	to = buf;
	for (size_t i = 0; i < msg->nrma; i++) {
		ps_read_memory(m, msg, nic, where[i], to, msg->rma[i].len);
		to += msg->rma[i].len;
	}
	ps_ep_count(msg->to, PS_EV_REMOTE_READ, 0);
	ps_reply(msg, PMSIM_RESPONSE, 0, buf, len);
	free(buf);
}

static void do_atomic(struct ps_machine *m, struct ps_msg *msg, bool nic)
{
	bool read = msg->atomic == FI_ATOMIC_READ;
	char *where[PS_IOV];
	int err = find_ranges(msg,
			      (read ? 0 : FI_REMOTE_WRITE) |
				      (msg->fetch ? FI_REMOTE_READ : 0),
			      where);

	if (err) {
		refuse_request(msg, err);
		return;
	}
	ps_atomic_run(m, msg, nic, where);
	ps_ep_count(msg->to, read ? PS_EV_REMOTE_READ : PS_EV_REMOTE_WRITE, 0);
}

/* Report a write with remote CQ data to the target's program. */
static void report_written(const struct ps_msg *msg)
{
	struct fi_cq_err_entry e = {
		.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
		.len = msg->len,
		.data = msg->data,
	};

	if (msg->to->rx_cq)
		ps_cq_push(msg->to->rx_cq, &e,
			   ps_av_find(msg->to->av, msg->from));
}

/* --- the NIC --- */

static void number_message(struct ps_machine *m, struct ps_msg *msg)
{
	msg->numbered = true;
	msg->completion = model_dma_completion(m->model, msg->qp);
}

static bool queue_for_program(struct ps_machine *m, struct ps_msg *msg)
{
	msg->placed = true;
	number_message(m, msg);
	TAILQ_INSERT_TAIL(&m->arrived, msg, link);
	return true;
}

/* The NIC handles an arrived message. False: msg is complete. */
static bool nic_arrive(struct ps_machine *m, struct ps_msg *msg)
{
	switch (msg->type) {
	case PMSIM_WRITE:
		if (!do_write(m, msg, true))
			return false;
		nic_ack(m, msg);
		return (msg->flags & FI_REMOTE_CQ_DATA) &&
		       queue_for_program(m, msg);
	case PMSIM_READ:
		if (!ps_sim.cfg.delays_reads || msg->flags & PMSIM_FLUSH) {
			do_read(m, msg, true);
			return false;
		}
		number_message(m, msg);
		TAILQ_INSERT_TAIL(&m->reads, msg, link);
		return true;
	case PMSIM_ATOMIC:
		do_atomic(m, msg, true);
		return false;
	case PMSIM_SEND:
	case PMSIM_TSEND:
		/* An unexpected message stays in its own buffer. */
		if (!match_receive(msg)) {
			number_message(m, msg);
			return true;
		}
		scatter_payload(m, msg, true, msg->rx->iov, msg->rx->niov);
		nic_ack(m, msg);
		return queue_for_program(m, msg);
	case PMSIM_RESPONSE:
		scatter_payload(m, msg, true, msg->op->result,
				msg->op->nresult);
		return queue_for_program(m, msg);
	case PMSIM_ACK:
	case PMSIM_ERROR:
		return queue_for_program(m, msg);
	}
	return false;
}

void ps_reads_execute(struct ps_machine *m)
{
	struct ps_msg *msg;

	while ((msg = TAILQ_FIRST(&m->reads))) {
		TAILQ_REMOVE(&m->reads, msg, link);
		do_read(m, msg, true);
		free(msg);
	}
	ps_placed_acks(m);
}

void ps_arrive(struct ps_machine *m, struct ps_msg *msg)
{
	if (msg->type >= PMSIM_ACK)
		msg->op->has_reply = true;
	if (!m->dma)
		TAILQ_INSERT_TAIL(&m->arrived, msg, link);
	else if (!nic_arrive(m, msg))
		free(msg);
}

/* --- the program --- */

/* The program handles an arrived message. False: msg stays queued. */
static bool handle_arrived(struct ps_machine *m, struct ps_msg *msg)
{
	struct ps_ep *ep;

	if (msg->numbered)
		model_dma_see(m->model, msg->completion);
	switch (msg->type) {
	case PMSIM_WRITE:
		if (!msg->placed) {
			if (!do_write(m, msg, false))
				return true;
			ps_reply(msg, PMSIM_ACK, 0, NULL, 0);
		}
		if (msg->flags & FI_REMOTE_CQ_DATA)
			report_written(msg);
		return true;
	case PMSIM_READ:
		do_read(m, msg, false);
		return true;
	case PMSIM_ATOMIC:
		do_atomic(m, msg, false);
		return true;
	case PMSIM_SEND:
	case PMSIM_TSEND:
		if (!msg->rx && !match_receive(msg))
			return false;
		deliver_receive(m, msg);
		return true;
	case PMSIM_ACK:
		ps_op_complete(msg->op, 0, 0);
		return true;
	case PMSIM_RESPONSE:
		if (!msg->placed)
			scatter_payload(m, msg, false, msg->op->result,
					msg->op->nresult);
		ps_op_complete(msg->op, 0, msg->len);
		return true;
	case PMSIM_ERROR:
		ep = msg->op->ep;
		ps_op_complete(msg->op, msg->err, 0);
		if (ps_sim.cfg.errors_disconnect && ep->connected)
			ps_conn_cut(ep, true);
		return true;
	}
	return true;
}

void ps_progress(struct ps_dom *dom)
{
	struct ps_machine *m = dom->machine;
	struct ps_msg *msg;
	struct ps_op *op;

	if (dom->dead)
		return;
	while ((op = TAILQ_FIRST(&m->due)))
		ps_op_complete(op, op->err, 0);
	while ((msg = TAILQ_FIRST(&m->arrived))) {
		TAILQ_REMOVE(&m->arrived, msg, link);
		if (handle_arrived(m, msg))
			free(msg);
	}
	ps_placed_acks(m);
}
