// SPDX-License-Identifier: BSD-2-Clause
/*
 * Posts the operations of random programs with connected endpoints, and the
 * durable traffic meanwhile.
 */
#include <stdlib.h>
#include <string.h>

#include "fabtests/commit.h"
#include "functional/transparent_conn.h"

uint64_t slot;

static struct op *add_op(enum kind kind, int c, int k, size_t len)
{
	struct op *o = &ops[nops++];

	if (nops == OPS)
		abort();
	memset(o, 0, sizeof(*o));
	o->kind = kind;
	o->conn = c;
	o->side = k;
	o->len = len;
	o->iovs = 1 + tp_below(&rng, 3);
	o->buf = arena + used;
	used += (len + 63) & ~(size_t)63;
	for (size_t i = 0; i < len; i++)
		o->buf[i] = (char)(kind == RECV || kind == READ
					   ? 0
					   : nops * 7 + (int)i * 3 + 1);
	return o;
}

static void split_buffer(const struct op *o, struct iovec *iov)
{
	size_t at = 0;

	for (size_t i = 0; i < o->iovs; i++) {
		size_t n = i + 1 == o->iovs ? o->len - at : o->len / 4;

		iov[i] = (struct iovec){o->buf + at, n};
		at += n;
	}
}

static size_t some_len(void)
{
	static const size_t edges[] = {0,    1,	    8,	   63,	   64,
				       4096, 16384, 40000, LONGEST};

	return tp_chance(&rng, 60) ? tp_below(&rng, 300)
				   : edges[tp_below(&rng, 9)];
}

static uint64_t some_flags(void)
{
	static const uint64_t level[] = {0, FI_INJECT_COMPLETE,
					 FI_TRANSMIT_COMPLETE,
					 FI_DELIVERY_COMPLETE};

	return level[tp_below(&rng, 4)] |
	       (tp_chance(&rng, 60) ? FI_COMPLETION : 0);
}

