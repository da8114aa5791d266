/* SPDX-License-Identifier: BSD-2-Clause */
/* A session's connection: connecting, grants, deadlines, loss. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/log.h"
#include "session_bed.h"

static struct report a, b;

static unsigned int warnings, infos;

static char last_line[128];

static void count_log_line(enum rp_log_level level, const char *text)
{
	snprintf(last_line, sizeof(last_line), "%s", text);
	warnings += level == RP_LOG_WARN;
	infos += level == RP_LOG_INFO;
}

static void start(void)
{
	rp_log_set(count_log_line);
	warnings = infos = 0;
	bed_start(NULL);
}

TestSuite(session, .init = start, .fini = bed_stop);

/* The first operation connects; -EAGAIN until the target has accepted. */
Test(session, first_operation_connects)
{
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_IDLE);
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 4096, 0)), -EAGAIN);
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_CONNECTING);
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 4096, 0)), -EAGAIN);
	cr_assert_eq(bed.nconnects, 1);
	cr_assert_eq(bed.hello.key, bed_key(1));
	cr_assert_neq(bed.hello.initiator, 0);
	cr_assert_eq(bed.hello.timeout_ms, 5000);
	cr_assert_eq(bed.hello.features, 0);
	bed_accept();
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_OPEN);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	cr_assert_eq(bed_see_kind(RP_CHANNEL_WRITE)->remote_addr, BED_REMOTE);
	bed_done_all();
	expect_ok(&a);
}

Test(session, hello_has_the_native_feature)
{
	struct rp_session_attr attr = bed_attr();

	bed_stop();
	attr.native = true;
	bed_start(&attr);
	cr_assert_eq(bed_post_result(op_read(&a, 1, 0, 8)), -EAGAIN);
	cr_assert_eq(bed.hello.features, RP_FEATURE_NATIVE);
}

/* The field of the HELLO has 32 bits. */
Test(session, hello_has_the_longest_timeout)
{
	struct rp_session_attr attr = bed_attr();

	bed_stop();
	attr.timeout_ns = (UINT32_MAX + 7ull) * BED_MS;
	bed_start(&attr);
	cr_assert_eq(bed_post_result(op_read(&a, 1, 0, 8)), -EAGAIN);
	cr_assert_eq(bed.hello.timeout_ms, UINT32_MAX);
}

/* An initiator of 0 would be no name. */
Test(session, initiator_is_not_zero)
{
	struct rp_session_attr attr = bed_attr();
	struct sockaddr_storage to = {.ss_family = AF_INET};
	struct rp_session *s;

	bed.random_zero = true;
	cr_assert_eq(rp_session_new(&bed.k, &attr, &to, sizeof(to), &s), 0);
	cr_assert_eq(s->initiator, 1);
	rp_session_delete(s);
}

/* A write fails; its outcome and the line of the log name the target. */
static void expect_named(const char *target, const char *form)
{
	char want[128];

	snprintf(want, sizeof(want), form, target);
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, RP_ST_LOST);
	cr_assert_str_eq(a.out.target, target);
	cr_assert_eq(infos, 1);
	cr_assert_str_eq(last_line, want);
	infos = 0;
}

Test(session, target_is_named_by_address_and_port)
{
	const struct sockaddr_in v4 = {
		.sin_family = AF_INET,
		.sin_port = htons(4711),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	const struct sockaddr_in6 v6 = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(65535),
		.sin6_addr = IN6ADDR_LOOPBACK_INIT,
	};
	const struct {
		const void *addr;
		size_t len;
		const char *name;
	} cases[] = {
		{&v4, sizeof(v4), "127.0.0.1:4711"},
		{&v6, sizeof(v6), "[::1]:65535"},
		{"?", 1, "unknown address"},
	};
	struct rp_session_attr attr = bed_attr();

	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed_lose_connection(ECONNREFUSED);
	bed_progress();
	expect_named("0.0.0.0:7", "the connection to %s ends: connection lost");
	bed.connect_ret = -ENETUNREACH;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		rp_session_delete(bed.s);
		cr_assert_eq(rp_session_new(&bed.k, &attr, cases[i].addr,
					    cases[i].len, &bed.s),
			     0);
		expect_named(cases[i].name,
			     "cannot connect to %s: Network is unreachable");
	}
}

