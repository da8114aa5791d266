// SPDX-License-Identifier: BSD-2-Clause
/*
 * Plans operations that move data: messages and the receives that they match,
 * reads, writes and atomics.
 */
#include <limits.h>
#include <string.h>

#include "functional/transparent.h"

#define BURST	 6
#define LONGEST	 70000
#define MAX_RECV 8 /* receives per queue that stay posted after a round */
/* Free bytes below which a buffer of FI_MULTI_RECV is released. */
#define MULTI_ROOM 64
/* Number of messages, more than the provider has receives of its own. */
#define FLOOD 80

static struct tp_op *new_op(struct tp_gen *g, int i)
{
	return &g->p->ops[i];
}

static size_t some_len(struct tp_gen *g)
{
	static const size_t edges[] = {
		0,   1,	   7,	 8,	63,    64,    65,    255,
		256, 1000, 4096, 16383, 16384, 16385, 40000, LONGEST,
	};

	if (tp_chance(&g->rng, 50))
		return tp_below(&g->rng, 200);
	return edges[tp_below(&g->rng, sizeof(edges) / sizeof(*edges))];
}

/* Choose completion flags for the forms that take flags. */
static uint64_t some_flags(struct tp_gen *g)
{
	static const uint64_t level[] = {0, FI_INJECT_COMPLETE,
					 FI_TRANSMIT_COMPLETE,
					 FI_DELIVERY_COMPLETE};
	uint64_t flags = level[tp_below(&g->rng, 4)];

	if (tp_chance(&g->rng, 60))
		flags |= FI_COMPLETION;
	if (tp_chance(&g->rng, 20))
		flags |= FI_MORE;
	return flags;
}

static void some_form(struct tp_gen *g, struct tp_op *o, size_t index,
		      size_t max_iov)
{
	o->form = (enum tp_form)tp_below(&g->rng, 6);
	if (o->len > g->f->inject &&
	    (o->form == TP_INJECT || o->form == TP_INJECTDATA))
		o->form = o->form == TP_INJECT ? TP_PLAIN : TP_DATA;
	if (o->form == TP_DATA || o->form == TP_INJECTDATA)
		o->data = 0x5a000000 | index;
	if (o->form == TP_MSG) {
		o->flags = some_flags(g);
		if (tp_chance(&g->rng, 30)) {
			o->flags |= FI_REMOTE_CQ_DATA;
			o->data = 0x5a000000 | index;
		}
		if (o->len <= g->f->inject && tp_chance(&g->rng, 20))
			o->flags |= FI_INJECT;
	}
	if (o->form == TP_V || o->form == TP_MSG)
		o->iovs = 1 + tp_below(&g->rng, max_iov < 4 ? max_iov : 4);
	o->counted = true;
}

static bool recv_matches(const struct tp_op *r, const struct tp_op *m)
{
	return (r->peer < 0 || r->peer == m->ep) &&
	       (!m->tagged || !((r->tag ^ m->tag) & ~r->ignore));
}

static uint64_t some_tag(struct tp_gen *g)
{
	/*
	 * Few tags, so that messages match; some high bits, so that masks
	 * matter.
	 */
	return tp_below(&g->rng, 4) << 60 | tp_below(&g->rng, 3);
}

static uint64_t some_ignore(struct tp_gen *g)
{
	static const uint64_t masks[] = {0,	     0,	    1,	       3,
					 3ull << 60, ~0ull, ~0ull >> 1};

	return masks[tp_below(&g->rng, 7)];
}

static int add_recv(struct tp_gen *g, int ep, bool tagged, int from)
{
	struct tp_op *o = tp_add(g, TP_RECV, ep);

	o->tagged = tagged;
	o->form = (enum tp_form)tp_below(&g->rng, 3);
	o->peer = from;
	if (tagged) {
		o->tag = some_tag(g);
		o->ignore = some_ignore(g);
	}
	if (o->form == TP_MSG && tp_chance(&g->rng, 60))
		o->flags = FI_COMPLETION;
	o->len = LONGEST;
	o->due = INT_MAX; /* until a message or a cancel is planned */
	if (o->form != TP_PLAIN)
		o->iovs = 1 + tp_below(&g->rng, 3);
	return (int)(g->p->n - 1);
}

static bool rx_completes(const struct tp_gen *g, const struct tp_op *o)
{
	return !g->p->setup.rx_selective[o->ep] ||
	       (o->form == TP_MSG && (o->flags & FI_COMPLETION));
}

