// SPDX-License-Identifier: BSD-2-Clause
/* A target's agent with hostile connection requests and messages. */
#include <errno.h>

#include "agent_world.h"
#include "core/atomic.h"

static uint64_t some_key(uint8_t choice)
{
	const struct region *r = &world.regions[choice % REGIONS];

	if (!r->live)
		return RP_KEY_MARK;
	/* Sometimes flip a bit, which makes a key that nobody has. */
	return r->r.key ^ (choice >> 6 == 3);
}

/* Mostly ranges inside a region, so that the agent has bytes to flush. */
static struct rp_wire_range some_range(struct fuzz_in *in, unsigned int most)
{
	uint8_t choice = fuzz_u8(in);
	struct rp_wire_range g = {.key = some_key(choice)};

	if (choice & 0x20) {
		g.addr = fuzz_u64(in);
		g.len = fuzz_u64(in) % (2 * most);
		return g;
	}
	g.addr = fuzz_u16(in) % (LENGTH + 2);
	g.len = 1 + fuzz_u16(in) % most;
	if (choice & 0x10) {
		g.addr &= ~7ull;
		g.len = 8;
	}
	if (choice % REGIONS == 1)
		g.addr += 0x7f0000000000;
	return g;
}

static int some_request(struct fuzz_in *in, uint8_t *buf)
{
	static uint8_t bytes[RP_WIRE_MAX_STORE];
	struct rp_wire_range ranges[8], then;
	uint8_t how = fuzz_u8(in), what = fuzz_u8(in);
	struct rp_wire_request m = {
		.level = 1 + (how & 1),
		.required = (how >> 1) % 3,
		.nranges = (how >> 3 & 7),
		.packed = how >> 6 & 1,
		.effect = what % 6,
		.ranges = ranges,
		.bytes = bytes,
	};
	unsigned int most = m.effect < RP_EFFECT_STORE ? 5000 : 400;

	for (unsigned int i = 0; i < m.nranges; i++)
		ranges[i] = some_range(in, most);
	memset(bytes, what, sizeof(bytes));
	if (m.effect == RP_EFFECT_THEN) {
		then = some_range(in, 8);
		m.then = (struct rp_wire_then){then.key, then.addr, what};
	}
	m.atomic = (struct rp_wire_atomic){
		.op = what / 6 % RP_ATOMIC_OPS,
		.datatype = how >> 4 & 7,
		.fetch = what >> 7,
		.operand = bytes,
		.compare = bytes,
	};
	return rp_wire_put_request(buf, RP_WIRE_MAX_MSG, fuzz_u8(in), &m);
}

static void receive_message(struct channel *c, const uint8_t *msg, size_t len)
{
	uint8_t *exact = fuzz_exact(msg, len);

	world_remember(c, exact, len);
	c->c.events->received(c->c.owner, exact, len);
	free(exact);
}

/* Deliver a REQUEST or a QUERY, valid unless `damage` is set. */
static void recv_made(struct fuzz_in *in, struct channel *c, int query,
		      int damage)
{
	struct rp_wire_query q;
	uint8_t buf[RP_WIRE_MAX_MSG];
	int len;

	if (query) {
		q.key = some_key(fuzz_u8(in));
		q.required = fuzz_u8(in) & 3;
		len = rp_wire_put_query(buf, sizeof(buf), fuzz_u8(in), &q);
	} else {
		len = some_request(in, buf);
	}
	if (len <= 0 || !c)
		return;
	if (damage) {
		uint16_t at = fuzz_u16(in);

		buf[at % (unsigned int)len] ^= fuzz_u8(in);
		if (at & 0x8000)
			len = at % len;
	}
	receive_message(c, buf, (size_t)len);
}

static void recv_raw(struct fuzz_in *in, struct channel *c)
{
	size_t len = fuzz_u16(in) % (RP_WIRE_MAX_MSG + 2);

	len = len < in->left ? len : in->left;
	if (c)
		receive_message(c, in->p, len);
	in->p += len;
	in->left -= len;
}

static void send_hello(struct fuzz_in *in, unsigned int who, int damage)
{
	uint8_t how = fuzz_u8(in);
	const struct rp_wire_hello m = {
		.key = some_key(how),
		.initiator = who,
		.timeout_ms = (uint32_t)how << (how >> 4),
		.features = how & RP_FEATURES,
	};
	uint8_t buf[RP_WIRE_CM_DATA] = {0}, *exact;
	size_t len = sizeof(buf);
	struct waiting *w = world.waiting;

	MUST(rp_wire_put_hello(buf, sizeof(buf), &m) > 0);
	while (w->used)
		MUST(++w < world.waiting + RP_AGENT_MAX_DELAYED + 1);
	w->used = 1;
	w->initiator = who;
	if (damage) {
		uint16_t at = fuzz_u16(in);

		/*
		 * Keep the initiator's number, by which the channel is found.
		 */
		if (at % len < 24 || at % len >= 32)
			buf[at % len] ^= fuzz_u8(in);
		if (at & 0x8000)
			len = at % len;
	}
	exact = fuzz_exact(buf, len);
	rp_agent_conn_request(world.agent, w, exact, len);
	free(exact);
}

