/* SPDX-License-Identifier: BSD-2-Clause */
/* What rc.c, the receive pool and the backends of prov/rc need of each other.
 */
#ifndef RP_RC_PRIV_H
#define RP_RC_PRIV_H

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "core/list.h"
#include "core/wire.h"
#include "rc/rc.h"

#define rp_rc_container(ptr, type, member)                                     \
	((type *)((char *)(ptr)-offsetof(type, member)))

/* Operations that one channel has posted at once; post() takes no more. */
#define RP_RC_DEPTH 256
/* Most private data of the tcp connection manager, in either direction. */
#define RP_RC_CM_DATA 256
/* Receives of the pool. */
#define RP_RC_SHARED_RECVS 32	/* with the first channel */
#define RP_RC_SHARED_MAX   4096 /* also bounded by the device */

union rp_rc_addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* Room for one message; a backend gives it to the device as its context. */
struct rp_rc_recv {
	void *desc;
	uint8_t *buf; /* RP_WIRE_MAX_MSG bytes */
	/* A message that is not yet reported, and its channel. */
	TAILQ_ENTRY(rp_rc_recv) link;
	struct rp_rc_channel *from;
	size_t len;
};
/* Receives that are allocated and registered together. */
struct rp_rc_slab {
	LIST_ENTRY(rp_rc_slab) link;
	struct rp_rc_mr mr;
	unsigned int n;
	struct rp_rc_recv *recv;
	uint8_t *bytes;
};

enum rp_rc_state {
	RP_RC_CONNECTING,
	RP_RC_UP,     /* or accepted */
	RP_RC_ENDING, /* lost() is due; not shut yet */
	RP_RC_ENDED,  /* shut; lost() was called, or is being called */
	RP_RC_CLOSED, /* by the owner; freed when no call is inside */
};

/* A backend's channel begins with this. */
struct rp_rc_channel {
	struct rp_channel base;
	struct rp_rc *rc;
	TAILQ_ENTRY(rp_rc_channel) link; /* of rc->channels, ending or dead */
	enum rp_rc_state state;
	bool shut;			    /* ops->shut() was called */
	unsigned int nposted;		    /* operations that the device has */
	unsigned int ndone;		    /* completed, not yet reported */
	TAILQ_HEAD(, rp_channel_op) posted; /* the same, in order */
	union rp_rc_addr peer;
	struct rp_channel_op *failed; /* refused by the device */
	int err;		      /* why it ends, positive */
	/* Of the peer's reject, until lost(). */
	size_t data_len;
	uint8_t *data;
};

struct rp_rc_request {
	TAILQ_ENTRY(rp_rc_request) link; /* the oldest is first */
	void *handle;			 /* the backend's */
	uint64_t born;
	uint64_t source;
};

TAILQ_HEAD(rp_rc_channels, rp_rc_channel);
TAILQ_HEAD(rp_rc_recvs, rp_rc_recv);

/* A backend's rc begins with this. */
struct rp_rc {
	struct rp_connector connector;
	const struct rp_rc_ops *ops;
	struct rp_rc_attr attr;
	int epfd; /* -1: not attr.waits */
	/* Set by ops->open(): */
	uint32_t flags;	     /* enum rp_channel_flags */
	uint32_t inject;     /* of each channel */
	bool local_mr;	     /* receives must be registered */
	unsigned int shared; /* receives that the pool may have */

	struct rp_rc_channels channels; /* all but ENDING and CLOSED */
	struct rp_rc_channels ending;	/* lost() is due */
	struct rp_rc_channels dead;	/* CLOSED, freed at depth 0 */
	unsigned int nchannels;		/* not CLOSED */
	unsigned int connecting;	/* events are looked for at each poll */
	TAILQ_HEAD(, rp_rc_request) requests;
	unsigned int nrequests;
	bool listening;
	unsigned int depth; /* of rp_rc_poll() and close() */
	/* Completed, and not yet reported. */
	struct rp_channel_op *done_first, **done_last;
	unsigned int ndone;
	struct rp_rc_recvs messages;
	/* Receives that any channel may fill. */
	LIST_HEAD(, rp_rc_slab) pool;
	unsigned int npool;
	/* When to look again. */
	uint64_t looked, events_looked;
	unsigned int empty, polls;
	bool look;    /* for events: trywait() found some */
	uint64_t due; /* for events, without any: the backend's; 0: never */
};

/*
 * The operations of a backend. All return 0 or a negative errno. A channel that
 * a failing connect() or accept() was given is freed by the caller, after
 * shut(); all memory starts as zeros.
 */
