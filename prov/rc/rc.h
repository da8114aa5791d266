/* SPDX-License-Identifier: BSD-2-Clause */
/* Private connections of one domain: by TCP sockets, or by librdmacm. */
#ifndef RP_RC_H
#define RP_RC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/channel.h"

/*
 * An rp_rc is what all private connections of one domain share: the device or
 * the descriptors to poll, one listener, one pool of receives. Not thread-safe:
 * all calls under the adapter's lock, which is also held in every callback.
 * Memory for one more connection is at most 32 KiB over TCP, kernel buffers
 * aside.
 */
struct rp_rc;
struct rp_rc_ops;

enum rp_rc_backend {
	RP_RC_TCP,   /* sockets, whatever the user's base */
	RP_RC_VERBS, /* RC queue pairs by librdmacm */
};

/* Bounds for each domain. */
#define RP_RC_MAX_CONNECTIONS 4096
#define RP_RC_MAX_HALF_OPEN   64 /* requested, not accepted yet */
#define RP_RC_HALF_OPEN_NS    5000000000ull

struct rp_rc_attr {
	enum rp_rc_backend backend;
	/* Instead of the backend: a test's, which simulates one; or NULL. */
	const struct rp_rc_ops *ops;
	const char *device; /* VERBS: a device name; NULL: by address */
	uint16_t port_first, port_last; /* of the listener; 0: any */
	bool waits;			/* rp_rc_fd() can be slept on */
	/*
	 * Random bytes, monotonic ns, and a wake-up, as in rp_connector_ops.
	 * now() may be a tick of 4 ms behind; exact() is not; NULL: as now().
	 */
	uint64_t (*now)(void *arg);
	uint64_t (*exact)(void *arg);
	int (*random)(void *arg, void *buf, size_t len);
	void (*kick)(void *arg);
	/*
	 * Somebody connects to the listener, and shows data, which is hostile.
	 * Answered by rp_rc_accept() or rp_rc_reject(), now or later; gone():
	 * the request has ended by itself (too old, closed).
	 */
	void (*requested)(void *arg, void *request, const void *data,
			  size_t len);
	void (*gone)(void *arg, void *request);
	void *arg;
};

/* -FI_ENODATA: this backend cannot be had here, with a sentence in why. */
int rp_rc_open(const struct rp_rc_attr *attr, struct rp_rc **out, char *why,
	       size_t why_size);
/* All channels closed, all memory deregistered before. */
void rp_rc_close(struct rp_rc *rc);

/* To hand to rp_session_new(). */
struct rp_connector *rp_rc_connector(struct rp_rc *rc);

/*
 * Listen at this local address (its port is ignored: one of the range is taken;
 * all busy: -EADDRINUSE). Once; *port is what keys carry.
 */
int rp_rc_listen(struct rp_rc *rc, const struct sockaddr *at, size_t len,
		 uint16_t *port);
int rp_rc_accept(struct rp_rc *rc, void *request, const void *data, size_t len,
		 const struct rp_channel_events *events, void *owner,
		 struct rp_channel **out);
void rp_rc_reject(struct rp_rc *rc, void *request, const void *data,
		  size_t len);

/* A number of the host, or IPv6 network, that it comes from; 0: unknown. */
uint64_t rp_rc_request_source(const void *request);

/* The peer's address: an IP one, and its port. */
const struct sockaddr *rp_rc_peer(const struct rp_channel *c);

/* Flags of all channels of this rc: enum rp_channel_flags. */
uint32_t rp_rc_flags(const struct rp_rc *rc);

/* Registered memory. */
struct rp_rc_mr {
	void *handle;	      /* NULL: none */
	void *desc;	      /* for operations of this side */
	uint64_t rkey;	      /* for those of peers */
	uint64_t remote_addr; /* of the first byte, for those */
};
enum rp_rc_access {
	RP_RC_LOCAL = 1, /* source or sink of own operations */
	RP_RC_REMOTE_READ = 2,
	RP_RC_REMOTE_WRITE = 4,
	RP_RC_REMOTE_FLUSH = 8, /* -EOPNOTSUPP: not this memory, or device */
};
/* TCP: the rkey is 64 random bits, so each grant is a registration. */
int rp_rc_reg(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
	      struct rp_rc_mr *mr);
void rp_rc_dereg(struct rp_rc *rc, struct rp_rc_mr *mr);

/*
 * Read completions and events; call done(), received(), connected(), lost(),
 * requested(). At most about max of them. True: there was something.
 */
bool rp_rc_poll(struct rp_rc *rc, int max);
/* Has something been found that the next poll reports? No descriptor wakes. */
bool rp_rc_pending(const struct rp_rc *rc);
/* A descriptor that wakes for any of these (needs attr->waits). */
int rp_rc_fd(const struct rp_rc *rc);
/* 0: sleep on the descriptor; -FI_EAGAIN: poll first. */
int rp_rc_trywait(struct rp_rc *rc);
/* When poll is due for a deadline of its own; UINT64_MAX: none. */
uint64_t rp_rc_deadline(const struct rp_rc *rc);
/* Any channel open, connecting, or listening? An idle rc costs nothing. */
bool rp_rc_busy(const struct rp_rc *rc);

#endif
