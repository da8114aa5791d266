/* SPDX-License-Identifier: BSD-2-Clause */
/* The ssh that runs fi_rpmemd --one-shot on the host of a replica. */
#ifndef RP_LIBRPMEM_SESSION_H
#define RP_LIBRPMEM_SESSION_H

#include <stdbool.h>
#include <sys/types.h>

#include "util/text.h"

struct session {
	pid_t pid;  /* of ssh; 0: none */
	int pidfd;  /* the same; -1: the kernel has none, or ssh is gone */
	bool gone;  /* it had ended, and was reaped, before pidfd was opened */
	int line;   /* its standard input and output */
	int log;    /* memory with its standard error */
	int secret; /* memory with the secret of the session */
	enum {
		SESSION_ANY,
		SESSION_HEADER,	   /* the pool set wants attributes */
		SESSION_NO_HEADER, /* and none: NOHDRS */
	} header;
	char where[600]; /* the pool, as of rpmem_pool_open() */
	char path[32];	 /* of the secret */
};

/* Whether a replica is reached by ssh: a user is named, or a path. */
bool session_is_needed(const char *target, const char *name);
/*
 * Run a request ("open", "create", "remove", "remove-set") on
 * [user@]host[:port]. Returns 0; or -errno and the reason in err, and there is
 * no session: -ENOENT no such pool or pool set, -EBUSY, -ENOSPC, -EACCES,
 * -EOPNOTSUPP, -EINVAL as librpmem reports them, -EHOSTUNREACH: ssh failed,
 * -EPROTO: it runs no fi_rpmemd, or its exit status is unknown, -ETIMEDOUT.
 */
int session_begin(struct session *s, const char *target, const char *verb,
		  const char *name, char *err);
/*
 * End it. Returns 0: the pool is closed at the target; -ECONNRESET: fi_rpmemd
 * or ssh has ended otherwise, or does not respond; -ECHILD: the program has
 * reaped ssh, so that its exit status is unknown.
 */
int session_end(struct session *s);

#endif
