// SPDX-License-Identifier: BSD-2-Clause
/*
 * Short programs for exhaustive search, and generators of long random programs.
 */
#include <string.h>

#include "crash_ops.h"
#include "crash_programs.h"

/* clang-format off */
const struct crash_prog crash_single[] = {
	{.name = "three lines, one commit",
	 A(W(0, 64), W(64, 64), W(128, 64), C(0, 192))},
	{.name = "unaligned and partial lines",
	 A(W(40, 48), W(100, 61), C(40, 121))},
	{.name = "overlapping writes", A(W(0, 96), W(33, 70), C(0, 128))},
	{.name = "one write over three lines", A(W(8, 180), C(8, 180))},
	{.name = "two ranges in one commit",
	 A(W(0, 64), W(120, 40), S(0, 40))},
	{.name = "a write races the commit before it",
	 .wide = true,
	 A(W(0, 64), C(0, 64), W(0, 72), C(0, 72))},
	{.name = "writes with their commit",
	 .wide = true,
	 .deep = true,
	 A(WC(0, 64), WC(60, 68), WC(128, 8))},
	{.name = "commits outstanding",
	 .wide = true,
	 .deep = true,
	 A(W(0, 8), C(0, 8), W(64, 8), W(128, 8), C(64, 72))},
	{.name = "two writes with their commit",
	 .wide = true,
	 A(WC(0, 64), WC(60, 68))},
	{.name = "two commits outstanding",
	 .wide = true,
	 A(W(0, 8), C(0, 8), W(64, 8), C(64, 8))},
	{.name = "a small write behind the one that it overlaps",
	 .wide = true,
	 A(W(0, 64), WC(32, 8), C(0, 64))},
	{.name = "a small write, and one over it",
	 .wide = true,
	 A(WC(0, 64), W(32, 64), C(0, 96))},
	{.name = "a small write, cut, repeated",
	 .wide = true,
	 .deep = true,
	 .cuts = 1,
	 A(WC(0, 64), WAIT, REDO, WC(60, 8), C(0, 68))},
	{.name = "a small write, restart, a new key",
	 .wide = true,
	 .deep = true,
	 .restarts = 1,
	 A(WC(0, 64), WAIT, ASK, WC(0, 64), WC(64, 8))},
	{.name = "zeros over a write, one commit",
	 .wide = true,
	 A(W(0, 64), Z(32, 64), C(0, 96))},
	{.name = "a write over zeros, one commit",
	 .wide = true,
	 A(Z(0, 64), W(32, 64), C(0, 96))},
	{.name = "durable zeros over a durable write",
	 .wide = true,
	 A(WC(0, 64), ZC(32, 64), WC(64, 8))},
	{.name = "zeros, cut, written again",
	 .wide = true,
	 .deep = true,
	 .cuts = 1,
	 A(W(0, 64), C(0, 64), Z(0, 64), WAIT, REDO, Z(8, 56), C(0, 64))},
	{.name = "zeros, restart, a new key",
	 .wide = true,
	 .deep = true,
	 .restarts = 1,
	 A(WC(0, 64), WAIT, ZC(0, 64), WAIT, ASK, ZC(0, 64))},
	{.name = "two initiators, small writes of one line",
	 .wide = true,
	 A(WC(0, 24)),
	 B(WC(24, 80))},
	{.name = "one commit after another",
	 .wide = true,
	 A(W(0, 64), C(0, 64), WAIT, W(0, 64), C(0, 64), WAIT, W(64, 64),
	   C(0, 128))},
	{.name = "two initiators, neighbouring lines",
	 .wide = true,
	 A(W(0, 64), C(0, 64)),
	 B(W(64, 64), C(64, 64))},
	{.name = "two initiators, one line",
	 .wide = true,
	 A(W(0, 24), C(0, 24)),
	 B(W(24, 80), C(24, 80))},
	{.name = "two initiators, the same bytes",
	 .wide = true,
	 A(W(0, 64), C(0, 64)),
	 B(W(32, 64), C(32, 64))},
	{.name = "the first commit of a session",
	 .cold = true,
	 A(W(0, 64), W(64, 64), C(0, 128))},
	{.name = "cut anywhere",
	 .wide = true,
	 .cuts = 1,
	 A(W(0, 64), W(64, 64), C(0, 128))},
	{.name = "cut, write again what failed",
	 .wide = true,
	 .cuts = 1,
	 A(W(0, 64), WAIT, REDO, W(60, 64), C(0, 128))},
	{.name = "cut, and all of it written again",
	 .wide = true,
	 .cuts = 1,
	 A(W(0, 64), WAIT, W(0, 64), C(0, 64))},
	{.name = "cut between two commits",
	 .wide = true,
	 .deep = true,
	 .cuts = 1,
	 A(W(0, 64), C(0, 64), W(64, 64), C(0, 128))},
	{.name = "the target restarts anywhere",
	 .wide = true,
	 .restarts = 1,
	 A(W(0, 64), W(64, 64), C(0, 128))},
	{.name = "restart before the session",
	 .wide = true,
	 .cold = true,
	 .restarts = 1,
	 A(W(0, 64), W(64, 64), C(0, 128))},
	{.name = "a disk that fails",
	 .wide = true,
	 .disk_failures = 1,
	 A(W(0, 64), C(0, 64), W(64, 64), WAIT, C(0, 128))},
	{.name = "the target dies anywhere",
	 .wide = true,
	 .dies = true,
	 A(W(0, 64), C(0, 64), W(64, 64), C(0, 128))},
	{.name = "restart, and a new key",
	 .wide = true, .restarts = 1,
	 A(W(0, 64), C(0, 64), WAIT, ASK, W(60, 64), C(0, 128))},
	{.name = "restart between two commits",
	 .wide = true,
	 .restarts = 1,
	 A(W(0, 64), C(0, 64), WAIT, W(0, 64), C(0, 64))},
	/*
	 * The atomic proves the placement of the write, but its flush covers
	 * another range: the write is not durable.
	 */
	{.name = "proved by an atomic, cut, committed",
	 .wide = true,
	 .cuts = 1,
	 A(W(0, 64), AT(128), WAIT, C(0, 64))},
	{.name = "proved by another commit, restart, committed",
	 .wide = true,
	 .restarts = 1,
	 A(W(0, 64), W(64, 64), C(64, 64), WAIT, C(0, 64))},
	{.name = "a store behind a commit",
	 .wide = true,
	 .first = 1,
	 .second = 2,
	 A(W(0, 64), T(0, 64, 128))},
	{.name = "a store in its own range",
	 .wide = true,
	 A(W(0, 64), T(0, 64, 24))},
	{.name = "two stores in one place",
	 .wide = true,
	 .deep = true,
	 A(W(0, 8), T(0, 8, 128), W(64, 8), T(64, 8, 128))},
	{.name = "a store, and a later write over it",
	 .wide = true,
	 .deep = true,
	 A(W(0, 8), T(0, 8, 64), W(64, 8), C(64, 8))},
	{.name = "a store, and a longer write over it",
	 .wide = true,
	 A(W(0, 64), T(0, 64, 64), W(64, 64), C(64, 64))},
	{.name = "a store, and a commit of it",
	 .wide = true,
	 A(W(0, 8), T(0, 8, 64), C(64, 8))},
	{.name = "cut anywhere, with a store",
	 .wide = true,
	 .deep = true,
	 .cuts = 1,
	 .first = 1,
	 .second = 2,
	 A(W(0, 64), T(0, 64, 128))},
	{.name = "the target restarts anywhere, with a store",
	 .wide = true,
	 .deep = true,
	 .restarts = 1,
	 A(W(0, 64), T(0, 64, 128))},
	{.name = "a disk that fails, with a store",
	 .wide = true,
	 .disk_failures = 1,
	 .first = 1,
	 .second = 2,
	 A(W(0, 64), T(0, 64, 128))},
	{.name = "the target dies anywhere, with a store",
	 .wide = true,
	 .dies = true,
	 A(W(0, 64), T(0, 64, 128))},
	{.name = "one durable write over three lines", A(WC(8, 180))},
	{.name = "durable writes, cut anywhere",
	 .cuts = 1,
	 A(WC(0, 64), WC(64, 64))},
	{.name = "cut, and written again until it is durable",
	 .wide = true,
	 .deep = true,
	 .cuts = 1,
	 A(WC(0, 64), WAIT, WC(0, 64), WAIT, WC(0, 64))},
	{.name = "a commit has not seen the one before",
	 .wide = true,
	 A(W(0, 8), C(0, 8), W(64, 8), WAIT, WC(64, 8))},
	{.name = "restart, and a new key, small writes",
	 .wide = true,
	 .deep = true,
	 .restarts = 1,
	 A(W(0, 64), C(0, 64), WAIT, ASK, W(0, 64), C(0, 64))},
	{.name = "the first ones of a session",
	 .wide = true,
	 .cold = true,
	 A(WC(0, 64), WAIT, WC(64, 64))},
	{.name = "a small one, and one over it",
	 .wide = true,
	 A(WC(0, 8), WC(0, 64))},
	{.name = "closed, and given again",
	 .wide = true,
	 .deep = true,
	 .rekeys = 1,
	 A(WC(0, 64), WAIT, ASK, WC(0, 64))},
	{.name = "closed, and given again, and a commit",
	 .wide = true,
	 .deep = true,
	 .rekeys = 1,
	 A(WC(0, 64), WAIT, ASK, W(32, 64), C(0, 96))},
	{.name = "small writes together, scattered",
	 .wide = true,
	 A(W(0, 40), W(128, 40), S(0, 40))},
	{.name = "small writes that meet, two commits",
	 .wide = true,
	 A(W(0, 24), C(0, 24), W(16, 24), C(0, 40))},
	{.name = "small writes together, cut",
	 .wide = true,
	 .deep = true,
	 .cuts = 1,
	 A(W(0, 64), W(64, 8), WAIT, REDO, C(0, 72))},
	{.name = "a durable atomic", A(AT(0), W(8, 8), C(0, 16))},
	{.name = "an atomic, and a write over it",
	 .wide = true,
	 A(AT(0), WC(0, 8))},
	{.name = "a write, and an atomic over it",
	 .wide = true,
	 A(W(0, 16), AT(8), C(0, 16))},
	{.name = "a durable atomic, cut anywhere",
	 .wide = true,
	 .deep = true,
	 .cuts = 1,
	 A(AT(0), WAIT, W(0, 64), C(0, 64))},
	/*
	 * An event (stop, removed address, weakened fact) ends an operation
	 * with an error, whether or not the target has received the request. A
	 * later write to the same bytes must survive.
	 */
	CRASH_REWRITES("stopped", .stops),
	CRASH_REWRITES("removed", .removes),
	CRASH_REWRITES("weakened", .weakens),
};
const size_t crash_nsingle = sizeof(crash_single) / sizeof(*crash_single);

