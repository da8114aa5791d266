/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A session with random operations, on a target that places, caches, loses and
 * replies as late as it may: no OK may be false.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/log.h"
#include "seeded.h"
#include "session_bed.h"

#define REGIONS 3
#define CELLS	64 /* cells of a region, 8 bytes each */
#define OPS	24 /* outstanding operations */
#define STEPS	1500
#define RUNS	500

/*
 * Each write fills whole cells with its number; the numbers grow. If a cell has
 * a lower number than the last write before a commit, that write was lost or
 * undone.
 */
struct cell {
	uint64_t placed;  /* what a reader at the target gets */
	uint64_t durable; /* what survives a power cut */
	bool cached;	  /* stored by the CPU, so fences do not cover it */
	unsigned int placed_by; /* connection whose RDMA placed it */
	uint64_t posted;	/* number of the last accepted write */
};
static struct cell cells[REGIONS][CELLS];

/* One message or RDMA operation in flight. */
struct item {
	STAILQ_ENTRY(item) link;
	struct bed_seen *m;
	bool placed;	      /* placed or executed at the target */
	uint64_t data[CELLS]; /* the bytes that a read returns */
};
STAILQ_HEAD(items, item);
static struct items wire;     /* messages and RDMA without completion */
static struct items received; /* messages that the agent has not executed */

/* A REPLY that the agent has not sent, and its ordered store. */
struct reply {
	STAILQ_ENTRY(reply) link;
	uint64_t token;
	struct rp_wire_reply m;
	struct rp_wire_then then;
	bool stores;
};
static STAILQ_HEAD(, reply) replies;

/* One operation of the program. */
struct
try {
	struct report report;
	bool busy, checked;
	struct rp_wire_range ranges[3];
	size_t n;
	uint64_t number; /* number that the write stores */
	/* By covered cell: the last number before this operation. */
	uint64_t before[REGIONS][CELLS];
	bool executed; /* its effect was executed */
	uint64_t then_number;
};
static struct try tries[OPS];
static uint64_t numbers;
static bool failed[2 * STEPS]; /* by number: whether that write failed */
static unsigned int connection, nsaid;
static struct seeded rnd;

static bool chance_one_in(unsigned int n)
{
	return !seeded_below(&rnd, n);
}

static enum rp_method method_of(unsigned int r)
{
	static const enum rp_method m[REGIONS] = {
		RP_METHOD_AGENT_CLWB, RP_METHOD_FENCE, RP_METHOD_DELIVERY};
	static const enum rp_method n[REGIONS] = {
		RP_METHOD_NATIVE, RP_METHOD_AGENT_MSYNC, RP_METHOD_FENCE};

	return rnd.seed & 1 ? m[r] : n[r];
}

static uint64_t key_of(unsigned int r)
{
	bed.method = method_of(r);
	return bed_key(r + 1);
}

static unsigned int region_of(uint64_t key)
{
	return (unsigned int)((key & 0xff) - 1);
}

static unsigned int region_of_rkey(uint64_t rkey)
{
	return region_of(rkey ^ 0xff);
}

static void drop_log_line(enum rp_log_level level, const char *text)
{
}

/* --- the target --- */

static void place_bytes(unsigned int r, uint64_t at, const uint8_t *from,
			size_t len, bool cpu)
{
	for (size_t i = 0; i < len / 8; i++) {
		struct cell *c = &cells[r][at / 8 + i];

		memcpy(&c->placed, from + 8 * i, 8);
		c->cached = cpu;
		c->placed_by = connection;
		if (!cpu && method_of(r) == RP_METHOD_DELIVERY)
			c->durable = c->placed;
	}
}

/* A fence or FLUSH makes bytes of this connection's RDMA durable. */
static void write_back(unsigned int r, uint64_t at, uint64_t len)
{
	for (size_t i = at / 8; i < (at + len) / 8; i++) {
		struct cell *c = &cells[r][i];

		if (!c->cached && c->placed_by == connection)
			c->durable = c->placed;
	}
}

