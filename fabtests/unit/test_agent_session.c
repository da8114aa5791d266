// SPDX-License-Identifier: BSD-2-Clause
/* Sessions at the agent: accepted, refused, replaced, granted, ended. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "agent_sessions.h"
#include "core/agent_priv.h"
#include "core/wire_layout.h"

/* --- connection requests --- */

Test(agent_session, hello_is_granted_its_key)
{
	struct rp_wire_hello hello;
	struct bed_peer p;

	start(NULL);
	file.r.addr = 0x7000000;
	hello = bed_hello(file.r.key);
	p = expect_accepted(&hello);
	cr_assert_eq(p.ack.credits, RP_AGENT_CREDITS);
	cr_assert_eq(p.ack.features, 0);
	cr_assert_eq(p.ack.grant.addr, 0x7000000);
	cr_assert_eq(p.ack.grant.remote_addr, (uintptr_t)file.r.base);
	cr_assert_eq(p.ack.grant.length, file.r.len);
	cr_assert_eq(p.ack.grant.class, RP_CLASS_POWER);
	cr_assert_eq(p.ack.grant.method, RP_METHOD_AGENT_MSYNC);
	cr_assert(p.ack.grant.writable);
	cr_assert_eq(g.grants->rkey, p.ack.grant.rkey);
	cr_assert_eq(g.a->nsessions, 1);
	cr_assert_eq(bed_stats(&g).accepted, 1);
	stop();
}

Test(agent_session, other_version_is_refused)
{
	struct rp_wire_hello hello;
	struct bed_request r = {.bed = &g};
	uint8_t buf[RP_WIRE_CM_DATA] = {0};

	start(NULL);
	hello = bed_hello(file.r.key);
	rp_wire_put_hello(buf, sizeof(buf), &hello);
	buf[2]++;
	rp_agent_conn_request(g.a, &r, buf, sizeof(buf));
	bed_refused(&r, RP_ST_VERSION);
	cr_assert_eq(bed_stats(&g).refused_connections, 1);
	cr_assert_eq(bed_stats(&g).wrong_keys, 0);
	stop();
}

Test(agent_session, malformed_hello_is_refused)
{
	struct rp_wire_hello hello;
	uint8_t buf[RP_WIRE_CM_DATA + 1] = {0};
	int len;

	start(NULL);
	hello = bed_hello(file.r.key);
	len = rp_wire_put_hello(buf, sizeof(buf), &hello);
	for (int i = 0; i < len; i++) {
		struct bed_request r = {.bed = &g};

		rp_agent_conn_request(g.a, &r, buf, (size_t)i);
		bed_refused(&r, RP_ST_BAD_MESSAGE);
	}
	cr_assert_eq(bed_stats(&g).bad_messages, (uint64_t)len);
	cr_assert_eq(g.a->nsessions, 0);
	cr_assert_null(g.grants);
	stop();
}

static bool is_peer(struct rp_channel *c, uint16_t port, void *arg)
{
	const struct bed_peer *p = arg;

	return c == &p->c->c && port == BED_PORT + 1;
}

/* Sessions on another channel or from another port stay open. */
Test(agent_session, peer_that_is_over_is_closed_alone)
{
	struct rp_wire_hello hello;
	struct bed_peer p[3];

	start(NULL);
	for (int i = 0; i < 3; i++) {
		hello = bed_hello(file.r.key);
		hello.port = (uint16_t)(BED_PORT + (i > 0));
		p[i] = expect_accepted(&hello);
	}
	rp_agent_close_peer(g.a, is_peer, &p[0]);
	cr_assert_eq(g.a->nsessions, 3);
	rp_agent_close_peer(g.a, is_peer, &p[1]);
	cr_assert_eq(g.a->nsessions, 2);
	cr_assert(p[1].c->closed);
	cr_assert(!p[0].c->closed && !p[2].c->closed);
	stop();
}

