// SPDX-License-Identifier: BSD-2-Clause
/* Placement on the simulated machines, by CPUs and NICs. */
#include <string.h>

#include <criterion/criterion.h>

#include "unit/leaks.h"
#include "unit/sim_pair.h"

Test(pmsim, cpu_stores_through_the_model)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_CPU_USER,
	};
	uint64_t values[MODEL_VALUES];
	char *pm = open_b_on_model(&plain_fabric, &mc);
	bool lost;

	MUST(write_dc("persist", 8, 0, &ctx[0]));
	sim_deliver_all();
	cr_assert_eq(pm[0], 0);
	node_poke(&b);
	cr_assert_str_eq(pm, "persist");
	/* The line is in the cache, so it may have been evicted. */
	cr_assert_eq(model_after_cut(sim->model(1), pm, values, &lost), 2);
	sim_deliver_all();
	node_expect(&a, &ctx[0], NULL);
	end_pair();
}

/* A write does not wait in the NIC, and overtakes reads posted before it. */
Test(pmsim, reads_wait_in_the_nic)
{
	static const struct pmsim_cfg cfg = {
		.ordered = true, .placed_acks = true, .delays_reads = true};
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_DMA_MEMORY,
		.fence = true,
		.relaxed = true,
	};
	char got[8] = {0}, *pm = open_b_on_model(&cfg, &mc);
	struct model *m = sim->model(1);

	MUST(fi_inject_write(a.ep, "first", 6, a_to_b, b.addr, b.key));
	MUST(fi_read(a.ep, got, 8, NULL, a_to_b, b.addr, b.key, &ctx[0]));
	MUST(fi_inject_write(a.ep, "second", 7, a_to_b, b.addr + 64, b.key));
	MUST(fi_inject_write(a.ep, "third", 6, a_to_b, b.addr + 128, b.key));
	sim_deliver_all();
	cr_assert_eq(sim_deliver_all(), 0);
	cr_assert_eq(model_dma_pending(m), 3);
	model_dma_step(m, 1);
	cr_assert_eq(pm[0], 0);
	cr_assert_str_eq(pm + 64, "second");
	sim->execute(1);
	cr_assert_str_eq(pm, "first");
	cr_assert_eq(model_dma_pending(m), 1, "what is behind it");
	cr_assert_eq(sim_deliver_all(), 1);
	node_expect(&a, &ctx[0], NULL);
	cr_assert_str_eq(got, "first");
	/* After kill() a read waiting in the NIC is not executed. */
	MUST(fi_read(a.ep, got, 8, NULL, a_to_b, b.addr, b.key, &ctx[1]));
	sim_deliver_all();
	sim->kill(1);
	sim->execute(1);
	cr_assert_eq(sim_deliver_all(), 0);
	cr_assert_eq(node_expect_error(&a, &ctx[1]), FI_ECONNABORTED);
	end_pair();
}

/* A read with the FLUSH flag returns no bytes and writes back its range. */
static void check_flush(enum model_place place, unsigned int levels, int want)
{
	const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = place,
		.levels = levels,
	};
	uint64_t values[MODEL_VALUES];
	char *pm = open_b_on_model(&plain_fabric, &mc);
	struct fi_rma_iov rma = {b.addr, 8, b.key};
	const struct fi_msg_rma m = {
		.addr = a_to_b,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = &ctx[1],
	};
	struct fi_cq_err_entry e = {0};
	bool lost;

	MUST(fi_inject_write(a.ep, "flushed", 8, a_to_b, b.addr, b.key));
	MUST(fi_inject_write(a.ep, "another", 8, a_to_b, b.addr + 64, b.key));
	MUST(fi_readmsg(a.ep, &m, FI_COMPLETION | PMSIM_FLUSH));
	sim_deliver_all();
	node_poke(&b);
	sim_deliver_all();
	node_poke(&a);
	if (want) {
		cr_assert_eq(fi_cq_readerr(a.cq, &e, 0), 1);
		cr_assert_eq(e.op_context, &ctx[1]);
		cr_assert_eq(e.err, want);
	} else {
		node_expect(&a, &ctx[1], NULL);
		cr_assert_eq(model_after_cut(sim->model(1), pm, values, &lost),
			     1);
		cr_assert_eq(memcmp(values, "flushed", 8), 0);
		cr_assert_eq(
			model_after_cut(sim->model(1), pm + 64, values, &lost),
			2);
	}
	cr_assert_eq(fi_writemsg(a.ep, &m, PMSIM_FLUSH), -FI_EBADFLAGS);
	end_pair();
}

