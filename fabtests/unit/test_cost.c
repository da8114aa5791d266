// SPDX-License-Identifier: BSD-2-Clause
/*
 * The measured costs that justify two choices of the provider: the order of the
 * method table, and the default of FI_OFI_RPMEM_INLINE.
 */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/wire.h"
#include "method_rig.h"

/* A duration: nanoseconds, plus picoseconds for each byte. */
struct line {
	uint32_t ns;
	uint32_t ps;
};

enum path {
	PATH_CPU, /* CPUs copy at both ends: tcp */
	PATH_DMA, /* an adapter places: verbs on a PCI device */
	PATHS
};

struct cost {
	struct path_cost {
		struct line write; /* until the write is acknowledged */
		/* In addition to the write: */
		uint32_t request_ns; /* request behind the write, and reply */
		uint32_t fence_ns;   /* one read behind the write */
		uint32_t fences_ns;  /* each further read behind the write */
		/* Instead of both: a request that carries the bytes. */
		struct line store;
	} path[PATHS];
	/* The time that the agent needs for each range. */
	struct line flush[RP_METHOD_MAX];
	struct line stream; /* non-temporal stores of the range */
};

/*
 * Sources of the figures. "here": medians of one pair of processes over
 * loopback, tcp;ofi_rxm of libfabric 1.17, two virtual CPUs, polling, and a
 * prototype of the protocol. "Kalia": A. Kalia, D. Andersen, M. Kaminsky,
 * Challenges and Solutions for Fast Remote Persistent Memory Access, 2020,
 * section 4.3 (ConnectX-3, 56 Gbit/s, Optane). "Douglas": see
 *util/method_advice.c.
 *
 *	      figure		      measured
 * CPU  write	      here: 64 B 8.8 us, 64 KiB 39.3 us
 *	ask	      here: write, request, clwb, reply of 64 B 21.0 us.
 *		      (64 KiB 63.7 us: the request travels while the write is
 *		      acknowledged. Not counted.)
 *	fence	      here: round trip of 64 B 11.6 us
 *	fences	      here: 64 writes of 64 B at once 371 us
 *	store	      here: 64 B 13.2 us, 64 KiB 60.8 us, less stream
 * DMA  write	      Kalia: 64 B 1.4 us
 *	ask	      Douglas: in all "~50% higher" than by a fence; less clwb
 *	fence	      Kalia: write and fence of 64 B 2.9 us, DDIO off
 *	fences	      not measured: half of the first
 *	store	      Kalia: 64 B by RPC 2.3 us, less stream
 * agent sfence       here: 10 ns without stores to wait for
 *	clwb	      here: 64 B 117 ns, 64 KiB 30 us; Douglas: 110 ns, 30.8 us
 *	msync	      here: 4 KiB on ext4 360 us, and bytes hardly count
 *	stream	      here: 64 B 51 ns, 64 KiB 9.8 us
 */
#define CLWB_NS	 88
#define CLWB_PS	 456
#define MSYNC_NS 360000

static const struct cost figures = {
	.path[PATH_CPU].write = {.ns = 8770, .ps = 466},
	.path[PATH_CPU].request_ns = 12080,
	.path[PATH_CPU].fence_ns = 11600,
	.path[PATH_CPU].fences_ns = 5800,
	.path[PATH_CPU].store = {.ns = 13110, .ps = 579},

	.path[PATH_DMA].write = {.ns = 1400, .ps = 143},
	.path[PATH_DMA].request_ns = 2830,
	.path[PATH_DMA].fence_ns = 1500,
	.path[PATH_DMA].fences_ns = 750,
	.path[PATH_DMA].store = {.ns = 2230, .ps = 143},

	.flush[RP_METHOD_AGENT_SFENCE] = {.ns = 10},
	.flush[RP_METHOD_AGENT_CLWB] = {.ns = CLWB_NS, .ps = CLWB_PS},
	.flush[RP_METHOD_AGENT_MSYNC] = {.ns = MSYNC_NS},
	.flush[RP_METHOD_AGENT_CLWB_MSYNC] = {.ns = CLWB_NS + MSYNC_NS,
					      .ps = CLWB_PS},
	.stream = {.ns = 41, .ps = 149},
};

static const struct cost *const c = &figures;
static const uint64_t sizes[] = {1, 8, 64, 4096, 65536, 1 << 20, 1ull << 40};

static uint64_t cost_of(const struct line *l, uint64_t bytes)
{
	return l->ns + bytes * l->ps / 1000;
}

static uint64_t flush_cost(enum rp_method m, uint64_t bytes)
{
	return cost_of(&c->flush[m], bytes);
}

/* The modelled time must be within a hundredth of the measured one. */
static void expect_near(uint64_t got, uint64_t measured)
{
	uint64_t off = got > measured ? got - measured : measured - got;

	cr_assert_leq(off * 100, measured, "%lu, measured %lu",
		      (unsigned long)got, (unsigned long)measured);
}

