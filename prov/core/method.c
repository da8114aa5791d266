// SPDX-License-Identifier: BSD-2-Clause
/* The method table: the method for each memory, or why there is none. */
#include <string.h>

#include "core/method_priv.h"

#define ANY	(~0u)
#define P_CPU	(P(CPU_USER) | P(CPU_KERNEL))
#define P_KNOWN (~P(UNKNOWN))
#define D_KNOWN (D(MEMCTRL) | D(CPUCACHE) | D(SYSTEM))

/*
 * The first matching row wins, in the order of the table in docs/guarantees.md;
 * a test compares both. A row with a refusal ends the search, so no later row
 * can grant what it denies.
 *
 * A row whose method is not built, or whose class is below the required one, is
 * skipped. Each later row that matches the same facts is at least as strong:
 * clwb + sfence at the target also writes back bytes for which sfence, a read
 * fence or delivery rely on persistent caches, and msync writes back bytes that
 * delivery leaves in the page cache. The rows named "stronger" are used only
 * when an earlier row was skipped.
 */
const struct rp_row rp_method_rows[] = {
	{.name = "anonymous or private memory",
	 .memory = M(ANON) | M(PRIVATE),
	 .placement = ANY,
	 .domain = ANY,
	 .refusal = RP_REFUSAL_VOLATILE},
	{.name = "emulated persistent memory: agent, clwb",
	 .memory = M(EMULATED),
	 .placement = ANY,
	 .domain = ANY,
	 .method = RP_METHOD_AGENT_CLWB,
	 .class = RP_CLASS_NONE},
	{.name = "tmpfs: delivery",
	 .memory = M(TMPFS),
	 .placement = P_CPU,
	 .domain = ANY,
	 .method = RP_METHOD_DELIVERY,
	 .class = RP_CLASS_PROCESS},
	/* Bytes that a NIC still buffers are lost with the process. */
	{.name = "tmpfs, written by an adapter: read fence",
	 .memory = M(TMPFS),
	 .placement = ANY,
	 .domain = ANY,
	 .fence = RP_YES,
	 .method = RP_METHOD_FENCE,
	 .class = RP_CLASS_PROCESS},
	{.name = "tmpfs, written by an adapter: agent, sfence",
	 .memory = M(TMPFS),
	 .placement = ANY,
	 .domain = ANY,
	 .method = RP_METHOD_AGENT_SFENCE,
	 .class = RP_CLASS_PROCESS},
	{.name = "tmpfs, stronger than needed: agent, clwb",
	 .memory = M(TMPFS),
	 .placement = ANY,
	 .domain = ANY,
	 .method = RP_METHOD_AGENT_CLWB,
	 .class = RP_CLASS_PROCESS},
	/* Such writes mark no page dirty: msync skips it, reclaim drops it. */
	{.name = "page cache, written past the user's mapping",
	 .memory = M(FILE),
	 .placement = ~P(CPU_USER),
	 .domain = ANY,
	 .refusal = RP_REFUSAL_NOT_DIRTIED},
	/* Overlay, FUSE, network and unknown file systems: not trusted. */
	{.name = "file system without a known promise",
	 .memory = M(FILE) | M(DAX) | M(DAX_SYNC),
	 .placement = ANY,
	 .domain = ANY,
	 .untrusted = true,
	 .refusal = RP_REFUSAL_FS},
	/* The page cache outlives the process, so this class needs no msync. */
	{.name = "page cache, class process: delivery",
	 .memory = M(FILE),
	 .placement = P(CPU_USER),
	 .domain = ANY,
	 .method = RP_METHOD_DELIVERY,
	 .class = RP_CLASS_PROCESS},
	{.name = "page cache: agent, msync",
	 .memory = M(FILE),
	 .placement = P(CPU_USER),
	 .domain = ANY,
	 .method = RP_METHOD_AGENT_MSYNC,
	 .class = RP_CLASS_POWER},
	/* Root can keep msync from writing back lines (dax/write_cache). */
	{.name = "DAX without MAP_SYNC, user stores: agent, clwb, msync",
	 .memory = M(DAX),
	 .placement = P(CPU_USER),
	 .domain = ~D(NONE),
	 .method = RP_METHOD_AGENT_CLWB_MSYNC,
	 .class = RP_CLASS_POWER},
	{.name = "DAX without MAP_SYNC: agent, clwb, msync for metadata",
	 .memory = M(DAX),
	 .placement = ANY,
	 .domain = D_KNOWN,
	 .method = RP_METHOD_AGENT_CLWB_MSYNC,
	 .class = RP_CLASS_POWER},
	/* msync may find no dirty page, and then does not flush the device. */
	{.name = "DAX without MAP_SYNC, no or unknown persistence domain",
	 .memory = M(DAX),
	 .placement = ANY,
	 .domain = D(NONE) | D(UNKNOWN),
	 .method = RP_METHOD_AGENT_CLWB_MSYNC,
	 .class = RP_CLASS_NONE},
	{.name = "DAX, native persistent FLUSH",
	 .memory = M(DAX_SYNC),
	 .placement = ANY,
	 .domain = D_KNOWN,
	 .native = RP_YES,
	 .method = RP_METHOD_NATIVE,
	 .class = RP_CLASS_POWER},
	{.name = "DAX, whole system persistent: delivery",
	 .memory = M(DAX_SYNC),
	 .placement = P_KNOWN,
	 .domain = D(SYSTEM),
	 .method = RP_METHOD_DELIVERY,
	 .class = RP_CLASS_POWER},
	{.name = "DAX, whole system persistent: read fence",
	 .memory = M(DAX_SYNC),
	 .placement = P(UNKNOWN),
	 .domain = D(SYSTEM),
	 .fence = RP_YES,
	 .method = RP_METHOD_FENCE,
	 .class = RP_CLASS_POWER},
	{.name = "DAX, persistent CPU caches: delivery",
	 .memory = M(DAX_SYNC),
	 .placement = P_CPU,
	 .domain = D(CPUCACHE),
	 .method = RP_METHOD_DELIVERY,
	 .class = RP_CLASS_POWER},
	{.name = "DAX, persistent CPU caches: read fence",
	 .memory = M(DAX_SYNC),
	 .placement = ~P_CPU,
	 .domain = D(CPUCACHE),
	 .fence = RP_YES,
	 .method = RP_METHOD_FENCE,
	 .class = RP_CLASS_POWER},
	{.name = "DAX, appliance method: read fence",
	 .memory = M(DAX_SYNC),
	 .placement = P(DMA_MEMORY),
	 .domain = D(MEMCTRL),
	 .fence = RP_YES,
	 .method = RP_METHOD_FENCE,
	 .class = RP_CLASS_POWER},
	{.name = "DAX, general-purpose method: agent, clwb",
	 .memory = M(DAX_SYNC),
	 .placement = ANY,
	 .domain = D(MEMCTRL),
	 .method = RP_METHOD_AGENT_CLWB,
	 .class = RP_CLASS_POWER},
	{.name = "DAX, persistent CPU caches: agent, sfence",
	 .memory = M(DAX_SYNC),
	 .placement = ANY,
	 .domain = D(CPUCACHE),
	 .method = RP_METHOD_AGENT_SFENCE,
	 .class = RP_CLASS_POWER},
	{.name = "DAX, stronger than needed: agent, clwb",
	 .memory = M(DAX_SYNC),
	 .placement = ANY,
	 .domain = D(CPUCACHE) | D(SYSTEM),
	 .method = RP_METHOD_AGENT_CLWB,
	 .class = RP_CLASS_POWER},
	{.name = "DAX, no or unknown persistence domain: agent, clwb",
	 .memory = M(DAX_SYNC),
	 .placement = ANY,
	 .domain = D(NONE) | D(UNKNOWN),
	 .method = RP_METHOD_AGENT_CLWB,
	 .class = RP_CLASS_NONE},
};
const size_t rp_method_nrows =
	sizeof(rp_method_rows) / sizeof(rp_method_rows[0]);

