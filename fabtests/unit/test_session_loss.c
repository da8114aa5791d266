/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The session of the initiator: losses, hostile targets, messages for the log,
 * idle connections.
 */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/log.h"
#include "session_bed.h"

static struct report a, b, c;

/* --- loss --- */

/* Callers poll again after progress that did something. */
Test(session, progress_says_whether_it_did_something)
{
	bed_open(1);
	cr_assert(!bed_progress());
	bed_post(op_commit_one(&a, 1, BED_LEN, 64));
	cr_assert(bed_progress());
	cr_assert(!bed_progress());
	bed_post(op_commit_one(&a, 1, 0, 64));
	cr_assert(!bed_progress());
	bed_lose_connection(ECONNRESET);
	cr_assert(bed_progress());
	cr_assert(!bed_progress());
	bed_open(1);
	bed_post(op_commit_one(&a, 1, 0, 64));
	bed_progress();
	bed.now += BED_TIMEOUT;
	cr_assert(bed_progress());
}

/* Peers identify the endpoint by its port. */
Test(session, hello_shows_the_port)
{
	rp_session_set_endpoint(bed.s, 4711, false);
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	cr_assert_eq(bed.hello.port, 4711);
}

Test(session, loss_ends_everything_once)
{
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_commit_one(&b, 1, 0, 64));
	bed_lose_connection(ECONNRESET);
	expect_pending(&a);
	cr_assert_eq(rp_session_deadline(bed.s), 0);
	cr_assert_eq(bed_post_result(op_read(&c, 1, 0, 8)), -EAGAIN);
	bed_progress();
	expect_status(&a, RP_ST_LOST);
	cr_assert_eq(a.out.detail, ECONNRESET);
	expect_status(&b, RP_ST_LOST);
	cr_assert_eq(bed.ncloses, 1);
	cr_assert_eq(rp_session_outstanding(bed.s), 0);
}

/* Private data belongs to a refusal, not to a loss. */
/* A message that waits for the writes must not be sent behind their loss. */
Test(session, loss_of_unplaced_writes_is_reported_once)
{
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_done_all();
	expect_ok(&a);
	cr_assert(!rp_session_lost_writes(bed.s));
	bed_lose_connection(ECONNRESET);
	bed_progress();
	cr_assert(rp_session_lost_writes(bed.s));
	cr_assert(!rp_session_lost_writes(bed.s));
}

/* The bytes of a short durable write are in its request. */
Test(session, loss_of_a_store_is_reported)
{
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_see_request(RP_EFFECT_STORE);
	bed_lose_connection(ECONNRESET);
	bed_progress();
	expect_status(&a, RP_ST_LOST);
	cr_assert(rp_session_lost_writes(bed.s));
}

Test(session, data_of_a_loss_is_ignored)
{
	bed_open(1);
	bed_post(op_commit_one(&a, 1, 0, 64));
	bed.chan.events->lost(bed.chan.owner, ECONNRESET, "no", 2);
	bed_progress();
	expect_status(&a, RP_ST_LOST);
	cr_assert_eq(a.out.detail, ECONNRESET);
}

/* A reply behind the loss was never received. */
Test(session, reply_behind_the_loss_is_ignored)
{
	bed_open(1);
	bed_post(op_commit_one(&a, 1, 0, 64));
	bed_lose_connection(ECONNRESET);
	bed_reply(1, RP_ST_OK);
	expect_pending(&a);
	bed_progress();
	expect_status(&a, RP_ST_LOST);
}

/* Room in the channel is not awaited once the connection is gone. */
Test(session, lost_connection_has_no_deadline)
{
	bed_open(1);
	bed.room = 0;
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_lose_connection(ECONNRESET);
	bed_progress();
	expect_status(&a, RP_ST_LOST);
	cr_assert_eq(rp_session_deadline(bed.s), UINT64_MAX);
	bed.room = -1;
	/* The lost write is poisoned, not unplaced. */
	bed_open(1);
	cr_assert(!rp_session_has_unplaced(bed.s));
	bed_see_nothing();
}

static void call_while_closing(void)
{
	char buf[128];

	cr_assert_str_eq(rp_session_text(bed.s, buf, sizeof(buf)),
			 "the private connection is being closed");
	cr_assert(!rp_session_progress(bed.s));
	cr_assert_eq(bed_post_result(op_write(&c, 1, 0, 64, 0)), -EAGAIN);
	rp_session_disconnect(bed.s, RP_ST_CANCELED, 0);
	bed_lose_connection(ECONNRESET);
	expect_pending(&a);
}

