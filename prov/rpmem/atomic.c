// SPDX-License-Identifier: BSD-2-Clause
/* Atomics: the agent executes those on persistent memory, the base others. */
#include <string.h>

#include "core/atomic.h"
#include "rpmem/rpmem.h"

struct pieces {
	struct fi_ioc *iov;
	void **desc;
	size_t n;
};

/* Arguments of a plain, fetching or compare atomic; NULL and 0: unused. */
struct atomic {
	const struct fi_msg_atomic *msg;
	uint64_t kind; /* 0, FI_FETCH_ATOMIC or FI_COMPARE_ATOMIC */
	struct pieces res, cmp;
	bool inject; /* fi_inject_atomic() */
};

static ssize_t post_to_base(struct rp_ep *ep, const struct atomic *c,
			    uint64_t flags)
{
	switch (c->kind) {
	case FI_FETCH_ATOMIC:
		return fi_fetch_atomicmsg(ep->base, c->msg, c->res.iov,
					  c->res.desc, c->res.n, flags);
	case FI_COMPARE_ATOMIC:
		return fi_compare_atomicmsg(ep->base, c->msg, c->cmp.iov,
					    c->cmp.desc, c->cmp.n, c->res.iov,
					    c->res.desc, c->res.n, flags);
	default:
		return fi_atomicmsg(ep->base, c->msg, flags);
	}
}

static size_t count_elements(const struct fi_ioc *iov, size_t n)
{
	size_t total = 0;

	for (size_t i = 0; i < n; i++)
		total += iov[i].count;
	return total;
}

/* Most operand bytes in a REQUEST message with one range. */
#define MAX_OPERANDS                                                           \
	(RP_WIRE_MAX_MSG - RP_WIRE_STORE_LEN(1, 0) - 2 * sizeof(uint64_t))

int rp_atomic_query(const struct rp_dom *dom, enum fi_datatype type,
		    enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags)
{
	size_t size, most = MAX_OPERANDS;
	int ret = fi_query_atomic(dom->base, type, op, attr, flags);

	if (ret || !dom->makes_keys)
		return ret;
	if (!rp_atomic_valid(op, type, &size) || size != attr->size)
		return -FI_EOPNOTSUPP;
	if (flags & FI_COMPARE_ATOMIC)
		most /= 2;
	if (most > RP_WIRE_MAX_STORE)
		most = RP_WIRE_MAX_STORE;
	if (attr->count > most / size)
		attr->count = most / size;
	return 0;
}

static int check_atomic(struct rp_ep *ep, const struct atomic *c, size_t *size,
			size_t *total)
{
	const struct fi_msg_atomic *m = c->msg;
	struct fi_atomic_attr attr = {0};
	size_t n = 0;
	int ret = rp_atomic_query(ep->dom, m->datatype, m->op, &attr, c->kind);

	if (ret)
		return ret;
	if (!m->rma_iov_count || m->rma_iov_count > RP_CHANNEL_IOV ||
	    c->res.n > RP_CHANNEL_IOV)
		return -FI_EINVAL;
	for (size_t i = 0; i < m->rma_iov_count; i++) {
		if (m->rma_iov[i].count > attr.count - n)
			return -FI_EINVAL;
		n += m->rma_iov[i].count;
	}
	if ((m->op != FI_ATOMIC_READ &&
	     count_elements(m->msg_iov, m->iov_count) != n) ||
	    (c->kind && count_elements(c->res.iov, c->res.n) != n) ||
	    (c->kind == FI_COMPARE_ATOMIC &&
	     count_elements(c->cmp.iov, c->cmp.n) != n))
		return -FI_EINVAL;
	*size = attr.size;
	*total = n;
	return 0;
}

/* Return the address of a single piece; copy several pieces to buf. */
static const void *gather_operand(uint8_t *buf, const struct fi_ioc *from,
				  size_t n, size_t size)
{
	uint8_t *to = buf;

	if (n == 1)
		return from->addr;
	for (size_t i = 0; i < n; i++) {
		memcpy(to, from[i].addr, from[i].count * size);
		to += from[i].count * size;
	}
	return buf;
}