static const char *const remedies[] = {
	[RP_REFUSAL_VOLATILE] =
		"Map a file with MAP_SHARED; to try things out without "
		"durability set FI_OFI_RPMEM_EMULATE=1.",
	[RP_REFUSAL_CLASS] = "Use memory of the required class, or lower it "
			     "with FI_OFI_RPMEM_CLASS or in the call.",
	[RP_REFUSAL_FS] = "Put the file on ext4 or xfs; if you know that msync "
			  "there reaches stable storage, name the file system "
			  "in FI_OFI_RPMEM_TRUST_FS.",
	[RP_REFUSAL_NOT_DIRTIED] =
		"Use a base provider that writes through the user's mapping "
		"(tcp), or a DAX file system or devdax.",
	[RP_REFUSAL_NO_AGENT] = "Load ofi_rpmem in the target process too.",
	[RP_REFUSAL_NOT_BUILT] = "Use a release of ofi_rpmem whose build has "
				 "the method that this memory needs.",
	[RP_REFUSAL_UNKNOWN] = "Use a shared mapping of an ordinary file or of "
			       "a devdax device.",
};
static const char unarmed_remedy[] =
	"No flush saves these bytes at a power cut: a DIMM is not armed, or "
	"the operator states domain none. Mend its energy source or remove the "
	"statement, use other memory, or lower FI_OFI_RPMEM_CLASS.";

