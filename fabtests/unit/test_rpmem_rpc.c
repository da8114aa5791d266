// SPDX-License-Identifier: BSD-2-Clause
/* librpmem_rpc on a pool in memory: power cuts, ends, full rings. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rpc_rig.h"

#define WINDOW 40u
#define LONG   400u

static const unsigned char id[RPMEM_RPC_ID] = "test";

struct client_call {
	struct rpmem_rpc_op op;
	uint64_t k;
	unsigned char bytes[LONG], reply[LONG];
};

/* A call's bytes: its number k (0: query), replies that its client has. */
struct call_head {
	uint64_t k, replied;
};

/* The client's state, and the handler's, which is durable at once. */
struct world {
	uint64_t sequence, k, replied_to; /* state of the handler */
	struct rpmem_rpc *c;
	struct client_call all[WINDOW];
	uint64_t next, acked, replied;
	uint64_t got; /* reply to the query */
	bool queried, answered;
	struct client_call query;
	unsigned int again, full;
};

static size_t fill_call_data(unsigned char *to, uint64_t k, uint32_t most)
{
	struct seeded s = {.state = k};
	const size_t len = seeded_below(&s, most);

	for (size_t i = 0; i < len; i++)
		to[i] = (unsigned char)(k * 31 + i);
	return len;
}

static void connect_client(struct world *w)
{
	const struct rpmem_rpc_attr attr = {.size = sizeof(attr), .id = id};

	cr_assert_eq(rpmem_rpc_connect(&w->c, "h:p", &attr), 0,
		     "seed %" PRIu64 ": %s", rig.rnd.seed, rpmem_rpc_error());
	w->queried = w->answered = false;
}

static void process_call(struct world *w, struct rpmem_rpc_call *call)
{
	unsigned char want[LONG], reply[LONG];
	struct call_head h;
	uint64_t k;

	memcpy(&h, call->buf, sizeof(h));
	if (h.k) {
		const size_t len = fill_call_data(want, h.k, LONG - sizeof(h));

		cr_assert(call->len == len + sizeof(h) &&
				  !memcmp((const char *)call->buf + sizeof(h),
					  want, len),
			  "seed %" PRIu64 ": bytes of %" PRIu64, rig.rnd.seed,
			  h.k);
	}
	k = h.k ? h.k : w->k;
	if (call->sequence <= w->sequence) {
		w->again++;
		cr_assert(call->again, "seed %" PRIu64 ": %" PRIu64 " twice",
			  rig.rnd.seed, h.k);
		cr_assert(!h.k || h.k > w->replied_to,
			  "seed %" PRIu64 ": %" PRIu64 " was replied",
			  rig.rnd.seed, h.k);
	} else {
		cr_assert(!h.k || h.k == w->k + 1,
			  "seed %" PRIu64 ": %" PRIu64 " behind %" PRIu64,
			  rig.rnd.seed, h.k, w->k);
		w->sequence = call->sequence;
		w->k = k;
		if (h.replied > w->replied_to)
			w->replied_to = h.replied;
	}
	memcpy(reply, &k, sizeof(k));
	cr_assert_eq(
		rpmem_rpc_reply(rig.srv, call, reply,
				sizeof(k) + fill_call_data(reply + sizeof(k), k,
							   LONG - sizeof(k))),
		0);
}

/* Submit call k, or the query. */
static bool submit_call(struct world *w, struct client_call *o, uint64_t k)
{
	const struct call_head h = {k, w->replied};
	int ret;

	memcpy(o->bytes, &h, sizeof(h));
	o->k = k;
	o->op = (struct rpmem_rpc_op){
		.buf = o->bytes,
		.len = sizeof(h) + (k ? fill_call_data(o->bytes + sizeof(h), k,
						       LONG - sizeof(h))
				      : 0),
		.reply = o->reply,
		.reply_max = LONG,
		.flags = RPMEM_RPC_NOTIFY,
		.context = o,
	};
	ret = rpmem_rpc_submit(w->c, &o->op);
	cr_assert(!ret || ret == -EAGAIN, "seed %" PRIu64 ": %s", rig.rnd.seed,
		  rpmem_rpc_error());
	w->full += ret == -EAGAIN;
	return !ret;
}

