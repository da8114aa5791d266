// SPDX-License-Identifier: BSD-2-Clause
/*
 * The events of --weaken: which facts of a scenario can weaken while a region
 * is registered, and to what. Each function fills in the cell for its event,
 * and returns whether the event applies to the cell.
 */
#include "crash_cells.h"

static bool is_dax(const struct crash_cell *c)
{
	return c->truth.kind == MODEL_DAX || c->truth.kind == MODEL_DAX_SYNC;
}

/*
 * Does the method flush all bytes to the memory controller? With a fence or
 * native FLUSH the agent does not flush the bytes of atomics, which stay in the
 * CPU caches.
 */
static bool reaches_memory(enum rp_method m)
{
	return m == RP_METHOD_AGENT_CLWB || m == RP_METHOD_AGENT_CLWB_MSYNC ||
	       m == RP_METHOD_AGENT_MSYNC;
}

/* eADR, or a domain of the whole system, weakens to ADR. */
static bool caches_volatile(struct crash_cell *c, enum rp_method m)
{
	c->weak.domain = MODEL_ADR;
	c->weak_facts.domain = RP_DOMAIN_MEMCTRL;
	c->spared = reaches_memory(m) ? CRASH_SPARES_ALL : CRASH_SPARES_NONE;
	return is_dax(c) && c->truth.domain > MODEL_ADR;
}

/* The same, where the target is forced to clwb, and the initiator is not. */
static bool caches_volatile_forced(struct crash_cell *c, enum rp_method m)
{
	c->target_forced = RP_METHOD_AGENT_CLWB;
	return c->by_initiator && caches_volatile(c, m);
}

/* The adapter's buffers become volatile; the caches stay persistent. */
static bool adapter_volatile(struct crash_cell *c, enum rp_method m)
{
	c->weak.domain = MODEL_EADR;
	c->weak_facts.domain = RP_DOMAIN_CPUCACHE;
	if (m != RP_METHOD_DELIVERY || c->truth.place < MODEL_DMA_CACHE)
		c->spared = CRASH_SPARES_ALL;
	return is_dax(c) && c->truth.domain == MODEL_SYSTEM;
}

/* A DIMM is not armed: a power cut loses its bytes, even after msync. */
static bool dimm_not_armed(struct crash_cell *c, enum rp_method m)
{
	c->weak.domain = MODEL_NONE;
	c->weak_facts.domain = RP_DOMAIN_NONE;
	c->weak_class = RP_CLASS_NONE;
	return is_dax(c) && c->truth.domain != MODEL_NONE;
}

/*
 * DDIO is switched on: DMA then goes to the CPU cache. Bytes placed in memory
 * before stay there.
 */
static bool dma_cached(struct crash_cell *c, enum rp_method m)
{
	c->weak.place = MODEL_DMA_CACHE;
	c->weak_facts.placement = RP_PLACE_DMA_CACHE;
	c->spared = CRASH_SPARES_EARLIER;
	return is_dax(c) && c->truth.place == MODEL_DMA_MEMORY;
}

/*
 * The disk's volatile write cache is switched on, and Linux does not flush it.
 */
static bool disk_cached(struct crash_cell *c, enum rp_method m)
{
	c->weak.cached = true;
	c->weak_facts.limit = RP_LIMIT_PROCESS;
	c->weak_class = RP_CLASS_PROCESS;
	c->spared = CRASH_SPARES_EARLIER;
	return c->truth.kind == MODEL_FILE;
}

/*
 * The adapter's reads no longer push its writes, and the operator sets fence to
 * no. Bytes acknowledged earlier are in memory. Bytes acknowledged by such a
 * read may be in the adapter, and are lost with the queue pair that the target
 * closes (window is NONE). The shim reads before each request to the agent, so
 * no method is left (c->stays).
 */
static bool fence_broken(struct crash_cell *c, enum rp_method m)
{
	c->weak.fence = false;
	c->weak_facts.fence = RP_NO;
	c->spared = CRASH_SPARES_EARLIER;
	c->window = RP_CLASS_NONE;
	if (c->stays)
		c->weak_class = RP_CLASS_NONE;
	return c->truth.fence &&
	       (m == RP_METHOD_FENCE || (c->stays && m != RP_METHOD_NATIVE &&
					 c->truth.place >= MODEL_DMA_CACHE));
}

/*
 * The file system is mounted again without flushes of the disk, or the operator
 * withdraws the trust: msync reaches the disk's volatile cache only.
 */
static bool fs_untrusted(struct crash_cell *c, enum rp_method m)
{
	c->weak.cached = true;
	c->weak_facts.fs_trusted = RP_NO;
	c->weak_class = RP_CLASS_NONE;
	c->spared = CRASH_SPARES_EARLIER;
	return c->truth.kind == MODEL_FILE || is_dax(c);
}

/* The operator limits the class of the memory to none. */
static bool nothing_kept(struct crash_cell *c, enum rp_method m)
{
	c->weak.kind = MODEL_ANON;
	c->weak_facts.limit = RP_LIMIT_NONE;
	c->weak_class = RP_CLASS_NONE;
	return c->truth.kind == MODEL_TMPFS;
}

static const struct {
	const char *name;
	bool (*apply)(struct crash_cell *c, enum rp_method m);
} events[] = {
	{"the CPU caches become volatile", caches_volatile},
	{"the adapter's buffers become volatile", adapter_volatile},
	{"a DIMM is not armed any more", dimm_not_armed},
	{"DDIO goes on", dma_cached},
	{"the disk's volatile cache goes on", disk_cached},
	{"the operator limits the class to none", nothing_kept},
	{"reads stop pushing writes", fence_broken},
	{"the file system is not trusted any more", fs_untrusted},
	{"the CPU caches become volatile, at a forced target",
	 caches_volatile_forced},
};

bool crash_weakening(const struct verdict_cell *cell,
		     const struct verdict_method *m, unsigned int n,
		     struct crash_cell *out)
{
	const struct crash_cell strong = *out;
	enum rp_method by;

	if (strong.inplace)
		return false;
	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
		*out = strong;
		out->believed = crash_facts(cell, &out->truth);
		if (!crash_weakening_prepare(cell, m, out, &by))
			return false;
		out->weakens = events[i].name;
		out->weak = out->truth;
		out->weak_facts = out->believed;
		out->weak_class = out->against;
		out->window = RP_CLASS_PROCESS;
		if (!events[i].apply(out, by) || n--)
			continue;
		crash_weakening_complete(out, by);
		return true;
	}
	return false;
}

enum crash_excuse crash_weakening_excuse(const struct verdict_cell *cell,
					 const struct verdict_method *m,
					 unsigned int first)
{
	enum crash_excuse why = CRASH_NO_VARIANT, here;
	struct crash_cell strong, weak;
	enum rp_method by;

	for (unsigned int v = first; crash_variant(cell, m, v, &strong); v++) {
		weak = strong;
		if (crash_weakening(cell, m, 0, &weak))
			return CRASH_WEAKENS;
		/* Would the provider use the method at all? */
		weak = strong;
		weak.believed = crash_facts(cell, &weak.truth);
		if (strong.inplace)
			here = CRASH_IN_PLACE;
		else if (crash_weakening_prepare(cell, m, &weak, &by))
			here = CRASH_NO_EVENT;
		else
			here = CRASH_NOT_USED;
		why = here > why ? here : why;
	}
	return why;
}
