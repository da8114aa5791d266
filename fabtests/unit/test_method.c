// SPDX-License-Identifier: BSD-2-Clause
/*
 * The method table compared with three independent models: the prose of the
 * guarantees, the places of bytes, and the document's table.
 */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "method_rig.h"
#include "util/method_rows.h"

/*
 * The builds to check: the current one, one with all methods, one with none,
 * and those that lack one method.
 */
static void for_builds(judge_fn judge)
{
	for_all(judge, RP_METHODS_BUILT);
	for_all(judge, ALL_BUILT);
	for_all(judge, 0);
	for (int m = RP_METHOD_DELIVERY; m < RP_METHOD_MAX; m++) {
		for_all(judge, ALL_BUILT & ~RP_METHOD_BIT(m));
		for_all(judge, RP_METHODS_BUILT & ~RP_METHOD_BIT(m));
	}
}

/*
 * First model: the prose of the guarantees. It takes the first offer that is
 * strong enough, is built, and has the agent that it needs.
 */
static void judge_prose(const struct rp_facts *f, enum rp_class required,
			unsigned int built)
{
	struct rp_choice got = rp_method_choose(f, required, built);
	struct offers o = offers_of(f);
	bool strong = false, made = false;

	for (int i = 0; i < o.n; i++) {
		if (o.v[i].class < required)
			continue;
		strong = true;
		if (!(built & 1u << o.v[i].how))
			continue;
		made = true;
		if (!f->agent)
			continue;
		cr_assert_eq(got.method, o.v[i].how, "%s: got %s, want %s",
			     show(f, required, built),
			     rp_method_name(got.method),
			     rp_method_name(o.v[i].how));
		cr_assert_eq(got.class, o.v[i].class, "%s",
			     show(f, required, built));
		cr_assert_eq(got.refusal, RP_REFUSAL_NONE);
		cr_assert_not_null(got.row);
		return;
	}
	cr_assert_eq(got.method, RP_METHOD_REFUSED, "%s: got %s",
		     show(f, required, built), rp_method_name(got.method));
	if (!o.refusal)
		o.refusal = !strong ? RP_REFUSAL_CLASS
			    : !made ? RP_REFUSAL_NOT_BUILT
				    : RP_REFUSAL_NO_AGENT;
	cr_assert_eq(got.refusal, o.refusal, "%s: got '%s', want '%s'",
		     show(f, required, built), rp_refusal_name(got.refusal),
		     rp_refusal_name(o.refusal));
	cr_assert_not_null(got.row);
	cr_assert_not_null(got.remedy);
	/* A refusal may not report that the required class is reached. */
	cr_assert(got.class < required || got.class == RP_CLASS_NONE);
}

Test(method, table_agrees_with_the_prose)
{
	for_builds(judge_prose);
}

/* The operator's limit lowers the class and changes nothing else. */
static void judge_limit(const struct rp_facts *f, enum rp_class required,
			unsigned int built)
{
	static const struct {
		enum rp_class_limit limit;
		enum rp_class most;
	} limits[] = {
		{RP_LIMIT_POWER, RP_CLASS_POWER},
		{RP_LIMIT_PROCESS, RP_CLASS_PROCESS},
		{RP_LIMIT_NONE, RP_CLASS_NONE},
		{(enum rp_class_limit)17, RP_CLASS_NONE},
	};
	struct rp_choice got, free = rp_method_choose(f, required, built);
	struct rp_facts limited = *f;

	for (size_t i = 0; i < COUNT(limits); i++) {
		limited.limit = limits[i].limit;
		got = rp_method_choose(&limited, required, built);
		if (required > limits[i].most) {
			cr_assert_eq(got.method, RP_METHOD_REFUSED, "%s",
				     show(f, required, built));
			cr_assert_leq(got.class, limits[i].most);
			continue;
		}
		cr_assert_eq(got.method, free.method, "%s",
			     show(f, required, built));
		cr_assert_eq(got.refusal, free.refusal);
		cr_assert_eq(got.class, free.class < limits[i].most
						? free.class
						: limits[i].most);
	}
}

