// SPDX-License-Identifier: BSD-2-Clause
/* Posts one operation of a plan, in each of the forms of its call. */
#include <string.h>
#include <sys/uio.h>

#include "fabtests/commit.h"
#include "functional/transparent.h"

uint8_t tp_pattern(const struct tp_op *o, int index, size_t at)
{
	return (uint8_t)(index * 151 + at * 31 + (at >> 8) + o->tag + 1);
}

uint8_t tp_static(int side, uint64_t at)
{
	return (uint8_t)(side * 77 + at * 13 + (at >> 7));
}

static uint64_t key_of(struct tp_world *w, int ep, int which)
{
	return fi_mr_key(w->side[tp_side_of(ep)].mr[which]);
}

static uint64_t addr_of(struct tp_world *w, int ep, int which, uint64_t off)
{
	struct tp_side *s = &w->side[tp_side_of(ep)];

	return off + (s->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
			      ? (uintptr_t)s->mem[which]
			      : 0);
}

/* Split the buffer into n segments of different lengths. */
static void split_buffer(const struct tp_op *o, struct iovec *iov, size_t n)
{
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		size_t len =
			i + 1 == n ? o->len - at : (o->len - at) / (n - i + 1);

		iov[i].iov_base = o->buf + at;
		iov[i].iov_len = len;
		at += len;
	}
}

static void split_remote(const struct tp_op *o, struct fi_rma_iov *iov,
			 uint64_t addr, uint64_t key)
{
	uint64_t at = 0;

	for (size_t i = 0; i < o->rma_iovs; i++) {
		uint64_t len = i + 1 == o->rma_iovs ? o->len - at : o->len / 5;

		iov[i] = (struct fi_rma_iov){addr + at, len, key};
		at += len;
	}
}

static ssize_t post_recv(struct tp_world *w, struct tp_op *o)
{
	struct fid_ep *ep = w->ep[o->ep].fid;
	fi_addr_t from =
		o->peer < 0 ? FI_ADDR_UNSPEC : w->ep[o->ep].peer[o->peer];
	struct iovec iov[4];
	struct fi_msg_tagged t = {
		.msg_iov = iov,
		.iov_count = o->iovs,
		.addr = from,
		.tag = o->tag,
		.ignore = o->ignore,
		.context = o,
	};
	struct fi_msg m = {
		.msg_iov = iov,
		.iov_count = o->iovs,
		.addr = from,
		.context = o,
	};

	split_buffer(o, iov, o->iovs);
	switch (o->form) {
	case TP_PLAIN:
		return o->tagged ? fi_trecv(ep, o->buf, o->len, NULL, from,
					    o->tag, o->ignore, o)
				 : fi_recv(ep, o->buf, o->len, NULL, from, o);
	case TP_V:
		return o->tagged ? fi_trecvv(ep, iov, NULL, o->iovs, from,
					     o->tag, o->ignore, o)
				 : fi_recvv(ep, iov, NULL, o->iovs, from, o);
	default:
		return o->tagged ? fi_trecvmsg(ep, &t, o->flags)
				 : fi_recvmsg(ep, &m, o->flags);
	}
}

static ssize_t post_tsend(struct fid_ep *ep, fi_addr_t to, struct tp_op *o)
{
	struct iovec iov[4];
	struct fi_msg_tagged m = {
		.msg_iov = iov,
		.iov_count = o->iovs,
		.addr = to,
		.tag = o->tag,
		.context = o,
		.data = o->data,
	};

	split_buffer(o, iov, o->iovs);
	switch (o->form) {
	case TP_PLAIN:
		return fi_tsend(ep, o->buf, o->len, NULL, to, o->tag, o);
	case TP_V:
		return fi_tsendv(ep, iov, NULL, o->iovs, to, o->tag, o);
	case TP_MSG:
		return fi_tsendmsg(ep, &m, o->flags);
	case TP_INJECT:
		return fi_tinject(ep, o->buf, o->len, to, o->tag);
	case TP_DATA:
		return fi_tsenddata(ep, o->buf, o->len, NULL, o->data, to,
				    o->tag, o);
	default:
		return fi_tinjectdata(ep, o->buf, o->len, o->data, to, o->tag);
	}
}

