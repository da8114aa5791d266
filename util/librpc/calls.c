// SPDX-License-Identifier: BSD-2-Clause
/* Calls of a client: submit, acknowledge, wait for replies. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "librpc/client.h"
#include "util/clock.h"

#define TICK_MS	 100 /* interval of timeout checks */
#define PEEK_MIN 20  /* ms until a missing reply is read, ... */
#define PEEK_MAX 500 /* ... and longest pause between such reads */

/* Report a call as acknowledged, or as done, by rpmem_rpc_poll(). */
static void queue_event(struct rpmem_rpc *c, struct sent *s, bool done)
{
	if (!s->user || s->waited || (s->queued && !done))
		return;
	if (s->queued)
		TAILQ_REMOVE(&c->acks, s, link);
	s->queued = true;
	if (done)
		TAILQ_INSERT_TAIL(&c->done, s, link);
	else
		TAILQ_INSERT_TAIL(&c->acks, s, link);
}

/* End the client: outstanding calls fail. */
static void fail(struct rpmem_rpc *c, int ret, const char *why)
{
	if (c->failed)
		return;
	c->failed = ret;
	rp_err(c->failure, 0,
	       "%s; calls without a reply may have been processed: connect "
	       "again with the same id to know",
	       why);
	rpc_error_reword(c->failure);
	for (uint64_t n = c->head.n; n < c->tail.n; n++) {
		struct sent *s = rpc_sent(c, n);

		if (s->answered || !s->user)
			continue;
		s->answered = true;
		s->user->result = ret;
		s->user->error = c->failure;
	}
	rpc_advance(c);
}

void rpc_answer(struct rpmem_rpc *c, struct sent *s, const unsigned char *bytes,
		uint32_t len)
{
	if (s->answered)
		return;
	if (s->keep) {
		s->kept = malloc(len + 1ul);
		if (!s->kept) /* without memory the next peek retries */
			return;
		s->kept_len = len;
		memcpy(s->kept, bytes, len);
	}
	s->answered = true;
	c->peek_pause = PEEK_MIN;
	c->peek_at = rp_now_ms() + PEEK_MIN;
	if (!s->user)
		return;
	if (len)
		memcpy(s->user->reply, bytes, len);
	s->user->reply_len = len;
}

void rpc_release(struct sent *s)
{
	if (!s->passed || s->user)
		return;
	free(s->kept);
	free(s);
}

void rpc_advance(struct rpmem_rpc *c)
{
	struct sent *s;

	/*
	 * Do not acknowledge a write before all older ones: a crash could lose
	 * an older one, and then the ring ends there.
	 */
	while (c->durable < c->tail.n && rpc_sent(c, c->durable)->written) {
		s = rpc_sent(c, c->durable++);
		if (s->entry.head_pos > c->recorded)
			c->recorded = s->entry.head_pos;
		if (s->user && s->user->flags & RPMEM_RPC_NOTIFY &&
		    s->entry.n >= c->open)
			queue_event(c, s, false);
	}
	/*
	 * Return replies in order, even if messages were lost. After a failure
	 * an earlier process's call gets no reply: pass it.
	 */
	while (c->open < c->tail.n &&
	       (rpc_sent(c, c->open)->answered ||
		(c->failed && !rpc_sent(c, c->open)->user)))
		queue_event(c, rpc_sent(c, c->open++), true);
	while (c->head.n < c->durable) {
		s = rpc_sent(c, c->head.n);
		if (!s->answered || s->keep)
			break;
		/* The caller has the reply, even if it has not polled. */
		c->calls[c->head.n & c->mask] = NULL;
		rpc_cursor_pass(&c->head, &s->entry);
		s->passed = true;
		rpc_release(s);
	}
}

/* Encode the next superblock. Returns its byte in the pool. */
static uint64_t super_next(struct rpmem_rpc *c)
{
	c->super.turn++;
	c->super.head_pos = c->head.pos;
	c->super.head_n = c->head.n;
	c->super.head_incarnation = c->head.incarnation;
	rpc_super_encode(&c->super, c->super_bytes);
	return c->super.turn % 2 * RPC_SLOT;
}

