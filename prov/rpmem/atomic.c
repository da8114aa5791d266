// SPDX-License-Identifier: BSD-2-Clause
/* Atomics: the base executes them, tracked and committed as writes are. */
#include <stdlib.h>
#include <string.h>

#include "rpmem/rpmem.h"

/* The three kinds of calls in one form; what a kind has not is NULL and 0. */
struct call {
	const struct fi_msg_atomic *msg;
	uint64_t kind; /* 0, FI_FETCH_ATOMIC or FI_COMPARE_ATOMIC */
	const struct fi_ioc *cmp;
	void **cmp_desc;
	size_t ncmp;
	struct fi_ioc *res;
	void **res_desc;
	size_t nres;
};

/*
 * What a call takes with it: operands that the program may change at once
 * (FI_INJECT), and results that it may get only while nothing has been told:
 * a commit may fail before the base has answered.
 */
struct rp_carry {
	struct fi_ioc res[RP_SLOT_IOV]; /* the program's */
	size_t nres;
	size_t size; /* of one datum */
	struct fi_ioc own_msg, own_cmp, own_res;
	_Alignas(max_align_t) char bytes[];
};

static struct rp_ep *ep_of(struct fid_ep *fid)
{
	return rp_container_of(fid, struct rp_ep, fid);
}

/* Keys of the application's choice say nothing of the memory behind them. */
static inline uint64_t key_to_base(const struct rp_ep *ep, uint64_t key)
{
	return ep->dom->marked ? rp_key_base(key) : key;
}

static inline bool persistent(const struct rp_ep *ep, uint64_t key)
{
	return ep->dom->marked && rp_key_is_persistent(key);
}

static ssize_t base_call(struct rp_ep *ep, const struct call *c, uint64_t flags)
{
	switch (c->kind) {
	case FI_FETCH_ATOMIC:
		return fi_fetch_atomicmsg(ep->base, c->msg, c->res, c->res_desc,
					  c->nres, flags);
	case FI_COMPARE_ATOMIC:
		return fi_compare_atomicmsg(ep->base, c->msg, c->cmp,
					    c->cmp_desc, c->ncmp, c->res,
					    c->res_desc, c->nres, flags);
	default:
		return fi_atomicmsg(ep->base, c->msg, flags);
	}
}

/* As the base knows its addresses and keys. */
static ssize_t base_call_msg(struct rp_ep *ep, const struct call *call,
			     uint64_t flags, void *context)
{
	struct fi_rma_ioc rma[RP_SLOT_IOV];
	struct fi_msg_atomic m = *call->msg;
	struct call c = *call;

	for (size_t i = 0; i < m.rma_iov_count; i++) {
		rma[i] = m.rma_iov[i];
		rma[i].key = key_to_base(ep, rma[i].key);
	}
	m.rma_iov = rma;
	m.addr = rp_av_to_base(ep->av, m.addr);
	m.context = context;
	c.msg = &m;
	return base_call(ep, &c, flags);
}

static bool sums_to(const struct fi_ioc *iov, size_t n, size_t total)
{
	for (size_t i = 0; i < n; i++) {
		if (iov[i].count > total)
			return false;
		total -= iov[i].count;
	}
	return !total;
}

/*
 * ofi_rxm and sockets of libfabric 1.17 check next to nothing of this: an
 * operation that is none ends the target, and lists that do not match each
 * other make it read what was never sent.
 */
