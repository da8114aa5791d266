/* SPDX-License-Identifier: BSD-2-Clause */
/* The cost of the methods: find the cheapest valid one. */
#ifndef RP_COST_H
#define RP_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/caps.h"
#include "core/method.h"

/*
 * Estimates, for the choice among methods that are valid by the facts: no
 * figure here makes a method valid. Times are nanoseconds; per byte,
 * picoseconds.
 */

/* The kind of path that writes take. */
enum rp_path {
	RP_PATH_UNKNOWN = 0, /* not measured: leave the choice to the agent */
	RP_PATH_CPU,	     /* CPUs copy at both ends: tcp */
	RP_PATH_DMA,	     /* an adapter writes: verbs on a PCI device */
	RP_PATHS
};

struct rp_cost_line {
	uint32_t ns;
	uint32_t ps; /* per byte */
};

/* Plain numbers, which figures measured on this machine can replace. */
struct rp_cost {
	struct rp_cost_path {
		struct rp_cost_line write; /* until its acknowledgment */
		/* In addition to the write: */
		uint32_t ask_ns;    /* a request behind it, and the reply */
		uint32_t fence_ns;  /* a read behind it */
		uint32_t fences_ns; /* each further read posted with it */
		/* Instead of both: the bytes inside the request. */
		struct rp_cost_line store;
	} path[RP_PATHS];
	/* The agent's work for each range. */
	struct rp_cost_line flush[RP_METHOD_MAX];
	struct rp_cost_line stream; /* non-temporal stores of the range */
};
extern const struct rp_cost rp_cost_default;

/*
 * A file of figures measured on this machine (fi_rpmem_bench calibrate):
 *
 *	ofi_rpmem cost 1
 *	# a comment
 *	cpu write = 8770 466
 *	stream = 41 149
 *	end
 *
 * Each line is a figure by its name in docs/operating.md, ns, and ps per byte,
 * which is 0 if bytes do not count. The last line is "end".
 */
#define RP_COST_HEAD "ofi_rpmem cost 1"
#define RP_COST_END  "end"

struct rp_cost_figure {
	const char *name;
	size_t at;  /* offset in struct rp_cost: a rp_cost_line, or its ns */
	bool alone; /* only the ns */
};
#define RP_COST_FIGURES 15
extern const struct rp_cost_figure rp_cost_figures[RP_COST_FIGURES];
/* Does the figure belong to the path? Figures of no path: the target's work. */
bool rp_cost_figure_of(const struct rp_cost_figure *f, enum rp_path path);

/*
 * Replace figures in *c by those of the file: all of them, or none if a line is
 * wrong. 0, or -errno and in why (RP_WHY_LEN bytes) that line. Any file is
 * accepted, because no figure makes a method valid.
 */
int rp_cost_read(const char *path, struct rp_cost *c, char *why);

/* The path of writes from a base provider with these facts. */
enum rp_path rp_cost_path_of(const struct rp_nic *nic);

/* The agent's work for one range by this method. */
uint64_t rp_cost_flush(const struct rp_cost *c, enum rp_method m,
		       uint64_t bytes);
/* Are non-temporal stores of n bytes cheaper than stores and write-back? */
bool rp_cost_streams(const struct rp_cost *c, uint64_t n);

/*
 * The most bytes, up to limit, that cost less inside a request than as a write
 * and a request that the agent serves by this method; 0: none.
 */
size_t rp_cost_store_max(const struct rp_cost *c, enum rp_path path,
			 enum rp_method m, size_t limit);

#endif
