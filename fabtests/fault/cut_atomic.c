// SPDX-License-Identifier: BSD-2-Clause
/*
 * An atomic whose connection is cut completes once, and later commits succeed.
 */
#include <stdio.h>
#include <string.h>

#include "fault/testbed.h"

#define TIMEOUT 300u /* FI_OFI_RPMEM_TIMEOUT, ms */
#define ROUNDS	3    /* atomics, each with a cut, in one test row */
#define POOL	65536
#define AT_ONCE 12

static const struct {
	const char *name;
	enum fi_op op;
	bool fetch;
} kinds[] = {
	{"sum", FI_SUM, false},
	{"fetching sum", FI_SUM, true},
	{"compare and swap", FI_CSWAP, true},
};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

/* When the connections are cut, relative to the call that posts the atomic. */
enum when {
	BEHIND_STOPPED, /* after the call, target stopped */
	BEHIND,		/* after the call */
	IN_FRONT,	/* before the call */
	WHENS,
};
static const char *const whens[WHENS] = {"cut behind it at a stopped target",
					 "cut behind it", "cut in front of it"};

#define ROWS	     (KINDS * 2 * WHENS)
#define KIND(row)    ((row) % KINDS)
#define DURABLE(row) ((row) / KINDS % 2)
#define WHEN(row)    ((enum when)((row) / KINDS / 2))

static uint64_t seed;

static void row_name(size_t row, char *name, size_t size)
{
	snprintf(name, size, "commits succeed after %s%s, %s",
		 kinds[KIND(row)].name, DURABLE(row) ? ", durable" : "",
		 whens[WHEN(row)]);
}

/* Post one atomic and cut the connection. Returns NULL, or what failed. */
static const char *cut_once(struct bed *b, size_t row)
{
	/*
	 * Static, because a completion may be written after a failed row has
	 * returned.
	 */
	static uint64_t operand = 7, compare, result;
	static struct bed_op ops[ROUNDS];
	static int round;
	struct bed_op *op = &ops[round++];
	ssize_t ret;

	if (WHEN(row) == BEHIND_STOPPED)
		bed_stop(b);
	if (WHEN(row) == IN_FRONT)
		bed_cut(b);
	ret = BED_POST(
		b, bed_atomic(b, kinds[KIND(row)].op, &operand,
			      kinds[KIND(row)].op == FI_CSWAP ? &compare : NULL,
			      kinds[KIND(row)].fetch ? &result : NULL, 0,
			      DURABLE(row) ? FI_COMMIT_COMPLETE : 0, op));
	if (WHEN(row) != IN_FRONT && !bed_cut(b))
		return "found no connection to cut";
	bed_continue(b);
	if (ret == -FI_EAGAIN)
		return "the call returns -FI_EAGAIN for ever";
	if (!ret && !bed_wait(b, op, BED_DEADLINE))
		return "the atomic did not end";
	return b->wrong;
}

static const char *row_run(size_t row)
{
	const struct bed_opts o = {
		.len = POOL,
		.memory = bed_mix(seed, row) % BED_MEMORIES,
		.auto_progress = bed_mix(seed, row) / BED_MEMORIES % 4 == 0,
		.timeout = TIMEOUT,
	};
	static uint64_t bytes[8];
	const char *wrong;
	struct bed b;

	bed_open(&b, &o);
	wrong = bed_commit_again(&b, bytes, 0, sizeof(bytes));
	if (wrong)
		return bed_says("at first: %s", wrong);
	for (int i = 0; i < ROUNDS; i++) {
		wrong = cut_once(&b, row);
		if (wrong)
			return wrong;
		/* Commit other bytes, then the atomic's bytes. */
		bytes[0] = bed_mix(seed + row, (unsigned int)i);
		wrong = bed_commit_again(&b, bytes, 4096, sizeof(bytes));
		if (wrong)
			return bed_says("beside the atomic: %s", wrong);
		wrong = bed_commit_again(&b, bytes, 0, sizeof(bytes));
		if (wrong)
			return bed_says("at the atomic: %s", wrong);
	}
	if (!bed_drain(&b, 100))
		return "the target has died";
	if (memcmp(b.mem, bytes, sizeof(bytes)))
		return "committed bytes were overwritten later";
	return b.wrong;
}

int main(int argc, char **argv)
{
	bed_args(argc, argv, &seed, NULL);
	bed_run(ROWS, AT_ONCE, row_name, row_run);
	return tap_done();
}
