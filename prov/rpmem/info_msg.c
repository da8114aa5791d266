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
/* Where they are told of adapters, reads behind them push. */
#define ORDER_BY_CARD (FI_ORDER_RAW | FI_ORDER_RMA_RAW)
/* Control messages are remote writes, both ways, whatever the program does. */
#define WAYS (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

/* Keys of ours are longer than those of a base that makes them itself. */
#define KEY_SIZE sizeof(uint64_t)

static bool makes_keys(const struct fi_info *info)
{
	return info->ep_attr && info->ep_attr->type == FI_EP_MSG &&
	       info->domain_attr &&
	       (info->domain_attr->mr_mode & FI_MR_PROV_KEY);
}

bool rp_info_is_msg(const struct fi_info *info, const char *base)
{
	return rp_host_connects(base) != RP_CONNECTS_NOT && makes_keys(info) &&
	       info->domain_attr->mr_key_size == KEY_SIZE;
}

static bool is_asked(uint32_t version, const struct fi_info *hints,
		     const char *base)
{
	return hints && (hints->caps & FI_RMA) && makes_keys(hints) &&
	       rp_host_connects(base) != RP_CONNECTS_NOT &&
	       rp_info_may_make_keys(version, hints);
}

static uint64_t order_over(const char *base)
{
	return rp_host_connects(base) == RP_CONNECTS_BY_CARD
		       ? ORDER | ORDER_BY_CARD
		       : ORDER;
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

static void domain_to_base(struct fi_domain_attr *d, const char *base)
{
	/* Offsets into regions, by keys of ours: the other end counts on it. */
	if (rp_host_connects(base) == RP_CONNECTS_BY_NAMES)
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
			b->tx_attr->msg_order |= order_over(base);
		if (b->tx_attr->size)
			b->tx_attr->size += RESERVED_TX;
	}
	if (b->rx_attr)
		b->rx_attr->mode &= ~RP_BUFFERED_RECV;
	if (b->domain_attr)
		domain_to_base(b->domain_attr, base);
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

/* Both ends can make the mailboxes' keys of their names. */
static bool suits_by_names(const struct fi_info *i)
{
	return i->ep_attr->max_order_waw_size == SIZE_MAX &&
	       i->domain_attr->mr_key_size >= KEY_SIZE &&
	       !(i->domain_attr->mr_mode &
		 (FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_LOCAL));
}

/*
 * They are told. Its keys have to leave room for what ours have more; and
 * shared connections (XRC) have other data of their own with a connection.
 */
static bool suits_by_card(const struct fi_info *i, const char *base)
{
	char why[RP_SOURCE_LEN];

	return i->ep_attr->max_order_waw_size >= i->ep_attr->max_msg_size &&
	       i->ep_attr->max_order_raw_size >= sizeof(uint64_t) &&
	       (i->domain_attr->mr_mode & FI_MR_PROV_KEY) &&
	       i->domain_attr->mr_key_size <= sizeof(uint32_t) &&
	       i->ep_attr->protocol != FI_PROTO_RDMA_CM_IB_XRC &&
	       rp_host_acknowledges(base, i->domain_attr->name, why);
}

static bool suits(const struct fi_info *i, const char *base)
{
	return (i->caps & FI_RMA) && i->tx_attr->size > RESERVED_TX &&
	       (i->tx_attr->msg_order & order_over(base)) == order_over(base) &&
	       (rp_host_connects(base) == RP_CONNECTS_BY_CARD
			? suits_by_card(i, base)
			: suits_by_names(i));
}

/* Turn the base's entry into what we offer. */
static void to_ours(const struct fi_info *hints, const char *base,
		    struct fi_info *i)
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
	d->mr_key_size = KEY_SIZE;
	d->data_progress = hints->domain_attr->data_progress == FI_PROGRESS_AUTO
				   ? FI_PROGRESS_AUTO
				   : FI_PROGRESS_MANUAL;
	/* Inline stores do without: who wants it says so (rma.c). */
	if (order)
		i->tx_attr->msg_order &= order | ~order_over(base);
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
		if (suits(i, base)) {
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
		to_ours(hints, base, i);
	return ret;
}

void rp_info_msg_why(const struct fi_info *hints, const char *base)
{
	const uint64_t of_card = FI_MR_PROV_KEY | FI_MR_VIRT_ADDR |
				 FI_MR_ALLOCATED | FI_MR_LOCAL;
	uint64_t mode;

	if (!hints || !(hints->caps & FI_RMA_PMEM) || !hints->ep_attr ||
	    hints->ep_attr->type != FI_EP_MSG)
		return;
	mode = hints->domain_attr ? hints->domain_attr->mr_mode : 0;
	if (rp_host_connects(base) == RP_CONNECTS_NOT)
		RP_WARN(FABRIC,
			"connected endpoints (FI_EP_MSG) with FI_RMA_PMEM are "
			"had over tcp and verbs, not over %s: use FI_EP_RDM\n",
			base);
	else if (rp_host_connects(base) == RP_CONNECTS_BY_CARD &&
		 (mode & of_card) != of_card)
		RP_WARN(FABRIC,
			"connected endpoints (FI_EP_MSG) with FI_RMA_PMEM over "
			"%s want FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, "
			"FI_MR_ALLOCATED and FI_MR_LOCAL in the mr_mode of the "
			"hints\n",
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
