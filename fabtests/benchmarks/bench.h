/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of fi_rpmem_bench and suite: two processes, their cases, the report. */
#ifndef RP_BENCH_H
#define RP_BENCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rdma/fi_ext_rpmem.h>

#include "core/caps.h"
#include "fabtests/benchmarks/rival.h"
#include "util/fabric.h"
#include "fabtests/benchmarks/samples.h"

#define BENCH_LIST	     8		/* sizes, and counts of ranges */
#define BENCH_MAX_SIZE	     (4u << 20) /* one write */
#define BENCH_MAX_RANGES     1024
#define BENCH_NAME	     128 /* bytes of an endpoint name */
#define BENCH_PAGE	     4096u
#define BENCH_BUF	     ((size_t)2 * BENCH_MAX_SIZE) /* source, then reply */
#define BENCH_MAX_INITIATORS 16
#define BENCH_OBJECTS	     50000	 /* maximum objects of the mixed case */
#define BENCH_DISK	     (32u << 20) /* file beside the pool */
#define BENCH_FIGURES	     16		 /* maximum metrics of a suite */
#define BENCH_RATIO_MIN	     10		 /* samples of a median in a ratio */

/* Endpoints of a case; the target polls this side while the case runs. */
enum bench_side {
	BENCH_BASE,
	BENCH_RPMEM,
	BENCH_SIDES,
	BENCH_RIVAL = BENCH_SIDES, /* the first of RIVALS sides */
	BENCH_IDLE = BENCH_RIVAL + RIVALS,
	BENCH_WORK, /* the target does bench_shared.work */
	BENCH_QUIT,
};

enum bench_work {
	BENCH_NO_WORK,
	BENCH_DIRTY, /* store to the ranges */
	BENCH_FLUSH, /* store, then flush by libpmem2, timed */
};

/* A run has one mode, and runs only the cases of this mode. */
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
/* The modes of the two programs; suite runs itself in the mode file. */
#define BENCH_SUITE_MODES                                                      \
	(BENCH_SUITE | BENCH_INITIATORS | BENCH_CALIBRATE | BENCH_PROBE |      \
	 BENCH_FILE)
#define BENCH_USER_MODES                                                       \
	(BENCH_ALL | BENCH_PINGPONG | BENCH_RATE | BENCH_WRITE |               \
	 BENCH_COMMIT | BENCH_MIXED | BENCH_SEQUENTIAL | BENCH_LOCAL |         \
	 BENCH_FILE)
#define BENCH_WITH_RIVALS                                                      \
	(BENCH_WRITE | BENCH_SUITE | BENCH_CALIBRATE | BENCH_PROBE)

struct bench_cfg {
	enum bench_mode mode;
	const char *base;    /* name of the base provider */
	const char *node;    /* address to bind to; NULL: loopback */
	const char *listen;  /* be the target of another process, HOST:PORT */
	const char *connect; /* the target is another process, HOST:PORT */
	const char *dax;     /* the pool is this device; NULL: it is a file */
	bool rivals; /* suite: compare with rivals that need an RDMA device */
	int rival;   /* probe: index of the rival; negative: the provider */
	const char *mark; /* probe: file of marks, or NULL */
	uint64_t sizes[BENCH_LIST];
	size_t nsizes;
	uint64_t ranges[BENCH_LIST];
	size_t nranges;
	uint64_t iterations; /* samples of a case, at most */
	uint64_t seconds;    /* total measuring time */
	const char *pool;    /* NULL: a temporary file */
	uint64_t window;     /* outstanding writes */
	bool emulate;
	bool shm;	    /* emulated persistent memory: a file on tmpfs */
	bool disk;	    /* true: a second region, in a file on disk */
	const char *method; /* NULL: the cheapest one */
	bool persistent; /* probe: write to the pool, not to volatile memory */
	bool durable;	 /* probe: commit each write */
	bool sleep;	 /* the target sleeps instead of polling */
	const char *class; /* NULL: "power", or "none" with --emulate */
	const char *json;  /* NULL: none; "-": standard output */
	const char *bars[BENCH_FIGURES]; /* suite: NAME=VALUE overrides */
	size_t nbars;
	bool pin;
	unsigned int cpu[2]; /* initiator, target */
	uint64_t seed;
};