Test(method, limit_lowers_only_the_class)
{
	for_builds(judge_limit);
}

/*
 * Second model: the worst place where the bytes can be when the method reports
 * success, and whether a power cut spares that place. The model does not use
 * the table.
 */
enum place {
	AT_SENDER, /* posted, not sent */
	AT_NIC,	   /* in the adapter or on PCIe */
	IN_CACHE,
	IN_MEMCTRL,
	ON_DISK,
	NOWHERE, /* a power cut spares no place */
};

static enum place worst_place_at_success(const struct rp_facts *f,
					 enum rp_method how)
{
	enum place at = AT_SENDER;
	bool pushed = how != RP_METHOD_DELIVERY;

	switch (f->placement) {
	case RP_PLACE_CPU_USER:
	case RP_PLACE_CPU_KERNEL:
		at = IN_CACHE;
		break;
	case RP_PLACE_DMA_CACHE:
		at = pushed ? IN_CACHE : AT_NIC;
		break;
	case RP_PLACE_DMA_MEMORY:
		at = pushed ? IN_MEMCTRL : AT_NIC;
		break;
	case RP_PLACE_UNKNOWN:
		at = pushed ? IN_CACHE : AT_SENDER;
		break;
	}
	/* The CPU's flush moves lines to the memory controller, not further. */
	if ((how == RP_METHOD_AGENT_CLWB ||
	     how == RP_METHOD_AGENT_CLWB_MSYNC) &&
	    at < IN_MEMCTRL)
		at = IN_MEMCTRL;
	if (how == RP_METHOD_NATIVE)
		at = ON_DISK; /* FLUSH by the device reaches the media */
	if (f->memory == RP_MEM_FILE || f->memory == RP_MEM_DAX) {
		bool synced = how == RP_METHOD_AGENT_MSYNC ||
			      how == RP_METHOD_AGENT_CLWB_MSYNC;
		/*
		 * msync writes only pages dirtied by stores in user space, and
		 * lines of DAX only if root has not switched that off.
		 */
		bool seen = f->memory == RP_MEM_DAX
				    ? at == IN_MEMCTRL
				    : f->placement == RP_PLACE_CPU_USER;

		at = synced && seen ? ON_DISK : at;
	}
	return at;
}

static void judge_physics(const struct rp_facts *f, enum rp_class required,
			  unsigned int built)
{
	static const enum place spared[] = {
		[RP_DOMAIN_UNKNOWN] = ON_DISK,
		[RP_DOMAIN_NONE] = NOWHERE,
		[RP_DOMAIN_MEMCTRL] = IN_MEMCTRL,
		[RP_DOMAIN_CPUCACHE] = IN_CACHE,
		[RP_DOMAIN_SYSTEM] = AT_NIC,
	};
	struct rp_choice got = rp_method_choose(f, required, built);
	enum place at = worst_place_at_success(f, got.method), least = ON_DISK;

	if (got.method == RP_METHOD_REFUSED)
		return;
	cr_assert_geq(got.class, required);
	cr_assert(built & RP_METHOD_BIT(got.method));
	if (got.method == RP_METHOD_FENCE)
		cr_assert_eq(f->fence, RP_YES);
	if (got.method == RP_METHOD_NATIVE)
		cr_assert_eq(f->native, RP_YES);
	switch (got.class) {
	case RP_CLASS_NONE:
		return;
	case RP_CLASS_PROCESS:
		/*
		 * The kernel keeps this memory and other processes can open it:
		 * tmpfs, or pages known to be dirty.
		 */
		cr_assert(f->memory == RP_MEM_TMPFS ||
				  (f->memory == RP_MEM_FILE &&
				   f->placement == RP_PLACE_CPU_USER),
			  "%s", show(f, required, built));
		break;
	case RP_CLASS_POWER:
		cr_assert(f->memory == RP_MEM_FILE || f->memory == RP_MEM_DAX ||
				  f->memory == RP_MEM_DAX_SYNC,
			  "%s", show(f, required, built));
		/* The domain concerns persistent memory only. */
		if (f->memory == RP_MEM_DAX_SYNC ||
		    (f->memory == RP_MEM_DAX && f->domain == RP_DOMAIN_NONE))
			least = spared[f->domain];
		cr_assert_geq(at, least, "%s: %s leaves bytes at %d",
			      show(f, required, built),
			      rp_method_name(got.method), at);
		break;
	}
	if (f->memory != RP_MEM_TMPFS)
		cr_assert_eq(f->fs_trusted, RP_YES);
}