static int check(struct rp_ep *ep, const struct call *c, size_t *size,
		 size_t *total)
{
	const struct fi_tx_attr *tx = ep->dom->base_info->tx_attr;
	const struct fi_msg_atomic *m = c->msg;
	struct fi_atomic_attr attr = {0};
	size_t sum = 0;
	int ret;

	ret = fi_query_atomic(ep->dom->base, m->datatype, m->op, &attr,
			      c->kind);
	if (ret)
		return ret;
	if (m->iov_count > tx->iov_limit || c->ncmp > tx->iov_limit ||
	    c->nres > tx->iov_limit || m->rma_iov_count > tx->rma_iov_limit)
		return -FI_EINVAL;
	for (size_t i = 0; i < m->rma_iov_count; i++) {
		if (m->rma_iov[i].count > attr.count - sum)
			return -FI_EINVAL;
		sum += m->rma_iov[i].count;
	}
	if (!sums_to(m->msg_iov, m->iov_count, sum) ||
	    (c->kind && !sums_to(c->res, c->nres, sum)) ||
	    (c->kind == FI_COMPARE_ATOMIC && !sums_to(c->cmp, c->ncmp, sum)))
		return -FI_EINVAL;
	*size = attr.size;
	*total = sum;
	return 0;
}

static void gather(struct fi_ioc *to, const struct fi_ioc *from, size_t n,
		   size_t size)
{
	char *p = to->addr;

	for (size_t i = 0; i < n; i++) {
		memcpy(p, from[i].addr, from[i].count * size);
		p += from[i].count * size;
	}
}

/* Make the call use memory of ours where the program's may not be used. */
static int carry_make(struct call *c, struct fi_msg_atomic *m, size_t size,
		      size_t total, bool operands, bool results,
		      struct rp_carry **out)
{
	struct rp_carry *k = malloc(sizeof(*k) + 3 * size * total);

	if (!k)
		return -FI_ENOMEM;
	k->size = size;
	k->nres = results ? c->nres : 0;
	k->own_res = (struct fi_ioc){k->bytes, total};
	k->own_msg = (struct fi_ioc){k->bytes + size * total, total};
	k->own_cmp = (struct fi_ioc){k->bytes + 2 * size * total, total};
	if (results) {
		memcpy(k->res, c->res, c->nres * sizeof(*c->res));
		c->res = &k->own_res;
		c->res_desc = NULL;
		c->nres = 1;
	}
	if (operands) {
		gather(&k->own_msg, m->msg_iov, m->iov_count, size);
		m->msg_iov = &k->own_msg;
		m->iov_count = 1;
		m->desc = NULL;
	}
	if (operands && c->ncmp) {
		gather(&k->own_cmp, c->cmp, c->ncmp, size);
		c->cmp = &k->own_cmp;
		c->ncmp = 1;
		c->cmp_desc = NULL;
	}
	*out = k;
	return 0;
}

void rp_atomic_land(const struct rp_carry *k)
{
	const char *p = k->own_res.addr;

	for (size_t i = 0; i < k->nres; i++) {
		memcpy(k->res[i].addr, p, k->res[i].count * k->size);
		p += k->res[i].count * k->size;
	}
}

/*
 * One that changes persistent memory. The base alone executes it, with or
 * without a commit: so that all of them are atomic to each other.
 */
