/* SPDX-License-Identifier: BSD-2-Clause */
/* Private connections of one domain: by TCP sockets, or by librdmacm. */
#ifndef RP_RC_H
#define RP_RC_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/channel.h"

/*
 * An rp_rc is shared by all private connections of one domain: the device or
 * the descriptors to poll, one listener, one pool of receives. Not thread-safe:
 * all calls under the adapter's lock, which is also held in every callback.
 * Each connection uses at most 32 KiB over TCP, without kernel buffers.
 */
struct rp_rc;
struct rp_rc_ops;

/* An IP address; the port has the same offset in both families. */
union rp_rc_addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};
/* The length of an IPv4 or IPv6 address, if it is at most len; else 0. */
size_t rp_rc_addr_len(const struct sockaddr *sa, size_t len);

enum rp_rc_backend {
	RP_RC_TCP,   /* sockets, for any base */
	RP_RC_VERBS, /* RC queue pairs by librdmacm */
};

/* Limits per domain. */
#define RP_RC_MAX_CONNECTIONS 4096
#define RP_RC_MAX_HALF_OPEN   64 /* requested, not accepted yet */
#define RP_RC_HALF_OPEN_NS    5000000000ull

struct rp_rc_attr {
	enum rp_rc_backend backend;
	/* A test's simulated backend instead of the real one; or NULL. */
	const struct rp_rc_ops *ops;
	const char *device; /* VERBS: a device name; NULL: found by address */
	uint16_t port_first, port_last; /* of the listener; 0: any */
	bool waits;			/* rp_rc_fd() can be polled for sleep */
	/*
	 * Random bytes, monotonic ns, and a wake-up, as in rp_connector_ops.
	 * now() may be late by a tick of 4 ms; exact() is not; NULL: as now().
	 */
	uint64_t (*now)(void *arg);
	uint64_t (*exact)(void *arg);
	int (*random)(void *arg, void *buf, size_t len);
	void (*kick)(void *arg);
	/*
	 * A peer connects to the listener with private data, which is hostile.
	 * The owner calls rp_rc_accept() or rp_rc_reject(), now or later;
	 * gone(): the request has ended by itself (too old, closed).
	 */
	void (*requested)(void *arg, void *request, const void *data,
			  size_t len);
	void (*gone)(void *arg, void *request);
	void *arg;
};

/* -FI_ENODATA: the backend is not available here, with a sentence in why. */
int rp_rc_open(const struct rp_rc_attr *attr, struct rp_rc **out, char *why,
	       size_t why_size);
/* All channels must be closed and all memory deregistered before. */
void rp_rc_close(struct rp_rc *rc);

/* The connector for rp_session_new(). */
struct rp_connector *rp_rc_connector(struct rp_rc *rc);

/*
 * Listen on this local address (its port is ignored: one of the range is taken;
 * all busy: -EADDRINUSE). Only once; *port is for keys.
 */
int rp_rc_listen(struct rp_rc *rc, const struct sockaddr *at, size_t len,
		 uint16_t *port);
int rp_rc_accept(struct rp_rc *rc, void *request, const void *data, size_t len,
		 const struct rp_channel_events *events, void *owner,
		 struct rp_channel **out);
void rp_rc_reject(struct rp_rc *rc, void *request, const void *data,
		  size_t len);

/* A number for the request's host or IPv6 network; 0: unknown. */
uint64_t rp_rc_request_source(const void *request);

/* The peer's IP address and port. */
const struct sockaddr *rp_rc_peer(const struct rp_channel *c);

/* Flags of all channels of this rc: enum rp_channel_flags. */
uint32_t rp_rc_flags(const struct rp_rc *rc);

/* Memory registered with an rp_rc. */
struct rp_rc_mr {
	void *handle;	      /* NULL: not registered */
	void *desc;	      /* for local operations */
	uint64_t rkey;	      /* for operations of peers */
	uint64_t remote_addr; /* of the first byte, for peers */
};
enum rp_rc_access {
	RP_RC_LOCAL = 1, /* source or destination of local operations */
	RP_RC_REMOTE_READ = 2,
	RP_RC_REMOTE_WRITE = 4,
	RP_RC_REMOTE_FLUSH = 8, /* -EOPNOTSUPP: not for this memory or device */
};
/*
 * TCP: the rkey is 64 random bits, so each grant is a registration. On failure
 * *mr is all 0.
 */
int rp_rc_reg(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
	      struct rp_rc_mr *mr);
void rp_rc_dereg(struct rp_rc *rc, struct rp_rc_mr *mr);

/*
 * Poll completions and events; call done(), received(), connected(), lost() or
 * requested() for about max of them at most. Returns whether there was any.
 */
bool rp_rc_poll(struct rp_rc *rc, int max);
/* Is there something to report at the next poll? No descriptor signals it. */
bool rp_rc_pending(const struct rp_rc *rc);
/* A descriptor that signals completions and events (needs attr->waits). */
int rp_rc_fd(const struct rp_rc *rc);
/* 0: the caller may sleep on the descriptor; -FI_EAGAIN: poll first. */
int rp_rc_trywait(struct rp_rc *rc);
/* When a poll is due even without an event; UINT64_MAX: never. */
uint64_t rp_rc_deadline(const struct rp_rc *rc);
/* Is any channel open or connecting, or a listener? Else polls cost nothing. */
bool rp_rc_busy(const struct rp_rc *rc);

#endif
