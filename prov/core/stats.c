// SPDX-License-Identifier: BSD-2-Clause
/* The page of counters: a memfd, mapped on first use. */
#include "config.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/stats.h"

/* Long enough that an error of both clock readings is below 1 %. */
#define CALIBRATION_NS 50000

static struct rp_stats fallback_stats;
struct rp_stats *rp_stats = &fallback_stats;
struct rp_stats_region rp_stats_no_region;
double rp_stats_ns_per_tick = 1;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *page; /* never moves; NULL: none yet */
static int fd = -1;

/* Read both clocks at once; repeat an interrupted reading. */
static uint64_t read_clocks(uint64_t *ticks)
{
	uint64_t before, ns;
	int tries = 100;

	do {
		before = rp_stats_now();
		ns = rp_clock_ns(CLOCK_MONOTONIC);
		*ticks = rp_stats_now();
	} while (*ticks - before > 512 && --tries);
	return ns;
}

/* Measure the rate of the CPU's counter. */
static void calibrate(void)
{
	uint64_t first, last, end, ns = read_clocks(&first);
	double scale;

	do
		end = read_clocks(&last);
	while (end < ns + CALIBRATION_NS);
	scale = (double)(end - ns) / (double)(last - first);
	if (scale >= 0.125 && scale <= 2)
		rp_stats_ns_per_tick = scale;
}

/*
 * In the child of a fork(), private memory replaces the parent's page at the
 * same address: pointers stay valid.
 */
static void replace_shared_page(void)
{
	if (fd < 0)
		return;
	page = mmap(page, sizeof(*rp_stats), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (page == MAP_FAILED) {
		page = NULL;
		rp_stats = &fallback_stats;
	}
	close(fd);
	fd = -1;
}

/* The seals keep the file from being cut short under a reader. */
static void make_page(void)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	void *p = MAP_FAILED;

	fd = memfd_create(RP_STATS_FILE, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return;
	if (!ftruncate(fd, sizeof(*rp_stats)) && !fcntl(fd, F_ADD_SEALS, seals))
		p = mmap(page, sizeof(*rp_stats), PROT_READ | PROT_WRITE,
			 MAP_SHARED | (page ? MAP_FIXED : 0), fd, 0);
	if (p == MAP_FAILED) {
		close(fd);
		fd = -1;
		return;
	}
	if (!page) {
		calibrate();
		pthread_atfork(NULL, NULL, replace_shared_page);
	}
	page = rp_stats = p;
	rp_stats->version = RP_STATS_VERSION;
	rp_stats->size = sizeof(*rp_stats);
	rp_stats->ns_per_tick = rp_stats_ns_per_tick;
	__atomic_store_n(&rp_stats->magic, RP_STATS_MAGIC, __ATOMIC_RELEASE);
}

void rp_stats_open(void)
{
	pthread_mutex_lock(&lock);
	if (fd < 0)
		make_page();
	pthread_mutex_unlock(&lock);
}

/*
 * Find the counters of this name, or those for all others. A name keeps its
 * counters without a region, because a reader must not see them go down.
 */
static struct rp_stats_region *region_find(const char *name)
{
	struct rp_stats_region *r = rp_stats->region,
			       *last = &r[RP_STATS_REGIONS - 1];

	for (; r < last; r++)
		if (!r->name[0] || !strcmp(r->name, name))
			break;
	strcpy(r->name, r < last ? name : "others");
	return r;
}

struct rp_stats_region *rp_stats_region_open(const char *name, uint64_t length,
					     enum rp_class class,
					     enum rp_method method)
{
	char cut[RP_STATS_NAME] = "anonymous";
	struct rp_stats_region *r;

	if (*name)
		snprintf(cut, sizeof(cut), "%s", name);
	rp_stats_open();
	pthread_mutex_lock(&lock);
	r = region_find(cut);
	if (!r->used)
		r->failed = 0;
	rp_stats_add(&r->used, 1);
	r->length = length;
	r->class = class;
	r->method = method;
	pthread_mutex_unlock(&lock);
	return r;
}

void rp_stats_region_close(struct rp_stats_region *r)
{
	pthread_mutex_lock(&lock);
	rp_stats_add(&r->used, -1ull);
	pthread_mutex_unlock(&lock);
}
