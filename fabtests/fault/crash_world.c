// SPDX-License-Identifier: BSD-2-Clause
/*
 * One run: takes actions that choose() selects among all possible ones, and
 * lets the oracle check the memory after each.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_inplace.h"
#include "core/wire.h"
#include "crash_world_priv.h"
#include "fabtests/commit.h"
#include "rpmem/ext.h"
#include "fault/verdicts.h"

#define MS	  1000000ull
#define PUMP_MAX  100
#define TICKS_MAX 60
/*
 * Simulated time between two polls: the provider reads connection events at
 * most once in this time.
 */
#define LOOKED_AT (2 * MS)
/* A stop of the target, longer than FI_OFI_RPMEM_TIMEOUT. */
#define STOPPED (1500 * MS)
/* With cell->apart: the longest durable write that a request carries. */
#define APART_MAX 8

struct world w;

void say(const char *fmt, ...)
{
	va_list ap;

	if (!w.trace)
		return;
	fprintf(stderr, "%4u  ", w.step);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

const char *machine_name(unsigned int machine)
{
	static const char *const names[MACHINES] = {"A", "B", "target"};

	return names[machine];
}

/* --- the target --- */

static void target_register(struct node *t)
{
	node_register(t, w.mem, MODEL_PAGE);
	w.key = fi_mr_key(t->mr);
	facts_registered();
}

static void target_open(const void *name)
{
	struct node *t = &w.node[TARGET];

	if (w.cell->conn) {
		size_t len = sizeof(w.target_name);

		node_listen(t, TARGET, name);
		MUST(fi_getname(&t->pep->fid, w.target_name, &len));
	} else {
		node_open(t, TARGET, name);
		node_name(t, w.target_name);
	}
	target_register(t);
}

/* --- reading queues --- */

static void record_end(struct oracle_op *op, bool ok, int err)
{
	if (!op)
		return;
	say("%s reads an entry: %s %s", machine_name(op->init),
	    oracle_op_name(op), ok ? "ok" : fi_strerror(err));
	oracle_complete(&w.o, op, ok ? 0 : err, w.step);
	w.st->acked_weak += ok && oracle_is_commit(op) && w.noticed;
	if (ok && oracle_is_commit(op))
		w.st->acked++;
	else if (oracle_is_commit(op))
		w.st->failed++;
}

/*
 * Does the target's program poll? It need not for messages that stay where the
 * NIC placed them, unless it must flush them.
 */
static bool target_looks(void)
{
	return !w.cell->inplace || w.cell->inplace == VERDICT_INPLACE_CLWB;
}

bool waits_for(unsigned int machine)
{
	if (machine == TARGET && !target_looks())
		return false;
	return pmsim->arrived(machine) ||
	       pmsim->events(machine) > w.ignored[machine];
}

void run(unsigned int machine)
{
	struct node *n = &w.node[machine];
	struct fi_cq_err_entry err;
	struct fi_cq_entry e[8];
	fi_addr_t from[8];
	ssize_t got;

	if (machine == TARGET)
		pmsim->execute(TARGET);
	if (machine == TARGET && (w.dead || !target_looks()))
		return;
	pmsim->use_machine(machine);
	/*
	 * Do not read connection events while the target flushes
	 * (run_other_machines()): the target may be within a read of its own
	 * events, and all machines share one fabric.
	 */
	if (w.cell->conn && !w.flushing)
		look_at_events(machine);
	if (w.cell->inplace && machine != TARGET)
		MUST(inplace_fence(n));
	for (int look = 0; look < 2;) {
		w.now += LOOKED_AT;
		got = fi_cq_readfrom(n->cq, e, 8, from);
		if (got == -FI_EAGAIN) {
			look++;
			continue;
		}
		if (got == -FI_EAVAIL) {
			memset(&err, 0, sizeof(err));
			MUST(fi_cq_readerr(n->cq, &err, 0));
			if (machine != TARGET)
				record_end(err.op_context, false, err.err);
			continue;
		}
		MUST(got);
		for (ssize_t i = 0; i < got; i++)
			if (machine != TARGET)
				record_end(e[i].op_context, true, 0);
			else if (w.cell->inplace)
				received(e[i].op_context, from[i]);
	}
	w.ignored[machine] = pmsim->events(machine);
	if (machine != TARGET)
		w.stalled[machine] = false;
}

void look_at_wires(void)
{
	w.nwires = pmsim->wires(w.wire, WIRES);
	if (w.nwires > WIRES)
		abort();
}

/* --- a run begins and ends --- */

static bool any_waits(void)
{
	bool any = waits_for(TARGET);

	for (unsigned int m = 0; m < w.ninits; m++)
		any |= waits_for(m);
	return any;
}

/* Deliver all messages and let every program poll until nothing changes. */
static void deliver_all(void)
{
	for (int i = 0; i < PUMP_MAX; i++) {
		look_at_wires();
		for (size_t k = 0; k < w.nwires; k++)
			pmsim->deliver(w.wire[k].id, w.wire[k].in_flight);
		while (model_dma_ready(w.model))
			model_dma_step(w.model, 0);
		for (unsigned int m = 0; m < w.ninits; m++)
			run(m);
		run(TARGET);
		look_at_wires();
		if (!w.nwires && !any_waits())
			return;
	}
	node_must(-FI_EBUSY, "the first commit never ends", __FILE__, __LINE__);
}

/*
 * Post a commit of one range, or of two (count) that begin CRASH_APART apart.
 */
static ssize_t post_commit(struct node *n, unsigned int off, unsigned int len,
			   size_t count, const struct fi_rpmem_then *then,
			   void *context)
{
	const uint64_t at = w.addr + off, key = w.known[n->machine];
	struct fi_rma_iov ranges[] = {
		{at, len, key},
		{at + CRASH_APART, len, key},
	};

	return commit_post(n->ep, ranges, count, n->peer, FI_RPMEM_DURABLE,
			   rp_class_encode(w.cell->against), then, context);
}

/*
 * Post a write or a commit of a few bytes behind the programs' ones; retry
 * while the private connection is set up.
 */
static void warm_post(struct node *n, bool commit)
{
	static const uint64_t any = 0x0101010101010101ull;
	const unsigned int at = CRASH_WARM + 64 * n->machine;
	ssize_t ret;

	for (int i = 0; i < PUMP_MAX; i++) {
		pmsim->use_machine(n->machine);
		ret = commit ? post_commit(n, at, sizeof(any), 1, NULL, NULL)
			     : fi_write(n->ep, &any, sizeof(any), NULL, n->peer,
					w.addr + at, w.known[n->machine], NULL);
		if (ret != -FI_EAGAIN)
			break;
		deliver_all();
	}
	MUST(ret);
}

static void warm_up(void)
{
	for (unsigned int i = 0; i < w.ninits; i++) {
		warm_post(&w.node[i], false);
		warm_post(&w.node[i], true);
	}
	deliver_all();
	for (unsigned int i = 0; i < w.ninits; i++)
		if (!pmsim->cut(i, PMSIM_CUT_NOT))
			node_must(-FI_ENOTCONN, "a private connection",
				  __FILE__, __LINE__);
}

static void open_initiator(unsigned int i)
{
	struct node *n = &w.node[i];

	w.known[i] = w.key;
	if (!w.cell->conn) {
		node_open(n, i, NULL);
		node_peer(n, w.target_name);
		return;
	}
	node_begin(n, i);
	node_connect(n, w.target_name);
	run(TARGET);
	run(i);
}

/*
 * Store zeros to the words of atomics before the run: an atomic changes memory
 * outside the model, which must know the previous value.
 */
static void pretouch_words(void)
{
	static const uint64_t zero;

	for (unsigned int i = 0; i < w.ninits; i++)
		for (unsigned int k = 0; k < w.prog->n[i]; k++)
			if (w.prog->op[i][k].kind == CRASH_ATOMIC)
				model_store(w.model, MODEL_CPU_USER,
					    w.mem + w.prog->op[i][k].off, &zero,
					    sizeof(zero));
}

static void open_all(void)
{
	static struct model_cfg truth;
	static struct model *model;
	static uint8_t *mem;

	nodes_are(w.cell->inplace ? NODES_BARE
		  : w.cell->conn  ? NODES_CONN
				  : NODES_OURS);
	/*
	 * Reuse the machines of the previous run if their hardware is the same:
	 * making new ones is slow.
	 */
	if (!nodes_reset(
		    &w.cell->fabric,
		    model && !memcmp(&truth, &w.cell->truth, sizeof(truth)))) {
		for (unsigned int m = 0; m < MACHINES; m++)
			pmsim->machine(m == TARGET ? &w.cell->truth : NULL);
		memcpy(&truth, &w.cell->truth, sizeof(truth));
		model = pmsim->model(TARGET);
		mem = model_alloc(model, MODEL_PAGE);
	}
	w.model = model;
	w.mem = mem;
	w.addr = w.cell->fabric.virt_addr ? (uintptr_t)w.mem : 0;
	facts_start();
	pretouch_words();
	host_sim->inline_max(w.cell->apart ? APART_MAX : RP_WIRE_MAX_STORE);
	host_sim->required(w.cell->against);
	target_open(NULL);
	for (unsigned int i = 0; i < w.ninits; i++)
		open_initiator(i);
	if (w.cell->inplace) {
		/*
		 * The target replies to messages: insert the initiators'
		 * addresses.
		 */
		for (unsigned int i = 0; i < w.ninits; i++) {
			uint8_t name[NODE_NAME];

			node_name(&w.node[i], name);
			node_peer(&w.node[TARGET], name);
		}
		inplace_start(w.cell, &w.o, &w.node[TARGET], w.mem, w.node);
	} else if (!w.prog->cold) {
		warm_up();
	}
}

static void close_all(void)
{
	for (unsigned int i = 0; i < w.ninits; i++)
		node_close(&w.node[i]);
	if (!w.dead)
		node_close(&w.node[TARGET]);
}

/* --- actions --- */

bool may_post(unsigned int i)
{
	return !w.stalled[i] && oracle_may_post(&w.o, i);
}

static ssize_t post_write(struct node *n, const struct oracle_op *op)
{
	const uint64_t to = w.addr + op->off, key = w.known[n->machine];
	uint64_t flags = FI_COMMIT_COMPLETE | FI_COMPLETION;
	struct fi_rma_iov rma = {to, op->len, key};
	struct iovec iov = {(void *)op->bytes, op->len};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = n->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = (void *)op,
	};

	if (op->at == CRASH_WITH_DATA)
		flags |= FI_REMOTE_CQ_DATA;
	if (op->kind == CRASH_WRITE_COMMIT)
		return fi_writemsg(n->ep, &msg, flags);
	if (w.cell->data)
		return fi_writedata(n->ep, op->bytes, op->len, NULL, 1, n->peer,
				    to, key, (void *)op);
	return fi_write(n->ep, op->bytes, op->len, NULL, n->peer, to, key,
			(void *)op);
}

