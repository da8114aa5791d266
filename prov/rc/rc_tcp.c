// SPDX-License-Identifier: BSD-2-Clause
/* Private connections over TCP: the backend's poll() and trywait(). */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#include "rc/rc_tcp.h"

/* Longest injected SEND: it is copied if the socket is full. */
#define INJECT 256
/* Most epoll events, and so channels, per poll. */
#define BATCH 32
/* Consecutive reads of the only open channel's socket without epoll. */
#define MAX_HOT_READS 64

static int tcp_open(struct rp_rc *rc, char *why, size_t why_size)
{
	struct tcp_rc *f = tcp_rc(rc);
	int ret;

	f->listener = f->data_fd = f->cm_fd = -1;
	TAILQ_INIT(&f->work);
	TAILQ_INIT(&f->half_open);
	TAILQ_INIT(&f->recvs);
	f->data_fd = epoll_create1(EPOLL_CLOEXEC);
	if (f->data_fd >= 0)
		f->cm_fd = epoll_create1(EPOLL_CLOEXEC);
	ret = f->cm_fd < 0 ? -errno : rp_rc_watch_fd(rc, f->cm_fd);
	if (ret) {
		snprintf(why, why_size, "%s", strerror(-ret));
		return ret;
	}
	rc->flags = RP_CHANNEL_FENCES;
	rc->inject = INJECT;
	rc->shared = RP_RC_MAX_RECVS;
	return 0;
}

static void tcp_close(struct rp_rc *rc)
{
	struct tcp_rc *f = tcp_rc(rc);

	rp_tcp_close_half_open(f);
	rp_tcp_close(f->listener);
	if (f->cm_fd >= 0)
		close(f->cm_fd);
	if (f->data_fd >= 0)
		close(f->data_fd);
}

static int tcp_post_recv(struct rp_rc *rc, struct rp_rc_recv *r)
{
	TAILQ_INSERT_TAIL(&tcp_rc(rc)->recvs, r, link);
	return 0;
}

/* --- polling --- */

static int serve_channel(struct tcp_channel *t)
{
	int n = rp_tcp_receive_input(t);

	if (n || t->starved)
		return n;
	/* Sending has failed, and all input that came before was read. */
	if (t->send_failed)
		rp_rc_end_channel(&t->c, ECONNRESET, NULL, 0);
	rp_tcp_remove_work(t);
	return t->send_failed;
}

/*
 * Serve each channel of f->work once, while receives are free. A channel with
 * more work moves to the end, so that a flooding peer gets no extra receives.
 */
static int serve_work(struct tcp_rc *f)
{
	struct tcp_channel *t, *last = TAILQ_LAST(&f->work, tcp_works);
	int n = 0;

	while (last && !TAILQ_EMPTY(&f->recvs)) {
		t = TAILQ_FIRST(&f->work);
		if (t == last)
			last = NULL;
		if (t->c.state == RP_RC_UP)
			n += serve_channel(t);
		if (!t->has_work)
			continue;
		TAILQ_REMOVE(&f->work, t, work);
		TAILQ_INSERT_TAIL(&f->work, t, work);
	}
	return n;
}

static int handle_events(struct tcp_channel *t, uint32_t what)
{
	int n = 0;

	if (t->c.state != RP_RC_UP)
		return 0;
	if (t->nqueued && (what & EPOLLOUT))
		n += rp_tcp_flush(t);
	if (what & ~EPOLLOUT)
		n += rp_tcp_receive_input(t);
	return n;
}

static int tcp_poll(struct rp_rc *rc, int max)
{
	struct tcp_rc *f = tcp_rc(rc);
	struct epoll_event ev[BATCH];
	struct tcp_channel *t;
	int n = serve_work(f), got;

	if (!f->nopen)
		return n;
	t = f->nopen == 1 && !f->nwant_room && f->npolls++ % MAX_HOT_READS
		    ? f->hot_channel
		    : NULL;
	if (t)
		return t->c.state == RP_RC_UP ? n + rp_tcp_receive_input(t) : n;
	got = epoll_wait(f->data_fd, ev, max < BATCH ? max : BATCH, 0);
	for (int i = 0; i < got; i++) {
		n += handle_events(ev[i].data.ptr, ev[i].events);
		f->hot_channel = ev[i].data.ptr;
	}
	return n;
}

/*
 * Add data_fd to rp_rc_fd() only while a thread sleeps: each level of epoll
 * above a socket costs time for every packet.
 */
static int tcp_trywait(struct rp_rc *rc)
{
	struct tcp_rc *f = tcp_rc(rc);
	int ret;

	if (!rc->attr.waits)
		return -FI_EAGAIN;
	if (!f->watches_data) {
		ret = rp_rc_watch_fd(rc, f->data_fd);
		if (ret)
			return ret;
		f->watches_data = true;
	}
	return TAILQ_EMPTY(&f->work) ? 0 : -FI_EAGAIN;
}

const struct rp_rc_ops rp_rc_tcp = {
	.rc_size = sizeof(struct tcp_rc),
	.channel_size = sizeof(struct tcp_channel),
	.open = tcp_open,
	.close = tcp_close,
	.listen = rp_tcp_listen,
	.connect = rp_tcp_connect,
	.accept = rp_tcp_accept,
	.reject = rp_tcp_reject,
	.post = rp_tcp_post,
	.shut = rp_tcp_shut,
	.post_recv = tcp_post_recv,
	.reg = rp_tcp_reg,
	.dereg = rp_tcp_dereg,
	.poll = tcp_poll,
	.poll_events = rp_tcp_poll_events,
	.trywait = tcp_trywait,
};
