// SPDX-License-Identifier: BSD-2-Clause
/* Commits with effects, as tests post them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "effects_rig.h"

struct rig g;
struct rp_peer *p;
struct rig_told c0, c1, c2, c3;
struct rp_write w0;

void start(bool ordered)
{
	struct rp_initiator_attr attr = rig_attr();

	attr.ordered = ordered;
	rig_start(&g, &attr);
	p = rig_peer(&g);
}

int post(struct rig_told *t, const struct rp_wire_range *ranges, size_t n,
	 enum rp_effect effect, uint64_t addr)
{
	const struct rp_commit_attr attr = {
		.ranges = ranges,
		.nranges = n,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.effect = effect,
		.then = {rig_key(9), addr, 0x5107ed},
		.data = 0xda7a,
		.done = rig_done,
		.arg = t,
	};

	*t = (struct rig_told){0};
	return rp_commit_post(p, &attr);
}

void then(struct rig_told *t, uint64_t addr)
{
	struct rp_wire_range r = rig_range(1, 256, 64);

	cr_assert_eq(post(t, &r, 1, RP_EFFECT_THEN, addr), 0);
	cr_assert_eq(t->times, 0, "told from inside the post");
}

void notify(struct rig_told *t)
{
	struct rp_wire_range r = rig_range(1, 256, 64);

	cr_assert_eq(post(t, &r, 1, RP_EFFECT_NOTIFY, 0), 0);
}

uint64_t asked(enum rp_effect effect, uint64_t seq)
{
	struct rig_msg *m = rig_take(&g, RP_MSG_REQUEST);
	struct rp_wire_request r = rig_as_request(m);
	uint64_t token = m->hdr.token;

	cr_assert_eq(r.effect, effect);
	cr_assert_eq(r.seq, seq, "%llu is not %llu", (unsigned long long)r.seq,
		     (unsigned long long)seq);
	if (effect == RP_EFFECT_THEN) {
		cr_assert_eq(r.then.key, rig_key(9));
		cr_assert_eq(r.then.value, 0x5107ed);
	}
	if (effect == RP_EFFECT_NOTIFY)
		cr_assert_eq(r.data, 0xda7a);
	free(m);
	return token;
}

struct rig_session open_session(uint16_t credits)
{
	struct rig_session s;

	rig_commit(&g, p, &c3, 1, 0, 8);
	s = rig_open(&g, RIG_LIFE, credits);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c3, RP_ST_OK);
	return s;
}
