/* SPDX-License-Identifier: BSD-2-Clause */
/* Programs that the initiators of the crash matrix run. */
#ifndef CRASH_PROGRAMS_H
#define CRASH_PROGRAMS_H

#include "crash_world.h"

/* Programs that are searched exhaustively. */
extern const struct crash_prog crash_single[];
extern const size_t crash_nsingle;
/*
 * Programs over connected endpoints. The programs of crash_wait and of the
 * other orders run over connected endpoints, too.
 */
extern const struct crash_prog crash_conn[];
extern const size_t crash_nconn;
/*
 * Programs that order "a durable before b is written", with and without a wait
 * for a's commit.
 */
extern const struct crash_prog crash_wait[];
extern const size_t crash_nwait;
extern const struct crash_prog crash_pipelined[];
extern const size_t crash_npipelined;
/* Programs with the same order in one request: the target stores b. */
extern const struct crash_prog crash_then[];
extern const size_t crash_nthen;

/* Programs with the same orders, whose writes travel in messages. */
extern const struct crash_prog crash_send_single[];
extern const size_t crash_nsend_single;
extern const struct crash_prog crash_send_wait[];
extern const size_t crash_nsend_wait;
extern const struct crash_prog crash_send_pipelined[];
extern const size_t crash_nsend_pipelined;
extern const struct crash_prog crash_send_then[];
extern const size_t crash_nsend_then;

/* Make a long random program with the order of crash_wait, crash_then etc. */
enum crash_shape {
	CRASH_SINGLE,
	CRASH_ORDER_WAIT,
	CRASH_ORDER_PIPELINED,
	CRASH_ORDER_THEN,
};
void crash_random_program(uint64_t seed, enum crash_shape shape, bool breaks,
			  struct crash_prog *out);
/* Add random losses of connections to a program. */
void crash_random_conns(uint64_t seed, struct crash_prog *prog);
/* Make a program of durable writes that can all travel in messages. */
void crash_random_sends(uint64_t seed, enum crash_shape shape,
			struct crash_prog *out);

#endif
