// SPDX-License-Identifier: BSD-2-Clause
/*
 * The event loop, not a log's thread, waits for a log's completions: before it
 * sleeps it arms the log's descriptor with uv_poll. A log that has none now,
 * for example because its target is away, goes back to its own thread.
 */
#include "config.h"

#include <stdlib.h>

#include "libraft/backend.h"

#define WAIT_MS 100  /* POOL_TICK_MS: trywait() gives less if work is due */
#define TRIES	1000 /* busy passes in a row before the thread polls the log */

/* A handle of uv, freed in closed(), which may come after its writer's end. */
struct uvpoll {
	uv_poll_t poll;
	struct backend *b;
	struct writer *w;
	int fd;
	bool active;
};

static void closed(uv_handle_t *h)
{
	struct uvpoll *uvpoll = h->data;
	struct backend *b = uvpoll->b;

	free(uvpoll);
	b->busy--;
	backend_idle(b);
}

static void uvpoll_stop(struct uvpoll *uvpoll)
{
	uv_poll_stop(&uvpoll->poll);
	uv_close((uv_handle_t *)&uvpoll->poll, closed);
}

/* The descriptor is readable: the next uvpoll_arm() calls writer_poll(). */
static void readable(uv_poll_t *poll, int status, int events)
{
	struct uvpoll *uvpoll = poll->data;

	(void)status;
	(void)events;
	/* It is not armed: the loop may not poll this log now. */
	if (!uvpoll->w->armed)
		uvpoll->active = uv_poll_stop(poll) != 0;
	uvpoll->w->armed = false;
}

static struct uvpoll *uvpoll_new(struct backend *b, struct writer *w, int fd)
{
	struct uvpoll *uvpoll = calloc(1, sizeof(*uvpoll));

	if (!uvpoll)
		return NULL;
	uvpoll->b = b;
	uvpoll->w = w;
	uvpoll->fd = fd;
	uvpoll->poll.data = uvpoll;
	if (uv_poll_init(b->loop, &uvpoll->poll, fd)) {
		free(uvpoll);
		return NULL;
	}
	b->busy++;
	return uvpoll;
}

/* Watch this descriptor of the log. Returns false if that is not possible. */
static bool uvpoll_start(struct backend *b, struct writer *w, int fd)
{
	if (w->uvpoll && w->uvpoll->fd != fd) {
		uvpoll_stop(w->uvpoll);
		w->uvpoll = NULL;
	}
	if (!w->uvpoll) {
		w->uvpoll = uvpoll_new(b, w, fd);
		w->uvpoll_stop = uvpoll_stop;
	}
	if (!w->uvpoll)
		return false;
	if (!w->uvpoll->active &&
	    uv_poll_start(&w->uvpoll->poll, UV_READABLE, readable))
		return false;
	w->uvpoll->active = w->armed = true;
	w->tries = 0;
	return true;
}

/* Poll a log until it is armed. True: the loop must not sleep yet. */
static bool arm(struct backend *b, struct writer *w, bool *completed)
{
	int fd = -1, ms, ret;

	while (!w->armed && writer_by_loop(w)) {
		*completed |= writer_poll(w);
		if (!writer_by_loop(w))
			break;
		ms = WAIT_MS;
		ret = rpmem_log_trywait(w->log, &fd, &ms);
		if (ret == 1 && ms == WAIT_MS && uvpoll_start(b, w, fd))
			break;
		if (ret == 0 && ms == 0 && w->tries++ < TRIES)
			return true;
		w->tries = 0;
		writer_leave(w);
	}
	return false;
}

bool uvpoll_arm(struct backend *b, bool *completed)
{
	bool again = arm(b, &b->store.w, completed);
	struct peer *p;

	TAILQ_FOREACH (p, &b->peers, link)
		if (p->ring.state == RING_OPEN || p->ring.state == RING_FAILED)
			again |= arm(b, &p->ring.w, completed);
	return again;
}

void uvpoll_disarm(struct backend *b)
{
	struct peer *p;

	b->store.w.armed = false;
	TAILQ_FOREACH (p, &b->peers, link)
		p->ring.w.armed = false;
}
