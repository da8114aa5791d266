/* SPDX-License-Identifier: BSD-2-Clause */
/* Durable remote procedure calls: durable at the server before processing. */
#ifndef RPMEM_RPC_H
#define RPMEM_RPC_H

#include <stddef.h>
#include <stdint.h>

#include <rpmem_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A client writes each call into its own ring in the server's persistent
 * memory: one durable write, whose completion acknowledges the call. The server
 * processes the calls of a client in order and each one once, even if the
 * client has ended or the server was restarted. Functions that return int
 * return 0 or a negative errno, and rpmem_rpc_error() then has the cause and
 * the remedy. Every function but the closing ones may be called by several
 * threads at one time. rpmem_rpc(3) describes all.
 */

/* Bytes of a client's id. */
#define RPMEM_RPC_ID 16

/* Maximum number of clients of one server. */
#define RPMEM_RPC_CLIENTS 64

/*
 * Maximum number of calls of one client that are processed twice because of a
 * crash of the server: calls whose replies were not durable yet.
 */
#define RPMEM_RPC_AGAIN 16

struct rpmem_rpc_server;

/* Zero is the default of each field but size. */
struct rpmem_rpc_server_attr {
	size_t size;		 /* sizeof(struct rpmem_rpc_server_attr) */
	const char *address;	 /* address to listen on; NULL: 127.0.0.1 */
	uint16_t port;		 /* TCP port; 0: a free one */
	const char *secret_file; /* needed for any address but loopback */
	const char *base;	 /* base provider; NULL: tcp */
	enum rpmem_pool_class required; /* weaker memory is refused */
	unsigned int clients;		/* 0: RPMEM_RPC_CLIENTS, the maximum */
	uint64_t ring; /* bytes of a new client's ring; 0: 1 MiB */
};

/*
 * Serve the pool files PATH.0, PATH.1, ..., one for each client; missing files
 * are created. -EBUSY: another process serves them; -EADDRINUSE; -EOPNOTSUPP:
 * the memory does not reach the required class; -EBADMSG: a file has no ring,
 * or a damaged one; -EPROTONOSUPPORT: one of another release; -ENOSPC; -ENOENT:
 * no folder; -EINVAL: no name, or more files than clients; -EMFILE. The first
 * call in a process may call setenv(3) for libfabric: make it before other
 * threads run.
 */
int rpmem_rpc_listen(struct rpmem_rpc_server **srv, const char *path,
		     const struct rpmem_rpc_server_attr *attr);
uint16_t rpmem_rpc_port(const struct rpmem_rpc_server *srv);

/* A call to process. */
struct rpmem_rpc_call {
	const void *buf; /* a copy of the call, valid until the reply */
	size_t len;
	size_t reply_max; /* maximum length of the reply */
	unsigned char client[RPMEM_RPC_ID];
	uint64_t sequence; /* per client: grows with each of its calls */
	int again;	   /* 1: an earlier server may have begun this call */
};

/*
 * Wait up to timeout_ms (-1: without end) for a call to process. Returns 1; 0:
 * none in time; -ECANCELED: rpmem_rpc_stop(); -EIO: the disk failed, and
 * nothing more is processed. The program may process one call of each client at
 * the same time.
 */
int rpmem_rpc_next(struct rpmem_rpc_server *srv, struct rpmem_rpc_call **call,
		   int timeout_ms);
/*
 * End the processing of a call. Its client gets the reply once the reply is
 * durable, and the call is then never processed again. -EMSGSIZE: more than
 * reply_max; reply again.
 */
int rpmem_rpc_reply(struct rpmem_rpc_server *srv, struct rpmem_rpc_call *call,
		    const void *buf, size_t len);
/* Let every rpmem_rpc_next() return -ECANCELED. */
void rpmem_rpc_stop(struct rpmem_rpc_server *srv);
/*
 * Close. Calls without a reply are processed by the next server. Returns 0 or
 * the failure that ended the server.
 */
int rpmem_rpc_server_close(struct rpmem_rpc_server *srv);

struct rpmem_rpc;

/* Zero is the default of each field but size. */
struct rpmem_rpc_attr {
	size_t size;		 /* sizeof(struct rpmem_rpc_attr) */
	const unsigned char *id; /* RPMEM_RPC_ID bytes, not all 0; NULL: a
				    random id, given up on close */
	const char *secret_file; /* as for rpmem_pool_open(), like the next 2 */
	enum rpmem_pool_class required;
	unsigned int timeout;
	unsigned int threshold; /* percent of the ring that may be in use; 0:
				 * all */
	int earlier; /* 1: replies to calls of an earlier process with this id
		      * are kept for rpmem_rpc_earlier() */
};