Test(method, table_agrees_with_the_places_of_bytes)
{
	for_builds(judge_physics);
}

/* Third model: the table of the document, as it is read from there. */
struct doc_row {
	unsigned int memory, placement, domain;
	bool fence, native, untrusted;
	enum rp_method method;
	enum rp_class class;
	enum rp_refusal refusal;
};
static struct doc_row doc[64];
static size_t ndoc;

static const char *memory_name(int v)
{
	return rp_memory_name(v);
}

static const char *placement_name(int v)
{
	return rp_placement_name(v);
}

static const char *domain_name(int v)
{
	return rp_domain_name(v);
}

/* Parse "any", "any but a, b" or "a, b" to a bit mask of `count` values. */
static unsigned int doc_mask(char *cell, const char *(*name)(int), int count)
{
	unsigned int mask = 0, all = (1u << count) - 1;
	bool but = !strncmp(cell, "any but ", 8);
	char *word, *save;

	if (!strcmp(cell, "any"))
		return all;
	for (word = strtok_r(but ? cell + 8 : cell, ", ", &save); word;
	     word = strtok_r(NULL, ", ", &save)) {
		int v = 0;

		while (v < count && strcmp(word, name(v)))
			v++;
		cr_assert_lt(v, count, "unknown word '%s'", word);
		mask |= 1u << v;
	}
	return but ? all & ~mask : mask;
}

static int doc_method(const char *cell)
{
	for (int m = RP_METHOD_DELIVERY; m < RP_METHOD_MAX; m++)
		if (!strcmp(cell, rp_method_name(m)))
			return m;
	return RP_METHOD_REFUSED;
}

static void doc_line(char *line)
{
	struct doc_row *r = &doc[ndoc];
	char *cell[6];

	cr_assert_lt(ndoc, COUNT(doc));
	strsep(&line, "|");
	for (int i = 0; i < 6; i++) {
		char *end;

		cell[i] = strsep(&line, "|");
		cr_assert(cell[i] && line, "row %zu has too few cells", ndoc);
		cell[i] += strspn(cell[i], " ");
		end = cell[i] + strlen(cell[i]);
		while (end > cell[i] && end[-1] == ' ')
			*--end = '\0';
	}
	r->memory = doc_mask(cell[0], memory_name, MEMORIES);
	r->placement = doc_mask(cell[1], placement_name, PLACEMENTS);
	r->domain = doc_mask(cell[2], domain_name, DOMAINS);
	r->fence = !strcmp(cell[3], "fence");
	r->native = !strcmp(cell[3], "native");
	r->untrusted = !strcmp(cell[3], "untrusted");
	cr_assert(!*cell[3] || r->fence || r->native || r->untrusted, "'%s'",
		  cell[3]);
	r->method = doc_method(cell[4]);
	if (r->method) {
		cr_assert_eq(rp_class_parse(cell[5], &r->class), 0, "'%s'",
			     cell[5]);
	} else {
		cr_assert(!strncmp(cell[4], "refused: ", 9), "'%s'", cell[4]);
		for (int i = 1; i <= RP_REFUSAL_UNKNOWN; i++)
			if (!strcmp(cell[4] + 9, rp_refusal_name(i)))
				r->refusal = i;
		cr_assert(r->refusal, "'%s'", cell[4]);
	}
	ndoc++;
}