int rpc_super_write(struct rpmem_rpc *c)
{
	uint64_t at;
	int ret;

	/* Write one superblock at a time: a crash could tear both. */
	while (c->super_busy && !c->failed)
		rpc_progress(c, -1);
	if (c->failed)
		return rpc_error(c->failed, "%s", c->failure);
	at = super_next(c);
	ret = rpmem_pool_write(c->pool, c->super_bytes, RPC_SUPER_BYTES, at,
			       RPMEM_POOL_DURABLE);
	if (ret) {
		rpc_error(ret, "%s", rpmem_pool_error());
		fail(c, ret, rpmem_pool_error());
		return ret;
	}
	c->recorded = c->head.pos;
	return 0;
}

/*
 * Start to write a superblock with the head, without waiting. No other one may
 * be outstanding.
 */
static int super_start(struct rpmem_rpc *c)
{
	const uint64_t at = super_next(c);
	int ret;

	c->super_op = (struct rpmem_pool_op){
		.type = RPMEM_POOL_WRITE,
		.flags = RPMEM_POOL_DURABLE,
		.buf = c->super_bytes,
		.len = RPC_SUPER_BYTES,
		.offset = at,
	};
	ret = rpmem_pool_submit(c->pool, &c->super_op);
	if (ret) {
		/* Use the turn again: the next would overwrite the newest. */
		c->super.turn--;
		return rpc_error(ret, "%s", rpmem_pool_error());
	}
	c->super_busy = true;
	c->out++;
	return 0;
}

/*
 * Read the reply to the oldest call without one, because its message may be
 * lost. If there is still no reply, read the call too.
 */
static void start_peek(struct rpmem_rpc *c)
{
	const struct rpc_entry *e;
	uint64_t len;
	const uint64_t now = rp_now_ms();
	unsigned char *room;

	if (c->peeking || c->failed || c->open >= c->durable ||
	    now < c->peek_at)
		return;
	e = &rpc_sent(c, c->open)->entry;
	c->peek_skip = c->peek_pause < PEEK_MAX ? 0 : rpc_entry_result(e->len);
	len = c->peek_skip + RPC_RESULT + e->room;
	room = realloc(c->peeked, len);
	if (!room)
		return;
	c->peeked = room;
	c->peek_n = c->open;
	c->peek = (struct rpmem_pool_op){
		.type = RPMEM_POOL_READ,
		.buf = room,
		.len = len,
		.offset = RPC_RING_AT + e->pos % c->super.ring +
			  rpc_entry_result(e->len) - c->peek_skip,
	};
	if (rpmem_pool_submit(c->pool, &c->peek))
		return;
	c->peeking = true;
	c->out++;
}

/*
 * Whether the call or its reply is damaged: the entry is not the acknowledged
 * one, or the reply is marked as durable and not intact. Without this check the
 * call would never end.
 */
static bool is_damaged(const struct rpmem_rpc *c, const struct rpc_entry *sent,
		       const struct rpc_result *r)
{
	struct rpc_entry e;

	return !rpc_entry_decode(&c->super, c->peeked, &e) ||
	       e.pos != sent->pos || e.n != sent->n ||
	       e.incarnation != sent->incarnation ||
	       !rpc_entry_intact(c->super.seed, &e, c->peeked + RPC_HEADER) ||
	       r->mark == rpc_mark(c->server_token,
				   rpc_sequence(sent->incarnation, sent->n));
}

static void find_damage(struct rpmem_rpc *c, const struct rpc_entry *sent,
			const struct rpc_result *r)
{
	const bool found = c->peek_skip && is_damaged(c, sent, r);
	char why[RP_ERR_LEN];

	/* Read twice: the first read may overlap the server's store. */
	if (!found || c->damaged != sent->n) {
		c->damaged = found ? sent->n : 0;
		c->peek_at = found ? 0 : c->peek_at;
		return;
	}
	rp_err(why, 0,
	       "an acknowledged call of slot %u, or its reply, is damaged at "
	       "byte %llu of its pool in the server's memory; check that host",
	       c->slot,
	       (unsigned long long)(RPC_RING_AT + sent->pos % c->super.ring));
	fail(c, -EBADMSG, why);
}

static void handle_peek(struct rpmem_rpc *c)
{
	const unsigned char *from = c->peeked + c->peek_skip;
	struct rpc_result r;
	struct sent *s;

	c->peeking = false;
	c->peek_pause =
		c->peek_pause < PEEK_MAX / 2 ? c->peek_pause * 2 : PEEK_MAX;
	c->peek_at = rp_now_ms() + c->peek_pause;
	if (c->peek_n != c->open) /* the reply's message came first */
		return;
	s = rpc_sent(c, c->peek_n);
	if (rpc_result_decode(c->super.seed, from, s->entry.room,
			      rpc_sequence(s->entry.incarnation, s->entry.n),
			      &r) &&
	    r.mark == rpc_mark(c->server_token, r.sequence)) {
		rpc_answer(c, s, from + RPC_RESULT, r.len);
		c->peeks++;
		c->peek_at = 0; /* read the next reply at once */
		return;
	}
	find_damage(c, &s->entry, &r);
}