static ssize_t tracked(struct rp_ep *ep, const struct call *call,
		       uint64_t flags, bool want)
{
	struct fi_rma_iov ranges[RP_SLOT_IOV];
	struct fi_msg_atomic m = *call->msg;
	struct rp_track t = {
		.ranges = ranges,
		.nranges = m.rma_iov_count,
		.dest = m.addr,
		.commit = flags & FI_COMMIT_COMPLETE,
		.want = want,
		.context = m.context,
		.flags = FI_ATOMIC | (call->kind ? FI_READ : FI_WRITE),
	};
	bool results = t.commit && call->kind, inject = flags & FI_INJECT;
	struct rp_dom *dom = ep->dom;
	struct rp_carry *carry = NULL;
	struct call c = *call;
	size_t size = 0, total = 0;
	struct rp_slot *s;
	ssize_t ret;

	ret = check(ep, call, &size, &total);
	if (ret)
		return ret;
	for (size_t i = 0; i < m.rma_iov_count; i++)
		ranges[i] = (struct fi_rma_iov){
			.addr = m.rma_iov[i].addr,
			.len = m.rma_iov[i].count * size,
			.key = m.rma_iov[i].key,
		};
	c.msg = &m;
	if (inject && (c.ncmp ? 2 : 1) * size * total > ep->inject_size)
		return -FI_EINVAL;
	if (inject || results) {
		ret = carry_make(&c, &m, size, total, inject, results, &carry);
		if (ret)
			return ret;
	}
	pthread_mutex_lock(&dom->lock);
	ret = rp_track_begin(ep, &t, &s);
	if (ret) {
		free(carry);
		goto unlock;
	}
	s->atomic = true;
	s->buf = carry;
	for (unsigned int i = 0; i < s->nwrites; i++)
		rp_write_by_cpu(&s->write[i]);
	/* ofi_rxm 1.17 tells of no injected atomic that it has completed. */
	ret = base_call_msg(ep, &c, rp_track_flags(s, flags) & ~FI_INJECT, s);
	if (ret)
		rp_track_undo(s);
	else
		rp_track_posted(s);
unlock:
	if (ret == -FI_EAGAIN)
		rp_domain_progress(dom);
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

/* Does a read have to wait for a store behind a commit? */
static bool read_waits(struct rp_ep *ep, const struct call *c)
{
	const struct fi_msg_atomic *m = c->msg;
	struct fi_rma_iov ranges[RP_SLOT_IOV];
	struct fi_atomic_attr attr = {0};
	size_t n = 0;

	if (!atomic_load_explicit(&ep->stores, memory_order_relaxed))
		return false;
	/* What is none the base will say. */
	if (fi_query_atomic(ep->dom->base, m->datatype, m->op, &attr, c->kind))
		return false;
	for (size_t i = 0; i < m->rma_iov_count; i++)
		if (persistent(ep, m->rma_iov[i].key))
			ranges[n++] = (struct fi_rma_iov){
				.addr = m->rma_iov[i].addr,
				.len = m->rma_iov[i].count * attr.size,
				.key = m->rma_iov[i].key,
			};
	return n && rp_rma_meets_store(ep, m->addr, ranges, n);
}

/* Any in message form, flags complete. */
static ssize_t any(struct rp_ep *ep, const struct call *c, uint64_t flags,
		   bool want)
{
	const struct fi_msg_atomic *m = c->msg;

	if (m->rma_iov_count > RP_SLOT_IOV)
		return -FI_EINVAL;
	/* As a default flag it is of no matter to reads. */
	if (m->op == FI_ATOMIC_READ)
		flags &= ~FI_COMMIT_COMPLETE;
	if (flags & FI_COMMIT_COMPLETE) {
		if (!ep->dom->marked)
			return rp_rma_unmarked();
		if (flags & FI_REMOTE_CQ_DATA) {
			RP_WARN(EP_DATA, "FI_COMMIT_COMPLETE on an atomic with "
					 "remote CQ data is not offered\n");
			return -FI_EOPNOTSUPP;
		}
		return tracked(ep, c, flags, want);
	}
	for (size_t i = 0; i < m->rma_iov_count && m->op != FI_ATOMIC_READ; i++)
		if (persistent(ep, m->rma_iov[i].key))
			return tracked(ep, c, flags, want);
	if (read_waits(ep, c))
		return -FI_EAGAIN;
	return base_call_msg(ep, c, flags, m->context);
}

/* The program's call in message form. */
static ssize_t any_msg(struct rp_ep *ep, const struct call *c, uint64_t flags)
{
	if (flags & FI_RPMEM_SAVE)
		return -FI_EINVAL;
	if ((flags & FI_COMMIT_COMPLETE) && c->msg->op == FI_ATOMIC_READ) {
		RP_WARN(EP_DATA, "FI_COMMIT_COMPLETE on FI_ATOMIC_READ: it "
				 "writes nothing that could be committed\n");
		return -FI_EOPNOTSUPP;
	}
	for (size_t i = 0; ep->unasked && i < c->msg->rma_iov_count; i++)
		if (persistent(ep, c->msg->rma_iov[i].key))
			flags |= ep->unasked;
	return any(ep, c, flags, rp_ep_wants(ep, flags));
}

/* The forms without flags take the endpoint's. */
static ssize_t any_iov(struct rp_ep *ep, const struct call *c,
		       const struct fi_ioc *iov, void **desc, size_t count,
		       fi_addr_t dest, uint64_t addr, uint64_t key,
		       enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_rma_ioc rma = {.addr = addr, .key = key};
	struct call call = *c;
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

	for (size_t i = 0; i < count; i++)
		rma.count += iov[i].count;
	call.msg = &msg;
	return any(ep, &call, ep->op_flags | ep->unasked,
		   rp_ep_wants(ep, ep->op_flags));
}

/* Nothing for us to do but to translate. */
static inline bool plain(struct rp_ep *ep, uint64_t key, enum fi_op op)
{
	if (op == FI_ATOMIC_READ)
		return !persistent(ep, key) ||
		       !atomic_load_explicit(&ep->stores, memory_order_relaxed);
	return !persistent(ep, key) && !(ep->op_flags & FI_COMMIT_COMPLETE);
}

static ssize_t at_writev(struct fid_ep *fid, const struct fi_ioc *iov,
			 void **desc, size_t count, fi_addr_t dest,
			 uint64_t addr, uint64_t key, enum fi_datatype type,
			 enum fi_op op, void *context)
{
	struct rp_ep *ep = ep_of(fid);
	struct call c = {0};

	if (plain(ep, key, op))
		return fi_atomicv(ep->base, iov, desc, count,
				  rp_av_to_base(ep->av, dest), addr,
				  key_to_base(ep, key), type, op, context);
	return any_iov(ep, &c, iov, desc, count, dest, addr, key, type, op,
		       context);
}

static ssize_t at_write(struct fid_ep *fid, const void *buf, size_t count,
			void *desc, fi_addr_t dest, uint64_t addr, uint64_t key,
			enum fi_datatype type, enum fi_op op, void *context)
{
	const struct fi_ioc iov = {.addr = (void *)buf, .count = count};
	struct rp_ep *ep = ep_of(fid);

	if (plain(ep, key, op))
		return fi_atomic(ep->base, buf, count, desc,
				 rp_av_to_base(ep->av, dest), addr,
				 key_to_base(ep, key), type, op, context);
	return at_writev(fid, &iov, &desc, 1, dest, addr, key, type, op,
			 context);
}

static ssize_t at_writemsg(struct fid_ep *fid, const struct fi_msg_atomic *msg,
			   uint64_t flags)
{
	const struct call c = {.msg = msg};

	return any_msg(ep_of(fid), &c, flags);
}

static ssize_t at_inject(struct fid_ep *fid, const void *buf, size_t count,
			 fi_addr_t dest, uint64_t addr, uint64_t key,
			 enum fi_datatype type, enum fi_op op)
{
	const struct fi_ioc iov = {.addr = (void *)buf, .count = count};
	const struct fi_rma_ioc rma = {addr, count, key};
	const struct fi_msg_atomic msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = dest,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.datatype = type,
		.op = op,
	};
	const struct call c = {.msg = &msg};
	struct rp_ep *ep = ep_of(fid);

	/* It has no completion to make durable, so the default is no matter. */
	if (!persistent(ep, key))
		return fi_inject_atomic(ep->base, buf, count,
					rp_av_to_base(ep->av, dest), addr,
					key_to_base(ep, key), type, op);
	return any(ep, &c, FI_INJECT, false);
}

