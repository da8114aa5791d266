// SPDX-License-Identifier: BSD-2-Clause
/* An agent with two regions (agent_sessions.h). */
#include <stdlib.h>

#include <criterion/criterion.h>

#include "agent_sessions.h"
#include "core/agent_priv.h"

struct bed g;
struct bed_region file, dax;
struct bed_region *const all[2] = {&file, &dax};

void start(const struct rp_agent_attr *attr)
{
	bed_init(&g, attr);
	bed_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
	bed_region(&g, &dax, RP_METHOD_AGENT_CLWB, 8);
}

void stop(void)
{
	for (int i = 0; i < 2; i++)
		if (!all[i]->gone)
			bed_region_del(&g, all[i]);
	bed_fini(&g);
}

void expect_refused(const struct rp_wire_hello *m, enum rp_status st)
{
	struct bed_request *r = bed_connect_request(&g, m);

	bed_refused(r, st);
	free(r);
}

struct bed_peer expect_accepted(const struct rp_wire_hello *m)
{
	struct bed_request *r = bed_connect_request(&g, m);
	struct bed_peer p = bed_accepted(r);

	free(r);
	return p;
}

enum rp_status show_key(uint64_t key, bool *at_once)
{
	const struct rp_wire_hello hello = bed_hello(key);
	struct bed_request *r = bed_connect_request(&g, &hello);
	enum rp_status st;

	*at_once = r->refused || r->accepted;
	while (!r->refused && !r->accepted) {
		g.now = rp_agent_deadline(g.a);
		rp_agent_progress(g.a);
	}
	st = r->accepted ? RP_ST_OK : (enum rp_status)r->ack.status;
	free(r);
	return st;
}

void wrong_key(struct bed_peer *p, bool query)
{
	uint64_t token = p->token, due;
	struct bed_msg m;

	bed_expect_nothing(p);
	due = rp_agent_deadline(g.a);
	cr_assert_geq(due, g.now + RP_AGENT_REFUSAL_DELAY_NS);
	/* Messages that arrive during the delay are dropped. */
	bed_request(p, RP_LEVEL_VISIBLE, 0, 0, NULL);
	bed_run(&g);
	bed_expect_nothing(p);
	g.now = due;
	bed_run(&g);
	cr_assert(bed_take(p, &m));
	cr_assert_eq(m.hdr.token, token);
	if (query) {
		cr_assert_eq(m.hdr.type, RP_MSG_INFO);
		cr_assert_eq(m.info.status, RP_ST_STALE_KEY);
		cr_assert_eq(m.info.grant.length, 0);
		cr_assert_eq(m.info.class, 0);
	} else {
		cr_assert_eq(m.hdr.type, RP_MSG_REPLY);
		cr_assert_eq(m.reply.status, RP_ST_STALE_KEY);
	}
	/* The connection stays open until the peer can have read the reply. */
	cr_assert_not(p->c->closed);
	g.now = rp_agent_deadline(g.a);
	cr_assert_eq(g.now, due + RP_AGENT_LINGER_NS);
	bed_run(&g);
	cr_assert(p->c->closed);
}

uint64_t send_query(struct bed_peer *p, uint64_t key)
{
	const struct rp_wire_query m = {.key = key};
	uint8_t buf[64];

	bed_recv(p, buf, rp_wire_put_query(buf, sizeof(buf), ++p->token, &m));
	return p->token;
}
