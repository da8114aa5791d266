/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by rc.c, the receive pool and the backends of prov/rc. */
#ifndef RP_RC_PRIV_H
#define RP_RC_PRIV_H

#include <stdio.h>
#include <string.h>

#include "core/list.h"
#include "core/wire.h"
#include "rc/rc.h"

/* Most outstanding operations of one channel: post() accepts no more. */
#define RP_RC_DEPTH 256
/* Longest private data of the tcp connection manager, both directions. */
#define RP_RC_CM_DATA 256
/* Limits of the pool of receives. */
#define RP_RC_SHARED_RECVS 32	/* for the first channel */
#define RP_RC_SHARED_MAX   4096 /* also limited by the device */

/* A receive buffer for one message, and the device's context of it. */
struct rp_rc_recv {
	void *desc;
	uint8_t *buf; /* RP_WIRE_MAX_MSG bytes */
	/* In rc->messages: a message to report, and its channel. */
	TAILQ_ENTRY(rp_rc_recv) link;
	struct rp_rc_channel *from;
	size_t len;
};
/* Receives that were allocated and registered together. */
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
	RP_RC_UP,     /* connected or accepted */
	RP_RC_ENDING, /* lost() is due; not shut yet */
	RP_RC_ENDED,  /* shut; lost() was called or is running */
	RP_RC_CLOSED, /* by the owner; freed at depth 0 */
};

/* Every backend's channel starts with this struct. */
struct rp_rc_channel {
	struct rp_channel base;
	struct rp_rc *rc;
	TAILQ_ENTRY(rp_rc_channel) link; /* in rc->channels, ending or dead */
	enum rp_rc_state state;
	bool shut;		      /* ops->shut() was called */
	unsigned int nposted;	      /* operations in the device */
	unsigned int ndone;	      /* completed, not reported yet */
	struct rp_rc_ops_list posted; /* outstanding operations */
	union rp_rc_addr peer;
	struct rp_rc_ops_list failed; /* refused by the device */
	int err;		      /* why the channel ends, positive */
	/* Private data of the peer's reject, kept until lost(). */
	size_t data_len;
	uint8_t *data;
};

struct rp_rc_request {
	TAILQ_ENTRY(rp_rc_request) link; /* oldest first */
	void *handle;			 /* the backend's handle */
	uint64_t born;
	uint64_t source;
};

TAILQ_HEAD(rp_rc_channels, rp_rc_channel);
TAILQ_HEAD(rp_rc_recvs, rp_rc_recv);

/* Every backend's rc starts with this struct. */
struct rp_rc {
	struct rp_connector connector;
	const struct rp_rc_ops *ops;
	struct rp_rc_attr attr;
	int epfd; /* -1: no attr.waits */
	/* Set by ops->open(): */
	uint32_t flags;	     /* enum rp_channel_flags */
	uint32_t inject;     /* of each channel */
	bool local_mr;	     /* receives need registration */
	unsigned int shared; /* most receives of the pool */

	struct rp_rc_channels channels; /* all others */
	struct rp_rc_channels ending;	/* lost() is due */
	struct rp_rc_channels dead;	/* CLOSED, freed at depth 0 */
	unsigned int nchannels;		/* that are not CLOSED */
	unsigned int connecting;	/* then each poll reads events */
	TAILQ_HEAD(, rp_rc_request) requests;
	unsigned int nrequests;
	bool listening;
	unsigned int depth; /* nesting of rp_rc_poll() and close() */
	/* Completed operations that are not reported yet. */
	struct rp_rc_ops_list done;
	unsigned int ndone;
	struct rp_rc_recvs messages;
	/* Receives that any channel may fill. */
	LIST_HEAD(, rp_rc_slab) pool;
	unsigned int npool;
	/* Time of the last poll of completions, of events. */
	uint64_t looked, events_looked;
	unsigned int empty, polls;
	bool look;    /* trywait() found events */
	uint64_t due; /* the backend's deadline for poll_events(); 0: none */
};

/*
 * The operations of a backend. All return 0 or a negative errno. After a failed
 * connect() or accept() the caller calls shut() and frees the channel; all
 * structs start as zeros.
 */
