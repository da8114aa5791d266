/* SPDX-License-Identifier: BSD-2-Clause */
/* The state that a server of Raft must not lose, in one log. */
#ifndef RP_RAFT_STORE_H
#define RP_RAFT_STORE_H

#include <raft.h>

#include "libraft/writer.h"

/* docs/protocol.md, "Servers of Raft", has the bytes of records. */
#define RECORD_HEAD   24u
#define SNAPSHOT_HEAD 48u /* next to the header of a RECORD_SNAPSHOT */
enum record {
	RECORD_TERM = 1,
	RECORD_ENTRY = 2,
	RECORD_CHUNK = 3,
	RECORD_SNAPSHOT = 4,
};

/* An entry that is not in the log of this server yet, in the ring only. */
struct pending {
	unsigned char *bytes; /* its record */
	size_t len;
};

/* The last message of a ring that had pending entries. */
struct origin {
	void *peer;
	uint64_t boot, seq, lsn;
};

struct put; /* a snapshot that is being written */

struct store {
	struct writer w;
	char *errmsg; /* RAFT_ERRMSG_BUF_SIZE bytes */
	raft_term term;
	raft_id vote;
	raft_index first, next; /* entries from first on, before next */
	uint64_t *lsns;		/* of entry first + i, or of one before */
	size_t lsns_room;
	struct pending *pending;
	size_t npending, pending_room, pending_bytes;
	struct origin origin;
	unsigned int flushing; /* flushes that are outstanding */
	/* NULL, or: pending entries up to this origin are durable. */
	void (*flushed)(const struct origin *origin);
	uint64_t number; /* of the last snapshot */
	struct {
		raft_index index; /* 0: none */
		raft_term term;
		uint64_t number, lsn, bytes;
		struct raft_configuration conf;
		raft_index conf_index;
	} snap;
	struct put *put;
};

/* Put the cause, of the last call of librpmem_log, in errmsg; a RAFT_ code. */
int store_error(struct store *st, int ret, const char *what);
int raft_code(int ret);

/* All: 0 or a RAFT_ code. store_open() makes the logs of a new pool. */
int store_open(struct store *st, const char *where,
	       const struct rpmem_log_attr *attr);
void store_close(struct store *st);
/* The log has no record. */
int store_pristine(struct store *st, bool *pristine);
/* Durable when it returns 0, and all entries before with it. */
int store_term(struct store *st, raft_term term, raft_id vote);
/* done(): the entries are durable. The job belongs to the store until then. */
int store_append(struct store *st, const struct raft_entry *entries,
		 unsigned int n, struct job *job);
/* Entries that a ring has: written by the next store_flush(). */
int store_pend(struct store *st, const struct raft_entry *entries,
	       unsigned int n);
/* Start to write pending entries, if there are any. */
int store_flush(struct store *st);
int store_truncate(struct store *st, raft_index index);
int store_snapshot(struct store *st, unsigned int trailing,
		   const struct raft_snapshot *snapshot,
		   void (*done)(void *arg, int status), void *arg);
/* The last snapshot, in memory of raft_malloc(). */
int store_snapshot_get(struct store *st, struct raft_snapshot **snapshot);
/* n entries follow the last one. */
int store_track(struct store *st, uint64_t lsn, unsigned int n);
/* One operation; its errors are in errmsg. */
int store_submit(struct store *st, struct iovec *iov, unsigned int n,
		 struct job *job);
void record_head(unsigned char *p, enum record kind, uint32_t type,
		 uint64_t index, uint64_t term);

/* replay.c: read all; ring: the log with messages of leaders, or NULL. */
struct replay {
	struct raft_entry *entries; /* from first on, by raft_malloc() */
	size_t n, room;
};
int store_replay(struct store *st, struct rpmem_log *ring, struct replay *rp);
void replay_free(struct replay *rp);

/* Configurations in bytes. */
size_t conf_size(const struct raft_configuration *c);
void conf_put(const struct raft_configuration *c, unsigned char *p);
/* 0 or RAFT_MALFORMED, RAFT_NOMEM, and then *c is empty. */
int conf_get(struct raft_configuration *c, const unsigned char *p, size_t len);
int conf_copy(struct raft_configuration *to,
	      const struct raft_configuration *from);

/* pool.c: a pool without a log begins with zeros: its bytes are overwritten. */
int pool_check_new(struct store *st, const char *where,
		   const struct rpmem_log_attr *attr);

#endif