/* All kinds of wrong keys get the same status after the same delay. */
Test(agent_session, wrong_keys_are_refused_late_and_alike)
{
	struct bed_request *r[4];
	struct rp_wire_hello hello;
	uint64_t t0;

	start(NULL);
	t0 = g.now;
	for (int i = 0; i < 4; i++) {
		hello = bed_hello(file.r.key);
		switch (i) {
		case 0:
			hello.key ^= 1;
			break;
		case 1:
			hello.key = bed_unknown_key();
			break;
		case 2:
			hello.key ^= 1ull << 59;
			break;
		default:
			hello.key = 0x1234;
		}
		r[i] = bed_connect_request(&g, &hello);
		bed_run(&g);
		cr_assert_not(r[i]->refused || r[i]->accepted);
	}
	/* A request with a valid key does not wait behind delayed refusals. */
	bed_connect(&g, &file);
	cr_assert_eq(rp_agent_deadline(g.a), t0 + RP_AGENT_REFUSAL_DELAY_NS);
	for (int i = 0; i < 4; i++) {
		g.now = rp_agent_deadline(g.a) - 1;
		cr_assert_not(rp_agent_progress(g.a));
		cr_assert_not(r[i]->refused);
		g.now++;
		cr_assert(rp_agent_progress(g.a));
		bed_refused(r[i], RP_ST_STALE_KEY);
		cr_assert_eq(r[i]->ack.detail, 0);
		cr_assert(i == 3 || !r[i + 1]->refused);
		free(r[i]);
	}
	cr_assert_eq(g.now,
		     t0 + RP_AGENT_REFUSAL_DELAY_NS +
			     3 * (1000 * BED_MS / RP_AGENT_REFUSALS_PER_S));
	cr_assert_eq(rp_agent_deadline(g.a), UINT64_MAX);
	cr_assert_eq(bed_stats(&g).wrong_keys, 4);
	cr_assert_eq(rp_stats->refused_keys, 4);
	cr_assert_eq(rp_stats->refused, bed_stats(&g).refused_connections);
	cr_assert_eq(rp_stats->sessions, g.a->nsessions);
	cr_assert_eq(rp_stats->accepted, bed_stats(&g).accepted);
	cr_assert_eq(bed_stats(&g).refused_connections, 4);
	stop();
}

/* The agent checks few keys of a guessing host, over all connections. */
Test(agent_session, keys_of_a_guessing_host_are_not_checked)
{
	enum {
		N = RP_AGENT_DEBT + 200
	};
	const uint64_t interval = 1000 * BED_MS / RP_AGENT_REFUSALS_PER_S;
	struct bed_request *r[N];
	unsigned int nchecked = 0;
	bool at_once;

	start(NULL);
	g.source = 7;
	for (int i = 0; i < N; i++) {
		const struct rp_wire_hello hello = bed_hello(bed_unknown_key());

		r[i] = bed_connect_request(&g, &hello);
		if (r[i]->refused && r[i]->ack.status == RP_ST_OVERLOADED)
			continue;
		nchecked++;
	}
	cr_assert_eq(nchecked, RP_AGENT_DEBT + 1);
	cr_assert_eq(bed_stats(&g).wrong_keys, nchecked);
	/* Now a valid key of that host gets the same status as a wrong key. */
	cr_assert_eq(show_key(file.r.key, &at_once), RP_ST_OVERLOADED);
	cr_assert(at_once);
	/* Keys of another host are checked, and refused after the delay. */
	g.source = 8;
	cr_assert_eq(show_key(file.r.key, &at_once), RP_ST_OK);
	cr_assert_eq(show_key(bed_unknown_key(), &at_once), RP_ST_STALE_KEY);
	cr_assert_not(at_once);
	for (int i = 0; i < N; i++) {
		cr_assert(r[i]->refused);
		free(r[i]);
	}
	/* After a while the agent checks a key of the first host again. */
	g.source = 7;
	g.now += interval;
	cr_assert_eq(show_key(file.r.key, &at_once), RP_ST_OK);
	stop();
}

