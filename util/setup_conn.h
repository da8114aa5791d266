/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of the server of the setup protocol, and its clients' pools. */
#ifndef RP_UTIL_SETUP_CONN_H
#define RP_UTIL_SETUP_CONN_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "util/setup_server.h"

enum state {
	CHALLENGE, /* sending CHALLENGE */
	REQUEST,   /* receiving the request */
	WAIT,	   /* the request waits for rp_setup_server_resume() */
	REPLY,	   /* sending the reply */
	CLOSE,	   /* waiting until the client closes */
	HOLD,	   /* like CLOSE, but the client keeps a pool open */
};

struct conn {
	TAILQ_ENTRY(conn) link; /* in `conns`, the earliest deadline is first */
	int fd;
	enum state state;
	uint64_t deadline; /* in ms */
	struct rp_setup_auth auth;
	uint8_t in[RP_SETUP_MAX_REQUEST];
	size_t in_len;
	uint8_t *out;
	size_t out_len, out_done;
	char peer[NI_MAXHOST];
	/* The client has opened a pool: the connection has no deadline. */
	bool holds;
	bool exclusive, observes;
	unsigned int pool, part, secret_index, rights;
	uint64_t owner;
};
TAILQ_HEAD(conns, conn);

struct rp_setup_server {
	struct rp_setup_server_attr attr;
	int epfd;
	int listener;
	struct conns conns;	 /* connections without an open pool */
	struct conns waiting;	 /* connections in WAIT: no deadline */
	struct conns holders;	 /* connections that keep a pool open */
	unsigned int nconns;	 /* number in conns and waiting */
	uint64_t reported_at[2]; /* ms: [0] refused, [1] served */
	uint64_t listen_again;	 /* ms; 0: the listener is active */
};

/* setup_server.c: close a connection, and the pool that it keeps open. */
void rp_setup_drop_conn(struct rp_setup_server *s, struct conn *c);

/* --- setup_holders.c */

/*
 * Find a client that has exports[i] open and excludes a request, or NULL. Drop
 * such clients that have disconnected: a restarted client must not be excluded.
 */
const struct conn *rp_setup_find_holder(struct rp_setup_server *s,
					const struct rp_setup_request *req,
					unsigned int i);
/* Let the connection keep exports[i] open from now on. */
void rp_setup_hold(struct rp_setup_server *s, struct conn *c,
		   const struct rp_setup_request *req, unsigned int i,
		   unsigned int rights);
/* Count clients that have exports[i] open; drop disconnected ones. */
unsigned int rp_setup_count_holders(struct rp_setup_server *s, uint64_t owner,
				    unsigned int i);
/* Drop all clients that have bytes open that the request would open, too. */
void rp_setup_drop_holders(struct rp_setup_server *s,
			   const struct rp_setup_request *req, unsigned int i);

#endif