static void doc_read(void)
{
	FILE *f = fopen(RP_SRCDIR "/docs/guarantees.md", "r");
	char line[512];
	int state = 0;

	cr_assert_not_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (strstr(line, "<!-- method table"))
			state = 1;
		else if (strstr(line, "<!-- end of method table"))
			state = 0;
		else if (state && line[0] == '|' && ++state > 3)
			doc_line(line);
	}
	fclose(f);
	cr_assert_geq(ndoc, 15);
}

static void judge_doc(const struct rp_facts *f, enum rp_class required,
		      unsigned int built)
{
	struct rp_choice got = rp_method_choose(f, required, built);

	for (size_t i = 0; i < ndoc; i++) {
		const struct doc_row *r = &doc[i];

		if (!(r->memory & 1u << f->memory) ||
		    !(r->placement & 1u << f->placement) ||
		    !(r->domain & 1u << f->domain) ||
		    (r->fence && f->fence != RP_YES) ||
		    (r->native && f->native != RP_YES) ||
		    (r->untrusted && f->fs_trusted == RP_YES))
			continue;
		if (!r->method) {
			cr_assert_eq(got.refusal, r->refusal, "%s",
				     show(f, required, built));
			return;
		}
		if (r->class < required ||
		    !(built & RP_METHOD_BIT(r->method)) || !f->agent)
			continue;
		cr_assert_eq(got.method, r->method, "%s",
			     show(f, required, built));
		cr_assert_eq(got.class, r->class, "%s",
			     show(f, required, built));
		return;
	}
	cr_assert_eq(got.method, RP_METHOD_REFUSED, "%s",
		     show(f, required, built));
}

Test(method, table_agrees_with_the_document)
{
	doc_read();
	for_builds(judge_doc);
}

/* A registration records the strongest class that its memory can reach. */
static void judge_best(const struct rp_facts *f, enum rp_class required,
		       unsigned int built)
{
	struct rp_choice best = rp_method_best(f, built);
	struct rp_choice got = rp_method_choose(f, required, built);

	if (got.method != RP_METHOD_REFUSED) {
		cr_assert_neq(best.method, RP_METHOD_REFUSED);
		cr_assert_geq(best.class, required);
	}
	if (best.method == RP_METHOD_REFUSED) {
		cr_assert_eq(got.method, RP_METHOD_REFUSED);
		cr_assert_neq(best.refusal, RP_REFUSAL_CLASS);
	} else {
		struct rp_choice same = rp_method_choose(f, best.class, built);

		cr_assert_eq(same.method, best.method);
		cr_assert_eq(same.class, best.class);
	}
}

Test(method, registration_records_the_strongest_class)
{
	for_builds(judge_best);
}

/* Single rows by name, which explain failures of the models above. */
static struct rp_choice pick_for(enum rp_memory m, enum rp_placement p,
				 enum rp_domain d, enum rp_class c)
{
	struct rp_facts f = {.memory = m,
			     .placement = p,
			     .domain = d,
			     .fs_trusted = RP_YES,
			     .agent = true};

	return rp_method_choose(&f, c, RP_METHODS_BUILT);
}

Test(method, file_is_synced_for_power_only)
{
	struct rp_choice c;

	c = pick_for(RP_MEM_FILE, RP_PLACE_CPU_USER, 0, RP_CLASS_POWER);
	cr_assert_eq(c.method, RP_METHOD_AGENT_MSYNC);
	cr_assert_eq(c.class, RP_CLASS_POWER);
	c = pick_for(RP_MEM_FILE, RP_PLACE_CPU_USER, 0, RP_CLASS_PROCESS);
	cr_assert_eq(c.method, RP_METHOD_DELIVERY);
	cr_assert_eq(c.class, RP_CLASS_PROCESS);
	c = pick_for(RP_MEM_FILE, RP_PLACE_CPU_KERNEL, 0, RP_CLASS_NONE);
	cr_assert_eq(c.refusal, RP_REFUSAL_NOT_DIRTIED);
}

