// SPDX-License-Identifier: BSD-2-Clause
/*
 * Maps a scenario of verdicts.tsv to the model's hardware, and back to facts.
 */
#include "crash_cells.h"

static const enum model_kind kinds[] = {
	[RP_MEM_UNKNOWN] = MODEL_ANON,	    [RP_MEM_ANON] = MODEL_ANON,
	[RP_MEM_PRIVATE] = MODEL_PRIVATE,   [RP_MEM_TMPFS] = MODEL_TMPFS,
	[RP_MEM_FILE] = MODEL_FILE,	    [RP_MEM_DAX] = MODEL_DAX,
	[RP_MEM_DAX_SYNC] = MODEL_DAX_SYNC, [RP_MEM_EMULATED] = MODEL_ANON,
};

static const enum model_place places[] = {
	[RP_PLACE_CPU_USER] = MODEL_CPU_USER,
	[RP_PLACE_CPU_KERNEL] = MODEL_CPU_KERNEL,
	[RP_PLACE_DMA_CACHE] = MODEL_DMA_CACHE,
	[RP_PLACE_DMA_MEMORY] = MODEL_DMA_MEMORY,
};

/* MODEL_FLUSHED: virtio-pmem, whose domain is not known to Linux. */
static const enum model_domain domains[] = {
	[RP_DOMAIN_UNKNOWN] = MODEL_FLUSHED, [RP_DOMAIN_NONE] = MODEL_NONE,
	[RP_DOMAIN_MEMCTRL] = MODEL_ADR,     [RP_DOMAIN_CPUCACHE] = MODEL_EADR,
	[RP_DOMAIN_SYSTEM] = MODEL_SYSTEM,
};

struct model_cfg crash_truth(const struct verdict_cell *cell,
			     unsigned int place, unsigned int domain)
{
	const struct rp_facts *f = &cell->facts;

	return (struct model_cfg){
		.kind = kinds[f->memory],
		.domain =
			f->memory >= RP_MEM_DAX ? domains[domain] : MODEL_NONE,
		.place = places[place],
		.fence = f->fence == RP_YES,
		/*
		 * only compound cells, because relaxed ordering of writes gives
		 * the others too many orders to search
		 */
		.relaxed = place >= RP_PLACE_DMA_CACHE && cell->compound,
	};
}

struct rp_facts crash_facts(const struct verdict_cell *cell,
			    const struct model_cfg *truth)
{
	struct rp_facts f = cell->facts;

	f.placement = RP_PLACE_CPU_USER;
	while (places[f.placement] != truth->place)
		f.placement++;
	f.domain = RP_DOMAIN_UNKNOWN;
	while (domains[f.domain] != truth->domain)
		f.domain++;
	f.fs_trusted = RP_YES;
	f.agent = true;
	return f;
}
