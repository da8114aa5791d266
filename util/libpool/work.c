// SPDX-License-Identifier: BSD-2-Clause
/* Operations of a pool: post, complete, and replay them after a loss. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "core/thread.h"
#include "util/clock.h"
#include "util/query_class.h"
#include "libpool/pool.h"

struct post *post_new(struct rpmem_pool *p)
{
	struct post *t = p->free_posts;

	if (t) {
		p->free_posts = t->next_free;
		return t;
	}
	t = malloc(sizeof(*t));
	if (t) {
		t->next_all = p->all_posts;
		p->all_posts = t;
	}
	return t;
}

void post_free(struct rpmem_pool *p, struct post *t)
{
	t->next_free = p->free_posts;
	p->free_posts = t;
}

void work_free(struct work *w)
{
	LIST_REMOVE(w, all);
	if (w->mr)
		fi_close(&w->mr->fid);
	free(w);
}

void work_init(struct rpmem_pool *p)
{
	LIST_INIT(&p->all);
	TAILQ_INIT(&p->waiting);
	TAILQ_INIT(&p->commit_waiters);
	TAILQ_INIT(&p->done);
	TAILQ_INIT(&p->waiters);
}

void work_fini(struct rpmem_pool *p)
{
	struct work *w, *next;
	struct post *t;

	for (w = LIST_FIRST(&p->all); w; w = next) {
		next = LIST_NEXT(w, all);
		work_free(w);
	}
	while ((t = p->all_posts)) {
		p->all_posts = t->next_all;
		free(t);
	}
	free(p->replay);
}

void work_complete(struct rpmem_pool *p, struct work *w, int ret,
		   const char *error)
{
	w->op->result = ret;
	w->op->error = ret ? error : NULL;
	if (w->mr)
		fi_close(&w->mr->fid);
	w->mr = NULL;
	if (!w->waiter) {
		TAILQ_INSERT_TAIL(&p->done, w, link);
		pthread_cond_signal(&p->async_done);
		return;
	}
	w->waiter->done = true;
	pthread_cond_signal(&w->waiter->wake);
	work_free(w);
}

static void fail_all(struct rpmem_pool *p, struct works *list, int ret,
		     const char *error)
{
	struct work *w;

	while ((w = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, w, link);
		work_complete(p, w, ret, error);
	}
}

/* Detach a write from its entries: their bytes stay in the journal. */
static void detach_entries(struct rpmem_pool *p, const struct work *w)
{
	for (uint64_t s = p->journal.first; s != p->journal.next; s++)
		if (rp_journal_at(&p->journal, s)->work == w)
			rp_journal_at(&p->journal, s)->work = NULL;
}

static void end_pool(struct rpmem_pool *p, int ret, const char *error)
{
	p->state = LINK_ENDED;
	p->ncommits = 0;
	p->now.ret = ret;
	p->reason = error;
	for (uint64_t s = p->journal.first; s != p->journal.next; s++) {
		struct work *w = rp_journal_at(&p->journal, s)->work;

		if (!w)
			continue;
		detach_entries(p, w);
		/* fail_all() below fails a write that is still in `waiting`. */
		if (w->done == w->op->len)
			work_complete(p, w, ret, error);
	}
	/* Outstanding reads end in read_ended(): their buffers are in use. */
	for (struct work *w = TAILQ_FIRST(&p->waiting), *next; w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (w->op->type != RPMEM_POOL_READ || !w->out)
			continue;
		TAILQ_REMOVE(&p->waiting, w, link);
		w->done = w->op->len;
		w->lost = true;
	}
	fail_all(p, &p->waiting, ret, error);
	fail_all(p, &p->commit_waiters, ret, error);
}

static void set_placed(struct rpmem_pool *p, struct rp_journal_entry *e)
{
	p->nbuffered -= e->buffered;
	e->placed = true;
}

/* Complete a write that is fully posted and has no outstanding posts. */
static void write_ended(struct rpmem_pool *p, struct work *w)
{
	if (w->out || w->done < w->op->len)
		return;
	if (w->failed)
		work_complete(p, w, w->failed, w->error);
	else if (w->upto) /* durable write that was replayed: needs a commit */
		TAILQ_INSERT_TAIL(&p->commit_waiters, w, link);
	else
		work_complete(p, w, 0, NULL);
}

/* Post no more of a write, which fails when its posts have completed. */
static void fail_write(struct rpmem_pool *p, struct work *w, int ret,
		       const char *error)
{
	w->done = w->op->len;
	w->failed = ret;
	w->error = error;
	write_ended(p, w);
}

