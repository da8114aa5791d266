// SPDX-License-Identifier: BSD-2-Clause
/*
 * librpmem_raft's leader: a follower's reply counts only when the entries are
 * durable in the follower's ring, or in its own log. The log that is the ring
 * is this test's.
 */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "libraft/backend.h"

static struct jobs outstanding = TAILQ_HEAD_INITIALIZER(outstanding);
static unsigned int delivered, contacts, opened, stopped;
static bool has_ended, ends_later;
static uint64_t now, lsn;
static struct backend b;
static struct peer peer;

uint64_t uv_now(const uv_loop_t *loop)
{
	return now;
}

struct rpmem_log_attr backend_log_attr(const struct backend *of)
{
	return (struct rpmem_log_attr){.size = sizeof(struct rpmem_log_attr)};
}

void backend_wake(void *arg)
{
}

void backend_deliver(struct peer *p, struct raft_message *m)
{
	if (m->append_entries_result.last_log_index)
		delivered++;
	else
		contacts++;
}

void writer_init(struct writer *w)
{
}

int writer_start(struct writer *w)
{
	opened++;
	return 0;
}

void writer_stop(struct writer *w)
{
	stopped++;
}

void writer_end(struct writer *w)
{
	has_ended = !ends_later;
}

bool writer_ended(struct writer *w)
{
	return has_ended;
}

bool writer_opened(struct writer *w, int *result)
{
	*result = 0;
	return true;
}

void writer_reap(struct writer *w)
{
}

int writer_submit(struct writer *w, struct job *job, bool wait)
{
	job->op.next = ++lsn;
	TAILQ_INSERT_TAIL(&outstanding, job, link);
	return 0;
}

int writer_trim(struct writer *w, uint64_t to)
{
	return 0;
}

static uint64_t log_id = 5; /* of the log in the pool of that name */

int rpmem_log_query(struct rpmem_log *log, struct rpmem_log_info *info)
{
	info->id = log_id;
	return 0;
}

/* The peer says its pool's name and the ID of its log. */
static void hello(void)
{
	const struct wire_head h = {.len = 3, .kept = 5};

	ring_hello(&peer, &h, (const unsigned char *)"h:p");
}

/* Send a message with entries; returns its header. */
static struct wire_head send_entries(void)
{
	static unsigned char message[8];
	struct wire_head h = {0};

	ring_send(&peer, message, sizeof(message), 1, &h);
	return h;
}

static void start(void)
{
	peer.b = &b;
	peer.out = OUT_UP;
	now = 1000;
	TAILQ_INIT(&peer.ring.deferred);
	hello();
	cr_assert(!send_entries().ring, "the ring is not open yet");
	ring_reap(&peer);
	cr_assert_eq(peer.ring.state, RING_OPEN);
}

static void end(void)
{
	ring_close(&peer);
	cr_assert(TAILQ_EMPTY(&outstanding));
}

/* The oldest message is durable in the ring, or has failed. */
static void complete_oldest_message(int result)
{
	struct job *job = TAILQ_FIRST(&outstanding);

	cr_assert_not_null(job);
	TAILQ_REMOVE(&outstanding, job, link);
	job->done(job, result);
	ring_reap(&peer);
}

/* The follower has messages up to seq, and those up to kept in its own log. */
static void reply(uint64_t seq, uint64_t kept)
{
	const struct wire_head h = {.seq = seq, .kept = kept};
	struct raft_message m = {.type = RAFT_IO_APPEND_ENTRIES_RESULT,
				 .append_entries_result.last_log_index = 1};

	ring_result(&peer, &h, &m);
	ring_reap(&peer);
}

