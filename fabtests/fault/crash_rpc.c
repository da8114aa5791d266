// SPDX-License-Identifier: BSD-2-Clause
/*
 * librpmem_rpc over the provider on the simulated fabric. Calls become durable
 * by a read fence or native FLUSH (WFlush), or by the agent, with the call
 * inside the request (S-RFlush) or before it (W-RFlush). At each step of
 * client, server and handler, and within flushes, the server restarts from the
 * images that a power cut or a kill may leave. Each time the client has ended,
 * goes on, or is followed by its next process.
 *
 * usage: crash_rpc [METHOD PROGRAM]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crash_pool.h"
#include "unit/rpc_stub.h"

#define LENGTH (RPC_RING_AT + RPC_RING_MIN)
#define LONG   300u /* bytes of a long call; with ROOM an eighth of the ring */
#define ROOM   90u  /* bytes for the reply to a call */
#define SHORT  40u  /* bytes of a short call */
#define CALLS  32u
#define FILL   7u /* long calls; then a short one fills the ring */
#define MORE   2u /* calls of the client's next process */
/*
 * Limits for a program with many orders of messages: the first RUNS orders of
 * the search, and RUNS random ones.
 */
#define RUNS	  12u
#define RUNS_LONG 1000u

/*
 * s, l: submit a short or a long call; w: wait for all replies; f, in front:
 * begin with a ring full of durable calls without replies. Without f the
 * program begins near the end of an empty ring.
 */
static const char *const programs[] = {"s", "ls", "swl", "fl", "fwl"};
#define PROGRAMS (sizeof(programs) / sizeof(*programs))

static const unsigned char id[RPMEM_RPC_ID] = "crash";

/* State that a handler keeps as rpmem_rpc(3) describes. */
struct handler {
	uint64_t sequence, k;
};

struct client_call {
	struct rpmem_rpc_op op;
	uint64_t k;
	unsigned char bytes[LONG], reply[ROOM];
};

/* The image that a cut has left, and the server that starts from it. */
struct image {
	struct pool_image pool; /* memory as client and server see it */
	unsigned char medium[LENGTH];
	bool hold; /* flushes are lost: the server dies before them */
	struct handler handler;
	struct rpmem_rpc_server *srv;
};

static struct world {
	const char *next; /* steps of the program still to do */
	struct handler handler;
	struct rpmem_rpc_server *srv;
	unsigned char view[LENGTH], before[LENGTH]; /* memory as the server
						     * sees it, now and at
						     * the last store_view() */
	struct rpmem_rpc *c;
	struct client_call calls[CALLS];
	uint64_t submitted, acked, replied;
	uint64_t submitting; /* 1 within rpmem_rpc_submit(): the call may be
			      * in the ring already */
	uint64_t full_at;    /* w.replied + 1 when a submit found the ring
			      * full; 0: none did */
	uint64_t recorded;   /* w.c->recorded at that time */
	bool messages; /* the server sends replies; false: the client reads
			* them from the ring */
	struct {
		struct rpc_msg m;
		unsigned char bytes[ROOM];
	} msgs[CALLS];
	unsigned int nmsgs;
} w;

static struct image *image; /* image under recovery; NULL: calls below use
			     * the simulated fabric */

/* --- the server's memory --- */

/*
 * The server works on w.view, a copy of its memory. store_view() finds the
 * words that it changed, and stores them as the target's CPU.
 */
static void load_view(void)
{
	memcpy(w.view, pw.mem, LENGTH);
	memcpy(w.before, pw.mem, LENGTH);
}

static void store_view(void)
{
	for (size_t i = 0; i < LENGTH; i += MODEL_WORD)
		if (memcmp(w.view + i, w.before + i, MODEL_WORD) != 0) {
			memcpy(w.before + i, w.view + i, MODEL_WORD);
			pool_store(i, w.view + i, MODEL_WORD);
		}
}

int rp_pmem_flush(struct rp_pmem *pm, uint64_t off, uint64_t len)
{
	if (!image) {
		store_view();
		pool_flush(off, len);
	} else if (!image->hold) {
		memcpy(image->medium + off, image->pool.bytes + off, len);
	}
	return 0;
}

