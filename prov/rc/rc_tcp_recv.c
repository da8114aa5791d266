// SPDX-License-Identifier: BSD-2-Clause
/* Private connections over TCP: receive and parse input of a hostile peer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "rc/rc_tcp.h"

/* Most reads per rp_tcp_receive_input(), and most bytes of data per read. */
#define MAX_READS  8
#define READ_BYTES (1u << 20)

/* --- the data of WRITE and DATA --- */

/* Set iov to the destination of the next data, at most `most` bytes. */
static unsigned int payload_iov(const struct tcp_channel *t, struct iovec *iov,
				uint64_t most)
{
	uint64_t left = t->payload_left < most ? t->payload_left : most,
		 skip = t->op_offset;
	const struct rp_channel_op *op = t->op;

	if (!op) {
		*iov = (struct iovec){t->write_at, left};
		return 1;
	}
	if (!op->iov_count) {
		*iov = (struct iovec){&tcp_rc(t->c.rc)->fence_scratch, left};
		return 1;
	}
	return rp_tcp_slice(op->iov, op->iov_count, &skip, &left, iov);
}

static void complete_payload(struct tcp_channel *t)
{
	struct rp_channel_op *op = t->op;

	if (op) {
		t->op = NULL;
		rp_rc_complete_op(t->c.rc, op, 0);
		return;
	}
	t->mr->users--;
	t->mr = NULL;
	t->placed_due += t->replies_placed;
}

/* Count n more bytes of data as placed. True: the data is complete. */
static bool count_payload(struct tcp_channel *t, uint64_t n)
{
	t->payload_left -= n;
	t->op_offset += n;
	if (!t->op)
		t->write_at += n;
	if (t->payload_left)
		return false;
	complete_payload(t);
	return true;
}

static size_t copy_payload(struct tcp_channel *t, const uint8_t *from,
			   size_t len)
{
	struct iovec iov[RP_CHANNEL_IOV];
	const unsigned int n = payload_iov(t, iov, len);

	rp_iov_scatter(iov, n, from);
	return rp_iov_len(iov, n);
}

/* --- frames --- */

/*
 * Get the oldest posted operation, if it has this kind and is fully sent; else
 * NULL. A WRITE without acknowledgment completed when it was sent.
 */
static struct rp_channel_op *oldest_sent_op(struct tcp_channel *t,
					    enum rp_channel_kind kind)
{
	struct rp_channel_op *op = TAILQ_FIRST(&t->c.posted);

	return op && op->kind == kind && rp_tcp_op_is_sent(t, op) ? op : NULL;
}

static int deliver_message(struct tcp_channel *t, const uint8_t *bytes,
			   size_t len)
{
	struct tcp_rc *f = tcp_rc(t->c.rc);
	struct rp_rc_recv *r = TAILQ_FIRST(&f->recvs);

	if (!r) {
		t->starved = true;
		rp_tcp_add_work(t);
		return -EAGAIN;
	}
	TAILQ_REMOVE(&f->recvs, r, link);
	memcpy(r->buf, bytes, len);
	rp_rc_complete_recv(t->c.rc, &t->c, r, len);
	return 0;
}

static int begin_write(struct tcp_channel *t, const struct tcp_head *h)
{
	struct tcp_mr *mr =
		rp_tcp_find_mr(tcp_rc(t->c.rc), h, RP_RC_REMOTE_WRITE);

	if (!mr)
		return EACCES;
	t->mr = mr;
	mr->users++;
	t->write_at = mr->base + h->addr;
	t->replies_placed = h->acknowledged;
	t->payload_left = h->length;
	if (!t->payload_left)
		complete_payload(t);
	return 0;
}

static int reply_to_read(struct tcp_channel *t, const struct tcp_head *h)
{
	struct tcp_mr *mr =
		rp_tcp_find_mr(tcp_rc(t->c.rc), h, RP_RC_REMOTE_READ);

	return mr ? rp_tcp_reply_data(t, mr, h->addr, h->length) : EACCES;
}

static int begin_data(struct tcp_channel *t, uint64_t len)
{
	struct rp_channel_op *op = oldest_sent_op(t, RP_CHANNEL_READ);

	if (!op || len != rp_tcp_read_len(op))
		return EPROTO;
	t->op = op;
	t->op_offset = 0;
	t->payload_left = len;
	if (!len)
		complete_payload(t);
	return 0;
}

static int complete_placed(struct tcp_channel *t, uint64_t n)
{
	struct rp_channel_op *op;

	for (; n; n--) {
		op = oldest_sent_op(t, RP_CHANNEL_WRITE);
		if (!op)
			return EPROTO;
		rp_rc_complete_op(t->c.rc, op, 0);
	}
	return 0;
}

/*
 * Parse a header and begin its frame; a MESSAGE is parsed with its data. 0:
 * *used is the number of bytes consumed, 0 if header or message is incomplete.
 * -EAGAIN: no receive is free for the message, try again later. A positive
 * errno ends the channel.
 */
