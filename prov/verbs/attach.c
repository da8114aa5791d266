// SPDX-License-Identifier: BSD-2-Clause
/* Attach to a program's queue pairs and CQs; capabilities of the device. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "verbs/post.h"

/* Bits of device_cap_flags_ex that rdma-core 44 does not name. */
#define CAP_GLOBAL	 (1ull << 38)
#define CAP_PERSISTENT	 (1ull << 39)
#define CAP_ATOMIC_WRITE (1ull << 40)

#define WITH_ATOMIC_WRITE (1u << 12)

/* Try the builders, too: an old library reports bits of calls that it lacks. */
unsigned int rp_device_native(struct ibv_pd *pd)
{
	struct ibv_device_attr_ex attr = {.comp_mask = 0};
	const char *wanted = getenv("FI_OFI_RPMEM_NATIVE");
	unsigned int native = 0;

	if (wanted && !strcmp(wanted, "0"))
		return 0;
	if (ibv_query_device_ex(pd->context, NULL, &attr))
		return 0;
	if ((attr.device_cap_flags_ex & (CAP_GLOBAL | CAP_PERSISTENT)) &&
	    rp_builders_supported(pd, RP_QP_EX_WITH_FLUSH)) {
		if (attr.device_cap_flags_ex & CAP_GLOBAL)
			native |= RP_DESC_GLOBAL;
		if (attr.device_cap_flags_ex & CAP_PERSISTENT)
			native |= RP_DESC_PERSISTENT;
	}
	if ((attr.device_cap_flags_ex & CAP_ATOMIC_WRITE) &&
	    rp_builders_supported(pd, WITH_ATOMIC_WRITE))
		native |= RP_DESC_ATOMIC_WRITE;
	return native;
}

unsigned int rp_desc_from_access(unsigned int access)
{
	unsigned int bits = 0;

	if (access & RPMEM_ACCESS_FLUSH_GLOBAL)
		bits |= RP_DESC_GLOBAL;
	if (access & RPMEM_ACCESS_FLUSH_PERSISTENT)
		bits |= RP_DESC_PERSISTENT;
	if (access & IBV_ACCESS_REMOTE_READ)
		bits |= RP_DESC_READ;
	if (access & IBV_ACCESS_REMOTE_WRITE)
		bits |= RP_DESC_WRITE | RP_DESC_ATOMIC_WRITE;
	return bits;
}

RP_PUBLIC struct rpmem_cq *rpmem_attach_cq(struct ibv_cq *cq)
{
	struct rpmem_cq *c = rp_cq_new(cq, &rp_qp_ops_send, (size_t)cq->cqe);

	if (!c)
		errno = ENOMEM;
	return c;
}

static int init_post(struct rp_qp *q, struct ibv_qp *qp,
		     const struct rpmem_qp_attr *attr)
{
	struct rp_post *p = q->post_data;

	q->has_write_builder =
		!attr->send_ops_flags ||
		(attr->send_ops_flags & IBV_QP_EX_WITH_RDMA_WRITE);
	if (attr->send_ops_flags) {
		p->ex = ibv_qp_to_qp_ex(qp);
		/* Without native FLUSH an RDMA READ replaces a flush. */
		if (!p->ex ||
		    !(attr->send_ops_flags & IBV_QP_EX_WITH_RDMA_READ))
			return EINVAL;
		q->native = rp_device_native(qp->pd);
		if (!(attr->send_ops_flags & RP_QP_EX_WITH_FLUSH))
			q->native &= ~(RP_DESC_GLOBAL | RP_DESC_PERSISTENT);
		if (!(attr->send_ops_flags & WITH_ATOMIC_WRITE))
			q->native &= ~RP_DESC_ATOMIC_WRITE;
	}
	p->scratch_mr = ibv_reg_mr(qp->pd, p->scratch, sizeof(p->scratch),
				   IBV_ACCESS_LOCAL_WRITE);
	return p->scratch_mr ? 0 : errno;
}

