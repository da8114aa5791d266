// SPDX-License-Identifier: BSD-2-Clause
/* Domains: open and close the base's domain and the private state. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "rpmem/cm.h"
#include "rpmem/os_services.h"

static void close_fds(struct rp_dom *dom)
{
	if (dom->wake_fd >= 0)
		close(dom->wake_fd);
	if (dom->timer_fd >= 0)
		close(dom->timer_fd);
	if (dom->kick_fd >= 0)
		close(dom->kick_fd);
}

/* Close private connections; if the base stays open, they reopen on use. */
static void close_private(struct rp_dom *dom)
{
	rp_domain_thread_stop(dom);
	pthread_mutex_lock(&dom->lock);
	atomic_store(&dom->live, false);
	rp_target_close(dom);
	/* Sessions return their tasks to the pool, which is then freed. */
	rp_private_delete_retired(dom);
	rp_task_pool_fini(dom);
	rp_private_close(dom);
	pthread_mutex_unlock(&dom->lock);
}

static int domain_close(struct fid *fid)
{
	struct rp_dom *dom = rp_container_of(fid, struct rp_dom, fid.fid);
	int ret;

	if (atomic_load(&dom->refs))
		return -FI_EBUSY;
	close_private(dom);
	ret = fi_close(&dom->base->fid);
	if (ret)
		return ret;
	close_fds(dom);
	pthread_mutex_destroy(&dom->lock);
	fi_freeinfo(dom->base_info);
	free(dom);
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
	return rp_container_of(domain, struct rp_dom, fid)->is_msg
		       ? rp_srx_open(domain, attr, rx_ep, context)
		       : -FI_ENOSYS;
}

static int query_atomic(struct fid_domain *domain, enum fi_datatype datatype,
			enum fi_op op, struct fi_atomic_attr *attr,
			uint64_t flags)
{
	return rp_atomic_query(rp_container_of(domain, struct rp_dom, fid),
			       datatype, op, attr, flags);
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
	.ops_open = rp_ext_ops_open,
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
	.endpoint2 = domain_ep2,
};

/* Find the base's fi_info entry for the domain that the program chose. */
static int find_base_info(struct rp_fabric *fab, const struct fi_info *info,
			  struct fi_info **out)
{
	struct fi_info *list;
	int ret = rp_info_list_base_rdm(fab->version, NULL, NULL, 0, info,
					fab->base_name, &list);

	if (ret) {
		RP_WARN(DOMAIN,
			"%s no longer offers what fi_getinfo() "
			"returned: %s\n",
			fab->base_name, fi_strerror(-ret));
		return ret;
	}
	ret = rp_info_find_domain(list, info, out);
	fi_freeinfo(list);
	return ret;
}

static int open_fds(struct rp_dom *dom)
{
	int ret;

	dom->kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	dom->timer_fd =
		timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	dom->wake_fd = epoll_create1(EPOLL_CLOEXEC);
	if (dom->kick_fd < 0 || dom->timer_fd < 0 || dom->wake_fd < 0)
		return -errno;
	ret = rp_wait_watch(dom->wake_fd, dom->kick_fd);
	return ret ? ret : rp_wait_watch(dom->wake_fd, dom->timer_fd);
}

/* Draw a random incarnation: a new one tells peers of a restart. */
static int make_incarnation(struct rp_dom *dom)
{
	int ret;

	do {
		ret = rp_host_random(&dom->incarnation,
				     sizeof(dom->incarnation));
	} while (!ret && !dom->incarnation);
	return ret;
}

static int open_base(struct rp_dom *dom, const struct fi_info *info,
		     void *context)
{
	struct rp_fabric *fab = dom->fabric;
	int ret;

	dom->is_msg = rp_info_is_msg(info, fab->base_name);
	ret = dom->is_msg ? rp_info_find_base_msg(fab, info, &dom->base_info)
			  : find_base_info(fab, info, &dom->base_info);
	if (ret)
		return ret;
	ret = rp_fabric_find_base(fab, dom->base_info, &dom->base_fabric);
	if (!ret)
		ret = fi_domain(dom->base_fabric, dom->base_info, &dom->base,
				context);
	if (ret)
		fi_freeinfo(dom->base_info);
	return ret;
}

int rp_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		   struct fid_domain **domain, void *context)
{
	struct rp_dom *dom = calloc(1, sizeof(*dom));
	int ret;

	if (!dom)
		return -FI_ENOMEM;
	dom->fabric = rp_container_of(fabric, struct rp_fabric, fid);
	dom->makes_keys = rp_info_has_persistent_keys(info);
	dom->auto_progress =
		info->domain_attr->data_progress == FI_PROGRESS_AUTO;
	atomic_init(&dom->may_sleep, dom->auto_progress);
	LIST_INIT(&dom->cqs);
	LIST_INIT(&dom->eps);
	LIST_INIT(&dom->persistent_mrs);
	ret = open_fds(dom);
	if (!ret)
		ret = make_incarnation(dom);
	if (!ret)
		ret = open_base(dom, info, context);
	if (ret) {
		close_fds(dom);
		free(dom);
		return ret;
	}
	pthread_mutex_init(&dom->lock, NULL);
	dom->fid.fid.fclass = FI_CLASS_DOMAIN;
	dom->fid.fid.context = context;
	dom->fid.fid.ops = &domain_fid_ops;
	dom->fid.ops = &domain_ops;
	dom->fid.mr = &rp_mr_ops;
	RP_INFO(DOMAIN, "%s is opened over %s, keys are those of %s\n",
		dom->base_info->domain_attr->name,
		dom->base_info->fabric_attr->prov_name,
		dom->makes_keys ? RP_PROV_NAME : "the base");
	*domain = &dom->fid;
	return 0;
}
