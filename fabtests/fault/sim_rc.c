// SPDX-License-Identifier: BSD-2-Clause
/*
 * The ops of prov/rc over the simulated fabric pmsim: operations, receives,
 * completions and memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "host_sim.h"
#include "pmsim/pmsim.h"
#include "sim_rc.h"

/* Size of the completion queue. */
#define CQ_SIZE 1024
#define BATCH	16
/*
 * How often a registration is tried with a new random key, while the key is in
 * use.
 */
#define KEY_TRIES 4
#define INJECT	  256

/*
 * The context of a completion is a pointer to an operation, or, with one of
 * these bits set, to a receive or a copied SEND. NULL: a part of a write, which
 * is not the last one.
 */
#define CONTEXT_RECV   1ul
#define CONTEXT_COPIED 2ul
#define CONTEXT_BITS   3ul

/* A copy of a SEND that has more segments than the fabric allows. */
struct copied {
	struct rp_channel_op *op;
	uint8_t bytes[];
};

static struct fi_info *find_info(void)
{
	struct fi_info *hints = fi_allocinfo(), *list = NULL, *found = NULL;

	if (!hints)
		return NULL;
	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	/*
	 * Writes follow writes, SENDs follow SENDs and writes, and READs follow
	 * writes.
	 */
	hints->tx_attr->msg_order =
		FI_ORDER_WAW | FI_ORDER_SAW | FI_ORDER_SAS | FI_ORDER_RAW;
	hints->fabric_attr->prov_name = strdup("pmsim");
	if (hints->fabric_attr->prov_name &&
	    !fi_getinfo(fi_version(), NULL, NULL, 0, hints, &list))
		found = fi_dupinfo(list);
	fi_freeinfo(list);
	fi_freeinfo(hints);
	if (found) {
		free(found->src_addr);
		free(found->dest_addr);
		found->src_addr = found->dest_addr = NULL;
		found->src_addrlen = found->dest_addrlen = 0;
	}
	return found;
}

static int open_objects(struct sim_rc *f)
{
	struct fi_eq_attr eq = {.wait_obj = FI_WAIT_NONE};
	struct fi_cq_attr cq = {
		.size = CQ_SIZE,
		.format = FI_CQ_FORMAT_MSG,
		.wait_obj = FI_WAIT_NONE,
	};
	int ret = fi_fabric(f->info->fabric_attr, &f->fabric, NULL);

	if (!ret)
		ret = fi_domain(f->fabric, f->info, &f->domain, NULL);
	if (!ret)
		ret = fi_eq_open(f->fabric, &eq, &f->eq, NULL);
	if (!ret)
		ret = fi_cq_open(f->domain, &cq, &f->cq, NULL);
	return ret;
}

static int sim_open(struct rp_rc *rc, char *why, size_t why_size)
{
	struct sim_rc *f = sim_rc(rc);
	int ret;

	TAILQ_INIT(&f->pool);
	TAILQ_INIT(&f->waiting);
	rc->shared = RP_RC_MAX_RECVS;
	f->info = find_info();
	if (!f->info) {
		snprintf(why, why_size, "no pmsim");
		return -FI_ENODATA;
	}
	ret = open_objects(f);
	if (ret) {
		snprintf(why, why_size, "pmsim: %s", fi_strerror(-ret));
		return ret;
	}
	if (rp_host_sim.flushes && rp_host_sim.flushes())
		f->flush_flag = PMSIM_FLUSH;
	rc->flags =
		RP_CHANNEL_FENCES | (f->flush_flag ? RP_CHANNEL_FLUSHES : 0);
	rc->inject = (uint32_t)f->info->tx_attr->inject_size;
	if (rc->inject > INJECT)
		rc->inject = INJECT;
	f->iov_limit = f->info->tx_attr->iov_limit;
	return 0;
}

static void close_fid(struct fid *fid)
{
	int ret = fi_close(fid);

	if (ret)
		rp_log(RP_LOG_WARN, "private connections: fi_close: %s",
		       fi_strerror(-ret));
}

/* Close the objects in an order in which none is still used by another. */
static void sim_close(struct rp_rc *rc)
{
	struct sim_rc *f = sim_rc(rc);

	if (f->pep)
		close_fid(&f->pep->fid);
	if (f->cq)
		close_fid(&f->cq->fid);
	if (f->domain)
		close_fid(&f->domain->fid);
	if (f->eq)
		close_fid(&f->eq->fid);
	if (f->fabric)
		close_fid(&f->fabric->fid);
	if (f->info)
		fi_freeinfo(f->info);
}

/* --- operations --- */

/*
 * Copy an operation's bytes to `to`, if they fit into size. Returns their
 * number in any case.
 */