/* A refusal fails the next operation, so that no caller loops. */
static void expect_refused(enum rp_status st, uint32_t detail)
{
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed_refuse(st, detail);
	bed_progress();
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_IDLE);
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, st);
	cr_assert_eq(a.out.detail, detail);
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_IDLE);
	/* The operation after the failed one connects again. */
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	cr_assert_eq(bed.nconnects, 2);
}

Test(session, overload_ends_the_next_operation)
{
	expect_refused(RP_ST_OVERLOADED, 3);
}

Test(session, stale_key_ends_the_next_operation)
{
	expect_refused(RP_ST_STALE_KEY, 7);
}

Test(session, version_of_refusal_ends_the_next_operation)
{
	expect_refused(RP_ST_VERSION, 2);
}

/* Operations with another key may succeed, so they do not fail. */
static void refused_key(enum rp_status st)
{
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed_refuse(st, 0);
	bed_progress();
	cr_assert_eq(bed_post_result(op_write(&b, 2, 0, 64, 0)), -EAGAIN);
	cr_assert_eq(bed.hello.key, bed_key(2));
	bed_accept();
	bed_post(op_write(&b, 2, 0, 64, 0));
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, st);
	bed_stop();
	start();
}

Test(session, refused_key_affects_that_key_alone)
{
	refused_key(RP_ST_STALE_KEY);
	refused_key(RP_ST_UNKNOWN_KEY);
	refused_key(RP_ST_VOLATILE);
}

Test(session, dead_port_ends_the_next_operation)
{
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed_lose_connection(ECONNREFUSED);
	bed_progress();
	bed_post(op_query(&a, 2));
	expect_status(&a, RP_ST_LOST);
	cr_assert_eq(a.out.detail, ECONNREFUSED);
	cr_assert_eq(a.out.range, 0);
	cr_assert_eq(rp_stats->errors[RP_ST_LOST], 1);
	cr_assert_eq(rp_stats->started, 1);
	cr_assert_eq(rp_stats->connections, 0);
	cr_assert_eq(warnings, 0);
	cr_assert_eq(infos, 1);
}

Test(session, failed_connector_ends_the_operation)
{
	bed.connect_ret = -ENETUNREACH;
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, RP_ST_LOST);
	cr_assert_eq(a.out.detail, ENETUNREACH);
	cr_assert_eq(a.out.range, 0);
	bed.connect_ret = -ENOMEM;
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, RP_ST_NO_MEMORY);
}

Test(session, silence_while_connecting_ends_the_next_operation)
{
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	cr_assert_eq(rp_session_deadline(bed.s), bed.now + BED_TIMEOUT);
	bed_progress();
	/* Time alone is no sign of the target. */
	bed.now += BED_TIMEOUT - 1;
	cr_assert_eq(rp_session_deadline(bed.s), bed.now + 1);
	bed_progress();
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_CONNECTING);
	bed_advance_clock(1);
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_IDLE);
	cr_assert_eq(rp_session_deadline(bed.s), UINT64_MAX);
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, RP_ST_TIMEOUT);
	cr_assert_eq(a.out.detail, 0);
}

Test(session, foreign_listener_ends_the_next_operation)
{
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed.chan.events->connected(bed.chan.owner, "HTTP/1.1 400", 12);
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed_progress();
	cr_assert_eq(bed.ncloses, 1);
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, RP_ST_BAD_MESSAGE);

	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed.chan.events->lost(bed.chan.owner, ECONNREFUSED, "no", 2);
	/* The first failure counts, and is logged. */
	bed.chan.events->lost(bed.chan.owner, ECONNREFUSED, "no", 2);
	bed_progress();
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, RP_ST_BAD_MESSAGE);
	cr_assert_eq(warnings, 2);
}

