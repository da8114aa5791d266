// SPDX-License-Identifier: BSD-2-Clause
/* Counters in Prometheus text format. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "core/session.h"
#include "util/stats.h"

/* The printed buckets end at powers of two, the first one at 2^LOW ns. */
#define LOW 9

struct exposition {
	FILE *out;
	const struct rp_stats_copy *const *copies;
	size_t n;
};

static const struct rp_stats *page_of(const struct exposition *t, size_t i)
{
	return &t->copies[i]->page;
}

/* The next region with a name after r (NULL: from the first on), or NULL. */
static const struct rp_stats_region *
region_next(const struct rp_stats *s, const struct rp_stats_region *r)
{
	for (r = r ? r + 1 : s->region; r < &s->region[RP_STATS_REGIONS]; r++)
		if (r->name[0])
			return r;
	return NULL;
}

static void head(const struct exposition *t, const char *name, const char *type,
		 const char *help)
{
	fprintf(t->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Escape quotes and backslashes; other bytes are printable ASCII. */
static void put_label(FILE *out, const char *name, const char *value)
{
	fprintf(out, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			fputc('\\', out);
		fputc(*value, out);
	}
	fputc('"', out);
}

/* Print name and labels of one line, without the closing brace. */
static void begin_sample(const struct exposition *t, size_t i, const char *name)
{
	const struct rp_stats_copy *c = t->copies[i];

	fprintf(t->out, "%s{pid=\"%d", name, (int)c->pid);
	if (c->nth)
		fprintf(t->out, ":%u", c->nth + 1);
	fputs("\",", t->out);
	put_label(t->out, "command", c->command);
}

static void end_sample(const struct exposition *t, uint64_t value)
{
	fprintf(t->out, "} %" PRIu64 "\n", value);
}

static void end_sample_seconds(const struct exposition *t, double seconds)
{
	fprintf(t->out, "} %.9f\n", seconds);
}

static void put_one(const struct exposition *t, const char *name,
		    const char *type, const char *help, size_t at)
{
	head(t, name, type, help);
	for (size_t i = 0; i < t->n; i++) {
		begin_sample(t, i, name);
		end_sample(t, *(const uint64_t *)((const char *)page_of(t, i) +
						  at));
	}
}

/* If an earlier region has the same name, append the region's number. */
static void region_begin(const struct exposition *t, size_t i, const char *name,
			 const struct rp_stats_region *r)
{
	const struct rp_stats_region *first = t->copies[i]->page.region, *e;
	char pool[RP_STATS_NAME + 8];

	for (e = first; e < r && strcmp(e->name, r->name); e++)
		;
	snprintf(pool, sizeof(pool), e < r ? "%s#%d" : "%s", r->name,
		 (int)(r - first));
	begin_sample(t, i, name);
	fputc(',', t->out);
	put_label(t->out, "pool", pool);
}

static void put_region(const struct exposition *t, const char *name,
		       const char *type, const char *help, size_t at)
{
	head(t, name, type, help);
	for (size_t i = 0; i < t->n; i++)
		for (const struct rp_stats_region *r =
			     region_next(page_of(t, i), NULL);
		     r; r = region_next(page_of(t, i), r)) {
			const uint64_t v =
				*(const uint64_t *)((const char *)r + at);

			region_begin(t, i, name, r);
			end_sample(t, v);
		}
}

/* Seconds that regions spent in msync, or in flushes of cache lines. */
static void put_region_seconds(const struct exposition *t, const char *name,
			       const char *help, bool msync)
{
	head(t, name, "counter", help);
	for (size_t i = 0; i < t->n; i++)
		for (const struct rp_stats_region *r =
			     region_next(page_of(t, i), NULL);
		     r; r = region_next(page_of(t, i), r)) {
			region_begin(t, i, name, r);
			end_sample_seconds(
				t, msync ? (double)r->msync_ns / 1e9
					 : rp_stats_seconds(page_of(t, i),
							    r->flush_ticks));
		}
}

static void put_info(const struct exposition *t)
{
	static const char name[] = "ofi_rpmem_pool_class";

	head(t, name, "gauge",
	     "Failure class of a pool: 0 none, 1 process, 2 power.");
	for (size_t i = 0; i < t->n; i++)
		for (const struct rp_stats_region *r =
			     region_next(page_of(t, i), NULL);
		     r; r = region_next(page_of(t, i), r)) {
			if (!r->used)
				continue;
			region_begin(t, i, name, r);
			fprintf(t->out, ",method=\"%s\"",
				rp_method_name((enum rp_method)r->method));
			end_sample(t, r->class);
		}
	head(t, "ofi_rpmem_pool_failed", "gauge",
	     "1 if a flush of the pool has failed: commits to it fail.");
	for (size_t i = 0; i < t->n; i++)
		for (const struct rp_stats_region *r =
			     region_next(page_of(t, i), NULL);
		     r; r = region_next(page_of(t, i), r)) {
			region_begin(t, i, "ofi_rpmem_pool_failed", r);
			end_sample(t, r->failed != 0 && r->used);
		}
}

/* The name and labels of a histogram. */
struct series {
	const struct exposition *t;
	size_t i;
	const char *name;
	const struct rp_stats_region *region; /* its commits; NULL: of method */
	int method;
};

static void series_begin(const struct series *s, const char *suffix)
{
	char name[80];

	snprintf(name, sizeof(name), "%s%s", s->name, suffix);
	if (s->region)
		region_begin(s->t, s->i, name, s->region);
	else
		begin_sample(s->t, s->i, name);
	fprintf(s->t->out, ",method=\"%s\"",
		rp_method_name(s->region ? (enum rp_method)s->region->method
					 : (enum rp_method)s->method));
}

static void put_histogram(const struct series *s,
			  const struct rp_stats_histogram *h)
{
	FILE *out = s->t->out;
	uint64_t sum = 0;

	for (size_t i = 0; i < RP_STATS_BUCKETS; i++) {
		const double ns = rp_bucket_end(i);

		sum += h->count[i];
		/* Every fourth bucket ends at a power of two. */
		if (i % 4 != 3 || ns < 1 << LOW || isinf(ns))
			continue;
		series_begin(s, "_bucket");
		fprintf(out, ",le=\"%.12g\"", ns / 1e9);
		end_sample(s->t, sum);
	}
	series_begin(s, "_bucket");
	fputs(",le=\"+Inf\"", out);
	end_sample(s->t, sum);
	series_begin(s, "_sum");
	end_sample_seconds(s->t,
			   rp_stats_seconds(page_of(s->t, s->i), h->ticks));
	series_begin(s, "_count");
	end_sample(s->t, sum);
}

static void put_commits(const struct exposition *t)
{
	struct series of = {t, 0, "ofi_rpmem_commit_seconds", NULL, 0};

	head(t, of.name, "histogram",
	     "Time of commits at the target, from decoding to reply.");
	for (size_t i = 0; i < t->n; i++)
		for (const struct rp_stats_region *r =
			     region_next(page_of(t, i), NULL);
		     r; r = region_next(page_of(t, i), r)) {
			of.i = i;
			of.region = r;
			put_histogram(&of, &r->commits);
		}
	of.name = "ofi_rpmem_durable_seconds";
	of.region = NULL;
	head(t, of.name, "histogram",
	     "Time of durable operations at the initiator.");
	for (size_t i = 0; i < t->n; i++)
		for (of.method = 1; of.method < RP_METHOD_MAX; of.method++) {
			of.i = i;
			if (rp_histogram_count(
				    &page_of(t, i)->durable[of.method]))
				put_histogram(
					&of,
					&page_of(t, i)->durable[of.method]);
		}
}

static void put_statuses(const struct exposition *t, const char *name,
			 const char *help, size_t at)
{
	head(t, name, "counter", help);
	for (size_t i = 0; i < t->n; i++)
		for (int st = 1; st < RP_ST_MAX; st++) {
			const uint64_t *v =
				(const uint64_t *)((const char *)page_of(t, i) +
						   at) +
				st;

			if (!*v)
				continue;
			begin_sample(t, i, name);
			fputc(',', t->out);
			put_label(t->out, "status",
				  rp_status_name((enum rp_status)st));
			end_sample(t, *v);
		}
}

static void put_operations(const struct exposition *t)
{
	static const char *const kinds[RP_STATS_KINDS] = {
		[RP_OP_WRITE] = "write",   [RP_OP_READ] = "read",
		[RP_OP_COMMIT] = "commit", [RP_OP_ATOMIC] = "atomic",
		[RP_OP_QUERY] = "query",
	};
	static const char *const names[] = {"ofi_rpmem_operations_total",
					    "ofi_rpmem_operation_bytes_total"};

	for (int b = 0; b < 2; b++) {
		head(t, names[b], "counter",
		     b ? "Bytes of operations that an initiator completed."
		       : "Operations that an initiator completed.");
		for (size_t i = 0; i < t->n; i++)
			for (int k = 0; k < RP_STATS_KINDS; k++) {
				begin_sample(t, i, names[b]);
				fprintf(t->out, ",kind=\"%s\"", kinds[k]);
				end_sample(t,
					   b ? page_of(t, i)->completed_bytes[k]
					     : page_of(t, i)->completed[k]);
			}
	}
	head(t, "ofi_rpmem_operations_outstanding", "gauge",
	     "Operations of an initiator that are not complete.");
	for (size_t i = 0; i < t->n; i++) {
		begin_sample(t, i, "ofi_rpmem_operations_outstanding");
		end_sample(t, rp_stats_outstanding(page_of(t, i)));
	}
}

#define PAGE(field)   offsetof(struct rp_stats, field)
#define REGION(field) offsetof(struct rp_stats_region, field)

static void put_target(const struct exposition *t)
{
	put_one(t, "ofi_rpmem_requests_total", "counter",
		"Requests that the target accepted.", PAGE(requests));
	put_statuses(t, "ofi_rpmem_failures_total",
		     "Replies of failure of the target.", PAGE(failures));
	put_one(t, "ofi_rpmem_jobs", "gauge", "Requests that wait for a flush.",
		PAGE(jobs));
	put_one(t, "ofi_rpmem_sessions", "gauge",
		"Initiators that are connected to the target.", PAGE(sessions));
	put_one(t, "ofi_rpmem_sessions_total", "counter",
		"Connections of initiators that the target accepted.",
		PAGE(accepted));
	put_one(t, "ofi_rpmem_refused_connections_total", "counter",
		"Connections that the target refused.", PAGE(refused));
	put_one(t, "ofi_rpmem_refused_keys_total", "counter",
		"Keys of no region, in requests and connections.",
		PAGE(refused_keys));
	put_one(t, "ofi_rpmem_region_failures_total", "counter",
		"Regions whose flush has failed.", PAGE(failed_regions));
	put_region(t, "ofi_rpmem_pool_bytes", "gauge", "Length of a pool.",
		   REGION(length));
	put_info(t);
	put_region(t, "ofi_rpmem_committed_bytes_total", "counter",
		   "Bytes that the target made durable.", REGION(bytes));
	put_region(t, "ofi_rpmem_msyncs_total", "counter", "Calls of msync.",
		   REGION(msyncs));
	put_region_seconds(t, "ofi_rpmem_msync_seconds_total",
			   "Time inside msync.", true);
	put_region(t, "ofi_rpmem_cache_flushes_total", "counter",
		   "Flushes and drains of cache lines.", REGION(flushes));
	put_region_seconds(t, "ofi_rpmem_cache_flush_seconds_total",
			   "Time of flushes and drains of cache lines.", false);
}

int rp_stats_prometheus(FILE *out, const struct rp_stats_copy *const *copies,
			size_t n)
{
	const struct exposition t = {out, copies, n};

	put_target(&t);
	put_operations(&t);
	put_statuses(&t, "ofi_rpmem_operation_failures_total",
		     "Operations of an initiator that failed.", PAGE(errors));
	put_one(&t, "ofi_rpmem_connected", "gauge",
		"Targets that an initiator is connected to.", PAGE(connected));
	put_one(&t, "ofi_rpmem_connections_total", "counter",
		"Connections that an initiator made.", PAGE(connections));
	put_one(&t, "ofi_rpmem_reconnections_total", "counter",
		"Connections made again after a loss or a pause.",
		PAGE(reconnections));
	put_commits(&t);
	return ferror(out) ? -ENOMEM : 0;
}
