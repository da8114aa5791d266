// SPDX-License-Identifier: BSD-2-Clause
/*
 * A leader writes each message with entries to the follower's ring, a log in
 * the follower's pool, while it sends the message. The follower replies at
 * once. This file defers the reply until the message is durable in the ring, or
 * until the follower reports that its own log has all entries.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libraft/backend.h"

#define RETRY_MS  1000u
#define RING_MOST (1u << 20) /* most bytes of a message in a ring */

static void drop_deferred(struct ring *r)
{
	struct deferred *h;

	while ((h = TAILQ_FIRST(&r->deferred))) {
		TAILQ_REMOVE(&r->deferred, h, link);
		free(h);
	}
}

/*
 * Write nothing more to the ring, where outstanding messages may be missing.
 * ring_result() closes it when the follower's own log has all messages, and it
 * is opened again.
 */
static void ring_failed(struct ring *r)
{
	r->state = RING_FAILED;
	drop_deferred(r);
}

static void deliver_deferred(struct peer *p)
{
	struct ring *r = &p->ring;
	struct deferred *h;

	while ((h = TAILQ_FIRST(&r->deferred)) && h->seq <= r->acked) {
		TAILQ_REMOVE(&r->deferred, h, link);
		backend_deliver(p, &h->m);
		free(h);
	}
}

struct message {
	struct job job;
	struct peer *peer;
	uint64_t seq;
};

static void message_done(struct job *job, int result)
{
	struct message *m = (struct message *)job;
	struct ring *r = &m->peer->ring;

	if (r->state == RING_OPEN && result)
		ring_failed(r);
	else if (r->state == RING_OPEN)
		r->acked = m->seq;
	free(m);
}

static void open_ring(struct peer *p)
{
	struct ring *r = &p->ring;
	const uint64_t now = uv_now(p->b->loop);

	if (r->named) {
		free(r->where);
		r->where = r->named;
		r->named = NULL;
	}
	if (!r->where || !r->id || now < r->next_try || p->out != OUT_UP)
		return;
	r->next_try = now + RETRY_MS;
	r->w = (struct writer){.where = r->where,
			       .attr = backend_log_attr(p->b),
			       .wake = backend_wake,
			       .arg = p->b,
			       .may_poll = true};
	r->w.attr.log = 1;
	r->w.attr.take = 1;
	writer_init(&r->w);
	if (writer_start(&r->w))
		writer_stop(&r->w);
	else
		r->state = RING_OPENING;
	r->acked = r->base = r->seq;
	r->wrong = false;
	r->trimmed = 0;
}

void ring_send(struct peer *p, unsigned char *message, size_t len,
	       unsigned int entries, struct wire_head *h)
{
	struct ring *r = &p->ring;
	const struct iovec iov = {message, len};
	struct message *m;
	int ret;

	h->seq = r->seq;
	/* No thread may start once io_close() counts those that it awaits. */
	if (!entries || p->b->closing)
		return;
	if (r->state == RING_CLOSED)
		open_ring(p);
	if (r->state != RING_OPEN || p->out != OUT_UP || len > RING_MOST)
		return;
	m = calloc(1, sizeof(*m));
	if (!m)
		return;
	m->job.op.entries = &iov;
	m->job.op.count = 1;
	m->job.done = message_done;
	m->peer = p;
	m->seq = r->seq + 1;
	ret = writer_submit(&r->w, &m->job, false);
	if (ret) {
		free(m);
		if (ret != -ENOSPC && ret != -EAGAIN && ret != -EMSGSIZE)
			ring_failed(r);
		return;
	}
	h->ring = true;
	h->seq = r->seq = m->seq;
	h->lsn = m->job.op.next;
}

/* Trim the ring to kept_lsn: the follower does not need what is before. */
static void trim(struct ring *r, const struct wire_head *h)
{
	struct rpmem_log_info info = {.size = sizeof(info)};

	if (r->state != RING_OPEN || h->kept <= r->base || h->kept > r->acked ||
	    h->lsn <= r->trimmed || rpmem_log_query(r->w.log, &info) ||
	    h->lsn < info.head + info.capacity / 4)
		return;
	r->trimmed = h->lsn;
	(void)writer_trim(&r->w, h->lsn);
}

void ring_result(struct peer *p, const struct wire_head *h,
		 struct raft_message *m)
{
	struct ring *r = &p->ring;
	struct raft_message contact;
	struct deferred *d;

	trim(r, h);
	if (r->state == RING_FAILED && h->kept >= r->seq) {
		writer_end(&r->w);
		r->state = RING_CLOSING;
	}
	if (h->seq <= r->acked || h->kept >= h->seq ||
	    m->append_entries_result.rejected) {
		backend_deliver(p, m);
		return;
	}
	/* The leader has been in contact with the follower: it goes on leading.
	 */
	contact = *m;
	contact.append_entries_result.last_log_index = 0;
	backend_deliver(p, &contact);
	d = r->state == RING_OPEN ? malloc(sizeof(*d)) : NULL;
	if (!d) /* the next result repeats this one */
		return;
	d->m = *m;
	d->seq = h->seq;
	TAILQ_INSERT_TAIL(&r->deferred, d, link);
}

/*
 * Handle the HELLO of a new connection: deferred results of the peer's former
 * process are void. If h->kept, the ID of the peer's ring, is another one, the
 * ring that is open is not the peer's any more.
 */
void ring_hello(struct peer *p, const struct wire_head *h,
		const unsigned char *where)
{
	struct ring *r = &p->ring;

	drop_deferred(r);
	free(r->named);
	r->named = strndup((const char *)where, h->len);
	if (h->kept != r->id) {
		if (r->state == RING_OPEN)
			ring_failed(r);
		r->acked = 0;
	}
	r->id = h->kept;
}

/*
 * Whether the opened log is the peer's ring. The name of the peer's pool, such
 * as one on localhost, can be that of another pool here: nothing written there
 * would be durable at the peer.
 */
static bool is_ring_of_peer(const struct peer *p)
{
	struct rpmem_log_info info = {.size = sizeof(info)};

	if (rpmem_log_query(p->ring.w.log, &info))
		return false;
	if (info.id == p->ring.id)
		return true;
	if (p->ring.named) /* a process with another pool has connected */
		return false;
	fprintf(stderr,
		"rpmem_raft: %s is not the pool of server %llu, which names it "
		"so: give that server a name of its pool that is valid here\n",
		p->ring.where, p->id);
	return false;
}

void ring_reap(struct peer *p)
{
	struct ring *r = &p->ring;
	int ret;

	if (r->state == RING_CLOSED)
		return;
	if (r->state == RING_OPENING && writer_opened(&r->w, &ret)) {
		r->wrong = !ret && !is_ring_of_peer(p);
		if (r->wrong)
			writer_end(&r->w);
		r->state = ret || r->wrong ? RING_CLOSING : RING_OPEN;
	}
	if (r->state == RING_CLOSING && writer_ended(&r->w)) {
		writer_stop(&r->w);
		r->state = RING_CLOSED;
		if (r->wrong) {
			free(r->where);
			r->where = NULL;
		}
		return;
	}
	writer_reap(&r->w);
	deliver_deferred(p);
}

void ring_close(struct peer *p)
{
	struct ring *r = &p->ring;

	drop_deferred(r);
	if (r->state == RING_CLOSED)
		return;
	writer_end(&r->w);
	r->state = RING_CLOSING;
}
