/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of librpmem_rpc for both client and server. */
#ifndef RP_LIBRPC_RPC_H
#define RP_LIBRPC_RPC_H

/* Export the calls of rpmem_rpc.h; -fvisibility=hidden hides all others. */
#pragma GCC visibility push(default)
#include "rpmem_rpc.h"
#pragma GCC visibility pop
#include "librpc/format.h"
#include "librpc/port.h"
#include "util/text.h"

/* error.c: set the error text of this thread; returns ret. */
int rpc_error(int ret, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* In texts of librpmem_pool and of the export, replace fi_rpmemd by server. */
void rpc_error_reword(char text[RP_ERR_LEN]);
/* This thread's error text, RP_ERR_LEN bytes, for functions that write it. */
char *rpc_error_buf(void);

#endif
