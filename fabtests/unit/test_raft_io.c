// SPDX-License-Identifier: BSD-2-Clause
/*
 * librpmem_raft's follower: what it acknowledges to libraft, and what it
 * reports to the leader as stored in its own log. Messages come from this test;
 * the log is in a pool in memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <uv.h>

#include "libraft/backend.h"
#include "log_rig.h"

#define LENGTH (1024u * 1024)

static struct rig rig;
static struct seeded rnd;
static uv_loop_t loop;
static struct raft_io io;
static struct peer leader;
static struct wire_head sent; /* header of the last reply */
static struct raft_append_entries_result sent_result;
static unsigned int results; /* results of followers that came through */
static bool time_is_new;     /* the loop has read its clock again */
static unsigned int acked;   /* appends that are acknowledged to libraft */
struct raft_entry *taken[8]; /* entries of libraft, which frees them later */
static unsigned int ntaken;

/* --- the parts of the library that need a network --- */

int pool_check_new(struct store *st, const char *where,
		   const struct rpmem_log_attr *attr)
{
	return 0;
}

struct peer *net_peer(struct backend *b, raft_id id, const char *address)
{
	return &leader;
}

void net_send(struct peer *p, struct frame *f)
{
	struct raft_message m = {.type = RAFT_IO_APPEND_ENTRIES_RESULT};

	cr_assert_not(wire_head_get(&sent, f->bytes));
	cr_assert_not(wire_decode(&m, f->bytes + WIRE_HEAD, sent.len));
	sent_result = m.append_entries_result;
	free(f);
}

int net_listen(struct backend *b)
{
	return 0;
}

int net_address(struct backend *b, int ret)
{
	return ret;
}

void net_close(struct backend *b)
{
}

void ring_send(struct peer *p, unsigned char *message, size_t len,
	       unsigned int entries, struct wire_head *h)
{
}

void ring_result(struct peer *p, const struct wire_head *h,
		 struct raft_message *m)
{
	results++;
}

void uv_update_time(uv_loop_t *of)
{
	time_is_new = true;
}

void ring_hello(struct peer *p, const struct wire_head *h,
		const unsigned char *where)
{
}

static bool ring_has_ended;

void ring_reap(struct peer *p)
{
	if (ring_has_ended)
		p->ring.state = RING_CLOSED;
}

void ring_close(struct peer *p)
{
}

/* --- libraft --- */

static void append_done(struct raft_io_append *req, int status)
{
	cr_assert_eq(status, 0);
	acked++;
	free(req);
}

static void append_received_entries(struct raft_io *to, struct raft_message *m)
{
	const struct raft_append_entries *a = &m->append_entries;

	if (m->type != RAFT_IO_APPEND_ENTRIES || !a->n_entries)
		return;
	cr_assert_lt(ntaken, 8);
	taken[ntaken++] = a->entries;
	cr_assert_not(to->append(to, calloc(1, sizeof(struct raft_io_append)),
				 a->entries, a->n_entries, append_done));
}

/* --- */

static struct backend *start(void)
{
	struct backend *b;

	rnd = (struct seeded){.state = 1};
	rig_init(&rig, &rnd, LENGTH);
	memset(rig.visible, 0, LENGTH);
	memset(rig.durable, 0, LENGTH);
	rig_pool = (struct rig_pool){.rig = &rig, .parts = 1};
	uv_loop_init(&loop);
	cr_assert_not(rpmem_raft_init(&io, &loop, "h:p", NULL));
	cr_assert_not(io.init(&io, 1, "127.0.0.1:1"), "%s", io.errmsg);
	b = io.impl;
	b->recv = append_received_entries;
	leader.b = b;
	leader.id = 2;
	leader.boot = 5;
	cr_assert_not(io.set_term(&io, 1));
	return b;
}

/* The leader's message number seq with n entries; lsn: behind it in the ring.
 */
static void receive(uint64_t seq, bool ring, uint64_t lsn, unsigned int n)
{
	static uint64_t data[2];
	struct raft_entry e[2] = {{.term = 1,
				   .type = RAFT_COMMAND,
				   .buf = {&data[0], sizeof(data[0])}},
				  {.term = 1,
				   .type = RAFT_COMMAND,
				   .buf = {&data[1], sizeof(data[1])}}};
	struct raft_message m = {
		.type = RAFT_IO_APPEND_ENTRIES,
		.append_entries = {.term = 1, .entries = e, .n_entries = n}};
	unsigned char bytes[256];
	const struct wire_head h = {.len = (uint32_t)wire_size(&m),
				    .type = (unsigned short)m.type,
				    .ring = ring,
				    .seq = seq,
				    .lsn = lsn};

	cr_assert_leq(h.len, sizeof(bytes));
	wire_encode(&m, bytes);
	backend_received(&leader, &h, bytes);
}

/* The follower replies that it has the leader's entries. */
static void reply(uint64_t kept, uint64_t lsn)
{
	struct raft_message m = {.type = RAFT_IO_APPEND_ENTRIES_RESULT,
				 .server_id = 2,
				 .server_address = "h"};
	struct raft_io_send req;

	cr_assert_not(io.send(&io, &req, &m, NULL));
	cr_assert_eq(sent.seq, leader.seen);
	cr_assert_eq(sent.kept, kept, "%d in place of %d", (int)sent.kept,
		     (int)kept);
	cr_assert_eq(sent.lsn, lsn);
}

