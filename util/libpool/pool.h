/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of librpmem_pool. */
#ifndef RP_LIBPOOL_POOL_H
#define RP_LIBPOOL_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <rdma/fi_ext_rpmem.h>

/* The rest of the library is built with hidden symbols. */
#pragma GCC visibility push(default)
#include "rpmem_pool.h"
#pragma GCC visibility pop
#include "core/caps.h"
#include "libpool/journal.h"
#include "libpool/piece.h"
#include "util/fabric.h"
#include "util/secret.h"
#include "util/setup_client.h"

#define POOL_ZEROS     (1u << 20)  /* bytes of one post of zeros */
#define POOL_KEEP      (64u << 20) /* bytes of the journal */
#define POOL_COMMITS   2	   /* outstanding; a third one would wait */
#define POOL_TIMEOUT_S 60
/*
 * Posts outstanding at most: the provider knows 1024 ranges of writes that were
 * lost. With more, commits of bytes that were written again would fail for
 * ever.
 */
#ifndef POOL_OUT
#define POOL_OUT 512u
#endif

enum link_state {
	LINK_UP,	 /* operations are posted */
	LINK_DRAINING,	 /* lost: outstanding posts still complete */
	LINK_CONNECTING, /* the thread of connect.c works */
	LINK_REPLAYING,	 /* the journal is written again */
	LINK_ENDED,	 /* the pool is not what it was: all fails */
};

/* One operation, from its submission to its completion. */
struct work {
	LIST_ENTRY(work) all;
	TAILQ_ENTRY(work) link; /* in pool.waiting, commit_waiters or done */
	struct rpmem_pool_op *op;
	uint64_t deadline;     /* ms: for a target that is away */
	bool interrupted;      /* by a loss, from which the deadline counts */
	uint64_t done;	       /* bytes posted or, of a write, in the journal */
	unsigned int out;      /* posts outstanding */
	bool lost;	       /* a read's post failed: read again */
	uint64_t upto;	       /* a commit's: journal sequence that it covers */
	bool posted;	       /* a commit with a store: it is outstanding */
	struct fid_mr *mr;     /* a read's buffer, where the base needs that */
	struct waiter *waiter; /* the thread that waits for it, or NULL */
};
TAILQ_HEAD(works, work);

/* A thread in a blocking call. */
struct waiter {
	TAILQ_ENTRY(waiter) link;
	pthread_cond_t wake;
	bool done;
};
TAILQ_HEAD(waiters, waiter);

/* One post: the context of its completion. */
struct post {
	enum {
		POST_ENTRY,
		POST_READ,
		POST_COMMIT,
		POST_REPLAY
	} kind;
	union {
		uint64_t seq;	   /* POST_ENTRY */
		struct work *work; /* POST_READ */
		uint64_t id;	   /* POST_COMMIT */
	};
	uint64_t turn; /* of the choice of pieces, or 0 */
	struct post *next_free, *next_all;
};

/* The commits posted and not completed, oldest first. */
struct commit {
	uint64_t id;
	uint64_t upto;
	struct work *then; /* the commit with a store that it is, or NULL */
	bool done;
};

struct text {
	struct text *next;
	char s[];
};

/* The result of one connection attempt, written by its thread. */
struct offer {
	int ret; /* 0; -EAGAIN: try again; else the pool has ended */
	struct rp_setup_export ex;
	int lease; /* connection that holds the pool open, or -1 */
	fi_addr_t peer;
	struct fi_rpmem_attr attr;
	enum rp_class class;
	char err[RP_ERR_LEN];
};

struct pool_group; /* group_open.c */

struct rpmem_pool {
	/* A group has the rest of its state there. */
	struct pool_group *group;

	/* constant after rpmem_pool_open() */
	struct rp_setup_target target;
	struct rp_secret secret; /* of the last connection */
	char *secret_file;	 /* NULL: none is needed */
	char name[RP_SETUP_NAME + 1];
	enum fi_rpmem_class required;
	uint64_t timeout_ms;
	uint64_t owner; /* this client, to the daemon */
	bool exclusive, take, observe;
	unsigned int parts, part; /* as of rp_setup_open */
	struct rp_fabric f;
	struct fid_mr *journal_mr;

	pthread_mutex_t lock; /* all below */
	enum link_state state;
	struct offer now; /* the connection in use */
	uint64_t reconnects;
	const char *reason; /* why the last connection was lost */
	struct text *texts;

