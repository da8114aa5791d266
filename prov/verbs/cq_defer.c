// SPDX-License-Identifier: BSD-2-Clause
/* Completions that wait for a reply of the peer's agent, reported in order. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "core/log.h"
#include "verbs/shim.h"

#define POLL_WCS 32 /* most completions per poll */

static_assert(RP_DEFERRED_MAX_RING_MSG <= RP_RING_MSG,
	      "every pipelined request fits into a slot");

/* --- deferred completions --- */

bool rp_defer_reserve(struct rpmem_cq *cq, size_t n)
{
	struct rp_deferred_wc *h;

	while (cq->npool < n) {
		h = calloc(1, sizeof(*h));
		if (!h)
			return false;
		rp_defer_put(cq, h);
	}
	return true;
}

void rp_defer_put(struct rpmem_cq *cq, struct rp_deferred_wc *h)
{
	cq->stores -= h->item.kind == RP_DEFERRED_STORE;
	h->item = (struct rp_deferred_op){.kind = RP_DEFERRED_PLAIN};
	LIST_INSERT_HEAD(&cq->pool, h, link);
	cq->npool++;
}

struct rp_deferred_wc *rp_defer_get(struct rpmem_cq *cq)
{
	struct rp_deferred_wc *h = LIST_FIRST(&cq->pool);

	LIST_REMOVE(h, link);
	cq->npool--;
	return h;
}

static void free_deferred(struct rpmem_cq *cq, struct rp_deferred_wc *h)
{
	if (h->slot)
		rp_slot_free(cq, h->slot);
	rp_defer_put(cq, h);
}

static void defer_wc(struct rp_qp *q, struct rp_deferred_wc *h,
		     const struct ibv_wc *wc)
{
	h->wc = *wc;
	if (h->item.pending)
		rp_deferred_mark_placed(&q->side->deferred, q->ops->now(q),
					&h->item);
	else
		rp_deferred_put(&q->side->deferred, &h->item);
	if (!q->is_busy)
		LIST_INSERT_HEAD(&q->cq->busy, q, busy);
	q->is_busy = true;
}

/* --- the side queue pair --- */

static bool is_side_slot(const struct rp_slot *s)
{
	return s->kind == RP_SLOT_SEND || s->kind == RP_SLOT_RECV;
}

static void send_from_slot(struct rp_qp *q, struct rp_slot **slot,
			   unsigned int buf, size_t len)
{
	struct rp_side_end *k = q->side;
	struct rp_slot *s = *slot;

	*slot = NULL;
	s->kind = RP_SLOT_SEND;
	s->qp_num = k->qp_num;
	s->buf = buf;
	s->keep_for_doorbell = slot == &k->hello;
	k->tx_free &= ~(1u << buf);
	if (q->ops->side_send(q, (uintptr_t)s, k->tx[buf], len)) {
		k->tx_free |= 1u << buf;
		rp_slot_free(q->cq, s);
		rp_deferred_close(&k->deferred);
	}
}

static void send_requests(struct rp_qp *q)
{
	struct rp_side_end *k = q->side;
	struct rp_deferred_op *owner;
	unsigned int buf;
	size_t len;

	if (k->deferred.doorbell && k->hello && k->tx_free) {
		k->deferred.doorbell = false;
		buf = (unsigned int)__builtin_ctz(k->tx_free);
		len = (size_t)rp_wire_put_signal(k->tx[buf], RP_SIDE_SEND_LEN,
						 RP_MSG_DOORBELL);
		send_from_slot(q, &k->hello, buf, len);
	}
	while (k->tx_free) {
		buf = (unsigned int)__builtin_ctz(k->tx_free);
		len = rp_deferred_next_message(&k->deferred, q->ops->now(q),
					       k->tx[buf], &owner);
		if (!len)
			return;
		send_from_slot(q,
			       owner ? &((struct rp_deferred_wc *)owner)->slot
				     : &k->hello,
			       buf, len);
	}
}

/* --- regions that have weakened --- */

