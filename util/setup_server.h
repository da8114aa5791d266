/* SPDX-License-Identifier: BSD-2-Clause */
/* The daemon's end of set-up: answers many clients, waits for none. */
#ifndef RP_UTIL_SETUP_SERVER_H
#define RP_UTIL_SETUP_SERVER_H

#include "util/setup.h"

struct rp_setup_server;

struct rp_setup_server_attr {
	const char *addr;		       /* NULL: 127.0.0.1 */
	uint16_t port;			       /* 0: a free one */
	const struct rp_secret *secret;	       /* NULL: none; outlives it */
	const struct rp_setup_export *exports; /* outlives it */
	unsigned int nexports;
	unsigned int max_conns;	 /* 0: 64; then the oldest one gives way */
	unsigned int timeout_ms; /* of one connection; 0: 5000 */
	/*
	 * Asked about exports[i] at each request: why it is offered no more, a
	 * sentence with the remedy, or NULL. May itself be NULL: all are.
	 */
	const char *(*withdrawn)(void *arg, unsigned int i);
	void *arg; /* of withdrawn() */
	/* Told of clients with a wrong secret, at most once a second. */
	void (*refused)(const char *peer);
};

/* Listen. On failure -errno (-EADDRINUSE, ...) and the remedy in err. */
int rp_setup_server_new(const struct rp_setup_server_attr *attr,
			struct rp_setup_server **out, char *err);
void rp_setup_server_delete(struct rp_setup_server *s);

uint16_t rp_setup_server_port(const struct rp_setup_server *s);
/* Readable when rp_setup_server_run() has something to do. */
int rp_setup_server_fd(const struct rp_setup_server *s);
/* Milliseconds until it has something to do by time alone; -1: never. */
int rp_setup_server_timeout(const struct rp_setup_server *s);
/* Do what is at hand. Never blocks. */
void rp_setup_server_run(struct rp_setup_server *s);

#endif
