// SPDX-License-Identifier: BSD-2-Clause
/* fi_getinfo(), for hints or FI_PROVIDER that name pmsim. */
#include <stdlib.h>
#include <string.h>

#include "pmsim/pmsim_int.h"

/* FI_MR_BASIC and FI_MR_SCALABLE, which newer headers deprecate. */
enum {
	MR_BASIC = 1,
	MR_SCALABLE
};

#define PRIMARY (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC)
#define TX_CAPS (PRIMARY | FI_SEND | FI_READ | FI_WRITE)
#define RX_CAPS                                                                \
	(PRIMARY | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE |                \
	 FI_DIRECTED_RECV | FI_SOURCE | FI_RMA_EVENT)
#define CAPS (TX_CAPS | RX_CAPS | FI_LOCAL_COMM)

#define TX_OP_FLAGS                                                            \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE |                      \
	 FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)
#define ORDER                                                                  \
	(FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_RAS | FI_ORDER_WAR |           \
	 FI_ORDER_WAW | FI_ORDER_WAS | FI_ORDER_SAR | FI_ORDER_SAW |           \
	 FI_ORDER_SAS | FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW |                  \
	 FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_RAR |           \
	 FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)

/* mem_tag_format: all bits of a tag are used. */
#define TAG_FORMAT 0xaaaaaaaaaaaaaaaaull

/* Is "pmsim" a component of the list? "^pmsim" does not count. */
static bool names_pmsim(const char *list, const char *separators)
{
	size_t n;

	for (; *list; list += n + !!list[n]) {
		n = strcspn(list, separators);
		if (n == strlen(PS_NAME) && !strncasecmp(list, PS_NAME, n))
			return true;
	}
	return false;
}

/* Do hints or FI_PROVIDER name pmsim? Other programs must not find it. */
static bool is_named(const struct fi_info *hints)
{
	const char *env = getenv("FI_PROVIDER");

	if (hints && hints->fabric_attr && hints->fabric_attr->prov_name)
		return names_pmsim(hints->fabric_attr->prov_name, ";");
	return env && *env != '^' && names_pmsim(env, ",");
}

static uint64_t base_order(void)
{
	return ps_sim.cfg.ordered ? ORDER : 0;
}

static int mr_mode(void)
{
	return (ps_sim.cfg.prov_keys ? FI_MR_PROV_KEY : 0) |
	       (ps_sim.cfg.virt_addr ? FI_MR_VIRT_ADDR | FI_MR_ALLOCATED : 0);
}

static bool mr_mode_fits(uint32_t version, int mode)
{
	if (!mode && FI_VERSION_LT(version, FI_VERSION(1, 5)))
		return true;
	if (mode == MR_BASIC)
		mode = FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
	else if (mode == MR_SCALABLE)
		mode = 0;
	return !(mr_mode() & ~mode);
}

static bool tx_fits(const struct fi_tx_attr *a)
{
	return !(a->caps & ~CAPS) && !(a->op_flags & ~TX_OP_FLAGS) &&
	       !(a->msg_order & ~base_order()) && !a->comp_order &&
	       a->inject_size <= PS_INJECT && a->size <= PS_QUEUE_SIZE &&
	       a->iov_limit <= PS_IOV && a->rma_iov_limit <= PS_IOV;
}

static bool rx_fits(const struct fi_rx_attr *a)
{
	return !(a->caps & ~CAPS) && !(a->op_flags & ~FI_COMPLETION) &&
	       !(a->msg_order & ~base_order()) && !a->comp_order &&
	       a->size <= PS_QUEUE_SIZE && a->iov_limit <= PS_IOV;
}

static bool ep_fits(const struct fi_ep_attr *a)
{
	return (a->type == FI_EP_UNSPEC || a->type == FI_EP_RDM ||
		(a->type == FI_EP_MSG && ps_sim.cfg.offers_msg)) &&
	       a->protocol == FI_PROTO_UNSPEC && a->tx_ctx_cnt <= 1 &&
	       a->rx_ctx_cnt <= 1 && a->max_msg_size <= PS_MAX_MSG &&
	       !a->auth_key_size;
}

static bool domain_fits(uint32_t version, const struct fi_domain_attr *a)
{
	return a->control_progress != FI_PROGRESS_AUTO &&
	       a->data_progress != FI_PROGRESS_AUTO &&
	       (!a->name || !strcmp(a->name, PS_NAME)) &&
	       a->mr_key_size <= sizeof(uint64_t) &&
	       a->cq_data_size <= sizeof(uint64_t) && !a->auth_key_size &&
	       mr_mode_fits(version, a->mr_mode);
}

/* One format for both endpoint types, as layers compare the formats. */
static uint32_t address_format(void)
{
	return ps_sim.cfg.offers_msg ? FI_SOCKADDR_IN : FI_FORMAT_UNSPEC;
}

static bool hints_fit(uint32_t version, const struct fi_info *h)
{
	return !(h->caps & ~CAPS) &&
	       (h->addr_format == FI_FORMAT_UNSPEC ||
		h->addr_format == address_format()) &&
	       (!h->tx_attr || tx_fits(h->tx_attr)) &&
	       (!h->rx_attr || rx_fits(h->rx_attr)) &&
	       (!h->ep_attr || ep_fits(h->ep_attr)) &&
	       (!h->domain_attr || domain_fits(version, h->domain_attr)) &&
	       (!h->fabric_attr || !h->fabric_attr->name ||
		!strcmp(h->fabric_attr->name, PS_NAME));
}

