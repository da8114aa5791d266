// SPDX-License-Identifier: BSD-2-Clause
/* The literature's verdicts: complete, and obeyed by the method table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "fault/verdicts.h"

#define ALL_BUILT ((1u << RP_METHOD_MAX) - 2)
#define COUNT(a)  (sizeof(a) / sizeof((a)[0]))

static const char folder[] = RP_SRCDIR "/fabtests/fault";

static struct verdicts v;

static void setup(void)
{
	char path[sizeof(folder) + 32];

	snprintf(path, sizeof(path), "%s/verdicts.tsv", folder);
	cr_assert_eq(verdicts_read(path, &v), 0);
}

static void teardown(void)
{
	verdicts_free(&v);
}

TestSuite(verdicts, .init = setup, .fini = teardown);

static bool judged_singly(const struct verdict_cell *c)
{
	return c->op == VERDICT_WRITE && !c->compound;
}

static const struct verdict_method *find_verdict(const struct verdict_cell *c,
						 enum rp_method m)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->methods[i].method == m)
			return &c->methods[i];
	cr_assert(false, "%s has no row for %s", c->name, rp_method_name(m));
	return NULL;
}

/* Check the cell's name against its facts. Returns its number, 0 to 71. */
static size_t place_in_taxonomy(const struct verdict_cell *c)
{
	static const struct {
		enum rp_domain domain;
		const char *name;
	} domains[] = {
		{RP_DOMAIN_MEMCTRL, "mc"},
		{RP_DOMAIN_CPUCACHE, "cpu"},
		{RP_DOMAIN_SYSTEM, "sys"},
	};
	static const char *const ops[] = {"write", "write-imm", "send"};
	bool ddio = c->facts.placement == RP_PLACE_DMA_CACHE;
	char name[64];
	size_t d = 0;

	while (d < COUNT(domains) && domains[d].domain != c->facts.domain)
		d++;
	cr_assert_lt(d, COUNT(domains), "%s: no such domain", c->name);
	cr_assert(ddio || c->facts.placement == RP_PLACE_DMA_MEMORY);
	cr_assert_eq(c->facts.memory, RP_MEM_DAX_SYNC);
	cr_assert_eq(c->facts.fence, RP_YES);
	cr_assert_eq(c->against, RP_CLASS_POWER);
	snprintf(name, sizeof(name), "%s-%s-%s-%s-%s", domains[d].name,
		 ddio ? "ddio" : "noddio", c->buffers_pm ? "pm" : "dram",
		 ops[c->op], c->compound ? "compound" : "single");
	cr_assert_str_eq(c->name, name);
	return (((d * 2 + ddio) * 2 + c->buffers_pm) * 3 + c->op) * 2 +
	       c->compound;
}

Test(verdicts, the_72_of_the_taxonomy_once_each)
{
	bool seen[72] = {false};
	size_t n = 0;

	for (size_t i = 0; i < v.n; i++) {
		const struct verdict_cell *c = &v.cells[i];
		size_t at;

		if (!c->taxonomy)
			continue;
		at = place_in_taxonomy(c);
		cr_assert_lt(at, COUNT(seen));
		cr_assert_not(seen[at], "%s is a duplicate", c->name);
		seen[at] = true;
		n++;
	}
	cr_assert_eq(n, 72, "%zu cells", n);
}

/* The reader of the verdicts has refused duplicate pairs. */
Test(verdicts, every_method_of_every_cell)
{
	size_t pairs = 0;

	for (size_t i = 0; i < v.n; i++) {
		const struct verdict_cell *c = &v.cells[i];
		size_t alone = c->op == VERDICT_SEND ? (size_t)VERDICT_SENDS
						     : RP_METHOD_MAX - 1;

		cr_assert_eq(c->n, c->compound ? 2 * alone + 1 : alone,
			     "%s has %zu methods", c->name, c->n);
		for (size_t k = 0; k < c->n; k++)
			cr_assert_gt(strlen(c->methods[k].source), 10, "%s %s",
				     c->name, c->methods[k].name);
		pairs += c->n;
	}
	cr_assert_eq(pairs, v.valid + v.forbidden);
}

