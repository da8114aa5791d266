// SPDX-License-Identifier: BSD-2-Clause
/* The domain: one lock, one agent, one incarnation. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "rpmem/cm.h"
#include "rpmem/conn.h"
#include "rpmem/host.h"

static int domain_close(struct fid *fid)
{
	struct rp_dom *dom = rp_container_of(fid, struct rp_dom, fid.fid);
	int ret;

	if (atomic_load(&dom->refs))
		return -FI_EBUSY;
	rp_domain_thread_stop(dom);
	if (dom->landing_mr)
		fi_close(&dom->landing_mr->fid);
	dom->landing_mr = NULL;
	rp_xport_fini(dom);
	ret = fi_close(&dom->base->fid);
	if (ret) {
		if (dom->auto_progress && rp_domain_thread_start(dom))
			RP_WARN(DOMAIN, "the progress thread is gone\n");
		return ret;
	}
	rp_conns_delete(dom->conns);
	rp_agent_delete(dom->agent);
	rp_slot_pool_fini(&dom->slots);
	close(dom->kick_fd);
	close(dom->timer_fd);
	pthread_mutex_destroy(&dom->lock);
	pthread_mutex_destroy(&dom->poll_lock);
	fi_freeinfo(dom->base_info);
	free(dom);
	return 0;
}

static int domain_ops_open(struct fid *fid, const char *name, uint64_t flags,
			   void **ops, void *context)
{
	if (flags)
		return -FI_EBADFLAGS;
	if (strcmp(name, FI_RPMEM_DOMAIN_OPS_1))
		return -FI_ENOSYS;
	*ops = &rp_ext_domain_ops;
	return 0;
}

static int no_sep(struct fid_domain *domain, struct fi_info *info,
		  struct fid_ep **sep, void *context)
{
	return -FI_ENOSYS;
}

static int no_stx(struct fid_domain *domain, struct fi_tx_attr *attr,
		  struct fid_stx **stx, void *context)
{
	return -FI_ENOSYS;
}

static int domain_srx(struct fid_domain *domain, struct fi_rx_attr *attr,
		      struct fid_ep **rx_ep, void *context)
{
	struct rp_dom *dom = rp_container_of(domain, struct rp_dom, fid);

	return dom->msg ? rp_srx_open(dom, attr, rx_ep, context) : -FI_ENOSYS;
}

static int query_atomic(struct fid_domain *domain, enum fi_datatype datatype,
			enum fi_op op, struct fi_atomic_attr *attr,
			uint64_t flags)
{
	return fi_query_atomic(
		rp_container_of(domain, struct rp_dom, fid)->base, datatype, op,
		attr, flags);
}

static int no_coll(struct fid_domain *domain, enum fi_collective_op coll,
		   struct fi_collective_attr *attr, uint64_t flags)
{
	return -FI_ENOSYS;
}

static int domain_ep2(struct fid_domain *domain, struct fi_info *info,
		      struct fid_ep **ep, uint64_t flags, void *context)
{
	return flags ? -FI_EBADFLAGS : rp_ep_open(domain, info, ep, context);
}

static struct fi_ops domain_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = domain_close,
	.bind = rp_no_bind,
	.control = rp_no_control,
	.ops_open = domain_ops_open,
};

static struct fi_ops_domain domain_ops = {
	.size = sizeof(struct fi_ops_domain),
	.av_open = rp_av_open,
	.cq_open = rp_cq_open,
	.endpoint = rp_ep_open,
	.scalable_ep = no_sep,
	.cntr_open = rp_cntr_open,
	.poll_open = rp_poll_open,
	.stx_ctx = no_stx,
	.srx_ctx = domain_srx,
	.query_atomic = query_atomic,
	.query_collective = no_coll,
	.endpoint2 = domain_ep2,
};

/* The base's own description of the domain that the program chose. */
static int find_base_info(struct rp_fabric *fab, const struct fi_info *info,
			  struct fi_info **out)
{
	struct fi_info *list;
	int ret = rp_info_base(fab->version, NULL, NULL, 0, info,
			       fab->base_name, &list);

	if (ret) {
		RP_WARN(DOMAIN,
			"%s no longer offers what fi_getinfo() "
			"returned: %s\n",
			fab->base_name, fi_strerror(-ret));
		return ret;
	}
	ret = rp_info_pick(list, info, out);
	fi_freeinfo(list);
	return ret;
}

/*
 * Without a shared receive context ofi_rxm of libfabric 2.1 posts a receive
 * again on a connection that it has just freed: a message that comes while its
 * sender closes crashes the receiver (measured).
 */
static void look_at_rxm(const struct rp_dom *dom)
{
	if (!strcasecmp(dom->fabric->base_name, "verbs") &&
	    !getenv("FI_OFI_RXM_USE_SRX"))
		RP_WARN(DOMAIN, "set FI_OFI_RXM_USE_SRX=1 on both sides: "
				"ofi_rxm over verbs may crash without it when "
				"a peer closes\n");
}