/* Page shared by initiator and target process. */
struct bench_shared {
	_Atomic int mode;	     /* enum bench_side that the target polls */
	_Atomic bool initiator_open; /* true: initiator_name[] is valid */
	_Atomic bool target_open;    /* true: the rest of the page is valid */
	_Atomic bool exported;	     /* true: target[] is valid */
	_Atomic int seen;	     /* the mode that the target has adopted */
	uint8_t initiator_name[BENCH_SIDES][BENCH_NAME];
	size_t initiator_len[BENCH_SIDES];
	_Atomic uint64_t reply_size; /* bytes of the reply to a ping */
	_Atomic int work; /* enum bench_work; the target clears it when done */
	uint64_t work_off, work_size, work_ranges, work_ns;
	char work_why[RP_ERR_LEN]; /* reason why work_ns is not valid */
	struct bench_rival {
		bool ok;
		char why[RP_ERR_LEN];
		struct rival_page page;
	} rival[RIVALS];
	uint64_t volatile_key, volatile_addr; /* region of the provider */
	bool disk_ok;
	char disk_why[RP_ERR_LEN];
	uint64_t disk_key, disk_addr;
	struct bench_export {
		bool ok;
		char why[RP_ERR_LEN]; /* reason why it is not open */
		uint8_t name[BENCH_NAME];
		size_t len;
		uint64_t key;
		uint64_t addr; /* address of the first byte of the pool */
	} target[BENCH_SIDES];
};

/* The pool. Each process has a mapping of it. */
struct bench_pool {
	int fd; /* -1: anonymous, shared by fork */
	char *path;
	char *map;
	size_t len;
	char kind[128]; /* text such as "file on ext4" */
};

/* One open endpoint of the initiator, and the region it writes to. */
struct bench_end {
	bool ok;
	char why[RP_ERR_LEN]; /* reason why it is not open */
	struct rp_fabric f;
	struct fid_mr *mr; /* registration of buf */
	fi_addr_t peer;
	uint64_t key, addr;
	uint64_t stall_start; /* time (ns) of the first refused post, or 0 */
};

struct bench {
	const struct bench_cfg *cfg;
	struct bench_shared *shared;
	struct bench_pool pool, disk;
	struct bench_end end[BENCH_SIDES];
	struct bench_end initiators[BENCH_SIDES][BENCH_MAX_INITIATORS];
	struct rival_end *rival[RIVALS];
	double *zipf; /* cumulative distribution over nzipf objects */
	size_t nzipf;
	char *buf;    /* BENCH_BUF bytes: source of writes, then the reply */
	pid_t target; /* process id; negative: the target has ended */
	int control;  /* connection to a target or initiator elsewhere, or -1 */
	char *node;   /* address to bind to, or NULL */
	uint64_t random;	   /* state of bench_random() */
	struct fi_rpmem_attr attr; /* size 0: the query failed */
	enum rp_class reached;	   /* class of commits by attr.method */
	char attr_why[RP_ERR_LEN]; /* attr.why, or why there is none */
};

/* One line of the table: a case with one size and count. */
struct bench_case;
struct bench_line {
	const struct bench_case *what;
	uint64_t size;
	uint64_t ranges;    /* number of ranges, initiators, or the window */
	unsigned int group; /* lines of one group are measured in turns */
	struct rp_samples samples; /* ns */
	char note[RP_ERR_LEN];	   /* why samples are missing */
	bool dead;
};

struct bench_case {
	const char *name;  /* name in JSON */
	const char *title; /* title in the table */
	int side;	   /* enum bench_side */
	bool many;	   /* one line per count of ranges */
	unsigned int modes;
	/*
	 * Run the case once; *ns is its duration. Returns 0, or -FI_* and err.
	 */
	int (*run)(struct bench *b, const struct bench_line *l, uint64_t *ns,
		   char *err);
};
extern const struct bench_case bench_cases[];
extern const size_t bench_ncases;
const struct bench_case *bench_case_find(const char *name);
typedef int bench_run_fn(struct bench *b, const struct bench_line *l,
			 uint64_t *ns, char *err);

