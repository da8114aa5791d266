/* SPDX-License-Identifier: BSD-2-Clause */
/* What a session needs of a transport; prov/rc implements it. */
#ifndef RP_CHANNEL_H
#define RP_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/list.h"

/*
 * A channel is one reliable connection between an initiator's endpoint and a
 * target's domain. It carries its operations out in order, reports its own
 * loss, and is never connected again. All calls and callbacks happen under one
 * lock, the adapter's.
 */
struct rp_channel;

enum rp_channel_kind {
	RP_CHANNEL_SEND,  /* a message */
	RP_CHANNEL_WRITE, /* RDMA write */
	RP_CHANNEL_READ,  /* RDMA read into iov; iov_count 0: a fence, which
			     reads 1 to 8 bytes to nowhere */
	RP_CHANNEL_FLUSH, /* native FLUSH to persistence; RP_CHANNEL_FLUSHES */
};

/* Longest local scatter list of one operation. */
#define RP_CHANNEL_IOV 8

/*
 * One operation. The memory is the poster's from rp_channel_post() until
 * done(), which is called exactly once for each operation that was posted:
 * from poll, or from close. err is 0 or a positive errno.
 */
struct rp_channel_op {
	void (*done)(struct rp_channel_op *op, int err);
	enum rp_channel_kind kind;
	/* WRITE: done(0) proves placement at the target (delivery complete). */
	bool delivered;
	/*
	 * SEND of at most channel->inject bytes in all: the bytes are copied,
	 * done() is never called, the operation may live on the stack.
	 */
	bool inject;
	uint8_t iov_count;
	const struct iovec *iov; /* valid until done(), as its bytes */
	/*
	 * Of each iov; NULL: none. A SEND never has any: with LOCAL_MR the
	 * channel copies its bytes inside post.
	 */
	void **desc;
	uint64_t rkey, remote_addr, length; /* WRITE, READ, FLUSH */
	/* The channel's, from post to done(). */
	struct rp_channel *channel;
	TAILQ_ENTRY(rp_channel_op) link; /* of those that were posted */
	struct rp_channel_op *next;
	int err;
};

/* Events of a channel, reported to its owner from poll only. */
struct rp_channel_events {
	/* Up: data of the peer's accept. Not called at the accepting side. */
	void (*connected)(void *owner, const void *data, size_t len);
	/*
	 * The connection could not be made or has ended; err a positive errno;
	 * data: of the peer's reject, or len 0. No done() and no received()
	 * follows, except out of rp_channel_close(), which the owner calls
	 * next or from here.
	 */
	void (*lost)(void *owner, int err, const void *data, size_t len);
	void (*received)(void *owner, const void *msg, size_t len);
};

enum rp_channel_flags {
	/* A message is received only after the writes before it are placed. */
	RP_CHANNEL_ORDERED = 1,
	/* A read that completes proves placement of the writes before it. */
	RP_CHANNEL_FENCES = 2,
	/* FLUSH is there: both devices and the library have it. */
	RP_CHANNEL_FLUSHES = 4,
	/* Local memory of operations needs a desc. */
	RP_CHANNEL_LOCAL_MR = 8,
};

struct rp_channel_ops {
	/*
	 * Post n operations, in order. Returns how many were posted, from the
	 * first on; 0: no room now (try again after poll); never an error: a
	 * lost connection takes operations and calls done() for them.
	 */
	int (*post)(struct rp_channel *c, struct rp_channel_op *ops[], int n);
	/*
	 * Ends the connection for good. Nothing that the peer sends reaches
	 * memory of this side afterwards. Calls done(ECANCELED) for every
	 * operation under way; when it returns no buffer is used any more and
	 * *c is gone.
	 */
	void (*close)(struct rp_channel *c);
	/* The peer's address as text, for logs and errors. */
	const char *(*peer)(const struct rp_channel *c, char *buf, size_t size);
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

/* How a session gets one; also the adapter's clock and thread. */
struct rp_connector;
struct rp_connector_ops {
	/*
	 * Begin to connect to a sockaddr, showing at most RP_WIRE_CM_DATA
	 * bytes. 0 and *out, then events->connected() or ->lost(), from poll;
	 * or -errno.
	 */
	int (*connect)(struct rp_connector *k, const void *addr, size_t len,
		       const void *data, size_t data_len,
		       const struct rp_channel_events *events, void *owner,
		       struct rp_channel **out);
	/* Monotonic time in ns: the only clock that core knows. */
	uint64_t (*now)(struct rp_connector *k);
	/* Fill with bytes that a peer cannot guess. 0 or -errno. */
	int (*random)(struct rp_connector *k, void *buf, size_t len);
	/*
	 * From any thread: a progress call is due. Must not wait for the
	 * adapter's lock.
	 */
	void (*kick)(struct rp_connector *k);
};
struct rp_connector {
	const struct rp_connector_ops *ops;
};

#endif
