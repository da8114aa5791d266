/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of fi_rpmem_bench: two processes, their cases, the report. */
#ifndef RP_UTIL_BENCH_H
#define RP_UTIL_BENCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rdma/fi_ext_rpmem.h>

#include "core/caps.h"
#include "fabtests/benchmarks/rival.h"
#include "util/fabric.h"
#include "util/samples.h"

#define BENCH_LIST	 8	    /* sizes, and counts of ranges */
#define BENCH_MAX_SIZE	 (4u << 20) /* one write */
#define BENCH_MAX_RANGES 1024
#define BENCH_NAME	 128 /* bytes of a fabric address */
#define BENCH_PAGE	 4096u
#define BENCH_BUF	 ((size_t)2 * BENCH_MAX_SIZE) /* sent, then received */
#define BENCH_CROWD	 16			      /* initiators */
#define BENCH_OBJECTS	 50000	     /* of the mixed case, at most */
#define BENCH_DISK	 (32u << 20) /* the file beside the pool */
#define BENCH_FIGURES	 16	     /* metrics of a suite, at most */

/* Which endpoints a case runs on, and what the target drives meanwhile. */
enum bench_side {
	BENCH_BASE,
	BENCH_OURS,
	BENCH_SIDES,
	BENCH_RIVAL = BENCH_SIDES, /* and the other rivals behind it */
	BENCH_IDLE = BENCH_RIVAL + RIVALS,
	BENCH_WORK, /* the target does enum bench_work by itself */
	BENCH_QUIT,
};

enum bench_work {
	BENCH_NO_WORK,
	BENCH_DIRTY, /* store to the ranges */
	BENCH_FLUSH, /* store to them, then flush them by libpmem2: timed */
};

/* What is measured: one of these, and of each only its own cases. */
enum bench_mode {
	BENCH_ALL = 1,
	BENCH_PINGPONG = 2,
	BENCH_RATE = 4,
	BENCH_WRITE = 8,
	BENCH_COMMIT = 16,
	BENCH_INITIATORS = 32,
	BENCH_MIXED = 64,
	BENCH_SEQUENTIAL = 128,
	BENCH_LOCAL = 256,
	BENCH_SUITE = 512,
	BENCH_CALIBRATE = 1024,
	BENCH_PROBE = 2048,
	BENCH_FILE = 4096,
};
#define BENCH_WITH_RIVALS                                                      \
	(BENCH_WRITE | BENCH_SUITE | BENCH_CALIBRATE | BENCH_PROBE)

struct bench_cfg {
	enum bench_mode mode;
	const char *base; /* name of the base provider */
	const char *node; /* address to bind to; NULL: the loopback's */
	const char *dax;  /* the pool is this device; NULL: it is a file */
	bool rivals;	  /* suite: against those that need an RDMA device */
	int rival;	  /* probe: this one, if not negative */
	const char *mark; /* probe: told of each write; NULL: nobody */
	uint64_t sizes[BENCH_LIST];
	size_t nsizes;
	uint64_t ranges[BENCH_LIST];
	size_t nranges;
	uint64_t iterations; /* per case at most */
	uint64_t seconds;    /* of measuring in all */
	const char *pool;    /* NULL: a file of our own */
	uint64_t window;     /* writes in flight */
	bool emulate;
	bool shm;	    /* emulated, but a file on tmpfs */
	bool disk;	    /* a second region, on a file */
	const char *method; /* NULL: the cheapest */
	bool persistent;    /* probe: write to the pool, not beside it */
	bool durable;	    /* probe: and commit */
	bool sleep;	    /* the target does not poll */
	const char *class;  /* NULL: power, or none when emulating */
	const char *json;   /* NULL: none; "-": standard output */
	const char *cost;   /* calibrate: figures for the provider, or NULL */
	const char *bars[BENCH_FIGURES]; /* suite: NAME=VALUE, replaced bars */
	size_t nbars;
	bool pin;
	unsigned int cpu[2]; /* initiator, target */
	uint64_t seed;
};

/* What the two processes tell each other: a shared page, not a message. */
struct bench_shared {
	_Atomic int mode;	     /* enum bench_side: what to drive */
	_Atomic bool initiator_open; /* its names are below */
	_Atomic bool target_open;    /* the rest is */
	uint8_t initiator_name[BENCH_SIDES][BENCH_NAME];
	size_t initiator_len[BENCH_SIDES];
	_Atomic uint64_t answer; /* bytes that a ping is answered by */
	_Atomic int work;	 /* enum bench_work; the target clears it */
	uint64_t work_off, work_size, work_ranges, work_ns;
	char work_why[RP_ERR_LEN]; /* work_ns is nothing */
	struct bench_rival {
		bool ok;
		char why[RP_ERR_LEN];
		struct rival_page page;
	} rival[RIVALS];
	uint64_t volatile_key, volatile_addr; /* ours, not persistent */
	bool disk_ok;
	char disk_why[RP_ERR_LEN];
	uint64_t disk_key, disk_addr;
	struct bench_export {
		bool ok;
		char why[RP_ERR_LEN]; /* not ok */
		uint8_t name[BENCH_NAME];
		size_t len;
		uint64_t key;
		uint64_t addr; /* of the pool's first byte */
	} target[BENCH_SIDES];
};

