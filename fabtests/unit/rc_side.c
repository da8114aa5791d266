// SPDX-License-Identifier: BSD-2-Clause
/*
 * The target of rc_mock.h: the real agent, and memory made durable by drains.
 */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_mock.h"

#define REFUSALS                                                               \
	100000000u /* ns: refusals of wrong keys are due within this time */

/* --- the target's CPU --- */

static void mark_lines(struct mock *m, const void *addr, size_t len,
		       bool *which)
{
	size_t off = (size_t)((const uint8_t *)addr - m->visible);

	cr_assert(off < MOCK_BYTES && len <= MOCK_BYTES - off);
	for (size_t l = off / MOCK_LINE; l * MOCK_LINE < off + len; l++)
		which[l] = true;
}

static void do_flush(void *ctx, const void *addr, size_t len)
{
	struct mock *m = ctx;

	if (!m->side.idle)
		mark_lines(m, addr, len, m->side.flushed);
}

static void do_drain(void *ctx)
{
	struct mock *m = ctx;

	for (size_t l = 0; l < MOCK_BYTES / MOCK_LINE; l++) {
		if (m->side.flushed[l])
			mock_evict(m, l);
		m->side.flushed[l] = false;
	}
}

static void do_copy(void *ctx, void *to, const void *from, size_t len)
{
	struct mock *m = ctx;

	memcpy(to, from, len);
	mark_lines(m, to, len, m->dirty);
}

static void do_stream(void *ctx, void *to, const void *from, size_t len)
{
	do_copy(ctx, to, from, len);
	do_flush(ctx, to, len);
}

/* --- the target's end of the side connection --- */

static void keep_message(struct mock_side *s, const void *msg, size_t len)
{
	cr_assert_lt(s->nin, MOCK_QUEUE);
	cr_assert_leq(len, sizeof(s->in[0].bytes));
	s->in[s->nin].len = len;
	memcpy(s->in[s->nin++].bytes, msg, len);
}

static void say_signal(struct mock_side *s, enum rp_msg_type type)
{
	uint8_t msg[16];

	keep_message(s, msg,
		     (size_t)rp_wire_put_signal(msg, sizeof(msg), type));
}

void mock_side_idle(struct mock *m)
{
	m->side.ring_idle = true;
	say_signal(&m->side, RP_MSG_IDLE);
}

void mock_side_poll(struct mock *m)
{
	m->side.ring_idle = false;
	say_signal(&m->side, RP_MSG_POLLING);
}

static int send_message(const void *msg, size_t len, void *arg)
{
	struct mock_side *s = arg;

	if (s->drop_replies)
		s->drop_replies--;
	else
		keep_message(s, msg, len);
	return 0;
}

/* --- the connection --- */

static void add_completion(struct mock *m, uint64_t wr_id,
			   enum ibv_wc_opcode op, size_t len)
{
	cr_assert_lt(m->ndone, 2 * MOCK_QUEUE);
	m->done[m->ndone++] = (struct ibv_wc){
		.wr_id = wr_id,
		.status = m->side.error ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS,
		.opcode = m->side.error ? (enum ibv_wc_opcode)0x5a : op,
		.byte_len = (uint32_t)len,
		.qp_num = MOCK_SIDE,
	};
}

static bool empty_ring(struct mock_side *s)
{
	uint8_t msg[RP_RING_MSG];
	size_t len;

	if (!s->has_ring || s->error)
		return false;
	len = rp_ring_take(&s->ring, msg);
	if (len)
		side_host_received(&s->host, msg, len);
	return len;
}

static void hear_message(struct mock_side *s, const struct mock_msg *o)
{
	if (!side_host_is(o->bytes, o->len, RP_MSG_DOORBELL)) {
		side_host_received(&s->host, o->bytes, o->len);
		return;
	}
	cr_assert(s->has_ring);
	s->doorbells++;
	while (empty_ring(s))
		;
}

/*
 * Advance the clock to the time of the next refusal of a wrong key, which the
 * agent delays.
 */
