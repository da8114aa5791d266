// SPDX-License-Identifier: BSD-2-Clause
/* Private connections over TCP: send frames, or queue them. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "rc/rc_tcp.h"

/* Most frames and iovecs (headers and data) per sendmsg(). */
#define BATCH  8
#define PIECES (BATCH * (RP_CHANNEL_IOV + 1))
/* Most DATA and PLACED frames that a peer may leave unread. */
#define MAX_REPLIES (2 * RP_RC_DEPTH)

/* Make the frame f of an operation. 0, or a positive errno. */
static int make_frame(struct tcp_frame *f, struct rp_channel_op *op)
{
	const uint64_t bytes = rp_rc_op_bytes(op);
	struct tcp_head h = {
		.length = bytes,
		.addr = op->remote_addr,
		.rkey = op->rkey,
	};

	f->op = op;
	f->iov = op->iov;
	f->iov_count = op->iov_count;
	f->sent = 0;
	f->mr = NULL;
	f->len = bytes;
	switch (op->kind) {
	case RP_CHANNEL_SEND:
		h.type = RP_TCP_MESSAGE;
		break;
	case RP_CHANNEL_WRITE:
		h.type = RP_TCP_WRITE;
		h.acknowledged = op->delivered;
		break;
	case RP_CHANNEL_READ:
		if (!op->iov_count && op->length > sizeof(uint64_t))
			return EINVAL;
		h.type = RP_TCP_READ;
		h.length = rp_tcp_read_len(op);
		f->iov_count = 0;
		f->len = 0;
		break;
	default:
		return EOPNOTSUPP;
	}
	f->hdr_len = rp_tcp_put(&f->hdr, &h);
	f->len += f->hdr_len;
	return 0;
}

/* Set `to` to the unsent pieces of a frame, at most *room bytes. */
static inline unsigned int gather_unsent(const struct tcp_frame *f,
					 struct iovec *to, uint64_t *room)
{
	const struct iovec hdr = {(void *)&f->hdr, f->hdr_len};
	uint64_t skip = f->sent;
	unsigned int n = rp_tcp_slice(&hdr, 1, &skip, room, to);

	return n + rp_tcp_slice(f->iov, f->iov_count, &skip, room, to + n);
}

/* Send pieces. Returns the bytes accepted; an error ends the channel later. */
static inline size_t send_pieces(struct tcp_channel *t, struct iovec *iov,
				 unsigned int n)
{
	const struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
	ssize_t sent = n == 1 ? send(t->fd, iov->iov_base, iov->iov_len,
				     MSG_DONTWAIT | MSG_NOSIGNAL)
			      : sendmsg(t->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (sent >= 0) {
		t->budget -= (uint64_t)sent;
		return (size_t)sent;
	}
	if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS) {
		t->send_failed = true;
		rp_tcp_add_work(t);
	}
	return 0;
}

/* A frame is sent: complete its operation, unless the peer's reply does. */
static inline void complete_sent(struct tcp_channel *t,
				 const struct tcp_frame *f)
{
	struct rp_channel_op *op = f->op;

	if (op && !op->inject &&
	    (op->kind == RP_CHANNEL_SEND ||
	     (op->kind == RP_CHANNEL_WRITE && !op->delivered)))
		rp_rc_complete_op(t->c.rc, op, 0);
}

/* Deduct the frame's part of the sent bytes. Returns the remaining bytes. */
static inline size_t count_sent(struct tcp_frame *f, size_t sent)
{
	const uint64_t left = f->len - f->sent;
	const size_t n = sent < left ? sent : (size_t)left;

	f->sent += n;
	return sent - n;
}

/* Queue the unsent part of a frame, as a copy on the heap. */
static void enqueue_frame(struct tcp_channel *t, const struct tcp_frame *f)
{
	const bool inject = f->op && f->op->inject;
	const size_t bytes = inject ? rp_rc_op_bytes(f->op) : 0;
	struct tcp_frame *entry = malloc(sizeof(*entry) + bytes);

	if (!entry) {
		/* Part of the frame may be sent: no frame can follow. */
		t->send_failed = true;
		rp_tcp_add_work(t);
		return;
	}
	*entry = *f;
	if (inject) {
		rp_iov_gather(entry->copy, f->op->iov, f->op->iov_count);
		entry->data_iov = (struct iovec){entry->copy, bytes};
		entry->iov_count = 1;
		entry->op = NULL; /* injected: on caller's stack */
	}
	if (inject || f->iov == &f->data_iov)
		entry->iov = &entry->data_iov;
	if (entry->mr)
		entry->mr->users++;
	STAILQ_INSERT_TAIL(&t->queue, entry, link);
	t->nqueued++;
	rp_tcp_want_room(t, true);
}

/*
 * Send n <= BATCH new frames unless others are queued; queue what is unsent.
 * After an error the operations of these frames fail when the channel ends.
 */
