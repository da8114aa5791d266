/* SPDX-License-Identifier: BSD-2-Clause */
/* Internals of librpmem_log. */
#ifndef RP_LIBLOG_LOG_H
#define RP_LIBLOG_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/* Export the calls of rpmem_log.h; -fvisibility=hidden hides all others. */
#pragma GCC visibility push(default)
#include "rpmem_log.h"
#pragma GCC visibility pop
#include "liblog/format.h"
#include "util/waiters.h"

#define LOG_ERR_LEN 768
/* Most bytes of outstanding appends, and so of one append. */
#define LOG_WINDOW (16u << 20)
/* Most bytes of the log after the mark, which the next writer has to read. */
#define LOG_MARK_BYTES (64u << 20)
/*
 * While LOG_POSTS writes are outstanding, appends wait, and are then joined:
 * sending a message costs both machines more than copying a small entry. Once
 * LOG_GATHER bytes wait they are posted, whatever is outstanding. A joined
 * write has at most LOG_GATHER bytes.
 */
#define LOG_POSTS  2u
#define LOG_GATHER 4096u

/*
 * The pool of a log: rpmem_pool_submit() and rpmem_pool_poll(), or a test's
 * replacement. A completed operation survives a restart of the target.
 */
struct log_io {
	int (*submit)(void *arg, struct rpmem_pool_op *op);
	int (*poll)(void *arg, struct rpmem_pool_op **done, unsigned int n,
		    int timeout_ms);
	void *arg;
	uint64_t length;	/* bytes of the pool */
	unsigned int logs, log; /* part `log` of so many logs; 0: whole pool */
	char name[192];		/* prefix of error texts */
};

/* One operation of the pool: op.context points here. */
struct log_post {
	struct rpmem_pool_op op;
	enum {
		LOG_POST_CALL, /* operation of log_call() */
		LOG_POST_WRITE,
		LOG_POST_STORE,
		LOG_POST_SUPER
	} kind;
	bool done;
};

/*
 * Contiguous entries of one append; an append that goes on at the ring's start
 * has two of these. Adjacent ones are posted together: the last of them is the
 * carrier, whose post writes the bytes of all.
 */
struct log_write {
	struct log_post post;	     /* used in a carrier */
	struct log_write *carrier;   /* may be this write; NULL: not posted */
	unsigned char *shared;	     /* in a carrier of several writes: copy
				      * of their bytes; else NULL */
	TAILQ_ENTRY(log_write) link; /* entry in log.writes or log.done */
	uint64_t offset, len;	     /* in the pool */
	uint64_t end;		     /* LSN behind its last byte */
	struct rpmem_log_op *op;     /* operation to complete, or NULL */
	bool *wake; /* set when op completes; NULL: no thread waits */
	unsigned char bytes[];
};
TAILQ_HEAD(log_writes, log_write);

struct rpmem_log {
	struct log_io io;
	struct rpmem_pool *pool; /* NULL in unit tests */
	bool read_only;

	pthread_mutex_t lock;	   /* guards all below */
	pthread_cond_t progressed; /* for threads in log_progress() */
	struct rp_waiters waiters; /* threads in log_wait() */
	bool polling;		   /* a thread is waiting in io.poll() */

	struct log_super super;	    /* superblock in the pool */
	bool super_alone;	    /* the other superblock is not intact */
	struct log_post super_post; /* writes super_next, while super_busy */
	struct log_super super_next;
	unsigned char super_bytes[LOG_SUPER_BYTES];
	bool super_busy;
	uint64_t tail;	  /* LSN of the next append */
	uint64_t durable; /* LSN below which all is known to be durable */
	struct log_writes writes; /* outstanding writes, in order of LSN */
	struct log_writes done;	  /* completed, for rpmem_log_poll() */
	uint64_t out;		  /* bytes of writes */
	struct log_write *first_waiting; /* first not posted, or NULL */
	uint64_t waiting_bytes;		 /* bytes from first_waiting on */
	uint64_t posted_end;	  /* LSN behind the last write that is posted */
	unsigned int outstanding; /* posted writes without a result */

	struct log_places places;
	struct log_post store; /* stores the tail, while store_busy */
	struct rpmem_pool_then store_at;
	bool store_busy;
	uint64_t store_end; /* the tail that the outstanding store writes */
	uint64_t stored;    /* the durable tail in the pool */

	int failed;		   /* -errno that has ended the writer, or 0 */
	char failure[LOG_ERR_LEN]; /* text of that failure */

	pthread_mutex_t read_lock; /* guards all below; taken before lock */
	unsigned char *cache;	   /* bytes of the ring from cache_lsn on */
	uint64_t cache_lsn, cache_len;
	size_t cache_size;
	/*
	 * The superblock when the cache was filled, by which cached entries are
	 * decoded. With a later mark, a newer superblock would accept a cached
	 * entry of an old epoch that was since overwritten in the pool.
	 */
	struct log_super cache_super;
	/*
	 * A reader's: all entries of epoch visible_epoch below LSN `visible`
	 * have arrived.
	 */
	uint64_t visible, visible_epoch;
};

/* error.c: set the error text of this thread; returns ret. */
int log_error(int ret, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* open.c: the public calls, on any io. */
int log_create(const struct log_io *io, uint32_t layout);
/* -EEXIST: there is a log, even if it is damaged. */
int log_check_none(const struct log_io *io);
int log_open(struct rpmem_log **log, const struct log_io *io, bool read_only);

/* progress.c: called with the lock held, which waiting releases. */
/*
 * Wait up to ms (0: only poll; -1: no limit) until this or another thread has
 * polled the pool. The caller must then check its own condition again.
 */
void log_progress(struct rpmem_log *log, int ms);
/* Wait until *done. Only the thread with this flag is woken for it. */
void log_wait(struct rpmem_log *log, const bool *done);
/* Run one operation of the pool, and wait for it. Returns its result. */
int log_call(struct rpmem_log *log, enum rpmem_pool_type type, void *buf,
	     size_t len, uint64_t offset);
/* Returns the failure that has ended this writer, or 0. */
int log_check(const struct rpmem_log *log);
/* End this writer with a failure. */
void log_fail(struct rpmem_log *log, int ret, const char *error);
/* Post entries that need not wait to be joined, then the tail, if any. */
void log_post(struct rpmem_log *log);

/* super.c: called with the lock held. */
/*
 * Write a superblock with this epoch, the mark log->durable, and the greater of
 * head and the present head; wait until it is durable.
 */
int log_super_write(struct rpmem_log *log, uint64_t head, uint64_t epoch);
/*
 * Start to make the present mark durable, unless a superblock is being written:
 * readers then know the entries below it as durable. A failure ends the writer.
 */
void log_super_publish(struct rpmem_log *log);
/* For a reader: read newer superblocks. */
int log_super_read(struct rpmem_log *log);

/* read.c: called with both locks held. */
/* For a reader: read a newer superblock, and what it marks as durable. */
int log_refresh(struct rpmem_log *log);
/*
 * For a reader that has just refreshed: find `visible`, and what the entries
 * below it mark as durable.
 */
int log_find_visible(struct rpmem_log *log);
/*
 * Read the entry at lsn into the cache; fresh: even if it is cached. Returns 1
 * and the entry, with *data valid until the next call; 0: none; -errno.
 */
int log_read_entry(struct rpmem_log *log, uint64_t lsn, bool fresh,
		   struct log_entry *e, const unsigned char **data);

#endif
