/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool in memory for librpmem_log, with power cuts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "log_rig.h"

struct rig_pool rig_pool;

struct rpmem_pool {
	struct rig_port port;
	unsigned int part; /* its number; 0: the whole pool */
};

const char *rpmem_pool_error(void)
{
	return "the rig refuses";
}

/* Like librpmem_pool, refuses a part of a pool that is divided otherwise. */
int rpmem_pool_open(struct rpmem_pool **pool, const char *where,
		    const struct rpmem_pool_attr *attr)
{
	struct rpmem_pool *p;

	(void)where;
	cr_assert_eq(attr->size, sizeof(*attr));
	rig_pool.attr = *attr;
	rig_pool.opens++;
	if (rig_pool.parts_made_meanwhile && attr->parts == 1)
		rig_pool.parts = rig_pool.parts_made_meanwhile;
	if (!rig_pool.rig)
		return -ENOENT;
	if (rig_pool.opens_to_fail) {
		rig_pool.opens_to_fail--;
		return rig_pool.open_failure;
	}
	if (attr->parts && attr->parts != rig_pool.parts)
		return -ENXIO;
	cr_assert_lt(attr->part, attr->parts ? attr->parts : 1);
	p = calloc(1, sizeof(*p));
	cr_assert(p);
	p->port.rig = rig_pool.rig;
	p->port.length = rig_pool.rig->length;
	if (attr->parts > 1) {
		p->part = attr->part + 1;
		p->port.length /= attr->parts;
		p->port.at = attr->part * p->port.length;
	}
	rig_pool.handles++;
	*pool = p;
	return 0;
}

void rpmem_pool_close(struct rpmem_pool *pool)
{
	if (pool)
		rig_pool.handles--;
	free(pool);
}

int rpmem_pool_query(struct rpmem_pool *pool, struct rpmem_pool_info *info)
{
	info->length = pool->port.length;
	return 0;
}

int rpmem_pool_divide(struct rpmem_pool *pool, unsigned int parts)
{
	cr_assert_eq(pool->part, 0);
	rig_pool.parts = parts;
	return 0;
}

int rpmem_pool_submit(struct rpmem_pool *pool, struct rpmem_pool_op *op)
{
	const struct log_io io = rig_io(&pool->port);

	return io.submit(io.arg, op);
}

int rpmem_pool_trywait(struct rpmem_pool *pool, int *fd, int *timeout_ms)
{
	return 0;
}

int rpmem_pool_poll(struct rpmem_pool *pool, struct rpmem_pool_op **done,
		    unsigned int n, int timeout_ms)
{
	const struct log_io io = rig_io(&pool->port);

	return io.poll(io.arg, done, n, timeout_ms);
}

void rig_init(struct rig *r, struct seeded *rnd, uint64_t length)
{
	*r = (struct rig){.rnd = rnd, .length = length};
	r->visible = malloc(length);
	r->durable = malloc(length);
	cr_assert(r->visible && r->durable);
	for (uint64_t i = 0; i < length; i++)
		r->visible[i] = (unsigned char)seeded_next(rnd);
	memcpy(r->durable, r->visible, length);
}

void rig_fini(struct rig *r)
{
	free(r->visible);
	free(r->durable);
}

/* Draw a number below n: random, or the next choice of r->choices. */
static unsigned int draw_below(struct rig *r, unsigned int n)
{
	return r->choices ? choose(r->choices, n)
			  : (unsigned int)seeded_below(r->rnd, n);
}

static uint64_t length_of(const struct rig_port *port)
{
	return port->length ? port->length : port->rig->length;
}

/* The bytes of a port: as readers see them, and as they survive a power cut. */
static unsigned char *visible_at(const struct rig_port *port, uint64_t offset)
{
	return port->rig->visible + port->at + offset;
}

static unsigned char *durable_at(const struct rig_port *port, uint64_t offset)
{
	return port->rig->durable + port->at + offset;
}

static int submit(void *arg, struct rpmem_pool_op *op)
{
	const struct rig_port *port = arg;
	struct rig *r = port->rig;

	cr_assert_lt(r->nops, RIG_OPS);
	cr_assert(op->type == RPMEM_POOL_COMMIT ||
		  op->offset + op->len <= length_of(port));
	r->ops[r->nops++] = (struct rig_op){.op = op, .port = port};
	return 0;
}

static void place_write(struct rig_op *o)
{
	if (o->placed || o->op->type != RPMEM_POOL_WRITE)
		return;
	memcpy(visible_at(o->port, o->op->offset), o->op->buf, o->op->len);
	o->placed = true;
}

/*
 * A commit makes all earlier writes to its part durable, then executes its
 * store.
 */
static void commit(struct rig *r, unsigned int at)
{
	const struct rpmem_pool_then *then = r->ops[at].op->then;
	const struct rig_port *port = r->ops[at].port;
	uint64_t value;

	for (unsigned int i = 0; i < at; i++)
		if (r->ops[i].port->at == port->at)
			place_write(&r->ops[i]);
	memcpy(durable_at(port, 0), visible_at(port, 0), length_of(port));
	if (then) {
		value = htole64(then->value);
		memcpy(visible_at(port, then->offset), &value, sizeof(value));
		memcpy(durable_at(port, then->offset), &value, sizeof(value));
	}
}

