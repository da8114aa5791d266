// SPDX-License-Identifier: BSD-2-Clause
/* Remote writes and reads; where FI_COMMIT_COMPLETE becomes a commit. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rpmem/rpmem.h"

static struct rp_ep *ep_of(struct fid_ep *fid)
{
	return rp_container_of(fid, struct rp_ep, fid);
}

/* --- completions --- */

void rp_slot_tell_ok(struct rp_slot *s)
{
	struct fi_cq_tagged_entry e = {
		.op_context = s->context,
		.flags = s->flags,
	};

	if (s->want)
		rp_cq_push(s->ep->tx_cq, &e, FI_ADDR_NOTAVAIL);
}

void rp_slot_tell_error(struct rp_slot *s, int err, int prov_errno,
			const struct rp_outcome *out)
{
	struct fi_cq_err_entry e = {
		.op_context = s->context,
		.flags = s->flags,
		.err = err,
		.prov_errno = prov_errno,
		.data = out ? out->range : 0,
	};

	rp_cq_push_error(s->ep->tx_cq, &e, out);
}

/* The bases count atomics that return something among the reads. */
static enum rp_cntr_kind counter_of(const struct rp_slot *s)
{
	return s->fetches ? RP_CNTR_READ : RP_CNTR_WRITE;
}

static void slot_release(struct rp_slot *s)
{
	/* An endpoint being closed tells nobody; the base still owns it. */
	free(s->buf);
	rp_slot_put(&s->ep->dom->slots, s);
}

/*
 * The commit has ended. A write that carried it completes now, exactly once;
 * should the base still be busy with the bytes (the target is silent), the
 * slot waits for it in secret.
 */
void rp_rma_commit_done(void *arg, const struct rp_outcome *out)
{
	struct rp_slot *s = arg;

	s->committed = true;
	for (unsigned int i = 0; i < s->nwrites && s->atomic && !s->written &&
				 out->status != RP_ST_OK;
	     i++)
		rp_write_told(&s->write[i]);
	if (!s->ep->dead)
		rp_cntr_tell(s->ep, counter_of(s), out->status != RP_ST_OK);
	if (s->stores)
		atomic_fetch_sub(&s->ep->stores, 1);
	if (s->ep->dead)
		; /* nobody is left to tell */
	else if (out->status == RP_ST_OK)
		rp_slot_tell_ok(s);
	else
		rp_slot_tell_error(s,
				   s->base_err ? s->base_err
					       : rp_status_errno(out->status),
				   (int)out->status, out);
	if (s->kind == RP_SLOT_COMMIT || s->written)
		slot_release(s);
}

void rp_rma_completed(struct rp_slot *s, const struct fi_cq_tagged_entry *e,
		      const struct fi_cq_err_entry *err)
{
	bool has_commit = s->commit;

	s->written = true;
	if (err)
		s->base_err = err->err ? err->err : FI_EIO;
	for (unsigned int i = 0; i < s->nwrites; i++)
		rp_write_done(&s->write[i], s->base_err);
	/* For the user it ends with its commit. */
	if (has_commit)
		rp_cntr_hide(s->ep, counter_of(s), err != NULL);
	if (s->atomic && !err) {
		/* The bases do not agree on what a fetching one is called. */
		s->flags = e->flags;
		if (s->buf && !s->committed)
			rp_atomic_land(s->buf);
	}
	if (!has_commit) {
		if (err)
			rp_slot_tell_error(s, s->base_err, err->prov_errno,
					   NULL);
		else
			rp_slot_tell_ok(s);
	}
	if (!has_commit || s->committed)
		slot_release(s);
}

/* --- posting --- */

static void no_mailbox(void)
{
	RP_WARN(EP_DATA, "the other end of this connection told no mailbox: it "
			 "does not run ofi_rpmem, and nothing that is written "
			 "there can be made durable\n");
}