/*
 * bench_main.c: parse the arguments and run one of these modes, the first one
 * by default. Returns the exit code.
 */
int bench_main(int argc, char **argv, const char *name, unsigned int allowed,
	       enum bench_mode first, const char *doc);

/* bench_op.c: the steps of which cases consist. */
int bench_read_cq(struct bench_end *e, size_t n, char *err);
int bench_make_room(struct bench_end *e, size_t *taken, char *err);
int bench_post(struct bench *b, struct bench_end *e, uint64_t off,
	       uint64_t size, uint64_t flags, size_t *taken, char *err);
int bench_post_read(struct bench *b, struct bench_end *e, uint64_t off,
		    uint64_t size, size_t *taken, char *err);
int bench_post_commit(struct bench_end *e, const struct fi_rma_iov *ranges,
		      size_t n, enum fi_rpmem_class required, size_t *taken,
		      char *err);
uint64_t bench_place(struct bench *b, uint64_t size, uint64_t n);
/* Let the target do this work; *ns is its duration, or 0. */
int bench_work(struct bench *b, enum bench_work what, uint64_t off,
	       uint64_t size, uint64_t ranges, uint64_t *ns, char *err);

/* bench_bulk.c, bench_initiators.c, bench_local.c: cases of many operations. */
bench_run_fn bench_run_rate_base, bench_run_rate, bench_run_rate_pmem;
bench_run_fn bench_run_writes_base, bench_run_writes_commit;
bench_run_fn bench_run_sequential_base, bench_run_sequential;
bench_run_fn bench_run_mixed_base, bench_run_mixed;
bench_run_fn bench_run_initiators_base, bench_run_initiators;
bench_run_fn bench_run_reads_base;
bench_run_fn bench_run_disk_each, bench_run_disk_batch;
bench_run_fn bench_run_disk_alone_each, bench_run_disk_alone_batch;
bench_run_fn bench_run_agent_flush, bench_run_local_flush;
bench_run_fn bench_run_clwb, bench_run_stream;
bench_run_fn bench_run_rival;
void bench_initiators_close(struct bench *b);

/*
 * bench_pool.c. Each write of a case starts on a separate page, with an unused
 * page after it: adjacent ranges would merge into one range.
 */
static inline uint64_t bench_stride(uint64_t size)
{
	return ((size + BENCH_PAGE - 1) / BENCH_PAGE + 1) * BENCH_PAGE;
}
int bench_pool_open(struct bench *b, char *err);
/* Set the pool's length by the sizes of the run, unless an option gives it. */
void bench_pool_size(struct bench *b);
void bench_pool_touch(const struct bench *b);
void bench_pool_close(struct bench_pool *p);

/* bench_target.c: run the target process. Returns its exit code. */
int bench_target_run(struct bench *b);

/* bench_run.c: one run: its processes, memory and cases. */
int bench_alloc(struct bench *b, char *err);
int bench_start(struct bench *b, char *err);
/* Set the side that the target polls; return when the target polls it. */
void bench_set_mode(struct bench *b, int mode);
int bench_measure(struct bench *b, struct bench_line *lines, size_t n);
void bench_stop(struct bench *b);

/*
 * bench_remote.c: connect to a target on another machine; exchange the two
 * parts of the page with it; act as that target until its initiator ends.
 */
int bench_remote_connect(struct bench *b, char *err);
void bench_remote_exchange(struct bench *b);
int bench_remote_serve(struct bench *b, char *err);
uint64_t bench_now(void);
uint64_t bench_random(struct bench *b);

/* bench_report.c: the table and the JSON report. */
void bench_report_table(const struct bench *b, struct bench_line *lines,
			size_t n);
int bench_report_json(const struct bench *b, struct bench_line *lines, size_t n,
		      char *err);
