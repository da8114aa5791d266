// SPDX-License-Identifier: BSD-2-Clause
/*
 * Maps a scenario of verdicts.tsv ("cell") to simulated hardware, and to the
 * facts that make the provider choose the scenario's method.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_cells.h"

/*
 * The method of prov/core that implements a method of verdicts.tsv. A SEND
 * whose message the agent copies is a write with inline bytes.
 */
enum rp_method crash_method(const struct verdict_cell *cell,
			    const struct verdict_method *m)
{
	/*
	 * In verdicts.tsv one request carries the write a and the ordered store
	 * b. The provider sends two inline requests, and the agent executes the
	 * second one after the first is durable.
	 */
	if (m->order == VERDICT_THEN)
		return RP_METHOD_AGENT_CLWB;
	if (cell->op != VERDICT_SEND)
		return m->method;
	return m->send == VERDICT_INLINE_CLWB ? RP_METHOD_AGENT_CLWB
					      : RP_METHOD_AGENT_SFENCE;
}

/*
 * The provider has no method for messages that stay in their receive buffers.
 * The simulated programs post and flush such messages over the base provider.
 */
bool crash_inplace(const struct verdict_cell *cell,
		   const struct verdict_method *m)
{
	return cell->op == VERDICT_SEND && m->order != VERDICT_THEN &&
	       m->send >= VERDICT_INPLACE_CLWB;
}

/*
 * Does the method rely on the adapter's acknowledgement alone? Acknowledged
 * bytes survive if the power domain is the whole system. But two connections
 * may write the same bytes, both writes may wait in the adapter, and the
 * earlier one may be placed last. So the provider does not offer this method
 * without a read that pushes the writes. The matrix forces it, to check the
 * verdicts about one initiator.
 */
static bool only_acknowledged(const struct rp_facts *f, enum rp_method m)
{
	return f->placement != RP_PLACE_CPU_USER &&
	       f->placement != RP_PLACE_CPU_KERNEL &&
	       (m == RP_METHOD_DELIVERY ||
		(m == RP_METHOD_FENCE && f->fence != RP_YES));
}

/*
 * Does the provider use native FLUSH for this pair? FLUSH covers only RDMA
 * writes. For a weaker class or an ordered store the method table has other
 * methods.
 */
static bool by_device(const struct verdict_cell *cell,
		      const struct verdict_method *m)
{
	return cell->op == VERDICT_WRITE && cell->against == RP_CLASS_POWER &&
	       (m->order == VERDICT_ALONE || m->order == VERDICT_WAIT) &&
	       crash_method(cell, m) == RP_METHOD_NATIVE;
}

/*
 * Does the method need an agent that copies all messages that have arrived, and
 * then writes them back together? The provider's agent writes each message back
 * before it copies the next one, so such a pair is not built.
 */
static bool batched(const struct verdict_cell *cell,
		    const struct verdict_method *m)
{
	return cell->op == VERDICT_SEND && !m->valid &&
	       cell->facts.domain == RP_DOMAIN_MEMCTRL &&
	       m->order == VERDICT_PIPELINED && m->send == VERDICT_INLINE_CLWB;
}

bool crash_built(const struct verdict_cell *cell,
		 const struct verdict_method *m)
{
	if (batched(cell, m))
		return false;
	if (crash_method(cell, m) == RP_METHOD_NATIVE)
		return by_device(cell, m);
	return cell->op == VERDICT_SEND ||
	       (RP_METHODS_BUILT & RP_METHOD_BIT(crash_method(cell, m)));
}

/*
 * The number of values of out->apart. Methods of the agent have two: requests
 * carry the bytes of all small durable writes, or only of the smallest ones.
 */
static unsigned int count_forms(const struct verdict_cell *cell,
				const struct verdict_method *m)
{
	const enum rp_method by = crash_method(cell, m);

	return cell->op == VERDICT_SEND || by == RP_METHOD_DELIVERY ||
			       by == RP_METHOD_FENCE || by == RP_METHOD_NATIVE
		       ? 1
		       : 2;
}

/*
 * Facts, possibly other than the simulated hardware's, with which
 * rp_method_best() chooses method m.
 */
static struct rp_facts facts_leading_to(enum rp_method m, enum rp_class against)
{
	struct rp_facts f = {
		.memory = RP_MEM_DAX_SYNC,
		.placement = RP_PLACE_DMA_CACHE,
		.domain = RP_DOMAIN_MEMCTRL,
		.fs_trusted = RP_YES,
		.agent = true,
	};
	struct rp_choice c;