#define POST(call)                                                             \
	do {                                                                   \
		struct tp_deadline p_ = tp_deadline();                         \
		ssize_t r_;                                                    \
		while ((r_ = (call)) == -FI_EAGAIN && tp_time_left(&p_))       \
			poll_all();                                            \
		if (r_)                                                        \
			record_event("%s says %zd\n", #call, r_);              \
	} while (0)

/*
 * If FI_COMPLETION is in the default op_flags, tcp 1.17 makes entries even for
 * calls whose flags lack it: pass it always.
 */
static uint64_t flags_of(const struct end *e)
{
	return some_flags() | (e->op_flags & FI_COMPLETION);
}

/* Note whether the operation must have an entry, by its flags. */
static void expect_completion(struct op *o, const struct end *e, uint64_t flags)
{
	o->expect = !e->selective || (flags & FI_COMPLETION);
	o->delivered = flags & (FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE);
}

void post_recv(int c, int k)
{
	struct op *o = add_op(RECV, c, k, LONGEST);
	struct end *e = &side[k].end[c];
	struct iovec iov[4];
	struct fi_msg m = {.msg_iov = iov, .context = o};
	uint64_t flags = tp_chance(&rng, 50) ? FI_COMPLETION : 0;

	split_buffer(o, iov);
	m.iov_count = o->iovs;
	o->expect = !e->rx_selective;
	switch (tp_below(&rng, 3)) {
	case 0:
		POST(fi_recv(e->ep, o->buf, o->len, NULL, 0, o));
		break;
	case 1:
		POST(fi_recvv(e->ep, iov, NULL, o->iovs, 0, o));
		break;
	default:
		o->expect |= flags != 0;
		POST(fi_recvmsg(e->ep, &m, flags));
	}
}

void post_send(int c, int k)
{
	struct op *o = add_op(SEND, c, k, some_len());
	struct end *e = &side[k].end[c];
	struct iovec iov[4];
	struct fi_msg m = {.msg_iov = iov, .context = o, .data = 0x5a};
	uint64_t flags = flags_of(e);
	size_t inject = side[k].info->tx_attr->inject_size;
	unsigned int form = (unsigned int)tp_below(&rng, 6);

	split_buffer(o, iov);
	m.iov_count = o->iovs;
	expect_completion(o, e, form == 2 ? flags : e->op_flags);
	/* Some releases of tcp count injected operations, and some do not. */
	if (form > 3 && (o->len > 64 || o->len > inject || e->cntr[0]))
		form -= 4;
	o->form = form;
	switch (form) {
	case 0:
		POST(fi_send(e->ep, o->buf, o->len, NULL, 0, o));
		break;
	case 1:
		POST(fi_sendv(e->ep, iov, NULL, o->iovs, 0, o));
		break;
	case 2:
		POST(fi_sendmsg(
			e->ep, &m,
			flags | (tp_chance(&rng, 30) ? FI_REMOTE_CQ_DATA : 0)));
		break;
	case 3:
		POST(fi_senddata(e->ep, o->buf, o->len, NULL, 0xda7a, 0, o));
		break;
	case 4:
		o->expect = 0;
		POST(fi_inject(e->ep, o->buf, o->len, 0));
		break;
	default:
		o->expect = 0;
		POST(fi_injectdata(e->ep, o->buf, o->len, 0x1da7a, 0));
	}
}

static uint64_t key_of(int k, unsigned int which)
{
	return fi_mr_key(side[k].mr[which]);
}

/*
 * Write to an offset that no other write uses, in plain or persistent memory.
 */
void post_write(int c, int k)
{
	struct op *o = add_op(WRITE, c, k, 1 + some_len() % 9000);
	struct end *e = &side[k].end[c];
	unsigned int which = o->which = (unsigned int)tp_below(&rng, 2);
	uint64_t at = slot, key = key_of(!k, which), flags = flags_of(e);
	uint64_t mark = which ? DATA_PERSISTENT : 0;
	struct fi_rma_iov to = {at, o->len, key};
	struct iovec iov[4];
	struct fi_msg_rma m = {.msg_iov = iov,
			       .rma_iov = &to,
			       .rma_iov_count = 1,
			       .context = o,
			       .data = 0x77 + mark};
	unsigned int form = (unsigned int)tp_below(&rng, 6);

	if (at + o->len > TRAFFIC)
		slot = at = 0;
	slot += o->len;
	to.addr = at;
	split_buffer(o, iov);
	m.iov_count = o->iovs;
	expect_completion(o, e, form == 2 ? flags : e->op_flags);
	if (form > 3 && (o->len > 64 || e->cntr[3]))
		form -= 4;
	o->form = form;
	switch (form) {
	case 0:
		POST(fi_write(e->ep, o->buf, o->len, NULL, 0, at, key, o));
		break;
	case 1:
		POST(fi_writev(e->ep, iov, NULL, o->iovs, 0, at, key, o));
		break;
	case 2:
		POST(fi_writemsg(e->ep, &m, flags));
		break;
	case 3:
		side[!k].end[c].data_due++;
		POST(fi_writedata(e->ep, o->buf, o->len, NULL, 0x88 + mark, 0,
				  at, key, o));
		break;
	case 4:
		o->expect = 0;
		POST(fi_inject_write(e->ep, o->buf, o->len, 0, at, key));
		break;
	default:
		o->expect = 0;
		side[!k].end[c].data_due++;
		POST(fi_inject_writedata(e->ep, o->buf, o->len, 0x99 + mark, 0,
					 at, key));
	}
}

void post_read(int c, int k)
{
	struct op *o = add_op(READ, c, k, 1 + some_len() % 9000);
	struct end *e = &side[k].end[c];
	unsigned int which = o->which = (unsigned int)tp_below(&rng, 2);
	uint64_t key = key_of(!k, which), flags = flags_of(e);
	uint64_t at = tp_below(&rng, TRAFFIC - o->len);
	struct fi_rma_iov from = {at, o->len, key};
	struct iovec iov[4];
	struct fi_msg_rma m = {.msg_iov = iov,
			       .rma_iov = &from,
			       .rma_iov_count = 1,
			       .context = o};
	bool msg = tp_chance(&rng, 50);

	flags &= ~(FI_INJECT_COMPLETE | FI_DELIVERY_COMPLETE);
	split_buffer(o, iov);
	m.iov_count = o->iovs;
	expect_completion(o, e, msg ? flags : e->op_flags);
	if (msg)
		POST(fi_readmsg(e->ep, &m, flags));
	else
		POST(fi_read(e->ep, o->buf, o->len, NULL, 0, at, key, o));
}

/*
 * Post a message as a fence: a connection keeps its order, so when the message
 * has arrived, all operations before it have arrived and were counted. On the
 * private connection a commit proves the same.
 */
void post_fence(int c, int k)
{
	struct op *to = add_op(RECV, c, !k, 8), *from = add_op(SEND, c, k, 8);
	struct op *commit;
	struct fi_rma_iov all = {0, TRAFFIC, key_of(!k, 1)};
	struct iovec iov = {to->buf, to->len};
	struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .context = to};

	to->expect = from->expect = 1;
	from->delivered = true;
	POST(fi_recvmsg(side[!k].end[c].ep, &m, FI_COMPLETION));
	iov.iov_base = from->buf;
	m.context = from;
	POST(fi_sendmsg(side[k].end[c].ep, &m,
			FI_COMPLETION | FI_DELIVERY_COMPLETE));
	commit = add_op(BESIDE, c, k, 0);
	if (!layered)
		return;
	commit->expect = 1;
	side[k].end[c].beside++;
	POST(commit_post(side[k].end[c].ep, &all, 1, 0, FI_RPMEM_DURABLE,
			 FI_RPMEM_CLASS_NONE, NULL, commit));
}

void traffic(int c, int k)
{
	struct op *o = add_op(BESIDE, c, k, 1 + tp_below(&rng, 600));
	struct end *e = &side[k].end[c];
	uint64_t at = TRAFFIC + tp_below(&rng, TRAFFIC - o->len);
	struct fi_rma_iov to = {at, o->len, key_of(!k, 1)};
	struct iovec iov = {o->buf, o->len};
	struct fi_msg_rma m = {.msg_iov = &iov,
			       .iov_count = 1,
			       .rma_iov = &to,
			       .rma_iov_count = 1,
			       .context = o};
	unsigned int form = (unsigned int)tp_below(&rng, 3);

	e->beside++;
	o->expect = 1;
	if (!layered)
		POST(fi_writemsg(e->ep, &m, FI_COMPLETION));
	else if (form)
		POST(fi_writemsg(e->ep, &m,
				 FI_COMPLETION | FI_COMMIT_COMPLETE));
	else
		POST(commit_post(e->ep, &to, 1, 0, FI_RPMEM_DURABLE,
				 FI_RPMEM_CLASS_NONE, NULL, o));
}
