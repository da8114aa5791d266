// SPDX-License-Identifier: BSD-2-Clause
/* Completions: convert those of internal work requests to the program's. */
#include <errno.h>
#include <stdlib.h>

#include "verbs/shim.h"

void rp_slot_free(struct rpmem_cq *cq, struct rp_slot *s)
{
	if (s->deferred) {
		if (s->deferred->item.pending && s->q && s->q->side)
			rp_deferred_drop(&s->q->side->deferred,
					 &s->deferred->item);
		rp_defer_put(cq, s->deferred);
	}
	if (s->flush)
		s->flush->write = NULL;
	if (s->write)
		s->write->flush = NULL;
	*s = (struct rp_slot){.next = cq->free};
	cq->free = s;
}

struct rp_slot *rp_slot_alloc(struct rpmem_cq *cq, struct rp_qp *q)
{
	struct rp_slot *s = cq->free;

	if (!s)
		return NULL;
	cq->free = s->next;
	*s = (struct rp_slot){.q = q, .qp_num = q->pub.qp->qp_num};
	return s;
}

struct rpmem_cq *rp_cq_new(struct ibv_cq *base, const struct rp_qp_ops *ops,
			   size_t slots)
{
	struct rpmem_cq *cq = calloc(1, sizeof(*cq));

	if (!cq)
		return NULL;
	cq->slots = calloc(slots, sizeof(*cq->slots));
	if (!cq->slots || pthread_mutex_init(&cq->lock, NULL)) {
		free(cq->slots);
		free(cq);
		return NULL;
	}
	cq->base = base;
	cq->ops = ops;
	cq->nslots = slots;
	LIST_INIT(&cq->qps);
	LIST_INIT(&cq->busy);
	LIST_INIT(&cq->pool);
	for (size_t i = slots; i--;)
		rp_slot_free(cq, &cq->slots[i]);
	return cq;
}

RP_PUBLIC int rpmem_detach_cq(struct rpmem_cq *cq)
{
	struct rp_deferred_wc *h;

	if (!LIST_EMPTY(&cq->qps))
		return EBUSY;
	for (size_t i = 0; i < cq->nslots; i++)
		free(cq->slots[i].deferred);
	while ((h = LIST_FIRST(&cq->pool))) {
		LIST_REMOVE(h, link);
		free(h);
	}
	pthread_mutex_destroy(&cq->lock);
	free(cq->slots);
	free(cq);
	return 0;
}

struct rp_slot *rp_slot_new(struct rp_qp *q,
			    const struct rp_deferred_op *request, uint64_t key)
{
	struct rpmem_cq *cq = q->cq;
	struct rp_slot *s = NULL;

	pthread_mutex_lock(&cq->lock);
	if (!request || rp_defer_reserve(cq, 1))
		s = rp_slot_alloc(cq, q);
	if (s)
		s->key = key;
	if (s && request) {
		s->deferred = rp_defer_get(cq);
		s->deferred->item = *request;
		cq->stores += request->kind == RP_DEFERRED_STORE;
	}
	pthread_mutex_unlock(&cq->lock);
	return s;
}

struct rp_slot *rp_slot_of(const struct rpmem_cq *cq, uint64_t wr_id)
{
	const uint64_t from = (uintptr_t)cq->slots;

	if (wr_id - from >= cq->nslots * sizeof(*cq->slots))
		return NULL;
	return &cq->slots[(wr_id - from) / sizeof(*cq->slots)];
}

void rp_cq_drop_slots(struct rpmem_cq *cq, uint32_t qp_num)
{
	pthread_mutex_lock(&cq->lock);
	for (size_t i = 0; i < cq->nslots; i++)
		if (!cq->slots[i].q && cq->slots[i].qp_num == qp_num) {
			cq->slots[i].kind = RP_SLOT_DEAD;
			cq->has_dead_slots = true;
		}
	pthread_mutex_unlock(&cq->lock);
}

/* After any error the queue pair is unusable until it is reconnected. */
void rp_cq_mark_lost(struct rpmem_cq *cq, uint32_t qp_num)
{
	struct rp_qp *q;

	LIST_FOREACH (q, &cq->qps, link)
		if (q->pub.qp->qp_num == qp_num)
			atomic_store(&q->lost, true);
}

static void force_failure(const struct rp_slot *s, struct ibv_wc *wc)
{
	switch (wc->status) {
	case IBV_WC_SUCCESS:
		/* The device did not fail the request: fail the queue pair. */
		s->q->ops->fail(s->q);
		break;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
		break;
	default: /* flushed, or lost: keep the status */
		return;
	}
	wc->status = s->forced_status;
}

/*
 * Convert an internal completion to the flush's. False: it is not reported. In
 * an error only wr_id, status, qp_num and vendor_err are valid.
 */
bool rp_slot_convert_wc(struct rp_slot *s, struct ibv_wc *wc)
{
	if (!s->q)
		return false;
	wc->wr_id = s->wr_id;
	if (s->forced_status == IBV_WC_SUCCESS)
		s->forced_status = rp_defer_status(s->q, s->key);
	if (s->forced_status != IBV_WC_SUCCESS)
		force_failure(s, wc);
	if (wc->status != IBV_WC_SUCCESS && s->flush) {
		s->flush->write_status = wc->status;
		return false;
	}
	if (wc->status != IBV_WC_SUCCESS && s->write_status != IBV_WC_SUCCESS)
		wc->status = s->write_status;
	if (wc->status != IBV_WC_SUCCESS)
		return true;
	wc->opcode = (enum ibv_wc_opcode)s->opcode;
	wc->byte_len = 0;
	return s->signaled;
}

RP_PUBLIC int rpmem_poll_cq(struct rpmem_cq *cq, int num_entries,
			    struct ibv_wc *wc)
{
	int n;

	/* One thread at a time, so that completions stay in order. */
	pthread_mutex_lock(&cq->lock);
	n = rp_defer_poll(cq, num_entries, wc);
	pthread_mutex_unlock(&cq->lock);
	return n;
}
