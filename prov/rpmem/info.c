// SPDX-License-Identifier: BSD-2-Clause
/* fi_getinfo(): derive ofi_rpmem's entries from those of the base provider. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpmem/cm.h"
#include "rpmem/os_services.h"

/* Internal flags of fi_getinfo() in libfabric; unchanged since 1.9. */
#define GETINFO_INTERNAL  (1ull << 58)
#define GETINFO_CORE_ONLY (1ull << 59)

#define DEFAULT_BASE "tcp"

/*
 * Passthrough capabilities: a program that requests one gets the base's
 * entries, and so the base's objects, without persistence.
 */
#define PASSTHROUGH_CAPS                                                       \
	(FI_TRIGGER | FI_COLLECTIVE | FI_NAMED_RX_CTX | FI_VARIABLE_MSG |      \
	 FI_SHARED_AV)

/*
 * msg_order bits offered with persistent regions, whose operations use a
 * private connection while all others use the base: orders within the private
 * connection, and of messages behind persistent writes
 * (rp_private_check_order()). Orders that make persistent operations wait for
 * the base are not offered.
 */
#define RMA_ORDERS                                                             \
	(FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW |           \
	 FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR |              \
	 FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |        \
	 FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)
#define OFFERED_ORDERS ((uint64_t)(RMA_ORDERS | FI_ORDER_SAW | FI_ORDER_SAS))

static bool is_component(const char *s, size_t len, const char *name)
{
	return strlen(name) == len && !strncasecmp(s, name, len);
}

/* The length of "a" in the list "a;b;c". */
static size_t component_len(const char *list, size_t len)
{
	const char *end = memchr(list, ';', len);

	return end ? (size_t)(end - list) : len;
}

/* Does the list "a;b;c" contain the component name? */
static bool has_component(const char *list, size_t len, const char *name)
{
	const char *const end = list + len;
	size_t n;

	for (; list < end; list += n + 1) {
		n = component_len(list, (size_t)(end - list));
		if (is_component(list, n, name))
			return true;
	}
	return false;
}

/* Join the components of "a;b;c" other than ofi_rpmem; "": none. */
static char *join_base_names(const char *list, size_t len)
{
	const char *const end = list + len;
	char *out = calloc(1, len + 1), *o = out;
	size_t n;

	for (; out && list < end; list += n + 1) {
		n = component_len(list, (size_t)(end - list));
		if (n && *list != '^' && !is_component(list, n, RP_PROV_NAME)) {
			if (o != out)
				*o++ = ';';
			memcpy(o, list, n);
			o += n;
		}
	}
	return out;
}

char *rp_info_base_name(const char *prov_name)
{
	char *base = join_base_names(prov_name, strlen(prov_name));

	if (base && !*base) {
		free(base);
		base = NULL;
	}
	return base;
}

/*
 * Get the base from the environment variable FI_PROVIDER; NULL: FI_PROVIDER
 * does not name ofi_rpmem; "": it names no base. Caller frees.
 */
static char *base_in_environment(void)
{
	const char *env = getenv("FI_PROVIDER"), *p;
	char *base = NULL;
	size_t n;

	if (!env || *env == '^')
		return NULL;
	for (p = env; *p; p += n + !!p[n]) {
		n = strcspn(p, ",");
		if (has_component(p, n, RP_PROV_NAME)) {
			base = join_base_names(p, n);
			break;
		}
	}
	if (!base || *base)
		return base;
	/* The first other name in a list like "tcp,ofi_rpmem" is the base. */
	for (p = env; *p; p += n + !!p[n]) {
		n = strcspn(p, ",");
		if (n && strncasecmp(p, "ofi_", 4)) {
			free(base);
			return join_base_names(p, n);
		}
	}
	return base;
}

