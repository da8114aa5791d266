// SPDX-License-Identifier: BSD-2-Clause
/*
 * Runs one program over a simulated queue pair, with the real shim and agent
 * (crash_run() of crash_world.h).
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "crash_shim_priv.h"

/*
 * Rules of the simulated adapter of the target. It takes requests in posting
 * order, and a write or atomic write is then on its way to memory. Three kinds
 * of request wait in the adapter, and a later write may pass them: a read, a
 * flush, and an atomic write behind a flush or with IBV_SEND_FENCE. If a CPU
 * places the bytes, it executes all requests in order. Completions come in
 * order, and the program polls at once.
 */
struct shim_world w;

void say(const char *fmt, ...)
{
	va_list ap;

	if (!w.trace)
		return;
	fprintf(stderr, "%4u  ", w.step);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

void check(void)
{
	if (w.begun && w.seen == CRASH_OK)
		w.seen = oracle_check(&w.o, w.model, w.mem);
}

/* --- completions --- */

void complete(uint64_t wr_id, uint32_t number, int opcode, size_t len,
	      enum ibv_wc_status status)
{
	if (w.nwc == 2 * CQE) {
		fprintf(stderr, "a completion queue is full\n");
		abort();
	}
	w.wc[w.nwc++] = (struct ibv_wc){
		.wr_id = wr_id,
		.status = status,
		.opcode = (enum ibv_wc_opcode)(status ? 0x5a : opcode),
		.byte_len = (uint32_t)len,
		.qp_num = number,
	};
}

/* Complete executed requests in posting order. */
static void complete_front(void)
{
	static const int opcodes[] = {
		[WR_WRITE] = IBV_WC_RDMA_WRITE,
		[WR_READ] = IBV_WC_RDMA_READ,
		[WR_FLUSH] = RPMEM_WC_FLUSH,
		[WR_ATOMIC] = RPMEM_WC_ATOMIC_WRITE,
		[WR_RING] = IBV_WC_RDMA_WRITE,
	};

	while (w.nqueue && w.queue[0].done) {
		const struct wr r = w.queue[0];

		memmove(w.queue, w.queue + 1, --w.nqueue * sizeof(r));
		if (r.status || (r.flags & IBV_SEND_SIGNALED))
			complete(r.wr_id, SHIM_QPN, opcodes[r.kind], r.len,
				 r.status);
	}
}

static void record_completion(const struct ibv_wc *wc)
{
	struct oracle_op *op = (struct oracle_op *)(uintptr_t)wc->wr_id;

	if (!op)
		return; /* a request of start_run() */
	/*
	 * The flush, atomic write and flush of a THEN share this wr_id: record
	 * only their first error.
	 */
	if (wc->status && op->kind == CRASH_THEN && op->state == OP_FAILED)
		return;
	say("completes: %s %s", oracle_op_name(op),
	    wc->status ? "failed" : "ok");
	if (oracle_is_commit(op)) {
		w.st->acked += !wc->status;
		w.st->acked_weak += !wc->status && w.noticed;
		w.st->failed += wc->status != 0;
	}
	oracle_complete(&w.o, op, wc->status ? EUCLEAN : 0, w.step);
}

void look(void)
{
	struct ibv_wc wc[4];
	int n;

	while ((n = rpmem_poll_cq(w.cq, 4, wc)) > 0)
		for (int i = 0; i < n; i++)
			record_completion(&wc[i]);
}

/* --- the target's adapter --- */

static bool in_order(void)
{
	return w.cell->truth.place < MODEL_DMA_CACHE;
}

static void place_bytes(const struct wr *r, const void *bytes)
{
	if (in_order())
		model_store(w.model, w.cell->truth.place, w.mem + r->off, bytes,
			    r->len);
	else
		model_dma_write(w.model, QP, w.mem + r->off, bytes, r->len);
}

static void execute_request(struct wr *r)
{
	uint8_t scratch[RP_FENCE_MAX_LEN];

	r->done = true;
	switch (r->kind) {
	case WR_WRITE:
		place_bytes(r, r->buf);
		break;
	case WR_ATOMIC:
		oracle_stored(&w.o, r->value);
		place_bytes(r, &r->value);
		break;
	case WR_RING:
		/*
		 * The ring is outside the model. The agent sees the bytes at
		 * once, which is the worst case.
		 */
		memcpy(w.ring_in + r->off, r->buf, r->len);
		break;
	case WR_READ:
		model_dma_read(w.model, QP, w.mem + r->off, scratch, r->len);
		break;
	case WR_FLUSH:
		model_dma_flush(w.model, QP, MODEL_PERSISTENT, w.mem + r->off,
				r->len);
		/*
		 * A CPU that executes the FLUSH writes the lines back, as the
		 * agent would.
		 */
		if (!in_order())
			break;
		model_clwb(w.model, w.mem + r->off, r->len);
		model_sfence(w.model);
		break;
	}
}

/* Does request i wait in the adapter until run_turn() executes it? */
static bool waits_for_turn(const struct wr *r, unsigned int i)
{
	if (r->kind == WR_READ || r->kind == WR_FLUSH)
		return true;
	for (unsigned int k = 0; k < i; k++) {
		if (w.queue[k].done)
			continue;
		if (in_order() ||
		    (r->kind == WR_ATOMIC && (w.queue[k].kind == WR_FLUSH ||
					      (r->flags & IBV_SEND_FENCE))))
			return true;
	}
	return false;
}

/* Execute the requests that need not wait for run_turn(). */
static void take_up(void)
{
	for (unsigned int i = 0; i < w.nqueue; i++)
		if (!w.queue[i].done && !waits_for_turn(&w.queue[i], i))
			execute_request(&w.queue[i]);
	complete_front();
}

void break_off(enum ibv_wc_status first)
{
	w.error = true;
	for (unsigned int i = 0; i < w.nqueue; i++) {
		if (w.queue[i].done)
			continue;
		w.queue[i].done = true;
		w.queue[i].status = first;
		first = IBV_WC_WR_FLUSH_ERR;
	}
	complete_front();
}

static void post_request(const struct wr *r)
{
	if (w.nqueue == QUEUE) {
		fprintf(stderr, "a send queue is full\n");
		abort();
	}
	w.queue[w.nqueue++] = *r;
	if (w.error)
		break_off(IBV_WC_WR_FLUSH_ERR);
	else
		take_up();
}

static int first_waiting(void)
{
	for (unsigned int i = 0; i < w.nqueue; i++)
		if (!w.queue[i].done)
			return (int)i;
	return -1;
}

static void run_turn(void)
{
	struct wr *r = &w.queue[first_waiting()];
	unsigned int how = 0;

	if (w.breaks < w.prog->breaks)
		how = choose(w.c, 3);
	if (how != 1) {
		say("the adapter executes a %s",
		    r->kind == WR_READ	   ? "read"
		    : r->kind == WR_FLUSH  ? "flush"
		    : r->kind == WR_RING   ? "write into the ring"
		    : r->kind == WR_ATOMIC ? "atomic write"
					   : "write");
		execute_request(r);
	}
	if (how) {
		say("the connection is lost");
		w.breaks++;
		w.st->breaks++;
		r->done = false;
		break_off(IBV_WC_RETRY_EXC_ERR);
		return;
	}
	take_up();
}

/* --- the verbs calls of the shim --- */

static void do_start(struct rp_qp *q)
{
	w.nbatch = 0;
}

static void add_request(const struct wr *r)
{
	if (w.nbatch == QUEUE)
		abort();
	w.batch[w.nbatch++] = *r;
}

static void do_read(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		    uint32_t rkey, uint64_t addr, uint32_t len)
{
	add_request(&(struct wr){.kind = WR_READ,
				 .wr_id = wr_id,
				 .flags = flags,
				 .off = addr - SHIM_AT,
				 .len = len});
}

static void do_write(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		     uint32_t rkey, uint64_t addr, uint32_t lkey,
		     const void *buf, uint32_t len)
{
	if (rkey == SHIM_RKEY) {
		add_request(&(struct wr){.kind = WR_WRITE,
					 .wr_id = wr_id,
					 .flags = flags,
					 .off = addr - SHIM_AT,
					 .len = len,
					 .buf = buf});
		return;
	}
	if (rkey != SHIM_RING_RKEY || addr - SHIM_RING > sizeof(w.ring_in) ||
	    len > sizeof(w.ring_in) - (addr - SHIM_RING))
		abort();
	add_request(&(struct wr){.kind = WR_RING,
				 .wr_id = wr_id,
				 .flags = flags,
				 .off = addr - SHIM_RING,
				 .len = len,
				 .buf = buf});
}

static void do_flush(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
		     uint32_t rkey, uint64_t addr, size_t len, uint8_t type,
		     uint8_t level)
{
	add_request(&(struct wr){.kind = WR_FLUSH,
				 .wr_id = wr_id,
				 .flags = flags,
				 .off = level ? 0 : addr - SHIM_AT,
				 .len = level ? MODEL_PAGE : len});
}

static void do_atomic_write(struct rp_qp *q, uint64_t wr_id, unsigned int flags,
			    uint32_t rkey, uint64_t addr, const void *value)
{
	struct wr r = {.kind = WR_ATOMIC,
		       .wr_id = wr_id,
		       .flags = flags,
		       .off = addr - SHIM_AT,
		       .len = sizeof(r.value)};

	memcpy(&r.value, value, sizeof(r.value));
	add_request(&r);
}

static int do_complete(struct rp_qp *q, size_t *posted)
{
	for (unsigned int i = 0; i < w.nbatch; i++)
		post_request(&w.batch[i]);
	*posted = w.nbatch;
	return 0;
}

static int do_look(struct rp_qp *q, struct rp_qp_state *end)
{
	*end = (struct rp_qp_state){.state = IBV_QPS_RTS,
				    .dest_qp_num = SHIM_PEER,
				    .max_rd_atomic = 1,
				    .max_dest_rd_atomic = 1};
	return 0;
}

static int do_fail(struct rp_qp *q)
{
	break_off(IBV_WC_WR_FLUSH_ERR);
	return 0;
}

static int do_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	const unsigned int k =
		w.nwc < (unsigned int)n ? w.nwc : (unsigned int)n;

	memcpy(wc, w.wc, k * sizeof(*wc));
	w.nwc -= k;
	memmove(w.wc, w.wc + k, w.nwc * sizeof(*wc));
	return (int)k;
}

