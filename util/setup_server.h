/* SPDX-License-Identifier: BSD-2-Clause */
/* Server of the setup protocol: serves many clients and never blocks. */
#ifndef RP_UTIL_SETUP_SERVER_H
#define RP_UTIL_SETUP_SERVER_H

#include "util/setup.h"

struct rp_setup_server;

struct rp_setup_server_attr {
	const char *addr;		/* NULL: 127.0.0.1 */
	uint16_t port;			/* 0: a free one */
	const struct rp_secret *secret; /* NULL: none; outlives the server */
	const struct rp_setup_export *exports; /* outlives the server */
	unsigned int nexports;
	unsigned int max_conns;	 /* 0: 64; one more replaces the oldest */
	unsigned int timeout_ms; /* limit of one connection; 0: 5000 */
	/*
	 * Called for exports[i] at each request. Returns NULL, or why the pool
	 * is no longer served: a sentence with the remedy. NULL: all are
	 * served.
	 */
	const char *(*withdrawn)(void *arg, unsigned int i);
	void *arg; /* argument of withdrawn() */
	/* Reports clients with a wrong secret, at most once a second. */
	void (*refused)(const char *peer);
};

/*
 * Check that the address exists and that nothing listens on the port. Returns
 * 0, or -errno (-EADDRINUSE, ...) and the remedy in err.
 */
int rp_setup_server_check(const char *addr, uint16_t port, char *err);
/*
 * Start to listen. Returns 0, or -errno (-EADDRINUSE, ...) and the remedy in
 * err.
 */
int rp_setup_server_new(const struct rp_setup_server_attr *attr,
			struct rp_setup_server **out, char *err);
void rp_setup_server_delete(struct rp_setup_server *s);

uint16_t rp_setup_server_port(const struct rp_setup_server *s);
/* File descriptor that is readable when rp_setup_server_run() has work. */
int rp_setup_server_fd(const struct rp_setup_server *s);
/* Milliseconds until the next deadline; -1: none. */
int rp_setup_server_timeout(const struct rp_setup_server *s);
/* Serve all ready connections. Never blocks. */
void rp_setup_server_run(struct rp_setup_server *s);

#endif
