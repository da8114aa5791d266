// SPDX-License-Identifier: BSD-2-Clause
/*
 * Programs with connected endpoints: the end of a connection is an event there,
 * and the program connects again.
 */
#include "crash_ops.h"
#include "crash_programs.h"

/* clang-format off */
const struct crash_prog crash_conn[] = {
	{.name = "three lines, one commit",
	 A(W(0, 64), W(64, 64), W(128, 64), C(0, 192))},
	{.name = "unaligned and partial lines",
	 A(W(40, 48), W(100, 61), C(40, 121))},
	{.name = "two ranges in one commit",
	 A(W(0, 64), W(120, 40), S(0, 40))},
	{.name = "one durable write over three lines", A(WC(8, 180))},
	{.name = "a write races the commit before it",
	 .wide = true,
	 A(W(0, 64), C(0, 64), W(0, 72), C(0, 72))},
	{.name = "two writes with their commit",
	 .wide = true,
	 A(WC(0, 64), WC(60, 68))},
	{.name = "a small one, and one over it",
	 .wide = true,
	 A(WC(0, 8), WC(0, 64), W(32, 64), C(0, 96))},
	{.name = "a small one behind the one that it overlaps",
	 .wide = true,
	 A(W(0, 64), WC(32, 8), C(0, 64))},
	{.name = "more than one round of commits",
	 .wide = true,
	 .deep = true,
	 A(W(0, 8), C(0, 8), WAIT, W(8, 8), C(8, 8), WAIT, W(16, 8), C(16, 8),
	   WAIT, W(24, 8), C(0, 32))},
	{.name = "the first commit of a session",
	 .cold = true,
	 A(W(0, 64), W(64, 64), C(0, 128))},
	{.name = "a store behind a commit",
	 .wide = true,
	 .first = 1,
	 .second = 2,
	 A(W(0, 64), T(0, 64, 128))},
	{.name = "two stores in one place",
	 .wide = true,
	 .deep = true,
	 A(W(0, 8), T(0, 8, 128), W(64, 8), T(64, 8, 128))},
	{.name = "two initiators, one line",
	 .wide = true,
	 A(W(0, 24), C(0, 24)),
	 B(W(24, 80), C(24, 80))},
	{.name = "two initiators, small writes of one line",
	 .wide = true,
	 A(WC(0, 24)),
	 B(WC(24, 80))},
	{.name = "cut anywhere",
	 .cuts = 1,
	 A(W(0, 64), W(64, 64), C(0, 128))},
	{.name = "cut between two commits",
	 .wide = true,
	 .cuts = 1,
	 A(W(0, 64), C(0, 64), W(64, 64), C(0, 128))},
	{.name = "cut, and a commit of what was written before",
	 .wide = true,
	 .cuts = 1,
	 A(W(0, 64), WAIT, W(64, 64), C(64, 64))},
	{.name = "cut, and written again",
	 .wide = true,
	 .deep = true,
	 .cuts = 1,
	 A(W(0, 64), C(0, 64), WAIT, W(0, 64), C(0, 64))},
	{.name = "both connections cut, and all of it written again",
	 .wide = true,
	 .cuts = 2,
	 A(W(0, 64), WAIT, W(0, 64), C(0, 64))},
	{.name = "cut, and durable writes again",
	 .wide = true,
	 .cuts = 1,
	 A(WC(0, 64), WAIT, WC(0, 64))},
	{.name = "cut, with a store",
	 .wide = true,
	 .deep = true,
	 .cuts = 1,
	 .first = 1,
	 .second = 2,
	 A(W(0, 64), T(0, 64, 128))},
	{.name = "the target restarts anywhere",
	 .wide = true,
	 .restarts = 1,
	 A(W(0, 64), W(64, 64), C(0, 128))},
	{.name = "restart, and a new key",
	 .wide = true,
	 .restarts = 1,
	 A(W(0, 64), C(0, 64), WAIT, ASK, W(60, 64), C(0, 128))},
	{.name = "restart before the session",
	 .wide = true,
	 .cold = true,
	 .restarts = 1,
	 A(W(0, 64), W(64, 64), C(0, 128))},
	{.name = "the target dies anywhere",
	 .wide = true,
	 .dies = true,
	 A(W(0, 64), C(0, 64), W(64, 64), C(0, 128))},
	{.name = "closed, and given again",
	 .wide = true,
	 .rekeys = 1,
	 A(WC(0, 64), WAIT, ASK, W(32, 64), C(0, 96))},
	{.name = "a disk that fails",
	 .wide = true,
	 .disk_failures = 1,
	 A(W(0, 64), C(0, 64), W(64, 64), WAIT, C(0, 128))},
	/* A write after an error must survive, as in crash_single. */
	CRASH_REWRITES("stopped", .stops),
	CRASH_REWRITES("weakened", .weakens),
};
const size_t crash_nconn = sizeof(crash_conn) / sizeof(*crash_conn);
/* clang-format on */

/*
 * Multiply the seed, so that the faults do not repeat the random choices that
 * made the program.
 */
void crash_random_conns(uint64_t seed, struct crash_prog *prog)
{
	uint64_t r = (seed ^ 0x636f6e6e) * 0x9e3779b97f4a7c15ull;

	prog->late = true;
	/*
	 * A program that orders a before b keeps its connections: a lost one
	 * would end the order.
	 */
	if (prog->second)
		return;
	prog->cuts = r >> 60 & 3;
	prog->rekeys = r >> 56 & 1;
}