static void flush_range(const struct rp_wire_range *g)
{
	struct cell *c = cells[region_of(g->key)];

	for (uint64_t i = (g->addr - BED_ADDR) / 8;
	     i < (g->addr - BED_ADDR + g->len) / 8; i++)
		c[i].durable = c[i].placed;
}

/*
 * Deliver the next message or RDMA operation in order. Returns false if none is
 * left.
 */
static bool deliver_next(void)
{
	struct item *it;
	const struct bed_seen *m;
	unsigned int r;
	uint64_t at;

	STAILQ_FOREACH (it, &wire, link)
		if (!it->placed)
			break;
	if (!it)
		return false;
	it->placed = true;
	m = it->m;
	if (m->kind == RP_CHANNEL_SEND) {
		struct item *copy = calloc(1, sizeof(*copy));

		copy->m = m->injected ? it->m : calloc(1, sizeof(*m) + m->len);
		if (m->injected) {
			STAILQ_REMOVE(&wire, it, item, link);
			free(it);
		} else {
			memcpy(copy->m, m, sizeof(*m) + m->len);
			copy->m->ranges =
				calloc(m->req.nranges + 1, sizeof(*m->ranges));
			if (m->ranges)
				memcpy(copy->m->ranges, m->ranges,
				       m->req.nranges * sizeof(*m->ranges));
			copy->m->req.bytes =
				m->req.bytes
					? copy->m->bytes +
						  ((uint8_t *)m->req.bytes -
						   m->bytes)
					: NULL;
			if (m->req.effect == RP_EFFECT_ATOMIC)
				copy->m->req.atomic.operand =
					copy->m->bytes +
					((uint8_t *)m->req.atomic.operand -
					 m->bytes);
		}
		STAILQ_INSERT_TAIL(&received, copy, link);
		return true;
	}
	r = region_of_rkey(m->rkey);
	at = m->remote_addr - BED_REMOTE;
	if (m->kind == RP_CHANNEL_WRITE)
		place_bytes(r, at, m->bytes, m->len, false);
	else if (m->kind == RP_CHANNEL_FLUSH)
		write_back(r, at, m->length);
	else if (method_of(r) == RP_METHOD_FENCE)
		write_back(r, 0, 8 * CELLS);
	if (m->kind == RP_CHANNEL_READ && m->iov_count)
		for (uint64_t i = 0; i < m->length / 8; i++)
			it->data[i] = cells[r][at / 8 + i].placed;
	return true;
}

static struct try *try_of_number(uint64_t number)
{
	for (int i = 0; i < OPS; i++)
		if (tries[i].busy && (tries[i].number == number ||
				      tries[i].then_number == number))
			return &tries[i];
	return NULL;
}

/* Execute an ordered store; all ranges of its commit must be durable. */
static void store_then(const struct reply *r)
{
	const unsigned int region = region_of(r->then.key);
	struct try *t = try_of_number(r->then.value);

	if (t) {
		cr_assert(!t->executed);
		t->executed = true;
		for (unsigned int k = 0; k < REGIONS; k++)
			for (unsigned int i = 0; i < CELLS; i++)
				cr_assert_geq(cells[k][i].durable,
					      t->before[k][i],
					      "seed %#lx: a store came before "
					      "what it is behind",
					      rnd.seed);
	}
	place_bytes(region, r->then.addr - BED_ADDR, (uint8_t *)&r->then.value,
		    8, true);
	flush_range(&(struct rp_wire_range){r->then.key, r->then.addr, 8});
}

static void free_item(struct item *it)
{
	free(it->m->ranges);
	free(it->m);
	free(it);
}

/* Writes of zeros store their number here, so that cells only grow. */
static uint64_t *zeros_of(const struct bed_seen *m, uint64_t *fill)
{
	for (int i = 0; i < CELLS; i++)
		fill[i] = m->req.data;
	return fill;
}

