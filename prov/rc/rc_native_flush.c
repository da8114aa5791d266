// SPDX-License-Identifier: BSD-2-Clause
/* Native FLUSH by ibv_wr_flush(), which rdma-core 44 does not declare. */
#include "config.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "core/fault.h"
#include "rc/rc_native_flush.h"

/* IBV_DEVICE_FLUSH_GLOBAL and _PERSISTENT in device_cap_flags_ex. */
#define CAP_BOTH (1ull << 38 | 1ull << 39)

#define SEND_OPS                                                               \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |                \
	 IBV_QP_EX_WITH_SEND | RP_QP_EX_WITH_FLUSH)

#define TYPE_BOTH   (1 | 2) /* IBV_FLUSH_GLOBAL, IBV_FLUSH_PERSISTENT */
#define LEVEL_RANGE 0	    /* IBV_FLUSH_RANGE */

#ifdef HAVE_IBV_WR_FLUSH
_Static_assert(offsetof(struct ibv_qp_ex, wr_flush) == RP_WR_FLUSH_OFFSET,
	       "the offset is ABI");
#else
_Static_assert(sizeof(struct ibv_qp_ex) == RP_WR_FLUSH_OFFSET,
	       "wr_flush was added at the end");
#endif

static struct ibv_qp *create_qp(struct ibv_pd *pd,
				const struct ibv_qp_init_attr *attr,
				uint64_t send_ops)
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
		.send_ops_flags = send_ops,
	};

	return ibv_create_qp_ex(pd->context, &ex);
}

struct ibv_qp *rp_flush_create_qp(struct ibv_pd *pd,
				  const struct ibv_qp_init_attr *attr)
{
	return create_qp(pd, attr, SEND_OPS);
}

bool rp_builders_supported(struct ibv_pd *pd, uint64_t send_ops)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};
	struct ibv_qp *qp;

	attr.send_cq = ibv_create_cq(pd->context, 2, NULL, NULL, 0);
	if (!attr.send_cq)
		return false;
	attr.recv_cq = attr.send_cq;
	qp = create_qp(pd, &attr, send_ops);
	if (qp)
		ibv_destroy_qp(qp);
	ibv_destroy_cq(attr.send_cq);
	return qp;
}

/* An old library passes on capability bits, too: create a queue pair to see. */
bool rp_flush_supported(struct ibv_context *verbs, struct ibv_pd *pd)
{
	struct ibv_device_attr_ex dev = {.comp_mask = 0};

	if (ibv_query_device_ex(verbs, NULL, &dev) ||
	    (dev.device_cap_flags_ex & CAP_BOTH) != CAP_BOTH)
		return false;
	return rp_builders_supported(pd, SEND_OPS);
}

void rp_flush_build(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
		    size_t len, uint8_t type, uint8_t level)
{
	rp_wr_flush_fn fn;

	memcpy(&fn, (char *)ex + RP_WR_FLUSH_OFFSET, sizeof(fn));
	fn(ex, rkey, remote_addr, len, type, level);
}

static void build_flush(struct ibv_qp_ex *ex, const struct ibv_send_wr *wr)
{
	const size_t len = RP_FAULT("skip-flush") ? 0 : wr->sg_list->length;

	rp_flush_build(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, len,
		       TYPE_BOTH, LEVEL_RANGE);
}

static int build_wr(struct ibv_qp_ex *ex, const struct ibv_send_wr *wr)
{
	const uint32_t rkey = wr->wr.rdma.rkey;
	const uint64_t addr = wr->wr.rdma.remote_addr;

	/* rxe's builder (rdma-core 56) loses inline data without an error. */
	if (wr->send_flags & IBV_SEND_INLINE)
		return EINVAL;
	ex->wr_id = wr->wr_id;
	ex->wr_flags = wr->send_flags;
	switch ((int)wr->opcode) {
	case RP_FLUSH_OPCODE:
		build_flush(ex, wr);
		return 0;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(ex, rkey, addr);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(ex, rkey, addr);
		break;
	case IBV_WR_SEND:
		ibv_wr_send(ex);
		break;
	default:
		return EINVAL;
	}
	ibv_wr_set_sge_list(ex, (size_t)wr->num_sge, wr->sg_list);
	return 0;
}

int rp_flush_post(struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	int ret = 0;

	if (!ex)
		return EOPNOTSUPP;
	ibv_wr_start(ex);
	for (; wr && !ret; wr = wr->next)
		ret = build_wr(ex, wr);
	if (!ret)
		return ibv_wr_complete(ex);
	ibv_wr_abort(ex);
	return ret;
}
