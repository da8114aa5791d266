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

#include "util/fabric.h"
#include "util/samples.h"

#define BENCH_LIST	 8	    /* sizes, and counts of ranges */
#define BENCH_MAX_SIZE	 (1u << 20) /* one write */
#define BENCH_MAX_RANGES 1024
#define BENCH_NAME	 128 /* bytes of a fabric address */
#define BENCH_PAGE	 4096u
#define BENCH_BUF	 (BENCH_MAX_SIZE + 64)

/* Which endpoints a case runs on, and what the target drives meanwhile. */
enum bench_side {
	BENCH_BASE,
	BENCH_OURS,
	BENCH_SIDES,
	BENCH_IDLE = BENCH_SIDES,
	BENCH_QUIT,
};

struct bench_cfg {
	const char *base; /* name of the base provider */
	uint64_t sizes[BENCH_LIST];
	size_t nsizes;
	uint64_t ranges[BENCH_LIST];
	size_t nranges;
	uint64_t iterations; /* per case at most */
	uint64_t seconds;    /* of measuring in all */
	const char *pool;    /* NULL: a file of our own */
	bool emulate;
	bool sleep;	   /* the target does not poll */
	const char *class; /* NULL: power, or none when emulating */
	const char *json;  /* NULL: none; "-": standard output */
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
	struct bench_pool pool;
	struct bench_end end[BENCH_SIDES];
	char *buf; /* BENCH_BUF: what is written, then what is answered */
	pid_t target;
	uint64_t random;	   /* state */
	struct fi_rpmem_attr attr; /* size 0: the target did not tell */
	char attr_why[RP_ERR_LEN];
};

/* One line of the table: what is done, how large, how often. */
struct bench_case;
struct bench_line {
	const struct bench_case *what;
	uint64_t size;
	uint64_t ranges;
	struct rp_samples samples; /* ns */
	char note[RP_ERR_LEN];	   /* why there are none, or no more */
	bool dead;
};

struct bench_case {
	const char *name;  /* in JSON */
	const char *title; /* in the table */
	enum bench_side side;
	bool many; /* one line per count of ranges */
	/* Do it once; *ns is the time it took. 0, or -FI_* and err. */
	int (*run)(struct bench *b, const struct bench_line *l, uint64_t *ns,
		   char *err);
};
extern const struct bench_case bench_cases[];
extern const size_t bench_ncases;

/*
 * bench_pool.c. Every write of a case has pages of its own, and a page
 * between them that nobody writes: ranges that touch would be one range.
 */
static inline uint64_t bench_stride(uint64_t size)
{
	return ((size + BENCH_PAGE - 1) / BENCH_PAGE + 1) * BENCH_PAGE;
}
int bench_pool_open(struct bench *b, char *err);
void bench_pool_close(struct bench *b);

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

#endif
