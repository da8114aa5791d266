// SPDX-License-Identifier: BSD-2-Clause
/* Functions of fi_ops tables that objects share: refuse, or call the base. */
#include "rpmem/cm.h"

int rp_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	return -FI_ENOSYS;
}

int rp_no_control(struct fid *fid, int command, void *arg)
{
	return -FI_ENOSYS;
}

int rp_no_ops_open(struct fid *fid, const char *name, uint64_t flags,
		   void **ops, void *context)
{
	return -FI_ENOSYS;
}

struct fid *rp_fid_base(struct fid *fid)
{
	if (fid->fclass == FI_CLASS_PEP)
		return &rp_container_of(fid, struct rp_pep, fid.fid)->base->fid;
	return &rp_ep_of(fid)->base->fid;
}

int rp_base_control(struct fid *fid, int command, void *arg)
{
	return fi_control(rp_fid_base(fid), command, arg);
}

int rp_ep_check_msg_flags(uint64_t flags)
{
	if (!(flags & FI_COMMIT_COMPLETE))
		return 0;
	RP_WARN(EP_DATA, "FI_COMMIT_COMPLETE on a message is not offered\n");
	return -FI_EOPNOTSUPP;
}
