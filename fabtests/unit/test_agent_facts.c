// SPDX-License-Identifier: BSD-2-Clause
/*
 * Changed facts of registered regions: which grants the agent takes back, which
 * sessions it closes, and what it flushes before it serves the weaker class.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "agent_bed.h"
#include "core/agent_priv.h"

/* Longest time from a change of a source until the agent acts on it. */
#define LIMIT (1000 * BED_MS)

/* Results of beginning to flush the lines of eadr, and of each flush. */
static int begin_err, flush_err;

int __real_rp_pmem_use_clwb(struct rp_pmem *pm);
int __wrap_rp_pmem_use_clwb(struct rp_pmem *pm);
int __real_rp_pmem_flush(struct rp_pmem *pm, uint64_t off, uint64_t len);
int __wrap_rp_pmem_flush(struct rp_pmem *pm, uint64_t off, uint64_t len);

int __wrap_rp_pmem_use_clwb(struct rp_pmem *pm)
{
	return begin_err ? begin_err : __real_rp_pmem_use_clwb(pm);
}

int __wrap_rp_pmem_flush(struct rp_pmem *pm, uint64_t off, uint64_t len)
{
	return flush_err ? flush_err : __real_rp_pmem_flush(pm, off, len);
}

static struct bed g;
static struct bed_region file, eadr, tmpfs;
static struct bed_peer p, q;
static char source[64];
/* Facts that each region's lookup finds, result and number of lookups. */
static struct rp_facts file_now, eadr_now, tmpfs_now;
static int lookup_ret;
static unsigned int lookups;

static void write_source(const char *line)
{
	FILE *f = fopen(source, "w");

	cr_assert_not_null(f);
	fprintf(f, "%s\n", line);
	fclose(f);
}

static int find_facts(struct rp_region *r, struct rp_facts *facts, char *why)
{
	lookups++;
	free(rp_watch_read(RP_SOURCE_LINE, source, 0));
	snprintf(why, RP_WHY_LEN, "found anew");
	*facts = r == &eadr.r ? eadr_now : r == &tmpfs.r ? tmpfs_now : file_now;
	return lookup_ret;
}

static void start(const struct rp_agent_attr *attr)
{
	struct bed_region *const all[] = {&file, &eadr, &tmpfs};
	int fd;

	strcpy(source, "agent_facts.XXXXXX");
	fd = mkstemp(source);
	cr_assert_geq(fd, 0);
	close(fd);
	write_source("good");
	lookup_ret = 0;
	lookups = 0;
	bed_init(&g, attr);
	g.facts_file = source;
	g.facts = find_facts;
	bed_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
	bed_region(&g, &eadr, RP_METHOD_AGENT_SFENCE, 8);
	bed_region(&g, &tmpfs, RP_METHOD_DELIVERY, 8);
	file_now = file.r.facts;
	eadr_now = eadr.r.facts;
	tmpfs_now = tmpfs.r.facts;
	/* p has a grant for each region, q only one for tmpfs. */
	p = bed_connect_all(&g, all, 3);
	q = bed_connect(&g, &tmpfs);
}

static void stop(void)
{
	struct bed_region *const all[] = {&file, &eadr, &tmpfs};

	for (int i = 0; i < 3; i++)
		if (!all[i]->gone)
			bed_region_del(&g, all[i]);
	bed_fini(&g);
	unlink(source);
}

TestSuite(agent_facts, .fini = stop);

/*
 * Call progress only at the agent's deadlines, as a program that sleeps does,
 * for this time.
 */
static void sleep_for(uint64_t ns)
{
	const uint64_t end = g.now + ns;

	while (rp_agent_deadline(g.a) <= end) {
		if (g.now < rp_agent_deadline(g.a))
			g.now = rp_agent_deadline(g.a);
		rp_agent_progress(g.a);
	}
	g.now = end;
}

static void expect_class(const struct bed_region *m, enum rp_class class)
{
	cr_assert_eq(m->r.choice.class, class);
	cr_assert_eq(m->r.stats->class, class);
	cr_assert_eq(m->r.stats->method, m->r.choice.method);
}

