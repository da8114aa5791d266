/* SPDX-License-Identifier: BSD-2-Clause */
/* Interface between rc.c, the receive pool, and the backends of prov/rc. */
#ifndef RP_RC_PRIV_H
#define RP_RC_PRIV_H

#include <stdio.h>
#include <string.h>

#include "core/list.h"
#include "core/wire.h"
#include "rc/rc.h"

/* Most outstanding operations of one channel; post() accepts no more. */
#define RP_RC_DEPTH 256
/* Longest private data of CONNECT, ACCEPT and REJECT over TCP. */
#define RP_RC_CM_DATA 256
/* Receive buffers in the pool that all channels share. */
#define RP_RC_FIRST_RECVS 32   /* posted for the first channel */
#define RP_RC_MAX_RECVS	  4096 /* most; the device may allow fewer */

/* A receive buffer for one message, with the device's descriptor for it. */
struct rp_rc_recv {
	void *desc;
	uint8_t *buf; /* has RP_WIRE_MAX_MSG bytes */
	/* Valid in rc->messages: a received message, and its channel. */
	TAILQ_ENTRY(rp_rc_recv) link;
	struct rp_rc_channel *from;
	size_t len;
};
/* A slab: receives that were allocated and registered together. */
struct rp_rc_slab {
	LIST_ENTRY(rp_rc_slab) link;
	struct rp_rc_mr mr;
	unsigned int n;
	struct rp_rc_recv *recv;
	uint8_t *bytes;
};

TAILQ_HEAD(rp_rc_ops_list, rp_channel_op);

enum rp_rc_state {
	RP_RC_CONNECTING,
	RP_RC_UP,     /* channel is connected or accepted */
	RP_RC_ENDING, /* lost() is due; ops->shut() not called yet */
	RP_RC_ENDED,  /* ops->shut() and lost() were called */
	RP_RC_CLOSED, /* closed by its owner; freed at depth 0 */
};

/* Every backend's channel starts with this struct. */
struct rp_rc_channel {
	struct rp_channel base;
	struct rp_rc *rc;
	TAILQ_ENTRY(rp_rc_channel) link; /* rc->channels, ending, dead */
	enum rp_rc_state state;
	bool shut;		      /* ops->shut() has been called */
	unsigned int nposted;	      /* operations posted to the device */
	unsigned int ndone;	      /* completed, done() not called yet */
	struct rp_rc_ops_list posted; /* the nposted operations */
	union rp_rc_addr peer;
	struct rp_rc_ops_list failed; /* device refused these */
	int err;		      /* positive errno that ends the channel */
	/* Private data of the peer's reject, kept until lost(). */
	size_t data_len;
	uint8_t *data;
};

struct rp_rc_request {
	TAILQ_ENTRY(rp_rc_request) link; /* rc->requests, oldest first */
	void *handle;			 /* handle of the backend's request */
	uint64_t born;			 /* attr.now() when it came */
	uint64_t source;		 /* as rp_rc_request_source() */
};

TAILQ_HEAD(rp_rc_channels, rp_rc_channel);
TAILQ_HEAD(rp_rc_recvs, rp_rc_recv);

/* Every backend's rc starts with this struct. */
struct rp_rc {
	struct rp_connector connector;
	const struct rp_rc_ops *ops;
	struct rp_channel_ops up_ops; /* of channels that are UP */
	struct rp_rc_attr attr;
	int epfd; /* epoll set of rp_rc_fd(); -1: no attr.waits */
	/* The next four are set by ops->open(). */
	uint32_t flags;	     /* enum rp_channel_flags */
	uint32_t inject;     /* longest injected SEND */
	bool local_mr;	     /* local memory needs registration */
	unsigned int shared; /* most receives in the pool */

	struct rp_rc_channels channels; /* neither ending nor dead */
	struct rp_rc_channels ending;	/* lost() is due */
	struct rp_rc_channels dead;	/* CLOSED, freed at depth 0 */
	unsigned int nchannels;		/* number of channels not CLOSED */
	unsigned int connecting;	/* number of channels CONNECTING */
	TAILQ_HEAD(, rp_rc_request) requests;
	unsigned int nrequests;
	bool listening;
	unsigned int depth; /* nesting of rp_rc_poll() and closes */
	/* Completed operations whose done() was not called yet. */
	struct rp_rc_ops_list done;
	unsigned int ndone;
	struct rp_rc_recvs messages;
	/* Posted receives, which any channel's message may use. */
	LIST_HEAD(, rp_rc_slab) pool;
	unsigned int npool;
	/* Time of the last poll of completions, and of CM events. */
	uint64_t polled_at, events_polled_at;
	unsigned int empty_polls, polls;
	bool poll_now; /* trywait() found events: poll at once */
	uint64_t due;  /* deadline for ops->poll_events(); 0: none */
};

/*
 * The functions of a backend. All return 0 or a negative errno. After a failed
 * connect() or accept() the caller calls shut() and frees the channel. rc.c
 * allocates all structs, as zeros.
 */
