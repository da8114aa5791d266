// SPDX-License-Identifier: BSD-2-Clause
/* Programs of initiators that open their own queue pair: writes and flushes. */
#include <string.h>

#include "crash_ops.h"
#include "crash_programs.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* clang-format off */
const struct crash_prog crash_single[] = {
	{.name = "three lines, one flush",
	 A(W(0, 64), W(64, 64), W(128, 64), C(0, 192))},
	{.name = "unaligned and partial lines",
	 A(W(40, 48), W(100, 61), C(40, 121))},
	{.name = "overlapping writes", A(W(0, 96), W(33, 70), C(0, 128))},
	{.name = "one write over three lines", A(W(8, 180), C(8, 180))},
	{.name = "a write races the flush before it",
	 A(W(0, 64), C(0, 64), W(0, 72), C(0, 72))},
	{.name = "two flushes outstanding",
	 A(W(0, 8), C(0, 8), W(64, 8), C(64, 8))},
	{.name = "one flush after another",
	 A(W(0, 64), C(0, 64), WAIT, W(64, 64), C(0, 128))},
	{.name = "a break", .breaks = 1,
	 A(W(0, 64), C(0, 64), W(64, 64), C(64, 64))},
	{.name = "the side is lost", .cuts = 1,
	 A(W(0, 64), C(0, 64), W(64, 64), C(64, 64))},
	{.name = "an msync fails", .disk_failures = 1,
	 A(W(0, 64), C(0, 64), WAIT, W(64, 64), C(0, 128))},
	{.name = "a write with its flush", A(WC(40, 61), WC(128, 64))},
	{.name = "one behind a write to the same bytes",
	 A(W(0, 96), WC(33, 70), C(0, 128))},
	{.name = "one, waited for, and a write to the same bytes",
	 A(WC(0, 64), WAIT, W(33, 70), C(0, 128))},
	{.name = "one, and a break", .breaks = 1, A(WC(0, 64), WC(64, 64))},
	{.name = "one, and the side is lost", .cuts = 1,
	 A(WC(0, 64), WC(64, 64))},
	{.name = "one, and an msync fails", .disk_failures = 1,
	 A(WC(0, 64), WAIT, WC(64, 64))},
};
const size_t crash_nsingle = COUNT(crash_single);

const struct crash_prog crash_wait[] = {
	{.name = "b when a is durable", .first = 1, .second = 4,
	 A(W(0, 64), C(0, 64), WAIT, W(64, 64), C(64, 64))},
	{.name = "b of 8 bytes when a is durable", .first = 1, .second = 4,
	 A(W(40, 60), C(40, 60), WAIT, W(128, 8), C(128, 8))},
	{.name = "b when a is durable, and a break",
	 .first = 1, .second = 4, .breaks = 1,
	 A(W(0, 64), C(0, 64), WAIT, W(64, 64), C(64, 64))},
	{.name = "b when a is durable, each with its flush",
	 .first = 1, .second = 3,
	 A(WC(0, 64), WAIT, WC(64, 64))},
};
const size_t crash_nwait = COUNT(crash_wait);

const struct crash_prog crash_pipelined[] = {
	{.name = "b behind a, without waiting", .first = 1, .second = 3,
	 A(W(0, 64), C(0, 64), W(64, 64), C(64, 64))},
	{.name = "b of 8 bytes behind a, without waiting", .first = 1, .second = 3,
	 A(W(40, 60), C(40, 60), W(128, 8), C(128, 8))},
};
const size_t crash_npipelined = COUNT(crash_pipelined);

/* A record, then an atomic write of the tail that announces the record. */
const struct crash_prog crash_then[] = {
	{.name = "record and tail", .first = 1, .second = 2,
	 A(W(0, 64), T(0, 64, 128))},
	{.name = "a record over lines, and tail", .first = 1, .second = 2,
	 A(W(40, 60), T(40, 60, 128))},
	{.name = "tail behind an older record", .first = 1, .second = 3,
	 A(W(0, 64), W(64, 8), T(0, 72, 128))},
	{.name = "record, tail, a break", .first = 1, .second = 2, .breaks = 1,
	 A(W(0, 64), T(0, 64, 128))},
	{.name = "record, tail, the side is lost",
	 .first = 1, .second = 2, .cuts = 1,
	 A(W(0, 64), T(0, 64, 128))},
};
const size_t crash_nthen = COUNT(crash_then);
/* clang-format on */

/*
 * Empty lists: only the provider sends writes in messages, and has connected
 * endpoints.
 */
const struct crash_prog crash_send_single[1], crash_send_wait[1],
	crash_send_pipelined[1], crash_send_then[1], crash_conn[1];
const size_t crash_nsend_single, crash_nsend_wait, crash_nsend_pipelined,
	crash_nsend_then, crash_nconn;

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static unsigned int random_below(uint64_t *state, unsigned int n)
{
	return (unsigned int)(next_random(state) % n);
}

static struct crash_op any_range(uint64_t *state, enum crash_kind kind)
{
	const unsigned int off = random_below(state, CRASH_BYTES);

	return (struct crash_op){kind, off,
				 1 + random_below(state, CRASH_BYTES - off), 0};
}

void crash_random_program(uint64_t seed, enum crash_shape shape, bool breaks,
			  struct crash_prog *out)
{
	uint64_t s = seed;
	unsigned int n;

	*out = (struct crash_prog){.name = "a long program"};
	if (breaks && random_below(&s, 3) == 0)
		out->breaks = 1;
	if (random_below(&s, 4) == 0)
		out->cuts = 1;
	if (shape != CRASH_SINGLE) {
		/*
		 * The program begins with a, a's flush, and b; random
		 * operations on other bytes follow.
		 */
		out->op[0][n = 0] = (struct crash_op)W(0, 72);
		if (shape != CRASH_ORDER_THEN)
			out->op[0][++n] = (struct crash_op)C(0, 72);
		if (shape == CRASH_ORDER_WAIT)
			out->op[0][++n] = (struct crash_op)WAIT;
		out->op[0][++n] = shape == CRASH_ORDER_THEN
					  ? (struct crash_op)T(0, 72, 128)
					  : (struct crash_op)W(128, 8);
		out->first = 1;
		out->second = ++n;
		out->op[0][n++] = (struct crash_op)C(128, 8);
		out->n[0] = n;
		return;
	}
	n = 6 + random_below(&s, 12);
	for (unsigned int i = 0; i < n; i++)
		out->op[0][i] = random_below(&s, 6) == 0
					? (struct crash_op)WAIT
					: any_range(&s, random_below(&s, 2)
								? CRASH_WRITE
								: CRASH_COMMIT);
	out->n[0] = n;
}

void crash_random_sends(uint64_t seed, enum crash_shape shape,
			struct crash_prog *out)
{
	crash_random_program(seed, shape, false, out);
}

void crash_random_conns(uint64_t seed, struct crash_prog *prog)
{
}
