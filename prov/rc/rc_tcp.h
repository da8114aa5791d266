/* SPDX-License-Identifier: BSD-2-Clause */
/* Private connections over TCP: structs and functions of the rc_tcp files. */
#ifndef RP_RC_TCP_H
#define RP_RC_TCP_H

#include <assert.h>

#include "core/hash.h"
#include "rc/rc_priv.h"
#include "rc/rc_tcp_frame.h"

/*
 * Size of the staging buffer for received bytes other than data of a WRITE or
 * DATA frame. It has room for an incomplete message and a whole one behind it.
 */
#define TCP_STAGE 16384
static_assert(TCP_STAGE >= 2 * (sizeof(struct rp_tcp_rma) + RP_WIRE_MAX_MSG),
	      "an incomplete message and a whole one");

/* Memory registered for peers' access. */
struct tcp_mr {
	UT_hash_handle hh;
	uint64_t rkey;
	uint8_t *base;
	uint64_t len;
	unsigned int access;
	unsigned int users; /* reference count: channels and frames */
};

/*
 * A frame to send. If the socket is full, the unsent frame is copied to the
 * heap and queued. The bytes of an injected message are copied with it; other
 * data stays in place.
 */
struct tcp_frame {
	STAILQ_ENTRY(tcp_frame) link;
	struct rp_tcp_rma hdr;
	size_t hdr_len;
	const struct iovec *iov;
	unsigned int iov_count;
	uint64_t len;		  /* bytes of header and data */
	uint64_t sent;		  /* bytes that the socket accepted */
	struct rp_channel_op *op; /* NULL: DATA, PLACED, injected copy */
	struct tcp_mr *mr;	  /* DATA: region read; else NULL */
	struct iovec data_iov;	  /* iov of DATA, injected copy */
	uint8_t copy[];
};

/* Receive state of a CONNECT, ACCEPT or REJECT frame. */
struct tcp_opening {
	size_t have;
	struct tcp_head head;
	uint8_t bytes[sizeof(struct rp_tcp_hdr) + RP_RC_CM_DATA];
};

/* A half-open socket: from accept(), without ACCEPT or REJECT sent yet. */
struct tcp_half_open {
	TAILQ_ENTRY(tcp_half_open) link; /* tcp_rc.half_open, oldest first */
	int fd;
	bool connect_received; /* CONNECT was reported to rc.c */
	uint64_t born;
	union rp_rc_addr peer;
	struct tcp_opening in;
};

struct tcp_channel {
	struct rp_rc_channel c;
	int fd; /* socket; -1: closed */
	/* While connecting: the CONNECT to send, then the received reply. */
	struct tcp_opening *opening;
	bool connect_sent;
	int connect_err;      /* errno of a connect() that failed at once */
	bool registered;      /* fd is in the epoll set data_fd */
	bool send_failed;     /* end the channel after all input is read */
	bool starved;	      /* a received message waits for a free receive */
	bool has_work;	      /* on the list tcp_rc.work */
	bool wants_room;      /* fd is watched for EPOLLOUT */
	unsigned int nqueued; /* frames in the send queue */
	STAILQ_HEAD(, tcp_frame) queue;
	TAILQ_ENTRY(tcp_channel) work;
	/* Received bytes not parsed yet: TCP_STAGE of room, or NULL. */
	uint8_t *input;
	size_t input_len;
	/* Bytes missing of the WRITE or DATA frame that is being received. */
	uint64_t payload_left;
	uint8_t *write_at;	  /* WRITE: where the next byte goes */
	struct tcp_mr *mr;	  /* WRITE: its region; DATA: NULL */
	bool replies_placed;	  /* WRITE: reply PLACED when placed */
	struct rp_channel_op *op; /* DATA: the READ; WRITE: NULL */
	uint64_t op_offset;	  /* DATA: bytes received so far */
	unsigned int placed_due;  /* placed WRITEs to acknowledge */
	uint64_t budget;	  /* bytes this call may still send */
};

struct tcp_rc {
	struct rp_rc rc;
	int data_fd; /* epoll set of open channels */
	int cm_fd;   /* epoll set: listener, half-open, connecting */
	int listener;
	bool accept_paused; /* accept() failed for lack of descriptors */
	bool watches_data;  /* data_fd is in the epoll set rp_rc_fd() */
	struct tcp_mr *mrs; /* hash table by rkey */
	TAILQ_HEAD(tcp_works, tcp_channel) work; /* each poll serves these */
	TAILQ_HEAD(, tcp_half_open) half_open;
	unsigned int nsilent; /* half-open sockets without a CONNECT */
	unsigned int nopen;   /* channels in the epoll set data_fd */
	unsigned int nwant_room;
	/* The channel that was read last; the only one needs no epoll. */
	struct tcp_channel *hot_channel;
	unsigned int npolls;	  /* number of polls */
	struct rp_rc_recvs recvs; /* free receives */
	uint64_t fence_scratch;	  /* destination of read fences */
	uint8_t stage[TCP_STAGE];
};