static ssize_t post_atomic(struct node *n, const struct oracle_op *op)
{
	static const uint64_t zero; /* the word before the first operation */
	static uint64_t fetched;
	const struct fi_ioc compare = {(void *)&zero, 1};
	struct fi_rma_ioc rma = {w.addr + op->off, 1, w.known[n->machine]};
	struct fi_ioc ioc = {(void *)op->bytes, 1}, result = {&fetched, 1};
	const uint64_t flags = FI_COMMIT_COMPLETE | FI_COMPLETION;
	const struct fi_msg_atomic msg = {
		.msg_iov = &ioc,
		.iov_count = 1,
		.addr = n->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.datatype = FI_UINT64,
		.op = op->at == CRASH_CSWAP ? FI_CSWAP : FI_ATOMIC_WRITE,
		.context = (void *)op,
	};

	if (op->at == CRASH_FETCH)
		return fi_fetch_atomicmsg(n->ep, &msg, &result, NULL, 1, flags);
	if (op->at == CRASH_CSWAP)
		return fi_compare_atomicmsg(n->ep, &msg, &compare, NULL, 1,
					    &result, NULL, 1, flags);
	return fi_atomicmsg(n->ep, &msg, flags);
}

static ssize_t post_zero(struct node *n, const struct oracle_op *op)
{
	const struct fi_rma_iov rma = {w.addr + op->off, op->len,
				       w.known[n->machine]};

	return zero_post(n->ep, &rma, 1, n->peer,
			 op->kind == CRASH_ZERO ? FI_RPMEM_VISIBLE
						: FI_RPMEM_DURABLE,
			 rp_class_encode(w.cell->against), (void *)op);
}

