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
 * Every function but rpmem_pool_close() may be called by several threads at one
 * time. Functions that return int return 0 or a negative errno, and
 * rpmem_pool_error() then has the cause and the remedy. rpmem_pool(3) describes
 * all.
 */
struct rpmem_pool;

/*
 * The failures that committed bytes survive, strongest first; each class
 * includes those below it.
 */
enum rpmem_pool_class {
	RPMEM_POOL_POWER = 0,	/* a power cut at the target */
	RPMEM_POOL_PROCESS = 1, /* the end of fi_rpmemd, however it ends */
	RPMEM_POOL_NONE = 2,	/* no failure: for tests */
};

/* Values of rpmem_pool_attr.exclusive. */
#define RPMEM_POOL_EXCLUSIVE 1 /* refuse to share the pool */
#define RPMEM_POOL_TAKE                                                        \
	2 /* the same, and close the pool at clients that have it open: for an \
	   * administrator, when one of them hangs */
#define RPMEM_POOL_OBSERVE                                                     \
	3 /* only read, also while another client has it exclusively */

/* Zero is the default of each field but size. */
struct rpmem_pool_attr {
	size_t size;			/* sizeof(struct rpmem_pool_attr) */
	const char *secret_file;	/* path of a file with the secret of
					 * fi_rpmemd --secret; NULL: none */
	enum rpmem_pool_class required; /* a weaker pool is refused */
	unsigned int timeout; /* seconds that a call waits while the target is
			       * away; 0: 60 */
	int exclusive;	      /* 0: share the pool with other clients */
	/*
	 * Open one part of a pool that rpmem_pool_divide() has divided into
	 * this many, at most 32, as if it were a pool: no operation reaches
	 * another part, and only clients of this part, or of the whole pool,
	 * exclude each other or are displaced. 1: the whole pool, which must
	 * not be divided; 0: the whole pool.
	 */
	unsigned int parts;
	unsigned int part; /* index of the part, from 0 on */
	int wait; /* seconds that rpmem_pool_open() waits for the daemon of a
		   * single pool to start; 0: 2; -1: none */
};

/*
 * Open a pool, "HOST:POOL" or "HOST:PORT:POOL", or a group of pools,
 * "HOST:POOL,HOST:POOL,...;k=N": each member stores all bytes, and a commit
 * completes when it is durable at N members (without ;k=N: at a majority). attr
 * may be NULL. -EOPNOTSUPP: the pool does not reach the required class;
 * -EACCES: the secret is missing or wrong, or does not allow this; -ENOENT: no
 * such pool; -EBUSY: another client has the pool open, and one of the two
 * requires it exclusively; -ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT: no daemon;
 * -ENXIO: the pool has not that many parts. The first call in a process may
 * call setenv(3) for libfabric: make it before other threads run.
 *
 * Clients that share a pool must not write to bytes that another one has
 * written and not yet committed: after a lost connection a client writes its
 * uncommitted bytes again, over newer ones.
 */
int rpmem_pool_open(struct rpmem_pool **pool, const char *where,
		    const struct rpmem_pool_attr *attr);
/*
 * Close without a commit: what was not committed may be lost. No other call may
 * use the pool. Operations that are outstanding are dropped: when the call
 * returns, the library does not touch any of them, nor its buffer, and no call
 * returns them.
 */
void rpmem_pool_close(struct rpmem_pool *pool);

/*
 * Divide a pool, which the caller has opened exclusively, into equal parts, 1
 * to 32 (1: it is not divided): durable when the call returns 0, and the same
 * until another call changes it. Bytes stay as they are. -EBUSY: the pool is
 * not open exclusively any more; -ENXIO: it is too short for so many.
 */
int rpmem_pool_divide(struct rpmem_pool *pool, unsigned int parts);

struct rpmem_pool_info {
	size_t size;		       /* in: sizeof(struct rpmem_pool_info) */
	uint64_t length;	       /* bytes of the pool */
	enum rpmem_pool_class reached; /* class that a commit reaches */
	const char *method;   /* how commits are done: a name of fi_rpmem(7) */
	uint32_t granularity; /* a flush at the target rounds ranges to this
			       * many bytes: a hint */
	uint32_t preferred_size; /* bytes of one write: a hint */
	uint64_t kept;		 /* bytes of writes that no commit covers yet */
	uint64_t reconnects;	 /* number of reconnections */
	int read_only;		 /* the secret does not allow writes */
	unsigned int members;	 /* members of a group; 0: a single pool */
	unsigned int current;	 /* members that have every completed write */
	uint64_t uuid[2];	 /* same under any name of the pool; group: 0 */
};
int rpmem_pool_query(struct rpmem_pool *pool, struct rpmem_pool_info *info);

/*
 * States of a member. docs/protocol.md, "Groups", compares them with the states
 * that fi_rpmem_group prints.
 */
enum rpmem_pool_state {
	RPMEM_POOL_AWAY = 0,	/* the library tries to open the member */
	RPMEM_POOL_COPYING = 1, /* the library copies missing bytes to it */
	RPMEM_POOL_LAGGING = 2, /* it lacks completed writes: it is slow, or its
				   connection is lost */
	RPMEM_POOL_CURRENT = 3,
};
/* A member of a group of pools. */
struct rpmem_pool_member {
	size_t size;	   /* in: sizeof(struct rpmem_pool_member) */
	const char *where; /* its "HOST:POOL"; valid while the pool is open, as
			      error */
	enum rpmem_pool_state state;
	uint64_t left;	   /* bytes that the member lacks, as far as known */
	const char *error; /* cause and remedy of its last failure, or NULL */
};
/* -ENOENT: the pool has no member of this index; they count from 0. */
int rpmem_pool_member(struct rpmem_pool *pool, unsigned int index,
		      struct rpmem_pool_member *member);

