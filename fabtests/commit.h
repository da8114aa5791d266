/* SPDX-License-Identifier: BSD-2-Clause */
/* Commits, zeros and queries of tests: each call opens the endpoint's
 * operations. */
#ifndef RP_TEST_COMMIT_H
#define RP_TEST_COMMIT_H

#include <rdma/fi_ext_rpmem.h>

#include "core/status.h" /* RP_ST_*: what prov_errno is compared with */

/* An attr for key_query() whose sentence goes into an array. */
#define QUERY_ATTR(array)                                                      \
	((struct fi_rpmem_attr){.size = sizeof(struct fi_rpmem_attr),          \
				.why = (array),                                \
				.why_size = sizeof(array)})

static inline ssize_t commit_post(struct fid_ep *ep,
				  const struct fi_rma_iov *ranges, size_t count,
				  fi_addr_t addr, enum fi_rpmem_level level,
				  enum fi_rpmem_class required,
				  const struct fi_rpmem_then *then,
				  void *context)
{
	const struct fi_rpmem_msg msg = {
		.rma_iov = ranges,
		.rma_iov_count = count,
		.addr = addr,
		.then = then,
		.level = level,
		.required = required,
		.context = context,
	};
	struct fi_rpmem_ops *ops;
	int ret = fi_rpmem_ops_get(ep, &ops);

	return ret ? ret : fi_rpmem_commit(ops, ep, &msg, 0);
}

static inline ssize_t zero_post(struct fid_ep *ep,
				const struct fi_rma_iov *ranges, size_t count,
				fi_addr_t addr, enum fi_rpmem_level level,
				enum fi_rpmem_class required, void *context)
{
	const struct fi_rpmem_msg msg = {
		.rma_iov = ranges,
		.rma_iov_count = count,
		.addr = addr,
		.level = level,
		.required = required,
		.context = context,
	};
	struct fi_rpmem_ops *ops;
	int ret = fi_rpmem_ops_get(ep, &ops);

	return ret ? ret : fi_rpmem_zero(ops, ep, &msg, 0);
}

static inline int key_query(struct fid_ep *ep, fi_addr_t addr, uint64_t key,
			    enum fi_rpmem_class required,
			    struct fi_rpmem_attr *attr)
{
	struct fi_rpmem_ops *ops;
	int ret = fi_rpmem_ops_get(ep, &ops);

	return ret ? ret
		   : fi_rpmem_query_sync(ops, ep, addr, key, required, attr);
}

#endif