Test(agent_facts, class_is_taken_back_within_a_second)
{
	struct rp_wire_info info;
	uint64_t t;

	start(NULL);
	write_source("bad");
	file_now.limit = RP_LIMIT_PROCESS;
	sleep_for(LIMIT);
	cr_assert(p.c->closed, "a session with the old grant is open");
	cr_assert_not(q.c->closed, "a session without a grant was closed");
	expect_class(&file, RP_CLASS_PROCESS);
	expect_class(&eadr, RP_CLASS_POWER);

	p = bed_connect(&g, &file);
	cr_assert_eq(p.ack.grant.class, RP_CLASS_PROCESS);
	t = bed_request(&p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 1,
			&(struct rp_wire_range){file.r.key, 0, 8});
	cr_assert_eq(bed_expect(&p, t, RP_ST_CLASS).detail, RP_CLASS_PROCESS);
	t = bed_request(&p, RP_LEVEL_DURABLE, RP_CLASS_PROCESS, 1,
			&(struct rp_wire_range){file.r.key, 0, 8});
	bed_run(&g);
	cr_assert_eq(bed_expect(&p, t, RP_ST_OK).class, RP_CLASS_PROCESS);
	/* The text names the new class, the line and its old words. */
	info = bed_query(&p, file.r.key, RP_CLASS_POWER);
	cr_assert_eq(info.status, RP_ST_CLASS);
	cr_assert(strstr(info.why, "class was power, now process: "), "%s",
		  info.why);
	cr_assert(strstr(info.why, "was good, now bad"), "%s", info.why);
	cr_assert(strstr(info.why, "found anew"), "%s", info.why);
}

/* Make eadr a region of ADR memory whose fact `fence` becomes no. */
static void lose_the_fence(bool shim, enum rp_placement place)
{
	struct rp_facts *f = &eadr.r.facts;

	start(NULL);
	f->domain = RP_DOMAIN_MEMCTRL;
	f->placement = place;
	f->fence = RP_YES;
	eadr.r.choice =
		rp_method_best(f, rp_methods_allowed(RP_METHOD_AGENT_CLWB));
	eadr_now = *f;
	eadr_now.fence = RP_NO;
	write_source("bad");
	/* Sessions of the shim have no grants. */
	rp_agent_close_sessions(g.a);
	g.a->attr.messages_only = shim;
	sleep_for(LIMIT);
}

/*
 * A peer of the shim reads before it requests a flush. A read that no longer
 * pushes the adapter's bytes shows them to no agent: no method is left.
 */
Test(agent_facts, lost_fence_takes_the_class_from_the_shim)
{
	lose_the_fence(true, RP_PLACE_DMA_CACHE);
	cr_assert_eq(eadr.r.choice.class, RP_CLASS_NONE);
}

Test(agent_facts, lost_fence_leaves_the_shim_the_bytes_of_a_cpu)
{
	lose_the_fence(true, RP_PLACE_CPU_KERNEL);
	cr_assert_eq(eadr.r.choice.class, RP_CLASS_POWER);
}

Test(agent_facts, lost_fence_leaves_the_provider_the_agent)
{
	lose_the_fence(false, RP_PLACE_DMA_CACHE);
	cr_assert_eq(eadr.r.choice.class, RP_CLASS_POWER);
}

Test(agent_facts, change_that_no_class_rests_on_closes_nothing)
{
	start(NULL);
	write_source("otherwise");
	/* The NUMA node of memory is a fact, but does not change the method. */
	file_now.node = 2;
	sleep_for(LIMIT);
	cr_assert_geq(lookups, 2);
	cr_assert_not(p.c->closed);
	cr_assert_not(q.c->closed);
	expect_class(&file, RP_CLASS_POWER);
	/* The agent now compares the source with its new text. */
	lookups = 0;
	sleep_for(10 * LIMIT);
	cr_assert_eq(lookups, 0);
}

Test(agent_facts, unchanged_sources_are_looked_up_never)
{
	start(NULL);
	file_now.limit = RP_LIMIT_NONE;
	sleep_for(10 * LIMIT);
	cr_assert_eq(lookups, 0);
	expect_class(&file, RP_CLASS_POWER);
}

