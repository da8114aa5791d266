/* SPDX-License-Identifier: BSD-2-Clause */
/* The client's state: calls between submission and reply. */
#ifndef RP_LIBRPC_CLIENT_H
#define RP_LIBRPC_CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "librpc/rpc.h"

/* A call from its submission until its space can be used again. */
struct sent {
	struct rpmem_pool_op op;   /* the write */
	struct rpmem_rpc_op *user; /* NULL: nobody waits for it */
	TAILQ_ENTRY(sent) link;	   /* in rpc.acks or rpc.done */
	bool queued;
	bool waited; /* a thread is in rpmem_rpc_call() for it */
	struct rpc_entry entry;
	bool written;  /* its write is durable */
	bool answered; /* its reply is known */
	bool keep;     /* for rpmem_rpc_earlier() */
	bool passed;   /* its space is free; it is in no ring */
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
	bool doorbell;	/* the target's CPU does not see writes */
	uint64_t limit; /* bytes of the ring that may be in use */
	int timeout_ms;

	pthread_mutex_t lock; /* all below */
	pthread_cond_t progressed;
	bool polling;	/* a thread waits for completions */
	bool attach;	/* to be sent */
	bool ring_bell; /* the same */
	uint64_t reconnects;

	struct rpc_super super;
	struct rpc_cursor tail; /* of the next call */
	/* Numbers: the oldest call whose space is in use, ... */
	struct rpc_cursor head;
	uint64_t durable; /* ... the first that is not acknowledged, ... */
	uint64_t open;	  /* ... the oldest without a reply */
	uint64_t earlier, earlier_end; /* of an earlier process */
	/*
	 * Space before this position is free: the head that the newest durable
	 * entry or superblock names.
	 */
	uint64_t recorded;
	struct sent **calls; /* by number, modulo mask + 1 */
	uint64_t mask;
	unsigned int out; /* operations of the pool */
	/* For rpmem_rpc_poll(): replied; acknowledged, and asked for that. */
	struct sents done, acks;

	struct rpmem_pool_op peek; /* reads the reply to call `open` */
	unsigned char *peeked;
	uint64_t peek_n;
	uint64_t peek_skip; /* bytes of the call in front of the reply */
	uint64_t damaged;   /* the call that a peek found damaged, or 0 */
	bool peeking;
	uint64_t peek_at, peek_pause, peeks; /* ms */

	int failed;
	char failure[RP_ERR_LEN];
};

static inline struct sent *rpc_sent(const struct rpmem_rpc *c, uint64_t n)
{
	return c->calls[n & c->mask];
}

/* calls.c; the lock is held, and released while a call waits. */
/* Make progress, and wait for it for up to ms. */
void rpc_progress(struct rpmem_rpc *c, int ms);
/* Write a superblock with the present head, durably. */
int rpc_super_write(struct rpmem_rpc *c);
/* The reply to a call is known; bytes have been compared. */
void rpc_answer(struct rpmem_rpc *c, struct sent *s, const unsigned char *bytes,
		uint32_t len);
/* Move the numbers on. */
void rpc_advance(struct rpmem_rpc *c);
/* Free a call whose space is free, once nobody waits for it. */
void rpc_release(struct sent *s);
/* connect.c: find the server's endpoint, also after its restart. */
int rpc_attach(struct rpmem_rpc *c);

#endif
