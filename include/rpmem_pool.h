/* SPDX-License-Identifier: BSD-2-Clause */
/* Write to a pool of fi_rpmemd on another machine, and make it durable. */
#ifndef RPMEM_POOL_H
#define RPMEM_POOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Every function may be called by any thread. Those that return int return 0
 * or a negative errno, and rpmem_pool_error() then has the cause and the
 * remedy. rpmem_pool(3) describes all.
 */
struct rpmem_pool;

/* The failures that committed bytes survive. Zero requires the strongest. */
enum rpmem_pool_class {
	RPMEM_POOL_POWER = 0,	/* a power cut at the target */
	RPMEM_POOL_PROCESS = 1, /* the death of fi_rpmemd */
	RPMEM_POOL_NONE = 2,	/* nothing: emulated persistent memory */
};

/* Zero is the default of each field but size. */
struct rpmem_pool_attr {
	size_t size;		 /* sizeof(struct rpmem_pool_attr) */
	const char *secret_file; /* the secret of fi_rpmemd --secret */
	enum rpmem_pool_class required;
	unsigned int timeout; /* seconds that calls wait for a target that is
			       * away; 0: 60 */
	int exclusive; /* not 0: refuse to share the pool with other clients */
};

/*
 * Open a pool, "HOST:POOL" or "HOST:PORT:POOL". attr may be NULL. -EOPNOTSUPP:
 * the pool does not reach the required class; -EACCES: the secret; -ENOENT: no
 * such pool; -EBUSY: another client has it open, and one of the two is
 * exclusive; -ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT: no daemon. The first
 * call in a process sets variables of the environment for libfabric.
 */
int rpmem_pool_open(struct rpmem_pool **pool, const char *where,
		    const struct rpmem_pool_attr *attr);
/*
 * Close without a commit: what was not committed may be lost. No other call may
 * be running, and submitted operations are dropped.
 */
void rpmem_pool_close(struct rpmem_pool *pool);

struct rpmem_pool_info {
	size_t size;		       /* in: sizeof(struct rpmem_pool_info) */
	uint64_t length;	       /* bytes of the pool */
	enum rpmem_pool_class reached; /* by a commit of this pool */
	const char *method;	 /* how, in the words of docs/guarantees.md */
	uint32_t granularity;	 /* bytes that the target flushes at once */
	uint32_t preferred_size; /* bytes of one write */
	uint64_t kept;		 /* bytes written, and kept until a commit */
	uint64_t reconnects;	 /* successful ones since the pool was opened */
};
int rpmem_pool_query(struct rpmem_pool *pool, struct rpmem_pool_info *info);

/* Flag of a write: durable when it completes, without a commit. */
#define RPMEM_POOL_DURABLE 1u

/*
 * Write len bytes at an offset of the pool. When the call returns, the bytes
 * are visible to every reader, and not yet durable. The library keeps a copy
 * until a commit covers them, and writes it again when the target was away.
 * -ERANGE: beyond the end; -ETIMEDOUT: the target was away for too long, the
 * range has its old bytes or the new ones, in any mixture.
 */
int rpmem_pool_write(struct rpmem_pool *pool, const void *buf, size_t len,
		     uint64_t offset, unsigned int flags);
int rpmem_pool_read(struct rpmem_pool *pool, void *buf, size_t len,
		    uint64_t offset);
/*
 * Make durable every write that completed before this call. -EIO: the target's
 * disk failed.
 */
int rpmem_pool_commit(struct rpmem_pool *pool);

/* One operation without waiting. Zero the fields that are not used. */
enum rpmem_pool_type {
	RPMEM_POOL_WRITE = 1,
	RPMEM_POOL_READ = 2,
	RPMEM_POOL_COMMIT = 3,
};
struct rpmem_pool_op {
	enum rpmem_pool_type type;
	unsigned int flags;
	void *buf; /* a write's bytes are copied when it is submitted or later:
		    * leave them unchanged until it completes */
	size_t len;
	uint64_t offset;
	void *context;	   /* the caller's */
	int result;	   /* out: 0 or a negative errno */
	const char *error; /* out: cause and remedy; valid while the pool is
			    * open */
};
/*
 * Start an operation. *op belongs to the library until rpmem_pool_poll()
 * returns it, once, whatever its result. A commit covers the writes that were
 * submitted before it. -EINVAL, -ERANGE, -ENOMEM: not started.
 */
int rpmem_pool_submit(struct rpmem_pool *pool, struct rpmem_pool_op *op);
/*
 * Return up to n completed operations; wait up to timeout_ms (-1: without end)
 * for the first. Progress of submitted operations happens in this call and in
 * the blocking ones. Returns their number, or a negative errno.
 */
int rpmem_pool_poll(struct rpmem_pool *pool, struct rpmem_pool_op **done,
		    unsigned int n, int timeout_ms);

/* Cause and remedy of the last call of this thread that failed. */
const char *rpmem_pool_error(void);

/*
 * The libfabric objects of the pool, for programs that use libfabric too. They
 * are valid until the pool is closed; peer, key and addr until the target
 * restarts.
 */
struct fi_info;
struct fid_domain;
struct fid_ep;
struct rpmem_pool_fabric {
	size_t size; /* in: sizeof(struct rpmem_pool_fabric) */
	struct fi_info *info;
	struct fid_domain *domain;
	struct fid_ep *ep; /* its completions belong to the library */
	uint64_t peer;	   /* fi_addr_t of the target */
	uint64_t key, addr;
};
int rpmem_pool_fabric(struct rpmem_pool *pool,
		      struct rpmem_pool_fabric *fabric);

#ifdef __cplusplus
}
#endif

#endif