/* Execute the next message at the agent. Returns false if none is left. */
static bool execute_next_message(void)
{
	struct item *it = STAILQ_FIRST(&received);
	const struct bed_seen *m;
	struct reply *r;
	const uint8_t *from;
	uint64_t number, fill[CELLS];
	bool stores;

	if (!it)
		return false;
	m = it->m;
	from = m->req.bytes;
	stores = m->req.effect == RP_EFFECT_STORE ||
		 m->req.effect == RP_EFFECT_ATOMIC ||
		 m->req.effect == RP_EFFECT_ZERO;
	STAILQ_REMOVE_HEAD(&received, link);
	r = calloc(1, sizeof(*r));
	r->token = m->hdr.token;
	if (m->hdr.type == RP_MSG_QUERY) {
		bed.method = method_of(region_of(m->query.key));
		bed_info(r->token, RP_ST_OK, m->query.key);
		free(r);
		free_item(it);
		return true;
	}
	r->m.level = m->req.level;
	r->m.class = RP_CLASS_POWER;
	if (m->req.effect == RP_EFFECT_ATOMIC)
		from = m->req.atomic.operand;
	if (m->req.effect == RP_EFFECT_ZERO)
		from = (uint8_t *)zeros_of(m, fill);
	if (chance_one_in(30))
		r->m = (struct rp_wire_reply){.status = RP_ST_OVERLOADED};
	for (size_t i = 0; !r->m.status && i < m->req.nranges; i++) {
		const struct rp_wire_range *g = &m->ranges[i];

		if (stores) {
			struct try *t;

			place_bytes(region_of(g->key), g->addr - BED_ADDR, from,
				    g->len, true);
			memcpy(&number, from, sizeof(number));
			t = try_of_number(number);
			if (t)
				t->executed = true;
			from += g->len;
		}
		if (m->req.level == RP_LEVEL_DURABLE && !chance_one_in(40))
			flush_range(g);
		else if (m->req.level == RP_LEVEL_DURABLE)
			r->m = (struct rp_wire_reply){
				.status = RP_ST_FLUSH_FAILED};
	}
	r->then = m->req.then;
	r->stores = m->req.effect == RP_EFFECT_THEN && !r->m.status;
	STAILQ_INSERT_TAIL(&replies, r, link);
	free_item(it);
	return true;
}

/* Send a random REPLY. Returns false if none is left. */
static bool send_reply(void)
{
	struct reply *r, *chosen = NULL;
	unsigned int n = 0;

	STAILQ_FOREACH (r, &replies, link)
		if (chance_one_in(++n))
			chosen = r;
	if (!chosen)
		return false;
	STAILQ_REMOVE(&replies, chosen, reply, link);
	if (chosen->stores)
		store_then(chosen);
	bed_reply_as(chosen->token, &chosen->m);
	free(chosen);
	return true;
}

/* --- the channel --- */

/* The number that this request's operation stores; 0: it has completed. */
static uint64_t number_of_request(uint64_t token)
{
	const struct rp_piece *p = NULL;

	if (bed.s)
		p = bed.s->by_token[token % RP_SESSION_TOKEN_BUCKETS];
	while (p && p->token != token)
		p = p->next_in_bucket;
	return p ? ((struct try *)p->op)->number : 0;
}

static void collect_messages(void)
{
	struct bed_seen *m;

	while ((m = STAILQ_FIRST(&bed.seen))) {
		struct item *it = calloc(1, sizeof(*it));

		STAILQ_REMOVE_HEAD(&bed.seen, link);
		it->m = m;
		if (m->kind == RP_CHANNEL_SEND &&
		    m->req.effect == RP_EFFECT_ZERO)
			m->req.data = number_of_request(m->hdr.token);
		STAILQ_INSERT_TAIL(&wire, it, link);
	}
}

