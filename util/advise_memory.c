// SPDX-License-Identifier: BSD-2-Clause
/* Advice about stores to memory of a directory, measured in a new file. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/thread.h"
#include "util/advise.h"
#include "util/machine_facts.h"

#define LINE	256u	     /* access unit of the papers' media */
#define SAMPLE	(256u << 10) /* least bytes that one sample stores */
#define LONGEST (1u << 20)   /* bytes of the longest store */
#define ATOMICS 1024u	     /* atomic operations of one sample */
#define WORDS	64u	     /* words that atomics change, one per cache line */
#define PAGES	16u	     /* pages of one commit */
#define THREADS 16u	     /* writer threads at most */
#define WRITES	4096u	     /* writes of all threads together */

static char bytes[LONGEST], bounce[LONGEST];

/* --- opening the memory --- */

/* Handle SIGHUP like SIGTERM, whose handler lets the sample file be removed. */
static void handle_hangup(void)
{
	struct sigaction interrupt, hangup;

	if (!sigaction(SIGTERM, NULL, &interrupt) &&
	    !sigaction(SIGHUP, NULL, &hangup) &&
	    interrupt.sa_handler != SIG_IGN && hangup.sa_handler == SIG_DFL)
		sigaction(SIGHUP, &interrupt, NULL);
}

int advise_memory_open(struct advise *a, const char *dir,
		       const struct info_transport *transport, char *err)
{
	char why[RP_WHY_LEN] = "", obstacle[RP_WHY_LEN];
	int ret;

	handle_hangup();
	ret = info_map_make(dir, ADVISE_FILE, &a->map, err);
	if (ret)
		return ret;
	/* Touch every page first, because the pages of a pool exist already. */
	memset(a->map.addr, 1, a->map.len);
	ret = rp_facts_find(transport->base, transport->device, a->map.addr,
			    a->map.len, &a->facts, why, NULL, &a->nic);
	if (ret) {
		rp_err(err, ret, "%s", why[0] ? why : strerror(-ret));
		goto close;
	}
	a->facts.agent = true;
	a->choice = rp_facts_pick(&a->facts, obstacle);
	/* pm flushes cache lines: rows about msync call msync() themselves. */
	ret = rp_pmem_new(a->map.addr, a->map.len, RP_METHOD_AGENT_CLWB, NULL,
			  NULL, &a->pm);
	if (ret) {
		rp_err(err, ret, "the CPU has no instruction to flush lines");
		goto close;
	}
	rp_pmem_keep_populated(a->pm);
	return 0;
close:
	advise_memory_close(a);
	return ret;
}

void advise_memory_close(struct advise *a)
{
	rp_pmem_delete(a->pm);
	a->pm = NULL;
	if (a->map.addr)
		info_map_close(&a->map);
}

/* --- stores --- */

static bool lines_apply(const struct advise *a, const struct advise_row *row,
			char *why)
{
	if (a->target)
		return rp_err(why, 0,
			      "the memory is at the target; run it there");
	if (a->choice.method == RP_METHOD_REFUSED)
		return rp_err(why, 0, "nothing here makes writes durable");
	if (a->choice.method == RP_METHOD_AGENT_MSYNC ||
	    a->facts.memory == RP_MEM_TMPFS)
		return rp_err(why, 0,
			      "memory is %s, and commits are by %s: no cache "
			      "line is written back",
			      rp_memory_name(a->facts.memory),
			      rp_method_name(a->choice.method));
	return true;
}

/* A random multiple of align at which len bytes fit. */
static uint64_t random_offset(struct advise *a, uint64_t align, uint64_t len)
{
	return advise_random(a, (a->map.len - len - align) / align) * align;
}

/* Store normally, then write back by clwb or the CPU's replacement of it. */
static void store_back(struct advise *a, uint64_t off, uint64_t len)
{
	rp_pmem_place(a->pm, off, bytes, len);
	rp_pmem_flush(a->pm, off, len);
	rp_pmem_drain(a->pm);
}