	switch (m) {
	case RP_METHOD_DELIVERY:
		f.placement = RP_PLACE_CPU_USER;
		f.domain = RP_DOMAIN_CPUCACHE;
		if (against == RP_CLASS_PROCESS)
			f.memory = RP_MEM_TMPFS;
		break;
	case RP_METHOD_FENCE:
		f.placement = RP_PLACE_DMA_MEMORY;
		f.fence = RP_YES;
		if (against == RP_CLASS_PROCESS)
			f.memory = RP_MEM_TMPFS;
		break;
	case RP_METHOD_AGENT_SFENCE:
		f.domain = RP_DOMAIN_CPUCACHE;
		if (against == RP_CLASS_PROCESS)
			f.memory = RP_MEM_TMPFS;
		break;
	case RP_METHOD_NATIVE:
		f.native = RP_YES;
		break;
	case RP_METHOD_AGENT_MSYNC:
		f.memory = RP_MEM_FILE;
		f.placement = RP_PLACE_CPU_USER;
		break;
	case RP_METHOD_AGENT_CLWB_MSYNC:
		f.memory = RP_MEM_DAX;
		break;
	default:
		break;
	}
	c = rp_method_best(&f, RP_METHODS_BUILT);
	if (c.method != m) {
		fprintf(stderr, "no facts found that lead to %s\n",
			rp_method_name(m));
		exit(99);
	}
	return f;
}

static void fill_cell(const struct verdict_cell *cell,
		      const struct verdict_method *m, unsigned int place,
		      unsigned int domain, unsigned int wire, bool apart,
		      struct crash_cell *out)
{
	const struct rp_facts *f = &cell->facts;
	bool dma = place >= RP_PLACE_DMA_CACHE;

	out->truth = crash_truth(cell, place, domain);
	out->fabric = (struct pmsim_cfg){
		.ordered = true,
		.placed_acks = !dma || wire,
		.late_errors = true,
		.offers_msg = true,
		.errors_disconnect = true,
		.delays_reads = true,
		.recv_in_pm = cell->buffers_pm,
	};
	out->against = cell->against;
	out->data = cell->op == VERDICT_WRITE_IMM;
	out->send = cell->op == VERDICT_SEND;
	out->apart = apart;
	out->alone = !out->send && m->valid &&
		     only_acknowledged(f, crash_method(cell, m));
	out->believed = facts_leading_to(crash_method(cell, m), cell->against);
	if (out->believed.native == RP_YES)
		out->truth.levels = MODEL_VISIBLE | MODEL_PERSISTENT;
	if (!crash_inplace(cell, m))
		return;
	out->inplace = m->send;
	/* The bytes stay in their receive buffers. */
	if (!cell->buffers_pm)
		out->truth.kind = MODEL_ANON;
	out->fabric.recv_in_pm = true;
	/* Only the base provider is used. */
	out->fabric.offers_msg = false;
	out->fabric.errors_disconnect = false;
	out->fabric.ordered = dma || !wire;
	out->fabric.prov_keys = out->fabric.fixed_keys = true;
}

bool crash_variant(const struct verdict_cell *cell,
		   const struct verdict_method *m, unsigned int n,
		   struct crash_cell *out)
{
	const struct rp_facts *f = &cell->facts;
	const bool conn = n >= CRASH_CONN;
	unsigned int lo = f->placement ? f->placement : RP_PLACE_CPU_USER,
		     hi = f->placement ? f->placement : RP_PLACE_DMA_MEMORY;

	memset(out, 0, sizeof(*out));
	if (conn && crash_inplace(cell, m))
		return false;
	n -= conn ? CRASH_CONN : 0;
	for (; lo <= hi; lo++) {
		const bool dma = lo >= RP_PLACE_DMA_CACHE;
		const unsigned int wires =
			dma || crash_inplace(cell, m) ? 2 : 1;
		const unsigned int each = wires * count_forms(cell, m);
		unsigned int dlo = f->domain,
			     dhi = f->domain ? f->domain : RP_DOMAIN_SYSTEM;

		for (; dlo <= dhi; dlo++) {
			/*
			 * verdicts.tsv: an unknown power domain is not
			 * RP_DOMAIN_NONE.
			 */
			if (!f->domain && dlo == RP_DOMAIN_NONE)
				continue;
			if (n >= each) {
				n -= each;
				continue;
			}
			fill_cell(cell, m, lo, dlo, n % wires, n / wires, out);
			out->conn = conn;
			return true;
		}
	}
	return false;
}

/*
 * The provider uses the method with the true facts, chosen by itself or forced:
 * out->forced is 0 or the method.
 */
bool crash_weakening_prepare(const struct verdict_cell *cell,
			     const struct verdict_method *m,
			     struct crash_cell *out, enum rp_method *by)
{
	struct rp_choice first, only;

	*by = crash_method(cell, m);
	if (*by == RP_METHOD_NATIVE)
		out->believed.native = RP_YES;
	first = rp_method_best(&out->believed, RP_METHODS_BUILT);
	only = rp_method_best(&out->believed, rp_methods_allowed(*by));
	out->forced = first.method == *by ? RP_METHOD_REFUSED : *by;
	return only.class >= out->against && only.method == *by;
}

void crash_weakening_complete(struct crash_cell *out, enum rp_method by)
{
}