const struct crash_prog crash_wait[] = {
	{.name = "a, then b in another line",
	 .first = 1,
	 .second = 4,
	 A(W(0, 64), C(0, 64), WAIT, W(64, 8), C(64, 8))},
	{.name = "a of two lines, b behind it in the second",
	 .first = 1,
	 .second = 4,
	 A(W(0, 100), C(0, 100), WAIT, W(104, 8), C(104, 8))},
	{.name = "a and b with their commits",
	 .first = 1,
	 .second = 3,
	 A(WC(0, 100), WAIT, WC(104, 8))},
	{.name = "a, b before it in memory",
	 .first = 1,
	 .second = 4,
	 A(W(64, 64), C(64, 64), WAIT, W(0, 8), C(0, 8))},
	{.name = "a in two writes, then b with its commit",
	 .first = 2,
	 .second = 5,
	 A(W(0, 64), W(64, 64), C(0, 128), WAIT, WC(128, 8))},
};
const size_t crash_nwait = sizeof(crash_wait) / sizeof(*crash_wait);

const struct crash_prog crash_pipelined[] = {
	/*
	 * a and b have the same length, so both travel by RDMA or both inside
	 * requests, which keep their order.
	 */
	{.name = "a, then as much of b in another line",
	 .first = 1,
	 .second = 3,
	 A(W(0, 64), C(0, 64), W(64, 64), C(64, 64))},
	{.name = "a, then b in another line",
	 .first = 1,
	 .second = 3,
	 A(W(0, 64), C(0, 64), W(64, 8), C(64, 8))},
	{.name = "a of two lines, b behind it in the second",
	 .first = 1,
	 .second = 3,
	 A(W(0, 100), C(0, 100), W(104, 8), C(104, 8))},
	{.name = "a, b before it in memory",
	 .first = 1,
	 .second = 3,
	 A(W(64, 64), C(64, 64), W(0, 8), C(0, 8))},
};
const size_t crash_npipelined =
	sizeof(crash_pipelined) / sizeof(*crash_pipelined);