int rp_rma_peer(struct rp_ep *ep, fi_addr_t dest, struct rp_peer **peer)
{
	struct rp_initiator *in;
	int ret;

	if (ep->dom->msg) {
		if (ep->bare) {
			no_mailbox();
			return -FI_EKEYREJECTED;
		}
		if (!ep->connected)
			return -FI_ENOTCONN;
		dest = 0; /* there is one, whatever it is called */
	} else if (!ep->enabled) {
		/* Until then it may have no address vector. */
		return -FI_EOPBADSTATE;
	} else if (!rp_av_known(ep->av, dest)) {
		RP_WARN(EP_DATA, "address %#llx is not in the address vector\n",
			(unsigned long long)dest);
		return -FI_EINVAL;
	}
	ret = rp_xport_initiator(ep, &in);
	if (ret)
		return ret;
	*peer = rp_peer_get(in, rp_av_to_base(ep->av, dest));
	return *peer ? 0 : -FI_ENOMEM;
}

/* Errors of core that libfabric numbers differently. */
static ssize_t to_fi(int ret)
{
	return ret == -ENOTSUP ? -FI_EOPNOTSUPP : ret;
}

/* how: all but the ranges and whom to tell. */
static int reserve_commit(struct rp_peer *peer, const struct fi_rma_iov *ranges,
			  size_t count, const struct rp_commit_attr *how,
			  struct rp_slot *s)
{
	struct rp_commit_attr attr = *how;
	struct rp_wire_range few[RP_SLOT_IOV], *copy = few;
	int ret;

	if (count > RP_SLOT_IOV) {
		copy = malloc(count * sizeof(*copy));
		if (!copy)
			return -FI_ENOMEM;
	}
	for (size_t i = 0; i < count; i++)
		copy[i] = (struct rp_wire_range){
			.key = ranges[i].key,
			.addr = ranges[i].addr,
			.len = ranges[i].len,
		};
	attr.ranges = copy;
	attr.nranges = count;
	attr.given = copy != few ? copy : NULL;
	attr.done = rp_rma_commit_done;
	attr.arg = s;
	ret = rp_commit_reserve(peer, &attr, &s->commit);
	if (ret)
		free(attr.given);
	return ret;
}

ssize_t rp_rma_commit(struct rp_ep *ep, const struct fi_rma_iov *ranges,
		      size_t count, fi_addr_t dest, enum rp_level level,
		      enum rp_class required, const struct fi_rpmem_then *then,
		      bool want, void *context)
{
	struct rp_commit_attr how = {.level = level, .required = required};
	struct rp_dom *dom = ep->dom;
	struct rp_peer *peer;
	struct rp_slot *s;
	int ret;

	if (!ep->dom->marked)
		return -FI_EKEYREJECTED;
	if (then) {
		how.effect = RP_EFFECT_THEN;
		how.then = (struct rp_wire_then){
			.key = then->key,
			.addr = then->addr,
			.value = then->value,
		};
	}
	pthread_mutex_lock(&dom->lock);
	ret = rp_rma_peer(ep, dest, &peer);
	if (ret)
		goto unlock;
	s = rp_slot_get(&dom->slots, ep, RP_SLOT_COMMIT);
	if (!s) {
		ret = -FI_EAGAIN;
		goto unlock;
	}
	s->want = want;
	s->context = context;
	s->flags = FI_RMA | FI_WRITE;
	ret = reserve_commit(peer, ranges, count, &how, s);
	if (ret) {
		rp_slot_put(&dom->slots, s);
		if (ret == -FI_EAGAIN)
			rp_domain_progress(dom);
	} else {
		s->stores = then;
		atomic_fetch_add(&ep->stores, s->stores);
		if (!rp_linked_commit(ep, s))
			rp_commit_start(s->commit);
	}
unlock:
	pthread_mutex_unlock(&dom->lock);
	return to_fi(ret);
}

/*
 * A store behind a commit is done later than the base would do it: an operation
 * that meets it waits, or it would overtake.
 */
static bool meets_store(struct rp_ep *ep, struct rp_peer *peer,
			const struct fi_rma_iov *iov, size_t n)
{
	if (!atomic_load_explicit(&ep->stores, memory_order_relaxed))
		return false;
	for (size_t i = 0; i < n; i++)
		if (rp_peer_store_overlaps(peer, iov[i].key, iov[i].addr,
					   iov[i].len))
			return true;
	return false;
}

