/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions of fake persistent memory of agent_bed.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <criterion/criterion.h>

#include "agent_bed_priv.h"
#include "disk.h"

/*
 * Map the pages below a large inaccessible gap: the kernel then places other
 * mappings in the gap, and not in holes that a test makes in these pages.
 */
static void *map_pages(size_t n)
{
	const size_t gap = 1 << 30, len = n * BED_PAGE;
	char *p = mmap(NULL, len + gap, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	cr_assert_neq(p, MAP_FAILED);
	munmap(p + len, gap);
	cr_assert_eq(mprotect(p, len, PROT_READ | PROT_WRITE), 0);
	return p;
}

static void check_inside(struct bed_region *m, const void *addr, size_t len)
{
	const uint8_t *p = addr;

	MUST(!m->gone);
	MUST(p >= m->mem && p + len <= m->mem + m->npages * BED_PAGE);
}

static int pmem_sync(void *ctx, void *addr, size_t len)
{
	struct bed_region *m = ctx;
	struct bed *g = m->bed;
	size_t at = (uint8_t *)addr - m->mem;

	pthread_mutex_lock(&g->lock);
	g->entered++;
	pthread_cond_broadcast(&g->changed);
	while (g->gate_closed)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);

	check_inside(m, addr, len);
	MUST(at % BED_PAGE == 0 && len % BED_PAGE == 0);
	atomic_fetch_add(&m->syncs, 1);
	if (m->sync_ret)
		return m->sync_ret;
	disk_reads(m->media + at, m->mem + at, len);
	return 0;
}

static void flush_to_way(struct bed_region *m, const void *addr, size_t len)
{
	size_t at = (const uint8_t *)addr - m->mem;

	check_inside(m, addr, len);
	if (!m->dirty_way)
		memcpy(m->way, m->media, m->npages * BED_PAGE);
	m->dirty_way = true;
	memcpy(m->way + at, m->mem + at, len);
}

static void pmem_flush(void *ctx, const void *addr, size_t len)
{
	struct bed_region *m = ctx;

	atomic_fetch_add(&m->flushes, 1);
	flush_to_way(m, addr, len);
}

static void pmem_drain(void *ctx)
{
	struct bed_region *m = ctx;

	MUST(!m->gone);
	atomic_fetch_add(&m->drains, 1);
	/*
	 * Method agent-sfence: the caches are persistent, so bytes in mem count
	 * as bytes on media.
	 */
	if (m->r.choice.method == RP_METHOD_AGENT_SFENCE)
		memcpy(m->media, m->mem, m->npages * BED_PAGE);
	if (m->dirty_way)
		memcpy(m->media, m->way, m->npages * BED_PAGE);
	m->dirty_way = false;
}

static bool is_on_media(const struct bed_at *at)
{
	return !memcmp(at->m->mem + BED_SKEW + at->off,
		       at->m->media + BED_SKEW + at->off, at->len);
}

static void p_store8(void *ctx, uint64_t *addr, uint64_t value)
{
	struct bed_region *m = ctx;
	struct bed *g = m->bed;

	check_inside(m, addr, sizeof(value));
	MUST((uintptr_t)addr % sizeof(value) == 0);
	for (int i = 0; i < 2; i++)
		MUST(!g->must_be_durable[i].m ||
		     is_on_media(&g->must_be_durable[i]));
	atomic_fetch_add(&m->stores, 1);
	*addr = value;
}

static void pmem_copy(void *ctx, void *to, const void *from, size_t len)
{
	struct bed_region *m = ctx;

	check_inside(m, to, len);
	atomic_fetch_add(&m->stores, 1);
	memcpy(to, from, len);
}

static void pmem_stream(void *ctx, void *to, const void *from, size_t len)
{
	struct bed_region *m = ctx;

	MUST((uintptr_t)to % 64 == 0 && len && len % 64 == 0);
	check_inside(m, to, len);
	atomic_fetch_add(&m->streams, 1);
	memcpy(to, from, len);
	flush_to_way(m, to, len);
}

static void pmem_changed(void *ctx, void *addr, size_t len)
{
	struct bed_region *m = ctx;

	check_inside(m, addr, len);
	atomic_fetch_add(&m->changes, 1);
}

/* This clock stands still: the agent measures that a sync takes no time. */
static uint64_t pmem_now(void *ctx)
{
	return 0;
}

static uint64_t new_key(const struct rp_choice *c)
{
	static uint64_t made = 0x5eed000000;
	const struct rp_key k = {
		.class = c->class,
		.method = c->method,
		.port = 4711,
		.random = ++made,
	};

	return rp_key_make(&k);
}

