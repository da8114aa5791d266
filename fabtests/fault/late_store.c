// SPDX-License-Identifier: BSD-2-Clause
/*
 * A failed operation is never executed later, over bytes that were committed
 * since.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault/testbed.h"

#define TIMEOUT 300u  /* FI_OFI_RPMEM_TIMEOUT, ms */
#define SETTLE	300u  /* ms to wait for late bytes after the commit */
#define PLACE	65536 /* offset of the bytes written twice */
#define POOL	(2u << 20)
#define AT_ONCE 12
#define CI_ROWS 80u
#define RELEASE 0.1 /* s for old operations to complete before SIGCONT */

/*
 * The old operation, which fails while it is outstanding at a stopped target.
 */
enum old {
	INLINE_8,
	INLINE_64,
	INLINE_4096,
	DURABLE_8192,
	DURABLE_1M,
	WRITE_64,
	WRITE_1M,
	WRITE_ALONE,
	THEN,
	ATOMIC_WRITE,
	ATOMIC_WRITE_DURABLE,
	SUM,
	SUM_DURABLE,
	FETCH_SUM,
	FETCH_SUM_DURABLE,
	FETCH_WRITE,
	FETCH_WRITE_DURABLE,
	CSWAP,
	CSWAP_DURABLE,
	OLDS,
};

static const struct {
	const char *name;
	size_t len;  /* bytes of a write; 0: no write */
	bool atomic; /* an atomic of kind op */
	enum fi_op op;
	bool fetch;
	bool durable; /* with FI_COMMIT_COMPLETE; false: a commit follows */
} olds[OLDS] = {
	[INLINE_8] = {.name = "durable write of 8", .len = 8, .durable = true},
	[INLINE_64] = {.name = "durable write of 64",
		       .len = 64,
		       .durable = true},
	[INLINE_4096] = {.name = "durable write of 4096",
			 .len = 4096,
			 .durable = true},
	[DURABLE_8192] = {.name = "durable write of 8192",
			  .len = 8192,
			  .durable = true},
	[DURABLE_1M] = {.name = "durable write of 1 MiB",
			.len = 1u << 20,
			.durable = true},
	[WRITE_64] = {.name = "write of 64, commit", .len = 64},
	[WRITE_1M] = {.name = "write of 1 MiB, commit", .len = 1u << 20},
	[WRITE_ALONE] = {.name = "write of 4096 without commit", .len = 4096},
	[THEN] = {.name = "then store", .durable = true},
	[ATOMIC_WRITE] = {.name = "atomic write, commit",
			  .atomic = true,
			  .op = FI_ATOMIC_WRITE},
	[ATOMIC_WRITE_DURABLE] = {.name = "durable atomic write",
				  .atomic = true,
				  .op = FI_ATOMIC_WRITE,
				  .durable = true},
	[SUM] = {.name = "atomic sum, commit", .atomic = true, .op = FI_SUM},
	[SUM_DURABLE] = {.name = "durable atomic sum",
			 .atomic = true,
			 .op = FI_SUM,
			 .durable = true},
	[FETCH_SUM] = {.name = "fetching sum, commit",
		       .atomic = true,
		       .op = FI_SUM,
		       .fetch = true},
	[FETCH_SUM_DURABLE] = {.name = "durable fetching sum",
			       .atomic = true,
			       .op = FI_SUM,
			       .fetch = true,
			       .durable = true},
	[FETCH_WRITE] = {.name = "fetching atomic write, commit",
			 .atomic = true,
			 .op = FI_ATOMIC_WRITE,
			 .fetch = true},
	[FETCH_WRITE_DURABLE] = {.name = "durable fetching atomic write",
				 .atomic = true,
				 .op = FI_ATOMIC_WRITE,
				 .fetch = true,
				 .durable = true},
	[CSWAP] = {.name = "compare and swap, commit",
		   .atomic = true,
		   .op = FI_CSWAP},
	[CSWAP_DURABLE] = {.name = "durable compare and swap",
			   .atomic = true,
			   .op = FI_CSWAP,
			   .durable = true},
};

enum cause {
	SILENCE, /* stop the target beyond the timeout */
	REMOVAL, /* reinsert the target's address */
	CUT,	 /* shut down each private connection */
	REOPEN,	 /* close the endpoint, open another one */
	CAUSES,
};
static const char *const cause_names[CAUSES] = {"timeout", "av_remove", "cut",
						"fi_close"};

