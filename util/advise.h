/* SPDX-License-Identifier: BSD-2-Clause */
/* fi_rpmem_info --advise: advice of papers, measured on this machine. */
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

#define ADVISE_FILE  (64u << 20) /* bytes that are written to */
#define ADVISE_NODES 64u	 /* NUMA nodes that are looked at */

struct advise_peer; /* advise_peer.c */

/* The object of a run: memory of a folder, or a pool of a running daemon. */
struct advise {
	const char *root; /* prefix of /sys, for tests; NULL: "" */
	/* The memory of a folder: what it promises, and stores to it. */
	struct info_map map;
	struct rp_facts facts;
	struct rp_nic nic;
	struct rp_choice choice;
	struct rp_pmem *pm;
	struct advise_peer *peer; /* NULL: there is no connection */
	const char *target;	  /* HOST[:PORT]:POOL, or NULL: a folder */
	uint64_t seed;
};

/* The two ways of a comparison. */
enum advise_way {
	ADVISE_AS,    /* as the advice says */
	ADVISE_OTHER, /* the other way */
};

/* One piece of advice. */
struct advise_row {
	const char *name, *source, *advice;
	const char *as, *other; /* what is compared */
	const char *set;	/* what to set, or what is set without it */
	uint64_t param;		/* of measure */
	/* False: the advice is not measured, and why (RP_ERR_LEN bytes). */
	bool (*applies)(const struct advise *a, const struct advise_row *row,
			char *why);
	/* One sample: do the work in one way. Returns 0, or -errno and err. */
	int (*measure)(struct advise *a, const struct advise_row *row,
		       enum advise_way way, uint64_t *ns, char *err);
};

/* Rows of each file; both end with one without a name. */
extern const struct advise_row advise_memory_rows[], advise_machine_rows[],
	advise_peer_rows[];

/* A pseudo-random number below n. */
uint64_t advise_random(struct advise *a, uint64_t n);

/*
 * advise_memory.c: map a new file in a folder and find out what it is. Returns
 * 0, or -errno and the reason in err (RP_ERR_LEN bytes).
 */
int advise_memory_open(struct advise *a, const char *dir,
		       const struct info_transport *transport, char *err);
void advise_memory_close(struct advise *a);

/*
 * advise_peer.c: connect to a target. It is a process that exports a->map, or
 * with a->target that pool, which is only read. Both may be used before
 * anything else of libfabric only.
 */
int advise_peer_open(struct advise *a, const struct info_transport *transport,
		     const struct rp_secret *secret, char *err);
void advise_peer_close(struct advise *a);

/* advise_machine.c: devices of the kernel's driver idxd, as "dsa0, dsa2". */
unsigned int advise_find_engines(const char *root, char *names, size_t len);
/*
 * CPUs of NUMA nodes: the first CPU of each of n nodes. Returns their number,
 * which may be more than n.
 */
unsigned int advise_find_nodes(const char *root, int *cpus, unsigned int n);

/*
 * advise.c: judge one row, by samples until end_ns of CLOCK_MONOTONIC. The name
 * of the verdict is "verdict" of the result.
 */
json_t *advise_judge(struct advise *a, const struct advise_row *row,
		     uint64_t end_ns);
/*
 * Measure in a folder, or at HOST[:PORT]:POOL. NULL: nothing can be
 * measured at all, and why (RP_ERR_LEN bytes).
 */
struct advise_cfg {
	const char *where;
	const struct info_transport *transport;
	const struct rp_secret *secret;
	const char *root; /* prefix of /sys, for tests; NULL: "" */
};
json_t *advise_run(const struct advise_cfg *cfg, char *err);
void advise_print(const json_t *report);

/* Set by the handler of SIGINT and SIGTERM. */
extern volatile sig_atomic_t advise_interrupted;

#endif