/* The agent's table of hosts never drops the host with most wrong keys. */
Test(agent_session, other_hosts_do_not_hide_a_guessing_host)
{
	struct bed_request *r[RP_AGENT_DEBT + 1 + 2 * RP_AGENT_MAX_SOURCES];
	const size_t n = sizeof(r) / sizeof(*r);
	bool at_once;

	start(NULL);
	for (size_t i = 0; i < n; i++) {
		const struct rp_wire_hello hello = bed_hello(bed_unknown_key());

		g.source = i <= RP_AGENT_DEBT ? 7 : 100 + i;
		r[i] = bed_connect_request(&g, &hello);
	}
	g.source = 7;
	cr_assert_eq(show_key(file.r.key, &at_once), RP_ST_OVERLOADED);
	g.now += 60000 * BED_MS;
	bed_run(&g);
	for (size_t i = 0; i < n; i++) {
		bed_refused(r[i], RP_ST_STALE_KEY);
		free(r[i]);
	}
	stop();
}

/*
 * The table has room for RP_AGENT_MAX_SOURCES guessing hosts; a request whose
 * host is unknown (source 0) takes no entry.
 */
Test(agent_session, all_guessing_hosts_of_the_table_are_remembered)
{
	enum {
		EACH = RP_AGENT_DEBT + 1,
		N = EACH * (RP_AGENT_MAX_SOURCES + 1)
	};
	static struct bed_request *r[N];
	bool at_once;

	start(NULL);
	for (int i = 0; i < N; i++) {
		const struct rp_wire_hello hello = bed_hello(bed_unknown_key());

		g.source = i / EACH;
		r[i] = bed_connect_request(&g, &hello);
	}
	for (g.source = 1; g.source <= RP_AGENT_MAX_SOURCES; g.source++)
		cr_assert_eq(show_key(file.r.key, &at_once), RP_ST_OVERLOADED);
	g.source = 0;
	cr_assert_eq(show_key(file.r.key, &at_once), RP_ST_OK);
	g.now += 60000 * BED_MS;
	bed_run(&g);
	for (int i = 0; i < N; i++)
		free(r[i]);
	stop();
}

/*
 * If the transport does not know the hosts of requests, wrong keys are refused
 * late and not counted.
 */
Test(agent_session, host_that_is_not_known_is_not_counted)
{
	struct bed_request *r[RP_AGENT_DEBT + 1];
	struct rp_agent_host_ops ops;
	bool at_once;

	start(NULL);
	ops = *g.host.ops;
	ops.source = NULL;
	g.host.ops = &ops;
	for (int i = 0; i <= RP_AGENT_DEBT; i++) {
		const struct rp_wire_hello hello = bed_hello(bed_unknown_key());

		r[i] = bed_connect_request(&g, &hello);
	}
	cr_assert_eq(show_key(file.r.key, &at_once), RP_ST_OK);
	stop();
	for (int i = 0; i <= RP_AGENT_DEBT; i++)
		free(r[i]);
}

Test(agent_session, delayed_refusals_are_bounded)
{
	enum {
		N = 2 * RP_AGENT_MAX_DELAYED
	};
	struct bed_request *r[N];

	start(NULL);
	for (int i = 0; i < N; i++) {
		const struct rp_wire_hello hello = bed_hello(bed_unknown_key());

		r[i] = bed_connect_request(&g, &hello);
		cr_assert_not(r[i]->refused);
	}
	/* The oldest delayed refusals were sent early to make room. */
	for (int i = 0; i < N; i++)
		cr_assert_eq(r[i]->refused, i < RP_AGENT_MAX_DELAYED);
	/* A request that the transport has dropped gets no reply. */
	rp_agent_conn_request_gone(g.a, r[N - 2]);
	rp_agent_conn_request_gone(g.a, r[N - 2]);
	free(r[N - 2]);
	r[N - 2] = NULL;
	/* The longest delay of a refusal. */
	g.now += RP_AGENT_MAX_DELAYED *
			 (1000 * BED_MS / RP_AGENT_REFUSALS_PER_S) -
		 1;
	bed_run(&g);
	cr_assert(!r[N - 1]->refused);
	g.now++;
	bed_run(&g);
	for (int i = 0; i < N; i++)
		if (r[i])
			bed_refused(r[i], RP_ST_STALE_KEY);
	for (int i = 0; i < N; i++)
		free(r[i]);
	stop();
}

