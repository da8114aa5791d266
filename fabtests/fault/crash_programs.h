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
 * Programs that order two writes: b survives only with a. The initiator waits
 * for a's commit before it posts b (crash_wait), or does not wait
 * (crash_pipelined).
 */
extern const struct crash_prog crash_wait[];
extern const size_t crash_nwait;
extern const struct crash_prog crash_pipelined[];
extern const size_t crash_npipelined;
/* The same order in one request: the target stores b behind the commit of a. */
extern const struct crash_prog crash_then[];
extern const size_t crash_nthen;

/* The same kinds of programs, with writes that travel in messages. */
extern const struct crash_prog crash_send_single[];
extern const size_t crash_nsend_single;
extern const struct crash_prog crash_send_wait[];
extern const size_t crash_nsend_wait;
extern const struct crash_prog crash_send_pipelined[];
extern const size_t crash_nsend_pipelined;
extern const struct crash_prog crash_send_then[];
extern const size_t crash_nsend_then;

/*
 * Make a long random program; the shape says how it orders a before b. breaks:
 * connections are cut, stopped or removed, too.
 */
enum crash_shape {
	CRASH_SINGLE,
	CRASH_ORDER_WAIT,
	CRASH_ORDER_PIPELINED,
	CRASH_ORDER_THEN,
};
void crash_random_program(uint64_t seed, enum crash_shape shape, bool breaks,
			  struct crash_prog *out);
/* Add random losses of connections, and new registrations, to a program. */
void crash_random_conns(uint64_t seed, struct crash_prog *prog);
/* Make a program of durable writes that can all travel in messages. */
void crash_random_sends(uint64_t seed, enum crash_shape shape,
			struct crash_prog *out);

#endif
