// SPDX-License-Identifier: BSD-2-Clause
/* What is offered of connected endpoints, derived from the base's. */
#include <stdlib.h>
#include <string.h>

#include "rpmem/cm.h"
#include "rpmem/conn.h"
#include "rpmem/host.h"

/* Entries of the base's queue that stay ours. */
#define RESERVED_TX 64

/* A write is placed behind those before it. Every commit stands on it. */
#define ORDER (FI_ORDER_WAW | FI_ORDER_RMA_WAW)
/* Control messages are remote writes, both ways, whatever the program does. */
#define WAYS (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

bool rp_info_is_msg(const struct fi_info *info, const char *base)
{
	/* Such a base makes no keys, so who has them made has them made by us.
	 */
	return rp_host_connects(base) && info->ep_attr &&
	       info->ep_attr->type == FI_EP_MSG && info->domain_attr &&
	       (info->domain_attr->mr_mode & FI_MR_PROV_KEY);
}

static bool is_asked(uint32_t version, const struct fi_info *hints,
		     const char *base)
{
	return hints && (hints->caps & FI_RMA) && rp_info_is_msg(hints, base) &&
	       rp_info_may_make_keys(version, hints);
}

static void caps_to_base(struct fi_info *b)
{
	if (b->caps)
		b->caps = (b->caps & ~FI_RMA_PMEM) | FI_RMA | WAYS;
	if (b->tx_attr && b->tx_attr->caps)
		b->tx_attr->caps = (b->tx_attr->caps & ~FI_RMA_PMEM) | FI_RMA |
				   FI_READ | FI_WRITE;
	if (b->rx_attr && b->rx_attr->caps)
		b->rx_attr->caps = (b->rx_attr->caps & ~FI_RMA_PMEM) | FI_RMA |
				   FI_REMOTE_READ | FI_REMOTE_WRITE;
}

static void domain_to_base(struct fi_domain_attr *d)
{
	/* Offsets into regions, by keys of ours: the other end counts on it. */
	d->mr_mode &= ~(FI_MR_VIRT_ADDR | FI_MR_PROV_KEY);
	d->mr_key_size = 0;
	if (d->data_progress == FI_PROGRESS_AUTO)
		d->threading = FI_THREAD_SAFE;
	/* What is placed is looked at: not while the base is at it. */
	d->data_progress = FI_PROGRESS_MANUAL;
	if (d->threading != FI_THREAD_UNSPEC &&
	    d->threading != FI_THREAD_DOMAIN)
		d->threading = FI_THREAD_SAFE;
	if (d->domain)
		d->domain =
			rp_container_of(d->domain, struct rp_dom, fid)->base;
}

struct fi_info *rp_info_msg_to_base(const struct fi_info *info,
				    const char *base)
{
	struct fi_info *b = fi_dupinfo(info);

	if (!b)
		return NULL;
	b->next = NULL;
	b->handle = info->handle;
	caps_to_base(b);
	b->mode &= ~RP_BUFFERED_RECV;
	if (b->tx_attr) {
		b->tx_attr->op_flags &= ~FI_COMMIT_COMPLETE;
		if (b->tx_attr->msg_order)
			b->tx_attr->msg_order |= ORDER;
		if (b->tx_attr->size)
			b->tx_attr->size += RESERVED_TX;
	}
	if (b->rx_attr)
		b->rx_attr->mode &= ~RP_BUFFERED_RECV;
	if (b->domain_attr)
		domain_to_base(b->domain_attr);
	if (!b->fabric_attr)
		return b;
	if (b->fabric_attr->fabric)
		b->fabric_attr->fabric = rp_container_of(b->fabric_attr->fabric,
							 struct rp_fabric, fid)
						 ->direct;
	free(b->fabric_attr->prov_name);
	b->fabric_attr->prov_name = strdup(base);
	if (b->fabric_attr->prov_name)
		return b;
	b->handle = NULL;
	fi_freeinfo(b);
	return NULL;
}

static bool suits(const struct fi_info *i)
{
	return (i->caps & FI_RMA) && i->tx_attr->size > RESERVED_TX &&
	       (i->tx_attr->msg_order & ORDER) == ORDER &&
	       i->ep_attr->max_order_waw_size == SIZE_MAX &&
	       i->domain_attr->mr_key_size >= sizeof(uint64_t) &&
	       !(i->domain_attr->mr_mode &
		 (FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_LOCAL));
}

