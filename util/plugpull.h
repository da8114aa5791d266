/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of fi_rpmem_plugpull: writer, ledger and judge. */
#ifndef RP_UTIL_PLUGPULL_H
#define RP_UTIL_PLUGPULL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "rpmem_pool.h"
#include "util/text.h"

#define PULL_THREADS 4u
#define PULL_BATCH   8u
#define PULL_LONGEST 65536u /* bytes of a record */
#define PULL_CELLS   16u    /* of the visibility test, behind the area */
#define PULL_CELL    8192u  /* bytes of one: its own pages; sent by RDMA */
#define PULL_VALUE   64u    /* bytes of every other one: sent in a message */
#define PULL_TAIL    ((uint64_t)PULL_CELLS * PULL_CELL)

struct pull_cfg {
	const char *where; /* HOST:PORT:POOL */
	const char *secret_file;
	enum rpmem_pool_class class;
	uint64_t seed; /* of this cycle */
	uint64_t area; /* bytes of the pool that records go to */
	bool control;  /* writes count as acknowledged without a commit */
};

/* Memory that a child process shares with its parent. */
struct pull_shared {
	_Atomic int code; /* enum rp_exit of the child's first error */
	char err[RP_ERR_LEN];
	_Atomic bool reconnected; /* the pool has what the library kept */
	_Atomic uint64_t acked;	  /* records */
	_Atomic uint64_t visible; /* probes: the other client read the value */
	_Atomic uint64_t unseen;  /* probes: it read another one */
	_Atomic uint64_t cells[PULL_CELLS]; /* the last value of each */
	enum rpmem_pool_class reached;
	char method[64];
	unsigned char got[]; /* what pull_read() has found */
};

/* One record, as the ledger has it. */
struct pull_record {
	uint64_t seq; /* in the order in which they were planned */
	uint64_t offset;
	uint32_t len;
	unsigned int thread;
	bool zeros;
	bool durable; /* acknowledged by itself, not by a commit */
	bool acked;
	uint64_t begin; /* line of the ledger; nothing was sent before it */
	uint64_t end;	/* line of the acknowledgement, or UINT64_MAX */
	/* the judge's, of records without acknowledgement: */
	uint64_t may; /* bytes that may be there */
	uint64_t is;  /* bytes of these that are there */
};

/* Bytes [at, at + len) of a record. */
void pull_fill(uint64_t seed, const struct pull_record *r, uint64_t at,
	       unsigned char *buf, size_t len);

/*
 * plugpull_ledger.c: a text file, one line for each event; fi_rpmem_plugpull(1)
 * describes its lines. The first line has the configuration. Each function
 * returns 0 or -errno, and the reason in err.
 */
int pull_ledger_start(int fd, const struct pull_cfg *cfg, uint64_t incarnation,
		      char *err);
/* Durably, before anything is sent. */
int pull_ledger_begin(int fd, const struct pull_record *v, unsigned int n,
		      char *err);
int pull_ledger_ack(int fd, const struct pull_record *v, unsigned int n,
		    char *err);
/* The caller frees *v. A line that is incomplete ends the ledger. */
int pull_ledger_load(const char *path, struct pull_cfg *cfg,
		     uint64_t *incarnation, struct pull_record **v, size_t *n,
		     char *err);

/*
 * plugpull_writer.c: bodies of child processes. They set s->code and s->err,
 * and do not return.
 */
/* Open the pool alone, and make area and cells durable zeros. */
_Noreturn void pull_prepare(const struct pull_cfg *cfg, struct pull_shared *s);
/* Write until the process is killed. */
_Noreturn void pull_write(const struct pull_cfg *cfg, struct pull_shared *s,
			  int ledger);
/* Read area and cells into s->got. */
_Noreturn void pull_read(const struct pull_cfg *cfg, struct pull_shared *s);

enum pull_count {
	PULL_RECORDS, /* acknowledged */
	PULL_BYTES,   /* of the area that only acknowledged ones have */
	PULL_LOST,    /* bytes of these with another value */
	PULL_FOREIGN, /* bytes elsewhere that no record explains */
	PULL_OPEN,    /* records in flight, whose outcome is free: */
	PULL_NEW,
	PULL_OLD,
	PULL_TORN,
	PULL_VISIBLE, /* probes, and */
	PULL_UNSEEN,
	PULL_SEEN, /* cells with a value that was visible, and */
	PULL_GONE, /* that a cut has taken */
	PULL_COUNTS,
};
#define PULL_NAMED 10u /* losses that are described */
/*
 * Compare got with the ledger's records; sorts v. Prints losses to out, and
 * adds to the counts before PULL_VISIBLE. Returns 0 or -ENOMEM.
 */
int pull_judge(const struct pull_cfg *cfg, struct pull_record *v, size_t n,
	       const unsigned char *got, FILE *out, uint64_t *count);

#endif
