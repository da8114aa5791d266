// SPDX-License-Identifier: BSD-2-Clause
/* Private connections over TCP: channels, and memory regions for peers. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#include "rc/rc_tcp.h"

/* --- channels --- */

void rp_tcp_close(int fd)
{
	if (fd < 0)
		return;
	shutdown(fd, SHUT_RDWR);
	close(fd);
}

int rp_tcp_open_channel(struct tcp_channel *t)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = t};
	struct tcp_rc *f = tcp_rc(t->c.rc);

	if (epoll_ctl(f->data_fd, EPOLL_CTL_ADD, t->fd, &ev))
		return -errno;
	f->nopen++;
	t->registered = true;
	f->hot_channel = t;
	return 0;
}

void rp_tcp_want_room(struct tcp_channel *t, bool want)
{
	struct epoll_event ev = {.data.ptr = t};
	struct tcp_rc *f = tcp_rc(t->c.rc);

	if (t->wants_room == want)
		return;
	ev.events = want ? EPOLLIN | EPOLLOUT : EPOLLIN;
	if (epoll_ctl(f->data_fd, EPOLL_CTL_MOD, t->fd, &ev)) {
		t->send_failed = true;
		rp_tcp_add_work(t);
	}
	t->wants_room = want;
	f->nwant_room += want ? 1 : -1u;
}

void rp_tcp_add_work(struct tcp_channel *t)
{
	struct tcp_rc *f = tcp_rc(t->c.rc);

	if (t->has_work)
		return;
	t->has_work = true;
	TAILQ_INSERT_TAIL(&f->work, t, work);
	/* A sleeping thread gets no event for this work. */
	if (f->watches_data)
		f->rc.attr.kick(f->rc.attr.arg);
}

void rp_tcp_remove_work(struct tcp_channel *t)
{
	if (t->has_work)
		TAILQ_REMOVE(&tcp_rc(t->c.rc)->work, t, work);
	t->has_work = false;
}

void rp_tcp_frame_free(struct tcp_frame *f)
{
	if (f->mr)
		f->mr->users--;
	free(f);
}

void rp_tcp_shut(struct rp_rc_channel *c)
{
	struct tcp_channel *t = tcp_channel(c);
	struct tcp_rc *f = tcp_rc(c->rc);
	struct tcp_frame *frame;

	if (t->fd < 0)
		return;
	/* If a forked child has the socket, close() leaves it in the epoll. */
	epoll_ctl(t->registered ? f->data_fd : f->cm_fd, EPOLL_CTL_DEL, t->fd,
		  NULL);
	/* connect() to no address sends RST, even if a child has the socket. */
	if (c->base.flags & RP_CHANNEL_ABORTS)
		(void)connect(t->fd, &(struct sockaddr){.sa_family = AF_UNSPEC},
			      sizeof(struct sockaddr));
	rp_tcp_close(t->fd);
	t->fd = -1;
	f->nopen -= t->registered;
	f->nwant_room -= t->wants_room;
	if (f->hot_channel == t)
		f->hot_channel = NULL;
	rp_tcp_remove_work(t);
	while ((frame = STAILQ_FIRST(&t->queue))) {
		STAILQ_REMOVE_HEAD(&t->queue, link);
		rp_tcp_frame_free(frame);
	}
	if (t->mr)
		t->mr->users--;
	t->mr = NULL;
	free(t->input);
	free(t->opening);
	t->input = NULL;
	t->opening = NULL;
	/* accept() may be paused until a descriptor is free. */
	if (f->accept_paused)
		rp_rc_set_due(&f->rc, 1);
}

/* --- memory --- */

int rp_tcp_reg(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
	       struct rp_rc_mr *mr)
{
	struct tcp_rc *f = tcp_rc(rc);
	struct tcp_mr *m, *same;
	bool oom = false;
	int ret;

	if (access & RP_RC_REMOTE_FLUSH)
		return -FI_EOPNOTSUPP;
	access &= RP_RC_REMOTE_READ | RP_RC_REMOTE_WRITE;
	/* Local operations need no registration. */
	if (!access)
		return 0;
	m = malloc(sizeof(*m));
	if (!m)
		return -FI_ENOMEM;
	*m = (struct tcp_mr){.base = buf, .len = len, .access = access};
	do {
		ret = rc->attr.random(rc->attr.arg, &m->rkey, sizeof(m->rkey));
		HASH_FIND(hh, f->mrs, &m->rkey, sizeof(m->rkey), same);
	} while (!ret && same);
	if (!ret)
		HASH_ADD(hh, f->mrs, rkey, sizeof(m->rkey), m);
	if (ret || oom) {
		free(m);
		return ret ? ret : -FI_ENOMEM;
	}
	/* Remote addresses start at 0. */
	*mr = (struct rp_rc_mr){.handle = m, .rkey = m->rkey};
	return 0;
}

struct tcp_mr *rp_tcp_find_mr(struct tcp_rc *f, const struct tcp_head *h,
			      unsigned int access)
{
	struct tcp_mr *m;

	HASH_FIND(hh, f->mrs, &h->rkey, sizeof(h->rkey), m);
	return m && (m->access & access) && h->addr <= m->len &&
			       h->length <= m->len - h->addr
		       ? m
		       : NULL;
}

/* End channels with a transfer in progress to or from region m. */
static void end_channels_using(struct rp_rc_channels *channels,
			       struct tcp_mr *m)
{
	struct rp_rc_channel *c, *next;
	struct tcp_channel *t;
	struct tcp_frame *f;
	bool uses;

	TAILQ_FOREACH_SAFE(c, channels, link, next)
	{
		t = tcp_channel(c);
		uses = t->mr == m;
		if (uses)
			t->mr = NULL;
		STAILQ_FOREACH (f, &t->queue, link)
			if (f->mr == m) {
				uses = true;
				f->mr = NULL;
			}
		if (uses)
			rp_rc_end_channel(c, EACCES, NULL, 0);
	}
}

void rp_tcp_dereg(struct rp_rc *rc, struct rp_rc_mr *mr)
{
	struct tcp_rc *f = tcp_rc(rc);
	struct tcp_mr *m = mr->handle;

	HASH_DEL(f->mrs, m);
	if (m->users) {
		end_channels_using(&rc->ending, m);
		end_channels_using(&rc->channels, m);
	}
	free(m);
}
