// SPDX-License-Identifier: BSD-2-Clause
/*
 * Lost connections and killed processes on the simulated fabric: which
 * operations fail, and when the errors are reported.
 */
#include <criterion/criterion.h>

#include "unit/sim_pair.h"

static void check_breaks(const char *prov)
{
	struct sim_opts o = {.prov = prov};
	unsigned int id, qp;

	open_pair_plain(&plain_fabric, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	MUST(write_dc("2", 1, 1, &ctx[1]));
	MUST(fi_write(a.ep, "3", 1, NULL, a_to_b, b.addr + 2, b.key, &ctx[2]));
	MUST(write_dc("4", 1, 3, &ctx[3]));
	id = sim_wire(0).id;
	qp = sim_wire(0).qp;
	/*
	 * One message has arrived and three are in flight; one more of them
	 * arrives before the loss.
	 */
	sim->deliver(id, 1);
	cr_assert_eq(sim_wire(0).arrived, 1);
	sim->break_wire(id, 2);
	cr_assert_eq(sim->arrived(1), 2);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	cr_assert_eq(node_expect_error(&a, &ctx[1]), FI_ECONNABORTED);
	cr_assert_eq(node_expect_error(&a, &ctx[3]), FI_ECONNABORTED);
	/* This write completed at transmission, so it succeeds. */
	node_expect(&a, &ctx[2], NULL);
	/* The next post connects again; old messages get no ACK. */
	MUST(write_dc("5", 1, 4, &ctx[4]));
	cr_assert_eq(sim_wire(0).id, id);
	cr_assert_neq(sim_wire(0).qp, qp);
	sim_deliver_all();
	node_poke(&b);
	cr_assert_arr_eq(mem, "12\0\0005", 5);
	cr_assert_eq(sim_wire(1).in_flight, 1);
	sim_deliver_all();
	node_expect(&a, &ctx[4], NULL);
	cr_assert(node_no_entries(&a));
	end_pair();
}

Test(pmsim, breaks)
{
	check_breaks(NULL);
}

Test(rpmem_on_pmsim, breaks)
{
	check_breaks("pmsim;ofi_rpmem");
}

Test(pmsim, break_loses_both_directions)
{
	struct sim_opts o = {0};
	struct pmsim_wire w[4];
	unsigned int id;

	open_pair_plain(&plain_fabric, &o);
	MUST(fi_inject(a.ep, "x", 1, a_to_b));
	id = sim_wire(0).id;
	MUST(fi_inject(b.ep, "y", 1, b_to_a));
	cr_assert_eq(sim->wires(w, 4), 2);
	sim->break_wire(id, 0);
	cr_assert_eq(sim->wires(w, 4), 0);
	cr_assert_eq(sim->arrived(0) + sim->arrived(1), 0);
	end_pair();
}

Test(pmsim, break_keeps_arrived_acknowledgements)
{
	struct sim_opts o = {0};
	unsigned int id;

	open_pair_plain(&plain_fabric, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	MUST(write_dc("2", 1, 1, &ctx[1]));
	id = sim_wire(0).id;
	sim_deliver_all();
	node_poke(&b);
	/* One acknowledgement has arrived, the other one is in flight. */
	sim->deliver(sim_wire(1).id, 1);
	sim->break_wire(id, 0);
	/* Failures are reported at once, success by the next progress. */
	cr_assert_eq(node_expect_error(&a, &ctx[1]), FI_ECONNABORTED);
	node_expect(&a, &ctx[0], NULL);
	cr_assert_eq(sim->outstanding(0), 0);
	end_pair();
}

Test(pmsim, break_loses_unread_acknowledgements)
{
	struct sim_opts o = {0};

	open_pair_plain(&plain_fabric, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	sim_deliver_all();
	node_poke(&b);
	sim->deliver(sim_wire(1).id, 0);
	sim->break_wire(sim_wire(1).id, 0);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	/* An ACK in the socket's receive buffer is lost as well. */
	MUST(write_dc("1", 1, 0, &ctx[0]));
	sim_deliver_all();
	node_poke(&b);
	MUST(fi_inject(b.ep, "x", 1, b_to_a));
	sim->deliver(sim_wire(1).id, 1);
	cr_assert_eq(sim_wire(1).arrived, 1);
	sim->break_wire(sim_wire(1).id, 0);
	cr_assert_eq(sim->arrived(0), 0);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	cr_assert(node_no_entries(&a));
	end_pair();
}

/* --- failures that are reported late --- */

static void late_errors(const char *prov)
{
	struct sim_opts o = {.prov = prov};
	struct pmsim_cfg cfg = plain_fabric;
	char got[8] = {0}, in[2][4] = {{0}};
	unsigned int id;

	cfg.late_errors = true;
	open_pair_plain(&cfg, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	id = sim_wire(0).id;
	sim_deliver_all();
	node_poke(&b);
	cr_assert_eq(sim_deliver_all(), 1);
	MUST(write_dc("2", 1, 1, &ctx[1]));
	MUST(fi_read(a.ep, got, 8, NULL, a_to_b, b.addr, b.key, &ctx[2]));
	MUST(fi_write(a.ep, "3", 1, NULL, a_to_b, b.addr, b.key, &ctx[3]));
	sim->break_wire(id, 1);
	cr_assert_eq(sim->unreported(0), 2);
	cr_assert_eq(sim->unreported(1), 0);
	/* These two were transmitted, or acknowledged before the loss. */
	node_expect(&a, &ctx[3], NULL);
	node_expect(&a, &ctx[0], NULL);
	cr_assert(node_no_entries(&a));
	cr_assert_eq(sim->outstanding(0), 2);
	/* The new connection works before failures are reported. */
	MUST(fi_recv(b.ep, in[1], 4, NULL, FI_ADDR_UNSPEC, &ctx[4]));
	MUST(fi_recv(a.ep, in[0], 4, NULL, FI_ADDR_UNSPEC, &ctx[5]));
	MUST(fi_send(a.ep, "to", 3, NULL, a_to_b, &ctx[6]));
	MUST(write_dc("4", 1, 2, &ctx[7]));
	MUST(fi_inject(b.ep, "fro", 4, b_to_a));
	sim_deliver_all();
	node_expect(&b, &ctx[4], NULL);
	cr_assert_eq(sim_deliver_all(), 1,
		     "only the new write is acknowledged");
	node_expect(&a, &ctx[6], NULL);
	node_expect(&a, &ctx[5], NULL);
	node_expect(&a, &ctx[7], NULL);
	cr_assert(node_no_entries(&a));
	cr_assert_str_eq(in[0], "fro");
	cr_assert_str_eq(in[1], "to");
	cr_assert_arr_eq(mem, "124", 4);
	cr_assert_eq(sim->unreported(0), 2);
	/* A second loss does not report the failures of the first one again. */
	MUST(write_dc("5", 1, 3, &ctx[8]));
	sim->break_wire(id, 0);
	cr_assert_eq(sim->unreported(0), 3);
	MUST(write_dc("6", 1, 4, &ctx[9]));
	sim->report_failures(1);
	cr_assert_eq(sim->unreported(0), 3);
	cr_assert(node_no_entries(&a));
	sim->report_failures(0);
	cr_assert_eq(sim->unreported(0), 0);
	cr_assert_eq(sim->outstanding(0), 1, "the last one has not failed");
	cr_assert_eq(node_expect_error(&a, &ctx[1]), FI_ECONNABORTED);
	cr_assert_eq(node_expect_error(&a, &ctx[2]), FI_ECONNABORTED);
	cr_assert_eq(node_expect_error(&a, &ctx[8]), FI_ECONNABORTED);
	sim->report_failures(0);
	cr_assert(node_no_entries(&a));
	sim_deliver_all();
	node_poke(&b);
	cr_assert_eq(sim_deliver_all(), 1);
	node_expect(&a, &ctx[9], NULL);
	cr_assert(node_no_entries(&a));
	cr_assert_arr_eq(mem, "124\0006", 6);
	cr_assert_eq(got[0], 0);
	end_pair();
}

Test(pmsim, late_errors)
{
	late_errors(NULL);
}

Test(rpmem_on_pmsim, late_errors)
{
	late_errors("pmsim;ofi_rpmem");
}

Test(pmsim, late_errors_and_deaths)
{
	struct sim_opts o = {0};
	struct pmsim_cfg cfg = plain_fabric;
	struct sim_node dead;

	cfg.late_errors = true;
	open_pair_plain(&cfg, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	sim->kill(1);
	cr_assert_eq(sim->unreported(0), 1);
	cr_assert(node_no_entries(&a));
	dead = b;
	node_open(&b, 1, dead.name);
	node_memory(&b, mem, sizeof(mem), 7, 0);
	MUST(write_dc("2", 1, 0, &ctx[1]));
	sim_deliver_all();
	node_poke(&b);
	sim_deliver_all();
	node_expect(&a, &ctx[1], NULL);
	cr_assert_eq(mem[0], '2');
	sim->report_failures(0);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	cr_assert(node_no_entries(&a));
	/* A killed process or a closed endpoint gets no late errors. */
	MUST(write_dc("3", 1, 0, &ctx[2]));
	sim->break_wire(sim_wire(0).id, 0);
	cr_assert_eq(sim->unreported(0), 1);
	sim->kill(0);
	cr_assert_eq(sim->unreported(0), 0);
	cr_assert_eq(sim->outstanding(0), 0);
	sim->report_failures(0);
	cr_assert(node_no_entries(&a));
	node_close(&a);
	node_open(&a, 0, NULL);
	a_to_b = node_insert(&a, &b);
	MUST(write_dc("4", 1, 0, &ctx[3]));
	sim->break_wire(sim_wire(0).id, 0);
	cr_assert_eq(sim->unreported(0), 1);
	node_close(&dead);
	end_pair();
	cr_assert_eq(sim->unreported(0), 0);
}

/* --- incarnations --- */

static void check_incarnations(const char *prov)
{
	struct pmsim_cfg cfg = plain_fabric;
	struct sim_opts o = {.prov = prov, .prov_keys = true};
	struct sim_node dead;
	uint64_t key;

	cfg.prov_keys = true;
	cfg.fixed_keys = true;
	open_pair_plain(&cfg, &o);
	MUST(write_dc("1", 1, 0, &ctx[0]));
	MUST(fi_inject(a.ep, "?", 1, a_to_b));
	MUST(fi_recv(b.ep, mem, 1, NULL, FI_ADDR_UNSPEC, &ctx[2]));
	MUST(fi_recv(b.ep, mem, 1, NULL, FI_ADDR_UNSPEC, &ctx[6]));
	MUST(fi_cancel(&b.ep->fid, &ctx[6]));
	sim_deliver_all();
	sim->kill(1);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	/* A killed process sends nothing, not even posted messages. */
	cr_assert(node_no_entries(&b));
	cr_assert_lt(fi_inject(b.ep, "!", 1, b_to_a), 0);
	cr_assert_eq(sim->arrived(1), 0);
	cr_assert_eq(mem[0], 0);
	/* No process has this address now. */
	MUST(write_dc("2", 1, 0, &ctx[3]));
	cr_assert_eq(sim->outstanding(0), 1);
	cr_assert_eq(node_expect_error(&a, &ctx[3]), FI_ECONNABORTED);
	dead = b;
	node_open(&b, 1, dead.name);
	cr_assert_arr_eq(b.name, dead.name, sizeof(b.name));
	node_memory(&b, mem, sizeof(mem), 0, 0);
	key = b.key;
	cr_assert_eq(key, dead.key, "base keys are the same again");
	/* The new process has the same fi_addr_t; its base key is old. */
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
	end_pair();
}

Test(pmsim, incarnations)
{
	check_incarnations(NULL);
}

Test(rpmem_on_pmsim, incarnations)
{
	check_incarnations("pmsim;ofi_rpmem");
}

/* Whether the base keys of a restarted process equal its former ones. */
static void check_keys(bool fixed)
{
	struct pmsim_cfg cfg = plain_fabric;
	struct sim_opts o = {.prov_keys = true};
	struct sim_node dead, second, second_dead;
	char more[8] = {0};

	cfg.prov_keys = true;
	cfg.fixed_keys = fixed;
	open_pair_plain(&cfg, &o);
	second_dead = b;
	node_memory(&second_dead, more, sizeof(more), 0, 0);
	cr_assert_neq(second_dead.key, b.key);
	node_memory(&a, mem, sizeof(mem), 0, 0);
	cr_assert_eq(a.key == b.key, fixed);
	sim->kill(1);
	/* The keys of the process that goes on do not change. */
	second = a;
	node_memory(&second, more, sizeof(more), 0, 0);
	cr_assert_neq(second.key, a.key);
	MUST(fi_close(&second.mr->fid));
	dead = b;
	node_open(&b, 1, dead.name);
	/* Register in another order than the former process did. */
	node_memory(&b, more, sizeof(more), 0, 0);
	second = b;
	node_memory(&second, mem, sizeof(mem), 0, 0);
	cr_assert_neq(second.key, b.key);
	cr_assert_eq(b.key == dead.key, fixed);
	cr_assert_eq(second.key == second_dead.key, fixed);
	/*
	 * With a key of the former incarnation, the write is refused or reaches
	 * other memory.
	 */
	b.key = dead.key;
	MUST(write_dc("x", 1, 0, &ctx[0]));
	sim_deliver_all();
	node_poke(&b);
	sim_deliver_all();
	if (fixed)
		node_expect(&a, &ctx[0], NULL);
	else
		cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ENOKEY);
	cr_assert_eq(more[0], fixed ? 'x' : 0);
	cr_assert_eq(mem[0], 0);
	MUST(fi_close(&second.mr->fid));
	MUST(fi_close(&second_dead.mr->fid));
	node_close(&dead);
	end_pair();
}

Test(pmsim, keys_are_repeated_after_a_kill)
{
	check_keys(true);
}

Test(pmsim, keys_are_new_after_a_kill)
{
	check_keys(false);
}