/* Turn the base's entry into what we offer. */
static void to_ours(const struct fi_info *hints, struct fi_info *i)
{
	struct fi_domain_attr *d = i->domain_attr;
	uint64_t added = hints->caps & WAYS ? WAYS & ~hints->caps : 0;
	uint64_t order = hints->tx_attr ? hints->tx_attr->msg_order : 0;

	i->caps &= ~added;
	i->tx_attr->caps &= ~added;
	i->rx_attr->caps &= ~added;
	i->caps |= hints->caps & FI_RMA_PMEM;
	if (hints->tx_attr)
		i->tx_attr->op_flags |=
			hints->tx_attr->op_flags & FI_COMMIT_COMPLETE;
	i->tx_attr->size -= RESERVED_TX;
	d->mr_mode |= FI_MR_PROV_KEY;
	d->mr_key_size = sizeof(uint64_t);
	d->data_progress = hints->domain_attr->data_progress == FI_PROGRESS_AUTO
				   ? FI_PROGRESS_AUTO
				   : FI_PROGRESS_MANUAL;
	/* Inline stores do without: who wants it says so (rma.c). */
	if (order)
		i->tx_attr->msg_order &= order | ~(uint64_t)ORDER;
	else if (rp_params.inline_max)
		i->tx_attr->msg_order &= ~(RP_ORDER_ACROSS | ORDER);
	d->domain = hints->domain_attr->domain;
	i->fabric_attr->fabric =
		hints->fabric_attr ? hints->fabric_attr->fabric : NULL;
}

/* Of the base's list those that suit. */
static int base_list(uint32_t version, const char *node, const char *service,
		     uint64_t flags, const struct fi_info *hints,
		     const char *base, struct fi_info **list)
{
	struct fi_info *b = rp_info_msg_to_base(hints, base), *i, **link;
	int ret;

	if (!b)
		return -FI_ENOMEM;
	b->handle = NULL;
	ret = rp_info_direct_list(version, node, service, flags, b, base,
				  FI_EP_MSG, list);
	fi_freeinfo(b);
	for (link = list; !ret && (i = *link);) {
		if (suits(i)) {
			link = &i->next;
			continue;
		}
		*link = i->next;
		i->next = NULL;
		fi_freeinfo(i);
	}
	return ret ? ret : *list ? 0 : -FI_ENODATA;
}

int rp_info_msg_list(uint32_t version, const char *node, const char *service,
		     uint64_t flags, const struct fi_info *hints,
		     const char *base, struct fi_info **list)
{
	int ret;

	*list = NULL;
	if (!is_asked(version, hints, base))
		return -FI_ENODATA;
	ret = base_list(version, node, service, flags, hints, base, list);
	for (struct fi_info *i = ret ? NULL : *list; i; i = i->next)
		to_ours(hints, i);
	return ret;
}

void rp_info_msg_why(const struct fi_info *hints, const char *base)
{
	if (hints && (hints->caps & FI_RMA_PMEM) && hints->ep_attr &&
	    hints->ep_attr->type == FI_EP_MSG && !rp_host_connects(base))
		RP_WARN(FABRIC,
			"connected endpoints (FI_EP_MSG) with FI_RMA_PMEM are "
			"had over tcp, not over %s: use FI_EP_RDM\n",
			base);
}

int rp_info_msg_base(const struct rp_fabric *fab, const struct fi_info *info,
		     struct fi_info **out)
{
	struct fi_info *hints = fi_dupinfo(info), *list = NULL;
	int ret = -FI_ENOMEM;

	*out = NULL;
	if (!hints)
		return ret;
	/* Whom it is connected to is the endpoint's affair. */
	hints->handle = NULL;
	free(hints->dest_addr);
	hints->dest_addr = NULL;
	hints->dest_addrlen = 0;
	ret = base_list(fab->version, NULL, NULL, 0, hints, fab->base_name,
			&list);
	fi_freeinfo(hints);
	if (!ret)
		ret = rp_info_pick(list, info, out);
	fi_freeinfo(list);
	return ret;
}