RP_PUBLIC struct rpmem_qp *rpmem_attach_qp(struct ibv_qp *qp,
					   struct rpmem_cq *send_cq,
					   const struct rpmem_qp_attr *attr)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr now;
	struct rp_post *p = NULL;
	struct rp_qp *q = NULL;
	int ret = EINVAL;

	if (qp->qp_type != IBV_QPT_RC || qp->send_cq != send_cq->base ||
	    (attr->access & ~(unsigned int)RP_SHIM_FLUSHES))
		goto fail;
	ret = ibv_query_qp(qp, &now, IBV_QP_STATE, &init);
	if (ret)
		goto fail;
	ret = ENOMEM;
	q = calloc(1, sizeof(*q));
	p = calloc(1, sizeof(*p));
	if (!q || !p)
		goto fail;
	q->post_data = p;
	q->access = attr->access;
	q->sig_all = init.sq_sig_all;
	ret = init_post(q, qp, attr);
	if (ret)
		goto fail;
	rp_qp_init(q, qp, send_cq, p->ex ? &rp_qp_ops_ex : &rp_qp_ops_send);
	/* The kernel rejects FLUSH bits on a device without FLUSH. */
	if (q->native & RP_DESC_GLOBAL)
		q->pub.init_access |= attr->access & RPMEM_ACCESS_FLUSH_GLOBAL;
	if (q->native & RP_DESC_PERSISTENT)
		q->pub.init_access |=
			attr->access & RPMEM_ACCESS_FLUSH_PERSISTENT;
	if (now.qp_state == IBV_QPS_RESET)
		rp_cq_drop_slots(send_cq, qp->qp_num);
	return &q->pub;
fail:
	free(p);
	free(q);
	errno = ret;
	return NULL;
}

static struct ibv_qp *create_qp(const struct ibv_qp_init_attr_ex *attr,
				struct rpmem_cq *send_cq, uint64_t *ops)
{
	struct ibv_qp_init_attr_ex a = *attr;
	uint64_t flush = 0;

	if (rp_device_native(a.pd) & (RP_DESC_GLOBAL | RP_DESC_PERSISTENT))
		flush = RP_QP_EX_WITH_FLUSH;
	/* Without native FLUSH an RDMA READ replaces a flush. */
	*ops = IBV_QP_EX_WITH_RDMA_READ | flush;
	if (a.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		*ops |= a.send_ops_flags;
	a.comp_mask |= IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	a.qp_type = IBV_QPT_RC;
	a.send_cq = send_cq->base;
	a.send_ops_flags = *ops;
	return ibv_create_qp_ex(a.pd->context, &a);
}

RP_PUBLIC struct rpmem_qp *
rpmem_create_qp(struct rpmem_cq *send_cq,
		const struct ibv_qp_init_attr_ex *attr, unsigned int access)
{
	struct rpmem_qp_attr how = {.access = access};
	struct rpmem_qp *rqp;
	struct ibv_qp *qp;
	int ret;

	if (!attr->pd) {
		errno = EINVAL;
		return NULL;
	}
	qp = create_qp(attr, send_cq, &how.send_ops_flags);
	if (!qp)
		return NULL;
	rqp = rpmem_attach_qp(qp, send_cq, &how);
	if (rqp)
		return rqp;
	ret = errno;
	ibv_destroy_qp(qp);
	errno = ret;
	return NULL;
}

RP_PUBLIC int rpmem_destroy_qp(struct rpmem_qp *qp)
{
	struct rpmem_cq *cq = rp_qp_of(qp)->cq;
	struct ibv_qp *base = qp->qp;
	const uint32_t qp_num = base->qp_num;
	int ret = rpmem_detach_qp(qp) ?: ibv_destroy_qp(base);

	if (!ret)
		rp_cq_drop_slots(cq, qp_num);
	return ret;
}

RP_PUBLIC int rpmem_detach_qp(struct rpmem_qp *qp)
{
	struct rp_qp *q = rp_qp_of(qp);
	struct rp_post *p = q->post_data;
	int ret = ibv_dereg_mr(p->scratch_mr);

	if (ret)
		return ret;
	rp_pd_unwatch(q);
	rp_qp_fini(q);
	rp_side_close(p);
	free(p->wrs);
	free(p);
	free(q);
	return 0;
}