struct json_t *bench_report_machine(void);
struct json_t *bench_report_line(struct bench_line *l);
const char *bench_report_base(const struct bench *b);
void bench_report_head(const struct bench *b);
int bench_report_write(struct json_t *root, const char *path, char *err);

/* Run the suite. Returns an exit code, or a negative errno and err. */
int bench_suite_run(struct bench *b, char *err);
/*
 * bench_suite.c: the lines that a suite measures (each group takes turns) and
 * the figures that it computes from them.
 */
#define BENCH_GROUP_LINES 12
struct bench_spec {
	const char *name;
	uint64_t size, ranges;
};
/* A ratio of two medians. */
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
	const struct bench_spec (*groups)[BENCH_GROUP_LINES];
	size_t ngroups;
	const struct bench_metric *metrics;
	size_t nmetrics;
	const uint64_t *sizes; /* sizes of BENCH_EACH_SIZE, ascending */
	size_t nsizes;
	const struct bench_metric *also; /* figures without a bar */
	size_t nalso;
	/*
	 * Measures figures that need other processes: first, on an idle
	 * machine.
	 */
	void (*before)(struct bench *b);
};
extern const struct bench_plan bench_plan_rivals; /* bench_rivals.c */
int bench_suite_ratio(const struct bench_ratio *r, double *value, char *err);

/* A figure, or the reason why it is unknown. */
struct bench_figure {
	bool known;
	double value;		  /* with BENCH_EACH_SIZE: of the worst size */
	uint64_t worst;		  /* the worst size */
	double each[BENCH_SIZES]; /* by index of plan->sizes; NAN: unknown */
	char why[RP_ERR_LEN];
};
int bench_figure_value(const struct bench_figure *f, double *value, char *err);

/* Results of one suite. */
struct bench_result {
	const struct bench_plan *plan;
	struct bench_line *lines;
	size_t nlines;
	double load; /* load average of 1 minute, before the first case */
	struct bench_figure f[BENCH_FIGURES], also[BENCH_FIGURES];
};

/* bench_bars.c: check --bar. Returns 0, or -EINVAL for an unknown metric. */
int bench_bars_check(const struct bench *b, const struct bench_result *r,
		     char *err);
/* Whether every figure is known and within its bar. */
bool bench_bars_pass(const struct bench *b, const struct bench_result *r);
void bench_bars_print(const struct bench *b, const struct bench_result *r);
struct json_t *bench_bars_json(const struct bench *b,
			       const struct bench_result *r);

/* Medians of fi_rpmem_bench file, in ns. */
struct bench_file {
	double write, msync, trip;
};
/*
 * Run fi_rpmem_bench file in another process, because its commits need another
 * failure class.
 */
int bench_file_run(const struct bench *b, struct bench_file *f, char *err);

int bench_calibrate_run(struct bench *b, char *err);
int bench_probe_run(struct bench *b, char *err);

/* CPU share of an idle target with FI_PROGRESS_AUTO. */
int bench_idle_share(const struct bench *b, double *share, char *err);
/*
 * Instructions of the initiator, libraries included, for one durable write of
 * this size: by the provider, or by a rival if rival is not negative.
 */
int bench_instructions_durable(const struct bench *b, int rival, uint64_t size,
			       double *each, uint64_t *empty, char *err);
/* Whether a run with this configuration measures rival i. */
static inline bool bench_wants_rival(const struct bench_cfg *cfg, int i)
{
	if (cfg->mode == BENCH_PROBE)
		return i == cfg->rival;
	return (cfg->mode & BENCH_WITH_RIVALS) &&
	       rivals[i]->rdma == cfg->rivals;
}
/*
 * Instructions that the provider adds to one write. *empty counts reads of the
 * completion queue that found nothing.
 */
int bench_instructions(const struct bench *b, bool persistent, double *each,
		       uint64_t *empty, char *err);
/* Draw two plots next to the report, or print why not. */
void bench_plot(const char *json, struct bench_line *lines, size_t n);

#endif