/* Handle a message: a reply, or the news that a reply can be read. */
static void receive(void *arg, const struct rpc_msg *m)
{
	const uint64_t n = m->result.sequence & ((1ull << 40) - 1);
	struct rpmem_rpc *c = arg;
	struct sent *s;

	if (m->type != RPC_MSG_REPLY || m->token != c->super.token)
		return;
	pthread_mutex_lock(&c->lock);
	s = n >= c->open && n < c->tail.n ? rpc_sent(c, n) : NULL;
	if (s && !s->answered &&
	    rpc_sequence(s->entry.incarnation, s->entry.n) ==
		    m->result.sequence &&
	    m->result.len <= s->entry.room) {
		if (!m->has_bytes)
			c->peek_at = 0;
		else if (rpc_result_intact(c->super.seed, &m->result, m->bytes))
			rpc_answer(c, s, m->bytes, m->result.len);
	}
	pthread_mutex_unlock(&c->lock);
}

/* Follow a restarted server to its new endpoint. */
static void follow_server(struct rpmem_rpc *c)
{
	struct rpmem_pool_info info = {.size = sizeof(info)};
	int ret;

	if (rpmem_pool_query(c->pool, &info) ||
	    info.reconnects == c->reconnects)
		return;
	c->reconnects = info.reconnects;
	pthread_mutex_unlock(&c->lock);
	ret = rpc_attach(c);
	pthread_mutex_lock(&c->lock);
	/* The new server sent no replies before it had this address. */
	c->peek_at = 0;
	c->peek_pause = PEEK_MIN;
	if (ret)
		fail(c, ret, rpmem_rpc_error());
}

static void pool_op_done(struct rpmem_rpc *c, struct rpmem_pool_op *op)
{
	struct sent *s = op->context;

	c->out--;
	if (op == &c->super_op)
		c->super_busy = false;
	if (op->result)
		fail(c, op->result, op->error);
	else if (op == &c->peek)
		handle_peek(c);
	else if (op == &c->super_op)
		c->recorded = c->super.head_pos > c->recorded
				      ? c->super.head_pos
				      : c->recorded;
	else
		s->written = c->ring_bell = true;
}

static void send_messages(struct rpmem_rpc *c)
{
	struct rpc_msg m = {
		.type = RPC_MSG_ATTACH,
		.slot = c->slot,
		.token = c->server_token,
	};

	if (c->attach)
		c->attach = rpc_port_send(&c->port, c->server, &m) == -EAGAIN;
	m.type = RPC_MSG_CALL;
	if (c->ring_bell && c->doorbell)
		rpc_port_send(&c->port, c->server, &m);
	c->ring_bell = false;
}

/* Wait for the pool if an operation is outstanding, else for messages. */
static void wait_any(struct rpmem_rpc *c, int ms)
{
	struct rpmem_pool_op *done[32];
	const uint64_t now = rp_now_ms();
	const bool pool = c->out;
	int n;

	if (ms < 0 || ms > TICK_MS)
		ms = TICK_MS;
	if (!pool && c->open < c->durable && now + (uint64_t)ms > c->peek_at)
		ms = c->peek_at > now ? (int)(c->peek_at - now) : 0;
	if (c->attach && ms > 1)
		ms = 1;
	if (!TAILQ_EMPTY(&c->done) || !TAILQ_EMPTY(&c->acks))
		ms = 0;
	pthread_mutex_unlock(&c->lock);
	n = pool ? rpmem_pool_poll(c->pool, done, 32, ms) : 0;
	rpc_port_poll(&c->port, receive, c, pool ? 0 : ms);
	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < n; i++)
		pool_op_done(c, done[i]);
	if (n < 0)
		fail(c, n, rpmem_pool_error());
}

static void wait_other(struct rpmem_rpc *c, int ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += 1000000L * (ms < 0 || ms > TICK_MS ? TICK_MS : ms);
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&c->progressed, &c->lock, &until);
}