/* A refusal without a status of its own is a loss. */
Test(session, refusal_that_accepts_is_a_loss)
{
	const struct rp_wire_hello_ack ack = {
		.incarnation = 1,
		.credits = 1,
		.grant = bed_grant(bed_key(1)),
	};
	uint8_t buf[256];
	int len = rp_wire_put_hello_ack(buf, sizeof(buf), &ack);

	cr_assert_gt(len, 0);
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed.chan.events->lost(bed.chan.owner, ECONNREFUSED, buf, (size_t)len);
	bed_progress();
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, RP_ST_LOST);
	cr_assert_eq(a.out.detail, ECONNREFUSED);
}

Test(session, acceptance_of_another_version_ends_the_next_operation)
{
	struct rp_wire_hello_ack ack = {
		.incarnation = 1,
		.credits = 1,
		.grant = bed_grant(1),
	};
	uint8_t buf[256];
	int len = rp_wire_put_hello_ack(buf, sizeof(buf), &ack);

	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	buf[2]++;
	bed.chan.events->connected(bed.chan.owner, buf, (size_t)len);
	bed_progress();
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, RP_ST_VERSION);
}

/* An accept whose HELLO_ACK has an error status is a refusal. */
Test(session, acceptance_with_a_failure_is_a_refusal)
{
	struct rp_wire_hello_ack ack = {.status = RP_ST_OVERLOADED};

	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed_accept_as(&ack);
	bed_progress();
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, RP_ST_OVERLOADED);
}

/* A HELLO_ACK counts once, and not on a connection that is lost. */
Test(session, late_acceptance_is_ignored)
{
	char buf[128];

	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed_lose_connection(ECONNRESET);
	bed_accept();
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_CONNECTING);
	bed_progress();
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, RP_ST_LOST);
	bed_open(1);
	bed.credits = 1;
	bed_accept();
	cr_assert_str_eq(rp_session_text(bed.s, buf, sizeof(buf)),
			 "a private connection: 0 of 64 credits in use, "
			 "fences");
}

Test(session, messages_before_the_acceptance_are_ignored)
{
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed_receive("garbage that is long enough for a header", 40);
	bed_accept();
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_OPEN);
}

/* --- grants --- */

Test(session, further_keys_are_queried)
{
	uint64_t token;

	bed_open(1);
	cr_assert_eq(bed_post_result(op_write(&a, 2, 0, 4096, 0)), -EAGAIN);
	cr_assert_eq(bed_post_result(op_write(&a, 2, 0, 4096, 0)), -EAGAIN);
	cr_assert_eq(bed_see_kind(RP_CHANNEL_SEND)->hdr.type, RP_MSG_QUERY);
	cr_assert_eq(bed.last->query.key, bed_key(2));
	token = bed.last->hdr.token;
	bed_see_nothing();
	/* The session's QUERY does not count as the program's operation. */
	cr_assert_eq(rp_session_outstanding(bed.s), 0);
	bed_info(token, RP_ST_OK, bed_key(2));
	bed_post(op_write(&a, 2, 0, 4096, 0));
	cr_assert_eq(bed_see_kind(RP_CHANNEL_WRITE)->rkey, bed_key(2) ^ 0xff);
	bed_done_all();
	expect_ok(&a);
}

/* QUERY all keys of an operation, the one of its ordered store among them. */
Test(session, all_keys_of_an_operation_are_queried)
{
	static struct rp_wire_range r[2];
	struct rp_op *op;

	bed_open(1);
	bed.replies = false;
	r[0] = bed_range(2, 0, 64);
	r[1] = bed_range(3, 0, 64);
	op = op_commit(&a, r, 2);
	op->effect = RP_EFFECT_THEN;
	op->then.key = bed_key(4);
	op->then.addr = BED_ADDR;
	cr_assert_eq(bed_post_result(op), -EAGAIN);
	for (uint32_t k = 2; k < 5; k++) {
		cr_assert_eq(bed_see_kind(RP_CHANNEL_SEND)->query.key,
			     bed_key(k));
		bed_info(bed.last->hdr.token, RP_ST_OK, bed_key(k));
	}
	bed_see_nothing();
	cr_assert_eq(bed_post_result(op), 0);
	bed_see_request(RP_EFFECT_THEN);
	bed_ok();
	expect_ok(&a);
}

