/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of fi_rpmem_cp: one copy between a file and a pool. */
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
#define COPY_COMMITS	8 /* outstanding at once */
#define COPY_BATCH_MIN	4 /* chunks per commit */
#define COPY_BATCH_MAX	16

/* What was asked for. */
struct copy_cfg {
	const char *file;
	const char *remote; /* as typed */
	struct rp_setup_target target;
	char pool[RP_SETUP_NAME + 1];
	uint64_t offset; /* in the pool */
	uint64_t length; /* from the pool; 0: to its end */
	bool up;	 /* file to pool */
	bool resume, verify, json, quiet;
	enum fi_rpmem_class class;
	uint64_t chunk, window;
	unsigned int timeout; /* s of silence */
	const char *ack_log;
};

/* One operation under way; its address is the context. */
struct copy_op {
	enum {
		COPY_IDLE,
		COPY_READING,
		COPY_WRITING,
		COPY_COMMITTING,
		COPY_DONE,
	} state;
	bool busy;   /* libfabric has it */
	uint64_t at; /* first byte, from the start of the copy */
	uint64_t len;
	char *mine;   /* from the file, or where a read goes */
	char *theirs; /* resume: what the pool has */
};

struct copy {
	const struct copy_cfg *cfg;
	char err[RP_ERR_LEN];
	enum rp_status status; /* of a failed commit */

	struct rp_setup_export ex;
	struct rp_fabric f;
	fi_addr_t peer;
	enum fi_rpmem_method method; /* of commits of this copy */
	enum rp_class class;	     /* that they reach */

	int fd;	       /* the file */
	uint64_t size; /* bytes to copy */
	uint64_t chunk;
	char *buf;
	size_t buf_len;
	struct fid_mr *mr;
	struct copy_op *ops; /* cfg->window of them: a ring */
	struct copy_op commits[COPY_COMMITS];
	unsigned int busy;
	bool posting;	       /* one more waits for room */
	uint64_t sign_of_life; /* ms */

	uint64_t acked;	  /* durable, from the start of the copy */
	uint64_t skipped; /* were there already */
	int ack_fd;
	struct sha256_ctx sha; /* of what passes by */
	uint8_t sha_file[SHA256_DIGEST_SIZE];
	uint8_t sha_pool[SHA256_DIGEST_SIZE];
	struct progress progress;
};

/*
 * All of these return 0 or an enum rp_exit, with the sentence in c->err.
 * copy.c: connect to the pool, check that the copy fits and can be as durable
 * as is required, make room for the window.
 */
int copy_open(struct copy *c);
void copy_close(struct copy *c);
/* Start op (its state says what), waiting for room where there is none. */
int copy_post(struct copy *c, struct copy_op *op);
/* Take completions; wait for one at most ms. */
int copy_poll(struct copy *c, int ms);
/*
 * Read the pool's bytes in order, pipelined; sink gets them. A sink returns 0
 * or an enum rp_exit.
 */
typedef int (*copy_sink)(struct copy *c, const struct copy_op *op);
int copy_read_all(struct copy *c, copy_sink sink);

/* copy_up.c: c->fd is the file, c->size its length. */
int copy_up(struct copy *c);
/* Read back what copy_up() wrote: SHA-256 of both sides. */
int copy_verify(struct copy *c);
/* copy_down.c: makes the file whole or not at all. */
int copy_down(struct copy *c);

/* Set by SIGINT and SIGTERM. */
extern volatile sig_atomic_t copy_interrupted;
uint64_t copy_now_ms(void);

#endif