static void warn_no_base(void)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;
	static const char text[] =
		"FI_PROVIDER=ofi_rpmem names no base provider, so libfabric "
		"has hidden them all; use FI_PROVIDER='tcp;ofi_rpmem' (quoted)";

	if (atomic_flag_test_and_set(&warned))
		return;
	/* Without FI_LOG_LEVEL=warn print to stderr: users must see this. */
	if (fi_log_enabled(&rp_prov, FI_LOG_WARN, FI_LOG_CORE))
		FI_WARN(&rp_prov, FI_LOG_CORE, "%s\n", text);
	else
		fprintf(stderr, "ofi_rpmem: %s\n", text);
}

/* Do hints without a name get ofi_rpmem? Not FI_EP_MSG: tcp has FI_RMA_PMEM. */
static bool suits_unnamed_hints(const struct fi_info *hints)
{
	return hints && (hints->caps & FI_RMA_PMEM) &&
	       !(hints->ep_attr && hints->ep_attr->type == FI_EP_MSG);
}

/* The base's name for these hints; NULL: they do not request ofi_rpmem. */
static char *choose_base(const struct fi_info *hints)
{
	const char *name = hints && hints->fabric_attr
				   ? hints->fabric_attr->prov_name
				   : NULL;
	char *env = base_in_environment(), *base = NULL;

	/* FI_PROVIDER=ofi_rpmem hides all bases, also one in the hints. */
	if (env && !*env)
		warn_no_base();
	if (name && !has_component(name, strlen(name), RP_PROV_NAME)) {
		/* "tcp" means ofi_rpmem if FI_PROVIDER is "tcp;ofi_rpmem". */
		if (env && !strcasecmp(env, name)) {
			base = env;
			env = NULL;
		}
	} else if (name && (base = rp_info_base_name(name))) {
		; /* hints name "BASE;ofi_rpmem" */
	} else if (env && *env) {
		base = env;
		env = NULL;
	} else if (!env && (name || suits_unnamed_hints(hints))) {
		base = strdup(DEFAULT_BASE);
	}
	free(env);
	return base;
}

bool rp_info_set_prov(struct fi_info *i, const char *name)
{
	free(i->fabric_attr->prov_name);
	i->fabric_attr->prov_name = strdup(name);
	return i->fabric_attr->prov_name;
}

void rp_info_unlink(struct fi_info **link)
{
	struct fi_info *i = *link;

	*link = i->next;
	i->next = NULL;
	fi_freeinfo(i);
}

struct fi_info *rp_info_match_all(uint32_t version)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		return NULL;
	hints->mode = ~RP_BUFFERED_RECV;
	hints->domain_attr->mode = ~0ull;
	/* mr_mode bits exist since API 1.5; below that they match nothing. */
	if (FI_VERSION_GE(version, FI_VERSION(1, 5)))
		hints->domain_attr->mr_mode = ~RP_MR_BASIC_OR_SCALABLE;
	return hints;
}

/* Convert the domain attributes of a program's entry to the base's. */
static void domain_to_base(struct fi_domain_attr *d)
{
	/* ofi_rpmem's keys may be longer than the base's. */
	d->mr_key_size = 0;
	/* Progress in any thread adds to counters of any endpoint's base. */
	if (d->data_progress == FI_PROGRESS_AUTO ||
	    (d->threading != FI_THREAD_UNSPEC &&
	     d->threading != FI_THREAD_DOMAIN))
		d->threading = FI_THREAD_SAFE;
}

/* Replace fids of ofi_rpmem in the program's hints by the base's fids. */
static void fids_to_base(struct fi_info *b)
{
	if (b->domain_attr->domain)
		b->domain_attr->domain = rp_container_of(b->domain_attr->domain,
							 struct rp_dom, fid)
						 ->base;
	if (b->fabric_attr->fabric)
		b->fabric_attr->fabric = rp_container_of(b->fabric_attr->fabric,
							 struct rp_fabric, fid)
						 ->direct;
}

static void clear_caps(struct fi_info *i, uint64_t caps)
{
	i->caps &= ~caps;
	i->tx_attr->caps &= ~caps;
	i->rx_attr->caps &= ~caps;
}