struct rp_rc_ops {
	size_t rc_size, channel_size;
	/* -FI_ENODATA: backend not available, with a sentence in why. */
	int (*open)(struct rp_rc *rc, char *why, size_t why_size);
	/* Free what open() made; called also after a failed open(). */
	void (*close)(struct rp_rc *rc);
	/* Listen on exactly this address and port (0: any), or -EADDRINUSE. */
	int (*listen)(struct rp_rc *rc, const union rp_rc_addr *at, size_t len,
		      uint16_t *port);
	/*
	 * Connect to c->peer. Calls rp_rc_pool_grow(), as messages may arrive
	 * then. Later a poll calls rp_rc_set_connected() or
	 * rp_rc_end_channel().
	 */
	int (*connect)(struct rp_rc_channel *c, size_t addr_len,
		       const void *data, size_t len);
	/* Accept, and set c->peer. Frees the handle, even on failure. */
	int (*accept)(struct rp_rc_channel *c, void *handle, const void *data,
		      size_t len);
	void (*reject)(struct rp_rc *rc, void *handle, const void *data,
		       size_t len);
	/*
	 * rp_channel_post() calls it on a channel that is UP. It calls
	 * rp_rc_add_posted() for each posted operation, and
	 * rp_rc_fail_op() for one that the device has refused.
	 */
	int (*post)(struct rp_channel *c, struct rp_channel_op *ops[], int n);
	/*
	 * Destroy the connection; called once, also after a failed connect().
	 * When shut() returns, the device uses no memory of the connection, and
	 * rp_rc_complete_op() was called for every operation with a completion
	 * queue entry; rc.c completes the others. shut() may also complete
	 * operations of other channels.
	 */
	void (*shut)(struct rp_rc_channel *c);
	int (*post_recv)(struct rp_rc *rc, struct rp_rc_recv *r);
	int (*reg)(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
		   struct rp_rc_mr *mr);
	void (*dereg)(struct rp_rc *rc, struct rp_rc_mr *mr);
	/*
	 * Poll for up to about max completions, and call rp_rc_complete_op(),
	 * rp_rc_complete_recv() or rp_rc_end_channel(). Returns their number.
	 */
	int (*poll)(struct rp_rc *rc, int max);
	/*
	 * Read CM events, and call rp_rc_set_connected(), rp_rc_end_channel()
	 * or rp_rc_add_request(). rp_rc_set_connected() and rp_rc_add_request()
	 * run callbacks, so read one event at a time. A callback may close any
	 * channel, which is then shut; its memory lives until rp_rc_poll()
	 * returns.
	 */
	int (*poll_events)(struct rp_rc *rc, int max);
	int (*trywait)(struct rp_rc *rc);
};

static inline size_t rp_rc_op_bytes(const struct rp_channel_op *op)
{
	return rp_iov_len(op->iov, op->iov_count);
}

extern const struct rp_rc_ops rp_rc_tcp;
#ifdef HAVE_RDMACM
extern const struct rp_rc_ops rp_rc_verbs;
#endif

/* --- rc.c, for backends --- */

/*
 * Set the time when poll_events() is due; 0: never. An earlier time than before
 * kicks, because a sleeping thread has the old deadline.
 */
void rp_rc_set_due(struct rp_rc *rc, uint64_t due);
static inline uint64_t rp_rc_now(struct rp_rc *rc)
{
	return rc->attr.now(rc->attr.arg);
}
/* Add fd to the epoll set of rp_rc_fd(), if there is one. */
int rp_rc_watch_fd(struct rp_rc *rc, int fd);
/* Called by ops->post(): the device has accepted op. */
static inline void rp_rc_add_posted(struct rp_rc_channel *c,
				    struct rp_channel_op *op)
{
	op->channel = &c->base;
	TAILQ_INSERT_TAIL(&c->posted, op, link);
	c->nposted++;
}
/*
 * Called by ops->post() after a device error: the channel ends. op fails after
 * shut(), as part of it may have been posted.
 */
void rp_rc_fail_op(struct rp_rc_channel *c, struct rp_channel_op *op, int err);
/*
 * Called by ops->poll() and shut(): the device has completed op. err != 0 also
 * ends the channel. rc.c calls done() or received() after the backend function
 * has returned, so that no callback runs inside it.
 */
void rp_rc_complete_op(struct rp_rc *rc, struct rp_channel_op *op, int err);
void rp_rc_complete_recv(struct rp_rc *rc, struct rp_rc_channel *from,
			 struct rp_rc_recv *r, size_t len);
/* Called by ops->poll_events(): the peer has accepted, with private data. */
void rp_rc_set_connected(struct rp_rc_channel *c, const void *data, size_t len);
/*
 * Called from anywhere: the connection is lost; rp_rc_poll() then calls lost()
 * once. data: private data of a reject. No-op on a channel that has ended.
 */
void rp_rc_end_channel(struct rp_rc_channel *c, int err, const void *data,
		       size_t len);
/* Called by ops->poll_events(): a peer requests a connection. */
void rp_rc_add_request(struct rp_rc *rc, void *handle,
		       const struct sockaddr *peer, const void *data,
		       size_t len);
/* The peer withdrew its request; the backend then frees the handle. */
void rp_rc_request_gone(struct rp_rc *rc, void *handle);

/* --- rc.c, for rc_listen.c --- */

struct rp_rc_channel *rp_rc_channel_new(struct rp_rc *rc,
					const struct rp_channel_events *events,
					void *owner);
/* ret 0: keep the channel that connect() or accept() made; else destroy it. */
int rp_rc_channel_start(struct rp_rc_channel *c, enum rp_rc_state state,
			int ret, struct rp_channel **out);

/* --- rc_listen.c --- */

/* Reject requests older than RP_RC_HALF_OPEN_NS; now UINT64_MAX: all. */
void rp_rc_requests_expire(struct rp_rc *rc, uint64_t now);

/* --- rc_recv.c --- */

/* Called by connect() and accept(): post receives for one more channel. */
int rp_rc_pool_grow(struct rp_rc *rc);
/* Repost a receive, whose message was read or discarded. */
void rp_rc_recv_repost(struct rp_rc *rc, struct rp_rc_recv *r);
/* Deregister the pool before ops->close(); free it afterwards. */
void rp_rc_pool_dereg(struct rp_rc *rc);
void rp_rc_pool_free(struct rp_rc *rc);

#endif