bool rp_rma_meets_store(struct rp_ep *ep, fi_addr_t dest,
			const struct fi_rma_iov *iov, size_t n)
{
	struct rp_dom *dom = ep->dom;
	struct rp_peer *peer;
	bool any;

	if (!atomic_load_explicit(&ep->stores, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&dom->lock);
	any = !rp_rma_peer(ep, dest, &peer) && meets_store(ep, peer, iov, n);
	if (any)
		rp_domain_progress(dom);
	pthread_mutex_unlock(&dom->lock);
	return any;
}

int rp_track_begin(struct rp_ep *ep, const struct rp_track *t,
		   struct rp_slot **out)
{
	struct rp_commit_attr how = {
		.level = RP_LEVEL_DURABLE,
		.required = ep->required,
		.effect = t->notify ? RP_EFFECT_NOTIFY : RP_EFFECT_NONE,
		.data = t->data,
	};
	struct rp_peer *peer;
	struct rp_slot *s;
	int ret;

	if (t->nranges > RP_SLOT_IOV)
		return -FI_EINVAL;
	for (size_t i = 0; i < t->nranges; i++)
		if (t->ranges[i].len + t->ranges[i].addr < t->ranges[i].addr)
			return -FI_EINVAL;
	ret = rp_rma_peer(ep, t->dest, &peer);
	if (ret)
		return ret;
	if (meets_store(ep, peer, t->ranges, t->nranges))
		return -FI_EAGAIN;
	s = rp_slot_get(&ep->dom->slots, ep, RP_SLOT_WRITE);
	if (!s)
		return -FI_EAGAIN;
	s->want = t->want;
	s->context = t->context;
	s->flags = t->flags;
	s->fetches = t->flags & FI_READ;
	if (t->commit) {
		ret = reserve_commit(peer, t->ranges, t->nranges, &how, s);
		if (ret) {
			rp_slot_put(&ep->dom->slots, s);
			return (int)to_fi(ret);
		}
	}
	for (size_t i = 0; i < t->nranges; i++)
		if (rp_key_is_persistent(t->ranges[i].key) && t->ranges[i].len)
			rp_write_begin(peer, &s->write[s->nwrites++],
				       t->ranges[i].key, t->ranges[i].addr,
				       t->ranges[i].len);
	*out = s;
	return 0;
}

void rp_track_posted(struct rp_slot *s)
{
	if (s->commit)
		rp_commit_start(s->commit);
}

void rp_track_undo(struct rp_slot *s)
{
	while (s->nwrites)
		rp_write_undo(&s->write[--s->nwrites]);
	if (s->commit)
		rp_commit_unreserve(s->commit);
	slot_release(s);
}

uint64_t rp_track_flags(const struct rp_slot *s, uint64_t flags)
{
	/*
	 * What a commit needs follows at once: a fence that goes out with the
	 * write, or a message of its own.
	 */
	if (flags & FI_COMMIT_COMPLETE)
		flags &= ~FI_MORE;
	if (s->commit && rp_commit_fences(s->commit))
		flags |= FI_MORE;
	/* The answer comes over the same connection, and so proves as much. */
	if (s->ep->dom->msg)
		return (flags & ~RP_OUR_FLAGS & ~FI_INJECT_COMPLETE) |
		       FI_COMPLETION;
	return (flags & ~RP_OUR_FLAGS &
		~(FI_TRANSMIT_COMPLETE | FI_INJECT_COMPLETE)) |
	       FI_COMPLETION | FI_DELIVERY_COMPLETE;
}

/*
 * A small durable write: the request carries the bytes, in one message, and the
 * base sees no write. True: *ret is what became of it. What touches its bytes
 * waits (meets_store), so they are read and written in order; a later write to
 * others may be seen before it, so not where the program was promised the order
 * of all its writes.
 */
static bool stored_inline(struct rp_ep *ep, const struct fi_msg_rma *msg,
			  size_t len, uint64_t flags, bool want, ssize_t *ret)
{
	const struct fi_rma_iov *to = msg->rma_iov;
	uint8_t bytes[RP_WIRE_MAX_STORE];
	struct rp_commit_attr how = {
		.level = RP_LEVEL_DURABLE,
		.required = ep->required,
		.effect = RP_EFFECT_STORE,
		.bytes = bytes,
	};
	struct rp_peer *peer;
	struct rp_slot *s;

	if (!(flags & FI_COMMIT_COMPLETE) ||
	    (flags & (FI_REMOTE_CQ_DATA | FI_FENCE)) || ep->keeps_waw ||
	    msg->rma_iov_count != 1 || !len || len > rp_params.inline_max ||
	    len != to->len || !rp_key_is_persistent(to->key) ||
	    to->addr + len < to->addr || rp_rma_peer(ep, msg->addr, &peer) ||
	    !rp_peer_may_store(peer, to->key, to->addr, len))
		return false;
	/* A buffer is the program's again with the completion that it wants. */
	how.lent = want && msg->iov_count == 1 && !(flags & FI_INJECT);
	if (how.lent)
		how.bytes = msg->msg_iov[0].iov_base;
	else
		rp_msg_copy((char *)bytes, msg);
	*ret = -FI_EAGAIN;
	s = rp_slot_get(&ep->dom->slots, ep, RP_SLOT_COMMIT);
	if (!s)
		return true;
	s->want = want;
	s->context = msg->context;
	s->flags = FI_RMA | FI_WRITE;
	*ret = to_fi(reserve_commit(peer, to, 1, &how, s));
	if (!*ret)
		*ret = rp_commit_start_store(s->commit);
	if (*ret) {
		rp_slot_put(&ep->dom->slots, s);
		return true;
	}
	s->stores = true;
	atomic_fetch_add(&ep->stores, 1);
	return true;
}

static ssize_t tracked_write(struct rp_ep *ep, const struct fi_msg_rma *msg,
			     uint64_t flags, bool want)
{
	const struct rp_track t = {
		.ranges = msg->rma_iov,
		.nranges = msg->rma_iov_count,
		.dest = msg->addr,
		.commit = flags & FI_COMMIT_COMPLETE,
		/* The target is told of it when it is durable, not before. */
		.notify = (flags & FI_COMMIT_COMPLETE) &&
			  (flags & FI_REMOTE_CQ_DATA),
		.want = want,
		.context = msg->context,
		.flags = FI_RMA | FI_WRITE,
		.data = msg->data,
	};
	struct fi_rma_iov iov[RP_SLOT_IOV];
	struct rp_dom *dom = ep->dom;
	struct fi_msg_rma m = *msg;
	struct rp_slot *s;
	size_t len = 0;
	ssize_t ret;

	/* Past it ofi_rxm 1.17 would write behind its own buffer. */
	for (size_t i = 0; i < msg->iov_count; i++)
		len += msg->msg_iov[i].iov_len;
	if ((flags & FI_INJECT) && len > ep->inject_size)
		return -FI_EINVAL;
	pthread_mutex_lock(&dom->lock);
	if (rp_linked_write(ep, msg, len, flags, want, &ret) ||
	    rp_gather_write(ep, msg, len, flags, want, &ret) ||
	    stored_inline(ep, msg, len, flags, want, &ret))
		goto posted;
	ret = rp_track_begin(ep, &t, &s);
	if (!ret) {
		for (size_t i = 0; i < msg->rma_iov_count; i++) {
			iov[i] = msg->rma_iov[i];
			iov[i].key = rp_key_base(iov[i].key);
		}
		m.rma_iov = iov;
		m.addr = rp_av_to_base(ep->av, msg->addr);
		m.context = s;
		if (t.notify)
			flags &= ~FI_REMOTE_CQ_DATA;
		ret = fi_writemsg(ep->base, &m, rp_track_flags(s, flags));
		if (ret)
			rp_track_undo(s);
		else
			rp_track_posted(s);
	}
posted:
	if (ret == -FI_EAGAIN)
		rp_domain_progress(dom);
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

static bool any_persistent(const struct fi_msg_rma *msg)
{
	for (size_t i = 0; i < msg->rma_iov_count; i++)
		if (rp_key_is_persistent(msg->rma_iov[i].key))
			return true;
	return false;
}

/* Any write in message form, flags complete. */
static ssize_t write_any(struct rp_ep *ep, const struct fi_msg_rma *msg,
			 uint64_t flags, bool want)
{
	struct fi_rma_iov iov[RP_SLOT_IOV];
	struct fi_msg_rma m = *msg;

	if ((flags & FI_COMMIT_COMPLETE) || any_persistent(msg))
		return tracked_write(ep, msg, flags, want);
	if (msg->rma_iov_count > RP_SLOT_IOV)
		return -FI_EINVAL;
	for (size_t i = 0; i < msg->rma_iov_count; i++) {
		iov[i] = msg->rma_iov[i];
		iov[i].key = rp_key_base(iov[i].key);
	}
	m.rma_iov = iov;
	m.addr = rp_av_to_base(ep->av, msg->addr);
	return fi_writemsg(ep->base, &m, flags);
}

static ssize_t rma_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			    uint64_t flags)
{
	struct rp_ep *ep = ep_of(fid);
	bool want = rp_ep_wants(ep, flags);

	if (!(flags & FI_RPMEM_SAVE)) {
		if (ep->unasked && any_persistent(msg))
			flags |= ep->unasked;
		return write_any(ep, msg, flags, want);
	}
	/* Nothing moves: only what was written before is brought to a level. */
	if (msg->iov_count || (flags & (FI_REMOTE_CQ_DATA | FI_INJECT)))
		return -FI_EINVAL;
	if (flags & FI_COMMIT_COMPLETE)
		return rp_rma_commit(ep, msg->rma_iov, msg->rma_iov_count,
				     msg->addr, RP_LEVEL_DURABLE, ep->required,
				     NULL, want, msg->context);
	if (flags & FI_DELIVERY_COMPLETE)
		return rp_rma_commit(ep, msg->rma_iov, msg->rma_iov_count,
				     msg->addr, RP_LEVEL_VISIBLE, ep->required,
				     NULL, want, msg->context);
	RP_WARN(EP_DATA, "FI_RPMEM_SAVE needs FI_COMMIT_COMPLETE (durable) or "
			 "FI_DELIVERY_COMPLETE (visible)\n");
	return -FI_EINVAL;
}

/* The forms without flags take the endpoint's, and may take a short cut. */
static ssize_t write_iov(struct rp_ep *ep, const struct iovec *iov, void **desc,
			 size_t count, uint64_t data, fi_addr_t dest,
			 uint64_t addr, uint64_t key, void *context,
			 uint64_t flags, bool want)
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
	return write_any(ep, &msg, flags, want);
}

