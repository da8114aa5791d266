/* SPDX-License-Identifier: BSD-2-Clause */
/* The target's memory of both_world.h, and its registrations. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "both_world.h"

void w_check_placed(struct w_reg *g, const uint64_t *cells, size_t n)
{
	struct world *w = g->w;
	size_t first = (size_t)(cells - g->mem);

	W_CHECK(w, !g->gone && first + n <= W_CELLS, "outside a region");
	for (size_t i = first; i < first + n; i++) {
		struct w_number *v = &w->numbers[g->mem[i]];

		W_CHECK(w, g->mem[i] && g->mem[i] <= w->number,
			"cell %zu holds no write: a buffer was used late", i);
		/*
		 * A connection must place nothing after a newer one of its
		 * session was accepted.
		 */
		W_CHECK(w, v->conn >= w->accepted[v->session],
			"cell %zu: number %llu of connection %u comes late", i,
			(unsigned long long)g->mem[i], v->conn);
		v->done = true;
		if (g->kind == W_DELIVERY)
			g->media[i] = g->mem[i];
	}
}

size_t w_cell_of(const struct w_reg *g, const void *p)
{
	return (size_t)((const uint64_t *)p - g->mem);
}

static int op_sync(void *ctx, void *addr, size_t len)
{
	struct w_reg *g = ctx;

	W_CHECK(g->w, !g->gone, "sync of memory that is gone");
	if (g->broken || w_chance(g->w, g->w->rules.sync_fails)) {
		g->broken = true;
		return -EIO;
	}
	memcpy(g->media, g->mem, sizeof(g->media));
	return 0;
}

static void op_flush(void *ctx, const void *addr, size_t len)
{
	struct w_reg *g = ctx;
	size_t at = w_cell_of(g, addr);

	W_CHECK(g->w, !g->gone, "flush of memory that is gone");
	for (size_t i = at; i < at + len / 8 && i < W_CELLS; i++)
		g->written_back[i] = g->mem[i];
}

static void op_drain(void *ctx)
{
	struct w_reg *g = ctx;

	for (size_t i = 0; i < W_CELLS; i++) {
		if (g->written_back[i] == W_NONE)
			continue;
		g->media[i] = g->written_back[i];
		g->written_back[i] = g->device[i] = W_NONE;
	}
}

static void op_store8(void *ctx, uint64_t *addr, uint64_t value)
{
	*addr = value;
	w_check_placed(ctx, addr, 1);
}

static void op_copy(void *ctx, void *to, const void *from, size_t len)
{
	memcpy(to, from, len);
	w_check_placed(ctx, to, len / 8);
}

static void op_stream(void *ctx, void *to, const void *from, size_t len)
{
	op_copy(ctx, to, from, len);
	op_flush(ctx, to, len);
}

static void op_changed(void *ctx, void *addr, size_t len)
{
	w_check_placed(ctx, addr, len / 8);
}

/* This clock stands still: the agent measures that a sync takes no time. */
static uint64_t op_now(void *ctx)
{
	return 0;
}

static const struct rp_facts kinds[W_KINDS] = {
	[W_MSYNC] = {.memory = RP_MEM_FILE, .placement = RP_PLACE_CPU_USER},
	[W_CLWB] = {.memory = RP_MEM_DAX_SYNC,
		    .placement = RP_PLACE_CPU_USER,
		    .domain = RP_DOMAIN_MEMCTRL},
	[W_FENCE] = {.memory = RP_MEM_DAX_SYNC,
		     .placement = RP_PLACE_DMA_MEMORY,
		     .domain = RP_DOMAIN_MEMCTRL,
		     .fence = RP_YES},
	[W_DELIVERY] = {.memory = RP_MEM_DAX_SYNC,
			.placement = RP_PLACE_CPU_USER,
			.domain = RP_DOMAIN_SYSTEM},
};
static const enum rp_method methods[W_KINDS] = {
	RP_METHOD_AGENT_MSYNC, RP_METHOD_AGENT_CLWB, RP_METHOD_FENCE,
	RP_METHOD_DELIVERY};

void w_reg_new(struct world *w, enum w_kind kind, const struct w_reg *before,
	       bool power_cut)
{
	struct w_reg *g = aligned_alloc(4096, sizeof(*g));
	const struct rp_pmem_ops ops = {
		.sync = op_sync,
		.flush = op_flush,
		.drain = op_drain,
		.store8 = op_store8,
		.copy = op_copy,
		.stream = op_stream,
		.changed = op_changed,
		.now = op_now,
		.ctx = g,
	};
	struct rp_key k = {.port = 4711};

	cr_assert(g && w->nregs < W_REGS);
	memset(g, 0, sizeof(*g));
	g->w = w;
	g->kind = kind;
	if (before) {
		memcpy(g->mem, power_cut ? before->media : before->mem,
		       sizeof(g->mem));
		memcpy(g->media, before->media, sizeof(g->media));
	}
	memset(g->written_back, 0xff, sizeof(g->written_back));
	memset(g->device, 0xff, sizeof(g->device));
	g->r.facts = kinds[kind];
	g->r.facts.fs_trusted = RP_YES;
	g->r.facts.agent = true;
	g->r.choice = rp_method_best(&g->r.facts, RP_METHODS_BUILT);
	cr_assert_eq(g->r.choice.method, methods[kind]);
	k.random = seeded_next(&w->rng) >> 24;
	k.class = g->r.choice.class;
	k.method = g->r.choice.method;
	g->r.key = rp_key_make(&k);
	g->r.base = g->mem;
	g->r.addr = 0x7000;
	g->r.len = sizeof(g->mem);
	g->r.writable = true;
	cr_assert_eq(
		rp_pmem_new(g->mem, sizeof(g->mem),
			    rp_method_by_agent(&g->r.facts, g->r.choice).method,
			    NULL, &ops, &g->r.pmem),
		0);
	cr_assert_eq(rp_agent_region_add(w->a, &g->r), 0);
	w->now_reg[kind] = g;
	w->regs[w->nregs++] = g;
}

void w_reg_del(struct world *w, struct w_reg *g)
{
	rp_agent_region_del(w->a, &g->r);
	rp_pmem_delete(g->r.pmem);
	g->r.pmem = NULL;
	g->gone = true;
}

void w_reregister(struct world *w, enum w_kind kind)
{
	struct w_reg *g = w->now_reg[kind];

	if (w->nregs + W_KINDS >= W_REGS)
		return;
	w_reg_del(w, g);
	w_reg_new(w, kind, g, false);
}