/*
 * Plan a message. Within a round only one endpoint sends to a queue (see
 * pair_up()).
 */
static int add_send(struct tp_gen *g, int ep, int to, bool tagged)
{
	struct tp_op *o = tp_add(g, TP_SEND, ep);

	o->peer = to;
	o->tagged = tagged;
	o->tag = tagged ? some_tag(g) : 0;
	o->len = some_len(g);
	some_form(g, o, g->p->n - 1, g->f->iov_limit);
	o->expect = tp_tx_completes(g, o);
	return (int)(g->p->n - 1);
}

/*
 * Match messages with receives as libfabric does: the messages of one sender
 * keep their order, and each goes to the first remaining receive that matches.
 * Returns the first message without a receive.
 */
static int pair_up(struct tp_gen *g, const int *recv, int nrecv,
		   const int *send, int nsend)
{
	bool taken[MAX_RECV + 3 * BURST] = {false};
	int i, k;

	for (k = 0; k < nsend; k++) {
		for (i = 0; i < nrecv; i++)
			if (!taken[i] && recv_matches(new_op(g, recv[i]),
						      new_op(g, send[k])))
				break;
		if (i == nrecv)
			return k;
		taken[i] = true;
		new_op(g, recv[i])->other = send[k];
		new_op(g, recv[i])->due = recv[i] > send[k] ? recv[i] : send[k];
	}
	return -1;
}

/* Plan the rest of a receive that gets a message. */
static void plan_recv(struct tp_gen *g, struct tp_op *r, bool in_order)
{
	struct tp_op *m = new_op(g, r->other);

	r->counted = true;
	r->expect = rx_completes(g, r);
	/*
	 * If there is no entry, only the bytes show that the receive has
	 * completed: there must be some.
	 */
	if (!r->expect && !m->len)
		m->len = 8;
	r->len = m->len + tp_below(&g->rng, 3);
	if (r->iovs > r->len)
		r->iovs = 1;
	r->in_order = in_order && m->len <= 64;
}

static void add_cancel(struct tp_gen *g, int ep, int recv)
{
	struct tp_op *o = tp_add(g, TP_CANCEL, ep);

	o->other = recv;
	new_op(g, recv)->expect = 1;
	new_op(g, recv)->fails = true;
	new_op(g, recv)->due = o->due;
}

void tp_gen_forget(struct tp_gen *g, int ep, bool tagged)
{
	for (int i = 0; i < g->nwaiting[ep][tagged]; i++)
		add_cancel(g, ep, g->waiting[ep][tagged][i]);
	g->nwaiting[ep][tagged] = 0;
}

void tp_gen_messages(struct tp_gen *g, bool tagged)
{
	int to = tp_pick_ep(g, -1, false), from = tp_pick_ep(g, to, true);
	int recv[MAX_RECV + 3 * BURST], send[BURST], nrecv, nsend = 0;
	int n = 1 + (int)tp_below(&g->rng, BURST), left = n, k, kept;
	int *waiting = g->waiting[to][tagged];
	bool first = tp_chance(&g->rng, 50), last = tp_chance(&g->rng, 30);

	if (g->busy[to][tagged])
		return;
	g->busy[to][tagged] = true;
	kept = g->nwaiting[to][tagged];
	memcpy(recv, waiting, sizeof(*recv) * kept);
	nrecv = kept;
	while (left || nsend < n) {
		if (left && (first || nsend == n ||
			     (!last && tp_chance(&g->rng, 50)))) {
			int who = g->f->direct && from != TP_UNKNOWN &&
						  tp_chance(&g->rng, 30)
					  ? from
					  : -1;

			recv[nrecv++] = add_recv(g, to, tagged, who);
			left--;
		} else if (nsend < n) {
			send[nsend++] = add_send(g, from, to, tagged);
		}
		if (tp_chance(&g->rng, 10))
			tp_gen_traffic(g, -1);
	}
	while ((k = pair_up(g, recv, nrecv, send, nsend)) >= 0) {
		recv[nrecv] = add_recv(g, to, tagged, -1);
		new_op(g, recv[nrecv])->tag = new_op(g, send[k])->tag;
		nrecv++;
		first = false;
	}
	g->nwaiting[to][tagged] = 0;
	for (k = 0; k < nrecv; k++) {
		struct tp_op *r = new_op(g, recv[k]);

		if (r->other >= 0) {
			plan_recv(g, r, first && from != TP_UNKNOWN);
		} else if (g->nwaiting[to][tagged] < MAX_RECV) {
			waiting[g->nwaiting[to][tagged]++] = recv[k];
		} else {
			add_cancel(g, to, recv[k]);
		}
	}
	/* The lengths are final now: no more segments than bytes. */
	for (k = 0; k < nsend; k++)
		if (new_op(g, send[k])->iovs > new_op(g, send[k])->len)
			new_op(g, send[k])->iovs = 1;
}

