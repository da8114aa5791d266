// SPDX-License-Identifier: BSD-2-Clause
/* The functions of raft_io. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "libraft/backend.h"

#define PENDING_MOST (64ul * 1024) /* most entry bytes not in the log yet */
#define STALL_MS     2000 /* longest append to its own log of a leader */

static struct backend *of(const struct raft_io *io)
{
	return io->impl;
}

static void *zalloc(size_t size)
{
	return calloc(1, size);
}

struct rpmem_log_attr backend_log_attr(const struct backend *b)
{
	return (struct rpmem_log_attr){
		.size = sizeof(struct rpmem_log_attr),
		.secret_file = b->secret_file,
		.required = b->attr.required,
		.timeout = b->attr.timeout,
		.logs = 2,
	};
}

void backend_wake(void *arg)
{
	struct backend *b = arg;

	uv_async_send(&b->async);
}

/*
 * Run callbacks of libraft. Callbacks of appends run in the order of the
 * appends: each one says that all entries before are stored too.
 */
static void run_callbacks(struct backend *b)
{
	struct append *a;
	struct later *l;

	while ((a = TAILQ_FIRST(&b->appends)) && a->done) {
		TAILQ_REMOVE(&b->appends, a, link);
		a->req->cb(a->req, a->status);
		free(a);
	}
	while ((l = TAILQ_FIRST(&b->later))) {
		TAILQ_REMOVE(&b->later, l, link);
		if (l->send)
			l->send->cb(l->send, l->status);
		else
			l->get->cb(l->get, l->snapshot, l->status);
		free(l);
	}
}

void backend_later(struct backend *b, const struct later *later)
{
	struct later *l = malloc(sizeof(*l));

	if (!l)
		abort(); /* the callback must run, and cannot */
	*l = *later;
	TAILQ_INSERT_TAIL(&b->later, l, link); /* for on_prepare() */
}

static void handle_closed(uv_handle_t *h)
{
	struct backend *b = h->data;

	b->busy--;
	backend_idle(b);
}

/* Close the async handle when no thread of a ring is left to use it. */
static void close_async(struct backend *b)
{
	bool open = false;
	struct peer *p;

	TAILQ_FOREACH (p, &b->peers, link) {
		ring_reap(p);
		open |= p->ring.state != RING_CLOSED;
	}
	if (!open)
		uv_close((uv_handle_t *)&b->async, handle_closed);
}

static void reap(struct backend *b)
{
	struct peer *p;

	writer_reap(&b->store.w);
	run_callbacks(b);
	TAILQ_FOREACH (p, &b->peers, link) {
		if (b->closing)
			return;
		ring_reap(p);
	}
	run_callbacks(b);
}

static void on_async(uv_async_t *async)
{
	struct backend *b = async->data;

	if (b->closing) {
		close_async(b);
		return;
	}
	uvpoll_disarm(b);
	reap(b);
}

static void no_work(uv_idle_t *idle)
{
	(void)idle;
}

/* Before the event loop sleeps: callbacks can submit, and must be run first. */
static void on_prepare(uv_prepare_t *prepare)
{
	struct backend *b = prepare->data;
	bool completed = false, again;

	run_callbacks(b);
	do {
		if (b->closing)
			return;
		completed = false;
		again = uvpoll_arm(b, &completed);
		if (completed)
			reap(b);
	} while (completed);
	if (again)
		uv_idle_start(&b->idle, no_work);
	else
		uv_idle_stop(&b->idle);
}

static void on_timer(uv_timer_t *timer)
{
	struct backend *b = timer->data;

	uvpoll_disarm(b); /* the provider detects a silent target when polled */
	(void)store_flush(&b->store);
	b->tick(b->io);
}

static void flushed(const struct origin *o)
{
	struct peer *p = o->peer;

	if (p->boot != o->boot || o->seq < p->kept)
		return;
	p->kept = o->seq;
	p->kept_lsn = o->lsn;
}

void backend_deliver(struct peer *p, struct raft_message *m)
{
	m->server_id = p->id;
	m->server_address = p->address;
	p->b->recv(p->b->io, m);
}

/*
 * Whether an append to this server's own log has failed or takes too long.
 * libraft would then go on leading and commit nothing, because it commits only
 * what is in the leader's own log. So backend_received() drops the followers'
 * results: a leader without results steps down.
 */