Test(raft_ring, a_reply_waits_until_its_message_is_durable)
{
	start();
	for (uint64_t seq = 1; seq < 4; seq++) {
		const struct wire_head h = send_entries();

		cr_assert(h.ring);
		cr_assert_eq(h.seq, seq);
		reply(seq, 0);
	}
	cr_assert_eq(delivered, 0);
	for (unsigned int i = 1; i < 4; i++) {
		complete_oldest_message(0);
		cr_assert_eq(delivered, i);
	}
	reply(3, 0);
	cr_assert_eq(delivered, 4, "it is durable already");
	end();
}

Test(raft_ring, a_reply_counts_when_the_followers_log_has_its_message)
{
	start();
	send_entries();
	send_entries();
	reply(1, 1);
	cr_assert_eq(delivered, 1);
	reply(2, 1);
	cr_assert_eq(delivered, 1);
	complete_oldest_message(0);
	cr_assert_eq(delivered, 1);
	complete_oldest_message(0);
	cr_assert_eq(delivered, 2);
	end();
}

/* A leader that hears nothing for an election timeout steps down. */
Test(raft_ring, a_reply_that_waits_is_a_contact_that_reports_nothing)
{
	const struct wire_head h = {.seq = 1};
	struct raft_message no = {
		.type = RAFT_IO_APPEND_ENTRIES_RESULT,
		.append_entries_result = {.rejected = 1, .last_log_index = 1}};

	start();
	send_entries();
	reply(1, 0);
	cr_assert_eq(contacts, 1);
	cr_assert_eq(delivered, 0);
	ring_result(&peer, &h, &no);
	cr_assert_eq(delivered, 1, "a refusal reports nothing as durable");
	complete_oldest_message(0);
	cr_assert_eq(contacts, 1);
	cr_assert_eq(delivered, 2);
	end();
}

/* A message behind one that failed could be read without it. */
Test(raft_ring, a_failed_ring_is_not_used_before_the_follower_has_all)
{
	start();
	send_entries();
	send_entries();
	reply(1, 0);
	complete_oldest_message(-EIO);
	complete_oldest_message(-EIO);
	cr_assert_eq(delivered, 0);
	cr_assert(!send_entries().ring);
	reply(2, 1);
	now += 10000;
	cr_assert(!send_entries().ring);
	cr_assert_eq(opened, 1);
	reply(2, 2);
	cr_assert_eq(delivered, 1);
	cr_assert_eq(peer.ring.state, RING_CLOSED);
	cr_assert(!send_entries().ring, "it opens the ring");
	ring_reap(&peer);
	cr_assert_eq(opened, 2);
	cr_assert_eq(send_entries().seq, 3);
	reply(3, 2);
	cr_assert_eq(delivered, 1);
	complete_oldest_message(0);
	cr_assert_eq(delivered, 2);
	end();
}

Test(raft_ring, a_reply_of_a_former_process_is_void)
{
	start();
	send_entries();
	reply(1, 0);
	hello();
	complete_oldest_message(0);
	cr_assert_eq(delivered, 0);
	end();
}

Test(raft_ring, a_log_that_is_not_the_peers_is_closed)
{
	peer.b = &b;
	peer.out = OUT_UP;
	TAILQ_INIT(&peer.ring.deferred);
	log_id = 6;
	now = 1000;
	hello();
	send_entries();
	ring_reap(&peer);
	cr_assert_eq(peer.ring.state, RING_CLOSED);
	cr_assert(has_ended);
	now += 60000;
	cr_assert(!send_entries().ring, "it waits for another name");
	cr_assert_eq(peer.ring.state, RING_CLOSED);
	end();
}

/* The thread may wait for an unreachable target: the event loop does not. */
Test(raft_ring, close_does_not_wait_for_the_thread)
{
	start();
	ends_later = true;
	ring_close(&peer);
	ring_reap(&peer);
	cr_assert_eq(stopped, 0);
	cr_assert_eq(peer.ring.state, RING_CLOSING);
	has_ended = true;
	ring_reap(&peer);
	cr_assert_eq(stopped, 1);
	cr_assert_eq(peer.ring.state, RING_CLOSED);
}
