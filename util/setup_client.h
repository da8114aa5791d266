/* SPDX-License-Identifier: BSD-2-Clause */
/* The client's end of set-up: ask a daemon about its pools. */
#ifndef RP_UTIL_SETUP_CLIENT_H
#define RP_UTIL_SETUP_CLIENT_H

#include "util/setup.h"

/* Where a daemon is. */
struct rp_setup_target {
	char host[256];
	uint16_t port;
	const struct rp_secret *secret; /* NULL: none */
	unsigned int timeout_ms;	/* of the whole conversation; 0: 5000 */
};

/*
 * Take HOST or HOST:PORT ([ADDR] for IPv6) from the front of s. Returns how
 * many bytes were used, or -EINVAL and why. The port is RP_SETUP_PORT where
 * none is given; secret and timeout_ms are left alone.
 */
int rp_setup_parse_target(const char *s, struct rp_setup_target *t, char *err);

/*
 * Ask for one pool, or for the list. Blocks, at most the timeout. Returns 0, or
 * -errno and the remedy in err: -ECONNREFUSED nobody listens, -ETIMEDOUT,
 * -EHOSTUNREACH no such host or no way, -EACCES the secret, -ENOENT no such
 * pool, -EPROTO not fi_rpmemd, -EPROTONOSUPPORT another version, -EIO broken
 * off.
 */
int rp_setup_fetch_export(const struct rp_setup_target *t, const char *pool,
			  struct rp_setup_export *out, char *err);
int rp_setup_fetch_list(const struct rp_setup_target *t,
			struct rp_setup_list *out, char *err);

#endif