/* Two writes, waiting or pipelined, have no valid method that one lacks. */
Test(verdicts, compound_follows_single)
{
	for (size_t i = 0; i < v.n; i++) {
		const struct verdict_cell *c = &v.cells[i], *one;
		char name[64];

		if (!c->compound)
			continue;
		snprintf(name, sizeof(name), "%.*ssingle",
			 (int)(strrchr(c->name, '-') + 1 - c->name), c->name);
		one = verdicts_cell(&v, name);
		cr_assert_not_null(one, "%s", name);
		for (size_t k = 0; k < one->n; k++) {
			bool valid = one->methods[k].valid;
			const struct verdict_method *m;

			snprintf(name, sizeof(name), "%s+wait",
				 one->methods[k].name);
			m = verdict_method(c, name);
			cr_assert_not_null(m, "%s %s", c->name, name);
			cr_assert_eq(m->valid, valid, "%s %s", c->name, name);
			snprintf(name, sizeof(name), "%s+pipelined",
				 one->methods[k].name);
			m = verdict_method(c, name);
			cr_assert_not_null(m, "%s %s", c->name, name);
			cr_assert(valid || !m->valid, "%s %s", c->name, name);
		}
		cr_assert_not_null(verdict_method(c, "then"), "%s", c->name);
	}
}

/* The verdicts use the method names of the code. */
Test(verdicts, names_of_methods)
{
	for (size_t i = 0; i < v.n; i++) {
		const struct verdict_cell *c = &v.cells[i];

		for (size_t k = 0; k < c->n; k++) {
			const struct verdict_method *m = &c->methods[k];
			const char *name = rp_method_name(m->method);
			size_t len = strcspn(m->name, "+");

			if (c->op == VERDICT_SEND || m->order == VERDICT_THEN)
				continue;
			cr_assert_eq(strlen(name), len, "%s", m->name);
			cr_assert_eq(strncmp(m->name, name, len), 0, "%s",
				     m->name);
		}
	}
}

/* A build that lacks a method must not choose a forbidden one instead. */
Test(verdicts, the_table_picks_no_forbidden_method)
{
	for (size_t i = 0; i < v.n; i++) {
		const struct verdict_cell *c = &v.cells[i];

		if (!judged_singly(c))
			continue;
		for (unsigned int k = 0; k < 3u << (RP_METHOD_MAX - 1); k++) {
			struct rp_facts f = c->facts;
			struct rp_choice got;

			f.native = k % 3;
			got = rp_method_choose(&f, c->against, k / 3 << 1);
			cr_assert(got.method == RP_METHOD_REFUSED ||
					  find_verdict(c, got.method)->valid,
				  "%s: \"%s\" picks %s, forbidden: %s", c->name,
				  got.row, rp_method_name(got.method),
				  find_verdict(c, got.method)->source);
		}
	}
}

/* Methods, cheapest first, except native, which has its own row. */
static const enum rp_method by_cost[] = {
	RP_METHOD_DELIVERY,   RP_METHOD_FENCE,	     RP_METHOD_AGENT_SFENCE,
	RP_METHOD_AGENT_CLWB, RP_METHOD_AGENT_MSYNC, RP_METHOD_AGENT_CLWB_MSYNC,
};

static enum rp_method cheapest_method(const struct verdict_cell *c)
{
	for (size_t i = 0; i < COUNT(by_cost); i++)
		if (find_verdict(c, by_cost[i])->valid)
			return by_cost[i];
	return RP_METHOD_REFUSED;
}

/* Cells where the table refuses or does more than necessary, and why. */
static const struct more {
	const char *cell;
	enum rp_method picked;
	const char *why;
} more[] = {
	/* Refused at class power, although msync works for a DAX file. */
	{"x-dax-sync-cpu-user-unknown", RP_METHOD_REFUSED,
	 "msync fails on devdax, which the facts do not tell from a file"},
	/* The verdicts take it that the kernel writes back lines. */
	{"x-dax-cpu-user-mc", RP_METHOD_AGENT_CLWB_MSYNC,
	 "dax/write_cache may keep msync from writing lines back"},
	{"x-dax-cpu-user-cpu", RP_METHOD_AGENT_CLWB_MSYNC,
	 "dax/write_cache may keep msync from writing lines back"},
	{"x-dax-cpu-user-sys", RP_METHOD_AGENT_CLWB_MSYNC,
	 "dax/write_cache may keep msync from writing lines back"},
	{"x-dax-cpu-user-unknown", RP_METHOD_AGENT_CLWB_MSYNC,
	 "dax/write_cache may keep msync from writing lines back"},
	/* This row covers all domains and placements. */
	{"x-dax-cpu-kernel-cpu", RP_METHOD_AGENT_CLWB_MSYNC,
	 "the row does not look at the domain"},
	{"x-dax-cpu-kernel-sys", RP_METHOD_AGENT_CLWB_MSYNC,
	 "the row does not look at the domain"},
	{"x-dax-dma-cache-cpu", RP_METHOD_AGENT_CLWB_MSYNC,
	 "the row does not look at the domain"},
	{"x-dax-dma-cache-sys", RP_METHOD_AGENT_CLWB_MSYNC,
	 "the row does not look at the domain"},
	{"x-dax-dma-memory-cpu", RP_METHOD_AGENT_CLWB_MSYNC,
	 "the row does not look at the domain"},
	{"x-dax-dma-memory-sys", RP_METHOD_AGENT_CLWB_MSYNC,
	 "the row does not look at the domain"},
	{"x-dax-unknown-cpu", RP_METHOD_AGENT_CLWB_MSYNC,
	 "the row does not look at the domain"},
	{"x-dax-unknown-sys", RP_METHOD_AGENT_CLWB_MSYNC,
	 "the row does not look at the domain"},
	{"x-dax-sync-unknown-sys-nofence", RP_METHOD_AGENT_CLWB,
	 "agent-sfence has no row for the whole system"},
};

