// SPDX-License-Identifier: BSD-2-Clause
/* Find the one change to a machine that gives its memory a better method. */
#include <stddef.h>

#include "core/method.h"

/* The cheaper the commits of a method, the higher its rank. */
static int method_rank(enum rp_method m)
{
	static const int worths[RP_METHOD_MAX] = {
		[RP_METHOD_REFUSED] = 0,	  [RP_METHOD_AGENT_MSYNC] = 1,
		[RP_METHOD_AGENT_CLWB_MSYNC] = 2, [RP_METHOD_AGENT_CLWB] = 3,
		[RP_METHOD_AGENT_SFENCE] = 4,	  [RP_METHOD_FENCE] = 5,
		[RP_METHOD_NATIVE] = 6,		  [RP_METHOD_DELIVERY] = 7,
	};

	return worths[m];
}

static bool is_better(const struct rp_choice *a, const struct rp_choice *b)
{
	enum rp_class ac =
		a->method == RP_METHOD_REFUSED ? RP_CLASS_NONE : a->class;
	enum rp_class bc =
		b->method == RP_METHOD_REFUSED ? RP_CLASS_NONE : b->class;

	if (ac != bc)
		return ac > bc;
	return method_rank(a->method) > method_rank(b->method);
}

/* Changes to the facts, easiest first. False: the change does not apply. */
static bool trust(struct rp_facts *f)
{
	bool applies = f->fs_trusted == RP_NO;

	f->fs_trusted = RP_YES;
	return applies;
}

static bool no_limit(struct rp_facts *f)
{
	bool applies = f->limit != RP_LIMIT_POWER;

	f->limit = RP_LIMIT_POWER;
	return applies;
}

static bool map_sync(struct rp_facts *f)
{
	bool applies = f->memory == RP_MEM_DAX;

	f->memory = RP_MEM_DAX_SYNC;
	return applies;
}

static bool by_adapter(const struct rp_facts *f)
{
	return f->placement == RP_PLACE_DMA_CACHE ||
	       f->placement == RP_PLACE_UNKNOWN;
}

static bool ddio_off(struct rp_facts *f)
{
	bool applies = by_adapter(f) && f->fence == RP_YES;

	f->placement = RP_PLACE_DMA_MEMORY;
	return applies;
}

static bool state_fence(struct rp_facts *f)
{
	bool applies = f->fence == RP_UNKNOWN &&
		       (by_adapter(f) || f->placement == RP_PLACE_DMA_MEMORY);

	f->fence = RP_YES;
	return applies;
}

static bool state_domain(struct rp_facts *f)
{
	bool applies = f->domain == RP_DOMAIN_UNKNOWN;

	f->domain = RP_DOMAIN_MEMCTRL;
	return applies;
}

static bool shared_file(struct rp_facts *f)
{
	bool applies = f->memory == RP_MEM_ANON ||
		       f->memory == RP_MEM_PRIVATE ||
		       f->memory == RP_MEM_TMPFS || f->memory == RP_MEM_UNKNOWN;

	f->memory = RP_MEM_FILE;
	f->fs_trusted = RP_YES;
	return applies;
}

static bool persistent_memory(struct rp_facts *f)
{
	bool applies = f->memory != RP_MEM_DAX && f->memory != RP_MEM_DAX_SYNC;

	f->memory = RP_MEM_DAX_SYNC;
	f->fs_trusted = RP_YES;
	f->domain = RP_DOMAIN_MEMCTRL;
	return applies;
}

static bool eadr(struct rp_facts *f)
{
	bool applies = f->domain == RP_DOMAIN_MEMCTRL;

	f->domain = RP_DOMAIN_CPUCACHE;
	return applies;
}

static bool native(struct rp_facts *f)
{
	bool applies = f->native != RP_YES && by_adapter(f);

	f->native = RP_YES;
	return applies;
}

static const struct {
	bool (*make)(struct rp_facts *f);
	const char *change;
} changes[] = {
	{trust, "Put the file on ext4 or xfs, or vouch for the file system "
		"(FI_OFI_RPMEM_TRUST_FS) if msync there reaches stable "
		"storage."},
	{no_limit, "Lift the limit on the class, the operator's or a disk's."},
	{map_sync, "Map the file with MAP_SYNC."},
	{ddio_off, "Switch DDIO off at the adapter's root port: then a read "
		   "fence is enough (Douglas 2015; Wei et al. 2021, H3)."},
	{state_fence, "If a read pushes the adapter's earlier writes to "
		      "memory, state 'assert fence = yes' in the operator's "
		      "file."},
	{state_domain, "State the persistence domain in the operator's file; "
		       "the kernel does not tell it."},
	{shared_file, "Use a shared mapping of a file on ext4 or xfs."},
	{persistent_memory, "Put the pool on persistent memory: devdax, or a "
			    "DAX file mapped with MAP_SYNC."},
	{eadr, "Use a machine whose CPU caches are in the persistence domain "
	       "(eADR)."},
	{native, "Use adapters with persistent FLUSH at both ends."},
};

struct rp_advice rp_method_advice(const struct rp_facts *facts,
				  unsigned int built)
{
	struct rp_choice now = rp_method_best(facts, built), then;

	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		struct rp_facts f = *facts;

		if (!changes[i].make(&f))
			continue;
		then = rp_method_best(&f, built);
		if (is_better(&then, &now))
			return (struct rp_advice){
				.change = changes[i].change,
				.choice = then,
			};
	}
	return (struct rp_advice){.change = NULL};
}
