/* SPDX-License-Identifier: BSD-2-Clause */
/* A target that is stopped and continued, an initiator that posts in bounds. */
#ifndef RP_TEST_TESTBED_H
#define RP_TEST_TESTBED_H

#include <rdma/fi_atomic.h>

#include "functional/pair.h"

/*
 * The driver forks one process for each row and never calls libfabric. A row
 * opens one testbed: it forks the target and is the initiator itself. Both map
 * the target's memory, so a row can look at it at any moment.
 */

/* Seconds after which a repeated -FI_EAGAIN or a missing entry is a failure. */
#define BED_DEADLINE 30.0
/* Seconds within which operations have to succeed again, with pauses. */
#define BED_RECOVERY_SECONDS 15.0
#define BED_PAUSE	     0.02

enum bed_memory {
	BED_FILE,     /* class power, agent-msync */
	BED_TMPFS,    /* class process */
	BED_EMULATED, /* class none, agent-clwb */
	BED_MEMORIES,
};
extern const char *const bed_memory_names[BED_MEMORIES];

/* The first word of a message that the target counts. */
#define BED_MARK UINT64_C(0x4b52414d4b52414d)

/* One operation: its address is the context of the call. */
struct bed_op {
	int ends;   /* entries seen, of either kind */
	int err;    /* of the error entry; 0: success */
	int status; /* prov_errno of the error entry */
};

struct bed_opts {
	size_t len;		/* bytes of the region */
	enum bed_memory memory; /* what backs it */
	bool auto_progress;	/* FI_PROGRESS_AUTO on both sides */
	unsigned int timeout;	/* FI_OFI_RPMEM_TIMEOUT, ms */
	bool receives;		/* the target takes every message */
};

struct bed {
	pid_t target;
	bool stopped;
	char path[64]; /* of the file behind the region */
	char *mem;     /* the region, mapped here too */
	size_t len;
	int to, from; /* the target's commands and acknowledgements */
	struct card card;
	struct side s;
	/*
	 * An endpoint that makes a new connection may need the target: if set,
	 * posting continues a stopped target after a while.
	 */
	bool wakes;
	const char *wrong; /* the first unexpected entry */
	/* Messages beginning with BED_MARK that the target has received. */
	_Atomic uint64_t *marks;
};

/* One error sentence for the row; NULL: the row is ok. */
typedef const char *(*bed_row_fn)(size_t row);
typedef void (*bed_name_fn)(size_t row, char *name, size_t size);

/* Run n rows, some at a time, each in its own process; one TAP line each. */
void bed_run(size_t n, unsigned int at_once, bed_name_fn name, bed_row_fn row);

/* Seeded numbers: the same seed gives the same numbers. */
void bed_seed(uint64_t seed);
uint64_t bed_random(void);
/* A hash: mix(a, b) of equal arguments is equal. */
uint64_t bed_mix(uint64_t a, uint64_t b);
/* --seed N and --only TEXT of a test program; a fresh seed otherwise. */
void bed_args(int argc, char **argv, uint64_t *seed, const char **only);
/* RP_LONG=1 is set. */
bool bed_long(void);

/* A name for a file of the running row; "" for suffix is the region's. */
void bed_file(char *path, size_t size, const char *suffix);

double bed_now(void);
void bed_sleep(double seconds);

/* In a row: fork the target, open the initiator, insert the address. */
void bed_open(struct bed *b, const struct bed_opts *o);
/* Stop every thread of the target, or continue them. */
void bed_stop(struct bed *b);
void bed_continue(struct bed *b);
/*
 * Both sides make progress for ms milliseconds; false: the target is dead. The
 * target must not be stopped.
 */
bool bed_drain(struct bed *b, unsigned int ms);
/* Shut down every TCP connection of this process; returns how many. */
int bed_cut(struct bed *b);
/* Remove the target's address and insert it again; 0 or a negative errno. */
int bed_reinsert(struct bed *b);
/* Close the endpoint, and open another one on the same objects. */
void bed_reopen(struct bed *b);

/* Read entries of the completion queue; returns how many. */
int bed_poll(struct bed *b);
/* Wait until op has ended; false: it did not within the time. */
bool bed_wait(struct bed *b, const struct bed_op *op, double seconds);

/*
 * Repeat a call while it returns -FI_EAGAIN, with progress, for at most
 * BED_DEADLINE: what it returned last.
 */
#define BED_POST(b, call) BED_POST_FOR(b, BED_DEADLINE, call)
/* As BED_POST, for so many seconds. */
#define BED_POST_FOR(b, seconds, call)                                         \
	({                                                                     \
		double since_ = bed_now();                                     \
		ssize_t r_;                                                    \
		while ((r_ = (call)) == -FI_EAGAIN &&                          \
		       bed_now() - since_ < (seconds))                         \
			bed_retry(b, since_);                                  \
		r_;                                                            \
	})
/* Make progress before the next try of a call first made at since. */
void bed_retry(struct bed *b, double since);

/* Calls at offsets of the region. */
ssize_t bed_write(struct bed *b, const void *buf, uint64_t at, size_t len,
		  uint64_t flags, struct bed_op *op);
ssize_t bed_commit(struct bed *b, uint64_t at, size_t len,
		   const struct fi_rpmem_then *then, struct bed_op *op);
/* An atomic on one uint64_t: a fetch if result, a compare if compare. */
ssize_t bed_atomic(struct bed *b, enum fi_op kind, const uint64_t *operand,
		   const uint64_t *compare, uint64_t *result, uint64_t at,
		   uint64_t flags, struct bed_op *op);

/*
 * Write and commit until both succeed, within BED_RECOVERY_SECONDS: NULL or the
 * sentence. The bytes are in place then.
 */
const char *bed_commit_again(struct bed *b, const void *buf, uint64_t at,
			     size_t len);
/* Make progress at the initiator for a while. */
void bed_pause(struct bed *b, double seconds);
/* The TCP ports that a process listens on; returns how many, n at most. */
int bed_ports(pid_t pid, uint16_t *ports, int n);
/* A sentence that outlives the caller's frame. */
const char *bed_says(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));

#endif
