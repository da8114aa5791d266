// SPDX-License-Identifier: BSD-2-Clause
/* Parts of a program that move data: messages, matching, memory. */
#include <limits.h>
#include <string.h>

#include "functional/invisible.h"

#define BURST	 6
#define LONGEST	 70000
#define MAX_RECV 8 /* receives that outlive a round, per queue */
/* Least room that a multi-receive keeps. */
#define MULTI_ROOM 64
/* More messages than there are receives for the provider's own. */
#define FLOOD 80

static struct inv_op *new_op(struct inv_gen *g, int i)
{
	return &g->p->ops[i];
}

static size_t some_len(struct inv_gen *g)
{
	static const size_t edges[] = {
		0,   1,	   7,	 8,	63,    64,    65,    255,
		256, 1000, 4096, 16383, 16384, 16385, 40000, LONGEST,
	};

	if (inv_chance(&g->rng, 50))
		return inv_below(&g->rng, 200);
	return edges[inv_below(&g->rng, sizeof(edges) / sizeof(*edges))];
}

/* Completion flags of the forms that take flags. */
static uint64_t some_flags(struct inv_gen *g)
{
	static const uint64_t level[] = {0, FI_INJECT_COMPLETE,
					 FI_TRANSMIT_COMPLETE,
					 FI_DELIVERY_COMPLETE};
	uint64_t flags = level[inv_below(&g->rng, 4)];

	if (inv_chance(&g->rng, 60))
		flags |= FI_COMPLETION;
	if (inv_chance(&g->rng, 20))
		flags |= FI_MORE;
	return flags;
}

static void some_form(struct inv_gen *g, struct inv_op *o, size_t index,
		      size_t max_iov)
{
	o->form = (enum inv_form)inv_below(&g->rng, 6);
	if (o->len > g->f->inject &&
	    (o->form == INV_INJECT || o->form == INV_INJECTDATA))
		o->form = o->form == INV_INJECT ? INV_PLAIN : INV_DATA;
	if (o->form == INV_DATA || o->form == INV_INJECTDATA)
		o->data = 0x5a000000 | index;
	if (o->form == INV_MSG) {
		o->flags = some_flags(g);
		if (inv_chance(&g->rng, 30)) {
			o->flags |= FI_REMOTE_CQ_DATA;
			o->data = 0x5a000000 | index;
		}
		if (o->len <= g->f->inject && inv_chance(&g->rng, 20))
			o->flags |= FI_INJECT;
	}
	if (o->form == INV_V || o->form == INV_MSG)
		o->iovs = 1 + inv_below(&g->rng, max_iov < 4 ? max_iov : 4);
	o->counted = true;
}

static bool recv_matches(const struct inv_op *r, const struct inv_op *m)
{
	return (r->peer < 0 || r->peer == m->ep) &&
	       (!m->tagged || !((r->tag ^ m->tag) & ~r->ignore));
}

static uint64_t some_tag(struct inv_gen *g)
{
	/*
	 * Few values, so that they match; above the low bits, so that masks
	 * matter.
	 */
	return inv_below(&g->rng, 4) << 60 | inv_below(&g->rng, 3);
}

static uint64_t some_ignore(struct inv_gen *g)
{
	static const uint64_t masks[] = {0,	     0,	    1,	       3,
					 3ull << 60, ~0ull, ~0ull >> 1};

	return masks[inv_below(&g->rng, 7)];
}

static int add_recv(struct inv_gen *g, int ep, bool tagged, int from)
{
	struct inv_op *o = inv_add(g, INV_RECV, ep);

	o->tagged = tagged;
	o->form = (enum inv_form)inv_below(&g->rng, 3);
	o->peer = from;
	if (tagged) {
		o->tag = some_tag(g);
		o->ignore = some_ignore(g);
	}
	if (o->form == INV_MSG && inv_chance(&g->rng, 60))
		o->flags = FI_COMPLETION;
	o->len = LONGEST;
	o->due = INT_MAX; /* until a message or a cancel is planned */
	if (o->form != INV_PLAIN)
		o->iovs = 1 + inv_below(&g->rng, 3);
	return (int)(g->p->n - 1);
}