/* The pool: mapped by each process by itself. */
struct bench_pool {
	int fd; /* -1: anonymous, shared by fork */
	char *path;
	char *map;
	size_t len;
	char kind[128]; /* for people: "file on ext4" */
};

/* What the initiator has open. */
struct bench_end {
	bool ok;
	char why[RP_ERR_LEN]; /* not ok */
	struct rp_fabric f;
	struct fid_mr *mr; /* of buf */
	fi_addr_t peer;
	uint64_t key, addr;
	uint64_t stuck; /* a post is refused since then */
};

struct bench {
	const struct bench_cfg *cfg;
	struct bench_shared *shared;
	struct bench_pool pool, disk;
	struct bench_end end[BENCH_SIDES];
	struct bench_end crowd[BENCH_SIDES][BENCH_CROWD];
	struct rival_end *rival[RIVALS];
	double *zipf; /* of this many objects: the sum up to each */
	size_t nzipf;
	char *buf; /* BENCH_BUF: what is written, then what is answered */
	pid_t target;
	uint64_t random;	   /* state */
	struct fi_rpmem_attr attr; /* size 0: the target did not tell */
	enum rp_class reached;	   /* by commits of attr.method */
	char attr_why[RP_ERR_LEN]; /* attr.why, or why there is none */
};

/* One line of the table: what is done, how large, how often. */
struct bench_case;
struct bench_line {
	const struct bench_case *what;
	uint64_t size;
	uint64_t ranges;	   /* or initiators, or the window */
	unsigned int group;	   /* measured in turns with others of it */
	struct rp_samples samples; /* ns */
	char note[RP_ERR_LEN];	   /* why there are none, or no more */
	bool dead;
};

struct bench_case {
	const char *name;  /* in JSON */
	const char *title; /* in the table */
	int side;	   /* enum bench_side */
	bool many;	   /* one line per count of ranges */
	unsigned int modes;
	/* Do it once; *ns is the time it took. 0, or -FI_* and err. */
	int (*run)(struct bench *b, const struct bench_line *l, uint64_t *ns,
		   char *err);
};
extern const struct bench_case bench_cases[];
extern const size_t bench_ncases;
const struct bench_case *bench_case_find(const char *name);
typedef int bench_run_fn(struct bench *b, const struct bench_line *l,
			 uint64_t *ns, char *err);

/* bench_op.c: single steps of the cases. */
int bench_take(struct bench_end *e, size_t n, char *err);
int bench_make_room(struct bench_end *e, size_t *taken, char *err);
int bench_post(struct bench *b, struct bench_end *e, uint64_t off,
	       uint64_t size, uint64_t flags, size_t *taken, char *err);
int bench_post_read(struct bench *b, struct bench_end *e, uint64_t off,
		    uint64_t size, size_t *taken, char *err);
int bench_post_commit(struct bench_end *e, const struct fi_rma_iov *ranges,
		      size_t n, enum fi_rpmem_class required, size_t *taken,
		      char *err);
uint64_t bench_place(struct bench *b, uint64_t size, uint64_t n);
/* The target does it now; then its time, or 0. */
int bench_work(struct bench *b, enum bench_work what, uint64_t off,
	       uint64_t size, uint64_t ranges, uint64_t *ns, char *err);

/* bench_bulk.c, bench_crowd.c, bench_local.c: cases of many operations. */
bench_run_fn bench_run_rate_base, bench_run_rate, bench_run_rate_pmem;
bench_run_fn bench_run_writes_base, bench_run_writes_commit;
bench_run_fn bench_run_sequential_base, bench_run_sequential;
bench_run_fn bench_run_mixed_base, bench_run_mixed;
bench_run_fn bench_run_crowd_base, bench_run_crowd;
bench_run_fn bench_run_reads_base;
bench_run_fn bench_run_disk_each, bench_run_disk_batch;
bench_run_fn bench_run_disk_alone_each, bench_run_disk_alone_batch;
bench_run_fn bench_run_agent_flush, bench_run_local_flush;
bench_run_fn bench_run_clwb, bench_run_stream;
bench_run_fn bench_run_rival;
void bench_crowd_close(struct bench *b);

/*
 * bench_pool.c. Every write of a case has pages of its own, and a page
 * between them that nobody writes: ranges that touch would be one range.
 */
static inline uint64_t bench_stride(uint64_t size)
{
	return ((size + BENCH_PAGE - 1) / BENCH_PAGE + 1) * BENCH_PAGE;
}
int bench_pool_open(struct bench *b, char *err);
void bench_pool_touch(const struct bench *b);
void bench_pool_close(struct bench_pool *p);