/* Clear what the base does not offer: bases accept the bits and do nothing. */
static void clear_persistence(struct fi_info *i)
{
	clear_caps(i, FI_RMA_PMEM);
	i->tx_attr->op_flags &= ~FI_COMMIT_COMPLETE;
}

struct fi_info *rp_info_to_base(const struct fi_info *info,
				enum fi_ep_type type, const char *prov_name)
{
	/* Hints may lack attribute structs; the conversion needs them. */
	struct fi_info *b = fi_dupinfo(info), *full = fi_allocinfo();

	if (!b || !full) {
		fi_freeinfo(b);
		fi_freeinfo(full);
		return NULL;
	}
	b->handle = NULL; /* the program owns it */
#define TAKE(part)                                                             \
	do {                                                                   \
		if (!b->part) {                                                \
			b->part = full->part;                                  \
			full->part = NULL;                                     \
		}                                                              \
	} while (0)
	TAKE(ep_attr);
	TAKE(domain_attr);
	TAKE(fabric_attr);
	TAKE(tx_attr);
	TAKE(rx_attr);
#undef TAKE
	fi_freeinfo(full);
	clear_persistence(b);
	/* Programs that cannot handle FI_BUFFERED_RECV hang (measured). */
	b->mode &= ~RP_BUFFERED_RECV;
	b->rx_attr->mode &= ~RP_BUFFERED_RECV;
	b->ep_attr->type = type;
	domain_to_base(b->domain_attr);
	fids_to_base(b);
	if (rp_info_set_prov(b, prov_name))
		return b;
	fi_freeinfo(b);
	return NULL;
}

/* Keep the base's own entries; if none, ofi_rxm's; if none, another layer's. */
static void keep_one_layering(struct fi_info **list, const char *base)
{
	char rxm[128];
	const char *keep = NULL;
	struct fi_info *i, **link;
	char *other = NULL;

	snprintf(rxm, sizeof(rxm), "%s;ofi_rxm", base);
	for (i = *list; i; i = i->next) {
		const char *name = i->fabric_attr->prov_name;

		if (!strcasecmp(name, base)) {
			keep = base;
			break;
		}
		if (!strcasecmp(name, rxm))
			keep = rxm;
		else if (!keep && strchr(name, ';'))
			keep = other = strdup(name);
	}
	for (link = list; (i = *link);) {
		if (keep && !strcasecmp(i->fabric_attr->prov_name, keep))
			link = &i->next;
		else
			rp_info_unlink(link);
	}
	free(other);
}

static bool has_same_name(const char *a, const char *b)
{
	return a && b && !strcmp(a, b);
}

int rp_info_find_domain(const struct fi_info *list, const struct fi_info *info,
			struct fi_info **out)
{
	*out = NULL;
	for (; list; list = list->next)
		if (has_same_name(list->domain_attr->name,
				  info->domain_attr->name) &&
		    has_same_name(list->fabric_attr->name,
				  info->fabric_attr->name) &&
		    list->addr_format == info->addr_format)
			break;
	if (!list)
		return -FI_ENODATA;
	*out = fi_dupinfo(list);
	return *out ? 0 : -FI_ENOMEM;
}

/* Call fi_getinfo() for the base; "^ofi_rpmem" keeps it from recursing. */
static int getinfo_base(uint32_t version, const char *node, const char *service,
			uint64_t flags, struct fi_info *b, const char *base,
			struct fi_info **list)
{
	char *name;
	int ret = -FI_ENOMEM;

	if (asprintf(&name, "%s;^" RP_PROV_NAME, base) < 0)
		return ret;
	if (rp_info_set_prov(b, name))
		ret = fi_getinfo(version, node, service,
				 flags | GETINFO_INTERNAL, b, list);
	free(name);
	return ret;
}

int rp_info_list_base_rdm(uint32_t version, const char *node,
			  const char *service, uint64_t flags,
			  const struct fi_info *hints, const char *base,
			  struct fi_info **list)
{
	struct fi_info *b = hints ? rp_info_to_base(hints, FI_EP_RDM, base)
				  : fi_allocinfo();
	int ret;