static inline bool plain(const struct rp_ep *ep, uint64_t key)
{
	return !rp_key_is_persistent(key) && !rp_ep_commits(ep);
}

static ssize_t rma_writev(struct fid_ep *fid, const struct iovec *iov,
			  void **desc, size_t count, fi_addr_t dest,
			  uint64_t addr, uint64_t key, void *context)
{
	struct rp_ep *ep = ep_of(fid);

	if (plain(ep, key))
		return fi_writev(ep->base, iov, desc, count,
				 rp_av_to_base(ep->av, dest), addr,
				 rp_key_base(key), context);
	return write_iov(ep, iov, desc, count, 0, dest, addr, key, context,
			 ep->op_flags | ep->unasked,
			 rp_ep_wants(ep, ep->op_flags));
}

/* Apart, so that what the base gets at once needs no stack frame. */
static __attribute__((noinline)) ssize_t
write_one(struct fid_ep *fid, const void *buf, size_t len, void *desc,
	  fi_addr_t dest, uint64_t addr, uint64_t key, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct rp_ep *ep = ep_of(fid);

	if (plain(ep, key))
		return fi_write(ep->base, buf, len, desc,
				rp_av_to_base(ep->av, dest), addr,
				rp_key_base(key), context);
	return rma_writev(fid, &iov, &desc, 1, dest, addr, key, context);
}