Test(session, refused_key_fails_the_next_operation)
{
	bed_open(1);
	cr_assert_eq(bed_post_result(op_write(&a, 2, 0, 64, 0)), -EAGAIN);
	bed_see();
	bed_info(bed.last->hdr.token, RP_ST_STALE_KEY, 0);
	/* The refusal has cost the connection. */
	bed_progress();
	cr_assert_eq(bed.ncloses, 1);
	bed_post(op_write(&a, 2, 0, 64, 0));
	expect_status(&a, RP_ST_STALE_KEY);
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_IDLE);
}

/* The outcome names the first range with the refused key. */
Test(session, refused_key_of_a_later_range_is_named)
{
	static struct rp_wire_range r[2];

	bed_open(1);
	r[0] = bed_range(1, 0, 64);
	r[1] = bed_range(2, 0, 64);
	bed.replies = false;
	cr_assert_eq(bed_post_result(op_commit(&a, r, 2)), -EAGAIN);
	bed_see();
	bed_info(bed.last->hdr.token, RP_ST_VOLATILE, 0);
	bed_post(op_commit(&a, r, 2));
	expect_status(&a, RP_ST_VOLATILE);
	cr_assert_eq(a.out.range, 1);
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_OPEN);
}

/* Keys take memory: a target or program that goes wrong cannot take it all. */
Test(session, number_of_keys_is_bounded)
{
	bed_open(1);
	for (uint32_t k = 2; k < RP_SESSION_GRANTS; k++) {
		bed_post(op_query(&a, k));
		bed_see();
		bed_info(bed.last->hdr.token, RP_ST_OK, bed_key(k));
	}
	bed.replies = false;
	cr_assert_eq(bed_post_result(op_write(&a, RP_SESSION_GRANTS, 0, 64, 0)),
		     -EAGAIN);
	cr_assert_eq(
		bed_post_result(op_write(&a, RP_SESSION_GRANTS + 1, 0, 64, 0)),
		-ENOMEM);
}

/* The connection is lost before INFO: the next operation fails. */
Test(session, lost_query_ends_the_next_operation)
{
	bed_open(1);
	cr_assert_eq(bed_post_result(op_write(&a, 2, 0, 64, 0)), -EAGAIN);
	bed_lose_connection(ECONNRESET);
	bed_progress();
	bed_post(op_write(&a, 2, 0, 64, 0));
	expect_status(&a, RP_ST_LOST);
	cr_assert_eq(a.out.detail, ECONNRESET);
	cr_assert_eq(bed_post_result(op_write(&a, 2, 0, 64, 0)), -EAGAIN);
	cr_assert_eq(bed.hello.key, bed_key(2));
}

/* A grant ends with its connection. */
Test(session, grants_end_with_the_connection)
{
	bed_open(1);
	bed_post(op_write(&a, 2, 0, 64, RP_LEVEL_VISIBLE));
	bed_done_all();
	expect_ok(&a);
	bed_lose_connection(ECONNRESET);
	bed_progress();
	bed_see();
	bed_see_nothing();
	bed_open(1);
	bed.replies = false;
	cr_assert_eq(bed_post_result(op_write(&a, 2, 0, 64, 0)), -EAGAIN);
	cr_assert_eq(bed_see_kind(RP_CHANNEL_SEND)->hdr.type, RP_MSG_QUERY);
}

