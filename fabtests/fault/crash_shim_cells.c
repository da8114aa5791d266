// SPDX-License-Identifier: BSD-2-Clause
/* Maps scenarios of verdicts.tsv to a queue pair that the program opened. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/remote_flush.h"
#include "crash_cells.h"
#include "crash_shim.h"

/*
 * The method of prov/core that the shim uses for m. For THEN the provider sends
 * one request; the shim posts a flush, an atomic write and a flush.
 */
static enum rp_method carried_out(const struct verdict_method *m)
{
	return m->order == VERDICT_THEN ? RP_METHOD_AGENT_CLWB : m->method;
}

struct rp_desc shim_desc(const struct rp_facts *f, enum rp_method m)
{
	return (struct rp_desc){
		.addr = SHIM_AT,
		.length = MODEL_PAGE,
		.rkey = SHIM_RKEY,
		.qp_num = SHIM_PEER,
		.memory = f->memory,
		.placement = f->placement,
		.domain = f->domain,
		.fence = f->fence,
		.fs_trusted = f->fs_trusted,
		.limit = f->limit,
		.region = RP_DESC_ALL,
		.qp = RP_DESC_ALL,
		.native = SHIM_NATIVE(m),
		.key = rp_key_make(&(struct rp_key){
			.random = 1, .class = RP_CLASS_POWER, .method = m}),
	};
}

/* Does the shim choose method m for these facts, if m is forced? */
static bool shim_offers(const struct rp_facts *f, enum rp_method m,
			enum rp_class required)
{
	const struct rp_remote_cfg cfg = {
		.native = SHIM_NATIVE(m),
		.required = required,
		.forced = m,
		.agent = true,
	};
	const struct rp_desc d = shim_desc(f, m);
	struct rp_remote_region r;

	rp_remote_region_init(&r, &d, &cfg);
	return r.persistent.method == m;
}

/*
 * Does the shim's form of this method contain a read fence that is valid alone?
 * The shim reads before it requests the agent, and proves delivery by a read.
 * So a verdict against the method alone does not apply to the shim.
 */
static bool contains_fence(const struct verdict_cell *cell,
			   const struct verdict_method *m)
{
	static const char *const orders[] = {
		[VERDICT_ALONE] = "",
		[VERDICT_WAIT] = "+wait",
		[VERDICT_PIPELINED] = "+pipelined",
	};
	const struct verdict_method *fence;
	char name[32];

	if (m->method == RP_METHOD_NATIVE || m->order == VERDICT_THEN)
		return false;
	snprintf(name, sizeof(name), "fence%s", orders[m->order]);
	fence = verdict_method(cell, name);
	return fence && fence->valid;
}

/*
 * Is the shim's fence read together with msync valid, although each is wrong
 * alone? The read pushes the bytes to the memory controller, and msync commits
 * the file's block map.
 */
static bool valid_together(const struct verdict_cell *cell,
			   const struct verdict_method *m)
{
	const struct rp_facts *f = &cell->facts;

	return f->memory == RP_MEM_DAX && f->fence == RP_YES &&
	       f->placement == RP_PLACE_DMA_MEMORY &&
	       m->method == RP_METHOD_AGENT_MSYNC;
}

/* Facts, other than the scenario's, with which the shim chooses method m. */
static struct rp_facts facts_leading_to(enum rp_method m, enum rp_class against)
{
	struct rp_facts f = {
		.memory = RP_MEM_DAX_SYNC,
		.placement = RP_PLACE_DMA_CACHE,
		.domain = RP_DOMAIN_MEMCTRL,
		.fence = RP_YES,
		.fs_trusted = RP_YES,
	};

	if (m == RP_METHOD_FENCE || m == RP_METHOD_AGENT_SFENCE)
		f.domain = RP_DOMAIN_CPUCACHE;
	if (m == RP_METHOD_AGENT_MSYNC || m == RP_METHOD_AGENT_CLWB_MSYNC)
		f.placement = RP_PLACE_CPU_USER;
	if (m == RP_METHOD_AGENT_MSYNC)
		f.memory = RP_MEM_FILE;
	if (m == RP_METHOD_AGENT_CLWB_MSYNC)
		f.memory = RP_MEM_DAX;
	if (!shim_offers(&f, m, against)) {
		fprintf(stderr, "no facts found that lead to %s\n",
			rp_method_name(m));
		exit(99);
	}
	return f;
}

bool crash_inplace(const struct verdict_cell *cell,
		   const struct verdict_method *m)
{
	return false;
}

/*
 * The shim's own method is out->forced, and the target is forced to it where it
 * would choose another one.
 */