static ssize_t post_op(struct node *n, struct oracle_op *op)
{
	struct fi_rpmem_then then = {
		.key = w.known[n->machine],
		.addr = w.addr + op->at,
		.value = op->id * 0x0101010101010101ull,
	};

	if (w.cell->inplace)
		return inplace_post(
			w.cell, n, op, w.addr, w.known[n->machine],
			w.cell->inplace == VERDICT_INPLACE_FENCE &&
				w.prog->second &&
				oracle_next_is_write(&w.o, n->machine) &&
				choose(w.c, 2));
	switch (op->kind) {
	case CRASH_ZERO:
	case CRASH_ZERO_COMMIT:
		return post_zero(n, op);
	case CRASH_COMMIT:
		return post_commit(n, op->off, op->len, 1, NULL, op);
	case CRASH_SCATTER:
		return post_commit(n, op->off, op->len, 2, NULL, op);
	case CRASH_THEN:
		return post_commit(n, op->off, op->len, 1, &then, op);
	case CRASH_ATOMIC:
		return post_atomic(n, op);
	default:
		return post_write(n, op);
	}
}

static void act_post(unsigned int i)
{
	bool query = oracle_next_is_query(&w.o, i);
	struct oracle_op *op = oracle_next(&w.o, i);
	struct node *n = &w.node[i];
	ssize_t ret;

	if (query)
		w.known[i] = w.key;
	if (!op)
		return;
	pmsim->use_machine(i);
	ret = post_op(n, op);
	say("%s posts %s%s%s", machine_name(i), oracle_op_name(op),
	    ret ? ": " : "", ret ? fi_strerror((int)-ret) : "");
	if (ret == -FI_EAGAIN) {
		w.stalled[i] = true;
		oracle_unposted(&w.o, op);
		return;
	}
	if (ret == -FI_ENOTCONN) {
		w.lost[i] |= w.cell->conn;
		oracle_refused(op);
		return;
	}
	oracle_posted(&w.o, op, w.known[i], w.step);
	if (ret)
		record_end(op, false, (int)-ret);
}

