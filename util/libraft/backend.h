/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of the backend of one raft_io. */
#ifndef RP_RAFT_BACKEND_H
#define RP_RAFT_BACKEND_H

#include <raft.h>
#include <raft/uv.h>

#include "libraft/store.h"
#include "libraft/wire.h"

/* Export the calls of rpmem_raft.h; -fvisibility=hidden hides all others. */
#pragma GCC visibility push(default)
#include "rpmem_raft.h"
#pragma GCC visibility pop

struct backend;

/* A frame that waits for a connection, or is being written to one. */
struct frame {
	uv_write_t write;
	struct peer *peer;
	struct raft_io_send *req; /* send request with a callback, or NULL */
	TAILQ_ENTRY(frame) link;
	size_t len;
	unsigned char bytes[];
};
TAILQ_HEAD(frames, frame);

/* A result of a follower that waits until messages up to seq are durable. */
struct deferred {
	TAILQ_ENTRY(deferred) link;
	struct raft_message m;
	uint64_t seq;
};

/* A follower's ring, written by this server as the leader. */
struct ring {
	enum {
		RING_CLOSED,
		RING_OPENING,
		RING_OPEN,
		RING_FAILED,
		RING_CLOSING
	} state;
	struct writer w;
	char *where;	   /* the follower's pool; NULL: unknown */
	uint64_t seq;	   /* number of the last message written to the ring */
	uint64_t acked;	   /* messages up to this number are durable there */
	uint64_t base;	   /* seq when the ring was opened */
	uint64_t next_try; /* ms: time of the next attempt to open the ring */
	char *named;	   /* the pool that a HELLO has named since, or NULL */
	uint64_t id;	   /* ID of the follower's ring, from its last HELLO */
	bool wrong;	   /* `where` is not the pool of the peer */
	uint64_t trimmed;  /* LSN of the last trim */
	TAILQ_HEAD(, deferred) deferred;
};

struct peer {
	TAILQ_ENTRY(peer) link;
	struct backend *b;
	raft_id id;
	char *address;
	enum {
		OUT_DOWN,
		OUT_CONNECTING,
		OUT_UP
	} out;
	struct raft_uv_connect connect;
	char *dialed; /* address of the outstanding connect */
	uv_stream_t *stream;
	struct frames waiting;
	unsigned int nwaiting;
	struct ring ring;
	/* this server as a follower of the peer; as in struct wire_head */
	uint64_t boot;	   /* random number of the peer's process */
	raft_index covers; /* last entry that its newest message says it has */
	uint64_t seen, seen_lsn, kept, kept_lsn;
};

/* A connection that a peer has opened. */
struct incoming {
	TAILQ_ENTRY(incoming) link;
	uv_stream_t *stream;
	struct peer *peer;
	unsigned char *buf;
	size_t len, room;
};

/* A callback of libraft that must wait for the event loop. */
struct later {
	TAILQ_ENTRY(later) link;
	struct raft_io_send *send;
	struct raft_io_snapshot_get *get;
	struct raft_snapshot *snapshot;
	int status;
};

struct append {
	struct job job;
	TAILQ_ENTRY(append) link;
	struct raft_io_append *req;
	uint64_t since; /* time of the loop, in ms */
	bool done;
	int status;
};

struct backend {
	struct raft_io *io;
	uv_loop_t *loop;
	char *where, *at, *secret_file;
	struct rpmem_raft_attr attr;
	struct raft_uv_transport *transport;
	struct raft_uv_transport tcp; /* used if the program gives none */
	bool transport_inited;
	raft_id id;
	uint64_t boot;
	uint64_t ring_id; /* of the log that is this server's ring */
	struct store store;
	raft_index too_long; /* snapshot that was reported as too long */
	bool opened, started, closing;
	unsigned int busy; /* handles and jobs that are not closed yet */
	uv_timer_t timer;
	uv_async_t async;
	uv_prepare_t prepare;
	uv_idle_t idle; /* active: the event loop does not sleep */
	raft_io_tick_cb tick;
	raft_io_recv_cb recv;
	raft_io_close_cb close_cb;
	struct raft_io_snapshot_put *put;
	TAILQ_HEAD(, peer) peers;
	TAILQ_HEAD(, incoming) incoming;
	TAILQ_HEAD(, append) appends; /* in the order of their callbacks */
	TAILQ_HEAD(, later) later;
	struct peer *ring_peer; /* sender of the message in libraft's hands, if
				 * the message is in the ring, too; else NULL */
};

/* io.c */
void backend_received(struct peer *p, const struct wire_head *h,
		      const unsigned char *message);
void backend_later(struct backend *b, const struct later *later);
void backend_idle(struct backend *b); /* call it after decrementing busy */
struct rpmem_log_attr backend_log_attr(const struct backend *b);
void backend_deliver(struct peer *p, struct raft_message *m);
void backend_wake(void *arg);

/* uvpoll.c */
/*
 * Poll the logs that the event loop polls, and arm their descriptors. Returns
 * whether one cannot be armed yet, so that the loop must not sleep; sets
 * *completed if there are jobs to reap.
 */
bool uvpoll_arm(struct backend *b, bool *completed);
/* Poll all these logs again before the loop sleeps. */
void uvpoll_disarm(struct backend *b);

/* net.c */
int net_listen(struct backend *b);
/* On an error, say what is wrong with the server's address; returns ret. */
int net_address(struct backend *b, int ret);
struct peer *net_peer(struct backend *b, raft_id id, const char *address);
/* Send a frame; req->cb() is called later. */
void net_send(struct peer *p, struct frame *f);
void net_close(struct backend *b);

/* ring.c */
/* Write the message to the peer's ring, too; *h gets its number there. */
void ring_send(struct peer *p, unsigned char *message, size_t len,
	       unsigned int entries, struct wire_head *h);
/* Deliver a follower's result, or defer it. */
void ring_result(struct peer *p, const struct wire_head *h,
		 struct raft_message *m);
/* Handle the HELLO of a peer; where: name of its pool, h->len bytes. */
void ring_hello(struct peer *p, const struct wire_head *h,
		const unsigned char *where);
void ring_reap(struct peer *p);
/* Tell the ring's thread to end; ring_reap() closes the ring when it has. */
void ring_close(struct peer *p);

#endif