bool crash_weakening_prepare(const struct verdict_cell *cell,
			     const struct verdict_method *m,
			     struct crash_cell *out, enum rp_method *by)
{
	*by = out->forced;
	out->stays = true;
	out->by_initiator = *by < RP_METHOD_AGENT_SFENCE;
	return shim_offers(&out->believed, *by, out->against);
}

/*
 * A method that is valid with the weaker facts, too, keeps all bytes. (With
 * no_atomic the agent flushes the word of a THEN by another method.) A read
 * that pushes nothing leaves bytes in the adapter, which loses them with the
 * queue pairs of a process that ends.
 */
void crash_weakening_complete(struct crash_cell *out, enum rp_method by)
{
	out->lasts = shim_offers(&out->weak_facts, by, out->against);
	if (out->lasts && !out->no_atomic)
		out->spared = CRASH_SPARES_ALL;
	else if (out->truth.place >= MODEL_DMA_CACHE && !out->truth.fence)
		out->window = RP_CLASS_NONE;
}

bool crash_built(const struct verdict_cell *cell,
		 const struct verdict_method *m)
{
	const enum rp_method by = carried_out(m);
	bool chosen;

	/*
	 * The shim adds nothing to a SEND or a write with data: the program
	 * posts them itself.
	 */
	if (cell->op != VERDICT_WRITE)
		return false;
	chosen = shim_offers(&cell->facts, by, cell->against);
	if (m->valid)
		return chosen;
	if (by == RP_METHOD_DELIVERY || contains_fence(cell, m) ||
	    valid_together(cell, m))
		return false;
	/*
	 * This method promises no order, so the shim alone would lose the
	 * bytes.
	 */
	if (chosen && m->order == VERDICT_ALONE) {
		fprintf(stderr, "%s: %s is forbidden, and the shim does it\n",
			cell->name, m->name);
		exit(99);
	}
	return true;
}

static void fill_cell(const struct verdict_cell *cell,
		      const struct verdict_method *m, unsigned int place,
		      unsigned int domain, struct crash_cell *out)
{
	const struct rp_facts *f = &cell->facts;
	const bool dma = place >= RP_PLACE_DMA_CACHE;

	out->truth = crash_truth(cell, place, domain);
	out->truth.levels = MODEL_VISIBLE | MODEL_PERSISTENT;
	/*
	 * The adapter acknowledges a DMA write on receipt, and reports the loss
	 * of a connection.
	 */
	out->fabric = (struct pmsim_cfg){
		.ordered = true,
		.placed_acks = !dma,
		.reports_breaks = true,
	};
	out->against = cell->against;
	out->forced = carried_out(m);
	/*
	 * With method delivery the adapter's buffers survive, and no read
	 * flushes them. An adapter that reorders writes may then place two
	 * writes to the same bytes in either order, so only one initiator runs
	 * in this cell.
	 */
	out->alone = m->valid && dma && out->forced == RP_METHOD_DELIVERY;
	out->believed = m->valid || shim_offers(f, out->forced, cell->against)
				? *f
				: facts_leading_to(out->forced, cell->against);
}

bool crash_variant(const struct verdict_cell *cell,
		   const struct verdict_method *m, unsigned int n,
		   struct crash_cell *out)
{
	const struct rp_facts *f = &cell->facts;
	/*
	 * THEN runs by these methods, too. The device executes its own atomic
	 * write after its FLUSH or a read. With no_atomic the agent stores the
	 * word, and the method flushes.
	 */
	static const struct {
		enum rp_method by;
		bool no_atomic;
	} others[] = {
		{RP_METHOD_NATIVE, false},
		{RP_METHOD_NATIVE, true},
		{RP_METHOD_FENCE, false},
		{RP_METHOD_FENCE, true},
	};
	unsigned int also = 0;
	unsigned int lo, hi;

	memset(out, 0, sizeof(*out));
	while (m->order == VERDICT_THEN && also < 4 &&
	       shim_offers(f, others[also].by, cell->against))
		also++;
	for (lo = f->placement ? f->placement : RP_PLACE_CPU_USER,
	    hi = f->placement ? f->placement : RP_PLACE_DMA_MEMORY;
	     lo <= hi; lo++) {
		unsigned int dlo = f->domain,
			     dhi = f->domain ? f->domain : RP_DOMAIN_SYSTEM;

		for (; dlo <= dhi; dlo++)
			for (unsigned int k = 0; k <= also; k++) {
				/*
				 * verdicts.tsv: an unknown power domain is not
				 * RP_DOMAIN_NONE.
				 */
				if (!f->domain && dlo == RP_DOMAIN_NONE)
					continue;
				if (n--)
					continue;
				fill_cell(cell, m, lo, dlo, out);
				if (!k)
					return true;
				out->forced = others[k - 1].by;
				out->no_atomic = others[k - 1].no_atomic;
				return true;
			}
	}
	return false;
}