uint64_t bed_unknown_key(void)
{
	const struct rp_choice c = {
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_CLWB,
	};

	return new_key(&c);
}

void bed_region_facts(struct bed *g, struct bed_region *m,
		      const struct rp_facts *facts, size_t npages)
{
	const struct rp_pmem_ops pmem_ops = {
		.sync = pmem_sync,
		.flush = pmem_flush,
		.drain = pmem_drain,
		.store8 = p_store8,
		.copy = pmem_copy,
		.stream = pmem_stream,
		.changed = pmem_changed,
		.now = pmem_now,
		.ctx = m,
	};
	enum rp_method method;

	memset(m, 0, sizeof(*m));
	m->bed = g;
	m->npages = npages;
	m->mem = map_pages(npages);
	m->way = map_pages(npages);
	m->media = map_pages(npages);
	m->r.base = m->mem + BED_SKEW;
	m->r.len = npages * BED_PAGE - BED_SKEW;
	m->r.facts = *facts;
	m->r.writable = true;
	m->r.choice = rp_method_best(facts, RP_METHODS_BUILT);
	snprintf(m->r.why, sizeof(m->r.why), "fake");
	method = rp_method_by_agent(facts, m->r.choice).method;
	cr_assert_eq(rp_pmem_new(m->r.base, m->r.len, method, NULL, &pmem_ops,
				 &m->r.pmem),
		     0);
	m->r.key = new_key(&m->r.choice);
	/* Wrong values: the agent must initialize these fields. */
	m->r.busy = 99;
	m->r.failed = 99;
	if (g->facts_file) {
		rp_watch_record(&m->r.watch);
		free(rp_watch_read(RP_SOURCE_LINE, g->facts_file, 0));
		rp_watch_record(NULL);
	}
	cr_assert_eq(rp_agent_region_add(g->a, &m->r), 0);
}

void bed_region(struct bed *g, struct bed_region *m, enum rp_method method,
		size_t npages)
{
	struct rp_facts f = {
		.placement = RP_PLACE_CPU_USER,
		.domain = RP_DOMAIN_MEMCTRL,
		.fs_trusted = RP_YES,
		.agent = true,
	};

	switch (method) {
	case RP_METHOD_DELIVERY:
		f.memory = RP_MEM_TMPFS;
		break;
	case RP_METHOD_AGENT_SFENCE:
		f.memory = RP_MEM_DAX_SYNC;
		f.placement = RP_PLACE_DMA_CACHE;
		f.domain = RP_DOMAIN_CPUCACHE;
		break;
	case RP_METHOD_AGENT_CLWB:
		f.memory = RP_MEM_DAX_SYNC;
		break;
	case RP_METHOD_AGENT_CLWB_MSYNC:
		f.memory = RP_MEM_DAX;
		f.placement = RP_PLACE_UNKNOWN;
		break;
	default:
		f.memory = RP_MEM_FILE;
	}
	strcpy(f.name, rp_method_name(method));
	bed_region_facts(g, m, &f, npages);
	cr_assert_eq(m->r.choice.method, method);
}

void bed_region_del(struct bed *g, struct bed_region *m)
{
	rp_agent_region_del(g->a, &m->r);
	rp_watch_free(&m->r.watch);
	rp_pmem_delete(m->r.pmem);
	munmap(m->mem, m->npages * BED_PAGE);
	munmap(m->way, m->npages * BED_PAGE);
	munmap(m->media, m->npages * BED_PAGE);
	/* Overwrite the struct, so that a later read gets nonsense. */
	memset(&m->r, 0xdd, sizeof(m->r));
	m->gone = true;
}

void bed_store(struct bed_region *m, uint64_t off, uint64_t len)
{
	static uint8_t v;

	for (uint64_t i = 0; i < len; i++)
		m->mem[BED_SKEW + off + i] += 1 + v++ % 7;
}

uint64_t bed_value(const struct bed_region *m, uint64_t off, bool media)
{
	uint64_t v;

	memcpy(&v, (media ? m->media : m->mem) + BED_SKEW + off, sizeof(v));
	return v;
}

void bed_close_gate(struct bed *g)
{
	pthread_mutex_lock(&g->lock);
	g->gate_closed = true;
	pthread_mutex_unlock(&g->lock);
}

void bed_open_gate(struct bed *g)
{
	pthread_mutex_lock(&g->lock);
	g->gate_closed = false;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

void bed_wait_entered(struct bed *g, unsigned int n)
{
	pthread_mutex_lock(&g->lock);
	while (g->entered < n)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);
}