/* bench_target.c: returns the exit code of the target process. */
int bench_target_run(struct bench *b);

/* bench_run.c */
int bench_start(struct bench *b, char *err);
int bench_measure(struct bench *b, struct bench_line *lines, size_t n);
void bench_stop(struct bench *b);
uint64_t bench_now(void);
uint64_t bench_random(struct bench *b);

/* bench_report.c */
void bench_report_table(const struct bench *b, struct bench_line *lines,
			size_t n);
int bench_report_json(const struct bench *b, struct bench_line *lines, size_t n,
		      char *err);
struct json_t *bench_report_machine(void);
struct json_t *bench_report_line(struct bench_line *l);
const char *bench_report_base(const struct bench *b);
void bench_report_head(const struct bench *b);
int bench_report_write(struct json_t *root, const char *path, char *err);

/* Each returns an exit code, or a negative errno and err. */
int bench_suite_run(struct bench *b, char *err);
/* bench_suite.c: what a suite measures, in which company, and what of it. */
#define BENCH_COMPANY 12
struct bench_want {
	const char *name;
	uint64_t size, ranges;
};
/* A ratio of medians; of rates where less time is more. */
#define BENCH_EACH_SIZE 0 /* one ratio for each size of the plan */
#define BENCH_SIZES	16
struct bench_ratio {
	const char *upper, *lower;
	uint64_t size, ranges;
};
struct bench_metric {
	const char *name;
	double bar;
	bool least; /* the bar is a lower bound */
	struct bench_ratio r;
	int (*special)(struct bench *b, const struct bench_metric *m,
		       double *value, char *err);
};
static inline bool bench_metric_by_size(const struct bench_metric *m)
{
	return m->r.upper && m->r.size == BENCH_EACH_SIZE;
}
struct bench_plan {
	const struct bench_want (*groups)[BENCH_COMPANY];
	size_t ngroups;
	const struct bench_metric *metrics;
	size_t nmetrics;
	const uint64_t *sizes; /* of BENCH_EACH_SIZE, ascending */
	size_t nsizes;
	const struct bench_metric *also; /* no bars: in proportion */
	size_t nalso;
	/* What runs other processes: before the rest, the machine idle. */
	void (*before)(struct bench *b);
};
extern const struct bench_plan bench_plan_rivals; /* bench_rivals.c */
int bench_suite_ratio(const struct bench_ratio *r, double *value, char *err);

/* A figure that is known, or why it is not. */
struct bench_figure {
	bool known;
	double value;		  /* BENCH_EACH_SIZE: the worst */
	uint64_t worst;		  /* and its size */
	double each[BENCH_SIZES]; /* as in plan->sizes; NAN: unknown */
	char why[RP_ERR_LEN];
};
int bench_figure_value(const struct bench_figure *f, double *value, char *err);

/* What one suite obtained. */
struct bench_result {
	const struct bench_plan *plan;
	struct bench_line *lines;
	size_t nlines;
	double load; /* of the last minute, before the first case */
	struct bench_figure f[BENCH_FIGURES], also[BENCH_FIGURES];
};

/* bench_bars.c: 0, or -EINVAL if an option --bar names no metric. */
int bench_bars_check(const struct bench *b, const struct bench_result *r,
		     char *err);
/* Is every figure known and within its bar? */
bool bench_bars_met(const struct bench *b, const struct bench_result *r);
void bench_bars_print(const struct bench *b, const struct bench_result *r);
struct json_t *bench_bars_json(const struct bench *b,
			       const struct bench_result *r);

/* Medians of fi_rpmem_bench file, in ns. */
struct bench_file {
	double write, msync, trip;
};
/* Runs that in another process, because it has another failure class. */
int bench_file_run(const struct bench *b, struct bench_file *f, char *err);

int bench_calibrate_run(struct bench *b, char *err);
int bench_probe_run(struct bench *b, char *err);

/* CPU share of a target that advances by itself, without traffic. */
int bench_idle_share(const struct bench *b, double *share, char *err);
/*
 * Instructions of the initiator's program, libraries included, for a durable
 * write of this size: by the provider, or by a rival if not negative.
 */
int bench_instructions_durable(const struct bench *b, int rival, uint64_t size,
			       double *each, uint64_t *empty, char *err);
/* Is this rival one that such a run measures? */
static inline bool bench_wants_rival(const struct bench_cfg *cfg, int i)
{
	if (cfg->mode == BENCH_PROBE)
		return i == cfg->rival;
	return (cfg->mode & BENCH_WITH_RIVALS) &&
	       rivals[i]->rdma == cfg->rivals;
}
/* Instructions of the provider for one write; *empty: reads that saw nothing.
 */
int bench_instructions(const struct bench *b, bool persistent, double *each,
		       uint64_t *empty, char *err);
/* Two pictures beside the report, or a line that says why not. */
void bench_plot(const char *json, struct bench_line *lines, size_t n);

#endif
