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
#define PULL_LONGEST 65536u	/* most bytes of a record */
#define PULL_AREA    (1u << 30) /* most bytes of the area */
#define PULL_CELLS   16u   /* cells of the visibility test, after the area */
#define PULL_CELL    8192u /* bytes of an odd cell: whole pages, sent by RDMA */
#define PULL_VALUE   64u   /* bytes of an even cell: sent in a message */
#define PULL_TAIL    ((uint64_t)PULL_CELLS * PULL_CELL)

struct pull_cfg {
	const char *where; /* HOST[:PORT]:POOL */
	const char *secret_file;
	enum rpmem_pool_class class;
	uint64_t seed; /* seed of the cycle */
	uint64_t area; /* bytes of the pool for records */
	bool control; /* commit nothing; writes count as acknowledged at once */
};

/* Whether the area has whole records and cells, in memory that can be had. */
static inline bool pull_area_ok(uint64_t area)
{
	return area >= PULL_LONGEST && area <= PULL_AREA &&
	       area % PULL_CELL == 0;
}

/* Memory that a child process shares with its parent. */
struct pull_shared {
	_Atomic int code; /* exit code of the child's first error */
	char err[RP_ERR_LEN];
	_Atomic bool reconnected; /* librpmem_pool may have repeated writes */
	_Atomic uint64_t acked;	  /* acknowledged records */
	_Atomic uint64_t visible; /* probes whose value the other client read */
	_Atomic uint64_t unseen;  /* probes whose value was not read */
	_Atomic uint64_t cells[PULL_CELLS]; /* last value of a probe in each */
	enum rpmem_pool_class reached;
	char method[64];
	unsigned char got[]; /* bytes that pull_read() has read */
};

/* One record, as the ledger describes it. */
struct pull_record {
	uint64_t seq; /* number of the record, in planning order */
	uint64_t offset;
	uint32_t len;
	unsigned int thread;
	bool zeros;
	bool durable; /* acknowledged as a durable write, not by a commit */
	bool acked;
	uint64_t begin; /* line number of the record in the ledger */
	uint64_t end;	/* line number of its acknowledgement, or UINT64_MAX */
	/* results of the judge for records without an acknowledgement */
	uint64_t may; /* bytes that the pool may have */
	uint64_t is;  /* how many of these bytes the pool has */
};

/* Generate bytes [at, at + len) of a record. */
void pull_fill(uint64_t seed, const struct pull_record *r, uint64_t at,
	       unsigned char *buf, size_t len);

/*
 * plugpull_ledger.c: a text file with one line per event; fi_rpmem_plugpull(1)
 * describes them. The first line has the configuration. Each function returns 0
 * or -errno, and the reason in err.
 */
int pull_ledger_start(int fd, const struct pull_cfg *cfg, uint64_t incarnation,
		      char *err);
/* Record durably that n records begin, before any is sent. */
int pull_ledger_begin(int fd, const struct pull_record *v, unsigned int n,
		      char *err);
int pull_ledger_ack(int fd, const struct pull_record *v, unsigned int n,
		    char *err);
/* The caller frees *v. An incomplete line ends the ledger. */
int pull_ledger_load(const char *path, struct pull_cfg *cfg,
		     uint64_t *incarnation, struct pull_record **v, size_t *n,
		     char *err);

/*
 * plugpull_writer.c: bodies of child processes. They set s->code and s->err,
 * and do not return.
 */
/* Open the pool exclusively, and make area and cells durable zeros. */
_Noreturn void pull_prepare(const struct pull_cfg *cfg, struct pull_shared *s);
/* Write records until the process is killed. */
_Noreturn void pull_write(const struct pull_cfg *cfg, struct pull_shared *s,
			  int ledger);
/* Read area and cells into s->got. */
_Noreturn void pull_read(const struct pull_cfg *cfg, struct pull_shared *s);

enum pull_count {
	PULL_RECORDS, /* acknowledged records */
	PULL_BYTES,   /* bytes that acknowledged records cover */
	PULL_LOST,    /* of these, bytes with a value that no record explains */
	PULL_FOREIGN, /* the other bytes with such a value */
	PULL_OPEN,    /* records in flight, which may be there or not: */
	PULL_NEW,     /* of these, records with all bytes in the pool, */
	PULL_OLD,     /* with none, */
	PULL_TORN,    /* with some */
	PULL_VISIBLE, /* probes that another client read right away */
	PULL_UNSEEN,  /* probes that it did not read */
	PULL_SEEN,    /* cells that were probed */
	PULL_GONE,    /* of these, cells that are older than the last probe */
	PULL_COUNTS,
};
#define PULL_NAMED 10u /* losses that are described in words */
/*
 * Compare got with the ledger's records; sorts v. Prints losses to out, and
 * adds to the counts before PULL_VISIBLE. Returns 0 or -ENOMEM.
 */
int pull_judge(const struct pull_cfg *cfg, struct pull_record *v, size_t n,
	       const unsigned char *got, FILE *out, uint64_t *count);

#endif
