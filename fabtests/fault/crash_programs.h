/* SPDX-License-Identifier: BSD-2-Clause */
/* What the initiators of the crash matrix do. */
#ifndef CRASH_PROGRAMS_H
#define CRASH_PROGRAMS_H

#include "crash_world.h"

/* Every program that is explored to the end. */
extern const struct crash_prog crash_single[];
extern const size_t crash_nsingle;
/* Over connections of the program's own; crash_wait and so on, too. */
extern const struct crash_prog crash_conn[];
extern const size_t crash_nconn;
/* "a durable before b is written", waiting for a's commit or not. */
extern const struct crash_prog crash_wait[];
extern const size_t crash_nwait;
extern const struct crash_prog crash_pipelined[];
extern const size_t crash_npipelined;
/* The same in one request: the target stores b. */
extern const struct crash_prog crash_then[];
extern const size_t crash_nthen;

/* The same with writes that travel in messages. */
extern const struct crash_prog crash_send_single[];
extern const size_t crash_nsend_single;
extern const struct crash_prog crash_send_wait[];
extern const size_t crash_nsend_wait;
extern const struct crash_prog crash_send_pipelined[];
extern const size_t crash_nsend_pipelined;
extern const struct crash_prog crash_send_then[];
extern const size_t crash_nsend_then;

/* A longer one, from a seed. order: as crash_wait and so on. */
enum crash_shape {
	CRASH_SINGLE,
	CRASH_ORDER_WAIT,
	CRASH_ORDER_PIPELINED,
	CRASH_ORDER_THEN,
};
void crash_random_program(uint64_t seed, enum crash_shape shape, bool breaks,
			  struct crash_prog *out);
/* It may lose the connections that it has. */
void crash_random_conns(uint64_t seed, struct crash_prog *prog);
/* Of writes with their commit only, which all can travel in messages. */
void crash_random_sends(uint64_t seed, enum crash_shape shape,
			struct crash_prog *out);

#endif
