/* SPDX-License-Identifier: BSD-2-Clause */
/* Remote persistence on libfabric: ofi_rpmem's additions to its calls. */
#ifndef FI_EXT_RPMEM_H
#define FI_EXT_RPMEM_H

#include <stddef.h>
#include <stdint.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * fi_writemsg(ep, msg, FI_RPMEM_SAVE | FI_COMMIT_COMPLETE): moves no data and
 * completes when all earlier writes of this endpoint to the ranges in
 * msg->rma_iov are durable. msg->iov_count is 0. See fi_rpmem(7).
 */
#define FI_RPMEM_SAVE (1ULL << 60)

/* Names for fi_open_ops(), on an endpoint and on a domain. */
#define FI_RPMEM_OPS_1	      "fi_rpmem_ops/1"
#define FI_RPMEM_DOMAIN_OPS_1 "fi_rpmem_domain_ops/1"

/* Levels of fi_rpmem_commit(). */
enum fi_rpmem_level {
	FI_RPMEM_VISIBLE = 1, /* any reader at the target sees the bytes */
	FI_RPMEM_DURABLE = 2, /* they survive the failures of the class */
};

/* The failures that bytes survive, weakest first. */
enum fi_rpmem_class {
	FI_RPMEM_CLASS_DEFAULT = -1, /* the endpoint's: power unless lowered */
	FI_RPMEM_CLASS_NONE = 0,     /* nothing: emulated persistent memory */
	FI_RPMEM_CLASS_PROCESS = 1,  /* the death of the target process */
	FI_RPMEM_CLASS_POWER = 2,    /* a power cut at the target */
};

/* The method of a commit (fi_rpmem_attr.method). */
enum fi_rpmem_method {
	FI_RPMEM_METHOD_REFUSED = 0,
	FI_RPMEM_METHOD_DELIVERY = 1,
	FI_RPMEM_METHOD_FENCE = 2,
	FI_RPMEM_METHOD_NATIVE = 3,
	FI_RPMEM_METHOD_AGENT_SFENCE = 4,
	FI_RPMEM_METHOD_AGENT_CLWB = 5,
	FI_RPMEM_METHOD_AGENT_MSYNC = 6,
	FI_RPMEM_METHOD_AGENT_CLWB_MSYNC = 7,
};

/*
 * prov_errno of the error entry of a failed commit, and of any other operation
 * on a persistent region. fi_cq_strerror() gives the sentence and the remedy;
 * `data` is the index of the range at fault: 0 if no range is at fault, the
 * number of ranges for the ordered store.
 */
enum fi_rpmem_status {
	FI_RPMEM_ST_OK = 0,
	FI_RPMEM_ST_BAD_MESSAGE = 1,
	FI_RPMEM_ST_VERSION = 2,
	FI_RPMEM_ST_UNKNOWN_KEY = 4,
	FI_RPMEM_ST_STALE_KEY = 5,
	FI_RPMEM_ST_RANGE = 6,
	FI_RPMEM_ST_WRAP = 7,
	FI_RPMEM_ST_VOLATILE = 8,
	FI_RPMEM_ST_CLASS = 9,
	FI_RPMEM_ST_FLUSH_FAILED = 11,
	FI_RPMEM_ST_REGION_FAILED = 12,
	FI_RPMEM_ST_OVERLOADED = 13,
	FI_RPMEM_ST_UNSUPPORTED = 14,
	FI_RPMEM_ST_NO_METHOD = 15,
	FI_RPMEM_ST_ALIGN = 16,
	FI_RPMEM_ST_ACCESS = 17,
	FI_RPMEM_ST_WRITE_FAILED = 64,
	FI_RPMEM_ST_TIMEOUT = 65,
	FI_RPMEM_ST_CANCELED = 67,
	FI_RPMEM_ST_NO_MEMORY = 69,
	FI_RPMEM_ST_UNSURE = 71,
	FI_RPMEM_ST_LOST = 72,
};

/*
 * One 8-byte store, executed at most once, when the ranges of its commit are
 * durable, and durable itself when the commit completes. fi_rpmem_commit(3).
 */
struct fi_rpmem_then {
	uint64_t key;
	uint64_t addr; /* 8-byte aligned, also in the target's memory */
	uint64_t value;
};

