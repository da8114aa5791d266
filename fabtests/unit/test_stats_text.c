// SPDX-License-Identifier: BSD-2-Clause
/* Prometheus text of a page of counters whose values all differ. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/status.h"
#include "util/stats.h"

#define WHO "{pid=\"7\",command=\"fi_rpmemd\""

static struct rp_stats_copy *c;
static char *text;

static void setup(void)
{
	c = calloc(1, sizeof(*c));
	cr_assert_not_null(c);
	c->pid = 7;
	c->page.ns_per_tick = 0.5;
	strcpy(c->command, "fi_rpmemd");
}

static void teardown(void)
{
	free(text);
	free(c);
}

TestSuite(stats_text, .init = setup, .fini = teardown);

static void print(void)
{
	const struct rp_stats_copy *const copies[] = {c};
	size_t len;
	FILE *f;

	free(text);
	f = open_memstream(&text, &len);
	cr_assert_not_null(f);
	cr_assert_eq(rp_stats_prometheus(f, copies, 1), 0);
	fclose(f);
}

/* The text must have this line once. */
static void expect_line_once(const char *line)
{
	char whole[256];
	const char *at;

	snprintf(whole, sizeof(whole), "\n%s\n", line);
	at = strstr(text, whole);
	cr_assert(at && !strstr(at + 1, whole), "%s", line);
}

/* Number of lines that begin with these bytes. */
static unsigned int lines(const char *begin)
{
	unsigned int n = 0;

	for (const char *at = text; (at = strstr(at, begin)); at++)
		n += at > text && at[-1] == '\n';
	return n;
}

static struct rp_stats_region *pool(unsigned int i, const char *name)
{
	struct rp_stats_region *r = &c->page.region[i];

	*r = (struct rp_stats_region){
		.used = 1,
		.length = 4096,
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_MSYNC,
		.bytes = 100,
		.msyncs = 3,
		.msync_ns = 1500000000,
		.flushes = 9,
		.flush_ticks = 500,
	};
	strcpy(r->name, name);
	return r;
}

Test(stats_text, counters_of_the_target_have_their_values)
{
	struct rp_stats *s = &c->page;

	s->requests = 11;
	s->jobs = 12;
	s->sessions = 13;
	s->accepted = 14;
	s->refused = 15;
	s->refused_keys = 16;
	s->failed_regions = 17;
	print();
	expect_line_once("ofi_rpmem_requests_total" WHO "} 11");
	expect_line_once("ofi_rpmem_jobs" WHO "} 12");
	expect_line_once("ofi_rpmem_sessions" WHO "} 13");
	expect_line_once("ofi_rpmem_sessions_total" WHO "} 14");
	expect_line_once("ofi_rpmem_refused_connections_total" WHO "} 15");
	expect_line_once("ofi_rpmem_refused_keys_total" WHO "} 16");
	expect_line_once("ofi_rpmem_region_failures_total" WHO "} 17");
}

Test(stats_text, failures_have_their_status_and_side)
{
	c->page.failures[RP_ST_STALE_KEY] = 2;
	c->page.failures[RP_ST_FLUSH_FAILED] = 3;
	c->page.errors[RP_ST_FLUSH_FAILED] = 4;
	c->page.errors[RP_ST_MAX - 1] = 5;
	print();
	cr_assert_eq(lines("ofi_rpmem_failures_total{"), 2);
	expect_line_once("ofi_rpmem_failures_total" WHO
			 ",status=\"stale key\"} 2");
	expect_line_once("ofi_rpmem_failures_total" WHO
			 ",status=\"flush failed\"} 3");
	cr_assert_eq(lines("ofi_rpmem_operation_failures_total{"), 2);
	expect_line_once("ofi_rpmem_operation_failures_total" WHO
			 ",status=\"flush failed\"} 4");
	expect_line_once("ofi_rpmem_operation_failures_total" WHO
			 ",status=\"connection lost\"} 5");
}

