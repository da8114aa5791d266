// SPDX-License-Identifier: BSD-2-Clause
/* Counters of running processes: as a table, JSON, or Prometheus text. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/session.h"
#include "util/clock.h"
#include "util/exit_codes.h"
#include "util/info.h"
#include "util/stats.h"
#include "util/text.h"

struct copies {
	struct rp_stats_copy **v;
	size_t n;
};

static void take(void *arg, struct rp_stats_copy *c)
{
	struct copies *all = arg;
	struct rp_stats_copy **v =
		realloc(all->v, (all->n + 1) * sizeof(*all->v));

	if (!v)
		return;
	all->v = v;
	v[all->n] = malloc(sizeof(*c));
	if (v[all->n])
		*v[all->n++] = *c;
}

static void copies_free(struct copies *all)
{
	for (size_t i = 0; i < all->n; i++)
		free(all->v[i]);
	free(all->v);
	*all = (struct copies){0};
}

static const struct rp_stats_copy *find(const struct copies *all,
					const struct rp_stats_copy *c)
{
	for (size_t i = 0; i < all->n; i++)
		if (all->v[i]->pid == c->pid && all->v[i]->nth == c->nth)
			return all->v[i];
	return NULL;
}

/* --- JSON --- */

static json_t *times_json(const struct rp_stats *s,
			  const struct rp_stats_histogram *h)
{
	const uint64_t n = rp_histogram_count(h);

	return json_pack("{s:I, s:f, s:f, s:f}", "count", (json_int_t)n,
			 "seconds", rp_stats_seconds(s, h->ticks), "p50_us",
			 rp_histogram_quantile(h, 0.5) / 1e3, "p99_us",
			 rp_histogram_quantile(h, 0.99) / 1e3);
}

static json_t *region_json(const struct rp_stats *s,
			   const struct rp_stats_region *r)
{
	return json_pack(
		"{s:s, s:b, s:I, s:s, s:s, s:I, s:I, s:o, s:{s:I, s:f}, "
		"s:{s:I, s:f}}",
		"pool", r->name, "registered", r->used != 0, "length",
		(json_int_t)r->length, "class",
		rp_class_name((enum rp_class)r->class), "method",
		rp_method_name((enum rp_method)r->method), "failed",
		(json_int_t)r->failed, "bytes", (json_int_t)r->bytes, "commits",
		times_json(s, &r->commits), "msync", "count",
		(json_int_t)r->msyncs, "seconds", (double)r->msync_ns / 1e9,
		"cache_flushes", "count", (json_int_t)r->flushes, "seconds",
		rp_stats_seconds(s, r->flush_ticks));
}

static json_t *statuses_json(const uint64_t v[RP_STATS_STATUSES])
{
	json_t *o = json_object();

	for (int i = 1; i < RP_ST_MAX; i++)
		if (v[i])
			json_object_set_new(o,
					    rp_status_name((enum rp_status)i),
					    json_integer((json_int_t)v[i]));
	return o;
}

static json_t *target_json(const struct rp_stats *s)
{
	json_t *pools = json_array();

	for (int i = 0; i < RP_STATS_REGIONS; i++)
		if (s->region[i].name[0])
			json_array_append_new(pools,
					      region_json(s, &s->region[i]));
	return json_pack(
		"{s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "requests",
		(json_int_t)s->requests, "failures", statuses_json(s->failures),
		"jobs", (json_int_t)s->jobs, "sessions",
		(json_int_t)s->sessions, "accepted", (json_int_t)s->accepted,
		"refused", (json_int_t)s->refused, "refused_keys",
		(json_int_t)s->refused_keys, "failed_regions",
		(json_int_t)s->failed_regions, "pools", pools);
}