/* A region whose deregistration fails is added again. */
Test(agent_facts, last_region_is_watched_when_it_is_added_again)
{
	start(NULL);
	bed_region_del(&g, &eadr);
	bed_region_del(&g, &tmpfs);
	rp_agent_region_del(g.a, &file.r);
	cr_assert_eq(rp_agent_deadline(g.a), UINT64_MAX);
	cr_assert_eq(rp_agent_region_add(g.a, &file.r), 0);
	write_source("bad");
	file_now.limit = RP_LIMIT_PROCESS;
	sleep_for(LIMIT);
	expect_class(&file, RP_CLASS_PROCESS);
}

/* A file is empty for a moment while it is written anew. */
Test(agent_facts, change_of_a_moment_is_not_believed)
{
	start(NULL);
	write_source("");
	g.now = rp_agent_deadline(g.a);
	rp_agent_progress(g.a);
	write_source("good");
	file_now.limit = RP_LIMIT_NONE;
	sleep_for(10 * LIMIT);
	cr_assert_eq(lookups, 0);
}

Test(agent_facts, strengthening_is_believed_at_the_next_registration)
{
	start(NULL);
	write_source("bad");
	file_now.limit = RP_LIMIT_PROCESS;
	sleep_for(LIMIT);
	write_source("good");
	file_now.limit = RP_LIMIT_POWER;
	tmpfs_now.memory = RP_MEM_DAX_SYNC;
	tmpfs_now.domain = RP_DOMAIN_CPUCACHE;
	sleep_for(10 * LIMIT);
	expect_class(&file, RP_CLASS_PROCESS);
	expect_class(&tmpfs, RP_CLASS_PROCESS);
	cr_assert_not(q.c->closed);
	bed_region_del(&g, &file);
	bed_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
	expect_class(&file, RP_CLASS_POWER);
}

Test(agent_facts, facts_that_cannot_be_found_are_unknown)
{
	struct rp_wire_info info;
	uint64_t t;

	start(NULL);
	write_source("bad");
	lookup_ret = -EACCES;
	sleep_for(LIMIT);
	expect_class(&file, RP_CLASS_NONE);
	p = bed_connect(&g, &file);
	for (int c = RP_CLASS_NONE; c <= RP_CLASS_POWER; c++) {
		t = bed_request(&p, RP_LEVEL_DURABLE, (enum rp_class)c, 1,
				&(struct rp_wire_range){file.r.key, 0, 8});
		bed_expect(&p, t, c ? RP_ST_CLASS : RP_ST_NO_METHOD);
	}
	info = bed_query(&p, file.r.key, RP_CLASS_POWER);
	cr_assert_eq(info.status, RP_ST_NO_METHOD);
	/* The region can still be written to and read. */
	t = bed_request(&p, RP_LEVEL_VISIBLE, RP_CLASS_NONE, 1,
			&(struct rp_wire_range){file.r.key, 0, 8});
	bed_expect(&p, t, RP_ST_OK);
}

/* A lookup that fails for lack of memory leaves the class, and is repeated. */
Test(agent_facts, lack_of_memory_is_no_change)
{
	start(NULL);
	write_source("bad");
	lookup_ret = -EMFILE;
	sleep_for(LIMIT);
	cr_assert_gt(lookups, 0);
	expect_class(&file, RP_CLASS_POWER);
	cr_assert_not(p.c->closed);
	lookup_ret = 0;
	file_now.limit = RP_LIMIT_PROCESS;
	sleep_for(LIMIT);
	expect_class(&file, RP_CLASS_PROCESS);
}

static bool is_on_media(const struct bed_region *m)
{
	return !memcmp(m->mem + BED_SKEW, m->media + BED_SKEW, m->r.len);
}

/* The caches were persistent, so any byte may be in the caches only. */
static void lose_the_caches(void)
{
	bed_store(&eadr, 0, eadr.r.len);
	write_source("bad");
	eadr_now.domain = RP_DOMAIN_MEMCTRL;
}

