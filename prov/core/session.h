/* SPDX-License-Identifier: BSD-2-Clause */
/* The initiator side of a private connection: one engine for every operation.
 */
#ifndef RP_SESSION_H
#define RP_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/channel.h"
#include "core/list.h"
#include "core/ranges.h"
#include "core/wire.h"

/*
 * A session belongs to one initiator endpoint and one target domain (address
 * and port of the key). Its connection is made on first use, and made again on
 * first use after a loss. Loss, timeout, rp_session_disconnect() and close are
 * one event: the channel is closed, every operation that was under way fails
 * exactly once after its buffer is released, and bytes of writes whose
 * placement nothing proved are poisoned until they are written again.
 */
struct rp_session;

enum rp_session_state {
	RP_SESSION_IDLE,       /* no channel; the next operation connects */
	RP_SESSION_CONNECTING, /* HELLO is under way: operations: -EAGAIN */
	RP_SESSION_OPEN,
	RP_SESSION_CLOSING, /* inside close of the channel */
};

/* How an operation ended. */
struct rp_outcome {
	enum rp_status status;
	uint32_t detail; /* errno or class, by status */
	uint64_t range;	 /* index of the range at fault; nranges: the store */
	enum rp_class required;
	enum rp_class class; /* reached, when status is RP_ST_OK */
	enum rp_method method;
};

struct rp_session_attr {
	uint64_t timeout_ns;	  /* silence that counts as loss */
	uint64_t slow_rate;	  /* bytes/s that a slow link still moves */
	unsigned int max_commits; /* requests and fences outstanding at once */
	size_t inline_max;	  /* durable writes up to this are STOREs */
	uint64_t
		idle_ns; /* an idle connection is closed after this; 0: never */
	bool native;	 /* FLUSH may be used */
	enum rp_method
		forced; /* the only method without the agent; REFUSED: any */
};

/* addr: a sockaddr of the listener; copied. *out lives until _delete(). */
int rp_session_new(struct rp_connector *k, const struct rp_session_attr *attr,
		   const void *addr, size_t len, struct rp_session **out);
/* Ends as rp_session_disconnect(RP_ST_CANCELED) does. */
void rp_session_delete(struct rp_session *s);
/*
 * The port by which peers of the base know the endpoint, for those that are
 * notified; 0: none. Connections that are made from now on show it.
 */
void rp_session_set_port(struct rp_session *s, uint16_t port);
/*
 * Are writes placed in the order of posting (FI_ORDER_WAW), whatever bytes they
 * touch? RDMA then waits for the replies to earlier STOREs and ATOMICs.
 */
void rp_session_set_ordered(struct rp_session *s, bool ordered);
/*
 * The connection ends now. Every operation under way fails: with st, or with
 * RP_ST_UNSURE (detail: st) where a once-only effect may have been done.
 * Poison stays.
 */
void rp_session_disconnect(struct rp_session *s, enum rp_status st,
			   uint32_t detail);

/*
 * One thing that an operation has posted, or has to: RDMA, a fence, or a
 * REQUEST whose reply it waits for. Opaque to adapters.
 */
struct rp_piece {
	struct rp_channel_op chan; /* first: its done() finds the piece */
	STAILQ_ENTRY(rp_piece) link;
	struct rp_op *op;
	struct rp_piece *same; /* next with such a token */
	uint64_t token;	       /* 0: no message */
	size_t first, n;       /* its ranges */
	struct iovec iov[2];
	void *msg; /* allocated */
	bool used, heap;
	bool effect;	 /* with what the operation does besides */
	bool posted;	 /* the channel took it */
	bool all;	 /* of the bytes: the last piece of them */
	bool proves;	 /* its done() proves placement */
	bool sending;	 /* done() of the channel is due */
	bool unanswered; /* a reply is due */
};

struct rp_op;
/*
 * Called exactly once for each operation that was accepted (post returned 0),
 * from poll, progress or disconnect, never from the post itself. The buffers
 * are the program's again.
 */
typedef void (*rp_op_fn)(struct rp_op *op, const struct rp_outcome *out);

enum rp_op_kind {
	RP_OP_WRITE,  /* bytes, and a commit of them where level is DURABLE */
	RP_OP_READ,   /* into local memory, behind earlier writes */
	RP_OP_COMMIT, /* of earlier writes, by ranges; with then or notify */
	RP_OP_ATOMIC, /* executed by the agent */
	RP_OP_QUERY,  /* what a commit of a key would do */
};