static json_t *initiator_json(const struct rp_stats *s)
{
	json_t *methods = json_object(), *kinds = json_object();
	static const char *const names[RP_STATS_KINDS] = {
		[RP_OP_WRITE] = "write",   [RP_OP_READ] = "read",
		[RP_OP_COMMIT] = "commit", [RP_OP_ATOMIC] = "atomic",
		[RP_OP_QUERY] = "query",
	};

	for (int i = 1; i < RP_METHOD_MAX; i++)
		if (rp_histogram_count(&s->durable[i]))
			json_object_set_new(methods,
					    rp_method_name((enum rp_method)i),
					    times_json(s, &s->durable[i]));
	for (int i = 0; i < RP_STATS_KINDS; i++)
		json_object_set_new(
			kinds, names[i],
			json_pack("{s:I, s:I}", "count",
				  (json_int_t)s->completed[i], "bytes",
				  (json_int_t)s->completed_bytes[i]));
	return json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:o}", "operations",
			 kinds, "failures", statuses_json(s->errors),
			 "outstanding", (json_int_t)rp_stats_outstanding(s),
			 "connected", (json_int_t)s->connected, "connections",
			 (json_int_t)s->connections, "reconnections",
			 (json_int_t)s->reconnections, "durable", methods);
}

static json_t *copy_json(const struct rp_stats_copy *c)
{
	return json_pack("{s:i, s:s, s:o, s:o}", "pid", (int)c->pid, "command",
			 c->command, "target", target_json(&c->page),
			 "initiator", initiator_json(&c->page));
}

/* --- the table --- */

/* old: print counts per second since this earlier page; NULL: print totals. */
struct rate {
	const struct rp_stats *old;
	double seconds;
};

static void print_count(const char *what, uint64_t now, uint64_t before,
			const struct rate *r)
{
	if (r->old)
		printf("  %s %.0f/s", what,
		       (double)(now - before) / r->seconds);
	else
		printf("  %s %" PRIu64, what, now);
}

static void print_times(const struct rp_stats_histogram *h,
			const struct rp_stats_histogram *old)
{
	struct rp_stats_histogram diff = *h;

	for (size_t i = 0; old && i < RP_STATS_BUCKETS; i++)
		diff.count[i] -= old->count[i];
	if (rp_histogram_count(&diff))
		printf("  p50 %.1f us  p99 %.1f us",
		       rp_histogram_quantile(&diff, 0.5) / 1e3,
		       rp_histogram_quantile(&diff, 0.99) / 1e3);
}

static uint64_t sum_of(const uint64_t v[RP_STATS_STATUSES])
{
	uint64_t sum = 0;

	for (int i = 1; i < RP_STATS_STATUSES; i++)
		sum += v[i];
	return sum;
}

#define OLD(r, field) ((r)->old ? (r)->old->field : 0)

static void print_region(const struct rp_stats *s, int i, const struct rate *r)
{
	const struct rp_stats_region *g = &s->region[i];
	const struct rp_stats_region *old = r->old ? &r->old->region[i] : NULL;
	char size[RP_SIZE_LEN];

	printf("    %s  %s  %s by %s%s", g->name,
	       rp_size_format(g->length, size),
	       rp_class_name((enum rp_class)g->class),
	       rp_method_name((enum rp_method)g->method),
	       !g->used	   ? "  closed"
	       : g->failed ? "  FAILED: restart the target"
			   : "");
	print_count("commits", rp_histogram_count(&g->commits),
		    old ? rp_histogram_count(&old->commits) : 0, r);
	print_count("bytes", g->bytes, old ? old->bytes : 0, r);
	print_times(&g->commits, old ? &old->commits : NULL);
	putchar('\n');
}

static void print_target(const struct rp_stats *s, const struct rate *r)
{
	printf("  target");
	print_count("requests", s->requests, OLD(r, requests), r);
	print_count("failures", sum_of(s->failures),
		    r->old ? sum_of(r->old->failures) : 0, r);
	printf("  jobs %" PRIu64 "  sessions %" PRIu64, s->jobs, s->sessions);
	print_count("refused keys", s->refused_keys, OLD(r, refused_keys), r);
	printf("  failed regions %" PRIu64 "\n", s->failed_regions);
	for (int i = 0; i < RP_STATS_REGIONS; i++)
		if (s->region[i].name[0])
			print_region(s, i, r);
}

