/* SPDX-License-Identifier: BSD-2-Clause */
/* A log that is appended to without waiting, with a thread that polls it. */
#ifndef RP_RAFT_WRITER_H
#define RP_RAFT_WRITER_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "rpmem_log.h"

/* An append. */
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
	void (*wake)(void *arg); /* by the thread: there is work to reap */
	void *arg;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool threaded, stop, ended;
	struct jobs out, done; /* outstanding, and complete */
	uint64_t trim;	       /* the thread trims up to here; 0: nothing */
	bool opened;	       /* the thread has tried to open the log */
	int open_result;
};

void writer_init(struct writer *w);
/*
 * The thread opens the log if it is not open, and polls it. Without the thread
 * writer_reap() polls.
 */
int writer_start(struct writer *w);
/* Let the thread close the log and end, without waiting for it. */
void writer_end(struct writer *w);
bool writer_ended(struct writer *w);
/* End the thread, close the log; jobs that are not reaped get -ECANCELED. */
void writer_stop(struct writer *w);
/* wait: for room among the outstanding jobs, in place of -EAGAIN. */
int writer_submit(struct writer *w, struct job *job, bool wait);
/* Call done() of complete jobs. */
void writer_reap(struct writer *w);
int writer_trim(struct writer *w, uint64_t lsn);
/* The thread has tried to open the log; *result: with what result. */
bool writer_opened(struct writer *w, int *result);

#endif
