// SPDX-License-Identifier: BSD-2-Clause
/* Do the facts allow the method that the operator forces; if not, why? */
#include <stdio.h>

#include "core/method_priv.h"

#define PARAMETER "FI_OFI_RPMEM_METHOD"

/* Facts that a row needs and the region lacks, in the order of the message. */
enum lack {
	LACK_MEMORY = 1 << 0,
	LACK_PLACEMENT = 1 << 1,
	LACK_DOMAIN = 1 << 2,
	LACK_FENCE = 1 << 3,
	LACK_NATIVE = 1 << 4,
};

static unsigned int row_lacks(const struct rp_row *r, const struct rp_facts *f)
{
	unsigned int l = 0;

	if (!(r->memory & 1u << f->memory))
		l |= LACK_MEMORY;
	if (!(r->placement & 1u << f->placement))
		l |= LACK_PLACEMENT;
	if (!(r->domain & 1u << f->domain))
		l |= LACK_DOMAIN;
	if (r->fence == RP_YES && f->fence != RP_YES)
		l |= LACK_FENCE;
	if (r->native == RP_YES && f->native != RP_YES)
		l |= LACK_NATIVE;
	return l;
}

/*
 * How far the facts are from a row: another kind of memory weighs more than all
 * other facts, and the persistence domain, which is fixed, more than the rest.
 */
static unsigned int facts_distance(unsigned int lacks)
{
	if (lacks & LACK_MEMORY)
		return 16;
	return 2 * (unsigned int)__builtin_popcount(lacks) +
	       !!(lacks & LACK_DOMAIN);
}

/* The lacks of the method's row that is closest to the facts. */
static unsigned int closest_lacks(const struct rp_facts *f, enum rp_method m)
{
	unsigned int least = ~0u, l;

	for (size_t i = 0; i < rp_method_nrows; i++) {
		if (rp_method_rows[i].method != m)
			continue;
		l = row_lacks(&rp_method_rows[i], f);
		if (least == ~0u || facts_distance(l) < facts_distance(least))
			least = l;
	}
	return least;
}

static void describe_lacks(const struct rp_facts *f, unsigned int lacks,
			   char *out, size_t len)
{
	const struct {
		enum lack lack;
		const char *fact, *value;
	} facts[] = {
		{LACK_MEMORY, "memory", rp_memory_name(f->memory)},
		{LACK_PLACEMENT, "placement", rp_placement_name(f->placement)},
		{LACK_DOMAIN, "domain", rp_domain_name(f->domain)},
		{LACK_FENCE, "fence", rp_tri_name(f->fence)},
		{LACK_NATIVE, "native", rp_tri_name(f->native)},
	};
	size_t n = 0;

	*out = '\0';
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		if (!(lacks & facts[i].lack))
			continue;
		n += (size_t)snprintf(out + n, len - n, "%s%s is %s",
				      n ? ", " : "", facts[i].fact,
				      facts[i].value);
		/* With the wrong memory no other fact helps: name none. */
		if (facts[i].lack == LACK_MEMORY)
			break;
	}
}

/* Can the operator state the lacking facts? */
static bool can_be_stated(const struct rp_facts *f, unsigned int lacks)
{
	bool cpu = f->placement == RP_PLACE_CPU_USER ||
		   f->placement == RP_PLACE_CPU_KERNEL;

	return lacks && !(lacks & (LACK_MEMORY | LACK_NATIVE)) &&
	       !(cpu && (lacks & LACK_PLACEMENT));
}

static struct rp_choice forced_refused(struct rp_choice c, const char *remedy)
{
	c.method = RP_METHOD_REFUSED;
	c.class = RP_CLASS_NONE;
	c.row = "none of the forced method";
	c.remedy = remedy;
	return c;
}

struct rp_choice rp_method_for_region(const struct rp_facts *facts,
				      const char *forced, char *why)
{
	static const char unset[] = "Unset " PARAMETER ".";
	static const char state[] =
		"Unset " PARAMETER ", or state in the operator's file "
		"(FI_OFI_RPMEM_OPERATOR) what is true and cannot be seen.";
	static const char devices[] =
		"Unset " PARAMETER ", or use devices with FLUSH at both ends.";
	struct rp_choice first = rp_method_best(facts, RP_METHODS_BUILT), c;
	enum rp_method m;
	unsigned int lacks;
	char text[160];

	*why = '\0';
	/* Memory without any method is refused for its own reason. */
	if (!forced || !*forced || first.method == RP_METHOD_REFUSED)
		return first;
	m = rp_method_parse(forced);
	if (m == RP_METHOD_REFUSED) {
		snprintf(why, RP_WHY_LEN,
			 PARAMETER "=%.32s names no method: 'fi_rpmem_info "
				   "--table' lists them",
			 forced);
		return forced_refused(first, unset);
	}
	c = rp_method_best(facts, RP_METHODS_BUILT & rp_methods_allowed(m));
	if (c.method != RP_METHOD_REFUSED)
		return c;
	lacks = closest_lacks(facts, m);
	describe_lacks(facts, lacks, text, sizeof(text));
	snprintf(why, RP_WHY_LEN,
		 PARAMETER "=%s makes nothing durable here: %s", forced, text);
	if (lacks == LACK_NATIVE)
		return forced_refused(c, devices);
	return forced_refused(c, can_be_stated(facts, lacks) ? state : unset);
}

unsigned int rp_methods_allowed(enum rp_method forced)
{
	return forced == RP_METHOD_REFUSED ? RP_METHODS_BUILT
					   : RP_METHOD_BIT(forced);
}
