// SPDX-License-Identifier: BSD-2-Clause
/*
 * Preloaded by kv_lives.sh into the example kv_server. KV_KILL="N K": from
 * reply N on each msync() blocks for ever, and SIGKILL ends the process before
 * reply N + K. So the handler has run K + 1 calls whose replies are not
 * durable. With a negative K SIGKILL ends the process after reply N.
 */
#include "config.h"

#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rpmem_rpc.h>

static int replies, first = INT_MAX, more;

__attribute__((constructor)) static void start(void)
{
	const char *spec = getenv("KV_KILL");

	if (spec && sscanf(spec, "%d %d", &first, &more) != 2)
		abort();
}

__attribute__((visibility("default"))) int msync(void *addr, size_t len,
						 int flags)
{
	static int (*next)(void *, size_t, int);

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "msync");
	while (more >= 0 &&
	       __atomic_load_n(&replies, __ATOMIC_SEQ_CST) >= first)
		pause();
	return next(addr, len, flags);
}

__attribute__((visibility("default"))) int
rpmem_rpc_reply(struct rpmem_rpc_server *srv, struct rpmem_rpc_call *call,
		const void *buf, size_t len)
{
	static int (*next)(struct rpmem_rpc_server *, struct rpmem_rpc_call *,
			   const void *, size_t);
	int at, ret;

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "rpmem_rpc_reply");
	if (replies + 1 == first)
		usleep(100000);
	at = __atomic_add_fetch(&replies, 1, __ATOMIC_SEQ_CST) - first;
	if (more >= 0 && at == more)
		kill(getpid(), SIGKILL);
	ret = next(srv, call, buf, len);
	if (!at && more < 0)
		kill(getpid(), SIGKILL);
	return ret;
}