/* Store past the caches, as the agent stores the bytes of a message. */
static void store_past(struct advise *a, uint64_t off, const char *from,
		       uint64_t len)
{
	bool durable;

	if (rp_pmem_store(a->pm, off, from, len, &durable) || durable)
		return;
	rp_pmem_flush(a->pm, off, len);
	rp_pmem_drain(a->pm);
}

static uint64_t count_stores(uint64_t len)
{
	return len < SAMPLE ? SAMPLE / len : 1;
}

static int measure_streams(struct advise *a, const struct advise_row *row,
			   enum advise_way way, uint64_t *ns, char *err)
{
	const uint64_t n = count_stores(row->param);
	const uint64_t start = rp_clock_ns(CLOCK_MONOTONIC);

	for (uint64_t i = 0; i < n; i++) {
		const uint64_t off = random_offset(a, LINE, row->param);

		if (way == ADVISE_AS)
			store_past(a, off, bytes, row->param);
		else
			store_back(a, off, row->param);
	}
	*ns = rp_clock_ns(CLOCK_MONOTONIC) - start;
	return 0;
}

/*
 * Imitate a receive from a socket, with memcpy() as the kernel's copy: either
 * to a buffer that stays cached, then past the caches to the pool; or to the
 * pool directly, then write back. again: write back in both cases.
 */
static int receive(struct advise *a, const struct advise_row *row,
		   enum advise_way way, bool again, uint64_t *ns)
{
	const uint64_t off = random_offset(a, LINE, row->param);
	const uint64_t start = rp_clock_ns(CLOCK_MONOTONIC);

	if (way == ADVISE_AS) {
		memcpy(bounce, bytes, row->param);
		store_past(a, off, bounce, row->param);
	} else {
		memcpy((char *)a->map.addr + off, bytes, row->param);
	}
	if (way == ADVISE_OTHER || again) {
		rp_pmem_flush(a->pm, off, row->param);
		rp_pmem_drain(a->pm);
	}
	*ns = rp_clock_ns(CLOCK_MONOTONIC) - start;
	return 0;
}

static int measure_bounce(struct advise *a, const struct advise_row *row,
			  enum advise_way way, uint64_t *ns, char *err)
{
	return receive(a, row, way, false, ns);
}

/* Write back also after stores past the caches, as a later commit would. */
static int measure_bounce_back(struct advise *a, const struct advise_row *row,
			       enum advise_way way, uint64_t *ns, char *err)
{
	return receive(a, row, way, true, ns);
}

/* Store units aligned to those of the media, or across two of them. */
static int measure_units(struct advise *a, const struct advise_row *row,
			 enum advise_way way, uint64_t *ns, char *err)
{
	const uint64_t shift = way == ADVISE_AS ? 0 : LINE / 2;
	const uint64_t n = count_stores(LINE);
	const uint64_t start = rp_clock_ns(CLOCK_MONOTONIC);

	for (uint64_t i = 0; i < n; i++)
		store_past(a, random_offset(a, LINE, LINE) + shift, bytes,
			   LINE);
	*ns = rp_clock_ns(CLOCK_MONOTONIC) - start;
	return 0;
}

/* Store 16 bytes, or the whole line around them. */
static int measure_padding(struct advise *a, const struct advise_row *row,
			   enum advise_way way, uint64_t *ns, char *err)
{
	const uint64_t len = way == ADVISE_AS ? RP_CACHE_LINE : row->param;
	const uint64_t n = count_stores(RP_CACHE_LINE);
	const uint64_t start = rp_clock_ns(CLOCK_MONOTONIC);

	for (uint64_t i = 0; i < n; i++)
		store_past(a, random_offset(a, RP_CACHE_LINE, len), bytes, len);
	*ns = rp_clock_ns(CLOCK_MONOTONIC) - start;
	return 0;
}

static int measure_atomics(struct advise *a, const struct advise_row *row,
			   enum advise_way way, uint64_t *ns, char *err)
{
	static struct {
		_Alignas(RP_CACHE_LINE) atomic_uint_least64_t v;
	} words[WORDS];
	const uint64_t one = 1;
	const uint64_t start = rp_clock_ns(CLOCK_MONOTONIC);
	uint64_t was;