struct rp_rc_ops {
	size_t rc_size, channel_size;
	/* -FI_ENODATA: not to be had here, with a sentence in why. */
	int (*open)(struct rp_rc *rc, char *why, size_t why_size);
	/* Also after a failed open(). */
	void (*close)(struct rp_rc *rc);
	/* At exactly this address and port (0: any). -EADDRINUSE: try another.
	 */
	int (*listen)(struct rp_rc *rc, const union rp_rc_addr *at, size_t len,
		      uint16_t *port);
	/*
	 * c->peer is set. Receives are posted by rp_rc_recvs_open() before
	 * anything can arrive. Then rp_rc_up() or rp_rc_end() out of a poll.
	 */
	int (*connect)(struct rp_rc_channel *c, size_t addr_len,
		       const void *data, size_t len);
	/* Sets c->peer. Consumes the handle, also when it fails. */
	int (*accept)(struct rp_rc_channel *c, void *handle, const void *data,
		      size_t len);
	void (*reject)(struct rp_rc *rc, void *handle, const void *data,
		       size_t len);
	/*
	 * As rp_channel_post(), on a channel that is CONNECTING or UP: calls
	 * rp_rc_posted() for each that was posted. After an error of the
	 * device: rp_rc_failed() for this operation.
	 */
	int (*post)(struct rp_rc_channel *c, struct rp_channel_op *ops[],
		    int n);
	/*
	 * Destroy the connection. When this returns the device uses no memory
	 * of it, and rp_rc_complete_op() was called for every operation of
	 * which there was an entry. The caller completes the operations that
	 * are left, of which no entry will come. Entries of other channels that
	 * come up are completed as well. Called once, also after a failed
	 * connect().
	 */
	void (*shut)(struct rp_rc_channel *c);
	int (*post_recv)(struct rp_rc *rc, struct rp_rc_recv *r);
	int (*reg)(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
		   struct rp_rc_mr *mr);
	void (*dereg)(struct rp_rc *rc, struct rp_rc_mr *mr);
	/*
	 * Read at most about max completions: rp_rc_complete_op(),
	 * rp_rc_complete_recv(), rp_rc_end(). How many were read.
	 */
	int (*poll)(struct rp_rc *rc, int max);
	/*
	 * Read CM events: rp_rc_up(), rp_rc_end(), rp_rc_requested(), of which
	 * the first and the last call back: read one event at a time. Any
	 * channel may be closed inside, and is shut then; its memory lives
	 * until rp_rc_poll() returns.
	 */
	int (*poll_events)(struct rp_rc *rc, int max);
	int (*trywait)(struct rp_rc *rc);
};

/* The local bytes of an operation: how many, and a copy of them. */
static inline size_t rp_rc_op_bytes(const struct rp_channel_op *op)
{
	size_t len = 0;

	for (unsigned int i = 0; i < op->iov_count; i++)
		len += op->iov[i].iov_len;
	return len;
}
static inline void rp_rc_op_copy(const struct rp_channel_op *op, uint8_t *to)
{
	for (unsigned int i = 0; i < op->iov_count; i++) {
		memcpy(to, op->iov[i].iov_base, op->iov[i].iov_len);
		to += op->iov[i].iov_len;
	}
}

extern const struct rp_rc_ops rp_rc_tcp;
#ifdef HAVE_RDMACM
extern const struct rp_rc_ops rp_rc_verbs;
#endif

/* --- rc.c, for backends --- */

/*
 * poll_events() is due at this time; 0: at none. Kicks, where that is earlier
 * than before: somebody who sleeps already has not heard of it.
 */
void rp_rc_due(struct rp_rc *rc, uint64_t due);
/* In open(), or later: fd wakes the rc's descriptor. Nothing without waits. */
int rp_rc_watch(struct rp_rc *rc, int fd);
/* In post(): op is the device's now. */
static inline void rp_rc_posted(struct rp_rc_channel *c,
				struct rp_channel_op *op)
{
	op->channel = &c->base;
	TAILQ_INSERT_TAIL(&c->posted, op, link);
	c->nposted++;
}
/*
 * In post(), after an error of the device: the channel ends, and op fails after
 * shut(), so that it may have been posted in part.
 */
void rp_rc_failed(struct rp_rc_channel *c, struct rp_channel_op *op, int err);
/*
 * In poll() and shut(): the device has given it back. rc.c calls done() or
 * received() once the backend has returned, so that no callback runs inside;
 * err != 0 ends the channel, too.
 */
void rp_rc_complete_op(struct rp_rc *rc, struct rp_channel_op *op, int err);
void rp_rc_complete_recv(struct rp_rc *rc, struct rp_rc_channel *from,
			 struct rp_rc_recv *r, size_t len);
/* In poll_events(): the peer has accepted, with this data. */
void rp_rc_up(struct rp_rc_channel *c, const void *data, size_t len);
/*
 * Anywhere: the connection is lost; lost() follows, once, from poll. data: of
 * the peer's reject. No-op on a channel that has ended.
 */
void rp_rc_end(struct rp_rc_channel *c, int err, const void *data, size_t len);
/* In poll_events(): somebody connects. */
void rp_rc_requested(struct rp_rc *rc, void *handle,
		     const struct sockaddr *peer, const void *data, size_t len);
/* The peer has gone before it was answered; the handle is the backend's. */
void rp_rc_request_gone(struct rp_rc *rc, void *handle);

/* --- rc.c, for rc_listen.c --- */

struct rp_rc_channel *rp_rc_channel_new(struct rp_rc *rc,
					const struct rp_channel_events *events,
					void *owner);
/* What connect() or accept() made of c is kept, or (ret) taken apart. */
int rp_rc_channel_start(struct rp_rc_channel *c, enum rp_rc_state state,
			int ret, struct rp_channel **out);

/* --- rc_listen.c --- */

/* The length of an IPv4 or IPv6 address of at most len bytes; 0: neither. */
size_t rp_rc_addr_len(const struct sockaddr *sa, size_t len);
/* Reject what is too old at this time; UINT64_MAX: all. */
void rp_rc_requests_expire(struct rp_rc *rc, uint64_t now);

/* --- rc_recv.c --- */

/* In connect() and accept(): more receives, for one more channel. */
int rp_rc_pool_grow(struct rp_rc *rc);
/* The message has been read, or there was none. */
void rp_rc_recv_repost(struct rp_rc *rc, struct rp_rc_recv *r);
/*
 * Around ops->close(): deregister what the device had of the pool before, free
 * it after.
 */
void rp_rc_pool_dereg(struct rp_rc *rc);
void rp_rc_pool_free(struct rp_rc *rc);

#endif