/* Events may arrive from inside close of the channel. */
Test(session, calls_while_closing_do_nothing)
{
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_progress();
	bed.on_close = call_while_closing;
	bed_advance_clock(BED_TIMEOUT);
	cr_assert_eq(bed.ncloses, 1);
	expect_status(&a, RP_ST_TIMEOUT);
	cr_assert_eq(rp_session_deadline(bed.s), UINT64_MAX);
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_IDLE);
}

/*
 * After a timeout or a loss the channel must not send more of failed writes:
 * these could overwrite later writes of another endpoint. A close on purpose
 * lets completed writes arrive.
 */
Test(session, connections_abort_unless_closed_on_purpose)
{
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_progress();
	bed_advance_clock(BED_TIMEOUT);
	expect_status(&a, RP_ST_TIMEOUT);
	cr_assert(bed.chan.flags & RP_CHANNEL_ABORTS);
	bed_open(1);
	bed_lose_connection(ECONNRESET);
	cr_assert(bed.chan.flags & RP_CHANNEL_ABORTS, "also before progress");
	bed_progress();
	bed_open(1);
	rp_session_disconnect(bed.s, RP_ST_CANCELED, 0);
	cr_assert_not(bed.chan.flags & RP_CHANNEL_ABORTS);
	bed_open(1);
	rp_session_disconnect(bed.s, RP_ST_CANCELED, ECONNRESET);
	cr_assert(bed.chan.flags & RP_CHANNEL_ABORTS, "the peer is gone");
	cr_assert_eq(bed.ncloses, 4);
}

Test(session, failed_operation_ends_the_connection)
{
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_write(&b, 1, 8192, 4096, 0));
	bed_fail(EIO);
	expect_pending(&a);
	expect_status(&a, RP_ST_LOST);
	cr_assert_eq(a.out.detail, EIO);
	expect_status(&b, RP_ST_LOST);
	cr_assert_eq(bed.ncloses, 1);
}

/* An operation whose reply arrived before the loss has succeeded. */
Test(session, operation_with_a_reply_survives_the_loss)
{
	bed.inject = 0;
	bed_open(1);
	bed_post(op_commit_one(&a, 1, 0, 64));
	bed_see();
	bed_ok();
	expect_pending(&a); /* done() of its message is due */
	bed_lose_connection(ECONNRESET);
	bed_progress();
	expect_ok(&a);
}

Test(session, disconnect_ends_everything_with_its_status)
{
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_then(&b, 1, 0, 64, 128));
	rp_session_disconnect(bed.s, RP_ST_CANCELED, 5);
	cr_assert_eq(a.times, 1);
	expect_status(&a, RP_ST_CANCELED);
	cr_assert_eq(a.out.detail, 5);
	expect_status(&b, RP_ST_INDETERMINATE);
	cr_assert_eq(b.out.detail, RP_ST_CANCELED);
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_IDLE);
	/* The same session connects again. */
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_done_all();
	expect_ok(&a);
}

Test(session, disconnect_while_connecting_is_forgotten)
{
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	rp_session_disconnect(bed.s, RP_ST_CANCELED, 0);
	cr_assert_eq(bed.ncloses, 1);
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed_refuse(RP_ST_OVERLOADED, 0);
	bed_progress();
	rp_session_disconnect(bed.s, RP_ST_CANCELED, 0);
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed_refuse(RP_ST_STALE_KEY, 0);
	bed_progress();
	rp_session_disconnect(bed.s, RP_ST_CANCELED, 0);
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed_accept();
	/* A QUERY is canceled, too. */
	cr_assert_eq(bed_post_result(op_write(&a, 2, 0, 64, 0)), -EAGAIN);
	rp_session_disconnect(bed.s, RP_ST_CANCELED, 0);
	cr_assert_eq(bed_post_result(op_write(&a, 2, 0, 64, 0)), -EAGAIN);
}

/* Outcomes that progress has not delivered yet are not lost. */
Test(session, disconnect_without_a_connection_delivers)
{
	bed.connect_ret = -ENETUNREACH;
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_pending(&a);
	rp_session_disconnect(bed.s, RP_ST_CANCELED, 0);
	cr_assert_eq(a.times, 1);
	cr_assert_eq(a.out.status, RP_ST_LOST);
}

Test(session, delete_ends_what_is_outstanding)
{
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_stop();
	cr_assert_eq(a.times, 1);
	cr_assert_eq(a.out.status, RP_ST_CANCELED);
	cr_assert_eq(a.out.detail, 0);
}

static void connect_and_disconnect(struct report *t)
{
	t->then = NULL;
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_IDLE);
	cr_assert_eq(bed_post_result(op_write(&c, 1, 0, 64, 0)), -EAGAIN);
	rp_session_disconnect(bed.s, RP_ST_CANCELED, 0);
}