static void flush(struct backend *b)
{
	cr_assert_not(store_flush(&b->store));
	while (b->store.flushing)
		writer_reap(&b->store.w);
}

Test(raft_io, entries_in_the_ring_are_kept_when_the_log_has_them)
{
	struct backend *b = start();

	reply(0, 0);
	receive(1, true, 10, 2);
	cr_assert_eq(acked, 1, "the ring has them");
	reply(0, 0);
	receive(2, true, 20, 1);
	cr_assert_eq(acked, 2);
	reply(0, 0);
	/* The log has been told to store them, and has not yet. */
	cr_assert_not(store_flush(&b->store));
	cr_assert_eq(b->store.npending, 0);
	cr_assert_gt(b->store.flushing, 0);
	reply(0, 0);
	flush(b);
	reply(2, 20);
}

Test(raft_io, entries_outside_the_ring_wait_for_the_log)
{
	struct backend *b = start();

	receive(1, false, 0, 2);
	cr_assert_eq(acked, 0);
	/* Appends are acknowledged in their order. */
	receive(2, true, 20, 1);
	cr_assert_eq(acked, 0);
	reply(0, 0);
	while (!TAILQ_FIRST(&b->appends)->done)
		writer_reap(&b->store.w);
	receive(2, false, 0, 0);
	cr_assert_eq(acked, 2);
	flush(b);
	reply(2, 20);
}

/* The leader would trim its ring: the only place that has the entries. */
Test(raft_io, entries_that_the_log_has_lost_are_not_kept)
{
	struct backend *b = start();
	struct raft_entry e = {.term = 1, .type = RAFT_COMMAND};
	struct raft_io_append req;

	receive(1, true, 10, 2);
	rig.fail_once = -EIO;
	flush(b);
	cr_assert_eq(rig.fail_once, 0);
	reply(0, 0);
	b->ring_peer = &leader;
	cr_assert_eq(io.append(&io, &req, &e, 1, append_done), RAFT_IOERR);
	b->ring_peer = NULL;
	cr_assert_eq(acked, 1);
	reply(0, 0);
}

/* The leader's process has ended, and its next one counts from 1. */
Test(raft_io, entries_of_a_former_process_are_not_reported_to_the_next_one)
{
	struct backend *b = start();

	receive(3, true, 30, 1);
	cr_assert_not(store_flush(&b->store));
	leader.boot = 6;
	leader.seen = leader.seen_lsn = 0;
	receive(1, true, 5, 1);
	while (b->store.flushing)
		writer_reap(&b->store.w);
	reply(0, 0);
	flush(b);
	reply(1, 5);
}

/* The number of the last entry that the follower's result reports. */
static raft_index report(raft_index stored, raft_index rejected)
{
	const struct raft_message m = {
		.type = RAFT_IO_APPEND_ENTRIES_RESULT,
		.server_id = 2,
		.server_address = "h",
		.append_entries_result = {.term = 1,
					  .rejected = rejected,
					  .last_log_index = stored}};
	struct raft_io_send req;

	cr_assert_not(io.send(&io, &req, &m, NULL));
	return sent_result.last_log_index;
}

/* A message of the leader without a ring, which the follower does not reply to.
 */
static void receive_message(struct raft_message *m)
{
	unsigned char bytes[256];
	const struct wire_head h = {.len = (uint32_t)wire_size(m),
				    .type = (unsigned short)m->type};

	cr_assert_leq(h.len, sizeof(bytes));
	wire_encode(m, bytes);
	backend_received(&leader, &h, bytes);
}

/* The leader would count entries of a former leader as copies of its own. */
Test(raft_io, a_result_reports_no_entry_that_the_leader_did_not_send)
{
	struct raft_message heartbeat = {
		.type = RAFT_IO_APPEND_ENTRIES,
		.append_entries = {.term = 1, .prev_log_index = 5}};

	start();
	receive_message(&heartbeat);
	cr_assert_eq(report(7, 0), 5);
	cr_assert_eq(report(4, 0), 4);
	cr_assert_eq(report(7, 9), 7, "the leader begins again from there");
	cr_assert_eq(report(7, 0), 0, "nothing of the leader's was taken");
	receive(1, true, 10, 2);
	cr_assert_eq(report(7, 0), 2);
}

/* libraft sends the result of a late append when it knows no leader any more.
 */
Test(raft_io, a_message_without_an_address_is_refused)
{
	const struct raft_message m = {.type = RAFT_IO_APPEND_ENTRIES_RESULT};
	struct raft_io_send req;

	start();
	cr_assert_eq(io.send(&io, &req, &m, NULL), RAFT_NOCONNECTION);
}

/* libraft measures its election timeout from then on. */
Test(raft_io, the_time_is_read_again_when_a_term_or_vote_is_durable)
{
	start();
	time_is_new = false;
	cr_assert_not(io.set_term(&io, 2));
	cr_assert(time_is_new);
	time_is_new = false;
	cr_assert_not(io.set_vote(&io, 1));
	cr_assert(time_is_new);
}

