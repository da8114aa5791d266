// SPDX-License-Identifier: BSD-2-Clause
/* The test's interface: machines, wires, breaks (struct pmsim_ops). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pmsim/pmsim_int.h"

struct ps_sim ps_sim = {.cfg = {.ordered = true, .placed_acks = true}};

const char *ps_type_name(enum pmsim_msg_type type)
{
	static const char *const names[] = {
		[PMSIM_WRITE] = "write",       [PMSIM_READ] = "read",
		[PMSIM_ATOMIC] = "atomic",     [PMSIM_SEND] = "send",
		[PMSIM_TSEND] = "tsend",       [PMSIM_ACK] = "ack",
		[PMSIM_RESPONSE] = "response", [PMSIM_ERROR] = "error",
	};

	return names[type];
}

void ps_trace(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("pmsim: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
}

/* Abort at an invalid call: such a test has no result. */
static void bad_call(const char *what)
{
	fprintf(stderr, "pmsim: %s\n", what);
	abort();
}

static struct ps_machine *machine_at(unsigned int i)
{
	if (i >= ps_sim.nmachines)
		bad_call("no such machine");
	return ps_sim.machines[i];
}

static struct ps_wire *wire_at(unsigned int id)
{
	struct ps_wire *w = ps_wire_find(id);

	if (!w)
		bad_call("no such wire");
	return w;
}

/* Drop acknowledgments that wait for placement. */
static void drop_unplaced(struct ps_machine *m)
{
	struct ps_msg *msg;

	while ((msg = TAILQ_FIRST(&m->unplaced))) {
		TAILQ_REMOVE(&m->unplaced, msg, link);
		free(msg);
	}
}

static void drop_reads(struct ps_machine *m)
{
	struct ps_msg *msg;

	while ((msg = TAILQ_FIRST(&m->reads))) {
		TAILQ_REMOVE(&m->reads, msg, link);
		free(msg);
	}
}

static void free_machines(void)
{
	for (unsigned int i = 0; i < ps_sim.nmachines; i++) {
		if (ps_sim.machines[i]->model)
			model_delete(ps_sim.machines[i]->model);
		free(ps_sim.machines[i]);
	}
	free(ps_sim.machines);
	ps_sim.machines = NULL;
	ps_sim.nmachines = 0;
}

static void ctl_reset(const struct pmsim_cfg *cfg)
{
	if (ps_sim.ndoms)
		bad_call("reset with a domain open");
	ps_wires_reset();
	for (unsigned int i = 0; i < ps_sim.nmachines; i++) {
		struct ps_machine *m = ps_sim.machines[i];

		/* Wire ids are reused: drop old messages that need replies. */
		drop_unplaced(m);
		drop_reads(m);
		m->last_key = m->free_key = 0;
		m->doorbells = 0;
		if (m->model)
			model_reset(m->model);
	}
	if (cfg) {
		free_machines();
		ps_sim.cfg = *cfg;
	}
	ps_sim.current = 0;
	ps_sim.last_number = 0;
	ps_sim.last_key = 0;
	ps_sim.posts = 0;
	ps_sim.clock = 0;
	memset(ps_sim.count, 0, sizeof(ps_sim.count));
}

static unsigned int ctl_machine(const struct model_cfg *cfg)
{
	struct ps_machine **grown, *m = calloc(1, sizeof(*m));

	grown = realloc(ps_sim.machines,
			(ps_sim.nmachines + 1) * sizeof(*grown));
	if (!m || !grown)
		bad_call("out of memory");
	ps_sim.machines = grown;
	m->id = ps_sim.nmachines;
	if (cfg) {
		m->model = model_new(cfg);
		if (!m->model)
			bad_call("out of memory");
		m->place = cfg->place;
		m->dma = cfg->place == MODEL_DMA_CACHE ||
			 cfg->place == MODEL_DMA_MEMORY;
		if (m->dma) /* for messages that the CPU stores */
			m->place = MODEL_CPU_USER;
	}
	TAILQ_INIT(&m->arrived);
	TAILQ_INIT(&m->unplaced);
	TAILQ_INIT(&m->reads);
	TAILQ_INIT(&m->due);
	LIST_INIT(&m->doms);
	LIST_INIT(&m->peps);
	LIST_INIT(&m->eqs);
	ps_sim.machines[ps_sim.nmachines++] = m;
	return m->id;
}

/* The machine for new domains; by default one without a model. */
struct ps_machine *ps_machine_current(void)
{
	if (!ps_sim.nmachines)
		ctl_machine(NULL);
	return machine_at(ps_sim.current);
}

static struct model *ctl_model(unsigned int machine)
{
	return machine_at(machine)->model;
}

static void ctl_use_machine(unsigned int machine)
{
	ps_sim.current = machine_at(machine)->id;
}

static void ctl_kill(unsigned int machine)
{
	struct ps_machine *m = machine_at(machine);
	struct ps_dom *dom;
	struct ps_ep *ep;

	PS_TRACE("machine %u: its process dies", machine);
	while ((dom = LIST_FIRST(&m->doms))) {
		LIST_FOREACH (ep, &dom->eps, link) {
			ps_ep_teardown(ep);
			if (ep->connected)
				continue;
			/* Drop completions of the killed process. */
			ps_cq_clear(ep->tx_cq);
			ps_cq_clear(ep->rx_cq);
		}
		dom->dead = true;
		LIST_REMOVE(dom, link);
	}
	ps_conns_kill(m);
	drop_unplaced(m);
	/* A kernel lets DMA into a process's memory end before freeing it. */
	ps_nic_place_all(m);
	m->last_key = m->free_key = 0;
}