/* The post or the replay of an entry has completed. */
static void entry_placed(struct rpmem_pool *p, uint64_t seq, bool durable)
{
	struct rp_journal_entry *e = rp_journal_at(&p->journal, seq);
	struct work *w = e->work;

	set_placed(p, e);
	e->durable = durable;
	e->work = NULL;
	if (!w)
		return;
	w->out--;
	/* A replayed piece needs a commit; upto is that of the newest one. */
	if (!durable && w->op->flags & RPMEM_POOL_DURABLE && w->upto <= seq)
		w->upto = seq + 1;
	write_ended(p, w);
}

/*
 * Give each operation the whole timeout from the first connection loss on: time
 * at a slow target does not count. Later losses do not extend it, because an
 * operation would then wait for ever on a flapping connection.
 */
static void set_deadlines(struct rpmem_pool *p)
{
	const uint64_t deadline = rp_now_ms() + p->timeout_ms;
	struct work *w;

	LIST_FOREACH (w, &p->all, all) {
		if (!w->interrupted)
			w->deadline = deadline;
		w->interrupted = true;
	}
}

void work_lost(struct rpmem_pool *p, const char *reason)
{
	if (p->state != LINK_UP && p->state != LINK_REPLAYING)
		return;
	if (p->state == LINK_UP)
		set_deadlines(p);
	p->state = LINK_DRAINING;
	p->reason = reason;
	commits_drop(p);
}

/* Post a write; bytes NULL: zeros. */
static ssize_t post_write(struct rpmem_pool *p, const char *bytes, uint32_t len,
			  uint64_t offset, bool durable, struct post *t)
{
	void *desc = rp_fabric_desc(p->journal_mr);
	const struct iovec iov = {
		.iov_base = (void *)(uintptr_t)bytes,
		.iov_len = len,
	};
	const struct fi_rma_iov to = {
		.addr = pool_remote_addr(p, offset),
		.len = len,
		.key = p->now.ex.key,
	};
	const struct fi_rpmem_msg zeros = {
		.rma_iov = &to,
		.rma_iov_count = 1,
		.addr = p->now.peer,
		.level = durable ? FI_RPMEM_DURABLE : FI_RPMEM_VISIBLE,
		.required = p->required,
		.context = t,
	};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = 1,
		.addr = p->now.peer,
		.rma_iov = &to,
		.rma_iov_count = 1,
		.context = t,
	};

	if (p->out >= POOL_OUT)
		return -FI_EAGAIN;
	if (!bytes)
		return fi_rpmem_zero(p->f.ops, p->f.ep, &zeros, 0);
	return fi_writemsg(p->f.ep, &msg,
			   FI_COMPLETION | (durable ? FI_COMMIT_COMPLETE
						    : FI_DELIVERY_COMPLETE));
}

int post_result(struct rpmem_pool *p, struct post *t, ssize_t ret)
{
	char text[RP_ERR_LEN];

	if (!ret) {
		p->out++;
		return 0;
	}
	post_free(p, t);
	if (ret == -FI_EAGAIN)
		return -EAGAIN;
	rp_err(text, 0, "posting to the target on %s: %s", p->target.host,
	       fi_strerror((int)-ret));
	work_lost(p, pool_text(p, text));
	return -EAGAIN;
}

/*
 * Whether the operation overlaps a buffered write whose post has not completed.
 * The write is complete for the caller, so that the operation must come after
 * it, and posts are not ordered. The search begins with the newest entry, and
 * ends when it has seen all p->nbuffered ones.
 */
static bool overlaps_buffered(struct rpmem_pool *p,
			      const struct rpmem_pool_op *op)
{
	unsigned int left = p->nbuffered;

	for (uint64_t s = p->journal.next; left; s--) {
		const struct rp_journal_entry *e =
			rp_journal_at(&p->journal, s - 1);

		if (!e->buffered || e->placed)
			continue;
		if (e->offset < op->offset + op->len &&
		    op->offset < e->offset + e->len)
			return true;
		left--;
	}
	return false;
}

/* The time in ns for a post that is part of a trial (piece.h), else 0. */
static uint64_t piece_now(uint64_t turn)
{
	return turn ? rp_clock_ns(CLOCK_MONOTONIC) : 0;
}

/*
 * Post the rest of a write. Returns 0: all is posted; -EAGAIN: later; -EIO: the
 * journal is full, and the commit that would empty it failed; -ENOMEM.
 */