struct rp_rc_ops {
	size_t rc_size, channel_size;
	/* -FI_ENODATA: not available here, with a sentence in why. */
	int (*open)(struct rp_rc *rc, char *why, size_t why_size);
	/* Called also after a failed open(). */
	void (*close)(struct rp_rc *rc);
	/* Listen on exactly this address and port (0: any), or -EADDRINUSE. */
	int (*listen)(struct rp_rc *rc, const union rp_rc_addr *at, size_t len,
		      uint16_t *port);
	/*
	 * c->peer is set. rp_rc_pool_grow() posts receives before anything
	 * can arrive. Then rp_rc_up() or rp_rc_end() from a poll.
	 */
	int (*connect)(struct rp_rc_channel *c, size_t addr_len,
		       const void *data, size_t len);
	/* Sets c->peer. Consumes the handle, even on failure. */
	int (*accept)(struct rp_rc_channel *c, void *handle, const void *data,
		      size_t len);
	void (*reject)(struct rp_rc *rc, void *handle, const void *data,
		       size_t len);
	/*
	 * As rp_channel_post(), on a channel that is CONNECTING or UP: calls
	 * rp_rc_posted() for each posted operation, rp_rc_failed() for one that
	 * the device has refused.
	 */
	int (*post)(struct rp_rc_channel *c, struct rp_channel_op *ops[],
		    int n);
	/*
	 * Destroy the connection. When this returns the device uses no memory
	 * of it, and rp_rc_complete_op() was called for every operation with an
	 * entry. The caller completes operations that are left, which get no
	 * entry. Entries of other channels found on the way are completed as
	 * well. Called once, also after a failed connect().
	 */
	void (*shut)(struct rp_rc_channel *c);
	int (*post_recv)(struct rp_rc *rc, struct rp_rc_recv *r);
	int (*reg)(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
		   struct rp_rc_mr *mr);
	void (*dereg)(struct rp_rc *rc, struct rp_rc_mr *mr);
	/*
	 * Poll about max completions at most: rp_rc_complete_op(),
	 * rp_rc_complete_recv(), rp_rc_end(). Returns their number.
	 */
	int (*poll)(struct rp_rc *rc, int max);
	/*
	 * Read CM events: rp_rc_up(), rp_rc_end(), rp_rc_requested(). The first
	 * and the last call back, so read one event at a time. A callback may
	 * close any channel, which is then shut; its memory lives until
	 * rp_rc_poll() returns.
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
 * poll_events() is due at this time; 0: never. Kicks if that is earlier than
 * before, because a sleeping thread has the old deadline.
 */
void rp_rc_due(struct rp_rc *rc, uint64_t due);
/* In open(), or later: fd signals the rc's descriptor, if it has one. */
int rp_rc_watch(struct rp_rc *rc, int fd);
/* In post(): the device has accepted op. */
static inline void rp_rc_posted(struct rp_rc_channel *c,
				struct rp_channel_op *op)
{
	op->channel = &c->base;
	TAILQ_INSERT_TAIL(&c->posted, op, link);
	c->nposted++;
}
/*
 * In post(), after a device error: the channel ends, and op fails after shut(),
 * as part of it may have been posted.
 */
void rp_rc_failed(struct rp_rc_channel *c, struct rp_channel_op *op, int err);
/*
 * In poll() and shut(): the device has completed op. rc.c calls done() or
 * received() after the backend has returned, so that no callback runs inside;
 * err != 0 also ends the channel.
 */
void rp_rc_complete_op(struct rp_rc *rc, struct rp_channel_op *op, int err);
void rp_rc_complete_recv(struct rp_rc *rc, struct rp_rc_channel *from,
			 struct rp_rc_recv *r, size_t len);
/* In poll_events(): the peer has accepted, with this private data. */
void rp_rc_up(struct rp_rc_channel *c, const void *data, size_t len);
/*
 * From anywhere: the connection is lost; one lost() follows from poll. data: of
 * the peer's reject. No-op on a channel that has ended.
 */
void rp_rc_end(struct rp_rc_channel *c, int err, const void *data, size_t len);
/* In poll_events(): a peer connects. */
void rp_rc_requested(struct rp_rc *rc, void *handle,
		     const struct sockaddr *peer, const void *data, size_t len);
/* The peer has given up its request; the backend frees the handle. */
void rp_rc_request_gone(struct rp_rc *rc, void *handle);

/* --- rc.c, for rc_listen.c --- */

struct rp_rc_channel *rp_rc_channel_new(struct rp_rc *rc,
					const struct rp_channel_events *events,
					void *owner);
/* Keep the channel that connect() or accept() made, or destroy it (ret). */
int rp_rc_channel_start(struct rp_rc_channel *c, enum rp_rc_state state,
			int ret, struct rp_channel **out);

/* --- rc_listen.c --- */

/* Reject requests that are too old at this time; UINT64_MAX: all. */
void rp_rc_requests_expire(struct rp_rc *rc, uint64_t now);

/* --- rc_recv.c --- */

/* In connect() and accept(): more receives, for one more channel. */
int rp_rc_pool_grow(struct rp_rc *rc);
/* Repost a receive: its message has been read, or it had none. */
void rp_rc_recv_repost(struct rp_rc *rc, struct rp_rc_recv *r);
/*
 * Before ops->close() deregister the pool from the device, and free it after.
 */
void rp_rc_pool_dereg(struct rp_rc *rc);
void rp_rc_pool_free(struct rp_rc *rc);

#endif
