/* SPDX-License-Identifier: BSD-2-Clause */
/* A set-up server in a thread, and a client that sends any bytes to it. */
#ifndef RP_TEST_SETUP_SERVER_RIG_H
#define RP_TEST_SETUP_SERVER_RIG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "setup_rig.h"

/* Counts of reports and of wakeups of the server's thread. */
extern atomic_uint refusals, served, wakeups;
extern struct rp_setup_export exports[2]; /* the server's, a copy of pools */
extern struct rp_setup_target target;	  /* where the server listens */
/* The length that a client has set last; setting 13 fails. */
extern atomic_ullong last_length;
/* Number of owner changes; owner 13 is refused. */
extern atomic_uint owner_changes;
extern atomic_uint owner_releases; /* calls of release_export() */
/* True: may_open() refuses other clients, since the last owner may return. */
extern atomic_bool last_owner_may_return;
/* Set before start_server(): the second pool is withdrawn. */
extern bool withdraws;

/* s NULL: clients need no secret. 0: the default limit. */
void start_server(const struct rp_secret *s, unsigned int max_conns,
		  unsigned int timeout_ms);
void stop_server(void);
/* Fetch the first pool's export into m.export. */
int fetch_export(void);
int connect_to(void);
/* Read until the peer closes the connection. */
size_t read_to_end(int fd, uint8_t *buf, size_t size);
/* The next bytes must be an error with this code, and the last ones. */
void expect_error(int fd, enum rp_setup_code code);
void recv_challenge(int fd, struct rp_setup_challenge *g);

#endif
