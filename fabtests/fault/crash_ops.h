/* SPDX-License-Identifier: BSD-2-Clause */
/* Macros for the operations of crash matrix programs. */
#ifndef CRASH_OPS_H
#define CRASH_OPS_H

#include "crash_world.h"

#define W(off, len)                                                            \
	{                                                                      \
		CRASH_WRITE, off, len, 0                                       \
	}
#define C(off, len)                                                            \
	{                                                                      \
		CRASH_COMMIT, off, len, 0                                      \
	}
#define S(off, len)                                                            \
	{                                                                      \
		CRASH_SCATTER, off, len, 0                                     \
	}
#define WC(off, len)                                                           \
	{                                                                      \
		CRASH_WRITE_COMMIT, off, len, 0                                \
	}
#define T(off, len, at)                                                        \
	{                                                                      \
		CRASH_THEN, off, len, at                                       \
	}
#define AT(off)                                                                \
	{                                                                      \
		CRASH_ATOMIC, off, 8, 0                                        \
	}
#define FE(off)                                                                \
	{                                                                      \
		CRASH_ATOMIC, off, 8, CRASH_FETCH                              \
	}
#define CS(off)                                                                \
	{                                                                      \
		CRASH_ATOMIC, off, 8, CRASH_CSWAP                              \
	}
#define WD(off, len)                                                           \
	{                                                                      \
		CRASH_WRITE_COMMIT, off, len, CRASH_WITH_DATA                  \
	}
#define Z(off, len)                                                            \
	{                                                                      \
		CRASH_ZERO, off, len, 0                                        \
	}
#define ZC(off, len)                                                           \
	{                                                                      \
		CRASH_ZERO_COMMIT, off, len, 0                                 \
	}
#define WAIT                                                                   \
	{                                                                      \
		CRASH_WAIT, 0, 0, 0                                            \
	}
#define ASK                                                                    \
	{                                                                      \
		CRASH_QUERY, 0, 0, 0                                           \
	}
#define REDO                                                                   \
	{                                                                      \
		CRASH_REDO, 0, 0, 0                                            \
	}
#define A(...)                                                                 \
	.n[0] = sizeof((struct crash_op[]){__VA_ARGS__}) /                     \
		sizeof(struct crash_op),                                       \
	.op[0] = {__VA_ARGS__}
#define B(...)                                                                 \
	.n[1] = sizeof((struct crash_op[]){__VA_ARGS__}) /                     \
		sizeof(struct crash_op),                                       \
	.op[1] = {__VA_ARGS__}

/*
 * Programs of one event (a stop, a removed address, a weakened fact): each
 * writes again after the error that the event has caused.
 */
/* clang-format off */
#define CRASH_REWRITES(event, member)                                          \
	{.name = event ": a small durable write, repeated",               \
	 member = 1,                                                           \
	 A(WC(0, 8), WAIT, WC(0, 8))},                                         \
	{.name = event ": a durable write, written again, committed",          \
	 .wide = true,                                                         \
	 member = 1,                                                           \
	 A(WC(0, 64), WAIT, W(0, 64), C(0, 64))},                              \
	{.name = event ": a store behind a commit, and written over",          \
	 .wide = true,                                                         \
	 member = 1,                                                           \
	 A(W(0, 8), T(0, 8, 64), WAIT, W(64, 8), C(64, 8))},                   \
	{.name = event ": an atomic, and written over",                        \
	 .wide = true,                                                         \
	 member = 1,                                                           \
	 A(AT(0), WAIT, W(0, 8), C(0, 8))},                                    \
	{.name = event ": an atomic that fetches, and written over",           \
	 .wide = true,                                                         \
	 member = 1,                                                           \
	 A(FE(0), WAIT, W(0, 8), C(0, 8))},                                    \
	{.name = event ": a compare-and-swap, and written over",               \
	 .wide = true,                                                         \
	 member = 1,                                                           \
	 A(CS(0), WAIT, W(0, 8), C(0, 8))},                                    \
	{.name = event ": a durable write with data, and written over",        \
	 .wide = true,                                                         \
	 member = 1,                                                           \
	 A(WD(0, 64), WAIT, W(0, 64), C(0, 64))},                              \
	{.name = event ": a write, a commit, and both again",                  \
	 .wide = true,                                                         \
	 member = 1,                                                           \
	 A(W(0, 64), C(0, 64), WAIT, W(0, 64), C(0, 64))}
/* clang-format on */

#endif