const struct crash_prog crash_then[] = {
	{.name = "a, then b in another line",
	 .first = 1,
	 .second = 2,
	 A(W(0, 64), T(0, 64, 64))},
	{.name = "a of two lines, b behind it in the second",
	 .first = 1,
	 .second = 2,
	 A(W(0, 100), T(0, 100, 104))},
	{.name = "a, b before it in memory",
	 .first = 1,
	 .second = 2,
	 A(W(64, 64), T(64, 64, 0))},
	{.name = "a in two writes, then b",
	 .first = 2,
	 .second = 3,
	 A(W(0, 64), W(64, 64), T(0, 128, 128))},
	{.name = "a, then b, and both again",
	 .first = 1,
	 .second = 2,
	 A(W(0, 64), T(0, 64, 64), W(128, 8), T(128, 8, 136))},
};
const size_t crash_nthen = sizeof(crash_then) / sizeof(*crash_then);

/*
 * Programs of writes that travel in messages; each commit is checked on its
 * own. They contain no plain write, and no write that the provider would send
 * by RDMA (in a new session, or while another write is outstanding).
 */
const struct crash_prog crash_send_single[] = {
	{.name = "two messages, two lines", A(WC(0, 64), WC(64, 64))},
	{.name = "unaligned and partial lines",
	 A(WC(40, 48), WC(101, 61))},
	{.name = "one message over three lines", A(WC(8, 180))},
	{.name = "neighbours in one line", A(WC(0, 24), WC(24, 80))},
};
const size_t crash_nsend_single =
	sizeof(crash_send_single) / sizeof(*crash_send_single);

