/* SPDX-License-Identifier: BSD-2-Clause */
/* A group with threads, for group_threads.c, group_calls.c and group_open.c. */
#ifndef RP_LIBPOOL_GROUP_THREADS_H
#define RP_LIBPOOL_GROUP_THREADS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "libpool/group.h"
#include "libpool/pool.h"

#define GROUP_START_MS 2000 /* wait for members that may be starting */
#define GROUP_TICK_MS  100

/* A member: the handle of its pool, and the thread that opens it. */
struct member_pool {
	struct pool_group *of;
	unsigned int index;
	char *where;
	struct rpmem_pool *pool; /* NULL: the pool is closed */
	bool reopen, opened_once;
	uint64_t seen; /* the owner that an observer found before the opening */
	unsigned char uuid[16]; /* uuid of the pool opened last */
	unsigned int part;
	pthread_t thread;
	bool thread_runs;
};

/* A thread in a blocking call. */
struct call {
	LIST_ENTRY(call) link;
	const struct rpmem_pool_op *op;
	bool done;
};

struct pool_group {
	struct rpmem_pool *p; /* the caller's handle; its lock guards all */
	struct group g;
	struct rpmem_pool_attr attr;
	uint64_t owner; /* number by which all daemons know this client */
	uint64_t given; /* epoch from the name, or 0 */
	struct member_pool pools[GROUP_MEMBERS];
	LIST_HEAD(, call) calls;
	struct rpmem_pool_op **done; /* completed, oldest first */
	size_t ndone, nout, size;    /* nout: submitted and not in done */
	uint64_t reconnects;
	bool polling, closing, started;
	int wake; /* eventfd that wakes the polling thread */
	pthread_cond_t changed;
	pthread_t background; /* makes progress while no caller does */
	bool background_runs;
};

/* Start a thread for each member, which opens the member. */
int pool_group_start(struct pool_group *pg, unsigned int k);
/*
 * Called with the lock held, like the next two functions. Process completions
 * of members; returns whether there were any.
 */
bool pool_group_collect(struct pool_group *pg);
/* Make progress, or wait for the thread that does. */
void pool_group_progress(struct pool_group *pg, int ms);
/* Keep a text that names the member and the cause. */
const char *pool_group_text(struct pool_group *pg, unsigned int member,
			    const char *cause);
/* The cause of a member's connection loss; NULL: it is connected. */
const char *pool_group_lost(struct rpmem_pool *pool);
/* Wake the thread that polls. */
void pool_group_wake(struct pool_group *pg);
/* Thread that makes progress while no caller does; pg is its argument. */
void *pool_group_background(void *pg);

#endif
