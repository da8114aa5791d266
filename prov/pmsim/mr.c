// SPDX-License-Identifier: BSD-2-Clause
/* Memory regions that peers access by key. */
#include <stdlib.h>

#include "pmsim/pmsim_int.h"

static int mr_close(struct fid *fid)
{
	struct ps_mr *mr = ps_container_of(fid, struct ps_mr, fid.fid);

	HASH_DEL(mr->dom->mrs, mr);
	mr->dom->machine->free_key = mr->key;
	mr->dom->refs--;
	free(mr);
	return 0;
}

static int mr_control(struct fid *fid, int command, void *arg)
{
	return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

static struct fi_ops mr_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = mr_close,
	.bind = ps_no_bind,
	.control = mr_control,
	.ops_open = ps_no_ops_open,
};

/* The key of a new region; a restarted process may reuse earlier keys. */
static uint64_t next_key(struct ps_machine *m)
{
	uint64_t key = m->free_key;

	m->free_key = 0;
	if (ps_sim.cfg.reuse_keys && key)
		return key;
	return ps_sim.cfg.fixed_keys ? ++m->last_key : ++ps_sim.last_key;
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr,
		      uint64_t flags, struct fid_mr **out)
{
	struct ps_dom *dom = ps_container_of(fid, struct ps_dom, fid.fid);
	struct ps_mr *mr, *old;
	uint64_t key;

	if (fid->fclass != FI_CLASS_DOMAIN || !attr || attr->iov_count != 1)
		return -FI_EINVAL;
	if (flags)
		return -FI_EBADFLAGS;
	if (dom->dead)
		return -FI_ESHUTDOWN;
	key = ps_sim.cfg.prov_keys ? next_key(dom->machine)
				   : attr->requested_key;
	HASH_FIND(hh, dom->mrs, &key, sizeof(key), old);
	if (old)
		return -FI_ENOKEY;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -FI_ENOMEM;
	mr->dom = dom;
	mr->key = key;
	mr->access = attr->access;
	mr->base = attr->mr_iov->iov_base;
	mr->len = attr->mr_iov->iov_len;
	mr->addr = ps_sim.cfg.virt_addr ? (uintptr_t)mr->base : 0;
	HASH_ADD(hh, dom->mrs, key, sizeof(mr->key), mr);
	dom->refs++;
	mr->fid.fid.fclass = FI_CLASS_MR;
	mr->fid.fid.context = attr->context;
	mr->fid.fid.ops = &mr_fid_ops;
	mr->fid.key = key;
	*out = &mr->fid;
	return 0;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count,
		   uint64_t access, uint64_t offset, uint64_t requested_key,
		   uint64_t flags, struct fid_mr **mr, void *context)
{
	struct fi_mr_attr attr = {
		.mr_iov = iov,
		.iov_count = count,
		.access = access,
		.offset = offset,
		.requested_key = requested_key,
		.context = context,
	};

	return mr_regattr(fid, &attr, flags, mr);
}

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access,
		  uint64_t offset, uint64_t requested_key, uint64_t flags,
		  struct fid_mr **mr, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};

	return mr_regv(fid, &iov, 1, access, offset, requested_key, flags, mr,
		       context);
}

struct fi_ops_mr ps_mr_ops = {
	.size = sizeof(struct fi_ops_mr),
	.reg = mr_reg,
	.regv = mr_regv,
	.regattr = mr_regattr,
};

int ps_mr_find(struct ps_dom *dom, const struct fi_rma_iov *iov,
	       uint64_t access, char **where)
{
	struct ps_mr *mr;

	HASH_FIND(hh, dom->mrs, &iov->key, sizeof(iov->key), mr);
	if (!mr)
		return FI_ENOKEY;
	if ((mr->access & access) != access || iov->addr < mr->addr ||
	    iov->addr - mr->addr > mr->len ||
	    iov->len > mr->len - (iov->addr - mr->addr))
		return FI_EACCES;
	*where = mr->base + (iov->addr - mr->addr);
	return 0;
}