static void check_reply(const struct client_call *o, uint64_t k)
{
	unsigned char want[LONG];
	const size_t len = fill_call_data(want, k, LONG - sizeof(k));

	cr_assert(o->op.result == 0 && o->op.reply_len == len + sizeof(k) &&
			  !memcmp(o->reply, &k, sizeof(k)) &&
			  !memcmp(o->reply + sizeof(k), want, len),
		  "seed %" PRIu64 ": reply %" PRIu64, rig.rnd.seed, k);
}

static void poll_client(struct world *w)
{
	struct rpmem_rpc_op *done[WINDOW];
	int n;

	if (seeded_below(&rig.rnd, 4) == 0)
		w->c->peek_at = 0; /* as if the pause were over */
	n = rpmem_rpc_poll(w->c, done, WINDOW, 0);
	cr_assert_geq(n, 0, "seed %" PRIu64 ": %s", rig.rnd.seed,
		      rpmem_rpc_error());
	for (int i = 0; i < n; i++) {
		struct client_call *o = done[i]->context;

		if (o == &w->query) {
			if (o->op.state != RPMEM_RPC_DONE)
				continue;
			memcpy(&w->got, o->reply, sizeof(w->got));
			check_reply(o, w->got);
			w->answered = true;
			cr_assert_geq(w->got, w->acked, "seed %" PRIu64,
				      rig.rnd.seed);
			w->next = w->got + 1;
			w->acked = w->replied = w->got;
			continue;
		}
		if (o->k > w->acked) {
			cr_assert_eq(o->k, w->acked + 1, "seed %" PRIu64,
				     rig.rnd.seed);
			w->acked = o->k;
		}
		if (o->op.state != RPMEM_RPC_DONE)
			continue;
		cr_assert_eq(o->k, w->replied + 1, "seed %" PRIu64,
			     rig.rnd.seed);
		check_reply(o, o->k);
		w->replied = o->k;
	}
}

static void serve_or_crash(struct world *w)
{
	struct rpmem_rpc_call *call = rig_next();

	if (call && seeded_below(&rig.rnd, 8) == 0) {
		/* The server ends before the effect, or before the reply. */
		if (seeded_below(&rig.rnd, 2)) {
			struct call_head h;

			memcpy(&h, call->buf, sizeof(h));
			if (call->sequence > w->sequence) {
				cr_assert(!h.k || h.k == w->k + 1);
				w->sequence = call->sequence;
				w->k = h.k ? h.k : w->k;
			}
		}
		free(call);
		rig_restart(seeded_below(&rig.rnd, 2));
		return;
	}
	if (call)
		process_call(w, call);
	if (seeded_below(&rig.rnd, 2))
		rig_flush();
}

static void inject_random_event(struct world *w)
{
	switch (seeded_below(&rig.rnd, 40)) {
	case 0:
		rig_restart(true);
		break;
	case 1:
		rig_drop_client(w->c);
		connect_client(w);
		break;
	case 2: /* client and server end */
		rig_drop_client(w->c);
		rig_restart(true);
		connect_client(w);
		break;
	case 3:
		rig.hold_flushes = seeded_below(&rig.rnd, 2);
		break;
	default:
		if (!w->queried)
			w->queried = submit_call(w, &w->query, 0);
		else if (w->answered && w->next - w->replied < WINDOW &&
			 seeded_below(&rig.rnd, 2) &&
			 submit_call(w, &w->all[w->next % WINDOW], w->next))
			w->next++;
		if (seeded_below(&rig.rnd, 2))
			serve_or_crash(w);
		if (seeded_below(&rig.rnd, 2))
			poll_client(w);
	}
}

/* Without further crashes every call gets its reply. */
static void finish_all_calls(struct world *w)
{
	for (int i = 0;
	     i < 20000 && !(w->answered && w->replied + 1 == w->next); i++) {
		struct rpmem_rpc_call *call;

		if (!w->queried)
			w->queried = submit_call(w, &w->query, 0);
		call = rig_next();
		if (call)
			process_call(w, call);
		rig_flush();
		w->c->peek_at = 0;
		poll_client(w);
	}
	cr_assert(w->answered && w->replied + 1 == w->next,
		  "seed %" PRIu64 ": %" PRIu64 " of %" PRIu64 " are replied",
		  rig.rnd.seed, w->replied, w->next - 1);
}

