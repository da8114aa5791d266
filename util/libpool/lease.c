// SPDX-License-Identifier: BSD-2-Clause
/* Watch the lease: the connection that keeps an exclusive pool open. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/thread.h"
#include "libpool/pool.h"

/* Milliseconds of one wait of this thread while the pool reconnects. */
#define TURN_MS 10
/* Milliseconds until the lease is watched again if no descriptor was free. */
#define RETRY_MS 1000

/*
 * Return when the lease is lost or pool_lease_wake() is called; after RETRY_MS
 * without a free descriptor. The lock is released meanwhile: another thread can
 * close the lease, so poll a copy, or replace it, which changes p->reconnects.
 * POLLRDHUP without POLLIN: bytes that the daemon should not send wake nobody.
 */
static void wait_for_loss(struct rpmem_pool *p)
{
	const uint64_t reconnects = p->reconnects;
	const int lease = fcntl(p->now.lease, F_DUPFD_CLOEXEC, 0);
	struct pollfd fds[] = {
		{.fd = lease, .events = POLLRDHUP}, /* -1: never ready */
		{.fd = p->lease_event, .events = POLLIN},
	};
	eventfd_t n;

	pthread_mutex_unlock(&p->lock);
	if (poll(fds, 2, lease < 0 ? RETRY_MS : -1) > 0 && fds[1].revents)
		eventfd_read(p->lease_event, &n);
	if (lease >= 0)
		close(lease);
	pthread_mutex_lock(&p->lock);
	if (fds[0].revents && reconnects == p->reconnects)
		work_lost(p, "fi_rpmemd has ended, or closed the connection");
}

/* Drive each reconnection; while another thread polls, that one drives it. */
static void *watch(void *arg)
{
	struct rpmem_pool *p = arg;

	pthread_mutex_lock(&p->lock);
	while (!p->closing && p->state != LINK_ENDED) {
		if (p->state == LINK_UP)
			wait_for_loss(p);
		else if (p->state == LINK_CONNECTING)
			pthread_cond_wait(&p->thread_done, &p->lock);
		else if (p->polling)
			pool_cond_wait(p, &p->thread_done, TURN_MS);
		else
			pool_progress(p, TURN_MS);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int pool_lease_watch(struct rpmem_pool *p)
{
	int ret;

	p->lease_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->lease_event < 0)
		return pool_error(-errno,
				  "watching the connection to pool '%s': %s; "
				  "close some files, or raise the limit "
				  "(ulimit -n)",
				  p->name, strerror(errno));
	ret = rp_thread_start(&p->lease_thread, watch, p);
	if (!ret)
		return 0;
	close(p->lease_event);
	p->lease_event = -1;
	return pool_error(-ret,
			  "no thread to watch the connection to pool '%s': "
			  "allow more processes (ulimit -u)",
			  p->name);
}

void pool_lease_wake(const struct rpmem_pool *p)
{
	if (p->lease_event >= 0)
		eventfd_write(p->lease_event, 1);
}

void pool_lease_unwatch(struct rpmem_pool *p)
{
	if (p->lease_event < 0)
		return;
	pool_lease_wake(p);
	pthread_join(p->lease_thread, NULL);
	close(p->lease_event);
	p->lease_event = -1;
}