Test(agent_session, the_end_refuses_what_is_delayed)
{
	struct rp_wire_hello hello;
	struct bed_request *r;

	start(NULL);
	hello = bed_hello(bed_unknown_key());
	r = bed_connect_request(&g, &hello);
	stop();
	bed_refused(r, RP_ST_STALE_KEY);
	free(r);
}

Test(agent_session, the_log_is_not_flooded)
{
	struct bed_request *r[100];
	struct rp_wire_hello hello;

	start(NULL);
	hello = bed_hello(bed_unknown_key());
	for (int i = 0; i < 100; i++) {
		r[i] = bed_connect_request(&g, &hello);
		g.now += 50 * BED_MS;
		bed_run(&g);
	}
	cr_assert_eq(g.warnings, 1);
	g.now += RP_AGENT_WARN_NS;
	free(r[0]);
	r[0] = bed_connect_request(&g, &hello);
	cr_assert_eq(g.warnings, 2);
	g.now += RP_AGENT_WARN_NS;
	bed_run(&g);
	for (int i = 0; i < 100; i++)
		free(r[i]);
	stop();
}

/* --- one session per initiator, and a limit for all --- */

Test(agent_session, older_session_ends_before_the_newer_is_accepted)
{
	struct rp_wire_hello hello;
	struct bed_peer p, q, other;
	struct bed_request *r;

	start(NULL);
	hello = bed_hello(file.r.key);
	other = bed_connect(&g, &file);
	p = expect_accepted(&hello);
	bed_commit(&p, &file, 0, 8);
	q = expect_accepted(&hello);
	cr_assert(p.c->closed);
	cr_assert_not(other.c->closed);
	/* The requests of the older session are dropped. */
	bed_run(&g);
	cr_assert_eq(file.syncs, 0);
	bed_expect_nothing(&q);
	cr_assert_eq(g.a->nsessions, 2);
	/* A request with a wrong key ends no existing session. */
	hello.key++;
	r = bed_connect_request(&g, &hello);
	cr_assert_not(q.c->closed);
	stop();
	free(r);
}

Test(agent_session, silent_sessions_make_room)
{
	const struct rp_agent_attr attr = {
		.incarnation = BED_INCARNATION,
		.no_worker = true,
		.max_sessions = 3,
	};
	struct rp_wire_hello hello;
	struct bed_peer p[3], q;

	start(&attr);
	for (int i = 0; i < 3; i++)
		p[i] = bed_connect(&g, &file);
	/* The first has an outstanding request; the second was used last. */
	bed_commit(&p[0], &file, 0, 8);
	bed_expect(&p[1], bed_request(&p[1], RP_LEVEL_VISIBLE, 0, 0, NULL),
		   RP_ST_OK);
	q = bed_connect(&g, &file);
	cr_assert(p[2].c->closed);
	cr_assert_not(p[0].c->closed || p[1].c->closed);
	bed_commit(&p[1], &file, 0, 8);
	bed_commit(&q, &file, 0, 8);
	hello = bed_hello(file.r.key);
	expect_refused(&hello, RP_ST_OVERLOADED);
	cr_assert_eq(g.a->nsessions, 3);
	bed_run(&g);
	bed_expect(&p[0], p[0].token, RP_ST_OK);
	bed_expect(&p[1], p[1].token, RP_ST_OK);
	bed_expect(&q, q.token, RP_ST_OK);
	expect_accepted(&hello);
	cr_assert(p[0].c->closed);
	stop();
}

Test(agent_session, failed_accept_leaves_nothing)
{
	struct rp_wire_hello hello;
	struct bed_request *r;

	start(NULL);
	hello = bed_hello(file.r.key);
	g.grant_ret = -ENOMEM;
	expect_refused(&hello, RP_ST_OVERLOADED);
	g.grant_ret = 0;
	g.accept_ret = -ECONNABORTED;
	r = bed_connect_request(&g, &hello);
	cr_assert_eq(r->ack.status, RP_ST_OK, "it was to be accepted");
	cr_assert(g.grants->revoked);
	free(r);
	g.accept_ret = 0;
	cr_assert_eq(g.a->nsessions, 0);
	expect_accepted(&hello);
	stop();
}

/* --- grants --- */