/* How the program writes the same bytes again. */
enum renewal {
	WRITE_COMMIT,
	WRITE_WAIT_COMMIT,
	DURABLE_64,
	DURABLE_8K,
	RENEWALS,
};
static const char *const renewal_names[RENEWALS] = {
	"write and commit", "write, wait, commit", "durable 64",
	"durable 8192"};

/* The moment at which the stopped target continues. */
enum moment {
	BEFORE,	      /* before the renewal's first call */
	AFTER_WRITE,  /* after the renewal's first call */
	AFTER_COMMIT, /* after the renewal's second call */
	MOMENTS,
};
static const char *const moment_names[MOMENTS] = {
	"continued before", "continued behind the write",
	"continued behind the commit"};

struct cell {
	enum old old;
	enum cause cause;
	enum bed_memory memory;
	enum renewal renewal;
	enum moment moment;
	bool auto_progress;
};
static struct cell *cells;
static uint64_t seed;

static void cell_name(size_t row, char *name, size_t size)
{
	const struct cell *c = &cells[row];

	snprintf(name, size, "%s is never executed after %s; %s, %s, %s%s",
		 olds[c->old].name, cause_names[c->cause],
		 bed_memory_names[c->memory], renewal_names[c->renewal],
		 moment_names[c->moment], c->auto_progress ? ", auto" : "");
}

/* --- one cell --- */

static struct bed bed;
static struct bed_op op, commit_op; /* the old operation and its commit */
static uint64_t operand, compare, result;
static char old_bytes[1u << 20], new_bytes[8192];

/*
 * Fill new_bytes with other bytes for each attempt. If the old operation is a
 * compare and swap, the first word is the one that it compares, so that a late
 * one would change it.
 */
static void fill_new_bytes(const struct cell *c, size_t row, int attempt)
{
	uint64_t word;

	for (size_t i = 0; i < sizeof(new_bytes); i += 8) {
		word = bed_mix(seed + row, i << 8 | (unsigned int)attempt);
		if (!i && olds[c->old].op == FI_CSWAP && olds[c->old].atomic)
			word = compare;
		memcpy(new_bytes + i, &word, 8);
	}
}

static ssize_t post_old(const struct cell *c)
{
	const struct fi_rpmem_then then = {
		.key = bed.card.pool_key,
		.addr = bed.card.pool_addr + PLACE,
		.value = operand,
	};
	const uint64_t flags = olds[c->old].durable ? FI_COMMIT_COMPLETE : 0;
	ssize_t ret;

	if (c->old == THEN)
		ret = BED_POST(&bed,
			       bed_commit(&bed, PLACE - 4096, 64, &then, &op));
	else if (olds[c->old].atomic)
		ret = BED_POST(
			&bed,
			bed_atomic(&bed, olds[c->old].op, &operand,
				   olds[c->old].op == FI_CSWAP ? &compare
							       : NULL,
				   olds[c->old].fetch ||
						   olds[c->old].op == FI_CSWAP
					   ? &result
					   : NULL,
				   PLACE, flags, &op));
	else
		ret = BED_POST(&bed, bed_write(&bed, old_bytes, PLACE,
					       olds[c->old].len, flags, &op));
	if (ret)
		return ret;
	if (olds[c->old].durable || c->old == WRITE_ALONE) {
		commit_op.ends = 1;
		return 0;
	}
	/* A full queue is no failure, because the target is stopped. */
	ret = BED_POST_FOR(&bed, 2,
			   bed_commit(&bed, PLACE,
				      olds[c->old].len ? olds[c->old].len : 8,
				      NULL, &commit_op));
	/* Without its commit the old operation is still outstanding. */
	if (ret)
		commit_op = (struct bed_op){.ends = 1, .err = (int)-ret};
	return 0;
}

/*
 * Post the old operation, make it fail, and wait for it. Returns NULL, or what
 * is wrong.
 */