static void send_frames(struct tcp_channel *t, struct tcp_frame *f,
			unsigned int n)
{
	struct iovec iov[PIECES];
	uint64_t room = t->budget;
	unsigned int pieces = 0;
	size_t sent = 0;

	if (!t->nqueued) {
		for (unsigned int i = 0; i < n; i++)
			pieces += gather_unsent(&f[i], iov + pieces, &room);
		if (pieces)
			sent = send_pieces(t, iov, pieces);
	}
	for (unsigned int i = 0; i < n; i++) {
		sent = count_sent(&f[i], sent);
		if (f[i].sent == f[i].len)
			complete_sent(t, &f[i]);
		else if (!t->send_failed)
			enqueue_frame(t, &f[i]);
	}
}

static bool has_post_room(const struct tcp_channel *t, unsigned int more)
{
	return t->c.nposted + t->c.ndone < RP_RC_DEPTH &&
	       t->nqueued + more < RP_RC_DEPTH;
}

int rp_tcp_post(struct rp_channel *base, struct rp_channel_op *ops[], int n)
{
	struct rp_rc_channel *c = (struct rp_rc_channel *)base;
	struct tcp_channel *t = tcp_channel(c);
	struct tcp_frame f[BATCH];
	unsigned int frames;
	int i = 0, err = 0;

	t->budget = TCP_SEND_BYTES;
	while (i < n && !err && has_post_room(t, 0)) {
		for (frames = 0;
		     i < n && frames < BATCH && has_post_room(t, frames);
		     frames++, i++) {
			err = make_frame(&f[frames], ops[i]);
			if (err)
				break;
			if (!ops[i]->inject)
				rp_rc_add_posted(c, ops[i]);
		}
		if (!t->send_failed)
			send_frames(t, f, frames);
	}
	if (!err)
		return i;
	/* Accept the failed operation: rc.c fails it after c has ended. */
	if (ops[i]->inject)
		rp_rc_end_channel(c, err, NULL, 0);
	else
		rp_rc_fail_op(c, ops[i], err);
	return i + 1;
}

static int send_reply(struct tcp_channel *t, struct tcp_frame *f,
		      enum rp_tcp_type type, uint64_t length)
{
	const struct tcp_head h = {.type = type, .length = length};

	if (t->nqueued >= MAX_REPLIES)
		return ENOBUFS;
	f->hdr_len = rp_tcp_put(&f->hdr, &h);
	f->iov = &f->data_iov;
	f->len = f->hdr_len + (f->iov_count ? length : 0);
	if (!t->send_failed)
		send_frames(t, f, 1);
	return 0;
}

int rp_tcp_reply_placed(struct tcp_channel *t)
{
	struct tcp_frame f = {.iov_count = 0};
	const unsigned int n = t->placed_due;

	t->placed_due = 0;
	return n ? send_reply(t, &f, RP_TCP_PLACED, n) : 0;
}

int rp_tcp_reply_data(struct tcp_channel *t, struct tcp_mr *mr, uint64_t addr,
		      uint64_t len)
{
	struct tcp_frame f = {
		.data_iov = {mr->base + addr, len},
		.iov_count = 1,
		.mr = mr,
	};
	/* DATA and PLACED are sent in the order of the requests. */
	int err = rp_tcp_reply_placed(t);

	return err ? err : send_reply(t, &f, RP_TCP_DATA, len);
}

bool rp_tcp_flush(struct tcp_channel *t)
{
	struct iovec iov[PIECES];
	struct tcp_frame *f;
	unsigned int pieces, frames;
	bool any = false;
	uint64_t room;
	size_t sent;

	t->budget = TCP_SEND_BYTES;
	while (t->nqueued && t->budget && !t->send_failed) {
		pieces = frames = 0;
		room = t->budget;
		STAILQ_FOREACH (f, &t->queue, link) {
			if (frames++ == BATCH)
				break;
			pieces += gather_unsent(f, iov + pieces, &room);
		}
		sent = send_pieces(t, iov, pieces);
		if (!sent)
			break;
		any = true;
		while (sent && (f = STAILQ_FIRST(&t->queue))) {
			sent = count_sent(f, sent);
			if (f->sent < f->len)
				break;
			STAILQ_REMOVE_HEAD(&t->queue, link);
			t->nqueued--;
			complete_sent(t, f);
			rp_tcp_frame_free(f);
		}
	}
	if (!t->nqueued)
		rp_tcp_want_room(t, false);
	return any;
}

bool rp_tcp_op_is_sent(const struct tcp_channel *t,
		       const struct rp_channel_op *op)
{
	const struct tcp_frame *f;

	STAILQ_FOREACH (f, &t->queue, link)
		if (f->op)
			return f->op != op;
	return true;
}