static int post_writes(struct rpmem_pool *p, struct work *w)
{
	const bool durable = w->op->flags & RPMEM_POOL_DURABLE;
	const bool zero = w->op->type == RPMEM_POOL_ZERO;
	const bool buffered = w->op->flags == RPMEM_POOL_BUFFERED;
	struct rp_journal_entry *e;
	const char *from;
	uint64_t seq, left, turn = 0;
	struct post *t;
	uint32_t len;
	int ret;

	while (w->done < w->op->len) {
		left = w->op->len - w->done;
		len = zero ? POOL_ZEROS
			   : piece_next(&p->pieces[0], w->op->len, &turn);
		len = left < len ? (uint32_t)left : len;
		from = zero ? NULL : (const char *)w->op->buf + w->done;
		ret = rp_journal_append(&p->journal, w->op->offset + w->done,
					from, len, w, &seq);
		if (ret == -EAGAIN && p->commit_error && !p->ncommits)
			return -EIO;
		if (ret)
			return ret;
		t = post_new(p);
		if (!t) {
			rp_journal_unappend(&p->journal);
			return -ENOMEM;
		}
		t->kind = POST_ENTRY;
		t->seq = seq;
		t->turn = turn;
		e = rp_journal_at(&p->journal, seq);
		if (durable)
			rp_journal_set_durably(&p->journal, seq);
		ret = post_result(
			p, t,
			post_write(p,
				   zero ? NULL
					: rp_journal_bytes(&p->journal, e),
				   len, e->offset, durable, t));
		if (ret) {
			rp_journal_unappend(&p->journal);
			return ret;
		}
		piece_posted(&p->pieces[0], turn, len, piece_now(turn));
		w->done += len;
		/* The caller of a buffered write does not wait for its post. */
		if (buffered) {
			e->work = NULL;
			e->buffered = true;
			p->nbuffered++;
		} else {
			w->out++;
		}
	}
	return 0;
}

static int post_reads(struct rpmem_pool *p, struct work *w)
{
	uint64_t left, turn;
	struct post *t;
	uint32_t len;
	int ret;

	while (w->done < w->op->len) {
		left = w->op->len - w->done;
		len = piece_next(&p->pieces[1], w->op->len, &turn);
		len = left < len ? (uint32_t)left : len;
		t = post_new(p);
		if (!t)
			return w->out ? -EAGAIN : -ENOMEM;
		t->kind = POST_READ;
		t->work = w;
		t->turn = turn;
		ret = post_result(
			p, t,
			fi_read(p->f.ep, (char *)w->op->buf + w->done, len,
				rp_fabric_desc(w->mr), p->now.peer,
				pool_remote_addr(p, w->op->offset + w->done),
				p->now.ex.key, t));
		if (ret)
			return ret;
		piece_posted(&p->pieces[1], turn, len, piece_now(turn));
		w->out++;
		w->done += len;
	}
	return 0;
}

static void replay_end(struct rpmem_pool *p)
{
	free(p->replay);
	p->replay = NULL;
	p->state = LINK_UP;
	for (uint64_t s = p->journal.first; s != p->journal.next; s++) {
		/* The replay has placed the entries whose posts were lost. */
		if (!rp_journal_at(&p->journal, s)->placed)
			entry_placed(p, s, false);
	}
	rp_journal_trim(&p->journal);
}

static void post_replay(struct rpmem_pool *p)
{
	/* NULL: not planned yet. Without memory, try again with the next call.
	 */
	if (!p->replay &&
	    rp_journal_plan(&p->journal, &p->replay, &p->nreplay)) {
		p->reason = "out of memory";
		return;
	}
	while (p->replay_next < p->nreplay) {
		const struct rp_journal_piece *r = &p->replay[p->replay_next];
		struct post *t = post_new(p);

		if (!t)
			return;
		t->kind = POST_REPLAY;
		if (post_result(p, t,
				post_write(p, r->bytes, r->len, r->offset,
					   false, t)))
			return;
		p->replay_out++;
		p->replay_next++;
	}
	if (!p->replay_out)
		replay_end(p);
}

void work_post(struct rpmem_pool *p)
{
	struct work *w;
	int ret;

	if (p->state == LINK_REPLAYING)
		post_replay(p);
	while (p->state == LINK_UP && (w = TAILQ_FIRST(&p->waiting))) {
		if (w->op->type != RPMEM_POOL_COMMIT && !w->done &&
		    overlaps_buffered(p, w->op))
			break;
		ret = 0;
		switch (w->op->type) {
		case RPMEM_POOL_WRITE:
		case RPMEM_POOL_ZERO:
			ret = post_writes(p, w);
			break;
		case RPMEM_POOL_READ:
			ret = post_reads(p, w);
			break;
		case RPMEM_POOL_COMMIT:
			w->upto = p->journal.next;
			break;
		}
		if (ret == -EAGAIN)
			break;
		TAILQ_REMOVE(&p->waiting, w, link);
		if (w->op->type == RPMEM_POOL_COMMIT) {
			TAILQ_INSERT_TAIL(&p->commit_waiters, w, link);
		} else if (ret) {
			fail_write(p, w, ret,
				   ret == -EIO ? p->commit_error
					       : "out of memory");
		} else if (!w->op->len || w->op->flags == RPMEM_POOL_BUFFERED) {
			work_complete(p, w, 0, NULL);
		}
	}
	if (p->state == LINK_UP)
		commits_post(p);
}