static bool is_stalled(const struct backend *b)
{
	const struct append *a = TAILQ_FIRST(&b->appends);

	return b->store.lost ||
	       (a && !a->done && uv_now(b->loop) - a->since > STALL_MS);
}

void backend_received(struct peer *p, const struct wire_head *h,
		      const unsigned char *message)
{
	struct backend *b = p->b;
	struct raft_message m = {.type = h->type};

	if (wire_decode(&m, message, h->len))
		return;
	if (m.type == RAFT_IO_APPEND_ENTRIES_RESULT) {
		if (!is_stalled(b))
			ring_result(p, h, &m);
		run_callbacks(b);
		return;
	}
	if (m.type == RAFT_IO_APPEND_ENTRIES)
		p->covers = m.append_entries.prev_log_index +
			    m.append_entries.n_entries;
	if (m.type == RAFT_IO_INSTALL_SNAPSHOT)
		p->covers = m.install_snapshot.last_index;
	if (m.type == RAFT_IO_APPEND_ENTRIES && h->seq > p->seen) {
		p->seen = h->seq;
		if (h->ring) {
			p->seen_lsn = h->lsn;
			b->ring_peer = p;
		}
	}
	backend_deliver(p, &m);
	b->ring_peer = NULL;
	run_callbacks(b);
}

static int io_init(struct raft_io *io, raft_id id, const char *address)
{
	struct backend *b = of(io);
	struct rpmem_log_attr attr = backend_log_attr(b);
	int ret;

	b->id = id;
	attr.take = b->attr.take;
	b->store.errmsg = io->errmsg;
	b->store.flushed = flushed;
	b->store.w.wake = backend_wake;
	b->store.w.arg = b;
	if (getrandom(&b->boot, sizeof(b->boot), 0) != sizeof(b->boot))
		return RAFT_IOERR;
	if (strchr(b->where, ',')) {
		snprintf(io->errmsg, RAFT_ERRMSG_BUF_SIZE,
			 "'%s' is a group; a server has one pool", b->where);
		return RAFT_INVALID;
	}
	ret = net_address(b, b->transport->init(b->transport, id, address));
	if (ret)
		return ret;
	b->transport_inited = true;
	b->transport->data = b;
	ret = store_open(&b->store, b->where, &attr);
	b->opened = true;
	if (ret)
		return ret;
	uv_timer_init(b->loop, &b->timer);
	uv_async_init(b->loop, &b->async, on_async);
	uv_prepare_init(b->loop, &b->prepare);
	uv_idle_init(b->loop, &b->idle);
	b->timer.data = b->async.data = b->prepare.data = b->idle.data = b;
	uv_prepare_start(&b->prepare, on_prepare);
	b->started = true;
	return 0;
}

static void release(struct backend *b)
{
	const raft_io_close_cb cb = b->close_cb;
	struct raft_io *io = b->io;
	struct peer *p;

	run_callbacks(b);
	while ((p = TAILQ_FIRST(&b->peers))) {
		TAILQ_REMOVE(&b->peers, p, link);
		free(p->ring.where);
		free(p->ring.named);
		free(p->address);
		free(p);
	}
	if (b->transport == &b->tcp)
		raft_uv_tcp_close(&b->tcp);
	else
		b->transport->data = NULL;
	free(b->where);
	free(b->at);
	free(b->secret_file);
	free(b);
	io->impl = NULL;
	if (cb)
		cb(io);
}

void backend_idle(struct backend *b)
{
	if (b->closing && b->busy == 0)
		release(b);
}

/* Cancel outstanding appends, snapshots and messages. */
static void io_close(struct raft_io *io, raft_io_close_cb cb)
{
	struct backend *b = of(io);
	struct peer *p;

	b->closing = true;
	b->close_cb = cb;
	b->busy++; /* all closings are started before close_cb runs */
	TAILQ_FOREACH (p, &b->peers, link)
		ring_close(p);
	if (b->opened)
		store_close(&b->store);
	run_callbacks(b);
	net_close(b);
	if (b->started) {
		b->busy += 4;
		uv_close((uv_handle_t *)&b->timer, handle_closed);
		uv_close((uv_handle_t *)&b->prepare, handle_closed);
		uv_close((uv_handle_t *)&b->idle, handle_closed);
		close_async(b);
	}
	b->busy--;
	backend_idle(b);
}

