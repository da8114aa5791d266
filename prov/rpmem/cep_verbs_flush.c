// SPDX-License-Identifier: BSD-2-Clause
/* What the device does about persistence by itself, and how it is told to. */
#include "config.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "core/fault.h"
#include "rpmem/cep_verbs_flush.h"

/* Bits of device_cap_flags_ex, which have no names: both kinds of FLUSH. */
#define CAP_BOTH (1ull << 38 | 1ull << 39)

#define WITH_FLUSH (1u << 11)
#define SEND_OPS                                                               \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |                \
	 IBV_QP_EX_WITH_SEND | WITH_FLUSH)

#define GLOBAL	   1
#define PERSISTENT 2
#define RANGE	   0

/*
 * Where struct ibv_qp_ex has wr_flush in rdma-core 45 and later; 44 keeps
 * something else there. That the one in use is so late is known from it having
 * made a queue pair for FLUSH.
 */
#define WR_FLUSH_AT 352
typedef void (*wr_flush_fn)(struct ibv_qp_ex *qp, uint32_t rkey,
			    uint64_t remote_addr, size_t len, uint8_t type,
			    uint8_t level);
#ifdef HAVE_IBV_WR_FLUSH
_Static_assert(offsetof(struct ibv_qp_ex, wr_flush) == WR_FLUSH_AT,
	       "what later releases keep for earlier programs");
#else
_Static_assert(sizeof(struct ibv_qp_ex) == WR_FLUSH_AT,
	       "wr_flush was added at the end");
#endif

static bool makes(struct ibv_context *verbs, struct ibv_pd *pd,
		  struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = SEND_OPS,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(verbs, &attr);

	if (qp)
		ibv_destroy_qp(qp);
	return qp;
}

/* Capability bits pass through a library that is too old: so a trial, too. */
static bool try_one(struct ibv_context *verbs)
{
	struct ibv_device_attr_ex attr = {.comp_mask = 0};
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	bool ok = false;

	if (ibv_query_device_ex(verbs, NULL, &attr) ||
	    (attr.device_cap_flags_ex & CAP_BOTH) != CAP_BOTH)
		return false;
	pd = ibv_alloc_pd(verbs);
	cq = ibv_create_cq(verbs, 2, NULL, NULL, 0);
	if (pd && cq)
		ok = makes(verbs, pd, cq);
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return ok;
}

bool rp_verbs_flushes(const char *device)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *verbs = NULL;
	bool ok = false;

	for (int i = 0; list && list[i] && !verbs; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device))
			verbs = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	if (verbs) {
		ok = try_one(verbs);
		ibv_close_device(verbs);
	}
	return ok;
}

int rp_verbs_make_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		     struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = SEND_OPS,
	};

	return rdma_create_qp_ex(id, &ex);
}

/*
 * The kernel's connection manager gives the right to who may read, since 6.2,
 * and to nobody who has asked for no reads. A peer that FLUSHes without it is
 * refused by the device, and the connection ends.
 */
int rp_verbs_allow(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int ret = ibv_query_qp(qp, &attr, IBV_QP_ACCESS_FLAGS, &init);

	if (ret)
		return -ret;
	if (!(~attr.qp_access_flags & RP_VERBS_ACCESS_FLUSH))
		return 0;
	attr.qp_access_flags |= RP_VERBS_ACCESS_FLUSH;
	return -ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS);
}

static void flush(struct ibv_qp_ex *ex, const struct ibv_send_wr *wr)
{
	const size_t len = RP_FAULT("skip-flush") ? 0 : wr->sg_list->length;
	wr_flush_fn fn;

	memcpy(&fn, (char *)ex + WR_FLUSH_AT, sizeof(fn));
	fn(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, len,
	   GLOBAL | PERSISTENT, RANGE);
}

int rp_verbs_post(struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	const struct ibv_sge *sge;

	if (!ex)
		return EOPNOTSUPP;
	ibv_wr_start(ex);
	for (; wr; wr = wr->next) {
		ex->wr_id = wr->wr_id;
		ex->wr_flags = wr->send_flags;
		sge = wr->sg_list;
		if ((int)wr->opcode == RP_VERBS_WR_FLUSH) {
			flush(ex, wr);
			continue;
		}
		if (wr->opcode != IBV_WR_RDMA_WRITE) {
			ibv_wr_abort(ex);
			return EINVAL;
		}
		ibv_wr_rdma_write(ex, wr->wr.rdma.rkey,
				  wr->wr.rdma.remote_addr);
		ibv_wr_set_sge(ex, sge->lkey, sge->addr, sge->length);
	}
	return ibv_wr_complete(ex);
}