void work_add(struct rpmem_pool *p, struct work *w)
{
	TAILQ_INSERT_TAIL(&p->waiting, w, link);
	if (p->state == LINK_ENDED)
		fail_all(p, &p->waiting, p->now.ret, p->reason);
	else if (TAILQ_FIRST(&p->waiting) == w)
		work_post(p);
}

static void expire_list(struct rpmem_pool *p, struct works *list, uint64_t now)
{
	struct work *w, *next;

	for (w = TAILQ_FIRST(list); w; w = next) {
		next = TAILQ_NEXT(w, link);
		/* The provider may still write to the read's buffer. */
		if (now < w->deadline ||
		    (w->op->type == RPMEM_POOL_READ && w->out))
			continue;
		TAILQ_REMOVE(list, w, link);
		detach_entries(p, w);
		work_complete(p, w, -ETIMEDOUT, p->reason);
	}
}

void work_expire(struct rpmem_pool *p)
{
	const uint64_t now = rp_now_ms();

	/* While connected, the provider detects a silent target. */
	if (p->state == LINK_UP)
		return;
	expire_list(p, &p->waiting, now);
	expire_list(p, &p->commit_waiters, now);
	/* Fail the writes whose bytes are all in the journal. */
	for (uint64_t s = p->journal.first; s != p->journal.next; s++) {
		struct work *w = rp_journal_at(&p->journal, s)->work;

		if (!w || w->done < w->op->len || now < w->deadline)
			continue;
		detach_entries(p, w);
		work_complete(p, w, -ETIMEDOUT, p->reason);
	}
}

void work_connected(struct rpmem_pool *p)
{
	if (p->next.ret) {
		end_pool(p, p->next.ret, pool_text(p, p->next.err));
		return;
	}
	if (p->now.peer != p->next.peer)
		fi_av_remove(p->f.av, &p->now.peer, 1, 0);
	pool_release(&p->now);
	p->now = p->next;
	p->next.lease = -1;
	p->reconnects++;
	pool_lease_wake(p);
	p->commit_error = NULL;
	p->replay_next = p->replay_out = 0;
	p->state = LINK_REPLAYING;
	work_post(p);
}

/* Complete a read, or start it again if a post failed, after the last post. */
static void read_ended(struct rpmem_pool *p, struct work *w)
{
	if (w->out || (!w->lost && w->done < w->op->len))
		return;
	if (!w->lost || p->state == LINK_ENDED) {
		work_complete(p, w, w->lost ? p->now.ret : 0, p->reason);
		return;
	}
	/* A read that is not fully posted is still in p->waiting. */
	if (w->done < w->op->len)
		TAILQ_REMOVE(&p->waiting, w, link);
	w->lost = false;
	w->done = 0;
	TAILQ_INSERT_HEAD(&p->waiting, w, link);
}

/* A post of the provider has completed, with or without an error. */
static void post_ended(struct rpmem_pool *p, const struct post *t)
{
	p->out--;
	if (t->kind == POST_ENTRY || t->kind == POST_READ)
		piece_completed(&p->pieces[t->kind == POST_READ], t->turn,
				piece_now(t->turn));
}

static void post_done(struct rpmem_pool *p, struct post *t)
{
	post_ended(p, t);
	switch (t->kind) {
	case POST_ENTRY:
		entry_placed(p, t->seq,
			     rp_journal_at(&p->journal, t->seq)->durably);
		rp_journal_trim(&p->journal);
		break;
	case POST_READ:
		t->work->out--;
		read_ended(p, t->work);
		break;
	case POST_COMMIT:
		commits_done(p, t->id);
		break;
	case POST_REPLAY:
		p->replay_out--;
		break;
	}
	post_free(p, t);
}

/* The flush of a durable write failed: its entry waits for a commit. */
static void entry_failed(struct rpmem_pool *p, uint64_t seq, const char *error)
{
	struct rp_journal_entry *e = rp_journal_at(&p->journal, seq);
	struct work *w = e->work;

	set_placed(p, e);
	e->work = NULL;
	if (!w)
		return;
	if (w->done < w->op->len)
		TAILQ_REMOVE(&p->waiting, w, link);
	w->out--;
	fail_write(p, w, -EIO, error);
}

