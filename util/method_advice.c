// SPDX-License-Identifier: BSD-2-Clause
/* Finds one change to a machine that gives its memory a better method. */
#include <stddef.h>

#include "util/method_advice.h"

/* Rank of a method: the cheaper its commits are, the higher. */
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

static const char *const changes[] = {
	"Put the file on ext4 or xfs, or vouch for the file system "
	"(FI_OFI_RPMEM_TRUST_FS) if msync there reaches stable storage.",
	"Lift the limit on the class, the operator's or a disk's.",
	"Arm the DIMM (mend its energy source), or remove the operator's "
	"'domain = none': until then no flush saves its bytes.",
	"Map the file with MAP_SYNC.",
	"Switch DDIO off at the adapter's root port: then a read fence is "
	"enough (Douglas 2015; Wei et al. 2021, H3).",
	"If a read pushes the adapter's earlier writes to memory, state "
	"'assert fence = yes' in the operator's file.",
	"State the persistence domain in the operator's file; the kernel does "
	"not tell it.",
	"Use a shared mapping of a file on ext4 or xfs.",
	"Put the pool on persistent memory: devdax, or a DAX file mapped with "
	"MAP_SYNC.",
	"Use a machine whose CPU caches are in the persistence domain (eADR).",
	"Use adapters with persistent FLUSH at both ends.",
};
#define CHANGES (sizeof(changes) / sizeof(changes[0]))

/* Apply change number i to the facts. False: it does not apply to them. */
static bool change(size_t i, struct rp_facts *f)
{
	const struct rp_facts was = *f;
	const bool dax =
		was.memory == RP_MEM_DAX || was.memory == RP_MEM_DAX_SYNC;
	const bool adapter = was.placement == RP_PLACE_DMA_CACHE ||
			     was.placement == RP_PLACE_UNKNOWN;

	switch (i) {
	case 0:
		f->fs_trusted = RP_YES;
		return was.fs_trusted == RP_NO;
	case 1:
		f->limit = RP_LIMIT_POWER;
		return was.limit != RP_LIMIT_POWER;
	case 2:
		f->domain = RP_DOMAIN_MEMCTRL;
		return was.domain == RP_DOMAIN_NONE;
	case 3:
		f->memory = RP_MEM_DAX_SYNC;
		return was.memory == RP_MEM_DAX;
	case 4:
		f->placement = RP_PLACE_DMA_MEMORY;
		return adapter && was.fence == RP_YES;
	case 5:
		f->fence = RP_YES;
		return was.fence == RP_UNKNOWN &&
		       (adapter || was.placement == RP_PLACE_DMA_MEMORY);
	case 6:
		f->domain = RP_DOMAIN_MEMCTRL;
		return was.domain == RP_DOMAIN_UNKNOWN;
	case 7:
		f->memory = RP_MEM_FILE;
		f->fs_trusted = RP_YES;
		return !dax && was.memory != RP_MEM_FILE &&
		       was.memory != RP_MEM_EMULATED;
	case 8:
		f->memory = RP_MEM_DAX_SYNC;
		f->fs_trusted = RP_YES;
		f->domain = RP_DOMAIN_MEMCTRL;
		return !dax;
	case 9:
		f->domain = RP_DOMAIN_CPUCACHE;
		return was.domain == RP_DOMAIN_MEMCTRL;
	default:
		f->native = RP_YES;
		return was.native != RP_YES && adapter;
	}
}

struct rp_advice rp_method_advice(const struct rp_facts *facts,
				  unsigned int built)
{
	struct rp_choice now = rp_method_best(facts, built), then;

	for (size_t i = 0; i < CHANGES; i++) {
		struct rp_facts f = *facts;

		if (!change(i, &f))
			continue;
		then = rp_method_best(&f, built);
		if (is_better(&then, &now))
			return (struct rp_advice){
				.change = changes[i],
				.choice = then,
			};
	}
	return (struct rp_advice){.change = NULL};
}
