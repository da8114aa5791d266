/* SPDX-License-Identifier: BSD-2-Clause */
/* A log with asynchronous appends, polled by a thread. */
#ifndef RP_RAFT_WRITER_H
#define RP_RAFT_WRITER_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "rpmem_log.h"

/* One append to the log. */
struct job {
	struct rpmem_log_op op;
	TAILQ_ENTRY(job) link;
	/* Called once by writer_reap() or writer_stop(): 0 or -errno. */
	void (*done)(struct job *job, int result);
	void *arg;
};
TAILQ_HEAD(jobs, job);

struct writer {
	struct rpmem_log *log;
	const char *where;
	struct rpmem_log_attr attr;
	void (*wake)(void *arg); /* the thread has jobs to reap */
	void *arg;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool threaded, stop, ended;
	/*
	 * The event loop may poll the log instead of the thread: then no thread
	 * has to be woken for an append, and none wakes the loop.
	 */
	bool may_poll;
	bool by_loop; /* the event loop polls for the jobs in `out` */
	/* The loop's: its descriptor reports all that has not been polled. */
	bool armed;
	unsigned int tries;    /* to arm it since it was armed last */
	struct uvpoll *uvpoll; /* uvpoll.c: the event loop's handle, or NULL */
	void (*uvpoll_stop)(struct uvpoll *uvpoll);
	struct jobs out, done; /* outstanding jobs, completed jobs */
	uint64_t trim;	       /* LSN to which the thread trims; 0: no trim */
	bool opened;	       /* the thread has tried to open the log */
	int open_result;
};

void writer_init(struct writer *w);
/*
 * Start a thread that opens the log, unless it is open, and polls it. Without a
 * thread, writer_reap() polls.
 */
int writer_start(struct writer *w);
/* Tell the thread to close the log and exit; do not wait for it. */
void writer_end(struct writer *w);
bool writer_ended(struct writer *w);
/* End the thread, close the log; jobs not yet reaped get -ECANCELED. */
void writer_stop(struct writer *w);
/* wait: wait for room among outstanding jobs instead of -EAGAIN. */
int writer_submit(struct writer *w, struct job *job, bool wait);
/* Call done() of completed jobs. */
void writer_reap(struct writer *w);
int writer_trim(struct writer *w, uint64_t lsn);
/* Whether the event loop has to poll for outstanding jobs. */
bool writer_by_loop(struct writer *w);
/* Poll once, without waiting. Returns whether a job has completed. */
bool writer_poll(struct writer *w);
/* Let the thread poll for the outstanding jobs, instead of the event loop. */
void writer_leave(struct writer *w);
/* Whether the thread has tried to open the log; *result: its result. */
bool writer_opened(struct writer *w, int *result);

#endif