static void poll_once(struct rpmem_rpc *c, int ms)
{
	c->polling = true;
	rpc_advance(c);
	start_peek(c);
	wait_any(c, ms);
	follow_server(c);
	send_messages(c);
	rpc_advance(c);
	c->polling = false;
	rp_waiters_wake(&c->waiters);
	pthread_cond_broadcast(&c->progressed);
}

/* The calling thread may return: another one must poll. */
static void hand_over(struct rpmem_rpc *c)
{
	if (!c->polling)
		rp_waiters_hand_over(&c->waiters);
}

void rpc_progress(struct rpmem_rpc *c, int ms)
{
	if (!c->polling)
		poll_once(c, ms);
	else if (ms)
		wait_other(c, ms);
	hand_over(c);
}

/* Wait until *done. Only the thread with this flag is woken for it. */
static void wait_done(struct rpmem_rpc *c, const bool *done)
{
	struct rp_waiter me;

	rp_waiter_add(&c->waiters, &me, done);
	while (!*done)
		if (c->polling)
			pthread_cond_wait(&me.wake, &c->lock);
		else
			poll_once(c, -1);
	rp_waiter_remove(&c->waiters, &me);
	hand_over(c);
}

/* Whether a call kept for rpmem_rpc_earlier() blocks the ring's head. */
static bool is_kept(const struct rpmem_rpc *c)
{
	return c->head.n < c->durable && rpc_sent(c, c->head.n)->answered &&
	       rpc_sent(c, c->head.n)->keep;
}

/*
 * Find room for an entry of `size` bytes. Returns 0 or -errno. -EAGAIN may mean
 * that a superblock is being written: poll, and try again.
 */
static int find_room(struct rpmem_rpc *c, uint64_t size, uint64_t *pos)
{
	const uint64_t ring = c->super.ring;
	int ret;

	rpc_advance(c);
	*pos = rpc_place(ring, c->tail.pos, size);
	if (c->tail.n - c->head.n > c->mask ||
	    (*pos + size - c->head.pos > c->limit && c->head.n != c->tail.n))
		return rpc_error(-EAGAIN,
				 is_kept(c)
					 ? "replies to calls of an earlier "
					   "process fill the ring; take them "
					   "by rpmem_rpc_earlier()"
					 : "calls without a reply fill the "
					   "ring up to the threshold; poll");
	if (*pos + size - c->recorded <= ring)
		return 0;
	/*
	 * Space before the head is reused only when an entry or a superblock
	 * with this head is durable. If a write is outstanding, wait for its
	 * end, because it may have this head; else write a superblock.
	 */
	ret = c->out ? 0 : super_start(c);
	return ret ? ret
		   : rpc_error(-EAGAIN,
			       "the ring's head is not durable yet, and "
			       "its space not free; poll");
}

static int check_op(const struct rpmem_rpc *c, const struct rpmem_rpc_op *op)
{
	const uint64_t most = c->super.ring / 8;

	if (c->failed)
		return rpc_error(c->failed, "%s", c->failure);
	if ((!op->buf && op->len) || (!op->reply && op->reply_max) ||
	    op->flags & ~RPMEM_RPC_NOTIFY)
		return rpc_error(-EINVAL,
				 "a buffer is NULL, or flags %#x are "
				 "unknown",
				 op->flags);
	if (op->len > most || op->reply_max > most ||
	    rpc_entry_size(op->len, op->reply_max) > most)
		return rpc_error(
			-EMSGSIZE,
			"a call of %zu bytes with a reply of up to %zu "
			"is longer than an eighth of the ring, which "
			"has %llu",
			op->len, op->reply_max,
			(unsigned long long)c->super.ring);
	return 0;
}

/* Encode the entry at the tail. */
static void encode(const struct rpmem_rpc *c, struct sent *s,
		   const struct rpmem_rpc_op *op, uint64_t pos)
{
	s->entry = (struct rpc_entry){
		.pos = pos,
		.n = c->tail.n,
		.head_pos = c->head.pos,
		.head_n = c->head.n,
		.durable = c->durable,
		.head_incarnation = c->head.incarnation,
		.incarnation = c->super.incarnation,
		.len = (uint32_t)op->len,
		.room = (uint32_t)op->reply_max,
	};
	if (op->len)
		memcpy(s->bytes + RPC_HEADER, op->buf, op->len);
	rpc_entry_encode(c->super.seed, &s->entry, s->bytes);
	s->op = (struct rpmem_pool_op){
		.type = RPMEM_POOL_WRITE,
		.flags = RPMEM_POOL_DURABLE,
		.buf = s->bytes,
		.len = RPC_HEADER + op->len,
		.offset = RPC_RING_AT + pos % c->super.ring,
		.context = s,
	};
}