Test(session, query_reports_the_method_of_a_commit)
{
	struct rp_wire_info m = {
		.status = RP_ST_CLASS,
		.class = RP_CLASS_PROCESS,
		.method = RP_METHOD_DELIVERY,
		.granularity = 64,
		.why = "tmpfs",
	};
	uint8_t buf[RP_WIRE_MAX_MSG];
	int len;

	bed_open(1);
	/* A QUERY needs no grant. */
	bed_post(op_query(&a, 9));
	cr_assert_eq(rp_session_outstanding(bed.s), 1);
	bed_see_kind(RP_CHANNEL_SEND);
	cr_assert_eq(bed.last->query.key, bed_key(9));
	cr_assert_eq(bed.last->query.required, RP_CLASS_POWER);
	len = rp_wire_put_info(buf, sizeof(buf), bed.last->hdr.token, &m);
	bed_receive(buf, (size_t)len);
	expect_status(&a, RP_ST_CLASS);
	cr_assert_eq(a.out.detail, 0);
	cr_assert_eq(a.out.range, 0);
	cr_assert_str_eq(a.info.why, "tmpfs");
	cr_assert_eq(a.info.granularity, 64);
	cr_assert_eq(a.out.class, RP_CLASS_PROCESS);
	cr_assert_eq(a.out.method, RP_METHOD_DELIVERY);
	cr_assert_eq(rp_session_outstanding(bed.s), 0);
}

/* Every status but OK is a failure. */
Test(session, query_reports_each_status)
{
	for (enum rp_status st = RP_ST_OK + 1; st < RP_ST_WRITE_FAILED; st++) {
		bed_open(1);
		bed_post(op_query(&a, 9));
		bed_see();
		bed_info(bed.last->hdr.token, st, 0);
		expect_status(&a, st);
		bed_stop();
		start();
	}
}

/* A successful QUERY of the program grants its key as well. */
Test(session, query_brings_a_grant)
{
	bed_open(1);
	bed_post(op_query(&a, 2));
	bed_see();
	bed_info(bed.last->hdr.token, RP_ST_OK, bed_key(2));
	expect_ok(&a);
	cr_assert_eq(bed_post_result(op_write(&b, 2, 0, 4096, 0)), 0);
}

/* Outstanding operations have used the first grant of a key. */
Test(session, later_grant_of_a_key_changes_nothing)
{
	struct rp_wire_info m = {.grant = bed_grant(bed_key(1))};
	uint8_t buf[RP_WIRE_MAX_MSG];
	int len;

	bed_open(1);
	bed_post(op_query(&a, 1));
	bed_see();
	m.grant.rkey++;
	len = rp_wire_put_info(buf, sizeof(buf), bed.last->hdr.token, &m);
	cr_assert_gt(len, 0);
	bed_receive(buf, (size_t)len);
	expect_ok(&a);
	bed_post(op_write(&b, 1, 0, 4096, 0));
	cr_assert_eq(bed_see_kind(RP_CHANNEL_WRITE)->rkey, bed_key(1) ^ 0xff);
}

/* --- deadlines --- */

static void expires_after(uint64_t ns)
{
	bed_progress();
	cr_assert_eq(rp_session_deadline(bed.s), bed.now + ns);
	bed_advance_clock(ns - 1);
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_OPEN);
	bed_advance_clock(1);
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_IDLE);
}

Test(session, silence_ends_all_operations)
{
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_commit_one(&b, 1, 0, 64));
	expires_after(BED_TIMEOUT);
	cr_assert_eq(bed.ncloses, 1);
	expect_status(&a, RP_ST_TIMEOUT);
	expect_status(&b, RP_ST_TIMEOUT);
}

/* 1 MiB is in flight; the link takes 1 s for it. */
static void write_slowly(void)
{
	struct rp_session_attr attr = bed_attr();
	static uint8_t big[1 << 20];
	struct rp_op *op;

	bed_stop();
	attr.slow_rate = 1 << 20;
	bed_start(&attr);
	bed_open(1);
	op = op_write(&a, 1, 0, sizeof(big), RP_LEVEL_DURABLE);
	op->iov[0].iov_base = big;
	bed_post(op);
	bed_done_all();
}

/* The deadline includes the time of a slow link for bytes in flight. */
Test(session, slow_link_is_no_dead_target)
{
	write_slowly();
	expires_after(BED_TIMEOUT + 1000 * BED_MS);
	expect_status(&a, RP_ST_TIMEOUT);
}

