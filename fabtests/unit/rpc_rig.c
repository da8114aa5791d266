// SPDX-License-Identifier: BSD-2-Clause
/*
 * Both sides of librpmem_rpc on a pool in memory: the functions of
 * librpmem_pool, of the endpoint and of core/pmem.c are replaced.
 */
#include "config.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rpc_rig.h"
#include "rpc_stub.h"

struct rig rig;

/* --- memory --- */

static void persist(uint64_t at, uint64_t len)
{
	memcpy(rig.medium + at, rig.live + at, len);
}

int rp_pmem_flush(struct rp_pmem *pm, uint64_t off, uint64_t len)
{
	cr_assert_lt(rig.nflushes, 64);
	cr_assert_leq(off + len, rig.length);
	rig.end_of_accesses = off + len > rig.end_of_accesses
				      ? off + len
				      : rig.end_of_accesses;
	rig.flushes[rig.nflushes].at = off;
	rig.flushes[rig.nflushes++].len = len;
	return 0;
}

void rp_pmem_drain(struct rp_pmem *pm)
{
	for (unsigned int i = 0; i < rig.nflushes; i++)
		persist(rig.flushes[i].at, rig.flushes[i].len);
	rig.nflushes = 0;
}

bool rp_pmem_blocks(const struct rp_pmem *pm)
{
	return rig.hold_flushes;
}

/* --- pool --- */

int rpmem_pool_open(struct rpmem_pool **pool, const char *where,
		    const struct rpmem_pool_attr *attr)
{
	/*
	 * fi_rpmemd makes the former client's key invalid and writes back all
	 * bytes when a client opens a pool.
	 */
	if (attr->exclusive != RPMEM_POOL_OBSERVE)
		persist(0, rig.length);
	rig.opened = (unsigned int)atoi(strrchr(where, '.') + 1);
	*pool = (struct rpmem_pool *)&rig;
	return 0;
}

int rpmem_pool_query(struct rpmem_pool *pool, struct rpmem_pool_info *info)
{
	info->length = rig.length;
	info->method = rig.method ? rig.method : "agent-clwb";
	info->reconnects = rig.reconnects;
	return 0;
}

int rpmem_pool_read(struct rpmem_pool *pool, void *buf, size_t len,
		    uint64_t offset)
{
	rig.end_of_accesses = offset + len > rig.end_of_accesses
				      ? offset + len
				      : rig.end_of_accesses;
	memcpy(buf, rig.live + offset, len);
	return 0;
}

int rpmem_pool_write(struct rpmem_pool *pool, const void *buf, size_t len,
		     uint64_t offset, unsigned int flags)
{
	memcpy(rig.live + offset, buf, len);
	cr_assert_eq(flags, RPMEM_POOL_DURABLE);
	persist(offset, len);
	if (rig.rival)
		rig_set_slot(1, RPC_RANDOM, rig.rival);
	return 0;
}

int rpmem_pool_submit(struct rpmem_pool *pool, struct rpmem_pool_op *op)
{
	cr_assert_lt(rig.nops, RIG_OPS);
	cr_assert_leq(op->offset + op->len, rig.length);
	rig.ops[rig.nops++] = op;
	return 0;
}

/* Copy a random subset of the words of an outstanding write. */
static void arrive_partly(const struct rpmem_pool_op *op)
{
	for (size_t i = 0; i < op->len; i += 8)
		if (seeded_below(&rig.rnd, 3))
			memcpy(rig.live + op->offset + i,
			       (const char *)op->buf + i,
			       op->len - i < 8 ? op->len - i : 8);
}

/* Execute a random outstanding operation. */
static void execute_random_op(void)
{
	const unsigned int i =
		(unsigned int)seeded_below(&rig.rnd, rig.nops ? rig.nops : 1);
	struct rpmem_pool_op *op;

	if (!rig.nops)
		return;
	op = rig.ops[i];
	if (op->type == RPMEM_POOL_WRITE && seeded_below(&rig.rnd, 2)) {
		arrive_partly(op);
		return;
	}
	if (op->type == RPMEM_POOL_WRITE) {
		memcpy(rig.live + op->offset, op->buf, op->len);
		/* A write may be visible before it is durable. */
		if (seeded_below(&rig.rnd, 2))
			return;
		cr_assert_eq(op->flags, RPMEM_POOL_DURABLE);
		persist(op->offset, op->len);
	} else {
		memcpy(op->buf, rig.live + op->offset, op->len);
	}
	rig.ops[i] = rig.ops[--rig.nops];
	rig.done[rig.ndone++] = op;
}

int rpmem_pool_poll(struct rpmem_pool *pool, struct rpmem_pool_op **done,
		    unsigned int n, int timeout_ms)
{
	unsigned int got = 0;

	struct rpmem_rpc_call *next = rig.serves ? rig_next() : NULL;

	rig.waited_ms += timeout_ms;
	if (rig.error)
		return rig.error;
	if (next)
		cr_assert_eq(rpmem_rpc_reply(rig.srv, next, "x", 1), 0);
	for (uint64_t i = seeded_below(&rig.rnd, 12); i; i--)
		execute_random_op();
	while (got < n && rig.ndone)
		done[got++] = rig.done[--rig.ndone];
	return (int)got;
}

/* --- endpoint --- */