void dma_choices(bool at_least_one)
{
	size_t n;

	while ((n = model_dma_ready(w.model))) {
		unsigned int pick =
			choose(w.c, (unsigned int)n + !at_least_one);

		if (!at_least_one && !pick)
			return;
		model_dma_step(w.model, at_least_one ? pick : pick - 1);
		say("one piece of DMA gets to memory");
		at_least_one = false;
	}
}

/*
 * Deliver the n oldest messages in flight, or, if the base keeps no order, n of
 * them that choose() selects.
 */
static void deliver_messages(const struct pmsim_wire *x, unsigned int n)
{
	unsigned int left = x->in_flight, pick;

	if (w.cell->fabric.ordered) {
		pmsim->deliver(x->id, n);
		return;
	}
	for (; n; n--, left--) {
		pick = choose(w.c, left);
		pmsim->overtake(x->id, pick);
		if (pick)
			say("number %u arrives first", pick);
		pmsim->deliver(x->id, 1);
	}
}

/*
 * Deliver messages to one machine, and let its program poll. A program that
 * orders two writes is checked before the poll, too.
 */
static enum crash_result act_run(const struct act *a)
{
	enum crash_result ret = CRASH_OK;
	bool any = false;

	for (size_t k = 0; k < w.nwires; k++) {
		if (!a->arrive[k])
			continue;
		say("%u of %u arrive at %s from %s", a->arrive[k],
		    w.wire[k].in_flight, machine_name(a->machine),
		    machine_name(w.wire[k].from));
		deliver_messages(&w.wire[k], a->arrive[k]);
		any = true;
	}
	/*
	 * oracle_check() considers all DMA in flight as placed or not. So steps
	 * of DMA are chosen only when somebody observes them: the polling
	 * program, a NIC that acknowledges placement, or the check of "a before
	 * b", which compares bytes present together.
	 */
	if (a->machine == TARGET &&
	    (!any || waits_for(TARGET) || w.prog->second))
		dma_choices(!any && !waits_for(TARGET));
	if (a->machine == TARGET && w.prog->second)
		ret = oracle_check(&w.o, w.model, w.mem);
	if (ret != CRASH_OK)
		return ret;
	say("%s runs", machine_name(a->machine));
	run(a->machine);
	return w.seen;
}