static bool is_weakened(const struct rp_side_end *k, uint64_t key)
{
	for (unsigned int i = 0; i < k->nweakened; i++)
		if (k->weakened[i] == key)
			return true;
	return k->nweakened == RP_SIDE_WEAKENED;
}

enum ibv_wc_status rp_defer_status(const struct rp_qp *q, uint64_t key)
{
	if (!q->side || !key)
		return IBV_WC_SUCCESS;
	if (is_weakened(q->side, key))
		return IBV_WC_REM_ACCESS_ERR;
	/* A message of a weakening would not arrive any more. */
	if (q->side->deferred.state == RP_DEFERRED_CLOSED)
		return IBV_WC_RETRY_EXC_ERR;
	return IBV_WC_SUCCESS;
}

/* A region weakened: fail its flushes from now on, except by the agent. */
static bool receive_weakening(struct rp_qp *q, uint64_t key, const void *msg,
			      const struct rp_wire_hdr *hdr)
{
	struct rp_deferred_op *op;
	struct rp_wire_info m;

	if (rp_wire_get_info(msg, hdr, &m) || m.status == RP_ST_OK)
		return false;
	if (is_weakened(q->side, key))
		return true;
	q->side->weakened[q->side->nweakened++] = key;
	rp_log(RP_LOG_WARN,
	       "queue pair %u: a region of the peer has weakened: %s; its "
	       "flushes fail; connect again and import the region again",
	       q->pub.qp->qp_num, m.why);
	STAILQ_FOREACH (op, &q->side->deferred.ops, link)
		if (op->kind == RP_DEFERRED_PLAIN &&
		    rp_defer_status(q, op->key) == IBV_WC_REM_ACCESS_ERR) {
			op->outcome = RP_DEFERRED_REFUSED;
			op->status = RP_ST_CLASS;
		}
	return true;
}

static bool receive_message(struct rp_qp *q, const void *msg, size_t len)
{
	struct rp_wire_hdr hdr;

	if (!rp_wire_get_hdr(msg, len, &hdr) && hdr.type == RP_MSG_INFO)
		return receive_weakening(q, hdr.token, msg, &hdr);
	return rp_deferred_receive(&q->side->deferred, q->ops->now(q), msg,
				   len);
}

static void complete_side_wc(struct rp_slot *s, const struct ibv_wc *wc)
{
	struct rp_qp *q = s->q;
	struct rp_side_end *k = q->side;
	bool well = wc->status == IBV_WC_SUCCESS;

	if (s->kind == RP_SLOT_SEND) {
		k->tx_free |= 1u << s->buf;
		if (s->keep_for_doorbell && k->ring_addr)
			k->hello = s;
		else
			rp_slot_free(q->cq, s);
	} else if (well) {
		well = receive_message(q, k->rx[s->buf], wc->byte_len) &&
		       !q->ops->side_recv(q, wc->wr_id, k->rx[s->buf]);
	}
	if (!well)
		rp_deferred_close(&k->deferred);
	send_requests(q);
}

/* Poll for replies in the ring: they complete no work request. */
static bool poll_ring(struct rp_qp *q)
{
	struct rp_side_end *k = q->side;
	uint8_t msg[RP_RING_MSG];
	bool came = false;
	size_t len;

	for (int i = 0; k->has_reply_ring && i < RP_RING_SLOTS; i++) {
		len = rp_ring_take(&k->ring, msg);
		if (!len)
			break;
		came = true;
		rp_deferred_receive(&k->deferred, q->ops->now(q), msg, len);
	}
	if (came)
		send_requests(q);
	return came;
}

/* Poll the rings of replies of all queue pairs with deferred completions. */
static bool poll_rings(const struct rpmem_cq *cq)
{
	struct rp_qp *q;
	bool came = false;

	LIST_FOREACH (q, &cq->busy, busy)
		came |= poll_ring(q);
	return came;
}

/* --- pipelined requests --- */

