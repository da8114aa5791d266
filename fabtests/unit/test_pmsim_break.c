// SPDX-License-Identifier: BSD-2-Clause
/* Breaks and deaths on the simulated fabric: who is told what, and when. */
#include <criterion/criterion.h>

#include "unit/sim_pair.h"

static void breaks(const char *prov)
{
	struct sim_opts o = {.prov = prov};
	unsigned int id, qp;

	two(&plain, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	MUST(write_dc("2", 1, 1, &ctx[1]));
	MUST(fi_write(a.ep, "3", 1, NULL, a_to_b, b.addr + 2, b.key, &ctx[2]));
	MUST(write_dc("4", 1, 3, &ctx[3]));
	id = sim_wire(0).id;
	qp = sim_wire(0).qp;
	/* One has arrived, three are in flight; two of the four get there. */
	sim->deliver(id, 1);
	cr_assert_eq(sim_wire(0).arrived, 1);
	sim->break_wire(id, 2);
	cr_assert_eq(sim->arrived(1), 2);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	cr_assert_eq(node_expect_error(&a, &ctx[1]), FI_ECONNABORTED);
	cr_assert_eq(node_expect_error(&a, &ctx[3]), FI_ECONNABORTED);
	/* This one was handed over, and that is all it says. */
	node_expect(&a, &ctx[2], NULL);
	/* A new connection, silently; nothing of the old one is answered. */
	MUST(write_dc("5", 1, 4, &ctx[4]));
	cr_assert_eq(sim_wire(0).id, id);
	cr_assert_neq(sim_wire(0).qp, qp);
	sim_deliver_all();
	node_poke(&b);
	cr_assert_arr_eq(mem, "12\0\0005", 5);
	cr_assert_eq(sim_wire(1).in_flight, 1);
	sim_deliver_all();
	node_expect(&a, &ctx[4], NULL);
	cr_assert(node_quiet(&a));
	done();
}

Test(pmsim, breaks)
{
	breaks(NULL);
}

Test(rpmem_on_pmsim, breaks)
{
	breaks("pmsim;ofi_rpmem");
}

Test(pmsim, break_loses_both_directions)
{
	struct sim_opts o = {0};
	struct pmsim_wire w[4];
	unsigned int id;

	two(&plain, &o);
	MUST(fi_inject(a.ep, "x", 1, a_to_b));
	id = sim_wire(0).id;
	MUST(fi_inject(b.ep, "y", 1, b_to_a));
	cr_assert_eq(sim->wires(w, 4), 2);
	sim->break_wire(id, 0);
	cr_assert_eq(sim->wires(w, 4), 0);
	cr_assert_eq(sim->arrived(0) + sim->arrived(1), 0);
	done();
}

Test(pmsim, break_keeps_what_came_back)
{
	struct sim_opts o = {0};
	unsigned int id;

	two(&plain, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	MUST(write_dc("2", 1, 1, &ctx[1]));
	id = sim_wire(0).id;
	sim_deliver_all();
	node_poke(&b);
	/* One acknowledgement is there, the other still on its way. */
	sim->deliver(sim_wire(1).id, 1);
	sim->break_wire(id, 0);
	/* The failure is told at once, the other when the program looks. */
	cr_assert_eq(node_expect_error(&a, &ctx[1]), FI_ECONNABORTED);
	node_expect(&a, &ctx[0], NULL);
	cr_assert_eq(sim->outstanding(0), 0);
	done();
}

Test(pmsim, break_loses_acknowledgements_that_nobody_saw)
{
	struct sim_opts o = {0};

	two(&plain, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	sim_deliver_all();
	node_poke(&b);
	sim->deliver(sim_wire(1).id, 0);
	sim->break_wire(sim_wire(1).id, 0);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	/* In the buffer of the initiator's socket is lost as well. */
	MUST(write_dc("1", 1, 0, &ctx[0]));
	sim_deliver_all();
	node_poke(&b);
	MUST(fi_inject(b.ep, "x", 1, b_to_a));
	sim->deliver(sim_wire(1).id, 1);
	cr_assert_eq(sim_wire(1).arrived, 1);
	sim->break_wire(sim_wire(1).id, 0);
	cr_assert_eq(sim->arrived(0), 0);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	cr_assert(node_quiet(&a));
	done();
}

/* --- lives --- */

static void lives(const char *prov)
{
	struct pmsim_cfg cfg = plain;
	struct sim_opts o = {.prov = prov, .prov_keys = true};
	struct sim_node dead;
	uint64_t key;

	cfg.prov_keys = true;
	cfg.fixed_keys = true;
	two(&cfg, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	MUST(fi_inject(a.ep, "?", 1, a_to_b));
	MUST(fi_recv(b.ep, mem, 1, NULL, FI_ADDR_UNSPEC, &ctx[2]));
	MUST(fi_recv(b.ep, mem, 1, NULL, FI_ADDR_UNSPEC, &ctx[6]));
	MUST(fi_cancel(&b.ep->fid, &ctx[6]));
	sim_deliver_all();
	sim->kill(1);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	/* It says nothing, not even what it had to say, and can be closed. */
	cr_assert(node_quiet(&b));
	cr_assert_lt(fi_inject(b.ep, "!", 1, b_to_a), 0);
	cr_assert_eq(sim->arrived(1), 0);
	cr_assert_eq(mem[0], 0);
	/* Nobody has the address now. */
	MUST(write_dc("2", 1, 0, &ctx[3]));
	cr_assert_eq(sim->outstanding(0), 1);
	cr_assert_eq(node_expect_error(&a, &ctx[3]), FI_ECONNABORTED);
	dead = b;
	node_open(&b, 1, dead.name);
	cr_assert_arr_eq(b.name, dead.name, sizeof(b.name));
	node_memory(&b, mem, sizeof(mem), 0, 0);
	key = b.key;
	if (!prov)
		cr_assert_eq(key, dead.key, "base keys are the same again");
	else
		cr_assert_neq(key, dead.key);
	/* The same fi_addr_t, and a base that takes the old key. */
	MUST(write_dc("3", 1, 0, &ctx[4]));
	sim_deliver_all();
	node_poke(&b);
	sim_deliver_all();
	node_expect(&a, &ctx[4], NULL);
	cr_assert_eq(mem[0], '3');
	node_close(&dead);
	MUST(write_dc("4", 1, 0, &ctx[5]));
	sim_deliver_all();
	node_poke(&b);
	cr_assert_eq(mem[0], '4', "the dead one's close is no business of b");
	sim_deliver_all();
	node_expect(&a, &ctx[5], NULL);
	done();
}

Test(pmsim, lives)
{
	lives(NULL);
}

Test(rpmem_on_pmsim, lives)
{
	lives("pmsim;ofi_rpmem");
}