/*
 * Connect to "HOST:PORT:NAME" or "HOST:NAME"; NAME is the last part of the
 * server's path. A process that has connected earlier with the same id is
 * displaced. -EBUSY: all rings of the server are in use, or another process
 * connects with this id; other errors as rpmem_pool_open().
 */
int rpmem_rpc_connect(struct rpmem_rpc **rpc, const char *where,
		      const struct rpmem_rpc_attr *attr);
/*
 * Close. Acknowledged calls will still be processed. give_up: also forget an id
 * that the program has given, so that another client can use its ring.
 */
void rpmem_rpc_close(struct rpmem_rpc *rpc, int give_up);

enum rpmem_rpc_state {
	RPMEM_RPC_SENT = 0,
	RPMEM_RPC_DURABLE = 1, /* the call will be processed */
	RPMEM_RPC_DONE = 2,    /* replied, or failed */
};

/*
 * Flag of an operation: rpmem_rpc_poll() also returns a call that is durable.
 */
#define RPMEM_RPC_NOTIFY 1u

/* A call without waiting. Zero the fields that are not used. */
struct rpmem_rpc_op {
	const void *buf; /* not needed any more after rpmem_rpc_submit() */
	size_t len;
	void *reply; /* buffer, valid until RPMEM_RPC_DONE */
	size_t reply_max;
	unsigned int flags;
	void *context;		    /* context of the caller */
	enum rpmem_rpc_state state; /* out */
	uint64_t sequence;	    /* out */
	size_t reply_len;	    /* out */
	int result;		    /* out: 0 or a negative errno */
	const char *error; /* out: cause and remedy, while rpc is open */
};

/*
 * Start a call. *op belongs to the library until rpmem_rpc_poll() returns it
 * with RPMEM_RPC_DONE. Calls are processed in the order of their submission.
 * -EAGAIN: the ring is as full as the threshold allows: poll; -EMSGSIZE: more
 * than an eighth of the ring; -EINVAL, -ENOMEM: not started.
 */
int rpmem_rpc_submit(struct rpmem_rpc *rpc, struct rpmem_rpc_op *op);
/*
 * Return up to n operations whose state has changed; wait up to timeout_ms for
 * the first (0: do not wait; -1: without end). Returns their number, or a
 * negative errno; 0 at once when no call is outstanding. Operations progress
 * only while a thread is in this call or in a blocking one.
 */
int rpmem_rpc_poll(struct rpmem_rpc *rpc, struct rpmem_rpc_op **done,
		   unsigned int n, int timeout_ms);
/*
 * Call and wait: for room in the ring, then for a reply of up to *reply_len
 * bytes.
 */
int rpmem_rpc_call(struct rpmem_rpc *rpc, const void *buf, size_t len,
		   void *reply, size_t *reply_len);
/*
 * With attr.earlier: wait for the reply to the next call of an earlier process
 * with this id. Returns 1; 0: there is none left; -ETIMEDOUT; -EMSGSIZE: the
 * reply is longer than *len, which is then its length.
 */
int rpmem_rpc_earlier(struct rpmem_rpc *rpc, uint64_t *sequence, void *reply,
		      size_t *len, int timeout_ms);

/* How a call becomes durable; rpmem_rpc(3) describes the variants. */
enum rpmem_rpc_variant {
	RPMEM_RPC_WFLUSH = 1,	/* the client flushes its RDMA write */
	RPMEM_RPC_S_RFLUSH = 2, /* the request has the call; the server flushes
				 * it */
	RPMEM_RPC_W_RFLUSH = 3, /* the server flushes an RDMA write */
};

struct rpmem_rpc_info {
	size_t size; /* in: sizeof(struct rpmem_rpc_info) */
	unsigned char id[RPMEM_RPC_ID];
	uint64_t ring;	      /* bytes of this client's ring */
	uint64_t used;	      /* bytes in use by calls without a reply */
	uint64_t max_call;    /* len + reply_max that fit at any time */
	uint64_t outstanding; /* calls without a reply */
	uint64_t peeks;	      /* replies read out of the server's memory */
	enum rpmem_pool_class reached;
	const char *method; /* a name of fi_rpmem(7) */
	/* Variants of calls of up to variant_max bytes, and of longer ones. */
	enum rpmem_rpc_variant variant, variant_long;
	uint64_t variant_max;
};
int rpmem_rpc_query(struct rpmem_rpc *rpc, struct rpmem_rpc_info *info);

/* Cause and remedy of the last call of this thread that failed. */
const char *rpmem_rpc_error(void);

#ifdef __cplusplus
}
#endif

#endif