/*
 * Cut initiator i's private connection at one end or both. Operations in flight
 * may still arrive until the target has closed its end.
 */
static void act_cut(unsigned int i)
{
	static const char *const whom[] = {"", ", reported to the target, too",
					   ", reported to the target alone"};
	unsigned int informed = choose(w.c, 3);

	say("%s's private connection is cut%s", machine_name(i),
	    whom[informed]);
	pmsim->cut(informed == 2 ? TARGET : i,
		   informed == 1 ? PMSIM_CUT_BOTH : PMSIM_CUT_HERE);
	w.cuts++;
	w.st->breaks++;
	/* The initiator learns of the cut now, or later by ACT_TELL. */
	if (w.prog->late && !choose(w.c, 2))
		return;
	pmsim->report_failures(i);
	run(i);
}

/*
 * Let the timeout of initiator i pass without a step of the target. Operations
 * in flight may arrive afterwards.
 */
static void act_stop(unsigned int i)
{
	say("the target stops, for longer than %s waits", machine_name(i));
	w.stops++;
	w.now += STOPPED;
	run(i);
}

static void act_remove(unsigned int i)
{
	struct node *n = &w.node[i];

	say("%s removes the target's address, and inserts it again",
	    machine_name(i));
	w.removes++;
	pmsim->use_machine(i);
	MUST(fi_av_remove(n->av, &n->peer, 1, 0));
	node_peer(n, w.target_name);
	run(i);
}

static void act_restart(void)
{
	uint8_t name[NODE_NAME];
	bool power = w.cell->against == RP_CLASS_POWER && !w.cell->weakens &&
		     choose(w.c, 2);

	dma_choices(false);
	say("the target %s", power ? "loses power, which comes back"
				   : "is killed and started again");
	/* NULL: the cut loses every byte that it may lose. */
	if (power)
		model_cut(w.model, NULL, NULL);
	memcpy(name, w.target_name, sizeof(name));
	pmsim->kill(TARGET);
	node_close(&w.node[TARGET]);
	target_open(name);
	w.restarts++;
	w.st->restarts++;
}

static void act_rekey(void)
{
	struct node *t = &w.node[TARGET];

	dma_choices(false);
	say("the target closes its key, and registers again");
	pmsim->use_machine(TARGET);
	MUST(fi_close(&t->mr->fid));
	target_register(t);
	w.rekeys++;
}

static void act_death(void)
{
	say("the target is killed");
	pmsim->kill(TARGET);
	node_close(&w.node[TARGET]);
	w.dead = true;
}

static void act_tell(unsigned int i)
{
	say("%s learns of the cut", machine_name(i));
	pmsim->report_failures(i);
	run(i);
}

static void act_tick(void)
{
	w.now += 300 * MS;
	w.ticks++;
	if (w.step != w.last_tick + 1)
		say("300 ms pass, with nothing else to do");
	w.last_tick = w.step;
	for (unsigned int m = 0; m < w.ninits; m++)
		run(m);
	run(TARGET);
}

/* --- one action after the other --- */

/*
 * Choose an action and take it. Returns false if there is none; *how is then
 * CRASH_PRUNED if other runs have taken all of them.
 */