static void fill_task(struct rp_task *t, const struct atomic *c, size_t size)
{
	const struct fi_msg_atomic *m = c->msg;

	for (size_t i = 0; i < m->rma_iov_count; i++)
		t->ranges[i] = (struct rp_wire_range){
			.key = m->rma_iov[i].key,
			.addr = m->rma_iov[i].addr,
			.len = m->rma_iov[i].count * size,
		};
	/* op.iov, otherwise unused, holds the results' scatter list. */
	for (size_t i = 0; i < c->res.n; i++)
		t->op.iov[i] = (struct iovec){
			.iov_base = c->res.iov[i].addr,
			.iov_len = c->res.iov[i].count * size,
		};
	t->op.kind = RP_OP_ATOMIC;
	t->op.ranges = t->ranges;
	t->op.nranges = m->rma_iov_count;
	t->op.atomic.op = m->op;
	t->op.atomic.datatype = m->datatype;
	t->op.atomic.fetch = c->kind;
	t->op.result = t->op.iov;
	t->op.result_count = c->res.n;
	t->context = m->context;
	/* Count fetching atomics as reads, as bases do. */
	t->kind = c->kind ? RP_CNTR_READ : RP_CNTR_WRITE;
	t->flags = FI_ATOMIC | (c->kind ? FI_READ : FI_WRITE);
}

/* Post an atomic on persistent memory. */
static ssize_t post_persistent(struct rp_ep *ep, const struct atomic *c,
			       uint64_t flags, bool want)
{
	uint8_t operand[RP_WIRE_MAX_STORE], compare[RP_WIRE_MAX_STORE];
	const struct fi_msg_atomic *m = c->msg;
	struct rp_session *s;
	struct rp_task *t;
	size_t size = 0, total = 0;
	ssize_t ret = check_atomic(ep, c, &size, &total);

	if (ret)
		return ret;
	if ((flags & FI_INJECT) &&
	    (c->cmp.n ? 2 : 1) * size * total > ep->inject_size)
		return -FI_EINVAL;
	pthread_mutex_lock(&ep->dom->lock);
	ret = rp_task_open(ep, m->addr, m->rma_iov[0].key, flags, &t, &s);
	if (ret)
		goto unlock;
	fill_task(t, c, size);
	t->wants_entry = want;
	t->op.level = flags & FI_COMMIT_COMPLETE ? RP_LEVEL_DURABLE
						 : RP_LEVEL_VISIBLE;
	if (m->op != FI_ATOMIC_READ)
		t->op.atomic.operand =
			gather_operand(operand, m->msg_iov, m->iov_count, size);
	if (c->cmp.n)
		t->op.atomic.compare =
			gather_operand(compare, c->cmp.iov, c->cmp.n, size);
	ret = rp_task_post(t, s);
unlock:
	pthread_mutex_unlock(&ep->dom->lock);
	return ret;
}

/* Post an atomic to the agent or the base; flags include the defaults. */
static ssize_t post_atomic(struct rp_ep *ep, const struct atomic *c,
			   uint64_t flags, bool want)
{
	const struct fi_msg_atomic *m = c->msg;
	size_t n = 0;
	int ret = 0;

	/* FI_ATOMIC_READ ignores FI_COMMIT_COMPLETE as a default flag. */
	if (m->op == FI_ATOMIC_READ)
		flags &= ~FI_COMMIT_COMPLETE;
	for (size_t i = 0; i < m->rma_iov_count; i++)
		n += rp_ep_persistent(ep, m->rma_iov[i].key);
	if (n && n < m->rma_iov_count)
		return -FI_EINVAL;
	if (n && (flags & FI_REMOTE_CQ_DATA)) {
		RP_WARN(EP_DATA, "an atomic on persistent memory with remote "
				 "CQ data is not offered\n");
		return -FI_EOPNOTSUPP;
	}
	if (n)
		return post_persistent(ep, c, flags, want);
	if (flags & FI_COMMIT_COMPLETE)
		return rp_rma_refuse_ordinary_key();
	if ((flags & FI_FENCE) || !ep->forward_below)
		ret = rp_ep_check_order(&ep->fid, m->addr);
	return ret ? ret : post_to_base(ep, c, flags);
}

/* Post fi_atomicmsg(), fi_fetch_atomicmsg() or fi_compare_atomicmsg(). */
static ssize_t post_msg(struct rp_ep *ep, const struct atomic *c,
			uint64_t flags)
{
	if ((flags & FI_COMMIT_COMPLETE) && c->msg->op == FI_ATOMIC_READ) {
		RP_WARN(EP_DATA, "FI_COMMIT_COMPLETE on FI_ATOMIC_READ: it "
				 "writes nothing that could be committed\n");
		return -FI_EOPNOTSUPP;
	}
	if (c->msg->rma_iov_count &&
	    rp_ep_persistent(ep, c->msg->rma_iov[0].key))
		flags |= ep->implicit_flags;
	return post_atomic(ep, c, flags, rp_ep_wants_cqe(ep, flags));
}

