// SPDX-License-Identifier: BSD-2-Clause
/* Reads behind writes: the part of a commit that needs no agent. */
#include "rpmem/host.h"
#include "rpmem/rpmem.h"

bool rp_fence_is_proof(const struct rp_dom *dom)
{
	const struct fi_info *base = dom->base_info;
	uint64_t order = base->tx_attr->msg_order;

	return rp_host_tells(dom->fabric->base_name, base->domain_attr->name) &&
	       (order & (FI_ORDER_RAW | FI_ORDER_RMA_RAW)) &&
	       base->ep_attr->max_order_raw_size >= sizeof(dom->landing);
}

/* Only where a program has commits, for the rest pays nothing for them. */
static int landing(struct rp_dom *dom, void **desc)
{
	int ret = 0;

	if (!dom->landing_mr)
		ret = rp_mr_hidden(dom, &dom->landing, sizeof(dom->landing),
				   FI_READ, &dom->landing_mr);
	*desc = rp_mr_desc(dom->landing_mr);
	return ret;
}

int rp_fence_read(struct rp_ep *ep, uint64_t peer, uint64_t base_key,
		  uint64_t addr, size_t len, struct rp_slot *s)
{
	struct rp_dom *dom = ep->dom;
	struct iovec iov = {.iov_base = &dom->landing, .iov_len = len};
	struct fi_rma_iov rma = {.addr = addr, .len = len, .key = base_key};
	void *desc;
	struct fi_msg_rma m = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = 1,
		.addr = peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = s,
	};
	int ret = landing(dom, &desc);

	return ret ? ret : (int)fi_readmsg(ep->base, &m, FI_COMPLETION);
}

int rp_fence_post(struct rp_xport *x, uint64_t peer, uint64_t base_key,
		  uint64_t addr, size_t len, struct rp_fence *f)
{
	struct rp_ep *ep = rp_container_of(x, struct rp_ep, xport);
	struct rp_dom *dom = ep->dom;
	struct rp_slot *s = rp_slot_get(&dom->slots, ep, RP_SLOT_FENCE);
	int ret;

	if (!s)
		return -FI_ENOMEM;
	s->fence = f;
	ret = rp_fence_read(ep, peer, base_key, addr, len, s);
	if (ret)
		rp_slot_put(&dom->slots, s);
	return ret;
}

void rp_fence_completed(struct rp_slot *s, int err)
{
	struct rp_ep *ep = s->ep;

	/* The program has read nothing. */
	rp_cntr_hide(ep, RP_CNTR_READ, err != 0);
	rp_fence_done(s->fence, err);
	rp_slot_put(&ep->dom->slots, s);
}
