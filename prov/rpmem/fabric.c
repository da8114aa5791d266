// SPDX-License-Identifier: BSD-2-Clause
/* Fabrics: open the base's fabric; fi_trywait() on several objects. */
#include <stdlib.h>
#include <string.h>

#include "rpmem/cm.h"

static int fabric_close(struct fid *fid)
{
	struct rp_fabric *fab = rp_container_of(fid, struct rp_fabric, fid.fid);
	int ret;

	if (fab->layered && fab->layered != fab->direct) {
		ret = fi_close(&fab->layered->fid);
		if (ret)
			return ret;
		fab->layered = NULL;
	}
	ret = fi_close(&fab->direct->fid);
	if (ret)
		return ret;
	fi_freeinfo(fab->passed_infos);
	pthread_mutex_destroy(&fab->lock);
	free(fab->base_name);
	free(fab);
	return 0;
}

static int fabric_trywait(struct fid_fabric *fabric, struct fid **fids,
			  int count)
{
	struct rp_fabric *fab = rp_container_of(fabric, struct rp_fabric, fid);
	int ret;

	for (int i = 0; i < count; i++) {
		if (rp_fid_is_cq(fids[i]))
			ret = rp_cq_trywait(rp_container_of(
				fids[i], struct rp_cq, fid.fid));
		else if (rp_fid_is_cntr(fids[i]))
			ret = rp_cntr_trywait(rp_container_of(
				fids[i], struct rp_cntr, fid.fid));
		else
			ret = fi_trywait(fab->direct, &fids[i], 1);
		if (ret)
			return ret;
	}
	return 0;
}

/* Copy info for the base, which checks that prov_name is its name. */
static struct fi_info *direct_info(struct rp_fabric *fab,
				   const struct fi_info *info)
{
	struct fi_info *b = fi_dupinfo(info);

	if (!b)
		return NULL;
	b->fabric_attr->fabric = fab->direct;
	if (rp_info_set_prov(b, fab->base_name))
		return b;
	fi_freeinfo(b);
	return NULL;
}

/* Free the copy b if the call failed; otherwise keep it for the base. */
static void direct_info_put(struct rp_fabric *fab, struct fi_info *b, int ret)
{
	if (ret) {
		fi_freeinfo(b);
		return;
	}
	pthread_mutex_lock(&fab->lock);
	b->next = fab->passed_infos;
	fab->passed_infos = b;
	pthread_mutex_unlock(&fab->lock);
}

static int fabric_pep(struct fid_fabric *fabric, struct fi_info *info,
		      struct fid_pep **pep, void *context)
{
	struct rp_fabric *fab = rp_container_of(fabric, struct rp_fabric, fid);
	struct fi_info *b;
	int ret;

	if (rp_info_is_msg(info, fab->base_name))
		return rp_pep_open(fabric, info, pep, context);
	b = direct_info(fab, info);
	ret = b ? fi_passive_ep(fab->direct, b, pep, context) : -FI_ENOMEM;
	direct_info_put(fab, b, ret);
	return ret;
}

static int fabric_domain(struct fid_fabric *fabric, struct fi_info *info,
			 struct fid_domain **dom, void *context)
{
	struct rp_fabric *fab = rp_container_of(fabric, struct rp_fabric, fid);
	struct fi_info *b;
	int ret;

	if (!rp_info_is_passthrough(info) ||
	    rp_info_is_msg(info, fab->base_name))
		return rp_domain_open(fabric, info, dom, context);
	RP_INFO(DOMAIN,
		"this domain is %s's own: nothing written through it is made "
		"durable by ofi_rpmem\n",
		fab->base_name);
	b = direct_info(fab, info);
	ret = b ? fi_domain(fab->direct, b, dom, context) : -FI_ENOMEM;
	direct_info_put(fab, b, ret);
	return ret;
}

static int fabric_wait(struct fid_fabric *fabric, struct fi_wait_attr *attr,
		       struct fid_wait **waitset)
{
	struct rp_fabric *fab = rp_container_of(fabric, struct rp_fabric, fid);

	/* Wait sets are for passthrough domains; ofi_rpmem has none. */
	return fab->direct->ops->wait_open(fab->direct, attr, waitset);
}

static struct fi_ops fabric_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = fabric_close,
	RP_NO_FID_OPS,
};