/* Flags of a write, or of zeros; at most one of them. */
#define RPMEM_POOL_DURABLE 1u /* complete when the bytes are durable */
/*
 * Complete when the library has its copy of the bytes. Later reads and writes
 * by this pool handle see the bytes; other readers may see them only after the
 * next commit. A failure of the write is a failure of that commit. In a group
 * the flag has no effect.
 */
#define RPMEM_POOL_BUFFERED 2u

/*
 * Write len bytes at an offset of the pool, with any alignment. When the call
 * returns 0 the bytes are visible to every reader; they are durable after a
 * commit, or at once with RPMEM_POOL_DURABLE. Until a commit covers them the
 * library keeps a copy, at most 64 MiB and 131,072 writes in all, and writes it
 * again when the connection was lost or the target restarted; the library
 * commits by itself when half of this limit is in use. No write is atomic in a
 * power cut.
 *
 * -EACCES: the secret only allows to read. -ERANGE: beyond the end. -ETIMEDOUT:
 * the target was away for too long. The range has its old bytes, the new ones,
 * or a mixture, and may still change to the new ones until the pool is closed.
 * -EIO: the target's disk failed in a commit that had to make room for the
 * copy.
 */
int rpmem_pool_write(struct rpmem_pool *pool, const void *buf, size_t len,
		     uint64_t offset, unsigned int flags);
/*
 * Write len zeros at an offset, with the errors and flags of
 * rpmem_pool_write(). The target makes the zeros, so they are not sent. The
 * library keeps their range and no copy; each MiB of zeros counts as one write.
 */
int rpmem_pool_zero(struct rpmem_pool *pool, size_t len, uint64_t offset,
		    unsigned int flags);
int rpmem_pool_read(struct rpmem_pool *pool, void *buf, size_t len,
		    uint64_t offset);
/*
 * Make durable every write that completed before this call, by any thread on
 * this pool handle. Without such a write the call returns 0 at once, and sends
 * no request.
 *
 * -ETIMEDOUT: not known to be durable; call it again. -EIO: the target's disk
 * failed. Every commit fails until fi_rpmemd is started again; the library then
 * writes all uncommitted bytes again, and a commit that returns 0 can be
 * trusted.
 */
int rpmem_pool_commit(struct rpmem_pool *pool);

/*
 * A store of 8 bytes at an offset that is a multiple of 8, executed when the
 * commit has made all else durable, and durable itself when the commit
 * completes. It may be executed again after a lost connection: no other client
 * may write these 8 bytes.
 */
struct rpmem_pool_then {
	uint64_t offset;
	uint64_t value;
};

/* One operation without waiting. Zero the fields that are not used. */
enum rpmem_pool_type {
	RPMEM_POOL_WRITE = 1,
	RPMEM_POOL_READ = 2,
	RPMEM_POOL_COMMIT = 3,
	RPMEM_POOL_ZERO = 4, /* buf is not used */
};
struct rpmem_pool_op {
	enum rpmem_pool_type type;
	unsigned int flags;
	void *buf; /* bytes unchanged until the operation completes */
	size_t len;
	uint64_t offset;
	const struct rpmem_pool_then *then; /* store of a commit, or NULL;
					     * valid until the operation
					     * completes */
	void *context;			    /* context of the caller */
	int result;			    /* out: 0 or a negative errno */
	const char *error; /* out: cause and remedy; valid while the pool is
			    * open */
};
/*
 * Start an operation. *op belongs to the library until rpmem_pool_poll()
 * returns it, once, whatever its result. Operations are not ordered, except
 * that a commit covers the writes that were submitted before it. -EINVAL,
 * -ERANGE, -ENOMEM: not started.
 */
int rpmem_pool_submit(struct rpmem_pool *pool, struct rpmem_pool_op *op);
/*
 * Return up to n completed operations, whichever thread submitted them; wait up
 * to timeout_ms for the first (0: do not wait; -1: without end). Submitted
 * operations progress only while a thread is in this call or in a blocking one.
 * Returns their number, 0 if none completed in time, or a negative errno.
 */
int rpmem_pool_poll(struct rpmem_pool *pool, struct rpmem_pool_op **done,
		    unsigned int n, int timeout_ms);

/*
 * Prepare to wait for completions in the program's own poll(2) or epoll, behind
 * all other calls. Returns 1: *fd becomes readable when rpmem_pool_poll() has
 * something to do; 0: there is no descriptor now. Lowers *timeout_ms, not
 * negative, to the time after which to call rpmem_pool_poll() in either case.
 * -EOPNOTSUPP: the pool is a group.
 */
int rpmem_pool_trywait(struct rpmem_pool *pool, int *fd, int *timeout_ms);

/* Cause and remedy of the last call of this thread that failed. */
const char *rpmem_pool_error(void);

/*
 * The libfabric objects of the pool, for programs that use libfabric too. They
 * are valid until the pool is closed. peer, key and addr change when the target
 * restarts, that is when info.reconnects of rpmem_pool_query() grows; an old
 * key is refused.
 */
struct fi_info;
struct fid_domain;
struct fid_ep;
struct rpmem_pool_fabric {
	size_t size; /* in: sizeof(struct rpmem_pool_fabric) */
	struct fi_info *info;
	struct fid_domain *domain;
	struct fid_ep *ep; /* for posts with context NULL: the library reads
			    * their completions */
	uint64_t peer;	   /* fi_addr_t of the target */
	uint64_t key;	   /* rkey of the pool */
	uint64_t addr;	   /* remote address of the pool's first byte */
};
int rpmem_pool_fabric(struct rpmem_pool *pool,
		      struct rpmem_pool_fabric *fabric);

#ifdef __cplusplus
}
#endif

#endif