Test(agent_facts, region_is_flushed_once_when_its_caches_become_volatile)
{
	unsigned int flushes;

	start(NULL);
	lose_the_caches();
	sleep_for(LIMIT);
	cr_assert(is_on_media(&eadr));
	expect_class(&eadr, RP_CLASS_POWER);
	cr_assert_eq(eadr.r.choice.method, RP_METHOD_AGENT_CLWB);
	cr_assert(p.c->closed);
	cr_assert_not(eadr.r.flushing_all);
	flushes = eadr.flushes;
	sleep_for(10 * LIMIT);
	cr_assert_eq(eadr.flushes, flushes);
	p = bed_connect(&g, &eadr);
	bed_commit(&p, &eadr, 100, 200);
	bed_run(&g);
	cr_assert_gt(eadr.flushes, flushes);
}

/* A region whose forced method is refused is still flushed. */
Test(agent_facts, region_is_flushed_when_its_forced_method_is_refused)
{
	start(NULL);
	eadr.r.forced = RP_METHOD_AGENT_SFENCE;
	lose_the_caches();
	sleep_for(LIMIT);
	cr_assert_eq(eadr.r.choice.method, RP_METHOD_REFUSED);
	cr_assert(is_on_media(&eadr));
	cr_assert(p.c->closed);
}

/*
 * Peers of the shim choose methods by facts alone: the target's forced method
 * says nothing about theirs.
 */
Test(agent_facts, forced_region_of_the_shim_is_flushed)
{
	start(NULL);
	rp_agent_close_sessions(g.a);
	g.a->attr.messages_only = true;
	eadr.r.forced = RP_METHOD_AGENT_CLWB;
	eadr.r.choice = rp_method_best(&eadr.r.facts,
				       rp_methods_allowed(eadr.r.forced));
	lose_the_caches();
	sleep_for(LIMIT);
	cr_assert(eadr.r.weakened);
	cr_assert(is_on_media(&eadr));
}

/* A region that clwb flushes has nothing cached when its class drops. */
Test(agent_facts, region_that_was_flushed_is_not_flushed_again)
{
	start(NULL);
	bed_region_del(&g, &eadr);
	bed_region(&g, &eadr, RP_METHOD_AGENT_CLWB, 8);
	eadr_now = eadr.r.facts;
	eadr_now.limit = RP_LIMIT_PROCESS;
	write_source("bad");
	sleep_for(LIMIT);
	expect_class(&eadr, RP_CLASS_PROCESS);
	cr_assert_eq(eadr.flushes, 0);
}

/* The change is found while the worker runs another region's commit. */
static void lose_the_caches_while_the_worker_runs(void)
{
	const struct rp_agent_attr with_worker = {
		.incarnation = BED_INCARNATION,
	};

	start(&with_worker);
	bed_close_gate(&g);
	bed_commit(&p, &file, 0, 64);
	rp_agent_progress(g.a);
	bed_wait_entered(&g, 1);
	lose_the_caches();
	g.now += LIMIT;
	rp_agent_progress(g.a);
	g.now += LIMIT;
	while (!eadr.r.weakened)
		rp_agent_progress(g.a);
	cr_assert(p.c->closed);
	cr_assert(eadr.r.flushing_all);
}

/*
 * Commits at the new class wait until the worker has flushed the whole region,
 * even commits that would fill batches before that.
 */
Test(agent_facts, commits_wait_for_the_flush_of_the_region)
{
	enum {
		COMMITS = 3 * (RP_BATCH_RANGES / RP_WIRE_MAX_RANGES)
	};
	struct bed_at at[RP_WIRE_MAX_RANGES];
	struct bed_msg m;

	lose_the_caches_while_the_worker_runs();
	p = bed_connect(&g, &eadr);
	for (int i = 0; i < RP_WIRE_MAX_RANGES; i++)
		at[i] = (struct bed_at){&eadr, 128 * (unsigned int)i, 8};
	for (int i = 0; i < COMMITS; i++)
		bed_commit_all(&p, RP_CLASS_POWER, RP_WIRE_MAX_RANGES, at);
	for (int i = 0; i < 10; i++)
		rp_agent_progress(g.a);
	bed_expect_nothing(&p);
	cr_assert_not(is_on_media(&eadr));
	bed_open_gate(&g);
	while (!p.c->first)
		rp_agent_progress(g.a);
	cr_assert(is_on_media(&eadr), "a commit came before the flush");
	bed_run_worker(&g);
	for (int i = 0; i < COMMITS; i++) {
		cr_assert(bed_take(&p, &m));
		cr_assert_eq(m.reply.status, RP_ST_OK);
		cr_assert_eq(m.reply.method, RP_METHOD_AGENT_CLWB);
	}
}