static void print_initiator(const struct rp_stats *s, const struct rate *r)
{
	printf("  initiator");
	print_count("operations", s->started, OLD(r, started), r);
	print_count("failures", sum_of(s->errors),
		    r->old ? sum_of(r->old->errors) : 0, r);
	printf("  outstanding %" PRIu64 "  connected %" PRIu64
	       "  reconnections %" PRIu64 "\n",
	       rp_stats_outstanding(s), s->connected, s->reconnections);
	for (int i = 1; i < RP_METHOD_MAX; i++) {
		const uint64_t n = rp_histogram_count(&s->durable[i]);

		if (!n)
			continue;
		printf("    by %s", rp_method_name((enum rp_method)i));
		print_count("durable", n,
			    r->old ? rp_histogram_count(&r->old->durable[i])
				   : 0,
			    r);
		print_times(&s->durable[i],
			    r->old ? &r->old->durable[i] : NULL);
		putchar('\n');
	}
}

static void print_table(const struct copies *all, const struct copies *before,
			double seconds)
{
	for (size_t i = 0; i < before->n; i++)
		if (!find(all, before->v[i]))
			printf("process %d  %s  has ended\n",
			       (int)before->v[i]->pid, before->v[i]->command);
	for (size_t i = 0; i < all->n; i++) {
		const struct rp_stats_copy *c = all->v[i];
		const struct rp_stats_copy *old = find(before, c);
		const struct rate r = {old ? &old->page : NULL, seconds};

		printf("process %d  %s\n", (int)c->pid, c->command);
		if (c->page.region[0].name[0])
			print_target(&c->page, &r);
		if (c->page.started)
			print_initiator(&c->page, &r);
	}
	if (!all->n)
		puts("no process that this user may see has counters");
	fflush(stdout);
}

/* --- the command --- */

static int print(const struct copies *all, const struct copies *before,
		 double seconds, const struct info_stats *cfg)
{
	json_t *o;

	if (cfg->prometheus)
		return rp_stats_prometheus(
			stdout, (const struct rp_stats_copy *const *)all->v,
			all->n);
	if (!cfg->json) {
		print_table(all, before, seconds);
		return 0;
	}
	o = json_array();
	for (size_t i = 0; i < all->n; i++)
		json_array_append_new(o, copy_json(all->v[i]));
	json_dumpf(o, stdout, cfg->watch ? JSON_COMPACT : JSON_INDENT(2));
	putchar('\n');
	fflush(stdout);
	json_decref(o);
	return 0;
}

int info_stats(const struct info_stats *cfg)
{
	struct copies all = {0}, before = {0};
	uint64_t now, last = 0;
	int ret;

	/* Undo handlers of libfabric's libinfinipath, which exit with 1. */
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	for (;; last = now) {
		now = rp_now_ms();
		ret = rp_stats_each(cfg->pid, take, &all);
		if (ret < 0 || (cfg->pid && !ret)) {
			fprintf(stderr, "fi_rpmem_info: process %d: %s\n",
				(int)cfg->pid,
				before.n ? "it has ended"
				: ret == -EACCES
					? "another user's or group's: read its "
					  "counters as that user and group, or "
					  "as root"
				: ret ? "no such process"
				      : "it has no counters: it has registered "
					"no persistent memory and written to "
					"none, or is of another release: use "
					"the fi_rpmem_info of that");
			break;
		}
		ret = print(&all, &before, (double)(now - last) / 1e3, cfg);
		if (ret || !cfg->watch)
			break;
		copies_free(&before);
		before = all;
		all = (struct copies){0};
		sleep(cfg->watch);
	}
	ret = ret < 0 || (cfg->pid && !all.n) ? RP_EXIT_NOTHING : RP_EXIT_OK;
	copies_free(&before);
	copies_free(&all);
	return ret;
}