/* Complete the channel's oldest operation, if it may complete now. */
static bool complete_oldest(void)
{
	struct item *it;

	collect_messages();
	STAILQ_FOREACH (it, &wire, link)
		if (!it->m->injected)
			break;
	if (!it || ((it->m->kind == RP_CHANNEL_READ || it->m->delivered ||
		     it->m->kind == RP_CHANNEL_FLUSH) &&
		    !it->placed))
		return false;
	/* Without delivery, done() means sent bytes, not arrived ones. */
	if (!it->placed) {
		if (!bed.nposted)
			return false;
		it->m->injected = true;
		bed_done(1);
		return true;
	}
	if (it->m->kind == RP_CHANNEL_READ &&
	    TAILQ_FIRST(&bed.posted)->iov_count)
		memcpy(TAILQ_FIRST(&bed.posted)->iov[0].iov_base, it->data,
		       it->m->length);
	STAILQ_REMOVE(&wire, it, item, link);
	free_item(it);
	bed_done(1);
	return true;
}

static void free_messages(void)
{
	struct item *it;
	struct reply *r;

	collect_messages();
	while ((it = STAILQ_FIRST(&wire))) {
		STAILQ_REMOVE_HEAD(&wire, link);
		free_item(it);
	}
	while ((it = STAILQ_FIRST(&received))) {
		STAILQ_REMOVE_HEAD(&received, link);
		free_item(it);
	}
	while ((r = STAILQ_FIRST(&replies))) {
		STAILQ_REMOVE_HEAD(&replies, link);
		free(r);
	}
}

/* Lose the connection; a random number of its messages arrives before. */
static void lose_connection(void)
{
	struct reply *r;

	if (!bed.connected || rp_session_state(bed.s) != RP_SESSION_OPEN)
		return;
	if (chance_one_in(3))
		rp_session_disconnect(bed.s, RP_ST_CANCELED, 0);
	else
		bed_lose_connection(ECONNRESET);
	collect_messages();
	while (!chance_one_in(4) && deliver_next())
		;
	while (!chance_one_in(4) && !STAILQ_EMPTY(&received) &&
	       STAILQ_FIRST(&received)->m->hdr.type == RP_MSG_REQUEST &&
	       execute_next_message())
		;
	STAILQ_FOREACH (r, &replies, link)
		if (r->stores && chance_one_in(2))
			store_then(r);
	connection++;
	free_messages();
	/* Writes that were not placed before the loss have failed. */
	for (unsigned int k = 0; k < REGIONS; k++)
		for (unsigned int i = 0; i < CELLS; i++)
			if (cells[k][i].placed < cells[k][i].posted)
				failed[cells[k][i].posted] = true;
	bed_progress();
	free_messages();
}

/* --- the program --- */

static void check_read(struct try *t)
{
	const struct rp_op *op = &t->report.op;
	const enum rp_status st = t->report.out.status;
	const bool once = op->kind == RP_OP_ATOMIC || op->effect;

	t->checked = true;
	if (st != RP_ST_OK) {
		failed[t->number] = failed[t->then_number] = true;
		cr_assert(!once || !t->executed || st == RP_ST_INDETERMINATE ||
				  st == RP_ST_FLUSH_FAILED ||
				  st == RP_ST_NO_MEMORY,
			  "seed %#lx: done, and said to be not: %s", rnd.seed,
			  rp_status_name(st));
		return;
	}
	nsaid++;
	if (op->level != RP_LEVEL_DURABLE && op->kind != RP_OP_READ)
		return;
	for (size_t i = 0; i < t->n; i++) {
		const struct rp_wire_range *g = &t->ranges[i];
		unsigned int r = region_of(g->key);
		uint64_t first = (g->addr - BED_ADDR) / 8;

		for (uint64_t c = first; c < first + g->len / 8; c++) {
			uint64_t least = op->kind == RP_OP_COMMIT ||
							 op->kind == RP_OP_READ
						 ? t->before[r][c]
						 : t->number;
			uint64_t is = cells[r][c].durable;

			/* A read need not return a failed write. */
			if (op->kind == RP_OP_READ && failed[least])
				continue;
			if (op->kind == RP_OP_READ)
				memcpy(&is, t->report.buf + 8 * (c - first), 8);
			cr_assert_geq(is, least,
				      "seed %#lx: op %d of %u: %lu, not %lu",
				      rnd.seed, op->kind, r, is, least);
		}
	}
}

