// SPDX-License-Identifier: BSD-2-Clause
/* Reads into local persistent memory that complete when it is durable. */
#include <errno.h>

#include "rpmem/rpmem.h"

static void release(struct rp_slot *s)
{
	rp_slot_put(&s->ep->dom->slots, s);
}

static void fail(struct rp_slot *s, enum rp_status st, uint32_t detail)
{
	const struct rp_outcome out = {
		.status = st,
		.detail = detail,
		.required = s->ep->required,
	};

	rp_cntr_tell(s->ep, RP_CNTR_READ, true);
	rp_slot_tell_error(s, rp_status_errno(st), (int)st, &out);
}

static void flushed(void *arg, enum rp_status st, uint32_t detail)
{
	struct rp_slot *s = arg;

	if (st == RP_ST_OK) {
		rp_cntr_tell(s->ep, RP_CNTR_READ, false);
		rp_slot_tell_ok(s);
	} else {
		fail(s, st, detail);
	}
	release(s);
}

/*
 * The bytes are here: flush them. The region is looked for again, because the
 * program may have closed it since.
 */
static enum rp_status flush(struct rp_slot *s)
{
	struct rp_local at[RP_SLOT_IOV];
	struct rp_dom *dom = s->ep->dom;
	const char *why;

	for (unsigned int i = 0; i < s->niov; i++) {
		const char *buf = s->iov[i].iov_base;

		at[i].region = rp_mr_holding(dom, buf, s->iov[i].iov_len,
					     s->ep->required, &why);
		if (!at[i].region)
			return RP_ST_STALE_KEY;
		at[i].off = (uint64_t)(buf - (char *)at[i].region->base);
		at[i].len = s->iov[i].iov_len;
	}
	return rp_agent_local_flush(dom->agent, &s->ep->xport, at, s->niov,
				    flushed, s)
		       ? RP_ST_NO_MEMORY
		       : RP_ST_OK;
}

void rp_local_completed(struct rp_slot *s, const struct fi_cq_err_entry *err)
{
	enum rp_status st;

	s->written = true;
	/* Read, but for the user it ends with the flush. */
	if (!err)
		rp_cntr_hide(s->ep, RP_CNTR_READ, false);
	if (err) {
		rp_slot_tell_error(s, err->err, err->prov_errno, NULL);
	} else if (s->ep->dead) {
		; /* nobody is left to tell */
	} else {
		st = flush(s);
		if (st == RP_ST_OK)
			return;
		fail(s, st, 0);
	}
	release(s);
}

void rp_local_abandon(struct rp_ep *ep)
{
	struct rp_slot *s, *next;

	for (s = LIST_FIRST(&ep->dom->slots.used); s; s = next) {
		next = LIST_NEXT(s, link);
		if (s->ep != ep || s->kind != RP_SLOT_READ || !s->written)
			continue;
		fail(s, RP_ST_CANCELED, 0);
		release(s);
	}
}

static int check(struct rp_ep *ep, const struct fi_msg_rma *msg,
		 struct rp_slot *s)
{
	const char *why;

	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	if (!ep->dom->msg && !rp_av_known(ep->av, msg->addr)) {
		RP_WARN(EP_DATA, "address %#llx is not in the address vector\n",
			(unsigned long long)msg->addr);
		return -FI_EINVAL;
	}
	for (size_t i = 0; i < msg->iov_count; i++) {
		const struct iovec *v = &msg->msg_iov[i];

		if (!v->iov_len)
			continue;
		if (!rp_mr_holding(ep->dom, v->iov_base, v->iov_len,
				   ep->required, &why)) {
			RP_WARN(EP_DATA,
				"FI_COMMIT_COMPLETE on a read: its buffer at "
				"%p, %zu bytes, %s\n",
				v->iov_base, v->iov_len, why);
			return -FI_EINVAL;
		}
		s->iov[s->niov++] = *v;
	}
	return s->niov ? 0 : -FI_EINVAL;
}

ssize_t rp_local_read(struct rp_ep *ep, const struct fi_msg_rma *msg,
		      uint64_t flags)
{
	struct rp_dom *dom = ep->dom;
	struct fi_msg_rma m = *msg;
	struct rp_slot *s;
	ssize_t ret;

	if (msg->iov_count > RP_SLOT_IOV)
		return -FI_EINVAL;
	pthread_mutex_lock(&dom->lock);
	s = rp_slot_get(&dom->slots, ep, RP_SLOT_READ);
	if (!s) {
		ret = -FI_EAGAIN;
		goto unlock;
	}
	ret = check(ep, msg, s);
	if (!ret)
		ret = rp_xport_activate(ep, false);
	if (!ret) {
		s->want = rp_ep_wants(ep, flags);
		s->context = msg->context;
		s->flags = FI_RMA | FI_READ;
		m.context = s;
		m.addr = rp_av_to_base(ep->av, msg->addr);
		ret = fi_readmsg(ep->base, &m,
				 (flags & ~FI_COMMIT_COMPLETE) | FI_COMPLETION);
	}
	if (ret)
		release(s);
	if (ret == -FI_EAGAIN)
		rp_domain_progress(dom);
unlock:
	pthread_mutex_unlock(&dom->lock);
	return ret;
}