static int do_side_send(struct rp_qp *q, uint64_t wr_id, const void *msg,
			size_t len)
{
	if (w.side_error || w.nout == QUEUE)
		return ENOTCONN;
	w.out[w.nout].wr_id = wr_id;
	w.out[w.nout].len = len;
	memcpy(w.out[w.nout++].bytes, msg, len);
	return 0;
}

static int do_listen(struct rp_qp *q, uint64_t wr_id, void *msg)
{
	w.listen[w.nlisten].wr_id = wr_id;
	w.listen[w.nlisten++].buf = msg;
	return 0;
}

static uint64_t do_now(const struct rp_qp *q)
{
	return w.now;
}

static const struct rp_qp_ops ops = {
	.start = do_start,
	.read = do_read,
	.write = do_write,
	.flush = do_flush,
	.atomic_write = do_atomic_write,
	.complete = do_complete,
	.abort = do_start,
	.query = do_look,
	.fail = do_fail,
	.poll = do_poll,
	.side_send = do_side_send,
	.side_recv = do_listen,
	.now = do_now,
};

/* --- the simulated program --- */

static void wr_flush(size_t off, size_t len)
{
	rpmem_wr_flush(&w.q.pub, SHIM_RKEY, SHIM_AT + off, len,
		       RPMEM_FLUSH_PERSISTENT, RPMEM_FLUSH_RANGE);
}