static int make_agent(struct rp_dom *dom)
{
	struct rp_agent_attr attr = {
		.credits = rp_params.credits,
		.max_sessions = rp_params.max_sessions,
		.no_worker = !rp_host_has_threads(),
		.links = dom->conns,
		.native = dom->conns && dom->conns->attr.native,
		.placed = rp_host_path(dom->fabric->base_name,
				       dom->base_info->domain_attr->name) ==
			  RP_PATH_CPU,
	};
	int ret;

	/* Who restarts must not be taken for who died. */
	do {
		ret = rp_host_random(&dom->incarnation,
				     sizeof(dom->incarnation));
		if (ret)
			return ret;
	} while (!dom->incarnation);
	attr.incarnation = dom->incarnation;
	return rp_agent_new(&attr, &dom->agent);
}

int rp_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		   struct fid_domain **domain, void *context)
{
	struct rp_fabric *fab = rp_container_of(fabric, struct rp_fabric, fid);
	uint64_t format;
	struct rp_dom *dom = calloc(1, sizeof(*dom));
	int ret;

	if (!dom)
		return -FI_ENOMEM;
	dom->fabric = fab;
	dom->msg = rp_info_is_msg(info, fab->base_name);
	ret = dom->msg ? rp_info_msg_base(fab, info, &dom->base_info)
		       : find_base_info(fab, info, &dom->base_info);
	if (ret)
		goto free;
	dom->cards = dom->msg && fab->cards;
	ret = rp_fabric_base(fab, dom->base_info, &dom->base_fabric);
	if (ret)
		goto info;
	dom->fenced =
		dom->cards && rp_host_fences(fab->base_name,
					     dom->base_info->domain_attr->name,
					     rp_params.operator_file);
	dom->marked = info->domain_attr->mr_mode & FI_MR_PROV_KEY;
	dom->auto_progress =
		info->domain_attr->data_progress == FI_PROGRESS_AUTO;
	atomic_init(&dom->watched, dom->auto_progress);
	atomic_init(&dom->quick_count, RP_NOT_QUICK);
	dom->ordered =
		dom->msg || (dom->base_info->tx_attr->msg_order & FI_ORDER_SAW);
	dom->own = !dom->msg && rp_fence_is_proof(dom);
	if (!dom->msg)
		look_at_rxm(dom);
	format = dom->base_info->ep_attr->mem_tag_format;
	dom->ctrl_bit = dom->msg ? 0 : 1ull << (63 - __builtin_clzll(format));
	LIST_INIT(&dom->cqs);
	LIST_INIT(&dom->eps);
	LIST_INIT(&dom->polls);
	LIST_INIT(&dom->pmems);
	LIST_INIT(&dom->polls);
	dom->epfd = -1;
	dom->timer_fd = -1;
	dom->kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (dom->kick_fd >= 0)
		dom->timer_fd = timerfd_create(CLOCK_MONOTONIC,
					       TFD_NONBLOCK | TFD_CLOEXEC);
	if (dom->timer_fd < 0) {
		ret = -errno;
		goto close;
	}
	dom->conns = dom->msg ? NULL : rp_conns_new(dom);
	ret = make_agent(dom);
	if (ret)
		goto close;
	ret = fi_domain(dom->base_fabric, dom->base_info, &dom->base, context);
	if (ret)
		goto agent;
	pthread_mutex_init(&dom->lock, NULL);
	pthread_mutex_init(&dom->poll_lock, NULL);
	dom->fid.fid.fclass = FI_CLASS_DOMAIN;
	dom->fid.fid.context = context;
	dom->fid.fid.ops = &domain_fid_ops;
	dom->fid.ops = &domain_ops;
	dom->fid.mr = &rp_mr_ops;
	if (dom->auto_progress) {
		ret = rp_domain_thread_start(dom);
		if (ret)
			goto base;
	}
	RP_INFO(DOMAIN, "%s is opened over %s, %s\n",
		dom->base_info->domain_attr->name,
		dom->base_info->fabric_attr->prov_name,
		dom->marked ? "with keys of ours" : "with its own keys");
	*domain = &dom->fid;
	return 0;
base:
	pthread_mutex_destroy(&dom->lock);
	pthread_mutex_destroy(&dom->poll_lock);
	fi_close(&dom->base->fid);
agent:
	rp_agent_delete(dom->agent);
close:
	rp_conns_delete(dom->conns);
	if (dom->timer_fd >= 0)
		close(dom->timer_fd);
	if (dom->kick_fd >= 0)
		close(dom->kick_fd);
info:
	fi_freeinfo(dom->base_info);
free:
	free(dom);
	return ret;
}