void rp_pmem_drain(struct rp_pmem *pm)
{
	if (!image)
		pool_drain();
}

bool rp_pmem_blocks(const struct rp_pmem *pm)
{
	return false;
}

/* --- the client's pool --- */

int rpmem_pool_open(struct rpmem_pool **pool, const char *where,
		    const struct rpmem_pool_attr *attr)
{
	*pool = (struct rpmem_pool *)&w;
	return 0;
}

int rpmem_pool_query(struct rpmem_pool *pool, struct rpmem_pool_info *info)
{
	info->length = LENGTH;
	info->method = "agent-clwb";
	return 0;
}

int rpmem_pool_read(struct rpmem_pool *pool, void *buf, size_t len,
		    uint64_t offset)
{
	memcpy(buf, (image ? image->pool.bytes : pw.mem) + offset, len);
	return 0;
}

int rpmem_pool_submit(struct rpmem_pool *pool, struct rpmem_pool_op *op)
{
	if (!image)
		return pool_submit(NULL, op);
	if (op->type == RPMEM_POOL_WRITE)
		memcpy(image->medium + op->offset, op->buf, op->len);
	return pool_image_submit(&image->pool, op);
}

int rpmem_pool_poll(struct rpmem_pool *pool, struct rpmem_pool_op **done,
		    unsigned int n, int timeout_ms)
{
	return image ? pool_image_poll(&image->pool, done, n, timeout_ms)
		     : pool_poll(NULL, done, n, timeout_ms);
}

int rpmem_pool_write(struct rpmem_pool *pool, const void *buf, size_t len,
		     uint64_t offset, unsigned int flags)
{
	struct rpmem_pool_op *done, op = {
					    .type = RPMEM_POOL_WRITE,
					    .flags = flags,
					    .buf = (void *)(uintptr_t)buf,
					    .len = len,
					    .offset = offset,
				    };
	int ret = rpmem_pool_submit(pool, &op);

	/*
	 * Only rpc_super_write() calls this, with no other operation
	 * outstanding.
	 */
	while (!ret && rpmem_pool_poll(pool, &done, 1, -1) == 0 && !*pw.why)
		;
	return ret;
}

/* --- messages --- */

int rpc_port_send(struct rpc_port *p, fi_addr_t to, const struct rpc_msg *m)
{
	struct rpmem_rpc_server *srv = image ? image->srv : w.srv;

	if (m->type == RPC_MSG_ATTACH) {
		if (!image)
			load_view();
		slot_attach(srv, &srv->slots[0]);
		srv->slots[0].attached = true;
		if (!image)
			store_view();
	} else if (m->type == RPC_MSG_REPLY && !image && w.messages) {
		w.msgs[w.nmsgs].m = *m;
		w.msgs[w.nmsgs].m.has_bytes = true;
		memcpy(w.msgs[w.nmsgs++].bytes, m->bytes, m->result.len);
	}
	return 0;
}

int rpc_port_poll(struct rpc_port *p, rpc_port_fn fn, void *arg, int ms)
{
	for (unsigned int i = 0; !image && i < w.nmsgs; i++) {
		w.msgs[i].m.bytes = w.msgs[i].bytes;
		fn(arg, &w.msgs[i].m);
	}
	if (!image)
		w.nmsgs = 0;
	return 0;
}

/* --- the server and its handler --- */

void server_fail(struct rpmem_rpc_server *srv, int ret, const char *why)
{
	WRONG("the server fails: %s", why);
}

static struct rpmem_rpc_server *start_server(unsigned char *map)
{
	struct rpmem_rpc_server *srv = rpc_stub_start(map, LENGTH, ++pw.rng);

	if (!srv)
		WRONG("no recovery: %s", rpmem_rpc_error());
	return srv;
}

static void fill(unsigned char *to, uint64_t k, size_t len)
{
	memset(to, (int)k, len);
	memcpy(to, &k, sizeof(k));
}