/* The result of fi_rpmem_query() for a remote key. */
struct fi_rpmem_attr {
	size_t size;			  /* in: sizeof(struct fi_rpmem_attr) */
	enum fi_rpmem_class region_class; /* strongest class of a commit */
	enum fi_rpmem_method method;	  /* for the required class */
	uint32_t status;	 /* enum fi_rpmem_status: 0, or the reason */
	uint32_t granularity;	 /* bytes flushed at once */
	uint32_t preferred_size; /* bytes of one write */
	uint32_t preferred_align;
	uint64_t addr; /* first byte, as in fi_write() */
	uint64_t len;  /* bytes in the region */
	char why[256]; /* one sentence, NUL-terminated */
};

struct fi_rpmem_ops {
	size_t size;
	ssize_t (*commit)(struct fid_ep *ep, const struct fi_rma_iov *ranges,
			  size_t count, fi_addr_t dest_addr,
			  enum fi_rpmem_level level,
			  enum fi_rpmem_class required,
			  const struct fi_rpmem_then *then, void *context);
	int (*query)(struct fid_ep *ep, fi_addr_t dest_addr, uint64_t key,
		     enum fi_rpmem_class required, struct fi_rpmem_attr *attr);
};

struct fi_rpmem_domain_ops {
	size_t size;
	int (*drain)(struct fid_domain *domain, int timeout);
};

/*
 * Make durable (or visible) every earlier write of ep to dest_addr that
 * overlaps the ranges. Asynchronous: returns 0 once accepted, and then exactly
 * one completion with `context` (flags FI_RMA | FI_WRITE) or one error entry
 * appears on the transmit CQ; -FI_EAGAIN: the private connection is not open
 * yet, or too many commits are outstanding: read the CQ and call again;
 * -FI_EINVAL, -FI_EKEYREJECTED (key not made by ofi_rpmem), -FI_EOPNOTSUPP:
 * never started. Any number of ranges; all must be of dest_addr. then, unless
 * NULL: level FI_RPMEM_DURABLE only; FI_RPMEM_ST_UNSURE if it may or may not
 * have been executed. ranges and then are copied. Thread-safe as fi_writemsg()
 * is. Full text: fi_rpmem_commit(3).
 */
static inline ssize_t
fi_rpmem_commit(struct fid_ep *ep, const struct fi_rma_iov *ranges,
		size_t count, fi_addr_t dest_addr, enum fi_rpmem_level level,
		enum fi_rpmem_class required, const struct fi_rpmem_then *then,
		void *context)
{
	struct fi_rpmem_ops *ops;
	int ret = fi_open_ops(&ep->fid, FI_RPMEM_OPS_1, 0, (void **)&ops, NULL);

	return ret ? ret
		   : ops->commit(ep, ranges, count, dest_addr, level, required,
				 then, context);
}

/*
 * Query the method and class of a commit with this key. Blocks (and drives
 * progress) until the target's reply, at most the commit timeout. attr->size
 * must be set. Returns 0 (attr->status may still say why commits are refused),
 * -FI_ETIMEDOUT, -FI_ENOTCONN, -FI_EKEYREJECTED, -FI_EINVAL, -FI_ENOMEM, ...
 * Thread-safe as fi_writemsg() is. fi_rpmem_query(3).
 */
static inline int fi_rpmem_query(struct fid_ep *ep, fi_addr_t dest_addr,
				 uint64_t key, enum fi_rpmem_class required,
				 struct fi_rpmem_attr *attr)
{
	struct fi_rpmem_ops *ops;
	int ret = fi_open_ops(&ep->fid, FI_RPMEM_OPS_1, 0, (void **)&ops, NULL);

	return ret ? ret : ops->query(ep, dest_addr, key, required, attr);
}

/*
 * Prepare a target for its close: from now on new commits to this domain, and
 * new connections, fail with FI_RPMEM_ST_OVERLOADED; blocks (and drives
 * progress) until commits accepted before have completed, at most timeout ms,
 * -1: no limit. Returns 0, -FI_ETIMEDOUT. It cannot be undone.
 * fi_rpmem_drain(3).
 */
static inline int fi_rpmem_drain(struct fid_domain *domain, int timeout)
{
	struct fi_rpmem_domain_ops *ops;
	int ret = fi_open_ops(&domain->fid, FI_RPMEM_DOMAIN_OPS_1, 0,
			      (void **)&ops, NULL);

	return ret ? ret : ops->drain(domain, timeout);
}

#ifdef __cplusplus
}
#endif

#endif