Test(method, untrusted_file_system)
{
	struct rp_facts f = {.memory = RP_MEM_FILE,
			     .placement = RP_PLACE_CPU_USER,
			     .fs_trusted = RP_UNKNOWN,
			     .agent = true};

	for (int c = RP_CLASS_NONE; c <= RP_CLASS_POWER; c++) {
		struct rp_choice got =
			rp_method_choose(&f, c, RP_METHODS_BUILT);

		cr_assert_eq(got.refusal, RP_REFUSAL_FS);
		cr_assert_not_null(strstr(got.remedy, "FI_OFI_RPMEM_TRUST_FS"));
	}
	f.fs_trusted = RP_YES;
	cr_assert_eq(rp_method_best(&f, RP_METHODS_BUILT).class,
		     RP_CLASS_POWER);
}

Test(method, tmpfs_and_emulation_never_reach_power)
{
	struct rp_choice c;

	c = pick_for(RP_MEM_TMPFS, RP_PLACE_CPU_USER, 0, RP_CLASS_POWER);
	cr_assert_eq(c.refusal, RP_REFUSAL_CLASS);
	cr_assert_eq(c.class, RP_CLASS_PROCESS);
	c = pick_for(RP_MEM_EMULATED, RP_PLACE_CPU_USER, RP_DOMAIN_MEMCTRL,
		     RP_CLASS_PROCESS);
	cr_assert_eq(c.refusal, RP_REFUSAL_CLASS);
	c = pick_for(RP_MEM_EMULATED, RP_PLACE_CPU_USER, 0, RP_CLASS_NONE);
	cr_assert_eq(c.method, RP_METHOD_AGENT_CLWB);
}

/* Kashyap et al. 2019: the WRITE column for buffers in persistent memory. */
Test(method, kashyap_write_to_pm)
{
	static const struct {
		enum rp_domain domain;
		enum rp_placement placement;
		enum rp_method method;
	} cells[] = {
		{RP_DOMAIN_MEMCTRL, RP_PLACE_DMA_CACHE, RP_METHOD_AGENT_CLWB},
		{RP_DOMAIN_MEMCTRL, RP_PLACE_DMA_MEMORY, RP_METHOD_FENCE},
		{RP_DOMAIN_CPUCACHE, RP_PLACE_DMA_CACHE, RP_METHOD_FENCE},
		{RP_DOMAIN_CPUCACHE, RP_PLACE_DMA_MEMORY, RP_METHOD_FENCE},
		{RP_DOMAIN_SYSTEM, RP_PLACE_DMA_CACHE, RP_METHOD_DELIVERY},
		{RP_DOMAIN_SYSTEM, RP_PLACE_DMA_MEMORY, RP_METHOD_DELIVERY},
		{RP_DOMAIN_SYSTEM, RP_PLACE_UNKNOWN, RP_METHOD_FENCE},
	};

	for (size_t i = 0; i < COUNT(cells); i++) {
		struct rp_facts f = {.memory = RP_MEM_DAX_SYNC,
				     .placement = cells[i].placement,
				     .domain = cells[i].domain,
				     .fence = RP_YES,
				     .fs_trusted = RP_YES,
				     .agent = true};
		struct rp_choice c =
			rp_method_choose(&f, RP_CLASS_POWER, ALL_BUILT);

		cr_assert_eq(c.method, cells[i].method, "cell %zu", i);
		/* Without a fence the agent reaches the same class. */
		cr_assert_eq(rp_method_by_agent(&f, c).class, c.class);
		f.fence = i % 2 ? RP_NO : RP_UNKNOWN;
		c = rp_method_choose(&f, RP_CLASS_POWER, RP_METHODS_BUILT);
		if (cells[i].method == RP_METHOD_FENCE)
			cr_assert_eq(c.method,
				     cells[i].domain == RP_DOMAIN_CPUCACHE
					     ? RP_METHOD_AGENT_SFENCE
					     : RP_METHOD_AGENT_CLWB);
	}
}

