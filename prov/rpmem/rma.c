// SPDX-License-Identifier: BSD-2-Clause
/* RMA: operations on persistent keys go to a session, others to the base. */
#include <stdlib.h>

#include "rpmem/rpmem.h"

int rp_rma_refuse_ordinary_key(void)
{
	RP_WARN(EP_DATA, "FI_COMMIT_COMPLETE needs the key of a persistent "
			 "region: put FI_RMA_PMEM into the caps and "
			 "FI_MR_PROV_KEY into the mr_mode of the hints, on "
			 "both sides, and register the memory with "
			 "FI_RMA_PMEM\n");
	return -FI_EKEYREJECTED;
}

/* --- posting to a session --- */

/* Are the keys persistent? 1: all; 0: none; -FI_EINVAL: only some. */
static int classify_keys(const struct rp_ep *ep, const struct fi_msg_rma *msg)
{
	size_t n = 0;

	for (size_t i = 0; i < msg->rma_iov_count; i++)
		n += rp_ep_persistent(ep, msg->rma_iov[i].key);
	if (n && n < msg->rma_iov_count) {
		RP_WARN(EP_DATA, "one operation names persistent regions and "
				 "others: use one operation for each kind\n");
		return -FI_EINVAL;
	}
	return n > 0;
}

static bool fill_local(const struct rp_ep *ep, const struct fi_msg_rma *msg,
		       uint64_t flags, struct rp_op *op)
{
	size_t len = 0;

	if (msg->iov_count > RP_CHANNEL_IOV ||
	    msg->rma_iov_count > RP_CHANNEL_IOV)
		return false;
	for (size_t i = 0; i < msg->iov_count; i++) {
		op->iov[i] = msg->msg_iov[i];
		len += op->iov[i].iov_len;
	}
	op->iov_count = msg->iov_count;
	op->inject = flags & FI_INJECT;
	return !op->inject || len <= ep->inject_size;
}

static struct rp_wire_range wire_range(const struct fi_rma_iov *r)
{
	return (struct rp_wire_range){
		.key = r->key,
		.addr = r->addr,
		.len = r->len,
	};
}

static uint8_t level_of_flags(uint64_t flags)
{
	if (flags & FI_COMMIT_COMPLETE)
		return RP_LEVEL_DURABLE;
	return flags & (FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA)
		       ? RP_LEVEL_VISIBLE
		       : 0;
}

/* With dom->lock: get a task, and set what writes and reads share. */
static inline int begin_operation(struct rp_ep *ep,
				  const struct fi_msg_rma *msg, uint64_t flags,
				  bool want, struct rp_task **out,
				  struct rp_session **s)
{
	struct rp_task *t;
	int ret =
		rp_task_open(ep, msg->addr, msg->rma_iov[0].key, flags, &t, s);

	if (ret)
		return ret;
	if (!fill_local(ep, msg, flags, &t->op)) {
		rp_task_put(ep->dom, t);
		return -FI_EINVAL;
	}
	t->op.ranges = t->ranges;
	for (size_t i = 0; i < msg->rma_iov_count; i++)
		if (msg->rma_iov[i].len)
			t->ranges[t->op.nranges++] =
				wire_range(&msg->rma_iov[i]);
	t->context = msg->context;
	t->wants_entry = want;
	*out = t;
	return 0;
}

/* With dom->lock: post the task, or complete it if it has no ranges or data. */
static ssize_t end_operation(struct rp_task *t, struct rp_session *s)
{
	const struct rp_outcome ok = {.status = RP_ST_OK};

	if (t->op.nranges || t->op.effect)
		return rp_task_post(t, s);
	if (rp_iov_len(t->op.iov, t->op.iov_count)) {
		rp_task_put(t->ep->dom, t);
		return -FI_EINVAL;
	}
	rp_task_done(&t->op, &ok);
	return 0;
}

static ssize_t post_write(struct rp_ep *ep, const struct fi_msg_rma *msg,
			  uint64_t flags, bool want)
{
	struct rp_session *s;
	struct rp_task *t = NULL;
	ssize_t ret;

	pthread_mutex_lock(&ep->dom->lock);
	ret = begin_operation(ep, msg, flags, want, &t, &s);
	if (ret)
		goto unlock;
	t->op.kind = RP_OP_WRITE;
	t->kind = RP_CNTR_WRITE;
	t->flags = FI_RMA | FI_WRITE;
	t->op.level = level_of_flags(flags);
	if (flags & FI_REMOTE_CQ_DATA) {
		t->op.effect = RP_EFFECT_NOTIFY;
		t->op.data = msg->data;
		t->op.endpoint = rp_private_peer_port(ep);
	}
	ret = end_operation(t, s);
unlock:
	pthread_mutex_unlock(&ep->dom->lock);
	return ret;
}