	for (unsigned int i = 0; i < ATOMICS; i++) {
		const uint64_t off = (uint64_t)(i % WORDS) * RP_CACHE_LINE;

		if (way == ADVISE_AS) {
			atomic_fetch_add(&words[i % WORDS].v, one);
			continue;
		}
		rp_pmem_atomic(a->pm, off, sizeof(one), RP_ATOMIC_SUM,
			       RP_ATOMIC_UINT64, &one, NULL, &was);
		rp_pmem_flush(a->pm, off, sizeof(one));
		rp_pmem_drain(a->pm);
	}
	*ns = rp_clock_ns(CLOCK_MONOTONIC) - start;
	return 0;
}

/* --- writers --- */

static unsigned int count_writers(void)
{
	const long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > (long)THREADS ? THREADS : (unsigned int)n;
}

static bool writers_apply(const struct advise *a, const struct advise_row *row,
			  char *why)
{
	if (!lines_apply(a, row, why))
		return false;
	return count_writers() > 1 || rp_err(why, 0, "there is one CPU");
}

struct writer {
	struct advise a; /* a copy with a seed of its own */
	uint64_t stores, size;
	pthread_t thread;
};

static void *write_stores(void *arg)
{
	struct writer *w = arg;

	for (uint64_t i = 0; i < w->stores; i++)
		store_past(&w->a, random_offset(&w->a, w->size, w->size), bytes,
			   w->size);
	return NULL;
}

/* Do the same number of stores by one thread, or by one thread per CPU. */
static int measure_writers(struct advise *a, const struct advise_row *row,
			   enum advise_way way, uint64_t *ns, char *err)
{
	const unsigned int n = way == ADVISE_AS ? 1 : count_writers();
	const uint64_t start = rp_clock_ns(CLOCK_MONOTONIC);
	struct writer w[THREADS] = {0};
	unsigned int begun = 1;

	for (unsigned int i = 0; i < n; i++) {
		w[i] = (struct writer){
			.a = *a,
			.size = row->param,
			.stores = WRITES / n,
		};
		w[i].a.seed = advise_random(a, UINT64_MAX - 1) + 1;
	}
	/* This thread is the first writer. */
	while (begun < n &&
	       !rp_thread_start(&w[begun].thread, write_stores, &w[begun]))
		begun++;
	write_stores(&w[0]);
	for (unsigned int i = 1; i < begun; i++)
		pthread_join(w[i].thread, NULL);
	*ns = rp_clock_ns(CLOCK_MONOTONIC) - start;
	return begun == n ? 0 : rp_err(err, -EAGAIN, "no thread could start");
}

/* --- pages --- */

static bool pages_apply(const struct advise *a, const struct advise_row *row,
			char *why)
{
	if (a->target)
		return rp_err(why, 0,
			      "the memory is at the target; run it there");
	if (a->choice.method == RP_METHOD_AGENT_MSYNC ||
	    a->choice.method == RP_METHOD_AGENT_CLWB_MSYNC)
		return true;
	return rp_err(why, 0, "commits here are by %s, not by msync",
		      rp_method_name(a->choice.method));
}

/* Do n stores of len bytes, step bytes apart, and one msync of their pages. */
static int sync_stores(struct advise *a, uint64_t off, unsigned int n,
		       uint64_t len, uint64_t step, uint64_t *ns, char *err)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	const uint64_t first = off / page * page;
	const uint64_t end = off + (n - 1) * step + len;
	char *map = a->map.addr;
	const uint64_t start = rp_clock_ns(CLOCK_MONOTONIC);

	for (unsigned int i = 0; i < n; i++)
		memset(map + off + i * step, (int)a->seed, len);
	if (msync(map + first, end - first, MS_SYNC))
		return rp_err(err, -errno, "msync: %s", strerror(errno));
	*ns = rp_clock_ns(CLOCK_MONOTONIC) - start;
	return 0;
}

static int measure_few_pages(struct advise *a, const struct advise_row *row,
			     enum advise_way way, uint64_t *ns, char *err)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return sync_stores(a, random_offset(a, page, PAGES * page), PAGES,
			   RP_CACHE_LINE,
			   way == ADVISE_AS ? page / PAGES : page, ns, err);
}

