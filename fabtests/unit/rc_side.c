// SPDX-License-Identifier: BSD-2-Clause
/* The model's target has the real agent, and memory that only a drain keeps. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_mock.h"

static struct mock_side *side_of(struct rp_xport *x)
{
	return (struct mock_side *)((char *)x - offsetof(struct mock_side, x));
}

/* --- the target's CPU --- */

static void lines(struct mock *m, const void *addr, size_t len, bool *which)
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
		lines(m, addr, len, m->side.flushed);
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
	lines(m, to, len, m->dirty);
}

static void do_stream(void *ctx, void *to, const void *from, size_t len)
{
	do_copy(ctx, to, from, len);
	do_flush(ctx, to, len);
}

/* --- its end of the side connection --- */

static uint64_t x_now(struct rp_xport *x)
{
	return side_of(x)->now;
}

static void say(struct mock_side *s, const void *msg, size_t len)
{
	cr_assert_lt(s->nin, MOCK_QUEUE);
	cr_assert_leq(len, sizeof(s->in[0].bytes));
	s->in[s->nin].len = len;
	memcpy(s->in[s->nin++].bytes, msg, len);
}

static void say_note(struct mock_side *s, enum rp_note what)
{
	uint8_t note[RP_NOTE_LEN];

	rp_note_put(note, what);
	say(s, note, sizeof(note));
}

void mock_side_sleep(struct mock *m)
{
	m->side.asleep = true;
	say_note(&m->side, RP_NOTE_ASLEEP);
}

void mock_side_wake(struct mock *m)
{
	m->side.asleep = false;
	say_note(&m->side, RP_NOTE_AWAKE);
}

static int x_send(struct rp_xport *x, uint64_t peer, const void *msg,
		  size_t len)
{
	struct mock_side *s = side_of(x);

	if (s->answer) {
		s->answer--;
		return 0;
	}
	say(s, msg, len);
	return 0;
}

static int x_peer_get(struct rp_xport *x, const void *addr, size_t len,
		      uint64_t *peer)
{
	uint8_t name[RP_ASK_NAME];

	rp_ask_name(MOCK_SIDE, name);
	*peer = 0;
	return len == sizeof(name) && !memcmp(addr, name, len) ? 0 : -EINVAL;
}

static void x_peer_put(struct rp_xport *x, uint64_t peer)
{
}

static int x_random(struct rp_xport *x, void *buf, size_t len)
{
	memset(buf, 0x5a, len);
	return 0;
}

static void x_kick(struct rp_xport *x)
{
}

static const struct rp_xport_ops x_ops = {
	.now = x_now,
	.send = x_send,
	.peer_get = x_peer_get,
	.peer_put = x_peer_put,
	.random = x_random,
	.kick = x_kick,
};

/* --- the connection --- */

static void completed(struct mock *m, uint64_t wr_id, enum ibv_wc_opcode op,
		      size_t len)
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

static bool empty_box(struct mock_side *s)
{
	uint8_t msg[RP_MAILBOX_SHORT];
	size_t len;

	if (!s->has_box || s->error)
		return false;
	len = rp_mailbox_take(&s->box, msg);
	if (len)
		rp_agent_recv(s->agent, &s->x, msg, len);
	return len;
}

static void heard(struct mock_side *s, const struct mock_msg *o)
{
	enum rp_note note;

	if (!rp_note_get(o->bytes, o->len, &note)) {
		rp_agent_recv(s->agent, &s->x, o->bytes, o->len);
		return;
	}
	cr_assert_eq(note, RP_NOTE_LOOK);
	cr_assert(s->has_box);
	s->looks++;
	while (empty_box(s))
		;
}

bool mock_side_step(struct mock *m)
{
	struct mock_side *s = &m->side;

	if (s->nout) {
		struct mock_msg o = s->out[0];

		memmove(s->out, s->out + 1, --s->nout * sizeof(o));
		if (!s->error)
			heard(s, &o);
		completed(m, o.wr_id, IBV_WC_SEND, o.len);
		return true;
	}
	if (s->error && s->nlistens) {
		completed(m, s->listens[--s->nlistens].wr_id, IBV_WC_RECV, 0);
		return true;
	}
	if (s->nin && s->nlistens) {
		memcpy(s->listens[0].msg, s->in[0].bytes, s->in[0].len);
		completed(m, s->listens[0].wr_id, IBV_WC_RECV, s->in[0].len);
		memmove(s->in, s->in + 1, --s->nin * sizeof(s->in[0]));
		memmove(s->listens, s->listens + 1,
			--s->nlistens * sizeof(s->listens[0]));
		return true;
	}
	return (!s->asleep && empty_box(s)) || rp_agent_progress(s->agent);
}

void mock_side_run(struct mock *m)
{
	while (mock_side_step(m))
		;
}

static uint64_t key_of(const struct rp_region *r, uint32_t random)
{
	const struct rp_key k = {
		.base = MOCK_RKEY,
		.random = random,
		.persistent = true,
		.class = r->choice.class,
		.method = r->choice.method,
	};

	return rp_key_make(&k);
}

void mock_side_init(struct mock *m)
{
	const struct rp_agent_attr attr = {
		.incarnation = 0x1cca,
		.proved = true,
		.no_worker = true,
	};
	struct mock_side *s = &m->side;
	const struct rp_desc d = mock_desc(m);
	struct rp_region *r = &s->region;

	s->x.ops = &x_ops;
	cr_assert_eq(rp_agent_new(&attr, &s->agent), 0);
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
		.told = RP_YES,
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
	cr_assert_eq(rp_agent_region_add(s->agent, r), 0);
	if (s->has_box) {
		rp_mailbox_init_short(&s->box, s->box_in, NULL);
		s->asleep = true;
		s->asker.box_addr = MOCK_BOX;
		s->asker.box_rkey = MOCK_BOX_RKEY;
	}
	cr_assert_eq(rp_order_begin(&m->q, &s->asker, 0xc00c1e, MOCK_SIDE,
				    1000000000),
		     0);
}

void mock_side_again(struct mock *m)
{
	struct mock_side *s = &m->side;

	rp_agent_region_del(s->agent, &s->region);
	s->region.key = key_of(&s->region, 0xabcdee);
	cr_assert_eq(rp_agent_region_add(s->agent, &s->region), 0);
}

void mock_side_fini(struct mock *m)
{
	struct mock_side *s = &m->side;

	rp_agent_drop_xport(s->agent, &s->x);
	rp_agent_region_del(s->agent, &s->region);
	rp_pmem_delete(s->region.pmem);
	rp_agent_delete(s->agent);
}