	*list = NULL;
	if (!b)
		return -FI_ENOMEM;
	b->ep_attr->type = FI_EP_RDM;
	/*
	 * sockets 1.17 gets its default, a progress thread. With manual
	 * progress sends end with -FI_ENOENT, writes with -FI_EIO, and there is
	 * no descriptor to sleep on (measured).
	 */
	if (!strcasecmp(base, "sockets"))
		b->domain_attr->data_progress = FI_PROGRESS_UNSPEC;
	ret = getinfo_base(version, node, service, flags, b, base, list);
	fi_freeinfo(b);
	if (ret)
		return ret;
	keep_one_layering(list, base);
	return *list ? 0 : -FI_ENODATA;
}

static bool wants_persistence(const struct fi_info *hints)
{
	return (hints->caps & FI_RMA_PMEM) ||
	       (hints->tx_attr &&
		(hints->tx_attr->op_flags & FI_COMMIT_COMPLETE));
}

bool rp_info_allows_persistent_keys(uint32_t version,
				    const struct fi_info *hints)
{
	return FI_VERSION_GE(version, FI_VERSION(1, 5)) && hints &&
	       hints->domain_attr &&
	       (hints->domain_attr->mr_mode & FI_MR_PROV_KEY) &&
	       (!hints->caps || wants_persistence(hints) ||
		/* FI_OFI_RPMEM_COMMIT_WRITES: all programs that use RMA. */
		(rp_params.commit_writes &&
		 (hints->caps & (FI_RMA | FI_ATOMIC))));
}

bool rp_info_has_persistent_keys(const struct fi_info *info)
{
	const struct fi_domain_attr *d = info->domain_attr;

	return d && (d->mr_mode & FI_MR_PROV_KEY) &&
	       d->mr_key_size == sizeof(uint64_t);
}

/* Does a private connection over this base prove placement of writes? */
static bool proves_placement(const struct fi_info *hints,
			     const struct fi_info *i)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;
	char why[RP_WHY_LEN] = "";

	if (rp_private_is_possible(i, why) &&
	    rp_host_acknowledges(i->fabric_attr->prov_name,
				 i->domain_attr->name, why))
		return true;
	if (!wants_persistence(hints))
		return false;
	if (!atomic_flag_test_and_set(&warned))
		RP_WARN(CORE, "%s is left out: %s\n", i->domain_attr->name,
			why);
	return false;
}

/* Offer only orders that were requested: each makes operations wait. */
static int limit_orders(const struct fi_info *hints, struct fi_info *i)
{
	uint64_t orders = hints->tx_attr ? hints->tx_attr->msg_order : 0;
	bool strict = (hints->tx_attr && hints->tx_attr->comp_order) ||
		      (hints->rx_attr && hints->rx_attr->comp_order);

	if ((orders & ~OFFERED_ORDERS) || strict || (hints->caps & FI_FENCE)) {
		if (wants_persistence(hints))
			RP_WARN(CORE,
				"with persistent regions there is no "
				"FI_FENCE, completions have no order, and "
				"operations do not wait for messages or "
				"reads before "
				"them: leave FI_FENCE, comp_order, "
				"FI_ORDER_WAS, FI_ORDER_RAS and "
				"FI_ORDER_SAR out of the hints\n");
		return -FI_ENODATA;
	}
	i->tx_attr->msg_order &= orders ? orders : FI_ORDER_SAS;
	i->tx_attr->comp_order = i->rx_attr->comp_order = FI_ORDER_NONE;
	i->caps &= ~FI_FENCE;
	i->tx_attr->caps &= ~FI_FENCE;
	return 0;
}

