/* SPDX-License-Identifier: BSD-2-Clause */
/* What the ways to make bytes durable cost: which valid one is the cheapest. */
#ifndef RP_COST_H
#define RP_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/caps.h"
#include "core/method.h"

/*
 * Estimates, good for choosing among methods that are valid anyway, and for
 * nothing else: no figure here makes one valid. Times are nanoseconds, and
 * picoseconds where it is for each byte.
 */

/* What writes travel over. */
enum rp_path {
	RP_PATH_UNKNOWN = 0, /* nothing was measured: leave it to the agent */
	RP_PATH_CPU,	     /* CPUs copy at both ends: tcp */
	RP_PATH_DMA,	     /* an adapter writes: verbs on a PCI device */
	RP_PATHS
};

struct rp_cost_line {
	uint32_t ns;
	uint32_t ps; /* each byte */
};

/* Plain numbers, so that some can be replaced by what this machine measured. */
struct rp_cost {
	struct rp_cost_path {
		struct rp_cost_line write; /* until it is acknowledged */
		/* Beyond the write: */
		uint32_t ask_ns;    /* a request behind it, and its answer */
		uint32_t fence_ns;  /* a read behind it */
		uint32_t fences_ns; /* each further read, posted with it */
		/* Instead of both: the bytes inside the request. */
		struct rp_cost_line store;
	} path[RP_PATHS];
	/* What the agent does for each range. */
	struct rp_cost_line flush[RP_METHOD_MAX];
	struct rp_cost_line stream; /* non-temporal stores of it */
};
extern const struct rp_cost rp_cost_default;

/*
 * A file of figures that this machine measured (fi_rpmem_bench calibrate):
 *
 *	ofi_rpmem cost 1
 *	# a comment
 *	cpu write = 8770 466
 *	stream = 41 149
 *	end
 *
 * Each line is a figure by its name in docs/operating.md, ns, and ps for each
 * byte, which is 0 where bytes do not count. The last line is "end".
 */
#define RP_COST_HEAD "ofi_rpmem cost 1"
#define RP_COST_END  "end"

struct rp_cost_figure {
	const char *name;
	size_t at;  /* in struct rp_cost: a line, or its ns alone */
	bool alone; /* that */
};
#define RP_COST_FIGURES 15
extern const struct rp_cost_figure rp_cost_figures[RP_COST_FIGURES];
/* Is this a figure of that path? Those of no path are the target's work. */
bool rp_cost_figure_of(const struct rp_cost_figure *f, enum rp_path path);

/*
 * Figures of the file take the place of those in *c: all of them, or with a
 * mistake none. 0, or -errno and in why (RP_WHY_LEN bytes) the line that is
 * wrong. Any file will do, for no figure makes a method valid.
 */
int rp_cost_read(const char *path, struct rp_cost *c, char *why);

/* How writes come from a base provider of which this is known. */
enum rp_path rp_cost_path_of(const struct rp_nic *nic);

/* The agent's work for one range of this method. */
uint64_t rp_cost_flush(const struct rp_cost *c, enum rp_method m,
		       uint64_t bytes);
/*
 * Beyond the writes: to ask the agent, which then works for flush ns; to do
 * without it, with n fences. Where nothing is known of the path the agent is
 * taken to cost nothing, and a fence more than anything.
 */
uint64_t rp_cost_ask(const struct rp_cost *c, enum rp_path path,
		     uint64_t flush);
uint64_t rp_cost_fences(const struct rp_cost *c, enum rp_path path, size_t n);

/* Is it cheaper to store n bytes past the caches than to write them back? */
bool rp_cost_streams(const struct rp_cost *c, uint64_t n);

/*
 * The most bytes, up to limit, that cost less inside a request than as a write
 * and a request, which the agent then serves by this method; 0: none do.
 */
size_t rp_cost_store_max(const struct rp_cost *c, enum rp_path path,
			 enum rp_method m, size_t limit);

#endif
