/* SPDX-License-Identifier: BSD-2-Clause */
/* A raft_io of libraft whose storage is a pool of fi_rpmemd. */
#ifndef RPMEM_RAFT_H
#define RPMEM_RAFT_H

#include <stddef.h>

#include <raft.h>
#include <rpmem_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct uv_loop_s;
struct raft_uv_transport;

/* Zero is the default of each field but size. */
struct rpmem_raft_attr {
	size_t size;		 /* sizeof(struct rpmem_raft_attr) */
	const char *secret_file; /* as for rpmem_pool_open(), like the next 2;
				  * the same for the pools of all servers */
	enum rpmem_pool_class required;
	unsigned int timeout;
	int take;     /* 1: displace a process that has the pool open */
	int no_rings; /* 1: leaders write nothing into the pool of this server,
			 which stores all entries itself */
	const char *at; /* name of `where` at other servers; NULL: the same */
	struct raft_uv_transport *transport; /* connections of servers, valid
						until raft_close() has ended;
						NULL: libraft's own TCP */
};

/*
 * Fill in *io, for raft_init(). loop: that of libuv, in whose thread all of
 * libraft runs. where, "HOST:POOL" or "HOST:PORT:POOL": the pool of this server
 * alone; raft_init() opens it, and makes it ready if it is new. attr may be
 * NULL. Returns 0 or RAFT_NOMEM, RAFT_INVALID. raft_close() releases all.
 * rpmem_raft(3) describes the rest.
 */
int rpmem_raft_init(struct raft_io *io, struct uv_loop_s *loop,
		    const char *where, const struct rpmem_raft_attr *attr);

#ifdef __cplusplus
}
#endif

#endif
