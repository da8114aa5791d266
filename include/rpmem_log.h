/* SPDX-License-Identifier: BSD-2-Clause */
/* A durable append-only log in a pool of fi_rpmemd on another machine. */
#ifndef RPMEM_LOG_H
#define RPMEM_LOG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <rpmem_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A log has entries, each with a log sequence number (LSN): a multiple of 64
 * that grows with each entry. The LSN of an acknowledged entry is never used
 * again. The entries from the head to the tail are in a ring of fixed size.
 * Every function but rpmem_log_close() may be called by several threads at one
 * time. Functions that return int return 0 or a negative errno, and
 * rpmem_log_error() then has the cause and the remedy. rpmem_log(3) describes
 * all.
 */
struct rpmem_log;

/* Stands for the LSN of the oldest entry, the head. */
#define RPMEM_LOG_HEAD 0

/* How the end of a log is found after a crash; fixed when it is created. */
enum rpmem_log_layout {
	RPMEM_LOG_ENTRY = 0,	/* by the checksums of the entries alone */
	RPMEM_LOG_TAIL = 1,	/* by a tail that each append stores */
	RPMEM_LOG_COUNTER = 2,	/* the tail is the greatest of 10 words */
	RPMEM_LOG_REGISTER = 3, /* the tail is the XOR of 10 words */
};

/* Zero is the default of each field but size. */
struct rpmem_log_attr {
	size_t size;		 /* sizeof(struct rpmem_log_attr) */
	const char *secret_file; /* as for rpmem_pool_open(), like the next 2 */
	enum rpmem_pool_class required;
	unsigned int timeout;
	int read_only; /* 1: read, also while a writer has the log open */
	int take;      /* 1: displace a writer that has the log open */
	enum rpmem_log_layout layout; /* for rpmem_log_create() only */
	/*
	 * The pool is divided into this many logs, at most 32. Each log has its
	 * own writer, which no writer of another log hinders or displaces. 0
	 * and 1: the pool is one log.
	 */
	unsigned int logs;
	unsigned int log; /* index of this log, from 0 on */
};

/*
 * Make an empty log that fills a pool, "HOST:POOL" or "HOST:PORT:POOL", or one
 * part of it: the first such call divides the pool, for good. -EEXIST: there is
 * a log; or a pool that is to be divided is one log, or a ring of librpmem_rpc.
 * -ENOSPC: less than 16 KiB for each log. Other errors as rpmem_log_open().
 */
int rpmem_log_create(const char *where, const struct rpmem_log_attr *attr);

/*
 * Open a log. attr may be NULL. A writer opens its log exclusively: a log has
 * one writer at a time. A new writer finds the last entry of the previous one.
 * -ENOENT: no such pool; -ENODATA: the pool has no log: create it; -EBADMSG:
 * the log is damaged; -EPROTONOSUPPORT: another release wrote it; -EBUSY:
 * another writer has it open; -ENXIO: the pool is divided into another number
 * of logs, or these are the bytes of another log; -ESTALE: other writers
 * displaced this one again and again; -EINVAL: no such log; -EACCES,
 * -EOPNOTSUPP, -ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT: as rpmem_pool_open().
 */
int rpmem_log_open(struct rpmem_log **log, const char *where,
		   const struct rpmem_log_attr *attr);

/*
 * Close. No other call may use the log. Outstanding appends are dropped: their
 * entries may be in the log or not. If no append is outstanding the call
 * publishes as rpmem_log_publish() does, and waits up to the timeout.
 */
void rpmem_log_close(struct rpmem_log *log);

/*
 * Append len bytes, at least 1, as one entry: one round trip. When the call
 * returns 0 the entry and all before it are durable. *lsn, if not NULL, is its
 * LSN. -ENOSPC: the ring is full: trim the log; -EMSGSIZE: more than max_entry
 * of rpmem_log_query(); -EACCES: opened to read. Any other error ends the log
 * for this writer: the entry may be in the log or not; close and open the log
 * to know.
 */
int rpmem_log_append(struct rpmem_log *log, const void *buf, size_t len,
		     uint64_t *lsn);

/* An append without waiting. Zero the fields that are not used. */
struct rpmem_log_op {
	const struct iovec *entries; /* one iovec per entry; not needed any more
					when rpmem_log_submit() has returned */
	unsigned int count;	     /* number of entries, at least 1 */
	void *context;		     /* context of the caller */
	uint64_t lsn;		     /* out: LSN of the first entry */
	uint64_t next;		     /* out: the LSN after the last entry */
	int result;		     /* out: 0 or a negative errno */
	const char *error; /* out: cause and remedy, while the log is open */
};

