/* SPDX-License-Identifier: BSD-2-Clause */
/* State of a server: one slot per client, and its threads. */
#ifndef RP_LIBRPC_SERVER_H
#define RP_LIBRPC_SERVER_H

#include <pthread.h>
#include <sys/queue.h>

#include "core/pmem.h"
#include "librpc/rpc.h"
#include "util/export.h"

/* Threads that flush; each serves one client at a time. */
#define RPC_FLUSHERS 4

/* A call that the program is processing, or will get. */
struct call {
	struct rpmem_rpc_call call; /* first member: the program's pointer */
	TAILQ_ENTRY(call) link;
	struct slot *slot;
	struct rpc_entry entry;
	unsigned char bytes[];
};

/* A reply that is stored in the ring. */
struct reply {
	struct rpc_entry entry;
	struct rpc_result result;
};

struct slot {
	unsigned int index;
	unsigned char *map; /* first byte of the pool */
	void *mapped;	    /* start of the mapped file */
	size_t mapped_len;
	struct rp_pmem *pm;
	struct rpc_super super;
	uint64_t turn; /* turn of the superblock that was read last */
	fi_addr_t addr;
	bool attached; /* the client receives messages at addr */
	uint64_t unsent_since;

	struct rpc_cursor next;	  /* next entry to hand out */
	bool out;		  /* a call is handed out, without a reply */
	unsigned int maybe_begun; /* number of next calls that may have begun */
	/*
	 * Replies, oldest first: the first `flushed` ones are durable but not
	 * sent, the rest is not durable yet. They do not delay the next call.
	 */
	struct reply replies[RPMEM_RPC_AGAIN];
	unsigned int nreplies, flushed;
	bool flushing; /* queued for a flusher, or being flushed */
	TAILQ_ENTRY(slot) link;
};

struct rpmem_rpc_server {
	struct rp_exports x;
	int listener; /* opened first: clients wait for the setup server */
	struct rp_setup_server *setup;
	struct rp_setup_secrets secrets;
	struct rpc_port port;
	struct rpc_page page;
	unsigned int nslots;
	pthread_t thread, flushers[RPC_FLUSHERS];
	unsigned int nthreads;
	int wake_fd;

	pthread_mutex_t lock; /* guards all below, and the slots */
	pthread_cond_t ready, dirty;
	TAILQ_HEAD(, call) calls;	/* queue of rpmem_rpc_next() */
	TAILQ_HEAD(, slot) dirty_slots; /* queue of the flushers */
	bool stopped, closing;
	int failed;
	char failure[RP_ERR_LEN];
	struct slot slots[RPC_SLOTS];
};

/* slot.c; called with the lock held. */
/* Read the pool at path, or format it as an empty ring. */
int slot_open(struct rpmem_rpc_server *srv, struct slot *s, uint64_t length,
	      const char *path);
/* Whether the client has written a new superblock. */
bool slot_is_written(const struct slot *s);
/* Follow the client's new superblock. False: none is complete. */
bool slot_attach(struct rpmem_rpc_server *srv, struct slot *s);
/* Hand out the client's next call, if there is one. */
void slot_scan(struct rpmem_rpc_server *srv, struct slot *s);
/* Send durable replies. Returns whether some could not be sent yet. */
bool slot_send(struct rpmem_rpc_server *srv, struct slot *s);
/* Flush replies; s->flushing is set. Releases the lock while it flushes. */
void slot_flush(struct rpmem_rpc_server *srv, struct slot *s);
/* Write the server's page to all pools. */
void server_publish(struct rpmem_rpc_server *srv);
void server_fail(struct rpmem_rpc_server *srv, int ret, const char *why);

/* loop.c: the thread that makes progress. */
void *server_run(void *arg);

#endif
