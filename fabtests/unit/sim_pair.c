// SPDX-License-Identifier: BSD-2-Clause
/* Two nodes on the simulated fabric, a and b. */
#include <string.h>

#include <criterion/criterion.h>

#include "unit/leaks.h"
#include "unit/sim_pair.h"

const struct pmsim_cfg plain_fabric = {.ordered = true, .placed_acks = true};
struct sim_node a, b;
fi_addr_t a_to_b, b_to_a;
char mem[256];
char ctx[16];

void pair_open(const struct sim_opts *o)
{
	sim_open(o);
	node_open(&a, 0, NULL);
	node_open(&b, 1, NULL);
	a_to_b = node_insert(&a, &b);
	b_to_a = node_insert(&b, &a);
}

void open_pair_plain(const struct pmsim_cfg *cfg, const struct sim_opts *o)
{
	sim_start();
	sim->reset(cfg);
	sim->machine(NULL);
	sim->machine(NULL);
	pair_open(o);
	memset(mem, 0, sizeof(mem));
	node_memory(&b, mem, sizeof(mem), 7, 0);
}

char *open_b_on_model(const struct pmsim_cfg *cfg, const struct model_cfg *mc)
{
	struct sim_opts o = {.caps = FI_MSG | FI_RMA | FI_ATOMIC};
	char *pm;

	sim_start();
	sim->reset(cfg);
	sim->machine(NULL);
	sim->machine(mc);
	pair_open(&o);
	pm = model_alloc(sim->model(1), MODEL_PAGE);
	node_memory(&b, pm, MODEL_PAGE, 7, 0);
	return pm;
}

void close_two(void)
{
	node_close(&a);
	node_close(&b);
	sim_close();
}

void end_pair(void)
{
	close_two();
	cr_assert_not(rp_test_leaked());
}

ssize_t write_dc(const void *buf, size_t len, size_t at, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct fi_rma_iov rma = {.addr = b.addr + at, .len = len, .key = b.key};
	struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = a_to_b,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = context,
	};

	return fi_writemsg(a.ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}
