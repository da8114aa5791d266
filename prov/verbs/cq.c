// SPDX-License-Identifier: BSD-2-Clause
/* Completions: reads of ours become the flushes that they stand for. */
#include <errno.h>
#include <stdlib.h>

#include "verbs/shim.h"

static void give_back(struct ibv_rpmem_cq *cq, struct rp_slot *s)
{
	s->next = cq->free;
	cq->free = s;
}

struct ibv_rpmem_cq *rp_cq_new(struct ibv_cq *base, const struct rp_qp_ops *ops,
			       size_t slots)
{
	struct ibv_rpmem_cq *cq = calloc(1, sizeof(*cq));

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
	for (size_t i = slots; i--;)
		rp_slot_put(cq, &cq->slots[i]);
	return cq;
}

RP_PUBLIC int ibv_rpmem_detach_cq(struct ibv_rpmem_cq *cq)
{
	if (!LIST_EMPTY(&cq->qps))
		return EBUSY;
	pthread_mutex_destroy(&cq->lock);
	free(cq->slots);
	free(cq);
	return 0;
}

struct rp_slot *rp_slot_get(struct rp_qp *q)
{
	struct ibv_rpmem_cq *cq = q->cq;
	struct rp_slot *s;

	pthread_mutex_lock(&cq->lock);
	s = cq->free;
	if (s) {
		cq->free = s->next;
		*s = (struct rp_slot){.q = q};
	}
	pthread_mutex_unlock(&cq->lock);
	return s;
}

void rp_slot_put(struct ibv_rpmem_cq *cq, struct rp_slot *s)
{
	pthread_mutex_lock(&cq->lock);
	give_back(cq, s);
	pthread_mutex_unlock(&cq->lock);
}

static struct rp_slot *slot_of(const struct ibv_rpmem_cq *cq, uint64_t wr_id)
{
	const uint64_t from = (uintptr_t)cq->slots;

	if (wr_id - from >= cq->nslots * sizeof(*cq->slots))
		return NULL;
	return &cq->slots[(wr_id - from) / sizeof(*cq->slots)];
}

/* Whatever failed, the queue pair works no more, and may be connected anew. */
static void lose(struct ibv_rpmem_cq *cq, uint32_t qp_num)
{
	struct rp_qp *q;

	LIST_FOREACH (q, &cq->qps, link)
		if (q->pub.qp->qp_num == qp_num)
			atomic_store(&q->lost, true);
}

static void doom(const struct rp_slot *s, struct ibv_wc *wc)
{
	switch (wc->status) {
	case IBV_WC_SUCCESS:
		/* A device that let it pass must not make it a success. */
		s->q->ops->fail(s->q);
		break;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
		break;
	default: /* it never came so far */
		return;
	}
	wc->status = s->doomed;
}

/*
 * An entry of ours, as the flush would have it. False: it is not shown. In an
 * error only wr_id, status, qp_num and vendor_err mean something.
 */
static bool flushed(struct rp_slot *s, struct ibv_wc *wc)
{
	if (!s->q)
		return false;
	wc->wr_id = s->wr_id;
	if (s->doomed != IBV_WC_SUCCESS)
		doom(s, wc);
	if (wc->status != IBV_WC_SUCCESS)
		return true;
	wc->opcode = (enum ibv_wc_opcode)IBV_RPMEM_WC_FLUSH;
	wc->byte_len = 0;
	return s->signaled;
}

/* True: the program sees it. */
static bool seen(struct ibv_rpmem_cq *cq, struct ibv_wc *wc)
{
	struct rp_slot *s = slot_of(cq, wc->wr_id);
	bool show = true;

	if (!s && wc->status == IBV_WC_SUCCESS)
		return true;
	pthread_mutex_lock(&cq->lock);
	if (s) {
		show = flushed(s, wc);
		give_back(cq, s);
	}
	if (wc->status != IBV_WC_SUCCESS)
		lose(cq, wc->qp_num);
	pthread_mutex_unlock(&cq->lock);
	return show;
}

RP_PUBLIC int ibv_rpmem_poll_cq(struct ibv_rpmem_cq *cq, int num_entries,
				struct ibv_wc *wc)
{
	int shown = 0, n = 0;

	while (shown < num_entries) {
		struct ibv_wc *from = wc + shown;

		n = cq->ops->poll(cq->base, num_entries - shown, from);
		if (n <= 0)
			break;
		for (int i = 0; i < n; i++) {
			if (!seen(cq, &from[i]))
				continue;
			if (&wc[shown] != &from[i])
				wc[shown] = from[i];
			shown++;
		}
	}
	return shown || n >= 0 ? shown : n;
}
