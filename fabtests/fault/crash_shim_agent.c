// SPDX-License-Identifier: BSD-2-Clause
/*
 * The target's agent in a run of the verbs shim, and the agent's side
 * connection.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_shim_priv.h"

int say_back(const void *msg, size_t len, void *arg)
{
	if (w.nin == QUEUE || len > RP_SIDE_RECV_LEN)
		return -EMSGSIZE;
	w.in[w.nin].len = len;
	memcpy(w.in[w.nin++].bytes, msg, len);
	return 0;
}

static void deliver_answers(void)
{
	while (w.nin && w.nlisten) {
		memcpy(w.listen[0].buf, w.in[0].bytes, w.in[0].len);
		complete(w.listen[0].wr_id, SHIM_SIDE, IBV_WC_RECV, w.in[0].len,
			 IBV_WC_SUCCESS);
		memmove(w.in, w.in + 1, --w.nin * sizeof(w.in[0]));
		memmove(w.listen, w.listen + 1,
			--w.nlisten * sizeof(w.listen[0]));
	}
	if (!w.nin)
		facts_delivered();
	look();
}

/*
 * Called before each flush or store of the agent: a reply in flight may arrive
 * first, and the power may fail.
 */
static void run_other_machines(void)
{
	if (!w.begun || w.meanwhile || w.seen != CRASH_OK)
		return;
	w.meanwhile = true;
	if (w.nin && choose(w.c, 2)) {
		say("the reply arrives before the flush");
		deliver_answers();
	}
	check();
	w.meanwhile = false;
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
	say("the agent writes back [%zu, %zu)",
	    (size_t)((const uint8_t *)addr - w.mem),
	    (size_t)((const uint8_t *)addr - w.mem) + len);
	model_clwb(w.model, addr, len);
}

static void op_drain(void *ctx)
{
	run_other_machines();
	say("the agent drains");
	model_sfence(w.model);
}

static void op_store8(void *ctx, uint64_t *addr, uint64_t value)
{
	run_other_machines();
	say("the agent stores #%u", (uint8_t)value);
	oracle_stored(&w.o, value);
	model_store(w.model, MODEL_CPU_USER, addr, &value, sizeof(value));
	check();
}

/* Store the 8 bytes of an ordered store (THEN), or the bytes of a write. */
static void op_copy(void *ctx, void *to, const void *from, size_t len)
{
	const uint8_t *first = from;
	uint64_t value;

	if (oracle_is_then(&w.o, *first) && len == sizeof(value)) {
		memcpy(&value, from, sizeof(value));
		op_store8(ctx, to, value);
		return;
	}
	run_other_machines();
	say("the agent stores %zu bytes of #%u", len, *first);
	model_store(w.model, MODEL_CPU_USER, to, from, len);
	check();
}

static void op_stream(void *ctx, void *to, const void *from, size_t len)
{
	op_copy(ctx, to, from, len);
	op_flush(ctx, to, len);
}

static uint64_t op_now(void *ctx)
{
	return 0;
}

/* Start the agent, for the region and the method that the shim has chosen. */
void agent_start(void)
{
	const struct rp_desc d = shim_desc(&w.cell->believed, w.cell->forced);
	struct rp_region *r = &w.region;

	if (side_host_init(&w.host, say_back, NULL, &w.now))
		abort();
	w.agent = w.host.agent;
	w.pmem = (struct rp_pmem_ops){
		.sync = op_sync,
		.flush = op_flush,
		.drain = op_drain,
		.store8 = op_store8,
		.copy = op_copy,
		.stream = op_stream,
		.now = op_now,
	};
	*r = (struct rp_region){
		.base = w.mem,
		.addr = SHIM_AT,
		.len = MODEL_PAGE,
		.writable = true,
		.facts = w.cell->believed,
		.key = d.key,
	};
	r->facts.agent = true;
	r->facts.native = RP_NO;
	r->choice = w.cell->no_atomic
			    ? rp_method_best(&r->facts, RP_METHODS_BUILT)
			    : rp_method_choose(&r->facts, w.cell->against,
					       RP_METHOD_BIT(w.cell->forced));
	if (w.cell->weakens)
		facts_watch(r);
	if (rp_pmem_new(r->base, r->len,
			rp_method_by_agent(&r->facts, r->choice).method, NULL,
			&w.pmem, &r->pmem) ||
	    rp_agent_region_add(w.agent, r))
		abort();
	rp_ring_init(&w.ring, w.ring_in, NULL);
	w.side_end.ring_addr = SHIM_RING;
	w.side_end.ring_rkey = SHIM_RING_RKEY;
	w.has_no_side = w.cell->weakens && w.cell->by_initiator &&
			!w.cell->no_atomic && choose(w.c, 2);
	if (!w.has_no_side &&
	    rp_defer_begin(&w.q, &w.side_end, 0xc00c1e, SHIM_SIDE, TIMEOUT))
		abort();
	if (w.cell->weakens)
		facts_start();
}

void agent_end(void)
{
	rp_agent_region_del(w.agent, &w.region);
	rp_watch_free(&w.region.watch);
	rp_pmem_delete(w.region.pmem);
	rp_agent_delete(w.agent);
	w.agent = NULL;
}

/*
 * Does the ring hold a message for a polling agent? Looks in a copy, and takes
 * none.
 */
static bool ring_has(void)
{
	struct rp_ring look = w.ring;
	uint8_t msg[RP_RING_MSG];

	return w.agent && !w.parked && !w.side_error &&
	       rp_ring_take(&look, msg);
}

bool agent_has_work(void)
{
	return w.nout || w.nin || ring_has() ||
	       (w.agent && rp_agent_backlog(w.agent));
}

bool agent_may_sleep(void)
{
	return w.begun && w.agent && w.parks < 1 && !w.parked &&
	       !w.side_error && !agent_has_work() &&
	       w.side_end.deferred.polling;
}

static void say_signal(enum rp_msg_type type)
{
	uint8_t msg[16];

	say_back(msg, (size_t)rp_wire_put_signal(msg, sizeof(msg), type), NULL);
}

void agent_sleep(void)
{
	w.parks++;
	w.parked = true;
	say_signal(RP_MSG_IDLE);
}

static void empty_ring(void)
{
	uint8_t msg[RP_RING_MSG];
	size_t len;

	while ((len = rp_ring_take(&w.ring, msg))) {
		say("the agent finds a request in the ring");
		side_host_received(&w.host, msg, len);
	}
}

void agent_wake(void)
{
	w.parked = false;
	say_signal(RP_MSG_POLLING);
}

static void take_message(const struct msg *m)
{
	if (side_host_is(m->bytes, m->len, RP_MSG_DOORBELL))
		empty_ring();
	else
		side_host_received(&w.host, m->bytes, m->len);
}

void agent_turn(void)
{
	struct msg m;

	if (w.nout && !w.side_error && w.cuts < w.prog->cuts &&
	    choose(w.c, 2)) {
		say("the side is lost");
		w.cuts++;
		w.side_error = true;
	}
	while (w.nout) {
		m = w.out[0];
		memmove(w.out, w.out + 1, --w.nout * sizeof(m));
		complete(m.wr_id, SHIM_SIDE, IBV_WC_SEND, m.len,
			 w.side_error ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
		if (!w.side_error)
			take_message(&m);
	}
	if (!w.parked && !w.side_error)
		empty_ring();
	while (rp_agent_progress(w.agent))
		;
	if (w.side_error)
		w.nin = 0;
	deliver_answers();
}
