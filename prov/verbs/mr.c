// SPDX-License-Identifier: BSD-2-Clause
/* Regions at the target: registration, facts, and descriptors for peers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/log.h"
#include "verbs/target.h"

struct shim_mr {
	struct rpmem_mr pub;
	struct rp_facts facts;
	unsigned int access;   /* RP_DESC_* that were requested */
	unsigned int native;   /* RP_DESC_* that the device can do */
	uint64_t addr, length; /* range known to the device */
	struct rp_pd *dom;     /* its agent watches the region; or NULL */
	bool served;	       /* and flushes it for peers */
	struct rp_region region;
};

static struct ibv_mr *base_reg(struct ibv_pd *pd, void *addr, size_t length,
			       uint64_t iova, unsigned int access)
{
	/* Parentheses avoid the macros of these names, which need constants. */
	if (iova != (uintptr_t)addr)
		return (ibv_reg_mr_iova)(pd, addr, length, iova, (int)access);
	return (ibv_reg_mr)(pd, addr, length, (int)access);
}

/*
 * Register with the device. The kernel accepts FLUSH bits only on devices that
 * have FLUSH, and lets rxe register only devdax memory as persistent. Without
 * the bits peers flush the region by other methods.
 */
static struct ibv_mr *reg_with_flush(struct ibv_pd *pd, void *addr,
				     size_t length, uint64_t iova,
				     unsigned int access, bool dax,
				     unsigned int *native)
{
	unsigned int flushes = access & RP_SHIM_FLUSHES;
	struct ibv_mr *mr = NULL;

	*native = rp_device_native(pd);
	if (!dax)
		*native &= ~RP_DESC_PERSISTENT;
	if (!(*native & RP_DESC_PERSISTENT))
		flushes &= ~RPMEM_ACCESS_FLUSH_PERSISTENT;
	if (!(*native & RP_DESC_GLOBAL))
		flushes &= ~RPMEM_ACCESS_FLUSH_GLOBAL;
	access &= ~(unsigned int)RP_SHIM_FLUSHES;
	if (flushes)
		mr = base_reg(pd, addr, length, iova, access | flushes);
	*native &= mr ? rp_desc_from_access(flushes) | RP_DESC_ATOMIC_WRITE
		      : RP_DESC_ATOMIC_WRITE;
	return mr ? mr : base_reg(pd, addr, length, iova, access);
}

/* Check that a peer with this device could flush the region. */
static int check_facts(struct shim_mr *m, const char *why)
{
	struct rp_choice c;
	struct rp_facts f = m->facts;

	if (!(m->access & RP_DESC_PERSISTENT))
		return 0;
	f.agent = true;
	f.native = m->native & RP_DESC_PERSISTENT ? RP_YES : RP_NO;
	c = rp_method_best(&f, RP_METHODS_BUILT);
	if (c.method != RP_METHOD_REFUSED)
		return 0;
	rp_log(RP_LOG_WARN, "FLUSH_PERSISTENT refused: %s; %s", why, c.remedy);
	return c.refusal == RP_REFUSAL_VOLATILE ? EINVAL : EOPNOTSUPP;
}

/*
 * Add the region to the agent, for peers without a cheaper method. Where the
 * operator forbids the agent's method, the agent only watches the facts.
 */
static int region_serve(struct shim_mr *m, struct ibv_pd *pd, const char *why)
{
	struct rp_region *r = &m->region;
	char obstacle[RP_WHY_LEN];
	int ret;

	if (!(m->access & RP_DESC_PERSISTENT))
		return 0;
	r->base = m->pub.mr->addr;
	r->addr = m->addr;
	r->len = m->length;
	r->writable = m->access & RP_DESC_WRITE;
	r->facts = m->facts;
	r->facts.agent = true;
	r->facts.native = RP_NO;
	m->served =
		!rp_region_choose(r, getenv("FI_OFI_RPMEM_METHOD"), obstacle);
	if (!m->served && rp_region_choose(r, NULL, obstacle))
		return 0;
	snprintf(r->why, sizeof(r->why), "%s", why);
	ret = rp_pd_get(pd, &m->dom);
	if (ret)
		return ret;
	ret = -rp_region_open(r, NULL) ?: rp_pd_add(m->dom, r);
	if (!ret)
		return 0;
	rp_pmem_delete(r->pmem);
	rp_pd_put(m->dom);
	m->dom = NULL;
	return ret;
}