static ssize_t at_readwritev(struct fid_ep *fid, const struct fi_ioc *iov,
			     void **desc, size_t count, struct fi_ioc *resultv,
			     void **result_desc, size_t nresult, fi_addr_t dest,
			     uint64_t addr, uint64_t key, enum fi_datatype type,
			     enum fi_op op, void *context)
{
	struct rp_ep *ep = ep_of(fid);
	struct call c = {
		.kind = FI_FETCH_ATOMIC,
		.res = resultv,
		.res_desc = result_desc,
		.nres = nresult,
	};

	if (plain(ep, key, op))
		return fi_fetch_atomicv(
			ep->base, iov, desc, count, resultv, result_desc,
			nresult, rp_av_to_base(ep->av, dest), addr,
			key_to_base(ep, key), type, op, context);
	return any_iov(ep, &c, iov, desc, count, dest, addr, key, type, op,
		       context);
}

static ssize_t at_readwrite(struct fid_ep *fid, const void *buf, size_t count,
			    void *desc, void *result, void *result_desc,
			    fi_addr_t dest, uint64_t addr, uint64_t key,
			    enum fi_datatype type, enum fi_op op, void *context)
{
	const struct fi_ioc iov = {.addr = (void *)buf, .count = count};
	struct fi_ioc res = {.addr = result, .count = count};
	struct rp_ep *ep = ep_of(fid);

