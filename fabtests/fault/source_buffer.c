// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program may reuse the buffer of a write or read when it has read the error
 * entry: nothing reads or writes the buffer later.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fault/testbed.h"

#define TIMEOUT	 300u	     /* FI_OFI_RPMEM_TIMEOUT, ms */
#define SETTLE	 300u	     /* ms to wait for late bytes */
#define SIZE	 (32u << 20) /* more bytes than sockets buffer */
#define POOL	 (SIZE + 65536)
#define PIECES	 2048u
#define READ_LEN (1u << 20)
#define AT_ONCE	 4
#define RELEASE	 0.1 /* s for operations to complete before SIGCONT */

enum shape {
	DURABLE,     /* one durable write */
	VECTOR,	     /* one durable write from four buffers */
	WITH_COMMIT, /* one write and one commit */
	MANY,	     /* durable writes until the queue is full */
	READS,	     /* reads, of which some responses have arrived */
	SHAPES,
};
static const char *const shapes[SHAPES] = {
	"a durable write of 32 MiB", "a durable write of 4 buffers",
	"a write of 32 MiB with a commit", "durable writes of 16 KiB",
	"reads of 1 MiB"};

enum cause {
	SILENCE,
	REMOVAL,
	CUT,
	CAUSES,
};
static const char *const causes[CAUSES] = {"timeout", "av_remove", "cut"};

/* How the program reuses the buffer after the error entry. */
enum reuse {
	OVERWRITE, /* write bytes that must never arrive */
	PROTECT,   /* make it inaccessible (PROT_NONE) */
	REUSES,
};
static const char *const reuses[REUSES] = {"overwritten", "PROT_NONE"};

#define ROWS	   ((size_t)SHAPES * CAUSES * REUSES)
#define SHAPE(row) ((enum shape)((row) % SHAPES))
#define CAUSE(row) ((enum cause)((row) / SHAPES % CAUSES))
#define REUSE(row) ((enum reuse)((row) / SHAPES / CAUSES))

static uint64_t seed;
static struct bed b;
static char *source;
static struct bed_op ops[PIECES + 1];
static unsigned int posted;

static void row_name(size_t row, char *name, size_t size)
{
	snprintf(name, size, "the buffer of %s is free after %s; %s",
		 shapes[SHAPE(row)], causes[CAUSE(row)], reuses[REUSE(row)]);
}

static ssize_t post_vector(struct bed_op *op)
{
	struct fi_rma_iov rma = {b.card.pool_addr, SIZE, b.card.pool_key};
	struct iovec iov[4];
	const struct fi_msg_rma msg = {
		.msg_iov = iov,
		.iov_count = 4,
		.addr = b.s.peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = op,
	};

	for (int i = 0; i < 4; i++)
		iov[i] = (struct iovec){source + SIZE / 4 * i, SIZE / 4};
	return fi_writemsg(b.s.ep, &msg, FI_COMMIT_COMPLETE | FI_COMPLETION);
}

/*
 * Post the operations of this shape, and count them in `posted`. A call that
 * fails has started nothing.
 */
static void post_shape(enum shape shape)
{
	const size_t piece = SIZE / PIECES;
	ssize_t ret;

	switch (shape) {
	case DURABLE:
		ret = BED_POST(&b, bed_write(&b, source, 0, SIZE,
					     FI_COMMIT_COMPLETE, ops));
		posted = !ret;
		break;
	case VECTOR:
		ret = BED_POST(&b, post_vector(ops));
		posted = !ret;
		break;
	case WITH_COMMIT:
		ret = BED_POST(&b, bed_write(&b, source, 0, SIZE, 0, ops));
		posted = !ret;
		if (!ret)
			ret = BED_POST_FOR(
				&b, 2, bed_commit(&b, 0, SIZE, NULL, &ops[1]));
		posted += posted && !ret;
		break;
	case READS:
		for (posted = 0; posted < SIZE / READ_LEN; posted++)
			if (fi_read(b.s.ep, source + posted * READ_LEN,
				    READ_LEN, NULL, b.s.peer,
				    b.card.pool_addr + posted * READ_LEN,
				    b.card.pool_key, &ops[posted]))
				break;
		break;
	default:
		for (posted = 0; posted < PIECES; posted++)
			if (bed_write(&b, source + posted * piece,
				      posted * piece, piece, FI_COMMIT_COMPLETE,
				      &ops[posted]))
				break;
	}
}

