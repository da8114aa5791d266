/* SPDX-License-Identifier: BSD-2-Clause */
/* fi_rpmem_info --advise: measures on this machine what papers advise. */
#ifndef RP_UTIL_ADVISE_H
#define RP_UTIL_ADVISE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/caps.h"
#include "core/method.h"
#include "core/pmem.h"
#include "util/info.h"
#include "util/ratio.h"

#define ADVISE_FILE    (64u << 20) /* bytes that are written to */
#define ADVISE_NODES   1024	   /* most NUMA nodes that Linux supports */
#define ADVISE_SECONDS 25u	   /* time limit of a run */

struct advise_peer; /* defined in advise_peer.c */

/* State of one run on memory in a directory, or on a running daemon's pool. */
struct advise {
	const char *root; /* prefix of /sys, for tests; NULL: "" */
	/* Memory of a new file in a directory; pm stores to it. */
	struct info_map map;
	struct rp_facts facts;
	struct rp_nic nic;
	struct rp_choice choice;
	struct rp_pmem *pm;
	struct advise_peer *peer; /* NULL: no connection */
	const char *target;	  /* HOST[:PORT]:POOL, or NULL: a directory */
	uint64_t seed;
	unsigned int seconds; /* time for all rows; 0: ADVISE_SECONDS */
};

/* The two ways that a row compares. */
enum advise_way {
	ADVISE_AS,    /* following the advice */
	ADVISE_OTHER, /* against the advice */
};

/* One piece of advice: a row of the report. */
struct advise_row {
	const char *name, *source, *advice;
	const char *as, *other; /* names of the two ways */
	const char *set;	/* how to follow the advice */
	uint64_t param;		/* argument of measure() */
	/* False: not measurable; why (RP_ERR_LEN bytes) has the reason. */
	bool (*applies)(const struct advise *a, const struct advise_row *row,
			char *why);
	/* Take one sample of one way. Returns 0, or -errno and err. */
	int (*measure)(struct advise *a, const struct advise_row *row,
		       enum advise_way way, uint64_t *ns, char *err);
};

/* Rows of each file; a row without a name ends each array. */
extern const struct advise_row advise_memory_rows[], advise_machine_rows[],
	advise_peer_rows[];

/* A pseudo-random number below n. */
uint64_t advise_random(struct advise *a, uint64_t n);

/*
 * advise_memory.c: map a new file in a folder and find its facts. Returns 0, or
 * -errno and the reason in err (RP_ERR_LEN bytes).
 */
int advise_memory_open(struct advise *a, const char *dir,
		       const struct info_transport *transport, char *err);
void advise_memory_close(struct advise *a);

/*
 * advise_peer.c: connect to a target: a child process that exports a->map, or
 * the daemon of the pool a->target, which is only read. Call it before anything
 * else of libfabric.
 */
int advise_peer_open(struct advise *a, const struct info_transport *transport,
		     const struct rp_secret *secret, char *err);
void advise_peer_close(struct advise *a);

/* advise_machine.c: list devices of the kernel driver idxd: "dsa0, dsa2". */
unsigned int advise_find_engines(const char *root, char *names, size_t len);
/*
 * Find the first CPU of a NUMA node (-1: of the first node with CPUs) and the
 * first CPU of another node; -1: there is none. Node numbers may have gaps.
 * Returns how many nodes have CPUs.
 */
unsigned int advise_find_nodes(const char *root, int node, int cpus[2]);

/*
 * advise.c: sample one row until end_ns of CLOCK_MONOTONIC. Returns a JSON
 * object, whose "verdict" says whether the advice holds.
 */
json_t *advise_judge(struct advise *a, const struct advise_row *row,
		     uint64_t end_ns);
/*
 * Arguments of advise_run(): measure in a folder, or at HOST[:PORT]:POOL.
 * advise_run() returns the report, or NULL and the reason in err (RP_ERR_LEN
 * bytes).
 */
struct advise_cfg {
	const char *where;
	const struct info_transport *transport;
	const struct rp_secret *secret;
	const char *root;     /* prefix of /sys, for tests; NULL: "" */
	unsigned int seconds; /* time limit; 0: ADVISE_SECONDS */
};
json_t *advise_run(const struct advise_cfg *cfg, char *err);
void advise_print(const json_t *report);

/* Set by the handler of SIGINT and SIGTERM. */
extern volatile sig_atomic_t advise_interrupted;

#endif