static bool rx_completes(const struct inv_gen *g, const struct inv_op *o)
{
	return !g->p->setup.rx_selective[o->ep] ||
	       (o->form == INV_MSG && (o->flags & FI_COMPLETION));
}

/* The sender is alone with this queue in the round: see pair_up(). */
static int add_send(struct inv_gen *g, int ep, int to, bool tagged)
{
	struct inv_op *o = inv_add(g, INV_SEND, ep);

	o->peer = to;
	o->tagged = tagged;
	o->tag = tagged ? some_tag(g) : 0;
	o->len = some_len(g);
	some_form(g, o, g->p->n - 1, g->f->iov_limit);
	o->expect = inv_tx_completes(g, o);
	return (int)(g->p->n - 1);
}

/*
 * Match messages with receives, whichever comes first: while one sender's
 * messages keep their order, each goes to the first remaining receive that
 * matches. Returns the first message without a receive.
 */
static int pair_up(struct inv_gen *g, const int *recv, int nrecv,
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

/* Fill in a receive that gets a message. */
static void plan_recv(struct inv_gen *g, struct inv_op *r, bool in_order)
{
	struct inv_op *m = new_op(g, r->other);

	r->counted = true;
	r->expect = rx_completes(g, r);
	/* The bytes alone show the end of a receive without an entry. */
	if (!r->expect && !m->len)
		m->len = 8;
	r->len = m->len + inv_below(&g->rng, 3);
	if (r->iovs > r->len)
		r->iovs = 1;
	r->in_order = in_order && m->len <= 64;
}

static void add_cancel(struct inv_gen *g, int ep, int recv)
{
	struct inv_op *o = inv_add(g, INV_CANCEL, ep);

	o->other = recv;
	new_op(g, recv)->expect = 1;
	new_op(g, recv)->fails = true;
	new_op(g, recv)->due = o->due;
}

void inv_gen_forget(struct inv_gen *g, int ep, bool tagged)
{
	for (int i = 0; i < g->nwaiting[ep][tagged]; i++)
		add_cancel(g, ep, g->waiting[ep][tagged][i]);
	g->nwaiting[ep][tagged] = 0;
}

void inv_gen_messages(struct inv_gen *g, bool tagged)
{
	int to = inv_pick_ep(g, -1, false), from = inv_pick_ep(g, to, true);
	int recv[MAX_RECV + 3 * BURST], send[BURST], nrecv, nsend = 0;
	int n = 1 + (int)inv_below(&g->rng, BURST), left = n, k, kept;
	int *waiting = g->waiting[to][tagged];
	bool first = inv_chance(&g->rng, 50), last = inv_chance(&g->rng, 30);

	if (g->busy[to][tagged])
		return;
	g->busy[to][tagged] = true;
	kept = g->nwaiting[to][tagged];
	memcpy(recv, waiting, sizeof(*recv) * kept);
	nrecv = kept;
	while (left || nsend < n) {
		if (left && (first || nsend == n ||
			     (!last && inv_chance(&g->rng, 50)))) {
			int who = g->f->direct && from != INV_UNKNOWN &&
						  inv_chance(&g->rng, 30)
					  ? from
					  : -1;

			recv[nrecv++] = add_recv(g, to, tagged, who);
			left--;
		} else if (nsend < n) {
			send[nsend++] = add_send(g, from, to, tagged);
		}
		if (inv_chance(&g->rng, 10))
			inv_gen_traffic(g, -1);
	}
	while ((k = pair_up(g, recv, nrecv, send, nsend)) >= 0) {
		recv[nrecv] = add_recv(g, to, tagged, -1);
		new_op(g, recv[nrecv])->tag = new_op(g, send[k])->tag;
		nrecv++;
		first = false;
	}
	g->nwaiting[to][tagged] = 0;
	for (k = 0; k < nrecv; k++) {
		struct inv_op *r = new_op(g, recv[k]);

		if (r->other >= 0) {
			plan_recv(g, r, first && from != INV_UNKNOWN);
		} else if (g->nwaiting[to][tagged] < MAX_RECV) {
			waiting[g->nwaiting[to][tagged]++] = recv[k];
		} else {
			add_cancel(g, to, recv[k]);
		}
	}
	/* Lengths are final: fit the number of segments to them. */
	for (k = 0; k < nsend; k++)
		if (new_op(g, send[k])->iovs > new_op(g, send[k])->len)
			new_op(g, send[k])->iovs = 1;
}

void inv_gen_peek(struct inv_gen *g)
{
	int to = inv_pick_ep(g, -1, false), from = inv_pick_ep(g, to, true);
	struct inv_op *o;
	int m;

	inv_add(g, INV_SYNC, 0);
	memset(g->busy, 0, sizeof(g->busy));
	inv_gen_forget(g, to, true);
	inv_add(g, INV_SYNC, 0);
	if (inv_chance(&g->rng, 25)) {
		o = inv_add(g, INV_PEEK, to);
		o->tagged = true;
		o->tag = some_tag(g);
		o->ignore = some_ignore(g);
		return;
	}
	m = add_send(g, from, to, true);
	/*
	 * A message that the receiver may discard must not wait for delivery.
	 */
	new_op(g, m)->flags &= ~FI_DELIVERY_COMPLETE;
	new_op(g, m)->len %= 4000;
	if (new_op(g, m)->iovs > new_op(g, m)->len)
		new_op(g, m)->iovs = 1;
	o = inv_add(g, INV_PEEK, to);
	o->tagged = true;
	o->other = m;
	o->tag = new_op(g, m)->tag;
	o->ignore = some_ignore(g);
	o->how = INV_KEEP + (int)inv_below(&g->rng, 3);
	o->len = new_op(g, m)->len;
	if (o->how == INV_DISCARD &&
	    g->p->setup.op_flags[from] & FI_DELIVERY_COMPLETE)
		o->how = INV_CLAIM;
	o->counted = o->how != INV_DISCARD;
	inv_add(g, INV_SYNC, 0);
}

void inv_gen_multi(struct inv_gen *g)
{
	int to = inv_pick_ep(g, -1, false), from = inv_pick_ep(g, to, true);
	int n = 1 + (int)inv_below(&g->rng, BURST), multi;
	bool fills = inv_chance(&g->rng, 50);
	size_t sum = 0, len = 0, spare = 5000;
	struct inv_op *o;

	if (!g->f->multi || g->busy[to][0])
		return;
	g->busy[to][0] = true;
	inv_gen_forget(g, to, false);
	o = inv_add(g, INV_MULTI, to);
	multi = (int)(g->p->n - 1);
	o->flags = FI_COMPLETION;
	o->form = INV_MSG;
	o->count = MULTI_ROOM;
	o->expect = n;
	for (int i = 0; i < n; i++) {
		int m = add_send(g, from, to, false);

		/* Its length suited its form already. */
		len = new_op(g, m)->len;
		/*
		 * Long messages use a rendezvous protocol, which is out of
		 * order.
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
	/* Only the last message leaves too little room. */
	if (fills)
		spare = len < MULTI_ROOM
				? MULTI_ROOM - len + inv_below(&g->rng, len)
				: inv_below(&g->rng, MULTI_ROOM);
	new_op(g, multi)->len = sum + spare;
	if (!fills) {
		inv_add(g, INV_SYNC, 0);
		memset(g->busy, 0, sizeof(g->busy));
		o = inv_add(g, INV_CANCEL, to);
		o->other = multi;
		o->count = 1;
		/* The buffer returns after its messages. */
	}
	inv_add(g, INV_SYNC, 0);
	memset(g->busy, 0, sizeof(g->busy));
}

/*
 * A receive for any source waits until control messages have made it the oldest
 * receive left.
 */
void inv_gen_flood(struct inv_gen *g)
{
	int to = inv_pick_ep(g, -1, false), from = inv_pick_ep(g, to, true);
	int recv, send;
	struct inv_op *o;

	if (g->busy[to][1])
		return;
	inv_gen_forget(g, to, true);
	recv = add_recv(g, to, true, -1);
	new_op(g, recv)->ignore = ~0ull;
	for (int i = 0; i < 2; i++) {
		o = inv_add_traffic(g, INV_UNKNOWN, to, FLOOD / 2);
		if (o)
			o->how = 3;
		inv_add(g, INV_REST, 0);
	}
	send = add_send(g, from, to, true);
	pair_up(g, &recv, 1, &send, 1);
	plan_recv(g, new_op(g, recv), false);
	inv_add(g, INV_SYNC, 0);
	memset(g->busy, 0, sizeof(g->busy));
}

static void add_atomic(struct inv_gen *g, int from, int to)
{
	static const enum fi_op ops[] = {FI_SUM, FI_BOR, FI_BXOR,
					 FI_MIN, FI_MAX, FI_ATOMIC_WRITE};
	uint64_t cell = inv_below(&g->rng, INV_CELLS);
	struct inv_op *o;

	if (g->cells[inv_side_of(to)] & 1ull << cell)
		return;
	g->cells[inv_side_of(to)] |= 1ull << cell;
	o = inv_add(g, INV_ATOMIC, from);
	o->peer = to;
	o->pmem = inv_chance(&g->rng, 40);
	o->how = (int)inv_below(&g->rng, 3);
	o->op = o->how == INV_COMPARE ? FI_CSWAP : ops[inv_below(&g->rng, 6)];
	o->form = inv_chance(&g->rng, 50) ? INV_MSG : INV_PLAIN;
	if (o->how == INV_BASE_OP && inv_chance(&g->rng, 30))
		o->form = INV_INJECT;
	if (o->form == INV_MSG)
		o->flags = some_flags(g) & ~FI_MORE;
	o->len = 8;
	o->off = INV_REGION - 8 * (cell + 1);
	o->data = inv_next(&g->rng) & 0xffff;
	o->tag = inv_chance(&g->rng, 50) ? 0 : inv_below(&g->rng, 0xffff);
	o->counted = true;
	o->expect = inv_tx_completes(g, o);
}

void inv_gen_memory(struct inv_gen *g)
{
	int from = inv_pick_ep(g, -1, true), to = inv_pick_ep(g, from, false);
	int n = 1 + (int)inv_below(&g->rng, BURST), side = inv_side_of(to);
	struct inv_op *o;

	for (int i = 0; i < n; i++) {
		if (g->f->atomic && inv_chance(&g->rng, 30)) {
			add_atomic(g, from, to);
			continue;
		}
		o = inv_add(g, inv_chance(&g->rng, 65) ? INV_WRITE : INV_READ,
			    from);
		o->peer = to;
		o->pmem = inv_chance(&g->rng, 40);
		do {
			o->len = some_len(g);
		} while (!o->len);
		if (o->verb == INV_READ) {
			o->len = 1 + o->len % 20000;
			o->off = inv_below(&g->rng, INV_READ_ZONE - o->len);
			o->form = (enum inv_form)inv_below(&g->rng, 3);
			if (o->form == INV_MSG)
				o->flags = some_flags(g) & FI_COMPLETION;
			if (o->form != INV_PLAIN)
				o->iovs = 1 + inv_below(&g->rng, 4);
			o->counted = true;
		} else {
			some_form(g, o, g->p->n - 1, g->f->iov_limit);
			o->remote = o->data;
			o->off = INV_READ_ZONE + g->used[side];
			if (o->off + o->len > INV_REGION - 8 * INV_CELLS) {
				o->len = 8;
				g->used[side] = 0;
				o->off = INV_READ_ZONE;
			}
			g->used[side] += o->len;
		}
		if (o->form == INV_MSG)
			o->rma_iovs =
				1 +
				inv_below(&g->rng, g->f->rma_iov_limit < 4
							   ? g->f->rma_iov_limit
							   : 4);
		if (o->iovs > o->len)
			o->iovs = 1;
		if (o->rma_iovs > o->len)
			o->rma_iovs = 1;
		o->expect = inv_tx_completes(g, o);
		o->arrives = true;
		if (inv_chance(&g->rng, 15))
			inv_gen_traffic(g, -1);
	}
}