/* Take the ring first, so that no leader can write to it any more. */
static int replay(struct backend *b, struct replay *rp, bool take_over)
{
	struct rpmem_log_attr attr = backend_log_attr(b);
	struct rpmem_log_info info = {.size = sizeof(info)};
	struct rpmem_log *ring;
	int ret;

	attr.log = 1;
	attr.take = 1;
	ret = rpmem_log_open(&ring, b->where, &attr);
	if (ret)
		return store_error(&b->store, ret, b->where);
	ret = store_replay(&b->store, ring, rp);
	if (!ret)
		ret = store_claim(&b->store, b->where, b->id, take_over);
	if (!ret)
		ret = rpmem_log_query(ring, &info)
			      ? store_error(&b->store, -EIO, b->where)
			      : 0;
	b->ring_id = info.id;
	rpmem_log_close(ring);
	if (ret)
		replay_free(rp);
	return ret;
}

static int io_load(struct raft_io *io, raft_term *term, raft_id *vote,
		   struct raft_snapshot **snapshot, raft_index *start_index,
		   struct raft_entry *entries[], size_t *n)
{
	struct backend *b = of(io);
	struct store *st = &b->store;
	struct replay rp = {0};
	int ret = replay(b, &rp, false);

	if (ret)
		return ret;
	*snapshot = NULL;
	if (st->snap.index)
		ret = store_snapshot_get(st, snapshot);
	if (ret) {
		replay_free(&rp);
		return ret;
	}
	*term = st->term;
	*vote = st->vote;
	*start_index = st->first;
	*entries = rp.entries;
	*n = rp.n;
	return 0;
}

static int io_start(struct raft_io *io, unsigned int msecs,
		    raft_io_tick_cb tick, raft_io_recv_cb recv)
{
	struct backend *b = of(io);
	int ret;

	b->tick = tick;
	b->recv = recv;
	b->store.w.may_poll = true;
	if (writer_start(&b->store.w))
		return RAFT_NOMEM;
	ret = net_listen(b);
	if (ret)
		return ret;
	uv_timer_start(&b->timer, on_timer, msecs, msecs);
	return 0;
}

static void stored(struct job *job, int result)
{
	*(int *)job->arg = raft_code(result);
}

/* Append a configuration before the thread of the log runs. */
static int append_configuration(struct store *st, raft_term term,
				const struct raft_configuration *conf)
{
	struct raft_entry e = {.term = term, .type = RAFT_CHANGE};
	int result = 0, ret;
	struct job job = {.done = stored, .arg = &result};

	ret = raft_configuration_encode(conf, &e.buf);
	if (ret)
		return ret;
	ret = store_append(st, &e, 1, &job);
	if (!ret)
		writer_reap(&st->w);
	raft_free(e.buf.base);
	return ret ? ret : result;
}

static int io_bootstrap(struct raft_io *io,
			const struct raft_configuration *conf)
{
	struct store *st = &of(io)->store;
	bool pristine;
	int ret = store_pristine(st, &pristine);

	if (!ret && !pristine)
		ret = RAFT_CANTBOOTSTRAP;
	return ret ? ret : append_configuration(st, 1, conf);
}

static int io_recover(struct raft_io *io, const struct raft_configuration *conf)
{
	struct backend *b = of(io);
	struct replay rp = {0};
	int ret = replay(b, &rp, true);

	if (ret)
		return ret;
	replay_free(&rp);
	return append_configuration(&b->store, b->store.term, conf);
}

/*
 * store_term() can block for long. libraft starts timers right after it, from
 * the loop's cached time: refresh that, or they expire too early.
 */
static int set_term_and_vote(struct backend *b, raft_term term, raft_id vote)
{
	const int ret = store_term(&b->store, term, vote);

	uv_update_time(b->loop);
	return ret;
}

static int io_set_term(struct raft_io *io, raft_term term)
{
	return set_term_and_vote(of(io), term, 0);
}

static int io_set_vote(struct raft_io *io, raft_id id)
{
	return set_term_and_vote(of(io), of(io)->store.term, id);
}

/*
 * As a follower, libraft reports the last index of its whole log. That can
 * include entries of former leaders, beyond what the present leader has sent,
 * and the leader would count them as copies of its own entries. Report at most
 * the last entry of the leader's newest message, and none while the follower
 * refuses messages.
 */
static struct raft_message without_leftovers(struct peer *p,
					     const struct raft_message *m)
{
	struct raft_message mine = *m;
	struct raft_append_entries_result *r = &mine.append_entries_result;

	if (m->type != RAFT_IO_APPEND_ENTRIES_RESULT)
		return mine;
	if (r->rejected)
		p->covers = 0;
	else if (r->last_log_index > p->covers)
		r->last_log_index = p->covers;
	return mine;
}