static void check_ended(struct report *report)
{
	struct try *t = (struct try *)report;

	check_read(t);
	t->busy = false;
}

static struct rp_wire_range random_range(unsigned int most)
{
	unsigned int r = (unsigned int)seeded_below(&rnd, REGIONS);
	uint64_t n = 1 + seeded_below(&rnd, most);
	uint64_t at = seeded_below(&rnd, CELLS - n + 1);

	return (struct rp_wire_range){key_of(r), BED_ADDR + 8 * at, 8 * n};
}

static void number_bytes(struct try *t)
{
	uint64_t v[CELLS];

	for (int i = 0; i < CELLS; i++)
		v[i] = t->number;
	memcpy(t->report.buf, v, sizeof(v));
}

static struct rp_op *make_op(struct try *t)
{
	struct report *o = &t->report;
	struct rp_wire_range g;
	struct rp_op *op;

	memset(t->before, 0, sizeof(t->before));
	t->executed = t->checked = false;
	t->number = t->then_number = 0;
	t->n = 1;
	t->ranges[0] = g = random_range(CELLS);
	o->then = check_ended;
	switch (seeded_below(&rnd, 10)) {
	case 0:
	case 1:
	case 2:
		op = op_commit(o, t->ranges, 1);
		t->n = op->nranges = 1 + seeded_below(&rnd, 3);
		t->ranges[1] = random_range(8);
		t->ranges[2] = random_range(8);
		if (chance_one_in(8))
			op->level = RP_LEVEL_VISIBLE;
		if (op->level == RP_LEVEL_DURABLE && chance_one_in(3)) {
			g = random_range(1);
			op->effect = RP_EFFECT_THEN;
			t->then_number = ++numbers;
			op->then = (struct rp_wire_then){g.key, g.addr,
							 t->then_number};
		}
		return op;
	case 3:
		op = op_atomic(o, 1, 0);
		t->ranges[0] = g = random_range(1);
		t->number = ++numbers;
		op->level =
			chance_one_in(2) ? RP_LEVEL_DURABLE : RP_LEVEL_VISIBLE;
		op->atomic.op = RP_ATOMIC_WRITE;
		break;
	case 4:
		op = op_read(o, 1, 0, g.len);
		break;
	default:
		if (chance_one_in(2))
			t->ranges[0] = g = random_range(4);
		op = op_write(o, 1, 0, g.len,
			      (enum rp_level)seeded_below(&rnd, 3));
		op->inject = g.len < 100 && chance_one_in(2);
		t->number = ++numbers;
		if (op->level && chance_one_in(6)) {
			op->effect = RP_EFFECT_NOTIFY;
		} else if (op->level && chance_one_in(4)) {
			op->zero = true;
			op->inject = false;
			op->iov_count = 0;
		}
		break;
	}
	op->ranges = t->ranges;
	number_bytes(t);
	if (op->inject || op->kind == RP_OP_ATOMIC)
		op->required = RP_CLASS_POWER;
	return op;
}

/* Record the covered cells' numbers before the operation is posted. */
static void note_covered(struct try *t)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct rp_wire_range *g = &t->ranges[i];
		unsigned int r = region_of(g->key);
		uint64_t first = (g->addr - BED_ADDR) / 8;

		for (uint64_t c = first; c < first + g->len / 8; c++)
			t->before[r][c] = cells[r][c].posted;
	}
}

static void note_accepted(struct try *t)
{
	const struct rp_wire_range *g = t->ranges;
	struct rp_op *op = &t->report.op;

	t->busy = true;
	if (op->kind == RP_OP_WRITE || op->kind == RP_OP_ATOMIC)
		for (uint64_t i = 0; i < g->len / 8; i++)
			cells[region_of(g->key)][(g->addr - BED_ADDR) / 8 + i]
				.posted = t->number;
	if (t->then_number)
		cells[region_of(op->then.key)][(op->then.addr - BED_ADDR) / 8]
			.posted = t->then_number;
	if (op->inject)
		memset(t->report.buf, 0xee, 128);
}