Test(rpmem_rpc, acknowledged_calls_are_processed_once_in_order_after_crashes)
{
	static struct world w;
	unsigned int again = 0, full = 0;
	uint64_t calls = 0;

	rig.rnd = seeded_start();
	for (unsigned int run = 0; run < 60; run++) {
		memset(&w, 0, sizeof(w));
		rig_init(7680 + 64 * seeded_below(&rig.rnd, 200));
		rig.lose_messages = run % 2;
		connect_client(&w);
		for (unsigned int i = 0; i < 2500; i++)
			inject_random_event(&w);
		finish_all_calls(&w);
		again += w.again;
		full += w.full;
		calls += w.k;
		rig_drop_client(w.c);
		rig_fini();
	}
	/* The random runs must have reached the rare cases. */
	cr_assert(again && full && calls > 1000);
}

/* Make a server that has the first call, whose client has ended. */
static void start_with_first_call(struct world *w)
{
	memset(w, 0, sizeof(*w));
	rig.rnd = seeded_start();
	rig_init(8192);
	connect_client(w);
	cr_assert(submit_call(w, &w->all[1], 1));
	while (w->acked < 1)
		poll_client(w);
}

Test(rpmem_rpc, reply_that_is_not_durable_is_not_taken_from_the_ring)
{
	static struct world w;

	start_with_first_call(&w);
	rig.hold_flushes = true;
	process_call(&w, rig_next());
	rig_drop_client(w.c);
	connect_client(&w);
	cr_assert_eq(w.c->open, 1);
	rig_flush();
	finish_all_calls(&w);
	cr_assert_eq(w.got, 1);
	rig_drop_client(w.c);
	rig_fini();
}

Test(rpmem_rpc, entry_of_an_ended_process_is_not_taken_behind_its_successor)
{
	static struct world w;
	unsigned char bytes[RPC_SUPER_BYTES];
	struct rpc_super s;

	/* The former client's write completed after the next one's read. */
	start_with_first_call(&w);
	s = w.c->super;
	s.turn++;
	s.incarnation++;
	s.first_n = 1;
	rpc_super_encode(&s, bytes);
	memcpy(rig.live + s.turn % 2 * RPC_SLOT, bytes, sizeof(bytes));
	cr_assert_null(rig_next());
	s.first_n = 2;
	s.turn++;
	rpc_super_encode(&s, bytes);
	memcpy(rig.live + s.turn % 2 * RPC_SLOT, bytes, sizeof(bytes));
	process_call(&w, rig_next());
	rig_drop_client(w.c);
	rig_fini();
}

Test(rpmem_rpc, next_process_gets_the_replies_of_the_earlier_one)
{
	const struct rpmem_rpc_attr attr = {
		.size = sizeof(attr), .id = id, .earlier = 1};
	static struct world w;
	uint64_t sequence, k = 0;
	unsigned char reply[LONG];
	size_t len = 1;

	start_with_first_call(&w);
	process_call(&w, rig_next());
	rig_flush();
	rig_drop_client(w.c);
	cr_assert_eq(rpmem_rpc_connect(&w.c, "h:p", &attr), 0);
	cr_assert_eq(rpmem_rpc_earlier(w.c, &sequence, reply, &len, 0),
		     -EMSGSIZE);
	cr_assert_eq(w.c->head.n, 1);
	cr_assert_eq(rpmem_rpc_earlier(w.c, &sequence, reply, &len, 0), 1);
	memcpy(&k, reply, sizeof(k));
	cr_assert(k == 1 && sequence == w.all[1].op.sequence);
	cr_assert_eq(rpmem_rpc_earlier(w.c, &sequence, reply, &len, 0), 0);
	cr_assert_eq(w.c->head.n, 2);
	rig_drop_client(w.c);
	rig_fini();
}