static int measure_whole_pages(struct advise *a, const struct advise_row *row,
			       enum advise_way way, uint64_t *ns, char *err)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	const uint64_t shift = way == ADVISE_AS ? 0 : page / 2;

	return sync_stores(a, random_offset(a, page, 2 * page) + shift, 1, page,
			   page, ns, err);
}

#define STREAM(size_name, size)                                                \
	{                                                                      \
		.name = "stores of " size_name,                                \
		.source = "Kalia et al. 2020, 5.2; Wei et al. 2021, H4",       \
		.advice = "Store " size_name " at once past the caches.",      \
		.as = "non-temporal stores", .other = "stores and write-back", \
		.set = BY_AGENT, .param = (size), .applies = lines_apply,      \
		.measure = measure_streams                                     \
	}
#define BY_AGENT                                                               \
	"the target does so with all whole lines of a write of at most 4 KiB"

const struct advise_row advise_memory_rows[] = {
	STREAM("64 B", 64),
	STREAM("256 B", 256),
	STREAM("4 KiB", 4096),
	{
		.name = "bounce of 64 KiB",
		.source = "Kalia et al. 2020, 5.5",
		.advice = "Receive longer writes elsewhere, and store them "
			  "past the caches.",
		.as = "a copy and non-temporal stores",
		.other = "a copy to the place and write-back",
		.set = "nothing: the target receives them in their place",
		.param = 64u << 10,
		.applies = lines_apply,
		.measure = measure_bounce,
	},
	{
		.name = "bounce, written back",
		.source = "Kalia et al. 2020, 5.5",
		.advice = "Do so, though a later commit writes the lines back "
			  "again.",
		.as = "a copy, non-temporal stores and write-back",
		.other = "a copy to the place and write-back",
		.set = "nothing: the target receives them in their place",
		.param = 64u << 10,
		.applies = lines_apply,
		.measure = measure_bounce_back,
	},
	{
		.name = "writers",
		.source = "Wei et al. 2021, H2",
		.advice = "Let few threads write to one DIMM.",
		.as = "one thread",
		.other = "a thread for each CPU",
		.set = "a target flushes in one thread; use few pools on a "
		       "DIMM",
		.param = 4096,
		.applies = writers_apply,
		.measure = measure_writers,
	},
	{
		.name = "256 B aligned",
		.source = "Wei et al. 2021, H5",
		.advice = "Write units of 256 bytes, aligned to 256.",
		.as = "256 bytes at their multiple",
		.other = "256 bytes across two units",
		.set = "the layout of the program's data; rpmem_pool_query() "
		       "has preferred_size",
		.applies = lines_apply,
		.measure = measure_units,
	},
	{
		.name = "whole lines",
		.source = "Wei et al. 2021, H6 and H7",
		.advice = "Pad shorter writes to whole lines of 64 bytes.",
		.as = "64 bytes, past the caches",
		.other = "16 bytes, written back",
		.set = "the layout of the program's data",
		.param = 16,
		.applies = lines_apply,
		.measure = measure_padding,
	},
	{
		.name = "atomics",
		.source = "Wei et al. 2021, H8",
		.advice = "Keep words that atomics change often out of "
			  "persistent memory.",
		.as = "atomics on ordinary memory",
		.other = "durable atomics",
		.set = "register such words without FI_RMA_PMEM",
		.applies = lines_apply,
		.measure = measure_atomics,
	},
	{
		.name = "few pages",
		.source = "msync(2)",
		.advice = "Keep bytes of one commit on few pages.",
		.as = "16 lines in a page",
		.other = "a line in each of 16 pages",
		.set = "the layout of the program's data",
		.applies = pages_apply,
		.measure = measure_few_pages,
	},
	{
		.name = "pages aligned",
		.source = "msync(2)",
		.advice = "Write whole pages, aligned to them.",
		.as = "a page",
		.other = "as many bytes across two pages",
		.set = "the layout of the program's data; a block device of "
		       "the pool has blocks of a page",
		.applies = pages_apply,
		.measure = measure_whole_pages,
	},
	{0},
};