/* done() may connect again, and disconnect that connection. */
Test(session, done_may_post_and_disconnect)
{
	a.then = connect_and_disconnect;
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_write(&b, 1, 8192, 4096, 0));
	bed_lose_connection(ECONNRESET);
	bed_progress();
	expect_status(&a, RP_ST_LOST);
	expect_status(&b, RP_ST_LOST);
	cr_assert_eq(bed.nconnects, 2);
	cr_assert_eq(bed.ncloses, 2);
}

/* --- hostile targets --- */

static void bad_message(const void *msg, size_t len)
{
	bed_receive(msg, len);
	bed_progress();
	expect_status(&a, RP_ST_BAD_MESSAGE);
	cr_assert_eq(a.out.detail, 0);
	cr_assert_eq(bed.ncloses, 1);
}

Test(session, garbage_ends_the_connection)
{
	bed_open(1);
	bed_post(op_commit_one(&a, 1, 0, 64));
	bad_message("garbage that is long enough for a header", 40);
}

Test(session, unknown_token_ends_the_connection)
{
	bed_open(1);
	bed_post(op_commit_one(&a, 1, 0, 64));
	bed_see();
	bed_reply(bed.last->hdr.token + 64, RP_ST_OK);
	bed_progress();
	expect_status(&a, RP_ST_BAD_MESSAGE);
}

/* A reply to a request that has not been sent is malformed. */
Test(session, reply_to_an_unsent_request_ends_the_connection)
{
	bed_open(1);
	bed_post(op_commit_one(&a, 1, 0, 64));
	bed.room = 0;
	bed_post(op_commit_one(&b, 1, 0, 64));
	bed_see();
	bed_see_nothing();
	cr_assert_eq(bed_see(), NULL);
	bed_post(op_write(&c, 1, 0, 4096, 0));
	bed_reply(2, RP_ST_OK);
	bed.room = -1;
	bed_progress();
	expect_status(&a, RP_ST_BAD_MESSAGE);
	expect_status(&b, RP_ST_BAD_MESSAGE);
}

Test(session, wrong_kind_of_reply_ends_the_connection)
{
	bed_open(1);
	bed_post(op_commit_one(&a, 1, 0, 64));
	bed_see();
	bed_info(bed.last->hdr.token, RP_ST_OK, bed_key(1));
	bed_progress();
	expect_status(&a, RP_ST_BAD_MESSAGE);
}

Test(session, reply_to_a_query_ends_the_connection)
{
	bed_open(1);
	bed_post(op_query(&a, 1));
	bed_see();
	bed_reply(bed.last->hdr.token, RP_ST_OK);
	bed_progress();
	expect_status(&a, RP_ST_BAD_MESSAGE);
}

Test(session, message_of_an_initiator_ends_the_connection)
{
	const struct rp_wire_query q = {.key = bed_key(1)};
	uint8_t buf[64];
	int len = rp_wire_put_query(buf, sizeof(buf), 1, &q);

	bed_open(1);
	bed_post(op_commit_one(&a, 1, 0, 64));
	bad_message(buf, (size_t)len);
}

Test(session, other_version_ends_the_connection)
{
	uint8_t buf[64];
	int len = rp_wire_put_signal(buf, sizeof(buf), RP_MSG_PROGRESS);

	bed_open(1);
	bed_post(op_commit_one(&a, 1, 0, 64));
	buf[2]++;
	bed_receive(buf, (size_t)len);
	bed_progress();
	expect_status(&a, RP_ST_VERSION);
}

/* --- messages for the log --- */

Test(session, log_messages_describe_the_connection)
{
	char buf[128];

	cr_assert_str_eq(rp_session_text(bed.s, buf, sizeof(buf)),
			 "no private connection now");
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	cr_assert_str_eq(rp_session_text(bed.s, buf, sizeof(buf)),
			 "the private connection is being made");
	bed_accept();
	cr_assert_str_eq(rp_session_text(bed.s, buf, sizeof(buf)),
			 "a private connection: 0 of 64 credits in use, "
			 "fences");
}

Test(session, random_numbers_are_needed)
{
	struct rp_session_attr attr = bed_attr();
	struct rp_session *s;

	bed.random_ret = -EIO;
	cr_assert_eq(rp_session_new(&bed.k, &attr, "addr", 4, &s), -EIO);
	bed.random_ret = 0;
	cr_assert_eq(rp_session_new(&bed.k, &attr, "", 0, &s), -EINVAL);
	cr_assert_eq(rp_session_new(&bed.k, &attr, "", 4096, &s), -EINVAL);
	attr.max_commits = 0;
	cr_assert_eq(rp_session_new(&bed.k, &attr, "addr", 4, &s), -EINVAL);
}