static int post_op(struct oracle_op *op)
{
	const uint64_t value = 0x0101010101010101ull * op->id;

	if (op->kind == CRASH_WRITE) {
		post_request(&(struct wr){.kind = WR_WRITE,
					  .wr_id = (uintptr_t)op,
					  .flags = IBV_SEND_SIGNALED,
					  .off = op->off,
					  .len = op->len,
					  .buf = op->bytes});
		return 0;
	}
	w.q.pub.wr_id = (uintptr_t)op;
	w.q.pub.wr_flags = IBV_SEND_SIGNALED;
	rpmem_wr_start(&w.q.pub);
	if (op->kind == CRASH_THEN) {
		w.q.pub.wr_flags = 0;
		wr_flush(op->off, op->len);
		rpmem_wr_atomic_write(&w.q.pub, SHIM_RKEY, SHIM_AT + op->at,
				      &value);
		w.q.pub.wr_flags = IBV_SEND_SIGNALED;
		wr_flush(op->at, sizeof(value));
	} else if (op->kind == CRASH_WRITE_COMMIT) {
		rpmem_wr_write_flush(
			&w.q.pub, SHIM_RKEY, SHIM_AT + op->off,
			&(struct ibv_sge){.addr = (uintptr_t)op->bytes,
					  .length = op->len},
			RPMEM_FLUSH_PERSISTENT);
	} else {
		wr_flush(op->off, op->len);
	}
	return rpmem_wr_complete(&w.q.pub);
}