/* The replies are in the caller's buffers before it polls for them. */
Test(rpmem_rpc, replied_call_frees_its_space_before_it_is_polled)
{
	static unsigned char reply[LONG];
	static struct world w;
	static struct rpmem_rpc_op ops[256];
	struct rpmem_rpc_op *done[256];
	unsigned int n = 0, got = 0, first;
	bool recorded = false;
	int ret;

	start_with_first_call(&w);
	process_call(&w, rig_next());
	rig_flush();
	finish_all_calls(&w);
	/* Submit calls for twice the ring's length. */
	while (n * (size_t)LONG < 2u * 8192u) {
		first = n;
		for (; n < 256; n++) {
			ops[n] = (struct rpmem_rpc_op){.buf = "0123456789",
						       .len = 10,
						       .reply = reply,
						       .reply_max = LONG};
			ret = rpmem_rpc_submit(w.c, &ops[n]);
			if (ret)
				break;
		}
		cr_assert_eq(ret, -EAGAIN);
		/*
		 * A refused call may mean that the head is recorded first:
		 * once.
		 */
		cr_assert(n > first || !recorded);
		recorded = n == first;
		for (unsigned int i = 0;
		     i < 10000 && (w.c->out || w.c->open < w.c->tail.n); i++) {
			struct rpmem_rpc_call *call;

			pthread_mutex_lock(&w.c->lock);
			w.c->peek_at = 0;
			rpc_progress(w.c, 0);
			pthread_mutex_unlock(&w.c->lock);
			call = rig_next();
			if (call)
				cr_assert_eq(
					rpmem_rpc_reply(rig.srv, call, "x", 1),
					0);
			rig_flush();
		}
		cr_assert(!w.c->out && w.c->open == w.c->tail.n);
	}
	while (got < n) {
		ret = rpmem_rpc_poll(w.c, done + got, n - got, 0);
		cr_assert_gt(ret, 0);
		for (int i = 0; i < ret; i++)
			cr_assert_eq(done[got + (unsigned int)i],
				     &ops[got + (unsigned int)i]);
		got += (unsigned int)ret;
	}
	rig_drop_client(w.c);
	rig_fini();
}

Test(rpmem_rpc, given_up_id_comes_back_to_its_outstanding_calls)
{
	static struct world w;
	uint64_t before;

	start_with_first_call(&w);
	before = w.all[1].op.sequence;
	rpmem_rpc_close(w.c, 1);
	connect_client(&w);
	cr_assert(submit_call(&w, &w.query, 0));
	cr_assert_gt(w.query.op.sequence, before);
	rig_drop_client(w.c);
	rig_fini();
}

/* Write a call. Its bytes are visible even if not acknowledged. */
static void write_call(struct world *w, uint64_t k, bool acknowledged)
{
	const struct rpmem_pool_op *op;

	cr_assert(submit_call(w, &w->all[k], k));
	op = rig.ops[rig.nops - 1];
	memcpy(rig.live + op->offset, op->buf, op->len);
	while (acknowledged && w->acked < k)
		poll_client(w);
}

/* Open the pool in a new server. Returns 0 or an error. */
static int open_in_next_server(void)
{
	static struct slot s;

	s = (struct slot){.map = rig.live};
	return slot_open(rig.srv, &s, rig.length, "rig");
}

static uint64_t offset_of(const struct world *w, uint64_t n)
{
	return RPC_RING_AT + rpc_sent(w->c, n)->entry.pos % w->c->super.ring;
}

/* Flip a byte: the server and the next client must return `expected`. */
static void expect_damage_found(struct world *w, uint64_t byte, int expected)
{
	static struct rpmem_rpc *next;
	const struct rpmem_rpc_attr attr = {.size = sizeof(attr), .id = id};
	char at[32];

	rig.live[byte] ^= 1;
	cr_assert_eq(open_in_next_server(), expected, "byte %" PRIu64 ": %s",
		     byte, rpmem_rpc_error());
	if (expected) {
		snprintf(at, sizeof(at), "at byte %" PRIu64, byte & ~63ul);
		cr_assert(strstr(rpmem_rpc_error(), at), "%s",
			  rpmem_rpc_error());
		cr_assert_eq(rpmem_rpc_connect(&next, "h:p", &attr), expected);
		cr_assert(strstr(rpmem_rpc_error(), at), "%s",
			  rpmem_rpc_error());
	}
	rig.live[byte] ^= 1;
}

