// SPDX-License-Identifier: BSD-2-Clause
/* RMA and atomics of the simulated provider, with and without ofi_rpmem. */
#include <criterion/criterion.h>

#include "unit/sim_pair.h"

static void check_rma(const char *prov, bool virt_addr, bool prov_keys)
{
	struct pmsim_cfg cfg = plain_fabric;
	struct sim_opts o = {.prov = prov, .prov_keys = prov_keys};
	struct fi_cq_tagged_entry e;
	char got[8] = {0};

	cfg.virt_addr = virt_addr;
	cfg.prov_keys = prov_keys;
	open_pair_plain(&cfg, &o);
	MUST(fi_write(a.ep, "plain", 6, NULL, a_to_b, b.addr, b.key, &ctx[0]));
	MUST(write_dc("ack", 4, 8, &ctx[1]));
	MUST(fi_inject_write(a.ep, "inj", 4, a_to_b, b.addr + 16, b.key));
	MUST(fi_writedata(a.ep, "dat", 4, NULL, 77, a_to_b, b.addr + 24, b.key,
			  &ctx[2]));
	MUST(fi_read(a.ep, got, 8, NULL, a_to_b, b.addr, b.key, &ctx[3]));
	node_expect(&a, &ctx[0], &e);
	cr_assert_eq(e.flags, FI_RMA | FI_WRITE);
	node_expect(&a, &ctx[2], NULL);
	cr_assert_eq(sim->outstanding(0), 2);
	sim_deliver_all();
	cr_assert(node_no_entries(&a));
	cr_assert_eq(mem[0], 0, "nothing is stored before b looks");
	node_expect(&b, NULL, &e);
	cr_assert_eq(e.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
	cr_assert_eq(e.data, 77);
	cr_assert_str_eq(mem, "plain");
	cr_assert_str_eq(mem + 8, "ack");
	cr_assert_str_eq(mem + 16, "inj");
	cr_assert_str_eq(mem + 24, "dat");
	cr_assert(node_no_entries(&a));
	cr_assert_eq(sim->peek(sim_wire(1).id, 0), PMSIM_ACK);
	cr_assert_eq(sim->peek(sim_wire(1).id, 1), PMSIM_RESPONSE);
	sim_deliver_all();
	node_expect(&a, &ctx[1], NULL);
	node_expect(&a, &ctx[3], &e);
	cr_assert_eq(e.flags, FI_RMA | FI_READ);
	cr_assert_str_eq(got, "plain");
	end_pair();
}

Test(pmsim, rma)
{
	check_rma(NULL, false, false);
}

Test(pmsim, rma_by_address)
{
	check_rma(NULL, true, true);
}

Test(rpmem_on_pmsim, rma)
{
	check_rma("pmsim;ofi_rpmem", false, false);
}

Test(rpmem_on_pmsim, rma_by_address)
{
	check_rma("pmsim;ofi_rpmem", true, true);
}

static void refused_accesses(const char *prov)
{
	struct sim_opts o = {.prov = prov};
	uint64_t key;

	open_pair_plain(&plain_fabric, &o);
	key = b.key;
	b.key = 8;
	MUST(write_dc("x", 1, 0, &ctx[0]));
	b.key = key;
	MUST(write_dc("x", 2, sizeof(mem) - 1, &ctx[1]));
	MUST(write_dc("x", 1, UINT64_MAX, &ctx[2]));
	/* A write without delivery completion reports no failure. */
	MUST(fi_write(a.ep, "x", 1, NULL, a_to_b, sizeof(mem), key, &ctx[3]));
	node_expect(&a, &ctx[3], NULL);
	sim_deliver_all();
	node_poke(&b);
	sim_deliver_all();
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ENOKEY);
	cr_assert_eq(node_expect_error(&a, &ctx[1]), FI_EACCES);
	cr_assert_eq(node_expect_error(&a, &ctx[2]), FI_EACCES);
	cr_assert(node_no_entries(&a));
	for (size_t i = 0; i < sizeof(mem); i++)
		cr_assert_eq(mem[i], 0);
	end_pair();
}

Test(pmsim, refused_accesses)
{
	refused_accesses(NULL);
}

Test(rpmem_on_pmsim, refused_accesses)
{
	refused_accesses("pmsim;ofi_rpmem");
}

Test(pmsim, order_can_be_had_or_not)
{
	struct pmsim_cfg cfg = {.placed_acks = true};
	struct sim_opts o = {0};

	open_pair_plain(&cfg, &o);
	MUST(fi_inject_write(a.ep, "1", 1, a_to_b, b.addr, b.key));
	MUST(fi_inject_write(a.ep, "2", 1, a_to_b, b.addr, b.key));
	sim->overtake(sim_wire(0).id, 1);
	sim_deliver_all();
	node_poke(&b);
	cr_assert_eq(mem[0], '1');
	end_pair();
}

Test(pmsim, atomics)
{
	struct sim_opts o = {.caps = FI_RMA | FI_ATOMIC | FI_MSG};
	uint64_t v = 5, old[2] = {0}, cmp = 9, *m = (uint64_t *)mem;
	int8_t small = 100;
	size_t count;

	open_pair_plain(&plain_fabric, &o);
	m[0] = 4;
	mem[8] = 100;
	MUST(fi_atomic(a.ep, &v, 1, NULL, a_to_b, b.addr, b.key, FI_UINT64,
		       FI_SUM, &ctx[0]));
	MUST(fi_inject_atomic(a.ep, &small, 1, a_to_b, b.addr + 8, b.key,
			      FI_INT8, FI_SUM));
	MUST(fi_fetch_atomic(a.ep, &v, 1, NULL, &old[0], NULL, a_to_b, b.addr,
			     b.key, FI_UINT64, FI_ATOMIC_READ, &ctx[1]));
	MUST(fi_compare_atomic(a.ep, &v, 1, NULL, &cmp, NULL, &old[1], NULL,
			       a_to_b, b.addr, b.key, FI_UINT64, FI_CSWAP,
			       &ctx[2]));
	cr_assert(node_no_entries(&a));
	sim_deliver_all();
	node_poke(&b);
	cr_assert_eq(m[0], 5);
	cr_assert_eq(mem[8], (char)200);
	sim_deliver_all();
	node_expect(&a, &ctx[0], NULL);
	node_expect(&a, &ctx[1], NULL);
	node_expect(&a, &ctx[2], NULL);
	cr_assert(old[0] == 9 && old[1] == 9);
	MUST(fi_atomicvalid(a.ep, FI_DOUBLE, FI_SUM, &count));
	cr_assert_eq(fi_atomicvalid(a.ep, FI_DOUBLE, FI_BOR, &count),
		     -FI_EOPNOTSUPP);
	end_pair();
}