/* Wait until every operation has completed. Returns NULL, or what is wrong. */
static const char *wait_for_ends(void)
{
	double end = bed_now() + BED_DEADLINE;
	bool failed = false;

	/*
	 * Wait for the last operation first, because it has a deadline; a write
	 * without its own commit has none.
	 */
	if (posted && !bed_wait(&b, &ops[posted - 1], BED_DEADLINE))
		return "the last operation did not end";
	bed_pause(&b, RELEASE);
	for (unsigned int i = 0; i < posted; i++) {
		if (!ops[i].ends)
			bed_continue(&b);
		if (!bed_wait(&b, &ops[i], end - bed_now()))
			return "an operation did not end";
		failed |= ops[i].err;
	}
	if (posted && !failed)
		return "all has succeeded at a stopped target";
	return b.wrong;
}

static const char *row_run(size_t row)
{
	const struct bed_opts o = {
		.len = POOL,
		.memory = row % 2 ? BED_TMPFS : BED_EMULATED,
		.timeout = TIMEOUT,
	};
	char mark[16], some[64] = "some bytes";
	const char *wrong;
	int ret;

	/* At the default rate 32 MiB would add two seconds to the timeout. */
	setenv("FI_OFI_RPMEM_SLOW_RATE", "1000000000", 1);
	source = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (source == MAP_FAILED)
		MUST(-FI_ENOMEM);
	for (size_t i = 0; i < SIZE; i += 8)
		*(uint64_t *)(source + i) = bed_mix(seed + row, i);
	bed_open(&b, &o);
	wrong = bed_commit_again(&b, some, SIZE, sizeof(some));
	if (wrong)
		return bed_says("at first: %s", wrong);
	if (SHAPE(row) == READS) {
		post_shape(READS);
		bed_wait(&b, &ops[posted - 1], 0.001);
		bed_stop(&b);
	} else {
		bed_stop(&b);
		post_shape(SHAPE(row));
		bed_pause(&b, 0.02);
	}
	if (CAUSE(row) == REMOVAL) {
		ret = bed_reinsert(&b);
		if (ret)
			return bed_says("fi_av_remove() or fi_av_insert(): %d",
					ret);
	}
	if (CAUSE(row) == CUT)
		bed_cut(&b);
	wrong = wait_for_ends();
	if (wrong)
		return wrong;
	/* All error entries are read: reuse the buffer. */
	memset(mark, 0x5a, sizeof(mark));
	if (REUSE(row) == OVERWRITE)
		memset(source, 0x5a, SIZE);
	else
		mprotect(source, SIZE, PROT_NONE);
	bed_continue(&b);
	b.wakes = true;
	if (!bed_drain(&b, SETTLE))
		return "the target has died";
	wrong = bed_commit_again(&b, some, SIZE, sizeof(some));
	if (!wrong && !bed_drain(&b, SETTLE))
		wrong = "the target has died";
	if (SHAPE(row) == READS && REUSE(row) == OVERWRITE)
		for (size_t i = 0; i < SIZE; i++)
			if (source[i] != 0x5a)
				return "bytes arrive in the buffer of a read "
				       "that has failed";
	if (memmem(b.mem, SIZE, mark, sizeof(mark)))
		return "bytes arrive that the buffer got after its error entry";
	return wrong ? bed_says("later: %s", wrong) : b.wrong;
}

int main(int argc, char **argv)
{
	bed_args(argc, argv, &seed, NULL);
	bed_run(ROWS, AT_ONCE, row_name, row_run);
	return tap_done();
}
