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
	unsigned char *live;   /* memory as both sides see it */
	unsigned char *medium; /* what survives a power cut for certain */
	uint64_t length;
	struct rpmem_pool_op *ops[RIG_OPS]; /* outstanding operations */
	unsigned int nops;
	struct rpmem_pool_op *done[RIG_OPS];
	unsigned int ndone;
	struct {
		struct rpc_msg m;
		unsigned char bytes[RPC_MSG_BYTES];
	} msgs[RIG_MSGS]; /* messages of the server to the client */
	unsigned int nmsgs;
	bool lose_messages; /* messages of the server are lost */
	bool deaf;	    /* messages of the client are lost */
	bool serves;	    /* each poll replies to the next call */
	bool hold_flushes;  /* a flush waits until rig_flush() */
	struct {
		uint64_t at, len;
	} flushes[64]; /* flushes that were not drained yet */
	unsigned int nflushes;
	struct rpmem_rpc_server *srv;
	uint64_t reconnects;
	/* Another client's slot 1 has this id when a superblock was written. */
	const unsigned char *rival;
	int error;		  /* rpmem_pool_poll() returns it */
	void (*after_poll)(void); /* what another thread does meanwhile */
	unsigned int opened;	  /* slot that was opened last */
	const char *method;	  /* method of the pool; NULL: agent-clwb */
	int waited_ms;		  /* ms that the client has waited in all */
	uint64_t end_of_accesses; /* end of the last range that was read or
				     flushed */
};
extern struct rig rig; /* state of the replaced functions */

/* Make a pool with a ring of this length, and a server of this pool. */
void rig_init(uint64_t ring);
void rig_fini(void);
/* Execute what other threads would do: flush and send. */
void rig_flush(void);
/*
 * Stop the server, and start another one. cut: the power fails, too, and any
 * 8-byte words that were not durable survive. A client that goes on repeats its
 * writes.
 */
void rig_restart(bool cut);
/* Kill the client: none of its outstanding operations is executed. */
void rig_drop_client(struct rpmem_rpc *c);
/* Would the entry and its result survive a power cut? */
bool rig_is_durable(const struct rpc_entry *e);
/* Let the server's page show this owner of a slot. */
void rig_set_slot(unsigned int slot, enum rpc_kind kind,
		  const unsigned char *id);
/* Take the next call that the server has for its program. NULL: none. */
struct rpmem_rpc_call *rig_next(void);

#endif