int rp_info_add_persistent_keys(const struct fi_info *hints, struct fi_info *i)
{
	struct fi_domain_attr *d = i->domain_attr;

	if (!proves_placement(hints, i) || limit_orders(hints, i))
		return -FI_ENODATA;
	d->mr_mode |= FI_MR_PROV_KEY;
	d->mr_key_size = sizeof(uint64_t);
	if (i->tx_attr->iov_limit > RP_CHANNEL_IOV)
		i->tx_attr->iov_limit = RP_CHANNEL_IOV;
	if (i->tx_attr->rma_iov_limit > RP_CHANNEL_IOV)
		i->tx_attr->rma_iov_limit = RP_CHANNEL_IOV;
	return 0;
}

void rp_info_set_common(const struct fi_info *hints, struct fi_info *i)
{
	struct fi_domain_attr *d = i->domain_attr;

	if (hints && hints->caps)
		i->caps |= hints->caps & FI_RMA_PMEM;
	else if (i->caps & FI_RMA)
		i->caps |= FI_RMA_PMEM;
	if (hints && hints->tx_attr)
		i->tx_attr->op_flags |=
			hints->tx_attr->op_flags & FI_COMMIT_COMPLETE;
	d->data_progress = hints && hints->domain_attr &&
					   hints->domain_attr->data_progress ==
						   FI_PROGRESS_AUTO
				   ? FI_PROGRESS_AUTO
				   : FI_PROGRESS_MANUAL;
	/* Name the program's open objects, not the base's. */
	d->domain =
		hints && hints->domain_attr ? hints->domain_attr->domain : NULL;
	i->fabric_attr->fabric =
		hints && hints->fabric_attr ? hints->fabric_attr->fabric : NULL;
}

static int convert_entry(uint32_t version, const struct fi_info *hints,
			 struct fi_info *i)
{
	struct fi_domain_attr *d = i->domain_attr;
	char *semi = strchr(i->fabric_attr->prov_name, ';');

	clear_caps(i, PASSTHROUGH_CAPS);
	/* Only passthrough endpoints have several contexts. */
	i->ep_attr->tx_ctx_cnt = i->ep_attr->rx_ctx_cnt = 1;
	d->max_ep_tx_ctx = d->max_ep_rx_ctx = 1;
	d->max_ep_stx_ctx = d->max_ep_srx_ctx = 0;
	/* Offer the entry without persistent keys, unless hints want them. */
	if (rp_info_allows_persistent_keys(version, hints) &&
	    rp_info_add_persistent_keys(hints, i) && wants_persistence(hints))
		return -FI_ENODATA;
	/* Hide ofi_rxm in the name; libfabric appends ";ofi_rpmem". */
	if (semi)
		*semi = 0;
	rp_info_set_common(hints, i);
	return 0;
}

bool rp_info_is_passthrough(const struct fi_info *info)
{
	const struct fi_ep_attr *e = info->ep_attr;

	if (info->caps & PASSTHROUGH_CAPS)
		return true;
	if (!e)
		return false;
	if (e->type != FI_EP_UNSPEC && e->type != FI_EP_RDM)
		return true;
	/* FI_SHARED_CONTEXT (SIZE_MAX) is > 1, too. */
	return e->tx_ctx_cnt > 1 || e->rx_ctx_cnt > 1;
}

int rp_info_list_base(uint32_t version, const char *node, const char *service,
		      uint64_t flags, const struct fi_info *hints,
		      const char *base, enum fi_ep_type type,
		      struct fi_info **list)
{
	struct fi_info *b = hints ? fi_dupinfo(hints) : fi_allocinfo();
	struct fi_info *i, **link;
	int ret = -FI_ENOMEM;