Test(agent_session, query_grants_once)
{
	struct rp_wire_info a, b;
	struct bed_peer p, q;
	unsigned int n = 0;

	start(NULL);
	p = bed_connect(&g, &file);
	q = bed_connect(&g, &file);
	cr_assert_neq(p.ack.grant.rkey, q.ack.grant.rkey);
	a = bed_query(&p, dax.r.key, RP_CLASS_POWER);
	b = bed_query(&p, dax.r.key, RP_CLASS_PROCESS);
	cr_assert_eq(a.status, RP_ST_OK);
	cr_assert_eq(a.grant.rkey, b.grant.rkey);
	cr_assert_neq(a.grant.rkey, p.ack.grant.rkey);
	cr_assert_eq(g.grants->channel, p.c);
	cr_assert_eq(bed_query(&p, file.r.key, 0).grant.rkey, p.ack.grant.rkey);
	for (struct bed_grant *k = g.grants; k; k = k->next)
		n++;
	cr_assert_eq(n, 3);
	/* A commit that is refused for its class still leaves RDMA allowed. */
	dax.r.facts.limit = RP_LIMIT_PROCESS;
	g.grant_ret = -ENOMEM;
	a = bed_query(&q, dax.r.key, RP_CLASS_POWER);
	cr_assert_eq(a.status, RP_ST_CLASS);
	cr_assert_eq(a.grant.length, 0);
	a = bed_query(&q, dax.r.key, RP_CLASS_PROCESS);
	cr_assert_eq(a.status, RP_ST_OVERLOADED);
	g.grant_ret = 0;
	a = bed_query(&q, dax.r.key, RP_CLASS_POWER);
	cr_assert_eq(a.status, RP_ST_CLASS);
	cr_assert_eq(a.grant.length, dax.r.len);
	cr_assert_not(q.c->closed);
	stop();
}