struct rp_slot *rp_defer_pipeline(struct rp_qp *q,
				  const struct rp_deferred_op *item,
				  struct rp_ring_write *w)
{
	struct rpmem_cq *cq = q->cq;
	struct rp_side_end *k = q->side;
	uint8_t msg[RP_DEFERRED_MAX_RING_MSG];
	struct rp_slot *s = NULL;
	size_t len;

	pthread_mutex_lock(&cq->lock);
	/* A request in the ring could overtake a store on the side QP. */
	if (!k || !k->ring_addr || cq->stores || !rp_defer_reserve(cq, 1))
		goto unlock;
	s = rp_slot_alloc(cq, q);
	if (!s)
		goto unlock;
	s->kind = RP_SLOT_RING;
	s->deferred = rp_defer_get(cq);
	s->deferred->item = *item;
	len = rp_deferred_pipeline(&k->deferred, &s->deferred->item, msg);
	rp_ring_release(&k->ring, k->deferred.consumed);
	if (!len || rp_ring_put(&k->ring, msg, len, w)) {
		if (len)
			rp_deferred_undo_pipeline(&k->deferred,
						  &s->deferred->item);
		rp_slot_free(cq, s);
		s = NULL;
	}
unlock:
	pthread_mutex_unlock(&cq->lock);
	return s;
}

void rp_defer_unpost(struct rp_qp *q, struct rp_slot *s)
{
	struct rp_side_end *k = q->side;

	pthread_mutex_lock(&q->cq->lock);
	if (s->kind == RP_SLOT_RING && k && s->deferred->item.pending) {
		rp_ring_undo_put(&k->ring);
		rp_deferred_undo_pipeline(&k->deferred, &s->deferred->item);
	}
	rp_slot_free(q->cq, s);
	pthread_mutex_unlock(&q->cq->lock);
}

/* --- completions of the device --- */

static struct rp_qp *find_busy_qp(const struct rpmem_cq *cq, uint32_t qp_num)
{
	struct rp_qp *q;

	LIST_FOREACH (q, &cq->busy, busy)
		if (q->pub.qp->qp_num == qp_num)
			return q;
	return NULL;
}

/* Handle a completion of the device. True: report wc to the program now. */
static bool handle_wc(struct rpmem_cq *cq, struct ibv_wc *wc)
{
	struct rp_slot *s = rp_slot_of(cq, wc->wr_id);
	struct rp_qp *q;
	struct rp_deferred_wc *h;
	uint64_t key = 0;
	bool show = true, stale = false;

	/* Drop a late completion of a side queue pair that has ended. */
	if (s && s->qp_num != wc->qp_num)
		return false;
	if (s && is_side_slot(s)) {
		complete_side_wc(s, wc);
		return false;
	}
	if (s) {
		/* The peer deregistered its ring: its agent is gone. */
		if (s->kind == RP_SLOT_RING &&
		    wc->status == IBV_WC_REM_ACCESS_ERR)
			wc->status = IBV_WC_RETRY_EXC_ERR;
		show = rp_slot_convert_wc(s, wc);
		h = s->deferred;
		q = s->q;
		key = q && wc->status == IBV_WC_SUCCESS ? s->key : 0;
		if (q && h && wc->status == IBV_WC_SUCCESS) {
			s->deferred = NULL;
			h->visible = show;
			h->slot = s->kind == RP_SLOT_RING ? NULL : s;
			if (!h->slot)
				rp_slot_free(cq, s);
			defer_wc(q, h, wc);
			send_requests(q);
			return false;
		}
		stale = !q;
		rp_slot_free(cq, s);
	}
	/* A detached queue pair's number may be that of a new one. */
	if (wc->status != IBV_WC_SUCCESS && !stale)
		rp_cq_mark_lost(cq, wc->qp_num);
	q = find_busy_qp(cq, wc->qp_num);
	if (!q || (!show && !key))
		return show;
	/* Report receives now: they have no order with sends. */
	if (wc->status == IBV_WC_SUCCESS && (wc->opcode & IBV_WC_RECV))
		return true;
	h = rp_defer_get(cq);
	h->item.key = key;
	h->visible = show;
	h->slot = NULL;
	defer_wc(q, h, wc);
	return false;
}

