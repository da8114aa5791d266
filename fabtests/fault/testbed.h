/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target that a test can stop and continue, and an initiator whose waits have
 * limits.
 */
#ifndef RP_TEST_TESTBED_H
#define RP_TEST_TESTBED_H

#include <rdma/fi_atomic.h>

#include "functional/pair.h"

/*
 * bed_run() forks one process for each test row; the main process never calls
 * libfabric. A row opens one testbed: it forks the target, and is itself the
 * initiator. Both map the target's memory, so the row can read that memory at
 * any moment.
 */

/*
 * Seconds after which repeated -FI_EAGAIN or a missing completion is a failure.
 */
#define BED_DEADLINE 30.0
/*
 * Seconds within which operations must succeed again after a fault, and the
 * pause between tries.
 */
#define BED_RECOVERY_SECONDS 15.0
#define BED_PAUSE	     0.02

enum bed_memory {
	BED_FILE,     /* class power, method agent-msync */
	BED_TMPFS,    /* class process */
	BED_EMULATED, /* class none, method agent-clwb */
	BED_MEMORIES,
};
extern const char *const bed_memory_names[BED_MEMORIES];

/* First word of the messages that the target counts in bed.marks. */
#define BED_MARK UINT64_C(0x4b52414d4b52414d)

/* One operation. Its address is the context of the call. */
struct bed_op {
	int ends;   /* completions and error entries read for it */
	int err;    /* err of the error entry; 0: success */
	int status; /* prov_errno of the error entry */
};

struct bed_opts {
	size_t len;		/* bytes of the region */
	enum bed_memory memory; /* kind of memory */
	bool auto_progress;	/* FI_PROGRESS_AUTO on both sides */
	unsigned int timeout;	/* FI_OFI_RPMEM_TIMEOUT, ms */
	bool receives;		/* the target's program receives all messages */
};

struct bed {
	pid_t target;
	bool stopped;
	char path[64]; /* path of the region's file */
	char *mem;     /* the region, mapped by the row */
	size_t len;
	int to, from; /* pipes: commands to the target, its replies */
	struct card card;
	struct side s;
	/*
	 * Continue a stopped target if a call returns -FI_EAGAIN for a while: a
	 * new connection may need the target.
	 */
	bool wakes;
	const char *wrong; /* the first unexpected completion */
	/*
	 * Number of messages that the target has received and that begin with
	 * BED_MARK.
	 */
	_Atomic uint64_t *marks;
};

/* Runs one row. Returns what is wrong, or NULL. */
typedef const char *(*bed_row_fn)(size_t row);
typedef void (*bed_name_fn)(size_t row, char *name, size_t size);

/*
 * Run n rows, at_once of them at a time, each in its own process. Prints a TAP
 * line for each row.
 */
void bed_run(size_t n, unsigned int at_once, bed_name_fn name, bed_row_fn row);

/* Random numbers: the same seed gives the same numbers. */
void bed_seed(uint64_t seed);
uint64_t bed_random(void);
/* Hash a and b: the same arguments give the same value. */
uint64_t bed_mix(uint64_t a, uint64_t b);
/*
 * Parse the options --seed N (default: a new seed) and --only TEXT of a test
 * program.
 */
void bed_args(int argc, char **argv, uint64_t *seed, const char **only);
/* Is RP_LONG=1 set? */
bool bed_long(void);

/* Make the name of a file of the running row, from the suffix. */
void bed_file(char *path, size_t size, const char *suffix);

double bed_now(void);
void bed_sleep(double seconds);

/* Call in a row: fork the target, open the initiator, insert the address. */
void bed_open(struct bed *b, const struct bed_opts *o);
/* Stop or continue every thread of the target. */
void bed_stop(struct bed *b);
void bed_continue(struct bed *b);
/*
 * Make progress at both ends for ms milliseconds. Returns false if the target
 * is dead. The target must not be stopped.
 */
bool bed_drain(struct bed *b, unsigned int ms);
/* Shut down every TCP connection of this process. Returns their number. */
int bed_cut(struct bed *b);
/*
 * Remove the target's address and insert it again. Returns 0, or a negative
 * errno.
 */
int bed_reinsert(struct bed *b);
/* Close the endpoint, and open another one with the same objects. */
void bed_reopen(struct bed *b);

/* Read the completion queue. Returns the number of completions. */
int bed_poll(struct bed *b);
/* Wait until op has completed. Returns false if it has not in this time. */
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
/* Make progress between two tries of a call. since: time of the first try. */
void bed_retry(struct bed *b, double since);

/* Post operations at offsets of the region. */
ssize_t bed_write(struct bed *b, const void *buf, uint64_t at, size_t len,
		  uint64_t flags, struct bed_op *op);
ssize_t bed_commit(struct bed *b, uint64_t at, size_t len,
		   const struct fi_rpmem_then *then, struct bed_op *op);
/*
 * Post an atomic on one uint64_t, which fetches if result is not NULL, and
 * compares if compare is not NULL.
 */
ssize_t bed_atomic(struct bed *b, enum fi_op kind, const uint64_t *operand,
		   const uint64_t *compare, uint64_t *result, uint64_t at,
		   uint64_t flags, struct bed_op *op);

/*
 * Write and commit until both succeed, within BED_RECOVERY_SECONDS. Returns
 * NULL, or what is wrong. The bytes are then in the target's memory.
 */
const char *bed_commit_again(struct bed *b, const void *buf, uint64_t at,
			     size_t len);
/* Make progress at the initiator for some seconds. */
void bed_pause(struct bed *b, double seconds);
/*
 * Find the TCP ports on which a process listens. Returns their number, at most
 * n.
 */
int bed_ports(pid_t pid, uint16_t *ports, int n);
/* Format a sentence into static memory, for the result of a row. */
const char *bed_says(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));

#endif