static int appended; /* the result of the last append; 1: none yet */

static void append_ended(struct raft_io_append *req, int status)
{
	appended = status;
}

static void result_of_follower(void)
{
	struct raft_message m = {.type = RAFT_IO_APPEND_ENTRIES_RESULT};

	receive_message(&m);
}

/* libraft would lead, and commit nothing, as long as followers reply. */
Test(raft_io, a_leader_with_a_stalled_log_gets_no_results)
{
	struct backend *b = start();
	const struct raft_entry e = {.term = 1, .type = RAFT_COMMAND};
	struct raft_io_append req;

	result_of_follower();
	cr_assert_eq(results, 1);
	appended = 1;
	cr_assert_not(io.append(&io, &req, &e, 1, append_ended));
	result_of_follower();
	cr_assert_eq(results, 2);
	TAILQ_FIRST(&b->appends)->since -= 3000;
	result_of_follower();
	cr_assert_eq(results, 2);
	while (!TAILQ_FIRST(&b->appends)->done)
		writer_reap(&b->store.w);
	result_of_follower();
	cr_assert_eq(appended, 0);
	result_of_follower();
	cr_assert_eq(results, 4);
}

/* The next entry would have the number of the one that failed. */
Test(raft_io, a_leader_appends_nothing_behind_a_failed_append)
{
	struct backend *b = start();
	const struct raft_entry e = {.term = 1, .type = RAFT_COMMAND};
	struct raft_io_append req;

	rig.fail_once = -EIO;
	cr_assert_not(io.append(&io, &req, &e, 1, append_ended));
	while (!TAILQ_FIRST(&b->appends)->done)
		writer_reap(&b->store.w);
	result_of_follower();
	cr_assert_eq(results, 0);
	cr_assert_eq(io.append(&io, &req, &e, 1, append_ended), RAFT_IOERR);
	cr_assert(strstr(io.errmsg, "start this server again"), "%s",
		  io.errmsg);
}

static unsigned int puts_done;

static void put_done(struct raft_io_snapshot_put *req, int status)
{
	cr_assert_eq(status, 0);
	cr_assert_null(req->data, "of the put that was refused");
	puts_done++;
}

Test(raft_io, snapshot_put_completes_after_another_is_refused)
{
	struct backend *b = start();
	struct raft_io_snapshot_put first = {.data = NULL};
	struct raft_io_snapshot_put second = {.data = &second};
	const struct raft_buffer buf = {(void *)(uintptr_t) "state", 5};
	struct raft_snapshot s = {
		.index = 1,
		.term = 1,
		.configuration_index = 1,
		.bufs = (struct raft_buffer *)(uintptr_t)&buf,
		.n_bufs = 1,
	};

	raft_configuration_init(&s.configuration);
	cr_assert_not(io.snapshot_put(&io, 0, &first, &s, put_done));
	cr_assert_eq(io.snapshot_put(&io, 0, &second, &s, put_done), RAFT_BUSY);
	while (b->store.put)
		writer_reap(&b->store.w);
	cr_assert_eq(puts_done, 1);
}

/* Ask for the snapshot as libraft does. Returns the status of the callback. */
static int get_snapshot(struct backend *b)
{
	static struct raft_io_snapshot_get req;
	struct later *l;
	int status;

	cr_assert_not(io.snapshot_get(&io, &req, NULL));
	l = TAILQ_FIRST(&b->later);
	cr_assert_eq(l->get, &req);
	status = l->status;
	TAILQ_REMOVE(&b->later, l, link);
	free(l);
	return status;
}

Test(raft_io, snapshot_that_no_message_holds_is_reported_once)
{
	struct backend *b = start();
	char text[512] = "";
	int fds[2], err = dup(2);

	cr_assert_not(pipe(fds));
	dup2(fds[1], 2);
	b->store.snap.index = 7;
	b->store.snap.bytes = WIRE_MAX;
	for (int i = 0; i < 2; i++)
		cr_assert_eq(get_snapshot(b), RAFT_TOOBIG);
	dup2(err, 2);
	cr_assert_gt(read(fds[0], text, sizeof(text) - 1), 0);
	cr_assert(strstr(text, "has 1073741824 bytes"), "%s", text);
	cr_assert_eq(strchr(text, '\n'), strrchr(text, '\n'));
}

static bool has_closed;

static void closed(struct raft_io *of)
{
	has_closed = true;
}

Test(raft_io, close_completes_when_the_thread_of_a_ring_has_ended)
{
	struct backend *b = start();
	struct peer *p = calloc(1, sizeof(*p));

	cr_assert_not_null(p);
	TAILQ_INSERT_TAIL(&b->peers, p, link);
	p->ring.state = RING_CLOSING;
	io.close(&io, closed);
	for (unsigned int i = 0; i < 3; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	cr_assert(!has_closed, "the thread still uses the async handle");
	ring_has_ended = true;
	backend_wake(b);
	uv_run(&loop, UV_RUN_DEFAULT);
	cr_assert(has_closed);
}