ssize_t rp_rma_read(struct rp_ep *ep, const struct fi_msg_rma *msg,
		    uint64_t flags, rp_op_fn done, void *extra)
{
	struct rp_session *s;
	struct rp_task *t = NULL;
	ssize_t ret = begin_operation(ep, msg, flags,
				      rp_ep_wants_cqe(ep, flags), &t, &s);

	if (ret) {
		free(extra);
		return ret;
	}
	t->extra = extra;
	t->op.kind = RP_OP_READ;
	t->op.done = done;
	t->kind = RP_CNTR_READ;
	t->flags = FI_RMA | FI_READ;
	return end_operation(t, s);
}

ssize_t rp_rma_post_ranges(struct rp_ep *ep, const struct fi_rpmem_msg *msg,
			   enum rp_level level, enum rp_class required,
			   enum rp_op_kind kind)
{
	const size_t count = msg->rma_iov_count;
	struct rp_wire_range *many = NULL, *to;
	struct rp_session *s;
	struct rp_task *t;
	ssize_t ret;

	if ((msg->then && level != RP_LEVEL_DURABLE) ||
	    (kind == RP_OP_WRITE && (msg->then || count > RP_CHANNEL_IOV)))
		return -FI_EINVAL;
	if (!rp_ep_persistent(ep, msg->rma_iov[0].key))
		return rp_rma_refuse_ordinary_key();
	if (count > RP_CHANNEL_IOV) {
		many = malloc(count * sizeof(*many));
		if (!many)
			return -FI_ENOMEM;
	}
	pthread_mutex_lock(&ep->dom->lock);
	ret = rp_task_open(ep, msg->addr, msg->rma_iov[0].key, 0, &t, &s);
	if (ret) {
		free(many);
		goto unlock;
	}
	to = many ? many : t->ranges;
	for (size_t i = 0; i < count; i++)
		to[i] = wire_range(&msg->rma_iov[i]);
	t->op.kind = kind;
	t->op.zero = kind == RP_OP_WRITE;
	t->op.level = level;
	t->op.required = required;
	t->op.ranges = to;
	t->op.nranges = count;
	t->extra = many; /* many is freed with the task */
	if (msg->then) {
		t->op.effect = RP_EFFECT_THEN;
		t->op.then = (struct rp_wire_then){
			.key = msg->then->key,
			.addr = msg->then->addr,
			.value = msg->then->value,
		};
	}
	t->kind = RP_CNTR_WRITE;
	t->flags = FI_RMA | FI_WRITE;
	t->wants_entry = true;
	t->context = msg->context;
	ret = rp_task_post(t, s);
unlock:
	pthread_mutex_unlock(&ep->dom->lock);
	return ret;
}

/* --- writes --- */

/* Post a write; implicit_flags are added to flags for persistent keys. */
static ssize_t write_any(struct rp_ep *ep, const struct fi_msg_rma *msg,
			 uint64_t flags, uint64_t implicit_flags, bool want)
{
	int ret = classify_keys(ep, msg);

	if (ret < 0)
		return ret;
	if (ret)
		return post_write(ep, msg, flags | implicit_flags, want);
	if (flags & FI_COMMIT_COMPLETE)
		return rp_rma_refuse_ordinary_key();
	if ((flags & FI_FENCE) || !ep->forward_below)
		ret = rp_ep_check_order(&ep->fid, msg->addr);
	return ret ? ret : fi_writemsg(ep->base, msg, flags);
}

static ssize_t rma_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			    uint64_t flags)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);

	return write_any(ep, msg, flags, ep->implicit_flags,
			 rp_ep_wants_cqe(ep, flags));
}

/*
 * Post a call without flags argument: flags are the endpoint's or FI_INJECT.
 * fi_inject_write() has no completion: its implicit_flags are 0.
 */
static ssize_t write_iov(struct rp_ep *ep, const struct iovec *iov, void **desc,
			 size_t count, uint64_t data, fi_addr_t dest,
			 uint64_t addr, uint64_t key, void *context,
			 uint64_t flags, uint64_t implicit_flags, bool want)
{
	struct fi_rma_iov rma = {.addr = addr, .key = key};
	struct fi_msg_rma msg = {
		.msg_iov = iov,
		.desc = desc,
		.iov_count = count,
		.addr = dest,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = context,
		.data = data,
	};

	for (size_t i = 0; i < count; i++)
		rma.len += iov[i].iov_len;
	return write_any(ep, &msg, flags, implicit_flags, want);
}

static ssize_t rma_writev(struct fid_ep *fid, const struct iovec *iov,
			  void **desc, size_t count, fi_addr_t dest,
			  uint64_t addr, uint64_t key, void *context)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);

	if (rp_ep_forwards(ep, key))
		return fi_writev(ep->base, iov, desc, count, dest, addr, key,
				 context);
	return write_iov(ep, iov, desc, count, 0, dest, addr, key, context,
			 rp_ep_flags(ep), ep->implicit_flags,
			 rp_ep_wants_cqe(ep, ep->op_flags));
}

