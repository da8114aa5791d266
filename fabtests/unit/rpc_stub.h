/* SPDX-License-Identifier: BSD-2-Clause */
/* A server of librpmem_rpc without threads and without a fabric. */
#ifndef RP_TEST_RPC_STUB_H
#define RP_TEST_RPC_STUB_H

#include "librpc/client.h"
#include "librpc/server.h"

/* Start a server on this memory. NULL: it refuses; see rpmem_rpc_error(). */
struct rpmem_rpc_server *rpc_stub_start(unsigned char *map, uint64_t length,
					uint64_t token);
/* Take the next call that the server passes to its program. NULL: none. */
struct rpmem_rpc_call *rpc_stub_next(struct rpmem_rpc_server *srv);
void rpc_stub_end(struct rpmem_rpc_server *srv);

#endif
