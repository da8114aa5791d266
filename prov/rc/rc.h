/* SPDX-License-Identifier: BSD-2-Clause */
/* Private connections of one domain, over TCP sockets or RC queue pairs. */
#ifndef RP_RC_H
#define RP_RC_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/channel.h"

/*
 * An rp_rc has what all private connections of a domain share: the device or
 * the epoll descriptors, one listener, one pool of receives. Not thread-safe:
 * all calls under the caller's lock, which is also held in every callback.
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
/* Length of this sockaddr_in or sockaddr_in6; 0: neither, or more than len. */
size_t rp_rc_addr_len(const struct sockaddr *sa, size_t len);

enum rp_rc_backend {
	RP_RC_TCP,   /* TCP sockets, for any base provider */
	RP_RC_VERBS, /* RC queue pairs, connected by librdmacm */
};

/* Limits of private connections per domain. */
#define RP_RC_MAX_CONNECTIONS 4096
#define RP_RC_MAX_HALF_OPEN   64 /* requests without accept or reject yet */
#define RP_RC_HALF_OPEN_NS    5000000000ull

struct rp_rc_attr {
	enum rp_rc_backend backend;
	/* Backend of a test or simulator; NULL: the real one. */
	const struct rp_rc_ops *ops;
	const char *device; /* RP_RC_VERBS: device name; NULL: by address */
	uint16_t port_first, port_last; /* listener's port range; 0: any */
	bool waits;			/* a thread may sleep on rp_rc_fd() */
	/*
	 * Monotonic ns, random bytes and a wake-up, as in rp_connector_ops.
	 * now() may be up to 4 ms (a clock tick) late, now_exact() is not late;
	 * now_exact NULL: now() is used instead.
	 */
	uint64_t (*now)(void *arg);
	uint64_t (*now_exact)(void *arg);
	int (*random)(void *arg, void *buf, size_t len);
	void (*kick)(void *arg);
	/*
	 * requested(): a peer connects to the listener with private data, which
	 * is hostile. The owner calls rp_rc_accept() or rp_rc_reject(), now or
	 * later. gone(): the request has ended by itself (too old, closed).
	 */
	void (*requested)(void *arg, void *request, const void *data,
			  size_t len);
	void (*gone)(void *arg, void *request);
	void *arg;
};

/* Open a backend. -FI_ENODATA: not available here, with a sentence in why. */
int rp_rc_open(const struct rp_rc_attr *attr, struct rp_rc **out, char *why,
	       size_t why_size);
/* Close after all channels are closed and all memory is deregistered. */
void rp_rc_close(struct rp_rc *rc);

/* The connector to pass to rp_session_new(). */
struct rp_connector *rp_rc_connector(struct rp_rc *rc);

/*
 * Listen on the local address at (its port is ignored: a free one of the range
 * is used; all busy: -EADDRINUSE). Only once; keys carry *port.
 */
int rp_rc_listen(struct rp_rc *rc, const struct sockaddr *at, size_t len,
		 uint16_t *port);
int rp_rc_accept(struct rp_rc *rc, void *request, const void *data, size_t len,
		 const struct rp_channel_events *events, void *owner,
		 struct rp_channel **out);
void rp_rc_reject(struct rp_rc *rc, void *request, const void *data,
		  size_t len);

/* A number that identifies the peer's host or IPv6 /64 network; 0: unknown. */
uint64_t rp_rc_request_source(const void *request);

/* The IP address and port of a channel's peer. */
const struct sockaddr *rp_rc_peer(const struct rp_channel *c);

/* Flags that all channels of rc have: enum rp_channel_flags. */
uint32_t rp_rc_flags(const struct rp_rc *rc);

/* Memory registered with an rp_rc. */
struct rp_rc_mr {
	void *handle;	      /* NULL: nothing is registered */
	void *desc;	      /* descriptor for local operations */
	uint64_t rkey;	      /* key for peers' operations */
	uint64_t remote_addr; /* remote address of the first byte */
};
enum rp_rc_access {
	RP_RC_LOCAL = 1, /* source or destination of local operations */
	RP_RC_REMOTE_READ = 2,
	RP_RC_REMOTE_WRITE = 4,
	RP_RC_REMOTE_FLUSH = 8, /* native FLUSH; -EOPNOTSUPP: impossible */
};
/*
 * Register memory. Over TCP an rkey is 64 random bits, so each grant is a
 * registration. On failure *mr is all 0.
 */
int rp_rc_reg(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
	      struct rp_rc_mr *mr);
void rp_rc_dereg(struct rp_rc *rc, struct rp_rc_mr *mr);

/*
 * Poll completions and events; call done(), received(), connected(), lost() or
 * requested() for about max of them at most. Returns whether it called any.
 */
bool rp_rc_poll(struct rp_rc *rc, int max);
/* Has the next poll something to report that no descriptor signals? */
bool rp_rc_pending(const struct rp_rc *rc);
/* The descriptor that signals completions and events (needs attr->waits). */
int rp_rc_fd(const struct rp_rc *rc);
/* 0: the caller may sleep on rp_rc_fd(); -FI_EAGAIN: poll first. */
int rp_rc_trywait(struct rp_rc *rc);
/* Time when a poll is due even without an event; UINT64_MAX: never. */
uint64_t rp_rc_deadline(const struct rp_rc *rc);
/* Is there an open or connecting channel, or a listener? If not, skip polls. */
bool rp_rc_busy(const struct rp_rc *rc);

#endif