/* --- completions for the program --- */

/* Convert a refusal to the status that a device would report. */
static enum ibv_wc_status wc_status_of(enum rp_status why)
{
	switch (why) {
	case RP_ST_UNKNOWN_KEY:
	case RP_ST_STALE_KEY:
	case RP_ST_RANGE:
	case RP_ST_WRAP:
	case RP_ST_VOLATILE:
	case RP_ST_CLASS:
	case RP_ST_ALIGN:
	case RP_ST_ACCESS:
		return IBV_WC_REM_ACCESS_ERR;
	case RP_ST_BAD_MESSAGE:
	case RP_ST_VERSION:
	case RP_ST_UNSUPPORTED:
		return IBV_WC_REM_INV_REQ_ERR;
	default:
		return IBV_WC_REM_OP_ERR;
	}
}

/* Complete a deferred completion in wc. True: report it to the program. */
static bool report_wc(struct rp_qp *q, struct rp_deferred_wc *h,
		      struct ibv_wc *wc)
{
	*wc = h->wc;
	switch (h->item.outcome) {
	case RP_DEFERRED_OK:
		return h->visible;
	case RP_DEFERRED_REFUSED:
		rp_log(RP_LOG_WARN, "the target's agent: %s",
		       rp_status_remedy(h->item.status));
		wc->status = wc_status_of(h->item.status);
		break;
	case RP_DEFERRED_LOST:
		rp_log(RP_LOG_WARN, "the target's agent does not reply");
		wc->status = IBV_WC_RETRY_EXC_ERR;
		break;
	case RP_DEFERRED_BEHIND_ERR:
		wc->status = IBV_WC_WR_FLUSH_ERR;
		return true;
	}
	/* As after a failed request of a device: enter the error state. */
	atomic_store(&q->lost, true);
	q->ops->fail(q);
	return true;
}

static void free_dead_slots(struct rpmem_cq *cq)
{
	for (size_t i = 0; cq->has_dead_slots && i < cq->nslots; i++)
		if (cq->slots[i].kind == RP_SLOT_DEAD)
			rp_slot_free(cq, &cq->slots[i]);
	cq->has_dead_slots = false;
}

static int report_all(struct rpmem_cq *cq, int n, struct ibv_wc *wc)
{
	struct rp_qp *q, *next;
	struct rp_deferred_wc *h;
	int shown = 0;

	for (q = LIST_FIRST(&cq->busy); q && shown < n; q = next) {
		next = LIST_NEXT(q, busy);
		while (shown < n &&
		       (h = (struct rp_deferred_wc *)rp_deferred_take(
				&q->side->deferred))) {
			shown += report_wc(q, h, &wc[shown]);
			free_deferred(cq, h);
			/* Send a store that waited for this completion. */
			send_requests(q);
		}
		/* A failed queue pair stays in the list: later work fails. */
		if (STAILQ_EMPTY(&q->side->deferred.ops) &&
		    !q->side->deferred.failed) {
			LIST_REMOVE(q, busy);
			q->is_busy = false;
		}
	}
	return shown;
}

/* Close side connections with an expired deadline. True: there was one. */
static bool expire_sides(const struct rpmem_cq *cq)
{
	struct rp_qp *q;
	bool any = false;

	LIST_FOREACH (q, &cq->busy, busy)
		any |= rp_deferred_expire(&q->side->deferred, q->ops->now(q));
	return any;
}