static void go_on(void)
{
	struct oracle_op *op = oracle_next(&w.o, 0);

	if (!op)
		return;
	say("posts %s", oracle_op_name(op));
	oracle_posted(&w.o, op, SHIM_RKEY, w.step);
	if (post_op(op)) {
		say("which is refused");
		oracle_refused(op);
	}
}

static bool same_model(const struct model_cfg *a, const struct model_cfg *b)
{
	return a->kind == b->kind && a->domain == b->domain &&
	       a->place == b->place && a->fence == b->fence &&
	       a->relaxed == b->relaxed && a->levels == b->levels;
}

static void model_start(void)
{
	if (w.model && !same_model(&w.truth, &w.cell->truth)) {
		model_delete(w.model);
		w.model = NULL;
	}
	if (w.model) {
		model_reset(w.model);
	} else {
		w.truth = w.cell->truth;
		w.model = model_new(&w.truth);
		w.mem = model_alloc(w.model, MODEL_PAGE);
	}
	if (w.cell->weakens)
		model_foresee(w.model, &w.cell->weak);
}

static void start_run(void)
{
	struct rp_remote_cfg cfg = {
		.native = SHIM_NATIVE(w.cell->forced) &
			  ~(w.cell->no_atomic ? RP_DESC_ATOMIC_WRITE : 0u),
		.required = w.cell->against,
		.forced = w.cell->forced,
	};
	const struct rp_desc d = shim_desc(&w.cell->believed, w.cell->forced);
	uint8_t buf[RP_DESC_LEN];

	model_start();
	w.qp.qp_num = SHIM_QPN;
	w.base.cqe = CQE;
	w.cq = rp_cq_new(&w.base, &ops, CQE);
	if (!w.cq)
		abort();
	rp_qp_init(&w.q, &w.qp, w.cq, &ops);
	w.q.native = cfg.native;
	w.q.has_write_builder = true;
	if (w.cell->forced >= RP_METHOD_AGENT_SFENCE || w.cell->no_atomic ||
	    w.cell->weakens)
		agent_start();
	cfg.agent = w.q.side;
	cfg.ring = w.q.side && w.side_end.ring_addr;
	if (rp_desc_put(buf, &d) || rp_qp_add_region(&w.q, buf, &cfg))
		abort();
	/*
	 * The first request of the agent opens the session by HELLO. Post it
	 * before the run, so that the search need not order its messages.
	 */
	if (w.cell->forced >= RP_METHOD_AGENT_SFENCE) {
		w.q.pub.wr_flags = IBV_SEND_SIGNALED;
		w.q.pub.wr_id = 0;
		rpmem_wr_start(&w.q.pub);
		wr_flush(CRASH_WARM, 8);
		if (rpmem_wr_complete(&w.q.pub))
			abort();
		while (first_waiting() >= 0)
			run_turn();
		look();
		agent_wake();
		while (agent_has_work())
			agent_turn();
	}
	w.begun = true;
	/*
	 * The model follows the bytes of the weaker domain from the start, so
	 * the step of the change matters only to bytes acknowledged earlier.
	 */
	if (w.cell->weakens && w.cell->spared != CRASH_SPARES_EARLIER)
		facts_change();
}

