/* SPDX-License-Identifier: BSD-2-Clause */
/* Two nodes on the simulated fabric, a and b, each on a machine of its own. */
#ifndef RP_TEST_SIM_PAIR_H
#define RP_TEST_SIM_PAIR_H

#include "unit/sim_node.h"

extern const struct pmsim_cfg plain; /* ordered, placed_acks */
extern struct sim_node a, b;	     /* on machines 0 and 1 */
extern fi_addr_t a_to_b, b_to_a;
extern char mem[256]; /* of b, under key 7: see two() */
extern char ctx[16];  /* contexts */

/* The nodes alone, on machines that are there. */
void pair_open(const struct sim_opts *o);
/* Both on machines of plain DRAM, and mem registered at b. */
void two(const struct pmsim_cfg *cfg, const struct sim_opts *o);
/* b on a machine with a model; returns its memory, a page under key 7. */
char *modelled(const struct pmsim_cfg *cfg, const struct model_cfg *mc);
void close_two(void);
/* The end of a test: close, and nothing has leaked. */
void done(void);

/* a writes to b's memory, at this offset, and waits for delivery. */
ssize_t write_dc(const void *buf, size_t len, size_t at, void *context);

#endif