int rp_defer_poll(struct rpmem_cq *cq, int num, struct ibv_wc *wc)
{
	int shown = 0, n = 0, k;

	if (cq->has_early_wc && num > 0) {
		wc[shown++] = cq->early_wc;
		cq->has_early_wc = false;
	}
	for (;;) {
		shown += report_all(cq, num - shown, wc + shown);
		if (shown == num)
			break;
		k = num - shown;
		if (cq->nsides && k > POLL_WCS)
			k = POLL_WCS;
		if (cq->nsides && !rp_defer_reserve(cq, (size_t)k)) {
			n = -ENOMEM;
			break;
		}
		n = cq->ops->poll(cq->base, k, wc + shown);
		if (!n)
			free_dead_slots(cq);
		if (n < 0 || (!n && !poll_rings(cq) && !expire_sides(cq)))
			break;
		for (int i = 0, from = shown; i < n; i++)
			if (handle_wc(cq, &wc[from + i]))
				wc[shown++] = wc[from + i];
	}
	return shown || n >= 0 ? shown : n;
}

static bool has_completion(struct rpmem_cq *cq)
{
	if (!cq->has_early_wc)
		cq->has_early_wc = rp_defer_poll(cq, 1, &cq->early_wc) > 0;
	return cq->has_early_wc;
}

bool rp_cq_has_completion(struct rpmem_cq *cq)
{
	bool has;

	pthread_mutex_lock(&cq->lock);
	has = has_completion(cq);
	pthread_mutex_unlock(&cq->lock);
	return has;
}

/* Replies may wait in the completion queue, and in the ring: poll both. */
bool rp_defer_expire(struct rp_qp *q)
{
	const struct rp_deferred *d;
	bool late = false;

	pthread_mutex_lock(&q->cq->lock);
	d = q->side ? &q->side->deferred : NULL;
	if (d && (d->state == RP_DEFERRED_HELLO || d->replies_due) &&
	    q->ops->now(q) >= d->deadline) {
		has_completion(q->cq);
		late = d->state == RP_DEFERRED_CLOSED;
	}
	pthread_mutex_unlock(&q->cq->lock);
	return late;
}

/* --- the initiator side: begin and end --- */

/* Free the side QP's slots; handle_wc() drops its late completions. */
static void drop_slots(struct rp_qp *q)
{
	struct rpmem_cq *cq = q->cq;

	for (size_t i = 0; i < cq->nslots; i++)
		if (cq->slots[i].q == q && is_side_slot(&cq->slots[i]))
			rp_slot_free(cq, &cq->slots[i]);
}

int rp_defer_begin(struct rp_qp *q, struct rp_side_end *k, uint64_t initiator,
		   uint32_t qp_num, uint64_t timeout)
{
	struct rpmem_cq *cq = q->cq;
	struct rp_slot *s;
	int ret = ENOSPC;

	rp_deferred_init(&k->deferred, initiator, timeout);
	k->qp_num = qp_num;
	k->tx_free = (1u << RP_SIDE_SENDS) - 1;
	rp_ring_init(&k->ring, k->ring_in, k->ring_out);
	pthread_mutex_lock(&cq->lock);
	q->side = k;
	k->hello = rp_slot_alloc(cq, q);
	if (!k->hello)
		goto fail;
	k->hello->kind = RP_SLOT_SEND;
	for (unsigned int i = 0; i < RP_SIDE_RECVS; i++) {
		s = rp_slot_alloc(cq, q);
		if (!s)
			goto fail;
		s->kind = RP_SLOT_RECV;
		s->qp_num = qp_num;
		s->buf = i;
		ret = q->ops->side_recv(q, (uintptr_t)s, k->rx[i]);
		if (ret)
			goto fail;
		ret = ENOSPC;
	}
	cq->nsides++;
	pthread_mutex_unlock(&cq->lock);
	return 0;
fail:
	drop_slots(q);
	q->side = NULL;
	pthread_mutex_unlock(&cq->lock);
	return ret;
}

void rp_defer_end(struct rp_qp *q)
{
	struct rp_deferred_op *i;

	if (!q->side)
		return;
	while ((i = STAILQ_FIRST(&q->side->deferred.ops))) {
		STAILQ_REMOVE_HEAD(&q->side->deferred.ops, link);
		free_deferred(q->cq, (struct rp_deferred_wc *)i);
	}
	if (q->is_busy)
		LIST_REMOVE(q, busy);
	q->is_busy = false;
	drop_slots(q);
	q->cq->nsides--;
	q->side = NULL;
}