static ssize_t post_send(struct fid_ep *ep, fi_addr_t to, struct tp_op *o)
{
	struct iovec iov[4];
	struct fi_msg m = {
		.msg_iov = iov,
		.iov_count = o->iovs,
		.addr = to,
		.context = o,
		.data = o->data,
	};

	split_buffer(o, iov, o->iovs);
	switch (o->form) {
	case TP_PLAIN:
		return fi_send(ep, o->buf, o->len, NULL, to, o);
	case TP_V:
		return fi_sendv(ep, iov, NULL, o->iovs, to, o);
	case TP_MSG:
		return fi_sendmsg(ep, &m, o->flags);
	case TP_INJECT:
		return fi_inject(ep, o->buf, o->len, to);
	case TP_DATA:
		return fi_senddata(ep, o->buf, o->len, NULL, o->data, to, o);
	default:
		return fi_injectdata(ep, o->buf, o->len, o->data, to);
	}
}

static ssize_t post_rma(struct fid_ep *ep, fi_addr_t to, uint64_t addr,
			uint64_t key, struct tp_op *o)
{
	struct fi_rma_iov remote[4];
	struct iovec iov[4];
	struct fi_msg_rma m = {
		.msg_iov = iov,
		.iov_count = o->iovs,
		.addr = to,
		.rma_iov = remote,
		.rma_iov_count = o->rma_iovs,
		.context = o,
		.data = o->data,
	};
	bool read = o->verb == TP_READ;

	split_buffer(o, iov, o->iovs);
	split_remote(o, remote, addr, key);
	switch (o->form) {
	case TP_PLAIN:
		return read ? fi_read(ep, o->buf, o->len, NULL, to, addr, key,
				      o)
			    : fi_write(ep, o->buf, o->len, NULL, to, addr, key,
				       o);
	case TP_V:
		return read ? fi_readv(ep, iov, NULL, o->iovs, to, addr, key, o)
			    : fi_writev(ep, iov, NULL, o->iovs, to, addr, key,
					o);
	case TP_MSG:
		return read ? fi_readmsg(ep, &m, o->flags)
			    : fi_writemsg(ep, &m, o->flags);
	case TP_INJECT:
		return fi_inject_write(ep, o->buf, o->len, to, addr, key);
	case TP_DATA:
		return fi_writedata(ep, o->buf, o->len, NULL, o->data, to, addr,
				    key, o);
	default:
		return fi_inject_writedata(ep, o->buf, o->len, o->data, to,
					   addr, key);
	}
}

/*
 * Post an atomic. o->buf has the operand, at byte 8 the comparand, and at byte
 * 16 the result.
 */
static ssize_t post_atomic(struct fid_ep *ep, fi_addr_t to, uint64_t addr,
			   uint64_t key, struct tp_op *o)
{
	struct fi_ioc operand = {o->buf, 1}, compare = {o->buf + 8, 1},
		      result = {o->buf + 16, 1};
	struct fi_rma_ioc remote = {addr, 1, key};
	struct fi_msg_atomic m = {
		.msg_iov = &operand,
		.iov_count = 1,
		.addr = to,
		.rma_iov = &remote,
		.rma_iov_count = 1,
		.datatype = FI_UINT64,
		.op = o->op,
		.context = o,
	};
	bool msg = o->form == TP_MSG;

	memcpy(o->buf, &o->data, 8);
	memcpy(o->buf + 8, &o->tag, 8);
	switch (o->how) {
	case TP_FETCH:
		return msg ? fi_fetch_atomicmsg(ep, &m, &result, NULL, 1,
						o->flags)
			   : fi_fetch_atomic(ep, o->buf, 1, NULL, o->buf + 16,
					     NULL, to, addr, key, FI_UINT64,
					     o->op, o);
	case TP_COMPARE:
		return msg ? fi_compare_atomicmsg(ep, &m, &compare, NULL, 1,
						  &result, NULL, 1, o->flags)
			   : fi_compare_atomic(ep, o->buf, 1, NULL, o->buf + 8,
					       NULL, o->buf + 16, NULL, to,
					       addr, key, FI_UINT64, o->op, o);
	default:
		if (o->form == TP_INJECT)
			return fi_inject_atomic(ep, o->buf, 1, to, addr, key,
						FI_UINT64, o->op);
		return msg ? fi_atomicmsg(ep, &m, o->flags)
			   : fi_atomic(ep, o->buf, 1, NULL, to, addr, key,
				       FI_UINT64, o->op, o);
	}
}

