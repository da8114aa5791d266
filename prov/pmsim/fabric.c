// SPDX-License-Identifier: BSD-2-Clause
/* The provider, and its fabric object. */
#include <stdlib.h>

#include "pmsim/pmsim_int.h"

struct fi_provider ps_prov = {
	.name = PS_NAME,
	.version = FI_VERSION(0, 1),
	.getinfo = ps_getinfo,
	.fabric = ps_fabric_open,
};

int ps_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	return -FI_ENOSYS;
}

int ps_no_control(struct fid *fid, int command, void *arg)
{
	return -FI_ENOSYS;
}

int ps_no_ops_open(struct fid *fid, const char *name, uint64_t flags,
		   void **ops, void *context)
{
	return -FI_ENOSYS;
}

/* --- fabric --- */

static int fabric_close(struct fid *fid)
{
	struct ps_fabric *fab = ps_container_of(fid, struct ps_fabric, fid.fid);

	if (fab->refs)
		return -FI_EBUSY;
	free(fab);
	return 0;
}

static int no_wait(struct fid_fabric *fabric, struct fi_wait_attr *attr,
		   struct fid_wait **waitset)
{
	return -FI_ENOSYS;
}

static int no_trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	return -FI_ENOSYS;
}

static int domain2(struct fid_fabric *fabric, struct fi_info *info,
		   struct fid_domain **dom, uint64_t flags, void *context)
{
	return flags ? -FI_EBADFLAGS
		     : ps_domain_open(fabric, info, dom, context);
}

static struct fi_ops fabric_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = fabric_close,
	.bind = ps_no_bind,
	.control = ps_no_control,
	.ops_open = ps_no_ops_open,
};

static struct fi_ops_fabric fabric_ops = {
	.size = sizeof(struct fi_ops_fabric),
	.domain = ps_domain_open,
	.passive_ep = ps_pep_open,
	.eq_open = ps_eq_open,
	.wait_open = no_wait,
	.trywait = no_trywait,
	.domain2 = domain2,
};

int ps_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
		   void *context)
{
	struct ps_fabric *fab = calloc(1, sizeof(*fab));

	if (!fab)
		return -FI_ENOMEM;
	fab->fid.fid.fclass = FI_CLASS_FABRIC;
	fab->fid.fid.context = context;
	fab->fid.fid.ops = &fabric_fid_ops;
	fab->fid.ops = &fabric_ops;
	fab->fid.api_version = attr->api_version;
	*fabric = &fab->fid;
	return 0;
}

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void);

struct fi_provider *fi_prov_ini(void)
{
	/* libfabric skips a provider that is older than the application. */
	ps_prov.fi_version = fi_version();
	return &ps_prov;
}