/*
 * One operation of the program. The adapter allocates it (embedded in its own
 * object), fills in the first part, and keeps it until done().
 */
struct rp_op {
	rp_op_fn done;
	enum rp_op_kind kind;
	enum rp_level level; /* WRITE, ATOMIC: VISIBLE is placed; 0: as the
				channel completes it, no proof of placement */
	enum rp_class required;
	/* Local side: WRITE, READ. The iov array is copied, the bytes are not
	 * unless inject. */
	struct iovec iov[RP_CHANNEL_IOV];
	void *desc[RP_CHANNEL_IOV];
	size_t iov_count;
	bool inject; /* WRITE: the bytes are copied inside post; small */
	/* Remote side. WRITE and READ: one to RP_CHANNEL_IOV; ATOMIC too;
	 * COMMIT: any number, allocated by malloc and freed by the session when
	 * `ranges_owned`. Must stay valid until done(). */
	const struct rp_wire_range *ranges;
	size_t nranges;
	bool ranges_owned;
	/* COMMIT, WRITE. THEN: level DURABLE; NOTIFY: that or VISIBLE. */
	enum rp_effect effect; /* NONE, THEN, NOTIFY */
	struct rp_wire_then then;
	uint64_t data; /* NOTIFY */
	uint16_t
		endpoint; /* NOTIFY: that of the target which gets it; 0: any */
	/* ATOMIC: operands are copied inside post; results are written before
	 * done() with status OK. */
	struct rp_wire_atomic atomic;
	const struct iovec *result; /* of fetched values; valid until done() */
	size_t result_count;
	/* QUERY: filled in before done(). ranges[0].key is the key. */
	struct rp_wire_info *info;

	/* The session's, from post to done(). Opaque: session_priv.h */
	struct {
		TAILQ_ENTRY(rp_op) link;
		LIST_ENTRY(rp_op) of_stores;
		STAILQ_HEAD(, rp_piece) ready; /* made, not posted yet */
		struct rp_session *session;
		uint64_t seq;	  /* order of posting in the session */
		uint64_t bytes;	  /* of all ranges */
		uint64_t written; /* of the session, with them */
		size_t cut;	  /* ranges that slices were made for */
		void *copy;	  /* of bytes that are the program's again */
		struct iovec copied;
		unsigned int pending;	 /* pieces under way */
		unsigned int unanswered; /* requests of them */
		uint8_t state;		 /* enum rp_op_state */
		bool store;		 /* its bytes travel in a REQUEST */
		bool internal;
		bool listed;	  /* in the session's stores */
		bool effect_sent; /* the target may have had it */
		bool lost;	  /* a piece has ended with an error */
		bool unposted;	  /* it failed before all of it was posted */
		bool poisoned;	  /* so are its bytes, therefore */
		struct rp_outcome out;
		struct rp_piece piece[2]; /* more are allocated */
	} priv;
};

/*
 * Accept an operation. 0: done() follows. -EAGAIN: connecting, no credit or no
 * room: make progress and call again. -EINVAL (no or wrapping ranges; a store
 * that is not aligned), -EKEYREJECTED (not a persistent key), -ENOMEM,
 * -EOPNOTSUPP. Nothing is left behind on failure. An operation whose key the
 * connection does not know yet first sends a QUERY: -EAGAIN until it is there;
 * a connection that cannot be made, or a key that is refused, is accepted and
 * completes with its status.
 */
int rp_session_post(struct rp_session *s, struct rp_op *op);

/*
 * Are there writes whose placement nothing has proved yet? True: a fence is
 * under way, or is sent by this call, that ends it. For msg_order: a message
 * behind persistent writes waits for false.
 */
bool rp_session_unplaced(struct rp_session *s);
/* Operations accepted and not done. */
unsigned int rp_session_outstanding(const struct rp_session *s);
/* Send what waits, expire what is late, call done(). True: did something. */
bool rp_session_progress(struct rp_session *s);
/* When progress is due next, in connector time; UINT64_MAX: when kicked. */
uint64_t rp_session_deadline(const struct rp_session *s);
enum rp_session_state rp_session_state(const struct rp_session *s);
/* A sentence on the connection, for fi_rpmem_info and errors. */
const char *rp_session_words(const struct rp_session *s, char *buf,
			     size_t size);

#endif
