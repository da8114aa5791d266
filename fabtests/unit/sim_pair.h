/* SPDX-License-Identifier: BSD-2-Clause */
/* Two nodes on the simulated fabric, a and b, each on its own machine. */
#ifndef RP_TEST_SIM_PAIR_H
#define RP_TEST_SIM_PAIR_H

#include "unit/sim_node.h"

extern const struct pmsim_cfg
	plain_fabric;	     /* a fabric with ordered and placed_acks */
extern struct sim_node a, b; /* nodes on machines 0 and 1 */
extern fi_addr_t a_to_b, b_to_a;
extern char mem[256]; /* memory registered at b under key 7 */
extern char ctx[16];  /* contexts of operations: &ctx[i] */

/* Open both nodes on machines that were added before. */
void pair_open(const struct sim_opts *o);
/* Open both nodes on machines with plain DRAM, and register mem at b. */
void open_pair_plain(const struct pmsim_cfg *cfg, const struct sim_opts *o);
/* Put b on a machine with a memory model. Returns a page under key 7. */
char *open_b_on_model(const struct pmsim_cfg *cfg, const struct model_cfg *mc);
void close_two(void);
/* End a test: close both, and check for leaks. */
void end_pair(void);

/* a writes to b's memory at offset `at` with FI_DELIVERY_COMPLETE. */
ssize_t write_dc(const void *buf, size_t len, size_t at, void *context);

#endif