/* The region stays failed even if further flushes would succeed. */
static void expect_failed_region(void)
{
	uint64_t t;

	begin_err = flush_err = 0;
	cr_assert_eq(eadr.r.failed, EIO);
	cr_assert_eq(eadr.r.stats->failed, EIO);
	cr_assert_not(eadr.r.flushing_all);
	cr_assert_not(is_on_media(&eadr));
	/*
	 * A grant of a method without the agent would let commits succeed, so
	 * the agent's method is granted.
	 */
	eadr.r.facts.fence = RP_YES;
	eadr.r.choice = rp_method_best(&eadr.r.facts, RP_METHODS_BUILT);
	cr_assert_eq(eadr.r.choice.method, RP_METHOD_FENCE);
	g.flags |= RP_CHANNEL_FENCES;
	p = bed_connect(&g, &eadr);
	cr_assert_eq(p.ack.grant.method, RP_METHOD_AGENT_CLWB);
	for (int i = 0; i < 2; i++) {
		t = bed_request(&p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 1,
				&(struct rp_wire_range){eadr.r.key, 0, 8});
		bed_expect(&p, t, RP_ST_REGION_FAILED);
		sleep_for(LIMIT);
	}
	cr_assert_eq(bed_query(&p, eadr.r.key, RP_CLASS_POWER).status,
		     RP_ST_REGION_FAILED);
	cr_assert_not(is_on_media(&eadr), "flushed although it has failed");
}

Test(agent_facts, region_fails_when_its_flush_fails)
{
	start(NULL);
	lose_the_caches();
	eadr_now.placement = RP_PLACE_DMA_MEMORY;
	eadr.r.facts.placement = RP_PLACE_DMA_MEMORY;
	flush_err = -EIO;
	sleep_for(LIMIT);
	expect_failed_region();
}

Test(agent_facts, region_fails_when_its_flush_cannot_begin)
{
	start(NULL);
	lose_the_caches();
	eadr_now.placement = RP_PLACE_DMA_MEMORY;
	eadr.r.facts.placement = RP_PLACE_DMA_MEMORY;
	begin_err = -EIO;
	sleep_for(LIMIT);
	expect_failed_region();
}

/* Commits that wait for the region's flush fail with it, unacknowledged. */
Test(agent_facts, commits_that_wait_for_a_failed_flush_fail)
{
	struct bed_msg m;

	lose_the_caches_while_the_worker_runs();
	p = bed_connect(&g, &eadr);
	for (int i = 0; i < 3; i++)
		bed_commit(&p, &eadr, 128 * (unsigned int)i, 8);
	for (int i = 0; i < 10; i++)
		rp_agent_progress(g.a);
	bed_expect_nothing(&p);
	flush_err = -EIO;
	bed_open_gate(&g);
	bed_run_worker(&g);
	for (int i = 0; i < 3; i++) {
		cr_assert(bed_take(&p, &m));
		cr_assert_eq(m.reply.status, RP_ST_REGION_FAILED);
		cr_assert_eq(m.reply.detail, EIO);
	}
	cr_assert_eq(eadr.r.failed, EIO);
}

/*
 * An initiator's own fence would not wait for the flush of the region; a
 * request to the agent does.
 */