static size_t copy_op(const struct rp_channel_op *op, uint8_t *to, size_t size)
{
	size_t at = 0;

	for (unsigned int i = 0; i < op->iov_count; i++) {
		if (to && at + op->iov[i].iov_len <= size)
			memcpy(to + at, op->iov[i].iov_base,
			       op->iov[i].iov_len);
		at += op->iov[i].iov_len;
	}
	return at;
}

static ssize_t post_inject(struct sim_channel *fc,
			   const struct rp_channel_op *op)
{
	uint8_t bytes[INJECT];
	size_t len;

	if (op->iov_count == 1)
		return fi_inject(fc->ep, op->iov->iov_base, op->iov->iov_len,
				 FI_ADDR_UNSPEC);
	len = copy_op(op, bytes, sizeof(bytes));
	return len > sizeof(bytes)
		       ? -FI_EINVAL
		       : fi_inject(fc->ep, bytes, len, FI_ADDR_UNSPEC);
}

static ssize_t post_copied(struct sim_channel *fc, struct rp_channel_op *op)
{
	const size_t len = copy_op(op, NULL, 0);
	struct copied *b = malloc(sizeof(*b) + len);
	struct iovec iov;
	ssize_t ret;

	if (!b)
		return -FI_EAGAIN;
	b->op = op;
	iov.iov_base = b->bytes;
	iov.iov_len = copy_op(op, b->bytes, len);
	ret = fi_sendmsg(fc->ep,
			 &(struct fi_msg){
				 .msg_iov = &iov,
				 .iov_count = 1,
				 .context = (char *)b + CONTEXT_COPIED,
			 },
			 FI_COMPLETION);
	if (ret)
		free(b);
	return ret;
}

static ssize_t post_send(struct sim_channel *fc, struct rp_channel_op *op)
{
	const struct fi_msg m = {
		.msg_iov = op->iov,
		.iov_count = op->iov_count,
		.context = op,
	};

	if (op->iov_count > sim_rc(fc->c.rc)->iov_limit)
		return post_copied(fc, op);
	return fi_sendmsg(fc->ep, &m, FI_COMPLETION);
}

/*
 * Post a part of a WRITE or READ. Only the last part has a context and a
 * completion.
 */
static ssize_t post_part(struct sim_channel *fc, const struct rp_channel_op *op,
			 const struct iovec *iov, size_t count,
			 const struct fi_rma_iov *rma, void *context)
{
	const struct fi_msg_rma m = {
		.msg_iov = iov,
		.iov_count = count,
		.rma_iov = rma,
		.rma_iov_count = 1,
		.context = context,
	};
	uint64_t flags = context ? FI_COMPLETION : 0;

	if (op->kind == RP_CHANNEL_READ)
		return fi_readmsg(fc->ep, &m, flags);
	if (op->delivered && context)
		flags |= FI_DELIVERY_COMPLETE;
	return fi_writemsg(fc->ep, &m, flags);
}

static size_t iov_total(const struct iovec *iov, size_t count)
{
	size_t len = 0;

	while (count--)
		len += iov[count].iov_len;
	return len;
}

/*
 * Post an operation as several messages if it has more segments than the fabric
 * allows. The fabric executes them in order, so the completion of the last one
 * covers all. An error behind the first part ends the channel, because the
 * parts cannot be posted again.
 */
static ssize_t post_rma(struct sim_channel *fc, struct rp_channel_op *op)
{
	struct sim_rc *f = sim_rc(fc->c.rc);
	const struct iovec landing = {&f->landing, op->length};
	const struct iovec *iov = op->iov_count ? op->iov : &landing;
	size_t left = op->iov_count ? op->iov_count : 1;
	struct fi_rma_iov rma = {.addr = op->remote_addr, .key = op->rkey};
	ssize_t ret;

	if (!op->iov_count && op->length > sizeof(f->landing))
		return -FI_EINVAL;
	while (left > f->iov_limit) {
		rma.len = iov_total(iov, f->iov_limit);
		ret = post_part(fc, op, iov, f->iov_limit, &rma, NULL);
		if (ret)
			return iov == op->iov ? ret : -FI_EIO;
		iov += f->iov_limit;
		left -= f->iov_limit;
		rma.addr += rma.len;
	}
	rma.len = iov_total(iov, left);
	ret = post_part(fc, op, iov, left, &rma, op);
	return ret && iov != op->iov && op->iov_count ? -FI_EIO : ret;
}