Test(stats_text, operations_without_an_end_are_outstanding)
{
	c->page.started = 20;
	c->page.completed[0] = 7;
	c->page.completed[4] = 2;
	c->page.errors[RP_ST_LOST] = 3;
	print();
	expect_line_once("ofi_rpmem_operations_outstanding" WHO "} 8");
}

Test(stats_text, times_of_msync_and_of_cache_lines_are_seconds)
{
	pool(0, "vol");
	print();
	expect_line_once("ofi_rpmem_pool_bytes" WHO ",pool=\"vol\"} 4096");
	expect_line_once("ofi_rpmem_committed_bytes_total" WHO
			 ",pool=\"vol\"} 100");
	expect_line_once("ofi_rpmem_msyncs_total" WHO ",pool=\"vol\"} 3");
	expect_line_once("ofi_rpmem_msync_seconds_total" WHO
			 ",pool=\"vol\"} 1.500000000");
	expect_line_once("ofi_rpmem_cache_flushes_total" WHO
			 ",pool=\"vol\"} 9");
	expect_line_once("ofi_rpmem_cache_flush_seconds_total" WHO
			 ",pool=\"vol\"} 0.000000250");
}

Test(stats_text, class_and_failure_are_of_registered_pools)
{
	pool(0, "good");
	pool(1, "bad")->failed = EIO;
	pool(2, "gone")->failed = EIO;
	c->page.region[1].class = RP_CLASS_PROCESS;
	c->page.region[2].used = 0;
	print();
	expect_line_once("ofi_rpmem_pool_class" WHO
			 ",pool=\"good\",method=\"agent-msync\"} 2");
	expect_line_once("ofi_rpmem_pool_class" WHO
			 ",pool=\"bad\",method=\"agent-msync\"} 1");
	cr_assert_eq(lines("ofi_rpmem_pool_class{"), 2);
	expect_line_once("ofi_rpmem_pool_failed" WHO ",pool=\"good\"} 0");
	expect_line_once("ofi_rpmem_pool_failed" WHO ",pool=\"bad\"} 1");
	expect_line_once("ofi_rpmem_pool_failed" WHO ",pool=\"gone\"} 0");
}

/* A byte of a name that would end its label is escaped. */
Test(stats_text, names_are_escaped_and_distinct)
{
	pool(0, "a\"b\\c");
	pool(3, "two");
	pool(4, "two");
	print();
	expect_line_once("ofi_rpmem_pool_bytes" WHO
			 ",pool=\"a\\\"b\\\\c\"} 4096");
	expect_line_once("ofi_rpmem_pool_bytes" WHO ",pool=\"two\"} 4096");
	expect_line_once("ofi_rpmem_pool_bytes" WHO ",pool=\"two#4\"} 4096");
}

Test(stats_text, buckets_add_up_to_the_count)
{
	static const char name[] = "ofi_rpmem_commit_seconds";
	struct rp_stats_histogram *h = &pool(0, "vol")->commits;
	char line[128];

	h->count[80] = 5;
	h->count[100] = 6;
	h->count[RP_STATS_BUCKETS - 1] = 1;
	h->ticks = 4000000000;
	print();
	snprintf(line, sizeof(line), "%s_bucket" WHO ",pool=\"vol\"", name);
	cr_assert_eq(lines(line), 30);
	snprintf(line, sizeof(line),
		 "%s_bucket" WHO ",pool=\"vol\",method=\"agent-msync\","
		 "le=\"+Inf\"} 12",
		 name);
	expect_line_once(line);
	snprintf(line, sizeof(line),
		 "%s_bucket" WHO ",pool=\"vol\",method=\"agent-msync\","
		 "le=\"%.12g\"} 11",
		 name, rp_bucket_end(103) / 1e9);
	expect_line_once(line);
	snprintf(line, sizeof(line),
		 "%s_sum" WHO ",pool=\"vol\",method=\"agent-msync\"} "
		 "2.000000000",
		 name);
	expect_line_once(line);
	snprintf(line, sizeof(line),
		 "%s_count" WHO ",pool=\"vol\",method=\"agent-msync\"} 12",
		 name);
	expect_line_once(line);
}