static bool advance_to_refusals(struct mock_side *s)
{
	const uint64_t due = rp_agent_deadline(s->host.agent);

	if (due == UINT64_MAX || due > s->now + REFUSALS)
		return false;
	s->now = due;
	return rp_agent_progress(s->host.agent);
}

bool mock_side_step(struct mock *m)
{
	struct mock_side *s = &m->side;

	if (s->nout) {
		struct mock_msg o = s->out[0];

		memmove(s->out, s->out + 1, --s->nout * sizeof(o));
		if (!s->error)
			hear_message(s, &o);
		add_completion(m, o.wr_id, IBV_WC_SEND, o.len);
		return true;
	}
	if (s->error && s->nrecvs) {
		add_completion(m, s->recvs[--s->nrecvs].wr_id, IBV_WC_RECV, 0);
		return true;
	}
	if (s->nin && s->nrecvs) {
		memcpy(s->recvs[0].msg, s->in[0].bytes, s->in[0].len);
		add_completion(m, s->recvs[0].wr_id, IBV_WC_RECV, s->in[0].len);
		memmove(s->in, s->in + 1, --s->nin * sizeof(s->in[0]));
		memmove(s->recvs, s->recvs + 1,
			--s->nrecvs * sizeof(s->recvs[0]));
		return true;
	}
	return (!s->ring_idle && empty_ring(s)) ||
	       rp_agent_progress(s->host.agent) || advance_to_refusals(s);
}

void mock_side_channel_run(struct mock *m)
{
	while (mock_side_step(m))
		;
}

static uint64_t key_of(const struct rp_region *r, uint32_t random)
{
	const struct rp_key k = {
		.random = random,
		.class = r->choice.class,
		.method = r->choice.method,
	};

	return rp_key_make(&k);
}

void mock_side_init(struct mock *m)
{
	struct mock_side *s = &m->side;
	const struct rp_desc d = mock_desc(m);
	struct rp_region *r = &s->region;

	cr_assert_eq(side_host_init(&s->host, send_message, s, &s->now), 0);
	s->pmem = (struct rp_pmem_ops){
		.flush = do_flush,
		.drain = do_drain,
		.copy = do_copy,
		.stream = do_stream,
		.ctx = m,
	};
	r->base = m->visible;
	r->addr = MOCK_AT;
	r->len = MOCK_BYTES;
	r->writable = true;
	r->facts = (struct rp_facts){
		.memory = d.memory,
		.placement = d.placement,
		.domain = d.domain,
		.fence = d.fence,
		.native = RP_NO,
		.fs_trusted = d.fs_trusted,
		.agent = true,
	};
	r->choice = rp_method_best(&r->facts, RP_METHODS_BUILT);
	cr_assert_eq(
		rp_pmem_new(r->base, r->len,
			    rp_method_by_agent(&r->facts, r->choice).method,
			    NULL, &s->pmem, &r->pmem),
		0);
	r->key = key_of(r, 0xabcdef);
	cr_assert_eq(rp_agent_region_add(s->host.agent, r), 0);
	if (s->has_ring) {
		rp_ring_init(&s->ring, s->ring_in, NULL);
		s->ring_idle = true;
		s->side_end.ring_addr = MOCK_RING;
		s->side_end.ring_rkey = MOCK_RING_RKEY;
	}
	cr_assert_eq(rp_defer_begin(&m->q, &s->side_end, 0xc00c1e, MOCK_SIDE,
				    1000000000),
		     0);
}

void mock_side_reregister(struct mock *m)
{
	struct mock_side *s = &m->side;

	rp_agent_region_del(s->host.agent, &s->region);
	s->region.key = key_of(&s->region, 0xabcdee);
	cr_assert_eq(rp_agent_region_add(s->host.agent, &s->region), 0);
}

void mock_side_fini(struct mock *m)
{
	struct mock_side *s = &m->side;

	rp_agent_region_del(s->host.agent, &s->region);
	rp_pmem_delete(s->region.pmem);
	rp_agent_delete(s->host.agent);
}
