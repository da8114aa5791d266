/* SPDX-License-Identifier: BSD-2-Clause */
/* The ssh that runs fi_rpmemd --one-shot on the host of a replica. */
#ifndef RP_LIBRPMEM_SESSION_H
#define RP_LIBRPMEM_SESSION_H

#include <stdbool.h>
#include <sys/types.h>

#include "util/text.h"

struct session {
	pid_t pid;   /* pid of ssh; 0: none */
	int pidfd;   /* pidfd of ssh; -1: not supported, or ssh is gone */
	bool reaped; /* ssh ended and was reaped before pidfd was opened */
	int line;    /* socket: standard input and output of ssh */
	int log;     /* memory file: standard error of ssh */
	int secret;  /* memory file: secret of the session */
	enum {
		SESSION_ANY,
		SESSION_HEADER,	   /* the pool set needs attributes */
		SESSION_NO_HEADER, /* the pool set has NOHDRS */
	} header;
	char where[600]; /* name for rpmem_pool_open() */
	char path[32];	 /* path of the secret */
};

/* Whether a replica needs ssh: its target names a user, or it names a path. */
bool session_is_needed(const char *target, const char *name);
/*
 * Run a request ("open", "create", "remove", "remove-set",
 * "remove-set-force": the pool may be missing) on
 * [user@]host[:port]. Returns 0; or -errno and the reason in err, and there is
 * no session: -ENOENT no such pool or pool set, -EEXIST, -EBUSY, -ENOSPC,
 * -EACCES, -EOPNOTSUPP, -EINVAL as librpmem reports them, -EHOSTUNREACH: ssh
 * failed, -EPROTO: it runs no fi_rpmemd, or its exit status is unknown,
 * -ETIMEDOUT.
 */
int session_begin(struct session *s, const char *target, const char *verb,
		  const char *name, char *err);
/* Let the daemon remove the pool that it made, when the session ends. */
void session_undo(struct session *s);
/*
 * End the session. Returns 0: the target has closed the pool; -ECONNRESET:
 * fi_rpmemd or ssh failed, or does not respond; -ECHILD: the program has reaped
 * ssh, so that its exit status is unknown.
 */
int session_end(struct session *s);

#endif