/*
 * Process the next call as a handler that rpmem_rpc(3) describes: skip the work
 * if h->sequence shows that it was done. Returns false if there is no call.
 */
static bool process_next(struct rpmem_rpc_server *srv, struct handler *h)
{
	struct rpmem_rpc_call *call = rpc_stub_next(srv);
	unsigned char want[LONG];
	uint64_t k = 0;

	if (!call)
		return false;
	memcpy(&k, call->buf, sizeof(k));
	fill(want, k, call->len);
	if (memcmp(want, call->buf, call->len) != 0)
		WRONG("call %u has other bytes", (unsigned int)k);
	if (call->sequence <= h->sequence && !call->again)
		WRONG("call %u is processed twice", (unsigned int)k);
	else if (call->sequence <= h->sequence && k <= w.replied)
		WRONG("call %u is processed again, though replied",
		      (unsigned int)k);
	else if (call->sequence > h->sequence && k != h->k + 1)
		WRONG("call %u is processed behind call %u", (unsigned int)k,
		      (unsigned int)h->k);
	if (call->sequence > h->sequence)
		*h = (struct handler){call->sequence, k};
	if (rpmem_rpc_reply(srv, call, want, ROOM / 2))
		WRONG("reply: %s", rpmem_rpc_error());
	return true;
}

/* --- recovery --- */

static void restart_image(const unsigned char *left, const struct handler *h)
{
	rpc_stub_end(image->srv);
	image->pool.nended = 0;
	image->hold = false;
	image->handler = *h;
	if (left != image->pool.bytes)
		memcpy(image->pool.bytes, left, LENGTH);
	memcpy(image->medium, image->pool.bytes, LENGTH);
	image->srv = start_server(image->pool.bytes);
}

static void serve_image(uint64_t least, uint64_t most)
{
	while (image->srv && process_next(image->srv, &image->handler) &&
	       !*pw.why)
		;
	if (image->handler.k < least || image->handler.k > most)
		WRONG("%u calls are processed, not %u to %u",
		      (unsigned int)image->handler.k, (unsigned int)least,
		      (unsigned int)most);
}

/*
 * Recovery without the client. The first server dies after one call, and before
 * its flush; the second one processes all calls.
 */
static void recover_alone(const unsigned char *left)
{
	unsigned char medium[LENGTH];
	struct handler h;

	restart_image(left, &w.handler);
	if (!image->srv)
		return;
	image->hold = true;
	process_next(image->srv, &image->handler);
	memcpy(medium, image->medium, LENGTH);
	h = image->handler;
	restart_image(medium, &h);
	serve_image(w.acked, w.submitted + w.submitting);
}

static bool poll_replies(struct rpmem_rpc *c, unsigned int n)
{
	struct rpmem_rpc_op *done;
	unsigned int got = 0;

	for (int i = 0; i < POOL_PUMPS && got < n; i++) {
		c->peek_at = 0;
		while (process_next(image->srv, &image->handler))
			;
		if (rpmem_rpc_poll(c, &done, 1, 0) == 1)
			got++;
	}
	return got == n;
}

/*
 * The client's next process connects, makes MORE calls, and is killed. A third
 * server must find that all of them were processed.
 */
static void recover_next(void)
{
	const struct rpmem_rpc_attr attr = {.size = sizeof(attr), .id = id};
	static struct client_call more[MORE];
	const uint64_t first = image->handler.k + 1;
	struct rpmem_rpc *c;

	if (*pw.why || !image->srv)
		return;
	if (rpmem_rpc_connect(&c, "h:p", &attr)) {
		WRONG("connect: %s", rpmem_rpc_error());
		return;
	}
	for (unsigned int i = 0; i < MORE; i++) {
		fill(more[i].bytes, first + i, SHORT);
		more[i].op = (struct rpmem_rpc_op){.buf = more[i].bytes,
						   .len = SHORT,
						   .reply = more[i].reply,
						   .reply_max = ROOM};
		if (rpmem_rpc_submit(c, &more[i].op) || !poll_replies(c, 1))
			WRONG("a call behind a recovery: %s",
			      rpmem_rpc_error());
	}
	c->failed = -EIO; /* SIGKILL: close() writes nothing */
	rpmem_rpc_close(c, 0);
	restart_image(image->pool.bytes, &image->handler);
	serve_image(first + MORE - 1, first + MORE - 1);
}

