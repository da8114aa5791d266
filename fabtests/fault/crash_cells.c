// SPDX-License-Identifier: BSD-2-Clause
/* From a scenario of the verdicts to hardware, and what is believed of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_cells.h"

/* By the provider. A SEND that the agent copies is an inline store. */
static enum rp_method carried_out(const struct verdict_cell *cell,
				  const struct verdict_method *m)
{
	/*
	 * What the verdicts mean by one request that carries both. With an
	 * inline store they are two, and the second waits for the first.
	 */
	if (m->order == VERDICT_THEN)
		return RP_METHOD_AGENT_CLWB;
	if (cell->op != VERDICT_SEND)
		return m->method;
	return m->send == VERDICT_INLINE_CLWB ? RP_METHOD_AGENT_CLWB
					      : RP_METHOD_DELIVERY;
}

/*
 * Messages that stay where they were received are nothing that the provider
 * does: the simulated programs do it by themselves, without it.
 */
bool crash_inplace(const struct verdict_cell *cell,
		   const struct verdict_method *m)
{
	return cell->op == VERDICT_SEND && m->order != VERDICT_THEN &&
	       m->send >= VERDICT_INPLACE_CLWB;
}

/*
 * What an adapter has acknowledged survives where the whole system does. But of
 * two writes to the same bytes, over two connections, the earlier may be the
 * one that does, when the adapter still has both. So without a read that pushes
 * the provider does not offer it; as a wrong method it can be made to, and what
 * the verdicts say of one initiator's writes is looked at.
 */
static bool only_acknowledged(const struct rp_facts *f, enum rp_method m)
{
	return f->placement != RP_PLACE_CPU_USER &&
	       f->placement != RP_PLACE_CPU_KERNEL &&
	       (m == RP_METHOD_DELIVERY ||
		(m == RP_METHOD_FENCE && f->fence != RP_YES));
}

/*
 * The device FLUSHes what one durable write has written, over a connection of
 * our own, where writes that need an order among them do not go; and where less
 * is required something else is done, says the table.
 */
static bool by_device(const struct verdict_cell *cell,
		      const struct verdict_method *m)
{
	return cell->op == VERDICT_WRITE && cell->against == RP_CLASS_POWER &&
	       (m->order == VERDICT_ALONE || m->order == VERDICT_WAIT) &&
	       carried_out(cell, m) == RP_METHOD_NATIVE;
}

bool crash_built(const struct verdict_cell *cell,
		 const struct verdict_method *m)
{
	if (carried_out(cell, m) == RP_METHOD_NATIVE)
		return by_device(cell, m);
	return cell->op == VERDICT_SEND ||
	       (RP_METHODS_BUILT & RP_METHOD_BIT(carried_out(cell, m)));
}

/*
 * Does the initiator carry it out by itself? Delivery exists in both forms.
 * Where a NIC places bytes the agent's answer is more than what the verdicts
 * mean by the word: by then its CPU has seen them.
 */
static bool is_own(enum rp_method m, bool dma, unsigned int form)
{
	return m == RP_METHOD_FENCE ||
	       (m == RP_METHOD_DELIVERY && (dma || form));
}

/*
 * May it be carried out over a connection of our own as well, beside a base
 * that hides its breaks? What only an adapter has acknowledged is not.
 */
static bool may_link(const struct verdict_cell *cell,
		     const struct verdict_method *m, bool dma)
{
	enum rp_method by = carried_out(cell, m);

	return m->valid && cell->op == VERDICT_WRITE &&
	       cell->against == RP_CLASS_POWER &&
	       (m->order == VERDICT_ALONE || m->order == VERDICT_WAIT) &&
	       rp_method_linked(by) && (by != RP_METHOD_DELIVERY || !dma) &&
	       !only_acknowledged(&cell->facts, by);
}

/*
 * There, what asks the target travels with the bytes inside and, in the other
 * form, behind the write.
 */
static unsigned int links(const struct verdict_cell *cell,
			  const struct verdict_method *m, bool dma)
{
	enum rp_method by = carried_out(cell, m);

	/* Valid or not: there is no other way. */
	if (by == RP_METHOD_NATIVE)
		return 1;
	if (!may_link(cell, m, dma))
		return 0;
	return by == RP_METHOD_FENCE || by == RP_METHOD_DELIVERY ? 1 : 2;
}

static unsigned int own_forms(const struct verdict_cell *cell,
			      const struct verdict_method *m, bool dma)
{
	if (by_device(cell, m))
		return 0;
	return cell->op != VERDICT_SEND && !dma &&
			       carried_out(cell, m) == RP_METHOD_DELIVERY
		       ? 2
		       : 1;
}