static void end_run(void)
{
	if (w.agent)
		agent_end();
	rp_qp_fini(&w.q);
	/* Drop completions of canceled requests, whose operations are gone. */
	w.nwc = 0;
	rpmem_detach_cq(w.cq);
}

/*
 * Choose one of the possible next steps and take it. Returns false if there is
 * none.
 */
static bool take_step(void)
{
	const size_t pieces = model_dma_ready(w.model);
	const bool may_post = oracle_may_post(&w.o, 0);
	const bool may_turn = first_waiting() >= 0,
		   may_agent = agent_has_work(), may_park = agent_may_sleep(),
		   may_change = facts_may_change();
	unsigned int n = may_post + may_turn + may_agent, pick;

	/* The agent need not park: a run must not continue only by parking. */
	if (n)
		n += may_park;

	n += may_change;
	n += pieces < 32 ? (unsigned int)pieces : 32;
	if (!n)
		return false;
	w.step++;
	pick = choose(w.c, n);
	if (may_post && !pick--) {
		go_on();
	} else if (may_turn && !pick--) {
		run_turn();
	} else if (may_agent && !pick--) {
		say("the agent has its turn");
		agent_turn();
	} else if (may_park && may_post + may_turn + may_agent && !pick--) {
		say("the agent goes to sleep");
		agent_sleep();
	} else if (may_change && !pick--) {
		facts_change();
	} else {
		say("a piece gets to memory");
		model_dma_step(w.model, pick);
	}
	look();
	return true;
}

enum crash_result crash_run(const struct crash_cell *cell,
			    const struct crash_prog *prog, struct choices *c,
			    enum crash_trace trace, struct crash_stats *st,
			    char *why)
{
	struct model *const model = w.model;
	const struct model_cfg truth = w.truth;
	uint8_t *const mem = w.mem;
	bool waited = false;

	memset(&w, 0, sizeof(w));
	w.model = model;
	w.truth = truth;
	w.mem = mem;
	w.cell = cell;
	w.prog = prog;
	w.c = c;
	w.trace = trace;
	w.st = st;
	oracle_start(&w.o, cell, prog, why);
	start_run();
	while (w.seen == CRASH_OK && !oracle_finished(&w.o)) {
		if (take_step()) {
			check();
		} else if (!waited) {
			say("time passes");
			waited = true;
			w.now += 2 * TIMEOUT;
			look();
		} else {
			snprintf(why, CRASH_WHY, "an operation never ends");
			w.seen = CRASH_WRONG;
		}
	}
	if (w.cell->weakens && w.seen == CRASH_OK)
		facts_finish();
	st->runs++;
	st->steps += w.step;
	w.begun = false;
	end_run();
	return w.seen;
}

/* Drop the shim's log lines: the oracle judges only completions. */
static void drop_log_line(enum rp_log_level level, const char *text)
{
}

void crash_setup(unsigned int timeout_ms)
{
	rp_log_set(drop_log_line);
	facts_setup();
}

void crash_teardown(void)
{
	if (w.model)
		model_delete(w.model);
	w.model = NULL;
}