/*
 * Post a call without a flags argument, with the endpoint's flags. Without a
 * completion the default FI_COMMIT_COMPLETE does not apply.
 */
static ssize_t post_iov(struct rp_ep *ep, const struct atomic *c,
			const struct fi_ioc *iov, void **desc, size_t count,
			fi_addr_t dest, uint64_t addr, uint64_t key,
			enum fi_datatype type, enum fi_op op, void *context)
{
	const struct fi_rma_ioc rma = {addr, count_elements(iov, count), key};
	struct atomic call = *c;
	const struct fi_msg_atomic msg = {
		.msg_iov = iov,
		.desc = desc,
		.iov_count = count,
		.addr = dest,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.datatype = type,
		.op = op,
		.context = context,
	};
	uint64_t flags = rp_ep_flags(ep);

	call.msg = &msg;
	if (c->inject)
		return post_atomic(ep, &call, FI_INJECT, false);
	if (rp_ep_persistent(ep, key))
		flags |= ep->implicit_flags;
	return post_atomic(ep, &call, flags, rp_ep_wants_cqe(ep, ep->op_flags));
}

static ssize_t at_writev(struct fid_ep *fid, const struct fi_ioc *iov,
			 void **desc, size_t count, fi_addr_t dest,
			 uint64_t addr, uint64_t key, enum fi_datatype type,
			 enum fi_op op, void *context)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);
	struct atomic c = {0};

	if (rp_ep_forwards(ep, key))
		return fi_atomicv(ep->base, iov, desc, count, dest, addr, key,
				  type, op, context);
	return post_iov(ep, &c, iov, desc, count, dest, addr, key, type, op,
			context);
}

static ssize_t at_write(struct fid_ep *fid, const void *buf, size_t count,
			void *desc, fi_addr_t dest, uint64_t addr, uint64_t key,
			enum fi_datatype type, enum fi_op op, void *context)
{
	const struct fi_ioc iov = {.addr = (void *)buf, .count = count};

	return at_writev(fid, &iov, &desc, 1, dest, addr, key, type, op,
			 context);
}

static ssize_t at_writemsg(struct fid_ep *fid, const struct fi_msg_atomic *msg,
			   uint64_t flags)
{
	const struct atomic c = {.msg = msg};

	return post_msg(rp_ep_of(&fid->fid), &c, flags);
}

static ssize_t at_inject(struct fid_ep *fid, const void *buf, size_t count,
			 fi_addr_t dest, uint64_t addr, uint64_t key,
			 enum fi_datatype type, enum fi_op op)
{
	const struct fi_ioc iov = {.addr = (void *)buf, .count = count};
	const struct atomic c = {.inject = true};
	struct rp_ep *ep = rp_ep_of(&fid->fid);
	int ret;

	if (rp_ep_persistent(ep, key))
		return post_iov(ep, &c, &iov, NULL, 1, dest, addr, key, type,
				op, NULL);
	ret = ep->forward_below ? 0 : rp_ep_check_order(fid, dest);
	return ret ? ret
		   : fi_inject_atomic(ep->base, buf, count, dest, addr, key,
				      type, op);
}

static ssize_t at_readwritev(struct fid_ep *fid, const struct fi_ioc *iov,
			     void **desc, size_t count, struct fi_ioc *resultv,
			     void **result_desc, size_t nresult, fi_addr_t dest,
			     uint64_t addr, uint64_t key, enum fi_datatype type,
			     enum fi_op op, void *context)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);
	const struct atomic c = {
		.kind = FI_FETCH_ATOMIC,
		.res = {resultv, result_desc, nresult},
	};

	if (rp_ep_forwards(ep, key))
		return fi_fetch_atomicv(ep->base, iov, desc, count, resultv,
					result_desc, nresult, dest, addr, key,
					type, op, context);
	return post_iov(ep, &c, iov, desc, count, dest, addr, key, type, op,
			context);
}

static ssize_t at_readwrite(struct fid_ep *fid, const void *buf, size_t count,
			    void *desc, void *result, void *result_desc,
			    fi_addr_t dest, uint64_t addr, uint64_t key,
			    enum fi_datatype type, enum fi_op op, void *context)
{
	const struct fi_ioc iov = {.addr = (void *)buf, .count = count};
	struct fi_ioc res = {.addr = result, .count = count};

	return at_readwritev(fid, &iov, &desc, 1, &res, &result_desc, 1, dest,
			     addr, key, type, op, context);
}

