/* SPDX-License-Identifier: BSD-2-Clause */
/* Client of the setup protocol: fetches what a daemon exports. */
#ifndef RP_UTIL_SETUP_CLIENT_H
#define RP_UTIL_SETUP_CLIENT_H

#include "util/setup.h"

/* Address and secret of a daemon. */
struct rp_setup_target {
	char host[256];
	uint16_t port;
	const struct rp_secret *secret; /* NULL: no secret */
	unsigned int timeout_ms;	/* limit for the exchange; 0: 5000 */
	unsigned int wait_ms; /* to wait for a daemon that is starting */
	/* Limit for the reply to a request: the daemon may write back first. */
	uint64_t reply_ms;
};

/*
 * Parse HOST or HOST:PORT ([ADDR] for IPv6) at the start of s. Returns the
 * number of bytes parsed, or -EINVAL and the reason in err. The default port is
 * RP_SETUP_PORT; secret and timeout_ms are not changed.
 */
int rp_setup_parse_target(const char *s, struct rp_setup_target *t, char *err);

/*
 * Fetch one pool; rp_setup_fetch_list() fetches all. Blocks for at most wait_ms
 * plus timeout_ms, or reply_ms from the request on. Returns 0, or -errno and
 * the remedy in err: -ECONNREFUSED nothing listens, -ETIMEDOUT, -EHOSTUNREACH
 * unknown host or no route, -EACCES the secret is wrong or does not allow this,
 * -ENOENT no such pool, -EPROTO not fi_rpmemd, -EPROTONOSUPPORT another
 * version, -EIO the connection ended early.
 */
int rp_setup_fetch_export(const struct rp_setup_target *t, const char *pool,
			  struct rp_setup_export *out, char *err);
/* How a client opens a pool. */
struct rp_setup_open {
	uint64_t owner; /* random number of the client: rp_setup_owner() */
	bool exclusive; /* fail if another client has the pool open */
	bool again;	/* reconnect: displace no other client */
	bool take;	/* with exclusive: displace any other client */
	bool observe;	/* only read, even if another client writes */
	/*
	 * compare, with exclusive: fail unless the pool's owner is `expected`,
	 * which an earlier reply had in rp_setup_export.owner.
	 */
	bool compare;
	uint64_t expected;
	/*
	 * parts: fail unless the pool has this many parts; 1: undivided; 0: any
	 * number. part: from 1 on; 0: the whole pool.
	 */
	unsigned int parts, part;
};
/*
 * Fetch one pool and open it: it stays open until the caller closes *fd. The
 * errors of rp_setup_fetch_export(), and -EBUSY: another client has the pool
 * open, or may reconnect (unless t->wait_ms is 0, retries that for 10 s);
 * -ESTALE: another client has opened the pool meanwhile, or its owner is not
 * `expected`; -ENXIO: it has another number of parts.
 */
int rp_setup_open(const struct rp_setup_target *t, const char *pool,
		  const struct rp_setup_open *how, struct rp_setup_export *out,
		  int *fd, char *err);
/* A random number for rp_setup_open.owner; 0: no random bytes. */
uint64_t rp_setup_owner(void);
/*
 * Divide a pool durably. The client `owner` must have the whole pool open
 * exclusively. The errors of rp_setup_fetch_export(), and -EBUSY: the client
 * has not; -ENXIO: too many parts.
 */
int rp_setup_divide(const struct rp_setup_target *t, const char *pool,
		    uint64_t owner, unsigned int parts, char *err);
/*
 * Store the length of the file in a pool durably; 0: unknown. The errors of
 * rp_setup_fetch_export(), and -ERANGE: longer than the pool.
 */
int rp_setup_set_length(const struct rp_setup_target *t, const char *pool,
			uint64_t length, char *err);
int rp_setup_fetch_list(const struct rp_setup_target *t,
			struct rp_setup_list *out, char *err);

#endif