/* Post a FLUSH, which is a read of no bytes with a flag. */
static ssize_t post_flush(struct sim_channel *fc, struct rp_channel_op *op)
{
	const struct fi_rma_iov rma = {
		.addr = op->remote_addr,
		.len = op->length,
		.key = op->rkey,
	};
	const struct fi_msg_rma m = {
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = op,
	};
	const uint64_t flag = sim_rc(fc->c.rc)->flush_flag;

	return flag ? fi_readmsg(fc->ep, &m, flag | FI_COMPLETION)
		    : -FI_EOPNOTSUPP;
}

static ssize_t post_one(struct sim_channel *fc, struct rp_channel_op *op)
{
	switch (op->kind) {
	case RP_CHANNEL_SEND:
		return op->inject ? post_inject(fc, op) : post_send(fc, op);
	case RP_CHANNEL_WRITE:
	case RP_CHANNEL_READ:
		return post_rma(fc, op);
	case RP_CHANNEL_FLUSH:
		return post_flush(fc, op);
	}
	return -FI_EINVAL;
}

static int sim_post(struct rp_channel *base, struct rp_channel_op *ops[], int n)
{
	struct rp_rc_channel *c = (struct rp_rc_channel *)base;
	struct sim_channel *fc = sim_channel(c);
	ssize_t ret = 0;
	int i;

	if (!fc->connected)
		return 0;
	for (i = 0; i < n && c->nposted < RP_RC_DEPTH; i++) {
		ret = post_one(fc, ops[i]);
		if (ret)
			break;
		if (!ops[i]->inject)
			rp_rc_add_posted(c, ops[i]);
	}
	if (!ret || ret == -FI_EAGAIN)
		return i;
	/* The failed operation counts as posted: rc.c fails it when c ends. */
	if (ops[i]->inject)
		rp_rc_end_channel(c, (int)-ret, NULL, 0);
	else
		rp_rc_fail_op(c, ops[i], (int)-ret);
	return i + 1;
}

/* --- receives --- */

static int post_recv(struct sim_recv *r)
{
	int ret = (int)fi_recv(r->channel->ep, r->buf, sizeof(r->buf), NULL,
			       FI_ADDR_UNSPEC, (char *)r + CONTEXT_RECV);

	if (!ret)
		r->channel->nrecvs++;
	return ret;
}

int sim_recvs_open(struct sim_channel *fc)
{
	int ret = 0;

	fc->recvs = calloc(SIM_RECVS, sizeof(*fc->recvs));
	if (!fc->recvs)
		return -FI_ENOMEM;
	for (int i = 0; i < SIM_RECVS && !ret; i++) {
		fc->recvs[i].channel = fc;
		ret = post_recv(&fc->recvs[i]);
	}
	return ret;
}

/*
 * Copy the message of r into the receive `to`, complete `to`, and post r again.
 * c stays valid, because no callback runs meanwhile.
 */
static void deliver_message(struct sim_rc *f, struct rp_rc_recv *to,
			    struct sim_recv *r)
{
	struct rp_rc_channel *c = &r->channel->c;
	int ret = 0;

	memcpy(to->buf, r->buf, r->len);
	rp_rc_complete_recv(&f->rc, c, to, r->len);
	if (!c->shut && c->state <= RP_RC_UP)
		ret = post_recv(r);
	if (ret)
		rp_rc_end_channel(c, -ret, NULL, 0);
}

static int sim_post_recv(struct rp_rc *rc, struct rp_rc_recv *to)
{
	struct sim_rc *f = sim_rc(rc);
	struct sim_recv *r = TAILQ_FIRST(&f->waiting);

	if (!r) {
		TAILQ_INSERT_TAIL(&f->pool, to, link);
		return 0;
	}
	TAILQ_REMOVE(&f->waiting, r, link);
	deliver_message(f, to, r);
	return 0;
}

static void end_recv(struct sim_rc *f, struct sim_recv *r, size_t len, int err)
{
	struct rp_rc_channel *c = &r->channel->c;
	struct rp_rc_recv *to = TAILQ_FIRST(&f->pool);

	r->channel->nrecvs--;
	if (err || len > sizeof(r->buf)) {
		/*
		 * An error of a connecting channel: a CM event will tell the
		 * cause.
		 */
		if (c->state == RP_RC_CONNECTING)
			f->rc.poll_now = true;
		else
			rp_rc_end_channel(c, ECONNRESET, NULL, 0);
		return;
	}
	r->len = len;
	if (!to) {
		TAILQ_INSERT_TAIL(&f->waiting, r, link);
		return;
	}
	TAILQ_REMOVE(&f->pool, to, link);
	deliver_message(f, to, r);
}

