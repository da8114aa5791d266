/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of fi_rpmem_cp: one copy between a file and a pool. */
#ifndef RP_UTIL_COPY_H
#define RP_UTIL_COPY_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <nettle/sha2.h>
#include <rdma/fi_ext_rpmem.h>

#include "core/caps.h"
#include "core/status.h"
#include "util/exits.h"
#include "util/fabric.h"
#include "util/progress.h"
#include "util/setup_client.h"

#define COPY_CHUNK_MAX	(64u << 20)
#define COPY_WINDOW_MAX 1024u
#define COPY_COMMITS	8 /* commits outstanding at once */
#define COPY_BATCH_MIN	4 /* chunks per commit */
#define COPY_BATCH_MAX	16

/* Parsed command line. */
struct copy_cfg {
	const char *file;
	const char *remote; /* remote argument as typed */
	struct rp_setup_target target;
	char pool[RP_SETUP_NAME + 1];
	uint64_t offset; /* offset in the pool */
	uint64_t length; /* bytes to copy from the pool; 0: to its end */
	bool up;	 /* true: file to pool; false: pool to file */
	bool resume, verify, json, quiet;
	enum fi_rpmem_class class;
	uint64_t chunk, window;
	unsigned int timeout; /* seconds without a completion */
	const char *ack_log;
};

/* One operation. Its address is the context of its completion. */
struct copy_op {
	enum {
		COPY_IDLE,
		COPY_READING,
		COPY_WRITING,
		COPY_COMMITTING,
		COPY_DONE,
	} state;
	bool busy;   /* posted, not completed */
	bool failed; /* completed by an error entry */
	bool zero;   /* all bytes are zeros: the target writes them */
	uint64_t at; /* offset from the start of the copy */
	uint64_t len;
	char *data;	 /* bytes of the file, or read from the pool */
	char *pool_data; /* --resume: bytes of the pool */
};

struct copy {
	const struct copy_cfg *cfg;
	char err[RP_ERR_LEN];
	enum rp_status status; /* status of a failed commit */

	struct rp_setup_export ex;
	int lease; /* connection that holds the pool open, or -1 */
	struct rp_fabric f;
	fi_addr_t peer;
	enum fi_rpmem_method method; /* method of commits */
	enum rp_class class;	     /* class that commits reach */

	int fd;	       /* the local file */
	uint64_t size; /* bytes to copy */
	uint64_t chunk;
	char *buf;
	size_t buf_len;
	struct fid_mr *mr;
	struct copy_op *ops; /* ring of cfg->window slots */
	struct copy_op commits[COPY_COMMITS];
	unsigned int busy;
	bool posting;	       /* a post waits for room in the queue */
	uint64_t silent_since; /* time in ms of the last completion */

	uint64_t acked;	  /* bytes that completed commits cover */
	uint64_t skipped; /* bytes that the pool already had */
	uint64_t zeros;	  /* bytes that the target wrote by itself */
	int ack_fd;
	struct sha256_ctx sha; /* over the bytes of this pass */
	uint8_t sha_file[SHA256_DIGEST_SIZE];
	uint8_t sha_pool[SHA256_DIGEST_SIZE];
	struct progress progress;
};

/*
 * The functions below return 0, or an enum rp_exit with the error in c->err.
 * From copy.c: connect to the pool, check that the copy fits and reaches the
 * required class, allocate the window.
 */
int copy_open(struct copy *c);
void copy_close(struct copy *c);
/* Around a copy to the pool: its length is unknown, and then remembered. */
int copy_begin(struct copy *c);
int copy_end(struct copy *c);
/* Post the operation that op->state names; wait for room in the queue. */
int copy_post(struct copy *c, struct copy_op *op);
/* Read completions; wait up to ms for the first one. */
int copy_poll(struct copy *c, int ms);
/*
 * After an error: wait until all posted operations have completed or failed. A
 * daemon that stops still completes the commits that it accepted.
 */
void copy_finish(struct copy *c);
/* The same: where a daemon that runs has closed the pool, ask it why. */
void copy_explain(struct copy *c);
/*
 * Read the pool pipelined, and pass the chunks to sink in order. A sink returns
 * 0 or an enum rp_exit.
 */
typedef int (*copy_sink)(struct copy *c, const struct copy_op *op);
int copy_read_all(struct copy *c, copy_sink sink);

/* copy_up.c: copy the file c->fd of c->size bytes to the pool. */
int copy_up(struct copy *c);
/* Read back what copy_up() wrote, and compare SHA-256. */
int copy_verify(struct copy *c);
/*
 * copy_down.c: copy the pool to a file, which appears complete or not at all.
 */
int copy_down(struct copy *c);

/* Set by the handler of SIGINT and SIGTERM. */
extern volatile sig_atomic_t copy_interrupted;

#endif