Test(rpmem_rpc, damage_of_an_acknowledged_call_is_not_the_end_of_the_ring)
{
	static struct world w;

	start_with_first_call(&w);
	write_call(&w, 2, true);
	write_call(&w, 3, true);
	write_call(&w, 4, false);
	for (uint64_t i = 0; i < RPC_HEADER; i += 8)
		expect_damage_found(&w, offset_of(&w, 2) + i, -EBADMSG);
	expect_damage_found(&w, offset_of(&w, 3), -EBADMSG);
	/* Flip a byte of the call's data. */
	rig.live[offset_of(&w, 3) + RPC_HEADER] ^= 1;
	cr_assert_eq(open_in_next_server(), -EBADMSG);
	rig.live[offset_of(&w, 3) + RPC_HEADER] ^= 1;
	/* A power cut can leave such a fourth call: the ring ends there. */
	expect_damage_found(&w, offset_of(&w, 4), 0);
	expect_damage_found(&w, offset_of(&w, 4) + 48, 0);
	rig_drop_client(w.c);
	rig_fini();
}

/* The second call was outstanding when the third one was written. */
Test(rpmem_rpc, torn_call_in_front_of_a_complete_one_is_the_end_of_the_ring)
{
	static struct world w;

	start_with_first_call(&w);
	write_call(&w, 2, false);
	write_call(&w, 3, false);
	expect_damage_found(&w, offset_of(&w, 1), -EBADMSG);
	expect_damage_found(&w, offset_of(&w, 2), 0);
	rig_drop_client(w.c);
	rig_fini();
}

/* A client checks all calls before its first one: no torn write. */
Test(rpmem_rpc, damage_of_the_last_call_of_an_earlier_process_is_found)
{
	static struct world w;
	uint64_t at;

	start_with_first_call(&w);
	at = offset_of(&w, 1);
	rig_drop_client(w.c);
	connect_client(&w);
	expect_damage_found(&w, at, -EBADMSG);
	rig_drop_client(w.c);
	rig_fini();
}

Test(rpmem_rpc, poll_without_an_outstanding_call_returns_at_once)
{
	static struct world w;
	struct rpmem_rpc_op *done[1];

	start_with_first_call(&w);
	process_call(&w, rig_next());
	rig_flush();
	finish_all_calls(&w);
	while (w.c->out)
		cr_assert_eq(rpmem_rpc_poll(w.c, done, 1, 0), 0);
	rig.waited_ms = 0;
	cr_assert_eq(rpmem_rpc_poll(w.c, done, 1, -1), 0);
	cr_assert_eq(rig.waited_ms, 0);
	rig_drop_client(w.c);
	rig_fini();
}

Test(rpmem_rpc, max_call_fits_however_it_is_divided)
{
	static struct world w;
	static unsigned char bytes[8192];
	struct rpmem_rpc_info info = {.size = sizeof(info)};
	unsigned int refused = 0;

	/* Use a ring length of which an eighth is no multiple of RPC_ALIGN. */
	memset(&w, 0, sizeof(w));
	rig.rnd = seeded_start();
	rig_init(8000);
	connect_client(&w);
	cr_assert_eq(rpmem_rpc_query(w.c, &info), 0);
	for (size_t more = 0; more <= RPC_ALIGN; more += RPC_ALIGN)
		for (size_t len = 0; len <= info.max_call; len++) {
			static struct rpmem_rpc_op op;
			int ret;

			op = (struct rpmem_rpc_op){
				.buf = bytes,
				.len = len,
				.reply = bytes,
				.reply_max = info.max_call + more - len,
			};
			ret = rpmem_rpc_submit(w.c, &op);
			/* A refusal without `more` means a full ring. */
			cr_assert(more || ret != -EMSGSIZE, "%zu", len);
			refused += ret == -EMSGSIZE;
		}
	cr_assert_gt(refused, 0);
	rig_drop_client(w.c);
	rig_fini();
}

Test(rpmem_rpc, result_of_an_ended_server_is_durable_before_it_is_taken)
{
	static struct world w;
	struct rpc_entry e;

	start_with_first_call(&w);
	e = rpc_sent(w.c, 1)->entry;
	rig.hold_flushes = true;
	process_call(&w, rig_next());
	cr_assert_not(rig_is_durable(&e));
	rig_restart(false);
	for (int i = 0; i < 1000 && w.replied < 1; i++)
		poll_client(&w);
	cr_assert_eq(w.replied, 1);
	cr_assert(rig_is_durable(&e));
	rig_drop_client(w.c);
	rig_fini();
}

