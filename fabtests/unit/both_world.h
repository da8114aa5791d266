/* SPDX-License-Identifier: BSD-2-Clause */
/* Initiators and a target in one process, joined by connections that break. */
#ifndef RP_TEST_BOTH_WORLD_H
#define RP_TEST_BOTH_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <criterion/criterion.h>

#include "core/agent.h"
#include "core/commit.h"
#include "core/peer.h"
#include "core/wire.h"
#include "seeded.h"

#define W_MS	  1000000ull
#define W_TIMEOUT (5000 * W_MS)

enum {
	W_INITS = 2,
	W_KINDS = 3,   /* of regions; the base key is the kind + 1 */
	W_CELL = 64,   /* what the oracle tells apart */
	W_CELLS = 256, /* of a region: four pages */
	W_WRITES = 300,
	W_COMMITS = 150,
	W_QUERIES = 20,
	W_REGS = 60,
};

enum w_kind {
	W_MSYNC, /* a file: power by msync, process by delivery */
	W_CLWB,	 /* DAX: power by clwb, nothing by less */
	W_TMPFS, /* process by delivery, power never */
};

/* How bad this world is; chances are per thousand steps or sends. */
struct w_rules {
	bool ordered;
	bool zombies; /* a broken connection may deliver late */
	unsigned int again, send_fails, breaks, restarts, forgets, leaves,
		renews, sync_fails, stale;
	unsigned int initiators;
	unsigned int credits, max_jobs, max_sessions;
	uint64_t tick; /* longest time between steps, ns */
};

/* One registration. The flush table says when each cell was made durable. */
struct w_reg {
	struct rp_region r;
	struct world *w;
	struct w_life *life;
	enum w_kind kind;
	bool gone;
	bool broken;		   /* a sync has failed */
	uint64_t way[W_CELLS];	   /* flushed, not drained: since when */
	uint64_t durable[W_CELLS]; /* what was there before this is */
};

/* One life of the target. */
struct w_life {
	struct rp_agent *a;
	uint64_t incarnation;
	struct w_reg *now[W_KINDS];
	unsigned int peers; /* gotten less put */
};

enum w_fate {
	FATE_OPEN,
	FATE_OK,
	FATE_FAILED,
};

struct w_write {
	struct rp_write w;
	struct w_init *in;
	unsigned int generation; /* of the peer */
	const struct w_reg *reg;
	unsigned int first, n; /* cells */
	uint64_t posted, placed, ended;
	const struct w_reg *where; /* where it was placed */
	enum w_fate fate;
};

struct w_range {
	const struct w_reg *reg;
	unsigned int first, n;
};

/* What a commit does behind its ranges. */
struct w_effect {
	enum rp_effect kind;
	const struct w_reg *reg; /* THEN */
	unsigned int cell;	 /* its first 8 bytes */
};

struct w_commit {
	struct w_init *in;
	unsigned int generation;
	struct w_range *ranges;
	size_t nranges;
	enum rp_level level;
	enum rp_class required;
	uint64_t posted; /* event */
	uint64_t born;	 /* time */
	unsigned int told;
	uint64_t told_at; /* event */
	struct rp_outcome out;
	struct w_effect effect;
	unsigned int done; /* times that it was */
	uint64_t done_at;  /* event */
};

struct w_query {
	struct w_init *in;
	uint64_t posted;
	struct world *w;
	unsigned int told;
	enum rp_status st;
};

struct w_item {
	STAILQ_ENTRY(w_item) link;
	struct w_write *write; /* a write or its acknowledgement; or bytes */
	size_t len;
	uint8_t msg[];
};
STAILQ_HEAD(w_items, w_item);

struct w_init {
	struct rp_xport x;
	struct world *w;
	unsigned int id;
	struct rp_initiator *in;
	unsigned int generation;
	struct w_items there, back; /* the connection */
	struct w_items zombies;	    /* to the target, from a broken one */
	unsigned int nthere, nback, nzombies;
	uint64_t cookies;  /* last random one, for nothing but a glance */
	uint64_t answered; /* when what the target answered last was posted */
};

struct world {
	struct seeded rng;
	struct w_rules rules;
	bool quiet; /* nothing bad happens any more */
	bool trace;
	uint64_t now;
	uint64_t event;	   /* counts what happens, for the oracle */
	struct rp_xport x; /* the target's */
	struct w_life *life;
	struct w_reg *regs[W_REGS]; /* all that ever were */
	size_t nregs;
	struct w_init init[W_INITS];
	struct w_write writes[W_WRITES];
	size_t nwrites;
	struct w_commit commits[W_COMMITS];
	size_t ncommits;
	struct w_query queries[W_QUERIES];
	size_t nqueries;
	uint32_t epoch; /* of the commits */
	/* Judges a commit that was told; set by the test. */
	void (*judge)(struct world *w, const struct w_commit *c);
	/* The same for an effect that has just been had, but for the mark. */
	void (*judge_effect)(struct world *w, const struct w_commit *c);
};

#define W_CHECK(w, cond, fmt, ...)                                             \
	cr_assert(cond, "RP_SEED=%llu: " fmt,                                  \
		  (unsigned long long)(w)->rng.seed, ##__VA_ARGS__)

uint64_t w_below(struct world *w, uint64_t n);
bool w_chance(struct world *w, unsigned int per_thousand);
void w_say(const struct world *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

void w_start(struct world *w, uint64_t seed, const struct w_rules *rules);
void w_stop(struct world *w);
/* Forgets writes and commits, all of which have ended. */
void w_clear(struct world *w);

/* One thing happens, of those that can. */
void w_step(struct world *w);
/* Everything that is on its way arrives, everybody does what is due. */
void w_settle(struct world *w);
/* Settle, sleep until the next deadline, and again, for so long. */
void w_sleep(struct world *w, uint64_t ns);

struct rp_peer *w_peer(struct w_init *i);
/* False: the base has no room. */
bool w_post_write(struct w_init *i, const struct w_reg *reg, unsigned int first,
		  unsigned int n);
/*
 * Takes the ranges; e NULL: without an effect. NULL: refused, and nothing will
 * be told.
 */
struct w_commit *w_post_commit(struct w_init *i, struct w_range *ranges,
			       size_t n, enum rp_level level,
			       enum rp_class required,
			       const struct w_effect *e);
void w_restart(struct world *w);

#endif