	struct rp_journal journal;
	unsigned int nbuffered; /* entries that are buffered and not placed */
	LIST_HEAD(, work) all;	/* until their owner has the result */
	struct works waiting;	/* not posted yet, in order */
	struct works commit_waiters; /* commits, and durable writes replayed */
	struct works done;	     /* for rpmem_pool_poll() */
	struct commit commits[POOL_COMMITS];
	unsigned int ncommits;
	uint64_t commit_id;   /* of the newest one */
	uint64_t commit_upto; /* all posted commits cover the journal to here */
	const char *commit_error;      /* of the last commit, or NULL */
	unsigned int out;	       /* posts outstanding */
	struct piece_choice pieces[2]; /* of writes, of reads */
	struct post *free_posts, *all_posts;
	struct rp_journal_piece *replay;
	size_t nreplay, replay_next, replay_out;

	bool polling; /* a thread reads the completion queue */
	struct waiters waiters;
	pthread_t thread;
	bool thread_runs, closing;
	struct offer next;	    /* of the thread */
	pthread_cond_t thread_done; /* of CLOCK_MONOTONIC, as the next */
	pthread_cond_t async_done;
};

/* error.c: the sentence of this thread; pool->lock held for pool_text(). */
int pool_error(int ret, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
char *pool_error_buf(void);
/* Keep a sentence as long as the pool. */
const char *pool_text(struct rpmem_pool *p, const char *s);
void pool_texts_free(struct rpmem_pool *p);

/* wait.c: wait for a condition of the pool, up to ms; the lock is released. */
void pool_cond_wait(struct rpmem_pool *p, pthread_cond_t *cond, uint64_t ms);
/*
 * Prepare to wait with poll(2) for the next completion: 1, and *fd is readable
 * then; 0: there is nothing to wait on. Lowers *ms to the time after which
 * rpmem_pool_poll() is due in any case.
 */
unsigned int pool_trywait(struct rpmem_pool *p, int *fd, int *ms);
/* Forget an operation whose owner has the result. The lock is held. */
void work_free(struct work *w);

/* open.c: rpmem_pool_open() by a client that has this number at the daemon. */
int pool_open_as(struct rpmem_pool **pool, const char *where,
		 const struct rpmem_pool_attr *attr, uint64_t owner);
/* Copy the attributes of the caller, which may know less of them. */
int pool_copy_attr(struct rpmem_pool_attr *a,
		   const struct rpmem_pool_attr *attr);

/* connect.c: fetch and query what the daemon offers. Blocks. */
void pool_connect(struct rpmem_pool *p, struct offer *o);
/* The daemon may give the pool to others. */
void pool_release(struct offer *o);
/* Start the thread that does so until it succeeds. The lock is held. */
void pool_reconnect(struct rpmem_pool *p);

/* work.c: the lists of a new pool, and all that is in them when it is closed.
 */
void work_init(struct rpmem_pool *p);
void work_fini(struct rpmem_pool *p);
/* With the lock held. Put an operation at the end of the queue. */
void work_add(struct rpmem_pool *p, struct work *w);
/* Post what can be posted. */
void work_post(struct rpmem_pool *p);
/* While the target is away: fail what waits for longer than the timeout. */
void work_expire(struct rpmem_pool *p);
/* Read completions, for up to ms; the lock is released meanwhile. */
void work_progress(struct rpmem_pool *p, int ms);
/* The connection is lost, if there is one: connect again. */
void work_lost(struct rpmem_pool *p, const char *reason);
/* A connection attempt succeeded, or ended the pool. */
void work_connected(struct rpmem_pool *p);

/* The same, for commits.c. Complete an operation: its owner has the result. */
void work_complete(struct rpmem_pool *p, struct work *w, int ret,
		   const char *error);
struct post *post_new(struct rpmem_pool *p); /* NULL: no memory */
void post_free(struct rpmem_pool *p, struct post *t);
/*
 * The result of a post: 0 when it is accepted; -EAGAIN: later. Any other error
 * of the provider is a loss.
 */
int post_result(struct rpmem_pool *p, struct post *t, ssize_t ret);
static inline uint64_t pool_remote_addr(const struct rpmem_pool *p,
					uint64_t offset)
{
	return p->now.ex.addr + offset;
}

/* commits.c: post what somebody waits for. The lock is held in all of them. */
void commits_post(struct rpmem_pool *p);
/* The post of a commit has completed. */
void commits_done(struct rpmem_pool *p, uint64_t id);
/* The target's disk failed: a new connection to it would not help. */
void commits_failed(struct rpmem_pool *p, const char *error);
/* No commit is outstanding any more: each has to be posted again. */
void commits_drop(struct rpmem_pool *p);

#endif
