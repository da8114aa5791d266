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

/* Names for fi_open_ops(), on an endpoint and on a domain. */
#define FI_RPMEM_OPS	    "fi_rpmem_ops/2"
#define FI_RPMEM_DOMAIN_OPS "fi_rpmem_domain_ops/2"

/* Levels of fi_rpmem_commit(). */
enum fi_rpmem_level {
	FI_RPMEM_DURABLE = 0, /* the bytes survive the failures of the class */
	FI_RPMEM_VISIBLE = 1, /* any reader at the target sees the bytes */
};

/* The failures that bytes survive, weakest first. */
enum fi_rpmem_class {
	FI_RPMEM_CLASS_DEFAULT = 0, /* the endpoint's: power unless lowered */
	FI_RPMEM_CLASS_NONE = 1,    /* no failure: emulated persistent memory */
	FI_RPMEM_CLASS_PROCESS = 2, /* the death of the target process */
	FI_RPMEM_CLASS_POWER = 3,   /* a power cut at the target */
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

/* Why an operation on a persistent region failed, grouped by remedy. */
enum fi_rpmem_status {
	FI_RPMEM_ST_OK = 0,
	FI_RPMEM_ST_KEY = 1,	 /* get the region's current key, write again */
	FI_RPMEM_ST_RANGE = 2,	 /* correct address, length or alignment */
	FI_RPMEM_ST_CLASS = 3,	 /* use other memory, or a lower class */
	FI_RPMEM_ST_ACCESS = 4,	 /* the target has to allow writes */
	FI_RPMEM_ST_FAILED = 5,	 /* register the region and write again */
	FI_RPMEM_ST_BUSY = 6,	 /* commit again later */
	FI_RPMEM_ST_LOST = 7,	 /* write again, then commit again */
	FI_RPMEM_ST_TIMEOUT = 8, /* silent target: write and commit again */
	FI_RPMEM_ST_INDETERMINATE = 9, /* read the memory, then decide */
	FI_RPMEM_ST_PROTOCOL = 10, /* install the same release at both ends */
};

/*
 * The category of an error entry's prov_errno. The number itself is the detail:
 * fi_cq_strerror() returns its sentence and remedy, fi_rpmem(7) lists all.
 */
static inline enum fi_rpmem_status fi_rpmem_status(int prov_errno)
{
	switch (prov_errno) {
	case 0:
		return FI_RPMEM_ST_OK;
	case 4: /* unknown key */
	case 5: /* stale key */
		return FI_RPMEM_ST_KEY;
	case 6:	 /* range outside the region */
	case 7:	 /* range empty or wrapping */
	case 16: /* store not aligned */
		return FI_RPMEM_ST_RANGE;
	case 8:	 /* volatile memory */
	case 9:	 /* failure class not met */
	case 15: /* no method */
		return FI_RPMEM_ST_CLASS;
	case 17: /* region not writable */
		return FI_RPMEM_ST_ACCESS;
	case 11: /* flush failed */
	case 12: /* region failed earlier */
		return FI_RPMEM_ST_FAILED;
	case 13: /* target overloaded */
	case 69: /* out of memory */
		return FI_RPMEM_ST_BUSY;
	case 64: /* covered write failed */
	case 67: /* canceled */
	case 72: /* connection lost */
		return FI_RPMEM_ST_LOST;
	case 65: /* target silent */
		return FI_RPMEM_ST_TIMEOUT;
	case 71: /* outcome unknown */
		return FI_RPMEM_ST_INDETERMINATE;
	default: /* 1 bad message, 2 version, 14 feature; later releases' */
		return FI_RPMEM_ST_PROTOCOL;
	}
}

/*
 * One 8-byte store, executed at most once, after the ranges of its commit are
 * durable; it is durable itself when the commit completes. fi_rpmem_commit(3).
 */
struct fi_rpmem_then {
	uint64_t key;
	uint64_t addr; /* 8-byte aligned, also in the target's memory */
	uint64_t value;
};

/*
 * Argument of fi_rpmem_commit() and fi_rpmem_zero(). The value 0 means durable
 * in level, the endpoint's class in required, and no store in then.
 */
struct fi_rpmem_msg {
	const struct fi_rma_iov *rma_iov; /* ranges, all of one target */
	size_t rma_iov_count;
	fi_addr_t addr; /* the target; connected endpoints: not used */
	const struct fi_rpmem_then *then; /* or NULL */
	enum fi_rpmem_level level;
	enum fi_rpmem_class required;
	void *context;
};

/* The result of a query of a remote key. The caller sets the first three. */
struct fi_rpmem_attr {
	size_t size;	 /* in: sizeof(struct fi_rpmem_attr) */
	char *why;	 /* in: buffer for one sentence, or NULL */
	size_t why_size; /* in: its bytes; the sentence is cut to them */
	enum fi_rpmem_class region_class; /* strongest that a commit reaches */
	enum fi_rpmem_method method;	  /* method for the required class */
	int prov_errno;		 /* 0, or why such a commit would fail */
	uint32_t granularity;	 /* bytes flushed at once */
	uint32_t preferred_size; /* bytes of one write: a hint */
	uint32_t preferred_align;
	uint64_t addr; /* first byte, as in fi_write() */
	uint64_t len;  /* bytes in the region */
};

struct fi_rpmem_ops {
	size_t size;
	ssize_t (*commit)(struct fid_ep *ep, const struct fi_rpmem_msg *msg,
			  uint64_t flags);
	ssize_t (*query)(struct fid_ep *ep, fi_addr_t addr, uint64_t key,
			 enum fi_rpmem_class required,
			 struct fi_rpmem_attr *attr, void *context);
	int (*query_sync)(struct fid_ep *ep, fi_addr_t addr, uint64_t key,
			  enum fi_rpmem_class required,
			  struct fi_rpmem_attr *attr);
	ssize_t (*zero)(struct fid_ep *ep, const struct fi_rpmem_msg *msg,
			uint64_t flags);
};

struct fi_rpmem_domain_ops {
	size_t size;
	int (*drain)(struct fid_domain *domain, int timeout);
	int (*region)(struct fid_mr *mr, struct fi_rpmem_attr *attr);
};

/*
 * The operations of an endpoint of ofi_rpmem: open them once, they are valid
 * until the endpoint is closed. -FI_ENOSYS: another provider's endpoint.
 */
static inline int fi_rpmem_ops_get(struct fid_ep *ep, struct fi_rpmem_ops **ops)
{
	return fi_open_ops(&ep->fid, FI_RPMEM_OPS, 0, (void **)ops, NULL);
}

static inline int fi_rpmem_domain_ops_get(struct fid_domain *domain,
					  struct fi_rpmem_domain_ops **ops)
{
	return fi_open_ops(&domain->fid, FI_RPMEM_DOMAIN_OPS, 0, (void **)ops,
			   NULL);
}

/*
 * Option of an endpoint, level FI_OPT_ENDPOINT: the enum fi_rpmem_class that
 * FI_COMMIT_COMPLETE requires, and commits and queries with
 * FI_RPMEM_CLASS_DEFAULT. fi_setopt() applies to the operations that start
 * after it; FI_RPMEM_CLASS_DEFAULT restores FI_OFI_RPMEM_CLASS. fi_rpmem(7).
 */
#define FI_OPT_RPMEM_CLASS (-(0x4d9 << 16))

/*
 * Make durable (or visible) every earlier write of ep to msg->addr that
 * overlaps the ranges. Asynchronous: returns 0 once accepted, and then exactly
 * one completion with msg->context (flags FI_RMA | FI_WRITE) or one error entry
 * appears on the transmit CQ; its `data` is the index of the range at fault, 0
 * when no range is, rma_iov_count for the store. -FI_EAGAIN: the private
 * connection is not up yet, or too many are outstanding: read the CQ and call
 * again. -FI_EINVAL, -FI_EKEYREJECTED (key not made by ofi_rpmem),
 * -FI_EOPNOTSUPP: never started. Any number of ranges. msg and what it points
 * to are copied. flags: 0. Thread-safe as fi_writemsg() is. fi_rpmem_commit(3).
 */
static inline ssize_t fi_rpmem_commit(struct fi_rpmem_ops *ops,
				      struct fid_ep *ep,
				      const struct fi_rpmem_msg *msg,
				      uint64_t flags)
{
	return ops->commit(ep, msg, flags);
}

/*
 * Write zeros to the ranges; the target makes them, so they are not sent. Level
 * visible: a completion means that any reader sees the zeros, and a commit
 * makes them durable, as it does for fi_write(); level durable: they are
 * durable, too. At most FI_RPMEM_ZERO_MAX bytes in at most 8 ranges; msg->then
 * is NULL; otherwise -FI_EINVAL. All else as fi_rpmem_commit().
 * fi_rpmem_zero(3).
 */
#define FI_RPMEM_ZERO_MAX 1048576
static inline ssize_t fi_rpmem_zero(struct fi_rpmem_ops *ops, struct fid_ep *ep,
				    const struct fi_rpmem_msg *msg,
				    uint64_t flags)
{
	return ops->zero(ep, msg, flags);
}

/*
 * Query what a commit to a key of addr would do. Asynchronous, as a commit is:
 * one completion with context (flags FI_RMA | FI_READ), before which attr is
 * filled in, or one error entry, which leaves attr unchanged. Until then the
 * caller keeps attr and attr->why valid. A target that refuses commits
 * completes the query and says so in attr->prov_errno. fi_rpmem_query(3).
 */
static inline ssize_t fi_rpmem_query(struct fi_rpmem_ops *ops,
				     struct fid_ep *ep, fi_addr_t addr,
				     uint64_t key, enum fi_rpmem_class required,
				     struct fi_rpmem_attr *attr, void *context)
{
	return ops->query(ep, addr, key, required, attr, context);
}

/*
 * fi_rpmem_query() without a completion: blocks (and drives progress) until the
 * reply, at most the commit timeout. Returns 0 (attr->prov_errno may still say
 * why commits are refused), -FI_ETIMEDOUT, -FI_ENOTCONN, -FI_EKEYREJECTED, ...
 */
static inline int fi_rpmem_query_sync(struct fi_rpmem_ops *ops,
				      struct fid_ep *ep, fi_addr_t addr,
				      uint64_t key,
				      enum fi_rpmem_class required,
				      struct fi_rpmem_attr *attr)
{
	return ops->query_sync(ep, addr, key, required, attr);
}

/*
 * For a target: query what commits to one of its persistent regions reach now,
 * which may be less than at the registration. attr as in fi_rpmem_query(), for
 * the strongest class. Returns 0; -FI_EINVAL: not persistent, or a wrong size;
 * -FI_ENOSYS: an earlier release of the provider. fi_rpmem_query(3).
 */
static inline int fi_rpmem_region(struct fi_rpmem_domain_ops *ops,
				  struct fid_mr *mr, struct fi_rpmem_attr *attr)
{
	if (ops->size <= offsetof(struct fi_rpmem_domain_ops, region))
		return -FI_ENOSYS;
	return ops->region(mr, attr);
}

/*
 * For a target that is about to close: from now on new commits to this domain,
 * and new connections, fail with FI_RPMEM_ST_BUSY; blocks (and drives progress)
 * until commits accepted before have replies, at most timeout ms, -1: without
 * end. Returns 0, -FI_ETIMEDOUT. A drain cannot be undone. fi_rpmem_drain(3).
 */
static inline int fi_rpmem_drain(struct fi_rpmem_domain_ops *ops,
				 struct fid_domain *domain, int timeout)
{
	return ops->drain(domain, timeout);
}

#ifdef __cplusplus
}
#endif

#endif
