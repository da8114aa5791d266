// SPDX-License-Identifier: BSD-2-Clause
/* Facts of the target's machine that weaken while programs run. */
#include "config.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crash_world_priv.h"

#define MS 1000000ull
/*
 * Time that a polling target may take to notice a weaker fact and withdraw the
 * class.
 */
#define LIMIT_MS 1000
/* The target polls after each such part of LIMIT_MS. */
#define STEP_MS (LIMIT_MS / 5 * 2)

static int source_fd;
static char source[32];

static void source_write(uint64_t v)
{
	if (pwrite(source_fd, &v, sizeof(v), 0) != sizeof(v))
		node_must(-FI_EIO, "pwrite", __FILE__, __LINE__);
}

void facts_setup(void)
{
	source_fd = (int)MUST(memfd_create("facts", MFD_CLOEXEC));
	snprintf(source, sizeof(source), "/proc/self/fd/%d", source_fd);
}

void facts_start(void)
{
	const enum rp_method forced = w.cell->forced;

	host_sim->method(forced ? rp_method_name(forced) : NULL);
	host_sim->source = w.cell->weakens ? source : NULL;
	if (!w.cell->weakens)
		return;
	source_write(0);
	model_foresee(w.model, &w.cell->weak);
}

int facts_find(struct rp_facts *facts)
{
	*facts = w.weakened ? w.cell->weak_facts : w.cell->believed;
	return 0;
}

/*
 * Does the target refuse a registration with the weaker facts, if this method
 * is forced?
 */
static bool is_refused(enum rp_method forced)
{
	return rp_method_best(&w.cell->weak_facts, rp_methods_allowed(forced))
		       .method == RP_METHOD_REFUSED;
}

void act_weaken(void)
{
	say("%s", w.cell->weakens);
	w.weakened = true;
	source_write(1);
	/*
	 * A registration with a forced method that is no longer valid fails. Do
	 * not force it.
	 */
	if (is_refused(w.cell->forced))
		host_sim->method(NULL);
	w.unregistrable = is_refused(RP_METHOD_REFUSED);
	model_weaken(w.model);
	oracle_weakened(&w.o);
}

static void pass(unsigned int ms)
{
	w.now += ms * MS;
	dma_choices(false);
	run(TARGET);
}

/* Let all requests arrive just before the poll in which the target notices. */
static void requests_arrive(void)
{
	say("all requests arrive when the target believes the change");
	look_at_wires();
	for (size_t k = 0; k < w.nwires; k++)
		if (w.wire[k].to == TARGET)
			pmsim->deliver(w.wire[k].id, w.wire[k].in_flight);
}

void act_notice(void)
{
	bool any = false;

	say("%d ms pass, in which the target polls", LIMIT_MS);
	pass(STEP_MS);
	look_at_wires();
	for (size_t k = 0; k < w.nwires; k++)
		any |= w.wire[k].to == TARGET;
	if (any && choose(w.c, 2))
		requests_arrive();
	pass(STEP_MS);
	pass(LIMIT_MS - 2 * STEP_MS);
	w.noticed = true;
	oracle_noticed(&w.o, w.step);
}

void facts_registered(void)
{
	if (!w.weakened || w.noticed)
		return;
	w.noticed = true;
	oracle_registered(&w.o, w.step);
}

void facts_finish(void)
{
	if (!w.weakened)
		act_weaken();
	if (!w.noticed && !w.dead)
		act_notice();
}
