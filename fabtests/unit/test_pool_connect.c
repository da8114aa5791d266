// SPDX-License-Identifier: BSD-2-Clause
/*
 * Clients that wait for an absent daemon. Only their pauses advance the clock,
 * and the daemon returns at a certain time of it.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "libpool/pool.h"

static struct rpmem_pool pool;
static uint64_t now, daemon_returns_at; /* clock, ms */
static uint64_t step; /* ms by which each reading advances the clock */
static unsigned int attempts;

int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	*t = (struct timespec){
		.tv_sec = (time_t)(now / 1000),
		.tv_nsec = (long)(now % 1000) * 1000000,
	};
	now += step;
	return 0;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
	now += n ? 0 : (uint64_t)ms;
	return (int)n;
}

/* The test ends with the first attempt that meets the daemon. */
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len)
{
	attempts++;
	pool.closing = now >= daemon_returns_at;
	errno = pool.closing ? ENETDOWN : ECONNREFUSED;
	return -1;
}

static bool no_thread;
int __real_pthread_create(pthread_t *, const pthread_attr_t *,
			  void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *,
			  void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			  void *(*run)(void *), void *arg)
{
	return no_thread ? EAGAIN
			 : __real_pthread_create(thread, attr, run, arg);
}

void pool_cond_wait(struct rpmem_pool *p, pthread_cond_t *cond, uint64_t ms)
{
	cr_assert_leq(ms, 1000, "a pause of %" PRIu64 " ms", ms);
	now += ms;
}

const char *pool_text(struct rpmem_pool *p, const char *s)
{
	return s;
}

void work_connected(struct rpmem_pool *p)
{
	cr_assert_fail("connected");
}

/* Connect to a daemon that is absent for ms, with an open pool or a new one. */
static void connect_to_absent_daemon(uint64_t ms, bool again)
{
	const struct rp_setup_open how = {.owner = 1};
	static struct fid_ep ep;
	struct rp_setup_export ex;
	char err[RP_ERR_LEN];
	int lease;

	now = 1000000;
	attempts = 0;
	daemon_returns_at = now + ms;
	pool = (struct rpmem_pool){
		.target = {.host = "127.0.0.1", .port = 1},
		.name = "pool",
		.f.ep = again ? &ep : NULL,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.thread_done = PTHREAD_COND_INITIALIZER,
	};
	if (again) {
		pool_reconnect(&pool);
		pthread_join(pool.thread, NULL);
		return;
	}
	pool.target.wait_ms = 100000;
	cr_assert_eq(
		rp_setup_open(&pool.target, "pool", &how, &ex, &lease, err),
		-EHOSTUNREACH, "%s", err);
}

Test(pool_connect, daemon_is_found_soon_after_its_return_by_few_attempts)
{
	for (int again = 0; again < 2; again++)
		for (uint64_t away = 0; away < 30000; away += 1 + away / 50) {
			connect_to_absent_daemon(away, again);
			cr_assert(now - daemon_returns_at <= 2 + away / 5 &&
					  now - daemon_returns_at < 1000,
				  "found %" PRIu64 " ms behind %" PRIu64,
				  now - daemon_returns_at, away);
			cr_assert_leq(attempts, 50 + away / 1000);
		}
}

/* LINK_DRAINING: the next call of work_progress() tries again. */
Test(pool_connect, a_client_that_gets_no_thread_tries_again)
{
	pool = (struct rpmem_pool){.name = "pool", .state = LINK_CONNECTING};
	no_thread = true;
	pool_reconnect(&pool);
	no_thread = false;
	cr_assert_eq(pool.state, LINK_DRAINING);
	cr_assert(strstr(pool.reason, "allow more processes (ulimit -u)"));
	connect_to_absent_daemon(0, true);
	cr_assert_eq(attempts, 1);
}

/* A thread that loses its processor sees the clock jump between two reads. */
Test(pool_connect, pause_is_short_if_the_clock_passes_its_end_meanwhile)
{
	for (step = 1; step < 100; step++)
		connect_to_absent_daemon(30000, true);
	step = 0;
}
