/* SPDX-License-Identifier: BSD-2-Clause */
/* The initiator side of a private connection and its operations. */
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
 * and port of the key). It connects on first use, and again on first use after
 * a loss. Loss, timeout, rp_session_disconnect() and close are one event: the
 * channel is closed, every outstanding operation fails exactly once after its
 * buffer is released, and bytes of writes without proof of placement are
 * poisoned until they are written again.
 */
struct rp_session;

enum rp_session_state {
	RP_SESSION_IDLE,       /* no channel; the next operation connects */
	RP_SESSION_CONNECTING, /* HELLO is outstanding; operations: -EAGAIN */
	RP_SESSION_OPEN,
	RP_SESSION_CLOSING, /* the channel is being closed */
};

/* The outcome of an operation. */
struct rp_outcome {
	enum rp_status status;
	uint32_t detail; /* errno or class, by status */
	uint64_t range;	 /* range at fault; nranges: the ordered store */
	enum rp_class required;
	enum rp_class class; /* class reached, if status is RP_ST_OK */
	enum rp_method method;
	const char *target; /* ADDRESS:PORT, freed after done(); NULL: none */
};

struct rp_session_attr {
	uint64_t timeout_ns;	  /* silence that counts as loss */
	uint64_t slow_rate;	  /* least bytes/s; extends timeout_ns */
	unsigned int max_commits; /* outstanding requests and fences */
	size_t inline_max;	  /* longest durable write sent as a STORE */
	uint64_t idle_ns; /* close an idle connection after this; 0: never */
	bool native;	  /* FLUSH may be used */
	enum rp_method forced; /* only method without agent; REFUSED: any */
};

/* addr: a sockaddr of the listener; copied. *out lives until _delete(). */
int rp_session_new(struct rp_connector *k, const struct rp_session_attr *attr,
		   const void *addr, size_t len, struct rp_session **out);
/* Disconnect with RP_ST_CANCELED and free the session. */
void rp_session_delete(struct rp_session *s);
/*
 * port: by which the base's peers know the endpoint, for notifications; 0:
 * none. Later connections send it in HELLO. ordered: place writes in the order
 * of posting (FI_ORDER_WAW), whatever bytes they touch: RDMA waits for replies
 * to earlier STOREs and ATOMICs.
 */
void rp_session_set_endpoint(struct rp_session *s, uint16_t port, bool ordered);
/*
 * End the connection now. Every outstanding operation fails: with st, or, if it
 * is a once-only operation that may have been executed, with
 * RP_ST_INDETERMINATE (detail: st). Poison stays.
 */
void rp_session_disconnect(struct rp_session *s, enum rp_status st,
			   uint32_t detail);

/*
 * One message or RDMA of an operation: RDMA, a fence, or a REQUEST that waits
 * for its reply. Opaque to callers of core.
 */
struct rp_piece {
	struct rp_channel_op chan; /* must be first: done() casts it */
	STAILQ_ENTRY(rp_piece) link;
	struct rp_op *op;
	struct rp_piece *next_in_bucket; /* next piece in the token's bucket */
	uint64_t token;	 /* token of its message; 0: no message */
	size_t first, n; /* the operation's ranges inside it */
	struct iovec iov[2];
	void *msg;	 /* allocated message or list */
	bool used, heap; /* in use; allocated, not in rp_op.priv.piece */
	bool effect;	 /* carries the operation's effect */
	bool posted;	 /* accepted by the channel */
	bool last_data;	 /* last piece of the operation's bytes */
	bool is_proof;	 /* its done() proves placement */
	bool sending;	 /* the channel's done() is due */
	bool reply_due;	 /* a reply is due */
};

struct rp_op;
/*
 * Called exactly once for each accepted operation (post returned 0), from poll,
 * progress or disconnect, never from the post itself. The buffers are the
 * program's again.
 */
typedef void (*rp_op_fn)(struct rp_op *op, const struct rp_outcome *out);

enum rp_op_kind {
	RP_OP_WRITE,  /* bytes, and their commit if level is DURABLE */
	RP_OP_READ,   /* into local memory, after earlier writes */
	RP_OP_COMMIT, /* ranges of earlier writes; with then or notify */
	RP_OP_ATOMIC, /* executed by the agent */
	RP_OP_QUERY,  /* what a commit with a key would do */
};

/*
 * One operation of the program. Core's caller allocates it as a member of its
 * own object, fills in the fields before `priv`, and keeps it until done().
 */