static int fabric_domain2(struct fid_fabric *fabric, struct fi_info *info,
			  struct fid_domain **dom, uint64_t flags,
			  void *context)
{
	return flags ? -FI_EBADFLAGS
		     : fabric_domain(fabric, info, dom, context);
}

static struct fi_ops_fabric fabric_ops = {
	.size = sizeof(struct fi_ops_fabric),
	.domain = fabric_domain,
	.passive_ep = fabric_pep,
	.eq_open = rp_eq_open,
	.wait_open = fabric_wait,
	.trywait = fabric_trywait,
	.domain2 = fabric_domain2,
};

static bool is_without_rxm(struct rp_fabric *fab, const struct fi_info *base)
{
	return !strcasecmp(base->fabric_attr->prov_name, fab->base_name);
}

/* Open the base's fabric without ofi_rxm, if RDM endpoints need ofi_rxm. */
static int open_direct(struct rp_fabric *fab, const struct fi_info *base)
{
	struct fi_info *list, *i;
	int ret = 0;

	fab->direct = fab->layered;
	if (rp_info_list_base_msg(fab->version, fab->base_name, &list))
		return 0;
	i = list;
	while (i && strcmp(i->fabric_attr->name, base->fabric_attr->name))
		i = i->next;
	if (i)
		ret = fi_fabric(i->fabric_attr, &fab->direct,
				fab->fid.fid.context);
	fi_freeinfo(list);
	return ret;
}

static int open_base(struct rp_fabric *fab, const struct fi_info *base)
{
	void *context = fab->fid.fid.context;
	int ret;

	if (is_without_rxm(fab, base))
		return fi_fabric(base->fabric_attr, &fab->direct, context);
	ret = fi_fabric(base->fabric_attr, &fab->layered, context);
	if (ret)
		return ret;
	ret = open_direct(fab, base);
	if (ret)
		fi_close(&fab->layered->fid);
	return ret;
}

/*
 * tcp has RDM endpoints of its own since libfabric 1.18, but no atomics: a
 * program that needs atomics gets ofi_rxm over tcp, in the same fabric object.
 */
int rp_fabric_find_base(struct rp_fabric *fab, const struct fi_info *base,
			struct fid_fabric **out)
{
	int ret = 0;

	if (is_without_rxm(fab, base)) {
		*out = fab->direct;
		return 0;
	}
	pthread_mutex_lock(&fab->lock);
	if (!fab->layered)
		ret = fi_fabric(base->fabric_attr, &fab->layered,
				fab->fid.fid.context);
	if (!ret)
		*out = fab->layered;
	pthread_mutex_unlock(&fab->lock);
	return ret;
}

int rp_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
		   void *context)
{
	const uint32_t version =
		attr->api_version ? attr->api_version : fi_version();
	struct fi_info *hints, *list = NULL;
	struct rp_fabric *fab;
	int ret = -FI_ENOMEM;

	fab = calloc(1, sizeof(*fab));
	hints = rp_info_match_all(version);
	if (!fab || !hints)
		goto free;
	fab->version = version;
	fab->base_name = rp_info_base_name(attr->prov_name);
	if (!fab->base_name) {
		RP_WARN(FABRIC,
			"fabric name %s names no base provider; pass "
			"the fabric_attr that fi_getinfo() returned\n",
			attr->prov_name);
		ret = -FI_EINVAL;
		goto free;
	}
	if (attr->name)
		hints->fabric_attr->name = strdup(attr->name);
	ret = rp_info_list_base_rdm(fab->version, NULL, NULL, 0, hints,
				    fab->base_name, &list);
	if (ret)
		goto free;
	fab->fid.fid.context = context;
	ret = open_base(fab, list);
	if (ret)
		goto free;
	fi_freeinfo(list);
	fi_freeinfo(hints);
	pthread_mutex_init(&fab->lock, NULL);
	fab->fid.fid.fclass = FI_CLASS_FABRIC;
	fab->fid.fid.ops = &fabric_fid_ops;
	fab->fid.ops = &fabric_ops;
	fab->fid.api_version = fab->version;
	*fabric = &fab->fid;
	return 0;
free:
	fi_freeinfo(list);
	fi_freeinfo(hints);
	if (fab)
		free(fab->base_name);
	free(fab);
	return ret;
}
