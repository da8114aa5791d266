/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target that is stopped and continued, and an initiator whose calls are
 * bounded.
 */
#ifndef RP_TEST_TESTBED_H
#define RP_TEST_TESTBED_H

#include <rdma/fi_atomic.h>

#include "functional/pair.h"

/*
 * The driver forks one process for each test row, and never calls libfabric. A
 * row opens one testbed: it forks the target, and is the initiator itself. Both
 * map the target's memory, so a row can read that memory at any moment.
 */

/*
 * Seconds after which repeated -FI_EAGAIN or a missing completion is a failure.
 */
#define BED_DEADLINE 30.0
/* Seconds in which operations must succeed again, with pauses between tries. */
#define BED_RECOVERY_SECONDS 15.0
#define BED_PAUSE	     0.02

enum bed_memory {
	BED_FILE,     /* class power, method agent-msync */
	BED_TMPFS,    /* class process */
	BED_EMULATED, /* class none, method agent-clwb */
	BED_MEMORIES,
};
extern const char *const bed_memory_names[BED_MEMORIES];

/* The first word of messages that the target counts. */
#define BED_MARK UINT64_C(0x4b52414d4b52414d)

/* One operation. Its address is the context of the call. */
struct bed_op {
	int ends;   /* completions read, of either kind */
	int err;    /* err of the error entry; 0: success */
	int status; /* prov_errno of the error entry */
};

struct bed_opts {
	size_t len;		/* bytes of the region */
	enum bed_memory memory; /* kind of memory */
	bool auto_progress;	/* FI_PROGRESS_AUTO on both sides */
	unsigned int timeout;	/* FI_OFI_RPMEM_TIMEOUT, ms */
	bool receives;		/* the target receives every message */
};

struct bed {
	pid_t target;
	bool stopped;
	char path[64]; /* path of the region's file */
	char *mem;     /* the region, mapped by the row */
	size_t len;
	int to, from; /* commands to the target, its replies */
	struct card card;
	struct side s;
	/*
	 * Continue a stopped target if posting takes a while: an endpoint may
	 * need the target to make a new connection.
	 */
	bool wakes;
	const char *wrong; /* the first unexpected completion */
	/*
	 * Number of messages beginning with BED_MARK that the target has
	 * received.
	 */
	_Atomic uint64_t *marks;
};

/* Runs one row. Returns an error sentence, or NULL: the row is ok. */
typedef const char *(*bed_row_fn)(size_t row);
typedef void (*bed_name_fn)(size_t row, char *name, size_t size);

/*
 * Run n rows, some of them at a time, each in its own process. Prints a TAP
 * line for each row.
 */
void bed_run(size_t n, unsigned int at_once, bed_name_fn name, bed_row_fn row);

/* Seeded random numbers: the same seed gives the same numbers. */
void bed_seed(uint64_t seed);
uint64_t bed_random(void);
/* Hash a and b: the same arguments give the same value. */
uint64_t bed_mix(uint64_t a, uint64_t b);
/*
 * Parse --seed N and --only TEXT of a test program; the default is a new seed.
 */
void bed_args(int argc, char **argv, uint64_t *seed, const char **only);
/* Is RP_LONG=1 set? */
bool bed_long(void);

/* Name a file of the running row. The suffix "" names the region's file. */
void bed_file(char *path, size_t size, const char *suffix);

double bed_now(void);
void bed_sleep(double seconds);

/* Call in a row: fork the target, open the initiator, insert the address. */
void bed_open(struct bed *b, const struct bed_opts *o);
/* Stop or continue every thread of the target. */
void bed_stop(struct bed *b);
void bed_continue(struct bed *b);
/*
 * Make progress at both ends for ms milliseconds. False: the target is dead.
 * The target must not be stopped.
 */
bool bed_drain(struct bed *b, unsigned int ms);
/* Shut down every TCP connection of this process. Returns their number. */
int bed_cut(struct bed *b);
/* Remove the target's address and insert it again. 0, or a negative errno. */
int bed_reinsert(struct bed *b);
/* Close the endpoint, and open another one with the same objects. */
void bed_reopen(struct bed *b);

/* Read the completion queue. Returns the number of completions. */
int bed_poll(struct bed *b);
/* Wait until op has ended. False: it has not ended in time. */
bool bed_wait(struct bed *b, const struct bed_op *op, double seconds);

/*
 * Repeat a call while it returns -FI_EAGAIN, for at most BED_DEADLINE, and make
 * progress. Returns the call's last result.
 */
#define BED_POST(b, call) BED_POST_FOR(b, BED_DEADLINE, call)
/* Like BED_POST, for a given number of seconds. */
#define BED_POST_FOR(b, seconds, call)                                         \
	({                                                                     \
		double since_ = bed_now();                                     \
		ssize_t r_;                                                    \
		while ((r_ = (call)) == -FI_EAGAIN &&                          \
		       bed_now() - since_ < (seconds))                         \
			bed_retry(b, since_);                                  \
		r_;                                                            \
	})
/* Make progress before a call is repeated. since: time of the first try. */
void bed_retry(struct bed *b, double since);

/* Post operations at offsets of the region. */
ssize_t bed_write(struct bed *b, const void *buf, uint64_t at, size_t len,
		  uint64_t flags, struct bed_op *op);
ssize_t bed_commit(struct bed *b, uint64_t at, size_t len,
		   const struct fi_rpmem_then *then, struct bed_op *op);
/* Post an atomic on one uint64_t: a fetch if result, a compare if compare. */
ssize_t bed_atomic(struct bed *b, enum fi_op kind, const uint64_t *operand,
		   const uint64_t *compare, uint64_t *result, uint64_t at,
		   uint64_t flags, struct bed_op *op);

/*
 * Write and commit until both succeed, within BED_RECOVERY_SECONDS. NULL, or an
 * error sentence. Then the bytes are placed.
 */
const char *bed_commit_again(struct bed *b, const void *buf, uint64_t at,
			     size_t len);
/* Make progress at the initiator for some seconds. */
void bed_pause(struct bed *b, double seconds);
/* The TCP ports on which a process listens. Returns their number, at most n. */
int bed_ports(pid_t pid, uint16_t *ports, int n);
/* Format a sentence that outlives the caller's frame. */
const char *bed_says(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));

#endif