static ssize_t post_once(struct tp_world *w, struct tp_op *o)
{
	struct fid_ep *ep = w->ep[o->ep].fid;
	fi_addr_t to =
		o->peer < 0 ? FI_ADDR_UNSPEC : w->ep[o->ep].peer[o->peer];
	int which = o->pmem ? TP_MEM_PMEM : TP_MEM_PLAIN;

	switch (o->verb) {
	case TP_RECV:
	case TP_MULTI:
		return post_recv(w, o);
	case TP_SEND:
	case TP_FD:
		return o->tagged ? post_tsend(ep, to, o) : post_send(ep, to, o);
	case TP_WRITE:
	case TP_READ:
		return post_rma(ep, to, addr_of(w, o->peer, which, o->off),
				key_of(w, o->peer, which), o);
	case TP_BADKEY:
		/* A key that was never registered. */
		return post_rma(ep, to, addr_of(w, o->peer, which, 0),
				0x7ffff123, o);
	default:
		return post_atomic(ep, to, addr_of(w, o->peer, which, o->off),
				   key_of(w, o->peer, which), o);
	}
}

ssize_t tp_post(struct tp_world *w, struct tp_op *o)
{
	struct tp_deadline deadline = tp_deadline();
	ssize_t ret;

	while ((ret = post_once(w, o)) == -FI_EAGAIN && tp_time_left(&deadline))
		tp_poll(w);
	w->stuck |= ret == -FI_EAGAIN;
	return ret;
}

/* --- the traffic during a program --- */

enum traffic_kind {
	WRITE,
	COMMITTED,
	COMMIT
};

static void traffic_one(struct tp_world *w, struct tp_op *o, int which,
			enum traffic_kind kind)
{
	struct tp_traffic *f = &w->traffic[w->ntraffic++ % TP_TRAFFIC_MAX];
	struct iovec iov = {.iov_base = w->arena, .iov_len = TP_TRAFFIC_LEN};
	/* A commit covers the slot of the previous write. */
	uint64_t slot = (uint64_t)(f - w->traffic) - (kind == COMMIT);
	uint64_t off = slot * TP_TRAFFIC_LEN;
	struct fi_rma_iov remote = {addr_of(w, o->peer, which, off),
				    TP_TRAFFIC_LEN, key_of(w, o->peer, which)};
	struct tp_ep *ep = &w->ep[o->ep];
	fi_addr_t to = ep->peer[o->peer];
	struct fi_msg_rma m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = to,
		.rma_iov = &remote,
		.rma_iov_count = 1,
		.context = f,
	};
	struct tp_deadline deadline = tp_deadline();
	uint64_t flags = FI_COMPLETION;
	ssize_t ret;

	if (!w->layered || kind == WRITE)
		flags |= FI_DELIVERY_COMPLETE;
	else
		flags |= FI_COMMIT_COMPLETE;
	f->ep = o->ep;
	f->out = true;
	do {
		if (w->layered && kind == COMMIT)
			ret = commit_post(
				ep->fid, &remote, 1, to, FI_RPMEM_DURABLE,
				which == TP_MEM_FILE ? FI_RPMEM_CLASS_POWER
						     : FI_RPMEM_CLASS_NONE,
				NULL, f);
		else
			ret = fi_writemsg(ep->fid, &m, flags);
		if (ret == -FI_EAGAIN)
			tp_poll(w);
	} while (ret == -FI_EAGAIN && tp_time_left(&deadline));
	w->stuck |= ret == -FI_EAGAIN;
	if (ret) {
		f->out = false;
		tp_saw(w->t, (int)(o - w->p->ops), "traffic: %zd", ret);
		return;
	}
	w->traffic_out++;
	ep->traffic++;
	if (!w->layered || kind == WRITE || kind == COMMITTED)
		w->ep[o->peer].traffic_in++;
}

void tp_post_traffic(struct tp_world *w, struct tp_op *o)
{
	if (w->quiet)
		return;
	for (int i = 0; i < o->count; i++) {
		if (!o->how) {
			/* Write to the disk rarely, because it is slow. */
			traffic_one(w, o, TP_MEM_FILE, WRITE);
			traffic_one(w, o, TP_MEM_FILE, COMMIT);
		} else if (o->how < 5) {
			traffic_one(w, o, TP_MEM_QUICK, COMMITTED);
		} else {
			traffic_one(w, o, TP_MEM_QUICK, WRITE);
			traffic_one(w, o, TP_MEM_QUICK, COMMIT);
		}
	}
}