/*
 * Start to append entries in one round trip. Behind two outstanding writes
 * small entries wait for rpmem_log_poll(), and then share a write. *op belongs
 * to the library until rpmem_log_poll() returns it. Operations complete in the
 * order of their submission. -EAGAIN: too many are outstanding: poll; -ENOSPC,
 * -EMSGSIZE, -EACCES, -EINVAL, -ENOMEM: not started. -EMSGSIZE: the entries are
 * more than 16 MiB, or longer than the ring if the longest counts twice.
 */
int rpmem_log_submit(struct rpmem_log *log, struct rpmem_log_op *op);

/*
 * Return up to n completed operations; wait up to timeout_ms for the first (0:
 * do not wait; -1: without end). Returns their number, 0 if none completed in
 * time, or a negative errno.
 */
int rpmem_log_poll(struct rpmem_log *log, struct rpmem_log_op **done,
		   unsigned int n, int timeout_ms);

/*
 * Prepare to wait for completed operations in the program's own poll(2) or
 * epoll, behind all other calls. Returns 1: *fd becomes readable when
 * rpmem_log_poll() has something to do; 0: there is no descriptor now. Lowers
 * *timeout_ms, not negative, to the time after which to call rpmem_log_poll()
 * in either case. -EOPNOTSUPP: the log is in a group of pools.
 */
int rpmem_log_trywait(struct rpmem_log *log, int *fd, int *timeout_ms);

/* Flag of rpmem_log_read(): also entries that may not be durable yet. */
#define RPMEM_LOG_VISIBLE 1u

/*
 * Read the entry *lsn into buf, set *len to its bytes and *lsn to that of the
 * next entry. Returns 1; 0: there is no such entry yet; -ERANGE: the entry was
 * trimmed, and *lsn is the head now; -EMSGSIZE: *len is more than size, and
 * *lsn is that entry's; -EBADMSG: no intact entry begins at *lsn; -EINVAL: *lsn
 * is no LSN at all; -ESTALE: another writer has the log, the pool was replaced,
 * or the log was created anew: open the log again. Other results leave *lsn as
 * it is. A reader may still get an entry that was trimmed while the reader had
 * it in its buffer.
 */
int rpmem_log_read(struct rpmem_log *log, uint64_t *lsn, void *buf, size_t size,
		   size_t *len, unsigned int flags);

/*
 * Drop the entries before lsn, which is that of an entry or the tail. When the
 * call returns 0 their space can be used. -EINVAL: no entry begins at lsn;
 * -EAGAIN: appends before lsn are outstanding: poll; -EACCES: opened to read.
 */
int rpmem_log_trim(struct rpmem_log *log, uint64_t lsn);

/*
 * Tell readers in other processes that all completed appends are durable: one
 * durable write. The next append also tells readers. rpmem_log_poll() starts
 * this write, without waiting for it, when no append is outstanding.
 */
int rpmem_log_publish(struct rpmem_log *log);

struct rpmem_log_info {
	size_t size;	    /* in: sizeof(struct rpmem_log_info) */
	uint64_t head;	    /* LSN of the first entry */
	uint64_t durable;   /* every entry below is durable */
	uint64_t tail;	    /* LSN of the next append; a reader's: durable */
	uint64_t capacity;  /* bytes of the ring; an entry uses its length plus
			     * 32, rounded up to 64 */
	uint64_t max_entry; /* most bytes of an entry */
	uint64_t epoch;	    /* number of times that a writer opened the log */
	enum rpmem_log_layout layout;
	enum rpmem_pool_class reached; /* class that an append reaches */
	const char *method;	       /* a name of fi_rpmem(7) */
	uint64_t id; /* random number that rpmem_log_create() gave the log */
	/*
	 * A reader's: every entry below has arrived; a crash may take away
	 * those from `durable` on. A writer's: durable.
	 */
	uint64_t visible;
};
/*
 * Fill in *info. A reader reads the superblocks, whose newest head *info has,
 * and, unless info->size ends before `visible`, the entries behind those that
 * it knows to be visible.
 */
int rpmem_log_query(struct rpmem_log *log, struct rpmem_log_info *info);

/* Cause and remedy of the last call of this thread that failed. */
const char *rpmem_log_error(void);

#ifdef __cplusplus
}
#endif

#endif