Test(verdicts, refusals_and_detours_are_known)
{
	bool met[COUNT(more)] = {false};

	for (size_t i = 0; i < v.n; i++) {
		const struct verdict_cell *c = &v.cells[i];
		enum rp_method got, best;
		size_t k = 0;

		if (!judged_singly(c))
			continue;
		got = rp_method_choose(&c->facts, c->against, ALL_BUILT).method;
		best = cheapest_method(c);
		if (got == best)
			continue;
		while (k < COUNT(more) &&
		       (strcmp(more[k].cell, c->name) || more[k].picked != got))
			k++;
		cr_assert_lt(k, COUNT(more), "%s: %s, though %s would do",
			     c->name, rp_method_name(got),
			     rp_method_name(best));
		met[k] = true;
	}
	for (size_t k = 0; k < COUNT(more); k++)
		cr_assert(met[k], "%s is no longer so (%s): off the list",
			  more[k].cell, more[k].why);
}

static int read_text(const char *text)
{
	char path[] = "./verdicts.XXXXXX";
	struct verdicts got = {.cells = NULL};
	int fd = mkstemp(path), ret;

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	ret = verdicts_read(path, &got);
	unlink(path);
	verdicts_free(&got);
	return ret;
}

#define FACTS	   "dax-sync\tdma-cache\tsystem\tyes\tdram\twrite\tsingle\t"
#define ROW(c, m)  c "\t" FACTS m "\tpower\tvalid\tbecause\n"
#define OTHER_CELL "b\t" FACTS "fence\tpower\tvalid\tbecause\n"

Test(verdicts, a_wrong_file_is_not_read)
{
	cr_assert_eq(read_text(ROW("a", "fence") ROW("a", "native")), 0);
	cr_assert_lt(read_text(ROW("a", "fence") ROW("a", "fence")), 0);
	cr_assert_lt(read_text(ROW("a", "fence") OTHER_CELL ROW("a", "native")),
		     0);
	cr_assert_lt(read_text(ROW("a", "fence+wait")), 0);
	cr_assert_lt(read_text(ROW("a", "then")), 0);
	cr_assert_lt(read_text(ROW("a", "fenc")), 0);
	cr_assert_lt(read_text("a\t" FACTS "fence\tpower\tvalid\n"), 0);
	cr_assert_lt(read_text("a\t" FACTS "fence\tpower\tvalid\t\n"), 0);
	cr_assert_lt(read_text("a\t" FACTS "fence\tpower\tmaybe\tso\n"), 0);
	cr_assert_lt(read_text("a\t" FACTS "fence\tpower\tvalid\tso\tso\n"), 0);
	cr_assert_lt(read_text(ROW("a", "fence") "\n"), 0);
	cr_assert_lt(verdicts_read("./no-such-file", &v), 0);
}

/* The crash matrix must convict the same pairs, by its own reader. */
static void compare_with_script(const char *option, bool valid)
{
	char command[sizeof(folder) + 64], line[256];
	size_t n = 0;
	FILE *f;

	snprintf(command, sizeof(command), "python3 '%s/forbidden_pairs' %s",
		 folder, option);
	f = popen(command, "r");
	cr_assert_not_null(f);
	while (fgets(line, sizeof(line), f)) {
		const struct verdict_cell *c;
		const struct verdict_method *m;
		char *method = strchr(line, '\t');

		cr_assert_not_null(method, "%s", line);
		*method++ = '\0';
		method[strcspn(method, "\n")] = '\0';
		c = verdicts_cell(&v, line);
		cr_assert_not_null(c, "%s", line);
		m = verdict_method(c, method);
		cr_assert_not_null(m, "%s %s", line, method);
		cr_assert_eq(m->valid, valid, "%s %s", line, method);
		n++;
	}
	cr_assert_eq(pclose(f), 0);
	cr_assert_eq(n, valid ? v.valid : v.forbidden, "%zu pairs", n);
}

Test(verdicts, the_script_lists_the_same_pairs)
{
	if (system("python3 -c '' 2>/dev/null"))
		cr_skip_test("no python3 here");
	compare_with_script("", false);
	compare_with_script("--valid", true);
}
