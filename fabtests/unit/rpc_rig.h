/* SPDX-License-Identifier: BSD-2-Clause */
/* Both sides of librpmem_rpc on a pool in memory, with power cuts. */
#ifndef RP_TEST_RPC_RIG_H
#define RP_TEST_RPC_RIG_H

#include "librpc/client.h"
#include "librpc/server.h"
#include "seeded.h"

#define RIG_OPS	 512u
#define RIG_MSGS 64u

struct rig {
	struct seeded rnd;
	unsigned char *live;   /* what both sides see */
	unsigned char *medium; /* what survives a power cut in any case */
	uint64_t length;
	struct rpmem_pool_op *ops[RIG_OPS]; /* outstanding */
	unsigned int nops;
	struct rpmem_pool_op *done[RIG_OPS];
	unsigned int ndone;
	struct {
		struct rpc_msg m;
		unsigned char bytes[RPC_MSG_BYTES];
	} msgs[RIG_MSGS]; /* to the client */
	unsigned int nmsgs;
	bool lose;   /* messages */
	bool blocks; /* flushes are left to rig_flush() */
	struct {
		uint64_t at, len;
	} flushes[64]; /* without a drain */
	unsigned int nflushes;
	struct rpmem_rpc_server *srv;
	uint64_t reconnects;
	int waited;    /* ms, of the client's waits */
	uint64_t most; /* behind the last byte that was read or flushed */
};
extern struct rig rig; /* of the replaced functions */

/* A pool with a ring of that length, and a server of it. */
void rig_init(uint64_t ring);
void rig_fini(void);
/* Run what threads would: flush, send. */
void rig_flush(void);
/*
 * The server ends; cut: with the power, so that of what was not durable any
 * words of 8 bytes are there. Another one starts. Writes of a client that goes
 * on are written again.
 */
void rig_restart(bool cut);
/* The client ends: nothing more of it arrives. */
void rig_drop_client(struct rpmem_rpc *c);
/* Whether a power cut leaves an entry with its result. */
bool rig_is_durable(const struct rpc_entry *e);
/* The next call for the program; NULL: none. */
struct rpmem_rpc_call *rig_next(void);

#endif
