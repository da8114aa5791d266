/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages between client and server: doorbells and replies. */
#ifndef RP_LIBRPC_PORT_H
#define RP_LIBRPC_PORT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "librpc/format.h"
#include "util/fabric.h"

/*
 * A message is a hint where to read, and may be lost: only the ring counts. It
 * can include a short reply.
 */
#define RPC_MSG_BYTES  4096u
#define RPC_MSG_HEADER 48u

enum rpc_msg_type {
	RPC_MSG_ATTACH = 1, /* the client has written a superblock */
	RPC_MSG_CALL = 2,   /* the client has written a new entry */
	RPC_MSG_REPLY = 3,
};

/*
 *  0 u32 type  4 u32 slot  8 u64 token of the receiver  16 u64 sequence
 * 24 u64 hash of the reply  32 u32 len of the reply  36 u32 1: reply follows
 * 40 u64 0
 */
struct rpc_msg {
	uint32_t type, slot;
	uint64_t token;
	struct rpc_result result;
	bool has_bytes;
	const unsigned char *bytes; /* bytes of the reply */
};

struct rpc_buf;

struct rpc_port {
	struct rp_fabric f;
	int fd; /* readable when rpc_port_poll() has work */
	unsigned char name[RPC_NAME];
	size_t name_len;
	pthread_mutex_t lock; /* guards free */
	struct rpc_buf *free; /* unused send buffers */
	struct rpc_buf *all;
	unsigned char *memory;
	size_t size;
	struct fid_mr *mr;
};

/* Handles a message, which is valid during the call. */
typedef void (*rpc_port_fn)(void *arg, const struct rpc_msg *m);

/*
 * Open an endpoint of a base provider with n buffers each to send and to
 * receive. Returns 0 or -errno and the reason in err.
 */
int rpc_port_open(struct rpc_port *p, const struct rp_fabric_attr *attr,
		  unsigned int n, char *err);
void rpc_port_close(struct rpc_port *p);
/* Send. -EAGAIN: try later. Any other error: the address is unusable. */
int rpc_port_send(struct rpc_port *p, fi_addr_t to, const struct rpc_msg *m);
/* Receive all messages; wait up to ms for the first. Not thread-safe. */
int rpc_port_poll(struct rpc_port *p, rpc_port_fn fn, void *arg, int ms);

#endif