void tp_gen_peek(struct tp_gen *g)
{
	int to = tp_pick_ep(g, -1, false), from = tp_pick_ep(g, to, true);
	struct tp_op *o;
	int m;

	tp_add(g, TP_SYNC, 0);
	memset(g->busy, 0, sizeof(g->busy));
	tp_gen_forget(g, to, true);
	tp_add(g, TP_SYNC, 0);
	if (tp_chance(&g->rng, 25)) {
		o = tp_add(g, TP_PEEK, to);
		o->tagged = true;
		o->tag = some_tag(g);
		o->ignore = some_ignore(g);
		return;
	}
	m = add_send(g, from, to, true);
	/*
	 * The receiver may discard this message: do not wait for its delivery.
	 */
	new_op(g, m)->flags &= ~FI_DELIVERY_COMPLETE;
	new_op(g, m)->len %= 4000;
	if (new_op(g, m)->iovs > new_op(g, m)->len)
		new_op(g, m)->iovs = 1;
	o = tp_add(g, TP_PEEK, to);
	o->tagged = true;
	o->other = m;
	o->tag = new_op(g, m)->tag;
	o->ignore = some_ignore(g);
	o->how = TP_KEEP + (int)tp_below(&g->rng, 3);
	o->len = new_op(g, m)->len;
	if (o->how == TP_DISCARD &&
	    g->p->setup.op_flags[from] & FI_DELIVERY_COMPLETE)
		o->how = TP_CLAIM;
	o->counted = o->how != TP_DISCARD;
	tp_add(g, TP_SYNC, 0);
}

void tp_gen_multi(struct tp_gen *g)
{
	int to = tp_pick_ep(g, -1, false), from = tp_pick_ep(g, to, true);
	int n = 1 + (int)tp_below(&g->rng, BURST), multi;
	bool fills = tp_chance(&g->rng, 50);
	size_t sum = 0, len = 0, spare = 5000;
	struct tp_op *o;

	if (!g->f->multi || g->busy[to][0])
		return;
	g->busy[to][0] = true;
	tp_gen_forget(g, to, false);
	o = tp_add(g, TP_MULTI, to);
	multi = (int)(g->p->n - 1);
	o->flags = FI_COMPLETION;
	o->form = TP_MSG;
	o->count = MULTI_ROOM;
	o->expect = n;
	for (int i = 0; i < n; i++) {
		int m = add_send(g, from, to, false);

		/* add_send() has chosen a length that suits its form. */
		len = new_op(g, m)->len;
		/*
		 * No long messages, because their rendezvous protocol changes
		 * the order.
		 */
		if (len > 1000)
			len = new_op(g, m)->len = 1000;
		if (!len)
			len = new_op(g, m)->len = 1;
		if (new_op(g, m)->iovs > len)
			new_op(g, m)->iovs = 1;
		sum += len;
	}
	new_op(g, multi)->due = (int)g->p->n - 1;
	/*
	 * Choose the buffer's length so that only the last message leaves less
	 * than MULTI_ROOM.
	 */
	if (fills)
		spare = len < MULTI_ROOM
				? MULTI_ROOM - len + tp_below(&g->rng, len)
				: tp_below(&g->rng, MULTI_ROOM);
	new_op(g, multi)->len = sum + spare;
	if (!fills) {
		tp_add(g, TP_SYNC, 0);
		memset(g->busy, 0, sizeof(g->busy));
		o = tp_add(g, TP_CANCEL, to);
		o->other = multi;
		o->count = 1;
		/*
		 * The entry that releases the buffer must come after those of
		 * its messages.
		 */
	}
	tp_add(g, TP_SYNC, 0);
	memset(g->busy, 0, sizeof(g->busy));
}

/*
 * Plan a receive from any source that is the oldest of its queue while many
 * control messages of the provider arrive: they must not take it.
 */