/* Not inlined, so that rma_write() to the base needs no stack frame. */
static __attribute__((noinline)) ssize_t
write_one(struct fid_ep *fid, const void *buf, size_t len, void *desc,
	  fi_addr_t dest, uint64_t addr, uint64_t key, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};

	return rma_writev(fid, &iov, &desc, 1, dest, addr, key, context);
}

static ssize_t rma_write(struct fid_ep *fid, const void *buf, size_t len,
			 void *desc, fi_addr_t dest, uint64_t addr,
			 uint64_t key, void *context)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);

	if (rp_ep_forwards(ep, key))
		return fi_write(ep->base, buf, len, desc, dest, addr, key,
				context);
	return write_one(fid, buf, len, desc, dest, addr, key, context);
}

static ssize_t rma_writedata(struct fid_ep *fid, const void *buf, size_t len,
			     void *desc, uint64_t data, fi_addr_t dest,
			     uint64_t addr, uint64_t key, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct rp_ep *ep = rp_ep_of(&fid->fid);

	if (rp_ep_forwards(ep, key))
		return fi_writedata(ep->base, buf, len, desc, data, dest, addr,
				    key, context);
	return write_iov(ep, &iov, &desc, 1, data, dest, addr, key, context,
			 rp_ep_flags(ep) | FI_REMOTE_CQ_DATA,
			 ep->implicit_flags, rp_ep_wants_cqe(ep, ep->op_flags));
}

static ssize_t rma_inject(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t dest, uint64_t addr, uint64_t key)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct rp_ep *ep = rp_ep_of(&fid->fid);
	int ret;

	if (rp_ep_persistent(ep, key))
		return write_iov(ep, &iov, NULL, 1, 0, dest, addr, key, NULL,
				 FI_INJECT, 0, false);
	ret = ep->forward_below ? 0 : rp_ep_check_order(fid, dest);
	return ret ? ret : fi_inject_write(ep->base, buf, len, dest, addr, key);
}

static ssize_t rma_injectdata(struct fid_ep *fid, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest, uint64_t addr,
			      uint64_t key)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct rp_ep *ep = rp_ep_of(&fid->fid);
	int ret;

	if (rp_ep_persistent(ep, key))
		return write_iov(ep, &iov, NULL, 1, data, dest, addr, key, NULL,
				 FI_INJECT | FI_REMOTE_CQ_DATA, 0, false);
	ret = ep->forward_below ? 0 : rp_ep_check_order(fid, dest);
	return ret ? ret
		   : fi_inject_writedata(ep->base, buf, len, data, dest, addr,
					 key);
}

/* --- reads --- */

static ssize_t rma_readmsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			   uint64_t flags)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);
	ssize_t ret = classify_keys(ep, msg);

	if (ret < 0)
		return ret;
	if (flags & FI_COMMIT_COMPLETE)
		return ep->dom->makes_keys
			       ? rp_local_post_read(ep, msg, flags, ret)
			       : rp_rma_refuse_ordinary_key();
	if (ret) {
		pthread_mutex_lock(&ep->dom->lock);
		ret = rp_rma_read(ep, msg, flags, rp_task_done, NULL);
		pthread_mutex_unlock(&ep->dom->lock);
		return ret;
	}
	if ((flags & FI_FENCE) || !ep->forward_below)
		ret = rp_ep_check_order(fid, msg->addr);
	return ret ? ret : fi_readmsg(ep->base, msg, flags);
}

/* A read ignores FI_COMMIT_COMPLETE as a default flag. */
static ssize_t rma_readv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 uint64_t addr, uint64_t key, void *context)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);
	struct fi_rma_iov rma = {.addr = addr, .key = key};
	const struct fi_msg_rma msg = {
		.msg_iov = iov,
		.desc = desc,
		.iov_count = count,
		.addr = src,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = context,
	};

	if (rp_ep_forwards(ep, key))
		return fi_readv(ep->base, iov, desc, count, src, addr, key,
				context);
	for (size_t i = 0; i < count; i++)
		rma.len += iov[i].iov_len;
	return rma_readmsg(fid, &msg, rp_ep_flags(ep) & ~FI_COMMIT_COMPLETE);
}

static ssize_t rma_read(struct fid_ep *fid, void *buf, size_t len, void *desc,
			fi_addr_t src, uint64_t addr, uint64_t key,
			void *context)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct rp_ep *ep = rp_ep_of(&fid->fid);

	if (rp_ep_forwards(ep, key))
		return fi_read(ep->base, buf, len, desc, src, addr, key,
			       context);
	return rma_readv(fid, &iov, &desc, 1, src, addr, key, context);
}

struct fi_ops_rma rp_rma_ops = {
	.size = sizeof(struct fi_ops_rma),
	.read = rma_read,
	.readv = rma_readv,
	.readmsg = rma_readmsg,
	.write = rma_write,
	.writev = rma_writev,
	.writemsg = rma_writemsg,
	.inject = rma_inject,
	.writedata = rma_writedata,
	.injectdata = rma_injectdata,
};
