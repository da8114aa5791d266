// SPDX-License-Identifier: BSD-2-Clause
/* Default calls of struct fi_ops, for objects that do not support them. */
#include "rpmem/rpmem.h"

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
