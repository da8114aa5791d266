/* SPDX-License-Identifier: BSD-2-Clause */
/* Commits and queries of tests: each call opens the endpoint's operations. */
#ifndef RP_TEST_COMMIT_H
#define RP_TEST_COMMIT_H

#include <rdma/fi_ext_rpmem.h>

#include "core/status.h" /* RP_ST_*: what prov_errno is compared with */

static inline ssize_t commit_post(struct fid_ep *ep,
				  const struct fi_rma_iov *ranges, size_t count,
				  fi_addr_t addr, enum fi_rpmem_level level,
				  enum fi_rpmem_class required,
				  const struct fi_rpmem_then *then,
				  void *context)
{
	return fi_rpmem_commit(ep, ranges, count, addr, level, required, then,
			       context);
}

static inline int key_query(struct fid_ep *ep, fi_addr_t addr, uint64_t key,
			    enum fi_rpmem_class required,
			    struct fi_rpmem_attr *attr)
{
	return fi_rpmem_query(ep, addr, key, required, attr);
}

#endif
