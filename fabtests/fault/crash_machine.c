// SPDX-License-Identifier: BSD-2-Clause
/* The simulated machine on which the provider runs: time, facts and flushes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_inplace.h"
#include "crash_world_priv.h"
#include "fault/verdicts.h"

/* --- the host interface of the provider --- */

static uint64_t sim_now(void)
{
	return w.now;
}

static void sim_random(void *buf, size_t len)
{
	for (uint8_t *p = buf; len--; p++) {
		w.rng = w.rng * 6364136223846793005ull + 1442695040888963407ull;
		*p = (uint8_t)(w.rng >> 56);
	}
}

static bool sim_flushes(void)
{
	return w.cell->believed.native == RP_YES;
}

static int sim_facts(const void *addr, size_t len, struct rp_facts *facts)
{
	return facts_find(facts);
}

/* --- flushing --- */

/*
 * Called before the target flushes or stores. An initiator may receive a reply
 * that is in flight already now, and trust it, before the flush happens. The
 * power may then fail.
 */
static void run_other_machines(void)
{
	bool any = false;

	if (!w.begun || w.flushing || w.seen != CRASH_OK)
		return;
	look_at_wires();
	for (size_t k = 0; k < w.nwires; k++)
		for (unsigned int i = 0; i < w.wire[k].in_flight; i++)
			any |= w.wire[k].to != TARGET &&
			       pmsim->peek(w.wire[k].id, i) == PMSIM_SEND;
	if (!any || !choose(w.c, 2))
		return;
	w.flushing = true;
	say("what is on its way to initiators arrives before the flush");
	for (size_t k = 0; k < w.nwires; k++)
		if (w.wire[k].to != TARGET)
			pmsim->deliver(w.wire[k].id, w.wire[k].in_flight);
	for (unsigned int i = 0; i < w.ninits; i++)
		run(i);
	pmsim->use_machine(TARGET);
	w.seen = oracle_check(&w.o, w.model, w.mem);
	w.flushing = false;
}

static int op_sync(void *ctx, void *addr, size_t len)
{
	run_other_machines();
	if (w.begun && w.disk_failures < w.prog->disk_failures &&
	    choose(w.c, 2)) {
		w.disk_failures++;
		say("an msync fails");
		return model_msync_fails(w.model, addr, len);
	}
	return model_msync(w.model, addr, len);
}

static void op_flush(void *ctx, const void *addr, size_t len)
{
	run_other_machines();
	model_clwb(w.model, addr, len);
}

static void op_drain(void *ctx)
{
	run_other_machines();
	model_sfence(w.model);
}

void received(const struct oracle_op *op, fi_addr_t from)
{
	if (!op || w.cell->inplace != VERDICT_INPLACE_CLWB)
		return;
	op_flush(NULL, w.mem + op->off, op->len);
	op_drain(NULL);
	inplace_answer(&w.node[TARGET], op, from);
}

static void op_store8(void *ctx, uint64_t *addr, uint64_t value)
{
	run_other_machines();
	say("the target stores #%u", (uint8_t)value);
	oracle_stored(&w.o, value);
	model_store(w.model, MODEL_CPU_USER, addr, &value, sizeof(value));
	/*
	 * A program with prog->second orders its two writes: check now, because
	 * a power cut may come between this store and the next step.
	 */
	if (w.begun && w.prog->second && w.seen == CRASH_OK)
		w.seen = oracle_check(&w.o, w.model, w.mem);
}

static void op_copy(void *ctx, void *to, const void *from, size_t len)
{
	run_other_machines();
	say("the target stores %zu bytes", len);
	oracle_copied(&w.o, *(const uint8_t *)from);
	model_store(w.model, MODEL_CPU_USER, to, from, len);
	if (w.begun && w.prog->second && w.seen == CRASH_OK)
		w.seen = oracle_check(&w.o, w.model, w.mem);
}

static void op_stream(void *ctx, void *to, const void *from, size_t len)
{
	run_other_machines();
	say("the target stores %zu bytes past the caches", len);
	oracle_copied(&w.o, *(const uint8_t *)from);
	model_store_nt(w.model, to, from, len);
	if (w.begun && w.prog->second && w.seen == CRASH_OK)
		w.seen = oracle_check(&w.o, w.model, w.mem);
}

/* The CPU has executed an atomic in place. */
static void op_changed(void *ctx, void *addr, size_t len)
{
	uint8_t now[64];

	if (len > sizeof(now))
		abort();
	memcpy(now, addr, len);
	say("the target changes %zu bytes by an atomic", len);
	model_store(w.model, MODEL_CPU_USER, addr, now, len);
	oracle_changed(&w.o, now[0]);
}

/* msync() takes no time here: the agent measures a cost of 0. */
static uint64_t op_now(void *ctx)
{
	return 0;
}

static const struct rp_pmem_ops *sim_flusher(const void *addr, size_t len)
{
	static const struct rp_pmem_ops ops = {
		.sync = op_sync,
		.flush = op_flush,
		.drain = op_drain,
		.store8 = op_store8,
		.copy = op_copy,
		.stream = op_stream,
		.changed = op_changed,
		.now = op_now,
	};

	return &ops;
}

void crash_setup(unsigned int timeout_ms)
{
	char ms[16];

	snprintf(ms, sizeof(ms), "%u", timeout_ms);
	setenv("FI_OFI_RPMEM_TIMEOUT", ms, 1);
	nodes_setup();
	facts_setup();
	host_sim->now = sim_now;
	host_sim->random = sim_random;
	host_sim->facts = sim_facts;
	host_sim->flushes = sim_flushes;
	host_sim->flusher = sim_flusher;
}

void crash_teardown(void)
{
	nodes_teardown();
}