static void check_limits(void)
{
	const struct rp_agent_session *s;
	unsigned int open = 0, delayed = 0;

	TAILQ_FOREACH (s, &world.agent->open, link) {
		MUST(s->backlog <= CREDITS + 1);
		open++;
	}
	TAILQ_FOREACH (s, &world.agent->ending, link)
		open++;
	MUST(world.agent->nsessions == open && open <= SESSIONS);
	MUST(world.ngrants <= open * REGIONS && world.ngrants >= open);
	for (unsigned int i = 0; i < RP_AGENT_MAX_DELAYED + 1; i++)
		delayed += (unsigned int)world.waiting[i].used;
	MUST(delayed <= world.agent->ndelayed);
	MUST(world.agent->ndelayed <= RP_AGENT_MAX_DELAYED);
}

static void lose_channel(uint8_t which)
{
	struct waiting *w = &world.waiting[which % RP_AGENT_MAX_DELAYED];

	if (!w->used)
		return;
	rp_agent_conn_request_gone(world.agent, w);
	w->used = 0;
}

/* One step. Bits 0 to 3 of op choose it; bit 4 makes it damaged or failing. */
static void one_step(struct fuzz_in *in)
{
	uint8_t op = fuzz_u8(in), v;
	unsigned int who = fuzz_u8(in) % INITIATORS;
	struct channel *c = world.of[who];
	int bad = op >> 4 & 1;

	world.steps++;
	switch (op & 15) {
	case 0:
		send_hello(in, who, bad);
		break;
	case 1:
	case 2:
	case 3:
		recv_made(in, c, 0, bad);
		break;
	case 4:
		recv_made(in, c, 1, bad);
		break;
	case 5:
		recv_raw(in, c);
		break;
	case 6:
		world.now += fuzz_u8(in) * 10000000ull;
		break;
	case 7:
		if (c)
			c->room = bad ? fuzz_u8(in) % 4 : -1;
		break;
	case 8:
		if (c)
			world_complete_sends(c, bad);
		break;
	case 9:
		v = fuzz_u8(in);
		world.accept_ret = bad && v % 3 == 0;
		world.grant_ret = bad && v % 3 == 1;
		world.notify_ret = bad && v % 3 == 2 ? -ENOMEM : 0;
		break;
	case 10:
		world.regions[2].sync_ret = bad ? -EIO : 0;
		break;
	case 11:
		v = fuzz_u8(in) % REGIONS;
		if (world.regions[v].live)
			world_region_del(v);
		else
			world_region_add(v);
		break;
	case 12:
		if (c)
			c->c.events->lost(c->c.owner, ECONNRESET, NULL, 0);
		break;
	case 13:
		if (bad)
			rp_agent_close_sessions(world.agent);
		else
			lose_channel(fuzz_u8(in));
		break;
	default:
		for (int i = 0; rp_agent_progress(world.agent); i++)
			MUST(i < 1000);
	}
	check_limits();
}

static void all_sent(void)
{
	for (unsigned int i = 0; i < INITIATORS; i++) {
		if (!world.of[i])
			continue;
		world.of[i]->room = -1;
		world_complete_sends(world.of[i], 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct rp_agent_attr attr = {
		.incarnation = INCARNATION,
		.max_sessions = SESSIONS,
		.credits = CREDITS,
		.max_jobs = JOBS,
		.no_worker = true,
	};
	struct fuzz_in in = {data, size};

	world_map();
	memset(world.waiting, 0, sizeof(world.waiting));
	world.accept_ret = world.grant_ret = world.notify_ret = 0;
	world.now = 1000000000;
	world.steps = 0;
	MUST(!rp_agent_new(&attr, &world.host, &world.agent));
	for (unsigned int i = 0; i < REGIONS; i++) {
		world.regions[i].registrations = 0;
		world_region_add(i);
	}
	while (in.left && world.steps < 400)
		one_step(&in);

	/* Accepted requests get their replies after sending works again. */
	for (int i = 0; rp_agent_backlog(world.agent); i++) {
		MUST(i < 1000);
		all_sent();
		world.now += 10000000;
		rp_agent_progress(world.agent);
	}
	for (unsigned int i = 0; i < REGIONS; i++)
		if (world.regions[i].live)
			world_region_del(i);
	rp_agent_delete(world.agent);
	MUST(!world.ngrants);
	for (unsigned int i = 0; i < RP_AGENT_MAX_DELAYED + 1; i++)
		MUST(!world.waiting[i].used);
	while (world.nchannels) {
		MUST(world.channels[--world.nchannels]->closed);
		free(world.channels[world.nchannels]);
	}
	while (world.nrequests)
		free(world.requests[--world.nrequests]);
	return 0;
}
