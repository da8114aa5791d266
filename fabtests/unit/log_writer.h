/* SPDX-License-Identifier: BSD-2-Clause */
/* A writer of a log in memory (log_rig.h), and the entries that it must have.
 */
#ifndef RP_TEST_LOG_WRITER_H
#define RP_TEST_LOG_WRITER_H

#include "log_rig.h"

#define MODEL 4096u
#define LEN   700u
#define BATCH 3u

/* The entries of all writers that the log must have, in order. */
struct model {
	struct model_entry {
		uint64_t lsn, next;
		uint32_t len, seed;
	} v[MODEL];
	unsigned int n;	    /* entries submitted or recovered */
	unsigned int acked; /* entries acknowledged */
	unsigned int first; /* index of the oldest entry kept */
};

/* One append by a writer, and where its entries are in the model. */
struct append_batch {
	struct rpmem_log_op op;
	unsigned int from, count;
};

struct log_test {
	struct rig rig;
	struct seeded rnd;
	struct rig_port port, reader_port;
	struct rpmem_log *log;
	struct model m;
	struct append_batch batches[256];
	unsigned int nbatches, done;
};

extern struct log_test one;

/* Make the bytes of an entry. */
void fill_entry(unsigned char *to, const struct model_entry *it);
/* Create a log with a ring of length bytes; open_log() opens it. */
void start_life(struct log_test *l, uint64_t length, uint32_t layout);
void open_log(struct log_test *l);
/* Submit an append of random entries, unless the log is full. */
void submit_append(struct log_test *l);
/* Take completed appends, which must come in their order. */
void poll_log(struct log_test *l, int timeout_ms);
/* Create and open a log; close_one() closes it and frees its pool. */
void open_one(struct log_test *l, uint64_t ring, uint32_t layout);
void close_one(struct log_test *l);
/* Append one entry of len bytes. */
int append_bytes(struct log_test *l, size_t len, uint64_t *lsn);

#endif