const struct crash_prog crash_send_wait[] = {
	{.name = "a, then b in another line",
	 .first = 1,
	 .second = 3,
	 A(WC(0, 64), WAIT, WC(64, 8))},
	{.name = "a of two lines, b behind it in the second",
	 .first = 1,
	 .second = 3,
	 A(WC(0, 100), WAIT, WC(104, 8))},
	{.name = "a, b before it in memory",
	 .first = 1,
	 .second = 3,
	 A(WC(64, 64), WAIT, WC(0, 8))},
};
const size_t crash_nsend_wait =
	sizeof(crash_send_wait) / sizeof(*crash_send_wait);

const struct crash_prog crash_send_pipelined[] = {
	/*
	 * Both writes are parts of lines, because the agent never batches
	 * writes of whole lines.
	 */
	{.name = "a and b are parts of lines",
	 .first = 1,
	 .second = 2,
	 A(WC(0, 40), WC(64, 8))},
	{.name = "a, then b in another line",
	 .first = 1,
	 .second = 2,
	 A(WC(0, 64), WC(64, 8))},
	{.name = "a of two lines, b behind it in the second",
	 .first = 1,
	 .second = 2,
	 A(WC(0, 100), WC(104, 8))},
	{.name = "a, b before it in memory",
	 .first = 1,
	 .second = 2,
	 A(WC(64, 64), WC(0, 8))},
};
const size_t crash_nsend_pipelined =
	sizeof(crash_send_pipelined) / sizeof(*crash_send_pipelined);

const struct crash_prog crash_send_then[] = {
	{.name = "a, then b in another line",
	 .first = 1,
	 .second = 2,
	 A(WC(0, 64), T(0, 64, 64))},
	{.name = "a of two lines, b behind it in the second",
	 .first = 1,
	 .second = 2,
	 A(WC(0, 100), T(0, 100, 104))},
	{.name = "a, then b, and both again",
	 .first = 1,
	 .second = 2,
	 A(WC(0, 64), T(0, 64, 64), WC(128, 8), T(128, 8, 136))},
};
const size_t crash_nsend_then =
	sizeof(crash_send_then) / sizeof(*crash_send_then);

/* clang-format on */

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static struct crash_op random_op(uint64_t *s)
{
	struct crash_op op = {.kind = CRASH_WRITE};
	uint64_t r = next_random(s) % 16;

	/* Few offsets, so that operations often overlap. */
	op.off = (unsigned int)(next_random(s) % 3 * 64 +
				next_random(s) % 8 * 8);
	op.len = (unsigned int)(1 + next_random(s) % 70);
	if (next_random(s) % 2) {
		op.off &= ~63u;
		op.len = 64;
	}
	if (r < 5) {
		op.kind = CRASH_COMMIT;
		op.len += (unsigned int)(next_random(s) % 2 * 64);
	} else if (r < 7) {
		op.kind = CRASH_WRITE_COMMIT;
	} else if (r < 8) {
		op.kind = CRASH_WAIT;
	} else if (r < 9) {
		op.kind = CRASH_REDO;
	} else if (r < 10) {
		op.kind = CRASH_QUERY;
	} else if (r < 12) {
		op.kind = CRASH_THEN;
		op.at = (unsigned int)(next_random(s) % (CRASH_BYTES / 8) * 8);
	} else if (r < 13) {
		op.kind = CRASH_ATOMIC;
		op.off &= ~7u;
		op.len = 8;
	} else if (r < 14) {
		op.kind = next_random(s) % 2 ? CRASH_ZERO : CRASH_ZERO_COMMIT;
	} else if (r < 15) {
		op.kind = CRASH_SCATTER;
		op.off %= CRASH_BYTES - CRASH_APART;
		if (op.len > CRASH_BYTES - CRASH_APART - op.off)
			op.len = CRASH_BYTES - CRASH_APART - op.off;
	}
	if (op.off + op.len > CRASH_BYTES)
		op.len = CRASH_BYTES - op.off;
	return op;
}