Test(method, not_built_says_so)
{
	struct rp_facts f = {.memory = RP_MEM_DAX_SYNC,
			     .placement = RP_PLACE_DMA_MEMORY,
			     .domain = RP_DOMAIN_MEMCTRL,
			     .fence = RP_YES,
			     .fs_trusted = RP_YES};
	struct rp_choice c;

	/* The reported reason is the one that remains in the end. */
	c = rp_method_choose(&f, RP_CLASS_POWER,
			     RP_METHOD_BIT(RP_METHOD_DELIVERY));
	cr_assert_eq(c.refusal, RP_REFUSAL_NOT_BUILT);
	cr_assert_not_null(c.remedy);
	c = rp_method_choose(&f, RP_CLASS_POWER, RP_METHODS_BUILT);
	cr_assert_eq(c.refusal, RP_REFUSAL_NO_AGENT);
	/* Method fence needs the agent, too: the agent checks the key. */
	c = rp_method_choose(&f, RP_CLASS_POWER, ALL_BUILT);
	cr_assert_eq(c.refusal, RP_REFUSAL_NO_AGENT);
	f.agent = true;
	c = rp_method_choose(&f, RP_CLASS_POWER, RP_METHODS_BUILT);
	cr_assert_eq(c.method, RP_METHOD_FENCE);
}

/* Without fence and FLUSH, the agent reaches at least the same class. */
static void judge_by_agent(const struct rp_facts *f, enum rp_class required,
			   unsigned int built)
{
	struct rp_choice best = rp_method_best(f, RP_METHODS_BUILT), c;

	c = rp_method_by_agent(f, best);
	cr_assert_neq(c.method, RP_METHOD_FENCE);
	cr_assert_neq(c.method, RP_METHOD_NATIVE);
	if (best.method != RP_METHOD_FENCE && best.method != RP_METHOD_NATIVE)
		cr_assert_eq(c.method, best.method);
	else
		cr_assert_neq(c.method, RP_METHOD_REFUSED, "%s",
			      show(f, required, built));
	cr_assert_eq(c.class, best.class);
}

Test(method, agent_serves_regions_without_fence)
{
	for_all(judge_by_agent, RP_METHODS_BUILT);
}

/* A refusal for the class names the strongest class that can be reached. */
static void judge_weaker(const struct rp_facts *f, enum rp_class required,
			 unsigned int built)
{
	struct rp_choice c = rp_method_choose(f, required, built), weaker;

	if (c.refusal != RP_REFUSAL_CLASS)
		return;
	weaker = rp_method_best(f, ALL_BUILT);
	if (f->agent)
		cr_assert_eq(c.class, weaker.class, "%s",
			     show(f, required, built));
	cr_assert_lt(c.class, required);
}

Test(method, class_refusal_names_the_strongest_class)
{
	for_builds(judge_weaker);
}

