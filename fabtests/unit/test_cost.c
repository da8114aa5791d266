// SPDX-License-Identifier: BSD-2-Clause
/* The cost model: the points that it fits, and the order of methods. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/cost.h"
#include "method_rig.h"

static const struct rp_cost *const c = &rp_cost_default;
static const uint64_t sizes[] = {1, 8, 64, 4096, 65536, 1 << 20, 1ull << 40};

static uint64_t cost_of(const struct rp_cost_line *l, uint64_t bytes)
{
	return l->ns + bytes * l->ps / 1000;
}

/* Within a hundredth of the measured ns. */
static void expect_near(uint64_t got, uint64_t measured)
{
	uint64_t off = got > measured ? got - measured : measured - got;

	cr_assert_leq(off * 100, measured, "%lu, measured %lu",
		      (unsigned long)got, (unsigned long)measured);
}

Test(cost, measured_points)
{
	const struct rp_cost_path *cpu = &c->path[RP_PATH_CPU];
	const struct rp_cost_path *dma = &c->path[RP_PATH_DMA];
	uint64_t clwb = rp_cost_flush(c, RP_METHOD_AGENT_CLWB, 64);

	expect_near(cost_of(&cpu->write, 64), 8800);
	expect_near(cost_of(&cpu->write, 65536), 39300);
	expect_near(cost_of(&cpu->write, 64) + cpu->ask_ns + clwb, 21000);
	expect_near(cost_of(&cpu->store, 64) + cost_of(&c->stream, 64), 13200);
	expect_near(cost_of(&cpu->store, 65536) + cost_of(&c->stream, 65536),
		    60800);
	expect_near(cpu->fence_ns, 11600);
	expect_near(cpu->fence_ns + 64 * cpu->fences_ns - cpu->fence_ns,
		    371000);
	expect_near(cost_of(&dma->write, 64), 1400);
	expect_near(cost_of(&dma->write, 64) + dma->fence_ns, 2900);
	expect_near(cost_of(&dma->write, 64) + dma->ask_ns + clwb, 4350);
	expect_near(cost_of(&dma->store, 64) + cost_of(&c->stream, 64), 2300);
	expect_near(clwb, 117);
	expect_near(rp_cost_flush(c, RP_METHOD_AGENT_CLWB, 65536), 30000);
	expect_near(cost_of(&c->stream, 65536), 9800);
	expect_near(rp_cost_flush(c, RP_METHOD_AGENT_MSYNC, 4096), 360000);
	expect_near(rp_cost_flush(c, RP_METHOD_AGENT_CLWB_MSYNC, 65536),
		    390000);
	cr_assert_eq(rp_cost_flush(c, RP_METHOD_DELIVERY, 65536), 0);
}

/* A figure by its name in the document. */
static struct rp_cost_line figure_of(const char *name)
{
	static const char *const paths[RP_PATHS] = {"unknown ", "cpu ", "dma "};
	enum rp_method m = rp_method_parse(name);

	if (m != RP_METHOD_REFUSED)
		return c->flush[m];
	if (!strcmp(name, "stream"))
		return c->stream;
	for (int p = 0; p < RP_PATHS; p++) {
		const struct rp_cost_path *at = &c->path[p];
		const char *what = name + strlen(paths[p]);

		if (strncmp(name, paths[p], strlen(paths[p])))
			continue;
		if (!strcmp(what, "write"))
			return at->write;
		if (!strcmp(what, "store"))
			return at->store;
		if (!strcmp(what, "ask"))
			return (struct rp_cost_line){.ns = at->ask_ns};
		if (!strcmp(what, "fence"))
			return (struct rp_cost_line){.ns = at->fence_ns};
		if (!strcmp(what, "fences"))
			return (struct rp_cost_line){.ns = at->fences_ns};
	}
	cr_assert(false, "no figure '%s'", name);
	return (struct rp_cost_line){0};
}

