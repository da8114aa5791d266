/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of librpmem_rpc that both sides have. */
#ifndef RP_LIBRPC_RPC_H
#define RP_LIBRPC_RPC_H

/* The rest of the library is built with hidden symbols. */
#pragma GCC visibility push(default)
#include "rpmem_rpc.h"
#pragma GCC visibility pop
#include "librpc/format.h"
#include "librpc/port.h"
#include "util/text.h"

/* error.c: the sentence of this thread; returns ret. */
int rpc_error(int ret, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Texts of librpmem_pool and of the export say fi_rpmemd: the server is none.
 */
void rpc_error_reword(char text[RP_ERR_LEN]);
/* RP_ERR_LEN bytes of it, for functions that write a reason. */
char *rpc_error_buf(void);

#endif
