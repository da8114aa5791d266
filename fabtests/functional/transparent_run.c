// SPDX-License-Identifier: BSD-2-Clause
/* Runs a plan step by step. One thread drives all endpoints of both sides. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "functional/transparent.h"

int tp_deadline_ms = 30000;

static uint64_t ms_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t tp_now_ms(void)
{
	return ms_of(CLOCK_MONOTONIC);
}

struct tp_deadline tp_deadline(void)
{
	return (struct tp_deadline){tp_now_ms(),
				    ms_of(CLOCK_PROCESS_CPUTIME_ID)};
}

bool tp_time_left(const struct tp_deadline *p)
{
	return tp_now_ms() < p->begin + (uint64_t)tp_deadline_ms ||
	       ms_of(CLOCK_PROCESS_CPUTIME_ID) <
		       p->cpu + (uint64_t)tp_deadline_ms / 10;
}

/* --- reading --- */

void tp_poll_cq(struct tp_world *w, struct tp_cq *cq)
{
	char raw[32 * sizeof(struct fi_cq_tagged_entry)];
	static const size_t sizes[] = {
		[FI_CQ_FORMAT_CONTEXT] = sizeof(struct fi_cq_entry),
		[FI_CQ_FORMAT_MSG] = sizeof(struct fi_cq_msg_entry),
		[FI_CQ_FORMAT_DATA] = sizeof(struct fi_cq_data_entry),
		[FI_CQ_FORMAT_TAGGED] = sizeof(struct fi_cq_tagged_entry),
	};
	struct fi_cq_tagged_entry e = {0};
	struct fi_cq_err_entry err = {0};
	bool from = w->p->setup.from;
	fi_addr_t src[32];
	ssize_t n;

	n = from ? fi_cq_readfrom(cq->fid, raw, w->p->setup.chunk, src)
		 : fi_cq_read(cq->fid, raw, w->p->setup.chunk);
	if (n == -FI_EAVAIL) {
		if (fi_cq_readerr(cq->fid, &err, 0) == 1)
			tp_saw_error(w, cq, &err);
		return;
	}
	if (n < 0 && n != -FI_EAGAIN)
		TP_MUST(n);
	for (ssize_t i = 0; i < n; i++) {
		memcpy(&e, raw + i * sizes[cq->format], sizes[cq->format]);
		tp_saw_entry(w, cq, &e, from ? src[i] : FI_ADDR_NOTAVAIL);
	}
}

void tp_poll(struct tp_world *w)
{
	for (int i = 0; i < w->ncq; i++)
		tp_poll_cq(w, &w->cq[i]);
	if (tp_chance(&w->rng, 20))
		tp_check_counters(w, false, false);
}

/* --- counters --- */

static void count_op(uint64_t *c, const struct tp_op *o, bool arriving)
{
	switch (o->verb) {
	case TP_SEND:
	case TP_FD:
		c[arriving ? TP_C_RECV : TP_C_SEND]++;
		break;
	case TP_WRITE:
		c[arriving ? TP_C_REMOTE_WRITE : TP_C_WRITE]++;
		break;
	case TP_READ:
		c[arriving ? TP_C_REMOTE_READ : TP_C_READ]++;
		break;
	case TP_ATOMIC:
		if (o->how == TP_BASE_OP)
			c[arriving ? TP_C_REMOTE_WRITE : TP_C_WRITE]++;
		else
			c[arriving ? TP_C_REMOTE_READ : TP_C_READ]++;
		break;
	default:
		break;
	}
}

void tp_count_posted(struct tp_world *w, const struct tp_op *o)
{
	count_op(w->ep[o->ep].posted, o, false);
	if (o->peer >= 0)
		count_op(w->ep[o->peer].posted, o, true);
}

void tp_count_done(struct tp_world *w, const struct tp_op *o)
{
	struct tp_ep *ep = &w->ep[o->ep];

	if (o->verb == TP_MULTI) {
		ep->counted[TP_C_RECV] += (uint64_t)o->expect;
		return;
	}
	if (!o->counted)
		return;
	if (o->verb == TP_RECV || o->verb == TP_PEEK) {
		if (o->fails)
			ep->failed[TP_C_RECV]++;
		else
			ep->counted[TP_C_RECV]++;
		return;
	}
	count_op(ep->counted, o, false);
	if (o->peer >= 0 && o->verb != TP_SEND && o->verb != TP_FD)
		count_op(w->ep[o->peer].counted, o, true);
}

/*
 * Check one counter. rest: no commit is outstanding; if false, counters of
 * writes are skipped.
 */