static const char *fail_old(const struct cell *c)
{
	int ret;

	bed_stop(&bed);
	/* A call that returned an error has started nothing. */
	if (post_old(c))
		op.ends = commit_op.ends = 1;
	/*
	 * Poll for a moment, so that the bytes leave before the operation
	 * fails.
	 */
	for (int i = 0; i < 50; i++) {
		bed_poll(&bed);
		bed_sleep(100e-6);
	}
	if (c->cause == REMOVAL) {
		ret = bed_reinsert(&bed);
		if (ret)
			return bed_says("fi_av_remove() or fi_av_insert(): %d",
					ret);
	}
	if (c->cause == CUT)
		bed_cut(&bed);
	if (c->cause == REOPEN)
		bed_reopen(&bed);
	/* Only commits have a deadline if the target is silent. */
	if (!bed_wait(&bed, olds[c->old].durable ? &op : &commit_op,
		      BED_DEADLINE))
		return "the commit did not end";
	if (c->old != WRITE_ALONE &&
	    (olds[c->old].durable ? !op.err : !commit_op.err))
		return "a commit has succeeded at a stopped target";
	/*
	 * An operation that has not completed may still be executed: wait
	 * before its bytes are written again.
	 */
	if (!bed_wait(&bed, &op, RELEASE) ||
	    !bed_wait(&bed, &commit_op, RELEASE)) {
		bed_continue(&bed);
		if (!bed_wait(&bed, &op, BED_DEADLINE) ||
		    !bed_wait(&bed, &commit_op, BED_DEADLINE))
			return "the old operation did not end";
	}
	return bed.wrong;
}

/* Name the operation that wrote the first word that differs from new_bytes. */
static const char *writer_of(const struct cell *c, size_t len)
{
	uint64_t is, new, old = operand;
	size_t i = 0;

	while (i < len && !memcmp(bed.mem + PLACE + i, new_bytes + i, 8))
		i += 8;
	memcpy(&is, bed.mem + PLACE + i, 8);
	memcpy(&new, new_bytes + i, 8);
	if (olds[c->old].atomic && olds[c->old].op == FI_SUM)
		old = new + operand;
	else if (olds[c->old].len)
		memcpy(&old, old_bytes + i, 8);
	return is == old ? "those of the failed operation" : "others";
}

/*
 * Try once to write and commit the new bytes. Returns 1 if durable, 0 if the
 * commit failed, or the negative error of a call.
 */
static ssize_t write_new_bytes(const struct cell *c, size_t len, int *status,
			       const char **wrong)
{
	const bool two = c->renewal <= WRITE_WAIT_COMMIT;
	struct bed_op *w = calloc(2, sizeof(*w)), *k = &w[two ? 1 : 0];
	ssize_t ret;

	if (!w)
		MUST(-FI_ENOMEM);
	if (c->moment == BEFORE)
		bed_continue(&bed);
	ret = BED_POST(&bed, bed_write(&bed, new_bytes, PLACE, len,
				       two ? 0 : FI_COMMIT_COMPLETE, w));
	if (ret) {
		bed_continue(&bed);
		return ret;
	}
	if (c->moment == AFTER_WRITE || !two || c->renewal == WRITE_WAIT_COMMIT)
		bed_continue(&bed);
	if (c->renewal == WRITE_WAIT_COMMIT &&
	    !bed_wait(&bed, w, BED_DEADLINE)) {
		*wrong = "a write did not end";
		return 0;
	}
	if (two) {
		ret = BED_POST(&bed, bed_commit(&bed, PLACE, len, NULL, k));
		bed_continue(&bed);
		if (ret) {
			bed_wait(&bed, w, BED_DEADLINE);
			return ret;
		}
	}
	if (!bed_wait(&bed, k, BED_DEADLINE))
		*wrong = "a commit did not end";
	/* After a successful commit the new bytes must be in memory. */
	else if (!k->err && memcmp(bed.mem + PLACE, new_bytes, len))
		*wrong = bed_says("when the commit succeeds the bytes are %s",
				  writer_of(c, len));
	else if (!bed_wait(&bed, w, BED_DEADLINE))
		*wrong = "a write did not end";
	else if (!k->err && w->err)
		*wrong = "a commit has succeeded over a write that failed";
	*status = k->status;
	return !k->err;
}

