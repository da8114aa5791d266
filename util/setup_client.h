/* SPDX-License-Identifier: BSD-2-Clause */
/* Client of the setup protocol: fetches what a daemon exports. */
#ifndef RP_UTIL_SETUP_CLIENT_H
#define RP_UTIL_SETUP_CLIENT_H

#include "util/setup.h"

/* Address and secret of a daemon. */
struct rp_setup_target {
	char host[256];
	uint16_t port;
	const struct rp_secret *secret; /* NULL: none */
	unsigned int timeout_ms;	/* limit for the exchange; 0: 5000 */
	unsigned int wait_ms; /* for a daemon that does not listen yet */
};

/*
 * Parse HOST or HOST:PORT ([ADDR] for IPv6) at the start of s. Returns the
 * number of bytes parsed, or -EINVAL and the reason. The default port is
 * RP_SETUP_PORT; secret and timeout_ms stay.
 */
int rp_setup_parse_target(const char *s, struct rp_setup_target *t, char *err);

/*
 * Fetch one pool, or the list. Blocks for wait and timeout at most. Returns 0,
 * or -errno and the remedy in err: -ECONNREFUSED nothing listens, -ETIMEDOUT,
 * -EHOSTUNREACH unknown host or no route, -EACCES the secret is wrong or does
 * not allow this, -ENOENT no such pool, -EPROTO not fi_rpmemd, -EPROTONOSUPPORT
 * another version, -EIO the connection ended early.
 */
int rp_setup_fetch_export(const struct rp_setup_target *t, const char *pool,
			  struct rp_setup_export *out, char *err);
/* A client that opens a pool, and whether it shares the pool. */
struct rp_setup_open {
	uint64_t owner; /* random number of the client: rp_setup_owner() */
	bool exclusive; /* no other client may have it open */
	bool again;	/* it had the pool open: displace no other client */
	bool take;	/* exclusively: displace whoever has it open */
	bool observe;	/* only read, also beside an exclusive client */
	/*
	 * Only a pool with this many parts, 1: not divided; 0: any. The part
	 * counts from 1; 0: the whole pool.
	 */
	unsigned int parts, part;
};
/*
 * The same, and open the pool: it stays open until the caller closes *fd. The
 * errors of rp_setup_fetch_export(), and -EBUSY: another client has it open, or
 * may come back to it (with t->wait_ms the call waits for that first);
 * -ESTALE: another one has opened it meanwhile; -ENXIO: another number of
 * parts.
 */
int rp_setup_open(const struct rp_setup_target *t, const char *pool,
		  const struct rp_setup_open *how, struct rp_setup_export *out,
		  int *fd, char *err);
/* A random number for rp_setup_open.owner; 0: none can be had. */
uint64_t rp_setup_owner(void);
/*
 * Divide a pool, durably, that this client has opened exclusively, all of it.
 * The errors of rp_setup_fetch_export(), and -EBUSY: it has not; -ENXIO: too
 * many parts.
 */
int rp_setup_divide(const struct rp_setup_target *t, const char *pool,
		    uint64_t owner, unsigned int parts, char *err);
/*
 * Remember the length of the file in a pool, durably; 0: unknown. The errors of
 * rp_setup_fetch_export(), and -ERANGE: longer than the pool.
 */
int rp_setup_set_length(const struct rp_setup_target *t, const char *pool,
			uint64_t length, char *err);
int rp_setup_fetch_list(const struct rp_setup_target *t,
			struct rp_setup_list *out, char *err);

#endif
