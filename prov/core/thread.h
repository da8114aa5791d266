/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads, clocks and random numbers of this process. */
#ifndef RP_THREAD_H
#define RP_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/random.h>
#include <time.h>

static inline uint64_t rp_clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Random bytes that a peer cannot guess. 0 or -errno. */
static inline int rp_random(void *buf, size_t len)
{
	return getrandom(buf, len, 0) == (ssize_t)len ? 0 : -errno;
}

/* Start a thread that takes no signal but its own faults. 0 or an errno. */
static inline int rp_thread_start(pthread_t *thread, void *(*run)(void *),
				  void *arg)
{
	sigset_t all, old;
	int ret;

	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSEGV);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret;
}

#endif