static const char *renew_until_success(const struct cell *c, size_t row)
{
	const size_t len = c->renewal == DURABLE_64 ? 64 : 8192;
	const char *wrong = NULL;
	ssize_t ret = 0;
	const double end = bed_now() + BED_RECOVERY_SECONDS;
	int status = 0, i = 0;

	bed.wakes = true;
	for (; !i || bed_now() < end; i++) {
		if (i)
			bed_pause(&bed, BED_PAUSE);
		fill_new_bytes(c, row, i);
		ret = write_new_bytes(c, len, &status, &wrong);
		if (wrong || bed.wrong)
			return wrong ? wrong : bed.wrong;
		if (ret != 1)
			continue;
		if (!bed_drain(&bed, SETTLE))
			return "the target has died";
		if (memcmp(bed.mem + PLACE, new_bytes, len))
			return bed_says("after a commit the bytes become %s",
					writer_of(c, len));
		return bed.wrong;
	}
	return bed_says("none of %d commits succeeds, the last %s %zd", i,
			ret ? "returns" : "ends with status",
			ret ? ret : (ssize_t)status);
}

static const char *cell_run(size_t row)
{
	const struct cell *c = &cells[row];
	const struct bed_opts o = {
		.len = POOL,
		.memory = c->memory,
		.auto_progress = c->auto_progress,
		.timeout = TIMEOUT,
	};
	const char *wrong;

	operand = bed_mix(seed + row, 1ull << 60);
	compare = bed_mix(seed + row, 1ull << 61);
	for (size_t i = 0; i < sizeof(old_bytes); i += 8) {
		uint64_t word = bed_mix(seed + row, 1ull << 62 | i);

		memcpy(old_bytes + i, &word, 8);
	}
	bed_open(&bed, &o);
	fill_new_bytes(c, row, 255);
	wrong = bed_commit_again(&bed, new_bytes, PLACE, sizeof(new_bytes));
	if (wrong)
		return bed_says("at first: %s", wrong);
	wrong = fail_old(c);
	if (!wrong)
		wrong = renew_until_success(c, row);
	bed_continue(&bed);
	return wrong;
}

/* --- the matrix --- */

static size_t all_cells(void)
{
	size_t n = 0;

	cells = calloc((size_t)OLDS * CAUSES * BED_MEMORIES * RENEWALS *
			       MOMENTS,
		       sizeof(*cells));
	if (!cells)
		MUST(-FI_ENOMEM);
	for (size_t i = 0;
	     i < (size_t)OLDS * CAUSES * BED_MEMORIES * RENEWALS * MOMENTS;
	     i++) {
		struct cell c = {
			.old = i % OLDS,
			.cause = i / OLDS % CAUSES,
			.memory = i / OLDS / CAUSES % BED_MEMORIES,
			.renewal = i / OLDS / CAUSES / BED_MEMORIES % RENEWALS,
			.moment = i / OLDS / CAUSES / BED_MEMORIES / RENEWALS,
			.auto_progress = bed_random() % 4 == 0,
		};

		/*
		 * Only WRITE_COMMIT has a second call without a wait in front.
		 */
		if (c.moment == AFTER_COMMIT && c.renewal != WRITE_COMMIT)
			continue;
		cells[n++] = c;
	}
	return n;
}

/*
 * Shuffle the cells; then move one cell of each combination of operation and
 * cause to the front, so that a run of only CI_ROWS cells has each combination.
 */
static void shuffle_cells(size_t n)
{
	bool seen[OLDS][CAUSES] = {0};
	size_t first = 0;

	for (size_t i = 0; i < n; i++) {
		size_t k = i + bed_random() % (n - i);
		struct cell c = cells[k];

		cells[k] = cells[i];
		cells[i] = c;
	}
	for (size_t i = 0; i < n; i++) {
		struct cell c = cells[i];

		if (seen[c.old][c.cause])
			continue;
		seen[c.old][c.cause] = true;
		cells[i] = cells[first];
		cells[first++] = c;
	}
}

int main(int argc, char **argv)
{
	const char *only = NULL;
	char name[200];
	size_t n, kept = 0;

	bed_args(argc, argv, &seed, &only);
	bed_seed(seed);
	n = all_cells();
	shuffle_cells(n);
	for (size_t i = 0; i < n && only; i++) {
		cell_name(i, name, sizeof(name));
		if (strstr(name, only))
			cells[kept++] = cells[i];
	}
	if (only)
		n = kept;
	if (!bed_long() && n > CI_ROWS)
		n = CI_ROWS;
	bed_run(n, AT_ONCE, cell_name, cell_run);
	return tap_done();
}