static void post_failed(struct rpmem_pool *p, struct post *t, int prov_errno,
			const char *error)
{
	post_ended(p, t);
	switch (fi_rpmem_status(prov_errno)) {
	case FI_RPMEM_ST_FAILED:
		if (t->kind == POST_COMMIT)
			commits_failed(p, error);
		else if (t->kind == POST_ENTRY)
			entry_failed(p, t->seq, error);
		else
			work_lost(p, error);
		break;
	case FI_RPMEM_ST_RANGE:
	case FI_RPMEM_ST_CLASS:
	case FI_RPMEM_ST_ACCESS:
	case FI_RPMEM_ST_PROTOCOL:
		end_pool(p, -EIO, error);
		break;
	default:
		work_lost(p, error);
	}
	if (t->kind == POST_READ) {
		t->work->out--;
		t->work->lost = true;
		read_ended(p, t->work);
	}
	if (t->kind == POST_REPLAY)
		p->replay_out--;
	post_free(p, t);
}

/* Replace the text of a refused class by the reason that the target gives. */
static void class_reason(struct rpmem_pool *p, char *text)
{
	char why[RP_ERR_LEN / 2] = "";
	struct fi_rpmem_attr attr = {
		.size = sizeof(attr),
		.why = why,
		.why_size = sizeof(why),
	};
	enum rp_class class;

	if (rp_query_class(p->f.ops, p->f.ep, p->now.peer, p->now.ex.key,
			   p->required, &attr, &class) ||
	    fi_rpmem_status(attr.prov_errno) != FI_RPMEM_ST_CLASS)
		return;
	rp_err(text, 0,
	       "its class is weaker than required: %.240s; mend that and "
	       "start fi_rpmemd again, or require less",
	       why);
}

static void read_cq_error(struct rpmem_pool *p)
{
	struct fi_cq_err_entry bad;
	char text[RP_ERR_LEN], sentence[RP_ERR_LEN];

	if (rp_fabric_cq_error(&p->f, &bad, text) || !bad.op_context)
		return;
	if (fi_rpmem_status(bad.prov_errno) == FI_RPMEM_ST_CLASS)
		class_reason(p, text);
	/* The provider's text has a remedy only for programs with regions. */
	if (fi_rpmem_status(bad.prov_errno) == FI_RPMEM_ST_FAILED)
		rp_err(sentence, 0,
		       "the disk of pool '%.64s' on %.64s has failed: check it "
		       "and the kernel's log there, and start fi_rpmemd again; "
		       "what was not committed is then written again",
		       p->name, p->target.host);
	else
		rp_err(sentence, 0,
		       "the target of pool '%.64s' on %.64s: %.300s", p->name,
		       p->target.host, text);
	post_failed(p, bad.op_context, bad.prov_errno, pool_text(p, sentence));
}

void work_progress(struct rpmem_pool *p, int ms)
{
	struct fi_cq_entry done[32];
	ssize_t n;

	if (ms < 0 || ms > POOL_TICK_MS)
		ms = POOL_TICK_MS;
	if (p->state == LINK_DRAINING && !p->out) {
		free(p->replay);
		p->replay = NULL;
		p->state = LINK_CONNECTING;
		pool_reconnect(p);
	}
	if (p->state == LINK_CONNECTING ||
	    (p->state == LINK_ENDED && !p->out)) {
		if (ms)
			pool_cond_wait(p, &p->thread_done, (uint64_t)ms);
		work_expire(p);
		return;
	}
	work_post(p);
	/* A post that was not accepted is retried soon. */
	if (ms && p->state != LINK_DRAINING && !TAILQ_EMPTY(&p->waiting))
		ms = 1;
	pthread_mutex_unlock(&p->lock);
	n = ms ? fi_cq_sread(p->f.cq, done, 32, NULL, ms)
	       : fi_cq_read(p->f.cq, done, 32);
	pthread_mutex_lock(&p->lock);
	/* Posts of the program on the endpoint have no context. */
	for (ssize_t i = 0; i < n; i++)
		if (done[i].op_context)
			post_done(p, done[i].op_context);
	if (n == -FI_EAVAIL)
		read_cq_error(p);
	if (n == -FI_EAGAIN || n == -FI_EINTR)
		work_expire(p);
	else if (n < 0 && n != -FI_EAVAIL)
		work_lost(p, "the completion queue failed");
	work_post(p);
}
