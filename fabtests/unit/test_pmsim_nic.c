// SPDX-License-Identifier: BSD-2-Clause
/* Where the simulated machines place what arrives: their CPUs and NICs. */
#include <criterion/criterion.h>

#include "unit/sim_pair.h"

Test(pmsim, cpu_stores_through_the_model)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_CPU_USER,
	};
	uint64_t values[MODEL_VALUES];
	char *pm = modelled(&plain, &mc);
	bool lost;

	MUST(write_dc("persist", 8, 0, &ctx[0]));
	sim_deliver_all();
	cr_assert_eq(pm[0], 0);
	node_poke(&b);
	cr_assert_str_eq(pm, "persist");
	/* In the cache: it may have been evicted, or not. */
	cr_assert_eq(model_after_cut(sim->model(1), pm, values, &lost), 2);
	sim_deliver_all();
	node_expect(&a, &ctx[0], NULL);
	done();
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
	char got[8] = {0}, *pm = modelled(&plain, &mc);

	m = sim->model(1);
	MUST(write_dc("persist", 8, 0, &ctx[0]));
	sim_deliver_all();
	/* In the NIC; acknowledged when it is in memory, without a program. */
	cr_assert_eq(pm[0], 0);
	cr_assert_eq(model_dma_pending(m), 1);
	cr_assert_eq(sim_deliver_all(), 0);
	model_dma_step(m, 0);
	cr_assert_str_eq(pm, "persist");
	cr_assert_eq(sim_deliver_all(), 1);
	node_expect(&a, &ctx[0], NULL);
	/* A read that fences brings the write before it, nobody looking. */
	MUST(fi_inject_write(a.ep, "another", 8, a_to_b, b.addr + 64, b.key));
	MUST(fi_read(a.ep, got, 8, NULL, a_to_b, b.addr + 64, b.key, &ctx[1]));
	sim_deliver_all();
	sim_deliver_all();
	node_expect(&a, &ctx[1], NULL);
	cr_assert_str_eq(got, "another");
	cr_assert_eq(model_dma_pending(m), 0);
	/* What the program hears of is behind what came before it. */
	MUST(fi_inject_write(a.ep, "first", 6, a_to_b, b.addr, b.key));
	MUST(fi_inject_writedata(a.ep, "second", 7, 1, a_to_b, b.addr + 64,
				 b.key));
	sim_deliver_all();
	cr_assert_eq(sim->arrived(1), 1);
	cr_assert_str_eq(pm, "persist");
	node_expect(&b, NULL, NULL);
	cr_assert_str_eq(pm, "first");
	cr_assert_str_eq(pm + 64, "second");
	done();
}

Test(pmsim, nic_acknowledges_what_it_has)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_DMA_CACHE,
	};
	struct pmsim_cfg cfg = plain;
	char *pm;

	cfg.placed_acks = false;
	pm = modelled(&cfg, &mc);
	MUST(write_dc("persist", 8, 0, &ctx[0]));
	cr_assert_eq(sim_deliver_all(), 1);
	cr_assert_eq(sim_deliver_all(), 1);
	node_expect(&a, &ctx[0], NULL);
	cr_assert_eq(pm[0], 0);
	done();
}

Test(pmsim, nic_sees_its_own_atomics)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_DMA_MEMORY,
	};
	uint64_t one = 1, old = 0;
	char *pm = modelled(&plain, &mc);

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
	done();
}

Test(pmsim, receive_buffers_in_persistent_memory)
{
	static const struct model_cfg mc = {
		.kind = MODEL_DAX_SYNC,
		.domain = MODEL_ADR,
		.place = MODEL_DMA_CACHE,
	};
	struct pmsim_cfg cfg = plain;
	char dram[8] = {0}, *pm;

	pm = modelled(&cfg, &mc);
	cr_assert_eq(fi_recv(b.ep, pm, 8, NULL, FI_ADDR_UNSPEC, NULL),
		     -FI_EINVAL);
	close_two();
	cfg.recv_in_pm = true;
	pm = modelled(&cfg, &mc);
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
	done();
}