struct rpmem_mr *rp_mr_new(struct ibv_pd *pd, void *addr, size_t length,
			   uint64_t iova, unsigned int access)
{
	char why[RP_WHY_LEN] = "";
	struct shim_mr *m = calloc(1, sizeof(*m));
	int ret;

	if (!m)
		return NULL;
	rp_watch_record(&m->region.watch);
	ret = rp_device_facts(pd, addr, length, &m->facts, why);
	ret = -rp_watch_end(ret, why);
	if (ret) {
		rp_log(RP_LOG_WARN, "registration refused: %s", why);
		goto free;
	}
	m->access = rp_desc_from_access(access);
	m->addr = iova;
	m->length = length;
	m->pub.mr =
		reg_with_flush(pd, addr, length, iova, access,
			       m->facts.memory == RP_MEM_DAX_SYNC, &m->native);
	if (!m->pub.mr) {
		ret = errno;
		goto free;
	}
	ret = check_facts(m, why) ?: region_serve(m, pd, why);
	if (ret)
		goto dereg;
	return &m->pub;
dereg:
	ibv_dereg_mr(m->pub.mr);
free:
	rp_watch_free(&m->region.watch);
	free(m);
	errno = ret;
	return NULL;
}

RP_PUBLIC struct rpmem_mr *rpmem_reg_mr(struct ibv_pd *pd, void *addr,
					size_t length, int access)
{
	return rp_mr_new(pd, addr, length, (uintptr_t)addr,
			 (unsigned int)access);
}

RP_PUBLIC int rpmem_dereg_mr(struct rpmem_mr *mr)
{
	struct shim_mr *m = (struct shim_mr *)mr;
	int ret;

	/* Before ibv_dereg_mr(), after which the rkey may be reused. */
	if (m->dom)
		rp_pd_del(m->dom, &m->region);
	ret = ibv_dereg_mr(mr->mr);
	if (ret) {
		/* This cannot fail: the key was removed just before. */
		if (m->dom)
			rp_pd_add(m->dom, &m->region);
		return ret;
	}
	if (m->dom) {
		rp_pmem_delete(m->region.pmem);
		rp_pd_put(m->dom);
	}
	rp_watch_free(&m->region.watch);
	free(m);
	return 0;
}

RP_PUBLIC int rpmem_export_mr(struct rpmem_mr *mr, struct rpmem_qp *qp,
			      struct rpmem_mr_desc *desc)
{
	const struct shim_mr *m = (const struct shim_mr *)mr;
	struct rp_qp *q = rp_qp_of(qp);
	/* Without side connection the agent gets no requests. */
	const uint64_t key = m->served && q->dom == m->dom ? m->region.key : 0;
	struct rp_facts f = m->facts;
	struct rp_qp_state end;
	unsigned int here;
	struct rp_desc d;
	bool watch;
	int ret = q->ops->query(q, &end);

	if (ret)
		return ret;
	if (end.state == IBV_QPS_RESET || end.state == IBV_QPS_ERR)
		return EINVAL;
	here = rp_desc_from_access(end.access | q->access);
	if (!end.max_dest_rd_atomic)
		here &= ~RP_DESC_READ;
	watch = m->dom && !key && here & RP_DESC_PERSISTENT;
	if (watch && mr->mr->pd != qp->qp->pd) {
		rp_log(RP_LOG_WARN,
		       "no descriptor for queue pair %u: the persistent region "
		       "has another protection domain",
		       qp->qp->qp_num);
		return EINVAL;
	}
	if (m->dom)
		ret = rp_pd_facts(m->dom, &m->region, watch ? q : NULL, &f);
	if (ret)
		return ret;
	d = (struct rp_desc){
		.addr = m->addr,
		.length = m->length,
		.rkey = mr->mr->rkey,
		.qp_num = qp->qp->qp_num,
		.memory = f.memory,
		.placement = f.placement,
		.domain = f.domain,
		.fence = f.fence,
		.fs_trusted = f.fs_trusted,
		.limit = f.limit,
		.region = (uint16_t)m->access,
		.qp = (uint16_t)here,
		/* Native flushes need the queue pair's access bits, too. */
		.native =
			(uint16_t)(m->native & rp_desc_from_access(end.access)),
		.key = key,
	};
	return -rp_desc_put(desc->bytes, &d);
}