/* Facts on which the provider picks this method, true or not. */
static struct rp_facts believe(enum rp_method m, enum rp_class against,
			       bool told)
{
	struct rp_facts f = {
		.memory = RP_MEM_DAX_SYNC,
		.placement = RP_PLACE_DMA_CACHE,
		.domain = RP_DOMAIN_MEMCTRL,
		.fs_trusted = RP_YES,
		.told = told ? RP_YES : RP_NO,
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

static void fill(const struct verdict_cell *cell,
		 const struct verdict_method *m, unsigned int place,
		 unsigned int domain, unsigned int wire, bool own,
		 unsigned int link, struct crash_cell *out)
{
	const struct rp_facts *f = &cell->facts;
	bool dma = place >= RP_PLACE_DMA_CACHE;

	out->truth = crash_truth(cell, place, domain);
	out->fabric = (struct pmsim_cfg){
		.ordered = dma || !wire || own || link,
		.placed_acks = !dma || wire,
		.prov_keys = true,
		.fixed_keys = true,
		.late_errors = true,
		.tells_breaks = own && !link,
		.connects = link,
		.reuse_keys = link,
		.recv_in_pm = cell->buffers_pm,
	};
	out->against = cell->against;
	out->data = cell->op == VERDICT_WRITE_IMM;
	out->send = cell->op == VERDICT_SEND;
	out->apart = link > 1;
	out->alone = !out->send && m->valid &&
		     only_acknowledged(f, carried_out(cell, m));
	out->believed = believe(carried_out(cell, m), cell->against, own);
	if (link)
		out->believed.told = RP_NO;
	if (out->believed.native == RP_YES)
		out->truth.levels = MODEL_VISIBLE | MODEL_PERSISTENT;
	if (!crash_inplace(cell, m))
		return;
	out->inplace = m->send;
	/* The bytes are where they were received. */
	if (!cell->buffers_pm)
		out->truth.kind = MODEL_ANON;
	out->fabric.recv_in_pm = true;
}

/* By the agent, which is asked when reads behind the writes are back. */
static bool may_be_fenced(const struct verdict_cell *cell,
			  const struct verdict_method *m)
{
	const enum rp_method by = carried_out(cell, m);

	return m->valid && cell->facts.fence == RP_YES &&
	       (by == RP_METHOD_AGENT_CLWB || by == RP_METHOD_AGENT_SFENCE ||
		by == RP_METHOD_AGENT_CLWB_MSYNC) &&
	       !crash_inplace(cell, m);
}

/* An adapter places, in no order of its own. */
static bool fenced_variant(const struct verdict_cell *cell,
			   const struct verdict_method *m, unsigned int n,
			   struct crash_cell *out)
{
	const struct rp_facts *f = &cell->facts;
	const unsigned int first = f->domain ? f->domain : RP_DOMAIN_NONE;
	const unsigned int domains =
		f->domain ? 1 : RP_DOMAIN_SYSTEM - RP_DOMAIN_NONE + 1;
	const unsigned int forms = cell->op == VERDICT_SEND ? 1 : 2;
	unsigned int place = RP_PLACE_DMA_CACHE + n / (domains * forms);

	if (!may_be_fenced(cell, m))
		return false;
	if (f->placement)
		place += f->placement - RP_PLACE_DMA_CACHE;
	if (place > (f->placement ? f->placement : RP_PLACE_DMA_MEMORY) ||
	    place < RP_PLACE_DMA_CACHE)
		return false;
	n %= domains * forms;
	fill(cell, m, place, first + n / forms, 1, false, 0, out);
	out->truth.relaxed = true;
	out->fabric.ordered = true;
	out->fabric.connects = true;
	out->fabric.errors_end = true;
	out->believed.placement = (enum rp_placement)place;
	out->believed.fence = RP_YES;
	out->apart = n % forms;
	out->conn = true;
	out->fenced = true;
	return true;
}

/* The smallest writes alone travel in requests, or all that may. */
static bool conn_variant(const struct verdict_cell *cell,
			 const struct verdict_method *m, unsigned int n,
			 struct crash_cell *out)
{
	const struct rp_facts *f = &cell->facts;
	const unsigned int first = f->domain ? f->domain : RP_DOMAIN_NONE;
	const unsigned int domains =
		f->domain ? 1 : RP_DOMAIN_SYSTEM - RP_DOMAIN_NONE + 1;
	const unsigned int forms = cell->op == VERDICT_SEND ? 1 : 2;

	const bool by_cpu = !crash_inplace(cell, m) &&
			    carried_out(cell, m) != RP_METHOD_FENCE &&
			    (f->placement == RP_PLACE_CPU_USER ||
			     (!f->placement && m->valid));

	if (!by_cpu || n >= domains * forms)
		return fenced_variant(cell, m, by_cpu ? n - domains * forms : n,
				      out);
	fill(cell, m, RP_PLACE_CPU_USER, first + n / forms, 1, false, 0, out);
	out->fabric.ordered = true;
	out->fabric.prov_keys = false;
	out->fabric.connects = true;
	out->apart = n % forms;
	out->conn = true;
	return true;
}

bool crash_variant(const struct verdict_cell *cell,
		   const struct verdict_method *m, unsigned int n,
		   struct crash_cell *out)
{
	const struct rp_facts *f = &cell->facts;
	enum rp_method by = carried_out(cell, m);
	bool send = cell->op == VERDICT_SEND;
	unsigned int lo, hi, first, nforms;

	memset(out, 0, sizeof(*out));
	if (n >= CRASH_CONN)
		return conn_variant(cell, m, n - CRASH_CONN, out);
	for (lo = f->placement ? f->placement : RP_PLACE_CPU_USER,
	    hi = f->placement ? f->placement : RP_PLACE_DMA_MEMORY;
	     lo <= hi; lo++) {
		bool dma = lo >= RP_PLACE_DMA_CACHE;
		unsigned int dlo = f->domain ? f->domain : RP_DOMAIN_NONE,
			     dhi = f->domain ? f->domain : RP_DOMAIN_SYSTEM;

		first = own_forms(cell, m, dma);
		nforms = first + links(cell, m, dma);
		for (; dlo <= dhi; dlo++)
			for (unsigned int wire = 0; wire < 2; wire++)
				for (unsigned int k = 0; k < nforms; k++) {
					if (n--)
						continue;
					fill(cell, m, lo, dlo, wire,
					     !send && is_own(by, dma, k),
					     k < first ? 0 : k + 1 - first,
					     out);
					return true;
				}
	}
	return false;
}