/* A grant names only a method that its connection can execute. */
Test(agent_session, method_is_that_of_the_connection)
{
	enum {
		FENCES = RP_CHANNEL_FENCES,
		FLUSHES = RP_CHANNEL_FLUSHES
	};
	static const struct {
		struct rp_facts f;
		enum rp_method best;
		uint32_t flags;
		bool native; /* the initiator's device has FLUSH */
		enum rp_method nchecked;
	} t[] = {
		/* Method native needs FLUSH in both devices and the memory. */
		{{RP_MEM_DAX_SYNC, RP_PLACE_DMA_CACHE, RP_DOMAIN_MEMCTRL,
		  .native = RP_YES},
		 RP_METHOD_NATIVE,
		 FLUSHES,
		 true,
		 RP_METHOD_NATIVE},
		{{RP_MEM_DAX_SYNC, RP_PLACE_DMA_CACHE, RP_DOMAIN_MEMCTRL,
		  .native = RP_YES},
		 RP_METHOD_NATIVE,
		 FLUSHES,
		 false,
		 RP_METHOD_AGENT_CLWB},
		{{RP_MEM_DAX_SYNC, RP_PLACE_DMA_CACHE, RP_DOMAIN_MEMCTRL,
		  .native = RP_YES},
		 RP_METHOD_NATIVE,
		 0,
		 true,
		 RP_METHOD_AGENT_CLWB},
		/* Method fence needs a channel whose reads fence. */
		{{RP_MEM_DAX_SYNC, RP_PLACE_DMA_MEMORY, RP_DOMAIN_MEMCTRL,
		  .fence = RP_YES},
		 RP_METHOD_FENCE,
		 FENCES,
		 false,
		 RP_METHOD_FENCE},
		{{RP_MEM_DAX_SYNC, RP_PLACE_DMA_MEMORY, RP_DOMAIN_MEMCTRL,
		  .fence = RP_YES},
		 RP_METHOD_FENCE,
		 0,
		 false,
		 RP_METHOD_AGENT_CLWB},
		/*
		 * A device may acknowledge a write before its placement, so
		 * delivery alone does not suffice there.
		 */
		{{RP_MEM_DAX_SYNC, RP_PLACE_CPU_USER, RP_DOMAIN_SYSTEM,
		  .fence = RP_NO},
		 RP_METHOD_DELIVERY,
		 FENCES,
		 false,
		 RP_METHOD_DELIVERY},
		{{RP_MEM_DAX_SYNC, RP_PLACE_DMA_CACHE, RP_DOMAIN_SYSTEM,
		  .fence = RP_NO},
		 RP_METHOD_DELIVERY,
		 FENCES,
		 false,
		 RP_METHOD_AGENT_SFENCE},
		{{RP_MEM_DAX_SYNC, RP_PLACE_DMA_CACHE, RP_DOMAIN_SYSTEM,
		  .fence = RP_YES},
		 RP_METHOD_DELIVERY,
		 FENCES,
		 false,
		 RP_METHOD_FENCE},
		{{RP_MEM_DAX_SYNC, RP_PLACE_DMA_CACHE, RP_DOMAIN_SYSTEM,
		  .fence = RP_YES},
		 RP_METHOD_DELIVERY,
		 0,
		 false,
		 RP_METHOD_AGENT_SFENCE},
		/* The agent's methods need no property of the connection. */
		{{RP_MEM_FILE, RP_PLACE_CPU_USER, RP_DOMAIN_MEMCTRL,
		  .fs_trusted = RP_YES},
		 RP_METHOD_AGENT_MSYNC,
		 FENCES | FLUSHES,
		 true,
		 RP_METHOD_AGENT_MSYNC},
	};

	start(NULL);
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct rp_facts f = t[i].f;
		enum rp_method by_agent;
		struct rp_wire_hello hello;
		struct bed_region m;
		struct bed_peer p, q;

		f.agent = true;
		f.fs_trusted = RP_YES;
		g.flags = t[i].flags;
		bed_region_facts(&g, &m, &f, 1);
		cr_assert_eq(m.r.choice.method, t[i].best, "case %zu: %s", i,
			     rp_method_name(m.r.choice.method));
		hello = bed_hello(m.r.key);
		hello.features = t[i].native ? RP_FEATURE_NATIVE : 0;
		p = expect_accepted(&hello);
		cr_assert_eq(p.ack.grant.method, t[i].nchecked, "case %zu: %s",
			     i, rp_method_name(p.ack.grant.method));
		cr_assert_eq(p.ack.features,
			     t[i].native && (t[i].flags & FLUSHES)
				     ? RP_FEATURE_NATIVE
				     : 0);
		/* INFO names the method that HELLO_ACK has granted. */
		hello = bed_hello(file.r.key);
		hello.features = t[i].native ? RP_FEATURE_NATIVE : 0;
		q = expect_accepted(&hello);
		cr_assert_eq(bed_query(&q, m.r.key, 0).grant.method,
			     t[i].nchecked);
		/* The device has FLUSH, but refuses it for this memory. */
		g.no_native = true;
		q = expect_accepted(&hello);
		cr_assert_eq(bed_query(&q, m.r.key, 0).grant.method,
			     t[i].nchecked == RP_METHOD_NATIVE
				     ? RP_METHOD_AGENT_CLWB
				     : t[i].nchecked);
		g.no_native = false;
		/* A fence is a read; commits after delivery may need one. */
		if (t[i].nchecked == RP_METHOD_DELIVERY ||
		    t[i].nchecked == RP_METHOD_FENCE)
			by_agent = f.domain == RP_DOMAIN_SYSTEM
					   ? RP_METHOD_AGENT_SFENCE
					   : RP_METHOD_AGENT_CLWB;
		else
			by_agent = t[i].nchecked;
		m.r.unreadable = true;
		q = expect_accepted(&hello);
		cr_assert_eq(bed_query(&q, m.r.key, 0).grant.method, by_agent,
			     "case %zu", i);
		cr_assert(bed_query(&q, m.r.key, 0).grant.unreadable);
		bed_region_del(&g, &m);
	}
	stop();
}

Test(agent_session, volatile_region_is_none)
{
	struct rp_region r = {.key = bed_unknown_key(), .len = 64};

	start(NULL);
	cr_assert_eq(rp_agent_region_add(g.a, &r), -EINVAL);
	stop();
}