static ssize_t at_readwritemsg(struct fid_ep *fid,
			       const struct fi_msg_atomic *msg,
			       struct fi_ioc *resultv, void **result_desc,
			       size_t nresult, uint64_t flags)
{
	const struct atomic c = {
		.msg = msg,
		.kind = FI_FETCH_ATOMIC,
		.res = {resultv, result_desc, nresult},
	};

	return post_msg(rp_ep_of(&fid->fid), &c, flags);
}

static ssize_t at_compwritev(struct fid_ep *fid, const struct fi_ioc *iov,
			     void **desc, size_t count,
			     const struct fi_ioc *comparev, void **compare_desc,
			     size_t ncompare, struct fi_ioc *resultv,
			     void **result_desc, size_t nresult, fi_addr_t dest,
			     uint64_t addr, uint64_t key, enum fi_datatype type,
			     enum fi_op op, void *context)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);
	const struct atomic c = {
		.kind = FI_COMPARE_ATOMIC,
		.cmp = {(struct fi_ioc *)comparev, compare_desc, ncompare},
		.res = {resultv, result_desc, nresult},
	};

	if (rp_ep_forwards(ep, key))
		return fi_compare_atomicv(ep->base, iov, desc, count, comparev,
					  compare_desc, ncompare, resultv,
					  result_desc, nresult, dest, addr, key,
					  type, op, context);
	return post_iov(ep, &c, iov, desc, count, dest, addr, key, type, op,
			context);
}

static ssize_t at_compwrite(struct fid_ep *fid, const void *buf, size_t count,
			    void *desc, const void *compare, void *compare_desc,
			    void *result, void *result_desc, fi_addr_t dest,
			    uint64_t addr, uint64_t key, enum fi_datatype type,
			    enum fi_op op, void *context)
{
	const struct fi_ioc iov = {.addr = (void *)buf, .count = count};
	const struct fi_ioc cmp = {.addr = (void *)compare, .count = count};
	struct fi_ioc res = {.addr = result, .count = count};

	return at_compwritev(fid, &iov, &desc, 1, &cmp, &compare_desc, 1, &res,
			     &result_desc, 1, dest, addr, key, type, op,
			     context);
}

static ssize_t at_compwritemsg(struct fid_ep *fid,
			       const struct fi_msg_atomic *msg,
			       const struct fi_ioc *comparev,
			       void **compare_desc, size_t ncompare,
			       struct fi_ioc *resultv, void **result_desc,
			       size_t nresult, uint64_t flags)
{
	const struct atomic c = {
		.msg = msg,
		.kind = FI_COMPARE_ATOMIC,
		.cmp = {(struct fi_ioc *)comparev, compare_desc, ncompare},
		.res = {resultv, result_desc, nresult},
	};

	return post_msg(rp_ep_of(&fid->fid), &c, flags);
}

/* Limit *count, which the base returns, to what the agent has. */
static int limit_count(struct fid_ep *fid, enum fi_datatype type, enum fi_op op,
		       uint64_t kind, size_t *count,
		       int (*valid)(struct fid_ep *ep, enum fi_datatype type,
				    enum fi_op op, size_t *count))
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);
	struct fi_atomic_attr attr = {0};
	int ret = valid(ep->base, type, op, count);

	if (ret || !ep->dom->makes_keys)
		return ret;
	ret = rp_atomic_query(ep->dom, type, op, &attr, kind);
	if (!ret && count && *count > attr.count)
		*count = attr.count;
	return ret;
}

static int at_writevalid(struct fid_ep *fid, enum fi_datatype type,
			 enum fi_op op, size_t *count)
{
	return limit_count(fid, type, op, 0, count, fi_atomicvalid);
}

static int at_readwritevalid(struct fid_ep *fid, enum fi_datatype type,
			     enum fi_op op, size_t *count)
{
	return limit_count(fid, type, op, FI_FETCH_ATOMIC, count,
			   fi_fetch_atomicvalid);
}

static int at_compwritevalid(struct fid_ep *fid, enum fi_datatype type,
			     enum fi_op op, size_t *count)
{
	return limit_count(fid, type, op, FI_COMPARE_ATOMIC, count,
			   fi_compare_atomicvalid);
}

struct fi_ops_atomic rp_atomic_ops = {
	.size = sizeof(struct fi_ops_atomic),
	.write = at_write,
	.writev = at_writev,
	.writemsg = at_writemsg,
	.inject = at_inject,
	.readwrite = at_readwrite,
	.readwritev = at_readwritev,
	.readwritemsg = at_readwritemsg,
	.compwrite = at_compwrite,
	.compwritev = at_compwritev,
	.compwritemsg = at_compwritemsg,
	.writevalid = at_writevalid,
	.readwritevalid = at_readwritevalid,
	.compwritevalid = at_compwritevalid,
};
