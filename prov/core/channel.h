/* SPDX-License-Identifier: BSD-2-Clause */
/* The connection that a session needs; prov/rc implements it. */
#ifndef RP_CHANNEL_H
#define RP_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "core/list.h"

/*
 * A channel is one reliable connection between an initiator's endpoint and a
 * target's domain. It executes its operations in order, reports its own loss,
 * and never reconnects. All calls and callbacks happen under one lock, that of
 * core's caller.
 */
struct rp_channel;

enum rp_channel_kind {
	RP_CHANNEL_SEND,  /* a message */
	RP_CHANNEL_WRITE, /* RDMA write */
	RP_CHANNEL_READ,  /* RDMA read into iov; iov_count 0: a read fence */
	RP_CHANNEL_FLUSH, /* persistent FLUSH; needs RP_CHANNEL_FLUSHES */
};

/* Longest local scatter list of one operation. */
#define RP_CHANNEL_IOV 8

/*
 * One operation. The poster keeps its memory from rp_channel_post() until
 * done(), which is called exactly once for each posted operation, from poll or
 * close. err is 0 or a positive errno.
 */
struct rp_channel_op {
	void (*done)(struct rp_channel_op *op, int err);
	enum rp_channel_kind kind;
	/* WRITE: done(0) proves placement at the target (delivery complete). */
	bool delivered;
	/*
	 * SEND of at most channel->inject bytes: the bytes are copied, done()
	 * is never called, the operation may be on the stack.
	 */
	bool inject;
	uint8_t iov_count;
	const struct iovec *iov; /* list and bytes stay valid until done() */
	/*
	 * Local descriptors, one per iov; NULL: none. A SEND never has any:
	 * with LOCAL_MR the channel copies its bytes inside post.
	 */
	void **desc;
	uint64_t rkey, remote_addr, length; /* for WRITE, READ, FLUSH */
	/* Set by the channel, from post to done(). */
	struct rp_channel *channel;
	TAILQ_ENTRY(rp_channel_op) link; /* in a list of the channel */
	int err;
};

/* Events of a channel, which it reports to its owner from poll only. */
struct rp_channel_events {
	/* Connected; data: private data of the accept. Initiator side only. */
	void (*connected)(void *owner, const void *data, size_t len);
	/*
	 * Connecting has failed or the connection has ended; err: positive
	 * errno; data: private data of the reject, or len 0. No done() or
	 * received() follows, except out of rp_channel_close(), which the owner
	 * calls in lost() or as its next call.
	 */
	void (*lost)(void *owner, int err, const void *data, size_t len);
	void (*received)(void *owner, const void *msg, size_t len);
};

enum rp_channel_flags {
	/* A read that completes proves placement of earlier writes. */
	RP_CHANNEL_FENCES = 2,
	/* FLUSH is available: in both devices and the library. */
	RP_CHANNEL_FLUSHES = 4,
	/* Local memory of operations needs a desc. */
	RP_CHANNEL_LOCAL_MR = 8,
	/* Set by the owner: the end of the connection discards unsent bytes. */
	RP_CHANNEL_ABORTS = 16,
	/* A read behind a write with `delivered` proves its placement. */
	RP_CHANNEL_DELIVERS_BY_READ = 32,
};

struct rp_channel_ops {
	/*
	 * Post n operations, in order. Returns how many were posted, from the
	 * first on; 0: no room (retry after poll); never an error: a lost
	 * connection accepts operations and calls done() for them.
	 */
	int (*post)(struct rp_channel *c, struct rp_channel_op *ops[], int n);
	/*
	 * End the connection for good. Afterwards nothing that the peer sends
	 * reaches memory of this side. Calls done(ECANCELED) for every
	 * outstanding operation; when it returns, no buffer is in use and *c is
	 * freed.
	 */
	void (*close)(struct rp_channel *c);
};

struct rp_channel {
	const struct rp_channel_ops *ops;
	const struct rp_channel_events *events;
	void *owner;
	uint32_t flags;	 /* enum rp_channel_flags */
	uint32_t inject; /* longest SEND that may be injected */
};

static inline int rp_channel_post(struct rp_channel *c,
				  struct rp_channel_op *ops[], int n)
{
	return c->ops->post(c, ops, n);
}

static inline void rp_channel_close(struct rp_channel *c)
{
	c->ops->close(c);
}

/* Length of a scatter list; copy its bytes to a buffer; copy a buffer to it. */
static inline size_t rp_iov_len(const struct iovec *iov, size_t n)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++)
		len += iov[i].iov_len;
	return len;
}
static inline void rp_iov_gather(uint8_t *to, const struct iovec *iov, size_t n)
{
	for (size_t i = 0; i < n; to += iov[i++].iov_len)
		if (iov[i].iov_len)
			memcpy(to, iov[i].iov_base, iov[i].iov_len);
}
static inline void rp_iov_scatter(const struct iovec *iov, size_t n,
				  const uint8_t *from)
{
	for (size_t i = 0; i < n; from += iov[i++].iov_len)
		if (iov[i].iov_len)
			memcpy(iov[i].iov_base, from, iov[i].iov_len);
}

/* How a session connects, reads the time, and wakes its progress thread. */
struct rp_connector;
struct rp_connector_ops {
	/*
	 * Start to connect to a sockaddr with at most RP_WIRE_CM_DATA bytes of
	 * private data. 0 and *out, then events->connected() or ->lost() from
	 * poll; or -errno.
	 */
	int (*connect)(struct rp_connector *k, const void *addr, size_t len,
		       const void *data, size_t data_len,
		       const struct rp_channel_events *events, void *owner,
		       struct rp_channel **out);
	/* Monotonic time in ns; core reads no other clock. */
	uint64_t (*now)(struct rp_connector *k);
	/* Fill buf with bytes that a peer cannot guess. 0 or -errno. */
	int (*random)(struct rp_connector *k, void *buf, size_t len);
	/*
	 * Wake the progress thread. Called from any thread; must not wait for
	 * the lock of core's caller.
	 */
	void (*kick)(struct rp_connector *k);
};
struct rp_connector {
	const struct rp_connector_ops *ops;
};

#endif