/* ... and no longer includes it once a reply has proved their placement. */
Test(session, proved_bytes_do_not_extend_the_deadline)
{
	write_slowly();
	bed_see();
	bed_see();
	bed_ok();
	expect_ok(&a);
	bed_post(op_commit_one(&b, 1, 0, 64));
	expires_after(BED_TIMEOUT);
}

/* ... nor once their connection is lost. */
Test(session, lost_bytes_give_no_more_time)
{
	write_slowly();
	bed_lose_connection(ECONNRESET);
	bed_progress();
	expect_status(&a, RP_ST_LOST);
	bed_open(1);
	bed_post(op_commit_one(&b, 1, 1 << 20, 64));
	expires_after(BED_TIMEOUT);
}

/* A commit brings no bytes. */
Test(session, commit_on_a_slow_link_has_the_usual_time)
{
	struct rp_session_attr attr = bed_attr();

	bed_stop();
	attr.slow_rate = 1;
	bed_start(&attr);
	bed_open(1);
	bed_post(op_commit_one(&a, 1, 0, 64));
	expires_after(BED_TIMEOUT);
}

/* However slow the link, times do not wrap. */
Test(session, time_for_a_slow_link_is_bounded)
{
	struct rp_session_attr attr = bed_attr();
	struct rp_op *op;

	bed_stop();
	attr.slow_rate = 1;
	bed_start(&attr);
	bed.length = 1ull << 36;
	bed_open(1);
	op = op_read(&a, 1, 0, 1ull << 35);
	bed_post(op);
	cr_assert_eq(rp_session_deadline(bed.s),
		     bed.now + BED_TIMEOUT + 1000000000000000000ull);
}

/* Completions that progress has not seen yet count from now on. */
Test(session, deadline_counts_what_was_heard)
{
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_write(&b, 1, 8192, 4096, 0));
	bed_progress();
	bed.now += BED_MS;
	cr_assert_eq(rp_session_deadline(bed.s),
		     bed.now + BED_TIMEOUT - BED_MS);
	bed_done(1);
	cr_assert_eq(a.times, 1);
	cr_assert_eq(rp_session_deadline(bed.s), bed.now + BED_TIMEOUT);
}

Test(session, progress_of_the_target_counts)
{
	uint8_t msg[64];
	int len = rp_wire_put_signal(msg, sizeof(msg), RP_MSG_PROGRESS);

	bed_open(1);
	bed_post(op_commit_one(&a, 1, 0, 64));
	for (int i = 0; i < 10; i++) {
		bed_advance_clock(BED_TIMEOUT - 1);
		bed_receive(msg, (size_t)len);
		bed_progress();
	}
	expect_pending(&a);
	expires_after(BED_TIMEOUT);
	expect_status(&a, RP_ST_TIMEOUT);
}

Test(session, completions_count)
{
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_write(&b, 1, 8192, 4096, 0));
	bed_progress();
	bed_advance_clock(BED_TIMEOUT - 1);
	bed_done(1);
	expires_after(BED_TIMEOUT);
	expect_ok(&a);
	expect_status(&b, RP_ST_TIMEOUT);
}

/* done() of a sent message proves nothing about the target. */
Test(session, sent_messages_do_not_count)
{
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, RP_LEVEL_DURABLE));
	bed_progress();
	bed_advance_clock(BED_TIMEOUT - 1);
	bed_done_all();
	bed_advance_clock(1);
	expect_status(&a, RP_ST_TIMEOUT);
}

Test(session, nothing_outstanding_has_no_deadline)
{
	bed_open(1);
	bed_progress();
	cr_assert_eq(rp_session_deadline(bed.s), UINT64_MAX);
	bed_advance_clock(100 * BED_TIMEOUT);
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_OPEN);
	/* The idle time before does not count. */
	bed_post(op_commit_one(&a, 1, 0, 64));
	expires_after(BED_TIMEOUT);
}