struct rp_op {
	rp_op_fn done;
	enum rp_op_kind kind;
	/* VISIBLE: done() proves placement; DURABLE: the commit; 0: neither. */
	enum rp_level level;
	enum rp_class required;
	/* Local side: WRITE, READ. Bytes stay valid until done() or, with
	 * inject, until rp_session_post() returns. */
	struct iovec iov[RP_CHANNEL_IOV];
	void *desc[RP_CHANNEL_IOV];
	size_t iov_count;
	bool inject; /* WRITE: rp_session_post() copies the bytes */
	/* WRITE of zeros, without a local side: up to RP_WIRE_MAX_ZERO bytes,
	 * level VISIBLE or DURABLE, no effect. */
	bool zero;
	/*
	 * Remote side. All but COMMIT: one to RP_CHANNEL_IOV; COMMIT: any
	 * number. Must stay valid until done().
	 */
	const struct rp_wire_range *ranges;
	size_t nranges;
	/* COMMIT, WRITE; level: DURABLE, or VISIBLE for a WRITE with NOTIFY. */
	enum rp_effect effect; /* NONE, THEN, NOTIFY */
	struct rp_wire_then then;
	uint64_t data;	   /* NOTIFY */
	uint16_t endpoint; /* NOTIFY: the target's endpoint; 0: any */
	/* ATOMIC: operands are copied inside post; results are written before
	 * done() with status OK. */
	struct rp_wire_atomic atomic;
	const struct iovec *result; /* for fetched values; valid until done() */
	size_t result_count;
	/* QUERY: filled in before done(). ranges[0].key is the key. */
	struct rp_wire_info *info;

	/* For session*.c only, from post to done(). */
	struct {
		TAILQ_ENTRY(rp_op) link;
		LIST_ENTRY(rp_op) stores_link;
		STAILQ_HEAD(, rp_piece) ready; /* encoded, not posted yet */
		struct rp_session *session;
		uint64_t start;	  /* rp_stats_now() of the post */
		uint64_t seq;	  /* number of the operation in the session */
		uint64_t bytes;	  /* bytes of all ranges */
		uint64_t written; /* session.written after this operation */
		size_t nsliced;	  /* number of ranges that have pieces */
		void *copy;	  /* copy of the program's bytes, or NULL */
		struct iovec copy_iov;
		unsigned int pending;	  /* outstanding pieces */
		unsigned int replies_due; /* requests without reply */
		uint8_t state;		  /* enum rp_op_state */
		bool store;		  /* its bytes are inside a REQUEST */
		bool internal;		  /* the session's, not the program's */
		bool undelivered; /* data was posted without `delivered` */
		bool in_stores;	  /* the session's stores contain it */
		bool by_reply;	  /* a region is unreadable: no read as proof */
		bool effect_sent; /* the target may have executed the effect */
		bool piece_failed; /* a piece has ended with an error */
		bool unposted;	   /* failed before all of it was posted */
		bool poisoned;	   /* failed; its bytes are poisoned */
		struct rp_outcome out;
		struct rp_piece piece[2]; /* further pieces are allocated */
	} priv;
};

/*
 * Accept an operation. 0: done() follows. -EAGAIN: connecting, no credit or no
 * room: make progress and call again. -EINVAL (no or wrapping ranges; unaligned
 * store), -EKEYREJECTED (not a persistent key), -ENOMEM, -EOPNOTSUPP. A failed
 * call leaves nothing behind. A key without grant on this connection first
 * sends a QUERY: -EAGAIN until its INFO; after a failed connect or a refused
 * key an operation is accepted and completes with that status.
 */
int rp_session_post(struct rp_session *s, struct rp_op *op);

/*
 * Is there a write without proof of placement? True: a fence that proves it is
 * outstanding, or is sent by this call. For fi_tx_attr.msg_order: a message
 * behind persistent writes waits for false.
 */
bool rp_session_has_unplaced(struct rp_session *s);
/* Has a connection ended with such writes since the last call? */
bool rp_session_lost_writes(struct rp_session *s);
/* May bytes of a connection that has ended still arrive at the target? */
bool rp_session_may_arrive(const struct rp_session *s);
/* Number of accepted operations whose done() is due. */
unsigned int rp_session_outstanding(const struct rp_session *s);
/* Post what can be posted, time out, call done(). True: did something. */
bool rp_session_progress(struct rp_session *s);
/* When progress is due, in connector time; UINT64_MAX: not before a kick. */
uint64_t rp_session_deadline(const struct rp_session *s);
enum rp_session_state rp_session_state(const struct rp_session *s);
/* A sentence on the connection, for fi_rpmem_info and errors. */
const char *rp_session_text(const struct rp_session *s, char *buf, size_t size);

#endif