Test(session, log_messages_describe_the_channel)
{
	static const struct {
		uint32_t flags;
		bool native;
		const char *end;
	} cases[] = {
		{0, true, "in use"},
		{RP_CHANNEL_FENCES, true, "in use, fences"},
		{RP_CHANNEL_FLUSHES, true, "in use, FLUSH"},
		{RP_CHANNEL_FLUSHES, false, "in use"},
		{RP_CHANNEL_LOCAL_MR, true, "in use"},
		{7, true, "in use, fences, FLUSH"},
	};
	struct rp_session_attr attr = bed_attr();
	char buf[128];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bed_stop();
		attr.native = cases[i].native;
		bed_start(&attr);
		bed.flags = cases[i].flags;
		bed_open(1);
		rp_session_text(bed.s, buf, sizeof(buf));
		cr_assert_str_eq(strstr(buf, "in use"), cases[i].end);
	}
}

/* --- idle --- */

static void start_idle(void)
{
	struct rp_session_attr attr = bed_attr();

	bed_stop();
	attr.idle_ns = 60000 * BED_MS;
	bed_start(&attr);
	cr_assert_eq(bed_post_result(op_read(&a, 1, 0, 8)), -EAGAIN);
	cr_assert_eq(rp_session_deadline(bed.s), bed.now + BED_TIMEOUT);
	bed_accept();
	bed.replies = true;
	/* Progress starts the idle time. */
	cr_assert_eq(rp_session_deadline(bed.s), 0);
	bed_progress();
}

Test(session, idle_connection_is_closed_and_made_again)
{
	start_idle();
	cr_assert_eq(rp_session_deadline(bed.s), bed.now + 60000 * BED_MS);
	bed_advance_clock(60000 * BED_MS - 1);
	cr_assert_eq(bed.ncloses, 0);
	bed_advance_clock(1);
	cr_assert_eq(bed.ncloses, 1);
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_IDLE);
	cr_assert_eq(rp_session_deadline(bed.s), UINT64_MAX);
	bed_advance_clock(60000 * BED_MS);
	bed_open(1);
	/* The new connection has its own idle time. */
	bed_progress();
	cr_assert_eq(bed.ncloses, 1);
	cr_assert_eq(rp_session_deadline(bed.s), bed.now + 60000 * BED_MS);
	bed_post(op_commit_one(&a, 1, 0, 64));
	bed_see();
	bed_ok();
	expect_ok(&a);
}

/* A connection that is closed for want of use ends what it knew of keys. */
Test(session, idle_close_forgets_refused_keys)
{
	start_idle();
	cr_assert_eq(bed_post_result(op_write(&a, 2, 0, 64, 0)), -EAGAIN);
	bed_see();
	bed_info(bed.last->hdr.token, RP_ST_VOLATILE, 0);
	bed_progress();
	bed_advance_clock(60000 * BED_MS);
	cr_assert_eq(bed.ncloses, 1);
	cr_assert_eq(bed_post_result(op_write(&a, 2, 0, 64, 0)), -EAGAIN);
	cr_assert_eq(bed.hello.key, bed_key(2));
}

/* The idle time starts anew with each use. */
Test(session, used_connection_is_not_idle)
{
	start_idle();
	bed_advance_clock(60000 * BED_MS - 1);
	bed_post(op_commit_one(&a, 1, 0, 64));
	cr_assert_eq(rp_session_deadline(bed.s), bed.now + BED_TIMEOUT);
	bed_see();
	bed_ok();
	bed_progress();
	cr_assert_eq(rp_session_deadline(bed.s), bed.now + 60000 * BED_MS);
	bed_advance_clock(60000 * BED_MS - 1);
	cr_assert_eq(bed.ncloses, 0);
	bed_advance_clock(1);
	cr_assert_eq(bed.ncloses, 1);
}

/* Closing would poison writes whose placement is not proved. */
Test(session, idle_close_waits_for_placement)
{
	start_idle();
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_done_all();
	bed_progress();
	bed_advance_clock(60000 * BED_MS);
	cr_assert_eq(bed.ncloses, 0);
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_request(RP_EFFECT_NONE);
	cr_assert_eq(bed.last->req.nranges, 0);
	bed_ok();
	bed_progress();
	bed_advance_clock(60000 * BED_MS);
	cr_assert_eq(bed.ncloses, 1);
	bed_open(1);
	bed_post(op_commit_one(&b, 1, 0, 4096));
	bed_see();
	bed_ok();
	expect_ok(&b);
}

Test(session, outstanding_operations_are_not_idle)
{
	uint8_t msg[64];
	int len = rp_wire_put_signal(msg, sizeof(msg), RP_MSG_PROGRESS);

	start_idle();
	bed_post(op_commit_one(&a, 1, 0, 64));
	for (int i = 0; i < 100; i++) {
		bed_receive(msg, (size_t)len);
		bed_advance_clock(BED_TIMEOUT - 1);
	}
	cr_assert_eq(bed.ncloses, 0);
}