	if (b && !b->ep_attr)
		b->ep_attr = calloc(1, sizeof(*b->ep_attr));
	if (b && !b->fabric_attr)
		b->fabric_attr = calloc(1, sizeof(*b->fabric_attr));
	if (!b || !b->ep_attr || !b->fabric_attr)
		goto free;
	b->ep_attr->type = type;
	if (b->domain_attr)
		b->domain_attr->domain = NULL;
	b->fabric_attr->fabric = NULL;
	ret = getinfo_base(version, node, service, flags, b, base, list);
	for (link = list; !ret && (i = *link);) {
		if (!strcasecmp(i->fabric_attr->prov_name, base) &&
		    rp_info_is_passthrough(i)) {
			clear_persistence(i);
			link = &i->next;
		} else {
			rp_info_unlink(link);
		}
	}
free:
	if (b && hints)
		b->handle = NULL; /* the program owns it */
	fi_freeinfo(b);
	return ret ? ret : *list ? 0 : -FI_ENODATA;
}

static void append_entries(struct fi_info **list, struct fi_info *more)
{
	while (*list)
		list = &(*list)->next;
	*list = more;
}

/* Append the base's FI_EP_MSG and FI_EP_DGRAM entries, for passthrough. */
static void add_passthrough(uint32_t version, const char *node,
			    const char *service, uint64_t flags,
			    const struct fi_info *hints, const char *base,
			    struct fi_info **list)
{
	enum fi_ep_type types[] = {FI_EP_MSG, FI_EP_DGRAM};
	struct fi_info *more, *i;
	int n = 2;

	if (hints && wants_persistence(hints))
		return;
	if (hints && hints->ep_attr &&
	    (hints->ep_attr->type != FI_EP_UNSPEC ||
	     rp_info_is_passthrough(hints))) {
		types[0] = hints->ep_attr->type;
		n = rp_info_is_passthrough(hints);
	}
	for (int k = 0; k < n; k++) {
		more = NULL;
		if (rp_info_list_base(version, node, service, flags, hints,
				      base, types[k], &more))
			continue;
		for (i = more; i && hints; i = i->next) {
			if (hints->domain_attr)
				i->domain_attr->domain =
					hints->domain_attr->domain;
			if (hints->fabric_attr)
				i->fabric_attr->fabric =
					hints->fabric_attr->fabric;
		}
		append_entries(list, more);
	}
}

/* Refuse shm 1.17: transfers of 64 KiB and atomics never end (measured). */
static bool is_refused_base(const char *base)
{
	if (strcasecmp(base, "shm"))
		return false;
	RP_WARN(CORE, "shm cannot be the base: its large transfers do not end; "
		      "use tcp, also within one machine\n");
	return true;
}

int rp_getinfo(uint32_t version, const char *node, const char *service,
	       uint64_t flags, const struct fi_info *hints,
	       struct fi_info **info)
{
	struct fi_info *list = NULL, *i, **link;
	int ret = -FI_ENODATA;
	char *base;

	/* This flag is set when a utility provider lists possible bases. */
	if (flags & GETINFO_CORE_ONLY)
		return -FI_ENODATA;
	base = choose_base(hints);
	if (!base)
		return -FI_ENODATA;
	if (is_refused_base(base) ||
	    (hints && hints->rx_attr &&
	     rp_ep_check_msg_flags(hints->rx_attr->op_flags))) {
		free(base);
		return -FI_ENODATA;
	}
	if (!hints || !rp_info_is_passthrough(hints))
		ret = rp_info_list_base_rdm(version, node, service, flags,
					    hints, base, &list);
	for (link = &list; (i = *link);) {
		if (!convert_entry(version, hints, i))
			link = &i->next;
		else
			rp_info_unlink(link);
	}
	if (!list && !rp_info_list_msg(version, node, service, flags, hints,
				       base, &list))
		ret = 0;
	add_passthrough(version, node, service, flags, hints, base, &list);
	free(base);
	if (!list)
		return ret;
	*info = list;
	return 0;
}

int rp_info_list_base_msg(uint32_t version, const char *base,
			  struct fi_info **list)
{
	/* Accept any mode: all entries of verbs require one. */
	struct fi_info *hints = rp_info_match_all(version);
	int ret;

	if (!hints)
		return -FI_ENOMEM;
	ret = rp_info_list_base(version, NULL, NULL, 0, hints, base, FI_EP_MSG,
				list);
	fi_freeinfo(hints);
	return ret;
}