static void check_counter(struct tp_world *w, int n, int c, bool settled,
			  bool rest)
{
	static const char *const names[] = {
		"send", "recv", "read", "write", "remote read", "remote write",
	};
	struct tp_ep *ep = &w->ep[n];
	uint64_t extra = c == TP_C_WRITE	  ? ep->traffic
			 : c == TP_C_REMOTE_WRITE ? ep->traffic_in
						  : 0;
	uint64_t v = fi_cntr_read(ep->cntr[c]);
	struct tp_deadline deadline;

	if (v > ep->posted[c] + extra && !w->broken) {
		tp_saw(w->t, -1, "ep%d's %s counter is %llu of %llu", n,
		       names[c], (unsigned long long)v,
		       (unsigned long long)(ep->posted[c] + extra));
		ep->posted[c] = v - extra;
	}
	if (!settled || w->broken ||
	    (!rest && (c == TP_C_WRITE || c == TP_C_REMOTE_WRITE)))
		return;
	deadline = tp_deadline();
	while (v != ep->counted[c] + extra && !w->stuck) {
		for (int i = 0; i < w->ncq; i++)
			tp_poll_cq(w, &w->cq[i]);
		v = fi_cntr_read(ep->cntr[c]);
		w->stuck = !tp_time_left(&deadline);
	}
	if (v != ep->counted[c] + extra)
		tp_saw(w->t, -1, "ep%d's %s counter does not become %llu", n,
		       names[c], (unsigned long long)ep->counted[c]);
	tp_saw(w->t, -1, "ep%d's %s counter: %lld, errors %llu", n, names[c],
	       (long long)(v - extra),
	       (unsigned long long)fi_cntr_readerr(ep->cntr[c]));
}

void tp_check_counters(struct tp_world *w, bool settled, bool rest)
{
	for (int n = 0; n < TP_EPS; n++)
		for (int c = 0; w->ep[n].fid && c < TP_CNTRS; c++)
			if (w->ep[n].cntr[c])
				check_counter(w, n, c, settled, rest);
}

/* --- steps --- */

#define LATE_POLLS 64

void tp_give_buffer(struct tp_world *w, struct tp_op *o)
{
	size_t len = o->verb == TP_ATOMIC ? 24 : o->len;
	int index = (int)(o - w->p->ops);

	o->buf = w->arena + w->used;
	w->used += (len + 64) & ~(size_t)63;
	if (o->verb != TP_READ && o->verb != TP_RECV && o->verb != TP_MULTI)
		for (size_t i = 0; i < o->len; i++)
			o->buf[i] = (char)tp_pattern(o, index, i);
	else
		memset(o->buf, 0, len);
}

static uint64_t *cell_of(struct tp_world *w, const struct tp_op *o)
{
	return &w->cell[tp_side_of(o->peer)][o->pmem]
		       [(TP_REGION - o->off) / 8 - 1];
}

static void foresee_end(struct tp_world *w, const struct tp_op *o)
{
	uint64_t *c = cell_of(w, o), d = o->data;

	switch (o->op) {
	case FI_SUM:
		*c += d;
		break;
	case FI_BOR:
		*c |= d;
		break;
	case FI_BXOR:
		*c ^= d;
		break;
	case FI_MIN:
		*c = d < *c ? d : *c;
		break;
	case FI_MAX:
		*c = d > *c ? d : *c;
		break;
	case FI_CSWAP:
		*c = *c == o->tag ? d : *c;
		break;
	default:
		*c = d;
	}
}

static const char *memory_of(struct tp_world *w, const struct tp_op *o)
{
	return w->side[tp_side_of(o->peer)]
		       .mem[o->pmem ? TP_MEM_PMEM : TP_MEM_PLAIN] +
	       o->off;
}

static bool memory_holds(const struct tp_world *w, const char *at, int index)
{
	const struct tp_op *o = &w->p->ops[index];

	/* Load atomically, because other threads write to the memory. */
	for (size_t i = 0; i < o->len; i++)
		if ((uint8_t)__atomic_load_n(&at[i], __ATOMIC_RELAXED) !=
		    tp_pattern(o, index, i))
			return false;
	return true;
}

/* Has the operation completed, as far as a program can see? */
static bool is_over(struct tp_world *w, struct tp_op *o, int index)
{
	if (o->got < o->expect)
		return false;
	switch (o->verb) {
	case TP_RECV:
		return o->expect || memory_holds(w, o->buf, o->other);
	case TP_WRITE:
		return memory_holds(w, memory_of(w, o), index);
	case TP_ATOMIC:
		return !memcmp(memory_of(w, o), cell_of(w, o), 8);
	case TP_READ:
		/*
		 * If there is no entry, only the bytes show the end;
		 * conclude_op() checks the others.
		 */
		for (size_t i = 0; !o->expect && i < o->len; i++)
			if ((uint8_t)o->buf[i] !=
			    tp_static(tp_side_of(o->peer), o->off + i))
				return false;
		return true;
	default:
		return true;
	}
}

static void conclude_op(struct tp_world *w, struct tp_op *o, int index)
{
	uint64_t fetched;
	bool good = true;

	o->done = true;
	tp_count_done(w, o);
	switch (o->verb) {
	case TP_RECV:
		if (!o->fails && o->other >= 0)
			tp_saw(w->t, index, "received %d: %s", o->other,
			       memory_holds(w, o->buf, o->other) ? "good"
								 : "bad");
		break;
	case TP_READ:
		for (size_t i = 0; i < o->len; i++)
			good = good && (uint8_t)o->buf[i] ==
					       tp_static(tp_side_of(o->peer),
							 o->off + i);
		tp_saw(w->t, index, "read: %s", good ? "good" : "bad");
		break;
	case TP_ATOMIC:
		if (o->how == TP_BASE_OP || !o->expect)
			break;
		memcpy(&fetched, o->buf + 16, 8);
		tp_saw(w->t, index, "fetched %#llx",
		       (unsigned long long)fetched);
		break;
	default:
		break;
	}
}