/*
 * Recovery with the client alive: its librpmem_pool repeats the outstanding
 * writes, and each call must get its reply.
 */
static void recover_together(const unsigned char *left)
{
	static unsigned char bytes[LENGTH];

	memcpy(bytes, left, LENGTH);
	for (unsigned int i = 0; i < pw.nout; i++)
		memcpy(bytes + pw.out[i]->offset, pw.out[i]->buf,
		       pw.out[i]->len);
	restart_image(bytes, &w.handler);
	serve_image(w.submitted, w.submitted + w.submitting);
	for (uint64_t n = w.c->open; n < w.c->tail.n && !*pw.why; n++) {
		const struct sent *sent = rpc_sent(w.c, n);
		const struct rpc_entry *e;
		const unsigned char *from;
		struct rpc_result r;

		if (!sent) {
			WRONG("call %u has no reply, and no space",
			      (unsigned int)n);
			return;
		}
		e = &sent->entry;
		from = image->pool.bytes + RPC_RING_AT +
		       e->pos % w.c->super.ring + rpc_entry_result(e->len);
		if (!sent->answered &&
		    (!rpc_result_decode(w.c->super.seed, from, e->room,
					rpc_sequence(e->incarnation, n), &r) ||
		     r.mark != rpc_mark(image->srv->page.token, r.sequence)))
			WRONG("call %u has no reply behind a recovery",
			      (unsigned int)n);
	}
}

static void recover(const unsigned char *left)
{
	static struct image one;

	image = &one;
	recover_alone(left);
	recover_next();
	if (!*pw.why)
		recover_together(left);
	rpc_stub_end(one.srv);
	one.srv = NULL;
	image = NULL;
}

/* --- steps --- */

static uint64_t state(void)
{
	uint64_t h = w.handler.k;

	h = pool_mix_hash(h ^ w.handler.sequence << 8);
	h = pool_mix_hash(h ^ w.submitted ^ w.acked << 16 ^ w.replied << 32);
	for (unsigned int i = 0; i < pw.nout; i++)
		h = pool_mix_hash(h ^ pw.out[i]->offset);
	return h;
}

static int submit_call(size_t len)
{
	struct client_call *o = &w.calls[(w.submitted + 1) % CALLS];
	int ret;

	fill(o->bytes, w.submitted + 1, len);
	o->k = w.submitted + 1;
	o->op = (struct rpmem_rpc_op){
		.buf = o->bytes,
		.len = len,
		.reply = o->reply,
		.reply_max = ROOM,
		.flags = RPMEM_RPC_NOTIFY,
		.context = o,
	};
	w.submitting = 1;
	ret = rpmem_rpc_submit(w.c, &o->op);
	w.submitting = 0;
	w.submitted += !ret;
	if (ret && ret != -EAGAIN)
		WRONG("submit: %s", rpmem_rpc_error());
	return ret;
}

static bool may_submit(void)
{
	return *w.next &&
	       (w.full_at != w.replied + 1 || w.recorded != w.c->recorded) &&
	       (*w.next != 'w' || w.replied == w.submitted);
}

/*
 * Poll until two polls in a row return nothing: a poll that returns nothing may
 * have begun to read a reply.
 */
static void poll_calls(void)
{
	struct rpmem_rpc_op *done;

	for (int idle = 0; idle < 2;) {
		const struct client_call *o;

		w.c->peek_at = w.messages ? UINT64_MAX : 0;
		if (rpmem_rpc_poll(w.c, &done, 1, 0) != 1) {
			idle += !pw.nended;
			continue;
		}
		o = done->context;
		if (done->result)
			WRONG("call %u: %s", (unsigned int)o->k, done->error);
		if (o->k > w.acked)
			w.acked = o->k;
		if (done->state == RPMEM_RPC_DONE)
			w.replied = o->k;
	}
}