Test(cost, document)
{
	FILE *f = fopen(RP_SRCDIR "/docs/operating.md", "r");
	char text[256], name[64];
	struct rp_cost_line got;
	unsigned int ns, ps;
	bool inside = false;
	size_t n = 0;

	cr_assert_not_null(f);
	while (fgets(text, sizeof(text), f)) {
		if (strstr(text, "<!-- cost table"))
			inside = true;
		else if (strstr(text, "<!-- end of cost table"))
			inside = false;
		if (!inside ||
		    sscanf(text, "| %63[^|] | %u | %u |", name, &ns, &ps) != 3)
			continue;
		while (name[strlen(name) - 1] == ' ')
			name[strlen(name) - 1] = '\0';
		got = figure_of(name);
		cr_assert_eq(got.ns, ns, "%s: %u ns", name, got.ns);
		cr_assert_eq(got.ps, ps, "%s: %u ps", name, got.ps);
		n++;
	}
	fclose(f);
	/* The document has every figure. */
	cr_assert_eq(n, (RP_PATHS - 1) * 5 + 4 + 1);
}

/* The cost of one range in addition to its writes. */
static uint64_t cost_beyond_writes(enum rp_path path, enum rp_method m,
				   uint64_t bytes)
{
	switch (m) {
	case RP_METHOD_DELIVERY:
		return 0;
	case RP_METHOD_FENCE:
	case RP_METHOD_NATIVE: /* as many messages; no device has it */
		return c->path[path].fence_ns;
	default:
		return c->path[path].ask_ns + rp_cost_flush(c, m, bytes);
	}
}

/*
 * Among the valid methods the first matching row is the cheapest, on each
 * measured path: therefore a target may take it.
 */
static void judge_order(const struct rp_facts *f, enum rp_class required,
			unsigned int built)
{
	struct rp_choice first = rp_method_choose(f, required, built), other;

	if (first.method == RP_METHOD_REFUSED)
		return;
	for (int m = RP_METHOD_DELIVERY; m < RP_METHOD_MAX; m++) {
		other = rp_method_choose(f, required, built & RP_METHOD_BIT(m));
		if (other.method == RP_METHOD_REFUSED)
			continue;
		/* Delivery is free, but depends on known placement. */
		if (first.method == RP_METHOD_NATIVE && m == RP_METHOD_DELIVERY)
			continue;
		for (size_t i = 0; i < COUNT(sizes); i++)
			for (int p = RP_PATH_CPU; p < RP_PATHS; p++)
				cr_assert_leq(
					cost_beyond_writes(p, first.method,
							   sizes[i]),
					cost_beyond_writes(p, m, sizes[i]),
					"%s: %s is dearer than %s",
					show(f, required, built),
					rp_method_name(first.method),
					rp_method_name(m));
	}
}

Test(cost, the_table_is_in_this_order)
{
	for_all(judge_order, RP_METHODS_BUILT);
}

Test(cost, more_is_never_cheaper)
{
	for (int m = 0; m < RP_METHOD_MAX; m++)
		for (size_t i = 1; i < COUNT(sizes); i++)
			cr_assert_leq(rp_cost_flush(c, m, sizes[i - 1]),
				      rp_cost_flush(c, m, sizes[i]));
	/* Costs saturate instead of wrapping. */
	cr_assert_eq(rp_cost_flush(c, RP_METHOD_AGENT_CLWB, UINT64_MAX),
		     UINT64_MAX);
}

/* n fences on one path, the first of which waits for a round trip. */
static uint64_t fences_cost(const struct rp_cost_path *p, uint64_t n)
{
	return p->fence_ns + (n - 1) * p->fences_ns;
}

Test(cost, fences_or_a_request)
{
	uint64_t line64 = rp_cost_flush(c, RP_METHOD_AGENT_CLWB, 64);
	const struct rp_cost_path *dma = &c->path[RP_PATH_DMA];
	const struct rp_cost_path *cpu = &c->path[RP_PATH_CPU];

	cr_assert_eq(fences_cost(dma, 1), 1500);
	cr_assert_eq(fences_cost(dma, 3), 3000);
	cr_assert_lt(fences_cost(dma, 3), dma->ask_ns + 3 * line64);
	cr_assert_gt(fences_cost(dma, 4), dma->ask_ns + 4 * line64);
	cr_assert_lt(fences_cost(cpu, 1), cpu->ask_ns + line64);
}

static size_t store_max(const struct rp_cost *cost, enum rp_path path,
			enum rp_method m, size_t limit)
{
	size_t n = rp_cost_store_max(cost, path, m, limit);

	cr_assert_leq(n, limit);
	return n;
}