static bool take_action(enum crash_result *how)
{
	struct act acts[64];
	size_t n = all_actions(acts, 64);
	uint64_t candidates = 0;
	unsigned int pick;

	if (!n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!in_sleep_set(&acts[i]))
			candidates |= 1ull << i;
	if (!candidates) {
		*how = CRASH_PRUNED;
		return false;
	}
	pick = n == 1 ? 0 : choose_of(w.c, candidates);
	if (w.c->mode == CHOICE_ALL)
		for (unsigned int i = 0; i < pick; i++)
			if ((candidates >> i & 1) && w.nsleep_set < SLEEPING)
				w.sleep_set[w.nsleep_set++] = acts[i];
	wake_dependent(&acts[pick]);
	w.step++;
	w.st->steps++;
	switch (acts[pick].kind) {
	case ACT_RUN:
		*how = act_run(&acts[pick]);
		break;
	case ACT_POST:
		act_post(acts[pick].machine);
		break;
	case ACT_STOP:
		act_stop(acts[pick].machine);
		break;
	case ACT_REMOVE:
		act_remove(acts[pick].machine);
		break;
	case ACT_CUT:
		act_cut(acts[pick].machine);
		break;
	case ACT_CONNECT:
		w.removes += !w.lost[acts[pick].machine];
		connect_again(acts[pick].machine);
		break;
	case ACT_RESTART:
		act_restart();
		break;
	case ACT_REKEY:
		act_rekey();
		break;
	case ACT_DEATH:
		act_death();
		break;
	case ACT_TELL:
		act_tell(acts[pick].machine);
		break;
	case ACT_TICK:
		act_tick();
		break;
	case ACT_WEAKEN:
		act_weaken();
		break;
	case ACT_NOTICE:
		act_notice();
		break;
	}
	return true;
}

/*
 * After all operations have completed, deliver what is still in flight: a late
 * part of a failed operation must not overwrite bytes committed since.
 */
static enum crash_result arrive_late(void)
{
	enum crash_result ret = CRASH_OK;
	bool any = true;

	if (w.dead || !(w.stops || w.removes || w.cuts || w.weakened))
		return ret;
	while (any && ret == CRASH_OK) {
		any = false;
		look_at_wires();
		for (size_t k = 0; k < w.nwires; k++) {
			if (w.wire[k].to != TARGET || !w.wire[k].in_flight)
				continue;
			say("%u arrive late at target from %s",
			    w.wire[k].in_flight, machine_name(w.wire[k].from));
			pmsim->deliver(w.wire[k].id, w.wire[k].in_flight);
			any = true;
		}
		while (model_dma_ready(w.model))
			model_dma_step(w.model, 0);
		run(TARGET);
		ret = oracle_check(&w.o, w.model, w.mem);
	}
	return ret;
}

enum crash_result crash_run(const struct crash_cell *cell,
			    const struct crash_prog *prog, struct choices *c,
			    enum crash_trace trace, struct crash_stats *st,
			    char *why)
{
	enum crash_result ret = CRASH_OK;

	memset(&w, 0, sizeof(w));
	w.cell = cell;
	w.prog = prog;
	w.c = c;
	w.st = st;
	w.now = 1000 * MS;
	w.rng = 1;
	w.ninits = prog->n[1] ? 2 : 1;
	oracle_start(&w.o, cell, prog, why);
	open_all();
	w.begun = true;
	w.trace = trace != CRASH_SILENT;
	pmsim->trace(trace == CRASH_MESSAGES);
	st->runs++;
	while (take_action(&ret) && ret == CRASH_OK) {
		ret = oracle_check(&w.o, w.model, w.mem);
		if (ret == CRASH_OK && oracle_finished(&w.o)) {
			ret = arrive_late();
			if (ret != CRASH_OK || !w.cell->weakens)
				break;
			facts_finish();
			ret = oracle_check(&w.o, w.model, w.mem);
			break;
		}
		if (ret != CRASH_OK)
			break;
		if (w.ticks > TICKS_MAX) {
			snprintf(why, CRASH_WHY, "an operation never ends");
			ret = CRASH_WRONG;
			break;
		}
	}
	if (ret != CRASH_OK && ret != CRASH_PRUNED)
		say("%s", why);
	pmsim->trace(false);
	w.trace = false;
	close_all();
	return ret;
}