Test(pmsim, flush_by_the_nic)
{
	check_flush(MODEL_DMA_CACHE, MODEL_VISIBLE | MODEL_PERSISTENT, 0);
}

Test(pmsim, flush_by_the_kernel)
{
	check_flush(MODEL_CPU_KERNEL, 0, 0);
}

Test(pmsim, flush_by_nobody)
{
	check_flush(MODEL_DMA_CACHE, MODEL_VISIBLE, FI_EACCES);
}

Test(pmsim, nic_places_by_itself)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_DMA_MEMORY,
		.fence = true,
	};
	struct model *m;
	char got[8] = {0}, *pm = open_b_on_model(&plain_fabric, &mc);

	m = sim->model(1);
	MUST(write_dc("persist", 8, 0, &ctx[0]));
	sim_deliver_all();
	/* Placement of a write in the NIC causes its ACK by itself. */
	cr_assert_eq(pm[0], 0);
	cr_assert_eq(model_dma_pending(m), 1);
	cr_assert_eq(sim_deliver_all(), 0);
	model_dma_step(m, 0);
	cr_assert_str_eq(pm, "persist");
	cr_assert_eq(sim_deliver_all(), 1);
	node_expect(&a, &ctx[0], NULL);
	/* A fencing read places the earlier write without progress calls. */
	MUST(fi_inject_write(a.ep, "another", 8, a_to_b, b.addr + 64, b.key));
	MUST(fi_read(a.ep, got, 8, NULL, a_to_b, b.addr + 64, b.key, &ctx[1]));
	sim_deliver_all();
	sim_deliver_all();
	node_expect(&a, &ctx[1], NULL);
	cr_assert_str_eq(got, "another");
	cr_assert_eq(model_dma_pending(m), 0);
	/* Completions with remote CQ data follow earlier placement. */
	MUST(fi_inject_write(a.ep, "first", 6, a_to_b, b.addr, b.key));
	MUST(fi_inject_writedata(a.ep, "second", 7, 1, a_to_b, b.addr + 64,
				 b.key));
	sim_deliver_all();
	cr_assert_eq(sim->arrived(1), 1);
	cr_assert_str_eq(pm, "persist");
	node_expect(&b, NULL, NULL);
	cr_assert_str_eq(pm, "first");
	cr_assert_str_eq(pm + 64, "second");
	end_pair();
}

Test(pmsim, nic_acknowledges_what_it_has)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_DMA_CACHE,
	};
	struct pmsim_cfg cfg = plain_fabric;
	char *pm;

	cfg.placed_acks = false;
	pm = open_b_on_model(&cfg, &mc);
	MUST(write_dc("persist", 8, 0, &ctx[0]));
	cr_assert_eq(sim_deliver_all(), 1);
	cr_assert_eq(sim_deliver_all(), 1);
	node_expect(&a, &ctx[0], NULL);
	cr_assert_eq(pm[0], 0);
	end_pair();
}

Test(pmsim, nic_sees_earlier_atomics)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_DMA_MEMORY,
	};
	uint64_t one = 1, old = 0;
	char *pm = open_b_on_model(&plain_fabric, &mc);

	for (int i = 0; i < 3; i++)
		MUST(fi_inject_atomic(a.ep, &one, 1, a_to_b, b.addr, b.key,
				      FI_UINT64, FI_SUM));
	sim_deliver_all();
	cr_assert_eq(pm[0], 3);
	MUST(fi_fetch_atomic(a.ep, &one, 1, NULL, &old, NULL, a_to_b, b.addr,
			     b.key, FI_UINT64, FI_SUM, &ctx[0]));
	sim_deliver_all();
	sim_deliver_all();
	node_expect(&a, &ctx[0], NULL);
	cr_assert_eq(old, 3);
	cr_assert_eq(pm[0], 4);
	end_pair();
}

