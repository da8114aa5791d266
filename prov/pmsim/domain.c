// SPDX-License-Identifier: BSD-2-Clause
/* Domains: the objects of one process on its machine. */
#include <stdlib.h>

#include "pmsim/pmsim_int.h"

static int domain_close(struct fid *fid)
{
	struct ps_dom *dom = ps_container_of(fid, struct ps_dom, fid.fid);

	if (dom->refs)
		return -FI_EBUSY;
	if (!dom->dead)
		LIST_REMOVE(dom, link);
	dom->fabric->refs--;
	ps_sim.ndoms--;
	free(dom);
	return 0;
}

static int no_sep(struct fid_domain *domain, struct fi_info *info,
		  struct fid_ep **sep, void *context)
{
	return -FI_ENOSYS;
}

static int no_poll(struct fid_domain *domain, struct fi_poll_attr *attr,
		   struct fid_poll **pollset)
{
	return -FI_ENOSYS;
}

static int no_stx(struct fid_domain *domain, struct fi_tx_attr *attr,
		  struct fid_stx **stx, void *context)
{
	return -FI_ENOSYS;
}

static int no_srx(struct fid_domain *domain, struct fi_rx_attr *attr,
		  struct fid_ep **rx_ep, void *context)
{
	return -FI_ENOSYS;
}

static int no_coll(struct fid_domain *domain, enum fi_collective_op coll,
		   struct fi_collective_attr *attr, uint64_t flags)
{
	return -FI_ENOSYS;
}

static int ep2(struct fid_domain *domain, struct fi_info *info,
	       struct fid_ep **ep, uint64_t flags, void *context)
{
	return flags ? -FI_EBADFLAGS : ps_ep_open(domain, info, ep, context);
}

static struct fi_ops domain_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = domain_close,
	.bind = ps_no_bind,
	.control = ps_no_control,
	.ops_open = ps_no_ops_open,
};

static struct fi_ops_domain domain_ops = {
	.size = sizeof(struct fi_ops_domain),
	.av_open = ps_av_open,
	.cq_open = ps_cq_open,
	.endpoint = ps_ep_open,
	.scalable_ep = no_sep,
	.cntr_open = ps_cntr_open,
	.poll_open = no_poll,
	.stx_ctx = no_stx,
	.srx_ctx = no_srx,
	.query_atomic = ps_atomic_query,
	.query_collective = no_coll,
	.endpoint2 = ep2,
};

int ps_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		   struct fid_domain **out, void *context)
{
	struct ps_machine *m = ps_machine_current();
	struct ps_dom *dom = calloc(1, sizeof(*dom));

	if (!dom || !m) {
		free(dom);
		return -FI_ENOMEM;
	}
	dom->fabric = ps_container_of(fabric, struct ps_fabric, fid);
	dom->fabric->refs++;
	dom->machine = m;
	LIST_INIT(&dom->eps);
	LIST_INSERT_HEAD(&m->doms, dom, link);
	ps_sim.ndoms++;
	dom->fid.fid.fclass = FI_CLASS_DOMAIN;
	dom->fid.fid.context = context;
	dom->fid.fid.ops = &domain_fid_ops;
	dom->fid.ops = &domain_ops;
	dom->fid.mr = &ps_mr_ops;
	*out = &dom->fid;
	return 0;
}
