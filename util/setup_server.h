/* SPDX-License-Identifier: BSD-2-Clause */
/* Server of the setup protocol: serves many clients and never blocks. */
#ifndef RP_UTIL_SETUP_SERVER_H
#define RP_UTIL_SETUP_SERVER_H

#include "util/setup.h"

struct rp_setup_server;

/* Rights of a client to a pool. */
enum rp_setup_right {
	RP_SETUP_READ = 1,
	RP_SETUP_WRITE = 2,
	RP_SETUP_ADMIN = 4, /* displace another client */
};

/*
 * The secrets of clients. A client is known by the slot of the secret that made
 * its MAC: `secret_index` below.
 */
struct rp_setup_secrets {
	bool needed; /* false: accept every client, with index 0 */
	struct rp_secret v[RP_SETUP_SECRETS]; /* length 0: unused slot */
};

struct rp_setup_server_attr {
	int listener; /* socket of rp_setup_listen() */
	/* Two arrays that outlive the server and may change between calls. */
	const struct rp_setup_secrets *secrets; /* NULL: no secret is needed */
	const struct rp_setup_export *exports;	/* empty name: unused slot */
	unsigned int nexports;
	unsigned int max_conns;	 /* most connections without an open pool; one
				  * more replaces the oldest; 0: 64 */
	unsigned int timeout_ms; /* limit of one connection; 0: 5000 */
	/*
	 * Called for exports[i] at each request. Returns NULL, or a text with
	 * remedy: why the pool is no longer served. NULL: all pools are served.
	 */
	const char *(*withdrawn)(void *arg, unsigned int i);
	/*
	 * The rights of a client to exports[i]; 0: the client cannot see the
	 * pool. NULL: every client has all rights.
	 */
	unsigned int (*rights)(void *arg, unsigned int i,
			       unsigned int secret_index);
	/*
	 * The most clients that may have exports[i] open; 0: no limit. NULL: no
	 * limit.
	 */
	unsigned int (*clients)(void *arg, unsigned int i);
	/*
	 * Returns the number of parts of exports[i]; 1: undivided. *owner: the
	 * owner of `part`, a number up to RP_SETUP_PARTS even if the pool has
	 * fewer parts. NULL: no pool is divided.
	 */
	unsigned int (*parts)(void *arg, unsigned int i, unsigned int part,
			      uint64_t *owner);
	/*
	 * Divides exports[i]. Returns 0, or -errno and the reason in err. NULL:
	 * no pool can be divided.
	 */
	int (*divide)(void *arg, unsigned int i, unsigned int parts, char *err);
	/*
	 * Finds or makes the key of a client for a part of exports[i] (0: all
	 * of it), and describes the part in *e, a copy of exports[i]. Returns
	 * 0, or -errno and the reason in err. NULL: all clients get
	 * exports[i].key.
	 */
	int (*grant)(void *arg, unsigned int i, unsigned int secret_index,
		     unsigned int part, struct rp_setup_export *e, char *err);
	/*
	 * Stores the length of the file in a pool, and updates exports[i].
	 * Returns 0, or -errno and the reason in err. NULL: SET_LENGTH fails.
	 */
	int (*set_length)(void *arg, unsigned int i, uint64_t length,
			  char *err);
	/*
	 * Makes a client the owner of a part of exports[i]: revokes the keys of
	 * other clients, stores the owner, changes the export. Returns 0, or
	 * -errno and the reason in err; -EINPROGRESS: rp_setup_server_resume()
	 * serves the request again. NULL: no pool can be opened exclusively.
	 */
	int (*set_owner)(void *arg, unsigned int i, unsigned int part,
			 uint64_t owner, char *err);
	/*
	 * Whether a client other than the last owner may open a part of
	 * exports[i]. Returns 0, or -errno and the reason in err. NULL: yes.
	 */
	int (*may_open)(void *arg, unsigned int i, unsigned int part,
			char *err);
	/*
	 * Whether requests for exports[i] must wait for
	 * rp_setup_server_resume(). NULL: never.
	 */
	bool (*is_busy)(void *arg, unsigned int i);
	/*
	 * An exclusive client closed a part of exports[i], or disconnected. May
	 * be NULL.
	 */
	void (*release)(void *arg, unsigned int i, unsigned int part);
	void *arg; /* first argument of the functions */
	/*
	 * Reports a client that fetches a pool, or has a wrong secret (pool is
	 * NULL). Called at most once a second for each of these two events.
	 */
	void (*report)(const char *peer, const char *pool);
};

/*
 * Listen on an address (NULL: 127.0.0.1) and a port (0: any free port). Clients
 * that connect before the server exists wait for its first message, and need
 * not retry. Returns the socket, or -errno (-EADDRINUSE, ...) and the remedy in
 * err.
 */
int rp_setup_listen(const char *addr, uint16_t port, char *err);
/* The port of a socket; 0: no port. */
uint16_t rp_setup_port(int fd);
/* Whether the peer has closed a connection; reads nothing from it. */
bool rp_setup_has_closed(int fd);
/*
 * Milliseconds after a restart of the daemon in which only the last owner may
 * open a pool.
 */
#define RP_SETUP_AWAIT_MS 5000
/*
 * Let the connection of a dead host end after 30 seconds, and that of one that
 * was reset and runs again early enough for an idle owner to be back within
 * RP_SETUP_AWAIT_MS.
 */
void rp_setup_keep_alive(int fd);
/*
 * Make a server for the clients of attr->listener. rp_setup_server_delete()
 * closes the listener, and so does this function if it fails. Returns 0, or
 * -errno and the remedy in err.
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
/* Serve the waiting requests again, the oldest first. */
void rp_setup_server_resume(struct rp_setup_server *s);
/*
 * Secrets, exports or rights have changed: close the pools of clients that have
 * lost a right.
 */
void rp_setup_server_check_rights(struct rp_setup_server *s);

#endif
