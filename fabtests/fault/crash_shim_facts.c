// SPDX-License-Identifier: BSD-2-Clause
/*
 * Facts of the target that weaken while a program flushes by the verbs shim:
 * the agent finds the change, and the side connection reports it. Without side
 * connection the target fails its queue pair.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crash_cells.h"
#include "crash_shim_priv.h"
#include "verbs/target_priv.h"

#define MS 1000000ull
/* The target polls this often in a second, and has noticed the change then. */
#define POLL_MS	 400
#define POLLS	 2
#define LIMIT_MS 1000

static int source_fd;
static char source[32];

/* The target's end of the side connection, as rp_target_connect() leaves it. */
static struct rp_pd dom;
static struct rp_target target;
/* The target's end of the program's queue pair. */
static struct rp_qp end;

static void source_write(uint64_t v)
{
	if (pwrite(source_fd, &v, sizeof(v), 0) != sizeof(v))
		abort();
}

void facts_setup(void)
{
	source_fd = memfd_create("facts", MFD_CLOEXEC);
	if (source_fd < 0)
		abort();
	snprintf(source, sizeof(source), "/proc/self/fd/%d", source_fd);
}

static int facts_find(struct rp_agent_host *h, struct rp_region *r,
		      struct rp_facts *facts, char *why)
{
	free(rp_watch_read(RP_SOURCE_BYTES, source, 0));
	*facts = w.weakened ? w.cell->weak_facts : w.cell->believed;
	facts->native = RP_NO;
	snprintf(why, RP_WHY_LEN, "simulated memory");
	return 0;
}

/* The method to which the operator forces the target; REFUSED: none. */
static enum rp_method target_forced(const struct rp_facts *f)
{
	const enum rp_method m = w.cell->forced;

	if (w.cell->target_forced)
		return w.cell->target_forced;
	/* The shim does not give such regions to the agent. */
	if (m == RP_METHOD_NATIVE ||
	    rp_method_best(f, RP_METHODS_BUILT).method == m)
		return RP_METHOD_REFUSED;
	return m;
}

void facts_watch(struct rp_region *r)
{
	static struct rp_agent_host_ops ops;

	ops = *w.host.host.ops;
	ops.facts = facts_find;
	w.host.host.ops = &ops;
	r->forced = target_forced(&r->facts);
	r->choice = rp_method_best(&r->facts, rp_methods_allowed(r->forced));
	source_write(0);
	rp_watch_record(&r->watch);
	facts_find(&w.host.host, r, &(struct rp_facts){0}, r->why);
	if (rp_watch_end(0, r->why))
		abort();
}

/* ibv_post_send() of the target's side queue pair. */
static int post_info(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	const struct ibv_sge *s = wr->sg_list;

	if (wr->opcode != IBV_WR_SEND)
		abort();
	w.informing = true;
	return -say_back((const void *)(uintptr_t)s->addr, s->length, NULL);
}

static int fail_end(struct rp_qp *q)
{
	say("the target fails its queue pair");
	break_off(IBV_WC_RETRY_EXC_ERR);
	oracle_notified(&w.o);
	return 0;
}

static const struct rp_qp_ops end_ops = {.fail = fail_end};

void facts_start(void)
{
	static struct ibv_context context = {.ops.post_send = post_info};
	static struct ibv_qp qp = {.context = &context};
	static struct ibv_mr mr;

	dom.agent = w.agent;
	target = (struct rp_target){
		.dom = &dom,
		.qp = &qp,
		.mr = &mr,
		.up = true,
		.tx_free = (1u << SENDS) - 1,
	};
	end = (struct rp_qp){.pub.qp = &w.qp, .ops = &end_ops};
	rp_agent_next_weakened(w.agent, &end.since);
}

/*
 * The step of the weakening matters to what is acknowledged before it, so it is
 * a choice at the start, and after each acknowledgement.
 */
bool facts_may_change(void)
{
	const bool again = w.weakened || w.offered != w.o.nmust + 1;

	w.offered = w.o.nmust + 1;
	return w.cell->weakens && !w.noticed && again;
}

static void facts_weaken(void)
{
	say("%s", w.cell->weakens);
	w.weakened = true;
	source_write(1);
	model_weaken(w.model);
	oracle_weakened(&w.o);
}

/* Without a side connection INFO cannot reach the initiator. */
static bool tells_by_failure(void)
{
	return w.has_no_side || (w.side_error && w.cell->by_initiator);
}

static void pass(unsigned int ms)
{
	w.now += ms * MS;
	do
		if (tells_by_failure())
			rp_pd_fail_if_weakened(&dom, &end);
	while (rp_agent_progress(w.agent));
}

/*
 * The target's thread polls, and then sends INFO. Nothing stays in an adapter
 * for a second.
 */
static void facts_notice(void)
{
	say("%d ms pass, in which the target polls", LIMIT_MS);
	while (model_dma_ready(w.model))
		model_dma_step(w.model, 0);
	for (int i = 0; i < POLLS; i++)
		pass(POLL_MS);
	pass(LIMIT_MS - POLLS * POLL_MS);
	w.noticed = true;
	oracle_noticed(&w.o, w.step);
	if (!tells_by_failure()) {
		if (w.side_error)
			return;
		rp_target_send_weakenings(&target);
	}
	/* A message that is missing where it is needed counts as delivered. */
	if (!w.informing && !w.cell->lasts)
		oracle_notified(&w.o);
}

void facts_change(void)
{
	if (w.weakened)
		facts_notice();
	else
		facts_weaken();
}

void facts_delivered(void)
{
	if (!w.informing)
		return;
	say("the initiator learns that the region has weakened");
	w.informing = false;
	oracle_notified(&w.o);
}

void facts_finish(void)
{
	while (!w.noticed && w.seen == CRASH_OK) {
		facts_change();
		check();
	}
	while (agent_has_work() && w.seen == CRASH_OK) {
		agent_turn();
		check();
	}
}
