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
	unsigned int max_conns;	 /* 0: 64; one more replaces the oldest. Those
				  * that hold a pool open do not count. */
	unsigned int timeout_ms; /* limit of one connection; 0: 5000 */
	/*
	 * Called for exports[i] at each request. Returns NULL, or why the pool
	 * is no longer served: a sentence with the remedy. NULL: all are
	 * served.
	 */
	const char *(*withdrawn)(void *arg, unsigned int i);
	/*
	 * Remembers the length of the file in exports[i], and changes it there.
	 * Returns 0, or -errno and the reason in err. NULL: none is remembered.
	 */
	int (*set_length)(void *arg, unsigned int i, uint64_t length,
			  char *err);
	/*
	 * Makes a client the owner of exports[i]: revokes the keys that others
	 * have, and remembers owner. Changes the export. Returns 0, or -errno
	 * and the reason in err. NULL: no pool can be opened exclusively.
	 */
	int (*set_owner)(void *arg, unsigned int i, uint64_t owner, char *err);
	/*
	 * Whether a client other than the last owner may open exports[i]: 0, or
	 * -errno and the reason in err. NULL: it may.
	 */
	int (*may_open)(void *arg, unsigned int i, char *err);
	/* The owner of exports[i] has closed it, or has ended. May be NULL. */
	void (*release)(void *arg, unsigned int i);
	void *arg; /* argument of the calls above */
	/*
	 * Reports a client: pool is the one that it fetched, or NULL for a
	 * wrong secret. At most once a second for each of the two kinds.
	 */
	void (*report)(const char *peer, const char *pool);
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