static bool all_over(struct tp_world *w, int upto)
{
	int remote[TP_SIDES] = {0};
	bool over = true;

	for (int i = 0; i < upto; i++) {
		struct tp_op *o = &w->p->ops[i];

		if (o->remote && !o->ret)
			remote[tp_side_of(o->peer)]++;
		if (o->done || o->due > upto || o->ret)
			continue;
		if (is_over(w, o, i))
			conclude_op(w, o, i);
		else
			over = false;
	}
	for (int s = 0; s < TP_SIDES; s++)
		over = over && w->side[s].anonymous >= remote[s];
	return over;
}

static void wait_for_ops(struct tp_world *w, int upto, bool rest)
{
	struct tp_deadline deadline = tp_deadline();
	char say[200];
	bool over;

	do {
		tp_poll(w);
		over = all_over(w, upto) && (!rest || !w->traffic_out);
	} while (!over && tp_time_left(&deadline));
	/*
	 * A send whose receive failed may get an error entry that no step waits
	 * for. The entry comes late where fi_cq_read() does not poll the base.
	 */
	for (int i = 0; i < (w->broken ? LATE_POLLS : 2); i++)
		tp_poll(w);
	if (over) {
		tp_check_counters(w, true, rest);
		return;
	}
	w->stuck = true;
	for (int i = 0; i < upto; i++) {
		struct tp_op *o = &w->p->ops[i];

		if (o->done || o->due > upto || o->ret)
			continue;
		tp_op_say(o, say, sizeof(say));
		tp_saw(w->t, i, "never over, %d of %d entries: %s", o->got,
		       o->expect, say);
	}
	tp_saw(w->t, -1, "step %d did not end, %d of the traffic is out", upto,
	       w->traffic_out);
}

static void cancel_op(struct tp_world *w, struct tp_op *o)
{
	struct tp_op *victim = &w->p->ops[o->other];

	/* A canceled multi-receive gets one more entry, for its end. */
	if (victim->verb == TP_MULTI) {
		victim->expect++;
		victim->done = true;
		o->expect = 0;
	}
	o->ret = fi_cancel(&w->ep[o->ep].fid->fid, victim);
	if (o->ret)
		tp_saw(w->t, (int)(o - w->p->ops), "cancel: %zd", o->ret);
}

static void run_step(struct tp_world *w, struct tp_op *o, int index)
{
	size_t min;

	switch (o->verb) {
	case TP_SYNC:
	case TP_WAIT_ALL:
		wait_for_ops(w, index, o->verb == TP_WAIT_ALL);
		return;
	case TP_TRAFFIC:
		tp_post_traffic(w, o);
		return;
	case TP_CANCEL:
		cancel_op(w, o);
		return;
	case TP_PEEK:
		tp_do_peek(w, o);
		return;
	case TP_INSERT:
	case TP_REMOVE:
	case TP_MEET:
		tp_do_addresses(w, o);
		return;
	case TP_SREAD:
	case TP_SIGNAL:
	case TP_FD:
		tp_do_wait(w, o);
		return;
	case TP_EVENT:
		tp_do_event(w, o);
		return;
	case TP_MULTI:
		min = (size_t)o->count;
		TP_MUST(fi_setopt(&w->ep[o->ep].fid->fid, FI_OPT_ENDPOINT,
				  FI_OPT_MIN_MULTI_RECV, &min, sizeof(min)));
		o->flags |= FI_MULTI_RECV;
		break;
	case TP_ATOMIC:
		foresee_end(w, o);
		break;
	default:
		break;
	}
	w->broken |= o->breaks;
	tp_give_buffer(w, o);
	tp_count_posted(w, o);
	o->ret = tp_post(w, o);
	if (o->ret)
		tp_saw(w->t, index, "says %zd", o->ret);
	if (o->verb == TP_BADKEY)
		wait_for_ops(w, index + 1, true);
	else if (tp_chance(&w->rng, 30))
		tp_poll(w);
}

void tp_run(struct tp_world *w, struct tp_plan *p, struct tp_trace *t,
	    bool last)
{
	w->p = p;
	w->t = t;
	w->ntraffic = w->traffic_out = 0;
	w->broken = false;
	w->used = 4096; /* behind the buffers of the durable traffic */
	for (int s = 0; s < TP_SIDES; s++)
		w->side[s].anonymous = 0;
	if (!w->open)
		tp_stage_open(w);
	for (size_t i = 0; i < p->n && !w->stuck; i++)
		run_step(w, &p->ops[i], (int)i);
	/* Do not close a stage that hangs: the close may hang, too. */
	if (last && !w->stuck)
		tp_stage_close(w);
}
