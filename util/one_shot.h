/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fi_rpmemd --one-shot: one pool for the client that started the daemon by ssh,
 * and the lines that they exchange over ssh.
 */
#ifndef RP_UTIL_ONE_SHOT_H
#define RP_UTIL_ONE_SHOT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The client writes the first of these lines, the daemon replies with one of
 * the others. The client skips lines before the reply: the login shell printed
 * them. NAME is the rest of the line.
 *
 *   ofi_rpmem-1 open|create|remove|remove-set|remove-set-force NAME
 *
 *   ofi_rpmem-1 serves HEADER SECRET PORT ADDRESS POOL
 *   ofi_rpmem-1 removed
 *   ofi_rpmem-1 missing SENTENCE        no such pool or pool set file
 *   ofi_rpmem-1 denied SENTENCE         a file cannot be read
 *   ofi_rpmem-1 exists SENTENCE         create: there may be a replica
 *   ofi_rpmem-1 error EXIT SENTENCE     an exit code of fi_rpmemd(1)
 *
 * HEADER says whether the replica has a header with attributes: yes or no, as
 * the pool set file has it, or any, if NAME is the pool itself.
 *
 * A client that cannot use the pool that it has created writes a second line:
 *
 *   ofi_rpmem-1 undo                    remove the pool, if "create" made it
 */
#define RP_ONE_SHOT_HELLO "ofi_rpmem-1 "
#define RP_ONE_SHOT_UNDO  "undo"
#define RP_ONE_SHOT_LINE  1024 /* bytes of a line, with its end */

struct rp_conf;

struct rp_one_shot {
	bool on;
	const char *folder; /* folder of pool sets and pools; NULL: $HOME */
	bool replied, missing, denied, exists;
	bool undo;	      /* the client sent "undo" */
	bool stopped;	      /* a signal ended the session, not the client */
	const char *header;   /* HEADER above */
	bool removes;	      /* removes a pool and serves none */
	uint64_t idle_since;  /* ms; 0: the pool is open at the client */
	uint64_t first_owner; /* the pool's owner when it was opened */
};

/*
 * Read the request from standard input. Put its pool and a secret for this
 * session into the configuration, or remove the pool. A signal ends the wait
 * for the request. Returns an exit code, and the reason in err.
 */
int rp_one_shot_begin(struct rp_one_shot *o, struct rp_conf *c, int signal_fd,
		      char *err);
/* Tell the client where it finds the pool; owner: the pool's last owner. */
void rp_one_shot_serve(struct rp_one_shot *o, const struct rp_conf *c,
		       uint16_t port, uint64_t owner);
/* Tell the client why no pool is served, unless a reply was sent before. */
void rp_one_shot_fail(struct rp_one_shot *o, int code, const char *why);
/*
 * Whether the session has ended: the client closed standard input, or for a
 * minute the pool was not open at the client, whose host may be down.
 */
bool rp_one_shot_ended(struct rp_one_shot *o, bool input, bool is_open,
		       uint64_t owner);

#endif