/* Has this copy of the memory the entry, together with its result? */
static bool has_result(const unsigned char *memory, const struct rpc_entry *e)
{
	const struct rpc_super *s = &rig.srv->slots[0].super;
	const unsigned char *from = memory + RPC_RING_AT + e->pos % s->ring;
	struct rpc_entry found;
	struct rpc_result r;

	return rpc_entry_decode(s, from, &found) && found.n == e->n &&
	       found.incarnation == e->incarnation &&
	       rpc_entry_intact(s->seed, &found, from + RPC_HEADER) &&
	       rpc_result_decode(s->seed, from + rpc_entry_result(e->len),
				 e->room, rpc_sequence(e->incarnation, e->n),
				 &r);
}

bool rig_is_durable(const struct rpc_entry *e)
{
	return has_result(rig.medium, e);
}

int rpc_port_send(struct rpc_port *p, fi_addr_t to, const struct rpc_msg *m)
{
	if (rig.lose_messages && seeded_below(&rig.rnd, 3) == 0)
		return seeded_below(&rig.rnd, 2) ? 0 : -EAGAIN;
	if (m->type != RPC_MSG_REPLY && rig.deaf)
		return 0;
	if (m->type != RPC_MSG_REPLY) {
		slot_attach(rig.srv, &rig.srv->slots[0]);
		rig.srv->slots[0].attached = true;
		return 0;
	}
	/*
	 * A reply is sent only when it is durable. (Not checked if the client
	 * has read the reply, and reused its space.)
	 */
	cr_assert(!has_result(rig.live, &rig.srv->slots[0].replies[0].entry) ||
			  rig_is_durable(&rig.srv->slots[0].replies[0].entry),
		  "seed %" PRIu64 ": sent before it is durable", rig.rnd.seed);
	if (rig.nmsgs == RIG_MSGS)
		return -EAGAIN;
	rig.msgs[rig.nmsgs].m = *m;
	rig.msgs[rig.nmsgs].m.has_bytes = seeded_below(&rig.rnd, 4);
	memcpy(rig.msgs[rig.nmsgs].bytes, m->bytes, m->result.len);
	rig.nmsgs++;
	return 0;
}

int rpc_port_poll(struct rpc_port *p, rpc_port_fn fn, void *arg, int ms)
{
	struct slot *s = &rig.srv->slots[0];

	rig.waited_ms += ms;
	/* The server finds a new superblock even if ATTACH is lost. */
	if (rig.lose_messages && slot_is_written(s))
		slot_attach(rig.srv, s);
	for (unsigned int i = 0; i < rig.nmsgs; i++) {
		rig.msgs[i].m.bytes = rig.msgs[i].bytes;
		fn(arg, &rig.msgs[i].m);
	}
	rig.nmsgs = 0;
	if (rig.after_poll)
		rig.after_poll();
	return 0;
}

/* --- server --- */

void server_fail(struct rpmem_rpc_server *srv, int ret, const char *why)
{
	cr_assert_fail("the server fails: %s", why);
}

static void start_server(void)
{
	rig.srv = rpc_stub_start(rig.live, rig.length, seeded_next(&rig.rnd));
	cr_assert(rig.srv, "seed %" PRIu64 ": %s", rig.rnd.seed,
		  rpmem_rpc_error());
}

void rig_set_slot(unsigned int slot, enum rpc_kind kind,
		  const unsigned char *id)
{
	struct rpc_page *page = &rig.srv->page;

	page->slots = slot + 1 > page->slots ? slot + 1 : page->slots;
	page->v[slot].kind = kind;
	memcpy(page->v[slot].id, id, RPC_ID);
	server_publish(rig.srv);
}

void rig_init(uint64_t ring)
{
	const struct seeded rnd = rig.rnd;

	memset(&rig, 0, sizeof(rig));
	rig.rnd = rnd;
	rig.length = RPC_RING_AT + ring;
	rig.live = calloc(1, rig.length);
	rig.medium = calloc(1, rig.length);
	start_server();
}

void rig_fini(void)
{
	rpc_stub_end(rig.srv);
	free(rig.live);
	free(rig.medium);
}

void rig_flush(void)
{
	struct slot *s = TAILQ_FIRST(&rig.srv->dirty_slots);

	pthread_mutex_lock(&rig.srv->lock);
	if (s) {
		TAILQ_REMOVE(&rig.srv->dirty_slots, s, link);
		slot_flush(rig.srv, s);
	}
	slot_send(rig.srv, &rig.srv->slots[0]);
	pthread_mutex_unlock(&rig.srv->lock);
}

struct rpmem_rpc_call *rig_next(void)
{
	return rpc_stub_next(rig.srv);
}

void rig_restart(bool cut)
{
	rpc_stub_end(rig.srv);
	rig.nflushes = 0;
	rig.nmsgs = 0;
	for (uint64_t i = 0; cut && i < rig.length; i += 8)
		if (memcmp(rig.live + i, rig.medium + i, 8)) {
			if (seeded_below(&rig.rnd, 2))
				persist(i, 8);
			else
				memcpy(rig.live + i, rig.medium + i, 8);
		}
	rig.reconnects++;
	start_server();
}

void rig_drop_client(struct rpmem_rpc *c)
{
	rig.nops = rig.ndone = rig.nmsgs = 0;
	c->failed = -EIO; /* makes close() write nothing */
	rpmem_rpc_close(c, 0);
}