void crash_random_program(uint64_t seed, enum crash_shape shape, bool breaks,
			  struct crash_prog *out)
{
	uint64_t s = seed;
	unsigned int i = 0;

	memset(out, 0, sizeof(*out));
	out->name = "random";
	out->n[0] = (unsigned int)(6 + next_random(&s) % (CRASH_OPS - 6));
	if (next_random(&s) % 2)
		out->n[1] = (unsigned int)(1 + next_random(&s) % CRASH_OPS);
	for (unsigned int p = 0; p < CRASH_INITS; p++)
		for (unsigned int k = 0; k < out->n[p]; k++)
			out->op[p][k] = random_op(&s);
	if (breaks) {
		out->cuts = (unsigned int)(next_random(&s) % 3);
		out->stops = (unsigned int)(next_random(&s) % 2);
		out->removes = (unsigned int)(next_random(&s) % 2);
		out->rekeys = next_random(&s) % 4 == 0;
	}
	out->late = true;
	out->restarts = (unsigned int)(next_random(&s) % 2);
	out->disk_failures = next_random(&s) % 8 == 0;
	out->dies = next_random(&s) % 8 == 0;
	out->cold = next_random(&s) % 2;
	if (shape == CRASH_SINGLE)
		return;
	/*
	 * The first operations are the ordered writes a and b, in a run without
	 * faults; random operations follow.
	 */
	out->n[1] = 0;
	out->restarts = out->cuts = out->stops = out->removes = out->rekeys = 0;
	out->op[0][i++] = (struct crash_op)W(0, 64 + next_random(&s) % 32);
	out->op[0][i++] = (struct crash_op)C(0, 96);
	out->first = 1;
	if (shape == CRASH_ORDER_THEN) {
		out->op[0][i - 1] = (struct crash_op)T(0, 96, 104);
		out->second = i;
	} else {
		if (shape == CRASH_ORDER_WAIT)
			out->op[0][i++] = (struct crash_op)WAIT;
		out->op[0][i++] = (struct crash_op)W(104, 8);
		out->second = i;
		out->op[0][i++] = (struct crash_op)C(104, 8);
	}
	/* The random operations write from byte 128 on, away from a and b. */
	for (; i < out->n[0]; i++) {
		if (out->op[0][i].kind == CRASH_SCATTER)
			out->op[0][i].kind = CRASH_COMMIT;
		if (out->op[0][i].kind == CRASH_ATOMIC)
			out->op[0][i].kind = CRASH_WRITE;
		out->op[0][i].off = 128 + out->op[0][i].off % 64;
		out->op[0][i].len = 1 + out->op[0][i].len % 64;
		out->op[0][i].at = 128 + out->op[0][i].at % 128;
	}
}

void crash_random_sends(uint64_t seed, enum crash_shape shape,
			struct crash_prog *out)
{
	unsigned int i = 0, most = 0;
	uint64_t s = seed;

	memset(out, 0, sizeof(*out));
	out->name = "random";
	out->n[0] = (unsigned int)(4 + next_random(&s) % 8);
	if (shape != CRASH_SINGLE) {
		out->op[0][i++] = (struct crash_op)WC(
			0, 64 + (unsigned int)(next_random(&s) % 32));
		out->first = 1;
		if (shape == CRASH_ORDER_WAIT)
			out->op[0][i++] = (struct crash_op)WAIT;
		if (shape == CRASH_ORDER_THEN)
			out->op[0][i++] = (struct crash_op)T(0, 96, 104);
		else
			out->op[0][i++] = (struct crash_op)WC(104, 8);
		out->second = i;
		most = 112;
	}
	/* No two ranges overlap, so no operation waits for another one. */
	for (; i < out->n[0]; i++) {
		unsigned int len = (unsigned int)(1 + next_random(&s) % 40);

		most += (unsigned int)(next_random(&s) % 8);
		if (most + len > CRASH_BYTES)
			break;
		out->op[0][i] = (struct crash_op)WC(most, len);
		most += len;
		if (next_random(&s) % 4 == 0 && i + 1 < out->n[0])
			out->op[0][++i] = (struct crash_op)WAIT;
	}
	out->n[0] = i;
}