	if (plain(ep, key, op))
		return fi_fetch_atomic(ep->base, buf, count, desc, result,
				       result_desc, rp_av_to_base(ep->av, dest),
				       addr, key_to_base(ep, key), type, op,
				       context);
	return at_readwritev(fid, &iov, &desc, 1, &res, &result_desc, 1, dest,
			     addr, key, type, op, context);
}

static ssize_t at_readwritemsg(struct fid_ep *fid,
			       const struct fi_msg_atomic *msg,
			       struct fi_ioc *resultv, void **result_desc,
			       size_t nresult, uint64_t flags)
{
	const struct call c = {
		.msg = msg,
		.kind = FI_FETCH_ATOMIC,
		.res = resultv,
		.res_desc = result_desc,
		.nres = nresult,
	};

	return any_msg(ep_of(fid), &c, flags);
}

static ssize_t at_compwritev(struct fid_ep *fid, const struct fi_ioc *iov,
			     void **desc, size_t count,
			     const struct fi_ioc *comparev, void **compare_desc,
			     size_t ncompare, struct fi_ioc *resultv,
			     void **result_desc, size_t nresult, fi_addr_t dest,
			     uint64_t addr, uint64_t key, enum fi_datatype type,
			     enum fi_op op, void *context)
{
	struct rp_ep *ep = ep_of(fid);
	struct call c = {
		.kind = FI_COMPARE_ATOMIC,
		.cmp = comparev,
		.cmp_desc = compare_desc,
		.ncmp = ncompare,
		.res = resultv,
		.res_desc = result_desc,
		.nres = nresult,
	};

	if (plain(ep, key, op))
		return fi_compare_atomicv(
			ep->base, iov, desc, count, comparev, compare_desc,
			ncompare, resultv, result_desc, nresult,
			rp_av_to_base(ep->av, dest), addr, key_to_base(ep, key),
			type, op, context);
	return any_iov(ep, &c, iov, desc, count, dest, addr, key, type, op,
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
	struct rp_ep *ep = ep_of(fid);

	if (plain(ep, key, op))
		return fi_compare_atomic(
			ep->base, buf, count, desc, compare, compare_desc,
			result, result_desc, rp_av_to_base(ep->av, dest), addr,
			key_to_base(ep, key), type, op, context);
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
	const struct call c = {
		.msg = msg,
		.kind = FI_COMPARE_ATOMIC,
		.cmp = comparev,
		.cmp_desc = compare_desc,
		.ncmp = ncompare,
		.res = resultv,
		.res_desc = result_desc,
		.nres = nresult,
	};

	return any_msg(ep_of(fid), &c, flags);
}

static int at_writevalid(struct fid_ep *fid, enum fi_datatype type,
			 enum fi_op op, size_t *count)
{
	return fi_atomicvalid(ep_of(fid)->base, type, op, count);
}

static int at_readwritevalid(struct fid_ep *fid, enum fi_datatype type,
			     enum fi_op op, size_t *count)
{
	return fi_fetch_atomicvalid(ep_of(fid)->base, type, op, count);
}

static int at_compwritevalid(struct fid_ep *fid, enum fi_datatype type,
			     enum fi_op op, size_t *count)
{
	return fi_compare_atomicvalid(ep_of(fid)->base, type, op, count);
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