static struct rp_choice refuse(enum rp_refusal r, const char *row,
			       enum rp_class class)
{
	return (struct rp_choice){
		.method = RP_METHOD_REFUSED,
		.class = class,
		.refusal = r,
		.row = row,
		.remedy = remedies[r],
	};
}

static bool row_matches(const struct rp_row *r, const struct rp_facts *f)
{
	return (r->memory & 1u << f->memory) &&
	       (r->placement & 1u << f->placement) &&
	       (r->domain & 1u << f->domain) &&
	       (r->fence != RP_YES || f->fence == RP_YES) &&
	       (r->native != RP_YES || f->native == RP_YES) &&
	       (!r->untrusted || f->fs_trusted != RP_YES);
}

/* The class of a row, up to the operator's limit. */
static enum rp_class row_class(const struct rp_row *r, const struct rp_facts *f)
{
	enum rp_class most = RP_CLASS_POWER;

	if (f->limit == RP_LIMIT_PROCESS)
		most = RP_CLASS_PROCESS;
	else if (f->limit != RP_LIMIT_POWER)
		most = RP_CLASS_NONE;
	return r->class < most ? r->class : most;
}

struct rp_choice rp_method_choose(const struct rp_facts *facts,
				  enum rp_class required, unsigned int built)
{
	struct rp_choice no =
		refuse(RP_REFUSAL_UNKNOWN, "no row matches", RP_CLASS_NONE);
	bool agent_missing = false;
	enum rp_class class;

	for (const struct rp_row *r = rp_method_rows;
	     r < rp_method_rows + rp_method_nrows; r++) {
		if (!row_matches(r, facts))
			continue;
		if (r->refusal)
			return refuse(r->refusal, r->name, RP_CLASS_NONE);
		/* Keep the refusal nearest to a grant: class, build, agent. */
		class = row_class(r, facts);
		if (class < required) {
			/* Other rows that are too weak have the same class. */
			if (no.refusal == RP_REFUSAL_UNKNOWN)
				no = refuse(RP_REFUSAL_CLASS, r->name, class);
			if (facts->domain == RP_DOMAIN_NONE &&
			    r->memory & (M(DAX) | M(DAX_SYNC)))
				no.remedy = unarmed_remedy;
		} else if (!(built & RP_METHOD_BIT(r->method))) {
			if (!agent_missing)
				no = refuse(RP_REFUSAL_NOT_BUILT, r->name,
					    RP_CLASS_NONE);
		} else if (!facts->agent) {
			/* Only an agent confirms the key and the facts. */
			no = refuse(RP_REFUSAL_NO_AGENT, r->name,
				    RP_CLASS_NONE);
			agent_missing = true;
		} else {
			return (struct rp_choice){
				.method = r->method,
				.class = class,
				.row = r->name,
			};
		}
	}
	return no;
}

struct rp_choice rp_method_best(const struct rp_facts *facts,
				unsigned int built)
{
	struct rp_choice c;

	/* If class none is refused too, return that refusal. */
	for (int k = RP_CLASS_POWER; k >= RP_CLASS_NONE; k--) {
		c = rp_method_choose(facts, k, built);
		if (c.method != RP_METHOD_REFUSED)
			break;
	}
	return c;
}

struct rp_choice rp_method_by_agent(const struct rp_facts *facts,
				    struct rp_choice choice)
{
	const unsigned int initiator_methods = RP_METHOD_BIT(RP_METHOD_FENCE) |
					       RP_METHOD_BIT(RP_METHOD_NATIVE);

	if (!(RP_METHOD_BIT(choice.method) & initiator_methods))
		return choice;
	return rp_method_choose(facts, choice.class,
				RP_METHODS_BUILT & ~initiator_methods);
}

const char *rp_method_name(enum rp_method m)
{
	static const char *const names[RP_METHOD_MAX] = {
		[RP_METHOD_REFUSED] = "refused",
		[RP_METHOD_DELIVERY] = "delivery",
		[RP_METHOD_FENCE] = "fence",
		[RP_METHOD_NATIVE] = "native",
		[RP_METHOD_AGENT_SFENCE] = "agent-sfence",
		[RP_METHOD_AGENT_CLWB] = "agent-clwb",
		[RP_METHOD_AGENT_MSYNC] = "agent-msync",
		[RP_METHOD_AGENT_CLWB_MSYNC] = "agent-clwb-msync",
	};

	return (unsigned int)m < RP_METHOD_MAX ? names[m] : "unknown";
}

enum rp_method rp_method_parse(const char *name)
{
	for (int m = RP_METHOD_DELIVERY; m < RP_METHOD_MAX; m++)
		if (!strcmp(name, rp_method_name((enum rp_method)m)))
			return (enum rp_method)m;
	return RP_METHOD_REFUSED;
}