Test(rpmem_rpc, reply_is_looked_for_soon_behind_a_restart_of_the_server)
{
	static struct world w;
	struct rpmem_rpc_op *done[1];

	start_with_first_call(&w);
	w.c->peek_pause = 500; /* as after a long wait */
	rig_restart(false);
	cr_assert_eq(rpmem_rpc_poll(w.c, done, 1, 0), 0);
	cr_assert_leq(w.c->peek_pause, 20);
	rig_drop_client(w.c);
	rig_fini();
}

/* Poll with a client that has waited for a long time. */
static int poll_after_long_wait(struct world *w, struct rpmem_rpc_op **done,
				int most)
{
	int ret = 0;

	for (int i = 0; i < most && !ret; i++) {
		w->c->peek_pause = 500;
		w->c->peek_at = 0;
		ret = rpmem_rpc_poll(w->c, done, 1, 0);
	}
	return ret;
}

Test(rpmem_rpc, damage_in_the_memory_of_a_running_server_is_an_error)
{
	static struct world w;
	struct rpmem_rpc_op *done[1];
	struct rpc_entry e;
	unsigned char *at;

	for (unsigned int i = 0; i < 4; i++) {
		start_with_first_call(&w);
		e = rpc_sent(w.c, 1)->entry;
		at = rig.live + RPC_RING_AT + e.pos % w.c->super.ring;
		if (i == 2) { /* the reply; its message is lost */
			process_call(&w, rig_next());
			rig_flush();
			rig.nmsgs = 0;
			at += rpc_entry_result(e.len) + RPC_RESULT;
		} else if (i == 1) {
			at += RPC_HEADER;
		}
		*at ^= 1;
		if (i == 3) { /* a read during a store */
			for (int n = 0; n < 1000 && !w.c->damaged; n++)
				poll_after_long_wait(&w, done, 1);
			*at ^= 1;
			cr_assert_eq(poll_after_long_wait(&w, done, 1000), 0);
			cr_assert_eq(w.c->damaged, 0);
		} else {
			cr_assert_null(rig_next());
			cr_assert_eq(poll_after_long_wait(&w, done, 1000), 1,
				     "damage %u", i);
			cr_assert_eq(done[0]->result, -EBADMSG);
			cr_assert_not_null(strstr(done[0]->error, "byte 12288"),
					   "%s", done[0]->error);
			cr_assert_eq(poll_after_long_wait(&w, done, 1000),
				     -EBADMSG);
		}
		rig_drop_client(w.c);
		rig_fini();
	}
}

Test(rpmem_rpc, damaged_or_foreign_message_is_no_reply)
{
	static struct world w;
	struct rpmem_rpc_op *done[1];

	start_with_first_call(&w);
	process_call(&w, rig_next());
	rig_flush();
	cr_assert_eq(rig.nmsgs, 1);
	rig.msgs[0].m.has_bytes = true;
	for (int i = 0; i < 3; i++) {
		rig.nmsgs = 1;
		w.c->peek_at = UINT64_MAX;
		rig.msgs[0].bytes[0] ^= i < 2; /* damaged, then intact */
		rig.msgs[0].m.token ^= i > 0;  /* wrong, then right */
		cr_assert_eq(rpmem_rpc_poll(w.c, done, 1, 0), i == 2);
	}
	cr_assert_eq(done[0], &w.all[1].op);
	rig_drop_client(w.c);
	rig_fini();
}