static int submit(struct rpmem_rpc *c, struct rpmem_rpc_op *op)
{
	struct sent *s;
	uint64_t pos;
	int ret = check_op(c, op);

	if (!ret)
		ret = find_room(c, rpc_entry_size(op->len, op->reply_max),
				&pos);
	if (ret)
		return ret;
	s = calloc(1, sizeof(*s) + RPC_HEADER + op->len);
	if (!s)
		return rpc_error(-ENOMEM, "out of memory");
	encode(c, s, op, pos);
	ret = rpmem_pool_submit(c->pool, &s->op);
	if (ret) {
		free(s);
		return rpc_error(ret, "%s", rpmem_pool_error());
	}
	s->user = op;
	op->state = RPMEM_RPC_SENT;
	op->sequence = rpc_sequence(s->entry.incarnation, s->entry.n);
	op->reply_len = 0;
	op->result = 0;
	op->error = NULL;
	if (c->open == c->tail.n) {
		c->peek_pause = PEEK_MIN;
		c->peek_at = rp_now_ms() + PEEK_MIN;
	}
	c->calls[s->entry.n & c->mask] = s;
	rpc_cursor_pass(&c->tail, &s->entry);
	c->out++;
	return 0;
}

int rpmem_rpc_submit(struct rpmem_rpc *c, struct rpmem_rpc_op *op)
{
	int ret;

	if (!c || !op)
		return rpc_error(-EINVAL,
				 "the client, or the operation, is NULL");
	pthread_mutex_lock(&c->lock);
	ret = submit(c, op);
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/* Take events, done calls first: they are older than all other calls. */
static unsigned int take_events(struct rpmem_rpc *c, struct rpmem_rpc_op **done,
				unsigned int n)
{
	unsigned int got = 0;
	struct sent *s;

	while (got < n && (s = TAILQ_FIRST(&c->done))) {
		TAILQ_REMOVE(&c->done, s, link);
		s->user->state = RPMEM_RPC_DONE;
		done[got++] = s->user;
		s->user = NULL;
		rpc_release(s);
	}
	while (got < n && (s = TAILQ_FIRST(&c->acks))) {
		TAILQ_REMOVE(&c->acks, s, link);
		s->queued = false;
		s->user->state = RPMEM_RPC_DURABLE;
		done[got++] = s->user;
	}
	return got;
}

int rpmem_rpc_poll(struct rpmem_rpc *c, struct rpmem_rpc_op **done,
		   unsigned int n, int timeout_ms)
{
	const uint64_t until = rp_now_ms() + (uint64_t)timeout_ms;
	unsigned int got;
	uint64_t now;
	bool idle;
	int ms = timeout_ms;

	if (!c || !done || !n)
		return rpc_error(-EINVAL, "rpmem_rpc_poll() needs a client and "
					  "room for an operation");
	pthread_mutex_lock(&c->lock);
	while (!(got = take_events(c, done, n)) && !c->failed) {
		/* Nothing is outstanding: no event will come. */
		idle = c->open == c->tail.n && !c->out;
		rpc_progress(c, idle ? 0 : ms);
		if (!ms || idle) {
			got = take_events(c, done, n);
			break;
		}
		now = rp_now_ms();
		if (timeout_ms >= 0)
			ms = now < until ? (int)(until - now) : 0;
	}
	if (!got && c->failed)
		rpc_error(0, "%s", c->failure);
	ms = !got && c->failed ? c->failed : (int)got;
	pthread_mutex_unlock(&c->lock);
	return ms;
}

int rpmem_rpc_call(struct rpmem_rpc *c, const void *buf, size_t len,
		   void *reply, size_t *reply_len)
{
	struct rpmem_rpc_op op = {
		.buf = buf,
		.len = len,
		.reply = reply,
		.reply_max = reply_len ? *reply_len : 0,
	};
	struct sent *s;
	int ret;

	if (!c)
		return rpc_error(-EINVAL, "the client is NULL");
	pthread_mutex_lock(&c->lock);
	/* -EAGAIN is final if nothing is outstanding, and kept calls block. */
	while ((ret = submit(c, &op)) == -EAGAIN && (c->out || !is_kept(c)))
		rpc_progress(c, -1);
	if (!ret) {
		s = rpc_sent(c, c->tail.n - 1);
		s->waited = true;
		wait_done(c, &s->answered);
		s->user = NULL;
		rpc_release(s);
		ret = op.result;
		if (ret)
			rpc_error(ret, "%s", c->failure);
		else if (reply_len)
			*reply_len = op.reply_len;
		rpc_advance(c);
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/* The next call for rpmem_rpc_earlier(), or NULL. */
static struct sent *next_earlier(const struct rpmem_rpc *c)
{
	struct sent *s =
		c->earlier < c->earlier_end ? rpc_sent(c, c->earlier) : NULL;

	return s && s->keep ? s : NULL;
}

int rpmem_rpc_earlier(struct rpmem_rpc *c, uint64_t *sequence, void *reply,
		      size_t *len, int timeout_ms)
{
	const uint64_t until = rp_now_ms() + (uint64_t)timeout_ms;
	struct sent *s;
	int ret = 1;

	if (!c || !sequence || !len || (!reply && *len))
		return rpc_error(-EINVAL,
				 "rpmem_rpc_earlier() needs a client, and "
				 "places for the sequence, the reply and its "
				 "length");
	pthread_mutex_lock(&c->lock);
	/* Another thread may take the call, and free it, during a wait. */
	while ((s = next_earlier(c)) && ret > 0 && !s->answered) {
		rpc_progress(c, timeout_ms < 0 ? -1 : 1);
		if (c->failed)
			ret = rpc_error(c->failed, "%s", c->failure);
		else if (timeout_ms >= 0 && rp_now_ms() > until)
			ret = rpc_error(-ETIMEDOUT, "no reply in time");
	}
	if (!s && ret > 0)
		ret = 0;
	if (ret > 0 && *len < s->kept_len)
		ret = rpc_error(-EMSGSIZE, "the reply has %u bytes",
				s->kept_len);
	if (ret > 0 || ret == -EMSGSIZE)
		*len = s->kept_len;
	if (ret > 0) {
		memcpy(reply, s->kept, s->kept_len);
		*sequence = rpc_sequence(s->entry.incarnation, s->entry.n);
		s->keep = false;
		c->earlier++;
		rpc_advance(c);
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/*
 * Set the variants by the method. Without an agent the initiator makes its
 * write durable; a request to an agent contains a write of up to c->inline_max
 * bytes.
 */
static void set_variants(const struct rpmem_rpc *c, struct rpmem_rpc_info *info)
{
	info->variant = info->variant_long = rpc_is_by_agent(info->method)
						     ? RPMEM_RPC_W_RFLUSH
						     : RPMEM_RPC_WFLUSH;
	info->variant_max = 0;
	if (info->variant == RPMEM_RPC_WFLUSH || c->inline_max < RPC_HEADER)
		return;
	info->variant = RPMEM_RPC_S_RFLUSH;
	info->variant_max = c->inline_max - RPC_HEADER;
}

int rpmem_rpc_query(struct rpmem_rpc *c, struct rpmem_rpc_info *info)
{
	struct rpmem_pool_info pool = {.size = sizeof(pool)};
	int ret;

	/* An older program was compiled with a struct without variants. */
	if (!c || !info ||
	    (info->size != sizeof(*info) &&
	     info->size != offsetof(struct rpmem_rpc_info, variant)))
		return rpc_error(-EINVAL, "rpmem_rpc_query() needs a client; "
					  "set info->size to sizeof(struct "
					  "rpmem_rpc_info)");
	ret = rpmem_pool_query(c->pool, &pool);
	if (ret)
		return rpc_error(ret, "%s", rpmem_pool_error());
	pthread_mutex_lock(&c->lock);
	memcpy(info->id, c->super.id, RPC_ID);
	info->ring = c->super.ring;
	info->used = c->tail.pos - c->head.pos;
	/* RPC_ALIGN may round up both lengths, by RPC_ALIGN - 1 each. */
	info->max_call = c->super.ring / 8 - RPC_HEADER - RPC_RESULT -
			 2ull * (RPC_ALIGN - 1);
	info->outstanding = c->tail.n - c->open;
	info->peeks = c->peeks;
	info->reached = pool.reached;
	info->method = pool.method;
	pthread_mutex_unlock(&c->lock);
	if (info->size == sizeof(*info))
		set_variants(c, info);
	return 0;
}