static void poll_client(void)
{
	pool_poll_machine();
	poll_calls();
}

static void submit_next(void)
{
	if (*w.next != 'w' &&
	    submit_call(*w.next == 'l' ? LONG : SHORT) == -EAGAIN) {
		w.full_at = w.replied + 1;
		w.recorded = w.c->recorded;
		return;
	}
	w.full_at = 0;
	w.next++;
	poll_calls();
}

/* Is a new call in the ring, or one that the server has taken? */
static bool may_serve(void)
{
	struct slot *s = &w.srv->slots[0];
	struct rpc_entry e;

	return !TAILQ_EMPTY(&w.srv->calls) ||
	       rpc_entry_next(&s->super, pw.mem + RPC_RING_AT, &s->next, &e);
}

static void serve(void)
{
	load_view();
	process_next(w.srv, &w.handler);
	store_view();
}

static bool is_done(void)
{
	return !*w.next && w.replied == w.submitted;
}

/*
 * Make calls outside the fabric until the ring's end is near, or, with full and
 * without replies, until the ring is full.
 */
static void begin_ring(bool full)
{
	pw.instant = true;
	for (unsigned int i = 0; i <= FILL; i++) {
		if (submit_call(i < FILL ? LONG : SHORT))
			WRONG("the ring is full too early");
		poll_calls();
		if (!full)
			serve();
		poll_calls();
	}
	pw.instant = false;
	if (w.acked != w.submitted || (!full && w.replied != w.submitted))
		WRONG("the first calls have no acknowledgement or reply");
}

struct trial {
	const struct pool_cell *cell;
	const char *program;
};

static void run_trial(const void *arg)
{
	static const struct pool_program program = {
		.length = LENGTH,
		.ring_at = RPC_RING_AT,
		.modes = 8,
		.state = state,
		.recover = recover,
		.may_submit = may_submit,
		.submit = submit_next,
		.poll = poll_client,
		.is_done = is_done,
		.may_serve = may_serve,
		.serve = serve,
	};
	const struct rpmem_rpc_attr attr = {.size = sizeof(attr), .id = id};
	const struct trial *t = arg;
	const bool full = *t->program == 'f';

	memset(&w, 0, sizeof(w));
	w.next = t->program + full;
	pool_start(t->cell, &program);
	w.messages = choose(&choices, 2);
	load_view();
	w.srv = start_server(w.view);
	store_view();
	if (!w.srv || rpmem_rpc_connect(&w.c, "h:p", &attr)) {
		fprintf(stderr, "%s\n", rpmem_rpc_error());
		exit(99);
	}
	begin_ring(full);
	pool_run();
	w.c->failed = -EIO;
	rpmem_rpc_close(w.c, 0);
	rpc_stub_end(w.srv);
}

/* Try all programs of a cell. Returns the number of failures. */
static unsigned int try_programs(const struct pool_cell *cell, const char *only,
				 unsigned int *tried, unsigned int most)
{
	unsigned int failed = 0;
	char name[64];

	for (size_t p = 0; p < PROGRAMS; p++) {
		const struct trial t = {cell, programs[p]};

		if (only && strcmp(only, t.program) != 0)
			continue;
		snprintf(name, sizeof(name), "%s%s %s", cell->method,
			 cell->apart ? "-apart" : "", t.program);
		++*tried;
		failed += !pool_explore(name, run_trial, &t, most);
	}
	return failed;
}

int main(int argc, char **argv)
{
	const unsigned int most = pool_setup(RUNS, RUNS_LONG);
	unsigned int failed = 0, tried = 0;
	char name[64];

	for (unsigned int c = 0; c < POOL_CELLS; c++) {
		snprintf(name, sizeof(name), "%s%s", pool_cells[c].method,
			 pool_cells[c].apart ? "-apart" : "");
		if (argc > 1 && strcmp(argv[1], name) != 0)
			continue;
		failed += try_programs(&pool_cells[c],
				       argc > 2 ? argv[2] : NULL, &tried, most);
	}
	return pool_end(tried, failed);
}