static int io_send(struct raft_io *io, struct raft_io_send *req,
		   const struct raft_message *m, raft_io_send_cb cb)
{
	struct backend *b = of(io);
	const size_t len = wire_size(m);
	struct wire_head h = {.len = (uint32_t)len, .type = m->type};
	struct raft_message mine;
	struct frame *f;
	struct peer *p;

	/* The result of an append, for a leader that is no longer known. */
	if (!m->server_address)
		return RAFT_NOCONNECTION;
	p = net_peer(b, m->server_id, m->server_address);
	if (len > WIRE_MAX)
		return RAFT_TOOBIG;
	f = p ? malloc(sizeof(*f) + WIRE_HEAD + len) : NULL;
	if (!f)
		return RAFT_NOMEM;
	memset(f, 0, sizeof(*f));
	req->cb = cb;
	f->req = cb ? req : NULL; /* raft_transfer() has no callback */
	f->len = WIRE_HEAD + len;
	mine = without_leftovers(p, m);
	wire_encode(&mine, f->bytes + WIRE_HEAD);
	if (m->type == RAFT_IO_APPEND_ENTRIES)
		ring_send(p, f->bytes + WIRE_HEAD, len,
			  m->append_entries.n_entries, &h);
	if (m->type == RAFT_IO_APPEND_ENTRIES_RESULT) {
		if (!b->store.npending && !b->store.flushing &&
		    !b->store.lost) {
			p->kept = p->seen;
			p->kept_lsn = p->seen_lsn;
		}
		h.seq = p->seen;
		h.kept = p->kept;
		h.lsn = p->kept_lsn;
	}
	wire_head_put(f->bytes, &h);
	net_send(p, f);
	return 0;
}

static void append_done(struct job *job, int result)
{
	struct append *a = (struct append *)job;
	struct store *st = job->arg;

	a->done = true;
	a->status = raft_code(result);
	if (result)
		st->lost = a->status;
}

/* Keep entries of a message pending that its leader has put in the ring. */
static int pend(struct backend *b, const struct raft_entry *entries,
		unsigned int n)
{
	struct store *st = &b->store;
	struct peer *p = b->ring_peer;
	int ret = 0;

	if (st->npending && st->origin.peer != p)
		ret = store_flush(st);
	if (!ret)
		ret = store_pend(st, entries, n);
	if (ret)
		return ret;
	st->origin = (struct origin){p, p->boot, p->seen, p->seen_lsn};
	if (st->pending_bytes > PENDING_MOST)
		(void)store_flush(st);
	return 0;
}

static int io_append(struct raft_io *io, struct raft_io_append *req,
		     const struct raft_entry entries[], unsigned int n,
		     raft_io_append_cb cb)
{
	struct backend *b = of(io);
	struct append *a = zalloc(sizeof(*a));
	int ret;

	if (!a)
		return RAFT_NOMEM;
	req->cb = cb;
	a->req = req;
	a->since = uv_now(b->loop);
	a->job.done = append_done;
	a->job.arg = &b->store;
	a->done = b->ring_peer;
	ret = a->done ? pend(b, entries, n)
		      : store_append(&b->store, entries, n, &a->job);
	if (ret) {
		free(a);
		return ret;
	}
	TAILQ_INSERT_TAIL(&b->appends, a, link);
	return 0;
}

static int io_truncate(struct raft_io *io, raft_index index)
{
	return store_truncate(&of(io)->store, index);
}

static void put_done(void *arg, int status)
{
	struct backend *b = arg;
	struct raft_io_snapshot_put *req = b->put;

	b->put = NULL;
	req->cb(req, status);
}

static int io_snapshot_put(struct raft_io *io, unsigned int trailing,
			   struct raft_io_snapshot_put *req,
			   const struct raft_snapshot *snapshot,
			   raft_io_snapshot_put_cb cb)
{
	struct backend *b = of(io);
	const int ret =
		store_snapshot(&b->store, trailing, snapshot, put_done, b);

	if (ret)
		return ret;
	req->cb = cb;
	b->put = req;
	return 0;
}

