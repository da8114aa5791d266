/* SPDX-License-Identifier: BSD-2-Clause */
/* The page of counters: its buckets, its regions, its file. */
#include "config.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/stats.h"

/*
 * Map the page through /proc, as another process does. Sets *count to the
 * number of files with the page's name; returns the last one's page.
 */
static const struct rp_stats *page_read(int *count)
{
	const struct rp_stats *p = NULL;
	char path[300], to[64];
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	ssize_t n;
	int fd;

	*count = 0;
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		if (n < 0 || (to[n] = 0, strncmp(to, "/memfd:" RP_STATS_FILE,
						 7 + strlen(RP_STATS_FILE))))
			continue;
		(*count)++;
		fd = open(path, O_RDWR);
		p = mmap(NULL, sizeof(*p), PROT_READ, MAP_SHARED, fd, 0);
		cr_assert(p != MAP_FAILED);
		cr_assert_eq(ftruncate(fd, 0), -1, "it cannot be cut short");
		close(fd);
	}
	closedir(d);
	return p;
}

/* The greatest double below. */
static double double_below(double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	bits--;
	memcpy(&x, &bits, sizeof(bits));
	return x;
}

Test(stats, buckets_are_quarters_of_powers_of_two)
{
	for (size_t i = 0; i < RP_STATS_BUCKETS - 1; i++) {
		double end = rp_bucket_end(i);

		cr_assert_eq(rp_stats_bucket(end), i + 1);
		cr_assert_eq(rp_stats_bucket(double_below(end)), i);
		cr_assert_eq(end, ldexp(4 + (i + 1) % 4, (int)(i + 1) / 4 - 5));
	}
	cr_assert_eq(rp_bucket_end(3), 0.25);
	cr_assert_eq(rp_bucket_end(RP_STATS_BUCKETS - 2), ldexp(1, 37));
	cr_assert(isinf(rp_bucket_end(RP_STATS_BUCKETS - 1)));
}

Test(stats, every_time_has_a_bucket)
{
	const uint64_t now = rp_stats_now(), later = now + (1ull << 40);
	const uint64_t starts[] = {now,
				   now - 1,
				   now + (1ull << 20),
				   0,
				   UINT64_MAX,
				   now - (1ull << 36),
				   now + 1,
				   now + (1ull << 63),
				   now - (1ull << 62)};
	const double scales[] = {0.125, 0.4, 1, 2};

	for (int i = 0; i < 4; i++) {
		for (size_t j = 0; j < sizeof(starts) / sizeof(*starts); j++) {
			uint64_t ticks = rp_stats_ticks_since(&starts[j]);

			cr_assert_gt(ticks, 0);
			cr_assert_lt(rp_stats_bucket((double)ticks * scales[i]),
				     RP_STATS_BUCKETS);
		}
	}
	/* A counter that is behind took no time. */
	cr_assert_eq(rp_stats_ticks_since(&later), 1);
}

Test(stats, histogram_counts_each_once)
{
	static struct rp_stats_histogram h;
	uint64_t sum = 0, ticks = 0;

	for (uint64_t t = 1; t < 1ull << 36; t += t / 3 + 1) {
		rp_stats_time_add(&h, t);
		ticks += t;
		sum++;
	}
	cr_assert_eq(h.ticks, ticks);
	for (size_t i = 0; i < RP_STATS_BUCKETS; i++)
		sum -= h.count[i];
	cr_assert_eq(sum, 0);
}

/* A hostile page may have counts in the last bucket, which has no end. */
Test(stats, quantiles_are_finite)
{
	struct rp_stats_histogram h = {.ticks = 0};

	cr_assert_eq(rp_histogram_quantile(&h, 0.5), 0);
	h.count[RP_STATS_BUCKETS - 1] = 3;
	cr_assert_eq(rp_histogram_quantile(&h, 0.5), ldexp(1, 37));
	h.count[40] = 4;
	cr_assert_eq(rp_histogram_quantile(&h, 0.5), rp_bucket_end(40));
	cr_assert_eq(rp_histogram_quantile(&h, 0.99), ldexp(1, 37));
}

Test(stats, ticks_become_nanoseconds)
{
	struct timespec a, b;
	uint64_t start;
	double ns, got;

	rp_stats_open();
	cr_assert_eq(rp_stats->ns_per_tick, rp_stats_ns_per_tick);
	clock_gettime(CLOCK_MONOTONIC, &a);
	start = rp_stats_now();
	usleep(20000);
	got = rp_stats_seconds(rp_stats, rp_stats_ticks_since(&start)) * 1e9;
	clock_gettime(CLOCK_MONOTONIC, &b);
	ns = (double)(b.tv_sec - a.tv_sec) * 1e9 +
	     (double)(b.tv_nsec - a.tv_nsec);
	cr_assert(got > 19e6 && got < ns * 1.05, "%g of %g", got, ns);
}

Test(stats, page_is_made_once_and_is_readable)
{
	const struct rp_stats *p;
	int n;

	rp_stats_add(&rp_stats->requests, 1);
	cr_assert_null(page_read(&n));
	rp_stats_open();
	rp_stats_open();
	p = page_read(&n);
	cr_assert_eq(n, 1);
	cr_assert_eq(p->magic, RP_STATS_MAGIC);
	cr_assert_eq(p->version, RP_STATS_VERSION);
	cr_assert_eq(p->size, sizeof(*p));
	rp_stats_add(&rp_stats->requests, 3);
	cr_assert_eq(p->requests, 3);
}

