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
 * -EHOSTUNREACH unknown host or no route, -EACCES the secret, -ENOENT no such
 * pool, -EPROTO not fi_rpmemd, -EPROTONOSUPPORT another version, -EIO the
 * connection ended early.
 */
int rp_setup_fetch_export(const struct rp_setup_target *t, const char *pool,
			  struct rp_setup_export *out, char *err);
int rp_setup_fetch_list(const struct rp_setup_target *t,
			struct rp_setup_list *out, char *err);

#endif