static unsigned int count_unreceived(const struct ps_wire *w)
{
	struct ps_msg *msg;
	unsigned int n = 0;

	TAILQ_FOREACH (msg, &w->to->dom->machine->arrived, link)
		n += ps_msg_is_unreceived(w, msg);
	return n;
}

static size_t ctl_wires(struct pmsim_wire *out, size_t max)
{
	size_t n = 0;

	/* NICs acknowledge placed writes without their programs. */
	for (unsigned int i = 0; i < ps_sim.nmachines; i++)
		ps_placed_acks(ps_sim.machines[i]);
	for (unsigned int i = 0; i < ps_sim.nwires; i++) {
		struct ps_wire *w = ps_sim.wires[i];

		if (!w || !w->n)
			continue;
		if (n < max)
			out[n] = (struct pmsim_wire){
				.id = w->id,
				.from = w->src,
				.connected = w->connected,
				.to = w->to->dom->machine->id,
				.in_flight = w->n,
				.arrived = count_unreceived(w),
				.qp = w->qp,
			};
		n++;
	}
	return n;
}

static struct ps_msg *message_at(struct ps_wire *w, unsigned int index)
{
	struct ps_msg *msg = TAILQ_FIRST(&w->flight);

	while (msg && index--)
		msg = TAILQ_NEXT(msg, link);
	if (!msg)
		bad_call("no such message");
	return msg;
}

static enum pmsim_msg_type ctl_peek(unsigned int wire, unsigned int index)
{
	return message_at(wire_at(wire), index)->type;
}

static void ctl_deliver(unsigned int wire, unsigned int n)
{
	ps_wire_deliver(wire_at(wire), n);
}

static unsigned int ctl_unreported(unsigned int machine)
{
	return machine_at(machine)->unreported;
}

static void ctl_report_failures(unsigned int machine)
{
	struct ps_machine *m = machine_at(machine);
	struct ps_op *op, *next;
	struct ps_dom *dom;
	struct ps_ep *ep;

	LIST_FOREACH (dom, &m->doms, link)
		LIST_FOREACH (ep, &dom->eps, link)
			for (op = TAILQ_FIRST(&ep->ops); op; op = next) {
				next = TAILQ_NEXT(op, link);
				if (op->unreported)
					ps_op_complete(op, op->err, 0);
			}
}

static void ctl_overtake(unsigned int wire, unsigned int index)
{
	struct ps_wire *w = wire_at(wire);
	struct ps_msg *msg = message_at(w, index);

	if (ps_sim.cfg.ordered)
		bad_call("messages of an ordered fabric do not overtake");
	TAILQ_REMOVE(&w->flight, msg, link);
	TAILQ_INSERT_HEAD(&w->flight, msg, link);
}

static void ctl_break_wire(unsigned int wire, unsigned int late)
{
	if (wire_at(wire)->connected)
		bad_call("this connection is cut, and not made again");
	ps_wire_break(wire_at(wire), late);
}

static bool ctl_cut(unsigned int machine, enum pmsim_cut how)
{
	struct ps_dom *dom;
	struct ps_ep *ep;

	LIST_FOREACH (dom, &machine_at(machine)->doms, link)
		LIST_FOREACH (ep, &dom->eps, link)
			if (ep->conn_wire && !ep->conn_wire->cut) {
				if (how != PMSIM_CUT_NOT)
					ps_conn_cut(ep, how == PMSIM_CUT_BOTH);
				return true;
			}
	return false;
}

static unsigned int ctl_events(unsigned int machine)
{
	unsigned int n = 0;
	struct ps_eq *eq;

	LIST_FOREACH (eq, &machine_at(machine)->eqs, link)
		n += eq->dead ? 0 : eq->n - eq->nshut;
	return n;
}

static unsigned int ctl_arrived(unsigned int machine)
{
	struct ps_msg *msg;
	unsigned int n = 0;

	TAILQ_FOREACH (msg, &machine_at(machine)->arrived, link)
		n++;
	return n;
}

static uint64_t ctl_count(enum pmsim_msg_type type)
{
	return ps_sim.count[type];
}

static uint64_t ctl_doorbells(unsigned int machine)
{
	return machine_at(machine)->doorbells;
}

static unsigned int ctl_outstanding(unsigned int machine)
{
	return machine_at(machine)->outstanding;
}

static void ctl_execute(unsigned int machine)
{
	ps_reads_execute(machine_at(machine));
}

static void ctl_trace(bool on)
{
	ps_sim.trace = on;
}

static const struct pmsim_ops ops = {
	.reset = ctl_reset,
	.machine = ctl_machine,
	.model = ctl_model,
	.use_machine = ctl_use_machine,
	.kill = ctl_kill,
	.wires = ctl_wires,
	.peek = ctl_peek,
	.deliver = ctl_deliver,
	.break_wire = ctl_break_wire,
	.cut = ctl_cut,
	.events = ctl_events,
	.arrived = ctl_arrived,
	.count = ctl_count,
	.doorbells = ctl_doorbells,
	.execute = ctl_execute,
	.outstanding = ctl_outstanding,
	.trace = ctl_trace,
	.overtake = ctl_overtake,
	.unreported = ctl_unreported,
	.report_failures = ctl_report_failures,
};

__attribute__((visibility("default"))) const struct pmsim_ops *
pmsim_control(void);

const struct pmsim_ops *pmsim_control(void)
{
	return &ops;
}

/* At unload: free memory that the test has left, for leak checkers. */
__attribute__((destructor)) static void fini(void)
{
	struct pmsim_cfg same = ps_sim.cfg;

	if (!ps_sim.ndoms)
		ctl_reset(&same);
}