Test(rpmem_rpc, ring_of_an_id_or_of_outstanding_calls_is_not_taken_by_others)
{
	static struct world w;
	struct rpmem_rpc *other;

	start_with_first_call(&w);
	process_call(&w, rig_next());
	rig_flush();
	finish_all_calls(&w);
	rig_drop_client(w.c);
	cr_assert_eq(rpmem_rpc_connect(&other, "h:p", NULL), -EBUSY);
	/* The server's page does not show yet that the ring is taken. */
	rig.srv->page.v[0].kind = RPC_FREE;
	server_publish(rig.srv);
	cr_assert_eq(rpmem_rpc_connect(&other, "h:p", NULL), -EBUSY);
	connect_client(&w);
	cr_assert(submit_call(&w, &w.query, 0));
	while (w.c->durable < w.c->tail.n)
		poll_client(&w);
	rpmem_rpc_close(w.c, 1);
	slot_attach(rig.srv, &rig.srv->slots[0]);
	cr_assert_eq(rig.srv->page.v[0].kind, RPC_RANDOM);
	cr_assert_eq(rpmem_rpc_connect(&other, "h:p", NULL), -EBUSY);
	process_call(&w, rig_next());
	rig_flush();
	cr_assert_eq(rpmem_rpc_connect(&other, "h:p", NULL), 0);
	rig_drop_client(other);
	rig_fini();
}

Test(rpmem_rpc, threshold_bounds_the_part_of_the_ring_that_is_in_use)
{
	struct rpmem_rpc_attr attr = {.size = sizeof(attr), .id = id};
	struct rpmem_rpc_info info = {.size = sizeof(info)};
	static struct rpmem_rpc_op ops[64];

	rig.rnd = seeded_start();
	for (attr.threshold = 50; attr.threshold <= 100; attr.threshold += 50) {
		struct rpmem_rpc *c;
		unsigned int n = 0;

		rig_init(8192);
		cr_assert_eq(rpmem_rpc_connect(&c, "h:p", &attr), 0);
		do
			ops[n] = (struct rpmem_rpc_op){.buf = "x", .len = 1};
		while (n < 64 && !rpmem_rpc_submit(c, &ops[n]) && ++n);
		cr_assert_eq(rpmem_rpc_query(c, &info), 0);
		/* Each call takes 192 bytes of the ring. */
		cr_assert_eq(info.used,
			     8192 * attr.threshold / 100 / 192 * 192);
		rig_drop_client(c);
		rig_fini();
	}
}

Test(rpmem_rpc, client_has_one_call_in_work_and_few_that_are_not_durable)
{
	static struct world w;
	struct rpmem_rpc_call *call;
	unsigned int n = 0;

	memset(&w, 0, sizeof(w));
	rig.rnd = seeded_start();
	rig_init(32768);
	rig.hold_flushes = true;
	connect_client(&w);
	for (uint64_t k = 1; k <= 20; k++)
		write_call(&w, k, true);
	for (; (call = rig_next()); n++) {
		cr_assert_null(rig_next());
		process_call(&w, call);
	}
	cr_assert_eq(n, RPMEM_RPC_AGAIN);
	rig_flush();
	call = rig_next();
	cr_assert_not_null(call);
	process_call(&w, call);
	rig_drop_client(w.c);
	rig_fini();
}

Test(rpmem_rpc, null_arguments_are_refused)
{
	static struct world w;
	struct rpmem_rpc_info info = {.size = sizeof(info)};
	struct rpmem_rpc_op op = {0}, *done[1];
	uint64_t sequence;
	size_t len = 0;

	start_with_first_call(&w);
	cr_assert_eq(rpmem_rpc_submit(NULL, &op), -EINVAL);
	cr_assert_eq(rpmem_rpc_submit(w.c, NULL), -EINVAL);
	cr_assert_eq(rpmem_rpc_poll(NULL, done, 1, 0), -EINVAL);
	cr_assert_eq(rpmem_rpc_poll(w.c, NULL, 1, 0), -EINVAL);
	cr_assert_eq(rpmem_rpc_call(NULL, "x", 1, NULL, NULL), -EINVAL);
	cr_assert_eq(rpmem_rpc_call(w.c, NULL, 1, NULL, NULL), -EINVAL);
	cr_assert_eq(rpmem_rpc_earlier(w.c, NULL, NULL, &len, 0), -EINVAL);
	cr_assert_eq(rpmem_rpc_earlier(w.c, &sequence, NULL, NULL, 0), -EINVAL);
	cr_assert_eq(rpmem_rpc_query(NULL, &info), -EINVAL);
	cr_assert_eq(rpmem_rpc_query(w.c, NULL), -EINVAL);
	cr_assert_eq(rpmem_rpc_reply(NULL, NULL, NULL, 0), -EINVAL);
	rig_drop_client(w.c);
	rig_fini();
}
