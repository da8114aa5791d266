/* SPDX-License-Identifier: BSD-2-Clause */
/* State of a client: its calls, from submission to reply. */
#ifndef RP_LIBRPC_CLIENT_H
#define RP_LIBRPC_CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/queue.h>

#include "librpc/rpc.h"
#include "util/waiters.h"

/* A call, from its submission until its space can be reused. */
struct sent {
	struct rpmem_pool_op op;   /* the write of the call */
	struct rpmem_rpc_op *user; /* caller's operation; NULL: nobody waits */
	TAILQ_ENTRY(sent) link;	   /* entry of rpc.acks or rpc.done */
	bool queued;
	bool waited; /* a thread waits in rpmem_rpc_call() */
	struct rpc_entry entry;
	bool written;  /* the write is durable */
	bool answered; /* the reply is known */
	bool keep;     /* kept for rpmem_rpc_earlier() */
	bool passed;   /* out of the ring: the space is free */
	unsigned char *kept;
	uint32_t kept_len;
	unsigned char bytes[];
};
TAILQ_HEAD(sents, sent);

struct rpmem_rpc {
	struct rpmem_pool *pool;
	struct rpc_port port;
	fi_addr_t server;
	uint64_t server_token;
	unsigned int slot;
	bool doorbell;	/* writes bypass the server's CPU: send doorbells */
	uint64_t limit; /* most bytes of the ring in use */
	uint64_t inline_max; /* longest write that travels inside a request */
	int timeout_ms;

	pthread_mutex_t lock;	   /* guards all below */
	pthread_cond_t progressed; /* for threads in rpc_progress() */
	struct rp_waiters waiters; /* threads that wait for a reply */
	bool polling;		   /* a thread is polling for completions */
	bool attach;		   /* send ATTACH */
	bool ring_bell;		   /* send CALL */
	uint64_t reconnects;

	struct rpc_super super;
	struct rpc_cursor tail; /* position of the next call */
	/* Call numbers: head is the oldest call whose space is in use, ... */
	struct rpc_cursor head;
	uint64_t durable; /* ... the oldest one not acknowledged, ... */
	uint64_t open;	  /* ... the oldest call without a reply */
	uint64_t earlier, earlier_end; /* calls of an earlier process */
	/*
	 * Head in the newest durable entry or superblock: the space before this
	 * position may be reused.
	 */
	uint64_t recorded;
	struct sent **calls; /* calls, by number & mask */
	uint64_t mask;
	unsigned int out; /* number of outstanding pool operations */
	/* For rpmem_rpc_poll(): calls with a reply; acknowledged calls. */
	struct sents done, acks;

	struct rpmem_pool_op super_op; /* busy: writes a superblock */
	unsigned char super_bytes[RPC_SUPER_BYTES];
	bool super_busy;

	struct rpmem_pool_op peek; /* reads the reply to call number `open` */
	unsigned char *peeked;
	uint64_t peek_n;
	uint64_t peek_skip; /* bytes of the call before the reply */
	uint64_t damaged;   /* call that a peek found damaged, or 0 */
	bool peeking;
	uint64_t peek_at, peek_pause, peeks; /* ms: next peek, pause; count */

	int failed;
	char failure[RP_ERR_LEN];
};

/* Does the server's CPU make writes durable by this method of the pool? */
static inline bool rpc_is_by_agent(const char *method)
{
	return !strncmp(method, "agent", 5);
}

static inline struct sent *rpc_sent(const struct rpmem_rpc *c, uint64_t n)
{
	return c->calls[n & c->mask];
}

/* calls.c; called with the lock held, which waiting releases. */
/* Make progress; wait for an event up to ms. */
void rpc_progress(struct rpmem_rpc *c, int ms);
/* Write a superblock with the present head; wait until it is durable. */
int rpc_super_write(struct rpmem_rpc *c);
/* Record the reply to a call, whose checksum has been verified. */
void rpc_answer(struct rpmem_rpc *c, struct sent *s, const unsigned char *bytes,
		uint32_t len);
/* Advance head, durable and open over completed calls. */
void rpc_advance(struct rpmem_rpc *c);
/* Free a call whose ring space is free, once no thread waits for it. */
void rpc_release(struct sent *s);
/* connect.c: find the server's endpoint, also after a restart. */
int rpc_attach(struct rpmem_rpc *c);

#endif
