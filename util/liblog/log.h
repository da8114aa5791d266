/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of librpmem_log. */
#ifndef RP_LIBLOG_LOG_H
#define RP_LIBLOG_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/* The rest of the library is built with hidden symbols. */
#pragma GCC visibility push(default)
#include "rpmem_log.h"
#pragma GCC visibility pop
#include "liblog/format.h"

#define LOG_ERR_LEN 768

/*
 * The pool of a log: rpmem_pool_submit() and rpmem_pool_poll(), or a
 * test's. An operation that has completed stays so when the target restarts.
 */
struct log_io {
	int (*submit)(void *arg, struct rpmem_pool_op *op);
	int (*poll)(void *arg, struct rpmem_pool_op **done, unsigned int n,
		    int timeout_ms);
	void *arg;
	uint64_t length;	/* bytes of the pool */
	unsigned int logs, log; /* the pool is this part of so many; 0: whole */
	char name[192];		/* what errors begin with */
};

/* One operation of the pool: context of `op`. */
struct log_post {
	struct rpmem_pool_op op;
	enum {
		LOG_POST_CALL, /* of log_call() */
		LOG_POST_WRITE,
		LOG_POST_STORE,
		LOG_POST_SUPER
	} kind;
	bool done;
};

/* One write of an append; it has two where the ring's end is between. */
struct log_write {
	struct log_post post;
	TAILQ_ENTRY(log_write) link; /* in log.writes or log.done */
	uint64_t end;		     /* LSN behind it */
	struct rpmem_log_op *op;     /* to complete with it, or NULL */
	bool *wake; /* a thread waits for op: set when it completes */
	unsigned char bytes[];
};
TAILQ_HEAD(log_writes, log_write);

struct rpmem_log {
	struct log_io io;
	struct rpmem_pool *pool; /* NULL: in a test */
	bool read_only;

	pthread_mutex_t lock; /* all below */
	pthread_cond_t progressed;
	bool polling; /* a thread is in io.poll() */

	struct log_super super;	    /* as it is in the pool */
	struct log_post super_post; /* of the next one, when it is busy */
	struct log_super super_next;
	unsigned char super_bytes[LOG_SUPER_BYTES];
	bool super_busy;
	uint64_t tail;	  /* LSN of the next append */
	uint64_t durable; /* writer: all below is; reader: what it knows */
	struct log_writes writes; /* outstanding, in order of LSN */
	struct log_writes done;	  /* completed, for rpmem_log_poll() */
	uint64_t out;		  /* bytes of writes */

	struct log_places places;
	struct log_post store; /* of the tail, when it is busy */
	struct rpmem_pool_then store_at;
	bool store_busy;
	uint64_t store_end; /* the tail that it stores */
	uint64_t stored;    /* the tail that is durable */

	int failed;		   /* this writer has ended: -errno */
	char failure[LOG_ERR_LEN]; /* why */

	pthread_mutex_t read_lock; /* taken before lock; all below */
	unsigned char *cache;	   /* bytes of the ring from an LSN on */
	uint64_t cache_lsn, cache_len;
	size_t cache_size;
	/*
	 * The superblock when it was filled: an entry of an older epoch that
	 * the mark has passed since is one that was replaced since.
	 */
	struct log_super cache_super;
};

/* error.c: the sentence of this thread; returns ret. */
int log_error(int ret, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* open.c: what the public calls do, on any io. */
int log_create(const struct log_io *io, uint32_t layout);
/* -EEXIST: there is a log, perhaps a damaged one. */
int log_check_none(const struct log_io *io);
int log_open(struct rpmem_log **log, const struct log_io *io, bool read_only);

/* progress.c; the lock is held, and released while a call waits. */
/*
 * Wait for a change for up to ms (0: only look; -1: without end), which another
 * thread's poll may bring. The caller looks whether it is the one it waits for.
 */
void log_progress(struct rpmem_log *log, int ms);
/* Run one operation of the pool. Returns its result. */
int log_call(struct rpmem_log *log, enum rpmem_pool_type type, void *buf,
	     size_t len, uint64_t offset);
/* The failure of a writer that has ended, or 0. */
int log_check(const struct rpmem_log *log);
/* End the log for this writer. */
void log_fail(struct rpmem_log *log, int ret, const char *error);
/* Store the tail behind new entries, where the layout has one. */
void log_store_tail(struct rpmem_log *log);

/* super.c; the lock is held. */
/*
 * Write a superblock with this epoch, log->durable as its mark, and the head,
 * unless the present one is higher, and wait for it.
 */
int log_super_write(struct rpmem_log *log, uint64_t head, uint64_t epoch);
/*
 * Start to make the present mark durable, unless a superblock is being written:
 * readers then know that all entries below it are. A failure ends the writer.
 */
void log_super_publish(struct rpmem_log *log);
/* A reader looks for newer superblocks. */
int log_super_read(struct rpmem_log *log);

/* read.c; both locks are held. */
/* A reader looks for a newer superblock, and what it says is durable. */
int log_refresh(struct rpmem_log *log);
/*
 * Read the entry at lsn into the cache; fresh: not from it. Returns 1 and the
 * entry, its bytes at *data until the next call; 0: there is none; -errno.
 */
int log_read_entry(struct rpmem_log *log, uint64_t lsn, bool fresh,
		   struct log_entry *e, const unsigned char **data);

#endif