Test(pmsim, receive_buffers_in_persistent_memory)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_DMA_CACHE,
	};
	struct pmsim_cfg cfg = plain_fabric;
	char dram[8] = {0}, *pm;

	pm = open_b_on_model(&cfg, &mc);
	cr_assert_eq(fi_recv(b.ep, pm, 8, NULL, FI_ADDR_UNSPEC, NULL),
		     -FI_EINVAL);
	close_two();
	cfg.recv_in_pm = true;
	pm = open_b_on_model(&cfg, &mc);
	MUST(fi_recv(b.ep, pm, 8, NULL, FI_ADDR_UNSPEC, &ctx[0]));
	MUST(fi_recv(b.ep, dram, 8, NULL, FI_ADDR_UNSPEC, &ctx[1]));
	MUST(fi_inject(a.ep, "durable", 8, a_to_b));
	MUST(fi_inject(a.ep, "passing", 8, a_to_b));
	sim_deliver_all();
	cr_assert_eq(pm[0], 0);
	cr_assert_eq(sim->arrived(1), 2);
	node_expect(&b, &ctx[0], NULL);
	cr_assert_str_eq(pm, "durable");
	node_expect(&b, &ctx[1], NULL);
	cr_assert_str_eq(dram, "passing");
	end_pair();
}

/* --- writes that are in a NIC when a process or connection ends --- */

static const struct model_cfg dma = {
	.kind = MODEL_DAX_SYNC,
	.domain = MODEL_ADR,
	.place = MODEL_DMA_MEMORY,
};

static void write_to_b(const char *text, size_t at)
{
	MUST(fi_inject_write(a.ep, text, strlen(text) + 1, a_to_b, b.addr + at,
			     b.key));
}

/* Start the next run on the same machines. */
static void run_again(char *pm)
{
	struct sim_opts o = {.caps = FI_MSG | FI_RMA | FI_ATOMIC};

	sim->reset(NULL);
	pair_open(&o);
	node_memory(&b, pm, MODEL_PAGE, 7, 0);
}

/* The media must hold only zeros. */
static void expect_new(const struct model *m, const char *at)
{
	uint64_t values[MODEL_VALUES];
	bool lost;

	cr_assert_eq(model_after_cut(m, at, values, &lost), 1);
	cr_assert(!values[0] && !lost);
}

Test(pmsim, reset_makes_memory_new)
{
	char *pm = open_b_on_model(&plain_fabric, &dma);
	struct model *m = sim->model(1);

	write_to_b("placed", 0);
	sim_deliver_all();
	model_dma_step(m, 0);
	cr_assert_str_eq(pm, "placed");
	model_store(m, MODEL_CPU_USER, pm + 64, "durable", 8);
	model_clwb(m, pm + 64, 8);
	model_sfence(m);
	write_to_b("pending", 128);
	sim_deliver_all();
	cr_assert_eq(model_dma_pending(m), 1);
	close_two();
	run_again(pm);
	cr_assert_eq(sim->model(1), m);
	cr_assert_eq(model_dma_pending(m), 0);
	for (size_t i = 0; i < MODEL_PAGE; i++)
		cr_assert_eq(pm[i], 0);
	for (size_t at = 0; at < 192; at += 64)
		expect_new(m, pm + at);
	write_to_b("again", 0);
	sim_deliver_all();
	model_dma_step(m, 0);
	cr_assert_str_eq(pm, "again");
	end_pair();
}