Test(stats, child_of_fork_makes_another_page)
{
	const struct rp_stats *p;
	struct rp_stats_region *r;
	int n, status;
	pid_t pid;

	r = rp_stats_region_open("a", 1, RP_CLASS_POWER, RP_METHOD_FENCE);
	p = page_read(&n);
	pid = fork();
	if (!pid) {
		rp_stats_add(&r->bytes, 7);
		page_read(&n);
		if (n)
			_exit(1);
		rp_stats_open();
		rp_stats_add(&rp_stats->requests, 5);
		p = page_read(&n);
		_exit(n == 1 && p->requests == 5 ? 0 : 2);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
	cr_assert_eq(p->region[0].bytes, 0);
	cr_assert_eq(p->requests, 0);
	cr_assert_str_eq(p->region[0].name, "a");
}

static struct rp_stats_region *open_region(const char *name)
{
	return rp_stats_region_open(name, 4096, RP_CLASS_PROCESS,
				    RP_METHOD_AGENT_MSYNC);
}

Test(stats, region_of_the_same_name_goes_on)
{
	struct rp_stats_region *r = open_region("pool"), *s;

	rp_stats_add(&r->bytes, 10);
	r->failed = 5;
	/* Two keys of one pool: one of them has failed. */
	s = open_region("pool");
	cr_assert_eq(r, s);
	cr_assert_eq(r->used, 2);
	cr_assert_eq(r->failed, 5);
	rp_stats_region_close(r);
	rp_stats_region_close(r);
	cr_assert_neq(open_region("other"), r, "there are unused ones");
	cr_assert_eq(open_region("pool"), r);
	cr_assert_eq(r->used, 1);
	cr_assert_eq(r->bytes, 10);
	cr_assert_eq(r->failed, 0);
	cr_assert_eq(r->length, 4096);
	cr_assert_eq(r->class, RP_CLASS_PROCESS);
	cr_assert_eq(r->method, RP_METHOD_AGENT_MSYNC);
}

/* The copy of a page has all names; *arg counts the copies. */
static void expect_copied(void *arg, struct rp_stats_copy *c)
{
	int *n = arg;

	for (int i = 0; i < RP_STATS_REGIONS; i++)
		cr_assert_str_eq(c->page.region[i].name,
				 rp_stats->region[i].name, "%d", i);
	cr_assert_eq(c->page.requests, rp_stats->requests);
	++*n;
}

Test(stats, reader_copies_all_names)
{
	char name[24];
	int n = 0;

	rp_stats_open();
	rp_stats_add(&rp_stats->requests, 3);
	for (int i = 0; i < RP_STATS_REGIONS + 2; i++) {
		snprintf(name, sizeof(name), "pool %d", i);
		if (i % 500 < 2)
			rp_stats_each(getpid(), expect_copied, &n);
		open_region(name);
	}
	rp_stats_each(getpid(), expect_copied, &n);
	cr_assert_eq(n, 7);
}

Test(stats, regions_beyond_the_last_share_one)
{
	struct rp_stats_region *r[RP_STATS_REGIONS + 1];
	char name[NAME_MAX + 1];

	for (int i = 0; i <= RP_STATS_REGIONS; i++) {
		snprintf(name, sizeof(name), "%0*d", NAME_MAX, i);
		r[i] = open_region(i ? name : "");
		/* Names that differ in their last byte share no counters. */
		cr_assert(i <= 0 || i >= RP_STATS_REGIONS - 1 ||
			  !strcmp(r[i]->name, name));
		cr_assert(!i || i == RP_STATS_REGIONS || r[i] != r[i - 1]);
	}
	cr_assert_str_eq(r[0]->name, "anonymous");
	cr_assert_str_eq(r[RP_STATS_REGIONS]->name, "others");
	cr_assert_eq(r[RP_STATS_REGIONS], r[RP_STATS_REGIONS - 1]);
	cr_assert_eq(r[RP_STATS_REGIONS]->used, 2);
	/* The counters of a region that is closed stay for its name. */
	snprintf(name, sizeof(name), "%0*d", NAME_MAX, 3);
	rp_stats_add(&r[3]->bytes, 9);
	rp_stats_region_close(r[3]);
	cr_assert_eq(open_region("new"), r[RP_STATS_REGIONS]);
	cr_assert_eq(open_region(name), r[3]);
	cr_assert_eq(r[3]->bytes, 9);
}

/* Without memory for a page, everything is counted, and nobody reads it. */
Test(stats, no_page_changes_nothing)
{
	struct rp_stats_region *r;
	const struct rlimit none = {0, 0};
	int n;

	/* No file can have a length. */
	signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
	r = open_region("pool");
	rp_stats_add(&r->bytes, 1);
	cr_assert_eq(r->bytes, 1);
	rp_stats_add(&rp_stats->requests, 2);
	cr_assert_eq(rp_stats->requests, 2);
	cr_assert_null(page_read(&n));
}
