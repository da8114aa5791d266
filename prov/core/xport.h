/* SPDX-License-Identifier: BSD-2-Clause */
/* The few operations that an adapter implements for core. */
#ifndef RP_XPORT_H
#define RP_XPORT_H

#include <stddef.h>
#include <stdint.h>

/*
 * One per endpoint of the adapter, embedded in it. Core calls these with the
 * adapter's lock held (the lock under which the adapter calls core) except
 * kick, which comes from any thread. None of them calls back into core.
 */
struct rp_xport;
struct rp_fence;
struct rp_peer;
struct rp_region;
struct rp_wire_offer;
struct rp_xport_ops {
	/* Monotonic time in ns. The only clock that core knows. */
	uint64_t (*now)(struct rp_xport *x);
	/*
	 * Send one control message to peer, behind everything this endpoint
	 * posted to it before. The bytes are copied. Returns 0, -EAGAIN (core
	 * tries again from its progress call), or another -errno: not sent.
	 */
	int (*send)(struct rp_xport *x, uint64_t peer, const void *msg,
		    size_t len);
	/*
	 * Where RP_WIRE_MAX_MSG bytes are from which the next message can be
	 * sent without copying it, until send() is called; NULL: nowhere. An
	 * adapter need not have this.
	 */
	void *(*room)(struct rp_xport *x);
	/*
	 * Initiator only, and only where its attributes say `own`: read len
	 * bytes, 1 to 8, of the base's key at addr, to nowhere in particular,
	 * behind everything this endpoint posted to peer before and over the
	 * same connection. Returns 0, and then rp_fence_done() is called once;
	 * -EAGAIN; or another -errno: not posted.
	 */
	int (*fence)(struct rp_xport *x, uint64_t peer, uint64_t base_key,
		     uint64_t addr, size_t len, struct rp_fence *f);
	/*
	 * Initiator only, and only where its attributes say `links`: begin to
	 * connect to this address, showing the secret. 0, and then *conn, and
	 * rp_link_up() or rp_link_broken() of the peer; later rp_link_broken()
	 * once when it breaks. hang_up() ends it at once: after that no more is
	 * told of it, nor of what was posted there.
	 */
	int (*dial)(struct rp_xport *x, struct rp_peer *p, const void *addr,
		    size_t len, uint64_t secret, void **conn);
	void (*hang_up)(struct rp_xport *x, void *conn);
	/*
	 * Target only, and only where the agent's attributes say `links`: let
	 * who shows m->secret write to this region over *conn, which is made
	 * when it is NULL: fills in secret, there, at, addr_len and to. 0 or
	 * -errno; then *conn may have been made all the same. -EOPNOTSUPP: not
	 * with m->method native, for the device has not taken the region for
	 * FLUSH. unoffer() ends it: when that returns, nothing that comes over
	 * it reaches memory any more.
	 */
	int (*offer)(struct rp_xport *x, void **conn, const struct rp_region *r,
		     struct rp_wire_offer *m);
	void (*unoffer)(struct rp_xport *x, void *conn);
	/*
	 * Target only: answer what has come over this connection, from inside
	 * rp_agent_linked(). Should that not be possible the connection ends,
	 * after it. The bytes, at most RP_WIRE_INJECT, are copied.
	 */
	void (*answer)(struct rp_xport *x, void *conn, const void *msg,
		       size_t len);
	/*
	 * Target only: find or make a way to answer the endpoint of this
	 * address; *peer is good until peer_put(). Bounded by the caller.
	 */
	int (*peer_get)(struct rp_xport *x, const void *addr, size_t len,
			uint64_t *peer);
	void (*peer_put)(struct rp_xport *x, uint64_t peer);
	/* This endpoint's own address, for HELLO. len in/out. 0 or -errno. */
	int (*name)(struct rp_xport *x, void *addr, size_t *len);
	/* Fill with random bytes that a peer cannot guess. 0 or -errno. */
	int (*random)(struct rp_xport *x, void *buf, size_t len);
	/*
	 * Target only: tell the program that [buf, buf+len) was written by
	 * peer, with its remote CQ data. 0, or -ENOMEM: not told. An endpoint
	 * without a place for it says 0.
	 */
	int (*notify)(struct rp_xport *x, uint64_t peer, uint64_t data,
		      void *buf, size_t len);
	/*
	 * From any thread: a progress call is due. Must not wait for the
	 * adapter's lock: its holder may be waiting for that thread.
	 */
	void (*kick)(struct rp_xport *x);
};

struct rp_xport {
	const struct rp_xport_ops *ops;
};

#endif
