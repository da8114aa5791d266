// SPDX-License-Identifier: BSD-2-Clause
/* Tagged messages: one bit of the tag is ours and never meets the user's. */
#include "rpmem/rpmem.h"

static struct rp_ep *ep_of(struct fid_ep *fid)
{
	return rp_container_of(fid, struct rp_ep, fid);
}

/*
 * A user's tag must leave the reserved bit alone. In a receive it may stand
 * under an ignore bit, where it says nothing; then both are taken out, so that
 * no control message can match, not even ignore ~0.
 */
static bool tag_bad(const struct rp_ep *ep, uint64_t tag)
{
	if (!(tag & ep->dom->ctrl_bit))
		return false;
	RP_WARN(EP_DATA,
		"tag %#llx uses bit %d, which mem_tag_format leaves "
		"out\n",
		(unsigned long long)tag, __builtin_ctzll(ep->dom->ctrl_bit));
	return true;
}

static bool match_bad(const struct rp_ep *ep, uint64_t *tag, uint64_t *ignore)
{
	*tag &= ~(*ignore & ep->dom->ctrl_bit);
	*ignore &= ~ep->dom->ctrl_bit;
	return tag_bad(ep, *tag);
}

static ssize_t tagged_recv(struct fid_ep *fid, void *buf, size_t len,
			   void *desc, fi_addr_t src, uint64_t tag,
			   uint64_t ignore, void *context)
{
	struct rp_ep *ep = ep_of(fid);

	if (match_bad(ep, &tag, &ignore))
		return -FI_EINVAL;
	return fi_trecv(ep->base, buf, len, desc, rp_av_to_base(ep->av, src),
			tag, ignore, context);
}

static ssize_t tagged_recvv(struct fid_ep *fid, const struct iovec *iov,
			    void **desc, size_t count, fi_addr_t src,
			    uint64_t tag, uint64_t ignore, void *context)
{
	struct rp_ep *ep = ep_of(fid);

	if (match_bad(ep, &tag, &ignore))
		return -FI_EINVAL;
	return fi_trecvv(ep->base, iov, desc, count, rp_av_to_base(ep->av, src),
			 tag, ignore, context);
}

static ssize_t tagged_recvmsg(struct fid_ep *fid,
			      const struct fi_msg_tagged *msg, uint64_t flags)
{
	struct rp_ep *ep = ep_of(fid);
	struct fi_msg_tagged m = *msg;

	if (match_bad(ep, &m.tag, &m.ignore))
		return -FI_EINVAL;
	m.addr = rp_av_to_base(ep->av, msg->addr);
	return fi_trecvmsg(ep->base, &m, flags);
}

static ssize_t tagged_send(struct fid_ep *fid, const void *buf, size_t len,
			   void *desc, fi_addr_t dest, uint64_t tag,
			   void *context)
{
	struct rp_ep *ep = ep_of(fid);

	if (tag_bad(ep, tag))
		return -FI_EINVAL;
	return fi_tsend(ep->base, buf, len, desc, rp_av_to_base(ep->av, dest),
			tag, context);
}

static ssize_t tagged_sendv(struct fid_ep *fid, const struct iovec *iov,
			    void **desc, size_t count, fi_addr_t dest,
			    uint64_t tag, void *context)
{
	struct rp_ep *ep = ep_of(fid);

	if (tag_bad(ep, tag))
		return -FI_EINVAL;
	return fi_tsendv(ep->base, iov, desc, count,
			 rp_av_to_base(ep->av, dest), tag, context);
}

static ssize_t tagged_sendmsg(struct fid_ep *fid,
			      const struct fi_msg_tagged *msg, uint64_t flags)
{
	struct rp_ep *ep = ep_of(fid);
	struct fi_msg_tagged m = *msg;

	if (tag_bad(ep, msg->tag))
		return -FI_EINVAL;
	if (flags & FI_COMMIT_COMPLETE) {
		RP_WARN(EP_DATA, "FI_COMMIT_COMPLETE on a message is not "
				 "offered\n");
		return -FI_EOPNOTSUPP;
	}
	m.addr = rp_av_to_base(ep->av, msg->addr);
	return fi_tsendmsg(ep->base, &m, flags);
}

static ssize_t tagged_inject(struct fid_ep *fid, const void *buf, size_t len,
			     fi_addr_t dest, uint64_t tag)
{
	struct rp_ep *ep = ep_of(fid);

	if (tag_bad(ep, tag))
		return -FI_EINVAL;
	return fi_tinject(ep->base, buf, len, rp_av_to_base(ep->av, dest), tag);
}

static ssize_t tagged_senddata(struct fid_ep *fid, const void *buf, size_t len,
			       void *desc, uint64_t data, fi_addr_t dest,
			       uint64_t tag, void *context)
{
	struct rp_ep *ep = ep_of(fid);

	if (tag_bad(ep, tag))
		return -FI_EINVAL;
	return fi_tsenddata(ep->base, buf, len, desc, data,
			    rp_av_to_base(ep->av, dest), tag, context);
}

static ssize_t tagged_injectdata(struct fid_ep *fid, const void *buf,
				 size_t len, uint64_t data, fi_addr_t dest,
				 uint64_t tag)
{
	struct rp_ep *ep = ep_of(fid);

	if (tag_bad(ep, tag))
		return -FI_EINVAL;
	return fi_tinjectdata(ep->base, buf, len, data,
			      rp_av_to_base(ep->av, dest), tag);
}

struct fi_ops_tagged rp_tagged_ops = {
	.size = sizeof(struct fi_ops_tagged),
	.recv = tagged_recv,
	.recvv = tagged_recvv,
	.recvmsg = tagged_recvmsg,
	.send = tagged_send,
	.sendv = tagged_sendv,
	.sendmsg = tagged_sendmsg,
	.inject = tagged_inject,
	.senddata = tagged_senddata,
	.injectdata = tagged_injectdata,
};