/* Add implied capabilities to the requested ones. */
static uint64_t grant_caps(uint64_t caps)
{
	const uint64_t tx = FI_SEND | FI_READ | FI_WRITE;
	const uint64_t rx = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;

	if (!caps)
		return CAPS;
	if (!(caps & (tx | rx)))
		caps |= tx | rx;
	return caps | FI_LOCAL_COMM;
}

static int set_addr(const char *service, void **addr, size_t *len)
{
	if (*addr || !service)
		return 0;
	*addr = malloc(sizeof(struct ps_addr));
	if (!*addr)
		return -FI_ENOMEM;
	ps_addr_make((uint32_t)strtoul(service, NULL, 0), *addr);
	*len = sizeof(struct ps_addr);
	return 0;
}

static int copy_addr(const void *from, size_t len, void **to, size_t *to_len)
{
	if (!from)
		return 0;
	*to = malloc(len);
	if (!*to)
		return -FI_ENOMEM;
	memcpy(*to, from, len);
	*to_len = len;
	return 0;
}

static void fill_info(const struct fi_info *hints, struct fi_info *i)
{
	struct fi_domain_attr *d = i->domain_attr;
	uint64_t level = hints && hints->tx_attr ? hints->tx_attr->op_flags : 0;

	i->caps = grant_caps(hints ? hints->caps : 0);
	i->addr_format = address_format();

	i->tx_attr->caps = i->caps & TX_CAPS;
	i->tx_attr->op_flags = level;
	i->tx_attr->msg_order = base_order();
	i->tx_attr->inject_size = PS_INJECT;
	i->tx_attr->size = PS_QUEUE_SIZE;
	i->tx_attr->iov_limit = PS_IOV;
	i->tx_attr->rma_iov_limit = PS_IOV;

	i->rx_attr->caps = i->caps & RX_CAPS;
	i->rx_attr->op_flags =
		hints && hints->rx_attr ? hints->rx_attr->op_flags : 0;
	i->rx_attr->msg_order = base_order();
	i->rx_attr->size = PS_QUEUE_SIZE;
	i->rx_attr->iov_limit = PS_IOV;

	i->ep_attr->type = FI_EP_RDM;
	if (hints && hints->ep_attr && hints->ep_attr->type == FI_EP_MSG)
		i->ep_attr->type = FI_EP_MSG;
	i->ep_attr->protocol_version = 1;
	i->ep_attr->max_msg_size = PS_MAX_MSG;
	if (ps_sim.cfg.ordered) {
		i->ep_attr->max_order_raw_size = PS_MAX_MSG;
		i->ep_attr->max_order_war_size = PS_MAX_MSG;
		i->ep_attr->max_order_waw_size = SIZE_MAX;
	}
	i->ep_attr->mem_tag_format = TAG_FORMAT;
	i->ep_attr->tx_ctx_cnt = 1;
	i->ep_attr->rx_ctx_cnt = 1;

	/* Grant any threading model, as there is only one thread. */
	d->threading =
		hints && hints->domain_attr && hints->domain_attr->threading
			? hints->domain_attr->threading
			: FI_THREAD_SAFE;
	d->control_progress = FI_PROGRESS_MANUAL;
	d->data_progress = FI_PROGRESS_MANUAL;
	d->resource_mgmt = FI_RM_ENABLED;
	d->av_type = hints && hints->domain_attr ? hints->domain_attr->av_type
						 : FI_AV_UNSPEC;
	d->mr_mode = mr_mode();
	/* Provider keys have 32 bits. */
	d->mr_key_size =
		ps_sim.cfg.prov_keys ? sizeof(uint32_t) : sizeof(uint64_t);
	d->cq_data_size = sizeof(uint64_t);
	d->cq_cnt = d->ep_cnt = d->tx_ctx_cnt = d->rx_ctx_cnt = 1024;
	d->cntr_cnt = d->mr_cnt = 1024;
	d->max_ep_tx_ctx = 1;
	d->max_ep_rx_ctx = 1;
	d->mr_iov_limit = 1;
	d->caps = FI_LOCAL_COMM;
}

int ps_getinfo(uint32_t version, const char *node, const char *service,
	       uint64_t flags, const struct fi_info *hints,
	       struct fi_info **info)
{
	struct fi_info *i;
	int ret;

	if (!is_named(hints) || (hints && !hints_fit(version, hints)))
		return -FI_ENODATA;
	i = fi_allocinfo();
	if (!i)
		return -FI_ENOMEM;
	fill_info(hints, i);
	i->fabric_attr->name = strdup(PS_NAME);
	i->domain_attr->name = strdup(PS_NAME);
	ret = i->fabric_attr->name && i->domain_attr->name ? 0 : -FI_ENOMEM;
	/* All nodes are local; a service is a number. */
	if (!ret && (flags & FI_SOURCE))
		ret = set_addr(service, &i->src_addr, &i->src_addrlen);
	else if (!ret)
		ret = set_addr(service, &i->dest_addr, &i->dest_addrlen);
	if (!ret && hints && !i->src_addr)
		ret = copy_addr(hints->src_addr, hints->src_addrlen,
				&i->src_addr, &i->src_addrlen);
	if (!ret && hints && !i->dest_addr)
		ret = copy_addr(hints->dest_addr, hints->dest_addrlen,
				&i->dest_addr, &i->dest_addrlen);
	if (ret) {
		fi_freeinfo(i);
		return ret;
	}
	*info = i;
	return 0;
}