static void accept_if_requested(void)
{
	if (rp_session_state(bed.s) != RP_SESSION_CONNECTING)
		return;
	if (chance_one_in(20)) {
		bed_refuse(RP_ST_OVERLOADED, 0);
		bed_progress();
		return;
	}
	bed.method = method_of(region_of(bed.hello.key));
	bed_accept();
}

static void drop_unplaced(void)
{
	if (rp_session_has_unplaced(bed.s))
		return;
	for (unsigned int i = 0; i < OPS; i++)
		if (tries[i].busy && tries[i].report.op.kind == RP_OP_WRITE &&
		    tries[i].report.op.priv.state != RP_OP_ENDED)
			for (uint64_t c = 0; c < tries[i].ranges[0].len / 8;
			     c++)
				cr_assert_geq(
					cells[region_of(tries[i].ranges[0].key)]
					     [(tries[i].ranges[0].addr -
					       BED_ADDR) /
						      8 +
					      c]
						     .placed,
					tries[i].number,
					"seed %#lx: unplaced, and said to be "
					"in its place",
					rnd.seed);
}

static void run_step(void)
{
	struct try *t = &tries[seeded_below(&rnd, OPS)];

	switch (seeded_below(&rnd, 9)) {
	case 0:
	case 1:
	case 2:
		if (t->busy)
			break;
		make_op(t);
		note_covered(t);
		if (!bed_post_result(&t->report.op))
			note_accepted(t);
		accept_if_requested();
		break;
	case 3:
		while (chance_one_in(2) && (collect_messages(), deliver_next()))
			;
		break;
	case 4:
		execute_next_message();
		break;
	case 5:
		send_reply();
		break;
	case 6:
		complete_oldest();
		break;
	case 7:
		if (chance_one_in(4))
			drop_unplaced();
		if (chance_one_in(25))
			lose_connection();
		bed.room = chance_one_in(5) ? (int)seeded_below(&rnd, 3) : -1;
		break;
	case 8:
		bed_progress();
		break;
	}
	collect_messages();
}

static bool ops_outstanding(void)
{
	for (int i = 0; i < OPS; i++)
		if (tries[i].busy)
			return true;
	return false;
}

static void run_world(void)
{
	struct rp_session_attr attr = bed_attr();
	int left = 100000;

	memset(cells, 0, sizeof(cells));
	memset(tries, 0, sizeof(tries));
	memset(failed, 0, sizeof(failed));
	numbers = 0;
	connection = 1;
	STAILQ_INIT(&wire);
	STAILQ_INIT(&received);
	STAILQ_INIT(&replies);
	attr.native = true;
	attr.max_commits = 2 + (unsigned int)seeded_below(&rnd, 12);
	attr.inline_max = seeded_below(&rnd, 2) ? 256 : 0;
	bed_start(&attr);
	bed.flags |= RP_CHANNEL_FLUSHES;
	bed.inject = chance_one_in(2) ? 128 : 0;
	bed.credits = 1 + (uint16_t)seeded_below(&rnd, 8);
	for (int i = 0; i < STEPS; i++)
		run_step();
	bed.room = -1;
	while (ops_outstanding() && left--) {
		bed_progress();
		accept_if_requested();
		collect_messages();
		if (!deliver_next() && !execute_next_message() && !send_reply())
			complete_oldest();
	}
	cr_assert(!ops_outstanding(), "seed %#lx: an operation does not end",
		  rnd.seed);
	free_messages();
	bed_stop();
	free_messages();
}

Test(session_world, no_ok_is_false_at_a_late_target, .timeout = 120)
{
	struct seeded s = seeded_start();
	int runs = getenv("RP_SEED") ? 1 : RUNS;

	rp_log_set(drop_log_line);
	for (int i = 0; i < runs; i++) {
		rnd = (struct seeded){s.seed + (uint64_t)i,
				      s.seed + (uint64_t)i};
		run_world();
	}
	cr_log_info("%u operations succeeded", nsaid);
	if (runs > 1)
		cr_assert_gt(nsaid, 1000);
}