static ssize_t rma_write(struct fid_ep *fid, const void *buf, size_t len,
			 void *desc, fi_addr_t dest, uint64_t addr,
			 uint64_t key, void *context)
{
	struct rp_ep *ep = ep_of(fid);
	uint64_t base_key = key;

	if (key & RP_KEY_MARK) {
		if (key & RP_KEY_PERSISTENT)
			goto other;
		base_key = (uint32_t)key;
	}
	if (ep->straight)
		return fi_write(ep->base, buf, len, desc, dest, addr, base_key,
				context);
other:
	return write_one(fid, buf, len, desc, dest, addr, key, context);
}

static ssize_t rma_writedata(struct fid_ep *fid, const void *buf, size_t len,
			     void *desc, uint64_t data, fi_addr_t dest,
			     uint64_t addr, uint64_t key, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct rp_ep *ep = ep_of(fid);

	if (plain(ep, key))
		return fi_writedata(ep->base, buf, len, desc, data,
				    rp_av_to_base(ep->av, dest), addr,
				    rp_key_base(key), context);
	return write_iov(ep, &iov, &desc, 1, data, dest, addr, key, context,
			 ep->op_flags | ep->unasked | FI_REMOTE_CQ_DATA,
			 rp_ep_wants(ep, ep->op_flags));
}

