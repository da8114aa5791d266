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
 * The client writes one line, the daemon one of the others; what is in front of
 * them is not the daemon's. NAME goes to the end of the line.
 *
 *   ofi_rpmem-1 open|create|remove|remove-set|remove-set-force NAME
 *
 *   ofi_rpmem-1 serves HEADER SECRET PORT ADDRESS POOL
 *   ofi_rpmem-1 removed
 *   ofi_rpmem-1 missing SENTENCE
 *   ofi_rpmem-1 denied SENTENCE         a file cannot be read
 *   ofi_rpmem-1 exists SENTENCE         create: there may be a replica
 *   ofi_rpmem-1 error EXIT SENTENCE     an exit code of fi_rpmemd(1)
 *
 * HEADER is yes or no, as the pool set file says whether the replica has
 * attributes, or any, for a pool without such a file.
 *
 * A client that refuses the pool which it has created writes a second line:
 *
 *   ofi_rpmem-1 undo                    the daemon removes it if it made it
 */
#define RP_ONE_SHOT_HELLO "ofi_rpmem-1 "
#define RP_ONE_SHOT_UNDO  "undo"
#define RP_ONE_SHOT_LINE  1024 /* bytes of a line, with its end */

struct rp_conf;

struct rp_one_shot {
	bool on;
	const char *folder; /* folder of pool sets and pools; NULL: $HOME */
	bool replied, missing, denied, exists;
	bool undo;	     /* the client wants no pool that was made for it */
	bool stopped;	     /* a signal ended it, not the client */
	const char *header;  /* HEADER above */
	bool removes;	     /* instead of serving a pool */
	uint64_t idle_since; /* ms; 0: the pool is open at the client */
	uint64_t first_owner; /* the pool's owner when it was opened */
};

/*
 * Read the request from standard input, and make the configuration that of its
 * pool and of a secret for this session; or remove the pool. A signal ends the
 * wait for the request. Returns an exit code, and the reason in err.
 */
int rp_one_shot_begin(struct rp_one_shot *o, struct rp_conf *c, int signal_fd,
		      char *err);
/* Tell the client where it finds the pool, which had this owner. */
void rp_one_shot_serve(struct rp_one_shot *o, const struct rp_conf *c,
		       uint16_t port, uint64_t owner);
/* Tell the client why no pool is served, unless a reply was sent before. */
void rp_one_shot_fail(struct rp_one_shot *o, int code, const char *why);
/*
 * Whether the session has ended: the client closed standard input, or has not
 * opened the pool for a minute, because its host is down.
 */
bool rp_one_shot_ended(struct rp_one_shot *o, bool input, bool is_open,
		       uint64_t owner);

#endif