/* Each refusal must have a remedy. */
static void judge_remedy(const struct rp_facts *f, enum rp_class required,
			 unsigned int built)
{
	static const char *const word[] = {
		[RP_REFUSAL_VOLATILE] = "MAP_SHARED",
		[RP_REFUSAL_CLASS] = "FI_OFI_RPMEM_CLASS",
		[RP_REFUSAL_FS] = "FI_OFI_RPMEM_TRUST_FS",
		[RP_REFUSAL_NOT_DIRTIED] = "user's mapping",
		[RP_REFUSAL_NO_AGENT] = "Load ofi_rpmem",
		[RP_REFUSAL_NOT_BUILT] = "release",
		[RP_REFUSAL_UNKNOWN] = "shared mapping of an ordinary file",
	};
	struct rp_choice c = rp_method_choose(f, required, built);
	bool unarmed =
		c.refusal == RP_REFUSAL_CLASS && f->domain == RP_DOMAIN_NONE &&
		(f->memory == RP_MEM_DAX || f->memory == RP_MEM_DAX_SYNC);

	if (!c.refusal) {
		cr_assert_null(c.remedy);
		return;
	}
	cr_assert_not_null(strstr(c.remedy, word[c.refusal]), "%s: %s",
			   show(f, required, built), c.remedy);
	cr_assert_lt(strlen(c.remedy), RP_WHY_LEN);
	cr_assert_eq(strstr(c.remedy, "DIMM is not armed") != NULL, unarmed,
		     "%s: %s", show(f, required, built), c.remedy);
}

/* No method makes DAX memory durable in a domain that loses it. */
static void judge_none(const struct rp_facts *f, enum rp_class required,
		       unsigned int built)
{
	struct rp_facts unarmed = *f;

	unarmed.domain = RP_DOMAIN_NONE;
	if (f->memory == RP_MEM_DAX || f->memory == RP_MEM_DAX_SYNC)
		cr_assert_eq(rp_method_best(&unarmed, built).class,
			     RP_CLASS_NONE, "%s", show(f, required, built));
	else if (f->memory == RP_MEM_FILE)
		cr_assert_eq(rp_method_best(&unarmed, built).class,
			     rp_method_best(f, built).class, "%s",
			     show(f, required, built));
}

Test(method, domain_none_loses_dax_only)
{
	for_builds(judge_none);
}

Test(method, each_refusal_has_a_remedy)
{
	for_builds(judge_remedy);
}

Test(method, names)
{
	for (int a = 0; a < RP_METHOD_MAX; a++)
		for (int b = 0; b < a; b++)
			cr_assert_str_neq(rp_method_name(a), rp_method_name(b));
	for (int a = 0; a <= RP_REFUSAL_UNKNOWN; a++)
		for (int b = 0; b < a; b++)
			cr_assert_str_neq(rp_refusal_name(a),
					  rp_refusal_name(b));
	cr_assert_str_eq(rp_method_name(RP_METHOD_MAX), "unknown");
	cr_assert_str_eq(rp_method_name(-1), "unknown");
}

/* Each row has the words of the document, in the same order. */
Test(method, rows_in_words)
{
	struct rp_method_words w;
	size_t i = 0;

	doc_read();
	for (; rp_method_row(i, &w); i++) {
		const struct doc_row *d = &doc[i];

		cr_assert_lt(i, ndoc);
		cr_assert_eq(doc_mask(w.memory, memory_name, MEMORIES),
			     d->memory, "%zu: %s", i, w.memory);
		cr_assert_eq(doc_mask(w.placement, placement_name, PLACEMENTS),
			     d->placement, "%zu: %s", i, w.placement);
		cr_assert_eq(doc_mask(w.domain, domain_name, DOMAINS),
			     d->domain, "%zu: %s", i, w.domain);
		cr_assert_eq(!strcmp(w.needs, "fence"), d->fence);
		cr_assert_eq(!strcmp(w.needs, "native"), d->native);
		cr_assert_eq(!strcmp(w.needs, "untrusted"), d->untrusted);
		cr_assert_eq(doc_method(w.method), (int)d->method);
		if (d->method) {
			cr_assert_str_eq(w.class, rp_class_name(d->class));
		} else {
			cr_assert_eq(w.class[0], 0);
			cr_assert_eq(strncmp(w.method, "refused: ", 9), 0);
			cr_assert_gt(strlen(w.method), 9);
		}
	}
	/* The last row applies when no other row matches. */
	cr_assert(rp_method_row(i - 1, &w));
	cr_assert_str_eq(w.method, "refused: unknown memory");
	cr_assert_eq(i, ndoc);
}