Test(agent_session, read_only_region_is_granted_read_only)
{
	struct bed_peer p;

	start(NULL);
	dax.r.writable = false;
	p = bed_connect(&g, &dax);
	cr_assert_not(p.ack.grant.writable);
	bed_expect(&p, bed_commit(&p, &dax, 0, 64), RP_ST_OK);
	bed_expect(&p, bed_notify(&p, (struct bed_at){&dax, 0, 8}, 1),
		   RP_ST_ACCESS);
	cr_assert_not(p.c->closed);
	stop();
}

/* --- the end --- */

Test(agent_session, loss_ends_the_session)
{
	struct bed_peer p, q;

	start(NULL);
	p = bed_connect_all(&g, all, 2);
	q = bed_connect(&g, &file);
	bed_commit(&p, &file, 0, 8);
	bed_commit(&q, &file, 0, 8);
	bed_lose(&p);
	cr_assert(p.c->closed);
	cr_assert_eq(g.a->nsessions, 1);
	bed_run(&g);
	bed_expect_nothing(&p);
	bed_expect(&q, q.token, RP_ST_OK);
	stop();
}

/* Sessions with a grant for the region end before its memory is released. */
Test(agent_session, region_ends_its_sessions)
{
	struct bed_peer p, q, r;
	uint64_t key;

	start(NULL);
	p = bed_connect_all(&g, all, 2);
	q = bed_connect(&g, &file);
	r = bed_connect(&g, &dax);
	bed_commit(&p, &file, 0, 8);
	bed_commit(&q, &file, 0, 8);
	key = dax.r.key;
	bed_region_del(&g, &dax);
	cr_assert(p.c->closed && r.c->closed);
	cr_assert_not(q.c->closed);
	bed_run(&g);
	bed_expect(&q, q.token, RP_ST_OK);
	send_query(&q, key);
	wrong_key(&q, true);
	stop();
}

/* Without RDMA, deregistration ends only requests on the region. */
Test(agent_session, channels_without_rdma)
{
	const struct rp_agent_attr attr = {
		.incarnation = BED_INCARNATION,
		.no_worker = true,
		.messages_only = true,
	};
	struct rp_wire_reply r;
	struct bed_peer p;
	uint64_t key, t;

	start(&attr);
	key = dax.r.key;
	p = bed_connect(&g, &file);
	cr_assert_null(g.grants);
	/* A commit may use a key that no QUERY has named. */
	bed_expect(&p, bed_commit(&p, &dax, 0, 8), RP_ST_OK);
	t = bed_commit(&p, &file, 0, 8);
	bed_ordered_store(&p, (struct bed_at){&file, 64, 8}, &dax, 64, 1);
	bed_commit(&p, &file, 128, 8);
	memset(g.must_be_durable, 0, sizeof(g.must_be_durable));
	bed_region_del(&g, &dax);
	cr_assert_not(p.c->closed);
	r = bed_expect(&p, t + 1, RP_ST_STALE_KEY);
	cr_assert_eq(r.range, 1);
	cr_assert_eq(r.detail, 0);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_OK);
	bed_expect(&p, t + 2, RP_ST_OK);
	/* From now on this key is a wrong key. */
	bed_request(&p, RP_LEVEL_VISIBLE, 0, 1,
		    &(struct rp_wire_range){key, 0, 8});
	wrong_key(&p, false);
	/* A session stays open even when its only region is deregistered. */
	p = bed_connect(&g, &file);
	t = bed_commit(&p, &file, 0, 8);
	bed_region_del(&g, &file);
	r = bed_expect(&p, t, RP_ST_STALE_KEY);
	cr_assert_eq(r.range, 0);
	cr_assert_eq(r.detail, 0);
	cr_assert_not(p.c->closed);
	stop();
}

Test(agent_session, all_sessions_end_at_once)
{
	struct bed_peer p, q;

	start(NULL);
	p = bed_connect(&g, &file);
	q = bed_connect(&g, &file);
	bed_recv(&q, "x", 1);
	bed_commit(&p, &file, 0, 8);
	rp_agent_close_sessions(g.a);
	cr_assert(p.c->closed && q.c->closed);
	cr_assert_eq(g.a->nsessions, 0);
	cr_assert_not(rp_agent_progress(g.a));
	cr_assert_eq(file.syncs, 0);
	stop();
}