Test(agent_facts, grants_without_the_agent_wait_for_the_flush)
{
	start(NULL);
	eadr.r.facts.fence = RP_YES;
	eadr.r.choice = rp_method_best(&eadr.r.facts, RP_METHODS_BUILT);
	cr_assert_eq(eadr.r.choice.method, RP_METHOD_FENCE);
	g.flags |= RP_CHANNEL_FENCES;
	eadr.r.flushing_all = true;
	q = bed_connect(&g, &eadr);
	cr_assert_eq(q.ack.grant.method, RP_METHOD_AGENT_SFENCE);
	eadr.r.flushing_all = false;
	q = bed_connect(&g, &eadr);
	cr_assert_eq(q.ack.grant.method, RP_METHOD_FENCE);
}

struct end {
	unsigned int times;
	enum rp_status st;
	uint32_t detail;
};

static void record_end(void *arg, enum rp_status st, uint32_t detail)
{
	*(struct end *)arg = (struct end){
		.times = ((struct end *)arg)->times + 1,
		.st = st,
		.detail = detail,
	};
}

/* Local flushes that were accepted at the old class fail. */
Test(agent_facts, flushes_for_the_old_class_fail)
{
	const struct rp_agent_attr with_worker = {
		.incarnation = BED_INCARNATION,
	};
	const struct rp_local at = {&file.r, 0, 64};
	struct end runs = {0}, waits = {0};

	start(&with_worker);
	bed_close_gate(&g);
	cr_assert_eq(rp_agent_local_flush(g.a, &at, 1, record_end, &runs), 0);
	rp_agent_progress(g.a);
	bed_wait_entered(&g, 1);
	cr_assert_eq(rp_agent_local_flush(g.a, &at, 1, record_end, &waits), 0);
	write_source("bad");
	file_now.limit = RP_LIMIT_PROCESS;
	g.now += LIMIT;
	rp_agent_progress(g.a);
	g.now += LIMIT;
	while (!file.r.weakened)
		rp_agent_progress(g.a);
	bed_open_gate(&g);
	while (!runs.times || !waits.times)
		rp_agent_progress(g.a);
	cr_assert_eq(runs.st, RP_ST_CLASS);
	cr_assert_eq(runs.detail, RP_CLASS_PROCESS);
	cr_assert_eq(waits.st, RP_ST_CLASS);
	cr_assert_eq(runs.times + waits.times, 2);
}

/* Regions of one file share one lookup and one comparison of their sources. */
Test(agent_facts, many_regions_of_one_file_are_looked_up_once)
{
	static struct bed_region many[1000];
	struct rp_facts f;

	start(NULL);
	f = file.r.facts;
	f.file.ino = 4711;
	strcpy(f.name, "many");
	for (int i = 0; i < 1000; i++)
		bed_region_facts(&g, &many[i], &f, 1);
	file_now = f;
	file_now.limit = RP_LIMIT_PROCESS;
	write_source("bad");
	sleep_for(LIMIT);
	for (int i = 0; i < 1000; i++)
		expect_class(&many[i], RP_CLASS_PROCESS);
	/* Three lookups for other regions, one for all of the file. */
	cr_assert_leq(lookups, 4, "%u", lookups);
	for (int i = 0; i < 1000; i++)
		bed_region_del(&g, &many[i]);
}

/* A region may be deregistered while the others are looked up. */
Test(agent_facts, region_that_ends_in_a_review_is_left_out)
{
	static struct bed_region many[20];

	start(NULL);
	for (int i = 0; i < 20; i++)
		bed_region(&g, &many[i], RP_METHOD_AGENT_MSYNC, 1);
	write_source("bad");
	g.now += LIMIT;
	rp_agent_progress(g.a);
	g.now += LIMIT;
	file_now.limit = RP_LIMIT_PROCESS;
	rp_agent_progress(g.a);
	cr_assert_not_null(g.a->review);
	cr_assert_eq(rp_agent_deadline(g.a), 0);
	for (int i = 0; i < 20; i++)
		if (&many[i].r == g.a->review) {
			bed_region_del(&g, &many[i]);
			break;
		}
	bed_run(&g);
	for (int i = 0; i < 20; i++) {
		if (many[i].gone)
			continue;
		expect_class(&many[i], RP_CLASS_PROCESS);
		bed_region_del(&g, &many[i]);
	}
}