static inline struct tcp_rc *tcp_rc(struct rp_rc *rc)
{
	return rp_container_of(rc, struct tcp_rc, rc);
}
static inline struct tcp_channel *tcp_channel(struct rp_rc_channel *c)
{
	return rp_container_of(c, struct tcp_channel, c);
}

/*
 * Slice the n pieces of `from`: skip *skip bytes, then take at most *room. Both
 * are reduced by what was skipped and taken. Returns the number of pieces.
 */
static inline unsigned int rp_tcp_slice(const struct iovec *from,
					unsigned int n, uint64_t *skip,
					uint64_t *room, struct iovec *to)
{
	unsigned int pieces = 0;
	uint64_t len;

	for (unsigned int i = 0; i < n && *room; i++) {
		len = from[i].iov_len;
		if (*skip >= len) {
			*skip -= len;
			continue;
		}
		len = len - *skip < *room ? len - *skip : *room;
		to[pieces].iov_base = (uint8_t *)from[i].iov_base + *skip;
		to[pieces++].iov_len = len;
		*room -= len;
		*skip = 0;
	}
	return pieces;
}

/* Length in the READ frame of a read or a read fence. */
static inline uint64_t rp_tcp_read_len(const struct rp_channel_op *op)
{
	return op->iov_count ? rp_rc_op_bytes(op) : op->length;
}

/* --- rc_tcp_channel.c --- */

/* Most bytes that one call sends, because other threads wait for the lock. */
#define TCP_SEND_BYTES (1u << 20)

/* Shut down, then close: the peer sees the end even if a child has the fd. */
void rp_tcp_close(int fd);
/* Add t's connected socket to the epoll set data_fd. 0 or -errno. */
int rp_tcp_open_channel(struct tcp_channel *t);
/* Watch t's socket for EPOLLOUT, or stop watching. */
void rp_tcp_want_room(struct tcp_channel *t, bool want);
/* Add t to tcp_rc.work, which each poll serves; or remove it. */
void rp_tcp_add_work(struct tcp_channel *t);
void rp_tcp_remove_work(struct tcp_channel *t);
/* The backend functions shut(), reg() and dereg() of rp_rc_tcp. */
void rp_tcp_shut(struct rp_rc_channel *c);
int rp_tcp_reg(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
	       struct rp_rc_mr *mr);
void rp_tcp_dereg(struct rp_rc *rc, struct rp_rc_mr *mr);
void rp_tcp_frame_free(struct tcp_frame *f);
/* Find the region that allows this access to h's bytes; NULL: none. */
struct tcp_mr *rp_tcp_find_mr(struct tcp_rc *f, const struct tcp_head *h,
			      unsigned int access);

/* --- rc_tcp_send.c --- */

int rp_tcp_post(struct rp_channel *base, struct rp_channel_op *ops[], int n);
/*
 * Send or queue DATA with bytes of mr, and PLACED for t->placed_due WRITEs. 0,
 * or ENOBUFS: the peer leaves too many replies unread.
 */
int rp_tcp_reply_data(struct tcp_channel *t, struct tcp_mr *mr, uint64_t addr,
		      uint64_t len);
int rp_tcp_reply_placed(struct tcp_channel *t);
/* Send queued frames until the socket is full. True: some bytes were sent. */
bool rp_tcp_flush(struct tcp_channel *t);
/* Has the socket accepted every byte of op's frame? */
bool rp_tcp_op_is_sent(const struct tcp_channel *t,
		       const struct rp_channel_op *op);

/* --- rc_tcp_recv.c --- */

/* Receive bytes, parse frames, place data. 0: there was no input. */
int rp_tcp_receive_input(struct tcp_channel *t);

/* --- rc_tcp_cm.c --- */

int rp_tcp_listen(struct rp_rc *rc, const union rp_rc_addr *at, size_t len,
		  uint16_t *port);
int rp_tcp_connect(struct rp_rc_channel *c, size_t addr_len, const void *data,
		   size_t len);
int rp_tcp_accept(struct rp_rc_channel *c, void *handle, const void *data,
		  size_t len);
void rp_tcp_reject(struct rp_rc *rc, void *handle, const void *data,
		   size_t len);
int rp_tcp_poll_events(struct rp_rc *rc, int max);
/* Close all half-open sockets. */
void rp_tcp_close_half_open(struct tcp_rc *f);

#endif