Test(cost, inside_the_request)
{
	struct rp_cost mine = *c;
	struct rp_cost_path *p = &mine.path[RP_PATH_CPU];

	for (int m = RP_METHOD_AGENT_SFENCE; m < RP_METHOD_MAX; m++) {
		cr_assert_eq(store_max(c, RP_PATH_CPU, m, 4096), 4096);
		cr_assert_eq(store_max(c, RP_PATH_DMA, m, 4096), 4096);
		cr_assert_eq(store_max(c, RP_PATH_UNKNOWN, m, 4096), 0);
		cr_assert_eq(store_max(c, RP_PATH_CPU, m, 0), 0);
	}
	/* Methods without write-back: 29,000 bytes with these figures. */
	cr_assert_eq(
		store_max(c, RP_PATH_CPU, RP_METHOD_AGENT_SFENCE, 1 << 20) /
			1000,
		29);
	/* Exact: a request costs 1000 ns more, a stored byte 1 ns more. */
	mine.stream = (struct rp_cost_line){0};
	p->write = (struct rp_cost_line){.ns = 100, .ps = 1000};
	p->ask_ns = 1000;
	p->store = (struct rp_cost_line){.ns = 100, .ps = 2000};
	mine.flush[RP_METHOD_AGENT_SFENCE] = (struct rp_cost_line){0};
	cr_assert_eq(
		store_max(&mine, RP_PATH_CPU, RP_METHOD_AGENT_SFENCE, 4096),
		1000);
	cr_assert_eq(
		store_max(&mine, RP_PATH_CPU, RP_METHOD_AGENT_SFENCE, 1000),
		1000);
	cr_assert_eq(store_max(&mine, RP_PATH_CPU, RP_METHOD_AGENT_SFENCE, 999),
		     999);
	/* The lines may cross, and the limit may lie, anywhere. */
	for (uint32_t at = 0; at < 20; at++) {
		p->ask_ns = at;
		for (size_t limit = 1; limit < 40; limit++)
			cr_assert_eq(store_max(&mine, RP_PATH_CPU,
					       RP_METHOD_AGENT_SFENCE, limit),
				     limit < at ? limit : at);
	}
	p->ask_ns = 1000;
	/* Streaming costs time, too. */
	mine.stream.ps = 1000;
	cr_assert_eq(
		store_max(&mine, RP_PATH_CPU, RP_METHOD_AGENT_SFENCE, 4096),
		500);
	/* Streamed bytes need no write-back; msync is needed in either case. */
	mine.flush[RP_METHOD_AGENT_CLWB] = (struct rp_cost_line){.ps = 1000};
	cr_assert_eq(store_max(&mine, RP_PATH_CPU, RP_METHOD_AGENT_CLWB, 4096),
		     1000);
	cr_assert_eq(store_max(&mine, RP_PATH_CPU, RP_METHOD_AGENT_MSYNC, 4096),
		     500);
	mine.flush[RP_METHOD_AGENT_CLWB_MSYNC].ps = 1000;
	mine.flush[RP_METHOD_AGENT_CLWB_MSYNC].ns = 360000;
	cr_assert_eq(
		store_max(&mine, RP_PATH_CPU, RP_METHOD_AGENT_CLWB_MSYNC, 4096),
		1000);
	/* A store that costs more from the first byte on. */
	p->store.ns = 10000;
	cr_assert_eq(
		store_max(&mine, RP_PATH_CPU, RP_METHOD_AGENT_SFENCE, 4096), 0);
}

Test(cost, paths)
{
	struct rp_nic nic = {.placement = RP_PLACE_CPU_USER};

	cr_assert_eq(rp_cost_path_of(&nic), RP_PATH_CPU);
	nic.placement = RP_PLACE_CPU_KERNEL;
	cr_assert_eq(rp_cost_path_of(&nic), RP_PATH_CPU);
	nic.placement = RP_PLACE_UNKNOWN;
	cr_assert_eq(rp_cost_path_of(&nic), RP_PATH_UNKNOWN);
	/* With DDIO on or unknown, the path is that of an adapter. */
	nic.pci[0] = '0';
	cr_assert_eq(rp_cost_path_of(&nic), RP_PATH_DMA);
	nic.placement = RP_PLACE_DMA_CACHE;
	cr_assert_eq(rp_cost_path_of(&nic), RP_PATH_DMA);
	nic.placement = RP_PLACE_DMA_MEMORY;
	cr_assert_eq(rp_cost_path_of(&nic), RP_PATH_DMA);
}
