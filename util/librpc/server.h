/* SPDX-License-Identifier: BSD-2-Clause */
/* The server's state: one slot for each client, and its threads. */
#ifndef RP_LIBRPC_SERVER_H
#define RP_LIBRPC_SERVER_H

#include <pthread.h>
#include <sys/queue.h>

#include "core/pmem.h"
#include "librpc/rpc.h"
#include "util/export.h"

/* Threads that wait for a disk; each works for one client at a time. */
#define RPC_FLUSHERS 4

/* A call that the program has, or will get. */
struct call {
	struct rpmem_rpc_call call; /* first: the program's pointer */
	TAILQ_ENTRY(call) link;
	struct slot *slot;
	struct rpc_entry entry;
	unsigned char bytes[];
};

/* A reply that is in the ring. */
struct reply {
	struct rpc_entry entry;
	struct rpc_result result;
};

struct slot {
	unsigned int index;
	unsigned char *map; /* the pool's first byte */
	void *mapped;	    /* whole file */
	size_t mapped_len;
	struct rp_pmem *pm;
	struct rpc_super super;
	uint64_t turn; /* of the superblock */
	fi_addr_t addr;
	bool attached; /* the client reads messages at addr */
	uint64_t unsent_since;

	struct rpc_cursor next; /* entry to hand out */
	bool out;		/* one is handed out, and not replied */
	unsigned int doubtful;	/* next calls that may be begun already */
	/*
	 * Replies: `flushed` ones are durable and not sent, the rest is not
	 * durable. The next call is handed out meanwhile.
	 */
	struct reply replies[RPMEM_RPC_AGAIN];
	unsigned int nreplies, flushed;
	bool flushing; /* in the queue of the flushers, or at one */
	TAILQ_ENTRY(slot) link;
};

struct rpmem_rpc_server {
	struct rp_exports x;
	int listener; /* from the beginning: clients wait for setup */
	struct rp_setup_server *setup;
	struct rp_setup_secrets secrets;
	struct rpc_port port;
	struct rpc_page page;
	unsigned int nslots;
	pthread_t thread, flushers[RPC_FLUSHERS];
	unsigned int nthreads;
	int wake_fd;

	pthread_mutex_t lock; /* all below, and the slots */
	pthread_cond_t ready, dirty;
	TAILQ_HEAD(, call) calls;	/* for rpmem_rpc_next() */
	TAILQ_HEAD(, slot) dirty_slots; /* for the flushers */
	bool stopped, closing;
	int failed;
	char failure[RP_ERR_LEN];
	struct slot slots[RPC_SLOTS];
};

/* slot.c; the lock is held. */
/* Find out what the pool at path holds, or make it an empty ring. */
int slot_open(struct rpmem_rpc_server *srv, struct slot *s, uint64_t length,
	      const char *path);
/* Whether the client has written a superblock. */
bool slot_is_written(const struct slot *s);
/* Follow it. False: there is no complete new one. */
bool slot_attach(struct rpmem_rpc_server *srv, struct slot *s);
/* Hand out the next call, if there is one. */
void slot_scan(struct rpmem_rpc_server *srv, struct slot *s);
/* Send what is durable. Returns whether something waits. */
bool slot_send(struct rpmem_rpc_server *srv, struct slot *s);
/* Make replies durable: flushing is set. The lock is released meanwhile. */
void slot_flush(struct rpmem_rpc_server *srv, struct slot *s);
/* Write the server's page into all pools. */
void server_publish(struct rpmem_rpc_server *srv);
void server_fail(struct rpmem_rpc_server *srv, int ret, const char *why);

/* loop.c: the thread that makes progress. */
void *server_run(void *arg);

#endif
