/* SPDX-License-Identifier: BSD-2-Clause */
/* One copy between a file and a pool, on librpmem_pool: for fi_rpmem_cp. */
#ifndef RP_UTIL_COPY_H
#define RP_UTIL_COPY_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <nettle/sha2.h>

#include "rpmem_pool.h"
#include "util/exit_codes.h"
#include "util/progress_bar.h"
#include "util/secret.h"
#include "util/text.h"

#define COPY_CHUNK_MAX	(64u << 20)
#define COPY_WINDOW_MAX 1024u
#define COPY_COMMITS	8 /* most commits outstanding at once */
#define COPY_BATCH	4 /* least chunks of a commit, except the last */

/* Parsed command line. */
struct copy_cfg {
	const char *file;
	char *where;	 /* name of the pool or of the group */
	uint64_t offset; /* offset in the pool */
	uint64_t length; /* bytes to copy from the pool; 0: all */
	uint64_t skip;	 /* first bytes of the file, durable already */
	bool up;	 /* direction; true: from file to pool */
	bool verify, json, quiet;
	enum rpmem_pool_class class;
	uint64_t chunk, window;
	uint64_t timeout; /* seconds that the target may be unreachable */
	uint64_t wait;	  /* seconds to wait for a daemon that is starting */
	const char *secret_file, *ack_log;
	struct rp_secret secret;
};

/* One operation on the pool. */
struct copy_op {
	struct rpmem_pool_op op;
	bool busy;     /* submitted, not yet completed */
	uint64_t upto; /* end of the operation, from the copy's start */
};

struct copy {
	const struct copy_cfg *cfg;
	char err[RP_ERR_LEN];
	int status; /* negative errno of the first failed operation */

	struct rpmem_pool *pool;
	struct rpmem_pool_info info; /* method NULL: the pool was never open */
	int fd;			     /* the local file */
	int ack_fd;
	uint64_t size;	     /* bytes to copy, with the skipped ones */
	char *buf;	     /* buffer: one chunk for each of ops */
	struct copy_op *ops; /* ring of cfg->window slots */
	struct copy_op commits[COPY_COMMITS];
	unsigned int outstanding;

	uint64_t acked; /* bytes from the start that completed commits cover */
	uint64_t limit; /* lowest byte of a failed write: acked stays below */
	uint64_t zeros; /* bytes of zeros that the target filled in */
	struct sha256_ctx sha;
	uint8_t sum[SHA256_DIGEST_SIZE]; /* --verify: hash of pool bytes */
	struct progress progress;
};

/* Copy. Returns 0, or an enum rp_exit with the error in c->err. */
int copy_run(struct copy *c);
void copy_close(struct copy *c);

/* Set by the handler of SIGINT and SIGTERM. */
extern volatile sig_atomic_t copy_interrupted;

#endif