static ssize_t rma_inject(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t dest, uint64_t addr, uint64_t key)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct rp_ep *ep = ep_of(fid);

	/* It has no completion to make durable, so the default is no matter. */
	if (!rp_key_is_persistent(key))
		return fi_inject_write(ep->base, buf, len,
				       rp_av_to_base(ep->av, dest), addr,
				       rp_key_base(key));
	return write_iov(ep, &iov, NULL, 1, 0, dest, addr, key, NULL, FI_INJECT,
			 false);
}

static ssize_t rma_injectdata(struct fid_ep *fid, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest, uint64_t addr,
			      uint64_t key)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct rp_ep *ep = ep_of(fid);

	if (!rp_key_is_persistent(key))
		return fi_inject_writedata(ep->base, buf, len, data,
					   rp_av_to_base(ep->av, dest), addr,
					   rp_key_base(key));
	return write_iov(ep, &iov, NULL, 1, data, dest, addr, key, NULL,
			 FI_INJECT | FI_REMOTE_CQ_DATA, false);
}

/* The usual case is two loads. */
static inline bool read_waits(struct rp_ep *ep, fi_addr_t src, uint64_t addr,
			      uint64_t key, size_t len)
{
	const struct fi_rma_iov iov = {.addr = addr, .len = len, .key = key};

	return atomic_load_explicit(&ep->stores, memory_order_relaxed) &&
	       rp_rma_meets_store(ep, src, &iov, 1);
}

static ssize_t rma_read(struct fid_ep *fid, void *buf, size_t len, void *desc,
			fi_addr_t src, uint64_t addr, uint64_t key,
			void *context)
{
	struct rp_ep *ep = ep_of(fid);

	if (read_waits(ep, src, addr, key, len))
		return -FI_EAGAIN;
	return fi_read(ep->base, buf, len, desc, rp_av_to_base(ep->av, src),
		       addr, rp_key_base(key), context);
}

static ssize_t rma_readv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 uint64_t addr, uint64_t key, void *context)
{
	struct rp_ep *ep = ep_of(fid);
	size_t len = 0;

	for (size_t i = 0; i < count; i++)
		len += iov[i].iov_len;
	if (read_waits(ep, src, addr, key, len))
		return -FI_EAGAIN;
	return fi_readv(ep->base, iov, desc, count, rp_av_to_base(ep->av, src),
			addr, rp_key_base(key), context);
}

static ssize_t rma_readmsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			   uint64_t flags)
{
	struct rp_ep *ep = ep_of(fid);
	struct fi_rma_iov iov[RP_SLOT_IOV];
	struct fi_msg_rma m = *msg;

	if (flags & FI_RPMEM_SAVE)
		return -FI_EINVAL;
	if (msg->rma_iov_count > RP_SLOT_IOV)
		return -FI_EINVAL;
	if (rp_rma_meets_store(ep, msg->addr, msg->rma_iov, msg->rma_iov_count))
		return -FI_EAGAIN;
	for (size_t i = 0; i < msg->rma_iov_count; i++) {
		iov[i] = msg->rma_iov[i];
		iov[i].key = rp_key_base(iov[i].key);
	}
	m.rma_iov = iov;
	if (flags & FI_COMMIT_COMPLETE)
		return rp_local_read(ep, &m, flags);
	m.addr = rp_av_to_base(ep->av, msg->addr);
	return fi_readmsg(ep->base, &m, flags);
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