static void execute_op(struct rig *r, unsigned int at)
{
	struct rig_op *o = &r->ops[at];
	struct rpmem_pool_op *op = o->op;

	op->result = 0;
	if (op->type != RPMEM_POOL_READ && r->fail_once) {
		op->result = r->fail_once;
		op->error = "the rig's disk failed";
		r->fail_once = 0;
	} else if (op->type == RPMEM_POOL_READ) {
		memcpy(op->buf, visible_at(o->port, op->offset), op->len);
	} else if (op->type == RPMEM_POOL_COMMIT) {
		commit(r, at);
		r->writes++;
	} else {
		place_write(o);
		if (op->flags & RPMEM_POOL_DURABLE) {
			memcpy(durable_at(o->port, op->offset), op->buf,
			       op->len);
			r->writes++;
		}
	}
	r->nops--;
	memmove(o, o + 1, (r->nops - at) * sizeof(*o));
}

/* Stop the target: all operations fail from now on. */
static void stop_target(struct rig *r, bool power)
{
	const unsigned int nops = r->nops;

	if (power)
		rig_cut(r);
	else
		rig_kill(r);
	r->nops = nops;
	r->ended = true;
}

static int fail_first(struct rig *r, struct rpmem_pool_op **done)
{
	*done = r->ops[0].op;
	(*done)->result = -EIO;
	(*done)->error = "the target has ended";
	r->nops--;
	memmove(r->ops, r->ops + 1, r->nops * sizeof(*r->ops));
	return 1;
}

/* Complete a random operation of this handle. */
static int poll_rig(void *arg, struct rpmem_pool_op **done, unsigned int n,
		    int timeout_ms)
{
	const struct rig_port *port = arg;
	struct rig *r = port->rig;
	unsigned int mine[RIG_OPS], count = 0, at;

	for (unsigned int i = 0; i < r->nops; i++)
		if (r->ops[i].port == port &&
		    (!r->hold_writes || r->ops[i].op->type == RPMEM_POOL_READ))
			mine[count++] = i;
	cr_assert(n && (count || timeout_ms == 0), "a call waits for nothing");
	if (!count)
		return 0;
	if (r->ended)
		return fail_first(r, done);
	at = 0;
	if (r->may_stop && r->ops[mine[0]].op->type != RPMEM_POOL_READ)
		at = draw_below(r, count + 2);
	else
		at = draw_below(r, count);
	if (at >= count) {
		stop_target(r, at == count);
		return fail_first(r, done);
	}
	at = mine[at];
	*done = r->ops[at].op;
	execute_op(r, at);
	return 1;
}

struct log_io rig_io(struct rig_port *port)
{
	return (struct log_io){
		.submit = submit,
		.poll = poll_rig,
		.arg = port,
		.length = length_of(port),
	};
}

/* Copy a random subset of the 8-byte words: none, all, or each at random. */
static void copy_torn(struct rig *r, unsigned char *to,
		      const unsigned char *from, size_t len)
{
	const unsigned int how = draw_below(r, 4);
	const size_t half = len / 16 * 8;

	if (r->choices) {
		/* Copy nothing, everything, the first half, the second half. */
		memcpy(to, from, how == 1 ? len : how == 2 ? half : 0);
		if (how == 3)
			memcpy(to + half, from + half, len - half);
		return;
	}
	for (size_t i = 0; i < len; i += 8)
		if (how == 0 || (how > 1 && draw_below(r, how)))
			memcpy(to + i, from + i, len - i < 8 ? len - i : 8);
}

/* Make some visible words durable, by line or by group of lines. */
static void tear_visible(struct rig *r)
{
	uint64_t from = 0, end;

	for (; from < r->length; from = end) {
		end = from + 64;
		if (!memcmp(r->durable + from, r->visible + from, 64))
			continue;
		while (r->choices && end < r->length &&
		       memcmp(r->durable + end, r->visible + end, 64) != 0)
			end += 64;
		copy_torn(r, r->durable + from, r->visible + from, end - from);
	}
}

void rig_cut(struct rig *r)
{
	for (unsigned int i = 0; i < r->nops; i++) {
		const struct rpmem_pool_op *op = r->ops[i].op;

		if (op->type == RPMEM_POOL_COMMIT && draw_below(r, 2) == 0)
			commit(r, i);
	}
	tear_visible(r);
	for (unsigned int i = 0; i < r->nops; i++) {
		const struct rpmem_pool_op *op = r->ops[i].op;

		if (op->type == RPMEM_POOL_WRITE && !r->ops[i].placed)
			copy_torn(r, durable_at(r->ops[i].port, op->offset),
				  op->buf, op->len);
	}
	memcpy(r->visible, r->durable, r->length);
	r->nops = 0;
}

/* Execute the outstanding writes of the handles in part, at random. */
static void arrive(struct rig *r)
{
	for (unsigned int i = 0; i < r->nops; i++) {
		const struct rpmem_pool_op *op = r->ops[i].op;

		if (op->type == RPMEM_POOL_WRITE && !r->ops[i].placed)
			copy_torn(r, visible_at(r->ops[i].port, op->offset),
				  op->buf, op->len);
		else if (op->type == RPMEM_POOL_COMMIT && draw_below(r, 2) == 0)
			commit(r, i);
	}
}

void rig_kill(struct rig *r)
{
	arrive(r);
	/* The next writer's exclusive open makes all bytes durable. */
	memcpy(r->durable, r->visible, r->length);
	r->nops = 0;
}

void rig_kill_port(const struct rig_port *port)
{
	struct rig *r = port->rig;
	struct rig_op others[RIG_OPS];
	unsigned int n = 0, mine = 0;

	for (unsigned int i = 0; i < r->nops; i++)
		if (r->ops[i].port != port)
			others[n++] = r->ops[i];
		else
			r->ops[mine++] = r->ops[i];
	r->nops = mine;
	arrive(r);
	memcpy(durable_at(port, 0), visible_at(port, 0), length_of(port));
	memcpy(r->ops, others, n * sizeof(*others));
	r->nops = n;
}