void tp_gen_flood(struct tp_gen *g)
{
	int to = tp_pick_ep(g, -1, false), from = tp_pick_ep(g, to, true);
	int recv, send;
	struct tp_op *o;

	if (g->busy[to][1])
		return;
	tp_gen_forget(g, to, true);
	recv = add_recv(g, to, true, -1);
	new_op(g, recv)->ignore = ~0ull;
	for (int i = 0; i < 2; i++) {
		o = tp_add_traffic(g, TP_UNKNOWN, to, FLOOD / 2);
		if (o)
			o->how = 3;
		tp_add(g, TP_WAIT_ALL, 0);
	}
	send = add_send(g, from, to, true);
	pair_up(g, &recv, 1, &send, 1);
	plan_recv(g, new_op(g, recv), false);
	tp_add(g, TP_SYNC, 0);
	memset(g->busy, 0, sizeof(g->busy));
}

static void add_atomic(struct tp_gen *g, int from, int to)
{
	static const enum fi_op ops[] = {FI_SUM, FI_BOR, FI_BXOR,
					 FI_MIN, FI_MAX, FI_ATOMIC_WRITE};
	uint64_t cell = tp_below(&g->rng, TP_CELLS);
	struct tp_op *o;

	if (g->cells[tp_side_of(to)] & 1ull << cell)
		return;
	g->cells[tp_side_of(to)] |= 1ull << cell;
	o = tp_add(g, TP_ATOMIC, from);
	o->peer = to;
	o->pmem = tp_chance(&g->rng, 40);
	o->how = (int)tp_below(&g->rng, 3);
	o->op = o->how == TP_COMPARE ? FI_CSWAP : ops[tp_below(&g->rng, 6)];
	o->form = tp_chance(&g->rng, 50) ? TP_MSG : TP_PLAIN;
	if (o->how == TP_BASE_OP && tp_chance(&g->rng, 30))
		o->form = TP_INJECT;
	if (o->form == TP_MSG)
		o->flags = some_flags(g) & ~FI_MORE;
	o->len = 8;
	o->off = TP_REGION - 8 * (cell + 1);
	o->data = tp_next(&g->rng) & 0xffff;
	o->tag = tp_chance(&g->rng, 50) ? 0 : tp_below(&g->rng, 0xffff);
	o->counted = true;
	o->expect = tp_tx_completes(g, o);
}

void tp_gen_memory(struct tp_gen *g)
{
	int from = tp_pick_ep(g, -1, true), to = tp_pick_ep(g, from, false);
	int n = 1 + (int)tp_below(&g->rng, BURST), side = tp_side_of(to);
	struct tp_op *o;

	for (int i = 0; i < n; i++) {
		if (g->f->atomic && tp_chance(&g->rng, 30)) {
			add_atomic(g, from, to);
			continue;
		}
		o = tp_add(g, tp_chance(&g->rng, 65) ? TP_WRITE : TP_READ,
			   from);
		o->peer = to;
		o->pmem = tp_chance(&g->rng, 40);
		do {
			o->len = some_len(g);
		} while (!o->len);
		if (o->verb == TP_READ) {
			o->len = 1 + o->len % 20000;
			o->off = tp_below(&g->rng, TP_READ_ZONE - o->len);
			o->form = (enum tp_form)tp_below(&g->rng, 3);
			if (o->form == TP_MSG)
				o->flags = some_flags(g) & FI_COMPLETION;
			if (o->form != TP_PLAIN)
				o->iovs = 1 + tp_below(&g->rng, 4);
			o->counted = true;
		} else {
			some_form(g, o, g->p->n - 1, g->f->iov_limit);
			o->remote = o->data;
			o->off = TP_READ_ZONE + g->used[side];
			if (o->off + o->len > TP_REGION - 8 * TP_CELLS) {
				o->len = 8;
				g->used[side] = 0;
				o->off = TP_READ_ZONE;
			}
			g->used[side] += o->len;
		}
		if (o->form == TP_MSG)
			o->rma_iovs = 1 + tp_below(&g->rng,
						   g->f->rma_iov_limit < 4
							   ? g->f->rma_iov_limit
							   : 4);
		if (o->iovs > o->len)
			o->iovs = 1;
		if (o->rma_iovs > o->len)
			o->rma_iovs = 1;
		o->expect = tp_tx_completes(g, o);
		o->arrives = true;
		if (tp_chance(&g->rng, 15))
			tp_gen_traffic(g, -1);
	}
}