static int parse_frame(struct tcp_channel *t, const uint8_t *bytes, size_t len,
		       size_t *used)
{
	struct tcp_head h;
	int ret = rp_tcp_get(bytes, len, &h);

	*used = 0;
	if (ret <= 0)
		return ret ? EPROTO : 0;
	*used = rp_tcp_head_len(h.type);
	switch (h.type) {
	case RP_TCP_MESSAGE:
		if (h.length > RP_WIRE_MAX_MSG)
			return EMSGSIZE;
		bytes += *used;
		*used += h.length;
		if (*used <= len)
			return deliver_message(t, bytes, h.length);
		*used = 0;
		return 0;
	case RP_TCP_WRITE:
		return begin_write(t, &h);
	case RP_TCP_READ:
		return reply_to_read(t, &h);
	case RP_TCP_DATA:
		return begin_data(t, h.length);
	case RP_TCP_PLACED:
		return complete_placed(t, h.length);
	default:
		return EPROTO;
	}
}

/*
 * Parse and place bytes up to the first incomplete header or message, or to a
 * message without a free receive. Returns the bytes consumed; all if the
 * channel ends. *steps counts headers, and ends of data.
 */
static size_t parse_bytes(struct tcp_channel *t, const uint8_t *bytes,
			  size_t len, int *steps)
{
	size_t at = 0, used;
	int ret;

	while (at < len) {
		if (t->payload_left) {
			used = copy_payload(t, bytes + at, len - at);
			*steps += count_payload(t, used);
			at += used;
			continue;
		}
		ret = parse_frame(t, bytes + at, len - at, &used);
		if (ret > 0) {
			rp_rc_end_channel(&t->c, ret, NULL, 0);
			return len;
		}
		if (ret || !used)
			break;
		at += used;
		++*steps;
	}
	return at;
}

/* --- reading --- */

/* Store unparsed bytes in t->input. False: no memory. */
static bool keep_input(struct tcp_channel *t, const uint8_t *bytes, size_t len)
{
	if (!len) {
		free(t->input);
		t->input = NULL;
	} else if (!t->input) {
		t->input = malloc(TCP_STAGE);
		if (!t->input)
			return false;
	}
	if (len)
		memmove(t->input, bytes, len);
	t->input_len = len;
	return true;
}

/* Parse a buffer, and store unparsed bytes. Returns parse_bytes()'s steps. */
static int parse_and_keep(struct tcp_channel *t, const uint8_t *bytes,
			  size_t len)
{
	int steps = 0;
	const size_t used = parse_bytes(t, bytes, len, &steps);

	if (!keep_input(t, bytes + used, len - used))
		rp_rc_end_channel(&t->c, ENOMEM, NULL, 0);
	return steps;
}

/*
 * Receive once: data of a WRITE or DATA goes to its destination, other bytes go
 * to the stage, or behind stored bytes, and are parsed. Returns the number of
 * steps, or -1: there was no input, or the channel has ended. *more: the socket
 * may have more.
 *
 * No bytes are stored while data is incomplete. Behind stored bytes there is
 * room, because an incomplete header or message is shorter than the buffer.
 */
static int receive_once(struct tcp_channel *t, bool *more)
{
	uint8_t *const buf = t->input ? t->input : tcp_rc(t->c.rc)->stage;
	const size_t room = TCP_STAGE - t->input_len;
	struct iovec iov[RP_CHANNEL_IOV + 1];
	struct msghdr m = {.msg_iov = iov};
	size_t direct = 0, want;
	ssize_t got;
	int n = 0;

	*more = false;
	if (t->payload_left) {
		m.msg_iovlen = payload_iov(t, iov, READ_BYTES);
		direct = rp_iov_len(iov, m.msg_iovlen);
	}
	want = direct;
	/* Never stage data, as it would be copied twice. */
	if (direct == t->payload_left) {
		iov[m.msg_iovlen++] = (struct iovec){buf + t->input_len, room};
		want += room;
	}
	got = m.msg_iovlen == 1
		      ? recv(t->fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT)
		      : recvmsg(t->fd, &m, MSG_DONTWAIT);
	if (got <= 0) {
		if (!got)
			rp_rc_end_channel(&t->c, ECONNRESET, NULL, 0);
		else if (errno != EAGAIN && errno != EINTR)
			rp_rc_end_channel(&t->c, errno, NULL, 0);
		return -1;
	}
	*more = (size_t)got == want;
	if (direct) {
		const size_t placed =
			(size_t)got < direct ? (size_t)got : direct;

		n += count_payload(t, placed);
		got -= (ssize_t)placed;
	}
	if (got)
		n += parse_and_keep(t, buf, t->input_len + (size_t)got);
	return n;
}

int rp_tcp_receive_input(struct tcp_channel *t)
{
	bool more = true;
	int n = 0, got, err;

	t->budget = TCP_SEND_BYTES;
	if (t->starved) {
		t->starved = false;
		n += parse_and_keep(t, t->input, t->input_len);
	}
	for (int i = 0; i < MAX_READS && more && !t->starved; i++) {
		if (t->c.state != RP_RC_UP)
			break;
		got = receive_once(t, &more);
		if (got < 0)
			break;
		/* Count a step even if no frame was completed. */
		n += got ? got : 1;
	}
	if (t->c.state != RP_RC_UP)
		return n;
	err = rp_tcp_reply_placed(t);
	if (err)
		rp_rc_end_channel(&t->c, err, NULL, 0);
	return n;
}
