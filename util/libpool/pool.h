/* SPDX-License-Identifier: BSD-2-Clause */
/* Internals of librpmem_pool. */
#ifndef RP_LIBPOOL_POOL_H
#define RP_LIBPOOL_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <rdma/fi_ext_rpmem.h>

/* Export the calls of rpmem_pool.h; -fvisibility=hidden hides all others. */
#pragma GCC visibility push(default)
#include "rpmem_pool.h"
#pragma GCC visibility pop
#include "core/caps.h"
#include "libpool/journal.h"
#include "libpool/piece.h"
#include "util/fabric.h"
#include "util/secret.h"
#include "util/setup_client.h"

#define POOL_ZEROS     (1u << 20)  /* bytes per post of zeros */
#define POOL_KEEP      (64u << 20) /* most bytes of the journal */
#define POOL_COMMITS   2	   /* most outstanding commits; others wait */
#define POOL_TIMEOUT_S 60
#define POOL_TICK_MS   100 /* interval of checks of deadlines */
/*
 * Most outstanding posts. A lost connection fails all of them, and the provider
 * keeps at most 1024 ranges of failed writes (RP_SESSION_RANGES): with more it
 * fails every later commit, even of bytes that were written again.
 */
#ifndef POOL_OUT
#define POOL_OUT 512u
#endif

enum link_state {
	LINK_UP,	 /* connected: operations are posted */
	LINK_DRAINING,	 /* lost: outstanding posts are completing */
	LINK_CONNECTING, /* the connect thread is running */
	LINK_REPLAYING,	 /* journal entries are being written again */
	LINK_ENDED,	 /* the pool has failed: all operations fail */
};

/* One operation, from its submission to its completion. */
struct work {
	LIST_ENTRY(work) all;
	TAILQ_ENTRY(work) link; /* entry of waiting, commit_waiters or done */
	struct rpmem_pool_op *op;
	uint64_t deadline;     /* ms; counts while the target is unreachable */
	bool interrupted;      /* a loss interrupted it and set its deadline */
	uint64_t done;	       /* bytes posted, or copied to the journal */
	unsigned int out;      /* outstanding posts */
	bool lost;	       /* a post of this read failed: read again */
	int failed;	       /* error of a write with outstanding posts */
	const char *error;     /* text of `failed` */
	uint64_t upto;	       /* waits for a commit of the entries below */
	bool posted;	       /* a commit with a store: it is outstanding */
	struct fid_mr *mr;     /* a read's buffer, if the base needs one */
	struct waiter *waiter; /* waiting thread, or NULL */
};
TAILQ_HEAD(works, work);

/* A thread in a blocking call. */
struct waiter {
	TAILQ_ENTRY(waiter) link;
	pthread_cond_t wake;
	bool done;
};
TAILQ_HEAD(waiters, waiter);

/* One post to the provider: context of its completion. */
struct post {
	enum {
		POST_ENTRY,
		POST_READ,
		POST_COMMIT,
		POST_REPLAY
	} kind;
	union {
		uint64_t seq;	   /* journal entry, if POST_ENTRY */
		struct work *work; /* the read, if POST_READ */
		uint64_t id;	   /* commit, if POST_COMMIT */
	};
	uint64_t turn; /* from piece_next(); 0: part of no trial */
	struct post *next_free, *next_all;
};

/* A posted commit that has not completed; oldest first. */
struct commit {
	uint64_t id;
	uint64_t upto;
	struct work *then; /* operation of a commit with a store, or NULL */
	bool done;
};

struct text {
	struct text *next;
	char s[];
};

/* The result of one connection attempt, written by its thread. */
struct offer {
	int ret; /* 0; -EAGAIN: retry; else the pool has failed */
	struct rp_setup_export ex;
	int lease; /* connection that keeps the pool open, or -1 */
	fi_addr_t peer;
	struct fi_rpmem_attr attr;
	enum rp_class class;
	char err[RP_ERR_LEN];
};

struct pool_group; /* defined in group_open.c */

struct rpmem_pool {
	/* State of a group; NULL: a single pool. */
	struct pool_group *group;

	/* constant after rpmem_pool_open() */
	struct rp_setup_target target;
	struct rp_secret secret; /* secret of the last connection */
	char *secret_file;	 /* NULL: no secret is needed */
	char name[RP_SETUP_NAME + 1];
	enum fi_rpmem_class required;
	uint64_t timeout_ms;
	uint64_t owner; /* number by which the daemon knows this client */
	bool exclusive, take, observe;
	bool compare; /* connect first only if `expected` is the last owner */
	uint64_t expected;
	unsigned int parts, part; /* as in struct rp_setup_open */
	struct rp_fabric f;
	struct fid_mr *journal_mr;

	pthread_mutex_t lock; /* guards all below */
	enum link_state state;
	struct offer now; /* the connection that is in use */
	uint64_t reconnects;
	const char *reason; /* why the last connection was lost */
	struct text *texts;