/* Free a channel's receives. The fabric has returned all of them. */
static void recvs_free(struct sim_rc *f, struct sim_channel *fc)
{
	struct sim_recv *r, *next;

	TAILQ_FOREACH_SAFE(r, &f->waiting, link, next)
	if (r->channel == fc)
		TAILQ_REMOVE(&f->waiting, r, link);
	free(fc->recvs);
	fc->recvs = NULL;
}

/* --- completions --- */

static void complete_recv(struct rp_rc *rc, void *context, size_t len, int err)
{
	const uintptr_t bits = (uintptr_t)context & CONTEXT_BITS;
	void *ptr = (char *)context - bits;

	if (bits == CONTEXT_RECV) {
		end_recv(sim_rc(rc), ptr, len, err);
	} else if (bits == CONTEXT_COPIED) {
		struct copied *b = ptr;

		rp_rc_complete_op(rc, b->op, err);
		free(b);
	} else if (context) {
		rp_rc_complete_op(rc, context, err);
	}
}

static bool complete_error(struct rp_rc *rc)
{
	struct fi_cq_err_entry e = {.err = 0};

	if (fi_cq_readerr(sim_rc(rc)->cq, &e, 0) != 1)
		return false;
	complete_recv(rc, e.op_context, 0, e.err > 0 ? e.err : EIO);
	return true;
}

static int sim_poll(struct rp_rc *rc, int max)
{
	struct fi_cq_msg_entry e[BATCH];
	ssize_t got;
	int n = 0;

	while (sim_rc(rc)->cq && n < max) {
		got = fi_cq_read(sim_rc(rc)->cq, e,
				 max - n < BATCH ? (size_t)(max - n) : BATCH);
		if (got == -FI_EAVAIL) {
			if (!complete_error(rc))
				break;
			n++;
			continue;
		}
		if (got <= 0)
			break;
		for (ssize_t i = 0; i < got; i++)
			complete_recv(rc, e[i].op_context, e[i].len, 0);
		n += (int)got;
		if (got < BATCH)
			break;
	}
	return n;
}

void sim_shut(struct rp_rc_channel *c)
{
	struct sim_channel *fc = sim_channel(c);

	if (fc->ep) {
		close_fid(&fc->ep->fid);
	}
	fc->ep = NULL;
	/*
	 * Closing the endpoint has completed all its operations and receives:
	 * read these completions.
	 */
	while ((c->nposted || fc->nrecvs) && sim_poll(c->rc, BATCH))
		;
	if (fc->nrecvs)
		rp_log(RP_LOG_WARN, "pmsim: %u receives did not come back",
		       fc->nrecvs);
	else
		recvs_free(sim_rc(c->rc), fc);
}

/* --- memory --- */

static int sim_reg(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
		   struct rp_rc_mr *mr)
{
	uint64_t may = 0, key;
	struct fid_mr *m;
	int ret = -FI_ENOKEY;

	if ((access & RP_RC_REMOTE_FLUSH) && !sim_rc(rc)->flush_flag)
		return -FI_EOPNOTSUPP;
	if (access & RP_RC_REMOTE_READ)
		may |= FI_REMOTE_READ;
	if (access & RP_RC_REMOTE_WRITE)
		may |= FI_REMOTE_WRITE;
	/* The fabric needs no registration for local access. */
	if (!may)
		return 0;
	for (int i = 0; i < KEY_TRIES && ret == -FI_ENOKEY; i++) {
		ret = rc->attr.random(rc->attr.arg, &key, sizeof(key));
		if (!ret)
			ret = fi_mr_reg(sim_rc(rc)->domain, buf, len, may, 0,
					key, 0, &m, NULL);
	}
	if (ret)
		return ret;
	/* Without FI_MR_VIRT_ADDR a region's addresses begin at 0. */
	*mr = (struct rp_rc_mr){.handle = m, .rkey = fi_mr_key(m)};
	return 0;
}

static void sim_dereg(struct rp_rc *rc, struct rp_rc_mr *mr)
{
	struct fid_mr *m = mr->handle;

	close_fid(&m->fid);
}

static int sim_trywait(struct rp_rc *rc)
{
	return -FI_EAGAIN;
}

const struct rp_rc_ops sim_rc_ops = {
	.rc_size = sizeof(struct sim_rc),
	.channel_size = sizeof(struct sim_channel),
	.open = sim_open,
	.close = sim_close,
	.listen = sim_listen,
	.connect = sim_connect,
	.accept = sim_accept,
	.reject = sim_reject,
	.post = sim_post,
	.shut = sim_shut,
	.post_recv = sim_post_recv,
	.reg = sim_reg,
	.dereg = sim_dereg,
	.poll = sim_poll,
	.poll_events = sim_poll_events,
	.trywait = sim_trywait,
};