/* Whether the snapshot is too long for a message; reports it once. */
static bool is_snapshot_too_long(struct backend *b)
{
	const struct raft_message m = {
		.type = RAFT_IO_INSTALL_SNAPSHOT,
		.install_snapshot.conf = b->store.snap.conf,
		.install_snapshot.data.len = b->store.snap.bytes,
	};

	if (!b->store.snap.index || wire_size(&m) <= WIRE_MAX)
		return false;
	if (b->too_long != b->store.snap.index)
		fprintf(stderr,
			"rpmem_raft: the snapshot has %llu bytes, and a "
			"message at most %u: a server that is new, or far "
			"behind, cannot get it; make the state smaller\n",
			(unsigned long long)b->store.snap.bytes, WIRE_MAX);
	b->too_long = b->store.snap.index;
	return true;
}

static int io_snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req,
			   raft_io_snapshot_get_cb cb)
{
	struct backend *b = of(io);
	struct later l = {.get = req};

	req->cb = cb;
	if (is_snapshot_too_long(b))
		l.status = RAFT_TOOBIG;
	else
		l.status = b->store.snap.index
				   ? store_snapshot_get(&b->store, &l.snapshot)
				   : RAFT_NOTFOUND;
	backend_later(b, &l);
	return 0;
}

static raft_time io_time(struct raft_io *io)
{
	return uv_now(of(io)->loop);
}

static int io_random(struct raft_io *io, int min, int max)
{
	unsigned int r = 0;

	(void)io;
	(void)!getrandom(&r, sizeof(r), 0);
	return max > min ? min + (int)(r % (unsigned int)(max - min)) : min;
}

struct work {
	uv_work_t work;
	struct backend *b;
	struct raft_io_async_work *req;
	int status;
};

static void work_run(uv_work_t *work)
{
	struct work *w = (struct work *)work;

	w->status = w->req->work(w->req);
}

static void work_done(uv_work_t *work, int status)
{
	struct work *w = (struct work *)work;
	struct backend *b = w->b;

	w->req->cb(w->req, status ? RAFT_CANCELED : w->status);
	free(w);
	b->busy--;
	backend_idle(b);
}

static int io_async_work(struct raft_io *io, struct raft_io_async_work *req,
			 raft_io_async_work_cb cb)
{
	struct work *w = zalloc(sizeof(*w));

	if (!w)
		return RAFT_NOMEM;
	w->b = of(io);
	w->req = req;
	req->cb = cb;
	if (uv_queue_work(w->b->loop, &w->work, work_run, work_done)) {
		free(w);
		return RAFT_IOERR;
	}
	w->b->busy++;
	return 0;
}

static char *copy(const char *s)
{
	return s ? strdup(s) : NULL;
}

int rpmem_raft_init(struct raft_io *io, struct uv_loop_s *loop,
		    const char *where, const struct rpmem_raft_attr *attr)
{
	struct backend *b;
	int ret;

	if (!io || !loop || !where || (attr && attr->size < sizeof(attr->size)))
		return RAFT_INVALID;
	b = zalloc(sizeof(*b));
	if (!b)
		return RAFT_NOMEM;
	if (attr)
		memcpy(&b->attr, attr,
		       attr->size < sizeof(*attr) ? attr->size : sizeof(*attr));
	b->io = io;
	b->loop = loop;
	b->where = copy(where);
	b->at = copy(b->attr.at ? b->attr.at : where);
	b->secret_file = copy(b->attr.secret_file);
	TAILQ_INIT(&b->peers);
	TAILQ_INIT(&b->incoming);
	TAILQ_INIT(&b->appends);
	TAILQ_INIT(&b->later);
	ret = b->where && b->at && (!b->attr.secret_file || b->secret_file)
		      ? 0
		      : RAFT_NOMEM;
	b->transport = b->attr.transport ? b->attr.transport : &b->tcp;
	if (!ret && b->transport == &b->tcp)
		ret = raft_uv_tcp_init(&b->tcp, loop);
	if (ret) {
		free(b->where);
		free(b->at);
		free(b->secret_file);
		free(b);
		return ret;
	}
	*io = (struct raft_io){
		.version = 2,
		.data = io->data,
		.impl = b,
		.init = io_init,
		.close = io_close,
		.load = io_load,
		.start = io_start,
		.bootstrap = io_bootstrap,
		.recover = io_recover,
		.set_term = io_set_term,
		.set_vote = io_set_vote,
		.send = io_send,
		.append = io_append,
		.truncate = io_truncate,
		.snapshot_put = io_snapshot_put,
		.snapshot_get = io_snapshot_get,
		.time = io_time,
		.random = io_random,
		.async_work = io_async_work,
	};
	return 0;
}