Test(pmsim, reset_forgets_acknowledgements)
{
	char *pm = open_b_on_model(&plain_fabric, &dma);
	struct model *m = sim->model(1);
	struct pmsim_wire w;

	MUST(write_dc("old", 4, 0, &ctx[0]));
	w = sim_wire(0);
	sim_deliver_all();
	cr_assert_eq(model_dma_pending(m), 1);
	close_two();
	run_again(pm);
	MUST(write_dc("new", 4, 64, &ctx[1]));
	/* The new wire has the old ID: a late ACK would be accepted. */
	cr_assert_eq(sim_wire(0).id, w.id);
	cr_assert_eq(sim_wire(0).qp, w.qp);
	cr_assert_eq(sim_deliver_all(), 1);
	cr_assert_eq(sim_deliver_all(), 0);
	cr_assert_eq(sim->count(PMSIM_ACK), 0);
	cr_assert(node_no_entries(&a));
	model_dma_step(m, 0);
	cr_assert_eq(sim_deliver_all(), 1);
	node_expect(&a, &ctx[1], NULL);
	cr_assert(node_no_entries(&a));
	cr_assert_eq(pm[0], 0);
	/* A reset() to other machines frees an acknowledgement that waits. */
	MUST(write_dc("old", 4, 0, &ctx[0]));
	sim_deliver_all();
	close_two();
	sim->reset(&plain_fabric);
	cr_assert_not(rp_test_leaked());
}

Test(pmsim, kill_lets_the_nic_finish)
{
	char *pm = open_b_on_model(&plain_fabric, &dma);
	struct model *m = sim->model(1);
	struct sim_node dead;

	write_to_b("first", 0);
	write_to_b("second", 64);
	MUST(write_dc("third", 6, 128, &ctx[0]));
	sim_deliver_all();
	write_to_b("lost", 192);
	cr_assert_eq(model_dma_pending(m), 3);
	sim->kill(1);
	cr_assert_eq(model_dma_pending(m), 0);
	cr_assert_str_eq(pm, "first");
	cr_assert_str_eq(pm + 64, "second");
	cr_assert_str_eq(pm + 128, "third");
	/* The next incarnation finds all bytes; no others arrive later. */
	dead = b;
	node_open(&b, 1, dead.name);
	node_memory(&b, pm, MODEL_PAGE, 7, 0);
	write_to_b("again", 0);
	sim_deliver_all();
	cr_assert_eq(model_dma_pending(m), 1);
	model_dma_step(m, 0);
	cr_assert_str_eq(pm, "again");
	cr_assert_eq(pm[192], 0);
	/* The bytes were placed, but no ACK arrived. */
	cr_assert_eq(sim_deliver_all(), 0);
	cr_assert_eq(sim->count(PMSIM_ACK), 0);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	cr_assert(node_no_entries(&a));
	node_close(&dead);
	end_pair();
}

Test(pmsim, break_lets_both_nics_finish)
{
	struct sim_opts o = {.caps = FI_MSG | FI_RMA};
	struct model *m[2];
	unsigned int id;
	char *pm[2];

	sim_start();
	sim->reset(&plain_fabric);
	for (int i = 0; i < 2; i++) {
		sim->machine(&dma);
		m[i] = sim->model(i);
		pm[i] = model_alloc(m[i], MODEL_PAGE);
	}
	pair_open(&o);
	node_memory(&a, pm[0], MODEL_PAGE, 7, 0);
	node_memory(&b, pm[1], MODEL_PAGE, 7, 0);
	MUST(write_dc("taken", 6, 0, &ctx[0]));
	MUST(fi_inject_write(b.ep, "back", 5, b_to_a, a.addr, a.key));
	id = sim_wire(0).id;
	sim_deliver_all();
	write_to_b("late", 64);
	write_to_b("lost", 128);
	cr_assert_eq(model_dma_pending(m[0]), 1);
	cr_assert_eq(model_dma_pending(m[1]), 1);
	sim->break_wire(id, 1);
	cr_assert_eq(model_dma_pending(m[0]), 0);
	cr_assert_eq(model_dma_pending(m[1]), 0);
	cr_assert_str_eq(pm[0], "back");
	cr_assert_str_eq(pm[1], "taken");
	cr_assert_str_eq(pm[1] + 64, "late");
	cr_assert_eq(pm[1][128], 0);
	cr_assert_eq(node_expect_error(&a, &ctx[0]), FI_ECONNABORTED);
	/* The new connection delivers later bytes, and no old ACK. */
	write_to_b("next", 0);
	sim_deliver_all();
	model_dma_step(m[1], 0);
	cr_assert_str_eq(pm[1], "next");
	cr_assert_eq(sim_deliver_all(), 0);
	cr_assert_eq(sim->count(PMSIM_ACK), 0);
	cr_assert(node_no_entries(&a));
	end_pair();
}
