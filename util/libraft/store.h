/* SPDX-License-Identifier: BSD-2-Clause */
/* The state that a server of Raft must not lose, in one log. */
#ifndef RP_RAFT_STORE_H
#define RP_RAFT_STORE_H

#include <raft.h>

#include "libraft/writer.h"

/* docs/protocol.md, "Servers of Raft", describes the bytes of records. */
#define RECORD_HEAD   24u
#define SNAPSHOT_HEAD 48u /* bytes behind the header of a RECORD_SNAPSHOT */
enum record {
	RECORD_TERM = 1,
	RECORD_ENTRY = 2,
	RECORD_CHUNK = 3,
	RECORD_SNAPSHOT = 4,
	RECORD_SERVER = 5,
};

/* An entry that only the ring has, not yet the log of this server. */
struct pending {
	unsigned char *bytes; /* the encoded record */
	size_t len;
};

/* A ring's newest message with pending entries; numbers as in wire_head. */
struct origin {
	void *peer;
	uint64_t boot, seq, lsn;
};

struct put; /* a snapshot that is being written */

struct store {
	struct writer w;
	char *errmsg; /* error text, RAFT_ERRMSG_BUF_SIZE bytes */
	raft_term term;
	raft_id vote;
	raft_id server;		/* whose state this is; 0: unknown */
	raft_index first, next; /* entries in the log: [first, next) */
	uint64_t *lsns;		/* LSN of entry first + i, or an earlier LSN */
	size_t lsns_room;
	struct pending *pending;
	size_t npending, pending_room, pending_bytes;
	struct origin origin;
	unsigned int flushing; /* outstanding flushes of pending entries */
	int lost; /* RAFT_ code: an append or flush failed, entries are lost */
	/* NULL, or called when entries up to an origin are durable. */
	void (*flushed)(const struct origin *origin);
	uint64_t number; /* number of the last snapshot */
	struct {
		raft_index index; /* last entry in the snapshot; 0: none */
		raft_term term;
		uint64_t number, lsn, bytes;
		struct raft_configuration conf;
		raft_index conf_index;
	} snap;
	struct put *put;
};

/* Put the error of the last librpmem_log call in errmsg; returns its code. */
int store_error(struct store *st, int ret, const char *what);
int raft_code(int ret);

/* Returns 0 or a RAFT_ code. Makes the logs of a new pool. */
int store_open(struct store *st, const char *where,
	       const struct rpmem_log_attr *attr);
void store_close(struct store *st);
/* Set *pristine: the log has no record. */
int store_pristine(struct store *st, bool *pristine);
/*
 * Bind the log to a server. RAFT_INVALID: it is another server's, and take_over
 * is false.
 */
int store_claim(struct store *st, const char *where, raft_id server,
		bool take_over);
/* Store a term and a vote. On 0 these and all earlier entries are durable. */
int store_term(struct store *st, raft_term term, raft_id vote);
/*
 * Append entries. The store owns the job until it calls job->done(): with 0
 * when the entries are durable, or with an error, after which all appends fail.
 */
int store_append(struct store *st, const struct raft_entry *entries,
		 unsigned int n, struct job *job);
/*
 * Keep entries that are in a ring pending, until the next store_flush(). Fails
 * once a flush has failed: the log would have a gap.
 */
int store_pend(struct store *st, const struct raft_entry *entries,
	       unsigned int n);
/* Start to write the pending entries, if there are any. */
int store_flush(struct store *st);
int store_truncate(struct store *st, raft_index index);
int store_snapshot(struct store *st, unsigned int trailing,
		   const struct raft_snapshot *snapshot,
		   void (*done)(void *arg, int status), void *arg);
/* Read the last snapshot into memory that raft_free() frees. */
int store_snapshot_get(struct store *st, struct raft_snapshot **snapshot);
/* Note that n entries follow the last one, at this LSN. */
int store_track(struct store *st, uint64_t lsn, unsigned int n);
/* Submit records as one operation; errors are in errmsg. */
int store_submit(struct store *st, struct iovec *iov, unsigned int n,
		 struct job *job);
void record_head(unsigned char *p, enum record kind, uint32_t type,
		 uint64_t index, uint64_t term);

/* replay.c: read the whole log, then `ring`, leaders' messages, or NULL. */
struct replay {
	struct raft_entry *entries; /* entries from index first on */
	size_t n, room;
};
int store_replay(struct store *st, struct rpmem_log *ring, struct replay *rp);
void replay_free(struct replay *rp);

/* Encode and decode configurations. */
size_t conf_size(const struct raft_configuration *c);
void conf_put(const struct raft_configuration *c, unsigned char *p);
/* Returns 0, or RAFT_MALFORMED or RAFT_NOMEM with *c empty. */
int conf_get(struct raft_configuration *c, const unsigned char *p, size_t len);
int conf_copy(struct raft_configuration *to,
	      const struct raft_configuration *from);

/* pool.c: check that a pool is zeroed before logs are created there. */
int pool_check_new(struct store *st, const char *where,
		   const struct rpmem_log_attr *attr);

#endif