	struct rp_journal journal;
	unsigned int nbuffered;	     /* entries: buffered and not placed */
	LIST_HEAD(, work) all;	     /* all operations without a result */
	struct works waiting;	     /* not fully posted yet, in order */
	struct works commit_waiters; /* commits, and replayed durable writes */
	struct works done;	     /* completed, for rpmem_pool_poll() */
	struct commit commits[POOL_COMMITS];
	unsigned int ncommits;
	uint64_t commit_id;   /* id of the newest commit */
	uint64_t commit_upto; /* posted commits cover the entries below this */
	const char *commit_error;      /* error of the last commit, or NULL */
	unsigned int out;	       /* outstanding posts */
	struct piece_choice pieces[2]; /* piece sizes: [0] writes, [1] reads */
	struct post *free_posts, *all_posts;
	struct rp_journal_piece *replay;
	size_t nreplay, replay_next, replay_out;

	bool polling; /* a thread reads the completion queue */
	struct waiters waiters;
	pthread_t thread;
	bool thread_runs, closing;
	bool no_thread;		    /* the last attempt to start it failed */
	pthread_t lease_thread;	    /* lease.c */
	int lease_event;	    /* eventfd that wakes it, or -1: none */
	struct offer next;	    /* written by the connect thread */
	pthread_cond_t thread_done; /* both conditions: CLOCK_MONOTONIC */
	pthread_cond_t async_done;
};

/* error.c: set the error text of this thread; pool_text() needs pool->lock. */
int pool_error(int ret, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
char *pool_error_buf(void);
/* Copy a text, and keep the copy until the pool is closed. */
const char *pool_text(struct rpmem_pool *p, const char *s);
void pool_texts_free(struct rpmem_pool *p);

/* wait.c: wait for a condition of the pool, up to ms; releases the lock. */
void pool_cond_wait(struct rpmem_pool *p, pthread_cond_t *cond, uint64_t ms);
/* Make progress for up to ms, while no thread does (p->polling). Lock held. */
void pool_progress(struct rpmem_pool *p, int ms);
/*
 * Prepare to wait with poll(2) for the next completion. Returns 1: *fd becomes
 * readable by it; 0: there is no descriptor to wait for. Lowers *ms to the time
 * after which rpmem_pool_poll() must be called again.
 */
unsigned int pool_trywait(struct rpmem_pool *p, int *fd, int *ms);
/* Free a completed operation after its result was delivered. Lock held. */
void work_free(struct work *w);

/*
 * open.c: open a pool as the client with number `owner` (0: a new one). wait:
 * give the daemon attr->timeout to reply, as it may write the pool back first.
 * expected: return -ESTALE unless the pool's last exclusive client has this
 * number; NULL: it may have any.
 */
int pool_open_as(struct rpmem_pool **pool, const char *where,
		 const struct rpmem_pool_attr *attr, uint64_t owner,
		 const uint64_t *expected, bool wait);
/* Copy the caller's attributes; an older caller lacks the newer fields. */
int pool_copy_attr(struct rpmem_pool_attr *a,
		   const struct rpmem_pool_attr *attr);

/* connect.c: fetch and query what the daemon offers. Blocks. */
void pool_connect(struct rpmem_pool *p, struct offer *o);
/* Close the lease, so that the daemon may give the pool to other clients. */
void pool_release(struct offer *o);
/* Start the thread that reconnects until it succeeds. The lock is held. */
void pool_reconnect(struct rpmem_pool *p);

/*
 * lease.c: start the thread that reconnects as soon as the lease is lost, also
 * while no call needs the target. pool_lease_wake(): the pool has a new lease.
 */
int pool_lease_watch(struct rpmem_pool *p);
void pool_lease_wake(const struct rpmem_pool *p);
/* End the thread; p->closing is set. */
void pool_lease_unwatch(struct rpmem_pool *p);

/* work.c: make the lists of a new pool; free their entries at the close. */
void work_init(struct rpmem_pool *p);
void work_fini(struct rpmem_pool *p);
/* All of these need the lock. Append an operation to the queue. */
void work_add(struct rpmem_pool *p, struct work *w);
/* Post as many operations as possible. */
void work_post(struct rpmem_pool *p);
/* While the target is unreachable: fail operations after their deadline. */
void work_expire(struct rpmem_pool *p);
/* Read completions for up to ms; releases the lock while it waits. */
void work_progress(struct rpmem_pool *p, int ms);
/* The connection is lost: drain the posts and reconnect, if not yet begun. */
void work_lost(struct rpmem_pool *p, const char *reason);
/* Handle the result of a connection attempt: success, or a failed pool. */
void work_connected(struct rpmem_pool *p);

/* Called with the lock held, for commits.c. Complete an operation. */
void work_complete(struct rpmem_pool *p, struct work *w, int ret,
		   const char *error);
struct post *post_new(struct rpmem_pool *p); /* Returns NULL without memory. */
void post_free(struct rpmem_pool *p, struct post *t);
/*
 * Handle the result of a post: 0: accepted; -EAGAIN: try later; any other error
 * of the provider is a connection loss.
 */
int post_result(struct rpmem_pool *p, struct post *t, ssize_t ret);
static inline uint64_t pool_remote_addr(const struct rpmem_pool *p,
					uint64_t offset)
{
	return p->now.ex.addr + offset;
}

/* commits.c: post the commits that are needed. All of these need the lock. */
void commits_post(struct rpmem_pool *p);
/* A commit's post has completed. */
void commits_done(struct rpmem_pool *p, uint64_t id);
/* The target's disk failed: fail waiting commits, but do not reconnect. */
void commits_failed(struct rpmem_pool *p, const char *error);
/* Forget all outstanding commits: each must be posted again. */
void commits_drop(struct rpmem_pool *p);

#endif
