/* SPDX-License-Identifier: BSD-2-Clause */
/* Private connections over TCP sockets: shared by the rc_tcp files. */
#ifndef RP_RC_TCP_H
#define RP_RC_TCP_H

#include <assert.h>

#include "core/hash.h"
#include "rc/rc_priv.h"
#include "rc/rc_tcp_frame.h"

/*
 * Size of the staging buffer for input other than data of a WRITE or DATA
 * frame. It has room for an incomplete message and a whole one.
 */
#define TCP_STAGE 16384
static_assert(TCP_STAGE >= 2 * (sizeof(struct rp_tcp_rma) + RP_WIRE_MAX_MSG),
	      "an incomplete message and a whole one");

/* A region that peers may access. */
struct tcp_mr {
	UT_hash_handle hh;
	uint64_t rkey;
	uint8_t *base;
	uint64_t len;
	unsigned int access;
	unsigned int users; /* channels and frames that use it */
};

/*
 * A frame to send. If the socket is full, the frame waits in the channel's
 * queue, as a copy on the heap; an injected message's bytes are copied too,
 * other data stays in place.
 */
struct tcp_frame {
	STAILQ_ENTRY(tcp_frame) link;
	struct rp_tcp_rma hdr;
	size_t hdr_len;
	const struct iovec *iov;
	unsigned int iov_count;
	uint64_t len;		  /* of header and data */
	uint64_t sent;		  /* bytes that the socket has accepted */
	struct rp_channel_op *op; /* NULL: DATA, PLACED or an injected copy */
	struct tcp_mr *mr;	  /* of a DATA frame, else NULL */
	struct iovec data_iov;	  /* iov of DATA and of an injected copy */
	uint8_t copy[];
};

/* CONNECT, ACCEPT or REJECT, received in part or whole. */
struct tcp_opening {
	size_t have;
	struct tcp_head head;
	uint8_t bytes[sizeof(struct rp_tcp_hdr) + RP_RC_CM_DATA];
};

/* A half-open socket: accepted, without ACCEPT or REJECT yet. */
struct tcp_half_open {
	TAILQ_ENTRY(tcp_half_open) link; /* oldest first */
	int fd;
	bool connect_received; /* received, and reported to rc.c */
	uint64_t born;
	union rp_rc_addr peer;
	struct tcp_opening in;
};

struct tcp_channel {
	struct rp_rc_channel c;
	int fd; /* -1: closed */
	/* While connecting: the CONNECT to send, then the reply. */
	struct tcp_opening *opening;
	bool connect_sent;
	int refused;	      /* errno of a connect() that failed immediately */
	bool registered;      /* fd is in the epoll set data_fd */
	bool send_failed;     /* the channel ends once all input is read */
	bool starved;	      /* a whole message lacks a receive */
	bool has_work;	      /* in rc->work */
	bool wants_room;      /* fd is watched for EPOLLOUT */
	unsigned int waiting; /* frames in the send queue */
	STAILQ_HEAD(, tcp_frame) queue;
	TAILQ_ENTRY(tcp_channel) work;
	/* Received input that is not parsed yet: TCP_STAGE bytes, or NULL. */
	uint8_t *input;
	size_t input_len;
	/* Remaining data of the WRITE or DATA frame that is being received. */
	uint64_t payload_left;
	uint8_t *write_at;	  /* WRITE: destination of the next byte */
	struct tcp_mr *mr;	  /* WRITE: the region; DATA: NULL */
	bool wants_placed;	  /* WRITE: needs PLACED */
	struct rp_channel_op *op; /* DATA: the read; WRITE: NULL */
	uint64_t op_offset;	  /* DATA: bytes of the read received so far */
	unsigned int owed_placed; /* WRITEs for the next PLACED */
	uint64_t budget;	  /* bytes that this call may still send */
};

struct tcp_rc {
	struct rp_rc rc;
	int data_fd; /* epoll set of open channels */
	int cm_fd;   /* epoll set of listener, half-open, connecting ones */
	int listener;
	bool accept_paused; /* no descriptor was free for accept() */
	bool wakes;	    /* data_fd is in the set of rp_rc_fd() */
	struct tcp_mr *mrs; /* by rkey */
	TAILQ_HEAD(tcp_works, tcp_channel) work; /* starved or send_failed */
	TAILQ_HEAD(, tcp_half_open) half_open;
	unsigned int nsilent; /* half-open sockets without a CONNECT */
	unsigned int nopen;   /* channels in data_fd's set */
	unsigned int nwant_room;
	/* Channel of the last read; if alone, it needs no epoll. */
	struct tcp_channel *hot;
	unsigned int turn;	  /* counts polls */
	struct rp_rc_recvs recvs; /* free receives */
	uint64_t landing;	  /* destination of read fences */
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
 * Cut pieces out of n others: from *skip bytes on, at most *room bytes. Both
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

/* Length of the READ that the operation sends. */
static inline uint64_t rp_tcp_read_len(const struct rp_channel_op *op)
{
	return op->iov_count ? rp_rc_op_bytes(op) : op->length;
}

/* --- rc_tcp_channel.c --- */

/* Most bytes that one call sends: other threads wait for the lock. */
#define TCP_SEND_BYTES (1u << 20)

/* Shut down and close: the peer sees it even if a child has the socket. */
void rp_tcp_close(int fd);
/* Poll t's connected socket from now on. 0 or -errno. */
int rp_tcp_open_channel(struct tcp_channel *t);
/* Watch t's socket for EPOLLOUT, or stop that. */
void rp_tcp_want_room(struct tcp_channel *t, bool want);
/* Add t to the list that each poll walks, or remove it. */
void rp_tcp_add_work(struct tcp_channel *t);
void rp_tcp_remove_work(struct tcp_channel *t);
/* struct rp_rc_ops: shut, reg, dereg. */
void rp_tcp_shut(struct rp_rc_channel *c);
int rp_tcp_reg(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
	       struct rp_rc_mr *mr);
void rp_tcp_dereg(struct rp_rc *rc, struct rp_rc_mr *mr);
void rp_tcp_frame_free(struct tcp_frame *f);
/* The region, if it allows this access to these bytes; else NULL. */
struct tcp_mr *rp_tcp_find(struct tcp_rc *f, const struct tcp_head *h,
			   unsigned int access);

/* --- rc_tcp_send.c --- */

int rp_tcp_post(struct rp_rc_channel *c, struct rp_channel_op *ops[], int n);
/*
 * Send or queue DATA with these bytes of mr, and PLACED for the t->owed_placed
 * WRITEs. 0, or ENOBUFS: the peer leaves too many of them unread.
 */
int rp_tcp_reply_data(struct tcp_channel *t, struct tcp_mr *mr, uint64_t addr,
		      uint64_t len);
int rp_tcp_reply_placed(struct tcp_channel *t);
/* Send queued frames until the socket is full. True: sent some bytes. */
bool rp_tcp_flush(struct tcp_channel *t);
/* Has the socket accepted every byte of op's frame? */
bool rp_tcp_was_sent(const struct tcp_channel *t,
		     const struct rp_channel_op *op);

/* --- rc_tcp_recv.c --- */

/* Receive, parse and place input. 0: there was none. */
int rp_tcp_receive(struct tcp_channel *t);

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