Test(cost, measured_points)
{
	const struct path_cost *cpu = &c->path[PATH_CPU];
	const struct path_cost *dma = &c->path[PATH_DMA];
	uint64_t clwb = flush_cost(RP_METHOD_AGENT_CLWB, 64);

	expect_near(cost_of(&cpu->write, 64), 8800);
	expect_near(cost_of(&cpu->write, 65536), 39300);
	expect_near(cost_of(&cpu->write, 64) + cpu->request_ns + clwb, 21000);
	expect_near(cost_of(&cpu->store, 64) + cost_of(&c->stream, 64), 13200);
	expect_near(cost_of(&cpu->store, 65536) + cost_of(&c->stream, 65536),
		    60800);
	expect_near(cpu->fence_ns, 11600);
	expect_near(cpu->fence_ns + 64 * cpu->fences_ns - cpu->fence_ns,
		    371000);
	expect_near(cost_of(&dma->write, 64), 1400);
	expect_near(cost_of(&dma->write, 64) + dma->fence_ns, 2900);
	expect_near(cost_of(&dma->write, 64) + dma->request_ns + clwb, 4350);
	expect_near(cost_of(&dma->store, 64) + cost_of(&c->stream, 64), 2300);
	expect_near(clwb, 117);
	expect_near(flush_cost(RP_METHOD_AGENT_CLWB, 65536), 30000);
	expect_near(cost_of(&c->stream, 65536), 9800);
	expect_near(flush_cost(RP_METHOD_AGENT_MSYNC, 4096), 360000);
	expect_near(flush_cost(RP_METHOD_AGENT_CLWB_MSYNC, 65536), 390000);
	cr_assert_eq(flush_cost(RP_METHOD_DELIVERY, 65536), 0);
}

/* The figure with this name in the document. */
static struct line figure_of(const char *name)
{
	static const char *const paths[PATHS] = {"cpu ", "dma "};
	enum rp_method m = rp_method_parse(name);

	if (m != RP_METHOD_REFUSED)
		return c->flush[m];
	if (!strcmp(name, "stream"))
		return c->stream;
	for (int p = 0; p < PATHS; p++) {
		const struct path_cost *at = &c->path[p];
		const char *what = name + strlen(paths[p]);

		if (strncmp(name, paths[p], strlen(paths[p])))
			continue;
		if (!strcmp(what, "write"))
			return at->write;
		if (!strcmp(what, "store"))
			return at->store;
		if (!strcmp(what, "ask"))
			return (struct line){.ns = at->request_ns};
		if (!strcmp(what, "fence"))
			return (struct line){.ns = at->fence_ns};
		if (!strcmp(what, "fences"))
			return (struct line){.ns = at->fences_ns};
	}
	cr_assert(false, "no figure '%s'", name);
	return (struct line){0};
}

Test(cost, document_has_the_figures_of_the_code)
{
	FILE *f = fopen(RP_SRCDIR "/docs/operating.md", "r");
	char text[256], name[64];
	struct line got;
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
	/* The document must have all figures. */
	cr_assert_eq(n, PATHS * 5 + 4 + 1);
}

/* The cost of one range, without the cost of its writes. */
static uint64_t cost_beyond_writes(enum path path, enum rp_method m,
				   uint64_t bytes)
{
	switch (m) {
	case RP_METHOD_DELIVERY:
		return 0;
	case RP_METHOD_FENCE:
	case RP_METHOD_NATIVE: /* as a fence; not measured on any device */
		return c->path[path].fence_ns;
	default:
		return c->path[path].request_ns + flush_cost(m, bytes);
	}
}

/*
 * On each measured path, the first matching row of the method table is the
 * cheapest of the valid ones.
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
		/* Delivery costs nothing, but needs known placement. */
		if (first.method == RP_METHOD_NATIVE && m == RP_METHOD_DELIVERY)
			continue;
		for (size_t i = 0; i < COUNT(sizes); i++)
			for (int p = 0; p < PATHS; p++)
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

Test(cost, first_row_of_the_table_is_the_cheapest)
{
	for_all(judge_order, RP_METHODS_BUILT);
}

/*
 * A request that carries the bytes costs less than a write and a request behind
 * it, up to the default of FI_OFI_RPMEM_INLINE. Streamed bytes need no clwb; a
 * file needs its msync in both cases.
 */
Test(cost, writes_of_the_default_length_are_cheaper_inside_the_request)
{
	for (int p = 0; p < PATHS; p++)
		for (int m = RP_METHOD_AGENT_SFENCE; m < RP_METHOD_MAX; m++)
			for (uint64_t n = 1; n <= RP_WIRE_MAX_STORE; n++) {
				const struct path_cost *at = &c->path[p];
				uint64_t in = cost_of(&at->store, n) +
					      cost_of(&c->stream, n);

				if (m == RP_METHOD_AGENT_MSYNC ||
				    m == RP_METHOD_AGENT_CLWB_MSYNC)
					in += MSYNC_NS;
				cr_assert_leq(in, cost_of(&at->write, n) +
							  at->request_ns +
							  flush_cost(m, n));
			}
}
